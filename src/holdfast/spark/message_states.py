"""The states of a range of messages at one moment, from the journal of their queue."""

from collections.abc import Callable, Iterator
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.queue.events import CAUSES, Snapshot, decode, encode
from holdfast.spark.log_rows import RecordSpan
from holdfast.spark.message_texts import MessageTexts
from holdfast.spark.queue_events import EVENTS, NONE, Spans, portions, read_spans
from holdfast.spark.snapshot_states import DEAD, GONE, LEASED, REDRIVEN, WAITING, SnapshotStates

__all__ = [
    "DECODED_BYTES",
    "DECODED_RECORDS",
    "EXTENDED",
    "LEASE",
    "OF_ALL",
    "STATES",
    "Journal",
    "MessageStates",
    "by_kind",
]

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
_UNKNOWN = 255
"""The place of a message of which no event came after the last snapshot: the snapshot has it."""
_UNSET = -2
"""A value that no event after the last snapshot gave: the snapshot has it."""
_CODE = {word: code for code, word in enumerate(EVENTS)}
_MOVED, _DROP, _PURGED, _SOUGHT, _CUT = (_CODE[word] for word in ("moved", "dropped", "purged", "sought", "cut"))
LEASE = _CODE["leased"]
"""The event that begins a lease."""
EXTENDED = _CODE["extended"]
"""The event that changes the expiry of a lease."""
OF_ALL = (_PURGED, _SOUGHT, _CUT)
"""The events that affect the whole queue."""
_RETURNED = tuple(_CODE[word] for word in ("nacked", "expired", "released"))
_SNAPSHOT_KIND = encode(Snapshot(0, 0, True, b""))[0]
DECODED_RECORDS = 4096
DECODED_BYTES = 1 << 20
"""How much of a journal is decoded at a time. A decoded span of twelve bytes takes 300 bytes in memory."""
_EXPAND_ROWS = 1 << 17
"""How many messages of large spans are processed at a time."""
_EXTENSIONS_MAX = 1 << 16
"""How many extensions of leases are collected before those of other messages' leases are left out."""

Numbers = np.ndarray[Any, Any]
Journal = Callable[[int, int], Iterator[RecordSpan]]
"""Returns the records of a journal from one position up to another, each time that it is called."""


def _codes_of(default: int, codes: dict[str, int]) -> Numbers:
    """Return a table by event code."""
    table = np.full(len(EVENTS), default, np.uint8)
    for word, code in codes.items():
        table[_CODE[word]] = code
    return table


_FATES = _codes_of(
    _OPEN, {"leased": _LEASED, "acked": _ACKED, "dead-lettered": _DEAD, "redriven": _REDRIVEN, "dropped": _DROPPED}
)
"""The fate that each event gives a message."""
_PLACES = _codes_of(
    WAITING,
    {"leased": LEASED, "acked": GONE, "dead-lettered": DEAD, "redriven": REDRIVEN, "moved": GONE, "dropped": GONE},
)
"""The place in the queue to which each event brings a message."""
_GIVEN_UP = (CAUSES.index("attempts"), CAUSES.index("rejected"))
_FAILURES = np.isin(EVENTS, ("nacked", "expired"))
"""Which events are failures, with a reason or without one."""


class _Failures:
    """Deliveries and last failures of messages."""

    def __init__(self, size: int, attempts: int, reason: int) -> None:
        self.attempts = np.full(size, attempts, np.int32)
        """Deliveries so far; `NONE` if the journal of that time is no longer kept."""
        self.reasons = np.full(size, reason, np.int32)
        """Of the last failure: a number of a text."""

    def begin_again(self, below: int) -> None:
        """Forget everything of the messages from this index on: they are delivered for the first time again."""
        self.attempts[below:], self.reasons[below:] = 0, NONE


