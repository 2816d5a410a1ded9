"""Duplicates: a message with an id that was put before, within the window, is not written again."""

import errno
from collections.abc import Callable

import pytest

import holdfast
from holdfast import DiskFull, Flush, Message, Queue, Store
from holdfast.testing import SimClock, SimFiles
from tests.queue.calls import Call


@pytest.fixture
def queue(store: Store, flush: Flush) -> Queue:
    return store.queue("orders", flush=flush, dedup_window=300)


def test_a_duplicate_gets_the_first_ones_id_and_writes_nothing(queue: Queue) -> None:
    queue.put(b"other")
    first = queue.put(b"first", dedup="order-17")
    assert queue.put(b"second", dedup="order-17") == first == 1
    assert queue.put(b"third", dedup="order-18") == 2
    assert (queue.log.end, queue.stats().duplicates, queue.stats().ready) == (3, 1, 3)


def test_text_and_bytes_of_an_id_are_the_same_id(queue: Queue) -> None:
    assert queue.put(b"x", dedup="ü") == queue.put(b"y", dedup="ü".encode()) == 0
    assert queue.put(b"z", dedup=b"\x00") == 1
    assert queue.put(b"z", dedup=b"\x00\x00") == 2
    assert queue.put(b"z", dedup=b"x" * 1024) == queue.put(b"z", dedup="x" * 1024) == 3


def test_after_the_window_an_id_is_new(queue: Queue, clock: SimClock) -> None:
    assert queue.put(b"first", dedup="id") == 0
    clock.advance(299)
    assert queue.put(b"too soon", dedup="id") == 0
    clock.advance(2)
    assert queue.put(b"late enough", dedup="id") == 1
    assert queue.put(b"again", dedup="id") == 1


def test_the_window_counts_from_the_first_message_not_from_its_duplicates(queue: Queue, clock: SimClock) -> None:
    queue.put(b"x", dedup="id")
    for _ in range(3):
        clock.advance(99)
        assert queue.put(b"x", dedup="id") == 0
    clock.advance(4)
    assert queue.put(b"x", dedup="id") == 1


def test_within_a_batch_and_against_what_was_put(queue: Queue) -> None:
    queue.put(b"a", dedup="A")
    ids = queue.put_many(
        [Message(b"a", dedup="A"), b"plain", Message(b"b", dedup="B"), Message(b"b", dedup=b"B"), Message(b"c")]
    )
    assert list(ids) == [0, 1, 2, 2, 3]
    assert list(queue.put_many([Message(b"a", dedup="A"), Message(b"b", dedup="B")])) == [0, 2]
    assert (queue.log.end, queue.stats().duplicates) == (4, 4)


def test_what_was_there_already_is_counted_also_within_a_batch(queue: Queue) -> None:
    same = Message(b"a", dedup="A")
    assert queue.put_counted([b"plain", Message(b"b")]) == (range(2), 0)
    assert queue.put_counted([same, b"plain", same]) == ([2, 3, 2], 1)
    assert queue.put_counted([same]) == ([2], 1)


@pytest.mark.parametrize("what", ["acked", "nacked", "purged", "delayed", "expired"])
def test_an_id_is_known_whatever_became_of_its_message(store: Store, clock: SimClock, flush: Flush, what: str) -> None:
    queue = store.queue("orders", flush=flush, max_attempts=1)
    queue.put(b"x", dedup="id", delay=100 if what == "delayed" else None, ttl=5 if what == "expired" else None)
    if what == "acked":
        queue.ack(queue.lease())
    elif what == "nacked":
        queue.nack(queue.lease(), "no")
    elif what == "purged":
        queue.purge()
    clock.advance(10)
    store.tick()
    assert queue.put(b"y", dedup="id") == 0
    assert queue.log.end == 1


def test_a_redriven_message_is_no_duplicate_of_itself(store: Store) -> None:
    queue = store.queue("orders", max_attempts=1)
    queue.put(b"x", dedup="id")
    queue.nack(queue.lease(), "no")
    assert queue.redrive() == 1
    assert [message.payload for message in queue.lease(5)] == [b"x"]
    assert queue.put(b"y", dedup="id") == 0


