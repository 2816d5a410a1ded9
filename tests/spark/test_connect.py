"""Does it work through Spark Connect? The client needs no Java; the server does all: read, write, stream, verify."""

from collections.abc import Callable
from pathlib import Path

import holdfast
from holdfast import Message, Model, Roll, field

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


ASK = """
import json, sys, time
from holdfast.spark import LagListener
from holdfast.spark.session import session

url, data, checkpoint = sys.argv[1:]
spark = session(url)
listener = LagListener()
spark.streams.addListener(listener)
reader = spark.readStream.format("holdfast").option("path", data).option("log", "orders")
stream = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 400).load()
query = stream.writeStream.format("noop").queryName("lagging").option("checkpointLocation", checkpoint) \\
    .trigger(availableNow=True).start()
query.awaitTermination()
end = time.monotonic() + 120
while listener.query("lagging").running:
    assert time.monotonic() < end
    time.sleep(0.1)
sources = [batch["sources"][0] for batch in query.recentProgress]
behind = [json.loads(source["latestOffset"])["orders"]["behind"] for source in sources if source["numInputRows"]]
print("behind", behind)
print("lag", listener.lag("lagging"))
print("metrics", "holdfast_spark_lag_records" in listener.prometheus())
spark.streams.removeListener(listener)

def count(call):
    return spark.sql(f"SELECT count(*) AS n FROM {call}").collect()[0].n

print("log", count(f"holdfast_log('{data}', 'orders', key => 'k')"))
print("messages", count(f"holdfast_messages('{data}', 'jobs')"))
print("table", spark.sql(f"SELECT name FROM holdfast_table('{data}', 'Account')").collect()[0].name)
spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW v USING holdfast OPTIONS (path '{data}', log 'orders')")
print("view", count("v"))
spark.stop()
"""


class Account(Model, id=1):
    name: str = field(1)


def test_lag_and_sql_work_for_a_client(connect_server: str, script: Script, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with holdfast.open(data) as store:
        store.log("orders").append_many([Message(b"x", b"k")] * 1000)
        store.queue("jobs").put_many([b"x"] * 7)
        store.table(Account).add(Account(name="Ann"))
    said = script(ASK, connect_server, data, tmp_path / "checkpoint", PATH="", JAVA_HOME=None).splitlines()
    assert said == [
        "behind [600, 200, 0]",
        "lag {'orders': 0}",
        "metrics True",
        "log 1000",
        "messages 7",
        "table Ann",
        "view 1000",
    ]
