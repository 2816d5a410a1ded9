"""AMQP 0-9-1 as data: its methods with RabbitMQ's extensions, and its reply codes.

Generated from `tests/amqp/spec.txt` by `python -m tests.amqp.make_spec`: do not edit.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from holdfast.broker.amqp_values import FieldValue

__all__ = [
    "METHODS",
    "REPLY_CODES",
    "AccessRequest",
    "AccessRequestOk",
    "BasicAck",
    "BasicCancel",
    "BasicCancelOk",
    "BasicConsume",
    "BasicConsumeOk",
    "BasicDeliver",
    "BasicGet",
    "BasicGetEmpty",
    "BasicGetOk",
    "BasicNack",
    "BasicPublish",
    "BasicQos",
    "BasicQosOk",
    "BasicRecover",
    "BasicRecoverAsync",
    "BasicRecoverOk",
    "BasicReject",
    "BasicReturn",
    "ChannelClose",
    "ChannelCloseOk",
    "ChannelFlow",
    "ChannelFlowOk",
    "ChannelOpen",
    "ChannelOpenOk",
    "ConfirmSelect",
    "ConfirmSelectOk",
    "ConnectionBlocked",
    "ConnectionClose",
    "ConnectionCloseOk",
    "ConnectionOpen",
    "ConnectionOpenOk",
    "ConnectionSecure",
    "ConnectionSecureOk",
    "ConnectionStart",
    "ConnectionStartOk",
    "ConnectionTune",
    "ConnectionTuneOk",
    "ConnectionUnblocked",
    "ConnectionUpdateSecret",
    "ConnectionUpdateSecretOk",
    "ExchangeBind",
    "ExchangeBindOk",
    "ExchangeDeclare",
    "ExchangeDeclareOk",
    "ExchangeDelete",
    "ExchangeDeleteOk",
    "ExchangeUnbind",
    "ExchangeUnbindOk",
    "Method",
    "QueueBind",
    "QueueBindOk",
    "QueueDeclare",
    "QueueDeclareOk",
    "QueueDelete",
    "QueueDeleteOk",
    "QueuePurge",
    "QueuePurgeOk",
    "QueueUnbind",
    "QueueUnbindOk",
    "TxCommit",
    "TxCommitOk",
    "TxRollback",
    "TxRollbackOk",
    "TxSelect",
    "TxSelectOk",
]

Method: TypeAlias = tuple[Any, ...]
"""Any of the NamedTuples of this module: creating one takes a third of the time of a frozen dataclass."""
Table: TypeAlias = Mapping[str, FieldValue]

NO_FIELDS: Table = MappingProxyType({})
"""The empty table, shared by all methods."""

REPLY_CODES = {
    200: "REPLY_SUCCESS",
    311: "CONTENT_TOO_LARGE",
    312: "NO_ROUTE",
    313: "NO_CONSUMERS",
    320: "CONNECTION_FORCED",
    402: "INVALID_PATH",
    403: "ACCESS_REFUSED",
    404: "NOT_FOUND",
    405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED",
    501: "FRAME_ERROR",
    502: "SYNTAX_ERROR",
    503: "COMMAND_INVALID",
    504: "CHANNEL_ERROR",
    505: "UNEXPECTED_FRAME",
    506: "RESOURCE_ERROR",
    530: "NOT_ALLOWED",
    540: "NOT_IMPLEMENTED",
    541: "INTERNAL_ERROR",
}
"""Names of the reply codes, with which RabbitMQ's reply texts begin: `NOT_FOUND - no queue ...`."""


class ConnectionStart(NamedTuple):
    """The server announces its properties and authentication mechanisms."""

    version_major: int = 0
    version_minor: int = 9
    server_properties: Table = NO_FIELDS
    mechanisms: bytes = b""
    locales: bytes = b""


class ConnectionStartOk(NamedTuple):
    """The client chooses a mechanism and authenticates with it."""

    client_properties: Table = NO_FIELDS
    mechanism: str = ""
    response: bytes = b""
    locale: str = ""


class ConnectionSecure(NamedTuple):
    """The mechanism sends a challenge."""

    challenge: bytes = b""


class ConnectionSecureOk(NamedTuple):
    """The client answers a challenge of the mechanism."""

    response: bytes = b""


