"""Do delayed messages and deduplication, which RabbitMQ has only with plugins, work?"""

import time
from collections.abc import Callable

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.conformance.client import Inbox, bodies, get, get_soon, publish

pytestmark = pytest.mark.usefixtures("holdfast_only")
Namer = Callable[..., str]


def deduplicating(channel: BlockingChannel, name: Namer) -> str:
    queue = name()
    channel.queue_declare(queue, durable=True, arguments={"x-message-deduplication": True})
    return queue


def test_a_message_with_x_delay_comes_later(confirming: BlockingChannel, queue: str) -> None:
    began = time.monotonic()
    publish(confirming, queue, "late", headers={"x-delay": 2000})
    publish(confirming, queue, "now")
    assert bodies(confirming, queue) == ["now"]
    assert get_soon(confirming, queue).body == b"late"
    assert time.monotonic() - began >= 2


def test_a_delay_is_not_counted_as_life(confirming: BlockingChannel, name: Namer) -> None:
    queue = name()
    confirming.queue_declare(queue, arguments={"x-message-ttl": 900})
    publish(confirming, queue, "by the queue", headers={"x-delay": 1500})
    publish(confirming, queue, "by its own", headers={"x-delay": 1500}, expiration="800")
    assert {get_soon(confirming, queue).body for _ in range(2)} == {b"by the queue", b"by its own"}


def test_delayed_messages_come_in_the_order_of_their_times(confirming: BlockingChannel, queue: str) -> None:
    for delay in (3000, 1000, 2000):
        publish(confirming, queue, str(delay), headers={"x-delay": delay})
    assert [get_soon(confirming, queue).body for _ in range(3)] == [b"1000", b"2000", b"3000"]


@pytest.mark.parametrize("delay", [0, -5, "soon"])
def test_a_delay_that_is_no_positive_number_is_none(confirming: BlockingChannel, queue: str, delay: object) -> None:
    publish(confirming, queue, "now", headers={"x-delay": delay})
    assert bodies(confirming, queue) == ["now"]


def test_a_delay_counts_in_each_queue_that_an_exchange_reaches(confirming: BlockingChannel, name: Namer) -> None:
    queues = [name(), name()]
    for queue in queues:
        confirming.queue_declare(queue)
        confirming.queue_bind(queue, "amq.direct", queues[0])
    publish(confirming, queues[0], "late", exchange="amq.direct", headers={"x-delay": 2000})
    assert [get(confirming, queue) for queue in queues] == [None, None]
    assert [get_soon(confirming, queue).body for queue in queues] == [b"late", b"late"]


def test_a_purge_removes_delayed_messages_and_counts_them(confirming: BlockingChannel, queue: str) -> None:
    publish(confirming, queue, "late", "later", headers={"x-delay": 1500})
    publish(confirming, queue, "now")
    assert confirming.queue_purge(queue).method.message_count == 3
    assert Inbox(confirming, queue).is_quiet(seconds=2)


def test_a_message_with_the_same_deduplication_header_is_taken_once_and_confirmed(
    confirming: BlockingChannel, name: Namer
) -> None:
    queue = deduplicating(confirming, name)
    for body, key in (("a", "one"), ("b", "one"), ("c", "two")):
        publish(confirming, queue, body, headers={"x-deduplication-header": key}, mandatory=True)
    publish(confirming, queue, "d", "e")
    assert bodies(confirming, queue) == ["a", "c", "d", "e"]


def test_deduplication_is_of_one_queue(confirming: BlockingChannel, name: Namer) -> None:
    queues = [deduplicating(confirming, name) for _ in range(2)]
    for queue in queues:
        publish(confirming, queue, "a", headers={"x-deduplication-header": "one"})
    assert [bodies(confirming, queue) for queue in queues] == [["a"], ["a"]]


def test_a_queue_that_does_not_deduplicate_takes_all(confirming: BlockingChannel, queue: str) -> None:
    publish(confirming, queue, "a", "b", headers={"x-deduplication-header": "one"})
    assert bodies(confirming, queue) == ["a", "b"]
