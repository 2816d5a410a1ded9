"""Who waits for the disk is told once, when it is done or cannot be; much is written while the disk is busy."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Flush, HoldfastError, Log, Store
from holdfast.broker.turns import TurnScheduler
from tests.broker.internals import is_idle, is_stopping
from tests.disks import PATIENCE_S, SlowFiles
from tests.interrupts import HANDLERS, BlockedFiles, LimitExceeded, handled_by

BROKERS = Flush("async", 64 << 20, 20_000_000)
"""As a broker's queues have it."""
MUCH, LITTLE = bytes(1 << 20), b"little"


class Owner:
    """Whose thread is told: the test's, when it asks."""

    def __init__(self) -> None:
        self._calls: queue.Queue[Callable[[], None]] = queue.Queue()
        self.told: list[tuple[str, HoldfastError | None]] = []
        self.turns = TurnScheduler(self._calls.put, self._calls.put)

    def publish(self, log: Log, payload: bytes, name: str) -> None:
        log.append(payload)
        self.turns.when_durable([log], lambda error: self.told.append((name, error)))
        self.turns.begin_syncs()

    def run(self, until: int) -> list[str]:
        """Do what was posted until so many were told: who."""
        while len(self.told) < until:
            self._calls.get(timeout=PATIENCE_S)()
        assert len(self.told) == until
        return [name for name, _ in self.told]


@pytest.fixture
def slow() -> SlowFiles:
    return SlowFiles()


@pytest.fixture
def store(tmp_path: Path, slow: SlowFiles) -> Iterator[Store]:
    with holdfast.open(tmp_path / "data", files=slow, background=False) as store:
        yield store


@pytest.fixture
def log(store: Store) -> Log:
    log = store.log("clicks", flush=BROKERS)
    log.append(b"first")
    log.sync()
    return log


@pytest.fixture
def owner() -> Iterator[Owner]:
    owner = Owner()
    yield owner
    owner.turns.stop()


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_much_is_written_while_the_disk_works_and_confirmed_after_its_own_sync(
    log: Log, owner: Owner, slow: SlowFiles
) -> None:
    slow.holding = True
    owner.publish(log, MUCH, "a")
    slow.await_one()
    owner.publish(log, MUCH, "b")
    wait_until(lambda: not log.appender.gathered_bytes)
    slow.go_on(holding=True)
    assert owner.run(until=1) == ["a"]
    slow.await_one()  # the disk goes from one to the other
    slow.go_on()
    assert owner.run(until=2) == ["a", "b"]
    assert all(error is None for _, error in owner.told)


def test_little_waits_until_the_disk_is_done_and_is_then_synced_together(
    log: Log, owner: Owner, slow: SlowFiles
) -> None:
    slow.holding = True
    owner.publish(log, LITTLE, "a")
    slow.await_one()
    for name in "bcd":
        owner.publish(log, LITTLE, name)
    time.sleep(0.1)
    assert log.appender.gathered_bytes == 3 * len(LITTLE)
    slow.go_on(holding=True)
    assert owner.run(until=1) == ["a"]
    slow.await_one()
    slow.go_on()
    assert sorted(owner.run(until=4)) == ["a", "b", "c", "d"]
    assert not slow.waiting.acquire(blocking=False)  # one sync for three


def test_whoever_waits_for_several_logs_is_told_after_the_last(store: Store, log: Log, owner: Owner) -> None:
    other = store.log("other", flush=BROKERS)
    log.append(MUCH)
    other.append(MUCH)
    owner.turns.when_durable([log, other], lambda error: owner.told.append(("both", error)))
    owner.turns.begin_syncs()
    assert owner.run(until=1) == ["both"]
    for one in (log, other):
        place = one.appender.durable_place()
        assert place is not None
        wait_until(lambda one=one: one.appender.durable_place()[2] == one.end)  # type: ignore[misc]


def test_all_are_told_when_the_disk_fails(log: Log, owner: Owner, slow: SlowFiles, store: Store) -> None:
    slow.holding = True
    owner.publish(log, MUCH, "a")
    slow.await_one()
    owner.publish(log, MUCH, "b")
    wait_until(lambda: not log.appender.gathered_bytes)
    slow.fails = True
    slow.go_on()
    assert sorted(owner.run(until=2)) == ["a", "b"]
    assert all(isinstance(error, holdfast.WriterStopped) for _, error in owner.told)
    with pytest.raises(holdfast.WriterStopped):  # what was accepted is lost, and whoever closes it is told
        store.close()


def test_what_was_asked_for_is_done_before_it_stops(log: Log, slow: SlowFiles) -> None:
    owner = Owner()
    for number in range(40):
        owner.publish(log, MUCH if number % 3 else LITTLE, str(number))
    owner.turns.stop()
    assert sorted(map(int, owner.run(until=40))) == list(range(40))
    assert log.appender.gathered_bytes == 0


def test_it_stops_while_one_thread_waits_for_another(log: Log, slow: SlowFiles) -> None:
    owner = Owner()
    slow.holding = True
    owner.publish(log, LITTLE, "a")
    slow.await_one()
    owner.publish(log, LITTLE, "b")
    stopping = threading.Thread(target=owner.turns.stop, daemon=True)
    stopping.start()
    wait_until(lambda: is_stopping(owner.turns))
    time.sleep(0.05)
    slow.go_on()
    stopping.join(PATIENCE_S)
    assert not stopping.is_alive()
    assert owner.run(until=2) == ["a", "b"]


def test_a_small_wait_alone_is_served_by_its_own_thread(log: Log, owner: Owner) -> None:
    wait_until(lambda: is_idle(owner.turns))
    log.append(LITTLE)
    owner.turns.when_durable([log], lambda error: owner.told.append(("alone", error)), small=True)
    owner.turns.begin_syncs()
    assert owner.told == [("alone", None)]  # before anything was posted


@pytest.mark.parametrize("raising", HANDLERS)
def test_who_waits_is_served_by_another_thread_when_a_handler_raises_in_its_own(tmp_path: Path, raising: str) -> None:
    disk = BlockedFiles()
    with holdfast.open(tmp_path, files=disk, background=False) as store:
        log = store.log("clicks", flush=BROKERS)
        log.append(b"first")
        log.sync()
        owner = Owner()
        wait_until(lambda: is_idle(owner.turns))
        log.append(LITTLE)
        owner.turns.when_durable([log], lambda error: owner.told.append(("alone", error)), small=True)
        disk.blocked = True
        with (
            handled_by(HANDLERS[raising]()),
            pytest.raises((LimitExceeded, TimeoutError, OSError, KeyboardInterrupt)) as raised,
        ):
            owner.turns.begin_syncs()
        assert not isinstance(raised.value, HoldfastError)
        owner.run(until=1)
        assert owner.told == [("alone", None)]
        owner.turns.stop()
