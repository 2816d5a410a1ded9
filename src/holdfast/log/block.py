"""Verified access to the columns of a block without copying them; records are created only on request."""

from array import array
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import pairwise, repeat
from struct import Struct
from typing import TYPE_CHECKING, Any, cast

from holdfast.base.checksum import crc32c
from holdfast.base.errors import Corrupt
from holdfast.base.files import forget
from holdfast.log.compression import decompress
from holdfast.log.layout import CODEC_SHIFT, COLUMNS, HEADER_SIZE, BlockHeader, aligned
from holdfast.log.record import NO_HEADERS, Headers, Record

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Block", "open_block", "open_columns"]

_FLAG = {column.name: column.flag for column in COLUMNS}
_NOT_PLAIN = sum(_FLAG.values()) & ~_FLAG["timestamp"]
_INT = Struct("<i")
# tuple.__new__ with the class bound runs wholly in C over zipped columns; Record(...) would cost 0.2 us each.
_make_record = partial(cast("Any", tuple.__new__), Record)


class Block:
    """A verified block over mapped memory. Its views are valid as long as the block or a view exists."""

    __slots__ = ("_cut", "_raw", "bad", "data", "header")

    def __init__(self, header: BlockHeader, raw: memoryview, data: memoryview) -> None:
        self.header = header
        self.data = data
        """All payloads, end to end."""
        self.bad: tuple[int, ...] = ()
        """Positions of records whose payload is damaged; they are left out of `records`."""
        self._raw = raw
        self._cut: dict[str, tuple[memoryview, ...]] | None = None

    @property
    def _columns(self) -> dict[str, tuple[memoryview, ...]]:
        if self._cut is None:
            self._cut = _cut_columns(self.header, self._raw)
        return self._cut

    @property
    def offsets(self) -> memoryview:
        """The `count + 1` offsets as int32: payload `i` is `data[offsets[i]:offsets[i + 1]]`, as in Arrow."""
        return self._raw[: 4 * self.header.records + 4].cast("i")

    def page_out(self, start: int) -> None:
        """Release the memory of its segment from this offset up to the end of the block, after it was read."""
        forget(self._raw, start, self.header.offset + self.header.length)

    def shares_memory_with(self, other: "Block") -> bool:
        """Return whether both are views of one mapping of one segment."""
        return self._raw.obj is other._raw.obj

    @property
    def crcs(self) -> memoryview:
        """The CRC-32C of each payload, as uint32."""
        return self._columns["crcs"][0]

    @property
    def sequence(self) -> int:
        """The first record's sequence."""
        return self.header.sequence

    @property
    def count(self) -> int:
        """The number of records, including damaged ones."""
        return self.header.records

    @property
    def end(self) -> int:
        """The sequence after the last record."""
        return self.header.end

    def __len__(self) -> int:
        return self.header.records

    def numbers(self, name: str) -> memoryview | None:
        """Return a column of numbers (`timestamp`, `expiry`, `priority`, `due`, `producer`, `number`), or None."""
        column = self._columns.get(name)
        return column[0] if column else None

    def sections(self, name: str) -> tuple[memoryview, ...] | None:
        """Return the buffers of an optional column as stored in the block; None if it is absent (docs/formats.md)."""
        return self._columns.get(name)

    @property
    def is_plain(self) -> bool:
        """Whether no record has a value in an optional column, except its time, and none is damaged."""
        return not (self.header.flags & _NOT_PLAIN or self.bad)

    def has(self, name: str) -> bool:
        """Return whether any record of the block has a value in this optional column."""
        return bool(self.header.flags & _FLAG[name])

    def timestamps(self) -> Sequence[int]:
        """Return the time of each record, in nanoseconds."""
        column = self.numbers("timestamp")
        return column.tolist() if column is not None else [self.header.timestamp] * self.count

    def byte_strings(self, name: str, start: int = 0, stop: int | None = None) -> list[bytes | None]:
        """Return a column of byte strings (`key`, `dedup`) at these positions; None if a record has no value."""
        stop = self.count if stop is None else stop
        column = self._columns.get(name)
        if column is None:
            return [None] * (stop - start)
        present, offsets, data = column
        values = _cut(data, offsets[start : stop + 1].tolist())
        return [
            value if present[position >> 3] >> (position & 7) & 1 else None
            for position, value in enumerate(values, start)
        ]

    def headers(self, start: int = 0, stop: int | None = None) -> list[Headers]:
        """Return the headers of the records at these positions."""
        stop = self.count if stop is None else stop
        column = self._columns.get("headers")
        if column is None:
            return [NO_HEADERS] * (stop - start)
        rows, name_offsets, names, value_offsets, values, kinds = column
        ends = rows[start : stop + 1].tolist()
        first, last = ends[0], ends[-1]
        # The checksum is right: the text is as it was written. If it is not UTF-8, reading still continues.
        items = [
            (name.decode("utf-8", "replace"), value if kind else value.decode("utf-8", "replace"))
            for name, value, kind in zip(
                _cut(names, name_offsets[first : last + 1].tolist()),
                _cut(values, value_offsets[first : last + 1].tolist()),
                kinds[first:last],
                strict=True,
            )
        ]
        return [dict(items[a - first : b - first]) if b > a else NO_HEADERS for a, b in pairwise(ends)]

    def payloads(self, start: int = 0, stop: int | None = None) -> list[bytes]:
        """Return copies of the payloads at these positions, including damaged ones: see `bad`."""
        return _cut(self.data, self.offsets[start : None if stop is None else stop + 1].tolist())

    def records(self, start: int = 0, stop: int | None = None) -> list[Record]:
        """Return the records at these positions, without those whose payload is damaged."""
        stop = self.count if stop is None else min(stop, self.count)
        if start >= stop:
            return []
        times = self.numbers("timestamp")
        keys: Iterable[bytes | None] = repeat(None)
        headers: Iterable[Headers] = repeat(NO_HEADERS)
        if self.header.flags & _FLAG["key"]:
            keys = self.byte_strings("key", start, stop)
        if self.header.flags & _FLAG["headers"]:
            headers = self.headers(start, stop)
        records = list(
            map(
                _make_record,
                zip(
                    range(self.sequence + start, self.sequence + stop),
                    times[start:stop].tolist() if times is not None else repeat(self.header.timestamp),
                    keys,
                    headers,
                    self.payloads(start, stop),
                    strict=False,
                ),
            )
        )
        if self.bad:
            lost = {self.sequence + position for position in self.bad}
            records = [record for record in records if record.sequence not in lost]
        return records

    def to_arrow(self) -> "pyarrow.RecordBatch":
        """Return the block as an Arrow batch (sequence, timestamp, key, payload); payloads and keys are not copied.

        Needs pyarrow. Records whose payload is damaged are left out.
        """
        import pyarrow as pa  # noqa: PLC0415 - the core does not depend on it

        count = self.count
        numbers = array("q", range(self.sequence, self.end))
        sequences = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(numbers)])
        times = self.numbers("timestamp")
        timestamp = (
            pa.array([self.header.timestamp] * count, pa.int64())
            if times is None
            else pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(times)])
        ).cast(pa.timestamp("ns", "UTC"))
        key = pa.nulls(count, pa.binary())
        if column := self._columns.get("key"):
            present, offsets, data = map(pa.py_buffer, column)
            key = pa.Array.from_buffers(pa.binary(), count, [present, offsets, data])
        payload = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)])
        try:
            payload.validate(full=True)  # offsets that do not ascend would send Arrow out of bounds
            key.validate(full=True)
        except pa.ArrowInvalid as error:
            raise Corrupt(f"the offsets in the block at byte {self.header.offset} are invalid: {error}") from error
        batch = pa.record_batch([sequences, timestamp, key, payload], ["sequence", "timestamp", "key", "payload"])
        if self.bad:
            bad = set(self.bad)
            batch = batch.filter(pa.array([position not in bad for position in range(count)]))
        return batch


