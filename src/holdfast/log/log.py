"""The public `Log`: a named, append-only sequence of records."""

import contextlib
import logging
import threading
import weakref
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path

from holdfast.base.clock import Clock, Instant, duration_ns, instant_ns
from holdfast.base.critical_section import Condition
from holdfast.base.errors import Closed, DiskFull, StorageError, WriterStopped, is_reported
from holdfast.base.files import Files, translate_os_errors
from holdfast.log.appender import Appender
from holdfast.log.block import Block
from holdfast.log.consumer_offsets import OffsetStore
from holdfast.log.inspection import Inspection, inspect_segment
from holdfast.log.pending_block import PendingBlock
from holdfast.log.policy import Retention
from holdfast.log.reader_view import ReadOnlySegments
from holdfast.log.record import Damage, Record
from holdfast.log.record_batch import BlockSpan, PendingBlockSpan, RecordSpan
from holdfast.log.recovery import recover
from holdfast.log.retention import Freed, droppable
from holdfast.log.segment import Segment
from holdfast.log.settings import LogSettings
from holdfast.log.snapshot import Snapshotter
from holdfast.log.tailer import Tailer
from holdfast.log.verification import Progress, Verification, verify_segments
from holdfast.log.writer import SegmentWriter

__all__ = ["Log", "LogStats", "SegmentStats", "TailerStats"]

logger = logging.getLogger("holdfast.log")

_DAMAGE_KEPT = 1000
_PINNED_PAUSE_S = 0.01
_CENTURY_S = 100 * 365 * 86_400
_base: Callable[[Segment], int] = attrgetter("base")
_created: Callable[[Segment], int] = attrgetter("created")
_END_OF_TIME = 1 << 63


@dataclass(frozen=True, slots=True)
class TailerStats:
    """Position and lag of a named tailer."""

    name: str
    position: int
    lag: int
    committed_at: int
    owner: str | None = None
    """The server's user that created it; None if a program that opened the store did."""


@dataclass(frozen=True, slots=True)
class SegmentStats:
    """Size, range and times of one segment."""

    name: str
    first: int
    records: int
    bytes: int
    created: int


@dataclass(frozen=True, slots=True)
class LogStats:
    """Sizes, range, times and named tailers of a log."""

    name: str
    start: int
    end: int
    records: int
    bytes: int
    segments: int
    first_timestamp: int | None
    last_timestamp: int | None
    damage: int
    """How many damaged places were found since the log was opened."""
    tailers: list[TailerStats] = field(default_factory=list)


