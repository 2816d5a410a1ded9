"""Read-only view of a log, for logs that only their owner may write, such as that of a table."""

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
    """The reading methods of a log. Methods that would change it raise `ReadOnly`, and say what to do instead.

    Threads: as for `Log`.
    """

    __slots__ = ("_instead", "_log")

    def __init__(self, log: Log, instead: str) -> None:
        """Make a view; `instead` completes the error message: what to call instead."""
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
        """The log's unique id."""
        return self._log.id

    @property
    def settings(self) -> LogSettings:
        """The settings of the log."""
        return self._log.settings

    @property
    def start(self) -> int:
        """The first kept sequence."""
        return self._log.start

    @property
    def end(self) -> int:
        """The next sequence to be written; in a store that was opened read-only, the end of the readable records."""
        return self._log.end

    @property
    def closed(self) -> bool:
        """Whether the log was closed."""
        return self._log.closed

    def readable(self) -> tuple[int, int]:
        """Return the first sequence that can be read now, and the one after the last."""
        return self._log.readable()

    def read(self, start: int | None = None, stop: int | None = None, *, reverse: bool = False) -> Iterator[Record]:
        """Return the records from `start` up to, not including, `stop`; or the same backwards."""
        return self._log.read(start, stop, reverse=reverse)

    def blocks(self, start: int | None = None, stop: int | None = None) -> Iterator[Block]:
        """Return whole blocks that hold records from `start` up to `stop`, over mapped memory."""
        return self._log.blocks(start, stop)

    def tailer(self, name: str | None = None) -> Tailer:
        """Return an independent reader from the start or, with a name, from the position that the name committed."""
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
        """Return when all appended records are on disk."""
        self._log.sync()

    def stats(self) -> LogStats:
        """Return sizes, range, times and named tailers."""
        return self._log.stats()

    def segments(self) -> list[SegmentStats]:
        """Return size, range and times of each segment."""
        return self._log.segments()

    def verify(self, progress: Progress | None = None) -> Verification:
        """Check all checksums."""
        return self._log.verify(progress)

    def inspect(self, offset: int, segment: str | None = None) -> Inspection:
        """Return what a byte of a segment belongs to."""
        return self._log.inspect(offset, segment)

    # Methods that only the owner may call.

    def append(self, *args: object, **options: object) -> NoReturn:
        """Raise `ReadOnly`."""
        self._reject("append")

    def append_many(self, *args: object, **options: object) -> NoReturn:
        """Raise `ReadOnly`."""
        self._reject("append_many")

    def clear(self, *args: object, **options: object) -> NoReturn:
        """Raise `ReadOnly`."""
        self._reject("clear")

    def compact(self, *args: object, **options: object) -> NoReturn:
        """Raise `ReadOnly`."""
        self._reject("compact")

    def close(self) -> NoReturn:
        """Raise `ReadOnly`."""
        self._reject("close")

    def _reject(self, name: str) -> NoReturn:
        raise ReadOnly(
            f"{name}() was called on the log {self._log.name!r}, which can only be read here: {self._instead}"
        )
