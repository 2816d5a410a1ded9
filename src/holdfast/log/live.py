"""What does a reader in another process see? The log as its writer's watermark bounds it, without any lock."""

from pathlib import Path

from holdfast.base.files import Files
from holdfast.log.recovery import load_segments, survey
from holdfast.log.segment import Report, Segment
from holdfast.log.watermark import Watermark, read_watermark

__all__ = ["LiveView"]


class LiveView:
    """The segments of a log that someone else may be writing. Changes nothing on disk."""

    def __init__(self, files: Files, log: Path, lock: Path, report: Report) -> None:
        self.segments: tuple[Segment, ...] = ()
        self._files = files
        self._log = log
        self._lock = lock
        self._report = report
        self._mark: Watermark | None = None
        self._load(read_watermark(files, log))

    def refresh(self) -> None:
        """Take in what the writer has published since."""
        mark = read_watermark(self._files, self._log)
        if mark is None or mark == self._mark:
            return
        if self.segments and self.segments[-1].segment_id == mark.segment_id:
            self._mark = mark
            self.segments[-1].extent = (mark.visible_offset, mark.visible_end)
        else:
            self._load(mark)

    def _load(self, mark: Watermark | None) -> None:
        segments = load_segments(self._files, self._log, self._report)
        known = next(
            (at for at, segment in enumerate(segments) if mark and segment.segment_id == mark.segment_id), None
        )
        if mark and known is not None and self._files.is_locked(self._lock):
            # Behind the segment that the watermark names there may be one that is being made: not yet ours to see.
            segments = segments[: known + 1]
            segments[-1].extent = (min(segments[-1].limit, mark.visible_offset), mark.visible_end)
        elif segments:
            # Nobody writes: what recovery would keep is what there is.
            found = survey(segments[-1], mark)
            segments[-1].let_go()  # the mapping reaches into what a writer may cut
            segments[-1].extent = (min(found.end.offset, found.size), found.end.sequence)
        self.segments = tuple(segments)
        self._mark = mark
