"""Disk space reserved for journals, so that consumers can still acknowledge messages when the disk is full.

An ack or a lease is a few dozen bytes in a queue's journal. On a full disk these must still be written, or the queues
could never be emptied. So a file of up to 4 MiB reserves space, which is released when a journal finds none. From then
on only journals are written, until the reserve is allocated again, which needs as much free space besides. Before the
release, history is shortened. If acknowledged messages are kept only because the saved position of their queue is older
than their acks, the background task saves it; a quarter of the space is kept for that, and for opening the state.
"""

import contextlib
import errno
import logging
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from holdfast.base.checked_json import decode_checked, encode_checked
from holdfast.base.clock import Clock
from holdfast.base.errors import HoldfastError
from holdfast.base.files import Files, write_all
from holdfast.base.metrics import Registry
from holdfast.log.appender import Appender
from holdfast.log.log import Log
from holdfast.queue import Queue

__all__ = ["RESERVE", "Reserve"]

logger = logging.getLogger("holdfast.store")

RESERVE = "reserve"
_MOST, _LEAST = 4 << 20, 64 << 10
_PART = 12
"""The reserve is at most one part in so many of the free space."""
_LAST_PART = 4
"""One part in so many of the reserve is kept for dropping history and for opening the state: journals do not use it."""
_STEPS = 16
"""The number of steps in which the reserve is released."""
_NOTE_BYTES = 4096
"""The size of the file when all space is released. It holds a note of the reserve's size."""
_LATER_S = 60.0
"""Seconds between attempts to allocate a first reserve, while there is not enough space."""
_AGAIN_S = 1.0
"""Seconds between attempts to allocate the space again, and to find history that can be dropped."""


