"""Does the example stream count right? Each window once, in the queue and in Parquet, also across a restart."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast.base.errors import InvalidArgument
from holdfast.cli.pipeline.failures import reason_of
from holdfast.log import Message
from holdfast.spark.pipelines.stream import run
from holdfast.testing import SimClock

MINUTE = 60 * 10**9


def append(data: Path, *minutes: tuple[float, str]) -> None:
    """Append records with these keys, each so many minutes after a full hour."""
    for minute, keys in minutes:
        clock = SimClock(start_ns=1_770_000_000 * 10**9 // (60 * MINUTE) * 60 * MINUTE + round(minute * MINUTE))
        with holdfast.open(data, clock=clock, background=False) as store:
            store.log("orders").append_many([Message(b"12345", key.encode()) for key in keys])


def sent(data: Path) -> list[tuple[str, str, int, int]]:
    with holdfast.open(data) as store:
        queue = store.queue("counts")
        found = [json.loads(message.payload) for message in queue.lease(1000)]
    return sorted((row["start"][14:16], row["key"], row["records"], row["bytes"]) for row in found)


def test_each_window_is_counted_once_across_restarts(spark: SparkSession, tmp_path: Path) -> None:
    data, out, checkpoint = tmp_path / "data", tmp_path / "out", tmp_path / "checkpoint"

    def count() -> list[tuple[object, ...]]:
        return run(
            spark,
            str(data),
            log="orders",
            queue="counts",
            out=str(out),
            checkpoint=str(checkpoint),
            available_now=True,
        ).rows

    append(data, (0.1, "aab"), (0.5, "a"), (1.2, "b"))
    rows = count()
    assert [row[0] for row in rows] == ["queue", "parquet"]
    assert all(row[2] == 5 for row in rows)
    append(data, (1.4, "bb"), (3.5, "c"))
    count()
    expected = [("00", "a", 3, 15), ("00", "b", 1, 5), ("01", "b", 3, 15)]  # the window of c is not over
    assert sent(data) == expected
    kept = spark.read.parquet(str(out)).selectExpr("date_format(start, 'mm')", "key", "records", "bytes").collect()
    assert sorted(map(tuple, kept)) == expected


def test_a_stream_without_a_target_or_a_log_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    append(tmp_path / "data", (0, "a"))
    with pytest.raises(InvalidArgument, match="the option 'queue', the option 'out', or both"):
        run(spark, str(tmp_path / "data"), log="orders", checkpoint=str(tmp_path / "c"))
    with pytest.raises(Exception) as caught:
        run(
            spark, str(tmp_path / "data"), log="none", out=str(tmp_path / "out"), checkpoint=str(tmp_path / "c"),
            available_now=True,
        )  # fmt: skip
    assert reason_of(caught.value).startswith("there is no log 'none'")
    assert spark.streams.active == []
