"""Does py-amqp, as it is without kombu, find what it expects?"""

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import amqp
from tests.interop.serving import Door, Served, until


def connection_to(door: Door, **options: Any) -> amqp.Connection:
    """A connection with the defaults of the library: it takes the first mechanism of its own list that is announced."""
    settings: dict[str, Any] = {"ssl": door.ssl, "connect_timeout": 60, "read_timeout": 60, "write_timeout": 60}
    return amqp.Connection(f"{door.host}:{door.port}", **(settings | options))


@pytest.fixture
def connection(door: Door) -> Iterator[amqp.Connection]:
    with connection_to(door, confirm_publish=True) as opened:
        yield opened


@pytest.fixture
def channel(connection: amqp.Connection) -> amqp.Channel:
    """A channel on which each publish waits for its confirm."""
    return connection.channel()


@pytest.fixture
def queue(channel: amqp.Channel, name: Callable[..., str]) -> str:
    used = name()
    channel.queue_declare(used, durable=True, auto_delete=False)
    return used


@pytest.mark.parametrize("mechanism", [None, "PLAIN", "AMQPLAIN"])
def test_a_password_is_enough_whichever_mechanism_is_chosen(door: Door, mechanism: str | None) -> None:
    with connection_to(door, userid="guest", password="guest", login_method=mechanism) as connection:
        assert connection.channel().is_open


@pytest.mark.parametrize("mechanism", [None, "PLAIN", "AMQPLAIN"])
def test_a_wrong_password_is_refused(door: Door, mechanism: str | None) -> None:
    with (
        pytest.raises(amqp.exceptions.AccessRefused),
        connection_to(door, userid="guest", password="wrong", login_method=mechanism),
    ):
        pass


def test_a_certificate_is_taken_before_a_password(served: Served) -> None:
    certificate = served.authority.for_client("guest")
    files = {"certfile": str(certificate.chain), "keyfile": str(certificate.key)}
    assert isinstance(served.tls.ssl, dict)
    with connection_to(served.tls, password="wrong", ssl=served.tls.ssl | files) as connection:
        assert connection.channel().is_open


def test_what_is_published_with_confirms_is_got_in_order_with_its_properties(channel: amqp.Channel, queue: str) -> None:
    headers = {"text": "fünf", "number": 5, "list": [1, "two"], "nothing": None}
    for number in range(20):
        message = amqp.Message(
            f"message {number}", application_headers=headers, delivery_mode=2, message_id=str(number)
        )
        channel.basic_publish(message, routing_key=queue)
    for number in range(20):
        got = channel.basic_get(queue)
        assert (got.body, got.properties["message_id"], got.headers) == (f"message {number}", str(number), headers)
        channel.basic_ack(got.delivery_tag)
    assert channel.basic_get(queue) is None


@pytest.mark.parametrize("size", [0, 1, 131_064, 131_065, 3_000_000])
def test_a_body_of_any_size_arrives_whole(channel: amqp.Channel, queue: str, size: int) -> None:
    body = os.urandom(size)
    channel.basic_publish(amqp.Message(body), routing_key=queue)
    got = channel.basic_get(queue, no_ack=True).body
    assert (got.encode() if isinstance(got, str) else bytes(got)) == body


def test_a_consumer_is_called_for_each_message(connection: amqp.Connection, channel: amqp.Channel, queue: str) -> None:
    got: list[str] = []

    def take(message: amqp.Message) -> None:
        got.append(message.body)
        message.channel.basic_ack(message.delivery_tag)

    channel.basic_qos(0, 3, False)
    channel.basic_consume(queue, callback=take)
    for number in range(20):
        channel.basic_publish(amqp.Message(str(number)), routing_key=queue)
    until(lambda: len(got) == 20 or connection.drain_events(timeout=60), "twenty messages")
    assert got == [str(number) for number in range(20)]


def test_an_error_closes_the_channel_and_leaves_the_connection_open(
    connection: amqp.Connection, name: Callable[..., str]
) -> None:
    with pytest.raises(amqp.exceptions.NotFound):
        connection.channel().queue_declare(name("absent"), passive=True)
    assert connection.channel().is_open


def test_a_transaction_takes_effect_at_its_commit(door: Door, queue: str, channel: amqp.Channel) -> None:
    with connection_to(door) as other:
        working = other.channel()
        working.tx_select()
        working.basic_publish(amqp.Message("never"), routing_key=queue)
        working.tx_rollback()
        working.basic_publish(amqp.Message("once"), routing_key=queue)
        working.tx_commit()
    assert channel.basic_get(queue, no_ack=True).body == "once"
    assert channel.basic_get(queue) is None
