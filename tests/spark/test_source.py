"""Does Spark show what is in a log? Columns, filters, several logs, views of queues and SQL, through Spark itself."""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from pyspark.sql import DataFrame, SparkSession

import holdfast
from holdfast import Message, Roll
from holdfast.log.record import Headers
from holdfast.table import Model, field
from holdfast.testing import SimClock

KAFKA = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
OURS = ["priority", "expiry", "producer"]


class Account(Model, id=1):
    name: str = field(1)


def load(spark: SparkSession, path: Path, /, **options: object) -> DataFrame:
    reader = spark.read.format("holdfast").option("path", str(path))
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of records of every kind, over two hours of 2026-01-01, and a queue beside it."""
    path = tmp_path_factory.mktemp("mixed")
    clock = SimClock()
    rng = random.Random(11)
    with holdfast.open(path, clock=clock, background=False) as store:
        log = store.log("x", compression="zstd", roll=Roll.count(100), index_interval=10)
        for number in range(72):
            clock.advance(100)
            key = rng.choice([None, b"", b"key %d" % (number % 5)])
            headers: Headers = {"text": "\u00fcber", "bytes": b"\xff\x00"} if number % 2 else {}
            payload = rng.choice([b"", b"%d" % number, b"text " * 500])
            log.append_many([Message(payload, key, headers)] * rng.randint(1, 10))
            log.refresh()
        queue = store.queue("jobs", max_attempts=1)
        queue.put_many([Message(b"%d" % number, priority=number % 3, ttl=3600) for number in range(30)])
        queue.put(b"late", delay=60)
        for delivery in queue.lease(10):
            if delivery.id % 3:
                delivery.ack()
    return path


def test_the_columns_are_those_of_kafka_and_ours(spark: SparkSession, mixed: Path) -> None:
    frame = load(spark, mixed, log="x")
    assert frame.columns == KAFKA + OURS
    assert dict(frame.dtypes) == {
        "key": "binary",
        "value": "binary",
        "topic": "string",
        "partition": "int",
        "offset": "bigint",
        "timestamp": "timestamp",
        "timestampType": "int",
        "priority": "int",
        "expiry": "timestamp",
        "producer": "bigint",
    }
    frame = load(spark, mixed, log="x", includeHeaders=True)
    assert frame.columns == [*KAFKA, "headers", *OURS, "textHeaders"]
    assert dict(frame.dtypes)["headers"] == "array<struct<key:string,value:binary>>"


def test_every_value_is_what_the_log_says(spark: SparkSession, mixed: Path) -> None:
    rows = load(spark, mixed, log="x", includeHeaders=True, minPartitions=4).collect()
    with holdfast.open(mixed, read_only=True) as store:
        records = list(store.log("x").read())
    assert len(rows) == len(records) > 300
    for row, record in zip(rows, records, strict=True):
        headers = [
            (name, value.encode() if isinstance(value, str) else value) for name, value in record.headers.items()
        ]
        assert (row.offset, row.key, row.value) == (record.sequence, record.key, record.payload)
        assert (row.topic, row.partition, row.timestampType, row.priority) == ("x", 0, 1, 0)
        assert row.timestamp.replace(tzinfo=UTC) == moment(record.timestamp)
        assert [(item.key, bytes(item.value)) for item in row.headers or ()] == headers
        texts = [name for name, value in record.headers.items() if isinstance(value, str)]
        assert row.textHeaders == (texts if headers else None)
        assert (row.expiry, row.producer) == (None, None)


def moment(ns: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=ns // 1000)


def test_a_schema_narrows_the_columns(spark: SparkSession, mixed: Path) -> None:
    reader = spark.read.format("holdfast").option("path", str(mixed)).option("log", "x")
    frame = reader.schema("offset LONG, value BINARY").load()
    assert frame.columns == ["offset", "value"]
    everything = load(spark, mixed, log="x").select("offset", "value")
    assert frame.collect() == everything.collect()
    assert frame.count() == everything.count()


def test_sql_and_a_path_in_load_do_as_well(spark: SparkSession, mixed: Path) -> None:
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW events USING holdfast OPTIONS (path '{mixed}', log 'x')")
    try:
        (row,) = spark.sql(
            "SELECT count(*) AS records, max(offset) + 1 AS ended, min(topic) AS log FROM events"
        ).collect()
    finally:
        spark.catalog.dropTempView("events")
    assert row.records == row.ended == load(spark, mixed, log="x").count()
    assert spark.read.format("holdfast").option("log", "x").load(f"file://{mixed}").count() == row.records


def test_several_logs_and_as_many_tasks_as_asked_for(spark: SparkSession, mixed: Path) -> None:
    with holdfast.open(mixed, read_only=True) as store:
        ends = {name: store.log(name).end for name in store.logs()}
    for options in ({"logs": "x,jobs"}, {"logPattern": "[xj]*"}):
        found = load(spark, mixed, **options).groupBy("topic").count().collect()
        assert {row["topic"]: row["count"] for row in found} == {"x": ends["x"], "jobs": ends["jobs"]}
    assert load(spark, mixed, log="x", minPartitions=6).rdd.getNumPartitions() >= 4  # about six


def test_options_bound_what_is_read(spark: SparkSession, mixed: Path) -> None:
    places = {"startingOffsets": json.dumps({"x": {"0": 50}}), "endingOffsets": json.dumps({"x": {"0": 60}})}
    assert [row.offset for row in load(spark, mixed, log="x", **places).collect()] == list(range(50, 60))
    hour = load(spark, mixed, log="x", startingTimestamp="2026-01-01T01:00:00Z")
    since = datetime(2026, 1, 1, 1, tzinfo=UTC)
    with holdfast.open(mixed, read_only=True) as store:
        expected = [record.sequence for record in store.log("x").read() if moment(record.timestamp) >= since]
    assert [row.offset for row in hour.collect()] == expected
    keys = load(spark, mixed, log="x", key='["key 1", "key 2"]').select("key").distinct().collect()
    assert {bytes(row.key) for row in keys} == {b"key 1", b"key 2"}


# Times without a zone


@pytest.fixture(params=["America/New_York", "+05:30"])
def elsewhere(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[ZoneInfo | timezone]:
    """The session in another time zone than UTC."""
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield ZoneInfo(request.param) if "/" in request.param else timezone(timedelta(hours=5, minutes=30))
    spark.conf.set("spark.sql.session.timeZone", before or "UTC")


def test_a_time_without_a_zone_is_one_of_the_session(
    spark: SparkSession, mixed: Path, elsewhere: ZoneInfo | timezone
) -> None:
    begin, end = (datetime(2026, 1, 1, hour, 30, tzinfo=UTC) for hour in (0, 1))
    given = [at.astimezone(elsewhere).replace(tzinfo=None).isoformat() for at in (begin, end)]
    with holdfast.open(mixed, read_only=True) as store:
        expected = [record.sequence for record in store.log("x").read() if begin <= moment(record.timestamp) < end]
    assert 0 < len(expected) < 300
    found = load(spark, mixed, log="x", startingTimestamp=given[0], endingTimestamp=given[1], minPartitions=4)
    assert [row.offset for row in found.collect()] == expected
    (row,) = spark.sql(
        f"SELECT unix_micros(TIMESTAMP '{given[0]}') AS first, unix_micros(TIMESTAMP '{given[1]}') AS last"
    ).collect()  # as Spark itself reads it
    assert (row.first, row.last) == tuple(int(at.timestamp() * 1_000_000) for at in (begin, end))


def test_the_time_of_a_table_without_a_zone_is_one_of_the_session(
    spark: SparkSession, tmp_path: Path, elsewhere: ZoneInfo | timezone
) -> None:
    clock = SimClock()
    with holdfast.open(tmp_path, clock=clock, background=False) as store:
        table = store.table(Account)
        for name in ("Ann", "Bob", "Cid"):
            table.add(Account(name=name))
            clock.advance(3600)
    at = datetime(2026, 1, 1, 1, 30, tzinfo=UTC).astimezone(elsewhere).replace(tzinfo=None)
    assert {row["name"] for row in load(spark, tmp_path, table="Account", asOf=at.isoformat()).collect()} == {
        "Ann",
        "Bob",
    }


# Damage and queues


def test_damage_that_is_skipped_is_reported(spark: SparkSession, tmp_path: Path) -> None:
    data, report = tmp_path / "data", tmp_path / "report"
    with holdfast.open(data) as store:
        log = store.log("x", roll=Roll.count(100))
        for start in range(0, 300, 100):
            log.append_many([b"payload %03d" % number for number in range(start, start + 100)])
    for number in (7, 123, 299):
        for segment in (data / "logs").rglob("*.data"):
            content = bytearray(segment.read_bytes())
            if (at := content.find(b"payload %03d" % number)) >= 0:
                content[at] ^= 1
                segment.write_bytes(content)
    frame = load(spark, data, log="x", onDamage="skip", damageReport=report, minPartitions=3)
    assert frame.count() == 297
    told = spark.read.json(str(report)).collect()
    assert sorted((row.first_lost, row.lost) for row in told) == [(7, 1), (123, 1), (299, 1)]


def test_the_views_of_a_queue_agree_with_it(spark: SparkSession, mixed: Path) -> None:
    messages = load(spark, mixed, queue="jobs", view="messages")
    states: dict[str, int] = {row["state"]: row["count"] for row in messages.groupBy("state").count().collect()}
    lifecycle = load(spark, mixed, queue="jobs", view="lifecycle")
    events: dict[str, Any] = {row["event"]: row["count"] for row in lifecycle.groupBy("event").count().collect()}
    with holdfast.open(mixed) as store:
        stats = store.queue("jobs").stats()
    assert states.get("acked") == stats.total_acked
    assert events["put"] == sum(states.values()) == 31
    assert events["leased"] == stats.total_leased == 10
    assert events["acked"] == stats.total_acked
