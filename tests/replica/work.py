"""Work that is shipped: queues, dead letters, a table, transactions and a log, with what each moment must hold."""

from collections.abc import Callable
from typing import Any, ClassVar

import holdfast
from holdfast import Flush, Roll, Store
from holdfast.replica import restore, verify_replica
from holdfast.table import Model, field
from holdfast.testing import SimBucket, SimClock, SimFiles
from tests.replica.internals import not_shipped

PATH = "data"


class Account(Model, id=41):
    """A record of the table."""

    name: str = field(1, unique=True)
    balance: int = field(2, default=0)


State = dict[str, Any]


def described(store: Store) -> State:
    """What a store holds, as a program finds it."""
    found: State = {"queues": store.queues(), "logs": store.logs(), "tables": store.tables()}
    for name in store.queues():
        queue = store.queue(name)
        stats = queue.stats()
        found[f"queue {name}"] = (
            sorted(message.payload for message in queue.peek(1000)),
            sorted(letter.payload for letter in queue.dead_letters()),
            stats.ready + stats.leased + stats.delayed,
        )
    for name in store.logs():
        found[f"log {name}"] = [record.payload for record in store.log(name).read()]
    for name in store.tables():
        accounts: Any = store.table(Account)
        found[f"table {name}"] = sorted((one.value.name, one.value.balance) for one in accounts.scan())
    return found


def restored(bucket: SimBucket, **which: Any) -> tuple[SimFiles, State]:
    """Restore twice, and compare the bytes; return the disk and what a program finds in it."""
    disks = [SimFiles(1), SimFiles(2)]
    for files in disks:
        restore(bucket, PATH, files=files, verify=False, **which)
    assert disks[0].snapshot() == disks[1].snapshot(), "a second restore has other bytes"
    with holdfast.open(PATH, files=disks[0], clock=SimClock(), background=False) as store:
        return disks[1], described(store)


class Work:
    """A scenario in one thread: the store never changes while a moment is cut, so each moment is one of `states`."""

    def __init__(self, steps: "Callable[[Work], None] | None" = None) -> None:
        self.steps = steps or everything
        self.clock = SimClock()
        self.states: list[State] = [{"queues": [], "logs": [], "tables": []}]
        """What the store held at each call of `ship`; the last one may not have returned."""
        self.shipped = 0
        """Which of them is in the bucket for certain."""
        self.files = SimFiles()
        self.store: Store

    def ship(self) -> None:
        self.states.append(described(self.store))
        self.store.replica.ship()
        self.shipped = len(self.states) - 1

    def tick(self) -> None:
        """Do the store's background work, and ship nothing: what it does is part of a step."""
        with not_shipped(self.store):
            self.store.tick()

    def open(self, bucket: SimBucket) -> Store:
        return holdfast.open(PATH, files=self.files, clock=self.clock, background=False, replica=bucket)

    def run(self, bucket: SimBucket) -> None:
        self.bucket = bucket
        self.store = self.open(bucket)
        self.ship()
        self.steps(self)
        self.states.append(described(self.store))
        self.store.close()

    def check(self, bucket: SimBucket) -> None:
        """Always a consistent moment, never older than the last that `ship` returned for; every object is whole."""
        if not any(key.startswith("manifest/") for key in bucket.snapshot()):
            assert self.shipped == 0, "a moment is lost"
            return
        problems = verify_replica(bucket, everything=True).problems
        assert not problems, f"objects are damaged: {problems}"
        files, found = restored(bucket)
        assert found in self.states[self.shipped :], f"not a moment of the store: {found}"
        # The restored store goes on, and is shipped from where the other one ended.
        self.go_on(bucket, files)

    def go_on(self, bucket: SimBucket, files: SimFiles) -> None:
        clock = SimClock(self.clock.time_ns())
        with holdfast.open(PATH, files=files, clock=clock, background=False, replica=bucket) as store:
            store.queue("work").put(b"after")
            now = described(store)
        assert restored(bucket)[1] == now


