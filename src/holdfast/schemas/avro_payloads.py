"""Payloads in Avro: columns of a schema, schema resolution with the version that wrote a payload, and its rules.

A payload is the bare datum, or Avro's single-object encoding, which names the schema by its fingerprint.
"""

import io
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.base.errors import InvalidArgument, is_interrupt
from holdfast.schemas.column_types import (
    DEPTH_MAX,
    Column,
    DataType,
    DecimalType,
    ListType,
    MapType,
    Scalar,
    StructType,
    parse_columns,
)
from holdfast.schemas.libraries import load
from holdfast.schemas.payload_schema import SchemaVersion

__all__ = ["avro_columns", "avro_reader", "parse_avro", "unreadable"]

_SINGLE_OBJECT = b"\xc3\x01"
_FINGERPRINT_END = 10
_KNOWN_LOGICAL = {
    "decimal": ("bytes", "fixed"),
    "date": ("int",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "local-timestamp-millis": ("long",),
    "local-timestamp-micros": ("long",),
}
"""Logical types that Spark has columns for; of all others the plain value is shown, as in Spark."""
_LOGICAL_COLUMNS = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
}
_PLAIN = {
    "boolean": "boolean",
    "int": "integer",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "binary",
    "enum": "string",
    "fixed": "binary",
}
_WIDER = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""What else a value may be read as, by the specification."""
Named = dict[str, Any]


def parse_avro(text: str) -> tuple[Any, StructType]:
    """Return an Avro schema in fastavro's parsed form, and its columns.

    DDL, and the JSON of a StructType, stand for the schema that Spark's `to_avro` writes for such a column.
    """
    fastavro = load("fastavro", "avro")
    columns: StructType | None = None
    try:
        given = json.loads(text) if text.lstrip().startswith(("{", "[", '"')) else None
    except ValueError as error:
        raise InvalidArgument(f"the Avro schema is not JSON: {error}") from None
    if given is None or (isinstance(given, dict) and given.get("type") == "struct"):
        columns = parse_columns(text)
        given = _from_columns(columns, nullable=False, name="topLevelRecord", namespace="")
    try:
        parsed = fastavro.parse_schema(_without_unknown_types(given))
    except Exception as error:
        if is_interrupt(error):
            raise
        raise InvalidArgument(f"this is not an Avro schema: {error}") from None
    if not isinstance(parsed, dict) or parsed.get("type") != "record":
        raise InvalidArgument("the Avro schema of payloads must be a record: its fields are the columns")
    return parsed, columns or avro_columns(parsed)


def avro_columns(parsed: Any) -> StructType:
    """Return the columns of a record, as Spark's Avro source has them."""
    found = _column_type(parsed, _names_in(parsed), ())[0]
    assert isinstance(found, StructType)
    return found


def avro_reader(
    versions: Sequence[SchemaVersion], reader: SchemaVersion, *, strict: bool
) -> Callable[[bytes, int], Any]:
    """Return a function that decodes the payload of a record to what `reader` has; it raises ValueError.

    A bare datum is read with the version that was the newest when it was written, known by its sequence. With `strict`
    it must be of `reader`.
    """
    fastavro = load("fastavro", "avro")
    target, _ = parse_avro(reader.schema.text)
    parsed = [parse_avro(version.schema.text)[0] for version in versions]
    by_fingerprint = {_fingerprint(fastavro, each): each for each in parsed}
    since = [version.since for version in versions]
    decode = fastavro.schemaless_reader

    def read(payload: bytes, sequence: int) -> Any:
        if payload[:2] == _SINGLE_OBJECT and (known := by_fingerprint.get(payload[2:_FINGERPRINT_END])) is not None:
            return read_with(known, payload, _FINGERPRINT_END)
        at = len(parsed) if strict else bisect_right(since, sequence)
        return read_with(parsed[max(0, at - 1)], payload, 0)

    def read_with(writer: Any, payload: bytes, start: int) -> Any:
        stream = io.BytesIO(payload)
        stream.seek(start)
        try:
            # The same schema twice would be resolved field by field, for nothing.
            found = decode(stream, writer) if writer is target else decode(stream, writer, target)
        except Exception as error:
            if is_interrupt(error):
                raise
            raise ValueError(f"it is not Avro of this schema: {type(error).__name__}: {error}") from error
        if stream.tell() != len(payload):
            raise ValueError(f"it has {len(payload) - stream.tell()} bytes after the record: it is of another schema")
        return found

    if any(each == target for each in parsed):
        target = next(each for each in parsed if each == target)
    return read


