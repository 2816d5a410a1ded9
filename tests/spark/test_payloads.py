"""Typed payloads: the columns of a schema in place of the bytes, evolution, and what is malformed, in all formats."""

import base64
import io
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import fsspec
import msgspec
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

import holdfast
import holdfast.spark
from holdfast import Flush, InvalidArgument, NotFound, PayloadSchema
from holdfast.spark.options import ReadOptions
from holdfast.spark.reader import Reader
from holdfast.spark.sources import view_schema
from holdfast.spark.stream import StreamReader
from tests.schemas.descriptors import class_of, message, text_of

DDL = "id BIGINT, name STRING"
AVRO = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
}
PROTO = message("R", ("id", 1, "int64"), ("name", 2, "optional string"))
Write = Callable[[dict[str, Any]], bytes]


def write_avro(row: dict[str, Any], schema: Any = AVRO) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), row)
    return stream.getvalue()


def write_protobuf(row: dict[str, Any]) -> bytes:
    found: bytes = class_of("R", PROTO)(**row).SerializeToString()
    return found


def write_arrow(row: dict[str, Any]) -> bytes:
    table = pa.Table.from_pylist([row, row], pa.schema([("id", pa.int64()), ("name", pa.string())]))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


WRITERS: dict[str, tuple[str, Write]] = {
    "json": (DDL, lambda row: json.dumps(row).encode()),
    "msgpack": (DDL, msgspec.msgpack.encode),
    "avro": (json.dumps(AVRO), write_avro),
    "protobuf": (text_of(PROTO), write_protobuf),
    "arrow": (DDL, write_arrow),
}
ROWS: list[dict[str, Any]] = [{"id": 1, "name": "Ann"}, {"id": 2, "name": None}, {"id": 3, "name": "Cy"}]
BAD = b"\xff{"


def options_of(path: Path, options: dict[str, object]) -> dict[str, str]:
    found = {"path": str(path), **{name: str(value) for name, value in options.items()}}
    if not {"log", "logs", "logPattern", "queue", "table"} & found.keys():
        found["log"] = "x"
    return found


def reader(path: Path, schema: StructType | None = None, /, **options: object) -> Reader:
    given = options_of(path, options)
    return Reader(given, schema or from_arrow_schema(view_schema(ReadOptions.of(given))))


def read(path: Path, schema: StructType | None = None, /, **options: object) -> list[dict[str, Any]]:
    """All rows; each batch has exactly the schema that Spark expects."""
    made = reader(path, schema, **options)
    given = schema or from_arrow_schema(view_schema(ReadOptions.of(options_of(path, options))))
    expected = to_arrow_schema(given, timezone="UTC")
    batches = [batch for part in made.partitions() for batch in made.read(part)]
    for batch in batches:
        assert expected.equals(batch.schema)
        batch.validate(full=True)
    return [row for batch in batches for row in batch.to_pylist()]


def fill(path: Path, payloads: list[bytes], name: str = "x", **options: Any) -> None:
    with holdfast.open(path) as store:
        log = store.log(name, flush=Flush.sync(), **options)
        for payload in payloads:
            log.append(payload, key=b"k")


