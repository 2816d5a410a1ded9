"""What is a log? A named, append-only sequence of records: this is what users hold in their hands."""

import contextlib
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.base.clock import Clock, Instant, instant_ns
from holdfast.base.errors import Closed, StorageError, WriterStopped
from holdfast.base.files import Files, errors_as_ours
from holdfast.log.block import Block
from holdfast.log.cutter import Cutter
from holdfast.log.draft import Draft
from holdfast.log.inspection import Inspection, inspect_segment
from holdfast.log.live import LiveView
from holdfast.log.piece import BlockPiece, DraftPiece, Piece
from holdfast.log.policy import Retention
from holdfast.log.positions import Positions
from holdfast.log.record import Damage, Record
from holdfast.log.recovery import recover
from holdfast.log.retention import droppable
from holdfast.log.segment import Segment
from holdfast.log.settings import LogSettings
from holdfast.log.tailer import Tailer
from holdfast.log.verification import Progress, Verification, verify_segments
from holdfast.log.writer import SegmentWriter

__all__ = ["Log", "LogStats", "SegmentStats", "TailerStats"]

logger = logging.getLogger("holdfast.log")

_DAMAGE_KEPT = 1000
_PINNED_PAUSE_S = 0.01


@dataclass(frozen=True, slots=True)
class TailerStats:
    """A named tailer, how far it has come and how far it has to go."""

    name: str
    position: int
    lag: int
    committed_at: int


@dataclass(frozen=True, slots=True)
class SegmentStats:
    """One segment at a glance."""

    name: str
    first: int
    records: int
    bytes: int
    created: int


@dataclass(frozen=True, slots=True)
class LogStats:
    """A log at a glance."""

    name: str
    start: int
    end: int
    records: int
    bytes: int
    segments: int
    first_timestamp: int | None
    last_timestamp: int | None
    damage: int
    """Damaged places met since the log was opened."""
    tailers: list[TailerStats] = field(default_factory=list)


