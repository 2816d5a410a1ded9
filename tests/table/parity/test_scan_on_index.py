"""The suite's cases of scans along an index."""

from typing import Any

import pytest

from tests.table.parity.asking import Open, added, past_of, places
from tests.table.parity.models import Log, Person, Severity, logs, persons

L: Any = Log
P: Any = Person
UP = ["severity"]
DOWN = ["-severity"]


@pytest.fixture
def table(open_table: Open) -> Any:
    return open_table(Log)


@pytest.fixture
def keys(table: Any) -> list[bytes]:
    return added(table, logs())


def test_equal_values_are_in_the_order_of_their_keys(table: Any, keys: list[bytes]) -> None:
    scan = table.scan(order=UP)
    assert places(keys, scan) == [2, 0, 1, 3]
    assert (scan.plan.kind, scan.plan.index.name) == ("index", "severity")


def test_a_scan_along_an_index_starts_where_a_record_stands_in_it(table: Any, keys: list[bytes]) -> None:
    assert places(keys, table.scan(order=UP, start=keys[1])) == [1, 3]


def test_a_descending_scan_reads_the_index_backwards(table: Any, keys: list[bytes]) -> None:
    scan = table.scan(order=DOWN)
    assert places(keys, scan) == [3, 1, 0, 2]
    assert scan.plan.reverse


def test_a_scan_along_an_index_ends_at_its_limit(table: Any, keys: list[bytes]) -> None:
    assert places(keys, table.scan(order=UP, limit=1)) == [2]


def test_a_limit_holds_over_several_ranges(table: Any, keys: list[bytes]) -> None:
    scan = table.scan(L.severity.isin(list(Severity)), order=UP, limit=1)
    assert places(keys, scan) == [2]
    assert scan.plan.kind == "index"


@pytest.mark.parametrize(("order", "place"), [(UP, 1), (DOWN, 2)], ids=["ascending", "descending"])
def test_a_scan_along_an_index_shows_records_as_they_were(
    table: Any, keys: list[bytes], order: list[str], place: int
) -> None:
    version = table.last_version
    table.change(keys[0], {"message": "changed"})
    assert list(table.scan(order=order))[place].message == "changed"
    with past_of(table):
        assert list(table.scan(order=order, as_of=version))[place].message == "Something happened"


def test_a_scan_along_an_index_gives_only_selected_values(table: Any, keys: list[bytes]) -> None:
    assert table.scan(order=UP, select=["at"]).first().value == {"at": logs()[2].at}


def test_a_value_reads_its_part_of_the_index(table: Any, keys: list[bytes]) -> None:
    scan = table.scan(L.severity == Severity.DEBUG)
    ((start, stop),) = scan.plan.ranges
    assert stop is not None and start < stop
    assert places(keys, scan) == [1]


def test_a_lower_bound_reads_the_index_from_there_on(table: Any, keys: list[bytes]) -> None:
    scan = table.scan(L.severity >= Severity.DEBUG, order=UP)
    ((start, stop),) = scan.plan.ranges
    assert start and stop is None
    assert places(keys, scan) == [1, 3]


def test_an_upper_bound_reads_the_index_backwards_from_there_on(table: Any, keys: list[bytes]) -> None:
    scan = table.scan(L.severity <= Severity.DEBUG, order=DOWN)
    ((start, stop),) = scan.plan.ranges
    assert start == b"" and stop
    assert places(keys, scan) == [1, 0, 2]


@pytest.fixture
def people(open_table: Open) -> Any:
    table = open_table(Person)
    added(table, persons())
    return table


def names(records: Any) -> list[str]:
    return [f"{record.surname}/{record.first_name}" for record in records]


def test_an_order_of_two_fields_goes_along_an_index_of_both(people: Any) -> None:
    scan = people.scan(order=["surname", "first_name"])
    assert names(scan) == ["Kastens/Ariel", "Kastens/Karel", "Mous/Jurriaan", "Tockle/Ti"]
    assert scan.plan.index.name == "surname,first_name"


def test_the_first_field_of_an_index_can_be_given(people: Any) -> None:
    scan = people.scan(P.surname == "Kastens", order=["surname", "first_name"])
    assert names(scan) == ["Kastens/Ariel", "Kastens/Karel"]
    ((start, stop),) = scan.plan.ranges
    assert start.startswith(b"Kastens") and stop is not None


def test_both_fields_of_an_index_are_used_without_an_order(people: Any) -> None:
    scan = people.scan((P.surname == "Kastens") & (P.first_name == "Karel"))
    assert (names(scan), scan.plan.kind) == (["Kastens/Karel"], "index")
    ((start, stop),) = scan.plan.ranges
    assert b"Kastens" in start and b"Karel" in start and stop is not None


def test_both_fields_of_an_index_are_used_in_the_past_too(people: Any) -> None:
    version = people.last_version
    karel = people.scan(P.first_name == "Karel", allow_table_scan=True).first().key
    people.change(karel, {"surname": "Mous"})
    with past_of(people):
        scan = people.scan((P.surname == "Kastens") & (P.first_name == "Karel"), as_of=version)
        assert (names(scan), scan.plan.kind) == (["Kastens/Karel"], "index")
