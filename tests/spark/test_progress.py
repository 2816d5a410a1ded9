"""Does the bar tell the truth? Tasks and rows are counted as they are done, and nothing is shown where nobody looks."""

import io
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Console

import holdfast
from holdfast.spark.progress import JobWatch, StreamWatch, progress


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def holding(gate: Path) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Work whose tasks, all but the first, wait for a file."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            while batch.column(0)[0].as_py() >= 1000 and not gate.exists():
                time.sleep(0.02)
            yield batch

    return work


def test_tasks_are_counted_while_a_job_runs(spark: SparkSession, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    watch = JobWatch(spark)
    assert watch.look() == (0, 0)
    frame = spark.range(0, 4000, 1, 4).mapInArrow(holding(gate), "id LONG")
    with ThreadPoolExecutor(1) as pool:
        try:
            counted = pool.submit(lambda: frame.foreach(lambda row: None))
            wait_until(lambda: watch.look() == (1, 4))  # two cores: the first is done, two wait, one is to come
        finally:
            gate.touch()
        counted.result()
    wait_until(lambda: watch.look() == (4, 4))


def test_rows_of_a_stream_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with holdfast.open(data) as store:
        store.log("orders").append_many([b"x"] * 500)
    watch = StreamWatch(spark)
    assert not watch.look()
    reader = spark.readStream.format("holdfast").option("path", str(data)).option("log", "orders")
    stream = reader.option("startingOffsets", "earliest").load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        wait_until(lambda: watch.look() and watch.rows == 500)
        watch.look()
        assert watch.rows == 500
    finally:
        query.stop()


def test_a_bar_is_shown_on_a_terminal_and_gone_when_done(spark: SparkSession) -> None:
    screen = io.StringIO()
    with progress(spark, "counting", console=Console(file=screen, force_terminal=True, width=100)):
        spark.range(0, 100, 1, 3).foreach(lambda row: None)
        wait_until(lambda: "counting" in screen.getvalue())
    assert screen.getvalue().endswith("\x1b[2K")


def test_nothing_is_shown_in_a_pipe_or_when_it_is_not_wanted(spark: SparkSession) -> None:
    screen = io.StringIO()
    with progress(spark, "counting", console=Console(file=screen, force_terminal=False)):
        spark.range(3).count()
    with progress(spark, "counting", shown=False, console=Console(file=screen, force_terminal=True)):
        spark.range(3).count()
    assert screen.getvalue() == ""
