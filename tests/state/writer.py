"""A process that commits to a state until it is killed, telling on its standard output what was committed.

python -m tests.state.writer FOLDER
"""

import os
import sys
from itertools import count

from holdfast.state import RocksState, State

WIDTH = 50_000
"""Large enough that buffers are flushed and compacted while the tests look on."""


def number_in(state: State) -> int:
    """The number that the last commit left; asserts that its families agree about it."""
    number = int(state.get("positions", b"number") or b"0")
    kept = dict(state.scan("leases"))
    assert len(kept) == min(number, 10), (number, sorted(kept))
    for key, value in kept.items():
        assert number - 10 < int(key) <= number
        assert value == value_of(int(key))
    attempts = state.get("attempts", b"number")
    assert int(attempts or b"0") == number
    return number


def value_of(number: int) -> bytes:
    """What the key of this number holds."""
    return (b"%d:" % number) * (WIDTH // 10)


def main(folder: str) -> None:
    """Each commit changes three families; a line is written only after it is durable."""
    state = RocksState(folder)
    last = int(state.get("positions", b"number") or b"0")
    os.write(1, b"open %d\n" % last)
    for number in count(last + 1):
        transaction = state.transaction()
        transaction.put("leases", b"%012d" % number, value_of(number))
        transaction.delete_range("leases", b"", b"%012d" % (number - 9))
        transaction.put("attempts", b"number", b"%d" % number)
        transaction.put("positions", b"number", b"%d" % number)
        transaction.commit()
        os.write(1, b"%d\n" % number)


if __name__ == "__main__":
    main(sys.argv[1])
