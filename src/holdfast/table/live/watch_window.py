"""Sorted, bounded window of the records that a listener sees, and a reserve of those behind it."""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from holdfast.table.model.model import Model
from holdfast.table.record import Record

__all__ = ["Rank", "Reserve", "WatchWindow"]

M = TypeVar("M", bound=Model)

Rank = tuple[bytes, bytes]
"""Sort key of a record: the bytes to sort by, and its key."""


class WatchWindow(Generic[M]):
    """Records in their order. Not thread-safe. Callers check `full` before `put`: the limit is not enforced."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._ranks: list[Rank] = []
        self._records: dict[bytes, tuple[Rank, Record[M]]] = {}
        self.whole = True
        """Whether the window has all records of its scope: none is behind the last one."""

    def __len__(self) -> int:
        return len(self._ranks)

    def __contains__(self, key: bytes) -> bool:
        return key in self._records

    def __iter__(self) -> Iterator[Record[M]]:
        return (self._records[key][1] for _, key in self._ranks)

    @property
    def full(self) -> bool:
        """Return whether adding a record would push another one out."""
        return self.limit is not None and len(self._ranks) >= self.limit

    @property
    def last(self) -> Rank | None:
        """Return the rank of the last record."""
        return self._ranks[-1] if self._ranks else None

    def get(self, key: bytes) -> Record[M] | None:
        """The record with this key, if it is in the window."""
        found = self._records.get(key)
        return None if found is None else found[1]

    def rank(self, key: bytes) -> Rank:
        """Return the rank of a record in the window."""
        return self._records[key][0]

    def put(self, rank: Rank, record: Record[M]) -> int:
        """Add a record that is not in the window; return its index."""
        self._records[record.key] = (rank, record)
        insort(self._ranks, rank)
        return bisect_left(self._ranks, rank)

    def take(self, key: bytes) -> int:
        """Remove a record; return its index."""
        rank, _ = self._records.pop(key)
        index = bisect_left(self._ranks, rank)
        del self._ranks[index]
        return index


class Reserve(Generic[M]):
    """The next records behind a window, so that not every removal costs a scan.

    It has no gap up to its end, and knows nothing of records behind that.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._records: WatchWindow[M] = WatchWindow(most)
        self._end: Rank | None = None

    @property
    def first(self) -> tuple[Rank, Record[M]] | None:
        """Return the record next behind the window."""
        record = next(iter(self._records), None)
        return None if record is None else (self._records.rank(record.key), record)

    def fill(self, found: Iterable[tuple[Rank, Record[M]]]) -> None:
        """Replace the content by the records that a scan finds behind the window."""
        self._records, self._end = WatchWindow(self.most), None
        for rank, record in found:
            if record.key not in self._records:
                self._records.put(rank, record)
            if self._records.full:
                break
        self._end = self._records.last

    def put(self, rank: Rank, record: Record[M]) -> None:
        """Add a record that is behind the window now, unless it is beyond the end."""
        if self._end is None or rank > self._end:
            return
        if self._records.full and self._records.last is not None:
            self._records.take(self._records.last[1])
            self._end = self._records.last
            self.put(rank, record)
        else:
            self._records.put(rank, record)

    def drop(self, key: bytes) -> None:
        """Remove a record, which has moved or is deleted."""
        if key in self._records:
            self._records.take(key)
