"""Is a published message confirmed, returned or refused, and does it arrive as it was sent?"""

from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from pika import BasicProperties, frame, spec
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import UnroutableError

from tests.conformance.brokers import Broker
from tests.conformance.client import (
    Inbox,
    bodies,
    channel_closed,
    count,
    eventually,
    get,
    get_soon,
    publish,
    round_trip,
)
from tests.conformance.wire import Wire, content_header, raw_frame

Namer = Callable[..., str]
Connector = Callable[..., BlockingConnection]


def send(wire: Wire, key: str, body: bytes, exchange: str = "", **options: Any) -> None:
    """Publish one small message on channel 1."""
    wire.call(1, spec.Basic.Publish(exchange=exchange, routing_key=key, **options))
    wire.send(content_header(1, len(body)), raw_frame(3, 1, body) if body else b"")


def confirmed(wire: Wire, number: int) -> list[tuple[int, bool]]:
    """Wait until so many publishes are confirmed, singly or together; each tag, and whether it was nacked."""
    found: dict[int, bool] = {}
    low = 0
    while len(found) < number:
        answer = wire.receive().method
        assert isinstance(answer, spec.Basic.Ack | spec.Basic.Nack)
        for tag in range(low + 1 if answer.multiple else answer.delivery_tag, answer.delivery_tag + 1):
            found.setdefault(tag, isinstance(answer, spec.Basic.Nack))
        while low + 1 in found:
            low += 1
    return sorted(found.items())


def confirm_select(wire: Wire) -> None:
    wire.call(1, spec.Confirm.Select())
    wire.expect(spec.Confirm.SelectOk)


def test_a_client_that_blocks_while_it_sends_is_heard_though_it_does_not_read(
    channel: BlockingChannel, wire: Wire, queue: str, name: Namer
) -> None:
    """Else it and the broker would wait for each other: many clients read only when they have sent."""
    other = name()
    channel.queue_declare(other)
    publish(channel, queue, *["x" * 10_000] * 2000)
    wire.open()
    wire.call(1, spec.Basic.Consume(queue=queue, no_ack=True))
    wire.expect(spec.Basic.ConsumeOk)
    one = frame.Method(1, spec.Basic.Publish(routing_key=other)).marshal()
    one += content_header(1, 8000) + raw_frame(3, 1, bytes(8000))
    for _ in range(2000):  # more than the buffers between the two hold
        wire.send(one)
    eventually(lambda: count(channel, other) == 2000)


def test_a_single_publish_is_confirmed_with_tag_one(wire: Wire, queue: str) -> None:
    wire.open()
    confirm_select(wire)
    send(wire, queue, b"a")
    ack = wire.expect(spec.Basic.Ack)
    assert (ack.delivery_tag, ack.multiple) == (1, False)


def test_each_publish_is_confirmed_exactly_once(wire: Wire, queue: str) -> None:
    wire.open()
    confirm_select(wire)
    for _ in range(500):
        send(wire, queue, b"a")
    assert confirmed(wire, 500) == [(tag, False) for tag in range(1, 501)]


def test_persistent_messages_in_a_durable_queue_are_confirmed(confirming: BlockingChannel, name: Namer) -> None:
    queue = name()
    confirming.queue_declare(queue, durable=True)
    publish(confirming, queue, "a", delivery_mode=2, mandatory=True)
    assert bodies(confirming, queue) == ["a"]


def test_confirm_tags_count_from_the_select_and_per_channel(wire: Wire, queue: str) -> None:
    wire.open(channels=2)
    send(wire, queue, b"before")
    confirm_select(wire)
    confirm_select(wire)  # again is no error, and does not begin anew
    send(wire, queue, b"a")
    assert wire.expect(spec.Basic.Ack).delivery_tag == 1
    confirm_select(wire)
    send(wire, queue, b"b")
    assert wire.expect(spec.Basic.Ack).delivery_tag == 2


def test_an_unroutable_message_is_confirmed_and_dropped(confirming: BlockingChannel, name: Namer) -> None:
    publish(confirming, name("absent"), "a")


def test_a_refused_message_is_nacked_among_acks(wire: Wire, channel: BlockingChannel, name: Namer) -> None:
    queue = name()
    channel.queue_declare(queue, arguments={"x-max-length": 2, "x-overflow": "reject-publish"})
    wire.open()
    confirm_select(wire)
    for _ in range(4):
        send(wire, queue, b"a")
    assert confirmed(wire, 4) == [(1, False), (2, False), (3, True), (4, True)]


