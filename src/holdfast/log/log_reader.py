"""Reading of a log: its segments, written by this process or by another one, and the last blocks in memory."""

import logging
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from itertools import chain
from operator import attrgetter

from holdfast.base.clock import Clock, Instant, instant_ns
from holdfast.base.critical_section import Condition
from holdfast.log.appender import Appender
from holdfast.log.block import Block
from holdfast.log.read_only_segments import ReadOnlySegments
from holdfast.log.record import Damage, Record
from holdfast.log.record_batch import BlockSpan, RecordSpan
from holdfast.log.segment import Report, Segment
from holdfast.log.writer import SegmentWriter

__all__ = ["DamageReports", "LogReader", "WrittenSegments"]

logger = logging.getLogger("holdfast.log")

_DAMAGE_KEPT = 1000
_base: Callable[[Segment], int] = attrgetter("base")
_created: Callable[[Segment], int] = attrgetter("created")


class DamageReports:
    """The damaged places that were found since a log was opened. Each is logged once."""

    def __init__(self, log: str) -> None:
        self._log = log
        self._seen: set[tuple[str, int, str]] = set()
        self.found: list[Damage] = []
        """The first thousand."""

    def add(self, damage: Damage) -> None:
        """Report a damaged place, unless it is known."""
        seen = (damage.path, damage.offset, damage.reason)
        if seen not in self._seen and len(self.found) < _DAMAGE_KEPT:
            self._seen.add(seen)
            self.found.append(damage)
            logger.warning(
                "damage found: log=%s damage=%s",
                self._log,
                damage,
                extra={"log": self._log, "segment": damage.path, "offset": damage.offset},
            )


