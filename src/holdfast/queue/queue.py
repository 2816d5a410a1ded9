"""What is a queue? A view of a log for those who work: put, lease, ack, and what happens when that goes wrong."""

import threading
from collections.abc import Callable, Iterable, Iterator

from holdfast.base.clock import NS, Duration, Instant, duration_ns
from holdfast.base.errors import Closed, InvalidArgument, LeaseLost, ReadOnly
from holdfast.log.draft import Draft
from holdfast.log.record import NO_HEADERS
from holdfast.queue.core import SAMPLE
from holdfast.queue.delivery import DeadLetter, Delivery, Waiting, by_lease, listed
from holdfast.queue.events import Acked, Event, Extended, Purged, Sought, encode_ack_of_one
from holdfast.queue.journal import PENDING_MAX
from holdfast.queue.moves import dead_letter_of
from holdfast.queue.putting import Putting
from holdfast.queue.ranges import spans_of
from holdfast.queue.settings import positive_ns
from holdfast.queue.stats import QueueStats
from holdfast.queue.waiting import Waiter

__all__ = ["Queue"]

REASON_MAX = 4096
"""Characters of a reason that are kept."""
Stop = threading.Event | Callable[[], bool]


class Queue(Putting):
    """A work queue on a log; made by `Store.queue`.

    A message is delivered until it is acked: to one consumer at a time, oldest first in the highest priority. All
    methods may be called from any thread.
    """

    # Taking.

    def lease(self, count: int = 1, *, lease: Duration | None = None, wait: Duration | None = 0) -> list[Delivery]:
        """Up to `count` messages, held for `lease` seconds (the queue's own if None), oldest first in the highest
        priority.

        Where there is none, wait up to `wait` seconds for at least one; None waits for ever. Who waits longest is
        served first, and messages that come while several wait are dealt to them in turns.
        """
        _check_count(count, "lease")
        lease_ns = self._lease_ns if lease is None else positive_ns(lease, "lease")
        patience = None if wait is None else duration_ns(wait, "wait") / NS
        self._check_writable()
        if self._drops_excess:
            self._shorten()  # others may have put into the log, who do not know our limit
        with self._lock, self._whole:
            now = self._now()
            swept = self._look(now)
            if self._waiters.line:
                self._deal(now)
            deliveries, draft = self._hand_out(count, lease_ns, now)
        if not deliveries and patience != 0:
            self._commit(swept)
            deliveries, draft = self._wait(count, lease_ns, patience)
        self._commit(draft or swept)
        if self.standing.moving:
            self.carry()
        return deliveries

    def get(self, wait: Duration | None = 0, lease: Duration | None = None) -> Delivery | None:
        """One message, or None if there is none within `wait` seconds."""
        if lease is None and self._quick and (wait == 0 or wait is None or _is_sound(wait)):
            with self._lock:
                try:
                    delivery = self._hand_out_one()
                except BaseException:
                    self._spoil()
                    raise
            if delivery is not None:
                return delivery
        deliveries = self.lease(1, lease=lease, wait=wait)
        return deliveries[0] if deliveries else None

    def consume(
        self, batch: int = 100, stop: Stop | None = None, *, lease: Duration | None = None
    ) -> Iterator[Delivery]:
        """Messages as they come, leased `batch` at a time, until `stop` is set (or says so). Each is yours to ack.

        What was leased and not yet handed out when you leave the loop is given back untried.
        """
        said: Callable[[], bool] = stop.is_set if isinstance(stop, threading.Event) else stop or (lambda: False)
        if not callable(said):
            raise InvalidArgument(f"stop must be a threading.Event or a function, not {stop!r}")
        half_ns = (self._lease_ns if lease is None else positive_ns(lease, "lease")) // 2
        waiting: list[Delivery] = []
        try:
            while not said():
                waiting = self.lease(batch, lease=lease, wait=0.5)[::-1]
                while waiting and not said():
                    if self._now() - waiting[-1].lease > half_ns:
                        # The work is slower than the batch is long. What nobody has seen must not run out: that would
                        # count as a failure, and make dead letters of messages that were never tried.
                        self.try_release(waiting)
                        waiting = []
                        break
                    yield waiting.pop()
        finally:
            if waiting and not self.closed:
                self.try_release(waiting)

    def _wait(self, count: int, lease_ns: int, patience: float | None) -> tuple[list[Delivery], Draft | None]:
        waiters = self._waiters
        deadline = None if patience is None else self._clock.monotonic() + patience
        with self._lock, self._whole:
            waiter = waiters.join(count, lease_ns)
        try:
            while True:
                seen = waiters.signals  # before looking: what comes after is a newer sign
                with self._lock, self._whole:
                    if waiter.result is None:
                        now = self._now()
                        swept = self._look(now)
                        self._deal(now)
                        until = self._next_event_in(now)
                    if waiter.result is not None:
                        return waiter.result, waiter.draft
                self._commit(swept)
                if self.standing.moving:
                    self.carry()
                left = until if deadline is None else min(until, deadline - self._clock.monotonic())
                if left <= 0 and deadline is not None and self._clock.monotonic() >= deadline:
                    return self._leave_line(waiter), waiter.draft
                waiters.wait(waiter, seen, min(max(left, 0.0), threading.TIMEOUT_MAX))
        except BaseException:
            if dealt := self._leave_line(waiter):  # in the moment of giving up: it takes nothing with it
                self.try_release(dealt)
            raise

    def _leave_line(self, waiter: Waiter) -> list[Delivery]:
        """Wait no longer; with the lock held, so that from here on nobody deals to it."""
        with self._lock, self._whole:
            self._waiters.leave(waiter)
            return waiter.result or []

    # Giving back.

    def ack(self, deliveries: Iterable[Delivery]) -> None:
        """They are done, and never come back: one journal record for all.

        Raises `LeaseLost` for those whose lease is no longer ours; the others are acked.
        """
        deliveries = listed(deliveries)
        lost: list[int] = []
        parts: list[tuple[int, list[tuple[int, int]]]] = []
        now = self._now()
        with self._lock, self._whole:
            self._check_writable()
            draft = self._look(now)
            standing = self.standing
            for lease_id, ids in by_lease(deliveries).items():
                lease = standing.leases.by_id.get(lease_id)
                if lease is None or not ids <= lease.left:
                    held = set() if lease is None else lease.left
                    lost += sorted(ids - held)
                    ids &= held
                if ids:
                    parts.append((lease_id, spans_of(sorted(ids))))
            if parts:
                draft = self._decide([Acked(now, parts)])
        if deliveries:
            self._measures.holds.observe(max(0, now - deliveries[0].lease) / NS)
        self._commit(draft)
        self._raise_lost(lost)

    def ack_one(self, delivery: Delivery) -> bool:
        """Ack one delivery; False when its lease is no longer ours. The short way for `Delivery.ack`."""
        sequence, lease_id = delivery[0], delivery[7]
        now = self._now()
        with self._lock:
            try:
                if now >= self.standing.leases.next_check or not self._quick:
                    self._check_writable()
                    self._commit_later(self._look(now))
                standing = self.standing
                leases = standing.leases
                lease = leases.by_id.get(lease_id)
                if lease is None or sequence not in lease.left:
                    return False
                event = encode_ack_of_one(now, lease_id, sequence)
                draft = None
                if self._quick and len(self._pending) < PENDING_MAX and not self._asleep:
                    self._pending.append(event)
                else:
                    draft = self._record(event)
                left = lease.left
                if len(left) == 1:
                    del leases.by_id[lease_id]
                left.remove(sequence)
                leases.count -= 1
                if not standing.plain:
                    standing.failures.forget(sequence, sequence + 1)
                standing.totals.acked += 1
            except BaseException:
                self._spoil()
                raise
        if not sequence & SAMPLE:
            self._measures.holds.observe(max(0, now - lease_id) / NS)
        if draft is not None:
            self._journal.commit(draft)
        return True

    def nack(self, deliveries: Iterable[Delivery], reason: str = "", delay: Duration | None = None) -> None:
        """They failed: they come back after `delay` (the queue's backoff if None), or become dead letters.

        Raises `LeaseLost` for those whose lease is no longer ours; the others are given back.
        """
        self._raise_lost(self.try_nack(listed(deliveries), reason, delay))

    def extend(self, deliveries: Iterable[Delivery], duration: Duration | None = None) -> None:
        """Hold them, and all that was leased with them, for so long from now on; may shorten."""
        self._raise_lost(self.try_extend(listed(deliveries), duration))

    def release(self, deliveries: Iterable[Delivery]) -> None:
        """Give them back untried: they are ready at once, and the delivery does not count."""
        self._raise_lost(self.try_release(listed(deliveries)))

    def try_nack(self, deliveries: list[Delivery], reason: str, delay: Duration | None) -> list[int]:
        """As `nack`; the ids of those that were lost."""
        if not isinstance(reason, str):
            raise InvalidArgument(f"a reason must be a str, not {type(reason).__name__}")
        # What UTF-8 cannot hold (half of a cut emoji in an error's text) must not keep a message from being given back.
        reason = reason[:REASON_MAX].encode("utf-8", "backslashreplace").decode()
        return self._give_back("nacked", deliveries, reason, None if delay is None else duration_ns(delay, "delay"))

    def try_release(self, deliveries: list[Delivery]) -> list[int]:
        """As `release`; the ids of those that were lost."""
        return self._give_back("released", deliveries, "", 0)

    def _give_back(self, cause: str, deliveries: list[Delivery], reason: str, delay_ns: int | None) -> list[int]:
        lost: list[int] = []
        events: list[Event] = []
        with self._lock, self._whole:
            self._check_writable()
            now = self._now()
            draft = self._look(now)
            for lease_id, ids in by_lease(deliveries).items():
                lease = self.standing.leases.by_id.get(lease_id)
                held = ids & lease.left if lease is not None else set()
                lost += sorted(ids - held)
                if lease is not None and held:
                    events += self._returns(now, cause, reason, lease_id, lease.spans(held), delay_ns)
            if events:
                draft = self._decide(events)
        self._commit(draft)
        if self.standing.moving:
            self.carry()
        if self._waiters.line:
            self._waiters.wake()
        return lost

    def try_extend(self, deliveries: list[Delivery], duration: Duration | None) -> list[int]:
        """As `extend`; the ids of those that were lost."""
        lease_ns = self._lease_ns if duration is None else duration_ns(duration, "duration")
        lost: list[int] = []
        with self._lock, self._whole:
            self._check_writable()
            now = self._now()
            draft = self._look(now)
            events: list[Event] = []
            for lease_id, ids in by_lease(deliveries).items():
                lease = self.standing.leases.by_id.get(lease_id)
                if lease is None:
                    lost += sorted(ids)
                    continue
                lost += sorted(ids - lease.left)
                if ids & lease.left:
                    events.append(Extended(now, lease_id, now + lease_ns))
            if events:
                draft = self._decide(events)
                if now + lease_ns < self._tick_at:
                    self._tick_at = now + lease_ns
                    self._wake_ticker()
        self._commit(draft)
        if self._waiters.line:
            self._waiters.wake()
        return lost

    # Looking, and moving the queue itself.

    def peek(self, count: int = 10) -> list[Waiting]:
        """The next messages as they would be delivered, without taking them."""
        _check_count(count, "peek")
        found: list[Waiting] = []
        with self._lock, self._whole:
            now = self._now()
            self._commit_later(self._look(now))
            wanted = count
            while True:  # some of the next ones may be overdue, and nobody has swept them up yet
                picks = self.standing.ready.pick(wanted, self._starved(now))
                alive = [
                    (priority, sequence)
                    for priority, start, stop in picks
                    for sequence in range(start, stop)
                    if (page := self._bodies.page(sequence)) and self._expiry(page, sequence - page.first) > now
                ]
                if len(alive) >= count or wanted > self.standing.ready.count:
                    break
                wanted *= 4
            for priority, sequence in alive[:count]:
                if page := self._bodies.page(sequence):
                    index = sequence - page.first
                    failure = self.standing.failures.get(sequence)
                    found.append(
                        Waiting(
                            sequence,
                            page.payloads[index],
                            page.keys[index] if page.keys else None,
                            page.headers[index] if page.headers else NO_HEADERS,
                            failure.attempts if failure else 0,
                            page.times[index],
                            priority,
                        )
                    )
        return found

    def dead_letters(self, count: int | None = None) -> list[DeadLetter]:
        """The messages of this queue that could not be delivered, oldest first; they stay where they are."""
        if count is not None:
            _check_count(count, "dead_letters")
        self._check_open()
        target = self._dead_letter_queue()
        if target is None:
            return []
        found: list[DeadLetter] = []
        with target._lock, target._whole:
            target._commit_later(target._look(target._now()))
            for _, sequence in sorted(target._waiting_sequences(), key=lambda pair: pair[1]):
                page = target._bodies.page(sequence)
                if page is None:
                    continue
                index = sequence - page.first
                letter = dead_letter_of(
                    sequence,
                    page.payloads[index],
                    page.keys[index] if page.keys else None,
                    page.headers[index] if page.headers else NO_HEADERS,
                    page.times[index],
                )
                if letter.queue in (self.name, ""):
                    found.append(letter)
                    if count is not None and len(found) >= count:
                        break
        return found

    def redrive(self, ids: Iterable[int] | None = None) -> int:
        """Move dead letters (all, or those with these ids) back into this queue, and return how many.

        Each gets a new id, its attempts start again, and a header counts how often this was done.
        """
        self._check_writable()
        wanted: set[int] | None = None
        if ids is not None:
            listed: list[object] = [ids] if isinstance(ids, int | str | bytes) else list(ids)
            if isinstance(ids, int) or not all(type(id) is int for id in listed):
                raise InvalidArgument(f"redrive takes ids as dead_letters() gives them, not {ids!r}")
            wanted = {id for id in listed if isinstance(id, int)}
        target = self._dead_letter_queue()
        return 0 if target is None else target.send_back(wanted, self.name)

    def purge(self) -> int:
        """Drop every message that is not leased, delayed ones too; how many."""
        self._check_writable()
        with self._lock, self._whole:
            now = self._now()
            self._look(now)
            count = self.standing.ready.count + self.standing.delayed.count
            draft = self._decide([Purged(now, self.standing.scanned)])
        self._commit(draft)
        return count

    def seek(self, sequence: int) -> None:
        """Stand at this sequence of the log: what is before it is done, what is from it on is delivered (again).

        Leases are void and attempts start again. From 0 this replays all that the log has kept.
        """
        self._check_writable()
        with self._lock, self._whole:
            now = self._now()
            self._look(now)
            start, end = self.log.start, self.log.visible_end
            if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence <= end:
                raise InvalidArgument(f"cannot seek to {sequence!r}: the log {self.log.name!r} ends at {end}")
            position = max(sequence, start)
            if self._floor_kept > position:
                self._keep_floor(position)  # before retention could take what will be wanted again
            draft = self._decide([Sought(now, position)])
            self._catch_up(now)
        self._commit(draft)
        self._waiters.wake()

    def seek_time(self, when: Instant) -> None:
        """Stand at the first message that was not put before `when`."""
        self.seek(self.log.sequence_at(when))

    def sync(self) -> None:
        """Return when all that was put, and all that was decided, is on disk, whatever the flush mode."""
        self._check_writable()
        self.log.sync()
        self._settle_journal()

    def stats(self) -> QueueStats:
        """Counts, ages and rates."""
        dead = self._dead_letter_queue()
        dead_count = dead.waiting() if dead is not None else 0
        with self._lock, self._whole:
            now = self._now()
            self._commit_later(self._look(now))
            standing = self.standing
            totals = standing.totals
            firsts = [level.first for level in standing.ready.levels if level]
            page = self._bodies.page(min(firsts)) if firsts else None
            oldest = max(0, now - page.times[min(firsts) - page.first]) / NS if page is not None else None
            return QueueStats(
                name=self.name,
                log=self.log.name,
                ready=standing.ready.count,
                delayed=standing.delayed.count,
                leased=standing.leases.count,
                moving=len(standing.moving),
                dead=dead_count,
                leases=len(standing.leases.by_id),
                oldest_age=oldest,
                next_due=standing.delayed.next_due,
                put_rate=self._measures.put_rate.per_second(),
                lease_rate=self._measures.lease_rate.per_second(),
                ack_rate=self._measures.ack_rate.per_second(),
                total_leased=totals.leased,
                total_acked=totals.acked,
                total_nacked=totals.nacked,
                total_expired=totals.expired,
                total_dead=totals.dead,
                total_redriven=totals.redriven,
                total_dropped=totals.dropped,
                duplicates=self._measures.duplicates.value,
                dedup_window=standing.dedup.window_at(now) / NS,
                dedup_ids=standing.dedup.count,
                dedup_shortened=standing.dedup.shortened_to is not None,
                wait_p50=self._measures.waits.quantile(0.5),
                wait_p99=self._measures.waits.quantile(0.99),
                hold_p50=self._measures.holds.quantile(0.5),
                hold_p99=self._measures.holds.quantile(0.99),
                orphans=self._checkpoint.orphans,
                lag=max(0, self.log.end - standing.floor()),
            )

    def waiting(self) -> int:
        """How many messages are ready or delayed."""
        with self._lock, self._whole:
            self._commit_later(self._look(self._now()))
            return self.standing.ready.count + self.standing.delayed.count

    def _dead_letter_queue(self) -> "Queue | None":
        name = self.settings.dead_letter
        return self._find_queue(name) if name is not None else None

    def _commit_later(self, draft: Draft | None) -> None:
        """What a look has swept up need not be durable for the caller: the next commit, or the tick, takes it along."""

    def _check_open(self) -> None:
        if self._closed is not None:
            raise Closed(*self._closed.args)

    def _check_writable(self) -> None:
        self._check_open()
        if self.read_only:
            raise ReadOnly(f"the queue {self.name!r} was opened read-only: open the store without read_only=True")

    def _raise_lost(self, lost: list[int]) -> None:
        if lost:
            raise LeaseLost(
                f"the lease of {len(lost)} messages of {self.name!r} (the first is {lost[0]}) is no longer ours, and "
                "other consumers may have them: lease for longer, or extend in time",
                lost,
            )


def _check_count(count: int, what: str) -> None:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidArgument(f"{what} needs a count from 1 up, not {count!r}")


def _is_sound(wait: Duration) -> bool:
    return type(wait) in (int, float) and 0 < wait < 1e9  # type: ignore[operator]
