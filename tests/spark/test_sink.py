"""Do results come back whole, in order and once? The writers by themselves, then Spark with and without an owner."""

import dataclasses
import itertools
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

import holdfast
from holdfast import Flush, InvalidArgument, MessageTooLarge, Roll, Store
from holdfast.base.errors import Corrupt, HoldfastError, Locked, NotFound
from holdfast.log.log import Log
from holdfast.spark.schemas import HEADERS
from holdfast.spark.sink import BatchWriter
from holdfast.testing import SimClock

MIB = 1 << 20


def batch(*values: bytes | str | None, **columns: list[Any] | pa.Array) -> pa.RecordBatch:
    """Rows as Spark hands them over."""
    return pa.RecordBatch.from_pydict({"value": pa.array(values), **columns})


def writer(path: Path, like: pa.RecordBatch | None = None, /, **options: object) -> BatchWriter:
    given = {"path": str(path), **{name: str(value) for name, value in options.items()}}
    if not {"log", "queue"} & given.keys():
        given["log"] = "x"
    schema = from_arrow_schema((like if like is not None else batch(b"")).schema)
    return BatchWriter(given, schema, overwrite=False)


def write(path: Path, /, *tasks: list[pa.RecordBatch] | pa.RecordBatch, **options: object) -> None:
    """A whole write: each argument is a task. The driver gets their messages in the order in which they ended."""
    parts = [task if isinstance(task, list) else [task] for task in tasks]
    made = writer(path, parts[0][0] if parts and parts[0] else None, **options)
    messages = [dataclasses.replace(made.write(iter(part)), task=number) for number, part in enumerate(parts)]
    random.Random(len(messages)).shuffle(messages)
    made.commit([*messages])


def payloads(path: Path, log: str = "x") -> list[bytes]:
    """What is in the log, which must be whole and without a gap."""
    with holdfast.open(path, read_only=True) as store:
        return in_order(store.log(log))


def in_order(log: Log) -> list[bytes]:
    assert log.verify().ok
    records = list(log.read())
    assert [record.sequence for record in records] == list(range(log.start, log.end))
    assert all(a.timestamp <= b.timestamp for a, b in itertools.pairwise(records))
    return [record.payload for record in records]


def left_over(path: Path) -> list[str]:
    folder = path / "incoming" / "parts"
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def tomorrow() -> SimClock:
    return SimClock(time.time_ns() + 86_401 * 10**9)


@contextmanager
def owned(path: Path, owned: bool) -> Iterator[Store | None]:
    """The store is open for writing in another place, or it is not."""
    if not owned:
        yield None
        return
    with holdfast.open(path) as store:
        yield store


both = pytest.mark.parametrize("owner", [False, True])


# What is written


@both
def test_tasks_come_in_their_order_and_batches_too(tmp_path: Path, owner: bool) -> None:
    with owned(tmp_path, owner):
        write(tmp_path, [batch(b"1", b"2"), batch(b"3")], [], batch(b"4"), batch(b"", b"5"))
        write(tmp_path, batch(b"6"))
        write(tmp_path)
        write(tmp_path, [])
    assert payloads(tmp_path) == [b"1", b"2", b"3", b"4", b"", b"5", b"6"]
    assert left_over(tmp_path) == []


@pytest.mark.parametrize("text", [False, True])
def test_every_column_gets_to_the_log(tmp_path: Path, text: bool) -> None:
    kind = pa.string() if text else pa.binary()
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", kind)]))
    until = datetime(2030, 1, 1, 12, 0, 0, 5, tzinfo=UTC)
    write(
        tmp_path,
        batch(
            *(("a", "b", "\u00fc") if text else (b"a", b"\xff", b"")),
            key=pa.array(["k", None, ""], kind),
            headers=pa.array([[{"key": "h", "value": "1"}, {"key": "", "value": ""}], None, []], headers),
            priority=pa.array([None, 0, 255], pa.int32()),
            expiry=pa.array([None, until, None], pa.timestamp("us", "UTC")),
            topic=pa.array(["elsewhere"] * 3),
            offset=pa.array([7, 7, 7]),
        ),
    )
    with holdfast.open(tmp_path) as store:
        (block,) = store.log("x").blocks()
        records = block.records()
        assert [record.payload for record in records] == (
            [b"a", b"b", "\u00fc".encode()] if text else [b"a", b"\xff", b""]
        )
        assert [record.key for record in records] == [b"k", None, b""]
        value = (lambda one: one) if text else str.encode
        assert [dict(record.headers) for record in records] == [{"h": value("1"), "": value("")}, {}, {}]
        priority, expiry = block.numbers("priority"), block.numbers("expiry")
        assert priority is not None and list(priority) == [0, 0, 255]
        assert expiry is not None and list(expiry) == [0, 1_893_499_200_000_005_000, 0]


