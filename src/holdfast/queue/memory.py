"""What does a queue remember, and how? State in memory, ahead of it the journal, behind it the checkpoints."""

import contextlib
import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from holdfast.base.clock import NS, Clock
from holdfast.base.errors import Closed, HoldfastError, ReadOnly, StorageError, WriterStopped
from holdfast.base.metrics import Registry
from holdfast.log.draft import Draft
from holdfast.log.log import Log
from holdfast.log.positions import Position, place_of
from holdfast.queue.bodies import Bodies
from holdfast.queue.checkpoint import Checkpoint, KeptPosition
from holdfast.queue.dedup import Dedup
from holdfast.queue.events import Acked, Cut, Event, Leased, Moving, Purged, Returned, Settled, Sought, encode
from holdfast.queue.forwarding import Forwarder
from holdfast.queue.journal import PENDING_MAX, Journal
from holdfast.queue.lease import NEVER
from holdfast.queue.measures import Measures
from holdfast.queue.settings import QueueSettings
from holdfast.queue.standing import Standing
from holdfast.queue.stills import Stills
from holdfast.queue.waiting import Waiters
from holdfast.state import State
from holdfast.state.memory import MemoryState

if TYPE_CHECKING:
    from holdfast.queue.queue import Queue

__all__ = ["CHECKPOINT_VALUES", "SWEEP_S", "Memory"]

logger = logging.getLogger("holdfast.queue")

_PATIENCE_S = 2.0
SWEEP_S = 1.0
"""How often the ticker looks for what must leave by itself."""
CHECKPOINT_VALUES = 16_384
"""Changed values in memory after which a checkpoint hands them to the state."""


