"""A handler that raises at any place leaves the queue whole: nothing confirmed is lost, and no lock stays taken."""

import logging
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from random import Random

import pytest

import holdfast
from holdfast import Delivery, Flush, LeaseLost, Message, Queue, Roll, Store
from holdfast.testing import SimClock, SimFiles
from tests.interrupts import Interrupted, Interrupts, LimitExceeded
from tests.queue.calls import ALL_MODES, Call, until
from tests.queue.internals import state_of, waiters_of

KINDS = (Interrupted, LimitExceeded, TimeoutError)
"""What the handler raises. The last is an OSError, as those of a disk are."""
PLACES = int(os.environ.get("HOLDFAST_INTERRUPTS", "12"))
"""How many places a test tries, of some thousand; 0 for all."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """An interrupt inside of logging can leave one of its handlers locked, which is not ours."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


class Story:
    """A queue, and what its user knows of it."""

    def __init__(self, flush: Flush) -> None:
        self.files, self.clock = SimFiles(0), SimClock()
        self.flush = flush
        self.store = self.open()
        self.queue = self.queue_of(self.store)
        self.put: set[int] = set()
        self.acked: set[int] = set()
        self.doubtful: set[int] = set()
        """Those whose ack was begun: whether it has taken place is not known."""
        self.held: list[Delivery] = []
        self.queue.put_many([b"first"] * 3)

    def open(self) -> Store:
        return holdfast.open("data", files=self.files, clock=self.clock, background=False)

    def queue_of(self, store: Store) -> Queue:
        return store.queue("orders", flush=self.flush, lease=50, max_attempts=None, roll=Roll.count(4))

    def steps(self) -> list[Callable[[], object]]:
        queue = self.queue
        return [
            lambda: self.put.add(queue.put(b"plain")),
            lambda: self.put.add(queue.put(b"other")),
            lambda: self.put.add(queue.put(b"priority", priority=3)),
            self.take_one,
            lambda: self.put.update(queue.put_many([Message(b"key", key=b"k", headers={"a": "b"}), b"none"])),
            lambda: self.held.extend(queue.lease(2)),
            self.ack_all,
            lambda: self.put.add(queue.put(b"once", dedup="once")),
            lambda: self.held.extend(queue.lease(2, wait=0.001)),
            lambda: queue.extend(self.held, 60),
            lambda: queue.nack(self.held, "no", delay=0),
            queue.checkpoint,
            self.take_one,
            lambda: self.held.extend(queue.lease(1)),
            lambda: queue.release(self.held),
            lambda: self.put.add(queue.put(b"late", delay=1)),
            queue.stats,
            lambda: self.clock.advance(60),
            self.store.tick,
            self.take_one,
            queue.sync,
        ]

    def take_one(self) -> None:
        if message := self.queue.get():
            self.doubtful.add(message.id)
            if message.ack():
                self.acked.add(message.id)

    def ack_all(self) -> None:
        self.doubtful |= {message.id for message in self.held}
        self.queue.ack(self.held)
        self.acked |= {message.id for message in self.held}

    def run(self, number: int, interrupts: Interrupts) -> None:
        """Do every step, that of this number with interrupts."""
        for at, step in enumerate(self.steps()):
            if at == number:
                interrupts.run(partial(_attempt, step))
            else:
                _attempt(step)

    def check(self) -> None:
        """After whatever happened: other threads go on, and what the user knows is true."""
        added = Call(lambda: self.queue.put(b"from another thread")).result()
        self.put.add(added)
        Call(self.store.tick).result()
        self.queue.stats()
        state_of(self.queue).check()
        self.clock.advance(100)
        taken = Call(lambda: self.queue.lease(1000, wait=1)).result()
        left = {message.id for message in taken}
        assert not left & self.acked, "an acked message came back"
        assert self.put <= left | self.doubtful, "a confirmed message is gone"
        self.queue.ack(taken)
        state_of(self.queue).check()
        described = state_of(self.queue).describe()
        self.store.close()
        again = self.open()
        assert state_of(self.queue_of(again)).describe() == described
        assert again.log("orders").verify().ok
        again.close()


def _attempt(step: Callable[[], object]) -> None:
    try:
        step()
    except (*KINDS, LeaseLost):
        return


