"""fdatasync with sticky failure: after a failure a file is not trusted until its end was written again."""

import threading
from typing import NamedTuple

from holdfast.base.errors import is_reported
from holdfast.base.files import File, write_all
from holdfast.log.segment import Segment

__all__ = ["Disk", "PendingSync", "Preallocation"]

_LITTLE = 4 << 10
_LITTLE_SYNCS = 8
_AHEAD = bytes(64 << 10)
"""Where so many syncs in a row were of so little each, so many zeros are written ahead of the end: an fdatasync within
a file that is long enough took 120 us, one that made it longer 175, because the file system wrote its journal too."""


class PendingSync(NamedTuple):
    """A sync that is under way: its file, and up to where that was written before."""

    file: File
    segment: Segment
    offset: int
    end: int


class Disk:
    """Syncs the active segment of a log, one caller at a time.

    The kernel reports a failure only once, to the first caller. So it is noted before the lock is released, and the
    next holder finds it. A file is closed with the lock held, and so never during a sync.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """The innermost lock: its holder waits for the disk only."""
        self.noted: OSError | None = None
        """The exception that an fdatasync raised. If it is set, `failure` interprets it."""

    def failure(self) -> OSError | None:
        """Return why an fdatasync has failed; None if none has.

        The noted exception is interpreted here and not where it was raised: a second signal could interrupt that.
        """
        error = self.noted
        if error is not None and not is_reported(error):  # a handler's own, which can be an OSError too
            error = self.noted = None
        return error

    def trust(self) -> None:
        """Clear the failure, after the end of the file was written again."""
        self.noted = None

    def sync(self, file: File) -> None:
        """Make all that was written to this file durable, or note the failure. Called with the lock held."""
        if self.noted is None or self.failure() is None:
            try:
                file.sync()
            except OSError as error:  # noted before anything is called, where a signal's handler may raise
                self.noted = error
                if self.failure() is None:
                    raise


class Preallocation:
    """Zeros behind the end of the active segment, which make many small syncs cheaper."""

    def __init__(self) -> None:
        self._little_syncs = 0
        self._until = 0

    def forget(self) -> None:
        """Note that there are none: the file was cut, or is another one."""
        self._until = 0

    def make(self, file: File, durable: int, end: int, most: int | None) -> None:
        """Write zeros before a sync of what lies between these offsets; that sync makes them durable too."""
        if end - durable > _LITTLE:
            self._little_syncs = 0
            return
        self._little_syncs += 1
        if self._little_syncs < _LITTLE_SYNCS or self._until - end >= _LITTLE:
            return
        start = max(self._until, end)
        zeros = _AHEAD if most is None else _AHEAD[: max(0, most - start)]  # no file becomes larger than was asked for
        try:
            write_all(file, zeros, start)
        except OSError as error:  # the disk is full: what fits in is written all the same, and who does not fit is told
            self._little_syncs = 0
            if not is_reported(error):
                raise
            return
        self._until = start + len(zeros)
