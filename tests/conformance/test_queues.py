"""Are queues declared, checked, purged and deleted as RabbitMQ does it?"""

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from pika import spec
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

from tests.conformance.client import (
    Inbox,
    bodies,
    channel_closed,
    count,
    eventually,
    get,
    publish,
    round_trip,
)
from tests.conformance.wire import Wire, raw_frame

Namer = Callable[..., str]
Connector = Callable[..., BlockingConnection]


def exists(connection: BlockingConnection, queue: str) -> bool:
    channel = connection.channel()
    try:
        channel.queue_declare(queue, passive=True)
    except Exception as error:
        assert getattr(error, "reply_code", None) == 404
        return False
    channel.close()
    return True


def test_a_queue_without_a_name_is_named_by_the_server(channel: BlockingChannel) -> None:
    first = channel.queue_declare("", exclusive=True).method.queue
    second = channel.queue_declare("", exclusive=True).method.queue
    assert first.startswith("amq.gen-")
    assert first != second


def test_an_empty_name_means_the_queue_declared_last_on_the_channel(channel: BlockingChannel) -> None:
    last = channel.queue_declare("", exclusive=True).method.queue
    publish(channel, last, "a", "b")
    channel.queue_bind("", "amq.direct", last)
    publish(channel, last, "c", exchange="amq.direct")
    assert bodies(channel, "") == ["a", "b", "c"]
    channel.queue_unbind("", "amq.direct", last)
    publish(channel, last, "d", "e")
    assert channel.queue_purge("").method.message_count == 2
    assert channel.queue_delete("").method.message_count == 0


def test_an_empty_name_and_key_mean_the_queue_declared_last_and_its_name(channel: BlockingChannel, queue: str) -> None:
    channel.queue_bind("", "amq.direct", "")
    publish(channel, queue, "a", exchange="amq.direct")
    channel.queue_unbind("", "amq.direct", "")
    publish(channel, queue, "b", exchange="amq.direct")
    assert bodies(channel, queue) == ["a"]


def test_a_passive_declare_of_the_empty_name_is_not_found(channel: BlockingChannel) -> None:
    channel.queue_declare("", exclusive=True)
    with channel_closed(404, "NOT_FOUND - no queue '' in vhost '/'"):
        channel.queue_declare("", passive=True)


def test_an_empty_name_with_no_queue_declared_is_not_found(channel: BlockingChannel) -> None:
    with channel_closed(404, "NOT_FOUND - no previously declared queue"):
        channel.basic_get("")


@pytest.mark.parametrize("options", [{}, {"durable": True}, {"auto_delete": True}, {"arguments": {"x-max-length": 5}}])
def test_a_queue_is_declared_twice_alike(channel: BlockingChannel, name: Namer, options: dict[str, Any]) -> None:
    queue = name()
    for _ in range(2):
        assert channel.queue_declare(queue, **options).method.queue == queue


@pytest.mark.parametrize(
    ("again", "word"),
    [
        ({"durable": True}, "'durable'"),
        ({"auto_delete": True}, "'auto_delete'"),
        ({"arguments": {"x-message-ttl": 1000}}, "'x-message-ttl'"),
        ({"arguments": {"x-max-length": 5}}, "'x-max-length'"),
        ({"arguments": {"x-max-length-bytes": 5}}, "'x-max-length-bytes'"),
        ({"arguments": {"x-expires": 60_000}}, "'x-expires'"),
        ({"arguments": {"x-dead-letter-exchange": "amq.fanout"}}, "'x-dead-letter-exchange'"),
        ({"arguments": {"x-max-priority": 5}}, "'x-max-priority'"),
        ({"arguments": {"x-overflow": "reject-publish"}}, "'x-overflow'"),
        ({"arguments": {"x-single-active-consumer": True}}, "'x-single-active-consumer'"),
    ],
)
def test_declaring_a_queue_otherwise_is_a_failed_precondition(
    channel: BlockingChannel, queue: str, again: dict[str, Any], word: str
) -> None:
    with channel_closed(406, "PRECONDITION_FAILED - inequivalent arg", word, f"for queue '{queue}' in vhost '/'"):
        channel.queue_declare(queue, **again)


