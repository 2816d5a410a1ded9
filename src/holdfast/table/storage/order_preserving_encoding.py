"""Order-preserving encoding of values: bytes sort as the values do, and no encoding is a prefix of another one.

| kind | bytes |
|---|---|
| bool | 00 or 01 |
| int | 80 + n and n bytes for 0 and more; 7F - n and n bytes of the complement of -1 - value below; n as few as do |
| float | 8 bytes IEEE 754; positive with the sign bit flipped, negative with every bit flipped; -0.0 as 0.0; NaN last |
| decimal | class: -infinity 00, negative 01, zero 02, positive 03, infinity 04, NaN 05; if neither infinite nor zero, |
| | the exponent of the first digit as int, pairs of digits plus one, 00; all this complemented if negative |
| str, bytes, reference | UTF-8 or the bytes, 00 as 01 01 and 01 as 01 02; then 00 |
| enum | its value |
| date | 3 bytes: the day's number, 0001-01-01 is 1 |
| time | 5 bytes: microseconds since midnight |
| datetime | 8 bytes: microseconds since 1970 in UTC, plus 2**63 |
| timedelta | 9 bytes: microseconds plus 2**71 |
| uuid | its 16 bytes |

Ending text with 00 and escaping 00 as 00 FF was rejected: an end is then the beginning of an escape, and `a` of `a\\0`.
"""

import math
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from holdfast.base.errors import InvalidArgument
from holdfast.table.model.types import FieldType, Kind

__all__ = [
    "complement",
    "decode",
    "decode_reversed",
    "encode",
    "encoder",
    "fixed_size",
    "successor",
    "text_prefix",
]

_COMPLEMENT = bytes(255 - byte for byte in range(256))
_FLOAT = struct.Struct(">d")
_WORD = struct.Struct(">Q")
_SIGN = 1 << 63
_ALL = (1 << 64) - 1
_NAN = _WORD.pack(0x7FF8_0000_0000_0000 | _SIGN)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_US = 86_400_000_000
_MICROSECOND = timedelta(microseconds=1)
_FARTHEST = timedelta(days=1) - _MICROSECOND
"""The greatest distance from UTC that a time zone can have."""
_LONG = 1 << 71

_MINUS_INFINITE, _MINUS, _ZERO, _PLUS, _INFINITE, _NOT_A_NUMBER = (bytes((byte,)) for byte in range(6))

_FIXED = {
    Kind.BOOL: 1,
    Kind.FLOAT: 8,
    Kind.DATE: 3,
    Kind.TIME: 5,
    Kind.DATETIME: 8,
    Kind.UUID: 16,
    Kind.TIMEDELTA: 9,
}

Encoder = Callable[[Any], bytes]


def complement(data: bytes) -> bytes:
    """Return every byte inverted, which reverses the order. Its own inverse."""
    return data.translate(_COMPLEMENT)


