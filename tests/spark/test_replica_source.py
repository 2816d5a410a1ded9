"""Reading a store from its replica: the same rows as from its folder, planned from manifests and small ranges."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable

import holdfast
from holdfast import Flush, InvalidArgument, Message, NotFound, Roll
from holdfast.replica.bucket import open_bucket
from holdfast.replica.folder_bucket import FolderBucket
from holdfast.replica.manifest import list_moments, read_manifest
from holdfast.spark.options import ReadOptions
from holdfast.spark.partitions import DataLoss
from holdfast.spark.reader import Reader
from holdfast.spark.sources import view_schema
from holdfast.spark.stream import Offsets, StreamReader
from holdfast.table import Model, field


class Account(Model, id=51):
    """A record of the table."""

    name: str = field(1)
    balance: int = field(2, default=0)


def fill(store: holdfast.Store) -> None:
    """Logs of several segments and parts, a queue with dead letters, and a table."""
    log = store.log("events", roll=Roll.count(50), flush=Flush.sync())
    for number in range(12):
        log.append_many([Message(b"%d.%d" % (number, n), key=b"k%d" % (n % 3)) for n in range(10)])
        store.replica.ship()
    queue = store.queue("work", max_attempts=2, dead_letter="work.dead")
    queue.put_many([b"%d" % number for number in range(20)])
    queue.ack(queue.lease(8))
    for message in queue.lease(3):
        message.nack("no such customer")
    accounts = store.table(Account)
    for number in range(20):
        accounts.add(Account(name=f"n{number}", balance=number))
    store.replica.ship()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[holdfast.Store]:
    """An open store with a replica in a folder."""
    with holdfast.open(tmp_path / "data", replica=(tmp_path / "replica").as_uri(), background=False) as store:
        fill(store)
        yield store


def schema_of(options: dict[str, str]) -> pa.Schema:
    return view_schema(ReadOptions.of(options))


def read(path: object, /, **options: str) -> pa.Table:
    given = {"path": str(path), **options}
    schema = schema_of(given)
    reader = Reader(given, from_arrow_schema(schema))
    shares = [pickle.loads(pickle.dumps(share)) for share in reader.partitions()]
    batches = [batch for share in shares for batch in reader.read(share)]
    return pa.Table.from_batches(batches, schema=schema)


VIEWS: list[dict[str, str]] = [
    {"log": "events"},
    {"log": "events", "minPartitions": "7", "includeHeaders": "true"},
    {"logPattern": "*"},
    {"log": "events", "key": '["k1"]'},
    {"log": "events", "startingOffsets": '{"events": {"0": 57}}', "endingOffsets": '{"events": {"0": 61}}'},
    {"queue": "work", "view": "lifecycle"},
    {"queue": "work", "view": "messages"},
    {"table": "Account"},
    {"table": "Account", "view": "changes"},
    {"table": "Account", "view": "history", "minPartitions": "3"},
]


@pytest.mark.parametrize("options", VIEWS, ids=lambda options: "-".join(options.values())[:40])
def test_a_replica_has_the_rows_of_the_folder(store: holdfast.Store, tmp_path: Path, options: dict[str, str]) -> None:
    expected = read(tmp_path / "data", **options)
    assert expected.num_rows
    assert read((tmp_path / "replica").as_uri(), **options).equals(expected)
    assert read(tmp_path / "replica", **options).equals(expected)  # a folder that has a replica


def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """Requests to buckets in folders from now on: the kind, the key and how many bytes came."""
    found: list[tuple[str, str, int]] = []
    get, get_range = FolderBucket.get, FolderBucket.get_range

    def noted(self: FolderBucket, key: str) -> Any:
        answer = get(self, key)
        found.append(("get", key, len(answer.content)))
        return answer

    def range_noted(self: FolderBucket, key: str, start: int, stop: int) -> bytes:
        answer = get_range(self, key, start, stop)
        found.append(("range", key, len(answer)))
        return answer

    monkeypatch.setattr(FolderBucket, "get", noted)
    monkeypatch.setattr(FolderBucket, "get_range", range_noted)
    return found


@pytest.fixture
def parted(tmp_path: Path) -> Path:
    """A log whose one segment is of many parts of about the same size: the last is appended to, and shipped again."""
    with holdfast.open(tmp_path / "data", replica=(tmp_path / "replica").as_uri(), background=False) as store:
        log = store.log("x", flush=Flush.sync(), index_interval=1 << 20)
        for _ in range(6):
            log.append_many([bytes([65]) * 1000 for _ in range(9000)])  # more than 8 MiB: a part of its own
            store.replica.ship()
    return tmp_path / "replica"


def reader(path: object, **options: str) -> Reader:
    given = {"path": str(path), **options}
    return Reader(given, from_arrow_schema(schema_of(given)))


def test_a_record_in_the_middle_is_found_by_ranges_and_one_part_is_fetched(
    parted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requests = counted(monkeypatch)
    made = reader(parted, log="x", startingOffsets='{"x": {"0": 30000}}', endingOffsets='{"x": {"0": 30001}}')
    shares = made.partitions()
    assert sum(size for kind, key, size in requests if not key.startswith("manifest/")) <= 6 * 64
    assert [kind for kind, key, _ in requests if key.startswith("manifest/")] == ["get"]
    (share,) = shares
    assert len(pickle.dumps(share)) < 3000
    requests.clear()
    [batch] = made.read(share)
    assert batch["offset"].to_pylist() == [30000]
    assert [(kind, size > 8 << 20) for kind, _, size in requests] == [("get", True)], "one part, and no manifest"


def test_tasks_fetch_each_part_once_and_only_their_own(parted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = reader(parted, log="x", minPartitions="3")
    shares = made.partitions()
    assert len(shares) == 3
    requests = counted(monkeypatch)
    offsets = [one for share in shares for batch in made.read(share) for one in batch["offset"].to_pylist()]
    assert offsets == list(range(54_000))
    assert [kind for kind, _, _ in requests] == ["get"] * len({key for _, key, _ in requests})


def collect(replica: Path) -> list[str]:
    """Delete the parts that the newest moment does not name, as garbage collection does later; return their keys."""
    bucket = open_bucket(replica.as_uri())
    named = set(read_manifest(bucket, list_moments(bucket)[-1]).keys())
    garbage = [one.key for one in bucket.list("logs/") if one.key not in named]
    bucket.delete(garbage)
    return garbage


def test_a_part_that_was_replaced_is_read_from_what_replaced_it(tmp_path: Path, store: holdfast.Store) -> None:
    """The task knows the parts of an old moment."""
    log = store.log("small", flush=Flush.sync())
    for number in range(30):
        log.append(b"%d" % number)
        store.replica.ship()
        if number == 4:
            made = reader(tmp_path / "replica", log="small")
            shares = made.partitions()
            bucket = open_bucket((tmp_path / "replica").as_uri())
            planned = {one.key for one in bucket.list("logs/small/")}
    assert planned & set(collect(tmp_path / "replica")), "small parts are put together"
    assert [one for share in shares for batch in made.read(share) for one in batch["offset"].to_pylist()] == [*range(5)]


def test_a_segment_that_retention_dropped_is_data_loss_unless_allowed(tmp_path: Path, store: holdfast.Store) -> None:
    for given in ("true", "false"):
        made = reader(tmp_path / "replica", log="events", failOnDataLoss=given)
        shares = made.partitions()
        log = store.log("events")
        log.append_many([b"later"] * 60)
        log.clear(force=True)
        store.replica.ship()
        assert collect(tmp_path / "replica")
        if given == "true":
            with pytest.raises(DataLoss, match="dropped by retention while it was being read"):
                [batch for share in shares for batch in made.read(share)]
        else:
            assert sum(batch.num_rows for share in shares for batch in made.read(share)) == 0


# Streams


def stream(path: object, **options: str) -> StreamReader:
    given = {"path": str(path), "log": "events", "startingOffsets": "earliest", **options}
    return StreamReader(given, from_arrow_schema(schema_of(given)))


def rows(made: StreamReader, start: Offsets, end: Offsets) -> list[int]:
    parts = [pickle.loads(pickle.dumps(part)) for part in made.partitions(start, end)]
    return [row["offset"] for part in parts for batch in made.read(part) for row in batch.to_pylist()]


def batches(made: StreamReader, start: Offsets) -> tuple[list[int], Offsets]:
    """Batch after batch until there is nothing more; returns the rows and the last offset."""
    found: list[int] = []
    while (end := made.latestOffset(start, made.getDefaultReadLimit())) != start:
        end = json.loads(json.dumps(end))
        found += rows(made, start, end)
        made.commit(end)
        start = end
    return found, start


def test_a_stream_follows_the_replica_as_far_as_it_was_shipped(tmp_path: Path, store: holdfast.Store) -> None:
    made = stream(tmp_path / "replica", maxOffsetsPerTrigger="33")
    found, at = batches(made, made.initialOffset())
    assert found == list(range(120))
    log = store.log("events")
    log.append_many([b"later"] * 10)
    assert batches(made, at) == ([], at), "not shipped yet"
    store.replica.ship()
    found, at = batches(made, at)
    assert found == list(range(120, 130))
    for number in range(40):
        log.append(b"%d" % number)
        store.replica.ship()
    assert batches(made, at)[0] == list(range(130, 170))


def test_a_stream_moves_between_folder_and_replica_with_one_checkpoint(tmp_path: Path, store: holdfast.Store) -> None:
    log = store.log("events")
    made, count = stream(tmp_path / "data"), 120
    found, at = batches(made, made.initialOffset())
    for place in ("replica", "data", "replica"):
        log.append_many([b"more"] * 25)
        store.replica.ship()
        made.stop()
        made = stream(tmp_path / place)
        more, at = batches(made, at)
        found, count = found + more, count + 25
    assert found == list(range(count))


def test_a_stream_with_a_limit_of_bytes_gets_all(parted: Path) -> None:
    made = stream(parted, log="x", maxBytesPerTrigger=str(9 << 20))
    start, sizes, found = made.initialOffset(), [], []
    while (end := made.latestOffset(start, made.getDefaultReadLimit())) != start:
        batch = rows(made, start, end)
        sizes.append(len(batch))
        found += batch
        start = end
    assert found == list(range(54_000))
    assert max(sizes) <= 18_000


def test_available_now_ends_at_the_moment_of_its_start(tmp_path: Path, store: holdfast.Store) -> None:
    made = stream(tmp_path / "replica")
    made.prepareForTriggerAvailableNow()
    store.log("events").append_many([b"later"] * 10)
    store.replica.ship()
    assert batches(made, made.initialOffset())[0] == list(range(120))


def test_a_log_that_was_created_again_is_data_loss(tmp_path: Path, store: holdfast.Store) -> None:
    made = stream(tmp_path / "replica", log="work", startingOffsets="earliest")
    start = made.initialOffset()
    end = made.latestOffset(start, ReadAllAvailable())
    store.delete_queue("work")
    store.queue("work").put_many([b"new"] * 30)
    store.replica.ship()
    with pytest.raises(DataLoss, match="was deleted and recreated"):
        made.latestOffset(end, ReadAllAvailable())


# Refusals


def test_what_is_not_there_is_said_in_one_line(tmp_path: Path, store: holdfast.Store) -> None:
    url = (tmp_path / "replica").as_uri()
    with pytest.raises(NotFound, match=f"there is no log 'other' in '{url}'"):
        read(url, log="other")
    (tmp_path / "nothing").mkdir()
    with pytest.raises(NotFound, match=r"there is no store in .*nothing'"):
        read((tmp_path / "nothing").as_uri(), log="events")
    with pytest.raises(InvalidArgument, match="keeps a position in the store"):
        stream(url, name="mine")


def test_a_stream_of_a_log_of_no_segments_waits(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data", replica=(tmp_path / "replica").as_uri(), background=False) as store:
        log = store.log("events", flush=Flush.sync())
        store.replica.ship()
        made = stream(tmp_path / "replica")
        found, at = batches(made, made.initialOffset())
        assert found == []
        log.append_many([b"first"] * 3)
        store.replica.ship()
        assert batches(made, at)[0] == [0, 1, 2]


def test_inline_parts_travel_with_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = (tmp_path / "replica").as_uri()
    with holdfast.open(tmp_path / "data", replica=url, confirm="replica", background=False) as store:
        queue = store.queue("work")
        store.replica.ship()
        queue.put_many([b"x" * 100] * 5)  # somebody waits for the bucket: the bytes are in the manifest
        made = reader(url, log="work")
        shares = [pickle.loads(pickle.dumps(share)) for share in made.partitions()]
        requests = counted(monkeypatch)
        assert sum(batch.num_rows for share in shares for batch in made.read(share)) == 5
        assert requests == []