class MessageStates:
    """The states of the messages from `start` up to `stop`, made by `follow` from the journal and read by `at`.

    There are two records of each message. Its *fate* is what the journal tells: its end, its deliveries and its last
    failure. A message that was put after the start of the retained journal has its whole history in it, and so has
    everything from the position of a `sought` on; the end of an older one may be lost, so a purge or a seek does not
    mark older messages as dropped. Its *place* is whether and how the queue holds it: the last snapshot in the journal
    has it, and the events after the snapshot change it. Without a snapshot every message waits at first.

    Memory: 26 bytes a message, 8 more once one was returned and 8 more with a snapshot, and the texts of the reasons.
    """

    def __init__(self, start: int, stop: int, known_from: int) -> None:
        """Know nothing yet; the journal has the whole history of the messages from `known_from` on."""
        size = stop - start
        self.start = start
        self.stop = stop
        self._known_from = known_from
        self._texts = MessageTexts()
        self._fates = np.full(size, _OPEN, np.uint8)
        self._past = _Failures(size, NONE, NONE)
        self._past.attempts[self._at(known_from) :] = 0
        self._places = np.full(size, WAITING, np.uint8)
        self._held = self._past
        """Deliveries and failures for the queue's decisions. They differ from those of the past after a snapshot."""
        self._lease = np.full(size, NONE, np.int64)
        self._until = np.full(size, NONE, np.int64)
        self._dues: Numbers | None = None
        """When a returned message is due again, 0: at once; `NONE`: as it was put. None: no message was returned."""
        self._extended: list[tuple[Numbers, Numbers]] = []
        """Leases whose expiry was changed, and their new expiries, in order."""
        self._extensions = 0
        self._extensions_max = _EXTENSIONS_MAX
        self._snapshot: tuple[int, int] | None = None
        """The positions of the last complete snapshot in the journal."""
        self._parts: tuple[int, int, int] | None = None
        """Of a snapshot that is being read: its first position, the next position, and the number of the next part."""
        self._purged = 0
        """Since the last snapshot, messages below this were purged if they waited."""

    def follow(self, journal: Journal, begin: int, end: int) -> None:
        """Process the journal between these positions. Then `at` returns the states."""
        pieces = (part for piece in journal(begin, end) for part in by_kind(piece))
        for is_snapshot, run in groupby(pieces, itemgetter(0)):
            if is_snapshot:
                for _, piece in run:
                    self._pass_snapshot(piece)
            else:
                self._parts = None
                for portion in portions((piece for _, piece in run), DECODED_RECORDS, DECODED_BYTES):
                    self._take(read_spans(portion))
        self._end_all()
        if self._snapshot is not None:
            self._complete(journal, *self._snapshot)
        self._lay_held_over()

    @property
    def has_snapshot(self) -> bool:
        """Whether there was a snapshot: a journal whose beginning was dropped has one."""
        return self._snapshot is not None

    # Results.

    def at(self, messages: Numbers, dues: Numbers | None, now: int) -> dict[str, Numbers]:
        """Return state, attempts, reason, due, lease and expires of these messages; `NONE` for missing values.

        `dues` are the times before which the messages were not to be delivered when they were put, 0 for none.
        """
        at = messages - self.start
        states = self._fates[at]
        due = np.zeros(len(at), np.int64) if dues is None else dues
        if self._dues is not None:
            again = self._dues[at]
            due = np.where(again == NONE, due, again)
        is_delayed = (states == _READY) & (due > now)
        is_leased = states == _LEASED
        return {
            "state": np.where(is_delayed, np.uint8(_DELAYED), states),
            "attempts": self._past.attempts[at],
            "reason": self._past.reasons[at],
            "due": np.where(is_delayed, due, NONE),
            "lease": np.where(is_leased, self._lease[at], NONE),
            "expires": np.where(is_leased, self._until[at], NONE),
        }

    def reasons(self, codes: Numbers) -> pa.Array:
        """Return the texts of reasons."""
        return self._texts.texts(codes)

    # Events.

    def _take(self, spans: Spans) -> None:
        """Apply the events of a portion of the journal, as far as they concern the messages of this range."""
        begin = np.maximum(spans.start, self.start)
        count = np.minimum(spans.start + spans.count, self.stop) - begin
        of_all = np.isin(spans.event, OF_ALL)
        own = (spans.start >= 0) & (count > 0)
        if (extended := spans.event == EXTENDED).any():
            self._extend(spans.lease[extended], spans.until[extended])
        which = np.flatnonzero(own | of_all)
        if not len(which):
            return
        of_all = of_all[which]
        names = ("event", "time", "lease", "attempt", "priority", "cause", "reason", "target", "until", "upto")
        own_spans = Spans(
            start=np.where(of_all, NONE, begin[which]),
            count=np.where(of_all, 1, count[which]),
            position=spans.position[which],
            texts=[],
            **{name: getattr(spans, name)[which] for name in names},
        )
        own_spans.reason = self._texts.codes(spans.texts, own_spans.reason)
        entries = np.arange(len(which))
        for expanded, messages in own_spans.expanded(_EXPAND_ROWS):
            self._apply(own_spans, entries[expanded], messages)
        if self._texts.is_full:
            self._texts.keep(self._past.reasons, *([] if self._held is self._past else [self._held.reasons]))

    def _apply(self, spans: Spans, which: Numbers, messages: Numbers) -> None:
        """Apply events in their order: those of single messages together, between those that affect the whole queue."""
        events = spans.event[which]
        at = 0
        for cut in [*np.flatnonzero(np.isin(events, OF_ALL)).tolist(), len(events)]:
            if cut > at:
                self._mark(spans, which[at:cut], messages[at:cut] - self.start)
            if cut < len(events):
                self._befall(int(events[cut]), int(spans.upto[which[cut]]))
            at = cut + 1

    def _mark(self, spans: Spans, which: Numbers, at: Numbers) -> None:
        events = spans.event[which]
        # If a message occurs twice the later event wins: numpy assigns in order.
        self._places[at] = _PLACES[events]
        arrived = events == _MOVED
        fates = _FATES[events]
        fates[(events == _DROP) & np.isin(spans.cause[which], _GIVEN_UP)] = _DEAD
        self._fates[at[~arrived]] = fates[~arrived]
        if arrived.any():
            # An earlier event has the reason of its leaving, unless that event is lost.
            there = at[arrived]
            self._fates[there[~np.isin(self._fates[there], (_DEAD, _REDRIVEN))]] = _DEAD
        if (leased := events == LEASE).any():
            self._lease[at[leased]] = spans.lease[which[leased]]
            self._until[at[leased]] = spans.until[which[leased]]
        if (returned := np.isin(events, _RETURNED)).any():
            self._return(at[returned], spans.until[which[returned]], spans.time[which[returned]])
        released = events == _CODE["released"]
        counted = spans.attempt[which] != NONE
        attempts = (spans.attempt[which] - released)[counted]
        # The journal has no reason for a drop without dead-lettering; an earlier reason is not that of the drop.
        failed = _FAILURES[events] | (spans.reason[which] != NONE) | np.isin(spans.cause[which], _GIVEN_UP)
        for failures in (self._past,) if self._held is self._past else (self._past, self._held):
            failures.attempts[at[counted]] = attempts
            failures.reasons[at[failed]] = spans.reason[which][failed]

    def _return(self, at: Numbers, due: Numbers, time: Numbers) -> None:
        if self._dues is None:
            self._dues = np.full(len(self._fates), NONE, np.int64)
        self._dues[at] = np.where(due > time, due, 0)

    def _befall(self, event: int, upto: int) -> None:
        below, known = self._at(upto), self._at(self._known_from)
        if event in (_PURGED, _SOUGHT):
            passed = self._fates[known : max(known, below)]
            gone = passed == _OPEN if event == _PURGED else (passed == _OPEN) | (passed == _LEASED)
            passed[gone] = _DROPPED
        if event == _PURGED:
            places = self._places[:below]
            places[places == WAITING] = GONE
            self._purged = max(self._purged, upto)
            return
        if event == _SOUGHT:
            self._places[:below] = GONE
        self._fates[below:], self._places[below:] = _OPEN, WAITING
        self._past.begin_again(below)
        self._held.begin_again(below)
        if self._dues is not None:
            self._dues[below:] = NONE
        self._known_from = min(self._known_from, upto)

    def _extend(self, leases: Numbers, until: Numbers) -> None:
        self._extended.append((leases, until))
        self._extensions += len(leases)
        if self._extensions > self._extensions_max:
            leases, until = self._extensions_by_lease()
            if self._snapshot is None:  # else the snapshot may have leases that are not known here
                live = np.isin(leases, self._lease[self._places == LEASED])
                leases, until = leases[live], until[live]
            self._extended, self._extensions = [(leases, until)], len(leases)
            self._extensions_max = max(_EXTENSIONS_MAX, 2 * len(leases))

    def _extensions_by_lease(self) -> tuple[Numbers, Numbers]:
        """Return the extended leases, ascending, and the last expiry of each."""
        leases, until = (np.concatenate(column)[::-1] for column in zip(*self._extended, strict=True))
        leases, first = np.unique(leases, return_index=True)
        return leases, until[first]

    def _at(self, sequence: int) -> int:
        return min(max(sequence - self.start, 0), self.stop - self.start)

    # Snapshots.

    def _pass_snapshot(self, piece: RecordSpan) -> None:
        """Note a snapshot that is complete with one of these records: it has the places of all messages."""
        block, first, last = piece
        for at in range(first, last):
            if at in block.bad:
                self._parts = None
                continue
            position = block.sequence + at
            (event,) = decode(bytes(block.data[block.offsets[at] : block.offsets[at + 1]]))
            assert isinstance(event, Snapshot)
            if event.part == 0:
                self._parts = (position, position, 0)
            if self._parts is None or self._parts[1:] != (position, event.part):
                self._parts = None
                continue
            self._parts = (self._parts[0], position + 1, event.part + 1)
            if event.last:
                self._snapshot = self._parts[:2]
                self._parts = None
                self._forget_places()

    def _forget_places(self) -> None:
        self._places[:] = _UNKNOWN
        self._held = _Failures(len(self._fates), _UNSET, _UNSET)
        self._dues = None
        self._extended, self._extensions = [], 0
        self._purged = 0

    def _complete(self, journal: Journal, first: int, end: int) -> None:
        """Take what no later event changed from the last snapshot."""
        saved = SnapshotStates(self.start, self.stop)
        for block, start, stop in journal(first, end):
            for at in range(start, stop):
                (event,) = decode(bytes(block.data[block.offsets[at] : block.offsets[at + 1]]))
                assert isinstance(event, Snapshot)
                saved.add(event.content)
        saved.finish(self._texts)
        unknown = self._places == _UNKNOWN
        self._places[unknown] = saved.places[unknown]
        below = slice(0, self._at(self._purged))
        self._places[below][unknown[below] & (self._places[below] == WAITING)] = GONE
        self._lease[unknown], self._until[unknown] = saved.lease[unknown], saved.until[unknown]
        if self._dues is None:
            self._dues = np.full(len(self._fates), NONE, np.int64)
        self._dues[unknown] = saved.dues[unknown]
        held = self._held
        for values, known in ((held.attempts, saved.attempts), (held.reasons, saved.reasons)):
            unset = values == _UNSET
            values[unset] = known[unset]

    # The end.

    def _end_all(self) -> None:
        """Mark messages without a known end as acknowledged; `_lay_held_over` corrects those that the queue holds."""
        lost = (self._fates == _OPEN) | (self._fates == _LEASED)
        self._fates[lost] = _ACKED
        # An acknowledged message was delivered: its lease was in a dropped part of the journal.
        self._past.attempts[(self._fates == _ACKED) & (self._past.attempts == 0)] = NONE

    def _lay_held_over(self) -> None:
        for place, state in ((WAITING, _READY), (LEASED, _LEASED), (DEAD, _DEAD), (REDRIVEN, _REDRIVEN)):
            held = self._places == place
            self._fates[held] = state
            attempts = self._held.attempts[held]
            self._past.attempts[held] = np.where(attempts == NONE, 0, attempts)
            self._past.reasons[held] = self._held.reasons[held]
        if self._extended:
            leases, until = self._extensions_by_lease()
            held = np.flatnonzero(self._places == LEASED)
            at = np.searchsorted(leases, self._lease[held]).clip(max=len(leases) - 1)
            changed = leases[at] == self._lease[held]
            self._until[held[changed]] = until[at[changed]]
        self._extended = []


def by_kind(piece: RecordSpan) -> Iterator[tuple[bool, RecordSpan]]:
    """Divide records of a journal: those with a part of a snapshot, and others."""
    block, start, stop = piece
    begins = np.asarray(block.offsets)[start:stop]
    is_snapshot = np.zeros(stop - start, bool)
    there = begins < len(block.data)
    is_snapshot[there] = np.frombuffer(block.data, np.uint8)[begins[there]] == _SNAPSHOT_KIND
    if not is_snapshot.any():
        yield False, piece
        return
    edges = [0, *(np.flatnonzero(np.diff(is_snapshot)) + 1).tolist(), stop - start]
    for first, last in pairwise(edges):
        yield bool(is_snapshot[first]), (block, start + first, start + last)
