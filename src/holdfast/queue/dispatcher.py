"""Leasing, expiry, return and removal of messages. All methods require the queue lock."""

import logging
from collections.abc import Callable, Iterable
from itertools import repeat

from holdfast.base.clock import NS
from holdfast.base.errors import Closed, ReadOnly
from holdfast.log.pending_block import PendingBlock
from holdfast.log.record import NO_HEADERS, Headers
from holdfast.queue.body_cache import Page
from holdfast.queue.events import (
    Dropped,
    Event,
    Leased,
    LeasedSpan,
    Requeued,
    Transferring,
    encode,
    encode_lease_of_one,
)
from holdfast.queue.journal import PENDING_MAX
from holdfast.queue.lease import NEVER, Lease
from holdfast.queue.messages import Delivery, make_delivery
from holdfast.queue.queue_core import QueueCore
from holdfast.queue.ranges import spans_of
from holdfast.queue.waiters import shares

__all__ = ["LONGEST_SLEEP_S", "SAMPLE", "Core"]

logger = logging.getLogger("holdfast.queue")

SAMPLE = 15
"""Mask that selects every sixteenth of the messages that are leased one by one, for the latency histogram."""
EVENTS_MAX = 1000
"""The most events in one record of the journal."""
LONGEST_SLEEP_S = 1.0
"""The longest wait for a point in time: the wall clock may jump."""
Columns = tuple[list[bytes], list[int], list[bytes | None] | None, list[Headers] | None]
"""Payloads, times, and keys and headers if any message has some."""


