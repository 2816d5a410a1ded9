"""Queue state machine: each message is ready, delayed, leased or moving; any other one has left the queue."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import NamedTuple

from holdfast.log.record_batch import RecordSpan
from holdfast.queue.attempts import AttemptLog, Failure
from holdfast.queue.byte_accounting import PayloadSizes, SizedRanges, WeighedDelayed
from holdfast.queue.dedup import Dedup, Timeline
from holdfast.queue.delayed import Delayed
from holdfast.queue.events import (
    Acked,
    Dropped,
    Event,
    Extended,
    Leased,
    LeasedSpan,
    Purged,
    Requeued,
    SeekTo,
    Snapshot,
    Transferring,
    Truncated,
)
from holdfast.queue.lease import Lease, Leases
from holdfast.queue.ready import Ready
from holdfast.state import State

__all__ = ["TARGET_QUEUE_HEADER", "Move", "QueueState", "Totals", "available_key"]

TARGET_QUEUE_HEADER = "holdfast-for"
"""The header of a message that is for one queue only, even if its log has several."""


class Move(NamedTuple):
    """A message that is being moved to another queue."""

    time: int
    """When the move began; with its sequence, this identifies the copy in the target."""
    target: str
    cause: str
    reason: str
    priority: int
    failure: Failure | None


@dataclass(slots=True)
class Totals:
    """Counts of events since the queue was created."""

    leased: int = 0
    acked: int = 0
    nacked: int = 0
    expired: int = 0
    """Deliveries whose lease expired."""
    dead: int = 0
    redriven: int = 0
    dropped: int = 0
    """Messages removed without an ack: expired, over a limit, unreadable, rejected, discarded or purged."""


class QueueState:
    """The state of one queue, changed only by new messages of its log (`enter`) and by events (`apply`).

    Both are idempotent where a crash may make them run again, and an event is applied even if those before it were
    lost: the journal is authoritative. The queue's calls change the state on faster paths with the same result; a test
    compares them. Invariant: a sequence below `scanned` is in at most one of ready, delayed, leases and moving. Used
    with the queue's lock held.
    """

    def __init__(
        self,
        name: str,
        state: State,
        prefix: bytes,
        *,
        dedup_window: int,
        dedup_limit: int,
        weighs: bool = False,
        timeline: Timeline | None = None,
    ) -> None:
        self.name = name
        self.scanned = 0
        """The sequence below which every message of the log was applied."""
        self.expiring = False
        """Whether there may be messages with their own time to live."""
        self.last_lease = 0
        self.plain = True
        """Whether no message is delayed, has a priority, may expire or has failed: the fast paths may be used."""
        self.weights = PayloadSizes() if weighs else None
        """If bytes are limited, the payload sizes of messages that may wait."""
        self.ready = Ready(
            lambda priority, low: state.get("available", available_key(prefix, priority, low)) or b"", self.weights
        )
        self.delayed = (
            Delayed(state, prefix, self.waits_elsewhere)
            if self.weights is None
            else WeighedDelayed(state, prefix, self.waits_elsewhere, self.weights)
        )
        self.leases = Leases()
        self.failures = AttemptLog(state, prefix)
        self.dedup = Dedup(state, prefix, dedup_window, dedup_limit, name, timeline)
        self.moving: dict[int, Move] = {}
        self.totals = Totals()

    def enter(self, piece: RecordSpan, now: int) -> None:
        """Add new messages of the log. Damaged ones are left out."""
        first, end = piece.first, piece.end
        if self.weights is not None:
            self.weights.take(first, piece.sizes())
        dues, priorities, lost = piece.numbers("due"), piece.numbers("priority"), piece.lost()
        if (moved := piece.numbers("producer")) is not None:
            # A redriven message is for one of the queues on this log. The header is used only in a record that was
            # moved, which no user can create.
            owners = (headers.get(TARGET_QUEUE_HEADER, self.name) for headers in piece.headers())
            lost += [
                at
                for at, (time, owner) in enumerate(zip(moved, owners, strict=True), first)
                if time and owner != self.name
            ]
        if dues is None and priorities is None and not lost:
            self.ready.plain.add(first, end)
        elif dues is None and priorities is not None and not lost:
            self.plain = False
            self.ready.add_runs(first, priorities)
        else:
            self.plain = False
            count = end - first
            unreadable = set(lost)
            for sequence, due, priority in zip(
                range(first, end), dues or [0] * count, priorities or [0] * count, strict=True
            ):
                if sequence in unreadable:
                    continue
                if due > now:
                    self.delayed.add(due, sequence, priority)
                else:
                    self.ready.add(priority, sequence, sequence + 1)
        if end > self.dedup.scanned:
            if ids := piece.strings("dedup"):
                for sequence, key, time in zip(range(first, end), ids, piece.times(), strict=True):
                    if key is not None and sequence >= self.dedup.scanned:
                        self.dedup.note(key, sequence, time, now)
            self.dedup.scanned = end
        if not self.expiring and piece.has("expiry"):
            self.expiring = True
            self.plain = False
        self.scanned = end

    def fire(self, now: int) -> bool:
        """Make delayed messages ready that are due; return whether there were any."""
        fired = self.delayed.fire(now)
        for _, sequence, priority in fired:
            self.ready.add(priority, sequence, sequence + 1)
        return bool(fired)

    def refresh_fast_path(self) -> None:
        """Check whether the fast paths are possible again."""
        if self.expiring and not (self.ready or self.delayed.count or self.leases.count):
            self.expiring = False  # the last of them is gone
        self.plain = not (
            self.delayed.count
            or self.expiring
            or len(self.failures)
            or any(level.count for level in self.ready.levels[1:])
        )

    def apply(self, event: Event) -> None:
        """Apply an event of the journal."""
        match event:
            case Leased(_, lease_id, expires, spans):
                self.fire(event.time)
                lease = Lease(expires, set())
                for span in spans:
                    self._take(span)
                    self.add_to_lease(lease, span)
                self.totals.leased += len(lease.left)
                self.leases.add(lease_id, lease)
                self.last_lease = max(self.last_lease, lease_id)
            case Acked(_, parts):
                for lease_id, done in parts:
                    for start, stop in done:
                        self._leave(lease_id, start, stop)
                        self.failures.forget(start, stop)
                        self.totals.acked += stop - start
            case Extended(_, lease_id, expires):
                self.leases.extend(lease_id, expires)
            case Requeued(time, cause, reason, lease_id, due, spans):
                for span in spans:
                    self.give_back(time, cause, reason, lease_id, due, span)
            case Transferring(time, cause, reason, target, lease_id, spans):
                for span in spans:
                    self.start_move(time, cause, reason, target, lease_id, span)
            case Dropped(_, cause, done):
                self.settle(cause, done)
            case Purged(_, end):
                self.totals.dropped += self.ready.count + self.delayed.count
                self._clear_waiting()
                self._forget_but_leased(end)
                self.scanned = max(self.scanned, end)
            case SeekTo(_, position):
                self._clear_waiting()
                self.leases.clear()
                self.failures.forget(0, self.scanned)
                self.moving.clear()
                self.scanned = position
                if self.weights is not None:
                    self.weights.begin(position)
            case Truncated(_, end):
                self._forget_from(end)
            case Snapshot():
                pass

    def add_to_lease(self, lease: Lease, span: LeasedSpan) -> None:
        """Add messages to a new lease."""
        sequences = range(span.start, span.stop)
        lease.left.update(sequences)
        if span.attempt != 1:
            if lease.attempts is None:
                lease.attempts = {}
            lease.attempts.update(dict.fromkeys(sequences, span.attempt))
        if span.priority:
            if lease.priorities is None:
                lease.priorities = {}
            lease.priorities.update(dict.fromkeys(sequences, span.priority))

    def give_back(self, time: int, cause: str, reason: str, lease_id: int, due: int, span: LeasedSpan) -> None:
        """Return messages of a lease, with one more failure unless they were only released."""
        start, stop, priority, attempt = span
        self._leave(lease_id, start, stop)
        if cause == "nacked":
            self.totals.nacked += stop - start
        elif cause == "expired":
            self.totals.expired += stop - start
        if cause != "released":
            self.plain = False
            for sequence in range(start, stop):
                known = self.failures.get(sequence)
                self.failures.set(sequence, Failure(attempt, known.first if known else time, time, reason))
        if due > time:
            self.plain = False
            for sequence in range(start, stop):
                self.delayed.add(due, sequence, priority)
        else:
            self.ready.add(priority, start, stop)

    def start_move(self, time: int, cause: str, reason: str, target: str, lease_id: int, span: LeasedSpan) -> None:
        """Begin to move messages to another queue: from their lease or, without one, from the waiting messages."""
        start, stop, priority, attempt = span
        if lease_id:
            self._leave(lease_id, start, stop)
        else:
            self._take(span)
        for sequence in range(start, stop):
            known = self.failures.get(sequence)
            failed = cause in ("attempts", "rejected")
            failure = Failure(attempt, known.first if known else time, time, reason) if failed else known
            self.moving[sequence] = Move(time, target, cause, reason, priority, failure)
        self.failures.forget(start, stop)

    def settle(self, cause: str, spans: list[tuple[int, int]]) -> None:
        """Remove messages that left without an acknowledgement."""
        delayed: list[tuple[int, int]] = []
        missing = 0
        for start, stop in spans:
            if cause == "moved":
                self._arrive(start, stop)
                continue
            if cause in ("attempts", "rejected"):
                self._leave(0, start, stop)
            elif (found := self.ready.remove_anywhere(start, stop)) < stop - start:
                delayed.append((start, stop))
                missing += stop - start - found
            self.failures.forget(start, stop)
            self.totals.dropped += stop - start
        if delayed and self.delayed.count:  # one search for all of them: it may have to read everything
            self.delayed.leave_out(self.delayed.find(sorted(delayed), missing))

    def floor(self) -> int:
        """Return a sequence below which every message has left the queue; lower if `Delayed` knows it only roughly."""
        candidates = [self.scanned, *(level.first for level in self.ready.levels if level)]
        candidates += [min(lease.left) for lease in self.leases.by_id.values()]
        if (delayed := self.delayed.floor()) is not None:
            candidates.append(delayed)
        if self.moving:
            candidates.append(min(self.moving))
        return min(candidates)

    @property
    def waiting_bytes(self) -> int:
        """The payload bytes of ready and delayed messages; only if bytes are limited."""
        assert isinstance(self.delayed, WeighedDelayed)
        return self.delayed.bytes + sum(level.bytes for level in self.ready.levels if isinstance(level, SizedRanges))

    def weigh(self) -> None:
        """Count the bytes again, after the sizes are known."""
        for place in (self.delayed, *self.ready.levels):
            if isinstance(place, WeighedDelayed | SizedRanges):
                place.weigh()

    @property
    def unsaved(self) -> int:
        """Roughly how many values a checkpoint would write."""
        return self.delayed.unsaved + self.failures.unsaved

    def describe(self) -> dict[str, object]:
        """Return everything in a comparable form, for tests and invariants."""
        return {
            "scanned": self.scanned,
            "ready": {p: _joined(level) for p, level in enumerate(self.ready.levels) if level},
            "delayed": sorted((sequence, due, priority) for due, sequence, priority in self.delayed),
            "leases": {
                lease_id: (lease.expires, lease.spans(lease.left)) for lease_id, lease in self.leases.by_id.items()
            },
            "failures": list(self.failures),
            "moving": sorted(self.moving.items()),
            "totals": asdict(self.totals),
        }

    def outstanding(self) -> list[tuple[int, int]]:
        """Return the spans of all messages that have not left the queue, in order."""
        spans = [span for level in self.ready.levels for span in level]
        spans += [(sequence, sequence + 1) for _, sequence, _ in self.delayed]
        spans += [(sequence, sequence + 1) for lease in self.leases.by_id.values() for sequence in lease.left]
        spans += [(sequence, sequence + 1) for sequence in self.moving]
        return _joined(sorted(spans))

    def check(self) -> None:
        """Assert the invariant: no message is in two sets, and the counts are right. Reads everything."""
        seen: set[int] = set()
        places: list[Iterator[int]] = [
            (s for level in self.ready.levels for span in level for s in range(*span)),
            (sequence for _, sequence, _ in self.delayed),
            (s for lease in self.leases.by_id.values() for s in lease.left),
            iter(self.moving),
        ]
        for place in places:
            for sequence in place:
                assert sequence not in seen, f"message {sequence} is in two sets"
                assert sequence < self.scanned, f"message {sequence} is beyond the applied messages"
                seen.add(sequence)
        for level in self.ready.levels:
            assert level.count == sum(stop - start for start, stop in level)
        assert self.delayed.count == len(list(self.delayed))
        if self.weights is not None:
            counted = self.waiting_bytes
            self.weigh()
            assert counted == self.waiting_bytes
        assert self.leases.count == sum(len(lease.left) for lease in self.leases.by_id.values())

    def _arrive(self, start: int, stop: int) -> None:
        """Remove moving messages that have reached their target."""
        for sequence in range(start, stop):
            move = self.moving.pop(sequence, None)
            if move is None:  # the event of its move was lost, and it may be in another set
                self._leave(0, sequence, sequence + 1)
            if move is not None and move.cause == "redriven":
                self.totals.redriven += 1
            else:
                self.totals.dead += 1

    def _take(self, span: LeasedSpan) -> None:
        """Remove these messages from the sets of waiting ones."""
        if self.ready.remove(span.priority, span.start, span.stop) < span.stop - span.start:
            # Only if events were lost: one is still delayed, or its return from another lease is unknown.
            self._leave(0, span.start, span.stop)

    def _leave(self, lease_id: int, start: int, stop: int) -> None:
        """Remove these messages from their lease; if the journal lost the event of the lease, from any set."""
        missing = stop - start - self.leases.discard(lease_id, range(start, stop))
        if not missing:
            return
        for other in [
            other for other, lease in self.leases.by_id.items() if not lease.left.isdisjoint(range(start, stop))
        ]:
            missing -= self.leases.discard(other, range(start, stop))
        if missing:
            missing -= self.ready.remove_anywhere(start, stop)
        if missing and self.delayed.count:  # last, because it reads everything
            missing -= self.delayed.drop(start, stop)
        if missing and self.moving:
            for sequence in range(start, stop):
                self.moving.pop(sequence, None)

    def waits_elsewhere(self, sequences: list[int]) -> set[int]:
        """Return which of these cannot be delayed: they are ready, leased, moving, or not known."""
        held = {sequence for lease in self.leases.by_id.values() for sequence in lease.left}
        levels = [level for level in self.ready.levels if level]
        return {
            sequence
            for sequence in sequences
            if sequence >= self.scanned
            or sequence in held
            or sequence in self.moving
            or any(sequence in level for level in levels)
        }

    def _clear_waiting(self) -> None:
        for level in self.ready.levels:
            level.clear()
        self.delayed.clear()

    def _forget_but_leased(self, end: int) -> None:
        leased = {sequence for lease in self.leases.by_id.values() for sequence in lease.left}
        for sequence, _ in list(self.failures):
            if sequence < end and sequence not in leased:
                self.failures.forget(sequence, sequence + 1)

    def _forget_from(self, end: int) -> None:
        for level in self.ready.levels:
            if level and level.last >= end:
                level.remove(end, level.last + 1)
        self.delayed.drop(end, 1 << 63)
        for lease_id, lease in list(self.leases.by_id.items()):
            self.leases.discard(lease_id, [sequence for sequence in lease.left if sequence >= end])
        self.failures.forget_from(end)
        self.moving = {sequence: move for sequence, move in self.moving.items() if sequence < end}
        self.dedup.forget_from(end)
        self.scanned = min(self.scanned, end)
        if self.weights is not None:
            self.weights.cut(end)


def available_key(prefix: bytes, priority: int, low: int) -> bytes:
    """Return the key of a chunk of the ready index."""
    return prefix + bytes((priority,)) + low.to_bytes(8, "big")


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge ranges that touch across chunks."""
    found: list[tuple[int, int]] = []
    for start, stop in spans:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return found
