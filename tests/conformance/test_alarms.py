"""Who is told, and who has to wait, when the broker is low on memory or disk?"""

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pika
import pytest
from pika import spec

from tests.conformance.client import Inbox, bodies, count, eventually, publish
from tests.conformance.control import Control
from tests.conformance.wire import Wire, content_header, raw_frame
from tests.disks import fills_the_disk

pytestmark = [pytest.mark.slow, fills_the_disk]
UNDERSTANDS = {"connection.blocked": True, "publisher_confirms": True}
BODY = 3


@pytest.fixture
def channel(control: Control) -> Iterator[Any]:
    """Of someone who publishes nothing during an alarm."""
    connection = pika.BlockingConnection(control.broker.parameters())
    yield connection.channel()
    connection.close()


@pytest.fixture
def queue(channel: Any) -> Iterator[str]:
    name = f"conformance.alarms.{uuid.uuid4().hex[:12]}"
    channel.queue_declare(name, durable=True)
    yield name
    channel.queue_delete(name)


@pytest.fixture
def open_wire(control: Control) -> Iterator[Callable[..., Wire]]:
    """Bare sockets, each with a channel that confirms."""
    opened: list[Wire] = []

    def opener(**options: Any) -> Wire:
        wire = Wire(control.broker)
        opened.append(wire)
        wire.open(**{"capabilities": UNDERSTANDS, **options})
        wire.call(1, spec.Confirm.Select())
        wire.expect(spec.Confirm.SelectOk)
        return wire

    yield opener
    for wire in opened:
        wire.socket.close()


def send(wire: Wire, queue: str, text: bytes) -> None:
    """Publish, whatever comes of it."""
    wire.call(1, spec.Basic.Publish(exchange="", routing_key=queue))
    wire.send(content_header(1, len(text)), raw_frame(BODY, 1, text))


def until_blocked(wire: Wire, queue: str) -> list[bytes]:
    """Publish until the broker says that it is low on something; what was published, and not told of before that."""
    sent: list[bytes] = []
    wire.socket.settimeout(0.2)
    for number in range(300):
        sent.append(b"%d" % number)
        send(wire, queue, sent[-1])
        try:
            while True:
                found = wire.receive().method
                if isinstance(found, spec.Connection.Blocked):
                    assert found.reason.startswith(("low on memory", "low on disk"))
                    wire.socket.settimeout(60)
                    return sent
                assert isinstance(found, spec.Basic.Ack)
        except TimeoutError:
            continue
    pytest.fail("publishers were never blocked")


def is_silent(wire: Wire, seconds: float = 1.0) -> bool:
    """Whether the broker says nothing for so long."""
    wire.socket.settimeout(seconds)
    try:
        wire.receive()
    except TimeoutError:
        return True
    finally:
        wire.socket.settimeout(60)
    return False


def test_a_publisher_is_told_waits_and_goes_on_in_order(
    control: Control, channel: Any, queue: str, open_wire: Callable[..., Wire]
) -> None:
    wire = open_wire()
    control.block()
    sent = until_blocked(wire, queue)
    before = count(channel, queue)
    for number in range(20):
        sent.append(b"held back %d" % number)
        send(wire, queue, sent[-1])
    time.sleep(1)
    assert count(channel, queue) == before
    control.unblock()
    wire.expect(spec.Connection.Unblocked)
    eventually(lambda: count(channel, queue) == len(sent))
    assert bodies(channel, queue) == [one.decode() for one in sent]


def test_all_that_was_held_back_is_confirmed(
    control: Control, channel: Any, queue: str, open_wire: Callable[..., Wire]
) -> None:
    wire = open_wire()
    control.block()
    sent = len(until_blocked(wire, queue))
    for _ in range(5):
        send(wire, queue, b"held back")
    assert is_silent(wire)
    control.unblock()
    wire.expect(spec.Connection.Unblocked)
    confirmed = 0
    while confirmed < sent + 5:
        confirmed = max(confirmed, wire.expect(spec.Basic.Ack).delivery_tag)


def test_who_consumes_is_served_and_not_told(
    control: Control, channel: Any, queue: str, open_wire: Callable[..., Wire]
) -> None:
    publish(channel, queue, *[str(number) for number in range(10)])
    told: list[object] = []
    channel.connection.add_on_connection_blocked_callback(lambda *said: told.append(said))
    control.block()
    until_blocked(open_wire(), "conformance.alarms.nowhere")
    inbox = Inbox(channel, queue)
    for message in inbox.take(10):
        channel.basic_ack(message.tag)
    assert inbox.is_quiet()
    channel.basic_cancel(inbox.tag)
    assert count(channel, queue) == 0
    channel.queue_declare(f"{queue}.more", exclusive=True)  # and may do all but publish
    assert not told


def test_who_does_not_understand_it_is_held_back_all_the_same(
    control: Control, channel: Any, queue: str, open_wire: Callable[..., Wire]
) -> None:
    deaf = open_wire(capabilities={"publisher_confirms": True})
    control.block()
    until_blocked(open_wire(), "conformance.alarms.nowhere")
    for _ in range(5):
        send(deaf, queue, b"held back")
    assert is_silent(deaf)
    assert count(channel, queue) == 0
    taken = 0
    control.unblock()
    while taken < 5:
        taken = deaf.expect(spec.Basic.Ack).delivery_tag  # no unblocked comes before them
    assert count(channel, queue) == 5


def test_a_connection_that_comes_during_the_alarm_may_do_all_but_publish(
    control: Control, channel: Any, queue: str, open_wire: Callable[..., Wire]
) -> None:
    control.block()
    until_blocked(open_wire(), "conformance.alarms.nowhere")
    late = open_wire()
    assert late.is_well()
    assert is_silent(late, 0.5)
    until_blocked(late, queue)
    control.unblock()
    late.expect(spec.Connection.Unblocked)


def test_a_second_alarm_is_told_again(control: Control, queue: str, open_wire: Callable[..., Wire]) -> None:
    wire = open_wire()
    for _ in range(2):
        control.block()
        until_blocked(wire, queue)
        control.unblock()
        while not isinstance(wire.receive().method, spec.Connection.Unblocked):
            pass  # a confirm, of what the alarm came too late for
        wire.call(1, spec.Channel.Flow(active=True))
        while not isinstance(wire.receive().method, spec.Channel.FlowOk):
            pass


def test_a_blocked_publisher_can_leave(
    control: Control, channel: Any, queue: str, open_wire: Callable[..., Wire]
) -> None:
    wire = open_wire()
    control.block()
    until_blocked(wire, queue)
    wire.socket.close()
    assert channel.connection.is_open
    control.unblock()
    eventually(lambda: count(channel, queue) >= 0)
