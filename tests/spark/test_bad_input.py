"""What does a person read who asks for something that cannot be? One clear line, before anything that Java says."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import holdfast
from holdfast import Retention, Roll
from holdfast.base.checksum import crc32c

Ask = Callable[..., None]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store in `data`, and with what is none."""
    place = tmp_path_factory.mktemp("place")
    with holdfast.open(place / "data") as store:
        store.log("orders").append_many([b"1", b"2", b"3"])
        store.queue("jobs").put(b"1")
    (place / "file").write_text("not a folder")
    (place / "empty").mkdir()
    shutil.copytree(place / "data", place / "newer")
    for segment in (place / "newer" / "logs" / "orders").rglob("*.data"):
        content = bytearray(segment.read_bytes())
        content[8:10] = (2).to_bytes(2, "little")
        content[60:64] = crc32c(bytes(content[:60])).to_bytes(4, "little")
        segment.write_bytes(content)
    return place


def told(ask: Callable[[], object]) -> str:
    """What comes up: all before the first line of a Java stack, and of what Spark says of its own state."""
    with pytest.raises(Exception) as caught:
        ask()
    # Anything else is Java's own, with its stack before the reason.
    assert isinstance(caught.value, PySparkException), f"{type(caught.value)}: {str(caught.value)[:500]}"
    text = str(caught.value)
    return re.split(r"\n\s+at |\n=== Streaming Query|\nJVM stacktrace", text)[0]


def check(text: str, said: str) -> None:
    """The reason is whole in one of the first two lines (Spark may need the first for itself), without a traceback."""
    lines = [line for line in text.splitlines() if line.strip()]
    assert any(re.search(said, line) for line in lines[:2]), text
    assert "Traceback" not in text
    assert 'File "' not in text


def read(spark: SparkSession, **options: object) -> None:
    reader = spark.read.format("holdfast")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    reader.load().collect()


@pytest.mark.parametrize(
    ("where", "options", "said"),
    [
        ("data", {"log": "none"}, "there is no log 'none' in '.*/data'; there are: 'jobs', 'orders'"),
        ("data", {"queue": "none", "view": "messages"}, "there is no queue 'none' in '.*/data'; there are: 'jobs'"),
        ("data", {"queue": "none", "view": "lifecycle"}, "there is no queue 'none'"),
        ("data", {"logPattern": "x*"}, r"no log in '.*/data' matches 'x\*'; there are: 'jobs', 'orders'"),
        ("data", {}, "nothing to read"),
        (
            "data",
            {"log": "orders", "minPartitions": "few"},
            "'minPartitions' takes a whole number from 1 up, not 'few'",
        ),
        ("data", {"log": "orders", "startingOffsets": "first"}, "'startingOffsets' takes \"earliest\""),
        ("data", {"log": "orders", "startingOffsets": '{"orders": 9}'}, "'orders' ends at 3, before the offset 9"),
        ("data", {"log": "orders", "kafka": "yes"}, "there is no option 'kafka'; there are: path, log"),
        ("nowhere", {"log": "orders"}, "there is no store (at|in) '.*/nowhere'"),
        ("file", {"log": "orders"}, "'.*/file' is a file, not the folder of a store"),
        ("file/below", {"log": "orders"}, "file"),
        ("empty", {"log": "orders"}, "there is no store in '.*/empty'"),
        ("newer", {"log": "orders"}, "version 2"),
        ("newer", {"logPattern": "*"}, "version 2"),
    ],
)
def test_a_read_that_cannot_be(
    spark: SparkSession, place: Path, where: str, options: dict[str, str], said: str
) -> None:
    check(told(lambda: read(spark, path=place / where, **options)), said)


def test_a_read_without_a_path(spark: SparkSession) -> None:
    check(told(lambda: read(spark, log="orders")), "the option 'path' is missing: give the folder of the store")


def test_a_schema_that_does_not_fit(spark: SparkSession, place: Path) -> None:
    reader = spark.read.format("holdfast").option("path", str(place / "data")).option("log", "orders")
    check(
        told(lambda: reader.schema("amount INT").load().collect()), "this view has no column 'amount'; there are: key"
    )
    check(
        told(lambda: reader.schema("offset INT").load().collect()),
        "'offset' has another type in this view: `offset` LONG",
    )


