"""Do priorities, delivery limits and a single active consumer work as RabbitMQ's do?"""

from collections.abc import Callable
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from tests.conformance.brokers import Broker
from tests.conformance.client import Inbox, bodies, channel_closed, count, eventually, get_soon, publish

Namer = Callable[..., str]
Connector = Callable[..., BlockingConnection]


def declared(channel: BlockingChannel, name: Namer, **arguments: Any) -> str:
    queue = name()
    settings = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    channel.queue_declare(queue, durable=True, arguments=settings)
    return queue


def test_higher_priorities_come_first_and_equal_ones_in_order(confirming: BlockingChannel, name: Namer) -> None:
    queue = declared(confirming, name, max_priority=5)
    for number, priority in enumerate([0, 5, 1, None, 5, 3, 1]):
        publish(confirming, queue, f"{priority or 0}-{number}", priority=priority)
    assert bodies(confirming, queue) == ["5-1", "5-4", "3-5", "1-2", "1-6", "0-0", "0-3"]


def test_a_priority_over_the_highest_counts_as_the_highest(confirming: BlockingChannel, name: Namer) -> None:
    queue = declared(confirming, name, max_priority=5)
    for body, priority in (("five", 5), ("two hundred", 200), ("four", 4)):
        publish(confirming, queue, body, priority=priority)
    message = get_soon(confirming, queue)
    assert (message.body, message.properties.priority) == (b"five", 5)
    message = get_soon(confirming, queue)
    assert (message.body, message.properties.priority) == (b"two hundred", 200)


def test_without_x_max_priority_the_property_orders_nothing(confirming: BlockingChannel, queue: str) -> None:
    publish(confirming, queue, "low", priority=0)
    publish(confirming, queue, "high", priority=9)
    assert bodies(confirming, queue) == ["low", "high"]


def test_a_requeued_message_goes_back_among_its_priority(confirming: BlockingChannel, name: Namer) -> None:
    queue = declared(confirming, name, max_priority=5)
    publish(confirming, queue, "b1", "b2", priority=2)
    publish(confirming, queue, "a1", priority=4)
    first = get_soon(confirming, queue, auto_ack=False)
    second = get_soon(confirming, queue, auto_ack=False)
    assert (first.body, second.body) == (b"a1", b"b1")
    confirming.basic_nack(second.tag, multiple=True)
    assert bodies(confirming, queue) == ["a1", "b1", "b2"]


def test_a_full_priority_queue_drops_the_least_urgent_message_where_rabbitmq_drops_the_most_urgent(
    broker: Broker, confirming: BlockingChannel, name: Namer
) -> None:
    """Here Holdfast answers otherwise on purpose: the head of the queue, which RabbitMQ drops, is what matters most."""
    queue = declared(confirming, name, max_priority=5, max_length=2)
    publish(confirming, queue, "high", priority=5)
    publish(confirming, queue, "low1", "low2", priority=1)
    assert bodies(confirming, queue) == (["high", "low2"] if broker.is_holdfast else ["low1", "low2"])


def test_a_message_delivered_more_often_than_the_limit_is_dropped(confirming: BlockingChannel, name: Namer) -> None:
    queue = declared(confirming, name, queue_type="quorum", delivery_limit=2)
    publish(confirming, queue, "a")
    for _ in range(3):
        message = get_soon(confirming, queue, auto_ack=False)
        confirming.basic_nack(message.tag)
    eventually(lambda: count(confirming, queue) == 0)
    assert bodies(confirming, queue) == []


def test_a_message_over_its_delivery_limit_is_dead_lettered(confirming: BlockingChannel, name: Namer) -> None:
    dead = name("dead")
    confirming.queue_declare(dead)
    queue = declared(
        confirming,
        name,
        queue_type="quorum",
        delivery_limit=2,
        dead_letter_exchange="",
        dead_letter_routing_key=dead,
    )
    publish(confirming, queue, "a")
    for _ in range(3):
        message = get_soon(confirming, queue, auto_ack=False)
        confirming.basic_nack(message.tag)
    message = get_soon(confirming, dead)
    [death] = message.headers["x-death"]
    assert (death["reason"], death["count"], death["queue"]) == ("delivery_limit", 1, queue)
    assert message.headers["x-first-death-reason"] == "delivery_limit"


