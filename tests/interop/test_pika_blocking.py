"""Does pika's BlockingConnection find what it expects?"""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker, NackError, UnroutableError

from tests.interop.serving import Door, Served, until

PERSISTENT = pika.BasicProperties(delivery_mode=2)
EVERYTHING = {
    "content_type": "application/json",
    "content_encoding": "gzip",
    "headers": {
        "text": "fünf",
        "number": 5,
        "large": 1 << 40,
        "negative": -3,
        "flag": True,
        "nothing": None,
        "list": [1, "two", {"three": 3}],
        "table": {"a": {"b": "c"}},
    },
    "delivery_mode": 2,
    "priority": 7,
    "correlation_id": "c-1",
    "reply_to": "answers",
    "expiration": "600000",
    "message_id": "m-1",
    "timestamp": 1_700_000_000,
    "type": "order",
    "user_id": "guest",
    "app_id": "tests",
    "cluster_id": "none",
}


@pytest.fixture
def connection(door: Door) -> Iterator[BlockingConnection]:
    with pika.BlockingConnection(door.parameters()) as opened:
        yield opened


@pytest.fixture
def channel(connection: BlockingConnection) -> BlockingChannel:
    """A channel on which each publish waits for its confirm."""
    opened = connection.channel()
    opened.confirm_delivery()
    return opened


@pytest.fixture
def queue(channel: BlockingChannel, name: Callable[..., str]) -> str:
    used = name()
    channel.queue_declare(used, durable=True)
    return used


def fill(channel: BlockingChannel, queue: str, count: int) -> list[bytes]:
    bodies = [b"message %d" % number for number in range(count)]
    for body in bodies:
        channel.basic_publish("", queue, body, PERSISTENT)
    return bodies


def depth(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def test_what_is_published_with_confirms_is_got_in_order(channel: BlockingChannel, queue: str) -> None:
    bodies = fill(channel, queue, 50)
    assert depth(channel, queue) == 50
    got = []
    for left in reversed(range(50)):
        method, _, body = channel.basic_get(queue)
        assert method.message_count == left
        got.append(body)
        channel.basic_ack(method.delivery_tag)
    assert got == bodies
    assert channel.basic_get(queue) == (None, None, None)


def test_all_properties_arrive_as_they_were_sent(channel: BlockingChannel, queue: str) -> None:
    channel.basic_publish("", queue, b"x", pika.BasicProperties(**EVERYTHING))
    _, properties, _ = channel.basic_get(queue, auto_ack=True)
    assert {key: getattr(properties, key) for key in EVERYTHING} == EVERYTHING


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 3_000_000])
def test_a_body_of_any_size_arrives_whole(channel: BlockingChannel, queue: str, size: int) -> None:
    body = os.urandom(size)
    channel.basic_publish("", queue, body, PERSISTENT)
    _, _, got = channel.basic_get(queue, auto_ack=True)
    assert got == body


def test_a_mandatory_message_that_fits_no_queue_comes_back(channel: BlockingChannel, name: Callable[..., str]) -> None:
    nowhere = name("nowhere")
    with pytest.raises(UnroutableError) as refused:
        channel.basic_publish("", nowhere, b"back", mandatory=True)
    (message,) = refused.value.messages
    assert (message.method.reply_code, message.method.reply_text) == (312, "NO_ROUTE")
    assert (message.method.routing_key, message.body) == (nowhere, b"back")
    channel.basic_publish("", nowhere, b"gone")  # not mandatory: confirmed and dropped


