"""Which schema may follow which: the rules of each format, and that they agree with the libraries that read."""

import io
import json
import random
from typing import Any

import fastavro
import msgspec
import pytest
from fastavro.utils import generate_one

from holdfast import InvalidArgument, PayloadSchema, SchemaVersion
from holdfast.schemas.formats import check_compatible, incompatibility, payload_reader
from tests.schemas.descriptors import class_of, message, text_of
from tests.tiers import rounds


def schema(format: str, text: Any) -> PayloadSchema:
    return PayloadSchema(format, text if isinstance(text, str) else json.dumps(text))


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


COLUMNS = [
    ("a INT", "a INT", None),
    ("a INT, b STRING", "a INT", None),
    ("a INT", "a INT, b STRING", None),
    ("a INT, b STRING NOT NULL", "a INT", "'b' is missing"),
    ("a INT NOT NULL", "a INT", "'a' may be null"),
    ("a INT", "a INT NOT NULL", None),
    ("a BIGINT", "a INT", None),
    ("a INT", "a BIGINT", "'a' is BIGINT, and INT"),
    ("a DOUBLE", "a FLOAT", None),
    ("a DOUBLE", "a INT", None),
    ("a DOUBLE", "a BIGINT", "DOUBLE"),
    ("a DECIMAL(12, 2)", "a DECIMAL(10, 2)", None),
    ("a DECIMAL(12, 4)", "a DECIMAL(10, 2)", None),
    ("a DECIMAL(12, 1)", "a DECIMAL(10, 2)", "DECIMAL"),
    ("a DECIMAL(10, 4)", "a DECIMAL(10, 2)", "DECIMAL"),
    ("a DECIMAL(10, 0)", "a INT", None),
    ("a DECIMAL(9, 0)", "a INT", "DECIMAL"),
    ("a STRING", "a INT", "'a' is INT, and STRING"),
    ("a ARRAY<BIGINT>", "a ARRAY<INT>", None),
    ("a ARRAY<INT>", "a ARRAY<STRING>", "an item of the column 'a'"),
    ("a MAP<STRING, BIGINT>", "a MAP<STRING, INT>", None),
    ("a MAP<STRING, INT>", "a MAP<STRING, BIGINT>", "a value of"),
    ("a STRUCT<b: INT, c: INT>", "a STRUCT<b: INT>", None),
    ("a STRUCT<b: INT, c: INT NOT NULL>", "a STRUCT<b: INT>", "'c' is missing"),
    ("a STRUCT<b: INT>", "a ARRAY<INT>", "'a' is ARRAY"),
]


@pytest.mark.parametrize("format", ["json", "msgpack", "arrow"])
@pytest.mark.parametrize(("reader", "writer", "why"), COLUMNS)
def test_columns(format: str, reader: str, writer: str, why: str | None) -> None:
    found = incompatibility(schema(format, reader), schema(format, writer))
    assert found is None if why is None else found is not None and why in found


VALUES: dict[str, Any] = {
    "TINYINT": -128,
    "INT": 2**31 - 1,
    "BIGINT": 2**63 - 1,
    "FLOAT": 0.5,
    "DOUBLE": 1e300,
    "DECIMAL(10, 2)": "12345678.25",
    "DECIMAL(12, 4)": "12345678.2525",
    "STRING": "text",
    "BOOLEAN": True,
    "DATE": "2026-01-31",
}


@pytest.mark.parametrize("format", ["json", "msgpack"])
@pytest.mark.parametrize("reader", VALUES)
@pytest.mark.parametrize("writer", VALUES)
def test_what_columns_may_become_is_read(format: str, reader: str, writer: str) -> None:
    """The rules promise no more than msgspec keeps."""
    if incompatibility(schema(format, f"a {reader}"), schema(format, f"a {writer}")) is None:
        codec = msgspec.json if format == "json" else msgspec.msgpack
        payload = codec.encode({"a": VALUES[writer]})
        version = SchemaVersion(1, schema(format, f"a {reader}"), 0, 0)
        assert float_of(payload_reader([version], version)(payload, 0)["a"]) == float_of(VALUES[writer])