def unreadable(reader: Any, writer: Any) -> str | None:
    """Return why a reader with one schema cannot read what was written with another; None if it can.

    The rules of schema resolution in Avro's specification; also, a logical type must stay what it is, because fastavro
    would read other values.
    """
    return _Resolution(_names_in(reader), _names_in(writer)).problem(reader, writer, "the record")


class _Resolution:
    """Comparison of two schemas. Records that refer to themselves are compared once."""

    def __init__(self, readers: Named, writers: Named) -> None:
        self._readers = readers
        self._writers = writers
        self._compared: set[tuple[str, str]] = set()

    def problem(self, reader: Any, writer: Any, where: str) -> str | None:
        reader, writer = self._readers.get(_key(reader), reader), self._writers.get(_key(writer), writer)
        if isinstance(writer, list):
            return next((text for one in writer if (text := self.problem(reader, one, where))), None)
        if isinstance(reader, list):
            problems = [self.problem(one, writer, where) for one in reader]
            return None if None in problems else f"{where} may be {_word(writer)}, which the reader does not have"
        of_reader, of_writer = _kind(reader), _kind(writer)
        if of_reader != of_writer:
            is_wider = of_reader in _WIDER.get(of_writer, ()) and not (_logical(reader) or _logical(writer))
            return None if is_wider else f"{where} is {_word(writer)}, and {_word(reader)} for the reader"
        if _meaning(reader) != _meaning(writer):
            return f"{where} is {_word(writer)}, and {_word(reader)} for the reader"
        match of_reader:
            case "record":
                return self._records(reader, writer, where)
            case "array":
                return self.problem(reader["items"], writer["items"], f"an item of {where}")
            case "map":
                return self.problem(reader["values"], writer["values"], f"a value of {where}")
            case "enum":
                gone = [one for one in writer["symbols"] if one not in reader["symbols"]]
                if gone and "default" not in reader:
                    return f"{where} may be {gone[0]!r}, which the reader does not have, and it has no default"
                return self._names(reader, writer, where)
            case "fixed":
                if reader["size"] != writer["size"]:
                    return f"{where} has {writer['size']} bytes, and {reader['size']} for the reader"
                return self._names(reader, writer, where)
        return None

    def _records(self, reader: Any, writer: Any, where: str) -> str | None:
        pair = reader["name"], writer["name"]
        if pair in self._compared:
            return None
        self._compared.add(pair)
        if problem := self._names(reader, writer, where):
            return problem
        written = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            names = [field["name"], *field.get("aliases", ())]
            found = next((written[name] for name in names if name in written), None)
            if found is None:
                if "default" not in field:
                    return f"the field {field['name']!r} is missing, and has no default"
            elif problem := self.problem(field["type"], found["type"], f"the field {field['name']!r}"):
                return problem
        return None

    @staticmethod
    def _names(reader: Any, writer: Any, where: str) -> str | None:
        names = {_short(name) for name in (reader["name"], *reader.get("aliases", ()))}
        if _short(writer["name"]) in names:
            return None
        return f"{where} is named {writer['name']!r}, and {reader['name']!r} for the reader: give it an alias"


def _fingerprint(fastavro: Any, parsed: Any) -> bytes:
    form = fastavro.schema.to_parsing_canonical_form(parsed)
    return bytes.fromhex(fastavro.schema.fingerprint(form, "CRC-64-AVRO"))


def _without_unknown_types(given: Any) -> Any:
    """Return a schema without logical types that have no column: fastavro would make objects of them."""
    if isinstance(given, list):
        return [_without_unknown_types(one) for one in given]
    if not isinstance(given, dict):
        return given
    known = _KNOWN_LOGICAL.get(str(given.get("logicalType")), ())
    return {
        name: value if name == "default" else _without_unknown_types(value)
        for name, value in given.items()
        if name != "logicalType" or given.get("type") in known
    }


def _names_in(parsed: Any) -> Named:
    """Return the records, enums and fixeds in a parsed schema by their full names."""
    found: Named = {}

    def walk(one: Any) -> None:
        if isinstance(one, list):
            for each in one:
                walk(each)
        elif isinstance(one, dict):
            if "name" in one and one.get("type") in ("record", "error", "enum", "fixed"):
                found[one["name"]] = one
            for field in one.get("fields", ()):
                walk(field["type"])
            for inner in ("items", "values", "type"):
                if isinstance(one.get(inner), dict | list):
                    walk(one[inner])

    walk(parsed)
    return found


