"""Critical sections and waits that an exception from a signal handler cannot leave half-done.

A handler that raises (Ctrl-C, an alarm) does so in the main thread, wherever the interpreter checks for signals: at the
start of a function, at a backward jump, after a call of C code, and inside C code that waits. It can do so again inside
the `except` or the `__exit__` that handles the first one. `with lock:` on a lock of C code is safe at both ends.
"""

import threading
from collections import deque
from collections.abc import Callable
from operator import methodcaller
from types import TracebackType

from holdfast.base.errors import HoldfastError

__all__ = ["Condition", "CriticalSection"]


class CriticalSection:
    """Marks a change of shared state as unfinished: set by its first act, and cleared by its last.

    A change that is cut off, by any exception and however often, needs no cleanup where it was cut off: the mark stays,
    and the next thread to enter calls `repair` before anything else. Used with a lock of C code held, `with lock,
    section:`, and not nested. A `HoldfastError` is raised only where the state is consistent, so it clears the mark.
    Short paths may test, set and clear `open` themselves, by plain assignments: a `with` costs about 2,100
    instructions, the assignments cost 250. A caller that changes nothing need only call `mend` if `open` is set.
    """

    __slots__ = ("_repair", "open")

    def __init__(self, repair: Callable[[], None]) -> None:
        self._repair = repair
        self.open = False
        """Whether a change has begun and not ended. For a thread that has just taken the lock: one was cut off."""

    def __enter__(self) -> None:
        if self.open:
            self._repair()
        self.open = True

    def mend(self) -> None:
        """Repair a change that was cut off. Called with the lock held, if `open`. If cut off too, the mark stays."""
        self._repair()
        self.open = False

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or issubclass(kind, HoldfastError):
            self.open = False


_release_save = methodcaller("_release_save")


class Condition:
    """A condition variable for an `RLock`. The caller of `wait` holds the lock again after any exception of a handler.

    The standard library's can return from `wait` without the lock, which the caller then releases: "release unlocked
    lock". This one has no `with`: an `__enter__` would be Python code, which can be interrupted with the lock taken.
    """

    def __init__(self, lock: "threading.RLock") -> None:
        self.lock = lock
        self._gates: deque[threading.Lock] = deque()
        """For each waiting thread, a lock that is released to wake it."""

    def wait(self, seconds: float | None = None) -> bool:
        """Release the lock until there is a notification or the time is over; return whether there was one."""
        gate = threading.Lock()
        held: list[object] = []
        woken = False
        try:
            gate.acquire()
            self._gates.append(gate)
            held.extend(map(_release_save, (self.lock,)))  # released and noted by one call of C code
            woken = gate.acquire(timeout=-1 if seconds is None else min(max(seconds, 0.0), threading.TIMEOUT_MAX))
        finally:
            if held:
                self.lock._acquire_restore(held[0])  # type: ignore[attr-defined]  # C code that no signal interrupts
            if not woken and gate in self._gates:
                self._gates.remove(gate)
        return woken

    def notify_all(self) -> None:
        """Wake every waiting thread. Called with the lock held."""
        while self._gates:
            try:  # noqa: SIM105 - `suppress` is Python code, which can be cut off itself
                self._gates[0].release()
            except RuntimeError:  # open already: the call that did so was cut off before the next line
                pass
            self._gates.popleft()
