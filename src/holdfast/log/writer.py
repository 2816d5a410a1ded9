"""Segment writer: writes blocks, rolls and syncs segments, maintains their indexes and publishes the watermark."""

import contextlib
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from holdfast.base.clock import Clock
from holdfast.base.errors import WriterStopped, is_reported
from holdfast.base.files import File, Files, replace_file, write_all, write_all_parts
from holdfast.base.open_files import CloseFiles
from holdfast.log.compression import Codec
from holdfast.log.index import ENTRY_SIZE, Checkpoint, SparseIndex, pack_entry, pack_index_header
from holdfast.log.layout import (
    ALIGN,
    HEADER_SIZE,
    BlockHeader,
    EncodedBlock,
    SegmentHeader,
    frame,
    pack_block_header,
    pack_segment_header,
)
from holdfast.log.log_file import note_start
from holdfast.log.policy import Roll
from holdfast.log.recovery import Survey
from holdfast.log.remote_segments import RemoteLog, RemoteSource, write_remote
from holdfast.log.segment import Segment
from holdfast.log.segment_files import SegmentName, next_name
from holdfast.log.segment_repair import rewrite_end
from holdfast.log.watermark import Watermark, WatermarkFile

__all__ = ["PendingSync", "SegmentWriter", "WriterSettings"]

logger = logging.getLogger("holdfast.log")

_LITTLE = 4 << 10
_LITTLE_SYNCS = 8
_AHEAD = bytes(64 << 10)
"""After 8 syncs in a row of at most 4 KiB each, 64 KiB of zeros are written behind the end: an fdatasync within a file
that is long enough took 120 us, one that made it longer 175, because the file system wrote its journal too."""


class PendingSync(NamedTuple):
    """A running sync: its file, and the end of what was written before it began."""

    file: File
    segment: Segment
    offset: int
    end: int


