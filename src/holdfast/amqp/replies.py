"""How does an answer come straight back to who asked? Through `amq.rabbitmq.reply-to`, without a queue."""

import base64
import secrets
from typing import TYPE_CHECKING

from holdfast.amqp.frames import FrameError, content_frames
from holdfast.amqp.methods import BasicDeliver, method_frame
from holdfast.broker.errors import PreconditionFailed
from holdfast.broker.properties import Properties, encode_properties

if TYPE_CHECKING:
    from holdfast.amqp.channel import Channel

__all__ = ["REPLY_TO", "Replies"]

REPLY_TO = "amq.rabbitmq.reply-to"
"""The queue that is none: who consumes from it may name it as the `reply_to` of what it publishes."""


class Replies:
    """Who waits for answers, by the address that is written into their questions."""

    def __init__(self) -> None:
        self._channels: dict[str, tuple[Channel, str]] = {}
        self._addresses: dict[Channel, str] = {}

    def listen(self, channel: "Channel", tag: str, *, no_ack: bool) -> None:
        """A channel wants answers, under this consumer tag."""
        if channel in self._addresses:
            raise PreconditionFailed("reply consumer already set")
        if not no_ack:
            raise PreconditionFailed("reply consumer cannot acknowledge")
        address = f"{REPLY_TO}.{base64.urlsafe_b64encode(secrets.token_bytes(18)).decode()}"
        self._addresses[channel] = address
        self._channels[address] = (channel, tag)

    def leave(self, channel: "Channel", tag: str | None = None) -> bool:
        """A channel wants no more answers (under this tag); whether it did."""
        address = self._addresses.get(channel)
        if address is None or (tag is not None and self._channels[address][1] != tag):
            return False
        del self._addresses[channel]
        del self._channels[address]
        return True

    def uses_tag(self, channel: "Channel", tag: str) -> bool:
        """Whether the channel's answers come under this tag."""
        address = self._addresses.get(channel)
        return address is not None and self._channels[address][1] == tag

    def knows(self, queue: str) -> bool:
        """Whether this is a name under which answers can be sent, or asked for."""
        return queue == REPLY_TO or queue in self._channels

    def question(self, channel: "Channel", properties: Properties) -> bytes:
        """The properties of a question, with the address for its answer."""
        address = self._addresses.get(channel)
        if address is None:
            raise PreconditionFailed("fast reply consumer does not exist")
        return encode_properties(properties._replace(reply_to=address))

    def answer(self, address: str, raw: bytes, bodies: list[bytes]) -> bool:
        """Send answers; whether someone waits for them.

        They are in no queue: who is slow to read them gets them all the same, up to a limit at which it has to leave.
        """
        found = self._channels.get(address)
        if found is None:
            return False
        channel, tag = found
        if channel.connection.is_overfull:
            channel.connection.fail(FrameError(506, "RESOURCE_ERROR - the answers to your questions pile up unread"))
            return False
        for body in bodies:
            method = method_frame(channel.number, BasicDeliver(tag, channel.next_tags(1), False, "", address))
            frames = content_frames(channel.number, 60, raw, body, channel.frame_max)
            channel.write(b"".join([method, *frames]))
        return True
