"""What comes back: after how long, how often, with which count, and in which place."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast import Backoff, Flush, InvalidArgument, Queue, Store
from holdfast.testing import SimClock, SimFiles
from tests.queue.calls import got
from tests.queue.internals import state_of


def wait_until_ready(queue: Queue, clock: SimClock) -> float:
    """How long it takes until something is ready, to a tenth of a second."""
    waited = 0.0
    while not queue.stats().ready:
        clock.advance(0.1)
        waited += 0.1
        assert waited < 10_000
    return waited


def test_a_nacked_message_comes_back_with_the_same_id(store: Store, clock: SimClock, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush)
    queue.put_many([b"a", b"b"])
    assert got(queue).nack("no")
    assert (queue.stats().delayed, queue.stats().total_nacked) == (1, 1)
    clock.advance(2)
    again = got(queue)
    assert (again.id, again.payload, again.attempt) == (0, b"a", 2)  # before b, which was put later


def test_each_failure_doubles_the_wait_up_to_the_cap(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders", max_attempts=None, backoff=Backoff(base=1, cap=10))
    queue.put(b"x")
    waits = []
    for _ in range(7):
        assert got(queue).nack("no")
        waits.append(wait_until_ready(queue, clock))
    assert waits == pytest.approx([1, 2, 4, 8, 10, 10, 10], abs=0.15)


def test_the_backoff_may_grow_otherwise_or_not_at_all(store: Store, clock: SimClock) -> None:
    for name, backoff, expected in (
        ("fast", Backoff(base=timedelta(seconds=1), cap=timedelta(minutes=5), factor=10), [1, 10, 100]),
        ("even", Backoff(base=2, cap=300, factor=1), [2, 2, 2]),
        ("none", Backoff(base=0, cap=0), [0, 0, 0]),
    ):
        queue = store.queue(name, max_attempts=None, backoff=backoff)
        queue.put(b"x")
        waits = []
        for _ in range(3):
            got(queue).nack("no")
            waits.append(wait_until_ready(queue, clock))
        assert waits == pytest.approx(expected, abs=0.15)


def test_a_delay_of_ones_own_counts_in_place_of_the_backoff(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders", backoff=Backoff(base=100, cap=100))
    queue.put(b"x")
    got(queue).nack("at once", delay=0)
    assert got(queue).nack("in a while", delay=timedelta(seconds=5))
    assert wait_until_ready(queue, clock) == pytest.approx(5, abs=0.15)


def test_an_expired_lease_counts_as_an_attempt_and_comes_back_at_once(
    store: Store, clock: SimClock, flush: Flush
) -> None:
    queue = store.queue("orders", flush=flush, lease=10, backoff=Backoff(base=100, cap=100))
    queue.put(b"x")
    got(queue)
    clock.advance(11)
    assert got(queue).attempt == 2
    assert (queue.stats().total_expired, queue.stats().total_nacked) == (1, 0)


def test_attempts_are_counted_over_a_restart(
    store: Store, clock: SimClock, reopen: Callable[..., Store], flush: Flush
) -> None:
    queue = store.queue("orders", flush=flush)
    queue.put_many([b"a", b"b", b"c"])
    got(queue).nack("no", delay=0)
    got(queue).nack("no", delay=5)
    store.close()
    queue = reopen().queue("orders", flush=flush)
    clock.advance(10)
    assert [(message.id, message.attempt) for message in queue.lease(5)] == [(0, 3), (1, 1), (2, 1)]


def test_attempts_are_counted_one_by_one_and_in_batches_alike(store: Store, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush, max_attempts=None)
    queue.put_many([b"a", b"b"])
    for attempt in range(1, 5):
        first = got(queue)
        (second,) = queue.lease()
        assert [(first.id, first.attempt), (second.id, second.attempt)] == [(0, attempt), (1, attempt)]
        queue.nack([first, second], "no", delay=0)


def test_a_nack_survives_a_power_cut_the_moment_it_returns(store: Store, files: SimFiles, clock: SimClock) -> None:
    queue = store.queue("orders")
    queue.put(b"x")
    got(queue).nack("no", delay=60)
    for mode in ("dropped", "prefix", "torn", "reordered"):
        later = SimClock(clock.time_ns())
        after = holdfast.open("data", files=files.after_crash(mode), clock=later, background=False).queue("orders")
        assert (after.stats().ready, after.stats().delayed) == (0, 1)
        later.advance(61)
        assert got(after).attempt == 2


def test_many_are_given_back_each_with_its_own_count(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders", max_attempts=4, backoff=Backoff(base=10, cap=100))
    queue.put_many([b"a", b"b", b"c"])
    queue.nack(queue.lease(1), "no", delay=0)
    queue.nack(queue.lease(3), "no")
    clock.advance(11)
    assert [(message.id, message.attempt) for message in queue.lease(3)] == [(1, 2), (2, 2)]
    clock.advance(10)
    assert [(message.id, message.attempt) for message in queue.lease(3)] == [(0, 3)]


def test_a_message_may_be_tried_as_often_as_it_takes(store: Store) -> None:
    """The count outgrows 16 bits, as it will for a message that nobody can do."""
    from holdfast.queue.attempts import Failure

    queue = store.queue("orders", max_attempts=None)
    queue.put(b"x")
    got(queue).nack("no", delay=0)
    state_of(queue).failures.set(0, Failure(65_534, 1, 1, "as if tried so often"))
    for _ in range(4):
        assert got(queue).nack("no", delay=0)
    assert got(queue).attempt > 65_534
    queue.checkpoint()


def test_the_count_starts_again_for_a_message_that_is_replayed(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders")
    queue.put(b"x")
    got(queue).nack("no", delay=0)
    got(queue).ack()
    queue.seek(0)
    assert got(queue).attempt == 1


def test_what_waits_to_be_tried_again_does_not_hold_up_others(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders", backoff=Backoff(base=60, cap=60))
    queue.put_many([b"%d" % n for n in range(100)])
    for message in queue.lease(100):
        if message.id % 2:
            message.nack("no")
        else:
            message.ack()
    queue.put(b"new")
    with got(queue) as message:
        assert message.payload == b"new"
    clock.advance(61)
    assert [message.id for message in queue.lease(100)] == list(range(1, 100, 2))


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        ({"reason": 5}, "reason must be a str"),
        ({"reason": None}, "reason must be a str"),
        ({"reason": b"bytes"}, "reason must be a str"),
        ({"delay": -1}, "delay must not be negative"),
        ({"delay": "5"}, "delay must be seconds or a timedelta"),
        ({"delay": float("inf")}, "delay must be a finite"),
        ({"delay": 1e10}, "delay must not be more than 200 years"),
    ],
    ids=str,
)
def test_a_nack_that_makes_no_sense_is_refused_and_the_message_stays_ours(
    store: Store, arguments: dict[str, Any], hint: str
) -> None:
    queue = store.queue("orders")
    queue.put(b"x")
    message = got(queue)
    with pytest.raises(InvalidArgument, match=hint):
        message.nack(**arguments)
    with pytest.raises(InvalidArgument, match=hint):
        queue.nack([message], **arguments)
    assert message.ack()


@pytest.mark.parametrize(
    "wrong",
    [
        {"base": -1},
        {"base": "1"},
        {"cap": 0.5},
        {"cap": float("nan")},
        {"cap": 1e10},
        {"factor": 0.5},
        {"factor": 101},
        {"factor": True},
        {"factor": "2"},
        {"factor": float("nan")},
    ],
    ids=str,
)
def test_a_backoff_that_makes_no_sense_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=f"Backoff.*{next(iter(wrong))}|base"):
        Backoff(**wrong)


def test_the_longest_backoff_is_reached_and_never_passed(store: Store, clock: SimClock) -> None:
    backoff = Backoff(base=1, cap=300)
    assert [backoff.delay_ns(attempt) for attempt in (1, 2, 9, 10, 1000, 10**9)] == [
        1_000_000_000,
        2_000_000_000,
        256_000_000_000,
        300_000_000_000,
        300_000_000_000,
        300_000_000_000,
    ]
