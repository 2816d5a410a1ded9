"""The public `Log`: a named, append-only sequence of records."""

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from holdfast.base.clock import Clock, Instant
from holdfast.base.confirm_gate import ConfirmGate
from holdfast.base.errors import HoldfastError
from holdfast.base.files import Files, translate_os_errors
from holdfast.log.appender import Appender
from holdfast.log.batch import check_batch
from holdfast.log.batch_adoption import BatchAdoption
from holdfast.log.block import Block
from holdfast.log.consumer_offsets import OffsetStore
from holdfast.log.inspection import Inspection, inspect_segment
from holdfast.log.log_reader import DamageReports, LogReader, WrittenSegments
from holdfast.log.log_schema import LogSchema
from holdfast.log.pending_block import PendingBlock
from holdfast.log.policy import Retention
from holdfast.log.read_only_segments import ReadOnlySegments
from holdfast.log.record import Headers, Message, Record
from holdfast.log.recovery import recover
from holdfast.log.remote_segments import PartSource, read_remote
from holdfast.log.retention import Freed, LogRetention
from holdfast.log.segment import Segment
from holdfast.log.settings import LogSettings
from holdfast.log.tailer import Tailer
from holdfast.log.tiering import LogTiering
from holdfast.log.verification import Progress, Verification, verify_segments
from holdfast.log.writer import SegmentWriter

__all__ = ["Log", "LogStats", "SegmentStats", "TailerStats", "close_discarding"]


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
    remote: bool = False
    """Whether it is only in the bucket of the replica."""


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
    remote_bytes: int = 0
    """How many of the bytes are only in the bucket of the replica; the others are on the local disk."""
    remote_segments: int = 0


