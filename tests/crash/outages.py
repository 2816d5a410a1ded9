"""A queue, a log and a table on a disk that fails for some kinds of files and heals, with the process going on.

Each run is made by its seed: a few operations, outages between them, and at the end a disk that works. What was
confirmed must then hold in the same process, after reopening and, where the flush mode promises it, after a power cut.
"""

import contextlib
import errno
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import holdfast
from holdfast import Delivery, Flush, HoldfastError, LeaseLost, NotFound, Roll, StorageError, Store
from holdfast.table import Model, Table, field
from holdfast.testing import CRASH_MODES, FILE_KINDS, SimClock, SimFiles
from holdfast.testing.outages import OPERATIONS, FileKind
from tests.queue.internals import state_of

__all__ = ["LogRun", "QueueRun", "TableRun", "TransactionRun", "run_seeds"]

MODES = {flush.mode: flush for flush in (Flush.sync(), Flush.batch(), Flush.async_())}
_CHANGES = OPERATIONS[:5]
_NOT_FOR_QUEUES = ("table", "transactions", "incoming", "other")
_PATIENCE = 40


class Run:
    """What the runs share: a disk, a clock, a store, and outages that come and go."""

    kinds: tuple[FileKind, ...] = FILE_KINDS
    steps = 24

    def __init__(self, seed: int, mode: str) -> None:
        self.random = Random(f"{type(self).__name__}-{mode}-{seed}")
        self.flush = MODES[mode]
        self.files, self.clock = SimFiles(seed), SimClock()
        self.failures = 0
        self.open()

    def open(self) -> None:
        self.store = self.opened(self.files)

    def opened(self, files: SimFiles) -> Store:
        return holdfast.open("data", files=files, clock=self.clock, background=False)

    def some(self, of: Iterable[Any]) -> list[Any]:
        choices = list(of)
        return self.random.sample(choices, self.random.randint(1, len(choices)))

    def begin_outage(self) -> None:
        error = self.random.choice([errno.ENOSPC, errno.EIO])
        kinds = self.some(self.kinds) if self.random.random() < 0.8 else None
        operations = self.some(_CHANGES) if self.random.random() < 0.6 else None
        chance = self.random.choice([1.0, 1.0, 0.5])
        if self.random.random() < 0.5:
            self.files.outage(operations, kinds, error=error, times=self.random.randint(1, 8), chance=chance)
        else:
            seconds = self.random.choice([1, 5, 40])
            self.files.outage(operations, kinds, error=error, seconds=seconds, clock=self.clock, chance=chance)

    def run(self) -> None:
        for step in range(self.steps):
            if step > 4 and self.random.random() < 0.2:
                self.begin_outage()
            elif self.random.random() < 0.1:
                self.files.heal()
            try:
                self.act()
            except StorageError:
                self.failures += 1
        self.files.heal()
        self.check_here()
        self.reopen()
        self.check_reopened()
        if self.flush.mode == "sync":
            for mode in CRASH_MODES:
                self.check_after(self.files.after_crash(mode, self.random.randrange(1000)))

    def until_it_works(self, call: Callable[[], Any]) -> Any:
        """The result of a call once the disk works: a log needs a second after a failed sync."""
        for _ in range(_PATIENCE):
            try:
                return call()
            except StorageError as error:
                problem = error
                self.clock.advance(1)
        raise AssertionError(f"it does not work again: {problem}") from problem

    def reopen(self) -> None:
        self.until_it_works(self.store.close)
        self.open()

    def restart(self) -> None:
        """Close and open in the middle of it; where that fails, again, and at last on a disk that works.

        Under a weaker flush mode it works from the beginning: what a log has not written when it is closed on a disk
        that fails is lost, as the error says.
        """
        if self.flush.mode != "sync":
            self.files.heal()
        for attempt in range(_PATIENCE):
            if attempt == 5:
                self.files.heal()
            with contextlib.suppress(StorageError):
                self.store.close()
                break
            self.clock.advance(1)
        for attempt in range(_PATIENCE):
            if attempt == 5:
                self.files.heal()
            with contextlib.suppress(StorageError):
                self.open()
                return
            with contextlib.suppress(HoldfastError):
                self.store.close()
            self.clock.advance(1)
        raise AssertionError("it cannot be opened again")

    # What each does.

    def act(self) -> None:
        raise NotImplementedError

    def check_here(self) -> None:
        raise NotImplementedError

    def check_reopened(self) -> None:
        raise NotImplementedError

    def check_after(self, files: SimFiles) -> None:
        raise NotImplementedError


