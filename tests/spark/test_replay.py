"""Are old messages done again exactly as they were, once, and never by mistake?"""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast
from holdfast import Retention, Roll
from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.spark import history
from holdfast.spark.pipelines import Result, archive
from holdfast.spark.pipelines.replay import HEADERS, replay, run
from holdfast.testing import SimClock

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def data(tmp_path: Path) -> str:
    """A log with a record a minute from New Year on."""
    folder = str(tmp_path / "data")
    clock = SimClock()
    with holdfast.open(folder, clock=clock, background=False) as store:
        log = store.log("orders", roll=Roll.count(10))
        for number in range(60):
            log.append(b"order %d" % number, key=b"ann" if number % 2 else b"bob", headers={"tenant": "t"})
            clock.advance(60)
    return folder


def messages(data: str, log: str) -> list[holdfast.Record]:
    with holdfast.open(data, read_only=True) as store:
        return list(store.log(log).read()) if log in store.logs() else []


def test_a_dry_run_tells_how_many_and_shows_some_and_writes_nothing(spark: SparkSession, data: str) -> None:
    result = run(
        spark,
        data,
        log="orders",
        where="key = 'ann'",
        since=START + timedelta(minutes=10),
        until=START + timedelta(minutes=50),
        last=45,
        to_queue="again",
        examples=3,
    )
    assert (result.facts["messages"], result.facts["first"], result.facts["last"]) == (18, 11, 45)
    assert "would be put" in result.title and "new" in result.facts
    shown = [dict(zip(result.columns, row, strict=True)) for row in result.rows]
    assert [(row["offset"], row["key"], row["payload"]) for row in shown] == [
        (number, "ann", f"order {number}") for number in (11, 13, 15)
    ]
    assert messages(data, "again") == []
    with holdfast.open(data, read_only=True) as store:
        assert store.queues() == []


def test_a_replay_arrives_whole_in_order_and_only_once(spark: SparkSession, data: str) -> None:
    def do(name: str | None = None) -> Result:
        where = "key = 'ann'"
        return run(spark, data, log="orders", where=where, first=20, to_queue="again", execute=True, name=name)

    assert do().facts["messages"] == 20
    assert "done before" in do().title
    found = messages(data, "again")
    assert [record.payload for record in found] == [b"order %d" % number for number in range(21, 60, 2)]
    assert {record.key for record in found} == {b"ann"}
    assert dict(found[0].headers or {}) == {
        "tenant": "t",
        "replayed-log": "orders",
        "replayed-offset": "21",
        "replayed-time": (found[0].headers or {})["replayed-time"],
    }
    assert datetime.fromisoformat(str((found[0].headers or {})["replayed-time"])).replace(
        second=0, microsecond=0
    ) == START + timedelta(minutes=21)
    with holdfast.open(data) as store:
        assert len(store.queue("again").lease(100)) == 20
    assert do(name="once more").facts["messages"] == 20
    assert len(messages(data, "again")) == 40


def test_what_the_store_has_dropped_comes_from_the_lake(spark: SparkSession, data: str, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    archive.run(spark, data, lake=lake)
    with holdfast.open(data) as store:
        log = store.log("orders", roll=Roll.count(10))
        log.compact(retention=Retention(max_segments=1))
        log.append(b"last")
        assert log.start == 50
    result = run(spark, data, log="orders", lake=lake, to_log="copy", execute=True)
    assert result.facts["messages"] == 61
    assert [record.payload for record in messages(data, "copy")] == [b"order %d" % n for n in range(60)] + [b"last"]


def test_any_frame_can_be_replayed(spark: SparkSession, data: str, tmp_path: Path) -> None:
    lake = str(tmp_path / "lake")
    archive.run(spark, data, lake=lake)
    frame = history(spark, data, lake, log="orders").where("offset < 5").withColumn("more", F.lit(1))
    assert replay(spark, frame, data, log="copy", name="five") == 5
    assert replay(spark, frame, data, log="copy", name="five") is None
    twice = spark.read.format("holdfast").options(path=data, log="copy", includeHeaders="true").load()
    assert replay(spark, twice, data, queue="again", name="five") == 5
    for record in messages(data, "again"):
        assert dict(record.headers or {})["replayed-log"] == "copy"  # from where it came last
    made = spark.createDataFrame([("a",), ("b",)], "value string")
    assert replay(spark, made, data, log="made", name="made") == 2
    assert [(record.payload, record.headers) for record in messages(data, "made")] == [(b"a", {}), (b"b", {})]


def test_messages_of_a_queue_are_replayed_whatever_became_of_them(spark: SparkSession, data: str) -> None:
    with holdfast.open(data) as store:
        jobs = store.queue("jobs", log="work", max_attempts=1, dead_letter="dead")
        store.queue("other", log="work")
        jobs.put_many([b"1", b"2"])
        first, second = jobs.lease(2)
        first.ack()
        second.nack("no")
        assert jobs.redrive() == 1  # a copy on the log that both share, for one of them
    assert run(spark, data, queue="jobs", to_log="copy", execute=True).facts["messages"] == 3
    assert [record.payload for record in messages(data, "copy")] == [b"1", b"2", b"2"]
    assert run(spark, data, queue="other", to_log="copy").facts["messages"] == 2


def test_headers_that_are_no_text_stay_as_they_are(spark: SparkSession, data: str) -> None:
    with holdfast.open(data) as store:
        store.log("raw").append(b"x", headers={"bytes": b"\xff\xfe", "text": "t"})
    run(spark, data, log="raw", to_log="copy", execute=True)
    (found,) = messages(data, "copy")
    headers = dict(found.headers or {})
    assert headers["bytes"] == b"\xff\xfe" and headers["text"] == "t"
    assert set(HEADERS) < set(headers)


def test_what_is_not_clear_is_refused(spark: SparkSession, data: str) -> None:
    with pytest.raises(InvalidArgument, match="'to_queue' or the option 'to_log'"):
        run(spark, data, log="orders")
    with pytest.raises(InvalidArgument, match="'log' or the option 'queue'"):
        run(spark, data, to_log="copy")
    with pytest.raises(InvalidArgument, match="the condition 'nothing = 1' is invalid"):
        run(spark, data, log="orders", to_log="copy", where="nothing = 1")
    with pytest.raises(NotFound, match="no queue 'mail'"):
        run(spark, data, queue="mail", to_log="copy")
    with pytest.raises(InvalidArgument, match="'value' is missing"):
        replay(spark, spark.range(1), data, log="copy", name="x")