class Log:
    """An append-only log; created by `Store.log`.

    Files: the folder `logs/<name>/` with dated segments, `log.json`, `watermark`, `tailers/` and perhaps
    `schema.json`. Threads: all methods may be called from any; a tailer belongs to one. Its parts have the locks.
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
        gate: ConfirmGate | None = None,
        confirms: bool = False,
        parts: PartSource | None = None,
        local_retention: Retention | None = None,
    ) -> None:
        """Open the log. With `confirms` its own calls wait at the gate of the store; else who uses it does."""
        self.name = name
        self.folder = folder
        self.id = log_id
        self.settings = settings
        self.clock = clock
        self.gate = gate or ConfirmGate(clock)
        """Where calls wait for a replica, if the store has one and they promise that something is durable."""
        self._confirms = confirms
        self._promises = confirms and settings.flush.mode == "sync"
        """Whether an append promises that the record is durable, so that it waits at the gate."""
        self._files = files
        self.positions = OffsetStore(files, folder, log_id, queue_at)
        self._reports = DamageReports(name)
        self.damage = self._reports.found
        """Damaged places that were found since the log was opened, the first thousand."""
        self.appender = Appender(name, folder, settings, clock, wake, lambda: sync_later(self))
        self.recent = self.appender.recent
        self.retention = LogRetention(self.appender, self.positions)
        self.tiering = LogTiering(self.appender, self.positions, self.retention, local_retention, parts)
        self.adoption = BatchAdoption(self.appender)
        self._read_only = read_only
        with translate_os_errors("opening the log in", folder):
            writer = None if read_only else self._open_writer(files, parts)
            self._segments = (
                ReadOnlySegments(files, folder, lock, self._reports.add, parts)
                if writer is None
                else WrittenSegments(writer, self.appender.write_for_readers)
            )
            self.reader = LogReader(self.appender, self._segments, self._reports.add, clock)
            if writer is not None:
                self.appender.start(
                    writer,
                    # A queue may know messages beyond the end that survived a crash. Their sequences are assigned again
                    # by the first write: the queue must not take the new messages for the old ones.
                    before_first_write=self.positions.keep_settled,
                    on_roll=self.retention.apply,
                    on_visible=self.reader.notify,
                )
                self.positions.settle(self.end)
        # Bound once: a method of this class that calls them would make an append a tenth slower. Only those that are
        # called for one record, because each takes 80 bytes of every log.
        if not self._promises:
            self.append = self.appender.append  # type: ignore[method-assign]
        self.gather = self.appender.gather
        self.commit = self.appender.commit
        self.notify_readers = self.recent.notify
        self.pieces = self.reader.pieces
        if settings.verify_on_open:
            self.verify()

    def _open_writer(self, files: Files, parts: PartSource | None) -> SegmentWriter:
        remote = read_remote(files, self.folder)
        segments, found = recover(files, self.folder, self._reports.add, remote=remote, parts=parts)
        close = weakref.WeakMethod(self.appender.close_idle_files)  # weak, so that an unused log is freed
        settings = self.settings.writer(self.tiering.policy)
        writer = SegmentWriter(files, self.clock, self.folder, self.id, settings, segments, found, close)
        writer.remote = remote
        return writer

    @property
    def start(self) -> int:
        """The first kept sequence."""
        return self.reader.start

    @property
    def end(self) -> int:
        """The next sequence to be written; for a read-only log, the end of the readable records."""
        return self._segments.end if self._read_only else self.appender.pending_block.end

    @property
    def closed(self) -> bool:
        """Whether the log was closed."""
        return self.appender.closed

    @property
    def schema(self) -> LogSchema:
        """The schema of the payloads: its versions, `set` and `check`."""
        return LogSchema(self._files, self.folder, self.appender)

    # Writing

    def append(self, payload: bytes, key: bytes | None = None, headers: Headers | None = None) -> int:
        """Add a record and return its sequence: 0, 1, 2, ...

        Under `Flush.sync()` it is on disk when this returns and, if the store was opened with `confirm="replica"`, in
        the bucket.
        """
        gate = self.gate
        if not gate.is_on:
            return self.appender.append(payload, key, headers)
        gate.check()
        if not gate.waits:
            return self.appender.append(payload, key, headers)
        message = payload if key is None and headers is None else Message(payload, key, headers)
        pending_block, first, _ = self.appender.gather(*check_batch((message,)))
        self._commit_to_replica(pending_block, first)
        return first

    def _commit_to_replica(self, pending_block: PendingBlock, first: int) -> None:
        """Return when the records of this pending block, from `first` on, are on disk and in the bucket.

        Call it with no lock held. The cut of the replica writes and syncs the block; if that does not happen soon, the
        thread with the first record does so. Otherwise each of 256 threads would be woken twice, for the disk and for
        the bucket, and each round would wait for two syncs. Raises the error of the block, or that of the gate.
        """
        appender = self.appender
        try:
            self.gate.confirm(partial(appender.commit_unless_begun, pending_block), soon=first == pending_block.first)
        except HoldfastError:
            appender.commit(pending_block)  # the error says that it is on the local disk
            raise
        if not pending_block.written:
            appender.commit(pending_block)

    def append_many(self, messages: Iterable[bytes | Message]) -> range:
        """Add records to one block, and return their sequences. After an error or crash, all of them or none are added.

        They are as safe as the flush mode promises when this returns, as after `append`.
        """
        if not self._promises:
            return self.appender.append_many(messages)
        self.gate.check()
        if not self.gate.waits:
            return self.appender.append_many(messages)
        pending_block, first, count = self.appender.gather(*check_batch(messages))
        if count:
            self._commit_to_replica(pending_block, first)
        return range(first, first + count)

    def sync(self) -> None:
        """Return when all records that were appended before are on disk and, with `confirm="replica"`, in the bucket.

        Modules of Holdfast that hold a lock, or must not wait for a bucket, call `appender.sync` instead.
        """
        self.appender.sync()
        if self._confirms:
            self.gate.confirm()

    def close(self) -> None:
        """Write and sync accepted records, then close the files and mappings; idempotent.

        If that fails (a full disk) the log stays open, so that closing can be tried again. A log that has stopped is
        closed without writing; under `batch` and `async` this raises `WriterStopped`, because accepted records are
        lost.
        """
        try:
            self.appender.close()
        finally:
            self.reader.close()

    # Reading

    def tailer(self, name: str | None = None) -> Tailer:
        """Return an independent reader from the start or, with a name, from the position that the name committed."""
        self.appender.check_open()
        self.refresh()
        return Tailer(self, name)

    def read(self, start: int | None = None, stop: int | None = None, *, reverse: bool = False) -> Iterator[Record]:
        """Yield the records from `start` up to, not including, `stop`; with `reverse`, backwards."""
        return self.reader.read(start, stop, reverse=reverse)

    def blocks(self, start: int | None = None, stop: int | None = None) -> Iterator[Block]:
        """Return whole blocks that hold records from `start` up to `stop`, over mapped memory: the fastest scan."""
        return self.reader.blocks(start, stop)

    def time_of(self, sequence: int) -> int | None:
        """Return when a record was appended, without reading payloads; None if that cannot be read."""
        return self.reader.time_of(sequence)

    def sequence_at(self, when: Instant, *, past_damage: bool = True) -> int:
        """Return the first sequence whose record is not before `when`; the end if there is none.

        If the block with that record is damaged: the first sequence behind it or, if not `past_damage`, its first.
        """
        return self.reader.sequence_at(when, past_damage=past_damage)

    def readable(self) -> tuple[int, int]:
        """Return the first sequence that can be read, and the end; under `async` and `batch`, of all appended ones."""
        return self.reader.readable()

    def refresh(self) -> None:
        """Make records readable that were appended here, or published by the writer. Ignores a failed flush."""
        self.reader.refresh()

    def wait_for(self, sequence: int, timeout: float | None) -> bool:
        """Wait until `sequence` can be read; False if the time is up or the log was closed."""
        return self.reader.wait_for(sequence, timeout)

    def stats(self) -> LogStats:
        """Return sizes, range, times and named tailers."""
        self.appender.check_open()
        start, end = self.readable()
        segments = self._segments.all()
        remote = [segment.limit for segment in segments if segment.remote is not None]
        first_timestamp = _first_time(segments)
        if first_timestamp is None:
            first = next(iter(self.read(start, min(start + 1, end))), None)
            first_timestamp = first.timestamp if first else None
        last = next(self.read(max(start, end - 1), end), None)
        return LogStats(
            name=self.name,
            start=start,
            end=end,
            records=end - start,
            bytes=sum(segment.limit for segment in segments),
            segments=len(segments),
            first_timestamp=first_timestamp,
            last_timestamp=last.timestamp if last else None,
            damage=len(self.damage),
            tailers=[
                TailerStats(kept.name, kept.position, max(0, end - kept.position), kept.committed_at, kept.owner)
                for kept in self.positions.all()
            ],
            remote_bytes=sum(remote),
            remote_segments=len(remote),
        )

    def segments(self) -> list[SegmentStats]:
        """Return size, range and times of each segment, oldest first."""
        self.appender.check_open()
        self.refresh()
        return [
            SegmentStats(
                segment.name.stem,
                segment.base,
                (end or segment.base) - segment.base,
                limit,
                segment.created,
                segment.remote is not None,
            )
            for segment in self._segments.all()
            for limit, end in [segment.extent]
        ]

    def verify(self, progress: Progress | None = None) -> Verification:
        """Check every checksum of every kept record; `progress(done, total)` is called in bytes."""
        self.appender.check_open()
        self.refresh()
        return verify_segments(self._segments.all(), self._reports.add, progress)

    def inspect(self, offset: int, segment: str | None = None) -> Inspection:
        """Return what a byte of a segment belongs to (of the last one, or of the one with that file name)."""
        self.appender.check_open()
        self.refresh()
        with translate_os_errors("reading the log in", self.folder):
            return inspect_segment(self._segments.all(), offset, segment)

    # Segments

    def compact(self, *, retention: Retention | None = None, force: bool = False, dry_run: bool = False) -> Freed:
        """Apply retention; return how many segments were dropped (or would be), with their size in `bytes`.

        Never past a named tailer, unless forced. The segment that is being written stays. While a backup has pinned the
        log, nothing is dropped.
        """
        return self.retention.compact(retention, force=force, dry_run=dry_run)

    def clear(self, *, force: bool = False) -> int:
        """Drop every segment that all named readers have read (or, forced, all records); return how many segments.

        Sequences continue. A segment with a record that is yet to be read is kept completely. Waits while a backup has
        pinned the log.
        """
        return self.retention.clear(force=force)

    def roll(self) -> int:
        """Begin a new segment, unless the last one is empty; return its first sequence."""
        return self.appender.roll()

    # For the store, its queues and tables, and the broker.

    def tick(self) -> float | None:
        """Do the background work that is due; return in how many seconds to call again: see `Appender.tick`."""
        return self.appender.tick()

    @property
    def fields(self) -> dict[str, str]:
        """The `extra` of log messages about this log."""
        return self.appender.fields

    def page_out(self) -> int:
        """Release the memory of records on disk; return how many bytes of it were pending blocks."""
        self.reader.release_mapped()
        return self.appender.release_recent(0)


def _first_time(segments: Sequence[Segment]) -> int | None:
    """Return the time of the first record if it is in the bucket: figures of a log should not wait for a request."""
    first = segments[0].remote if segments else None
    return None if first is None else first.entry.parts[0].timestamp


def close_discarding(log: Log) -> None:
    """Close a log that is deleted: a failure to write accepted records is only logged."""
    try:
        log.appender.close_discarding()
    finally:
        log.reader.close()
