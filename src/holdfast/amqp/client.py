"""A small blocking AMQP client, used to import from another broker: it waits for each answer and gets in batches."""

import contextlib
import socket
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar
from urllib.parse import unquote, urlsplit

from holdfast.amqp import methods as m
from holdfast.amqp.frames import (
    BODY,
    HEADER,
    METHOD,
    PROTOCOL_HEADER,
    FrameError,
    content_frames,
    decode_content_header,
    read_frame,
)
from holdfast.base.errors import HoldfastError, InvalidArgument
from holdfast.broker.basic_properties import PERSISTENT_ONLY

__all__ = ["Address", "ChannelClosed", "Client", "ConnectionEnded", "Got"]

FRAME_MAX = 131_072
_PORT, _TLS_PORT = 5672, 5671
_READ_BYTES = 1 << 18
_TAG = "holdfast-import"
_CAPABILITIES = {"authentication_failure_close": True, "basic.nack": True, "consumer_cancel_notify": True}
M = TypeVar("M", bound=tuple[object, ...])


class ConnectionEnded(HoldfastError):
    """The other broker closed the connection, or cannot be reached."""


class ChannelClosed(HoldfastError):
    """The other broker closed the channel because of an error; the connection is still open."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True, slots=True)
class Address:
    """Host, port, TLS and credentials of a broker."""

    host: str
    port: int
    user: str = "guest"
    password: str | None = field(default="guest", repr=False)
    """None if the address has a user but no password."""
    vhost: str | None = None
    """None if the address does not contain it."""
    secure: bool = False

    @classmethod
    def parse(cls, url: str) -> "Address":
        """Parse `amqp://user:password@host:port/vhost`, or amqps; raise `InvalidArgument` for anything else."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise InvalidArgument(f"this is not the address of a broker: {error}") from error
        if parts.scheme not in ("amqp", "amqps") or not parts.hostname:
            # Without the address itself: there may be a password in it.
            raise InvalidArgument("the address of a broker must be amqp://user@host:port/vhost, or amqps:// for TLS")
        secure = parts.scheme == "amqps"
        user = unquote(parts.username) if parts.username else "guest"
        password = "guest" if parts.username is None else None
        return cls(
            parts.hostname,
            port or (_TLS_PORT if secure else _PORT),
            user,
            unquote(parts.password) if parts.password is not None else password,
            unquote(parts.path[1:]) or None,
            secure,
        )

    def __str__(self) -> str:
        """Return the URL without user and password, so that it can be shown."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'amqps' if self.secure else 'amqp'}://{host}:{self.port}"


class Got(NamedTuple):
    """A message that was received and is not acknowledged yet."""

    tag: int
    exchange: str
    routing_key: str
    raw: bytes
    """The property list as on the wire."""
    body: bytes


class Client:
    """A connection to one virtual host, with at most one channel open. Used by one thread."""

    def __init__(
        self, address: Address, vhost: str = "/", *, tls: ssl.SSLContext | None = None, patience_s: float = 60.0
    ) -> None:
        self.address = address
        self._data = b""
        self._at = 0
        self._channel = 0
        """The number of the open channel; 0: none is open. Numbers are not used again."""
        self._numbers = 0
        self._frame_max = 0
        try:
            self._socket: socket.socket = socket.create_connection((address.host, address.port), timeout=patience_s)
        except OSError as error:
            reason = error.strerror or error
            raise ConnectionEnded(f"cannot connect to {address}: {reason}. Check the host and the port") from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.secure:
                context = tls or ssl.create_default_context()
                self._socket = context.wrap_socket(self._socket, server_hostname=address.host)
            self._log_in(vhost)
        except BaseException as error:
            self._socket.close()
            if isinstance(error, ssl.SSLError):
                raise ConnectionEnded(
                    f"TLS handshake with {address} failed: {error.reason or error}. Give the CA file with --ca"
                ) from error
            if isinstance(error, OSError):
                raise ConnectionEnded(f"no response from {address}: {error.strerror or error}") from error
            raise

    def _log_in(self, vhost: str) -> None:
        self._send(PROTOCOL_HEADER)
        start = self._expect(m.ConnectionStart)
        mechanisms = bytes(start.mechanisms).split()
        if self.address.password is None and b"EXTERNAL" in mechanisms:
            mechanism, response = "EXTERNAL", b""
        else:
            mechanism, response = "PLAIN", f"\0{self.address.user}\0{self.address.password or ''}".encode()
        properties: dict[str, Any] = {"product": "Holdfast", "capabilities": dict(_CAPABILITIES)}
        self._call(m.ConnectionStartOk(properties, mechanism, response, "en_US"))
        try:
            tune = self._expect(m.ConnectionTune)
        except ConnectionEnded as error:
            raise ConnectionEnded(f"login as {self.address.user!r} at {self.address} failed: {error}") from error
        self._frame_max = min(tune.frame_max or FRAME_MAX, FRAME_MAX)
        # No heartbeat: a request without an answer within the timeout ends the connection as well.
        self._call(m.ConnectionTuneOk(tune.channel_max, self._frame_max, 0))
        self._call(m.ConnectionOpen(vhost))
        self._expect(m.ConnectionOpenOk)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connection; the broker requeues unacknowledged messages."""
        self.close()

    def close(self) -> None:
        """Close the connection and wait for the answer: the broker has then processed all that was sent."""
        with contextlib.suppress(ConnectionEnded, ChannelClosed, FrameError, OSError):
            self._call(m.ConnectionClose(200, "done", 0, 0))
            while not isinstance(self._next_method(), m.ConnectionCloseOk):
                pass
        self._socket.close()

    # Channels.

    def open_channel(self) -> None:
        """Open a channel, in place of the previous one."""
        if self._channel:
            self.close_channel()
        self._numbers += 1
        self._call(m.ChannelOpen(), self._numbers)
        self._expect(m.ChannelOpenOk)
        self._channel = self._numbers

    def close_channel(self) -> None:
        """Close the channel: the broker has processed all that was sent on it when this returns."""
        if self._channel:
            self._call(m.ChannelClose(200, "done", 0, 0), self._channel)
            self._channel = 0
            while not isinstance(self._next_method(), m.ChannelCloseOk):
                pass

    # Queues.

    def look(self, queue: str) -> tuple[int, int]:
        """Return a queue's ready messages and consumers; raise `ChannelClosed` if there is no such queue."""
        self._call(m.QueueDeclare(queue=queue, passive=True), self._channel)
        found = self._expect(m.QueueDeclareOk)
        return found.message_count, found.consumer_count

    def ask(self, queue: str, count: int) -> None:
        """Send `count` basic.get requests; `answers` returns their results."""
        self._send(m.method_frame(self._channel, m.BasicGet(queue=queue)) * count)

    def answers(self, count: int) -> Iterator[Got | None]:
        """Yield the results of `count` basic.get requests; None for each that found the queue empty."""
        for _ in range(count):
            method = self._next_method()
            if isinstance(method, m.BasicGetOk):
                yield self._got(method)
            elif isinstance(method, m.BasicGetEmpty):
                yield None
            else:
                raise ConnectionEnded(f"{self.address} answered basic.get with {type(method).__name__}")

    def consume(self, queue: str, prefetch: int) -> None:
        """Start to consume from a queue, with a prefetch limit; 0 sets no limit."""
        self._call(m.BasicQos(0, prefetch, False), self._channel)
        self._expect(m.BasicQosOk)
        self._call(m.BasicConsume(queue=queue, consumer_tag=_TAG), self._channel)
        self._expect(m.BasicConsumeOk)

    def delivered(self, wait_s: float) -> Got | None:
        """Return the next delivery, or None if none arrives within `wait_s` seconds."""
        if not self._has_frame(wait_s):
            return None
        method = self._next_method()
        if not isinstance(method, m.BasicDeliver):
            raise ConnectionEnded(f"{self.address} sent {type(method).__name__}, expected a delivery")
        return self._got(method)

    def cancel(self) -> list[Got]:
        """Cancel the consumer, and return the deliveries that arrived in the meantime."""
        self._call(m.BasicCancel(_TAG), self._channel)
        late = []
        while not isinstance(method := self._next_method(), m.BasicCancelOk):
            if isinstance(method, m.BasicDeliver):
                late.append(self._got(method))
        return late

    def declare(self, queue: str, arguments: Mapping[str, Any] | None = None) -> None:
        """Declare a durable queue."""
        self._call(m.QueueDeclare(queue=queue, durable=True, arguments=dict(arguments or {})), self._channel)
        self._expect(m.QueueDeclareOk)

    def publish(self, queue: str, bodies: Sequence[bytes], raw: bytes = PERSISTENT_ONLY) -> int:
        """Publish messages to a queue, and return how many were confirmed, which is all once this returns."""
        self._call(m.ConfirmSelect(), self._channel)
        self._expect(m.ConfirmSelectOk)
        method = m.method_frame(self._channel, m.BasicPublish(exchange="", routing_key=queue))
        for body in bodies:
            self._send(b"".join([method, *content_frames(self._channel, 60, raw, body, self._frame_max)]))
        confirmed = 0
        while confirmed < len(bodies):
            answer = self._next_method()
            if isinstance(answer, m.BasicAck):
                confirmed = answer.delivery_tag if answer.multiple else confirmed + 1
            elif isinstance(answer, m.BasicNack):
                raise ConnectionEnded(f"{self.address} rejected a message for {queue!r}")
        return confirmed

    def reject(self, tag: int) -> None:
        """Reject this message: it is dead-lettered or dropped."""
        self._call(m.BasicReject(tag, False), self._channel)

    def ack(self, tag: int) -> None:
        """Acknowledge all messages up to this one."""
        self._call(m.BasicAck(tag, True), self._channel)

    def give_back(self, tag: int) -> None:
        """Requeue all messages up to this one."""
        self._call(m.BasicNack(tag, True, True), self._channel)

    # Frames.

    def _call(self, method: m.Method, channel: int = 0) -> None:
        self._send(m.method_frame(channel, method))

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self._lost(error) from error

    def _expect(self, kind: type[M]) -> M:
        method = self._next_method()
        if not isinstance(method, kind):
            raise ConnectionEnded(f"{self.address} sent {type(method).__name__}, expected {kind.__name__}")
        return method

    def _next_method(self) -> m.Method:
        """Return the next method, skipping notifications; raise an error for a close."""
        while True:
            kind, payload = self._next_frame()
            if kind != METHOD:
                continue
            method = m.decode_method(payload)
            if isinstance(method, m.ConnectionClose):
                with contextlib.suppress(ConnectionEnded):
                    self._call(m.ConnectionCloseOk())
                raise ConnectionEnded(f"{self.address} closed the connection: {method.reply_text}")
            if isinstance(method, m.ChannelClose):
                self._call(m.ChannelCloseOk(), self._channel)
                self._channel = 0
                raise ChannelClosed(method.reply_code, method.reply_text)
            if not isinstance(method, m.ConnectionBlocked | m.ConnectionUnblocked | m.BasicCancel):
                return method

    def _got(self, method: m.BasicGetOk | m.BasicDeliver) -> Got:
        raw, body = self._content()
        return Got(method.delivery_tag, method.exchange, method.routing_key, raw, body)

    def _content(self) -> tuple[bytes, bytes]:
        kind, payload = self._next_frame()
        if kind != HEADER:
            raise ConnectionEnded(f"{self.address} sent a message without a header")
        _, size, raw = decode_content_header(payload)
        parts = []
        while size > 0:
            kind, payload = self._next_frame()
            if kind != BODY:
                raise ConnectionEnded(f"{self.address} sent a message without its body")
            parts.append(payload)
            size -= len(payload)
        return raw, parts[0] if len(parts) == 1 else b"".join(parts)

    def _next_frame(self) -> tuple[int, bytes]:
        while True:
            found = read_frame(self._data, self._at, 0)
            if found is not None:
                kind, _, start, stop, self._at = found
                return kind, self._data[start:stop]
            try:
                self._receive()
            except TimeoutError as error:
                raise self._lost(error) from error

    def _receive(self) -> None:
        try:
            more = self._socket.recv(_READ_BYTES)
        except TimeoutError:
            raise
        except OSError as error:
            raise self._lost(error) from error
        if not more:
            raise ConnectionEnded(f"{self.address} closed the connection")
        self._data = self._data[self._at :] + more
        self._at = 0

    def _has_frame(self, wait_s: float) -> bool:
        """Whether a whole frame has arrived, or arrives while bytes keep coming."""
        before = self._socket.gettimeout()
        self._socket.settimeout(wait_s)
        try:
            while read_frame(self._data, self._at, 0) is None:
                try:
                    self._receive()
                except TimeoutError:
                    return False
            return True
        finally:
            self._socket.settimeout(before)

    def _lost(self, error: OSError) -> ConnectionEnded:
        return ConnectionEnded(f"the connection to {self.address} was lost: {error.strerror or error}")
