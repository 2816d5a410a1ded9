"""Dead letters: when a message becomes one, what is known of it, and the way back."""

import errno
from collections.abc import Callable

import pytest

import holdfast
from holdfast import Backoff, Flush, Message, Queue, Store
from holdfast.testing import SimClock, SimFiles
from tests.queue.calls import got
from tests.tiers import crash_sample

AT_ONCE = Backoff(base=0, cap=0)


def kill(queue: Queue, *payloads: bytes) -> None:
    """Put messages and let each fail for good."""
    queue.put_many(payloads)
    while messages := queue.lease(1000):
        queue.nack(messages, "it did not work", delay=0)


def test_a_message_that_failed_too_often_becomes_a_dead_letter(store: Store, clock: SimClock, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush, max_attempts=3, backoff=AT_ONCE, starvation=None)
    queue.put(b"before")
    put_at = clock.time_ns()
    queue.put(b"body", key=b"k", headers={"h": "v", "raw": b"\xff"}, priority=4)
    failed_at = []
    for n in range(3):
        message = got(queue)
        assert (message.id, message.attempt) == (1, n + 1)
        failed_at.append(clock.time_ns())
        message.nack(f"reason {n}")
        clock.advance(60)
    (letter,) = queue.dead_letters()
    assert (letter.payload, letter.key, letter.headers) == (b"body", b"k", {"h": "v", "raw": b"\xff"})
    assert (letter.reason, letter.cause, letter.attempts) == ("reason 2", "attempts", 3)
    assert (letter.queue, letter.original_id, letter.redriven) == ("orders", 1, 0)
    assert abs(letter.enqueued_at - put_at) < 1_000_000_000
    assert letter.first_failed_at is not None
    assert letter.last_failed_at is not None
    assert abs(letter.first_failed_at - failed_at[0]) < 1_000_000_000
    assert abs(letter.last_failed_at - failed_at[2]) < 1_000_000_000
    assert letter.died_at >= letter.last_failed_at
    assert (queue.stats().ready, queue.stats().leased, queue.stats().moving) == (1, 0, 0)
    assert (queue.stats().dead, queue.stats().total_dead) == (1, 1)


def test_a_dead_letter_carries_what_is_known_as_headers(store: Store) -> None:
    queue = store.queue("orders", max_attempts=2, backoff=AT_ONCE)
    queue.put(b"body", headers={"mine": "stays"}, priority=7)
    got(queue).nack("first")
    got(queue).nack("second")
    dead = got(store.queue("orders.dead"))
    assert (dead.payload, dead.priority, dead.attempt) == (b"body", 7, 1)
    facts = {name.removeprefix("holdfast-dead-"): value for name, value in dead.headers.items()}
    assert facts.keys() >= {"queue", "id", "cause", "reason", "attempts", "first-failure", "last-failure", "mine"}
    assert (facts["queue"], facts["id"], facts["reason"], facts["attempts"]) == ("orders", "0", "second", "2")


def test_leases_that_run_out_lead_there_too(store: Store, clock: SimClock, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush, max_attempts=2, lease=10)
    queue.put(b"x")
    for _ in range(2):
        got(queue)
        clock.advance(11)
    store.tick()
    (letter,) = queue.dead_letters()
    assert (letter.reason, letter.cause, letter.attempts) == ("the lease ran out", "attempts", 2)


def test_dead_letters_stay_where_they_are_when_they_are_looked_at(store: Store) -> None:
    queue = store.queue("orders", max_attempts=1)
    kill(queue, *(b"%d" % n for n in range(5)))
    assert [letter.payload for letter in queue.dead_letters(2)] == [b"0", b"1"]
    assert [letter.payload for letter in queue.dead_letters()] == [b"0", b"1", b"2", b"3", b"4"]
    assert queue.stats().dead == 5


def test_dead_letters_survive_a_restart(store: Store, reopen: Callable[..., Store], flush: Flush) -> None:
    queue = store.queue("orders", flush=flush, max_attempts=1)
    kill(queue, b"a", b"b")
    before = queue.dead_letters()
    store.close()
    queue = reopen().queue("orders", flush=flush)
    assert queue.dead_letters() == before
    assert (queue.stats().dead, queue.stats().total_dead, queue.stats().ready) == (2, 2, 0)


