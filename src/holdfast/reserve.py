"""Room on the disk that is set aside for journals, and what is done when the disk is full.

An ack or a lease is a few dozen bytes in a queue's journal. On a full disk these must go on, or nothing would ever get
less. So a file of up to 4 MiB holds room that is given up when a journal finds none; until it is taken again, which
takes as much free room, nothing but journals is written. Before that, history is shortened.
"""

import errno
import logging
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from holdfast.base.clock import Clock
from holdfast.base.files import Files
from holdfast.base.metrics import Registry
from holdfast.log.appender import Appender
from holdfast.log.log import Log

__all__ = ["RESERVE", "Reserve"]

logger = logging.getLogger("holdfast.store")

RESERVE = "reserve"
_MOST, _LEAST = 4 << 20, 64 << 10
_PART = 16
"""It takes at most one in so many of the bytes that are free."""
_LATER_S = 60.0
"""How often, where there never was enough room."""
_AGAIN_S = 1.0
"""How often it is tried to take the room again, and to find history that may go."""


class Reserve:
    """The reserve of one store. File: `reserve`, while the store is open and has a queue. Threads: any.

    `shortenable` gives the logs of queues whose history may be shortened.
    """

    name = "reserve"

    def __init__(
        self,
        files: Files,
        clock: Clock,
        folder: Path,
        shortenable: Callable[[], Iterable[Log]],
        metrics: Registry,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        self._files = files
        self._clock = clock
        self._folder = folder
        self._path = folder / RESERVE
        self._shortenable = shortenable
        self._wake = wake
        self._guard = threading.Lock()
        self._wanted = False
        self._held = False
        self.given_up = False
        """Whether the disk is full and what is free is for journals."""
        self._size = 0
        self._tried_at: float | None = None
        self._shortened = metrics.counter(
            "holdfast_store_history_shortened_bytes_total", "Bytes of finished messages that went for a full disk."
        )
        metrics.gauge(
            "holdfast_store_disk_full",
            "1 while the disk is full and only acks, leases and checkpoints are written.",
            read=lambda: float(self.given_up),
        )

    @property
    def fields(self) -> dict[str, str]:
        """What log messages about it carry in `extra`."""
        return {"path": str(self._path)}

    def want(self) -> None:
        """There is a journal: take the room with the next tick."""
        if not self._wanted:
            self._wanted = True
            self._wake()

    def tick(self) -> float | None:
        """Take the room if there is enough; in how many seconds to try again, None if it is held."""
        with self._guard:
            if not self._wanted or self._held or self._take():
                return None
            return _AGAIN_S if self.given_up else _LATER_S

    def close(self) -> None:
        """Give the room back: a store that is closed writes no journal."""
        with self._guard:
            self._wanted = self.given_up = False
            if self._held:
                self._held = False
                self._remove()

    def for_journals(self) -> "JournalRoom":
        """What a journal asks for room."""
        return JournalRoom(self)

    def for_logs(self) -> "LogRoom":
        """What other logs ask for room."""
        return LogRoom(self)

    def shorten(self, asking: Appender) -> bool:
        """Let messages go that are done, of whichever queue has some: whether there is more room now."""
        now = self._clock.monotonic()
        if self._tried_at is not None and now - self._tried_at < _AGAIN_S:
            return False
        freed = 0
        for log in self._shortenable():
            found = log.shed(asking)
            if found:
                logger.warning(
                    "disk full: history shortened: log=%s segments=%d bytes=%d",
                    log.name,
                    found.segments,
                    found.bytes,
                    extra={"log": log.name, "segments": found.segments, "bytes": found.bytes},
                )
                freed += found.bytes
        self._shortened.add(freed)
        self._tried_at = None if freed else now
        return freed > 0

    def give_up(self) -> bool:
        """Let journals have the room; False if there is none."""
        with self._guard:
            if not self._held:
                return False
            self._held, self.given_up = False, True
            self._remove()
        self._wake()
        logger.warning(
            "disk full: %d bytes that were set aside are used for acks and leases; nothing else is written to %s until "
            "there is room again: free some space",
            self._size,
            self._folder,
            extra=self.fields,
        )
        return True

    def _take(self) -> bool:
        try:
            if self._files.exists(self._path):  # a process that was killed left it
                self._files.remove(self._path)
            free = self._files.free(self._folder)
            if free is None:
                return False
            size = self._size if self.given_up else min(_MOST, free // _PART)
            # Taken again, as much must stay free for others: else it would come and go.
            if size < _LEAST or (self.given_up and free < 2 * size):
                return False
            self._files.allocate(self._path, size)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                logger.warning("no room was set aside for journals: %s", error, extra=self.fields)
            return False
        if self.given_up:
            logger.warning("there is room on the disk again: all is written to %s", self._folder, extra=self.fields)
        self._held, self._size, self.given_up = True, size, False
        return True

    def _remove(self) -> None:
        try:
            self._files.remove(self._path)
        except OSError as error:
            logger.warning("the reserve was not removed: %s", error, extra=self.fields)


class JournalRoom:
    """What a journal does on a full disk: history goes first, then the reserve."""

    def __init__(self, reserve: Reserve) -> None:
        self._reserve = reserve

    def check(self) -> None:
        """A journal may take whatever is free."""

    def make(self, log: Appender) -> bool:
        """As `Room.make`."""
        return self._reserve.shorten(log) or self._reserve.give_up()


class LogRoom:
    """What other logs do on a full disk: history goes, but the reserve is not theirs."""

    def __init__(self, reserve: Reserve) -> None:
        self._reserve = reserve

    def check(self) -> None:
        """As `Room.check`."""
        if self._reserve.given_up and self._reserve.tick() is not None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def make(self, log: Appender) -> bool:
        """As `Room.make`."""
        return self._reserve.shorten(log)
