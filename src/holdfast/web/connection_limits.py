"""HTTP connections: how long a request may take to arrive, and an answer to be read.

uvicorn has no limit for either, so a protocol of our own wraps its protocol. A client that sends half a request, or
never reads the answer, can do so without a login.
"""

import asyncio
import contextlib
import fcntl
import struct
import termios
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.amqp.admission import Admission, Admitted

__all__ = ["BUSY", "Connections"]

_REASON = b'{"error":"busy","reason":"too many HTTP connections are open: close some, or raise http_connections"}'
BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 10\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(_REASON), _REASON)
)
"""The response to a connection above the limit."""
_LEAST_RATE = 1024
"""Bytes a second: a client that sends a body, or reads a response, more slowly counts as stalled."""
_LOOK_S = 1.0
Key = tuple[tuple[str, int], tuple[str, int]]
"""Both ends of a connection."""


class Connections:
    """The open HTTP connections of all listeners. Used by the web's event loop alone.

    Invariant: while a connection is open, `_look` is scheduled.
    """

    def __init__(self, admission: Admission, header_timeout_s: float, stall_timeout_s: float) -> None:
        self.admission = admission
        self.header_timeout_s = header_timeout_s
        self.stall_timeout_s = stall_timeout_s
        self._open: dict[Key, _Guarded] = {}
        self._looks: asyncio.TimerHandle | None = None

    def guard(self, protocol: asyncio.Protocol, admitted: Admitted) -> asyncio.Protocol:
        """Return the protocol of a new connection, wrapped so that these limits apply to it."""
        return _Guarded(self, protocol, admitted)

    def watch(self, app: ASGIApp) -> ASGIApp:
        """Return the application, wrapped so that each request is reported to its connection.

        While the application works on a request, the timeout for request headers is off, and the connection is not
        closed to make space for others. The body must arrive, and the answer be read, at the least rate: else the
        connection is dropped. A request whose connection is not known is passed on unchanged.
        """

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            client, server = scope.get("client"), scope.get("server")
            known = self._open.get((tuple(client), tuple(server))) if client and server else None
            if known is None:
                await app(scope, receive, send)
                return
            body = _Body(known, receive, self.stall_timeout_s)
            known.begin()
            try:
                await app(scope, body.receive, known.counting(send))
            finally:
                known.end()

        return watched

    def joined(self, key: Key, guarded: "_Guarded") -> None:
        """Register a new connection, and start the periodic check if it is not running."""
        self._open[key] = guarded
        if self._looks is None:
            self._looks = asyncio.get_running_loop().call_later(self._pause_s, self._look)

    def left(self, key: Key) -> None:
        """Unregister a closed connection."""
        self._open.pop(key, None)

    @property
    def _pause_s(self) -> float:
        return min(_LOOK_S, self.stall_timeout_s / 4)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        for one in list(self._open.values()):
            one.look(loop.time())
        self._looks = loop.call_later(self._pause_s, self._look) if self._open else None


class _Guarded(asyncio.Protocol):
    """Wraps uvicorn's protocol of one connection.

    Invariant: while no request is being processed, and one is expected, `_timer` runs.
    """

    def __init__(self, connections: Connections, inner: asyncio.Protocol, admitted: Admitted) -> None:
        self._connections = connections
        self._inner = inner
        self._admitted = admitted
        self._transport: Any = None
        self._key: Key = ("", 0), ("", 0)
        self._timer: asyncio.TimerHandle | None = None
        self._working = 0
        self._written = 0
        """Bytes of the bodies that were answered."""
        self._stalled: tuple[float, int] | None = None
        """Since when the client reads too slowly, and how much it had read then."""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._key = _end(transport, "peername"), _end(transport, "sockname")
        self._connections.joined(self._key, self)
        self._expect(self._admitted.left_of(self._connections.header_timeout_s))
        self._inner.connection_made(transport)
        self._admitted.attach(transport.abort)

    def data_received(self, data: bytes) -> None:
        if not self._working:
            self._expect(self._connections.header_timeout_s)
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_timer()
        self._connections.left(self._key)
        self._admitted.release()
        self._inner.connection_lost(error)

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def begin(self) -> None:
        """Stop the header timer and protect the connection: a request is being processed."""
        self._working += 1
        self._admitted.protect()
        self._stop_timer()

    def end(self) -> None:
        """Note that a request is answered; after the last one the connection may be closed for others.

        uvicorn closes idle connections. The timer starts again with the first bytes of the next request.
        """
        self._working -= 1
        if not self._working:
            self._admitted.expose()

    def counting(self, send: Send) -> Send:
        """Return `send`, wrapped so that it counts the bytes of the answer's body."""

        async def counted(message: Message) -> None:
            self._written += len(message.get("body", b""))
            await send(message)

        return counted

    def look(self, now: float) -> None:
        """Drop a client that reads too slowly, also after uvicorn has closed the transport. Called each second."""
        unsent = self._transport.get_write_buffer_size()
        read = self._written - unsent - _unread_in(self._transport)
        timeout_s = self._connections.stall_timeout_s
        if not unsent:
            self._stalled = None
        elif self._stalled is None or read - self._stalled[1] >= _LEAST_RATE * timeout_s:
            self._stalled = now, read
        elif now - self._stalled[0] >= timeout_s:
            self.drop("answer-not-read")

    def drop(self, reason: str) -> None:
        """Abort the connection of a client that takes too long; count and log it."""
        self._admitted.late(reason)

    def _expect(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._time_out)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        self._timer = None
        if not self._working:
            self.drop("request-headers-late")


class _Body:
    """The body of one request, and the time that its client may still take to send it.

    Time counts only while the application waits for the body. Each KiB that comes adds a second, up to the timeout.
    """

    def __init__(self, guarded: _Guarded, receive: Receive, timeout_s: float) -> None:
        self._guarded = guarded
        self._receive = receive
        self._timeout_s = self._left_s = timeout_s
        self._ended = False

    async def receive(self) -> Message:
        """Return the next part of the body; drop the connection if it takes too long."""
        if self._ended:  # the only event to wait for is the end of the connection
            return await self._receive()
        loop = asyncio.get_running_loop()
        began = loop.time()
        timer = loop.call_later(max(0.0, self._left_s), self._guarded.drop, "request-body-late")
        try:
            message = await self._receive()
        finally:
            timer.cancel()
        earned_s = len(message.get("body", b"")) / _LEAST_RATE
        self._left_s = min(self._timeout_s, self._left_s - (loop.time() - began) + earned_s)
        self._ended = not message.get("more_body", False)
        return message


def _end(transport: Any, which: str) -> tuple[str, int]:
    found = transport.get_extra_info(which)
    return (str(found[0]), int(found[1])) if isinstance(found, tuple) else ("", 0)


def _unread_in(transport: Any) -> int:
    """Return how many bytes the system holds that the client has not acknowledged; 0 if that is unknown."""
    found = transport.get_extra_info("socket")
    if found is None:  # a closed TLS transport of uvloop has none
        return 0
    with contextlib.suppress(OSError, ValueError):
        return int(struct.unpack("i", fcntl.ioctl(found.fileno(), termios.TIOCOUTQ, bytes(4)))[0])
    return 0
