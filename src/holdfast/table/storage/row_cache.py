"""Bounded cache of recently read rows, which never returns a row that has changed."""

import threading
from collections.abc import Iterable

__all__ = ["CACHE_BYTES", "RowCache"]

CACHE_BYTES = 32 << 20
"""Memory limit in bytes for the rows of a table, present and past together."""
_ENTRY_COST = 250
"""Approximate memory of an entry in addition to the bytes of its row."""


class RowCache:
    """Rows of one table as bytes: the present row of a record, and a past one with its range of versions.

    Reading needs no lock. A row read from the state may be outdated by the time it is cached: so a reader notes `turn`
    before it reads the state. A row is not cached if `turn` has changed since, nor between `hold` and `release`, while
    the state changes. So no cached row is older than the state.
    """

    __slots__ = ("_bytes_left", "_changing", "_guard", "past", "present", "turn")

    def __init__(self, most: int = CACHE_BYTES) -> None:
        self.present: dict[bytes, bytes] = {}
        """Present rows by key."""
        self.past: dict[bytes, tuple[int, int, bytes]] = {}
        """Past rows by key: the first version, the version after the last, and the row."""
        self.turn = 0
        self._changing = 0
        self._bytes_left = most
        self._guard = threading.Lock()

    def keep(self, turn: int, key: bytes, raw: bytes) -> None:
        """Cache a row that was read in this turn; ignored if the turn is over or the state is changing."""
        with self._guard:
            if turn == self.turn and not self._changing and key not in self.present:
                self._evict(len(raw))
                self.present[key] = raw

    def keep_past(self, turn: int, key: bytes, first: int, stop: int, raw: bytes) -> None:
        """Cache a past row that was read in this turn; ignored if the turn is over or the state is changing."""
        with self._guard:
            if turn == self.turn and not self._changing:
                old = self.past.pop(key, None)
                self._bytes_left += 0 if old is None else len(old[2]) + _ENTRY_COST
                self._evict(len(raw))
                self.past[key] = (first, stop, raw)

    def hold(self, keys: Iterable[bytes]) -> None:
        """Remove records that are about to change, and cache nothing until `release`."""
        with self._guard:
            self.turn += 1
            self._changing += 1
            for key in keys:
                self._forget(key)

    def _forget(self, key: bytes) -> None:
        if (raw := self.present.pop(key, None)) is not None:
            self._bytes_left += len(raw) + _ENTRY_COST
        if (then := self.past.pop(key, None)) is not None:
            self._bytes_left += len(then[2]) + _ENTRY_COST

    def release(self) -> None:
        """End `hold`, after the records have changed."""
        with self._guard:
            self.turn += 1
            self._changing -= 1

    def clear(self) -> None:
        """Remove everything, since all of it may have changed."""
        with self._guard:
            self.turn += 1
            self._bytes_left += sum(len(raw) + _ENTRY_COST for raw in self.present.values())
            self._bytes_left += sum(len(then[2]) + _ENTRY_COST for then in self.past.values())
            self.present.clear()
            self.past.clear()

    def reset(self) -> None:
        """Remove everything, and end holds whose caller was interrupted. Called while the state is not changed."""
        self.clear()
        with self._guard:
            self._changing = 0

    def _evict(self, size: int) -> None:
        self._bytes_left -= size + _ENTRY_COST
        while self._bytes_left < 0 and (self.present or self.past):
            if len(self.present) >= len(self.past):
                self._bytes_left += len(self.present.pop(next(iter(self.present)))) + _ENTRY_COST
            else:
                self._bytes_left += len(self.past.pop(next(iter(self.past)))[2]) + _ENTRY_COST
