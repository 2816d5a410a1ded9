"""Limited bytes: what goes, what is refused, what counts, and that the count is exact, also after a restart."""

from collections.abc import Callable
from random import Random

import pytest

from holdfast import Backoff, Delivery, Flush, Message, QueueFull, Store
from holdfast.base.errors import InvalidArgument
from holdfast.queue.byte_accounting import PayloadSizes
from holdfast.testing import SimClock, SimFiles
from tests.queue.calls import Call, got
from tests.queue.internals import open_sim, state_of, tiny_limits


def payloads(messages: list[Delivery]) -> list[bytes]:
    return [message.payload for message in messages]


def test_the_oldest_go_until_the_bytes_fit(store: Store, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush, max_bytes=10)
    for payload in (b"aaaa", b"bbbb", b"cc", b"dd"):
        queue.put(payload)
    assert payloads(queue.lease(9)) == [b"bbbb", b"cc", b"dd"]
    assert queue.stats().total_dropped == 1


def test_a_message_that_can_never_fit_is_dropped_with_all_before_it(store: Store) -> None:
    queue = store.queue("orders", max_bytes=10)
    queue.put_many([b"a", b"x" * 11])
    assert queue.lease(9) == []


def test_the_lower_priorities_go_first(store: Store) -> None:
    queue = store.queue("orders", max_bytes=6, starvation=None)
    queue.put_many([Message(b"hhh", priority=5), Message(b"l1", priority=1), Message(b"l2", priority=1), b"z"])
    assert payloads(queue.lease(9)) == [b"hhh", b"l2"]


def test_both_limits_hold(store: Store, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush, max_bytes=100, max_length=2)
    queue.put_many([b"a", b"b", b"c"])
    assert payloads([*queue.lease(9)]) == [b"b", b"c"]
    queue.put_many([b"d", b"e" * 60, b"f" * 60])
    assert payloads(queue.lease(9)) == [b"f" * 60]


