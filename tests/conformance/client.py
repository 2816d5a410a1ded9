"""What does a test say to a broker through pika, and how does it wait for the answer?"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, ConnectionClosedByBroker

__all__ = [
    "Inbox",
    "Message",
    "bodies",
    "channel_closed",
    "connection_closed",
    "count",
    "eventually",
    "get",
    "get_soon",
    "publish",
    "round_trip",
]

PATIENCE_S = 180.0
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it arrived."""

    body: bytes
    method: Any
    properties: Any

    @property
    def tag(self) -> int:
        """Its delivery tag."""
        return int(self.method.delivery_tag)

    @property
    def headers(self) -> dict[str, Any]:
        """Its headers table; empty where there is none."""
        return self.properties.headers or {}


def eventually(ask: Callable[[], T], seconds: float = PATIENCE_S) -> T:
    """The first true answer."""
    deadline = time.monotonic() + seconds
    while not (answer := ask()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
    return answer


def publish(
    channel: BlockingChannel, key: str, *texts: bytes | str, exchange: str = "", mandatory: bool = False, **options: Any
) -> None:
    """Publish each text; by default straight to the queue named by the key."""
    for text in texts:
        body = text.encode() if isinstance(text, str) else text
        channel.basic_publish(exchange, key, body, BasicProperties(**options), mandatory=mandatory)


def get(channel: BlockingChannel, queue: str, *, auto_ack: bool = True) -> Message | None:
    """The next message, if there is one now."""
    method, properties, body = channel.basic_get(queue, auto_ack=auto_ack)
    return None if method is None else Message(body, method, properties)


def get_soon(channel: BlockingChannel, queue: str, *, auto_ack: bool = True) -> Message:
    """The next message, waited for."""
    message = eventually(lambda: get(channel, queue, auto_ack=auto_ack))
    assert message is not None
    return message


def bodies(channel: BlockingChannel, queue: str) -> list[str]:
    """Take all that is ready, in order."""
    found = []
    while (message := get(channel, queue)) is not None:
        found.append(message.body.decode())
    return found


def count(channel: BlockingChannel, queue: str) -> int:
    """How many messages are ready."""
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def round_trip(channel: BlockingChannel) -> None:
    """Ask something harmless: the broker has then read all that was sent before on this channel."""
    channel.exchange_declare("amq.direct", passive=True)


@contextmanager
def channel_closed(code: int, *words: str) -> Iterator[None]:
    """The broker closes the channel with this code, and these words in its text."""
    with pytest.raises(ChannelClosedByBroker) as caught:
        yield
    assert caught.value.reply_code == code, caught.value.reply_text
    for word in words:
        assert word in caught.value.reply_text


@contextmanager
def connection_closed(code: int, *words: str) -> Iterator[None]:
    """The broker closes the connection with this code, and these words in its text."""
    with pytest.raises(ConnectionClosedByBroker) as caught:
        yield
    assert caught.value.reply_code == code, caught.value.reply_text
    for word in words:
        assert word in caught.value.reply_text


class Inbox:
    """A consumer that keeps what arrives."""

    def __init__(self, channel: BlockingChannel, queue: str, **options: Any) -> None:
        self.channel = channel
        self._arrived: deque[Message] = deque()
        self.tag: str = channel.basic_consume(queue, self._keep, **options)

    def _keep(self, channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        self._arrived.append(Message(body, method, properties))

    def take(self, number: int = 1) -> list[Message]:
        """The next messages, waited for."""
        deadline = time.monotonic() + PATIENCE_S
        while len(self._arrived) < number:
            assert time.monotonic() < deadline, f"{len(self._arrived)} of {number} messages arrived"
            self.channel.connection.process_data_events(time_limit=0.05)
        return [self._arrived.popleft() for _ in range(number)]

    def take_bodies(self, number: int) -> list[str]:
        """The bodies of the next messages, waited for."""
        return [message.body.decode() for message in self.take(number)]

    @property
    def waiting(self) -> int:
        """How many messages arrived and were not taken."""
        return len(self._arrived)

    def is_quiet(self, seconds: float = 0.3) -> bool:
        """Whether nothing more arrives within so long."""
        deadline = time.monotonic() + seconds
        while not self._arrived and (left := deadline - time.monotonic()) > 0:
            self.channel.connection.process_data_events(time_limit=left)
        return not self._arrived
