"""Delivers the messages of one queue to its consumers: by priority, then fewest-first, within prefetch."""

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from heapq import heapify, heappop, heapreplace
from operator import attrgetter
from typing import Any, Protocol

from holdfast.base.errors import Closed, QueueFull
from holdfast.broker.message import Content, Instructions, as_message, columns_of, plain_content
from holdfast.broker.queue_arguments import effective
from holdfast.broker.topology import QueueDefinition
from holdfast.log.appender import write_notice
from holdfast.log.record import Message
from holdfast.queue import Delivery, Queue

__all__ = ["BrokerQueue", "Consumer"]

LEASE_S = 10 * 365 * 86_400
"""A delivery belongs to its consumer until it is settled, or its channel ends. Consumers that never settle are found by
the acknowledgement timeout of their channel."""
_CHUNK_BYTES = 1 << 20
"""Bytes that are delivered at once: enough to share the cost of a lease, few enough to stop for a slow reader."""
_CHUNK_MAX = 2000
_ONE_BY_ONE = 100
_TOGETHER_S = 1.0
_UNIT = 8
"""Messages that a consumer gets at a time, if there are more than `_ONE_BY_ONE` to distribute."""
_ORDINARY = attrgetter("ordinary")
_AS_IT_IS = nullcontext()


class Consumer(Protocol):
    """Interface of a consumer: receives deliveries from a broker queue."""

    tag: str
    no_ack: bool
    priority: int
    unacked: int
    channel: Any
    """The client receives deliveries on the same channel in the order in which they were sent."""

    @property
    def pool(self) -> object | None:
        """Consumers with the same pool share its capacity; None: the consumer has a capacity of its own."""
        ...

    def capacity(self) -> int:
        """Return how many messages it can take now."""
        ...

    def pool_capacity(self) -> int:
        """Return how many messages its pool can take now."""
        ...

    def send(self, broker_queue: "BrokerQueue", deliveries: Sequence[Delivery]) -> None:
        """Send these deliveries to the client."""
        ...

    def cancelled(self, broker_queue: "BrokerQueue") -> None:
        """Handle the deletion of the queue."""
        ...


