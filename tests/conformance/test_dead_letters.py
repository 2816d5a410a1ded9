"""Are dead messages sent on, and does x-death say of them what RabbitMQ says?"""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from pika import spec
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from tests.conformance.client import Inbox, Message, bodies, count, eventually, get, get_soon, publish
from tests.conformance.wire import Wire, publishing

Namer = Callable[..., str]


@pytest.fixture
def channel(confirming: BlockingChannel) -> BlockingChannel:
    """What was published is in its queue when the next line runs."""
    return confirming


def dying(channel: BlockingChannel, name: Namer, exchange: str, key: str | None = None, **arguments: Any) -> str:
    """A queue with a dead letter exchange, and perhaps a key."""
    queue = name("dying")
    settings = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    settings["x-dead-letter-exchange"] = exchange
    if key is not None:
        settings["x-dead-letter-routing-key"] = key
    channel.queue_declare(queue, durable=True, arguments=settings)
    return queue


def reject(channel: BlockingChannel, queue: str) -> Message:
    """Take the next message and reject it."""
    message = get_soon(channel, queue, auto_ack=False)
    channel.basic_reject(message.tag, requeue=False)
    return message


@pytest.fixture
def dead(channel: BlockingChannel, name: Namer) -> str:
    """A queue for dead letters."""
    queue = name("dead")
    channel.queue_declare(queue)
    return queue


def test_a_rejected_message_goes_to_the_dead_letter_exchange_with_its_own_key(
    channel: BlockingChannel, name: Namer, dead: str
) -> None:
    exchange = name("dlx")
    channel.exchange_declare(exchange, "topic")
    channel.queue_bind(dead, exchange, "#")
    queue = dying(channel, name, exchange)
    publish(channel, queue, "a", content_type="text/plain", message_id="m", priority=3, headers={"kept": 1})
    reject(channel, queue)
    message = get_soon(channel, dead)
    assert (message.body, message.method.exchange, message.method.routing_key) == (b"a", exchange, queue)
    assert not message.method.redelivered
    properties = message.properties
    assert (properties.content_type, properties.message_id, properties.priority) == ("text/plain", "m", 3)
    assert message.headers["kept"] == 1


def test_a_dead_letter_routing_key_replaces_the_key(channel: BlockingChannel, name: Namer, dead: str) -> None:
    queue = dying(channel, name, "", dead)
    publish(channel, queue, "a")
    reject(channel, queue)
    message = get_soon(channel, dead)
    assert (message.method.exchange, message.method.routing_key) == ("", dead)


@pytest.mark.parametrize("how", ["reject", "nack", "nack multiple"])
def test_rejecting_in_each_way_dead_letters(channel: BlockingChannel, name: Namer, dead: str, how: str) -> None:
    queue = dying(channel, name, "", dead)
    publish(channel, queue, "a", "b")
    first, second = get_soon(channel, queue, auto_ack=False), get_soon(channel, queue, auto_ack=False)
    if how == "nack multiple":
        channel.basic_nack(second.tag, multiple=True, requeue=False)
    else:
        for message in (first, second):
            if how == "nack":
                channel.basic_nack(message.tag, requeue=False)
            else:
                channel.basic_reject(message.tag, requeue=False)
    eventually(lambda: count(channel, dead) == 2)
    assert bodies(channel, dead) == ["a", "b"]


def test_without_a_dead_letter_exchange_a_rejected_message_is_gone(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, "a")
    reject(channel, queue)
    assert bodies(channel, queue) == []


def test_a_dead_letter_exchange_that_is_not_there_loses_the_message(channel: BlockingChannel, name: Namer) -> None:
    queue = dying(channel, name, name("absent"))
    publish(channel, queue, "a", "b")
    reject(channel, queue)
    assert bodies(channel, queue) == ["b"]


def test_an_acknowledged_message_is_not_dead(channel: BlockingChannel, name: Namer, dead: str) -> None:
    queue = dying(channel, name, "", dead)
    publish(channel, queue, "a", "b")
    channel.basic_ack(get_soon(channel, queue, auto_ack=False).tag)
    reject(channel, queue)
    assert get_soon(channel, dead).body == b"b"
    assert bodies(channel, dead) == []


@pytest.mark.parametrize("how", ["purge", "delete"])
def test_purged_and_deleted_messages_are_not_dead_lettered(
    channel: BlockingChannel, name: Namer, dead: str, how: str
) -> None:
    queue = dying(channel, name, "", dead)
    publish(channel, queue, "a")
    reject(channel, queue)
    publish(channel, queue, "b")
    if how == "purge":
        channel.queue_purge(queue)
    else:
        channel.queue_delete(queue)
    assert get_soon(channel, dead).body == b"a"
    assert bodies(channel, dead) == []


