"""Every lock of the product is in docs/locking.md, and threads take them in the order that the page gives."""

import asyncio
import errno
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import (
    DiskFull,
    Flush,
    HoldfastError,
    LeaseLost,
    Locked,
    Message,
    NotFound,
    QueueFull,
    Retention,
    Roll,
    Store,
)
from holdfast.amqp import methods as m
from holdfast.queue.async_lease import AsyncLeases
from holdfast.replica import open_bucket
from holdfast.table import Index, Migration, Model, each_row, field
from holdfast.testing import SimClock, SimFiles
from tests.amqp.serving import Client, eventually
from tests.locks import PAGE, Recorder, created, documented, functions
from tests.web.serving import Served

SAID = documented(PAGE.read_text())
ROUNDS = 120
EXPECTED = {
    ("Transfers._mover", "StoreGuard.lock"),
    ("Dispatcher._pausing", "QueueCore.lock"),
    ("QueueCore.lock", "PendingIds.guard"),
    ("QueueCore.lock", "Appender._io"),
    ("QueueCore.lock", "RocksState._guard"),
    ("QueueCore.lock", "AsyncLeases._guard"),
    ("PendingBlock.gate", "Appender._io"),
    ("Appender._io", "Appender._lock"),
    ("Appender._io", "_Disk.lock"),
    ("Appender._io", "WaitQueue._guard"),
    ("Appender._lock", "Appender._lock"),
    ("claim of TransactionCoordinator._turnstile", "claim of CommitPipeline._turnstile by a transaction"),
    ("claim of TransactionCoordinator._turnstile", "StoreGuard.lock"),
    ("TransactionCoordinator._finishing", "CommitPipeline._lock"),
    ("CommitPipeline.apply_lock", "CommitPipeline._lock"),
    ("CommitPipeline._lock", "PendingBlock.gate"),
    ("StoreGuard.lock", "Migrations._lock"),
    ("Migrations._lock", "Run._lock"),
    ("BackupSource._backing_up", "StoreGuard.lock"),
    ("QueueCore.lock", "ReadOnlySegments._guard"),
    ("Appender._io", "Reserve._guard"),
    ("CommitPipeline.apply_lock", "Appender._io"),
    ("Transfers._mover", "Broker.guard"),
    ("Broker.guard", "Definitions._lock"),
    ("Broker.guard", "StoreGuard.lock"),
    ("Figures._guard", "Registry._guard"),
    ("Replica._turn", "StoreGuard.lock"),
    ("Ownership._guard", "FolderBucket._guard"),
}
"""Some of what the work below does: without it, nothing was recorded."""


class Person(Model, id=1, version="1.0"):
    """A record of the table that threads write."""

    email: str = field(1, unique=True)
    name: str = field(2)

    __indexes__ = (Index("name"),)


class Visit(Model, id=2, version="1.0"):
    """A record of a second table."""

    place: str = field(1)


class Member(Model, id=3, version="1.0"):
    """A record before its migration."""

    name: str = field(1)


