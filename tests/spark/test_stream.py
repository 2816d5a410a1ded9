"""Does a stream get each record once, in batches as large as it may, and fail loudly when it cannot?"""

import json
import random
import shutil
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows
from pyspark.sql.streaming.query import StreamingQuery

import holdfast
from holdfast import Flush, InvalidArgument, NotFound, Retention, Roll
from holdfast.log.log import Log
from holdfast.spark.options import ReadOptions
from holdfast.spark.partitions import DataLoss
from holdfast.spark.sources import view_schema
from holdfast.spark.stream import Offsets, StreamReader
from holdfast.testing import SimClock


def stream(path: Path, /, **options: object) -> StreamReader:
    """A reader as Spark makes one; from the earliest record on, unless it is told otherwise."""
    given = {"path": str(path), **{name: str(value) for name, value in options.items()}}
    if not {"log", "logs", "logPattern", "queue"} & given.keys():
        given["log"] = "x"
    if not {"startingOffsets", "startingTimestamp"} & given.keys():
        given["startingOffsets"] = "earliest"
    return StreamReader(given, from_arrow_schema(view_schema(ReadOptions.of(given))))


def rows(reader: StreamReader, start: Offsets, end: Offsets) -> list[tuple[str, int]]:
    """The records of a batch, as Spark's tasks would read them."""
    return [
        (row["topic"], row["offset"])
        for part in reader.partitions(start, end)
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]


def batches(reader: StreamReader, start: Offsets | None = None) -> Iterator[list[tuple[str, int]]]:
    """Batch after batch until there is nothing more."""
    start = reader.initialOffset() if start is None else start
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        end = json.loads(json.dumps(end))  # as it comes back from a checkpoint
        yield rows(reader, start, end)
        reader.commit(end)
        start = end


def all_of(found: Iterable[list[tuple[str, int]]]) -> list[tuple[str, int]]:
    return [one for batch in found for one in batch]


def numbers(found: list[tuple[str, int]]) -> list[int]:
    return [offset for _, offset in found]


def fill(log: Log, count: int, block: int = 10, size: int = 20) -> None:
    """So many records in blocks of so many, on disk."""
    for _ in range(count // block):
        log.append_many([b"x" * size] * block)
        log.refresh()
    log.sync()


@contextmanager
def written(path: Path, count: int, **settings: Any) -> Iterator[Log]:
    with holdfast.open(path) as store:
        log = store.log("x", **{"roll": Roll.count(20), "index_interval": 10, **settings})
        fill(log, count)
        yield log


@pytest.fixture
def hundred(tmp_path: Path) -> Path:
    """A hundred records in ten blocks and five segments; nobody has the store open."""
    with written(tmp_path / "data", 100):
        pass
    return tmp_path / "data"


# Where it begins


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"startingOffsets": "earliest"}, 0),
        ({"startingOffsets": "latest"}, 100),
        ({"startingOffsets": '{"x": {"0": 33}}'}, 33),
        ({"startingOffsets": '{"x": {"0": -1}}'}, 100),
        ({"startingTimestamp": "2000-01-01T00:00:00Z"}, 0),
        ({"startingTimestamp": "2100-01-01T00:00:00Z"}, 100),
    ],
)
def test_a_stream_begins_where_it_is_told(hundred: Path, options: dict[str, str], first: int) -> None:
    assert numbers(all_of(batches(stream(hundred, **options)))) == list(range(first, 100))


def test_a_stream_that_begins_at_a_time_without_a_zone_says_that_it_needs_one(hundred: Path) -> None:
    with pytest.raises(InvalidArgument, match="needs a time zone, as in 2026-01-31T12:00:00Z"):
        stream(hundred, startingTimestamp="2026-01-31T12:00:00").initialOffset()


