"""While a queue stands still, what is put goes to who takes it at once: only what is left is too much, or too old."""

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import Delivery, QueueFull, Store
from holdfast.queue.messages import PeekedMessage
from holdfast.testing import SimClock


def payloads(messages: Sequence[Delivery | PeekedMessage]) -> list[bytes]:
    return [message.payload for message in messages]


@pytest.mark.parametrize("limit", [{"max_length": 2}, {"max_bytes": 2}])
@pytest.mark.parametrize("overflow", ["drop-head", "dead-letter"])
def test_what_is_taken_was_never_too_much(store: Store, limit: dict[str, Any], overflow: str) -> None:
    queue = store.queue("jobs", overflow=overflow, dead_letter="dead", **limit)
    since = queue.limit.suspend()
    queue.put_many([b"%d" % number for number in range(6)])
    queue.tick()
    assert payloads(queue.lease(3)) == [b"0", b"1", b"2"]
    queue.limit.resume(since)
    assert payloads(queue.peek()) == [b"4", b"5"]
    assert len(queue.dead_letters()) == (overflow == "dead-letter")


def test_what_is_taken_was_never_too_old(store: Store, clock: SimClock) -> None:
    queue = store.queue("jobs", ttl=1e-9)
    since = queue.limit.suspend()
    queue.put_many([b"a", b"b"])
    clock.advance(5)
    queue.tick()
    (first,) = queue.lease(1)
    assert first.payload == b"a"
    queue.limit.resume(since)
    assert not queue.lease(1)
    first.nack(delay=0)
    assert not queue.lease(1), "it had its turn"


def test_what_was_put_before_others_let_it_stand_still_is_judged(store: Store) -> None:
    queue = store.queue("jobs", max_length=1)
    first = queue.limit.suspend()
    queue.put_many([b"a", b"b", b"c"])
    second = queue.limit.suspend()
    queue.put_many([b"d", b"e"])
    queue.limit.resume(first)
    assert payloads(queue.peek()) == [b"c", b"d", b"e"]
    queue.limit.resume(second)
    assert payloads(queue.peek()) == [b"e"]


def test_a_queue_that_refuses_takes_so_many_more(store: Store) -> None:
    queue = store.queue("jobs", max_length=1, overflow="reject")
    hold = queue.limit.suspend(extra_capacity=2)
    for number in range(3):
        queue.put(b"%d" % number)
    with pytest.raises(QueueFull):
        queue.put(b"3")
    assert len(queue.lease(2)) == 2
    queue.limit.resume(hold)
    with pytest.raises(QueueFull):
        queue.put(b"4")


def test_bytes_that_are_taken_at_once_need_no_room(store: Store) -> None:
    queue = store.queue("jobs", max_bytes=1, overflow="reject")
    hold = queue.limit.suspend(extra_capacity=2)
    queue.put_many([b"long", b"longer"])
    with pytest.raises(QueueFull):
        queue.put(b"3")
    queue.lease(2)
    queue.limit.resume(hold)
    queue.put(b"3")
