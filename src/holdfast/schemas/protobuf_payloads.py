"""Payloads in Protobuf: messages of a descriptor set as columns, their decoding, and compatibility of two."""

import base64
import datetime
from collections.abc import Callable
from typing import Any

from holdfast.base.errors import InvalidArgument, is_interrupt
from holdfast.schemas.column_types import Column, DataType, DecimalType, ListType, MapType, Scalar, StructType
from holdfast.schemas.libraries import load

__all__ = ["parse_protobuf", "protobuf_columns", "protobuf_reader", "unreadable_message"]

Convert = Callable[[Any], Any]
_PLAIN = {
    "double": "double",
    "float": "float",
    "int64": "long",
    "int32": "integer",
    "fixed32": "long",  # unsigned: beyond an INT
    "bool": "boolean",
    "string": "string",
    "bytes": "binary",
    "uint32": "long",
    "enum": "string",
    "sfixed32": "integer",
    "sfixed64": "long",
    "sint32": "integer",
    "sint64": "long",
}
_TYPES = (
    *("", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group", "message"),
    *("bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)
"""The types of fields by their numbers in descriptors."""
_WIDER = {
    "int32": ("int64",),
    "uint32": ("uint64", "int64"),
    "bool": ("int32", "int64", "uint32", "uint64"),
    "enum": ("int32", "int64"),
    "sint32": ("sint64",),
    "string": ("bytes",),
}
"""As which other types a field can be read without a change of its value: same encoding, and at least as wide."""
_TIME, _DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
_WELL_KNOWN = ("any", "duration", "empty", "field_mask", "struct", "timestamp", "wrappers")


def parse_protobuf(text: str, message: str | None) -> Any:
    """Return the descriptor of a message in a descriptor set in base64."""
    descriptor_pb2 = load("google.protobuf.descriptor_pb2", "protobuf")
    descriptor_pool = load("google.protobuf.descriptor_pool", "protobuf")
    try:
        files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(text, validate=True)).file
    except Exception as error:
        if is_interrupt(error):
            raise
        raise InvalidArgument(
            f"this is not a descriptor set, as protoc --descriptor_set_out writes it: {error}"
        ) from None
    if not files:
        raise InvalidArgument(
            "the descriptor set is empty: write it with protoc --include_imports --descriptor_set_out"
        )
    pool = descriptor_pool.DescriptorPool()
    _add_all(pool, {one.name: one for one in files})
    if message is None:
        named = list(files[-1].message_type)
        if len(named) != 1:
            names = ", ".join(one.name for one in named) or "none"
            raise InvalidArgument(f"give the name of the message: {files[-1].name!r} has {names}")
        message = ".".join(part for part in (files[-1].package, named[0].name) if part)
    try:
        return pool.FindMessageTypeByName(message)
    except KeyError:
        known = ", ".join(f"{one.package}.{each.name}".lstrip(".") for one in files for each in one.message_type)
        raise InvalidArgument(f"the descriptor set has no message {message!r}; it has: {known[:500]}") from None


def protobuf_columns(descriptor: Any) -> StructType:
    """Return the columns of a message."""
    return _struct(descriptor, ())


def protobuf_reader(descriptor: Any) -> Callable[[bytes, int], Any]:
    """Return a function that decodes the payload of a record to a dict, which Arrow takes; it raises ValueError."""
    factory = load("google.protobuf.message_factory", "protobuf")
    errors = load("google.protobuf.message", "protobuf").DecodeError
    make = factory.GetMessageClass(descriptor).FromString
    convert = _message_converter(descriptor)

    def read(payload: bytes, sequence: int) -> Any:
        try:
            found = make(payload)
        except errors as error:
            raise ValueError(f"it is not Protobuf of this message: {error}") from error
        if not found.IsInitialized():
            raise ValueError(f"required fields are missing: {', '.join(found.FindInitializationErrors())}")
        return convert(found)

    return read


def unreadable_message(reader: Any, writer: Any, done: set[tuple[str, str]] | None = None) -> str | None:
    """Return why a reader with one descriptor cannot read what was written with another; None if it can.

    Fields are the same if they have the same number, whatever their names are. Fields that one side does not have are
    skipped, or have their defaults.
    """
    done = set() if done is None else done
    if (pair := (reader.full_name, writer.full_name)) in done:
        return None
    done.add(pair)
    for number, field in reader.fields_by_number.items():
        written = writer.fields_by_number.get(number)
        where = f"the field {field.name!r} ({number})"
        if written is None:
            if field.is_required:
                return f"{where} is required, and was not written"
            continue
        if field.is_required and not written.is_required:
            return f"{where} is required, and was optional"
        if field.is_repeated != written.is_repeated:
            return f"{where} {'was not repeated' if field.is_repeated else 'was repeated'}"
        had, has = _TYPES[written.type], _TYPES[field.type]
        if had != has and has not in _WIDER.get(had, ()):
            return f"{where} was {had}, and is {has}"
        if "message" in (had, has) or "group" in (had, has):
            problem = unreadable_message(field.message_type, written.message_type, done)
            if problem is not None:
                return f"{problem}, in {where}"
    return None


def _add_all(pool: Any, files: dict[str, Any]) -> None:
    """Add files to a pool, each after those that it imports."""
    done: set[str] = set()

    def add(name: str, needed_by: str) -> None:
        if name in done:
            return
        done.add(name)
        one = files.get(name) or _well_known(name)
        if one is None:
            raise InvalidArgument(
                f"{needed_by!r} imports {name!r}, which the descriptor set does not have: write it with protoc "
                "--include_imports --descriptor_set_out"
            )
        for dependency in one.dependency:
            add(dependency, name)
        try:
            pool.AddSerializedFile(one.SerializeToString())
        except Exception as error:
            if is_interrupt(error):
                raise
            raise InvalidArgument(f"the descriptor set is invalid: {error}") from None

    for name in files:
        add(name, name)


def _well_known(name: str) -> Any:
    word = name.removeprefix("google/protobuf/").removesuffix(".proto")
    if name != f"google/protobuf/{word}.proto" or word not in _WELL_KNOWN:
        return None
    descriptor_pb2 = load("google.protobuf.descriptor_pb2", "protobuf")
    found = descriptor_pb2.FileDescriptorProto()
    load(f"google.protobuf.{word}_pb2", "protobuf").DESCRIPTOR.CopyToProto(found)
    return found


def _struct(descriptor: Any, within: tuple[str, ...]) -> StructType:
    if descriptor.full_name in within:
        raise InvalidArgument(f"the message {descriptor.full_name!r} contains itself: Spark has no recursive types")
    inner = (*within, descriptor.full_name)
    return StructType(tuple(Column(one.name, _field_type(one, inner)) for one in descriptor.fields))


def _field_type(field: Any, within: tuple[str, ...]) -> DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return MapType(_single_type(entry["key"], within), _single_type(entry["value"], within))
    single = _single_type(field, within)
    return ListType(single) if field.is_repeated else single


def _single_type(field: Any, within: tuple[str, ...]) -> DataType:
    kind = _TYPES[field.type]
    if kind in ("message", "group"):
        match field.message_type.full_name:
            case name if name == _TIME:
                return Scalar("timestamp")
            case name if name == _DURATION:
                return Scalar("interval day to second")
        return _struct(field.message_type, within)
    return DecimalType(20, 0) if kind in ("uint64", "fixed64") else Scalar(_PLAIN[kind])


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _message_converter(descriptor: Any) -> Convert:
    plans = [(field.name, _converter(field), field.has_presence) for field in descriptor.fields]

    def convert(message: Any) -> dict[str, Any]:
        has = message.HasField
        return {
            name: value if inner is None else inner(value)
            for name, inner, optional in plans
            if not optional or has(name)
            for value in (getattr(message, name),)
        }

    return convert


def _converter(field: Any) -> Convert | None:
    """Return a function that prepares a field's value for Arrow; None if Arrow takes it as it is."""
    if _is_map(field):
        inner = _single_converter(field.message_type.fields_by_name["value"]) or _same
        return lambda value: [(key, inner(value[key])) for key in value]
    single = _single_converter(field)
    if field.is_repeated:
        return list if single is None else lambda value: [single(one) for one in value]
    return single


def _single_converter(field: Any) -> Convert | None:
    kind = _TYPES[field.type]
    if kind == "enum":
        names = {number: one.name for number, one in field.enum_type.values_by_number.items()}
        return lambda value: names.get(value, str(value))  # a number that this version does not have
    if kind not in ("message", "group"):
        return None
    match field.message_type.full_name:
        case name if name == _TIME:
            return lambda value: value.ToDatetime(tzinfo=datetime.UTC)
        case name if name == _DURATION:
            return lambda value: value.ToTimedelta()
    return _message_converter(field.message_type)


def _same(value: Any) -> Any:
    return value
