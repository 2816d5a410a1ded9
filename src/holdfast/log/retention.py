"""Retention: which sealed segments may be dropped, oldest first; never those that a named reader has yet to read."""

from collections.abc import Sequence
from itertools import pairwise

from holdfast.base.clock import duration_ns
from holdfast.log.policy import Retention
from holdfast.log.segment import Segment

__all__ = ["Freed", "droppable"]


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
