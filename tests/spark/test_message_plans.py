"""What the view `messages` costs the planning process, and what its tasks need of the journal."""

import json
import pickle
import tracemalloc
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import holdfast
from holdfast import Backoff, Corrupt, Flush, Roll
from holdfast.spark import journal_parts, message_texts
from holdfast.spark.message_texts import MessageTexts
from holdfast.spark.options import ReadOptions
from holdfast.spark.partitions import DataLoss
from holdfast.spark.queue_events import NONE
from holdfast.spark.queue_messages import MessageRows
from holdfast.spark.reader import Reader, Share
from holdfast.spark.schemas import arrow_schema
from holdfast.spark.sources import view_schema
from holdfast.testing import SimClock
from tests.queue.internals import journal_of
from tests.spark.test_event_rows import hit

FEW = 3_000


def fill(folder: Path, count: int, clock: SimClock) -> None:
    """Every other message is acked, a third of the others failed for a reason of its own, some are leased."""
    with holdfast.open(folder, clock=clock, background=False) as store:
        queue = store.queue("q", flush=Flush.batch(), max_attempts=None, backoff=Backoff(3600, 3600))
        for _ in range(0, count, 1000):
            queue.put_many([b"x"] * 1000)
            taken = queue.lease(1000, lease=86_400)
            queue.ack(taken[::2])
            for one in taken[1::6]:
                one.nack(f"customer {one.id} has no account")
            queue.release(taken[3::6])
            clock.advance(5)
            queue.sync()


def reader(folder: Path, clock: SimClock, **options: str) -> Reader:
    given = {"path": str(folder), "queue": "q", "view": "messages", **options}
    return Reader(given, from_arrow_schema(view_schema(ReadOptions.of(given))), clock)


def states(made: Reader, tasks: list[Share]) -> dict[int, str]:
    rows = [row for task in tasks for batch in made.read(task) for row in batch.to_pylist()]
    return {row["message"]: row["state"] for row in rows}


def test_a_plan_takes_the_same_memory_for_eight_times_as_many_messages(tmp_path: Path) -> None:
    peaks: dict[int, int] = {}
    sizes: dict[int, int] = {}
    for count in (FEW, FEW, 8 * FEW):  # the first time pays for imports and caches
        clock = SimClock()
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        fill(folder, count, clock)
        made = reader(folder, clock, minPartitions="2")
        tracemalloc.start()
        tasks = made.partitions()
        peaks[count] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        sizes[count] = max(len(pickle.dumps(task)) for task in tasks)
        found = list(states(made, list(tasks)).values())
        assert found.count("acked") == count // 2
        assert len(found) == count
    assert sizes[8 * FEW] < 1.2 * sizes[FEW] < 3000
    assert peaks[8 * FEW] < 1.5 * peaks[FEW]


def test_what_a_task_does_not_find_any_more_of_the_journal_is_an_error(tmp_path: Path) -> None:
    clock = SimClock()
    with (
        patch.object(holdfast.queue_registry, "JOURNAL_ROLL", Roll.count(4)),
        closing(holdfast.open(tmp_path, clock=clock, background=False)) as store,
    ):
        queue = store.queue("q", history=100, retention=None)
        queue.put_many([b"x"] * 10)
        for _ in range(6):
            queue.ack(queue.lease(1))
        for options in ({}, {"failOnDataLoss": "false"}):
            made = reader(tmp_path, clock, **options)
            tasks = list(made.partitions())
            assert list(states(made, tasks).values()).count("acked") >= 6
            clock.advance(200)
            for _ in range(5):
                queue.release(queue.lease(1))
            queue.checkpoint()
            assert journal_of(queue).log.start > 0
            with pytest.raises(DataLoss, match="need all of the journal: read the queue again"):
                states(made, tasks)
            # A new plan has the states that the last snapshot in the journal tells.
            made = reader(tmp_path, clock, **options)
            assert list(states(made, list(made.partitions())).values()) == ["acked"] * 6 + ["ready"] * 4


@pytest.mark.parametrize("lost", ["all", "first segment"])
def test_a_journal_that_was_lost_is_an_error(tmp_path: Path, lost: str) -> None:
    clock = SimClock()
    with patch.object(holdfast.queue_registry, "JOURNAL_ROLL", Roll.count(4)):
        with holdfast.open(tmp_path, clock=clock, background=False) as store:
            queue = store.queue("q", flush=Flush.sync(), lease=3600)
            queue.put_many([b"x"] * 10)
            for _ in range(6):
                queue.ack(queue.lease(1))
            queue.lease(1)
        segments = sorted((tmp_path / "journals").rglob("*.data"))
        for path in segments if lost == "all" else segments[:1]:
            path.unlink()
            path.with_suffix(".index").unlink()
        made = reader(tmp_path, clock)
        with pytest.raises(DataLoss, match="open the store once" if lost == "all" else "restore its files"):
            states(made, list(made.partitions()))
        made = reader(tmp_path, clock, failOnDataLoss="false")
        assert set(states(made, list(made.partitions())).values()) >= {"ready"}
        with holdfast.open(tmp_path, clock=clock, background=False) as store:
            counts = store.queue("q", flush=Flush.sync(), lease=3600).stats()
            assert (counts.ready, counts.leased) == (3, 1)
            store.queue("q").checkpoint()
        if lost == "all":
            made = reader(tmp_path, clock)
            found = list(states(made, list(made.partitions())).values())
            assert found == ["acked"] * 6 + ["leased"] + ["ready"] * 3


