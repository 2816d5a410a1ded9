"""What is there after the broker was shut down and started again, and what do clients hear of it?"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPConnectionError, AMQPError, ChannelClosedByBroker, ConnectionClosedByBroker

from tests.conformance.client import Inbox, bodies, channel_closed, eventually, get, get_soon, publish
from tests.conformance.control import Control
from tests.disks import fills_the_disk

pytestmark = [pytest.mark.slow, fills_the_disk]
PERSISTENT: dict[str, Any] = {"delivery_mode": 2}
Opener = Callable[[], BlockingChannel]


@pytest.fixture
def open_channel(control: Control) -> Iterator[Opener]:
    """Channels that confirm, each on a connection of its own to wherever the broker is now."""
    opened: list[Any] = []

    def opener() -> BlockingChannel:
        def connect() -> Any:
            try:
                return pika.BlockingConnection(control.broker.parameters())
            except AMQPConnectionError:
                return None  # it is not up yet

        opened.append(eventually(connect))
        channel = opened[-1].channel()
        channel.confirm_delivery()
        return channel

    yield opener
    for connection in opened:
        if connection.is_open:
            with suppress(AMQPError):  # the broker has closed it, which nobody has looked at
                connection.close()


@pytest.fixture
def prefix() -> str:
    return f"conformance.restarts.{uuid.uuid4().hex[:12]}"


def restart(control: Control) -> None:
    control.stop()
    control.start()


def there(open_channel: Opener, kind: str, name: str) -> bool:
    """Whether a queue or exchange is there, and can be used."""
    channel = open_channel()
    try:
        getattr(channel, f"{kind}_declare")(name, passive=True)
    except ChannelClosedByBroker as closed:
        assert closed.reply_code == 404
        return False
    return True


def test_durable_definitions_are_there_and_others_are_not(control: Control, open_channel: Opener, prefix: str) -> None:
    channel = open_channel()
    for durable in (True, False):
        channel.exchange_declare(f"{prefix}.{durable}", "topic", durable=durable)
        channel.queue_declare(f"{prefix}.{durable}", durable=durable)
        channel.queue_bind(f"{prefix}.{durable}", f"{prefix}.{durable}", "a.*")
    channel.queue_declare(f"{prefix}.exclusive", durable=True, exclusive=True)
    channel.exchange_declare(f"{prefix}.second", "fanout", durable=True)
    channel.exchange_bind(f"{prefix}.True", f"{prefix}.second")
    restart(control)
    for kind in ("exchange", "queue"):
        assert there(open_channel, kind, f"{prefix}.True")
        assert not there(open_channel, kind, f"{prefix}.False")
    assert not there(open_channel, "queue", f"{prefix}.exclusive")
    channel = open_channel()
    publish(channel, "a.b", "by its binding", exchange=f"{prefix}.True", mandatory=True)
    publish(channel, "a.c", "by that between exchanges", exchange=f"{prefix}.second", mandatory=True)
    assert bodies(channel, f"{prefix}.True") == ["by its binding", "by that between exchanges"]
    channel.queue_delete(f"{prefix}.True")
    for name in ("True", "second"):
        channel.exchange_delete(f"{prefix}.{name}")


def test_arguments_of_a_queue_are_kept(control: Control, open_channel: Opener, prefix: str) -> None:
    arguments = {"x-max-length": 2, "x-overflow": "drop-head"}
    open_channel().queue_declare(prefix, durable=True, arguments=arguments)
    restart(control)
    channel = open_channel()
    channel.queue_declare(prefix, durable=True, arguments=arguments)
    publish(channel, prefix, "a", "b", "c", **PERSISTENT)
    assert bodies(channel, prefix) == ["b", "c"]
    with channel_closed(406, "inequivalent arg 'x-max-length'"):
        channel.queue_declare(prefix, durable=True, arguments=arguments | {"x-max-length": 3})
    open_channel().queue_delete(prefix)


def test_persistent_messages_are_there_in_order(control: Control, open_channel: Opener, prefix: str) -> None:
    channel = open_channel()
    channel.queue_declare(prefix, durable=True)
    for number in range(50):
        publish(channel, prefix, str(number), headers={"number": number}, **PERSISTENT)
    restart(control)
    channel = open_channel()
    found = [get_soon(channel, prefix) for _ in range(50)]
    assert [one.body.decode() for one in found] == [str(number) for number in range(50)]
    assert [one.headers["number"] for one in found] == list(range(50))
    assert get(channel, prefix) is None
    channel.queue_delete(prefix)


def test_transient_messages_in_a_durable_queue(control: Control, open_channel: Opener, prefix: str) -> None:
    """RabbitMQ's classic queues forget them; here they lie in the same log, and docs/amqp.md says so."""
    channel = open_channel()
    channel.queue_declare(prefix, durable=True)
    publish(channel, prefix, "transient", delivery_mode=1)
    publish(channel, prefix, "persistent", **PERSISTENT)
    restart(control)
    channel = open_channel()
    kept = ["transient", "persistent"] if control.broker.is_holdfast else ["persistent"]
    assert [get_soon(channel, prefix).body.decode() for _ in kept] == kept
    assert get(channel, prefix) is None
    channel.queue_delete(prefix)


def test_what_was_acked_stays_away_and_what_was_not_comes_again(
    control: Control, open_channel: Opener, prefix: str
) -> None:
    channel = open_channel()
    channel.queue_declare(prefix, durable=True)
    publish(channel, prefix, *"abcdefgh", **PERSISTENT)
    channel.basic_qos(prefetch_count=4)
    inbox = Inbox(channel, prefix)
    taken = inbox.take(4)
    for one in taken[:2]:
        channel.basic_ack(one.tag)
    channel.queue_declare(prefix, passive=True)  # the acks were read
    restart(control)
    channel = open_channel()
    found = [get_soon(channel, prefix) for _ in range(6)]
    assert [one.body for one in found] == [b"c", b"d", b"e", b"f", b"g", b"h"]
    assert [one.method.redelivered for one in found] == [True] * 4 + [False] * 2
    assert get(channel, prefix) is None
    channel.queue_delete(prefix)


def test_clients_are_told_that_it_is_shut_down(control: Control, open_channel: Opener) -> None:
    channel = open_channel()
    control.stop()
    try:
        with pytest.raises(ConnectionClosedByBroker) as caught:
            eventually(lambda: channel.connection.process_data_events(time_limit=0.1))
        assert caught.value.reply_code == 320
        assert "CONNECTION_FORCED" in caught.value.reply_text
    finally:
        control.start()
    open_channel()
