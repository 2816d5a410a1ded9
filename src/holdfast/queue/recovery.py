"""Loading of a queue's state: the last checkpoint or snapshot, then the later events of the journal."""

import logging
from collections.abc import Callable
from typing import NamedTuple

from holdfast.base.errors import DiskFull
from holdfast.log.consumer_offsets import place_of
from holdfast.queue.checkpoint import Checkpoint, KeptPosition
from holdfast.queue.checkpoint_store import CheckpointStore
from holdfast.queue.context import QueueContext
from holdfast.queue.dedup import Timeline
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
from holdfast.queue.queue_state import QueueState
from holdfast.state import State
from holdfast.state.simulated import MemoryState

__all__ = ["Loaded", "StateLoader"]

logger = logging.getLogger("holdfast.queue")

_PATIENCE_S = 2.0


class Loaded(NamedTuple):
    """A state that was built from disk, to replace the one in memory."""

    state: State
    rows: Checkpoint
    queue_state: QueueState
    followed: int
    """The end of the applied journal."""
    generation: int
    """The generation of `state`."""
    journal_lost: bool
    """Whether the checkpoint contains events that are no longer in the journal."""


class StateLoader:
    """Builds the state of one queue from disk, and follows its journal in a read-only store.

    Used with the queue's lock held. Invariant: the journal from the position of the checkpoint on leads to the same
    state, whatever was in memory.
    """

    def __init__(
        self,
        queue: QueueContext,
        checkpoints: CheckpointStore,
        *,
        log_is_new: bool,
        record: Callable[[bytes], object],
    ) -> None:
        """Load this queue; `record` appends an event to its journal."""
        self._name, self._fields = queue.name, queue.fields
        self._settings, self._read_only = queue.settings, queue.read_only
        self._log, self._journal, self._clock = queue.log, queue.journal, queue.clock
        self._checkpoints = checkpoints
        self._log_is_new = log_is_new
        """Whether the log that this queue was a view of was deleted, and there is a new one of that name."""
        self._record = record
        self._timeline = Timeline(queue.clock)
        """The clock for the window of dedup ids."""
        self._ids_put_at: dict[int, int] = {}
        """While the state is loaded again: when, on the timeline, messages with ids were put."""
        self._waiting_at = (-1, 0.0)
        """In a read-only store: the record of the journal that is ahead of the log, and since when."""

    def keep_times(self, queue_state: QueueState) -> None:
        """Use the times of dedup ids in this state for the next load, which replaces it."""
        self._ids_put_at = queue_state.dedup.times()

    def finish(self, queue_state: QueueState) -> None:
        """End a load: its state has replaced the one in memory."""
        self._timeline.has_begun = True
        queue_state.dedup.forget_times()
        self._ids_put_at = {}
        self._log_is_new = False

    def load(self) -> Loaded:
        """Build the state from the last checkpoint, or else the last snapshot, and the later events of the journal."""
        now = self._clock.time_ns()
        journal, checkpoints = self._journal.log, self._checkpoints
        state = checkpoints.state
        generation = state.generation
        rows = checkpoints.rows_in(state)
        start, end = journal.readable()
        kept, journal_lost = self._kept_position(rows, start, end)
        is_rebuilt = kept is None
        if is_rebuilt:
            if self._read_only:
                state = MemoryState()
                rows = checkpoints.rows_in(state)
            kept, position = self._rebuild(rows, start, end)
        else:
            assert kept is not None
            position = kept["position"]
        queue_state = self.new_state(state)
        if kept is not None:
            rows.load(queue_state, kept, now)
            queue_state.recount_bytes(self._log)
        window = self._settings.nanoseconds("dedup_window") or 0
        if is_rebuilt or (kept is not None and (kept["dedup"].get("window") or 0) < window):
            self._reread_dedup_ids(queue_state, now)  # missing, or too few of them: the window was made longer
        checkpoints.floor_kept = -1
        position, highest = self.follow(queue_state, position)
        if not self._read_only:
            self._settle_beginning(queue_state, start == end == 0 and kept is None, highest)
        now, end = self._clock.time_ns(), self._log.reader.visible_end
        queue_state.read(self._log.pieces(queue_state.scanned, end), now, end)
        return Loaded(state, rows, queue_state, position, generation, journal_lost)

    def _kept_position(self, rows: Checkpoint, start: int, end: int) -> tuple[KeptPosition | None, bool]:
        """Return the last checkpoint, None if the state must be rebuilt; and whether the journal has lost events.

        A checkpoint contains all events up to its position. If the journal has lost these (its files were deleted), the
        checkpoint is still used, and the journal continues from it with a snapshot.
        """
        kept = rows.position()
        if kept is None and end == 0 and not self._read_only and self._log.positions.exists(place_of(self._name)):
            kept = rows.adopt(self._name)
            if kept is not None:
                logger.error(
                    "journal is missing, continuing from the checkpoint: queue=%s", self._name, extra=self._fields
                )
                return kept, True
        if kept is None or start <= kept["position"] <= end:
            return kept, False
        if kept["position"] < start and self._journal.last_snapshot() is not None:
            return None, False  # the snapshot is newer than the checkpoint
        logger.error(
            "journal has lost events, continuing from the checkpoint: queue=%s start=%d end=%d checkpoint=%d",
            self._name,
            start,
            end,
            kept["position"],
            extra=self._fields,
        )
        return {**kept, "position": min(max(kept["position"], start), end)}, True

    def new_state(self, state: State) -> QueueState:
        """Return an empty state, with its rows in `state`."""
        settings = self._settings
        queue_state = QueueState(
            self._name,
            state,
            self._checkpoints.prefix,
            dedup_window=settings.nanoseconds("dedup_window") or 0,
            dedup_limit=settings.dedup_limit,
            weighs=settings.max_bytes is not None and not self._read_only,
            timeline=self._timeline,
        )
        queue_state.dedup.put_at.update(self._ids_put_at)
        return queue_state

    def _rebuild(self, rows: Checkpoint, start: int, end: int) -> tuple[KeptPosition | None, int]:
        """Restore the journal's last snapshot if the state is lost; return it and the position behind it."""
        if end > 0:
            level = logging.WARNING if start > 0 else logging.INFO  # a new queue has no checkpoint yet
            logger.log(level, "rebuilding the state from the journal: queue=%s", self._name, extra=self._fields)
        if not self._read_only:
            rows.clear()
        snapshot = self._journal.last_snapshot() if end > 0 else None
        if snapshot is None:
            if start > 0:
                logger.error(
                    "journal has lost its beginning, acknowledged messages may be redelivered: queue=%s",
                    self._name,
                    extra=self._fields,
                )
            return None, start
        dumped, position = snapshot
        rows.undump(dumped)
        return rows.position(), position

    def _reread_dedup_ids(self, queue_state: QueueState, now: int) -> None:
        """Read the dedup ids of acknowledged messages, which only the log has."""
        window = self._settings.nanoseconds("dedup_window") or 0
        dedup = queue_state.restart_dedup(self._ids_put_at)
        first, end = self._log.sequence_at(now - window), min(queue_state.scanned, self._log.reader.visible_end)
        first = min([first, *self._ids_put_at])  # a clock that was set ahead makes them older than they are
        for piece in self._log.pieces(first, end):
            for sequence, key, time in zip(
                range(piece.first, piece.end), piece.strings("dedup") or (), piece.times(), strict=False
            ):
                if key is not None:
                    dedup.note(key, sequence, time, now)
        dedup.scanned = queue_state.scanned

    def follow(self, queue_state: QueueState, position: int) -> tuple[int, int]:
        """Apply the journal from `position` on; return its applied end, and the end of the highest message in it."""
        highest = 0
        end = self._journal.log.readable()[1]
        for at, events in self._journal.replay(position, end):
            touched = max(map(_end_of, events), default=0)
            if self._read_only and touched > self._log.reader.visible_end:
                self._log.refresh()
                if touched > self._log.reader.visible_end and self._should_wait_for(at):
                    return at, highest
            for event in events:
                highest = _end_of(event) if isinstance(event, Truncated) else max(highest, _end_of(event))
                if _end_of(event) > queue_state.scanned:
                    known = min(_end_of(event), self._log.reader.visible_end)
                    queue_state.read(self._log.pieces(queue_state.scanned, known), event.time, known)
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
        log, now = self._log, self._clock.time_ns
        end = log.end
        decided = is_new or self._log_is_new
        if is_new:
            self._checkpoints.keep_floor(log.start)
            self._apply([SeekTo(now(), log.start)], queue_state)
        if self._log_is_new:
            logger.warning("log was replaced, starting from its beginning: queue=%s", self._name, extra=self._fields)
            self._apply([Truncated(now(), 0), SeekTo(now(), log.start)], queue_state)
        kept = log.positions.get(place_of(self._name))
        survived = end if kept is None or kept.survived is None else min(end, kept.survived)
        if not self._log_is_new and (highest > survived or queue_state.scanned > survived):
            # Under a weaker flush mode a power cut lost messages that the journal knows. Their sequences are assigned
            # to new messages, so everything about the lost ones must be removed durably.
            logger.warning("messages lost in a crash: queue=%s from=%d", self._name, survived, extra=self._fields)
            self._apply([Truncated(now(), survived)], queue_state)
            decided = True
        if decided:
            self._journal.sync()
        if not is_new:
            try:
                self._checkpoints.keep_floor(min(queue_state.floor(), end))  # which also clears `survived`
            except DiskFull:
                if kept is None or kept.survived is not None:
                    raise  # otherwise only retention needs it, and the next checkpoint saves it

    def _apply(self, events: list[Event], queue_state: QueueState) -> None:
        self._record(b"".join(map(encode, events)))
        for event in events:
            queue_state.apply(event)


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