def float_of(value: Any) -> Any:
    try:
        return float(value)
    except (TypeError, ValueError):
        return str(value)


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
WIDER_ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}
NODE = record(field("next", ["null", "R"]), field("n", "int"))
AVRO: list[tuple[Any, Any, str | None]] = [
    (record(field("a", "int")), record(field("a", "int")), None),
    (record(field("a", "long")), record(field("a", "int")), None),
    (record(field("a", "double")), record(field("a", "float")), None),
    (record(field("a", "bytes")), record(field("a", "string")), None),
    (record(field("a", "int")), record(field("a", "long")), "'a' is long, and int"),
    (record(field("a", "string")), record(field("a", "int")), "'a' is int, and string"),
    (record(), record(field("a", "int")), None),
    (record(field("a", "int")), record(), "'a' is missing"),
    (record(field("a", "int", default=1)), record(), None),
    (record(field("b", "int", aliases=["a"])), record(field("a", "int")), None),
    (record(field("a", ["null", "int"])), record(field("a", "int")), None),
    (record(field("a", "int")), record(field("a", ["null", "int"])), "'a' is null"),
    (record(field("a", ["null", "string"])), record(field("a", ["null", "int"])), "may be int"),
    (record(field("a", ENUM)), record(field("a", WIDER_ENUM)), "may be 'C'"),
    (record(field("a", ENUM | {"default": "A"})), record(field("a", WIDER_ENUM)), None),
    (record(field("a", WIDER_ENUM)), record(field("a", ENUM)), None),
    (record(field("a", "int"), name="S"), record(field("a", "int")), "give it an alias"),
    (record(field("a", "int"), name="S", aliases=["R"]), record(field("a", "int")), None),
    (record(field("a", "int"), namespace="x"), record(field("a", "int")), None),
    (
        record(field("a", {"type": "array", "items": "long"})),
        record(field("a", {"type": "array", "items": "int"})),
        None,
    ),
    (
        record(field("a", {"type": "map", "values": "int"})),
        record(field("a", {"type": "map", "values": "string"})),
        "a value of the field 'a'",
    ),
    (
        record(field("a", {"type": "fixed", "name": "F", "size": 4})),
        record(field("a", {"type": "fixed", "name": "F", "size": 5})),
        "has 5 bytes",
    ),
    (
        record(field("a", {"type": "long", "logicalType": "timestamp-micros"})),
        record(field("a", {"type": "long", "logicalType": "timestamp-millis"})),
        "'a' is timestamp-millis",
    ),
    (
        record(field("i", record(field("a", "long"), name="I"))),
        record(field("i", record(field("a", "int"), name="I"))),
        None,
    ),
]


@pytest.mark.parametrize(("reader", "writer", "why"), AVRO)
def test_avro(reader: Any, writer: Any, why: str | None) -> None:
    found = incompatibility(schema("avro", reader), schema("avro", writer))
    assert found is None if why is None else found is not None and why in found


@pytest.mark.parametrize(("reader", "writer", "why"), AVRO)
def test_fastavro_reads_what_the_rules_allow_and_fails_where_they_do_not(
    reader: Any, writer: Any, why: str | None
) -> None:
    random.seed(11)
    parsed = fastavro.parse_schema(writer)
    failures = 0
    for _ in range(rounds(50, 20)):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, generate_one(parsed))
        try:
            fastavro.schemaless_reader(io.BytesIO(stream.getvalue()), parsed, fastavro.parse_schema(reader))
        except Exception:
            failures += 1
    if why is None:
        assert failures == 0
    elif "timestamp" not in why:  # there fastavro reads another time, without an error
        assert failures > 0


def test_avro_records_that_contain_themselves_are_compared() -> None:
    from holdfast.schemas.avro_payloads import unreadable

    node, wider = (
        fastavro.parse_schema(NODE),
        fastavro.parse_schema(record(field("next", ["null", "R"]), field("n", "long"))),
    )
    assert unreadable(wider, node) is None
    assert unreadable(node, wider) is not None


