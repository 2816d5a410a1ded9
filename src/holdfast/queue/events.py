"""Events of a queue's journal and their binary encoding, as pure functions."""

from collections.abc import Callable, Iterator
from functools import partial
from struct import Struct
from typing import Any, NamedTuple

from holdfast.base.errors import Corrupt

__all__ = [
    "CAUSES",
    "Acked",
    "Dropped",
    "Event",
    "Extended",
    "Leased",
    "LeasedSpan",
    "Purged",
    "Requeued",
    "SeekTo",
    "Snapshot",
    "Transferring",
    "Truncated",
    "decode",
    "encode",
    "encode_ack_of_one",
    "encode_lease_of_one",
]

Span = tuple[int, int]
"""A first sequence and the one after the last."""

CAUSES = (
    "nacked",  # 0: its consumer returned it as failed
    "expired",  # 1: its lease expired
    "released",  # 2: its consumer returned it untried
    "attempts",  # 3: it failed too often
    "ttl",  # 4: its time to live was over
    "overflow",  # 5: the queue was full
    "redriven",  # 6: moved back from the dead letters
    "moved",  # 7: its copy is durable in the target
    "damaged",  # 8: its record cannot be read
    "rejected",  # 9: its consumer rejected it permanently
    "discarded",  # 10: an operator dropped it
)
"""Causes of events, stored in the journal as their index in this list: only append to it."""
_CAUSE = {name: number for number, name in enumerate(CAUSES)}


class LeasedSpan(NamedTuple):
    """Consecutive messages with the same priority and number of deliveries."""

    start: int
    stop: int
    priority: int
    attempt: int


class Leased(NamedTuple):
    """Messages were leased."""

    time: int
    lease: int
    expires: int
    spans: list[LeasedSpan]


class Acked(NamedTuple):
    """Messages were acknowledged."""

    time: int
    parts: list[tuple[int, list[Span]]]
    """The acknowledged messages of each lease."""


class Extended(NamedTuple):
    """The expiry of a lease was changed."""

    time: int
    lease: int
    expires: int


class Requeued(NamedTuple):
    """Leased messages were returned, to be delivered again from `due` on."""

    time: int
    cause: str
    reason: str
    lease: int
    due: int
    spans: list[LeasedSpan]


class Transferring(NamedTuple):
    """Messages began to move to another queue: to the dead letters, or back from there."""

    time: int
    cause: str
    reason: str
    target: str
    lease: int
    spans: list[LeasedSpan]


class Dropped(NamedTuple):
    """Messages left the queue without an acknowledgement."""

    time: int
    cause: str
    spans: list[Span]


class Purged(NamedTuple):
    """All messages below `end` that were not leased were dropped."""

    time: int
    end: int


class SeekTo(NamedTuple):
    """The position was set: earlier messages count as acknowledged, later ones are to be delivered, perhaps again."""

    time: int
    position: int


class Truncated(NamedTuple):
    """The log ends here: a crash lost the messages from this sequence on."""

    time: int
    end: int


class Snapshot(NamedTuple):
    """A part of the complete state as it was before the first part; the snapshot is valid with its last part."""

    time: int
    part: int
    last: bool
    content: bytes


Event = Leased | Acked | Extended | Requeued | Transferring | Dropped | Purged | SeekTo | Truncated | Snapshot

_LEASED, _LEASED_ONE, _ACKED, _ACKED_ONE, _EXTENDED, _RETURNED, _MOVING, _SETTLED, _PURGED, _SOUGHT, _CUT, _SNAPSHOT = (
    range(1, 13)
)
_HEAD = Struct("<Bq")
_ONE_LEASED = Struct("<BqQqQ")
_ONE_ACKED = Struct("<BqQQ")
_LEASED_HEAD = Struct("<BqQqI")
_LEASED_SPAN = Struct("<QIBI")
_SPAN = Struct("<QI")
_PART = Struct("<QI")
_COUNT = Struct("<I")
_NUMBER = Struct("<BqQ")
_TWO = Struct("<BqQq")
_RETURN_HEAD = Struct("<BqBQqI")
_MOVING_HEAD = Struct("<BqBQI")
_SETTLED_HEAD = Struct("<BqBI")
_SNAPSHOT_HEAD = Struct("<BqIB")


encode_lease_of_one: Callable[[int, int, int, int], bytes] = partial(_ONE_LEASED.pack, _LEASED_ONE)
"""Encode (time, lease, expires, sequence) of one message of priority 0 at its first delivery: the common case."""
encode_ack_of_one: Callable[[int, int, int], bytes] = partial(_ONE_ACKED.pack, _ACKED_ONE)
"""Encode (time, lease, sequence) of one acknowledged message."""


def _leased_spans(spans: list[LeasedSpan]) -> bytes:
    return b"".join(
        _LEASED_SPAN.pack(start, stop - start, priority, attempt) for start, stop, priority, attempt in spans
    )


def _spans(spans: list[Span]) -> bytes:
    return b"".join(_SPAN.pack(start, stop - start) for start, stop in spans)


def _text(text: str) -> bytes:
    raw = text.encode("utf-8", "surrogatepass")  # an exception's text may contain surrogates
    return _COUNT.pack(len(raw)) + raw


