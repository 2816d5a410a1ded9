"""What tests of tables use of their internals: parts of an open table, registries of a store, limits to lower."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import pytest

from holdfast import Queue, Store
from holdfast.log.log import Log
from holdfast.state import State
from holdfast.state.state import Layer, Reads
from holdfast.table import Model, Table
from holdfast.table.storage.commit_pipeline import CommitPipeline
from holdfast.table.storage.table_state import TableState
from holdfast.table_registry import TableRegistry

__all__ = [
    "BACKUP_FRAME_RECORDS",
    "DECISIONS_FULL",
    "DECISION_MAX",
    "ENTRIES_A_RECORD",
    "LONG_PAST",
    "RANGE_DELETE",
    "REPLAY_BATCH",
    "REPLICATED_AT_ONCE",
    "WATCH_AHEAD",
    "before_applying",
    "changelog_of",
    "commits_of",
    "decisions_of",
    "on_finding_queue",
    "on_next_commit",
    "position_of",
    "registry_of",
    "state_of",
    "view_of",
]

M = TypeVar("M", bound=Model)

BACKUP_FRAME_RECORDS = "holdfast.table.storage.export.FRAME_RECORDS"
DECISION_MAX = "holdfast.transactions.DECISION_MAX"
DECISIONS_FULL = "holdfast.transactions.DECISIONS_FULL"
ENTRIES_A_RECORD = "holdfast.table.query.scanner.ENTRIES_A_RECORD"
LONG_PAST = "holdfast.table.query.scanner.LONG_PAST"
RANGE_DELETE = "holdfast.table.storage.table_state.RANGE_DELETE"
REPLAY_BATCH = "holdfast.table.storage.state_replayer.REPLAY_BATCH"
REPLICATED_AT_ONCE = "holdfast.table.live.replicator.REPLICATED_AT_ONCE"
WATCH_AHEAD = "holdfast.table.live.watcher.READ_AHEAD"


def view_of(table: Table[Any]) -> TableState:
    """Return the rows of a table and their entries."""
    return table.engine.state.view


def state_of(table: Table[Any]) -> State:
    """Return the state of all tables of its store."""
    return table.engine.state.store


def position_of(table: Table[Any]) -> int:
    """Return the log position that the state has applied."""
    return table.engine.state.position


def changelog_of(table: Table[Any]) -> Log:
    """Return the log of a table, which can be written."""
    return table.engine.log


def commits_of(table: Table[Any]) -> CommitPipeline:
    """Return the commit pipeline of a table."""
    return table.engine.commits


def registry_of(store: Store) -> TableRegistry:
    """Return the tables of a store."""
    return store._tables


def decisions_of(store: Store) -> Log:
    """Return the log of the decisions of transactions."""
    (log,) = store._transactions.logs()
    return log


def on_finding_queue(monkeypatch: pytest.MonkeyPatch, store: Store, before: Callable[[], None]) -> None:
    """Call `before` whenever a transaction that is finished has to open a queue."""
    transactions = store._transactions
    find = transactions.open_queue

    def open_queue(name: str) -> Queue | None:
        before()
        return find(name)

    monkeypatch.setattr(transactions, "open_queue", open_queue)


def on_next_commit(
    monkeypatch: pytest.MonkeyPatch, table: Table[Any], call: Callable[[Callable[[], None]], object]
) -> None:
    """Let the next commit to the state call this function, with the one that applies it."""
    state = state_of(table)
    apply = state.apply

    def once(reads: Reads, layers: Sequence[Layer], sync: bool) -> None:
        monkeypatch.setattr(state, "apply", apply)
        call(lambda: apply(reads, layers, sync))

    monkeypatch.setattr(state, "apply", once)


class _Announced:
    """A lock that calls a function before it is taken."""

    def __init__(self, lock: threading.Lock, before: Callable[[], None]) -> None:
        self._lock = lock
        self._before = before

    def __enter__(self) -> bool:
        self._before()
        return self._lock.__enter__()

    def __exit__(self, *error: Any) -> None:
        self._lock.__exit__(*error)


def before_applying(monkeypatch: pytest.MonkeyPatch, table: Table[Any], call: Callable[[], None]) -> None:
    """Call this function whenever a thread is about to take the lock under which requests are applied."""
    commits = commits_of(table)
    monkeypatch.setattr(commits, "apply_lock", _Announced(commits.apply_lock, call))
