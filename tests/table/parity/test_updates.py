"""The suite's cases of updates that no other test of tables has: the newest first, and logs with filters."""

from typing import Any

import pytest

from holdfast import InvalidArgument
from holdfast.table import Addition, OrderedKeys
from holdfast.table.live.watch_scope import NEWEST_FIRST
from tests.table.following import heard
from tests.table.parity.asking import Open, added, places
from tests.table.parity.models import Log, Sample, Severity, Simple, logs, sample

L: Any = Log
S: Any = Sample


@pytest.fixture
def table(open_table: Open) -> Any:
    return open_table(Sample)


@pytest.fixture
def keys(table: Any) -> list[bytes]:
    """Of five samples, in their order."""
    return added(table, [sample(number, value=value) for number, value in enumerate((0, -10, 2, -5, 4))])


def test_updates_of_keys_are_their_order_and_their_values(open_table: Open) -> None:
    table = open_table(Simple)
    first, second = (table.get(key) for key in added(table, [Simple(value="haha1"), Simple(value="haha2")]))
    assert table.updates([first.key, second.key]) == [
        OrderedKeys((first.key, second.key), second.version),
        Addition(first, 0),
        Addition(second, 1),
    ]


def test_both_bounds_of_updates_are_included(table: Any, keys: list[bytes]) -> None:
    version = table.change(keys[1], {"value": 1}).version
    assert [one.key for one in table.updates(from_version=version)[1:]] == [keys[1]]
    if table.settings.keep_all_versions:
        assert [one.key for one in table.updates(from_version=version, to_version=version)[1:]] == [keys[1]]
        assert table.updates(from_version=version, to_version=version - 1)[1:] == []


def test_changed_records_come_first_where_a_list_of_updates_is_kept(table: Any, keys: list[bytes]) -> None:
    table.change(keys[1], {"value": 1})
    table.change(keys[3], {"value": 3})
    if not table.settings.update_history:
        with pytest.raises(InvalidArgument, match="update_history=True"):
            table.updates(order=NEWEST_FIRST)
        return
    assert [keys.index(key) for key in table.updates(order=NEWEST_FIRST, limit=3)[0].keys] == [3, 1, 4]


def test_from_a_version_on_updates_keep_the_order_of_the_scan(table: Any, keys: list[bytes]) -> None:
    version = table.last_version
    table.change(keys[3], {"value": 3})
    order, change = table.updates(from_version=version + 1)
    assert list(order.keys) == keys
    assert (change.key, change.index) == (keys[3], 3)


def test_an_order_a_start_and_a_limit_are_those_of_a_scan_along_an_index(table: Any, keys: list[bytes]) -> None:
    updates = table.updates(order=["value"], start=keys[1], include_start=False, limit=2)
    assert [keys.index(key) for key in updates[0].keys] == [3, 0]


def test_a_listener_of_the_newest_begins_with_their_order_alone(table: Any, keys: list[bytes]) -> None:
    if not table.settings.update_history:
        with pytest.raises(InvalidArgument, match="update_history=True"):
            table.watch(order=NEWEST_FIRST)
        return
    watcher = table.watch(order=NEWEST_FIRST, limit=5, from_version=table.last_version + 1)
    table.change(keys[1], {"string": "haha1"})
    assert heard(watcher) == [("ordered", list(reversed(keys))), ("change", keys[1], 3, 0)]


def test_a_start_keeps_the_order_of_keys_and_is_refused_for_the_newest(table: Any, keys: list[bytes]) -> None:
    if table.settings.update_history:
        with pytest.raises(InvalidArgument, match="start"):
            table.watch(order=NEWEST_FIRST, start=keys[2])
    watcher = table.watch(start=keys[2])
    table.change(keys[0], {"string": "haha0"})
    table.change(keys[3], {"string": "haha3"})
    assert heard(watcher) == [("initial", keys[2:]), ("change", keys[3], 1, 1)]
    behind = table.watch(start=keys[2], include_start=False)
    table.change(keys[2], {"string": "haha2"})
    assert heard(behind) == [("initial", keys[3:])]


def test_a_mutable_filter_on_the_newest_is_left(table: Any, keys: list[bytes]) -> None:
    if not table.settings.update_history:
        with pytest.raises(InvalidArgument, match="update_history=True"):
            table.watch(~(S.string == "haha1"), order=NEWEST_FIRST)
        return
    watcher = table.watch(~(S.string == "haha1"), order=NEWEST_FIRST, include_initial=False)
    table.change(keys[0], {"string": "haha1"})
    assert heard(watcher) == [("not-in-range", keys[0])]


def test_from_the_first_version_on_each_record_is_an_addition_with_its_place(table: Any, keys: list[bytes]) -> None:
    watcher = table.watch(start=keys[1], from_version=0)
    assert heard(watcher) == [
        ("ordered", keys[1:]),
        *(("addition", key, index) for index, key in enumerate(keys[1:])),
    ]


def test_a_filter_on_a_final_field_and_a_start_let_only_some_logs_through(open_table: Open) -> None:
    table = open_table(Log)
    severities = (Severity.DEBUG, Severity.INFO, Severity.ERROR, Severity.DEBUG)
    keys = added(
        table, [Log(message=log.message, severity=s, at=log.at) for log, s in zip(logs(), severities, strict=True)]
    )
    where = L.severity.isin([Severity.DEBUG, Severity.ERROR])
    watcher = table.watch(
        where, start=keys[2], order=["$key"], from_version=table.last_version + 1, allow_table_scan=True
    )
    for key in (keys[0], keys[2], keys[3]):
        table.change(key, {"message": "changed"})
    table.delete(keys[1])
    table.delete(keys[2])
    assert heard(watcher) == [
        ("ordered", [keys[2], keys[0]]),
        ("change", keys[0], 1, 1),
        ("change", keys[2], 0, 0),
        ("soft-delete", keys[2]),
    ]


def test_a_log_leaves_a_mutable_filter(open_table: Open) -> None:
    table = open_table(Log)
    keys = added(table, logs())
    watcher = table.watch(~(L.message == "hidden"), allow_table_scan=True)
    table.change(keys[2], {"message": "changed"})
    table.change(keys[2], {"message": "hidden"})
    watched = heard(watcher)
    assert places(keys, table.scan()) == [3, 2, 1, 0]
    assert watched[1:] == [("change", keys[2], 1, 1), ("not-in-range", keys[2])]
