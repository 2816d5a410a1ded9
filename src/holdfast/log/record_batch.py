"""Uniform columnar access to a range of records, in a pending block in memory or in a block on disk."""

from bisect import bisect_right
from itertools import accumulate, pairwise, repeat
from typing import Protocol

from holdfast.log.block import Block
from holdfast.log.pending_block import PendingBlock
from holdfast.log.record import NO_HEADERS, Headers

__all__ = ["BlockSpan", "PendingBlockSpan", "RecordSpan"]


class RecordSpan(Protocol):
    """Records `first` up to `end`, column by column. Each list has one value for each record, in order."""

    first: int
    end: int

    def payloads(self) -> list[bytes]:
        """Return the payloads."""
        ...

    def sizes(self) -> list[int]:
        """Return the length of each payload."""
        ...

    def times(self) -> list[int]:
        """Return when each record was appended, in nanoseconds."""
        ...

    def keys(self) -> list[bytes | None]:
        """Return the keys."""
        ...

    def headers(self) -> list[Headers]:
        """Return the headers."""
        ...

    def has(self, column: str) -> bool:
        """Return whether any record of the whole block has a value in this optional column."""
        ...

    def numbers(self, column: str) -> list[int] | None:
        """Return an optional column of numbers, 0 if a record has none; None if no record has one."""
        ...

    def strings(self, column: str) -> list[bytes | None] | None:
        """Return an optional column of byte strings; None if no record has one."""
        ...

    def fitting(self, most: int) -> "RecordSpan":
        """Return the first records that together have at most so many bytes of payload; at least one record."""
        ...

    def lost(self) -> list[int]:
        """Return the sequences of damaged records."""
        ...


class PendingBlockSpan(RecordSpan):
    """A range of a pending block. Other threads may append to the block meanwhile."""

    __slots__ = ("_pending_block", "_start", "_stop", "end", "first")

    def __init__(self, pending_block: PendingBlock, first: int, end: int) -> None:
        self._pending_block = pending_block
        self.first = first
        self.end = end
        self._start = first - pending_block.first
        self._stop = end - pending_block.first

    def payloads(self) -> list[bytes]:
        return self._pending_block.payloads[self._start : self._stop]

    def sizes(self) -> list[int]:
        return list(map(len, self.payloads()))

    def times(self) -> list[int]:
        return self._pending_block.times[self._start : self._stop]

    def keys(self) -> list[bytes | None]:
        return self.strings("key") or [None] * (self.end - self.first)

    def headers(self) -> list[Headers]:
        values = self._pending_block.extras.get("headers")
        if not values:
            return [NO_HEADERS] * (self.end - self.first)
        return [values.get(position, NO_HEADERS) for position in range(self._start, self._stop)]

    def has(self, column: str) -> bool:
        return bool(self._pending_block.extras.get(column))

    def numbers(self, column: str) -> list[int] | None:
        # By position, never by iterating over the dict: other threads may be adding to it.
        values = self._pending_block.extras.get(column)
        return list(map(values.get, range(self._start, self._stop), repeat(0))) if values else None

    def strings(self, column: str) -> list[bytes | None] | None:
        values = self._pending_block.extras.get(column)
        return list(map(values.get, range(self._start, self._stop))) if values else None

    def fitting(self, most: int) -> "PendingBlockSpan":
        count = bisect_right(list(accumulate(self.sizes())), most)
        return (
            self
            if count >= self.end - self.first
            else PendingBlockSpan(self._pending_block, self.first, self.first + max(1, count))
        )

    def lost(self) -> list[int]:
        return []


class BlockSpan(RecordSpan):
    """A range of a block."""

    __slots__ = ("_block", "_start", "_stop", "end", "first")

    def __init__(self, block: Block, first: int, end: int) -> None:
        self._block = block
        self.first = first
        self.end = end
        self._start = first - block.sequence
        self._stop = end - block.sequence

    def payloads(self) -> list[bytes]:
        return self._block.payloads(self._start, self._stop)

    def sizes(self) -> list[int]:
        return [stop - start for start, stop in pairwise(self._block.offsets[self._start : self._stop + 1])]

    def times(self) -> list[int]:
        return self.numbers("timestamp") or [self._block.header.timestamp] * (self.end - self.first)

    def keys(self) -> list[bytes | None]:
        return self._block.byte_strings("key", self._start, self._stop)

    def headers(self) -> list[Headers]:
        return self._block.headers(self._start, self._stop)

    def has(self, column: str) -> bool:
        return self._block.has(column)

    def numbers(self, column: str) -> list[int] | None:
        if not self._block.has(column):  # a flag in the header: the columns need not be parsed
            return None
        values = self._block.numbers(column)
        return None if values is None else values[self._start : self._stop].tolist()

    def strings(self, column: str) -> list[bytes | None] | None:
        return self._block.byte_strings(column, self._start, self._stop) if self._block.has(column) else None

    def fitting(self, most: int) -> "BlockSpan":
        offsets = self._block.offsets
        if offsets[self._stop] - offsets[self._start] <= most:
            return self
        stop = bisect_right(offsets, offsets[self._start] + most, self._start, self._stop) - 1
        return BlockSpan(self._block, self.first, self._block.sequence + max(stop, self._start + 1))

    @property
    def block(self) -> Block:
        """The block that it is a part of."""
        return self._block

    def lost(self) -> list[int]:
        return [self._block.sequence + position for position in self._block.bad if self._start <= position < self._stop]
