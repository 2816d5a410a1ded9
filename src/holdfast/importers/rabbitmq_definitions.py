"""RabbitMQ definitions, from its management API or a file, and the selection of those that can be imported."""

import json
import re
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from holdfast import remote
from holdfast.amqp.client import Address
from holdfast.base.errors import HoldfastError, InvalidArgument
from holdfast.broker.queue_arguments import queue_settings
from holdfast.broker.topology import ExchangeDefinition, check_exchange
from holdfast.broker.users import imported_hash
from holdfast.remote.http_client import HttpClient

__all__ = [
    "UNKNOWN_TYPE",
    "Fitting",
    "Management",
    "Unreachable",
    "fitting",
    "guessed_management",
    "parse_definitions",
    "queue_type",
]

SERVER_NAMED = "amq."
"""Prefix of the names that RabbitMQ generates for queues."""
UNKNOWN_TYPE = "unknown"
"""The type of a queue of which only the name is known."""
_IN_HOST = ("queues", "exchanges", "bindings", "permissions")
_NOT_KNOWN = {
    "policies": "policies",
    "topic_permissions": "topic permissions",
    "parameters": "parameters (shovels, federation)",
}
_PATIENCE_S = 10.0


class Unreachable(HoldfastError):
    """The management API cannot be reached, or rejects this user."""


def guessed_management(address: Address) -> str:
    """Return the likely URL of a broker's management API; with TLS if the broker uses TLS."""
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"https://{host}:15671" if address.secure else f"http://{host}:15672"


class Management:
    """Read-only client of the management API of a RabbitMQ server."""

    def __init__(self, url: str, user: str, password: str, tls: ssl.SSLContext | None = None) -> None:
        """Make a client; a user and password in the URL take precedence."""
        address = remote.Address.parse(url)
        if urlsplit(url).username is None:
            address = replace(address, user=user, password=password)
        self._address, self._tls = address, tls
        self.url = str(address)
        """The URL without user and password, for messages."""

    def definitions(self) -> dict[str, Any]:
        """Return all definitions; raise `Unreachable` if the API cannot be read."""
        found = self._get("/api/definitions")
        if not isinstance(found, dict):
            raise Unreachable(f"the server at {self.url} is not a management API of RabbitMQ")
        return found

    def queues(self) -> list[dict[str, Any]]:
        """Return all queues that exist now, also those without a definition."""
        found = self._get("/api/queues")
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    def _get(self, path: str) -> Any:
        wire = HttpClient(self._address, _PATIENCE_S, self._tls)
        try:
            return wire.get(path)
        except remote.Refused as error:
            text = f"the management API at {self.url} rejects this user: use one with the tag administrator"
            raise Unreachable(text) from error
        except remote.Unreachable as error:
            reason = getattr(error.__cause__, "strerror", None) or error.__cause__
            raise Unreachable(f"the management API at {self.url} cannot be reached: {reason}") from error
        except HoldfastError as error:
            raise Unreachable(f"the server at {self.url} is not a management API: {error}") from error
        finally:
            wire.close()


def parse_definitions(content: bytes, name: str) -> dict[str, Any]:
    """Parse the output of `rabbitmqctl export_definitions` or `holdfast definitions export`, read from file `name`."""
    try:
        document = json.loads(content)
    except ValueError as error:
        raise InvalidArgument(f"{name!r} is not JSON, as export_definitions writes it: {error}") from error
    if not isinstance(document, dict):
        raise InvalidArgument(f"{name!r} is not a JSON object, as export_definitions writes it")
    return document


@dataclass(frozen=True, slots=True)
class Fitting:
    """The definitions that can be imported, and notes on those that cannot."""

    document: dict[str, Any]
    left_out: list[str] = field(default_factory=list)
    """Definitions that are left out, each with the reason."""


