"""Do messages and queues expire when their arguments say so?"""

import time
from collections.abc import Callable
from typing import Any

import pytest
from pika import frame, spec
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import UnroutableError

from tests.conformance.client import Inbox, bodies, channel_closed, count, eventually, get, publish, round_trip
from tests.conformance.test_publishing import confirm_select, confirmed
from tests.conformance.test_queues import exists
from tests.conformance.wire import Wire, publishing

Namer = Callable[..., str]
LONG = "60000"
TEN_YEARS = 10 * 365 * 86_400_000


@pytest.fixture
def channel(confirming: BlockingChannel) -> BlockingChannel:
    """What was published is in its queue, so that a count of zero means that it has gone again."""
    return confirming


@pytest.fixture(params=["queue", "message"])
def at_once(request: pytest.FixtureRequest, channel: BlockingChannel, name: Namer) -> tuple[str, dict[str, Any]]:
    """A durable queue, and the properties of messages that expire there at once."""
    queue = name()
    if request.param == "queue":
        channel.queue_declare(queue, durable=True, arguments={"x-message-ttl": 0})
        return queue, {"delivery_mode": 2}
    channel.queue_declare(queue, durable=True)
    return queue, {"delivery_mode": 2, "expiration": "0"}


def await_the_end_of(connection: BlockingConnection, queue: str) -> None:
    """Publish until nothing takes it: unlike a declare, that does not count as use of the queue."""
    channel = connection.channel()
    channel.confirm_delivery()

    def is_gone() -> bool:
        try:
            publish(channel, queue, "probe", mandatory=True)
        except UnroutableError:
            return True
        return False

    eventually(is_gone)


def test_messages_expire_after_the_ttl_of_their_queue(channel: BlockingChannel, name: Namer) -> None:
    queue = name()
    channel.queue_declare(queue, arguments={"x-message-ttl": 2000})
    publish(channel, queue, "a", "b")
    eventually(lambda: count(channel, queue) == 2)
    eventually(lambda: count(channel, queue) == 0)
    assert bodies(channel, queue) == []


def test_a_message_expires_after_its_own_expiration(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, "short", expiration="2000")
    eventually(lambda: count(channel, queue) == 1)
    eventually(lambda: count(channel, queue) == 0)


@pytest.mark.parametrize(("ttl", "expiration"), [(200, LONG), (60_000, "200")])
def test_the_smaller_of_both_times_counts(channel: BlockingChannel, name: Namer, ttl: int, expiration: str) -> None:
    queue = name()
    channel.queue_declare(queue, arguments={"x-message-ttl": ttl})
    publish(channel, queue, "a", expiration=expiration)
    eventually(lambda: count(channel, queue) == 0)


def test_a_message_that_has_not_expired_keeps_its_expiration_property(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, "a", expiration=LONG)
    message = get(channel, queue)
    assert message is not None
    assert message.properties.expiration == LONG


@pytest.mark.parametrize("where", ["queue", "message"])
def test_a_ttl_of_zero_expires_what_no_consumer_takes_at_once(
    channel: BlockingChannel, name: Namer, where: str
) -> None:
    queue = name()
    channel.queue_declare(queue, arguments={"x-message-ttl": 0} if where == "queue" else None)
    expiration = "0" if where == "message" else None
    publish(channel, queue, "lost", expiration=expiration)
    eventually(lambda: count(channel, queue) == 0)
    assert bodies(channel, queue) == []
    inbox = Inbox(channel, queue)
    publish(channel, queue, "taken", expiration=expiration)
    assert inbox.take_bodies(1) == ["taken"]


@pytest.mark.parametrize("together", [False, True], ids=["one by one", "in one write"])
def test_nothing_with_a_ttl_of_zero_is_lost_that_a_consumer_waits_for(
    wire: Wire, channel: BlockingChannel, at_once: tuple[str, dict[str, Any]], together: bool
) -> None:
    queue, properties = at_once
    inbox = Inbox(channel, queue, auto_ack=True)
    wire.open()
    confirm_select(wire)
    texts = [str(number) for number in range(200)]
    if together:
        wire.send(publishing(1, queue, *texts, **properties))
        assert confirmed(wire, 200) == [(tag, False) for tag in range(1, 201)]
    else:
        for text in texts:
            wire.send(publishing(1, queue, text, **properties))
            wire.expect(spec.Basic.Ack)
    assert inbox.take_bodies(200) == texts


def test_a_ttl_of_zero_expires_all_but_what_the_prefetch_lets_a_consumer_take(
    wire: Wire, channel: BlockingChannel, at_once: tuple[str, dict[str, Any]]
) -> None:
    queue, properties = at_once
    channel.basic_qos(prefetch_count=3)
    inbox = Inbox(channel, queue)
    wire.open()
    confirm_select(wire)
    wire.send(publishing(1, queue, *"abcdef", **properties))
    confirmed(wire, 6)
    assert inbox.take_bodies(3) == ["a", "b", "c"]
    channel.basic_ack(3, multiple=True)
    assert inbox.is_quiet()
    assert count(channel, queue) == 0


def test_a_get_straight_after_a_message_with_a_ttl_of_zero_finds_nothing(
    wire: Wire, at_once: tuple[str, dict[str, Any]]
) -> None:
    queue, properties = at_once
    wire.open()
    get_it = frame.Method(1, spec.Basic.Get(queue=queue)).marshal()
    for _ in range(20):
        wire.send(publishing(1, queue, "a", **properties), get_it)
        wire.expect(spec.Basic.GetEmpty)