class WrittenSegments:
    """The segments of a log that this process writes, oldest first: the counterpart of `ReadOnlySegments`."""

    def __init__(self, writer: SegmentWriter, refresh: Callable[[], None]) -> None:
        self._writer = writer
        self.refresh = refresh

    @property
    def first(self) -> Segment | None:
        """The oldest segment; None if there is none."""
        segments = self._writer.segments
        return segments[0] if segments else None

    @property
    def last(self) -> Segment | None:
        """The segment that is being written, or was written last; None if there is none."""
        segments = self._writer.segments
        return segments[-1] if segments else None

    @property
    def end(self) -> int:
        """The end of the records that can be read: under `sync` durable ones, else written ones."""
        segments = self._writer.segments
        return segments[-1].extent[1] or 0 if segments else 0

    def all(self) -> tuple[Segment, ...]:
        """Return all segments."""
        return self._writer.segments

    opened = all

    def between(self, start: int, stop: int) -> tuple[Segment, ...]:
        """Return the segments that hold records from `start` up to `stop`, as far as they are kept."""
        segments = self._writer.segments
        first = max(0, bisect_right(segments, start, key=_base) - 1)
        return segments[first : max(first + 1, bisect_left(segments, stop, key=_base))]

    def since(self, timestamp: int) -> tuple[Segment, ...]:
        """Return the segments, beginning with the one that holds the first record at or after `timestamp`."""
        # A segment is created after the last record of the one before, by the log's own time.
        segments = self._writer.segments
        return segments[max(0, bisect_left(segments, timestamp, key=_created) - 1) :]

    def bounded(self, segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
        """Return them as they are: the process that writes a log decides itself when to sync it."""
        return segments


class LogReader:
    """Reads the records of a log, in the same way whether this process writes it or another one does.

    Threads: any. `_following` is for threads that wait for records.
    """

    def __init__(
        self, appender: Appender, segments: WrittenSegments | ReadOnlySegments, report: Report, clock: Clock
    ) -> None:
        self._appender = appender
        self._segments = segments
        self._report = report
        self._clock = clock
        self._reads_pending = isinstance(segments, WrittenSegments) and appender.settings.flush.mode != "sync"
        self._following = threading.RLock()
        self._arrived: Condition | None = None
        """Created by the first thread that waits: it takes 0.9 KB of memory, and most logs have none."""

    @property
    def start(self) -> int:
        """The first kept sequence."""
        first = self._segments.first
        return first.base if first is not None else 0

    @property
    def end(self) -> int:
        """The end of the records that are found in segments: under `sync` durable ones, else written ones."""
        return self._segments.end

    @property
    def visible_end(self) -> int:
        """The end of the records that this process may read: under `sync` the durable ones, else all appended ones."""
        if not self._reads_pending:
            return self._segments.end
        pending_block = self._appender.pending_block
        return pending_block.first + len(pending_block.payloads)

    def refresh(self) -> None:
        """Make records readable that were appended here, or published by the writer. Ignores a failed flush."""
        if not self._appender.closed:
            self._segments.refresh()

    def readable(self) -> tuple[int, int]:
        """Return the first sequence that can be read, and the end; under `async` and `batch`, of all appended ones."""
        self.refresh()
        return self.start, self._segments.end

    def read(self, start: int | None = None, stop: int | None = None, *, reverse: bool = False) -> Iterator[Record]:
        """Yield the records from `start` up to, not including, `stop`; with `reverse`, backwards."""
        self._appender.check_open()
        first, end = self.readable()
        start = first if start is None else max(start, first)
        stop = end if stop is None else min(stop, end)
        if not reverse:
            for block in self.blocks_between(start, stop):
                yield from block.records(max(0, start - block.sequence), stop - block.sequence)
            return
        for segment in reversed(self._segments.between(start, stop)):
            if segment.base < stop and start < stop:
                for block in segment.blocks_reversed(max(start, segment.base), stop, self._report):
                    yield from reversed(block.records(max(0, start - block.sequence), stop - block.sequence))
            if segment.base <= start:
                return
            segment.unmap()

    def blocks(self, start: int | None = None, stop: int | None = None) -> Iterator[Block]:
        """Return whole blocks that hold records from `start` up to `stop`, over mapped memory: the fastest scan."""
        first, end = self.readable()
        return self.blocks_between(first if start is None else start, end if stop is None else min(stop, end))

    def blocks_between(self, start: int, stop: int) -> Iterator[Block]:
        """As `blocks`, for a caller that has called `readable` already."""
        segments = self._segments.between(start, stop)
        for position, segment in enumerate(segments):
            if segment.base >= stop:
                return
            following = segments[position + 1].base if position + 1 < len(segments) else stop
            if following > start:
                yield from segment.blocks(max(start, segment.base), stop, self._report)
                if following < stop:
                    segment.unmap()

    def pieces(self, start: int, stop: int) -> Iterator[RecordSpan]:
        """Return the records from `start` up to `stop`, for views: also those in pending blocks that are not written.

        `stop` is at most `visible_end`. Records that are damaged, or were dropped, are left out.
        """
        if start >= stop:
            return iter(())
        recent = self._appender.recent_between(start, stop)
        written = recent[0].first if recent else stop
        return iter(recent) if start >= written else chain(self._written_pieces(start, written), recent)

    def piece_at(self, sequence: int, stop: int) -> RecordSpan | None:
        """Return the first of `pieces`, without a look at the others; None if this record is not readable."""
        if (recent := self._appender.recent_at(sequence, stop)) is not None:
            return recent
        block = next(self.blocks_between(sequence, stop), None)
        if block is None or block.sequence > sequence:
            return None
        return BlockSpan(block, sequence, min(stop, block.end))

    def _written_pieces(self, start: int, stop: int) -> Iterator[RecordSpan]:
        for block in self.blocks_between(start, stop):
            yield BlockSpan(block, max(start, block.sequence), min(stop, block.end))
        self.release_mapped()  # the caller has read them all

    def time_of(self, sequence: int) -> int | None:
        """Return when a record was appended, without reading payloads; None if that cannot be read."""
        if (recent := self._appender.recent_at(sequence, sequence + 1)) is not None:
            return recent.times()[0]
        holding = self._segments.between(sequence, sequence + 1)
        segment = next((segment for segment in reversed(holding) if segment.base <= sequence), None)
        return None if segment is None else segment.time_of(sequence, self._report)

    def sequence_at(self, when: Instant, *, past_damage: bool = True) -> int:
        """Return the first sequence whose record is not before `when`; the end if there is none.

        If the block with that record is damaged: the first sequence behind it or, if not `past_damage`, its first.
        """
        timestamp = instant_ns(when, "when")
        end = self.readable()[1]
        for segment in self._segments.since(timestamp):
            found = segment.sequence_at_time(timestamp, self._report, past_damage=past_damage)
            if found is not None:
                return found
        return end

    def segments(self, *, durable: bool = False) -> tuple[Segment, ...]:
        """Return the segments as they were at the last `refresh`, oldest first.

        With `durable`, a log that another process writes is bounded to the records that were on disk then.
        """
        segments = self._segments.all()
        return self._segments.bounded(segments) if durable else segments

    def segments_between(self, start: int, stop: int, *, durable: bool) -> tuple[Segment, ...]:
        """Return the segments of `segments` that hold records from `start` up to `stop`, and open no other one.

        If the first of them begins behind `start`, the records before it were dropped.
        """
        segments = self._segments.between(start, stop)
        return self._segments.bounded(segments) if durable else segments

    @property
    def last_segment(self) -> Segment | None:
        """The segment that is being written, or was written last; None if there is none."""
        return self._segments.last

    def wait_for(self, sequence: int, timeout: float | None) -> bool:
        """Wait until `sequence` can be read; False if the time is up or the log was closed."""
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        pause = 0.001
        while not self._appender.closed:
            if self.readable()[1] > sequence:
                return True
            left = pause if deadline is None else min(pause, deadline - self._clock.monotonic())
            if left <= 0:
                return False
            if self._appender.is_read_only:
                self._clock.sleep(left)
                pause = min(pause * 2, 0.02)
            else:
                pause = 0.05
                with self._following:
                    if self._arrived is None:
                        self._arrived = Condition(self._following)
                    self._appender.followers += 1
                    if self._segments.end <= sequence:
                        self._clock.wait(self._arrived, left)
                    self._appender.followers -= 1
        return False

    def notify(self) -> None:
        """Wake the threads that wait for records."""
        if self._arrived is not None:
            with self._following:
                self._arrived.notify_all()

    def release_mapped(self) -> None:
        """Release mapped pages that were read: the page cache keeps them, but they do not count as process memory."""
        for segment in self._segments.opened():
            segment.page_out()

    def close(self) -> None:
        """Release all mapped memory."""
        for segment in self._segments.opened():
            segment.unmap()
