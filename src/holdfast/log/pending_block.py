"""Pending blocks, the open blocks of a log: records collect in one, and `seal` turns it into columns and payloads."""

import threading
from collections.abc import Iterable
from itertools import accumulate, repeat
from struct import Struct, pack
from typing import Any, NamedTuple

from holdfast.base.checksum import crc32c
from holdfast.base.errors import HoldfastError
from holdfast.log.batch import ALL, ColumnValue
from holdfast.log.compression import Codec, compress
from holdfast.log.layout import (
    ALIGN,
    CODEC_SHIFT,
    COLUMNS,
    HEADER_SIZE,
    BlockHeader,
    aligned,
    pack_block_header,
)
from holdfast.log.record import HeaderValue

__all__ = ["EncodedBlock", "PendingBlock", "frame", "seal"]

Sections = list[bytes]
Extras = dict[str, dict[int, Any]]
"""For each optional column the values by position in the block. Most blocks have none, so there are no empty ones."""
_RECORD_COST, _BLOCK_COST = 80, 700
"""Bytes of memory of a record besides its payload, and of a pending block besides its records."""
_TIMESTAMP, *_EXTRAS = COLUMNS
_PAD = [b"\0" * n for n in range(ALIGN)]
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


_LARGE = 16 << 10
_CHECKED = 15 << 10
"""Bytes of one checksum call: from 16 KiB on the library would release the interpreter lock."""
_PARTS_MAX = 1000
"""Buffers of one write, below the limit of Linux, which is 1024."""


class EncodedBlock(NamedTuple):
    """A block's content, ready to be written at any offset of a segment."""

    sequence: int
    records: int
    timestamp: int
    last_timestamp: int
    flags: int
    columns: bytes
    payload: bytes | memoryview
    columns_crc: int
    payload_crc: int
    more: tuple[bytes, ...] = ()
    """The payloads behind `payload`: large bodies are not joined only to be written."""

    @property
    def length(self) -> int:
        """Bytes in the file, without the padding at the end."""
        return HEADER_SIZE + len(self.columns) + len(self.payload) + sum(map(len, self.more))


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
            tuple(payloads[1:]),
        )
    payload = b"".join(payloads)
    if codec is not None and (packed := compress(codec, payload)) is not None:
        payload = packed
        flags |= codec.id << CODEC_SHIFT
    return EncodedBlock(
        pending_block.first, count, times[0], times[-1], flags, columns, payload, crc32c(columns), crc32c(payload)
    )


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


def frame(sealed: EncodedBlock, offset: int, durable: int, segment_id: int) -> tuple[bytes | memoryview, ...]:
    """Return the parts of the block as written at this offset: header, columns, payloads, padding."""
    length = sealed.length
    header = BlockHeader(
        offset,
        length,
        sealed.records,
        sealed.sequence,
        sealed.timestamp,
        durable,
        segment_id,
        sealed.flags,
        len(sealed.columns),
        sealed.columns_crc,
        sealed.payload_crc,
    )
    return pack_block_header(header), sealed.columns, sealed.payload, *sealed.more, _PAD[aligned(length) - length]


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
        sections.append(_PAD[short])


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
