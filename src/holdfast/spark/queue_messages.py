"""The `messages` view of a queue: the present state of each message, joined with the records of its log."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.base.errors import InvalidArgument
from holdfast.log.log import Log
from holdfast.queue import Queue
from holdfast.queue.events import CAUSES
from holdfast.queue.queue_state import QueueState
from holdfast.spark.log_rows import RecordSpan, byte_strings, content, numbers, times
from holdfast.spark.queue_events import (
    EVENTS,
    NONE,
    Spans,
    moments,
    nullable,
    own_records,
    portions,
    read_spans,
    sequences,
    texts_of,
)
from holdfast.spark.schemas import MESSAGES, arrow_schema

__all__ = ["STATES", "MessageRows", "Overlay", "overlay"]

STATES = ("ready", "delayed", "leased", "acked", "dead", "dropped", "redriven")
"""The values of the column `state`.

- ready, delayed, leased: the state in the queue. A message stays leased after its lease has expired, and ready after
  its time to live, until the queue's owner has processed that.
- acked: acknowledged. Also messages whose end is not in the retained journal.
- dead: sent to the dead-letter queue, for any cause, even if it has not arrived there yet; or dropped after too many
  attempts, or rejected, without one.
- dropped: removed without an ack: expired, over the queue's length, damaged, purged, or passed by a seek.
- redriven: in a dead-letter queue, moved back.
"""
_READY, _DELAYED, _LEASED, _ACKED, _DEAD, _DROPPED, _REDRIVEN = range(len(STATES))
_OPEN = 255
"""The fate of a message whose end is not in the journal."""
_CODE = {word: code for code, word in enumerate(EVENTS)}
_MOVED, _DROP, _PURGED, _SOUGHT, _CUT = (_CODE[word] for word in ("moved", "dropped", "purged", "sought", "cut"))
_PATIENCE_S = 10.0
"""How long a queue may take to reach the end of its journal; after a power cut it waits for lost messages."""
_OF_ALL = (_PURGED, _SOUGHT, _CUT)

Numbers = np.ndarray[Any, Any]


def _fates() -> Numbers:
    """Return, by event code, the state that each event gives a message."""
    fates = np.full(len(EVENTS), _OPEN, np.uint8)
    for word, fate in (
        ("leased", _LEASED),
        ("acked", _ACKED),
        ("dead-lettered", _DEAD),
        ("redriven", _REDRIVEN),
        ("dropped", _DROPPED),
    ):
        fates[_CODE[word]] = fate
    return fates


_FATES = _fates()
_GIVEN_UP = (CAUSES.index("attempts"), CAUSES.index("rejected"))
_FAILURES = np.isin(EVENTS, ("nacked", "expired"))
"""Which events are failures, with a reason or without one."""


@dataclass(frozen=True, slots=True)
class Overlay:
    """The states of the messages from `start` up to `end`, all at one moment, as runs of messages in the same state.

    Messages beyond `end` were put later, and do not exist yet at this moment. Pickled, a run takes 17 bytes, a delayed
    message 16 more and a leased one 24; a million ready messages that never failed are one run.
    """

    start: int
    end: int
    firsts: Numbers
    """The first message of each run; the first of all is `start`."""
    states: Numbers
    attempts: Numbers
    """Deliveries so far; `NONE` if the journal of that time is no longer kept."""
    reasons: Numbers
    """Of the last failure: an index in `texts`."""
    texts: tuple[str, ...]
    delayed: Numbers
    """The delayed messages, ascending, and when each is due."""
    dues: Numbers
    leased: Numbers
    """The leased messages, ascending, and the lease of each."""
    leases: Numbers
    expires: Numbers

    def slice(self, start: int, stop: int) -> "Overlay":
        """Return the part about these messages: what one task needs."""
        start, stop = max(start, self.start), max(start, self.start, min(stop, self.end))
        first = max(0, int(np.searchsorted(self.firsts, start, "right")) - 1)
        last = int(np.searchsorted(self.firsts, stop, "left")) if stop > start else first
        firsts = np.maximum(self.firsts[first:last], start)
        used, reasons = np.unique(self.reasons[first:last], return_inverse=True)
        has_none = bool(len(used)) and used[0] == NONE
        delayed = slice(*np.searchsorted(self.delayed, (start, stop)))
        leased = slice(*np.searchsorted(self.leased, (start, stop)))
        return Overlay(
            start,
            stop,
            firsts,
            self.states[first:last],
            self.attempts[first:last],
            (reasons - has_none).astype(np.int32),
            tuple(self.texts[code] for code in used.tolist() if code != NONE),
            self.delayed[delayed],
            self.dues[delayed],
            self.leased[leased],
            self.leases[leased],
            self.expires[leased],
        )


class MessageRows:
    """Turns a queue's log into a row for each message, with its state from an overlay."""

    def __init__(self, queue: str, columns: list[str], overlay: Overlay, keys: frozenset[bytes] | None = None) -> None:
        self.queue = queue
        self.columns = columns
        self.overlay = overlay
        self.keys = keys
        """Only messages with one of these keys are wanted; None: all."""
        self.schema = arrow_schema(MESSAGES, columns)

    def gather(self, pieces: Iterable[RecordSpan]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all these records; many small blocks become few batches."""
        for portion in portions(self._within(pieces)):
            own = own_records(portion, self.queue)
            if self.keys is not None:
                own &= _having(portion, self.keys)
            messages = sequences(portion)
            if own.all():
                yield self._batch(portion, messages, None)
            elif own.any():
                yield self._batch(portion, messages[own], pa.array(own))

    def _within(self, pieces: Iterable[RecordSpan]) -> Iterator[RecordSpan]:
        for block, start, stop in pieces:
            yield block, max(start, self.overlay.start - block.sequence), min(stop, self.overlay.end - block.sequence)

    def _batch(self, pieces: list[RecordSpan], messages: Numbers, own: pa.Array | None) -> pa.RecordBatch:
        overlay = self.overlay
        runs = np.searchsorted(overlay.firsts, messages, "right") - 1
        arrays = []
        for name in self.columns:
            match name:
                case "queue":
                    array = pa.repeat(pa.scalar(self.queue, pa.string()), len(messages))
                case "message":
                    array = pa.array(messages)
                case "state":
                    array = texts_of(STATES, overlay.states[runs])
                case "attempts":
                    array = nullable(overlay.attempts[runs])
                case "reason":
                    array = texts_of(overlay.texts, overlay.reasons[runs])
                case "due":
                    array = moments(_placed(messages, overlay.delayed, overlay.dues))
                case "lease":
                    array = nullable(_placed(messages, overlay.leased, overlay.leases))
                case "expires":
                    array = moments(_placed(messages, overlay.leased, overlay.expires))
                case _:
                    array = _of_records(name, pieces)
                    array = array if own is None else array.filter(own)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _having(pieces: list[RecordSpan], keys: frozenset[bytes]) -> Numbers:
    """Return which of these records have one of the keys."""
    wanted = pa.array(sorted(keys), pa.binary())
    fits = [pc.is_in(byte_strings("key", *piece), value_set=wanted) for piece in pieces]
    return np.concatenate([each.to_numpy(zero_copy_only=False) for each in fits])


def _of_records(name: str, pieces: list[RecordSpan]) -> pa.Array:
    """Return a column of the log itself."""
    match name:
        case "priority":
            return pa.array(numbers("priority", pieces).astype(np.int32))
        case "time":
            return moments(np.concatenate([times(*piece) for piece in pieces]))
        case _:
            return content(name, pieces)


def _placed(messages: Numbers, known: Numbers, values: Numbers) -> Numbers:
    """Return the values of the known messages, `NONE` for the others. Both inputs are sorted."""
    found = np.full(len(messages), NONE, np.int64)
    first, last = np.searchsorted(known, (messages[0], messages[-1] + 1))
    places = np.searchsorted(messages, known[first:last])
    there = messages[places] == known[first:last]
    found[places[there]] = values[first:last][there]
    return found


def overlay(queue: Queue) -> Overlay:
    """Return the present states of the messages of a queue that is open read-only.

    The queue follows its journal to the end that it had at this call, for ten seconds at most; then its state is
    copied. The fate of messages that it no longer holds comes from the retained journal, read up to the record that the
    queue has followed. So all states are of one moment, whatever the owner writes meanwhile. Runs in the driver. Takes
    nine bytes of memory for each message that the log retains, and reads the whole journal, at millions of events a
    second.
    """
    if not queue.read_only:
        raise InvalidArgument(f"the queue {queue.name!r} is open for writing: open the store with read_only=True")

    def copy(state: QueueState) -> tuple[_Past, _Present]:
        past = _Past(queue.log.start, state.scanned)
        return past, _Present(state, past.start, past.end)

    (past, present), (journal, begin, followed) = queue.inspect.at_journal_end(copy, _PATIENCE_S)
    if begin > 0 and (first := next(journal.read(begin, followed), None)) is not None:
        past.known_from = queue.log.sequence_at(first.timestamp)
    past.read(journal, begin, followed)
    past.end_all()
    return present.laid_over(past)


class _Past:
    """The journal's record of each message: its end, its deliveries and its last failure.

    A message that was put after the start of the retained journal has its whole history in it, and so has everything
    from the position of a `sought` on. The end of an older one may be lost. So a purge or a seek does not
    mark older messages as dropped.
    """

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = max(start, end)
        self.known_from = 0
        size = self.end - start
        self.fates = np.full(size, _OPEN, np.uint8)
        self.attempts = np.full(size, NONE, np.int32)
        self.reasons = np.full(size, NONE, np.int32)
        self.texts: dict[str, int] = {}

    def read(self, journal: Log, start: int, stop: int) -> None:
        """Process these records of the journal."""
        self.attempts[self._at(self.known_from) :] = 0
        blocks = journal.reader.blocks_between(start, stop)
        for portion in portions((block, start - block.sequence, stop - block.sequence) for block in blocks):
            spans = read_spans(portion)
            reasons = np.array([NONE, *map(self.text, spans.texts)], np.int32)
            for which, messages in spans.expanded():
                self._take(spans, np.arange(len(spans.start))[which], messages, reasons)

    def end_all(self) -> None:
        """Mark messages without a known end as acknowledged; `laid_over` then corrects those that the queue holds."""
        lost = (self.fates == _OPEN) | (self.fates == _LEASED)
        self.fates[lost] = _ACKED
        # An acknowledged message was delivered: its lease was in a dropped part of the journal.
        self.attempts[(self.fates == _ACKED) & (self.attempts == 0)] = NONE

    def text(self, text: str) -> int:
        """Return the number of a reason."""
        return self.texts.setdefault(text, len(self.texts))

    def _take(self, spans: Spans, which: Numbers, messages: Numbers, reasons: Numbers) -> None:
        """Apply events in their order: those of single messages together, between those that affect the whole queue."""
        events = spans.event[which]
        at = 0
        for cut in [*np.flatnonzero(np.isin(events, _OF_ALL)).tolist(), len(events)]:
            if cut > at:
                self._mark(spans, which[at:cut], messages[at:cut], reasons)
            if cut < len(events):
                self._befall(int(events[cut]), int(spans.upto[which[cut]]))
            at = cut + 1

    def _mark(self, spans: Spans, which: Numbers, messages: Numbers, reasons: Numbers) -> None:
        ours = (messages >= self.start) & (messages < self.end)
        if not ours.all():
            which, messages = which[ours], messages[ours]
        at = messages - self.start
        events = spans.event[which]
        # If a message occurs twice the later event wins: numpy assigns in order.
        arrived = events == _MOVED
        fates = _FATES[events]
        fates[(events == _DROP) & np.isin(spans.cause[which], _GIVEN_UP)] = _DEAD
        self.fates[at[~arrived]] = fates[~arrived]
        if arrived.any():
            # An earlier event has the reason of its leaving, unless that event is lost.
            there = at[arrived]
            self.fates[there[~np.isin(self.fates[there], (_DEAD, _REDRIVEN))]] = _DEAD
        released = events == _CODE["released"]
        counted = spans.attempt[which] != NONE
        self.attempts[at[counted]] = (spans.attempt[which] - released)[counted]
        # The journal has no reason for a drop without dead-lettering; an earlier reason is not that of the drop.
        failed = _FAILURES[events] | (spans.reason[which] != NONE) | np.isin(spans.cause[which], _GIVEN_UP)
        if failed.any():
            self.reasons[at[failed]] = reasons[spans.reason[which][failed] + 1]

    def _befall(self, event: int, upto: int) -> None:
        below, known = self._at(upto), self._at(self.known_from)
        if event in (_PURGED, _SOUGHT):
            passed = self.fates[known : max(known, below)]
            gone = passed == _OPEN if event == _PURGED else (passed == _OPEN) | (passed == _LEASED)
            passed[gone] = _DROPPED
        if event in (_SOUGHT, _CUT):
            self.fates[below:], self.attempts[below:], self.reasons[below:] = _OPEN, 0, NONE
            self.known_from = min(self.known_from, upto)

    def _at(self, sequence: int) -> int:
        return min(max(sequence - self.start, 0), self.end - self.start)


class _Present:
    """The queue's state, copied at one moment."""

    def __init__(self, queue_state: QueueState, start: int, end: int) -> None:
        self.start = start
        self.ready = [span for level in queue_state.ready.levels for span in level]
        waiting = [(sequence, due) for due, sequence, _ in queue_state.delayed if start <= sequence < end]
        self.delayed, self.dues = np.array(sorted(waiting), np.int64).reshape(-1, 2).T
        ids, held = list(queue_state.leases.by_id), list(queue_state.leases.by_id.values())
        sizes = [len(lease.left) for lease in held]
        messages = np.fromiter(chain.from_iterable(lease.left for lease in held), np.int64, sum(sizes))
        order = np.argsort(messages, kind="stable")
        order = order[(messages[order] >= start) & (messages[order] < end)]
        self.leased = messages[order]
        self.leases = np.repeat(np.array(ids, np.int64), sizes)[order]
        self.expires = np.repeat(np.array([lease.expires for lease in held], np.int64), sizes)[order]
        self.again = [
            (sequence, attempt)
            for lease in held
            for sequence, attempt in (lease.attempts or {}).items()
            if sequence in lease.left and start <= sequence < end
        ]
        """The leased ones for which this is not the first delivery."""
        self.moving = [(sequence, move) for sequence, move in queue_state.moving.items() if start <= sequence < end]
        self.failures = [(sequence, failure) for sequence, failure in queue_state.failures if start <= sequence < end]

    def laid_over(self, past: _Past) -> Overlay:
        """Return the overlay of this state and the journal's past."""
        start, fates, attempts, reasons = self.start, past.fates, past.attempts, past.reasons
        for first, last in self.ready:
            span = slice(max(first - start, 0), max(last - start, 0))
            fates[span], attempts[span], reasons[span] = _READY, 0, NONE
        for messages, state in ((self.delayed, _DELAYED), (self.leased, _LEASED)):
            held = messages - start
            fates[held], attempts[held], reasons[held] = state, 0, NONE
        for sequence, failure in self.failures:
            attempts[sequence - start] = failure.attempts
            reasons[sequence - start] = _reason(past, failure.reason)
        attempts[self.leased - start] = 1
        for sequence, attempt in self.again:
            attempts[sequence - start] = attempt
        for sequence, move in self.moving:
            fates[sequence - start] = _REDRIVEN if move.cause == "redriven" else _DEAD
            attempts[sequence - start] = move.failure.attempts if move.failure else 0
            reasons[sequence - start] = _reason(past, move.reason or (move.failure.reason if move.failure else ""))
        size = len(fates)
        changes = np.ones(size, bool)
        changes[1:] = (fates[1:] != fates[:-1]) | (attempts[1:] != attempts[:-1]) | (reasons[1:] != reasons[:-1])
        runs = np.flatnonzero(changes)
        return Overlay(
            start,
            past.end,
            runs + start,
            fates[runs],
            attempts[runs],
            reasons[runs],
            tuple(past.texts),
            self.delayed,
            self.dues,
            self.leased,
            self.leases,
            self.expires,
        )


def _reason(past: _Past, reason: str) -> int:
    return past.text(reason.encode("utf-8", "backslashreplace").decode()) if reason else NONE
