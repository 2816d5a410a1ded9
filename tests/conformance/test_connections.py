"""Does a connection begin, live and end as clients of RabbitMQ know it?"""

import socket
import time
from collections.abc import Callable
from contextlib import suppress

import pika
import pytest
from pika import frame, spec
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import AMQPError, ProbableAccessDeniedError, ProbableAuthenticationError

from tests.conformance.brokers import Broker
from tests.conformance.client import bodies, channel_closed, publish, round_trip
from tests.conformance.wire import PROTOCOL_HEADER, Wire, publishing, raw_frame

Namer = Callable[..., str]
Connector = Callable[..., BlockingConnection]


@pytest.mark.parametrize(
    "header",
    [b"AMQP\x01\x01\x00\x0a", b"AMQP\x00\x01\x00\x00", b"HTTP/1.1", b"GET / HTTP/1.1\r\n\r\n", b"AMQP\x00\x00\x09\x02"],
)
def test_a_wrong_protocol_header_is_answered_with_the_right_one_and_a_hangup(wire: Wire, header: bytes) -> None:
    wire.send(header)
    received = b""
    try:
        while more := wire.socket.recv(100):
            received += more
    except ConnectionResetError:
        pass
    assert received == PROTOCOL_HEADER


def test_a_header_in_pieces_is_understood(wire: Wire) -> None:
    for byte in PROTOCOL_HEADER:
        wire.send(bytes([byte]))
    wire.expect(spec.Connection.Start)


def test_the_server_introduces_itself_as_clients_expect(wire: Wire) -> None:
    start = wire.start()
    assert (start.version_major, start.version_minor) == (0, 9)
    assert b"PLAIN" in start.mechanisms.split()
    assert start.locales == b"en_US"
    assert {"product", "version", "platform", "capabilities"} <= set(start.server_properties)
    assert all(
        start.server_properties["capabilities"].get(capability)
        for capability in (
            "publisher_confirms",
            "exchange_exchange_bindings",
            "basic.nack",
            "consumer_cancel_notify",
            "connection.blocked",
            "consumer_priorities",
            "authentication_failure_close",
            "per_consumer_qos",
        )
    )


def test_external_is_not_announced_to_who_shows_no_certificate(wire: Wire) -> None:
    assert b"EXTERNAL" not in wire.start().mechanisms.split()


def test_the_server_proposes_limits(wire: Wire) -> None:
    tune = wire.open()
    assert tune.frame_max == 131_072
    assert tune.channel_max == 2047
    assert tune.heartbeat == 60


@pytest.mark.parametrize(("user", "password"), [("guest", "wrong"), ("nobody-of-that-name", "guest"), ("", "")])
def test_a_wrong_password_is_refused_with_a_reason_for_those_who_understand_it(
    wire: Wire, user: str, password: str
) -> None:
    wire.start()
    wire.log_in(user=user, password=password, capabilities={"authentication_failure_close": True})
    wire.expect_close(
        403,
        "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. For details see the broker logfile.",
    )


def test_a_wrong_password_is_a_hangup_for_those_who_do_not(wire: Wire) -> None:
    wire.start()
    wire.log_in(password="wrong")
    assert wire.receive() is None


def test_the_refusal_of_a_wrong_password_names_no_method(wire: Wire) -> None:
    wire.start()
    wire.log_in(password="wrong", capabilities={"authentication_failure_close": True})
    closed = wire.expect_close(403)
    assert (closed.class_id, closed.method_id) == (0, 0)


def test_plain_with_somebody_to_act_for_is_refused(wire: Wire) -> None:
    wire.start()
    response = f"somebody\0{wire.broker.user}\0{wire.broker.password}"
    wire.call(0, spec.Connection.StartOk({"product": "holdfast-conformance"}, "PLAIN", response, "en_US"))
    found = wire.receive()  # RabbitMQ hangs up without a word
    assert found is None or isinstance(found.method, spec.Connection.Close)


def test_pika_sees_a_wrong_password_as_such(broker: Broker) -> None:
    credentials = pika.PlainCredentials(broker.user, "wrong")
    with pytest.raises(ProbableAuthenticationError, match="403"):
        pika.BlockingConnection(broker.parameters(credentials=credentials))


def test_an_unknown_mechanism_ends_the_connection(wire: Wire) -> None:
    wire.start()
    wire.log_in(mechanism="TELEPATHY")
    wire.expect_end()