def test_a_full_queue_that_refuses_answers_with_a_nack(channel: BlockingChannel, name: Callable[..., str]) -> None:
    full = name("full")
    channel.queue_declare(full, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.basic_publish("", full, b"first")
    with pytest.raises(NackError):
        channel.basic_publish("", full, b"second")
    assert channel.basic_get(full, auto_ack=True)[2] == b"first"


def test_a_consumer_holds_no_more_than_its_prefetch(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    bodies = fill(channel, queue, 20)
    channel.basic_qos(prefetch_count=3)
    held: list[tuple[int, bytes]] = []
    most = 0

    def take(_channel: object, method: pika.spec.Basic.Deliver, _properties: object, body: bytes) -> None:
        held.append((method.delivery_tag, body))

    channel.basic_consume(queue, take)
    seen: list[bytes] = []
    while len(seen) < 20:
        connection.process_data_events(time_limit=0.05)
        most = max(most, len(held))
        if len(held) == 3 or len(seen) + len(held) == 20:
            seen += [body for _, body in held]
            channel.basic_ack(held[-1][0], multiple=True)
            held.clear()
    assert most == 3
    assert seen == bodies


def test_a_consumer_reads_with_a_generator_and_gives_back_the_rest(channel: BlockingChannel, queue: str) -> None:
    fill(channel, queue, 5)
    taken = []
    for method, _, body in channel.consume(queue, inactivity_timeout=60):
        taken.append(body)
        channel.basic_ack(method.delivery_tag)
        if len(taken) == 2:
            break
    channel.cancel()
    assert taken == [b"message 0", b"message 1"]
    until(lambda: depth(channel, queue) == 3, "three messages are back")


def test_a_nack_gives_back_or_throws_away(channel: BlockingChannel, queue: str) -> None:
    fill(channel, queue, 2)
    first, _, body = channel.basic_get(queue)
    assert (first.redelivered, body) == (False, b"message 0")
    channel.basic_nack(first.delivery_tag, requeue=True)
    again, _, body = channel.basic_get(queue)
    assert (again.redelivered, body) == (True, b"message 0")
    channel.basic_reject(again.delivery_tag, requeue=False)
    last, _, body = channel.basic_get(queue)
    assert (last.redelivered, body) == (False, b"message 1")


def test_a_closed_channel_gives_back_what_was_not_acknowledged(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    fill(channel, queue, 1)
    other = connection.channel()
    assert other.basic_get(queue)[2] == b"message 0"
    assert channel.basic_get(queue) == (None, None, None)
    other.close()
    method, _, body = channel.basic_get(queue)
    assert (method.redelivered, body) == (True, b"message 0")


def test_purge_and_delete_say_how_much_went(channel: BlockingChannel, queue: str) -> None:
    fill(channel, queue, 4)
    assert channel.queue_purge(queue).method.message_count == 4
    fill(channel, queue, 2)
    assert channel.queue_delete(queue).method.message_count == 2
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.queue_declare(queue, passive=True)
    assert closed.value.reply_code == 404


def test_a_consumer_learns_that_its_queue_is_deleted(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    cancelled: list[str] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = channel.basic_consume(queue, lambda *_: None)
    connection.channel().queue_delete(queue)

    def told() -> bool:
        connection.process_data_events(time_limit=0.05)
        return cancelled == [tag]

    until(told, "the consumer is cancelled")


def test_a_cancelled_consumer_gets_nothing_more(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    got: list[bytes] = []
    tag = channel.basic_consume(queue, lambda _c, _m, _p, body: got.append(body), auto_ack=True)
    fill(channel, queue, 1)
    until(lambda: connection.process_data_events(time_limit=0.05) or got, "the first message")
    channel.basic_cancel(tag)
    fill(channel, queue, 1)
    connection.process_data_events(time_limit=0.1)
    assert got == [b"message 0"]
    assert depth(channel, queue) == 1


def test_a_transaction_takes_effect_as_a_whole_or_not_at_all(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    working = connection.channel()
    working.tx_select()
    working.basic_publish("", queue, b"never")
    working.tx_rollback()
    working.basic_publish("", queue, b"once")
    assert depth(channel, queue) == 0
    working.tx_commit()
    assert depth(channel, queue) == 1
    method, _, body = working.basic_get(queue)
    assert body == b"once"
    working.basic_ack(method.delivery_tag)
    working.tx_commit()
    connection.process_data_events()
    working.close()
    assert depth(channel, queue) == 0


def test_exchanges_of_each_type_send_to_the_right_queues(channel: BlockingChannel, name: Callable[..., str]) -> None:
    def reached(kind: str, key: str, headers: dict[str, object], binding: str, match: dict[str, object]) -> bool:
        exchange = name(kind)
        channel.exchange_declare(exchange, kind)
        queue = channel.queue_declare("", exclusive=True).method.queue
        channel.queue_bind(queue, exchange, binding, match)
        channel.basic_publish(exchange, key, b"x", pika.BasicProperties(headers=headers))
        found = channel.basic_get(queue, auto_ack=True)[2] is not None
        channel.exchange_delete(exchange)
        return found

    assert reached("direct", "a.b", {}, "a.b", {})
    assert not reached("direct", "a.b", {}, "a", {})
    assert reached("fanout", "a.b", {}, "", {})
    assert reached("topic", "a.b.c", {}, "a.#", {})
    assert not reached("topic", "a.b.c", {}, "a.*", {})
    assert reached("headers", "", {"a": 1, "b": 2}, "", {"x-match": "any", "a": 1, "b": 3})
    assert not reached("headers", "", {"a": 1, "b": 2}, "", {"x-match": "all", "a": 1, "b": 3})


def test_an_error_closes_the_channel_and_leaves_the_connection_open(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    with pytest.raises(ChannelClosedByBroker) as closed:
        channel.queue_declare(queue, durable=False)
    assert closed.value.reply_code == 406
    assert connection.channel().is_open


def test_many_channels_of_one_connection_work_side_by_side(connection: BlockingConnection, queue: str) -> None:
    channels = [connection.channel() for _ in range(20)]
    for number, channel in enumerate(channels):
        channel.basic_publish("", queue, b"%d" % number)
        channel.queue_declare(queue, passive=True)  # an answer: the message before it is in
    got = [channel.basic_get(queue, auto_ack=True)[2] for channel in reversed(channels)]
    assert got == [b"%d" % number for number in range(20)]


@pytest.mark.parametrize("options", [{"heartbeat": 1}, {"frame_max": 4096}, {"channel_max": 1}])
def test_what_a_client_asks_for_is_negotiated(door: Door, name: Callable[..., str], options: dict[str, Any]) -> None:
    queue = name()
    body = os.urandom(50_000)
    with pika.BlockingConnection(door.parameters(**options)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, exclusive=True)
        connection.sleep(2.5 if "heartbeat" in options else 0)  # more than two heartbeats: it is still there
        channel.basic_publish("", queue, body)
        connection.process_data_events()
        assert channel.basic_get(queue, auto_ack=True)[2] == body


@pytest.mark.parametrize("credentials", [("guest", "wrong"), ("nobody", "guest")])
def test_a_wrong_password_is_refused(door: Door, credentials: tuple[str, str]) -> None:
    with pytest.raises(pika.exceptions.ProbableAuthenticationError, match="ACCESS_REFUSED"):
        pika.BlockingConnection(door.parameters(credentials=pika.PlainCredentials(*credentials)))


def test_an_unknown_virtual_host_is_refused(door: Door) -> None:
    with pytest.raises((pika.exceptions.ProbableAccessDeniedError, ConnectionClosedByBroker), match="530"):
        pika.BlockingConnection(door.parameters(virtual_host="elsewhere"))


def test_a_program_that_reconnects_finds_everything_after_a_restart(
    restartable: Served, restarted_door: Door, name: Callable[..., str]
) -> None:
    queue, exchange = name("kept"), name("exchange")
    connection = pika.BlockingConnection(restarted_door.parameters())
    channel = connection.channel()
    channel.confirm_delivery()
    channel.exchange_declare(exchange, "topic", durable=True)
    channel.queue_declare(queue, durable=True)
    channel.queue_bind(queue, exchange, "kept.#")
    for number in range(100):
        channel.basic_publish(exchange, "kept.it", b"%d" % number, PERSISTENT)
    done, _, _ = channel.basic_get(queue)
    channel.basic_ack(done.delivery_tag)
    assert channel.basic_get(queue)[2] == b"1"  # held while the server goes down
    restartable.ask_to_stop()
    with pytest.raises(ConnectionClosedByBroker) as closed:
        while True:
            connection.process_data_events(time_limit=1)
    assert closed.value.reply_code == 320
    restartable.stop()
    restartable.start()
    with pika.BlockingConnection(restarted_door.parameters()) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish(exchange, "kept.more", b"100", PERSISTENT, mandatory=True)
        got = [channel.basic_get(queue, auto_ack=True)[2] for _ in range(100)]
        assert got == [b"%d" % number for number in range(1, 101)]
        assert channel.basic_get(queue) == (None, None, None)
