"""The core of a queue: its lock, and its state in memory with a write-ahead journal and periodic checkpoints."""

import contextlib
import logging
import threading
from collections.abc import Callable
from types import TracebackType

from holdfast.base.clock import Clock
from holdfast.base.critical_section import CriticalSection
from holdfast.base.errors import Closed, HoldfastError, ReadOnly, StorageError, WriterStopped
from holdfast.base.metrics import Registry
from holdfast.log.log import Log, close_discarding
from holdfast.log.pending_block import PendingBlock
from holdfast.queue.alarm import Alarm
from holdfast.queue.body_cache import BodyCache
from holdfast.queue.checkpoint_store import CheckpointStore
from holdfast.queue.context import QueueContext
from holdfast.queue.events import Event, encode
from holdfast.queue.journal import Journal
from holdfast.queue.metrics import Measures
from holdfast.queue.queue_state import QueueState
from holdfast.queue.recovery import StateLoader
from holdfast.queue.retries import EVENTS_MAX, RetryPolicy
from holdfast.queue.settings import QueueSettings
from holdfast.queue.waiters import WaitQueue
from holdfast.state import State

__all__ = ["QueueCore", "Turn"]

logger = logging.getLogger("holdfast.queue")


class QueueCore:
    """What all parts of a queue share: lock, state, journal and checkpoints.

    Files: `journals/<name>/` with the journal's segments and `queue.json`; its rows in `state/`. Callers wait for the
    sync of an event after they have released `lock`. It is held during a sync only by rare work: checkpoints, `seek`,
    `shorten`, `close`, loading the state again, and if a full pending block must be written first.

    Invariant: an event is in the journal before it is applied, and durable before its result is returned to a caller,
    as far as the flush mode promises. After an error other than `HoldfastError` the state is loaded again.
    """

    state: QueueState

    def __init__(
        self,
        name: str,
        settings: QueueSettings,
        log: Log,
        journal: Log,
        state: State,
        *,
        clock: Clock,
        wake: Callable[[], None],
        metrics: Registry,
        read_only: bool,
        log_is_new: bool,
        free_space: Callable[[], bool],
    ) -> None:
        """Load the state; `free_space` is called on a full disk, and returns whether it freed space."""
        self.journal = Journal(journal)
        context = QueueContext(name, settings, log, self.journal, clock, read_only)
        self.name, self.fields = name, context.fields
        self.settings = settings
        self.log = log
        self.read_only = read_only
        self.clock = clock
        self.now = clock.time_ns
        self.lease_ns = settings.nanoseconds("lease") or 0
        self.history_ns = settings.nanoseconds("history") or 0
        self.alarm = Alarm(wake)
        self.bodies = BodyCache(log)
        self.waiters = WaitQueue(clock)
        self.waiters.release_below = self.bodies.release_below
        self.retries = RetryPolicy(context)
        self.lock = threading.Lock()
        """For all changes of this queue; before the locks of the logs and, last, that of the waiters."""
        self.section = CriticalSection(self._poison)
        """Entered after the lock, by every reader and writer of the state."""
        self.closed: HoldfastError | None = None
        """Why the queue is closed; None while it is open."""
        self.is_detached = False
        """Whether it is closed, and detached from its log, metrics and waiters."""
        self.start_transfers: Callable[[], None] = lambda: None
        """Called without the lock if messages are being moved to another queue."""
        self.on_reload: Callable[[], None] = lambda: None
        """Called with the lock after the state was loaded again."""
        bounded = settings.max_length is not None or settings.max_bytes is not None
        # Excess messages must be dropped before others are delivered, and messages that may be expired be checked.
        plain = settings.ttl is None and settings.max_bytes is None and not (bounded and settings.overflow != "reject")
        self._fast_path_possible = plain and not read_only and log.settings.flush.mode != "sync"
        self._fast_path_allowed = self._fast_path_possible
        self.fast_path = self._fast_path_allowed
        """Whether single messages may be leased and acked on the fast paths."""
        self.checkpoints = CheckpointStore(context, state, free_space)
        self._loader = StateLoader(context, self.checkpoints, log_is_new=log_is_new, record=self.record)
        self.followed = 0
        """In a read-only store: the end of the applied journal."""
        self._reloading = False
        """Whether the state must be loaded again, and an attempt has begun."""
        log.appender.attach(self.waiters)  # first, so that the log keeps unwritten records in memory for this queue
        try:
            self._load_first()
        except BaseException:
            log.appender.detach(self.waiters)
            raise
        self.measures = Measures(self, metrics, clock)
        self.measures.orphans.add(self.checkpoints.orphans)

    # Loading.

    def _load_first(self) -> None:
        try:
            self.load()
        except StorageError:
            if self.read_only or not self.checkpoints.state.stopped:
                raise
            self.load()  # which recovers the state, on a full disk with the reserved space

    def load(self) -> None:
        """Build the state separately, then replace the present one; after an error the present one is kept."""
        checkpoints = self.checkpoints
        if not self.read_only:
            checkpoints.state.recover()
        loaded = self._loader.load()
        checkpoints.use(loaded.state, loaded.rows, loaded.generation)
        self.state, self.followed = loaded.queue_state, loaded.followed
        self._loader.finish(self.state)
        self.on_reload()
        if loaded.journal_lost and not self.read_only:
            checkpoints.save(self.state)  # including the events that the journal still had
            checkpoints.write_snapshot()

    def reload(self) -> None:
        """Load the state again after a failed write, or a change that was cut off: memory may not match the journal.

        If that fails, the state stays broken: nothing is served, and the next call tries again.
        """
        if not self._reloading:
            logger.warning("reloading the state after a failed change: queue=%s", self.name, extra=self.fields)
            self._reloading = True
        try:
            if not self.read_only:
                with contextlib.suppress(StorageError):  # a put that was cut off may have appended a message with an id
                    self.log.appender.write_out()
                self.journal.settle()
            self._loader.keep_times(self.state)
            self.load()
        except StorageError as error:
            raise type(error)(
                f"the queue {self.name!r} is unavailable until its state can be loaded again, after a failed write: "
                f"{error}"
            ) from error
        self.bodies.forget()
        self.journal.reread()
        self.fast_path = self._fast_path_allowed
        self._reloading = False

    def _poison(self) -> None:
        """Mark the state in memory as unusable, after a change was cut off: it is loaded again from the journal."""
        self.journal.broken = True
        self.fast_path = False
        self.waiters.wake_all()

    def allow_fast_path(self, allowed: bool) -> None:
        """Enable the fast paths, where they are possible, or disable them. Called with the lock held."""
        self._fast_path_allowed = self._fast_path_possible and allowed and self.closed is None
        self.fast_path = self._fast_path_allowed and not self.journal.broken

    # Using the state.

    def turn(self, now: int | None = None) -> "Turn":
        """Return a use of the state that reads it: `with core.lock, core.turn() as turn`. Raises `Closed`."""
        return Turn(self, self.now() if now is None else now, writes=False)

    def change(self, now: int | None = None) -> "Turn":
        """As `turn`, for a change that a caller asks for. Also raises `ReadOnly`, and `ReplicaFenced`."""
        if self.journal.durable and self.log.gate.is_on:
            self.log.gate.check()
        return Turn(self, self.now() if now is None else now, writes=True)

    @property
    def is_sound(self) -> bool:
        """Whether the state may be changed as it is: the queue is open for writing, and memory matches the journal."""
        checkpoints = self.checkpoints
        return (
            self.closed is None
            and not (self.read_only or self.journal.broken)
            and checkpoints.generation == checkpoints.state.generation
        )

    def check_open(self) -> None:
        """Raise `Closed` if the queue is closed."""
        if self.closed is not None:
            raise Closed(*self.closed.args)

    def check_writable(self) -> None:
        """Raise `Closed`, or `ReadOnly` in a read-only store."""
        if self.closed is not None:
            raise Closed(*self.closed.args)
        if self.read_only:
            raise ReadOnly(
                f"the queue {self.name!r} was opened read-only: open the store without read_only=True to change it"
            )

    def advance(self, now: int) -> PendingBlock | None:
        """Bring the state up to now: new messages, due delays, expired leases. Called with the lock held.

        Return the pending block of the events for expired leases, which the next commit, or the tick, makes durable;
        None if there are none. Raises `Closed`.
        """
        if not self.is_sound:
            self._make_sound()
        self.catch_up(now)
        state = self.state
        if not state.plain:
            state.refresh_fast_path()
        if state.delayed.count and (due := state.delayed.next_due) is not None:
            if due <= now:
                state.fire(now)
                self.waiters.tell()
            if self.waiters.listeners:
                self.schedule_due()
        if now >= state.leases.next_check and not self.read_only and (expired := state.leases.expired(now)):
            _, pending_block = self.end_leases(expired, "the lease ran out", now)
            self.waiters.wake()
            return pending_block
        return None

    def _make_sound(self) -> None:
        """Load the state again if memory may not match the journal; if another process writes that, follow it."""
        self.check_open()
        if self.journal.broken or self.checkpoints.generation != self.checkpoints.state.generation:
            self.reload()
        if self.read_only:
            self._follow()

    def apply_new(self) -> None:
        """As `advance`, but only the changes that need no event in the journal."""
        state = self.state
        if self.closed is not None or self.journal.broken:
            return
        now = self.now()
        self.catch_up(now)
        if state.delayed.count and (due := state.delayed.next_due) is not None and due <= now:
            state.fire(now)
            self.waiters.wake()

    def _follow(self) -> None:
        """Apply what another process has written since."""
        self.log.refresh()
        start, end = self.journal.log.readable()
        if not start <= self.followed <= end:  # its beginning was dropped, or its end was lost in a crash
            self.load()
        self.followed, _ = self._loader.follow(self.state, self.followed)

    def catch_up(self, now: int) -> None:
        """Apply new messages of the log."""
        state, end = self.state, self.log.reader.visible_end
        if state.scanned != end:
            save = None if self.read_only else self.checkpoints.save_if_full
            state.read(self.log.pieces(state.scanned, end), now, end, save)

    def schedule_due(self) -> None:
        """Schedule a tick for when the next delay ends: listeners do not watch the clock."""
        if (due := self.state.delayed.next_due) is not None:
            self.alarm.by(due)

    def end_leases(self, leases: list[int], reason: str, now: int) -> tuple[int, PendingBlock | None]:
        """End these leases: their messages are ready again, or dead.

        Return the number of the messages, and the pending block of the events.
        """
        count = 0
        pending_block: PendingBlock | None = None
        events: list[Event] = []
        for lease_id in leases:
            lease = self.state.leases.by_id[lease_id]
            count += len(lease.left)
            events += self.retries.events(now, "expired", reason, lease_id, lease.spans(lease.left), 0)
            if len(events) >= EVENTS_MAX:  # a record of the journal has its limit, too
                pending_block, events = self.apply(events), []
        if events:
            pending_block = self.apply(events)
        return count, pending_block

    # Events.

    def apply(self, events: list[Event]) -> PendingBlock | None:
        """Append events to the journal, then apply them. Pass the result to `commit` after releasing the lock."""
        pending_block = self.record(b"".join(map(encode, events)))
        for event in events:
            self.state.apply(event)
        return pending_block

    def record(self, event: bytes) -> PendingBlock | None:
        """Append an event to the journal, for callers that apply it. Pass the result to `commit`."""
        pending_block = self.journal.add(event)
        if self.alarm.idle:
            self.alarm.recorded()
        return pending_block

    def commit(self, pending_block: PendingBlock | None) -> None:
        """Wait, without the lock, until the events are as safe as the flush mode promises."""
        if pending_block is not None:
            self.journal.commit(pending_block)

    def finish(self, pending_block: PendingBlock | None) -> None:
        """As `commit`; then start the transfer of messages that are being moved to another queue."""
        if pending_block is not None:
            self.journal.commit(pending_block)
        if self.state.moving:
            self.start_transfers()

    def confirm(self) -> None:
        """Wait, without any lock, until a replica has the changes too, if the store was opened so.

        Under a weaker flush mode a call does not promise that they are on disk either, and this returns at once.
        """
        if self.journal.durable and self.log.gate.is_on:
            self.log.gate.confirm()

    def make_durable(self) -> None:
        """Make every event durable, whatever the flush mode. Called without the lock."""
        with self.lock, self.section:
            self.journal.flush()
        self.journal.make_durable()

    # Checkpoints.

    def checkpoint(self) -> None:
        """Save the state, so that the next opening replays less of the journal."""
        self.check_writable()
        with self.lock, self.section:
            self.check_open()
            self.recover_and_save()

    def recover_and_save(self) -> None:
        """Make a checkpoint, with the lock held; if a failed write has stopped the state, open that again first."""
        checkpoints = self.checkpoints
        try:
            if checkpoints.state.stopped:
                checkpoints.state.recover()
            if self.journal.broken or checkpoints.generation != checkpoints.state.generation:
                self.reload()
            self.catch_up(self.now())
        except StorageError as error:
            checkpoints.failed(error)
            raise
        checkpoints.save(self.state)

    def checkpoint_if_due(self) -> float | None:
        """Make a checkpoint if it is due, with the lock held; return the seconds to the next one, if known."""
        left = self.checkpoints.due_in(self.state)
        if left is None or left > 0:
            return left
        health, moment = self.checkpoints.health, self.clock.monotonic()
        if not health.wait(moment):
            with contextlib.suppress(StorageError):
                self.recover_and_save()
        return health.wait(moment) if health.failing else None

    # Closing.

    def close(self) -> None:
        """Save the state and close; idempotent.

        If the journal cannot be written (a full disk), the queue stays open, so that closing can be tried again.
        """
        journal = self.journal.log
        with self.lock, self.section:
            if not (journal.closed or self.read_only):
                self._save_last()
            try:
                journal.close()  # or continue, if an interrupt cut off the last attempt
            finally:
                if journal.closed and not self.is_detached:
                    self._detach(f"the queue {self.name!r} is closed: open the store again")

    def _save_last(self) -> None:
        self.journal.log.appender.recover(at_once=True)
        if self.journal.broken:
            with contextlib.suppress(WriterStopped):
                self.journal.flush()
            return
        try:
            self.recover_and_save()
        except StorageError as error:  # nothing is lost: the next opening replays more of the journal
            logger.warning("last checkpoint failed: queue=%s error=%s", self.name, error, extra=self.fields)
            with contextlib.suppress(WriterStopped):
                self.journal.flush()

    def close_discarding(self, reason: str) -> None:
        """Close without a checkpoint, because the queue is deleted. Callers get `Closed` with this reason."""
        with self.lock, self.section:
            if self.closed is None:
                self._detach(reason)
        close_discarding(self.journal.log)

    def _detach(self, reason: str) -> None:
        self.fast_path = self._fast_path_allowed = False
        self.closed = Closed(reason)
        self.log.appender.detach(self.waiters)
        self.measures.forget()
        self.waiters.listeners = ()
        self.waiters.wake()
        self.bodies.forget()
        self.is_detached = True

    def detach_after_fork(self) -> None:
        """Mark the queue as closed. Called in a forked child: the open queue is the parent's."""
        self.lock = threading.Lock()
        self.waiters.detach_after_fork()
        self.fast_path = self._fast_path_allowed = False
        self.is_detached = True
        self.closed = Closed(f"the queue {self.name!r} was opened before this process was forked: open the store again")
        self.journal.log.appender.detach_after_fork()