def test_a_delivery_count_is_shown_in_what_is_got(confirming: BlockingChannel, name: Namer) -> None:
    queue = declared(confirming, name, queue_type="quorum", delivery_limit=5)
    publish(confirming, queue, "a", headers={"own": 1})
    seen = []
    for _ in range(3):
        message = get_soon(confirming, queue, auto_ack=False)
        assert message.headers["own"] == 1
        seen.append((message.headers.get("x-delivery-count"), message.method.redelivered))
        confirming.basic_reject(message.tag, requeue=True)
    assert seen == [(0, False), (1, True), (2, True)]


def test_a_delivery_count_is_shown_to_a_consumer(confirming: BlockingChannel, name: Namer) -> None:
    queue = declared(confirming, name, queue_type="quorum", delivery_limit=5)
    publish(confirming, queue, "a")
    inbox = Inbox(confirming, queue)
    seen = []
    for _ in range(3):
        [message] = inbox.take(1)
        seen.append((message.headers.get("x-delivery-count"), message.method.redelivered))
        confirming.basic_reject(message.tag, requeue=True)
    assert seen == [(None, False), (1, True), (2, True)]


def test_a_message_within_its_delivery_limit_may_be_acknowledged(confirming: BlockingChannel, name: Namer) -> None:
    queue = declared(confirming, name, queue_type="quorum", delivery_limit=1)
    publish(confirming, queue, "a")
    confirming.basic_nack(get_soon(confirming, queue, auto_ack=False).tag)
    confirming.basic_ack(get_soon(confirming, queue, auto_ack=False).tag)
    assert bodies(confirming, queue) == []


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_only_one_of_several_consumers_is_active_and_another_follows(
    connection: BlockingConnection, confirming: BlockingChannel, name: Namer, kind: str
) -> None:
    queue = declared(confirming, name, single_active_consumer=True, queue_type=kind)
    one, two = connection.channel(), connection.channel()
    first, second = Inbox(one, queue), Inbox(two, queue)
    publish(confirming, queue, *"abcd")
    taken = first.take(4)
    assert [message.body for message in taken] == [b"a", b"b", b"c", b"d"]
    assert second.is_quiet()
    one.basic_ack(taken[1].tag, multiple=True)
    one.basic_cancel(first.tag)
    publish(confirming, queue, "e")
    assert second.take_bodies(1) == ["e"]
    one.close()
    assert second.take_bodies(2) == ["c", "d"]


def test_an_active_consumer_stays_when_one_of_a_higher_priority_comes(
    connection: BlockingConnection, confirming: BlockingChannel, name: Namer
) -> None:
    queue = declared(confirming, name, single_active_consumer=True)
    one, two = connection.channel(), connection.channel()
    one.basic_qos(prefetch_count=1)
    first = Inbox(one, queue)
    publish(confirming, queue, *"abc")
    (held,) = first.take(1)
    second = Inbox(two, queue, arguments={"x-priority": 10})
    assert second.is_quiet()
    one.basic_ack(held.tag)
    assert first.take_bodies(1) == ["b"]
    one.close()
    assert sorted(second.take_bodies(2)) == ["b", "c"]


def test_a_single_active_consumer_may_not_be_exclusive(connection: BlockingConnection, name: Namer) -> None:
    channel = connection.channel()
    queue = declared(channel, name, single_active_consumer=True)
    with channel_closed(403, "ACCESS_REFUSED"):
        channel.basic_consume(queue, print, exclusive=True)


def test_the_next_active_consumer_takes_over_when_a_connection_is_lost(
    connect: Connector, confirming: BlockingChannel, name: Namer
) -> None:
    queue = declared(confirming, name, single_active_consumer=True)
    gone = connect()
    first = Inbox(gone.channel(), queue)
    second = Inbox(confirming, queue)
    publish(confirming, queue, "a", "b")
    assert first.take_bodies(2) == ["a", "b"]
    gone.close()
    assert second.take_bodies(2) == ["a", "b"]


def test_the_next_active_consumer_gets_first_what_the_last_one_held_when_it_left_in_order(
    connect: Connector, confirming: BlockingChannel, name: Namer
) -> None:
    """pika cancels its consumers before it closes: the successor does not run ahead between the two."""
    queue = declared(confirming, name, single_active_consumer=True)
    leaving = connect()
    one = leaving.channel()
    one.basic_qos(prefetch_count=3)
    first, second = Inbox(one, queue), Inbox(confirming, queue)
    publish(confirming, queue, *"abcde")
    assert first.take_bodies(3) == ["a", "b", "c"]
    leaving.close()
    assert second.take_bodies(5) == ["a", "b", "c", "d", "e"]
