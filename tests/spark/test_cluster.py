"""Does it work on a real cluster? A master and two workers in processes of their own: read, write, stream, verify."""

from collections.abc import Callable
from pathlib import Path

import holdfast
from holdfast import Roll

Script = Callable[..., str]

WORK = """
import sys
from holdfast.spark.pipelines.verify import run
from holdfast.spark.session import session

master, data, checkpoint = sys.argv[1:]
conf = {"spark.cores.max": 2, "spark.executor.memory": "512m", "spark.executor.cores": 1, "spark.ui.enabled": False,
        "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": 2}
spark = session(master, **conf)

def here(batches):
    import os
    import pyarrow as pa
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"process": [os.getppid()], "rows": [batch.num_rows]})

orders = spark.read.format("holdfast").option("path", data).option("log", "orders").option("minPartitions", 4).load()
seen = orders.select("offset").mapInArrow(here, "process LONG, rows LONG").groupBy("process").sum("rows").collect()
print("executors", len(seen), "rows", sum(row[1] for row in seen))

orders.where("offset < 1000").select("key", "value").write.format("holdfast").option("path", data) \\
    .option("log", "copy").mode("append").save()

stream = spark.readStream.format("holdfast").option("path", data).option("log", "orders") \\
    .option("startingOffsets", "earliest").load()
query = stream.select("key", "value").writeStream.format("holdfast").option("path", data).option("queue", "jobs") \\
    .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
query.awaitTermination()

result = run(spark, data)
print("whole", result.ok, "logs", result.facts["logs"])
spark.stop()
"""


def test_a_cluster_reads_writes_streams_and_verifies(cluster: str, script: Script, tmp_path: Path) -> None:
    data = tmp_path / "data"
    payloads = [b"order %05d " % number * 20 for number in range(20_000)]
    with holdfast.open(data) as store:
        log = store.log("orders", roll=Roll.count(2500))
        for start in range(0, len(payloads), 500):
            log.append_many(payloads[start : start + 500])
    said = script(WORK, cluster, data, tmp_path / "checkpoint").splitlines()
    assert said == ["executors 2 rows 20000", "whole True logs 3"]
    with holdfast.open(data) as store:
        assert [record.payload for record in store.log("copy").read()] == payloads[:1000]
        jobs = store.queue("jobs")
        assert jobs.stats().ready == len(payloads)
        assert sorted(message.payload for message in jobs.lease(len(payloads))) == payloads
