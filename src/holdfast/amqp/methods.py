"""Encoding and decoding of all AMQP 0-9-1 methods, with RabbitMQ's extensions.

The three methods that are sent for each message have a codec of their own; all others follow their declaration.
"""

import struct
from collections.abc import Callable
from typing import Any, TypeAlias

from holdfast.amqp.control_methods import (
    AccessRequest,
    AccessRequestOk,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUnblocked,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
)
from holdfast.amqp.frames import METHOD, FrameError, frame
from holdfast.amqp.message_methods import (
    BasicAck,
    BasicCancel,
    BasicCancelOk,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicGetOk,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    BasicRecover,
    BasicRecoverAsync,
    BasicRecoverOk,
    BasicReject,
    BasicReturn,
    ConfirmSelect,
    ConfirmSelectOk,
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)
from holdfast.amqp.method_codec import DECLARED, Layout
from holdfast.amqp.topology_methods import (
    ExchangeBind,
    ExchangeBindOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    ExchangeDelete,
    ExchangeDeleteOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
    QueuePurge,
    QueuePurgeOk,
    QueueUnbind,
    QueueUnbindOk,
)
from holdfast.broker.amqp_values import MalformedField, encode_short

__all__ = [
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
    "MethodError",
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
    "decode_method",
    "encode_method",
    "ids_in",
    "method_frame",
]

Method: TypeAlias = tuple[Any, ...]
"""Any of the NamedTuples of this module."""

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

_TOO_SHORT, _MALFORMED, _UNKNOWN = 501, 501, 540
_ACK = struct.Struct(">4xQB")
_DELIVERY = struct.Struct(">QB")


class MethodError(FrameError):
    """An invalid method frame: 540 if its method is unknown, 501 if its arguments are malformed."""

    def __init__(self, code: int, text: str, class_id: int = 0, method_id: int = 0) -> None:
        super().__init__(code, text)
        self.class_id = class_id
        self.method_id = method_id


def decode_method(payload: bytes | memoryview) -> Method:
    """Decode a method frame's payload. Raises only `MethodError`."""
    if type(payload) is not bytes:
        payload = bytes(payload)
    decode = _DECODERS.get(payload[:4])
    if decode is None:
        raise _unknown(payload)
    try:
        return decode(payload)
    except (MalformedField, struct.error, IndexError, UnicodeDecodeError) as error:
        class_id, method_id = struct.unpack_from(">HH", payload)
        name = _NAMES[payload[:4]]
        raise MethodError(_MALFORMED, f"malformed arguments of {name}: {error}", class_id, method_id) from None


def encode_method(method: Method) -> bytes:
    """Encode the payload of a method frame. A value that does not fit its type raises `MalformedField`."""
    encode = _ENCODERS.get(type(method))
    if encode is None:
        raise MalformedField(f"{type(method).__name__} is not a method of AMQP 0-9-1")
    return encode(method)


def method_frame(channel: int, method: Method) -> bytes:
    """Return a whole frame with a method in it."""
    return frame(METHOD, channel, encode_method(method))


def ids_in(payload: bytes) -> tuple[int, int]:
    """Return the class id and method id that a method's payload begins with, as a close reports them."""
    return int.from_bytes(payload[:2], "big"), int.from_bytes(payload[2:4], "big")


def _unknown(payload: bytes) -> MethodError:
    if len(payload) < 4:
        return MethodError(_TOO_SHORT, f"method frame of {len(payload)} bytes is too short: it has at least 4")
    class_id, method_id = struct.unpack_from(">HH", payload)
    return MethodError(_UNKNOWN, f"method {method_id} of class {class_id} is unknown", class_id, method_id)


def _encoder(prefix: bytes, layout: Layout) -> Callable[[Method], bytes]:
    encode = layout.encode
    return lambda method: prefix + encode(method)


def _decoder(made: Callable[[list[Any]], Method], layout: Layout) -> Callable[[bytes], Method]:
    decode = layout.decode
    return lambda payload: made(decode(payload, 4))


# Methods that are sent for each message


def _decode_ack(payload: bytes) -> BasicAck:
    delivery_tag, bits = _ACK.unpack(payload)
    return BasicAck(delivery_tag, bits & 1 == 1)


def _decode_publish(payload: bytes) -> BasicPublish:
    middle = 7 + payload[6]
    end = middle + 1 + payload[middle]
    bits = payload[end]
    if end + 1 != len(payload):
        raise MalformedField(f"{len(payload) - end - 1} bytes follow the arguments")
    return BasicPublish(
        payload[4] << 8 | payload[5],
        str(payload[7:middle], "utf-8"),
        str(payload[middle + 1 : end], "utf-8"),
        bits & 1 == 1,
        bits & 2 == 2,
    )


def _encode_deliver(method: Method) -> bytes:
    consumer_tag, delivery_tag, redelivered, exchange, routing_key = method
    try:
        delivery = _DELIVERY.pack(delivery_tag, 1 if redelivered else 0)
    except struct.error:
        raise MalformedField(f"{delivery_tag!r:.80} is not a delivery tag: it must fit into 64 bits") from None
    return b"\x00\x3c\x00\x3c%b%b%b%b" % (
        encode_short(consumer_tag),
        delivery,
        encode_short(exchange),
        encode_short(routing_key),
    )


_PREFIXES = {method: struct.pack(">HH", *numbers[:2]) for method, numbers in DECLARED.items()}
_NAMES = {prefix: method.__name__ for method, prefix in _PREFIXES.items()}
_ENCODERS: dict[type, Callable[[Method], bytes]] = {
    method: _encoder(_PREFIXES[method], layout) for method, (_, _, layout) in DECLARED.items()
}
_ENCODERS[BasicDeliver] = _encode_deliver
_DECODERS: dict[bytes, Callable[[bytes], Method]] = {
    _PREFIXES[method]: _decoder(method._make, layout)  # type: ignore[attr-defined]  # which every NamedTuple has
    for method, (_, _, layout) in DECLARED.items()
}
_DECODERS[_PREFIXES[BasicAck]] = _decode_ack
_DECODERS[_PREFIXES[BasicPublish]] = _decode_publish
