"""Admission of connections: limits on open connections, counted from the moment at which they are accepted.

A client that connects and sends nothing needs no login, but takes a file descriptor that other clients and the store
need. asyncio calls a TLS protocol only after the handshake, so protocols cannot count connections themselves.
"""

import contextlib
import ipaddress
import logging
import time
from collections import Counter
from collections.abc import Callable

__all__ = ["Admission", "Admitted"]

logger = logging.getLogger("holdfast.listener")

_PREFIX_V6 = 64
_LOG_EVERY_S = 10.0
Exposed = dict[str, "dict[Admitted, None]"]
"""Connections by the network that their client is in, the oldest first."""


class Admission:
    """The open connections of one protocol, of all its listeners. Used by one event loop alone.

    Invariant: at most `most` connections are open, and at most `per_address` from one address. If one more would
    exceed that, an unprotected connection is closed for it: one without a login, or without a request in progress.
    Connections that have sent nothing are closed first; of these, one of the address with the most, the oldest first.
    So silent connections cannot lock other clients out.
    """

    def __init__(self, protocol: str, most: int, per_address: int | None = None) -> None:
        self.protocol = protocol
        self.most = most
        self.per_address = most if per_address is None else per_address
        self.refused = self.displaced = self.timed_out = 0
        self._open: set[Admitted] = set()
        self._by_address: Counter[str] = Counter()
        self._exposed: tuple[Exposed, Exposed] = {}, {}
        """Connections that may be closed to make space: those that have sent nothing, and the others."""
        self._logged_at = -_LOG_EVERY_S

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, host: str, port: int) -> "Admitted | None":
        """Return a new counted connection, or None if no space can be made for it."""
        admitted = Admitted(self, f"{host}:{port}", _network(host))
        if not self._has_capacity(admitted.network):
            self.refused += 1
            self.log("refused", admitted.peer, "too-many-connections")
            return None
        self._open.add(admitted)
        self._by_address[admitted.network] += 1
        self.expose(admitted, silent=True)
        return admitted

    def release(self, admitted: "Admitted") -> None:
        """Stop counting a connection. Idempotent."""
        if admitted in self._open:
            self.protect(admitted)
            self._open.discard(admitted)
            self._by_address[admitted.network] -= 1
            if not self._by_address[admitted.network]:
                del self._by_address[admitted.network]

    def protect(self, admitted: "Admitted") -> None:
        """Remove a connection from those that may be closed to make space."""
        for rank in self._exposed:
            exposed = rank.get(admitted.network, {})
            exposed.pop(admitted, None)
            if not exposed:
                rank.pop(admitted.network, None)

    def expose(self, admitted: "Admitted", *, silent: bool) -> None:
        """Allow a connection to be closed to make space; silent ones are closed first."""
        self.protect(admitted)
        if admitted in self._open:
            self._exposed[not silent].setdefault(admitted.network, {})[admitted] = None

    def late(self, admitted: "Admitted", reason: str) -> None:
        """Count and log a client that took too long, and end its connection."""
        self.timed_out += 1
        self.log("closed", admitted.peer, reason)
        admitted.end()

    def log(self, what: str, peer: str, reason: str) -> None:
        """Log a line, at most one in ten seconds: there may be thousands of connections."""
        now = time.monotonic()
        if now - self._logged_at >= _LOG_EVERY_S:
            self._logged_at = now
            logger.warning(
                "connection %s: protocol=%s peer=%s reason=%s open=%d refused=%d displaced=%d timed_out=%d",
                what, self.protocol, peer, reason, len(self._open), self.refused, self.displaced, self.timed_out,
            )  # fmt: skip

    def _has_capacity(self, network: str) -> bool:
        """Return whether there is space for a connection from this network; close another one if necessary."""
        if self._by_address[network] >= self.per_address:
            return self._displace([rank.get(network) for rank in self._exposed])
        if len(self._open) >= self.most:
            return self._displace([max(rank.values(), key=len, default=None) for rank in self._exposed])
        return True

    def _displace(self, choice: "list[dict[Admitted, None] | None]") -> bool:
        """Close the oldest connection of the first group that is not empty; return whether there was one."""
        oldest = next((next(iter(one)) for one in choice if one), None)
        if oldest is None:
            return False
        self.displaced += 1
        self.log("closed", oldest.peer, "displaced")
        self.release(oldest)
        oldest.end()
        return True


class Admitted:
    """One counted connection. It may be closed to make space, until it is protected."""

    def __init__(self, admission: Admission, peer: str, network: str) -> None:
        self._admission = admission
        self.peer = peer
        self.network = network
        """The IPv4 address or IPv6 /64 network of its client, by which connections are counted."""
        self.accepted_at = time.monotonic()
        self._close: Callable[[], object] | None = None
        self._ended = False

    def attach(self, close: Callable[[], object]) -> None:
        """Set the function that closes the connection at once; call it now if `end` was called before."""
        self._close = close
        if self._ended:
            close()

    def end(self) -> None:
        """Close the connection at once."""
        self._ended = True
        if self._close is not None:
            self._close()

    def late(self, reason: str) -> None:
        """End the connection of a client that took too long."""
        self._admission.late(self, reason)

    def left_of(self, seconds: float) -> float:
        """Return how much is left of a time that began when the connection was accepted."""
        return max(0.0, self.accepted_at + seconds - time.monotonic())

    def protect(self) -> None:
        """Exclude the connection from being closed to make space: it has logged in, or is working."""
        self._admission.protect(self)

    def expose(self) -> None:
        """Allow the connection to be closed to make space, after those that have sent nothing."""
        self._admission.expose(self, silent=False)

    def release(self) -> None:
        """Stop counting the connection: it is closed. Idempotent."""
        self._admission.release(self)


def _network(address: str) -> str:
    """Return the address or, for IPv6, its /64 network: one host may use all addresses of it."""
    with contextlib.suppress(ValueError):
        found = ipaddress.ip_address(address.partition("%")[0])
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
            return str(ipaddress.ip_network((found, _PREFIX_V6), strict=False))
    return address
