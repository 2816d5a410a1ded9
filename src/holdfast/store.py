"""The public `Store`: a folder with one writer and any number of readers, and the logs, queues and tables in it."""

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack, cast

from holdfast.background_retention import BackgroundRetention
from holdfast.base.clock import Clock, SystemClock
from holdfast.base.errors import Closed, HoldfastError, InvalidArgument, NotFound, ReadOnly
from holdfast.base.fair_lock import Ticket
from holdfast.base.files import Files, Lock, SystemFiles, is_open_to_group, translate_os_errors
from holdfast.base.metrics import Registry
from holdfast.base.names import check_name, escape_name
from holdfast.base.paths import local_path
from holdfast.disk_reserve import Reserve
from holdfast.incoming_batches import BatchIngester
from holdfast.listing import ListedStore
from holdfast.log.background import BackgroundTask, BackgroundWorker
from holdfast.log.batch_inbox import Manifest
from holdfast.log.consumer_offsets import place_of
from holdfast.log.log import Log
from holdfast.log.policy import Flush, Retention, Roll
from holdfast.log.settings import LogSettings
from holdfast.open_stores import forget, note_for_fork, register
from holdfast.queue import Queue, QueueSettings
from holdfast.queue.dead_letter_forwarder import Forwarder, check_prefix, is_forwarded
from holdfast.queue.settings import asdict_shallow
from holdfast.queue_deletion import QueueDeletion
from holdfast.state import State, open_state
from holdfast.store_layout import JOURNALS, LOGS, StoreLayout, few
from holdfast.table_registry import TableRegistry
from holdfast.transactions import TRANSACTIONS, TransactionCoordinator
from holdfast.typed_options import LogOptions, QueueOptions

__all__ = ["Store", "open"]

logger = logging.getLogger("holdfast.store")

LOCK = "LOCK"
STATE = "state"
_JOURNAL_RECORD = 256 << 20
_JOURNAL_ROLL = Roll.any(Roll.size(64 << 20), Roll.time(86_400))
_EXIT_PATIENCE_S = 10.0
"""How long the end of the process waits for another thread's transaction or background work."""


def open(
    path: str | os.PathLike[str],
    *,
    read_only: bool = False,
    files: Files | None = None,
    clock: Clock | None = None,
    background: bool = True,
    group_readable: bool | None = None,
) -> "Store":
    """Open a store: create the folder and take the lock, or with `read_only` do neither.

    A store has one writing process at a time: a second one gets `Locked`. `files` and `clock` are for tests (see
    `holdfast.testing`); without `background` no thread is started, and `Store.tick` does its work.

    Folders are made with mode 0700 and files with 0600. With `group_readable` the store's folder gets mode 0750, and
    new folders and files in it 0750 and 0640; this applies to later openings, too, as long as the folder has that mode.
    """
    folder = local_path(path)
    if group_readable is not None and not read_only and files is None:
        files = SystemFiles(group_readable=group_readable)
        with translate_os_errors("opening the store", folder):
            files.make_dirs(folder)
            if is_open_to_group(folder) != group_readable:
                folder.chmod(files.folder_mode)
    make = partial(Store, read_only=read_only, files=files, clock=clock, background=background)
    opened: list[Store] = []
    try:
        opened.extend(map(make, (folder,)))  # one call of C code: an interrupt cannot come before it is in the list
        return opened[0]
    except BaseException:
        for store in opened:
            store.close()
        raise


