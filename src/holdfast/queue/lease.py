"""Leases by id: which messages they hold, when they expire, and which one expires next."""

import heapq
from collections.abc import Iterable

from holdfast.queue.events import Leased, LeasedSpan

__all__ = ["NEVER", "Lease", "Leases"]

NEVER = 1 << 63
"""Later than any time."""

SWEEP_NS = 1_000_000_000
"""Only leases that last longer than this are sorted by expiry; most have ended before."""


class Lease:
    """Messages that were leased together, without those that were acknowledged or returned since."""

    __slots__ = ("attempts", "expires", "left", "priorities")

    def __init__(self, expires: int, left: set[int]) -> None:
        self.expires = expires
        self.left = left
        self.attempts: dict[int, int] | None = None
        """The number of this delivery, for messages that were delivered before."""
        self.priorities: dict[int, int] | None = None
        """The priority, for messages that have one."""

    def add(self, span: LeasedSpan) -> None:
        """Add messages, while the lease is made."""
        sequences = range(span.start, span.stop)
        self.left.update(sequences)
        if span.attempt != 1:
            if self.attempts is None:
                self.attempts = {}
            self.attempts.update(dict.fromkeys(sequences, span.attempt))
        if span.priority:
            if self.priorities is None:
                self.priorities = {}
            self.priorities.update(dict.fromkeys(sequences, span.priority))

    def attempt(self, sequence: int) -> int:
        """Return the number of this delivery of the message, from 1."""
        return 1 if self.attempts is None else self.attempts.get(sequence, 1)

    def priority(self, sequence: int) -> int:
        """Return the priority of the message."""
        return 0 if self.priorities is None else self.priorities.get(sequence, 0)

    def spans(self, sequences: Iterable[int]) -> list[LeasedSpan]:
        """Return messages of this lease as spans of equal priority and number of deliveries."""
        found: list[LeasedSpan] = []
        for sequence in sorted(sequences):
            priority, attempt = self.priority(sequence), self.attempt(sequence)
            if found and found[-1].stop == sequence and found[-1][2:] == (priority, attempt):
                found[-1] = LeasedSpan(found[-1].start, sequence + 1, priority, attempt)
            else:
                found.append(LeasedSpan(sequence, sequence + 1, priority, attempt))
        return found


class Leases:
    """The live leases of a queue. Ids ascend, so the newest are at the end of the dict. Used with the queue's lock."""

    def __init__(self) -> None:
        self.by_id: dict[int, Lease] = {}
        self.count = 0
        """How many messages are leased."""
        self.next_check = NEVER
        """No lease expires before this time."""
        self.order: list[tuple[int, int]] = []
        """A heap of expiries with ids; leases that have ended stay in it for a while."""
        self._ordered_up_to = 0

    def begin(self, event: Leased) -> int:
        """Add the lease of this event; return how many messages it holds."""
        lease = Lease(event.expires, set())
        for span in event.spans:
            lease.add(span)
        self.add(event.lease, lease)
        return len(lease.left)

    def add(self, lease_id: int, lease: Lease) -> None:
        """Add a lease."""
        if lease.expires < self.next_check or not self.by_id:
            self.next_check = lease.expires
        self.by_id[lease_id] = lease
        self.count += len(lease.left)

    def extend(self, lease_id: int, expires: int) -> None:
        """Change the expiry of a lease, to later or sooner."""
        lease = self.by_id.get(lease_id)
        if lease is None:
            return
        lease.expires = expires
        if lease_id <= self._ordered_up_to:
            heapq.heappush(self.order, (expires, lease_id))
        self.next_check = min(self.next_check, expires)

    def discard(self, lease_id: int, sequences: Iterable[int]) -> int:
        """Remove these messages from the lease, which ends with its last one; return how many it held."""
        lease = self.by_id.get(lease_id)
        if lease is None:
            return 0
        before = len(lease.left)
        lease.left.difference_update(sequences)
        left = len(lease.left)
        if not left:
            del self.by_id[lease_id]
        self.count -= before - left
        return before - left

    def expired(self, now: int) -> list[int]:
        """Return the ids of leases that have expired."""
        if now < self.next_check:
            return []
        if not self.by_id:
            self.next_check = NEVER
            return []
        self._sweep()
        found: list[int] = []
        order = self.order
        while order:
            expires, lease_id = order[0]
            lease = self.by_id.get(lease_id)
            if lease is not None and lease.expires == expires:
                if expires > now:
                    break
                if not found or found[-1] != lease_id:  # extended and shortened again, it has two equal entries
                    found.append(lease_id)
            heapq.heappop(order)
        # Leases that begin from here on are checked within a second, so that they need not be sorted at once.
        soonest = order[0][0] if order else now + SWEEP_NS
        self.next_check = max(now + 1, min(soonest, now + SWEEP_NS))
        for lease_id in found:  # they must be found again until the caller has ended them
            heapq.heappush(order, (self.by_id[lease_id].expires, lease_id))
        return found

    def due_in(self, now: int) -> int | None:
        """Return in how many nanoseconds to check again; None while nothing is leased."""
        return max(0, self.next_check - now) if self.by_id else None

    def clear(self) -> None:
        """Remove all leases."""
        self.by_id.clear()
        self.order.clear()
        self.count = 0
        self.next_check = NEVER

    def _sweep(self) -> None:
        """Sort the leases that began since the last call, and have not ended, by expiry."""
        newest = self._ordered_up_to
        for lease_id in reversed(self.by_id):
            if lease_id <= self._ordered_up_to:
                break
            newest = max(newest, lease_id)
            heapq.heappush(self.order, (self.by_id[lease_id].expires, lease_id))
        self._ordered_up_to = newest
        if len(self.order) > 64 + 4 * len(self.by_id):
            self.order = [(lease.expires, lease_id) for lease_id, lease in self.by_id.items()]
            heapq.heapify(self.order)
