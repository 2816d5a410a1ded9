"""Is each breach of the protocol answered with the code that RabbitMQ gives?"""

import struct
from typing import Any

import pytest
from pika import spec
from pika.adapters.blocking_connection import BlockingChannel

from tests.conformance.client import bodies, publish
from tests.conformance.wire import Wire, content_header, raw_frame

NOTHING = (0, 0)
PUBLISH = (60, 40)


def numbers(method: Any) -> tuple[int, int]:
    """Of the class and the method."""
    return method.INDEX >> 16, method.INDEX & 0xFFFF


def blamed(closed: spec.Connection.Close) -> tuple[int, int]:
    """The numbers of the method that a connection.close names."""
    return closed.class_id, closed.method_id


@pytest.mark.parametrize(
    "method", [spec.Channel.Open(), spec.Queue.Declare(queue="q"), spec.Tx.Select()], ids=lambda method: method.NAME
)
def test_a_method_of_channels_on_channel_zero_is_a_channel_error(wire: Wire, method: Any) -> None:
    wire.open()
    wire.call(0, method)
    closed = wire.expect_close(504, "CHANNEL_ERROR - unexpected method in connection state running")
    assert blamed(closed) == numbers(method)


@pytest.mark.parametrize(
    "method",
    [
        spec.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"),
        spec.Connection.SecureOk("secret"),
        spec.Connection.TuneOk(2047, 131_072, 0),
        spec.Connection.Open("/"),
        spec.Connection.CloseOk(),
        spec.Connection.Blocked("by nobody"),
        spec.Channel.FlowOk(active=True),
    ],
    ids=lambda method: method.NAME,
)
def test_a_method_out_of_turn_on_channel_zero_is_a_channel_error(wire: Wire, method: Any) -> None:
    wire.open()
    wire.call(0, method)
    closed = wire.expect_close(504, "CHANNEL_ERROR - unexpected method in connection state running")
    assert blamed(closed) == numbers(method)


@pytest.mark.parametrize("sent", [content_header(0, 5), raw_frame(3, 0, b"body")], ids=["header", "body"])
def test_content_on_channel_zero_is_refused(wire: Wire, sent: bytes) -> None:
    wire.open()
    wire.send(sent)
    wire.expect_close(505, "UNEXPECTED_FRAME")


def test_a_connection_method_on_a_channel_is_a_command_invalid(wire: Wire) -> None:
    wire.open()
    wire.call(1, spec.Connection.Close(200, "", 0, 0))
    assert blamed(wire.expect_close(503, "COMMAND_INVALID")) == (10, 50)


@pytest.mark.parametrize("method", [spec.Channel.FlowOk(active=True), spec.Channel.CloseOk()], ids=lambda it: it.NAME)
def test_an_answer_that_nobody_asked_for_is_a_command_invalid(wire: Wire, method: Any) -> None:
    wire.open()
    wire.call(1, method)
    assert blamed(wire.expect_close(503, "COMMAND_INVALID - unimplemented method")) == numbers(method)


@pytest.mark.parametrize(
    "method",
    [
        spec.Queue.Declare(queue="conformance.absent", passive=True),
        spec.Basic.Ack(delivery_tag=1),
        spec.Channel.Close(200, "", 0, 0),
        spec.Channel.CloseOk(),
        spec.Channel.FlowOk(active=True),
    ],
    ids=lambda method: method.NAME,
)
def test_a_method_on_a_channel_that_is_not_open_is_a_channel_error(wire: Wire, method: Any) -> None:
    wire.open(channels=0)
    wire.call(7, method)
    closed = wire.expect_close(504, "CHANNEL_ERROR - expected 'channel.open'")
    assert blamed(closed) == numbers(method)


def test_publishing_on_a_channel_that_is_not_open_is_a_channel_error(wire: Wire) -> None:
    wire.open(channels=0)
    wire.call(7, spec.Basic.Publish(routing_key="key"))
    wire.send(content_header(7, 1), raw_frame(3, 7, b"a"))
    assert blamed(wire.expect_close(504, "CHANNEL_ERROR - expected 'channel.open'")) == PUBLISH


def test_a_channel_that_is_opened_twice_is_what_the_close_names(wire: Wire) -> None:
    wire.open()
    wire.call(1, spec.Channel.Open())
    assert blamed(wire.expect_close(504, "CHANNEL_ERROR - second 'channel.open' seen")) == (20, 10)


@pytest.mark.parametrize("numbers", [(60, 999), (999, 10)])
def test_an_unknown_method_ends_the_connection(wire: Wire, numbers: tuple[int, int]) -> None:
    wire.open()
    wire.send(raw_frame(1, 1, struct.pack(">HH", *numbers)))
    said = wire.expect_end()  # RabbitMQ hangs up without a word
    assert said is None or said.reply_code == 540


def test_a_method_that_only_servers_send_is_refused(wire: Wire) -> None:
    wire.open()
    wire.call(1, spec.Basic.GetEmpty())
    wire.expect_close(503, "COMMAND_INVALID")


