"""What do others do? Each peer, set up as fast as it can fairly be, puts records one by one and reads them back."""

import sqlite3
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import diskcache
import litequeue
import persistqueue

from benchmarks.harness import timed

__all__ = ["PEERS", "Peer", "PeerRates"]


@dataclass(frozen=True, slots=True)
class PeerRates:
    """Seconds a record."""

    put: float
    get: float


@dataclass(frozen=True, slots=True)
class Peer:
    """One way to keep records on disk; each put is committed before the next."""

    name: str
    library: str
    setup: str
    """How it was set up, in words."""
    reading: str
    """How it was read back: without taking the records out where it can."""
    run: Callable[[Path, list[bytes]], PeerRates]
    exclusive: bool = False
    """Whether it shuts other processes out while it is open, which Holdfast does not."""


def _each(put: Callable[[bytes], Any], payloads: list[bytes]) -> float:
    def work() -> None:
        for payload in payloads:
            put(payload)

    return timed(work) / len(payloads)


def _drain(records: Iterable[object], count: int) -> float:
    found = 0

    def work() -> None:
        nonlocal found
        for _record in records:
            found += 1

    seconds = timed(work)
    assert found == count, f"{found} of {count} came back"
    return seconds / count


def _persist_queue(folder: Path, payloads: list[bytes]) -> PeerRates:
    folder.mkdir()
    # A chunk that never fills saves the fsync at its end; the temporary files on the same disk are renamed, not copied.
    queue = persistqueue.Queue(str(folder / "queue"), chunksize=1 << 30, tempdir=str(folder))
    put = _each(queue.put, payloads)
    return PeerRates(put, _drain((queue.get() for _ in payloads), len(payloads)))


def _litequeue(folder: Path, payloads: list[bytes]) -> PeerRates:
    folder.mkdir()
    queue = litequeue.LiteQueue(folder / "queue.db")
    queue.conn.execute("PRAGMA synchronous = OFF")
    put = _each(queue.put, payloads)
    get = _drain((queue.pop() for _ in payloads), len(payloads))
    queue.conn.close()
    return PeerRates(put, get)


def _diskcache(folder: Path, payloads: list[bytes]) -> PeerRates:
    cache = diskcache.Cache(str(folder), eviction_policy="none", sqlite_synchronous=0)
    deque = diskcache.Deque.fromcache(cache)
    put = _each(deque.append, payloads)
    get = _drain(deque, len(payloads))
    cache.close()
    return PeerRates(put, get)


def _sqlite(synchronous: str, locking: str = "NORMAL") -> Callable[[Path, list[bytes]], PeerRates]:
    def run(folder: Path, payloads: list[bytes]) -> PeerRates:
        folder.mkdir()
        connection = sqlite3.connect(folder / "log.db", isolation_level=None)  # None: each insert commits itself
        connection.execute(f"PRAGMA locking_mode = {locking}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("CREATE TABLE log (sequence INTEGER PRIMARY KEY, payload BLOB NOT NULL)")
        insert = connection.execute
        put = _each(lambda payload: insert("INSERT INTO log (payload) VALUES (?)", (payload,)), payloads)
        rows = connection.execute("SELECT sequence, payload FROM log ORDER BY sequence")
        get = _drain(rows, len(payloads))
        connection.close()
        return PeerRates(put, get)

    return run


PEERS = (
    Peer(
        "sqlite3, WAL, OFF, exclusive",
        "sqlite3",
        "as below with locking_mode=EXCLUSIVE: twice as fast, because no other process can read while it is open",
        "one SELECT over the table in order",
        _sqlite("OFF", "EXCLUSIVE"),
        exclusive=True,
    ),
    Peer(
        "sqlite3, WAL, OFF",
        "sqlite3",
        "standard library, journal_mode=WAL, synchronous=OFF, autocommit, one table with a sequence and a blob, "
        "no timestamp; INSERT one by one",
        "one SELECT over the table in order",
        _sqlite("OFF"),
    ),
    Peer(
        "sqlite3, WAL, NORMAL",
        "sqlite3",
        "the same with synchronous=NORMAL",
        "one SELECT over the table in order",
        _sqlite("NORMAL"),
    ),
    Peer(
        "litequeue",
        "litequeue",
        "LiteQueue with its own settings (WAL, cache), then synchronous=OFF; put one by one, payload as bytes",
        "pop one by one, without done()",
        _litequeue,
    ),
    Peer(
        "diskcache.Deque",
        "diskcache",
        "Deque over a Cache with eviction_policy='none' and sqlite_synchronous=0; append one by one",
        "iteration, without taking records out",
        _diskcache,
    ),
    Peer(
        "persist-queue",
        "persist-queue",
        "file Queue, a chunk that never fills (its end would cost an fsync), tempdir on the same disk; put one by one",
        "get one by one, without task_done()",
        _persist_queue,
    ),
)
