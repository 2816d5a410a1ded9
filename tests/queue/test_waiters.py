"""Long polls: woken by whatever makes a message ready, fair to each other, taking nothing when they give up."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Backoff, Delivery, Flush, Message, Queue, Store
from holdfast.queue.waiters import shares
from holdfast.testing import SimClock, SimFiles
from tests.queue.calls import ALL_MODES, Call, until, until_waiting
from tests.queue.internals import waiters_of

LONG = 600
"""Far longer than a test waits: whoever comes back before was woken."""


@pytest.fixture(params=ALL_MODES, ids=lambda flush: str(flush.mode))
def queue(request: pytest.FixtureRequest, disk_store: Store) -> Queue:
    return disk_store.queue("orders", flush=request.param, max_attempts=1)


def waiting(queue: Queue, count: int = 1) -> Call[list[Delivery]]:
    """A call that waits."""
    line = len(waiters_of(queue).line)
    call = Call(lambda: queue.lease(count, wait=LONG))
    until_waiting(queue, line + 1)
    return call


def payloads(call: Call[list[Delivery]]) -> list[bytes]:
    return [message.payload for message in call.result()]


WAYS_TO_PUT: dict[str, Callable[[Queue], object]] = {
    "put": lambda queue: queue.put(b"x"),
    "put with a priority": lambda queue: queue.put(b"x", priority=5),
    "put with a dedup id": lambda queue: queue.put(b"x", dedup="id"),
    "put_many": lambda queue: queue.put_many([b"x"]),
    "append": lambda queue: queue.log.append(b"x"),
    "append_many": lambda queue: queue.log.append_many([Message(b"x", key=b"k")]),
}


@pytest.mark.parametrize("way", WAYS_TO_PUT)
def test_a_message_that_comes_wakes_who_waits(queue: Queue, way: str) -> None:
    call = waiting(queue)
    WAYS_TO_PUT[way](queue)
    assert payloads(call) == [b"x"]


def test_who_waits_for_ever_is_woken_too(queue: Queue) -> None:
    call = Call(lambda: queue.get(wait=None))
    until_waiting(queue)
    queue.put(b"x")
    message = call.result()
    assert message is not None
    assert message.payload == b"x"


def test_a_delayed_message_that_becomes_due_wakes_who_waits(queue: Queue) -> None:
    queue.put(b"x", delay=0.1)
    assert payloads(Call(lambda: queue.lease(1, wait=LONG))) == [
        b"x"
    ]  # not seen waiting: it may come too late for that


def test_one_that_is_put_later_and_due_sooner_wakes_who_waits(queue: Queue) -> None:
    queue.put(b"in an hour", delay=3600)
    call = waiting(queue)
    queue.put(b"soon", delay=0.1)
    assert payloads(call) == [b"soon"]


def test_the_second_in_line_is_woken_for_what_was_put_behind_the_firsts_back(queue: Queue) -> None:
    queue.put(b"in an hour", delay=3600)
    first = waiting(queue)
    second = waiting(queue)
    queue.put(b"sooner", delay=0.05)
    queue.put(b"soon", delay=0.2)
    assert payloads(first) == [b"sooner"]
    assert payloads(second) == [b"soon"]


def test_a_message_that_is_given_back_wakes_who_waits(queue: Queue) -> None:
    for give_back in (Delivery.release, lambda message: queue.release([message])):
        queue.put(b"x")
        (held,) = queue.lease()
        call = waiting(queue)
        give_back(held)
        (again,) = call.result()
        assert (again.payload, again.attempt) == (b"x", 1)
        again.ack()


def test_a_nacked_message_wakes_who_waits_now_or_when_its_time_comes(disk_store: Store) -> None:
    queue = disk_store.queue("orders", max_attempts=None, backoff=Backoff(base=0.1, cap=0.1))
    queue.put(b"x")
    for delay in (0, None, 0.05):
        (held,) = queue.lease()
        call = waiting(queue)
        held.nack("again", delay=delay)
        (again,) = call.result()
        again.release()


def test_a_lease_that_runs_out_wakes_who_waits(disk_store: Store) -> None:
    queue = disk_store.queue("orders")
    queue.put(b"x")
    queue.lease(lease=0.1)
    (again,) = Call(lambda: queue.lease(1, wait=LONG)).result()
    assert (again.payload, again.attempt) == (b"x", 2)


def test_a_lease_that_is_shortened_wakes_who_waits(disk_store: Store) -> None:
    queue = disk_store.queue("orders")
    queue.put(b"x")
    (held,) = queue.lease(lease=LONG)
    call = waiting(queue)
    held.extend(0.05)
    assert payloads(call) == [b"x"]


def test_a_redriven_message_wakes_who_waits(queue: Queue) -> None:
    queue.put(b"x")
    queue.lease()[0].nack("no")
    call = waiting(queue)
    assert queue.redrive() == 1
    assert payloads(call) == [b"x"]


def test_a_dead_letter_wakes_who_waits_for_dead_letters(queue: Queue, disk_store: Store) -> None:
    call = waiting(disk_store.queue("orders.dead"))
    queue.put(b"x")
    queue.lease()[0].nack("no")
    assert payloads(call) == [b"x"]


def test_seeking_back_wakes_who_waits(queue: Queue) -> None:
    queue.put(b"x")
    queue.lease()[0].ack()
    call = waiting(queue)
    queue.seek(0)
    assert payloads(call) == [b"x"]


def test_who_waits_in_vain_gets_nothing(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders")
    before = clock.monotonic()
    assert queue.lease(5, wait=7) == []
    assert queue.get(wait=7) is None
    assert clock.monotonic() - before >= 14
    queue.put(b"x")
    assert queue.stats().ready == 1


def test_who_waits_long_enough_gets_what_becomes_due(store: Store) -> None:
    queue = store.queue("orders")
    queue.put(b"too late", delay=60)
    queue.put(b"x", delay=3)
    assert [message.payload for message in queue.lease(5, wait=10)] == [b"x"]


def test_a_waiter_gets_what_is_there_and_does_not_wait_for_more(store: Store, clock: SimClock) -> None:
    queue = store.queue("orders")
    queue.put(b"x")
    before = clock.monotonic()
    assert len(queue.lease(100, wait=LONG)) == 1
    assert clock.monotonic() - before < 1


def test_those_who_wait_share_what_comes_in_turns(queue: Queue) -> None:
    """Demands of 5, 3 and 1 over 6 messages get 3, 2 and 1."""
    calls = [waiting(queue, demand) for demand in (5, 3, 1)]
    queue.put_many([b"x"] * 6)
    assert [len(call.result()) for call in calls] == [3, 2, 1]


@pytest.mark.parametrize(
    ("demands", "available", "given"),
    [
        ([5, 3, 1], 6, [3, 2, 1]),
        ([1, 3, 5], 6, [1, 3, 2]),
        ([5, 3, 1], 100, [5, 3, 1]),
        ([5, 3, 1], 2, [1, 1, 0]),
        ([1000, 1000], 3, [2, 1]),
        ([2, 2], 0, [0, 0]),
        ([], 5, []),
    ],
)
def test_messages_are_dealt_one_at_a_time(demands: list[int], available: int, given: list[int]) -> None:
    assert shares(demands, available) == given


def test_who_came_first_is_served_first(queue: Queue) -> None:
    calls = [waiting(queue) for _ in range(4)]
    for n, call in enumerate(calls):
        queue.put(b"%d" % n)
        assert payloads(call) == [b"%d" % n]


def test_who_waits_with_a_lease_of_its_own_gets_it(disk_store: Store) -> None:
    queue = disk_store.queue("orders", lease=LONG)
    call = Call(lambda: queue.lease(1, lease=0.05, wait=LONG))
    until_waiting(queue)
    queue.put(b"x")
    (held,) = call.result()
    until(lambda: queue.stats().ready == 1)
    assert not held.ack()


def test_who_gave_up_takes_nothing(queue: Queue) -> None:
    assert queue.lease(5, wait=0.02) == []
    other = waiting(queue)
    assert Call(lambda: queue.get(wait=0.02)).result() is None
    queue.put_many([b"x", b"y"])
    assert payloads(other) == [b"x"]
    assert (queue.stats().ready, queue.stats().leased) == (1, 1)


class BusyClock(SimClock):
    """Lets something else happen in the moment in which a waiter finds that its time is up."""

    def __init__(self) -> None:
        super().__init__()
        self.at: float | None = None
        self.then: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        now = super().monotonic()
        if self.at is not None and now >= self.at:
            self.at = None
            self.then()
        return now


def test_a_waiter_whose_time_is_up_just_as_it_is_dealt_to_gets_the_message_or_leaves_it(files: SimFiles) -> None:
    clock = BusyClock()
    queue = holdfast.open("data", files=files, clock=clock, background=False).queue("orders")
    others: list[Delivery] = []

    def another_comes() -> None:
        queue.put(b"x")
        others.extend(queue.lease())

    clock.at, clock.then = clock.monotonic() + 5, another_comes
    taken = queue.lease(1, wait=5)
    assert len(taken) + len(others) + queue.stats().ready == 1
    assert queue.stats().leased == len(taken) + len(others)


class Interrupted(BaseException):
    """What a signal's handler raises."""