def test_a_frame_over_the_agreed_size_is_a_frame_error(wire: Wire) -> None:
    wire.open(frame_max=4096)
    wire.send(raw_frame(3, 1, b"x" * 4097))
    wire.expect_close(501, "FRAME_ERROR")


def test_the_size_of_a_frame_is_judged_before_its_payload_has_come(wire: Wire) -> None:
    wire.open()
    wire.send(struct.pack(">BHI", 1, 1, 4_000_000_000))
    wire.expect_close(501, "FRAME_ERROR")


def test_a_frame_of_exactly_the_agreed_size_is_fine(wire: Wire, channel: BlockingChannel, queue: str) -> None:
    wire.open(frame_max=4096)
    wire.call(1, spec.Confirm.Select())
    wire.expect(spec.Confirm.SelectOk)
    wire.call(1, spec.Basic.Publish(routing_key=queue))
    wire.send(content_header(1, 4088), raw_frame(3, 1, b"x" * 4088))
    wire.expect(spec.Basic.Ack)
    assert bodies(channel, queue) == ["x" * 4088]


def test_a_wrong_frame_end_is_a_frame_error(wire: Wire) -> None:
    wire.open()
    method = struct.pack(">HH", 90, 10)
    wire.send(raw_frame(1, 1, method, end=0x00))
    wire.expect_close(501, "FRAME_ERROR")


@pytest.mark.parametrize("kind", [0, 4, 5, 9, 255])
def test_a_frame_of_unknown_type_is_refused(wire: Wire, kind: int) -> None:
    wire.open()
    wire.send(raw_frame(kind, 1, b""))
    wire.expect_close(501, "FRAME_ERROR")


@pytest.mark.parametrize("sent", [content_header(1, 5), raw_frame(3, 1, b"body")], ids=["header first", "body first"])
def test_content_without_its_method_is_an_unexpected_frame(wire: Wire, sent: bytes) -> None:
    wire.open()
    wire.send(sent)
    assert blamed(wire.expect_close(505, "UNEXPECTED_FRAME")) == NOTHING


@pytest.mark.parametrize("sent", [content_header(7, 5), raw_frame(3, 7, b"body")], ids=["header", "body"])
def test_content_on_a_channel_that_is_not_open_is_an_unexpected_frame(wire: Wire, sent: bytes) -> None:
    wire.open()
    wire.send(sent)
    assert blamed(wire.expect_close(505, "UNEXPECTED_FRAME")) == NOTHING


def test_a_method_where_a_content_header_should_be_is_an_unexpected_frame(wire: Wire) -> None:
    wire.open()
    wire.call(1, spec.Basic.Publish(routing_key="key"), spec.Basic.Publish(routing_key="key"))
    assert blamed(wire.expect_close(505, "UNEXPECTED_FRAME")) == PUBLISH


@pytest.mark.parametrize("sent", [b"", content_header(1, 5)], ids=["before the header", "before the body"])
def test_closing_a_channel_before_all_of_a_message_has_come_is_an_unexpected_frame(wire: Wire, sent: bytes) -> None:
    wire.open()
    wire.call(1, spec.Basic.Publish(routing_key="key"))
    wire.send(sent)
    wire.call(1, spec.Channel.Close(200, "", 0, 0))
    assert blamed(wire.expect_close(505, "UNEXPECTED_FRAME")) == PUBLISH


def test_a_content_header_with_a_weight_is_an_unexpected_frame(wire: Wire) -> None:
    wire.open()
    wire.call(1, spec.Basic.Publish(routing_key="key"))
    wire.send(raw_frame(2, 1, struct.pack(">HHQH", 60, 5, 1, 0)), raw_frame(3, 1, b"a"))
    assert blamed(wire.expect_close(505, "UNEXPECTED_FRAME")) == PUBLISH


def test_a_body_where_a_content_header_should_be_is_an_unexpected_frame(wire: Wire) -> None:
    wire.open()
    wire.call(1, spec.Basic.Publish(routing_key="key"))
    wire.send(raw_frame(3, 1, b"body"))
    assert blamed(wire.expect_close(505, "UNEXPECTED_FRAME")) == PUBLISH


def test_a_content_header_of_another_class_is_an_unexpected_frame(wire: Wire) -> None:
    wire.open()
    wire.call(1, spec.Basic.Publish(routing_key="key"))
    wire.send(content_header(1, 1, class_id=50))
    assert blamed(wire.expect_close(505, "UNEXPECTED_FRAME")) == PUBLISH


def test_a_method_in_the_middle_of_a_body_is_an_unexpected_frame(wire: Wire) -> None:
    wire.open()
    wire.call(1, spec.Basic.Publish(routing_key="key"))
    wire.send(content_header(1, 10), raw_frame(3, 1, b"half."))
    wire.call(1, spec.Tx.Select())
    assert blamed(wire.expect_close(505, "UNEXPECTED_FRAME")) == PUBLISH


