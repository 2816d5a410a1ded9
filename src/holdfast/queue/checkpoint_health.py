"""Health of a queue's checkpoints: failures, their reason, and the time of the next attempt."""

from typing import NamedTuple

__all__ = ["CheckpointHealth", "Failing"]

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 30.0


class Failing(NamedTuple):
    """Since when checkpoints fail, and why."""

    since: int
    """When the first of them failed, in nanoseconds since 1970."""
    reason: str
    """Why the last one failed."""


class CheckpointHealth:
    """Counts failed checkpoints and spaces out the attempts: after 1 s, 2 s, 4 s and so on, up to 30 s.

    Changed with the queue's lock held; `failing` and `failures` may be read without.
    """

    def __init__(self) -> None:
        self.failing: Failing | None = None
        """The current failures; None while checkpoints succeed."""
        self.failures = 0
        """How many checkpoints failed since the queue was opened."""
        self._pause_s = _FIRST_PAUSE_S
        self._next = 0.0

    def wait(self, moment: float) -> float:
        """Return the seconds until the next attempt may be made; `moment` is of the monotonic clock."""
        return 0.0 if self.failing is None else max(0.0, self._next - moment)

    def failed(self, reason: str, now: int, moment: float) -> bool:
        """Record a failure; return whether it is the first in a row."""
        is_first = self.failing is None
        self.failures += 1
        self.failing = Failing(now if self.failing is None else self.failing.since, reason)
        self._next = moment + self._pause_s
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return is_first

    def succeeded(self) -> bool:
        """Record a success; return whether there were failures before it."""
        was_failing = self.failing is not None
        self.failing, self._pause_s = None, _FIRST_PAUSE_S
        return was_failing
