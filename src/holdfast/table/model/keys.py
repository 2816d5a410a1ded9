"""Record keys: a UUIDv7, or the ordered encodings of some final fields, concatenated."""

import os
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.base.clock import SystemClock
from holdfast.base.errors import InvalidArgument
from holdfast.table.model.field_path import parse_path, variant_of
from holdfast.table.model.indexes import getter
from holdfast.table.model.types import FieldType, Kind
from holdfast.table.storage.order_preserving_encoding import (
    complement,
    decode,
    decode_reversed,
    encoder,
    fixed_size,
)

if TYPE_CHECKING:
    from holdfast.table.model.fields import FieldRef
    from holdfast.table.model.model import ModelSpec

__all__ = ["KeyLayout", "KeySource"]

_UUID_SIZE = 16
_TEXT = FieldType(Kind.STR)


class _Time(Protocol):
    def time_ns(self) -> int: ...


class KeySource:
    """Makes UUIDv7 keys, each greater than the one before; with its own clock and random bytes a run can be replayed.

    The 12 bits behind the milliseconds are the rest of the time, and count on when keys come faster than the clock
    goes (RFC 9562, 6.2, method 3). Safe in threads.
    """

    def __init__(self, clock: _Time, random: Callable[[int], bytes] = os.urandom) -> None:
        self._clock = clock
        self._random = random
        self._last = 0
        self._lock = threading.Lock()

    def new(self) -> bytes:
        """Return a new key."""
        milliseconds, rest = divmod(self._clock.time_ns(), 1_000_000)
        now = milliseconds << 12 | (rest << 12) // 1_000_000
        tail = int.from_bytes(self._random(8), "big") >> 2
        with self._lock:
            self._last = now = max(now, self._last + 1)
        return ((now >> 12) << 80 | 7 << 76 | (now & 0xFFF) << 64 | 2 << 62 | tail).to_bytes(_UUID_SIZE, "big")


_SOURCE = KeySource(SystemClock())
"""Shared by all tables with the system clock: keys ascend across the whole process."""


class _Field:
    """One part of a composed key."""

    __slots__ = ("decode", "encode", "get", "name", "size")

    def __init__(self, spec: "ModelSpec", ref: "FieldRef") -> None:
        self.name = f"type({ref.path})" if ref.type_of else ref.path
        ftype = _TEXT if ref.type_of else ref.type
        plain = encoder(ftype)
        self.encode: Callable[[Any], bytes] = (lambda value: complement(plain(value))) if ref.reversed else plain
        self.decode = partial(decode_reversed if ref.reversed else decode, ftype)
        self.size = fixed_size(ftype)
        get = getter(spec, parse_path(ref.path))
        if ref.type_of:
            name_of = variant_of(ref.type)
            self.get: Callable[[Any], Any] = lambda record: name_of(get(record))
        else:
            self.get = get


class KeyLayout:
    """How the keys of a table are made and parsed."""

    def __init__(self, spec: "ModelSpec", clock: _Time | None = None, source: KeySource | None = None) -> None:
        self._name = spec.name
        self._fields = [_Field(spec, ref) for ref in spec.key or ()]
        sizes = [field.size for field in self._fields]
        self.size: int | None = None if None in sizes else sum(size or 0 for size in sizes) or _UUID_SIZE
        """The length of every key; None if they differ."""
        self.composed = bool(self._fields)
        """Whether keys are made of fields."""
        if source is None:
            source = _SOURCE if clock is None or isinstance(clock, SystemClock) else KeySource(clock)
        self._source = source

    def new(self) -> bytes:
        """Return a new UUIDv7."""
        return self._source.new()

    def key_of(self, record: Any) -> bytes:
        """Return the key made of an object's fields; a new UUIDv7 if keys are not made of fields."""
        if not self.composed:
            return self._source.new()
        return b"".join([field.encode(self._present(field, field.get(record))) for field in self._fields])

    def parts(self, key: bytes) -> dict[str, Any]:
        """Return the values that a key is made of; none for a UUIDv7."""
        values, at = {}, 0
        for field in self._fields:
            values[field.name], at = field.decode(key, at)
        if self.composed and at != len(key):
            raise InvalidArgument(f"{key.hex()} is not a key of {self._name}: it has {len(key) - at} bytes too many")
        return values

    def check(self, key: bytes, record: Any = None) -> None:
        """Raise InvalidArgument if these bytes cannot be a key of the table, or are not the key of this object."""
        if not isinstance(key, bytes):
            raise InvalidArgument(f"a key of {self._name} must be bytes, not {type(key).__name__}")
        if self.size is not None and len(key) != self.size:
            raise InvalidArgument(f"a key of {self._name} has {self.size} bytes, not {len(key)}")
        if not self.composed:
            return
        values = self.parts(key)
        if b"".join([field.encode(values[field.name]) for field in self._fields]) != key:
            raise InvalidArgument(f"{key.hex()} is not a key of {self._name}: its values are encoded differently")
        if record is not None and self.key_of(record) != key:
            raise InvalidArgument(
                f"{key.hex()} is not the key of this {self._name}: leave it out, it is made of the fields"
            )

    def _present(self, field: _Field, value: Any) -> Any:
        if value is None:
            raise InvalidArgument(f"{field.name} is a part of the key of {self._name}: it must have a value")
        return value
