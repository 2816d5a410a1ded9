"""Rare meetings of two faults, each once found by a review: none of them may cost a confirmed record."""

import _thread
import errno
import operator
import os
import signal
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

import holdfast
from holdfast import Closed, Corrupt, Flush, Message, Retention, Roll, Store, WriterStopped
from holdfast.base.checksum import crc32c
from holdfast.base.files import File, Mode, SystemFiles
from holdfast.log.block import open_block
from holdfast.log.layout import HEADER_SIZE, EncodedBlock, frame, parse_block_header
from holdfast.log.pending_block import PendingBlock, seal
from holdfast.testing import SimClock, SimFiles
from tests.log.internals import PlainFile, forget_locks, mapped_segments

Reopen = Callable[..., Store]


def payloads(store: Store) -> list[bytes]:
    return [record.payload for record in store.log("clicks").read()]


def data_file(files: SimFiles, number: int = 1) -> str:
    return next(path for path in files.snapshot() if path.endswith(f"-{number:04}.data"))


@pytest.mark.parametrize("flush", [Flush.async_(), Flush.batch()], ids=lambda flush: flush.mode)
def test_closing_drains_what_other_threads_append_meanwhile(tmp_path: Path, flush: Flush) -> None:
    for _ in range(5):
        store = holdfast.open(tmp_path)
        log = store.log("clicks", flush=flush)
        accepted: list[int] = []
        begun = threading.Event()

        def work(log: holdfast.Log = log, accepted: list[int] = accepted, begun: threading.Event = begun) -> None:
            try:
                while True:
                    accepted.append(log.append(b"x"))
                    if len(accepted) == 1000:
                        begun.set()
            except Closed:
                pass

        thread = threading.Thread(target=work)
        thread.start()
        begun.wait(30)
        store.close()
        thread.join(30)
        with holdfast.open(tmp_path, read_only=True) as reader:
            assert reader.log("clicks").end == accepted[-1] + 1


def test_an_error_while_reading_skips_nothing(store: Store, files: SimFiles) -> None:
    log = store.log("clicks", flush=Flush.sync(), roll=Roll.count(2))
    for n in range(5):
        log.append(b"%d" % n)
    tail = log.tailer()
    files.fail("open", errno.EMFILE, pattern="*.data", times=2)
    seen: list[int] = []
    while len(seen) < 5:
        try:
            record = tail.read()
            assert record is not None
            seen.append(record.sequence)
        except holdfast.StorageError:
            continue
    assert seen == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("skip", range(8))
def test_a_folder_whose_sync_failed_is_synced_by_the_next_try(files: SimFiles, clock: SimClock, skip: int) -> None:
    files.fail("sync_dir", errno.EIO, skip=skip)
    confirmed = False
    for _ in range(3):
        try:
            store = holdfast.open("data", files=files, clock=clock, background=False)
            store.log("clicks", flush=Flush.sync()).append(b"confirmed")
            confirmed = True
            break
        except holdfast.StorageError:
            forget_locks(files)
    assert confirmed
    after = holdfast.open("data", files=files.after_crash("dropped"), clock=clock, background=False)
    assert payloads(after)[-1:] == [b"confirmed"]


def test_a_tailer_whose_position_is_illegible_holds_everything_back(store: Store, files: SimFiles) -> None:
    log = store.log("clicks", flush=Flush.sync(), roll=Roll.count(1))
    for n in range(6):
        log.append(b"%d" % n)
    tail = log.tailer("slow")
    tail.read_many(3)
    tail.commit()
    files.content("data/logs/clicks/tailers/slow.json")[3] ^= 0x80
    assert log.compact(retention=Retention(max_segments=1)) == 0
    assert log.tailer("slow").position == 0


def test_a_failing_retention_fails_no_append(store: Store, files: SimFiles, reopen: Reopen) -> None:
    log = store.log("clicks", flush=Flush.sync(), roll=Roll.count(1), retention=Retention(max_segments=2))
    files.fail("remove", errno.EIO, times=3)
    for n in range(10):
        assert log.append(b"%d" % n) == n
    assert log.start == 8
    store.close()
    assert reopen().log("clicks").start == 8


def test_reading_backwards_opens_no_more_than_it_must(store: Store) -> None:
    log = store.log("clicks", flush=Flush.sync(), roll=Roll.count(1))
    for n in range(200):
        log.append(b"%d" % n)
    assert [record.sequence for record in log.read(198, reverse=True)] == [199, 198]
    assert {segment.base for segment in mapped_segments(log)} <= {198, 199}
    for n in range(200):
        assert next(log.read(n, n + 1)).sequence == n
    assert len(mapped_segments(log)) <= 64


