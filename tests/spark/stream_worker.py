"""A process that streams the log `x` of a store to Parquet, to another log or to a queue, until it is killed.

python -m tests.spark.stream_worker FOLDER TARGET RECORDS

FOLDER has the store (`data`); the checkpoints and the Parquet files are beside it. TARGET is `parquet`, `log` or
`queue`. A batch has at most RECORDS records. It says `ready` when Spark is up and the stream is about to begin.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession

from holdfast.spark.session import session

TARGETS = {"parquet": "parquet", "log": "copies", "queue": "jobs"}
"""The kinds of targets and their names."""
_CONF = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # for a life of seconds
    "spark.driver.memory": "512m",
    # A kill while Spark writes its very first offset leaves a scrap, for which it would refuse the checkpoint.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": False,
}


def run(spark: SparkSession, folder: Path, target: str, records: int | None = None) -> None:
    """Stream from the checkpoint, or else the beginning, to the present end."""
    reader = spark.readStream.format("holdfast").option("path", str(folder / "data")).option("log", "x")
    reader = reader.option("startingOffsets", "earliest").option("minPartitions", 2)
    if records is not None:
        reader = reader.option("maxOffsetsPerTrigger", records)
    frame = reader.load()
    if target == "parquet":
        writer = frame.select("offset", "value").writeStream.format("parquet").option("path", str(folder / "parquet"))
    else:
        writer = frame.select("key", "value").writeStream.format("holdfast").option("path", str(folder / "data"))
        writer = writer.option(target, TARGETS[target])
    writer = writer.option("checkpointLocation", str(folder / "checkpoints" / target))
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    made = session("local[2]", app="worker", **_CONF)
    print("ready", flush=True)
    run(made, Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
    print("done", flush=True)
    made.stop()
