"""The writing half of a log: threads append to a shared pending block, and one of them writes and syncs it for all."""

import contextlib
import errno
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import compress
from operator import methodcaller
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from holdfast.base.clock import Clock
from holdfast.base.critical_section import CriticalSection
from holdfast.base.errors import (
    Closed,
    Corrupt,
    HoldfastError,
    MessageTooLarge,
    ReadOnly,
    StorageError,
    WriterStopped,
    is_reported,
    storage_error,
)
from holdfast.base.files import translate_os_errors
from holdfast.log.batch import ALL, ColumnValue, check_batch
from holdfast.log.delayed_sync import DelayedSync
from holdfast.log.layout import BLOCK_MAX
from holdfast.log.pending_block import PendingBlock, PendingBlockSpan, ReadView, RecentBlocks, seal
from holdfast.log.record import Headers, Message
from holdfast.log.segment import Segment
from holdfast.log.settings import LogSettings
from holdfast.log.writer import SegmentWriter

__all__ = ["Appender", "DiskSpace", "Frozen", "accepted_before", "freeze", "write_notice"]

logger = logging.getLogger("holdfast.log")

T = TypeVar("T")

BLOCK_RECORDS = 1 << 16
_COLUMNS_MAX = 64  # the most bytes of a record in the columns, without keys and headers
_RECOVERY_PAUSE_S = 1.0
"""Seconds between a disk failure, or an attempt to recover from it, and the next attempt."""
_TRIES = 4


class ReservedSpace(Protocol):
    """Disk space that is reserved for journals."""

    released: bool
    """Whether the reserve is in use, because the disk is full."""


class DiskSpace(Protocol):
    """Policy for disk space, asked before a block is written and when the disk is full."""

    @property
    def reserve(self) -> ReservedSpace:
        """The reserve of the store."""
        ...

    def check(self) -> None:
        """Raise an OSError if the free space is reserved for journals. Called if the reserve is in use."""
        ...

    def make(self, log: "Appender") -> bool:
        """Try to free space on a full disk, and return whether there is more. Called with the log's I/O lock held."""
        ...


class _WriteNotice(threading.local):
    appender: "Appender | None" = None


write_notice = _WriteNotice()
"""Its `appender` is the one whose readers this thread notifies that records were written or are durable.

Except under `sync` they were visible before. Readers that know all records up to the end need not look for more.
"""


class _PayloadChecks(threading.local):
    """Whether this thread appends messages whose payloads are not checked."""

    suspended = False


_payload_checks = _PayloadChecks()


@contextlib.contextmanager
def accepted_before() -> Iterator[None]:
    """Return a context in which this thread appends messages that were accepted before: no payload is checked."""
    _payload_checks.suspended = True
    try:
        yield
    finally:
        _payload_checks.suspended = False


class Frozen(NamedTuple):
    """What was appended to a log at one moment."""

    end: int
    """The sequence after its last record."""
    pending_block: PendingBlock | None
    """The pending block that was not written yet, and accepts no more records."""


