"""Mailboxes: which consumer gets which message, and what happens to messages that a consumer cannot be sent."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.base.files import UnsyncedFiles
from holdfast.broker.basic_properties import PERSISTENT_ONLY
from holdfast.broker.broker import Broker
from holdfast.broker.message import Content, instructions_in
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.broker.users import Cost
from holdfast.queue import Delivery

REJECTS = {"x-max-length": 2, "x-overflow": "reject-publish"}


class Pool:
    """Room that consumers share."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity


class Worker:
    """A consumer that keeps what it gets, up to its prefetch; with `broken` it cannot be sent anything."""

    def __init__(self, prefetch: int, *, no_ack: bool = False, priority: int = 0, pool: Pool | None = None) -> None:
        self.tag = ""
        self.no_ack = no_ack
        self.priority = priority
        self.channel: Any = self
        self.pool = pool
        self.unacked = 0
        self.broken = False
        self.got: list[Delivery] = []
        self._prefetch = prefetch

    @property
    def payloads(self) -> list[bytes]:
        return [delivery.payload for delivery in self.got]

    def capacity(self) -> int:
        return self._prefetch - len(self.got)

    def pool_capacity(self) -> int:
        assert self.pool is not None
        return self.pool.capacity

    def send(self, broker_queue: BrokerQueue, deliveries: Sequence[Delivery]) -> None:
        if self.broken:
            raise ConnectionError("the connection is gone")
        self.got += deliveries
        self.unacked += 0 if self.no_ack else len(deliveries)
        if self.pool is not None:
            self.pool.capacity -= len(deliveries)

    def ack(self, broker_queue: BrokerQueue) -> None:
        """Acknowledge all that it got."""
        broker_queue.ack({delivery.lease: [one.id for one in self.got] for delivery in self.got})
        self.got.clear()
        self.unacked = 0

    def cancelled(self, broker_queue: BrokerQueue) -> None:
        """Nothing to do."""


class Turns:
    """A broker's turns, taken when the test says so."""

    def __init__(self) -> None:
        self._due: list[Callable[[], None]] = []

    def soon(self, call: Callable[[], None]) -> None:
        self._due.append(call)

    def take(self) -> None:
        while self._due:
            self._due.pop(0)()


@pytest.fixture
def turns() -> Turns:
    return Turns()


@pytest.fixture
def declare(tmp_path: Path, turns: Turns) -> Iterator[Callable[[dict[str, object]], BrokerQueue]]:
    """Declares a queue with these arguments."""
    stores = [holdfast.open(tmp_path / name, files=UnsyncedFiles(), background=False) for name in ("data", "transient")]
    broker = Broker(*stores, post=turns.soon, soon=turns.soon, cost=Cost(8, 1))

    def declared(arguments: dict[str, object]) -> BrokerQueue:
        return broker.host("/").declare_queue(
            "work", durable=True, exclusive=False, auto_delete=False, arguments=arguments, passive=False, owner=None
        )

    yield declared
    broker.close()
    for store in stores:
        store.close()


Declare = Callable[[dict[str, object]], BrokerQueue]


def put(broker_queue: BrokerQueue, *bodies: bytes) -> int:
    return broker_queue.put(
        Content("", broker_queue.name, PERSISTENT_ONLY), [*bodies], instructions_in(PERSISTENT_ONLY)
    )


@pytest.mark.parametrize(
    ("arguments", "never"),
    [
        ({}, True),
        ({"x-max-length": 2}, True),
        (REJECTS, False),
        ({"x-max-length": 0}, False),
        ({"x-max-length-bytes": 0}, False),
        ({"x-max-length": 0, "x-overflow": "reject-publish"}, False),
    ],
    ids=str,
)
def test_a_queue_never_refuses_messages_unless_it_rejects_them_or_holds_none(
    declare: Declare, arguments: dict[str, object], never: bool
) -> None:
    assert declare(arguments).never_refuses is never


@pytest.mark.parametrize(("prefetches", "taken"), [([], 2), ([0], 2), ([1], 3), ([0, 1, 3], 6)], ids=str)
def test_a_queue_that_rejects_takes_its_limit_and_what_its_consumers_have_room_for(
    declare: Declare, prefetches: list[int], taken: int
) -> None:
    broker_queue = declare(REJECTS)
    for prefetch in prefetches:
        broker_queue.add(Worker(prefetch))
    assert put(broker_queue, *(b"%d" % number for number in range(9))) == taken
    assert (broker_queue.ready(), broker_queue.unacked) == (2, taken - 2)