def open_block(memory: memoryview, header: BlockHeader) -> Block:
    """Verify and return the block of this header. Raises `Corrupt`.

    If only payloads are damaged, the checksums of the records tell which ones (`Block.bad`).
    """
    # Most of the time of a scan: 5 us a block, of which the two checksums are half. Columns are parsed on request.
    columns = _checked_columns(memory, header)
    payload_start = header.offset + HEADER_SIZE + header.columns_length
    stored = memory[payload_start : header.offset + header.length]
    whole = crc32c(stored) == header.payload_crc
    count = header.records
    (size,) = _INT.unpack_from(columns, 4 * count)
    if codec := header.flags >> CODEC_SHIFT:
        if not whole:  # all payloads are one stream, so that no single record can be recovered
            raise Corrupt("the compressed payloads' checksum does not match")
        stored = memoryview(decompress(codec, bytes(stored), size))
    elif size != len(stored):
        raise Corrupt("the length of the payloads differs from the offsets in the columns")
    block = Block(header, columns, stored)
    if header.flags & _NOT_PLAIN:
        block._columns  # noqa: B018 - parsed now, so that invalid columns are reported
    if not whole:
        offsets, crcs = block.offsets, block.crcs
        block.bad = tuple(
            position
            for position, (start, stop) in enumerate(pairwise(offsets))
            if crc32c(stored[start:stop]) != crcs[position]
        )
    return block


