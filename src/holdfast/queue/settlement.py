"""Settlement of leased messages: ack, nack, release, reject and extend, by delivery or by message id."""

from collections.abc import Iterable

from holdfast.base.clock import NS, Duration, duration_ns
from holdfast.base.errors import InvalidArgument, LeaseLost
from holdfast.queue.events import Acked, Dropped, Event, Extended, Transferring, encode_ack_of_one
from holdfast.queue.journal import PENDING_MAX
from holdfast.queue.messages import Delivery, by_lease, listed
from holdfast.queue.metrics import SAMPLE
from holdfast.queue.queue_core import QueueCore
from holdfast.queue.queue_state import HeldMessages
from holdfast.queue.ranges import spans_of

__all__ = ["Settlement", "raise_lost"]

REASON_MAX = 4096
"""The most characters of a reason that are kept."""


class Settlement:
    """Settles leased messages. Owns nothing. Invariant: only what a lease holds is settled.

    Each operation exists for deliveries and for ids: a broker that passes messages on need not keep their bodies.
    """

    def __init__(self, core: QueueCore) -> None:
        self._core = core
        self._pending = core.journal.pending

    # By id.

    def ack_ids(self, parts: HeldMessages) -> list[int]:
        """Acknowledge messages: they are never delivered again. Return the ids whose lease was lost."""
        core = self._core
        lost: list[int] = []
        now = core.now()
        with core.lock, core.change(now) as turn:
            done = [(held.lease_id, spans_of(sorted(held.ids))) for held in core.state.held(parts, lost)]
            if done:
                turn.apply([Acked(now, done)])
                core.measures.holds.observe(max(0, now - done[0][0]) / NS)
        core.commit(turn.pending_block)
        core.confirm()
        return lost

    def return_ids(self, parts: HeldMessages, reason: str, delay: Duration | None) -> list[int]:
        """As `Queue.return_ids`."""
        reason = _checked(reason)
        return self._give_back("nacked", parts, reason, None if delay is None else duration_ns(delay, "delay"))

    def release_ids(self, parts: HeldMessages) -> list[int]:
        """Return messages untried: they are ready at once. Return the ids whose lease was lost."""
        return self._give_back("released", parts, "", 0)

    def reject_ids(self, parts: HeldMessages, reason: str) -> list[int]:
        """As `Queue.reject_ids`."""
        core = self._core
        reason = _checked(reason)
        lost: list[int] = []
        target = core.settings.dead_letter
        with core.lock, core.change() as turn:
            found = core.state.held(parts, lost)
            if found and target is not None:
                turn.apply(
                    [
                        Transferring(turn.now, "rejected", reason, target, lease_id, lease.spans(ids))
                        for lease_id, lease, ids in found
                    ]
                )
            elif found:
                spans = spans_of(sorted(id for held in found for id in held.ids))
                turn.record(Dropped(turn.now, "rejected", spans))
                core.state.drop_held(found, spans)
        core.finish(turn.pending_block)
        core.confirm()
        return lost

    def extend_ids(self, parts: HeldMessages, duration: Duration | None) -> list[int]:
        """As `Queue.extend_ids`."""
        core = self._core
        lease_ns = core.lease_ns if duration is None else duration_ns(duration, "duration")
        lost: list[int] = []
        with core.lock, core.change() as turn:
            expires = turn.now + lease_ns
            events: list[Event] = [Extended(turn.now, held.lease_id, expires) for held in core.state.held(parts, lost)]
            if events:
                turn.apply(events)
                core.alarm.by(expires)
        core.commit(turn.pending_block)
        if core.waiters.line:
            core.waiters.wake()
        return lost

    def void_leases(self, reason: str) -> int:
        """As `Queue.void_leases`."""
        return self._void(None, _checked(reason))

    def void_lease(self, lease_id: int, reason: str) -> int:
        """As `Queue.void_lease`."""
        if isinstance(lease_id, bool) or not isinstance(lease_id, int):
            raise InvalidArgument(f"void_lease needs the id of a lease, as leases() returns it, not {lease_id!r}")
        return self._void(lease_id, _checked(reason))

    def _void(self, which: int | None, reason: str) -> int:
        core = self._core
        with core.lock, core.change() as turn:
            leases = core.state.leases.by_id
            ended = list(leases) if which is None else [which] if which in leases else []
            count, pending_block = core.end_leases(ended, reason, turn.now)
        core.finish(pending_block or turn.pending_block)
        if count:
            core.waiters.wake()
        core.confirm()
        return count

    def _give_back(self, cause: str, parts: HeldMessages, reason: str, delay_ns: int | None) -> list[int]:
        core = self._core
        lost: list[int] = []
        events: list[Event] = []
        with core.lock, core.change() as turn:
            for lease_id, lease, ids in core.state.held(parts, lost):
                events += core.retries.events(turn.now, cause, reason, lease_id, lease.spans(ids), delay_ns)
            if events:
                turn.apply(events)
                if core.waiters.listeners:
                    core.schedule_due()
        core.finish(turn.pending_block)
        if core.waiters.line or core.waiters.listeners:
            core.waiters.wake()
        core.confirm()
        return lost

    # By delivery.

    def ack(self, deliveries: Iterable[Delivery]) -> None:
        """As `Queue.ack`."""
        raise_lost(self._core.name, self.ack_ids(by_lease(listed(deliveries))))

    def ack_one(self, delivery: Delivery) -> bool:
        """Ack one delivery; return False if its lease was lost. The fast path of `Delivery.ack`."""
        sequence, lease_id = delivery[0], delivery[7]
        core = self._core
        now = core.now()
        section = core.section
        with core.lock:
            state = core.state
            if now >= state.leases.next_check or section.open or not (core.fast_path or core.is_sound):
                with core.change(now):
                    state = core.state
            lease = state.leases.by_id.get(lease_id)
            if lease is None or sequence not in lease.left:
                return False
            event = encode_ack_of_one(now, lease_id, sequence)
            pending_block = None
            pending = self._pending
            section.open = True
            if core.fast_path and len(pending) < PENDING_MAX and not core.alarm.idle:
                pending.append(event)
            else:
                pending_block = core.record(event)
            state.ack_one(lease_id, lease, sequence)
            section.open = False
        if not sequence & SAMPLE:
            core.measures.holds.observe(max(0, now - lease_id) / NS)
        if pending_block is not None:
            core.journal.commit(pending_block)
            core.confirm()
        return True

    def try_nack(self, deliveries: list[Delivery], reason: str, delay: Duration | None) -> list[int]:
        """As `Queue.nack`, but return the ids that were lost."""
        return self.return_ids(by_lease(deliveries), reason, delay)

    def try_release(self, deliveries: list[Delivery]) -> list[int]:
        """As `Queue.release`, but return the ids that were lost."""
        return self.release_ids(by_lease(deliveries))

    def try_extend(self, deliveries: list[Delivery], duration: Duration | None) -> list[int]:
        """As `Queue.extend`, but return the ids that were lost."""
        return self.extend_ids(by_lease(deliveries), duration)


def raise_lost(queue: str, lost: list[int]) -> None:
    """Raise `LeaseLost` if the lease of messages was lost."""
    if lost:
        raise LeaseLost(
            f"the lease of {len(lost)} messages of the queue {queue!r} was lost (the first is {lost[0]}), and other "
            "consumers may have them: use a longer lease, or extend it in time",
            lost,
        )


def _checked(reason: str) -> str:
    if not isinstance(reason, str):
        raise InvalidArgument(f"a reason must be a str, not {type(reason).__name__}")
    # Characters that UTF-8 cannot encode (half of an emoji in an error's text) must not prevent returning a message.
    return reason[:REASON_MAX].encode("utf-8", "backslashreplace").decode()
