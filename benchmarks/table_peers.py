"""What is a table compared with? The same records with their whole past, kept by others."""

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import persistent
import transaction
import ZODB
import ZODB.FileStorage
from BTrees.OOBTree import OOBTree

import holdfast
from holdfast import Index, Model, field
from holdfast.table import Add

__all__ = ["PEERS", "Account", "HoldfastTable", "PeerTable", "SqliteHistory", "ZodbHistory", "row_of"]

Row = tuple[bytes, str, str, int]
"""Key, e-mail (unique), name (indexed), balance."""


def row_of(number: int) -> Row:
    """A record that depends on its number alone; keys are scattered."""
    key = (number * 0x9E3779B97F4A7C15 % (1 << 64)).to_bytes(8, "big") + number.to_bytes(8, "big")
    return key, f"user{number}@example.org", f"name {number % 1000}", number


class PeerTable(Protocol):
    """A table with history, open in a folder."""

    name: str
    note: str

    def __init__(self, folder: Path, *, durable: bool) -> None: ...

    def add_many(self, rows: Sequence[Row]) -> None:
        """Add records, together."""
        ...

    def change(self, key: bytes, balance: int) -> None:
        """Change a field of a record; the value before can still be read."""
        ...

    def get(self, key: bytes) -> Any:
        """A record as it is now."""
        ...

    def now(self) -> Any:
        """A mark of this moment."""
        ...

    def get_as_of(self, key: bytes, then: Any) -> Any:
        """A record as it was."""
        ...

    def named(self, name: str) -> int:
        """Read all records with a name, through an index; how many."""
        ...

    def close(self) -> None: ...


class Account(Model, id=1):
    """The record that is measured."""

    email: str = field(1, unique=True)
    name: str = field(2)
    balance: int = field(3)
    __indexes__ = (Index("name"),)


class HoldfastTable:
    """Holdfast, with every version kept."""

    name = "holdfast"
    note = "keep_all_versions=True"

    def __init__(self, folder: Path, *, durable: bool) -> None:
        flush = holdfast.Flush.sync() if durable else holdfast.Flush.async_()
        self.store = holdfast.open(folder)
        self.table = self.store.table(Account, keep_all_versions=True, flush=flush)

    def add_many(self, rows: Sequence[Row]) -> None:
        self.table.write(
            [Add(Account(email=email, name=name, balance=balance), key) for key, email, name, balance in rows]
        )

    def change(self, key: bytes, balance: int) -> None:
        self.table.change(key, {"balance": balance})

    def get(self, key: bytes) -> Any:
        return self.table.get(key)

    def now(self) -> Any:
        return self.table.last_version

    def get_as_of(self, key: bytes, then: Any) -> Any:
        return self.table.get(key, as_of=then)

    def named(self, name: str) -> int:
        return sum(1 for _ in self.table.scan(Account.name == name))

    def close(self) -> None:
        self.store.close()


_SCHEMA = """
create table account (key blob primary key, email text not null unique, name text not null, balance integer not null,
                      version integer not null) without rowid;
create index account_name on account (name);
create table clock (id integer primary key check (id = 1), version integer not null);
insert into clock values (1, 0);
create table account_history (key blob not null, version integer not null, email text, name text, balance integer,
                              primary key (key, version)) without rowid;
create trigger account_added after insert on account begin
  insert into account_history values (new.key, new.version, new.email, new.name, new.balance);
end;
create trigger account_changed after update on account begin
  insert into account_history values (new.key, new.version, new.email, new.name, new.balance);
end;
create trigger account_deleted after delete on account begin
  insert into account_history values (old.key, (select version from clock) + 1, null, null, null);
end;
"""


