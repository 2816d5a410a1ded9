"""Write-ahead journal of a queue: events in a separate log. The last snapshot and later events give the state."""

import contextlib
import json
from collections.abc import Iterator

from holdfast.base.errors import StorageError
from holdfast.log.log import Log
from holdfast.log.pending_block import PendingBlock
from holdfast.log.policy import Retention
from holdfast.queue.events import Event, Snapshot, decode, encode

__all__ = ["PENDING_MAX", "Journal", "rows_of"]

PENDING_MAX = 256
"""The most events that are collected into one record, if the flush mode lets them wait."""
PART_BYTES = 1 << 20
Rows = list[tuple[str, bytes, bytes]]


class Journal:
    """The journal of one queue. Used with the queue's lock held, except `commit`, `make_durable` and `is_past`.

    Under `sync` each call's events are one record, and durable after `commit`. Under `batch` and `async` events are
    collected in memory, as records of a log are, until there are enough or the queue's tick flushes them.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self.pending: list[bytes] = []
        """Events that are not appended to the log yet, at most `PENDING_MAX`; not used under `sync`."""
        self.since_checkpoint = 0
        """Bytes of events since the last checkpoint."""
        self._handing: tuple[int, int] | None = None
        """While events are appended to the log: its end before, and how many events they are."""
        self.durable = log.settings.flush.mode == "sync"
        self._expected = log.end
        self._snapshot_end = -1
        """The end of the last snapshot: a journal that ends there has no later events."""
        self.broken = False
        """Whether records were dropped after a failed write: the state in memory may be ahead of the journal."""

    def add(self, event: bytes) -> PendingBlock | None:
        """Accept an event; pass the result to `commit` after releasing the queue's lock."""
        if not self.durable:
            if len(self.pending) >= PENDING_MAX:
                self.flush()
            self.pending.append(event)
            return None
        pending_block, first, _ = self.log.gather([event], [], 0)
        if first != self._expected:
            self.broken = True
        self._expected = first + 1
        self.since_checkpoint += len(event)
        return pending_block

    def commit(self, pending_block: PendingBlock | None) -> None:
        """Return when the event is as safe as the flush mode promises."""
        if pending_block is not None:
            try:
                self.log.commit(pending_block)
            except BaseException:
                self.broken = True
                raise

    def flush(self) -> None:
        """Append the collected events to the log."""
        pending = self.pending
        if self._handing is not None:  # the last call was cut off: the log's end tells whether it has the events
            end, count = self._handing
            if self.log.end > end:
                del pending[:count]
            self._handing = None
        if pending:
            record = b"".join(pending)
            self._handing = (self.log.end, len(pending))
            self.log.append(record)
            # No call between these two, where a handler could raise: events must be in the journal once.
            del pending[:]
            self._handing = None
            self.since_checkpoint += len(record)

    def sync(self) -> int:
        """Make everything durable for a checkpoint; return the end of the journal."""
        end = self.confirm()
        self.since_checkpoint = 0
        return end

    def confirm(self) -> int:
        """Make everything durable; return the end of the journal."""
        self.flush()
        self.make_durable()
        end = self.log.end
        if self.durable and end != self._expected:
            # Another thread's write failed, and its caller has not set `broken` yet. Its events did not happen.
            self.broken = True
            raise StorageError(f"events of the journal in {str(self.log.folder)!r} could not be written: try again")
        return end

    def make_durable(self) -> None:
        """Return when all appended events are on disk. May be called without the queue's lock."""
        try:
            self.log.sync()
        except BaseException:
            self.broken = self.durable  # under a weaker mode the log keeps accepted records, and tries again
            raise

    def replay(self, position: int, end: int) -> Iterator[tuple[int, list[Event]]]:
        """Yield the events of each record from a position on. Damaged ones are left out: the log has reported them."""
        for record in self.log.read(position, end):
            yield record.sequence, list(decode(record.payload))

    def settle(self) -> None:
        """Decide for every accepted event whether it is in the log. Called before the state is loaded again.

        Under `sync`, an event that cannot be written did not happen, and its caller gets the error. Under a weaker mode
        it was accepted: it must be in the log before the log is read, or this raises and the event is kept.
        """
        if self.durable:
            with contextlib.suppress(StorageError):
                self.log.appender.write_out()
        else:
            self.flush()
            self.log.appender.write_out()

    def reread(self) -> None:
        """Reset `broken`, after the state was loaded from the log again."""
        self._expected = self.log.end
        self.broken = False

    def write_snapshot(self, rows: Rows, now: int) -> None:
        """Write the whole state to the journal, so that earlier events can be dropped."""
        parts = _split(rows)
        for number, part in enumerate(parts):
            self.log.append(encode(Snapshot(now, number, number == len(parts) - 1, part)))
        self._expected = self._snapshot_end = self.log.end
        self.log.sync()

    def is_past(self, moment: int) -> bool:
        """Return whether events from before this moment could be dropped, in a queue without activity since."""
        return self._snapshot_end < self.log.end and not self.pending and self.log.appender.is_past(moment)

    def renew(self, rows: Rows, now: int) -> None:
        """Replace all events by a snapshot of their result, unless a reader has yet to read them."""
        held_from = self.log.retention.floor()
        if held_from is not None and held_from < self.log.end:
            return
        first = self.log.roll()
        self.write_snapshot(rows, now)
        self.log.retention.drop_before(first)

    def last_snapshot(self) -> tuple[Rows, int] | None:
        """Return the last complete snapshot, and the position behind it."""
        parts: dict[int, bytes] = {}
        position = 0
        for record in self.log.read(reverse=True):
            if record.payload[:1] != _SNAPSHOT_KIND:
                if parts:
                    parts = {}
                continue
            (event,) = decode(record.payload)
            assert isinstance(event, Snapshot)
            if event.last:
                parts, position = {}, record.sequence + 1
            parts[event.part] = event.content
            if event.part == 0 and position and len(parts) == max(parts) + 1:
                return _join(parts), position
        return None

    def forget_before(self, age_ns: int) -> int:
        """Drop segments that are older; return how many."""
        return self.log.compact(retention=Retention(max_age=age_ns / 1e9))

    def has_older_than(self, moment: int) -> bool:
        """Return whether `forget_before` would drop something."""
        segments = self.log.segments()
        return len(segments) > 1 and segments[1].created < moment


_SNAPSHOT_KIND = encode(Snapshot(0, 0, True, b""))[:1]


def _split(rows: Rows) -> list[bytes]:
    parts: list[bytes] = []
    lines: list[str] = []
    size = 0
    for family, key, value in rows:
        line = json.dumps([family, key.hex(), value.hex()])
        lines.append(line)
        size += len(line)
        if size > PART_BYTES:
            parts.append("\n".join(lines).encode())
            lines, size = [], 0
    return [*parts, "\n".join(lines).encode()]


def _join(parts: dict[int, bytes]) -> Rows:
    return [row for number in sorted(parts) for row in rows_of(parts[number])]


def rows_of(content: bytes) -> Iterator[tuple[str, bytes, bytes]]:
    """Yield the rows in a part of a snapshot: family, key without the queue's prefix, value."""
    for line in content.splitlines():
        family, key, value = json.loads(line)
        yield family, bytes.fromhex(key), bytes.fromhex(value)
