"""A cluster that cannot see the owner's folder: everything goes through a bucket or a server, and is killed meanwhile.

Driver and workers run in mount namespaces of their own, in which the folder of the store is empty. That needs root.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

import holdfast
from tests import tiers
from tests.replica.conftest import seaweed
from tests.replica.seaweed import Seaweed
from tests.spark.conftest import free_port, start_spark, wait_for

__all__ = ["seaweed"]

_PATIENCE_S = 300.0
_BLIND = 'mount -t tmpfs -o ro none "$0" && exec "$@"'


def blind(folder: Path) -> list[str]:
    """Return the words that run a command where this folder is empty."""
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c", _BLIND, str(folder)]


def _can_be_blind(folder: Path) -> bool:
    return subprocess.run([*blind(folder), "true"], capture_output=True, check=False).returncode == 0


@dataclass
class Owner:
    """`holdfast serve` of a store that is shipped to a bucket; it keeps its port when it is started again."""

    data: Path
    bucket: str
    environment: dict[str, str]
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [sys.executable, "-m", "holdfast", "serve", "--data", str(self.data), "--json", "--host", "127.0.0.1"]
        command += ["--amqp-port", "0", "--http-port", str(self.port), "--rpc-port", "none", "--replica", self.bucket]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=self.environment)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if json.loads(line)["protocol"] == "http":
                return
        raise AssertionError(f"the server ended with {self.process.wait()}")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None

    def token(self) -> str:
        request = urllib.request.Request(
            f"{self.url}/api/holdfast/tokens",
            json.dumps({"name": "spark"}).encode(),
            {"Authorization": f"Basic {b64encode(b'guest:guest').decode()}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return str(json.load(response)["token"])

    def append(self, first: int, count: int) -> None:
        """Append numbered records to the log `orders`, each once."""
        with holdfast.connect(self.url) as store:
            log = store.log("orders")
            for start in range(first, first + count, 100):
                log.append_many([b"%d" % number for number in range(start, min(start + 100, first + count))])

    def numbers(self, name: str) -> list[int]:
        """Return the payloads of a log, in order."""
        with contextlib.suppress(holdfast.NotFound), holdfast.connect(self.url) as store:
            return sorted(_number(record.payload) for record in store.log(name).read())
        return []

    def has(self, name: str, count: int) -> bool:
        return len(self.numbers(name)) >= count


def _number(payload: bytes) -> int:
    """Return the number in a payload; the pipeline `load` makes JSON of a row."""
    found = json.loads(payload)
    return int(found["value"]) if isinstance(found, dict) else int(found)


@dataclass
class Cluster:
    """A master and two workers. The workers and all drivers see an empty folder instead of the store."""

    hidden: Path
    folder: Path
    environment: dict[str, str]
    stack: contextlib.ExitStack
    master: str = ""
    workers: list[contextlib.ExitStack] = field(default_factory=list)

    def start(self) -> None:
        port = free_port()
        self.master = f"spark://127.0.0.1:{port}"
        words = ["org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
        wait_for(
            start_spark(self.stack, self.folder / "master.log", [*words, "--webui-port", "0"]),
            "I have been elected leader",
        )
        for _ in range(2):
            self.add_worker()

    def add_worker(self) -> None:
        number, own = len(self.workers), contextlib.ExitStack()
        self.workers.append(own)
        self.stack.push(own)
        place = ["--cores", "1", "--memory", "1g", "--host", "127.0.0.1", "--work-dir", str(self.folder / f"w{number}")]
        log = start_spark(
            own,
            self.folder / f"worker{number}.log",
            ["org.apache.spark.deploy.worker.Worker", *place, "--webui-port", "0", self.master],
            before=blind(self.hidden),
            environment=self.environment,
        )
        wait_for(log, "Successfully registered with master")

    def drive(self, code: str, *words: object) -> subprocess.Popen[str]:
        """Start a driver that cannot see the store."""
        script = self.folder / f"driver-{time.monotonic_ns()}.py"
        script.write_text(_SESSION + code)
        return subprocess.Popen(
            [*blind(self.hidden), sys.executable, str(script), self.master, str(self.hidden), *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self.environment,
            cwd=self.folder,
            start_new_session=True,
        )

    def run(self, code: str, *words: object) -> list[str]:
        """Run a driver to its end; return what it printed."""
        process = self.drive(code, *words)
        said, _ = process.communicate(timeout=_PATIENCE_S * 2)
        assert process.returncode == 0, said[-4000:]
        return said.splitlines()


_SESSION = """
import json, os, sys
from holdfast.spark.session import session

