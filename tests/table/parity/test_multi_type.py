"""The suite's cases of scans over values of several types."""

from typing import Any

import pytest

from tests.table.parity.asking import Open, added, places
from tests.table.parity.models import Length, Measurement, Weight, measurements

M: Any = Measurement


@pytest.fixture
def table(open_table: Open) -> Any:
    return open_table(Measurement)


@pytest.fixture
def keys(table: Any) -> list[bytes]:
    return added(table, measurements())


def test_a_key_with_a_type_in_it_is_scanned_up_and_down(table: Any, keys: list[bytes]) -> None:
    assert places(keys, table.scan(start=keys[2])) == [2, 1, 0]
    assert places(keys, table.scan(start=keys[2], order=["-$key"])) == [2, 3]
    assert places(keys, table.scan(start=keys[2], limit=1)) == [2]


def test_a_union_can_be_selected(table: Any, keys: list[bytes]) -> None:
    assert table.scan(select=["measured"]).first().value == {"measured": 220}


def test_values_of_one_type_are_found_newest_first(table: Any, keys: list[bytes]) -> None:
    scan = table.scan(M.measured.is_a(Weight), allow_table_scan=True)
    assert (places(keys, scan), scan.plan.kind) == ([2, 0], "table")


def test_a_field_of_one_type_is_found_by_its_index(table: Any, keys: list[bytes]) -> None:
    length = M.measured.as_(Length).cm
    scan = table.scan(length.between(170, 180), order=["measured:Length.cm"])
    assert (places(keys, scan), scan.plan.index.name) == ([1], "measured:Length.cm")


def test_a_plain_value_of_a_union_is_found_by_its_index(table: Any, keys: list[bytes]) -> None:
    scan = table.scan(M.measured.as_(int) == 220)
    assert (places(keys, scan), scan.plan.index.name) == ([3], "measured:int")
