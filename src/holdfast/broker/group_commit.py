"""Group fdatasync for the broker: threads that sync logs for all waiting publishers together."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from holdfast.base.errors import Closed, HoldfastError, StorageError, raised_by_handler
from holdfast.log.log import Log

__all__ = ["GroupCommitter", "SyncRequest"]

logger = logging.getLogger("holdfast.broker")

Done = Callable[[HoldfastError | None], None]

_THREADS = 2
_HEAVY_BYTES = 512 << 10
"""Bytes to write above which a second thread starts while the first one syncs."""
_QUICK_S = 0.005
_CAUTION_MIN_S, _CAUTION_MAX_S = 0.02, 1.0


@dataclass(slots=True, eq=False)
class SyncRequest:
    """A request to be called when some logs are on disk; `small` if little was written to them."""

    logs: list[Log]
    done: Done
    small: bool
    left: int = 0
    """How many of the logs the threads have yet to sync."""
    error: HoldfastError | None = None


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
        self, post: Callable[[Callable[[], None]], None], after_turn: Callable[[Callable[[], None]], object]
    ) -> None:
        self._post = post
        self._after_turn = after_turn
        self._cautious_until = 0.0
        self._caution = _CAUTION_MIN_S
        """Seconds without syncs on the owner's thread after a slow one; slow ones raise it, fast ones lower it."""
        self._guard = threading.Condition()
        self._wanted: dict[Log, list[SyncRequest]] = {}
        self._heavy = False
        """Whether a requested sync has so much to write that a second thread starts it at once."""
        self._working = _THREADS
        """Number of threads that are not idle."""
        self.stopping = False
        """Whether the threads were asked to end."""
        self._threads = [
            threading.Thread(target=self._run, name=f"holdfast-syncer-{number}", daemon=True)
            for number in range(_THREADS)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Complete all syncs, and stop the threads. Their `done` calls are posted to the owner's thread."""
        with self._guard:
            self.stopping = True
            self._guard.notify_all()
        for thread in self._threads:
            thread.join()

    def begin(self, turn: list[SyncRequest]) -> None:
        """Begin the syncs that a turn requested. A single small one may be done here, on the owner's thread."""
        begin = time.monotonic()
        alone = len(turn) == 1 and len(turn[0].logs) == 1 and turn[0].small
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
            self._after_turn(log.appender.tell)  # after the confirm was sent: the client processes it meanwhile
            return
        self._hand_over(turn)

    def _hand_over(self, turn: list[SyncRequest]) -> None:
        with self._guard:
            for wait in turn:
                wait.left = len(wait.logs)
                for log in wait.logs:
                    self._wanted.setdefault(log, []).append(wait)
                    self._heavy = self._heavy or log.appender.gathered_bytes >= _HEAVY_BYTES
            if self._heavy or not self._working:
                self._guard.notify()

    def _run(self) -> None:
        while True:
            with self._guard:
                self._working -= 1
                while not (self._wanted and (self._heavy or not self._working)):
                    if self.stopping and not self._wanted:
                        self._guard.notify_all()  # the other thread may wait for this one to finish
                        return
                    self._guard.wait()
                self._working += 1
                wanted, self._wanted, self._heavy = self._wanted, {}, False
            finished: list[SyncRequest] = []
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
                    log.appender.tell(patient=True)
                except Exception:  # as below: the thread must continue
                    logger.exception("notifying followers failed: log=%s", log.name, extra={"log": log.name})


def _tell(finished: list[SyncRequest]) -> None:
    # Last first: publishers confirm in order, so that with the first request all later ones can be confirmed at once.
    for wait in reversed(finished):
        try:
            wait.done(wait.error)
        except Exception:  # the others must be notified nevertheless
            logger.exception("notifying a caller of a sync failed")


def _sync(log: Log) -> HoldfastError | None:
    """Sync one log; return the error, or None also if the log was deleted. The caller notifies its followers."""
    try:
        log.appender.sync_without_notifying()
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