def member_now() -> type[Model]:
    """The model of the same table with another field."""

    class Member(Model, id=3, version="2.0"):
        first: str = field(2)

        __indexes__ = (Index("first"),)
        __reserved__ = (1, "name")

    return Member


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Record all locks from here on."""
    recorder = Recorder(SAID)
    recorder.install(monkeypatch)
    return recorder


def side_by_side(*jobs: Callable[[], object]) -> None:
    """Run these at the same time; raise the first error."""
    with ThreadPoolExecutor(len(jobs)) as pool:
        for done in [pool.submit(job) for job in jobs]:
            done.result()


def test_every_lock_is_in_the_page_and_nothing_else() -> None:
    in_source = {one.place for one in created()}
    assert in_source - SAID.places == set(), "docs/locking.md lacks these: list each with its module and a level"
    assert SAID.places - in_source == set(), "docs/locking.md lists locks that are gone"


def test_exceptions_of_the_page_name_locks_that_it_lists_and_functions_that_exist() -> None:
    assert {lock for held, taken, _ in SAID.exceptions for lock in (held, taken)} <= SAID.levels.keys()
    assert {function for _, _, function in SAID.exceptions} <= functions()


def test_threads_take_the_locks_in_the_documented_order(tmp_path: Path, recorder: Recorder) -> None:
    with holdfast.open(tmp_path / "old") as store:
        members = store.table(Member)
        for number in range(20):
            members.add(Member(name=f"{number} x"))
    with holdfast.open(tmp_path / "data") as store:
        side_by_side(
            *queue_jobs(store),
            *log_jobs(store),
            *table_jobs(store),
            lambda: back_up(store, tmp_path / "backups"),
            lambda: ship(store, tmp_path / "replica"),
            lambda: read_along(tmp_path / "data"),
            lambda: migrate(tmp_path / "old"),
            lambda: serve(tmp_path / "served"),
            fill_a_disk,
            fail_a_sync,
        )
        store.delete_queue("orders")
        store.delete_table("Visit")
    assert not recorder.violations, "\n".join(map(str, recorder.violations[:5]))
    assert EXPECTED - recorder.pairs.keys() == set()


def unless_locked(job: Callable[[], object]) -> None:
    """Do it when no other thread adopts batches or takes a backup."""
    while True:
        with suppress(Locked):
            job()
            return


def ship(store: Store, folder: Path) -> None:
    """Ship the store to a folder, while its threads do so, too."""
    store.ship_to(open_bucket(folder.as_uri()))
    for _ in range(3):
        unless_locked(store.replica.ship)
        store.replica.status()


def queue_jobs(store: Store) -> Iterator[Callable[[], object]]:
    """Two queues of one log, with leases, failures, dead letters, dedup ids, limits and checkpoints."""
    orders = store.queue("orders", max_attempts=2, lease=30, backoff=holdfast.Backoff(base=0), flush=Flush.sync())
    group = store.queue("group", log="orders", max_length=200, overflow="dead-letter", dead_letter="group.dead")
    quick = store.queue("quick", flush=Flush.batch())

    def put() -> None:
        for number in range(ROUNDS):
            orders.put(b"%d" % number)
            orders.put_many([Message(b"x", dedup=f"{number // 2}", priority=number % 3), Message(b"y", delay=0.001)])
            with suppress(QueueFull):
                group.put(b"z", dedup=f"{number // 2}", ttl=0.01)
            quick.put(b"q")

    def work() -> None:
        for number in range(ROUNDS):
            for delivery in orders.lease(5, wait=0.05):
                with suppress(LeaseLost):
                    (delivery.ack, delivery.nack, delivery.release)[number % 3]()
            if (one := quick.get(wait=0.01)) is not None:
                one.ack()
            group.ack(group.lease(3))

    def look_after() -> None:
        for _ in range(ROUNDS // 8):
            orders.checkpoint()
            orders.stats()
            orders.pause()
            orders.peek(2)
            orders.resume()
            orders.redrive()
            group.counts()
            store.queues()

    async def poll() -> None:
        polled = store.queue("polled")
        polls = AsyncLeases(polled)
        for _ in range(ROUNDS // 8):
            await asyncio.to_thread(polled.put, b"p")
            for delivery in await polls.lease():
                await asyncio.to_thread(delivery.ack)
        await polls.close()

    yield from (put, put, work, work, look_after, lambda: asyncio.run(poll()))


def log_jobs(store: Store) -> Iterator[Callable[[], object]]:
    """Logs that roll and drop segments, with a tailer."""
    clicks = store.log("clicks", roll=Roll.count(20), retention=Retention(max_segments=3), flush=Flush.sync())
    lazy = store.log("lazy", flush=Flush.async_())

    def append() -> None:
        for number in range(ROUNDS * 2):
            clicks.append(b"%d" % number)
            lazy.append(b"%d" % number)

    def follow() -> None:
        tailer = clicks.tailer("audit")
        for _ in range(ROUNDS // 4):
            tailer.read_many(10)
            tailer.commit()
            clicks.wait_for(clicks.end, 0.01)

    def tidy() -> None:
        for _ in range(ROUNDS // 8):
            clicks.roll()
            clicks.compact()
            clicks.verify()
            lazy.sync()
            unless_locked(store.adopt)

    yield from (append, append, follow, tidy)


def table_jobs(store: Store) -> Iterator[Callable[[], object]]:
    """Two tables with writers, transactions, a watcher and a rebuild."""
    persons, visits, greeted = store.table(Person, keep_all_versions=True), store.table(Visit), store.queue("greeted")

    def write(who: str) -> Callable[[], None]:
        def write() -> None:
            for number in range(ROUNDS):
                key = persons.add(Person(email=f"{who}{number}@x.org", name=who)).key
                persons.get(key)
                if number % 4 == 0:
                    persons.delete(key)

        return write

    def transact() -> None:
        for number in range(ROUNDS // 4):
            with suppress(HoldfastError), store.transaction():
                persons.add(Person(email=f"t{number}@x.org", name="t"))
                visits.add(Visit(place="here"))
                greeted.put(b"hello")
                store.queue(f"made-{number % 2}")

    def watch() -> None:
        with persons.watch(order=["name"], limit=5, wait=0.2, allow_table_scan=True) as watcher:
            for _ in watcher:
                pass

    def rebuild() -> None:
        for _ in range(3):
            persons.rebuild()

    yield from (write("a"), write("b"), transact, watch, rebuild)


def back_up(store: Store, folder: Path) -> None:
    """Two backups of a store that is written."""
    unless_locked(lambda: store.backup(folder))
    unless_locked(lambda: store.backup(folder))


def read_along(folder: Path) -> None:
    """Read a store that others write."""
    for _ in range(3):
        with holdfast.open(folder, read_only=True) as store:
            with suppress(NotFound):  # its dead-letter queue is just being made
                store.queue("orders").stats()
            list(store.log("clicks").read())
            store.table("Person").counts()


def migrate(folder: Path) -> None:
    """Migrate a table in the background."""

    model, paused = member_now(), threading.Event()

    def split(found: Any) -> Any:
        paused.wait(60)
        return model(first=found.old.name.partition(" ")[0])

    with holdfast.open(folder) as store:
        store.table(model, migration=Migration(backfill=each_row(split)), migration_budget=0)
        migrations = store.migrations()
        assert migrations.pause("Member")
        paused.set()
        assert migrations.resume("Member")
        assert migrations.wait("Member", timeout=60)


def fill_a_disk() -> None:
    """A queue on a full disk: what is acknowledged makes space."""
    files = SimFiles()
    files.capacity = 2 << 20
    with holdfast.open("data", files=files, clock=SimClock(), background=False) as store:
        queue = store.queue("orders", roll=Roll.size(256 << 10))
        store.tick()
        with suppress(DiskFull):
            while True:
                queue.put(bytes(16 << 10))
        while (delivery := queue.get()) is not None:
            delivery.ack()
        store.tick()
        queue.put(b"there is space again")


def fail_a_sync() -> None:
    """A table that recovers after a failed sync, and after an interrupt."""
    files, clock = SimFiles(), SimClock()
    with holdfast.open("data", files=files, clock=clock, background=False) as store:
        visits = store.table(Visit)
        visits.add(Visit(place="before"))
        files.outage(["sync"], ["table"], error=errno.EIO, times=1)
        with pytest.raises(HoldfastError):
            visits.add(Visit(place="lost"))
        clock.advance(10)
        visits.add(Visit(place="after"))
        visits.engine.commits.doubt = "a request was interrupted"
        assert visits.counts() == (2, 0)


def serve(folder: Path) -> None:
    """A broker with publishers, consumers and dead letters, and requests to its API."""
    with Served(folder) as served:
        client = Client(served.amqp)
        try:
            client.log_in()
            client.call(m.ExchangeDeclare(exchange="dead", type="fanout", durable=True), m.ExchangeDeclareOk)
            client.declare("buried")
            client.call(m.QueueBind(queue="buried", exchange="dead"), m.QueueBindOk)
            client.declare("work", x_dead_letter_exchange="dead", x_max_length=1000)
            client.call(m.ConfirmSelect(), m.ConfirmSelectOk)
            client.publish_confirmed("work", [b"%d" % number for number in range(60)])
            for number, arrived in enumerate(client.consume("work", 60, no_ack=False)):
                assert isinstance(arrived.method, m.BasicDeliver)
                tag = arrived.method.delivery_tag
                client.send(m.method_frame(1, m.BasicReject(tag, False) if number % 2 else m.BasicAck(tag, False)))
            eventually(lambda: client.count("buried") == 30, 30)
            served.get("/api/overview")
            served.get("/api/holdfast/overview")
            served.get("/api/holdfast/queues")
            served.post("/api/holdfast/queues/%2F/work/redrive", {})
            client.call(m.QueueDelete(queue="work"), m.QueueDeleteOk)
        finally:
            client.close()


def test_two_levels_that_are_swapped_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    levels = dict(SAID.levels)
    levels["QueueCore.lock"], levels["Appender._io"] = levels["Appender._io"], levels["QueueCore.lock"]
    recorder = Recorder(SAID._replace(levels=levels))
    recorder.install(monkeypatch)
    with holdfast.open(tmp_path / "data") as store:
        store.queue("orders").put(b"1")
        store.queue("orders").checkpoint()
    assert ("QueueCore.lock", "Appender._io") in {(one.held, one.taken) for one in recorder.violations}
