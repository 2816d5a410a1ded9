"""One AMQP client connection: handshake, frame parsing, flow control, heartbeats and orderly closing."""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from holdfast.amqp import methods as m
from holdfast.amqp.admission import Admitted
from holdfast.amqp.channel import ACK, Channel
from holdfast.amqp.frames import (
    BODY,
    FRAME_MIN,
    HEADER,
    HEARTBEAT,
    HEARTBEAT_FRAME,
    METHOD,
    OVERHEAD,
    PROTOCOL_HEADER,
    FrameError,
    check_heartbeat,
    missing_in,
    read_frame,
)
from holdfast.amqp.login import Login
from holdfast.amqp.publisher import PUBLISH, ChannelPublisher
from holdfast.base.errors import HoldfastError
from holdfast.broker.amqp_values import MalformedField, cut_short
from holdfast.broker.errors import BrokerError, InternalError
from holdfast.broker.users import log_failed_login, log_value
from holdfast.broker.vhost import VirtualHostRuntime

if TYPE_CHECKING:
    from holdfast.amqp.methods import ConnectionTuneOk
    from holdfast.amqp.server import Server
    from holdfast.amqp.settings import Settings

__all__ = ["Connection"]

logger = logging.getLogger("holdfast.amqp")

_CHANNEL_OPEN, _CHANNEL_CLOSE, _CHANNEL_CLOSE_OK = b"\x00\x14\x00\x0a", b"\x00\x14\x00\x28", b"\x00\x14\x00\x29"
_NO_METHOD = (0, 0)
_PUBLISHING, _ACKING = (60, 40), (60, 80)
_STATES = {"login": "starting", "open": "running"}
"""RabbitMQ's names of states, where they differ from ours."""
_CONTENT = (HEADER, BODY)
_CLOSE_PATIENCE_S = 10.0
LEAVE_PATIENCE_S = 30.0
"""How long a client that has closed its connection may continue to send before it disconnects, as with RabbitMQ."""
_WRITE_HIGH = 1 << 20
"""Unread bytes above which the client gets no more deliveries."""
_UNREAD_MAX = 16 << 20
"""Unread bytes, which can only be answers, above which nothing more is read from the client either."""

_BLOCKED_BY_REPLICA = "the claim on the replica is not renewed, and a standby may have taken over"


