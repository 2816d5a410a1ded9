"""The logs of a store that are open in this process."""

import itertools
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from holdfast.base.errors import HoldfastError, InvalidArgument
from holdfast.base.files import translate_os_errors
from holdfast.base.names import check_name, escape_name
from holdfast.log.background import BackgroundTask
from holdfast.log.log import Log, close_discarding
from holdfast.log.settings import LogSettings
from holdfast.queue import Queue
from holdfast.store_context import StoreContext
from holdfast.store_layout import JOURNALS, LOCK, LOGS

__all__ = ["LogRegistry", "check_same_settings", "close_each"]

logger = logging.getLogger("holdfast.store")

T = TypeVar("T", Log, Queue)


class LogRegistry:
    """Opens logs, and keeps those of `logs/` open under their names. Its methods need the store's guard."""

    def __init__(
        self,
        shared: StoreContext,
        *,
        resume_adoption: Callable[[Log], None],
        retention: BackgroundTask,
        finish_deletions: Callable[[], None],
    ) -> None:
        self._shared = shared
        self._guard = shared.guard
        self._layout = shared.layout
        self._resume_adoption = resume_adoption
        self._retention = retention
        self._finish_deletions = finish_deletions
        self.by_name: dict[str, Log] = {}
        self._numbers = itertools.count(1)
        self.opened = 0
        """The number of the last opening of a log."""
        self.openings: dict[Path, int] | None = None
        """The last opening of the log in each folder, for a replica: a closed log has changed only if this has."""

    def log(self, name: str, settings: dict[str, Any]) -> Log:
        """Return the log of that name, opened if it is not, and created if there is none."""
        check_name(name, "log name")
        with self._guard.lock:
            self._guard.check_open()
            is_new = not self._shared.read_only and not self._shared.files.exists(self._layout.log(name))
            log = self.log_of_queue(name, settings)
            if is_new:
                self._layout.note_log(name)
            return log

    def log_of_queue(self, name: str, settings: dict[str, Any]) -> Log:
        """As `log`, for a log that a queue reads: its loss is noticed by the queue, and need not be noted."""
        with self._guard.lock:
            self._finish_deletions()
            known = self.by_name.get(name)
            wanted = LogSettings.of(settings)
            if known is not None:
                if settings and known.settings != wanted:
                    raise InvalidArgument(
                        f"the log {name!r} is open with other settings: close the store to change them"
                    )
                return known
            log = self.open(name, self._shared.path / LOGS, wanted)
            self.by_name[name] = log
            if wanted.retention is not None and not self._shared.read_only:
                self._shared.background.wake(self._retention)
            return log

    def open(self, name: str, root: Path, settings: LogSettings) -> Log:
        """Open the log of that name in a folder of the store, such as `journals`. The caller closes it."""
        folder = root / escape_name(name, "log name")
        self.opened = next(self._numbers)
        if self.openings is not None:
            self.openings[folder] = self.opened
        with translate_os_errors("opening the log in", folder):
            log_id = self._layout.identify(name, folder)
        log = Log(
            name,
            folder,
            log_id,
            settings,
            files=self._shared.files,
            clock=self._shared.clock,
            lock=self._shared.path / LOCK,
            read_only=self._shared.read_only,
            wake=partial(self._shared.background.wake, name if root.name in (LOGS, JOURNALS) else None),
            queue_at=partial(self._layout.queue_at, name),
            sync_later=self._shared.background.sync_later,
            gate=self._shared.gate,
            confirms=root.name == LOGS,
            parts=self._shared.parts,
            local_retention=(settings.local_retention or self._shared.local_retention) if root.name == LOGS else None,
        )
        reserve = self._shared.reserve
        log.appender.disk_space = reserve.for_journals() if root.name == JOURNALS else reserve.for_logs()
        if not self._shared.read_only and root.name == LOGS:
            log.schema.enforce()
            self._resume_adoption(log)
        return log

    def note_openings(self) -> dict[Path, int]:
        """Note from now on which logs are opened; the caller removes those that do not exist any more."""
        if self.openings is None:
            self.openings = {}
        return self.openings

    def close_all(self) -> HoldfastError | None:
        """Close every log. Those that cannot be closed stay open; return the first error."""
        return close_each(self.by_name)

    def close_discarding(self) -> None:
        """Close every log before the store's folder is deleted; failed writes are ignored."""
        for log in self.by_name.values():
            close_discarding(log)

    def detach_after_fork(self) -> None:
        """Disown the logs in a forked child."""
        for log in self.by_name.values():
            log.appender.detach_after_fork()


def close_each(by_name: dict[str, T]) -> HoldfastError | None:
    """Close these, and remove those that are closed; return the first error."""
    problem: HoldfastError | None = None
    for name, one in list(by_name.items()):
        try:
            one.close()
        except HoldfastError as error:  # the others are still closed
            problem = problem or error
            logger.error("close failed: name=%s error=%s", name, error, extra={"log": name})
        if one.closed:
            by_name.pop(name)
    return problem


def check_same_settings(log: Log, settings: dict[str, Any]) -> None:
    """Raise `InvalidArgument` if an open log has another value for one of these settings."""
    for name, value in settings.items():
        if getattr(log.settings, name) != value:
            raise InvalidArgument(
                f"the log {log.name!r} is open with another {name}: omit {name}, or close the store to change it"
            )