@pytest.fixture(params=WRITERS)
def format(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def in_format(format: str, row: dict[str, Any]) -> Any:
    """What the column `payload` has."""
    return [row, row] if format == "arrow" else row


def test_the_payload_is_a_struct_in_the_place_of_the_value(tmp_path: Path, format: str) -> None:
    text, write = WRITERS[format]
    fill(tmp_path, [write(row) for row in ROWS])
    rows = read(tmp_path, valueFormat=format, valueSchema=text)
    assert [row["payload"] for row in rows] == [in_format(format, row) for row in ROWS]
    assert [row["offset"] for row in rows] == [0, 1, 2]
    assert list(rows[0])[:3] == ["key", "payload", "topic"]
    assert {row["_corrupt_record"] for row in rows} == {None}
    kept = read(tmp_path, valueFormat=format, valueSchema=text, keepValue=True)
    assert [row["value"] for row in kept] == [write(row) for row in ROWS]


def test_malformed_payloads_are_null_dropped_or_an_error(tmp_path: Path, format: str) -> None:
    text, write = WRITERS[format]
    fill(tmp_path, [write(ROWS[0]), BAD, write(ROWS[2])])
    given = {"valueFormat": format, "valueSchema": text}
    good = [in_format(format, ROWS[0]), in_format(format, ROWS[2])]

    rows = read(tmp_path, **given)
    assert [row["payload"] for row in rows] == [good[0], None, good[1]]
    bad = BAD.decode("utf-8", "replace") if format == "json" else BAD
    assert [row["_corrupt_record"] for row in rows] == [None, bad, None]
    renamed = read(tmp_path, **given, mode="permissive", columnNameOfCorruptRecord="broken")
    assert [row["broken"] for row in renamed] == [None, bad, None]

    rows = read(tmp_path, **given, mode="DROPMALFORMED")
    assert [(row["offset"], row["payload"]) for row in rows] == [(0, good[0]), (2, good[1])]
    assert "_corrupt_record" not in rows[0]

    with pytest.raises(InvalidArgument, match="record 1 of the log 'x' is malformed"):
        read(tmp_path, **given, mode="FAILFAST")


def test_the_modes_hold_whichever_columns_are_asked_for(tmp_path: Path, format: str) -> None:
    text, write = WRITERS[format]
    fill(tmp_path, [write(ROWS[0]), BAD])
    only = StructType([StructField("offset", LongType())])
    given = {"valueFormat": format, "valueSchema": text}
    assert read(tmp_path, only, **given) == [{"offset": 0}, {"offset": 1}]
    assert read(tmp_path, only, **given, mode="DROPMALFORMED") == [{"offset": 0}]
    with pytest.raises(InvalidArgument, match="malformed"):
        read(tmp_path, only, **given, mode="FAILFAST")


def test_messages_of_a_queue_have_payloads(tmp_path: Path, format: str) -> None:
    text, write = WRITERS[format]
    with holdfast.open(tmp_path) as store:
        queue = store.queue("q")
        queue.put_many([*(write(row) for row in ROWS), BAD])
        queue.ack(queue.lease(1))
    rows = read(tmp_path, queue="q", view="messages", valueFormat=format, valueSchema=text)
    expected: list[Any] = [*((in_format(format, row), None) for row in ROWS)]
    assert [(row["payload"], row["_corrupt_record"]) for row in rows[:3]] == expected
    assert [row["state"] for row in rows] == ["acked", "ready", "ready", "ready"]
    assert rows[3]["payload"] is None and rows[3]["_corrupt_record"] is not None


def test_a_stream_has_payloads(tmp_path: Path, format: str) -> None:
    text, write = WRITERS[format]
    fill(tmp_path, [write(row) for row in ROWS])
    given = options_of(tmp_path, {"valueFormat": format, "valueSchema": text})
    made = StreamReader(given, from_arrow_schema(view_schema(ReadOptions.of(given))))
    start: Any = {"x": {**made.initialOffset()["x"], "0": 1}}
    found = payloads_of(made, made.partitions(start, made.reportLatestOffset()))
    made.stop()
    assert found == [in_format(format, row) for row in ROWS[1:]]


def payloads_of(made: StreamReader, parts: Any) -> list[Any]:
    return [row["payload"] for part in parts for batch in made.read(as_partition(part)) for row in batch.to_pylist()]


def as_partition(part: InputPartition) -> InputPartition:
    """As it comes to a task: in a pickle."""
    found: InputPartition = pickle.loads(pickle.dumps(part))
    return found


def test_values_that_arrow_refuses_are_malformed_one_by_one(tmp_path: Path) -> None:
    """Avro of an INT in a column that is narrower: only Arrow notices, and for a whole batch."""
    spark_writes = {
        "type": "record",
        "name": "topLevelRecord",
        "fields": [{"name": "n", "type": ["int", "null"]}],
    }
    fill(tmp_path, [write_avro({"n": n}, spark_writes) for n in (1, 300, -128)])
    rows = read(tmp_path, valueFormat="avro", valueSchema="n TINYINT")
    assert [row["payload"] for row in rows] == [{"n": 1}, None, {"n": -128}]
    assert [row["_corrupt_record"] is None for row in rows] == [True, False, True]


def test_names_of_payloads_do_not_clash_with_columns_of_the_view(tmp_path: Path) -> None:
    fill(tmp_path, [b'{"offset": "a", "key": 5, "payload": true, "_corrupt_record": "x"}'])
    ddl = "offset STRING, key INT, payload BOOLEAN, _corrupt_record STRING"
    (row,) = read(tmp_path, valueFormat="json", valueSchema=ddl)
    assert row["payload"] == {"offset": "a", "key": 5, "payload": True, "_corrupt_record": "x"}
    assert (row["offset"], row["key"], row["_corrupt_record"]) == (0, b"k", None)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"valueFormat": "xml"}, "must be one of json, avro, protobuf, msgpack, arrow, kept, not 'xml'"),
        ({"mode": "FAILFAST"}, "'mode' needs the option 'valueFormat'"),
        ({"valueFormat": "json", "valueSchema": "a INT", "mode": "LAX"}, "PERMISSIVE, DROPMALFORMED, FAILFAST"),
        ({"valueFormat": "json", "valueSchema": "a INT", "keepValue": "yes"}, "true or false"),
        ({"valueFormat": "json", "valueSchema": "a INTEGRE"}, "unknown type 'INTEGRE'"),
        ({"valueFormat": "json", "valueSchema": " "}, "not empty"),
        ({"valueFormat": "json", "valueSchema": "STRUCT<>"}, "at least one column"),
        ({"valueFormat": "json", "valueSchema": "a INT", "messageName": "M"}, "for the format protobuf"),
        ({"valueFormat": "protobuf", "messageName": "M"}, "needs the option 'valueSchema'"),
        ({"valueFormat": "kept", "valueSchema": "a INT"}, "not both"),
        ({"valueFormat": "json", "valueSchema": "a INT", "columnNameOfCorruptRecord": "key"}, "a column of that name"),
        ({"valueFormat": "json", "valueSchema": "a INT", "queue": "q", "view": "lifecycle"}, "events have no payload"),
        ({"valueFormat": "json", "valueSchema": "a INT", "table": "T"}, "those of its model"),
    ],
)
def test_options_that_mean_nothing_are_refused(tmp_path: Path, options: dict[str, object], why: str) -> None:
    fill(tmp_path, [b"{}"])
    with pytest.raises(InvalidArgument, match=why):
        reader(tmp_path, **options)


