"""Does the parallel check find what `Log.verify` finds, in logs and in journals?"""

from collections import Counter
from dataclasses import asdict
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast
from holdfast import Roll
from holdfast.base.errors import NotFound
from holdfast.spark.pipelines.verify import check, run, segments
from tests.cli.terminal import damage_segment


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A store of two logs in many segments, of different sizes, and a queue that was worked on."""
    folder = tmp_path / "data"
    with holdfast.open(folder) as store:
        orders = store.log("orders", roll=Roll.count(10))
        for number in range(95):
            orders.append(b"order %03d" % number)
        packed = store.log("packed", roll=Roll.count(100), compression="zstd")
        for number in range(7):
            packed.append_many([b"%06d " % number * 400] * 50)
        queue = store.queue("jobs")
        queue.put_many([b"job %d" % number for number in range(20)])
        queue.ack(queue.lease(12))
    return folder


def test_a_whole_store_is_whole_and_every_log_and_journal_was_read(spark: SparkSession, data: Path) -> None:
    result = run(spark, str(data))
    assert result.ok and result.rows == []
    assert (result.facts["logs"], result.facts["journals"]) == (3, 1)
    with holdfast.open(data, read_only=True) as store:
        expected = [store.log(name).verify() for name in store.logs()] + [store.journal("jobs").verify()]
    for what in ("segments", "blocks", "records", "bytes"):
        assert result.facts[what] == sum(getattr(one, what) for one in expected), what


def test_damage_is_the_same_as_the_log_itself_finds(spark: SparkSession, data: Path) -> None:
    damage_segment(data, "orders", 1, b"order 013")
    damage_segment(data, "orders", 4, b"HFB")  # a block's header
    damage_segment(data, "orders", 6, b"HOLDFAST")  # a segment's header
    damage_segment(data, "packed", 2, b"HFB")
    index = min((data / "logs" / "packed").rglob("*.index"))
    content = bytearray(index.read_bytes())
    content[70] ^= 1
    index.write_bytes(content)
    found = check(segments(spark, str(data))).collect()
    with holdfast.open(data, read_only=True) as store:
        for name in store.logs():
            expected = asdict(store.log(name).verify())
            rows = [row for row in found if (row["kind"], row["name"]) == ("log", name)]
            for what in ("segments", "blocks", "records", "bytes"):
                assert sum(row[what] for row in rows) == expected[what], (name, what)
            places = sorted((one.asDict() for row in rows for one in row["damage"]), key=str)
            assert places == sorted(expected["damage"], key=str)
            assert bool(places) == (name != "jobs")


def test_damage_is_told_with_the_place_and_what_it_cost(spark: SparkSession, data: Path) -> None:
    path = damage_segment(data, "orders", 1, b"order 013")
    result = run(spark, str(data))
    assert not result.ok
    (row,) = [dict(zip(result.columns, row, strict=True)) for row in result.rows]
    assert (row["kind"], row["name"], row["file"]) == ("log", "orders", path.name)
    assert (row["lost"], row["first lost"], row["length"]) == (1, 13, len(b"order 013"))


def test_a_damaged_journal_is_found_too(spark: SparkSession, data: Path) -> None:
    (path,) = (data / "journals" / "jobs").rglob("*.data")
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    result = run(spark, str(data))
    assert [(row[0], row[1], row[2]) for row in result.rows] == [("journal", "jobs", path.name)]


def test_one_log_can_be_chosen_and_must_be_there(spark: SparkSession, data: Path) -> None:
    assert run(spark, str(data), log="packed").facts["logs"] == 1
    with pytest.raises(NotFound, match="no log 'nothing'"):
        run(spark, str(data), log="nothing")


def test_tasks_have_about_as_many_bytes_each(spark: SparkSession, data: Path) -> None:
    placed = segments(spark, str(data)).withColumn("partition", F.spark_partition_id()).collect()
    assert all(row["partition"] == row["task"] for row in placed)
    load = Counter[int]()
    for row in placed:
        load[row["task"]] += row["bytes"]
    assert len(load) == 6
    assert max(load.values()) - min(load.values()) <= max(row["bytes"] for row in placed)


def test_a_store_in_use_is_checked_as_far_as_it_was_written(spark: SparkSession, data: Path) -> None:
    with holdfast.open(data) as store:
        store.log("orders").append(b"more")
        store.log("orders").sync()
        plan = segments(spark, str(data), "orders")
        store.log("orders").append_many([b"behind the plan"] * 100)
        found = check(plan).collect()
    assert sum(row["records"] for row in found) == 96
    assert not any(row["damage"] for row in found)


def test_an_empty_store_is_whole(spark: SparkSession, tmp_path: Path) -> None:
    holdfast.open(tmp_path / "data").close()
    assert run(spark, str(tmp_path / "data")).ok
