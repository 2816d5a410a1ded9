"""Leasing of messages: at once, after waiting, in shares for many callers; listeners; pausing."""

import threading
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from holdfast.base.clock import NS, Duration, duration_ns, positive_ns
from holdfast.base.errors import Closed, InvalidArgument
from holdfast.log.pending_block import PendingBlock
from holdfast.log.record import NO_HEADERS
from holdfast.queue.arguments import check_count
from holdfast.queue.events import encode, encode_lease_of_one
from holdfast.queue.expiry import Columns, Expiry
from holdfast.queue.journal import PENDING_MAX
from holdfast.queue.length_limit import LengthLimit
from holdfast.queue.messages import Delivery, make_delivery
from holdfast.queue.metrics import SAMPLE
from holdfast.queue.queue_core import QueueCore
from holdfast.queue.ready import Pick
from holdfast.queue.waiters import Waiter, shares

if TYPE_CHECKING:
    from holdfast.queue.queue import Queue

__all__ = ["LONGEST_SLEEP_S", "Demand", "Dispatcher", "Line"]

LONGEST_SLEEP_S = 1.0
"""The longest wait for a point in time: the wall clock may jump."""
_AT_ONCE = 128
"""How many demands of a line are served while the queue's lock is held: other threads must not wait for thousands."""


class Demand(Protocol):
    """A caller that wants messages."""

    @property
    def demand(self) -> int:
        """How many it wants at most."""
        ...

    @property
    def lease_ns(self) -> int:
        """How long they are leased."""
        ...

    @property
    def most_bytes(self) -> int | None:
        """After how many payload bytes it wants no more."""
        ...


D = TypeVar("D", bound=Demand)


class Line(Protocol[D]):
    """Callers that wait for messages elsewhere, in order of arrival. Called with the queue's lock held."""

    def first(self, count: int) -> Sequence[D]:
        """Return the first waiting callers, at most so many."""
        ...

    def waits(self, caller: D) -> bool:
        """Return whether a caller still waits."""
        ...

    def serve(self, caller: D, deliveries: list[Delivery]) -> None:
        """Give a caller its messages; it no longer waits."""
        ...


