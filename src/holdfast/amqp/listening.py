"""Listening sockets for a list of addresses, all on one port."""

import errno
import socket
from collections.abc import Sequence

__all__ = ["addresses_in", "listen_on", "shown", "usable"]

_LOOPBACK_6 = "::1"
_ANY_4, _ANY_6 = "0.0.0.0", "::"
_ATTEMPTS = 20
"""How often a free port is looked for that is free on all addresses."""
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)


def addresses_in(text: str) -> list[str]:
    """Return the addresses in a text with commas, each once, in their order."""
    return list(dict.fromkeys(filter(None, (one.strip().strip("[]") for one in text.split(",")))))


def usable(hosts: Sequence[str]) -> list[str]:
    """Return the addresses without `::1` where it is one of several and this machine has no IPv6."""
    if _LOOPBACK_6 not in hosts or len(hosts) == 1 or _has_ipv6():
        return list(hosts)
    return [host for host in hosts if host != _LOOPBACK_6]


def listen_on(hosts: Sequence[str], port: int, backlog: int) -> list[socket.socket]:
    """Return sockets that listen on all these addresses, on one port. Port 0 takes one that is free on all of them.

    `::` serves IPv4 as well, unless `0.0.0.0` is in the list. Raises OSError, and leaves nothing open.
    """
    hosts = usable(hosts)
    for attempt in range(_ATTEMPTS):
        sockets: list[socket.socket] = []
        try:
            for host in hosts:
                for family, address in _resolved(host, sockets[0].getsockname()[1] if sockets else port):
                    if all(one.getsockname()[:2] != address[:2] for one in sockets):
                        sockets.append(_listening(family, address, backlog, both=_ANY_4 not in hosts))
        except OSError as error:
            for one in sockets:
                one.close()
            taken_elsewhere = not port and sockets and error.errno == errno.EADDRINUSE
            if not taken_elsewhere or attempt == _ATTEMPTS - 1:
                raise
        else:
            return sockets
    raise AssertionError("the last attempt returns or raises")


def shown(host: str, port: int) -> str:
    """Return host and port as they stand in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _resolved(host: str, port: int) -> list[tuple[int, tuple[str, int]]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return [(family, address) for family, _, _, _, address in found]  # type: ignore[misc]


def _listening(family: int, address: tuple[str, int], backlog: int, *, both: bool) -> socket.socket:
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            both = both and address[0] == _ANY_6
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if both else 1)
        listening.bind(address)
        listening.listen(backlog)
        listening.setblocking(False)
    except BaseException:
        listening.close()
        raise
    return listening


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind((_LOOPBACK_6, 0))
    except OSError as error:
        if error.errno in _NO_IPV6:
            return False
        raise
    return True