@pytest.mark.parametrize("when", ["2100-01-01T00:00:00", "2100-01-01T00:00:00Z"])
def test_a_stream_that_goes_on_reads_all_whatever_starting_time_it_is_given(hundred: Path, when: str) -> None:
    begun = stream(hundred).initialOffset()
    assert numbers(all_of(batches(stream(hundred, startingTimestamp=when), begun))) == list(range(100))


def test_without_a_word_it_begins_at_the_end(hundred: Path) -> None:
    given = {"path": str(hundred), "log": "x"}
    reader = StreamReader(given, from_arrow_schema(view_schema(ReadOptions.of(given))))
    assert reader.initialOffset()["x"]["0"] == 100


def test_a_checkpoint_of_another_source_is_refused(hundred: Path) -> None:
    given = {"path": str(hundred), "log": "x"}
    reader = StreamReader(given, from_arrow_schema(view_schema(ReadOptions.of(given))))
    kafka = {"x": {"0": 4, "1": 7}}
    for call in (lambda: reader.latestOffset(kafka, ReadAllAvailable()), lambda: reader.partitions(kafka, kafka)):
        with pytest.raises(Exception, match="another checkpoint"):
            call()


def begin(reader: StreamReader) -> list[Callable[[], object]]:
    """What Spark may ask first: of a new stream, of one with a checkpoint, of one that ends by itself."""
    offset = {"x": {"0": 0, "id": "0" * 32}}
    return [
        reader.initialOffset,
        lambda: reader.latestOffset(offset, ReadAllAvailable()),
        lambda: reader.partitions(offset, offset),
        reader.prepareForTriggerAvailableNow,
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endingOffsets": "latest"}, "'endingOffsets' is for batches"),
        ({"endingTimestamp": "2026-01-01"}, "'endingTimestamp' is for batches"),
        ({"endingOffsetsByTimestamp": '{"x": 5}'}, "'endingOffsetsByTimestamp' is for batches"),
        ({"queue": "q", "view": "messages"}, "stream the view 'lifecycle'"),
        ({"log": "none"}, "there is no log 'none'"),
    ],
)
def test_what_is_no_stream_is_refused(hundred: Path, options: dict[str, str], said: str) -> None:
    with holdfast.open(hundred) as store:
        store.queue("q")
    for number in range(4):
        with pytest.raises((InvalidArgument, NotFound), match=said):
            begin(stream(hundred, **options))[number]()


def test_a_stream_has_a_name_that_can_be_kept(hundred: Path) -> None:
    with pytest.raises(InvalidArgument, match="stream name"):
        stream(hundred, name="n" * 256)
    names = ["short", "../a b/\u00fc", "n" * 254 + "1", "n" * 254 + "2"]
    for name in names:
        read_up_to(hundred, name=name)[0].stop()
    with holdfast.open(hundred) as store:
        kept = {tailer.name for tailer in store.log("x").stats().tailers}
    assert kept >= {"spark:short", "spark:../a b/\u00fc"}
    assert len(kept) == len(names), "two streams share a place"


# How large a batch is


def test_a_batch_has_at_most_so_many_records(hundred: Path) -> None:
    reader = stream(hundred, maxOffsetsPerTrigger=7)
    assert isinstance(reader.getDefaultReadLimit(), ReadMaxRows)
    found = list(batches(reader))
    assert [len(batch) for batch in found] == [7] * 14 + [2]
    assert numbers(all_of(found)) == list(range(100))


@pytest.mark.parametrize("limit", [1, 2, 3, 10, 299, 300, 1000])
def test_no_log_starves_another(tmp_path: Path, limit: int) -> None:
    with holdfast.open(tmp_path) as store:
        for name, count in (("a", 200), ("b", 10), ("c", 90), ("d", 0)):
            fill(store.log(name), count)
    found = list(batches(stream(tmp_path, logs="a,b,c,d", maxOffsetsPerTrigger=limit)))
    assert all(len(batch) <= limit for batch in found)
    assert sorted(all_of(found)) == sorted(
        [(n, i) for n, count in (("a", 200), ("b", 10), ("c", 90)) for i in range(count)]
    )
    if limit >= 10:
        assert {name for name, _ in found[0]} == {"a", "b", "c"}


