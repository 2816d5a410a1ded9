"""Pending blocks, in which records collect until `seal` encodes them, and the recent blocks that stay in memory."""

import threading
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable
from itertools import accumulate, repeat
from operator import attrgetter
from struct import Struct, pack
from typing import Any, Protocol

from holdfast.base.checksum import crc32c
from holdfast.base.errors import HoldfastError
from holdfast.log.batch import ALL, ColumnValue
from holdfast.log.compression import Codec, compress
from holdfast.log.layout import ALIGN, CODEC_SHIFT, COLUMNS, HEADER_SIZE, PADDING, EncodedBlock
from holdfast.log.record import NO_HEADERS, Headers, HeaderValue
from holdfast.log.record_batch import RecordColumns, RecordSpan

__all__ = ["PendingBlock", "PendingBlockSpan", "ReadView", "RecentBlocks", "seal"]

Sections = list[bytes]
Extras = dict[str, dict[int, Any]]
"""For each optional column the values by position in the block. Most blocks have none, so there are no empty ones."""
_RECORD_COST, _BLOCK_COST = 80, 700
"""Bytes of memory of a record besides its payload, and of a pending block besides its records."""
_TIMESTAMP, *_EXTRAS = COLUMNS
_ONE = Struct("<iiI4x")
_ONE_BYTES = Struct("<B7xii")
"""The columns of a block with one record: offsets and checksum of the payload, presence and offsets of a string."""


class PendingBlock:
    """The open block: records that were appended and are not written yet. Protected by the log's lock."""

    __slots__ = ("bytes_left", "error", "extras", "first", "gate", "payloads", "stop", "times", "written")

    def __init__(self, first: int, bytes_left: int, stop: int) -> None:
        self.first = first
        self.bytes_left = bytes_left
        """Bytes that can still be added; below zero, an append takes the slow path."""
        self.stop = stop
        """Records of this sequence and above are not accepted."""
        self.payloads: list[bytes] = []
        self.times: list[int] = []
        self.extras: Extras = {}
        self.gate = threading.Lock()
        """Held by the thread that writes the pending block, for all threads whose records are in it."""
        self.written = False
        """Whether its records are as safe as the log's flush mode promises."""
        self.error: HoldfastError | None = None
        """The reason why its records will never be written."""

    @property
    def end(self) -> int:
        """The sequence after the last record."""
        return self.first + len(self.payloads)

    @property
    def weight(self) -> int:
        """Return roughly how many bytes of memory it uses."""
        return sum(map(len, self.payloads)) + _RECORD_COST * len(self.payloads) + _BLOCK_COST

    def take_extras(self, extras: list[ColumnValue], before: int, count: int) -> None:
        """Add the optional columns of the `count` records behind the first `before`. Their payloads are added next."""
        own = self.extras
        for position, column, value, _ in extras:
            values = own.get(column)
            if values is None:
                values = own[column] = {}
            if position == ALL:
                values.update(dict.fromkeys(range(before, before + count), value))
            else:
                values[before + position] = value

    def forget_after(self, count: int) -> None:
        """Remove all except the first `count` records, after an append was interrupted half-way."""
        del self.payloads[count:]
        del self.times[count:]
        for column in self.extras.values():
            for position in [position for position in column if position >= count]:
                del column[position]


class PendingBlockSpan(RecordSpan):
    """A range of a pending block. Other threads may append to the block meanwhile."""

    __slots__ = ("_pending_block", "_start", "_stop", "end", "first", "is_plain")

    def __init__(self, pending_block: PendingBlock, first: int, end: int) -> None:
        self._pending_block = pending_block
        self.first = first
        self.end = end
        self.is_plain = not pending_block.extras
        self._start = first - pending_block.first
        self._stop = end - pending_block.first

    def columns(self) -> RecordColumns:
        if self.is_plain:
            return RecordColumns(self.payloads(), self.times())
        headers = self.headers() if self.has("headers") else None
        numbers = self.numbers("expiry"), self.numbers("due")
        return RecordColumns(self.payloads(), self.times(), self.strings("key"), headers, *numbers)

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
        sizes = self.sizes()
        if sum(sizes) <= most:
            return self
        count = bisect_right(list(accumulate(sizes)), most)
        return PendingBlockSpan(self._pending_block, self.first, self.first + max(1, count))

    def lost(self) -> list[int]:
        return []


_first: Callable[[PendingBlock], int] = attrgetter("first")
_RECENT_MAX = 8 << 20
_NO_BLOCKS: deque[PendingBlock] = deque()
"""The blocks of logs without views, most logs of a store: an empty deque takes 0.8 KB of memory."""


class ReadView(Protocol):
    """A reader that is notified when there is more to read: a queue."""

    def wake(self) -> None:
        """Wake the reader: there may be more to read.

        Called from any thread, with locks of the log held: an implementation takes only its own innermost lock.
        """
        ...

    def release_below(self, sequence: int) -> None:
        """Release the segments of records below, which were dropped: until then they use space on the disk.

        Called as `wake` is.
        """
        ...


