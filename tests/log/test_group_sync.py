"""A sync during which others write: what it promises is there, what came meanwhile is not promised, failures are."""

import errno
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

import holdfast
from holdfast import Flush, Log, Roll, Store, WriterStopped
from holdfast.log.snapshot import snapshot_logs
from holdfast.testing import SimClock, SimFiles
from tests.disks import PATIENCE_S, NotingFiles, SlowFiles
from tests.log.internals import begin_sync, finish_sync

ASYNC = Flush.async_()


def payloads(log: Log) -> list[bytes]:
    return [record.payload for record in log.read()]


def durable_end(log: Log) -> int:
    place = log.appender.durable_place()
    assert place is not None
    return place[2]


def after_power_cut(files: SimFiles, name: str = "clicks") -> list[bytes]:
    after = files.after_crash("dropped")
    return payloads(holdfast.open("data", files=after, clock=SimClock(), background=False).log(name))


# One thread on a simulated disk: what exactly is promised.


def test_what_was_appended_before_is_on_disk_and_what_came_meanwhile_is_not_promised(
    store: Store, files: SimFiles
) -> None:
    log = store.log("clicks", flush=ASYNC)
    log.append(b"first")
    log.sync()
    log.append(b"before")

    def write_more(path: str) -> None:
        files.meanwhile = None
        log.append(b"meanwhile")
        log.appender.write_out()

    files.meanwhile = write_more
    log.appender.sync_without_notifying()
    assert after_power_cut(files) == [b"first", b"before"]
    assert payloads(log) == [b"first", b"before", b"meanwhile"]
    log.appender.tell()
    assert durable_end(log) == 2
    log.sync()
    assert durable_end(log) == 3
    assert after_power_cut(files) == [b"first", b"before", b"meanwhile"]


def test_the_next_sync_takes_note_of_one_that_was_never_told(store: Store, files: SimFiles) -> None:
    log = store.log("clicks", flush=ASYNC)
    log.append(b"a")
    log.appender.sync_without_notifying()
    syncs = sum(line.startswith("sync ") for line in files.trace)
    log.sync()
    assert sum(line.startswith("sync ") for line in files.trace) == syncs  # it is on disk already
    assert durable_end(log) == 1


def test_other_processes_are_told_by_tell(store: Store, reopen: Callable[..., Store]) -> None:
    log = store.log("clicks", flush=ASYNC)
    log.append(b"a")
    log.sync()
    reader = reopen(read_only=True).log("clicks")
    log.append(b"b")
    log.appender.sync_without_notifying()
    reader.refresh()
    assert payloads(reader) == [b"a"]
    log.appender.tell(patient=True)
    reader.refresh()
    assert payloads(reader) == [b"a", b"b"]


def test_under_durable_appends_it_is_a_sync_as_any(store: Store, files: SimFiles) -> None:
    log = store.log("clicks", flush=Flush.sync())
    log.append(b"a")
    log.appender.sync_without_notifying()
    assert durable_end(log) == 1
    assert after_power_cut(files) == [b"a"]


def test_a_failure_stops_the_log_and_nothing_is_taken_for_durable(store: Store, files: SimFiles) -> None:
    log = store.log("clicks", flush=ASYNC)
    log.append(b"safe")
    log.appender.sync_without_notifying()
    log.appender.tell()
    log.append(b"doubtful")
    files.fail("sync", errno.EIO, pattern="*.data")
    with pytest.raises(WriterStopped, match="accepts no more writes"):
        log.appender.sync_without_notifying()
    log.appender.tell()
    assert durable_end(log) == 1
    for write in (lambda: log.append(b"more"), log.sync, log.appender.sync_without_notifying):
        with pytest.raises(WriterStopped):
            write()
    assert after_power_cut(files) == [b"safe"]


def test_what_others_wrote_before_the_failure_is_not_confirmed_later(store: Store, files: SimFiles) -> None:
    """The system tells of a failure once; the sync after it would succeed, and mean nothing."""
    log = store.log("clicks", flush=ASYNC)
    log.append(b"safe")
    log.sync()
    log.append(b"doubtful")
    first = begin_sync(log)
    log.append(b"written meanwhile")
    second = begin_sync(log)
    files.fail("sync", errno.EIO, pattern="*.data")
    assert not finish_sync(log, first)
    assert not finish_sync(log, second)
    with pytest.raises(WriterStopped):
        log.sync()
    assert durable_end(log) == 1


def test_what_was_confirmed_before_a_failure_is_handed_out_and_in_a_backup(store: Store, files: SimFiles) -> None:
    queue = store.queue("clicks", flush=ASYNC)
    log = queue.log
    queue.put(b"a")
    log.sync()
    queue.put(b"confirmed")
    first = begin_sync(log)
    queue.put(b"doubtful")
    second = begin_sync(log)
    assert finish_sync(log, first)  # and its thread goes on with another log, before it tells
    files.fail("sync", errno.EIO, pattern="*.data")
    assert not finish_sync(log, second)
    (cut,), _ = snapshot_logs([log])
    assert cut.end == 2
    cut.unpin()
    log.appender.tell()
    assert (log.end, durable_end(log)) == (3, 2)  # what was accepted is kept, and written again when the disk works
    assert [one.payload for one in iter(queue.get, None)] == [b"a", b"confirmed", b"doubtful"]