class Appender:
    """The writing half of a log.

    Locks: a pending block's gate is taken before `_io` (for writing to files), and `_io` before `_lock` (for the
    pending block); the common append takes only `_lock`. Invariant: records are in the writer's segment, in
    `_unwritten` or in the pending block, in this order of sequences without a gap, and at most two pending blocks are
    unwritten.
    Signals: an exception from a handler (Ctrl-C) may be raised at any call. The pending blocks and their contents are
    changed in the section `_blocks_section` (except by the common append), which repairs a change that was cut off;
    steps with files can be repeated.
    Other parts of the log reach the segment writer through `exclusively` and `insert`, which hold `_io` for them.
    """

    __slots__ = (  # a dictionary of so many attributes would take 1.6 KB of each log
        "__weakref__",
        "_acquire",
        "_append_error",
        "_asleep",
        "_before_first_write",
        "_blocks_section",
        "_closing_files",
        "_delayed_sync",
        "_durable_appends",
        "_end_at_tick",
        "_io",
        "_lock",
        "_max_message",
        "_now",
        "_on_roll",
        "_on_visible",
        "_payload_check",
        "_recover_at",
        "_release",
        "_unwritten",
        "_waiting_since",
        "_wake",
        "_writer",
        "clock",
        "columns_written",
        "disk_space",
        "folder",
        "followers",
        "name",
        "pending_block",
        "recent",
        "settings",
        "written",
    )

    def __init__(
        self,
        name: str,
        folder: Path,
        settings: LogSettings,
        clock: Clock,
        wake: Callable[[], None],
        sync_later: Callable[[], None],
    ) -> None:
        """Create an appender that accepts no records before `start`; that of a read-only log never does.

        `wake` is called when there is something to do for `tick`. Under `async`, `sync_later` is called once something
        is written, and requests a call of `sync_if_due`.
        """
        self.name = name
        self.folder = folder
        self.settings = settings
        self.clock = clock
        self._wake = wake
        self._delayed_sync = DelayedSync(clock, sync_later)
        self._now = clock.time_ns
        self._max_message = settings.max_message
        """-1 if payloads are checked: then every message takes the path of those that are too large."""
        self._payload_check: Callable[[bytes], None] | None = None
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
        self.recent = RecentBlocks()
        """Changed with `_lock` held, in `_blocks_section`."""
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
        self._before_first_write: Callable[[], None] | None = None
        """None once a block was written, or begun, since the log was opened."""
        self._on_roll: Callable[[SegmentWriter], None] = _nothing
        self._on_visible: Callable[[], None] = _nothing
        self.columns_written: set[str] = set()
        """The optional columns of the blocks that were written since the log was opened."""
        self.disk_space: DiskSpace | None = None
        self.followers = 0
        """How many threads wait for records: only then `on_visible` is called. May be too high after an interrupt."""

    def start(
        self,
        writer: SegmentWriter,
        *,
        before_first_write: Callable[[], None],
        on_roll: Callable[[SegmentWriter], None],
        on_visible: Callable[[], None],
    ) -> None:
        """Accept records from now on.

        `before_first_write` is called before the first block since the log was opened, and may raise OSError. `on_roll`
        is called after segments were added. Both are called with `_io` held. `on_visible` is called when there may be
        more to read, after the views were notified.
        """
        self._before_first_write = before_first_write
        self._on_roll = on_roll
        self._on_visible = on_visible
        self._writer = writer
        self._append_error = None
        self.pending_block = self._new_pending_block(writer.end, None)
        if not self._durable_appends:
            self.pending_block.bytes_left, self._asleep = -1, True

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
            self._check_messages([payload], size)
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

    def commit_unless_begun(self, pending_block: PendingBlock) -> None:
        """As `commit`, but return at once if another thread is writing this pending block, which is not written then.

        For callers that then wait for a replica, whose cut writes the pending block if that thread was interrupted.
        """
        held: list[bool] = []
        try:
            if not pending_block.written:
                # Taken and recorded by one call of C code, as in `if_idle`.
                held.extend(map(pending_block.gate.acquire, (False,)))
                if True in held and not pending_block.written and pending_block.error is None:
                    self._flush(sync=True, only=pending_block)
        finally:
            if True in held:
                pending_block.gate.release()
        if pending_block.error is not None:
            raise _copy_error(pending_block.error)

    def sync(self) -> None:
        """Return when all records that were appended before are on disk."""
        self.check_writable()
        self._flush(sync=True)

    def sync_without_notifying(self) -> None:
        """As `sync`, but readers are notified by `tell`. Except under `sync`, others may write during the sync.

        Do not call it in the main thread, where signal handlers may raise.
        """
        if self._durable_appends:  # threads that wait for a pending block treat it as durable once it is written
            with self._io:
                self._write_out(sync=True, tell=False)
            return
        self.check_writable()
        with self._io:
            self._write_out(sync=False, tell=False)
            writer = self._writer
            assert writer is not None
            begun = self._stopping(writer.begin_sync)
        if begun is not None and not writer.await_disk(begun):
            with self._io:
                self._stopping(writer.check)

    def tell(self, *, patient: bool = False) -> None:
        """Publish the records that `sync_without_notifying` made durable, to readers here and in other processes.

        Unless `patient`, this is left to the thread that is writing, if there is one.
        """
        self.if_idle(self._publish, wait=patient)
        self._notify_written()

    def _publish(self, writer: SegmentWriter) -> None:
        if not self.closed:
            writer.tell()

    def write_out(self) -> None:
        """Write all appended records to the operating system, and under `sync` to disk: they survive a kill."""
        self.check_writable()
        self._flush(
            sync=self._durable_appends
        )  # under `sync`, threads that wait for a pending block treat it as durable once it is written

    def settle(self, pending_block: PendingBlock | None) -> tuple[tuple[Segment, ...], int]:
        """Write a block of a cut, unless another thread has, and return the segments and the last timestamp.

        In one turn at the files: with 256 threads that append, four turns took 120 ms, and one takes 50.
        """
        if pending_block is not None:
            self.check_writable()
        with self._io:
            if pending_block is not None and not (pending_block.written or pending_block.error):
                self._write_out(sync=self._durable_appends, upto=pending_block)
            assert self._writer is not None
            return tuple(self._writer.segments), self._writer.last_timestamp

    def check_size(
        self, payloads: list[bytes], extras: list[ColumnValue], largest: int, *, limited: bool = True
    ) -> int:
        """Return the size of these messages together, in bytes.

        Raises `MessageTooLarge` if they do not fit into one block or, if `limited`, one is above the limit of the log;
        and `InvalidArgument` if they are `limited`, payloads are checked, and one does not fit the schema.
        """
        count = len(payloads)
        total = sum(map(len, payloads))
        if limited and (largest > self._max_message or total > self._max_message):
            self._check_messages(payloads, largest)
        for extra in extras:
            total += extra.size * (count if extra.position == ALL else 1)
        # Checked before anything is added to the pending block.
        if total + _COLUMNS_MAX * count > BLOCK_MAX // 2:
            raise MessageTooLarge(
                f"a batch of {count} messages and {total} bytes is too large for one block of the log {self.name!r}; "
                "nothing was written: append it in parts"
            )
        return total

    def check_payloads_with(self, check: Callable[[bytes], None] | None) -> None:
        """Call this for each payload from now on, before anything is added; it raises `InvalidArgument`. None: nothing.

        Messages that were accepted before, and only move, are not checked.
        """
        self._payload_check = check
        self._max_message = self.settings.max_message if check is None else -1

    @property
    def checks_payloads(self) -> bool:
        """Whether payloads are checked."""
        return self._payload_check is not None

    def check_payloads(self, payloads: Iterable[bytes]) -> None:
        """Raise `InvalidArgument` if payloads are checked, and one of these does not fit the schema."""
        if (check := self._payload_check) is not None and not _payload_checks.suspended:
            for payload in payloads:
                check(payload)

    def _check_messages(self, payloads: Sequence[bytes], largest: int) -> None:
        """Raise if a payload, or a message of the size `largest`, is above the limit, or does not fit the schema."""
        largest = max(largest, max(map(len, payloads), default=0))
        if largest > self.settings.max_message:
            raise self._too_large(largest)
        self.check_payloads(payloads)

    def tick(self) -> float | None:
        """Flush if due, and try to recover; return in how many seconds to call again, None if there is no more work.

        Under `sync` there is nothing to flush, and appends recover the log. Under `async` a sync of written records is
        requested, if no other sync is expected.
        """
        again = self._flush_if_due()
        writer, is_async = self._writer, self.settings.flush.mode == "async"
        if is_async and writer is not None and self._append_error is None and not writer.is_durable:
            self._delayed_sync.request()
        return again

    def _flush_if_due(self) -> float | None:
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

    def sync_if_due(self) -> float | None:
        """Sync records that were written a while ago; return the seconds to the next call, None if that is done.

        Only records that were written to the operating system, and without the I/O lock during the sync: appends
        continue.
        """
        left = self._delayed_sync.due_in()
        if left > 0 and self._append_error is None:
            return left
        self._delayed_sync.begin()
        with contextlib.suppress(
            Closed, WriterStopped
        ):  # the writer has logged why it stopped; the next append raises it
            self._sync_written()
        return None

    def _sync_written(self) -> None:
        with self._io:
            writer = self._writer
            if writer is None or self._append_error is not None:
                return
            begun = self._stopping(lambda: writer.begin_sync(ahead=False))
        if begun is None:
            return
        is_on_disk = writer.await_disk(begun)
        with self._io:
            if not is_on_disk:
                self._stopping(writer.check)
            if not self.closed:
                writer.tell()

    @property
    def gathered_bytes(self) -> int:
        """How many bytes are appended and not written yet; 0 if the next append must make space first."""
        bytes_left = self.pending_block.bytes_left
        return self.settings.flush.bytes - bytes_left if bytes_left >= 0 else 0

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
                    self.recent.keep_written(self.pending_block)
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
                with self.translate_errors("closing"):
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

    def exclusively(self, step: Callable[[SegmentWriter], T], *, drained: bool = False) -> T:
        """Run a step while no other thread uses the files of the log, which this process writes.

        If `drained`, all records that were appended before are written and synced first.
        """
        with self._io:
            if drained:
                self._write_out(sync=True)
            assert self._writer is not None
            return step(self._writer)

    def if_idle(
        self, step: Callable[[SegmentWriter], T], *, asking: "Appender | None" = None, wait: bool = False
    ) -> T | None:
        """As `exclusively`, but return None instead of waiting for another thread, unless `wait`.

        `asking` is the appender whose files the calling thread uses: for that one the step runs at once.
        """
        if self._writer is None:
            return None
        if asking is self:
            return step(self._writer)
        held: list[bool] = []
        try:
            # Taken and recorded by one call of C code: a signal's handler that raises afterwards finds it in the list.
            held.extend(map(self._io.acquire, (wait,)))
            return step(self._writer) if True in held else None
        finally:
            if True in held:
                self._io.release()

    def insert(self, count: int, reserve: Callable[[SegmentWriter], T], write: Callable[[SegmentWriter, T], None]) -> T:
        """Assign the next `count` sequences to blocks that come from no pending block; return the result of `reserve`.

        With everything before them durable, `reserve` notes durably whose they are. Then `write` writes the blocks,
        which are durable when this returns. If it fails, the log stops, because the sequences behind them may be
        assigned already: nothing can be written before they are.
        """
        with self._io, self.translate_errors("adopting a batch into"):
            while True:
                self._write_out(sync=True)
                writer = self._writer
                assert writer is not None
                with self._lock:
                    if self.pending_block.payloads or self._unwritten is not None:
                        continue  # others appended meanwhile
                    end, reserved = writer.end, self._stopping(partial(reserve, writer))
                    self._skip_to(end + count)
                    break
            self._write_inserted(writer, partial(write, writer, reserved))
        self._notify()
        return reserved

    def resume_insert(self, end: int, write: Callable[[SegmentWriter], None]) -> None:
        """Finish an `insert` up to `end` that a crash interrupted. Call it before anything is appended."""
        with self._io, self.translate_errors("adopting a batch into"), self._lock:
            writer = self._writer
            assert writer is not None
            self._skip_to(end)
            self._write_inserted(writer, partial(write, writer))

    def _skip_to(self, sequence: int) -> None:
        """Continue with this sequence. Called with both locks held, and nothing unwritten."""
        fresh = self._new_pending_block(sequence, None)
        if self._asleep:
            fresh.bytes_left = -1
        self.pending_block = fresh
        self.recent.restart(fresh)

    def _write_inserted(self, writer: SegmentWriter, write: Callable[[], None]) -> None:
        segments = len(writer.segments)
        try:
            if self._before_first_write is not None:
                self._before_first_write()
                self._before_first_write = None
            write()
        except (OSError, Corrupt) as error:
            stopped = writer.stop(f"the adoption of a batch failed: {error}", recoverable=False)
            self._drop_unconfirmed([], stopped)
            raise stopped from error
        except BaseException as error:  # an interrupt: opening the log finds out how far it came
            reason = f"the adoption of a batch was interrupted ({error!r})"
            self._drop_unconfirmed([], writer.stop(reason, recoverable=False))
            raise
        if len(writer.segments) > segments:
            self._on_roll(writer)

    def roll(self) -> int:
        """Begin a new segment, unless the last one is empty; return its first sequence."""
        self.check_writable()

        def begin_segment(writer: SegmentWriter) -> int:
            writer.begin_next_segment()
            return writer.segments[-1].base if writer.segments else self.pending_block.end

        with self.translate_errors("rolling"):
            return self.exclusively(begin_segment, drained=True)

    def close_idle_files(self, *, at_once: bool) -> None:
        """Close the files until the next write, if no thread is writing: see `holdfast.base.open_files`.

        Unless `at_once`, files stay open that were used since the last call, or that would have to be synced.
        """
        writer = self._writer
        if writer is None:
            return
        was_used, writer.used = writer.used, False
        if at_once or (writer.is_durable and not was_used):
            self.if_idle(self._close_files)  # the caller may hold the I/O lock of another log

    def _close_files(self, writer: SegmentWriter) -> None:
        try:
            writer.close_idle_files()
        except WriterStopped as stopped:
            self._drop_unconfirmed([], stopped)
        except OSError as error:  # the files are closed, and all was on disk before
            if not is_reported(error):
                raise
            logger.warning("closing idle files failed: log=%s error=%s", self.name, error, extra=self.fields)

    def write_for_readers(self) -> None:
        """Write accepted records, so that readers find them in segments. Under `sync` these are not readable yet."""
        if self._durable_appends or self._append_error is not None:
            return
        if self.pending_block.payloads or self._unwritten is not None:
            # On a full disk, or while another thread closes the log, reads still work; the next append raises.
            with contextlib.suppress(StorageError, Closed):
                self._flush(sync=False)

    def translate_errors(self, doing: str) -> AbstractContextManager[None]:
        """Turn errors of the system into a `StorageError` that names the log and what was being done."""
        return translate_os_errors(f"{doing} the log {self.name!r} in", self.folder)

    @property
    def fields(self) -> dict[str, str]:
        """The `extra` of log messages about this log."""
        return {"log": self.name}

    def attach(self, view: ReadView) -> None:
        """Notify this view of new records, and keep the last pending blocks in memory for it."""
        with self._lock, self._blocks_section:
            self.recent.attach(view, () if self._writer is None else self._unwritten_blocks())

    def detach(self, view: ReadView) -> None:
        """Stop notifying this view."""
        with self._lock, self._blocks_section:
            self.recent.detach(view)

    def recent_between(self, start: int, stop: int) -> list[PendingBlockSpan]:
        """Return those of these records that are in blocks in memory, oldest first."""
        with self._lock:
            if self._blocks_section.open:
                self._blocks_section.mend()
            return self.recent.between(start, stop)

    def recent_at(self, sequence: int, stop: int) -> PendingBlockSpan | None:
        """Return this record and those behind it, up to `stop`, of the block in memory that holds it, if one does."""
        with self._lock:
            if self._blocks_section.open:
                self._blocks_section.mend()
            return self.recent.at(sequence, stop)

    def bytes_after(self, sequence: int) -> int:
        """For views: return the payload bytes that were appended from here on, counting the blocks in memory only."""
        with self._lock, self._blocks_section:
            return self.recent.bytes_after(sequence)

    def limit_recent(self, most: int) -> int:
        """Limit the memory of written blocks that are kept for all views; return how many bytes were released."""
        self.recent.limit = most
        return self.release_recent(most)

    def release_recent(self, most: int) -> int:
        """Release the oldest of the blocks that are kept for views, if they are written; return how many bytes."""
        recent, writer = self.recent, self._writer
        before = recent.bytes
        if writer is None:
            return 0
        with self._lock, self._blocks_section:
            # By the end that readers find in the segments: if the flush of a block was interrupted, it may be written
            # and not marked so; and readers do not find a block yet that is only just written.
            segments = writer.segments
            recent.release(most, (segments[-1].end or 0) if segments else 0, self.pending_block)
            return before - recent.bytes

    def durable_place(self) -> tuple[Path, int, int] | None:
        """Return the active segment, its durable bytes and the end of their records; None without an active segment."""
        writer = self._writer
        active = writer.active if writer is not None else None
        if writer is None or active is None:
            return None
        return active.path, writer.durable_offset, writer.durable_end

    def is_past(self, moment: int) -> bool:
        """Return whether a whole segment holds only records from before this moment. Cheap: it reads no file."""
        writer = self._writer
        if writer is None or not (segments := writer.segments):
            return False
        if len(segments) > 1 and segments[1].created < moment:
            return True
        return segments[-1].base < writer.end == self.pending_block.end and writer.last_timestamp < moment

    def has_segment_below(self, sequence: int) -> bool:
        """Return whether a whole segment holds only records before this one. Cheap: it reads no file."""
        writer = self._writer
        if writer is None or not (segments := writer.segments):
            return False
        return (len(segments) > 1 and segments[1].base <= sequence) or segments[-1].base < writer.end <= sequence

    @property
    def is_read_only(self) -> bool:
        """Whether another process writes the log."""
        return self._writer is None

    @property
    def is_accepting(self) -> bool:
        """Whether appends are accepted: the log is open for writing, and its disk works."""
        return self._append_error is None

    @property
    def has_unwritten(self) -> bool:
        """Whether records were appended that are not written yet."""
        with self._lock:
            return bool(self.pending_block.payloads) or self._unwritten is not None

    def check_open(self) -> None:
        """Raise `Closed` if the log was closed."""
        if self._append_error is not None and self.closed:
            raise Closed(*self._append_error.args)

    @property
    def closed(self) -> bool:
        """Whether the log was closed."""
        return isinstance(self._append_error, Closed)

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
            with self._io:
                if self.pending_block is pending_block:  # otherwise another thread that waited here has made space
                    self._write_out(sync=self.settings.flush.mode != "async")

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

    def _write_out(self, *, sync: bool, tell: bool = True, upto: PendingBlock | None = None) -> None:
        """Write the pending blocks, or those up to this one, and with `sync` sync them. Called with `_io` held."""
        writer = self._writer
        if self._append_error is not None or writer is None:
            raise _copy_error(self._append_error or Closed(f"the log {self.name!r} is closed"))
        segments = len(writer.segments)
        done: list[PendingBlock] = []
        try:
            if self._unwritten is not None:  # from a call that failed, or closed by a cut
                self._write_block(writer, done, tell=tell and not sync)
            if upto is None or upto not in done:
                self._write_block(writer, done, tell=tell and not sync)
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
        if self.recent.bytes > self.recent.limit:
            self.release_recent(self.recent.limit)
        if len(writer.segments) > segments:
            self._on_roll(writer)
        if tell and (self.recent.views or self.followers):
            self._notify_written()

    def _close_block(self) -> PendingBlock | None:
        """If the pending block has records, move it to `_unwritten`, which is free, and open the next one."""
        section = self._blocks_section
        with self._lock:
            if section.open:
                section.mend()
            closed = self.pending_block
            if closed.payloads and self._unwritten is None:  # otherwise a cut has closed one meanwhile
                fresh = self._new_pending_block(closed.first + len(closed.payloads), closed)
                section.open = True
                if self.recent.views:
                    self.recent.close_block(closed, fresh)
                self._unwritten, self.pending_block = closed, fresh
                section.open = False
        return self._unwritten

    def _write_block(self, writer: SegmentWriter, done: list[PendingBlock], *, tell: bool) -> None:
        """Write the block in `_unwritten` or, without one, the open block; without `tell`, a sync follows.

        On a full disk, make space and try again, a few times.
        """
        pending_block = self._unwritten or self._close_block()
        if pending_block is None:
            return
        tries, end = 0, pending_block.first + len(pending_block.payloads)
        while end > writer.end:  # otherwise it is written, perhaps just before an interrupt
            tries += 1
            try:
                if self.disk_space is not None and self.disk_space.reserve.released:
                    self.disk_space.check()
                if self._before_first_write is not None:
                    self._before_first_write()
                    self._before_first_write = None
                writer.put(seal(pending_block, writer.last_timestamp, writer.settings.codec), tell=tell)
            except OSError as error:
                is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
                if not is_full or self.disk_space is None or tries == _TRIES or not self.disk_space.make(self):
                    raise
        if pending_block.extras:
            self.columns_written.update(pending_block.extras)
        done.append(pending_block)
        self._unwritten = None

    def _freeze(self) -> Frozen | None:
        """Close the pending block to more records; return None if the log is closed. Called with `_lock` held."""
        writer = self._writer
        if writer is None or self.closed:
            return None
        if isinstance(self._append_error, WriterStopped):
            return Frozen(writer.durable_end, None)
        pending_block = self.pending_block
        end, gathered = pending_block.end, bool(pending_block.payloads)
        if gathered and self._unwritten is None and self.settings.roll.records is None:
            # Appends continue in the next one: they do not wait for the sync of the cut. Not if segments roll by count:
            # where the next block ends then depends on the segment, which another thread may be changing.
            self._close_block()
        elif gathered:
            # It accepts no more records, so that a block ends here. The next append treats it as full.
            pending_block.stop, pending_block.bytes_left = end, -1
        return Frozen(end, pending_block if gathered else self._unwritten)

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

    def _stopping(self, step: Callable[[], T]) -> T:
        """Run a step of the writer; if it raises `WriterStopped`, the log rejects appends. Called with `_io` held."""
        try:
            return step()
        except WriterStopped as stopped:
            if not self.closed:  # by another thread, meanwhile
                self._drop_unconfirmed([], stopped)
            raise

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
        self.recent.keep_written(self.pending_block)

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
        if self._writer is not None or not self.recent.views:
            self.recent.repair(self._unwritten, self.pending_block)

    def _fail_appends(self, reason: HoldfastError) -> None:
        self._append_error = reason
        self.pending_block = PendingBlock(self._writer.durable_end if self._writer is not None else 0, -1, 0)

    def _has_work(self) -> bool:
        writer = self._writer
        unsynced = writer is not None and self.settings.flush.mode == "batch" and writer.durable_offset < writer.offset
        return bool(self.pending_block.payloads) or self._unwritten is not None or unsynced

    def check_writable(self) -> None:
        """Raise if appends are rejected, after an attempt to recover."""
        if self._append_error is not None and not self.recover():
            raise _copy_error(self._append_error)

    def _too_large(self, size: int) -> MessageTooLarge:
        return MessageTooLarge(
            f"a message of {size} bytes is over the limit of {self.settings.max_message} bytes of the log "
            f"{self.name!r}; nothing was written: send less, or open the log with a larger max_message"
        )

    def _notify_written(self) -> None:
        """Notify readers that records were written or are durable: see `write_notice`."""
        write_notice.appender = self
        try:
            self._notify()
        finally:
            write_notice.appender = None

    def _notify(self) -> None:
        """Notify readers that there may be more to read."""
        for view in self.recent.views:
            view.wake()
        if self.followers:
            self._on_visible()


def freeze(appenders: Sequence[Appender]) -> list[Frozen | None]:
    """Return what was appended to these logs at one moment; None for those that are closed.

    So if a record of one log was caused by a record of another one, both are included or only the cause. Running writes
    and syncs continue: only the pending blocks are locked. No other thread holds two of these locks at once, and only
    one thread may freeze at a time.
    """
    # Taken and recorded, and released, by one call of C code each: an interrupt leaves none of them taken.
    locks = [appender._lock for appender in appenders]
    held: list[bool] = []
    releases = map(methodcaller("release"), compress(locks, held))
    try:
        held.extend(map(methodcaller("acquire"), locks))
        return [appender._freeze() for appender in appenders]
    finally:
        deque(releases, maxlen=0)


def _nothing(*_: object) -> None:
    """Do nothing."""


def _copy_error(error: HoldfastError) -> HoldfastError:
    """Return a copy of the error for another caller: raising one exception twice would mix the tracebacks."""
    fresh = type(error)(*error.args)
    fresh.__cause__ = error.__cause__
    return fresh