class ConnectionTune(NamedTuple):
    """The limits that the server proposes."""

    channel_max: int = 0
    frame_max: int = 0
    heartbeat: int = 0


class ConnectionTuneOk(NamedTuple):
    """The limits that the client accepts, which then apply."""

    channel_max: int = 0
    frame_max: int = 0
    heartbeat: int = 0


class ConnectionOpen(NamedTuple):
    """The client asks for a virtual host."""

    virtual_host: str = "/"
    capabilities: str = ""
    insist: bool = False


class ConnectionOpenOk(NamedTuple):
    """The virtual host is open."""

    known_hosts: str = ""


class ConnectionClose(NamedTuple):
    """The sender closes the connection and gives the reason."""

    reply_code: int = 200
    reply_text: str = ""
    class_id: int = 0
    method_id: int = 0


class ConnectionCloseOk(NamedTuple):
    """The receiver confirms the close of the connection."""


class ConnectionBlocked(NamedTuple):
    """The server accepts no messages for now."""

    reason: str = ""


class ConnectionUnblocked(NamedTuple):
    """The server accepts messages again."""


class ConnectionUpdateSecret(NamedTuple):
    """The client renews its credentials."""

    new_secret: bytes = b""
    reason: str = ""


class ConnectionUpdateSecretOk(NamedTuple):
    """The server accepts the renewed credentials."""


class ChannelOpen(NamedTuple):
    """The client opens a channel."""

    out_of_band: str = ""


class ChannelOpenOk(NamedTuple):
    """The channel is open."""

    channel_id: bytes = b""


class ChannelFlow(NamedTuple):
    """The sender asks the peer to pause or resume."""

    active: bool = False


class ChannelFlowOk(NamedTuple):
    """The peer confirms the pause or the resumption."""

    active: bool = False


class ChannelClose(NamedTuple):
    """The sender closes the channel and gives the reason."""

    reply_code: int = 200
    reply_text: str = ""
    class_id: int = 0
    method_id: int = 0


class ChannelCloseOk(NamedTuple):
    """The receiver confirms the close of the channel."""


class AccessRequest(NamedTuple):
    """A client of AMQP 0-8 requests a ticket; it gets one that has no meaning."""

    realm: str = "/data"
    exclusive: bool = False
    passive: bool = True
    active: bool = True
    write: bool = True
    read: bool = True


class AccessRequestOk(NamedTuple):
    """The ticket."""

    ticket: int = 1


class ExchangeDeclare(NamedTuple):
    """Declare an exchange or, passively, check that it exists."""

    ticket: int = 0
    exchange: str = ""
    type: str = "direct"
    passive: bool = False
    durable: bool = False
    auto_delete: bool = False
    internal: bool = False
    nowait: bool = False
    arguments: Table = NO_FIELDS


class ExchangeDeclareOk(NamedTuple):
    """The exchange exists."""


class ExchangeDelete(NamedTuple):
    """Delete an exchange."""

    ticket: int = 0
    exchange: str = ""
    if_unused: bool = False
    nowait: bool = False


class ExchangeDeleteOk(NamedTuple):
    """The exchange is deleted."""


class ExchangeBind(NamedTuple):
    """Bind an exchange to another (RabbitMQ)."""

    ticket: int = 0
    destination: str = ""
    source: str = ""
    routing_key: str = ""
    nowait: bool = False
    arguments: Table = NO_FIELDS


class ExchangeBindOk(NamedTuple):
    """The exchanges are bound."""


class ExchangeUnbind(NamedTuple):
    """Remove a binding between two exchanges (RabbitMQ)."""

    ticket: int = 0
    destination: str = ""
    source: str = ""
    routing_key: str = ""
    nowait: bool = False
    arguments: Table = NO_FIELDS


class ExchangeUnbindOk(NamedTuple):
    """The binding is removed. Its number is 51 and not 41, by a historical mistake."""


class QueueDeclare(NamedTuple):
    """Declare a queue or, passively, check that it exists."""

    ticket: int = 0
    queue: str = ""
    passive: bool = False
    durable: bool = False
    exclusive: bool = False
    auto_delete: bool = False
    nowait: bool = False
    arguments: Table = NO_FIELDS


class QueueDeclareOk(NamedTuple):
    """The queue exists: its name and its message and consumer counts."""

    queue: str = ""
    message_count: int = 0
    consumer_count: int = 0


