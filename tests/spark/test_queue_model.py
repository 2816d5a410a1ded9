"""The views `messages` and `lifecycle` beside a model in plain Python, over random workloads."""

import pickle
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import holdfast
from holdfast.spark import journal_parts
from holdfast.spark.options import ReadOptions
from holdfast.spark.reader import Reader
from holdfast.spark.sources import view_schema
from tests.queue.internals import tiny_limits
from tests.spark.queue_world import Held, World
from tests.spark.test_event_rows import moment, slow_journal, slow_puts
from tests.tiers import SEED, rounds

Row = dict[str, Any]
SEEDS = range(SEED, SEED + rounds(500, 12))
STEPS = 60


def read(world: World, view: str, **options: str) -> list[Row]:
    """All rows of a view of `q`: planned here, pickled, and read as tasks do."""
    given = {"path": str(world.folder), "queue": "q", "view": view, **options}
    reader = Reader(given, from_arrow_schema(view_schema(ReadOptions.of(given))), world.clock)
    tasks = pickle.loads(pickle.dumps(reader.partitions()))
    return [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]


def assert_as_modelled(world: World, rows: list[Row], held: dict[int, Held], begins: int) -> None:
    start = world.queue.log.start
    wanted = {at: life for at, life in world.lives.items() if at >= start}
    assert [row["message"] for row in rows] == sorted(wanted)
    for row in rows:
        at, life = row["message"], wanted[row["message"]]
        told = (row["state"], row["attempts"], row["reason"])
        assert row["priority"] == life.priority
        if at in held:
            assert not life.ends
            assert told == (held[at].state, life.attempts, life.reason)
        elif life.put_at >= begins:
            assert told in [
                (state, life.attempts or (None if state == "acked" else 0), why) for state, why in life.ends
            ]
        else:  # its end, or what came before it, may have been in a part of the journal that is no longer kept
            assert row["state"] in ("acked", *(state for state, _ in life.ends))
            assert row["attempts"] in (None, life.attempts)
            assert row["reason"] in (None, *(why for _, why in life.ends))
        queue_says = held.get(at, Held("gone"))
        assert row["due"] == moment(queue_says.due)
        assert row["lease"] == queue_says.lease
        assert row["expires"] == moment(queue_says.expires)


def assert_lives_as_modelled(world: World, rows: list[Row]) -> None:
    """Each message has the events that the model knows, in that order; and each event is that of a loop."""
    lives: dict[int, list[str]] = {at: [] for at in world.lives}
    for row in sorted(rows, key=lambda row: (row["event"] != "put", row["position"])):
        if row["message"] is not None and row["event"] != "moved":
            lives[row["message"]].append(row["event"])
    for at, events in lives.items():
        assert len(events) == len(world.lives[at].events)
        for event, known in zip(events, world.lives[at].events, strict=True):
            assert event in known.split("|")
    with closing(holdfast.open(world.folder, read_only=True)) as store:
        journal = slow_journal("q", store.journal("q"))
        puts = slow_puts("q", store.log(store.log_of("q")))
    assert Counter(map(_hashable, rows)) == Counter(map(_hashable, journal + puts))


def _hashable(row: Row) -> tuple[Any, ...]:
    return tuple(sorted(row.items()))


@pytest.mark.parametrize("seed", SEEDS)
def test_both_views_agree_with_a_model_whatever_happens_to_a_queue(seed: int, tmp_path: Path) -> None:
    with tiny_limits():  # so that the journal has many segments, and snapshots of several parts
        world = World(seed, tmp_path / "data")
        with closing(world):
            for number in range(STEPS):
                world.step()
                if number % 20 == 19:
                    compare(world)


def compare(world: World) -> None:
    held = world.write_out()
    begins = world.journal_begins
    rows = read(world, "messages", minPartitions="1")
    assert_as_modelled(world, rows, held, begins)
    # And divided: into ranges of a few messages, each with the states of its own.
    few = world.random.choice([1, 50])
    with (
        patch.object(journal_parts, "FEW_TASKS", few),
        patch.object(journal_parts, "PART_BYTES", 50),
        patch.object(journal_parts, "DECODED_RECORDS", 2),
    ):
        assert read(world, "messages", maxRecordsPerPartition="3") == rows
    if not begins:
        assert_lives_as_modelled(world, read(world, "lifecycle"))