class RecentBlocks:
    """The views of a log, and its last blocks: readers mostly want the newest records.

    Has no lock: it is read with the lock of the appender held, and changed in the appender's critical section. The
    tuple of views is replaced, so that `notify` needs no lock. Invariant: without views, and in a read-only log, no
    block is kept. Else the blocks follow each other without a gap, the last one is the open block, and `bytes` is the
    size of the others.
    """

    def __init__(self) -> None:
        self.views: tuple[ReadView, ...] = ()
        self.is_shared = False
        """Whether more than one view is attached."""
        self.bytes = 0
        """Bytes of memory of these blocks, without the open one."""
        self.limit = _RECENT_MAX
        """The most of these bytes, if the blocks are written."""
        self._blocks = _NO_BLOCKS

    def notify(self) -> None:
        """Notify the views: records put under a weaker flush mode can be read at once."""
        for view in self.views:
            view.wake()

    def attach(self, view: ReadView, unwritten: Iterable[PendingBlock]) -> None:
        """Add a view. If it is the first one, keep these blocks, which end with the open one."""
        self.views = (*self.views, view)
        self.is_shared = len(self.views) > 1
        if not self._blocks:
            self._blocks = deque(unwritten)

    def detach(self, view: ReadView) -> None:
        """Remove a view. With the last one, all blocks are released."""
        self.views = tuple(other for other in self.views if other is not view)
        self.is_shared = len(self.views) > 1
        if not self.views:
            self._blocks, self.bytes = _NO_BLOCKS, 0

    def close_block(self, closed: PendingBlock, fresh: PendingBlock) -> None:
        """Add the next open block behind the one that was open until now. Called only if there are views."""
        self._blocks.append(fresh)
        self.bytes += closed.weight

    def restart(self, open_block: PendingBlock) -> None:
        """Keep only this block: the records between it and the ones before are in no pending block."""
        if self.views:
            self._blocks, self.bytes = deque([open_block]), 0

    def keep_written(self, open_block: PendingBlock) -> None:
        """Drop the blocks that are not written, except the open one."""
        if self.views:
            self._blocks = deque([*(block for block in self._blocks if block.written), open_block])
            self.bytes = sum(block.weight for block in self._blocks if block.written)

    def repair(self, unwritten: PendingBlock | None, open_block: PendingBlock) -> None:
        """Derive the blocks again, after a change of them was cut off."""
        if not self.views:
            self._blocks, self.bytes = _NO_BLOCKS, 0
            return
        closed = [block for block in self._blocks if block.payloads and block is not open_block]
        if not closed and unwritten is not None:
            closed.append(unwritten)
        self.bytes = sum(block.weight for block in closed)
        self._blocks = deque([*closed, open_block])

    def release(self, most: int, readable: int, open_block: PendingBlock) -> None:
        """Release the oldest blocks until `most` bytes are left; only such whose records readers find in segments."""
        while self.bytes > most and self._blocks[0].end <= readable and self._blocks[0] is not open_block:
            self.bytes -= self._blocks.popleft().weight

    def between(self, start: int, stop: int) -> list[PendingBlockSpan]:
        """Return those of these records that are in the blocks, oldest first."""
        found: list[PendingBlockSpan] = []
        for block in reversed(self._blocks):  # mostly the last ones are asked for, of thousands
            if block.first < stop:
                found.append(PendingBlockSpan(block, max(start, block.first), min(stop, block.end)))
            if block.first <= start:
                break
        found.reverse()
        return found

    def at(self, sequence: int, stop: int) -> PendingBlockSpan | None:
        """Return this record and those behind it, up to `stop`, of the block that holds it; None if none does."""
        index = bisect_right(self._blocks, sequence, key=_first) - 1
        if index < 0 or sequence >= (block := self._blocks[index]).end:
            return None
        return PendingBlockSpan(block, sequence, min(stop, block.end))

    def bytes_after(self, sequence: int) -> int:
        """Return the payload bytes of the records from this sequence on."""
        total = 0
        for block in reversed(self._blocks):
            if block.end <= sequence and block.payloads:
                break
            total += sum(map(len, block.payloads[max(0, sequence - block.first) :]))
        return total


_LARGE = 16 << 10
_CHECKED = 15 << 10
"""Bytes of one checksum call: from 16 KiB on the library would release the interpreter lock."""
_PARTS_MAX = 1000
"""Buffers of one write, below the limit of Linux, which is 1024."""


