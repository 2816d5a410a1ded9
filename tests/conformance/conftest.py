"""What the conformance tests share: the broker, connections to it, and names that are theirs alone."""

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import AMQPError

from tests.conformance.brokers import Broker, ServeMissing, broker_at, served_holdfast
from tests.conformance.control import CommandControl, Control, OwnHoldfast
from tests.conformance.wire import Wire

URL = "HOLDFAST_TEST_AMQP_URL"
"""The address of another broker to test, with the virtual host `/`."""
OTHER_VHOST = "HOLDFAST_TEST_AMQP_OTHER_VHOST"
"""There, a second virtual host that the user may use."""
LIMITED = "HOLDFAST_TEST_AMQP_LIMITED"
"""There, name:password of a user with the permissions that `brokers.LIMITED` says."""
CONTROL = "HOLDFAST_TEST_AMQP_CONTROL"
"""There, a command that with the words `block`, `unblock`, `stop` and `start` does that to the broker."""


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker at HOLDFAST_TEST_AMQP_URL, or else a Holdfast of our own."""
    if url := os.environ.get(URL):
        yield broker_at(url, os.environ.get(OTHER_VHOST), os.environ.get(LIMITED))
        return
    with ExitStack() as serving:
        try:
            found = serving.enter_context(served_holdfast(tmp_path_factory.mktemp("served")))
        except ServeMissing as missing:
            pytest.skip(f"no broker to test: {missing}; set {URL} to test another")
        yield found


@pytest.fixture(scope="module")
def controlled(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Control]:
    """The broker where we have power over it, or else a Holdfast of these tests alone."""
    if not broker.is_holdfast:
        if not (command := os.environ.get(CONTROL)):
            pytest.skip(f"set {CONTROL} to a command that blocks, unblocks, stops and starts the broker")
        yield CommandControl(broker, command)
        return
    with OwnHoldfast(tmp_path_factory.mktemp("controlled")) as own:
        yield own


@pytest.fixture
def control(controlled: Control) -> Iterator[Control]:
    """The same for one test: afterwards it runs, and is low on nothing."""
    yield controlled
    controlled.unblock()


@pytest.fixture
def holdfast_only(broker: Broker) -> None:
    """For what RabbitMQ has not."""
    if not broker.is_holdfast:
        pytest.skip("RabbitMQ without plugins has not got this")


@pytest.fixture
def other_vhost(broker: Broker) -> str:
    """Another virtual host than that of the tests."""
    if broker.other_vhost is None:
        pytest.skip(f"set {OTHER_VHOST} to a second virtual host")
    return broker.other_vhost


@pytest.fixture
def limited(broker: Broker, connect: Callable[..., BlockingConnection]) -> BlockingConnection:
    """A connection of a user who may do all to `conformance.own.`, and one thing each to `.c.`, `.w.` and `.r.`."""
    if broker.limited is None:
        pytest.skip(f"set {LIMITED} to name:password of a user with few permissions")
    return connect(credentials=pika.PlainCredentials(*broker.limited))


@pytest.fixture
def connect(broker: Broker) -> Iterator[Callable[..., BlockingConnection]]:
    """Open connections that are closed after the test."""
    opened: list[BlockingConnection] = []

    def opener(**options: object) -> BlockingConnection:
        opened.append(pika.BlockingConnection(broker.parameters(**options)))
        return opened[-1]

    yield opener
    for connection in opened:
        if connection.is_open:
            with suppress(AMQPError):
                connection.close()


@pytest.fixture
def connection(connect: Callable[..., BlockingConnection]) -> BlockingConnection:
    return connect()


@pytest.fixture
def channel(connection: BlockingConnection) -> BlockingChannel:
    return connection.channel()


@pytest.fixture
def confirming(connection: BlockingConnection) -> BlockingChannel:
    """A channel on which each publish waits for its confirm."""
    channel = connection.channel()
    channel.confirm_delivery()
    return channel


@pytest.fixture
def name(broker: Broker) -> Iterator[Callable[..., str]]:
    """Names that nobody else uses; what carries them is deleted after the test."""
    given: list[str] = []

    def namer(label: str = "q") -> str:
        given.append(f"conformance.{label}.{uuid.uuid4().hex[:12]}")
        return given[-1]

    yield namer
    if not given:
        return
    connection = pika.BlockingConnection(broker.parameters())
    for used in given:
        for kind in ("queue_delete", "exchange_delete"):
            channel = connection.channel()
            with suppress(AMQPError):
                getattr(channel, kind)(used)
                channel.close()
    connection.close()


@pytest.fixture
def queue(channel: BlockingChannel, name: Callable[..., str]) -> str:
    """A plain queue, not durable, without arguments."""
    used = name()
    channel.queue_declare(used)
    return used


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    """A bare socket to the broker."""
    with Wire(broker) as opened:
        yield opened
