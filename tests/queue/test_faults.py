"""A full disk, a failed fsync, an unreadable block: the caller is told, nothing confirmed is lost, and it goes on."""

import contextlib
import errno
import logging
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

import holdfast
from holdfast import Backoff, Delivery, DiskFull, Flush, LeaseLost, Message, Queue, StorageError, Store, WriterStopped
from holdfast.testing import CRASH_MODES, SimClock, SimFiles
from tests.queue.calls import ALL_MODES
from tests.queue.internals import state_of

Reopen = Callable[..., Store]
LOG = "data/logs/orders/*.data"
JOURNAL = "data/journals/orders/*.data"


@pytest.fixture
def queue(store: Store) -> Queue:
    """Six messages, two of them leased."""
    queue = store.queue("orders", lease=60, backoff=Backoff(base=0, cap=0))
    queue.put_many([b"%d" % n for n in range(6)])
    return queue


def fill(files: SimFiles) -> None:
    files.capacity = sum(map(len, files.snapshot().values()))


def where(queue: Queue) -> tuple[int, int, int]:
    stats = queue.stats()
    return stats.ready, stats.delayed, stats.leased


# A full disk.


def test_a_put_on_a_full_disk_fails_and_the_queue_goes_on(queue: Queue, files: SimFiles) -> None:
    fill(files)
    for put in (
        lambda: queue.put(bytes(1000)),
        lambda: queue.put(bytes(1000), priority=5),
        lambda: queue.put(bytes(1000), dedup="id"),
        lambda: queue.put_many([bytes(1000)] * 3),
    ):
        with pytest.raises(DiskFull, match="Free some space"):
            put()
    assert where(queue) == (6, 0, 0)
    files.capacity = None
    assert queue.put(b"after", dedup="id") == 6
    assert [message.payload for message in queue.lease(99)] == [b"0", b"1", b"2", b"3", b"4", b"5", b"after"]


