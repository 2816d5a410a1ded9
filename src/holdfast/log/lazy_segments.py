"""The segments of a read-only log, each opened when it is first needed.

A log of thousands of segments is opened by reading the headers of the first and the last one. To find a sequence or a
time, a binary search reads a few more.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

from holdfast.base.files import Files
from holdfast.log.record import Damage
from holdfast.log.remote_segments import PartSource, RemoteLog, read_remote
from holdfast.log.segment import Report, Segment, open_remote, open_segment
from holdfast.log.segment_files import SegmentName

__all__ = ["OpenedSegments"]


class OpenedSegments:
    """Segments by name, oldest first. Files that were dropped by the writer or cannot be identified are left out.

    Damage before the last segment is reported when it is found; behind the last one there may be a file that is just
    being created. The lock protects `_known`: each segment is opened once, because its extent is kept in the object.
    Only the owner of this object moves the extent of the last segment.
    """

    def __init__(
        self,
        files: Files,
        log: Path,
        names: list[SegmentName],
        report: Report,
        remote: RemoteLog | None = None,
        parts: PartSource | None = None,
    ) -> None:
        """Open segments of these names, and those of `remote`, which are read with `parts` if they are not on disk."""
        self._remote = {} if remote is None else {one.name: one for one in remote.entries}
        self._of_remote = remote or RemoteLog()
        self._parts = parts
        self._files = files
        self._log = log
        self._report = report
        self._lock = threading.Lock()
        self._known: dict[SegmentName, Segment | None] = {}
        self._names = sorted({*names, *self._remote}) if self._remote else names
        self._on_disk = set(names) if self._remote else None
        """The names of those on the disk; None: all."""
        while self._names and self._at(len(self._names) - 1, last=True) is None:
            self._names = self._names[:-1]
        self.first = next(iter(self._from(0)), None)
        """The oldest segment; None if there is none."""

    @property
    def last(self) -> Segment | None:
        """The newest segment."""
        return self._known[self._names[-1]] if self._names else None

    def newest_first(self) -> Iterator[Segment]:
        """Yield the segments, newest first."""
        for position in range(len(self._names) - 1, -1, -1):
            if (segment := self._at(position)) is not None:
                yield segment

    def cut_behind(self, segment: Segment) -> None:
        """Make this the last segment."""
        self._names = self._names[: self._names.index(segment.name) + 1]

    def opened(self) -> list[Segment]:
        """Return the segments that have been opened."""
        with self._lock:
            return [segment for segment in self._known.values() if segment is not None]

    def all(self) -> tuple[Segment, ...]:
        """Open and return all segments."""
        return self._with_ends(list(self._from(0)))

    def between(self, start: int, stop: int) -> tuple[Segment, ...]:
        """Return the segments that hold the records from `start` up to `stop`, as far as they are kept."""
        found: list[Segment] = []
        for segment in self._from(self._search(lambda one: one.base <= start)):
            found.append(segment)
            if segment.base >= stop and len(found) > 1:  # the end of the one before it
                return self._with_ends(found)[:-1]
        return self._with_ends(found)

    def since(self, timestamp: int) -> Iterator[Segment]:
        """Yield the segments, beginning with the one that holds the first record at or after `timestamp`."""
        # A segment is never created before the last record of the one before it, by the timestamps of the log.
        ahead = self._from(self._search(lambda one: one.created < timestamp))
        segment = next(ahead, None)
        while segment is not None:
            following = next(ahead, None)
            yield self._with_ends([segment] if following is None else [segment, following])[0]
            segment = following

    def _search(self, is_before: Callable[[Segment], bool]) -> int:
        """Return the position of the last segment for which `is_before`, which is monotonic, is true; else 0."""
        low, high = 0, len(self._names)
        while high - low > 1:
            middle = (low + high) // 2
            at, segment = middle, self._at(middle)
            while segment is None and at + 1 < high:
                at += 1
                segment = self._at(at)
            if segment is not None and is_before(segment):
                low = at
            else:
                high = middle
        return low

    def _from(self, position: int) -> Iterator[Segment]:
        for at in range(position, len(self._names)):
            if (segment := self._at(at)) is not None:
                yield segment

    def _with_ends(self, segments: list[Segment]) -> tuple[Segment, ...]:
        """Set the end of each of these adjacent segments, except the last one, and return them."""
        for segment, following in pairwise(segments):
            segment.extent = (segment.limit, following.base)
        return tuple(segments)

    def _at(self, position: int, *, last: bool = False) -> Segment | None:
        name = self._names[position]
        with self._lock:
            if name in self._known:
                return self._known[name]
            segment = self._open(name, last=last)
            if segment is not None:
                segment.parts = self._parts
            self._known[name] = segment
            return segment

    def _open(self, name: SegmentName, *, last: bool) -> Segment | None:
        entry = self._remote.get(name)
        if self._on_disk is None or name in self._on_disk:
            with contextlib.suppress(FileNotFoundError):
                segment = open_segment(self._files, self._log, name, self._report)
                if segment is None and not last:
                    path = str(name.data_path(self._log))
                    self._report(Damage(path, 0, 0, "nothing in this file can be identified"))
                return segment
            # Dropped by the writer, or moved to the bucket since the names were listed.
            if entry is None and self._parts is not None:
                self._of_remote = read_remote(self._files, self._log)
                entry = next((one for one in self._of_remote.entries if one.name == name), None)
        if entry is None:
            return None
        return open_remote(self._files, self._log, self._of_remote.source_of(entry, self._log, self._parts))
