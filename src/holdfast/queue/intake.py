"""Enqueue path: most messages are appended directly; dedup ids and length limits are checked under the queue lock."""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from holdfast.base.clock import Duration, duration_ns
from holdfast.base.errors import HoldfastError, InvalidArgument, QueueFull
from holdfast.log.batch import ALL, ColumnValue, check_batch
from holdfast.log.pending_block import PendingBlock
from holdfast.log.record import Headers, Message, as_bytes
from holdfast.queue.delayed import Entry
from holdfast.queue.lease import NEVER
from holdfast.queue.limit_hold import LimitHold
from holdfast.queue.ready import PRIORITIES
from holdfast.queue.settings import positive_ns
from holdfast.queue.transfers import Transfers

__all__ = ["PENDING_ID", "Intake"]

DEDUP_MAX = 1024
"""The most bytes of a dedup id."""


Column = tuple[str, Any, int]
"""A column of the log, its value for a message, and how many bytes that adds."""
PENDING_ID = -1
"""The id that a put returns in a transaction: the message has no id before the transaction ends."""


class Intake(Transfers):
    """The part of a queue that accepts messages."""

    _join: Callable[[list[bytes | Message]], bool] | None = None

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

        With `delay` it is not delivered before, with `ttl` not after so much time. A `dedup` id that was put within
        the queue's window writes nothing and returns the first message's id. In a transaction of the store the message
        is put at its end, and the id is -1.
        """
        if (
            key is None
            and headers is None
            and delay is None
            and not priority
            and ttl is None
            and dedup is None
            and self._unbounded
        ):
            sequence = self._append(payload)
            if self._waiters.line or self._waiters.listeners or self.log.is_shared:
                self.log.notify_readers()
            return sequence
        return self.put_many([Message(payload, key, headers, delay, priority, ttl, dedup)])[0]

    def put_many(self, messages: Iterable[bytes | Message]) -> Sequence[int]:
        """Add messages to one block, and return their ids. After an error or crash, all of them or none are added.

        A duplicate has the id of the first message. As durable as after `put`.
        """
        return self.put_counted(messages)[0]

    def put_counted(self, messages: Iterable[bytes | Message]) -> tuple[Sequence[int], int]:
        """As `put_many`; also return how many were duplicates, including duplicates within these messages."""
        messages = list(messages)
        now = self._now()
        ids: Sequence[int]
        if self._join is not None and self._join(messages):
            return [PENDING_ID] * len(messages), 0
        if self._unbounded and (set(map(type, messages)) <= {bytes} or not any(map(_has_dedup, messages))):
            pending_block, first, count = self.log.gather(*check_batch(messages, lambda one: _columns(one, now)))
            if count:
                self.log.commit(pending_block)
            ids = range(first, first + count)
        else:
            ids, count = self._put_carefully(messages, now)
        if self._waiters.line or self._waiters.listeners or self.log.is_shared:
            self.log.notify_readers()
            self._schedule_expiries(messages, now)
        if self._drops_excess:
            self._enforce_limit()
        return ids, len(messages) - count

    def suspend_limits(self, extra_capacity: int = 0) -> LimitHold:
        """Suspend expiry and length limits for new messages until `resume_limits`; return the suspension to pass to it.

        For callers that put messages for idle consumers: messages that these take are not dropped first. A queue that
        rejects messages when it is full accepts `extra_capacity` more.
        """
        with self._lock:
            hold = LimitHold(self._now(), self.log.end, extra_capacity)
            self._limit_holds.add(hold)
        return hold

    def resume_limits(self, hold: LimitHold) -> None:
        """End a suspension, and apply the limits to what is left, except messages put under another suspension."""
        with self._lock:
            self._limit_holds.remove(hold)
        if self._drops_excess and not self.closed:
            self._enforce_limit()

    def join_transactions(self, join: Callable[[list[bytes | Message]], bool]) -> None:
        """Offer messages to a transaction first from now on: if `join` accepts them, they are put at its end."""

        def append(payload: bytes, key: bytes | None = None, headers: Headers | None = None) -> int:
            return PENDING_ID if join([payload]) else self.log.append(payload, key, headers)

        self._join, self._append = join, append

    def check_messages(self, messages: list[bytes | Message], staged: tuple[int, int] = (0, 0)) -> int:
        """Raise `InvalidArgument` or `QueueFull` as `put_many` would now; return the bytes of the payloads.

        The size limits of the log are not checked. `staged` is how many messages, and how many bytes, are to be put
        together with them.
        """
        with self._lock:
            payloads = check_batch(messages, lambda one: _columns(one, self._now()))[0]
            self._check_space(payloads, staged)
        return sum(map(len, payloads))

    def put_committed(self, messages: list[Message], producer: int, now: int) -> None:
        """Put messages of a decided transaction, regardless of limits, marked so that recovery can find them."""
        numbers = itertools.count(1)

        def columns(message: Message) -> list[Column]:
            return [*_columns(message, now), ("producer", producer, 0), ("number", next(numbers), 0)]

        self._put_carefully([*messages], now, columns)
        self.log.notify_readers()
        self._schedule_expiries([*messages], now)

    def put_similar(self, payloads: list[bytes], like: Message) -> Sequence[int]:
        """Put messages that differ only in their payloads: checked once, so that many of them are cheap."""
        plain = self._join is None and self._unbounded and like.dedup is None
        if not plain or not set(map(type, payloads)) <= {bytes}:
            return self.put_many([replace(like, payload=payload) for payload in payloads])
        now = self._now()
        (own,), extras, size = check_batch([like], lambda one: _columns(one, now))
        largest = size - len(own) + max(map(len, payloads), default=0)
        shared = [extra._replace(position=ALL) for extra in extras]
        pending_block, first, count = self.log.gather(payloads, shared, largest)
        if count:
            self.log.commit(pending_block)
        if self._waiters.line or self._waiters.listeners or self.log.is_shared:
            self.log.notify_readers()
            self._schedule_expiries([like], now)
        return range(first, first + count)

    @property
    def takes_columns(self) -> bool:
        """Whether `put_columns` may be called: no check is needed before a message is put."""
        return self._join is None and self._unbounded

    def put_columns(self, payloads: list[bytes], extras: list[ColumnValue], largest: int) -> None:
        """Put messages in the form of `check_batch`, with keys and headers only, which the caller has validated."""
        pending_block, _, _ = self.log.gather(payloads, extras, largest)
        self.log.commit(pending_block)
        if self._waiters.line or self._waiters.listeners or self.log.is_shared:
            self.log.notify_readers()

    def _put_carefully(
        self, messages: list[bytes | Message], now: int, decided: Callable[[Message], list[Column]] | None = None
    ) -> tuple[list[int], int]:
        """Put messages under the lock, for dedup ids and length limits, which `decided` messages may exceed.

        Return their ids, and how many were written.
        """
        columns = decided or (lambda one: _columns(one, now))
        keys = [_dedup_key(one) if isinstance(one, Message) else None for one in messages]
        pending_ids = self.log.pending_ids
        while True:
            # The guard is the log's: another queue may be putting the same id. A message whose id is no longer in
            # `pending_ids` is visible.
            with self._lock, self._whole, self.log.ids_guard:
                self._look(now)
                ids: list[int | None] = [None] * len(messages)
                fresh: dict[bytes, int] = {}
                positions: list[int] = []
                dedup = self.queue_state.dedup
                present = dedup.present(now)
                waits_for = self._find_known(keys, present, ids, fresh, positions)
                if waits_for is None:
                    batch = check_batch([messages[position] for position in positions], columns)
                    if decided is None and not self._unbounded:
                        self._check_space(batch[0])
                    pending_block, first, count = self.log.gather(*batch, limited=decided is None)
                    if fresh:
                        pending_ids.update(dict.fromkeys(fresh, pending_block))
                        dedup.put_at.update(dict.fromkeys(map(first.__add__, fresh.values()), present))
                    if count < len(messages):
                        self._measures.duplicates.add(len(messages) - count)
                    break
            # Another thread is putting the same id: its commit decides whether this message is a duplicate.
            with contextlib.suppress(HoldfastError):
                self.log.commit(waits_for)
            self._forget_pending(waits_for)
        try:
            if count:
                self.log.commit(pending_block)
        finally:
            if fresh:
                self._forget_pending(pending_block)
        for place, position in enumerate(positions):
            ids[position] = first + place
        return [first - 1 - id if id is not None and id < 0 else id or 0 for id in ids], count

    def _find_known(
        self,
        keys: list[bytes | None],
        present: int,
        ids: list[int | None],
        fresh: dict[bytes, int],
        positions: list[int],
    ) -> PendingBlock | None:
        """Fill in the ids of duplicates, and the positions of messages to be written.

        Return the pending block of another thread that is putting one of them, which the caller must wait for.
        """
        pending_ids, find = self.log.pending_ids, self.queue_state.dedup.find
        for position, key in enumerate(keys):
            if key is None:
                positions.append(position)
            elif (waits_for := pending_ids.get(key)) is not None:
                return waits_for
            elif (known := find(key, present)) is not None:
                ids[position] = known
            elif key in fresh:
                ids[position] = -1 - fresh[key]  # the index of the first message with this id, to be resolved later
            else:
                fresh[key] = len(positions)
                positions.append(position)
        return None

    def _schedule_expiries(self, messages: list[bytes | Message], now: int) -> None:
        """Schedule a tick for when the new messages become due, or expire, if there are listeners."""
        if self._waiters.listeners:
            timed = [one for one in messages if isinstance(one, Message) and (one.delay or one.ttl)]
            first = min((duration_ns(one.delay or one.ttl or 0, "delay") for one in timed), default=NEVER)
            if now + first < self._tick_at:
                self._tick_at = now + first
                self._wake_ticker()

    def _forget_pending(self, pending_block: PendingBlock) -> None:
        """Remove the pending dedup ids of this block: it is visible, or never will be."""
        with self.log.ids_guard:
            _forget(self.log.pending_ids, pending_block)

    def tick(self) -> float | None:
        """As in `Transfers`; also enforce the limits, which other writers of the log do not know."""
        if self._drops_excess and not (self.read_only or self.closed):
            self._enforce_limit()
        return super().tick()

    def _check_space(self, payloads: list[bytes], staged: tuple[int, int] = (0, 0)) -> None:
        settings, queue_state, count = self.settings, self.queue_state, len(payloads) + staged[0]
        if settings.overflow != "reject":
            return
        waiting = queue_state.ready.count + queue_state.delayed.count + self.log.end - queue_state.scanned
        extra_capacity = self._limit_holds.extra_capacity
        if waiting + count <= extra_capacity:
            return
        if settings.max_length is not None and waiting + count > settings.max_length + extra_capacity:
            raise QueueFull(
                f"the queue {self.name!r} holds {waiting} of at most {settings.max_length} messages and cannot accept "
                f"{count} more; nothing was written: try again later, or open it with another overflow or max_length"
            )
        if settings.max_bytes is not None:
            held = queue_state.waiting_bytes + self.log.bytes_after(queue_state.scanned)
            if held + (more := sum(map(len, payloads)) + staged[1]) > settings.max_bytes:
                raise QueueFull(
                    f"the queue {self.name!r} holds {held} of at most {settings.max_bytes} bytes and cannot accept "
                    f"{more} more; nothing was written: try again later, or open it with another overflow or max_bytes"
                )

    def _excess(self) -> tuple[int, int]:
        """Return how many messages, and how many bytes, are above the limits."""
        queue_state, settings = self.queue_state, self.settings
        messages = size = 0
        judged = self._limit_holds.end(queue_state.scanned)
        if settings.max_length is not None:
            messages = (
                queue_state.ready.count
                + queue_state.delayed.count
                - (queue_state.scanned - judged)
                - settings.max_length
            )
        if settings.max_bytes is not None and queue_state.weights is not None:
            fresh = queue_state.weights.between(judged, queue_state.scanned) if judged < queue_state.scanned else 0
            size = queue_state.waiting_bytes - fresh - settings.max_bytes
        return messages, size

    def _enforce_limit(self) -> None:
        """Drop or dead-letter the oldest messages, lowest priority first, until the queue is within its limits."""
        with self._lock, self._whole:
            now = self._now()
            pending_block = self._look(now)
            messages, size = self._excess()
            if messages > 0 or size > 0:
                pending_block = self._drop_excess(messages, size, now)
        self._commit(pending_block)
        if self.queue_state.moving:
            self._start_transfers()

    def _drop_excess(self, messages: int, size: int, now: int) -> PendingBlock | None:
        queue_state = self.queue_state
        to_dead = self.settings.overflow == "dead-letter"
        leaving: list[int] = []
        for start, stop in self._oldest(messages, size):
            leaving += range(start, stop)
            messages -= stop - start
            size -= queue_state.weights.between(start, stop) if queue_state.weights is not None else 0
        # The rest of the excess is delayed: those that are due next become ready, and are dropped with the others.
        early: list[Entry] = []
        while (messages > 0 or size > 0) and (taken := queue_state.delayed.take_first(1 if size > 0 else messages)):
            early += taken
            messages -= len(taken)
            if queue_state.weights is not None:
                size -= sum(queue_state.weights.between(sequence, sequence + 1) for _, sequence, _ in taken)
        for _, sequence, priority in early:
            queue_state.ready.add(priority, sequence, sequence + 1)
            leaving.append(sequence)
        try:
            return self._drop("overflow", "the queue was full", sorted(leaving), now, dead_letter=to_dead)
        except HoldfastError:  # after any other exception the state is loaded again
            for due, sequence, priority in early:
                queue_state.ready.remove(priority, sequence, sequence + 1)
                queue_state.delayed.add(due, sequence, priority)
            raise

    def _oldest(self, messages: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield the oldest ready messages, lowest priority first: at least so many, with at least so many bytes."""
        weights = self.queue_state.weights
        for level in self.queue_state.ready.levels:
            if messages <= 0 and size <= 0:
                return
            spans: Iterable[tuple[int, int]] = level if size > 0 else level.front(messages)
            for start, stop in spans:
                end = min(stop, start + max(messages, 0))
                if size > 0 and weights is not None:
                    end = max(end, weights.reach(start, stop, size))
                    size -= weights.between(start, end)
                messages -= end - start
                if end > start:
                    yield start, end
                if messages <= 0 and size <= 0:
                    return


