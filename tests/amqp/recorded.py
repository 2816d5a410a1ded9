"""What do clients send? Whole sessions as the bytes of one side, from the first octet on: seeds for fuzzing.

Each is what a well-behaved client would write if every answer came as it expects, with delivery tags counted from 1.
"""

from holdfast.amqp.frames import HEARTBEAT_FRAME, PROTOCOL_HEADER, content_frames
from holdfast.amqp.methods import (
    BasicAck,
    BasicCancel,
    BasicConsume,
    BasicGet,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicRecover,
    BasicReject,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelOpen,
    ConfirmSelect,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionStartOk,
    ConnectionTuneOk,
    ExchangeBind,
    ExchangeDeclare,
    ExchangeDelete,
    ExchangeUnbind,
    Method,
    QueueBind,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnbind,
    TxCommit,
    TxRollback,
    TxSelect,
    method_frame,
)
from holdfast.broker.amqp_values import FieldValue
from holdfast.broker.basic_properties import PERSISTENT_ONLY, Properties, encode_properties

__all__ = ["FRAME_MAX", "GREETING", "SESSIONS", "published", "sent"]

FRAME_MAX = 4096
CLIENT: dict[str, FieldValue] = {
    "product": "recorded",
    "platform": "Python",
    "capabilities": {
        "publisher_confirms": True,
        "basic.nack": True,
        "consumer_cancel_notify": True,
        "connection.blocked": True,
        "authentication_failure_close": True,
        "exchange_exchange_bindings": True,
    },
}


def sent(*methods: Method, channel: int = 1) -> bytes:
    """Methods without content, one after the other."""
    return b"".join(method_frame(channel, method) for method in methods)


def published(
    exchange: str,
    routing_key: str,
    body: bytes,
    raw: bytes = PERSISTENT_ONLY,
    *,
    mandatory: bool = False,
    channel: int = 1,
) -> bytes:
    """A message with its method, header and body."""
    method = method_frame(channel, BasicPublish(0, exchange, routing_key, mandatory))
    return b"".join([method, *content_frames(channel, 60, raw, body, FRAME_MAX)])


def greeted(response: bytes = b"\x00guest\x00guest", virtual_host: str = "/") -> bytes:
    """The handshake, up to an open virtual host."""
    return PROTOCOL_HEADER + sent(
        ConnectionStartOk(CLIENT, "PLAIN", response, "en_US"),
        ConnectionTuneOk(2047, FRAME_MAX, 60),
        ConnectionOpen(virtual_host),
        channel=0,
    )


GREETING = greeted() + sent(ChannelOpen())
GOODBYE = sent(ChannelClose(200, "Normal shutdown")) + sent(ConnectionClose(200, "Normal shutdown"), channel=0)
RICH = encode_properties(
    Properties(
        content_type="application/json",
        content_encoding="utf-8",
        headers={"x-delay": 10, "kind": "order", "tags": ["a", None, 1 << 40], "deep": {"price": 0.5, "raw": b"\xff"}},
        delivery_mode=2,
        priority=5,
        correlation_id="c-1",
        reply_to="amq.rabbitmq.reply-to",
        expiration="60000",
        message_id="m-1",
        timestamp=1_800_000_000,
        type="order",
        user_id="guest",
        app_id="recorded",
    )
)
ARGUMENTS: dict[str, FieldValue] = {
    "x-message-ttl": 60000,
    "x-max-length": 100,
    "x-overflow": "reject-publish",
    "x-dead-letter-exchange": "dead",
    "x-dead-letter-routing-key": "letters",
    "x-max-priority": 10,
}

SESSIONS: dict[str, bytes] = {
    "connects and leaves": greeted() + sent(ConnectionClose(200, "bye"), channel=0),
    "gives a wrong password": greeted(b"\x00guest\x00wrong"),
    "asks for a virtual host that is not there": greeted(virtual_host="nowhere"),
    "speaks an older protocol": b"AMQP\x01\x01\x00\x09",
    "only lives": greeted() + HEARTBEAT_FRAME * 3 + sent(ConnectionClose(), channel=0),
    "publishes with confirms": GREETING
    + sent(ConfirmSelect(), QueueDeclare(queue="work", durable=True))
    + b"".join(published("", "work", b"message %d" % number) for number in range(5))
    + GOODBYE,
    "publishes large, empty and rich messages": GREETING
    + sent(QueueDeclare(queue="work", durable=True, arguments=ARGUMENTS))
    + published("", "work", bytes(range(256)) * 40)
    + published("", "work", b"", b"\x00\x00")
    + published("", "work", b"{}", RICH)
    + GOODBYE,
    "consumes and settles": GREETING
    + sent(BasicQos(0, 10), QueueDeclare(queue="work"))
    + b"".join(published("", "work", b"message %d" % number) for number in range(6))
    + sent(
        BasicConsume(queue="work", consumer_tag="me", arguments={"x-priority": 1}),
        BasicAck(1),
        BasicAck(3, True),
        BasicReject(4, True),
        BasicNack(6, True, False),
        BasicRecover(True),
        BasicCancel("me"),
    )
    + GOODBYE,
    "gets one by one": GREETING
    + sent(QueueDeclare(queue="work", exclusive=True))
    + published("", "work", b"one")
    + sent(BasicGet(queue="work"), BasicAck(1), BasicGet(queue="work", no_ack=True), QueuePurge(queue="work"))
    + GOODBYE,
    "builds a topology and takes it down": GREETING
    + sent(
        ExchangeDeclare(exchange="events", type="topic", durable=True, arguments={"alternate-exchange": "rest"}),
        ExchangeDeclare(exchange="rest", type="fanout", auto_delete=True),
        ExchangeDeclare(exchange="by-header", type="headers"),
        QueueDeclare(queue="orders", durable=True),
        QueueBind(queue="orders", exchange="events", routing_key="order.#"),
        QueueBind(queue="orders", exchange="by-header", arguments={"x-match": "any", "kind": "order", "size": 1}),
        ExchangeBind(destination="rest", source="events", routing_key="*.lost"),
    )
    + published("events", "order.new", b"an order", RICH)
    + published("by-header", "", b"an order", RICH)
    + published("events", "nobody", b"returned", mandatory=True)
    + sent(
        ExchangeUnbind(destination="rest", source="events", routing_key="*.lost"),
        QueueUnbind(queue="orders", exchange="events", routing_key="order.#"),
        QueueDelete(queue="orders", if_unused=True),
        ExchangeDelete(exchange="events"),
        ExchangeDelete(exchange="rest", nowait=True),
        ExchangeDelete(exchange="by-header"),
    )
    + GOODBYE,
    "works in transactions": GREETING
    + sent(QueueDeclare(queue="work"), TxSelect())
    + published("", "work", b"kept")
    + sent(TxCommit())
    + published("", "work", b"forgotten")
    + sent(TxRollback())
    + GOODBYE,
    "uses many channels at once": greeted()
    + b"".join(sent(ChannelOpen(), QueueDeclare(), channel=channel) for channel in range(1, 20))
    + b"".join(published("", "nowhere", b"lost", channel=channel) for channel in range(1, 20))
    + sent(ConnectionClose(), channel=0),
    "is refused and goes on": GREETING
    + sent(QueueDeclare(queue="missing", passive=True), ChannelCloseOk(), ChannelOpen(), ChannelFlow(True))
    + sent(BasicAck(99), ChannelCloseOk(), ConnectionCloseOk()),
    "breaks off within a message": GREETING + published("", "work", bytes(9000))[:-3000],
}
"""What each client does, and the bytes it sends."""
