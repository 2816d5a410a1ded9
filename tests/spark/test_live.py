"""Can Spark follow a log while another process writes it, rolls it, drops its beginning, and is killed?"""

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import holdfast
from holdfast.base.files import SystemFiles
from holdfast.log.watermark import read_watermark

PATIENCE_S = 180
WRITER = """
import random, sys, time
import holdfast
from holdfast import Flush, Retention, Roll

folder, mode, generation, stop = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
flush = {"sync": Flush.sync(), "batch": Flush.batch(bytes=4096, interval=0.02), "async": Flush.async_()}[mode]
rng = random.Random(generation)
with holdfast.open(folder) as store:
    log = store.log("x", flush=flush, roll=Roll.count(60), retention=Retention(max_segments=3), index_interval=16)
    first = log.end
    print(first, flush=True)
    while log.end < first + stop:
        end = log.end
        count = min(rng.randint(1, 8), first + stop - end)
        log.append_many([b"%d of %d" % (sequence, generation) for sequence in range(end, end + count)])
        time.sleep(rng.uniform(0, 0.02))
        if rng.random() < 0.05:
            log.compact()
print("closed", flush=True)
"""


class Writer:
    """A process that appends to the log; each record says its sequence and which process wrote it."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.folder = folder
        self.mode = mode
        self.generation = 0
        self.process: subprocess.Popen[str]

    def start(self, records: int = 1_000_000) -> int:
        """Begin, and tell at which sequence."""
        self.generation += 1
        words = [str(self.folder), self.mode, str(self.generation), str(records)]
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        assert first.strip().isdigit(), self.process.communicate()[1]
        return int(first)

    def kill(self) -> None:
        """SIGKILL: what it had not handed to the operating system is gone."""
        self.process.kill()
        self.process.communicate(timeout=30)

    def end(self) -> None:
        """Wait until it has written all it was to write, and has closed the store."""
        said, errors = self.process.communicate(timeout=PATIENCE_S)
        assert said.strip() == "closed", errors


class Shown:
    """What a stream has shown so far, and what was durable then."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "logs" / "x"
        self.records: list[tuple[int, bytes]] = []
        self.too_early: list[tuple[int, int]] = []

    def take(self, frame: DataFrame, _: int) -> None:
        rows = [(row.offset, bytes(row.value)) for row in frame.select("offset", "value").collect()]
        # Asked after the batch was read, so that it can only be further than when the batch was planned.
        mark = read_watermark(SystemFiles(), self.log)
        if rows and mark is not None and rows[-1][0] >= mark.durable_end:
            self.too_early.append((rows[-1][0], mark.durable_end))
        self.records += rows


@contextmanager
def streaming(spark: SparkSession, folder: Path, checkpoint: Path, shown: Shown) -> Iterator[StreamingQuery]:
    """A stream that runs as fast as it can."""
    reader = spark.readStream.format("holdfast").option("path", str(folder)).option("log", "x").option("name", "live")
    frame = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 200).load()
    query = frame.writeStream.foreachBatch(shown.take).option("checkpointLocation", str(checkpoint)).start()
    try:
        yield query
    finally:
        query.stop()


def wait_until(done: Callable[[], bool], query: StreamingQuery) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert query.isActive, query.exception()
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["sync", "batch", "async"])
def test_a_stream_follows_a_log_that_is_written_rolled_thinned_out_and_killed(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    folder = tmp_path / "data"
    writer, shown = Writer(folder, mode), Shown(folder)
    with holdfast.open(folder) as store:
        store.log("x").append(b"0 of 0")
    with streaming(spark, folder, tmp_path / "checkpoint", shown) as query:
        wait_until(lambda: len(shown.records) == 1, query)  # from here on it holds retention back
        writer.start()
        for _ in range(2):
            seen = len(shown.records)
            wait_until(lambda seen=seen: len(shown.records) >= seen + 200, query)  # type: ignore[misc]
            writer.kill()
            before = len(shown.records)
            first = writer.start()
            assert first >= before, "the stream has shown what did not survive"
        query.stop()  # and goes on from its checkpoint, while records come
        writer.kill()
    writer.start(300)
    with streaming(spark, folder, tmp_path / "checkpoint", shown) as query:
        writer.end()
        query.processAllAvailable()
    with holdfast.open(folder, read_only=True) as store:
        log = store.log("x")
        kept = [(record.sequence, record.payload) for record in log.read()]
        end = log.end
        assert log.start > 0, "nothing was dropped"
        assert log.verify().ok
    # `foreachBatch` runs a batch again where the stream was stopped in the middle of it: the same rows, or it is wrong.
    found = dict(shown.records)
    assert sorted(found) == list(range(end))
    assert all(found[sequence] == payload for sequence, payload in shown.records), "a batch came again with other rows"
    assert [(sequence, found[sequence]) for sequence, _ in kept] == kept
    assert all(payload.startswith(b"%d of" % sequence) for sequence, payload in found.items())
    assert {payload.split()[-1] for payload in found.values()} >= {b"1", b"2", b"4"}
    assert shown.too_early == []


def test_what_is_written_but_not_synced_is_not_shown(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    shown = Shown(folder)
    with holdfast.open(folder, background=False) as store:
        log = store.log("x")
        log.append_many([b"synced"] * 10)
        log.sync()
        with streaming(spark, folder, tmp_path / "checkpoint", shown) as query:
            query.processAllAvailable()
            for number in itertools.count(1):
                log.append_many([b"not synced"] * 10)
                log.refresh()
                query.processAllAvailable()
                assert len(shown.records) == 10
                if number == 3:
                    break
            log.sync()
            query.processAllAvailable()
            assert [offset for offset, _ in shown.records] == list(range(40))


OWNER = """
import sys, time
import holdfast

store = holdfast.open(sys.argv[1])
for number in range(300):
    store.log("x").append(b"%d" % number)
print("appended", flush=True)
sys.stdin.read()
"""


def test_a_stream_of_a_log_with_default_settings_follows_its_owner_who_never_calls_sync(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder, shown = tmp_path / "data", Shown(tmp_path / "data")
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert owner.stdout is not None
        assert owner.stdout.readline() == "appended\n"
        with streaming(spark, folder, tmp_path / "checkpoint", shown) as query:
            wait_until(lambda: len(shown.records) == 300, query)
            wait_until(lambda: _latest(query) == 300, query)
        assert shown.too_early == []
    finally:
        owner.kill()
        owner.communicate(timeout=30)


def _latest(query: StreamingQuery) -> int | None:
    """The latest offset that the stream reports."""
    progress = query.lastProgress
    found = progress and progress["sources"][0]["latestOffset"]
    if not found:
        return None
    offset = json.loads(found) if isinstance(found, str) else found
    return int(offset["x"]["0"])
