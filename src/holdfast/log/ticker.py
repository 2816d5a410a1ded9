"""Who flushes when nobody calls? One thread for all logs of a store; it sleeps while nothing waits."""

import logging
import threading
from collections.abc import Callable, Iterable

from holdfast.log.log import Log

__all__ = ["Ticker"]

logger = logging.getLogger("holdfast.log")
_AFTER_FAILURE_S = 1.0


class Ticker:
    """Calls `tick` of each log when it is due."""

    def __init__(self, logs: Callable[[], Iterable[Log]]) -> None:
        self._logs = logs
        self._wanted = threading.Event()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def wake(self) -> None:
        """A log has something to flush. The thread is made when first needed: a store under `sync` has none."""
        self._wanted.set()
        if self._thread is None:
            with self._starting:
                if self._thread is None and not self._stopping:
                    thread = threading.Thread(target=self._run, name="holdfast-ticker", daemon=True)
                    thread.start()
                    self._thread = thread

    def stop(self) -> None:
        """End the thread and wait for it."""
        with self._starting:
            self._stopping = True
        self._wanted.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            self._wanted.clear()
            # Cleared before the logs are asked: a wake during the round is not missed.
            due = min((delay for log in self._logs() if (delay := _tick(log)) is not None), default=None)
            self._wanted.wait(due)


def _tick(log: Log) -> float | None:
    try:
        return log.tick()
    except Exception:  # whatever went wrong with one log, the others are still flushed
        logger.exception("the background work of %s failed", log.name, extra={"log": log.name})
        return _AFTER_FAILURE_S
