"""What does a backup hold that is taken while others write? One moment: what was confirmed before, and nothing half."""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast import Flush, Message, Model, Store, field
from holdfast.backup.restore import restore_backup


class Sum(Model, id=1):
    """What was moved, and how often."""

    number: int = field(1)
    moved: int = field(2)


class Workers:
    """Threads that do something again and again until they are told to stop; a failure in one fails the test."""

    def __init__(self) -> None:
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failed: list[BaseException] = []

    def start(self, work: Callable[[], None]) -> None:
        def run() -> None:
            try:
                while not self._stop.is_set():
                    work()
            except BaseException as error:
                self._failed.append(error)

        self._threads.append(threading.Thread(target=run))
        self._threads[-1].start()

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert not self._failed, self._failed


def bodies_in(store: Store, name: str) -> set[bytes]:
    """Every message that is not done, wherever it stands; leases are taken from whoever had them."""
    queue = store.queue(name)
    queue.void_leases()
    found: set[bytes] = set()
    while got := queue.lease(1000, lease=600):
        found |= {delivery.payload for delivery in got}
    return found


def restored(backup: Path, data: Path) -> Store:
    report = restore_backup(backup, data)
    assert report.ok, (report.faults, report.problems)
    return holdfast.open(data, background=False)


@pytest.mark.parametrize("flush", [Flush.sync(), Flush.batch()], ids=["sync", "batch"])
def test_a_message_that_moves_from_queue_to_queue_is_never_in_neither(tmp_path: Path, flush: Flush) -> None:
    everything = {b"%d" % number for number in range(200)}
    backups: list[Path] = []
    with holdfast.open(tmp_path / "data") as store:
        queues = [store.queue(name, flush=flush) for name in "abc"]
        for body in sorted(everything):
            queues[0].put(body)

        def move(source: int, target: int) -> Callable[[], None]:
            def work() -> None:
                delivery = queues[source].get(wait=0.01)
                if delivery is not None:
                    queues[target].put(delivery.payload)
                    delivery.ack()

            return work

        with Workers() as workers:
            for source, target in ((0, 1), (1, 2), (2, 0)):
                workers.start(move(source, target))
            backups += [store.backup(tmp_path / "dest").path for _ in range(4)]
    for number, backup in enumerate(backups):
        with restored(backup, tmp_path / f"restored-{number}") as store:
            found = set().union(*(bodies_in(store, name) for name in "abc"))
            assert found == everything


def test_what_was_confirmed_before_is_in_it_and_what_came_after_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put: list[bytes] = []
    acked: list[bytes] = []
    seen: list[tuple[Path, set[bytes], set[bytes], set[bytes], set[bytes]]] = []
    dead: list[bytes] = []
    with holdfast.open(tmp_path / "data") as store:
        queue = store.queue("orders", max_attempts=1, dead_letter="dead")

        def produce() -> None:
            body = b"%d" % len(put)
            begun.append(body)
            queue.put(body, priority=len(put) % 3)
            put.append(body)

        def consume() -> None:
            for delivery in queue.lease(3, wait=0.01, lease=600):
                number = int(delivery.payload)
                if number % 5 == 0:
                    started.append(delivery.payload)
                    delivery.nack("unwanted")
                    dead.append(delivery.payload)
                elif number % 3:
                    started.append(delivery.payload)
                    delivery.ack()
                    acked.append(delivery.payload)

        begun: list[bytes] = []
        started: list[bytes] = []
        with Workers() as workers:
            for _ in range(2):
                workers.start(consume)
            workers.start(produce)
            for _ in range(4):
                before = set(put), set(acked)
                backup = store.backup(tmp_path / "dest").path
                seen.append((backup, *before, set(begun), set(started)))
                time.sleep(0.05)
    caplog.clear()
    for number, (backup, put_before, acked_before, begun_after, started_after) in enumerate(seen):
        with restored(backup, tmp_path / f"restored-{number}") as store:
            for name in store.queues():
                store.queue(name).tick()  # what died and had not arrived does now
            there = bodies_in(store, "orders") | bodies_in(store, "dead")
        assert put_before - started_after <= there  # nothing is lost that nobody settled
        assert not there & acked_before  # what was done stays done
        assert there <= begun_after  # and nothing is from later
        assert all(int(body) % 5 == 0 or body in there for body in put_before - started_after)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_transaction_is_in_it_whole_or_not_at_all(tmp_path: Path) -> None:
    backups: list[Path] = []
    with holdfast.open(tmp_path / "data") as store:
        sums, left, right = store.table(Sum), store.queue("left"), store.queue("right")
        count = 0

        def transact() -> None:
            nonlocal count
            count += 1
            with store.transaction():
                sums.add(Sum(number=count, moved=count))
                left.put(b"%d" % count)
                right.put_many([Message(b"%d" % count), Message(b"%d again" % count)])

        with Workers() as workers:
            workers.start(transact)
            backups += [store.backup(tmp_path / "dest").path for _ in range(4)]
    for number, backup in enumerate(backups):
        with restored(backup, tmp_path / f"restored-{number}") as store:
            numbers = {b"%d" % record.number for record in store.table(Sum).scan()}
            assert bodies_in(store, "left") == numbers
            assert bodies_in(store, "right") == numbers | {one + b" again" for one in numbers}


def test_retention_deletion_and_new_queues_go_on_meanwhile(tmp_path: Path) -> None:
    backups: list[Path] = []
    with holdfast.open(tmp_path / "data") as store:
        log = store.log("events", roll=holdfast.Roll.count(5), retention=holdfast.Retention(max_segments=3))
        numbers = iter(range(1_000_000))

        def report() -> None:
            log.append_many([b"event"] * 5)

        def come_and_go() -> None:
            name = f"q{next(numbers) % 3}"
            store.queue(name).put(b"for " + name.encode())
            store.delete_queue(name)

        with Workers() as workers:
            workers.start(report)
            workers.start(come_and_go)
            backups += [store.backup(tmp_path / "dest").path for _ in range(4)]
    for number, backup in enumerate(backups):
        with restored(backup, tmp_path / f"restored-{number}") as store:
            events = store.log("events")
            assert events.verify().ok and {record.payload for record in events.read()} <= {b"event"}
            for name in store.queues():
                assert bodies_in(store, name) <= {b"for " + name.encode()}
    assert not (tmp_path / "data" / "backing-up").exists()
