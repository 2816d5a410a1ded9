"""Log blocks as Arrow batches: columns are wrapped without copying, and small blocks joined to large batches."""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.base.errors import Corrupt
from holdfast.log.block import Block
from holdfast.spark.schemas import HEADERS, LOG, TEXT_HEADERS, TIME, arrow_schema

__all__ = [
    "BATCH_ROWS",
    "LogRows",
    "RecordSpan",
    "Rows",
    "byte_strings",
    "content",
    "numbers",
    "payloads",
    "readable",
    "times",
]

BATCH_ROWS = 1 << 15
BATCH_BYTES = 16 << 20
"""A batch is sent when it has this many rows or bytes: enough to keep Spark busy, small enough to stay in cache."""

RecordSpan = tuple[Block, int, int]
"""A verified block and the positions of the records in it that are wanted."""


class Rows(Protocol):
    """Interface of a converter from records to rows of a view."""

    schema: pa.Schema

    def gather(self, pieces: Iterable[RecordSpan]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all these records."""
        ...


class LogRows:
    """Turns a log into rows with the requested columns."""

    def __init__(self, topic: str, columns: list[str], keys: frozenset[bytes] | None = None) -> None:
        self.topic = topic
        self.columns = columns
        self.keys = keys
        """Only records with one of these keys are wanted; None: all."""
        self.schema = arrow_schema(LOG, columns)

    def gather(self, pieces: Iterable[RecordSpan]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all these records."""
        held: list[RecordSpan] = []
        count = size = 0
        for piece in pieces:
            block, start, stop = piece
            held.append(piece)
            count += stop - start
            size += len(block.data)
            if count >= BATCH_ROWS or size >= BATCH_BYTES:
                yield self._batch(held)
                held, count, size = [], 0, 0
        if held:
            yield self._batch(held)

    def _batch(self, pieces: list[RecordSpan]) -> pa.RecordBatch:
        arrays = [self._column(name, pieces) for name in self.columns]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        wanted = None
        if any(block.bad for block, _, _ in pieces):
            wanted = pa.array(np.concatenate([readable(*piece) for piece in pieces]))
        if self.keys is not None:
            keys = batch.column("key") if "key" in self.columns else _joined(pieces, partial_strings("key"))
            fits = pc.is_in(keys, value_set=pa.array(sorted(self.keys), pa.binary()))
            wanted = fits if wanted is None else pc.and_(wanted, fits)
        return batch if wanted is None else batch.filter(wanted)

    def _column(self, name: str, pieces: list[RecordSpan]) -> pa.Array:
        count = _count(pieces)
        match name:
            case "value" | "key" | "headers" | "textHeaders":
                return content(name, pieces)
            case "topic":
                return _constant(self.topic, pa.string(), count)
            case "partition":
                return _constant(0, pa.int32(), count)
            case "timestampType":
                return _constant(1, pa.int32(), count)  # Kafka's LogAppendTime: the log's own clock
            case "offset":
                first, last = pieces[0], pieces[-1]
                begin, end = first[0].sequence + first[1], last[0].sequence + last[2]
                if end - begin == count:
                    return pa.array(np.arange(begin, end))
                return pa.array(np.concatenate([np.arange(b.sequence + i, b.sequence + j) for b, i, j in pieces]))
            case "timestamp":
                return time_array(np.concatenate([times(*piece) for piece in pieces]))
            case "expiry":
                return self._optional("expiry", pieces, count, TIME)
            case "producer":
                return self._optional("producer", pieces, count, pa.int64())
            case "priority":
                if not _any(pieces, "priority"):
                    return _constant(0, pa.int32(), count)
                return pa.array(numbers("priority", pieces).astype(np.int32))
            case _:
                raise KeyError(name)

    def _optional(self, name: str, pieces: list[RecordSpan], count: int, kind: pa.DataType) -> pa.Array:
        """Return numbers, null where they are 0."""
        if not _any(pieces, name):
            return _nulls(count, kind)
        values = numbers(name, pieces)
        if kind == TIME:
            return time_array(values, values == 0)
        return pa.array(values.astype(np.int64), mask=values == 0)


def times(block: Block, start: int, stop: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return when these records were written, in nanoseconds."""
    column = block.numbers("timestamp") if block.has("timestamp") else None
    if column is None:
        return np.full(stop - start, block.header.timestamp, np.int64)
    return np.frombuffer(column, np.int64)[start:stop]


def time_array(ns: np.ndarray[Any, Any], absent: np.ndarray[Any, Any] | None = None) -> pa.Array:
    """Return nanoseconds as Spark's microseconds."""
    micros = ns.astype(np.int64, copy=False) // 1000
    if absent is not None:
        return pa.array(micros, mask=absent).view(TIME)
    return pa.Array.from_buffers(TIME, len(micros), [None, pa.py_buffer(micros)])


def payloads(block: Block, start: int, stop: int) -> pa.Array:
    """Return the payloads of these records, without copying."""
    return _strings_in_place(block, pa.binary(), None, block.offsets, block.data, block.count)[start:stop]


def byte_strings(name: str, block: Block, start: int, stop: int) -> pa.Array:
    """Return a column of byte strings, without copying; null for records without one."""
    columns = block.sections(name)
    if columns is None:
        return _nulls(stop - start, pa.binary())
    present, offsets, data = columns
    return _strings_in_place(block, pa.binary(), present, offsets, data, block.count)[start:stop]


@lru_cache
def partial_strings(name: str) -> Callable[[Block, int, int], pa.Array]:
    """Return `byte_strings` bound to this column."""
    return lambda block, start, stop: byte_strings(name, block, start, stop)


def header_lists(block: Block, start: int, stop: int) -> pa.Array:
    """Return the headers of these records as Kafka's source shows them; null for records without any."""
    columns = block.sections("headers")
    if columns is None:
        return _nulls(stop - start, HEADERS)
    rows, name_offsets, names, value_offsets, values, _kinds = columns
    ends = np.frombuffer(rows, np.int32)
    items = int(ends[-1])
    _check_ascending(block, ends, items)
    keys = _strings_in_place(block, pa.string(), None, name_offsets, names, items)
    contents = _strings_in_place(block, pa.binary(), None, value_offsets, values, items)
    structs = pa.StructArray.from_arrays([keys, contents], fields=list(HEADERS.value_type))
    lists = pa.ListArray.from_arrays(
        pa.array(ends[start : stop + 1]), structs, mask=pa.array(np.diff(ends[start : stop + 1]) == 0)
    )
    return lists.cast(HEADERS)


def text_header_lists(block: Block, start: int, stop: int) -> pa.Array:
    """Return the names of these records' headers whose values are text; null for records without headers."""
    columns = block.sections("headers")
    if columns is None:
        return _nulls(stop - start, TEXT_HEADERS)
    rows, name_offsets, names, _value_offsets, _values, kinds = columns
    ends = np.frombuffer(rows, np.int32)
    items = int(ends[-1])
    _check_ascending(block, ends, items)
    is_text = np.frombuffer(kinds, np.uint8)[:items] == 0
    texts = _strings_in_place(block, pa.string(), None, name_offsets, names, items).filter(pa.array(is_text))
    before = np.concatenate([[0], np.cumsum(is_text)]).astype(np.int32)
    wanted = ends[start : stop + 1]
    lists = pa.ListArray.from_arrays(pa.array(before[wanted]), texts, mask=pa.array(np.diff(wanted) == 0))
    return lists.cast(TEXT_HEADERS)


def _strings_in_place(
    block: Block, kind: pa.DataType, present: memoryview | None, offsets: memoryview, data: memoryview, count: int
) -> pa.Array:
    # The checksum proves that this is what was written; still check that Arrow stays within the buffer.
    ends = np.frombuffer(offsets, np.int32)
    _check_ascending(block, ends, len(data))
    valid = None if present is None else pa.py_buffer(present)
    return pa.Array.from_buffers(kind, count, [valid, pa.py_buffer(offsets), pa.py_buffer(data)])


def _check_ascending(block: Block, ends: np.ndarray[Any, Any], size: int) -> None:
    if ends[0] != 0 or ends[-1] > size or (ends[1:] < ends[:-1]).any():
        raise Corrupt(f"the offsets of the block at byte {block.header.offset} are invalid")


def content(name: str, pieces: list[RecordSpan]) -> pa.Array:
    """Return a column of payloads, keys or headers; payloads and keys are not copied if there is only one piece."""
    if name == "value":
        return _joined(pieces, payloads)
    section, kind, column = {
        "key": ("key", pa.binary(), partial_strings("key")),
        "headers": ("headers", HEADERS, header_lists),
        "textHeaders": ("headers", TEXT_HEADERS, text_header_lists),
    }[name]
    return _joined(pieces, column) if _any(pieces, section) else _nulls(_count(pieces), kind)


def _joined(pieces: list[RecordSpan], column: Callable[[Block, int, int], pa.Array]) -> pa.Array:
    arrays = [column(*piece) for piece in pieces]
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def numbers(name: str, pieces: list[RecordSpan]) -> np.ndarray[Any, Any]:
    """Return an optional column of numbers, 0 for records without a value."""
    return np.concatenate([_numbers_of(name, *piece) for piece in pieces])


def _numbers_of(name: str, block: Block, start: int, stop: int) -> np.ndarray[Any, Any]:
    column = block.numbers(name) if block.has(name) else None
    if column is None:
        return np.zeros(stop - start, np.int64)
    return np.frombuffer(column, column.format)[start:stop].astype(np.int64)


def readable(block: Block, start: int, stop: int) -> np.ndarray[Any, Any]:
    """Return which of these records are not damaged."""
    good = np.ones(block.count, bool)
    good[list(block.bad)] = False
    return good[start:stop]


def _count(pieces: list[RecordSpan]) -> int:
    return sum(stop - start for _, start, stop in pieces)


def _any(pieces: list[RecordSpan], name: str) -> bool:
    return any(block.has(name) for block, _, _ in pieces)


@lru_cache
def _repeated(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


def _constant(value: Any, kind: pa.DataType, count: int) -> pa.Array:
    return _repeated(value, kind, 1 << max(count - 1, BATCH_ROWS).bit_length())[:count]


def _nulls(count: int, kind: pa.DataType) -> pa.Array:
    return _constant(None, kind, count)