def places(flush: Flush, seed: str, kind: type[Story] = Story) -> list[tuple[int, int]]:
    """Some of the places that a story passes, or all: the number of a step, and the place in it."""
    found: list[tuple[int, int]] = []
    for number in range(len(kind(flush).steps())):
        counting = Interrupts(1 << 60)
        kind(flush).run(number, counting)
        found += [(number, at) for at in range(counting.count)]
    assert len(found) > 1000
    return sorted(Random(seed).sample(found, PLACES)) if PLACES else found


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # interrupts inside destructors
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("flush", ALL_MODES, ids=lambda flush: flush.mode)
def test_a_handler_that_raises_at_any_place_leaves_the_queue_whole(
    flush: Flush, kind: type[BaseException], times: int
) -> None:
    for number, at in places(flush, f"{kind} {times}"):
        story = Story(flush)
        interrupts = Interrupts(at, times, kind)
        try:
            story.run(number, interrupts)
            story.check()
        except BaseException as error:
            error.add_note(f"at place {at} of step {number}: {interrupts.where}")
            raise


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("times", [1, 3])
def test_a_call_that_is_interrupted_while_it_waits_leaves_no_lock_taken_and_takes_nothing(
    tmp_path: Path, times: int
) -> None:
    with holdfast.open(tmp_path, background=False) as store:
        queue = store.queue("orders", lease=3600)
        at = 0
        while True:
            interrupts = Interrupts(at, times)
            interrupts.run(partial(_attempt, partial(queue.lease, 1, wait=0.0005)))
            waiting = Call(partial(queue.lease, 1, wait=60))
            until(lambda: len(waiters_of(queue).waiting()) > 0)
            queue.put(b"%d" % at)
            queue.ack(waiting.result())  # which was not dealt to the one that is gone
            if not interrupts.raised:
                break
            at += times
        assert at > 100


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("flush", ALL_MODES, ids=lambda flush: flush.mode)
def test_wherever_a_write_is_interrupted_messages_can_be_read_before_and_behind_it(flush: Flush) -> None:
    at = 0
    while True:
        queue = Story(flush).store.queue("other", flush=flush)
        queue.put_many([b"first"] * 3)
        queue.log.sync()
        pending_block, _, _ = queue.log.gather([b"a"], [], 0)
        queue.stats()  # which takes it in, where it can be read before it is written
        interrupts = Interrupts(at)
        interrupts.run(partial(_attempt, queue.log.appender.write_out))
        queue.put(b"b")
        taken = [message for _ in range(4) for message in queue.lease(1)]
        queue.put(b"c", priority=1)
        queue.log.commit(pending_block)
        taken += queue.lease(100)
        assert sorted(message.id for message in taken) == list(range(6)), (at, interrupts.where)
        assert sorted(message.payload for message in taken) == [b"a", b"b", b"c", *[b"first"] * 3]
        if not interrupts.raised:
            break
        at += 1
    assert at > 100


class Dying(Story):
    """Messages that go to the dead letters, and back."""

    def queue_of(self, store: Store) -> Queue:
        return store.queue("orders", flush=self.flush, lease=50, max_attempts=1, dead_letter="dead")

    def steps(self) -> list[Callable[[], object]]:
        queue = self.queue
        return [
            lambda: queue.put_many([b"%d" % number for number in range(6)]),
            lambda: queue.nack(queue.lease(2), "no", delay=0),
            self.store.tick,
            lambda: queue.reject_ids({message.lease: [message.id] for message in queue.lease(1)}),
            queue.redrive,
            lambda: queue.nack(queue.lease(2), "no", delay=0),
            queue.checkpoint,
            self.store.tick,
        ]

    def check(self) -> None:
        for _ in range(4):
            self.clock.advance(60)
            Call(self.store.tick).result()
        alive = [message.payload for message in self.queue.lease(100)]
        dead = [letter.payload for letter in self.queue.dead_letters()]
        found = sorted(alive + dead)
        written = [b"%d" % number for number in range(6)]
        assert found in (sorted([*[b"first"] * 3, *written]), [b"first"] * 3), (alive, dead)  # each of them once
        state_of(self.queue).check()
        self.store.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("flush", ALL_MODES, ids=lambda flush: flush.mode)
def test_a_handler_that_raises_while_dead_letters_move_neither_loses_nor_doubles_one(flush: Flush, times: int) -> None:
    for number, at in places(flush, str(times), Dying):
        story = Dying(flush)
        interrupts = Interrupts(at, times)
        try:
            story.run(number, interrupts)
            story.check()
        except BaseException as error:
            error.add_note(f"at place {at} of step {number}: {interrupts.where}")
            raise