def test_ids_survive_a_restart(store: Store, reopen: Callable[..., Store], clock: SimClock, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush)
    for n in range(100):
        queue.put(b"x", dedup=f"{n}")
        clock.advance(1)
    queue.ack(queue.lease(100))
    store.close()
    queue = reopen().queue("orders", flush=flush)
    assert [queue.put(b"y", dedup=f"{n}") for n in range(100)] == list(range(100))
    assert queue.stats().dedup_ids == 100


def test_ids_survive_a_power_cut(store: Store, files: SimFiles, clock: SimClock) -> None:
    queue = store.queue("orders")
    for n in range(10):
        queue.put(b"x", dedup=f"{n}")
    queue.ack(queue.lease(10))
    for mode in ("dropped", "prefix", "torn", "reordered"):
        after = holdfast.open("data", files=files.after_crash(mode), clock=clock, background=False).queue("orders")
        assert [after.put(b"y", dedup=f"{n}") for n in range(10)] == list(range(10))


def test_ids_survive_the_loss_of_the_state(
    store: Store, files: SimFiles, reopen: Callable[..., Store], clock: SimClock
) -> None:
    queue = store.queue("orders")
    queue.put(b"x", dedup="old")
    clock.advance(200)
    queue.put(b"x", dedup="new")
    queue.ack(queue.lease(2))
    store.close()
    from pathlib import Path

    files.remove(Path("data/state/state.flat"))
    clock.advance(150)
    queue = reopen().queue("orders")
    assert queue.put(b"y", dedup="new") == 1
    assert queue.put(b"y", dedup="old") == 2


def test_a_put_that_failed_does_not_count(store: Store, files: SimFiles) -> None:
    queue = store.queue("orders")
    queue.put(b"before")
    files.fail("write", errno.ENOSPC, pattern="data/logs/orders/*.data")
    with pytest.raises(DiskFull):
        queue.put(b"x", dedup="id")
    assert queue.put(b"x", dedup="id") == 1
    assert queue.put(b"x", dedup="id") == 1
    assert [message.payload for message in queue.lease(5)] == [b"before", b"x"]


def test_a_window_of_zero_finds_nothing(store: Store) -> None:
    queue = store.queue("orders", dedup_window=0)
    assert [queue.put(b"x", dedup="id") for _ in range(3)] == [0, 1, 2]
    assert queue.stats().dedup_ids == 0


def test_threads_that_put_the_same_ids_write_each_once(disk_store: Store, flush: Flush) -> None:
    queue = disk_store.queue("orders", flush=flush)
    count = 50 if flush.mode == "sync" else 300
    calls = [Call(lambda: [queue.put(b"x", dedup=f"{n}") for n in range(count)]) for _ in range(5)]
    given = [call.result() for call in calls]
    assert all(mine == given[0] for mine in given)
    assert len(set(given[0])) == count == queue.log.end == queue.stats().ready
    assert queue.stats().duplicates == 4 * count


def test_where_the_limit_of_ids_is_met_the_window_shortens_for_all_to_see(
    store: Store, clock: SimClock, flush: Flush
) -> None:
    """And is exact within what it says: no duplicate younger than that ever passes."""
    queue = store.queue("orders", flush=flush, dedup_window=3600, dedup_limit=100)
    assert (queue.stats().dedup_window, queue.stats().dedup_shortened) == (3600, False)
    put_at: dict[str, int] = {}
    for n in range(500):
        put_at[f"{n}"] = clock.time_ns()
        queue.put(b"x", dedup=f"{n}")
        clock.advance(1)
        if not n % 37:
            queue.checkpoint()
    stats = queue.stats()
    assert stats.dedup_shortened
    assert 50 < stats.dedup_window < 102
    assert stats.dedup_ids <= 100
    end = queue.log.end
    within = [id for id, at in put_at.items() if clock.time_ns() - at < (stats.dedup_window - 0.01) * 1e9]
    assert len(within) > 50
    for id in within:
        assert queue.put(b"duplicate", dedup=id) == int(id)
    assert queue.log.end == end


