"""A disk that fails for a while and heals: the queue serves only what it is sure of, and goes on without reopening."""

import errno
from collections.abc import Callable

import pytest

import holdfast
from holdfast import DiskFull, Flush, Queue, StorageError, Store
from holdfast.testing import SimClock, SimFiles
from tests.queue.internals import state_of

Reopen = Callable[..., Store]
JOURNAL = "data/journals/orders/*.data"
STATE = "data/state/*"


@pytest.fixture
def queue(store: Store) -> Queue:
    """Six messages, of which the first two are acked; younger than its first checkpoint."""
    queue = store.queue("orders", lease=60)
    queue.put_many([b"%d" % n for n in range(6)])
    queue.ack(queue.lease(2))
    return queue


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["full", "broken"])
@pytest.mark.parametrize("times", [1, 2, 5])
def test_nothing_acked_is_delivered_again_while_the_state_cannot_be_read_again(
    queue: Queue, files: SimFiles, store: Store, reopen: Reopen, times: int, code: int
) -> None:
    files.fail("write", code, pattern=JOURNAL)
    files.fail("write", code, pattern=STATE, times=times)
    with pytest.raises(StorageError):
        queue.lease(1)
    calls: list[Callable[[], object]] = [queue.stats, queue.peek, queue.lease, queue.checkpoint, store.tick]
    for call in calls[:times]:
        with pytest.raises(StorageError, match="the queue 'orders' is unavailable until its state can be loaded again"):
            call()
    assert [(message.id, message.attempt) for message in queue.lease(9)] == [(2, 1), (3, 1), (4, 1), (5, 1)]
    assert (queue.stats().total_acked, queue.stats().ready) == (2, 0)
    store.close()
    assert (again := reopen().queue("orders").stats()).total_acked == 2
    assert (again.ready, again.leased) == (0, 4)


@pytest.mark.parametrize("failing", range(1, 40))
def test_a_reload_that_fails_at_any_operation_is_made_again_whole(
    queue: Queue, files: SimFiles, store: Store, clock: SimClock, failing: int
) -> None:
    before = state_of(queue).describe()
    files.fail("write", errno.ENOSPC, pattern=JOURNAL)
    with pytest.raises(DiskFull):
        queue.lease(1)
    files.fail("*", errno.EIO, skip=failing - 1)
    for _ in range(3):
        try:
            queue.stats()
            break
        except StorageError:
            pass
    assert state_of(queue).describe() == before
    state_of(queue).check()


class Interrupted(Exception):
    """What a signal's handler raises."""


class InterruptingClock(SimClock):
    interrupts = False

    def time_ns(self) -> int:
        if self.interrupts:
            self.interrupts = False
            raise Interrupted
        return super().time_ns()


@pytest.mark.parametrize("flush", [Flush.batch(), Flush.async_()], ids=lambda flush: flush.mode)
def test_acks_that_are_not_written_yet_count_when_the_state_is_read_again_on_a_full_disk(flush: Flush) -> None:
    files, clock = SimFiles(), InterruptingClock()
    store = holdfast.open("data", files=files, clock=clock, background=False)
    queue = store.queue("orders", flush=flush, lease=60)
    queue.put_many([b"%d" % n for n in range(6)])
    queue.sync()
    first, second = queue.lease(2)
    store.tick()
    assert first.ack() and second.ack()
    files.fail("write", errno.ENOSPC, pattern="data/journals/*", times=3)
    clock.interrupts = True
    with pytest.raises(Interrupted):
        queue.get()
    with pytest.raises(DiskFull, match="is unavailable"):
        queue.get()
    while True:
        try:
            rest = queue.lease(9)
            break
        except DiskFull:
            pass
    assert [message.id for message in rest] == [2, 3, 4, 5]
    assert not first.ack()
    store.close()
    again = holdfast.open("data", files=files, clock=clock, background=False).queue("orders", flush=flush)
    assert (again.stats().total_acked, again.stats().leased) == (2, 4)


def test_a_checkpoint_does_not_keep_what_the_journal_could_not(
    queue: Queue, files: SimFiles, store: Store, reopen: Reopen
) -> None:
    held = queue.lease(1)
    files.fail("write", errno.ENOSPC, pattern=JOURNAL)
    with pytest.raises(DiskFull):
        queue.ack(held)
    queue.checkpoint()
    assert (queue.stats().total_acked, queue.stats().leased) == (2, 1)
    store.close()
    again = reopen().queue("orders").stats()
    assert (again.total_acked, again.leased) == (2, 1)


def test_dead_letters_do_not_leave_by_a_decision_that_the_journal_could_not_keep(
    queue: Queue, files: SimFiles, store: Store
) -> None:
    held = queue.lease(1)
    files.fail("write", errno.ENOSPC, pattern=JOURNAL)
    with pytest.raises(DiskFull):
        queue.reject_ids({held[0].lease: [held[0].id]})
    queue.transfers.carry()
    assert queue.dead_letters() == []
    assert queue.stats().leased == 1
    assert queue.dead_letters() == []