class QueueRun(Run):
    """Put, lease, ack and give back."""

    kinds = tuple(kind for kind in FILE_KINDS if kind not in _NOT_FOR_QUEUES)

    def __init__(self, seed: int, mode: str) -> None:
        self.sent: list[bytes] = []
        self.put: dict[int, bytes] = {}
        """Confirmed: by id what was put."""
        self.acked: set[int] = set()
        """Confirmed."""
        self.doubtful: set[int] = set()
        """Whose ack was refused: nobody can know."""
        self.held: list[Delivery] = []
        super().__init__(seed, mode)

    def open(self) -> None:
        super().open()
        self.queue = self.store.queue("orders", flush=self.flush, lease=50, max_attempts=None, roll=Roll.count(7))

    def act(self) -> None:
        queue, random = self.queue, self.random
        match random.randrange(12):
            case 0 | 1 | 2:
                payload = self.payload()
                self.put[queue.put(payload, priority=random.choice([0, 0, 3]))] = payload
            case 3:
                payloads = [self.payload() for _ in range(random.randint(1, 3))]
                self.put.update(zip(queue.put_many(payloads), payloads, strict=True))
            case 4 | 5:
                self.take(queue.lease(random.randint(1, 4)))
            case 6:
                message = queue.get()
                self.take([message] if message else [])
            case 7 | 8 if self.held:
                self.ack(self.held.pop(random.randrange(len(self.held))))
            case 9 if self.held:
                with contextlib.suppress(LeaseLost):
                    queue.nack([self.held.pop()], "no", delay=random.choice([0, 10]))
            case 10:
                self.clock.advance(random.choice([1, 1, 35, 60]))
                self.store.tick()
            case 11 if random.random() < 0.3:
                self.held.clear()
                self.restart()
            case _:
                calls: list[Callable[[], object]] = [queue.stats, queue.peek, queue.checkpoint, queue.sync]
                random.choice(calls)()

    def payload(self) -> bytes:
        self.sent.append(b"%d" % len(self.sent) + bytes(self.random.randrange(60)))
        return self.sent[-1]

    def take(self, messages: list[Delivery]) -> None:
        self.held += messages
        self.check_delivered({message.id: message.payload for message in messages})

    def ack(self, message: Delivery) -> None:
        self.doubtful.add(message.id)
        if message.ack():
            self.acked.add(message.id)
        self.doubtful.discard(message.id)

    def check_delivered(self, found: dict[int, bytes]) -> None:
        assert not found.keys() & self.acked, f"acked messages {sorted(found.keys() & self.acked)} are delivered again"
        assert set(found.values()) <= set(self.sent), "what nobody put is delivered"
        wrong = {id for id in found.keys() & self.put.keys() if found[id] != self.put[id]}
        assert not wrong, f"messages {sorted(wrong)} have another payload"

    def check_here(self) -> None:
        self.until_it_works(lambda: self.queue.lease(1))
        payload = self.payload()
        self.put[self.until_it_works(lambda: self.queue.put(payload))] = payload
        self.until_it_works(self.queue.checkpoint)
        state_of(self.queue).check()
        self.check_all(self.queue)

    def check_all(self, queue: holdfast.Queue) -> None:
        """All that was put and not acked is delivered, and nothing that was."""
        self.clock.advance(1000)
        found = {message.id: message.payload for message in queue.lease(10_000)}
        self.check_delivered(found)
        missing = self.put.keys() - self.acked - self.doubtful - found.keys()
        assert not missing, f"confirmed messages {sorted(missing)} are gone"

    def check_reopened(self) -> None:
        self.check_all(self.queue)

    def check_after(self, files: SimFiles) -> None:
        self.check_all(self.opened(files).queue("orders", flush=self.flush))