def test_a_compressed_message_dies_uncompressed(store: Store, reopen: Callable[..., Store]) -> None:
    queue = store.queue("orders", compression="zstd", max_attempts=1)
    kill(queue, b"text " * 10_000)
    assert queue.dead_letters()[0].payload == b"text " * 10_000
    queue.redrive()
    store.close()
    assert got(reopen().queue("orders")).payload == b"text " * 10_000


def test_a_message_that_was_given_back_untried_does_not_die(store: Store) -> None:
    queue = store.queue("orders", max_attempts=1)
    queue.put(b"x")
    for _ in range(10):
        got(queue).release()
    assert (queue.dead_letters(), queue.stats().ready) == ([], 1)


def test_redrive_moves_and_does_not_copy(store: Store, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush, max_attempts=2, backoff=AT_ONCE)
    queue.put(b"body", key=b"k", headers={"h": "v"}, priority=3)
    got(queue).nack("no")
    got(queue).nack("no")
    assert queue.redrive() == 1
    assert (queue.dead_letters(), queue.stats().dead, queue.stats().ready) == ([], 0, 1)
    assert store.queue("orders.dead").stats().ready == 0
    message = got(queue)
    assert (message.payload, message.key, message.priority, message.attempt) == (b"body", b"k", 3, 1)
    assert message.id > 0
    assert {name: value for name, value in message.headers.items() if not name.startswith("holdfast-")} == {"h": "v"}
    assert not [name for name in message.headers if name.startswith("holdfast-dead-")]
    assert queue.redrive() == 0


def test_redrive_moves_a_dead_letter_of_any_priority_that_nobody_has_seen_yet(store: Store) -> None:
    queue, letters = store.queue("orders"), store.queue("orders.dead")
    letters.put(b"by hand", priority=200)  # higher than any that the queue knows, until it next looks at its log
    assert queue.redrive() == 1
    assert got(queue).payload == b"by hand"


def test_a_message_knows_how_often_it_was_redriven(store: Store) -> None:
    queue = store.queue("orders", max_attempts=1)
    kill(queue, b"x")
    for times in range(1, 4):
        assert queue.redrive() == 1
        message = got(queue)
        assert message.headers["holdfast-redriven"] == str(times)
        message.nack("again")
        assert queue.dead_letters()[0].redriven == times
    assert (queue.stats().total_dead, store.queue("orders.dead").stats().total_redriven) == (4, 3)


def test_redrive_takes_those_that_are_named(store: Store) -> None:
    queue = store.queue("orders", max_attempts=1)
    kill(queue, b"a", b"b", b"c", b"d")
    letters = {letter.payload: letter.id for letter in queue.dead_letters()}
    assert queue.redrive([letters[b"b"], letters[b"d"], 999]) == 2
    assert [message.payload for message in queue.lease(9)] == [b"b", b"d"]
    assert [letter.payload for letter in queue.dead_letters()] == [b"a", b"c"]
    assert queue.redrive(iter([])) == 0
    assert queue.redrive([letters[b"b"]]) == 0


def test_thousands_are_redriven_in_their_order(store: Store, flush: Flush) -> None:
    """More than fit into one move."""
    queue = store.queue("orders", flush=flush, max_attempts=1)
    kill(queue, *(b"%d" % n for n in range(2500)))
    assert queue.stats().dead == 2500
    assert queue.redrive() == 2500
    assert [message.payload for message in queue.lease(3000)] == [b"%d" % n for n in range(2500)]
    assert store.queue("orders.dead").stats().ready == 0


def test_what_dies_again_while_it_is_redriven_stays_dead(store: Store) -> None:
    """A consumer that fails at once would keep a redrive going for ever."""
    queue = store.queue("orders", max_attempts=1, backoff=AT_ONCE)
    kill(queue, *(b"%d" % n for n in range(1500)))
    failing = iter(range(20))
    queue.listen(lambda: queue.nack(queue.lease(1000), "again") if next(failing, None) is not None else None)
    assert queue.redrive() == 1500
    assert queue.stats().dead + queue.stats().ready == 1500


def test_redriven_messages_survive_a_restart(store: Store, reopen: Callable[..., Store], flush: Flush) -> None:
    queue = store.queue("orders", flush=flush, max_attempts=1)
    kill(queue, b"a", b"b")
    queue.redrive()
    store.close()
    queue = reopen().queue("orders", flush=flush)
    assert [message.payload for message in queue.lease(5)] == [b"a", b"b"]
    assert queue.dead_letters() == []