def test_a_descriptor_set_may_be_a_file(tmp_path: Path) -> None:
    fill(tmp_path / "data", [write_protobuf(ROWS[0])])
    file = tmp_path / "shop.desc"
    file.write_bytes(base64.b64decode(text_of(PROTO)))
    given = {"valueFormat": "protobuf", "messageName": "shop.R"}
    assert read(tmp_path / "data", **given, valueSchema=file)[0]["payload"] == ROWS[0]
    with pytest.raises(NotFound, match="there is no file"):
        read(tmp_path / "data", **given, valueSchema=tmp_path / "other.desc")


# The schema that is kept with the log


def test_one_query_over_all_versions_reads_with_the_newest_schema(tmp_path: Path, format: str) -> None:
    text, write = WRITERS[format]
    newer = {
        "avro": json.dumps(AVRO | {"fields": [*AVRO["fields"], {"name": "more", "type": "int", "default": 9}]}),
        "protobuf": text_of(
            message("R", ("id", 1, "int64"), ("name", 2, "optional string"), ("more", 3, "optional int32"))
        ),
    }.get(format, f"{DDL}, more INT")
    with holdfast.open(tmp_path) as store:
        log = store.log("x", flush=Flush.sync(), schema=PayloadSchema(format, text))
        log.append(write(ROWS[0]))
        log.schema.set(PayloadSchema(format, newer))
        row = ROWS[1] | {"more": 5}
        match format:
            case "avro":
                log.append(write_avro(row, json.loads(newer)))
            case "protobuf":
                fields = message("R", ("id", 1, "int64"), ("name", 2, "optional string"), ("more", 3, "optional int32"))
                log.append(class_of("R", fields)(**row).SerializeToString())
            case "arrow":
                sink = io.BytesIO()
                table = pa.Table.from_pylist([row, row])
                with pa.ipc.new_stream(sink, table.schema) as writer:
                    writer.write_table(table)
                log.append(sink.getvalue())
            case _:
                log.append(write(row))
    old = ROWS[0] | {"more": 9 if format == "avro" else None}
    for chosen in (format, "kept"):
        rows = read(tmp_path, valueFormat=chosen)
        assert [one["payload"] for one in rows] == [in_format(format, old), in_format(format, row)]
        assert [one["_corrupt_record"] for one in rows] == [None, None]


def test_a_stream_keeps_to_the_columns_that_it_began_with(tmp_path: Path) -> None:
    newer = AVRO | {"fields": [{"name": "more", "type": "int", "default": 9}, *AVRO["fields"]]}
    fill(tmp_path, [write_avro(ROWS[0])], schema=PayloadSchema("avro", json.dumps(AVRO)))
    given = options_of(tmp_path, {"valueFormat": "kept"})
    made = StreamReader(given, from_arrow_schema(view_schema(ReadOptions.of(given))))
    start = {"x": {**made.initialOffset()["x"], "0": 0}}
    with holdfast.open(tmp_path) as store:
        log = store.log("x", flush=Flush.sync())
        log.schema.set(PayloadSchema("avro", json.dumps(newer)))
        log.append(write_avro(ROWS[1] | {"more": 4}, newer))
    found = payloads_of(made, made.partitions(start, made.reportLatestOffset()))
    made.stop()
    assert found == ROWS[:2]
    assert [row["payload"]["more"] for row in read(tmp_path, valueFormat="kept")] == [9, 4]


