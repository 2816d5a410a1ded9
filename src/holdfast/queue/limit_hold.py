"""Suspension of length limits and expiry while messages are put for idle consumers, so that these get them first."""

from typing import NamedTuple

__all__ = ["LimitHold", "LimitHolds"]


class LimitHold(NamedTuple):
    """A suspension of a queue's limits."""

    since: int
    """When the suspension began: messages are expired as of this time."""
    end: int
    """The first sequence to which length limits do not apply."""
    extra_capacity: int
    """How many messages above its limit the queue accepts, if it rejects messages when full."""


class LimitHolds:
    """The active suspensions of a queue. Used with the queue's lock held."""

    def __init__(self) -> None:
        self._held: list[LimitHold] = []

    def add(self, hold: LimitHold) -> None:
        """Begin a suspension."""
        self._held.append(hold)

    def remove(self, hold: LimitHold) -> None:
        """End a suspension."""
        self._held.remove(hold)

    def time(self, now: int) -> int:
        """Return the time to compare expiries with: when the oldest suspension began, or now."""
        return min(now, *(hold.since for hold in self._held)) if self._held else now

    def end(self, end: int) -> int:
        """Return the first sequence to which length limits do not apply; at most `end`."""
        return min(end, *(hold.end for hold in self._held)) if self._held else end

    @property
    def extra_capacity(self) -> int:
        """How many messages above its limit a queue accepts that rejects messages when full."""
        return max((hold.extra_capacity for hold in self._held), default=0)