def test_x_death_of_a_rejected_message_says_why_where_and_when(
    channel: BlockingChannel, name: Namer, dead: str
) -> None:
    queue = dying(channel, name, "", dead)
    channel.queue_bind(queue, "amq.topic", queue)
    publish(channel, queue, "a", exchange="amq.topic")
    reject(channel, queue)
    headers = get_soon(channel, dead).headers
    [death] = headers["x-death"]
    at = death.pop("time")
    assert death == {
        "count": 1,
        "exchange": "amq.topic",
        "queue": queue,
        "reason": "rejected",
        "routing-keys": [queue],
    }
    assert isinstance(at, datetime)
    assert abs(at.timestamp() - time.time()) < 60
    del headers["x-death"]
    assert headers == {
        "x-first-death-exchange": "amq.topic",
        "x-first-death-queue": queue,
        "x-first-death-reason": "rejected",
    }


def test_x_death_is_written_in_the_order_and_types_of_rabbitmq(
    channel: BlockingChannel, name: Namer, dead: str, wire: Wire
) -> None:
    queue = dying(channel, name, "", dead)
    publish(channel, queue, "a", expiration="60000")
    reject(channel, queue)
    eventually(lambda: count(channel, dead) == 1)
    wire.open()
    wire.call(1, spec.Basic.Get(queue=dead, no_ack=True))
    wire.expect(spec.Basic.GetOk)
    wire.receive()
    pieces = [
        b"\x07x-deathA",
        b"F",
        b"\x05countl" + (1).to_bytes(8, "big"),
        b"\x06reasonS" + (8).to_bytes(4, "big") + b"rejected",
        b"\x05queueS" + len(queue).to_bytes(4, "big") + queue.encode(),
        b"\x04timeT",
        b"\x08exchangeS" + (0).to_bytes(4, "big"),
        b"\x0crouting-keysA" + (len(queue) + 5).to_bytes(4, "big") + b"S",
        b"\x13original-expirationS" + (5).to_bytes(4, "big") + b"60000",
        b"\x16x-first-death-exchangeS" + (0).to_bytes(4, "big"),
        b"\x13x-first-death-queueS" + len(queue).to_bytes(4, "big") + queue.encode(),
        b"\x14x-first-death-reasonS" + (8).to_bytes(4, "big") + b"rejected",
    ]
    places = [wire.last.find(piece) for piece in pieces]
    assert -1 not in places, wire.last
    assert places == sorted(places), wire.last


def test_an_expired_message_says_so_and_loses_its_expiration(channel: BlockingChannel, name: Namer, dead: str) -> None:
    queue = dying(channel, name, "", dead)
    publish(channel, queue, "a", expiration="50")
    message = get_soon(channel, dead)
    [death] = message.headers["x-death"]
    assert (death["reason"], death["count"], death["original-expiration"]) == ("expired", 1, "50")
    assert message.properties.expiration is None
    assert message.headers["x-first-death-reason"] == "expired"


def test_a_message_rejected_before_it_expires_loses_its_expiration_too(
    channel: BlockingChannel, name: Namer, dead: str
) -> None:
    queue = dying(channel, name, "", dead)
    publish(channel, queue, "a", expiration="60000")
    reject(channel, queue)
    message = get_soon(channel, dead)
    [death] = message.headers["x-death"]
    assert (death["reason"], death["original-expiration"]) == ("rejected", "60000")
    assert message.properties.expiration is None


def test_a_message_expired_by_its_queue_has_no_original_expiration(
    channel: BlockingChannel, name: Namer, dead: str
) -> None:
    queue = dying(channel, name, "", dead, message_ttl=50)
    publish(channel, queue, "a")
    [death] = get_soon(channel, dead).headers["x-death"]
    assert death["reason"] == "expired"
    assert "original-expiration" not in death


def test_expired_messages_are_dead_lettered_in_order_without_anyone_asking(
    channel: BlockingChannel, name: Namer, dead: str
) -> None:
    queue = dying(channel, name, "", dead, message_ttl=100)
    publish(channel, queue, *"abcde")
    eventually(lambda: count(channel, dead) == 5)
    assert bodies(channel, dead) == list("abcde")


def test_a_message_dropped_from_a_full_queue_says_maxlen(channel: BlockingChannel, name: Namer, dead: str) -> None:
    queue = dying(channel, name, "", dead, max_length=1)
    publish(channel, queue, "a", "b")
    message = get_soon(channel, dead)
    assert message.body == b"a"
    assert (message.headers["x-death"][0]["reason"], message.headers["x-first-death-reason"]) == ("maxlen", "maxlen")


def test_dying_twice_in_the_same_queue_counts_up(channel: BlockingChannel, name: Namer, dead: str) -> None:
    queue = dying(channel, name, "", dead)
    publish(channel, queue, "a")
    for times in (1, 2, 3):
        reject(channel, queue)
        message = get_soon(channel, dead)
        [death] = message.headers["x-death"]
        assert (death["count"], death["queue"], death["reason"]) == (times, queue, "rejected")
        channel.basic_publish("", queue, message.body, message.properties)


def test_the_last_death_stands_first_and_the_first_is_remembered(
    channel: BlockingChannel, name: Namer, dead: str
) -> None:
    second = dying(channel, name, "", dead, message_ttl=50)
    first = dying(channel, name, "", second)
    publish(channel, first, "a")
    reject(channel, first)
    headers = get_soon(channel, dead).headers
    assert [(death["queue"], death["reason"], death["count"]) for death in headers["x-death"]] == [
        (second, "expired", 1),
        (first, "rejected", 1),
    ]
    assert [death["routing-keys"] for death in headers["x-death"]] == [[second], [first]]
    assert headers["x-first-death-queue"] == first
    assert headers["x-first-death-reason"] == "rejected"
    assert headers["x-first-death-exchange"] == ""


