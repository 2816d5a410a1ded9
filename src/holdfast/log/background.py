"""Background thread that calls `tick` of each log and queue of a store when it is due; it sleeps while none is."""

import contextlib
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

__all__ = ["BackgroundTask", "BackgroundWorker"]

logger = logging.getLogger("holdfast.log")
_AFTER_FAILURE_S = 1.0
_FEW = 64


class BackgroundTask(Protocol):
    """An object with background work, such as a log or a queue."""

    name: str

    @property
    def fields(self) -> dict[str, str]:
        """The `extra` of log messages about it."""
        ...

    def tick(self) -> float | None:
        """Do the work that is due; return in how many seconds to call again, None if there is no more work."""
        ...


def _ask_tick(one: BackgroundTask) -> float | None:
    return one.tick()


class BackgroundWorker:
    """Owns a thread that calls `tick` of each log and queue when it is due, or after `wake`.

    Objects without work are not called: a busy queue among thousands of idle ones costs as much as alone.
    """

    def __init__(
        self,
        all_of_them: Callable[[], Iterable[BackgroundTask]],
        named: Callable[[str], Iterable[BackgroundTask]] | None = None,
        *,
        ask: Callable[[Any], float | None] = _ask_tick,
        thread_name: str = "holdfast-ticker",
    ) -> None:
        """Make a worker. The thread starts with the first `wake`.

        `named` returns the objects of one name; without it, each wake is for all. `ask` calls one object.
        """
        self._ask = ask
        self._thread_name = thread_name
        self._all = all_of_them
        self._named = named
        # A bare lock that is released to wake the thread: an Event's own lock would stay taken forever if a signal's
        # handler raised inside `set`.
        self._bell = threading.Lock()
        self._bell.acquire()
        self._rung: deque[str | BackgroundTask | None] = deque([None])
        """Names and objects of the `wake` calls since the last round; None means all, as in the first round."""
        self._agenda = _Agenda()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def wake(self, name: str | BackgroundTask | None = None) -> None:
        """Call the objects of this name, this one object, or all, as soon as possible.

        The thread is created when it is first needed: a store under `sync` has none.
        """
        self._rung.append(name)  # before the thread is woken: then it finds the name
        self._ring()
        if self._thread is None:
            self._start()

    def stop(self, patience: float | None = None) -> None:
        """End the thread and wait for it; with `patience`, at most so many seconds."""
        with self._starting:
            self._stopping = True
        self._ring()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(patience)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None and not self._stopping:
                thread = threading.Thread(target=self._run, name=self._thread_name, daemon=True)
                try:
                    thread.start()
                except RuntimeError:  # the interpreter is shutting down, and starts no more threads
                    self._stopping = True
                    return
                self._thread = thread

    def _run(self) -> None:
        while not self._stopping:
            self._bell.acquire(blocking=False)
            # Cleared before the calls: a wake during the round is not missed.
            for number, one in enumerate(self._round()):
                if not number % _FEW:
                    time.sleep(0)  # release the interpreter lock: threads that sync all the time would wait for it
                self._agenda.note(one, self._tick(one))
            due = self._agenda.due_in()
            self._bell.acquire(timeout=-1 if due is None else max(0.0, min(due, threading.TIMEOUT_MAX)))

    def _round(self) -> Iterable[BackgroundTask]:
        """Return the objects to call now."""
        rung: dict[str | BackgroundTask | None, None] = {}
        while self._rung:
            rung[self._rung.popleft()] = None
        names = [one for one in rung if isinstance(one, str)]
        if None in rung or (names and self._named is None):
            self._agenda = _Agenda()
            found = dict.fromkeys(self._all())
        else:
            found = dict.fromkeys(self._agenda.take())
            for name in names:
                if self._named is not None:
                    found.update(dict.fromkeys(self._named(name)))
        found.update({one: None for one in rung if one is not None and not isinstance(one, str)})
        return found

    def _tick(self, one: BackgroundTask) -> float | None:
        try:
            return self._ask(one)
        except Exception:  # the other objects are still called
            logger.exception("background task failed, will retry: name=%s", one.name, extra=one.fields)
            return _AFTER_FAILURE_S

    def _ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # the lock is released already
            self._bell.release()


class _Agenda:
    """The times of the next calls. For one thread."""

    def __init__(self) -> None:
        self._when: dict[BackgroundTask, float] = {}
        self._heap: list[tuple[float, int, BackgroundTask]] = []
        """May contain outdated entries, up to about a half."""
        self._count = itertools.count()

    def note(self, one: BackgroundTask, delay: float | None) -> None:
        """Schedule a call in so many seconds; None for no call."""
        if delay is None:
            self._when.pop(one, None)
            return
        when = self._when[one] = time.monotonic() + delay
        heappush(self._heap, (when, next(self._count), one))
        if len(self._heap) > 2 * len(self._when) + _FEW:
            self._heap = [entry for entry in self._heap if self._counts(entry)]
            heapify(self._heap)

    def take(self) -> list[BackgroundTask]:
        """Remove and return the objects that are due."""
        now = time.monotonic()
        taken = []
        while self._heap and (self._heap[0][0] <= now or not self._counts(self._heap[0])):
            entry = heappop(self._heap)
            if self._counts(entry):
                del self._when[entry[2]]
                taken.append(entry[2])
        return taken

    def due_in(self) -> float | None:
        """Return the seconds until the first call; None if none is scheduled."""
        while self._heap and not self._counts(self._heap[0]):
            heappop(self._heap)
        return self._heap[0][0] - time.monotonic() if self._heap else None

    def _counts(self, entry: tuple[float, int, BackgroundTask]) -> bool:
        return self._when.get(entry[2]) == entry[0]
