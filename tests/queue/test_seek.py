"""Looking at a queue without taking, and moving the queue itself: peek, stats, purge, and replay."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Closed, Delivery, Flush, InvalidArgument, Message, Queue, ReadOnly, Retention, Roll, Store
from holdfast.base.clock import from_ns
from holdfast.testing import SimClock, SimFiles
from tests.queue.internals import state_of


@pytest.fixture
def queue(store: Store, flush: Flush) -> Queue:
    """Ten messages, of which the first six are done."""
    queue = store.queue("orders", flush=flush)
    queue.put_many([b"%d" % n for n in range(10)])
    queue.ack(queue.lease(6))
    return queue


def ids(messages: list[Delivery]) -> list[int]:
    return [message.id for message in messages]


# Replay.


def test_seek_to_the_beginning_replays_everything(queue: Queue) -> None:
    queue.seek(0)
    assert [message.payload for message in queue.lease(99)] == [b"%d" % n for n in range(10)]


def test_seek_into_the_middle_and_to_the_end(queue: Queue) -> None:
    queue.seek(3)
    assert queue.stats().ready == 7
    queue.seek(8)
    assert ids(queue.lease(99)) == [8, 9]
    queue.seek(10)
    assert queue.lease(99) == []
    queue.put(b"new")
    assert ids(queue.lease(99)) == [10]


def test_seeking_makes_leases_void_and_attempts_start_again(queue: Queue) -> None:
    queue.nack(queue.lease(1), "no", delay=0)
    held = queue.lease(4)
    queue.seek(6)
    assert not held[0].ack()
    assert [(message.id, message.attempt) for message in queue.lease(99)] == [(6, 1), (7, 1), (8, 1), (9, 1)]
    assert queue.stats().leased == 4


def test_a_seek_survives_a_restart(queue: Queue, store: Store, reopen: Callable[..., Store], flush: Flush) -> None:
    queue.lease(2)
    queue.seek(4)
    queue.ack(queue.lease(1))
    store.close()
    assert ids(reopen().queue("orders", flush=flush).lease(99)) == [5, 6, 7, 8, 9]


def test_a_seek_survives_a_power_cut_the_moment_it_returns(store: Store, files: SimFiles, clock: SimClock) -> None:
    queue = store.queue("orders")
    queue.put_many([b"a", b"b", b"c"])
    queue.ack(queue.lease(3))
    queue.seek(1)
    for mode in ("dropped", "prefix", "torn", "reordered"):
        after = holdfast.open("data", files=files.after_crash(mode), clock=clock, background=False).queue("orders")
        assert [waiting.id for waiting in after.peek()] == [1, 2]


def test_a_delay_that_is_over_is_over_when_replayed(store: Store, clock: SimClock, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush)
    queue.put(b"soon", delay=5)
    queue.put(b"late", delay=500)
    clock.advance(6)
    queue.ack(queue.lease())
    queue.seek(0)
    assert (queue.stats().ready, queue.stats().delayed) == (1, 1)
    assert ids(queue.lease(9)) == [0]


def test_priorities_count_in_a_replay_too(store: Store, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush)
    queue.put_many([b"low", Message(b"high", priority=9)])
    queue.ack(queue.lease(2))
    queue.seek(0)
    assert [message.payload for message in queue.lease(9)] == [b"high", b"low"]


def test_what_retention_has_taken_is_not_replayed(store: Store) -> None:
    queue = store.queue("orders", roll=Roll.count(2))
    for n in range(10):
        queue.put(b"%d" % n)
    queue.ack(queue.lease(10))
    queue.checkpoint()
    queue.log.compact(retention=Retention(max_segments=2))
    queue.seek(0)
    assert ids(queue.lease(99)) == [6, 7, 8, 9]


def test_what_will_be_replayed_is_kept_from_then_on(store: Store) -> None:
    queue = store.queue("orders", roll=Roll.count(2))
    for n in range(10):
        queue.put(b"%d" % n)
    queue.ack(queue.lease(10))
    queue.checkpoint()
    queue.seek(3)
    queue.log.compact(retention=Retention(max_segments=1))
    assert ids(queue.lease(99)) == list(range(3, 10))


@pytest.mark.parametrize("kind", ["nanoseconds", "utc", "elsewhere"])
def test_seek_to_a_point_in_time(store: Store, clock: SimClock, flush: Flush, kind: str) -> None:
    queue = store.queue("orders", flush=flush)
    moments = []
    for n in range(5):
        moments.append(clock.time_ns())
        clock.advance(1)
        queue.put(b"%d" % n)
        clock.advance(60)
    queue.ack(queue.lease(5))
    when: int | datetime = moments[3]
    if kind != "nanoseconds":
        zone = UTC if kind == "utc" else timezone(timedelta(hours=-7))
        when = from_ns(moments[3]).astimezone(zone)
    queue.seek_time(when)
    assert ids(queue.lease(99)) == [3, 4]


def test_seek_to_before_all_and_after_all_time(queue: Queue, clock: SimClock) -> None:
    queue.seek_time(datetime(1999, 1, 1, tzinfo=UTC))
    assert queue.stats().ready == 10
    queue.seek_time(clock.time_ns() + 10**12)
    assert queue.stats().ready == 0


def test_seek_by_time_finds_what_was_put_a_moment_ago(store: Store, clock: SimClock, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush)
    queue.put(b"a")
    clock.advance(1)
    between = clock.time_ns()
    queue.put(b"b")
    queue.seek_time(between)
    assert ids(queue.lease(9)) == [1]


@pytest.mark.parametrize("wrong", [-1, 11, True, 1.5, "0", None])
def test_a_place_that_is_not_there_is_refused(queue: Queue, wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"cannot seek to.*ends at 10"):
        queue.seek(wrong)
    assert queue.stats().ready == 4


@pytest.mark.parametrize("wrong", [datetime(2026, 1, 1), "2026-01-01", 1.5, None])
def test_a_time_that_makes_no_sense_is_refused(queue: Queue, wrong: Any) -> None:
    with pytest.raises(InvalidArgument, match="when must be an aware datetime"):
        queue.seek_time(wrong)
    assert queue.stats().ready == 4


# Purge.


def test_purge_drops_all_that_waits_and_says_how_many(queue: Queue, clock: SimClock) -> None:
    queue.put(b"later", delay=60)
    queue.put(b"high", priority=9)
    (held,) = queue.lease()
    assert queue.purge() == 5
    assert (queue.stats().ready, queue.stats().delayed, queue.stats().leased) == (0, 0, 1)
    assert queue.stats().total_dropped == 5
    clock.advance(61)
    assert queue.purge() + queue.stats().leased == 1  # the held one came back
    assert not held.ack()
    assert queue.put(b"new") == 12
    assert ids(queue.lease(9)) == [12]


def test_what_is_held_survives_a_purge(queue: Queue) -> None:
    held = queue.lease(2)
    queue.purge()
    assert held[0].ack()
    assert held[1].nack("no", delay=0)
    assert [(message.id, message.attempt) for message in queue.lease(9)] == [(7, 2)]


def test_purged_messages_do_not_come_back_after_a_restart(
    queue: Queue, store: Store, reopen: Callable[..., Store], clock: SimClock, flush: Flush
) -> None:
    queue.put_many([Message(b"later", delay=60), Message(b"high", priority=3)])
    queue.purge()
    store.close()
    clock.advance(100)
    queue = reopen().queue("orders", flush=flush)
    assert (queue.lease(9), queue.stats().delayed) == ([], 0)


def test_purging_an_empty_queue_is_nothing(store: Store) -> None:
    assert store.queue("orders").purge() == 0


def test_what_was_purged_can_still_be_replayed(queue: Queue) -> None:
    queue.purge()
    queue.seek(8)
    assert ids(queue.lease(9)) == [8, 9]


# Peek.


def test_peek_takes_nothing(queue: Queue) -> None:
    seen = queue.peek(3)
    assert [(waiting.id, waiting.payload, waiting.attempts) for waiting in seen] == [
        (6, b"6", 0),
        (7, b"7", 0),
        (8, b"8", 0),
    ]
    assert queue.peek(3) == seen
    assert (queue.stats().ready, queue.stats().leased) == (4, 0)
    assert len(queue.peek()) == 4


def test_peek_tells_what_a_delivery_would(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders")
    queue.put(b"x", key=b"k", headers={"h": "v"}, priority=3)
    queue.nack(queue.lease(), "no", delay=0)
    (waiting,) = queue.peek()
    (message,) = queue.lease()
    assert (waiting.id, waiting.payload, waiting.key, waiting.headers, waiting.enqueued_at, waiting.priority) == (
        message.id,
        message.payload,
        message.key,
        message.headers,
        message.enqueued_at,
        message.priority,
    )
    assert waiting.attempts == message.attempt - 1 == 1


@pytest.mark.parametrize("wrong", [-1, True, 1.5, "10", None])
def test_a_peek_that_makes_no_sense_is_refused(queue: Queue, wrong: Any) -> None:
    with pytest.raises(InvalidArgument):
        queue.peek(wrong)


# Stats.


def test_stats_tell_where_every_message_is(store: Store, clock: SimClock, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush, max_attempts=1, starvation=None)
    queue.put_many([b"%d" % n for n in range(10)])
    queue.put_many([Message(b"later", delay=60)] * 3)
    queue.ack(queue.lease(2))
    queue.nack(queue.lease(1), "no")
    held = queue.lease(4)
    clock.advance(10)
    stats = queue.stats()
    assert (stats.name, stats.log) == ("orders", "orders")
    assert (stats.ready, stats.delayed, stats.leased, stats.dead, stats.leases) == (3, 3, 4, 1, 1)
    assert (stats.total_leased, stats.total_acked, stats.total_nacked, stats.total_dead) == (7, 2, 0, 1)
    assert stats.oldest_age == pytest.approx(10, abs=0.1)
    assert stats.next_due is not None
    assert (stats.next_due - clock.time_ns()) / 1e9 == pytest.approx(50, abs=0.1)
    assert held[0].ack()
    assert 10 <= stats.lag <= 13  # what is delayed is known by buckets


def test_the_oldest_age_is_that_of_what_waits(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders")
    assert queue.stats().oldest_age is None
    queue.put(b"a", priority=9)
    clock.advance(10)
    queue.put(b"b")
    clock.advance(5)
    assert queue.stats().oldest_age == pytest.approx(15, abs=0.1)
    queue.ack(queue.lease())
    assert queue.stats().oldest_age == pytest.approx(5, abs=0.1)
    queue.ack(queue.lease())
    assert queue.stats().oldest_age is None


def test_rates_are_those_of_the_last_minute(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders")
    for _ in range(120):
        queue.put_many([b"x"] * 10)
        queue.ack(queue.lease(5))
        clock.advance(1)
        stats = queue.stats()
    assert stats.put_rate == pytest.approx(10, rel=0.1)
    assert stats.lease_rate == pytest.approx(5, rel=0.1)
    assert stats.ack_rate == pytest.approx(5, rel=0.1)
    clock.advance(120)
    assert queue.stats().put_rate == pytest.approx(0, abs=0.1)


def test_waits_and_holds_are_measured(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders", lease=1000)
    queue.put_many([b"x"] * 100)
    clock.advance(8)
    messages = queue.lease(100)
    clock.advance(2)
    queue.ack(messages)
    stats = queue.stats()
    assert stats.wait_p50 == pytest.approx(8, rel=0.15)
    assert stats.hold_p50 == pytest.approx(2, rel=0.15)
    assert stats.wait_p99 is not None
    assert stats.hold_p99 is not None


def test_the_lag_shrinks_as_messages_are_done(store: Store) -> None:
    queue = store.queue("orders")
    queue.put_many([b"x"] * 100)
    assert queue.stats().lag == 100
    held = queue.lease(60)
    queue.ack(held[10:])
    assert queue.stats().lag == 100  # the first ten are not done
    queue.ack(held[:10])
    assert queue.stats().lag == 40


def test_the_totals_survive_a_restart(queue: Queue, store: Store, reopen: Callable[..., Store], flush: Flush) -> None:
    queue.purge()
    before = queue.stats()
    store.close()
    after = reopen().queue("orders", flush=flush).stats()
    assert (after.total_leased, after.total_acked, after.total_dropped) == (6, 6, 4)
    assert before.total_acked == after.total_acked


# All of it in one place.


@pytest.mark.parametrize("lost", ["state", "nothing"])
def test_everything_is_as_it_was_after_a_restart_with_and_without_the_state(
    store: Store, files: SimFiles, clock: SimClock, reopen: Callable[..., Store], flush: Flush, lost: str
) -> None:
    queue = store.queue("orders", flush=flush, max_attempts=2)
    queue.put_many([Message(b"%d" % n, priority=n % 4, delay=(n % 3) * 50 or None) for n in range(60)])
    queue.ack(queue.lease(5))
    queue.nack(queue.lease(5), "no")
    queue.nack(queue.lease(3), "no", delay=0)
    queue.nack(queue.lease(3), "no", delay=0)
    queue.lease(2, lease=3600)
    queue.checkpoint()
    queue.ack(queue.lease(1))
    before = state_of(queue).describe(), queue.dead_letters()
    store.close()
    if lost == "state":
        files.remove(Path("data/state/state.flat"))
    queue = reopen().queue("orders", flush=flush)
    assert (state_of(queue).describe(), queue.dead_letters()) == before
    state_of(queue).check()


def test_a_read_only_and_a_closed_queue_are_not_moved(queue: Queue, store: Store, reopen: Callable[..., Store]) -> None:
    reader = reopen(read_only=True).queue("orders")
    for change in (reader.purge, lambda: reader.seek(0), lambda: reader.seek_time(0), reader.redrive, reader.sync):
        with pytest.raises(ReadOnly):
            change()
    store.close()
    for use in (
        queue.purge,
        queue.peek,
        queue.stats,
        queue.dead_letters,
        queue.redrive,
        queue.sync,
        queue.checkpoint,
        lambda: queue.seek(0),
        lambda: queue.seek_time(0),
    ):
        with pytest.raises(Closed):
            use()