def test_a_log_without_a_schema_or_with_another_format_is_an_error(tmp_path: Path) -> None:
    fill(tmp_path, [b"{}"])
    with pytest.raises(NotFound, match="'x' has no schema"):
        read(tmp_path, valueFormat="json")
    fill(tmp_path, [b"{}"], "y", schema=PayloadSchema("json", "a INT"))
    with pytest.raises(InvalidArgument, match="is in json: use valueFormat=kept"):
        read(tmp_path, log="y", valueFormat="avro")
    fill(tmp_path, [b"{}"], "z", schema=PayloadSchema("json", "a STRING"))
    with pytest.raises(InvalidArgument, match="'y' and 'z' have different schemas"):
        read(tmp_path, logs="y,z", valueFormat="kept")
    with holdfast.open(tmp_path) as store:
        store.log("z").schema.set(PayloadSchema("json", "a INT", compatibility="none"))
    assert len(read(tmp_path, logs="y,z", valueFormat="kept")) == 2


def test_a_queue_uses_the_schema_of_its_log(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        queue = store.queue("jobs", log="work")
        queue.log.schema.set(PayloadSchema("json", "a INT"))
        queue.put(b'{"a": 5}')
    assert read(tmp_path, queue="jobs", view="messages", valueFormat="kept")[0]["payload"] == {"a": 5}


def test_the_schema_is_read_from_a_copy_at_a_url(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data, [b'{"a": 5}'], schema=PayloadSchema("json", "a INT"))
    fill(data, [b"{}"], "bare")
    memory = fsspec.filesystem("memory")
    memory.put(str(data), "/payloads/data", recursive=True)
    try:
        given = {"path": "memory://payloads/data", "log": "x", "valueFormat": "kept"}
        made = Reader(given, from_arrow_schema(view_schema(ReadOptions.of(given))))
        (batch,) = [batch for part in made.partitions() for batch in made.read(part)]
        assert batch.column("payload").to_pylist() == [{"a": 5}]
        with pytest.raises(NotFound, match="'bare' has no schema"):
            view_schema(ReadOptions.of({**given, "log": "bare"}))
    finally:
        memory.rm("/payloads", recursive=True)


# With Spark


@pytest.mark.heavy
def test_spark_selects_the_columns_of_payloads(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "data"
    ddl = (
        "id BIGINT, `odd ``name` STRING, price DECIMAL(10, 2), tiny TINYINT, f FLOAT, local TIMESTAMP_NTZ, "
        "m MAP<STRING, INT>"
    )
    row = {"id": 1, "odd `name": "x", "price": 1.5, "tiny": -1, "f": 0.5, "local": "2026-01-31T12:00:00", "m": {"a": 1}}
    fill(path, [json.dumps(row).encode(), BAD], schema=PayloadSchema("json", ddl))
    frame = holdfast.spark.read(spark, path, log="x", valueFormat="kept")
    (first,) = frame.where("_corrupt_record IS NULL").select("payload.*").collect()
    assert (first.id, first["odd `name"], float(first.price), first.tiny, first.f) == (1, "x", 1.5, -1, 0.5)
    assert first.m == {"a": 1}
    assert frame.where("_corrupt_record IS NOT NULL").count() == 1

    schema = StructType([StructField("id", LongType())])
    typed = holdfast.spark.read(spark, path, log="x", valueFormat="json", valueSchema=schema, mode="DROPMALFORMED")
    assert [one.id for one in typed.selectExpr("payload.id").collect()] == [1]

    for format, (text, write) in WRITERS.items():
        fill(tmp_path / format, [write(one) for one in ROWS])
        frame = holdfast.spark.read(spark, tmp_path / format, log="x", valueFormat=format, valueSchema=text)
        columns = frame.selectExpr("inline(payload)" if format == "arrow" else "payload.*")
        expected = [(one["id"], one["name"]) for one in ROWS for _ in range(2 if format == "arrow" else 1)]
        assert [tuple(one) for one in columns.collect()] == expected

    stream = (
        spark.readStream.format("holdfast")
        .options(path=str(path), log="x", valueFormat="kept", startingOffsets="earliest", mode="DROPMALFORMED")
        .load()
        .selectExpr("payload.id AS id")
        .writeStream.format("memory")
        .queryName("typed")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    stream.awaitTermination()
    assert [one.id for one in spark.sql("SELECT id FROM typed").collect()] == [1]
