"""Transfer of messages to another queue: the copy is durable before the original is removed, and written once."""

import contextlib
import logging
from typing import Any

from holdfast.base.clock import NS
from holdfast.base.errors import HoldfastError, NotFound, StorageError
from holdfast.log.batch import ColumnValue
from holdfast.log.log import Log
from holdfast.log.record import HeaderValue, headers_size
from holdfast.queue.dead_letter_forwarder import ForwardedLetter, is_forwarded
from holdfast.queue.dispatcher import LONGEST_SLEEP_S, Core
from holdfast.queue.events import Dropped, LeasedSpan, Transferring
from holdfast.queue.lease import NEVER
from holdfast.queue.messages import DeadLetter, PeekedMessage
from holdfast.queue.queue_core import CHECKPOINT_VALUES, SWEEP_S
from holdfast.queue.queue_state import TARGET_QUEUE_HEADER, Move
from holdfast.queue.ranges import spans_of

__all__ = ["DEATH", "Transfers", "dead_letter_of"]

logger = logging.getLogger("holdfast.queue")

DEATH = "holdfast-dead-"
"""Prefix of the headers that are added to dead letters."""
REDRIVEN = "holdfast-redriven"
"""The header that counts how often a message was moved back from the dead letters."""
CHECKPOINT_BYTES = 8 << 20
"""Journal bytes after which a checkpoint is made, so that opening after a kill replays little."""
CHECKPOINT_INTERVAL_S = 30.0
_RETRY_S = 1.0
_SOON_S = 0.01
"""The shortest wait for the next expiry: messages that expire at about the same time are dropped together."""
_BATCH = 1000
_BATCH_BYTES = 4 << 20
_LOOKED_AT = 10_000
"""How many dead letters are checked at a time with the lock held, if few of them match."""