def test_a_queue_without_limits_delivers_in_the_turn_after_a_message_was_put(declare: Declare, turns: Turns) -> None:
    broker_queue, worker = declare({}), Worker(5)
    broker_queue.add(worker)
    put(broker_queue, b"a", b"b")
    assert worker.payloads == []
    turns.take()
    assert worker.payloads == [b"a", b"b"]


@pytest.mark.parametrize("count", [1, 3])
def test_messages_that_a_consumer_cannot_be_sent_go_to_the_next_one(declare: Declare, turns: Turns, count: int) -> None:
    broker_queue, broken, other = declare({}), Worker(5, priority=1), Worker(5)
    broken.broken = True
    broker_queue.add(broken)
    broker_queue.add(other)
    bodies = [b"%d" % number for number in range(count)]
    put(broker_queue, *bodies)
    turns.take()
    assert broker_queue.consumers == [other]
    assert other.payloads == bodies
    assert [delivery.attempt for delivery in other.got] == [1] * count
    assert (broker_queue.unacked, broker_queue.ready()) == (count, 0)
    other.ack(broker_queue)
    assert broker_queue.unacked == 0


def test_messages_that_a_consumer_without_acknowledgements_cannot_be_sent_are_gone(
    declare: Declare, turns: Turns
) -> None:
    broker_queue, broken, other = declare({}), Worker(5, no_ack=True, priority=1), Worker(5)
    broken.broken = True
    broker_queue.add(broken)
    broker_queue.add(other)
    put(broker_queue, b"a", b"b")
    turns.take()
    assert broker_queue.consumers == [other]
    assert other.payloads == []
    assert (broker_queue.unacked, broker_queue.ready()) == (0, 0)


def test_consumers_with_room_get_messages_in_turns(declare: Declare, turns: Turns) -> None:
    broker_queue, workers = declare({}), [Worker(5), Worker(1), Worker(5)]
    for worker in workers:
        broker_queue.add(worker)
    put(broker_queue, *(b"%d" % number for number in range(9)))
    turns.take()
    assert [worker.payloads for worker in workers] == [[b"0", b"3", b"5", b"7"], [b"1"], [b"2", b"4", b"6", b"8"]]


def test_the_next_message_goes_to_the_consumer_that_got_the_fewest(declare: Declare, turns: Turns) -> None:
    broker_queue, workers = declare({}), [Worker(5), Worker(5)]
    for worker in workers:
        broker_queue.add(worker)
    for body in (b"a", b"b", b"c"):
        put(broker_queue, body)
        turns.take()
    assert [worker.payloads for worker in workers] == [[b"a", b"c"], [b"b"]]


def test_consumers_of_a_lower_priority_get_what_the_others_have_no_room_for(declare: Declare, turns: Turns) -> None:
    broker_queue, low, first, second = declare({}), Worker(5), Worker(1, priority=3), Worker(1, priority=3)
    for worker in (low, first, second):
        broker_queue.add(worker)
    put(broker_queue, b"a", b"b", b"c")
    turns.take()
    assert [worker.payloads for worker in (first, second, low)] == [[b"a"], [b"b"], [b"c"]]


def test_consumers_with_a_common_pool_get_no_more_than_it_has_room_for(declare: Declare, turns: Turns) -> None:
    broker_queue, pool = declare({}), Pool(3)
    workers = [Worker(9, pool=pool), Worker(9, pool=pool), Worker(1)]
    for worker in workers:
        broker_queue.add(worker)
    put(broker_queue, *(b"%d" % number for number in range(9)))
    turns.take()
    assert [worker.payloads for worker in workers] == [[b"0", b"3"], [b"1"], [b"2"]]
    assert (broker_queue.unacked, broker_queue.ready()) == (4, 5)


def test_of_consumers_of_which_one_is_active_the_next_follows_when_it_goes(declare: Declare, turns: Turns) -> None:
    broker_queue, first, second = declare({"x-single-active-consumer": True}), Worker(9), Worker(9)
    broker_queue.add(first)
    broker_queue.add(second)
    put(broker_queue, b"a")
    turns.take()
    assert (first.payloads, second.payloads) == ([b"a"], [])
    first.ack(broker_queue)
    broker_queue.remove(first)
    put(broker_queue, b"b")
    turns.take()
    assert second.payloads == [b"b"]
