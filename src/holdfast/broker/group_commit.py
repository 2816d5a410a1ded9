"""Group fdatasync for the broker: threads that sync logs for all waiting publishers together."""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial

from holdfast.base.errors import Closed, HoldfastError, StorageError, raised_by_handler
from holdfast.log.log import Log

__all__ = ["GroupCommitter", "Wait"]

logger = logging.getLogger("holdfast.broker")

Done = Callable[[HoldfastError | None], None]

_SEVERAL = 3
"""Requests after which a sync starts before the turn ends: a turn may read megabytes while the disk is idle."""
_THREADS = 2
_HEAVY_BYTES = 512 << 10
"""Bytes to write above which a second thread starts while the first one syncs."""
_QUICK_S = 0.005
_CAUTION_MIN_S, _CAUTION_MAX_S = 0.02, 1.0


class Wait:
    """A request to be called when some logs are on disk."""

    __slots__ = ("done", "error", "left", "logs")

    def __init__(self, logs: list[Log], done: Done) -> None:
        self.logs = logs
        self.done = done
        self.left = len(logs)
        self.error: HoldfastError | None = None


class GroupCommitter:
    """Makes logs durable. Requests that arrive while a thread works are served together in its next round.

    Large writes are an exception: writing a megabyte takes as long as syncing it. So a second thread writes meanwhile,
    and the disk alternates between them: 64 KiB messages took 92 us, and 103 one after the other.

    A lone publisher that waits for each message would pay for two thread switches, as long as the fdatasync itself. So
    if a turn requests a single small sync, all threads are idle and the disk is fast, the caller syncs itself: 4,400
    such publishes a second against 2,100. After a slow sync it stops doing so for a while, longer if most are slow.

    Locks: `_guard` protects the requests; it is never held while the disk works. Threads: `done` is called on the
    owner's.
    """

    def __init__(
        self, post: Callable[[Callable[[], None]], None], soon: Callable[[Callable[[], None]], object]
    ) -> None:
        self._post = post
        self._soon = soon
        self._turn: list[Wait] = []
        """Requests of the current turn of the owner."""
        self._small = True
        self._cautious_until = 0.0
        self._caution = _CAUTION_MIN_S
        """Seconds without syncs on the owner's thread after a slow one; slow ones raise it, fast ones lower it."""
        self._guard = threading.Condition()
        self._wanted: dict[Log, list[Wait]] = {}
        self._heavy = False
        """Whether a requested sync has so much to write that a second thread starts it at once."""
        self._working = _THREADS
        """Number of threads that are not idle."""
        self._stopping = False
        self._threads = [
            threading.Thread(target=self._run, name=f"holdfast-syncer-{number}", daemon=True)
            for number in range(_THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def request(self, logs: Iterable[Log], done: Done, *, small: bool = False) -> None:
        """Call `done` when all that was written to these logs is on disk, or with the error that prevents it.

        Call it on the owner's thread. The sync starts at the end of the turn, or with the third request.
        """
        if not self._turn:
            self._soon(self.end_turn)
            self._small = True
        self._turn.append(Wait(list(logs), done))
        self._small = self._small and small
        if len(self._turn) >= _SEVERAL:
            self.end_turn()

    def stop(self) -> None:
        """Complete all syncs, and stop the threads. Their `done` calls are posted to the owner's thread."""
        self.end_turn()
        with self._guard:
            self._stopping = True
            self._guard.notify_all()
        for thread in self._threads:
            thread.join()

    def end_turn(self) -> None:
        """Start the syncs that this turn requested. A single small one may be done here, on the owner's thread."""
        turn, self._turn = self._turn, []
        if not turn:
            return
        begin = time.monotonic()
        alone = len(turn) == 1 and len(turn[0].logs) == 1 and self._small
        if alone and begin > self._cautious_until and not (self._working or self._wanted):
            log = turn[0].logs[0]
            try:
                error = _sync(log)
            except BaseException:  # this thread is interrupted: another one completes the sync
                self._hand_over(turn)
                raise
            end = time.monotonic()
            if end - begin > _QUICK_S:
                self._cautious_until = end + self._caution
                self._caution = min(_CAUTION_MAX_S, self._caution * 4)
            else:
                self._caution = max(_CAUTION_MIN_S, self._caution * 0.9)
            turn[0].done(error)
            self._soon(log.tell)  # after the confirm was sent: the client processes it meanwhile
            return
        self._hand_over(turn)

    def _hand_over(self, turn: list[Wait]) -> None:
        with self._guard:
            for wait in turn:
                for log in wait.logs:
                    self._wanted.setdefault(log, []).append(wait)
                    self._heavy = self._heavy or log.gathered_bytes >= _HEAVY_BYTES
            if self._heavy or not self._working:
                self._guard.notify()

    def _run(self) -> None:
        while True:
            with self._guard:
                self._working -= 1
                while not (self._wanted and (self._heavy or not self._working)):
                    if self._stopping and not self._wanted:
                        self._guard.notify_all()  # the other thread may wait for this one to finish
                        return
                    self._guard.wait()
                self._working += 1
                wanted, self._wanted, self._heavy = self._wanted, {}, False
            finished: list[Wait] = []
            for log, waits in wanted.items():
                error = _sync(log)
                for wait in waits:
                    wait.left -= 1
                    wait.error = wait.error or error
                    if not wait.left:
                        finished.append(wait)
            self._post(partial(_tell, finished))
            for log in wanted:
                try:
                    log.tell(patient=True)
                except Exception:  # as below: the thread must continue
                    logger.exception("notifying followers failed: log=%s", log.name, extra={"log": log.name})


def _tell(finished: list[Wait]) -> None:
    # Last first: publishers confirm in order, so that with the first request all later ones can be confirmed at once.
    for wait in reversed(finished):
        try:
            wait.done(wait.error)
        except Exception:  # the others must be notified nevertheless
            logger.exception("notifying a caller of a sync failed")


def _sync(log: Log) -> HoldfastError | None:
    """Sync one log; return the error, or None also if the log was deleted. The caller notifies its followers."""
    try:
        log.sync_without_notifying()
    except Closed:
        return None  # it was deleted with its messages: no caller waits for them any more
    except HoldfastError as error:
        logger.error("sync failed: log=%s error=%s", log.name, error, extra={"log": log.name})
        return error
    except Exception as error:  # the thread must continue: without it no publish is ever confirmed again
        if raised_by_handler(error):  # in the main thread only, by a handler of the application
            raise
        logger.exception("sync failed: log=%s", log.name, extra={"log": log.name})
        return StorageError(f"{type(error).__name__}: {error}")
    return None
