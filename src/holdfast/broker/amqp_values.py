"""Codec for AMQP tables and strings; decoding validates untrusted bytes.

The type codes are RabbitMQ's, not those of the specification: `s` is a signed number of 16 bits, `l` and `L` are one of
64. Python merges some types (every whole number is an `int`), so a table that is decoded and encoded again has equal
values but maybe other type codes. Where that matters, keep the original bytes.
"""

import datetime
import struct
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from holdfast.base.errors import HoldfastError

__all__ = [
    "DEPTH_MAX",
    "FieldValue",
    "LateTime",
    "Long",
    "MalformedField",
    "cut_short",
    "decode_long",
    "decode_short",
    "decode_table",
    "encode_long",
    "encode_short",
    "encode_table",
    "is_flat_table",
    "time_at",
]

DEPTH_MAX = 64
"""Greatest nesting depth of tables and arrays: far more than clients use, far less than Python's stack."""


@dataclass(frozen=True, slots=True)
class LateTime:
    """A time after the year 9999, beyond datetime's range: clients write milliseconds, and RabbitMQ accepts them.

    It is not a subclass of int: an argument that must be a number rejects it, as it rejects any other time.
    """

    seconds: int
    """Seconds after 1970."""


FieldValue: TypeAlias = (
    bool | int | float | Decimal | str | bytes | datetime.datetime | LateTime | list[Any] | dict[str, Any] | None
)
"""The Python types of a table's values."""

_U32 = struct.Struct(">I")
_TAGGED_I32 = struct.Struct(">ci")
_TAGGED_I64 = struct.Struct(">cq")
_TAGGED_F64 = struct.Struct(">cd")
_TAGGED_LENGTH = struct.Struct(">cI")
_TAGGED_DECIMAL = struct.Struct(">cBi")
_DECIMAL = struct.Struct(">Bi")
_FIXED = {
    ord(kind): struct.Struct(f">{code}")
    for kind, code in [
        ("b", "b"),
        ("B", "B"),
        ("s", "h"),
        ("u", "H"),
        ("I", "i"),
        ("i", "I"),
        ("l", "q"),
        ("L", "q"),
        ("f", "f"),
        ("d", "d"),
        ("t", "?"),
    ]
}
_STRINGS = frozenset(b"Sx")
_SIZES = {tag: form.size for tag, form in _FIXED.items()} | {ord("T"): 8, ord("D"): 5, ord("V"): 0}
_TIMESTAMP = struct.Struct(">Q")
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_SECOND = datetime.timedelta(seconds=1)
_LATEST = (datetime.datetime.max.replace(tzinfo=datetime.UTC) - _EPOCH) // _SECOND
_EMPTY = b"\x00\x00\x00\x00"


class MalformedField(HoldfastError):
    """Bytes that are not a valid AMQP field, or a Python value that cannot become one."""


class Long(int):
    """An integer that is always encoded in 64 bits: clients expect that of the count in x-death."""


def time_at(seconds: int) -> datetime.datetime | LateTime:
    """Return the time that is `seconds` after 1970."""
    return _EPOCH + datetime.timedelta(seconds=seconds) if seconds <= _LATEST else LateTime(seconds)


# Short and long strings


def encode_short(text: str) -> bytes:
    """Encode a string of at most 255 bytes, after one byte of length."""
    try:
        data = text.encode("utf-8", "surrogateescape")
        return b"%c%b" % (len(data), data)
    except (OverflowError, UnicodeEncodeError, AttributeError):
        raise MalformedField(
            f"{text!r:.80} cannot be a short string: give text of at most 255 bytes in UTF-8"
        ) from None


def decode_short(data: bytes | memoryview, offset: int, errors: str = "strict") -> tuple[str, int]:
    """Decode a short string; return it and the offset behind it.

    RabbitMQ rejects invalid UTF-8 in a method's arguments, but accepts it in properties and as keys of tables: there
    `errors="surrogateescape"` keeps the bytes, and `encode_short` writes them back.
    """
    try:
        stop = offset + 1 + data[offset]
        if stop <= len(data):
            return str(data[offset + 1 : stop], "utf-8", errors), stop
    except IndexError:
        pass
    except UnicodeDecodeError:
        raise MalformedField(f"the short string at byte {offset} is not UTF-8") from None
    raise MalformedField(f"the short string at byte {offset} is incomplete")


def cut_short(text: str) -> str:
    """Return the beginning of a text that fits into a short string, for reply texts that quote clients."""
    return text.encode("utf-8", "replace")[:255].decode("utf-8", "ignore")


