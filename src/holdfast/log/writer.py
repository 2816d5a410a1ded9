"""How does a block get into a segment? Rolls, writes, syncs, indexes and tells others how far they may read."""

import contextlib
import logging
from dataclasses import dataclass
from pathlib import Path

from holdfast.base.clock import Clock
from holdfast.base.errors import WriterStopped
from holdfast.base.files import File, Files, replace_file, write_all, write_all_parts
from holdfast.log.catalog import SegmentName, next_name
from holdfast.log.compression import Codec
from holdfast.log.draft import Draft, Sealed, frame, seal
from holdfast.log.index import ENTRY_SIZE, Checkpoint, SparseIndex, pack_entry, pack_index_header
from holdfast.log.layout import (
    HEADER_SIZE,
    BlockHeader,
    SegmentHeader,
    aligned,
    pack_block_header,
    pack_segment_header,
)
from holdfast.log.policy import Roll
from holdfast.log.recovery import Survey
from holdfast.log.segment import Segment
from holdfast.log.watermark import Watermark, WatermarkFile

__all__ = ["SegmentWriter", "WriterSettings"]

logger = logging.getLogger("holdfast.log")


@dataclass(frozen=True, slots=True)
class WriterSettings:
    """What decides how blocks are put into segments."""

    roll: Roll
    index_interval: int
    codec: Codec | None
    durable_only: bool
    """Readers see only what is synced; otherwise what is written."""