def test_after_a_failed_fsync_the_store_can_be_opened_again(files: SimFiles, reopen: Reopen) -> None:
    with pytest.raises(WriterStopped), reopen() as store:
        log = store.log("clicks", flush=Flush.async_())
        log.append(b"x")
        files.fail("sync", errno.EIO, pattern="*.data", skip=1)
        log.sync()
    reopen().close()


def test_a_kept_position_beyond_what_survived_is_set_back(store: Store, files: SimFiles, clock: SimClock) -> None:
    log = store.log("clicks", flush=Flush.async_())
    log.append(b"kept")
    log.sync()
    log.append_many([b"lost"] * 5)
    tail = log.tailer("audit")
    assert len(tail.read_many(10)) == 6
    tail.commit()
    again = holdfast.open("data", files=files.after_crash("dropped"), clock=clock, background=False)
    log = again.log("clicks")
    log.append_many([b"new-%d" % n for n in range(8)])
    assert [record.payload for record in log.tailer("audit")] == [b"new-%d" % n for n in range(8)]


def test_sequences_of_a_segment_that_is_gone_are_not_given_again(store: Store, files: SimFiles, reopen: Reopen) -> None:
    log = store.log("clicks", flush=Flush.sync(), roll=Roll.count(3))
    for n in range(5):
        log.append(b"%d" % n)
    store.close()
    files.remove(Path(data_file(files, 2)))
    for _ in range(2):
        with reopen() as again:
            assert again.log("clicks").end == 5
    log = reopen().log("clicks")
    assert log.append(b"next") == 5
    assert [record.sequence for record in log.read()] == [0, 1, 2, 5]
    assert log.damage


def test_a_torn_block_vouches_for_what_was_durable_before_it(store: Store, files: SimFiles, clock: SimClock) -> None:
    log = store.log("clicks", flush=Flush.sync(), index_interval=1000)
    log.append_many([b"record-%d" % n for n in range(10)])
    watermark = files.snapshot()["data/logs/clicks/watermark"]
    log.append(b"this one will be torn")
    disk = files.snapshot()
    path = data_file(files)
    hit = bytearray(disk[path])
    hit[hit.index(b"record-3")] ^= 1
    hit[-8:] = bytes(8)
    # The watermark that reached the disk is from before both blocks.
    old = bytearray(watermark)
    old[16:48] = struct.pack("<QQQQ", 0, HEADER_SIZE, 0, HEADER_SIZE)
    old[60:64] = crc32c(bytes(old[:60])).to_bytes(4, "little")
    crashed = SimFiles.holding(disk | {path: bytes(hit), "data/logs/clicks/watermark": bytes(old)})
    log = holdfast.open("data", files=crashed, clock=clock, background=False).log("clicks")
    assert [record.sequence for record in log.read()] == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert log.append(b"next") == 10


def test_unidentifiable_files_at_the_end_are_all_kept(store: Store, files: SimFiles, reopen: Reopen) -> None:
    store.log("clicks", flush=Flush.sync()).append(b"x")
    store.close()
    folder = Path(data_file(files)).parent
    for number in (2, 3):
        files.open(folder / f"20260101-000{number}.data", "x").write(b"evidence %d" % number, 0)
    with reopen() as again:
        assert payloads(again) == [b"x"]
        again.log("clicks").append(b"y")
    kept = b"".join(files.snapshot().values())
    assert b"evidence 2" in kept
    assert b"evidence 3" in kept


def test_reading_goes_on_while_the_disk_is_full(store: Store, files: SimFiles) -> None:
    log = store.log("clicks", flush=Flush.async_())
    log.append(b"written")
    log.sync()
    log.append(b"waiting for room")
    files.capacity = 0
    assert [record.payload for record in log.tailer()] == [b"written"]
    files.capacity = None
    assert [record.payload for record in log.tailer()] == [b"written", b"waiting for room"]


def test_a_log_opens_on_a_full_disk_even_if_its_tail_is_torn(store: Store, files: SimFiles, clock: SimClock) -> None:
    log = store.log("clicks", flush=Flush.sync())
    log.append(b"kept")
    disk = files.snapshot()
    path = data_file(files)
    crashed = SimFiles.holding(disk | {path: disk[path] + b"torn" * 100})
    crashed.capacity = 0
    store = holdfast.open("data", files=crashed, clock=clock, background=False)
    assert payloads(store) == [b"kept"]
    crashed.capacity = None
    assert store.log("clicks").append(b"next") == 1
    store.close()
    assert b"torn" * 100 in b"".join(crashed.snapshot().values())
    again = holdfast.open("data", files=crashed, clock=clock, background=False)
    assert payloads(again) == [b"kept", b"next"]