def test_another_reason_in_the_same_queue_is_another_death(channel: BlockingChannel, name: Namer, dead: str) -> None:
    queue = dying(channel, name, "", dead)
    publish(channel, queue, "a")
    reject(channel, queue)
    properties = get_soon(channel, dead).properties
    properties.expiration = "50"
    channel.basic_publish("", queue, b"a", properties)
    deaths = get_soon(channel, dead).headers["x-death"]
    assert [(death["queue"], death["reason"], death["count"]) for death in deaths] == [
        (queue, "expired", 1),
        (queue, "rejected", 1),
    ]


def test_a_death_that_comes_again_moves_to_the_front(channel: BlockingChannel, name: Namer, dead: str) -> None:
    one, two = dying(channel, name, "", dead), dying(channel, name, "", dead)
    publish(channel, one, "a")
    for queue in (one, two, one):
        reject(channel, queue)
        message = get_soon(channel, dead)
        following = two if queue == one else one
        channel.basic_publish("", following, message.body, message.properties)
    assert [(death["queue"], death["count"]) for death in message.headers["x-death"]] == [(one, 2), (two, 1)]


def test_a_cycle_of_expiry_alone_drops_the_message(channel: BlockingChannel, name: Namer) -> None:
    queue = name("cycle")
    channel.queue_declare(
        queue,
        arguments={"x-message-ttl": 50, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue},
    )
    publish(channel, queue, "a")
    eventually(lambda: count(channel, queue) == 0)
    time.sleep(0.2)
    assert bodies(channel, queue) == []


def test_a_cycle_with_a_rejection_in_it_goes_round(channel: BlockingChannel, name: Namer) -> None:
    work = name("work")
    wait = dying(channel, name, "", work, message_ttl=50)
    channel.queue_declare(work, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": wait})
    publish(channel, work, "a")
    for times in range(3):
        message = reject(channel, work)
        deaths = {death["queue"]: death["count"] for death in message.headers.get("x-death", ())}
        assert deaths == ({work: times, wait: times} if times else {})


def test_a_message_dead_lettered_to_its_own_queue_by_rejection_comes_back(
    channel: BlockingChannel, name: Namer
) -> None:
    queue = name("cycle")
    channel.queue_declare(queue, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue})
    publish(channel, queue, "a")
    reject(channel, queue)
    message = get_soon(channel, queue)
    assert (message.body, message.headers["x-death"][0]["count"]) == (b"a", 1)
    assert not message.method.redelivered


def test_a_dead_letter_goes_to_every_queue_of_its_exchange(channel: BlockingChannel, name: Namer, dead: str) -> None:
    exchange, other = name("dlx"), name("dead")
    channel.exchange_declare(exchange, "fanout")
    channel.queue_declare(other)
    for queue in (dead, other):
        channel.queue_bind(queue, exchange)
    queue = dying(channel, name, exchange)
    publish(channel, queue, "a")
    reject(channel, queue)
    assert [get_soon(channel, used).body for used in (dead, other)] == [b"a", b"a"]


def test_cc_keys_are_kept_in_routing_keys_and_dropped_when_the_key_is_replaced(
    channel: BlockingChannel, name: Namer, dead: str
) -> None:
    queue = dying(channel, name, "", dead)
    publish(channel, queue, "a", headers={"CC": ["elsewhere"]})
    reject(channel, queue)
    message = get_soon(channel, dead)
    assert message.headers["x-death"][0]["routing-keys"] == [queue, "elsewhere"]
    assert "CC" not in message.headers


def test_a_consumer_takes_dead_letters_as_they_come(connection: BlockingConnection, name: Namer, dead: str) -> None:
    channel = connection.channel()
    queue = dying(channel, name, "", dead)
    inbox = Inbox(channel, dead, auto_ack=True)
    publish(channel, queue, "a")
    reject(channel, queue)
    assert inbox.take_bodies(1) == ["a"]
    assert get(channel, queue) is None


@pytest.mark.parametrize(
    "arguments",
    [{"x-message-ttl": 0}, {"x-max-length": 1}, {"x-max-length": 1, "x-overflow": "reject-publish"}],
    ids=["no time to live", "drop-head", "reject-publish"],
)
def test_dead_letters_come_to_who_waits_for_them_however_few_their_queue_holds(
    wire: Wire, channel: BlockingChannel, name: Namer, arguments: dict[str, Any]
) -> None:
    dead = name("dead")
    channel.queue_declare(dead, arguments=arguments)
    inbox = Inbox(channel, dead, auto_ack=True)
    queue = dying(channel, name, "", dead, message_ttl=300)
    wire.open()
    texts = [str(number) for number in range(40)]
    wire.send(publishing(1, queue, *texts))
    assert inbox.take_bodies(40) == texts
