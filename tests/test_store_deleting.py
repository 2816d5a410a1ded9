"""Deleting a queue: all of it goes, nobody else loses anything, and no crash leaves half of one."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast import Flush, Message, Queue, Store
from holdfast.base.errors import Closed, NotFound, ReadOnly, StorageError
from holdfast.state import FAMILIES
from holdfast.testing import SimClock, SimFiles
from tests.queue.calls import ALL_MODES, Call, got, until_waiting
from tests.queue.internals import core_of, open_sim, state_of
from tests.tiers import crash_sample


def filled(store: Store, name: str = "work", **settings: object) -> Queue:
    """A queue with messages in every place."""
    queue = store.queue(name, **settings)  # type: ignore[arg-type]
    queue.put_many([b"ready", Message(b"delayed", delay=60), Message(b"known", dedup="id"), b"failed"])
    got(queue).nack("no")
    queue.lease(1)
    queue.checkpoint()
    return queue


def rows(store: Store) -> int:
    return sum(len(list(store.queue_registry.open_state().scan(family))) for family in FAMILIES)


def left(files: SimFiles) -> list[str]:
    """What is on the disk, but for what every store has."""
    return [path for path in files.snapshot() if not path.startswith(("data/LOCK", "data/state"))]


@pytest.mark.parametrize("flush", ALL_MODES, ids=lambda flush: str(flush.mode))
@pytest.mark.parametrize("is_open", [True, False], ids=["open", "closed"])
def test_nothing_is_left_of_a_deleted_queue(
    store: Store, files: SimFiles, reopen: Callable[..., Store], flush: Flush, is_open: bool
) -> None:
    filled(store, flush=flush, dead_letter=None)
    if not is_open:
        store.close()
        store = reopen()
    assert rows(store) > 0
    store.delete_queue("work")
    assert (store.queues(), store.logs(), left(files), rows(store)) == ([], [], [], 0)
    store.close()
    assert reopen().queues() == []


@pytest.mark.parametrize("flush", ALL_MODES, ids=lambda flush: str(flush.mode))
def test_a_queue_of_the_same_name_begins_empty(disk_store: Store, flush: Flush) -> None:
    filled(disk_store, flush=flush)
    disk_store.delete_queue("work")
    queue = disk_store.queue("work", flush=flush)
    assert (queue.lease(10), queue.stats().total_leased, queue.stats().dedup_ids) == ([], 0, 0)
    assert queue.put(b"new", dedup="id") == 0
    assert got(queue).payload == b"new"


def test_who_holds_or_awaits_a_message_of_a_deleted_queue_is_told(disk_store: Store) -> None:
    for flush in (Flush.sync(), Flush.async_()):
        queue = disk_store.queue("work", flush=flush)
        queue.put_many([b"a", b"b"])
        held, other = got(queue), got(queue)
        waiter = Call(lambda queue=queue: queue.lease(1, wait=600))  # type: ignore[misc]
        until_waiting(queue)
        disk_store.delete_queue("work")
        for call in (held.ack, other.nack, other.release, lambda queue=queue: queue.put(b"c"), waiter.result):
            with pytest.raises(Closed, match=r"deleted|closed"):
                call()


def test_a_log_that_others_read_stays_and_holds_nothing_back(store: Store) -> None:
    one, other = store.queue("one"), store.queue("other", log="one")
    one.put_many([b"a", b"b"])
    store.delete_queue("one")
    assert (store.queues(), store.logs()) == (["other"], ["one"])
    assert [message.payload for message in other.lease(9)] == [b"a", b"b"]
    assert [kept.name for kept in other.log.positions.all()] == ["queue:other"]
    with pytest.raises(Closed):
        one.put(b"c")
    store.delete_queue("other")
    assert store.logs() == ["one"]


def test_a_log_is_not_deleted_under_a_queue_that_is_not_open(store: Store, reopen: Callable[..., Store]) -> None:
    store.queue("one").put(b"a")
    store.queue("other", log="one")
    store.close()
    again = reopen()
    again.delete_queue("one")
    assert [message.payload for message in again.queue("other").lease(9)] == [b"a"]


def test_only_a_queue_that_is_there_can_be_deleted_and_only_by_the_owner(
    store: Store, reopen: Callable[..., Store]
) -> None:
    with pytest.raises(NotFound, match="there is no queue 'work'"):
        store.delete_queue("work")
    filled(store)
    with pytest.raises(ReadOnly):
        reopen(read_only=True).delete_queue("work")


def test_the_same_holds_on_a_real_disk(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data") as store:
        filled(store)
        filled(store, "öther/queue")
        store.delete_queue("work")
        assert store.queues() == ["öther/queue"]
    with holdfast.open(tmp_path / "data") as store:
        store.delete_queue("öther/queue")
        assert store.queues() == []
        assert not list((tmp_path / "data" / "journals").iterdir())
        assert not list((tmp_path / "data" / "logs").iterdir())
        assert not list((tmp_path / "data" / "deleting").iterdir())
        assert rows(store) == 0


def test_what_could_not_be_finished_is_finished_when_it_matters(store: Store, files: SimFiles) -> None:
    filled(store)
    files.fail("remove", errno.EIO, pattern="*.data")
    files.fail("rmdir", errno.EIO)
    with pytest.raises(StorageError):
        store.delete_queue("work")
    assert "work" not in store.queues()
    assert store.queue("work").lease(9) == []


def test_a_reader_does_not_see_a_queue_that_is_only_marked(store: Store, files: SimFiles, clock: SimClock) -> None:
    filled(store)
    files.fail("rmdir", errno.EIO, times=9)
    with pytest.raises(StorageError):
        store.delete_queue("work")
    reader = open_sim(files, clock, read_only=True)
    assert "work" not in reader.queues()
    with pytest.raises(NotFound):
        reader.queue("work")


def test_dead_letters_that_are_leaving_are_not_deleted_with_their_queue(store: Store) -> None:
    queue = store.queue("work", dead_letter="elsewhere")
    queue.carries_later = True
    queue.put(b"bad")
    message = got(queue)
    queue.reject_ids({message.lease: [message.id]})
    assert queue.stats().moving == 1
    store.delete_queue("work")
    assert [message.payload for message in store.queue("elsewhere").lease(9)] == [b"bad"]


def test_a_full_disk_is_no_reason_to_keep_a_queue(store: Store, files: SimFiles) -> None:
    queue = store.queue("work", flush=Flush.async_(), dead_letter=None)
    store.queue("other").put(b"stays")
    queue.put(b"x" * 100_000)
    files.fail("write", errno.ENOSPC, pattern="*work*data", times=99)
    store.delete_queue("work")
    assert store.queues() == ["other"]


class Deletion:
    """A queue is made, filled, deleted and made again; another one is beside it."""

    def __init__(self, flush: Flush) -> None:
        self.flush = flush
        self.clock = SimClock()
        self.filled = self.deleted = self.filled_again = False

    def run(self, files: SimFiles) -> None:
        store = open_sim(files, self.clock)
        other = store.queue("other")
        other.put(b"stays")
        filled(store, flush=self.flush, dead_letter=None).sync()
        self.filled = True
        store.delete_queue("work")
        self.deleted = True
        again = store.queue("work", flush=self.flush, dead_letter=None)
        again.put(b"new")
        again.sync()
        self.filled_again = True
        store.close()

    def check(self, files: SimFiles) -> None:
        store = open_sim(files, SimClock(self.clock.time_ns()))
        is_there = "work" in store.queues()
        assert files.list(Path("data/deleting")) == []
        if not is_there and self.filled and not self.deleted:
            assert not [path for path in files.snapshot() if "/work/" in path], "a part of it is left"
        queue = store.queue("work", dead_letter=None)
        state_of(queue).check()
        core_of(queue).clock.advance(86_400)  # type: ignore[attr-defined]
        found = [message.payload for message in queue.lease(9)]
        whole = {b"ready", b"delayed", b"known", b"failed"}
        if self.filled_again:
            assert found == [b"new"]
        elif self.deleted:
            assert found in ([], [b"new"])
        elif self.filled:
            assert not found or set(found) == whole
        assert set(found) <= whole or found == [b"new"]
        if self.filled:
            assert [message.payload for message in store.queue("other").lease(9)] == [b"stays"]
        if not found:
            assert store.queue("work").put(b"after", dedup="id") == queue.log.end - 1
        store.close()
        assert set(open_sim(files, self.clock).queues()) <= {"work", "other"}


@pytest.mark.parametrize("flush", ALL_MODES, ids=lambda flush: str(flush.mode))
def test_no_crash_leaves_half_of_a_queue(flush: Flush) -> None:
    assert crash_sample(lambda: Deletion(flush), seeds=(0,), every=5) > 100
