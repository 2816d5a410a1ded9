"""AMQP method declarations for exchanges, queues and bindings: classes 40 and 50."""

from typing import NamedTuple

from holdfast.amqp.method_codec import NO_FIELDS, Bit, Long, Short, ShortStr, Table, wire

__all__ = [
    "ExchangeBind",
    "ExchangeBindOk",
    "ExchangeDeclare",
    "ExchangeDeclareOk",
    "ExchangeDelete",
    "ExchangeDeleteOk",
    "ExchangeUnbind",
    "ExchangeUnbindOk",
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
]


@wire(40, 10)
class ExchangeDeclare(NamedTuple):
    """Declare an exchange or, passively, check that it exists."""

    ticket: Short = 0
    exchange: ShortStr = ""
    type: ShortStr = "direct"
    passive: Bit = False
    durable: Bit = False
    auto_delete: Bit = False
    internal: Bit = False
    nowait: Bit = False
    arguments: Table = NO_FIELDS


@wire(40, 11)
class ExchangeDeclareOk(NamedTuple):
    """The exchange exists."""


@wire(40, 20)
class ExchangeDelete(NamedTuple):
    """Delete an exchange."""

    ticket: Short = 0
    exchange: ShortStr = ""
    if_unused: Bit = False
    nowait: Bit = False


@wire(40, 21)
class ExchangeDeleteOk(NamedTuple):
    """The exchange is deleted."""


@wire(40, 30)
class ExchangeBind(NamedTuple):
    """Bind an exchange to another (RabbitMQ)."""

    ticket: Short = 0
    destination: ShortStr = ""
    source: ShortStr = ""
    routing_key: ShortStr = ""
    nowait: Bit = False
    arguments: Table = NO_FIELDS


@wire(40, 31)
class ExchangeBindOk(NamedTuple):
    """The exchanges are bound."""


@wire(40, 40)
class ExchangeUnbind(NamedTuple):
    """Remove a binding between two exchanges (RabbitMQ)."""

    ticket: Short = 0
    destination: ShortStr = ""
    source: ShortStr = ""
    routing_key: ShortStr = ""
    nowait: Bit = False
    arguments: Table = NO_FIELDS


@wire(40, 51)
class ExchangeUnbindOk(NamedTuple):
    """The binding is removed. Its number is 51 and not 41, by a historical mistake."""


@wire(50, 10)
class QueueDeclare(NamedTuple):
    """Declare a queue or, passively, check that it exists."""

    ticket: Short = 0
    queue: ShortStr = ""
    passive: Bit = False
    durable: Bit = False
    exclusive: Bit = False
    auto_delete: Bit = False
    nowait: Bit = False
    arguments: Table = NO_FIELDS


@wire(50, 11)
class QueueDeclareOk(NamedTuple):
    """The queue exists: its name and its message and consumer counts."""

    queue: ShortStr = ""
    message_count: Long = 0
    consumer_count: Long = 0


@wire(50, 20)
class QueueBind(NamedTuple):
    """Bind a queue to an exchange."""

    ticket: Short = 0
    queue: ShortStr = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    nowait: Bit = False
    arguments: Table = NO_FIELDS


@wire(50, 21)
class QueueBindOk(NamedTuple):
    """The queue is bound."""


@wire(50, 30)
class QueuePurge(NamedTuple):
    """Drop all ready messages of a queue."""

    ticket: Short = 0
    queue: ShortStr = ""
    nowait: Bit = False


@wire(50, 31)
class QueuePurgeOk(NamedTuple):
    """The number of messages that were dropped."""

    message_count: Long = 0


@wire(50, 40)
class QueueDelete(NamedTuple):
    """Delete a queue."""

    ticket: Short = 0
    queue: ShortStr = ""
    if_unused: Bit = False
    if_empty: Bit = False
    nowait: Bit = False


@wire(50, 41)
class QueueDeleteOk(NamedTuple):
    """The queue is deleted, with this many messages."""

    message_count: Long = 0


@wire(50, 50)
class QueueUnbind(NamedTuple):
    """Remove a binding of a queue."""

    ticket: Short = 0
    queue: ShortStr = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    arguments: Table = NO_FIELDS


@wire(50, 51)
class QueueUnbindOk(NamedTuple):
    """The binding is removed."""