class SqliteHistory:
    """The standard library's sqlite3 with a history table, written by triggers."""

    name = "sqlite3 + history"
    note = "WAL; synchronous FULL where durable, else OFF"

    def __init__(self, folder: Path, *, durable: bool) -> None:
        folder.mkdir(parents=True)
        self._db = sqlite3.connect(folder / "db", isolation_level=None)
        self._db.execute("pragma journal_mode = wal")
        self._db.execute(f"pragma synchronous = {'full' if durable else 'off'}")
        self._db.execute("pragma cache_size = -65536")
        self._db.executescript(_SCHEMA)
        self._version = 0

    def _next(self) -> int:
        self._version += 1
        return self._version

    def add_many(self, rows: Sequence[Row]) -> None:
        version = self._next()
        self._db.execute("begin immediate")
        self._db.executemany("insert into account values (?, ?, ?, ?, ?)", [(*row, version) for row in rows])
        self._db.execute("update clock set version = ?", (version,))
        self._db.execute("commit")

    def change(self, key: bytes, balance: int) -> None:
        version = self._next()
        self._db.execute("begin immediate")
        self._db.execute("update account set balance = ?, version = ? where key = ?", (balance, version, key))
        self._db.execute("update clock set version = ?", (version,))
        self._db.execute("commit")

    def get(self, key: bytes) -> Any:
        return self._db.execute("select email, name, balance, version from account where key = ?", (key,)).fetchone()

    def now(self) -> Any:
        return self._version

    def get_as_of(self, key: bytes, then: Any) -> Any:
        return self._db.execute(
            "select email, name, balance, version from account_history where key = ? and version <= ? "
            "order by version desc limit 1",
            (key, then),
        ).fetchone()

    def named(self, name: str) -> int:
        rows = self._db.execute("select key, email, name, balance, version from account where name = ?", (name,))
        return len(rows.fetchall())

    def close(self) -> None:
        self._db.close()


class _Account(persistent.Persistent):  # type: ignore[misc]
    def __init__(self, email: str, name: str, balance: int) -> None:
        self.email = email
        self.name = name
        self.balance = balance


class ZodbHistory:
    """ZODB, whose file keeps every revision; the past is read through a connection that stands still."""

    name = "ZODB"
    note = "FileStorage, BTrees; it syncs every commit"

    def __init__(self, folder: Path, *, durable: bool) -> None:
        folder.mkdir(parents=True)
        self._db = ZODB.DB(ZODB.FileStorage.FileStorage(str(folder / "data.fs")), historical_pool_size=8)
        self._connection = self._db.open()
        root = self._connection.root()
        root["accounts"], root["emails"], root["names"] = OOBTree(), OOBTree(), OOBTree()
        transaction.commit()
        self._past: dict[Any, Any] = {}

    def add_many(self, rows: Sequence[Row]) -> None:
        root = self._connection.root()
        accounts, emails, names = root["accounts"], root["emails"], root["names"]
        for key, email, name, balance in rows:
            if email in emails:
                raise ValueError(email)
            emails[email] = key
            accounts[key] = _Account(email, name, balance)
            names[name, key] = key
        transaction.commit()

    def change(self, key: bytes, balance: int) -> None:
        self._connection.root()["accounts"][key].balance = balance
        transaction.commit()

    def get(self, key: bytes) -> Any:
        found = self._connection.root()["accounts"][key]
        return found.email, found.name, found.balance

    def now(self) -> Any:
        time.sleep(0.01)  # its times must differ
        return self._db.lastTransaction()

    def get_as_of(self, key: bytes, then: Any) -> Any:
        connection = self._past.get(then)
        if connection is None:
            connection = self._past[then] = self._db.open(at=then)
        found = connection.root()["accounts"][key]
        return found.email, found.name, found.balance

    def named(self, name: str) -> int:
        root = self._connection.root()
        accounts = root["accounts"]
        return sum(1 for key in root["names"].values((name, b""), (name, b"\xff" * 17)) if accounts[key].email)

    def close(self) -> None:
        for connection in self._past.values():
            connection.close()
        self._connection.close()
        self._db.close()


PEERS: tuple[type[PeerTable], ...] = (SqliteHistory, ZodbHistory)
