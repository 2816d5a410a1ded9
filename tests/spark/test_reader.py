"""What does a read give, and what does it touch? The reader without Spark: columns, shares, filters, options."""

import json
import logging
import random
import tempfile
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    In,
    IsNotNull,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

import holdfast
from holdfast import Flush, InvalidArgument, Message, NotFound, Retention, Roll, Store
from holdfast.base.errors import Corrupt, HoldfastError
from holdfast.log.block import Block
from holdfast.log.log import Log
from holdfast.log.record import Headers
from holdfast.spark.options import ReadOptions
from holdfast.spark.partitions import DataLoss, Wanted, read_stretches
from holdfast.spark.reader import Reader, Share
from holdfast.spark.sources import view_schema
from holdfast.testing import SimClock
from tests.tiers import examples

Row = dict[str, Any]


def reader(path: Path, /, **options: object) -> Reader:
    """A reader as Spark makes one, with the whole schema."""
    given = {"path": str(path), **{name: str(value) for name, value in options.items()}}
    if not {"log", "logs", "logPattern", "queue", "view"} & given.keys():
        given["log"] = "x"
    return Reader(given, from_arrow_schema(view_schema(ReadOptions.of(given))))


def shares(made: Reader) -> list[list[Row]]:
    """The rows of each task."""
    return [[row for batch in made.read(part) for row in batch.to_pylist()] for part in made.partitions()]


def read(path: Path, /, **options: object) -> list[Row]:
    """All rows."""
    return [row for share in shares(reader(path, **options)) for row in share]


def offsets(path: Path, /, **options: object) -> list[int]:
    return [row["offset"] for row in read(path, **options)]


def between(start: int, stop: int) -> Row:
    """The options for these offsets of the log x."""
    return {"startingOffsets": json.dumps({"x": start}), "endingOffsets": json.dumps({"x": stop})}


def bytes_read(made: Reader) -> int:
    """Bytes of the blocks whose payloads were looked at."""
    total = 0
    for part in made.partitions():
        assert isinstance(part, Share)
        wanted = Wanted(keys=made.options.keys)
        for _, stretches in part.work:
            list(read_stretches(stretches, wanted))
        total += wanted.bytes_read
    return total


def as_the_log_says(log: Log) -> list[Row]:
    """The rows that a log's own reading makes."""
    blocks = {block.sequence: block for block in log.blocks()}
    firsts = sorted(blocks)
    found = []
    for record in log.read():
        block = blocks[max(first for first in firsts if first <= record.sequence)]
        at = record.sequence - block.sequence
        headers = [
            {"key": name, "value": value.encode() if isinstance(value, str) else value}
            for name, value in record.headers.items()
        ]
        expiry = number(block, "expiry", at)
        found.append(
            {
                "key": record.key,
                "value": record.payload,
                "topic": log.name,
                "partition": 0,
                "offset": record.sequence,
                "timestamp": moment(record.timestamp),
                "timestampType": 1,
                "headers": headers or None,
                "textHeaders": [name for name, value in record.headers.items() if isinstance(value, str)]
                if headers
                else None,
                "priority": number(block, "priority", at),
                "expiry": moment(expiry) if expiry else None,
                "producer": number(block, "producer", at) or None,
            }
        )
    return found


def number(block: Block, name: str, at: int) -> int:
    column = block.numbers(name) if block.has(name) else None
    return 0 if column is None else int(column[at])