def encode_long(data: bytes) -> bytes:
    """Encode a string of up to 4 GiB, after four bytes of length."""
    try:
        return _U32.pack(len(data)) + data
    except (struct.error, TypeError):
        raise MalformedField("a long string must be bytes of at most 4 GiB") from None


def decode_long(data: bytes | memoryview, offset: int) -> tuple[bytes, int]:
    """Decode a long string; return its bytes and the offset behind it."""
    start, stop = _span(data, offset, len(data))
    return bytes(data[start:stop]), stop


def _span(data: bytes | memoryview, offset: int, end: int) -> tuple[int, int]:
    """Return start and end of the bytes whose length is written at `offset`; never beyond `end`."""
    start = offset + 4
    if start <= end:
        stop = start + int.from_bytes(data[offset:start], "big")
        if stop <= end:
            return start, stop
    raise MalformedField(f"the value at byte {offset} is longer than the {end - offset} bytes that are left")


# Tables: writing


def encode_table(table: Mapping[str, FieldValue]) -> bytes:
    """Encode a table with its four bytes of length."""
    if not table:
        return _EMPTY
    try:
        return _table(table, DEPTH_MAX)
    except struct.error:
        raise MalformedField("a table must take less than 4 GiB") from None


def _table(table: Mapping[str, Any], depth: int) -> bytes:
    parts = [_EMPTY]
    for key, value in table.items():
        parts.append(encode_short(key))
        parts.append(_encoded(value, depth - 1))
    parts[0] = _U32.pack(sum(map(len, parts)) - 4)
    return b"".join(parts)


def _encoded(value: Any, depth: int) -> bytes:
    """Encode a value with its type code."""
    if depth < 0:
        raise MalformedField(f"tables and arrays may be nested at most {DEPTH_MAX} levels deep")
    write = _WRITERS.get(type(value))
    if write is None:  # a subclass, such as an IntEnum
        write = next((write for kind, write in _WRITERS.items() if isinstance(value, kind)), None)
        if write is None:
            raise MalformedField(
                f"a {type(value).__name__} cannot be in a table: use None, bool, int, float, Decimal, str, bytes, "
                "datetime, list or dict"
            )
    return write(value, depth)


def _write_int(value: int, _depth: int) -> bytes:
    # Two sizes only, as RabbitMQ's clients write them: all clients read these.
    if -0x80000000 <= value <= 0x7FFFFFFF:
        return _TAGGED_I32.pack(b"I", value)
    return _write_long(value, _depth)


def _write_long(value: int, _depth: int) -> bytes:
    try:
        return _TAGGED_I64.pack(b"l", value)
    except struct.error:
        raise MalformedField("a number in a table must fit into 64 bits") from None


def _write_str(value: str, _depth: int) -> bytes:
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise MalformedField(f"{value!r:.80} cannot be encoded in UTF-8: give it as bytes") from None
    return _TAGGED_LENGTH.pack(b"S", len(data)) + data


def _write_decimal(value: Decimal, _depth: int) -> bytes:
    sign, digits, exponent = value.as_tuple()
    # The exponent is checked before anything is multiplied out: Decimal("1E+999999999") is short only as text.
    if isinstance(exponent, int) and -255 <= exponent <= 10 and len(digits) <= 10:
        number = int("".join(map(str, digits))) * 10 ** max(exponent, 0) * (-1 if sign else 1)
        if -0x80000000 <= number <= 0x7FFFFFFF:
            return _TAGGED_DECIMAL.pack(b"D", max(-exponent, 0), number)
    raise MalformedField("a Decimal in a table has at most 255 places, and its digits must fit into 32 bits")


def _write_datetime(value: datetime.datetime, _depth: int) -> bytes:
    if value.tzinfo is None:
        raise MalformedField(f"{value} has no time zone: give a datetime with one, such as UTC")
    seconds = (value - _EPOCH) // _SECOND
    if seconds < 0:
        raise MalformedField(f"{value} is before 1970, where AMQP's time begins")
    return b"T" + _TIMESTAMP.pack(seconds)


def _write_late(value: LateTime, _depth: int) -> bytes:
    try:
        return b"T" + _TIMESTAMP.pack(value.seconds)
    except struct.error:
        raise MalformedField("a time in a table must fit into 64 bits") from None


