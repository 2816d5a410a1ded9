"""The writing half of a log: threads append to a shared draft, and one of them writes and syncs it for all."""

import contextlib
import errno
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from holdfast.base.clock import Clock
from holdfast.base.critical_section import Section
from holdfast.base.errors import (
    Closed,
    Corrupt,
    HoldfastError,
    MessageTooLarge,
    ReadOnly,
    WriterStopped,
    is_reported,
    storage_error,
)
from holdfast.log.batch import ALL, Extra, check_batch
from holdfast.log.layout import BLOCK_MAX
from holdfast.log.pending_block import Draft
from holdfast.log.record import Headers, Message
from holdfast.log.settings import LogSettings
from holdfast.log.writer import SegmentWriter

__all__ = ["Appender", "Room", "View"]

logger = logging.getLogger("holdfast.log")

BLOCK_RECORDS = 1 << 16
_COLUMNS_MAX = 64  # bytes a record at most takes in the columns, keys and headers aside
RECENT_BYTES = 8 << 20
_RECOVERY_PAUSE_S = 1.0
"""Seconds between a disk failure, or an attempt to recover from it, and the next attempt."""
_TRIES = 4


class View(Protocol):
    """A reader that is notified when there is more to read: a queue."""

    def wake(self) -> None:
        """Notify that there may be more to read.

        Called from any thread, with locks of the log held: take no lock but your own innermost one.
        """
        ...

    def let_go_below(self, sequence: int) -> None:
        """Records below were dropped: let go of their segments, which take room on the disk until then.

        Called as `wake` is.
        """
        ...


class Room(Protocol):
    """Decides about disk space: before a block is written, and when the disk is full."""

    def check(self) -> None:
        """Raise an OSError if the free space is reserved for others."""
        ...

    def make(self, log: "Appender") -> bool:
        """Try to free space on a full disk, and return whether there is more. Called with the log's I/O lock held."""
        ...


