"""The writing half of a log: threads append to a shared pending block, and one of them writes and syncs it for all."""

import contextlib
import errno
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol

from holdfast.base.clock import Clock
from holdfast.base.critical_section import CriticalSection
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
from holdfast.log.batch import ALL, ColumnValue, check_batch
from holdfast.log.layout import BLOCK_MAX
from holdfast.log.pending_block import PendingBlock
from holdfast.log.record import Headers, Message
from holdfast.log.settings import LogSettings
from holdfast.log.writer import SegmentWriter

__all__ = ["Appender", "DiskSpace", "ReadView"]

logger = logging.getLogger("holdfast.log")

BLOCK_RECORDS = 1 << 16
_COLUMNS_MAX = 64  # the most bytes of a record in the columns, without keys and headers
RECENT_BYTES = 8 << 20
_RECOVERY_PAUSE_S = 1.0
"""Seconds between a disk failure, or an attempt to recover from it, and the next attempt."""
_TRIES = 4


class ReadView(Protocol):
    """A reader that is notified when there is more to read: a queue."""

    def wake(self) -> None:
        """Wake the reader: there may be more to read.

        Called from any thread, with locks of the log held: an implementation takes only its own innermost lock.
        """
        ...

    def release_below(self, sequence: int) -> None:
        """Release the segments of records below, which were dropped: until then they use space on the disk.

        Called as `wake` is.
        """
        ...


class DiskSpace(Protocol):
    """Policy for disk space, asked before a block is written and when the disk is full."""

    def check(self) -> None:
        """Raise an OSError if the free space is reserved for journals."""
        ...

    def make(self, log: "Appender") -> bool:
        """Try to free space on a full disk, and return whether there is more. Called with the log's I/O lock held."""
        ...


