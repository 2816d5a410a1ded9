"""Tailer: a reader of a log that keeps its position, skips damage and follows new records."""

import logging
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

from holdfast.base.clock import Duration, Instant, duration_ns, instant_ns
from holdfast.base.errors import InvalidArgument, InvalidName
from holdfast.log.block import Block
from holdfast.log.consumer_offsets import QUEUE, Position
from holdfast.log.record import Record

if TYPE_CHECKING:
    from holdfast.log.log import Log
    from holdfast.log.read_only_log import ReadOnlyLog

__all__ = ["Tailer"]

logger = logging.getLogger("holdfast.log")
_SLICE = 4096
"""Records that are created at a time: a block may hold a million, and a reader should not need memory for all."""


class Tailer:
    """An independent reader of a log, for one thread. With a name, `commit` saves its position.

    A damaged record is left out (its sequence is missing) and reported by `Log.damage`.
    """

    def __init__(self, log: "Log", name: str | None = None) -> None:
        if name is not None and name.startswith(QUEUE):
            raise InvalidName(f"the tailer name {name!r} must not begin with {QUEUE!r}, which is reserved for queues")
        self._log = log
        self.log: Log | ReadOnlyLog = log
        """The log that is read, or the view that created this tailer."""
        self.name = name
        self._records: list[Record] = []
        self._at = 0
        self._block: Block | None = None
        self._cursor = 0
        self._blocks: Iterator[Block] = iter(())
        self._stop = 0
        kept = log.positions.get(name) if name is not None else None
        self._position = log.start if kept is None else min(kept.position, max(log.end, log.readable()[1]))
        self._catch_up(log.start)

    @property
    def position(self) -> int:
        """The next sequence that this tailer will read."""
        return self._records[self._at].sequence if self._at < len(self._records) else self._position

    @property
    def lag(self) -> int:
        """The number of records that are not read yet."""
        self._log.refresh()
        return max(0, self._log.end - self.position)

    def read(self) -> Record | None:
        """Return the next record; None at the current end."""
        if self._at >= len(self._records) and not self._fill():
            return None
        record = self._records[self._at]
        self._at += 1
        return record

    def read_many(self, count: int) -> list[Record]:
        """Return up to `count` records; fewer only at the current end."""
        if count < 1:
            raise InvalidArgument(f"read_many needs a count of at least 1, not {count!r}")
        found: list[Record] = []
        while (missing := count - len(found)) > 0:
            if self._at >= len(self._records) and not self._fill():
                break
            part = self._records[self._at : self._at + missing]
            self._at += len(part)
            found = found + part if found else part
        return found

    def __iter__(self) -> Iterator[Record]:
        """Yield the records up to the current end."""
        while (record := self.read()) is not None:
            yield record

    def follow(self, wait: Duration | None = None) -> Iterator[Record]:
        """Yield records as they arrive, also from another process; stop after `wait` seconds without one."""
        patience = None if wait is None else duration_ns(wait, "wait") / 1e9
        while True:
            record = self.read()
            if record is None:
                if not self._log.wait_for(self._position, patience):
                    return
            else:
                yield record

    def seek(self, sequence: int) -> None:
        """Go to a sequence; to the first kept one if that is later."""
        start, end = self._log.readable()
        if isinstance(sequence, bool) or not isinstance(sequence, int) or not 0 <= sequence <= end:
            raise InvalidArgument(f"cannot seek to {sequence!r}: the log {self._log.name!r} ends at {end}")
        self._release()
        self._position = max(sequence, start)

    def seek_time(self, when: Instant) -> None:
        """Go to the first record that is not before `when`; to the end if there is none."""
        self.seek(self._log.sequence_at(instant_ns(when, "when")))

    def to_start(self) -> None:
        """Go to the first kept record."""
        self.seek(self._log.start)

    def to_end(self) -> None:
        """Go behind the last record."""
        self.seek(self._log.readable()[1])

    def commit(self) -> None:
        """Save the position durably: the next tailer of this name continues from there."""
        if self.name is None:
            raise InvalidArgument("only a named tailer can commit: use log.tailer('some-name')")
        self._log.positions.set(Position(self.name, self.position, self._log.clock.time_ns()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Release the mapped memory."""
        self._release()

    def _release(self) -> None:
        self._position = self.position
        self._records, self._at, self._block, self._blocks, self._stop = [], 0, None, iter(()), 0

    def _fill(self) -> bool:
        """Create the next slice of records; return False at the end."""
        try:
            while True:
                block = self._block
                if block is None or self._cursor >= block.count:
                    block = self._block = self._next_block()
                    if block is None:
                        return False
                    self._cursor = max(0, self._position - block.sequence)
                stop = min(self._cursor + _SLICE, block.count)
                records = block.records(self._cursor, stop)
                self._records, self._at, self._cursor, self._position = records, 0, stop, block.sequence + stop
                if records:
                    return True
        except BaseException:
            # A generator that raised is finished: without this the log would seem to be read to its end.
            self._block, self._blocks, self._stop = None, iter(()), 0
            raise

    def _next_block(self) -> Block | None:
        while (block := next(self._blocks, None)) is None:
            # The range is read to its end: records that are still missing before `_stop` are damaged, and reported.
            self._position = max(self._position, self._stop)
            start, stop = self._log.readable()
            self._catch_up(start)
            if self._position >= stop:
                return None
            self._stop = stop
            self._blocks = self._log.reader.blocks_between(self._position, stop)
        return block

    def _catch_up(self, start: int) -> None:
        if self._position < start:
            logger.warning(
                "records dropped before they were read: log=%s tailer=%s first=%d last=%d",
                self._log.name,
                self.name,
                self._position,
                start - 1,
                extra={"log": self._log.name, "tailer": self.name},
            )
            self._position = start
