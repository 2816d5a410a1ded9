"""Retention: sealed segments are dropped, oldest first; never those that a named reader has yet to read."""

import contextlib
import logging
from collections.abc import Callable, Sequence
from itertools import pairwise

from holdfast.base.clock import duration_ns
from holdfast.base.errors import DiskFull, StorageError
from holdfast.log.appender import Appender
from holdfast.log.consumer_offsets import OffsetStore
from holdfast.log.policy import Retention
from holdfast.log.segment import Segment
from holdfast.log.writer import SegmentWriter

__all__ = ["Freed", "LogRetention", "droppable"]

logger = logging.getLogger("holdfast.log")

_PINNED_PAUSE_S = 0.01
_CENTURY_S = 100 * 365 * 86_400
_END_OF_TIME = 1 << 63


class Freed(int):
    """The number of segments that were dropped, with their size in bytes."""

    bytes: int

    def __new__(cls, segments: int = 0, size: int = 0) -> "Freed":
        """Make a result of so many segments and bytes."""
        freed = super().__new__(cls, segments)
        freed.bytes = size
        return freed

    @property
    def segments(self) -> int:
        """The number of segments."""
        return int(self)


def droppable(
    segments: Sequence[Segment], policy: Retention, now: int, floor: int | None, past: int | None = None
) -> int:
    """Return how many of the oldest segments the policy allows to drop.

    The last segment is always kept, and so is any with a record at or above `floor`, the lowest position of the named
    readers (None: there are no named readers). Records below `past` are known to be older than `max_age`.
    """
    max_age = None if policy.max_age is None else duration_ns(policy.max_age, "max_age")
    kept_bytes = sum(segment.limit for segment in segments)
    kept = len(segments)
    for segment, following in pairwise(segments):
        if kept <= policy.min_segments or (floor is not None and following.base > floor):
            break
        # The next segment was created after the last record of this one.
        too_old = max_age is not None and (
            now - following.created > max_age or (past is not None and following.base <= past)
        )
        too_big = policy.max_bytes is not None and kept_bytes > policy.max_bytes
        too_many = policy.max_segments is not None and kept > policy.max_segments
        if not (too_old or too_big or too_many):
            break
        kept_bytes -= segment.limit
        kept -= 1
    return len(segments) - kept