def test_without_a_dead_letter_queue_it_is_dropped(store: Store) -> None:
    queue = store.queue("orders", max_attempts=1, dead_letter=None)
    kill(queue, b"x")
    assert (queue.stats().total_dropped, queue.stats().total_dead, queue.stats().dead) == (1, 0, 0)
    assert (queue.dead_letters(), queue.redrive()) == ([], 0)
    assert store.queues() == ["orders"]


def test_a_queue_without_dead_letters_has_made_no_queue_for_them(store: Store) -> None:
    queue = store.queue("orders")
    assert (queue.dead_letters(), queue.redrive(), queue.stats().dead) == ([], 0, 0)
    assert store.queues() == ["orders"]


@pytest.mark.parametrize("name", ["orders.dead", "graveyard"])
def test_dead_letters_do_not_die_again(store: Store, name: str) -> None:
    queue = store.queue("orders", max_attempts=1, dead_letter=name)
    kill(queue, b"x")
    dead = store.queue(name)
    for _ in range(10):
        got(dead).nack("still no", delay=0)
    assert len(queue.dead_letters()) == 1
    assert store.queues() == sorted(["orders", name])


def test_two_queues_may_share_a_queue_for_dead_letters(store: Store) -> None:
    left, right = (store.queue(name, max_attempts=1, dead_letter="all.dead") for name in ("left", "right"))
    kill(left, b"l")
    kill(right, b"r1", b"r2")
    assert [letter.payload for letter in left.dead_letters()] == [b"l"]
    assert (left.stats().dead, right.stats().dead) == (3, 3)  # what waits there, whosever it is
    assert left.redrive() == 1
    assert ([message.payload for message in left.lease(9)], right.stats().ready) == ([b"l"], 0)
    assert [letter.payload for letter in right.dead_letters()] == [b"r1", b"r2"]


def test_dead_letters_can_be_worked_off_like_any_queue(store: Store) -> None:
    queue = store.queue("orders", max_attempts=1)
    kill(queue, b"a", b"b")
    with got(store.queue("orders.dead")) as dead:
        assert dead.payload == b"a"
    assert [letter.payload for letter in queue.dead_letters()] == [b"b"]
    store.queue("orders.dead").purge()
    assert (queue.dead_letters(), queue.redrive(), queue.stats().dead) == ([], 0, 0)


def test_a_dead_letter_that_someone_looks_into_is_not_redriven_under_their_hands(store: Store) -> None:
    queue = store.queue("orders", max_attempts=1)
    kill(queue, b"a", b"b")
    held = got(store.queue("orders.dead"))
    assert queue.redrive() == 1
    assert held.ack()
    assert [message.payload for message in queue.lease(9)] == [b"b"]


def test_a_message_as_large_as_its_queue_takes_can_die(store: Store) -> None:
    queue = store.queue("orders", max_attempts=1, max_message=12 << 20)
    queue.put(bytes(11 << 20))
    queue.put(b"small", headers={"h": "x" * (11 << 20)})
    queue.nack(queue.lease(2), "too heavy")
    assert sorted(len(letter.payload) for letter in queue.dead_letters()) == [5, 11 << 20]
    assert queue.stats().moving == 0


def test_a_message_put_with_our_headers_still_dies_with_the_truth(store: Store) -> None:
    queue = store.queue("orders", max_attempts=1)
    queue.put(b"x", headers={"holdfast-dead-queue": "elsewhere", "holdfast-redriven": "many", "h": "v"})
    got(queue).nack("no")
    (letter,) = queue.dead_letters()
    assert (letter.queue, letter.redriven) == ("orders", 0)
    assert queue.redrive() == 1
    assert got(queue).headers["h"] == "v"


def test_a_dead_letter_that_cannot_be_moved_now_is_moved_later(store: Store, files: SimFiles, clock: SimClock) -> None:
    queue = store.queue("orders", max_attempts=1)
    queue.put_many([b"a", b"b"])
    message = got(queue)
    files.fail("write", errno.ENOSPC, pattern="*/orders.dead/*", times=1000)
    assert message.nack("no")
    assert (queue.stats().moving, queue.stats().leased, queue.stats().ready) == (1, 0, 1)
    files.heal()
    clock.advance(2)
    store.tick()
    assert [letter.payload for letter in queue.dead_letters()] == [b"a"]
    assert queue.stats().moving == 0


