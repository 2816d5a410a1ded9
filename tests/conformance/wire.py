"""How does a test speak AMQP frame by frame, and break its rules where a client library would not?"""

import socket
import struct
from types import TracebackType
from typing import Any, Self

from pika import frame, spec

from tests.conformance.brokers import Broker

__all__ = ["FRAME_END", "PROTOCOL_HEADER", "Wire", "content_header", "publishing", "raw_frame"]

PROTOCOL_HEADER = b"AMQP\x00\x00\x09\x01"
FRAME_END = 0xCE
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8


def raw_frame(kind: int, channel: int, payload: bytes, end: int = FRAME_END) -> bytes:
    """Any frame at all, right or wrong."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes([end])


def content_header(channel: int, size: int, class_id: int = 60) -> bytes:
    """The header of a message of `size` bytes without properties."""
    return raw_frame(HEADER, channel, struct.pack(">HHQH", class_id, 0, size, 0))


def publishing(channel: int, key: str, *texts: str, exchange: str = "", **properties: Any) -> bytes:
    """All frames that publish these texts, so that they may go in one write."""
    method = frame.Method(channel, spec.Basic.Publish(exchange=exchange, routing_key=key)).marshal()
    described = spec.BasicProperties(**properties)
    bodies = [text.encode() for text in texts]
    return b"".join(
        method + frame.Header(channel, len(body), described).marshal() + raw_frame(BODY, channel, body)
        for body in bodies
    )


class Wire:
    """One socket to a broker; what arrives is decoded, what is sent may be anything."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.socket = socket.create_connection((broker.host, broker.port), timeout=60)
        self._received = b""
        self.last = b""
        """The bytes of the frame received last."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.socket.close()

    def send(self, *parts: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(b"".join(parts))

    def call(self, channel: int, *methods: Any) -> None:
        """Send methods, each in its frame."""
        self.send(*(frame.Method(channel, method).marshal() for method in methods))

    def receive(self) -> Any:
        """The next frame, or None where the broker has closed the socket."""
        while True:
            used, found = frame.decode_frame(self._received)
            if found is not None:
                self.last, self._received = self._received[:used], self._received[used:]
                return found
            try:
                more = self.socket.recv(65536)
            except ConnectionResetError:
                more = b""
            if not more:
                return None
            self._received += more

    def receive_bytes(self) -> bytes:
        """The next frame as it came: for what pika itself cannot read."""
        while len(self._received) < 8 or len(self._received) < 8 + int.from_bytes(self._received[3:7], "big"):
            more = self.socket.recv(65536)
            assert more, "the broker has hung up"
            self._received += more
        stop = 8 + int.from_bytes(self._received[3:7], "big")
        self.last, self._received = self._received[:stop], self._received[stop:]
        return self.last

    def expect(self, method: type[Any]) -> Any:
        """The next method, which must be of this kind; heartbeats do not count."""
        found = self.receive()
        while isinstance(found, frame.Heartbeat):
            found = self.receive()
        assert isinstance(found, frame.Method), f"waited for {method.__name__}, got {found!r}"
        assert isinstance(found.method, method), f"waited for {method.__name__}, got {found.method!r}"
        return found.method

    def expect_end(self) -> Any:
        """Read until the broker hangs up; returns its connection.close where it said one, answered with close-ok."""
        said = None
        while (found := self.receive()) is not None:
            if isinstance(getattr(found, "method", None), spec.Connection.Close):
                said = found.method
                self.call(0, spec.Connection.CloseOk())
        return said

    def expect_close(self, code: int, *words: str) -> spec.Connection.Close:
        """The broker closes the connection with this code, and hangs up after our close-ok."""
        closed = self.expect(spec.Connection.Close)
        assert closed.reply_code == code, (closed.reply_code, closed.reply_text)
        for word in words:
            assert word in closed.reply_text
        self.call(0, spec.Connection.CloseOk())
        self.expect_end()
        return closed

    def start(self) -> spec.Connection.Start:
        """Send the protocol header; the broker introduces itself."""
        self.send(PROTOCOL_HEADER)
        return self.expect(spec.Connection.Start)

    def log_in(
        self,
        *,
        user: str | None = None,
        password: str | None = None,
        mechanism: str = "PLAIN",
        capabilities: dict[str, bool] | None = None,
    ) -> None:
        """Answer connection.start; what comes back is up to the broker."""
        who = self.broker.user if user is None else user
        secret = self.broker.password if password is None else password
        properties = {"product": "holdfast-conformance", "capabilities": capabilities or {}}
        self.call(0, spec.Connection.StartOk(properties, mechanism, f"\0{who}\0{secret}", "en_US"))

    def open(
        self,
        *,
        vhost: str | None = None,
        channel_max: int | None = None,
        frame_max: int | None = None,
        heartbeat: int = 0,
        channels: int = 1,
        capabilities: dict[str, bool] | None = None,
    ) -> spec.Connection.Tune:
        """Shake hands, open the virtual host and so many channels; returns what the broker proposed."""
        self.start()
        self.log_in(capabilities=capabilities)
        tune = self.expect(spec.Connection.Tune)
        self.call(
            0,
            spec.Connection.TuneOk(
                tune.channel_max if channel_max is None else channel_max,
                tune.frame_max if frame_max is None else frame_max,
                heartbeat,
            ),
            spec.Connection.Open(self.broker.vhost if vhost is None else vhost),
        )
        self.expect(spec.Connection.OpenOk)
        for number in range(1, channels + 1):
            self.open_channel(number)
        return tune

    def open_channel(self, number: int) -> None:
        """Open one channel and wait for its answer."""
        self.call(number, spec.Channel.Open())
        self.expect(spec.Channel.OpenOk)

    def is_well(self) -> bool:
        """Whether the connection still answers: a channel opens and closes."""
        self.call(99, spec.Channel.Open())
        self.expect(spec.Channel.OpenOk)
        self.call(99, spec.Channel.Close(200, "", 0, 0))
        self.expect(spec.Channel.CloseOk)
        return True
