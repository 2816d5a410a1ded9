"""In-memory changes on top of another state, for readers that have applied more of the logs than that state."""

import threading
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from heapq import merge

from holdfast.base.errors import Closed
from holdfast.state.column_families import check_family
from holdfast.state.state import Layer, Reads, State, Transaction, check_reads

__all__ = ["OverlayState"]


class OverlayState:
    """A `State` over another one, which it never changes; commits are lost when it is closed.

    `_guard` protects the changes. Threads: any.
    """

    def __init__(self, below: State) -> None:
        self._below = below
        self._guard = threading.RLock()
        self._values: dict[str, dict[bytes, bytes | None]] = {}
        """By family: the values that were put, None for deleted ones."""
        self._keys: dict[str, list[bytes]] = {}
        self._commits = 0
        self._closed = False

    @property
    def commits(self) -> int:
        """As `State.commits`."""
        return self._commits

    def get(self, family: str, key: bytes) -> bytes | None:
        """As `State.get`."""
        self._check_open()
        with self._guard:
            values = self._values.get(family, {})
            return values[key] if key in values else self._below.get(family, key)

    def first(self, family: str, start: bytes, stop: bytes, *, since: int = 0) -> tuple[bytes, bytes] | None:
        """As `State.first`."""
        return next(self.scan(family, start, stop), None)

    def scan(
        self, family: str, start: bytes = b"", stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """As `State.scan`."""
        self._check_open()
        check_family(family)
        with self._guard:
            values, keys = self._values.get(family, {}), self._keys.get(family, [])
            last = len(keys) if stop is None else bisect_left(keys, stop)
            mine = [(key, values[key]) for key in keys[bisect_left(keys, start) : last]]
            below = self._below.scan(family, start, stop, reverse=reverse)
        if not mine:
            return below
        hidden = {key for key, _ in mine}
        if reverse:
            mine.reverse()
        return _merged(mine, (record for record in below if record[0] not in hidden), reverse=reverse)

    def transaction(self) -> Transaction:
        """As `State.transaction`."""
        self._check_open()
        return Transaction(self)

    @property
    def stopped(self) -> str:
        """As `State.stopped`: always empty."""
        return ""

    @property
    def generation(self) -> int:
        """As `State.generation`."""
        return self._below.generation

    def recover(self) -> None:
        """As `State.recover`: there is nothing to do."""

    def close(self) -> None:
        """As `State.close`; the state below is closed too."""
        self._closed = True
        self._below.close()

    def apply(self, reads: Reads, layers: Sequence[Layer], sync: bool) -> None:
        """As `State.apply`."""
        with self._guard:
            check_reads(reads, self.get)
            for layer in layers:
                for family, ranges in layer.ranges.items():
                    for start, stop in ranges:
                        for key, _ in list(self.scan(family, start, stop)):
                            self._set(family, key, None)
                for family, points in layer.points.items():
                    for key, value in points.items():
                        self._set(family, key, value)
            self._commits += 1

    def _set(self, family: str, key: bytes, value: bytes | None) -> None:
        values = self._values.setdefault(family, {})
        if key not in values:
            insort(self._keys.setdefault(family, []), key)
        values[key] = value

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the state is closed: open the store again")


def _merged(
    mine: list[tuple[bytes, bytes | None]], below: Iterator[tuple[bytes, bytes]], *, reverse: bool
) -> Iterator[tuple[bytes, bytes]]:
    for key, value in merge(mine, below, key=lambda record: record[0], reverse=reverse):
        if value is not None:
            yield key, value
