"""When does a queue not judge? While someone puts messages for others who take them at once, until these have come."""

from typing import NamedTuple

__all__ = ["Still", "Stills"]


class Still(NamedTuple):
    """Someone lets a queue stand still."""

    since: int
    """As of when messages are too old."""
    end: int
    """From which message on none is too much."""
    spare: int
    """How many more than its limit a queue takes that refuses messages."""


class Stills:
    """All who do so now. Used with the queue's lock held."""

    def __init__(self) -> None:
        self._held: list[Still] = []

    def add(self, still: Still) -> None:
        """One more."""
        self._held.append(still)

    def remove(self, still: Still) -> None:
        """One less."""
        self._held.remove(still)

    def time(self, now: int) -> int:
        """As of when messages are too old."""
        return min(now, *(still.since for still in self._held)) if self._held else now

    def end(self, end: int) -> int:
        """From which message on none is too much; this one at the latest."""
        return min(end, *(still.end for still in self._held)) if self._held else end

    @property
    def spare(self) -> int:
        """How many more than its limit a queue takes that refuses messages."""
        return max((still.spare for still in self._held), default=0)
