"""Queue state machine: each message is ready, delayed, leased or moving; any other one has left the queue."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

from holdfast.log.log import Log
from holdfast.log.record_batch import RecordSpan
from holdfast.queue.attempts import AttemptLog, Failure
from holdfast.queue.byte_accounting import PayloadSizes
from holdfast.queue.dedup import Dedup, Timeline
from holdfast.queue.delayed import Delayed, Entry, WeighedDelayed
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
from holdfast.queue.ranges import SizedRanges, spans_of
from holdfast.queue.ready import Pick, Ready
from holdfast.state import State

__all__ = ["TARGET_QUEUE_HEADER", "Held", "HeldMessages", "Move", "QueueState", "Totals", "available_key"]

TARGET_QUEUE_HEADER = "holdfast-for"
"""The header of a message that is for one queue only, even if its log has several."""


HeldMessages = Mapping[int, Collection[int]]
"""Leased messages: their ids by the id of their lease."""


class Held(NamedTuple):
    """Messages that a lease holds."""

    lease_id: int
    lease: Lease
    ids: set[int]


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
    """The state of one queue, changed only here: by new messages of its log (`enter`) and by events (`apply`).

    Both are idempotent where a crash may make them run again, and an event is applied even if those before it were
    lost: the journal is authoritative. `lease`, `ack_one` and the other methods for calls that know where a message is
    have the same result as the event, and are faster; a test compares them. Invariant: a sequence below `scanned` is in
    at most one of ready, delayed, leases and moving. Used with the queue's lock held.
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
        self._new_dedup = partial(Dedup, state, prefix, dedup_window, dedup_limit, name, timeline)
        self.dedup = self._new_dedup()
        self.moving: dict[int, Move] = {}
        self.totals = Totals()

    def enter(self, piece: RecordSpan, now: int) -> None:
        """Add new messages of the log. Damaged ones are left out."""
        if self.weights is not None:
            self.weights.take(piece.first, piece.sizes())
        if piece.is_plain:
            self.ready.plain.add(piece.first, piece.end)
        else:
            self._enter_options(piece, now)
        self.scanned = piece.end
        self.dedup.scanned = max(self.dedup.scanned, piece.end)

    def _enter_options(self, piece: RecordSpan, now: int) -> None:
        """Add new messages of which some have options, or are damaged."""
        first, end = piece.first, piece.end
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
        if end > self.dedup.scanned and (ids := piece.strings("dedup")):
            for sequence, key, time in zip(range(first, end), ids, piece.times(), strict=True):
                if key is not None and sequence >= self.dedup.scanned:
                    self.dedup.note(key, sequence, time, now)
        if not self.expiring and piece.has("expiry"):
            self.expiring = True
            self.plain = False

    def read(
        self,
        pieces: Iterable[RecordSpan],
        now: int,
        end: int,
        after_piece: "Callable[[QueueState], None] | None" = None,
    ) -> None:
        """Add the messages of the log from `scanned` up to `end`: these pieces are what it has of them.

        `after_piece` may make a checkpoint. It is not called for messages that leave nothing to save. A replay has
        none: that would be ahead of the applied events.
        """
        if self.scanned < end:
            for piece in pieces:
                self.enter(piece, now)
                if after_piece is not None and not self.plain:
                    after_piece(self)
            self.scanned = end
            self.dedup.scanned = max(self.dedup.scanned, end)

    def fire(self, now: int) -> bool:
        """Make delayed messages ready that are due; return whether there were any."""
        fired = self.delayed.fire(now)
        for _, sequence, priority in fired:
            self.ready.add(priority, sequence, sequence + 1)
        return bool(fired)

    def fire_early(self, count: int) -> list[Entry]:
        """Make the next delayed messages ready before they are due, and return them."""
        early = self.delayed.take_first(count)
        for _, sequence, priority in early:
            self.ready.add(priority, sequence, sequence + 1)
        return early

    def delay_again(self, early: list[Entry]) -> None:
        """Undo `fire_early`."""
        for due, sequence, priority in early:
            self.ready.remove(priority, sequence, sequence + 1)
            self.delayed.add(due, sequence, priority)

    def next_lease(self, now: int) -> int:
        """Return the id of a lease that begins now: its time, unless that is not above the last id."""
        return self.last_lease + 1 if self.last_lease >= now else now

    def attempts_of(self, ids: list[int]) -> list[int] | None:
        """Return the number of the next delivery of each message; None if it is the first one of all of them."""
        if self.plain or not len(self.failures):
            return None
        return [failure.attempts + 1 if (failure := self.failures.get(id)) else 1 for id in ids]

    def new_lease(self, now: int, expires: int, picks: list[Pick], attempts: list[int] | None) -> Leased:
        """Return the event of a lease of these ready messages that begins now, with the number of each delivery."""
        if attempts is None:
            spans = [LeasedSpan(start, stop, priority, 1) for priority, start, stop in picks]
        else:
            spans = _spans_of(picks, attempts)
        return Leased(now, self.next_lease(now), expires, spans)

    def lease(self, event: Leased, picks: list[Pick]) -> None:
        """Apply the event of a lease of ready messages, given by `Ready.pick`."""
        for priority, start, stop in picks:
            level = self.ready.levels[priority]
            if level.first == start:
                level.take_front(start, stop)
            else:
                level.remove(start, stop)
        self.last_lease = event.lease
        self.totals.leased += self.leases.begin(event)

    def lease_one(self, lease_id: int, expires: int, sequence: int) -> None:
        """Lease the first ready message without a priority or, if none is ready, the next one of the log."""
        leases = self.leases
        if sequence == self.scanned:  # just put: it need not be added to the ready set
            self.scanned = self.dedup.scanned = sequence + 1
        else:
            self.ready.plain.take_front(sequence, sequence + 1)
        self.last_lease = lease_id
        if expires < leases.next_check or not leases.by_id:
            leases.next_check = expires
        leases.by_id[lease_id] = Lease(expires, {sequence})
        leases.count += 1
        self.totals.leased += 1

    def ack_one(self, lease_id: int, lease: Lease, sequence: int) -> None:
        """Acknowledge a message that this lease holds."""
        leases = self.leases
        if len(lease.left) == 1:
            del leases.by_id[lease_id]
        else:
            lease.left.remove(sequence)
        leases.count -= 1
        if not self.plain:
            self.failures.forget(sequence, sequence + 1)
        self.totals.acked += 1

    def held(self, parts: HeldMessages, lost: list[int]) -> list[Held]:
        """Return which of these messages each lease holds; the others are added to `lost`."""
        found: list[Held] = []
        for lease_id, ids in parts.items():
            wanted = ids if isinstance(ids, set) else set(ids)
            lease = self.leases.by_id.get(lease_id)
            if lease is None:
                lost += sorted(wanted)
            elif wanted <= lease.left:
                if wanted:
                    found.append(Held(lease_id, lease, wanted))
            else:
                lost += sorted(wanted - lease.left)
                if held := wanted & lease.left:
                    found.append(Held(lease_id, lease, held))
        return found

    def drop_held(self, found: list[Held], spans: list[tuple[int, int]]) -> None:
        """Drop leased messages, in these spans. As `settle`, which has to search for their lease."""
        for lease_id, _, ids in found:
            self.leases.discard(lease_id, ids)
        self._forget_dropped(spans)

    def drop_waiting(self, spans: list[tuple[int, int]], delayed: list[Entry]) -> None:
        """Drop messages that are ready or among these delayed ones. As `settle`, which has to search for them."""
        self.delayed.leave_out(delayed)
        for start, stop in spans:
            self.ready.remove_anywhere(start, stop)
        self._forget_dropped(spans)

    def _forget_dropped(self, spans: list[tuple[int, int]]) -> None:
        for start, stop in spans:
            self.failures.forget(start, stop)
            self.totals.dropped += stop - start

    def removal(self, now: int, cause: str, reason: str, sequences: list[int], target: str | None) -> Event:
        """Return the event that moves ready messages to the queue `target`, or drops them if it is None."""
        if target is None:
            return Dropped(now, cause, spans_of(sequences))
        spans = [
            LeasedSpan(start, stop, priority, 0)
            for priority, level in enumerate(self.ready.levels)
            for first, last in spans_of(sequences)
            for start, stop in level.within(first, last)
        ]
        return Transferring(now, cause, reason, target, 0, spans)

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
            case Leased():
                self._apply_lease(event)
            case Acked(_, parts):
                self._apply_acks(parts)
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

    def _apply_lease(self, event: Leased) -> None:
        self.fire(event.time)
        for span in event.spans:
            self._take(span)
        self.totals.leased += self.leases.begin(event)
        self.last_lease = max(self.last_lease, event.lease)

    def _apply_acks(self, parts: list[tuple[int, list[tuple[int, int]]]]) -> None:
        for lease_id, done in parts:
            for start, stop in done:
                self._leave(lease_id, start, stop)
                self.failures.forget(start, stop)
                self.totals.acked += stop - start

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

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Restore the numbers of a checkpoint; its rows are restored in the sets."""
        self.scanned = kept["scanned"]
        self.expiring = kept["expiring"]
        self.last_lease = kept["last_lease"]
        self.totals = Totals(**kept["totals"])
        self.plain = False  # until it is checked

    def restart_dedup(self, put_at: Mapping[int, int]) -> Dedup:
        """Start with an empty set of dedup ids, to be read from the log, and return it."""
        self.dedup = self._new_dedup()
        self.dedup.put_at.update(put_at)
        return self.dedup

    def recount_bytes(self, log: Log) -> None:
        """If bytes are limited, read the payload sizes from the log, after a restart."""
        if self.weights is not None:
            floor = self.floor()
            self.weights.begin(floor)
            for piece in log.pieces(floor, min(self.scanned, log.reader.visible_end)):
                self.weights.take(piece.first, piece.sizes())
            self.weigh()

    def count_before(self, sequence: int) -> int:
        """Return how many messages are below a sequence; up to 4095 too many with very many delayed ones."""
        return (
            sum(level.count_before(sequence) for level in self.ready.levels)
            + self.delayed.count_before(sequence)
            + sum(one < sequence for lease in self.leases.by_id.values() for one in lease.left)
            + sum(one < sequence for one in self.moving)
        )

    @property
    def waiting(self) -> int:
        """How many messages are ready or delayed."""
        return self.ready.count + self.delayed.count

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


def _spans_of(picks: list[Pick], attempts: list[int]) -> list[LeasedSpan]:
    """Return these messages as spans of equal priority and number of deliveries."""
    spans: list[LeasedSpan] = []
    numbers = iter(attempts)
    for priority, start, stop in picks:
        for id, attempt in zip(range(start, stop), numbers, strict=False):
            if spans and spans[-1].stop == id and spans[-1][2:] == (priority, attempt):
                spans[-1] = LeasedSpan(spans[-1].start, id + 1, priority, attempt)
            else:
                spans.append(LeasedSpan(id, id + 1, priority, attempt))
    return spans


def _joined(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merge ranges that touch across chunks."""
    found: list[tuple[int, int]] = []
    for start, stop in spans:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return found