class Appender:
    """The writing half of a log: a base class, because another call would make the common append a tenth slower.

    Locks: a pending block's gate is taken before `_io` (for writing to files), and `_io` before `_lock` (for the
    pending block); the common append takes only `_lock`. Invariant: records are in the writer's segment, in
    `_unwritten` or in the pending block, in this order of sequences without a gap, and at most two pending blocks are
    unwritten.
    Signals: an exception from a handler (Ctrl-C) may be raised at any call. The pending blocks and their contents are
    changed in the section `_blocks_section` (except by the common append), which repairs a change that was cut off;
    steps with files can be repeated.
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
        self._blocks_section = CriticalSection(self._repair_pending_blocks)
        """Entered after `_lock`."""
        self._io = threading.Lock()
        self._writer: SegmentWriter | None = None
        self._append_error: HoldfastError | None = ReadOnly(
            f"the log {name!r} was opened read-only: open the store without read_only=True to write"
        )
        self.pending_block = PendingBlock(0, -1, 0)
        """The open pending block; under `sync` its records are not readable yet."""
        self._unwritten: PendingBlock | None = None
        self._views: tuple[ReadView, ...] = ()
        self.is_shared = False
        """Whether more than one view is attached."""
        self._recent: deque[PendingBlock] = deque()
        """While there are views: the last blocks, ending with the open one. Readers mostly want the newest records."""
        self._recent_bytes = 0
        """Bytes of memory of these blocks without the open one."""
        self._recent_limit = RECENT_BYTES
        self._asleep = False
        self._end_at_tick = -1
        """The end of the log when the ticker last found nothing to do."""
        self._waiting_since: float | None = None
        self._closing_files = False
        """Whether the log is closed, and its files perhaps not yet."""
        self._recover_at = 0.0
        """While the writer is stopped: the earliest time of the next attempt of `recover`."""
        self.written: Callable[[], None] | None = None
        """Called after each write, from any thread, for metrics of the log: must be short."""
        self._assigned_any = False
        """Whether a block was written, or begun, since the log was opened."""
        self.columns_written: set[str] = set()
        """The optional columns of the blocks that were written since the log was opened."""
        self.disk_space: DiskSpace | None = None

    def append(self, payload: bytes, key: bytes | None = None, headers: Headers | None = None) -> int:
        """Add a record and return its sequence: 0, 1, 2, ...

        Under `Flush.sync()` it is on disk when this returns.
        """
        # The common path, measured: no keyword-only arguments (40 ns), no `with` (45 ns), and one check of the pending
        # block's space for every reason to take the slow path (full, closed, read-only, stopped, ticker asleep).
        if type(payload) is not bytes or key is not None or headers:
            return self.append_many((Message(payload, key, headers),))[0]
        size = len(payload)
        if size > self._max_message:
            raise self._too_large(size)
        while True:
            try:
                self._acquire()
                pending_block = self.pending_block
                payloads = pending_block.payloads
                sequence = pending_block.first + len(payloads)
                bytes_left = pending_block.bytes_left - size
                if bytes_left >= 0 and sequence < pending_block.stop:
                    pending_block.bytes_left = bytes_left
                    pending_block.times.append(self._now())
                    payloads.append(payload)  # last: a signal between the two leaves an extra time, and no record
                    self._release()
                    break
                self._release()
            except BaseException:
                # A signal's handler raised, perhaps before the lock was taken or after it was released: an RLock knows.
                # Nothing is called before it is released: a second handler could raise there, and leave it taken.
                try:  # noqa: SIM105
                    self._release()
                except RuntimeError:
                    pass
                raise
            self._ensure_capacity(size, 1)
        if self._durable_appends:
            self.commit(pending_block)
        return sequence

    def append_many(self, messages: Iterable[bytes | Message]) -> range:
        """Add records to one block, and return their sequences. After an error or crash, all of them or none are added.

        They are as safe as the flush mode promises when this returns.
        """
        pending_block, first, count = self.gather(*check_batch(messages))
        if count:
            self.commit(pending_block)
        return range(first, first + count)

    def gather(
        self, payloads: list[bytes], extras: list[ColumnValue], largest: int, *, limited: bool = True
    ) -> tuple[PendingBlock, int, int]:
        """Add checked messages to the pending block; return the pending block, the first sequence and the count.

        They are accepted, and not yet as safe as `append_many` promises: call `commit` for that. A queue calls the two
        separately, so that it need not hold its lock during the sync. Messages that were accepted before, and only
        move, are not `limited` in their size again.
        """
        count = len(payloads)
        total = self.check_size(payloads, extras, largest, limited=limited)
        while True:
            with self._lock:
                pending_block, section = self.pending_block, self._blocks_section
                before = len(pending_block.payloads)
                first = pending_block.first + before
                bytes_left = pending_block.bytes_left - total
                if bytes_left >= 0 and first + count <= pending_block.stop and not section.open:
                    # Closed while it is filled: after an interrupt nothing is added before the pending block is
                    # repaired.
                    section.open, pending_block.bytes_left = True, -1
                    if extras:
                        pending_block.take_extras(extras, before, count)
                    pending_block.times += [self._now()] * count
                    pending_block.payloads += payloads
                    section.open, pending_block.bytes_left = False, bytes_left
                    return pending_block, first, count
            self._ensure_capacity(total, count)

    def commit(self, pending_block: PendingBlock) -> None:
        """Return when the records of this pending block are as safe as the flush mode promises: under `sync`, on disk.

        Raises the error of the pending block if its records could not be written.
        """
        # Group commit: the first thread at the gate waits for `_io`, and meanwhile other threads add to the pending
        # block. They wait at the gate, not for `_io`: there they would queue behind the next pending block's sync only
        # to find that theirs is done (measured with 16 threads: 1.7 appends a sync that way, 8 this way).
        if not self._durable_appends:
            return
        with pending_block.gate:
            if not pending_block.written and pending_block.error is None:
                self._flush(sync=True, only=pending_block)
        if pending_block.error is not None:
            raise _copy_error(pending_block.error)

    def sync(self) -> None:
        """Return when all records that were appended before are on disk."""
        self._check_writable()
        self._flush(sync=True)

    def write_out(self) -> None:
        """Write all appended records to the operating system, and under `sync` to disk: they survive a kill."""
        self._check_writable()
        self._flush(
            sync=self._durable_appends
        )  # under `sync`, threads that wait for a pending block treat it as durable once it is written

    def check_size(
        self, payloads: list[bytes], extras: list[ColumnValue], largest: int, *, limited: bool = True
    ) -> int:
        """Return the size of these messages together, in bytes.

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
        # Checked before anything is added to the pending block.
        if total + _COLUMNS_MAX * count > BLOCK_MAX // 2:
            raise MessageTooLarge(
                f"a batch of {count} messages and {total} bytes is too large for one block of the log {self.name!r}; "
                "nothing was written: append it in parts"
            )
        return total

    def tick(self) -> float | None:
        """Flush if due, and try to recover; return in how many seconds to call again, None if there is no more work.

        Under `sync` there is nothing to flush, and appends recover the log.
        """
        flush = self.settings.flush
        if flush.mode == "sync" or not (self._append_error is None or self.recover()):
            return _RECOVERY_PAUSE_S if self.suspended else None
        interval = flush.interval_ns / 1e9
        with self._lock:
            if not self._has_work():
                if (
                    self.pending_block.end != self._end_at_tick
                ):  # it is in use: waking the ticker again and again would cost more
                    self._end_at_tick = self.pending_block.end
                    self._waiting_since = None
                    return interval
                self.pending_block.bytes_left = -1  # the next append takes the slow path and wakes the ticker
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
        except HoldfastError as error:  # the next append tries again and raises
            logger.warning("flush failed, will retry: log=%s error=%s", self.name, error, extra={"log": self.name})
        return interval

    @property
    def suspended(self) -> bool:
        """Whether appends are rejected until the disk works again, after a failed sync."""
        writer = self._writer
        return writer is not None and writer.recoverable and isinstance(self._append_error, WriterStopped)

    def recover(self, *, at_once: bool = False) -> bool:
        """Try to resume after a disk failure, once a second or `at_once`; return whether appends are accepted.

        Under `sync` unconfirmed records are dropped. Under the weaker modes all accepted records are kept: written ones
        are checked and written again, the others wait in memory.
        """
        if not self.suspended or not (at_once or self.clock.monotonic() >= self._recover_at):
            return self._append_error is None
        with self._io:
            writer = self._writer
            if writer is None or not self.suspended:  # another thread did it, or closed the log
                return self._append_error is None
            self._recover_at = self.clock.monotonic() + _RECOVERY_PAUSE_S
            try:
                writer.recover()
            except (OSError, Corrupt) as error:
                if isinstance(error, OSError) and not is_reported(error):
                    raise
                logger.warning("log recovery failed, will retry: log=%s error=%s", self.name, error, extra=self.fields)
                return False
            with self._lock, self._blocks_section:
                if self._durable_appends:
                    self.pending_block = self._new_pending_block(writer.end, None)
                    self._keep_written_recent()
                else:
                    self.pending_block.bytes_left, self._asleep = -1, True
                self._append_error = None
        logger.warning("log recovered after a disk failure: log=%s", self.name, extra=self.fields)
        self._wake()
        return True

    def close(self) -> None:
        """Write and sync accepted records, then close the files; idempotent.

        If that fails (a full disk) the log stays open, so that closing can be tried again. A log that has stopped is
        closed without writing; under `batch` and `async` this raises `WriterStopped`, because accepted records are
        lost.
        """
        self.recover(at_once=True)
        with self._io:
            if self.closed and not self._closing_files:
                return
            writer = self._writer
            stopped = writer.stopped if writer is not None else None
            drained = writer is None or stopped is not None
            while not self.closed:
                if not drained:
                    self._write_out(sync=True)
                with self._lock:  # records that others appended meanwhile were accepted, and are written too
                    if drained or not (self.pending_block.payloads or self._unwritten):
                        self._closing_files = True
                        self._fail_appends(Closed(f"the log {self.name!r} is closed: open the store again"))
            if writer is not None:
                with self._errors_as_ours("closing"):
                    writer.close()
            self._closing_files = False
        self._notify()
        if stopped is not None and not self._durable_appends:
            raise _copy_error(stopped)  # accepted records are lost, and perhaps no caller has got an error yet

    def close_discarding(self) -> None:
        """Close a log that is deleted: a failure to write accepted records is only logged."""
        try:
            self.close()
        except HoldfastError as error:
            logger.info("log deleted with unwritten records: log=%s error=%s", self.name, error, extra=self.fields)
            with self._io:
                self._fail_appends(Closed(f"the log {self.name!r} was deleted"))

    def detach_after_fork(self) -> None:
        """Mark the log as closed. Called in a forked child: files, threads and locks are those of the parent."""
        self._lock = threading.RLock()
        self._acquire, self._release = self._lock.acquire, self._lock.release
        self._io = threading.Lock()
        self._closing_files = False
        self._fail_appends(
            Closed(f"the log {self.name!r} was opened before this process was forked: open the store again here")
        )

    @property
    def fields(self) -> dict[str, str]:
        """The `extra` of log messages about this log."""
        return {"log": self.name}

    def attach(self, view: ReadView) -> None:
        """Notify this view of new records, and keep the last pending blocks in memory for it."""
        with self._lock, self._blocks_section:
            self._views = (*self._views, view)
            self.is_shared = len(self._views) > 1
            if not self._recent and self._writer is not None:
                self._recent.extend(
                    pending_block
                    for pending_block in (self._unwritten, self.pending_block)
                    if pending_block is not None
                )

    def notify_readers(self) -> None:
        """Notify the views: records put under a weaker flush mode can be read at once."""
        for view in self._views:
            view.wake()

    def detach(self, view: ReadView) -> None:
        """Stop notifying this view."""
        with self._lock, self._blocks_section:
            self._views = tuple(other for other in self._views if other is not view)
            self.is_shared = len(self._views) > 1
            if not self._views:
                self._recent.clear()
                self._recent_bytes = 0

    @property
    def recent_bytes(self) -> int:
        """Bytes of memory of the blocks that are kept for views, without the open one."""
        return self._recent_bytes

    def limit_recent(self, most: int) -> int:
        """Limit the memory of written blocks that are kept for all views; return how many bytes were released."""
        self._recent_limit = most
        return self._release_recent(most)

    def _release_recent(self, most: int) -> int:
        """Release the oldest of the blocks that are kept for views, if they are written; return how many bytes."""
        before, writer = self._recent_bytes, self._writer
        if writer is None:
            return 0
        with self._lock, self._blocks_section:
            # By the end that readers find in the segments: if the flush of a block was interrupted, it may be written
            # and not marked so; and readers do not find a block yet that is only just written.
            segments = writer.segments
            self._pop_recent(most, (segments[-1].end or 0) if segments else 0)
            return before - self._recent_bytes

    def _pop_recent(self, most: int, readable: int) -> None:
        while (
            self._recent_bytes > most and self._recent[0].end <= readable and self._recent[0] is not self.pending_block
        ):
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
        return isinstance(self._append_error, Closed)

    def _start_writing(self, writer: SegmentWriter) -> None:
        self._writer = writer
        self._append_error = None
        self.pending_block = self._new_pending_block(writer.end, None)
        if not self._durable_appends:
            self.pending_block.bytes_left, self._asleep = -1, True

    def _ensure_capacity(self, size: int, count: int) -> None:
        """Flush, wake the ticker or recover, so that the pending block can accept so much; raise if that fails."""
        if self._append_error is not None:
            self.recover()
        with self._lock, self._blocks_section:
            pending_block = self.pending_block
            if self._append_error is not None:
                raise _copy_error(self._append_error)
            if self._asleep:
                self._wake()
                pending_block.bytes_left = self.settings.flush.bytes
                self._asleep = False
            if not pending_block.payloads:  # a batch that is larger than a block gets its own
                pending_block.bytes_left = max(pending_block.bytes_left, size)
                pending_block.stop = max(pending_block.stop, pending_block.first + count)
                return
        if pending_block.bytes_left < size or pending_block.end + count > pending_block.stop:
            self._flush(sync=self.settings.flush.mode != "async")

    def _new_pending_block(self, first: int, taken: PendingBlock | None) -> PendingBlock:
        stop = first + BLOCK_RECORDS
        records = self.settings.roll.records
        if records is not None and self._writer is not None:
            # A pending block ends where the segment will end, so that rolling by count is exact.
            active = self._writer.active
            base = active.base if active is not None else taken.first if taken is not None else first
            if taken is not None and taken.end - base > records:
                base = taken.first
            stop = min(stop, base + records if base + records > first else first + records)
        return PendingBlock(first, self.settings.flush.bytes, stop)

    def _flush(self, *, sync: bool, only: PendingBlock | None = None) -> None:
        with self._io:
            if only is None or not (only.written or only.error):
                self._write_out(sync=sync)

    def _write_out(self, *, sync: bool, tell: bool = True) -> None:
        """Write the pending blocks, and with `sync` sync them. Called with `_io` held."""
        writer = self._writer
        if self._append_error is not None or writer is None:
            raise _copy_error(self._append_error or Closed(f"the log {self.name!r} is closed"))
        segments = len(writer.segments)
        done: list[PendingBlock] = []
        try:
            if self._unwritten is not None:
                self._write_unwritten(writer, done, syncs=sync or not tell)
            section = self._blocks_section
            with self._lock:
                if section.open:
                    section.mend()
                if self.pending_block.payloads:
                    fresh = self._new_pending_block(self.pending_block.end, self.pending_block)
                    section.open = True
                    if self._views:
                        self._recent.append(fresh)
                        self._recent_bytes += self.pending_block.weight
                    self._unwritten, self.pending_block = self.pending_block, fresh
                    section.open = False
            if self._unwritten is not None:
                self._write_unwritten(writer, done, syncs=sync or not tell)
            if sync:
                writer.sync(tell=tell)
        except WriterStopped as stopped:
            self._drop_unconfirmed(done, stopped)
            raise
        except OSError as error:
            if not is_reported(error):  # raised by a signal handler: unwritten blocks stay for the next call
                raise
            problem = storage_error(error, f"writing to the log {self.name!r} in", self.folder)
            if self._durable_appends:
                self._drop_unconfirmed(done, problem)
            raise problem from error
        for pending_block in done:
            pending_block.written = True
        if done and self.written is not None:
            self.written()
        if self._recent_bytes > self._recent_limit:
            self._release_recent(self._recent_limit)
        if len(writer.segments) > segments:
            self._on_roll()
        if tell:
            self._notify()

    def _write_unwritten(self, writer: SegmentWriter, done: list[PendingBlock], *, syncs: bool) -> None:
        """Write the block in `_unwritten`. On a full disk, make space and try again, a few times."""
        pending_block = self._unwritten
        assert pending_block is not None
        tries, end = 0, pending_block.end
        while end > writer.end:  # otherwise it is written, perhaps just before an interrupt
            tries += 1
            try:
                if self.disk_space is not None:
                    self.disk_space.check()
                self._before_first_write()
                writer.write(pending_block, syncs=syncs)
            except OSError as error:
                is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                if not is_full or self.disk_space is None or tries == _TRIES or not self.disk_space.make(self):
                    raise
        if pending_block.extras:
            self.columns_written.update(pending_block.extras)
        done.append(pending_block)
        self._unwritten = None

    def _drop_unconfirmed(self, done: list[PendingBlock], problem: HoldfastError) -> None:
        """Drop records that were never confirmed: their callers get the error, their sequences are assigned again.

        Under `batch` and `async`, if the writer can recover, the records are kept instead, and written then.
        """
        writer = self._writer
        assert writer is not None
        stops = isinstance(problem, WriterStopped)
        if stops:
            self._recover_at = self.clock.monotonic() + _RECOVERY_PAUSE_S
        with self._lock, self._blocks_section:
            if stops and writer.recoverable and not self._durable_appends:
                # They were accepted, and readers may have seen them: they are kept, and written when the disk works.
                for pending_block in done:
                    pending_block.written = True
                self._append_error, self.pending_block.bytes_left = problem, -1
                self._wake()
            else:
                self._fail([*done, *self._unwritten_blocks()], problem)

    def _unwritten_blocks(self) -> list[PendingBlock]:
        return [pending_block for pending_block in (self._unwritten, self.pending_block) if pending_block is not None]

    def _fail(self, pending_blocks: list[PendingBlock], problem: HoldfastError) -> None:
        assert self._writer is not None
        for pending_block in pending_blocks:
            pending_block.error = problem
        self._unwritten = None
        if isinstance(problem, WriterStopped):
            self._fail_appends(problem)
        else:
            self.pending_block = self._new_pending_block(self._writer.end, None)
        self._keep_written_recent()

    def _keep_written_recent(self) -> None:
        """Drop the blocks for views that are not written, except the open one."""
        if self._views:
            self._recent = deque(
                [*(pending_block for pending_block in self._recent if pending_block.written), self.pending_block]
            )
            self._recent_bytes = sum(pending_block.weight for pending_block in self._recent if pending_block.written)

    def _repair_pending_blocks(self) -> None:
        """Complete or undo a change of the pending blocks that was cut off. Called with `_lock` held."""
        pending_blocks = self._unwritten_blocks()
        for pending_block in pending_blocks:
            pending_block.forget_after(len(pending_block.payloads))
        if (
            problem := next(
                (pending_block.error for pending_block in pending_blocks if pending_block.error is not None), None
            )
        ) is not None:
            self._fail(pending_blocks, problem)
        if self._views and self._writer is not None:
            closed = [
                pending_block
                for pending_block in self._recent
                if pending_block.payloads and pending_block is not self.pending_block
            ]
            if not closed and self._unwritten is not None:
                closed.append(self._unwritten)
            self._recent_bytes = sum(pending_block.weight for pending_block in closed)
            self._recent = deque([*closed, self.pending_block])
        elif not self._views:
            self._recent_bytes = 0
            self._recent = deque()

    def _fail_appends(self, reason: HoldfastError) -> None:
        self._append_error = reason
        self.pending_block = PendingBlock(self._writer.durable_end if self._writer is not None else 0, -1, 0)

    def _has_work(self) -> bool:
        writer = self._writer
        unsynced = writer is not None and self.settings.flush.mode == "batch" and writer.durable_offset < writer.offset
        return bool(self.pending_block.payloads) or self._unwritten is not None or unsynced

    def _check_writable(self) -> None:
        if self._append_error is not None and not self.recover():
            raise _copy_error(self._append_error)

    def _too_large(self, size: int) -> MessageTooLarge:
        return MessageTooLarge(
            f"a message of {size} bytes is over the limit of {self._max_message} bytes of the log {self.name!r}; "
            "nothing was written: send less, or open the log with a larger max_message"
        )

    @contextlib.contextmanager
    def _errors_as_ours(self, doing: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not is_reported(error):
                raise
            raise storage_error(error, f"{doing} the log {self.name!r} in", self.folder) from error

    def _before_first_write(self) -> None:
        """Prepare the first write. Called with `_io` held before each block is written; may raise OSError."""
        self._assigned_any = True

    def _on_roll(self) -> None:
        """Apply retention. Called with `_io` held, after a segment was added."""

    def _notify(self) -> None:
        """Notify readers that there may be more to read."""
        self.notify_readers()


def _copy_error(error: HoldfastError) -> HoldfastError:
    """Return a copy of the error for another caller: raising one exception twice would mix the tracebacks."""
    fresh = type(error)(*error.args)
    fresh.__cause__ = error.__cause__
    return fresh