class Log(Cutter):
    """An append-only log; made by `Store.log`.

    Files: the folder `logs/<name>/` with dated segments, `log.json`, `watermark` and `tailers/`. Threads: all methods
    may be called from any; a tailer belongs to one.
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
    ) -> None:
        super().__init__(name, folder, settings, clock, wake)
        self.id = log_id
        self.positions = Positions(files, folder, log_id, queue_at)
        self.damage: list[Damage] = []
        """Damaged places met since the log was opened, the first thousand."""
        self._damage_seen: set[tuple[str, int, str]] = set()
        self._arrived = threading.Condition()
        self._followers = 0
        self.ids_guard = threading.Lock()
        """For queues: held while an id is looked for and its message gathered, lest two groups both put it."""
        self.ids_in_flight: dict[bytes, Draft] = {}
        """For queues: the ids of messages that are gathered and not yet visible."""
        with errors_as_ours("opening the log in", folder):
            if read_only:
                self._view = LiveView(files, folder, lock, self._report)
            else:
                segments, found = recover(files, folder, self._report)
                rest = weakref.WeakMethod(self.rest)  # weak, because a log that nobody has any more must go
                writer = SegmentWriter(files, clock, folder, log_id, settings.writer(), segments, found, rest)
                self._start_writing(writer)
                self.positions.settle(self.end)
        if settings.verify_on_open:
            self.verify()

    @property
    def start(self) -> int:
        """The first kept sequence."""
        segments = self._segments
        return segments[0].base if segments else 0

    @property
    def end(self) -> int:
        """The next sequence to be written; for a read-only log, the end of what may be read."""
        return self._draft.end if self._writer is not None else self._visible_end

    def tailer(self, name: str | None = None) -> Tailer:
        """An independent reader from the start or, with a name, from where that name last committed."""
        self._check_open()
        self.refresh()
        return Tailer(self, name)

    def read(self, start: int | None = None, stop: int | None = None, *, reverse: bool = False) -> Iterator[Record]:
        """The records from `start` up to, not including, `stop`; or the same backwards."""
        self._check_open()
        first, end = self.readable()
        start = first if start is None else max(start, first)
        stop = end if stop is None else min(stop, end)
        if not reverse:
            for block in self.blocks_between(start, stop):
                yield from block.records(max(0, start - block.sequence), stop - block.sequence)
            return
        for segment in reversed(self._segments):
            if segment.base < stop and start < stop:
                for block in segment.blocks_reversed(max(start, segment.base), stop, self._report):
                    yield from reversed(block.records(max(0, start - block.sequence), stop - block.sequence))
            if segment.base <= start:
                return
            segment.let_go()

    def blocks(self, start: int | None = None, stop: int | None = None) -> Iterator[Block]:
        """Whole blocks that hold records from `start` up to `stop`, over mapped memory: the fast way to scan."""
        first, end = self.readable()
        return self.blocks_between(first if start is None else start, end if stop is None else min(stop, end))

    def blocks_between(self, start: int, stop: int) -> Iterator[Block]:
        """The same, for a caller that has asked `readable` already."""
        segments = self._segments
        for position, segment in enumerate(segments):
            if segment.base >= stop:
                return
            following = segments[position + 1].base if position + 1 < len(segments) else stop
            if following > start:
                yield from segment.blocks(max(start, segment.base), stop, self._report)
                if following < stop:
                    segment.let_go()

    @property
    def visible_end(self) -> int:
        """The end of what this process may read: under `sync` what is durable, else all that was appended."""
        return self._draft.end if self._writer is not None and not self._durable_appends else self._visible_end

    def kept_segments(self, *, durable: bool = False) -> tuple[Segment, ...]:
        """The segments as they were at the last `refresh`, oldest first.

        With `durable`, bounded to what was on disk then: what no power cut can take back. For read-only logs.
        """
        segments = self._segments
        if not durable or not segments:
            return segments
        return (*segments[:-1], segments[-1].bounded(*self._view.durable()))

    @property
    def draft(self) -> Draft:
        """The open draft; under `sync` nothing of it may be read."""
        return self._draft

    def pieces(self, start: int, stop: int) -> Iterator[Piece]:
        """The records from `start` up to `stop`, for views: also from drafts, so that nothing need be written first.

        `stop` is at most `visible_end`. What is damaged, or no longer kept, is left out.
        """
        with self._lock:
            drafts = self._drafts_between(start, stop)
        written = min(drafts[-1].first, stop) if drafts else stop
        if start < written:
            for block in self.blocks_between(start, written):
                yield BlockPiece(block, max(start, block.sequence), min(written, block.end))
            self.release_mapped()  # whoever has read them all has no more use for their memory
        for draft in reversed(drafts):
            yield DraftPiece(draft, max(start, draft.first), min(stop, draft.end))

    def _drafts_between(self, start: int, stop: int) -> list[Draft]:
        """Those at hand that hold some of these records, the last one first. Called with the lock held."""
        found: list[Draft] = []
        for draft in reversed(self._recent):
            if draft.first < stop:
                found.append(draft)
            if draft.first <= start:
                break
        return found

    def time_of(self, sequence: int) -> int | None:
        """For views: when a record was appended, without reading payloads; None where that cannot be read."""
        with self._lock:
            drafts = self._drafts_between(sequence, sequence + 1)
        if drafts and drafts[-1].first <= sequence < drafts[-1].end:
            return drafts[-1].times[sequence - drafts[-1].first]
        segment = next((segment for segment in reversed(self._segments) if segment.base <= sequence), None)
        return None if segment is None else segment.time_of(sequence, self._report)

    def page_out(self) -> int:
        """For views: give back the memory of what is on disk; how many bytes of it were drafts."""
        self.release_mapped()
        return self._let_recent_go(0)

    def release_mapped(self) -> None:
        """Give back the pages of segments that were read: the system keeps them, and they no longer count as ours."""
        for segment in self._segments:
            segment.page_out()

    def unseen_bytes(self, sequence: int) -> int:
        """For views: the payload bytes that were appended from here on, up to the end of the open draft."""
        total = 0
        with self._lock:
            for draft in reversed(self._recent):
                if draft.end <= sequence and draft.payloads:
                    break
                total += sum(map(len, draft.payloads[max(0, sequence - draft.first) :]))
        return total

    def sequence_at(self, when: Instant, *, past_damage: bool = True) -> int:
        """The first sequence whose record is not before `when`; the end if there is none.

        Where the block that would tell is damaged: the first sequence behind it or, if not `past_damage`, its first.
        """
        timestamp = instant_ns(when, "when")
        end = self.readable()[1]
        segments = self._segments
        for position, segment in enumerate(segments):
            # A segment is created after the last record of the one before, by the log's own time.
            if position + 1 < len(segments) and segments[position + 1].created < timestamp:
                continue
            found = segment.sequence_at_time(timestamp, self._report, past_damage=past_damage)
            if found is not None:
                return found
        return end

    def readable(self) -> tuple[int, int]:
        """The first and the end of what can be read now; under `async` and `batch` that is all that was appended."""
        self.refresh()
        return self.start, self._visible_end

    def refresh(self) -> None:
        """Make what was appended here, or published by the process that writes, readable."""
        if self._writer is None:
            if not self.closed:
                with errors_as_ours("reading the log in", self.folder):
                    self._view.refresh()
        elif not self._durable_appends and self._refusal is None and (self._draft.payloads or self._unwritten):
            # On a full disk, or while another thread closes the log, one can still read; the next append tells.
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
                with self._arrived:
                    self._followers += 1
                    if self._visible_end <= sequence:
                        self.clock.wait(self._arrived, left)
                    self._followers -= 1
        return False

    def close(self) -> None:
        """Drain and sync what was accepted, then let go of the files and mappings; idempotent."""
        try:
            super().close()
        finally:
            for segment in self._segments:
                segment.let_go()

    def rest(self, *, at_once: bool) -> None:
        """Close the files until the next write, if nobody is writing: see `resting`.

        Unless `at_once`, not what was used since this was asked last, nor what would have to be synced for it.
        """
        writer = self._writer
        if writer is None:
            return
        was_used, writer.used = writer.used, False
        if not at_once and (was_used or not writer.is_durable):
            return
        held: list[bool] = []
        try:
            # Who asks has the I/O lock of another log, so this one is not waited for. Taken and noted by one call of
            # C code: a signal's handler that raises behind it finds it noted.
            held.extend(map(self._io.acquire, (False,)))
            if True in held:
                writer.rest()
        except WriterStopped as stopped:
            self._give_up([], stopped)
        except OSError as error:  # the files are closed, and all was on disk before
            logger.warning("closing the files of %s failed: %s", self.name, error, extra=self.fields)
        finally:
            if True in held:
                self._io.release()

    def stats(self) -> LogStats:
        """Sizes, ends, times and named tailers."""
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
                TailerStats(kept.name, kept.position, max(0, end - kept.position), kept.committed_at)
                for kept in self.positions.all()
            ],
        )

    def segments(self) -> list[SegmentStats]:
        """Each segment, oldest first."""
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
        """What is at this byte of a segment (the last one, or the one of that file name)."""
        self._check_open()
        self.refresh()
        with errors_as_ours("reading the log in", self.folder):
            return inspect_segment(self._segments, offset, segment)

    def compact(self, *, retention: Retention | None = None, force: bool = False, dry_run: bool = False) -> int:
        """Apply retention and return how many segments went (or would go). Never past a named tailer, unless forced."""
        self._check_writable()
        policy = retention or self.settings.retention
        with self._io:
            return self._drop_by(policy, force=force, dry_run=dry_run) if policy is not None else 0

    def clear(self, *, force: bool = False) -> int:
        """Drop every record that named tailers have read (or, forced, every record); sequences go on."""
        self._check_writable()
        while self.pinned:
            self.clock.sleep(_PINNED_PAUSE_S)
        with self._io, self._errors_as_ours("clearing"):
            self._write_out(sync=True)
            writer = self._writer
            assert writer is not None
            if writer.segments and writer.end > writer.segments[-1].base:
                writer.seal_segment()
                writer.begin_segment(writer.end)
            floor = None if force else self._floor()
            count = 0
            for following in writer.segments[1:]:
                if floor is not None and following.base > floor:
                    break
                count += 1
            writer.drop(count)
            return count

    @property
    def _segments(self) -> tuple[Segment, ...]:
        return self._writer.segments if self._writer is not None else self._view.segments

    @property
    def _visible_end(self) -> int:
        segments = self._segments
        end = segments[-1].end if segments else 0
        return end if end is not None else 0

    def _check_open(self) -> None:
        if self._refusal is not None and self.closed:
            raise Closed(*self._refusal.args)

    def _report(self, damage: Damage) -> None:
        seen = (damage.path, damage.offset, damage.reason)
        if seen not in self._damage_seen and len(self.damage) < _DAMAGE_KEPT:
            self._damage_seen.add(seen)
            self.damage.append(damage)
            logger.warning(
                "damage: %s", damage, extra={"log": self.name, "segment": damage.path, "offset": damage.offset}
            )

    def _floor(self) -> int | None:
        return min((kept.position for kept in self.positions.all()), default=None)

    def _drop_by(self, policy: Retention, *, force: bool = False, dry_run: bool = False) -> int:
        assert self._writer is not None
        with self._errors_as_ours("dropping old segments of"):
            count = droppable(self._writer.segments, policy, self.clock.time_ns(), None if force else self._floor())
            if dry_run:
                return count
            if self.pinned:
                return 0  # a backup needs them: they go the next time
            self._writer.drop(count)
        if count:
            logger.info("dropped %d segments of %s", count, self.name, extra={"log": self.name, "segments": count})
        return count

    def _begin_giving(self) -> None:
        if not self._gives:
            # What a queue knows beyond the end that survived must not be taken for what is given these numbers now.
            self.positions.keep_settled()
            super()._begin_giving()

    def _rolled(self) -> None:
        if self.settings.retention is not None:
            try:
                self._drop_by(self.settings.retention)
            except StorageError as error:  # the record that made it roll is safe: its append must not fail
                logger.warning("retention of %s failed: %s", self.name, error, extra={"log": self.name})

    def _notify(self) -> None:
        super()._notify()
        if self._followers:
            with self._arrived:
                self._arrived.notify_all()
