"""The cache of parts from a bucket: bounded, fetched once for all readers, and never deleted under one."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from holdfast.base.checksum import crc32c
from holdfast.base.errors import Corrupt, InvalidArgument, ReplicaUnavailable
from holdfast.base.files import SystemFiles
from holdfast.log.part_cache import PartCache
from holdfast.log.remote_segments import RemotePart
from holdfast.testing import SimBucket

PART = 1 << 16


def part(number: int, content: bytes) -> RemotePart:
    """A part of a segment, at its own place in that segment."""
    return RemotePart(number * PART, number * PART + len(content), crc32c(content), 1, 0, 0)


class Shelf:
    """Ten parts in a bucket, and a cache for some of them."""

    def __init__(self, folder: Path, room: int, bucket: SimBucket | None = None) -> None:
        self.bucket = bucket or SimBucket()
        self.contents = [bytes([number]) * PART for number in range(10)]
        for number, content in enumerate(self.contents):
            self.bucket.put(f"{number}", content)
        self.folder = folder / "cache"
        self.cache = PartCache(SystemFiles(), lambda: self.folder, lambda url: self.bucket, room * PART)

    def read(self, number: int) -> bytes:
        wanted = part(number, self.contents[number])
        with self.cache.pinned("sim://", f"{number}", wanted) as memory:
            return bytes(memory[wanted.start : wanted.stop])

    def on_disk(self) -> int:
        return sum(path.stat().st_blocks * 512 for path in self.folder.iterdir())


def test_what_was_read_lately_is_not_fetched_again(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, room=3)
    for number in (0, 1, 2, 0, 3, 0, 3):  # the fourth part takes the place of part 1
        assert shelf.read(number) == shelf.contents[number]
    assert (shelf.cache.misses, shelf.cache.hits, shelf.cache.bytes) == (4, 3, 3 * PART)
    shelf.read(1)
    assert shelf.cache.misses == 5
    assert shelf.cache.fetched_bytes == 5 * PART


def test_its_size_is_bounded_on_the_disk_too(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, room=3)
    for number in range(10):
        shelf.read(number)
        assert shelf.on_disk() < 4 * PART  # not the holes before the parts
    assert len(list(shelf.folder.iterdir())) == 3


def test_a_part_that_is_larger_than_the_cache_is_read_alone(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, room=1)
    shelf.cache.limit = PART // 2
    assert [shelf.read(number) for number in (0, 1)] == shelf.contents[:2]
    assert len(list(shelf.folder.iterdir())) == 1


class Slow(SimBucket):
    """A bucket that answers when it is told to, and counts the requests at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.asked = threading.Semaphore(0)

    def get(self, key: str):  # type: ignore[no-untyped-def]
        self.asked.release()
        assert self.gate.wait(60)
        return super().get(key)


def together(count: int, work: Callable[[int], bytes]) -> list[bytes]:
    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(work, range(count)))


def test_readers_of_one_part_fetch_it_once(tmp_path: Path) -> None:
    bucket = Slow()
    shelf = Shelf(tmp_path, room=3, bucket=bucket)
    with ThreadPoolExecutor(6) as pool:
        found = [pool.submit(shelf.read, 4) for _ in range(6)]
        assert bucket.asked.acquire(timeout=60)
        bucket.gate.set()
        assert {one.result(60) for one in found} == {shelf.contents[4]}
    assert shelf.cache.misses == 1
    assert not bucket.asked.acquire(blocking=False)


def test_many_readers_at_once_stay_within_the_bound(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, room=3)
    most = 0

    def read(start: int) -> bytes:
        nonlocal most
        for step in range(50):
            number = (start * 3 + step * 7) % 10
            assert shelf.read(number) == shelf.contents[number]
            most = max(most, shelf.cache.bytes)
        return b""

    together(8, read)
    assert 0 < most <= 3 * PART
    assert shelf.cache.hits + shelf.cache.misses == 8 * 50
    assert len(list(shelf.folder.iterdir())) <= 3


def test_a_part_is_not_deleted_under_its_reader(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, room=2)
    wanted = part(0, shelf.contents[0])
    with shelf.cache.pinned("sim://", "0", wanted) as memory:
        kept = set(shelf.folder.iterdir())
        together(4, lambda number: shelf.read(1 + number))
        assert kept <= set(shelf.folder.iterdir())
        assert bytes(memory[wanted.start : wanted.stop]) == shelf.contents[0]
    assert shelf.cache.bytes <= 2 * PART


def test_a_failed_fetch_leaves_nothing_and_is_tried_again(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, room=2)
    shelf.bucket.outage()
    with pytest.raises(ReplicaUnavailable):
        shelf.read(0)
    assert (shelf.cache.bytes, list(shelf.folder.iterdir())) == (0, [])
    shelf.bucket.heal()
    assert shelf.read(0) == shelf.contents[0]


@pytest.mark.parametrize(("content", "why"), [(None, "is missing"), (b"ab", "2 bytes"), (bytes(PART), "checksum")])
def test_a_wrong_object_is_named(tmp_path: Path, content: bytes | None, why: str) -> None:
    shelf = Shelf(tmp_path, room=2)
    shelf.bucket.change("5", content)
    with pytest.raises(Corrupt, match=why) as caught:
        shelf.read(5)
    assert caught.value.path == f"{shelf.bucket.url}/5"
    assert shelf.cache.bytes == 0


def test_what_nobody_reads_can_be_cleared(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, room=3)
    shelf.read(0)
    with shelf.cache.pinned("sim://", "1", part(1, shelf.contents[1])):
        shelf.cache.clear()
        assert shelf.cache.bytes == PART
    shelf.cache.clear()
    assert list(shelf.folder.iterdir()) == []


@pytest.mark.parametrize("limit", [0, -1, 1.5, True])
def test_a_wrong_size_is_refused(limit: int) -> None:
    with pytest.raises(InvalidArgument, match="remote_cache"):
        PartCache(SystemFiles(), Path, lambda url: SimBucket(), limit)
