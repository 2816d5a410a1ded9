"""A full disk: acks and leases go on, history goes first, and all is well again when there is room."""

import errno
import logging
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import DiskFull, Flush, Queue, Roll, StorageError, Store
from holdfast.testing import SimClock, SimFiles

MIB = 1 << 20


@pytest.fixture
def files() -> SimFiles:
    files = SimFiles()
    files.capacity = 4 * MIB
    return files


def used(files: SimFiles) -> int:
    return sum(map(len, files.snapshot().values()))


def fill(queue: Queue, size: int = 4096) -> int:
    """Put until nothing more goes in; how many messages did."""
    count = 0
    try:
        while True:
            queue.put(os.urandom(size))
            count += 1
    except DiskFull:
        pass
    if queue.log.settings.flush.mode != "sync":
        try:
            while True:  # what is accepted waits in memory, until that is full too
                queue.put(b"x" * size)
        except DiskFull:
            pass
    return count


@pytest.mark.parametrize("history", ["kept", "shortened"])
def test_all_that_was_put_can_be_leased_and_acked_on_a_full_disk(
    store: Store, files: SimFiles, clock: SimClock, history: str
) -> None:
    queue = store.queue("orders", lease=3600, shorten_history=history == "shortened", roll=Roll.size(MIB))
    store.tick()
    assert "data/reserve" in files.snapshot()
    count = fill(queue)
    assert count > 500
    assert used(files) > 0.9 * 4 * MIB
    acked = 0
    for _ in range(count):
        message = queue.get()
        assert message is not None
        assert message.ack()
        acked += 1
    assert acked == count
    assert queue.stats().ready == 0


def test_puts_are_refused_while_what_is_free_is_for_journals_and_go_on_after(
    store: Store, files: SimFiles, clock: SimClock, caplog: pytest.LogCaptureFixture
) -> None:
    queue = store.queue("orders", lease=3600, shorten_history=False)
    store.tick()
    reserve = len(files.snapshot()["data/reserve"])
    count = fill(queue)
    with caplog.at_level(logging.WARNING, "holdfast"):
        while not store.disk_full:
            queue.ack(queue.lease(1))
    assert "disk full" in caplog.text
    assert 0 < len(files.snapshot()["data/reserve"]) < reserve, "given up step by step"
    assert store.metrics.gauge("holdfast_store_disk_full", "").value == 1
    with pytest.raises(DiskFull):
        queue.put(b"x")
    with pytest.raises(DiskFull):
        store.log("other", flush=Flush.sync()).append(b"x")
    store.tick()
    with pytest.raises(DiskFull):
        queue.put(b"x")
    assert files.capacity is not None
    files.capacity += 4 * MIB
    clock.advance(2)
    store.tick()
    assert store.metrics.gauge("holdfast_store_disk_full", "").value == 0
    assert "data/reserve" in files.snapshot()
    assert queue.put(b"y") >= count


def test_history_goes_first_and_that_is_said(store: Store, files: SimFiles, caplog: pytest.LogCaptureFixture) -> None:
    queue = store.queue("orders", lease=3600, roll=Roll.size(256 << 10))
    store.tick()
    for _ in range(500):
        queue.put(os.urandom(4096))
        queue.ack(queue.lease(1))
    queue.checkpoint()
    assert queue.log.start == 0
    with caplog.at_level(logging.WARNING, "holdfast"):
        for _ in range(700):
            queue.put(os.urandom(4096))
    assert "history shortened: log=orders" in caplog.text
    assert queue.log.start > 0
    assert not store.disk_full
    abbreviate = store.metrics.counter("holdfast_store_history_shortened_bytes_total", "").value
    assert abbreviate >= 500_000
    assert queue.stats().ready == 700


def ack_all(queue: Queue) -> int:
    """Ack one by one until nothing is left; how many."""
    count = 0
    while (message := queue.get()) is not None:
        assert message.ack()
        count += 1
    return count


@pytest.mark.parametrize("flush", [Flush.sync(), Flush.async_()], ids=["sync", "async"])
def test_puts_go_on_when_all_is_acked_though_all_is_in_the_segment_being_written(
    store: Store, files: SimFiles, clock: SimClock, flush: Flush
) -> None:
    queue = store.queue("orders", lease=3600, flush=flush)
    other = store.queue("other", flush=Flush.sync())
    store.tick()
    count = fill(queue)
    assert len(queue.log.segments()) == 1
    assert ack_all(queue) >= count
    for _ in range(3):
        clock.advance(2)
        store.tick()
    assert not store.disk_full
    assert used(files) < 2 * MIB
    queue.put(b"again")
    other.put(b"there too")
    assert [one.payload for one in queue.lease(10)] == [b"again"]
    assert fill(queue) > 300, "there is room for more than a few"