class Log(Snapshotter):
    """An append-only log; created by `Store.log`.

    Files: the folder `logs/<name>/` with dated segments, `log.json`, `watermark` and `tailers/`. Threads: all methods
    may be called from any; a tailer belongs to one. Locks: those of `Appender`, and `_following` for threads that wait
    for records.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        log_id: bytes,
        settings: LogSettings,
        *,
        files: Files,
        clock: Clock,
        lock: Path,
        read_only: bool,
        wake: Callable[[], None],
        queue_at: Callable[[str], str | None],
        sync_later: "Callable[[Log], None]" = lambda log: None,
    ) -> None:
        super().__init__(name, folder, settings, clock, wake, sync_later)
        self.id = log_id
        self.positions = OffsetStore(files, folder, log_id, queue_at)
        self.damage: list[Damage] = []
        """Damaged places that were found since the log was opened, the first thousand."""
        self._damage_seen: set[tuple[str, int, str]] = set()
        self._following = threading.RLock()
        self._arrived = Condition(self._following)
        self._followers = 0
        """How many threads wait for records. May be too high after an interrupt."""
        self.ids_guard = threading.Lock()
        """For queues: held while a dedup id is checked and its message appended, so that two queues of this log do not
        both append it.
        """
        self.pending_ids: dict[bytes, PendingBlock] = {}
        """For queues: the dedup ids of messages that are appended and not yet visible."""
        with translate_os_errors("opening the log in", folder):
            if read_only:
                self._view = ReadOnlySegments(files, folder, lock, self._report)
            else:
                segments, found = recover(files, folder, self._report)
                rest = weakref.WeakMethod(self.rest)  # weak, so that an unused log is freed
                writer = SegmentWriter(files, clock, folder, log_id, settings.writer(), segments, found, rest)
                self._start_writing(writer)
                self.positions.settle(self.end)
        if settings.verify_on_open:
            self.verify()

    @property
    def start(self) -> int:
        """The first kept sequence."""
        if self._writer is None:
            first = self._view.segments.first
            return first.base if first is not None else 0
        segments = self._writer.segments
        return segments[0].base if segments else 0

    @property
    def end(self) -> int:
        """The next sequence to be written; for a read-only log, the end of the readable records."""
        return self.pending_block.end if self._writer is not None else self._visible_end

    def tailer(self, name: str | None = None) -> Tailer:
        """Return an independent reader from the start or, with a name, from the position that the name committed."""
        self._check_open()
        self.refresh()
        return Tailer(self, name)

    def read(self, start: int | None = None, stop: int | None = None, *, reverse: bool = False) -> Iterator[Record]:
        """Yield the records from `start` up to, not including, `stop`; with `reverse`, backwards."""
        self._check_open()
        first, end = self.readable()
        start = first if start is None else max(start, first)
        stop = end if stop is None else min(stop, end)
        if not reverse:
            for block in self.blocks_between(start, stop):
                yield from block.records(max(0, start - block.sequence), stop - block.sequence)
            return
        for segment in reversed(self._holding(start, stop)):
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
        segments = self._holding(start, stop)
        for position, segment in enumerate(segments):
            if segment.base >= stop:
                return
            following = segments[position + 1].base if position + 1 < len(segments) else stop
            if following > start:
                yield from segment.blocks(max(start, segment.base), stop, self._report)
                if following < stop:
                    segment.unmap()

    @property
    def visible_end(self) -> int:
        """The end of the records that this process may read: under `sync` the durable ones, else all appended ones."""
        return self.pending_block.end if self._writer is not None and not self._durable_appends else self._visible_end

    def kept_segments(self, *, durable: bool = False) -> tuple[Segment, ...]:
        """Return the segments as they were at the last `refresh`, oldest first.

        With `durable`, bounded to the records that were on disk then, which survive a power cut. For read-only logs.
        """
        segments = self._segments
        if not durable or not segments:
            return segments
        return (*segments[:-1], segments[-1].bounded(*self._view.durable()))

    def segments_between(self, start: int, stop: int, *, durable: bool) -> tuple[Segment, ...]:
        """Return the segments of `kept_segments` that hold records from `start` up to `stop`, and open no other one.

        If the first of them begins behind `start`, the records before it were dropped.
        """
        if self._writer is not None:
            segments = self._writer.segments
            first = max(0, bisect_right(segments, start, key=_base) - 1)
            return segments[first : max(first + 1, bisect_left(segments, stop, key=_base))]
        found = self._view.segments.between(start, stop)
        if durable and found and found[-1] is self._view.segments.last:
            found = (*found[:-1], found[-1].bounded(*self._view.durable()))
        return found

    @property
    def last_segment(self) -> Segment | None:
        """The segment that is being written, or was written last; None if there is none."""
        if self._writer is None:
            return self._view.segments.last
        return self._writer.segments[-1] if self._writer.segments else None

    def pieces(self, start: int, stop: int) -> Iterator[RecordSpan]:
        """Yield the records from `start` up to `stop`, for views: also from pending blocks, without writing them first.

        `stop` is at most `visible_end`. Records that are damaged, or were dropped, are left out.
        """
        with self._lock:
            pending_blocks = self._pending_between(start, stop)
        written = min(pending_blocks[-1].first, stop) if pending_blocks else stop
        if start < written:
            for block in self.blocks_between(start, written):
                yield BlockSpan(block, max(start, block.sequence), min(written, block.end))
            self.release_mapped()  # the caller has read them all
        for pending_block in reversed(pending_blocks):
            yield PendingBlockSpan(pending_block, max(start, pending_block.first), min(stop, pending_block.end))

    def _pending_between(self, start: int, stop: int) -> list[PendingBlock]:
        """Return the blocks in memory that hold some of these records, last one first. Called with the lock held."""
        if self._blocks_section.open:
            self._blocks_section.mend()
        found: list[PendingBlock] = []
        for pending_block in reversed(self._recent):
            if pending_block.first < stop:
                found.append(pending_block)
            if pending_block.first <= start:
                break
        return found

    def time_of(self, sequence: int) -> int | None:
        """For views: return when a record was appended, without reading payloads; None if that cannot be read."""
        with self._lock:
            pending_blocks = self._pending_between(sequence, sequence + 1)
        if pending_blocks and pending_blocks[-1].first <= sequence < pending_blocks[-1].end:
            return pending_blocks[-1].times[sequence - pending_blocks[-1].first]
        holding = self._holding(sequence, sequence + 1)
        segment = next((segment for segment in reversed(holding) if segment.base <= sequence), None)
        return None if segment is None else segment.time_of(sequence, self._report)

    def page_out(self) -> int:
        """For views: release the memory of records on disk; return how many bytes of it were pending blocks."""
        self.release_mapped()
        return self._release_recent(0)

    def release_mapped(self) -> None:
        """Release mapped pages that were read: the page cache keeps them, but they do not count as process memory."""
        for segment in self._opened:
            segment.page_out()

    def bytes_after(self, sequence: int) -> int:
        """For views: return the payload bytes that were appended from here on, counting the blocks in memory only."""
        total = 0
        with self._lock, self._blocks_section:
            for pending_block in reversed(self._recent):
                if pending_block.end <= sequence and pending_block.payloads:
                    break
                total += sum(map(len, pending_block.payloads[max(0, sequence - pending_block.first) :]))
        return total

    def sequence_at(self, when: Instant, *, past_damage: bool = True) -> int:
        """Return the first sequence whose record is not before `when`; the end if there is none.

        If the block with that record is damaged: the first sequence behind it or, if not `past_damage`, its first.
        """
        timestamp = instant_ns(when, "when")
        end = self.readable()[1]
        if self._writer is None:
            segments: Iterable[Segment] = self._view.segments.since(timestamp)
        else:
            # A segment is created after the last record of the one before, by the log's own time.
            written = self._writer.segments
            segments = written[max(0, bisect_left(written, timestamp, key=_created) - 1) :]
        for segment in segments:
            found = segment.sequence_at_time(timestamp, self._report, past_damage=past_damage)
            if found is not None:
                return found
        return end

    def readable(self) -> tuple[int, int]:
        """Return the first sequence that can be read, and the end; under `async` and `batch`, of all appended ones."""
        self.refresh()
        return self.start, self._visible_end

    def refresh(self) -> None:
        """Make records readable that were appended here, or published by the writer. Ignores a failed flush."""
        if self._writer is None:
            if not self.closed:
                with translate_os_errors("reading the log in", self.folder):
                    self._view.refresh()
        elif (
            not self._durable_appends
            and self._append_error is None
            and (self.pending_block.payloads or self._unwritten)
        ):
            # On a full disk, or while another thread closes the log, reads still work; the next append raises.
            with contextlib.suppress(StorageError, Closed):
                self._flush(sync=False)

    def wait_for(self, sequence: int, timeout: float | None) -> bool:
        """Wait until `sequence` can be read; False if the time is up or the log was closed."""
        deadline = None if timeout is None else self.clock.monotonic() + timeout
        pause = 0.001
        while not self.closed:
            if self.readable()[1] > sequence:
                return True
            left = pause if deadline is None else min(pause, deadline - self.clock.monotonic())
            if left <= 0:
                return False
            if self._writer is None:
                self.clock.sleep(left)
                pause = min(pause * 2, 0.02)
            else:
                pause = 0.05
                with self._following:
                    self._followers += 1
                    if self._visible_end <= sequence:
                        self.clock.wait(self._arrived, left)
                    self._followers -= 1
        return False

    def close(self) -> None:
        """Write and sync accepted records, then close the files and mappings; idempotent."""
        try:
            super().close()
        finally:
            for segment in self._opened:
                segment.unmap()

    def rest(self, *, at_once: bool) -> None:
        """Close the files until the next write, if no thread is writing: see `holdfast.base.open_files`.

        Unless `at_once`, files stay open that were used since the last call, or that would have to be synced.
        """
        writer = self._writer
        if writer is None:
            return
        was_used, writer.used = writer.used, False
        if not at_once and (was_used or not writer.is_durable):
            return
        held: list[bool] = []
        try:
            # The caller holds the I/O lock of another log, so it does not wait for this one. Taken and recorded by one
            # call of C code: a signal's handler that raises afterwards finds it in the list.
            held.extend(map(self._io.acquire, (False,)))
            if True in held:
                writer.rest()
        except WriterStopped as stopped:
            self._drop_unconfirmed([], stopped)
        except OSError as error:  # the files are closed, and all was on disk before
            if not is_reported(error):
                raise
            logger.warning("closing idle files failed: log=%s error=%s", self.name, error, extra=self.fields)
        finally:
            if True in held:
                self._io.release()

    def stats(self) -> LogStats:
        """Return sizes, range, times and named tailers."""
        self._check_open()
        start, end = self.readable()
        segments = self._segments
        first = next(iter(self.read(start, min(start + 1, end))), None)
        last = next(self.read(max(start, end - 1), end), None)
        return LogStats(
            name=self.name,
            start=start,
            end=end,
            records=end - start,
            bytes=sum(segment.limit for segment in segments),
            segments=len(segments),
            first_timestamp=first.timestamp if first else None,
            last_timestamp=last.timestamp if last else None,
            damage=len(self.damage),
            tailers=[
                TailerStats(kept.name, kept.position, max(0, end - kept.position), kept.committed_at, kept.owner)
                for kept in self.positions.all()
            ],
        )

    def segments(self) -> list[SegmentStats]:
        """Return size, range and times of each segment, oldest first."""
        self._check_open()
        self.refresh()
        return [
            SegmentStats(segment.name.stem, segment.base, (end or segment.base) - segment.base, limit, segment.created)
            for segment in self._segments
            for limit, end in [segment.extent]
        ]

    def verify(self, progress: Progress | None = None) -> Verification:
        """Check every checksum of every kept record; `progress(done, total)` is called in bytes."""
        self._check_open()
        self.refresh()
        return verify_segments(self._segments, self._report, progress)

    def inspect(self, offset: int, segment: str | None = None) -> Inspection:
        """Return what a byte of a segment belongs to (of the last one, or of the one with that file name)."""
        self._check_open()
        self.refresh()
        with translate_os_errors("reading the log in", self.folder):
            return inspect_segment(self._segments, offset, segment)

    def compact(self, *, retention: Retention | None = None, force: bool = False, dry_run: bool = False) -> Freed:
        """Apply retention; return how many segments were dropped (or would be), with their size in `bytes`.

        Never past a named tailer, unless forced. The segment that is being written stays. While a backup has pinned the
        log, nothing is dropped.
        """
        self._check_writable()
        policy = retention or self.settings.retention
        with self._io:
            return self._drop_by(policy, force=force, dry_run=dry_run) if policy is not None else Freed()

    def is_past(self, moment: int) -> bool:
        """Return whether a whole segment holds only records from before this moment. Cheap: it reads no file."""
        writer = self._writer
        if writer is None or not writer.segments:
            return False
        segments = writer.segments
        if len(segments) > 1 and segments[1].created < moment:
            return True
        return segments[-1].base < writer.end == self.pending_block.end and writer.last_timestamp < moment

    def retire(self) -> Freed:
        """Apply retention without traffic: as `compact`, and also to the active segment if all in it is too old.

        Does nothing without `max_age`. Called by the store's background thread.
        """
        policy = self.settings.retention
        if policy is None or policy.max_age is None:
            return Freed()
        with self._io:
            if self._append_error is not None:
                return Freed()
            past = self.clock.time_ns() - duration_ns(policy.max_age, "max_age")
            rolled = len(self._segments) >= policy.min_segments and self._roll_if(past)
            return self._drop_by(policy, past=self._segments[-1].base if rolled else None)

    def roll(self) -> int:
        """Begin a new segment, unless the last one is empty; return its first sequence."""
        self._check_writable()
        with self._io, self._errors_as_ours("rolling"):
            self._write_out(sync=True)
            self._begin_next_segment()
            return self._segments[-1].base if self._segments else self.end

    def drop_before(self, sequence: int) -> Freed:
        """Drop segments that hold only records before this one, and that no named tailer has yet to read."""
        self._check_writable()
        with self._io:
            return self._drop_by(Retention(max_age=_CENTURY_S), past=sequence)

    def shed(self, asking: Appender | None = None, free_space: Callable[[], bool] = lambda: False) -> Freed:
        """Drop every segment that all named readers have read, also the one being written: for a full disk.

        A log without named readers keeps everything.

        `asking` is the log that needs the space, whose I/O lock is held. If it is another log, this one's I/O lock is
        taken only if it is free; without `asking` it is waited for. `free_space` is called if there is no space for the
        header of the next segment.
        """
        held: list[bool] = []
        try:
            if asking is not self:
                held.extend(map(self._io.acquire, (asking is None,)))  # one call of C code, as in `rest`
            if (asking is not self and True not in held) or self._append_error is not None or self._floor() is None:
                return Freed()
            with contextlib.suppress(StorageError):  # without space for another segment, the last one stays
                try:
                    self._roll_if(_END_OF_TIME, with_pending=True)
                except DiskFull:
                    if free_space():
                        self._roll_if(_END_OF_TIME, with_pending=True)
            return self._drop_by(Retention(max_age=_CENTURY_S), past=self._segments[-1].base if self._segments else 0)
        finally:
            if True in held:
                self._io.release()

    @property
    def stored_end(self) -> int:
        """The end of the records that readers find in segments: under `sync` durable ones, else written ones."""
        return self._visible_end

    def has_segment_below(self, sequence: int) -> bool:
        """Return whether a whole segment holds only records before this one. Cheap: it reads no file."""
        writer = self._writer
        if writer is None or not (segments := writer.segments):
            return False
        return (len(segments) > 1 and segments[1].base <= sequence) or segments[-1].base < writer.end <= sequence

    def held_from(self) -> int | None:
        """Return the first record that a named tailer or a queue has yet to read; None without named readers."""
        return self._floor()

    def clear(self, *, force: bool = False) -> int:
        """Drop every segment that all named readers have read (or, forced, all records); return how many segments.

        Sequences continue. A segment with a record that is yet to be read is kept completely. Waits while a backup has
        pinned the log.
        """
        self._check_writable()
        while self.pinned:
            self.clock.sleep(_PINNED_PAUSE_S)
        with self._io, self._errors_as_ours("clearing"):
            self._write_out(sync=True)
            writer = self._writer
            assert writer is not None
            self._begin_next_segment()
            floor = None if force else self._floor()
            count = 0
            for following in writer.segments[1:]:
                if floor is not None and following.base > floor:
                    break
                count += 1
            self._drop(count)
            return count

    @property
    def _segments(self) -> tuple[Segment, ...]:
        """All segments. A read-only log opens each of them for this: see `_holding`."""
        return self._writer.segments if self._writer is not None else self._view.segments.all()

    def _holding(self, start: int, stop: int) -> tuple[Segment, ...]:
        """Return the segments that hold these records, and perhaps others."""
        return self._writer.segments if self._writer is not None else self._view.segments.between(start, stop)

    @property
    def _opened(self) -> Sequence[Segment]:
        return self._writer.segments if self._writer is not None else self._view.segments.opened()

    @property
    def _visible_end(self) -> int:
        if self._writer is None:
            last = self._view.segments.last
            return 0 if last is None else last.end or 0
        segments = self._writer.segments
        return segments[-1].end or 0 if segments else 0

    def _check_open(self) -> None:
        if self._append_error is not None and self.closed:
            raise Closed(*self._append_error.args)

    def _report(self, damage: Damage) -> None:
        seen = (damage.path, damage.offset, damage.reason)
        if seen not in self._damage_seen and len(self.damage) < _DAMAGE_KEPT:
            self._damage_seen.add(seen)
            self.damage.append(damage)
            logger.warning(
                "damage found: log=%s damage=%s",
                self.name,
                damage,
                extra={"log": self.name, "segment": damage.path, "offset": damage.offset},
            )

    def _floor(self) -> int | None:
        return min((kept.position for kept in self.positions.all()), default=None)

    def _begin_next_segment(self) -> None:
        writer = self._writer
        assert writer is not None
        if writer.segments and writer.end > writer.segments[-1].base:
            writer.seal_segment()
            writer.begin_segment(writer.end)

    def _roll_if(self, past: int, *, with_pending: bool = False) -> bool:
        """Begin a new segment if all appended records are from before this moment, and no reader needs them.

        With `with_pending` only written records count: the pending blocks are written to the new segment.
        """
        writer = self._writer
        assert writer is not None
        with self._lock:
            if self.pinned or not (with_pending or (not self.pending_block.payloads and self._unwritten is None)):
                return False
        if not writer.segments or writer.end == writer.segments[-1].base or writer.last_timestamp >= past:
            return False
        with self._errors_as_ours("rolling"):
            floor = self._floor()
            if floor is not None and floor < writer.end:
                return False
            self._begin_next_segment()
        return True

    def _drop_by(
        self, policy: Retention, *, force: bool = False, dry_run: bool = False, past: int | None = None
    ) -> Freed:
        assert self._writer is not None
        with self._errors_as_ours("dropping old segments of"):
            segments, floor = self._writer.segments, None if force else self._floor()
            count = droppable(segments, policy, self.clock.time_ns(), floor, past)
            freed = Freed(count, sum(segment.limit for segment in segments[:count]))
            if dry_run:
                return freed
            if self.pinned:
                return Freed()  # a backup needs them: they are dropped the next time
            self._drop(count)
        if count:
            logger.info(
                "dropped segments: log=%s segments=%d bytes=%d",
                self.name,
                count,
                freed.bytes,
                extra={"log": self.name, "segments": count, "bytes": freed.bytes},
            )
        return freed

    def _drop(self, count: int) -> None:
        assert self._writer is not None
        self._writer.drop(count)
        for view in self._views if count else ():
            view.release_below(self.start)

    def _before_first_write(self) -> None:
        if not self._assigned_any:
            # A queue may know messages beyond the end that survived a crash. Their sequences are assigned again now:
            # it must not take the new messages for the old ones.
            self.positions.keep_settled()
            super()._before_first_write()

    def _on_roll(self) -> None:
        if self.settings.retention is not None:
            try:
                self._drop_by(self.settings.retention)
            except StorageError as error:  # the record that made it roll is safe: its append must not fail
                logger.warning("retention failed: log=%s error=%s", self.name, error, extra={"log": self.name})

    def _notify(self) -> None:
        super()._notify()
        if self._followers:
            with self._following:
                self._arrived.notify_all()
