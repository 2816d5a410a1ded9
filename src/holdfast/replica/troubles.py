"""What fails of a replica at present, since when, and what failed last."""

from dataclasses import dataclass
from typing import Literal

from holdfast.base.clock import Clock
from holdfast.base.errors import ReplicaError

__all__ = ["Trouble", "Troubles", "Work"]

Work = Literal["claim", "shipping", "repair", "batches", "cleaning"]
_ORDER: tuple[Work, ...] = ("claim", "shipping", "repair", "batches", "cleaning")
"""The cause first: an owner that cannot renew its claim ships nothing after a while, and says only that."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """An error of some work of a replica."""

    text: str
    reason: str
    """`ReplicaError.reason`; `store` for an error of the store itself."""
    at: int
    """When it occurred last, in nanoseconds since 1970."""


class Troubles:
    """The errors of a replica's threads. Threads: each kind of work is of one; any may read."""

    def __init__(self, clock: Clock) -> None:
        self.last: Trouble | None = None
        """The last error of any work, also after it was overcome."""
        self._clock = clock
        self._now: dict[Work, Trouble] = {}
        self._since: dict[Work, int] = {}

    def note(self, work: Work, error: Exception) -> bool:
        """Note that work has failed; return whether its error is another one than before."""
        reason = error.reason if isinstance(error, ReplicaError) else "store"
        before = self._now.get(work)
        found = Trouble(str(error), reason, self._clock.time_ns())
        self._since.setdefault(work, found.at)
        self._now[work] = self.last = found
        return before is None or before.text != found.text

    def clear(self, work: Work) -> bool:
        """Note that work has succeeded; return whether it had failed before."""
        self._since.pop(work, None)
        return self._now.pop(work, None) is not None

    def fails(self, work: Work) -> bool:
        """Return whether the last attempt at this work failed."""
        return work in self._now

    @property
    def first(self) -> Trouble | None:
        """The error to show: the cause, if several kinds of work fail."""
        found = dict(self._now)
        return next((found[work] for work in _ORDER if work in found), None)

    @property
    def since(self) -> int | None:
        """When the first attempt of those that failed was made, in nanoseconds since 1970; None if nothing fails."""
        return min(dict(self._since).values(), default=None)