class Appender:
    """The writing half of a log: a base class, because one call more would cost the common append a tenth.

    Locks: a draft's gate is taken before `_io` (who writes to files), and that before `_lock` (who touches the draft);
    the common append takes only `_lock`. Invariant: records are in the draft, in `_unwritten` or in the writer's
    segment, in this order of sequences without a gap, and at most two drafts are in memory. Signals: an exception from
    a handler (Ctrl-C) may come up at any call. Which drafts there are, and what is in them, is changed in the section
    `_drafts` (except by the common append), which repairs what was cut off; steps with files can be done again.
    """

    def __init__(self, name: str, folder: Path, settings: LogSettings, clock: Clock, wake: Callable[[], None]) -> None:
        self.name = name
        self.folder = folder
        self.settings = settings
        self.clock = clock
        self._wake = wake
        self._now = clock.time_ns
        self._max_message = settings.max_message
        self._durable_appends = settings.flush.mode == "sync"
        self._lock = threading.RLock()
        self._acquire, self._release = self._lock.acquire, self._lock.release
        self._drafts = Section(self._repair_drafts)
        """Entered after `_lock`."""
        self._io = threading.Lock()
        self._writer: SegmentWriter | None = None
        self._refusal: HoldfastError | None = ReadOnly(
            f"the log {name!r} was opened read-only: open the store without read_only=True to write"
        )
        self.draft = Draft(0, -1, 0)
        """The open draft; under `sync` nothing of it may be read by others."""
        self._unwritten: Draft | None = None
        self._views: tuple[View, ...] = ()
        self.is_shared = False
        """Whether more than one view is attached."""
        self._recent: deque[Draft] = deque()
        """While there are views: the last drafts, ending with the open one. What was just put is mostly read next."""
        self._recent_bytes = 0
        """What those of them that are closed take in memory."""
        self._recent_limit = RECENT_BYTES
        self._asleep = False
        self._end_at_tick = -1
        """Where it ended when the ticker last found nothing to do."""
        self._waiting_since: float | None = None
        self._lets_go = False
        """Whether it is closed, and its files perhaps not yet."""
        self._recover_at = 0.0
        """While the writer is stopped: when `recover` tries again."""
        self.written: Callable[[], None] | None = None
        """Called after each write, from any thread, for metrics of the log: must be short."""
        self._gives = False
        """Whether the log began to write a block since it was opened."""
        self.columns_written: set[str] = set()
        """The optional columns of what was written since the log was opened."""
        self.room: Room | None = None

    def append(self, payload: bytes, key: bytes | None = None, headers: Headers | None = None) -> int:
        """Add a record and return its sequence: 0, 1, 2, ...

        Under `Flush.sync()` it is on disk when this returns.
        """
        # The common path, measured: no keyword-only arguments (40 ns), no `with` (45 ns), and one look at the draft's
        # room for every reason not to go on (full, closed, read-only, stopped, ticker asleep).
        if type(payload) is not bytes or key is not None or headers:
            return self.append_many((Message(payload, key, headers),))[0]
        size = len(payload)
        if size > self._max_message:
            raise self._too_large(size)
        while True:
            try:
                self._acquire()
                draft = self.draft
                payloads = draft.payloads
                sequence = draft.first + len(payloads)
                room = draft.room - size
                if room >= 0 and sequence < draft.stop:
                    draft.room = room
                    draft.times.append(self._now())
                    payloads.append(payload)  # last: a signal between the two leaves a time too many, and no record
                    self._release()
                    break
                self._release()
            except BaseException:
                # A signal's handler raised, perhaps before the lock was taken or after it was let go: an RLock knows.
                # Nothing is called before it is released: a second one could raise there, and leave it taken.
                try:  # noqa: SIM105
                    self._release()
                except RuntimeError:
                    pass
                raise
            self._make_room(size, 1)
        if self._durable_appends:
            self.commit(draft)
        return sequence

    def append_many(self, messages: Iterable[bytes | Message]) -> range:
        """Add records as part of one block, and return their sequences. All of them or, after an error or crash, none.

        They are as safe as the flush mode promises when this returns.
        """
        draft, first, count = self.gather(*check_batch(messages))
        if count:
            self.commit(draft)
        return range(first, first + count)

    def gather(
        self, payloads: list[bytes], extras: list[Extra], largest: int, *, limited: bool = True
    ) -> tuple[Draft, int, int]:
        """Add checked messages to the draft; return the draft, the first sequence and the count.

        They are accepted, and not yet as safe as `append_many` promises: that is `commit`. A queue does the two apart,
        so that it need not hold its lock while the disk works. What was accepted once, and only moves, is not
        `limited` in its size again.
        """
        count = len(payloads)
        total = self.check_size(payloads, extras, largest, limited=limited)
        while True:
            with self._lock:
                draft, section = self.draft, self._drafts
                before = len(draft.payloads)
                first = draft.first + before
                room = draft.room - total
                if room >= 0 and first + count <= draft.stop and not section.open:
                    # Closed while it is filled: after an interrupt nothing comes in before the draft was repaired.
                    section.open, draft.room = True, -1
                    if extras:
                        draft.take_extras(extras, before, count)
                    draft.times += [self._now()] * count
                    draft.payloads += payloads
                    section.open, draft.room = False, room
                    return draft, first, count
            self._make_room(total, count)

    def commit(self, draft: Draft) -> None:
        """Return when the records of this draft are as safe as the flush mode promises: under `sync`, on disk.

        Raises the error of the draft if its records could not be written.
        """
        # Group commit: the first thread through the gate waits for its turn to write, and meanwhile the draft gathers
        # all who come. The others wait at the gate, not for `_io`: there they would queue behind the next draft's sync
        # only to learn that theirs is done (measured with 16 threads: 1.7 appends a sync that way, 8 this way).
        if not self._durable_appends:
            return
        with draft.gate:
            if not draft.written and draft.error is None:
                self._flush(sync=True, only=draft)
        if draft.error is not None:
            raise _again(draft.error)

    def sync(self) -> None:
        """Return when all that was appended before is on disk."""
        self._check_writable()
        self._flush(sync=True)

    def write_out(self) -> None:
        """Hand all that was appended to the operating system, and under `sync` to the disk: a kill does not lose it."""
        self._check_writable()
        self._flush(sync=self._durable_appends)  # there, whoever waits for a draft takes it for safe once it is written

    def check_size(self, payloads: list[bytes], extras: list[Extra], largest: int, *, limited: bool = True) -> int:
        """Return how many bytes these take together.

        Raises `MessageTooLarge` if they do not fit into one block or, if `limited`, one is above the limit of the log.
        """
        count = len(payloads)
        total = sum(map(len, payloads))
        if limited and largest > self._max_message:
            raise self._too_large(largest)
        if limited and total > self._max_message and (largest := max(map(len, payloads))) > self._max_message:
            raise self._too_large(largest)
        for extra in extras:
            total += extra.size * (count if extra.position == ALL else 1)
        # What a block may hold is known before anything is gathered.
        if total + _COLUMNS_MAX * count > BLOCK_MAX // 2:
            raise MessageTooLarge(
                f"a batch of {count} messages and {total} bytes is too large to be written at once; "
                "nothing of it was: append it in parts"
            )
        return total

    def tick(self) -> float | None:
        """Flush what is due, and try to recover; return in how many seconds to call again, None if nothing waits.

        Under `sync` there is nothing to flush, and appends recover the log.
        """
        flush = self.settings.flush
        if flush.mode == "sync" or not (self._refusal is None or self.recover()):
            return _RECOVERY_PAUSE_S if self.suspended else None
        interval = flush.interval_ns / 1e9
        with self._lock:
            if not self._has_work():
                if self.draft.end != self._end_at_tick:  # it is in use: to be woken time and again would cost more
                    self._end_at_tick = self.draft.end
                    self._waiting_since = None
                    return interval
                self.draft.room = -1  # the next append comes the long way round and wakes the ticker
                self._asleep = True
                self._waiting_since = None
                return None
            now = self.clock.monotonic()
            if self._waiting_since is None:
                self._waiting_since = now
            due = self._waiting_since + interval - now
            if due > 0:
                return due
            self._waiting_since = None
        try:
            self._flush(sync=flush.mode == "batch")
        except Closed:
            return None
        except HoldfastError as error:  # the next append tries again and tells its caller
            logger.warning("a flush of %s failed: %s", self.name, error, extra={"log": self.name})
        return interval

    @property
    def suspended(self) -> bool:
        """Whether appends are refused until the disk works again, after a failed sync."""
        writer = self._writer
        return writer is not None and writer.recoverable and isinstance(self._refusal, WriterStopped)

    def recover(self, *, at_once: bool = False) -> bool:
        """Try to resume after a disk failure, once a second or `at_once`; return whether appends are accepted.

        Under `sync` what was not confirmed is not there afterwards. Under the weaker modes all that was accepted is:
        what was written is checked and written again, and what was not waits in memory.
        """
        if not self.suspended or not (at_once or self.clock.monotonic() >= self._recover_at):
            return self._refusal is None
        with self._io:
            writer = self._writer
            if writer is None or not self.suspended:  # another thread did it, or closed the log
                return self._refusal is None
            self._recover_at = self.clock.monotonic() + _RECOVERY_PAUSE_S
            try:
                writer.recover()
            except (OSError, Corrupt) as error:
                if isinstance(error, OSError) and not is_reported(error):
                    raise
                logger.warning("the log %s cannot go on yet: %s", self.name, error, extra=self.fields)
                return False
            with self._lock, self._drafts:
                if self._durable_appends:
                    self.draft = self._new_draft(writer.end, None)
                    self._keep_written_at_hand()
                else:
                    self.draft.room, self._asleep = -1, True
                self._refusal = None
        logger.warning("the log %s goes on after a failure of the disk", self.name, extra=self.fields)
        self._wake()
        return True

    def close(self) -> None:
        """Write and sync what was accepted, then close the files; idempotent.

        If that fails (a full disk) the log stays open, so that closing can be tried again. A log that has stopped is
        closed without writing; under `batch` and `async` this raises `WriterStopped`, because accepted records are
        lost.
        """
        self.recover(at_once=True)
        with self._io:
            if self.closed and not self._lets_go:
                return
            writer = self._writer
            stopped = writer.stopped if writer is not None else None
            drained = writer is None or stopped is not None
            while not self.closed:
                if not drained:
                    self._write_out(sync=True)
                with self._lock:  # what others appended meanwhile was accepted, and goes to disk too
                    if drained or not (self.draft.payloads or self._unwritten):
                        self._lets_go = True
                        self._refuse(Closed(f"the log {self.name!r} is closed: open the store again"))
            if writer is not None:
                with self._errors_as_ours("closing"):
                    writer.close()
            self._lets_go = False
        self._notify()
        if stopped is not None and not self._durable_appends:
            raise _again(stopped)  # what was accepted but never confirmed is lost, and nobody may have been told

    def abandon(self) -> None:
        """Close a log that is deleted: failing to write what was accepted is not an error."""
        try:
            self.close()
        except HoldfastError as error:
            logger.info("%s is deleted with what could not be written: %s", self.name, error, extra=self.fields)
            with self._io:
                self._refuse(Closed(f"the log {self.name!r} was deleted"))

    def disown(self) -> None:
        """Called in a forked child: the files belong to the parent, whose threads and locks do not exist here."""
        self._lock = threading.RLock()
        self._acquire, self._release = self._lock.acquire, self._lock.release
        self._io = threading.Lock()
        self._lets_go = False
        self._refuse(
            Closed(f"the log {self.name!r} was opened before this process was forked: open the store again here")
        )

    @property
    def fields(self) -> dict[str, str]:
        """What log messages about this log carry in `extra`."""
        return {"log": self.name}

    def attach(self, view: View) -> None:
        """Notify this view of new records, and keep the last drafts in memory for it."""
        with self._lock, self._drafts:
            self._views = (*self._views, view)
            self.is_shared = len(self._views) > 1
            if not self._recent and self._writer is not None:
                self._recent.extend(draft for draft in (self._unwritten, self.draft) if draft is not None)

    def announce(self) -> None:
        """Notify the views: records put under a weaker flush mode can be read at once."""
        for view in self._views:
            view.wake()

    def detach(self, view: View) -> None:
        """Stop notifying this view."""
        with self._lock, self._drafts:
            self._views = tuple(other for other in self._views if other is not view)
            self.is_shared = len(self._views) > 1
            if not self._views:
                self._recent.clear()
                self._recent_bytes = 0

    @property
    def recent_bytes(self) -> int:
        """Return how much memory the drafts take that are kept for views."""
        return self._recent_bytes

    def limit_recent(self, most: int) -> int:
        """Limit the memory of written drafts that are kept for all views; return how many bytes were released."""
        self._recent_limit = most
        return self._let_recent_go(most)

    def _let_recent_go(self, most: int) -> int:
        """Release the oldest of the kept drafts, if they are written; return how many bytes."""
        before, writer = self._recent_bytes, self._writer
        if writer is None:
            return 0
        with self._lock, self._drafts:
            # By what readers find in the segments: of a draft whose flush was interrupted, nobody may have noted that
            # it is written; and what the writer has only just written, they do not find yet.
            segments = writer.segments
            self._pop_recent(most, (segments[-1].end or 0) if segments else 0)
            return before - self._recent_bytes

    def _pop_recent(self, most: int, readable: int) -> None:
        while self._recent_bytes > most and self._recent[0].end <= readable and self._recent[0] is not self.draft:
            self._recent_bytes -= self._recent.popleft().weight

    def durable_place(self) -> tuple[Path, int, int] | None:
        """Return the active segment, its durable bytes and the end of their records; None without an active segment."""
        writer = self._writer
        active = writer.active if writer is not None else None
        if writer is None or active is None:
            return None
        return active.path, writer.durable_offset, writer.durable_end

    @property
    def closed(self) -> bool:
        """Whether the log was closed."""
        return isinstance(self._refusal, Closed)

    def _start_writing(self, writer: SegmentWriter) -> None:
        self._writer = writer
        self._refusal = None
        self.draft = self._new_draft(writer.end, None)
        if not self._durable_appends:
            self.draft.room, self._asleep = -1, True

    def _make_room(self, size: int, count: int) -> None:
        """Do what must be done before the draft can take so much; raise if it never will."""
        if self._refusal is not None:
            self.recover()
        with self._lock, self._drafts:
            draft = self.draft
            if self._refusal is not None:
                raise _again(self._refusal)
            if self._asleep:
                self._wake()
                draft.room = self.settings.flush.bytes
                self._asleep = False
            if not draft.payloads:  # what is larger than a block gets one of its own
                draft.room = max(draft.room, size)
                draft.stop = max(draft.stop, draft.first + count)
                return
        if draft.room < size or draft.end + count > draft.stop:
            self._flush(sync=self.settings.flush.mode != "async")

    def _new_draft(self, first: int, taken: Draft | None) -> Draft:
        stop = first + BLOCK_RECORDS
        records = self.settings.roll.records
        if records is not None and self._writer is not None:
            # A draft ends where the segment will, so that rolling by count is exact.
            active = self._writer.active
            base = active.base if active is not None else taken.first if taken is not None else first
            if taken is not None and taken.end - base > records:
                base = taken.first
            stop = min(stop, base + records if base + records > first else first + records)
        return Draft(first, self.settings.flush.bytes, stop)

    def _flush(self, *, sync: bool, only: Draft | None = None) -> None:
        with self._io:
            if only is None or not (only.written or only.error):
                self._write_out(sync=sync)

    def _write_out(self, *, sync: bool, tell: bool = True) -> None:
        """Write what is gathered, and sync it if asked to. Called with `_io` held."""
        writer = self._writer
        if self._refusal is not None or writer is None:
            raise _again(self._refusal or Closed(f"the log {self.name!r} is closed"))
        segments = len(writer.segments)
        done: list[Draft] = []
        try:
            if self._unwritten is not None:
                self._write_unwritten(writer, done, syncs=sync or not tell)
            section = self._drafts
            with self._lock:
                if section.open:
                    section.mend()
                if self.draft.payloads:
                    fresh = self._new_draft(self.draft.end, self.draft)
                    section.open = True
                    if self._views:
                        self._recent.append(fresh)
                        self._recent_bytes += self.draft.weight
                    self._unwritten, self.draft = self.draft, fresh
                    section.open = False
            if self._unwritten is not None:
                self._write_unwritten(writer, done, syncs=sync or not tell)
            if sync:
                writer.sync(tell=tell)
        except WriterStopped as stopped:
            self._give_up(done, stopped)
            raise
        except OSError as error:
            if not is_reported(error):  # a handler's own: what is not written stays, and is written by the next one
                raise
            problem = storage_error(error, f"writing to the log {self.name!r} in", self.folder)
            if self._durable_appends:
                self._give_up(done, problem)
            raise problem from error
        for draft in done:
            draft.written = True
        if done and self.written is not None:
            self.written()
        if self._recent_bytes > self._recent_limit:
            self._let_recent_go(self._recent_limit)
        if len(writer.segments) > segments:
            self._rolled()
        if tell:
            self._notify()

    def _write_unwritten(self, writer: SegmentWriter, done: list[Draft], *, syncs: bool) -> None:
        """Where the disk is full, try again as often as room can be made."""
        draft = self._unwritten
        assert draft is not None
        tries, end = 0, draft.end
        while end > writer.end:  # else it is written, perhaps just before an interrupt
            tries += 1
            try:
                if self.room is not None:
                    self.room.check()
                self._begin_giving()
                writer.write(draft, syncs=syncs)
            except OSError as error:
                is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                if not is_full or self.room is None or tries == _TRIES or not self.room.make(self):
                    raise
        if draft.extras:
            self.columns_written.update(draft.extras)
        done.append(draft)
        self._unwritten = None

    def _give_up(self, done: list[Draft], problem: HoldfastError) -> None:
        """Drop records that were never confirmed: their callers get the error, their sequences are assigned again.

        Under `batch` and `async`, if the writer can recover, the records are kept instead, and written then.
        """
        writer = self._writer
        assert writer is not None
        stops = isinstance(problem, WriterStopped)
        if stops:
            self._recover_at = self.clock.monotonic() + _RECOVERY_PAUSE_S
        with self._lock, self._drafts:
            if stops and writer.recoverable and not self._durable_appends:
                # They were accepted, and others may have seen them: they are kept, and written when the disk works.
                for draft in done:
                    draft.written = True
                self._refusal, self.draft.room = problem, -1
                self._wake()
            else:
                self._fail([*done, *self._open_drafts()], problem)

    def _open_drafts(self) -> list[Draft]:
        return [draft for draft in (self._unwritten, self.draft) if draft is not None]

    def _fail(self, drafts: list[Draft], problem: HoldfastError) -> None:
        assert self._writer is not None
        for draft in drafts:
            draft.error = problem
        self._unwritten = None
        if isinstance(problem, WriterStopped):
            self._refuse(problem)
        else:
            self.draft = self._new_draft(self._writer.end, None)
        self._keep_written_at_hand()

    def _keep_written_at_hand(self) -> None:
        """Keep, of the drafts in memory for views, those that are written and the open one."""
        if self._views:
            self._recent = deque([*(draft for draft in self._recent if draft.written), self.draft])
            self._recent_bytes = sum(draft.weight for draft in self._recent if draft.written)

    def _repair_drafts(self) -> None:
        """Finish or derive again a change of the drafts that was cut off. Called with `_lock` held."""
        drafts = self._open_drafts()
        for draft in drafts:
            draft.forget_after(len(draft.payloads))
        if (problem := next((draft.error for draft in drafts if draft.error is not None), None)) is not None:
            self._fail(drafts, problem)
        if self._views and self._writer is not None:
            closed = [draft for draft in self._recent if draft.payloads and draft is not self.draft]
            if not closed and self._unwritten is not None:
                closed.append(self._unwritten)
            self._recent_bytes = sum(draft.weight for draft in closed)
            self._recent = deque([*closed, self.draft])
        elif not self._views:
            self._recent_bytes = 0
            self._recent = deque()

    def _refuse(self, reason: HoldfastError) -> None:
        self._refusal = reason
        self.draft = Draft(self._writer.durable_end if self._writer is not None else 0, -1, 0)

    def _has_work(self) -> bool:
        writer = self._writer
        unsynced = writer is not None and self.settings.flush.mode == "batch" and writer.durable_offset < writer.offset
        return bool(self.draft.payloads) or self._unwritten is not None or unsynced

    def _check_writable(self) -> None:
        if self._refusal is not None and not self.recover():
            raise _again(self._refusal)

    def _too_large(self, size: int) -> MessageTooLarge:
        return MessageTooLarge(
            f"a message of {size} bytes is over the limit of {self._max_message} of the log {self.name!r}; nothing was "
            "written: send less, or open the log with a larger max_message"
        )

    @contextlib.contextmanager
    def _errors_as_ours(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not is_reported(error):
                raise
            raise storage_error(error, f"{doing} the log {self.name!r} in", self.folder) from error

    def _begin_giving(self) -> None:
        """Called with `_io` held before a block is written; raises OSError if none may be yet."""
        self._gives = True

    def _rolled(self) -> None:
        """Called with `_io` held, after a segment was sealed."""

    def _notify(self) -> None:
        """Notify readers that there may be more to read."""
        self.announce()


def _again(error: HoldfastError) -> HoldfastError:
    """The same error for another caller: an exception that is raised twice would mix their tracebacks."""
    fresh = type(error)(*error.args)
    fresh.__cause__ = error.__cause__
    return fresh
