"""Direct reply-to: answers to `amq.rabbitmq.reply-to` go straight to the asking channel, without a queue."""

import base64
import secrets
from typing import TYPE_CHECKING

from holdfast.amqp.frames import FrameError, content_frames
from holdfast.amqp.methods import BasicDeliver, method_frame
from holdfast.broker.basic_properties import Properties, encode_properties
from holdfast.broker.errors import PreconditionFailed

if TYPE_CHECKING:
    from holdfast.amqp.channel import Channel

__all__ = ["REPLY_TO", "Replies"]

REPLY_TO = "amq.rabbitmq.reply-to"
"""A pseudo-queue: a channel that consumes from it may use it as the `reply_to` of its requests."""


class Replies:
    """The channels that wait for replies, by the address in the `reply_to` of their requests."""

    def __init__(self) -> None:
        self._channels: dict[str, tuple[Channel, str]] = {}
        self._addresses: dict[Channel, str] = {}

    def listen(self, channel: "Channel", tag: str, *, no_ack: bool) -> None:
        """Register a channel for replies, under this consumer tag."""
        if channel in self._addresses:
            raise PreconditionFailed("reply consumer already set")
        if not no_ack:
            raise PreconditionFailed("reply consumer cannot acknowledge")
        address = f"{REPLY_TO}.{base64.urlsafe_b64encode(secrets.token_bytes(18)).decode()}"
        self._addresses[channel] = address
        self._channels[address] = (channel, tag)

    def leave(self, channel: "Channel", tag: str | None = None) -> bool:
        """Unregister a channel (if it uses this tag); return whether it was registered."""
        address = self._addresses.get(channel)
        if address is None or (tag is not None and self._channels[address][1] != tag):
            return False
        del self._addresses[channel]
        del self._channels[address]
        return True

    def uses_tag(self, channel: "Channel", tag: str) -> bool:
        """Whether the channel's replies are delivered under this tag."""
        address = self._addresses.get(channel)
        return address is not None and self._channels[address][1] == tag

    def knows(self, queue: str) -> bool:
        """Whether this name is the pseudo-queue or the address of a registered channel."""
        return queue == REPLY_TO or queue in self._channels

    def question(self, channel: "Channel", properties: Properties) -> bytes:
        """Return the properties of a request, with `reply_to` set to the channel's address."""
        address = self._addresses.get(channel)
        if address is None:
            raise PreconditionFailed("fast reply consumer does not exist")
        return encode_properties(properties.with_reply_to(address))

    def answer(self, address: str, raw: bytes, bodies: list[bytes]) -> bool:
        """Deliver replies to the channel with this address; return whether they were sent.

        They are in no queue: a slow reader gets them nevertheless. If its unread bytes exceed a limit, its connection
        is closed and they are dropped.
        """
        found = self._channels.get(address)
        if found is None:
            return False
        channel, tag = found
        if channel.connection.is_overfull:
            channel.connection.fail(FrameError(506, "RESOURCE_ERROR - too many unread direct reply-to answers"))
            return False
        for body in bodies:
            channel.delivered += 1
            method = method_frame(channel.number, BasicDeliver(tag, channel.delivered, False, "", address))
            frames = content_frames(channel.number, 60, raw, body, channel.frame_max)
            channel.write(b"".join([method, *frames]))
        return True