@pytest.mark.parametrize(
    ("argument", "current", "received", "text"),
    [
        ("x-max-length", 5, 6, "received '6' but current is '5'"),
        ("x-max-length", 5, "many", "received 'many' but current is '5'"),
        ("x-message-ttl", 5, -1, "received '-1' but current is '5'"),
        ("x-overflow", "drop-head", "reject-publish", "received 'reject-publish' but current is 'drop-head'"),
        ("x-single-active-consumer", True, False, "received 'false' but current is 'true'"),
    ],
)
def test_an_argument_that_differs_from_the_current_one_is_named_with_both_values(
    channel: BlockingChannel, name: Namer, argument: str, current: object, received: object, text: str
) -> None:
    queue = name()
    channel.queue_declare(queue, arguments={argument: current})
    with channel_closed(406, f"PRECONDITION_FAILED - inequivalent arg '{argument}' for queue '{queue}'", text):
        channel.queue_declare(queue, arguments={argument: received})


def test_leaving_out_an_argument_is_a_failed_precondition(channel: BlockingChannel, name: Namer) -> None:
    queue = name()
    channel.queue_declare(queue, arguments={"x-max-length": 5})
    with channel_closed(406, "received none but current is the value '5' of type"):
        channel.queue_declare(queue)


@pytest.mark.parametrize("value", [b"b\x05", b"s\x00\x05", b"l\x00\x00\x00\x00\x00\x00\x00\x05"])
def test_an_integer_argument_may_be_of_another_width_when_declared_again(wire: Wire, name: Namer, value: bytes) -> None:
    wire.open()
    queue = name().encode()
    for number in (b"I\x00\x00\x00\x05", value):
        table = b"\x0cx-max-length" + number
        declare = struct.pack(">HHHB", 50, 10, 0, len(queue)) + queue + b"\x00" + struct.pack(">I", len(table)) + table
        wire.send(raw_frame(1, 1, declare))
        wire.expect(spec.Queue.DeclareOk)


def test_arguments_that_the_broker_does_not_know_may_differ(channel: BlockingChannel, name: Namer) -> None:
    queue = name()
    channel.queue_declare(queue, arguments={"x-unheard-of": 1})
    channel.queue_declare(queue, arguments={"x-unheard-of": 2})
    channel.queue_declare(queue)


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-message-ttl": -1},
        {"x-message-ttl": "soon"},
        {"x-message-ttl": 2**40},
        {"x-expires": 0},
        {"x-expires": -1},
        {"x-expires": "soon"},
        {"x-max-length": -1},
        {"x-max-length": "many"},
        {"x-max-length-bytes": -1},
        {"x-max-priority": -1},
        {"x-max-priority": 256},
        {"x-max-priority": "high"},
        {"x-overflow": "explode"},
        {"x-overflow": 1},
        {"x-dead-letter-exchange": 1},
        {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": 1},
        {"x-dead-letter-routing-key": "key"},
        {"x-single-active-consumer": "yes"},
        {"x-queue-type": "heap"},
        {"x-queue-mode": "busy"},
    ],
    ids=str,
)
def test_a_bad_argument_is_a_failed_precondition(
    channel: BlockingChannel, name: Namer, arguments: dict[str, Any]
) -> None:
    with channel_closed(406, "PRECONDITION_FAILED - "):
        channel.queue_declare(name(), arguments=arguments)


@pytest.mark.parametrize(
    ("argument", "value", "reason"),
    [
        ("x-message-ttl", "soon", "expected integer, got longstr"),
        ("x-max-length", True, "expected integer, got bool"),
        ("x-expires", Decimal(5), "expected integer, got decimal"),
        ("x-max-priority", None, "expected integer, got void"),
        ("x-queue-mode", "busy", "unsupported queue mode 'busy'"),
        ("x-queue-version", 3, "unsupported queue version '3'"),
    ],
)
def test_a_bad_argument_is_refused_with_a_reason(
    channel: BlockingChannel, name: Namer, argument: str, value: object, reason: str
) -> None:
    queue = name()
    with channel_closed(406, f"invalid arg '{argument}' for queue '{queue}' in vhost '/': \"{reason}\""):
        channel.queue_declare(queue, arguments={argument: value})


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize(
    "argument", [{"x-max-age": "1h"}, {"x-stream-max-segment-size-bytes": 1_000_000}, {"x-initial-cluster-size": 1}]
)
def test_an_argument_of_streams_is_a_failed_precondition_for_a_queue(
    connection: BlockingConnection, name: Namer, kind: str, argument: dict[str, Any]
) -> None:
    queue, arguments = name(), {"x-queue-type": kind}
    text = f"PRECONDITION_FAILED - invalid arg '{next(iter(argument))}' for queue '{queue}' in vhost '/' of queue type"
    with channel_closed(406, text, f"rabbit_{kind}_queue"):
        connection.channel().queue_declare(queue, durable=True, arguments=arguments | argument)
    connection.channel().queue_declare(queue, durable=True, arguments=arguments)
    connection.channel().queue_declare(queue, durable=True, arguments=arguments | argument)  # no longer looked at


