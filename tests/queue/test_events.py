"""Events as bytes: whatever can happen comes back as it was, alone or many in one record; what is torn is refused."""

from struct import error as StructError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.base.errors import Corrupt
from holdfast.queue.events import (
    CAUSES,
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
    decode,
    encode,
    encode_ack_of_one,
    encode_lease_of_one,
)

U64 = 2**64 - 1
TIMES = st.integers(0, 2**63 - 1)
IDS = st.integers(0, U64)
STARTS = st.integers(0, 2**63)
SIZES = st.integers(1, 2**32 - 1)
SPANS = st.lists(st.builds(lambda start, size: (start, start + size), STARTS, SIZES), max_size=4)
LEASED = st.lists(
    st.builds(
        lambda start, size, priority, attempt: LeasedSpan(start, start + size, priority, attempt),
        STARTS,
        SIZES,
        st.integers(0, 9),
        st.integers(0, 2**32 - 1),
    ),
    max_size=4,
)
ANY_TEXT = st.text(st.characters(), max_size=20)
"""With lone surrogates too: the text of an exception may hold anything."""
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(Leased, TIMES, IDS, TIMES, LEASED),
    st.builds(Acked, TIMES, st.lists(st.tuples(IDS, SPANS), max_size=3)),
    st.builds(Extended, TIMES, IDS, TIMES),
    st.builds(Requeued, TIMES, st.sampled_from(CAUSES), ANY_TEXT, IDS, TIMES, LEASED),
    st.builds(Transferring, TIMES, st.sampled_from(CAUSES), ANY_TEXT, ANY_TEXT, IDS, LEASED),
    st.builds(Dropped, TIMES, st.sampled_from(CAUSES), SPANS),
    st.builds(Purged, TIMES, IDS),
    st.builds(SeekTo, TIMES, IDS),
    st.builds(Truncated, TIMES, IDS),
    st.builds(Snapshot, TIMES, st.integers(0, 2**32 - 1), st.booleans(), st.binary(max_size=50)),
)


@given(st.lists(EVENTS, max_size=6))
def test_events_of_one_record_come_back_in_order(events: list[Event]) -> None:
    assert list(decode(b"".join(map(encode, events)))) == events


@given(EVENTS)
def test_each_event_knows_its_kind(event: Event) -> None:
    (back,) = decode(encode(event))
    assert type(back) is type(event)


@given(TIMES, IDS, TIMES, st.integers(0, 2**63))
def test_the_short_forms_say_the_same_as_the_long_ones(time: int, lease: int, expires: int, sequence: int) -> None:
    assert list(decode(encode_lease_of_one(time, lease, expires, sequence))) == [
        Leased(time, lease, expires, [LeasedSpan(sequence, sequence + 1, 0, 1)])
    ]
    assert list(decode(encode_ack_of_one(time, lease, sequence))) == [
        Acked(time, [(lease, [(sequence, sequence + 1)])])
    ]


def test_an_event_of_a_later_version_is_refused_by_name() -> None:
    with pytest.raises(Corrupt, match="newer version"):
        list(decode(bytes([250, 1, 2, 3])))


@given(EVENTS, st.data())
def test_a_torn_record_is_never_taken_for_another_event(event: Event, data: st.DataObject) -> None:
    """Checksums keep such a record from being read at all; were they to fail, it must not pass for the whole."""
    raw = encode(event)
    cut = data.draw(st.integers(1, len(raw) - 1))
    try:
        found = list(decode(raw[:cut]))
    except (StructError, Corrupt, ValueError):
        return
    assert found != [event]
