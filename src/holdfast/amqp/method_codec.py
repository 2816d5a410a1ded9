"""Codec for method arguments, derived from the annotations of each method's NamedTuple.

A method is a NamedTuple whose fields are annotated with the types below, in the order of the wire, under `@wire` with
its numbers. Tuples and not frozen dataclasses: creating one takes a third of the time, and each message needs one.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, TypeVar, get_type_hints

from holdfast.broker.amqp_values import (
    FieldValue,
    MalformedField,
    decode_long,
    decode_short,
    decode_table,
    encode_long,
    encode_short,
    encode_table,
)

__all__ = [
    "DECLARED",
    "NO_FIELDS",
    "Bit",
    "Layout",
    "Long",
    "LongLong",
    "LongStr",
    "Octet",
    "Short",
    "ShortStr",
    "Table",
    "wire",
]

Octet = Annotated[int, "B"]
Short = Annotated[int, "H"]
Long = Annotated[int, "I"]
LongLong = Annotated[int, "Q"]
Bit = Annotated[bool, "bit"]
ShortStr = Annotated[str, "short"]
LongStr = Annotated[bytes, "long"]
Table = Annotated[Mapping[str, FieldValue], "table"]

NO_FIELDS: Mapping[str, FieldValue] = MappingProxyType({})
"""The empty table, shared by all methods."""

_BITS_MAX = 8
_NO_NUMBERS = struct.Struct("")
M = TypeVar("M", bound=tuple[Any, ...])


class Layout:
    """The arguments of one method. Adjacent numbers are packed together, and up to eight bits share an octet."""

    __slots__ = ("_steps",)

    def __init__(self, kinds: Sequence[str]) -> None:
        runs: list[list[str]] = []
        for kind in kinds:
            if runs and _joins(runs[-1], kind):
                runs[-1].append(kind)
            else:
                runs.append([kind])
        self._steps = [
            ("numbers", struct.Struct(">" + "".join(run)), len(run))
            if len(run[0]) == 1
            else (run[0], _NO_NUMBERS, len(run))
            for run in runs
        ]

    def encode(self, values: Sequence[Any]) -> bytes:
        """Encode the arguments. A value that does not fit its type raises `MalformedField`."""
        parts = []
        place = 0
        for kind, numbers, count in self._steps:
            value = values[place]
            if kind == "short":
                parts.append(encode_short(value))
            elif kind == "bit":
                bits = values[place : place + count]
                parts.append(bytes((sum(1 << shift for shift, bit in enumerate(bits) if bit),)))
            elif kind == "numbers":
                try:
                    parts.append(numbers.pack(*values[place : place + count]))
                except struct.error as error:
                    raise MalformedField(f"{values[place : place + count]} do not fit their types: {error}") from None
            elif kind == "table":
                parts.append(encode_table(value))
            else:
                parts.append(encode_long(value))
            place += count
        return b"".join(parts)

    def decode(self, data: bytes, offset: int) -> list[Any]:
        """Decode the values from `offset` to the end; missing or extra bytes raise `MalformedField`."""
        values: list[Any] = []
        for kind, numbers, count in self._steps:
            if kind == "short":
                value, offset = decode_short(data, offset)
                values.append(value)
            elif kind == "bit":
                if offset >= len(data):
                    raise MalformedField("the arguments end before their bits")
                octet = data[offset]
                values += [octet >> shift & 1 == 1 for shift in range(count)]
                offset += 1
            elif kind == "numbers":
                if offset + numbers.size > len(data):
                    raise MalformedField(f"the arguments end before the number at byte {offset}")
                values += numbers.unpack_from(data, offset)
                offset += numbers.size
            elif kind == "table":
                table, offset = decode_table(data, offset)
                values.append(table)
            else:
                long, offset = decode_long(data, offset)
                values.append(long)
        if offset != len(data):
            raise MalformedField(f"{len(data) - offset} bytes follow the arguments")
        return values


def _joins(run: list[str], kind: str) -> bool:
    if kind == "bit":
        return run[0] == "bit" and len(run) < _BITS_MAX
    return len(kind) == 1 and len(run[0]) == 1


DECLARED: dict[type, tuple[int, int, Layout]] = {}
"""Every method: the number of its class, its own number and its layout."""


def wire(class_id: int, method_id: int) -> Callable[[type[M]], type[M]]:
    """Declare the NamedTuple below as the method with these numbers."""

    def declare(method: type[M]) -> type[M]:
        kinds = [hint.__metadata__[0] for hint in get_type_hints(method, include_extras=True).values()]
        DECLARED[method] = class_id, method_id, Layout(kinds)
        return method

    return declare
