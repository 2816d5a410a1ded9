"""Columns, decoding and compatibility of payloads in any of the formats."""

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.base.errors import InvalidArgument
from holdfast.schemas.arrow_payloads import arrow_reader
from holdfast.schemas.avro_payloads import avro_reader, parse_avro, unreadable
from holdfast.schemas.column_compatibility import unreadable_columns
from holdfast.schemas.column_types import DataType, ListType, StructType, parse_columns
from holdfast.schemas.payload_schema import PayloadSchema, SchemaVersion
from holdfast.schemas.protobuf_payloads import parse_protobuf, protobuf_columns, protobuf_reader, unreadable_message
from holdfast.schemas.record_payloads import record_reader

__all__ = ["Read", "check_compatible", "incompatibility", "payload_columns", "payload_reader", "payload_type"]

Read = Callable[[bytes, int], Any]
"""Decodes the payload of the record with this sequence; raises ValueError if it is not of the schema."""


def payload_columns(schema: PayloadSchema) -> StructType:
    """Return the columns of a schema. Raises `InvalidArgument` if its text is invalid."""
    match schema.format:
        case "avro":
            found = parse_avro(schema.text)[1]
        case "protobuf":
            found = protobuf_columns(parse_protobuf(schema.text, schema.message))
        case _:
            found = parse_columns(schema.text)
    if not found.columns:
        raise InvalidArgument("a schema must have at least one column")
    return found


def payload_type(schema: PayloadSchema) -> DataType:
    """Return the type of a payload as one column: a struct or, in the format arrow, an array of structs."""
    columns = payload_columns(schema)
    return ListType(columns) if schema.format == "arrow" else columns


def payload_reader(versions: Sequence[SchemaVersion], version: SchemaVersion, *, strict: bool = False) -> Read:
    """Return a function that decodes payloads that were written with `versions` to the columns of `version`.

    With `strict` only what a producer may write with `version` is accepted, with all columns that are NOT NULL.
    """
    schema = version.schema
    match schema.format:
        case "avro":
            return avro_reader(versions, version, strict=strict)
        case "protobuf":
            return protobuf_reader(parse_protobuf(schema.text, schema.message))
        case "arrow":
            return arrow_reader(payload_columns(schema), strict=strict)
    return record_reader(schema.format, payload_columns(schema), strict=strict)


def incompatibility(reader: PayloadSchema, writer: PayloadSchema) -> str | None:
    """Return why payloads of one schema cannot be read with another one; None if they can."""
    if reader.format != writer.format:
        return f"the format was {writer.format}, and is {reader.format}"
    match reader.format:
        case "avro":
            return unreadable(parse_avro(reader.text)[0], parse_avro(writer.text)[0])
        case "protobuf":
            return unreadable_message(
                parse_protobuf(reader.text, reader.message), parse_protobuf(writer.text, writer.message)
            )
    return unreadable_columns(parse_columns(reader.text), parse_columns(writer.text))


def check_compatible(schema: PayloadSchema, kept: Sequence[SchemaVersion]) -> None:
    """Raise `InvalidArgument` if a schema is not compatible with all versions, by its own rule.

    With all, not only with the last one: the log has records of all of them.
    """
    payload_columns(schema)
    if kept and kept[-1].schema.format != schema.format:
        raise InvalidArgument(
            f"the payloads of this log have the format {kept[-1].schema.format}, so a schema in {schema.format} does "
            "not apply to them: use another log"
        )
    for version in kept:
        if schema.compatibility in ("backward", "full"):
            _refuse(incompatibility(schema, version.schema), "backward", f"cannot read version {version.number}")
        if schema.compatibility in ("forward", "full"):
            _refuse(incompatibility(version.schema, schema), "forward", f"cannot be read with version {version.number}")


def _refuse(problem: str | None, rule: str, what: str) -> None:
    if problem is not None:
        raise InvalidArgument(f"the schema is not {rule} compatible: it {what}: {problem}")
