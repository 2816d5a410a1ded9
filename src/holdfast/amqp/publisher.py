"""The publish path of a channel: assembles content from frames, routes it, puts it into queues and confirms it."""

import struct
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from holdfast.amqp.direct_reply_to import REPLY_TO
from holdfast.amqp.frames import (
    ACK_FRAME,
    BODY,
    END_OCTET,
    FRAME_START,
    HEADER,
    HEADER_START,
    OVERHEAD,
    FrameError,
    content_frames,
    decode_content_header,
)
from holdfast.amqp.methods import BasicPublish, BasicReturn, decode_method, method_frame
from holdfast.base.errors import HoldfastError, InvalidArgument
from holdfast.broker.amqp_values import MalformedField
from holdfast.broker.errors import NotOffered, PreconditionFailed
from holdfast.broker.exchange_stats import Traffic
from holdfast.broker.message import Content, Instructions, instructions_in
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.broker.vhost import MESSAGE_MAX
from holdfast.log.log import Log

if TYPE_CHECKING:
    from holdfast.amqp.channel import Channel

__all__ = ["PUBLISH", "ChannelPublisher"]

PUBLISH = b"\x00\x3c\x00\x28"
"""The first bytes of the payload of a publish."""
_REPLY = REPLY_TO + "."
_CACHED_BYTES_MAX = 1024
_CACHED_MAX = 1000
_RUN_MAX = 4000
"""Messages that are put together: no more than a queue delivers at once."""
_REQUEUE = 2
"""The bits that RabbitMQ sends in a nack: the default of its requeue bit."""
_LARGE = 16 << 10
_FEW = 4
"""A batch with at most this many messages is small: the broker's thread may sync it itself."""


class _Batch:
    """Messages of a channel that are confirmed together."""

    __slots__ = ("first", "last", "logs", "refused", "settled")

    def __init__(self, first: int) -> None:
        self.first = first
        self.last = first - 1
        self.logs: dict[Log, None] = {}
        self.refused: list[int] = []
        self.settled = False


class CachedRoute:
    """Cached route of publishes with the same method; valid until the virtual host's version changes.

    The version changes with the topology and with permissions, so that both are checked again.
    """

    __slots__ = ("logs", "method", "simple", "targets", "version")

    def __init__(self, method: BasicPublish) -> None:
        self.method = method
        self.version = -1
        self.targets: list[BrokerQueue] | None = None
        """None if routing depends on the headers of each message."""
        self.simple = False
        """Whether none of the target queues can reject a message."""
        self.logs: dict[Log, None] = {}
        """The logs that must be on disk before a persistent message on this route is durable."""


