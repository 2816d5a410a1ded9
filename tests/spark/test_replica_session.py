"""Spark itself over a bucket and a server: SQL, streams with a sink, pipelines, and no token in any plan."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast
from holdfast import InvalidArgument
from holdfast.replica.bucket import open_bucket
from holdfast.spark.pipelines import load_pipeline
from holdfast.spark.pipelines.lake_history import history
from tests.web.serving import Served


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A served store that is shipped to `replica`; after `_away` no other process can see its folder."""
    with Served(tmp_path / "data") as served:
        served.store.ship_to(open_bucket((tmp_path / "replica").as_uri()))
        yield served


def token_of(served: Served) -> str:
    return str(served.ask("POST", "/api/holdfast/tokens", {"name": "spark"}).json["token"])


@pytest.mark.parametrize("way", ["bucket", "server", "live"])
def test_a_stream_with_a_sink_counts_each_record_once_while_the_owner_writes(
    spark: SparkSession, served: Served, tmp_path: Path, way: str
) -> None:
    """Source and sink in the same store, neither of them through its folder; the query is stopped and started again."""
    bucket = {"path": (tmp_path / "replica").as_uri()}
    server = {"path": served.url, "token": token_of(served)}
    source = {"bucket": bucket, "server": server, "live": {**bucket, "live": served.url, "token": server["token"]}}[way]
    target = server if way == "server" else bucket
    log = served.store.log("clicks")
    done = threading.Event()

    def write() -> None:
        for number in range(40):
            log.append_many([b"%d" % (number * 25 + n) for n in range(25)])
            done.wait(0.02)

    writing = threading.Thread(target=write)
    writing.start()
    records = spark.readStream.format("holdfast").options(**source).option("log", "clicks")
    query = records.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 300).load().select("value")
    for _ in range(2):
        running = (
            query.writeStream.format("holdfast")
            .options(**target)
            .option("queue", "jobs")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        running.awaitTermination()
        writing.join()
        log.sync()
        served.store.replica.ship()
    with holdfast.open(tmp_path / "data", read_only=True) as store:
        found = [int(record.payload) for record in store.log("jobs").read()]
    assert sorted(found) == list(range(1000))


def test_sql_reads_a_replica_and_no_plan_has_the_token(
    spark: SparkSession, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    served.store.log("orders").append_many([b"%d" % number for number in range(10)])
    served.store.log("orders").sync()
    token = token_of(served)
    frame = spark.read.format("holdfast").option("path", served.url).option("token", token).option("log", "orders")
    orders = frame.load()
    assert orders.selectExpr("sum(CAST(CAST(value AS STRING) AS INT)) AS total").collect()[0].total == 45
    orders.explain(mode="extended")
    shown = capsys.readouterr().out
    assert "holdfast" in shown.lower()
    assert token not in shown


def test_pipelines_work_on_a_replica_or_say_what_to_do(spark: SparkSession, served: Served, tmp_path: Path) -> None:
    store, url = served.store, (tmp_path / "replica").as_uri()
    queue = store.queue("orders", max_attempts=1, dead_letter="orders.dead")
    queue.put_many([b"order %d" % number for number in range(50)])
    queue.ack(queue.lease(40))
    for message in queue.lease(5):
        message.nack("no such customer")
    store.replica.ship()
    lives = load_pipeline("lifecycle")(spark, url, out=str(tmp_path / "lives"), queues="orders")
    assert lives.ok
    dead = load_pipeline("deadletters")(spark, url, out=str(tmp_path / "dead"), queues="orders")
    assert dead.facts["failures"] == 5
    with pytest.raises(InvalidArgument, match="choose a folder with the option 'out'"):
        load_pipeline("lifecycle")(spark, url)
    load_pipeline("archive")(spark, url, lake=str(tmp_path / "lake"), logs=["orders"], lifecycle=False)
    queue.put(b"later")
    store.replica.ship()
    assert history(spark, url, str(tmp_path / "lake"), log="orders").count() == 51
    replayed = load_pipeline("replay")(spark, url, log="orders", to_log="again", execute=True, name="n")
    assert replayed.ok
    assert store.log("again").end == 51
    source = tmp_path / "files"
    spark.range(7).selectExpr("CAST(id AS STRING) AS value").write.parquet(str(source))
    loaded = load_pipeline("load")(spark, url, source=str(source), format="parquet", log="loaded")
    assert loaded.facts["added"] == 7
    for name, arguments, says in (
        ("verify", {}, "holdfast replica verify"),
        ("backfill", {"table": "Account", "index": "name"}, "a new index is built where the store is"),
    ):
        with pytest.raises(InvalidArgument, match=says):
            load_pipeline(name)(spark, url, **arguments)
