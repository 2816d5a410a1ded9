"""Who flushes when nobody calls? One thread for all logs and queues of a store; it sleeps while nothing waits."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Protocol

__all__ = ["Ticker", "Ticking"]

logger = logging.getLogger("holdfast.log")
_AFTER_FAILURE_S = 1.0


class Ticking(Protocol):
    """What has work to do when nobody calls."""

    name: str

    @property
    def fields(self) -> dict[str, str]:
        """What log messages about it carry in `extra`."""
        ...

    def tick(self) -> float | None:
        """Do what is due; say in how many seconds to come again, None if nothing waits."""
        ...


class Ticker:
    """Calls `tick` of each log and queue when it is due."""

    def __init__(self, all_of_them: Callable[[], Iterable[Ticking]]) -> None:
        self._all = all_of_them
        # A bare lock that is let go to wake the thread: an Event's own lock would stay taken for ever if a signal's
        # handler raised inside of `set`.
        self._bell = threading.Lock()
        self._bell.acquire()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def wake(self) -> None:
        """A log has something to flush. The thread is made when first needed: a store under `sync` has none."""
        self._ring()
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
        self._ring()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            self._bell.acquire(blocking=False)
            # Cleared before they are asked: a wake during the round is not missed.
            due = min((delay for one in self._all() if (delay := _tick(one)) is not None), default=None)
            self._bell.acquire(timeout=-1 if due is None else max(0.0, min(due, threading.TIMEOUT_MAX)))

    def _ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # it rings already
            self._bell.release()


def _tick(one: Ticking) -> float | None:
    try:
        return one.tick()
    except Exception:  # whatever went wrong with one, the others are still served
        logger.exception("the background work of %s failed", one.name, extra=one.fields)
        return _AFTER_FAILURE_S
