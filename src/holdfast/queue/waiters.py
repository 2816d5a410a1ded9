"""Waiting callers of a queue, in order of arrival, and fair shares of ready messages among them."""

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.base.clock import Clock
from holdfast.base.critical_section import Condition
from holdfast.log.pending_block import PendingBlock

if TYPE_CHECKING:
    from holdfast.queue.messages import Delivery

__all__ = ["WaitQueue", "Waiter", "shares"]

logger = logging.getLogger("holdfast.queue")


class Waiter:
    """A call that waits for up to `demand` messages."""

    __slots__ = ("condition", "demand", "gone", "lease_ns", "pending_block", "result")

    def __init__(self, demand: int, lease_ns: int, condition: Condition) -> None:
        self.demand = demand
        self.lease_ns = lease_ns
        self.condition = condition
        self.gone = False
        """Set by the call when it ends: from then on no messages are leased to it, even if it is still in line."""
        self.result: list[Delivery] | None = None
        """Set with the queue's lock held by the serving thread, once there are messages for it."""
        self.pending_block: PendingBlock | None = None


class WaitQueue:
    """The waiting calls of a queue. Its lock is the innermost one, held only briefly and never across a call."""

    def __init__(self, clock: Clock) -> None:
        self.line: list[Waiter] = []
        """The waiters in order of arrival; changed with both this lock and the queue's held."""
        self.listeners: tuple[Callable[[], None], ...] = ()
        """Callbacks to call when there may be more messages."""
        self.on_signal: Callable[[], None] = lambda: None
        """Called with each signal, from any thread, perhaps with locks held: must be short."""
        self.release_below: Callable[[int], None] = lambda sequence: None
        """As `ReadView.release_below`."""
        self.signals = 0
        self._clock = clock
        self._guard = threading.RLock()
        self._abandoned = False

    def close_discarding(self) -> None:
        """Stop waking waiters: the process ends, and with it the waiting daemon threads."""
        self._abandoned = True

    def sleep_to_the_end(self, seconds: float | None) -> bool:
        """Let a daemon thread sleep if `close_discarding` was called; otherwise return False at once."""
        if not (self._abandoned and threading.current_thread().daemon):
            return False
        threading.Event().wait(seconds)
        return True

    def wake(self) -> None:
        """Signal that something may have changed: the first waiter in line checks, and serves all."""
        with self._guard:
            self.signals += 1
            if self.line and not self._abandoned:
                self._notify_first()
        if self.listeners:
            self.tell()
        self.on_signal()

    def tell(self) -> None:
        """Call the listeners. A listener that fails is logged, and does not fail the put."""
        for listener in self.listeners:
            try:
                listener()
            except Exception:
                logger.exception("queue listener failed")

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` from now on; call the result to stop."""

        def listener() -> None:
            callback()

        with self._guard:
            self.listeners = (*self.listeners, listener)

        def stop() -> None:
            with self._guard:
                self.listeners = tuple(other for other in self.listeners if other is not listener)

        return stop

    def new(self, demand: int, lease_ns: int) -> Waiter:
        """Return a waiter that is not in line yet."""
        return Waiter(demand, lease_ns, Condition(self._guard))

    def join(self, waiter: Waiter) -> None:
        """Add a waiter to the line."""
        with self._guard:
            self.line.append(waiter)

    def leave(self, waiter: Waiter) -> None:
        """Remove a waiter from the line, and notify the next one, which may have missed a signal."""
        with self._guard:
            if waiter in self.line:
                self.line.remove(waiter)
            self._notify_first()

    def serve(self, waiter: Waiter) -> None:
        """Wake a waiter that has got its messages, and remove it from the line."""
        with self._guard:
            waiter.condition.notify_all()
            self.line.remove(waiter)

    def wake_all(self) -> None:
        """Wake every waiter: a change was cut off, and perhaps a notification with it."""
        with self._guard:
            self.signals += 1
            self._notify_each()

    def wait(self, waiter: Waiter, seen: int, seconds: float) -> None:
        """Sleep until there is a signal newer than `seen`, or the time is up."""
        with self._guard:
            if self.signals == seen and waiter.result is None:
                self._clock.wait(waiter.condition, seconds)

    def waiting(self) -> list[Waiter]:
        """Return the waiters in line that can be served. Called with the queue's lock held.

        Also removes waiters whose call was cut off before it could leave.
        """
        with self._guard:
            if any(map(_is_over, self.line)):
                self.line = [waiter for waiter in self.line if not _is_over(waiter)]
            return list(self.line)

    def _notify_first(self) -> None:
        for waiter in self.line:
            if not _is_over(waiter):
                waiter.condition.notify_all()
                break

    def _notify_each(self) -> None:
        for waiter in self.line:
            waiter.condition.notify_all()

    def detach_after_fork(self) -> None:
        """Remove all waiters and listeners, in a forked child."""
        self._guard = threading.RLock()
        self.line = []
        self.listeners = ()
        self.on_signal = lambda: None


def _is_over(waiter: Waiter) -> bool:
    return waiter.gone or waiter.result is not None


def shares(demands: list[int], available: int) -> list[int]:
    """Return how many each gets if messages are dealt one at a time in turn: demands 5, 3, 1 of 6 get 3, 2, 1."""
    given = [0] * len(demands)
    wanting = [index for index, demand in enumerate(demands) if demand]
    while available and wanting:
        # As many whole rounds at once as the smallest demand, or the available messages, allow.
        rounds = max(1, min(available // len(wanting), *(demands[index] - given[index] for index in wanting)))
        for index in wanting:
            if not available:
                break
            part = min(rounds, available)
            given[index] += part
            available -= part
        wanting = [index for index in wanting if given[index] < demands[index]]
    return given
