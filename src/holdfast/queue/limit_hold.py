"""Suspension of length limits and expiry while messages are put for idle consumers, so that these get them first."""

from typing import NamedTuple

__all__ = ["Still", "Stills"]


class Still(NamedTuple):
    """A suspension of a queue's limits."""

    since: int
    """When the suspension began: messages are expired as of this time."""
    end: int
    """The first sequence to which length limits do not apply."""
    spare: int
    """How many messages above its limit the queue accepts, if it rejects messages when full."""


class Stills:
    """The active suspensions of a queue. Used with the queue's lock held."""

    def __init__(self) -> None:
        self._held: list[Still] = []

    def add(self, still: Still) -> None:
        """Begin a suspension."""
        self._held.append(still)

    def remove(self, still: Still) -> None:
        """End a suspension."""
        self._held.remove(still)

    def time(self, now: int) -> int:
        """Return the time to compare expiries with: when the oldest suspension began, or now."""
        return min(now, *(still.since for still in self._held)) if self._held else now

    def end(self, end: int) -> int:
        """Return the first sequence to which length limits do not apply; at most `end`."""
        return min(end, *(still.end for still in self._held)) if self._held else end

    @property
    def spare(self) -> int:
        """Return how many messages above its limit a queue accepts that rejects messages when full."""
        return max((still.spare for still in self._held), default=0)