def _column_type(given: Any, names: Named, within: tuple[str, ...]) -> tuple[DataType, bool]:
    """Return the type of a schema as a column, and whether it may be null."""
    given = names.get(_key(given), given)
    if isinstance(given, list):
        return _union_type(given, names, within)
    kind = _kind(given)
    match kind:
        case "record":
            name = given["name"]
            if name in within or len(within) > DEPTH_MAX:
                raise InvalidArgument(f"the Avro record {name!r} contains itself: Spark has no recursive types")
            columns = []
            for field in given["fields"]:
                inner, nullable = _column_type(field["type"], names, (*within, name))
                columns.append(Column(field["name"], inner, nullable))
            return StructType(tuple(columns)), False
        case "array":
            return ListType(*_column_type(given["items"], names, within)), False
        case "map":
            return MapType(Scalar("string"), *_column_type(given["values"], names, within)), False
        case "null":
            return Scalar("string"), True
    if _logical(given) == "decimal":
        return DecimalType(given["precision"], given.get("scale", 0)), False
    return Scalar(_LOGICAL_COLUMNS.get(_logical(given), _PLAIN[kind])), False


def _union_type(branches: list[Any], names: Named, within: tuple[str, ...]) -> tuple[DataType, bool]:
    others = [one for one in branches if _kind(one) != "null"]
    nullable = len(others) < len(branches)
    if len(others) == 1:
        return _column_type(others[0], names, within)[0], nullable
    kinds = {_kind(names.get(_key(one), one)) for one in others}
    if kinds == {"int", "long"} and not any(map(_logical, others)):
        return Scalar("long"), nullable
    if kinds == {"float", "double"}:
        return Scalar("double"), nullable
    if not others:
        return Scalar("string"), True
    words = ", ".join(_word(one) for one in others)
    raise InvalidArgument(f"an Avro union of {words} cannot be a column: only one type and null, or two widths, can")


def _from_columns(kind: DataType, *, nullable: bool, name: str, namespace: str) -> Any:
    """Return the Avro schema that Spark's `to_avro` writes for a column."""
    inner_space = f"{namespace}.{name}" if namespace else name
    found: Any
    match kind:
        case Scalar(scalar):
            found = {
                "byte": "int",
                "short": "int",
                "integer": "int",
                "binary": "bytes",
                "date": {"type": "int", "logicalType": "date"},
                "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
                "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
            }.get(scalar, scalar)
        case DecimalType(precision, scale):
            size = next(size for size in range(1, 17) if 1 << (8 * size - 1) > 10**precision)
            found = {
                "type": "fixed",
                "name": f"{inner_space}.fixed",
                "size": size,
                "logicalType": "decimal",
                "precision": precision,
                "scale": scale,
            }
        case ListType(item, has_nulls):
            found = {"type": "array", "items": _from_columns(item, nullable=has_nulls, name=name, namespace=namespace)}
        case MapType(Scalar("string"), value, has_nulls):
            found = {"type": "map", "values": _from_columns(value, nullable=has_nulls, name=name, namespace=namespace)}
        case MapType():
            raise InvalidArgument("a map in Avro has keys of type STRING only")
        case StructType(columns):
            found = {"type": "record", "name": name, "fields": []}
            if namespace:
                found["namespace"] = namespace
            for column in columns:
                if not re.fullmatch(r"[A-Za-z_]\w*", column.name, re.ASCII):
                    raise InvalidArgument(f"{column.name!r} is not a name in Avro: give an Avro schema instead")
                inner = _from_columns(column.type, nullable=column.nullable, name=column.name, namespace=inner_space)
                found["fields"].append({"name": column.name, "type": inner})
    return [found, "null"] if nullable else found


def _key(given: Any) -> str:
    return given if isinstance(given, str) else ""


def _kind(given: Any) -> str:
    if isinstance(given, str):
        return given
    if isinstance(given, list):
        return "union"
    kind = given["type"]
    return "record" if kind == "error" else kind if isinstance(kind, str) else _kind(kind)


def _logical(given: Any) -> str:
    """Return the logical type; empty for a plain type."""
    return str(given.get("logicalType", "")) if isinstance(given, dict) else ""


def _meaning(given: Any) -> str:
    """Return the logical type with its parameters; empty for a plain type."""
    logical = _logical(given)
    return f"decimal({given['precision']}, {given.get('scale', 0)})" if logical == "decimal" else logical


def _word(given: Any) -> str:
    return _meaning(given) or _kind(given)


def _short(name: str) -> str:
    return name.rpartition(".")[2]
