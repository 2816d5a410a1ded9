"""Encodes Arrow batches as log blocks: from Arrow's buffers or, if there are rare columns, through a pending block."""

import time
from array import array
from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.base.checksum import crc32c
from holdfast.base.errors import InvalidArgument, MessageTooLarge
from holdfast.log.compression import Codec, compress
from holdfast.log.layout import ALIGN, CODEC_SHIFT, COLUMNS, HEADER_SIZE, EncodedBlock
from holdfast.log.pending_block import PendingBlock, seal
from holdfast.log.record import HeaderValue
from holdfast.log.settings import MESSAGE_MAX

__all__ = ["blocks"]

_RECORDS = 1 << 16
_RARE = {"headers", "priority", "delay", "ttl", "expiry"}
_KEY = next(column.flag for column in COLUMNS if column.name == "key")
_PRIORITY_MAX = 255


def blocks(batches: Iterator[pa.RecordBatch], block_bytes: int, codec: Codec | None) -> Iterator[EncodedBlock]:
    """Yield blocks of about `block_bytes` with the rows of all batches, in their order. Their times are not set.

    Raises `InvalidArgument` or `MessageTooLarge` for a row that cannot be a message.
    """
    held: list[pa.RecordBatch] = []
    size = count = 0
    for batch in batches:
        for start, stop, length in _stretches(batch, block_bytes):
            held.append(batch.slice(start, stop - start))
            size, count = size + length, count + stop - start
            # Half is enough: Spark's batches are about a block, and joining two would copy both.
            if size >= block_bytes // 2 or count >= _RECORDS // 2:
                yield _sealed(held, codec)
                held, size, count = [], 0, 0
    if held:
        yield _sealed(held, codec)


def _sealed(batches: list[pa.RecordBatch], codec: Codec | None) -> EncodedBlock:
    batch = batches[0] if len(batches) == 1 else pa.concat_batches(batches)
    if _RARE.isdisjoint(batch.schema.names):
        return _in_place(batch, codec)
    pending_block = PendingBlock(0, 0, 0)
    _add(pending_block, batch)
    return seal(pending_block, 0, codec)


def _in_place(batch: pa.RecordBatch, codec: Codec | None) -> EncodedBlock:
    """Return a block made from Arrow's buffers: both store byte strings alike.

    An uncompressed payload is not copied.
    """
    value = batch.column("value").cast(pa.binary())
    offsets, payload = _strings(value)
    sections: list[bytes | memoryview] = [offsets, array("I", map(crc32c, value.to_pylist())).tobytes()]
    flags = 0
    key = batch.column("key").cast(pa.binary()) if "key" in batch.schema.names else None
    if key is not None and key.null_count < len(key):
        flags |= _KEY
        present = np.packbits(key.is_valid().to_numpy(zero_copy_only=False), bitorder="little").tobytes()
        sections += [present, *_strings(key.fill_null(b""))]
    columns = b"".join(bytes(section) + bytes(-len(section) % ALIGN) for section in sections)
    if codec is not None and (packed := compress(codec, bytes(payload))) is not None:
        payload = memoryview(packed)
        flags |= codec.id << CODEC_SHIFT
    length = HEADER_SIZE + len(columns) + len(payload)
    return EncodedBlock(0, batch.num_rows, 0, 0, flags, columns, payload, crc32c(columns), crc32c(payload), length)


