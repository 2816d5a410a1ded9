"""The suite's cases of scans through the table: of logs, whose keys have the newest first, and with filters."""

from typing import Any

import pytest

from holdfast import TableScanRefused
from tests.table.parity.asking import Open, added, past_of, places
from tests.table.parity.models import Log, Sample, Severity, logs, sample

L: Any = Log
S: Any = Sample
DOWN = ["-$key"]


@pytest.fixture
def table(open_table: Open) -> Any:
    return open_table(Log)


@pytest.fixture
def keys(table: Any) -> list[bytes]:
    return added(table, logs())


def test_a_scan_goes_from_a_key_to_the_end(table: Any, keys: list[bytes]) -> None:
    scan = table.scan(start=keys[2])
    assert places(keys, scan) == [2, 1, 0]
    assert (scan.plan.kind, scan.plan.ranges) == ("table", ((b"", None),))


def test_the_least_and_the_greatest_of_what_a_scan_finds_are_told(table: Any, keys: list[bytes]) -> None:
    newest = L.at >= logs()[1].at
    assert table.aggregate(newest, min="at", max="at") == {"min": logs()[1].at, "max": logs()[3].at}


def test_a_scan_goes_down_to_the_first_key(table: Any, keys: list[bytes]) -> None:
    scan = table.scan(order=DOWN, start=keys[2])
    assert places(keys, scan) == [2, 3]
    assert scan.plan.reverse


def test_a_scan_may_start_where_no_record_is(table: Any, keys: list[bytes]) -> None:
    absent = (int.from_bytes(keys[2], "big") + 1).to_bytes(len(keys[2]), "big")
    assert places(keys, table.scan(order=DOWN, start=absent)) == [2, 3]


def test_a_scan_ends_at_its_limit(table: Any, keys: list[bytes]) -> None:
    assert places(keys, table.scan(start=keys[2], limit=1)) == [2]


def test_before_the_first_version_a_scan_finds_nothing_on_the_same_way(table: Any, keys: list[bytes]) -> None:
    with past_of(table):
        scan = table.scan(as_of=table.get(keys[0]).version - 1)
        assert list(scan) == []
        assert scan.plan.kind == "table"


def test_a_scan_gives_only_selected_values(table: Any, keys: list[bytes]) -> None:
    (record,) = table.scan(start=keys[2], limit=1, select=["at", "severity"])
    assert record.value == {"at": logs()[2].at, "severity": Severity.INFO}


def test_a_filter_that_no_index_serves_reads_the_whole_table_if_that_is_allowed(table: Any, keys: list[bytes]) -> None:
    where = L.message == "WRONG"
    with pytest.raises(TableScanRefused):
        table.scan(where)
    scan = table.scan(where, allow_table_scan=True)
    assert places(keys, scan) == [3]
    assert (scan.plan.kind, scan.plan.ranges, scan.plan.whole) == ("table", ((b"", None),), True)


@pytest.mark.parametrize(("message", "expected"), [("WRONG", [3]), ("wrong", [])])
def test_a_filter_on_all_parts_of_the_key_gets_one_record_and_tests_the_rest(
    table: Any, keys: list[bytes], message: str, expected: list[int]
) -> None:
    scan = table.scan((L.at == logs()[3].at) & (L.severity == Severity.ERROR) & (L.message == message))
    assert (scan.plan.kind, scan.plan.keys) == ("key", (keys[3],))
    assert places(keys, scan) == expected


def test_a_start_holds_among_records_that_are_looked_up_by_their_keys(table: Any, keys: list[bytes]) -> None:
    where = L.at.isin([log.at for log in logs()]) & L.severity.isin(list(Severity))
    assert table.scan(where, start=keys[2]).plan.kind == "key"
    assert places(keys, table.scan(where, start=keys[2])) == [2, 1, 0]
    assert places(keys, table.scan(where, start=keys[2], include_start=False)) == [1, 0]
    assert places(keys, table.scan(where, start=keys[2], order=DOWN)) == [2, 3]


def test_a_filter_finds_what_has_the_value_now(open_table: Open) -> None:
    table = open_table(Sample)
    key = table.add(sample(1, string="haas")).key
    table.add(sample(2))
    scan = table.scan(S.string == "haas", allow_table_scan=True)
    assert ([record.key for record in scan], scan.plan.kind) == ([key], "table")


def test_a_filter_finds_in_the_past_what_had_the_value_then(open_table: Open) -> None:
    table = open_table(Sample)
    added = table.add(sample(1, string="haas"))
    table.change(added.key, {"string": "haha"})
    assert table.count(S.string == "haas", allow_table_scan=True) == 0
    with past_of(table):
        assert table.count(S.string == "haas", allow_table_scan=True, as_of=added.version) == 1