def moment(ns: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=ns // 1000)


ODD_HEADERS: list[Headers | None] = [None, {}, {"text": "\u00fcber", "bytes": b"\xff\x00"}, {"": ""}]


def fill_oddly(log: Log, rng: random.Random, count: int) -> None:
    """Records of every kind, in blocks of one and of many."""
    for number in range(count):
        payload = rng.choice([b"", b"%d" % number, b"%d " % number * 300, rng.randbytes(2000)])
        key = rng.choice([None, b"", b"key %d" % (number % 7)])
        headers = rng.choice(ODD_HEADERS)
        if number % 3:
            log.append(payload, key, headers)
            log.refresh()
        else:
            log.append_many([Message(payload, key, headers), payload, Message(b"", b"k")] * rng.randint(1, 20))


@pytest.mark.parametrize("compression", [None, "gzip", "zstd", "lz4"])
def test_every_column_is_what_the_log_says(tmp_path: Path, compression: str | None) -> None:
    with holdfast.open(tmp_path) as store:
        log = store.log("x", compression=compression, roll=Roll.count(40), index_interval=5)
        fill_oddly(log, random.Random(7), 60)
        expected = as_the_log_says(log)
    assert len(expected) > 200
    assert read(tmp_path, includeHeaders=True) == expected
    assert read(tmp_path, includeHeaders=True, minPartitions=7) == expected


def test_what_queues_put_is_shown_too(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        queue = store.queue("x", dead_letter="x.dead", max_attempts=1)
        queue.put_many([b"plain", b"plain"])
        queue.put_many(
            [Message(b"a", priority=9), b"b", Message(b"c", ttl=3600), Message(b"d", delay=60, dedup="once")]
        )
        for delivery in queue.lease(1):
            delivery.nack("no", delay=0)
        store.tick()
        for name in ("x", "x.dead"):
            expected = as_the_log_says(store.log(name))
            assert read(tmp_path, log=name, includeHeaders=True) == expected
    assert [row["producer"] is None for row in expected] == [False]
    assert [row["priority"] for row in read(tmp_path)] == [0, 0, 9, 0, 0, 0]
    assert [row["expiry"] is None for row in read(tmp_path)] == [True] * 4 + [False, True]


def test_an_empty_log_has_no_rows_and_empty_payloads_are_not_null(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        store.log("x")
        store.log("y").append_many([b"", b"", b""])
    assert read(tmp_path) == []
    assert [row["value"] for row in read(tmp_path, log="y")] == [b""] * 3


def test_dropped_segments_are_not_missed_from_the_earliest_on(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        log = store.log("x", roll=Roll.count(10), flush=Flush.sync())
        for _ in range(5):
            log.append_many([b"p"] * 10)
        log.compact(retention=Retention(max_segments=2))
        assert offsets(tmp_path) == list(range(30, 50))
        log.clear(force=True)
        assert offsets(tmp_path) == []
        log.append(b"next")
        assert offsets(tmp_path) == [50]


def test_a_schema_narrows_and_orders_the_columns(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        store.log("x").append_many([Message(b"v", b"k")] * 3)
    schema = StructType([StructField("offset", LongType()), StructField("key", BinaryType())])
    made = Reader({"path": str(tmp_path), "log": "x"}, schema)
    (batch,) = [batch for part in made.partitions() for batch in made.read(part)]
    assert batch.schema.names == ["offset", "key"]
    assert batch.to_pylist() == [{"offset": number, "key": b"k"} for number in range(3)]
    made = Reader({"path": str(tmp_path), "log": "x", "key": "other"}, schema)
    assert [batch for part in made.partitions() for batch in made.read(part)] == []


@pytest.mark.parametrize(
    ("field", "said"),
    [
        (StructField("amount", LongType()), "this view has no column 'amount'; there are: key, value"),
        (StructField("offset", StringType()), "'offset' has another type in this view: `offset` LONG"),
        (StructField("headers", BinaryType()), "no column 'headers'"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(tmp_path: Path, field: StructField, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said) as caught:
        Reader({"path": str(tmp_path), "log": "x"}, StructType([field]))
    assert "\n" not in str(caught.value)


@given(
    batches=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 400)), max_size=30),
    roll=st.integers(1, 200),
    interval=st.sampled_from([1, 5, 64, 1024]),
    least=st.none() | st.integers(1, 40),
    most=st.none() | st.integers(1, 300),
    bounds=st.tuples(st.integers(0, 1000), st.integers(0, 1000)),
    dropped=st.integers(0, 3),
)
@settings(max_examples=examples(60))
def test_shares_are_all_records_once_and_in_order(
    batches: list[tuple[int, int]],
    roll: int,
    interval: int,
    least: int | None,
    most: int | None,
    bounds: tuple[int, int],
    dropped: int,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        with holdfast.open(path, background=False) as store:
            log = store.log("x", roll=Roll.count(roll), index_interval=interval)
            for count, size in batches:
                log.append_many([b"%d" % size * size] * count)
                log.refresh()
            log.compact(retention=Retention(max_segments=max(1, len(log.segments()) - dropped)))
            start, end = log.start, log.end
        start, stop = (start + bound % (end - start + 1) for bound in sorted(bounds))
        options: dict[str, object] = {
            "startingOffsets": json.dumps({"x": {"0": start}}),
            "endingOffsets": json.dumps({"x": {"0": stop}}),
        }
        if least is not None:
            options["minPartitions"] = least
        if most is not None:
            options["maxRecordsPerPartition"] = most
        found = shares(reader(path, **options))
        assert [row["offset"] for share in found for row in share] == list(range(start, stop))
        assert all(found), "a task has nothing to do"


def test_there_are_as_many_shares_as_were_asked_for_and_about_as_large(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        log = store.log("x", index_interval=10, roll=Roll.size(300_000))
        for _ in range(1000):
            log.append_many([b"x" * 100] * 10)
            log.refresh()  # a block of its own, without the cost of a sync
    for wanted in (1, 2, 3, 8, 50):
        sizes = [len(share) for share in shares(reader(tmp_path, minPartitions=wanted))]
        assert len(sizes) >= wanted
        assert len(sizes) <= wanted * 1.2 + 1
        assert max(sizes) <= 10_000 / wanted * 1.2 + 10
    assert len(shares(reader(tmp_path, maxRecordsPerPartition=500))) >= 20


def test_a_share_does_not_hold_many_more_records_than_it_may(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        log = store.log("x", index_interval=10)
        for number in range(1000):  # most of the bytes are in one hundredth of the records
            log.append_many([b"x" * (9000 if number < 10 else 10)] * 10)
            log.refresh()
    assert max(len(share) for share in shares(reader(tmp_path, maxRecordsPerPartition=1000))) <= 1100


# What narrows a read


class Timeline:
    """A log of ten thousand records over a hundred seconds, in four segments."""

    def __init__(self, path: Path) -> None:
        clock = SimClock()
        with holdfast.open(path, clock=clock, background=False) as store:
            log = store.log("x", roll=Roll.count(2500), index_interval=100)
            for number in range(1000):
                clock.advance(0.1 + 1e-7)
                log.append_many(
                    [Message(b"%05d" % number * 10, b"key %d" % (number // 10) if number % 3 else None)] * 10
                )
                log.refresh()
        self.path = path
        self.rows = read(path)
        assert len(self.rows) == 10_000


@pytest.fixture(scope="module")
def timeline(tmp_path_factory: pytest.TempPathFactory) -> Timeline:
    return Timeline(tmp_path_factory.mktemp("timeline"))


def test_pushed_filters_change_nothing(timeline: Timeline) -> None:
    filters: list[Filter] = [
        EqualTo(("offset",), 3),
        EqualTo(("key",), b"key 5"),
        In(("offset",), (4, 5)),
        GreaterThan(("timestamp",), timeline.rows[5000]["timestamp"]),
        IsNotNull(("key",)),
    ]
    made = reader(timeline.path)
    assert list(made.pushFilters(filters)) == filters  # all of them are left to Spark
    assert [row for share in shares(made) for row in share] == timeline.rows


def test_one_percent_of_the_time_is_read_with_three_percent_of_the_bytes(timeline: Timeline) -> None:
    everything = bytes_read(reader(timeline.path))
    for start in (0, 0.333, 0.5, 0.99):
        first = timeline.rows[int(start * 10_000)]["timestamp"]
        last = first + timedelta(seconds=1)
        made = reader(timeline.path, startingTimestamp=first.isoformat(), endingTimestamp=last.isoformat())
        assert 0 < bytes_read(made) < 0.03 * everything
        wanted = [row for row in timeline.rows if first <= row["timestamp"] < last]
        assert [row for share in shares(made) for row in share] == wanted
        assert 90 <= len(wanted) <= 110


def test_offsets_and_keys_spare_bytes_too(timeline: Timeline) -> None:
    everything = bytes_read(reader(timeline.path))
    assert bytes_read(reader(timeline.path, **between(5000, 5050))) < 0.02 * everything
    assert bytes_read(reader(timeline.path, key="key 50")) < 0.02 * everything
    assert bytes_read(reader(timeline.path, key="no such key")) == 0
    assert bytes_read(reader(timeline.path, startingOffsets="latest")) == 0


def test_the_option_key_chooses_records(timeline: Timeline) -> None:
    for chosen, wanted in (
        ("key 50", {b"key 50"}),
        ('["key 7", "key 8", "none"]', {b"key 7", b"key 8"}),
        ('["key 7", {"base64": "a2V5IDg="}]', {b"key 7", b"key 8"}),
    ):
        expected = [row for row in timeline.rows if row["key"] in wanted]
        assert len(expected) >= 60
        assert read(timeline.path, key=chosen) == expected


# What options choose


@pytest.fixture(scope="module")
def hourly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logs `x` and `y` of ten records, each an hour after the other, the first at one o'clock on 2026-01-01."""
    path = tmp_path_factory.mktemp("hourly")
    clock = SimClock()
    with holdfast.open(path, clock=clock, background=False) as store:
        for number in range(10):
            clock.advance(3600)
            for name in ("x", "y"):
                store.log(name, roll=Roll.count(3)).append(b"%d" % number)
                store.log(name).sync()
    return path


MILLIS = 1_767_225_600_000


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, range(10)),
        ({"startingOffsets": "earliest", "endingOffsets": "latest"}, range(10)),
        ({"startingOffsets": "EARLIEST"}, range(10)),
        ({"startingOffsets": "latest"}, range(0)),
        ({"startingOffsets": '{"x": {"0": 3}}'}, range(3, 10)),
        ({"startingOffsets": '{"x": 3}', "endingOffsets": '{"x": {"0": 7}}'}, range(3, 7)),
        ({"startingOffsets": '{"x": {"0": -2}}', "endingOffsets": '{"x": {"0": -1}}'}, range(10)),
        ({"startingOffsets": '{"x": {"0": -1}}'}, range(0)),
        ({"startingOffsets": '{"x": {"0": 10}}'}, range(0)),
        ({"startingOffsets": '{"x": {"0": 7}}', "endingOffsets": '{"x": {"0": 3}}'}, range(0)),
        ({"startingOffsets": '{"x": {"0": 11}}', "failOnDataLoss": "false"}, range(0)),
        ({"endingOffsets": '{"x": {"0": 99}}', "failOnDataLoss": "false"}, range(10)),
        ({"startingTimestamp": "2026-01-01T03:00:00Z"}, range(2, 10)),
        ({"startingTimestamp": "2026-01-01T03:30:00"}, range(3, 10)),
        ({"startingTimestamp": "2026-01-01T05:30:00+02:00"}, range(3, 10)),
        ({"startingTimestamp": MILLIS + 3 * 3_600_000}, range(2, 10)),
        ({"startingTimestamp": 0}, range(10)),
        ({"startingTimestamp": "2027-01-01"}, range(0)),
        ({"endingTimestamp": "2026-01-01T03:30:00Z"}, range(3)),
        ({"endingTimestamp": "1999-01-01"}, range(0)),
        ({"startingTimestamp": "2026-01-01T03:30:00Z", "endingTimestamp": "2026-01-01T05:30:00Z"}, range(3, 5)),
        ({"startingOffsetsByTimestamp": json.dumps({"x": {"0": MILLIS + 5 * 3_600_000}})}, range(4, 10)),
        ({"endingOffsetsByTimestamp": json.dumps({"x": {"0": MILLIS + 5 * 3_600_000}})}, range(4)),
        ({"startingTimestamp": 0, "startingOffsets": "latest"}, range(10)),  # as with Kafka, a time goes first
    ],
)
def test_starts_and_ends(hourly: Path, options: dict[str, Any], expected: range) -> None:
    assert offsets(hourly, **options) == list(expected)


def test_options_do_not_mind_case(hourly: Path) -> None:
    assert offsets(hourly, STARTINGOFFSETS='{"x": 8}') == [8, 9]


@pytest.mark.parametrize("how", [{"logs": "x, y"}, {"logPattern": "*"}, {"logPattern": "[xy]"}])
def test_several_logs_are_read_at_once(hourly: Path, how: dict[str, str]) -> None:
    found = read(hourly, **how)
    assert [(row["topic"], row["offset"]) for row in found] == [(name, n) for name in "xy" for n in range(10)]
    found = read(hourly, **how, startingOffsets='{"x": {"0": 9}, "y": {"0": 8}}')
    assert [(row["topic"], row["offset"]) for row in found] == [("x", 9), ("y", 8), ("y", 9)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"log": "z"}, "there is no log 'z' in .*; there are: 'x', 'y'"),
        ({"logs": "x,z"}, "there is no log 'z'"),
        ({"logs": "x,x"}, "name twice|names a log twice"),
        ({"logs": "x,,y"}, "log name must not be empty"),
        ({"logPattern": "z*"}, "no log in .* matches 'z\\*'; there are: 'x', 'y'"),
        ({"log": "x", "logs": "y"}, "give one of the options"),
        ({"log": "x", "queue": "x", "view": "messages"}, "either the option 'queue' or the option 'log'"),
        ({"queue": "x"}, "'queue' needs the option 'view'"),
        ({"queue": "x", "view": "list"}, "'view' must be one of messages, lifecycle, not 'list'"),
        ({"queue": "none", "view": "messages"}, "there is no queue 'none'"),
        ({"view": "messages"}, "'view' needs the option 'queue'"),
        ({"logs": "x,y", "startingOffsets": '{"x": 3}'}, "has no offset for 'y'"),
        ({"startingOffsets": '{"x": 3, "z": 4}'}, "'z'"),
        ({"startingOffsets": '{"x": 11}'}, "ends at 10, before the offset 11"),
        ({"startingOffsets": '{"x": -3}'}, "'startingOffsets' takes"),
        ({"startingOffsets": '{"x": {"1": 3}}'}, "'startingOffsets' takes"),
        ({"startingOffsets": '{"x": {"0": true}}'}, "'startingOffsets' takes"),
        ({"startingOffsets": '{"x": "3"}'}, "'startingOffsets' takes"),
        ({"startingOffsets": "first"}, "'startingOffsets' takes"),
        ({"startingOffsets": "[3]"}, "'startingOffsets' takes"),
        ({"endingOffsets": "earliest"}, "cannot be earliest"),
        ({"endingOffsets": "3"}, "'endingOffsets' takes"),
        ({"startingTimestamp": "yesterday"}, "'startingTimestamp' takes milliseconds"),
        ({"endingTimestamp": ""}, "'endingTimestamp' takes milliseconds"),
        ({"startingOffsetsByTimestamp": "5"}, "'startingOffsetsByTimestamp' takes JSON"),
        ({"failOnDataLoss": "perhaps"}, "'failOnDataLoss' takes true or false, not 'perhaps'"),
        ({"includeHeaders": "1"}, "'includeHeaders' takes true or false"),
        ({"minPartitions": "0"}, "'minPartitions' takes a whole number from 1 up, not '0'"),
        ({"maxOffsetsPerTrigger": "many"}, "'maxOffsetsPerTrigger' takes a whole number"),
        ({"minOffsetsPerTrigger": "-1"}, "'minOffsetsPerTrigger' takes a whole number"),
        ({"maxBytesPerTrigger": "1.5"}, "'maxBytesPerTrigger' takes a whole number"),
        ({"maxRecordsPerPartition": ""}, "'maxRecordsPerPartition' takes a whole number"),
        ({"maxTriggerDelay": "soon"}, "'maxTriggerDelay' takes seconds"),
        ({"maxTriggerDelay": "-5"}, "'maxTriggerDelay' takes seconds"),
        ({"maxTriggerDelay": "nan"}, "'maxTriggerDelay' takes seconds"),
        ({"onDamage": "ignore"}, "'onDamage' takes fail or skip"),
        ({"name": ""}, "stream name must not be empty"),
        ({"log": ""}, "log name must not be empty"),
        ({"path": ""}, "'path' is missing"),
        ({"subscribe": "x"}, "'subscribe' is one of Spark's Kafka source"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(hourly: Path, options: dict[str, str], said: str) -> None:
    with pytest.raises(HoldfastError, match=said) as caught:
        read(hourly, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["1.5s", "1500ms", "1.5", "0.025m", " 1.5 s "])
def test_a_delay_may_have_a_unit(text: str) -> None:
    assert ReadOptions.of({"path": "data", "log": "x", "maxTriggerDelay": text}).max_delay == 1.5


def test_a_path_may_be_an_address_of_a_file(hourly: Path) -> None:
    for form in (f"file://{hourly}", f"file:{hourly}"):
        assert ReadOptions.of({"path": form, "log": "x"}).path == hourly


def test_dropped_records_that_are_asked_for_are_an_error(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        log = store.log("x", roll=Roll.count(10), flush=Flush.sync())
        for _ in range(5):
            log.append_many([b"p"] * 10)
        log.compact(retention=Retention(max_segments=2))
    with pytest.raises(DataLoss, match="records 5 to 29 of 'x' were dropped by retention"):
        read(tmp_path, startingOffsets='{"x": 5}')
    assert offsets(tmp_path, startingOffsets='{"x": 5}', failOnDataLoss=False) == list(range(30, 50))


def test_a_segment_that_goes_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        log = store.log("x", roll=Roll.count(10), flush=Flush.sync())
        for _ in range(5):
            log.append_many([b"p"] * 10)
        for fail in (True, False):
            made = reader(tmp_path, failOnDataLoss=fail, minPartitions=5)
            parts = made.partitions()
            log.compact(retention=Retention(max_segments=len(log.segments()) - 1))
            if fail:
                with pytest.raises(DataLoss, match="records 0 to 9 was dropped by retention while it was being read"):
                    [list(made.read(part)) for part in parts]
            else:
                found = [row["offset"] for part in parts for batch in made.read(part) for row in batch.to_pylist()]
                assert found == list(range(20, 50))


# Damage


def hit(path: Path, find: bytes, number: int = 0, at: int = 0) -> None:
    """Flip a bit of the `number`-th place in the first segment where these bytes stand."""
    segment = min((path / "logs" / "x").rglob("*.data"))
    content = bytearray(segment.read_bytes())
    place = -1
    for _ in range(number + 1):
        place = content.index(find, place + 1)
    content[place + at] ^= 1
    segment.write_bytes(content)


@pytest.fixture
def fifty(tmp_path: Path) -> Path:
    """Five blocks of ten records."""
    with holdfast.open(tmp_path) as store:
        log = store.log("x", index_interval=10)
        for block in range(5):
            log.append_many([b"payload %d" % (10 * block + number) for number in range(10)])
            log.sync()
    return tmp_path


DAMAGES: list[tuple[tuple[bytes, int, int], range]] = [
    ((b"payload 23", 0, 0), range(23, 24)),
    ((b"HFB\x01", 2, 20), range(20, 30)),  # a block's header
    ((b"HFB\x01", 2, 70), range(20, 30)),  # its columns
]


@pytest.mark.parametrize(("where", "lost"), DAMAGES)
def test_damage_fails_a_read_unless_it_is_to_be_skipped(
    fifty: Path, where: tuple[bytes, int, int], lost: range, caplog: pytest.LogCaptureFixture
) -> None:
    hit(fifty, *where)
    with pytest.raises(Corrupt, match="onDamage=skip"):
        read(fifty)
    left = [number for number in range(50) if number not in lost]
    for tasks in (1, 5):
        report = fifty / f"report {tasks}"
        caplog.clear()
        with caplog.at_level(logging.WARNING, "holdfast.spark"):
            assert offsets(fifty, onDamage="skip", damageReport=report, minPartitions=tasks) == left
        lines = [json.loads(line) for file in report.iterdir() for line in file.read_text().splitlines()]
        assert [(line["first_lost"], line["lost"]) for line in lines] == [(lost.start, len(lost))]
        assert lines[0]["path"].endswith(".data")
        assert f"damage skipped: places=1 records={len(lost)}" in caplog.text


@pytest.mark.parametrize(("where", "lost"), DAMAGES)
def test_damage_that_is_not_asked_for_does_no_harm(fifty: Path, where: tuple[bytes, int, int], lost: range) -> None:
    hit(fifty, *where)
    ends = {"startingOffsets": json.dumps({"x": lost.stop}), "endingOffsets": json.dumps({"x": lost.start})}
    assert offsets(fifty, startingOffsets=ends["startingOffsets"]) == list(range(lost.stop, 50))
    assert offsets(fifty, endingOffsets=ends["endingOffsets"]) == list(range(lost.start))
    assert offsets(fifty, **between(0, lost.start)) == list(range(lost.start))


def test_a_damaged_index_costs_nothing_but_time(fifty: Path) -> None:
    index = min((fifty / "logs" / "x").rglob("*.index"))
    content = bytearray(index.read_bytes())
    for at in range(64, len(content), 32):
        content[at] ^= 1
    index.write_bytes(content)
    assert offsets(fifty, minPartitions=5) == list(range(50))
    index.unlink()
    assert offsets(fifty, **between(31, 50), minPartitions=5) == list(range(31, 50))


def test_a_filter_by_time_does_not_hide_damage(tmp_path: Path) -> None:
    clock = SimClock()
    times = []
    with holdfast.open(tmp_path, clock=clock, background=False) as store:
        log = store.log("x", index_interval=1)
        for _ in range(3):
            log.append(b"first")
            clock.advance(10)
            log.append(b"second")  # in the same block, ten seconds later
            log.sync()
            clock.advance(10)
        times = [record.timestamp for record in log.read()]
    hit(tmp_path, b"HFB\x01", 1, 70)
    since = moment(times[2]) + timedelta(seconds=5)  # the block that is hit holds the first record of this time
    with pytest.raises(Corrupt):
        read(tmp_path, startingTimestamp=since.isoformat())


def queue_of(store: Store, numbers: Iterable[int]) -> None:
    queue = store.queue("jobs", max_attempts=1)
    queue.put_many([b"%d" % number for number in numbers])
    for delivery in queue.lease(6):
        if delivery.id % 2:
            delivery.nack("no", delay=0)
        else:
            delivery.ack()


def test_the_views_of_a_queue_agree_with_it(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        queue_of(store, range(20))
        store.tick()
        stats = store.queue("jobs").stats()
    states = [row["state"] for row in read(tmp_path, queue="jobs", view="messages")]
    assert states.count("ready") == stats.ready == 14
    assert len(states) - states.count("acked") - states.count("dead") == stats.ready + stats.leased + stats.delayed
    events = [row["event"] for row in read(tmp_path, queue="jobs", view="lifecycle")]
    assert (events.count("put"), events.count("leased"), events.count("acked")) == (20, 6, stats.total_acked)


def test_a_log_that_is_not_there_says_what_is(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no store"):
        read(tmp_path)
    with pytest.raises(NotFound, match="no store"):
        read(tmp_path / "nowhere")
    holdfast.open(tmp_path).close()
    with pytest.raises(NotFound, match=r"there is no log 'x' in .*; there are: none"):
        read(tmp_path)
