"""Is history all that ever was: without a gap, without an overlap, or refused?"""

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import holdfast
from holdfast import Retention, Roll
from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.spark import history
from holdfast.spark.partitions import DataLoss
from holdfast.spark.pipelines.archive import run
from holdfast.spark.pipelines.lake import Lake
from holdfast.testing import SimClock


@pytest.fixture
def data(tmp_path: Path) -> str:
    return str(tmp_path / "data")


@pytest.fixture
def lake(tmp_path: Path) -> str:
    return str(tmp_path / "la[k]e")


def append(data: str, start: int, stop: int, *, drop: bool = False, force: bool = False) -> None:
    with holdfast.open(data) as store:
        log = store.log("orders", roll=Roll.count(10))
        for number in range(start, stop):
            headers: dict[str, str | bytes] = {"tenant": f"t{number % 2}", "raw": b"\xff\x00"} if number % 3 else {}
            log.append(b"value %d" % number, key=b"k%d" % number if number % 4 else None, headers=headers)
        log.sync()
        if drop:
            log.compact(retention=Retention(max_segments=1), force=force)


def offsets(frame: DataFrame) -> list[int]:
    return sorted(row["offset"] for row in frame.select("offset").collect())


def source(spark: SparkSession, data: str, **options: str) -> DataFrame:
    return spark.read.format("holdfast").option("path", data).options(**options).load()


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_history_is_what_was_put_also_when_the_log_has_dropped_it(
    spark: SparkSession, data: str, lake: str, format: str
) -> None:
    lake = lake if format == "parquet" else lake.replace("[k]", "k")
    append(data, 0, 25)
    before = source(spark, data, log="orders", includeHeaders="true")
    expected = before.collect()
    run(spark, data, lake=lake, format=format)  # type: ignore[arg-type]
    append(data, 25, 47, drop=True)
    run(spark, data, lake=lake, format=format)  # type: ignore[arg-type]
    append(data, 47, 53, drop=True)
    with holdfast.open(data, read_only=True) as store:
        assert store.log("orders").start == 40
    found = history(spark, data, lake, log="orders")
    assert found.schema == before.schema
    rows = found.orderBy("offset").collect()
    assert rows[:25] == expected
    assert [(row["offset"], bytes(row["value"])) for row in rows] == [(n, b"value %d" % n) for n in range(53)]
    assert found.where("offset BETWEEN 45 AND 48").count() == 4  # pushed down into both halves
    assert offsets(history(spark, None, lake, log="orders")) == list(range(47))


def test_only_what_is_committed_counts_while_a_run_is_at_work(spark: SparkSession, data: str, lake: str) -> None:
    append(data, 0, 20)
    run(spark, data, lake=lake)
    append(data, 20, 50)
    run(spark, data, lake=lake)
    commits = Lake(lake).shelf("logs", "orders").folder / "commits"
    (commits / "0000000001.json").rename(commits / "0000000001.plan")  # its file is in place, its commit is not
    assert offsets(history(spark, None, lake, log="orders")) == list(range(20))
    assert offsets(history(spark, data, lake, log="orders")) == list(range(50))


def test_a_lifecycle_has_a_history_too(spark: SparkSession, data: str, lake: str) -> None:
    def work() -> None:
        with holdfast.open(data) as store:
            jobs = store.queue("jobs", max_attempts=2)
            jobs.put_many([b"job"] * 5)
            jobs.ack(jobs.lease(3))
            for job in jobs.lease(1):
                job.nack("too late", 0)

    work()
    live = source(spark, data, queue="jobs", view="lifecycle")
    run(spark, data, lake=lake)
    work()
    found = history(spark, data, lake, queue="jobs")
    assert found.schema == live.schema
    assert sorted(map(str, found.collect())) == sorted(map(str, live.collect()))
    run(spark, data, lake=lake)
    archived = history(spark, None, lake, queue="jobs")
    assert sorted(map(str, archived.collect())) == sorted(map(str, live.collect()))


