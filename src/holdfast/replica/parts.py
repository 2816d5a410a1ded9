"""Choice of the parts in which a segment is uploaded: whole blocks, few enough for a manifest, seldom twice."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from holdfast.log.layout import HEADER_SIZE, aligned, parse_block_header
from holdfast.log.segment import Segment
from holdfast.replica.manifest import Part

__all__ = ["FULL", "PartPlan", "block_end", "plan_parts"]

FULL = 8 << 20
"""Bytes of a part that is never uploaded again, and about the most of one (a single block may be larger)."""
_FAN = 8
_TIER_BITS = 3
"""Parts of one tier differ in their size by less than this power of two, which is `_FAN`."""


class PartPlan(NamedTuple):
    """How new bytes of a segment are uploaded."""

    kept: int
    """How many of the parts stay; those behind them are replaced."""
    ranges: tuple[tuple[int, int], ...]
    """What is uploaded, in this order."""


def plan_parts(parts: Sequence[Part], size: int, end_of_block: Callable[[int, int], int]) -> PartPlan:
    """Return how the bytes up to `size` are uploaded, behind these parts.

    `end_of_block(start, limit)` returns where the last block that ends at or before the limit ends; or, if no block
    does, the first one behind `start`.

    A part for each second would make manifests of tens of thousands of parts. So a new part replaces those before it
    if there are seven as small as itself, as in a log-structured merge tree: in one put, of bytes that were mostly
    uploaded before. Measured for segments of 256 MiB: a log that grows by 1.3 MB and more between two uploads is
    uploaded once, one that grows by 1 MiB 1.9 times, by 50 KB 2.7 times, by 1 KiB 4.5 times. The most parts were 206.
    """
    begin = parts[-1].stop if parts else 0
    if begin >= size:
        return PartPlan(len(parts), ())
    kept, start = len(parts), begin
    while size - start < FULL:
        tier = _tier(size - start)
        run = 0
        while run < kept and _tier(parts[kept - 1 - run].size) <= tier and size - parts[kept - 1 - run].start <= FULL:
            run += 1
        if run < _FAN - 1:
            break
        kept -= run
        start = parts[kept].start
    ranges = []
    while size - start > FULL:
        stop = min(end_of_block(start, start + FULL), size)
        ranges.append((start, stop))
        start = stop
    if start < size:
        ranges.append((start, size))
    return PartPlan(kept, tuple(ranges))


def block_end(segment: Segment, start: int, limit: int) -> int:
    """Return where a part that begins at `start` should end: see `plan_parts`."""
    known = segment.index.at_or_before_offset(limit)
    if known is not None and known.offset > start:
        return known.offset
    size = segment.limit
    memory = segment.memory(size)
    offset = max(start, HEADER_SIZE)
    end = start
    while offset < min(size, len(memory)):
        header = parse_block_header(memory, offset, offset, size)
        if header is None:  # damaged bytes: they are shipped as they are
            return size
        offset = aligned(header.offset + header.length)
        if offset > limit and end > start:
            break
        end = offset
    return end


def _tier(size: int) -> int:
    return size.bit_length() // _TIER_BITS
