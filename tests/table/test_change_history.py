"""Does a table tell what happened to its records?"""

from typing import Any

import pytest

from holdfast import Store
from holdfast.base.errors import InvalidArgument
from holdfast.base.hlc import time_of
from holdfast.table.operations import Change, SetEdit
from holdfast.table.query.change_history import RecordChanges, VersionChanges
from tests.table.following import MODES, Address, Item, Items, filled, table_of

FIELDS: Any = Item


@pytest.fixture(params=MODES, ids=["present", "history", "updates"])
def table(request: pytest.FixtureRequest, store: Store) -> Items:
    return table_of(store, Item, **request.param)


@pytest.fixture
def past(store: Store) -> Items:
    return table_of(store, Item, keep_all_versions=True)


def told(changes: list[RecordChanges]) -> list[list[tuple[str, dict[str, Any]]]]:
    return [[(one.kind, one.values) for one in record.versions] for record in changes]


def test_a_creation_tells_all_values_and_a_change_only_its_own(table: Items) -> None:
    first, second = filled(table, (1, 2))
    changed = table.change(second, {"text": "haha3"})
    assert table.changes([first, second]) == [
        RecordChanges(
            first,
            table.get(first).created,
            [VersionChanges(table.get(first).version, "add", {"number": 0, "value": 1, "text": "haha"})],
        ),
        RecordChanges(
            second,
            table.get(second).created,
            [
                VersionChanges(table.get(second).created, "add", {"number": 1, "value": 2}),
                VersionChanges(changed.version, "change", {"text": "haha3"}),
            ],
        ),
    ]


def test_changes_come_in_the_order_of_the_keys_asked_for_or_of_the_scan(table: Items) -> None:
    keys = filled(table)
    assert [one.key for one in table.changes([keys[3], keys[1]])] == [keys[3], keys[1]]
    assert [one.key for one in table.changes()] == keys
    assert [one.key for one in table.changes(order=["$key"], start=keys[2])] == keys[2:]
    assert [one.key for one in table.changes(order=["-$key"], start=keys[2])] == [keys[2], keys[1], keys[0]]
    assert [one.key for one in table.changes(order=["value"], limit=2)] == [keys[1], keys[3]]
    assert [one.key for one in table.changes(order=["-value"], start=keys[0], include_start=False)] == [
        keys[3],
        keys[1],
    ]
    assert [one.key for one in table.changes(where=FIELDS.value > 0)] == [keys[2], keys[4]]
    assert table.changes(limit=0) == []


def test_both_bounds_are_included(table: Items) -> None:
    keys = filled(table, (1, 2))
    change = table.change(keys[1], {"value": 7})
    assert told(table.changes(keys, from_version=change.version)) == [[("change", {"value": 7})]]
    assert told(table.changes(from_version=change.version)) == [[("change", {"value": 7})]]
    assert table.changes(from_version=change.version + 1) == []


def test_an_upper_bound_shows_the_past_and_nothing_before_the_first_version(past: Items) -> None:
    keys = filled(past, (1, 2))
    first = past.get(keys[0]).version
    change = past.change(keys[1], {"value": 7})
    past.change(keys[1], {"value": 8})
    assert past.changes(to_version=first - 1) == []
    assert past.changes(keys, to_version=first - 1) == []
    assert [one.key for one in past.changes(to_version=first)] == [keys[0]]
    exactly = past.changes(from_version=change.version, to_version=change.version)
    assert told(exactly) == [[("change", {"value": 7})]]


def test_points_in_time_mean_their_whole_millisecond(past: Items, clock: Any) -> None:
    (key,) = filled(past, (1,))
    clock.sleep(1)
    middle = past.change(key, {"value": 2})
    clock.sleep(1)
    past.change(key, {"value": 3})
    when = time_of(middle.version)
    assert told(past.changes(from_version=when, to_version=when, max_versions=9)) == [[("change", {"value": 2})]]


def test_the_newest_versions_of_each_value_are_told_and_always_the_creation(past: Items) -> None:
    (key,) = filled(past, (0,))
    for value in (1, 2, 3):
        past.change(key, {"value": value})
    rest = {"number": 0, "text": "haha"}
    assert told(past.changes(max_versions=1)) == [[("add", rest), ("change", {"value": 3})]]
    assert told(past.changes(max_versions=2)) == [[("add", rest), ("change", {"value": 2}), ("change", {"value": 3})]]
    (everything,) = told(past.changes(max_versions=9))
    assert [values.get("value") for _, values in everything] == [0, 1, 2, 3]


def test_without_history_the_past_is_refused_with_what_to_do(store: Store) -> None:
    table = table_of(store, Item)
    filled(table)
    for asked in ({"max_versions": 2}, {"to_version": 5}):
        with pytest.raises(InvalidArgument, match="keep_all_versions=True"):
            table.changes(**asked)


@pytest.mark.parametrize("count", [0, -1, True, "2"])
def test_a_number_of_versions_that_cannot_be_is_refused(past: Items, count: Any) -> None:
    with pytest.raises(InvalidArgument, match="max_versions"):
        past.changes(max_versions=count)


