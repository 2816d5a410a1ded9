"""Does a client get what it needs to be up to date?"""

from typing import Any

import pytest
from hypothesis import given, settings

import holdfast
from holdfast import Store
from holdfast.base.errors import InvalidArgument
from holdfast.table import Add, Change
from holdfast.table.live.sync_updates import Addition, Alteration, OrderedKeys, Removal
from holdfast.table.live.watch_scope import NEWEST_FIRST
from holdfast.table.model.differences import differences
from holdfast.table.query.planner import TableScanRefused
from holdfast.testing import SimClock, SimFiles
from tests.table.following import MODES, OPERATIONS, Item, Items, carry_out, filled, table_of
from tests.tiers import examples

FIELDS: Any = Item


@pytest.fixture(params=MODES, ids=["present", "history", "updates"])
def table(request: pytest.FixtureRequest, store: Store) -> Items:
    return table_of(store, Item, **request.param)


@pytest.fixture
def listed(store: Store) -> Items:
    """A table that keeps a list of its updates."""
    return table_of(store, Item, keep_all_versions=True, update_history=True)


def ordered(updates: list[Any]) -> list[bytes]:
    first = updates[0]
    assert isinstance(first, OrderedKeys)
    return list(first.keys)


def test_a_new_client_gets_the_order_and_every_record(table: Items) -> None:
    keys = filled(table)
    records = table.get_many([keys[2], keys[0]])
    highest = max(record.version for record in records)
    # The order is that of the keys asked for; additions come in the order of their versions.
    assert table.updates([keys[2], keys[0]]) == [
        OrderedKeys((keys[2], keys[0]), highest),
        Addition(records[1], 1),
        Addition(records[0], 0),
    ]


def test_a_scan_gives_its_order_and_additions_by_version(table: Items) -> None:
    keys = filled(table)
    table.change(keys[1], {"text": "haha1"})
    updates = table.updates(start=keys[1])
    assert ordered(updates) == keys[1:]
    assert [(one.key, one.index) for one in updates[1:]] == [(keys[2], 1), (keys[3], 2), (keys[4], 3), (keys[1], 0)]


def test_an_order_a_start_and_a_limit_are_those_of_a_scan(table: Items) -> None:
    keys = filled(table)
    updates = table.updates(order=["value"], start=keys[1], include_start=False, limit=2)
    assert ordered(updates) == [keys[3], keys[0]]
    assert ordered(table.updates(order=["-value"], limit=2)) == [keys[4], keys[2]]
    with pytest.raises(TableScanRefused):
        table.updates(where=FIELDS.text == "haha")


def test_from_a_version_on_only_what_is_new_comes(table: Items) -> None:
    keys = filled(table, (1, 2, 3))
    seen = table.updates()[0].version
    assert table.updates(from_version=seen + 1)[1:] == []
    change = table.change(keys[1], {"value": 7, "text": "haha7"})
    new = table.add(Item(number=9, value=9))
    updates = table.updates(from_version=seen + 1)
    assert ordered(updates) == [*keys, new.key]
    assert updates[0].version == new.version
    assert updates[1:] == [
        Alteration(table.get(keys[1]), {"value": 7, "text": "haha7"}, 1, 1),
        Addition(table.get(new.key), 3),
    ]
    assert [one.key for one in table.updates(from_version=change.version)[1:]] == [keys[1], new.key]


def test_several_changes_of_a_record_are_told_as_one(table: Items) -> None:
    keys = filled(table, (1,))
    seen = table.updates()[0].version
    table.change(keys[0], {"value": 7})
    table.change(keys[0], {"value": 8, "text": "haha8"})
    assert table.updates(from_version=seen + 1)[1:] == [
        Alteration(table.get(keys[0]), {"value": 8, "text": "haha8"}, 0, 0)
    ]


def test_only_selected_changes_come(table: Items) -> None:
    keys = filled(table, (1, 2))
    seen = table.updates()[0].version
    table.change(keys[0], {"value": 7, "text": "haha7"})
    table.change(keys[1], {"text": "haha8"})
    (change,) = table.updates(from_version=seen + 1, select=["value"])[1:]
    assert (change.key, change.changes) == (keys[0], {"value": 7})


