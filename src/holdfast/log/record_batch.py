"""Uniform columnar access to a range of records, in a pending block in memory or in a block on disk."""

from bisect import bisect_right
from itertools import pairwise
from typing import NamedTuple, Protocol

from holdfast.log.block import Block
from holdfast.log.record import Headers

__all__ = ["BlockSpan", "RecordColumns", "RecordSpan"]


class RecordColumns(NamedTuple):
    """The columns of consecutive records. Each list has one value for each record, in order."""

    payloads: list[bytes]
    times: list[int]
    keys: list[bytes | None] | None = None
    """None if no record has one, as in the other optional columns."""
    headers: list[Headers] | None = None
    expiries: list[int] | None = None
    dues: list[int] | None = None


class RecordSpan(Protocol):
    """Records `first` up to `end`, column by column. Each list has one value for each record, in order."""

    first: int
    end: int
    is_plain: bool
    """Whether no record of the whole block has a value in an optional column, and none is damaged."""

    def columns(self) -> RecordColumns:
        """Return the columns that a message has in memory."""
        ...

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


class BlockSpan(RecordSpan):
    """A range of a block."""

    __slots__ = ("_block", "_start", "_stop", "end", "first", "is_plain")

    def __init__(self, block: Block, first: int, end: int) -> None:
        self._block = block
        self.first = first
        self.end = end
        self.is_plain = block.is_plain
        self._start = first - block.sequence
        self._stop = end - block.sequence

    def columns(self) -> RecordColumns:
        if self.is_plain:
            return RecordColumns(self.payloads(), self.times())
        headers = self.headers() if self.has("headers") else None
        numbers = self.numbers("expiry"), self.numbers("due")
        return RecordColumns(self.payloads(), self.times(), self.strings("key"), headers, *numbers)

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