class ChannelPublisher:
    """The publishing half of a channel. Used by the event loop alone.

    Invariant: confirms go out in the order of the publishes, and a return before the confirm of its message.
    """

    def __init__(self, channel: "Channel") -> None:
        self._channel = channel
        self._turns = channel.connection.broker.turns
        self._routes: dict[bytes, CachedRoute] = {}
        self._known: dict[bytes, Instructions] = {}
        self.awaiting: CachedRoute | None = None
        """The publish whose content is awaited: the next frame must be a content header or body."""
        self._payload = b""
        self._raw: bytes | None = None
        self._size = 0
        self._parts: list[bytes] = []
        self._received = 0
        self._held_route: CachedRoute | None = None
        self._held: list[tuple[Instructions, bytes]] = []
        """Messages with the same route, to be put together."""
        self.confirms = False
        self.published = 0
        """How many messages were published so far, except those of a transaction that is not committed."""
        self._count = 0
        self._open: _Batch | None = None
        self._waiting: deque[_Batch] = deque()

    # Frames.

    @property
    def unconfirmed(self) -> int:
        """How many messages wait for their confirm."""
        return sum(batch.last - batch.first + 1 for batch in self._waiting)

    def forget(self) -> None:
        """Drop a partly received message, which may be large, because the channel was closed."""
        self.awaiting, self._raw, self._parts = None, None, []

    def begin(self, payload: bytes) -> None:
        """Start a message with its basic.publish method."""
        self.awaiting, self._payload = self._find_route(payload), payload
        self._raw, self._parts, self._received = None, [], 0

    def header(self, payload: bytes) -> None:
        """Take the content header of the message."""
        if self.awaiting is None:
            raise FrameError(505, "expected method frame, got non method frame instead")
        if self._raw is not None:
            raise FrameError(505, "expected content body, got non content body frame instead")
        class_id, size, raw = decode_content_header(payload)
        if class_id != 60:
            raise FrameError(505, f"expected content header for class 60, got one for class {class_id} instead")
        _check_size(size)
        self._raw, self._size = raw, size
        if not size:
            self._finish()

    def body(self, part: bytes) -> None:
        """Take a part of the message's body."""
        if self.awaiting is None:
            raise FrameError(505, "expected method frame, got non method frame instead")
        if self._raw is None:
            raise FrameError(505, "expected content header for class 60, got non content header frame instead")
        self._received += len(part)
        if self._received > self._size:
            raise FrameError(505, f"the body exceeds the {self._size} bytes that its header announced")
        self._parts.append(part)
        if self._received == self._size:
            self._finish()

    def _finish(self) -> None:
        route, raw, parts = self.awaiting, self._raw, self._parts
        assert route is not None
        assert raw is not None
        self.awaiting, self._raw, self._parts = None, None, []
        if route.version != self._channel.host.version:  # a queue may have gone since the first frame
            route = self._find_route(self._payload)
        self._publish(route, raw, [parts[0] if len(parts) == 1 else b"".join(parts)])

    def take_run(
        self, data: bytes | memoryview, offset: int, start: int, stop: int, following: int, frame_max: int
    ) -> int:
        """Process a publish whose content has arrived, and all that follow it and differ only in the body.

        Returns the offset after the last of them; 0 if the content is incomplete or in several frames, which are then
        processed one by one.
        """
        number, there = self._channel.number, len(data)
        try:  # anything unexpected is left to the frame-by-frame path, which reports the error
            kind, on, length, class_id, weight, size = HEADER_START.unpack_from(data, following)
            close = following + 7 + length
            if (
                (kind, on, class_id, weight, data[close]) != (HEADER, number, 60, 0, END_OCTET)
                or length < 14
                or not size
            ):
                return 0
            kind, on, body = FRAME_START.unpack_from(data, close + 1)
            begin = close + 8
            if (kind, on, body, data[begin + size]) != (BODY, number, size, END_OCTET):
                return 0
        except (struct.error, IndexError):
            return 0
        if frame_max and max(length, size) + OVERHEAD > frame_max:
            return 0
        _check_size(size)
        raw, at = bytes(data[following + HEADER_START.size : close]), begin + size + 1
        self._channel.connection.large_bodies = size >= _LARGE
        prefix, step = bytes(data[offset:begin]), at - offset
        last = min(there - step, offset + step * (_RUN_MAX - 1))
        if isinstance(data, bytes):
            while at <= last and data.startswith(prefix, at) and data[at + step - 1] == END_OCTET:
                at += step
            bodies = [data[place : place + size] for place in range(begin, at, step)]
        else:  # a connection with large messages
            skip = len(prefix)
            while at <= last and data[at : at + skip] == prefix and data[at + step - 1] == END_OCTET:
                at += step
            bodies = [bytes(data[place : place + size]) for place in range(begin, at, step)]
        self._publish(self._find_route(bytes(data[start:stop])), raw, bodies)
        return int(at)

    def _find_route(self, payload: bytes) -> CachedRoute:
        route = self._routes.get(payload)
        if route is None:
            method = decode_method(payload)
            assert isinstance(method, BasicPublish)
            if method.immediate:
                raise NotOffered("immediate=true")
            route = CachedRoute(method)
            if len(self._routes) >= _CACHED_MAX:
                self._routes.clear()
            self._routes[payload] = route
        if route.version != self._channel.host.version:
            host, method = self._channel.host, route.method
            self._channel.check_publish(method.exchange)
            route.targets = host.fixed_targets(method.exchange, method.routing_key)
            route.simple = all(broker_queue.never_refuses for broker_queue in route.targets or ())
            route.logs = {
                broker_queue.queue.log: None for broker_queue in route.targets or () if broker_queue.definition.durable
            }
            route.version = host.version
        return route

    # Messages.

    def _publish(self, route: CachedRoute, raw: bytes, bodies: list[bytes]) -> None:
        channel = self._channel
        directives = self._known.get(raw)
        looks = route.targets is None  # routing needs the headers
        if directives is None or (looks and directives.properties is None):
            directives = self._read(raw, whole=looks)
        if directives.properties is not None and directives.properties.reply_to == REPLY_TO:
            directives = self._read(channel.connection.replies.question(channel, directives.properties), whole=looks)
        if channel.transaction is not None:
            channel.transaction.publish(route.method, directives, bodies, self._targets(route, directives))
            return
        if len(bodies) == 1 and route.targets and not directives.copies and route.simple:
            if self._held_route is not route:
                self.flush()
                self._held_route = route
                channel.connection.buffered_publishers.append(self)
                channel.after_read(self.flush)
            self._held.append((directives, bodies[0]))
            if len(self._held) >= _RUN_MAX:
                self.flush()
            return
        self.flush()
        self.publish(route.method, directives, bodies, self._targets(route, directives))

    def _targets(self, route: CachedRoute, directives: Instructions) -> list[BrokerQueue]:
        """Return the queues for messages with this route and these properties."""
        if route.targets is not None and not directives.copies:
            return route.targets
        keys = (route.method.routing_key, *directives.copies)
        return self._channel.host.route(route.method.exchange, keys, directives.headers)

    def flush(self) -> None:
        """Put the held messages, which share a route and may differ in properties, with one write a queue."""
        route, held = self._held_route, self._held
        if route is None:
            return
        self._held_route, self._held = None, []
        self.published += len(held)
        method, targets = route.method, route.targets or []
        traffic = self._channel.host.traffic[method.exchange]
        traffic.came += len(held)
        traffic.went += len(held) * len(targets)
        bodies, directives = [body for _, body in held], [directive for directive, _ in held]
        content = Content(method.exchange, method.routing_key, directives[0].raw)
        for broker_queue in targets:
            broker_queue.put_each(content, bodies, directives)
        if self.confirms:
            self._note(len(held), route.logs if any(directive.persistent for directive in directives) else {}, set())

    def _read(self, raw: bytes, *, whole: bool) -> Instructions:
        try:
            directives = instructions_in(raw, whole=whole)
        except MalformedField as error:
            raise FrameError(501, str(error)) from None
        user = directives.properties.user_id if directives.properties is not None else None
        if user is not None and user != self._channel.user:
            raise PreconditionFailed(
                f"user_id property set to '{user}' but authenticated user was '{self._channel.user}'"
            )
        if len(raw) <= _CACHED_BYTES_MAX:
            if len(self._known) >= _CACHED_MAX:
                self._known.clear()
            self._known[raw] = directives
        return directives

    def publish(
        self,
        method: BasicPublish,
        directives: Instructions,
        bodies: list[bytes],
        targets: list[BrokerQueue],
    ) -> tuple[dict[Log, None], bool]:
        """Put messages into their queues, and return unroutable mandatory ones to the client.

        Returns the logs that must be on disk before they are safe, and whether a full queue refused any. In confirm
        mode they are confirmed after that. Raises `PreconditionFailed` at the first that does not fit the schema of a
        queue's log, which closes the channel; those before it are put.
        """
        if problem := self._unfit(targets, bodies):
            place, text = problem
            if place:
                self.publish(method, directives, bodies[:place], targets)
            raise PreconditionFailed(text)
        channel = self._channel
        self.published += len(bodies)
        if method.routing_key.startswith(_REPLY) and not method.exchange:
            answered = channel.connection.replies.answer(method.routing_key, directives.raw, bodies)
        else:
            answered = False
        # The exchange of a transaction may be deleted before the commit: counting must not add it again.
        there = method.exchange in channel.host.topology.exchanges
        traffic = channel.host.traffic[method.exchange] if there else Traffic()
        traffic.came += len(bodies)
        traffic.went += len(bodies) * len(targets)
        if not (targets or answered):
            if method.mandatory:
                traffic.returned += len(bodies)
            else:
                traffic.dropped += len(bodies)
        logs: dict[Log, None] = {}
        refused: set[int] = set()
        content = Content(method.exchange, method.routing_key, directives.raw)
        for broker_queue in targets:
            taken = broker_queue.put(content, bodies, directives)
            if taken < len(bodies):
                refused.update(range(taken, len(bodies)))
                channel.host.refuse(broker_queue, content, bodies[taken:])
            if directives.persistent and broker_queue.definition.durable:
                logs[broker_queue.queue.log] = None
        if not (targets or answered) and method.mandatory:
            returned = method_frame(channel.number, BasicReturn(312, "NO_ROUTE", method.exchange, method.routing_key))
            for body in bodies:
                frames = content_frames(channel.number, 60, directives.raw, body, channel.frame_max)
                channel.write(b"".join([returned, *frames]))
        if self.confirms:
            self._note(len(bodies), logs, refused)
        return logs, bool(refused)

    @staticmethod
    def _unfit(targets: list[BrokerQueue], bodies: list[bytes]) -> tuple[int, str] | None:
        """Return the place of the first body that does not fit the schema of a queue's log, and why; None if all do."""
        checking = [broker_queue for broker_queue in targets if broker_queue.checks_payloads]
        for place, body in enumerate(bodies if checking else ()):
            try:
                for broker_queue in checking:
                    broker_queue.check_payload(body)
            except InvalidArgument as error:
                return place, str(error)
        return None

    # Confirms.

    def _note(self, count: int, logs: dict[Log, None], refused: set[int]) -> None:
        batch = self._open
        if batch is None:
            batch = self._open = _Batch(self._count + 1)
            self._waiting.append(batch)
            self._channel.after_read(self.request_confirms)
        if refused:
            batch.refused += [self._count + 1 + place for place in sorted(refused)]
        self._count += count
        batch.last = self._count
        batch.logs.update(logs)

    def request_confirms(self) -> None:
        """Confirm the messages of this read that need no sync, and request the sync of the others."""
        batch, self._open = self._open, None
        if batch is None or self._channel.closing:
            return
        if batch.logs:
            small = batch.last - batch.first < _FEW
            self._turns.when_durable(batch.logs, partial(self._settle, batch), small=small)
        else:
            self._settle(batch, None)

    def _settle(self, batch: _Batch, error: HoldfastError | None) -> None:
        if self._channel.closing:
            return
        batch.settled = True
        if error is not None:
            batch.refused = [*range(batch.first, batch.last + 1)]
        first = last = 0
        while self._waiting and self._waiting[0].settled:
            done = self._waiting.popleft()
            if not done.refused:
                first, last = first or done.first, done.last
                continue
            self._send(first, last)
            first = last = 0
            self._send_apart(done)
        self._send(first, last)

    def _send(self, first: int, last: int) -> None:
        """Send one ack for the tags from `first` to `last`, if there are any."""
        if last:
            self._channel.write(ACK_FRAME.pack(1, self._channel.number, 13, 60, 80, last, last != first, END_OCTET))

    def _send_apart(self, batch: _Batch) -> None:
        """Send an ack or nack for each message of a batch of which some were rejected, in order."""
        refused = set(batch.refused)
        number = self._channel.number
        out = []
        for tag in range(batch.first, batch.last + 1):
            if tag in refused:
                out.append(ACK_FRAME.pack(1, number, 13, 60, 120, tag, _REQUEUE, END_OCTET))
            else:
                out.append(ACK_FRAME.pack(1, number, 13, 60, 80, tag, 0, END_OCTET))
        self._channel.write(b"".join(out))


def _check_size(size: int) -> None:
    """Reject a body that is too large before any of it is buffered."""
    if size > MESSAGE_MAX:
        raise PreconditionFailed(f"message size {size} is larger than configured max size {MESSAGE_MAX}")