def _has_dedup(message: bytes | Message) -> bool:
    return isinstance(message, Message) and message.dedup is not None


def _dedup_key(message: Message) -> bytes | None:
    dedup = message.dedup
    if dedup is None:
        return None
    try:
        if isinstance(dedup, str):
            key = dedup.encode()
        else:  # bytes are the common case, and need no copy
            key = dedup if type(dedup) is bytes else as_bytes(dedup, "a dedup id")
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"a dedup id cannot be encoded as UTF-8: {error.reason}") from error
    if not 1 <= len(key) <= DEDUP_MAX:
        raise InvalidArgument(f"a dedup id must have 1 to {DEDUP_MAX} bytes, not {len(key)}")
    return key


def _forget(pending_ids: dict[bytes, PendingBlock], pending_block: PendingBlock) -> None:
    for key in list(pending_ids):
        if pending_ids[key] is pending_block:
            del pending_ids[key]


def _columns(message: Message, now: int) -> list[Column]:
    """Return the queue options of a message as columns of the log."""
    found: list[Column] = []
    priority = message.priority
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority < PRIORITIES:
        raise InvalidArgument(f"priority must be a whole number from 0 to {PRIORITIES - 1}, not {priority!r}")
    if priority:
        found.append(("priority", priority, 0))
    delay = 0 if message.delay is None else duration_ns(message.delay, "delay")
    if delay:
        found.append(("due", now + delay, 0))
    if message.ttl is not None:  # counts from the end of the delay: a delay longer than the ttl must not drop it
        found.append(("expiry", now + delay + positive_ns(message.ttl, "ttl"), 0))
    if (key := _dedup_key(message)) is not None:
        found.append(("dedup", key, len(key)))
    return found
