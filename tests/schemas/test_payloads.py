"""Payloads of each format, written by its reference library: what they become, and what is malformed."""

import base64
import contextlib
import datetime
import decimal
import io
import json
import math
import random
from typing import Any

import fastavro
import msgspec
import pyarrow as pa
import pytest
from fastavro.utils import generate_many

from holdfast import InvalidArgument, PayloadSchema, SchemaVersion
from holdfast.schemas.arrow_types import arrow_type
from holdfast.schemas.formats import Read, payload_columns, payload_reader, payload_type
from tests.schemas.descriptors import class_of, file_of, message, set_of, text_of, with_map
from tests.tiers import rounds

UTC = datetime.UTC
DDL = (
    "id BIGINT NOT NULL, name STRING, price DECIMAL(10, 2), at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, raw BINARY, "
    "ok BOOLEAN, small TINYINT, ratio DOUBLE, tags ARRAY<STRING>, counts MAP<STRING, INT>, "
    "item STRUCT<sku: STRING, parts: ARRAY<STRUCT<n: INT>>>"
)
ROW: dict[str, Any] = {
    "id": 2**62,
    "name": "Zoë",
    "price": decimal.Decimal("12.50"),
    "at": datetime.datetime(2026, 1, 31, 12, tzinfo=UTC),
    "local": datetime.datetime(2026, 1, 31, 13),
    "day": datetime.date(2026, 1, 31),
    "raw": b"\x00\xff",
    "ok": True,
    "small": -128,
    "ratio": 0.1,
    "tags": ["a", None],
    "counts": {"x": 1, "y": None},
    "item": {"sku": "s", "parts": [{"n": 1}, None]},
}


def reader_of(schema: PayloadSchema, *, strict: bool = False) -> Read:
    version = SchemaVersion(1, schema, 0, 0)
    return payload_reader([version], version, strict=strict)


def shown(schema: PayloadSchema, payload: bytes) -> Any:
    """What Arrow, and so Spark, has of a payload."""
    found = reader_of(schema)(payload, 0)
    return pa.array([found], arrow_type(payload_columns(schema))).to_pylist()[0]


def as_shown(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"counts": list(row["counts"].items())}


@pytest.mark.parametrize("format", ["json", "msgpack"])
def test_records_of_msgspec_come_back(format: str) -> None:
    codec = msgspec.json if format == "json" else msgspec.msgpack
    schema = PayloadSchema(format, DDL)
    assert shown(schema, codec.encode(ROW)) == as_shown(ROW)
    assert shown(schema, codec.encode({"id": 1, "unknown": [1]})) == dict.fromkeys(ROW) | {"id": 1}
    assert shown(schema, codec.encode({})) == dict.fromkeys(ROW)


def test_json_of_the_standard_library_is_read() -> None:
    text = json.dumps({"ratio": 5, "price": 7.25, "at": "2026-01-31T14:00:00+02:00", "name": "\u2028"}, indent=2)
    found = shown(PayloadSchema("json", DDL), text.encode())
    assert (found["ratio"], found["price"], found["name"]) == (5.0, decimal.Decimal("7.25"), "\u2028")
    assert found["at"] == ROW["at"]


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b"[]",
        b'{"id": 1',
        b'{"id": 1} {}',
        b'{"id": "1"}',
        b'{"id": 1.5}',
        b'{"id": true}',
        b'{"id": 9223372036854775808}',
        b'{"small": 128}',
        b'{"price": 1.234}',
        b'{"price": 123456789.5}',
        b'{"price": "NaN"}',
        b'{"at": "yesterday"}',
        b'{"local": "2026-01-31T12:00:00Z"}',
        b'{"day": "2026-02-30"}',
        b'{"raw": "*"}',
        b'{"ratio": NaN}',
        b'{"tags": "a"}',
        b'{"counts": {"x": "y"}}',
        b'{"item": {"parts": [{"n": 4294967296}]}}',
        b'{"name": "\xff"}',
        b'{"name": "\\ud800"}',
        b"[" * 100_000,
    ],
)
def test_json_that_is_not_of_the_schema_is_malformed(payload: bytes) -> None:
    with pytest.raises(ValueError):
        reader_of(PayloadSchema("json", DDL))(payload, 0)


