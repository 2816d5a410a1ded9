"""Does Spark show what is in a log? Columns, filters, several logs, views of queues and SQL, through Spark itself."""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import holdfast
from holdfast import Message, Roll
from holdfast.log.record import Headers
from holdfast.testing import SimClock

KAFKA = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
OURS = ["priority", "expiry", "producer"]


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
    assert frame.columns == [*KAFKA, "headers", *OURS]
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


# Pushdown


@pytest.fixture(params=["UTC", "America/New_York"])
def pushing(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    """The session with filter pushdown, in some time zone."""
    names = ("spark.sql.python.filterPushdown.enabled", "spark.sql.session.timeZone")
    before = {name: spark.conf.get(name) for name in names}
    spark.conf.set(names[0], "true")
    spark.conf.set(names[1], request.param)
    yield spark
    for name, value in before.items():
        if value is not None:
            spark.conf.set(name, value)


def predicates(rng: random.Random, offsets: int) -> Iterator[str]:
    """Conditions as people write them, each with those that are pushed and those that are not."""
    for _ in range(8):
        number, other = rng.randrange(offsets), rng.randrange(-3, offsets + 3)
        second = rng.randrange(8000)
        when = f"TIMESTAMP '1970-01-01 00:00:00 UTC' + INTERVAL {1_767_225_600 + second} SECOND"
        yield rng.choice(
            [
                f"offset >= {number} AND offset < {other}",
                f"offset IN ({number}, {other}) OR offset = 3",
                f"offset IN ({number}, {other}, NULL)",
                f"timestamp > {when} AND offset <=> {number}",
                f"timestamp >= {when} AND key IN (X'', CAST('key 3' AS BINARY))",
                f"timestamp <= {when} AND NOT key = CAST('key 1' AS BINARY)",
                f"key = CAST('key 2' AS BINARY) AND offset > {number}",
                "key <=> NULL",
                f"key <=> CAST('key 4' AS BINARY) AND timestamp < {when}",
                f"offset BETWEEN {number} AND {other} AND length(value) > 10",
            ]
        )


def test_pushed_filters_change_nothing_but_the_work(pushing: SparkSession, mixed: Path) -> None:
    seed = random.randrange(2**31)
    everything = load(pushing, mixed, log="x").cache()
    try:
        end = everything.count()
        for predicate in predicates(random.Random(seed), end):
            expected = [row.offset for row in everything.where(predicate).select("offset").collect()]
            found = load(pushing, mixed, log="x").where(predicate).select("offset").collect()
            assert [row.offset for row in found] == expected, (seed, predicate)
    finally:
        everything.unpersist()


def test_what_filters_leave_out_is_not_even_looked_at(pushing: SparkSession, tmp_path: Path) -> None:
    clock = SimClock()
    with holdfast.open(tmp_path, clock=clock, background=False) as store:
        log = store.log("x", index_interval=10)
        for number in range(10):
            log.append_many([Message(b"payload %d" % number, b"key %d" % number)] * 10)
            log.refresh()
            clock.advance(60)
    (segment,) = (tmp_path / "logs").rglob("*.data")
    content = bytearray(segment.read_bytes())
    content[content.index(b"payload 5")] ^= 1
    segment.write_bytes(content)
    with pytest.raises(PySparkException, match="checksum does not match"):
        load(pushing, tmp_path, log="x").collect()
    minute = "TIMESTAMP '2026-01-01 00:0{}:30 UTC'"
    for predicate, count in (
        ("offset < 50", 50),
        ("offset IN (3, 7)", 2),
        ("offset >= 60 AND offset <= 80", 21),
        (f"timestamp < {minute.format(2)}", 30),
        (f"timestamp >= {minute.format(6)}", 30),
        ("key = CAST('key 7' AS BINARY)", 10),
        ("key IN (CAST('key 7' AS BINARY), CAST('key 8' AS BINARY))", 20),
    ):
        assert load(pushing, tmp_path, log="x").where(predicate).count() == count, predicate


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