def test_a_nack_says_that_the_message_may_be_sent_again(wire: Wire, channel: BlockingChannel, name: Namer) -> None:
    queue = name()
    channel.queue_declare(queue, arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    wire.open()
    confirm_select(wire)
    send(wire, queue, b"a")
    assert wire.expect(spec.Basic.Nack).requeue


def test_a_mandatory_message_that_reaches_no_queue_is_returned(channel: BlockingChannel, name: Namer) -> None:
    returned: list[Any] = []
    channel.add_on_return_callback(lambda *parts: returned.append(parts))
    absent = name("absent")
    publish(channel, absent, "a", exchange="amq.direct", mandatory=True, headers={"kept": 1}, message_id="m")
    publish(channel, absent, "b", exchange="amq.direct")
    round_trip(channel)
    channel.connection.process_data_events(time_limit=0)
    [(_, method, properties, body)] = returned
    assert (method.reply_code, method.reply_text) == (312, "NO_ROUTE")
    assert (method.exchange, method.routing_key, body) == ("amq.direct", absent, b"a")
    assert (properties.headers, properties.message_id) == ({"kept": 1}, "m")


def test_a_returned_message_does_not_show_its_blind_copies(channel: BlockingChannel, name: Namer) -> None:
    returned: list[Any] = []
    channel.add_on_return_callback(lambda _channel, _method, properties, _body: returned.append(properties.headers))
    blind = {"CC": [name("absent")], "BCC": [name("absent")], "kept": 1}
    publish(channel, name("absent"), "a", mandatory=True, headers=blind)
    round_trip(channel)
    channel.connection.process_data_events(time_limit=0)
    assert returned == [{"CC": blind["CC"], "kept": 1}]


def test_a_return_comes_before_its_confirm(wire: Wire, name: Namer) -> None:
    wire.open()
    confirm_select(wire)
    send(wire, name("absent"), b"a", mandatory=True)
    returned = wire.expect(spec.Basic.Return)
    assert (returned.reply_code, returned.reply_text) == (312, "NO_ROUTE")
    assert wire.receive().body_size == 1
    assert wire.receive().fragment == b"a"
    ack = wire.expect(spec.Basic.Ack)
    assert (ack.delivery_tag, ack.multiple) == (1, False)


def test_a_mandatory_message_that_reaches_a_queue_is_not_returned(confirming: BlockingChannel, queue: str) -> None:
    publish(confirming, queue, "a", mandatory=True)
    with pytest.raises(UnroutableError):
        publish(confirming, queue + ".absent", "b", mandatory=True)


def test_publishing_to_an_exchange_that_is_not_there_closes_the_channel_only(
    connection: BlockingConnection, name: Namer, queue: str
) -> None:
    absent = name("absent")
    channel = connection.channel()
    with channel_closed(404, f"NOT_FOUND - no exchange '{absent}' in vhost '/'"):
        publish(channel, "key", "a", exchange=absent)
        round_trip(channel)
    channel = connection.channel()
    publish(channel, queue, "b")
    assert bodies(channel, queue) == ["b"]


def test_what_was_published_before_the_channel_closed_is_kept_and_what_came_after_is_not(
    connection: BlockingConnection, name: Namer, queue: str
) -> None:
    channel = connection.channel()
    with channel_closed(404):
        publish(channel, queue, "before")
        publish(channel, "key", "wrong", exchange=name("absent"))
        publish(channel, queue, "after")
        round_trip(channel)
    assert bodies(connection.channel(), queue) == ["before"]


def test_a_user_id_must_be_that_of_the_connection(broker: Broker, channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, "mine", user_id=broker.user)
    message = get(channel, queue)
    assert message is not None
    assert message.properties.user_id == broker.user
    with channel_closed(406, "PRECONDITION_FAILED - user_id property set to 'another' but authenticated user was"):
        publish(channel, queue, "theirs", user_id="another")
        round_trip(channel)


def test_immediate_is_not_implemented(wire: Wire, queue: str) -> None:
    wire.open()
    send(wire, queue, b"a", immediate=True)
    wire.expect_close(540, "NOT_IMPLEMENTED - immediate=true")


def test_all_properties_arrive_as_they_were_sent(channel: BlockingChannel, queue: str, broker: Broker) -> None:
    sent = BasicProperties(
        content_type="application/json",
        content_encoding="gzip",
        headers={"a": 1},
        delivery_mode=1,
        priority=7,
        correlation_id="correlation",
        reply_to="reply",
        expiration="60000",
        message_id="message",
        timestamp=1_700_000_000,
        type="kind",
        user_id=broker.user,
        app_id="app",
        cluster_id="cluster",
    )
    channel.basic_publish("", queue, b"body", sent)
    message = get_soon(channel, queue)
    assert message.properties == sent
    assert message.body == b"body"


def test_a_message_without_properties_arrives_without(channel: BlockingChannel, queue: str) -> None:
    channel.basic_publish("", queue, b"body")
    message = get_soon(channel, queue)
    assert message.properties == BasicProperties()


def test_headers_of_every_kind_arrive_as_they_were_sent(channel: BlockingChannel, queue: str) -> None:
    headers = {
        "text": "grüße 中",
        "bytes": b"\x00\xff\xfe",
        "small": 1,
        "negative": -5,
        "large": 2**40,
        "true": True,
        "false": False,
        "nothing": None,
        "decimal": Decimal("3.14"),
        "time": datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC),
        "list": [1, "two", [3, None], {"four": 4}],
        "table": {"inner": {"deeper": {"deepest": [True]}}, "empty": {}, "none": []},
        "": "an empty name",
    }
    publish(channel, queue, "a", headers=headers)
    assert get_soon(channel, queue).properties.headers == headers


