"""AMQP authentication: PLAIN and AMQPLAIN with a password, EXTERNAL with a client certificate."""

import asyncio
import ipaddress
import platform
from typing import TYPE_CHECKING, Any

from holdfast.amqp import methods as m
from holdfast.broker.amqp_values import MalformedField, decode_table
from holdfast.broker.users import login_refused

if TYPE_CHECKING:
    from holdfast.amqp.connection import Connection

__all__ = ["Login", "is_loopback"]

LIKE_RABBITMQ = "3.13.7"
"""The version of RabbitMQ whose behaviour clients may expect."""
_CAPABILITIES = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)


class Login:
    """The authentication step of a connection."""

    def __init__(self, connection: "Connection") -> None:
        self._connection = connection

    def greeting(self) -> m.ConnectionStart:
        """Return connection.start with the server's properties and mechanisms."""
        from holdfast import __version__  # noqa: PLC0415 - the package imports its parts lazily

        properties: dict[str, Any] = {
            "capabilities": dict.fromkeys(_CAPABILITIES, True),
            "cluster_name": "holdfast",
            # Clients derive from it what a broker supports beyond the standard: kombu changes the prefetch of a
            # running consumer unless it reads this very name.
            "product": "RabbitMQ",
            "version": LIKE_RABBITMQ,
            "platform": f"Holdfast {__version__}, Python {platform.python_version()}",
            "information": "Holdfast speaks AMQP 0-9-1 with RabbitMQ's extensions",
        }
        # Announce EXTERNAL only if it can work: py-amqp prefers it to a password that it was given.
        external = b" EXTERNAL" if self._connection.extra("peercert") else b""
        return m.ConnectionStart(0, 9, properties, b"PLAIN AMQPLAIN" + external, b"en_US")

    async def check(self, method: m.ConnectionStartOk, transport: asyncio.Transport | None) -> str:
        """Return the name of the authenticated user, or raise 403."""
        users = self._connection.broker.users
        loopback = is_loopback(self._connection.peer)
        if method.mechanism == "EXTERNAL":
            certificate = transport.get_extra_info("peercert") if transport is not None else None
            return users.external(_common_name(certificate), loopback).name
        if method.mechanism == "PLAIN":
            name, password = _plain(method.response)
        elif method.mechanism == "AMQPLAIN":
            name, password = _amqplain(method.response)
        else:
            raise login_refused("", "unknown-mechanism", f"unknown authentication mechanism '{method.mechanism}'")
        loop = asyncio.get_running_loop()
        user = await loop.run_in_executor(None, users.authenticate, name, password, loopback)
        return user.name


def _plain(response: bytes) -> tuple[str, str]:
    parts = response.split(b"\0")
    if len(parts) != 3 or parts[0]:  # an authorization identity is not supported
        raise login_refused("", "malformed", "response in PLAIN must be of the form NUL user NUL password")
    return parts[1].decode("utf-8", "replace"), parts[2].decode("utf-8", "replace")


def _amqplain(response: bytes) -> tuple[str, str]:
    try:
        table, _ = decode_table(len(response).to_bytes(4, "big") + response, 0)
        return str(table["LOGIN"]), str(table["PASSWORD"])
    except (MalformedField, KeyError):
        raise login_refused("", "malformed", "AMQPLAIN auth info must be a table with LOGIN and PASSWORD") from None


def _common_name(certificate: Any) -> str:
    for part in (certificate or {}).get("subject", ()):
        for name, value in part:
            if name == "commonName":
                return str(value)
    text = "EXTERNAL needs a client certificate that the server trusts, with a common name"
    raise login_refused("", "no-certificate", text)


def is_loopback(peer: Any) -> bool:
    """Whether a client is on this machine."""
    if not isinstance(peer, tuple):
        return True  # a Unix socket
    try:
        address = ipaddress.ip_address(str(peer[0]).split("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
