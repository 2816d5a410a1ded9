"""Do delayed messages and deduplication work, which RabbitMQ has only with plugins, and what differs on purpose?"""

import time
from collections.abc import Callable
from typing import Any

import pytest
from pika import frame, spec
from pika.adapters.blocking_connection import BlockingChannel
from pika.compat import long
from pika.exceptions import UnroutableError

from tests.conformance.client import Inbox, bodies, channel_closed, count, eventually, get, get_soon, publish
from tests.conformance.wire import Wire, publishing

pytestmark = pytest.mark.usefixtures("holdfast_only")
Namer = Callable[..., str]
Headers = dict[str, Any]


def deduplicating(channel: BlockingChannel, name: Namer) -> str:
    queue = name()
    channel.queue_declare(queue, durable=True, arguments={"x-message-deduplication": True})
    return queue


def delayed_exchange(channel: BlockingChannel, name: Namer, kind: str) -> str:
    exchange = name("exchange")
    channel.exchange_declare(exchange, "x-delayed-message", durable=True, arguments={"x-delayed-type": kind})
    return exchange


def test_a_message_with_x_delay_comes_later(confirming: BlockingChannel, queue: str) -> None:
    began = time.monotonic()
    publish(confirming, queue, "late", headers={"x-delay": 2000})
    publish(confirming, queue, "now")
    assert bodies(confirming, queue) == ["now"]
    assert get_soon(confirming, queue).body == b"late"
    assert time.monotonic() - began >= 2


def test_a_delay_is_not_counted_as_life(confirming: BlockingChannel, name: Namer) -> None:
    queue = name()
    confirming.queue_declare(queue, arguments={"x-message-ttl": 4000})
    publish(confirming, queue, "by the queue", headers={"x-delay": 4500})
    publish(confirming, queue, "by its own", headers={"x-delay": 4500}, expiration="4000")
    assert {get_soon(confirming, queue).body for _ in range(2)} == {b"by the queue", b"by its own"}


def test_delayed_messages_come_in_the_order_of_their_times(confirming: BlockingChannel, queue: str) -> None:
    for delay in (9000, 3000, 6000):
        publish(confirming, queue, str(delay), headers={"x-delay": delay})
    assert [get_soon(confirming, queue).body for _ in range(3)] == [b"3000", b"6000", b"9000"]


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


@pytest.mark.parametrize(
    ("kind", "binding", "key", "headers"),
    [
        ("direct", ("red", {}), "red", {}),
        ("fanout", ("", {}), "red", {}),
        ("topic", ("*.red", {}), "dark.red", {}),
        ("headers", ("", {"color": "red"}), "", {"color": "red"}),
    ],
)
def test_a_delayed_exchange_routes_as_its_type_and_holds_back_what_asks_for_it(
    confirming: BlockingChannel, name: Namer, kind: str, binding: tuple[str, Headers], key: str, headers: Headers
) -> None:
    exchange, queue = delayed_exchange(confirming, name, kind), name()
    confirming.queue_declare(queue)
    confirming.queue_bind(queue, exchange, *binding)
    began = time.monotonic()
    publish(confirming, key, "late", exchange=exchange, headers=headers | {"x-delay": 2000}, mandatory=True)
    publish(confirming, key, "now", exchange=exchange, headers=headers, mandatory=True)
    assert bodies(confirming, queue) == ["now"]
    late = get_soon(confirming, queue)
    assert time.monotonic() - began >= 2
    assert (late.body, late.method.exchange, late.method.routing_key) == (b"late", exchange, key)


@pytest.mark.parametrize(
    ("kind", "binding"), [("direct", ("red", {})), ("topic", ("*.red", {})), ("headers", ("", {"color": "red"}))]
)
def test_what_matches_no_binding_of_a_delayed_exchange_is_returned_at_once(
    confirming: BlockingChannel, name: Namer, queue: str, kind: str, binding: tuple[str, Headers]
) -> None:
    exchange = delayed_exchange(confirming, name, kind)
    confirming.queue_bind(queue, exchange, *binding)
    with pytest.raises(UnroutableError):
        headers = {"color": "blue", "x-delay": 500}
        publish(confirming, "blue", "lost", exchange=exchange, headers=headers, mandatory=True)
    assert Inbox(confirming, queue).is_quiet(seconds=1)


def test_a_delayed_exchange_keeps_the_times_for_consumers_and_the_order_of_publishing_for_a_backlog(
    confirming: BlockingChannel, name: Namer
) -> None:
    exchange, consumed, backlog = delayed_exchange(confirming, name, "fanout"), name(), name()
    for queue in (consumed, backlog):
        confirming.queue_declare(queue)
        confirming.queue_bind(queue, exchange)
    inbox = Inbox(confirming, consumed)
    for delay in (9000, 3000, 6000):
        publish(confirming, "", str(delay), exchange=exchange, headers={"x-delay": delay})
    assert inbox.take_bodies(3) == ["3000", "6000", "9000"]
    # The plug-in puts them into the queue one by one; here they stand where they were put: docs/amqp.md says so.
    eventually(lambda: count(confirming, backlog) == 3)
    assert bodies(confirming, backlog) == ["9000", "3000", "6000"]


@pytest.mark.parametrize("arguments", [{}, {"x-delayed-type": "x-delayed-message"}, {"x-delayed-type": 1}], ids=str)
def test_a_delayed_exchange_must_say_how_it_routes(channel: BlockingChannel, name: Namer, arguments: Headers) -> None:
    with channel_closed(406, "PRECONDITION_FAILED - ", "x-delayed-type"):
        channel.exchange_declare(name("exchange"), "x-delayed-message", arguments=arguments)


