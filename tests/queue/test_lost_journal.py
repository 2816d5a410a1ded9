"""A queue whose journal was deleted goes on from its checkpoint."""

import shutil
from pathlib import Path

import pytest

import holdfast


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