def test_a_log_sheds_the_segment_that_it_is_writing_as_soon_as_a_put_finds_no_room(
    store: Store, files: SimFiles, caplog: pytest.LogCaptureFixture
) -> None:
    queue = store.queue("orders", lease=3600)
    store.tick()
    for _ in range(700):
        queue.put(os.urandom(4096))
    queue.ack(queue.lease(700))
    queue.checkpoint()
    with caplog.at_level(logging.WARNING, "holdfast"):
        queue.put_many([os.urandom(4096) for _ in range(500)])  # at once, without a tick
    assert "history shortened: log=orders" in caplog.text
    assert queue.log.start == 700
    assert queue.stats().ready == 500
    assert not store.disk_full


def test_ids_of_messages_that_went_for_a_full_disk_are_known_after_a_crash(
    store: Store, files: SimFiles, clock: SimClock
) -> None:
    queue = store.queue("orders", lease=3600, dedup_window=3600)
    store.tick()
    first = queue.put(b"x", dedup="a")
    fill(queue)
    ack_all(queue)
    clock.advance(2)
    store.tick()
    assert queue.log.start > first
    crashed = files.after_crash("dropped")
    again = holdfast.open("data", files=crashed, clock=clock, background=False).queue("orders", dedup_window=3600)
    assert again.put(b"x", dedup="a") == first


@pytest.mark.parametrize("flush", [Flush.sync(), Flush.async_()], ids=["sync", "async"])
@pytest.mark.parametrize("seed", range(4))
def test_nothing_comes_again_after_a_crash_where_acked_messages_went_for_a_full_disk(
    store: Store, files: SimFiles, clock: SimClock, flush: Flush, seed: int
) -> None:
    queue = store.queue("orders", lease=3600, flush=flush)
    store.tick()
    queue.put_many([b"x"] * 10)
    queue.ack(queue.lease(4))
    queue.checkpoint()
    fill(queue)
    ack_all(queue)
    clock.advance(2)
    store.tick()
    end = queue.log.start
    assert end > 10
    for mode in ("dropped", "prefix", "reordered"):
        crashed = files.after_crash(mode, seed)
        crashed.capacity = None
        again = holdfast.open("data", files=crashed, clock=clock, background=False).queue("orders", flush=flush)
        assert again.lease(10) == []
        assert again.put(b"y") >= end, "a number is not given twice"


def test_a_queue_that_wants_its_whole_history_keeps_it(store: Store, files: SimFiles) -> None:
    queue = store.queue("orders", lease=3600, roll=Roll.size(256 << 10), shorten_history=False)
    store.tick()
    for _ in range(500):
        queue.put(os.urandom(4096))
        queue.ack(queue.lease(1))
    queue.checkpoint()
    fill(queue)
    assert queue.log.start == 0


def test_the_room_stays_with_a_store_that_is_closed(
    store: Store, files: SimFiles, reopen: Callable[..., Store]
) -> None:
    store.queue("orders").put(b"x")
    store.tick()
    size = len(files.snapshot()["data/reserve"])
    assert size >= 64 << 10
    for _ in range(5):
        store.close()
        assert len(files.snapshot()["data/reserve"]) == size
        store = reopen()
        fill(store.queue("orders", lease=3600))
        store.tick()
    assert len(files.snapshot()["data/reserve"]) == size, "also on a full disk"
    assert files.capacity is not None
    files.capacity *= 4
    store.close()
    store = reopen()
    store.tick()
    assert len(files.snapshot()["data/reserve"]) > size, "and grows with the room there is"


@pytest.mark.parametrize("ends", ["closed", "crashed"])
def test_a_full_disk_is_remembered_when_the_store_is_opened_again(
    store: Store, files: SimFiles, clock: SimClock, ends: str
) -> None:
    queue = store.queue("orders", lease=3600, shorten_history=False)
    store.tick()
    count = fill(queue)
    while not store.disk_full:
        queue.ack(queue.lease(1))
    for _ in range(3):
        if ends == "closed":
            store.close()
        else:
            capacity, files = files.capacity, files.after_crash("prefix")
            files.capacity = capacity
        store = holdfast.open("data", files=files, clock=clock, background=False)
        queue = store.queue("orders", lease=3600, shorten_history=False)
        store.tick()
        assert store.disk_full
        with pytest.raises(DiskFull):
            queue.put(b"x")
        with pytest.raises(DiskFull):
            store.log("other", flush=Flush.sync()).append(b"x")
        queue.ack(queue.lease(5))
    assert ack_all(queue) > count // 2
    assert files.capacity is not None
    files.capacity += 4 * MIB
    clock.advance(2)
    store.tick()
    assert not store.disk_full
    queue.put(b"y")


