"""Does kombu, over py-amqp, find what it expects?"""

# mypy: disable-error-code="no-untyped-call"
# kombu says that it has types, but most of it has none.

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kombu import pools
from kombu.connection import Connection
from kombu.entity import Exchange, Queue
from kombu.messaging import Consumer, Producer
from kombu.mixins import ConsumerProducerMixin
from kombu.pidbox import Mailbox
from kombu.pools import producers

from tests.interop.serving import DEADLINE_S, Door, Served


def connection_to(door: Door) -> Connection:
    return Connection(door.address, ssl=door.ssl, connect_timeout=60)


@pytest.fixture
def connection(door: Door) -> Iterator[Connection]:
    with connection_to(door) as opened:
        yield opened


def drain(connection: Connection, enough: Callable[[], object]) -> None:
    """Let messages come until there are enough."""
    deadline = time.monotonic() + DEADLINE_S
    while not enough():
        assert time.monotonic() < deadline, "waited in vain for messages"
        try:
            connection.drain_events(timeout=0.5)
        except TimeoutError:
            connection.heartbeat_check()


def test_a_producer_with_confirms_reaches_a_consumer(door: Door, name: Callable[..., str]) -> None:
    queue = Queue(name(), Exchange(name("exchange"), "topic"), routing_key="a.#")
    got: list[Any] = []
    with Connection(door.address, ssl=door.ssl, transport_options={"confirm_publish": True}) as connection:
        producer = Producer(connection, serializer="json")
        for number in range(50):
            producer.publish(
                {"number": number}, exchange=queue.exchange, routing_key="a.b", declare=[queue], compression="zlib"
            )

        def take(body: Any, message: Any) -> None:
            got.append((body["number"], message.delivery_info["routing_key"]))
            message.ack()

        with Consumer(connection, [queue], callbacks=[take], prefetch_count=10, accept=["json"]):
            drain(connection, lambda: len(got) == 50)
        queue(connection).delete()
    assert got == [(number, "a.b") for number in range(50)]


def test_a_simple_queue_puts_and_gets(connection: Connection, name: Callable[..., str]) -> None:
    with connection.SimpleQueue(name("simple")) as queue:
        for number in range(5):
            queue.put({"number": number}, headers={"n": number})
        assert queue.qsize() == 5
        for number in range(5):
            message = queue.get(timeout=DEADLINE_S)
            assert (message.payload, message.headers["n"]) == ({"number": number}, number)
            message.ack()
        with pytest.raises(queue.Empty):
            queue.get_nowait()


def test_a_simple_buffer_forgets_what_it_was(connection: Connection, name: Callable[..., str]) -> None:
    with connection.SimpleBuffer(name("buffer")) as buffer:
        buffer.put("x")
        assert buffer.get(timeout=DEADLINE_S).payload == "x"


def test_a_message_is_requeued_and_rejected(connection: Connection, name: Callable[..., str]) -> None:
    queue = Queue(name(), auto_delete=True)
    story: list[str] = []
    Producer(connection).publish("x", routing_key=queue.name, declare=[queue])

    def take(_body: Any, message: Any) -> None:
        again = message.delivery_info["redelivered"]
        story.append("reject" if again else "requeue")
        message.reject() if again else message.requeue()

    with Consumer(connection, [queue], callbacks=[take]):
        drain(connection, lambda: len(story) == 2)
        assert queue(connection).get() is None
    assert story == ["requeue", "reject"]


def test_higher_priorities_come_first(connection: Connection, name: Callable[..., str]) -> None:
    queue = Queue(name("priorities"), max_priority=9, durable=True)
    producer = Producer(connection)
    priorities = [3, 9, 0, 5, 9, 3]
    for position, priority in enumerate(priorities):
        producer.publish([priority, position], routing_key=queue.name, declare=[queue], priority=priority)
    bound = queue(connection)
    got = [bound.get(no_ack=True).payload for _ in priorities]
    assert got == [[9, 1], [9, 4], [5, 3], [3, 0], [3, 5], [0, 2]]
    bound.delete()


def test_a_message_expires(connection: Connection, name: Callable[..., str]) -> None:
    queue = Queue(name("expiring"), auto_delete=True)
    Producer(connection).publish("short", routing_key=queue.name, declare=[queue], expiration=0.001)
    Producer(connection).publish("long", routing_key=queue.name, expiration=600)
    bound = queue(connection)
    deadline = time.monotonic() + DEADLINE_S
    while (message := bound.get(no_ack=True)).payload == "short":  # it was faster than a millisecond: once more
        assert time.monotonic() < deadline
        Producer(connection).publish("short", routing_key=queue.name, expiration=0.001)
    assert message.payload == "long"


