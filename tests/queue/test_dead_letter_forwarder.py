"""Dead letters that leave the store: handed to a forwarder, settled when it has them, waiting while it has not."""

from collections import Counter
from collections.abc import Callable

import pytest

from holdfast import Backoff, Flush, Queue, Store
from holdfast.base.errors import InvalidArgument, StorageError
from holdfast.queue.dead_letter_forwarder import ForwardedLetter
from holdfast.testing import SimClock, SimFiles
from tests.queue.calls import got
from tests.queue.internals import open_sim, state_of
from tests.tiers import crash_sample

TARGET = "amqp-dlx:away"
AT_ONCE = Backoff(base=0, cap=0)


class Away:
    """A place that takes letters, or says why not."""

    def __init__(self) -> None:
        self.letters: list[ForwardedLetter] = []
        self.calls: list[tuple[str, str]] = []
        self.problem: Exception | None = None

    def __call__(self, queue: str, target: str, letters: list[ForwardedLetter]) -> None:
        self.calls.append((queue, target))
        if self.problem is not None:
            raise self.problem
        self.letters += letters


@pytest.fixture
def away(store: Store) -> Away:
    away = Away()
    store.forward("amqp-dlx:", away)
    return away


def opened(store: Store, **settings: object) -> Queue:
    chosen = {"dead_letter": TARGET, "max_attempts": 2, "backoff": AT_ONCE, **settings}
    return store.queue("work", **chosen)  # type: ignore[arg-type]


def test_a_dead_letter_is_handed_over_with_all_that_is_known(
    store: Store, away: Away, clock: SimClock, flush: Flush
) -> None:
    queue = opened(store, flush=flush)
    put_at = clock.time_ns()
    queue.put(b"body", key=b"k", headers={"h": "v", "raw": b"\xff"}, priority=4)
    clock.advance(5)
    for reason in ("first", "second"):
        got(queue).nack(reason)
    (letter,) = away.letters
    assert (letter.id, letter.payload, letter.key, letter.headers) == (0, b"body", b"k", {"h": "v", "raw": b"\xff"})
    assert (letter.priority, letter.cause, letter.reason, letter.attempts) == (4, "attempts", "second", 2)
    assert letter.enqueued_at - put_at < 1_000_000_000 < letter.moved_at - put_at
    assert not letter.doubtful
    assert away.calls == [("work", TARGET)]
    assert (queue.stats().moving, queue.stats().total_dead, queue.stats().ready) == (0, 1, 0)


def test_each_cause_is_named(store: Store, away: Away, clock: SimClock) -> None:
    queue = opened(
        store, max_attempts=1, ttl=10, expired="dead-letter", max_length=3, overflow="dead-letter", starvation=None
    )
    queue.put_many([b"overflow", b"rejected", b"attempts", b"ttl"])
    message = got(queue)
    queue.reject_ids({message.lease: [message.id]}, "bad")
    got(queue).nack("no")
    clock.advance(11)
    store.tick()
    assert {letter.cause: letter.payload.decode() for letter in away.letters} == {
        cause: cause for cause in ("overflow", "rejected", "attempts", "ttl")
    }
    assert {letter.cause: letter.attempts for letter in away.letters} == {
        "overflow": 0, "rejected": 1, "attempts": 1, "ttl": 0
    }  # fmt: skip


def test_there_is_no_queue_of_that_name(store: Store, away: Away) -> None:
    queue = opened(store, max_attempts=1)
    queue.put(b"x")
    got(queue).nack()
    assert (queue.stats().dead, queue.dead_letters(), queue.redrive()) == (0, [], 0)
    assert store.queues() == ["work"]


def test_letters_wait_until_there_is_a_forwarder(store: Store, reopen: Callable[..., Store]) -> None:
    queue = opened(store, max_attempts=1)
    queue.put(b"x")
    got(queue).nack("no")
    store.tick()
    assert queue.stats().moving == 1
    away = Away()
    store.forward("other-dlx:", away)
    store.tick()
    assert not away.letters
    store.forward("amqp-dlx:", away)
    store.tick()
    assert [(letter.payload, letter.doubtful) for letter in away.letters] == [(b"x", False)]
    assert queue.stats().moving == 0


