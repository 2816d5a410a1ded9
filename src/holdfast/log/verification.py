"""Verification of segments: every checksum, every sequence and the index. Changes nothing on disk."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from holdfast.log.index import ENTRY_SIZE
from holdfast.log.layout import HEADER_SIZE, parse_segment_header
from holdfast.log.record import Damage
from holdfast.log.segment import Report, Segment

__all__ = ["Progress", "Verification", "verify_segments"]

Progress = Callable[[int, int], None]
"""Called with the verified bytes and the total bytes."""


@dataclass(slots=True)
class Verification:
    """The result of a verification."""

    segments: int = 0
    blocks: int = 0
    records: int = 0
    bytes: int = 0
    damage: list[Damage] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether no damage was found."""
        return not self.damage


def verify_segments(segments: Sequence[Segment], report: Report, progress: Progress | None = None) -> Verification:
    """Read and check all segments."""
    result = Verification()
    total = sum(segment.limit for segment in segments)

    def note(damage: Damage) -> None:
        result.damage.append(damage)
        report(damage)

    for segment in segments:
        limit = segment.limit
        try:
            head = segment.head()
        except FileNotFoundError:  # dropped by retention in another process
            continue
        if head is not None and parse_segment_header(head, str(segment.path)) is None:
            note(Damage(str(segment.path), 0, min(limit, HEADER_SIZE), "the segment's header is damaged", None, 0))
        boundaries = {(segment.base, HEADER_SIZE)}
        known = len(result.damage)
        for block in segment.all_blocks(note):
            boundaries.add((block.end, block.header.next_offset))
            result.blocks += 1
            result.records += block.count - len(block.bad)
            if progress is not None:
                progress(result.bytes + block.header.next_offset, total)
        if len(result.damage) == known:
            index_path = str(segment.name.index_path(segment.log))
            for position in range(len(segment.index)):
                entry = segment.index[position]
                if entry is None or (entry[:2] not in boundaries and entry.offset <= limit):
                    at = HEADER_SIZE + position * ENTRY_SIZE
                    note(Damage(index_path, at, ENTRY_SIZE, "an index entry is damaged", None, 0))
        segment.unmap()
        result.segments += 1
        result.bytes += limit
        if progress is not None:
            progress(result.bytes, total)
    return result
