"""The suite's cases of what happened to records: by key, and along a scan."""

from typing import Any

import pytest

from tests.table.parity.asking import Open, added, past_of, places
from tests.table.parity.models import Complex, Embedded, Log, Simple, logs


def told(record: Any) -> list[tuple[int, str, dict[str, Any]]]:
    """The versions of a record: which, what kind, and which values it brought."""
    return [(one.version, one.kind, one.values) for one in record.versions]


# By key


@pytest.fixture
def simple(open_table: Open) -> Any:
    return open_table(Simple)


@pytest.fixture
def two(simple: Any) -> list[bytes]:
    return added(simple, [Simple(value="haha1"), Simple(value="haha2")])


def test_the_newest_version_of_each_value_is_told_and_always_the_creation(simple: Any, two: list[bytes]) -> None:
    first, second = (record.version for record in simple.get_many(two))
    change = simple.change(two[1], {"value": "haha3"}).version
    assert [told(one) for one in simple.changes(two)] == [
        [(first, "add", {"value": "haha1"})],
        [(second, "add", {}), (change, "change", {"value": "haha3"})],
    ]


def test_before_the_first_version_nothing_happened(simple: Any, two: list[bytes]) -> None:
    with past_of(simple):
        assert simple.changes(two, to_version=simple.get(two[0]).version - 1) == []


def test_from_a_version_to_itself_there_is_just_that_change(simple: Any, two: list[bytes]) -> None:
    version = simple.change(two[1], {"value": "haha3"}).version
    simple.change(two[0], {"value": "haha4"})
    with past_of(simple):
        (only,) = simple.changes(two, from_version=version, to_version=version)
        assert (only.key, told(only)) == (two[1], [(version, "change", {"value": "haha3"})])


def test_after_the_last_version_nothing_happened(simple: Any, two: list[bytes]) -> None:
    assert simple.changes(two, from_version=simple.last_version + 1) == []


def test_so_many_versions_are_told_as_are_asked_for(simple: Any, two: list[bytes]) -> None:
    first = simple.get(two[0]).version
    versions = [simple.change(two[0], {"value": f"haha{number}"}).version for number in (3, 4, 5)]
    with past_of(simple):
        (only,) = simple.changes([two[0]], max_versions=2)
        assert told(only) == [
            (first, "add", {}),
            (versions[1], "change", {"value": "haha4"}),
            (versions[2], "change", {"value": "haha5"}),
        ]


def test_nested_values_are_told_by_their_paths_and_values_of_unions_whole(open_table: Open) -> None:
    table = open_table(Complex)
    part = Embedded(value="v1", model=Embedded(value="v2"))
    key = table.add(Complex(multi=part, texts={"a": "b", "c": "d"}, parts={1: part}, mixed={2: "string"})).key
    (only,) = table.changes([key])
    assert told(only) == [
        (
            table.get(key).version,
            "add",
            {
                "multi": part,
                "texts['a']": "b",
                "texts['c']": "d",
                "parts[1].value": "v1",
                "parts[1].model.value": "v2",
                "mixed[2]": "string",
            },
        )
    ]


# Along a scan


@pytest.fixture
def table(open_table: Open) -> Any:
    return open_table(Log)


@pytest.fixture
def keys(table: Any) -> list[bytes]:
    return added(table, logs())


def test_changes_come_along_a_scan_from_a_key_on(table: Any, keys: list[bytes]) -> None:
    found = table.changes(start=keys[2])
    assert places(keys, found) == [2, 1, 0]
    log = logs()[2]
    assert [(one.kind, one.values) for one in found[0].versions] == [
        ("add", {"message": log.message, "severity": log.severity, "at": log.at})
    ]


def test_changes_come_along_a_descending_scan(table: Any, keys: list[bytes]) -> None:
    assert places(keys, table.changes(start=keys[2], order=["-$key"])) == [2, 3]


def test_changes_come_along_an_index(table: Any, keys: list[bytes]) -> None:
    assert places(keys, table.changes(order=["severity"], start=keys[1])) == [1, 3]


def test_changes_come_along_an_index_backwards_up_to_a_limit(table: Any, keys: list[bytes]) -> None:
    assert places(keys, table.changes(order=["-severity"], start=keys[3], limit=3)) == [3, 1, 0]


def test_changes_of_a_scan_end_at_its_limit(table: Any, keys: list[bytes]) -> None:
    assert places(keys, table.changes(start=keys[2], limit=1)) == [2]


def test_before_the_first_version_a_scan_tells_of_nothing(table: Any, keys: list[bytes]) -> None:
    with past_of(table):
        assert table.changes(to_version=table.get(keys[0]).version - 1) == []


def test_changes_up_to_a_version_come_along_an_index(table: Any, keys: list[bytes]) -> None:
    version = table.last_version
    table.change(keys[1], {"message": "changed"})
    with past_of(table):
        found = table.changes(order=["severity"], start=keys[1], to_version=version)
        assert places(keys, found) == [1, 3]
        assert found[0].versions[0].values["message"] == "Something else happened"


def test_after_the_last_version_a_scan_tells_of_nothing(table: Any, keys: list[bytes]) -> None:
    assert table.changes(from_version=table.last_version + 1) == []


def test_changes_of_a_scan_have_only_selected_values(table: Any, keys: list[bytes]) -> None:
    found = table.changes(start=keys[2], select=["at"])
    assert [one.versions[0].values for one in found] == [{"at": logs()[place].at} for place in (2, 1, 0)]


def test_a_scan_tells_so_many_versions_as_are_asked_for(table: Any, keys: list[bytes]) -> None:
    for message in ("one", "two", "three"):
        table.change(keys[2], {"message": message})
    log = logs()[2]
    with past_of(table):
        found = table.changes(start=keys[2], max_versions=2, limit=1)
        assert [(one.kind, one.values) for one in found[0].versions] == [
            ("add", {"severity": log.severity, "at": log.at}),
            ("change", {"message": "two"}),
            ("change", {"message": "three"}),
        ]
