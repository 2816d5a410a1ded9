"""What do other queues do? Each peer, set up as fast as it can fairly be, behind the same six calls."""

import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import litequeue
import persistqueue
from huey.storage import SqliteStorage

__all__ = ["QUEUE_PEERS", "PeerQueue", "QueuePeer", "Setting"]

_PATIENCE_S = 60.0
"""How long a thread waits for another one's transaction before it gives up."""


class PeerQueue(Protocol):
    """A queue of someone else: what goes in, what is taken and must be given back, and what is done."""

    def put(self, payload: bytes) -> None:
        """Add one message."""
        ...

    def take(self) -> Any:
        """The next message, held."""
        ...

    def done(self, taken: Any) -> None:
        """A message that was taken never comes back."""
        ...

    def put_many(self, payloads: list[bytes]) -> None:
        """Add messages: in one transaction where it offers one, else one by one."""
        ...

    def take_many(self, count: int) -> list[Any]:
        """The next messages, in the same way."""
        ...

    def done_many(self, taken: list[Any]) -> None:
        """These never come back, in the same way."""
        ...

    def close(self) -> None:
        """Let go of the files."""
        ...


@dataclass(frozen=True, slots=True)
class Setting:
    """What is asked of a peer."""

    durable: bool = False
    """Whether each commit is to be on disk (synchronous=FULL) or need not be (OFF)."""
    shared: bool = False
    """Whether several threads will use it."""

    @property
    def synchronous(self) -> str:
        """How SQLite is told."""
        return f"PRAGMA synchronous = {'FULL' if self.durable else 'OFF'}"


@dataclass(frozen=True, slots=True)
class QueuePeer:
    """A library, or a way to do without one."""

    name: str
    library: str
    setup: str
    """How it was set up, in words."""
    note: str
    """What of a batch is one transaction, and what it promises less than Holdfast."""
    open: Callable[[Path, Setting], PeerQueue]
    opened_by_each_thread: bool = False
    """Whether threads need one each, because they cannot share a connection."""
    is_library: bool = True
    """Whether it counts as a peer; a hand-written table is shown beside them."""


class _OneByOne:
    """For a library without transactions: a batch is a loop."""

    def put(self, payload: bytes) -> None:
        raise NotImplementedError

    def take(self) -> Any:
        raise NotImplementedError

    def done(self, taken: Any) -> None:
        raise NotImplementedError

    def put_many(self, payloads: list[bytes]) -> None:
        for payload in payloads:
            self.put(payload)

    def take_many(self, count: int) -> list[Any]:
        return [self.take() for _ in range(count)]

    def done_many(self, taken: list[Any]) -> None:
        for one in taken:
            self.done(one)


class _AsIs:
    """A serializer for what is bytes already: persist-queue's own would pickle it, for a tenth of the time."""

    @staticmethod
    def dumps(item: bytes) -> bytes:
        return item

    @staticmethod
    def loads(raw: bytes) -> bytes:
        return raw


class _PersistQueue(_OneByOne):
    def __init__(self, folder: Path, setting: Setting) -> None:
        self._queue = persistqueue.SQLiteAckQueue(
            str(folder), serializer=_AsIs, multithreading=setting.shared, timeout=_PATIENCE_S
        )
        connections: list[Any] = [self._queue._putter, self._queue._getter]  # it offers no way to say so
        for connection in connections:
            connection.execute(setting.synchronous)
        self._last: int | None = None

    def put(self, payload: bytes) -> None:
        self._queue.put(payload)

    def take(self) -> Any:
        # From the one before on: a plain get() begins at the first row and passes all that are acked, each time.
        item = self._queue.get(block=False, raw=True, id=self._last, next_in_order=self._last is not None)
        self._last = item["pqid"]
        return self._last

    def done(self, taken: Any) -> None:
        self._queue.ack(id=taken)

    def close(self) -> None:
        self._queue.close()


class _LiteQueue:
    def __init__(self, folder: Path, setting: Setting) -> None:
        folder.mkdir(exist_ok=True)
        self._queue = litequeue.LiteQueue(folder / "queue.db", timeout=_PATIENCE_S)
        self._queue.conn.execute(setting.synchronous)

    def put(self, payload: bytes) -> None:
        self._queue.put(payload)

    def take(self) -> Any:
        return self._queue.pop().message_id

    def done(self, taken: Any) -> None:
        self._queue.done(taken)

    def put_many(self, payloads: list[bytes]) -> None:
        with self._queue.transaction():
            for payload in payloads:
                self._queue.put(payload)

    def take_many(self, count: int) -> list[Any]:
        return [self.take() for _ in range(count)]

    def done_many(self, taken: list[Any]) -> None:
        with self._queue.transaction():
            for one in taken:
                self._queue.done(one)

    def close(self) -> None:
        self._queue.close()


