"""The types of headers through the source, the sink, replays and lakes: text stays text, and bytes stay bytes."""

import json
from pathlib import Path
from typing import Literal

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import holdfast
import holdfast.spark
from holdfast import Message
from holdfast.log.record import Headers
from holdfast.spark.pipelines import archive
from holdfast.spark.pipelines.lake import Batch, Card, Lake
from holdfast.spark.pipelines.replay import HEADERS, replay

GIVEN: list[Headers] = [
    {"x": "s"},
    {"x": b"\x01"},
    {"text": "über", "ascii bytes": b"abc", "odd": b"\xff\xfe", "empty": "", "nothing": b""},
    {},
    {"only bytes": b"b"},
]
Format = Literal["parquet", "delta", "iceberg"]


@pytest.fixture
def data(tmp_path: Path) -> str:
    path = str(tmp_path / "data")
    with holdfast.open(path) as store:
        store.log("x").append_many([Message(b"%d" % at, headers=headers) for at, headers in enumerate(GIVEN)])
        store.queue("jobs").put_many([Message(b"%d" % at, headers=headers) for at, headers in enumerate(GIVEN)])
    return path


def headers_of(data: str, log: str) -> list[Headers]:
    """The headers of all records by their payloads, without those that a replay adds."""
    with holdfast.open(data, read_only=True) as store:
        records = sorted(store.log(log).read(), key=lambda record: record.payload)
        return [{k: v for k, v in record.headers.items() if k not in HEADERS} for record in records]


