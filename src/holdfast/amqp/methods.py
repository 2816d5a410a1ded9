"""Encoding and decoding of all AMQP 0-9-1 methods, with RabbitMQ's extensions; `spec` declares them.

The three methods that are sent for each message have a codec of their own; all others follow their declaration.
"""

import re
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from holdfast.amqp import spec
from holdfast.amqp.frames import METHOD, FrameError, frame
from holdfast.amqp.spec import *  # noqa: F403 - every method is a public name of this module, too
from holdfast.amqp.spec import METHODS, BasicAck, BasicDeliver, BasicPublish, Method
from holdfast.broker.amqp_values import (
    MalformedField,
    decode_long,
    decode_short,
    decode_table,
    encode_long,
    encode_short,
    encode_table,
)

__all__ = ["Layout", "MethodError", "decode_method", "encode_method", "ids_in", "method_frame"]
__all__ += spec.__all__

_TOO_SHORT, _MALFORMED, _UNKNOWN = 501, 501, 540
_ACK = struct.Struct(">4xQB")
_DELIVERY = struct.Struct(">QB")
_NO_NUMBERS = struct.Struct("")


class MethodError(FrameError):
    """An invalid method frame: 540 if its method is unknown, 501 if its arguments are malformed."""

    def __init__(self, code: int, text: str, class_id: int = 0, method_id: int = 0) -> None:
        super().__init__(code, text)
        self.class_id = class_id
        self.method_id = method_id


class Layout:
    """The arguments of one method, by their types as in `METHODS`.

    Adjacent numbers are packed together, and up to eight bits share an octet.
    """

    __slots__ = ("_steps",)

    def __init__(self, kinds: str) -> None:
        self._steps = [
            ("number", struct.Struct(">" + run), len(run)) if run[0] in "BHIQ" else (run[0], _NO_NUMBERS, len(run))
            for run in re.findall(r"[BHIQ]+|\?{1,8}|[sST]", kinds)
        ]

    def encode(self, values: Sequence[Any]) -> bytes:
        """Encode the arguments. A value that does not fit its type raises `MalformedField`."""
        parts = []
        place = 0
        for kind, numbers, count in self._steps:
            value = values[place]
            if kind == "s":
                parts.append(encode_short(value))
            elif kind == "?":
                bits = values[place : place + count]
                parts.append(bytes((sum(1 << shift for shift, bit in enumerate(bits) if bit),)))
            elif kind == "number":
                try:
                    parts.append(numbers.pack(*values[place : place + count]))
                except struct.error as error:
                    raise MalformedField(f"{values[place : place + count]} do not fit their types: {error}") from None
            elif kind == "T":
                parts.append(encode_table(value))
            else:
                parts.append(encode_long(value))
            place += count
        return b"".join(parts)

    def decode(self, data: bytes, offset: int) -> list[Any]:
        """Decode the values from `offset` to the end; missing or extra bytes raise `MalformedField`."""
        values: list[Any] = []
        for kind, numbers, count in self._steps:
            if kind == "s":
                value, offset = decode_short(data, offset)
                values.append(value)
            elif kind == "?":
                if offset >= len(data):
                    raise MalformedField("the arguments end before their bits")
                octet = data[offset]
                values += [octet >> shift & 1 == 1 for shift in range(count)]
                offset += 1
            elif kind == "number":
                if offset + numbers.size > len(data):
                    raise MalformedField(f"the arguments end before the number at byte {offset}")
                values += numbers.unpack_from(data, offset)
                offset += numbers.size
            elif kind == "T":
                table, offset = decode_table(data, offset)
                values.append(table)
            else:
                long, offset = decode_long(data, offset)
                values.append(long)
        if offset != len(data):
            raise MalformedField(f"{len(data) - offset} bytes follow the arguments")
        return values


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


_ENCODERS: dict[type, Callable[[Method], bytes]] = {}
_DECODERS: dict[bytes, Callable[[bytes], Method]] = {}
_NAMES: dict[bytes, str] = {}


def _declare(method: type[Method], class_id: int, method_id: int, kinds: str) -> None:
    prefix, layout = struct.pack(">HH", class_id, method_id), Layout(kinds)
    _ENCODERS[method] = _encoder(prefix, layout)
    # A NamedTuple's own `_make` checks the length, which a layout always gets right.
    _DECODERS[prefix] = _decoder(partial(tuple.__new__, method), layout)
    _NAMES[prefix] = method.__name__


for _method, _declaration in METHODS.items():
    _declare(_method, *_declaration)
_ENCODERS[BasicDeliver] = _encode_deliver
_DECODERS[b"\x00\x3c\x00\x50"] = _decode_ack
_DECODERS[b"\x00\x3c\x00\x28"] = _decode_publish