def test_damage_is_told_with_its_place(spark: SparkSession, place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "data", tmp_path / "data")
    (segment,) = (tmp_path / "data" / "logs" / "orders").rglob("*.data")
    content = bytearray(segment.read_bytes())
    content[content.index(b"123")] ^= 1
    segment.write_bytes(content)
    text = told(lambda: read(spark, path=tmp_path / "data", log="orders"))
    check(text, rf"{segment.name} at byte \d+ .* record 0 lost: .* onDamage=skip")


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Ask:
    """Runs a stream to its present end."""

    def runner(checkpoint: str = "checkpoint", **options: object) -> None:
        reader = spark.readStream.format("holdfast")
        for name, value in options.items():
            reader = reader.option(name, str(value))
        writer = reader.load().writeStream.format("noop").option("checkpointLocation", str(tmp_path / checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    return runner


@pytest.mark.parametrize(
    ("where", "options", "said"),
    [
        ("data", {"log": "none"}, "there is no log 'none'"),
        ("data", {"log": "orders", "maxOffsetsPerTrigger": "0"}, "'maxOffsetsPerTrigger' takes a whole number"),
        ("data", {"log": "orders", "endingOffsets": "latest"}, "'endingOffsets' is for batches"),
        ("data", {"queue": "jobs", "view": "messages"}, "'messages' is a snapshot and cannot be streamed"),
        ("nowhere", {"log": "orders"}, "there is no store (at|in)"),
        ("newer", {"log": "orders"}, "version 2"),
    ],
)
def test_a_stream_that_cannot_be(stream: Ask, place: Path, where: str, options: dict[str, str], said: str) -> None:
    check(told(lambda: stream(path=place / where, **options)), said)


def test_a_stream_whose_records_are_gone(stream: Ask, tmp_path: Path) -> None:
    asked = {"path": tmp_path / "data", "log": "x", "startingOffsets": "earliest"}
    with holdfast.open(tmp_path / "data") as store:
        store.log("x").append_many([b"1"] * 10)
    stream(**asked)
    with holdfast.open(tmp_path / "data") as store:
        log = store.log("x", roll=Roll.count(10))
        for _ in range(5):
            log.append_many([b"2"] * 10)
        log.sync()
        log.compact(retention=Retention(max_segments=2))
    check(told(lambda: stream(**asked)), "records 10 to 39 of 'x' were dropped by retention .* failOnDataLoss=false")
    stream(**asked, failOnDataLoss=False)
    shutil.rmtree(tmp_path / "data" / "logs" / "x")
    with holdfast.open(tmp_path / "data") as store:
        store.log("x").append_many([b"3"] * 100)
    check(told(lambda: stream(**asked)), "'x' was deleted and recreated .* new checkpoint")


def write(spark: SparkSession, query: str, mode: str = "append", **options: object) -> None:
    writer = spark.sql(query).write.format("holdfast").mode(mode)
    for name, value in options.items():
        writer = writer.option(name, str(value))
    writer.save()


@pytest.mark.parametrize(
    ("query", "mode", "options", "said"),
    [
        ("SELECT 1 AS id", "append", {"log": "y"}, "the column 'value' is missing; there are: id"),
        ("SELECT 1 AS value", "append", {"log": "y"}, "the column 'value' takes binary or string, not int"),
        ("SELECT 'a' AS value, 1 AS id", "append", {"log": "y"}, "a message has no column 'id'"),
        ("SELECT 'a' AS value, array(1) AS headers", "append", {"log": "y"}, "the column 'headers' takes array<struct"),
        ("SELECT CAST(NULL AS STRING) AS value", "append", {"log": "y"}, "the column 'value' is null in a row"),
        ("SELECT 'a' AS value, 300 AS priority", "append", {"log": "y"}, "a priority must be from 0 to 255, not 300"),
        ("SELECT 'a' AS value", "overwrite", {"log": "y"}, "a log can only be appended to"),
        ("SELECT 'a' AS value", "append", {}, "no target: give either the option 'log' or the option 'queue'"),
        ("SELECT 'a' AS value", "append", {"log": "y", "txnAppId": "a"}, "'txnAppId' and 'txnVersion' must be given"),
        (
            "SELECT 'a' AS value",
            "append",
            {"log": "y", "topic": "z"},
            "'topic' is one of Spark's Kafka sink: here, ",
        ),
    ],
)
def test_a_write_that_cannot_be(
    spark: SparkSession, tmp_path: Path, query: str, mode: str, options: dict[str, str], said: str
) -> None:
    check(told(lambda: write(spark, query, mode, path=tmp_path, **options)), said)
    assert not (tmp_path / "logs").exists()


@pytest.mark.parametrize(
    ("where", "target", "said"),
    [
        ("file", "log", "file"),
        ("file", "queue", "file"),
        ("file/below", "log", "file"),
        ("file/below", "queue", "file"),
        ("newer", "log", "version 2"),
    ],
)
def test_a_write_to_what_is_no_store(spark: SparkSession, place: Path, where: str, target: str, said: str) -> None:
    options: dict[str, Any] = {"path": place / where, target: "orders"}
    check(told(lambda: write(spark, "SELECT 'a' AS value", **options)), said)


WITHOUT_RIGHTS = """
import os, sys
import pyarrow as pa
from pyspark.sql.types import BinaryType, StructType
from holdfast import HoldfastError
from holdfast.spark.reader import Reader
from holdfast.spark.sink import BatchWriter
from holdfast.spark.stream import StreamReader

data, other = sys.argv[1:]
schema = StructType().add("value", BinaryType())
if os.geteuid() == 0:
    os.setuid(65534)  # root may do everything

def write(path, **target):
    writer = BatchWriter({"path": path, **target}, schema, overwrite=False)
    writer.commit([writer.write(iter([pa.RecordBatch.from_pydict({"value": [b"1"]})]))])

for ask in (
    lambda: Reader({"path": data, "log": "x"}, schema).partitions(),
    lambda: StreamReader({"path": data, "log": "x"}, schema).initialOffset(),
    lambda: write(data, log="x"),
    lambda: write(data, queue="x"),
    lambda: write(other, log="x"),
):
    try:
        ask()
        print("allowed")
    except HoldfastError as error:
        print(str(error))
"""


def test_a_user_without_rights_is_told_so_in_one_line(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with holdfast.open(data) as store:
        store.log("x").append(b"1")
    data.chmod(0)
    tmp_path.chmod(0o555)
    tmp_path.parent.chmod(0o755)  # pytest's folders are closed to other users
    tmp_path.parent.parent.chmod(0o755)
    words = [sys.executable, "-c", WITHOUT_RIGHTS, str(data), str(tmp_path / "other")]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    finally:
        tmp_path.chmod(0o755)
        data.chmod(0o755)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert len(lines) == 5, done.stdout
    assert all("Permission denied" in line or "lacks the permission" in line for line in lines), done.stdout
    assert all(str(tmp_path) in line for line in lines), done.stdout