class LogRun(Run):
    """Append, sync, read along."""

    kinds = ("segment", "index", "watermark", "settings", "positions")

    def __init__(self, seed: int, mode: str) -> None:
        self.sent: list[bytes] = []
        self.kept: dict[int, bytes] = {}
        """Accepted: by sequence."""
        self.committed = 0
        super().__init__(seed, mode)

    def open(self) -> None:
        super().open()
        self.log = self.store.log("clicks", flush=self.flush, roll=Roll.count(5), index_interval=2)

    def act(self) -> None:
        random, log = self.random, self.log
        match random.randrange(9):
            case 0 | 1 | 2 | 3:
                payload = self.payload()
                self.kept[log.append(payload)] = payload
            case 4:
                payloads = [self.payload() for _ in range(random.randint(1, 4))]
                self.kept.update(zip(log.append_many(payloads), payloads, strict=True))
            case 5:
                log.sync()
            case 6:
                self.check_read(log)
            case 7:
                tailer = log.tailer("reader")
                assert tailer.position >= self.committed or self.flush.mode != "sync"
                for _ in range(3):
                    tailer.read()
                tailer.commit()
                self.committed = tailer.position
            case _:
                self.clock.advance(random.choice([1, 1, 10]))
                self.store.tick()
                if random.random() < 0.2:
                    self.restart()

    def payload(self) -> bytes:
        self.sent.append(b"%d" % len(self.sent) + bytes(self.random.randrange(200)))
        return self.sent[-1]

    def check_read(self, log: holdfast.Log) -> dict[int, bytes]:
        found = {record.sequence: record.payload for record in log.read()}
        assert list(found) == list(range(len(found))), "sequences have a gap"
        assert set(found.values()) <= set(self.sent)
        assert all(found[at] == self.kept[at] for at in found.keys() & self.kept.keys()), "another payload"
        return found

    def check_all(self, log: holdfast.Log) -> None:
        missing = self.kept.keys() - self.check_read(log).keys()
        assert not missing, f"confirmed records {sorted(missing)} are gone"
        assert not (damage := log.verify().damage), damage

    def check_here(self) -> None:
        payload = self.payload()
        self.kept[self.until_it_works(lambda: self.log.append(payload))] = payload
        self.until_it_works(self.log.sync)
        self.check_all(self.log)

    def check_reopened(self) -> None:
        self.check_all(self.log)
        assert self.log.tailer("reader").position >= self.committed

    def check_after(self, files: SimFiles) -> None:
        self.check_all(self.opened(files).log("clicks", flush=self.flush))


class Account(Model, id=1):
    owner: str = field(1, final=True)
    balance: int = field(2)


class TableRun(Run):
    """Add, change, delete and get. A table that a failure stops goes on when the disk works."""

    kinds: tuple[FileKind, ...] = ("table", "state", "index", "watermark", "settings")

    def __init__(self, seed: int, mode: str) -> None:
        self.accounts: dict[bytes, set[int | None]] = {}
        """By key the balances that it may have: the last one that was confirmed, and those that failed since."""
        super().__init__(seed, mode)

    def open(self) -> None:
        super().open()
        self.table: Table[Account] = self.store.table(Account, flush=self.flush, roll=Roll.count(6))

    def act(self) -> None:
        random = self.random
        match random.randrange(9):
            case 0 | 1 | 2:
                key, balance = random.randbytes(16), random.randrange(1000)
                self.write(key, balance, lambda: self.table.add(Account(owner="a", balance=balance), key=key))
            case 3 | 4 | 5 if self.accounts:
                key, balance = random.choice(list(self.accounts)), random.randrange(1000)
                self.write(key, balance, lambda: self.table.change(key, {"balance": balance}))
            case 6 if self.accounts:
                key = random.choice(list(self.accounts))
                self.write(key, None, lambda: self.table.delete(key, hard=True))
            case 7:
                self.check_read(self.table)
            case _:
                self.clock.advance(random.choice([1, 1, 10]))
                self.store.tick()
                if random.random() < 0.2:
                    self.restart()

    def write(self, key: bytes, balance: int | None, call: Callable[[], Any]) -> None:
        before = self.accounts.setdefault(key, {None})
        before.add(balance)
        try:
            call()
        except NotFound:  # also where an add of it failed: whether it is there is known when the log was read again
            assert None in before
            return
        self.accounts[key] = {balance}

    def check_read(self, table: Table[Account]) -> None:
        for key, balances in self.accounts.items():
            found = table.get(key)
            balance = None if found is None else found.value.balance
            assert balance in balances, f"{key.hex()} has {balance}, and may have {balances}"
        scanned = {record.key: record.value.balance for record in table.scan()}
        assert scanned.keys() <= self.accounts.keys()
        assert all(balance in self.accounts[key] for key, balance in scanned.items())

    def check_here(self) -> None:
        self.until_it_works(self.write_last)
        self.check_read(self.table)

    def write_last(self) -> None:
        key = bytes(15) + b"h"
        balance = self.random.randrange(1000)
        if key in self.accounts and self.table.get(key) is not None:
            self.write(key, balance, lambda: self.table.change(key, {"balance": balance}))
        else:
            self.write(key, balance, lambda: self.table.add(Account(owner="here", balance=balance), key=key))

    def check_reopened(self) -> None:
        self.check_read(self.table)
        key = bytes(15) + b"x"
        self.write(key, 1, lambda: self.table.add(Account(owner="last", balance=1), key=key))
        self.check_read(self.table)

    def check_after(self, files: SimFiles) -> None:
        self.check_read(self.opened(files).table(Account, flush=self.flush))