def test_the_shortened_window_is_remembered_and_recovers(
    store: Store, clock: SimClock, reopen: Callable[..., Store]
) -> None:
    queue = store.queue("orders", dedup_window=60, dedup_limit=10)
    for n in range(30):
        queue.put(b"x", dedup=f"{n}")
        clock.advance(1)
    store.close()
    again = reopen()
    queue = again.queue("orders")
    assert queue.stats().dedup_shortened
    assert queue.stats().dedup_window < 60
    clock.advance(61)
    again.tick()
    assert (queue.stats().dedup_window, queue.stats().dedup_shortened) == (60, False)


def test_ids_whose_window_is_over_do_not_shorten_it(store: Store, clock: SimClock, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush, dedup_window=1, dedup_limit=10)
    for n in range(60):
        queue.put(b"x", dedup=f"{n}")
        clock.advance(0.2)
    assert (queue.stats().dedup_window, queue.stats().dedup_shortened) == (1, False)


def test_a_duplicate_is_found_though_nothing_else_was_looked_at(store: Store, reopen: Callable[..., Store]) -> None:
    store.queue("orders").put_many([Message(b"%d" % n, dedup=f"{n}") for n in range(3000)])
    store.close()
    queue = reopen().queue("orders")
    assert list(queue.put_many([Message(b"x", dedup=f"{n}") for n in range(2990, 3010)])) == list(range(2990, 3010))
    assert queue.stats().duplicates == 10


def test_a_window_that_is_made_longer_is_exact_or_says_how_far_it_reaches(
    store: Store, clock: SimClock, reopen: Callable[..., Store]
) -> None:
    store.queue("orders", dedup_window=60).put(b"x", dedup="id")
    clock.advance(600)
    store.queue("orders").checkpoint()
    store.close()
    queue = reopen().queue("orders", dedup_window=3600)
    assert queue.stats().dedup_window < 600 or queue.put(b"y", dedup="id") == 0


def test_a_window_that_is_made_shorter_counts_at_once(
    store: Store, clock: SimClock, reopen: Callable[..., Store]
) -> None:
    store.queue("orders", dedup_window=3600).put(b"x", dedup="id")
    clock.advance(600)
    store.close()
    queue = reopen().queue("orders", dedup_window=60)
    assert queue.put(b"y", dedup="id") == 1


@pytest.mark.parametrize("reopened", [False, True])
@pytest.mark.parametrize("looked", [False, True])
def test_a_clock_that_was_ahead_for_a_while_does_not_lengthen_the_window(
    store: Store, clock: SimClock, reopen: Callable[..., Store], flush: Flush, looked: bool, reopened: bool
) -> None:
    queue = store.queue("orders", flush=flush, dedup_window=60)
    clock.set_ahead(3600)
    queue.put(b"ahead", dedup="id")
    if looked:
        queue.stats()
    clock.set_back(3600)
    assert queue.put(b"at once", dedup="id") == 0
    queue.put(b"the log repeats its last time", dedup="other")
    if reopened:
        store.close()
        queue = reopen().queue("orders", flush=flush, dedup_window=60)
        assert queue.put(b"at once", dedup="id") == 0
    clock.advance(50)
    assert queue.put(b"too soon", dedup="id") == 0
    assert queue.put(b"too soon", dedup="other") == 1
    clock.advance(70)
    assert queue.put(b"late enough", dedup="id") == 2
    assert queue.put(b"late enough", dedup="other") == 3
    assert queue.put(b"again", dedup="id") == 2


def test_a_clock_that_jumps_ahead_does_not_end_the_window(store: Store, clock: SimClock, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush, dedup_window=60)
    queue.put(b"x", dedup="id")
    clock.set_ahead(3600)
    assert queue.put(b"x", dedup="id") == 0
    clock.advance(61)
    assert queue.put(b"x", dedup="id") == 1


def test_a_clock_that_jumps_ahead_does_not_end_the_window_after_a_restart(
    store: Store, clock: SimClock, reopen: Callable[..., Store]
) -> None:
    store.queue("orders", dedup_window=60).put(b"x", dedup="id")
    clock.set_ahead(3600)
    store.close()
    assert reopen().queue("orders").put(b"x", dedup="id") == 0


