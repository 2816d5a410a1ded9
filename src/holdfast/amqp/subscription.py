"""How does a consumer of a channel get its messages? Encoded in one go, as many as it and its connection can take."""

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.amqp.frames import content_frames
from holdfast.broker.fields import encode_short
from holdfast.broker.mailbox import Mailbox
from holdfast.broker.message import content_of
from holdfast.broker.properties import PERSISTENT_ONLY
from holdfast.log.record import Headers
from holdfast.queue import Delivery

if TYPE_CHECKING:
    from holdfast.amqp.channel import Channel

__all__ = ["Subscription"]

_ROOM_MAX = 1 << 16
_TAG = struct.Struct(">Q")
_START = struct.Struct(">BHI")
_HEADER = struct.Struct(">BHIHHQ")
_SHAPES_MAX = 1000


class Subscription:
    """One consumer."""

    def __init__(
        self, channel: "Channel", tag: str, mailbox: Mailbox, *, no_ack: bool, priority: int, prefetch: int
    ) -> None:
        self.channel = channel
        self.tag = tag
        self.mailbox = mailbox
        self.no_ack = no_ack
        self.priority = priority
        self.prefetch = prefetch
        """How many unsettled deliveries it may hold; 0: any number."""
        self.unacked = 0
        self._method = b"\x00\x3c\x00\x3c" + encode_short(tag)
        tail = encode_short("") + encode_short(mailbox.name)
        size = len(self._method) + 9 + len(tail)
        self._plain_start = _START.pack(1, channel.number, size) + self._method
        self._plain_end = tail + b"\xce"
        self._shapes: dict[tuple[int, bool], bytes] = {}

    def room(self) -> int:
        """How many messages it takes now."""
        channel = self.channel
        if not channel.delivers:
            return 0
        room = _ROOM_MAX
        if not self.no_ack:
            if self.prefetch:
                room = min(room, self.prefetch - self.unacked)
            if channel.prefetch:
                room = min(room, channel.prefetch - channel.unacked.count)
        return room

    def send(self, mailbox: Mailbox, deliveries: Sequence[Delivery]) -> None:
        """Send these to the client, and note them as unsettled unless it wants no acks."""
        channel = self.channel
        first = channel.next_tags(len(deliveries))
        channel.write(self._encode(mailbox, deliveries, first))
        if not self.no_ack:
            self.unacked += len(deliveries)
            ids = [delivery[0] for delivery in deliveries]
            channel.unacked.add(first, ids, deliveries[0][7], mailbox, self, channel.now())

    def cancelled(self, mailbox: Mailbox) -> None:
        """The queue is gone: the client is told."""
        self.channel.consumer_cancelled(self)

    def _encode(self, mailbox: Mailbox, deliveries: Sequence[Delivery], tag: int) -> bytes:
        out: list[bytes] = []
        start, pack, shapes = self._plain_start, _TAG.pack, self._shapes
        largest = self.channel.body_max
        for _, payload, key, headers, attempt, _, _, _, _ in deliveries:
            size = len(payload)
            if key is None and not headers and 0 < size <= largest:
                # What most messages are: all that lies between tag and body depends on the size alone.
                middle = shapes.get((size, attempt > 1)) or self._shape(size, attempt > 1)
                out += (start, pack(tag), middle, payload, b"\xce")
            else:
                self._encode_one(out, mailbox, payload, key, headers, attempt, tag)
            tag += 1
        return b"".join(out)

    def _shape(self, size: int, redelivered: bool) -> bytes:
        number = self.channel.number
        header = _HEADER.pack(2, number, 12 + len(PERSISTENT_ONLY), 60, 0, size) + PERSISTENT_ONLY + b"\xce"
        found = (b"\x01" if redelivered else b"\x00") + self._plain_end + header + _START.pack(3, number, size)
        if len(self._shapes) < _SHAPES_MAX:
            self._shapes[size, redelivered] = found
        return found

    def _encode_one(
        self,
        out: list[bytes],
        mailbox: Mailbox,
        payload: bytes,
        key: bytes | None,
        headers: Headers,
        attempt: int,
        tag: int,
    ) -> None:
        content = content_of(key, headers, mailbox.name)
        method = b"%b%b%b%b%b" % (
            self._method,
            _TAG.pack(tag),
            b"\x01" if attempt > 1 else b"\x00",
            encode_short(content.exchange),
            encode_short(content.routing_key),
        )
        channel = self.channel
        out.append(_START.pack(1, channel.number, len(method)) + method + b"\xce")
        out += content_frames(channel.number, 60, content.raw, payload, channel.frame_max)
