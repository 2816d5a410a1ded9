"""The public `Queue`: a work-queue view of a log with put, lease, ack, retries, dead letters and seek."""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from holdfast.base.clock import NS, Duration, Instant, duration_ns
from holdfast.base.errors import Closed, InvalidArgument
from holdfast.log.pending_block import PendingBlock
from holdfast.log.record import NO_HEADERS
from holdfast.queue.body_cache import RECENT_PART
from holdfast.queue.dead_letter_forwarder import is_forwarded
from holdfast.queue.events import Purged, SeekTo
from holdfast.queue.inspector import QueueInspector, check_count, check_position, checked_ids
from holdfast.queue.messages import DeadLetter, Delivery, PeekedMessage
from holdfast.queue.settings import positive_ns
from holdfast.queue.stats import QueueStats
from holdfast.queue.transfers import dead_letter_of
from holdfast.queue.waiters import Waiter

__all__ = ["Queue"]

Stop = threading.Event | Callable[[], bool]


class Queue(QueueInspector):
    """A work queue on a log; created by `Store.queue`.

    A message is delivered until it is acknowledged: to one consumer at a time, oldest first in the highest priority.
    All methods may be called from any thread. `QueueCore` describes the locks.
    """

    def _opened(self) -> None:
        """Start tracing if the application does."""
        if "opentelemetry.trace" in sys.modules:
            from holdfast.queue.tracing import follow  # noqa: PLC0415

            follow(self)

    def tick(self) -> float | None:
        """As in `Intake`; also check whether the application has begun to trace."""
        self._opened()
        return super().tick()

    # Leasing.

    def lease(
        self,
        count: int = 1,
        *,
        lease: Duration | None = None,
        wait: Duration | None = 0,
        most_bytes: int | None = None,
    ) -> list[Delivery]:
        """Return up to `count` messages, leased for `lease` seconds (the queue's own if None), by priority and age.

        The oldest of the highest priority come first. If there is none, wait up to `wait` seconds for at least one;
        None waits forever. The call that has waited longest is served first, and messages that arrive while several
        calls wait are shared among them in turn. With `most_bytes`, no more are leased once their payloads have so many
        bytes; it does not apply to messages that the call had to wait for.
        """
        check_count(count, "lease")
        lease_ns = self._lease_ns if lease is None else positive_ns(lease, "lease")
        patience = None if wait is None else duration_ns(wait, "wait") / NS
        try:
            self._check_writable()
            if self._drops_excess:
                self._enforce_limit()  # other writers of the log do not know the limit of this queue
            with self._lock, self._whole:
                now = self._now()
                swept = self._look(now)
                if self._waiters.line:
                    self._serve_waiters(now)
                deliveries, pending_block = self._lease_messages(count, lease_ns, now, most_bytes)
            if not deliveries and patience != 0:
                self._commit(swept)
                deliveries, pending_block = self._wait(count, lease_ns, patience)
        except Closed:
            if patience != 0 and self._waiters.sleep_to_the_end(patience):
                return []
            raise
        self._commit(pending_block or swept)
        if self.queue_state.moving:
            self._start_transfers()
        return deliveries

    def get(self, wait: Duration | None = 0, lease: Duration | None = None) -> Delivery | None:
        """Return one message, or None if there is none within `wait` seconds; `wait=None` waits forever."""
        if lease is None and self._fast_path and (wait == 0 or wait is None or _is_sound(wait)):
            section = self._whole
            with self._lock:
                if section.open:  # a change was cut off: the slow path repairs it
                    delivery = None
                else:
                    section.open = True
                    delivery = self._lease_one()
                    section.open = False
            if delivery is not None:
                return delivery
        deliveries = self.lease(1, lease=lease, wait=wait)
        return deliveries[0] if deliveries else None

    def consume(
        self, batch: int = 100, stop: Stop | None = None, *, lease: Duration | None = None
    ) -> Iterator[Delivery]:
        """Yield messages as they arrive, leased `batch` at a time, until `stop` is set (or returns True). Ack each.

        Messages that were leased and not yet yielded when you leave the loop are released; so are those that are not
        yet yielded after half of their lease.
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
                        # The consumer is too slow for the batch. Leases of unseen messages must not expire: that would
                        # count as a failure, and dead-letter messages that were never tried.
                        self.try_release(waiting)
                        waiting = []
                        break
                    yield waiting.pop()
        finally:
            if waiting and not self.closed:
                self.try_release(waiting)

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever there may be more to lease; call the result to stop.

        It is called from any thread, perhaps with locks of the queue held: it must return at once, and only schedule
        the work that leases. It is not called for messages that are ready already.
        """
        self._check_writable()
        if not callable(callback):
            raise InvalidArgument(f"listen needs a function, not {callback!r}")
        stop = self._waiters.listen(callback)
        self._wake_ticker()  # it may have slept past the delays
        return stop

    def _wait(self, count: int, lease_ns: int, patience: float | None) -> tuple[list[Delivery], PendingBlock | None]:
        waiters = self._waiters
        deadline = None if patience is None else self._clock.monotonic() + patience
        waiter = waiters.new(count, lease_ns)
        try:
            with self._lock, self._whole:
                waiters.join(waiter)
            while True:
                seen = waiters.signals  # before the check: a later change is a newer signal
                with self._lock, self._whole:
                    if waiter.result is None:
                        now = self._now()
                        swept = self._look(now)
                        self._serve_waiters(now)
                        until = self._next_event_in(now)
                    if waiter.result is not None:
                        return waiter.result, waiter.pending_block
                self._commit(swept)
                if self.queue_state.moving:
                    self._start_transfers()
                left = until if deadline is None else min(until, deadline - self._clock.monotonic())
                if left <= 0 and deadline is not None and self._clock.monotonic() >= deadline:
                    return self._leave_line(waiter), waiter.pending_block
                waiters.wait(waiter, seen, min(max(left, 0.0), threading.TIMEOUT_MAX))
        except BaseException:
            waiter.gone = True  # first, and by an assignment: then nothing is leased to it, even if this is cut off
            if dealt := self._leave_line(waiter):  # leased just before it left the line
                self.try_release(dealt)
            raise

    def _leave_line(self, waiter: Waiter) -> list[Delivery]:
        """Stop waiting; return what was leased to this waiter. Takes the lock: nothing is leased to it afterwards."""
        with self._lock, self._whole:
            self._waiters.leave(waiter)
            return waiter.result or []

    # Inspecting, and moving the position.

    def peek(self, count: int = 10) -> list[PeekedMessage]:
        """Return the next messages in order of delivery, without leasing them."""
        check_count(count, "peek")
        with self._lock, self._whole:
            now = self._now()
            self._commit_later(self._look(now))
            return self._peeked(count, now)

    def _peeked(self, count: int, now: int) -> list[PeekedMessage]:
        found: list[PeekedMessage] = []
        wanted = count
        while True:  # some of the next ones may be expired, and not dropped yet
            picks = self.queue_state.ready.pick(wanted, self._starved(now))
            alive = [
                (priority, sequence)
                for priority, start, stop in picks
                for sequence in range(start, stop)
                if (page := self._bodies.page(sequence)) and self._expiry(page, sequence - page.first) > now
            ]
            if len(alive) >= count or wanted > self.queue_state.ready.count:
                break
            wanted *= 4
        for priority, sequence in alive[:count]:
            if page := self._bodies.page(sequence):
                index = sequence - page.first
                failure = self.queue_state.failures.get(sequence)
                found.append(
                    PeekedMessage(
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
        """Return the dead letters of this queue, oldest first, without moving them."""
        if count is not None:
            check_count(count, "dead_letters")
        self._check_open()
        target = self._dead_letter_queue()
        dead = map(dead_letter_of, target.each_ready()) if target is not None else iter(())
        return list(islice((one for one in dead if one.queue in (self.name, "")), count))

    def redrive(self, ids: Iterable[int] | None = None) -> int:
        """Move dead letters (all, or those with these ids) back into this queue, and return how many.

        Each gets a new id, its attempts start again, and a header counts its redrives.
        """
        self._check_writable()
        wanted = None if ids is None else checked_ids(ids, "redrive", "dead_letters()")
        target = self._dead_letter_queue()
        return 0 if target is None else target.redrive_to(wanted, self.name)

    def delete_dead_letters(self, ids: Iterable[int] | None = None) -> int:
        """Drop dead letters of this queue (all, or those with these ids) permanently, and return how many."""
        self._check_writable()
        wanted = None if ids is None else checked_ids(ids, "delete_dead_letters", "dead_letters()")
        target = self._dead_letter_queue()
        return 0 if target is None else target.discard_dead_letters(wanted, self.name)

    def purge(self) -> int:
        """Drop every message that is not leased, also delayed ones; return how many."""
        self._check_writable()
        with self._lock, self._whole:
            now = self._now()
            self._look(now)
            count = self.queue_state.ready.count + self.queue_state.delayed.count
            pending_block = self._decide([Purged(now, self.queue_state.scanned)])
        self._commit(pending_block)
        return count

    def seek(self, sequence: int) -> None:
        """Move the position: earlier messages count as acknowledged, later ones are delivered, again if necessary.

        All leases end and attempts start again. Position 0 replays all messages that the log has kept.
        """
        self._check_writable()
        with self._lock, self._whole:
            now = self._now()
            self._look(now)
            start, end = self.log.start, self.log.visible_end
            position = max(check_position(sequence, end, self.log.name), start)
            if self._floor_kept > position:
                self._keep_floor(position)  # before retention could drop messages that are needed again
            pending_block = self._decide([SeekTo(now, position)])
            self._catch_up(now)
        self._commit(pending_block)
        self._waiters.wake()

    def seek_time(self, when: Instant) -> None:
        """Move the queue's position to the first message that was not put before `when`."""
        self.seek(self.log.sequence_at(when))

    def sync(self) -> None:
        """Return when all messages and events so far are on disk, whatever the flush mode."""
        self._check_writable()
        self.log.sync()
        self._settle_journal()

    def stats(self) -> QueueStats:
        """Return counts, ages and rates."""
        dead = self._dead_letter_queue()
        dead_count = dead.waiting() if dead is not None else 0
        paused = self.paused
        with self._lock, self._whole:
            now = self._now()
            self._commit_later(self._look(now))
            queue_state = self.queue_state
            failing = self.checkpoints.failing
            totals = queue_state.totals
            firsts = [level.first for level in queue_state.ready.levels if level]
            put_at = self._bodies.time(min(firsts)) if firsts else None
            return QueueStats(
                name=self.name,
                log=self.log.name,
                ready=queue_state.ready.count,
                delayed=queue_state.delayed.count,
                leased=queue_state.leases.count,
                moving=len(queue_state.moving),
                dead=dead_count,
                leases=len(queue_state.leases.by_id),
                oldest_age=None if put_at is None else max(0, now - put_at) / NS,
                next_due=queue_state.delayed.next_due,
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
                dedup_window=queue_state.dedup.window_at(now) / NS,
                dedup_ids=queue_state.dedup.count,
                dedup_shortened=queue_state.dedup.shortened_to is not None,
                wait_p50=self._measures.waits.quantile(0.5),
                wait_p99=self._measures.waits.quantile(0.99),
                hold_p50=self._measures.holds.quantile(0.5),
                hold_p99=self._measures.holds.quantile(0.99),
                orphans=self._checkpoint.orphans,
                lag=max(0, self.log.end - queue_state.floor()),
                paused=paused,
                checkpoint_failures=self.checkpoints.failures,
                checkpoint_failing_since=failing.since if failing else None,
                checkpoint_error=failing.reason if failing else None,
            )

    # Memory.

    @property
    def cache_limit(self) -> int:
        """The most bytes of bodies that are kept in memory: pages that were read, and messages that were just put.

        The log keeps messages that were just put, for all its queues, up to half of the limit that was set last;
        messages that are not written yet are always kept.
        """
        return self._bodies.limit

    @cache_limit.setter
    def cache_limit(self, limit: int) -> None:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
            raise InvalidArgument(f"cache_limit must be a whole number of at least 0, not {limit!r}")
        with self._lock, self._whole:
            self.log.limit_recent(limit // RECENT_PART)
            self._bodies.limit = limit
            self._bodies.shrink()

    @property
    def cached_bytes(self) -> int:
        """Roughly how many bytes of memory bodies use, with the overhead of Python."""
        return self._bodies.bytes + self.log.recent_bytes

    @property
    def cache_misses(self) -> int:
        """How many of the messages delivered since the opening had to be read from a segment."""
        return self._bodies.misses

    @property
    def cache_hits(self) -> int:
        """How many of the messages delivered since the opening were in memory."""
        return max(0, self.queue_state.totals.leased - self._leased_before - self._bodies.misses)

    def page_out(self) -> int:
        """Release the memory of every body that is on disk; return how many bytes of them were cached."""
        with self._lock, self._whole:
            freed = self._bodies.bytes
            self._bodies.forget()
            return freed + self.log.page_out()

    def _dead_letter_queue(self) -> "Queue | None":
        name = self.settings.dead_letter
        return self._find_queue(name) if name is not None and not is_forwarded(name) else None


def _is_sound(wait: Duration) -> bool:
    return type(wait) in (int, float) and 0 < wait < 1e9  # type: ignore[operator]
