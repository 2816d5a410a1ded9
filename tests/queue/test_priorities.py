"""Priorities: the highest first, the oldest within, and nothing waits for ever."""

from collections.abc import Callable

import pytest

from holdfast import Backoff, Delivery, Flush, Message, Queue, Roll, Store
from holdfast.testing import SimClock


def payloads(messages: list[Delivery]) -> list[bytes]:
    return [message.payload for message in messages]


def one(queue: Queue) -> bytes:
    message = queue.get()
    assert message is not None
    message.ack()
    return message.payload


def test_the_highest_priority_comes_first_and_the_oldest_within(store: Store, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush)
    for n, priority in enumerate([0, 5, 9, 5, 0, 9, 1]):
        queue.put(b"%d-%d" % (priority, n), priority=priority)
    assert one(queue) == b"9-2"
    assert payloads(queue.lease(9)) == [b"9-5", b"5-1", b"5-3", b"1-6", b"0-0", b"0-4"]


def test_one_by_one_and_in_batches_the_order_is_the_same(store: Store, flush: Flush) -> None:
    priorities = [n * 7 % 10 for n in range(60)]
    singly, at_once = store.queue("singly", flush=flush), store.queue("at once", flush=flush)
    for queue in (singly, at_once):
        queue.put_many([Message(b"%d" % n, priority=priority) for n, priority in enumerate(priorities)])
    expected = [b"%d" % n for n in sorted(range(60), key=lambda n: (-priorities[n], n))]
    assert [one(singly) for _ in range(60)] == payloads(at_once.lease(60)) == expected


def test_a_message_beside_delayed_ones_keeps_its_priority(
    store: Store, reopen: Callable[..., Store], clock: SimClock, flush: Flush
) -> None:
    given = [10, 100, 255, 9]
    queue = store.queue("orders", flush=flush)
    queue.put_many(
        [Message(b"now", priority=n) for n in given] + [Message(b"later", delay=5, priority=n) for n in given]
    )
    assert [delivery.priority for delivery in queue.lease(4)] == [255, 100, 10, 9]
    store.close()
    queue = reopen().queue("orders", flush=flush)
    clock.advance(6)
    assert [delivery.priority for delivery in queue.lease(4)] == [255, 100, 10, 9]


def test_each_message_is_delivered_once_over_many_segments(store: Store, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush, roll=Roll.count(3))
    for n in range(50):
        queue.put(b"%d" % n, priority=n % 10)
    seen = [one(queue) for _ in range(50)]
    assert sorted(seen, key=int) == [b"%d" % n for n in range(50)]
    assert queue.get() is None


def test_a_restart_after_a_high_one_was_taken_loses_no_low_one(
    store: Store, reopen: Callable[..., Store], flush: Flush
) -> None:
    queue = store.queue("orders", flush=flush)
    queue.put_many([b"low", Message(b"high", priority=9), b"low too", Message(b"middle", priority=4)])
    assert one(queue) == b"high"
    store.close()
    queue = reopen().queue("orders", flush=flush)
    assert queue.stats().ready == 3
    assert [one(queue) for _ in range(3)] == [b"middle", b"low", b"low too"]


def test_priorities_survive_a_restart_while_they_wait(
    store: Store, reopen: Callable[..., Store], clock: SimClock, flush: Flush
) -> None:
    queue = store.queue("orders", flush=flush, backoff=Backoff(base=5, cap=5), starvation=None)
    queue.put_many([Message(b"%d" % n, priority=n) for n in (3, 8)])
    queue.put(b"6", priority=6, delay=5)
    queue.nack(queue.lease(1), "no")
    store.close()
    queue = reopen().queue("orders", flush=flush)
    assert payloads(queue.lease(9, lease=100)) == [b"3"]
    clock.advance(6)
    assert payloads(queue.lease(9)) == [b"8", b"6"]


def test_a_message_that_comes_back_keeps_its_priority(store: Store, clock: SimClock, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush, lease=10)
    queue.put_many([Message(b"high", priority=9), Message(b"middle", priority=5), b"low"])
    queue.nack(queue.lease(1), "no", delay=0)
    queue.release(queue.lease(1))
    queue.lease(1)
    clock.advance(11)
    assert [(message.payload, message.priority) for message in queue.lease(9)] == [
        (b"high", 9),
        (b"middle", 5),
        (b"low", 0),
    ]


@pytest.mark.parametrize("level", range(9))
def test_no_level_starves(store: Store, clock: SimClock, level: int) -> None:
    """However much comes with a higher priority, a message is delivered once it has waited for `starvation`."""
    queue = store.queue("orders", starvation=30)
    queue.put(b"patient", priority=level)
    seconds = 0
    queue.put(b"urgent", priority=9)
    while one(queue) != b"patient":
        clock.advance(1)
        seconds += 1
        queue.put(b"urgent", priority=9)
    assert 29 <= seconds <= 31


def test_each_of_many_levels_gets_its_turn(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders", starvation=30)
    queue.put_many([Message(b"%d" % level, priority=level) for level in range(9)])
    seen = []
    for _ in range(60):
        queue.put(b"urgent", priority=9)
        seen.append(one(queue))
        clock.advance(1)
    assert sorted(payload for payload in seen if payload != b"urgent") == [b"%d" % level for level in range(9)]


def test_of_those_that_starve_the_oldest_goes_first(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders", starvation=30)
    for level in (2, 7, 0, 5):
        queue.put(b"%d" % level, priority=level)
    clock.advance(31)
    queue.put(b"urgent", priority=9)
    assert payloads(queue.lease(9)) == [b"2", b"7", b"0", b"5", b"urgent"]


def test_a_message_that_was_delayed_does_not_hide_one_that_starves(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders", starvation=30)
    queue.put(b"just due", delay=100)
    queue.put(b"starving", priority=1)
    clock.advance(101)
    queue.put(b"urgent", priority=9)
    assert payloads(queue.lease(9)) == [b"starving", b"urgent", b"just due"]


def test_a_message_starves_from_when_it_was_due(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders", starvation=30)
    queue.put(b"x", delay=100)
    clock.advance(120)
    queue.put(b"urgent", priority=9)
    assert one(queue) == b"urgent"
    clock.advance(11)
    queue.put(b"urgent", priority=9)
    assert one(queue) == b"x"


def test_without_starvation_the_highest_always_goes_first(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders", starvation=None)
    queue.put(b"patient")
    clock.advance(100_000)
    queue.put(b"urgent", priority=1)
    assert payloads(queue.lease(9)) == [b"urgent", b"patient"]


def test_with_a_starvation_of_zero_they_go_as_they_came(store: Store) -> None:
    queue = store.queue("orders", starvation=0)
    queue.put_many([Message(b"%d" % n, priority=n) for n in (3, 1, 9, 0)])
    assert payloads(queue.lease(9)) == [b"3", b"1", b"9", b"0"]


def test_what_starved_during_a_restart_still_goes_first(
    store: Store, reopen: Callable[..., Store], clock: SimClock
) -> None:
    store.queue("orders").put(b"patient")
    store.close()
    clock.advance(31)
    queue = reopen().queue("orders")
    queue.put(b"urgent", priority=9)
    assert one(queue) == b"patient"


def test_peek_shows_the_order_in_which_they_will_come(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders", starvation=30)
    queue.put_many([Message(b"%d" % n, priority=n * 3 % 10) for n in range(10)])
    clock.advance(31)
    queue.put_many([Message(b"new", priority=9), b"plain"])
    assert [waiting.payload for waiting in queue.peek(100)] == payloads(queue.lease(100))