class BrokerQueue:
    """A running queue: its consumers, and its messages in the store.

    It alone decides whether there is more to deliver. The queue calls `_listener` after every change that may make
    messages ready, which sets `has_more`. A lease that takes the last ready message resets it, and nothing is leased
    before the next change.

    Threads: the broker's thread; `put` is also called by the thread that forwards dead letters, with the broker's
    `guard` held, and `_listener` by any. Invariants: a message is leased to one receiver at most: to a consumer with
    capacity for it, or by `get`. While `has_more` is False, no message is ready.
    """

    def __init__(
        self,
        definition: QueueDefinition,
        queue: Queue,
        schedule: Callable[["BrokerQueue"], None],
        serve: Callable[["BrokerQueue", Callable[[], None]], None],
        dropped: Callable[["BrokerQueue", Content, list[bytes]], None],
    ) -> None:
        self.definition = definition
        self.arguments = arguments = effective(definition.settings, queue.settings)
        self.queue = queue
        self.name = definition.name
        self._plain = plain_content(self.name)
        self.consumers: list[Consumer] = []
        """Sorted by priority, then in the order in which they were added."""
        self.exclusive: Consumer | None = None
        """The consumer that asked for exclusive use."""
        self.active: Consumer | None = None
        """The single active consumer, if the queue has that argument: it stays active until it is removed."""
        self.deleted = False
        self.unacked = 0
        self.dead_letters_dropped = 0
        """Its dead letters that no queue accepted, since the start."""
        self.counts_deliveries = arguments.queue_type == "quorum"
        self._holds_nothing = 0 in (arguments.max_length, arguments.max_length_bytes)
        self._judges = arguments.limited or arguments.message_ttl_ms is not None
        """Whether length or TTL limits apply."""
        self.had_consumers = False
        self._given: dict[Consumer, int] = {}
        """How many messages each consumer got since `_since`. A consumer added within a second after that keeps the
        counts of the others, and catches up with them; a later one resets all counts."""
        self._since = 0.0
        self.has_more = True
        """Whether there may be messages to lease: set by any thread, reset by the broker's before it leases."""
        self._seen_end = -1
        """The end of the log when the last lease began, which has seen all records before it."""
        self._schedule = schedule
        self._serve = serve
        self.dropped = dropped
        """Called with messages that a queue with a limit of 0 cannot deliver at once."""
        self.unlisten = queue.listen(self._listener)

    def _listener(self) -> None:
        """Note that there may be more. Called by the queue, from any thread, perhaps with its locks held."""
        log = self.queue.log
        if write_notice.appender is log.appender and (self.has_more or self._seen_end == log.reader.visible_end):
            return  # its records were visible before: a lease has seen them all, or will see them
        self.has_more = True
        self.deliver_soon()

    def deliver_soon(self) -> None:
        """Deliver at the end of the turn if there may be more: call it when a consumer has capacity again."""
        if self.has_more and self.consumers:
            self._schedule(self)

    # Publishing.

    @property
    def never_refuses(self) -> bool:
        """Whether every message is accepted. Asked when a route is found; `checks_payloads` may change later."""
        return not (self.arguments.rejects or self._holds_nothing or self.checks_payloads)

    @property
    def checks_payloads(self) -> bool:
        """Whether a put raises `InvalidArgument` for a payload that does not fit the schema of the queue's log."""
        return self.queue.log.appender.checks_payloads

    def check_payload(self, body: bytes) -> None:
        """Raise `InvalidArgument` if the payload does not fit the schema of the queue's log."""
        self.queue.log.appender.check_payloads((body,))

    def put(self, content: Content, bodies: list[bytes], directives: Instructions) -> int:
        """Add messages that differ only in their bodies; return how many were accepted.

        A full queue that rejects accepts the first ones only. A queue with a limit of 0 and overflow `drop-head`
        accepts messages that no consumer can take now, and dead-letters or drops them.
        """
        queue = self.queue
        arguments = self.arguments
        if self._holds_nothing and len(bodies) > 1:  # each may use up the last capacity
            return sum(self.put(content, [body], directives) for body in bodies)
        if self._holds_nothing and not self._takers():
            if arguments.overflow == "drop-head":
                self.dropped(self, content, bodies)
                return len(bodies)
            return 0
        like = None
        if not (directives.ordinary and content == self._plain):
            like = as_message(content, b"", directives, arguments, self.name)
        with self._consumers_first(self._judges or directives.expiration_ms is not None):
            if not arguments.rejects:
                _put(queue, bodies, like)
                return len(bodies)
            for count, body in enumerate(bodies):
                try:
                    _put(queue, [body], like)
                except QueueFull:
                    return count
            return len(bodies)

    def put_each(self, content: Content, bodies: list[bytes], directives: list[Instructions]) -> None:
        """Add messages that differ in their properties too; `content` is that of the first.

        Call it only if `never_refuses` is true.
        """
        queue, name = self.queue, self.name
        ordinary = all(map(_ORDINARY, directives))
        judges = self._judges or not (ordinary or all(directive.expiration_ms is None for directive in directives))
        with self._consumers_first(judges):
            if len(bodies) == 1 and ordinary and content == self._plain:
                queue.put(bodies[0])  # a single one has a faster path
            elif not ordinary or not queue.intake.takes_columns:
                contents = [content.with_raw(directive.raw) for directive in directives]
                queue.put_many(
                    [as_message(*one, self.arguments, name) for one in zip(contents, bodies, directives, strict=True)]
                )
            else:
                queue.intake.put_columns(
                    bodies, *columns_of(content, bodies, [directive.raw for directive in directives], name)
                )

    def _consumers_first(self, judges: bool) -> AbstractContextManager[None]:
        """Return a context that suspends length and TTL limits during a put, if the queue has consumers.

        At its end the queue delivers, and only then are the limits applied to what is left.
        """
        return self._limits_suspended() if judges and self.consumers else _AS_IT_IS

    @contextmanager
    def _limits_suspended(self) -> Iterator[None]:
        spare = 0
        if self.arguments.rejects:
            every = [(consumer, capacity) for consumer in self._served() if (capacity := consumer.capacity()) > 0]
            spare = _capacity_of(every, _pools_of(every))
        still = self.queue.limit.suspend(spare)
        try:
            yield
        finally:
            self._serve(self, partial(self.queue.limit.resume, still))

    # Consuming.

    def add(self, consumer: Consumer) -> None:
        """Add a consumer, after those of its own priority."""
        self.consumers.append(consumer)
        self.consumers.sort(key=lambda one: -one.priority)
        self._choose_active()
        now = time.monotonic()
        if not self._given or now - self._since > _TOGETHER_S:
            self._since = now
            self._given = dict.fromkeys(self.consumers, 0)
        self._given[consumer] = 0
        self.had_consumers = True
        self.deliver_soon()

    def remove(self, consumer: Consumer) -> None:
        """Remove a consumer; its channel settles its deliveries.

        With a single active consumer, the successor waits for what it held: those messages are older than the rest.
        """
        waits = consumer is self.active and consumer.unacked > 0
        if consumer in self.consumers:
            self.consumers.remove(consumer)
            del self._given[consumer]
        if self.exclusive is consumer:
            self.exclusive = None
        self._choose_active()
        if not waits:
            self.deliver_soon()

    def _choose_active(self) -> None:
        if self.arguments.single_active_consumer and self.active not in self.consumers:
            self.active = self.consumers[0] if self.consumers else None

    def deliver(self) -> bool:
        """Lease ready messages to consumers with capacity; return whether any were delivered."""
        if not self.has_more or self.deleted:
            return False
        eligible_consumers = self._takers()
        if not eligible_consumers:
            return False
        if len(eligible_consumers) == 1:
            [(consumer, capacity)] = eligible_consumers
            if consumer.pool is not None:
                capacity = min(capacity, consumer.pool_capacity())
            deliveries = self._lease(min(capacity, _CHUNK_MAX))
            if deliveries:
                self._hand(consumer, deliveries)
            return bool(deliveries)
        pools = _pools_of(eligible_consumers)
        deliveries = self._lease(min(_capacity_of(eligible_consumers, pools), _CHUNK_MAX))
        if deliveries:
            self._deal(eligible_consumers, pools, deliveries)
        return bool(deliveries)

    def _lease(self, count: int) -> list[Delivery]:
        """Lease up to `count` messages, and note whether there may be more."""
        end = self._seen_end = self.queue.log.reader.visible_end
        try:
            self.has_more = False  # first: what another thread signals during the lease may come too late for it
            deliveries = self.queue.lease(count, lease=LEASE_S, most_bytes=_CHUNK_BYTES)
        except Closed:
            return []
        except BaseException:
            self.has_more = True
            raise
        if not self._is_last(deliveries, end) and (
            len(deliveries) == count or sum(len(one[1]) for one in deliveries) >= _CHUNK_BYTES
        ):
            self.has_more = True
        return deliveries

    def _is_last(self, deliveries: list[Delivery], end: int) -> bool:
        """Whether the newest record of the log is among them, so that none is left: all others come before it.

        With a starvation time that cannot be known: old messages may come before those of a higher priority.
        """
        return (
            bool(deliveries)
            and deliveries[-1].id + 1 >= end
            and not deliveries[-1].priority
            and self.queue.settings.starvation is None
        )

    def get(self) -> Delivery | None:
        """Lease one message for basic.get; None if none is ready. The caller settles it."""
        deliveries = self.queue.lease(1, lease=LEASE_S)
        if not deliveries:
            return None
        self.unacked += 1
        return deliveries[0]

    def _served(self) -> "list[Consumer]":
        return self.consumers if self.active is None else [self.active]

    def _takers(self) -> "EligibleConsumers":
        """Return the consumers with capacity, and how much, all of the highest priority that has any."""
        found: EligibleConsumers = []
        for consumer in self._served():
            if found and consumer.priority < found[0][0].priority:
                break
            capacity = consumer.capacity()
            if capacity > 0:
                found.append((consumer, capacity))
        return found

    def _deal(
        self, eligible_consumers: "EligibleConsumers", pools: dict[object, int], deliveries: list[Delivery]
    ) -> None:
        """Distribute deliveries: the next ones always go to the consumer that has received the fewest.

        A consumer that had no capacity for a while catches up, so that equally fast consumers receive equally many.
        """
        unit = 1 if len(deliveries) <= _ONE_BY_ONE or pools else _UNIT
        line = [
            (self._given[consumer], place, capacity) for place, (consumer, capacity) in enumerate(eligible_consumers)
        ]
        heapify(line)
        turns: deque[tuple[Consumer, list[Delivery]]] = deque()
        at = 0
        while at < len(deliveries) and line:
            given, place, capacity = line[0]
            pool = eligible_consumers[place][0].pool
            if pool is not None and not pools[pool]:
                heappop(line)
                continue
            count = min(unit, capacity, len(deliveries) - at)
            turns.append((eligible_consumers[place][0], deliveries[at : at + count]))
            at += count
            if pool is not None:
                pools[pool] -= count
            if capacity > count:
                heapreplace(line, (given + count, place, capacity - count))
            else:
                heappop(line)
        if len({id(consumer.channel) for consumer, _ in eligible_consumers}) == len(eligible_consumers):
            hands: dict[Consumer, list[Delivery]] = {}
            for consumer, part in turns:
                hands.setdefault(consumer, []).extend(part)
            turns = deque(hands.items())
        try:
            while turns:  # one by one if a channel has several consumers: they see the order of the queue
                consumer, hand = turns.popleft()
                self._given[consumer] += len(hand)
                self._hand(consumer, hand)
        finally:
            # Consumers of a pool share its capacity, so too many may be leased; or sending to a consumer failed.
            left = [delivery for _, hand in turns for delivery in hand] + deliveries[at:]
            if left:
                self.queue.release_ids({left[0].lease: [delivery.id for delivery in left]})

    def _hand(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        if consumer.no_ack:
            self.queue.ack_ids({deliveries[0].lease: [delivery[0] for delivery in deliveries]})
        else:
            self.unacked += len(deliveries)
        try:
            consumer.send(self, deliveries)
        except Exception:
            # Nothing was delivered: release the messages untried, and remove the consumer.
            if not consumer.no_ack:
                self.unacked -= len(deliveries)
                self.queue.release_ids({deliveries[0].lease: [delivery[0] for delivery in deliveries]})
            self.remove(consumer)
            raise

    # Settling: lease ids with the ids of their messages. Their consumers have capacity again, so the queue may deliver.

    def ack(self, parts: dict[int, list[int]]) -> None:
        """Acknowledge messages, given as ids by lease."""
        self.unacked -= sum(map(len, parts.values()))
        if not self.deleted:
            self.queue.settlement.ack_ids(parts)
            self.deliver_soon()

    def requeue(self, parts: dict[int, list[int]]) -> None:
        """Return messages to their positions in the queue, or dead-letter them at the delivery limit.

        It counts as a delivery attempt.
        """
        self.unacked -= sum(map(len, parts.values()))
        if not self.deleted:
            self.queue.return_ids(parts)  # it signals that they are ready
            self.deliver_soon()

    def reject(self, parts: dict[int, list[int]]) -> None:
        """Dead-letter messages, or drop them if the queue has no dead-letter target."""
        self.unacked -= sum(map(len, parts.values()))
        if not self.deleted:
            self.queue.reject_ids(parts)
            self.deliver_soon()

    # Inspection.

    def ready(self) -> int:
        """Return how many messages are ready: neither leased nor delayed."""
        return self.queue.waiting() - self.queue.inspect.delayed_count

    def close(self) -> None:
        """Stop deliveries and cancel the consumers: the queue was deleted."""
        self.deleted = True
        self.unlisten()
        for consumer in list(self.consumers):
            consumer.cancelled(self)
        self.consumers.clear()


EligibleConsumers = list[tuple[Consumer, int]]
"""Consumers, and how much space each has."""


def _pools_of(eligible_consumers: EligibleConsumers) -> dict[object, int]:
    """Return the capacity of each pool that these consumers share."""
    pools: dict[object, int] = {}
    for consumer, capacity in eligible_consumers:
        if consumer.pool is not None:
            pools[consumer.pool] = min(pools.get(consumer.pool, 0) + capacity, consumer.pool_capacity())
    return pools


def _capacity_of(eligible_consumers: EligibleConsumers, pools: dict[object, int]) -> int:
    return sum(capacity for consumer, capacity in eligible_consumers if consumer.pool is None) + sum(pools.values())


def _put(queue: Queue, bodies: list[bytes], like: Message | None) -> None:
    if like is None:
        queue.put_many(bodies)
    else:
        queue.intake.put_similar(bodies, like)
