"""The public `Store`: a folder with one writer and any number of readers, and the logs, queues and tables in it."""

import contextlib
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from holdfast.background_retention import BackgroundRetention
from holdfast.backup.source import BackupSource
from holdfast.base.clock import NS, Clock, Duration, SystemClock, positive_ns
from holdfast.base.confirm_gate import ConfirmGate
from holdfast.base.errors import HoldfastError, InvalidArgument, NotFound, ReadOnly, StorageError
from holdfast.base.fair_lock import Ticket
from holdfast.base.files import Files, Lock, SystemFiles, is_open_to_group, translate_os_errors
from holdfast.base.metrics import Registry
from holdfast.base.paths import local_path
from holdfast.disk_reserve import Reserve
from holdfast.incoming_batches import BatchIngester
from holdfast.log.background import BackgroundTask
from holdfast.log.batch_inbox import Manifest
from holdfast.log.log import Log
from holdfast.log.policy import Retention
from holdfast.log.settings import LogSettings
from holdfast.log_registry import LogRegistry
from holdfast.open_stores import StoreEnding, forget, note_for_fork, register
from holdfast.queue import Queue
from holdfast.queue.checkpoint_health import Failing
from holdfast.queue.dead_letter_forwarder import Forwarder
from holdfast.queue_deletion import QueueDeletion
from holdfast.queue_registry import QueueRegistry
from holdfast.remote_parts import close_parts, reading_parts, register_metrics, store_parts
from holdfast.schemas.payload_schema import PayloadSchema
from holdfast.state import State, open_state
from holdfast.store_background import StoreBackground
from holdfast.store_context import StoreContext
from holdfast.store_guard import StoreGuard
from holdfast.store_layout import LOCK, LOGS, STANDBY_FILE, STATE, StoreLayout
from holdfast.table_registry import HOW, TABLES, TableRegistry
from holdfast.transactions import TRANSACTIONS, Transaction, TransactionCoordinator
from holdfast.typed_options import LogOptions, QueueOptions, TableOptions

if TYPE_CHECKING:
    from holdfast.backup.backup import BackupReport
    from holdfast.backup.copier import Progress
    from holdfast.base.bucket import Bucket
    from holdfast.replica.replica import Replica
    from holdfast.replica.status import Confirm
    from holdfast.table import Model, Table
    from holdfast.table.migration import Migrations

    M = TypeVar("M", bound=Model)

__all__ = ["Store", "open"]

EXIT_PATIENCE_S = 10.0
"""How long the end of the process waits for another thread's transaction or background work."""


def open(
    path: str | os.PathLike[str],
    *,
    read_only: bool = False,
    files: Files | None = None,
    clock: Clock | None = None,
    background: bool = True,
    group_readable: bool | None = None,
    replica: "str | Bucket | None" = None,
    confirm: "Confirm" = "local",
    confirm_timeout: Duration | None = 60.0,
    replica_ttl: float | None = None,
    local_retention: Retention | None = None,
    remote_cache: int | None = None,
) -> "Store":
    """Open a store: create the folder and take the lock, or with `read_only` do neither.

    A store has one writing process at a time: a second one gets `Locked`. `files` and `clock` are for tests (see
    `holdfast.testing`); without `background` no thread is started, and `Store.tick` does its work.

    Folders are made with mode 0700 and files with 0600. With `group_readable` the store's folder gets mode 0750, and
    new folders and files in it 0750 and 0640; this applies to later openings, too, as long as the folder has that mode.

    With `replica`, the URL of a bucket (`s3://bucket/prefix`, `gs://`, `az://` or `file:///folder`), the store is
    shipped there continuously: see `Store.replica`. `confirm="local"` confirms a message when it is on the local disk;
    the bucket is a second or two behind. `confirm="replica"` confirms it when it is in the bucket: a call that promises
    that something is durable waits for that, and raises `NotConfirmed` after `confirm_timeout` (None: it waits
    forever). Raises `ReplicaFenced` if another process ships to it. `replica_ttl` is how many seconds a claim on
    the replica lasts (15): after so long a standby takes over.

    `local_retention` is what stays on the local disk of each log without a `local_retention` of its own; older records
    are read from the replica. `remote_cache` is the size of the cache for them, in bytes: 256 MiB by default.
    """
    folder = local_path(path)
    bucket = _bucket_of(replica, confirm, read_only=read_only)
    if group_readable is not None and not read_only and files is None:
        files = SystemFiles(group_readable=group_readable)
        with translate_os_errors("opening the store", folder):
            files.make_dirs(folder)
            if is_open_to_group(folder) != group_readable:
                folder.chmod(files.folder_mode)
    make = partial(
        Store,
        read_only=read_only,
        files=files,
        clock=clock,
        background=background,
        local_retention=local_retention,
        remote_cache=remote_cache,
    )
    opened: list[Store] = []
    try:
        opened.extend(map(make, (folder,)))  # one call of C code: an interrupt cannot come before it is in the list
        if bucket is not None:
            opened[0].ship_to(bucket, confirm=confirm, confirm_timeout=confirm_timeout, ttl=replica_ttl)
        return opened[0]
    except BaseException:
        for store in opened:
            store.close()
        raise


