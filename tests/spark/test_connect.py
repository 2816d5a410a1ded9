"""Does it work through Spark Connect? The client needs no Java; the server does all: read, write, stream, verify."""

from collections.abc import Callable
from pathlib import Path

import holdfast
from holdfast import Roll

Script = Callable[..., str]

WORK = """
import sys
from holdfast.spark.pipelines import archive
from holdfast.spark.pipelines.verify import run
from holdfast.spark.session import session

url, data, checkpoint, lake = sys.argv[1:]
spark = session(url)
print(type(spark).__module__, session() is spark)

orders = spark.read.format("holdfast").option("path", data).option("log", "orders").load()
print("rows", orders.where("offset >= 100").count())

orders.select("value").write.format("holdfast").option("path", data).option("log", "copy").mode("append").save()

stream = spark.readStream.format("holdfast").option("path", data).option("log", "orders") \\
    .option("startingOffsets", "earliest").load()
query = stream.select("value").writeStream.format("holdfast").option("path", data).option("queue", "jobs") \\
    .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination()

print("whole", run(spark, data).ok)
print("archived", archive.run(spark, data, lake=lake, logs=["orders"], lifecycle=False).facts["rows added"])
spark.stop()
"""


def test_a_client_reads_writes_streams_and_verifies(connect_server: str, script: Script, tmp_path: Path) -> None:
    data = tmp_path / "data"
    payloads = [b"order %d" % number for number in range(1000)]
    with holdfast.open(data) as store:
        store.log("orders", roll=Roll.count(300)).append_many(payloads)
    # No Java for the client: there is none on its path, and the one of the package is hidden.
    places = (data, tmp_path / "checkpoint", tmp_path / "lake")
    said = script(WORK, connect_server, *places, PATH="", JAVA_HOME=None).splitlines()
    assert said == ["pyspark.sql.connect.session True", "rows 900", "whole True", "archived 1000"]
    with holdfast.open(data) as store:
        assert [record.payload for record in store.log("copy").read()] == payloads
        assert store.queue("jobs").stats().ready == len(payloads)
