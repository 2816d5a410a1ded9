"""Consistent point-in-time cut across several logs, for backups."""

import contextlib
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import methodcaller

from holdfast.base.errors import Closed, StorageError, WriterStopped
from holdfast.log.batch_adoption import BatchAdoption
from holdfast.log.index import SparseIndex
from holdfast.log.layout import HEADER_SIZE
from holdfast.log.pending_block import PendingBlock
from holdfast.log.segment import Segment
from holdfast.log.watermark import Watermark

__all__ = ["LogSnapshot", "Snapshotter", "snapshot_logs"]

logger = logging.getLogger("holdfast.log")


@dataclass(slots=True)
class LogSnapshot:
    """The extent of a log at one moment. Until `unpin` retention drops none of its segments."""

    log: "Snapshotter"
    end: int
    """The sequence after its last record."""
    pending_block: PendingBlock | None = field(repr=False)
    """The pending block that was not written yet at that moment. It belongs to the cut and accepts no more records."""
    segments: tuple[Segment, ...] = ()
    """Set by `settle`, like the fields below."""
    size: int = 0
    """How many bytes of the last segment belong to the cut."""
    last_timestamp: int = 0

    def settle(self) -> None:
        """Write the records of the cut, as safe as the flush mode promises, and find where they end in the segments."""
        pending_block, self.pending_block = self.pending_block, None
        if pending_block is not None:
            try:
                self.log.write_gathered()
            except StorageError:
                if pending_block.error is None:
                    raise
                # Its callers got this error: its records need not be in the backup.
        self.segments, self.last_timestamp = self.log.pinned_segments(self.end)
        if self.segments:
            self.size, self.end = _place(self.segments[-1], self.end)

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
        self.log.unpin()


class Snapshotter(BatchAdoption):
    """A log of which consistent cuts can be taken. While it is pinned, retention drops no segment."""

    _pins = 0

    @property
    def pinned(self) -> bool:
        """Whether a backup needs the segments unchanged."""
        return self._pins > 0

    def unpin(self) -> None:
        """Release the pin of one backup."""
        with self._lock:
            self._pins -= 1

    def write_gathered(self) -> None:
        """Return when all appended records are written, and as safe as the flush mode promises."""
        with contextlib.suppress(Closed):  # a thread that closed it meanwhile, to delete it, has written them
            self.write_out()

    def pinned_segments(self, end: int) -> tuple[tuple[Segment, ...], int]:
        """Return the segments that begin at or before this sequence, and a time that none of their records exceeds."""
        writer = self._writer
        assert writer is not None
        with self._io:  # a thread that began to drop some before the log was pinned has finished by now
            found = tuple(one for one in writer.segments if one.base <= end)
            # If the log was just cleared none of them is left: then it is empty, and continues in the first segment.
            return found or writer.segments[:1], writer.last_timestamp

    def _cut(self) -> LogSnapshot | None:
        """Record the end of the log, and pin it; return None if it is closed. Called with the lock held."""
        writer = self._writer
        if writer is None or self.closed:
            return None
        if isinstance(self._append_error, WriterStopped):
            self._pins += 1
            return LogSnapshot(self, writer.durable_end, None)
        pending_block = self.pending_block
        end, gathered = pending_block.end, bool(pending_block.payloads)
        if gathered:
            # It accepts no more records, so that a block ends here. The next append treats it as full.
            pending_block.stop, pending_block.bytes_left = end, -1
        unwritten = pending_block if gathered else self._unwritten
        self._pins += 1
        return LogSnapshot(self, end, unwritten)


def snapshot_logs(logs: Sequence[Snapshotter]) -> tuple[list[LogSnapshot], float]:
    """Cut these logs at one moment, and return the cuts and for how many seconds appends waited.

    So if a record in one cut was caused by a record in another log, the cut of that log contains the cause. Running
    writes and syncs continue: only the pending blocks are locked. No other thread holds two of these locks at once, and
    only one thread may cut at a time.
    """
    if not logs:
        return [], 0.0
    clock = logs[0].clock
    cuts: list[LogSnapshot] = []
    started = clock.monotonic()
    # Taken and recorded, and released, by one call of C code each: an interrupt leaves none of them taken.
    locks = [log._lock for log in logs]
    held: list[bool] = []
    releases = map(methodcaller("release"), compress(locks, held))
    try:
        try:
            held.extend(map(methodcaller("acquire"), locks))
            for log in logs:
                if (cut := log._cut()) is not None:
                    cuts.append(cut)  # noqa: PERF401 - after an error, those before it are unpinned
        finally:
            deque(releases, maxlen=0)
    except BaseException:
        for one in cuts:
            one.unpin()
        raise
    return cuts, clock.monotonic() - started


def _place(segment: Segment, end: int) -> tuple[int, int]:
    """Return up to which byte a segment has the records before `end`, and the sequence after the last of them."""
    if segment.base >= end:
        return HEADER_SIZE, segment.base
    limit, last = segment.extent
    start = segment.start_at(end)
    found = start.offset, start.sequence
    for _, header in segment.headers(start, lambda damage: None):
        if header.sequence >= end:
            return header.offset, end
        found = header.next_offset, header.end
    return (limit, end) if last == end else found