def test_a_column_that_is_not_null_must_be_there_only_for_producers() -> None:
    schema = PayloadSchema("json", "id BIGINT NOT NULL, item STRUCT<n: INT NOT NULL>")
    for payload in (b"{}", b'{"id": null}', b'{"id": 1, "item": {}}'):
        reader_of(schema)(payload, 0)
        with pytest.raises(ValueError):
            reader_of(schema, strict=True)(payload, 0)
    reader_of(schema, strict=True)(b'{"id": 1}', 0)


# Avro

ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "color", "type": {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "clock", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "tags", "type": {"type": "array", "items": ["string", "null"]}},
        {"name": "counts", "type": {"type": "map", "values": "double"}},
        {"name": "other", "type": ["null", "Color"], "default": None},
        {
            "name": "item",
            "type": {"type": "record", "name": "Item", "fields": [{"name": "n", "type": ["int", "long"]}]},
        },
    ],
}
ORDER_ROW: dict[str, Any] = {
    "id": 7,
    "name": "x",
    "at": ROW["at"],
    "price": decimal.Decimal("12.50"),
    "day": ROW["day"],
    "color": "BLUE",
    "hash": b"abcd",
    "key": "3f2504e0-4f89-11d3-9a0c-0305e82c3301",
    "clock": 5,
    "tags": ["a", None],
    "counts": {"x": 0.5},
    "other": "RED",
    "item": {"n": 2**40},
}


def avro(schema: Any, row: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()


def single_object(schema: Any, row: Any) -> bytes:
    """Avro's single-object encoding, with the fingerprint as its specification computes it."""
    form = fastavro.schema.to_parsing_canonical_form(schema).encode()
    return b"\xc3\x01" + rabin(form).to_bytes(8, "little") + avro(schema, row)


def rabin(data: bytes) -> int:
    """The CRC-64-AVRO of the specification, bit by bit."""
    empty = found = 0xC15D213AA4D7A795
    for byte in data:
        found ^= byte
        for _ in range(8):
            found = found >> 1 ^ (empty if found & 1 else 0)
    return found


def test_a_record_of_fastavro_comes_back() -> None:
    plain = ORDER | {
        "fields": [one if one["name"] != "clock" else {"name": "clock", "type": "long"} for one in ORDER["fields"]]
    }
    schema = PayloadSchema("avro", json.dumps(ORDER))
    expected = as_shown(ORDER_ROW)
    assert shown(schema, avro(plain, ORDER_ROW)) == expected
    assert shown(schema, single_object(ORDER, ORDER_ROW | {"clock": datetime.time(microsecond=5)})) == expected


def test_any_record_that_fastavro_generates_comes_back() -> None:
    random.seed(5)
    parsed = fastavro.parse_schema(ORDER)
    read = reader_of(PayloadSchema("avro", json.dumps(ORDER)))
    for row in generate_many(parsed, rounds(300, 60)):
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, row)
        found = read(stream.getvalue(), 0)
        for name in ("id", "name", "color", "hash", "tags", "item"):
            assert found[name] == row[name]
        assert all(math.isclose(found["counts"][key], value) for key, value in row["counts"].items())


@pytest.mark.parametrize(
    "payload",
    [b"", b"\x00", b"\xff" * 30, avro(ORDER, ORDER_ROW | {"clock": datetime.time()}) + b"\x00"],
)
def test_bytes_that_are_not_avro_of_the_schema_are_malformed(payload: bytes) -> None:
    with pytest.raises(ValueError):
        reader_of(PayloadSchema("avro", json.dumps(ORDER)))(payload, 0)


def test_cut_avro_is_malformed_or_shorter_never_another_error() -> None:
    whole = avro(ORDER, ORDER_ROW | {"clock": datetime.time()})
    read = reader_of(PayloadSchema("avro", json.dumps(ORDER)))
    for end in range(len(whole)):
        with pytest.raises(ValueError):
            read(whole[:end], 0)
    rng = random.Random(3)
    for _ in range(rounds(3000, 500)):
        hit = bytearray(whole)
        hit[rng.randrange(len(hit))] ^= 1 << rng.randrange(8)
        with contextlib.suppress(ValueError):
            read(bytes(hit), 0)


V1: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "a", "type": "int"}, {"name": "gone", "type": "string"}],
}
V2: dict[str, Any] = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "more", "type": "string", "default": "none"}, {"name": "a", "type": "double"}],
}