def test_a_virtual_host_that_is_not_there_is_not_allowed(wire: Wire) -> None:
    wire.start()
    wire.log_in()
    tune = wire.expect(spec.Connection.Tune)
    wire.call(0, spec.Connection.TuneOk(tune.channel_max, tune.frame_max, 0), spec.Connection.Open("absent"))
    wire.expect_close(530, "NOT_ALLOWED - vhost absent not found")


def test_pika_sees_a_virtual_host_that_is_not_there_as_denied(broker: Broker) -> None:
    with pytest.raises(ProbableAccessDeniedError, match="530"):
        pika.BlockingConnection(broker.parameters(virtual_host="absent"))


def test_close_is_answered(wire: Wire) -> None:
    wire.open()
    wire.call(0, spec.Connection.Close(200, "bye", 0, 0))
    wire.expect(spec.Connection.CloseOk)


def test_nothing_is_done_after_close(wire: Wire, channel: BlockingChannel, queue: str) -> None:
    wire.open()
    wire.call(0, spec.Connection.Close(200, "bye", 0, 0))
    wire.call(1, spec.Queue.Delete(queue=queue))
    wire.expect(spec.Connection.CloseOk)
    channel.queue_declare(queue, passive=True)


def test_a_channel_is_closed_and_its_number_used_again(wire: Wire) -> None:
    wire.open()
    for _ in range(3):
        wire.call(1, spec.Channel.Close(200, "", 0, 0))
        wire.expect(spec.Channel.CloseOk)
        wire.open_channel(1)
    assert wire.is_well()


def test_a_channel_closed_by_the_server_ignores_all_until_close_ok_and_is_free_then(wire: Wire) -> None:
    wire.open()
    absent = spec.Queue.Declare(queue="conformance.absent", passive=True)
    wire.call(1, absent, absent, spec.Basic.Get(queue="conformance.absent"))
    closed = wire.expect(spec.Channel.Close)
    assert (closed.reply_code, closed.class_id, closed.method_id) == (404, 50, 10)
    wire.call(1, spec.Channel.CloseOk())
    wire.open_channel(1)
    wire.call(1, spec.Exchange.Declare(exchange="amq.direct", passive=True))
    wire.expect(spec.Exchange.DeclareOk)


def test_a_channel_error_and_a_close_that_cross_are_both_answered(wire: Wire, name: Namer) -> None:
    wire.open(channels=2)
    close = frame.Method(1, spec.Channel.Close(200, "", 0, 0)).marshal()
    wire.send(publishing(1, "key", "a", exchange=name("absent")), close)
    assert wire.expect(spec.Channel.Close).reply_code == 404
    wire.expect(spec.Channel.CloseOk)
    wire.call(1, spec.Channel.CloseOk())
    wire.open_channel(1)
    for number in (1, 2):
        wire.call(number, spec.Basic.Qos(prefetch_count=1))
        wire.expect(spec.Basic.QosOk)


def test_a_channel_that_pika_closes_while_it_is_in_error_harms_no_other(
    connection: BlockingConnection, queue: str, name: Namer
) -> None:
    well = connection.channel()
    for _ in range(2):
        ill = connection.channel()
        with suppress(AMQPError):  # whether pika hears of the error before it closes is a matter of chance
            publish(ill, "key", "lost", exchange=name("absent"))
            ill.close()
    for channel in (well, connection.channel()):
        publish(channel, queue, "a")
        assert bodies(channel, queue) == ["a"]


def test_an_error_on_one_channel_leaves_the_others_alone(connection: BlockingConnection, queue: str) -> None:
    well, ill = connection.channel(), connection.channel()
    with channel_closed(404):
        ill.basic_get(queue + ".absent")
    publish(well, queue, "a")
    assert bodies(well, queue) == ["a"]


def test_opening_a_channel_twice_closes_the_connection(wire: Wire) -> None:
    wire.open()
    wire.call(1, spec.Channel.Open())
    wire.expect_close(504, "CHANNEL_ERROR - second 'channel.open' seen")


def test_a_channel_over_the_agreed_maximum_closes_the_connection(wire: Wire) -> None:
    wire.open(channel_max=5, channels=5)
    wire.call(6, spec.Channel.Open())
    wire.expect_close(530, "NOT_ALLOWED - number of channels opened (5) has reached the negotiated channel_max (5)")


def test_a_high_channel_number_within_the_maximum_is_fine(wire: Wire) -> None:
    wire.open(channels=0)
    wire.open_channel(2047)
    wire.call(2047, spec.Exchange.Declare(exchange="amq.direct", passive=True))
    wire.expect(spec.Exchange.DeclareOk)


