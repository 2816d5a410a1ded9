"""A queue whose journal was deleted goes on from its checkpoint."""

import shutil
from pathlib import Path

import pytest

import holdfast
from holdfast.testing import SimClock, SimFiles


def used_store(path: Path) -> None:
    """A queue with 20 acknowledged messages, one leased, one delayed and three ready."""
    with holdfast.open(path) as store:
        queue = store.queue("orders", lease=3600)
        queue.put_many([b"%d" % n for n in range(24)])
        for delivery in queue.lease(20):
            delivery.ack()
        queue.get()
        queue.put(b"later", delay=3600)


def lose_journal(path: Path, what: str) -> None:
    folder = path / "journals" / "orders"
    if what == "folder":
        shutil.rmtree(folder)
        return
    for segment in folder.rglob("*.data"):
        segment.unlink()
        segment.with_suffix(".index").unlink()
    if what == "segments and watermark":
        (folder / "watermark").unlink()


def ready(queue: holdfast.Queue) -> list[bytes]:
    return [delivery.payload for delivery in queue.lease(100)]


@pytest.mark.parametrize("what", ["folder", "segments", "segments and watermark"])
def test_a_lost_journal_does_not_forget_what_the_checkpoint_knows(tmp_path: Path, what: str) -> None:
    used_store(tmp_path)
    lose_journal(tmp_path, what)
    with holdfast.open(tmp_path) as store:
        queue = store.queue("orders", lease=3600)
        stats = queue.stats()
        assert (stats.ready, stats.leased, stats.delayed) == (3, 1, 1)
        assert ready(queue) == [b"21", b"22", b"23"]


@pytest.mark.parametrize("what", ["folder", "segments", "segments and watermark"])
def test_a_journal_that_took_over_the_checkpoint_is_enough_without_the_state(tmp_path: Path, what: str) -> None:
    used_store(tmp_path)
    lose_journal(tmp_path, what)
    with holdfast.open(tmp_path) as store:
        store.queue("orders", lease=3600)
    shutil.rmtree(tmp_path / "state")
    with holdfast.open(tmp_path) as store:
        assert ready(store.queue("orders")) == [b"21", b"22", b"23"]


def test_a_queue_that_is_deleted_and_made_again_begins_empty(tmp_path: Path) -> None:
    used_store(tmp_path)
    with holdfast.open(tmp_path) as store:
        store.delete_queue("orders")
        queue = store.queue("orders")
        assert queue.put(b"new") == 0
        assert ready(queue) == [b"new"]


def test_a_second_queue_on_a_log_that_lost_its_journal_begins_where_the_first_was(tmp_path: Path) -> None:
    """Rows of one queue are not taken for those of another."""
    used_store(tmp_path)
    with holdfast.open(tmp_path) as store:
        other = store.queue("audit", log="orders")
        assert len(ready(other)) == 24
    shutil.rmtree(tmp_path / "journals" / "audit")
    with holdfast.open(tmp_path) as store:
        assert ready(store.queue("orders", lease=3600)) == [b"21", b"22", b"23"]


def test_a_snapshot_in_the_journal_counts_more_than_an_older_state(tmp_path: Path) -> None:
    clock = SimClock()

    def opened() -> holdfast.Store:
        return holdfast.open(tmp_path / "data", clock=clock, background=False)

    with opened() as store:
        store.queue("orders", history=60).put_many([b"a", b"b", b"c"])
    shutil.copytree(tmp_path / "data" / "state", tmp_path / "old")
    with opened() as store:
        queue = store.queue("orders")
        queue.ack(queue.lease(2))
        clock.advance(120)
        queue.history.retire()
    with holdfast.open(tmp_path / "data", read_only=True) as reading:
        assert reading.journal("orders").start > 0
    shutil.rmtree(tmp_path / "data" / "state")
    (tmp_path / "old").rename(tmp_path / "data" / "state")
    with opened() as store:
        assert ready(store.queue("orders")) == [b"c"]


def test_a_power_cut_after_a_queue_met_a_new_log_brings_nothing_of_the_old_one_back() -> None:
    files, clock = SimFiles(), SimClock()
    with holdfast.open("data", files=files, clock=clock, background=False) as store:
        queue = store.queue("orders")
        queue.put_many([b"a", b"b", b"c"])
        queue.ack(queue.lease(3))
    for path in files.snapshot():
        if path.startswith("data/logs/orders/"):
            files.remove(Path(path))
    store = holdfast.open("data", files=files, clock=clock, background=False)
    store.log("orders").append_many([b"x", b"y", b"z"])
    store.log("orders").sync()
    assert store.queue("orders").stats().ready == 3
    with holdfast.open("data", files=files.after_crash("dropped"), clock=clock, background=False) as again:
        assert ready(again.queue("orders")) == [b"x", b"y", b"z"]
