"""Time to live: of a message, of a queue, and what becomes of what is overdue."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from holdfast import Backoff, Delivery, Flush, Message, Store
from holdfast.testing import SimClock, SimFiles
from tests.tiers import crash_sample


def payloads(messages: list[Delivery]) -> list[bytes]:
    return [message.payload for message in messages]


@pytest.mark.parametrize("one_by_one", [True, False], ids=["get", "lease"])
def test_a_message_is_not_delivered_after_its_time(
    store: Store, clock: SimClock, flush: Flush, one_by_one: bool
) -> None:
    queue = store.queue("orders", flush=flush)
    queue.put(b"short", ttl=5)
    queue.put(b"long", ttl=timedelta(minutes=5))
    queue.put(b"for ever")
    clock.advance(6)
    taken = [one for _ in range(3) if (one := queue.get())] if one_by_one else queue.lease(9)
    assert payloads(taken) == [b"long", b"for ever"]
    assert queue.stats().total_dropped == 1


def test_just_before_its_time_it_is_delivered(store: Store, clock: SimClock, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush, ttl=5)
    queue.put(b"x")
    clock.advance(4.9)
    assert payloads(queue.lease(9)) == [b"x"]


def test_a_queues_ttl_counts_unless_the_message_has_its_own(store: Store, clock: SimClock, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush, ttl=10)
    queue.put_many([b"queue's", Message(b"longer", ttl=100), Message(b"shorter", ttl=2)])
    clock.advance(3)
    assert [waiting.payload for waiting in queue.peek()] == [b"queue's", b"longer"]
    clock.advance(8)
    assert payloads(queue.lease(9)) == [b"longer"]


def test_a_message_that_is_held_when_its_time_ends_can_be_acked(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders", ttl=5)
    queue.put(b"x")
    (held,) = queue.lease(lease=100)
    clock.advance(50)
    store.tick()
    assert held.ack()


def test_a_message_that_comes_back_after_its_time_is_not_delivered_again(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders", ttl=5, backoff=Backoff(base=0, cap=0))
    queue.put(b"x")
    (held,) = queue.lease(lease=100)
    clock.advance(6)
    held.nack("no")
    assert queue.lease(9) == []
    assert queue.stats().total_dropped == 1


@pytest.mark.parametrize("of", ["message", "queue"])
def test_a_life_begins_when_the_delay_is_over(store: Store, clock: SimClock, of: str) -> None:
    queue = store.queue("orders", ttl=5 if of == "queue" else None)
    queue.put_many([Message(body, delay=10, ttl=5 if of == "message" else None) for body in (b"x", b"y")])
    clock.advance(14)
    assert payloads(queue.lease(1)) == [b"x"]
    clock.advance(2)
    assert queue.lease(9) == []


@pytest.mark.parametrize("of", ["message", "queue"])
def test_who_looks_after_a_queue_comes_when_the_next_life_ends(store: Store, clock: SimClock, of: str) -> None:
    queue = store.queue("orders", ttl=0.25 if of == "queue" else None)
    queue.put_many([Message(b"x", ttl=0.25 if of == "message" else None), Message(b"y", ttl=600)])
    assert queue.tick() == pytest.approx(0.25, abs=0.001)
    clock.advance(0.25)
    again = queue.tick()
    assert again is None or again >= 1
    assert queue.stats().ready == 1


def test_overdue_messages_go_by_themselves(store: Store, clock: SimClock, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush)
    queue.put_many([Message(b"%d" % n, ttl=5, priority=n % 3) for n in range(1000)])
    queue.put(b"stays")
    clock.advance(6)
    store.tick()
    assert (queue.stats().ready, queue.stats().total_dropped) == (1, 1000)


def test_overdue_messages_go_though_an_older_one_stays(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders")
    queue.put(b"stays")
    queue.put_many([Message(b"%d" % n, ttl=5) for n in range(10)])
    clock.advance(6)
    store.tick()
    assert queue.stats().ready == 1


def test_the_time_goes_on_while_the_store_is_closed(
    store: Store, clock: SimClock, reopen: Callable[..., Store], flush: Flush
) -> None:
    queue = store.queue("orders", flush=flush)
    queue.put(b"short", ttl=5)
    queue.put(b"long", ttl=500)
    store.close()
    clock.advance(6)
    queue = reopen().queue("orders", flush=flush)
    message = queue.get()
    assert message is not None
    assert message.payload == b"long"


def test_what_is_overdue_may_become_a_dead_letter(store: Store, clock: SimClock, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush, ttl=5, expired="dead-letter")
    queue.put(b"x", key=b"k", headers={"h": "v"})
    clock.advance(6)
    store.tick()
    (letter,) = queue.dead_letters()
    assert (letter.payload, letter.key, letter.headers, letter.cause) == (b"x", b"k", {"h": "v"}, "ttl")
    assert (letter.attempts, letter.first_failed_at) == (0, None)
    assert letter.reason
    assert (queue.stats().total_dead, queue.stats().total_dropped) == (1, 0)


def test_a_dead_letter_for_its_age_still_tells_how_it_failed_before(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders", ttl=5, expired="dead-letter")
    queue.put(b"x")
    queue.nack(queue.lease(), "did not work", delay=0)
    clock.advance(6)
    store.tick()
    (letter,) = queue.dead_letters()
    assert (letter.cause, letter.attempts) == ("ttl", 1)
    (dead,) = store.queue("orders.dead").lease()
    assert "did not work" in dead.headers.values()


def test_a_lease_finds_overdue_messages_and_lets_them_die(store: Store, clock: SimClock, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush, ttl=5, expired="dead-letter")
    queue.put_many([b"%d" % n for n in range(600)])
    clock.advance(6)
    queue.put(b"fresh")
    assert payloads(queue.lease(1)) == [b"fresh"]
    assert len(queue.dead_letters()) == 600


def test_a_redriven_message_begins_its_life_again(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders", ttl=5, expired="dead-letter")
    queue.put(b"x")
    clock.advance(6)
    store.tick()
    assert queue.redrive() == 1
    clock.advance(4)
    assert payloads(queue.lease(9)) == [b"x"]


def test_dead_letters_do_not_die_of_the_time_they_died_of(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders", expired="dead-letter")
    queue.put(b"x", ttl=5)
    clock.advance(6)
    store.tick()
    clock.advance(3600)
    store.tick()
    assert [letter.payload for letter in queue.dead_letters()] == [b"x"]
    queue.redrive()
    clock.advance(3600)
    assert payloads(queue.lease(9)) == [b"x"]


def test_peek_shows_what_would_be_delivered_and_as_many_as_were_asked_for(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders")
    queue.put_many([Message(b"overdue", ttl=5)] * 20)
    queue.put_many([b"a", b"b", b"c"])
    clock.advance(6)
    assert [waiting.payload for waiting in queue.peek(2)] == [b"a", b"b"]


class Overdue:
    """A message that becomes a dead letter for its age; the machine may stop anywhere."""

    def __init__(self) -> None:
        self.put = False

    def run(self, files: SimFiles) -> None:
        import holdfast

        clock = SimClock()
        store = holdfast.open("data", files=files, clock=clock, background=False)
        queue = store.queue("orders", ttl=5, expired="dead-letter")
        queue.put(b"x")
        self.put = True
        clock.advance(6)
        store.tick()

    def check(self, files: SimFiles) -> None:
        import holdfast

        clock = SimClock()
        clock.advance(100)
        store = holdfast.open("data", files=files, clock=clock, background=False)
        queue = store.queue("orders", ttl=5, expired="dead-letter")
        store.tick()
        assert len(queue.dead_letters()) == 1 or not self.put
        assert (queue.stats().dead <= 1, queue.stats().ready) == (True, 0)


def test_what_is_overdue_dies_once_wherever_the_machine_stops() -> None:
    assert crash_sample(Overdue, every=5) > 50