def test_damage_of_the_journal_is_an_error_or_is_reported_once(tmp_path: Path) -> None:
    clock = SimClock()
    with holdfast.open(tmp_path / "data", clock=clock, background=False) as store:
        queue = store.queue("q", flush=Flush.sync())
        queue.put_many([b"x"] * 4)
        one, other = queue.lease(1), queue.lease(1)
        queue.ack(one)
        queue.ack(other)
    with holdfast.open(tmp_path / "data", read_only=True) as store:
        [_, damaged] = [one.payload for one in store.journal("q").read() if one.payload[0] in (3, 4)]
    hit(tmp_path / "data", damaged)
    with pytest.raises(Corrupt, match="onDamage=skip"):
        made = reader(tmp_path / "data", clock)
        states(made, list(made.partitions()))
    made = reader(
        tmp_path / "data", clock, onDamage="skip", damageReport=str(tmp_path / "report"), maxRecordsPerPartition="1"
    )
    assert states(made, list(made.partitions())) == {0: "acked", 1: "leased", 2: "ready", 3: "ready"}
    (report,) = (tmp_path / "report").iterdir()
    assert [json.loads(line)["lost"] for line in report.read_text().splitlines()] == [1]


def test_many_tasks_read_the_journal_a_few_times_together(tmp_path: Path) -> None:
    clock = SimClock()
    with holdfast.open(tmp_path, clock=clock, background=False) as store:
        store.log("q", flush=Flush.sync(), index_interval=1)
        queue = store.queue("q", flush=Flush.sync())
        for _ in range(200):
            queue.put_many([b"x"] * 2)
            one, _ = queue.lease(2)
            queue.extend([one])
            queue.ack([one])
    whole = states(made := reader(tmp_path, clock), list(made.partitions()))
    made = reader(tmp_path, clock, maxRecordsPerPartition="10")
    with patch.object(journal_parts, "PART_BYTES", 200), patch.object(journal_parts, "DECODED_RECORDS", 4):
        tasks = list(made.partitions())
    assert len(tasks) >= 40
    assert states(made, tasks) == whole
    moments = [rows.messages.moment for task in tasks for rows, _ in task.work if isinstance(rows, MessageRows)]
    read = sum(stretch.stop - stretch.start for moment in moments for stretch in moment.journal)
    assert read <= 3 * moments[0].journal_end


def test_without_a_column_of_states_the_journal_is_not_read(tmp_path: Path) -> None:
    clock = SimClock()
    with holdfast.open(tmp_path, clock=clock, background=False) as store:
        queue = store.queue("q", flush=Flush.sync())
        queue.put(b"x")
        queue.ack(queue.lease(1))
    given = {"path": str(tmp_path), "queue": "q", "view": "messages"}
    schema = from_arrow_schema(arrow_schema(view_schema(ReadOptions.of(given)), ["message", "value"]))
    made = Reader(given, schema, clock)
    tasks = made.partitions()
    for path in (tmp_path / "journals").rglob("*.data"):
        path.unlink()
    assert [batch.to_pylist() for task in tasks for batch in made.read(task)] == [[{"message": 0, "value": b"x"}]]


def test_many_texts_are_kept_as_bytes_and_those_that_nobody_uses_are_left_out() -> None:
    with patch.object(message_texts, "_RECENT", 4), patch.object(message_texts, "_FULL_BYTES", 200):
        texts = MessageTexts()
        codes = np.array([texts.code(f"reason {number}") for number in range(30)], np.int32)
        assert texts.code("reason 29") == codes[29]  # it was just used
        assert texts.code("") == NONE
        assert texts.is_full
        codes[::3] = NONE
        wanted = [None if number % 3 == 0 else f"reason {number}" for number in range(30)]
        assert texts.texts(codes).to_pylist() == wanted
        texts.keep(codes)
        assert len(texts) == 20
        assert texts.texts(codes).to_pylist() == wanted
        assert texts.code("another") == 20
        assert texts.texts(np.array([20, codes[1]])).to_pylist() == ["another", "reason 1"]
        texts.keep(np.array([NONE]))
        assert (len(texts), texts.code("first")) == (0, 0)
