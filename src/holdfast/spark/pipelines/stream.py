"""Example of a streaming pipeline, to copy and change: counts the records of a log by key and window.

    holdfast pipeline stream --data data --log orders --queue orders.counts --out counts --checkpoint counts.checkpoint

The counts of a window are written when the watermark has passed its end; later records of it are ignored. They go to a
queue, to Parquet, or to both. Each is written once, also if this is killed and started again with the same checkpoint;
in the Parquet folder that holds for readers that use Spark's `_spark_metadata`. With `--available-now` it processes
what is there, and ends.
"""

import contextlib
from collections.abc import Iterator
from typing import Annotated

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from holdfast.base.errors import InvalidArgument
from holdfast.spark.pipelines import Result
from holdfast.spark.pipelines.output_folder import make_output
from holdfast.spark.shuffles import cores_of, sized_shuffles

__all__ = ["counts", "run", "to_parquet", "to_queue"]


def run(
    spark: SparkSession,
    data: str,
    *,
    log: Annotated[str, "The log to read."],
    checkpoint: Annotated[str, "A folder for the progress of the query."],
    queue: Annotated[str | None, "The queue for the counts."] = None,
    out: Annotated[str | None, "A folder for the counts as Parquet."] = None,
    window: Annotated[str, "The length of a window."] = "1 minute",
    late: Annotated[str, "How much later than others a record may arrive."] = "10 seconds",
    every: Annotated[str, "The interval between batches."] = "1 second",
    available_now: Annotated[bool, "Process the present records, and end."] = False,
) -> Result:
    """Count the records of a log by key and window, into a queue and into Parquet."""
    if queue is None and out is None:
        raise InvalidArgument("no target: give the option 'queue', the option 'out', or both")
    reader = spark.readStream.format("holdfast").option("path", data).option("log", log)
    records = reader.option("startingOffsets", "earliest").load()
    counted = counts(records, window, late)
    # Each target has its own query and checkpoint, and so gets each count once whatever happens to the other. The log
    # is read for each of them, which is the cheapest part of the work.
    sinks = {}
    if queue is not None:
        sinks["queue"] = to_queue(counted, data, queue)
    if out is not None:
        sinks["parquet"] = to_parquet(counted, out)
    for folder in (checkpoint, *([] if out is None else [out])):
        make_output(spark, folder)
    queries: list[StreamingQuery] = []
    with _stopped(queries):
        for name, sink in sinks.items():
            sink = sink.option("checkpointLocation", f"{checkpoint}/{name}").queryName(f"stream to {name}")
            sink = sink.trigger(availableNow=True) if available_now else sink.trigger(processingTime=every)
            # A query never changes the number of partitions of its state: use one for each concurrent task, not 200.
            with sized_shuffles(spark, cores_of(spark)):
                queries.append(sink.start())
        while any(query.isActive for query in queries):
            for query in queries:
                query.awaitTermination(1)  # raises what ended it, if that was an error
    return Result(
        title=f"counted the records of {log!r}",
        columns=["into", "batches", "records read", "counts sent"],
        rows=[(name, *_done(query)) for name, query in zip(sinks, queries, strict=True)],
        facts={"checkpoint": checkpoint, **({"out": out} if out is not None else {})},
    )


def counts(records: DataFrame, window: str, late: str) -> DataFrame:
    """Return how many records and bytes each key had in each window."""
    return (
        records.withWatermark("timestamp", late)
        .groupBy(F.window("timestamp", window), F.col("key").cast("string").alias("key"))
        .agg(F.count("*").alias("records"), F.sum(F.length("value")).alias("bytes"))
        .select(F.col("window.start").alias("start"), F.col("window.end").alias("end"), "key", "records", "bytes")
    )


def to_queue(counted: DataFrame, data: str, queue: str) -> DataStreamWriter:
    """Return a writer that puts each count as a message, with the key of the records."""
    messages = counted.select("key", F.to_json(F.struct("*")).alias("value"))
    return messages.writeStream.format("holdfast").option("path", data).option("queue", queue).outputMode("append")


def to_parquet(counted: DataFrame, out: str) -> DataStreamWriter:
    """Return a writer of the counts as files, in a folder for each day."""
    dated = counted.withColumn("day", F.to_date("start"))
    return dated.writeStream.format("parquet").option("path", out).partitionBy("day").outputMode("append")


@contextlib.contextmanager
def _stopped(queries: list[StreamingQuery]) -> Iterator[None]:
    try:
        yield
    finally:
        for query in queries:
            query.stop()


def _done(query: StreamingQuery) -> tuple[int, int, int]:
    progress = query.recentProgress
    sent = sum(max(0, batch["sink"]["numOutputRows"]) for batch in progress)
    return len({batch["batchId"] for batch in progress}), sum(batch["numInputRows"] for batch in progress), sent
