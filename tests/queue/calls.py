"""A call in a thread of its own: what it gave, or raised, is had when it is joined. No test waits for ever."""

import threading
import time
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from holdfast import Delivery, Flush, Queue
from tests.queue.internals import waiters_of

T = TypeVar("T")

ALL_MODES = [Flush.sync(), Flush.batch(), Flush.async_()]
PATIENCE_S = 120.0
"""How long a test waits for what should happen at once: long enough for a busy machine."""


class Call(Generic[T]):
    """A function that runs beside the test."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._given: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def result(self) -> T:
        """What it gave; raises what it raised."""
        self._thread.join(PATIENCE_S)
        assert not self.runs, "it still waits"
        if self._error is not None:
            raise self._error
        return self._given[0]

    @property
    def runs(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._given.append(self._function())
        except BaseException as error:
            self._error = error


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread or process does."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.002)


def until_waiting(queue: Queue, count: int = 1) -> None:
    """Wait until so many calls wait for messages."""
    until(lambda: len(waiters_of(queue).line) == count)


def got(queue: Queue, **options: Any) -> Delivery:
    """The next message, which must be there."""
    message = queue.get(**options)
    assert message is not None
    return message
