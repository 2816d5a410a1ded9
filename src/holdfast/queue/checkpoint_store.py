"""When a queue's state is saved, and what must be durable before."""

import contextlib
import logging
from collections.abc import Callable

from holdfast.base.errors import DiskFull, StorageError
from holdfast.log.consumer_offsets import Position, place_of
from holdfast.queue.checkpoint import Checkpoint
from holdfast.queue.checkpoint_health import CheckpointHealth
from holdfast.queue.context import QueueContext
from holdfast.queue.queue_state import QueueState
from holdfast.state import State

__all__ = ["CheckpointStore"]

logger = logging.getLogger("holdfast.queue")

CHECKPOINT_VALUES = 16_384
"""Changed values in memory after which a checkpoint writes them to the state."""
CHECKPOINT_BYTES = 8 << 20
"""Journal bytes after which a checkpoint is made, so that opening after a kill replays little."""
CHECKPOINT_INTERVAL_S = 30.0


class CheckpointStore:
    """The rows of a queue in the state, and its position in the log. Used with the queue's lock held.

    Invariant: what is saved is never ahead of the log and of the journal on disk.
    """

    def __init__(self, queue: QueueContext, state: State, free_space: Callable[[], bool]) -> None:
        """Use these rows; `free_space` is called on a full disk, and returns whether it freed space."""
        self.prefix = queue.journal.log.id[:8]
        """The prefix of this queue's rows."""
        self.health = CheckpointHealth()
        """Whether checkpoints succeed. If they fail, the queue works on: opening has more of the journal to replay."""
        self.floor_kept = -1
        """The saved position below which all messages have left the queue; -1 if it is not known."""
        self.state = state
        self._name, self._fields = queue.name, queue.fields
        self._log, self._journal, self._clock = queue.log, queue.journal, queue.clock
        self._history_ns = queue.settings.nanoseconds("history") or 0
        self._free_space = free_space
        self._due_at: float | None = None
        self.generation = state.generation
        """The generation of the state that was loaded. If the state has another one, it was opened again after a
        failure, and what was loaded may be newer than it is now.
        """
        self._rows = self.rows_in(state)

    def rows_in(self, state: State) -> Checkpoint:
        """Return the rows of this queue in a state."""
        return Checkpoint(state, self.prefix, self._journal.log.id, self._fields)

    def use(self, state: State, rows: Checkpoint, generation: int) -> None:
        """Save to these rows from now on: the queue's state was loaded from them."""
        self.state, self._rows, self.generation = state, rows, generation

    @property
    def orphans(self) -> int:
        """Dangling entries that were found and repaired when the rows were read."""
        return self._rows.orphans

    def due_in(self, queue_state: QueueState) -> float | None:
        """Return the seconds until a checkpoint should be made; None if nothing has changed."""
        if not (self._journal.since_checkpoint or queue_state.unsaved):
            return None
        moment = self._clock.monotonic()
        if self._due_at is None:
            self._due_at = moment + CHECKPOINT_INTERVAL_S
        if self._journal.since_checkpoint > CHECKPOINT_BYTES or queue_state.unsaved > CHECKPOINT_VALUES:
            return 0.0
        return max(0.0, self._due_at - moment)

    def save(self, queue_state: QueueState) -> None:
        """Make a checkpoint of a state that is known to be consistent."""
        try:
            self._write(queue_state)
        except StorageError as error:
            self.failed(error)
            raise
        if self.health.succeeded():
            logger.warning("checkpoints succeed again: queue=%s", self._name, extra=self._fields)

    def save_if_full(self, queue_state: QueueState) -> None:
        """Make a checkpoint if so many values have changed that they should leave memory, and it is possible now."""
        is_full = queue_state.unsaved > CHECKPOINT_VALUES and not self.state.stopped
        if is_full and not self.health.wait(self._clock.monotonic()):
            with contextlib.suppress(StorageError):
                self.save(queue_state)

    def failed(self, error: StorageError) -> None:
        """Record that a checkpoint failed."""
        if self.health.failed(str(error), self._clock.time_ns(), self._clock.monotonic()):
            logger.error("checkpoint failed, will retry: queue=%s error=%s", self._name, error, extra=self._fields)

    def _write(self, queue_state: QueueState) -> None:
        """Sync log and journal, then write a checkpoint that refers to them."""
        self._log.appender.sync()
        position = self._journal.sync()
        now = self._clock.time_ns()
        self._rows.save(queue_state, position, now)
        self._due_at = None
        floor = min(queue_state.floor(), self._log.end)
        self.keep_floor(floor)
        if queue_state.weights is not None:
            queue_state.weights.forget_before(floor)
        if self._history_ns and self._journal.has_older_than(now - self._history_ns):
            self.write_snapshot()
            self._journal.forget_before(self._history_ns)

    def write_snapshot(self) -> None:
        """Write the saved rows to the journal."""
        self._journal.write_snapshot(self._rows.dump(), self._clock.time_ns())

    def renew_journal(self) -> None:
        """Replace all events of the journal by the saved rows."""
        self._journal.renew(self._rows.dump(), self._clock.time_ns())

    def keep_floor(self, floor: int) -> None:
        """Save, durably, the position below which all messages have left the queue. Retention keeps the others."""
        while floor != self.floor_kept:
            try:
                self._log.positions.set(Position(place_of(self._name), floor, self._clock.time_ns()))
                self.floor_kept = floor
            except DiskFull:
                if not self._free_space():
                    raise