class _Disk:
    """Syncs the active segment of a log, one caller at a time.

    The kernel reports a failure only once, to the first caller. So it is recorded before the lock is released, and the
    next holder finds it. A file is closed with the lock held, and so never during a sync.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """The innermost lock: its holder waits for the disk only."""
        self.noted: OSError | None = None
        """The exception that an fdatasync raised; `failure` decides whether it is a failure of the disk."""

    def failure(self) -> OSError | None:
        """Return why an fdatasync has failed; None if none has.

        The recorded exception is interpreted here and not where it was raised: a second signal could interrupt that.
        """
        error = self.noted
        if error is not None and not is_reported(error):  # raised by a signal handler, which can raise an OSError too
            error = self.noted = None
        return error

    def trust(self) -> None:
        """Clear the failure, after the end of the file was rewritten."""
        self.noted = None

    def sync(self, file: File) -> None:
        """Make everything that was written to this file durable, or record the failure. Called with the lock held."""
        if self.noted is None or self.failure() is None:
            try:
                file.sync()
            except OSError as error:  # recorded before any call, in which a signal's handler may raise
                self.noted = error
                if self.failure() is None:
                    raise


class _Preallocation:
    """Zeros behind the end of the active segment, which make many small syncs cheaper."""

    def __init__(self) -> None:
        self._little_syncs = 0
        self._until = 0

    def forget(self) -> None:
        """Reset: the file was cut, or is another one, and has no zeros."""
        self._until = 0

    def make(self, file: File, durable: int, end: int, most: int | None) -> None:
        """Write zeros before a sync of the bytes between these offsets; that sync makes them durable too."""
        if end - durable > _LITTLE:
            self._little_syncs = 0
            return
        self._little_syncs += 1
        if self._little_syncs < _LITTLE_SYNCS or self._until - end >= _LITTLE:
            return
        start = max(self._until, end)
        zeros = _AHEAD if most is None else _AHEAD[: max(0, most - start)]  # not beyond the size at which it rolls
        try:
            write_all(file, zeros, start)
        except OSError as error:  # the disk is full: records are still written, until one does not fit and fails
            self._little_syncs = 0
            if not is_reported(error):
                raise
            return
        self._until = start + len(zeros)


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """Settings of the segment writer."""

    roll: Roll
    index_interval: int
    codec: Codec | None
    durable_only: bool
    """Whether readers see only synced records; otherwise they see written ones."""


class SegmentWriter:
    """The writing end of a log.

    Files: the last segment and its index, and the log's `watermark`. Threads: one at a time, under the log's I/O lock,
    except `await_disk`.
    Invariant: `durable_offset <= offset <= file size`, and an index entry in the file is never beyond `durable_offset`.
    Behind `offset` the active segment may have zeros; a sealed one ends there.
    `close_idle_files` closes the files of the active segment; the next write opens them. Invariant: while they are
    closed, everything is on disk, `durable_offset == offset`, by an fdatasync through the descriptor that wrote it.
    """

    def __init__(
        self,
        files: Files,
        clock: Clock,
        log: Path,
        log_id: bytes,
        settings: WriterSettings,
        segments: list[Segment],
        found: Survey | None,
        close_files: Callable[[], CloseFiles | None] = lambda: None,
    ) -> None:
        """Continue behind `segments`; `close_files` is a weak reference to what closes this writer's files."""
        self.files = files
        self.clock = clock
        self.log = log
        self.log_id = log_id
        self.settings = settings
        self.segments: tuple[Segment, ...] = tuple(segments)
        """Replaced when a segment is added or dropped, so that readers may keep the tuple that they have."""
        self.stopped: WriterStopped | None = None
        self.recoverable = True
        """If it has stopped: whether `recover` may help."""
        self._disk = _Disk()
        self._preallocation = _Preallocation()
        self._reached: PendingSync | None = None
        """The last sync that was completed without the log's I/O lock."""
        self._published: tuple[Segment, int, int] | None = None
        """The segment, durable offset and durable end that were last published to other processes."""
        self.used = False
        """Set with each block, to find the logs that were used lately."""
        self._close_request = close_files
        self._writing = False
        """Whether the last segment accepts more blocks; its files may be closed."""
        self._changed = False
        """Whether the last segment was written to since the log was opened."""
        self._was_cut = False
        """Whether its file was truncated since the last complete sync."""
        self._file: File | None = None
        self._index_file: File | None = None
        self._index_offset = 0
        self._entries: list[Checkpoint] = []
        self._entry_sequence = 0
        self.remote = RemoteLog()
        """Its segments in the bucket, as in `remote.json`; some may still be on the disk, too."""
        self.evicted: list[Segment] = []
        """Segments that are read from the bucket, and whose files are not deleted yet."""
        self.end = found.end.sequence if found else 0
        self.offset = segments[-1].limit if segments else 0
        self.last_timestamp = found.end.timestamp if found else 0
        self.durable_offset, self.durable_end = self.offset, self.end
        self._watermark = WatermarkFile(files, log, found.mark if found else None)
        if found is not None and segments and self._resume(segments[-1], found):
            self._publish()

    @property
    def active(self) -> Segment | None:
        """The segment being written; None before the first record and just after a roll."""
        return self.segments[-1] if self._writing else None

    @property
    def is_durable(self) -> bool:
        """Whether everything that was written is on disk."""
        return self.durable_offset == self.offset

    def put(self, sealed: EncodedBlock, *, tell: bool = True) -> None:
        """Write a block behind the last one, without a sync. After an OSError the call may be repeated.

        Raises `WriterStopped` if a failed write could not be undone. Without `tell`, a later call publishes the
        watermark.
        """
        assert sealed.sequence == self.end, f"a block of {sealed.sequence} cannot follow {self.end}"
        self.check()  # the files may be closed by now: a new descriptor would not report an earlier failure
        if self._reached is not None:
            self._note_reached()
        if self._is_full(sealed):
            self.seal_segment()
        if not self._writing:
            self.begin_segment(sealed.sequence)
        file = self._file or self._reopen_files()
        self.used = self._changed = True
        segment, durable_only = self.segments[-1], self.settings.durable_only
        parts = frame(sealed, self.offset, self.durable_offset, segment.segment_id)
        try:
            size = write_all_parts(file, parts, self.offset)
        except OSError:
            self._undo_write()
            raise
        # Assignments only, so that an interrupt leaves the block either counted completely, and readable, or not at
        # all: then it is written again at the same offset.
        end, offset = self.end + sealed.records, self.offset + size
        extent = segment.extent if durable_only else (offset, end)
        self.end, self.offset, self.last_timestamp, segment.extent = end, offset, sealed.last_timestamp, extent
        if self.end - self._entry_sequence >= self.settings.index_interval:
            self._add_entry()
        if tell and not durable_only:
            self._publish()

    def sync(self, *, tell: bool = True) -> None:
        """Make everything that was written durable, or stop: raises `WriterStopped`.

        A failed fdatasync is not repeated, because the pages may be lost and marked clean; `recover` writes them again.

        Without `tell`, the watermark for other processes is published by a later call of `tell`.
        """
        if (file := self._to_sync()) is not None:
            self._sync_file(file)
            self._note_durable(self.offset, self.end)
            self._publish(tell=tell)

    def begin_sync(self, *, ahead: bool = True) -> PendingSync | None:
        """Return the sync that `await_disk` runs while other threads write; None if everything is durable.

        Without `ahead` no zeros are written behind the end: they only help callers that wait for many small syncs.
        """
        file = self._to_sync(ahead=ahead)
        return None if file is None else PendingSync(file, self.segments[-1], self.offset, self.end)

    def await_disk(self, begun: PendingSync) -> bool:
        """Run this sync; return False if it fails. Called without the I/O lock, because it takes the most time.

        The next call of `tell` or `sync` uses the result.
        """
        disk = self._disk
        with disk.lock:
            reached = self._reached
            # Otherwise the file was closed, after a complete sync or because the writer had stopped; or a later sync
            # was faster.
            if begun.file is self._file and (
                reached is None or reached.segment is not begun.segment or reached.offset < begun.offset
            ):
                disk.sync(begun.file)
                if disk.noted is None or disk.failure() is None:
                    self._reached = begun
            return (disk.noted is None or disk.failure() is None) and self.stopped is None

    def check(self) -> None:
        """Raise if this writer has stopped."""
        self._check_disk()
        if self.stopped is not None:
            raise self.stopped

    def _to_sync(self, *, ahead: bool = True) -> File | None:
        self._check_disk()
        if self._reached is not None:
            self._note_reached()
        if self._file is None:
            assert self.is_durable, "files were closed before all that was written to them was on disk"
            return None
        if self.is_durable:
            if self._published != (self.segments[-1], self.offset, self.end):  # an interrupt prevented the publication
                self._publish()
            return None
        if ahead:
            self._preallocation.make(self._file, self.durable_offset, self.offset, self.settings.roll.bytes)
        return self._file

    def _note_reached(self) -> None:
        reached = self._reached
        if reached is not None and reached.segment is self.active and reached.offset > self.durable_offset:
            self._note_durable(reached.offset, reached.end)

    def _note_durable(self, offset: int, end: int) -> None:
        if self.settings.durable_only:
            self.durable_offset, self.durable_end, self.segments[-1].extent = offset, end, (offset, end)
        else:
            self.durable_offset, self.durable_end = offset, end
        self._write_entries()

    def tell(self) -> None:
        """Publish the watermark, so that other processes know how far they may read."""
        self._note_reached()
        self._publish()

    def close_idle_files(self) -> None:
        """Make everything durable, unless the writer has stopped, and close the files; the next write opens them."""
        if self.stopped is None:
            self.sync()
            assert self.is_durable, "files may be closed only after a complete sync"
        self._close_files()

    def _reopen_files(self) -> File:
        """Open the files of the active segment again."""
        self.files.open_limit.admit(id(self), self._close_request)
        segment = self.segments[-1]
        file = self.files.open(segment.path, "w")
        try:
            size = file.size()
            if size < self.offset:
                raise self.stop(f"the segment was truncated to {size} bytes, but {self.offset} were written")
            index_file = self._open_index(segment)
        except BaseException:
            file.close()
            raise
        self._file, self._index_file = file, index_file
        return file

    def _open_index(self, segment: Segment) -> File:
        path = segment.name.index_path(self.log)
        file = self.files.open(path, "w" if self.files.exists(path) else "x")
        size = file.size()
        if size > self._index_offset:  # half-written entries of a crash
            file.truncate(self._index_offset)
        elif size < self._index_offset:  # it is new, or was deleted
            write_all(file, segment.index.content()[: self._index_offset], 0)
        return file

    def seal_segment(self, *, closing: bool = False) -> None:
        """Finish the active segment. It never changes again, unless the log is only being closed."""
        if not self._writing or (closing and self._file is None and not self._changed):
            return
        file = self._file or self._reopen_files()
        self.sync()
        if file.size() > self.offset or (self._was_cut and not closing):
            # Synced before there is a next segment: only the last segment may end in zeros.
            file.truncate(self.offset)
            self._sync_file(file)
            self._was_cut = False
        self._write_entries()
        segment, index_file = self.segments[-1], self._index_file
        try:
            if index_file is not None and not self._entries and self.end > segment.base:
                self._seal_index(segment.index, index_file)
        except OSError as error:  # derived: without it the segment is only slower to open
            if not is_reported(error):
                raise
            logger.warning(
                "index not sealed, deleting it: segment=%s error=%s",
                segment.path,
                error,
                extra={"segment": str(segment.path)},
            )
            with contextlib.suppress(OSError):  # entries that a failed sync has lost would be reported as damage
                self.files.remove(segment.name.index_path(self.log))
        self._publish()
        self._writing, self._changed, self._entries = False, False, []
        self._close_files()

    def _seal_index(self, index: SparseIndex, file: File) -> None:
        last = index.last()
        if index.sealed and last is not None and last.sequence == self.end:
            return
        # A sealed last entry confirms the others, so they are on disk before it is written.
        file.sync()
        final = Checkpoint(self.end, self.offset, self.last_timestamp)
        position = index.seal(final)
        write_all(file, pack_entry(final, sealed=True), HEADER_SIZE + position * ENTRY_SIZE)
        file.sync()

    def close(self) -> None:
        """Make everything durable, unless the writer has stopped, and close the files."""
        if self.stopped is None:
            self.seal_segment(closing=True)
        self._writing = False
        self._close_files()

    def drop(self, count: int) -> None:
        """Delete the oldest `count` segments, which must be sealed."""
        if not count:
            return
        start = self.segments[count].base if count < len(self.segments) else self.end
        noted = self._note_start(start)
        for segment in self.segments[:count]:
            assert segment is not self.active
            folder = segment.path.parent
            found = [name for name in self.files.list(folder) if name.startswith(segment.name.stem + ".")]
            for name in found:
                self.files.remove(folder / name)
            self.segments = self.segments[1:]
            segment.unmap()
            if found or segment.remote is None:
                self._tidy_folder(folder)
        if not noted:
            self._note_start(start)  # there is space now

    def evict(self, remote: RemoteLog, sources: list[tuple[Segment, RemoteSource]]) -> None:
        """Delete the files of sealed segments that are whole in the bucket, after that was written down durably.

        Readers that have them mapped go on; others fetch them. Raises OSError: then some may still be on the disk.
        """
        write_remote(self.files, self.log, remote)
        self.remote = remote
        for segment, source in sources:
            assert segment is not self.active
            segment.move_to(source)
            self.evicted.append(segment)
        self.delete_evicted()

    def delete_evicted(self) -> None:
        """Delete the files of segments that are read from the bucket. Raises OSError: then a later call goes on."""
        while self.evicted:
            segment = self.evicted[0]
            for path in (segment.path, segment.name.index_path(self.log)):
                if self.files.exists(path):
                    self.files.remove(path)
            self._tidy_folder(segment.path.parent)
            del self.evicted[0]

    def _tidy_folder(self, folder: Path) -> None:
        """Make the deletion of files in a dated folder durable, and delete folders that are empty."""
        while folder != self.log and not self.files.exists(folder):  # by an earlier call, which was cut off
            folder = folder.parent
        self.files.sync_dir(folder)
        while folder != self.log and not self.files.list(folder):
            self.files.remove_dir(folder)
            folder = folder.parent
            self.files.sync_dir(folder)

    def _note_start(self, start: int) -> bool:
        """Record what is dropped on purpose; return False if that fails: a full disk must not prevent dropping."""
        try:
            note_start(self.files, self.log, start)
            if self.remote.entries and self.remote.entries[0].end <= start:
                remote = self.remote.from_base(start)
                write_remote(self.files, self.log, remote)
                self.remote = remote
        except OSError as error:
            logger.warning(
                "start of the log not recorded: path=%s error=%s", self.log, error, extra={"log": str(self.log)}
            )
            return False
        return True

    def _resume(self, segment: Segment, found: Survey) -> bool:
        if segment.header_damaged or segment.remote is not None or not found.whole:
            # A damaged segment is never written to: the next record begins a new one. Until then the old watermark is
            # kept, because it records what was confirmed and is now missing.
            return False
        index = segment.index
        is_new = index.header is None
        if is_new:
            index = SparseIndex(SegmentHeader(segment.segment_id, self.log_id, segment.base, segment.created))
        segment.index = index
        self._index_offset = HEADER_SIZE + len(index) * ENTRY_SIZE
        self._writing = self._was_cut = True  # perhaps: the process that closed it may have failed to sync the cut
        last = index.last()
        self._entry_sequence = last.sequence if last else segment.base
        for entry in found.checkpoints:
            if entry.sequence - self._entry_sequence >= self.settings.index_interval or entry == found.end:
                self._add_entry(entry)
        if is_new or self._entries:  # otherwise there is nothing to write yet, and no file is opened
            self._reopen_files()
            assert self._index_file is not None
            if is_new:
                write_all(self._index_file, index.content()[:HEADER_SIZE], 0)
            self._write_entries()
        return True

    def _is_full(self, sealed: EncodedBlock) -> bool:
        if not self._writing or self.offset <= HEADER_SIZE:
            return False
        roll = self.settings.roll
        segment = self.segments[-1]
        return (
            (roll.bytes is not None and self.offset + sealed.length + -sealed.length % ALIGN > roll.bytes)
            or (roll.records is not None and sealed.sequence + sealed.records - segment.base > roll.records)
            or (roll.interval_ns is not None and sealed.timestamp - segment.created >= roll.interval_ns)
        )

    def begin_segment(self, base: int) -> None:
        """Create the next segment and its index.

        The header and the name in its folder are durable before any record in the file can be confirmed.
        """
        # Never before the last record: readers skip segments by the creation time of the next one.
        now = max(self.clock.time_ns(), self.last_timestamp)
        name = self._next_place(now)
        header = SegmentHeader(int.from_bytes(self.files.random_bytes(8), "little"), self.log_id, base, now)
        path, index_path = name.data_path(self.log), name.index_path(self.log)
        self.files.open_limit.admit(id(self), self._close_request)
        file = self._create(path, pack_segment_header(header))
        index_file: File | None = None
        try:
            index_file = self._create(index_path, pack_index_header(header), sync=False)
            self.files.sync_dir(path.parent)
        except OSError:
            file.close()
            self.files.remove(path)
            if index_file is not None:
                index_file.close()
                self.files.remove(index_path)
            raise
        segment = Segment(self.files, self.log, name, header, HEADER_SIZE)
        segment.index = SparseIndex(header)
        segment.extent = (HEADER_SIZE, base)
        segments = (*self.segments, segment)
        self._index_offset = self.offset = self.durable_offset = HEADER_SIZE
        self._was_cut = False
        self._preallocation.forget()
        self._entry_sequence = base
        self._file, self._index_file, self.segments = file, index_file, segments
        self._writing = self._changed = True
        self._publish()

    def begin_next_segment(self) -> None:
        """Begin a new segment, unless the last one is empty or there is none."""
        if self.segments and self.end > self.segments[-1].base:
            self.seal_segment()
            self.begin_segment(self.end)

    def place(self, part: Path, blocks: list[BlockHeader], now: int) -> None:
        """Make a finished part the next segment: its headers are rewritten, its records are not copied.

        Until the part is renamed the log is unchanged, and the call may be repeated. Durable when this returns.
        """
        self.seal_segment()
        created = max(now, self.last_timestamp)
        header = SegmentHeader(blocks[0].segment_id, self.log_id, self.end, created)
        index = SparseIndex(header)
        sequence = self.end
        with contextlib.closing(self.files.open(part, "w")) as file:
            write_all(file, pack_segment_header(header), 0)
            for block in blocks:
                fresh = block.adopted(sequence, created)
                write_all(file, pack_block_header(fresh), block.offset)
                sequence = fresh.end
                index.add(Checkpoint(sequence, fresh.next_offset, created))
            file.sync()
        size = blocks[-1].next_offset
        index.seal(Checkpoint(sequence, size, created))
        name = self._next_place(created)
        self.files.replace(part, name.data_path(self.log))
        replace_file(self.files, name.index_path(self.log), index.content())  # syncs the folder too
        segment = Segment(self.files, self.log, name, header, size)
        segment.index = index
        segment.extent = (size, sequence)
        self.end = self.durable_end = sequence
        self.offset = self.durable_offset = size
        self.last_timestamp = created
        self.segments = (*self.segments, segment)
        self._publish()

    def _next_place(self, now: int) -> SegmentName:
        """Return the next segment's name; create its folders, and remove an index that was left under that name."""
        name = next_name(self.segments[-1].name if self.segments else None, now)
        folder = name.folder(self.log)
        if not self.segments or self.segments[-1].path.parent != folder:  # else the folder is durable already
            there = [one for one in (folder.parent.parent, folder.parent, folder) if self.files.exists(one)]
            self.files.make_dirs(folder)
            for one in there:  # an earlier attempt may have made them, and stopped before they were durable
                self.files.sync_dir(one.parent)
        index_path = name.index_path(self.log)
        if self.files.exists(index_path):  # an index without its segment would be used for the new one
            self.files.remove(index_path)
        return name

    def _create(self, path: Path, content: bytes, *, sync: bool = True) -> File:
        if self.files.exists(path):  # left by an attempt that ran out of space
            self.files.remove(path)
        file = self.files.open(path, "x")
        try:
            write_all(file, content, 0)
            if sync:
                file.sync()
        except OSError:
            file.close()
            self.files.remove(path)
            raise
        return file

    def _sync_file(self, file: File) -> None:
        with self._disk.lock:
            self._disk.sync(file)
        self._check_disk()

    def _check_disk(self) -> None:
        if self._disk.noted is not None and (error := self._disk.failure()) is not None:
            raise self.stopped or self.stop(f"fdatasync failed: {error.strerror or error}") from error

    def _undo_write(self) -> None:
        assert self._file is not None
        self._preallocation.forget()
        self._was_cut = True
        try:
            self._file.truncate(self.offset)
        except OSError as error:
            if not is_reported(error):  # raised by a signal handler: the next block is written at the same offset
                raise
            raise self.stop(f"a failed write could not be undone: {error.strerror or error}") from error

    def recover(self) -> None:
        """Resume after a disk failure, once the end of the active segment is known to be on disk.

        Blocks that were written and not synced are written again. With `durable_only` they were never confirmed, and
        are cut off instead. Raises OSError or `Corrupt` if that is not possible: the writer stays stopped.
        """
        assert self.stopped is not None and self.recoverable
        self._close_files()
        offset, end = (self.durable_offset, self.durable_end) if self.settings.durable_only else (self.offset, self.end)
        segment = self.active
        if segment is not None:
            rewrite_end(self.files, segment.path, segment.segment_id, self.durable_offset, offset)
            segment.index.cut(offset)
            self._entries = [entry for entry in self._entries if entry.offset <= offset]
            last = segment.index.last()
            self._entry_sequence = last.sequence if last else segment.base
        with self._disk.lock:
            self._disk.trust()
        self._reached = None
        self._was_cut = False
        self._preallocation.forget()
        self.durable_offset, self.durable_end = self.offset, self.end = offset, end
        self.stopped = None
        self._publish()

    def stop(self, reason: str, *, recoverable: bool = True) -> WriterStopped:
        """Stop writing, and return the exception to raise: it is unknown what is on disk behind the durable offset.

        Unless `recoverable`, only opening the log again helps.
        """
        self._note_reached()
        self.recoverable = recoverable
        path = self.segments[-1].path if self.segments else self.log
        self.stopped = WriterStopped(
            f"{reason}: {str(path)!r} accepts no more writes. Confirmed records are safe. "
            + (
                "Check the disk: the log resumes automatically when its end can be written again"
                if recoverable
                else "Check the disk, then close the store and open it again"
            )
        )
        logger.error("log writer stopped: segment=%s reason=%s", path, reason, extra={"segment": str(path)})
        return self.stopped

    def _add_entry(self, entry: Checkpoint | None = None) -> None:
        entry = entry or Checkpoint(self.end, self.offset, self.last_timestamp)
        self.segments[-1].index.add(entry)
        self._entries.append(entry)
        self._entry_sequence = entry.sequence

    def _write_entries(self) -> None:
        if not self._entries or self._index_file is None:
            return
        entries = [entry for entry in self._entries if entry.offset <= self.durable_offset]
        data = b"".join(map(pack_entry, entries))
        try:
            write_all(self._index_file, data, self._index_offset)
        except OSError as error:  # derived: tried again at the next sync, at the same offset
            if not is_reported(error):
                raise
            path = str(self.segments[-1].path)
            logger.warning(
                "index entry not written, will retry: segment=%s error=%s", path, error, extra={"segment": path}
            )
            return
        self._index_offset += len(data)
        del self._entries[: len(entries)]

    def _publish(self, *, tell: bool = True) -> None:
        """Set how far readers of this process may read; with `tell`, also those of other processes."""
        if not self.segments:
            return
        segment = self.segments[-1]
        limit, end = segment.extent = (
            (self.durable_offset, self.durable_end) if self.settings.durable_only else (self.offset, self.end)
        )
        if not tell:
            return
        mark = Watermark(segment.segment_id, end, limit, self.durable_end, self.durable_offset, self.last_timestamp)
        try:
            self._watermark.write(mark)
        except OSError as error:  # other processes see the new records later, with the next watermark
            if not is_reported(error):
                raise
            logger.warning("watermark not written: path=%s error=%s", self.log, error, extra={"log": str(self.log)})
        if self._file is None:
            self._watermark.rest()
        self._published = (segment, self.durable_offset, self.durable_end)

    def _close_files(self) -> None:
        with self._disk.lock:
            file, index_file, self._file, self._index_file = self._file, self._index_file, None, None
            if file is not None:
                file.close()
            if index_file is not None:
                index_file.close()
        self._watermark.rest()
        self.files.open_limit.leave(id(self))
