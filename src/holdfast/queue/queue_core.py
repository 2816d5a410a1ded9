"""In-memory queue state with a write-ahead journal and periodic checkpoints."""

import contextlib
import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from holdfast.base.clock import NS, Clock
from holdfast.base.critical_section import CriticalSection
from holdfast.base.errors import Closed, DiskFull, HoldfastError, ReadOnly, StorageError, WriterStopped
from holdfast.base.metrics import Registry
from holdfast.log.consumer_offsets import Position, place_of
from holdfast.log.log import Log
from holdfast.log.pending_block import PendingBlock
from holdfast.queue.body_cache import BodyCache
from holdfast.queue.checkpoint import Checkpoint, KeptPosition
from holdfast.queue.checkpoint_health import CheckpointHealth
from holdfast.queue.dead_letter_forwarder import Forwarder
from holdfast.queue.dedup import Dedup, Timeline
from holdfast.queue.events import (
    Acked,
    Dropped,
    Event,
    Leased,
    Purged,
    Requeued,
    SeekTo,
    Transferring,
    Truncated,
    encode,
)
from holdfast.queue.journal import PENDING_MAX, Journal
from holdfast.queue.lease import NEVER
from holdfast.queue.limit_hold import LimitHolds
from holdfast.queue.metrics import Measures
from holdfast.queue.queue_state import QueueState
from holdfast.queue.settings import QueueSettings
from holdfast.queue.waiters import WaitQueue
from holdfast.state import State
from holdfast.state.simulated import MemoryState

if TYPE_CHECKING:
    from holdfast.queue.queue import Queue

__all__ = ["CHECKPOINT_VALUES", "SWEEP_S", "QueueCore"]

logger = logging.getLogger("holdfast.queue")

_PATIENCE_S = 2.0
SWEEP_S = 1.0
"""Interval in seconds at which the ticker checks for messages that expire or exceed the length."""
CHECKPOINT_VALUES = 16_384
"""Changed values in memory after which a checkpoint writes them to the state."""


