"""A store with everything in it, ways to damage one file of it, and what a user sees of the store afterwards."""

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Flush, HoldfastError, Model, Roll, Store
from holdfast import field as column
from holdfast.base.files import UnsyncedFiles
from holdfast.broker.definitions import Definitions
from holdfast.broker.users import Cost

SECTOR = 512
LEASE_S = 10 * 365 * 86_400


class Account(Model, id=5):
    """A record of the store's table."""

    number: int = column(1, unique=True)
    owner: str = column(2)
    balance: int = column(3)


def open_quickly(path: Path) -> Store:
    """Open without waiting for the disk: what is tested is what the files hold, not when they got there."""
    return holdfast.open(path, files=UnsyncedFiles(), background=False)


def make_store(path: Path) -> None:
    """A log with tailers and dropped segments, queues, a table with its past, transactions and broker definitions."""
    with open_quickly(path) as store:
        log = store.log("clicks", flush=Flush.sync(), roll=Roll.count(20), index_interval=4)
        for n in range(100):
            log.append(b"click %d " % n + bytes(n))
        for name, count in (("audit", 50), ("billing", 77)):
            tailer = log.tailer(name)
            tailer.read_many(count)
            tailer.commit()
        log.clear()  # what both have read
        orders = store.queue(
            "orders",
            max_attempts=1,
            dead_letter="orders.dead",
            dedup_window=86_400,
            starvation=None,
            roll=Roll.count(16),
        )
        for n in range(60):
            orders.put(b"order %d" % n, dedup=f"id {n}", priority=n % 3, delay=86_400 if n % 10 == 9 else None)
        orders.ack(orders.lease(20))
        orders.nack(orders.lease(5), "no")
        orders.lease(6, lease=LEASE_S)
        orders.sync()
        store.tick()
        mail = store.queue("mail", flush=Flush.async_())
        mail.put_many([b"mail %d" % n for n in range(30)])
        mail.ack(mail.lease(12))
        accounts = store.table(Account, keep_all_versions=True, update_history=True)
        made = [accounts.add(Account(number=n, owner=f"owner {n}", balance=n)) for n in range(20)]
        for n, record in enumerate(made[:8]):
            accounts.change(record.key, {"balance": 1000 + n})
        accounts.delete(made[9].key)
        accounts.delete(made[10].key, hard=True)
        for n in range(3):
            with store.transaction():
                accounts.add(Account(number=100 + n, owner="both", balance=0))
                mail.put(b"transaction %d" % n)
        definitions = Definitions(store.log("holdfast.definitions", flush=Flush.sync()))
        definitions.begin(Cost(memory_kib=8, passes=1))


@dataclass(slots=True)
class Seen:
    """What a user sees of a store: by object, what it holds or the error that opening it is."""

    facts: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    """Payloads that nobody ever put there."""

    def look(self, what: str, look: Callable[[], Any]) -> None:
        """Note what is found. Errors of Holdfast are an answer; any other one is a failure of the test."""
        try:
            self.facts[what] = look()
        except HoldfastError as error:
            assert len(str(error)) > 10, f"{what}: an error without words: {error!r}"
            self.facts[what] = f"error: {type(error).__name__}: {error}"


def observe(path: Path) -> Seen:
    """Open the store as its users do, and read everything."""
    seen = Seen()

    def check(payload: bytes, expected: bytes, where: str) -> bytes:
        if payload != expected:
            seen.wrong.append(f"{where}: {payload[:40]!r} in place of {expected[:40]!r}")
        return payload

    def clicks() -> Any:
        return [
            check(one.payload, b"click %d " % one.sequence + bytes(one.sequence), "clicks")
            for one in store.log("clicks", roll=Roll.count(20)).read()
        ]

    def position(name: str) -> int:
        return store.log("clicks", roll=Roll.count(20)).tailer(name).position

    def queue(name: str, text: str) -> Any:
        opened = store.queue(name)
        stats = opened.stats()
        ready = sorted(one.payload for one in opened.peek(1000))
        for payload in ready:
            if not payload.startswith((text.encode(), b"transaction ")):
                seen.wrong.append(f"{name}: {payload[:40]!r}")
        counts = (stats.ready, stats.leased, stats.delayed, stats.dead)
        return counts, ready, opened.settings.max_attempts, opened.settings.dead_letter

    def table() -> Any:
        accounts = store.table(Account)
        rows = sorted((one.value.number, one.value.owner, one.value.balance, one.version) for one in accounts.scan())
        for number, owner, balance, _ in rows:
            if owner not in (f"owner {number}", "both") or balance not in (number, 1000 + number, 0):
                seen.wrong.append(f"accounts: {number} {owner} {balance}")
        first = rows[0][3] if rows else 0
        past = sorted((one.value.number, one.value.balance) for one in accounts.scan(as_of=first))
        found = sorted(one.value.owner for one in accounts.scan(Account.number == 3))
        return rows, past, found

    def definitions() -> Any:
        log = store.log("holdfast.definitions", flush=Flush.sync())
        return sorted(repr(one) for one in Definitions(log).all())

    try:
        store = open_quickly(path)
    except HoldfastError as error:
        seen.facts["store"] = f"error: {type(error).__name__}: {error}"
        return seen
    try:
        seen.look("names", lambda: (store.logs(), store.queues(), store.tables()))
        seen.look("clicks", clicks)
        seen.look("tailer audit", lambda: position("audit"))
        seen.look("tailer billing", lambda: position("billing"))
        seen.look("orders", lambda: queue("orders", "order "))
        seen.look("dedup", lambda: [store.queue("orders").put(b"order x", dedup=f"id {n}") for n in (3, 41)])
        seen.look("orders.dead", lambda: queue("orders.dead", "order "))
        seen.look("mail", lambda: queue("mail", "mail "))
        seen.look("accounts", table)
        seen.look("definitions", definitions)
    finally:
        try:
            store.close()
        except HoldfastError as error:
            seen.facts["close"] = f"error: {type(error).__name__}: {error}"
            store.ending.close_discarding()
    return seen


@dataclass(frozen=True, slots=True)
class Hit:
    """One file damaged in one way."""

    file: str
    how: str

    def __str__(self) -> str:
        return f"{self.file}: {self.how}"


def damage(folder: Path, random_: random.Random) -> Hit:
    """Damage one file of a store."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in ("LOG", "LOCK"))
    # Each folder as often as any other: RocksDB has many files, and a queue few.
    groups = sorted({path.parent for path in files})
    group = random_.choice(groups)
    path = random_.choice([one for one in files if one.parent == group])
    size = path.stat().st_size
    kind = random_.choice(["flip", "flip", "truncate", "zero", "delete"]) if size else "delete"
    if kind == "delete":
        path.unlink()
        how = "deleted"
    elif kind == "truncate":
        length = random_.randrange(size)
        with path.open("r+b") as file:
            file.truncate(length)
        how = f"cut to {length} of {size} bytes"
    else:
        content = bytearray(path.read_bytes())
        if kind == "flip":
            at, bit = random_.randrange(size), random_.randrange(8)
            content[at] ^= 1 << bit
            how = f"bit {bit} of byte {at} of {size} flipped"
        else:
            at = random_.randrange(0, size, SECTOR)
            content[at : at + SECTOR] = bytes(len(content[at : at + SECTOR]))
            how = f"bytes {at} to {min(size, at + SECTOR)} of {size} zeroed"
        path.write_bytes(content)
    return Hit(path.relative_to(folder).as_posix(), how)


def copy_of(pristine: Path, folder: Path) -> Path:
    """A copy of a store, to be damaged."""
    shutil.copytree(pristine, folder)
    return folder