def test_an_unreadable_index_or_watermark_keeps_no_log_from_opening(
    store: Store, files: SimFiles, reopen: Reopen
) -> None:
    store.log("clicks", flush=Flush.sync()).append(b"x")
    store.close()
    for pattern in ("*.index", "*watermark"):
        files.fail("read", errno.EIO, pattern=pattern, times=5)
        with reopen() as again:
            assert payloads(again) == [b"x"]


def hostile(
    change: Callable[[bytearray, EncodedBlock], None], **extras: dict[int, object]
) -> tuple[memoryview, EncodedBlock]:
    """A block whose checksums are right and whose columns lie."""
    pending_block = PendingBlock(0, 0, 0)
    pending_block.payloads, pending_block.times = [b"a" * 600, b"b" * 600], [1, 1]
    pending_block.extras = dict(extras)
    sealed = seal(pending_block, 0, None)
    columns = bytearray(sealed.columns)
    change(columns, sealed)
    sealed = sealed._replace(columns=bytes(columns), columns_crc=crc32c(bytes(columns)))
    return memoryview(bytes(HEADER_SIZE) + b"".join(frame(sealed, HEADER_SIZE, 0, 1))), sealed


def opened(memory: memoryview) -> holdfast.Block:
    header = parse_block_header(memory, HEADER_SIZE, HEADER_SIZE, len(memory))
    assert header is not None
    return open_block(memory, header)


@pytest.mark.parametrize("end", [-1, 2**31 - 1, 5])
def test_lying_lengths_are_corrupt_and_allocate_nothing(end: int) -> None:
    def last_offset(columns: bytearray, _: EncodedBlock) -> None:
        struct.pack_into("<i", columns, 8, end)

    with pytest.raises(Corrupt):
        opened(hostile(last_offset)[0])


def test_lying_row_counts_are_corrupt() -> None:
    def rows(columns: bytearray, _: EncodedBlock) -> None:
        struct.pack_into("<i", columns, 16 + 8 + 8, -1)

    with pytest.raises(Corrupt):
        opened(hostile(rows, headers={0: {"a": "b"}})[0])


def test_offsets_that_do_not_ascend_never_reach_arrow() -> None:
    def middle(columns: bytearray, _: EncodedBlock) -> None:
        struct.pack_into("<i", columns, 4, 1 << 30)

    block = opened(hostile(middle)[0])
    with pytest.raises(Corrupt, match="offsets"):
        block.to_arrow()


def test_a_header_that_is_no_text_does_not_block_a_reader() -> None:
    def spoil(columns: bytearray, _: EncodedBlock) -> None:
        columns[columns.index(b"name")] = 0xFF

    (first, _) = opened(hostile(spoil, headers={0: {"name": "value"}})[0]).records()
    assert list(first.headers.values()) == ["value"]


def test_large_batches_with_keys_and_headers_come_back_slice_by_slice(store: Store) -> None:
    log = store.log("clicks")
    log.append_many(
        [
            Message(b"%d" % n, key=b"k%d" % n if n % 3 else None, headers={"n": str(n)} if n % 2 else None)
            for n in range(9000)
        ]
    )
    tail = log.tailer()
    for n, record in enumerate(tail):
        assert (record.payload, record.key) == (b"%d" % n, b"k%d" % n if n % 3 else None)
        assert record.headers == ({"n": str(n)} if n % 2 else {})
    assert tail.position == 9000


@pytest.mark.parametrize("missing", [16, 20])
def test_a_shortened_segment_is_not_written_upon_however_often_it_is_opened(
    store: Store, files: SimFiles, clock: SimClock, missing: int
) -> None:
    log = store.log("clicks", flush=Flush.sync())
    for n in range(10):
        log.append(b"%d" % n)
    disk = files.snapshot()
    path = data_file(files)
    end = log.segments()[-1].bytes  # behind it are zeros that the writer keeps ready
    cut = SimFiles.holding(disk | {path: disk[path][: end - missing]})
    for _ in range(2):
        holdfast.open("data", files=cut, clock=clock, background=False).log("clicks").close()
        cut = cut.after_crash("prefix")
    log = holdfast.open("data", files=cut, clock=clock, background=False).log("clicks", flush=Flush.sync())
    assert [log.append(b"new") for _ in range(5)] == [10, 11, 12, 13, 14]
    assert [record.sequence for record in log.read()] == [*range(9), 10, 11, 12, 13, 14]


def test_what_recovery_keeps_is_durable_even_if_the_torn_tail_must_stay(store: Store, files: SimFiles) -> None:
    log = store.log("clicks", flush=Flush.async_())
    log.append_many([b"synced"] * 5)
    log.sync()
    log.append_many([b"written"] * 5)
    log.refresh()
    file = files.open(Path(data_file(files)), "w")
    file.write(b"torn" * 30, file.size())
    forget_locks(files)
    files.fail("*", errno.ENOSPC, pattern="*.torn*", times=3)
    again = holdfast.open("data", files=files, clock=SimClock(), background=False)
    seen = payloads(again)
    again.log("clicks").sync()
    after = holdfast.open("data", files=files.after_crash("dropped"), clock=SimClock(), background=False)
    assert payloads(after) == seen
    assert len(seen) == 10


