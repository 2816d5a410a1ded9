"""Listing of a store's logs and queues, and of those that are open in this process."""

from pathlib import Path

from holdfast.backup.source import BackupSource
from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.base.names import escape_name
from holdfast.log.log import Log
from holdfast.log.settings import LogSettings
from holdfast.queue import Queue
from holdfast.queue.checkpoint_health import Failing
from holdfast.store_layout import JOURNALS, StoreLayout, few

__all__ = ["ListedStore"]


class ListedStore(BackupSource):
    """The part of a store that lists its content."""

    read_only: bool
    _folders: StoreLayout

    def _open_log(self, name: str, root: Path, settings: LogSettings) -> Log:
        raise NotImplementedError

    def journal(self, queue: str) -> Log:
        """Return the journal of a queue: the events of its messages (see `queue.events`).

        Raises `InvalidArgument` unless the store was opened with `read_only=True`.
        """
        self._check_open()
        if not self.read_only:
            raise InvalidArgument(
                f"the journal of the queue {queue!r} can only be read from a store that was opened with read_only=True"
            )
        folder = self.path / JOURNALS / escape_name(queue, "queue name")
        if self._folders.queue_meta(queue, folder)[0] is None:
            raise NotFound(f"there is no queue {queue!r} in {str(self.path)!r}; there are: {few(self.queues())}")
        return self._open_log(queue, self.path / JOURNALS, LogSettings())

    def log_of(self, queue: str) -> str:
        """Return the name of the log that a queue is a view of."""
        folder = self.path / JOURNALS / escape_name(queue, "queue name")
        settings, _ = self._folders.queue_meta(queue, folder, lenient=True)
        return str((settings or {}).get("log", queue))

    def queues(self) -> list[str]:
        """Return the names of all queues in the store, sorted."""
        self._check_open()
        return self._folders.queues()

    def logs(self) -> list[str]:
        """Return the names of all logs in the store, sorted."""
        self._check_open()
        return self._folders.logs()

    def open_queues(self) -> list[Queue]:
        """Return the queues that are open in this process."""
        return list(self._open_queues.values())

    def failing_checkpoints(self) -> dict[str, Failing]:
        """Return the open queues whose checkpoints fail: since when, and why. They still serve requests."""
        return {
            queue.name: failing for queue in self.open_queues() if (failing := queue.checkpoints.failing) is not None
        }

    def open_logs(self) -> list[Log]:
        """Return the logs that are open in this process."""
        return list(self._open_logs.values())

    def open_log(self, name: str) -> Log | None:
        """Return the log of that name if it is open in this process."""
        return self._open_logs.get(name)

    def _snapshot(self) -> list[Log | Queue]:
        """Return the open queues, then the open logs."""
        return [*self._open_queues.values(), *self._open_logs.values()]
