"""Transfer of messages to another queue: the copy is durable before the original is removed, and written once."""

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.base.errors import HoldfastError, NotFound
from holdfast.log.batch import ColumnValue
from holdfast.log.log import Log
from holdfast.log.record import HeaderValue, headers_size
from holdfast.queue.body_cache import BodyCache, Page
from holdfast.queue.dead_letter_forwarder import ForwardedLetter, Forwarder, is_forwarded
from holdfast.queue.events import Dropped, LeasedSpan, Transferring
from holdfast.queue.messages import DeadLetter, PeekedMessage
from holdfast.queue.queue_core import QueueCore
from holdfast.queue.queue_state import TARGET_QUEUE_HEADER, Move
from holdfast.queue.ranges import spans_of

if TYPE_CHECKING:
    from holdfast.queue.queue import Queue

__all__ = ["DEATH", "Transfers", "dead_letter_of", "is_dead_letter_of", "reach"]

logger = logging.getLogger("holdfast.queue")

DEATH = "holdfast-dead-"
"""Prefix of the headers that are added to dead letters."""
REDRIVEN = "holdfast-redriven"
"""The header that counts how often a message was moved back from the dead letters."""
BATCH = 1000
_BATCH_BYTES = 4 << 20
_LOOKED_AT = 10_000
"""How many dead letters are checked at a time with the lock held, if few of them match."""


