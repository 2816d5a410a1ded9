"""Ending leases by id, refusing messages for good, and voiding the leases of a life that is over."""

import pytest

from holdfast import Backoff, Flush, Queue, Store
from holdfast.base.errors import InvalidArgument
from holdfast.queue.queue_state import QueueState
from holdfast.testing import SimClock, SimFiles
from tests.queue.calls import got
from tests.queue.internals import core_of, described, journal_of, open_sim, state_of

AT_ONCE = Backoff(base=0, cap=0)


def taken(queue: Queue, count: int) -> dict[int, list[int]]:
    """Lease, and keep nothing but the ids."""
    parts: dict[int, list[int]] = {}
    for message in queue.lease(count):
        parts.setdefault(message.lease, []).append(message.id)
    return parts


@pytest.fixture
def queue(store: Store, flush: Flush) -> Queue:
    queue = store.queue("work", flush=flush, max_attempts=None, backoff=AT_ONCE)
    queue.put_many([b"0", b"1", b"2", b"3"])
    return queue


def ready(queue: Queue) -> list[tuple[bytes, int]]:
    return [(message.payload, message.attempts) for message in queue.peek(100)]


def reopened(store: Store, files: SimFiles, clock: SimClock) -> Queue:
    store.close()
    return open_sim(files, clock).queue("work")


def test_messages_are_acked_by_their_ids_over_several_leases(queue: Queue) -> None:
    first, second = taken(queue, 2), taken(queue, 2)
    assert queue.ack_ids({**first, **second}) == []
    assert (queue.stats().ready, queue.stats().leased, queue.stats().total_acked) == (0, 0, 4)


def test_ids_that_are_not_held_are_named_and_the_others_settled(queue: Queue) -> None:
    ((lease, ids),) = taken(queue, 3).items()
    assert queue.ack_ids({lease: [ids[0], 77], 5: (8, 7)}) == [77, 7, 8]
    assert queue.return_ids({lease: ids[:2]}) == [ids[0]]
    assert queue.release_ids({lease: [9], 5: []}) == [9]
    assert queue.reject_ids({lease: {ids[2], 66}}) == [66]
    assert (queue.stats().leased, queue.stats().total_acked) == (0, 1)
    assert ready(queue) == [(b"1", 1), (b"3", 0)]


def test_what_is_returned_comes_back_to_its_place_with_one_more_attempt(queue: Queue) -> None:
    ((lease, ids),) = taken(queue, 2).items()
    queue.return_ids({lease: ids[1:]}, "no")
    queue.release_ids({lease: ids[:1]})
    assert ready(queue) == [(b"0", 0), (b"1", 1), (b"2", 0), (b"3", 0)]


def test_what_is_returned_with_a_delay_waits(queue: Queue, clock: SimClock) -> None:
    queue.return_ids(taken(queue, 1), delay=5)
    assert [payload for payload, _ in ready(queue)] == [b"1", b"2", b"3"]
    clock.advance(6)
    assert ready(queue)[0] == (b"0", 1)


def test_a_rejected_message_is_a_dead_letter_at_once(queue: Queue) -> None:
    queue.return_ids(taken(queue, 1), "first")
    queue.reject_ids(taken(queue, 1), "for good")
    (letter,) = queue.dead_letters()
    assert (letter.payload, letter.cause, letter.reason, letter.attempts) == (b"0", "rejected", "for good", 2)
    assert (queue.stats().leased, queue.stats().moving, queue.stats().total_dead) == (0, 0, 1)
    assert queue.redrive() == 1


def test_without_dead_letters_a_rejected_message_is_gone(
    store: Store, files: SimFiles, clock: SimClock, flush: Flush
) -> None:
    queue = store.queue("work", flush=flush, dead_letter=None)
    queue.put_many([b"a", b"b", b"c"])
    queue.return_ids(taken(queue, 1), "again")
    parts = taken(queue, 2)
    assert queue.reject_ids(parts) == []
    assert (queue.stats().total_dropped, queue.stats().leased) == (2, 0)
    assert ready(queue) == [(b"c", 0)]
    assert queue.reject_ids(parts) == [0, 1]
    before = described(queue)
    again = reopened(store, files, clock)
    assert described(again) == before


def test_the_quick_way_to_reject_ends_where_the_journal_leads(queue: Queue, store: Store) -> None:
    other = store.queue("other", dead_letter=None)
    other.put_many([b"a", b"b", b"c"])
    parts = taken(other, 2)
    other.return_ids(parts)
    ((lease, ids),) = taken(other, 3).items()
    other.reject_ids({lease: ids[1:]})
    other.sync()
    replayed = QueueState("other", core_of(other).checkpoints.state, b"nothing", dedup_window=0, dedup_limit=1)
    for piece in other.log.pieces(0, other.log.reader.visible_end):
        replayed.enter(piece, 0)
    for _, events in journal_of(other).replay(0, journal_of(other).log.end):
        for event in events:
            replayed.apply(event)
            for piece in other.log.pieces(replayed.scanned, other.log.reader.visible_end):
                replayed.enter(piece, 0)
    assert replayed.describe() == state_of(other).describe()


def test_an_ack_needs_no_new_message_of_the_log(queue: Queue) -> None:
    held = got(queue)
    before = state_of(queue).scanned
    queue.put(b"new")
    assert held.ack()
    assert state_of(queue).scanned == before
    assert ready(queue)[-1] == (b"new", 0)


def test_void_leases_come_back_as_if_they_had_run_out(
    queue: Queue, store: Store, files: SimFiles, clock: SimClock
) -> None:
    held = got(queue)
    taken(queue, 2)
    assert queue.void_leases("the broker died") == 3
    assert not held.ack()
    assert ready(queue) == [(b"0", 1), (b"1", 1), (b"2", 1), (b"3", 0)]
    assert (queue.stats().leased, queue.stats().total_expired) == (0, 3)
    assert queue.void_leases() == 0
    before = described(queue)
    assert described(reopened(store, files, clock)) == before


def test_a_void_lease_counts_towards_the_last_attempt(store: Store) -> None:
    queue = store.queue("work", max_attempts=1)
    queue.put(b"poison")
    taken(queue, 1)
    assert queue.void_leases("the broker died") == 1
    assert [(letter.cause, letter.reason) for letter in queue.dead_letters()] == [("attempts", "the broker died")]


def test_a_reason_is_a_text(queue: Queue) -> None:
    with pytest.raises(InvalidArgument):
        queue.reject_ids({}, b"no")  # type: ignore[arg-type]
