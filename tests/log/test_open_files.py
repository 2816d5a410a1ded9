"""Logs whose files are closed while others need the room: nothing is lost by it, and nobody notices."""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Closed, Flush, Log, Roll, StorageError, Store, WriterStopped
from holdfast.base.open_files import OPEN_FILES, OpenFileLimit
from holdfast.log.background import BackgroundWorker
from holdfast.log.consumer_offsets import OffsetStore, Position, place_of
from holdfast.log.snapshot import snapshot_logs
from holdfast.testing import CRASH_MODES, SimClock, SimFiles, crash_points
from holdfast.testing.files import CrashMode
from tests.log.internals import file_lock

ASYNC = Flush.async_()
SYNC = Flush.sync()


@pytest.fixture(autouse=True)
def one_awake(files: SimFiles, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One log at a time has its files open; those of other tests have nothing to do with it."""
    OPEN_FILES.forget()
    monkeypatch.setattr(OPEN_FILES, "most", 1)
    files.open_limit.most = 1
    yield
    OPEN_FILES.forget()


def payloads(log: Log) -> list[bytes]:
    return [record.payload for record in log.read()]


def open_files(folder: Path) -> list[str]:
    found = []
    for fd in Path("/proc/self/fd").iterdir():
        try:
            name = str(fd.readlink())
        except OSError:  # it was the one that lists them
            continue
        if name.startswith(str(folder)) and name.endswith((".data", ".index", "watermark")):
            found.append(name)
    return found


def name_of(files: SimFiles, log: str, suffix: str) -> str:
    return next(path for path in files.snapshot() if f"logs/{log}/" in path and path.endswith(suffix))


# Descriptors.


@pytest.mark.parametrize("flush", [SYNC, ASYNC, Flush.batch(bytes=64, interval=1)], ids=lambda one: one.mode)
def test_as_many_logs_as_one_likes_have_the_files_of_one_open(tmp_path: Path, flush: Flush) -> None:
    with holdfast.open(
        tmp_path, background=False
    ) as store:  # a ticker that writes another one at the moment has its own
        logs = [store.log(f"log{n}", flush=flush) for n in range(20)]
        for turn in range(3):
            for log in logs:
                assert log.append(b"%d" % turn) == turn
                log.appender.write_out()
                assert len(open_files(tmp_path)) <= 3
        assert all(payloads(log) == [b"0", b"1", b"2"] for log in logs)
    with holdfast.open(tmp_path) as store:
        assert all(payloads(store.log(f"log{n}")) == [b"0", b"1", b"2"] for n in range(20))


def test_opening_and_closing_a_log_that_nobody_writes_opens_no_file_for_writing(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        store.log("clicks").append(b"1")
    with holdfast.open(tmp_path) as store:
        log = store.log("clicks", flush=SYNC)
        assert payloads(log) == [b"1"]
        log.page_out()
        segment, *rest = open_files(tmp_path)
        assert segment.endswith(".data") and not rest  # the mapping that was read from
        assert len(OPEN_FILES) == 0


def test_how_many_may_have_open_files_follows_from_the_limit_of_the_process(tmp_path: Path) -> None:
    open_limit = OpenFileLimit()
    asked: list[bool] = []

    def close(*, at_once: bool) -> None:
        asked.append(at_once)

    for key in range(200_000 // 8):
        open_limit.admit(key, lambda: close)
        if asked:
            break
    assert 16 <= key <= 4096


def test_what_was_used_lately_is_asked_after_what_was_not(disk_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPEN_FILES, "most", 3)
    old, busy, other, late = (disk_store.log(name, flush=SYNC) for name in ("old", "busy", "other", "late"))
    for log in (old, busy, other):
        log.append(b"1")
    late.append(b"1")  # all were used, so the first closes its files, and the others have had their second chance
    busy.append(b"2")
    old.append(b"2")  # among those with open files only `busy` was used since
    folders = {Path(name).relative_to(disk_store.path).parts[1] for name in open_files(disk_store.path)}
    assert "busy" in folders and len(folders) == 3


def test_a_log_that_nobody_has_any_more_makes_room() -> None:
    open_limit = OpenFileLimit()
    open_limit.most = 1
    open_limit.admit(1, lambda: None)
    open_limit.admit(2, lambda: None)
    assert len(open_limit) == 1


# What rests has nothing to lose.


@pytest.mark.parametrize("mode", CRASH_MODES)
def test_what_rests_was_on_disk_before(store: Store, files: SimFiles, clock: SimClock, mode: CrashMode) -> None:
    log = store.log("clicks", flush=ASYNC)
    log.append(b"1")
    log.appender.write_out()
    store.log("other", flush=SYNC).append(b"2")
    after = files.after_crash(mode)
    assert payloads(holdfast.open("data", files=after, clock=clock, background=False).log("clicks")) == [b"1"]


def test_what_is_only_gathered_is_written_when_the_log_wakes(store: Store) -> None:
    log = store.log("clicks", flush=ASYNC)
    log.append(b"1")
    log.appender.write_out()
    log.append(b"2")
    store.log("other", flush=SYNC).append(b"x")
    assert payloads(log) == [b"1", b"2"]


def test_when_the_disk_fails_before_a_log_rests_that_log_stops_and_the_other_goes_on(
    store: Store, files: SimFiles
) -> None:
    log, other = store.log("clicks", flush=ASYNC), store.log("other", flush=SYNC)
    log.append(b"1")
    log.appender.write_out()
    files.fail("sync", errno.EIO, pattern="*clicks*")
    assert other.append(b"x") == 0
    with pytest.raises(WriterStopped, match="fdatasync failed"):
        log.append(b"2")
    assert other.append(b"y") == 1
    store.log("third", flush=SYNC).append(b"z")
    assert len(files.open_limit) == 1


def test_a_log_rests_only_between_writes(store: Store, files: SimFiles) -> None:
    log = store.log("clicks", flush=SYNC)
    log.append(b"1")
    with file_lock(log):
        log.appender.close_idle_files(at_once=True)
        assert len(files.open_limit) == 1
    log.appender.close_idle_files(at_once=True)
    assert len(files.open_limit) == 0


def test_what_happens_on_one_disk_is_no_matter_of_another(tmp_path: Path, store: Store, files: SimFiles) -> None:
    log = store.log("clicks", flush=ASYNC)
    log.append(b"1")
    log.appender.write_out()
    files.crash_at(files.operations + 1)
    with holdfast.open(tmp_path / "elsewhere", background=False) as other:
        for name in "abc":
            other.log(name, flush=SYNC).append(b"asks those to rest that take descriptors as it does")
    assert len(files.open_limit) == 1


def test_too_many_open_files_fail_one_append_and_no_more(store: Store, files: SimFiles) -> None:
    log = store.log("clicks", flush=SYNC)
    log.append(b"1")
    log.appender.close_idle_files(at_once=True)
    files.fail("open", errno.EMFILE, pattern="*.index")
    with pytest.raises(StorageError):
        log.append(b"2")
    assert log.append(b"3") == 1
    assert payloads(log) == [b"1", b"3"]


def test_zeros_that_were_written_ahead_are_there_when_the_log_wakes_and_gone_when_it_is_closed(
    store: Store, files: SimFiles
) -> None:
    log = store.log("clicks", flush=SYNC)
    for n in range(20):
        log.append(b"%d" % n)
    before = len(files.content(name_of(files, "clicks", ".data")))
    log.appender.close_idle_files(at_once=True)
    log.append(b"20")
    assert len(files.content(name_of(files, "clicks", ".data"))) == before > log.segments()[-1].bytes
    log.appender.close_idle_files(at_once=True)
    end = log.segments()[-1].bytes
    store.close()
    assert len(files.content(name_of(files, "clicks", ".data"))) == end


def test_a_log_that_rested_rolls_and_seals_as_any_other(store: Store, reopen: Callable[..., Store]) -> None:
    log = store.log("clicks", flush=SYNC, roll=Roll.count(3), index_interval=1)
    for n in range(10):
        log.append(b"%d" % n)
        log.appender.close_idle_files(at_once=True)
    assert [segment.records for segment in log.segments()] == [3, 3, 3, 1]
    assert not log.verify().damage
    store.close()
    log = reopen().log("clicks")
    assert payloads(log) == [b"%d" % n for n in range(10)]
    assert all(segment.index.sealed for segment in log.reader.segments())


# What others do to its files meanwhile.


def test_an_index_that_was_taken_away_meanwhile_is_made_anew(
    store: Store, files: SimFiles, reopen: Callable[..., Store]
) -> None:
    log = store.log("clicks", flush=SYNC, index_interval=1)
    for n in range(5):
        log.append(b"%d" % n)
    index = name_of(files, "clicks", ".index")
    before = bytes(files.content(index))
    log.appender.close_idle_files(at_once=True)
    files.remove(Path(index))
    log.append(b"5")
    assert bytes(files.content(index)).startswith(before)
    store.close()
    assert not reopen().log("clicks").verify().damage


def test_a_segment_that_was_cut_meanwhile_takes_no_more_writes(store: Store, files: SimFiles) -> None:
    log = store.log("clicks", flush=SYNC)
    log.append(b"1")
    log.appender.close_idle_files(at_once=True)
    del files.content(name_of(files, "clicks", ".data"))[70:]
    with pytest.raises(WriterStopped, match="was truncated to 70 bytes"):
        log.append(b"2")


def test_a_reader_beside_it_sees_what_was_written_before_and_after(store: Store, reopen: Callable[..., Store]) -> None:
    log = store.log("clicks", flush=SYNC)
    log.append(b"1")
    log.appender.close_idle_files(at_once=True)
    reader = reopen(read_only=True).log("clicks")
    assert payloads(reader) == [b"1"]
    log.append(b"2")
    assert payloads(reader) == [b"1", b"2"]


# Crashes.


class TakingTurns:
    """Logs that wake and rest in turns, and what of them must be there after a crash."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.confirmed: dict[str, list[bytes]] = {"sync": [], "async": [], "rolls": []}

    def run(self, files: SimFiles) -> None:
        files.open_limit = OpenFileLimit(1)
        store = holdfast.open("data", files=files, clock=self.clock, background=False)
        rolls, late = store.log("rolls", flush=SYNC, roll=Roll.count(2)), store.log("async", flush=ASYNC)
        for turn in range(3):
            payload = b"%d" % turn
            late.append(payload)
            late.appender.write_out()
            rolls.append(payload)
            assert len(files.open_limit) == 1  # so the other one rests, and all of it is on disk
            self.confirmed["async"].append(payload)
            self.confirmed["rolls"].append(payload)
            store.log("sync", flush=SYNC).append(payload)
            self.confirmed["sync"].append(payload)
        store.close()

    def check(self, files: SimFiles) -> None:
        files.open_limit = OpenFileLimit(1)
        store = holdfast.open("data", files=files, clock=self.clock, background=False)
        for name, confirmed in self.confirmed.items():
            log = store.log(name, flush=SYNC)
            found = payloads(log)
            assert found[: len(confirmed)] == confirmed
            assert not log.damage
            assert log.append(b"more") == len(found)
            assert payloads(log) == [*found, b"more"]


def test_no_crash_while_logs_wake_and_rest_loses_anything() -> None:
    assert crash_points(TakingTurns) > 200


def test_these_crashes_are_noticed_where_a_sync_does_nothing() -> None:
    with pytest.raises(AssertionError):
        crash_points(TakingTurns, files=lambda seed: SimFiles(seed, lose_syncs=True))


# Threads and processes.


def test_many_threads_on_many_logs_wait_for_nobody_in_a_circle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPEN_FILES, "most", 2)
    failures: list[BaseException] = []
    with holdfast.open(tmp_path) as store:
        logs = [store.log(f"log{n}", flush=ASYNC if n % 2 else SYNC) for n in range(8)]

        def append(start: int) -> None:
            try:
                for n in range(120):
                    log = logs[(start * 3 + n) % len(logs)]
                    log.append(b"%d" % start)
                    log.appender.write_out()
            except BaseException as failure:
                failures.append(failure)

        def cut() -> None:
            try:
                for _ in range(40):
                    for one in snapshot_logs(logs)[0]:
                        assert one is not None
                        one.settle()
                        one.unpin()
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=append, args=(n,), daemon=True) for n in range(4)]
        threads.append(threading.Thread(target=cut, daemon=True))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert not any(thread.is_alive() for thread in threads)
        assert not failures
        assert sum(log.end for log in logs) == 4 * 120
        assert all(len(payloads(log)) == log.end for log in logs)
        assert len(OPEN_FILES) <= 2 + len(threads)
    with holdfast.open(tmp_path) as store:
        assert sum(len(payloads(store.log(f"log{n}"))) for n in range(8)) == 4 * 120


