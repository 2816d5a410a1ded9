"""Columns of each view: as DDL for Spark, and as the exact Arrow types that Spark expects."""

import pyarrow as pa

from holdfast.schemas.column_types import quoted

__all__ = ["LIFECYCLE", "LOG", "MESSAGES", "arrow_schema", "ddl"]

TIME = pa.timestamp("us", "UTC")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""As in Spark's Kafka source. The column `textHeaders` names the headers whose values are text, so that queries on
`headers`, and `map_from_entries(headers)`, are the same as for Kafka."""
TEXT_HEADERS = pa.list_(pa.string())
"""The names of the headers whose values are text; the others are bytes. Null where a record has no headers."""

LOG = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIME),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
        ("priority", pa.int32()),
        ("expiry", TIME),
        ("producer", pa.int64()),
        ("textHeaders", TEXT_HEADERS),
    ]
)
"""A record of a log: the columns of Spark's Kafka source, then Holdfast's own."""

LIFECYCLE = pa.schema(
    [
        ("queue", pa.string()),
        ("message", pa.int64()),  # its sequence in the log; null for events of a whole lease or queue
        ("event", pa.string()),
        ("time", TIME),
        ("lease", pa.int64()),
        ("attempt", pa.int32()),  # 1 is the first delivery
        ("priority", pa.int32()),
        ("cause", pa.string()),  # the cause, as in the journal: attempts, ttl, overflow, ...
        ("reason", pa.string()),  # the text a consumer gave
        ("until", TIME),  # put, nacked, ...: not delivered before; leased, extended: held until
        ("target", pa.string()),  # the queue it moves to
        ("source", pa.int64()),  # put: its sequence in the queue it was moved from
        ("upto", pa.int64()),  # purged, sought, cut: all messages below this sequence
        ("position", pa.int64()),  # of the record in the journal (for put: in the log)
    ]
)
"""An event of a message."""

MESSAGES = pa.schema(
    [
        ("queue", pa.string()),
        ("message", pa.int64()),
        ("state", pa.string()),  # ready, delayed, leased, acked, dead
        ("attempts", pa.int32()),
        ("priority", pa.int32()),
        ("time", TIME),  # when it was put
        ("due", TIME),  # delayed: when it can be delivered
        ("lease", pa.int64()),
        ("expires", TIME),  # leased: when the lease expires
        ("reason", pa.string()),  # of the last failure
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
        ("textHeaders", TEXT_HEADERS),
    ]
)
"""The present state of a message of a queue."""

_TYPES = {
    pa.binary(): "BINARY",
    pa.string(): "STRING",
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "LONG",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
    pa.duration("us"): "INTERVAL DAY TO SECOND",
    TIME: "TIMESTAMP",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
}


def ddl(schema: pa.Schema) -> str:
    """Return the schema as Spark's DDL."""
    return ", ".join(f"{quoted(field.name)} {_type(field.type)}" for field in schema)


def arrow_schema(schema: pa.Schema, columns: list[str]) -> pa.Schema:
    """Return the requested columns, in the requested order."""
    return pa.schema([schema.field(name) for name in columns])


def _type(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return f"STRUCT<{', '.join(f'{quoted(field.name)}: {_type(field.type)}' for field in kind)}>"
    if pa.types.is_map(kind):
        return f"MAP<{_type(kind.key_type)}, {_type(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{_type(kind.value_type)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    return _TYPES[kind]
