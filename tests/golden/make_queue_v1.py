"""How was the golden queue of format version 1 made? By this, once; it is never made again, only read.

python -m tests.golden.make_queue_v1 FOLDER
"""

import json
import sys
from pathlib import Path

import holdfast
from holdfast import Backoff, Message
from holdfast.testing import SimClock, SimFiles
from tests.queue.internals import journal_of, state_of


def make(folder: Path) -> None:
    """Write a store in which every kind of event has happened, with where each message stands."""
    files, clock = SimFiles(seed=2), SimClock()
    with holdfast.open("queues", files=files, clock=clock, background=False) as store:
        queue = store.queue("work", max_attempts=2, backoff=Backoff(base=30, cap=30), history=86_400)
        queue.put_many([b"%d" % number for number in range(10)])
        queue.purge()
        queue.seek(4)
        queue.put_many([Message(b"urgent", priority=7, headers={"a": "b"}), Message(b"later", delay=90_000 * 9)])
        queue.put(b"once", dedup="id-1", ttl=90_000 * 9)
        for _ in range(3):  # days, so that the journal is cut behind a snapshot
            clock.advance(90_000)
            queue.ack(queue.lease(1))
            queue.checkpoint()
        held = queue.lease(6, lease=90_000)
        held[0].nack("first try")
        held[1].release()
        queue.ack(held[2:4])
        held[4].extend(80_000)
        queue.get(lease=5)
        clock.advance(60)
        store.tick()
        for message in queue.lease(2):
            message.nack("twice is enough")
        assert len(queue.dead_letters()) > 0
        assert journal_of(queue).log.start > 0
        expected = {
            "standing": json.loads(json.dumps(state_of(queue).describe())),
            "dead": [[letter.payload.decode(), letter.reason, letter.attempts] for letter in queue.dead_letters()],
            "time": clock.time_ns(),
        }
    for path, content in files.snapshot().items():
        if "/state/" not in path and not path.endswith("LOCK"):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
    (folder / "expected_queue.json").write_text(json.dumps(expected, indent=1) + "\n")


if __name__ == "__main__":
    make(Path(sys.argv[1]))