class QueueCore:
    """The innermost part of a queue: loads, journals and saves its state. A base class of `Queue`.

    Files: `journals/<name>/` with the journal's segments and `queue.json`; its rows in `state/`. Locks: `_mover` (for
    moving messages to another queue) and `_pausing` (for pause and resume) before `_lock` (for all changes of this
    queue) before the locks of the logs and, last, that of the waiters. Callers wait for the sync of an event after they
    have released `_lock`. It is held during a sync only by rare work: checkpoints, `seek`, `shorten`, `close`, loading
    the state again, and if a full pending block must be written first. `_mover` and `_pausing` are held during syncs.

    Invariant: an event is in the journal before it is applied, and durable before its result is returned to a caller,
    as far as the flush mode promises.
    """

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
        open_queue: "Callable[..., Queue]",
        find_queue: "Callable[[str], Queue | None]",
        find_forwarder: Callable[[str], Forwarder | None],
        metrics: Registry,
        read_only: bool,
        log_is_new: bool = False,
        is_paused: Callable[[], bool],
        keep_paused: Callable[[bool], None],
        free_space: Callable[[], bool] = lambda: False,
    ) -> None:
        """Load the queue; `free_space` is called on a full disk, and returns whether it freed space."""
        self.name = name
        self.settings = settings
        self.log = log
        self.read_only = read_only
        self._clock = clock
        self._now = clock.time_ns
        self._wake_ticker = wake
        self._log_is_new = log_is_new
        """Whether the log that this queue was a view of was deleted, and there is a new one of that name."""
        self._open_queue = open_queue
        self._find_queue = find_queue
        self._find_forwarder = find_forwarder
        self._free_space = free_space
        self._state, self._prefix = state, journal.id[:8]
        self._journal = Journal(journal)
        self._pending = self._journal.pending
        self._bodies = BodyCache(log)
        self._waiters = WaitQueue(clock)
        self._waiters.release_below = self._bodies.release_below
        self._lock = threading.Lock()
        self._whole = CriticalSection(self._poison)
        """Entered after the lock, by every reader and writer of the state."""
        self._mover = threading.Lock()
        self._pausing = threading.Lock()
        self._is_paused, self._keep_paused = is_paused, keep_paused
        self._paused = not read_only and is_paused()
        """Whether no messages are delivered. The fast paths are disabled then, so that they need not check it."""
        self._closed: HoldfastError | None = None
        self._is_gone = False
        """Whether it is closed, and detached from its log, metrics and waiters."""
        self._background_idle = True
        """Whether the next event must wake the ticker."""
        self._tick_at = NEVER
        """The time of the next scheduled tick."""
        self._waiting_at = (-1, 0.0)
        """In a read-only store: the record of the journal that is ahead of the log, and since when."""
        self._reloading = False
        """Whether the state must be loaded again, and an attempt has begun."""
        self._checkpoint_at: float | None = None
        self.checkpoints = CheckpointHealth()
        """Whether checkpoints succeed. If they fail, the queue works on: opening has more of the journal to replay."""
        self._doubtful_moves = False
        """Whether a move may have reached its target without being confirmed."""
        self._handed_over: set[int] = set()
        """Messages that a forwarder may have received without confirming it."""
        self.carries_later = False
        """Whether only the background moves dead letters: for callers that must not wait for a disk."""
        self._background_notified = False
        """With `carries_later`: whether the ticker was woken for the messages that are moving."""
        self._limit_holds = LimitHolds()
        self._timeline = Timeline(clock)
        """The clock for the window of dedup ids."""
        self._ids_put_at: dict[int, int] = {}
        """While the state is loaded again: when, on the timeline, messages with ids were put."""
        self._lease_ns = settings.nanoseconds("lease") or 0
        self._ttl_ns = settings.nanoseconds("ttl")
        self._starvation_ns = settings.nanoseconds("starvation")
        self._history_ns = settings.nanoseconds("history") or 0
        self._max_attempts = settings.max_attempts
        self._unbounded = settings.max_length is None and settings.max_bytes is None
        self._drops_excess = not self._unbounded and settings.overflow != "reject"
        # Excess messages must be dropped before others are delivered, and messages that may be expired be checked.
        plain = self._ttl_ns is None and not self._drops_excess and settings.max_bytes is None
        self._fast_path_possible = plain and not read_only and log.settings.flush.mode != "sync"
        self._fast_path_allowed = self._fast_path_possible and not self._paused
        self._fast_path = self._fast_path_allowed
        """Whether single messages may be leased and acked on the fast paths."""
        self._append = log.append
        log.attach(self._waiters)  # first, so that the log keeps unwritten records in memory for this queue
        try:
            self._load_first()
        except BaseException:
            log.detach(self._waiters)
            raise
        self._leased_before = self.queue_state.totals.leased
        self._measures = Measures(self, metrics, clock)
        self._measures.orphans.add(self._checkpoint.orphans)
        if not read_only:
            self._waiters.on_signal = self._schedule_sweep
        self._opened()

    def _opened(self) -> None:
        """Do nothing; subclasses override it. Called when the queue is loaded."""

    @property
    def _may_leave(self) -> bool:
        """Whether messages may expire or exceed the limits without a call."""
        timed = self._ttl_ns is not None or self.queue_state.expiring or "expiry" in self.log.columns_written
        return timed or self._drops_excess

    def _schedule_sweep(self) -> None:
        """Wake the ticker after a write, if messages may have to be dropped before its next tick."""
        if self._may_leave and self._now() + min(SWEEP_S * NS, self._ttl_ns or NEVER) < self._tick_at:
            self._wake_ticker()

    # Loading the state.

    def _load_first(self) -> None:
        try:
            self._load()
        except StorageError:
            if self.read_only or not self._state.stopped:
                raise
            self._load()  # which recovers the state, on a full disk with the reserved space

    def _load(self) -> None:
        """Build the state separately, then replace the present one; after an error the present one is kept."""
        if not self.read_only:
            self._state.recover()
        loaded = self._build()
        self._state, self._checkpoint, self.queue_state, self._followed, self._generation, journal_lost = loaded
        self._timeline.has_begun = True
        self.queue_state.dedup.forget_times()
        self._ids_put_at = {}
        self._doubtful_moves = bool(self.queue_state.moving)
        self._handed_over = set(self.queue_state.moving)
        self._log_is_new = False
        if journal_lost and not self.read_only:
            self._save()  # including the events that the journal still had
            self._journal.write_snapshot(self._checkpoint.dump(), self._now())

    def _build(self) -> "_Loaded":
        """Build the state from the last checkpoint, or else the last snapshot, and the later events of the journal."""
        now = self._now()
        journal = self._journal.log
        state = self._state
        generation = state.generation
        checkpoint = Checkpoint(state, self._prefix, journal.id, self.fields)
        start, end = journal.readable()
        kept, journal_lost = self._kept_position(checkpoint, start, end)
        is_rebuilt = kept is None
        if is_rebuilt:
            if self.read_only:
                state = MemoryState()
                checkpoint = Checkpoint(state, self._prefix, journal.id, self.fields)
            kept, position = self._rebuild(checkpoint, start, end)
        else:
            assert kept is not None
            position = kept["position"]
        queue_state = self._new_queue_state(state)
        if kept is not None:
            checkpoint.load(queue_state, kept, now)
            self._recount_bytes(queue_state)
        window = self.settings.nanoseconds("dedup_window") or 0
        if is_rebuilt or (kept is not None and (kept["dedup"].get("window") or 0) < window):
            self._reread_dedup_ids(state, queue_state, now)  # missing, or too few of them: the window was made longer
        self._floor_kept = -1
        position, highest = self._follow(queue_state, position)
        if not self.read_only:
            self._settle_beginning(queue_state, start == end == 0 and kept is None, highest)
        self._enter(queue_state, self._now(), self.log.visible_end)
        return _Loaded(state, checkpoint, queue_state, position, generation, journal_lost)

    def _kept_position(self, checkpoint: Checkpoint, start: int, end: int) -> tuple[KeptPosition | None, bool]:
        """Return the last checkpoint, None if the state must be rebuilt; and whether the journal has lost events.

        A checkpoint contains all events up to its position. If the journal has lost these (its files were deleted), the
        checkpoint is still used, and the journal continues from it with a snapshot.
        """
        kept = checkpoint.position()
        if kept is None and end == 0 and not self.read_only and self.log.positions.exists(place_of(self.name)):
            kept = checkpoint.adopt(self.name)
            if kept is not None:
                logger.error(
                    "journal is missing, continuing from the checkpoint: queue=%s", self.name, extra=self.fields
                )
                return kept, True
        if kept is None or start <= kept["position"] <= end:
            return kept, False
        if kept["position"] < start and self._journal.last_snapshot() is not None:
            return None, False  # the snapshot is newer than the checkpoint
        logger.error(
            "journal has lost events, continuing from the checkpoint: queue=%s start=%d end=%d checkpoint=%d",
            self.name,
            start,
            end,
            kept["position"],
            extra=self.fields,
        )
        return {**kept, "position": min(max(kept["position"], start), end)}, True

    def _new_queue_state(self, state: State) -> QueueState:
        window = self.settings.nanoseconds("dedup_window") or 0
        queue_state = QueueState(
            self.name,
            state,
            self._prefix,
            dedup_window=window,
            dedup_limit=self.settings.dedup_limit,
            weighs=self.settings.max_bytes is not None and not self.read_only,
            timeline=self._timeline,
        )
        queue_state.dedup.put_at.update(self._ids_put_at)
        return queue_state

    def _recount_bytes(self, queue_state: QueueState) -> None:
        """Count the payload bytes again after a restart, from the log."""
        if queue_state.weights is not None:
            floor = queue_state.floor()
            queue_state.weights.begin(floor)
            for piece in self.log.pieces(floor, min(queue_state.scanned, self.log.visible_end)):
                queue_state.weights.take(piece.first, piece.sizes())
            queue_state.weigh()

    def _rebuild(self, checkpoint: Checkpoint, start: int, end: int) -> tuple[KeptPosition | None, int]:
        """Restore the journal's last snapshot if the state is lost; return it and the position behind it."""
        if end > 0:
            level = logging.WARNING if start > 0 else logging.INFO  # a new queue has no checkpoint yet
            logger.log(level, "rebuilding the state from the journal: queue=%s", self.name, extra=self.fields)
        if not self.read_only:
            checkpoint.clear()
        snapshot = self._journal.last_snapshot() if end > 0 else None
        if snapshot is None:
            if start > 0:
                logger.error(
                    "journal has lost its beginning, acknowledged messages may be redelivered: queue=%s",
                    self.name,
                    extra=self.fields,
                )
            return None, start
        rows, position = snapshot
        checkpoint.undump(rows)
        return checkpoint.position(), position

    def _reread_dedup_ids(self, state: State, queue_state: QueueState, now: int) -> None:
        """Read the dedup ids of acknowledged messages, which only the log has."""
        window = self.settings.nanoseconds("dedup_window") or 0
        limit = self.settings.dedup_limit
        dedup = queue_state.dedup = Dedup(state, self._prefix, window, limit, self.name, self._timeline)
        dedup.put_at.update(self._ids_put_at)
        first, end = self.log.sequence_at(now - window), min(queue_state.scanned, self.log.visible_end)
        first = min([first, *self._ids_put_at])  # a clock that was set ahead makes them older than they are
        for piece in self.log.pieces(first, end) if first < end else ():
            for sequence, key, time in zip(
                range(piece.first, piece.end), piece.strings("dedup") or (), piece.times(), strict=False
            ):
                if key is not None:
                    dedup.note(key, sequence, time, now)
        dedup.scanned = queue_state.scanned

    def _follow(self, queue_state: QueueState, position: int) -> tuple[int, int]:
        """Apply the journal from `position` on; return its applied end, and the end of the highest message in it."""
        highest = 0
        end = self._journal.log.readable()[1]
        for at, events in self._journal.replay(position, end):
            touched = max(map(_end_of, events), default=0)
            if self.read_only and touched > self.log.visible_end:
                self.log.refresh()
                if touched > self.log.visible_end and self._should_wait_for(at):
                    return at, highest
            for event in events:
                highest = _end_of(event) if isinstance(event, Truncated) else max(highest, _end_of(event))
                if _end_of(event) > queue_state.scanned:
                    self._enter(queue_state, event.time, min(_end_of(event), self.log.visible_end))
                queue_state.apply(event)
        return end, highest

    def _should_wait_for(self, position: int) -> bool:
        """Return whether the messages of this journal record may soon be in the log, in a read-only store.

        The log is written by another process, before the journal or, under a weaker flush mode, a moment after it.
        Messages that a crash lost never arrive; a later journal record says so.
        """
        now = self._clock.monotonic()
        if self._waiting_at[0] != position:
            self._waiting_at = (position, now)
        return now - self._waiting_at[1] < _PATIENCE_S

    def _settle_beginning(self, queue_state: QueueState, is_new: bool, highest: int) -> None:
        end = self.log.end
        decided = is_new or self._log_is_new
        if is_new:
            self._keep_floor(self.log.start)
            self._decide([SeekTo(self._now(), self.log.start)], queue_state)
        if self._log_is_new:
            logger.warning("log was replaced, starting from its beginning: queue=%s", self.name, extra=self.fields)
            self._decide([Truncated(self._now(), 0), SeekTo(self._now(), self.log.start)], queue_state)
        kept = self.log.positions.get(place_of(self.name))
        survived = end if kept is None or kept.survived is None else min(end, kept.survived)
        if not self._log_is_new and (highest > survived or queue_state.scanned > survived):
            # Under a weaker flush mode a power cut lost messages that the journal knows. Their sequences are assigned
            # to new messages, so everything about the lost ones must be removed durably.
            logger.warning("messages lost in a crash: queue=%s from=%d", self.name, survived, extra=self.fields)
            self._decide([Truncated(self._now(), survived)], queue_state)
            decided = True
        if decided:
            self._journal.sync()
        if not is_new:
            try:
                self._keep_floor(min(queue_state.floor(), end))  # which also clears `survived`
            except DiskFull:
                if kept is None or kept.survived is not None:
                    raise  # otherwise only retention needs it, and the next checkpoint saves it

    def _reload(self) -> None:
        """Load the state again after a failed write, or a change that was cut off: memory may not match the journal.

        If that fails, the state stays broken: nothing is served, and the next call tries again.
        """
        if not self._reloading:
            logger.warning("reloading the state after a failed change: queue=%s", self.name, extra=self.fields)
            self._reloading = True
        try:
            if not self.read_only:
                with contextlib.suppress(StorageError):  # a put that was cut off may have appended a message with an id
                    self.log.write_out()
                self._journal.settle()
            self._ids_put_at = self.queue_state.dedup.times()
            self._load()
        except StorageError as error:
            raise type(error)(
                f"the queue {self.name!r} is unavailable until its state can be loaded again, after a failed write: "
                f"{error}"
            ) from error
        self._bodies.forget()
        self._journal.reread()
        self._fast_path = self._fast_path_allowed
        self._reloading = False

    def _poison(self) -> None:
        """Mark the state in memory as unusable, after a change was cut off: it is loaded again from the journal."""
        self._journal.broken = True
        self._fast_path = False
        self._waiters.wake_all()

    def _catch_up(self, now: int) -> None:
        """Apply new messages of the log."""
        self._enter(self.queue_state, now, self.log.visible_end, save=not self.read_only)

    def _enter(self, queue_state: QueueState, now: int, end: int, *, save: bool = False) -> None:
        """Apply messages of the log up to `end`, which must be visible.

        Without `save` no checkpoint is made meanwhile: during a replay it would be ahead of the applied events.
        """
        if queue_state.scanned < end:
            for piece in self.log.pieces(queue_state.scanned, end):
                queue_state.enter(piece, now)
                is_due = save and queue_state.unsaved > CHECKPOINT_VALUES and not self._state.stopped
                if is_due and not self.checkpoints.wait(self._clock.monotonic()):
                    with contextlib.suppress(StorageError):
                        self._save()
            queue_state.scanned = end
            queue_state.dedup.scanned = max(queue_state.dedup.scanned, end)

    def _decide(self, events: list[Event], queue_state: QueueState | None = None) -> PendingBlock | None:
        """Append events to the journal, then apply them. Pass the result to `_commit` after releasing the lock."""
        queue_state = queue_state or self.queue_state
        pending_block = self._record(b"".join(map(encode, events)))
        for event in events:
            queue_state.apply(event)
        return pending_block

    def _record(self, event: bytes) -> PendingBlock | None:
        journal = self._journal
        pending_block = journal.record(event) if journal.durable else None
        if not journal.durable:
            if len(journal.pending) >= PENDING_MAX:
                journal.flush()
            journal.pending.append(event)
        if self._background_idle:
            self._background_idle = False
            self._wake_ticker()
        return pending_block

    def checkpoint(self) -> None:
        """Save the state, so that the next opening replays less of the journal."""
        if self.read_only:
            raise ReadOnly(
                f"the queue {self.name!r} was opened read-only: open the store without read_only=True to change it"
            )
        with self._lock, self._whole:
            if self._closed is not None:
                raise Closed(*self._closed.args)
            self._recover_and_save()

    def _recover_and_save(self) -> None:
        """Make a checkpoint, with the lock held; if a failed write has stopped the state, open that again first."""
        try:
            if self._state.stopped:
                self._state.recover()
            if self._journal.broken or self._generation != self._state.generation:
                self._reload()
            self._catch_up(self._now())
        except StorageError as error:
            self._note_failed_checkpoint(error)
            raise
        self._save()

    def _save(self) -> None:
        """Make a checkpoint, with the lock held, of a state that is known to be consistent."""
        try:
            self._write_checkpoint()
        except StorageError as error:
            self._note_failed_checkpoint(error)
            raise
        if self.checkpoints.succeeded():
            logger.warning("checkpoints succeed again: queue=%s", self.name, extra=self.fields)

    def _note_failed_checkpoint(self, error: StorageError) -> None:
        if self.checkpoints.failed(str(error), self._now(), self._clock.monotonic()):
            logger.error("checkpoint failed, will retry: queue=%s error=%s", self.name, error, extra=self.fields)

    def _write_checkpoint(self) -> None:
        """Sync log and journal, then write a checkpoint that refers to them."""
        self.log.sync()
        position = self._journal.sync()
        now = self._now()
        self._checkpoint.save(self.queue_state, position, now)
        self._checkpoint_at = None
        floor = min(self.queue_state.floor(), self.log.end)
        self._keep_floor(floor)
        if self.queue_state.weights is not None:
            self.queue_state.weights.forget_before(floor)
        if self._history_ns and self._journal.has_older_than(now - self._history_ns):
            self._journal.write_snapshot(self._checkpoint.dump(), now)
            self._journal.forget_before(self._history_ns)

    def has_history_before(self, moment: int) -> bool:
        """Return whether `retire` may find events to drop. Cheap: it reads no file and takes no lock."""
        return not self.read_only and self._closed is None and self._journal.is_past(moment)

    def retire(self) -> None:
        """Drop events that are older than `history`, in a queue without activity. Called by the store's background."""
        moment = self._now() - self._history_ns
        if self.read_only or not self._history_ns or not self._journal.is_past(moment):
            return
        with self._lock, self._whole:
            if self._closed is not None or self._journal.broken or not self._journal.is_past(moment):
                return
            self._catch_up(self._now())
            self._save()
            if self._journal.log.is_past(moment):
                self._journal.renew(self._checkpoint.dump(), self._now())

    def may_shorten(self) -> bool:
        """Return whether `shorten` would let the log drop a segment whose messages have all left the queue."""
        if self.read_only:
            return False
        with self._lock, self._whole:
            if self._closed is not None or self._journal.broken:
                return False
            floor = self._stored_floor()
            return floor > self._floor_kept and self.log.has_segment_below(floor)

    def shorten(self) -> None:
        """Save the position below which all messages have left the queue, so that the log may drop them.

        The journal has all events since the last checkpoint, so no new one is needed. It is made only if there are
        unsaved dedup ids: they would be dropped with the log.
        """
        with self._lock, self._whole:
            if self._closed is not None or self._journal.broken:
                return
            if self.queue_state.dedup.unsaved:
                self._recover_and_save()
            else:
                self._journal.confirm()
                self._keep_floor(self._stored_floor())

    def _stored_floor(self) -> int:
        return min(self.queue_state.floor(), self.log.stored_end)

    def _keep_floor(self, floor: int) -> None:
        """Save, durably, the position below which all messages have left the queue. Retention keeps the others."""
        while floor != self._floor_kept:
            try:
                self.log.positions.set(Position(place_of(self.name), floor, self._now()))
                self._floor_kept = floor
            except DiskFull:
                if not self._free_space():
                    raise

    def hand_over(self) -> Log:
        """For a backup: return the journal's log, after appending every event to it."""
        if not (self._journal.durable or self.read_only):
            with self._lock, self._whole:
                if self._closed is None and not self._journal.broken:
                    self._journal.flush()
        return self._journal.log

    def _settle_journal(self) -> None:
        """Make every event durable, whatever the flush mode."""
        with self._lock, self._whole:
            self._journal.flush()
        self._journal.make_durable()

    def _commit(self, pending_block: PendingBlock | None) -> None:
        """Wait, without the lock, until the events are as safe as the flush mode promises."""
        if pending_block is not None:
            self._journal.commit(pending_block)

    def close(self) -> None:
        """Save the state and close; idempotent. Leases continue: they are in the journal.

        If the journal cannot be written (a full disk), the queue stays open, so that closing can be tried again.
        """
        with self._lock, self._whole:
            if not (self._journal.log.closed or self.read_only):
                self._save_last()
            try:
                self._journal.log.close()  # or continue, if an interrupt cut off the last attempt
            finally:
                if self._journal.log.closed and not self._is_gone:
                    self._detach(f"the queue {self.name!r} is closed: open the store again")

    def _save_last(self) -> None:
        self._journal.log.recover(at_once=True)
        if self._journal.broken:
            with contextlib.suppress(WriterStopped):
                self._journal.flush()
            return
        try:
            self._recover_and_save()
        except StorageError as error:  # nothing is lost: the next opening replays more of the journal
            logger.warning("last checkpoint failed: queue=%s error=%s", self.name, error, extra=self.fields)
            with contextlib.suppress(WriterStopped):
                self._journal.flush()

    def leave_waiters_asleep(self) -> None:
        """At the end of the process: do not wake waiting daemon threads on close, since they would fail at once."""
        self._waiters.close_discarding()

    def close_discarding(self, reason: str) -> None:
        """Close without a checkpoint, because the queue is deleted. Callers get `Closed` with this reason."""
        with self._lock, self._whole:
            if self._closed is None:
                self._detach(reason)
                self._unbounded = False  # disables the fast path of put: it checks whether the queue is closed
        self._journal.log.close_discarding()

    def _detach(self, reason: str) -> None:
        self._fast_path = self._fast_path_allowed = False
        self._closed = Closed(reason)
        self.log.detach(self._waiters)
        self._measures.forget()
        self._waiters.listeners = ()
        self._waiters.wake()
        self._bodies.forget()
        self._is_gone = True

    def detach_after_fork(self) -> None:
        """Mark the queue as closed. Called in a forked child: the open queue is the parent's."""
        self._lock, self._mover, self._pausing = threading.Lock(), threading.Lock(), threading.Lock()
        self._waiters.detach_after_fork()
        self._fast_path = self._fast_path_allowed = False
        self._is_gone = True
        self._closed = Closed(
            f"the queue {self.name!r} was opened before this process was forked: open the store again"
        )
        self._journal.log.detach_after_fork()

    @property
    def closed(self) -> bool:
        """Whether the queue was closed."""
        return self._closed is not None

    @property
    def fields(self) -> dict[str, str]:
        """The `extra` of log messages about this queue."""
        return {"queue": self.name, "log": self.log.name}


class _Loaded(NamedTuple):
    """A state that was built from disk, to replace the one in memory."""

    state: State
    checkpoint: Checkpoint
    queue_state: QueueState
    followed: int
    """The end of the applied journal."""
    generation: int
    """The generation of `state`."""
    journal_lost: bool
    """Whether the checkpoint contains events that are no longer in the journal."""


def _end_of(event: Event) -> int:
    """Return the sequence behind the highest one that an event refers to."""
    match event:
        case Leased(spans=spans) | Requeued(spans=spans) | Transferring(spans=spans):
            return max((span.stop for span in spans), default=0)
        case Acked(parts=parts):
            return max((stop for _, spans in parts for _, stop in spans), default=0)
        case Dropped(spans=spans):
            return max((stop for _, stop in spans), default=0)
        case Purged(end=end) | Truncated(end=end) | SeekTo(position=end):
            return end
        case _:
            return 0