class Transfers(Core):
    """The part of a queue that moves messages to other queues.

    A move is in the journal before it begins, so after a crash it is finished. The copy in the target has the time of
    the move and the message's sequence (the columns `producer` and `number`), which show whether it has arrived: it is
    never written twice. A forwarder outside of the store may get a dead letter again, marked as `doubtful`. `_mover` is
    held while messages are copied.
    """

    _swept_to = -1
    """How far the log was scanned at the last tick."""
    _next_overdue = NEVER
    """When the next waiting message expires."""

    def _start_transfers(self) -> None:
        """Copy moving messages to their targets now, or wake the ticker to do so."""
        if not self.carries_later:
            self.carry()
        elif not self._background_notified:
            self._background_notified = True
            self._wake_ticker()

    def carry(self, *, wait: bool = True) -> None:
        """Copy moving messages to their targets, and remove them here. After an error the ticker tries again.

        Without `wait`, messages that another thread is copying are left to that thread.
        """
        if wait:
            with self._mover:
                self._carry()
            return
        held: list[bool] = []
        try:
            held.extend(map(self._mover.acquire, (False,)))  # taken and recorded by one call of C code
            if True in held:
                self._carry()
        finally:
            if True in held:
                self._mover.release()

    def _carry(self) -> None:
        self._background_notified = False
        with self._lock, self._whole:
            if self._journal.broken:  # the moving messages are unknown until `_look` loads the state again
                return
            moving = dict(self.queue_state.moving)
        problem: HoldfastError | None = None
        # Set first, so that it stays set if this is cut off: it is then unknown which of them have arrived.
        doubtful, self._doubtful_moves = self._doubtful_moves, True
        try:
            # The moves must be durable before the copies: otherwise a crash could duplicate messages.
            self._settle_journal()
            for target in sorted({move.target for move in moving.values()}):
                leaving = {at: move for at, move in moving.items() if move.target == target}
                try:
                    if is_forwarded(target):
                        self._forward_to(target, leaving)
                    else:
                        self._carry_to(target, leaving, doubtful)
                except HoldfastError as error:  # moves to other targets continue
                    problem = error
        except HoldfastError as error:
            problem = error
        self._doubtful_moves = problem is not None
        if problem is not None:
            self._background_notified = True  # the ticker tries again
            level = logging.INFO if isinstance(problem, NotFound) else logging.WARNING  # a forwarder may be set later
            logger.log(
                level,
                "messages not moved yet, will retry: queue=%s count=%d reason=%s",
                self.name,
                len(moving),
                problem,
                extra=self.fields,
            )

    def tick(self) -> float | None:
        """Do the background work that is due; return in how many seconds to call again, None if there is no more."""
        if self.read_only:
            return None
        with self._lock, self._whole:
            if self._closed is not None:
                return None
            now = self._now()
            pending_block = self._look(now)
            timed = self._ttl_ns is not None or self.queue_state.expiring
            self._next_overdue = self._sweep_overdue(now) if timed else NEVER
            waits = self._until_next(now)
            if self._journal.pending:
                self._journal.flush()
                waits.append(self._journal.log.settings.flush.interval_ns / NS)
            else:
                self._background_idle = not waits or self._journal.log.settings.flush.mode != "sync"
            self._tick_at = now + round(min(waits) * NS) if waits else NEVER
        self._journal.commit(pending_block)
        if self.queue_state.moving:
            self.carry()
        more = self._journal.log.tick()
        return min([*waits, *([more] if more is not None else [])], default=None)

    def _until_next(self, now: int) -> list[float]:
        queue_state = self.queue_state
        waits = []
        if self._journal.since_checkpoint or queue_state.unsaved:
            moment = self._clock.monotonic()
            if self._checkpoint_at is None:
                self._checkpoint_at = moment + CHECKPOINT_INTERVAL_S
            if (
                moment >= self._checkpoint_at
                or self._journal.since_checkpoint > CHECKPOINT_BYTES
                or queue_state.unsaved > CHECKPOINT_VALUES
            ):
                if not (pause := self.checkpoints.wait(moment)):
                    with contextlib.suppress(StorageError):
                        self._recover_and_save()
                    queue_state, pause = self.queue_state, self.checkpoints.wait(moment)
                if self.checkpoints.failing:
                    waits.append(pause)
            else:
                waits.append(self._checkpoint_at - moment)
        if (left := queue_state.leases.due_in(now)) is not None:
            waits.append(min(left / NS, LONGEST_SLEEP_S))
        expires = self._ttl_ns is not None or queue_state.expiring
        # New messages may have been delivered by now: then one more check is enough, and not one with each put.
        if (expires and queue_state.ready) or (self._may_leave and queue_state.scanned != self._swept_to):
            waits.append(min(SWEEP_S, max(_SOON_S, (self._next_overdue - now) / NS)))
        self._swept_to = queue_state.scanned
        if queue_state.moving:
            waits.append(_RETRY_S)
        if (self._waiters.listeners or self._may_leave) and (due := queue_state.delayed.next_due) is not None:
            waits.append(max(0.0, min((due - now) / NS, LONGEST_SLEEP_S)))
        return waits

    def _carry_to(self, name: str, leaving: dict[int, Move], doubtful: bool) -> None:
        target = self._find_queue(name)
        if target is None:  # created without a dead letter queue: a second move would lose the original queue
            is_home = all(move.cause == "redriven" for move in leaving.values())
            target = self._open_queue(name) if is_home else self._open_queue(name, dead_letter=None, max_attempts=None)
        if doubtful:
            target.log.sync()  # an interrupted move may have left copies there that are not visible yet
        arrived = _arrived(target.log, self.name, leaving) if doubtful else set()
        waiting = sorted(leaving.keys() - arrived)
        while waiting:
            payloads: list[bytes] = []
            extras: list[ColumnValue] = []
            with self._lock, self._whole:
                done = self._add_copies(waiting, leaving, payloads, extras)
            if payloads:
                pending_block, _, _ = target.log.gather(payloads, extras, 0, limited=False)
                target.log.commit(pending_block)
                target.log.sync()  # in any flush mode: the copies must be durable before the originals are removed
                target.log.notify_readers()
            self._arrive(waiting[:done])
            del waiting[:done]
        if arrived:
            self._arrive(sorted(arrived))

    def _forward_to(self, target: str, leaving: dict[int, Move]) -> None:
        forwarder = self._find_forwarder(target)
        if forwarder is None:
            raise NotFound(f"there is no forwarder for dead letters to {target!r}: set one with Store.forward")
        waiting = sorted(leaving)
        while waiting:
            forwarded: list[ForwardedLetter] = []
            with self._lock, self._whole:
                done = self._add_forwarded(waiting, leaving, forwarded)
            if forwarded:
                self._handed_over.update(one.id for one in forwarded)
                forwarder(self.name, target, forwarded)
                self._handed_over.difference_update(one.id for one in forwarded)
            self._arrive(waiting[:done])
            del waiting[:done]

    # Loops that run with a lock held are in separate functions: see "Signals" in docs/architecture.md.

    def _add_copies(
        self, waiting: list[int], leaving: dict[int, Move], payloads: list[bytes], extras: list[ColumnValue]
    ) -> int:
        """Add the copies of the first messages for another queue; return how many messages were processed."""
        done, size = 0, 0
        while done < len(waiting) and done < _BATCH and size < _BATCH_BYTES:
            size += self._add_copy(waiting[done], leaving[waiting[done]], payloads, extras)
            done += 1
        return done

    def _add_forwarded(self, waiting: list[int], leaving: dict[int, Move], forwarded: list[ForwardedLetter]) -> int:
        """Add the first messages for a forwarder; return how many messages were processed."""
        done, size = 0, 0
        while done < len(waiting) and done < _BATCH and size < _BATCH_BYTES:
            if (one := self._forwarded(waiting[done], leaving[waiting[done]])) is not None:
                forwarded.append(one)
                size += len(one.payload)
            done += 1
        return done

    def _forwarded(self, sequence: int, move: Move) -> ForwardedLetter | None:
        page = self._bodies.page(sequence)
        if page is None:
            logger.error(
                "unreadable message dropped, not moved: queue=%s id=%d", self.name, sequence, extra=self.fields
            )
            return None
        index = sequence - page.first
        return ForwardedLetter(
            id=sequence,
            payload=page.payloads[index],
            key=page.keys[index] if page.keys else None,
            headers={name: value for name, value in page.headers[index].items() if name != TARGET_QUEUE_HEADER}
            if page.headers
            else {},
            priority=move.priority,
            cause=move.cause,
            reason=move.reason,
            attempts=move.failure.attempts if move.failure is not None else 0,
            enqueued_at=page.times[index],
            moved_at=move.time,
            doubtful=sequence in self._handed_over,
        )

    def _arrive(self, sequences: list[int]) -> None:
        with self._lock, self._whole:
            hold = [sequence for sequence in sequences if sequence in self.queue_state.moving]
            pending_block = self._decide([Dropped(self._now(), "moved", spans_of(hold))]) if hold else None
        self._commit(pending_block)

    def _add_copy(self, sequence: int, move: Move, payloads: list[bytes], extras: list[ColumnValue]) -> int:
        """Add the copy of a message for another queue; return its size in bytes."""
        page = self._bodies.page(sequence)
        if page is None:
            logger.error(
                "unreadable message dropped, not moved: queue=%s id=%d", self.name, sequence, extra=self.fields
            )
            return 0
        index = sequence - page.first
        headers: dict[str, HeaderValue] = dict(page.headers[index]) if page.headers else {}
        headers.pop(TARGET_QUEUE_HEADER, None)
        if move.cause == "redriven":
            times = _number(headers.get(REDRIVEN)) + 1
            headers = {name: value for name, value in headers.items() if not name.startswith(DEATH)}
            headers[REDRIVEN] = str(times)
            headers[TARGET_QUEUE_HEADER] = move.target  # on a shared log the other queues must not deliver it
        else:
            headers |= self._death(sequence, move, page.times[index])
        position, before = len(payloads), len(extras)
        payloads.append(page.payloads[index])
        extras.append(ColumnValue(position, "headers", headers, headers_size(headers)))
        if page.keys and (key := page.keys[index]) is not None:
            extras.append(ColumnValue(position, "key", key, len(key)))
        if move.priority:
            extras.append(ColumnValue(position, "priority", move.priority, 0))
        extras += (ColumnValue(position, "producer", move.time, 0), ColumnValue(position, "number", sequence, 0))
        return len(payloads[-1]) + sum(extra.size for extra in extras[before:])

    def _death(self, sequence: int, move: Move, enqueued_at: int) -> dict[str, HeaderValue]:
        facts: dict[str, object] = {
            "queue": self.name,
            "id": sequence,
            "cause": move.cause,
            "reason": move.reason,
            "enqueued-at": enqueued_at,
        }
        if move.failure is not None:
            facts |= {
                "attempts": move.failure.attempts,
                "first-failure": move.failure.first,
                "last-failure": move.failure.last,
            }
            if move.cause not in ("attempts", "rejected") and move.failure.reason:
                facts["last-reason"] = move.failure.reason
        text = {DEATH + name: str(value).encode("utf-8", "replace").decode() for name, value in facts.items()}
        return dict(text)

    def redrive_to(self, ids: set[int] | None, home: str) -> int:
        """On a dead-letter queue: move the present dead letters of `home` back; return how many.

        Those that fail again meanwhile stay: otherwise a consumer that fails at once would keep this running forever.
        """
        count = 0
        start, stop = self._reach(ids)
        place: tuple[int, int] | None = None
        while place is None or place[0] >= 0:
            with self._lock, self._whole:
                now = self._now()
                self._look(now)
                if place is None:  # after `_look`, which may add levels for higher priorities
                    place = len(self.queue_state.ready.levels) - 1, start
                spans, place = self._dead_letters_of(home, ids, place, start, stop)
                pending_block = self._decide([Transferring(now, "redriven", "", home, 0, spans)]) if spans else None
            if spans:
                self._commit(pending_block)
                self._start_transfers()
                count += len(spans)
        return count

    def _dead_letters_of(
        self, home: str, ids: set[int] | None, place: tuple[int, int], start: int, stop: int
    ) -> tuple[list[LeasedSpan], tuple[int, int]]:
        """Return some dead letters of `home`, from a priority and a sequence on, and where to continue."""
        priority, at = place
        spans: list[LeasedSpan] = []
        looked = 0
        while priority >= 0 and len(spans) < _BATCH and looked < _LOOKED_AT:
            found = self.queue_state.ready.level(priority).following(at, _BATCH - len(spans))
            ready = [one for first, end in found for one in range(first, min(end, stop))]
            if not ready:
                priority, at = priority - 1, start
                continue
            looked += len(ready)
            at = ready[-1] + 1
            spans += [
                LeasedSpan(one, one + 1, priority, 0)
                for one in ready
                if (ids is None or one in ids) and self._is_of(one, home)
            ]
        return spans, (priority, at)

    def _reach(self, ids: set[int] | None) -> tuple[int, int]:
        """Return the range of sequences of these dead letters, up to the present end of the log."""
        end = self.log.visible_end
        return (0, end) if ids is None else (min(ids, default=end), min(end, max(ids, default=-1) + 1))

    def _is_of(self, sequence: int, home: str) -> bool:
        """Return whether a dead letter is from the queue of this name. Called with the lock held."""
        return self._bodies.headers(sequence).get(DEATH + "queue", home) == home


