"""While a queue stands still, what is put goes to who takes it at once: only what is left is too much, or too old."""

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import Delivery, Store
from holdfast.queue.delivery import Waiting
from holdfast.testing import SimClock


def payloads(messages: Sequence[Delivery | Waiting]) -> list[bytes]:
    return [message.payload for message in messages]


@pytest.mark.parametrize("limit", [{"max_length": 2}, {"max_bytes": 2}])
@pytest.mark.parametrize("overflow", ["drop-head", "dead-letter"])
def test_what_is_taken_was_never_too_much(store: Store, limit: dict[str, Any], overflow: str) -> None:
    queue = store.queue("jobs", overflow=overflow, dead_letter="dead", **limit)
    since = queue.stand_still()
    queue.put_many([b"%d" % number for number in range(6)])
    queue.tick()
    assert payloads(queue.lease(3)) == [b"0", b"1", b"2"]
    queue.go_on(since)
    assert payloads(queue.peek()) == [b"4", b"5"]
    assert len(queue.dead_letters()) == (overflow == "dead-letter")


def test_what_is_taken_was_never_too_old(store: Store, clock: SimClock) -> None:
    queue = store.queue("jobs", ttl=1e-9)
    since = queue.stand_still()
    queue.put_many([b"a", b"b"])
    clock.advance(5)
    queue.tick()
    (first,) = queue.lease(1)
    assert first.payload == b"a"
    queue.go_on(since)
    assert not queue.lease(1)
    first.nack(delay=0)
    assert not queue.lease(1), "it had its turn"


def test_who_stands_still_later_does_not_keep_the_queue_too_long_for_ever(store: Store) -> None:
    queue = store.queue("jobs", max_length=1)
    first = queue.stand_still()
    queue.put(b"a")
    second = queue.stand_still()
    queue.put(b"b")
    queue.go_on(first)
    assert payloads(queue.peek()) == [b"b"]
    queue.put(b"c")
    queue.go_on(second)
    assert payloads(queue.peek()) == [b"c"]