def test_a_requeued_message_with_a_ttl_of_zero_does_not_come_again(
    channel: BlockingChannel, at_once: tuple[str, dict[str, Any]]
) -> None:
    queue, properties = at_once
    inbox = Inbox(channel, queue)
    publish(channel, queue, "a", **properties)
    [message] = inbox.take()
    channel.basic_nack(message.tag)
    assert inbox.is_quiet()
    assert count(channel, queue) == 0


@pytest.mark.parametrize("time", [2**32, TEN_YEARS])
@pytest.mark.parametrize("argument", ["x-message-ttl", "x-expires"])
def test_a_time_may_be_as_long_as_ten_years(channel: BlockingChannel, name: Namer, argument: str, time: int) -> None:
    queue = name()
    channel.queue_declare(queue, arguments={argument: time})
    publish(channel, queue, "a", expiration=str(time))
    assert bodies(channel, queue) == ["a"]


@pytest.mark.parametrize("argument", ["x-message-ttl", "x-expires"])
def test_a_time_over_ten_years_is_a_failed_precondition(
    connection: BlockingConnection, name: Namer, queue: str, argument: str
) -> None:
    with channel_closed(406, f"PRECONDITION_FAILED - invalid arg '{argument}'", "{value_too_large,315360000001}"):
        connection.channel().queue_declare(name(), arguments={argument: TEN_YEARS + 1})
    channel = connection.channel()
    with channel_closed(406, "PRECONDITION_FAILED - invalid expiration '315360000001': {value_too_large"):
        publish(channel, queue, "a", expiration=str(TEN_YEARS + 1))
        round_trip(channel)


@pytest.mark.parametrize("expiration", ["+60000", "0060000"])
def test_an_expiration_may_have_a_sign_and_zeros_before_it(
    channel: BlockingChannel, queue: str, expiration: str
) -> None:
    publish(channel, queue, "a", expiration=expiration)
    message = get(channel, queue)
    assert message is not None
    assert message.properties.expiration == expiration


@pytest.mark.parametrize(
    ("expiration", "reason"),
    [
        ("soon", "no_integer"),
        ("", "no_integer"),
        ("+", "no_integer"),
        ("-1", "{value_negative,-1}"),
        ("1.5", '{leftover_string,".5"}'),
        ("5 ", '{leftover_string," "}'),
    ],
)
def test_a_bad_expiration_is_refused_with_a_reason(
    channel: BlockingChannel, queue: str, expiration: str, reason: str
) -> None:
    with channel_closed(406, f"PRECONDITION_FAILED - invalid expiration '{expiration}': {reason}"):
        publish(channel, queue, "a", expiration=expiration)
        round_trip(channel)


@pytest.mark.parametrize("expiration", ["soon", "-1", "1.5", "", " 5"])
def test_an_expiration_that_is_no_number_is_a_failed_precondition(
    channel: BlockingChannel, queue: str, expiration: str
) -> None:
    with channel_closed(406, "PRECONDITION_FAILED - invalid expiration"):
        publish(channel, queue, "a", expiration=expiration)
        round_trip(channel)


def test_a_message_that_was_delivered_does_not_expire_until_it_is_requeued(
    channel: BlockingChannel, name: Namer
) -> None:
    queue = name()
    channel.queue_declare(queue, arguments={"x-message-ttl": 2000})
    publish(channel, queue, "a")
    message = get(channel, queue, auto_ack=False)
    assert message is not None
    publish(channel, queue, "b")
    eventually(lambda: count(channel, queue) == 0)
    channel.basic_nack(message.tag)
    eventually(lambda: count(channel, queue) == 0)
    assert bodies(channel, queue) == []


def test_a_message_that_expires_later_is_not_lost_with_the_one_before_it(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, "short", expiration="100")
    publish(channel, queue, "long", expiration=LONG)
    eventually(lambda: count(channel, queue) == 1)
    assert bodies(channel, queue) == ["long"]


def test_an_expired_message_behind_one_that_lives_is_never_delivered(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, "long", expiration=LONG)
    publish(channel, queue, "short", expiration="100")
    time.sleep(0.3)
    assert bodies(channel, queue) == ["long"]


def test_an_unused_queue_is_deleted_after_x_expires(connection: BlockingConnection, name: Namer) -> None:
    queue = name()
    channel = connection.channel()
    channel.queue_declare(queue, arguments={"x-expires": 300})
    publish(channel, queue, "a")
    await_the_end_of(connection, queue)


def test_a_queue_with_a_consumer_does_not_expire(connection: BlockingConnection, name: Namer) -> None:
    queue = name()
    channel = connection.channel()
    channel.queue_declare(queue, arguments={"x-expires": 1500})
    inbox = Inbox(channel, queue)
    assert inbox.is_quiet(2.5)
    publish(channel, queue, "a")
    assert inbox.take_bodies(1) == ["a"]
    channel.basic_cancel(inbox.tag)
    await_the_end_of(connection, queue)


def test_basic_get_keeps_a_queue_from_expiring(connection: BlockingConnection, name: Namer) -> None:
    queue = name()
    channel = connection.channel()
    channel.queue_declare(queue, arguments={"x-expires": 3000})
    for _ in range(4):
        time.sleep(0.9)
        assert get(channel, queue) is None
    assert exists(connection, queue)


def test_purging_does_not_keep_a_queue_from_expiring(channel: BlockingChannel, name: Namer) -> None:
    queue = name()
    channel.queue_declare(queue, arguments={"x-expires": 500})
    with channel_closed(404):
        for _ in range(100):
            time.sleep(0.1)
            channel.queue_purge(queue)
