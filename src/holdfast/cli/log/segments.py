"""Which segments does a log have? The list that `stats` shows and that `compact` compares before and after."""

from dataclasses import dataclass
from itertools import pairwise

from holdfast.base.files import SystemFiles
from holdfast.log import Log, LogStats, Retention
from holdfast.log.recovery import load_segments
from holdfast.log.retention import droppable

__all__ = ["SegmentRow", "due_segments", "list_rows", "segment_holding"]


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """One segment at a glance."""

    name: str
    first: int
    records: int
    bytes: int
    created: int


def list_rows(log: Log, stats: LogStats) -> list[SegmentRow]:
    """The segments that make up what `stats` counted, oldest first."""
    segments = load_segments(SystemFiles(), log.folder, lambda damage: None)
    # Another process may have rolled or dropped segments since the figures were taken.
    segments = [segment for segment in segments if stats.start <= segment.base][: stats.segments]
    if not segments:
        return []
    rows = [
        SegmentRow(segment.name.stem, segment.base, following.base - segment.base, segment.limit, segment.created)
        for segment, following in pairwise(segments)
    ]
    last = segments[-1]
    # The last file may be longer than what is readable of it; the figures know.
    size = max(0, stats.bytes - sum(row.bytes for row in rows))
    rows.append(SegmentRow(last.name.stem, last.base, max(0, stats.end - last.base), size, last.created))
    return rows


def segment_holding(log: Log, sequence: int) -> str | None:
    """The name of the segment that holds a sequence."""
    found = None
    for segment in load_segments(SystemFiles(), log.folder, lambda damage: None):
        if segment.base <= sequence:
            found = segment.name.stem
    return found


def due_segments(log: Log, retention: Retention) -> int:
    """How many segments the policy would drop if no tailer held them back."""
    segments = load_segments(SystemFiles(), log.folder, lambda damage: None)
    return droppable(segments, retention, log.clock.time_ns(), None)
