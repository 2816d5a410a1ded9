"""Being called instead of waiting: for whatever makes a message ready, and by the background in time."""

import threading
from collections.abc import Callable, Iterator

import pytest

from holdfast import Backoff, Flush, Message, Queue, Store
from holdfast.base.errors import InvalidArgument
from tests.queue.calls import ALL_MODES, got, until
from tests.queue.internals import find_targets_with, note_transfers, state_of


@pytest.fixture(params=ALL_MODES, ids=lambda flush: str(flush.mode))
def queue(request: pytest.FixtureRequest, disk_store: Store) -> Queue:
    return disk_store.queue("orders", flush=request.param, max_attempts=None, backoff=Backoff(base=0, cap=0))


class Calls:
    """Counts how often it is called."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.count = 0
        self.stop = queue.listen(self)

    def __call__(self) -> None:
        self.count += 1

    def leased(self) -> bytes:
        """What can be leased when, and only when, one was called."""
        while True:
            before = self.count
            if found := self.queue.lease(1):
                return found[0].payload
            until(lambda before=before: self.count > before)  # type: ignore[misc]


WAYS_TO_PUT: dict[str, Callable[[Queue], object]] = {
    "put": lambda queue: queue.put(b"x"),
    "put with a priority": lambda queue: queue.put(b"x", priority=5),
    "put with a dedup id": lambda queue: queue.put(b"x", dedup="id"),
    "put_many": lambda queue: queue.put_many([b"x"]),
    "append": lambda queue: queue.log.append(b"x"),
    "put with a delay": lambda queue: queue.put(b"x", delay=0.2),
    "put_many with delays": lambda queue: queue.put_many([Message(b"y", delay=60), Message(b"x", delay=0.2)]),
}


@pytest.mark.parametrize("way", WAYS_TO_PUT)
def test_who_listens_is_called_for_a_message_that_comes(queue: Queue, way: str) -> None:
    calls = Calls(queue)
    WAYS_TO_PUT[way](queue)
    assert calls.leased() == b"x"


def test_a_delay_that_was_put_before_is_minded_too(queue: Queue) -> None:
    queue.put(b"x", delay=0.3)
    assert Calls(queue).leased() == b"x"


def test_a_sooner_delay_is_not_late_because_of_a_later_one(queue: Queue) -> None:
    calls = Calls(queue)
    queue.put(b"later", delay=600)
    queue.put(b"x", delay=0.2)
    assert calls.leased() == b"x"


def test_who_listens_is_called_for_what_comes_back(queue: Queue) -> None:
    calls = Calls(queue)
    queue.put(b"x")
    for give_back in (
        lambda message: message.nack(delay=0),
        lambda message: message.nack(delay=0.2),
        lambda message: message.release(),
        lambda message: queue.void_leases("anew"),
        lambda message: message.extend(0.2),
        lambda message: queue.seek(0),
    ):
        before = calls.count
        give_back(got(queue, lease=600))
        until(lambda before=before: calls.count > before)  # type: ignore[misc]
        assert calls.leased() == b"x"
        queue.void_leases("the next one")


def test_a_lease_that_runs_out_is_heard_of(queue: Queue) -> None:
    calls = Calls(queue)
    queue.put(b"x")
    assert queue.lease(1, lease=0.2)
    assert calls.leased() == b"x"


def test_who_listens_hears_of_what_another_group_puts(disk_store: Store) -> None:
    one, other = disk_store.queue("one", log="events"), disk_store.queue("other", log="events")
    calls = Calls(other)
    one.put(b"x")
    assert calls.leased() == b"x"


def test_dead_letters_that_arrive_are_heard_of(disk_store: Store) -> None:
    queue = disk_store.queue("orders", max_attempts=1, dead_letter="dead")
    calls = Calls(disk_store.queue("dead", max_attempts=None, dead_letter=None))
    queue.put(b"x")
    got(queue).nack()
    assert calls.leased() == b"x"


def test_who_stopped_is_not_called_and_the_others_are(queue: Queue) -> None:
    one, other = Calls(queue), Calls(queue)
    one.stop()
    one.stop()
    before = one.count
    queue.put(b"x")
    until(lambda: other.count > 0)
    assert one.count == before


def test_a_listener_that_fails_spoils_no_put(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise RuntimeError("the loop is closed")

    queue.listen(fail)
    assert queue.put(b"x") == 0
    assert queue.put_many([b"y"]) == range(1, 2)
    assert [message.payload for message in queue.lease(2)] == [b"x", b"y"]
    assert "queue listener failed" in caplog.text


def test_only_a_function_can_listen(queue: Queue) -> None:
    with pytest.raises(InvalidArgument):
        queue.listen(None)  # type: ignore[arg-type]


class Threads:
    """In which threads something ran."""

    def __init__(self, queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
        self.names: set[str] = set()
        note_transfers(queue, lambda: self.names.add(threading.current_thread().name), monkeypatch)


@pytest.fixture
def carrier(disk_store: Store, flush: Flush) -> Iterator[Queue]:
    queue = disk_store.queue(
        "orders", flush=flush, max_attempts=1, max_length=3, overflow="dead-letter", backoff=Backoff(base=0, cap=0)
    )
    queue.carries_later = True
    yield queue


def test_dead_letters_are_carried_by_the_background_at_once(carrier: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    threads = Threads(carrier, monkeypatch)
    carrier.put_many([b"0", b"1", b"2", b"3"])
    carrier.nack(carrier.lease(1))
    carrier.reject_ids({message.lease: [message.id] for message in carrier.lease(1)})
    carrier.lease(1)
    carrier.void_leases("over")
    until(lambda: carrier.stats().dead == 4 and not carrier.stats().moving)
    assert threads.names == {"holdfast-ticker"}


def test_what_cannot_be_carried_now_is_carried_later(carrier: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    problems = ["one"]

    def failing(find: Callable[[str], Queue | None]) -> Callable[[str], Queue | None]:
        def failing(name: str) -> Queue | None:
            if problems:
                problems.pop()
                raise InvalidArgument("not now")
            return find(name)

        return failing

    find_targets_with(carrier, failing, monkeypatch)
    carrier.put(b"x")
    got(carrier).nack()
    until(lambda: not state_of(carrier).moving)
    assert [letter.payload for letter in carrier.dead_letters()] == [b"x"]