def test_a_forked_child_lets_the_logs_of_its_parent_alone(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "parent") as store:
        log = store.log("clicks", flush=ASYNC)
        log.append(b"1")
        log.appender.write_out()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with holdfast.open(tmp_path / "child") as other:
                    other.log("clicks", flush=SYNC).append(b"2")
                    with pytest.raises(Closed):
                        log.append(b"3")
                    status = 0 if len(OPEN_FILES) == 1 else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        log.append(b"4")
        assert payloads(log) == [b"1", b"4"]


# What opening need not write.


def test_where_a_log_ended_is_kept_for_a_queue_before_its_numbers_are_given_again(
    files: SimFiles, reopen: Callable[..., Store]
) -> None:
    store = reopen()
    queue = store.queue("orders", flush=SYNC)
    queue.put(b"1")
    store.close()
    place = next(path for path in files.snapshot() if "/tailers/" in path)
    before = files.snapshot()[place]
    store = reopen()
    log = store.log("orders", flush=SYNC)
    assert log.positions.get(place_of("orders")) == Position(
        place_of("orders"), 0, OffsetStore(files, log.folder, log.id).all()[0].committed_at, survived=1
    )
    assert files.snapshot()[place] == before  # it ends where it ended: who opens it again learns the same
    log.append(b"2")
    assert b'"survived": 1' in files.snapshot()[place]


