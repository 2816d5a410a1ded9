"""The segments of a log that another process may be writing: bounded by its watermark, without a lock on the store."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from holdfast.base.files import Files, translate_os_errors
from holdfast.log.layout import HEADER_SIZE
from holdfast.log.lazy_segments import OpenedSegments
from holdfast.log.recovery import survey
from holdfast.log.remote_segments import ListsRemote, PartSource, RemoteLog, read_remote
from holdfast.log.segment import Report, Segment
from holdfast.log.segment_files import list_segments
from holdfast.log.watermark import Watermark, read_watermark

__all__ = ["ReadOnlySegments"]

_TRIES = 20
_PAUSE_S = 0.002


class ReadOnlySegments:
    """The segments of a log that another process may be writing. Changes nothing on disk.

    Threads: any may call `refresh`. `_guard` protects the segments and the watermark.
    """

    def __init__(self, files: Files, log: Path, lock: Path, report: Report, parts: PartSource | None = None) -> None:
        """Find the segments; those that are only in the bucket are read with `parts`."""
        self._parts = parts
        self._segments = OpenedSegments(files, log, [], report)
        self._files = files
        self._log = log
        self._lock = lock
        self._report = report
        self._mark: Watermark | None = None
        self._remote: RemoteLog | None = None
        """The remote segments that were found last."""
        self._guard = threading.Lock()
        self._load()

    @property
    def first(self) -> Segment | None:
        """The oldest segment; None if there is none."""
        return self._segments.first

    @property
    def last(self) -> Segment | None:
        """The newest segment; None if there is none."""
        return self._segments.last

    @property
    def end(self) -> int:
        """The end of the records that the writer has published."""
        last = self._segments.last
        return 0 if last is None else last.end or 0

    def all(self) -> tuple[Segment, ...]:
        """Open and return all segments."""
        return self._segments.all()

    def between(self, start: int, stop: int) -> tuple[Segment, ...]:
        """Return the segments that hold records from `start` up to `stop`, as far as they are kept."""
        return self._segments.between(start, stop)

    def since(self, timestamp: int) -> Iterator[Segment]:
        """Yield the segments, beginning with the one that holds the first record at or after `timestamp`."""
        return self._segments.since(timestamp)

    def opened(self) -> list[Segment]:
        """Return the segments that have been opened."""
        return self._segments.opened()

    def bounded(self, segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
        """Return these segments without the records that may not survive a power cut."""
        if not segments or segments[-1] is not self._segments.last:
            return segments
        return (*segments[:-1], segments[-1].bounded(*self._durable()))

    def refresh(self) -> None:
        """Read the watermark that the writer has published since the last call."""
        with translate_os_errors("reading the log in", self._log), self._guard:
            if isinstance(self._files, ListsRemote):  # all segments are in a bucket, and none is mapped
                if self._files.remote_log(self._log) is not self._remote:
                    self._load()
                return
            mark = read_watermark(self._files, self._log)
            if mark is None or mark == self._mark:
                return
            first, last = self._segments.first, self._segments.last
            if first and last and last.segment_id == mark.segment_id and self._is_there(first):
                self._mark = mark
                last.extent = (mark.visible_offset, mark.visible_end)
            else:
                self._load()

    def _is_there(self, segment: Segment) -> bool:
        return segment.remote is not None or self._files.exists(segment.path)

    def _durable(self) -> tuple[int, int]:
        """Return the offset in the last segment, and the sequence, up to which all survives a power cut.

        Never beyond the readable records.
        """
        with self._guard:
            last, mark = self._segments.last, self._mark
            if last is None:
                return 0, 0
            if mark is not None and mark.segment_id == last.segment_id:
                found = mark.durable_offset, mark.durable_end
            else:  # an index entry is written after the sync of the records before it
                entry = last.index.last()
                found = (entry.offset, entry.sequence) if entry is not None else (HEADER_SIZE, last.base)
            limit, end = last.extent
            return found if end is None or found[1] <= end else (limit, end)

    def _load(self) -> None:
        # The writer may roll and drop segments while they are being listed: then they are listed again.
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_PAUSE_S)
            with contextlib.suppress(FileNotFoundError):
                mark = read_watermark(self._files, self._log)
                names = list_segments(self._files, self._log)
                remote = read_remote(self._files, self._log)  # after the names: the writer deletes files last
                segments = OpenedSegments(self._files, self._log, names, self._report, remote, self._parts)
                if self._bound(segments, mark, last_try=attempt == _TRIES - 1):
                    replaced, self._segments, self._mark = self._segments, segments, mark
                    self._remote = remote
                    for segment in replaced.opened():
                        segment.unmap()
                    return

    def _bound(self, segments: OpenedSegments, mark: Watermark | None, *, last_try: bool) -> bool:
        """Find how far the last segment may be read; return False if the listing does not match the watermark."""
        last = segments.last
        if last is None or last.remote is not None:  # the files of the last one are lost
            return True
        if mark is None or not self._files.is_locked(self._lock):
            self._survey(last, mark)
            return True
        known = next((segment for segment in segments.newest_first() if segment.segment_id == mark.segment_id), None)
        if known is not None and mark.visible_offset <= known.limit:
            # Behind the segment that the watermark names there may be one that is being created: ignore it for now.
            segments.cut_behind(known)
            known.extent = (mark.visible_offset, mark.visible_end)
            return True
        if known is last:
            # The watermark is from before a power cut, and the process that has the lock has not opened this log yet.
            self._survey(last, mark)
            return True
        if last_try:
            durable = last.index.last()
            last.extent = (durable.offset, durable.sequence) if durable else (HEADER_SIZE, last.base)
        return last_try

    def _survey(self, segment: Segment, mark: Watermark | None) -> None:
        # No process writes: the log ends where recovery would end it. Read, not mapped: a writer that opens now may cut
        # the file, and an access to mapped memory behind the cut kills the process.
        def read(size: int) -> memoryview:
            with contextlib.closing(self._files.open(segment.path, "r")) as file:
                data = file.read(size, 0)
            return memoryview(data + bytes(size - len(data)))

        found = survey(segment, mark, read)
        segment.extent = (min(found.end.offset, found.size), found.end.sequence)
