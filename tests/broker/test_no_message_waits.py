"""Deliveries of one queue in every order of events: no ready message waits while a consumer has capacity for it."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.base.files import UnsyncedFiles
from holdfast.broker.basic_properties import PERSISTENT_ONLY, Properties, encode_properties
from holdfast.broker.broker import Broker
from holdfast.broker.message import Content, instructions_in
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.broker.users import Cost
from holdfast.queue import Delivery
from holdfast.testing import SimClock
from tests.tiers import ALL

SEEDS = range(400 if ALL else 60)
STEPS = 120


class Worker:
    """A consumer with a prefetch that settles a part of what it holds when the test says so."""

    def __init__(self, prefetch: int, *, priority: int, no_ack: bool) -> None:
        self.tag = ""
        self.no_ack = no_ack
        self.priority = priority
        self.pool = None
        self.channel: Any = self
        self.unacked = 0
        self.writable = True
        self.prefetch = prefetch
        self.held: list[Delivery] = []
        self.got: list[int] = []

    def capacity(self) -> int:
        return self.prefetch - len(self.held) if self.writable else 0

    def pool_capacity(self) -> int:
        return 0

    def send(self, broker_queue: BrokerQueue, deliveries: Sequence[Delivery]) -> None:
        self.got += [one.id for one in deliveries]
        if not self.no_ack:
            self.held += deliveries
            self.unacked += len(deliveries)

    def take(self, count: int) -> dict[int, list[int]]:
        """Remove some of what it holds, to settle it."""
        taken, self.held = self.held[:count], self.held[count:]
        self.unacked = len(self.held)
        parts: dict[int, list[int]] = {}
        for one in taken:
            parts.setdefault(one.lease, []).append(one.id)
        return parts

    def cancelled(self, broker_queue: BrokerQueue) -> None:
        """Nothing to do."""


class Run:
    """A broker whose turns, clock and background the test drives; other programs use the same queue in between."""

    def __init__(self, folder: Path, seed: int, starvation: int | None = None) -> None:
        self.rng = random.Random(seed)
        self.clock = SimClock()
        files = UnsyncedFiles()
        if starvation is not None:
            with holdfast.open(folder / "d", files=files, clock=self.clock, background=False) as store:
                store.queue("work", starvation=starvation)
        self.stores = [holdfast.open(folder / name, files=files, clock=self.clock, background=False) for name in "dt"]
        self.calls: list[Callable[[], None]] = []
        self.broker = Broker(*self.stores, post=self.calls.append, soon=self.calls.append, cost=Cost(8, 1))
        arguments: dict[str, object] = {"x-single-active-consumer": True} if self.rng.random() < 0.2 else {}
        if self.rng.random() < 0.3:
            arguments["x-max-priority"] = 5
        if self.rng.random() < 0.2:
            arguments["x-max-length"] = 20
        self.broker_queue = self.broker.host("/").declare_queue(
            "work", durable=True, exclusive=False, auto_delete=False, arguments=arguments, passive=False, owner=None
        )
        self.queue = self.broker_queue.queue
        self.workers: list[Worker] = []
        self.leased: list[Delivery] = []

    def turn(self) -> None:
        """Everything that was scheduled happens."""
        for _ in range(1000):
            if not self.calls:
                return
            self.calls.pop(0)()
        raise AssertionError("the turns have no end")

    def close(self) -> None:
        self.broker.close()
        for store in self.stores:
            store.close()

    # Clients of the broker.

    def publish(self) -> None:
        raw = PERSISTENT_ONLY
        if self.rng.random() < 0.3:
            delay = {"x-delay": self.rng.randrange(1, 3000)} if self.rng.random() < 0.5 else None
            expiration = str(self.rng.randrange(3000)) if self.rng.random() < 0.3 else None
            raw = encode_properties(
                Properties(headers=delay, priority=self.rng.randrange(6), expiration=expiration, delivery_mode=2)
            )
        bodies = [b"published"] * self.rng.choice((1, 1, 2, 7))
        self.broker_queue.put(Content("", "work", raw), bodies, instructions_in(raw))

    def publish_confirmed(self) -> None:
        self.publish()
        self.broker.turns.when_durable([self.queue.log], lambda error: None, small=self.rng.random() < 0.8)

    def join(self, worker: Worker | None = None) -> Worker:
        rng = self.rng
        if worker is None:
            worker = Worker(rng.choice((1, 2, 5, 99)), priority=rng.choice((0, 0, 3)), no_ack=rng.random() < 0.2)
        self.workers.append(worker)
        self.broker_queue.add(worker)
        return worker

    def leave(self) -> None:
        if worker := self.one():
            self.workers.remove(worker)
            self.broker_queue.remove(worker)
            self.broker_queue.requeue(worker.take(len(worker.held)))

    def ack(self) -> None:
        if worker := self.one():
            self.broker_queue.ack(worker.take(self.rng.randrange(1, 9)))
            self.broker_queue.deliver_soon()

    def requeue(self) -> None:
        if worker := self.one():
            self.broker_queue.requeue(worker.take(self.rng.randrange(1, 9)))

    def reject(self) -> None:
        if worker := self.one():
            self.broker_queue.reject(worker.take(1))
            self.broker_queue.deliver_soon()

    def stop_reading(self) -> None:
        if worker := self.one():
            worker.writable = False

    def read_again(self) -> None:
        if worker := self.one():
            worker.writable = True
            self.broker_queue.deliver_soon()

    def fetch(self) -> None:
        if delivery := self.broker_queue.get():
            self.broker_queue.ack({delivery.lease: [delivery.id]})

    def one(self) -> Worker | None:
        return self.rng.choice(self.workers) if self.workers else None

    # Programs that use the store, on this thread and on others.

    def put(self) -> None:
        rng = self.rng
        self.queue.put(b"put", delay=rng.choice((None, None, 1)), priority=rng.choice((0, 0, 2)))

    def put_elsewhere(self) -> None:
        thread = threading.Thread(target=self.queue.put_many, args=([b"put", b"put"],))
        thread.start()
        thread.join()

    def append(self) -> None:
        self.queue.log.append(b"appended")
        self.queue.log.sync()

    def lease(self) -> None:
        self.leased += self.queue.lease(self.rng.randrange(1, 4), lease=self.rng.choice((1, 60)))

    def settle(self) -> None:
        taken, self.leased = self.leased, []
        how = self.rng.choice((self.queue.ack_ids, self.queue.return_ids, self.queue.release_ids))
        parts: dict[int, list[int]] = {}
        for one in taken:
            parts.setdefault(one.lease, []).append(one.id)
        how(parts)

    def nack_later(self) -> None:
        if self.leased:
            one = self.leased.pop()
            self.queue.return_ids({one.lease: [one.id]}, delay=self.rng.choice((None, 1)))

    def pause(self) -> None:
        self.queue.pause()

    def resume(self) -> None:
        self.queue.resume()

    def seek(self) -> None:
        self.queue.seek(self.rng.randrange(self.queue.log.start, self.queue.log.end + 1))

    def wait(self) -> None:
        self.clock.advance(self.rng.choice((0.02, 0.5, 2)))
        self.stores[0].tick()

    # The invariant.

    def check(self) -> None:
        """After all turns, nothing is ready that a consumer could take."""
        self.turn()
        self.stores[0].tick()
        self.turn()
        if self.queue.paused:
            return
        served = self.workers if self.broker_queue.active is None else [self.broker_queue.active]
        if any(worker.capacity() > 0 for worker in served):
            assert self.broker_queue.ready() == 0, "a ready message waits"


OPERATIONS = [
    *["publish", "publish_confirmed", "put", "ack", "ack", "wait"] * 3,
    *["put_elsewhere", "append", "join", "leave", "requeue", "reject", "stop_reading", "read_again", "fetch"],
    *["lease", "settle", "nack_later", "pause", "resume", "resume", "seek", "turn", "turn"],
]


@pytest.mark.parametrize("seed", SEEDS)
def test_no_ready_message_waits_while_a_consumer_has_capacity(tmp_path: Path, seed: int) -> None:
    run = Run(tmp_path, seed, starvation=1 if seed % 4 == 0 else None)
    try:
        for _ in range(STEPS):
            getattr(run, run.rng.choice(OPERATIONS))()
            if run.rng.random() < 0.4:
                run.check()
        run.check()
    finally:
        run.close()


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path, 0)
    yield run
    run.close()


def test_a_record_that_a_program_appends_to_the_log_is_delivered_when_it_is_durable(run: Run) -> None:
    worker = run.join(Worker(9, priority=0, no_ack=False))
    run.turn()
    run.queue.log.append(b"appended")  # it notifies nobody
    run.turn()
    assert worker.got == []
    run.broker.turns.when_durable([run.queue.log], lambda error: None, small=True)
    deadline = time.monotonic() + 60
    while not worker.got and time.monotonic() < deadline:
        run.turn()
        time.sleep(0.001)
    assert len(worker.got) == 1


def test_messages_that_exceed_the_bytes_of_one_chunk_are_all_delivered(run: Run) -> None:
    worker = run.join(Worker(9, priority=0, no_ack=False))
    run.queue.put_many([bytes(600_000)] * 5)
    run.turn()
    assert len(worker.got) == 5


def test_a_message_of_a_higher_priority_follows_one_that_starved_though_that_is_the_newest(tmp_path: Path) -> None:
    run = Run(tmp_path, 0, starvation=1)
    run.queue.put(b"urgent", priority=5, delay=2)
    run.queue.put(b"starving")
    run.clock.advance(2.1)
    worker = run.join(Worker(1, priority=0, no_ack=False))
    run.turn()
    run.broker_queue.ack(worker.take(1))
    run.broker_queue.deliver_soon()
    run.turn()
    assert worker.got == [1, 0]
    run.close()
