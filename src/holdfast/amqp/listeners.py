"""Listening sockets for a list of addresses, all on one port."""

import errno
import socket
from collections.abc import Sequence
from typing import Any

__all__ = ["addresses_in", "listen_on", "shown", "usable"]

_LOOPBACK_6 = "::1"
_ANY_4, _ANY_6 = "0.0.0.0", "::"
_ATTEMPTS = 20
"""Attempts to find a port that is free on all addresses."""
Found = tuple[int, tuple[Any, ...]]
"""The family of a socket, and the address that it is bound to."""
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT)


def addresses_in(text: str) -> list[str]:
    """Return the addresses in a comma-separated text, each once, in their order."""
    return list(dict.fromkeys(filter(None, (one.strip().strip("[]") for one in text.split(",")))))


def usable(hosts: Sequence[str]) -> list[str]:
    """Return the addresses without `::1` where it is one of several and this machine has no IPv6."""
    if _LOOPBACK_6 not in hosts or len(hosts) == 1 or _has_ipv6():
        return list(hosts)
    return [host for host in hosts if host != _LOOPBACK_6]


def listen_on(hosts: Sequence[str], port: int, backlog: int) -> list[socket.socket]:
    """Return sockets that listen on all these addresses, on one port. Port 0 takes one that is free on all of them.

    `::` serves IPv4 as well, unless `0.0.0.0` is in the list. An address that `::` or `0.0.0.0` of the same list serves
    gets no socket of its own. Raises OSError, and leaves nothing open.
    """
    hosts = usable(hosts)
    for attempt in range(_ATTEMPTS):
        sockets: list[socket.socket] = []
        wanted = _uncovered([found for host in hosts for found in _resolved(host, port)])
        both = all(address[0] != _ANY_4 for _, address in wanted)
        try:
            for family, address in wanted:
                chosen = sockets[0].getsockname()[1] if sockets else port
                sockets.append(_listening(family, (address[0], chosen, *address[2:]), backlog, both=both))
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
    """Return host and port as they are written in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _resolved(host: str, port: int) -> list[Found]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return [(family, address) for family, _, _, _, address in found]


def _uncovered(found: list[Found]) -> list[Found]:
    """Return each address once, without those that a wildcard address in the list serves."""
    every = {address[0] for _, address in found} & {_ANY_4, _ANY_6}
    served = {socket.AF_INET6: _ANY_6 in every, socket.AF_INET: bool(every)}
    once = {(family, *address[:2]): (family, address) for family, address in reversed(found)}
    return [
        (family, address)
        for family, address in reversed(once.values())
        if address[0] in every or not served[socket.AddressFamily(family)]
    ]


def _listening(family: int, address: tuple[Any, ...], backlog: int, *, both: bool) -> socket.socket:
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