class QueueBind(NamedTuple):
    """Bind a queue to an exchange."""

    ticket: int = 0
    queue: str = ""
    exchange: str = ""
    routing_key: str = ""
    nowait: bool = False
    arguments: Table = NO_FIELDS


class QueueBindOk(NamedTuple):
    """The queue is bound."""


class QueuePurge(NamedTuple):
    """Drop all ready messages of a queue."""

    ticket: int = 0
    queue: str = ""
    nowait: bool = False


class QueuePurgeOk(NamedTuple):
    """The number of messages that were dropped."""

    message_count: int = 0


class QueueDelete(NamedTuple):
    """Delete a queue."""

    ticket: int = 0
    queue: str = ""
    if_unused: bool = False
    if_empty: bool = False
    nowait: bool = False


class QueueDeleteOk(NamedTuple):
    """The queue is deleted, with this many messages."""

    message_count: int = 0


class QueueUnbind(NamedTuple):
    """Remove a binding of a queue."""

    ticket: int = 0
    queue: str = ""
    exchange: str = ""
    routing_key: str = ""
    arguments: Table = NO_FIELDS


class QueueUnbindOk(NamedTuple):
    """The binding is removed."""


class BasicQos(NamedTuple):
    """Set the prefetch limit."""

    prefetch_size: int = 0
    prefetch_count: int = 0
    global_: bool = False


class BasicQosOk(NamedTuple):
    """The prefetch limit is set."""


class BasicConsume(NamedTuple):
    """Start to consume from a queue."""

    ticket: int = 0
    queue: str = ""
    consumer_tag: str = ""
    no_local: bool = False
    no_ack: bool = False
    exclusive: bool = False
    nowait: bool = False
    arguments: Table = NO_FIELDS


class BasicConsumeOk(NamedTuple):
    """The consumer exists under this tag."""

    consumer_tag: str = ""


class BasicCancel(NamedTuple):
    """Cancel a consumer; RabbitMQ also sends it when the queue is deleted."""

    consumer_tag: str = ""
    nowait: bool = False


class BasicCancelOk(NamedTuple):
    """The consumer is cancelled."""

    consumer_tag: str = ""


class BasicPublish(NamedTuple):
    """A message for an exchange; its content follows."""

    ticket: int = 0
    exchange: str = ""
    routing_key: str = ""
    mandatory: bool = False
    immediate: bool = False


class BasicReturn(NamedTuple):
    """An unroutable message goes back to its publisher; its content follows."""

    reply_code: int = 312
    reply_text: str = ""
    exchange: str = ""
    routing_key: str = ""


class BasicDeliver(NamedTuple):
    """A message for a consumer; its content follows."""

    consumer_tag: str = ""
    delivery_tag: int = 0
    redelivered: bool = False
    exchange: str = ""
    routing_key: str = ""


class BasicGet(NamedTuple):
    """Request one message."""

    ticket: int = 0
    queue: str = ""
    no_ack: bool = False


class BasicGetOk(NamedTuple):
    """The requested message; its content follows."""

    delivery_tag: int = 0
    redelivered: bool = False
    exchange: str = ""
    routing_key: str = ""
    message_count: int = 0


class BasicGetEmpty(NamedTuple):
    """The queue is empty."""

    cluster_id: str = ""


class BasicAck(NamedTuple):
    """Acknowledge one message, or all up to it; from the server: a publish is confirmed."""

    delivery_tag: int = 0
    multiple: bool = False


class BasicReject(NamedTuple):
    """Reject one message."""

    delivery_tag: int = 0
    requeue: bool = True


class BasicRecoverAsync(NamedTuple):
    """Deliver all unacknowledged messages again, without an answer."""

    requeue: bool = False


class BasicRecover(NamedTuple):
    """Deliver all unacknowledged messages again."""

    requeue: bool = False


class BasicRecoverOk(NamedTuple):
    """The unacknowledged messages will be delivered again."""


class BasicNack(NamedTuple):
    """Reject one message, or all up to it (RabbitMQ)."""

    delivery_tag: int = 0
    multiple: bool = False
    requeue: bool = True


class ConfirmSelect(NamedTuple):
    """Turn on publisher confirms for the channel (RabbitMQ)."""

    nowait: bool = False


class ConfirmSelectOk(NamedTuple):
    """Publisher confirms are on."""


class TxSelect(NamedTuple):
    """Make the channel transactional."""


