"""A block is laid out as the format says, whether it has one record, as most that are synced have, or several."""

import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.base.checksum import crc32c
from holdfast.log.block import open_block
from holdfast.log.layout import COLUMNS, HEADER_SIZE, frame, parse_block_header
from holdfast.log.pending_block import PendingBlock, PendingBlockSpan, seal
from holdfast.log.record_batch import BlockSpan

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=9)
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "q": st.integers(-(1 << 63), (1 << 63) - 1),
    "Q": st.integers(0, (1 << 64) - 1),
    "B": st.integers(0, 255),
    "bytes": st.binary(max_size=20),
    "headers": st.dictionaries(_TEXT, _TEXT | st.binary(max_size=9), max_size=3),
}


@st.composite
def pending_blocks(draw: st.DrawFn) -> PendingBlock:
    """Pending blocks of a few records with any of the optional columns."""
    pending_block = PendingBlock(draw(st.integers(0, 1 << 40)), 0, 0)
    pending_block.payloads = draw(st.lists(st.binary(max_size=40), min_size=1, max_size=4))
    count = len(pending_block.payloads)
    pending_block.times = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    for column in COLUMNS[1:]:
        positions = st.integers(0, count - 1)
        pending_block.extras[column.name] = draw(st.dictionaries(positions, _VALUES[column.kind], max_size=count))
    return pending_block


def padded(raw: bytes) -> bytes:
    return raw + bytes(-len(raw) % 8)


def strings(items: list[bytes]) -> bytes:
    return padded(offsets(items)) + padded(b"".join(items))


def offsets(items: list[Any]) -> bytes:
    ends = [sum(map(len, items[:at])) for at in range(len(items) + 1)]
    return struct.pack(f"<{len(ends)}i", *ends)


def column_bytes(kind: str, count: int, values: dict[int, Any]) -> bytes:
    if kind == "bytes":
        present = sum(1 << position for position in values).to_bytes((count + 7) // 8, "little")
        return padded(present) + strings([values.get(position, b"") for position in range(count)])
    if kind == "headers":
        rows = [values.get(position, {}) for position in range(count)]
        flat = [item for row in rows for item in row.items()]
        raw = [value if isinstance(value, bytes) else value.encode() for _, value in flat]
        is_bytes = bytes(isinstance(value, bytes) for _, value in flat)
        return padded(offsets(rows)) + strings([name.encode() for name, _ in flat]) + strings(raw) + padded(is_bytes)
    return padded(struct.pack(f"<{count}{kind}", *[values.get(position, 0) for position in range(count)]))


@given(pending_blocks(), st.integers(0, 3))
def test_a_block_has_the_columns_that_the_format_says(pending_block: PendingBlock, after: int) -> None:
    count, times = len(pending_block.payloads), list(pending_block.times)
    times = [max(after, *times[: at + 1]) for at in range(count)]
    flags = 0
    expected = padded(offsets(pending_block.payloads)) + padded(
        struct.pack(f"<{count}I", *map(crc32c, pending_block.payloads))
    )
    for column in COLUMNS:
        values: dict[int, Any] = pending_block.extras.get(column.name, {})
        if column.name == "timestamp":
            values = dict(enumerate(times)) if len(set(times)) > 1 else {}
        if values:
            flags |= column.flag
            expected += column_bytes(column.kind, count, values)
    sealed = seal(pending_block, after, None)
    assert sealed.columns == expected
    assert (sealed.flags, sealed.columns_crc) == (flags, crc32c(expected))
    assert (sealed.payload, sealed.payload_crc) == (
        b"".join(pending_block.payloads),
        crc32c(b"".join(pending_block.payloads)),
    )
    assert (sealed.sequence, sealed.records) == (pending_block.first, count)
    assert (sealed.timestamp, sealed.last_timestamp) == (times[0], times[-1])


@pytest.mark.parametrize("sizes", [[16 << 10], [100_000], [16 << 10, 0, 15 << 10, 1, 65_536], [(16 << 10) - 1, 70_000]])
def test_large_payloads_are_checked_as_small_ones_are(sizes: list[int]) -> None:
    pending_block = PendingBlock(7, 0, 0)
    pending_block.payloads = [random.Random(size).randbytes(size) for size in sizes]
    pending_block.times = [5] * len(sizes)
    sealed = seal(pending_block, 0, None)
    whole = b"".join(pending_block.payloads)
    assert b"".join((sealed.payload, *sealed.more)) == whole
    assert sealed.payload_crc == crc32c(whole)
    checks = struct.pack(f"<{len(sizes)}I", *map(crc32c, pending_block.payloads))
    assert sealed.columns == padded(offsets(pending_block.payloads)) + padded(checks)


@given(pending_blocks(), st.booleans(), st.data())
def test_a_part_of_a_block_has_the_same_columns_in_memory_and_on_disk(
    pending_block: PendingBlock, plain: bool, data: st.DataObject
) -> None:
    kept = {} if plain else {name: values for name, values in pending_block.extras.items() if values}
    pending_block.extras = kept
    raw = bytes(HEADER_SIZE) + b"".join(frame(seal(pending_block, 0, None), HEADER_SIZE, 0, 1))
    header = parse_block_header(raw, HEADER_SIZE, HEADER_SIZE, len(raw))
    assert header is not None
    first = data.draw(st.integers(pending_block.first, pending_block.end - 1))
    end = data.draw(st.integers(first + 1, pending_block.end))
    near = PendingBlockSpan(pending_block, first, end)
    far = BlockSpan(open_block(memoryview(raw), header), first, end)
    assert near.columns() == far.columns()
    assert near.is_plain == far.is_plain == (not kept)
    assert near.lost() == far.lost() == []
