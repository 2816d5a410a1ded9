"""The queues of a store: opening with saved settings, finding, pausing and deleting them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from holdfast.base.errors import Closed, HoldfastError, InvalidArgument, NotFound, ReadOnly
from holdfast.base.names import check_name
from holdfast.log.consumer_offsets import place_of
from holdfast.log.log import Log, close_discarding
from holdfast.log.policy import Flush, Retention, Roll
from holdfast.log.settings import LogSettings
from holdfast.log_registry import LogRegistry, check_same_settings, close_each
from holdfast.queue import Queue, QueueSettings
from holdfast.queue.dead_letter_forwarder import Forwarder, check_prefix, is_forwarded
from holdfast.queue.settings import asdict_shallow
from holdfast.queue_deletion import QueueDeletion
from holdfast.state import State
from holdfast.store_context import StoreContext
from holdfast.store_layout import JOURNALS, few
from holdfast.typed_options import QueueOptions

__all__ = ["QueueRegistry"]

_JOURNAL_RECORD = 256 << 20
JOURNAL_ROLL = Roll.any(Roll.size(64 << 20), Roll.time(86_400))


@dataclass(frozen=True, slots=True)
class _Saved:
    """What `queue.json` says of a queue: its settings, its log's id, and which settings a server's defaults gave."""

    settings: dict[str, Any]
    log_id: bytes | None
    by_default: frozenset[str]


class QueueRegistry:
    """Opens, finds and deletes queues, and keeps the open ones by name. Methods take the store's guard."""

    def __init__(
        self,
        shared: StoreContext,
        logs: LogRegistry,
        deletion: QueueDeletion,
        *,
        open_state: Callable[[], State],
        on_open: Callable[[Queue], None],
    ) -> None:
        self._shared = shared
        self._guard = shared.guard
        self._layout = shared.layout
        self._logs = logs
        self._deletion = deletion
        self.open_state = open_state
        self._on_open = on_open
        self.by_name: dict[str, Queue] = {}
        self._implicit: set[str] = set()
        """Queues that were opened without a call of `queue`, such as the dead letter queues of others."""
        self._forwarders: dict[str, Forwarder] = {}

    def queue(self, name: str, **settings: Unpack[QueueOptions]) -> Queue:
        """Return the queue of that name, created if there is none."""
        return self.queue_with_defaults(name, {}, settings)

    def queue_with_defaults(self, name: str, defaults: Mapping[str, Any], settings: QueueOptions) -> Queue:
        """As `queue`, for a server with its own defaults.

        The defaults apply to a queue that this call creates, and replace earlier defaults of a server. They never
        replace a chosen setting, and a queue that a program created keeps the library's defaults.
        """
        check_name(name, "queue name")
        with self._guard.lock:
            self._guard.check_open()
            self._deletion.finish_if_any()
            log_settings = {key: value for key, value in settings.items() if key in LogSettings.__dataclass_fields__}
            given = {key: value for key, value in settings.items() if key not in log_settings}
            known = self._reuse(name, given, log_settings)
            if known is not None:
                return known
            queue = self._open(name, defaults, given, log_settings)
            self.by_name[name] = queue
            if not self._shared.read_only:
                self._shared.reserve.want()
            self._on_open(queue)
            self._open_dead_letters(queue.settings.dead_letter)
            self._shared.background.wake(name)
            return queue

    def _reuse(self, name: str, given: dict[str, Any], log_settings: dict[str, Any]) -> Queue | None:
        """Return the open queue if it has these settings.

        One that only the store had opened, as the dead letter queue of another, is closed if it has others.
        """
        known = self.by_name.get(name)
        if known is not None and not known.closed:
            try:
                _check_same_queue(known, given, log_settings)
                self._implicit.discard(name)
                return known
            except InvalidArgument:
                if name not in self._implicit or any(
                    other.log is known.log for other in self.by_name.values() if other is not known
                ):
                    raise
            known.close()
            self._logs.by_name.pop(known.log.name).close()
        self._implicit.discard(name)
        return None

    def _open(
        self, name: str, defaults: Mapping[str, Any], given: dict[str, Any], log_settings: dict[str, Any]
    ) -> Queue:
        """Open or create a queue, and save its settings if they changed."""
        folder = self._layout.journal(name)
        saved = self._saved(name, folder)
        before = saved.by_default if saved is not None else frozenset(defaults)
        by_default = before - given.keys()
        replaced = {key: value for key, value in defaults.items() if key in by_default}
        chosen = {**(saved.settings if saved is not None else {}), **replaced, **given}
        wanted = QueueSettings.of(name, chosen)
        if saved is not None and wanted.log != saved.settings.get("log", name):
            log_name = saved.settings.get("log", name)
            raise InvalidArgument(f"the queue {name!r} is a view of the log {log_name!r}: give it another name here")
        log = self._log_of(wanted, log_settings)
        now = _Saved(chosen, log.id, by_default)
        if saved is None and not self._shared.read_only:  # before its journal: a crash between leaves an empty queue
            self._save(name, folder, now)
            saved = now
        queue = self._make(name, folder, wanted, log, None if saved is None else saved.log_id)
        if saved != now and not self._shared.read_only:
            self._save(name, folder, now)  # after the queue, which has recorded by now if its log is another one
        return queue

    def _make(self, name: str, folder: Path, settings: QueueSettings, log: Log, known_log: bytes | None) -> Queue:
        """Return the queue, recovered from its journal. `known_log` is the id of the log that it read so far."""
        journal = self._logs.open(
            name,
            self._shared.path / JOURNALS,
            LogSettings(flush=log.settings.flush, roll=JOURNAL_ROLL, max_message=_JOURNAL_RECORD),
        )
        # If the queue keeps a position in this log, it is not new: then only the id in `queue.json` is wrong.
        log_is_new = known_log is not None and known_log != log.id and log.positions.get(place_of(name)) is None
        try:
            return Queue(
                name,
                settings,
                log,
                journal,
                self.open_state(),
                clock=self._shared.clock,
                wake=partial(self._shared.background.wake, name),
                open_queue=self.queue,
                find_queue=self.find_existing,
                find_forwarder=self._find_forwarder,
                metrics=self._shared.metrics,
                log_is_new=log_is_new,
                read_only=self._shared.read_only,
                is_paused=lambda: self._layout.is_paused(folder),
                keep_paused=lambda paused: self._keep_paused(name, paused),
                free_space=self._shared.reserve.release_last,
            )
        except BaseException:
            journal.appender.detach_after_fork()  # nothing was confirmed: its contents need not be written
            raise

    def _saved(self, name: str, folder: Path) -> _Saved | None:
        """Return what is saved of a queue; None if there is no such queue."""
        settings, log_id = self._layout.queue_meta(name, folder)
        if settings is None:
            if self._shared.read_only:
                raise self._not_found(name)
            return None
        return _Saved(settings, log_id, self._layout.queue_defaults(folder))

    def _save(self, name: str, folder: Path, saved: _Saved) -> None:
        self._layout.keep_queue_meta(name, folder, saved.settings, saved.log_id or b"", by_default=saved.by_default)

    def _log_of(self, settings: QueueSettings, log_settings: dict[str, Any]) -> Log:
        known = self._logs.by_name.get(settings.log)
        if known is not None:
            check_same_settings(known, log_settings)
            return known
        defaults = {"flush": Flush.sync(), "retention": Retention(max_age=settings.history)}
        check_name(settings.log, "log name")
        return self._logs.log_of_queue(settings.log, {**defaults, **log_settings})

    def _open_dead_letters(self, name: str | None) -> None:
        """Open the dead letter queue of a queue, if there is one: it may have a redrive to finish."""
        if name is None or is_forwarded(name) or name in self.by_name or self._shared.read_only:
            return
        if self.find_existing(name) is not None:
            self._implicit.add(name)

    def find(self, name: str) -> Queue | None:
        """Return the queue of that name, opened if it is not open; None if there is none; see `Store.find_queue`."""
        check_name(name, "queue name")
        with self._guard.lock:
            self._guard.check_open()
            self._deletion.finish_if_any()
            known = self.by_name.get(name)
            queue = self.find_existing(name)
            if queue is not None and queue is not known:
                self._implicit.add(name)
            return queue

    def find_existing(self, name: str) -> Queue | None:
        """Return a queue, opened if it is not open; None if there is none. Later calls must give its settings."""
        with self._guard.lock:
            known = self.by_name.get(name)
            if known is not None and not known.closed:
                return known
            return self.queue(name) if self._layout.has_queue(name) else None

    def ensure(self, name: str) -> None:
        """Open a queue, created if there is none; later calls may give other settings."""
        with self._guard.lock:
            if name not in self.by_name and self.find_existing(name) is None:
                self.queue(name)
                self._implicit.add(name)

    def chosen_for(self, name: str) -> dict[str, Any] | None:
        """Return the chosen settings of a queue, without a server's defaults; None if there is no such queue."""
        with self._guard.lock:
            settings, by_default = self._settings_and_defaults(name)
            return None if settings is None else {key: settings[key] for key in settings if key not in by_default}

    def is_programs(self, name: str) -> bool:
        """Return whether a queue of that name exists and was created by a program, not by a server with defaults."""
        with self._guard.lock:
            settings, by_default = self._settings_and_defaults(name)
            return settings is not None and not by_default

    def _settings_and_defaults(self, name: str) -> tuple[dict[str, Any] | None, frozenset[str]]:
        folder = self._layout.journal(name)
        settings, _ = self._layout.queue_meta(name, folder)
        return settings, frozenset() if settings is None else self._layout.queue_defaults(folder)

    def log_of(self, name: str) -> str:
        """Return the name of the log that a queue is a view of."""
        settings, _ = self._layout.queue_meta(name, self._layout.journal(name), lenient=True)
        return str((settings or {}).get("log", name))

    def journal(self, name: str) -> Log:
        """Return the journal of a queue, of a store that is open for reading only."""
        if not self._shared.read_only:
            raise InvalidArgument(
                f"the journal of the queue {name!r} can only be read from a store that was opened with read_only=True"
            )
        if self._layout.queue_meta(name, self._layout.journal(name))[0] is None:
            raise self._not_found(name)
        return self._logs.open(name, self._shared.path / JOURNALS, LogSettings())

    def _not_found(self, name: str) -> NotFound:
        there = few(self._layout.queues())
        return NotFound(f"there is no queue {name!r} in {str(self._shared.path)!r}; there are: {there}")

    def _keep_paused(self, name: str, paused: bool) -> None:
        with self._guard.lock:
            self._guard.check_open()
            if (queue := self.by_name.get(name)) is None or queue.closed:  # a new queue may have its folder by now
                raise Closed(f"the queue {name!r} is closed: open it again")
            folder = self._layout.journal(name)
            chosen, _ = self._layout.queue_meta(name, folder)
            self._layout.keep_queue_meta(name, folder, chosen or {}, queue.log.id, paused=paused)

    def delete(self, name: str) -> None:
        """Delete a queue with all its data, and its log if that has its name and no other queue."""
        check_name(name, "queue name")
        queue = self.by_name.get(name)
        if queue is not None and queue.transfers.is_moving and not (queue.closed or self._shared.read_only):
            # Move pending dead letters to their queue first. Without the guard: a forwarder may need the store.
            # Without waiting: a forwarder that is running may wait for this thread.
            queue.transfers.carry(wait=False)
        with self._guard.lock:
            self._guard.check_open()
            if self._shared.read_only:
                raise ReadOnly("only the process that owns the store can delete a queue")
            self._deletion.finish_if_any()
            folder = self._layout.journal(name)
            settings, log_id = self._layout.queue_meta(name, folder, lenient=True)
            if settings is None:
                raise self._not_found(name)
            queue, log_name = self.by_name.get(name), str(settings.get("log", name))
            with_log = log_name == name and self._is_only_queue(name, log_id)
            self._deletion.decide(name, log_name, self._layout.id_of(folder), with_log=with_log)
            if queue is not None:
                queue.ending.close_discarding(f"the queue {name!r} was deleted")
                del self.by_name[name]
            self._implicit.discard(name)
            if with_log and (log := self._logs.by_name.pop(name, None)) is not None:
                close_discarding(log)
            self._deletion.finish()

    def _is_only_queue(self, name: str, log_id: bytes | None) -> bool:
        """Return whether no other queue is a view of the log of this name."""
        if any(other.settings.log == name for other in self.by_name.values() if other.name != name):
            return False
        return self._deletion.is_only_view(name, name, log_id or self._layout.id_of(self._layout.log(name)) or b"")

    def forward(self, prefix: str, forwarder: Forwarder) -> None:
        """Send the dead letters of queues whose `dead_letter` begins with `prefix` to this function."""
        with self._guard.lock:
            self._guard.check_open()
            self._forwarders[check_prefix(prefix)] = forwarder
        self._shared.background.wake()

    def _find_forwarder(self, target: str) -> Forwarder | None:
        return next((one for prefix, one in self._forwarders.items() if target.startswith(prefix)), None)

    def shortenable(self) -> list[Queue]:
        """Return the open queues on logs whose queues all have `shorten_history`."""
        queues = list(self.by_name.values())
        whole = {queue.log for queue in queues if not queue.settings.shorten_history}
        return [queue for queue in queues if queue.log not in whole]

    def close_all(self) -> HoldfastError | None:
        """Close every queue. Those that cannot be closed stay open; return the first error."""
        return close_each(self.by_name)

    def close_discarding(self, reason: str) -> None:
        """Close every queue before the store's folder is deleted, without checkpoints."""
        for queue in self.by_name.values():
            queue.ending.close_discarding(reason)

    def detach_after_fork(self) -> None:
        """Disown the queues in a forked child."""
        for queue in self.by_name.values():
            queue.ending.detach_after_fork()


def _check_same_queue(queue: Queue, given: dict[str, Any], log_settings: dict[str, Any]) -> None:
    check_same_settings(queue.log, log_settings)
    if given and QueueSettings.of(queue.name, {**asdict_shallow(queue.settings), **given}) != queue.settings:
        raise InvalidArgument(f"the queue {queue.name!r} is open with other settings: close the store to change them")