def test_a_gap_is_refused_unless_it_is_allowed(spark: SparkSession, data: str, lake: str) -> None:
    append(data, 0, 25)
    run(spark, data, lake=lake)
    append(data, 25, 55, drop=True, force=True)
    with pytest.raises(DataLoss, match="the records 25 to 49 of 'orders' were dropped before they were archived"):
        history(spark, data, lake, log="orders")
    run(spark, data, lake=lake, allow_gaps=True)
    with pytest.raises(DataLoss, match="the records 25 to 49"):
        history(spark, data, lake, log="orders")
    assert offsets(history(spark, data, lake, log="orders", allow_gaps=True)) == [*range(25), *range(50, 55)]


def test_a_log_that_was_made_anew_is_another_one(spark: SparkSession, data: str, lake: str) -> None:
    append(data, 0, 25)
    run(spark, data, lake=lake)
    shutil.rmtree(Path(data) / "logs" / "orders")
    append(data, 0, 30)
    with pytest.raises(DataLoss, match="deleted and recreated"):
        history(spark, data, lake, log="orders")
    with pytest.raises(DataLoss, match="deleted and recreated"):
        run(spark, data, lake=lake)
    assert offsets(history(spark, None, lake, log="orders")) == list(range(25))


def test_a_log_that_is_shorter_than_its_archive_is_refused(spark: SparkSession, data: str, lake: str) -> None:
    append(data, 0, 5)
    shutil.copytree(data, data + ".backup")
    append(data, 5, 9)
    run(spark, data, lake=lake)
    with pytest.raises(DataLoss, match="archived up to 9, but ends at 5"):
        history(spark, data + ".backup", lake, log="orders")


def test_a_frame_that_is_kept_too_long_fails_and_leaves_nothing_out(spark: SparkSession, data: str, lake: str) -> None:
    append(data, 0, 25)
    run(spark, data, lake=lake)
    append(data, 25, 45)
    kept = history(spark, data, lake, log="orders")
    run(spark, data, lake=lake)
    append(data, 45, 45, drop=True)
    with pytest.raises(Exception, match="dropped by retention"):
        kept.collect()
    assert offsets(history(spark, data, lake, log="orders")) == list(range(45))


@pytest.fixture
def far_from_utc(spark: SparkSession) -> Iterator[None]:
    """Another time zone, for a while."""
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    yield
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_times_are_utc_and_days_that_are_not_wanted_are_not_opened(
    spark: SparkSession, data: str, lake: str, far_from_utc: None
) -> None:
    clock = SimClock()
    with holdfast.open(data, clock=clock, background=False) as store:
        log = store.log("orders")
        for _ in range(6):
            log.append(b"value")
            clock.advance(43_200)
    run(spark, data, lake=lake)
    start = datetime(2026, 1, 1)
    since, until = start + timedelta(days=1), start + timedelta(days=2)
    assert offsets(history(spark, data, lake, log="orders", since=since, until=until)) == [2, 3]
    aware = since.replace(tzinfo=UTC).astimezone()
    assert offsets(history(spark, data, lake, log="orders", since=aware)) == [2, 3, 4, 5]
    shelf = Lake(lake).shelf("logs", "orders")
    for number in (1, 3):  # they may as well be gone
        shutil.rmtree(shelf.path / f"date=2026-01-0{number}")
    only = history(spark, None, lake, log="orders", since=since, until=until - timedelta(seconds=1))
    assert offsets(only) == [2, 3]


def test_what_is_not_there_is_named(spark: SparkSession, data: str, lake: str) -> None:
    append(data, 0, 3)
    run(spark, data, lake=lake)
    with pytest.raises(NotFound, match=r"'mail' is not archived in .*; there are: 'orders'"):
        history(spark, data, lake, log="mail")
    with pytest.raises(InvalidArgument, match="either log"):
        history(spark, data, lake)
    card = Lake(lake).shelf("logs", "orders").folder / "card.json"
    card.write_text(json.dumps({"format": 99}))
    with pytest.raises(holdfast.HoldfastError, match="newer version"):
        history(spark, data, lake, log="orders")