def _write_list(value: list[Any], depth: int) -> bytes:
    data = b"".join([_encoded(item, depth - 1) for item in value])
    return _TAGGED_LENGTH.pack(b"A", len(data)) + data


_WRITERS: dict[type, Callable[[Any, int], bytes]] = {  # Long and bool before int, which they are subclasses of
    str: _write_str,
    Long: _write_long,
    bool: lambda value, _depth: b"t\x01" if value else b"t\x00",
    int: _write_int,
    float: lambda value, _depth: _TAGGED_F64.pack(b"d", value),
    bytes: lambda value, _depth: _TAGGED_LENGTH.pack(b"x", len(value)) + value,
    bytearray: lambda value, _depth: _TAGGED_LENGTH.pack(b"x", len(value)) + value,
    dict: lambda value, depth: b"F" + _table(value, depth),
    list: _write_list,
    tuple: _write_list,
    type(None): lambda _value, _depth: b"V",
    Decimal: _write_decimal,
    datetime.datetime: _write_datetime,
    LateTime: _write_late,
}


# Tables: reading


def decode_table(data: bytes | memoryview, offset: int = 0) -> tuple[dict[str, FieldValue], int]:
    """Decode the table whose length is at `offset`; return it and the offset behind it. The last of equal keys wins."""
    start, stop = _span(data, offset, len(data))
    if start == stop:
        return {}, stop
    return _read_table(data, start, stop, DEPTH_MAX), stop


def _read_table(data: bytes | memoryview, offset: int, end: int, depth: int) -> dict[str, FieldValue]:
    table: dict[str, FieldValue] = {}
    while offset < end:
        key, offset = decode_short(data, offset, "surrogateescape")
        table[key], offset = _read_value(data, offset, end, depth - 1)
    return table


def _read_value(data: bytes | memoryview, offset: int, end: int, depth: int) -> tuple[FieldValue, int]:
    """Decode the value whose type code is at `offset`; return it and the offset behind it, never beyond `end`."""
    if offset >= end:
        raise MalformedField(f"the value at byte {offset} is missing")
    if depth < 0:
        raise MalformedField(f"tables and arrays are nested more than {DEPTH_MAX} levels deep")
    tag = data[offset]
    offset += 1
    if tag == 0x53:  # S, by far the most common
        start, stop = _span(data, offset, end)
        text = data[start:stop]
        try:
            return str(text, "utf-8"), stop
        except UnicodeDecodeError:
            return bytes(text), stop
    fixed = _FIXED.get(tag)
    if fixed is not None:
        stop = offset + fixed.size
        _check(stop, end)
        return fixed.unpack_from(data, offset)[0], stop
    if tag == 0x46:  # F
        start, stop = _span(data, offset, end)
        return _read_table(data, start, stop, depth), stop
    if tag == 0x41:  # A
        start, stop = _span(data, offset, end)
        items: list[FieldValue] = []
        while start < stop:
            item, start = _read_value(data, start, stop, depth - 1)
            items.append(item)
        return items, stop
    if tag == 0x78:  # x
        start, stop = _span(data, offset, end)
        return bytes(data[start:stop]), stop
    if tag == 0x54:  # T
        _check(offset + 8, end)
        (seconds,) = _TIMESTAMP.unpack_from(data, offset)
        return time_at(seconds), offset + 8
    if tag == 0x56:  # V
        return None, offset
    if tag == 0x44:  # D: RabbitMQ keeps the digits as they are, clients write them signed
        _check(offset + 5, end)
        places, digits = _DECIMAL.unpack_from(data, offset)
        return Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -places)), offset + 5
    raise MalformedField(f"{chr(tag)!r} at byte {offset - 1} is not a field type")


def is_flat_table(data: bytes, offset: int, end: int, without: Container[bytes]) -> bool:
    """Whether these bytes are a well-formed table of scalar values without any of these names. Nothing is decoded.

    False may also mean that it is not well-formed: `decode_table` finds out. May raise IndexError, for the same reason.
    """
    while offset < end:
        stop = offset + 1 + data[offset]
        if data[offset + 1 : stop] in without:
            return False
        tag = data[stop]
        if tag in _STRINGS:
            offset = stop + 5 + int.from_bytes(data[stop + 1 : stop + 5], "big")
        elif (size := _SIZES.get(tag)) is not None:
            offset = stop + 1 + size
        else:
            return False
    return offset == end


def _check(stop: int, end: int) -> None:
    if stop > end:
        raise MalformedField(f"a value extends beyond the end of its table at byte {end}")
