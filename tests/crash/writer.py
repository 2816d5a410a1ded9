"""A process that appends under `sync` until it is killed, telling on its standard output what was confirmed.

python -m tests.crash.writer FOLDER
"""

import os
import sys
import threading

import holdfast
from holdfast import Flush, Message, Roll


def payload_of(sequence: int) -> bytes:
    """What a record of this number holds: any reader can check it."""
    return b"%d:" % sequence + b"x" * (sequence * 37 % 900)


def main(folder: str) -> None:
    """Append from four threads; a line is written only after its records are confirmed."""
    log = holdfast.open(folder).log("events", flush=Flush.sync(), roll=Roll.any(Roll.size(40_000), Roll.count(300)))
    os.write(1, b"open %d\n" % log.end)
    counter = iter(range(10**9))

    def work() -> None:
        while True:
            number = next(counter)
            if number % 5:
                first = log.append(payload_of(number))
                os.write(1, b"%d=%d\n" % (first, number))
            else:
                batch = log.append_many([Message(payload_of(number), key=b"k")] * 3)
                os.write(1, b"".join(b"%d=%d\n" % (sequence, number) for sequence in batch))

    for _ in range(4):
        threading.Thread(target=work, daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1])