def seal(pending_block: PendingBlock, after: int, codec: Codec | None) -> EncodedBlock:
    """Encode the block as columns. `after` is the last timestamp before it: timestamps in a log never decrease."""
    payloads = pending_block.payloads
    count = len(payloads)
    times = pending_block.times[:count]  # an append that was interrupted by a signal may have left one too many
    assert len(times) == count > 0
    if times[0] < after or sorted(times) != times:
        times = pending_block.times = list(accumulate(times, max, initial=after))[1:]

    apart = codec is None and count <= _PARTS_MAX and len(payloads[0]) >= _LARGE and len(payloads[-1]) >= _LARGE
    crcs, crc = _checksums(payloads) if apart else (map(crc32c, payloads), 0)
    sections: Sections = []
    if count == 1:
        sections.append(_ONE.pack(0, len(payloads[0]), *crcs))
    else:
        # struct.pack takes all items of an iterator at once; array would resize as it grows (36 against 56 ns each).
        _add(sections, _offsets(map(len, payloads), count))
        _add(sections, pack(f"<{count}I", *crcs))
    flags = 0
    if times[0] != times[-1]:  # sorted: otherwise all are the same, and the header has the value
        _add(sections, pack(f"<{count}q", *times))
        flags |= _TIMESTAMP.flag
    if pending_block.extras:
        flags |= _add_extras(sections, count, pending_block.extras)
    columns = b"".join(sections)
    if apart:
        return EncodedBlock(
            pending_block.first,
            count,
            times[0],
            times[-1],
            flags,
            columns,
            payloads[0],
            crc32c(columns),
            crc,
            HEADER_SIZE + len(columns) + sum(map(len, payloads)),
            tuple(payloads[1:]),
        )
    payload = b"".join(payloads)
    if codec is not None and (packed := compress(codec, payload)) is not None:
        payload = packed
        flags |= codec.id << CODEC_SHIFT
    length = HEADER_SIZE + len(columns) + len(payload)
    crcs_of = crc32c(columns), crc32c(payload)
    return EncodedBlock(pending_block.first, count, times[0], times[-1], flags, columns, payload, *crcs_of, length)


def _checksums(payloads: list[bytes]) -> tuple[list[int], int]:
    """Return the checksum of each payload, and that of all of them in sequence.

    In pieces that are too small for the checksum to release the interpreter lock: for large ones it does, and getting
    the lock back from a busy thread took 60 us a message, where the checksum takes 2.
    """
    each: list[int] = []
    whole = 0
    for payload in payloads:
        one = 0
        view = memoryview(payload)
        for start in range(0, len(payload), _CHECKED):
            piece = view[start : start + _CHECKED]
            one, whole = crc32c(piece, one), crc32c(piece, whole)
        each.append(one)
    return each, whole


def _add_extras(sections: Sections, count: int, extras: Extras) -> int:
    """Add the columns that some record has a value for; return their flags."""
    flags = 0
    for name, flag, kind in _EXTRAS:
        values = extras.get(name)
        if not values:
            continue
        flags |= flag
        if kind == "bytes":
            _add_bytes(sections, count, values)
        elif kind == "headers":
            _add_headers(sections, count, values)
        else:
            _add(sections, pack(f"<{count}{kind}", *[values.get(position, 0) for position in range(count)]))
    return flags


def _add(sections: Sections, section: bytes) -> None:
    sections.append(section)
    if short := -len(section) % ALIGN:
        sections.append(PADDING[short])


def _offsets(lengths: Iterable[int], count: int) -> bytes:
    return pack(f"<{count + 1}i", *accumulate(lengths, initial=0))


def _add_strings(sections: Sections, strings: Iterable[bytes]) -> None:
    strings = list(strings)
    _add(sections, _offsets(map(len, strings), len(strings)))
    _add(sections, b"".join(strings))


def _add_bytes(sections: Sections, count: int, values: dict[int, bytes]) -> None:
    if count == 1:
        sections.append(_ONE_BYTES.pack(1, 0, len(values[0])))
        _add(sections, values[0])
        return
    present = bytearray((count + 7) // 8)
    for position in values:
        present[position >> 3] |= 1 << (position & 7)
    _add(sections, bytes(present))
    _add_strings(sections, (values.get(position, b"") for position in range(count)))


def _add_headers(sections: Sections, count: int, values: dict[int, dict[str, HeaderValue]]) -> None:
    # Arrow's list<struct<name, value>>, and one byte for each value that is 1 for bytes and 0 for text.
    rows = [values.get(position, {}) for position in range(count)]
    if count > 1 and rows.count(rows[0]) == count:  # all the same: encoded once
        _add_alike(sections, count, rows[0])
        return
    flat = [item for row in rows for item in row.items()]
    _add(sections, _offsets(map(len, rows), count))
    _add_strings(sections, (name.encode() for name, _ in flat))
    _add_strings(sections, (value.encode() if isinstance(value, str) else value for _, value in flat))
    _add(sections, bytes(isinstance(value, bytes) for _, value in flat))


def _add_alike(sections: Sections, count: int, row: dict[str, HeaderValue]) -> None:
    names = [name.encode() for name in row]
    values = [value.encode() if isinstance(value, str) else value for value in row.values()]
    _add(sections, _offsets(repeat(len(row), count), count))
    _add_strings(sections, names * count)
    _add_strings(sections, values * count)
    _add(sections, bytes(isinstance(value, bytes) for value in row.values()) * count)