def test_more_body_than_announced_is_an_unexpected_frame(wire: Wire) -> None:
    wire.open()
    wire.call(1, spec.Basic.Publish(routing_key="key"))
    wire.send(content_header(1, 3), raw_frame(3, 1, b"four"))
    wire.call(1, spec.Tx.Select())  # RabbitMQ notices only now
    assert blamed(wire.expect_close(505, "UNEXPECTED_FRAME")) == PUBLISH


@pytest.mark.parametrize(
    "payload",
    [
        struct.pack(">HH", 50, 10) + b"\x00\x00\xffshort",
        struct.pack(">HH", 60, 40),
        struct.pack(">HH", 50, 10) + b"\x00\x00\x01q\x00" + struct.pack(">I", 1000) + b"\x01a",
        struct.pack(">HH", 60, 80) + b"\x00" * 12,
    ],
    ids=["short string", "nothing", "table length", "too much"],
)
def test_arguments_that_cannot_be_read_are_a_frame_error(wire: Wire, payload: bytes) -> None:
    wire.open()
    wire.send(raw_frame(1, 1, payload))
    assert blamed(wire.expect_close(501, "FRAME_ERROR")) == struct.unpack_from(">HH", payload)


def test_a_field_of_unknown_type_ends_the_connection(wire: Wire) -> None:
    wire.open()
    table = b"\x01aZ"
    declare = struct.pack(">HH", 50, 10) + b"\x00\x00\x01q\x00" + struct.pack(">I", len(table)) + table
    wire.send(raw_frame(1, 1, declare))
    said = wire.expect_end()  # RabbitMQ hangs up without a word
    assert said is None or said.reply_code in (501, 502)


def test_an_empty_method_frame_is_refused(wire: Wire) -> None:
    wire.open()
    wire.send(raw_frame(1, 1, b""))
    wire.expect_close(501, "FRAME_ERROR")


@pytest.mark.parametrize("channel", [1, 7])
def test_a_heartbeat_on_a_channel_is_an_unexpected_frame(wire: Wire, channel: int) -> None:
    wire.open()
    wire.send(raw_frame(8, channel, b""))
    wire.expect_close(505, "UNEXPECTED_FRAME")


@pytest.mark.parametrize("channel", [0, 1])
def test_a_heartbeat_with_a_payload_is_a_frame_error(wire: Wire, channel: int) -> None:
    wire.open()
    wire.send(raw_frame(8, channel, b"x"))
    assert blamed(wire.expect_close(501, "FRAME_ERROR")) == NOTHING


def test_a_method_out_of_turn_in_the_handshake_ends_the_connection(wire: Wire) -> None:
    wire.start()
    wire.call(0, spec.Connection.Open("/"))
    wire.expect_end()


def test_a_channel_before_the_virtual_host_is_refused(wire: Wire) -> None:
    wire.start()
    wire.call(1, spec.Channel.Open())
    wire.expect_end()


def test_content_properties_that_cannot_be_read_harm_nobody_else(
    wire: Wire, channel: BlockingChannel, queue: str
) -> None:
    wire.open()
    wire.call(1, spec.Basic.Publish(routing_key=queue))
    wire.send(raw_frame(2, 1, struct.pack(">HHQH", 60, 0, 1, 0x8000) + b"\xff"), raw_frame(3, 1, b"a"))
    said = wire.expect_end()
    assert said.reply_code in (501, 502, 541)  # RabbitMQ calls it an internal error
    publish(channel, queue, "well")
    assert bodies(channel, queue) == ["well"]


def test_bytes_in_single_steps_are_understood(wire: Wire) -> None:
    wire.open()
    for byte in raw_frame(1, 1, struct.pack(">HH", 90, 10)):
        wire.send(bytes([byte]))
    wire.expect(spec.Tx.SelectOk)


def test_after_a_connection_error_nothing_but_close_ok_is_heard(wire: Wire) -> None:
    wire.open()
    wire.call(1, spec.Channel.Open())
    wire.expect(spec.Connection.Close)
    wire.call(1, spec.Tx.Select())
    wire.call(0, spec.Connection.CloseOk())
    assert wire.receive() is None


@pytest.mark.parametrize(
    "method",
    [
        spec.Exchange.Declare(exchange="amq.direct", type="direct", durable=True, nowait=True),
        spec.Exchange.Bind(destination="amq.fanout", source="amq.direct", routing_key="conformance", nowait=True),
        spec.Exchange.Unbind(destination="amq.fanout", source="amq.direct", routing_key="conformance", nowait=True),
        spec.Exchange.Delete(exchange="conformance.absent", nowait=True),
        spec.Queue.Delete(queue="conformance.absent", nowait=True),
        spec.Basic.Cancel(consumer_tag="absent", nowait=True),
        spec.Confirm.Select(nowait=True),
    ],
    ids=lambda method: method.NAME,
)
def test_a_method_with_nowait_gets_no_answer(wire: Wire, method: Any) -> None:
    wire.open()
    wire.call(1, method, spec.Basic.Qos(prefetch_count=1))
    wire.expect(spec.Basic.QosOk)
