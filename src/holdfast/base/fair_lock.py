"""Exclusive access to something that many others enter for a moment: neither side can starve the other."""

import threading
import time
import weakref
from collections import deque

from holdfast.base.critical_section import Condition

__all__ = ["FairLock", "Ticket"]

_AGAIN_S = 0.2
"""Seconds after which a waiting thread checks again: an interrupt may have prevented its notification."""


class Ticket:
    """The owner of exclusive claims. They end, all of them, when `over` is set, by a plain assignment in a `finally`.

    A plain assignment cannot be cut off by a signal's handler, as a call can at its start. The next caller drops the
    claims that have ended, so that nothing else needs to be done at the end; `FairLock.tidy` only does it at once.
    If the end is a call that can be cut off at its start, the ticket has a `holder`: an object that is garbage after
    that call, which ends the claims.
    """

    __slots__ = ("_holder", "over", "thread")

    def __init__(self, holder: object | None = None) -> None:
        self.over = False
        self.thread = threading.get_ident()
        self._holder = None if holder is None else weakref.ref(holder)

    @property
    def ended(self) -> bool:
        """Whether its claims have ended."""
        return self.over or (self._holder is not None and self._holder() is None)

    @property
    def mine(self) -> bool:
        """Whether its claims hold, and this thread has them."""
        return self.thread == threading.get_ident() and not self.ended


class _Entry:
    """A call of `enter` that waits for the end of one claim, and is admitted before the next one."""

    __slots__ = ("behind", "over")

    def __init__(self) -> None:
        self.behind: Ticket | None = None
        self.over = False


class FairLock:
    """Grants exclusive claims among many short entries.

    A claim is announced without any lock. From then on entries wait; those that came before finish. All entries that
    waited for one claim go before the next one, and claims are granted in the order of their announcements. So between
    two claims every waiting entry goes once, and between two entries of a thread at most one claim is granted.

    Protected by the lock of `changed`, except `line`, whose single operations are atomic. All state is in tickets and
    entries, which end by plain assignments: there are no counts that an interrupt could leave wrong.
    """

    __slots__ = ("_changed", "_entries", "_holder", "line")

    def __init__(self, changed: Condition) -> None:
        self._changed = changed
        self.line: deque[Ticket] = deque()
        """Claims that were announced, in order. While it is empty, `enter` need not be called."""
        self._holder: Ticket | None = None
        """The ticket that the last claim was granted to."""
        self._entries: list[_Entry] = []
        """Calls of `enter` that wait for the end of a claim, or are admitted and about to leave."""

    @property
    def mine(self) -> bool:
        """Whether this thread has the claim that is granted."""
        holder = self._holder
        return holder is not None and holder.mine

    def enter(self) -> None:
        """Wait until no claim is ahead of the caller, which holds the lock of `changed` until its work is queued."""
        if not self.line or self.mine:
            return
        entry = _Entry()
        try:
            entry.behind = self._first()
            self._entries.append(entry)
            while entry.behind is not None and not entry.behind.ended:
                self._changed.wait(_AGAIN_S)
        finally:
            entry.over = True
            self._drop_entries()

    def claim(self, ticket: Ticket) -> None:
        """Return when the ticket's owner has exclusive access. The lock of `changed` is not held afterwards.

        Called in a `try` whose `finally` sets `ticket.over`, also if this call is cut off. In a thread that has the
        claim already it returns at once: the first claim stays in effect.
        """
        if self.mine:
            return
        self.line.append(ticket)
        with self._changed.lock:
            while self._first() is not ticket or self._is_owed():
                self._changed.wait(_AGAIN_S)
            self._holder = ticket

    def tidy(self) -> None:
        """Drop the claims that have ended, and wake waiting threads. Without this they notice it within 0.2 seconds."""
        with self._changed.lock:
            self._first()
            self._changed.notify_all()

    def is_free_within(self, seconds: float) -> bool:
        """Wait until no claim is left, for at most so many seconds; return whether there is none."""
        deadline = time.monotonic() + seconds
        with self._changed.lock:
            while self._first() is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(left, _AGAIN_S))
        return True

    def _first(self) -> Ticket | None:
        """Drop all claims that have ended, also those that were abandoned while waiting, and return the first other."""
        for ticket in [ticket for ticket in self.line.copy() if ticket.ended]:
            if ticket in self.line:
                self.line.remove(ticket)  # one call of C code: others may announce claims at the same time
        return self.line[0] if self.line else None

    def _is_owed(self) -> bool:
        """Whether entries have waited for a claim that has ended: they go before the next one."""
        return any(not one.over and one.behind is not None and one.behind.ended for one in self._entries)

    def _drop_entries(self) -> None:
        self._entries = [one for one in self._entries if not one.over]
        if not self._is_owed():
            self._changed.notify_all()