def test_a_queue_that_is_opened_again_writes_nothing_that_is_there_already(
    files: SimFiles, reopen: Callable[..., Store]
) -> None:
    store = reopen()
    store.queue("orders").put(b"1")
    store.close()
    before = {path: content for path, content in files.snapshot().items() if "LOCK" not in path}
    store = reopen()
    assert store.queue("orders").waiting() == 1
    store.close()
    assert {path: content for path, content in files.snapshot().items() if "LOCK" not in path} == before


def test_a_queue_that_was_deleted_meanwhile_gets_no_place_again(files: SimFiles, reopen: Callable[..., Store]) -> None:
    store = reopen()
    store.queue("orders", log="all").put(b"1")
    store.queue("bills", log="all")
    store.close()
    store = reopen()
    log = store.log("all", flush=SYNC)
    store.delete_queue("orders")
    log.append(b"2")
    assert [kept.name for kept in log.positions.all()] == [place_of("bills")]


# Who is asked.


class Sleeper:
    """Counts how often it was asked."""

    def __init__(self, name: str, *delays: float) -> None:
        self.name = name
        self.fields: dict[str, str] = {}
        self.asked = threading.Semaphore(0)
        self.count = 0
        self._delays = list(delays)

    def tick(self) -> float | None:
        self.count += 1
        self.asked.release()
        return self._delays.pop(0) if self._delays else None