CHANGES: dict[str, Callable[[Queue, list[Delivery]], object]] = {
    "lease": lambda queue, held: queue.lease(3),
    "get": lambda queue, held: queue.get(),
    "long poll": lambda queue, held: queue.lease(1, wait=60),
    "ack": lambda queue, held: queue.ack(held),
    "ack one": lambda queue, held: held[0].ack(),
    "nack": lambda queue, held: queue.nack(held, "no"),
    "nack later": lambda queue, held: held[0].nack("no", delay=30),
    "release": lambda queue, held: queue.release(held),
    "extend": lambda queue, held: held[0].extend(1000),
    "purge": lambda queue, held: queue.purge(),
    "seek": lambda queue, held: queue.seek(0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_on_a_full_disk_fails_and_has_not_happened(
    queue: Queue, files: SimFiles, clock: SimClock, reopen: Reopen, store: Store, change: str
) -> None:
    held = queue.lease(2)
    before = state_of(queue).describe()
    files.fail("write", errno.ENOSPC, pattern=JOURNAL)
    with pytest.raises(DiskFull, match="Free some space"):
        CHANGES[change](queue, held)
    assert where(queue) == (4, 0, 2)
    assert state_of(queue).describe() == before
    CHANGES[change](queue, held)  # there is room again
    assert state_of(queue).describe() != before
    state_of(queue).check()
    after = state_of(queue).describe()
    store.close()
    assert state_of(reopen().queue("orders")).describe() == after


@pytest.mark.parametrize("change", CHANGES)
def test_what_failed_on_a_full_disk_has_not_happened_after_a_restart_either(
    queue: Queue, files: SimFiles, reopen: Reopen, store: Store, change: str
) -> None:
    held = queue.lease(2)
    before = state_of(queue).describe()
    files.fail("write", errno.ENOSPC, pattern=JOURNAL)
    with pytest.raises(DiskFull):
        CHANGES[change](queue, held)
    store.close()
    assert state_of(reopen().queue("orders")).describe() == before


def test_messages_of_expired_leases_come_back_when_there_is_room(
    queue: Queue, files: SimFiles, clock: SimClock, store: Store
) -> None:
    queue.lease(2)
    clock.advance(61)
    files.fail("write", errno.ENOSPC, pattern=JOURNAL, times=3)
    for _ in range(6):
        try:
            store.tick()
        except StorageError:
            clock.advance(1)
    assert where(queue) == (6, 0, 0)
    assert [(message.id, message.attempt) for message in queue.lease(2)] == [(0, 2), (1, 2)]


def test_a_checkpoint_on_a_full_disk_fails_alone(
    queue: Queue, files: SimFiles, store: Store, reopen: Reopen, clock: SimClock
) -> None:
    held = queue.lease(2)
    files.fail("write", errno.ENOSPC, pattern="data/state/*")
    with pytest.raises(DiskFull):
        queue.checkpoint()
    queue.ack(held)
    queue.put(b"more")
    assert where(queue) == (5, 0, 0)
    queue.checkpoint()
    store.close()
    assert where(reopen().queue("orders")) == (5, 0, 0)


def test_a_store_closes_on_a_full_disk_if_nothing_waits_to_be_written(
    queue: Queue, files: SimFiles, store: Store, reopen: Reopen
) -> None:
    queue.ack(queue.lease(2))
    fill(files)
    store.close()
    files.capacity = None
    assert where(reopen().queue("orders")) == (4, 0, 0)


@pytest.mark.parametrize("flush", [Flush.batch(), Flush.async_()], ids=lambda flush: flush.mode)
def test_closing_with_something_to_write_fails_and_can_be_tried_again(
    files: SimFiles, store: Store, reopen: Reopen, flush: Flush
) -> None:
    queue = store.queue("orders", flush=flush)
    queue.put_many([b"a", b"b", b"c"])
    queue.sync()
    queue.ack(queue.lease(1))
    queue.put(bytes(5000))
    fill(files)
    with pytest.raises(DiskFull):
        store.close()
    files.capacity = None
    store.close()
    again = reopen().queue("orders", flush=flush)
    assert [len(message.payload) for message in again.lease(9)] == [1, 1, 5000]


@pytest.mark.parametrize("skip", range(12))
def test_a_queue_that_could_not_be_opened_can_be_tried_again(files: SimFiles, store: Store, skip: int) -> None:
    files.fail("*", errno.ENOSPC, pattern="data/*", skip=skip)
    try:
        queue = store.queue("orders", lease=7)
    except StorageError:
        queue = store.queue("orders", lease=7)
    queue.put(b"x")
    queue.ack(queue.lease())
    assert (store.queues(), queue.settings.lease) == (["orders"], 7)
    store.close()


@pytest.mark.parametrize("skip", range(12))
def test_a_queue_that_could_not_be_opened_again_has_lost_nothing(
    queue: Queue, files: SimFiles, store: Store, reopen: Reopen, skip: int
) -> None:
    queue.ack(queue.lease(2))
    before = state_of(queue).describe()
    store.close()
    again = reopen()
    files.fail("*", errno.EIO, pattern="data/*", skip=skip)
    try:
        queue = again.queue("orders")
    except StorageError:
        queue = again.queue("orders")
    files.heal()
    assert state_of(queue).describe() == before


# A failed fsync.


def test_after_a_failed_fsync_of_the_journal_changes_are_refused_until_it_can_be_written_again(
    queue: Queue, files: SimFiles, store: Store, reopen: Reopen
) -> None:
    held = queue.lease(2)
    files.fail("sync", errno.EIO, pattern=JOURNAL)
    with pytest.raises(WriterStopped, match="resumes automatically"):
        queue.ack(held)
    for change in (lambda: queue.lease(1), held[0].ack, held[0].nack, queue.purge):
        with pytest.raises(WriterStopped):
            change()
    assert [waiting.id for waiting in queue.peek(99)] == [2, 3, 4, 5]  # one may still look
    assert where(queue) == (4, 0, 2)
    store.close()
    again = reopen().queue("orders")
    assert again.stats().ready == 4
    assert again.stats().leased in (0, 2)  # whether that ack is there nobody can know: it was not confirmed
    again.ack(again.lease(4))


def test_after_a_failed_fsync_of_the_journal_the_queue_goes_on_when_the_disk_works(
    queue: Queue, files: SimFiles, clock: SimClock, store: Store, reopen: Reopen
) -> None:
    queue.ack(queue.lease(2))
    held = queue.lease(2)
    files.fail("sync", errno.EIO, pattern=JOURNAL, times=3)
    with pytest.raises(WriterStopped, match="resumes automatically"):
        queue.ack(held)
    for _ in range(2):
        clock.advance(1)
        with pytest.raises(WriterStopped):
            queue.lease(1)
    clock.advance(1)
    queue.ack(held)
    queue.put(b"more")
    rest = queue.lease(9)
    assert [message.id for message in rest] == [4, 5, 6]
    for mode in CRASH_MODES:
        after = holdfast.open("data", files=files.after_crash(mode), clock=clock, background=False).queue("orders")
        assert (after.stats().total_acked, after.stats().leased, after.stats().ready) == (4, 3, 0)


def test_after_a_failed_fsync_of_the_log_what_is_there_can_still_be_worked_off(
    queue: Queue, files: SimFiles, store: Store, reopen: Reopen
) -> None:
    files.fail("sync", errno.EIO, pattern=LOG)
    with pytest.raises(WriterStopped, match="resumes automatically"):
        queue.put(b"doubtful")
    with pytest.raises(WriterStopped):
        queue.put(b"more")
    queue.ack(queue.lease(4))
    assert [message.id for message in queue.lease(99)] == [4, 5]
    store.close()
    again = reopen().queue("orders")
    assert again.stats().leased == 2
    assert again.stats().total_acked == 4
    assert again.stats().ready in (0, 1)


def test_after_a_failed_fsync_of_the_log_puts_go_on_when_the_disk_works(
    queue: Queue, files: SimFiles, clock: SimClock
) -> None:
    files.fail("sync", errno.EIO, pattern=LOG)
    with pytest.raises(WriterStopped, match="resumes automatically"):
        queue.put(b"not there")
    clock.advance(1)
    assert queue.put(b"after") == 6
    for mode in CRASH_MODES:
        after = holdfast.open("data", files=files.after_crash(mode), clock=clock, background=False).queue("orders")
        assert [one.payload for one in after.peek(99)][5:] == [b"5", b"after"]


def test_after_a_failed_fsync_of_the_state_the_queue_goes_on_without_checkpoints(
    queue: Queue, files: SimFiles, store: Store, reopen: Reopen, clock: SimClock
) -> None:
    files.fail("sync", errno.EIO, pattern="data/state/*")
    with pytest.raises(WriterStopped):
        queue.checkpoint()
    queue.ack(queue.lease(2))
    queue.put(b"more", delay=5)
    clock.advance(100)
    queue.nack(queue.lease(1), "no")
    assert where(queue) == (5, 0, 0)
    store.close()
    again = reopen().queue("orders")
    assert where(again) == (5, 0, 0)
    again.checkpoint()


def test_a_waiter_is_told_that_its_lease_could_not_be_written(queue: Queue, files: SimFiles) -> None:
    queue.ack(queue.lease(6))
    queue.put(b"x", delay=5)
    files.fail("write", errno.ENOSPC, pattern=JOURNAL)
    with pytest.raises(DiskFull):
        queue.lease(1, wait=60)
    assert [message.payload for message in queue.lease(1, wait=60)] == [b"x"]


# Reading.


def test_a_read_that_fails_is_an_error_of_ours_and_takes_nothing(
    queue: Queue, files: SimFiles, store: Store, reopen: Reopen
) -> None:
    store.close()
    queue = reopen().queue("orders")
    files.fail("read", errno.EIO, pattern=LOG, times=1)
    try:
        taken = queue.lease(1)
    except StorageError:
        taken = []
    assert queue.stats().leased == len(taken)
    assert sorted(message.id for message in [*taken, *queue.lease(99)]) == list(range(6))
    assert queue.stats().total_dropped == 0


# The state.


@pytest.mark.parametrize("loss", ["deleted", "damaged"])
def test_a_state_that_is_gone_is_built_anew(tmp_path: Path, loss: str) -> None:
    with holdfast.open(tmp_path) as store:
        queue = store.queue("orders", max_attempts=2, backoff=Backoff(base=600, cap=600))
        queue.put_many([Message(b"%d" % n, priority=n % 4, delay=(n % 5) * 600 or None) for n in range(200)])
        queue.put_many([Message(b"x", dedup=f"{n}") for n in range(50)])
        queue.ack(queue.lease(20))
        queue.nack(queue.lease(10), "no")
        queue.lease(10, lease=3600)
        before = state_of(queue).describe()
    for path in sorted((tmp_path / "state").iterdir()):
        if loss == "deleted":
            path.unlink()
        elif path.suffix in (".sst", ".log") or path.name.startswith(("CURRENT", "MANIFEST")):
            path.write_bytes(b"no longer what it was")
    with holdfast.open(tmp_path) as store:
        queue = store.queue("orders")
        assert state_of(queue).describe() == before
        assert [queue.put(b"again", dedup=f"{n}") for n in range(50)] == list(range(200, 250))


# A signal.


class Interrupted(BaseException):
    """What a signal's handler raises, as Ctrl-C does."""


@pytest.mark.usefixtures("without_gc_callbacks")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # interrupts inside destructors
@pytest.mark.parametrize("flush", ALL_MODES, ids=lambda flush: flush.mode)
def test_an_interrupt_in_the_middle_of_anything_leaves_the_queue_whole(tmp_path: Path, flush: Flush) -> None:
    """Signals come between any two bytecodes of the main thread, also between those that change the state."""
    store = holdfast.open(tmp_path)
    queue = store.queue("orders", flush=flush, lease=0.2, max_attempts=None)
    random = Random(0)
    put: set[int] = set()
    acked: set[int] = set()
    doubtful: set[int] = set()

    def work() -> None:
        for _ in range(1000):  # bounded: an interrupt inside a destructor is swallowed by Python
            match random.randrange(8):
                case 0 | 1 | 2:
                    put.add(queue.put(b"x"))
                case 3:
                    put.add(queue.put(b"x", priority=3))
                case 4:
                    queue.nack(queue.lease(2), "no", delay=0)
                case 5:
                    queue.lease(2, wait=0.001)
                case _:
                    for message in [one for one in (queue.get(), *queue.lease(2)) if one]:
                        doubtful.add(message.id)
                        if message.ack():
                            acked.add(message.id)

    def interrupt(*_: object) -> None:
        raise Interrupted

    interrupts = 0
    # An interrupt inside of logging can leave a handler locked for ever, and the background waits for it then.
    logging.disable()
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        enough, deadline = time.monotonic() + 2, time.monotonic() + 60
        while time.monotonic() < (enough if interrupts > 20 else deadline):
            try:
                signal.setitimer(signal.ITIMER_REAL, random.uniform(0.0003, 0.003))
                with contextlib.suppress(LeaseLost):  # it took longer than the lease
                    work()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupted:
                interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        logging.disable(logging.NOTSET)
    assert interrupts > 20
    queue.sync()  # with puts that were cut off after they were gathered: they may come or not
    queue.stats()
    state_of(queue).check()
    left: set[int] = set()
    while messages := queue.lease(1000, lease=60, wait=1):
        left |= {message.id for message in messages}
        queue.ack(messages)
    assert not left & acked, "an acked message came back"
    assert put <= left | doubtful, "a confirmed message is gone"
    state_of(queue).check()
    described = state_of(queue).describe()
    store.close()
    with holdfast.open(tmp_path) as store:
        assert state_of(store.queue("orders", flush=flush)).describe() == described


# All of it.


@pytest.mark.parametrize("flush", ALL_MODES, ids=lambda flush: flush.mode)
@pytest.mark.parametrize("seed", range(4))
def test_whatever_fails_nothing_confirmed_is_lost_and_nothing_acked_comes_back(flush: Flush, seed: int) -> None:
    """A disk that fills up and is freed again, hundreds of times, under everything that a queue can do."""
    random = Random(seed)
    files, clock = SimFiles(seed), SimClock()
    store = holdfast.open("data", files=files, clock=clock, background=False)
    queue = store.queue("orders", flush=flush, lease=50, max_attempts=None)
    put: set[int] = set()
    acked: set[int] = set()
    held: list[Delivery] = []
    failures = 0
    for _ in range(600):
        if random.random() < 0.2:
            size = sum(map(len, files.snapshot().values()))
            files.capacity = None if random.random() < 0.6 else size + random.randrange(300)
        try:
            match random.randrange(9):
                case 0 | 1:
                    put.add(queue.put(bytes(random.randrange(200)), priority=random.randrange(3)))
                case 2:
                    put.update(queue.put_many([bytes(50)] * random.randrange(5)))
                case 3 | 4:
                    held += queue.lease(random.randrange(1, 6))
                case 5 if held:
                    message = held.pop(random.randrange(len(held)))
                    if message.ack():
                        acked.add(message.id)
                case 6 if held:
                    held.pop().nack("no", delay=random.choice([0, 10]))
                case 7:
                    clock.advance(random.choice([1, 60]))
                    store.tick()
                case 8:
                    queue.checkpoint()
        except StorageError:
            failures += 1
        state_of(queue).check()
    assert failures > 5
    files.capacity = None
    store.close()
    store = holdfast.open("data", files=files, clock=clock, background=False)
    queue = store.queue("orders", flush=flush)
    clock.advance(1000)
    left = {message.id for message in queue.lease(10_000)}
    assert not left & acked, "an acked message came back"
    assert put - acked <= left, "a confirmed message is gone"
