"""Disk space reserved for journals, and what happens when the disk is full.

An ack or a lease is a few dozen bytes in a queue's journal. On a full disk these must go on, or nothing would ever get
less. So a file of up to 4 MiB holds space that is given up when a journal finds none; until it is taken again, which
takes as much free space, nothing but journals is written. Before that, history is shortened. Where acknowledged
messages are held back only because no checkpoint has noted yet that they are done, the background notes it; a quarter
of the space is left for that, and for opening the state.
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
from holdfast.queue import Queue

__all__ = ["RESERVE", "Reserve"]

logger = logging.getLogger("holdfast.store")

RESERVE = "reserve"
_MOST, _LEAST = 4 << 20, 64 << 10
_PART = 12
"""It takes at most one in so many of the bytes that are free."""
_LAST_PART = 4
"""One in so many of its bytes is not for journals, but to let history go, and to open the state."""
_STEPS = 16
"""In so many steps it is given up."""
_NOTE_BYTES = 4096
"""What stays of the file when all space is given up: a note of its size."""
_LATER_S = 60.0
"""How often, where there never was enough space."""
_AGAIN_S = 1.0
"""How often it is tried to take the space again, and to find history that may go."""


class Reserve:
    """The reserve of one store. File: `reserve`, as soon as the store has a queue. Threads: any.

    The file stays when the store is closed: opening it on a full disk needs space, too, and a disk that was full then
    may be so still. It begins with a note of its size; where it is shorter than that, some of it was given up.

    `shortenable` gives the open queues on logs whose history may be shortened.
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
    ) -> None:
        self._files = files
        self._clock = clock
        self._folder = folder
        self._path = folder / RESERVE
        self._shortenable = shortenable
        self._wake = wake
        self._guard = threading.Lock()
        self._wanted = False
        self._found = False
        """Whether the file is of an earlier opening: whether it has its space is not known yet."""
        self._held = 0
        """How many bytes the file has."""
        self.released = False
        """Whether the disk is full and what is free is for journals."""
        self._size = 0
        """How many it has, or had before some were given up."""
        self._tried_at: float | None = None
        self._pressed = False
        """Whether history was to be shortened, and none could go, since the last tick."""
        self._shortened = metrics.counter(
            "holdfast_store_history_shortened_bytes_total", "Bytes of finished messages that went for a full disk."
        )
        metrics.gauge(
            "holdfast_store_disk_full",
            "1 while the disk is full and only acks, leases and checkpoints are written.",
            read=lambda: float(self.released),
        )

    @property
    def fields(self) -> dict[str, str]:
        """What log messages about it carry in `extra`."""
        return {"path": str(self._path)}

    def want(self) -> None:
        """Note that there is a journal: allocate the space with the next tick."""
        if not self._wanted:
            self._wanted = True
            self._wake()

    def tick(self) -> float | None:
        """Shorten history where the disk is full, and take the space if there is enough.

        Return in how many seconds to look again. Called without any lock of a queue or log.
        """
        if self._wanted and (self.released or self._pressed):
            self._relieve()
        with self._guard:
            if self._held and not self._files.exists(self._path):  # somebody deleted it
                self._held = 0
        later = self.claim_again()
        return _AGAIN_S if self._wanted and later is None else later

    def claim_again(self) -> float | None:
        """Take the space if there is enough; in how many seconds to try again, None if it is held."""
        with self._guard:
            if not self._wanted or (self._held and not (self.released or self._found)) or self._take():
                return None
            return _AGAIN_S if self.released else _LATER_S

    def find(self) -> None:
        """When the store is opened: go on with the space, and with the full disk, that the last opening left."""
        try:
            with contextlib.closing(self._files.open(self._path, "r")) as file:
                held, raw = file.size(), file.read(_NOTE_BYTES, 0)
        except FileNotFoundError:
            return
        except OSError as error:
            logger.warning("the reserve cannot be read: %s", error, extra=self.fields)
            return
        try:
            size = int(decode_checked(raw[: raw.index(b"\n") + 1])["size"])
        except (ValueError, KeyError, TypeError):  # an earlier version noted nothing in it
            size = max(held, _LEAST)
        self._held, self._size, self.released = (held if held > _NOTE_BYTES else 0), size, held < size
        self._wanted = self._found = True

    def close(self) -> None:
        """Keep the file, and use it no more: the next opening may find the disk full, and needs it then."""
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
        """Save the positions of queues that hold back acknowledged messages, with the last of the space; drop these."""
        self._pressed = False
        for queue in self._shortenable():
            with contextlib.suppress(HoldfastError):  # which the queue reports
                if queue.may_shorten():
                    self.release_last()
                    queue.shorten()
        if self._shed(None):
            self._tried_at = None

    def _shed(self, asking: Appender | None) -> int:
        """Drop the segments whose messages have all left their queues; return how many bytes."""
        freed = 0
        for log in dict.fromkeys(queue.log for queue in self._shortenable()):
            try:
                found = log.shed(asking, self.release_last)
            except HoldfastError as error:
                logger.warning("history of %s was not shortened: %s", log.name, error, extra={"log": log.name})
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
            was_given_up, self.released = self.released, True
            self._held = max(least, self._held - max(_LEAST, self._size // _STEPS))
            self._cut(self._held)
        self._wake()
        if was_given_up:
            return True
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
            free = self._files.free(self._folder)
            if free is None:
                return False
            free += self._held
            size = self._size if self.released else max(self._size, min(_MOST, free // _PART))
            # Taken again, as much must stay free for others: else it would come and go.
            if size < _LEAST or (self.released and free < 2 * size):
                return False
            self._files.allocate(self._path, size)
            self._note(size)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                logger.warning("no room was set aside for journals: %s", error, extra=self.fields)
            elif self._found:  # a copy of the store, whose file has its size and not its space
                self.released = True
            return False
        if self.released:
            logger.warning("there is room on the disk again: all is written to %s", self._folder, extra=self.fields)
        self._held, self._size, self.released, self._found = size, size, False, False
        return True

    def _note(self, size: int) -> None:
        """Note its size in the file, for who finds it when only this is left of it."""
        with contextlib.closing(self._files.open(self._path, "w")) as file:
            write_all(file, encode_checked({"format": 1, "size": size}), 0)
            file.sync()

    def _cut(self, size: int) -> None:
        """Give the space back from this size on. The note stays."""
        try:
            with contextlib.closing(self._files.open(self._path, "w")) as file:
                file.truncate(max(size, _NOTE_BYTES))
        except OSError as error:
            logger.warning("the reserve was not made smaller: %s", error, extra=self.fields)
            self._held = 0
            with contextlib.suppress(OSError):
                self._files.remove(self._path)


class JournalSpace:
    """The `DiskSpace` of journals: on a full disk, history is dropped first, then the reserve is released."""

    def __init__(self, reserve: Reserve) -> None:
        self._reserve = reserve

    def check(self) -> None:
        """Allow a journal to use whatever is free."""

    def make(self, log: Appender) -> bool:
        """As `DiskSpace.make`."""
        return self._reserve.shorten(log) or self._reserve.release()


class LogSpace:
    """The `DiskSpace` of other logs: on a full disk, history is dropped, but the reserve is not released."""

    def __init__(self, reserve: Reserve) -> None:
        self._reserve = reserve

    def check(self) -> None:
        """As `DiskSpace.check`."""
        if self._reserve.released and self._reserve.claim_again() is not None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def make(self, log: Appender) -> bool:
        """As `DiskSpace.make`."""
        return self._reserve.shorten(log)