class Turn:
    """A use of a queue's state, entered with its lock held: `with core.lock, core.turn() as turn`.

    Entering repairs a change that was cut off, and brings the state up to `now`. The lock is a separate context manager
    of C code: a signal handler that raises between the two finds nothing changed, and the lock is released.
    """

    __slots__ = ("_core", "_writes", "now", "pending_block")

    def __init__(self, core: QueueCore, now: int, *, writes: bool) -> None:
        self._core = core
        self._writes = writes
        self.now = now
        self.pending_block: PendingBlock | None = None
        """The last event of this use, for `QueueCore.commit` or `finish` after the lock was released."""

    def __enter__(self) -> "Turn":
        # As `CriticalSection.__enter__` and `__exit__`, without two calls.
        core = self._core
        section = core.section
        if section.open:
            section.mend()
        section.open = True
        try:
            if self._writes and core.read_only:
                core.check_writable()
            self.pending_block = core.advance(self.now)
        except HoldfastError:  # `__exit__` is not called for an error here
            section.open = False
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or issubclass(kind, HoldfastError):
            self._core.section.open = False

    def apply(self, events: list[Event]) -> None:
        """Append events to the journal, then apply them."""
        self.pending_block = self._core.apply(events)

    def record(self, event: Event) -> None:
        """Append an event to the journal, which the caller then applies on a faster path."""
        self.pending_block = self._core.record(encode(event))