def test_what_a_forwarder_refuses_it_gets_again_and_knows_it(store: Store, away: Away) -> None:
    queue = opened(store, max_attempts=1)
    away.problem = StorageError("the disk is full")
    queue.put(b"x")
    got(queue).nack()
    assert queue.stats().moving == 1
    away.problem = None
    store.tick()
    store.tick()
    assert [(letter.payload, letter.doubtful) for letter in away.letters] == [(b"x", True)]


def test_after_a_crash_letters_are_doubtful(store: Store, away: Away, files: SimFiles, clock: SimClock) -> None:
    queue = opened(store, max_attempts=1)
    away.problem = StorageError("not now")
    queue.put(b"x")
    got(queue).nack()
    again, taken = open_sim(files.after_crash("prefix"), clock), Away()
    again.forward("amqp-dlx:", taken)
    again.queue("work")
    again.tick()
    assert [(letter.id, letter.doubtful) for letter in taken.letters] == [(0, True)]


def test_letters_for_elsewhere_do_not_wait_for_each_other(
    store: Store, away: Away, reopen: Callable[..., Store]
) -> None:
    queue = opened(store, max_attempts=1, dead_letter="aaa-dlx:nobody")
    queue.put(b"stuck")
    got(queue).nack()
    store.close()
    again = reopen()
    again.forward("amqp-dlx:", away)
    queue = opened(again, max_attempts=1)
    queue.put(b"goes")
    got(queue).nack()
    assert [letter.payload for letter in away.letters] == [b"goes"]
    assert queue.stats().moving == 1


def test_many_letters_go_in_batches(store: Store, away: Away) -> None:
    queue = opened(store, max_attempts=1)
    queue.put_many([b"%d" % n for n in range(2500)])
    queue.nack(queue.lease(2500))
    assert [letter.id for letter in away.letters] == list(range(2500))
    assert len(away.calls) == 3


def test_a_prefix_must_not_look_like_a_name(store: Store) -> None:
    for prefix in ("", "orders", "orders:", "-dlx:", "amqp-dlx:more"):
        with pytest.raises(InvalidArgument):
            store.forward(prefix, Away())


class Forwarded:
    """Messages die, and are handed over to a place that forgets nothing."""

    def __init__(self) -> None:
        self.clock = SimClock()
        self.away: list[ForwardedLetter] = []
        self.put: set[bytes] = set()
        self.acking: set[bytes] = set()
        self.acked: set[bytes] = set()

    def take(self, queue: str, target: str, letters: list[ForwardedLetter]) -> None:
        self.away += letters

    def run(self, files: SimFiles) -> None:
        store = open_sim(files, self.clock)
        store.forward("amqp-dlx:", self.take)
        queue = opened(store, max_attempts=1)
        for n in range(3):
            queue.put_many([b"%d-dies" % n, b"%d-lives" % n, b"%d-bad" % n])
            self.put |= {b"%d-dies" % n, b"%d-lives" % n, b"%d-bad" % n}
            one, two, three = queue.lease(3)
            queue.reject_ids({three.lease: [three.id]}, "bad")
            one.nack("no")
            self.acking.add(two.payload)
            two.ack()
            self.acked.add(two.payload)
            queue.checkpoint()
        store.close()

    def check(self, files: SimFiles) -> None:
        before = list(self.away)
        store = open_sim(files, SimClock(self.clock.time_ns()))
        again: list[ForwardedLetter] = []
        store.forward("amqp-dlx:", lambda queue, target, letters: again.extend(letters))
        queue = opened(store, max_attempts=None)
        state_of(queue).check()
        store.tick()
        assert not state_of(queue).moving
        known = {letter.id for letter in before}
        assert all(letter.doubtful for letter in again if letter.id in known), "it came twice and nobody was told"
        moved_at = {letter.id: letter.moved_at for letter in before}
        assert all(moved_at.get(letter.id, letter.moved_at) == letter.moved_at for letter in again)
        store.close()
        store = open_sim(files, SimClock(self.clock.time_ns() + 10**15))
        left = [message.payload for message in opened(store, max_attempts=None).lease(99)]
        gone = Counter({letter.id: letter.payload for letter in [*before, *again]}.values())
        assert self.put - self.acking <= set(left) | set(gone), "lost"
        assert not set(left) & set(gone), "a message is here and away"
        assert not set(left) & self.acked


def test_no_crash_loses_a_letter_or_hides_that_it_may_come_twice() -> None:
    assert crash_sample(Forwarded, seeds=(0,), every=5) > 100