def fitting(document: Mapping[str, Any], vhost: str | None = None) -> Fitting:
    """Return the definitions that can be imported; with a virtual host, only of that one.

    One exchange of a plug-in's type must not fail a whole import: unsupported definitions are left out and reported;
    bindings that refer to them are left out. Queues and exchanges that are not durable would not survive a restart, so
    they are left out too.
    """
    left: list[str] = []
    every = {kind: _listed(document, kind) for kind in ("vhosts", "users", *_IN_HOST)}
    for kind in _IN_HOST:  # an export of one virtual host does not contain its name
        every[kind] = [{"vhost": vhost or "/"} | one for one in every[kind]]
    names = {one["vhost"] for kind in _IN_HOST for one in every[kind]}
    hosts = {str(one.get("name")) for one in every["vhosts"]} or names
    hosts = hosts if vhost is None else {vhost}

    def kept(kind: str, what: str, check: Callable[[dict[str, Any]], str | None]) -> list[dict[str, Any]]:
        good = []
        for one in every[kind]:
            if one.get("vhost", vhost) not in hosts and kind != "users":
                continue
            try:
                reason = check(one)
            except (HoldfastError, KeyError, TypeError, ValueError, AttributeError, re.error) as error:
                reason = f"{type(error).__name__} {error}" if isinstance(error, KeyError) else str(error)
            if reason is None:
                good.append(one)
            else:
                left.append(f"{what} {one.get('name', one.get('user'))!r}: {reason}")
        return good

    queues = kept("queues", "queue", _why_not_queue)
    exchanges = kept("exchanges", "exchange", _why_not_exchange)
    users = kept("users", "user", _why_not_user)
    known = {one["name"] for one in users} | {None}
    permissions = [one for one in kept("permissions", "permission of", _why_not_permission) if one["user"] in known]
    ends = {("queue", one["vhost"], one["name"]) for one in queues}
    ends |= {("exchange", one["vhost"], one["name"]) for one in exchanges}

    def is_end(kind: object, host: object, name: object) -> bool:
        return (kind, host, name) in ends or (kind == "exchange" and str(name).startswith("amq."))

    bindings = [
        one
        for one in kept("bindings", "binding", lambda one: None)
        if one.get("source")  # bindings to the default exchange are implicit
        and is_end("exchange", one["vhost"], one.get("source"))
        and is_end(one.get("destination_type"), one["vhost"], one.get("destination"))
    ]
    for kind, called in _NOT_KNOWN.items():
        found = [one for one in _listed(document, kind) if one.get("vhost", vhost) in hosts]
        if found:
            names_found = ", ".join(sorted({str(one.get("name", one.get("user"))) for one in found}))
            left.append(f"{called}: {names_found}; set the same with arguments of the queues")
    if any(one.get("type") == "x-delayed-message" for one in exchanges):
        left.append("messages that wait in a delayed exchange: AMQP cannot read them before they are due")
    return Fitting(
        {
            "vhosts": [{"name": name} for name in sorted(hosts)],
            "users": users,
            "permissions": permissions,
            "queues": queues,
            "exchanges": exchanges,
            "bindings": bindings,
        },
        left,
    )


def queue_type(queue: Mapping[str, Any]) -> str:
    """Return the type of a queue in a definitions document."""
    return str((queue.get("arguments") or {}).get("x-queue-type", queue.get("type", "classic")))


def _listed(document: Mapping[str, Any], kind: str) -> list[dict[str, Any]]:
    found = document.get(kind) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise InvalidArgument(f"{kind!r} in the definitions is not a list of objects, as export_definitions writes it")
    return found


def _why_not_queue(one: dict[str, Any]) -> str | None:
    if one["name"].startswith(SERVER_NAMED):
        return "named by the server, so it belongs to one connection"
    if one["name"].startswith("holdfast.") or "\x1f" in one["name"]:
        return "its name is reserved in Holdfast: rename it"
    if one.get("exclusive"):
        return "exclusive: it belongs to one connection"
    if not one.get("durable", True):
        return "not durable: it would not survive a restart"
    if (kind := queue_type(one)) not in ("classic", "quorum", UNKNOWN_TYPE):
        return f"queues of the type {kind} cannot be imported"
    queue_settings(one.get("arguments") or {}, one["name"], one["vhost"])
    return None


def _why_not_exchange(one: dict[str, Any]) -> str | None:
    if not one.get("durable", True):
        return "not durable: it would not survive a restart"
    check_exchange(ExchangeDefinition(one["vhost"], one["name"], one["type"], arguments=one.get("arguments") or {}))
    return None


def _why_not_user(one: dict[str, Any]) -> str | None:
    if one.get("password_hash"):
        imported_hash(one["password_hash"], one.get("hashing_algorithm") or "rabbit_password_hashing_sha256")
    return None if one["name"] else "it has no name"


def _why_not_permission(one: dict[str, Any]) -> str | None:
    for kind in ("configure", "write", "read"):
        re.compile(one[kind])
    return None