def test_what_a_client_has_and_should_not_have_is_removed_and_what_it_lacks_is_added(table: Items) -> None:
    keys = filled(table)
    seen = table.updates()[0].version
    known = [keys[0], keys[1], keys[2], keys[4]]
    updates = table.updates(ordered_keys=known, from_version=seen + 1, start=keys[1])
    assert updates == [
        OrderedKeys(tuple(keys[1:]), seen),
        Removal(keys[0], "not-in-range", table.get(keys[0]).version),
        Addition(table.get(keys[3]), 2),
    ]


def test_a_removal_says_why(table: Items) -> None:
    keys = filled(table, (1, 2, 3, 4))
    seen = table.updates()[0].version
    soft = table.delete(keys[0]).version
    hard = table.delete(keys[1], hard=True).version
    out = table.change(keys[2], {"value": -1}).version
    updates = table.updates(where=FIELDS.value > 0, ordered_keys=keys, from_version=seen + 1)
    assert updates[1:] == [
        Removal(keys[0], "soft-delete", soft),
        Removal(keys[1], "hard-delete", hard),
        Removal(keys[2], "not-in-range", out),
    ]


def test_who_asks_for_keys_hears_of_those_that_went_since(table: Items) -> None:
    keys = filled(table, (1, 2, 3))
    before = table.delete(keys[0]).version
    after = table.delete(keys[1], hard=True).version
    assert table.updates(keys, from_version=before + 1)[1:] == [Removal(keys[1], "hard-delete", after)]
    assert [one.key for one in table.updates(keys, from_version=before)[1:]] == keys[:2]
    assert [one.key for one in table.updates(keys)[1:]] == [keys[2]]


def test_one_that_came_back_is_an_addition(table: Items) -> None:
    keys = filled(table, (1, 2))
    gone = table.delete(keys[0]).version
    table.undelete(keys[0])
    assert table.updates(from_version=gone + 1)[1:] == [Addition(table.get(keys[0]), 0)]


def test_updates_up_to_a_version_show_the_records_as_they_were(store: Store) -> None:
    table = table_of(store, Item, keep_all_versions=True)
    keys = filled(table, (1, 2))
    seen = table.updates()[0].version
    change = table.change(keys[0], {"value": 5}).version
    table.change(keys[0], {"value": 6})
    table.change(keys[1], {"value": 7})
    (only,) = table.updates(from_version=seen + 1, to_version=change)[1:]
    assert (only.key, only.changes, only.version) == (keys[0], {"value": 5}, change)
    assert ordered(table.updates(to_version=1)) == []


def test_the_newest_come_first_if_that_is_asked_for(listed: Items) -> None:
    keys = filled(listed)
    listed.change(keys[1], {"text": "haha1"})
    listed.change(keys[3], {"text": "haha3"})
    listed.delete(keys[4], hard=True)
    listed.delete(keys[2])
    updates = listed.updates(order=NEWEST_FIRST, limit=3)
    assert ordered(updates) == [keys[3], keys[1], keys[0]]
    assert [(one.key, one.index) for one in updates[1:]] == [(keys[0], 2), (keys[1], 1), (keys[3], 0)]


def test_the_newest_are_known_only_with_a_list_of_updates(store: Store) -> None:
    table = table_of(store, Item, keep_all_versions=True)
    with pytest.raises(InvalidArgument, match="update_history=True"):
        table.updates(order=NEWEST_FIRST)
    with pytest.raises(InvalidArgument, match="update_history=True"):
        table.update_history()


def test_the_list_of_updates_has_the_newest_first_and_each_record_as_it_was(listed: Items) -> None:
    keys = filled(listed, (1, 2))
    listed.change(keys[0], {"value": 5})
    listed.change(keys[1], {"value": 6})
    listed.change(keys[0], {"value": 7})
    updates = listed.update_history(3)
    assert [(one.key, one.changes, one.record.value.value) for one in updates] == [
        (keys[0], {"value": 7}, 7),
        (keys[1], {"value": 6}, 6),
        (keys[0], {"value": 5}, 5),
    ]
    assert [type(one) for one in listed.update_history()][3:] == [Addition, Addition]
    versions = [one.version for one in listed.update_history()]
    assert versions == sorted(versions, reverse=True)