def test_a_payload_is_resolved_from_the_version_that_wrote_it() -> None:
    versions = [
        SchemaVersion(1, PayloadSchema("avro", json.dumps(V1)), 0, 0),
        SchemaVersion(2, PayloadSchema("avro", json.dumps(V2)), 0, 100),
    ]
    new = payload_reader(versions, versions[1])
    assert new(avro(V1, {"a": 5, "gone": "x"}), 99) == {"more": "none", "a": 5.0}  # by its place in the log
    assert new(avro(V2, {"a": 0.5, "more": "y"}), 100) == {"more": "y", "a": 0.5}
    assert new(single_object(V1, {"a": 5, "gone": "x"}), 100) == {"more": "none", "a": 5.0}  # by its fingerprint
    assert new(single_object(V2, {"a": 0.5, "more": "y"}), 0) == {"more": "y", "a": 0.5}
    with pytest.raises(ValueError):
        payload_reader(versions, versions[1], strict=True)(avro(V1, {"a": 5, "gone": "x"}), 0)


def test_ddl_stands_for_the_schema_that_spark_writes() -> None:
    """As Spark's SchemaConverters has it: names, the order in unions, decimals as fixed."""
    columns = "a INT NOT NULL, b STRING, d DECIMAL(9, 2) NOT NULL, s STRUCT<c: ARRAY<TIMESTAMP>>"
    spark = {
        "type": "record",
        "name": "topLevelRecord",
        "fields": [
            {"name": "a", "type": "int"},
            {"name": "b", "type": ["string", "null"]},
            {
                "name": "d",
                "type": {
                    "type": "fixed",
                    "name": "topLevelRecord.d.fixed",
                    "size": 4,
                    "logicalType": "decimal",
                    "precision": 9,
                    "scale": 2,
                },
            },
            {
                "name": "s",
                "type": [
                    {
                        "type": "record",
                        "name": "s",
                        "namespace": "topLevelRecord",
                        "fields": [
                            {
                                "name": "c",
                                "type": [
                                    {
                                        "type": "array",
                                        "items": [{"type": "long", "logicalType": "timestamp-micros"}, "null"],
                                    },
                                    "null",
                                ],
                            }
                        ],
                    },
                    "null",
                ],
            },
        ],
    }
    row = {"a": 1, "b": None, "d": decimal.Decimal("1.50"), "s": {"c": [ROW["at"], None]}}
    schema = PayloadSchema("avro", columns)
    assert shown(schema, avro(spark, row)) == row
    assert shown(schema, single_object(spark, row)) == row  # so the schema is the same to the last name


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('"long"', "must be a record"),
        ("{", "not JSON"),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": "unknown"}]}', "not an Avro schema"),
        (
            '{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["string", "int"]}]}',
            "union of string, int",
        ),
        ('{"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "R"]}]}', "contains itself"),
        ("`not a name` INT", "not a name in Avro"),
    ],
)
def test_avro_schemas_that_have_no_columns_are_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        payload_columns(PayloadSchema("avro", text))


# Protobuf

ITEM = message("Item", ("sku", 1, "string"), ("count", 2, "optional uint32"))
FULL = with_map(
    message(
        "Order",
        ("id", 1, "int64"),
        ("big", 2, "uint64"),
        ("ratio", 3, "float"),
        ("name", 4, "optional string"),
        ("raw", 5, "bytes"),
        ("color", 6, ".shop.Color"),
        ("at", 7, ".google.protobuf.Timestamp"),
        ("items", 8, "repeated .shop.Item"),
        ("numbers", 9, "repeated sint32"),
        ("colors", 10, "repeated .shop.Color"),
        ("item", 11, ".shop.Item"),
    ),
    "scores",
    12,
)