def open_columns(memory: memoryview, header: BlockHeader) -> Block:
    """Return the block without its payloads, which are neither read nor verified."""
    return Block(header, _checked_columns(memory, header), memory[:0])


def _checked_columns(memory: memoryview, header: BlockHeader) -> memoryview:
    start = header.offset + HEADER_SIZE
    columns = memory[start : start + header.columns_length]
    if crc32c(columns) != header.columns_crc:
        raise Corrupt("the columns' checksum does not match")
    if len(columns) < 4 * (header.records + 1):
        raise Corrupt("the columns are too short for the number of records")
    return columns


def _cut_columns(header: BlockHeader, memory: memoryview) -> dict[str, tuple[memoryview, ...]]:
    """Return the buffers of each column. The checksum is right: invalid columns were not written by Holdfast."""
    count = header.records
    cursor = _Sections(memory)
    cursor.take(4 * (count + 1))  # the payloads' offsets, which `Block.offsets` returns
    found: dict[str, tuple[memoryview, ...]] = {"crcs": (cursor.numbers("I", count),)}
    for column in COLUMNS:
        if header.flags & column.flag:
            if column.kind == "bytes":
                found[column.name] = (cursor.take((count + 7) // 8), *cursor.strings(count))
            elif column.kind == "headers":
                rows = cursor.numbers("i", count + 1)
                items = rows[count]
                found[column.name] = (rows, *cursor.strings(items), *cursor.strings(items), cursor.take(items))
            else:
                found[column.name] = (cursor.numbers(column.kind, count),)
    if cursor.position != len(memory):
        raise Corrupt("the length of the columns does not match the number of records")
    return found


class _Sections:
    """A cursor over the columns, in their order; raises `Corrupt` at their end."""

    __slots__ = ("memory", "position")

    def __init__(self, memory: memoryview) -> None:
        self.memory = memory
        self.position = 0

    def take(self, size: int) -> memoryview:
        start = self.position
        if size < 0 or start + size > len(self.memory):
            raise Corrupt("a column ends beyond the block")
        self.position = start + aligned(size)
        return self.memory[start : start + size]

    def numbers(self, kind: str, count: int) -> memoryview:
        return self.take(count * _ITEM[kind]).cast(kind)  # type: ignore[call-overload, no-any-return]

    def strings(self, count: int) -> tuple[memoryview, memoryview]:
        if count < 0:
            raise Corrupt("a column has a negative length")
        offsets = self.numbers("i", count + 1)
        return offsets, self.take(offsets[count])


_ITEM = {"i": 4, "I": 4, "q": 8, "Q": 8, "B": 1}


def _cut(memory: memoryview, ends: list[int]) -> list[bytes]:
    # One copy of the whole range, and slices of that: a slice of a memoryview costs three times as much.
    base = ends[0]
    data = bytes(memory[base : ends[-1]])
    if base:
        ends = [end - base for end in ends]
    return [data[start:stop] for start, stop in pairwise(ends)]