class TxSelectOk(NamedTuple):
    """The channel is transactional."""


class TxCommit(NamedTuple):
    """Commit the publishes and acknowledgements of the transaction."""


class TxCommitOk(NamedTuple):
    """The transaction is committed."""


class TxRollback(NamedTuple):
    """Discard the publishes and acknowledgements of the transaction."""


class TxRollbackOk(NamedTuple):
    """The transaction is rolled back."""


METHODS: dict[type, tuple[int, int, str]] = {
    ConnectionStart: (10, 10, "BBTSS"),
    ConnectionStartOk: (10, 11, "TsSs"),
    ConnectionSecure: (10, 20, "S"),
    ConnectionSecureOk: (10, 21, "S"),
    ConnectionTune: (10, 30, "HIH"),
    ConnectionTuneOk: (10, 31, "HIH"),
    ConnectionOpen: (10, 40, "ss?"),
    ConnectionOpenOk: (10, 41, "s"),
    ConnectionClose: (10, 50, "HsHH"),
    ConnectionCloseOk: (10, 51, ""),
    ConnectionBlocked: (10, 60, "s"),
    ConnectionUnblocked: (10, 61, ""),
    ConnectionUpdateSecret: (10, 70, "Ss"),
    ConnectionUpdateSecretOk: (10, 71, ""),
    ChannelOpen: (20, 10, "s"),
    ChannelOpenOk: (20, 11, "S"),
    ChannelFlow: (20, 20, "?"),
    ChannelFlowOk: (20, 21, "?"),
    ChannelClose: (20, 40, "HsHH"),
    ChannelCloseOk: (20, 41, ""),
    AccessRequest: (30, 10, "s?????"),
    AccessRequestOk: (30, 11, "H"),
    ExchangeDeclare: (40, 10, "Hss?????T"),
    ExchangeDeclareOk: (40, 11, ""),
    ExchangeDelete: (40, 20, "Hs??"),
    ExchangeDeleteOk: (40, 21, ""),
    ExchangeBind: (40, 30, "Hsss?T"),
    ExchangeBindOk: (40, 31, ""),
    ExchangeUnbind: (40, 40, "Hsss?T"),
    ExchangeUnbindOk: (40, 51, ""),
    QueueDeclare: (50, 10, "Hs?????T"),
    QueueDeclareOk: (50, 11, "sII"),
    QueueBind: (50, 20, "Hsss?T"),
    QueueBindOk: (50, 21, ""),
    QueuePurge: (50, 30, "Hs?"),
    QueuePurgeOk: (50, 31, "I"),
    QueueDelete: (50, 40, "Hs???"),
    QueueDeleteOk: (50, 41, "I"),
    QueueUnbind: (50, 50, "HsssT"),
    QueueUnbindOk: (50, 51, ""),
    BasicQos: (60, 10, "IH?"),
    BasicQosOk: (60, 11, ""),
    BasicConsume: (60, 20, "Hss????T"),
    BasicConsumeOk: (60, 21, "s"),
    BasicCancel: (60, 30, "s?"),
    BasicCancelOk: (60, 31, "s"),
    BasicPublish: (60, 40, "Hss??"),
    BasicReturn: (60, 50, "Hsss"),
    BasicDeliver: (60, 60, "sQ?ss"),
    BasicGet: (60, 70, "Hs?"),
    BasicGetOk: (60, 71, "Q?ssI"),
    BasicGetEmpty: (60, 72, "s"),
    BasicAck: (60, 80, "Q?"),
    BasicReject: (60, 90, "Q?"),
    BasicRecoverAsync: (60, 100, "?"),
    BasicRecover: (60, 110, "?"),
    BasicRecoverOk: (60, 111, ""),
    BasicNack: (60, 120, "Q??"),
    ConfirmSelect: (85, 10, "?"),
    ConfirmSelectOk: (85, 11, ""),
    TxSelect: (90, 10, ""),
    TxSelectOk: (90, 11, ""),
    TxCommit: (90, 20, ""),
    TxCommitOk: (90, 21, ""),
    TxRollback: (90, 30, ""),
    TxRollbackOk: (90, 31, ""),
}
"""Class number, method number and types of the arguments: `B`, `H`, `I` and `Q` as in `struct`, `?` for a bit, `s` and
`S` for short and long strings, `T` for a table."""
