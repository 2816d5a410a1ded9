"""The public `Queue`: a work-queue view of a log with put, lease, ack, retries, dead letters and seek."""

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from holdfast.base.clock import Clock, Duration, Instant, positive_ns
from holdfast.base.errors import InvalidArgument
from holdfast.base.metrics import Registry
from holdfast.log.log import Log
from holdfast.log.record import Headers, Message
from holdfast.queue.arguments import check_count, checked_ids
from holdfast.queue.dead_letter_forwarder import Forwarder, is_forwarded
from holdfast.queue.dispatcher import Dispatcher
from holdfast.queue.ending import QueueEnding
from holdfast.queue.expiry import Expiry
from holdfast.queue.history import QueueHistory
from holdfast.queue.inspector import Bucket, QueueInspector
from holdfast.queue.intake import Intake
from holdfast.queue.length_limit import LengthLimit
from holdfast.queue.messages import DeadLetter, Delayed, Delivery, PeekedMessage, listed
from holdfast.queue.queue_core import QueueCore
from holdfast.queue.queue_state import HeldMessages
from holdfast.queue.settings import QueueSettings
from holdfast.queue.settlement import Settlement, raise_lost
from holdfast.queue.stats import Counts, LeaseInfo, Preview, QueueStats
from holdfast.queue.ticker import QueueTicker
from holdfast.queue.transfers import Transfers, dead_letter_of
from holdfast.state import State

if TYPE_CHECKING:
    from holdfast.queue.tracing import TracedCalls

__all__ = ["Queue"]

Stop = threading.Event | Callable[[], bool]