class TransactionRun(TableRun):
    """The same in transactions that also put a message: each takes place whole, once, or not at all."""

    kinds = ("table", "state", "transactions", "segment", "index", "watermark", "settings")

    def __init__(self, seed: int, mode: str) -> None:
        self.confirmed: set[bytes] = set()
        self.sent: set[bytes] = set()
        super().__init__(seed, mode)

    def open(self) -> None:
        super().open()
        self.queue = self.store.queue("changes", flush=self.flush, roll=Roll.count(5))

    def write(self, key: bytes, balance: int | None, call: Callable[[], Any]) -> None:
        payload = b"%d " % len(self.sent) + key + b" %d" % (-1 if balance is None else balance)
        before = self.accounts.setdefault(key, {None})
        before.add(balance)
        self.sent.add(payload)
        try:
            with self.store.transaction():
                call()
                self.queue.put(payload)
        except NotFound:
            assert None in before
            return
        self.accounts[key] = {balance}
        self.confirmed.add(payload)

    def check_read(self, table: Table[Account]) -> None:
        super().check_read(table)
        if table is self.table and self.until_it_works(lambda: True):
            self.check_queue(self.queue)

    def check_queue(self, queue: holdfast.Queue) -> None:
        found = [message.payload for message in queue.peek(10_000)]
        assert len(found) == len(set(found)), "a message was put twice"
        assert set(found) <= self.sent
        if self.settled:
            missing = self.confirmed - set(found)
            assert not missing, f"confirmed messages {sorted(missing)} are gone"

    settled = False
    """Whether the disk works, so that all that was confirmed can be read."""

    def check_here(self) -> None:
        self.settled = True
        super().check_here()

    def check_after(self, files: SimFiles) -> None:
        store = self.opened(files)
        table, queue = store.table(Account, flush=self.flush), store.queue("changes", flush=self.flush)
        super().check_read(table)
        self.check_queue(queue)
        last = dict[bytes, int | None]()
        for message in queue.peek(10_000):
            number, _, rest = message.payload.partition(b" ")
            assert number.isdigit()
            last[rest[:16]] = None if rest[17:] == b"-1" else int(rest[17:])
        for key, balance in last.items():
            found = table.get(key)
            assert (None if found is None else found.value.balance) == balance, "a transaction took place in half"


def run_seeds(run: Callable[[int, str], Run], mode: str, seeds: Iterable[int]) -> int:
    """Run each seed; how many operations failed. An error gets the seed added, with which it can be replayed."""
    failures = 0
    for seed in seeds:
        one: Run | None = None
        try:
            one = run(seed, mode)
            one.run()
        except Exception as error:
            error.add_note(f"seed {seed}, mode {mode!r}")
            raise
        failures += one.failures
    return failures
