"""RabbitMQ's JSON for exchanges, bindings, connections, channels, consumers, users and permissions."""

import base64
import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from functools import cache
from socket import gethostname
from typing import Any, cast
from urllib.parse import quote_plus

from holdfast.amqp.connection_report import ChannelReport, ConnectionReport, ConsumerReport
from holdfast.broker.amqp_values import LateTime
from holdfast.broker.routing import Binding
from holdfast.broker.topology import ExchangeDefinition
from holdfast.broker.users import Permission, User
from holdfast.web.rabbitmq_api.response_types import (
    BindingRow,
    ChannelRow,
    ConnectionRow,
    ConsumerRow,
    ExchangeRow,
    PermissionRow,
    Rate,
    UserRow,
)

__all__ = [
    "binding_row",
    "channel_row",
    "connection_row",
    "consumer_row",
    "default_binding",
    "exchange_row",
    "node_name",
    "permission_row",
    "plain",
    "properties_key",
    "rate",
    "user_row",
    "without_hash",
]


@cache
def node_name() -> str:
    """Return this broker's name where RabbitMQ names a node."""
    return f"holdfast@{gethostname()}"


def rate(value: float) -> Rate:
    """Return a rate a second in RabbitMQ's form."""
    return {"rate": round(value, 3)}


def plain(value: Any) -> Any:
    """Return a value of an AMQP table as JSON."""
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, bytes | bytearray):
        try:
            return bytes(value).decode()
        except UnicodeDecodeError:
            return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, LateTime):
        return value.seconds
    return value


def exchange_row(exchange: ExchangeDefinition) -> ExchangeRow:
    """Return an exchange in RabbitMQ's form."""
    return {
        "arguments": plain(exchange.arguments),
        "auto_delete": exchange.auto_delete,
        "durable": exchange.durable,
        "internal": exchange.internal,
        "name": exchange.name,
        "type": exchange.type,
        "user_who_performed_action": "holdfast",
        "vhost": exchange.vhost,
    }


def properties_key(binding: Binding) -> str:
    """Return what distinguishes a binding from others between the same ends: routing key, and a hash of its arguments.

    The hash is ours; clients read it from a list and send it back.
    """
    if not binding.routing_key and not binding.arguments:
        return "~"
    key = quote_plus(binding.routing_key, safe="", errors="surrogateescape").replace("~", "%7E")
    if not binding.arguments:
        return key
    text = json.dumps(plain(binding.arguments), sort_keys=True).encode()
    digest = hashlib.blake2b(text, digest_size=6).digest()
    return f"{key}~{base64.urlsafe_b64encode(digest).decode()}"


def default_binding(vhost: str, queue: str) -> Binding:
    """Return a queue's implicit binding to the default exchange, which is shown in lists."""
    return Binding(vhost, "", "queue", queue, queue)


def binding_row(binding: Binding) -> BindingRow:
    """Return a binding in RabbitMQ's form."""
    return {
        "source": binding.source,
        "vhost": binding.vhost,
        "destination": binding.destination,
        "destination_type": binding.destination_kind,
        "routing_key": binding.routing_key,
        "arguments": plain(binding.arguments),
        "properties_key": properties_key(binding),
    }


def connection_row(one: ConnectionReport) -> ConnectionRow:
    """Return a connection in RabbitMQ's form."""
    tls = one.tls
    given = one.client.get("connection_name")
    return {
        "auth_mechanism": one.mechanism,
        "channel_max": one.channel_max,
        "channels": one.channels,
        "client_properties": plain(one.client),
        "connected_at": int(one.connected_at * 1000),
        "frame_max": one.frame_max,
        "host": one.host,
        "name": one.name,
        "node": node_name(),
        "peer_cert_issuer": tls.issuer if tls else None,
        "peer_cert_subject": tls.subject if tls else None,
        "peer_cert_validity": tls.valid if tls else None,
        "peer_host": one.peer_host,
        "peer_port": one.peer_port,
        "port": one.port,
        "protocol": "AMQP 0-9-1",
        "recv_oct": one.received,
        "recv_oct_details": rate(one.received_rate),
        "send_oct": one.sent,
        "send_oct_details": rate(one.sent_rate),
        "send_pend": 0,
        "ssl": tls is not None,
        "ssl_cipher": tls.cipher if tls else None,
        "ssl_hash": None,
        "ssl_key_exchange": None,
        "ssl_protocol": tls.protocol if tls else None,
        "state": one.state,
        "timeout": one.heartbeat,
        "type": "network",
        "user": one.user,
        "user_provided_name": plain(given) if given is not None else None,
        "user_who_performed_action": one.user,
        "vhost": one.vhost,
    }


def channel_row(one: ChannelReport) -> ChannelRow:
    """Return a channel in RabbitMQ's form."""
    return {
        "acks_uncommitted": 0,
        "confirm": one.confirms,
        "connection_details": {"name": one.connection, "peer_host": one.peer_host, "peer_port": one.peer_port},
        "consumer_count": one.consumers,
        "global_prefetch_count": one.global_prefetch,
        "message_stats": {
            "publish": one.published,
            "publish_details": rate(one.publish_rate),
            "deliver": one.delivered,
            "deliver_details": rate(one.deliver_rate),
            "deliver_get": one.delivered,
            "deliver_get_details": rate(one.deliver_rate),
        },
        "messages_unacknowledged": one.unacked,
        "messages_uncommitted": 0,
        "messages_unconfirmed": one.unconfirmed,
        "name": one.name,
        "node": node_name(),
        "number": one.number,
        "prefetch_count": one.prefetch,
        "state": one.state,
        "transactional": one.transactional,
        "user": one.user,
        "user_who_performed_action": one.user,
        "vhost": one.vhost,
    }


def consumer_row(one: ConsumerReport) -> ConsumerRow:
    """Return a consumer in RabbitMQ's form."""
    return {
        "ack_required": not one.no_ack,
        "active": one.active,
        "activity_status": "up" if one.active else "waiting",
        "arguments": plain(one.arguments),
        "channel_details": {
            "connection_name": one.connection,
            "name": one.channel,
            "node": node_name(),
            "number": one.number,
            "peer_host": one.peer_host,
            "peer_port": one.peer_port,
            "user": one.user,
        },
        "consumer_tag": one.tag,
        "exclusive": one.exclusive,
        "prefetch_count": one.prefetch,
        "queue": {"name": one.queue, "vhost": one.vhost},
    }


def without_hash(row: Mapping[str, Any]) -> UserRow:
    """Return a user's row without the password hash; its algorithm is None if the user has no password."""
    algorithm = row["hashing_algorithm"] if row["password_hash"] else None
    rest = {name: value for name, value in row.items() if name != "password_hash"}
    return cast("UserRow", rest | {"hashing_algorithm": algorithm})


def user_row(user: User) -> UserRow:
    """Return a user in RabbitMQ's form, with the password hash."""
    return {
        "name": user.name,
        "password_hash": user.password_hash,
        "hashing_algorithm": user.algorithm,
        "tags": list(user.tags),
        "limits": {},
    }


def permission_row(one: Permission) -> PermissionRow:
    """Return a user's permissions in a virtual host, in RabbitMQ's form."""
    return {
        "user": one.user,
        "vhost": one.vhost,
        "configure": one.configure,
        "write": one.write,
        "read": one.read,
    }