class Connection(asyncio.BufferedProtocol):
    """An AMQP client connection. States: `header`, `login`, `tuning`, `opening`, `open`, `closing`, `closed`.

    All calls come from the event loop. Invariant: while it is `open` there is a host, and every channel in `channels`
    has unsettled deliveries and consumers of its own only.
    """

    def __init__(self, server: "Server", admitted: Admitted) -> None:
        self._server = server
        self._admitted = admitted
        self.broker = server.broker
        self.replies = server.replies
        self.channels: dict[int, Channel] = {}
        self.host: VirtualHostRuntime | None = None
        self.user = ""
        self.frame_max = server.settings.frame_max
        self.channel_max = server.settings.channel_max
        self.heartbeat = server.settings.heartbeat
        self.writable = True
        self._performing = _NO_METHOD
        """Class and method that are being processed, for a close."""
        self.client: dict[str, Any] = {}
        """The properties that the client reported."""
        self.peer: Any = None
        self.mechanism = ""
        self.received = self.sent = 0
        """Bytes."""
        self.opened_at = time.time()
        self._state = "header"
        self._login = Login(self)
        self._rest = b""
        self.large_bodies = False
        """Whether the last message that it published was large."""
        self.waits: set[str] = set()
        """Reasons why input is held back: a pending login or commit, an alarm, or a client that does not read."""
        self.buffered_publishers: list[ChannelPublisher] = []
        """Publishers with messages that are not put yet: flushed before other methods and at the end of the read."""
        self.end_of_read: deque[Callable[[], None]] = deque()
        """Called when everything from the current read is processed; an error closes the connection."""
        self._transport: asyncio.Transport | None = None
        self._takes_parts = False
        self._heart: asyncio.TimerHandle | None = None
        """Timer of the next heartbeat."""
        self.heard = self.said = self.now()
        self.close_by: float | None = None
        self.stuck = (0.0, 0)
        """For a client that reads too slowly: since when it has read nothing, and how much it had read then."""

    now = staticmethod(time.monotonic)

    @property
    def state(self) -> str:
        """One of the states above, or `blocked` while an alarm holds back its publishes."""
        return "blocked" if self._state == "open" and "alarm" in self.waits else self._state

    @property
    def label(self) -> str:
        """The client in log lines: `user=guest peer=127.0.0.1:48226 protocol=amqp`."""
        return f"user={log_value(self.user)} peer={self._admitted.peer} protocol=amqp"

    def extra(self, name: str) -> Any:
        """Return information about the socket: `sockname`, `cipher` or `peercert`."""
        return self._transport.get_extra_info(name) if self._transport is not None else None

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register a new client with the server."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH)
        # asyncio's own writelines does not pause, and TLS would make a record of each part.
        self._takes_parts = type(transport).__module__.startswith("uvloop") and self.extra("ssl_object") is None
        self.peer = transport.get_extra_info("peername")
        self.close_by = self.now() + self._admitted.left_of(self._server.settings.handshake_timeout)
        self._server.joined(self)
        self._admitted.attach(self._transport.abort)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the server's one receive buffer: each read is processed before the next connection is read."""
        return self._server.inbox

    def buffer_updated(self, nbytes: int) -> None:
        """Process `nbytes` bytes that were read into the buffer."""
        data = self._server.inbox[:nbytes]
        # A large body is copied once, out of the inbox. Small ones are cut out of bytes in less time.
        self.data_received(data if self.large_bodies else bytes(data))

    def data_received(self, data: bytes | memoryview) -> None:
        """Process received bytes, after those that were kept from earlier reads."""
        self.heard = self.now()
        self.received += len(data)
        if self._state == "closed":  # a client sends what is in its buffers: closing the socket would be an error to it
            return
        if self.waits:
            self._rest += data
            return
        offset = 0
        if self._rest:
            lacking = missing_in(self._rest)
            if 0 < lacking < len(data):
                # Only the divided frame is joined, and not all the bytes that arrived with its end.
                self._work(self._rest + data[:lacking], ends_read=False)
                offset = lacking
            if self._rest:
                data, offset = self._rest + data[offset:], 0
        self._work(data, offset)

    def pause_writing(self) -> None:
        """Stop deliveries: the client reads too slowly.

        Its own frames are still processed: a client that blocks while sending reads only after its bytes are accepted.
        """
        self.writable = False
        self.stuck = (self.now(), self.sent - self.unsent())

    def resume_writing(self) -> None:
        """Resume deliveries: the client reads again."""
        self.writable = True
        if "writing" in self.waits:
            self.release("writing")
        for channel in self.channels.values():
            for subscription in channel.subscriptions.values():
                subscription.broker_queue.deliver_soon()

    def connection_lost(self, error: Exception | None) -> None:
        """Clean up after a client: requeue its unsettled deliveries and delete its exclusive queues."""
        if self._state not in ("closed", "closing"):
            # There may be thousands of connections without a login: the listener logs a warning where one is needed.
            level = logging.WARNING if self.user else logging.INFO
            logger.log(level, "connection lost: %s", self.label, extra={"user": self.user})
        self._admitted.release()
        self._state = "closed"
        self.writable = False
        self._rest = b""
        if self._heart is not None:
            self._heart.cancel()
        self._end_channels()
        self.end_of_read.clear()
        if self.host is not None:
            self.host.drop_owned_by(self)
        self._server.left(self)

    # Sending.

    def write(self, *parts: bytes) -> None:
        """Send these parts in one write."""
        if self._transport is not None and self._state != "closed":
            self.said = self.now()
            self.sent += sum(map(len, parts))
            self._transport.writelines(parts) if self._takes_parts else self._transport.write(b"".join(parts))
            if not self.writable and "writing" not in self.waits and self.is_overfull:
                self.hold("writing")

    def _send(self, method: m.Method) -> None:
        self.write(m.method_frame(0, method))

    def understands(self, capability: str) -> bool:
        """Whether the client announced this capability."""
        capabilities = self.client.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(capability) is True

    # Receiving.

    def hold(self, reason: str) -> None:
        """Stop reading from the client for this reason. Several reasons may hold at once."""
        self.waits.add(reason)
        if self._transport is not None:
            self._transport.pause_reading()

    def release(self, reason: str) -> None:
        """Remove a reason to hold; after the last one, resume with the bytes that were kept."""
        self.waits.discard(reason)
        if self._state == "closed" or self.waits:
            return
        if self._transport is not None:
            self._transport.resume_reading()
        if self._rest:
            data, self._rest = self._rest, b""
            self._work(data)

    def _work(self, data: bytes | memoryview, offset: int = 0, *, ends_read: bool = True) -> None:
        try:
            if self._state == "header":
                offset = self._protocol_header(bytes(data[offset:]))
            if self._state != "header" and not self.waits:
                offset = self._cut(data, offset)
        except FrameError as error:
            self.fail(error)
            offset = len(data)
        self._rest = bytes(data[offset:]) if offset < len(data) and self._state != "closed" else b""
        while ends_read and self.end_of_read:  # a call may add another
            try:
                self.end_of_read.popleft()()
            except HoldfastError as error:
                self._request_failed(error)

    def _request_failed(self, error: HoldfastError) -> None:
        """Close the connection because of an error that no client caused."""
        logger.exception("request failed: %s", self.label)
        self.fail(InternalError(str(error)))

    def _protocol_header(self, data: bytes) -> int:
        if len(data) < len(PROTOCOL_HEADER) and PROTOCOL_HEADER.startswith(data):
            return 0
        if not data.startswith(PROTOCOL_HEADER):
            self.write(PROTOCOL_HEADER)  # so that the client learns the supported protocol version
            self._hang_up()
            return len(data)
        self._state = "login"
        self._send(self._login.greeting())
        return len(PROTOCOL_HEADER)

    def _cut(self, data: bytes | memoryview, offset: int) -> int:
        """Process the complete frames in `data`; return the offset of the first incomplete one."""
        channels = self.channels
        frame_max = self.frame_max + OVERHEAD if self.frame_max else 0
        there = len(data)
        while offset < there and not self.waits:
            self._performing = _NO_METHOD
            # As in RabbitMQ, the payload may be as large as frame_max, and the whole frame 8 bytes larger.
            found = read_frame(data, offset, frame_max)
            if found is None or self._state == "closed":
                break
            kind, number, start, stop, following = found
            channel = channels.get(number)
            try:
                if channel is None or channel.closing:
                    self._without_channel(kind, number, bytes(data[start:stop]), channel)
                elif (low := self.broker.memory.blocked) is not None and (
                    kind in _CONTENT or data[start : start + 4] == PUBLISH
                ):
                    self._block(low)
                    break
                elif kind == METHOD and data[start : start + 4] == PUBLISH and channel.publishing.awaiting is None:
                    self._performing = _PUBLISHING
                    if end := channel.publishing.take_run(data, offset, start, stop, following, frame_max):
                        offset = end
                        continue
                    channel.publishing.begin(bytes(data[start:stop]))
                elif kind == METHOD and data[start : start + 4] == ACK and channel.publishing.awaiting is None:
                    self._performing = _ACKING
                    if self.buffered_publishers:
                        self._flush_held()
                    offset = channel.take_acks(data, offset, following)
                    continue
                else:
                    self._on_channel(kind, channel, bytes(data[start:stop]))
            except BrokerError as error:
                self.refuse(error, channel)
            except MalformedField as error:
                raise FrameError(501, str(error)) from None
            except FrameError:
                raise
            except HoldfastError as error:
                logger.exception("request failed: %s", self.label)
                self.refuse(InternalError(str(error)), channel)
            offset = following  # if a run failed halfway, its channel is closed and the rest of the run is discarded
        self._performing = _NO_METHOD
        return offset

    def _flush_held(self) -> None:
        for other in self.buffered_publishers:
            other.flush()
        self.buffered_publishers.clear()

    def _on_channel(self, kind: int, channel: Channel, payload: bytes) -> None:
        publishing = channel.publishing
        if publishing.awaiting is not None:
            self._performing = _PUBLISHING
        elif kind == METHOD:
            self._performing = m.ids_in(payload)
            self._flush_held()
        if kind == HEADER:
            publishing.header(payload)
        elif kind == BODY:
            self.broker.memory.gathered(len(payload))
            publishing.body(payload)
        elif kind == HEARTBEAT:
            check_heartbeat(channel.number, payload)
        elif publishing.awaiting is not None:
            raise FrameError(
                505, "UNEXPECTED_FRAME - expected content header for class 60, got non content header frame instead"
            )
        elif payload[:4] == _CHANNEL_CLOSE:
            m.decode_method(payload)
            del self.channels[channel.number]
            channel.end()
            self.write(m.method_frame(channel.number, m.ChannelCloseOk()))
        elif payload[:4] == _CHANNEL_OPEN:
            raise FrameError(504, "CHANNEL_ERROR - second 'channel.open' seen")
        else:
            channel.method(payload)

    def _without_channel(self, kind: int, number: int, payload: bytes, closing: Channel | None) -> None:
        if kind == HEARTBEAT:
            check_heartbeat(number, payload)
            return
        if kind == METHOD:
            self._performing = m.ids_in(payload)
        if closing is not None:  # frames that the client sent before it knew of the close
            if kind == METHOD and payload[:4] == _CHANNEL_CLOSE_OK:
                del self.channels[number]
            elif kind == METHOD and payload[:4] == _CHANNEL_CLOSE:  # crossed ours: the answer to ours follows
                self.write(m.method_frame(number, m.ChannelCloseOk()))
            return
        if number == 0:
            if kind != METHOD:
                raise FrameError(505, "content on channel 0")
            self._control(m.decode_method(payload))
            return
        if self._state == "closing":
            return
        if self._state != "open":
            raise FrameError(503, "COMMAND_INVALID - the connection is not open yet")
        if kind == METHOD and payload[:4] == _CHANNEL_OPEN:
            m.decode_method(payload)
            if self.channel_max and len(self.channels) >= self.channel_max:
                raise FrameError(
                    530,
                    f"NOT_ALLOWED - number of channels opened ({len(self.channels)}) has reached the negotiated "
                    f"channel_max ({self.channel_max})",
                )
            self.channels[number] = Channel(self, number)
            self.write(m.method_frame(number, m.ChannelOpenOk()))
        elif kind == METHOD:
            raise FrameError(504, "CHANNEL_ERROR - expected 'channel.open'")
        else:
            raise FrameError(505, "expected method frame, got non method frame instead")

    # Channel 0.

    def _control(self, method: m.Method) -> None:
        if isinstance(method, m.ConnectionCloseOk) and self._state == "closing":
            self._hang_up()
        elif isinstance(method, m.ConnectionClose):
            self._end_channels()
            if self.host is not None:
                self.host.drop_owned_by(self)
            self._send(m.ConnectionCloseOk())
            self._drain()
        elif self._state == "closing":
            return
        elif self._state == "login" and isinstance(method, m.ConnectionStartOk):
            self.client, self.mechanism = dict(method.client_properties), method.mechanism
            self._admitted.expose()
            self.hold("login")
            self._server.run(self._log_in(method))
        elif self._state == "tuning" and isinstance(method, m.ConnectionTuneOk):
            self._tune(method)
        elif self._state == "opening" and isinstance(method, m.ConnectionOpen):
            self._open(method.virtual_host)
        elif self._state == "open" and isinstance(method, m.ConnectionUpdateSecret):
            self._send(m.ConnectionUpdateSecretOk())
        else:
            raise FrameError(504, f"unexpected method in connection state {_STATES.get(self._state, self._state)}")

    async def _log_in(self, method: m.ConnectionStartOk) -> None:
        try:
            user = await self._login.check(method, self._transport)
        except BrokerError as error:
            log_failed_login(error, peer=self.peer, protocol="amqp")
            await asyncio.sleep(self._server.settings.login_delay)  # so that guessing passwords takes time
            self._rest = b""  # input that was sent before authentication is discarded
            if self.understands("authentication_failure_close"):
                self.fail(error)
            else:
                self._hang_up()
            self.release("login")
            return
        if self._state != "login":  # the client disconnected, or was disconnected, meanwhile
            return
        self.user = user
        self._state = "tuning"
        settings = self._server.settings
        self._send(m.ConnectionTune(settings.channel_max, settings.frame_max, settings.heartbeat))
        self.release("login")

    def _tune(self, method: m.ConnectionTuneOk) -> None:
        _check_tune_ok(method, self._server.settings)
        self.frame_max, self.channel_max, self.heartbeat = method.frame_max, method.channel_max, method.heartbeat
        self._state = "opening"
        self._beat()

    def _beat(self) -> None:
        """Send a heartbeat if nothing was sent for half the negotiated interval, and schedule the next check."""
        if not self.heartbeat or self._state not in ("opening", "open"):
            return
        now = self.now()
        if now - self.said >= self.heartbeat / 2:
            self.write(HEARTBEAT_FRAME)
        self._heart = self._server.after(self.said + self.heartbeat / 2 - now, self._beat)

    def _open(self, vhost: str) -> None:
        try:
            host = self.broker.host(vhost)
            self.broker.users.check_vhost(self.user, vhost)
        except BrokerError as error:
            self.fail(error)
            return
        self.host = host
        self._state = "open"
        self.close_by = None
        self._admitted.protect()
        self._send(m.ConnectionOpenOk())
        logger.info("connection accepted: %s", self.label, extra={"user": self.user, "vhost": vhost})

    # Endings.

    def refuse(self, error: BrokerError, channel: Channel | None) -> None:
        """Close the channel or, for an error that AMQP calls hard, the connection."""
        if channel is None or error.closes_connection:
            self.fail(error)
            return
        close = m.ChannelClose(error.code, cut_short(error.text), *self._performing)
        self.write(m.method_frame(channel.number, close))
        channel.end()

    def fail(self, error: BrokerError | FrameError) -> None:
        """Close the connection because of an error of the client or the server."""
        if self._state in ("closing", "closed"):
            return
        text = error.text
        name = m.REPLY_CODES.get(error.code, "")
        if name and not text.startswith(name):
            text = f"{name} - {text}"
        logger.warning("closing connection: %s reason=%s", self.label, text, extra={"user": self.user})
        self._send(m.ConnectionClose(error.code, cut_short(text), *self._performing))
        self._state = "closing"
        self._admitted.expose()
        self.close_by = self.now() + _CLOSE_PATIENCE_S
        self._end_channels()
        if self.host is not None:
            self.host.drop_owned_by(self)

    def _end_channels(self) -> None:
        ending = [channel for channel in self.channels.values() if not channel.closing]
        for channel in ending:
            channel.closing = True  # on all of them, before one passes its messages to another
        for channel in ending:
            try:
                channel.end()
            except Exception:  # the other channels hold messages too
                logger.exception("closing a channel failed: %s channel=%d", self.label, channel.number)
        self.channels.clear()

    def _drain(self) -> None:
        """Discard further input until the client disconnects, or a timeout passes.

        A socket that is closed while bytes arrive is reset: the client's own sending would fail, and it might never
        read our answer.
        """
        self._state = "closed"
        self._admitted.expose()
        self.close_by = self.now() + LEAVE_PATIENCE_S
        self.waits.clear()
        if self._transport is not None:
            self._transport.resume_reading()

    def finish(self) -> None:
        """Disconnect a client that has closed its connection, without waiting any longer."""
        if self._state == "closed":
            self._hang_up()

    def _hang_up(self) -> None:
        self._state = "closed"
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # For the server.

    @property
    def is_overfull(self) -> bool:
        """Whether so many bytes are unread that nothing more can be answered."""
        return self.unsent() > (_UNREAD_MAX if self.broker.memory.blocked is None else _WRITE_HIGH)

    def unsent(self) -> int:
        """Return the number of bytes that the client has yet to read."""
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def _block(self, reason: str) -> None:
        """Stop reading from a client that publishes during a resource alarm. Clients that only ack are not blocked."""
        if self.understands("connection.blocked"):
            self._send(m.ConnectionBlocked(_BLOCKED_BY_REPLICA if reason == "replica" else f"low on {reason}"))
        self.hold("alarm")

    def unblock(self) -> None:
        """Resume reading after a resource alarm."""
        if "alarm" in self.waits:
            if self._state == "open" and self.understands("connection.blocked"):
                self._send(m.ConnectionUnblocked())
            self.release("alarm")


def _check_tune_ok(method: "ConnectionTuneOk", settings: "Settings") -> None:
    """Raise 530 if the client exceeds the offered limits, or its frames are too small to hold anything."""
    if method.frame_max and method.frame_max < FRAME_MIN:
        raise FrameError(530, f"NOT_ALLOWED - negotiated frame_max = {method.frame_max} is lower than {FRAME_MIN}")
    if settings.frame_max and (method.frame_max > settings.frame_max or method.frame_max == 0):
        raise FrameError(
            530,
            f"NOT_ALLOWED - negotiated frame_max = {method.frame_max} is higher than the maximum allowed "
            f"value ({settings.frame_max})",
        )
    if settings.channel_max and (method.channel_max > settings.channel_max or method.channel_max == 0):
        raise FrameError(
            530,
            f"NOT_ALLOWED - negotiated channel_max = {method.channel_max} is higher than the maximum "
            f"allowed value ({settings.channel_max})",
        )
