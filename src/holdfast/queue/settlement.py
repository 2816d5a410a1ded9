"""Settlement of leased messages: ack, nack, release, reject and extend, by delivery or by message id."""

from collections.abc import Collection, Iterable, Mapping

from holdfast.base.clock import NS, Duration, duration_ns
from holdfast.base.errors import InvalidArgument, LeaseLost
from holdfast.log.pending_block import PendingBlock
from holdfast.queue.dispatcher import EVENTS_MAX, SAMPLE
from holdfast.queue.events import (
    Acked,
    Dropped,
    Event,
    Extended,
    Transferring,
    encode,
    encode_ack_of_one,
)
from holdfast.queue.intake import Intake
from holdfast.queue.journal import PENDING_MAX
from holdfast.queue.lease import Lease
from holdfast.queue.messages import Delivery, by_lease, listed
from holdfast.queue.ranges import spans_of

__all__ = ["HeldMessages", "Settlement"]

REASON_MAX = 4096
"""The most characters of a reason that are kept."""
HeldMessages = Mapping[int, Collection[int]]
"""Leased messages: their ids by the id of their lease."""


class Settlement(Intake):
    """The part of a queue that settles leased messages.

    Each operation exists for deliveries and for ids: a broker that passes messages on need not keep their bodies.
    """

    # By id.

    def ack_ids(self, parts: HeldMessages) -> list[int]:
        """Acknowledge messages: they are never delivered again. Return the ids whose lease was lost."""
        lost: list[int] = []
        done: list[tuple[int, list[tuple[int, int]]]] = []
        now = self._now()
        with self._lock, self._whole:
            self._check_writable()
            pending_block = self._look(now)
            for lease_id, _, held in self._held(parts, lost):
                done.append((lease_id, spans_of(sorted(held))))
            if done:
                pending_block = self._decide([Acked(now, done)])
                self._measures.holds.observe(max(0, now - done[0][0]) / NS)
        self._commit(pending_block)
        return lost

    def return_ids(self, parts: HeldMessages, reason: str = "", delay: Duration | None = 0) -> list[int]:
        """Return failed messages after `delay` (None: the backoff), to their position in the order.

        Counts as an attempt: after too many they are dead-lettered or, without a dead-letter queue, dropped. Returns
        the ids whose lease was lost.
        """
        reason = _checked(reason)
        return self._give_back("nacked", parts, reason, None if delay is None else duration_ns(delay, "delay"))

    def release_ids(self, parts: HeldMessages) -> list[int]:
        """Return messages untried: they are ready at once. Return the ids whose lease was lost."""
        return self._give_back("released", parts, "", 0)

    def reject_ids(self, parts: HeldMessages, reason: str = "") -> list[int]:
        """Dead-letter messages at once, however often they were tried, or drop them if there is no dead-letter queue.

        Returns the ids whose lease was lost.
        """
        reason = _checked(reason)
        lost: list[int] = []
        target = self.settings.dead_letter
        with self._lock, self._whole:
            self._check_writable()
            now = self._now()
            pending_block = self._look(now)
            found = [(lease_id, lease, held) for lease_id, lease, held in self._held(parts, lost)]
            if found and target is not None:
                pending_block = self._decide(
                    [
                        Transferring(now, "rejected", reason, target, lease_id, lease.spans(held))
                        for lease_id, lease, held in found
                    ]
                )
            elif found:
                pending_block = self._drop_held(found, now)
        self._commit(pending_block)
        if self.queue_state.moving:
            self._start_transfers()
        return lost

    def void_leases(self, reason: str = "the lease was void") -> int:
        """End every lease: its messages are returned now, as if it had expired. Return how many.

        For a server that holds all leases, when it starts: those of its last run have no owner.
        """
        return self._void(None, _checked(reason))

    def void_lease(self, lease_id: int, reason: str = "the lease was void") -> int:
        """End one lease: its messages are returned now. Return how many; 0 if it has ended."""
        if isinstance(lease_id, bool) or not isinstance(lease_id, int):
            raise InvalidArgument(f"void_lease needs the id of a lease, as leases() returns it, not {lease_id!r}")
        return self._void(lease_id, _checked(reason))

    def _void(self, which: int | None, reason: str) -> int:
        with self._lock, self._whole:
            self._check_writable()
            now = self._now()
            swept = self._look(now)
            leases = self.queue_state.leases.by_id
            count, pending_block = self._end_leases(
                list(leases) if which is None else [which] if which in leases else [], reason, now
            )
        self._commit(pending_block or swept)
        if self.queue_state.moving:
            self._start_transfers()
        if count:
            self._waiters.wake()
        return count

    def _end_leases(self, which: list[int], reason: str, now: int) -> tuple[int, PendingBlock | None]:
        """End these leases as if they had expired; return the number of their messages, and the events' block."""
        count = 0
        pending_block: PendingBlock | None = None
        events: list[Event] = []
        for lease_id in which:
            lease = self.queue_state.leases.by_id[lease_id]
            count += len(lease.left)
            events += self._requeue_events(now, "expired", reason, lease_id, lease.spans(lease.left), 0)
            if len(events) >= EVENTS_MAX:
                pending_block, events = self._decide(events), []
        if events:
            pending_block = self._decide(events)
        return count, pending_block

    def _held(self, parts: HeldMessages, lost: list[int]) -> list[tuple[int, Lease, set[int]]]:
        """Return the messages that each lease holds; the others are added to `lost`."""
        found: list[tuple[int, Lease, set[int]]] = []
        for lease_id, ids in parts.items():
            wanted = ids if isinstance(ids, set) else set(ids)
            lease = self.queue_state.leases.by_id.get(lease_id)
            if lease is None:
                lost += sorted(wanted)
            elif wanted <= lease.left:
                if wanted:
                    found.append((lease_id, lease, wanted))
            else:
                lost += sorted(wanted - lease.left)
                if held := wanted & lease.left:
                    found.append((lease_id, lease, held))
        return found

    def _drop_held(self, found: list[tuple[int, Lease, set[int]]], now: int) -> PendingBlock | None:
        """Drop leased messages permanently. As `QueueState.settle`, which has to search for their lease."""
        queue_state = self.queue_state
        everything = sorted(id for _, _, held in found for id in held)
        spans = spans_of(everything)
        pending_block = self._record(encode(Dropped(now, "rejected", spans)))
        for lease_id, _, held in found:
            queue_state.leases.discard(lease_id, held)
        for start, stop in spans:
            queue_state.failures.forget(start, stop)
        queue_state.totals.dropped += len(everything)
        return pending_block

    def _give_back(self, cause: str, parts: HeldMessages, reason: str, delay_ns: int | None) -> list[int]:
        lost: list[int] = []
        events: list[Event] = []
        with self._lock, self._whole:
            self._check_writable()
            now = self._now()
            pending_block = self._look(now)
            for lease_id, lease, held in self._held(parts, lost):
                events += self._requeue_events(now, cause, reason, lease_id, lease.spans(held), delay_ns)
            if events:
                pending_block = self._decide(events)
                if self._waiters.listeners:
                    self._schedule_due()
        self._commit(pending_block)
        if self.queue_state.moving:
            self._start_transfers()
        if self._waiters.line or self._waiters.listeners:
            self._waiters.wake()
        return lost

    # By delivery.

    def ack(self, deliveries: Iterable[Delivery]) -> None:
        """Acknowledge messages, which are never delivered again: one journal record for all.

        Raises `LeaseLost` for those whose lease was lost; the others are acknowledged.
        """
        self._raise_lost(self.ack_ids(by_lease(listed(deliveries))))

    def ack_one(self, delivery: Delivery) -> bool:
        """Ack one delivery; return False if its lease was lost. The fast path of `Delivery.ack`."""
        sequence, lease_id = delivery[0], delivery[7]
        now = self._now()
        section = self._whole
        with self._lock:
            queue_state = self.queue_state
            leases = queue_state.leases
            if now >= leases.next_check or not self._fast_path or section.open:
                with section:
                    self._check_writable()
                    self._commit_later(self._look(now))
                queue_state = self.queue_state
                leases = queue_state.leases
            by_id = leases.by_id
            lease = by_id.get(lease_id)
            if lease is None or sequence not in (left := lease.left):
                return False
            event = encode_ack_of_one(now, lease_id, sequence)
            pending_block = None
            pending = self._pending
            section.open = True
            if self._fast_path and len(pending) < PENDING_MAX and not self._background_idle:
                pending.append(event)
            else:
                pending_block = self._record(event)
            if len(left) == 1:
                del by_id[lease_id]
            else:
                left.remove(sequence)
            leases.count -= 1
            if not queue_state.plain:
                queue_state.failures.forget(sequence, sequence + 1)
            queue_state.totals.acked += 1
            section.open = False
        if not sequence & SAMPLE:
            self._measures.holds.observe(max(0, now - lease_id) / NS)
        if pending_block is not None:
            self._journal.commit(pending_block)
        return True

    def nack(self, deliveries: Iterable[Delivery], reason: str = "", delay: Duration | None = None) -> None:
        """Return failed messages after `delay` (the queue's backoff if None), or dead-letter them.

        Raises `LeaseLost` for those whose lease was lost; the others are returned.
        """
        self._raise_lost(self.try_nack(listed(deliveries), reason, delay))

    def extend(self, deliveries: Iterable[Delivery], duration: Duration | None = None) -> None:
        """Extend the leases of these messages, with all others under them, to so long from now; may shorten them.

        Raises `LeaseLost` for those whose lease was lost; the others are extended.
        """
        self._raise_lost(self.try_extend(listed(deliveries), duration))

    def release(self, deliveries: Iterable[Delivery]) -> None:
        """Return messages untried: they are ready at once, and the delivery does not count.

        Raises `LeaseLost` for those whose lease was lost; the others are returned.
        """
        self._raise_lost(self.try_release(listed(deliveries)))

    def try_nack(self, deliveries: list[Delivery], reason: str, delay: Duration | None) -> list[int]:
        """As `nack`, but return the ids that were lost."""
        return self.return_ids(by_lease(deliveries), reason, delay)

    def try_release(self, deliveries: list[Delivery]) -> list[int]:
        """As `release`, but return the ids that were lost."""
        return self.release_ids(by_lease(deliveries))

    def try_extend(self, deliveries: list[Delivery], duration: Duration | None) -> list[int]:
        """As `extend`, but return the ids that were lost."""
        return self.extend_ids(by_lease(deliveries), duration)

    def extend_ids(self, parts: HeldMessages, duration: Duration | None = None) -> list[int]:
        """Extend the leases of these messages to so long from now (the queue's lease if None).

        Returns the ids whose lease was lost.
        """
        lease_ns = self._lease_ns if duration is None else duration_ns(duration, "duration")
        lost: list[int] = []
        with self._lock, self._whole:
            self._check_writable()
            now = self._now()
            pending_block = self._look(now)
            events: list[Event] = []
            for lease_id, _, _ in self._held(parts, lost):
                events.append(Extended(now, lease_id, now + lease_ns))
            if events:
                pending_block = self._decide(events)
                if now + lease_ns < self._tick_at:
                    self._tick_at = now + lease_ns
                    self._wake_ticker()
        self._commit(pending_block)
        if self._waiters.line:
            self._waiters.wake()
        return lost

    def _raise_lost(self, lost: list[int]) -> None:
        if lost:
            raise LeaseLost(
                f"the lease of {len(lost)} messages of the queue {self.name!r} was lost (the first is {lost[0]}), and "
                "other consumers may have them: use a longer lease, or extend it in time",
                lost,
            )


def _checked(reason: str) -> str:
    if not isinstance(reason, str):
        raise InvalidArgument(f"a reason must be a str, not {type(reason).__name__}")
    # Characters that UTF-8 cannot encode (half of an emoji in an error's text) must not prevent returning a message.
    return reason[:REASON_MAX].encode("utf-8", "backslashreplace").decode()