class _Huey(_OneByOne):
    def __init__(self, folder: Path, setting: Setting) -> None:
        folder.mkdir(exist_ok=True)
        self._storage = SqliteStorage("bench", str(folder / "huey.db"), fsync=setting.durable, timeout=_PATIENCE_S)

    def put(self, payload: bytes) -> None:
        self._storage.enqueue(payload)

    def take(self) -> Any:
        data = self._storage.dequeue()
        assert data is not None
        return data

    def done(self, taken: Any) -> None:
        """It was forgotten when it was taken."""

    def close(self) -> None:
        self._storage.close()


class _ByHand:
    """A table and three statements, as someone would write it who wants no library."""

    def __init__(self, folder: Path, setting: Setting) -> None:
        folder.mkdir(exist_ok=True)
        self._connection = sqlite3.connect(
            folder / "queue.db", isolation_level=None, check_same_thread=False, timeout=_PATIENCE_S
        )
        self._execute = self._connection.execute
        self._execute("PRAGMA journal_mode = WAL")
        self._execute(setting.synchronous)
        self._execute(
            "CREATE TABLE IF NOT EXISTS queue (id INTEGER PRIMARY KEY AUTOINCREMENT, leased INTEGER, payload BLOB)"
        )
        self._execute("CREATE INDEX IF NOT EXISTS ready ON queue (id) WHERE leased IS NULL")

    def put(self, payload: bytes) -> None:
        self._execute("INSERT INTO queue (payload) VALUES (?)", (payload,))

    def take(self) -> Any:
        return self.take_many(1)[0]

    def done(self, taken: Any) -> None:
        self._execute("DELETE FROM queue WHERE id = ?", taken[:1])

    def put_many(self, payloads: list[bytes]) -> None:
        self._execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT INTO queue (payload) VALUES (?)", [(payload,) for payload in payloads])
        self._execute("COMMIT")

    def take_many(self, count: int) -> list[Any]:
        rows = self._execute(
            "UPDATE queue SET leased = ? WHERE id IN (SELECT id FROM queue WHERE leased IS NULL ORDER BY id LIMIT ?)"
            " RETURNING id, payload",
            (time.time_ns(), count),
        ).fetchall()
        assert len(rows) == count
        return rows

    def done_many(self, taken: list[Any]) -> None:
        self._execute("BEGIN IMMEDIATE")
        self._connection.executemany("DELETE FROM queue WHERE id = ?", [row[:1] for row in taken])
        self._execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


QUEUE_PEERS = (
    QueuePeer(
        "persist-queue",
        "persist-queue",
        "SQLiteAckQueue (WAL), synchronous=OFF or FULL, multithreading only for threads, payload as bytes without "
        "pickle, get(next_in_order=True) from the one before",
        "commits each call: it refuses auto_commit=False. What was not acked comes back only when it is opened again",
        _PersistQueue,
    ),
    QueuePeer(
        "litequeue",
        "litequeue",
        "LiteQueue with its own settings (WAL, cache), then synchronous=OFF or FULL; a connection for each thread",
        "put and done of a batch in one transaction(); pop makes one of its own each. What was not acked stays locked "
        "until someone asks for it",
        _LiteQueue,
        opened_by_each_thread=True,
    ),
    QueuePeer(
        "huey",
        "huey",
        "SqliteStorage (WAL), fsync=False or True; enqueue and dequeue",
        "commits each call. dequeue forgets the message at once: no ack, no redelivery, so a lifecycle is two commits, "
        "not three, and a crash loses what was taken",
        _Huey,
    ),
    QueuePeer(
        "sqlite3 by hand",
        "sqlite3",
        "no library: one table with a partial index, WAL, synchronous=OFF or FULL; UPDATE ... RETURNING to take, "
        "DELETE to ack; a connection for each thread",
        "a batch is one transaction each for put, take and ack. No expiry of leases, delays, priorities, retries or "
        "history: what the least code could reach",
        _ByHand,
        opened_by_each_thread=True,
        is_library=False,
    ),
)