def encode(event: Event) -> bytes:
    """Return the bytes of an event; a record of the journal may have several."""
    match event:
        case Leased(time, lease, expires, spans):
            return _LEASED_HEAD.pack(_LEASED, time, lease, expires, len(spans)) + _leased_spans(spans)
        case Acked(time, parts):
            return (
                _HEAD.pack(_ACKED, time)
                + _COUNT.pack(len(parts))
                + b"".join(_PART.pack(lease, len(spans)) + _spans(spans) for lease, spans in parts)
            )
        case Extended(time, lease, expires):
            return _TWO.pack(_EXTENDED, time, lease, expires)
        case Requeued(time, cause, reason, lease, due, spans):
            head = _RETURN_HEAD.pack(_RETURNED, time, _CAUSE[cause], lease, due, len(spans))
            return head + _leased_spans(spans) + _text(reason)
        case Transferring(time, cause, reason, target, lease, spans):
            head = _MOVING_HEAD.pack(_MOVING, time, _CAUSE[cause], lease, len(spans))
            return head + _leased_spans(spans) + _text(reason) + _text(target)
        case Dropped(time, cause, spans):
            return _SETTLED_HEAD.pack(_SETTLED, time, _CAUSE[cause], len(spans)) + _spans(spans)
        case Purged(time, end):
            return _NUMBER.pack(_PURGED, time, end)
        case SeekTo(time, position):
            return _NUMBER.pack(_SOUGHT, time, position)
        case Truncated(time, end):
            return _NUMBER.pack(_CUT, time, end)
        case Snapshot(time, part, last, content):
            return _SNAPSHOT_HEAD.pack(_SNAPSHOT, time, part, last) + _COUNT.pack(len(content)) + content


class _Reader:
    """A cursor over the bytes of one journal record."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.at = 0

    def take(self, form: Struct) -> tuple[Any, ...]:
        values = form.unpack_from(self.raw, self.at)
        self.at += form.size
        return values

    def text(self) -> str:
        return self.content().decode("utf-8", "surrogatepass")

    def content(self) -> bytes:
        (size,) = self.take(_COUNT)
        raw = self.raw[self.at : self.at + size]
        self.at += size
        return raw

    def leased_spans(self, count: int) -> list[LeasedSpan]:
        end = self.at + count * _LEASED_SPAN.size
        found = [
            LeasedSpan(start, start + size, priority, attempt)
            for start, size, priority, attempt in _LEASED_SPAN.iter_unpack(self.raw[self.at : end])
        ]
        self.at = end
        return found

    def spans(self, count: int) -> list[Span]:
        end = self.at + count * _SPAN.size
        found = [(start, start + size) for start, size in _SPAN.iter_unpack(self.raw[self.at : end])]
        self.at = end
        return found


def _leased(reader: _Reader) -> Event:
    _, time, lease, expires, count = reader.take(_LEASED_HEAD)
    return Leased(time, lease, expires, reader.leased_spans(count))


def _leased_one(reader: _Reader) -> Event:
    _, time, lease, expires, sequence = reader.take(_ONE_LEASED)
    return Leased(time, lease, expires, [LeasedSpan(sequence, sequence + 1, 0, 1)])


def _acked(reader: _Reader) -> Event:
    _, time = reader.take(_HEAD)
    (count,) = reader.take(_COUNT)
    parts = []
    for _ in range(count):
        lease, spans = reader.take(_PART)
        parts.append((lease, reader.spans(spans)))
    return Acked(time, parts)


def _acked_one(reader: _Reader) -> Event:
    _, time, lease, sequence = reader.take(_ONE_ACKED)
    return Acked(time, [(lease, [(sequence, sequence + 1)])])


def _extended(reader: _Reader) -> Event:
    _, time, lease, expires = reader.take(_TWO)
    return Extended(time, lease, expires)


def _returned(reader: _Reader) -> Event:
    _, time, cause, lease, due, count = reader.take(_RETURN_HEAD)
    spans = reader.leased_spans(count)
    return Requeued(time, CAUSES[cause], reader.text(), lease, due, spans)


def _moving(reader: _Reader) -> Event:
    _, time, cause, lease, count = reader.take(_MOVING_HEAD)
    spans = reader.leased_spans(count)
    return Transferring(time, CAUSES[cause], reader.text(), reader.text(), lease, spans)


def _settled(reader: _Reader) -> Event:
    _, time, cause, count = reader.take(_SETTLED_HEAD)
    return Dropped(time, CAUSES[cause], reader.spans(count))


def _numbered(kind: Callable[[int, int], Event]) -> Callable[[_Reader], Event]:
    def decode_one(reader: _Reader) -> Event:
        _, time, number = reader.take(_NUMBER)
        return kind(time, number)

    return decode_one


def _snapshot(reader: _Reader) -> Event:
    _, time, part, last = reader.take(_SNAPSHOT_HEAD)
    return Snapshot(time, part, bool(last), reader.content())


_DECODERS: dict[int, Callable[[_Reader], Event]] = {
    _LEASED: _leased,
    _LEASED_ONE: _leased_one,
    _ACKED: _acked,
    _ACKED_ONE: _acked_one,
    _EXTENDED: _extended,
    _RETURNED: _returned,
    _MOVING: _moving,
    _SETTLED: _settled,
    _PURGED: _numbered(Purged),
    _SOUGHT: _numbered(SeekTo),
    _CUT: _numbered(Truncated),
    _SNAPSHOT: _snapshot,
}


def decode(raw: bytes) -> Iterator[Event]:
    """Yield the events of one journal record, in order."""
    reader = _Reader(raw)
    while reader.at < len(raw):
        kind = raw[reader.at]
        decoder = _DECODERS.get(kind)
        if decoder is None:
            raise Corrupt(
                f"unknown event kind {kind}: the journal was written by a newer version of Holdfast, update this one"
            )
        yield decoder(reader)
