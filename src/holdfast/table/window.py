"""Which records does a listener see, and where do they stand? A sorted list, with room for so many."""

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Generic, TypeVar

from holdfast.table.model import Model
from holdfast.table.record import Record

__all__ = ["Rank", "Window"]

M = TypeVar("M", bound=Model)

Rank = tuple[bytes, bytes]
"""Where a record stands among others: the bytes to sort by, and its key."""


class Window(Generic[M]):
    """Records in their order. Not for several threads."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._ranks: list[Rank] = []
        self._records: dict[bytes, tuple[Rank, Record[M]]] = {}
        self.whole = True
        """Whether all records that belong into it are in it: none waits behind the last one."""

    def __len__(self) -> int:
        return len(self._ranks)

    def __contains__(self, key: bytes) -> bool:
        return key in self._records

    def __iter__(self) -> Iterator[Record[M]]:
        return (self._records[key][1] for _, key in self._ranks)

    @property
    def full(self) -> bool:
        """Whether one more would push another out."""
        return self.limit is not None and len(self._ranks) >= self.limit

    @property
    def last(self) -> Rank | None:
        """Where the last record stands."""
        return self._ranks[-1] if self._ranks else None

    def get(self, key: bytes) -> Record[M] | None:
        """The record with this key, if it is in the window."""
        found = self._records.get(key)
        return None if found is None else found[1]

    def rank(self, key: bytes) -> Rank:
        """Where a record that is in the window stands."""
        return self._records[key][0]

    def put(self, rank: Rank, record: Record[M]) -> int:
        """Put a record in that is not in the window; its index."""
        self._records[record.key] = (rank, record)
        insort(self._ranks, rank)
        return bisect_left(self._ranks, rank)

    def take(self, key: bytes) -> int:
        """Take a record out; its index."""
        rank, _ = self._records.pop(key)
        index = bisect_left(self._ranks, rank)
        del self._ranks[index]
        return index
