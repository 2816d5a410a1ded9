"""An archive of the Java classes that Spark loads: a JVM of the tests starts with it in half of the processor time.

`python -m tests.class_archive` makes it: a JVM runs a few queries and a stream, and writes its classes to a file when
it exits. A JVM of another version, or with another class path, ignores the file.
"""

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import holdfast

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ARCHIVE", "make", "options"]

ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
_QUIET = ["-Xlog:cds=off", "-Xlog:cds+dynamic=off"]


def options() -> list[str]:
    """Return the options with which a JVM uses the archive; none if there is no archive."""
    return [f'"-XX:SharedArchiveFile={ARCHIVE}"', *_QUIET] if ARCHIVE.exists() else []


def make() -> None:
    """Run Spark in a JVM that leaves its classes in the archive."""
    ARCHIVE.unlink(missing_ok=True)
    import tests.conftest  # noqa: F401 - chooses the options of the tests' JVMs: the archive is for the same
    from holdfast.spark.session import session

    made = ARCHIVE.with_suffix(f".{os.getpid()}")
    os.environ["JDK_JAVA_OPTIONS"] += " ".join(["", f'"-XX:ArchiveClassesAtExit={made}"', *_QUIET])
    spark = session("local[2]", app="classes")
    with tempfile.TemporaryDirectory() as folder:
        _run_queries(spark, Path(folder))
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    spark.stop()
    java = gateway.proc
    java.stdin.close()  # tells it to exit
    java.wait()
    made.rename(ARCHIVE)


def _run_queries(spark: "SparkSession", folder: Path) -> None:
    data = str(folder / "data")
    with holdfast.open(data) as store:
        queue = store.queue("orders")
        queue.put_many([b"%d" % number for number in range(20)])
        queue.ack(queue.lease(10))
    source = spark.read.format("holdfast").option("path", data)
    events = source.option("queue", "orders").option("view", "lifecycle").load()
    events.groupBy("event").count().orderBy("event").toPandas()
    events.write.partitionBy("event").parquet(f"{folder}/events")
    spark.read.parquet(f"{folder}/events").createOrReplaceTempView("events")
    spark.sql("SELECT one.event, count(*) FROM events one JOIN events other USING (event) GROUP BY 1").collect()
    stream = spark.readStream.format("holdfast").option("path", data).option("log", "orders")
    written = stream.option("startingOffsets", "earliest").load().writeStream.format("parquet")
    written = written.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    written.start(f"{folder}/records").awaitTermination()


if __name__ == "__main__":
    make()