def test_a_record_that_a_request_added_and_changed_is_an_addition(listed: Items) -> None:
    key = listed.layout.key_of(Item(number=1, value=1))
    listed.write([Add(Item(number=1, value=1)), Change(key, {"value": 2})])
    assert listed.update_history() == [Addition(listed.get(key))]


def test_a_no_op_is_no_update(listed: Items) -> None:
    (key,) = filled(listed, (1,))
    listed.change(key, {"value": 1})
    assert len(listed.update_history()) == 1


def test_hiding_is_listed_only_for_those_who_ask(listed: Items) -> None:
    (key,) = filled(listed, (1,))
    version = listed.delete(key).version
    assert [type(one) for one in listed.update_history()] == [Addition]
    hidden, _ = listed.update_history(include_deleted=True)
    assert isinstance(hidden, Alteration)
    assert (hidden.record.deleted, hidden.changes, hidden.version) == (True, {}, version)


def test_a_deletion_for_good_is_all_that_is_listed_of_its_record(listed: Items) -> None:
    first, second = filled(listed, (1, 2))
    listed.change(first, {"value": 3})
    version = listed.delete(first, hard=True).version
    assert listed.update_history() == [Removal(first, "hard-delete", version), Addition(listed.get(second))]


def test_the_list_of_updates_comes_in_pages(listed: Items) -> None:
    listed.add_many([Item(number=number, value=0) for number in range(5)])
    filled_later = listed.add(Item(number=9, value=0))
    everything = listed.update_history(None)
    pages = [listed.update_history(2)]
    while pages[-1]:
        pages.append(listed.update_history(2, before=pages[-1][-1]))
    assert [one for page in pages for one in page] == everything
    assert listed.update_history(before=filled_later.version) == everything[1:]
    assert listed.update_history(from_version=filled_later.version) == everything[:1]
    assert listed.update_history(0) == []


def test_the_list_of_updates_can_be_filtered(listed: Items) -> None:
    keys = filled(listed, (1, 20))
    listed.change(keys[0], {"value": 30, "text": "haha3"})
    assert [one.key for one in listed.update_history(where=FIELDS.value > 10)] == [keys[0], keys[1]]
    assert listed.update_history(1, select=["text"])[0].changes == {"text": "haha3"}


SYNCED: list[dict[str, Any]] = [
    {},
    {"order": ["value"], "limit": 3},
    {"where": FIELDS.value > 1, "order": ["-value"]},
    {"order": ["each(tags)"], "limit": 2},
]


@pytest.mark.parametrize("mode", MODES[:2], ids=["present", "history"])
@pytest.mark.parametrize("synced", SYNCED, ids=str)
@settings(max_examples=examples(50))
@given(operations=OPERATIONS)
def test_a_client_that_asks_now_and_then_is_up_to_date_each_time(
    mode: dict[str, bool], synced: dict[str, Any], operations: Any
) -> None:
    store = holdfast.open("data", files=SimFiles(), clock=SimClock(), background=False)
    table = table_of(store, Item, **mode)
    known: dict[bytes, Item] = {}
    order: list[bytes] | None = None
    version = None
    for operation in [*operations, ("listen", 0, 0, "haha0", None)]:
        carry_out(table, *operation)
        if operation[0] != "listen":
            continue
        first, *updates = table.updates(ordered_keys=order, from_version=version, **synced)
        for update in updates:
            match update:
                case Removal(key):
                    del known[key]
                case Addition(record):
                    known[record.key] = record.value
                case Alteration(record, changes):
                    assert differences(Item.__spec__, known[record.key], record.value).keys() <= changes.keys()
                    known[record.key] = record.value
        order = list(first.keys)
        version = max(version or 0, first.version + 1)
        expected = list(table.scan(**synced))
        assert order == [record.key for record in expected]
        assert known == {record.key: record.value for record in expected}
