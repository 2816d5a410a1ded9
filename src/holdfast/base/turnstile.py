"""Exclusive access to something that many others enter for a moment: neither side can starve the other."""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Iterator

from holdfast.base.section import Condition

__all__ = ["Turnstile"]


class Turnstile:
    """Exclusive claims beside many short entries.

    A claim is announced without any lock. From then on entries wait; those that came before finish. All entries that
    waited for one claim go before the next one, and claims are granted in the order of their announcements. So between
    two claims every waiting entry goes once, and between two entries of a thread at most one claim is granted.

    Protected by the lock of `changed`, except `line`, whose single operations are atomic.
    """

    __slots__ = ("_changed", "_holder", "_owed", "_turn", "_waiting", "line")

    def __init__(self, changed: Condition) -> None:
        self._changed = changed
        self.line: deque[object] = deque()
        """Claims that were announced and have not ended, in order. While it is empty, `enter` need not be called."""
        self._holder: int | None = None
        self._turn = 0
        """How many claims have ended."""
        self._waiting = 0
        """Entries that wait for the end of a claim."""
        self._owed = 0
        """Entries that have waited for a claim that has ended: they go before the next one."""

    @property
    def mine(self) -> bool:
        """Whether this thread has the claim that is granted."""
        return self._holder == threading.get_ident()

    def enter(self) -> None:
        """Wait until no claim is ahead of the caller, who holds the lock of `changed` until its work is handed over."""
        if not self.line or self.mine:
            return
        turn = self._turn
        self._waiting += 1
        try:
            while self.line and self._turn == turn:
                self._changed.wait()
        finally:
            if self._turn == turn:
                self._waiting -= 1
            else:
                self._owed -= 1
                if not self._owed:
                    self._changed.notify_all()

    @contextlib.contextmanager
    def claim(self) -> Iterator[None]:
        """Keep all others out until the end. Reentrant. The lock of `changed` is not held inside."""
        if self.mine:
            yield
            return
        ticket = object()
        try:
            self.line.append(ticket)
            with self._changed.lock:
                while self.line[0] is not ticket or self._owed:
                    self._changed.wait()
                self._holder = threading.get_ident()
            yield
        finally:
            self._end(ticket)

    def is_free_within(self, seconds: float) -> bool:
        """Whether every claim that was announced ends within so many seconds."""
        deadline = time.monotonic() + seconds
        with self._changed.lock:
            while self.line:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def _end(self, ticket: object) -> None:
        with self._changed.lock:
            if ticket not in self.line:
                return
            if self.mine:
                self._holder = None
            self.line.remove(ticket)
            self._turn += 1
            self._owed += self._waiting
            self._waiting = 0
            self._changed.notify_all()