def test_a_delayed_exchange_is_declared_again_alike_only(channel: BlockingChannel, name: Namer) -> None:
    exchange = delayed_exchange(channel, name, "topic")
    channel.exchange_declare(exchange, "x-delayed-message", durable=True, arguments={"x-delayed-type": "topic"})
    with channel_closed(406, "PRECONDITION_FAILED - inequivalent arg 'x-delayed-type'"):
        channel.exchange_declare(exchange, "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"})


@pytest.mark.parametrize("arguments", [{}, {"x-message-ttl": 0}], ids=["its own", "the queue's"])
def test_what_was_delayed_and_has_no_time_to_live_comes_to_who_waits(
    confirming: BlockingChannel, name: Namer, arguments: dict[str, int]
) -> None:
    queue = name()
    confirming.queue_declare(queue, durable=True, arguments=arguments)
    inbox = Inbox(confirming, queue, auto_ack=True)
    own: dict[str, Any] = {} if arguments else {"expiration": "0"}
    publish(confirming, queue, *"abc", headers={"x-delay": 300}, **own)
    assert inbox.take_bodies(3) == [*"abc"]


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


def test_a_number_is_the_same_whatever_its_width(channel: BlockingChannel, name: Namer, queue: str) -> None:
    exchange = name("exchange")
    channel.exchange_declare(exchange, "headers")
    channel.queue_bind(queue, exchange, arguments={"n": 1, "in": {"n": 1}})
    publish(channel, "", "a", exchange=exchange, headers={"n": long(1), "in": {"n": long(1)}})
    assert bodies(channel, queue) == ["a"]
    channel.queue_unbind(queue, exchange, arguments={"n": long(1), "in": {"n": long(1)}})
    publish(channel, "", "a", exchange=exchange, headers={"n": 1, "in": {"n": 1}})
    assert bodies(channel, queue) == []


def test_what_is_given_back_to_a_quorum_queue_goes_to_its_place(confirming: BlockingChannel, name: Namer) -> None:
    queue = name()
    confirming.queue_declare(queue, durable=True, arguments={"x-queue-type": "quorum"})
    publish(confirming, queue, *"abcd")
    _, second, _ = (get_soon(confirming, queue, auto_ack=False) for _ in range(3))
    confirming.basic_nack(second.tag)
    assert bodies(confirming, queue) == ["b", "d"]


def test_a_queue_that_holds_and_refuses_everything_hands_on_what_a_consumer_takes(
    confirming: BlockingChannel, name: Namer
) -> None:
    queue = name()
    confirming.queue_declare(queue, durable=True, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    inbox = Inbox(confirming, queue, auto_ack=True)
    publish(confirming, queue, *"ab")
    assert inbox.take_bodies(2) == ["a", "b"]


def test_a_queue_type_that_does_not_exist_is_a_failed_precondition(channel: BlockingChannel, name: Namer) -> None:
    with channel_closed(406, "PRECONDITION_FAILED", "unsupported queue type 'paper'"):
        channel.queue_declare(name(), durable=True, arguments={"x-queue-type": "paper"})


@pytest.mark.parametrize("arguments", [{"x-message-ttl": 60_000}, {"x-max-length": 10}], ids=["ttl", "length"])
def test_nothing_is_delivered_on_a_channel_that_is_closed(
    wire: Wire, channel: BlockingChannel, name: Namer, arguments: dict[str, int]
) -> None:
    queue = name()
    channel.queue_declare(queue, arguments=arguments)
    wire.open()
    wire.call(1, spec.Basic.Consume(queue=queue, consumer_tag="c", no_ack=False))
    wire.expect(spec.Basic.ConsumeOk)
    wire.send(publishing(1, queue, "a"), publishing(1, "key", "b", exchange="conformance.absent"))
    closed = False
    while not closed:
        received = wire.receive()
        closed = isinstance(received, frame.Method) and isinstance(received.method, spec.Channel.Close)
    wire.call(1, spec.Channel.CloseOk())
    wire.call(1, spec.Channel.Open())
    wire.expect(spec.Channel.OpenOk)
    assert get_soon(channel, queue).body == b"a"


@pytest.mark.parametrize(
    "arguments", [{"x-message-ttl": 0}, {"x-max-length": 1}, {"x-max-length": 1, "x-overflow": "reject-publish"}]
)
def test_of_many_dead_letters_at_once_none_is_lost_that_a_consumer_waits_for(
    wire: Wire, confirming: BlockingChannel, name: Namer, arguments: dict[str, Any]
) -> None:
    dead, dying = name("dead"), name("dying")
    confirming.queue_declare(dead, arguments=arguments)
    inbox = Inbox(confirming, dead, auto_ack=True)
    leads = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    confirming.queue_declare(dying, arguments={"x-message-ttl": 300, **leads})
    wire.open()
    texts = [str(number) for number in range(3000)]
    wire.send(publishing(1, dying, *texts))
    assert inbox.take_bodies(3000) == texts


@pytest.mark.parametrize("texts", [["x"] * 9000, ["x", "xx"] * 4500], ids=["alike", "differing"])
def test_of_a_large_burst_a_limited_queue_drops_nothing_that_a_consumer_waits_for(
    wire: Wire, channel: BlockingChannel, name: Namer, texts: list[str]
) -> None:
    queue = name()
    channel.queue_declare(queue, arguments={"x-max-length": 1})
    inbox = Inbox(channel, queue, auto_ack=True)
    wire.open()
    wire.send(publishing(1, queue, *texts))
    assert inbox.take_bodies(len(texts)) == texts
