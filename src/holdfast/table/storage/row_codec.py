"""Encoding of records, of their rows in the state and of events in the log."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from struct import Struct, pack, unpack_from
from typing import Any, NamedTuple

from holdfast.base.errors import Corrupt, raised_by_handler
from holdfast.table.model.fields import FieldSpec
from holdfast.table.model.model import Model
from holdfast.table.storage.order_preserving_encoding import encode as ordered

__all__ = [
    "Event",
    "EventKind",
    "Images",
    "Row",
    "decode_event",
    "decode_row",
    "encode_event",
    "encode_row",
    "image_of",
    "plain_images",
    "row_after",
    "versions_of",
]

_EVENT_FORM, _ROW_FORM, _FIELD_FORM = "<BBHQQ", "<BxHQQ", "HQ"
_EVENT, _ROW, _FIELD = Struct(_EVENT_FORM), Struct(_ROW_FORM), Struct("<" + _FIELD_FORM)
_VERSIONS = Struct("<QQ")
_DELETED = 1


@dataclass(frozen=True, slots=True)
class Images:
    """Codec of records, with sensitive fields sealed or without."""

    encode: Callable[[bytes, Any], bytes]
    """Called with a record's key and the record; returns its image."""
    decode: Callable[[bytes, bytes], Any]
    """Called with a record's key and its image; returns the record."""
    unique: Callable[[FieldSpec, Any], bytes]
    """Returns the bytes that represent a unique value in the state."""


def plain_images(model: type[Model]) -> Images:
    """Return the codec for records without sensitive fields."""
    decode, encode_record = model.__spec__.decode, model.__spec__.encode
    return Images(
        encode=lambda _, record: encode_record(record),
        decode=lambda _, image: decode(image),
        unique=lambda spec, value: ordered(spec.type, value),
    )


class EventKind(IntEnum):
    """Kind of change of a record."""

    ADD = 1
    CHANGE = 2
    DELETE = 3
    """Soft delete: the record is kept, and hidden."""
    UNDELETE = 4
    HARD_DELETE = 5
    """The record and its history are deleted from the state; its earlier events stay in the log."""
    SNAPSHOT = 6
    """The same record at the same version, encoded again: written by `reseal` with the current key."""


class Event(NamedTuple):
    """A change of one record, stored as a record of the table's log."""

    kind: EventKind
    version: int
    created: int
    """The version that added it."""
    deleted: bool
    fields: tuple[int, ...]
    """The numbers of the fields that this changed."""
    image: bytes
    """All fields as they are afterwards; empty after a hard delete."""


class Row(NamedTuple):
    """A record as the state stores it."""

    created: int
    version: int
    deleted: bool
    fields: dict[int, int]
    """By number the version of each field that was changed after the creation."""
    image: bytes


def row_after(old: Row | None, event: Event) -> Row | None:
    """Return the row that results from an event; None after a hard delete."""
    if event.kind is EventKind.HARD_DELETE:
        return None
    fields = {} if old is None else old.fields | dict.fromkeys(event.fields, event.version)
    return Row(event.created, event.version, event.deleted, fields, event.image)


def encode_event(event: Event) -> bytes:
    """Return the payload of a log record."""
    kind, version, created, deleted, fields, image = event
    if not fields:
        return _EVENT.pack(kind, deleted, 0, version, created) + image
    count = len(fields)
    return pack(f"{_EVENT_FORM}{count}H", kind, deleted, count, version, created, *fields) + image


def decode_event(payload: bytes) -> Event:
    """Return the event of a log record; raise `Corrupt` if it is not one."""
    try:
        kind, flags, count, version, created = _EVENT.unpack_from(payload)
        fields = unpack_from(f"<{count}H", payload, _EVENT.size)
        image = payload[_EVENT.size + 2 * count :]
        return Event(EventKind(kind), version, created, bool(flags & _DELETED), fields, bytes(image))
    except ValueError as error:
        if raised_by_handler(error):
            raise
        raise Corrupt(f"a record of this log is not a change of a table: {error}") from error
    except Exception as error:  # struct.error is not a ValueError
        if raised_by_handler(error):
            raise
        raise Corrupt(f"a record of this log is too short for a change of a table: {error}") from error


def encode_row(row: Row) -> bytes:
    """Return the bytes of a row."""
    created, version, deleted, fields, image = row
    if not fields:
        return _ROW.pack(deleted, 0, created, version) + image
    count = len(fields)
    form = _ROW_FORM + _FIELD_FORM * count
    return pack(form, deleted, count, created, version, *chain.from_iterable(fields.items())) + image


def decode_row(raw: bytes) -> Row:
    """Return the row of these bytes; raise `Corrupt` if they are not one."""
    try:
        flags, count, created, version = _ROW.unpack_from(raw)
        stop = _ROW.size + count * _FIELD.size
        if stop > len(raw):
            raise Corrupt("a row of a table is truncated: rebuild the table")
        fields = dict(_FIELD.iter_unpack(raw[_ROW.size : stop])) if count else {}
        return Row(created, version, bool(flags & _DELETED), fields, raw[stop:])
    except Corrupt:
        raise
    except Exception as error:
        if raised_by_handler(error):
            raise
        raise Corrupt(f"a row of a table cannot be decoded: {error}") from error


def image_of(raw: bytes) -> tuple[int, int, int, bytes]:
    """Return the parts of a row that most readers need: flags, created, version and image."""
    flags, count, created, version = _ROW.unpack_from(raw)
    return flags, created, version, raw[_ROW.size + count * _FIELD.size :]


def versions_of(raw: bytes) -> tuple[int, int]:
    """Return the version that added a row's record, and the row's own."""
    created, version = _VERSIONS.unpack_from(raw, 4)
    return created, version