def test_a_queue_that_is_not_there_is_not_found_and_not_made(connection: BlockingConnection, name: Namer) -> None:
    queue = name()
    for _ in range(2):
        with channel_closed(404, f"NOT_FOUND - no queue '{queue}' in vhost '/'"):
            connection.channel().queue_declare(queue, passive=True)


def test_names_that_begin_with_amq_are_reserved(channel: BlockingChannel) -> None:
    with channel_closed(403, "ACCESS_REFUSED - queue name 'amq.conformance' contains reserved prefix 'amq.*'"):
        channel.queue_declare("amq.conformance")


def test_declare_ok_counts_ready_messages_and_consumers(connection: BlockingConnection, queue: str) -> None:
    channel, other = connection.channel(), connection.channel()
    publish(channel, queue, "a", "b", "c")
    assert get(channel, queue, auto_ack=False) is not None
    declared = channel.queue_declare(queue).method
    assert (declared.message_count, declared.consumer_count) == (2, 0)
    inbox = Inbox(other, queue)
    inbox.take(2)
    declared = channel.queue_declare(queue).method
    assert (declared.message_count, declared.consumer_count) == (0, 1)


def test_purge_says_how_many_it_removed_and_leaves_unacknowledged_ones(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, "a", "b", "c")
    message = get(channel, queue, auto_ack=False)
    assert message is not None
    assert channel.queue_purge(queue).method.message_count == 2
    assert channel.queue_purge(queue).method.message_count == 0
    channel.basic_nack(message.tag)
    assert eventually(lambda: bodies(channel, queue)) == ["a"]


def test_purging_a_queue_that_is_not_there_is_not_found(channel: BlockingChannel, name: Namer) -> None:
    with channel_closed(404):
        channel.queue_purge(name())


def test_delete_says_how_many_messages_were_ready(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, "a", "b")
    assert channel.queue_delete(queue).method.message_count == 2


def test_deleting_a_queue_that_is_not_there_is_no_error(channel: BlockingChannel, name: Namer) -> None:
    assert channel.queue_delete(name()).method.message_count == 0


def test_a_queue_declared_again_after_its_deletion_is_empty_and_unbound(channel: BlockingChannel, queue: str) -> None:
    channel.queue_bind(queue, "amq.direct", queue)
    publish(channel, queue, "a")
    channel.queue_delete(queue)
    channel.queue_declare(queue)
    publish(channel, queue, "b", exchange="amq.direct")
    assert bodies(channel, queue) == []


def test_a_queue_with_messages_is_not_deleted_if_empty(connection: BlockingConnection, queue: str) -> None:
    channel = connection.channel()
    publish(channel, queue, "a")
    with channel_closed(406, f"PRECONDITION_FAILED - queue '{queue}' in vhost '/' not empty"):
        channel.queue_delete(queue, if_empty=True)
    channel = connection.channel()
    channel.queue_purge(queue)
    channel.queue_delete(queue, if_empty=True)
    assert not exists(connection, queue)


def test_a_queue_with_a_consumer_is_not_deleted_if_unused(connection: BlockingConnection, queue: str) -> None:
    consumer, channel = connection.channel(), connection.channel()
    inbox = Inbox(consumer, queue)
    with channel_closed(406, f"PRECONDITION_FAILED - queue '{queue}' in vhost '/' in use"):
        channel.queue_delete(queue, if_unused=True)
    consumer.basic_cancel(inbox.tag)
    connection.channel().queue_delete(queue, if_unused=True)
    assert not exists(connection, queue)


@pytest.mark.parametrize(
    "attempt",
    [
        lambda there, queue: there.queue_declare(queue, exclusive=True),
        lambda there, queue: there.queue_declare(queue),
        lambda there, queue: there.queue_declare(queue, passive=True),
        lambda there, queue: there.basic_get(queue),
        lambda there, queue: there.basic_consume(queue, print),
        lambda there, queue: there.queue_purge(queue),
        lambda there, queue: there.queue_delete(queue),
        lambda there, queue: there.queue_bind(queue, "amq.direct", "key"),
        lambda there, queue: there.queue_unbind(queue, "amq.direct", "key"),
    ],
    ids=["declare", "declare shared", "passive", "get", "consume", "purge", "delete", "bind", "unbind"],
)
def test_an_exclusive_queue_is_locked_for_other_connections(
    channel: BlockingChannel, connect: Connector, name: Namer, attempt: Callable[[BlockingChannel, str], object]
) -> None:
    queue = name()
    channel.queue_declare(queue, exclusive=True)
    channel.queue_bind(queue, "amq.direct", "key")
    text = f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}' in vhost '/'"
    with channel_closed(405, text):
        attempt(connect().channel(), queue)