def test_an_id_that_was_put_by_a_clock_ahead_is_new_a_window_after_the_restart(
    store: Store, clock: SimClock, reopen: Callable[..., Store]
) -> None:
    store.queue("orders", dedup_window=60).put(b"x", dedup="id")
    clock.set_ahead(3600)
    store.queue("orders").put(b"x", dedup="ahead")
    store.close()
    clock.set_back(3600)
    queue = reopen().queue("orders")
    clock.advance(61)
    assert queue.put(b"x", dedup="ahead") == 2
    assert queue.put(b"x", dedup="id") == 3


def test_ids_in_the_future_that_are_read_from_the_log_are_new_after_a_window(
    store: Store, files: SimFiles, clock: SimClock
) -> None:
    clock.set_ahead(3600)
    store.queue("orders", dedup_window=60).put(b"x", dedup="id")
    clock.set_back(3600)
    after = files.after_crash("dropped")
    queue = holdfast.open("data", files=after, clock=clock, background=False).queue("orders")
    assert queue.put(b"x", dedup="id") == 0
    clock.advance(61)
    assert queue.put(b"x", dedup="id") == 1


WINDOW = "a window passed: written", True
WITHIN = "within the window: a duplicate", False


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([("ahead", 3600), "put", ("back", 3600), 120, "reload"], WINDOW),
        ([("ahead", 3600), "put", ("back", 3600), 30, "reload"], WITHIN),
        (["put", ("ahead", 3600), 10, "reload"], WITHIN),
        (["put", ("ahead", 3600), 10, "reload", 10, "reload"], WITHIN),
        (["put", ("ahead", 3600), 30, "reload", 31], WINDOW),
        (["put", 61, ("back", 3600), "reload"], WINDOW),
        (["put", 50, ("back", 3600), "reload", 11], WINDOW),
        (["put", 50, ("back", 3600), "reload"], WITHIN),
        (["put", ("ahead", 3600), "close", ("back", 3600), 120, "open"], WINDOW),
        (["put", ("ahead", 3600), "close", ("back", 3600), 30, "open"], WITHIN),
        ([("ahead", 3600), "put", "close", ("back", 3600), 120, "open"], WINDOW),
        (["put", ("ahead", 3600), 20, "close", ("back", 1), "open"], WITHIN),
        (["put", "close", 25, "open", "reload", "close", 25, "open"], WITHIN),
        (["put", "close", 25, "open", "reload", "close", 25, "open", 11], WINDOW),
    ],
)
def test_a_window_is_as_long_as_it_is_whatever_the_clock_does_when_the_state_is_read_again(
    store: Store,
    clock: SimClock,
    files: SimFiles,
    reopen: Callable[..., Store],
    checkpointed: bool,
    steps: list[object],
    expected: tuple[str, bool],
) -> None:
    queue = store.queue("orders", dedup_window=60)
    for step in steps:
        match step:
            case "put":
                queue.put(b"x", dedup="id")
                if checkpointed:
                    queue.checkpoint()
            case "reload":
                files.fail("write", errno.ENOSPC, pattern="*/journals/*")
                queue.put(b"y")
                with pytest.raises(DiskFull):
                    queue.lease(1)
            case "close":
                store.close()
            case "open":
                store = reopen()
                queue = store.queue("orders")
            case ("ahead", int(seconds)):
                clock.set_ahead(seconds)
            case ("back", int(seconds)):
                clock.set_back(seconds)
            case int(seconds):
                clock.advance(seconds)
    before = queue.log.end
    queue.put(b"x", dedup="id")
    assert (queue.log.end > before) is expected[1], expected[0]


def test_the_time_between_two_openings_counts(store: Store, clock: SimClock, reopen: Callable[..., Store]) -> None:
    store.queue("orders", dedup_window=60).put(b"x", dedup="id")
    store.close()
    clock.advance(30)
    again = reopen()
    assert again.queue("orders").put(b"x", dedup="id") == 0
    again.close()
    clock.advance(31)
    queue = reopen().queue("orders")
    assert queue.put(b"x", dedup="id") == 1
