"""Are exchanges declared, checked and deleted as RabbitMQ does it?"""

from collections.abc import Callable
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from tests.conformance.client import bodies, channel_closed, connection_closed, eventually, publish, round_trip

Namer = Callable[..., str]
Connector = Callable[..., BlockingConnection]
TYPES = ["direct", "fanout", "topic", "headers"]
PREDECLARED = {
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
}


def exists(connection: BlockingConnection, exchange: str) -> bool:
    channel = connection.channel()
    try:
        channel.exchange_declare(exchange, passive=True)
    except Exception as error:
        assert getattr(error, "reply_code", None) == 404
        return False
    channel.close()
    return True


@pytest.mark.parametrize("kind", TYPES)
def test_an_exchange_of_each_type_is_declared_twice_alike(channel: BlockingChannel, name: Namer, kind: str) -> None:
    exchange = name("x")
    for _ in range(2):
        channel.exchange_declare(exchange, kind, durable=True)
    channel.exchange_declare(exchange, passive=True)


@pytest.mark.parametrize(("exchange", "kind"), PREDECLARED.items())
def test_predeclared_exchanges_are_durable_and_of_their_type(
    channel: BlockingChannel, exchange: str, kind: str
) -> None:
    channel.exchange_declare(exchange, passive=True)
    channel.exchange_declare(exchange, kind, durable=True)


@pytest.mark.parametrize(
    ("again", "word"),
    [
        ({"exchange_type": "fanout"}, "'type'"),
        ({"durable": True}, "'durable'"),
        ({"auto_delete": True}, "'auto_delete'"),
        ({"internal": True}, "'internal'"),
        ({"arguments": {"alternate-exchange": "other"}}, "'alternate-exchange'"),
    ],
)
def test_declaring_an_exchange_otherwise_is_a_failed_precondition(
    channel: BlockingChannel, name: Namer, again: dict[str, Any], word: str
) -> None:
    exchange = name("x")
    channel.exchange_declare(exchange, "direct")
    with channel_closed(406, "PRECONDITION_FAILED - inequivalent arg", word, exchange):
        channel.exchange_declare(exchange, **({"exchange_type": "direct"} | again))


def test_another_alternate_exchange_is_named_with_the_current_one(channel: BlockingChannel, name: Namer) -> None:
    exchange = name("x")
    channel.exchange_declare(exchange, "direct", arguments={"alternate-exchange": "this"})
    with channel_closed(406, "inequivalent arg 'alternate-exchange'", "received 'that' but current is 'this'"):
        channel.exchange_declare(exchange, "direct", arguments={"alternate-exchange": "that"})


def test_arguments_that_the_broker_does_not_know_may_differ_when_an_exchange_is_declared_again(
    channel: BlockingChannel, name: Namer
) -> None:
    exchange = name("x")
    channel.exchange_declare(exchange, "direct", arguments={"x-unheard-of": 1})
    channel.exchange_declare(exchange, "direct", arguments={"x-unheard-of": 2})
    channel.exchange_declare(exchange, "direct")


def test_passively_declaring_looks_at_the_name_only(channel: BlockingChannel, name: Namer) -> None:
    exchange = name("x")
    channel.exchange_declare(exchange, "topic", durable=True)
    channel.exchange_declare(exchange, "fanout", passive=True)


def test_an_unknown_exchange_type_closes_the_connection(channel: BlockingChannel, name: Namer) -> None:
    with connection_closed(503, "COMMAND_INVALID - unknown exchange type 'x-unheard-of'"):
        channel.exchange_declare(name("x"), "x-unheard-of")


def test_an_exchange_that_is_not_there_is_not_found(channel: BlockingChannel, name: Namer) -> None:
    exchange = name("x")
    with channel_closed(404, f"NOT_FOUND - no exchange '{exchange}' in vhost '/'"):
        channel.exchange_declare(exchange, passive=True)