class Memory:
    """The innermost part of a queue: its state and how that is kept. A base class of `Queue`.

    Files: `journals/<name>/` with the journal's segments and `queue.json`; its rows in `state/`. Locks: `_mover` (who
    carries messages to another queue) and `_pausing` (who pauses or resumes) before `_lock` (who changes this queue)
    before the locks of the logs and, last, that of the waiters. No lock is held while the disk is waited for, but for
    a checkpoint and a pause. Invariant: an event is in the journal before it counts, and whatever was given to a
    caller was durable first, as far as the flush mode goes.
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
    ) -> None:
        self.name = name
        self.settings = settings
        self.log = log
        self.read_only = read_only
        self._clock = clock
        self._now = clock.time_ns
        self._wake_ticker = wake
        self._log_is_new = log_is_new
        """Whether the log in its folder is another than the one this queue was a view of: someone deleted that."""
        self._open_queue = open_queue
        self._find_queue = find_queue
        self._find_forwarder = find_forwarder
        self._state, self._prefix = state, journal.id[:8]
        self._journal = Journal(journal)
        self._pending = self._journal.pending
        self._bodies = Bodies(log)
        self._waiters = Waiters(clock)
        self._lock = threading.Lock()
        self._whole = _Whole(self._spoil)
        self._mover = threading.Lock()
        self._pausing = threading.Lock()
        self._is_paused, self._keep_paused = is_paused, keep_paused
        self._paused = not read_only and is_paused()
        """Whether nothing is handed out. The short ways are closed then, so that they need not ask."""
        self._closed: HoldfastError | None = None
        self._asleep = True
        """Whether the ticker must be told of the next event."""
        self._tick_at = NEVER
        """When the ticker comes next by itself."""
        self._waiting_at = (-1, 0.0)
        """For readers: the record of the journal that is ahead of the log, and since when."""
        self._loading = False
        """While the journal is replayed no checkpoint may be made: it would speak of what is not applied yet."""
        self._checkpoint_at: float | None = None
        self._doubtful_moves = False
        """Whether a move may have reached its target without our knowing."""
        self._handed_over: set[int] = set()
        """Messages that a forwarder may have got without our knowing."""
        self.carries_later = False
        """Whether calls leave it to the background to move dead letters: for callers that must not wait for a disk."""
        self._ticker_knows = False
        """With `carries_later`: whether the ticker was told of what is moving."""
        self._stills = Stills()
        self._lease_ns = settings.nanoseconds("lease") or 0
        self._ttl_ns = settings.nanoseconds("ttl")
        self._starvation_ns = settings.nanoseconds("starvation")
        self._history_ns = settings.nanoseconds("history") or 0
        self._max_attempts = settings.max_attempts
        self._unbounded = settings.max_length is None and settings.max_bytes is None
        self._drops_excess = not self._unbounded and settings.overflow != "reject"
        # What is too much must go before anything is handed out, and what may be overdue must be looked at.
        plain = self._ttl_ns is None and not self._drops_excess and settings.max_bytes is None
        self._suits_short_ways = plain and not read_only and log.settings.flush.mode != "sync"
        self._may_be_quick = self._suits_short_ways and not self._paused
        self._quick = self._may_be_quick
        """Whether messages may be handed out and acked one by one along the short ways."""
        self._append = log.append
        log.attach(self._waiters)  # first, so that the log keeps at hand what it has not written yet
        try:
            self._load()
        except BaseException:
            log.detach(self._waiters)
            raise
        self._leased_before = self.standing.totals.leased
        self._measures = Measures(self, metrics, clock)
        self._measures.orphans.add(self._checkpoint.orphans)
        if not read_only:
            self._waiters.noticed = self._mind_leaving
        self._opened()

    def _opened(self) -> None:
        """Called when all is there, for the parts above."""

    @property
    def _may_leave(self) -> bool:
        """Whether messages may have to leave though nobody asks for them."""
        timed = self._ttl_ns is not None or self.standing.expiring or "expiry" in self.log.columns_written
        return timed or self._drops_excess

    def _mind_leaving(self) -> None:
        """Something was written: let the ticker look at it, if nobody else may ever and it would not come soon."""
        if self._may_leave and self._now() + min(SWEEP_S * NS, self._ttl_ns or NEVER) < self._tick_at:
            self._wake_ticker()

    # Reading the past.

    def _load(self) -> None:
        """Build the state from the last checkpoint, or without one the last snapshot, and the journal from there."""
        now = self._now()
        journal = self._journal.log
        self._checkpoint = Checkpoint(self._state, self._prefix, journal.id, self.fields)
        self.standing = self._new_standing()
        start, end = journal.readable()
        kept = self._checkpoint.position()
        if kept is not None and kept["position"] > end:
            logger.warning(
                "the journal of %s is shorter than it was: going on from its end", self.name, extra=self.fields
            )
            kept["position"] = end
        position, built_anew = 0, False
        if kept is None or kept["position"] < start:
            kept, position = self._rebuild(start, end)
            built_anew = True
        else:
            position = kept["position"]
        if kept is not None:
            self._checkpoint.load(self.standing, kept, now)
            self._weigh()
        window = self.settings.nanoseconds("dedup_window") or 0
        if built_anew or (kept is not None and (kept["dedup"].get("window") or 0) < window):
            self._reread_dedup_ids(now)  # they are not there, or too few of them: the window was made longer
        self._floor_kept = -1
        self._followed = position
        highest = self._follow()
        if not self.read_only:
            self._settle_beginning(start == end == 0, highest)
        self._catch_up(self._now())
        self._doubtful_moves = bool(self.standing.moving)
        self._handed_over = set(self.standing.moving)
        self._log_is_new = False

    def _new_standing(self) -> Standing:
        window = self.settings.nanoseconds("dedup_window") or 0
        return Standing(
            self.name,
            self._state,
            self._prefix,
            dedup_window=window,
            dedup_limit=self.settings.dedup_limit,
            weighs=self.settings.max_bytes is not None and not self.read_only,
        )

    def _weigh(self) -> None:
        """What waits was weighed when it came in; after a restart it is again, from what the log says."""
        standing = self.standing
        if standing.weights is not None:
            floor = standing.floor()
            standing.weights.begin(floor)
            for piece in self.log.pieces(floor, min(standing.scanned, self.log.visible_end)):
                standing.weights.take(piece.first, piece.sizes())
            standing.weigh()

    def _rebuild(self, start: int, end: int) -> tuple[KeptPosition | None, int]:
        """Where the state is gone or too old: the last snapshot of the journal, and the position behind it."""
        if end > 0:
            level = logging.WARNING if start > 0 else logging.INFO  # a young queue has no checkpoint yet
            logger.log(level, "the state of %s is built anew from its journal", self.name, extra=self.fields)
        if self.read_only:
            self._state = MemoryState()
            self._checkpoint = Checkpoint(self._state, self._prefix, self._journal.log.id, self.fields)
            self.standing = self._new_standing()
        else:
            self._checkpoint.clear()
        snapshot = self._journal.last_snapshot() if end > 0 else None
        if snapshot is None:
            if start > 0:
                logger.error(
                    "the journal of %s has lost its beginning: done messages may come again",
                    self.name,
                    extra=self.fields,
                )
            return None, start
        rows, position = snapshot
        self._checkpoint.undump(rows)
        return self._checkpoint.position(), position

    def _reread_dedup_ids(self, now: int) -> None:
        """The ids of messages that are done already are only in the log."""
        window = self.settings.nanoseconds("dedup_window") or 0
        dedup = self.standing.dedup = Dedup(self._state, self._prefix, window, self.settings.dedup_limit, self.name)
        first, end = self.log.sequence_at(now - window), min(self.standing.scanned, self.log.visible_end)
        for piece in self.log.pieces(first, end) if first < end else ():
            for sequence, key, time in zip(
                range(piece.first, piece.end), piece.strings("dedup") or (), piece.times(), strict=False
            ):
                if key is not None:
                    dedup.note(key, sequence, time, now)
        dedup.scanned = self.standing.scanned

    def _follow(self) -> int:
        """Apply what the journal has beyond what was applied; the end of the highest message it speaks of."""
        highest = 0
        self._loading = True
        end = self._journal.log.readable()[1]
        for position, events in self._journal.replay(self._followed, end):
            touched = max(map(_end_of, events), default=0)
            if self.read_only and touched > self.log.visible_end:
                self.log.refresh()
                if touched > self.log.visible_end and self._should_wait_for(position):
                    end = position
                    break
            for event in events:
                highest = _end_of(event) if isinstance(event, Cut) else max(highest, _end_of(event))
                if _end_of(event) > self.standing.scanned:
                    self._catch_up(event.time, _end_of(event))
                self.standing.apply(event)
        self._loading = False
        self._followed = end
        return highest

    def _should_wait_for(self, position: int) -> bool:
        """Whether a reader may expect that the log will soon show what this record of the journal speaks of.

        The log is written by another process, ahead of the journal or, under a weaker flush mode, a moment behind.
        What a crash took from it never comes; a later record will say so.
        """
        now = self._clock.monotonic()
        if self._waiting_at[0] != position:
            self._waiting_at = (position, now)
        return now - self._waiting_at[1] < _PATIENCE_S

    def _settle_beginning(self, is_new: bool, highest: int) -> None:
        end = self.log.end
        decided = is_new or self._log_is_new
        if is_new:
            self._keep_floor(self.log.start)
            self._decide([Sought(self._now(), self.log.start)])
        if self._log_is_new:
            logger.warning("the log of %s is not the one it was: beginning again", self.name, extra=self.fields)
            self._decide([Cut(self._now(), 0), Sought(self._now(), self.log.start)])
        kept = self.log.positions.get(place_of(self.name))
        survived = end if kept is None or kept.survived is None else min(end, kept.survived)
        if not self._log_is_new and (highest > survived or self.standing.scanned > survived):
            # Under a weaker flush mode a power cut took messages that the journal knows. Their sequences are given
            # again, to others, so what was known of them must be forgotten, and for good.
            logger.warning("messages from %d on did not survive in %s", survived, self.name, extra=self.fields)
            self._decide([Cut(self._now(), survived)])
            decided = True
        if decided:
            self._journal.sync()
        if not is_new:
            self._keep_floor(min(self.standing.floor(), end))  # which also says that this was taken into account

    def _reload(self) -> None:
        """After a failed write, or a change that was cut off: memory is not the truth, so it begins again."""
        logger.warning("the state of %s is read again, after a change that failed", self.name, extra=self.fields)
        with contextlib.suppress(StorageError, ReadOnly):  # what cannot be written did not happen
            self._journal.flush()
            self._journal.make_durable()
        self._journal.reread()
        self._bodies.forget()
        self._load()
        self._journal.broken = False
        self._quick = self._may_be_quick

    def _spoil(self) -> None:
        """Something went wrong in the middle of a change: the next call begins again from the journal."""
        self._journal.broken = True
        self._quick = False

    def _catch_up(self, now: int, end: int | None = None) -> None:
        """Take in what the log has got, up to `end`."""
        standing = self.standing
        visible = self.log.visible_end
        end = visible if end is None else min(end, visible)
        if standing.scanned < end:
            for piece in self.log.pieces(standing.scanned, end):
                standing.enter(piece, now)
                if standing.unsaved > CHECKPOINT_VALUES and not (self.read_only or self._loading):
                    self._save()
            standing.scanned = end
            standing.dedup.scanned = max(standing.dedup.scanned, end)

    def _decide(self, events: list[Event]) -> Draft | None:
        """Let events happen: first in the journal, then here. Hand the result to `_commit` without the lock."""
        draft = self._record(b"".join(map(encode, events)))
        for event in events:
            self.standing.apply(event)
        return draft

    def _record(self, event: bytes) -> Draft | None:
        journal = self._journal
        draft = journal.record(event) if journal.durable else None
        if not journal.durable:
            if len(journal.pending) >= PENDING_MAX:
                journal.flush()
            journal.pending.append(event)
        if self._asleep:
            self._asleep = False
            self._wake_ticker()
        return draft

    def checkpoint(self) -> None:
        """Keep the state, so that the next opening need not read the journal from further back."""
        if self.read_only:
            raise ReadOnly(f"the queue {self.name!r} was opened read-only")
        with self._lock, self._whole:
            self._catch_up(self._now())
            self._save()

    def _save(self) -> None:
        """Make a checkpoint, with the lock held. Log and journal are on disk before it speaks of them."""
        self.log.sync()
        position = self._journal.sync()
        now = self._now()
        self._checkpoint.save(self.standing, position, now)
        self._checkpoint_at = None
        floor = min(self.standing.floor(), self.log.end)
        self._keep_floor(floor)
        if self.standing.weights is not None:
            self.standing.weights.forget_before(floor)
        if self._history_ns and self._journal.has_older_than(now - self._history_ns):
            self._journal.write_snapshot(self._checkpoint.dump(), now)
            self._journal.forget_before(self._history_ns)

    def _keep_floor(self, floor: int) -> None:
        """What is below was done by this queue; the log's retention holds back the rest, also while we are closed."""
        if floor != self._floor_kept:
            self.log.positions.set(Position(place_of(self.name), floor, self._now()))
            self._floor_kept = floor

    def hand_over(self) -> Log:
        """For a backup: the journal's log, after every event that has happened was handed to it."""
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

    def _commit(self, draft: Draft | None) -> None:
        """Wait, without the lock, until what was decided is as safe as the flush mode promises."""
        if draft is not None:
            self._journal.commit(draft)

    def close(self) -> None:
        """Keep the state and let go; idempotent. Leases go on: they are in the journal.

        Where the journal cannot be drained (a full disk) the queue stays open, so that it can be tried again.
        """
        with self._lock, self._whole:
            if self._closed is not None:
                return
            if not self.read_only and self._journal.broken:
                with contextlib.suppress(WriterStopped):
                    self._journal.flush()
            elif not self.read_only:
                try:
                    self._catch_up(self._now())
                    self._save()
                except StorageError as error:  # the journal is the truth: the next opening reads a little more of it
                    logger.warning("the last checkpoint of %s failed: %s", self.name, error, extra=self.fields)
                    with contextlib.suppress(WriterStopped):
                        self._journal.flush()
            try:
                self._journal.log.close()
            finally:
                if self._journal.log.closed:
                    self._let_go(f"the queue {self.name!r} is closed: open the store again")

    def abandon(self, reason: str) -> None:
        """Let go without keeping anything: the queue is no more."""
        with self._lock, self._whole:
            if self._closed is None:
                self._let_go(reason)
                self._unbounded = False  # a put looks before it writes, and finds out
        self._journal.log.abandon()

    def _let_go(self, reason: str) -> None:
        self._quick = self._may_be_quick = False
        self._closed = Closed(reason)
        self.log.detach(self._waiters)
        self._measures.forget()
        self._waiters.listeners = ()
        self._waiters.wake()
        self._bodies.forget()

    def disown(self) -> None:
        """Called in a forked child: this opening is the parent's."""
        self._lock, self._mover, self._pausing = threading.Lock(), threading.Lock(), threading.Lock()
        self._waiters.disown()
        self._quick = self._may_be_quick = False
        self._closed = Closed(
            f"the queue {self.name!r} was opened before this process was forked: open the store again"
        )
        self._journal.log.disown()

    @property
    def closed(self) -> bool:
        """Whether the queue was closed."""
        return self._closed is not None

    @property
    def fields(self) -> dict[str, str]:
        """What log messages about this queue carry in `extra`."""
        return {"queue": self.name, "log": self.log.name}


class _Whole:
    """A change that is cut off half-way (Ctrl-C comes between any two steps) leaves a state that must not be used.

    Entered after the lock, which is C code: a signal between the two finds nothing changed, and the lock is let go.
    """

    __slots__ = ("_spoil",)

    def __init__(self, spoil: Callable[[], None]) -> None:
        self._spoil = spoil

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, HoldfastError):
            self._spoil()


def _end_of(event: Event) -> int:
    """The sequence behind the highest one that an event speaks of."""
    match event:
        case Leased(spans=spans) | Returned(spans=spans) | Moving(spans=spans):
            return max((span.stop for span in spans), default=0)
        case Acked(parts=parts):
            return max((stop for _, spans in parts for _, stop in spans), default=0)
        case Settled(spans=spans):
            return max((stop for _, stop in spans), default=0)
        case Purged(end=end) | Cut(end=end) | Sought(position=end):
            return end
        case _:
            return 0