def test_field_types_that_pika_does_not_write_are_kept_byte_for_byte(wire: Wire, queue: str) -> None:
    fields = b"".join(
        [
            b"\x02i8b\xff",
            b"\x02u8B\xff",
            b"\x03i16s\xff\xfe",
            b"\x03u16u\xff\xfe",
            b"\x03u32i\xff\xff\xff\xfe",
            b"\x03f32f\x3f\x80\x00\x00",
            b"\x03f64d\x3f\xf0\x00\x00\x00\x00\x00\x00",
            b"\x03binx\x00\x00\x00\x02\x00\xff",
            b"\x03badS\x00\x00\x00\x02\xff\xfe",
        ]
    )
    properties = b"\x20\x00" + len(fields).to_bytes(4, "big") + fields
    wire.open()
    wire.call(1, spec.Basic.Publish(routing_key=queue))
    wire.send(raw_frame(2, 1, b"\x00\x3c\x00\x00" + (1).to_bytes(8, "big") + properties), raw_frame(3, 1, b"a"))
    wire.call(1, spec.Basic.Get(queue=queue, no_ack=True))
    wire.expect(spec.Basic.GetOk)
    wire.receive()
    assert wire.last[7 + 12 : -1] == properties


@pytest.mark.parametrize("hidden", [b"", b"\x03BCCA\x00\x00\x00\x00"], ids=["as it came", "written anew"])
@pytest.mark.parametrize("seconds", [253_402_300_800, 1_800_000_000_000, 2**63])
def test_a_header_with_a_time_after_the_year_9999_arrives_as_it_was_sent(
    wire: Wire, queue: str, seconds: int, hidden: bytes
) -> None:
    def properties(fields: bytes) -> bytes:
        return b"\x20\x00" + len(fields).to_bytes(4, "big") + fields

    late = b"\x04lateT" + seconds.to_bytes(8, "big")
    wire.open()
    wire.call(1, spec.Basic.Publish(routing_key=queue))
    header = b"\x00\x3c\x00\x00" + (1).to_bytes(8, "big") + properties(late + hidden)
    wire.send(raw_frame(2, 1, header), raw_frame(3, 1, b"a"))
    wire.call(1, spec.Basic.Get(queue=queue, no_ack=True))
    wire.expect(spec.Basic.GetOk)
    assert wire.receive_bytes()[7 + 12 : -1] == properties(late)


@pytest.mark.parametrize("exchange", ["", "amq.topic"])
def test_a_long_header_table_arrives_whole(channel: BlockingChannel, queue: str, exchange: str) -> None:
    channel.queue_bind(queue, "amq.topic", queue)
    headers = {f"header-{number}": "x" * 100 for number in range(500)}
    publish(channel, queue, "a", exchange=exchange, headers=headers)
    assert get_soon(channel, queue).properties.headers == headers