def test_names_that_begin_with_amq_are_reserved(channel: BlockingChannel) -> None:
    with channel_closed(403, "ACCESS_REFUSED - exchange name 'amq.conformance' contains reserved prefix 'amq.*'"):
        channel.exchange_declare("amq.conformance", "direct")


def test_a_passive_declare_of_a_reserved_name_is_only_not_found(channel: BlockingChannel) -> None:
    with channel_closed(404):
        channel.exchange_declare("amq.conformance", passive=True)


def test_predeclared_exchanges_cannot_be_deleted(channel: BlockingChannel) -> None:
    with channel_closed(403, "ACCESS_REFUSED"):
        channel.exchange_delete("amq.direct")


@pytest.mark.parametrize("passive", [False, True])
def test_the_default_exchange_cannot_be_declared(channel: BlockingChannel, passive: bool) -> None:
    with channel_closed(403, "ACCESS_REFUSED - operation not permitted on the default exchange"):
        channel.exchange_declare("", "direct", durable=True, passive=passive)


def test_the_default_exchange_cannot_be_deleted(channel: BlockingChannel) -> None:
    with channel_closed(403, "ACCESS_REFUSED - operation not permitted on the default exchange"):
        channel.exchange_delete("")


def test_nothing_is_bound_to_the_default_exchange(channel: BlockingChannel, queue: str) -> None:
    with channel_closed(403, "ACCESS_REFUSED - operation not permitted on the default exchange"):
        channel.queue_bind(queue, "", "key")


def test_nothing_is_unbound_from_the_default_exchange(channel: BlockingChannel, queue: str) -> None:
    with channel_closed(403, "ACCESS_REFUSED - operation not permitted on the default exchange"):
        channel.queue_unbind(queue, "", queue)


@pytest.mark.parametrize("ends", [("", "amq.fanout"), ("amq.fanout", "")])
def test_the_default_exchange_is_bound_to_no_exchange(channel: BlockingChannel, ends: tuple[str, str]) -> None:
    destination, source = ends
    with channel_closed(403, "ACCESS_REFUSED - operation not permitted on the default exchange"):
        channel.exchange_bind(destination, source, "key")


def test_deleting_an_exchange_that_is_not_there_is_no_error(channel: BlockingChannel, name: Namer) -> None:
    channel.exchange_delete(name("x"))
    round_trip(channel)


def test_a_deleted_exchange_is_gone_and_so_are_its_bindings(
    connection: BlockingConnection, channel: BlockingChannel, name: Namer, queue: str
) -> None:
    exchange = name("x")
    channel.exchange_declare(exchange, "fanout")
    channel.queue_bind(queue, exchange)
    channel.exchange_delete(exchange)
    assert not exists(connection, exchange)
    channel.exchange_declare(exchange, "fanout")
    publish(channel, "", "a", exchange=exchange)
    assert bodies(channel, queue) == []


def test_an_exchange_in_use_is_not_deleted_if_unused(channel: BlockingChannel, name: Namer, queue: str) -> None:
    exchange = name("x")
    channel.exchange_declare(exchange, "fanout")
    channel.queue_bind(queue, exchange)
    with channel_closed(406, f"PRECONDITION_FAILED - exchange '{exchange}' in vhost '/' in use"):
        channel.exchange_delete(exchange, if_unused=True)


def test_an_unused_exchange_is_deleted_if_unused(
    connection: BlockingConnection, channel: BlockingChannel, name: Namer, queue: str
) -> None:
    exchange = name("x")
    channel.exchange_declare(exchange, "fanout")
    channel.queue_bind(queue, exchange)
    channel.queue_unbind(queue, exchange)
    channel.exchange_delete(exchange, if_unused=True)
    assert not exists(connection, exchange)


def test_an_auto_delete_exchange_goes_with_its_last_binding(
    connection: BlockingConnection, channel: BlockingChannel, name: Namer, queue: str
) -> None:
    exchange = name("x")
    channel.exchange_declare(exchange, "direct", auto_delete=True)
    assert exists(connection, exchange)
    channel.queue_bind(queue, exchange, "one")
    channel.queue_bind(queue, exchange, "two")
    channel.queue_unbind(queue, exchange, "one")
    assert exists(connection, exchange)
    channel.queue_unbind(queue, exchange, "two")
    assert not exists(connection, exchange)


