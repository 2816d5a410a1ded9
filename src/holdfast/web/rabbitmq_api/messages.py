"""Routes to publish and get messages in RabbitMQ's API, for trials; programs use AMQP or Holdfast's own API."""

import base64
import binascii
from typing import Any

from holdfast.base.errors import InvalidArgument, QueueFull
from holdfast.broker.amqp_values import MalformedField
from holdfast.broker.basic_properties import PROPERTY_NAMES, Properties, decode_properties, encode_properties
from holdfast.broker.errors import PreconditionFailed
from holdfast.broker.message import Content, Instructions, content_of, instructions_in
from holdfast.broker.permissions import Operation
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.broker.vhost import MESSAGE_MAX, VirtualHostRuntime
from holdfast.log.log import Log
from holdfast.queue import Delivery
from holdfast.web.rabbitmq_api.access import body_of, exchange_name, host_of, may, routing_key_in, table_of, text_of
from holdfast.web.rabbitmq_api.response_types import GotMessage, Routed
from holdfast.web.rabbitmq_api.serializers import plain
from holdfast.web.routes import Call, Needs, Routes

__all__ = ["message_row", "properties_in", "routes"]

routes = Routes("RabbitMQ: messages")
COUNT_MAX = 10_000
_BYTES_MAX = 128 << 20
_MODES = ("ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false")
_DIGITS_MAX = 20
_NUMBERS = frozenset(("delivery_mode", "priority", "timestamp"))


def properties_in(fields: dict[str, Any]) -> Properties:
    """Parse the properties of a message from JSON; unknown ones are ignored, as in RabbitMQ."""
    known: dict[str, Any] = {}
    for name in PROPERTY_NAMES:
        value = fields.get(name)
        if value is None:
            continue
        if name == "headers":
            known[name] = table_of(fields, name)
        elif name in _NUMBERS:
            if isinstance(value, bool) or not isinstance(value, int):
                raise InvalidArgument(f"the property {name!r} must be a whole number, not {value!r}")
            known[name] = value
        else:
            known[name] = text_of(fields, name)
    return Properties(**known)


def message_row(
    delivery: Delivery, queue: str, left: int, *, encoding: str = "auto", truncate: int | None = None
) -> GotMessage:
    """Return a message that was got, as RabbitMQ writes it. Text is truncated between two characters."""
    content = content_of(delivery.key, delivery.headers, queue)
    properties = decode_properties(content.raw).present()
    body, text = delivery.payload, None
    if encoding == "auto":
        try:
            text = body.decode()
            if truncate is not None and truncate < len(body):
                text = body[:truncate].decode(errors="ignore")
        except UnicodeDecodeError:
            text = None
    return {
        "payload_bytes": len(body),
        "redelivered": delivery.attempt > 1,
        "exchange": content.exchange,
        "routing_key": content.routing_key,
        "message_count": left,
        "properties": {name: plain(value) for name, value in properties.items()},
        "payload": text if text is not None else base64.b64encode(body[:truncate]).decode(),
        "payload_encoding": "string" if text is not None else "base64",
    }


@routes.post(
    "/api/exchanges/{vhost}/{name}/publish",
    needs=Needs.LOGIN,
    says="Publish a message.",
    fills=True,
    takes={
        "type": "object",
        "required": ["properties", "routing_key", "payload", "payload_encoding"],
        "properties": {
            "properties": {"type": "object"},
            "routing_key": {"type": "string"},
            "payload": {"type": "string"},
            "payload_encoding": {"enum": ["string", "base64"]},
        },
    },
)
def publish(call: Call) -> Routed:
    """Publish one message. In durable queues a persistent message is on disk when this responds.

    Responds 409 if a queue is full and rejects it; other queues may have stored it nevertheless.
    """
    host = host_of(call, use=True)
    exchange = exchange_name(call.path["name"])
    body = body_of(call, "properties", "routing_key", "payload", "payload_encoding")
    payload = _payload(text_of(body, "payload"), text_of(body, "payload_encoding"))
    properties = properties_in(table_of(body, "properties"))
    if properties.user_id is not None and properties.user_id != call.who.name:
        raise PreconditionFailed(
            f"user_id property set to '{properties.user_id}' but authenticated user was '{call.who.name}'"
        )
    try:
        directives = instructions_in(encode_properties(properties))
    except MalformedField as error:
        raise InvalidArgument(f"the properties cannot be encoded as AMQP properties: {error}") from error
    may(call, Operation.EXCHANGE_PUBLISH, host, exchange)
    key = routing_key_in(body)
    routed, logs = call.site.on_broker(lambda: _publish(host, exchange, key, directives, payload))
    for log in logs:
        log.sync()
    return {"routed": routed}


