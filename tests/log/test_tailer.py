"""Reading: in order, backwards, by sequence and by time, named and kept, following."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import Flush, InvalidArgument, Roll, Store
from holdfast.base.clock import NS
from holdfast.testing import SimClock


def filled(store: Store, count: int = 100, **settings: object) -> None:
    log = store.log("clicks", roll=Roll.count(30), index_interval=8, **settings)  # type: ignore[arg-type]
    for n in range(count):
        log.append(b"%d" % n)
        if n % 10 == 0:
            log.sync()


def test_a_tailer_reads_to_the_end_and_on(store: Store) -> None:
    log = store.log("clicks")
    tail = log.tailer()
    assert tail.read() is None
    log.append(b"a")
    record = tail.read()
    assert record is not None
    assert (record.sequence, record.payload) == (0, b"a")
    log.append_many([b"b", b"c", b"d"])
    assert tail.lag == 3
    assert [r.payload for r in tail.read_many(2)] == [b"b", b"c"]
    assert [r.payload for r in tail] == [b"d"]
    assert tail.read_many(5) == []
    assert tail.lag == 0


def test_read_many_gives_all_it_can(store: Store) -> None:
    filled(store)
    tail = store.log("clicks").tailer()
    assert [r.sequence for r in tail.read_many(64)] == list(range(64))
    assert [r.sequence for r in tail.read_many(64)] == list(range(64, 100))
    with pytest.raises(InvalidArgument):
        tail.read_many(0)


@pytest.mark.parametrize("target", [0, 1, 29, 30, 31, 59, 60, 99, 100])
def test_seek_by_sequence(store: Store, target: int) -> None:
    filled(store)
    tail = store.log("clicks").tailer()
    tail.seek(target)
    assert tail.position == target
    assert [r.sequence for r in tail] == list(range(target, 100))


@pytest.mark.parametrize("target", [-1, 101, True, "5"])
def test_seek_outside_the_log_is_refused(store: Store, target: int) -> None:
    filled(store)
    with pytest.raises(InvalidArgument, match="ends at 100"):
        store.log("clicks").tailer().seek(target)


def test_seek_by_time_finds_the_first_record_not_before(store: Store, clock: SimClock) -> None:
    log = store.log("clicks", flush=Flush.sync(), roll=Roll.count(7), index_interval=2)
    for n in range(40):
        clock.advance(60)
        log.append_many([b"%d" % n] * (n % 3 + 1))
    records = list(log.read())
    tail = log.tailer()
    for probe in {record.timestamp + shift for record in records for shift in (-1, 0, 1)} | {0, 2**62}:
        tail.seek_time(probe)
        expected = [record for record in records if record.timestamp >= probe]
        assert list(tail) == expected
    tail.seek_time(records[20].time + timedelta(microseconds=1))
    found = tail.read()
    assert found is not None
    assert found.timestamp > records[20].timestamp


@pytest.mark.parametrize("when", [datetime(2026, 1, 1), "yesterday", 1.5])
def test_a_time_without_a_zone_is_refused(store: Store, when: object) -> None:
    filled(store, 3)
    with pytest.raises(InvalidArgument, match="when must be an aware datetime"):
        store.log("clicks").tailer().seek_time(when)  # type: ignore[arg-type]


def test_to_start_and_to_end(store: Store) -> None:
    filled(store)
    tail = store.log("clicks").tailer()
    tail.to_end()
    assert tail.read() is None
    tail.to_start()
    assert next(iter(tail)).sequence == 0


@pytest.mark.parametrize(
    ("start", "stop"), [(None, None), (10, 20), (29, 31), (0, 100), (50, 50), (95, 1000), (70, 10)]
)
def test_reading_backwards_is_reading_forwards_reversed(store: Store, start: int | None, stop: int | None) -> None:
    filled(store)
    log = store.log("clicks")
    forwards = [record.sequence for record in log.read(start, stop)]
    assert forwards == list(range(100))[slice(start, stop)]
    assert [record.sequence for record in log.read(start, stop, reverse=True)] == forwards[::-1]


def test_a_named_tailer_starts_where_it_last_committed(store: Store, reopen: Callable[..., Store]) -> None:
    filled(store)
    tail = store.log("clicks").tailer("audit")
    tail.read_many(42)
    tail.commit()
    tail.read_many(10)
    assert store.log("clicks").tailer("audit").position == 42
    store.close()
    log = reopen().log("clicks")
    assert next(iter(log.tailer("audit"))).sequence == 42
    assert next(iter(log.tailer("other"))).sequence == 0
    (stats,) = log.stats().tailers
    assert (stats.name, stats.position, stats.lag) == ("audit", 42, 58)


def test_only_a_named_tailer_commits(store: Store) -> None:
    filled(store, 1)
    with pytest.raises(InvalidArgument, match="named"):
        store.log("clicks").tailer().commit()


def test_leaving_a_with_block_keeps_the_place(store: Store) -> None:
    filled(store)
    with store.log("clicks").tailer("audit") as tail:
        tail.read_many(3)
    assert tail.position == 3
    tail.commit()
    assert store.log("clicks").tailer("audit").position == 3


def test_tailers_are_independent(store: Store) -> None:
    filled(store)
    one, two = store.log("clicks").tailer(), store.log("clicks").tailer()
    one.read_many(50)
    assert next(iter(two)).sequence == 0


def test_follow_stops_after_waiting_in_vain(store: Store, clock: SimClock) -> None:
    filled(store, 5)
    began = clock.monotonic()
    assert [r.sequence for r in store.log("clicks").tailer().follow(wait=2)] == [0, 1, 2, 3, 4]
    assert 2 <= clock.monotonic() - began < 2.1


@pytest.mark.parametrize("flush", [Flush.sync(), Flush.async_()], ids=lambda flush: flush.mode)
def test_follow_hands_records_on_as_they_arrive(disk_store: Store, flush: Flush) -> None:
    log = disk_store.log("clicks", flush=flush)
    seen: list[bytes] = []
    ready = threading.Event()

    def follow() -> None:
        for record in log.tailer().follow(wait=60):
            seen.append(record.payload)
            ready.set()
            if record.payload == b"stop":
                return

    follower = threading.Thread(target=follow)
    follower.start()
    log.append(b"first")
    assert ready.wait(60)
    log.append_many([b"second", b"stop"])
    follower.join(60)
    assert seen == [b"first", b"second", b"stop"]


def test_follow_ends_when_the_log_is_closed(disk_store: Store) -> None:
    log = disk_store.log("clicks")
    log.append(b"x")
    seen: list[int] = []
    follower = threading.Thread(target=lambda: seen.extend(r.sequence for r in log.tailer().follow()))
    follower.start()
    while not seen:
        pass
    log.close()
    follower.join(60)
    assert not follower.is_alive()


def test_a_large_block_is_read_in_slices(store: Store) -> None:
    log = store.log("clicks", flush=Flush.sync())
    log.append_many([b"%d" % n for n in range(10_000)])
    tail = log.tailer()
    assert [int(r.payload) for r in tail] == list(range(10_000))
    tail.seek(9_999)
    assert [int(r.payload) for r in tail] == [9_999]


def test_records_tell_their_time(store: Store, clock: SimClock) -> None:
    log = store.log("clicks")
    log.append(b"x")
    (record,) = log.read()
    assert record.time == datetime.fromtimestamp(record.timestamp // NS, UTC) + timedelta(
        microseconds=record.timestamp % NS // 1000
    )


def test_blocks_are_whole_and_arrow_sees_the_same(store: Store) -> None:
    log = store.log("clicks", flush=Flush.sync())
    log.append(b"first", key=b"k")
    log.append_many([b"a", b"", b"ccc"])
    batches = [block.to_arrow() for block in log.blocks()]
    assert [value for batch in batches for value in batch.column("payload").to_pylist()] == [
        b"first",
        b"a",
        b"",
        b"ccc",
    ]
    assert [value for batch in batches for value in batch.column("sequence").to_pylist()] == [0, 1, 2, 3]
    assert batches[0].column("key").to_pylist() == [b"k"]
    block = list(log.blocks())[1]
    assert bytes(block.data[block.offsets[2] : block.offsets[3]]) == b"ccc"


def test_a_time_that_two_blocks_share_leads_to_the_first_record_of_that_time(store: Store, clock: SimClock) -> None:
    log = store.log("events", flush=Flush.batch())
    log.append(b"before")
    clock.advance(1)
    first = log.append(b"at that time")
    log.sync()
    clock.set_back(1)  # the log's own time does not go back: the next record gets the time of the last one
    log.append(b"at that time, in the next block")
    log.sync()
    clock.advance(2)
    log.append(b"after")
    log.sync()
    times = [record.timestamp for record in log.read()]
    assert times[0] < times[1] == times[2] < times[3]
    tailer = log.tailer("reader")
    tailer.seek_time(times[1])
    assert tailer.position == first == 1


@pytest.mark.parametrize(("start", "stop"), [(0, 5), (0, 3), (2, 5), (1, 4), (4, 5)])
def test_a_part_of_a_block_has_the_sizes_of_its_own_payloads(store: Store, start: int, stop: int) -> None:
    log = store.log("events")
    log.append_many([b"x" * size for size in (3, 1, 4, 1, 5)])
    log.sync()
    [piece] = log.pieces(start, stop)
    assert piece.sizes() == [len(payload) for payload in piece.payloads()] == [3, 1, 4, 1, 5][start:stop]
