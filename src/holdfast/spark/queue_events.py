"""The `lifecycle` view of a queue: blocks of its log and journal as rows, one for each message of each event."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.base.errors import Corrupt
from holdfast.queue.events import (
    CAUSES,
    Acked,
    Dropped,
    Event,
    Extended,
    Leased,
    Purged,
    Requeued,
    SeekTo,
    Snapshot,
    Transferring,
    Truncated,
    decode,
)
from holdfast.queue.queue_state import TARGET_QUEUE_HEADER
from holdfast.spark.log_rows import BATCH_ROWS, RecordSpan, numbers, times
from holdfast.spark.schemas import LIFECYCLE, TIME, arrow_schema

__all__ = [
    "EVENTS",
    "NONE",
    "JournalRows",
    "PutRows",
    "Spans",
    "moments",
    "nullable",
    "own_records",
    "portions",
    "read_spans",
    "sequences",
    "texts_of",
]

EVENTS = (
    "put",
    "leased",
    "extended",
    "acked",
    "nacked",
    "expired",
    "released",
    "dead-lettered",
    "redriven",
    "moved",
    "dropped",
    "purged",
    "sought",
    "cut",
)
"""The values of the column `event`; `Spans` uses their index here."""
NONE = -1
"""No value: neither times nor sequences are negative."""
PORTION_BYTES = 16 << 20
"""Small blocks are joined up to this size: a block under `sync` may hold one event, and numpy is fast for many."""

_CODE = {word: code for code, word in enumerate(EVENTS)}
_CAUSE = {word: code for code, word in enumerate(CAUSES)}
_RETURNED_CODES = np.array([_CODE[word] for word in CAUSES[:3]])
_QUEUE_CODE = {Purged: _CODE["purged"], SeekTo: _CODE["sought"], Truncated: _CODE["cut"]}
"""Of events about the queue as a whole."""
_FOR = TARGET_QUEUE_HEADER.encode()

# The most common events of a queue, as in docs/formats.md, of one span each. The rest goes through `decode`.
_LEASED, _LEASED_ONE, _ACKED, _ACKED_ONE, _RETURNED = 1, 2, 3, 4, 6
_KIND, _LEASE = [("kind", "u1"), ("time", "<i8")], ("lease", "<i8")
_SPAN = [("start", "<i8"), ("count", "<u4")]
_LEASED_SPAN = [*_SPAN, ("priority", "u1"), ("attempt", "<u4")]
_FORMS = {
    _LEASED: np.dtype([*_KIND, _LEASE, ("until", "<i8"), ("spans", "<u4"), *_LEASED_SPAN]),
    _LEASED_ONE: np.dtype([*_KIND, _LEASE, ("until", "<i8"), ("start", "<i8")]),
    _ACKED: np.dtype([*_KIND, ("leases", "<u4"), _LEASE, ("spans", "<u4"), *_SPAN]),
    _ACKED_ONE: np.dtype([*_KIND, _LEASE, ("start", "<i8")]),
    _RETURNED: np.dtype([*_KIND, ("cause", "u1"), _LEASE, ("until", "<i8"), ("spans", "<u4"), *_LEASED_SPAN]),
}
_SIZE_LEASED, _SIZE_LEASED_ONE, _SIZE_ACKED, _SIZE_ACKED_ONE, _SIZE_RETURNED = (
    form.itemsize for form in _FORMS.values()
)
_ONE = b"\1\0\0\0"
_LEASED_SPANS, _ACKED_LEASES, _ACKED_SPANS, _RETURNED_SPANS = 25, 9, 21, 26
"""The offset of the message count in an event."""

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]
_Head = tuple[int, int, int, int, int, int, int, int]
"""Event, time, lease, until, upto, cause, reason, target."""
_NUMBERS = ("event", "time", "lease", "until", "upto", "cause", "reason", "target", "position")
_OF_SPAN = ("start", "count", "priority", "attempt")


class PutRows:
    """Turns a queue's log into a `put` row for each message."""

    def __init__(self, queue: str, columns: list[str]) -> None:
        self.queue = queue
        self.columns = columns
        self.schema = arrow_schema(LIFECYCLE, columns)

    def gather(self, pieces: Iterable[RecordSpan]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all these records; many small blocks become few batches."""
        for portion in portions(pieces):
            own = own_records(portion, self.queue)
            count = int(own.sum())
            if count:
                arrays = [self._column(name, portion, own, count) for name in self.columns]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, name: str, pieces: list[RecordSpan], own: Mask, count: int) -> pa.Array:
        match name:
            case "queue":
                return pa.repeat(pa.scalar(self.queue, pa.string()), count)
            case "event":
                return pa.repeat(pa.scalar("put", pa.string()), count)
            case "message" | "position":
                return pa.array(sequences(pieces)[own])
            case "time":
                return moments(np.concatenate([times(*piece) for piece in pieces])[own])
            case "priority":
                return pa.array(numbers("priority", pieces)[own].astype(np.int32))
            case "until":
                due = numbers("due", pieces)[own]
                return moments(np.where(due == 0, NONE, due))
            case "source":
                moved = numbers("producer", pieces)[own] != 0
                return pa.array(numbers("number", pieces)[own], mask=~moved)
            case "cause":
                moved = numbers("producer", pieces)[own] != 0
                return pa.array(["moved"], pa.string()).take(pa.array(np.zeros(count, np.int8), mask=~moved))
            case _:
                return pa.nulls(count, self.schema.field(name).type)


class JournalRows:
    """Turns a queue's journal into a row for each message of each event."""

    def __init__(self, queue: str, columns: list[str]) -> None:
        self.queue = queue
        self.columns = columns
        self.schema = arrow_schema(LIFECYCLE, columns)

    def gather(self, pieces: Iterable[RecordSpan]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all these records, in their order; many small blocks become few batches."""
        for portion in portions(pieces):
            spans = read_spans(portion)
            for which, messages in spans.expanded():
                arrays = [self._column(name, spans, which, messages) for name in self.columns]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, name: str, spans: "Spans", which: Numbers | slice, messages: Numbers) -> pa.Array:
        match name:
            case "queue":
                return pa.repeat(pa.scalar(self.queue, pa.string()), len(messages))
            case "message":
                return nullable(messages)
            case "event":
                return texts_of(EVENTS, spans.event[which])
            case "cause":
                return texts_of(CAUSES, spans.cause[which])
            case "reason":
                return texts_of(spans.texts, spans.reason[which])
            case "target":
                return texts_of(spans.texts, spans.target[which])
            case "time":
                return moments(spans.time[which])
            case "until":
                return moments(spans.until[which])
            case "attempt":
                return nullable(spans.attempt[which].astype(np.int32))
            case "priority":
                return nullable(spans.priority[which].astype(np.int32))
            case "lease":
                return nullable(spans.lease[which])
            case "upto":
                return nullable(spans.upto[which])
            case "position":
                return pa.array(spans.position[which])
            case _:
                return pa.nulls(len(messages), self.schema.field(name).type)


@dataclass(slots=True)
class Spans:
    """Decoded journal records, in their order, as columns: an entry a span of messages. `NONE` for missing values."""

    start: Numbers
    """The first message; `NONE` for events of a whole lease or queue."""
    count: Numbers
    event: Numbers
    """An index in `EVENTS`."""
    time: Numbers
    lease: Numbers
    attempt: Numbers
    priority: Numbers
    cause: Numbers
    """An index in the journal's `CAUSES`."""
    reason: Numbers
    """An index in `texts`."""
    target: Numbers
    until: Numbers
    upto: Numbers
    position: Numbers
    texts: list[str]

    def expanded(self, rows: int = BATCH_ROWS) -> Iterator[tuple[Numbers | slice, Numbers]]:
        """Yield up to `rows` rows at a time: for each row its entry here, and its message."""
        ends = np.cumsum(self.count)
        total = int(ends[-1]) if len(ends) else 0
        for low in range(0, total, rows):
            high = min(low + rows, total)
            first, last = np.searchsorted(ends, (low, high - 1), "right")
            counts = self.count[first : last + 1].copy()
            if (counts == 1).all():
                yield slice(first, last + 1), self.start[first : last + 1]  # nothing to expand
                continue
            begins = ends[first : last + 1] - counts
            starts = self.start[first : last + 1]
            counts[-1] -= ends[last] - high
            counts[0] -= low - begins[0]
            messages = np.repeat(starts - begins, counts) + np.arange(low, high)
            yield np.repeat(np.arange(first, last + 1), counts), np.where(np.repeat(starts, counts) < 0, NONE, messages)


def read_spans(pieces: list[RecordSpan]) -> Spans:
    """Decode the records of these pieces of a journal.

    Common events are not decoded one by one: their offsets are found first, and numpy reads them all.
    """
    datas: list[bytes] = []
    ends: list[int] = [0]
    places: list[int] = []
    for block, start, stop in pieces:
        offsets = block.offsets[start : stop + 1].tolist()
        shift = ends[-1] - offsets[0]
        datas.append(bytes(block.data[offsets[0] : offsets[-1]]))
        ends += [offset + shift for offset in offsets[1:]]
        places += range(block.sequence + start, block.sequence + stop)
    bad = {block.sequence + position for block, _, _ in pieces for position in block.bad}
    raw = b"".join(datas)
    found: list[int] = []
    reasons: list[int] = []
    others = _Others()
    for position, (at, end) in zip(places, pairwise(ends), strict=True):
        if bad and position in bad:
            continue
        while at < end:
            kind = raw[at]
            if kind == _ACKED_ONE:
                found.append(at)
                at += _SIZE_ACKED_ONE
            elif kind == _LEASED_ONE:
                found.append(at)
                at += _SIZE_LEASED_ONE
            elif kind == _LEASED and raw.startswith(_ONE, at + _LEASED_SPANS):
                found.append(at)
                at += _SIZE_LEASED
            elif kind == _RETURNED and raw.startswith(_ONE, at + _RETURNED_SPANS):
                found.append(at)
                at += _SIZE_RETURNED
                size = int.from_bytes(raw[at : at + 4], "little")
                at += 4 + size
                reasons.append(others.text(raw[at - size : at].decode("utf-8", "surrogatepass")))
            elif (
                kind == _ACKED and raw.startswith(_ONE, at + _ACKED_LEASES) and raw.startswith(_ONE, at + _ACKED_SPANS)
            ):
                found.append(at)
                at += _SIZE_ACKED
            else:
                for event in decode(raw[at:end]):
                    others.add(event, position, len(found))
                at = end
        if at > end:
            raise Corrupt(f"the record {position} of a journal ends within an event")
    common = _common(raw, np.array(found, np.int64), np.array(reasons, np.int64))
    if found:
        common["position"] = np.array(places, np.int64)[np.searchsorted(ends, found, "right") - 1]
    return others.merged(common)


def _common(raw: bytes, ats: Numbers, reasons: Numbers) -> dict[str, Numbers]:
    """Return the columns of the events that begin at these bytes, each of a form in `_FORMS`."""
    columns = {name: np.full(len(ats), NONE, np.int64) for name in (*_NUMBERS, *_OF_SPAN)}
    columns["count"][:] = 1
    data = np.frombuffer(raw, np.uint8)
    kinds = data[ats]
    for kind, form in _FORMS.items():
        which = np.flatnonzero(kinds == kind)
        if not len(which):
            continue
        windows = np.lib.stride_tricks.sliding_window_view(data, form.itemsize)
        events = windows[ats[which]].view(form).reshape(len(which))
        for name in form.names or ():
            if name in columns:
                columns[name][which] = events[name]
        if kind == _RETURNED:
            columns["event"][which] = _RETURNED_CODES[events["cause"]]
            columns["reason"][which] = reasons
        else:
            columns["event"][which] = _CODE["acked" if kind in (_ACKED, _ACKED_ONE) else "leased"]
        if kind == _LEASED_ONE:
            columns["priority"][which], columns["attempt"][which] = 0, 1
    return columns


class _Others:
    """Events that were decoded one by one, collected as columns."""

    def __init__(self) -> None:
        self.heads: list[_Head] = []
        self.places: list[tuple[int, int, int]] = []
        """For each: the position of its record, how many of the common ones come before it, and how many spans."""
        self.spans: list[tuple[int, int, int, int]] = []
        """First, end, priority, attempt."""
        self.texts: dict[str, int] = {}

    def add(self, event: Event, position: int, before: int) -> None:
        """Add an event."""
        already = len(self.spans)
        match event:
            case Leased(time, lease, expires, spans):
                head = (_CODE["leased"], time, lease, expires, NONE, NONE, NONE, NONE)
                self.spans += spans
            case Acked(time, parts):
                for lease, done in parts:
                    head = (_CODE["acked"], time, lease, NONE, NONE, NONE, NONE, NONE)
                    self.spans += [(start, stop, NONE, NONE) for start, stop in done]
                    self._close(head, position, before, already)
                    already = len(self.spans)
                return
            case Requeued(time, cause, reason, lease, due, spans):
                head = (_CODE[cause], time, lease, due, NONE, _CAUSE[cause], self.text(reason), NONE)
                self.spans += spans
            case Transferring(time, cause, reason, target, lease, spans):
                word = _CODE["redriven" if cause == "redriven" else "dead-lettered"]
                texts = self.text(reason), self.text(target)
                head = (word, time, lease or NONE, NONE, NONE, _CAUSE[cause], *texts)
                # If it was never delivered, or attempts were not counted, there is no attempt number.
                self.spans += [(start, stop, priority, attempt or NONE) for start, stop, priority, attempt in spans]
            case Dropped(time, cause, gone):
                word = _CODE["moved" if cause == "moved" else "dropped"]
                head = (word, time, NONE, NONE, NONE, _CAUSE[cause], NONE, NONE)
                self.spans += [(start, stop, NONE, NONE) for start, stop in gone]
            case Extended(time, lease, expires):
                head = (_CODE["extended"], time, lease, expires, NONE, NONE, NONE, NONE)
                self.spans.append((NONE, 0, NONE, NONE))
            case Purged(time, upto) | SeekTo(time, upto) | Truncated(time, upto):
                word = _QUEUE_CODE[type(event)]
                head = (word, time, NONE, NONE, upto, NONE, NONE, NONE)
                self.spans.append((NONE, 0, NONE, NONE))
            case Snapshot():
                return
        self._close(head, position, before, already)

    def merged(self, common: dict[str, Numbers]) -> Spans:
        """Return all entries, in the order of the journal."""
        texts = list(self.texts)
        if not self.spans:
            return Spans(texts=texts, **common)
        heads, places, spans = _table(self.heads), _table(self.places), _table(self.spans)
        repeats = places[:, 2]
        own = dict(zip(_NUMBERS, np.repeat(np.column_stack((heads, places[:, 0])), repeats, axis=0).T, strict=True))
        own |= {"start": spans[:, 0], "count": spans[:, 1] - spans[:, 0]}
        own |= {"priority": spans[:, 2], "attempt": spans[:, 3]}
        size = len(common["start"]) + len(spans)
        here = np.repeat(places[:, 1], repeats) + np.arange(len(spans))
        there = np.ones(size, bool)
        there[here] = False
        columns = {}
        for name, values in common.items():
            columns[name] = np.empty(size, np.int64)
            columns[name][there], columns[name][here] = values, own[name]
        return Spans(texts=texts, **columns)

    def _close(self, head: _Head, position: int, before: int, already: int) -> None:
        if len(self.spans) > already:
            self.heads.append(head)
            self.places.append((position, before, len(self.spans) - already))

    def text(self, text: str) -> int:
        """Return the number of a text."""
        if not text:
            return NONE
        # An exception's text may hold anything, and Arrow accepts only UTF-8.
        text = text.encode("utf-8", "backslashreplace").decode()
        return self.texts.setdefault(text, len(self.texts))


def portions(
    pieces: Iterable[RecordSpan], rows: int = BATCH_ROWS, most: int = PORTION_BYTES
) -> Iterator[list[RecordSpan]]:
    """Yield groups of pieces with at most `rows` records: large pieces are divided, small ones joined.

    A group ends with the piece that makes it `most` bytes.
    """
    held: list[RecordSpan] = []
    count = size = 0
    for block, start, stop in pieces:
        start, stop = max(start, 0), min(stop, block.count)
        while start < stop:
            end = min(stop, start + rows - count)
            held.append((block, start, end))
            count += end - start
            size += block.offsets[end] - block.offsets[start]
            start = end
            if count >= rows or size >= most:
                yield held
                held, count, size = [], 0, 0
    if held:
        yield held


def own_records(pieces: list[RecordSpan], queue: str) -> Mask:
    """Return which of these records are readable messages of the queue, and not moved here for another one."""
    own = np.ones(sum(stop - start for _, start, stop in pieces), bool)
    at = 0
    for block, start, stop in pieces:
        for position in block.bad:
            if start <= position < stop:
                own[at + position - start] = False
        if block.has("producer") and (headers := block.sections("headers")) and _FOR in bytes(headers[2]):
            # As in `QueueState.enter`: the header counts only in a moved record, which users cannot write.
            moved = np.asarray(block.numbers("producer"))[start:stop]
            owners = [one.get(TARGET_QUEUE_HEADER, queue) for one in block.headers(start, stop)]
            own[at : at + stop - start] &= (moved == 0) | np.array([owner == queue for owner in owners])
        at += stop - start
    return own


def sequences(pieces: list[RecordSpan]) -> Numbers:
    """Return the sequence of each record."""
    return np.concatenate([np.arange(block.sequence + start, block.sequence + stop) for block, start, stop in pieces])


def moments(ns: Numbers) -> pa.Array:
    """Return nanoseconds as Spark's timestamps."""
    return nullable(np.where(ns == NONE, NONE, ns // 1000)).view(TIME)


def nullable(values: np.ndarray[Any, Any]) -> pa.Array:
    """Return numbers, null where the value is `NONE`."""
    absent = values == NONE
    return pa.array(values, mask=absent if absent.any() else None)


def texts_of(words: Sequence[str], codes: np.ndarray[Any, Any]) -> pa.Array:
    """Return the words for these codes, null where the code is `NONE`."""
    if len(codes) and (codes == codes[0]).all():
        word = None if codes[0] == NONE else words[codes[0]]
        return pa.repeat(pa.scalar(word, pa.string()), len(codes))
    return pa.array(words, pa.string()).take(nullable(codes))


def _table(rows: Sequence[tuple[int, ...]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.fromiter(chain.from_iterable(rows), np.int64, len(rows) * len(rows[0])).reshape(len(rows), -1)