def test_a_reserve_of_an_earlier_version_is_taken_over(
    store: Store, files: SimFiles, reopen: Callable[..., Store]
) -> None:
    store.queue("orders").put(b"x")
    store.close()
    files.allocate(Path("data/reserve"), 100_000)
    store = reopen()
    store.queue("orders")
    assert not store.disk_full
    store.tick()
    assert len(files.snapshot()["data/reserve"]) >= 100_000


def test_a_reserve_that_somebody_deleted_is_made_again(store: Store, files: SimFiles) -> None:
    store.queue("orders").put(b"x")
    store.tick()
    files.remove(Path("data/reserve"))
    store.tick()
    assert len(files.snapshot()["data/reserve"]) >= 64 << 10


@pytest.mark.parametrize("reserve", ["held", "used up"])
def test_the_state_is_read_again_on_a_full_disk(store: Store, files: SimFiles, reserve: str) -> None:
    queue = store.queue("orders", lease=3600, shorten_history=False)
    store.tick()
    queue.put_many([b"x"] * 100)
    queue.ack(queue.lease(10))
    queue.checkpoint()
    queue.ack(queue.lease(10))
    fill(queue)
    if reserve == "used up":
        files.remove(Path("data/reserve"))
    files.allocate(Path("other"), files.free(Path("data")) or 0)
    files.fail("write", errno.EIO, pattern="*/journals/*")
    with pytest.raises(StorageError):
        queue.lease(1)
    assert queue.stats().ready > 80


def test_no_backup_holds_the_reserve(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "store", background=False) as store:
        store.queue("orders").put(b"x")
        store.tick()
        assert (tmp_path / "store" / "reserve").exists()
        store.backup(tmp_path / "backups")
    assert not list((tmp_path / "backups").rglob("reserve"))


def test_without_a_queue_nothing_is_set_aside(store: Store, files: SimFiles) -> None:
    store.log("l").append(b"x")
    store.tick()
    assert "data/reserve" not in files.snapshot()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 24 MiB."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)], check=False, capture_output=True
    )
    if done.returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def take_all(path: Path) -> None:
    """Leave no room on the disk."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        with pytest.raises(OSError, match="No space left"):
            while True:
                os.write(file, bytes(4096))
    finally:
        os.close(file)


@pytest.mark.parametrize("mode", ["sync", "async_"])
def test_a_real_disk_that_is_full(small_disk: Path, mode: str) -> None:
    flush = getattr(Flush, mode)()
    with holdfast.open(small_disk / "store", background=False) as store:
        queue = store.queue("orders", lease=3600, flush=flush, shorten_history=False)
        queue.put_many([os.urandom(8192) for _ in range(1000)])
        queue.ack(queue.lease(300))
        queue.checkpoint()
        store.tick()
        take_all(small_disk / "other")
        with pytest.raises(DiskFull):
            while True:
                queue.put(os.urandom(8192))
        for _ in range(700):
            message = queue.get()
            assert message is not None
            assert message.ack()
        (small_disk / "other").unlink()
        store.tick()
        queue.put(b"there is room again")
    with holdfast.open(small_disk / "store") as store:
        left = store.queue("orders").lease(9000)
        assert [message.id for message in left if message.id < 1000] == [], "acked, and here again"
        assert left[-1].payload == b"there is room again"


@pytest.mark.parametrize("mode", ["sync", "async_"])
def test_puts_go_on_on_a_real_disk_when_all_is_acked(small_disk: Path, mode: str) -> None:
    with holdfast.open(small_disk / "store", background=False) as store:
        queue = store.queue("orders", lease=3600, flush=getattr(Flush, mode)())
        store.tick()
        count = fill(queue, 8192)
        assert ack_all(queue) >= count
        while store.disk_full:
            time.sleep(0.1)
            store.tick()
        queue.put(b"there is room again")
        for _ in range(count // 2):  # the room of the segment that was deleted is free
            queue.put(os.urandom(8192))


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 40 MiB, which RocksDB, journals and messages fill to the last block."""
    image, place = tmp_path / "image", tmp_path / "disk"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(40 * MIB)
    for command in (["mkfs.ext4", "-q", "-F", "-m", "0", str(image)], ["mount", "-o", "loop", str(image), str(place)]):
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("needs mkfs.ext4 and the right to mount a file system")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("shorten", [True, False])
def test_a_queue_can_be_opened_and_drained_on_a_full_disk_time_and_again(ext4: Path, shorten: bool) -> None:
    put = acked = 0
    for number in range(12):
        with holdfast.open(ext4 / "store", background=False) as store:
            queue = store.queue("orders", lease=3600, shorten_history=shorten)
            store.tick()
            put += fill(queue, 65_536)
            if number in (0, 6):
                take_all(ext4 / "other")
            for _ in range(3):
                message = queue.get()
                assert message is not None
                assert message.ack()
                acked += 1
    with holdfast.open(ext4 / "store", background=False) as store:
        queue = store.queue("orders", lease=3600)
        assert ack_all(queue) == put - acked
