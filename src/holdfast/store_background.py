"""The background threads of a store: one calls what is due, one syncs logs; or `tick` does both."""

from collections.abc import Callable, Iterable

from holdfast.log.background import BackgroundTask, BackgroundWorker
from holdfast.log.log import Log

__all__ = ["StoreBackground"]


def _ask_sync(log: Log) -> float | None:
    return log.appender.sync_if_due()


class StoreBackground:
    """Owns the threads of a store, which start when they are first needed. If not `enabled`, there are none."""

    def __init__(
        self,
        tasks: Callable[[], Iterable[BackgroundTask]],
        named: Callable[[str], Iterable[BackgroundTask]],
        *,
        enabled: bool,
    ) -> None:
        """Make the threads for `tasks`; `named` returns those of one name."""
        self.enabled = enabled
        self._tasks = tasks
        self._named = named
        self._unsynced: dict[Log, None] = {}
        """If not `enabled`: logs that asked for a sync."""
        self.start()

    def start(self) -> None:
        """Make new threads, also after `stop`."""
        self._ticker = BackgroundWorker(self._tasks, self._named)
        # A separate thread: the ticker writes appended records to the system every 20 ms, and must not wait for syncs.
        self._syncer = BackgroundWorker(tuple, ask=_ask_sync, thread_name="holdfast-syncer")

    def stop(self, patience: float | None = None) -> None:
        """End the threads and wait for them; with `patience`, at most so many seconds for each."""
        self._ticker.stop(patience)
        self._syncer.stop(patience)

    def wake(self, name: str | BackgroundTask | None = None) -> None:
        """Call the logs and queues of this name, this one object, or all, as soon as possible."""
        if self.enabled:
            self._ticker.wake(name)

    def sync_later(self, log: Log) -> None:
        """Sync a log when its flush setting wants it."""
        if self.enabled:
            self._syncer.wake(log)
        else:
            self._unsynced[log] = None

    def tick(self) -> None:
        """Do all the work that is due now."""
        for task in self._tasks():
            task.tick()
        for log in list(self._unsynced):
            if log.appender.sync_if_due() is None:
                del self._unsynced[log]
