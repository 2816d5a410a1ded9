"""Inspection of a segment: what a given byte belongs to."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.base.clock import from_ns
from holdfast.base.errors import Corrupt, InvalidArgument, NotFound
from holdfast.log.block import open_block
from holdfast.log.compression import codec_by_id
from holdfast.log.index import Checkpoint
from holdfast.log.layout import CODEC_SHIFT, COLUMNS, HEADER_SIZE, BlockHeader
from holdfast.log.record import Damage, Record
from holdfast.log.segment import Segment, walk

__all__ = ["Inspection", "inspect_segment"]


@dataclass(frozen=True, slots=True)
class Inspection:
    """The part of a segment, and the record if any, that a byte belongs to."""

    path: str
    offset: int
    what: str
    """`segment header`, `block header`, `columns`, `payload`, `padding`, `damage` or `end`."""
    details: dict[str, Any] = field(default_factory=dict)
    record: Record | None = None


def inspect_segment(segments: Sequence[Segment], offset: int, name: str | None = None) -> Inspection:
    """Inspect one byte of the last segment, or of the one with this file name (`20261115-0001` is enough)."""
    if not segments:
        raise NotFound("the log has no segment yet: nothing has been written")
    wanted = (name or "").rpartition("/")[2].removesuffix(".data")
    found = [segment for segment in segments if not wanted or segment.name.stem == wanted]
    if not found:
        names = ", ".join(segment.name.stem for segment in segments[-5:])
        raise NotFound(f"there is no segment {wanted!r}; the last ones are {names}")
    segment = found[-1]
    limit, end = segment.extent
    path = str(segment.path)
    if offset < 0 or offset > limit:
        raise InvalidArgument(f"the offset {offset} is outside of {path!r}, which has {limit} bytes")
    if offset == limit:
        return Inspection(path, offset, "end", {"end_sequence": end})
    if offset < HEADER_SIZE:
        details = {
            "segment_id": f"{segment.segment_id:016x}",
            "base": segment.base,
            "created": str(from_ns(segment.created)),
        }
        return Inspection(path, offset, "segment header", details)
    with segment.stretch(offset) as (memory, limit):
        return _inspect_block(segment, memory, min(limit, len(memory)), end if limit == segment.limit else None, offset)


def _inspect_block(segment: Segment, memory: memoryview, limit: int, end: int | None, offset: int) -> Inspection:
    """Inspect a byte behind the header of a segment, of which these bytes are in memory up to the limit."""
    path = str(segment.path)
    # From the nearest checkpoint; the walk returns blocks and damage in the order of their offsets.
    place = segment.index.at_or_before_offset(offset) or Checkpoint(segment.base, HEADER_SIZE, 0)
    for item in walk(memory, path, place, limit, segment.segment_id, end):
        if isinstance(item, Damage):
            if item.offset <= offset < item.offset + item.length:
                return Inspection(
                    path, offset, "damage", {"reason": item.reason, "start": item.offset, "bytes": item.length}
                )
        elif offset < item.next_offset:
            return _inside(memory, path, offset, item)
    return Inspection(path, offset, "damage", {"reason": "no readable block is here"})


def _inside(memory: memoryview, path: str, offset: int, header: BlockHeader) -> Inspection:
    codec = header.flags >> CODEC_SHIFT
    details: dict[str, Any] = {
        "block": header.offset,
        "bytes": header.length,
        "first_sequence": header.sequence,
        "records": header.records,
        "first_time": str(from_ns(header.timestamp)),
        "columns": [column.name for column in COLUMNS if header.flags & column.flag],
        "compression": codec_by_id[codec].name if codec in codec_by_id else None,
    }
    payload_start = header.offset + HEADER_SIZE + header.columns_length
    if offset < header.offset + HEADER_SIZE:
        return Inspection(path, offset, "block header", details)
    if offset < payload_start:
        return Inspection(path, offset, "columns", details)
    if offset >= header.offset + header.length:
        return Inspection(path, offset, "padding", details)
    try:
        block = open_block(memory, header)
    except Corrupt as error:
        return Inspection(path, offset, "damage", details | {"reason": str(error)})
    if codec:
        return Inspection(path, offset, "payload", details)
    # Empty payloads have no bytes, so the record at a byte is the last one that starts at or before it.
    position = bisect_right(block.offsets, offset - payload_start) - 1
    details["sequence"] = header.sequence + position
    records = block.records(position, position + 1)
    if not records:
        return Inspection(path, offset, "damage", details | {"reason": "the payload's checksum does not match"})
    return Inspection(path, offset, "payload", details, records[0])