class LogRetention:
    """Drops segments of a log that this process writes, with its files for itself (`Appender.exclusively`).

    Never past the position of a named reader, unless forced, and none while a backup has pinned the log. Threads: any.
    """

    def __init__(self, appender: Appender, positions: OffsetStore) -> None:
        self._appender = appender
        self._positions = positions
        self._pins: list[object] = []
        self.keep_from: int | None = None
        """The first record that is not in the store's replica yet: it is kept, except on a full disk. None without one.
        """

    # A pin is added and removed by one call of C code, and may be removed twice: so an interrupted backup leaves none.

    def pin(self, pin: object) -> None:
        """Drop nothing until this object is passed to `unpin`."""
        self._pins.append(pin)

    def unpin(self, pin: object) -> None:
        """Remove the pin of one backup, if it is there."""
        if pin in self._pins:
            self._pins.remove(pin)

    @property
    def pinned(self) -> bool:
        """Whether a backup needs the segments unchanged."""
        return bool(self._pins)

    def floor(self) -> int | None:
        """Return the first record that a named tailer or a queue has yet to read; None without named readers."""
        return min((kept.position for kept in self._positions.all()), default=None)

    def compact(self, policy: Retention | None, *, force: bool = False, dry_run: bool = False) -> Freed:
        """Apply this policy, or that of the log; return what was dropped, or would be."""
        self._appender.check_writable()
        if (policy := policy or self._appender.settings.retention) is None:
            return Freed()
        chosen = policy
        return self._appender.exclusively(lambda writer: self._drop_by(writer, chosen, force=force, dry_run=dry_run))

    def apply(self, writer: SegmentWriter) -> None:
        """Apply the policy of the log after a segment was added. Called while the caller has the files for itself."""
        if (policy := self._appender.settings.retention) is not None:
            try:
                self._drop_by(writer, policy)
            except StorageError as error:  # the record that made it roll is safe: its append must not fail
                name, fields = self._appender.name, self._appender.fields
                logger.warning("retention failed: log=%s error=%s", name, error, extra=fields)

    def retire(self) -> Freed:
        """Apply retention without traffic: as `compact`, and also to the active segment if all in it is too old.

        Does nothing without `max_age`. Called by the store's background thread.
        """
        policy = self._appender.settings.retention
        if policy is None or policy.max_age is None or not self._appender.is_accepting:
            return Freed()
        past = self._appender.clock.time_ns() - duration_ns(policy.max_age, "max_age")

        def drop(writer: SegmentWriter) -> Freed:
            if not self._appender.is_accepting:
                return Freed()
            rolled = len(writer.segments) >= policy.min_segments and self._roll_if(writer, past)
            return self._drop_by(writer, policy, past=writer.segments[-1].base if rolled else None)

        return self._appender.exclusively(drop)

    def drop_before(self, sequence: int) -> Freed:
        """Drop segments that hold only records before this one, and that no named tailer has yet to read."""
        self._appender.check_writable()
        policy = Retention(max_age=_CENTURY_S)
        return self._appender.exclusively(lambda writer: self._drop_by(writer, policy, past=sequence))

    def shed(self, asking: Appender | None, free_space: Callable[[], bool]) -> Freed:
        """Drop every segment that all named readers have read, also the one being written: for a full disk.

        A log without named readers keeps everything.

        `asking` is the appender that needs the space, whose files the calling thread uses. If it is that of another
        log, nothing is done while a thread uses the files of this one; without `asking` that thread is waited for.
        `free_space` is called if there is no space for the header of the next segment.
        """

        def drop(writer: SegmentWriter) -> Freed:
            if not self._appender.is_accepting or self.floor() is None:
                return Freed()
            with contextlib.suppress(StorageError):  # without space for another segment, the last one stays
                try:
                    self._roll_if(writer, _END_OF_TIME, with_pending=True)
                except DiskFull:
                    if free_space():
                        self._roll_if(writer, _END_OF_TIME, with_pending=True)
            past = writer.segments[-1].base if writer.segments else 0
            return self._drop_by(writer, Retention(max_age=_CENTURY_S), past=past, unshipped=True)

        return self._appender.if_idle(drop, asking=asking, wait=asking is None) or Freed()

    def give_up_unshipped(self, asking: Appender | None) -> Freed:
        """Apply the policy of the log, also to what is not in the replica yet: for a full disk.

        `asking` is as in `shed`.
        """
        policy = self._appender.settings.retention
        if policy is None or self.keep_from is None:
            return Freed()
        chosen = policy

        def drop(writer: SegmentWriter) -> Freed:
            return self._drop_by(writer, chosen, unshipped=True) if self._appender.is_accepting else Freed()

        return self._appender.if_idle(drop, asking=asking, wait=asking is None) or Freed()

    def clear(self, *, force: bool = False) -> int:
        """Drop every segment that all named readers have read (or, forced, all records); return how many segments.

        A segment with a record that is yet to be read is kept completely. Waits while a backup has pinned the log.
        """
        self._appender.check_writable()
        while self.pinned:
            self._appender.clock.sleep(_PINNED_PAUSE_S)

        def drop(writer: SegmentWriter) -> int:
            writer.begin_next_segment()
            floor = None if force else self.floor()
            count = 0
            for following in writer.segments[1:]:
                if floor is not None and following.base > floor:
                    break
                count += 1
            self._drop(writer, count)
            return count

        with self._appender.translate_errors("clearing"):
            return self._appender.exclusively(drop, drained=True)

    def _roll_if(self, writer: SegmentWriter, past: int, *, with_pending: bool = False) -> bool:
        """Begin a new segment if all appended records are from before this moment, and no reader needs them.

        With `with_pending` only written records count: the pending blocks are written to the new segment.
        """
        if self.pinned or not (with_pending or not self._appender.has_unwritten):
            return False
        if not writer.segments or writer.end == writer.segments[-1].base or writer.last_timestamp >= past:
            return False
        with self._appender.translate_errors("rolling"):
            floor = self.floor()
            if floor is not None and floor < writer.end:
                return False
            writer.begin_next_segment()
        return True

    def _drop_by(
        self,
        writer: SegmentWriter,
        policy: Retention,
        *,
        force: bool = False,
        dry_run: bool = False,
        past: int | None = None,
        unshipped: bool = False,
    ) -> Freed:
        with self._appender.translate_errors("dropping old segments of"):
            segments, floor = writer.segments, None if force else self.floor()
            keep_from = self.keep_from  # once: the replica's thread changes it
            if keep_from is not None and not (force or unshipped):
                floor = keep_from if floor is None else min(floor, keep_from)
            count = droppable(segments, policy, self._appender.clock.time_ns(), floor, past)
            freed = Freed(count, sum(segment.limit for segment in segments[:count]))
            if dry_run:
                return freed
            if self.pinned:
                return Freed()  # a backup needs them: they are dropped the next time
            self._drop(writer, count)
        if count:
            logger.info(
                "dropped segments: log=%s segments=%d bytes=%d",
                self._appender.name,
                count,
                freed.bytes,
                extra={"log": self._appender.name, "segments": count, "bytes": freed.bytes},
            )
        return freed

    def _drop(self, writer: SegmentWriter, count: int) -> None:
        writer.drop(count)
        for view in self._appender.recent.views if count else ():
            view.release_below(writer.segments[0].base if writer.segments else 0)
