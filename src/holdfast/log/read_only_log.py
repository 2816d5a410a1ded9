"""A view of a log that can be read and followed, and not written: its owner is the only writer."""

from collections.abc import Iterator
from typing import NoReturn

from holdfast.base.clock import Instant
from holdfast.base.errors import ReadOnly
from holdfast.log.block import Block
from holdfast.log.inspection import Inspection
from holdfast.log.log import Log, LogStats, SegmentStats
from holdfast.log.record import Record
from holdfast.log.settings import LogSettings
from holdfast.log.tailer import Tailer
from holdfast.log.verification import Progress, Verification

__all__ = ["ReadOnlyLog"]


class ReadOnlyLog:
    """What can be read of a log. Whatever would change it raises `ReadOnly`, and says what to do instead.

    Threads: as those of a `Log`.
    """

    __slots__ = ("_instead", "_log")

    def __init__(self, log: Log, instead: str) -> None:
        """`instead` completes an error: who writes this log, and what to call."""
        self._log = log
        self._instead = instead

    def __repr__(self) -> str:
        return f"ReadOnlyLog({self._log.name!r})"

    @property
    def name(self) -> str:
        """The log's name."""
        return self._log.name

    @property
    def id(self) -> bytes:
        """The log's id, which no other log has."""
        return self._log.id

    @property
    def settings(self) -> LogSettings:
        """What was chosen for the log."""
        return self._log.settings

    @property
    def start(self) -> int:
        """The first kept sequence."""
        return self._log.start

    @property
    def end(self) -> int:
        """The next sequence to be written; in a store that was opened read-only, the end of what may be read."""
        return self._log.end

    @property
    def closed(self) -> bool:
        """Whether the log was closed."""
        return self._log.closed

    def readable(self) -> tuple[int, int]:
        """From which sequence on, and up to which, not included, it can be read now."""
        return self._log.readable()

    def read(self, start: int | None = None, stop: int | None = None, *, reverse: bool = False) -> Iterator[Record]:
        """Return the records from `start` up to, not including, `stop`; or the same backwards."""
        return self._log.read(start, stop, reverse=reverse)

    def blocks(self, start: int | None = None, stop: int | None = None) -> Iterator[Block]:
        """Return whole blocks that hold records from `start` up to `stop`, over mapped memory."""
        return self._log.blocks(start, stop)

    def blocks_between(self, start: int, stop: int) -> Iterator[Block]:
        """Return the same, for a caller that has asked `readable` already."""
        return self._log.blocks_between(start, stop)

    def tailer(self, name: str | None = None) -> Tailer:
        """Return an independent reader from the start or, with a name, from where that name last committed."""
        tailer = self._log.tailer(name)
        tailer.log = self
        return tailer

    def time_of(self, sequence: int) -> int | None:
        """Return when a record was appended, in Unix nanoseconds."""
        return self._log.time_of(sequence)

    def sequence_at(self, when: Instant, *, past_damage: bool = True) -> int:
        """Return the sequence of the first record from `when` on."""
        return self._log.sequence_at(when, past_damage=past_damage)

    def wait_for(self, sequence: int, timeout: float | None) -> bool:
        """Wait until `sequence` can be read; False if the time is up or the log was closed."""
        return self._log.wait_for(sequence, timeout)

    def sync(self) -> None:
        """Return when all that was appended is on disk."""
        self._log.sync()

    def stats(self) -> LogStats:
        """Return sizes, range, times and named tailers."""
        return self._log.stats()

    def segments(self) -> list[SegmentStats]:
        """Return what is known of each segment."""
        return self._log.segments()

    def verify(self, progress: Progress | None = None) -> Verification:
        """Check all checksums."""
        return self._log.verify(progress)

    def inspect(self, offset: int, segment: str | None = None) -> Inspection:
        """Return what is at a byte of a segment."""
        return self._log.inspect(offset, segment)

    # What an owner alone may do.

    def append(self, *args: object, **options: object) -> NoReturn:
        """Raise `ReadOnly`."""
        self._fail_appends("append")

    def append_many(self, *args: object, **options: object) -> NoReturn:
        """Raise `ReadOnly`."""
        self._fail_appends("append_many")

    def clear(self, *args: object, **options: object) -> NoReturn:
        """Raise `ReadOnly`."""
        self._fail_appends("clear")

    def compact(self, *args: object, **options: object) -> NoReturn:
        """Raise `ReadOnly`."""
        self._fail_appends("compact")

    def close(self) -> NoReturn:
        """Raise `ReadOnly`."""
        self._fail_appends("close")

    def _fail_appends(self, name: str) -> NoReturn:
        raise ReadOnly(
            f"{name}() was called on the log {self._log.name!r}, which can only be read here: {self._instead}"
        )