@pytest.mark.parametrize("number", [2048, 65_535])
def test_a_channel_number_may_be_higher_than_the_number_of_channels(wire: Wire, number: int) -> None:
    wire.open(channel_max=2047, channels=0)
    wire.open_channel(number)
    wire.call(number, spec.Exchange.Declare(exchange="amq.direct", passive=True))
    wire.expect(spec.Exchange.DeclareOk)


def test_open_channels_are_counted_whatever_their_numbers(wire: Wire) -> None:
    wire.open(channel_max=2, channels=0)
    wire.open_channel(1000)
    wire.open_channel(7)
    wire.call(1000, spec.Channel.Close(200, "", 0, 0))
    wire.expect(spec.Channel.CloseOk)
    wire.open_channel(3)
    wire.call(1, spec.Channel.Open())
    wire.expect_close(530, "NOT_ALLOWED - number of channels opened (2) has reached the negotiated channel_max (2)")


def test_a_channel_that_awaits_close_ok_counts_as_open(wire: Wire) -> None:
    wire.open(channel_max=1)
    wire.call(1, spec.Queue.Declare(queue="conformance.absent", passive=True))
    wire.expect(spec.Channel.Close)
    wire.call(2, spec.Channel.Open())
    wire.expect_close(530, "NOT_ALLOWED - number of channels opened (1) has reached the negotiated channel_max (1)")


@pytest.mark.parametrize(
    ("channel_max", "frame_max"),
    [(2048, 131_072), (0, 131_072), (2047, 131_073), (2047, 0), (2047, 4095)],
    ids=["more channels", "channels without limit", "larger frames", "frames without limit", "frames too small"],
)
def test_limits_beyond_those_offered_end_the_connection(wire: Wire, channel_max: int, frame_max: int) -> None:
    wire.start()
    wire.log_in()
    wire.expect(spec.Connection.Tune)
    wire.call(0, spec.Connection.TuneOk(channel_max, frame_max, 0), spec.Connection.Open("/"))
    said = wire.expect_end()
    assert said is None or said.reply_code == 530


def test_the_server_sends_heartbeats_when_they_were_agreed(wire: Wire) -> None:
    wire.open(heartbeat=1, channels=0)
    for _ in range(2):
        assert isinstance(wire.receive(), frame.Heartbeat)
        wire.send(raw_frame(8, 0, b""))


def test_a_client_that_falls_silent_is_hung_up_on(wire: Wire) -> None:
    wire.open(heartbeat=1, channels=0)
    wire.expect_end()


def test_anything_sent_counts_as_a_heartbeat(wire: Wire) -> None:
    wire.open(heartbeat=2)
    until = time.monotonic() + 6.5
    while time.monotonic() < until:
        wire.call(1, spec.Exchange.Declare(exchange="amq.direct", passive=True))
        wire.expect(spec.Exchange.DeclareOk)
        time.sleep(0.2)
    assert wire.is_well()


def test_without_heartbeats_a_silent_client_stays(wire: Wire) -> None:
    wire.open(heartbeat=0)
    wire.socket.settimeout(2.5)
    with pytest.raises(TimeoutError):
        wire.receive()
    wire.socket.settimeout(60)
    assert wire.is_well()


def test_channel_flow_may_be_asked_for_on_only(wire: Wire) -> None:
    wire.open()
    wire.call(1, spec.Channel.Flow(active=True))
    assert wire.expect(spec.Channel.FlowOk).active
    wire.call(1, spec.Channel.Flow(active=False))
    wire.expect_close(540, "NOT_IMPLEMENTED - active=false")


def test_a_connection_that_never_speaks_harms_nobody(broker: Broker, channel: BlockingChannel, queue: str) -> None:
    with socket.create_connection((broker.host, broker.port)):
        publish(channel, queue, "a")
        assert bodies(channel, queue) == ["a"]


def test_two_hundred_channels_work_on_one_connection(connection: BlockingConnection, queue: str) -> None:
    channels = [connection.channel() for _ in range(200)]
    for number, channel in enumerate(channels):
        publish(channel, queue, str(number))
        round_trip(channel)
    assert sorted(bodies(channels[0], queue), key=int) == [str(number) for number in range(200)]


def test_update_secret_is_answered(wire: Wire) -> None:
    wire.open()
    wire.call(0, spec.Connection.UpdateSecret("guest", "renewed"))
    wire.expect(spec.Connection.UpdateSecretOk)


def test_client_properties_may_be_any_table(connect: Connector) -> None:
    properties = {"connection_name": "conformance", "nested": {"list": [1, "two", None], "deeper": {"yes": True}}}
    channel = connect(client_properties=properties).channel()
    round_trip(channel)
