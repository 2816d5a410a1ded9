"""fdatasync with sticky failure: after a failure a file is not trusted until its end was rewritten."""

import threading
from typing import NamedTuple

from holdfast.base.errors import is_reported
from holdfast.base.files import File, write_all
from holdfast.log.segment import Segment

__all__ = ["Disk", "PendingSync", "Preallocation"]

_LITTLE = 4 << 10
_LITTLE_SYNCS = 8
_AHEAD = bytes(64 << 10)
"""After 8 syncs in a row of at most 4 KiB each, 64 KiB of zeros are written behind the end: an fdatasync within a file
that is long enough took 120 us, one that made it longer 175, because the file system wrote its journal too."""


class PendingSync(NamedTuple):
    """A running sync: its file, and the end of what was written before it began."""

    file: File
    segment: Segment
    offset: int
    end: int


class Disk:
    """Syncs the active segment of a log, one caller at a time.

    The kernel reports a failure only once, to the first caller. So it is recorded before the lock is released, and the
    next holder finds it. A file is closed with the lock held, and so never during a sync.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """The innermost lock: its holder waits for the disk only."""
        self.noted: OSError | None = None
        """The exception that an fdatasync raised; `failure` decides whether it is a failure of the disk."""

    def failure(self) -> OSError | None:
        """Return why an fdatasync has failed; None if none has.

        The recorded exception is interpreted here and not where it was raised: a second signal could interrupt that.
        """
        error = self.noted
        if error is not None and not is_reported(error):  # raised by a signal handler, which can raise an OSError too
            error = self.noted = None
        return error

    def trust(self) -> None:
        """Clear the failure, after the end of the file was rewritten."""
        self.noted = None

    def sync(self, file: File) -> None:
        """Make everything that was written to this file durable, or record the failure. Called with the lock held."""
        if self.noted is None or self.failure() is None:
            try:
                file.sync()
            except OSError as error:  # recorded before any call, in which a signal's handler may raise
                self.noted = error
                if self.failure() is None:
                    raise


class Preallocation:
    """Zeros behind the end of the active segment, which make many small syncs cheaper."""

    def __init__(self) -> None:
        self._little_syncs = 0
        self._until = 0

    def forget(self) -> None:
        """Reset: the file was cut, or is another one, and has no zeros."""
        self._until = 0

    def make(self, file: File, durable: int, end: int, most: int | None) -> None:
        """Write zeros before a sync of the bytes between these offsets; that sync makes them durable too."""
        if end - durable > _LITTLE:
            self._little_syncs = 0
            return
        self._little_syncs += 1
        if self._little_syncs < _LITTLE_SYNCS or self._until - end >= _LITTLE:
            return
        start = max(self._until, end)
        zeros = _AHEAD if most is None else _AHEAD[: max(0, most - start)]  # not beyond the size at which it rolls
        try:
            write_all(file, zeros, start)
        except OSError as error:  # the disk is full: records are still written, until one does not fit and fails
            self._little_syncs = 0
            if not is_reported(error):
                raise
            return
        self._until = start + len(zeros)