def test_an_auto_delete_exchange_goes_with_its_last_queue(
    connection: BlockingConnection, channel: BlockingChannel, name: Namer, queue: str
) -> None:
    exchange = name("x")
    channel.exchange_declare(exchange, "direct", auto_delete=True)
    channel.queue_bind(queue, exchange, "one")
    channel.queue_delete(queue)
    eventually(lambda: not exists(connection, exchange))


def test_an_auto_delete_exchange_goes_when_the_exchange_bound_to_it_is_deleted(
    connection: BlockingConnection, channel: BlockingChannel, name: Namer
) -> None:
    source, destination = name("source"), name("destination")
    channel.exchange_declare(source, "fanout", auto_delete=True)
    channel.exchange_declare(destination, "fanout")
    channel.exchange_bind(destination, source)
    channel.exchange_delete(destination)
    assert not exists(connection, source)


def test_an_exchange_that_is_only_a_destination_is_not_deleted_by_itself(
    connection: BlockingConnection, channel: BlockingChannel, name: Namer
) -> None:
    source, destination = name("source"), name("destination")
    channel.exchange_declare(source, "fanout")
    channel.exchange_declare(destination, "fanout", auto_delete=True)
    channel.exchange_bind(destination, source)
    channel.exchange_unbind(destination, source)
    assert exists(connection, destination)


def test_publishing_to_an_internal_exchange_is_refused(channel: BlockingChannel, name: Namer) -> None:
    exchange = name("x")
    channel.exchange_declare(exchange, "fanout", internal=True)
    with channel_closed(403, f"ACCESS_REFUSED - cannot publish to internal exchange '{exchange}' in vhost '/'"):
        publish(channel, "", "a", exchange=exchange)
        round_trip(channel)


def test_an_internal_exchange_is_reached_through_another(channel: BlockingChannel, name: Namer, queue: str) -> None:
    inner, outer = name("inner"), name("outer")
    channel.exchange_declare(inner, "fanout", internal=True)
    channel.exchange_declare(outer, "fanout")
    channel.exchange_bind(inner, outer)
    channel.queue_bind(queue, inner)
    publish(channel, "", "a", exchange=outer)
    assert bodies(channel, queue) == ["a"]


@pytest.mark.parametrize("missing", ["queue", "exchange"])
def test_binding_what_is_not_there_is_not_found(
    channel: BlockingChannel, name: Namer, queue: str, missing: str
) -> None:
    absent = name("absent")
    with channel_closed(404, f"NOT_FOUND - no {missing} '{absent}' in vhost '/'"):
        if missing == "queue":
            channel.queue_bind(absent, "amq.direct", "key")
        else:
            channel.queue_bind(queue, absent, "key")


def test_unbinding_what_was_never_bound_is_no_error(channel: BlockingChannel, name: Namer, queue: str) -> None:
    channel.queue_unbind(queue, "amq.direct", "never")
    channel.queue_unbind(name("absent"), "amq.direct", "never")
    channel.queue_unbind(queue, name("absent"), "never")
    channel.exchange_unbind("amq.fanout", "amq.direct", "never")
    round_trip(channel)


def test_binding_exchanges_that_are_not_there_is_not_found(channel: BlockingChannel, name: Namer) -> None:
    absent = name("absent")
    with channel_closed(404, f"NOT_FOUND - no exchange '{absent}' in vhost '/'"):
        channel.exchange_bind(absent, "amq.direct", "key")


def test_an_alternate_exchange_must_be_named_by_a_string(channel: BlockingChannel, name: Namer) -> None:
    with channel_closed(406, "PRECONDITION_FAILED - invalid type 'signedint' for arg 'alternate-exchange'"):
        channel.exchange_declare(name("x"), "direct", arguments={"alternate-exchange": 7})
