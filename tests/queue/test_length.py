"""Limited length: what goes, what is refused, and what counts."""

from collections.abc import Callable

import pytest

from holdfast import Backoff, Delivery, Flush, Message, Queue, QueueFull, Store
from holdfast.testing import SimClock
from tests.queue.calls import Call


def payloads(messages: list[Delivery]) -> list[bytes]:
    return [message.payload for message in messages]


def put_five(queue: Queue) -> None:
    for n in range(5):
        queue.put(b"%d" % n)


def test_drop_head_lets_the_oldest_go(store: Store, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush, max_length=3)
    put_five(queue)
    assert (queue.stats().ready, queue.stats().total_dropped) == (3, 2)
    assert payloads(queue.lease(9)) == [b"2", b"3", b"4"]


def test_a_batch_longer_than_the_queue_leaves_its_last(store: Store) -> None:
    queue = store.queue("orders", max_length=3)
    queue.put(b"before")
    assert len(queue.put_many([b"%d" % n for n in range(10)])) == 10
    assert payloads(queue.lease(99)) == [b"7", b"8", b"9"]


def test_what_was_dropped_stays_dropped_after_a_restart(
    store: Store, reopen: Callable[..., Store], flush: Flush
) -> None:
    put_five(store.queue("orders", flush=flush, max_length=3))
    store.close()
    queue = reopen().queue("orders", flush=flush)
    assert queue.stats().ready == 3
    queue.put(b"5")
    assert payloads(queue.lease(9)) == [b"3", b"4", b"5"]


def test_dead_letter_moves_the_oldest_there(store: Store, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush, max_length=3, overflow="dead-letter")
    put_five(queue)
    assert [(letter.payload, letter.cause, letter.attempts) for letter in queue.dead_letters()] == [
        (b"0", "overflow", 0),
        (b"1", "overflow", 0),
    ]
    assert queue.dead_letters()[0].reason
    assert payloads(queue.lease(9)) == [b"2", b"3", b"4"]
    assert (queue.stats().total_dropped, queue.stats().total_dead) == (0, 2)


def test_reject_refuses_and_writes_nothing(store: Store, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush, max_length=3, overflow="reject")
    queue.put_many([b"0", b"1", b"2"])
    for refused in (lambda: queue.put(b"3"), lambda: queue.put_many([b"3"]), lambda: queue.put(b"3", delay=5)):
        with pytest.raises(QueueFull, match=r"'orders' holds 3 of at most 3.*nothing was written: try again later"):
            refused()
    assert queue.log.end == 3
    queue.ack(queue.lease(1))
    assert queue.put(b"3") == 3


def test_reject_takes_a_batch_whole_or_not_at_all(store: Store) -> None:
    queue = store.queue("orders", max_length=3, overflow="reject")
    queue.put(b"0")
    with pytest.raises(QueueFull, match="cannot accept 3 more"):
        queue.put_many([b"1", b"2", b"3"])
    assert list(queue.put_many([b"1", b"2"])) == [1, 2]


def test_a_duplicate_needs_no_room(store: Store) -> None:
    queue = store.queue("orders", max_length=2, overflow="reject")
    queue.put(b"0", dedup="id")
    queue.put(b"1")
    assert queue.put(b"again", dedup="id") == 0
    with pytest.raises(QueueFull):
        queue.put(b"new", dedup="new")
    queue.ack(queue.lease(1))
    assert queue.put(b"new", dedup="new") == 2


def test_an_empty_batch_fits_into_a_full_queue(store: Store) -> None:
    queue = store.queue("orders", max_length=1, overflow="reject")
    queue.put(b"0")
    assert list(queue.put_many([])) == []


def test_what_is_leased_does_not_count_and_what_comes_back_is_kept(store: Store) -> None:
    queue = store.queue("orders", max_length=2, overflow="reject", backoff=Backoff(base=0, cap=0))
    queue.put_many([b"0", b"1"])
    held = queue.lease(2)
    queue.put_many([b"2", b"3"])
    queue.nack(held, "no")
    assert queue.stats().ready == 4
    with pytest.raises(QueueFull, match="holds 4 of at most 2"):
        queue.put(b"4")
    assert payloads(queue.lease(9)) == [b"0", b"1", b"2", b"3"]


def test_what_is_delayed_counts(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders", max_length=2, overflow="reject")
    queue.put_many([Message(b"0", delay=5), Message(b"1", delay=5)])
    with pytest.raises(QueueFull):
        queue.put(b"2")
    clock.advance(6)
    assert queue.stats().ready == 2


@pytest.mark.parametrize("overflow", ["drop-head", "dead-letter"])
def test_where_all_are_delayed_the_next_due_goes_first(store: Store, clock: SimClock, overflow: str) -> None:
    queue = store.queue("orders", max_length=2, overflow=overflow)
    for n in (30, 10, 20):
        queue.put(b"%d" % n, delay=n)
    assert (queue.stats().delayed, queue.stats().ready) == (2, 0)
    dead = [letter.payload for letter in queue.dead_letters()]
    assert dead == ([b"10"] if overflow == "dead-letter" else [])
    clock.advance(31)
    assert payloads(queue.lease(9)) == [b"30", b"20"]


def test_the_lowest_priority_goes_first(store: Store) -> None:
    queue = store.queue("orders", max_length=2)
    queue.put(b"high", priority=9)
    queue.put_many([b"0", b"1", b"2"])
    assert payloads(queue.lease(9)) == [b"high", b"2"]


def test_a_limit_that_is_set_later_counts_from_the_next_put(store: Store, reopen: Callable[..., Store]) -> None:
    put_five(store.queue("orders"))
    store.close()
    queue = reopen().queue("orders", max_length=3)
    assert queue.stats().ready == 5
    queue.put(b"5")
    assert payloads(queue.lease(9)) == [b"3", b"4", b"5"]


def test_room_is_made_by_what_is_overdue(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders", max_length=2, overflow="reject", ttl=5)
    queue.put_many([b"0", b"1"])
    clock.advance(6)
    store.tick()
    assert queue.put(b"2") == 2


@pytest.mark.parametrize("overflow", ["drop-head", "reject", "dead-letter"])
def test_threads_never_make_it_longer_than_it_may_be(disk_store: Store, flush: Flush, overflow: str) -> None:
    queue = disk_store.queue("orders", flush=flush, max_length=10, overflow=overflow)

    def put() -> int:
        taken = 0
        for n in range(40):
            try:
                queue.put(b"%d" % n)
                taken += 1
            except QueueFull:
                pass
        return taken

    taken = sum(call.result() for call in [Call(put) for _ in range(4)])
    stats = queue.stats()
    assert stats.ready == 10
    assert taken == queue.log.end == (10 if overflow == "reject" else 160)
    assert stats.total_dropped + stats.total_dead == taken - 10


def test_what_is_too_much_goes_before_anything_is_handed_out_one_by_one(store: Store, flush: Flush) -> None:
    store.queue("all", log="events", flush=flush)
    queue = store.queue("last", log="events", max_length=2)
    store.log("events").append_many([b"0", b"1", b"2", b"3"])
    message = queue.get()
    assert message is not None
    assert message.payload == b"2"
