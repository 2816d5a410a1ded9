"""Which methods make, bind and remove exchanges and queues? Classes 40 and 50 of AMQP."""

from typing import NamedTuple

from holdfast.amqp.layout import NO_FIELDS, Bit, Long, Short, ShortStr, Table, wire

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
    """Make an exchange, or look whether it is there."""

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
    """The exchange is there."""


@wire(40, 20)
class ExchangeDelete(NamedTuple):
    """Remove an exchange."""

    ticket: Short = 0
    exchange: ShortStr = ""
    if_unused: Bit = False
    nowait: Bit = False


@wire(40, 21)
class ExchangeDeleteOk(NamedTuple):
    """The exchange is gone."""


@wire(40, 30)
class ExchangeBind(NamedTuple):
    """Let one exchange pass messages on to another (RabbitMQ)."""

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
    """Undo a binding of two exchanges (RabbitMQ)."""

    ticket: Short = 0
    destination: ShortStr = ""
    source: ShortStr = ""
    routing_key: ShortStr = ""
    nowait: Bit = False
    arguments: Table = NO_FIELDS


@wire(40, 51)
class ExchangeUnbindOk(NamedTuple):
    """The exchanges are bound no more. Its number is 51 and not 41, by an old slip."""


@wire(50, 10)
class QueueDeclare(NamedTuple):
    """Make a queue, or look whether it is there."""

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
    """The queue is there: its name and what it holds."""

    queue: ShortStr = ""
    message_count: Long = 0
    consumer_count: Long = 0


@wire(50, 20)
class QueueBind(NamedTuple):
    """Let an exchange route messages to a queue."""

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
    """Drop what waits in a queue."""

    ticket: Short = 0
    queue: ShortStr = ""
    nowait: Bit = False


@wire(50, 31)
class QueuePurgeOk(NamedTuple):
    """How many messages were dropped."""

    message_count: Long = 0


@wire(50, 40)
class QueueDelete(NamedTuple):
    """Remove a queue."""

    ticket: Short = 0
    queue: ShortStr = ""
    if_unused: Bit = False
    if_empty: Bit = False
    nowait: Bit = False


@wire(50, 41)
class QueueDeleteOk(NamedTuple):
    """The queue is gone, and so many messages with it."""

    message_count: Long = 0


@wire(50, 50)
class QueueUnbind(NamedTuple):
    """Undo a binding of a queue."""

    ticket: Short = 0
    queue: ShortStr = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    arguments: Table = NO_FIELDS


@wire(50, 51)
class QueueUnbindOk(NamedTuple):
    """The queue is bound no more."""