def _publish(
    host: VirtualHostRuntime, exchange: str, key: str, directives: Instructions, payload: bytes
) -> tuple[bool, dict[Log, None]]:
    """Route and put the message; return whether it was routed to any queue, and the logs to sync.

    Call it on the broker's thread. The first queue that rejects the message raises `QueueFull`: queues before it have
    the message, those after it do not.
    """
    host.check_publish(exchange)
    content = Content(exchange, key, directives.raw)
    logs: dict[Log, None] = {}
    targets = host.route(exchange, (key, *directives.copies), directives.headers)
    traffic = host.traffic[exchange]
    traffic.came += 1
    traffic.went += len(targets)
    traffic.dropped += not targets
    for broker_queue in targets:
        if not broker_queue.put(content, [payload], directives):
            host.refuse(broker_queue, content, [payload])
            raise QueueFull(f"the queue {broker_queue.name!r} is full")
        if directives.persistent and broker_queue.definition.durable:
            logs[broker_queue.queue.log] = None
    return bool(targets), logs


@routes.post(
    "/api/queues/{vhost}/{name}/get",
    needs=Needs.LOGIN,
    says="Get messages, and acknowledge, reject or requeue them.",
    takes={
        "type": "object",
        "required": ["count", "ackmode", "encoding"],
        "properties": {
            "count": {"type": "integer"},
            "ackmode": {"enum": list(_MODES)},
            "encoding": {"enum": ["auto", "base64"]},
            "truncate": {"type": "integer"},
        },
    },
)
def get(call: Call) -> list[GotMessage]:
    """Get messages from the front of a queue, and acknowledge, reject or requeue them as `ackmode` says.

    Requeued messages count as delivered once more.
    """
    host = host_of(call, use=True)
    name = call.path["name"]
    body = body_of(call, "count", "ackmode", "encoding")
    count, truncate = _whole(body, "count"), _whole(body, "truncate") if "truncate" in body else None
    mode, encoding = body["ackmode"], body["encoding"]
    if mode not in _MODES:
        raise InvalidArgument(f"unknown ackmode {mode!r}: use one of {', '.join(_MODES)}")
    if encoding not in ("auto", "base64"):
        raise InvalidArgument("Unsupported encoding. Please use auto or base64.")
    may(call, Operation.QUEUE_TAKE, host, name)
    got, left = call.site.on_broker(lambda: _get(host.broker_queue(name, None), min(count, COUNT_MAX), mode))
    return [
        message_row(one, name, left + len(got) - 1 - place, encoding=encoding, truncate=truncate)
        for place, one in enumerate(got)
    ]


def _get(broker_queue: BrokerQueue, count: int, mode: str) -> tuple[list[Delivery], int]:
    """Return and settle messages; also how many more are ready. Call it on the broker's thread."""
    got: list[Delivery] = []
    size = 0
    while len(got) < count and size < _BYTES_MAX and (delivery := broker_queue.get()) is not None:
        got.append(delivery)
        size += len(delivery.payload)
    left = broker_queue.ready()
    parts: dict[int, list[int]] = {}
    for delivery in got:
        parts.setdefault(delivery.lease, []).append(delivery.id)
    if parts:
        settle = {"ack_requeue_false": broker_queue.ack, "reject_requeue_false": broker_queue.reject}
        settle.get(mode, broker_queue.requeue)(parts)
    return got, left


def _payload(text: str, encoding: str) -> bytes:
    if encoding == "string":
        payload = text.encode("utf-8", "surrogatepass")
    elif encoding == "base64":
        try:
            payload = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidArgument("the payload is not base64") from error
    else:
        raise InvalidArgument(f"unknown payload_encoding {encoding!r}: use string or base64")
    if len(payload) > MESSAGE_MAX:
        raise InvalidArgument(f"the payload has {len(payload)} bytes: a message may have up to {MESSAGE_MAX}")
    return payload


def _whole(body: dict[str, Any], name: str) -> int:
    value = body[name]
    if (
        isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX
    ):  # as rabbitmqadmin sends it
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidArgument(f"{name!r} must be a whole number from 0 up, not {str(value)[:40]!r}")
    return value