def test_anyone_may_publish_to_an_exclusive_queue(channel: BlockingChannel, connect: Connector, name: Namer) -> None:
    queue = name()
    channel.queue_declare(queue, exclusive=True)
    other = connect().channel()
    other.confirm_delivery()
    publish(other, queue, "a", mandatory=True)
    assert bodies(channel, queue) == ["a"]


def test_another_channel_of_the_connection_may_use_an_exclusive_queue(
    connection: BlockingConnection, name: Namer
) -> None:
    queue = name()
    connection.channel().queue_declare(queue, exclusive=True)
    other = connection.channel()
    other.queue_declare(queue, exclusive=True)
    publish(other, queue, "a")
    assert bodies(other, queue) == ["a"]


def test_declaring_a_shared_queue_as_exclusive_is_refused(channel: BlockingChannel, queue: str) -> None:
    with channel_closed(405, "RESOURCE_LOCKED"):
        channel.queue_declare(queue, exclusive=True)


def test_an_exclusive_queue_goes_with_its_connection_even_if_durable(
    connection: BlockingConnection, connect: Connector, name: Namer
) -> None:
    queue = name()
    owner = connect()
    owner.channel().queue_declare(queue, exclusive=True, durable=True)
    owner.close()
    eventually(lambda: not exists(connection, queue))


@pytest.mark.parametrize("durable", [False, True])
def test_an_exclusive_queue_is_the_same_whether_declared_as_durable_or_not(
    channel: BlockingChannel, name: Namer, durable: bool
) -> None:
    queue = name()
    channel.queue_declare(queue, exclusive=True, durable=durable)
    channel.queue_declare(queue, exclusive=True, durable=not durable)


def test_an_exclusive_queue_outlives_the_channel_that_declared_it(connection: BlockingConnection, name: Namer) -> None:
    queue = name()
    channel = connection.channel()
    channel.queue_declare(queue, exclusive=True)
    channel.close()
    assert exists(connection, queue)


def test_an_auto_delete_queue_goes_with_its_last_consumer(connection: BlockingConnection, name: Namer) -> None:
    queue = name()
    channel = connection.channel()
    channel.queue_declare(queue, auto_delete=True)
    assert exists(connection, queue)
    first, second = Inbox(channel, queue), Inbox(channel, queue)
    channel.basic_cancel(first.tag)
    assert exists(connection, queue)
    channel.basic_cancel(second.tag)
    eventually(lambda: not exists(connection, queue))


def test_an_auto_delete_queue_goes_when_the_channel_of_its_consumer_closes(
    connection: BlockingConnection, name: Namer
) -> None:
    queue = name()
    channel = connection.channel()
    channel.queue_declare(queue, auto_delete=True)
    Inbox(channel, queue)
    channel.close()
    eventually(lambda: not exists(connection, queue))


def test_an_auto_delete_queue_without_consumers_stays(connection: BlockingConnection, name: Namer) -> None:
    queue = name()
    channel = connection.channel()
    channel.queue_declare(queue, auto_delete=True)
    publish(channel, queue, "a")
    assert bodies(channel, queue) == ["a"]
    channel.close()
    assert exists(connection, queue)


def test_a_durable_queue_outlives_its_connection(
    connection: BlockingConnection, connect: Connector, name: Namer
) -> None:
    queue = name()
    other = connect()
    channel = other.channel()
    channel.queue_declare(queue, durable=True)
    channel.confirm_delivery()
    publish(channel, queue, "a", delivery_mode=2)
    other.close()
    channel = connection.channel()
    channel.queue_declare(queue, durable=True)
    eventually(lambda: count(channel, queue) == 1)


