"""When is a message safe? After an fdatasync that one thread does for all who wait, while others go on publishing."""

import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial

from holdfast.base.errors import Closed, HoldfastError
from holdfast.log.log import Log

__all__ = ["Syncer", "Wait"]

logger = logging.getLogger("holdfast.broker")

Done = Callable[[HoldfastError | None], None]


class Wait:
    """Someone who waits for logs to be on disk."""

    __slots__ = ("done", "error", "left")

    def __init__(self, done: Done, left: int) -> None:
        self.done = done
        self.left = left
        self.error: HoldfastError | None = None


class Syncer:
    """The thread that makes logs durable. What is asked for while it works is done together in its next round.

    Locks: `_guard` for what is wanted; never held while the disk works. `done` is called by `post`, on the thread that
    it belongs to.
    """

    def __init__(self, post: Callable[[Callable[[], None]], None]) -> None:
        self._post = post
        self._guard = threading.Condition()
        self._wanted: dict[Log, list[Wait]] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="holdfast-syncer", daemon=True)
        self._thread.start()

    def request(self, logs: Iterable[Log], done: Done) -> None:
        """Call `done` when all that these logs have got is on disk, or with the error that keeps it from that."""
        logs = list(logs)
        wait = Wait(done, len(logs))
        with self._guard:
            for log in logs:
                self._wanted.setdefault(log, []).append(wait)
            self._guard.notify()

    def stop(self) -> None:
        """Finish what was asked for, and end."""
        with self._guard:
            self._stopping = True
            self._guard.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._guard:
                while not self._wanted and not self._stopping:
                    self._guard.wait()
                if not self._wanted:
                    return
                wanted, self._wanted = self._wanted, {}
            finished: list[Wait] = []
            for log, waits in wanted.items():
                error = _sync(log)
                for wait in waits:
                    wait.left -= 1
                    wait.error = wait.error or error
                    if not wait.left:
                        finished.append(wait)
            self._post(partial(_tell, finished))


def _tell(finished: list[Wait]) -> None:
    for wait in finished:
        wait.done(wait.error)


def _sync(log: Log) -> HoldfastError | None:
    try:
        log.sync()
    except Closed:
        return None  # it was deleted, and its messages with it: nobody waits for them any more
    except HoldfastError as error:
        logger.error("messages in %s are not safe: %s", log.name, error, extra={"log": log.name})
        return error
    return None