class Reserve:
    """The reserve of one store. File: `reserve`, as soon as the store has a queue. Threads: any.

    The file stays when the store is closed: opening it on a full disk needs space, too, and a disk that was full then
    may still be full. It begins with a note of its size; if the file is shorter than that, some space was released.

    `shortenable` returns the open queues on logs whose history may be shortened, `logs` all open logs. `_guard`
    protects the size and the state of the file.
    """

    name = "reserve"

    def __init__(
        self,
        files: Files,
        clock: Clock,
        folder: Path,
        shortenable: Callable[[], Iterable[Queue]],
        metrics: Registry,
        wake: Callable[[], None] = lambda: None,
        logs: Callable[[], Iterable[Log]] = tuple,
    ) -> None:
        self._files = files
        self._clock = clock
        self._folder = folder
        self._path = folder / RESERVE
        self._shortenable = shortenable
        self._logs = logs
        self._wake = wake
        self._guard = threading.Lock()
        self._wanted = False
        self._found = False
        """Whether the file is of an earlier opening: it is not known yet whether its space is allocated."""
        self._held = 0
        """How many bytes the file has."""
        self.released = False
        """Whether the disk is full and the free space is for journals."""
        self._size = 0
        """How many bytes the file has, or had before some were released."""
        self._tried_at: float | None = None
        self._pressed = False
        """Whether an attempt to shorten history since the last tick found none to drop."""
        self._shortened = metrics.counter(
            "holdfast_store_history_shortened_bytes_total",
            "Bytes of acknowledged messages that were removed early because the disk was full.",
        )
        metrics.gauge(
            "holdfast_store_disk_full",
            "1 while the disk is full and only acks, leases and checkpoints are written.",
            read=lambda: float(self.released),
        )

    @property
    def fields(self) -> dict[str, str]:
        """The `extra` of log messages about it."""
        return {"path": str(self._path)}

    def want(self) -> None:
        """Note that there is a journal: allocate the space with the next tick."""
        if not self._wanted:
            self._wanted = True
            self._wake()

    def tick(self) -> float | None:
        """Shorten history if the disk is full, and allocate the reserve if there is enough space.

        Return in how many seconds to check again. Called without any lock of a queue or log.
        """
        if self._wanted and (self.released or self._pressed):
            self._relieve()
        with self._guard:
            if self._held and not self._files.exists(self._path):  # it was deleted
                self._held = 0
        later = self.claim_again()
        return _AGAIN_S if self._wanted and later is None else later

    def claim_again(self) -> float | None:
        """Allocate the reserve if there is enough space; return the seconds until the next attempt, None if held."""
        with self._guard:
            if not self._wanted or (self._held and not (self.released or self._found)) or self._take():
                return None
            return _AGAIN_S if self.released else _LATER_S

    def find(self) -> None:
        """Continue with the file of the last opening, also if the disk was full. Called when a store is opened."""
        try:
            with contextlib.closing(self._files.open(self._path, "r")) as file:
                held, raw = file.size(), file.read(_NOTE_BYTES, 0)
        except FileNotFoundError:
            return
        except OSError as error:
            logger.warning("disk reserve cannot be read: error=%s", error, extra=self.fields)
            return
        try:
            size = int(decode_checked(raw[: raw.index(b"\n") + 1])["size"])
        except (ValueError, KeyError, TypeError):  # an earlier version wrote no note
            size = max(held, _LEAST)
        self._held, self._size, self.released = (held if held > _NOTE_BYTES else 0), size, held < size
        self._wanted = self._found = True

    def close(self) -> None:
        """Keep the file, and stop using it: the next opening may find the disk full, and needs it then."""
        with self._guard:
            self._wanted = self.released = False

    def for_journals(self) -> "JournalSpace":
        """Return the `DiskSpace` of journals."""
        return JournalSpace(self)

    def for_logs(self) -> "LogSpace":
        """Return the `DiskSpace` of other logs."""
        return LogSpace(self)

    def shorten(self, asking: Appender) -> bool:
        """Drop acknowledged messages of any queue, at most once a second; return whether that freed space."""
        now = self._clock.monotonic()
        if self._tried_at is not None and now - self._tried_at < _AGAIN_S:
            return False
        if self._shed(asking):
            self._tried_at = None
            return True
        self._tried_at, self._pressed = now, True
        self._wake()
        return False

    def _relieve(self) -> None:
        """Save the positions of queues, with the last part of the space if needed; drop acknowledged messages."""
        self._pressed = False
        for queue in self._shortenable():
            with contextlib.suppress(HoldfastError):  # the queue logs it
                if queue.history.may_shorten():
                    self.release_last()
                    queue.history.shorten()
        if self._shed(None):
            self._tried_at = None

    def _shed(self, asking: Appender | None) -> int:
        """Drop the segments whose messages have all left their queues; return how many bytes that freed."""
        freed = 0
        for log in dict.fromkeys(queue.log for queue in self._shortenable()):
            try:
                found = log.retention.shed(asking, self.release_last)
            except HoldfastError as error:
                logger.warning(
                    "disk full: history not shortened: log=%s error=%s", log.name, error, extra={"log": log.name}
                )
                continue
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
        return freed + self._give_up_unshipped(asking)

    def _give_up_unshipped(self, asking: Appender | None) -> int:
        """Drop what retention has kept only because it is not in the replica yet; return how many bytes that freed."""
        freed = 0
        for log in self._logs():
            with contextlib.suppress(HoldfastError):  # the bytes are found the next time
                freed += log.retention.give_up_unshipped(asking).bytes
        return freed

    def release(self) -> bool:
        """Release a step of the reserve for journals, except the last part; return False if there is none."""
        return self._shrink(self._size // _LAST_PART)

    def release_last(self) -> bool:
        """Release a step, also of the last part, to free space or open the state; return False if there is none."""
        return self._shrink(0)

    def _shrink(self, least: int) -> bool:
        """Release one step of the reserve, down to `least` bytes; return False if there is none left.

        In steps, because other processes write to the disk too, and would take all of it at once.
        """
        with self._guard:
            if self._held <= least:
                return False
            was_released, self.released = self.released, True
            self._held = max(least, self._held - max(_LEAST, self._size // _STEPS))
            self._cut(self._held)
        self._wake()
        if was_released:
            return True
        logger.warning(
            "disk full: releasing the reserve for acks and leases; free some space, other writes are rejected until "
            "then: store=%s reserve_bytes=%d",
            self._folder,
            self._size,
            extra=self.fields,
        )
        return True

    def _take(self) -> bool:
        try:
            free = self._files.free(self._folder)
            if free is None:
                return False
            free += self._held
            size = self._size if self.released else max(self._size, min(_MOST, free // _PART))
            # To allocate it again, as much must stay free for others: otherwise it would be released again at once.
            if size < _LEAST or (self.released and free < 2 * size):
                return False
            self._files.allocate(self._path, size)
            self._note(size)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                logger.warning("disk reserve not allocated: error=%s", error, extra=self.fields)
            elif self._found:  # a copy of the store, whose file has its size without allocated space
                self.released = True
            return False
        if self.released:
            logger.warning("disk no longer full: all writes are accepted: store=%s", self._folder, extra=self.fields)
        self._held, self._size, self.released, self._found = size, size, False, False
        return True

    def _note(self, size: int) -> None:
        """Write the reserve's size into the file: the next opening needs it if the space was released."""
        with contextlib.closing(self._files.open(self._path, "w")) as file:
            write_all(file, encode_checked({"format": 1, "size": size}), 0)
            file.sync()

    def _cut(self, size: int) -> None:
        """Truncate the file to this size, but keep the note."""
        try:
            with contextlib.closing(self._files.open(self._path, "w")) as file:
                file.truncate(max(size, _NOTE_BYTES))
        except OSError as error:
            logger.warning("disk reserve not truncated, deleting it: error=%s", error, extra=self.fields)
            self._held = 0
            with contextlib.suppress(OSError):
                self._files.remove(self._path)


class JournalSpace:
    """The `DiskSpace` of journals: on a full disk, history is dropped first, then the reserve is released."""

    def __init__(self, reserve: Reserve) -> None:
        self.reserve = reserve

    def check(self) -> None:
        """Do nothing: a journal may use all free space."""

    def make(self, log: Appender) -> bool:
        """As `DiskSpace.make`."""
        return self.reserve.shorten(log) or self.reserve.release()


class LogSpace:
    """The `DiskSpace` of other logs: on a full disk, history is dropped, but the reserve is not released."""

    def __init__(self, reserve: Reserve) -> None:
        self.reserve = reserve

    def check(self) -> None:
        """As `DiskSpace.check`."""
        if self.reserve.released and self.reserve.claim_again() is not None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def make(self, log: Appender) -> bool:
        """As `DiskSpace.make`."""
        return self.reserve.shorten(log)