def test_a_message_of_the_reference_library_comes_back() -> None:
    cls = class_of("Order", ITEM, FULL)
    made = cls(id=-5, big=2**64 - 1, ratio=0.5, raw=b"\xff", color=2, numbers=[-1, 2], colors=[1, 77], scores={"x": 3})
    made.at.FromDatetime(ROW["at"])
    made.items.add(sku="a", count=0)
    made.items.add()
    schema = PayloadSchema("protobuf", text_of(ITEM, FULL), "shop.Order")
    assert shown(schema, made.SerializeToString()) == {
        "id": -5,
        "big": decimal.Decimal(2**64 - 1),
        "ratio": 0.5,
        "name": None,
        "raw": b"\xff",
        "color": "BLUE",
        "at": ROW["at"],
        "items": [{"sku": "a", "count": 0}, {"sku": "", "count": None}],
        "numbers": [-1, 2],
        "colors": ["RED", "77"],
        "item": None,
        "scores": [("x", 3)],
    }
    empty = shown(schema, b"")
    assert (empty["id"], empty["name"], empty["color"], empty["items"]) == (0, None, "NONE", [])


def test_fields_that_a_reader_does_not_have_are_skipped() -> None:
    payload = class_of("Order", ITEM, FULL)(id=7, numbers=[1]).SerializeToString()
    short = PayloadSchema("protobuf", text_of(message("Order", ("id", 1, "int64"), ("note", 40, "optional string"))))
    assert shown(short, payload) == {"id": 7, "note": None}


@pytest.mark.parametrize("payload", [b"\x08", b"\x0a\x05ab", b"\xff\xff", b"\x22\x01\xff"])
def test_bytes_that_are_not_the_message_are_malformed(payload: bytes) -> None:
    with pytest.raises(ValueError):
        reader_of(PayloadSchema("protobuf", text_of(ITEM, FULL), "shop.Order"))(payload, 0)


def test_a_required_field_that_is_missing_is_malformed() -> None:
    schema = PayloadSchema("protobuf", text_of(message("Order", ("id", 1, "required int64")), syntax="proto2"))
    with pytest.raises(ValueError, match="id"):
        reader_of(schema)(b"", 0)


def test_descriptor_sets_that_cannot_be_used_are_refused() -> None:
    twice = message("Node", ("next", 1, ".shop.Node"))
    lost = file_of(message("Order", ("id", 1, "int64")))
    lost.dependency.append("other.proto")
    for text, name, why in (
        ("?", None, "not a descriptor set"),
        ("QQ==", None, "not a descriptor set"),
        (text_of(ITEM, FULL), None, "name of the message"),
        (text_of(ITEM, FULL), "shop.Nothing", "it has: shop.Item, shop.Order"),
        (text_of(twice), None, "contains itself"),
        (base64.b64encode(set_of(lost)).decode(), None, "--include_imports"),
    ):
        with pytest.raises(InvalidArgument, match=why):
            payload_columns(PayloadSchema("protobuf", text, name))


# Arrow


def stream_of(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return sink.getvalue()


def test_a_table_of_arrow_comes_back_by_the_names_of_its_columns() -> None:
    schema = PayloadSchema("arrow", "id BIGINT NOT NULL, name STRING, at TIMESTAMP")
    table = pa.table(
        {
            "name": pa.array(["a", None, "c"], pa.large_string()),
            "other": [1, 2, 3],
            "id": pa.array([1, 2, 3], pa.int16()),
        }
    )
    found = reader_of(schema, strict=True)(stream_of(table), 0)
    assert found.type == arrow_type(payload_type(schema)).value_type
    assert found.to_pylist() == [{"id": n, "name": one, "at": None} for n, one in ((1, "a"), (2, None), (3, "c"))]
    assert len(reader_of(schema)(stream_of(table.slice(0, 0)), 0)) == 0


@pytest.mark.parametrize(
    "payload",
    [b"", b"abc", b"\xff" * 100, stream_of(pa.table({"id": ["x"]})), stream_of(pa.table({"id": [0.5]}))],
)
def test_bytes_that_are_not_arrow_of_the_schema_are_malformed(payload: bytes) -> None:
    with pytest.raises(ValueError):
        reader_of(PayloadSchema("arrow", "id BIGINT"))(payload, 0)


def test_arrow_without_a_column_that_is_not_null_is_refused_for_producers() -> None:
    schema = PayloadSchema("arrow", "id BIGINT NOT NULL")
    for table in (pa.table({"x": [1]}), pa.table({"id": pa.array([None], pa.int64())})):
        reader_of(schema)(stream_of(table), 0)
        with pytest.raises(ValueError, match="'id'"):
            reader_of(schema, strict=True)(stream_of(table), 0)