def test_only_who_rings_or_is_due_is_asked() -> None:
    everyone = {name: Sleeper(name) for name in ("a", "b", "c")}
    everyone["b"]._delays = [0.01, 0.01, 0.01]
    ticker = BackgroundWorker(everyone.values, lambda name: [everyone[name]])
    ticker.wake()
    for _ in range(4):
        assert everyone["b"].asked.acquire(timeout=60)
    assert everyone["a"].asked.acquire(timeout=60)
    for _ in range(5):
        ticker.wake("a")
        assert everyone["a"].asked.acquire(timeout=60)
    ticker.stop()
    assert (everyone["a"].count, everyone["b"].count, everyone["c"].count) == (6, 4, 1)


def test_who_rings_without_a_name_rings_for_all() -> None:
    everyone = [Sleeper("a"), Sleeper("b")]
    ticker = BackgroundWorker(lambda: everyone)
    ticker.wake("a")
    assert all(one.asked.acquire(timeout=60) for one in everyone)
    ticker.wake()
    assert all(one.asked.acquire(timeout=60) for one in everyone)
    ticker.stop()


def test_what_it_said_last_counts() -> None:
    one = Sleeper("a", 3600, 0.01, 3600)
    ticker = BackgroundWorker(lambda: [one], lambda name: [one])
    ticker.wake()
    assert one.asked.acquire(timeout=60)
    ticker.wake("a")
    assert one.asked.acquire(timeout=60)
    assert one.asked.acquire(timeout=60)  # by its own clock
    ticker.stop()
    assert one.count == 3


def test_what_was_made_durable_untold_is_told_also_when_the_log_rests_by_then(
    store: Store, reopen: Callable[..., Store]
) -> None:
    log = store.log("quiet", flush=ASYNC)
    log.append(b"a")
    log.sync()
    reader = reopen(read_only=True).log("quiet")
    log.append(b"b")
    log.appender.sync_without_notifying()
    store.log("loud", flush=ASYNC).append_many([b"x"])
    store.log("loud").sync()  # there is room for one
    log.appender.tell()
    reader.refresh()
    assert payloads(reader) == [b"a", b"b"]
    log.close()
    log.appender.tell()  # nobody is left to be told