master, hidden, *words = sys.argv[1:]
assert not os.listdir(hidden), "the driver sees the store"
conf = {"spark.cores.max": 2, "spark.executor.memory": "512m", "spark.executor.cores": 1, "spark.ui.enabled": False,
        "spark.driver.host": "127.0.0.1", "spark.sql.shuffle.partitions": 2, "spark.task.maxFailures": 20}
spark = session(master, **conf)
"""

READ = """
import pyarrow as pa
from holdfast.spark.pipelines import load_pipeline

bucket, server, token, out, state = words
places = {"bucket": {"path": bucket}, "server": {"path": server, "token": token},
          "live": {"path": bucket, "live": server, "token": token}}
for name, place in places.items():
    orders = spark.read.format("holdfast").options(**place).option("log", "orders").option("minPartitions", 4).load()

    def blindly(batches):
        seen = os.listdir(hidden)
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows], "seen": [len(seen)]})

    rows = orders.select("value").mapInArrow(blindly, "rows LONG, seen LONG").groupBy().sum("rows", "seen").first()
    states = spark.read.format("holdfast").options(**place).option("queue", "jobs").option("view", "messages").load()
    counted = sorted((row.state, row["count"]) for row in states.groupBy("state").count().collect())
    print("read", name, json.dumps([rows[0], rows[1], counted]))
    records = spark.readStream.format("holdfast").options(**place).option("log", "orders")
    query = records.option("startingOffsets", "earliest").load().select("key", "value").writeStream.format("holdfast")
    target = places["server" if name == "server" else "bucket"]
    query = query.options(**target).option("queue", f"copy.{name}").option("checkpointLocation", f"{state}/{name}")
    query.trigger(availableNow=True).start().awaitTermination()

spark.range(1000).selectExpr("CAST(id AS STRING) AS value").write.parquet(f"{out}/files")
for pipeline, options in (
    ("lifecycle", {"out": f"{out}/lives", "queues": "jobs"}),
    ("deadletters", {"out": f"{out}/dead", "queues": "jobs"}),
    ("archive", {"lake": f"{out}/lake", "logs": ["orders"], "lifecycle": False}),
    ("replay", {"log": "orders", "to_log": "again", "execute": True, "name": "once"}),
    ("load", {"source": f"{out}/files", "format": "parquet", "log": "loaded"}),
    ("stream", {"log": "orders", "checkpoint": f"{state}/counts", "queue": "counts", "available_now": True}),
):
    result = load_pipeline(pipeline)(spark, bucket, **options)
    print("pipeline", pipeline, result.ok)