class SegmentWriter:
    """The writing end of a log.

    Files: the last segment and its index, and the log's `watermark`. Threads: one at a time, under the log's I/O lock.
    Invariant: `durable_offset <= offset <= file size`, and an index entry in the file is never beyond `durable_offset`.
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
    ) -> None:
        self.files = files
        self.clock = clock
        self.log = log
        self.log_id = log_id
        self.settings = settings
        self.segments: tuple[Segment, ...] = tuple(segments)
        """Replaced whole when a segment comes or goes, so that readers may keep the tuple they have."""
        self.stopped: WriterStopped | None = None
        self._file: File | None = None
        self._index_file: File | None = None
        self._index_offset = 0
        self._entries: list[Checkpoint] = []
        self._entry_sequence = 0
        self.end = found.end.sequence if found else 0
        self.offset = segments[-1].limit if segments else 0
        self.last_timestamp = found.end.timestamp if found else 0
        self.durable_offset = self.offset
        self.durable_end = self.end
        self._watermark = WatermarkFile(files, log)
        if found is not None and segments and self._resume(segments[-1], found):
            self._publish()

    @property
    def active(self) -> Segment | None:
        """The segment being written; None before the first record and just after a roll."""
        return self.segments[-1] if self._file is not None else None

    def write(self, draft: Draft) -> None:
        """Put the draft's records behind the last ones. On OSError nothing of it stays, and it may be tried again."""
        self.put(seal(draft, self.last_timestamp, self.settings.codec))

    def put(self, sealed: Sealed) -> None:
        """Put a block behind the last one."""
        assert sealed.sequence == self.end, f"a block of {sealed.sequence} cannot follow {self.end}"
        if self._is_full(sealed):
            self.seal_segment()
        if self._file is None:
            self.begin_segment(sealed.sequence)
        assert self._file is not None
        parts = frame(sealed, self.offset, self.durable_offset, self.segments[-1].segment_id)
        try:
            size = write_all_parts(self._file, parts, self.offset)
        except OSError:
            self._undo_write()
            raise
        # Assignments only, so that an interrupt finds the block either wholly counted or to be written again in place.
        end, offset = self.end + sealed.records, self.offset + size
        self.end, self.offset, self.last_timestamp = end, offset, sealed.last_timestamp
        if self.end - self._entry_sequence >= self.settings.index_interval:
            self._add_entry()
        if not self.settings.durable_only:
            self._publish()

    def sync(self) -> None:
        """Make all that was written durable. A failure is final: the pages may be lost and must not be retried."""
        if self._file is None:
            return
        if self.durable_offset == self.offset:
            if self.segments[-1].extent != (self.offset, self.end):  # an interrupt came before it was told
                self._publish()
            return
        try:
            self._file.sync()
        except OSError as error:
            raise self.stop(f"fdatasync failed: {error.strerror or error}") from error
        self.durable_offset = self.offset
        self.durable_end = self.end
        self._write_entries()
        self._publish()

    def seal_segment(self) -> None:
        """Finish the active segment; from here on it never changes."""
        if self._file is None:
            return
        self.sync()
        self._write_entries()
        segment, index_file = self.segments[-1], self._index_file
        try:
            last = segment.index.last()
            done = segment.index.sealed and last is not None and last.sequence == self.end
            if index_file is not None and not self._entries and self.end > segment.base and not done:
                # The last entry vouches for the others, so they are on disk before it is written.
                index_file.sync()
                final = Checkpoint(self.end, self.offset, self.last_timestamp)
                position = segment.index.seal(final)
                write_all(index_file, pack_entry(final, sealed=True), HEADER_SIZE + position * ENTRY_SIZE)
                index_file.sync()
        except OSError as error:  # derived: without it the segment is only slower to open
            logger.warning(
                "the index of %s was not finished: %s", segment.path, error, extra={"segment": str(segment.path)}
            )
        self._publish()
        self._close_files()

    def close(self) -> None:
        """Make everything durable and let the files go."""
        if self.stopped is None:
            self.seal_segment()
        self._close_files()
        self._watermark.close()

    def drop(self, count: int) -> None:
        """Forget and delete the oldest `count` segments, which must be sealed ones."""
        for segment in self.segments[:count]:
            assert segment is not self.active
            folder = segment.path.parent
            for name in self.files.list(folder):
                if name.startswith(segment.name.stem + "."):
                    self.files.remove(folder / name)
            self.segments = self.segments[1:]
            segment.let_go()
            self.files.sync_dir(folder)
            while folder != self.log and not self.files.list(folder):
                self.files.remove_dir(folder)
                folder = folder.parent
                self.files.sync_dir(folder)

    def _resume(self, segment: Segment, found: Survey) -> bool:
        if segment.header_damaged or not found.whole:
            # Evidence is never written upon: the next record begins a new segment. Until then the old watermark stays,
            # because it knows what was confirmed and is now missing.
            return False
        index = segment.index
        header = SegmentHeader(segment.segment_id, self.log_id, segment.base, segment.created)
        if index.header is None:
            index = SparseIndex(header)
        path = segment.name.index_path(self.log)
        self._file = self.files.open(segment.path, "w")
        self._index_file = self.files.open(path, "w" if self.files.exists(path) else "x")
        self._index_offset = HEADER_SIZE + len(index) * ENTRY_SIZE
        if len(index) == 0:
            write_all(self._index_file, pack_index_header(header), 0)
        if self._index_file.size() > self._index_offset:
            self._index_file.truncate(self._index_offset)
        segment.index = index
        last = index.last()
        self._entry_sequence = last.sequence if last else segment.base
        for entry in found.checkpoints:
            if entry.sequence - self._entry_sequence >= self.settings.index_interval or entry == found.end:
                self._add_entry(entry)
        self._write_entries()
        return True

    def _is_full(self, sealed: Sealed) -> bool:
        if self._file is None or self.offset <= HEADER_SIZE:
            return False
        roll = self.settings.roll
        segment = self.segments[-1]
        return (
            (roll.bytes is not None and self.offset + aligned(sealed.length) > roll.bytes)
            or (roll.records is not None and sealed.sequence + sealed.records - segment.base > roll.records)
            or (roll.interval_ns is not None and sealed.timestamp - segment.created >= roll.interval_ns)
        )

    def begin_segment(self, base: int) -> None:
        """Make the next segment and its index.

        The header is durable and the name is in its folder before any record in the file can be confirmed.
        """
        # Never before the last record: readers skip segments by the time at which the next one was created.
        now = max(self.clock.time_ns(), self.last_timestamp)
        name = self._next_place(now)
        header = SegmentHeader(int.from_bytes(self.files.random_bytes(8), "little"), self.log_id, base, now)
        path, index_path = name.data_path(self.log), name.index_path(self.log)
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
        self._entry_sequence = base
        self._file, self._index_file, self.segments = file, index_file, segments
        self._publish()

    def place(self, part: Path, blocks: list[BlockHeader], now: int) -> None:
        """Make a finished part the next segment: its headers are written anew, its records stay where they are.

        Until the last step nothing of the log has changed, and it may be done again.
        """
        self.seal_segment()
        created = max(now, self.last_timestamp)
        header = SegmentHeader(blocks[0].segment_id, self.log_id, self.end, created)
        index = SparseIndex(header)
        sequence = self.end
        with contextlib.closing(self.files.open(part, "w")) as file:
            write_all(file, pack_segment_header(header), 0)
            for block in blocks:
                fresh = block._replace(sequence=sequence, timestamp=created, durable=block.offset)
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
        """The next segment's name, with its folders made and nothing in its way."""
        name = next_name(self.segments[-1].name if self.segments else None, now)
        folder = name.folder(self.log)
        self.files.make_dirs(folder)
        for above in (folder.parent, folder.parent.parent, self.log):  # also those an earlier try made
            self.files.sync_dir(above)
        index_path = name.index_path(self.log)
        if self.files.exists(index_path):  # an index without its segment would speak for the one that is made now
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

    def _undo_write(self) -> None:
        assert self._file is not None
        try:
            self._file.truncate(self.offset)
        except OSError as error:
            raise self.stop(f"a failed write could not be undone: {error.strerror or error}") from error

    def stop(self, reason: str) -> WriterStopped:
        """Write no more: what is on disk can no longer be known."""
        path = self.segments[-1].path if self.segments else self.log
        self.stopped = WriterStopped(
            f"{reason}, so {str(path)!r} takes no more writes. Check the disk, then close the store and open it again: "
            "all that was confirmed is safe"
        )
        logger.error("the writer stopped: %s", reason, extra={"segment": str(path)})
        return self.stopped

    def _add_entry(self, entry: Checkpoint | None = None) -> None:
        entry = entry or Checkpoint(self.end, self.offset, self.last_timestamp)
        self.segments[-1].index.add(entry)
        self._entries.append(entry)
        self._entry_sequence = entry.sequence

    def _write_entries(self) -> None:
        entries = [entry for entry in self._entries if entry.offset <= self.durable_offset]
        if not entries or self._index_file is None:
            return
        data = b"".join(map(pack_entry, entries))
        try:
            write_all(self._index_file, data, self._index_offset)
        except OSError as error:  # derived: tried again at the next sync, at the same offset
            logger.warning("an index entry was not written: %s", error, extra={"segment": str(self.segments[-1].path)})
            return
        self._index_offset += len(data)
        del self._entries[: len(entries)]

    def _publish(self) -> None:
        if not self.segments:
            return
        segment = self.segments[-1]
        limit, end = segment.extent = (
            (self.durable_offset, self.durable_end) if self.settings.durable_only else (self.offset, self.end)
        )
        mark = Watermark(segment.segment_id, end, limit, self.durable_end, self.durable_offset, self.last_timestamp)
        try:
            self._watermark.write(mark)
        except OSError as error:  # other processes see the new records later, at the next one
            logger.warning("the watermark was not written: %s", error, extra={"log": str(self.log)})

    def _close_files(self) -> None:
        files, self._file, self._index_file, self._entries = (self._file, self._index_file), None, None, []
        for file in files:
            if file is not None:
                file.close()
