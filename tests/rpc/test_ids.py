"""Ids and leases as 16 bytes: they lead back, sort as they do, and those of others are unknown."""

import uuid

from hypothesis import given
from hypothesis import strategies as st

from holdfast.rpc.ids import Identifiers

MINE = Identifiers(b"log-1" * 3, "orders")
OTHERS = [Identifiers(b"log-2" * 3, "orders"), Identifiers(b"log-1" * 3, "invoices")]
SEQUENCES = st.integers(0, (1 << 62) - 1)
LEASES = st.integers(0, (1 << 63) - 1)


@given(SEQUENCES)
def test_an_id_leads_back_and_is_a_uuid(sequence: int) -> None:
    data = MINE.of_id(sequence)
    assert len(data) == 16
    assert MINE.to_id(data) == sequence
    assert uuid.UUID(bytes=data).version == 8
    assert all(other.to_id(data) is None for other in OTHERS)


@given(LEASES)
def test_a_lease_leads_back_and_is_a_uuid_that_tells_its_time(lease: int) -> None:
    data = MINE.of_lease(lease)
    assert len(data) == 16
    assert MINE.to_lease(data) == lease
    assert uuid.UUID(bytes=data).version == 7
    assert int.from_bytes(data[:6], "big") == lease // 1_000_000
    assert all(other.to_lease(data) is None for other in OTHERS)


@given(SEQUENCES, SEQUENCES, LEASES, LEASES)
def test_bytes_sort_as_what_they_stand_for(one: int, other: int, lease: int, later: int) -> None:
    assert (MINE.of_id(one) < MINE.of_id(other)) == (one < other)
    assert (MINE.of_lease(lease) < MINE.of_lease(later)) == (lease < later)


@given(st.binary(max_size=20), LEASES, SEQUENCES)
def test_other_bytes_are_unknown(data: bytes, lease: int, sequence: int) -> None:
    found = MINE.to_id(data)
    assert found is None or MINE.of_id(found) == data
    found = MINE.to_lease(data)
    assert found is None or MINE.of_lease(found) == data
    assert MINE.to_id(MINE.of_lease(lease)) is None
    assert MINE.to_lease(MINE.of_id(sequence)) is None
