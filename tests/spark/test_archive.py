"""Does everything get into the lake, each record once: over many runs, through kills, in three formats?"""

import json
import os
import pickle
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import holdfast
from holdfast import Flush, Retention, Roll
from holdfast.base.errors import InvalidArgument, Locked, NotFound
from holdfast.spark.partitions import DataLoss
from holdfast.spark.pipelines.archive import FILE_BYTES, Archived, Batches, run, tasks_for
from holdfast.spark.pipelines.lake import Batch, Card, Lake, needs
from holdfast.spark.pipelines.lake_parquet import DAYS, DayWriter
from holdfast.spark.schemas import LOG
from holdfast.testing import SimClock
from tests.cli.terminal import damage_segment
from tests.tiers import a_seed

ODD = "we ird/%=ü{x}*'\"[y]"
"""A name in which everything is special to someone."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "a lake"


@pytest.fixture
def far_from_utc(spark: SparkSession) -> Iterator[None]:
    """Another time zone, for a while."""
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    yield
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def append(data: Path, log: str, start: int, stop: int, *, drop: bool = False) -> None:
    with holdfast.open(data) as store:
        orders = store.log(log, roll=Roll.count(10))
        for number in range(start, stop):
            orders.append(b"value %d" % number, key=b"key %d" % (number % 3))
        orders.sync()
        if drop:
            orders.compact(retention=Retention(max_segments=1))


def read(lake: Path, log: str) -> list[tuple[int, bytes]]:
    """The lake as any reader sees it that knows nothing of Holdfast."""
    table = ds.dataset(lake / "logs", partitioning=ds.partitioning(LOG_PARTS, flavor="hive")).to_table()
    rows = table.filter(pa.compute.equal(table["log"], log)).select(["offset", "value"]).to_pylist()
    return sorted((row["offset"], row["value"]) for row in rows)


LOG_PARTS = pa.schema([("log", pa.string()), ("date", pa.date32())])


def tree(folder: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.name != "LOCK"}


def test_many_runs_with_appends_rolls_and_retention_add_each_record_once(
    spark: SparkSession, data: Path, lake: Path
) -> None:
    end = 0
    for count in (35, 1, 24):
        append(data, "orders", end, end + count)
        end += count
        result = run(spark, str(data), lake=str(lake))
        assert result.rows[0][:4] == ("logs", "orders", count, 1)
        append(data, "orders", end, end, drop=True)
    with holdfast.open(data, read_only=True) as store:
        assert store.log("orders").start > 35  # only the lake has the others
    assert read(lake, "orders") == [(number, b"value %d" % number) for number in range(60)]
    before = tree(lake)
    assert run(spark, str(data), lake=str(lake)).facts["rows added"] == 0
    assert tree(lake) == before


def test_retention_waits_for_the_archive_and_the_archive_is_among_the_readers(
    spark: SparkSession, data: Path, lake: Path
) -> None:
    append(data, "orders", 0, 5)
    run(spark, str(data), lake=str(lake))
    append(data, "orders", 5, 45, drop=True)
    with holdfast.open(data) as store:
        log = store.log("orders", roll=Roll.count(10))
        assert log.start == 0  # a segment goes as a whole, and what follows 5 is not archived
        (tailer,) = log.stats().tailers
        assert tailer.name.startswith("spark:archive:a lake-") and tailer.position == 5
    moved = lake.rename(lake.with_name("moved"))  # it is still the same reader
    run(spark, str(data), lake=str(moved))
    append(data, "orders", 45, 45, drop=True)
    with holdfast.open(data, read_only=True) as store:
        assert store.log("orders").start == 40
    assert [offset for offset, _ in read(moved, "orders")] == list(range(45))


def test_names_and_days_stand_in_the_path_so_that_others_find_them(
    spark: SparkSession, data: Path, lake: Path, far_from_utc: None
) -> None:
    clock = SimClock()  # begins at midnight of New Year 2026 in UTC
    with holdfast.open(data, clock=clock, background=False) as store:
        log, queue = store.log(ODD), store.queue("jobs", history=1000 * 86_400)
        for number in range(5):
            log.append(b"%d" % number)
            queue.put(b"job")
            queue.lease()[0].ack()
            clock.advance(86_400)
        clock.advance(40 * 86_400)
        log.append(b"late")
    run(spark, str(data), lake=str(lake))
    found = spark.read.option("basePath", str(lake / "logs")).parquet(f"{lake}/logs").where("topic <> 'jobs'").collect()
    days = [date(2026, 1, day) for day in range(1, 6)] + [date(2026, 2, 15)]
    assert sorted((row["offset"], row["date"]) for row in found) == list(enumerate(days))
    assert {(row["log"], row["topic"]) for row in found} == {(ODD, ODD)}
    events = spark.read.parquet(f"{lake}/lifecycle").groupBy("queue", "date").count().collect()
    counts = {(row["queue"], row["date"]): row["count"] for row in events}
    assert counts.pop(("jobs", days[0])) == 4  # put, leased, acked, and the queue's own beginning
    assert counts == {("jobs", day): 3 for day in days[1:5]}


def test_logs_and_queues_can_be_chosen(spark: SparkSession, data: Path, lake: Path) -> None:
    append(data, "orders", 0, 3)
    append(data, "orders.eu", 0, 3)
    with holdfast.open(data) as store:
        store.queue("mail").put(b"hello")
    some = run(spark, str(data), lake=str(lake), logs=["orders.*"], lifecycle=False)
    assert [row[:2] for row in some.rows] == [("logs", "orders.eu")]
    lives = run(spark, str(data), lake=str(lake), queues=["mail"], records=False)
    assert [row[:2] for row in lives.rows] == [("lifecycle", "mail")]
    with pytest.raises(NotFound, match=r"no log matches 'x\*'; there are: 'mail', 'orders', 'orders.eu'"):
        run(spark, str(data), lake=str(lake), logs=["x*"])


def test_what_a_killed_run_had_planned_is_finished_and_all_else_is_cleared_away(
    spark: SparkSession, data: Path, lake: Path
) -> None:
    append(data, "orders", 0, 20)
    run(spark, str(data), lake=str(lake))
    append(data, "orders", 20, 50)
    run(spark, str(data), lake=str(lake))
    # As if it had been killed behind the plan of the second batch, and in the middle of writing a third.
    shelf = Lake(str(lake)).shelf("logs", "orders")
    commit = shelf.folder / "commits" / "0000000001.json"
    plan = json.loads(commit.read_text())
    staging = shelf.folder / "staging" / plan["staging"]
    staging.mkdir(parents=True)
    (file,) = plan["files"]
    (shelf.path / f"date={file['day']}" / file["name"]).rename(staging / file["file"])
    commit.rename(commit.with_suffix(".plan"))
    (shelf.folder / "staging" / "third").mkdir()
    (shelf.folder / "staging" / "third" / "half.parquet").write_bytes(b"PAR1")
    assert len(read(lake, "orders")) == 20
    append(data, "orders", 50, 51)
    assert run(spark, str(data), lake=str(lake)).facts["rows added"] == 1
    assert read(lake, "orders") == [(number, b"value %d" % number) for number in range(51)]
    assert not any((shelf.folder / "staging").glob("*"))


KILLED = """
import sys
from holdfast.spark.pipelines.archive import run
from holdfast.spark.session import session
spark = session("local[2]")
spark.range(1).count()
print("ready", flush=True)
while True:
    run(spark, sys.argv[1], lake=sys.argv[2], batch_mb=1)
    print("done", flush=True)
