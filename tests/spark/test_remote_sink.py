"""Writing to a store through the bucket of its replica or its server: whole, in order and once, as into its folder."""

import dataclasses
import json
import logging
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import holdfast
from holdfast import InvalidArgument, NotFound
from holdfast.base.errors import Corrupt, HoldfastError
from holdfast.replica.bucket import open_bucket
from holdfast.spark.sink import BatchWriter, Parts
from tests.tiers import a_seed, rounds
from tests.web.serving import Served

ROOT = Path(__file__).parent.parent.parent
Place = dict[str, str]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("sink")
    with Served(folder / "data") as served:
        served.store.ship_to(open_bucket((folder / "replica").as_uri()))
        served.store.replica.ship()
        yield served


@pytest.fixture(params=["bucket", "server"])
def place(request: pytest.FixtureRequest, served: Served) -> Place:
    """The options that say where to write."""
    if request.param == "bucket":
        return {"path": (served.store.path.parent / "replica").as_uri()}
    token = served.ask("POST", "/api/holdfast/tokens", {"name": "spark"}).json["token"]
    return {"path": served.url, "token": token}


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name of a log for each test."""
    return str(request.node.name).replace("[", "-").replace("]", "")


def batch(*values: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})


def writer(place: Place, /, **options: object) -> BatchWriter:
    given = {**place, **{name: str(value) for name, value in options.items()}}
    return BatchWriter(given, from_arrow_schema(batch(b"").schema), overwrite=False)


def tasks_of(made: BatchWriter, *tasks: list[pa.RecordBatch]) -> list[Parts]:
    return [dataclasses.replace(made.write(iter(task)), task=number) for number, task in enumerate(tasks)]


def write(place: Place, /, *tasks: list[pa.RecordBatch], **options: object) -> None:
    made = writer(place, **options)
    made.commit(list(reversed(tasks_of(made, *tasks))))


def payloads(served: Served, name: str) -> list[bytes]:
    if name not in served.store.logs():
        return []
    with holdfast.open(served.store.path, read_only=True) as store:
        assert store.log(name).verify().ok
        return [record.payload for record in store.log(name).read()]


def objects(served: Served) -> list[str]:
    """What is left of batches in the bucket and in the folder."""
    bucket = open_bucket((served.store.path.parent / "replica").as_uri())
    folder = served.store.path / "incoming" / "parts"
    found = [one.key for one in bucket.list("incoming/") if one.key != "incoming/newest"]
    return found + ([path.name for path in folder.iterdir()] if folder.exists() else [])


def test_tasks_come_in_their_order_and_batches_too(served: Served, place: Place, name: str) -> None:
    write(place, [batch(b"1", b"2"), batch(b"3")], [], [batch(b"4")], [batch(b"", b"5")], log=name)
    write(place, [batch(b"6")], log=name)
    write(place, log=name)
    assert payloads(served, name) == [b"1", b"2", b"3", b"4", b"", b"5", b"6"]
    assert objects(served) == []


def test_many_blocks_and_several_parts_are_one_batch(served: Served, place: Place, name: str) -> None:
    rows = [bytes([number % 256]) * 100_000 for number in range(700)]  # 70 MB: parts of 32 MiB
    write(place, [batch(*rows[at : at + 10]) for at in range(0, 700, 10)], log=name, compression="none")
    assert payloads(served, name) == rows
    assert objects(served) == []


def test_a_queue_is_fed(served: Served, place: Place, name: str) -> None:
    write(place, [batch(b"a", b"b")], queue=name)
    assert [message.payload for message in served.store.queue(name).lease(5)] == [b"a", b"b"]


def test_a_repeated_batch_adds_nothing(served: Served, place: Place, name: str) -> None:
    for version, value in ((1, b"one"), (1, b"again"), (2, b"two"), (1, b"old")):
        write(place, [batch(value)], log=name, txnAppId="app", txnVersion=version)
    assert payloads(served, name) == [b"one", b"two"]
    assert objects(served) == []


def test_a_job_that_runs_twice_without_a_key_writes_twice(served: Served, place: Place, name: str) -> None:
    write(place, [batch(b"x")], log=name)
    write(place, [batch(b"x")], log=name)
    assert payloads(served, name) == [b"x", b"x"]


def test_a_failed_task_and_a_failed_job_leave_nothing(served: Served, place: Place, name: str) -> None:
    made = writer(place, log=name)

    def rows() -> Iterator[pa.RecordBatch]:
        yield batch(*[b"x" * (1 << 20)] * 40)
        raise ValueError("the task failed")

    with pytest.raises(ValueError, match="the task failed"):
        made.write(rows())
    assert objects(served) == []
    messages = tasks_of(made, [batch(b"1")], [batch(b"2")])
    assert objects(served) != []
    made.abort([*messages, None])
    assert objects(served) == []
    assert payloads(served, name) == []


def test_an_abort_after_the_commit_takes_nothing_back(served: Served, place: Place, name: str) -> None:
    made = writer(place, log=name, txnAppId="app", txnVersion=1)
    messages = tasks_of(made, [batch(b"1")])
    made.commit([*messages])
    made.abort([*messages])
    assert payloads(served, name) == [b"1"]


def test_a_commit_that_is_not_adopted_in_time_warns_and_is_adopted_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = (tmp_path / "replica").as_uri()
    with holdfast.open(tmp_path / "data", replica=url) as store:
        store.log("x")
        store.replica.ship()
    with caplog.at_level(logging.WARNING):
        write({"path": url}, [batch(b"late")], log="x", wait="1s")  # nobody owns the store
    assert "batch committed and not adopted yet" in caplog.text
    with holdfast.open(tmp_path / "data", replica=url) as store:
        write({"path": url}, [batch(b"later")], log="x")
        assert [record.payload for record in store.log("x").read()] == [b"late", b"later"]


def test_a_damaged_part_is_refused_and_the_job_fails(served: Served, name: str) -> None:
    made = writer({"path": (served.store.path.parent / "replica").as_uri()}, log=name)
    messages = tasks_of(made, [batch(b"1")])
    file = served.store.path.parent / "replica" / "incoming" / "parts" / messages[0].written.parts[0].file
    file.write_bytes(file.read_bytes()[:-8] + b"damaged!")
    with pytest.raises(Corrupt, match="could not adopt batch 0: its parts are damaged"):
        made.commit([*messages])
    assert payloads(served, name) == []


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"path": "memory://bucket/data"}, InvalidArgument, "is a copy of a store, which can only be read"),
        ({"path": "file:///nowhere/at/all", "token": "hf_x"}, InvalidArgument, "the option 'token' is for a server"),
        ({"path": "http://127.0.0.1:1", "token": "hf_x"}, HoldfastError, "cannot reach http://127.0.0.1:1"),
        ({"path": "http://127.0.0.1:1"}, InvalidArgument, "needs a token: set HOLDFAST_TOKEN"),
    ],
)
def test_places_that_cannot_be_written_to_are_refused_before_any_task(
    options: Place, error: type[Exception], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOLDFAST_TOKEN", raising=False)
    with pytest.raises(error, match=says):
        writer(options, log="x")


def test_a_bucket_without_a_replica_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "replica" / "manifest").mkdir(parents=True)
    (tmp_path / "replica" / "owner.json").write_text("{}")
    with pytest.raises(NotFound, match=r"no store in .*, and no replica"):
        writer({"path": (tmp_path / "replica").as_uri()}, log="x")


@pytest.mark.slow
def test_each_batch_is_added_once_though_its_driver_is_killed_again_and_again(
    served: Served, place: Place, name: str, tmp_path: Path
) -> None:
    seed = a_seed()
    rng, notes, batches = random.Random(seed), tmp_path / "notes", 12
    worker = [sys.executable, "-m", "tests.spark.sink_worker", json.dumps({**place, "log": name}), str(notes)]
    for _ in range(rounds(10, 4)):
        with subprocess.Popen([*worker, str(batches)], stdout=subprocess.PIPE, cwd=ROOT) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            time.sleep(rng.uniform(0, 3 if "token" not in place else 0.5))
            child.kill()
    subprocess.run([*worker, str(batches)], cwd=ROOT, check=True, capture_output=True)
    expected = [b"%d.%d" % (number, part) for number in range(batches) for part in range(3)]
    assert payloads(served, name) == expected, f"seed {seed}"
