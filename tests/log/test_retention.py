"""Retention: by age, size and count, never past a named reader, and what readers see of it."""

import logging
from collections.abc import Callable

import pytest

from holdfast import Flush, InvalidArgument, Log, Retention, Roll, Store
from holdfast.log.consumer_offsets import Position, place_of
from holdfast.testing import SimClock, SimFiles


@pytest.fixture
def log(store: Store, clock: SimClock) -> Log:
    """Ten segments of two records, an hour apart."""
    log = store.log("clicks", flush=Flush.sync(), roll=Roll.count(2))
    for n in range(20):
        log.append(b"%02d" % n * 50)
        if n % 2:
            clock.advance(3600)
    assert log.stats().segments == 10
    return log


def test_by_count_keeps_the_newest(log: Log) -> None:
    assert log.compact(retention=Retention(max_segments=3)) == 7
    assert (log.start, log.end) == (14, 20)
    assert [record.sequence for record in log.read()] == list(range(14, 20))


def test_by_size(log: Log) -> None:
    size = log.stats().bytes
    log.compact(retention=Retention(max_bytes=size // 2))
    assert size // 3 < log.stats().bytes <= size // 2


def test_by_age(log: Log) -> None:
    log.compact(retention=Retention(max_age=3600 * 4.5))
    assert (log.start, log.stats().segments) == (10, 5)


def test_the_active_segment_always_stays(log: Log) -> None:
    log.compact(retention=Retention(max_age=0, max_bytes=1, max_segments=1))
    assert log.stats().segments == 1
    assert log.append(b"next") == 20


def test_min_segments_stay(log: Log) -> None:
    log.compact(retention=Retention(max_age=0, min_segments=4))
    assert log.stats().segments == 4


def test_never_past_a_named_tailer_unless_forced(log: Log) -> None:
    tail = log.tailer("audit")
    tail.read_many(7)
    tail.commit()
    log.compact(retention=Retention(max_segments=1))
    assert log.start == 6
    assert next(iter(log.tailer("audit"))).sequence == 7
    log.compact(retention=Retention(max_segments=1), force=True)
    assert log.start == 18


def test_a_forgotten_tailer_holds_nothing_back(log: Log) -> None:
    log.tailer("audit").commit()
    assert log.compact(retention=Retention(max_segments=1)) == 0
    assert log.positions.remove("audit")
    assert not log.positions.remove("audit")
    assert log.compact(retention=Retention(max_segments=1)) == 9


def test_retention_is_applied_at_each_roll(store: Store) -> None:
    log = store.log("clicks", flush=Flush.sync(), roll=Roll.count(2), retention=Retention(max_segments=3))
    for n in range(50):
        log.append(b"%d" % n)
    assert log.stats().segments == 3
    assert log.start == 44


def test_dropped_segments_leave_no_file_and_no_empty_folder(log: Log, files: SimFiles, clock: SimClock) -> None:
    clock.advance(86_400 * 3)
    log.append(b"days later")
    log.compact(retention=Retention(max_segments=1))
    left = [path for path in files.snapshot() if "/2026/" in path]
    assert left == [
        "data/logs/clicks/2026/01/04/20260104-0001.data",
        "data/logs/clicks/2026/01/04/20260104-0001.index",
    ]


def test_a_dropped_log_goes_on_after_reopening(log: Log, store: Store, reopen: Callable[..., Store]) -> None:
    log.compact(retention=Retention(max_segments=1))
    store.close()
    log = reopen().log("clicks")
    assert (log.start, log.end) == (18, 20)
    assert log.append(b"next") == 20


def test_a_tailer_that_is_overtaken_in_the_middle_goes_on_and_says_so(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    tail = log.tailer()
    tail.read_many(2)
    log.compact(retention=Retention(max_segments=2))
    with caplog.at_level(logging.WARNING):
        assert [record.sequence for record in tail] == [16, 17, 18, 19]
    assert "segment was dropped before it was read" in caplog.text and "20260101-0002.data" in caplog.text


def test_a_tailer_that_was_overtaken_before_it_read_goes_on_at_the_start_and_says_so(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    tail = log.tailer()
    log.compact(retention=Retention(max_segments=2))
    with caplog.at_level(logging.WARNING):
        assert [record.sequence for record in tail] == [16, 17, 18, 19]
    assert "before they were read: log=clicks tailer=None first=0 last=15" in caplog.text


def test_clear_drops_everything_that_was_read_and_sequences_go_on(log: Log) -> None:
    tail = log.tailer("audit")
    tail.read_many(5)
    tail.commit()
    log.clear()
    assert log.start == 4
    log.clear(force=True)
    assert (log.start, log.end) == (20, 20)
    assert list(log.read()) == []
    assert log.append(b"next") == 20


@pytest.mark.parametrize("wrong", [{"max_age": -1}, {"max_bytes": 0}, {"max_segments": 0}, {"min_segments": 0}])
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        Retention(**wrong)


def test_the_place_of_a_queue_holds_for_as_long_as_there_is_the_queue(
    store: Store, reopen: Callable[..., Store]
) -> None:
    queue = store.queue("jobs", log="clicks", roll=Roll.count(2))
    queue.put_many([b"x"] * 6)
    long = store.queue("j" * 250, log="clicks")
    for place in (place_of("jobs"), place_of(long.name)):
        with pytest.raises(InvalidArgument, match="delete the queue"):
            queue.log.positions.remove(place)
    store.close()
    store = reopen()
    log = store.log("clicks")  # the queue is there, and not open
    with pytest.raises(InvalidArgument, match="'jobs'"):
        log.positions.remove(place_of("jobs"))
    assert log.compact(retention=Retention(max_segments=1)) == 0
    store.delete_queue("jobs")
    log.positions.set(Position(place_of("jobs"), 0, 0))  # as an older version may have left it
    assert log.positions.remove(place_of("jobs"))


def test_a_place_in_another_log_than_the_queue_reads_is_one_that_was_left_behind(store: Store) -> None:
    store.queue("jobs")
    log = store.log("clicks")
    log.positions.set(Position(place_of("jobs"), 0, 0))
    assert log.positions.remove(place_of("jobs"))


def pass_time(store: Store, clock: SimClock, seconds: float, step: float = 1.0) -> None:
    """As the background of a store does that is left alone."""
    for _ in range(round(seconds / step)):
        clock.advance(step)
        store.tick()


@pytest.mark.parametrize("flush", [Flush.sync(), Flush.batch(), Flush.async_()], ids=lambda flush: flush.mode)
def test_what_is_too_old_goes_though_nothing_is_written(store: Store, clock: SimClock, flush: Flush) -> None:
    log = store.log("idle", flush=flush, roll=Roll.count(2), retention=Retention(max_age=10))
    log.append_many([b"%d" % n for n in range(2)])
    log.append_many([b"%d" % n for n in range(2, 5)])
    pass_time(store, clock, 8)
    assert (log.start, log.end) == (0, 5)
    pass_time(store, clock, 20)
    assert (log.start, log.end, log.stats().records, log.stats().segments) == (5, 5, 0, 1)
    segments = log.segments()
    pass_time(store, clock, 60)
    assert log.segments() == segments, "an empty segment is begun again and again"
    assert log.append(b"next") == 5


def test_the_background_leaves_what_a_tailer_has_yet_to_read(store: Store, clock: SimClock) -> None:
    log = store.log("idle", flush=Flush.sync(), retention=Retention(max_age=10))
    log.append_many([b"a", b"b"])
    tailer = log.tailer("reader")
    assert len(tailer.read_many(1)) == 1
    tailer.commit()
    pass_time(store, clock, 60)
    assert (log.start, log.stats().segments) == (0, 1)
    assert len(tailer.read_many(1)) == 1
    tailer.commit()
    pass_time(store, clock, 60)
    assert log.start == log.end == 2


def test_the_background_keeps_to_min_segments(store: Store, clock: SimClock) -> None:
    log = store.log("idle", flush=Flush.sync(), roll=Roll.count(1), retention=Retention(max_age=10, min_segments=3))
    log.append(b"a")
    log.append(b"b")
    pass_time(store, clock, 60)
    assert (log.start, log.stats().segments) == (0, 2)
    log.append(b"c")
    pass_time(store, clock, 60)
    assert (log.start, log.stats().segments) == (1, 3)


def test_compact_says_how_many_bytes_went(log: Log) -> None:
    sizes = [segment.bytes for segment in log.segments()]
    would = log.compact(retention=Retention(max_segments=3), dry_run=True)
    freed = log.compact(retention=Retention(max_segments=3))
    assert freed == would == 7
    assert (freed.segments, freed.bytes, would.bytes) == (7, sum(sizes[:7]), sum(sizes[:7]))
    assert (log.compact(retention=Retention(max_segments=3)).bytes, log.compact()) == (0, 0)


def test_the_folders_of_days_without_segments_go_with_the_last_of_them(
    store: Store, files: SimFiles, clock: SimClock
) -> None:
    log = store.log("clicks", flush=Flush.sync(), roll=Roll.count(1))
    for _ in range(3):
        log.append(b"x")
        clock.advance(86_400)

    def days() -> list[str]:
        return sorted(path for path in files.folders() if path.startswith("data/logs/clicks/2026/01/"))

    before = days()
    assert len(before) == 3
    log.compact(retention=Retention(max_segments=1))
    assert days() == before[-1:]


def test_the_times_of_a_log_are_those_of_its_first_and_last_record(log: Log) -> None:
    records = list(log.read())
    stats = log.stats()
    assert (stats.first_timestamp, stats.last_timestamp) == (records[0].timestamp, records[-1].timestamp)


def test_a_segment_is_past_when_all_records_in_it_are_older_than_the_moment(store: Store, clock: SimClock) -> None:
    log = store.log("idle", flush=Flush.sync())
    log.append(b"first")
    clock.advance(5)
    log.append(b"last")
    written = next(log.read(1)).timestamp
    assert not log.appender.is_past(written)
    assert log.appender.is_past(written + 1)


def test_a_segment_without_records_is_never_past(store: Store, clock: SimClock) -> None:
    log = store.log("idle", flush=Flush.sync(), retention=Retention(max_age=10))
    log.append(b"first")
    clock.advance(60)
    store.tick()
    log.retention.retire()
    assert (log.start, log.end) == (1, 1)
    assert not log.appender.is_past(clock.time_ns() + 1)