@both
def test_a_queue_gets_what_a_put_could_give(tmp_path: Path, owner: bool) -> None:
    rows = batch(
        b"late", b"low", b"high", b"short",
        key=pa.array([b"k", None, None, None]),
        priority=pa.array([0, None, 9, 0], pa.int8()),
        delay=pa.array([3600.0, None, 0, 0]),
        ttl=pa.array([None, None, None, 0.000001]),
    )  # fmt: skip
    with owned(tmp_path, owner):
        write(tmp_path, rows, queue="jobs")
    with holdfast.open(tmp_path) as store:
        queue = store.queue("jobs")
        found = queue.lease(10)
        assert [(message.payload, message.priority) for message in found] == [(b"high", 9), (b"low", 0)]
        stats = queue.stats()
        assert (stats.delayed, stats.leased, stats.ready) == (1, 2, 0)
        assert stats.next_due is not None
    assert payloads(tmp_path, "jobs") == [b"late", b"low", b"high", b"short"]


def test_a_queue_on_another_log_keeps_its_log(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        store.queue("group", log="events").put(b"0")
    write(tmp_path, batch(b"1"), queue="group")
    assert payloads(tmp_path, "events") == [b"0", b"1"]
    with holdfast.open(tmp_path) as store:
        assert store.logs() == ["events"]
        assert [message.payload for message in store.queue("group").lease(9)] == [b"0", b"1"]


@both
@pytest.mark.parametrize("compression", ["none", "gzip", "zstd", "lz4"])
def test_large_parts_become_segments_and_small_ones_are_copied(tmp_path: Path, owner: bool, compression: str) -> None:
    rng = random.Random(1)
    small = [b"small %d" % number for number in range(1000)]
    large = [rng.randbytes(1000) for _ in range(9 * MIB // 1000)]
    with owned(tmp_path, owner) as store:
        if store is not None:
            store.log("x", roll=Roll.size(4 * MIB)).append(b"before")
        chunks = [batch(*large[start : start + 1000]) for start in range(0, len(large), 1000)]
        write(tmp_path, batch(*small), chunks, batch(*small), compression=compression)
        write(tmp_path, chunks, compression=compression)
        if store is not None:
            log = store.log("x")
            log.append(b"after")
            expected = [b"before", *small, *large, *small, *large, b"after"]
            assert in_order(log) == expected
            assert [record.payload for record in log.read(500, 12_000)] == expected[500:12_000]
            assert log.sequence_at(next(log.read(11_500, 11_501)).timestamp) <= 11_500
    with holdfast.open(tmp_path) as store:
        expected = [*small, *large, *small, *large]
        assert in_order(store.log("x")) == ([b"before", *expected, b"after"] if owner else expected)
        store.log("x").append(b"more")
        assert len(store.log("x").segments()) >= 4
    assert payloads(tmp_path)[-1] == b"more"
    assert left_over(tmp_path) == []


# Once


@both
def test_a_version_counts_once(tmp_path: Path, owner: bool) -> None:
    with owned(tmp_path, owner):
        for version in (1, 1, 3, 2, 3, 4):
            write(tmp_path, batch(b"v%d" % version), txnAppId="job", txnVersion=version)
        write(tmp_path, batch(b"other"), txnAppId="other", txnVersion=1)
        write(tmp_path, batch(b"there"), txnAppId="job", txnVersion=1, log="y")
    assert payloads(tmp_path) == [b"v1", b"v3", b"v4", b"other"]
    assert payloads(tmp_path, "y") == [b"there"]
    assert left_over(tmp_path) == []


def test_what_waits_for_its_owner_is_not_handed_over_twice(tmp_path: Path) -> None:
    with holdfast.open(tmp_path, background=False) as store:
        for _ in range(3):
            write(tmp_path, batch(b"1"), txnAppId="job", txnVersion=1, wait=0)
        write(tmp_path, batch(b"2"), txnAppId="job", txnVersion=2, wait=0)
        assert store.adopt() == 2
        assert in_order(store.log("x")) == [b"1", b"2"]
    assert left_over(tmp_path) == []


def test_parts_of_failed_tasks_are_swept(tmp_path: Path) -> None:
    for version in (1, 2):
        lost = writer(tmp_path, txnAppId="job", txnVersion=version)
        lost.write(iter([batch(b"lost")]))  # its executor was killed: nobody heard of it
    assert len(left_over(tmp_path)) == 4
    write(tmp_path, batch(b"1"), txnAppId="job", txnVersion=1)
    assert len(left_over(tmp_path)) == 2  # version 2 may still come
    write(tmp_path, batch(b"2"), txnAppId="job", txnVersion=2)
    assert left_over(tmp_path) == []
    writer(tmp_path).write(iter([batch(b"lost")]))
    write(tmp_path, batch(b"3"))
    assert len(left_over(tmp_path)) == 2
    with holdfast.open(tmp_path, clock=tomorrow(), background=False) as store:
        write(tmp_path, batch(b"4"), wait=0)
        store.adopt()
        assert in_order(store.log("x")) == [b"1", b"2", b"3", b"4"]
    assert left_over(tmp_path) == []


def test_a_task_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield batch(*[b"x" * 1000] * 3000)
        raise RuntimeError("half-way")

    made = writer(tmp_path)
    done = made.write(iter([batch(b"other task")]))
    with pytest.raises(RuntimeError, match="half-way"):
        made.write(rows())
    assert len(left_over(tmp_path)) == 2
    made.abort([done, None])
    assert left_over(tmp_path) == []
    with holdfast.open(tmp_path) as store:
        assert store.adopt() == 0
        assert store.log("x").end == 0


def test_an_abort_after_the_hand_over_takes_nothing_back(tmp_path: Path) -> None:
    with holdfast.open(tmp_path, background=False) as store:
        made = writer(tmp_path, wait=0)
        messages: list[Any] = [made.write(iter([batch(b"1")]))]
        made.commit(messages)
        made.abort(messages)  # Spark does this where it did not hear of the commit's end
        store.adopt()
        assert in_order(store.log("x")) == [b"1"]


@pytest.mark.parametrize("size", [100, 9 * MIB])
def test_parts_that_are_not_whole_are_refused_and_the_batch_may_come_again(tmp_path: Path, size: int) -> None:
    write(tmp_path, batch(b"before"))
    spoils = (cut, lose, flip) if size < MIB else (cut, lose)
    for spoil in spoils:
        made = writer(tmp_path, txnAppId=spoil.__name__, txnVersion=1)
        parts = made.write(iter([batch(*[b"x" * 1000] * (size // 1000 + 1))]))
        spoil(tmp_path / "incoming" / "parts" / parts.written.parts[0].file)
        with pytest.raises(Corrupt, match="could not adopt batch 1"):
            made.commit([parts])
        for _ in range(2):
            write(tmp_path, batch(b"again"), txnAppId=spoil.__name__, txnVersion=1)
    assert payloads(tmp_path) == [b"before"] + [b"again"] * len(spoils)


def test_a_hit_in_a_large_part_is_found_as_any_other_in_the_log(tmp_path: Path) -> None:
    made = writer(tmp_path)
    parts = made.write(iter([batch(*[b"x" * 1000] * 9500)]))
    flip(tmp_path / "incoming" / "parts" / parts.written.parts[0].file)
    made.commit([parts])
    with holdfast.open(tmp_path) as store:
        log = store.log("x")
        (damage,) = log.verify().damage
        assert (damage.first_lost, damage.lost) == (9499, 1)
        assert log.append(b"next") == 9500


def cut(part: Path) -> None:
    part.write_bytes(part.read_bytes()[:-8])


def flip(part: Path) -> None:
    content = bytearray(part.read_bytes())
    content[-50] ^= 1
    part.write_bytes(content)


def lose(part: Path) -> None:
    part.unlink()


# While its owner works


def test_an_owner_that_has_nothing_open_takes_batches_over(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        write(tmp_path, batch(b"1"))
        assert in_order(store.log("x")) == [b"1"]


def test_live_readers_of_the_owner_see_what_came_in(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        log, queue = store.log("x", flush=Flush.sync()), store.queue("jobs")
        log.append(b"first")
        seen: list[bytes] = []
        got: list[bytes] = []

        def tail() -> None:
            seen.extend(record.payload for record in itertools.islice(log.tailer().follow(wait=60), 3))

        def get() -> None:
            for _ in range(2):
                message = queue.get(wait=60)
                assert message is not None
                got.append(message.payload)
                message.ack()

        threads = [threading.Thread(target=target) for target in (tail, get)]
        for thread in threads:
            thread.start()
        write(tmp_path, batch(b"1"), batch(b"2"))
        write(tmp_path, batch(b"3", b"4"), queue="jobs")
        for thread in threads:
            thread.join(60)
        assert (seen, got) == ([b"first", b"1", b"2"], [b"3", b"4"])
        assert queue.stats().total_acked == 2


@pytest.mark.parametrize("flush", [Flush.async_(), Flush.batch(interval=0.01), Flush.sync()])
def test_threads_that_append_meanwhile_lose_nothing(tmp_path: Path, flush: Flush) -> None:
    with holdfast.open(tmp_path) as store:
        log = store.log("x", flush=flush, roll=Roll.count(5000))
        told: list[list[tuple[int, bytes]]] = [[], [], []]
        stop = threading.Event()

        def append(mine: int) -> None:
            for number in itertools.count():
                payload = b"%d %d" % (mine, number)
                told[mine].append((log.append(payload), payload))
                if stop.is_set():
                    return

        threads = [threading.Thread(target=append, args=(mine,)) for mine in range(3)]
        for thread in threads:
            thread.start()
        for number in range(5):
            write(tmp_path, *[batch(*[b"s%d" % number] * 100)] * 3)
        stop.set()
        for thread in threads:
            thread.join()
        log.sync()
        records = {record.sequence: record.payload for record in log.read()}
        assert all(records[sequence] == payload for mine in told for sequence, payload in mine)
        assert len(records) == sum(map(len, told)) + 1500
        for number in range(5):
            places = [sequence for sequence, payload in records.items() if payload == b"s%d" % number]
            assert places == list(range(places[0], places[0] + 300)), "a batch is not in one piece"
        in_order(log)


def test_several_jobs_write_at_once_while_owners_come_and_go(tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def job(mine: int) -> None:
        try:
            for number in range(8):
                target = "queue" if mine == 3 else "log"
                rows = batch(*[b"%d %d %d" % (mine, number, row) for row in range(20)])
                write(tmp_path, rows, **{target: "jobs" if mine == 3 else "x"}, txnAppId=f"{mine}", txnVersion=number)
        except BaseException as error:
            errors.append(error)
            raise

    def owner() -> None:
        while any(thread.is_alive() for thread in threads):
            try:
                with holdfast.open(tmp_path) as store:
                    store.log("x").append(b"owner")
                    time.sleep(0.02)
            except Locked:
                time.sleep(0.005)

    threads = [threading.Thread(target=job, args=(mine,)) for mine in range(4)]
    for thread in threads:
        thread.start()
    owner()
    for thread in threads:
        thread.join()
    assert errors == []
    for mine, log in ((0, "x"), (1, "x"), (2, "x"), (3, "jobs")):
        found = [payload for payload in payloads(tmp_path, log) if payload.startswith(b"%d " % mine)]
        assert found == [b"%d %d %d" % (mine, number, row) for number in range(8) for row in range(20)]
    assert left_over(tmp_path) == []


# What cannot be


def headers_of(*items: dict[str, Any] | None) -> dict[str, pa.Array]:
    return {"headers": pa.array([list(items)], HEADERS)}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (batch(b"1", None), "the column 'value' is null in a row"),
        (batch(b"1", priority=pa.array([256], pa.int32())), "a priority must be from 0 to 255, not 256"),
        (batch(b"1", priority=pa.array([-1], pa.int64())), "a priority must be from 0 to 255, not -1"),
        (batch(b"1", delay=pa.array([-0.5])), "a delay must be .* not -0.5"),
        (batch(b"1", delay=pa.array([float("nan")])), "a delay must be .* not nan"),
        (batch(b"1", ttl=pa.array([0])), "a ttl must be more than 0 seconds"),
        (batch(b"1", ttl=pa.array([1 << 40])), "a ttl must be .* at most 200 years"),
        (batch(b"x" * (10 * MIB + 1)), "over the limit of 10485760"),
        (batch(b"x" * 6 * MIB, key=pa.array([b"x" * 6 * MIB])), "over the limit of 10485760"),
        (batch(b"1", **headers_of({"key": "h", "value": b"x" * 11 * MIB})), "over the limit of 10485760"),
        (batch(b"1", **headers_of({"key": "h", "value": None})), "a header has no name or no value"),
        (batch(b"1", **headers_of(None)), "a header has no name or no value"),
        (batch(b"1", **headers_of({"key": "h", "value": b"1"}, {"key": "h", "value": b"2"})), "two headers 'h'"),
    ],
)
def test_rows_that_are_no_messages_are_refused_and_nothing_stays(
    tmp_path: Path, rows: pa.RecordBatch, said: str
) -> None:
    with pytest.raises((InvalidArgument, MessageTooLarge), match=said) as caught:
        write(tmp_path, rows)
    assert "\n" not in str(caught.value)
    assert left_over(tmp_path) == []


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"body": pa.binary()}, "the column 'value' is missing; there are: body"),
        ({"value": pa.int32()}, "the column 'value' takes binary or string, not int"),
        ({"value": pa.binary(), "amount": pa.int32()}, "a message has no column 'amount'"),
        ({"value": pa.binary(), "key": pa.int64()}, "the column 'key' takes binary or string"),
        ({"value": pa.binary(), "headers": pa.string()}, "the column 'headers' takes"),
        ({"value": pa.binary(), "headers": pa.list_(pa.int32())}, "the column 'headers' takes"),
        ({"value": pa.binary(), "headers": pa.list_(pa.struct([("a", pa.string())]))}, "the column 'headers' takes"),
        ({"value": pa.binary(), "priority": pa.float64()}, "the column 'priority' takes"),
        ({"value": pa.binary(), "delay": pa.string()}, "the column 'delay' takes"),
        ({"value": pa.binary(), "expiry": pa.int64()}, "the column 'expiry' takes timestamp"),
        ({"value": pa.binary(), "ttl": pa.int64(), "expiry": pa.timestamp("us", "UTC")}, "'ttl' and 'expiry'"),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_anything_is_written(
    tmp_path: Path, columns: dict[str, pa.DataType], said: str
) -> None:
    schema = from_arrow_schema(pa.schema(list(columns.items())))
    with pytest.raises(InvalidArgument, match=said) as caught:
        BatchWriter({"path": str(tmp_path / "data"), "log": "x"}, schema, overwrite=False)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"log": "x", "queue": "y"}, "either the option 'log' or the option 'queue'"),
        ({"log": ""}, "log name must not be empty"),
        ({"queue": "q" * 256}, "queue name has 256 bytes"),
        ({"txnAppId": "a"}, "'txnAppId' and 'txnVersion' must be given"),
        ({"txnVersion": "1"}, "'txnAppId' and 'txnVersion' must be given"),
        ({"txnAppId": "", "txnVersion": "1"}, "'txnAppId'"),
        ({"txnAppId": "a", "txnVersion": "-1"}, "'txnVersion' takes a whole number from 0 up"),
        ({"compression": "zip"}, "'compression' takes none or gzip or zstd or lz4, not 'zip'"),
        ({"blockBytes": "0"}, "'blockBytes' takes"),
        ({"wait": "-1"}, "'wait' takes seconds"),
        ({"topic": "x"}, "'topic' is one of Spark's Kafka sink"),
        ({"path": ""}, "'path' is missing"),
    ],
)
def test_options_that_cannot_be_are_refused_in_one_line(tmp_path: Path, options: dict[str, str], said: str) -> None:
    with pytest.raises(HoldfastError, match=said) as caught:
        writer(tmp_path, **options)
    assert "\n" not in str(caught.value)


def test_a_block_stays_within_what_a_block_can_hold(tmp_path: Path) -> None:
    assert writer(tmp_path, blockBytes=1 << 40).options.block_bytes <= 256 * MIB


def test_a_log_is_not_overwritten_and_a_file_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="can only be appended to"):
        BatchWriter({"path": str(tmp_path), "log": "x"}, from_arrow_schema(batch(b"").schema), overwrite=True)
    (tmp_path / "file").write_text("x")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        for where in ({"log": "x"}, {"queue": "x"}):
            with pytest.raises((NotFound, HoldfastError), match="file"):
                write(place, batch(b"1"), **where)


# With Spark


def save(frame: DataFrame, path: Path, **options: object) -> None:
    done = frame.write.format("holdfast").option("path", str(path)).mode("append")
    for name, value in options.items():
        done = done.option(name, str(value))
    done.save()


@both
def test_spark_writes_partitions_in_their_order(spark: SparkSession, tmp_path: Path, owner: bool) -> None:
    with owned(tmp_path, owner):
        save(spark.range(0, 5000, 1, 4).selectExpr("CAST(id AS STRING) AS value"), tmp_path, log="x")
    assert payloads(tmp_path) == [b"%d" % number for number in range(5000)]


def test_spark_copies_a_log_with_all_it_has(spark: SparkSession, tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        queue = store.queue("x")
        queue.put(b"1", key=b"k", headers={"a": b"b"}, priority=3, ttl=3600)
        queue.put(b"2")
    frame = spark.read.format("holdfast").option("path", str(tmp_path)).option("log", "x")
    save(frame.option("includeHeaders", "true").load(), tmp_path, log="y")
    shown = [
        [row.asDict() | {"topic": None, "timestamp": None} for row in frame.option("log", name).load().collect()]
        for name in ("x", "y")
    ]
    assert shown[0] == shown[1]
    assert len(shown[0]) == 2


def test_spark_writes_to_a_queue_once(spark: SparkSession, tmp_path: Path) -> None:
    rows = [Row(value=bytearray(b"%d" % number), priority=number % 2, delay=0.0, ttl=60) for number in range(10)]
    frame = spark.createDataFrame(rows)
    for _ in range(2):
        save(frame, tmp_path, queue="jobs", txnAppId="load", txnVersion=7)
    with holdfast.open(tmp_path) as store:
        assert [int(message.payload) for message in store.queue("jobs").lease(99)] == [1, 3, 5, 7, 9, 0, 2, 4, 6, 8]


def test_a_job_that_fails_half_way_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for one in batches:
            yield one
            if 3500 in one["id"].to_pylist():
                raise RuntimeError("a worker fell over")

    frame = spark.range(0, 4000, 1, 4).mapInArrow(rows, "id LONG").selectExpr("CAST(id AS STRING) AS value")
    with pytest.raises(PySparkException, match="a worker fell over"):
        save(frame, tmp_path, log="x")
    with holdfast.open(tmp_path) as store:
        assert store.adopt() == 0
        assert store.log("x").end == 0
    # A task that ran on while the job was given up may leave a part; what nobody wants for a day is swept.
    with holdfast.open(tmp_path, clock=tomorrow(), background=False) as store:
        write(tmp_path, batch(b"later"), wait=0)
        store.adopt()
        assert in_order(store.log("x")) == [b"later"]
    assert left_over(tmp_path) == []


@pytest.mark.parametrize(("target", "owner"), [("log", False), ("queue", True)])
def test_a_stream_is_written_once_also_where_its_last_batch_comes_again(
    spark: SparkSession, tmp_path: Path, target: str, owner: bool
) -> None:
    with holdfast.open(tmp_path / "from") as store:
        log = store.log("x")
        log.append_many([b"%d" % number for number in range(100)])

    def run() -> None:
        source = spark.readStream.format("holdfast").option("path", str(tmp_path / "from")).option("log", "x")
        frame = source.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 40).load()
        sink = frame.selectExpr("value", "key").writeStream.format("holdfast").option("path", str(tmp_path / "to"))
        sink = sink.option(target, "y").option("checkpointLocation", str(tmp_path / "checkpoint"))
        sink.trigger(availableNow=True).start().awaitTermination()

    with owned(tmp_path / "to", owner):
        run()
        for name in ("2", ".2.crc"):
            (tmp_path / "checkpoint" / "commits" / name).unlink()
        run()
    assert payloads(tmp_path / "to", "y") == [b"%d" % number for number in range(100)]
    assert left_over(tmp_path / "to") == []
    if target == "queue":
        with holdfast.open(tmp_path / "to") as store:
            assert store.queue("y").stats().ready == 100
