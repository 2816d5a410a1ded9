"""The moment at which the background must next work for a queue."""

from collections.abc import Callable

from holdfast.queue.lease import NEVER

__all__ = ["Alarm"]


class Alarm:
    """Wakes the background of a store for one queue. Alone writes when the next tick is.

    Invariant: the background comes at `at` or before. Each change is a plain assignment, so it needs no lock; all but
    `by` and `wake` are called with the queue's lock held.
    """

    __slots__ = ("at", "idle", "wake")

    def __init__(self, wake: Callable[[], None]) -> None:
        self.at = NEVER
        """The time of the next tick."""
        self.idle = True
        """Whether the next event must wake the background."""
        self.wake = wake
        """Let the background come at once."""

    def by(self, moment: int) -> None:
        """Let the background come at this moment or before."""
        if moment < self.at:
            self.at = moment
            self.wake()

    def recorded(self) -> None:
        """Let the background come for an event. Called only if it is `idle`, to save other events the call."""
        self.idle = False
        self.wake()

    def set(self, at: int, *, idle: bool) -> None:
        """Set the time of the next tick, at the end of one, and whether an event must wake the background before."""
        self.idle = idle
        self.at = at
