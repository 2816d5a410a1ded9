"""Buffered transport between a client's socket and pycapnp: few system calls, and safe disconnects.

pycapnp reads a message in small pieces, each of which costs three system calls, writes each answer separately, and ends
the process when a client disconnects at a moment in which it does not read. So it does not get the socket: this
transport reads as much as there is, passes it on when pycapnp reads, collects answers, and reports a disconnect in the
one form that is safe at any time.
"""

import asyncio
import ipaddress
from typing import Any

from holdfast.amqp.admission import Admitted

__all__ = ["Transport"]

_INBOX_MAX = 1 << 18
"""Bytes that are read before Cap'n Proto asks for them."""
_READ_BYTES = 1 << 16


class Transport(asyncio.BufferedProtocol):
    """One client's connection: a protocol for asyncio, and a transport for pycapnp's own protocol, `inner`."""

    inner: Any

    def __init__(self, admitted: Admitted, login_timeout_s: float) -> None:
        self._admitted = admitted
        self._login_timeout_s = login_timeout_s
        self._login_timer: asyncio.TimerHandle | None = None
        self.peer = ""
        self.is_loopback = False
        self._transport: Any = None
        self._buffer = bytearray(_READ_BYTES)
        self._inbox = bytearray()
        self._outbox: list[bytes] = []
        self._wanted = False
        """Whether Cap'n Proto waits for bytes."""
        self._held = False
        """Whether it must not get any, because too many bytes of this client are in progress."""
        self._paused = False
        self._lost = False

    def hold(self, held: bool) -> None:
        """Stop or resume reading from this client."""
        if held != self._held:
            self._held = held
            if not held:
                asyncio.get_running_loop().call_soon(self._hand_on)
            self._pace()

    def begin_login(self) -> None:
        """Note that the client tries to log in: connections that have sent nothing are closed before it."""
        self._admitted.expose()

    def keep(self) -> None:
        """Stop the login timeout: the client has logged in, or may call Queueber's methods without a login."""
        self._stop_login_timer()
        self._admitted.protect()

    # As a protocol.

    def connection_made(self, transport: Any) -> None:
        """Start to serve a new client."""
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self.peer = f"{peer[0]}:{peer[1]}" if peer else "?"
        self.is_loopback = bool(peer) and _is_loopback(peer[0])
        left_s = self._admitted.left_of(self._login_timeout_s)
        self._login_timer = asyncio.get_running_loop().call_later(left_s, self._admitted.late, "login-late")
        self.inner.connection_made(self)
        self._admitted.attach(transport.abort)

    def get_buffer(self, sizehint: int) -> bytearray:
        """Return the buffer for the next bytes."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Pass received bytes on to pycapnp, as far as it reads."""
        self._inbox += memoryview(self._buffer)[:nbytes]
        self._hand_on()
        self._pace()

    def eof_received(self) -> bool:
        """Handle a disconnect by the client."""
        self._end("the client disconnected")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Release the connection, and report its end to pycapnp."""
        self._stop_login_timer()
        self._admitted.release()
        self._end(str(exc or "the connection is closed"))

    def pause_writing(self) -> None:
        """Pause pycapnp's writes: the client does not read its responses."""
        self.inner.pause_writing()

    def resume_writing(self) -> None:
        """Resume pycapnp's writes."""
        if not self._lost:
            self.inner.resume_writing()

    # As a transport.

    def pause_reading(self) -> None:
        """Stop passing bytes to pycapnp."""
        self._wanted = False

    def resume_reading(self) -> None:
        """Resume passing bytes to pycapnp."""
        self._wanted = True
        self._hand_on()
        self._pace()

    def write(self, data: bytes) -> None:
        """Queue data; all data of one loop iteration is sent together."""
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outbox.append(data)

    def is_closing(self) -> bool:
        """Whether nothing more can be sent."""
        return self._lost or self._transport.is_closing()

    def can_write_eof(self) -> bool:
        """Return False: half-closing is not supported."""
        return False

    def close(self) -> None:
        """Send queued data, and close the connection."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    # Between the two.

    def _hand_on(self) -> None:
        while self._wanted and self._inbox and not (self._held or self._lost):
            buffer = self.inner.get_buffer(-1)
            count = min(len(buffer), len(self._inbox))
            buffer[:count] = self._inbox[:count]
            buffer.release()
            del self._inbox[:count]
            self.inner.buffer_updated(count)  # which sets `_wanted` again

    def _pace(self) -> None:
        paused = self._held or len(self._inbox) >= _INBOX_MAX
        if paused != self._paused and not self.is_closing():
            self._paused = paused
            if paused:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    def _flush(self) -> None:
        if self._outbox:
            data = b"".join(self._outbox)
            self._outbox.clear()
            if not self._lost:
                self._transport.write(data)

    def _stop_login_timer(self) -> None:
        if self._login_timer is not None:
            self._login_timer.cancel()
            self._login_timer = None

    def _end(self, reason: str) -> None:
        if not self._lost:
            self._lost = True
            self._wanted = False
            self._inbox.clear()
            self._outbox.clear()
            # Not `eof_received`: pycapnp follows a null pointer when it reads again after that.
            self.inner.connection_lost(ConnectionResetError(reason))


def _is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return (getattr(found, "ipv4_mapped", None) or found).is_loopback