@pytest.mark.parametrize(
    "size", [0, 1, 131_072 - 9, 131_072 - 8, 131_072 - 7, 131_072, 2 * (131_072 - 8), 2 * (131_072 - 8) + 1, 5_000_000]
)
def test_a_body_of_any_size_arrives_whole(channel: BlockingChannel, queue: str, size: int) -> None:
    body = bytes(range(251)) * (size // 251 + 1)
    body = body[:size]
    publish(channel, queue, body, delivery_mode=2)
    publish(channel, queue, "next")
    inbox = Inbox(channel, queue, auto_ack=True)
    first, second = inbox.take(2)
    assert first.body == body
    assert second.body == b"next"


def test_bodies_of_different_sizes_arrive_whole_and_in_order(confirming: BlockingChannel, queue: str) -> None:
    sent = [bytes([number]) * size for number in range(12) for size in (65_536, 10, 20_000, 200_000, 0, 16_384)]
    inbox = Inbox(confirming, queue)
    for body in sent:
        confirming.basic_publish("", queue, body)
    assert [message.body for message in inbox.take(len(sent))] == sent


def test_large_bodies_that_come_together_arrive_whole(wire: Wire, channel: BlockingChannel, queue: str) -> None:
    wire.open()
    sent = [bytes([number]) * size for number in range(8) for size in (65_536, 100, 30_000)]
    method = frame.Method(1, spec.Basic.Publish(exchange="", routing_key=queue)).marshal()
    wire.send(b"".join([method + content_header(1, len(body)) + raw_frame(3, 1, body) for body in sent]))
    assert [get_soon(channel, queue).body for _ in sent] == sent


def test_a_body_may_come_in_frames_of_any_size_even_empty_ones(
    wire: Wire, channel: BlockingChannel, queue: str
) -> None:
    wire.open()
    confirm_select(wire)
    wire.call(1, spec.Basic.Publish(routing_key=queue))
    wire.send(content_header(1, 6), *(raw_frame(3, 1, part) for part in (b"a", b"", b"bcd", b"ef")))
    wire.expect(spec.Basic.Ack)
    assert bodies(channel, queue) == ["abcdef"]


def test_frames_of_two_channels_may_interleave(wire: Wire, channel: BlockingChannel, queue: str) -> None:
    wire.open(channels=2)
    for number in (1, 2):
        wire.call(number, spec.Confirm.Select())
        wire.expect(spec.Confirm.SelectOk)
    for number in (1, 2):
        wire.call(number, spec.Basic.Publish(routing_key=queue))
    for number in (2, 1):
        wire.send(content_header(number, 2))
    for part in (b"x", b"y"):
        for number in (1, 2):
            wire.send(raw_frame(3, number, part))
    wire.expect(spec.Basic.Ack)
    wire.expect(spec.Basic.Ack)
    assert bodies(channel, queue) == ["xy", "xy"]


def test_a_body_is_delivered_in_frames_no_larger_than_agreed(wire: Wire, channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, b"x" * 10_000)
    wire.open(frame_max=4096)
    wire.call(1, spec.Basic.Get(queue=queue, no_ack=True))
    wire.expect(spec.Basic.GetOk)
    assert wire.receive().body_size == 10_000
    assert [len(wire.receive().fragment) for _ in range(3)] == [4088, 4088, 1824]


def test_an_unroutable_message_is_dropped_without_a_word(channel: BlockingChannel, name: Namer) -> None:
    absent = name("absent")
    publish(channel, absent, "a")
    channel.queue_declare(absent)
    assert bodies(channel, absent) == []


def test_messages_of_one_channel_stay_in_order(connect: Connector, channel: BlockingChannel, queue: str) -> None:
    texts = [str(number) for number in range(2000)]
    publish(channel, queue, *texts)
    inbox = Inbox(connect().channel(), queue, auto_ack=True)
    assert inbox.take_bodies(2000) == texts


def test_a_message_goes_to_all_bound_queues(channel: BlockingChannel, name: Namer) -> None:
    queues = [name() for _ in range(5)]
    for queue in queues:
        channel.queue_declare(queue)
        channel.queue_bind(queue, "amq.direct", queues[0])
    publish(channel, queues[0], "a", exchange="amq.direct")
    assert [bodies(channel, queue) for queue in queues] == [["a"]] * 5


def test_a_timestamp_is_64_bits_wide(channel: BlockingChannel, queue: str) -> None:
    publish(channel, queue, "a", timestamp=2**40)
    assert get_soon(channel, queue).properties.timestamp == 2**40


@pytest.mark.parametrize("header", ["CC", "BCC"])
@pytest.mark.parametrize("value", ["text", 5, None, {"a": 1}])
def test_a_cc_or_bcc_header_that_is_no_list_is_a_failed_precondition(
    channel: BlockingChannel, queue: str, header: str, value: object
) -> None:
    with channel_closed(406, "PRECONDITION_FAILED"):
        publish(channel, queue, "a", headers={header: value})
        round_trip(channel)


@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_what_is_no_text_in_a_list_of_copies_is_passed_over(
    channel: BlockingChannel, name: Namer, queue: str, header: str
) -> None:
    copied, passed = name(), name()
    for used in (copied, passed):
        channel.queue_declare(used)
    publish(channel, queue, "a", headers={header: [5, None, passed.encode(), [passed], copied]})
    assert [bodies(channel, used) for used in (queue, copied, passed)] == [["a"], ["a"], []]