def _bucket_of(replica: "str | Bucket | None", confirm: str, *, read_only: bool) -> "Bucket | None":
    if confirm not in ("local", "replica"):
        raise InvalidArgument(f"confirm must be 'local' or 'replica', not {confirm!r}")
    if replica is None:
        if confirm == "replica":
            raise InvalidArgument("confirm='replica' needs a replica: open the store with replica=URL, too")
        return None
    if read_only:
        raise InvalidArgument("a store that is opened read-only ships nothing: open it without replica")
    if isinstance(replica, str):
        from holdfast.replica.bucket import open_bucket  # noqa: PLC0415 - loaded only if a store has a replica

        return open_bucket(replica)
    return replica


class Store:
    """An open store; also a context manager.

    Files: `LOCK`, `logs/`, `journals/`, `state/`, `tables/`, `table-state/`, `transactions/`, `incoming/` and others.
    Threads: all methods may be called from any. A writable store stays open until `close`, or the end of the process,
    even if nothing refers to it. Its registries own the open logs, queues and tables, and share one `StoreGuard`.
    `queue_registry`, `ending` and `gate`, where calls wait for the replica, are for the packages above.
    """

    _replica: "Replica | None" = None
    _lock: Lock | None = None

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool,
        files: Files | None,
        clock: Clock | None,
        background: bool,
        state: State | None = None,
        local_retention: Retention | None = None,
        remote_cache: int | None = None,
    ) -> None:
        """Open the store; `state` replaces the state in the folder, to rebuild it from the journals alone."""
        self.path = path
        self.read_only = read_only
        self.metrics = Registry()
        """Counts, gauges and latencies of the open queues."""
        self._files: Files = files or SystemFiles.of_store(path)
        self._clock: Clock = clock or SystemClock()
        self._state = state
        self.gate = ConfirmGate(self._clock)
        self._guard = StoreGuard(path)
        self._layout = StoreLayout(self._files, path, read_only=read_only)
        self._background = StoreBackground(self._tasks, self._named, enabled=background)
        self._deletion = QueueDeletion(self._files, self._layout, self._open_state)
        self._ingester = BatchIngester(self._files, self._clock, path, self._open_to_adopt)
        self._reserve = Reserve(
            self._files, self._clock, path, self._shortenable_queues, self.metrics, self._wake_reserve, self.open_logs
        )
        self._retention = BackgroundRetention(self._clock, self.open_logs, self.open_queues)
        shared = self._shared = self._make_context(local_retention, remote_cache)
        self._logs = LogRegistry(
            shared,
            resume_adoption=self._ingester.resume,
            retention=self._retention,
            finish_deletions=self._deletion.finish_if_any,
        )
        self._tables = TableRegistry(
            self._files,
            self._clock,
            path,
            self._logs.open,
            read_only=read_only,
            metrics=self.metrics,
            background=background,
            free_space=self._reserve.release_last,
        )
        self._transactions = TransactionCoordinator(shared, self._tables, self._logs, self.find_queue, self.open_queues)
        self.queue_registry = QueueRegistry(
            shared,
            self._logs,
            self._deletion,
            open_state=self._open_state,
            on_open=self._transactions.include_queue,
        )
        self._backups = BackupSource(
            shared, self.queue_registry, self._logs, self._tables, self._transactions, self._ingester, self._deletion
        )
        self.ending = StoreEnding(path, self._close_at_exit, self._close_discarding, self._detach_after_fork)
        self._open()

    def _make_context(self, local_retention: Retention | None, remote_cache: int | None) -> StoreContext:
        if self.read_only:
            parts = reading_parts(self._files, self.path)
        else:
            parts = store_parts(self._files, self.path, remote_cache, self._bucket_of_replica)
        return StoreContext(
            self.path,
            self.read_only,
            self._files,
            self._clock,
            self.metrics,
            self._guard,
            self._layout,
            self._background,
            self._reserve,
            self.gate,
            parts,
            local_retention,
        )

    def _open(self) -> None:
        note_for_fork(self.ending)
        taken: list[Lock] = []
        try:
            with translate_os_errors("opening the store", self.path):
                self._open_folder(taken)
        except BaseException:
            try:
                self._abort_opening()
            finally:
                for lock in taken:
                    lock.release()
            raise

    def _open_folder(self, taken: list[Lock]) -> None:
        """Take the lock, add it to `taken`, and finish what a crash cut off; a reader only checks for the folder."""
        path = self.path
        if self._files.exists(path / STANDBY_FILE):
            raise StorageError(
                f"{str(path)!r} is the copy of a standby, and no store before it takes over: start it with holdfast "
                "serve --standby, or see holdfast replica promote"
            )
        if self.read_only:
            if not self._files.exists(path):
                raise NotFound(f"there is no store at {str(path)!r}: check the path, or open it without read_only=True")
            return
        self._files.make_dirs(path)
        with contextlib.suppress(PermissionError):  # a parent folder of another user, without read permission
            self._files.sync_dir(path.parent)
        taken.extend(map(self._files.lock, (path / LOCK,)))  # one call of C code: an interrupt cannot come between
        self._lock = taken[0]
        self._reserve.find()
        self._deletion.resume()
        if self._files.exists(path / TRANSACTIONS):
            self._transactions.recover()
        self._background.wake()  # other processes may commit batches at any time
        if type(self._files) is SystemFiles:  # else the files are simulated, or need not outlive the process
            register(self.ending)

    # Logs

    def log(self, name: str, *, schema: PayloadSchema | None = None, **settings: Unpack[LogOptions]) -> Log:
        """Return the log of that name, created if there is none. Settings apply when this store first opens it.

        `schema` is kept with the log, as by `log.schema.set`: it becomes a new version unless the log has it already.
        """
        log = self._logs.log(name, dict(settings))
        if schema is not None:
            log.schema.set(schema)
        return log

    def logs(self) -> list[str]:
        """Return the names of all logs in the store, sorted."""
        self._guard.check_open()
        return self._layout.logs()

    def open_logs(self) -> list[Log]:
        """Return the logs that are open in this process."""
        return list(self._logs.by_name.values())

    def open_log(self, name: str) -> Log | None:
        """Return the log of that name if it is open in this process."""
        return self._logs.by_name.get(name)

    def adopt(self) -> int:
        """Adopt the batches that other processes committed; return how many. The background does this automatically.

        Raises `Locked` while another process commits one.
        """
        self._guard.check_open()
        if self.read_only:
            raise ReadOnly("only the process that owns the store can adopt batches: this store was opened read-only")
        return self._ingester.adopt()

    # Queues

    def queue(self, name: str, **settings: Unpack[QueueOptions]) -> Queue:
        """Return the queue of that name, created if there is none; on the log of the same name unless `log` is given.

        Settings are saved with the queue: one that is not given keeps its last value. Settings of the log (`flush`,
        `roll`, ...) apply if this opens it; by default a queue's log syncs each put, and drops acknowledged messages
        after `history`.
        """
        return self.queue_registry.queue_with_defaults(name, {}, settings)

    def find_queue(self, name: str) -> Queue | None:
        """Return the queue of that name, opened if it is not open; None if there is none.

        A later `queue` call with other settings is allowed, and closes the queue returned here: call this each time.
        """
        return self.queue_registry.find(name)

    def queues(self) -> list[str]:
        """Return the names of all queues in the store, sorted."""
        self._guard.check_open()
        return self._layout.queues()

    def open_queues(self) -> list[Queue]:
        """Return the queues that are open in this process."""
        return list(self.queue_registry.by_name.values())

    def log_of(self, queue: str) -> str:
        """Return the name of the log that a queue is a view of."""
        return self.queue_registry.log_of(queue)

    def journal(self, queue: str) -> Log:
        """Return the journal of a queue: the events of its messages (see `queue.events`).

        Raises `InvalidArgument` unless the store was opened with `read_only=True`.
        """
        self._guard.check_open()
        return self.queue_registry.journal(queue)

    def failing_checkpoints(self) -> dict[str, Failing]:
        """Return the open queues whose checkpoints fail: since when, and why. They still serve requests."""
        return {
            queue.name: failing
            for queue in self.open_queues()
            if (failing := queue.inspect.checkpoint_failure) is not None
        }

    def delete_queue(self, name: str) -> None:
        """Delete a queue with all its data, and its log if that has its name and no other queue.

        After a crash the queue is as it was or, once the store is open again, completely deleted. Callers that hold
        deliveries of it, or wait for some, get `Closed`.
        """
        self.queue_registry.delete(name)

    def forward(self, prefix: str, forwarder: Forwarder) -> None:
        """Send the dead letters of queues whose `dead_letter` begins with `prefix`, as `amqp-dlx:`, to this function.

        No queue can have such a name. Until a forwarder is set for the prefix, the dead letters wait in their queues.
        """
        self.queue_registry.forward(prefix, forwarder)

    # Tables

    def table(self, model: "type[M] | str", **settings: Unpack[TableOptions]) -> "Table[M]":
        """Open the table of a model, and create it if there is none. An existing one can be opened by its name, too.

        Settings are saved with the table: one that is not given has its last value. The options `keyring`, `migration`,
        `migration_budget` and `on_version_change` are not saved. By default the log syncs each request, and past
        versions cannot be read.
        """
        with self._guard.lock:
            self._guard.check_open()
            log_settings = {key: value for key, value in settings.items() if key in LogSettings.__dataclass_fields__}
            how: dict[str, Any] = {key: value for key, value in settings.items() if key in HOW}
            chosen = {key: value for key, value in settings.items() if key not in {*log_settings, *how}}
            if unknown := chosen.keys() - TableOptions.__annotations__.keys():
                known = ", ".join(sorted(TableOptions.__annotations__))
                raise InvalidArgument(f"a table has no setting {min(unknown)!r}; there are: {known}")
            table = self._tables.table(model, chosen, log_settings, **how)
            self._background.wake()
            return table

    def tables(self) -> list[str]:
        """Return the names of all tables in the store, sorted."""
        self._guard.check_open()
        return self._tables.names()

    def table_definition(self, name: str) -> dict[str, Any]:
        """Return the saved definition of a table: its fields, indexes and reserved names. Raises `NotFound`."""
        definition: dict[str, Any] = self._tables.meta(name)["definition"]
        return definition

    def table_log(self, name: str) -> Log:
        """Return the log of a table's changes, from a store that was opened with `read_only=True`; then close it."""
        self._guard.check_open()
        if not self.read_only:
            raise ReadOnly(f"the log of the table {name!r} can only be read from a store opened with read_only=True")
        return self._logs.open(name, self.path / TABLES, LogSettings())

    def migrations(self) -> "Migrations":
        """Return the migrations of the tables: iterate for the status of each; `wait`, `pause`, `resume`, `cancel`."""
        self._guard.check_open()
        return self._tables.migrations

    def delete_table(self, name: str) -> None:
        """Delete a table with its records, their history and its log. Raises `NotFound`.

        Waits for a running transaction. After a crash the table is complete, or it is deleted; its files may then
        remain until a table is next opened or deleted.
        """
        with self._transactions.alone(), self._guard.lock:
            self._guard.check_open()
            if self.read_only:
                raise ReadOnly("only the process that owns the store can delete a table")
            self._tables.delete(name)

    def transaction(self) -> contextlib.AbstractContextManager[Transaction]:
        """Apply the changes inside, to tables and with `put`, together at the end, or not at all.

        `with store.transaction(): accounts.add(...); orders.put(...)`. After an error inside, none is applied; after a
        crash, all or none. Other threads that write to the same tables wait for its end. A store runs one transaction
        at a time.
        """
        self._guard.check_open()
        if self.read_only:
            raise ReadOnly("the store was opened read-only: open it without read_only=True to write")
        return self._transactions.begin()

    # The store as a whole

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
        self._guard.check_open()
        if self.read_only:
            raise ReadOnly("only the process that owns the store can back it up: this store was opened read-only")
        return self._backups.backup(dest, base=base, incremental=incremental, copy=copy, progress=progress)

    def ship_to(
        self,
        bucket: "Bucket",
        *,
        confirm: "Confirm" = "local",
        confirm_timeout: Duration | None = 60.0,
        ttl: float | None = None,
    ) -> None:
        """Ship the open store to a bucket from now on, as `open` does with `replica`; `open_bucket` takes a URL.

        Close the store if this raises.
        """
        timeout = None if confirm_timeout is None else positive_ns(confirm_timeout, "confirm_timeout") / NS
        from holdfast.replica.replica import Replica  # noqa: PLC0415 - loaded only if a store has a replica
        from holdfast.replica.source import ReplicaSource  # noqa: PLC0415

        self._guard.check_open()
        if self.read_only:
            raise ReadOnly("only the process that owns the store can ship it: this store was opened read-only")
        if self._replica is not None:
            raise InvalidArgument(f"the store is shipped to {self._replica.url} already: close it first")
        shared = self._shared
        source = ReplicaSource(
            shared, self.queue_registry, self._logs, self._tables, self._transactions, self._ingester
        )
        with translate_os_errors("opening the store", self.path):
            claim = {} if ttl is None else {"ttl": ttl}
            self._replica = Replica(bucket, shared, source, confirm=confirm, confirm_timeout=timeout, **claim)
            register_metrics(shared.parts, self.metrics, self._remote_bytes)
            self._replica.start()

    @property
    def replica(self) -> "Replica":
        """What ships the store to a bucket. Raises `InvalidArgument` if it was opened without `replica`."""
        if self._replica is None:
            raise InvalidArgument("the store has no replica: open it with replica=URL, such as s3://bucket/prefix")
        return self._replica

    @property
    def is_replicated(self) -> bool:
        """Whether the store is shipped to a bucket."""
        return self._replica is not None

    def _remote_bytes(self) -> int:
        return sum(one.limit for log in self.open_logs() for one in log.reader.segments() if one.remote is not None)

    def _bucket_of_replica(self) -> "Bucket | None":
        return None if self._replica is None else self._replica.bucket

    @property
    def closing(self) -> bool:
        """Whether `close` has begun."""
        return self._guard.closing

    @property
    def disk_full(self) -> bool:
        """Return whether the disk is full: then acks and leases are written, and puts and appends are refused."""
        return self._reserve.released

    def tick(self) -> None:
        """Do the background work that is due, for stores that were opened without `background`."""
        self._background.tick()

    def close(self) -> None:
        """Write and sync accepted messages, and release the lock; idempotent. Waits for a running transaction.

        If something cannot be written (a full disk) this raises. The logs, queues and tables that could not be closed
        stay open, and so does the store: call it again.

        After an interrupt (Ctrl-C) the store accepts no other calls. Call this again to continue; the end of the
        process does so, too.
        """
        if not self._guard.closed:
            self._close_alone()

    def _close_alone(self, patience: float | None = None) -> None:
        ticket = Ticket()
        try:
            self._transactions.claim(ticket)
            self._close(patience)
        finally:
            ticket.over = True
            self._transactions.tidy()

    def _close(self, patience: float | None = None) -> None:
        """Close everything, in steps that can be repeated if an interrupt cuts one off."""
        if not self._begin_closing(patience):
            return
        with self._guard.lock:
            problem: HoldfastError | None = self._tables.close()
            self._transactions.close()
            problem = self.queue_registry.close_all() or problem
            if not self.queue_registry.by_name:  # closing a queue writes to its log
                problem = self._logs.close_all() or problem
            if self.queue_registry.by_name or self._logs.by_name or self._tables.open_tables:
                self._guard.closing = False
                self._background.start()
                self._background.wake()  # open logs and queues still need the background thread
            else:
                self._release()
            if problem is not None:
                raise problem

    def _begin_closing(self, patience: float | None = None) -> bool:
        """Refuse other calls, and end what runs in the background; return False if the store is closed already."""
        with self._guard.lock:
            if self._guard.closed:
                return False
            self._guard.closing = True
        # Without the guard: the ticker may be waiting for it to move a message to a queue that is not open yet.
        self._background.stop(patience)
        if self._replica is not None:
            with contextlib.suppress(HoldfastError):  # closing them reports it
                self._sync_all()  # the bucket may answer late, and the process may be killed meanwhile
            self._replica.close()
        self._tables.stop_migrating()
        return True

    def _release(self) -> None:
        """Close the state and release the lock, after logs, queues and tables are closed."""
        if self._state is not None:
            self._state.close()
        self._reserve.close()
        if not self.read_only:
            close_parts(self._files, self.path, self._shared.parts)
        if self._lock is not None:
            self._lock.release()
        self._guard.closed = True
        forget(self.ending)

    def _abort_opening(self) -> None:
        """Close what was opened so far, so that the store can be opened again."""
        self._guard.closing = self._guard.closed = True
        forget(self.ending)
        self._background.stop()
        self.queue_registry.detach_after_fork()
        self._logs.detach_after_fork()
        self._transactions.detach_after_fork()
        if self._state is not None:
            self._state.close()

    def _close_at_exit(self) -> None:
        """Close the store at the end of the process, without waiting forever for another thread.

        Waits at most 10 seconds for each background thread, and for a transaction. If the transaction does not end,
        accepted messages are written and synced, and the store stays open.
        """
        if self._guard.closed:
            return
        self._background.stop(EXIT_PATIENCE_S)
        for queue in self.open_queues():
            queue.ending.leave_waiters_asleep()
        if self._transactions.is_idle_within(EXIT_PATIENCE_S):
            self._close_alone(EXIT_PATIENCE_S)
            return
        self._sync_all()

    def _close_discarding(self) -> None:
        """Close everything before the folder is deleted: write no checkpoints, and ignore failed writes of logs."""
        if not self._begin_closing():
            return
        with self._guard.lock:
            self._tables.close()
            self._transactions.close()
            self.queue_registry.close_discarding(f"the store {str(self.path)!r} was deleted")
            self._logs.close_discarding()
            self._release()

    def _sync_all(self) -> None:
        for queue in self.open_queues():
            queue.history.hand_over().appender.sync()
        for log in [*self.open_logs(), *self._tables.logs()]:
            log.appender.sync()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        self.close()

    def _detach_after_fork(self) -> None:
        """Mark the store as closed. Called in a forked child: the store, its lock and its thread are the parent's."""
        self._guard.detach_after_fork()
        if self._replica is not None:
            self._replica.detach_after_fork()
        self.queue_registry.detach_after_fork()
        self._logs.detach_after_fork()
        self._tables.detach_after_fork()
        self._transactions.detach_after_fork()
        self.queue_registry.by_name.clear()
        self._logs.by_name.clear()

    def _tasks(self) -> list[BackgroundTask]:
        ours: list[BackgroundTask] = [self._ingester, self._retention, self._reserve, *self._tables.migrating()]
        if self._replica is not None and not self._background.enabled:
            ours.append(self._replica)  # otherwise it has threads of its own: an upload may take long
        return [*self.open_queues(), *self.open_logs(), *self._tables.logs(), *([] if self.read_only else ours)]

    def _named(self, name: str) -> list[BackgroundTask]:
        found: tuple[BackgroundTask | None, ...] = (self.queue_registry.by_name.get(name), self._logs.by_name.get(name))
        return [one for one in found if one is not None]

    @contextlib.contextmanager
    def _open_to_adopt(self, manifest: Manifest) -> Iterator[Log]:
        """Yield the log that a batch is for; open it if it is not open."""
        with self._guard.lock:
            self._guard.check_open()
            if manifest.queue is not None:
                self.queue_registry.ensure(manifest.queue)
            log = self._logs.by_name.get(manifest.log)
            if log is None:
                log = self._logs.open(manifest.log, self.path / LOGS, LogSettings())
                try:
                    yield log
                finally:
                    log.close()
                return
        yield log

    def _shortenable_queues(self) -> list[Queue]:
        return self.queue_registry.shortenable()

    def _wake_reserve(self) -> None:
        self._background.wake(self._reserve)

    def _open_state(self) -> State:
        if self._state is None:
            self._state = open_state(
                self._files, self.path / STATE, read_only=self.read_only, free_space=self._reserve.release_last
            )
        return self._state