def test_arguments_of_a_queue_are_understood(connection: Connection, name: Callable[..., str]) -> None:
    queue = Queue(name("short"), max_length=2, message_ttl=600, expires=600, durable=False)
    producer = Producer(connection)
    for number in range(5):
        producer.publish(number, routing_key=queue.name, declare=[queue])
    bound = queue(connection)
    assert [bound.get(no_ack=True).payload for _ in range(2)] == [3, 4]
    assert bound.get() is None


def test_a_publish_is_tried_again_after_a_restart(
    restartable: Served, restarted_door: Door, name: Callable[..., str]
) -> None:
    queue = Queue(name("kept"), durable=True)
    errors: list[Exception] = []
    with connection_to(restarted_door) as connection:
        producer = Producer(connection)
        producer.publish("before", routing_key=queue.name, declare=[queue])
        producer.channel.connection.send_heartbeat()
        queue(connection).queue_declare()  # an answer: what was published before is in
        restarting = threading.Thread(target=restartable.restart)
        restarting.start()
        try:
            with pytest.raises(connection.connection_errors):
                while True:
                    try:
                        connection.drain_events(timeout=1)
                    except TimeoutError:
                        continue
            producer.publish(
                "after",
                routing_key=queue.name,
                declare=[queue],
                retry=True,
                retry_policy={
                    "max_retries": 240,
                    "interval_start": 0.1,
                    "interval_max": 0.5,
                    "errback": lambda error, _interval: errors.append(error),
                },
            )
        finally:
            restarting.join()
        bound = queue(connection.default_channel)
        assert [bound.get(no_ack=True).payload for _ in range(2)] == ["before", "after"]


def test_a_pool_of_producers_is_shared_by_threads(door: Door, name: Callable[..., str]) -> None:
    queue = Queue(name("pooled"), auto_delete=False)
    with connection_to(door) as connection:
        queue(connection).declare()
        pool = producers[connection]  # here: threads that ask at once make a pool each, and kombu closes only one

        def publish() -> None:
            for _ in range(10):
                with pool.acquire(block=True) as producer:
                    producer.publish("x", routing_key=queue.name, retry=True)

        threads = [threading.Thread(target=publish) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pools.reset()
        bound = queue(connection)
        assert bound.queue_declare(passive=True).message_count == 40
        assert bound.purge() == 40


def test_a_mailbox_asks_all_and_gathers_their_answers(door: Door, name: Callable[..., str]) -> None:
    mailbox = Mailbox(name("mailbox"), type="fanout")
    stop = threading.Event()
    ready = threading.Barrier(3)

    def serve(hostname: str) -> None:
        with connection_to(door) as connection, connection.channel() as channel:
            node = mailbox.Node(hostname, channel=channel, state={"name": hostname})
            node.handlers["double"] = lambda state, number: [state["name"], number * 2]
            with node.listen():
                ready.wait(DEADLINE_S)
                while not stop.is_set():
                    try:
                        connection.drain_events(timeout=0.1)
                    except TimeoutError:
                        continue

    threads = [threading.Thread(target=serve, args=(hostname,)) for hostname in ("one", "two")]
    for thread in threads:
        thread.start()
    try:
        ready.wait(DEADLINE_S)
        with connection_to(door) as connection:
            asking = mailbox(connection)
            everyone = asking.multi_call("double", {"number": 4}, timeout=DEADLINE_S, limit=2)
            assert sorted(everyone, key=str) == [{"one": ["one", 8]}, {"two": ["two", 8]}]
            assert asking.call(["two"], "double", {"number": 1}, timeout=DEADLINE_S) == [{"two": ["two", 2]}]
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_worker_answers_to_the_queue_it_is_told(door: Door, name: Callable[..., str]) -> None:
    requests = Queue(name("rpc"), auto_delete=True)

    class Doubling(ConsumerProducerMixin):
        def __init__(self, connection: Connection) -> None:
            self.connection = connection

        def get_consumers(self, make: Any, _channel: Any) -> list[Any]:
            return [make(queues=[requests], on_message=self.double, prefetch_count=1)]

        def double(self, message: Any) -> None:
            self.producer.publish(
                message.payload * 2,
                exchange="",
                routing_key=message.properties["reply_to"],
                correlation_id=message.properties["correlation_id"],
                retry=True,
            )
            message.ack()

    with connection_to(door) as serving, connection_to(door) as asking:
        worker = Doubling(serving)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            answers = Queue(name("answers"), exclusive=True, auto_delete=True)
            got: dict[str, int] = {}
            with Consumer(
                asking,
                [answers],
                callbacks=[lambda body, message: got.update({message.properties["correlation_id"]: body})],
                no_ack=True,
            ):
                for number in range(5):
                    Producer(asking).publish(
                        number,
                        routing_key=requests.name,
                        declare=[requests],
                        reply_to=answers.name,
                        correlation_id=str(number),
                    )
                drain(asking, lambda: len(got) == 5)
            assert got == {str(number): number * 2 for number in range(5)}
        finally:
            worker.should_stop = True
            thread.join()
