"""Rolling: by size, time, count and any of them; dated folders; compression."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import Flush, InvalidArgument, Roll, Store
from holdfast.log.segment_files import SegmentName, list_segments, next_name
from holdfast.testing import SimClock, SimFiles


def counts(store: Store, name: str = "clicks") -> list[int]:
    segments = store.log(name).reader.segments()
    return [(segment.end or 0) - segment.base for segment in segments]


@pytest.mark.parametrize("flush", [Flush.sync(), Flush.async_(), Flush.batch(bytes=300)], ids=lambda flush: flush.mode)
def test_rolling_by_count_is_exact(store: Store, flush: Flush) -> None:
    log = store.log("clicks", flush=flush, roll=Roll.count(7))
    for n in range(23):
        log.append(b"%d" % n)
    log.sync()
    assert counts(store) == [7, 7, 7, 2]


@pytest.mark.parametrize("flush", [Flush.sync(), Flush.async_()], ids=lambda flush: flush.mode)
def test_rolling_by_count_never_divides_a_batch(store: Store, flush: Flush) -> None:
    log = store.log("clicks", flush=flush, roll=Roll.count(5))
    for size in (3, 4, 12, 1, 4):
        log.append_many([b"x"] * size)
    log.sync()
    assert counts(store) == [3, 4, 12, 5]


@pytest.mark.parametrize("flush", [Flush.sync(), Flush.async_()], ids=lambda flush: flush.mode)
def test_rolling_by_size_keeps_segments_below_it(store: Store, files: SimFiles, flush: Flush) -> None:
    log = store.log("clicks", flush=flush, roll=Roll.size(20_000))
    for n in range(60):
        log.append(bytes([n]) * 1500)
        store.tick()
    log.sync()
    sizes = [len(content) for path, content in files.snapshot().items() if path.endswith(".data")]
    if flush.mode == "sync":
        assert max(sizes) <= 20_000
        assert len(sizes) > 4
    assert [record.payload[0] for record in log.read()] == list(range(60))


def test_rolling_by_time(store: Store, clock: SimClock) -> None:
    log = store.log("clicks", flush=Flush.sync(), roll=Roll.time(60))
    for _ in range(5):
        log.append(b"x")
        clock.advance(30)
    assert counts(store) == [2, 2, 1]


def test_any_of_several_rolls(store: Store, clock: SimClock) -> None:
    log = store.log("clicks", flush=Flush.sync(), roll=Roll.any(Roll.size(1 << 20), Roll.time(60), Roll.count(3)))
    for n in range(5):
        log.append(b"%d" % n)
    clock.advance(61)
    log.append(b"after a minute")
    assert counts(store) == [3, 2, 1]


def test_segments_lie_in_dated_folders_and_keep_their_order(
    store: Store, files: SimFiles, clock: SimClock, reopen: Callable[..., Store]
) -> None:
    log = store.log("clicks", flush=Flush.sync(), roll=Roll.count(1))
    for _ in range(3):
        log.append(b"x")
        clock.advance(43_200)
    clock.set_back(86_400 * 10)
    log.append(b"a clock set back makes no earlier name")
    data = [path for path in files.snapshot() if path.endswith(".data")]
    assert data == [
        "data/logs/clicks/2026/01/01/20260101-0001.data",
        "data/logs/clicks/2026/01/01/20260101-0002.data",
        "data/logs/clicks/2026/01/02/20260102-0001.data",
        "data/logs/clicks/2026/01/02/20260102-0002.data",
    ]
    store.close()
    assert [record.sequence for record in reopen().log("clicks").read()] == [0, 1, 2, 3]


def test_more_than_9999_segments_a_day_stay_in_order() -> None:
    last = SegmentName(2026, 1, 1, 9999)
    following = next_name(last, 1_767_225_600 * 10**9)
    assert following.stem == "20260101-10000"
    disk = SimFiles.holding({str(name.data_path(Path("log"))): b"" for name in (following, last)})
    assert list_segments(disk, Path("log")) == [last, following]


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4"])
def test_compression_saves_room_and_gives_everything_back(store: Store, files: SimFiles, codec: str) -> None:
    log = store.log("clicks", compression=codec, flush=Flush.sync())
    text = b"the same words again and again " * 200
    log.append(text)
    log.append_many([b'{"user": %d, "action": "click"}' % n for n in range(500)])
    (size,) = [len(content) for path, content in files.snapshot().items() if path.endswith(".data")]
    assert size < (len(text) + 500 * 31) / 2
    payloads = [record.payload for record in log.read()]
    assert payloads[0] == text
    assert payloads[500] == b'{"user": 499, "action": "click"}'
    assert {block.header.flags >> 16 for block in log.blocks()} != {0}


@pytest.mark.parametrize("codec", ["gzip", "zstd", "lz4"])
def test_what_is_small_or_does_not_shrink_is_stored_as_it_is(store: Store, codec: str) -> None:
    log = store.log("clicks", compression=codec, flush=Flush.sync())
    log.append(b"a" * 1023)
    log.append(os.urandom(5000))
    log.append(b"a" * 1024)
    assert [block.header.flags >> 16 != 0 for block in log.blocks()] == [False, False, True]


@pytest.mark.parametrize(
    "make", [lambda: Roll.size(0), lambda: Roll.count(-1), lambda: Roll.time(0), lambda: Roll.time(-5)]
)
def test_rolls_that_make_no_sense_are_refused(make: Callable[[], Roll]) -> None:
    with pytest.raises(InvalidArgument):
        make()
