"""AMQP method declarations for publishing, consuming, confirms and transactions: classes 60, 85 and 90."""

from typing import NamedTuple

from holdfast.amqp.method_codec import NO_FIELDS, Bit, Long, LongLong, Short, ShortStr, Table, wire

__all__ = [
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
    "ConfirmSelect",
    "ConfirmSelectOk",
    "TxCommit",
    "TxCommitOk",
    "TxRollback",
    "TxRollbackOk",
    "TxSelect",
    "TxSelectOk",
]


@wire(60, 10)
class BasicQos(NamedTuple):
    """Set the prefetch limit."""

    prefetch_size: Long = 0
    prefetch_count: Short = 0
    global_: Bit = False


@wire(60, 11)
class BasicQosOk(NamedTuple):
    """The prefetch limit is set."""


@wire(60, 20)
class BasicConsume(NamedTuple):
    """Start to consume from a queue."""

    ticket: Short = 0
    queue: ShortStr = ""
    consumer_tag: ShortStr = ""
    no_local: Bit = False
    no_ack: Bit = False
    exclusive: Bit = False
    nowait: Bit = False
    arguments: Table = NO_FIELDS


@wire(60, 21)
class BasicConsumeOk(NamedTuple):
    """The consumer exists under this tag."""

    consumer_tag: ShortStr = ""


@wire(60, 30)
class BasicCancel(NamedTuple):
    """Cancel a consumer; RabbitMQ also sends it when the queue is deleted."""

    consumer_tag: ShortStr = ""
    nowait: Bit = False


@wire(60, 31)
class BasicCancelOk(NamedTuple):
    """The consumer is cancelled."""

    consumer_tag: ShortStr = ""


@wire(60, 40)
class BasicPublish(NamedTuple):
    """A message for an exchange; its content follows."""

    ticket: Short = 0
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    mandatory: Bit = False
    immediate: Bit = False


@wire(60, 50)
class BasicReturn(NamedTuple):
    """An unroutable message goes back to its publisher; its content follows."""

    reply_code: Short = 312
    reply_text: ShortStr = ""
    exchange: ShortStr = ""
    routing_key: ShortStr = ""


@wire(60, 60)
class BasicDeliver(NamedTuple):
    """A message for a consumer; its content follows."""

    consumer_tag: ShortStr = ""
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortStr = ""
    routing_key: ShortStr = ""


@wire(60, 70)
class BasicGet(NamedTuple):
    """Request one message."""

    ticket: Short = 0
    queue: ShortStr = ""
    no_ack: Bit = False


@wire(60, 71)
class BasicGetOk(NamedTuple):
    """The requested message; its content follows."""

    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortStr = ""
    routing_key: ShortStr = ""
    message_count: Long = 0


@wire(60, 72)
class BasicGetEmpty(NamedTuple):
    """The queue is empty."""

    cluster_id: ShortStr = ""


@wire(60, 80)
class BasicAck(NamedTuple):
    """Acknowledge one message, or all up to it; from the server: a publish is confirmed."""

    delivery_tag: LongLong = 0
    multiple: Bit = False


@wire(60, 90)
class BasicReject(NamedTuple):
    """Reject one message."""

    delivery_tag: LongLong = 0
    requeue: Bit = True


@wire(60, 100)
class BasicRecoverAsync(NamedTuple):
    """Deliver all unacknowledged messages again, without an answer."""

    requeue: Bit = False


@wire(60, 110)
class BasicRecover(NamedTuple):
    """Deliver all unacknowledged messages again."""

    requeue: Bit = False


@wire(60, 111)
class BasicRecoverOk(NamedTuple):
    """The unacknowledged messages will be delivered again."""


@wire(60, 120)
class BasicNack(NamedTuple):
    """Reject one message, or all up to it (RabbitMQ)."""

    delivery_tag: LongLong = 0
    multiple: Bit = False
    requeue: Bit = True


@wire(85, 10)
class ConfirmSelect(NamedTuple):
    """Turn on publisher confirms for the channel (RabbitMQ)."""

    nowait: Bit = False


@wire(85, 11)
class ConfirmSelectOk(NamedTuple):
    """Publisher confirms are on."""


@wire(90, 10)
class TxSelect(NamedTuple):
    """Make the channel transactional."""


@wire(90, 11)
class TxSelectOk(NamedTuple):
    """The channel is transactional."""


@wire(90, 20)
class TxCommit(NamedTuple):
    """Commit the publishes and acknowledgements of the transaction."""


@wire(90, 21)
class TxCommitOk(NamedTuple):
    """The transaction is committed."""


@wire(90, 30)
class TxRollback(NamedTuple):
    """Discard the publishes and acknowledgements of the transaction."""


@wire(90, 31)
class TxRollbackOk(NamedTuple):
    """The transaction is rolled back."""
