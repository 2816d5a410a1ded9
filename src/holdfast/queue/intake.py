"""Enqueue path: most messages are appended directly; dedup ids and length limits are checked under the queue lock."""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from holdfast.base.clock import Duration, duration_ns, positive_ns
from holdfast.base.errors import HoldfastError, InvalidArgument
from holdfast.log.batch import ColumnValue, check_batch
from holdfast.log.pending_block import PendingBlock
from holdfast.log.record import Headers, Message, as_bytes
from holdfast.queue.lease import NEVER
from holdfast.queue.length_limit import LengthLimit
from holdfast.queue.pending_ids import PendingIds
from holdfast.queue.queue_core import QueueCore
from holdfast.queue.ready import PRIORITIES

__all__ = ["PENDING_ID", "Intake"]

DEDUP_MAX = 1024
"""The most bytes of a dedup id."""


Column = tuple[str, Any, int]
"""A column of the log, its value for a message, and how many bytes that adds."""
PENDING_ID = -1
"""The id that a put returns in a transaction: the message has no id before the transaction ends."""


class Intake:
    """Accepts the messages of a queue.

    Invariant: within the window, the same dedup id is appended once to the log, whichever of its queues gets it. The
    queue's lock, then the guard of `PendingIds`, are held while ids are checked.
    """

    def __init__(self, core: QueueCore, limit: LengthLimit) -> None:
        self._core = core
        self._limit = limit
        self._log = core.log
        self._waiters = core.waiters
        self._pending = PendingIds.of(core.log)
        self._gate = core.log.gate
        self._append, self._append_at_once = core.log.append, core.log.appender.append
        self._join: Callable[[list[bytes | Message]], bool] | None = None
        """Offers messages to a transaction, if there was one in this process."""
        self._confirms = core.journal.durable
        """Whether a put promises that the message is durable, so that it waits for the replica."""
        self._unbounded = limit.is_unbounded
        """Whether messages without options may be appended without a check."""

    def close(self) -> None:
        """Check from now on, before each put, whether the queue is closed."""
        self._unbounded = False

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
        """As `Queue.put`."""
        if (
            key is None
            and headers is None
            and delay is None
            and not priority
            and ttl is None
            and dedup is None
            and self._unbounded
        ):
            sequence = self._append(payload) if self._gate.is_on else self._append_at_once(payload)
            if self._waiters.line or self._waiters.listeners or self._log.recent.is_shared:
                self._log.notify_readers()
            return sequence
        return self.put_many([Message(payload, key, headers, delay, priority, ttl, dedup)])[0]

    def put_many(self, messages: Iterable[bytes | Message]) -> Sequence[int]:
        """As `Queue.put_many`."""
        return self.put_counted(messages)[0]

    def put_counted(self, messages: Iterable[bytes | Message]) -> tuple[Sequence[int], int]:
        """As `put_many`; also return how many were duplicates, including duplicates within these messages."""
        messages = list(messages)
        now = self._core.now()
        ids: Sequence[int]
        if self._join is not None and self._join(messages):
            return [PENDING_ID] * len(messages), 0
        confirms = self._confirms and self._gate.is_on
        if confirms:
            self._gate.check()
        if self._unbounded and (set(map(type, messages)) <= {bytes} or not any(map(_has_dedup, messages))):
            pending_block, first, count = self._log.gather(*check_batch(messages, lambda one: _columns(one, now)))
            if count:
                self._log.commit(pending_block)
            ids = range(first, first + count)
        else:
            ids, count = self._put_carefully(messages, now)
        if self._waiters.line or self._waiters.listeners or self._log.recent.is_shared:
            self._log.notify_readers()
            self._schedule_expiries(messages, now)
        if self._limit.drops_excess:
            self._limit.enforce()
        if confirms:  # also if all were duplicates: the first message of an id may not be in the bucket yet
            self._gate.confirm()
        return ids, len(messages) - count

    def join_transactions(self, join: Callable[[list[bytes | Message]], bool]) -> None:
        """Offer messages to a transaction first from now on: if `join` accepts them, they are put at its end."""

        def append(payload: bytes, key: bytes | None = None, headers: Headers | None = None) -> int:
            return PENDING_ID if join([payload]) else self._log.append(payload, key, headers)

        self._join, self._append, self._append_at_once = join, append, append

    def check_messages(self, messages: list[bytes | Message], staged: tuple[int, int] = (0, 0)) -> int:
        """Raise `InvalidArgument` or `QueueFull` as `put_many` would now; return the bytes of the payloads.

        The size limits of the log are not checked. `staged` is how many messages, and how many bytes, are to be put
        together with them.
        """
        with self._core.lock:
            payloads = check_batch(messages, lambda one: _columns(one, self._core.now()))[0]
            self._limit.check_space(payloads, staged)
        self._log.appender.check_payloads(payloads)
        return sum(map(len, payloads))

    def put_committed(self, messages: list[Message], producer: int, now: int) -> None:
        """Put messages of a decided transaction, regardless of limits, marked so that recovery can find them."""
        numbers = itertools.count(1)

        def columns(message: Message) -> list[Column]:
            return [*_columns(message, now), ("producer", producer, 0), ("number", next(numbers), 0)]

        self._put_carefully([*messages], now, columns)
        self._log.notify_readers()
        self._schedule_expiries([*messages], now)

    def put_similar(self, payloads: list[bytes], like: Message) -> Sequence[int]:
        """Put messages that differ only in their payloads: checked once, so that many of them are cheap.

        For servers, which sync the log themselves before they confirm: it does not wait for a replica.
        """
        if not self.takes_columns or like.dedup is not None or not set(map(type, payloads)) <= {bytes}:
            return self.put_many([replace(like, payload=payload) for payload in payloads])
        now = self._core.now()
        (own,), extras, size = check_batch([like], lambda one: _columns(one, now))
        largest = size - len(own) + max(map(len, payloads), default=0)
        shared = [extra.for_all() for extra in extras]
        pending_block, first, count = self._log.gather(payloads, shared, largest)
        if count:
            self._log.commit(pending_block)
        if self._waiters.line or self._waiters.listeners or self._log.recent.is_shared:
            self._log.notify_readers()
            self._schedule_expiries([like], now)
        return range(first, first + count)

    @property
    def takes_columns(self) -> bool:
        """Whether `put_columns` may be called: no check is needed before a message is put."""
        return self._join is None and self._unbounded

    def put_columns(self, payloads: list[bytes], extras: list[ColumnValue], largest: int) -> None:
        """Put messages in the form of `check_batch`, with keys and headers only, which the caller has validated.

        As `put_similar`, it does not wait for a replica.
        """
        pending_block, _, _ = self._log.gather(payloads, extras, largest)
        self._log.commit(pending_block)
        if self._waiters.line or self._waiters.listeners or self._log.recent.is_shared:
            self._log.notify_readers()

    def _put_carefully(
        self, messages: list[bytes | Message], now: int, decided: Callable[[Message], list[Column]] | None = None
    ) -> tuple[list[int], int]:
        """Put messages under the lock, for dedup ids and length limits, which `decided` messages may exceed.

        Return their ids, and how many were written.
        """
        core, pending = self._core, self._pending
        columns = decided or (lambda one: _columns(one, now))
        keys = [_dedup_key(one) if isinstance(one, Message) else None for one in messages]
        while True:
            # The guard is the log's: another queue may be putting the same id. A message whose id is no longer pending
            # is visible, so the guard is taken before the state is brought up to date.
            with core.lock, pending.guard, core.turn(now):
                ids: list[int | None] = [None] * len(messages)
                fresh: dict[bytes, int] = {}
                positions: list[int] = []
                dedup = core.state.dedup
                present = dedup.present(now)
                waits_for = self._find_known(keys, present, ids, fresh, positions)
                if waits_for is None:
                    batch = check_batch([messages[position] for position in positions], columns)
                    if decided is None and not self._unbounded:
                        self._limit.check_space(batch[0])
                    pending_block, first, count = self._log.gather(*batch, limited=decided is None)
                    if fresh:
                        pending.blocks.update(dict.fromkeys(fresh, pending_block))
                        dedup.put_at.update(dict.fromkeys(map(first.__add__, fresh.values()), present))
                    if count < len(messages):
                        core.measures.duplicates.add(len(messages) - count)
                    break
            # Another thread is putting the same id: its commit decides whether this message is a duplicate.
            with contextlib.suppress(HoldfastError):
                self._log.commit(waits_for)
            pending.forget(waits_for)
        try:
            if count:
                self._log.commit(pending_block)
        finally:
            if fresh:
                pending.forget(pending_block)
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
        pending, find = self._pending.blocks, self._core.state.dedup.find
        for position, key in enumerate(keys):
            if key is None:
                positions.append(position)
            elif (waits_for := pending.get(key)) is not None:
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
            self._core.alarm.by(now + first)


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
