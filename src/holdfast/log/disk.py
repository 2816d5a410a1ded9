"""When is what was written on disk? After an fdatasync that did not fail, of a file that was not closed before."""

import threading
from typing import NamedTuple

from holdfast.base.errors import is_reported
from holdfast.base.files import File, write_all
from holdfast.log.segment import Segment

__all__ = ["Begun", "Disk", "RoomAhead"]

_LITTLE = 4 << 10
_LITTLE_SYNCS = 8
_AHEAD = bytes(64 << 10)
"""Where so many syncs in a row were of so little each, so many zeros are written ahead of the end: an fdatasync within
a file that is long enough took 120 us, one that made it longer 175, because the file system wrote its journal too."""


class Begun(NamedTuple):
    """A sync that goes on: of which file, and up to where all was written to it before."""

    file: File
    segment: Segment
    offset: int
    end: int


class Disk:
    """Syncs the active segment of a log, for one at a time.

    Of a failure the system tells only once, to whoever asks first. So it is noted before the lock is let go of, and
    whoever has the lock next finds it. A file is closed with the lock held, and so never while it is synced.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """The last one to be taken: its holder waits for the disk only."""
        self.noted: OSError | None = None
        """What an fdatasync has raised. Who finds something here asks `failure` what it means."""

    def failure(self) -> OSError | None:
        """Return why an fdatasync has failed.

        What was noted is judged here and not where it came up: a second signal could cut that off.
        """
        error = self.noted
        if error is not None and not is_reported(error):  # a handler's own, which can be an OSError too
            error = self.noted = None
        return error

    def trust(self) -> None:
        """The end of the file was written again: the failure counts no more."""
        self.noted = None

    def sync(self, file: File) -> None:
        """Make all that was written to this file durable, or note why that cannot be. With the lock held."""
        if self.noted is None or self.failure() is None:
            try:
                file.sync()
            except OSError as error:  # noted before anything is called, where a signal's handler may raise
                self.noted = error
                if self.failure() is None:
                    raise


class RoomAhead:
    """Zeros behind the end of the active segment, for those who sync little at a time."""

    def __init__(self) -> None:
        self._little_syncs = 0
        self._until = 0

    def forget(self) -> None:
        """There are none: the file was cut, or is another."""
        self._until = 0

    def make(self, file: File, durable: int, end: int, most: int | None) -> None:
        """Before a sync of what lies between these: it makes the zeros durable along the way."""
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