def _strings(column: pa.Array) -> tuple[bytes, memoryview]:
    """Return offsets that start at 0, and the bytes from the first to the last."""
    _, ends, data = column.buffers()
    offsets = np.frombuffer(ends, np.int32)[column.offset : column.offset + len(column) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    return (offsets - offsets[0]).tobytes(), memoryview(b"" if data is None else data)[first:last]


def _stretches(batch: pa.RecordBatch, block_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Yield ranges of rows that fit into a block together, and their bytes."""
    if not batch.num_rows:
        return
    value = batch.column("value")
    if value.null_count:
        raise InvalidArgument("the column 'value' is null in a row: a message needs a body, which may be empty")
    lengths = pc.binary_length(value).to_numpy(zero_copy_only=False).astype(np.int64)
    if "key" in batch.schema.names:
        lengths = lengths + pc.fill_null(pc.binary_length(batch.column("key")), 0).to_numpy(zero_copy_only=False)
    if "headers" in batch.schema.names:
        lengths = lengths + _header_bytes(batch.column("headers"))
    if (largest := int(lengths.max())) > MESSAGE_MAX:
        raise MessageTooLarge(f"a message of {largest} bytes is over the limit of {MESSAGE_MAX}: nothing was written")
    ends = np.cumsum(lengths)
    start = 0
    while start < batch.num_rows:
        done = int(ends[start - 1]) if start else 0
        stop = min(int(np.searchsorted(ends, done + block_bytes, "right")), start + _RECORDS)
        stop = max(stop, start + 1)
        yield start, stop, int(ends[stop - 1]) - done
        start = stop


def _add(pending_block: PendingBlock, batch: pa.RecordBatch) -> None:
    first = len(pending_block.payloads)
    now = time.time_ns()
    pending_block.payloads += _bytes(batch.column("value"))
    pending_block.times += [0] * batch.num_rows
    for name in batch.schema.names:
        column = batch.column(name)
        match name:
            case "key":
                _note(pending_block, "key", first, _bytes(column))
            case "headers":
                texts = batch.column("textHeaders").to_pylist() if "textHeaders" in batch.schema.names else repeat(None)
                _note(pending_block, "headers", first, list(map(_headers, column.to_pylist(), texts)))
            case "priority":
                values = column.to_pylist()
                if wrong := [value for value in values if value is not None and not 0 <= value <= _PRIORITY_MAX]:
                    raise InvalidArgument(f"a priority must be from 0 to {_PRIORITY_MAX}, not {wrong[0]}")
                _note(pending_block, "priority", first, [value or None for value in values])
            case "delay":
                _note(pending_block, "due", first, [_after(now, value, "delay") for value in column.to_pylist()])
            case "ttl":
                delays = batch.column("delay").to_pylist() if "delay" in batch.schema.names else repeat(None)
                _note(pending_block, "expiry", first, list(map(_expiry, repeat(now), column.to_pylist(), delays)))
            case "expiry":
                micros = pc.cast(column, pa.int64()).to_pylist()
                _note(pending_block, "expiry", first, [None if value is None else value * 1000 for value in micros])
            case _:
                pass


def _note(pending_block: PendingBlock, name: str, first: int, values: list[Any]) -> None:
    present = {position: value for position, value in enumerate(values, first) if value is not None}
    if present:
        pending_block.extras.setdefault(name, {}).update(present)


def _bytes(column: pa.Array) -> list[Any]:
    found: list[Any] = (column if pa.types.is_binary(column.type) else column.cast(pa.binary())).to_pylist()
    return found


def _headers(row: list[dict[str, Any]] | None, texts: list[str] | None) -> dict[str, HeaderValue] | None:
    """Return the headers of a message; those named in `texts`, and values that are already strings, are text."""
    if not row:
        return None
    found: dict[str, HeaderValue] = {}
    for item in row:
        if item is None or item["key"] is None or item["value"] is None:
            raise InvalidArgument("a header has no name or no value")
        if item["key"] in found:
            raise InvalidArgument(f"a message has two headers {item['key']!r}: each header may occur once")
        value = item["value"]
        found[item["key"]] = value if isinstance(value, str) else bytes(value)
    for name in texts or ():
        value = found.get(name)
        if isinstance(value, bytes):
            try:
                found[name] = value.decode()
            except UnicodeDecodeError:
                raise InvalidArgument(
                    f"the header {name!r} is named in 'textHeaders', but its value is not UTF-8: {value[:20]!r}"
                ) from None
    return found


def _header_bytes(column: pa.Array) -> np.ndarray[Any, Any]:
    """Return the size of the headers of each row."""
    items = column.flatten()
    sizes = sum(
        pc.fill_null(pc.binary_length(items.field(name)), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        for name in ("key", "value")
    )
    ends = np.concatenate([[0], np.cumsum(sizes)])
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    rows = np.concatenate([[0], np.cumsum(counts)])
    found: np.ndarray[Any, Any] = ends[rows[1:]] - ends[rows[:-1]]
    return found


def _expiry(now: int, ttl: Any, delay: Any) -> int | None:
    """Return the expiry of a message; its time to live starts when its delay ends."""
    return _after(_after(now, delay, "delay") or now, ttl, "ttl")


def _after(now: int, seconds: Any, what: str) -> int | None:
    if seconds is None or (what == "delay" and not seconds):
        return None
    if not 0 < float(seconds) <= 200 * 365 * 86_400:
        raise InvalidArgument(f"a {what} must be more than 0 seconds and at most 200 years, not {seconds}")
    return now + round(float(seconds) * 1e9)
