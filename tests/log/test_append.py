"""Appending: sequences, keys, headers, limits, and what is refused."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

import holdfast
from holdfast import Flush, InvalidArgument, Log, Message, MessageTooLarge, Roll, Store
from holdfast.base.files import File, Mode, SystemFile, SystemFiles
from holdfast.testing import CRASH_MODES, SimClock, SimFiles
from holdfast.testing.files import CrashMode

ALL_MODES = [Flush.sync(), Flush.batch(), Flush.async_()]


@pytest.mark.parametrize("flush", ALL_MODES, ids=lambda flush: flush.mode)
def test_sequences_count_from_zero(store: Store, flush: Flush) -> None:
    log = store.log("clicks", flush=flush)
    assert [log.append(b"a"), log.append(b"b")] == [0, 1]
    assert log.append_many([b"c", b"d", b"e"]) == range(2, 5)
    assert log.append_many([]) == range(5, 5)
    assert [record.payload for record in log.read()] == [b"a", b"b", b"c", b"d", b"e"]
    assert (log.start, log.end) == (0, 5)


def test_an_empty_payload_is_a_record_like_any_other(store: Store) -> None:
    log = store.log("clicks", flush=Flush.sync())
    log.append(b"")
    log.append_many([b"", b"", b"x", b""])
    assert [record.payload for record in log.read()] == [b"", b"", b"", b"x", b""]


def test_key_and_headers_come_back_as_they_were(store: Store) -> None:
    log = store.log("clicks")
    log.append(b"hello", key=b"user-1", headers={"source": "web", "raw": b"\x00\xff", "": ""})
    log.append(b"plain")
    log.append(b"empty key", b"")
    first, second, third = log.read()
    assert (first.key, first.headers) == (b"user-1", {"source": "web", "raw": b"\x00\xff", "": ""})
    assert (second.key, second.headers) == (None, {})
    assert third.key == b""


def test_a_header_value_beyond_64_kib_is_never_cut(store: Store) -> None:
    log = store.log("clicks")
    long = "ü" * 200_000
    log.append(b"x", headers={"long": long, "bytes": b"\xff" * 70_000})
    (record,) = log.read()
    assert record.headers == {"long": long, "bytes": b"\xff" * 70_000}


def test_a_message_over_the_limit_is_refused_and_nothing_is_written(store: Store) -> None:
    log = store.log("clicks", max_message=100)
    log.append(b"x" * 100)
    for attempt in (
        lambda: log.append(b"x" * 101),
        lambda: log.append(b"x" * 50, key=b"k" * 51),
        lambda: log.append(b"", headers={"h": "v" * 100}),
        lambda: log.append_many([b"fits", b"x" * 101]),
    ):
        with pytest.raises(MessageTooLarge, match="limit of 100"):
            attempt()
    assert [len(record.payload) for record in log.read()] == [100]


def test_the_default_limit_is_10_mib(store: Store) -> None:
    log = store.log("clicks")
    log.append(bytes(10 << 20))
    with pytest.raises(MessageTooLarge):
        log.append(bytes((10 << 20) + 1))


def test_a_record_larger_than_a_segment_gets_one_of_its_own(store: Store) -> None:
    log = store.log("clicks", flush=Flush.sync(), roll=Roll.size(1000))
    for size in (10, 5000, 10):
        log.append(bytes(size))
    assert [len(record.payload) for record in log.read()] == [10, 5000, 10]
    assert log.stats().segments == 3


def test_a_buffer_may_be_changed_after_it_was_appended(store: Store) -> None:
    log = store.log("clicks")
    buffer = bytearray(b"before")
    log.append(buffer)  # type: ignore[arg-type]
    log.append_many([memoryview(buffer)])  # type: ignore[list-item]
    buffer[:] = b"after!"
    assert [record.payload for record in log.read()] == [b"before", b"before"]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("text",), "encode it first"),
        ((None,), "must be bytes"),
        ((b"x", "key"), "key must be bytes"),
        ((b"x", None, {"n": 5}), "header 'n'"),
        ((b"x", None, {5: "n"}), "name must be a str"),
        ((b"x", None, {"n": "\ud800"}), "UTF-8"),
        ((b"x", None, ["n"]), "mapping"),
    ],
)
def test_what_is_not_bytes_is_refused_with_a_hint(store: Store, arguments: tuple[object, ...], hint: str) -> None:
    log = store.log("clicks")
    with pytest.raises(InvalidArgument, match=hint):
        log.append(*arguments)  # type: ignore[arg-type]
    assert list(log.read()) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"compression": "brotli"},
        {"index_interval": 0},
        {"max_message": 0},
        {"flush": "sync"},
        {"retention": 7},
        {"no_such": 1},
    ],
)
def test_wrong_settings_are_refused_by_name(store: Store, settings: dict[str, object]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(settings))):
        store.log("clicks", **settings)  # type: ignore[arg-type]


def test_timestamps_never_go_back_even_if_the_clock_does(store: Store, clock: SimClock) -> None:
    log = store.log("clicks", flush=Flush.sync())
    log.append(b"now")
    clock.set_back(3600)
    log.append_many([b"earlier", b"earlier still"])
    clock.advance(7200)
    log.append(b"later")
    times = [record.timestamp for record in log.read()]
    assert times == sorted(times)
    assert times[3] > times[2]


def test_a_batch_is_one_block_and_so_all_or_nothing(store: Store) -> None:
    log = store.log("clicks", flush=Flush.sync(), roll=Roll.size(4096))
    log.append_many([Message(b"x" * 100, key=b"k")] * 1000)
    assert [block.count for block in log.blocks()] == [1000]


class SlowFile(SystemFile):
    """A disk that takes its time, whatever the tests run on."""

    __slots__ = ()

    def sync(self) -> None:
        time.sleep(0.002)


class SlowFiles(SystemFiles):
    def open(self, path: Path, mode: Mode) -> File:
        return SlowFile(
            os.open(path, {"r": os.O_RDONLY, "w": os.O_RDWR, "x": os.O_RDWR | os.O_CREAT | os.O_EXCL}[mode])
        )


def test_sixteen_threads_share_syncs_and_keep_their_order(tmp_path: Path) -> None:
    with holdfast.open(tmp_path, files=SlowFiles()) as store:
        log = store.log("clicks", flush=Flush.sync(), roll=Roll.count(500))
        sequences: dict[int, list[int]] = {}

        def work(thread: int) -> None:
            sequences[thread] = [log.append(b"%d:%d" % (thread, n)) for n in range(100)]

        threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        records = list(log.read())
        assert [record.sequence for record in records] == list(range(1600))
        for number, mine in sequences.items():
            assert mine == sorted(mine)
            assert [records[sequence].payload for sequence in mine] == [b"%d:%d" % (number, n) for n in range(100)]
        blocks = sum(1 for _ in log.blocks())
        assert blocks < 1600 / 3, "threads did not share their syncs"


def test_many_threads_appending_async_lose_and_invent_nothing(disk_store: Store) -> None:
    log = disk_store.log("clicks", roll=Roll.size(300_000))
    written: list[dict[int, bytes]] = [{} for _ in range(8)]

    def work(ledger: dict[int, bytes], thread: int) -> None:
        for n in range(2000):
            payload = b"%d:%d" % (thread, n)
            if n % 10:
                ledger[log.append(payload)] = payload
            else:
                for sequence in log.append_many([Message(payload, key=b"%d" % thread)] * 3):
                    ledger[sequence] = payload

    threads = [threading.Thread(target=work, args=(ledger, n)) for n, ledger in enumerate(written)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = {sequence: payload for ledger in written for sequence, payload in ledger.items()}
    assert {record.sequence: record.payload for record in log.read()} == everything
    assert log.end == len(everything) == 8 * 2400


@pytest.mark.usefixtures("without_gc_callbacks")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # interrupts inside destructors
def test_an_interrupt_in_the_middle_of_an_append_leaves_the_log_whole(disk_store: Store) -> None:
    """Signals come between any two bytecodes of the main thread, also between those of an append."""
    log = disk_store.log("clicks")
    confirmed: list[tuple[int, bytes | None]] = []

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        interrupts = 0
        enough, deadline = time.monotonic() + 1.5, time.monotonic() + 60
        while time.monotonic() < (enough if interrupts > 20 else deadline):
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.0005)
                for _ in range(5000):  # bounded: an interrupt inside a destructor is swallowed by Python
                    key = b"%d" % len(confirmed)
                    confirmed.append((log.append(b"x", key), key))
                    confirmed.append((log.append(b"y"), None))
            except KeyboardInterrupt:
                interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert interrupts > 20
    records = {record.sequence: record for record in log.read()}
    for sequence, expected in confirmed:
        assert records[sequence].key == expected
        assert records[sequence].payload == (b"x" if expected else b"y")
    assert log.verify().ok


def durable_end(log: Log) -> int:
    place = log.appender.durable_place()
    assert place is not None
    return place[2]


def test_many_threads_that_write_roll_sync_and_rest_leave_every_record_in_its_place(tmp_path: Path) -> None:
    with holdfast.open(tmp_path, background=False) as store:
        log = store.log("clicks", flush=Flush.async_(), roll=Roll.count(40))
        appending = threading.Event()
        failures: list[BaseException] = []

        def over_and_over(action: str) -> None:
            try:
                while not appending.is_set():
                    if action == "rest":
                        log.appender.close_idle_files(at_once=True)
                    else:
                        getattr(log.appender, action)()
            except BaseException as error:  # told to the test's own thread
                failures.append(error)

        actions = ("sync", "sync", "write_out", "rest")
        threads = [threading.Thread(target=over_and_over, args=(action,)) for action in actions]
        for thread in threads:
            thread.start()
        for n in range(3000):
            log.append(b"%d" % n)
            if n % 50 == 0:
                log.sync()
                assert durable_end(log) > n
        appending.set()
        for thread in threads:
            thread.join(60)
        assert not failures
        log.sync()
        assert durable_end(log) == 3000
    with holdfast.open(tmp_path) as store:
        log = store.log("clicks")
        assert [record.payload for record in log.read()] == [b"%d" % n for n in range(3000)]
        assert not log.damage


@pytest.mark.parametrize("mode", CRASH_MODES)
def test_writing_out_what_is_to_be_safe_makes_it_safe(
    store: Store, files: SimFiles, clock: SimClock, mode: CrashMode
) -> None:
    log = store.log("clicks", flush=Flush.sync())
    pending_block, _, _ = log.gather([b"1"], [], 1)
    log.appender.write_out()  # someone else does, before the caller of the append comes to it
    log.commit(pending_block)
    after = holdfast.open("data", files=files.after_crash(mode), clock=clock, background=False)
    assert [record.payload for record in after.log("clicks").read()] == [b"1"]