PROTOBUF: list[tuple[Any, Any, str | None]] = [
    ((("a", 1, "int64"),), (("a", 1, "int32"),), None),
    ((("a", 1, "int32"),), (("a", 1, "int64"),), "was int64, and is int32"),
    ((("b", 1, "int32"),), (("a", 1, "int32"),), None),
    ((("a", 1, "int32"), ("b", 2, "string")), (("a", 1, "int32"),), None),
    ((("a", 1, "int32"),), (("a", 1, "int32"), ("b", 2, "string")), None),
    ((("a", 1, "sint32"),), (("a", 1, "int32"),), "was int32, and is sint32"),
    ((("a", 1, "fixed32"),), (("a", 1, "int32"),), "is fixed32"),
    ((("a", 1, "bytes"),), (("a", 1, "string"),), None),
    ((("a", 1, "string"),), (("a", 1, "bytes"),), "is string"),
    ((("a", 1, "repeated int32"),), (("a", 1, "int32"),), "was not repeated"),
    ((("a", 1, "int32"),), (("a", 1, "repeated int32"),), "was repeated"),
    ((("a", 1, "optional int32"),), (("a", 1, "int32"),), None),
    ((("a", 1, "int32"),), (("a", 1, ".shop.Color"),), None),
]


@pytest.mark.parametrize(("reader", "writer", "why"), PROTOBUF)
def test_protobuf(reader: Any, writer: Any, why: str | None) -> None:
    found = incompatibility(
        schema("protobuf", text_of(message("R", *reader))), schema("protobuf", text_of(message("R", *writer)))
    )
    assert found is None if why is None else found is not None and why in found
    if why is None:
        wrote, read = message("R", *writer), class_of("R", message("R", *reader))
        values = {name: "x" if "string" in kind else 2 for name, _, kind in writer}
        made = class_of("R", wrote)(**values)
        found_message = read.FromString(made.SerializeToString())
        for name, number, _ in reader:
            was = next((values[one] for one, same, _ in writer if same == number), None)
            if was is not None:
                value = getattr(found_message, name)
                assert (value.decode() if isinstance(value, bytes) else value) == was


def test_required_fields_of_protobuf_bind_both_directions() -> None:
    required = schema("protobuf", text_of(message("R", ("a", 1, "required int32")), syntax="proto2"))
    optional = schema("protobuf", text_of(message("R", ("a", 1, "int32")), syntax="proto2"))
    other = schema("protobuf", text_of(message("R", ("b", 2, "int32")), syntax="proto2"))
    assert "was optional" in (incompatibility(required, optional) or "")
    assert "was not written" in (incompatibility(required, other) or "")
    assert incompatibility(optional, required) is None


def test_inner_messages_are_compared() -> None:
    def outer(kind: str) -> PayloadSchema:
        inner = message("I", ("n", 1, kind))
        return PayloadSchema("protobuf", text_of(inner, message("R", ("i", 1, ".shop.I"))), "shop.R")

    assert incompatibility(outer("int64"), outer("int32")) is None
    assert "'n' (1) was int64, and is int32, in the field 'i'" in (
        incompatibility(outer("int32"), outer("int64")) or ""
    )


ADDED, BASE, WIDER = "a INT, b STRING", "a INT", "a BIGINT"


@pytest.mark.parametrize(
    ("rule", "allowed", "refused"),
    [
        ("none", ["a STRING", WIDER, ADDED], []),
        ("backward", [WIDER, ADDED, "b STRING"], ["a STRING", "a SMALLINT", "a INT NOT NULL"]),
        ("forward", ["a SMALLINT", ADDED, "a INT NOT NULL"], ["a STRING", WIDER]),
        ("full", [ADDED, "b STRING"], ["a STRING", WIDER, "a SMALLINT", "a INT NOT NULL"]),
    ],
)
def test_each_rule(rule: str, allowed: list[str], refused: list[str]) -> None:
    kept = [SchemaVersion(1, PayloadSchema("json", BASE), 0, 0)]
    for text in allowed:
        check_compatible(PayloadSchema("json", text, compatibility=rule), kept)
    for text in refused:
        with pytest.raises(InvalidArgument, match=f"not {'(back|for)ward' if rule == 'full' else rule} compatible"):
            check_compatible(PayloadSchema("json", text, compatibility=rule), kept)


def test_all_versions_count_because_the_log_has_records_of_all() -> None:
    kept = [
        SchemaVersion(1, PayloadSchema("json", "a INT, b INT"), 0, 0),
        SchemaVersion(2, PayloadSchema("json", "a INT"), 0, 5),
    ]
    with pytest.raises(InvalidArgument, match="cannot read version 1: the column 'b' is INT, and STRING"):
        check_compatible(PayloadSchema("json", "a INT, b STRING"), kept)
    with pytest.raises(InvalidArgument, match="use another log"):
        check_compatible(PayloadSchema("msgpack", "a INT", compatibility="none"), kept)