def successor(prefix: bytes) -> bytes | None:
    """Return the first bytes behind all that begin with the prefix; None if there are none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,)) if kept else None


def fixed_size(ftype: FieldType) -> int | None:
    """Return how many bytes every value of the type takes; None if they differ."""
    return _FIXED.get(ftype.kind)


def encoder(ftype: FieldType) -> Encoder:
    """Return the function that encodes values of a type, for callers that encode many."""
    if ftype.enum is not None:
        by_text = all(isinstance(member.value, str) for member in ftype.enum)
        codes = {member: (_encode_str if by_text else _encode_int)(member.value) for member in ftype.enum}
        return codes.__getitem__
    try:
        return _ENCODERS[ftype.kind]
    except KeyError:
        raise InvalidArgument(f"{ftype} has no order: only single values can be in a key or an index") from None


def encode(ftype: FieldType, value: Any) -> bytes:
    """Return a value as bytes that sort as the value does; equal values give equal bytes."""
    return encoder(ftype)(value)


def decode(ftype: FieldType, data: bytes, at: int = 0) -> tuple[Any, int]:
    """Return the value encoded at this offset, and the offset behind it; raises InvalidArgument if there is none."""
    try:
        if ftype.enum is not None:
            return _decode_enum(ftype.enum, data, at)
        return _DECODERS[ftype.kind](data, at)
    except (ArithmeticError, IndexError, ValueError, struct.error) as error:
        raise InvalidArgument(f"{data.hex()} has no {ftype} at byte {at}: {error}") from error
    except KeyError:
        raise InvalidArgument(f"{ftype} has no order: only single values can be in a key or an index") from None


def decode_reversed(ftype: FieldType, data: bytes, at: int = 0) -> tuple[Any, int]:
    """As `decode`, of the complement of an encoding."""
    value, length = decode(ftype, complement(data[at:]))
    return value, at + length


def text_prefix(value: str | bytes) -> bytes:
    """Return the common beginning of the encodings of all text or bytes with this prefix."""
    return _escaped(value.encode() if isinstance(value, str) else value)


def _escaped(raw: bytes) -> bytes:
    # Twice as fast as testing first: `in` of bytes is slow, a `replace` without a match is not.
    return raw.replace(b"\x01", b"\x01\x02").replace(b"\x00", b"\x01\x01")


def _encode_bool(value: Any) -> bytes:
    return b"\x01" if value else b"\x00"


def _decode_bool(data: bytes, at: int) -> tuple[bool, int]:
    if data[at] > 1:
        raise ValueError(f"{data[at]:#x} is neither false nor true")
    return data[at] == 1, at + 1


def _encode_int(value: int) -> bytes:
    if value >= 0:
        size = (value.bit_length() + 7) >> 3
        return (0x80 + size).to_bytes(1, "big") + value.to_bytes(size, "big")
    size = ((~value).bit_length() + 7) >> 3
    return (0x7F - size).to_bytes(1, "big") + ((1 << 8 * size) + value).to_bytes(size, "big")


def _decode_int(data: bytes, at: int) -> tuple[int, int]:
    head = data[at]
    size = head - 0x80 if head >= 0x80 else 0x7F - head
    raw = _slice(data, at + 1, size)
    value = int.from_bytes(raw, "big") - (0 if head >= 0x80 else 1 << 8 * size)
    return value, at + 1 + size


def _encode_float(value: float) -> bytes:
    if math.isnan(value):
        return _NAN
    bits = _WORD.unpack(_FLOAT.pack(value or 0.0))[0]
    return _WORD.pack(bits ^ (_ALL if bits & _SIGN else _SIGN))


def _decode_float(data: bytes, at: int) -> tuple[float, int]:
    bits = _WORD.unpack_from(data, at)[0]
    return _FLOAT.unpack(_WORD.pack(bits ^ (_SIGN if bits & _SIGN else _ALL)))[0], at + 8


def _encode_decimal(value: Any) -> bytes:
    value = Decimal(value)  # an exact step also for int and float
    if not value.is_finite():
        return _NOT_A_NUMBER if value.is_nan() else _INFINITE if value > 0 else _MINUS_INFINITE
    if not value:
        return _ZERO
    # normalize() would round to the context's precision, so the digits are taken as they are.
    digits = "".join(map(str, value.as_tuple().digits)).strip("0")
    if len(digits) & 1:
        digits += "0"
    body = _encode_int(value.adjusted())
    body += bytes(int(digits[i : i + 2]) + 1 for i in range(0, len(digits), 2)) + b"\x00"
    return _PLUS + body if value > 0 else _MINUS + complement(body)


def _decode_decimal(data: bytes, at: int) -> tuple[Decimal, int]:
    kind, at = _slice(data, at, 1), at + 1
    if kind == _MINUS:
        value, length = _decode_decimal(_PLUS + complement(data[at:]), 0)
        return value.copy_negate(), at + length - 1
    if kind != _PLUS:
        texts = {_ZERO: "0", _INFINITE: "Infinity", _MINUS_INFINITE: "-Infinity", _NOT_A_NUMBER: "NaN"}
        if kind not in texts:
            raise ValueError(f"{kind!r} is not a class of decimals")
        return Decimal(texts[kind]), at
    adjusted, at = _decode_int(data, at)
    end = data.index(b"\x00", at)
    digits = "".join(f"{pair - 1:02d}" for pair in data[at:end]).rstrip("0")
    return Decimal(f"{digits}E{adjusted - len(digits) + 1}"), end + 1


def _encode_str(value: str) -> bytes:
    if "\x00" in value or "\x01" in value:
        return _escaped(value.encode()) + b"\x00"
    return value.encode() + b"\x00"


def _decode_str(data: bytes, at: int) -> tuple[str, int]:
    raw, at = _decode_bytes(data, at)
    return raw.decode(), at


def _encode_bytes(value: bytes) -> bytes:
    return _escaped(value) + b"\x00"


def _decode_bytes(data: bytes, at: int) -> tuple[bytes, int]:
    end = data.index(b"\x00", at)
    raw = data[at:end]
    if b"\x01" in raw:
        raw = raw.replace(b"\x01\x01", b"\x00").replace(b"\x01\x02", b"\x01")
    return raw, end + 1


def _encode_date(value: date) -> bytes:
    return value.toordinal().to_bytes(3, "big")


def _decode_date(data: bytes, at: int) -> tuple[date, int]:
    return date.fromordinal(int.from_bytes(_slice(data, at, 3), "big")), at + 3


def _encode_time(value: time) -> bytes:
    of_day = ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    return of_day.to_bytes(5, "big")


def _decode_time(data: bytes, at: int) -> tuple[time, int]:
    of_day = int.from_bytes(_slice(data, at, 5), "big")
    if of_day >= _DAY_US:
        raise ValueError("it is longer than a day")
    return (datetime.min + timedelta(microseconds=of_day)).time(), at + 5


def _encode_datetime(value: datetime) -> bytes:
    since = value - _EPOCH
    return _WORD.pack((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds + _SIGN)


def _decode_datetime(data: bytes, at: int) -> tuple[datetime, int]:
    since = timedelta(microseconds=_WORD.unpack_from(data, at)[0] - _SIGN)
    try:
        return _EPOCH + since, at + 8
    except OverflowError:
        # On the first and last possible day, the instant may have a date only in another time zone.
        zone = timezone(_FARTHEST if since < timedelta() else -_FARTHEST)
        return (_EPOCH.replace(tzinfo=None) + (since + zone.utcoffset(None))).replace(tzinfo=zone), at + 8


def _encode_timedelta(value: timedelta) -> bytes:
    return (value // _MICROSECOND + _LONG).to_bytes(9, "big")


def _decode_timedelta(data: bytes, at: int) -> tuple[timedelta, int]:
    return (int.from_bytes(_slice(data, at, 9), "big") - _LONG) * _MICROSECOND, at + 9


def _encode_uuid(value: UUID) -> bytes:
    return value.bytes


def _decode_uuid(data: bytes, at: int) -> tuple[UUID, int]:
    return UUID(bytes=_slice(data, at, 16)), at + 16


def _decode_enum(enum: type[Enum], data: bytes, at: int) -> tuple[Enum, int]:
    by_text = all(isinstance(member.value, str) for member in enum)
    value, at = _decode_str(data, at) if by_text else _decode_int(data, at)
    return enum(value), at


def _slice(data: bytes, at: int, size: int) -> bytes:
    raw = data[at : at + size]
    if len(raw) < size:
        raise ValueError(f"it ends after {len(raw)} of {size} bytes")
    return raw


_ENCODERS: dict[Kind, Encoder] = {
    Kind.BOOL: _encode_bool,
    Kind.INT: _encode_int,
    Kind.FLOAT: _encode_float,
    Kind.DECIMAL: _encode_decimal,
    Kind.STR: _encode_str,
    Kind.BYTES: _encode_bytes,
    Kind.REFERENCE: _encode_bytes,
    Kind.DATE: _encode_date,
    Kind.TIME: _encode_time,
    Kind.DATETIME: _encode_datetime,
    Kind.UUID: _encode_uuid,
    Kind.TIMEDELTA: _encode_timedelta,
}
_DECODERS: dict[Kind, Callable[[bytes, int], tuple[Any, int]]] = {
    Kind.BOOL: _decode_bool,
    Kind.INT: _decode_int,
    Kind.FLOAT: _decode_float,
    Kind.DECIMAL: _decode_decimal,
    Kind.STR: _decode_str,
    Kind.BYTES: _decode_bytes,
    Kind.REFERENCE: _decode_bytes,
    Kind.DATE: _decode_date,
    Kind.TIME: _decode_time,
    Kind.DATETIME: _decode_datetime,
    Kind.UUID: _decode_uuid,
    Kind.TIMEDELTA: _decode_timedelta,
}
