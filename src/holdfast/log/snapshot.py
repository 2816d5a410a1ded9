"""Consistent point-in-time cut across several logs, for backups."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.base.errors import Closed, StorageError
from holdfast.log.appender import freeze
from holdfast.log.index import Checkpoint, SparseIndex
from holdfast.log.layout import HEADER_SIZE
from holdfast.log.log import Log
from holdfast.log.pending_block import PendingBlock
from holdfast.log.segment import Segment
from holdfast.log.watermark import Watermark

__all__ = ["LogSnapshot", "snapshot_logs"]


@dataclass(slots=True)
class LogSnapshot:
    """The extent of a log at one moment. Until `unpin` retention drops none of its segments."""

    log: Log
    _pin: object = field(repr=False)
    end: int
    """The sequence after its last record."""
    pending_block: PendingBlock | None = field(repr=False)
    """The pending block that was not written yet at that moment. It belongs to the cut and accepts no more records."""
    segments: tuple[Segment, ...] = ()
    """Set by `settle`, like the fields below."""
    size: int = 0
    """How many bytes of the last segment belong to the cut."""
    last_timestamp: int = 0

    def settle(self, near: tuple[int, Checkpoint] | None = None) -> None:
        """Write the records of the cut, as safe as the flush mode promises, and find where they end in the segments.

        `near` is where an earlier cut ended, with the id of the segment: the search for the end begins there.
        """
        pending_block, self.pending_block = self.pending_block, None
        # With the files held: a thread that began to drop some before the log was pinned has finished by now.
        try:
            segments, self.last_timestamp = self.log.appender.settle(pending_block)
        except (StorageError, Closed) as error:
            if isinstance(error, StorageError) and (pending_block is None or pending_block.error is None):
                raise
            # Its callers got this error: its records need not be in the backup. Or a thread closed the log meanwhile,
            # to delete it, and has written them.
            segments, self.last_timestamp = self.log.appender.settle(None)
        # If the log was just cleared none of them is left: then it is empty, and continues in the first segment.
        self.segments = tuple(one for one in segments if one.base <= self.end) or segments[:1]
        if self.segments:
            last = self.segments[-1]
            start = near[1] if near is not None and near[0] == last.segment_id else None
            self.size, self.end = _place(last, self.end, start)

    @property
    def mark(self) -> Watermark | None:
        """The watermark of a log that ends at this cut."""
        if not self.segments:
            return None
        last = self.segments[-1]
        return Watermark(last.segment_id, self.end, self.size, self.end, self.size, self.last_timestamp)

    def index(self) -> bytes | None:
        """Return the index of the last segment, up to the cut; None if there is none."""
        known = self.segments[-1].index
        if known.header is None:
            return None
        index = SparseIndex(known.header)
        for position in range(len(known)):
            entry = known[position]
            if entry is not None and entry.offset <= self.size:
                index.add(entry)
        return index.content()

    def unpin(self) -> None:
        """Let retention drop segments again."""
        self.log.retention.unpin(self._pin)


def snapshot_logs(logs: Sequence[Log]) -> tuple[list[LogSnapshot], float]:
    """Cut these logs at one moment, and return the cuts and for how many seconds appends waited.

    So if a record in one cut was caused by a record in another log, the cut of that log contains the cause.
    """
    if not logs:
        return [], 0.0
    clock, pin = logs[0].clock, object()
    cuts: list[LogSnapshot] = []
    try:
        for log in logs:
            log.retention.pin(pin)
        started = clock.monotonic()
        frozen = freeze([log.appender for log in logs])
        held = clock.monotonic() - started
        for log, one in zip(logs, frozen, strict=True):
            if one is None:
                log.retention.unpin(pin)
            else:
                cuts.append(LogSnapshot(log, pin, one.end, one.pending_block))
    except BaseException:
        for log in logs:
            log.retention.unpin(pin)
        raise
    return cuts, held


def _place(segment: Segment, end: int, near: Checkpoint | None) -> tuple[int, int]:
    """Return up to which byte a segment has the records before `end`, and the sequence after the last of them."""
    if segment.base >= end:
        return HEADER_SIZE, segment.base
    limit, last = segment.extent
    if last == end:  # nothing was appended after the cut: a walk from the nearest index entry took a millisecond
        return limit, end
    start = segment.start_at(end)
    if near is not None and start.sequence < near.sequence <= end and near.offset <= limit:
        start = near
    found = start.offset, start.sequence
    for _, header in segment.headers(start, lambda damage: None):
        if header.sequence >= end:
            return header.offset, end
        found = header.next_offset, header.end
    return found
