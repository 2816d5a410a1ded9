"""Spark's source and sink with a real S3: what is read and written, what is refused, and no secret anywhere."""

import base64
import itertools
import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import holdfast
from holdfast import NotFound, ReplicaError
from holdfast.spark.sink import BatchWriter
from tests.replica.seaweed import SECRET, Seaweed
from tests.spark.test_remote_sink import batch, tasks_of
from tests.spark.test_replica_source import VIEWS, batches, fill, read, reader, rows, stream

pytestmark = pytest.mark.xdist_group("seaweed")  # one server for all
_numbers = itertools.count()


@pytest.fixture
def url(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in seaweed.environment().items():
        monkeypatch.setenv(name, value)
    return f"s3://tests/spark/{next(_numbers)}"


def test_every_view_has_the_rows_of_the_folder(url: str, tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data", replica=url, background=False) as store:
        fill(store)
    for options in VIEWS:
        assert read(url, **options).equals(read(tmp_path / "data", **options)), options


def test_the_owner_goes_on_writing_during_a_stream(url: str, tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data", replica=url) as store:
        log = store.log("events")
        store.replica.ship()
        made = stream(url)
        found: list[int] = []
        at = made.initialOffset()
        for number in range(20):
            log.append_many([b"%d" % number] * 100)
            if number % 4 == 0:
                store.replica.ship()
            more, at = batches(made, at)
            found += more
        store.replica.ship()
        found += batches(made, at)[0]
    assert found == list(range(2000))


def test_a_batch_is_written_through_the_bucket(url: str, tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data", replica=url) as store:
        store.replica.ship()
        options = {"path": url, "log": "made", "txnAppId": "job", "txnVersion": "1"}
        for value in (b"once", b"twice"):
            made = BatchWriter(options, from_arrow_schema(batch(b"").schema), overwrite=False)
            made.commit([*tasks_of(made, [batch(value)])])
        assert [record.payload for record in store.log("made").read()] == [b"once"]


def test_errors_say_what_to_do_and_show_no_secret(
    url: str, tmp_path: Path, seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ReplicaError, match="there is no such bucket") as no_bucket:
        read("s3://missing-bucket/prefix", log="events")
    with pytest.raises(NotFound, match=r"there is no store in .*, and no replica") as nothing:
        read(url, log="events")
    with holdfast.open(tmp_path / "data", replica=url, background=False) as store:
        fill(store)
    made = reader(url, log="events")
    shares = made.partitions()
    secrets = (SECRET, seaweed.environment()["AWS_ACCESS_KEY_ID"] + SECRET)
    for one in (repr(made.options), repr(shares), pickle.dumps((made, shares)).decode("latin-1")):
        assert not any(secret in one for secret in secrets)
    for name, value in seaweed.environment(reader=True).items():
        monkeypatch.setenv(name, value)
    code = f"""
from tests.spark.test_remote_sink import batch, tasks_of
from holdfast.spark.sink import BatchWriter
from pyspark.sql.pandas.types import from_arrow_schema
made = BatchWriter({{"path": {url!r}, "log": "x"}}, from_arrow_schema(batch(b"").schema), overwrite=False)
tasks_of(made, [batch(b"1")])
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "refused access" in run.stderr
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong-secret-words")
    code = f"from tests.spark.test_replica_source import read; read({url!r}, log='events')"
    wrong = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "refused access" in wrong.stderr
    said = str(no_bucket.value) + str(nothing.value) + run.stderr + wrong.stderr
    assert SECRET not in said
    assert "wrong-secret-words" not in said


TASK = """
import base64, json, pickle, sys
reader, share = pickle.loads(base64.b64decode(sys.stdin.read()))
print(json.dumps([offset for batch in reader.read(share) for offset in batch["offset"].to_pylist()]))
"""


def test_tasks_need_the_bucket_and_nothing_else(url: str, tmp_path: Path) -> None:
    """Planned here, the owner's folder moved away, and each task run in a process of its own."""
    with holdfast.open(tmp_path / "data", replica=url, background=False) as store:
        fill(store)
    made = reader(url, log="events", minPartitions="3")
    shares = made.partitions()
    (tmp_path / "data").rename(tmp_path / "away")
    found = []
    for share in shares:
        plan = base64.b64encode(pickle.dumps((made, share))).decode()
        run = subprocess.run([sys.executable, "-c", TASK], input=plan, capture_output=True, text=True, check=True)
        found += json.loads(run.stdout)
    assert found == list(range(120))
    again = stream(url)
    start = again.initialOffset()
    assert rows(again, start, again.latestOffset(start, again.getDefaultReadLimit())) == list(range(120))
