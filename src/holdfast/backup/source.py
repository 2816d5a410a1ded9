"""Backup of an open store: all logs cut at one moment, with positions and states that are not newer."""

import contextlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.base.clock import Clock
from holdfast.base.errors import InvalidArgument, Locked, ReadOnly
from holdfast.base.files import Files, Lock
from holdfast.base.paths import local_path
from holdfast.incoming_batches import BatchIngester
from holdfast.log.log import Log
from holdfast.log.snapshot import LogSnapshot, snapshot_logs
from holdfast.queue import Queue
from holdfast.queue_deletion import QueueDeletion
from holdfast.state import State
from holdfast.state.rocks import RocksState
from holdfast.store_layout import DELETING, JOURNALS, LOGS
from holdfast.table_registry import STATE as TABLE_STATE
from holdfast.table_registry import TABLES
from holdfast.tabled import TabledStore
from holdfast.transactions import TRANSACTIONS

if TYPE_CHECKING:  # loaded only if a backup is made
    from holdfast.backup.backup import BackupReport
    from holdfast.backup.copier import Item, Progress
    from holdfast.backup.staging import Staging

__all__ = ["BackupSource", "ConsistentCut"]

STATE = "state"
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


class BackupSource(TabledStore):
    """The part of a store that makes backups."""

    path: Path
    _files: Files
    _clock: Clock
    _open_logs: dict[str, Log]
    _open_queues: dict[str, Queue]
    _adopting: BatchIngester
    _deleting: QueueDeletion
    _backing_up: threading.Lock

    def _open_state(self) -> State:
        raise NotImplementedError

    def adopt(self) -> int:
        """Adopt the batches that other processes committed."""
        raise NotImplementedError

    def backup(
        self,
        dest: str | os.PathLike[str],
        *,
        base: str | os.PathLike[str] | None = None,
        incremental: bool = True,
        copy: bool = False,
        progress: "Progress | None" = None,
    ) -> "BackupReport":
        """Back the store up into a new folder in `dest`, while other threads continue to write.

        All logs, queues and tables are saved as of one moment. Files that the newest backup in `dest` (or `base`) has
        already are hard-linked, unless not `incremental`. If `dest` is on the store's file system, sealed segments are
        hard-linked too. With `copy` nothing is shared with the store, so that damage to one is not damage to the other.
        Raises `Locked` while another backup of the store, or to `dest`, is being made.
        """
        from holdfast.backup.backup import take_backup  # noqa: PLC0415

        self._check_open()
        if self.read_only:
            raise ReadOnly("only the process that owns the store can back it up: this store was opened read-only")
        target = local_path(dest, "a backup")
        if target.resolve() == self.path.resolve() or self.path.resolve() in target.resolve().parents:
            raise InvalidArgument(f"{str(target)!r} is inside the store: choose another folder, best on another disk")
        if not self._backing_up.acquire(blocking=False):
            raise Locked("another backup of this store is running: wait until it is finished")
        try:
            return take_backup(
                self._files,
                self._clock,
                self.path,
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
        self.adopt()  # mostly there is nothing to adopt
        with self._guard:
            self._check_open()
            states, logs, queues = self._states(), self._logs(), list(self._open_queues.values())
        for state in states.values():
            if isinstance(state, RocksState):
                state.flush()  # without the guard, so that `copy_to` with the guard is fast
        readers = {log: staging.readers_of(log.folder) for log in logs}
        journals = {queue: queue.hand_over() for queue in queues}
        with contextlib.ExitStack() as holds, contextlib.ExitStack() as incoming:
            incoming.callback(self._guard_incoming().release)
            with self._guard:
                self._check_open()
                holds.enter_context(self._deleting.put_off())
                self._tables.before_removing = self._deleting.wait
                moment, cuts = self._cut_all(staging, readers, journals)
                for cut in cuts:
                    holds.callback(cut.unpin)
                waits = staging.add_incoming(self._adopting.incoming)
            for cut in cuts:
                cut.settle()
                is_table = cut.log.folder.parent.name == TABLES
                staging.add_cut(cut, with_settings=not is_table)
                moment.cuts[cut.log.folder.relative_to(self.path).as_posix()] = cut.end
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
        flushed = [journals.get(queue) or queue.hand_over() for queue in self._open_queues.values() if not queue.closed]
        is_open = {log.folder for log in (*logs, *flushed)}
        is_migrating = staging.add_tables(self.path / TABLES)
        staging.add_closed([self.path / root for root in (LOGS, JOURNALS)], is_open)
        staging.add_closed([self.path / TABLES], is_open, with_settings=False)  # `add_tables` has added the settings
        if self.path / TRANSACTIONS not in is_open:
            staging.add_log(self.path / TRANSACTIONS)
        staging.note_all(self.path / DELETING)
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
        several = [*self._open_logs.values(), *self._tables.logs(), *self._transactions.logs()]
        return [log for log in several if not log.closed]

    def _states(self) -> dict[str, State]:
        found: dict[str, State] = {}
        if self._files.exists(self.path / STATE):
            found[STATE] = self._open_state()
        if self._files.exists(self.path / TABLE_STATE):
            found[TABLE_STATE] = self._tables.state()
        return found

    def _guard_incoming(self) -> Lock:
        """Return a lock that prevents commits and adoptions of batches until it is released."""
        for attempt in range(_TRIES):
            try:
                return self._adopting.incoming.guard()
            except Locked:  # another process is committing a batch
                if attempt == _TRIES - 1:
                    raise
                self._clock.sleep(_PAUSE_S)
        raise AssertionError