def test_a_queue_name_of_255_bytes_is_kept_whole(channel: BlockingChannel, name: Namer) -> None:
    base = name()
    longest = base + "é" * ((255 - len(base)) // 2)
    channel.queue_declare(longest, exclusive=True)
    publish(channel, longest, "a")
    message = get(channel, longest)
    assert message is not None
    assert message.method.routing_key == longest


@pytest.mark.parametrize("odd", ["../../etc/passwd", "a/b\\c", "con:", "with space", "\u00fc\u4e2d", "."])
def test_a_queue_may_have_any_name(channel: BlockingChannel, name: Namer, odd: str) -> None:
    queue = f"{name()}{odd}"
    channel.queue_declare(queue, exclusive=True)
    publish(channel, queue, "a")
    assert bodies(channel, queue) == ["a"]


def broken(name: str) -> str:
    """The same name with line breaks in it."""
    return f"{name[:5]}\r{name[5:9]}\n{name[9:]}"


@pytest.mark.parametrize(
    "attempt",
    [
        lambda channel, both, other: channel.exchange_declare(both, passive=True),
        lambda channel, both, other: channel.queue_bind(both, other, "key"),
        lambda channel, both, other: channel.queue_bind(other, both, "key"),
        lambda channel, both, other: channel.exchange_bind(both, other, "key"),
        lambda channel, both, other: channel.exchange_bind(other, both, "key"),
    ],
    ids=["declare exchange", "bind queue", "bind to", "bind exchange", "bind exchange to"],
)
def test_line_breaks_are_left_out_of_names(
    channel: BlockingChannel, name: Namer, attempt: Callable[[BlockingChannel, str, str], object]
) -> None:
    both, other = name(), name()
    for used in (both, other):
        channel.queue_declare(used)
        channel.exchange_declare(used, "fanout")
    attempt(channel, broken(both), other)


def test_line_breaks_are_left_out_of_the_name_of_a_declared_queue(wire: Wire, queue: str) -> None:
    wire.open()  # pika would wait for the very name that it sent
    wire.call(1, spec.Queue.Declare(queue=broken(queue), passive=True))
    assert wire.expect(spec.Queue.DeclareOk).queue == queue


def test_line_breaks_are_left_out_of_the_names_of_what_is_unbound(
    channel: BlockingChannel, name: Namer, queue: str
) -> None:
    exchange = name("x")
    channel.exchange_declare(exchange, "fanout")
    for queue_name, exchange_name in ((broken(queue), exchange), (queue, broken(exchange))):
        channel.queue_bind(queue, exchange)
        channel.queue_unbind(queue_name, exchange_name, queue)
        publish(channel, "", "a", exchange=exchange)
        assert bodies(channel, queue) == []


def test_line_breaks_are_left_out_of_the_names_of_what_is_deleted(
    connection: BlockingConnection, channel: BlockingChannel, queue: str
) -> None:
    channel.exchange_declare(queue, "fanout")
    channel.queue_delete(broken(queue))
    assert not exists(connection, queue)
    channel.exchange_delete(broken(queue))
    with channel_closed(404, "NOT_FOUND - no exchange"):
        channel.exchange_declare(queue, passive=True)


@pytest.mark.parametrize(
    "attempt",
    [
        lambda channel, both: channel.queue_purge(both),
        lambda channel, both: channel.basic_get(both),
        lambda channel, both: channel.basic_consume(both, print),
    ],
    ids=["purge", "get", "consume"],
)
def test_a_queue_is_emptied_by_its_name_with_all_line_breaks(
    channel: BlockingChannel, queue: str, attempt: Callable[[BlockingChannel, str], object]
) -> None:
    with channel_closed(404, f"no queue '{broken(queue)}' in vhost '/'"):
        attempt(channel, broken(queue))


def test_an_exchange_is_published_to_by_its_name_with_all_line_breaks(channel: BlockingChannel, queue: str) -> None:
    channel.exchange_declare(queue, "fanout")
    with channel_closed(404, f"no exchange '{broken(queue)}' in vhost '/'"):
        publish(channel, "key", "a", exchange=broken(queue))
        round_trip(channel)


def test_declaring_with_nowait_gets_no_answer(connection: BlockingConnection, name: Namer) -> None:
    queue = name()
    channel = connection.channel()
    channel._impl._send_method(spec.Queue.Declare(queue=queue, nowait=True))
    round_trip(channel)
    assert exists(connection, queue)


def test_a_queue_type_of_classic_is_the_same_as_none(channel: BlockingChannel, name: Namer) -> None:
    queue = name()
    channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "classic"})
    publish(channel, queue, "a")
    assert bodies(channel, queue) == ["a"]


def test_a_quorum_queue_must_be_durable(channel: BlockingChannel, name: Namer) -> None:
    with channel_closed(406, "PRECONDITION_FAILED - invalid property 'non-durable' for queue"):
        channel.queue_declare(name(), arguments={"x-queue-type": "quorum"})
