"""A store that was copied elsewhere, read through fsspec: the same rows as from its folder."""

import io
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import holdfast
from holdfast import InvalidArgument, NotFound, Roll
from holdfast.spark.options import ReadOptions
from holdfast.spark.reader import Reader
from holdfast.spark.remote import RemoteFiles
from holdfast.spark.sources import view_schema

URL = "memory://bucket/data"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A store, and a copy of it in memory."""
    with holdfast.open(tmp_path / "data") as store:
        log = store.log("events", roll=Roll.count(50))
        for number in range(20):
            log.append_many([b"%d.%d" % (number, n) for n in range(10)])
        queue = store.queue("work")
        queue.put_many([b"a", b"b", b"c"])
        queue.ack(queue.lease(2))
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path / "data"), "/bucket/data", recursive=True)
    yield tmp_path / "data"
    memory.rm("/bucket", recursive=True)


def read(**options: str) -> pa.Table:
    schema = view_schema(ReadOptions.of(options))
    reader = Reader(options, from_arrow_schema(schema))
    batches = [batch for share in reader.partitions() for batch in reader.read(share)]
    return pa.Table.from_batches(batches, schema=schema)


@pytest.mark.parametrize(
    "options",
    [
        {"log": "events"},
        {"queue": "work", "view": "lifecycle"},
        {"queue": "work", "view": "messages"},
        {"logPattern": "*", "minPartitions": "7"},
    ],
)
def test_a_copy_is_read_as_the_folder_is(folder: Path, options: dict[str, str]) -> None:
    assert read(path=URL, **options).equals(read(path=str(folder), **options))


def test_what_is_not_there_is_said_in_one_line(folder: Path) -> None:
    with pytest.raises(NotFound, match="there is no store in 'memory://bucket/other'"):
        read(path="memory://bucket/other", log="events")
    with pytest.raises(NotFound, match="there is no log 'other' in 'memory://bucket/data'"):
        read(path=URL, log="other")
    with pytest.raises(InvalidArgument, match="'nowhere://x' cannot be read: Protocol not known"):
        read(path="nowhere://x", log="events")


def test_only_what_a_copy_can_tell_is_read_from_it(folder: Path) -> None:
    with pytest.raises(InvalidArgument, match="a stream needs the store's folder"):
        ReadOptions.of({"path": URL, "log": "events"}, streaming=True)


def test_a_copy_is_never_changed(folder: Path) -> None:
    files = RemoteFiles(URL)
    for change in (files.make_dirs, files.remove, files.remove_dir, files.sync_dir, files.lock):
        with pytest.raises(io.UnsupportedOperation):
            change(Path("/logs"))
    with pytest.raises(io.UnsupportedOperation):
        files.open(Path("/logs/x"), "w")