def everything(work: Work) -> None:
    """Puts, leases, dead letters, transactions, changes of the table, segments that roll and are dropped."""
    store = work.store
    queue = store.queue("work", max_attempts=1, roll=Roll.count(3))
    mails = store.queue("mails")
    events = store.log("events", roll=Roll.count(4))
    accounts: Any = store.table(Account, roll=Roll.count(3))
    queue.put_many([b"a", b"poison", b"c"])
    with store.transaction():
        accounts.add({"name": "ann", "balance": 5})
        mails.put(b"ann")
    work.ship()
    for message in queue.lease(2):
        events.append(b"seen " + message.payload)
        if message.payload == b"poison":
            message.nack("cannot")
        else:
            message.ack()
    work.tick()
    work.ship()
    tailer = events.tailer("reader")
    tailer.read()
    tailer.commit()
    with store.transaction():
        accounts.add({"name": "bob", "balance": 7})
        mails.put(b"bob")
        queue.put(b"d")
    queue.checkpoint()
    work.ship()
    for number in range(6):
        events.append(b"%d" % number)
        queue.put(b"put %d" % number)
    tailer.seek(5)
    tailer.commit()
    for message in queue.lease(3):
        message.ack()
    work.clock.advance(6)
    work.tick()
    work.ship()
    store.delete_queue("mails")
    work.ship()


class Confirming:
    """A store with `confirm="replica"` in one thread: each step returns only when the bucket has what it did.

    The states after all steps are those of a run that nothing disturbs; a moment is always one of them.
    """

    expected: ClassVar[list[State]] = []

    def __init__(self) -> None:
        self.clock = SimClock()
        self.files = SimFiles()
        self.acknowledged = 0
        """How many steps have returned."""
        self.states: list[State] = [{"queues": [], "logs": [], "tables": []}]
        self.store: Store

    @classmethod
    def undisturbed(cls) -> "list[State]":
        """Return the state of the store after each step."""
        if not cls.expected:
            work = cls()
            work.run(SimBucket())
            cls.expected = work.states
        return cls.expected

    def run(self, bucket: SimBucket) -> None:
        self.store = holdfast.open(
            PATH, files=self.files, clock=self.clock, background=False, replica=bucket, confirm="replica"
        )
        for step in _PROMISES:
            step(self.store)
            self.acknowledged += 1
            self.states.append(described(self.store))
        self.store.close()

    def check(self, bucket: SimBucket) -> None:
        """Never older than the last step that returned, and never between two steps."""
        expected = self.undisturbed()[self.acknowledged : self.acknowledged + 2]
        if not any(key.startswith("manifest/") for key in bucket.snapshot()):
            assert self.acknowledged == 0, "a confirmed step is not in the bucket"
            return
        problems = verify_replica(bucket, everything=True).problems
        assert not problems, f"objects are damaged: {problems}"
        files, found = restored(bucket)
        assert found in expected, f"a confirmed step is not in the bucket: {found}"
        clock = SimClock(self.clock.time_ns())
        with holdfast.open(
            PATH, files=files, clock=clock, background=False, replica=bucket, confirm="replica"
        ) as store:
            store.queue("work").put(b"after")
            now = described(store)
            assert restored(bucket)[1] == now


def _transact(store: Store) -> None:
    accounts: Any = store.table(Account, roll=Roll.count(3))
    with store.transaction():
        accounts.add({"name": "ann", "balance": 5})
        store.queue("mails").put(b"ann")


def _transact_alone(store: Store) -> None:
    with store.transaction():
        store.queue("mails").put(b"alone")


def _change(store: Store) -> None:
    accounts: Any = store.table(Account)
    key = next(iter(accounts.scan())).key
    accounts.change(key, {"balance": 6})


def _settle(store: Store) -> None:
    store.queue("work").ack(store.queue("work").lease(2))


def _sync(store: Store) -> None:
    log = store.log("quick", flush=Flush.async_())
    log.append(b"waits for nothing")
    log.sync()


_PROMISES: tuple[Callable[[Store], object], ...] = (
    lambda store: store.queue("work", max_attempts=1, roll=Roll.count(3)).put(b"a"),
    lambda store: store.queue("work").put_many([b"poison", b"c", b"d", b"e", b"f"]),
    lambda store: store.queue("work").put(b"once", dedup="id"),
    lambda store: store.queue("work").put(b"urgent", priority=3),
    lambda store: store.log("events", flush=Flush.sync(), roll=Roll.count(2)).append(b"1"),
    lambda store: store.log("events").append_many([b"2", b"3"]),
    _transact,
    _transact_alone,
    _change,
    lambda store: store.queue("work").lease(1)[0].ack(),
    lambda store: store.queue("work").nack(store.queue("work").lease(1), "cannot"),
    lambda store: store.queue("work").reject_ids({one.lease: {one.id} for one in store.queue("work").lease(1)}, "no"),
    lambda store: store.queue("work").redrive(),
    _settle,
    _sync,
    lambda store: store.queue("work").discard([store.queue("work").peek(1)[0].id]),
    lambda store: store.queue("mails").purge(),
    lambda store: store.queue("work").seek(2),
    lambda store: store.table(Account).delete(next(iter(store.table(Account).scan())).key),
)
"""Every kind of call that promises that something is durable."""