class Transfers:
    """Moves messages of a queue to other queues. Owns its lock, and what is known of moves that are not confirmed.

    A move is in the journal before it begins, so after a crash it is finished. The copy in the target has the time of
    the move and the message's sequence (the columns `producer` and `number`), which show whether it has arrived: it is
    never written twice. A forwarder outside of the store may get a dead letter again, marked as `doubtful`.
    """

    def __init__(
        self,
        core: QueueCore,
        *,
        open_queue: "Callable[..., Queue]",
        find_queue: "Callable[[str], Queue | None]",
        find_forwarder: Callable[[str], Forwarder | None],
    ) -> None:
        self.in_background = False
        """Whether only the background moves dead letters: for callers that must not wait for a disk."""
        self._core = core
        self._open_queue = open_queue
        self._find_queue = find_queue
        self._find_forwarder = find_forwarder
        self._mover = threading.Lock()
        """Held, also during syncs, while messages are copied: one thread at a time. Before the queue's lock."""
        self._background_notified = False
        """With `in_background`: whether the ticker was woken for the messages that are moving."""
        self._doubtful = False
        """Whether a move may have reached its target without being confirmed."""
        self._handed_over: set[int] = set()
        """Messages that a forwarder may have received without confirming it."""
        self._reset()
        core.start_transfers = self.start
        core.on_reload = self._reset

    def _reset(self) -> None:
        """Begin with the moves of a state that was just loaded: it is unknown which of them have arrived."""
        moving = self._core.state.moving
        self._doubtful, self._handed_over = bool(moving), set(moving)

    def detach_after_fork(self) -> None:
        """Replace the lock, which a thread of the parent may hold."""
        self._mover = threading.Lock()

    @property
    def is_moving(self) -> bool:
        """Whether messages are being moved."""
        return bool(self._core.state.moving)

    def start_if_moving(self) -> None:
        """As `start`, if there are moving messages."""
        if self._core.state.moving:
            self.start()

    def start(self) -> None:
        """Copy moving messages to their targets now, or wake the ticker to do so."""
        if not self.in_background:
            self.carry()
        elif not self._background_notified:
            self._background_notified = True
            self._core.alarm.wake()

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
        core = self._core
        with core.lock, core.section:
            if core.journal.broken:  # the moving messages are unknown until the state is loaded again
                return
            moving = dict(core.state.moving)
        problem: HoldfastError | None = None
        # Set first, so that it stays set if this is cut off: it is then unknown which of them have arrived.
        doubtful, self._doubtful = self._doubtful, True
        try:
            # The moves must be durable before the copies: otherwise a crash could duplicate messages.
            core.make_durable()
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
        self._doubtful = problem is not None
        if problem is not None:
            self._background_notified = True  # the ticker tries again
            level = logging.INFO if isinstance(problem, NotFound) else logging.WARNING  # a forwarder may be set later
            logger.log(
                level,
                "messages not moved yet, will retry: queue=%s count=%d reason=%s",
                core.name,
                len(moving),
                problem,
                extra=core.fields,
            )

    def _carry_to(self, name: str, leaving: dict[int, Move], doubtful: bool) -> None:
        target = self._find_queue(name)
        if target is None:  # created without a dead letter queue: a second move would lose the original queue
            is_home = all(move.cause == "redriven" for move in leaving.values())
            target = self._open_queue(name) if is_home else self._open_queue(name, dead_letter=None, max_attempts=None)
        if doubtful:
            target.log.appender.sync()  # an interrupted move may have left copies there that are not visible yet
        arrived = _arrived(target.log, self._core.name, leaving) if doubtful else set()
        waiting = sorted(leaving.keys() - arrived)
        while waiting:
            payloads: list[bytes] = []
            extras: list[ColumnValue] = []
            with self._core.lock, self._core.section:
                done = self._add_copies(waiting, leaving, payloads, extras)
            if payloads:
                pending_block, _, _ = target.log.gather(payloads, extras, 0, limited=False)
                target.log.commit(pending_block)
                target.log.appender.sync()  # in any flush mode: copies must be durable before originals are removed
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
            with self._core.lock, self._core.section:
                done = self._add_forwarded(waiting, leaving, forwarded)
            if forwarded:
                self._handed_over.update(one.id for one in forwarded)
                forwarder(self._core.name, target, forwarded)
                self._handed_over.difference_update(one.id for one in forwarded)
            self._arrive(waiting[:done])
            del waiting[:done]

    # Loops that run with a lock held are in separate functions: see "Signals" in docs/architecture.md.

    def _add_copies(
        self, waiting: list[int], leaving: dict[int, Move], payloads: list[bytes], extras: list[ColumnValue]
    ) -> int:
        """Add the copies of the first messages for another queue; return how many messages were processed."""
        done, size = 0, 0
        while done < len(waiting) and done < BATCH and size < _BATCH_BYTES:
            size += self._add_copy(waiting[done], leaving[waiting[done]], payloads, extras)
            done += 1
        return done

    def _add_forwarded(self, waiting: list[int], leaving: dict[int, Move], forwarded: list[ForwardedLetter]) -> int:
        """Add the first messages for a forwarder; return how many messages were processed."""
        done, size = 0, 0
        while done < len(waiting) and done < BATCH and size < _BATCH_BYTES:
            if (one := self._forwarded(waiting[done], leaving[waiting[done]])) is not None:
                forwarded.append(one)
                size += len(one.payload)
            done += 1
        return done

    def _page(self, sequence: int) -> Page | None:
        """Return the page with a message that leaves, None if it cannot be read."""
        page = self._core.bodies.page(sequence)
        if page is None:
            logger.error(
                "unreadable message dropped, not moved: queue=%s id=%d",
                self._core.name,
                sequence,
                extra=self._core.fields,
            )
        return page

    def _forwarded(self, sequence: int, move: Move) -> ForwardedLetter | None:
        page = self._page(sequence)
        if page is None:
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
        core = self._core
        with core.lock, core.section:
            hold = [sequence for sequence in sequences if sequence in core.state.moving]
            pending_block = core.apply([Dropped(core.now(), "moved", spans_of(hold))]) if hold else None
        core.commit(pending_block)

    def _add_copy(self, sequence: int, move: Move, payloads: list[bytes], extras: list[ColumnValue]) -> int:
        """Add the copy of a message for another queue; return its size in bytes."""
        page = self._page(sequence)
        if page is None:
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
            "queue": self._core.name,
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
        core = self._core
        count = 0
        start, stop = reach(core.log, ids)
        place: tuple[int, int] | None = None
        while place is None or place[0] >= 0:
            with core.lock, core.turn() as turn:
                if place is None:  # entering may have added levels for higher priorities
                    place = len(core.state.ready.levels) - 1, start
                spans, place = self._dead_letters_of(home, ids, place, start, stop)
                if spans:
                    turn.apply([Transferring(turn.now, "redriven", "", home, 0, spans)])
            if spans:
                core.commit(turn.pending_block)
                self.start()
                count += len(spans)
        return count

    def _dead_letters_of(
        self, home: str, ids: set[int] | None, place: tuple[int, int], start: int, stop: int
    ) -> tuple[list[LeasedSpan], tuple[int, int]]:
        """Return some dead letters of `home`, from a priority and a sequence on, and where to continue."""
        priority, at = place
        spans: list[LeasedSpan] = []
        looked = 0
        while priority >= 0 and len(spans) < BATCH and looked < _LOOKED_AT:
            found = self._core.state.ready.level(priority).following(at, BATCH - len(spans))
            ready = [one for first, end in found for one in range(first, min(end, stop))]
            if not ready:
                priority, at = priority - 1, start
                continue
            looked += len(ready)
            at = ready[-1] + 1
            spans += [
                LeasedSpan(one, one + 1, priority, 0)
                for one in ready
                if (ids is None or one in ids) and is_dead_letter_of(self._core.bodies, one, home)
            ]
        return spans, (priority, at)


def reach(log: Log, ids: set[int] | None) -> tuple[int, int]:
    """Return the range of sequences of these dead letters, up to the present end of the log."""
    end = log.reader.visible_end
    return (0, end) if ids is None else (min(ids, default=end), min(end, max(ids, default=-1) + 1))


def is_dead_letter_of(bodies: BodyCache, sequence: int, home: str) -> bool:
    """Return whether a dead letter is from the queue of this name. Called with the lock held."""
    return bodies.headers(sequence).get(DEATH + "queue", home) == home


def _arrived(log: Log, origin: str, leaving: dict[int, Move]) -> set[int]:
    """Return which of these reached the target before a crash, or an error, prevented the confirmation."""
    if not leaving:
        return set()
    wanted = {(move.time, sequence) for sequence, move in leaving.items()}
    since = log.sequence_at(min(move.time for move in leaving.values()))
    found: set[int] = set()
    for piece in log.pieces(since, log.reader.visible_end):
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
