"""The suite's cases of an index over a value that changes."""

from typing import Any

import pytest

from tests.table.parity.asking import Open, added, past_of, places
from tests.table.parity.models import Counted

UP = ["number"]
DOWN = ["-number"]


@pytest.fixture
def table(open_table: Open) -> Any:
    return open_table(Counted)


@pytest.fixture
def keys(table: Any) -> list[bytes]:
    return added(table, [Counted(number=number) for number in (5, 2, 7, 1)])


def test_records_stand_where_they_stand_now_and_stood_where_they_stood(table: Any, keys: list[bytes]) -> None:
    version = table.last_version
    table.change(keys[2], {"number": 99})
    assert places(keys, table.scan(order=UP, start=keys[1])) == [1, 0, 2]
    with past_of(table):
        then = list(table.scan(order=UP, start=keys[1], as_of=version))
        assert places(keys, then) == [1, 0, 2]
        assert then[2].number == 7


def test_a_descending_scan_starts_where_a_record_stands(table: Any, keys: list[bytes]) -> None:
    table.change(keys[2], {"number": 99})
    assert places(keys, table.scan(order=DOWN, start=keys[1])) == [1, 3]


def test_all_records_come_in_descending_order(table: Any, keys: list[bytes]) -> None:
    table.change(keys[2], {"number": 99})
    assert places(keys, table.scan(order=DOWN)) == [2, 0, 1, 3]


def test_a_cursor_passes_over_its_own_record_wherever_it_went(table: Any, keys: list[bytes]) -> None:
    first = table.scan(order=UP, limit=2)
    assert places(keys, first) == [3, 1]
    table.change(keys[1], {"number": 100})
    second = table.scan(order=UP, limit=2, cursor=first.cursor)
    assert places(keys, second) == [0, 2]
    assert second.cursor is None
