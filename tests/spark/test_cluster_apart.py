"""A cluster whose driver and workers cannot see the owner's folder: it reads and writes by bucket and server alone."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import holdfast
from holdfast.replica.bucket import open_bucket
from tests.replica.conftest import seaweed
from tests.replica.seaweed import Seaweed
from tests.web.serving import Served

__all__ = ["seaweed"]

pytestmark = pytest.mark.slow

WORK = """
import os, sys
from holdfast.spark.pipelines.deadletters import run as deadletters
from holdfast.spark.session import session

master, hidden, bucket, server, work = sys.argv[1:]
assert os.listdir(hidden) == [], "the driver sees the owner's folder"
given = {f"spark.executorEnv.{name}": value for name, value in os.environ.items() if name.startswith(("AWS_", "HOLD"))}
conf = {"spark.cores.max": 2, "spark.executor.memory": "512m", "spark.executor.cores": 1, "spark.ui.enabled": False,
        "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": 2, **given}
spark = session(master, **conf)
spark.sparkContext.setLogLevel("ERROR")

def read(**options):
    return spark.read.format("holdfast").options(**options).load()

for options in ({"path": bucket}, {"path": server}, {"path": bucket, "live": server}):
    print("orders", read(**options, log="orders", minPartitions="4").count())
    state = read(**options, queue="jobs", view="messages").groupBy("state").count().orderBy("state").collect()
    print("messages", {row["state"]: row["count"] for row in state})
    print("events", read(**options, queue="jobs", view="lifecycle").where("event = 'acked'").count())

for number, (source, target) in enumerate((({"path": bucket}, bucket), ({"path": server}, server),
                                           ({"path": bucket, "live": server}, bucket))):
    stream = spark.readStream.format("holdfast").options(**source).option("log", "orders")
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 700).load()
    query = stream.select("value").writeStream.format("holdfast").option("path", target) \\
        .option("log", f"copy{number}").option("checkpointLocation", f"{work}/checkpoint{number}") \\
        .trigger(availableNow=True).start()
    query.awaitTermination()

print("failures", deadletters(spark, bucket, queues="jobs", out=f"{work}/dead").facts["failures"])
spark.stop()
"""


def test_a_cluster_needs_the_bucket_or_the_server_and_nothing_else(
    cluster_apart: str,
    blind: list[str],
    hidden: Path,
    seaweed: Seaweed,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in seaweed.environment().items():
        monkeypatch.setenv(name, value)
    environment = dict(os.environ)
    url, script, work = "s3://tests/apart", tmp_path / "script.py", tmp_path / "work"
    script.write_text(WORK)
    work.mkdir()
    with Served(hidden / "data") as served:
        store = served.store
        store.ship_to(open_bucket(url))
        log = store.log("orders")
        for number in range(40):
            log.append_many([b"%d" % (number * 50 + n) for n in range(50)])
        jobs = store.queue("jobs", max_attempts=1)
        jobs.put_many([b"%d" % number for number in range(30)])
        jobs.ack(jobs.lease(10))
        for message in jobs.lease(5):
            message.nack("no such customer")
        log.sync()
        store.replica.ship()
        environment["HOLDFAST_TOKEN"] = served.ask("POST", "/api/holdfast/tokens", {"name": "spark"}).json["token"]
        stop = threading.Event()

        def write() -> None:
            """The owner goes on while the cluster reads another log of it."""
            while not stop.wait(0.05):
                store.log("noise").append_many([b"x" * 100] * 20)

        writing = threading.Thread(target=write)
        writing.start()
        try:
            command = [*blind, sys.executable, str(script), cluster_apart, str(hidden), url, served.url, str(work)]
            run = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=500, check=False)
        finally:
            stop.set()
            writing.join()
        assert run.returncode == 0, run.stdout + run.stderr[-3000:]
        seen = ["orders 2000", "messages {'acked': 10, 'dead': 5, 'ready': 15}", "events 10"] * 3
        assert [line for line in run.stdout.splitlines() if line] == [*seen, "failures 5"]
        assert environment["HOLDFAST_TOKEN"] not in run.stdout + run.stderr
        with holdfast.open(hidden / "data", read_only=True) as view:
            for number in range(3):
                found = [int(record.payload) for record in view.log(f"copy{number}").read()]
                assert sorted(found) == list(range(2000)), number