def test_what_could_not_be_moved_before_a_restart_is_moved_after_it(
    store: Store, files: SimFiles, reopen: Callable[..., Store]
) -> None:
    queue = store.queue("orders", max_attempts=1)
    queue.put(b"x")
    files.fail("write", errno.ENOSPC, pattern="*/orders.dead/*", times=1000)
    got(queue).nack("no")
    store.close()
    files.heal()
    again = reopen()
    queue = again.queue("orders", max_attempts=1)
    again.tick()
    assert [(letter.payload, letter.reason) for letter in queue.dead_letters()] == [(b"x", "no")]


class Death:
    """One message dies and is redriven; the machine may stop anywhere."""

    def __init__(self, flush: Flush) -> None:
        self.flush = flush
        self.put = False
        self.acked = False

    def open(self, files: SimFiles, clock: SimClock) -> tuple[Store, Queue]:
        store = holdfast.open("data", files=files, clock=clock, background=False)
        return store, store.queue("orders", flush=self.flush, lease=5, max_attempts=1)

    def run(self, files: SimFiles) -> None:
        clock = SimClock()
        store, queue = self.open(files, clock)
        queue.put(b"x")
        queue.sync()
        self.put = True
        got(queue)
        clock.advance(6)
        queue.stats()  # a look finds the lease run out, and makes nothing durable
        store.tick()
        queue.redrive()
        self.acked = True  # from here on it may be: the ack can be on disk before it returns
        got(queue).ack()
        queue.sync()
        store.close()

    def check(self, files: SimFiles) -> None:
        clock = SimClock()
        clock.advance(1000)
        store, queue = self.open(files, clock)
        for _ in range(3):
            store.tick()
            clock.advance(100)
            queue.dead_letters()  # which opens their queue, so that the next tick is for it too
        store.tick()
        there = queue.stats().ready + queue.stats().leased + queue.stats().moving + queue.stats().dead
        assert there <= 1, "it was doubled"
        assert there == 1 or self.acked or not self.put or self.flush.mode != "sync", "it was lost"


@pytest.mark.parametrize("mode", ["sync", "batch"])
def test_a_message_is_in_one_place_wherever_the_machine_stops(mode: str) -> None:
    flush = Flush.sync() if mode == "sync" else Flush.batch()
    assert crash_sample(lambda: Death(flush), every=5) > 100


def test_a_redrive_that_was_cut_off_is_finished_by_opening_the_queue(
    store: Store, files: SimFiles, reopen: Callable[..., Store]
) -> None:
    queue = store.queue("orders", max_attempts=1)
    kill(queue, b"x")
    files.fail("write", errno.ENOSPC, pattern="data/logs/orders/*", times=1000)
    queue.redrive()
    store.close()
    files.heal()
    again = reopen()
    queue = again.queue("orders")
    again.tick()
    assert queue.lease(5)[0].payload == b"x"


def test_a_redriven_message_can_be_forwarded_with_its_headers(store: Store) -> None:
    queue, other = store.queue("orders", max_attempts=1), store.queue("other")
    kill(queue, b"x")
    queue.redrive()
    message = got(queue)
    other.put(message.payload, headers=message.headers)
    assert got(other).payload == b"x"


def test_dead_letters_of_each_priority_are_found(store: Store) -> None:
    queue = store.queue("orders", max_attempts=1)
    queue.put_many([Message(b"%d" % n, priority=n) for n in range(10)])
    queue.nack(queue.lease(10), "no")
    assert [letter.payload for letter in queue.dead_letters()] == [b"%d" % n for n in range(10)]
    assert queue.redrive() == 10
    assert [message.priority for message in queue.lease(10)] == list(range(9, -1, -1))


@pytest.mark.parametrize("wrong", [5, "all", [b"1"], ["1"], [None], [1.5]], ids=str)
def test_ids_that_make_no_sense_are_refused(store: Store, wrong: object) -> None:
    queue = store.queue("orders", max_attempts=1)
    kill(queue, b"x")
    with pytest.raises(holdfast.InvalidArgument):
        queue.redrive(wrong)  # type: ignore[arg-type]
    assert len(queue.dead_letters()) == 1