class Core(QueueCore):
    """The part of a queue that changes its state, with the lock held: an event is journaled, then applied."""

    def _look(self, now: int) -> PendingBlock | None:
        """Bring the state up to now: new messages, due delays, expired leases. Called with the lock held.

        Return the pending block of the events for expired leases, to be committed; None if there are none. Raises
        `Closed`.
        """
        if self._closed is not None:
            raise Closed(*self._closed.args)
        if self._journal.broken or self._generation != self._state.generation:
            self._reload()
        if self.read_only:
            self.log.refresh()
            start, end = self._journal.log.readable()
            if not start <= self._followed <= end:  # its beginning was dropped, or its end was lost in a crash
                self._load()
            self._followed, _ = self._follow(self.queue_state, self._followed)
        queue_state = self.queue_state
        if queue_state.scanned != (end := self.log.visible_end):
            self._enter(queue_state, now, end, save=not self.read_only)
        if not queue_state.plain:
            queue_state.refresh_fast_path()
        if queue_state.delayed.count and (due := queue_state.delayed.next_due) is not None:
            if due <= now:
                queue_state.fire(now)
                self._waiters.tell()
            if self._waiters.listeners:
                self._schedule_due()
        if now >= queue_state.leases.next_check and not self.read_only:
            return self._expire(now)
        return None

    def _lease_messages(
        self, count: int, lease_ns: int, now: int, most_bytes: int | None = None
    ) -> tuple[list[Delivery], PendingBlock | None]:
        """Lease the next messages. Expired ones are dropped or dead-lettered, unreadable ones are dropped."""
        if self._paused:
            return [], None
        queue_state = self.queue_state
        ready = queue_state.ready
        while True:
            picks = ready.pick(count, self._starved(now))
            if not picks:
                return [], None
            ids, columns, overdue, lost = self._read_picks(picks, now, most_bytes)
            if not (overdue or lost):
                picks = _first_of(picks, len(ids))
                break
            self._drop_undeliverable(overdue, lost, now)
        spans: list[LeasedSpan] = []
        attempts: list[int] | None = None
        if len(queue_state.failures):
            attempts = [failure.attempts + 1 if (failure := queue_state.failures.get(id)) else 1 for id in ids]
            levels = [priority for priority, start, stop in picks for _ in range(start, stop)]
            for id, priority, attempt in zip(ids, levels, attempts, strict=True):
                if spans and spans[-1].stop == id and spans[-1][2:] == (priority, attempt):
                    spans[-1] = LeasedSpan(spans[-1].start, id + 1, priority, attempt)
                else:
                    spans.append(LeasedSpan(id, id + 1, priority, attempt))
        else:
            spans = [LeasedSpan(start, stop, priority, 1) for priority, start, stop in picks]
        lease_id = queue_state.last_lease + 1 if queue_state.last_lease >= now else now
        pending_block = self._record(encode(Leased(now, lease_id, now + lease_ns, spans)))
        lease = Lease(now + lease_ns, set())
        for priority, start, stop in picks:
            level = ready.levels[priority]
            if level.first == start:
                level.take_front(start, stop)
            else:
                level.remove(start, stop)
        for span in spans:
            queue_state.add_to_lease(lease, span)
        queue_state.last_lease = lease_id
        queue_state.leases.add(lease_id, lease)
        if lease.expires < self._tick_at:
            self._tick_at = lease.expires
            self._wake_ticker()
        queue_state.totals.leased += len(ids)
        payloads, times, keys, headers = columns
        if ready.has_priorities or len(picks) > 1:
            priorities: Iterable[int] = [priority for priority, start, stop in picks for _ in range(start, stop)]
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
            repeat(self),
            strict=False,
        )
        deliveries: list[Delivery] = list(map(make_delivery, columns_of_all))
        self._measures.waits.observe(max(0, now - times[0]) / NS)
        return deliveries, pending_block

    def _lease_one(self) -> Delivery | None:
        """Lease the next message on the fast path, for messages one by one, in a fifth of the time.

        Return None if a condition of the fast path does not hold, or there is no message: then use the slow path.
        Called with the lock held.
        """
        queue_state = self.queue_state
        leases = queue_state.leases
        now = self._now()
        if now >= leases.next_check or not queue_state.plain or self._waiters.line or not self._fast_path:
            return None
        plain = queue_state.ready.plain
        pending_block = self.log.pending_block
        scanned = queue_state.scanned
        end = pending_block.first + len(pending_block.payloads)
        if scanned < end and (scanned < pending_block.first or pending_block.extras):
            return None
        fresh = not plain.count
        if not fresh:
            sequence = plain.first
        elif scanned < end:
            sequence = scanned  # just put, and the next one: it need not be added to the ready set
        else:
            return None
        if sequence >= pending_block.first and not pending_block.extras:
            payload, time = (
                pending_block.payloads[sequence - pending_block.first],
                pending_block.times[sequence - pending_block.first],
            )
        else:
            page = self._bodies.page(sequence)
            if page is None or page.keys or page.headers:
                return None
            payload, time = page.payloads[sequence - page.first], page.times[sequence - page.first]
            if page.unseen:
                self._bodies.note(page, 1)
        lease_id = queue_state.last_lease + 1 if queue_state.last_lease >= now else now
        expires = now + self._lease_ns
        event = encode_lease_of_one(now, lease_id, expires, sequence)
        pending = self._pending
        if len(pending) < PENDING_MAX and not self._background_idle:
            pending.append(event)
        else:
            self._record(event)
        if fresh:
            queue_state.scanned = queue_state.dedup.scanned = sequence + 1
        else:
            plain.take_front(sequence, sequence + 1)
        queue_state.last_lease = lease_id
        if expires < leases.next_check or not leases.by_id:
            leases.next_check = expires
        leases.by_id[lease_id] = Lease(expires, {sequence})
        leases.count += 1
        queue_state.totals.leased += 1
        if expires < self._tick_at:
            self._tick_at = expires
            self._wake_ticker()
        if not sequence & SAMPLE:
            self._measures.waits.observe(max(0, now - time) / NS)
        delivery: Delivery = make_delivery((sequence, payload, None, NO_HEADERS, 1, time, 0, lease_id, self))
        return delivery

    def _read_picks(
        self, picks: list[tuple[int, int, int]], now: int, most_bytes: int | None = None
    ) -> tuple[list[int], Columns, list[int], list[int]]:
        """Return the columns of these messages, and which are expired or lost; limited to pages of so many bytes."""
        now = self._limit_holds.time(now)
        bytes_left = most_bytes if most_bytes is not None else 1 << 62
        ids: list[int] = []
        payloads: list[bytes] = []
        times: list[int] = []
        keys: list[bytes | None] | None = None
        headers: list[Headers] | None = None
        overdue: list[int] = []
        lost: list[int] = []
        for _, start, stop in picks:
            at = start
            while at < stop and bytes_left > 0:
                page = self._bodies.page(at)
                if page is None:
                    lost.append(at)
                    at += 1
                    continue
                first, end = at - page.first, min(stop, page.end) - page.first
                before = len(ids)
                ids += range(at, page.first + end)
                if page.unseen:
                    self._bodies.note(page, end - first)
                payloads += page.payloads[first:end]
                if most_bytes is not None:
                    bytes_left -= sum(map(len, page.payloads[first:end]))
                times += page.times[first:end]
                if page.keys is not None:
                    keys = [*(keys or _nones(before)), *page.keys[first:end]]
                elif keys is not None:
                    keys += _nones(end - first)
                if page.headers is not None:
                    headers = [*(headers or [NO_HEADERS] * before), *page.headers[first:end]]
                elif headers is not None:
                    headers += [NO_HEADERS] * (end - first)
                if page.lost:
                    lost += [page.first + index for index in range(first, end) if page.first + index in page.lost]
                if self._ttl_ns is not None or page.expiries is not None:
                    overdue += [page.first + index for index in range(first, end) if self._expiry(page, index) <= now]
                at = page.first + end
        return ids, (payloads, times, keys, headers), overdue, lost

    def _expiry(self, page: Page, index: int) -> int:
        """Return when a message's time to live ends."""
        own = page.expiries[index] if page.expiries is not None else 0
        if own:
            return own
        if self._ttl_ns is None:
            return NEVER
        return max(page.times[index], page.dues[index] if page.dues else 0) + self._ttl_ns

    def _starved(self, now: int) -> Callable[[int], bool] | None:
        if self._starvation_ns is None:
            return None
        cutoff = now - self._starvation_ns

        def starved(sequence: int) -> bool:
            page = self._bodies.page(sequence)
            if page is None:
                return True  # it cannot be read: leasing drops it
            index = sequence - page.first
            return max(page.times[index], page.dues[index] if page.dues else 0) <= cutoff

        return starved

    def _drop_undeliverable(self, overdue: list[int], lost: list[int], now: int) -> None:
        """Drop unreadable messages, and drop or dead-letter those whose time to live is over."""
        if lost:
            logger.error("unreadable messages dropped: queue=%s count=%d", self.name, len(lost), extra=self.fields)
            self._decide([Dropped(now, "damaged", spans_of(sorted(lost)))])
        overdue = sorted(set(overdue) - set(lost))
        if overdue:
            to_dead = self.settings.expired == "dead-letter"
            self._drop("ttl", "its time to live was over", overdue, now, dead_letter=to_dead)

    def _drop(
        self, cause: str, reason: str, sequences: list[int], now: int, *, dead_letter: bool
    ) -> PendingBlock | None:
        """Drop waiting messages, or dead-letter them."""
        if dead_letter and self.settings.dead_letter is not None:
            spans = [
                LeasedSpan(start, stop, priority, 0)
                for priority, level in enumerate(self.queue_state.ready.levels)
                for first, last in spans_of(sequences)
                for start, stop in level.within(first, last)
            ]
            return self._decide([Transferring(now, cause, reason, self.settings.dead_letter, 0, spans)])
        return self._decide([Dropped(now, cause, spans_of(sequences))])

    def _expire(self, now: int) -> PendingBlock | None:
        """End the expired leases: their messages are ready again, or dead. Return the pending block of the events."""
        pending_block: PendingBlock | None = None
        events: list[Event] = []
        expired = self.queue_state.leases.expired(now)
        for lease_id in expired:
            lease = self.queue_state.leases.by_id[lease_id]
            events += self._requeue_events(now, "expired", "the lease ran out", lease_id, lease.spans(lease.left), 0)
            if len(events) >= EVENTS_MAX:  # a record of the journal has its limit, too
                pending_block, events = self._decide(events), []
        if events:
            pending_block = self._decide(events)
        if expired:
            self._waiters.wake()
        return pending_block

    def _schedule_due(self) -> None:
        """Schedule a tick for when the next delay ends: listeners do not watch the clock."""
        if (due := self.queue_state.delayed.next_due) is not None and due < self._tick_at:
            self._tick_at = due
            self._wake_ticker()

    def _requeue_events(
        self, now: int, cause: str, reason: str, lease_id: int, spans: list[LeasedSpan], delay_ns: int | None
    ) -> list[Event]:
        """Return the events for returned messages: redelivered now, after a delay, or dead-lettered.

        `delay_ns` None means the backoff.
        """
        again: dict[int, list[LeasedSpan]] = {}
        dead: list[LeasedSpan] = []
        for span in spans:
            if cause != "released" and self._max_attempts is not None and span.attempt >= self._max_attempts:
                dead.append(span)
                continue
            delay = self.settings.backoff.delay_ns(span.attempt) if delay_ns is None else delay_ns
            again.setdefault(now + delay, []).append(span)
        events: list[Event] = [Requeued(now, cause, reason, lease_id, due, part) for due, part in again.items()]
        if dead and self.settings.dead_letter is not None:
            events.append(Transferring(now, "attempts", reason, self.settings.dead_letter, lease_id, dead))
        elif dead:
            logger.warning(
                "messages dropped after too many attempts, no dead letter queue: queue=%s", self.name, extra=self.fields
            )
            events.append(Dropped(now, "attempts", [(span.start, span.stop) for span in dead]))
        return events

    def _serve_waiters(self, now: int) -> None:
        """Lease ready messages to the waiting callers, in turn."""
        if not self.queue_state.ready or not (line := self._waiters.waiting()):
            return
        available = min(self.queue_state.ready.count, sum(waiter.demand for waiter in line))
        for waiter, share in zip(line, shares([waiter.demand for waiter in line], available), strict=True):
            if share:
                deliveries, pending_block = self._lease_messages(share, waiter.lease_ns, now)
                if deliveries:
                    waiter.result, waiter.pending_block = deliveries, pending_block
                    self._waiters.serve(waiter)

    def _next_event_in(self, now: int) -> float:
        """Return the seconds until a delay or lease ends, at most one second; infinity if there is none."""
        moments = [due for due in (self.queue_state.delayed.next_due,) if due is not None]
        if (left := self.queue_state.leases.due_in(now)) is not None:
            moments.append(now + left)
        if not moments:
            return float("inf")
        return max(0.0, min((min(moments) - now) / NS, LONGEST_SLEEP_S))

    def _sweep_overdue(self, now: int) -> int:
        """Drop or dead-letter expired messages at the head, without a consumer; return when the next may expire."""
        soonest = NEVER
        for priority, level in enumerate(self.queue_state.ready.levels):
            while level:
                spans = [(priority, start, stop) for start, stop in level.front(256)]
                ids, _, overdue, lost = self._read_picks(spans, now)
                self._drop_undeliverable(overdue, lost, now)
                gone = {*overdue, *lost}
                if len(gone) < len(ids):
                    soonest = min(soonest, *(self._expiry_of(one) for one in ids if one not in gone))
                    break
        return soonest

    def _expiry_of(self, sequence: int) -> int:
        page = self._bodies.page(sequence)
        return NEVER if page is None else self._expiry(page, sequence - page.first)

    def _commit_later(self, pending_block: PendingBlock | None) -> None:
        """Do nothing: the next commit, or the tick, makes the events of `_look` durable."""

    def _check_open(self) -> None:
        if self._closed is not None:
            raise Closed(*self._closed.args)

    def _check_writable(self) -> None:
        self._check_open()
        if self.read_only:
            raise ReadOnly(
                f"the queue {self.name!r} was opened read-only: open the store without read_only=True to change it"
            )


def _first_of(picks: list[tuple[int, int, int]], count: int) -> list[tuple[int, int, int]]:
    """Return the first `count` messages of these picks."""
    found: list[tuple[int, int, int]] = []
    for priority, start, stop in picks:
        if count <= 0:
            break
        found.append((priority, start, min(stop, start + count)))
        count -= stop - start
    return found


def _nones(count: int) -> list[bytes | None]:
    return [None] * count