def _arrived(log: Log, origin: str, leaving: dict[int, Move]) -> set[int]:
    """Return which of these reached the target before a crash, or an error, prevented the confirmation."""
    if not leaving:
        return set()
    wanted = {(move.time, sequence) for sequence, move in leaving.items()}
    since = log.sequence_at(min(move.time for move in leaving.values()))
    found: set[int] = set()
    for piece in log.pieces(since, log.visible_end):
        producers, numbers = piece.numbers("producer"), piece.numbers("number")
        if producers is None or numbers is None:
            continue
        for producer, number, headers in zip(producers, numbers, piece.headers(), strict=True):
            if (producer, number) in wanted and headers.get(DEATH + "queue", origin) == origin:
                found.add(number)
    return found


def dead_letter_of(message: PeekedMessage) -> DeadLetter:
    """Make a dead letter from a message of a dead-letter queue, by its headers."""
    facts: dict[str, Any] = {
        name.removeprefix(DEATH): value for name, value in message.headers.items() if name.startswith(DEATH)
    }
    died_at = message.enqueued_at
    return DeadLetter(
        id=message.id,
        payload=message.payload,
        key=message.key,
        headers={name: value for name, value in message.headers.items() if not name.startswith(DEATH)},
        reason=str(facts.get("reason", "")),
        cause=str(facts.get("cause", "")),
        attempts=_number(facts.get("attempts")),
        first_failed_at=_number(facts.get("first-failure")) or None,
        last_failed_at=_number(facts.get("last-failure")) or None,
        queue=str(facts.get("queue", "")),
        original_id=_number(facts.get("id")),
        enqueued_at=_number(facts.get("enqueued-at")) or died_at,
        died_at=died_at,
        redriven=_number(message.headers.get(REDRIVEN)),
    )


def _number(value: HeaderValue | None) -> int:
    try:
        return int(value or 0)
    except ValueError:
        return 0
