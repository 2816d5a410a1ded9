"""Deliveries over a socket: a queue leases only when there is something to lease, and never forgets a message."""

import asyncio
import random
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Queue
from holdfast.amqp import methods as m
from holdfast.amqp.server import Server
from holdfast.amqp.settings import Settings
from holdfast.broker.queue_dispatcher import BrokerQueue
from tests.amqp.serving import PATIENCE_S, Arrived, Client, eventually

CYCLES = 20


class Serving:
    """A server on a thread of this process, and its store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._started.wait(PATIENCE_S)

    async def _serve(self) -> None:
        with holdfast.open(self._folder) as self.store:
            self.server = Server(self.store, Settings(amqp_port=0))
            await self.server.start()
            self._started.set()
            await asyncio.to_thread(self._stop.wait)
            await self.server.stop()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    @contextmanager
    def client(self) -> Iterator[Client]:
        client = Client(self.server.addresses[0][1])
        try:
            client.log_in()
            yield client
        finally:
            client.close()

    def broker_queue(self, name: str = "work") -> BrokerQueue:
        return self.server.broker.host("/").broker_queues[name]


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    serving = Serving(tmp_path / "data")
    yield serving
    serving.stop()


@pytest.fixture
def client(serving: Serving) -> Iterator[Client]:
    with serving.client() as client:
        client.declare("work")
        yield client


def prefetch(client: Client, count: int, *, whole_channel: bool = False) -> None:
    client.call(m.BasicQos(0, count, whole_channel), m.BasicQosOk)


def consume(client: Client, queue: str = "work", tag: str = "reader", **arguments: object) -> None:
    named: dict[str, Any] = {name.replace("_", "-"): value for name, value in arguments.items()}
    client.call(m.BasicConsume(queue=queue, consumer_tag=tag, arguments=named), m.BasicConsumeOk)


def message(client: Client) -> Arrived:
    found = client.message()
    assert found is not None
    return found


def ack(client: Client, arrived: Arrived, *, multiple: bool = False) -> None:
    client.send(m.method_frame(1, m.BasicAck(arrived.method.delivery_tag, multiple)))  # type: ignore[attr-defined]


def has_arrived(client: Client) -> bool:
    """Whether there is something to read within a moment."""
    return client.has_more or bool(select.select([client.socket], [], [], 0.05)[0])


class Leases:
    """What the leases of a queue found, from now on."""

    def __init__(self, queue: Queue) -> None:
        self.found: list[int] = []
        lease = queue.lease

        def counted(*given: Any, **options: Any) -> Any:
            deliveries = lease(*given, **options)
            self.found.append(len(deliveries))
            return deliveries

        queue.lease = counted  # type: ignore[method-assign]

    @property
    def empty(self) -> int:
        return self.found.count(0)


@pytest.mark.parametrize("limit", [0, 1, 10])
@pytest.mark.parametrize("confirms", [True, False])
def test_a_queue_leases_once_for_each_message_that_is_published_alone(
    serving: Serving, client: Client, limit: int, confirms: bool
) -> None:
    prefetch(client, limit)
    consume(client)
    if confirms:
        client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    leases = Leases(serving.broker_queue().queue)
    for number in range(CYCLES):
        client.publish("work", [b"%d" % number])
        kinds: set[str] = set()
        while len(kinds) < 1 + confirms:
            _, _, payload = client.receive()
            if payload[:4] == b"\x00\x3c\x00\x50":
                kinds.add("confirm")
            elif payload[:4] == b"\x00\x3c\x00\x3c":
                kinds.add("delivery")
                tag = m.decode_method(payload)[1]
        client.send(m.method_frame(1, m.BasicAck(tag)))
    eventually(lambda: not serving.broker_queue().unacked)
    assert sum(leases.found) == CYCLES
    assert leases.empty <= 2, str(leases.found)


def test_writing_what_was_delivered_leases_nothing(serving: Serving, client: Client) -> None:
    """The background thread writes records to the system 20 ms after they were put, and delivered."""
    consume(client)
    broker_queue = serving.broker_queue()
    leases = Leases(broker_queue.queue)
    for number in range(CYCLES):
        client.publish("work", [b"%d" % number])
        ack(client, message(client))
        broker_queue.queue.log.appender.write_out()
    eventually(lambda: not broker_queue.unacked)
    assert sum(leases.found) == CYCLES
    assert leases.empty <= 2, str(leases.found)


def test_an_ack_on_a_channel_with_a_limit_lets_its_other_queues_deliver(serving: Serving, client: Client) -> None:
    client.declare("other")
    prefetch(client, 1, whole_channel=True)
    consume(client)
    consume(client, "other", "second")
    client.publish("work", [b"first"])
    first = message(client)
    client.publish("other", [b"second"])
    eventually(lambda: serving.broker_queue("other").ready())
    time.sleep(0.1)  # until the log was written, which notifies the queue once more
    ack(client, first)
    assert message(client).body == b"second"


# Whatever makes a message ready, it is delivered.


def test_a_message_that_a_thread_of_the_same_process_puts_is_delivered(serving: Serving, client: Client) -> None:
    prefetch(client, 1)
    consume(client)
    for number in range(50):
        serving.broker_queue().queue.put(b"%d" % number)
        arrived = message(client)
        assert arrived.body == b"%d" % number
        ack(client, arrived)


def test_a_delayed_message_is_delivered_when_it_is_due(serving: Serving, client: Client) -> None:
    consume(client)
    serving.broker_queue().queue.put(b"later", delay=0.2)
    client.publish("work", [b"now"])
    assert [message(client).body, message(client).body] == [b"now", b"later"]


def test_a_message_whose_lease_by_a_program_ends_is_delivered(serving: Serving, client: Client) -> None:
    queue = serving.broker_queue().queue
    queue.put(b"tried")
    assert queue.get(lease=0.2) is not None
    consume(client)
    assert message(client).body == b"tried"


def test_a_message_that_a_program_returns_is_delivered(serving: Serving, client: Client) -> None:
    queue = serving.broker_queue().queue
    queue.put(b"returned")
    delivery = queue.get()
    assert delivery is not None
    consume(client)
    time.sleep(0.05)
    delivery.nack(delay=0.1)
    assert message(client).body == b"returned"


def test_a_message_that_one_consumer_returns_goes_to_another(serving: Serving, client: Client) -> None:
    prefetch(client, 1)
    consume(client, x_priority=5)
    client.publish("work", [b"first", b"second"])
    first = message(client)
    with serving.client() as other:
        consume(other)
        second = message(other)
        client.send(m.method_frame(1, m.BasicCancel("reader")))
        client.expect(m.BasicCancelOk)
        client.send(m.method_frame(1, m.BasicNack(first.method.delivery_tag, False, True)))  # type: ignore[attr-defined]
        assert {second.body, message(other).body} == {b"first", b"second"}


def test_messages_of_a_paused_queue_are_delivered_when_it_resumes(serving: Serving, client: Client) -> None:
    queue = serving.broker_queue().queue
    consume(client)
    queue.pause()
    client.publish("work", [b"first", b"second"])
    eventually(lambda: serving.broker_queue().ready() == 2)
    time.sleep(0.05)
    assert not serving.broker_queue().unacked
    queue.resume()
    assert [message(client).body, message(client).body] == [b"first", b"second"]


def test_a_message_that_expires_does_not_keep_the_next_one_back(serving: Serving, client: Client) -> None:
    prefetch(client, 1)
    consume(client)
    client.publish("work", [b"held"])
    held = message(client)
    serving.broker_queue().queue.put(b"short", ttl=0.05)
    client.publish("work", [b"long"])
    time.sleep(0.2)
    ack(client, held)
    assert message(client).body == b"long"


MESSAGES = 400


class Reader(threading.Thread):
    """A consumer that acks, and now and then returns what it got."""

    def __init__(self, serving: Serving, limit: int, priority: int, seed: int) -> None:
        super().__init__(daemon=True)
        self._serving, self._limit, self._priority = serving, limit, priority
        self._rng = random.Random(seed)
        self.acked: list[bytes] = []
        self.over = threading.Event()

    def run(self) -> None:
        with self._serving.client() as client:
            prefetch(client, self._limit)
            consume(client, x_priority=self._priority)
            while not self.over.is_set():
                if not has_arrived(client):
                    continue
                arrived = message(client)
                if self._rng.random() < 0.1:
                    client.send(m.method_frame(1, m.BasicReject(arrived.method.delivery_tag, True)))  # type: ignore[attr-defined]
                else:
                    self.acked.append(arrived.body)
                    ack(client, arrived)


@pytest.mark.parametrize("seed", range(4))
def test_every_message_is_delivered_whoever_puts_and_takes_at_the_same_time(
    serving: Serving, client: Client, seed: int
) -> None:
    queue, rng = serving.broker_queue().queue, random.Random(seed)
    readers = [Reader(serving, *one, seed) for one in ((1, 0), (3, 5), (20, 0))]

    def put() -> None:
        for number in range(MESSAGES):
            queue.put(b"put %d" % number, delay=rng.choice((None, None, None, 0.01)))

    def take() -> None:
        for number in range(MESSAGES // 4):
            delivery = queue.get(lease=0.05)
            if delivery is not None and number % 3 == 0:
                delivery.nack()
            elif delivery is not None and number % 3 == 1:
                delivery.release()

    threads = [*readers, threading.Thread(target=put, daemon=True), threading.Thread(target=take, daemon=True)]
    for thread in threads:
        thread.start()
    client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    for first in range(0, MESSAGES, 20):
        client.publish_confirmed("work", [b"published %d" % number for number in range(first, first + 20)], first=first)
    wanted = {b"%b %d" % (kind, number) for kind in (b"put", b"published") for number in range(MESSAGES)}
    eventually(lambda: {body for reader in readers for body in reader.acked} == wanted)
    for reader in readers:
        reader.over.set()
    for thread in threads:
        thread.join(PATIENCE_S)