class Store(ListedStore):
    """An open store; also a context manager.

    Files: `LOCK`, `logs/`, `journals/`, `state/`, `tables/`, `table-state/`, `transactions/`, `incoming/` and others.
    Threads: all methods may be called from any. A writable store stays open until `close`, or the end of the process,
    even if nothing refers to it. `_guard` protects the open logs, queues and tables.
    """

    def __init__(
        self,
        path: Path,
        *,
        read_only: bool,
        files: Files | None,
        clock: Clock | None,
        background: bool,
        state: State | None = None,
    ) -> None:
        """Open the store; `state` replaces the state in the folder, to rebuild it from the journals alone."""
        self.path = path
        self.read_only = read_only
        self._files: Files = files or SystemFiles.of_store(path)
        self._clock: Clock = clock or SystemClock()
        self._guard = threading.RLock()
        self._backing_up = threading.Lock()
        self._open_logs: dict[str, Log] = {}
        self._open_queues: dict[str, Queue] = {}
        self._implicit: set[str] = set()
        """Queues that were opened without a call of `queue`, such as the dead letter queues of others."""
        self._forwarders: dict[str, Forwarder] = {}
        self._state = state
        self.metrics = Registry()
        """Counts, gauges and latencies of the open queues."""
        self._closing = False
        """Whether `close` has begun: nothing more is opened. An interrupt may cut it off; then `close` continues."""
        self._closed = False
        """Whether everything is closed, and the lock released."""
        self._lock: Lock | None = None
        self._folders = StoreLayout(self._files, path, read_only=read_only)
        self._deleting = QueueDeletion(self._files, self._folders, self._open_state)
        self._adopting = BatchIngester(self._files, self._clock, path, self._open_to_adopt)
        self._reserve = Reserve(
            self._files, self._clock, path, self._shortenable_queues, self.metrics, lambda: self._wake(self._reserve)
        )
        self._retiring = BackgroundRetention(self._clock, self.open_logs, self.open_queues)
        self._tables = TableRegistry(
            self._files,
            self._clock,
            path,
            self._open_log,
            read_only=read_only,
            metrics=self.metrics,
            background=background,
            free_space=self._reserve.release_last,
        )
        self._transactions = TransactionCoordinator(
            self._clock,
            path,
            self._tables,
            self._open_log,
            self.find_queue,
            lambda: [*self._open_queues.values()],
        )
        self._background = background
        self._unsynced: dict[Log, None] = {}
        """Without `background`: logs that asked for a sync."""
        self._start_tickers()
        self._wake: Callable[..., None] = self._wake_ticker if background else lambda name=None: None
        note_for_fork(self)
        taken: list[Lock] = []
        try:
            with translate_os_errors("opening the store", path):
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
        self._deleting.resume()
        if self._files.exists(path / TRANSACTIONS):
            self._transactions.recover()
        self._wake()  # other processes may commit batches at any time
        if type(self._files) is SystemFiles:  # else the files are simulated, or need not outlive the process
            register(self)

    def log(self, name: str, **settings: Unpack[LogOptions]) -> Log:
        """Return the log of that name, created if there is none. Settings apply when this store first opens it."""
        check_name(name, "log name")
        with self._guard:
            self._check_open()
            is_new = not self.read_only and not self._files.exists(self._folders.log(name))
            log = self._log(name, settings)
            if is_new:
                self._folders.note_log(name)
            return log

    def _log(self, name: str, settings: LogOptions) -> Log:
        with self._guard:
            self._finish_deleting()
            known = self._open_logs.get(name)
            wanted = LogSettings.of(dict(settings))
            if known is not None:
                if settings and known.settings != wanted:
                    raise InvalidArgument(
                        f"the log {name!r} is open with other settings: close the store to change them"
                    )
                return known
            log = self._open_log(name, self.path / LOGS, wanted)
            self._open_logs[name] = log
            if wanted.retention is not None and not self.read_only:
                self._wake(self._retiring)
            return log

    def queue(self, name: str, **settings: Unpack[QueueOptions]) -> Queue:
        """Return the queue of that name, created if there is none; on the log of the same name unless `log` is given.

        Settings are saved with the queue: one that is not given keeps its last value. Settings of the log (`flush`,
        `roll`, ...) apply if this opens it; by default a queue's log syncs each put, and drops acknowledged messages
        after `history`.
        """
        return self.queue_with_defaults(name, {}, **settings)

    def queue_with_defaults(self, name: str, defaults: Mapping[str, Any], **settings: Unpack[QueueOptions]) -> Queue:
        """As `queue`, for a server with its own defaults.

        The defaults apply to a queue that this call creates, and replace earlier defaults of a server. They never
        replace a chosen setting, and a queue that a program created keeps the library's defaults.
        """
        check_name(name, "queue name")
        with self._guard:
            self._check_open()
            self._finish_deleting()
            log_settings = {key: value for key, value in settings.items() if key in LogSettings.__dataclass_fields__}
            given = {key: value for key, value in settings.items() if key not in log_settings}
            known = self._open_queues.get(name)
            if known is not None and not known.closed:
                try:
                    self._check_same_queue(known, given, log_settings)
                    self._implicit.discard(name)
                    return known
                except InvalidArgument:
                    if name not in self._implicit or any(
                        other.log is known.log for other in self._open_queues.values() if other is not known
                    ):
                        raise
                # Only the store had opened it, as the dead letter queue of another: open it again with these settings.
                known.close()
                self._open_logs.pop(known.log.name).close()
            self._implicit.discard(name)
            folder = self.path / JOURNALS / escape_name(name, "queue name")
            kept, known_log = self._folders.queue_meta(name, folder)
            if self.read_only and kept is None:
                raise NotFound(f"there is no queue {name!r} in {str(self.path)!r}; there are: {few(self.queues())}")
            before = self._folders.queue_defaults(folder) if kept is not None else frozenset(defaults)
            unchosen = before - given.keys()
            replaced = {key: value for key, value in defaults.items() if key in unchosen}
            chosen = {**(kept or {}), **replaced, **given}
            wanted = QueueSettings.of(name, chosen)
            if kept is not None and wanted.log != kept.get("log", name):
                raise InvalidArgument(
                    f"the queue {name!r} is a view of the log {kept.get('log', name)!r}: give it another name here"
                )
            log = self._log_of(wanted, log_settings)
            if kept is None and not self.read_only:  # before its journal: a crash between leaves an empty queue
                self._folders.keep_queue_meta(name, folder, chosen, log.id, by_default=unchosen)
                kept, known_log = chosen, log.id
            journal = self._open_log(
                name,
                self.path / JOURNALS,
                LogSettings(flush=log.settings.flush, roll=_JOURNAL_ROLL, max_message=_JOURNAL_RECORD),
            )
            try:
                queue = Queue(
                    name,
                    wanted,
                    log,
                    journal,
                    self._open_state(),
                    clock=self._clock,
                    wake=partial(self._wake, name),
                    open_queue=self.queue,
                    find_queue=self._find_queue,
                    find_forwarder=self._find_forwarder,
                    metrics=self.metrics,
                    log_is_new=self._is_new_log(name, log, known_log),
                    read_only=self.read_only,
                    is_paused=lambda: self._folders.is_paused(folder),
                    keep_paused=lambda paused: self._keep_paused(name, paused),
                    free_space=self._reserve.release_last,
                )
            except BaseException:
                journal.detach_after_fork()  # nothing was confirmed: its contents need not be written
                raise
            if (chosen != kept or unchosen != before or known_log != log.id) and not self.read_only:
                # After the queue, which has recorded by now if its log is another one.
                self._folders.keep_queue_meta(name, folder, chosen, log.id, by_default=unchosen)
            self._open_queues[name] = queue
            if not self.read_only:
                self._reserve.want()
            self._transactions.include_queue(queue)
            dead = wanted.dead_letter
            is_elsewhere = dead is None or is_forwarded(dead) or dead in self._open_queues
            if dead is not None and not (is_elsewhere or self.read_only) and self._find_queue(dead):
                self._implicit.add(dead)  # it may have a redrive to finish
            self._wake(name)
            return queue

    def chosen_for(self, name: str) -> dict[str, Any] | None:
        """Return the chosen settings of a queue, by name; None if there is no such queue."""
        with self._guard:
            folder = self._folders.journal(name)
            kept, _ = self._folders.queue_meta(name, folder)
            if kept is None:
                return None
            unchosen = self._folders.queue_defaults(folder)
            return {key: value for key, value in kept.items() if key not in unchosen}

    def is_programs(self, name: str) -> bool:
        """Return whether a queue of that name exists and was created by a program, not by a server with defaults."""
        with self._guard:
            folder = self._folders.journal(name)
            kept, _ = self._folders.queue_meta(name, folder)
            return kept is not None and not self._folders.queue_defaults(folder)

    def find_queue(self, name: str) -> Queue | None:
        """Return the queue of that name, opened if it is not open; None if there is none.

        A later `queue` call with other settings is allowed, and closes the queue returned here: call this each time.
        """
        check_name(name, "queue name")
        with self._guard:
            self._check_open()
            self._finish_deleting()
            known = self._open_queues.get(name)
            queue = self._find_queue(name)
            if queue is not None and queue is not known:
                self._implicit.add(name)
            return queue

    def delete_queue(self, name: str) -> None:
        """Delete a queue with all its data, and its log if that has its name and no other queue.

        After a crash the queue is as it was or, once the store is open again, completely deleted. Callers that hold
        deliveries of it, or wait for some, get `Closed`.
        """
        check_name(name, "queue name")
        queue = self._open_queues.get(name)
        if queue is not None and queue.queue_state.moving and not (queue.closed or self.read_only):
            # Move pending dead letters to their queue first. Without the guard: a forwarder may need the store.
            # Without waiting: a forwarder that is running may wait for this thread.
            queue.carry(wait=False)
        with self._guard:
            self._check_open()
            if self.read_only:
                raise ReadOnly("only the process that owns the store can delete a queue")
            self._finish_deleting()
            folder = self._folders.journal(name)
            settings, log_id = self._folders.queue_meta(name, folder, lenient=True)
            if settings is None:
                raise NotFound(f"there is no queue {name!r} in {str(self.path)!r}; there are: {few(self.queues())}")
            queue, log_name = self._open_queues.get(name), str(settings.get("log", name))
            with_log = (
                log_name == name
                and not any(other.settings.log == name for other in self._open_queues.values() if other is not queue)
                and self._deleting.is_only_view(
                    name, name, log_id or self._folders.id_of(self._folders.log(name)) or b""
                )
            )
            self._deleting.decide(name, log_name, self._folders.id_of(folder), with_log=with_log)
            if queue is not None:
                queue.close_discarding(f"the queue {name!r} was deleted")
                del self._open_queues[name]
            self._implicit.discard(name)
            if with_log and (log := self._open_logs.pop(name, None)) is not None:
                log.close_discarding()
            self._deleting.finish()

    def forward(self, prefix: str, forwarder: Forwarder) -> None:
        """Send the dead letters of queues whose `dead_letter` begins with `prefix`, as `amqp-dlx:`, to this function.

        No queue can have such a name. Until a forwarder is set for the prefix, the dead letters wait in their queues.
        """
        with self._guard:
            self._check_open()
            self._forwarders[check_prefix(prefix)] = forwarder
        self._wake()

    def tick(self) -> None:
        """Do the background work that is due, for stores that were opened without `background`."""
        for one in self._ticking():
            one.tick()
        for log in list(self._unsynced):
            if log.sync_if_due() is None:
                del self._unsynced[log]

    def adopt(self) -> int:
        """Adopt the batches that other processes committed; return how many. The background does this automatically.

        Raises `Locked` while another process commits one.
        """
        self._check_open()
        if self.read_only:
            raise ReadOnly("only the process that owns the store can adopt batches: this store was opened read-only")
        return self._adopting.adopt()

    def close(self) -> None:
        """Write and sync accepted messages, and release the lock; idempotent. Waits for a running transaction.

        If something cannot be written (a full disk) this raises. The logs, queues and tables that could not be closed
        stay open, and so does the store: call it again.

        After an interrupt (Ctrl-C) the store accepts no other calls. Call this again to continue; the end of the
        process does so, too.
        """
        if not self._closed:
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
        with self._guard:
            if self._closed:
                return
            self._closing = True
        # Without the guard: the ticker may be waiting for it to move a message to a queue that is not open yet.
        self._stop_tickers(patience)
        self._tables.stop_migrating()
        with self._guard:
            problem = self._tables.close()
            self._transactions.close()
            for one in self._snapshot():  # queues first: closing a queue writes to its log
                if isinstance(one, Log) and self._open_queues:
                    break
                try:
                    one.close()
                except HoldfastError as error:  # the others are still closed
                    problem = problem or error
                    logger.error("close failed: name=%s error=%s", one.name, error, extra={"log": one.name})
                if one.closed:
                    (self._open_logs if isinstance(one, Log) else self._open_queues).pop(one.name)
            if self._open_queues or self._open_logs or self._tables.open_tables:
                self._closing = False
                self._start_tickers()
                self._wake()  # open logs and queues still need the background thread
            else:
                self._release()
            if problem is not None:
                raise problem

    def _release(self) -> None:
        """Close the state and release the lock, after logs, queues and tables are closed."""
        if self._state is not None:
            self._state.close()
        self._reserve.close()
        if self._lock is not None:
            self._lock.release()
        self._closed = True
        forget(self)

    def _abort_opening(self) -> None:
        """Close what was opened so far, so that the store can be opened again."""
        self._closing = self._closed = True
        forget(self)
        self._stop_tickers()
        for one in self._snapshot():
            one.detach_after_fork()
        self._transactions.detach_after_fork()
        if self._state is not None:
            self._state.close()

    def close_at_exit(self) -> None:
        """Close the store at the end of the process, without waiting forever for another thread.

        Waits at most 10 seconds for each background thread, and for a transaction. If the transaction does not end,
        accepted messages are written and synced, and the store stays open.
        """
        if self._closed:
            return
        self._stop_tickers(_EXIT_PATIENCE_S)
        for queue in self.open_queues():
            queue.leave_waiters_asleep()
        if self._transactions.is_idle_within(_EXIT_PATIENCE_S):
            self._close_alone(_EXIT_PATIENCE_S)
            return
        for queue in self.open_queues():
            queue.hand_over().sync()
        for log in [*self.open_logs(), *self._tables.logs()]:
            log.sync()

    def close_discarding(self) -> None:
        """Close everything before the folder is deleted: write no checkpoints, and ignore failed writes of logs."""
        with self._guard:
            if self._closed:
                return
            self._closing = True
        self._stop_tickers()
        self._tables.stop_migrating()
        with self._guard:
            self._tables.close()
            self._transactions.close()
            for queue in self._open_queues.values():
                queue.close_discarding(f"the store {str(self.path)!r} was deleted")
            for log in self._open_logs.values():
                log.close_discarding()
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        self.close()

    def detach_after_fork(self) -> None:
        """Mark the store as closed. Called in a forked child: the store, its lock and its thread are the parent's."""
        self._guard = threading.RLock()
        for one in self._snapshot():
            one.detach_after_fork()
        self._tables.detach_after_fork()
        self._transactions.detach_after_fork()
        self._open_queues.clear()
        self._open_logs.clear()
        self._closing = self._closed = True

    def _ticking(self) -> list[BackgroundTask]:
        ours: list[BackgroundTask] = [self._adopting, self._retiring, self._reserve, *self._tables.migrating()]
        return [*self._snapshot(), *self._tables.logs(), *([] if self.read_only else ours)]

    @contextlib.contextmanager
    def _open_to_adopt(self, manifest: Manifest) -> Iterator[Log]:
        """Yield the log that a batch is for; open it if it is not open."""
        with self._guard:
            self._check_open()
            queue = manifest.queue
            if queue is not None and queue not in self._open_queues and self._find_queue(queue) is None:
                self.queue(queue)
                self._implicit.add(queue)
            log = self._open_logs.get(manifest.log)
            if log is None:
                log = self._open_log(manifest.log, self.path / LOGS, LogSettings())
                try:
                    yield log
                finally:
                    log.close()
                return
        yield log

    def _open_log(self, name: str, root: Path, settings: LogSettings) -> Log:
        folder = root / escape_name(name, "log name")
        with translate_os_errors("opening the log in", folder):
            log_id = self._folders.identify(name, folder)
        log = Log(
            name,
            folder,
            log_id,
            settings,
            files=self._files,
            clock=self._clock,
            lock=self.path / LOCK,
            read_only=self.read_only,
            wake=partial(self._wake, name if root.name in (LOGS, JOURNALS) else None),
            queue_at=partial(self._folders.queue_at, name),
            sync_later=self._wake_syncer if self._background else self._sync_at_tick,
        )
        log.disk_space = self._reserve.for_journals() if root.name == JOURNALS else self._reserve.for_logs()
        if not self.read_only and root.name == LOGS:
            self._adopting.resume(log)
        return log

    def _is_new_log(self, queue: str, log: Log, known: bytes | None) -> bool:
        """Return whether the queue's old log was deleted, and this is a new one of that name.

        False if the queue keeps a position in this log: then only the id in `queue.json` is wrong.
        """
        return known is not None and known != log.id and log.positions.get(place_of(queue)) is None

    def _log_of(self, settings: QueueSettings, log_settings: dict[str, Any]) -> Log:
        known = self._open_logs.get(settings.log)
        if known is not None:
            self._check_same(known, log_settings)
            return known
        defaults = {"flush": Flush.sync(), "retention": Retention(max_age=settings.history)}
        check_name(settings.log, "log name")
        return self._log(settings.log, cast("LogOptions", {**defaults, **log_settings}))

    def _check_same_queue(self, queue: Queue, given: dict[str, Any], log_settings: dict[str, Any]) -> None:
        self._check_same(queue.log, log_settings)
        if given and QueueSettings.of(queue.name, {**asdict_shallow(queue.settings), **given}) != queue.settings:
            raise InvalidArgument(
                f"the queue {queue.name!r} is open with other settings: close the store to change them"
            )

    def _check_same(self, log: Log, log_settings: dict[str, Any]) -> None:
        for name, value in log_settings.items():
            if getattr(log.settings, name) != value:
                raise InvalidArgument(
                    f"the log {log.name!r} is open with another {name}: omit {name}, or close the store to change it"
                )

    def _keep_paused(self, name: str, paused: bool) -> None:
        with self._guard:
            self._check_open()
            if (queue := self._open_queues.get(name)) is None or queue.closed:  # a new queue may have its folder by now
                raise Closed(f"the queue {name!r} is closed: open it again")
            folder = self._folders.journal(name)
            chosen, _ = self._folders.queue_meta(name, folder)
            self._folders.keep_queue_meta(name, folder, chosen or {}, queue.log.id, paused=paused)

    def _find_queue(self, name: str) -> Queue | None:
        """Return a queue, opened if it is not open; None if there is none."""
        with self._guard:
            known = self._open_queues.get(name)
            if known is not None and not known.closed:
                return known
            return self.queue(name) if self._folders.has_queue(name) else None

    def _shortenable_queues(self) -> list[Queue]:
        """Return the open queues on logs whose queues all have `shorten_history`."""
        queues = self.open_queues()
        whole = {queue.log for queue in queues if not queue.settings.shorten_history}
        return [queue for queue in queues if queue.log not in whole]

    @property
    def disk_full(self) -> bool:
        """Return whether the disk is full: then acks and leases are written, and puts and appends are refused."""
        return self._reserve.released

    def _find_forwarder(self, target: str) -> Forwarder | None:
        return next((one for prefix, one in self._forwarders.items() if target.startswith(prefix)), None)

    def _open_state(self) -> State:
        if self._state is None:
            self._state = open_state(
                self._files, self.path / STATE, read_only=self.read_only, free_space=self._reserve.release_last
            )
        return self._state

    def _finish_deleting(self) -> None:
        if self._deleting.unfinished and not self.read_only:
            self._deleting.finish(wait=True)

    def _named(self, name: str) -> list[BackgroundTask]:
        found: tuple[BackgroundTask | None, ...] = (self._open_queues.get(name), self._open_logs.get(name))
        return [one for one in found if one is not None]

    def _wake_ticker(self, name: str | BackgroundTask | None = None) -> None:
        self._ticker.wake(name)

    def _wake_syncer(self, log: Log) -> None:
        self._syncer.wake(log)

    def _sync_at_tick(self, log: Log) -> None:
        self._unsynced[log] = None

    def _start_tickers(self) -> None:
        self._ticker = BackgroundWorker(self._ticking, self._named)
        # A separate thread: the ticker writes appended records to the system every 20 ms, and must not wait for syncs.
        self._syncer = BackgroundWorker(tuple, ask=Log.sync_if_due, thread_name="holdfast-syncer")

    def _stop_tickers(self, patience: float | None = None) -> None:
        self._ticker.stop(patience)
        self._syncer.stop(patience)

    def _check_open(self) -> None:
        if self._closing:
            raise Closed(f"the store {str(self.path)!r} is closed: open it again")
