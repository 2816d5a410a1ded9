"""Backup of an open store: all logs cut at one moment, with positions and states that are not newer."""

import contextlib
import os
import threading
from typing import TYPE_CHECKING

from holdfast.base.errors import InvalidArgument, Locked
from holdfast.base.files import Lock
from holdfast.base.paths import local_path
from holdfast.incoming_batches import BatchIngester
from holdfast.log.log import Log
from holdfast.log.snapshot import LogSnapshot, snapshot_logs
from holdfast.log_registry import LogRegistry
from holdfast.queue import Queue
from holdfast.queue_deletion import QueueDeletion
from holdfast.queue_registry import QueueRegistry
from holdfast.state import State
from holdfast.state.rocks import RocksState
from holdfast.store_context import StoreContext
from holdfast.store_layout import DELETING, JOURNALS, LOGS, STATE
from holdfast.table_registry import STATE as TABLE_STATE
from holdfast.table_registry import TABLES, TableRegistry
from holdfast.transactions import TRANSACTIONS, TransactionCoordinator

if TYPE_CHECKING:  # loaded only if a backup is made
    from holdfast.backup.backup import BackupReport
    from holdfast.backup.copier import Item, Progress
    from holdfast.backup.staging import Staging

__all__ = ["BackupSource", "ConsistentCut"]

_TRIES = 100
_PAUSE_S = 0.1


class ConsistentCut:
    """The moment of a backup, and the locks and pins that must be released after the copy."""

    def __init__(self) -> None:
        self.time = 0
        self.held = 0.0
        """For how many seconds writers had to wait."""
        self.cuts: dict[str, int] = {}
        self.left_out: list[str] = []
        self.holds = contextlib.ExitStack()
        """Locks and pins that prevent the deletion of files."""


class BackupSource:
    """Cuts all logs of an open store at one moment, and hands their files to a backup. One backup at a time."""

    def __init__(
        self,
        shared: StoreContext,
        queues: QueueRegistry,
        logs: LogRegistry,
        tables: TableRegistry,
        transactions: TransactionCoordinator,
        ingester: BatchIngester,
        deletion: QueueDeletion,
    ) -> None:
        self._files = shared.files
        self._clock = shared.clock
        self._path = shared.path
        self._guard = shared.guard
        self._parts = shared.parts
        self._open_logs = logs
        self._queues = queues
        self._tables = tables
        self._transactions = transactions
        self._ingester = ingester
        self._deletion = deletion
        self._backing_up = threading.Lock()

    def backup(
        self,
        dest: str | os.PathLike[str],
        *,
        base: str | os.PathLike[str] | None,
        incremental: bool,
        copy: bool,
        progress: "Progress | None",
    ) -> "BackupReport":
        """Back the store up into a new folder in `dest`; see `Store.backup`."""
        from holdfast.backup.backup import take_backup  # noqa: PLC0415

        target = local_path(dest, "a backup")
        if target.resolve() == self._path.resolve() or self._path.resolve() in target.resolve().parents:
            raise InvalidArgument(f"{str(target)!r} is inside the store: choose another folder, best on another disk")
        if not self._backing_up.acquire(blocking=False):
            raise Locked("another backup of this store is running: wait until it is finished")
        try:
            return take_backup(
                self._files,
                self._clock,
                self._path,
                target,
                self._take_cut,
                base=None if base is None else local_path(base, "a backup"),
                incremental=incremental,
                copy=copy,
                progress=progress,
            )
        finally:
            self._backing_up.release()

    def _take_cut(self, staging: "Staging") -> ConsistentCut:
        """Collect the files of a backup.

        States and positions of readers are read first: they may be older than the logs, whose later records bring them
        up to the moment, but never newer. Then all logs are cut at once. Queues and tables are neither opened nor
        deleted meanwhile, and no file is deleted before it has a hard link.
        """
        staging.parts = self._parts
        self._ingester.adopt()  # mostly there is nothing to adopt
        with self._guard.lock:
            self._guard.check_open()
            states, logs, queues = self._states(), self._logs(), list(self._queues.by_name.values())
        for state in states.values():
            if isinstance(state, RocksState):
                state.flush()  # without the guard, so that `copy_to` with the guard is fast
        readers = {log: staging.readers_of(log.folder) for log in logs}
        journals = {queue: queue.history.hand_over() for queue in queues}
        with contextlib.ExitStack() as holds, contextlib.ExitStack() as incoming:
            incoming.callback(self._guard_incoming().release)
            with self._guard.lock:
                self._guard.check_open()
                holds.enter_context(self._deletion.put_off())
                self._tables.before_removing = self._deletion.wait
                moment, cuts = self._cut_all(staging, readers, journals)
                for cut in cuts:
                    holds.callback(cut.unpin)
                waits = staging.add_incoming(self._ingester.incoming)
            for cut in cuts:
                cut.settle()
                is_table = cut.log.folder.parent.name == TABLES
                staging.add_cut(cut, with_settings=not is_table)
                moment.cuts[cut.log.folder.relative_to(self._path).as_posix()] = cut.end
            if staging.all_kept:
                holds.close()
            if not waits:
                incoming.close()
            moment.holds.push(holds.pop_all())
            moment.holds.push(incoming.pop_all())
        return moment

    def _cut_all(
        self, staging: "Staging", readers: "dict[Log, list[Item]]", journals: dict[Queue, Log]
    ) -> tuple[ConsistentCut, list[LogSnapshot]]:
        """Add everything that must not be newer than the logs, then cut the logs. Called with the guard held."""
        moment = ConsistentCut()
        logs = self._logs()
        flushed = [
            journals.get(queue) or queue.history.hand_over()
            for queue in self._queues.by_name.values()
            if not queue.closed
        ]
        is_open = {log.folder for log in (*logs, *flushed)}
        is_migrating = staging.add_tables(self._path / TABLES)
        staging.add_closed([self._path / root for root in (LOGS, JOURNALS)], is_open)
        staging.add_closed([self._path / TABLES], is_open, with_settings=False)  # `add_tables` has added the settings
        if self._path / TRANSACTIONS not in is_open:
            staging.add_log(self._path / TRANSACTIONS)
        staging.note_all(self._path / DELETING)
        staging.add_others()
        for log in logs:
            staging.items += readers.get(log) or staging.readers_of(log.folder)
        for name, state in self._states().items():
            if isinstance(state, RocksState) and not (is_migrating and name == TABLE_STATE):
                state.copy_to(staging.folder / name)
                staging.add_state(staging.folder / name, name)
            else:  # some changes of a running migration are not in the log
                moment.left_out.append(name)
        moment.time = self._clock.time_ns()
        cuts, moment.held = snapshot_logs([*logs, *flushed])
        return moment, cuts

    def _logs(self) -> list[Log]:
        """Return the open logs, except the journals of queues."""
        several = [*self._open_logs.by_name.values(), *self._tables.logs(), *self._transactions.logs()]
        return [log for log in several if not log.closed]

    def _states(self) -> dict[str, State]:
        found: dict[str, State] = {}
        if self._files.exists(self._path / STATE):
            found[STATE] = self._queues.open_state()
        if self._files.exists(self._path / TABLE_STATE):
            found[TABLE_STATE] = self._tables.state()
        return found

    def _guard_incoming(self) -> Lock:
        """Return a lock that prevents commits and adoptions of batches until it is released."""
        for attempt in range(_TRIES):
            try:
                return self._ingester.incoming.guard()
            except Locked:  # another process is committing a batch
                if attempt == _TRIES - 1:
                    raise
                self._clock.sleep(_PAUSE_S)
        raise AssertionError