def test_only_selected_values_are_told(table: Items) -> None:
    (key,) = filled(table, (1,))
    table.change(key, {"text": "haha2"})
    table.change(key, {"address": Address(city="Delft")})
    assert told(table.changes(select=["value", "text"])) == [[("add", {"value": 1}), ("change", {"text": "haha2"})]]
    assert told(table.changes(select=["address"])) == [[("add", {}), ("change", {"address.city": "Delft"})]]
    assert told(table.changes(select=[FIELDS.address.city])) == [[("add", {}), ("change", {"address.city": "Delft"})]]


def test_nested_values_are_told_by_their_paths_and_lists_and_sets_whole(past: Items) -> None:
    key = past.add(
        Item(
            number=1,
            value=1,
            tags={"a"},
            names=["x", "y"],
            limits={"EUR": 1, "USD": 2},
            address=Address(city="Delft"),
            homes={1: Address(city="Gent")},
        )
    ).key
    past.change(key, {FIELDS.limits["EUR"]: 5, FIELDS.limits["USD"]: None})
    past.change(key, {"address.street": "Markt", "tags": SetEdit(add=["b"]), FIELDS.names[0]: "z"})
    past.change(key, {FIELDS.homes[1]: None, FIELDS.homes[2]: Address(city="Brugge")})
    past.change(key, {"address": None, "limits": {}})
    ((_, *changes),) = told(past.changes(max_versions=9))
    assert [values for _, values in changes] == [
        {"limits['EUR']": 5, "limits['USD']": None},
        {"address.street": "Markt", "tags": {"a", "b"}, "names": ["z", "y"]},
        {"homes[1]": None, "homes[2].city": "Brugge"},
        {"address": None, "limits": {}},
    ]


def test_what_lay_in_a_removed_value_is_not_told_as_its_newest(past: Items) -> None:
    key = past.add(Item(number=1, value=1, address=Address(city="Delft"))).key
    past.change(key, {"address.city": "Gent"})
    past.change(key, {"address": None})
    (versions,) = told(past.changes(select=["address"]))
    assert versions == [("add", {}), ("change", {"address": None})]


def test_a_deleted_record_is_told_of_only_to_those_who_ask(table: Items) -> None:
    (key,) = filled(table, (1,))
    table.delete(key)
    assert table.changes([key]) == []
    (versions,) = told(table.changes([key], include_deleted=True))
    assert [kind for kind, _ in versions] == ["add", "delete"]
    assert versions[1] == ("delete", {})
    table.undelete(key)
    (versions,) = told(table.changes())
    assert [kind for kind, _ in versions][-1] == "undelete"


def test_the_last_of_several_deletions_counts(past: Items) -> None:
    (key,) = filled(past, (1,))
    for _ in range(2):
        past.delete(key)
        past.undelete(key)
    assert [one.kind for one in past.changes()[0].versions] == ["add", "undelete"]
    assert [one.kind for one in past.changes(max_versions=9)[0].versions][1:] == ["delete", "undelete"] * 2


def test_a_change_that_hides_tells_both(table: Items) -> None:
    (key,) = filled(table, (1,))
    table.write([Change(key, {"value": 5}, delete=True)])
    (versions,) = told(table.changes(include_deleted=True))
    assert versions[1] == ("delete", {"value": 5})


def test_a_record_deleted_for_good_has_no_past(table: Items) -> None:
    (key,) = filled(table, (1,))
    table.delete(key, hard=True)
    assert table.changes([key], include_deleted=True) == []
    table.add(Item(number=0, value=9))
    (versions,) = told(table.changes())
    assert versions == [("add", {"number": 0, "value": 9, "text": "haha"})]


def test_softly_deleted_records_are_seen_as_they_were_at_each_version(past: Items) -> None:
    (key,) = filled(past, (1,))
    added, deleted = past.get(key).version, past.delete(key).version
    assert list(past.scan()) == []
    assert [record.deleted for record in past.scan(include_deleted=True)] == [True]
    assert [record.deleted for record in past.scan(as_of=added)] == [False]
    assert list(past.scan(as_of=deleted)) == []
    assert [record.deleted for record in past.scan(as_of=deleted, include_deleted=True)] == [True]
    assert [one.kind for one in past.changes(to_version=added)[0].versions] == ["add"]
    assert past.changes(to_version=deleted) == []


def test_changes_are_the_same_after_the_state_was_built_anew(past: Items) -> None:
    keys = filled(past)
    past.change(keys[2], {"value": 9})
    past.delete(keys[1])
    before = past.changes(max_versions=9, include_deleted=True)
    past.rebuild()
    assert past.changes(max_versions=9, include_deleted=True) == before


def test_a_limit_is_a_number_from_0_on(table: Items) -> None:
    for limit in (-1, True, "1"):
        for attempt in (table.changes, table.updates, table.scan):
            with pytest.raises(InvalidArgument, match="limit must be"):
                attempt(limit=limit)