def test_a_batch_has_about_so_many_bytes(tmp_path: Path) -> None:
    with written(tmp_path, 2000, roll=Roll.count(500)) as log:
        total = log.stats().bytes
    reader = stream(tmp_path, maxBytesPerTrigger=total // 10)
    assert isinstance(reader.getDefaultReadLimit(), ReadMaxBytes)
    found = list(batches(reader))
    assert numbers(all_of(found)) == list(range(2000))
    assert 9 <= len(found) <= 13
    assert max(map(len, found)) <= 220


def test_a_batch_of_one_byte_gets_on_and_searches_little(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with holdfast.open(tmp_path) as store:
        fill(store.log("x", index_interval=10), 2000, size=2000)
    searches = [0]

    def counted(positions: range, wanted: int, *, key: Callable[[int], int]) -> int:
        def noted(position: int) -> int:
            searches[0] += 1
            return key(position)

        return bisect_right(positions, wanted, key=noted)

    monkeypatch.setattr("holdfast.log.index.bisect_right", counted)
    reader = stream(tmp_path, maxBytesPerTrigger=1)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert 0 < end["x"]["0"] <= 20
    assert searches[0] < 1000
    assert numbers(rows(reader, start, end)) == list(range(end["x"]["0"]))


def test_a_batch_waits_until_there_is_enough_or_it_took_too_long(hundred: Path) -> None:
    reader = stream(hundred, minOffsetsPerTrigger=101, maxTriggerDelay="1h")
    assert isinstance(reader.getDefaultReadLimit(), ReadMinRows)
    assert list(batches(reader)) == []
    assert [len(batch) for batch in batches(stream(hundred, minOffsetsPerTrigger=100, maxTriggerDelay="1h"))] == [100]
    assert [len(batch) for batch in batches(stream(hundred, minOffsetsPerTrigger=101, maxTriggerDelay="0"))] == [100]
    both = stream(hundred, minOffsetsPerTrigger=30, maxOffsetsPerTrigger=40, maxTriggerDelay="1h")
    assert [len(batch) for batch in batches(both)] == [40, 40]
    now = stream(hundred, minOffsetsPerTrigger=101, maxTriggerDelay="1h")
    now.prepareForTriggerAvailableNow()
    assert [len(batch) for batch in batches(now)] == [100]


def test_available_now_ends_where_it_ended_when_it_began(tmp_path: Path) -> None:
    with written(tmp_path, 100) as log:
        reader = stream(tmp_path, logPattern="*", maxOffsetsPerTrigger=30)
        reader.prepareForTriggerAvailableNow()
        found = []
        for batch in batches(reader):
            found += batch
            fill(log, 10)
        assert numbers(found) == list(range(100))
        assert reader.reportLatestOffset()["x"]["0"] == 140
        assert numbers(all_of(batches(stream(tmp_path)))) == list(range(140))


def test_a_batch_is_always_the_same_rows(tmp_path: Path) -> None:
    rng = random.Random(5)
    with written(tmp_path, 100) as log:
        start = stream(tmp_path).initialOffset()
        for _ in range(10):
            reader = stream(tmp_path, maxOffsetsPerTrigger=rng.randint(1, 40), minPartitions=rng.randint(1, 5))
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            first = rows(reader, start, end)
            fill(log, 20)
            assert rows(reader, start, end) == first
            assert rows(stream(tmp_path, minPartitions=3), start, end) == first
            assert numbers(first) == list(range(start["x"]["0"], end["x"]["0"]))
            start = end


@pytest.mark.parametrize("flush", [Flush.async_(), Flush.batch(bytes=1 << 20, interval=3600)])
def test_only_what_is_durable_is_shown(tmp_path: Path, flush: Flush) -> None:
    with holdfast.open(tmp_path, background=False) as store:
        log = store.log("x", flush=flush)
        reader = stream(tmp_path)
        start = reader.initialOffset()
        log.append_many([b"gathered"] * 10)
        log.refresh()  # written, visible, and not on disk
        with holdfast.open(tmp_path, read_only=True) as other:
            assert other.log("x").end == 10
        for known in (reader, stream(tmp_path)):
            assert known.latestOffset(start, ReadAllAvailable())["x"]["0"] == 0
        log.sync()
        for known in (reader, stream(tmp_path)):
            assert known.latestOffset(start, ReadAllAvailable())["x"]["0"] == 10


# Its place among the readers of the log


def test_a_stream_with_a_name_holds_retention_back(tmp_path: Path) -> None:
    with written(tmp_path, 100) as log:
        reader = stream(tmp_path, name="report", maxOffsetsPerTrigger=30)
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        (tailer,) = log.stats().tailers
        assert (tailer.name, tailer.position, tailer.lag) == ("spark:report", 0, 100)
        assert log.compact(retention=Retention(max_segments=1)) == 0
        assert numbers(rows(reader, start, end)) == list(range(30))
        reader.commit(end)
        (tailer,) = log.stats().tailers
        assert (tailer.position, tailer.lag) == (30, 70)
        assert log.compact(retention=Retention(max_segments=1)) == 1
        assert numbers(all_of(batches(reader, end))) == list(range(30, 100))
        assert log.compact(retention=Retention(max_segments=1)) == 3


def test_a_stream_with_a_name_has_no_lag_when_all_is_read(tmp_path: Path) -> None:
    with written(tmp_path, 100) as log:
        reader = stream(tmp_path, name="report", maxOffsetsPerTrigger=30)
        reader.prepareForTriggerAvailableNow()
        done: list[Offsets] = [reader.initialOffset()]
        # As Spark does it: a batch is committed when the next one is planned, so that the last one never is.
        while (end := reader.latestOffset(done[-1], reader.getDefaultReadLimit())) != done[-1]:
            (tailer,) = log.stats().tailers
            assert tailer.position == done[-1]["x"]["0"]
            if len(done) > 1:
                reader.commit(done[-2])
            assert log.stats().tailers[0].position == tailer.position  # it does not move back
            rows(reader, done[-1], end)
            done.append(end)
        assert len(done) == 5
        (tailer,) = log.stats().tailers
        assert (tailer.position, tailer.lag) == (100, 0)


def test_a_stream_that_begins_again_moves_its_position_back(tmp_path: Path) -> None:
    with written(tmp_path, 100) as log:
        for _ in range(2):
            reader = stream(tmp_path, name="report")
            start = reader.initialOffset()
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            assert log.stats().tailers[0].position == 0  # also the second time: another checkpoint, from the start
            assert reader.latestOffset(end, reader.getDefaultReadLimit()) == end
            assert log.stats().tailers[0].position == 100


def test_without_a_name_nothing_is_kept(hundred: Path) -> None:
    list(batches(stream(hundred)))
    with holdfast.open(hundred) as store:
        assert store.log("x").stats().tailers == []


# What must not pass in silence


def read_up_to(path: Path, **options: object) -> tuple[StreamReader, Offsets]:
    """A stream that has read all there is."""
    reader = stream(path, **options)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    rows(reader, start, end)
    return reader, end


def restarted(path: Path, **options: object) -> StreamReader:
    return stream(path, **options)


def available_now(path: Path, **options: object) -> StreamReader:
    reader = stream(path, **options)
    reader.prepareForTriggerAvailableNow()
    return reader


@pytest.mark.parametrize("how", [None, restarted, available_now])
@pytest.mark.parametrize("count", [50, 100, 200])
def test_a_log_that_was_made_anew_is_an_error(
    hundred: Path, how: Callable[[Path], StreamReader] | None, count: int
) -> None:
    reader, end = read_up_to(hundred)
    shutil.rmtree(hundred / "logs" / "x")
    with written(hundred, count):
        pass
    reader = reader if how is None else how(hundred)
    with pytest.raises(DataLoss, match=r"'x' was deleted and recreated .* new checkpoint"):
        rows(reader, end, reader.latestOffset(end, ReadAllAvailable()))


@pytest.mark.parametrize("how", [None, restarted, available_now])
def test_a_log_that_goes_back_is_an_error(hundred: Path, how: Callable[[Path], StreamReader] | None) -> None:
    backup = hundred.parent / "backup"
    shutil.copytree(hundred, backup)
    with written(hundred, 50):
        pass
    reader, end = read_up_to(hundred)
    assert end["x"]["0"] == 150
    shutil.rmtree(hundred)
    shutil.copytree(backup, hundred)
    reader = reader if how is None else how(hundred)
    with pytest.raises(DataLoss, match=r"'x' ends at 100, but this query has read up to 150: .* new checkpoint"):
        reader.latestOffset(end, ReadAllAvailable())
    with pytest.raises(DataLoss, match="'x' ends at 100, before 150"):
        reader.partitions({"x": {**end["x"], "0": 50}}, end)


@pytest.mark.parametrize("how", [None, restarted, available_now])
def test_a_log_that_is_gone_is_an_error(hundred: Path, how: Callable[..., StreamReader] | None) -> None:
    with holdfast.open(hundred) as store:
        store.log("y").append(b"stays")
    reader, end = read_up_to(hundred, logPattern="*")
    shutil.rmtree(hundred / "logs" / "x")
    with pytest.raises((DataLoss, NotFound), match=r"'x'.*(is gone|no longer exists|was deleted)"):
        reader = reader if how is None else how(hundred, logPattern="*")
        reader.latestOffset(end, ReadAllAvailable())


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("fail", [True, False])
def test_what_retention_took_before_it_was_read_is_an_error(tmp_path: Path, again: bool, fail: bool) -> None:
    with written(tmp_path, 100) as log:
        reader = stream(tmp_path, failOnDataLoss=fail)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        log.compact(retention=Retention(max_segments=2))
        fill(log, 30)  # rolls, so that readers look at the segments anew
        reader = stream(tmp_path, failOnDataLoss=fail) if again else reader
        if fail:
            with pytest.raises(DataLoss, match=r"records 0 to 59 .* failOnDataLoss=false"):
                rows(reader, start, end)
        else:
            assert numbers(rows(reader, start, end)) == list(range(60, 100))


def test_what_retention_took_between_the_plan_and_the_tasks_is_an_error(tmp_path: Path) -> None:
    with written(tmp_path, 100) as log:
        reader = stream(tmp_path)
        start = reader.initialOffset()
        parts = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
        log.compact(retention=Retention(max_segments=2))
        with pytest.raises(DataLoss, match="dropped by retention while it was being read"):
            [list(reader.read(part)) for part in parts]


# Logs that come


def test_new_logs_that_fit_are_picked_up(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        fill(store.log("click.a"), 10)
        reader = stream(tmp_path, logPattern="click.*", name="n", startingOffsets="latest")
        start = reader.initialOffset()
        assert start.keys() == {"click.a"}
        fill(store.log("click.b"), 20)
        fill(store.log("other"), 20)
        fill(store.log("click.a"), 10)
        end = reader.latestOffset(start, ReadAllAvailable())
        expected = [("click.a", n) for n in range(10, 20)] + [("click.b", n) for n in range(20)]
        assert sorted(rows(reader, start, end)) == expected
        again = stream(tmp_path, logPattern="click.*")
        assert sorted(rows(again, start, json.loads(json.dumps(end)))) == expected
        assert {tailer.name for tailer in store.log("click.b").stats().tailers} == {"spark:n"}
        assert list(batches(reader, end)) == []


def test_a_new_log_is_the_same_rows_when_its_first_batch_comes_again(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        fill(store.log("a"), 10)
        reader = stream(tmp_path, logPattern="*")
        start = reader.initialOffset()
        new = store.log("b", roll=Roll.count(20))
        fill(new, 100)
        new.compact(retention=Retention(max_segments=4))  # before anybody saw it
        end = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
        assert numbers(rows(reader, start, end)) == [*range(10), *range(20, 100)]
        new.compact(retention=Retention(max_segments=2))
        with pytest.raises(DataLoss, match="records 20 to 59"):
            rows(stream(tmp_path, logPattern="*"), start, end)


def test_a_stream_waits_for_a_log_that_is_empty(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        log = store.log("x")
        reader = stream(tmp_path)
        start = reader.initialOffset()
        assert list(batches(reader, start)) == []
        fill(log, 10)
        assert numbers(all_of(batches(reader, start))) == list(range(10))


def test_the_life_of_messages_is_a_stream(tmp_path: Path) -> None:
    clock = SimClock()
    with holdfast.open(tmp_path, clock=clock, background=False) as store:
        queue = store.queue("jobs")
        given = {"path": str(tmp_path), "queue": "jobs", "view": "lifecycle", "startingOffsets": "earliest"}
        reader = StreamReader(given, from_arrow_schema(view_schema(ReadOptions.of(given))))
        start = reader.initialOffset()
        found: list[str] = []
        for number in range(5):
            queue.put(b"%d" % number)
            for delivery in queue.lease(1):
                delivery.ack()
            end = reader.latestOffset(start, ReadAllAvailable())
            parts = reader.partitions(start, end)
            found += [row["event"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
            start = end
    assert [found.count(event) for event in ("put", "leased", "acked")] == [5, 5, 5]


# With Spark


def follow(spark: SparkSession, path: Path, **options: object) -> DataFrame:
    reader = spark.readStream.format("holdfast").option("path", str(path)).option("startingOffsets", "earliest")
    for name, value in {"log": "x", **options}.items():
        reader = reader.option(name, str(value))
    return reader.load()


class Collected:
    """Runs a stream to its present end, and keeps what each batch held."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.batches: dict[int, list[int]] = {}

    def run(self, frame: DataFrame) -> StreamingQuery:
        query = (
            frame.writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return query

    def _take(self, frame: DataFrame, batch: int) -> None:
        self.batches[batch] = [row[0] for row in frame.select("offset").collect()]


def test_spark_runs_it_in_batches_and_goes_on_from_the_checkpoint(
    spark: SparkSession, hundred: Path, tmp_path: Path
) -> None:
    collected = Collected(tmp_path / "checkpoint")
    frame = follow(spark, hundred, maxOffsetsPerTrigger=40, name="shown")
    query = collected.run(frame)
    assert list(collected.batches.values()) == [list(range(40)), list(range(40, 80)), list(range(80, 100))]
    assert [progress.numInputRows for progress in query.recentProgress if progress.numInputRows] == [40, 40, 20]
    with written(hundred, 10) as log:
        collected.run(frame)
        assert [n for batch in collected.batches.values() for n in batch] == list(range(110))
        (tailer,) = log.stats().tailers
        assert tailer.name == "spark:shown"
        assert (tailer.position, tailer.lag) == (110, 0)


def test_spark_repeats_a_batch_as_it_was(spark: SparkSession, hundred: Path, tmp_path: Path) -> None:
    collected = Collected(tmp_path / "checkpoint")
    collected.run(follow(spark, hundred, maxOffsetsPerTrigger=70))
    last = collected.batches.pop(1)
    for name in ("1", ".1.crc"):
        (tmp_path / "checkpoint" / "commits" / name).unlink()
    with written(hundred, 50):
        pass
    collected.run(follow(spark, hundred))
    assert collected.batches[1] == last
    assert [n for batch in collected.batches.values() for n in batch] == list(range(150))