def test_a_torn_tail_that_does_not_fit_aside_takes_no_room(store: Store, files: SimFiles, clock: SimClock) -> None:
    store.log("clicks", flush=Flush.sync()).append(b"kept")
    disk = files.snapshot()
    path = data_file(files)
    crashed = SimFiles.holding(disk | {path: disk[path] + b"torn" * 25_000})
    crashed.capacity = sum(map(len, crashed.snapshot().values())) + 50_000
    log = holdfast.open("data", files=crashed, clock=clock, background=False).log("clicks", flush=Flush.sync())
    assert log.append(b"next") == 1
    assert not [name for name in crashed.snapshot() if name.endswith(".tmp")]


def test_closing_lets_go_of_every_file(tmp_path: Path) -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = open_files()
    for _ in range(5):
        with holdfast.open(tmp_path) as store:
            store.log("clicks", flush=Flush.sync()).append(b"x")
            assert payloads(store)
        with holdfast.open(tmp_path, read_only=True) as store:
            assert payloads(store)
    assert open_files() <= before + 1


def test_after_a_failed_sync_a_named_tailer_repeats_nothing(store: Store, files: SimFiles) -> None:
    log = store.log("clicks", flush=Flush.async_())
    log.append_many([b"x"] * 5)
    tail = log.tailer("audit")
    assert len(tail.read_many(10)) == 5
    tail.commit()
    files.fail("sync", errno.EIO, pattern="*.data")
    with pytest.raises(WriterStopped):
        log.sync()
    assert log.tailer("audit").read() is None


def test_segments_made_after_crashes_never_share_an_id(files: SimFiles, clock: SimClock) -> None:
    ids = []
    for _ in range(3):
        log = holdfast.open("data", files=files, clock=clock, background=False).log("clicks", roll=Roll.count(1))
        log.append(b"x")
        log.sync()
        ids += [segment.segment_id for segment in log.reader.segments()[-1:]]
        files = files.after_crash("dropped", seed=1)
    assert len(set(ids)) == 3


class Interrupted(SystemFiles):
    """A disk that tells of a failed fdatasync once, while someone presses Ctrl-C; or only of the latter."""

    def __init__(self) -> None:
        self.next: list[Callable[[], object]] = []

    def open(self, path: Path, mode: Mode) -> File:
        disk = self

        class OnIt(PlainFile):
            __slots__ = ()

            def sync(self) -> None:
                if path.suffix == ".data" and disk.next:
                    calls, disk.next = disk.next, []
                    # Without a step of the interpreter between the two, as in one call of the system.
                    deque(map(operator.call, calls), 0)

        flags = {"r": os.O_RDONLY, "w": os.O_RDWR, "x": os.O_RDWR | os.O_CREAT | os.O_EXCL}
        return OnIt(os.open(path, flags[mode] | os.O_CLOEXEC, 0o644))


@pytest.fixture
def plain_interrupts() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt, whatever those who ran in this process before, as Spark, have made of it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before or signal.default_int_handler)


@pytest.mark.usefixtures("plain_interrupts")
def test_a_failure_of_the_disk_is_known_though_a_signal_comes_before_it_can_be_said(tmp_path: Path) -> None:
    disk = Interrupted()
    store = holdfast.open(tmp_path, files=disk, background=False)
    log = store.log("clicks", flush=Flush.sync())
    log.append(b"safe")
    disk.next = [_thread.interrupt_main, partial(os.fdatasync, 1 << 30)]
    with pytest.raises((KeyboardInterrupt, WriterStopped)):
        log.append(b"not safe")
    assert not disk.next
    for _ in range(2):
        with pytest.raises(WriterStopped, match="fdatasync failed"):
            log.append(b"who can say")
    store.ending.detach_after_fork()


@pytest.mark.usefixtures("plain_interrupts")
def test_an_interrupted_flush_does_not_keep_what_is_written_at_hand_for_good(tmp_path: Path) -> None:
    disk = Interrupted()
    with holdfast.open(tmp_path, files=disk, background=False) as store:
        queue = store.queue("work", flush=Flush.async_())
        queue.log.appender.limit_recent(1 << 20)
        queue.put(b"0")
        queue.sync()
        queue.put(b"1")
        disk.next = [_thread.interrupt_main]
        with pytest.raises(KeyboardInterrupt):
            queue.log.sync()
        for _ in range(50):
            queue.put(bytes(100_000))
            queue.log.sync()
        assert queue.log.recent.bytes <= 1 << 20