@pytest.fixture
def alarm() -> Iterator[Callable[[float], None]]:
    """Raise in the main thread after so many seconds, wherever it is."""

    def interrupt(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, interrupt)
    yield lambda seconds: signal.setitimer(signal.ITIMER_REAL, seconds) and None
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_waiter_that_is_interrupted_takes_nothing(queue: Queue, alarm: Callable[[float], None]) -> None:
    other = waiting(queue)
    with pytest.raises(Interrupted):
        alarm(0.05)
        queue.lease(5, wait=LONG)
    until_waiting(queue, 1)
    queue.put_many([b"x", b"y", b"z"])
    assert payloads(other) == [b"x"]
    assert (queue.stats().ready, queue.stats().leased) == (2, 1)


def test_the_first_in_line_may_give_up_and_the_next_are_still_woken(queue: Queue) -> None:
    first = Call(lambda: queue.lease(1, wait=4))
    until_waiting(queue, 1)
    second = waiting(queue)
    assert first.result() == []
    queue.put(b"x", delay=0.05)
    assert payloads(second) == [b"x"]


def test_at_the_end_of_the_process_no_message_goes_to_a_waiting_thread(queue: Queue) -> None:
    call = waiting(queue)
    queue.ending.leave_waiters_asleep()
    queue.put(b"x")
    time.sleep(0.1)
    assert call.runs and queue.stats().ready == 1
    waiters_of(queue).wake_all()
    assert payloads(call) == [b"x"]


