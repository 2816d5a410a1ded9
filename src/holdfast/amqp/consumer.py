"""One AMQP consumer: its prefetch accounting and the encoding of its deliveries."""

import struct
from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.amqp.frames import FRAME_START, HEADER_START, content_frames
from holdfast.amqp.methods import BasicDeliver, method_frame
from holdfast.broker.amqp_values import encode_short
from holdfast.broker.message import EXCHANGE, PROPERTIES, Content, content_of, counted
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.log.record import Headers
from holdfast.queue import Delivery

if TYPE_CHECKING:
    from holdfast.amqp.channel import Channel

__all__ = ["ChannelConsumer"]

T = TypeVar("T")

_CAPACITY_MAX = 1 << 16
_TAG = struct.Struct(">Q")
_ID = itemgetter(0)
_LARGE = 16 << 10
_SHAPES_MAX = 200
_SHAPE_BYTES_MAX = 512


class ChannelConsumer:
    """A consumer of a channel. Implements `broker.queue_dispatcher.Consumer`; used by the event loop alone."""

    def __init__(
        self, channel: "Channel", tag: str, broker_queue: BrokerQueue, *, no_ack: bool, priority: int, prefetch: int
    ) -> None:
        self.channel = channel
        self.tag = tag
        self.broker_queue = broker_queue
        self.no_ack = no_ack
        self.priority = priority
        self.prefetch = prefetch
        """How many unsettled deliveries it may hold; 0: any number."""
        self.unacked = 0
        self.arguments: Mapping[str, object] = {}
        """As the client gave them."""
        self._method = b"\x00\x3c\x00\x3c" + encode_short(tag)
        self._shapes: dict[tuple[object, ...], tuple[bytes, bytes | None]] = {}
        """The bytes around tag and body, for messages that were alike twice in a row."""
        self._ends: dict[tuple[object, ...], tuple[bytes, bytes]] = {}
        """The method's frame before and after the tag, for messages with the same exchange and routing key."""
        self._missed: tuple[object, ...] = ()
        """The last key that was not found in `_shapes`."""

    def capacity(self) -> int:
        """Return how many messages it can take now."""
        channel = self.channel
        if channel.closing or not channel.connection.writable:
            return 0
        capacity = _CAPACITY_MAX
        if not self.no_ack:
            if self.prefetch:
                capacity = min(capacity, self.prefetch - self.unacked)
            if channel.prefetch:
                capacity = min(capacity, channel.prefetch - channel.consumed)
        return capacity

    @property
    def pool(self) -> object | None:
        """The channel, if it limits all its consumers together; else None."""
        return self.channel if self.channel.prefetch and not self.no_ack else None

    def pool_capacity(self) -> int:
        """Return how many messages the channel can take now."""
        return self.channel.prefetch - self.channel.consumed

    def send(self, broker_queue: BrokerQueue, deliveries: Sequence[Delivery]) -> None:
        """Send deliveries to the client, and record them as unsettled unless the consumer is no-ack."""
        channel = self.channel
        first = channel.delivered + 1
        channel.delivered += len(deliveries)
        parts = self._encode(broker_queue, deliveries, first)
        # Joining costs a copy, but passing many small parts to the system costs more than that. The size of the first
        # decides for most runs that they are small, without adding up the others.
        large = len(deliveries[0][1]) >= _LARGE and sum(len(one[1]) for one in deliveries) >= _LARGE * len(deliveries)
        channel.write(*(parts if large else (b"".join(parts),)))
        if not self.no_ack:
            self.unacked += len(deliveries)
            channel.consumed += len(deliveries)
            ids = list(map(_ID, deliveries))
            channel.unacked.add(first, ids, deliveries[0][7], broker_queue, self, channel.now())

    def settled(self, count: int) -> None:
        """Count `count` of its deliveries as settled."""
        self.unacked -= count
        self.channel.consumed -= count

    def cancelled(self, broker_queue: BrokerQueue) -> None:
        """Notify the channel that the queue was deleted."""
        self.channel.consumer_cancelled(self)

    def _encode(self, broker_queue: BrokerQueue, deliveries: Sequence[Delivery], tag: int) -> list[bytes]:
        out: list[bytes] = []
        pack, shapes = _TAG.pack, self._shapes
        counts = broker_queue.counts_deliveries
        for _, payload, key, headers, attempt, _, _, _, _ in deliveries:
            # The bytes around tag and body are the same for messages that differ only in these two.
            exchange, raw = (headers.get(EXCHANGE), headers.get(PROPERTIES)) if headers else (None, None)
            like = (len(payload), key, exchange, raw, attempt if counts else attempt > 1, not headers)
            shape = shapes.get(like)
            if shape is None:
                shape = self._shape(broker_queue, like, key, headers, attempt)
            start, middle = shape
            if middle is not None:
                out += (start, pack(tag), middle, payload, b"\xce")
            else:
                self._encode_in_parts(out, broker_queue, payload, key, headers, attempt, tag)
            tag += 1
        return out

    def _shape(
        self, broker_queue: BrokerQueue, like: tuple[Any, ...], key: bytes | None, headers: Headers, attempt: int
    ) -> tuple[bytes, bytes | None]:
        """Return the bytes before the tag and between tag and body; no middle if the body is empty or in parts."""
        size, _, exchange, raw, _, _ = like
        number = self.channel.number
        if not 0 < size <= self.channel.body_max:
            return b"", None
        as_published = isinstance(raw, bytes) and not (broker_queue.counts_deliveries and attempt > 1)
        route = (key, exchange, attempt > 1)
        ends = self._ends.get(route) if as_published else None
        if ends is None:
            content = self._content(broker_queue, key, headers, attempt)
            tail = b"%b%b%b\xce" % (
                b"\x01" if attempt > 1 else b"\x00",
                encode_short(content.exchange),
                encode_short(content.routing_key),
            )
            ends = (FRAME_START.pack(1, number, len(self._method) + 7 + len(tail)) + self._method, tail)
            raw = content.raw
            if as_published:
                _keep(self._ends, route, ends)
        start, tail = ends
        header = HEADER_START.pack(2, number, 12 + len(raw), 60, 0, size)
        middle = b"%b%b%b\xce%b" % (tail, header, raw, FRAME_START.pack(3, number, size))
        # A shape that was seen once may never repeat: if each message has its own id, caching gains nothing.
        alike = not headers or PROPERTIES in headers or headers.keys() == {EXCHANGE}
        if alike and like == self._missed and len(middle) <= _SHAPE_BYTES_MAX:
            _keep(self._shapes, like, (start, middle))
        self._missed = like
        return start, middle

    def _content(self, broker_queue: BrokerQueue, key: bytes | None, headers: Headers, attempt: int) -> Content:
        content = content_of(key, headers, broker_queue.name)
        return counted(content, attempt - 1) if broker_queue.counts_deliveries and attempt > 1 else content

    def _encode_in_parts(
        self,
        out: list[bytes],
        broker_queue: BrokerQueue,
        payload: bytes,
        key: bytes | None,
        headers: Headers,
        attempt: int,
        tag: int,
    ) -> None:
        content = self._content(broker_queue, key, headers, attempt)
        channel = self.channel
        out.append(
            method_frame(
                channel.number, BasicDeliver(self.tag, tag, attempt > 1, content.exchange, content.routing_key)
            )
        )
        out += content_frames(channel.number, 60, content.raw, payload, channel.frame_max)


def _keep(known: dict[tuple[object, ...], T], key: tuple[object, ...], value: T) -> None:
    if len(known) >= _SHAPES_MAX:
        known.clear()
    known[key] = value