def test_a_copy_of_a_log_keeps_the_type_of_each_header(spark: SparkSession, data: str, tmp_path: Path) -> None:
    frame = holdfast.spark.read(spark, data, log="x", includeHeaders=True)
    frame.write.format("holdfast").option("path", data).option("log", "copy").mode("append").save()
    assert headers_of(data, "copy") == GIVEN
    stream = spark.readStream.format("holdfast").option("path", data).option("log", "x")
    query = (
        stream.option("includeHeaders", "true")
        .option("startingOffsets", "earliest")
        .load()
        .writeStream.format("holdfast")
        .option("path", data)
        .option("log", "streamed")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert headers_of(data, "streamed") == GIVEN


def test_messages_of_a_queue_keep_the_type_of_each_header(spark: SparkSession, data: str) -> None:
    frame = holdfast.spark.read(spark, data, queue="jobs", view="messages").select("value", "headers", "textHeaders")
    frame.write.format("holdfast").option("path", data).option("queue", "again").mode("append").save()
    assert headers_of(data, "again") == GIVEN


def test_a_replay_keeps_the_type_of_each_header(spark: SparkSession, data: str) -> None:
    frame = holdfast.spark.read(spark, data, log="x", includeHeaders=True)
    assert replay(spark, frame, data, log="again", name="one") == len(GIVEN)
    assert headers_of(data, "again") == GIVEN
    with holdfast.open(data, read_only=True) as store:
        assert all(isinstance(record.headers[name], str) for record in store.log("again").read() for name in HEADERS)


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_an_archive_keeps_the_type_of_each_header(
    spark: SparkSession, data: str, tmp_path: Path, format: Format
) -> None:
    lake = str(tmp_path / "lake")
    archive.run(spark, data, lake=lake, format=format, logs=["x"], lifecycle=False)
    archived = holdfast.spark.history(spark, None, lake, log="x")
    live = holdfast.spark.read(spark, data, log="x", includeHeaders=True)
    assert archived.orderBy("offset").collect() == live.orderBy("offset").collect()
    assert replay(spark, archived, data, log="again", name="one") == len(GIVEN)
    assert headers_of(data, "again") == GIVEN


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_an_archive_without_the_types_is_read_and_written_on(
    spark: SparkSession, data: str, tmp_path: Path, format: Format
) -> None:
    lake = tmp_path / "lake"
    add_to(spark, data, lake, format, 0, len(GIVEN))
    forget_types(lake, format)
    old = holdfast.spark.history(spark, None, str(lake), log="x")
    assert [row.textHeaders for row in old.collect()] == [None] * len(GIVEN)
    with holdfast.open(data) as store:
        store.log("x").append(b"later", headers={"x": "s", "y": b"y"})
    add_to(spark, data, lake, format, len(GIVEN), len(GIVEN) + 1)
    every = holdfast.spark.history(spark, None, str(lake), log="x")
    assert replay(spark, every, data, log="again", name="one") == len(GIVEN) + 1
    # Nobody knows what the old ones were: each that can be text is taken for text, whatever the others are.
    assert headers_of(data, "again") == [
        {"x": "s"},
        {"x": "\x01"},
        {"text": "über", "ascii bytes": "abc", "odd": b"\xff\xfe", "empty": "", "nothing": ""},
        {},
        {"only bytes": "b"},
        {"x": "s", "y": b"y"},
    ]


def add_to(spark: SparkSession, data: str, lake: Path, format: Format, start: int, end: int) -> None:
    """Archive these records in one batch, as `archive` does from its stream."""
    place = Lake(str(lake))
    place.begin(format)
    shelf = place.shelf("logs", "x")
    if shelf.card() is None:
        shelf.folder.mkdir(parents=True)
        shelf.put_card(Card("x", {"log": ""}, {"log": 0}))
    places = {"startingOffsets": json.dumps({"x": start}), "endingOffsets": json.dumps({"x": end})}
    options = {"path": data, **shelf.options, **places}
    frame = spark.read.format("holdfast").options(**options).load()
    assert shelf.open_table().add(Batch(frame, options, {"log": end}, "zstd")).rows == end - start


def forget_types(lake: Path, format: Format) -> None:
    """Make of a lake one that an older version wrote: without the column `textHeaders`."""
    if format == "parquet":
        for file in (lake / "logs" / "log=x").rglob("*.parquet"):
            pq.write_table(pq.ParquetFile(file).read().drop_columns(["textHeaders"]), file)
    elif format == "delta":
        table = DeltaTable(lake / "logs")
        rows = table.to_pyarrow_table().drop_columns(["textHeaders"])
        write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite", partition_by=["log", "date"])
    else:
        catalog = SqlCatalog("lake", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}")
        archived = catalog.load_table("holdfast.logs")
        rows = archived.scan().to_arrow().drop_columns(["textHeaders"])
        with archived.update_schema() as update:
            update.delete_column("textHeaders")
        archived.overwrite(rows)
        catalog.engine.dispose()


def test_queries_on_headers_are_those_for_kafka(spark: SparkSession, data: str) -> None:
    frame = holdfast.spark.read(spark, data, log="x", includeHeaders=True)
    assert dict(frame.dtypes)["headers"] == "array<struct<key:string,value:binary>>"
    found = frame.selectExpr("map_from_entries(headers)['x'] AS x").where("x IS NOT NULL").collect()
    assert sorted(bytes(row.x) for row in found) == [b"\x01", b"s"]
    reader = spark.read.format("holdfast").option("path", data).option("log", "x").option("includeHeaders", "true")
    narrow = reader.schema("headers ARRAY<STRUCT<key: STRING, value: BINARY>>, value BINARY").load()
    assert narrow.columns == ["headers", "value"]
    narrow.write.format("holdfast").option("path", data).option("log", "bytes").mode("append").save()
    assert headers_of(data, "bytes")[0] == {"x": b"s"}  # without the column `textHeaders`, the type of the value counts


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("array(named_struct('key', 'h', 'value', X'FF')) AS headers, array('h') AS textHeaders", "is not UTF-8"),
        ("array(named_struct('key', 'h', 'value', X'61')) AS headers, 'h' AS textHeaders", "'textHeaders' takes array"),
        ("array(named_struct('key', 'h', 'value', X'61')) AS headers, array(1) AS textHeaders", "takes array<string>"),
    ],
)
def test_types_that_cannot_be_are_refused(spark: SparkSession, data: str, columns: str, said: str) -> None:
    frame = spark.sql(f"SELECT 'v' AS value, {columns}")
    with pytest.raises(PySparkException, match=said):
        frame.write.format("holdfast").option("path", data).option("log", "bad").mode("append").save()


def test_a_name_without_a_header_does_no_harm(spark: SparkSession, data: str) -> None:
    frame = spark.sql(
        "SELECT 'v' AS value, array(named_struct('key', 'a', 'value', X'61')) AS headers, array('a', 'b')"
    )
    frame = frame.toDF("value", "headers", "textHeaders")
    frame.write.format("holdfast").option("path", data).option("log", "odd").mode("append").save()
    assert headers_of(data, "odd") == [{"a": "a"}]