@pytest.mark.parametrize("flush", ALL_MODES, ids=lambda flush: flush.mode)
def test_waiters_that_come_and_give_up_all_the_time_neither_lose_nor_double_a_message(
    tmp_path: Path, flush: Flush
) -> None:
    """Short waits against puts: in the end each message was taken once, and none is held by nobody."""
    with holdfast.open(tmp_path) as store:
        queue = store.queue("orders", flush=flush, lease=LONG)
        count = 200 if flush.mode == "sync" else 1000
        done = threading.Event()

        def take(patience: float) -> list[int]:
            mine: list[int] = []
            while not done.is_set():
                mine += [message.id for message in queue.lease(3, wait=patience)]
            return mine

        eligible_consumers = [Call(lambda n=n: take(n / 2000)) for n in range(4)]  # type: ignore[misc]
        for n in range(count):
            queue.put(b"%d" % n)
            if not n % 50:
                time.sleep(0.002)
        until(lambda: queue.stats().ready == 0)
        done.set()
        taken = sorted(id for taker in eligible_consumers for id in taker.result())
        assert taken == list(range(count))
        assert queue.stats().leased == count


def test_no_wake_is_missed_between_many_who_wait_and_many_who_put(disk_store: Store) -> None:
    """Every taker waits far longer than the test: a wake that went astray would be seen as a taker that still waits."""
    queue = disk_store.queue("orders", flush=Flush.async_(), lease=LONG)
    eligible_consumers = [Call(lambda: [queue.lease(1, wait=LONG)[0].id for _ in range(100)]) for _ in range(5)]
    putters = [Call(lambda: [queue.put(b"x") for _ in range(250)]) for _ in range(2)]
    put = sorted(id for putter in putters for id in putter.result())
    taken = sorted(id for taker in eligible_consumers for id in taker.result())
    assert taken == put == list(range(500))