class Queue:
    """A work queue on a log; created by `Store.queue`.

    A message is delivered until it is acknowledged: to one consumer at a time, oldest first in the highest priority.
    All methods may be called from any thread. The work is done by the parts: `QueueCore` describes the lock that they
    share. Parts without an underscore are for the packages above: the store, the broker and servers.
    """

    def __init__(
        self,
        name: str,
        settings: QueueSettings,
        log: Log,
        journal: Log,
        state: State,
        *,
        clock: Clock,
        wake: Callable[[], None],
        open_queue: "Callable[..., Queue]",
        find_queue: "Callable[[str], Queue | None]",
        find_forwarder: Callable[[str], Forwarder | None],
        metrics: Registry,
        read_only: bool,
        log_is_new: bool = False,
        is_paused: Callable[[], bool],
        keep_paused: Callable[[bool], None],
        free_space: Callable[[], bool] = lambda: False,
    ) -> None:
        """Load the queue; `free_space` is called on a full disk, and returns whether it freed space."""
        self.name = name
        self.settings = settings
        self.log = log
        self.read_only = read_only
        self._find_queue = find_queue
        core = self._core = QueueCore(
            name,
            settings,
            log,
            journal,
            state,
            clock=clock,
            wake=wake,
            metrics=metrics,
            read_only=read_only,
            log_is_new=log_is_new,
            free_space=free_space,
        )
        self.limit = LengthLimit(core)
        expiry = Expiry(core, self.limit.holds)
        self.intake = Intake(core, self.limit)
        self.dispatcher = Dispatcher(self, core, expiry, self.limit, is_paused=is_paused, keep_paused=keep_paused)
        self.settlement = Settlement(core)
        self.transfers = Transfers(core, open_queue=open_queue, find_queue=find_queue, find_forwarder=find_forwarder)
        self.inspect = QueueInspector(core, expiry)
        self.history = QueueHistory(core)
        self.ending = QueueEnding(core, self.intake, self.dispatcher, self.transfers)
        self._ticker = QueueTicker(core, expiry, self.limit, self.transfers)
        # Bound once, because a call through the methods below costs the common put a tenth more.
        vars(self).update(
            put=self.intake.put,
            put_many=self.intake.put_many,
            lease=self.dispatcher.lease,
            get=self.dispatcher.get,
            ack=self.settlement.ack,
        )
        self.settler: Settlement | TracedCalls = self.settlement
        """What a `Delivery` calls: the settlement or, if calls create spans, what wraps it."""
        self.is_traced = False
        """Whether calls create spans."""
        self._trace_if_enabled()

    def _trace_if_enabled(self) -> None:
        """Start tracing if the application does."""
        if "opentelemetry.trace" in sys.modules:
            from holdfast.queue.tracing import follow  # noqa: PLC0415

            follow(self)

    # Putting.

    def put(
        self,
        payload: bytes,
        key: bytes | None = None,
        headers: Headers | None = None,
        delay: Duration | None = None,
        priority: int = 0,
        ttl: Duration | None = None,
        dedup: str | bytes | None = None,
    ) -> int:
        """Add a message and return its id; durable when this returns, unless the log's flush mode is weaker.

        If the store was opened with `confirm="replica"`, durable means: in the bucket.
        With `delay` it is not delivered before, with `ttl` not after so much time. A `dedup` id that was put within
        the queue's window writes nothing and returns the first message's id. In a transaction of the store the message
        is put at its end, and the id is -1.
        """
        return self.intake.put(payload, key, headers, delay, priority, ttl, dedup)

    def put_many(self, messages: Iterable[bytes | Message]) -> Sequence[int]:
        """Add messages to one block, and return their ids. After an error or crash, all of them or none are added.

        A duplicate has the id of the first message. As durable as after `put`.
        """
        return self.intake.put_many(messages)

    def put_counted(self, messages: Iterable[bytes | Message]) -> tuple[Sequence[int], int]:
        """As `put_many`; also return how many were duplicates, including duplicates within these messages."""
        return self.intake.put_counted(messages)

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
        return self.dispatcher.lease(count, lease=lease, wait=wait, most_bytes=most_bytes)

    def get(self, wait: Duration | None = 0, lease: Duration | None = None) -> Delivery | None:
        """Return one message, or None if there is none within `wait` seconds; `wait=None` waits forever."""
        return self.dispatcher.get(wait, lease)

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
        half_ns = (self._core.lease_ns if lease is None else positive_ns(lease, "lease")) // 2
        waiting: list[Delivery] = []
        try:
            while not said():
                waiting = self.lease(batch, lease=lease, wait=0.5)[::-1]
                while waiting and not said():
                    if self._core.now() - waiting[-1].lease > half_ns:
                        # The consumer is too slow for the batch. Leases of unseen messages must not expire: that would
                        # count as a failure, and dead-letter messages that were never tried.
                        self.settler.try_release(waiting)
                        waiting = []
                        break
                    yield waiting.pop()
        finally:
            if waiting and not self.closed:
                self.settler.try_release(waiting)

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever there may be more to lease; call the result to stop.

        It is called from any thread, perhaps with locks of the queue held: it must return at once, and only schedule
        the work that leases. It is not called for messages that are ready already.
        """
        return self.dispatcher.listen(callback)

    # Settling, by delivery.

    def ack(self, deliveries: Iterable[Delivery]) -> None:
        """Acknowledge messages, which are never delivered again: one journal record for all.

        Raises `LeaseLost` for those whose lease was lost; the others are acknowledged.
        """
        self.settlement.ack(deliveries)

    def nack(self, deliveries: Iterable[Delivery], reason: str = "", delay: Duration | None = None) -> None:
        """Return failed messages after `delay` (the queue's backoff if None), or dead-letter them.

        Raises `LeaseLost` for those whose lease was lost; the others are returned.
        """
        raise_lost(self.name, self.settler.try_nack(listed(deliveries), reason, delay))

    def extend(self, deliveries: Iterable[Delivery], duration: Duration | None = None) -> None:
        """Extend the leases of these messages, with all others under them, to so long from now; may shorten them.

        Raises `LeaseLost` for those whose lease was lost; the others are extended.
        """
        raise_lost(self.name, self.settler.try_extend(listed(deliveries), duration))

    def release(self, deliveries: Iterable[Delivery]) -> None:
        """Return messages untried: they are ready at once, and the delivery does not count.

        Raises `LeaseLost` for those whose lease was lost; the others are returned.
        """
        raise_lost(self.name, self.settler.try_release(listed(deliveries)))

    # Settling, by id.

    def ack_ids(self, parts: HeldMessages) -> list[int]:
        """Acknowledge messages: they are never delivered again. Return the ids whose lease was lost."""
        return self.settlement.ack_ids(parts)

    def return_ids(self, parts: HeldMessages, reason: str = "", delay: Duration | None = 0) -> list[int]:
        """Return failed messages after `delay` (None: the backoff), to their position in the order.

        Counts as an attempt: after too many they are dead-lettered or, without a dead-letter queue, dropped. Returns
        the ids whose lease was lost.
        """
        return self.settlement.return_ids(parts, reason, delay)

    def release_ids(self, parts: HeldMessages) -> list[int]:
        """Return messages untried: they are ready at once. Return the ids whose lease was lost."""
        return self.settlement.release_ids(parts)

    def reject_ids(self, parts: HeldMessages, reason: str = "") -> list[int]:
        """Dead-letter messages at once, however often they were tried, or drop them if there is no dead-letter queue.

        Returns the ids whose lease was lost.
        """
        return self.settlement.reject_ids(parts, reason)

    def extend_ids(self, parts: HeldMessages, duration: Duration | None = None) -> list[int]:
        """Extend the leases of these messages to so long from now (the queue's lease if None).

        Returns the ids whose lease was lost.
        """
        return self.settlement.extend_ids(parts, duration)

    def void_leases(self, reason: str = "the lease was void") -> int:
        """End every lease: its messages are returned now, as if it had expired. Return how many.

        For a server that holds all leases, when it starts: those of its last run have no owner.
        """
        return self.settlement.void_leases(reason)

    def void_lease(self, lease_id: int, reason: str = "the lease was void") -> int:
        """End one lease: its messages are returned now. Return how many; 0 if it has ended."""
        return self.settlement.void_lease(lease_id, reason)

    # Pausing.

    @property
    def paused(self) -> bool:
        """Whether delivery is paused."""
        return self.dispatcher.paused

    def pause(self) -> None:
        """Deliver no messages from now on, also after a restart, until `resume`.

        Everything else continues: messages are put; leased ones are acked, returned or expire; dead letters are moved.
        Waiting callers continue to wait.
        """
        self.dispatcher.pause()

    def resume(self) -> None:
        """Deliver messages again, first to the waiting callers."""
        self.dispatcher.resume()

    # Inspecting.

    def stats(self) -> QueueStats:
        """Return counts, ages and rates."""
        dead = self._dead_letter_queue()
        return self.inspect.stats(dead.waiting() if dead is not None else 0, paused=self.paused)

    def counts(self) -> Counts:
        """Return how many messages are ready, delayed, leased and moving, in a few microseconds.

        Waits for no lock (except in a store that was opened read-only), and reads no bodies. If the queue is busy,
        messages put since the state was last brought up to date count as ready. Expired leases count as leased until
        another call returns their messages.
        """
        return self.inspect.counts()

    def waiting(self) -> int:
        """Return how many messages are ready or delayed."""
        return self.inspect.waiting()

    def peek(self, count: int = 10) -> list[PeekedMessage]:
        """Return the next messages in order of delivery, without leasing them."""
        return self.inspect.peek(count)

    def message(self, id: int) -> PeekedMessage | None:
        """Return a message by its id, in any state, even if acknowledged; None if the log no longer has it."""
        return self.inspect.message(id)

    def each_ready(self, start: int = 0) -> Iterator[PeekedMessage]:
        """Yield the ready messages from this id on, in the order of their ids.

        The lock is held only briefly, and never while a body is read. Messages that become ready meanwhile are left
        out; those that are leased meanwhile may be included.
        """
        return self.inspect.each_ready(start)

    def leases(self, count: int | None = None) -> list[LeaseInfo]:
        """Return the live leases, oldest first."""
        return self.inspect.leases(count)

    def delayed(self, count: int = 200) -> list[Delayed]:
        """Return the delayed messages, the next due first."""
        return self.inspect.delayed(count)

    def delayed_histogram(self, buckets: int = 60) -> list[Bucket]:
        """Return how many messages become due when, in equal intervals from the first to the last due time.

        Each bucket is its first moment, the one after its last, and a count. Reads no bodies, and holds the lock only
        briefly. With a million delayed messages it takes a while, and is then cached for some time.
        """
        return self.inspect.delayed_histogram(buckets)

    def preview(self, position: int | None = None, *, when: Instant | None = None) -> Preview:
        """Return what `seek(position)`, or `seek_time(when)`, would do, without doing it."""
        return self.inspect.preview(position, when=when)

    # Dead letters.

    @property
    def carries_later(self) -> bool:
        """Whether only the background moves dead letters: for callers that must not wait for a disk."""
        return self.transfers.in_background

    @carries_later.setter
    def carries_later(self, later: bool) -> None:
        self.transfers.in_background = later

    def dead_letters(self, count: int | None = None) -> list[DeadLetter]:
        """Return the dead letters of this queue, oldest first, without moving them."""
        if count is not None:
            check_count(count, "dead_letters")
        self._core.check_open()
        target = self._dead_letter_queue()
        dead = map(dead_letter_of, target.each_ready()) if target is not None else iter(())
        return list(islice((one for one in dead if one.queue in (self.name, "")), count))

    def redrive(self, ids: Iterable[int] | None = None) -> int:
        """Move dead letters (all, or those with these ids) back into this queue, and return how many.

        Each gets a new id, its attempts start again, and a header counts its redrives.
        """
        self._core.check_writable()
        wanted = None if ids is None else checked_ids(ids, "redrive", "dead_letters()")
        target = self._dead_letter_queue()
        if target is None:
            return 0
        count = target.transfers.redrive_to(wanted, self.name)
        self._core.confirm()
        return count

    def delete_dead_letters(self, ids: Iterable[int] | None = None) -> int:
        """Drop dead letters of this queue (all, or those with these ids) permanently, and return how many."""
        self._core.check_writable()
        wanted = None if ids is None else checked_ids(ids, "delete_dead_letters", "dead_letters()")
        target = self._dead_letter_queue()
        return 0 if target is None else target.inspect.discard_dead_letters(wanted, self.name)

    def _dead_letter_queue(self) -> "Queue | None":
        name = self.settings.dead_letter
        return self._find_queue(name) if name is not None and not is_forwarded(name) else None

    # Dropping, and moving the position.

    def discard(self, ids: Iterable[int]) -> int:
        """Drop waiting messages, ready or delayed, permanently, and return how many; others are left unchanged."""
        return self.inspect.discard(ids)

    def purge(self) -> int:
        """Drop every message that is not leased, also delayed ones; return how many."""
        return self.inspect.purge()

    def seek(self, sequence: int) -> None:
        """Move the position: earlier messages count as acknowledged, later ones are delivered, again if necessary.

        All leases end and attempts start again. Position 0 replays all messages that the log has kept.
        """
        self.inspect.seek(sequence)

    def seek_time(self, when: Instant) -> None:
        """Move the queue's position to the first message that was not put before `when`."""
        self.seek(self.log.sequence_at(when))

    # Memory.

    @property
    def cache_limit(self) -> int:
        """The most bytes of bodies that are kept in memory: pages that were read, and messages that were just put.

        The log keeps messages that were just put, for all its queues, up to half of the limit that was set last;
        messages that are not written yet are always kept.
        """
        return self.inspect.cache_limit

    @cache_limit.setter
    def cache_limit(self, limit: int) -> None:
        self.inspect.cache_limit = limit

    @property
    def cached_bytes(self) -> int:
        """Roughly how many bytes of memory bodies use, with the overhead of Python."""
        return self.inspect.cached_bytes

    @property
    def cache_misses(self) -> int:
        """How many of the messages delivered since the opening had to be read from a segment."""
        return self.inspect.cache_misses

    @property
    def cache_hits(self) -> int:
        """How many of the messages delivered since the opening were in memory."""
        return self.inspect.cache_hits

    def page_out(self) -> int:
        """Release the memory of every body that is on disk; return how many bytes of them were cached."""
        return self.inspect.page_out()

    # Durability, and the end.

    def sync(self) -> None:
        """Return when all messages and events so far are on disk, whatever the flush mode.

        If the store was opened with `confirm="replica"`: when they are in the bucket.
        """
        self.history.sync()
        self.log.gate.confirm()

    def checkpoint(self) -> None:
        """Save the state, so that the next opening replays less of the journal."""
        self._core.checkpoint()

    def tick(self) -> float | None:
        """Do the background work that is due; return in how many seconds to call again, None if there is no more.

        Also checks whether the application has begun to trace.
        """
        self._trace_if_enabled()
        return self._ticker.tick()

    def close(self) -> None:
        """Save the state and close; idempotent. Leases continue: they are in the journal.

        If the journal cannot be written (a full disk), the queue stays open, so that closing can be tried again.
        """
        self._core.close()

    @property
    def closed(self) -> bool:
        """Whether the queue was closed."""
        return self._core.closed is not None

    @property
    def fields(self) -> dict[str, str]:
        """The `extra` of log messages about this queue."""
        return self._core.fields