class Dispatcher:
    """Leases the messages of a queue. Owns whether it is paused; the waiting callers are in `WaitQueue`.

    Invariant: the caller that has waited longest is served first, and a leased message has one holder.
    """

    def __init__(
        self,
        queue: "Queue",
        core: QueueCore,
        expiry: Expiry,
        limit: LengthLimit,
        *,
        is_paused: Callable[[], bool],
        keep_paused: Callable[[bool], None],
    ) -> None:
        """Lease messages of this core, as deliveries of `queue`; the last two read and write the pause on disk."""
        self._queue = queue
        self._core = core
        self._expiry = expiry
        self._limit = limit
        self._log = core.log
        self._waiters = core.waiters
        self._pending = core.journal.pending
        self._pausing = threading.Lock()
        """For pause and resume; before the queue's lock."""
        self._is_paused, self._keep_paused = is_paused, keep_paused
        self._paused = not core.read_only and is_paused()
        """Whether no messages are delivered. The fast paths are disabled then, so that they need not check it."""
        core.allow_fast_path(not self._paused)

    # Leasing.

    def lease(
        self,
        count: int = 1,
        *,
        lease: Duration | None = None,
        wait: Duration | None = 0,
        most_bytes: int | None = None,
    ) -> list[Delivery]:
        """As `Queue.lease`."""
        check_count(count, "lease")
        return self._lease(count, lease, wait, most_bytes)

    def _lease(
        self, count: int, lease: Duration | None, wait: Duration | None, most_bytes: int | None = None
    ) -> list[Delivery]:
        core = self._core
        lease_ns = core.lease_ns if lease is None else positive_ns(lease, "lease")
        patience = None if wait is None else duration_ns(wait, "wait") / NS
        try:
            core.check_writable()
            if self._limit.drops_excess:
                self._limit.enforce()  # other writers of the log do not know the limit of this queue
            with core.lock, core.turn() as turn:
                if self._waiters.line:
                    self._serve_waiters(turn.now)
                deliveries, pending_block = self._lease_messages(count, lease_ns, turn.now, most_bytes)
            if not deliveries and patience != 0:
                core.commit(turn.pending_block)
                deliveries, pending_block = self._wait(count, lease_ns, patience)
        except Closed:
            if patience != 0 and self._waiters.sleep_to_the_end(patience):
                return []
            raise
        core.finish(pending_block or turn.pending_block)
        return deliveries

    def get(self, wait: Duration | None = 0, lease: Duration | None = None) -> Delivery | None:
        """As `Queue.get`."""
        core = self._core
        if lease is None and core.fast_path and (wait == 0 or wait is None or _is_sound(wait)):
            section = core.section
            with core.lock:
                if section.open:  # a change was cut off: the slow path repairs it
                    delivery = None
                else:
                    section.open = True
                    delivery = self._lease_one()
                    section.open = False
            if delivery is not None:
                return delivery
        deliveries = self._lease(1, lease, wait)
        return deliveries[0] if deliveries else None

    def deal(self, line: Line[D]) -> bool:
        """Lease the ready messages to the callers of a line, in shares, and make all leases durable together.

        Return whether some are left, because a caller had enough bytes: then deal again.
        """
        core = self._core
        core.check_writable()
        if self._limit.drops_excess:
            self._limit.enforce()
        with core.lock, core.turn() as turn:
            if self._waiters.line:
                self._serve_waiters(turn.now)
            ready = core.state.ready.count
        dealing = _Dealing(line, ready, [turn.pending_block])
        for start in range(0, len(dealing.callers), _AT_ONCE):
            with core.lock, core.turn() as turn:  # again: a change of another thread may have been cut off
                dealing.pending_blocks.append(turn.pending_block)
                self._deal_some(dealing, start, turn.now)
        for pending_block in dealing.pending_blocks:
            core.commit(pending_block)
        return dealing.is_partial

    def _deal_some(self, dealing: "_Dealing[D]", start: int, now: int) -> None:
        for caller, share in zip(dealing.callers[start : start + _AT_ONCE], dealing.shares[start:], strict=False):
            if not dealing.line.waits(caller):
                continue
            deliveries, pending_block = self._lease_messages(share, caller.lease_ns, now, caller.most_bytes)
            if not deliveries:  # other consumers have leased the rest
                break
            if pending_block is not dealing.pending_blocks[-1]:
                dealing.pending_blocks.append(pending_block)
            dealing.line.serve(caller, deliveries)
            if len(deliveries) < share:  # its `most_bytes` were reached: the rest is for the next callers
                dealing.is_partial = True

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        """As `Queue.listen`."""
        self._core.check_writable()
        if not callable(callback):
            raise InvalidArgument(f"listen needs a function, not {callback!r}")
        stop = self._waiters.listen(callback)
        self._core.alarm.wake()  # it may have slept past the delays
        return stop

    def _lease_messages(
        self, count: int, lease_ns: int, now: int, most_bytes: int | None = None
    ) -> tuple[list[Delivery], PendingBlock | None]:
        """Lease the next messages. Expired ones are dropped or dead-lettered, unreadable ones are dropped."""
        if self._paused:
            return [], None
        core, expiry = self._core, self._expiry
        state = core.state
        while True:
            ready = state.ready
            picks = ready.pick(count, expiry.starved(now) if ready.has_priorities else None)
            if not picks:
                return [], None
            ids, columns, overdue, lost = expiry.read(picks, now, most_bytes)
            if not (overdue or lost):
                break
            expiry.drop(overdue, lost, now)
        if most_bytes is not None:
            picks = _first_of(picks, len(ids))
        attempts = state.attempts_of(ids)
        event = state.new_lease(now, now + lease_ns, picks, attempts)
        pending_block = core.record(encode(event))
        state.lease(event, picks)
        if event.expires < core.alarm.at:
            core.alarm.by(event.expires)
        core.measures.waits.observe(max(0, now - columns[1][0]) / NS)
        return self._deliveries(ids, columns, attempts, picks, event.lease), pending_block

    def _deliveries(
        self, ids: list[int], columns: Columns, attempts: list[int] | None, picks: list[Pick], lease_id: int
    ) -> list[Delivery]:
        payloads, times, keys, headers = columns
        if self._core.state.ready.has_priorities or len(picks) > 1:
            priorities: Iterable[int] = _levels_of(picks)
        else:
            priorities = repeat(picks[0][0])
        columns_of_all = zip(
            ids,
            payloads,
            keys or repeat(None),
            headers or repeat(NO_HEADERS),
            attempts or repeat(1),
            times,
            priorities,
            repeat(lease_id),
            repeat(self._queue),
            strict=False,
        )
        return list(map(make_delivery, columns_of_all))

    def _lease_one(self) -> Delivery | None:
        """Lease the next message on the fast path, for messages one by one, in a fifth of the time.

        Return None if a condition of the fast path does not hold, or there is no message: then use the slow path.
        Called with the lock held.
        """
        core = self._core
        state = core.state
        now = core.now()
        if now >= state.leases.next_check or not state.plain or self._waiters.line or not core.fast_path:
            return None
        plain = state.ready.plain
        block = self._log.appender.pending_block
        first, payloads, scanned = block.first, block.payloads, state.scanned
        end = first + len(payloads)
        if scanned < end and (scanned < first or block.extras):
            return None
        if plain.count:
            sequence = plain.first
        elif scanned < end:
            sequence = scanned  # just put, and the next one
        else:
            return None
        if sequence >= first and not block.extras:
            payload, time = payloads[sequence - first], block.times[sequence - first]
        else:
            page = core.bodies.page(sequence)
            if page is None or page.keys or page.headers:
                return None
            payload, time = page.payloads[sequence - page.first], page.times[sequence - page.first]
            if page.unseen:
                core.bodies.note(page, 1)
        lease_id = state.last_lease + 1 if state.last_lease >= now else now
        expires = now + core.lease_ns
        event = encode_lease_of_one(now, lease_id, expires, sequence)
        alarm, pending = core.alarm, self._pending
        if len(pending) < PENDING_MAX and not alarm.idle:
            pending.append(event)
        else:
            core.record(event)
        state.lease_one(lease_id, expires, sequence)
        if expires < alarm.at:
            alarm.by(expires)
        if not sequence & SAMPLE:
            core.measures.waits.observe(max(0, now - time) / NS)
        delivery: Delivery = make_delivery((sequence, payload, None, NO_HEADERS, 1, time, 0, lease_id, self._queue))
        return delivery

    # Waiting.

    def _wait(self, count: int, lease_ns: int, patience: float | None) -> tuple[list[Delivery], PendingBlock | None]:
        core, waiters = self._core, self._waiters
        deadline = None if patience is None else core.clock.monotonic() + patience
        waiter = waiters.new(count, lease_ns)
        try:
            with core.lock, core.section:
                waiters.join(waiter)
            while True:
                seen = waiters.signals  # before the check: a later change is a newer signal
                with core.lock, core.section:
                    if waiter.result is None:
                        now = core.now()
                        swept = core.advance(now)
                        self._serve_waiters(now)
                        until = self._next_event_in(now)
                    if waiter.result is not None:
                        return waiter.result, waiter.pending_block
                core.finish(swept)
                left = until if deadline is None else min(until, deadline - core.clock.monotonic())
                if left <= 0 and deadline is not None and core.clock.monotonic() >= deadline:
                    return self._leave_line(waiter), waiter.pending_block
                waiters.wait(waiter, seen, min(max(left, 0.0), threading.TIMEOUT_MAX))
        except BaseException:
            waiter.gone = True  # first, and by an assignment: then nothing is leased to it, even if this is cut off
            if dealt := self._leave_line(waiter):  # leased just before it left the line
                self._queue.settler.try_release(dealt)
            raise

    def _leave_line(self, waiter: Waiter) -> list[Delivery]:
        """Stop waiting; return what was leased to this waiter. Takes the lock: nothing is leased to it afterwards."""
        with self._core.lock, self._core.section:
            self._waiters.leave(waiter)
            return waiter.result or []

    def _serve_waiters(self, now: int) -> None:
        """Lease ready messages to the waiting callers, in turn."""
        ready = self._core.state.ready
        if not ready or not (line := self._waiters.waiting()):
            return
        available = min(ready.count, sum(waiter.demand for waiter in line))
        for waiter, share in zip(line, shares([waiter.demand for waiter in line], available), strict=True):
            if share:
                deliveries, pending_block = self._lease_messages(share, waiter.lease_ns, now)
                if deliveries:
                    waiter.result, waiter.pending_block = deliveries, pending_block
                    self._waiters.serve(waiter)

    def _next_event_in(self, now: int) -> float:
        """Return the seconds until a delay or lease ends, at most one second; infinity if there is none."""
        state = self._core.state
        moments = [due for due in (state.delayed.next_due,) if due is not None]
        if (left := state.leases.due_in(now)) is not None:
            moments.append(now + left)
        if not moments:
            return float("inf")
        return max(0.0, min((min(moments) - now) / NS, LONGEST_SLEEP_S))

    # Pausing.

    @property
    def paused(self) -> bool:
        """Whether delivery is paused."""
        return self._is_paused() if self._core.read_only else self._paused

    def pause(self) -> None:
        """As `Queue.pause`."""
        self._core.check_writable()
        with self._pausing:
            if not self._paused:
                self._set_paused(True)
                try:
                    self._keep_paused(True)
                except BaseException:
                    self._set_paused(False)
                    self._waiters.wake()
                    raise

    def resume(self) -> None:
        """As `Queue.resume`."""
        self._core.check_writable()
        with self._pausing:
            if self._paused:
                self._keep_paused(False)
                self._set_paused(False)
        self._waiters.wake()

    def _set_paused(self, paused: bool) -> None:
        with self._core.lock, self._core.section:
            self._paused = paused
            self._core.allow_fast_path(not paused)

    def detach_after_fork(self) -> None:
        """Replace the lock, which a thread of the parent may hold."""
        self._pausing = threading.Lock()


class _Dealing(Generic[D]):
    """The callers that one call of `deal` serves, and what it has leased so far."""

    def __init__(self, line: Line[D], ready: int, pending_blocks: list[PendingBlock | None]) -> None:
        self.line = line
        self.callers = line.first(ready)
        self.shares = shares([caller.demand for caller in self.callers], ready)
        self.pending_blocks = pending_blocks
        self.is_partial = False


def _levels_of(picks: list[Pick]) -> list[int]:
    """Return the priority of each message."""
    return [priority for priority, start, stop in picks for _ in range(start, stop)]


def _first_of(picks: list[Pick], count: int) -> list[Pick]:
    """Return the first `count` messages of these picks."""
    found: list[Pick] = []
    for priority, start, stop in picks:
        if count <= 0:
            break
        found.append((priority, start, min(stop, start + count)))
        count -= stop - start
    return found


def _is_sound(wait: Duration) -> bool:
    return type(wait) in (int, float) and 0 < wait < 1e9  # type: ignore[operator]