def test_whoever_writes_next_takes_note_of_a_sync(store: Store, reopen: Callable[..., Store]) -> None:
    """It is left to them to tell of it."""
    log = store.log("clicks", flush=ASYNC)
    log.append(b"a")
    log.appender.sync_without_notifying()
    log.append(b"b")
    log.appender.write_out()
    assert durable_end(log) == 1
    reader = reopen(read_only=True).log("clicks")
    assert reader.reader.segments(durable=True)[-1].end == 1


def test_a_log_that_was_closed_meanwhile_stays_closed(store: Store, files: SimFiles) -> None:
    log = store.log("clicks", flush=ASYNC)
    log.append(b"a")
    first = begin_sync(log)
    log.append(b"b")
    second = begin_sync(log)
    files.fail("sync", errno.EIO, pattern="*.data", times=9)
    assert not finish_sync(log, first)
    with pytest.raises(WriterStopped):
        log.close()
    assert not finish_sync(log, second)
    assert log.closed
    done = len(files.trace)
    log.appender.tell(patient=True)
    assert files.trace[done:] == []


@pytest.mark.parametrize("reached", [False, True], ids=["first sync", "later sync"])
def test_a_segment_that_was_sealed_meanwhile_needs_no_sync(store: Store, files: SimFiles, reached: bool) -> None:
    log = store.log("clicks", flush=ASYNC, roll=Roll.count(2))
    log.append(b"a")
    if reached:
        log.appender.sync_without_notifying()
    log.append(b"b")
    begun = begin_sync(log)
    log.append(b"c")
    log.sync()
    done = len(files.trace)
    assert finish_sync(log, begun)
    assert files.trace[done:] == []
    assert after_power_cut(files) == [b"a", b"b", b"c"]


# Threads on a real disk that takes its time.


@pytest.fixture
def slow() -> SlowFiles:
    return SlowFiles()


@pytest.fixture
def log(tmp_path: Path, slow: SlowFiles) -> Iterator[Log]:
    with holdfast.open(tmp_path / "data", files=slow, background=False) as store:
        log = store.log("clicks", flush=ASYNC, roll=Roll.size(4096))
        log.append(b"first")
        log.sync()
        yield log


@contextmanager
def syncing(log: Log, slow: SlowFiles) -> Iterator["Future[None]"]:
    """Inside, the disk works on all that was appended before."""
    slow.holding = True
    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(log.appender.sync_without_notifying)
        slow.await_one()
        try:
            yield result
        finally:
            if not result.done():
                slow.go_on()


def test_others_append_write_and_read_while_the_disk_works(log: Log, slow: SlowFiles) -> None:
    log.append(b"before")
    with syncing(log, slow) as result:
        log.append(b"meanwhile")
        log.appender.write_out()
        assert payloads(log) == [b"first", b"before", b"meanwhile"]
        log.appender.tell(patient=True)
        assert durable_end(log) == 1
        slow.go_on()
        result.result(PATIENCE_S)
        log.appender.tell()
        assert durable_end(log) == 2


def test_a_second_one_waits_for_the_disk_and_not_for_the_first_ones_caller(log: Log, slow: SlowFiles) -> None:
    log.append(b"a")
    with syncing(log, slow) as first, ThreadPoolExecutor(1) as pool:
        log.append(b"b")
        second = pool.submit(log.appender.sync_without_notifying)
        slow.go_on(holding=True)
        first.result(PATIENCE_S)
        slow.await_one()  # it is the second's turn, and the first is done
        assert not second.done()
        log.append(b"c")  # nobody has the I/O lock
        log.appender.write_out()
        slow.go_on()
        second.result(PATIENCE_S)
        log.appender.tell()
        assert durable_end(log) >= 3


@pytest.mark.parametrize("how", ["roll", "rest", "close"])
def test_a_file_is_not_closed_while_the_disk_works_on_it(log: Log, slow: SlowFiles, how: str) -> None:
    def roll() -> None:
        log.append(bytes(5000))
        log.appender.write_out()

    ways = {"roll": roll, "rest": lambda: log.appender.close_idle_files(at_once=True), "close": log.close}
    log.append(b"before")
    with syncing(log, slow) as result, ThreadPoolExecutor(1) as pool:
        other = pool.submit(ways[how])
        with pytest.raises(TimeoutError):
            other.result(0.2)
        slow.go_on()
        other.result(PATIENCE_S)
        result.result(PATIENCE_S)
    if how != "close":
        assert payloads(log)[:2] == [b"first", b"before"]
        log.sync()
        assert log.verify().ok


def test_what_a_thread_appended_is_on_disk_when_its_sync_returns_whatever_the_others_do(tmp_path: Path) -> None:
    files = NotingFiles()
    with holdfast.open(tmp_path / "data", files=files, background=False) as store:
        log = store.log("clicks", flush=ASYNC, roll=Roll.size(50_000))

        def work(number: int) -> list[bytes]:
            lost = []
            for turn in range(60):
                mine = b"<%d %d>" % (number, turn)
                log.append(mine + bytes(2000))
                log.appender.sync_without_notifying()
                if not files.holds(mine):
                    lost.append(mine)
                log.appender.tell(patient=bool(turn % 2))
            return lost

        with ThreadPoolExecutor(4) as pool:
            assert [one for lost in pool.map(work, range(4)) for one in lost] == []
        assert len(log.segments()) > 3
        log.appender.tell(patient=True)
        assert durable_end(log) == log.end == 240
        for number in range(4):
            mine = [one for one in payloads(log) if one.startswith(b"<%d " % number)]
            assert [int(one.split(b" ")[1].split(b">")[0]) for one in mine] == list(range(60))
        assert log.verify().ok