def test_delayed_ones_count_and_go_when_nothing_else_is_left(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders", max_bytes=6)
    queue.put_many([Message(b"soon", delay=5), Message(b"later", delay=50)])
    assert queue.stats().delayed == 1
    clock.advance(60)
    assert payloads(queue.lease(9)) == [b"later"]


def test_leased_ones_do_not_count_and_do_when_they_come_back(store: Store, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush, max_bytes=5, backoff=Backoff(base=0, cap=0))
    queue.put(b"aaaaa")
    held = got(queue)
    queue.put(b"bbbbb")
    held.release()
    assert payloads(queue.lease(9)) == [b"bbbbb"]


def test_what_is_too_much_may_become_dead_letters(store: Store) -> None:
    queue = store.queue("orders", max_bytes=5, overflow="dead-letter")
    queue.put_many([b"aaa", b"bbb", b"cc"])
    assert [letter.payload for letter in queue.dead_letters()] == [b"aaa"]


def test_reject_refuses_and_writes_nothing(store: Store, flush: Flush) -> None:
    queue = store.queue("orders", flush=flush, max_bytes=5, overflow="reject")
    queue.put(b"aaa")
    with pytest.raises(QueueFull, match="3 of at most 5 bytes and cannot accept 3 more"):
        queue.put(b"bbb")
    queue.put(b"bb")
    with pytest.raises(QueueFull):
        queue.put(b"c")
    queue.put(b"")
    assert queue.log.end == 3
    queue.ack(queue.lease(1))
    queue.put(b"ccc")
    assert payloads(queue.lease(9)) == [b"bb", b"", b"ccc"]


def test_the_limit_holds_for_threads_that_put_at_once(disk_store: Store, flush: Flush) -> None:
    queue = disk_store.queue("orders", flush=flush, max_bytes=1000, overflow="reject")

    def puts() -> int:
        done = 0
        for _ in range(100):
            try:
                queue.put(b"x" * 10)
                done += 1
            except QueueFull:
                pass
        return done

    assert sum(call.result() for call in [Call(puts) for _ in range(4)]) == 100


def test_a_limit_that_is_given_later_holds_for_what_is_there(store: Store, reopen: Callable[..., Store]) -> None:
    store.queue("orders").put_many([b"aaa", b"bbb", b"ccc"])
    store.close()
    queue = reopen().queue("orders", max_bytes=6)
    queue.put(b"d")
    assert payloads(queue.lease(9)) == [b"ccc", b"d"]


def test_only_a_whole_number_is_a_limit(store: Store) -> None:
    for wrong in (0, -1, 1.5, True, "9"):
        with pytest.raises(InvalidArgument, match="max_bytes"):
            store.queue("orders", max_bytes=wrong)  # type: ignore[arg-type]


class Counted:
    """A queue, and what was put into it by id."""

    def __init__(self, files: SimFiles, clock: SimClock, flush: Flush) -> None:
        self.files, self.clock, self.flush = files, clock, flush
        self.sizes: dict[int, int] = {}
        self.open()

    def open(self) -> None:
        self.store = open_sim(self.files, self.clock)
        self.queue = self.store.queue("work", flush=self.flush, max_bytes=10**6, backoff=Backoff(base=0, cap=0))

    def expected(self) -> int:
        queue_state = state_of(self.queue)
        waiting = [id for level in queue_state.ready.levels for span in level for id in range(*span)]
        waiting += [id for _, id, _ in queue_state.delayed]
        return sum(self.sizes[id] for id in waiting)

    def put(self, random: Random) -> None:
        messages = [
            Message(
                b"x" * random.randrange(50), delay=random.choice([None, None, 1, 50]), priority=random.choice([0, 0, 3])
            )
            for _ in range(random.randrange(1, 9))
        ]
        ids = self.queue.put_many(messages)
        self.sizes.update(zip(ids, (len(message.payload) for message in messages), strict=True))

    def step(self, random: Random, held: list[Delivery]) -> None:
        queue = self.queue
        match random.randrange(12):
            case 0 | 1 | 2:
                self.put(random)
            case 3 | 4:
                held += queue.lease(random.randrange(1, 6), lease=random.choice([1, 100]))
            case 5:
                queue.ack_ids({one.lease: [one.id] for one in held[:2]})
            case 6:
                queue.return_ids({one.lease: [one.id] for one in held[-2:]}, delay=random.choice([0, 5]))
            case 7:
                queue.reject_ids({one.lease: [one.id] for one in held[-1:]})
            case 8:
                self.clock.advance(random.choice([1, 3]))
                self.store.tick()
            case 9:
                queue.checkpoint()
            case 10 if random.random() < 0.3:
                random.choice(
                    [queue.purge, lambda: queue.seek(random.randrange(queue.log.end + 1)), queue.void_leases]
                )()  # type: ignore[no-untyped-call]
            case 11:
                if random.random() < 0.5:
                    self.store.close()
                else:
                    queue.sync()
                    self.files = self.files.after_crash("dropped")
                held.clear()
                self.open()
            case _:
                pass


@pytest.mark.parametrize("seed", range(12))
def test_the_bytes_are_exact_whatever_happens(seed: int, flush: Flush) -> None:
    random = Random(f"{seed}-{flush.mode}")
    with tiny_limits():
        work = Counted(SimFiles(seed), SimClock(), flush)
        held: list[Delivery] = []
        for _ in range(80):
            work.step(random, held)
            queue_state = state_of(work.queue)
            work.queue.waiting()
            assert queue_state.waiting_bytes == work.expected(), f"seed {seed}"
            queue_state.check()


def test_what_is_forgotten_takes_nothing_from_the_bytes_of_later_messages() -> None:
    weights = PayloadSizes()
    weights.take(100, [1, 2, 4, 8, 16])
    weights.forget_before(102)
    weights.forget_before(103)
    assert weights.base == 103
    assert [weights.between(103, end) for end in (103, 104, 105, 106)] == [0, 8, 24, 24]
    assert weights.reach(103, 105, 9) == 105
