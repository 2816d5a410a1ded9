"""HTTP connections: how many may be open, in all and from one address, and how long a request may take to arrive.

Whoever opens connections and sends half a request needs no login, and each connection takes a file descriptor that AMQP
clients and the store need as well. uvicorn has no limit for either, so a protocol of our own stands before its own.
"""

import asyncio
import contextlib
import ipaddress
import logging
import resource
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["Connections", "connections_allowed"]

logger = logging.getLogger("holdfast.web")

_SHARE = 4
_MOST, _LEAST = 1000, 8
_PREFIX_V6 = 64
_LOG_EVERY_S = 10.0
_BUSY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 10\r\n"
    b"Connection: close\r\nContent-Length: %d\r\n\r\n%s"
)
_REASON = b'{"error":"busy","reason":"too many HTTP connections are open: close some, or raise http_connections"}'
Key = tuple[tuple[str, int], tuple[str, int]]
"""Both ends of a connection."""


def connections_allowed(wanted: int, per_address: int) -> tuple[int, int]:
    """How many connections may be open in all, and from one address; 0 asks for a share of the process's open files.

    A quarter is for HTTP: the rest stays for AMQP clients and the store.
    """
    if not wanted:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = _MOST if soft == resource.RLIM_INFINITY else max(_LEAST, min(_MOST, soft // _SHARE))
    return wanted, per_address or max(1, wanted // 2)


class Connections:
    """The open HTTP connections of all listeners. Used by the web's event loop alone."""

    def __init__(self, most: int, per_address: int, header_timeout_s: float) -> None:
        self.most = most
        self.per_address = per_address
        self.header_timeout_s = header_timeout_s
        self.refused = self.timed_out = 0
        self._open: dict[Key, _Guarded] = {}
        self._by_address: Counter[str] = Counter()
        self._logged = -_LOG_EVERY_S

    def __len__(self) -> int:
        return len(self._open)

    def guard(self, protocol: Callable[..., asyncio.Protocol]) -> Callable[..., asyncio.Protocol]:
        """The same protocol, behind these limits."""
        return lambda **arguments: _Guarded(self, protocol(**arguments))

    def watch(self, app: ASGIApp) -> ASGIApp:
        """The same application; while it works on a request, its connection is not waited for."""

        async def watched(scope: Scope, receive: Receive, send: Send) -> None:
            client, server = scope.get("client"), scope.get("server")
            known = self._open.get((tuple(client), tuple(server))) if client and server else None
            if known is None:
                await app(scope, receive, send)
                return
            known.begin()
            try:
                await app(scope, receive, send)
            finally:
                known.end()

        return watched

    def admit(self, guarded: "_Guarded", key: Key) -> bool:
        """Whether one more connection may be open."""
        address = _group(key[0][0])
        if len(self._open) >= self.most or self._by_address[address] >= self.per_address:
            self.refused += 1
            self._log("refused", key, "too-many-connections")
            return False
        self._open[key] = guarded
        self._by_address[address] += 1
        return True

    def leave(self, key: Key) -> None:
        """A connection was closed."""
        if self._open.pop(key, None) is not None:
            address = _group(key[0][0])
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def late(self, key: Key) -> None:
        """A request did not arrive in time, and its connection is closed."""
        self.timed_out += 1
        self._log("closed", key, "request-headers-late")

    def _log(self, what: str, key: Key, reason: str) -> None:
        """One line in ten seconds: there may be thousands."""
        now = time.monotonic()
        if now - self._logged >= _LOG_EVERY_S:
            self._logged = now
            logger.warning(
                "http connection %s: peer=%s:%d reason=%s open=%d refused=%d timed_out=%d",
                what, *key[0], reason, len(self._open), self.refused, self.timed_out,
            )  # fmt: skip


class _Guarded(asyncio.Protocol):
    """Stands between a transport and uvicorn's protocol.

    Invariant: while no request is worked on, and something is expected, `_timer` runs.
    """

    def __init__(self, connections: Connections, inner: asyncio.Protocol) -> None:
        self._connections = connections
        self._inner = inner
        self._transport: asyncio.Transport | None = None
        self._key: Key | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._working = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        key = (_end(transport, "peername"), _end(transport, "sockname"))
        if not self._connections.admit(self, key):
            transport.write(_BUSY % (len(_REASON), _REASON))
            transport.close()
            return
        self._key = key
        self._expect()
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._key is not None:
            if not self._working:
                self._expect()
            self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received() if self._key is not None else None

    def connection_lost(self, error: Exception | None) -> None:
        self._stop_timer()
        if self._key is not None:
            self._connections.leave(self._key)
            self._inner.connection_lost(error)

    def pause_writing(self) -> None:
        if self._key is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        if self._key is not None:
            self._inner.resume_writing()

    def begin(self) -> None:
        """A request has arrived as far as its headers."""
        self._working += 1
        self._stop_timer()

    def end(self) -> None:
        """It is answered. uvicorn closes connections on which nothing comes; on others the next request must."""
        self._working -= 1

    def _expect(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._connections.header_timeout_s, self._give_up)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self._transport is not None and self._key is not None and not self._working:
            self._connections.late(self._key)
            self._transport.abort()


def _end(transport: Any, which: str) -> tuple[str, int]:
    found = transport.get_extra_info(which)
    return (str(found[0]), int(found[1])) if isinstance(found, tuple) else ("", 0)


def _group(address: str) -> str:
    """Whom an address belongs to: of IPv6 a whole network, as each host has as many addresses as it likes."""
    with contextlib.suppress(ValueError):
        found = ipaddress.ip_address(address.partition("%")[0])
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
            return str(ipaddress.ip_network((found, _PREFIX_V6), strict=False))
    return address