"""


@pytest.mark.slow
def test_a_run_that_is_killed_at_any_moment_loses_and_doubles_nothing(
    spark: SparkSession, data: Path, lake: Path
) -> None:
    seed = a_seed()
    chance = random.Random(seed)
    place = Lake(str(lake))
    place.begin("parquet")
    shelf = place.shelf("logs", "orders")
    commits = shelf.folder / "commits"
    end = interrupted = runs = 0
    with holdfast.open(data) as store:
        log = store.log("orders", flush=Flush.batch(), roll=Roll.size(1 << 20))
        while runs < 2 or (not interrupted and runs < 12):  # by chance, all may have been done before they were killed
            runs += 1
            for _ in range(10):
                log.append_many([b"%08d" % number + bytes(992) for number in range(end, end + 1000)])
                end += 1000
            log.sync()
            process = subprocess.Popen(
                [sys.executable, "-c", KILLED, str(data), str(lake)],
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # so that Java dies with it
            )
            with process:
                assert process.stdout is not None and process.stdout.readline() == "ready\n", f"seed {seed}"
                wanted = len(list(commits.glob("*.json"))) + chance.randrange(1, 6)
                while len(list(commits.glob("*.json"))) < wanted and process.poll() is None:
                    time.sleep(0.002)
                time.sleep(chance.uniform(0, 0.2))
                os.killpg(process.pid, signal.SIGKILL)
            interrupted += shelf.open_table().ends()["log"] < end
    assert interrupted, f"no run was killed in the middle of its work: seed {seed}"
    run(spark, str(data), lake=str(lake))
    found = read(lake, "orders")
    assert [offset for offset, _ in found] == list(range(end)), f"seed {seed}"
    assert all(int(value[:8]) == offset for offset, value in found), f"seed {seed}"


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_delta_and_iceberg_hold_the_same_and_a_batch_that_comes_again_is_skipped(
    spark: SparkSession, data: Path, lake: Path, format: str
) -> None:
    append(data, "orders", 0, 20)
    append(data, ODD, 0, 7)
    run(spark, str(data), lake=str(lake), format=format)  # type: ignore[arg-type]
    append(data, "orders", 20, 50)
    result = run(spark, str(data), lake=str(lake), format=format)  # type: ignore[arg-type]
    assert result.facts["rows added"] == 30

    def rows() -> list[tuple[str, int, bytes, str, date]]:
        if format == "delta":
            table = DeltaTable(lake / "logs").to_pyarrow_table()
        else:
            catalog = SqlCatalog("lake", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}")
            table = catalog.load_table("holdfast.logs").scan().to_arrow()
            catalog.engine.dispose()
        columns = ("topic", "offset", "value", "log", "date", "timestamp")
        assert all(row["timestamp"].date() == row["date"] for row in table.to_pylist())
        return sorted(tuple(row[name] for name in columns[:5]) for row in table.to_pylist())

    found = rows()
    assert [row[:3] for row in found if row[0] == "orders"] == [("orders", n, b"value %d" % n) for n in range(50)]
    assert [row[1] for row in found if row[0] == ODD] == list(range(7))
    assert all(topic == log for topic, _, _, log, _ in found)

    shelf = Lake(str(lake)).shelf("logs", "orders")
    card = shelf.card()
    assert card is not None
    options = {"path": str(data), **shelf.options}
    again = Batches(shelf, shelf.open_table(), card, {"orders": "log"}, options, "zstd", Archived({"log": 20}))
    frame = spark.read.format("holdfast").options(**options).load()
    assert again.add(frame, {"log": 50}) is None
    assert rows() == found
    with pytest.raises(DataLoss, match="another run writes"):
        again.add(frame, {"log": 60})


def test_what_a_copy_in_another_process_adds_is_counted(spark: SparkSession, data: Path, lake: Path) -> None:
    append(data, "orders", 0, 25)
    place = Lake(str(lake))
    place.begin("parquet")
    shelf = place.shelf("logs", "orders")
    shelf.folder.mkdir(parents=True)
    options = {"path": str(data), **shelf.options}
    card = Card("orders", {"log": ""}, {"log": 0})
    done = Archived({"log": 0})
    batches = Batches(shelf, shelf.open_table(), card, {"orders": "log"}, options, "zstd", done)
    copy = pickle.loads(pickle.dumps(batches))  # as Spark Connect hands it to the process that runs the batches
    for end in (10, 25):
        copy.add(spark.read.format("holdfast").options(**options).load(), {"log": end})
    assert done.rows == 0
    batches.count()
    assert (done.rows, done.batches) == (25, 2)
    assert done.bytes > 0


def test_delta_and_iceberg_keep_lifecycles_and_note_batches_without_a_row(
    spark: SparkSession, data: Path, lake: Path
) -> None:
    with holdfast.open(data) as store:
        store.queue("jobs").put_many([b"1", b"2"])
    run(spark, str(data), lake=str(lake), format="delta", records=False)
    table = DeltaTable(lake / "lifecycle")
    assert sorted(table.to_pyarrow_table()["event"].to_pylist()) == ["put", "put", "sought"]
    empty = spark.read.format("holdfast").options(path=str(data), queue="jobs", view="lifecycle").load().limit(0)
    for format in ("delta", "iceberg"):
        place = Lake(str(lake.with_name(format)))
        place.begin(format)
        shelf = place.shelf("lifecycle", "jobs")
        assert shelf.open_table().add(Batch(empty, {}, {"put": 3, "journal": 4}, "zstd")).rows == 0
        assert shelf.open_table().ends() == {"put": 3, "journal": 4}


def test_what_cannot_be_is_refused_in_one_line(spark: SparkSession, data: Path, lake: Path) -> None:
    append(data, "orders", 0, 35)
    run(spark, str(data), lake=str(lake))
    with pytest.raises(InvalidArgument, match="has the format parquet, not delta"):
        run(spark, str(data), lake=str(lake), format="delta")
    with pytest.raises(InvalidArgument, match="that the store itself uses"):
        run(spark, str(data), lake=str(data / "logs" / "lake"))
    with pytest.raises(InvalidArgument, match="not a folder of this machine"):
        run(spark, str(data), lake="s3://bucket/lake")
    with pytest.raises(NotFound, match="pip install 'no-such-library'"):
        needs("no_such_library", "no-such-library")
    lock = Lake(str(lake)).shelf("logs", "orders").lock()
    with pytest.raises(Locked):
        run(spark, str(data), lake=str(lake))
    lock.release()
    with holdfast.open(data) as store:  # someone drops what was not archived yet
        log = store.log("orders", roll=Roll.count(10))
        log.append_many([b"unseen"] * 10)
        log.clear(force=True)
        log.append(b"seen")
    with pytest.raises(DataLoss, match="the records 35 to 44 of 'orders' were dropped before they were archived"):
        run(spark, str(data), lake=str(lake))
    assert run(spark, str(data), lake=str(lake), allow_gaps=True).facts["rows added"] == 1
    assert [offset for offset, _ in read(lake, "orders")] == [*range(35), 45]


def test_damage_stops_a_run_unless_it_may_be_left_out(spark: SparkSession, data: Path, lake: Path) -> None:
    append(data, "orders", 0, 30)
    damage_segment(data, "orders", 1, b"value 13")
    with pytest.raises(Exception, match="onDamage"):
        run(spark, str(data), lake=str(lake))
    assert not (lake / "logs").exists()
    assert run(spark, str(data), lake=str(lake), on_damage="skip").facts["rows added"] == 29
    assert [offset for offset, _ in read(lake, "orders")] == [*range(13), *range(14, 30)]


def test_files_are_as_large_as_can_be_without_a_core_that_waits() -> None:
    assert tasks_for(1, 2) == 1
    assert tasks_for(FILE_BYTES, 16) == 1
    assert tasks_for(FILE_BYTES + 1, 2) == 2
    assert tasks_for(5 * FILE_BYTES, 2) == 6
    assert tasks_for(2 * FILE_BYTES, 16) == 2
    assert tasks_for(24 * FILE_BYTES, 16) == 32


def test_a_task_writes_a_file_a_day_and_has_few_of_them_open(tmp_path: Path) -> None:
    schema = pa.schema([LOG.field("offset"), LOG.field("timestamp")])
    days = [*range(DAYS + 4), 0, 0, DAYS + 3]
    writer = DayWriter(tmp_path, "zstd")
    for offset, day in enumerate(days):
        when = pa.array([day * 86_400_000_000, day * 86_400_000_000 + 86_399_999_999], LOG.field("timestamp").type)
        writer.write(pa.RecordBatch.from_arrays([pa.array([offset, offset]), when], schema=schema))
    (told,) = writer.close()
    found = [(file["day"], row) for file in told.to_pylist() for row in read_file(tmp_path / file["file"])]
    start = date(1970, 1, 1).toordinal()
    expected = [(date.fromordinal(start + day).isoformat(), offset) for offset, day in enumerate(days) for _ in "ab"]
    assert sorted(found) == sorted(expected)
    assert len(told) == DAYS + 5  # the first day was closed and begun anew


def read_file(path: Path) -> list[int]:
    offsets: list[int] = ds.dataset(path).to_table()["offset"].to_pylist()
    return offsets