spark.stop()
"""

FOLLOW = """
bucket, server, token, state = words
records = spark.readStream.format("holdfast").options(path=bucket, live=server, token=token).option("log", "orders")
query = records.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 400).load().select("value")
query = query.writeStream.format("holdfast").option("path", bucket).option("log", "followed")
query = query.option("checkpointLocation", f"{state}/follow").trigger(processingTime="500 milliseconds").start()
print("started", flush=True)
query.awaitTermination()
"""


def until(true: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not true():
        assert time.monotonic() < end, what
        time.sleep(0.5)


def start_following(cluster: Cluster, owner: Owner, token: str, state: Path) -> subprocess.Popen[str]:
    driver = cluster.drive(FOLLOW, owner.bucket, owner.url, token, state)
    assert driver.stdout is not None
    said = []
    for line in driver.stdout:
        said.append(line)
        if line == "started\n":
            return driver
    raise AssertionError("".join(said)[-4000:])


def end(driver: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(driver.pid, signal.SIGKILL)
    driver.wait()
    assert driver.stdout is not None
    driver.stdout.close()


@pytest.fixture
def hidden(tmp_path: Path) -> Path:
    """The folder that only the owner sees."""
    folder = tmp_path / "hidden"
    folder.mkdir()
    if not _can_be_blind(folder):
        pytest.skip("mount namespaces need root")
    return folder


@pytest.fixture
def owner(hidden: Path, seaweed: Seaweed) -> Iterator[Owner]:
    environment = {**os.environ, **seaweed.environment()}
    owner = Owner(hidden / "data", f"s3://tests/blind-{os.getpid()}-{time.monotonic_ns()}", environment)
    owner.start()
    yield owner
    owner.kill()


@pytest.fixture
def cluster(hidden: Path, seaweed: Seaweed, tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        cluster = Cluster(hidden, folder, {**os.environ, **seaweed.environment()}, stack)
        cluster.start()
        yield cluster


@pytest.mark.slow
@pytest.mark.heavy
def test_reads_streams_and_pipelines_need_a_bucket_or_an_address_and_no_folder(
    cluster: Cluster, owner: Owner, tmp_path: Path
) -> None:
    owner.append(0, 1000)
    with holdfast.connect(owner.url) as store:
        jobs = store.queue("jobs", max_attempts=1, dead_letter="jobs.dead")
        jobs.put_many([b"%d" % number for number in range(50)])
        for delivery in jobs.lease(40):
            delivery.ack()
        for delivery in jobs.lease(5):
            delivery.nack("no such customer")
    time.sleep(3)  # the bucket is a second or two behind
    said = cluster.run(READ, owner.bucket, owner.url, owner.token(), tmp_path / "out", tmp_path / "state")
    states = [["acked", 40], ["dead", 5], ["ready", 5]]
    assert [line for line in said if line.startswith("read ")] == [
        f"read {name} {json.dumps([1000, 0, states])}" for name in ("bucket", "server", "live")
    ]
    names = ["lifecycle", "deadletters", "archive", "replay", "load", "stream"]
    assert [line for line in said if line.startswith("pipeline ")] == [f"pipeline {name} True" for name in names]
    for name in ("copy.bucket", "copy.server", "copy.live", "again", "loaded"):
        until(partial(owner.has, name, 1000), f"{name} lacks records")
        assert owner.numbers(name) == list(range(1000)), name


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.skipif(not tiers.ALL, reason="three minutes of one worker: a part of make test-all")
@pytest.mark.parametrize("round_", range(3))
def test_a_stream_counts_each_record_once_whatever_is_killed(
    cluster: Cluster, owner: Owner, tmp_path: Path, round_: int
) -> None:
    """The owner, a worker and the driver are killed in turns; without the owner the live tail is cut off."""
    token, state, written = owner.token(), tmp_path / "state", 0
    owner.append(0, 500)
    time.sleep(3)
    driver = start_following(cluster, owner, token, state)

    def write() -> None:
        nonlocal written
        owner.append(500 + written, 300)
        written += 300

    try:
        until(partial(owner.has, "followed", 500), "the stream does not begin")
        for victim in ("owner", "worker", "driver"):
            write()
            if victim == "owner":
                owner.kill()
                time.sleep(4)  # no tail meanwhile, and nobody adopts batches
                owner.start()
            elif victim == "worker":
                cluster.workers[-1].close()
                cluster.add_worker()
            else:
                end(driver)
                driver = start_following(cluster, owner, token, state)
            write()
            until(partial(owner.has, "followed", 500 + written), f"after the {victim} was killed, records are missing")
        assert driver.poll() is None
    finally:
        end(driver)
    time.sleep(3)
    assert owner.numbers("followed") == list(range(500 + written))
