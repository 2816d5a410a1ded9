"""What a table promises, one sentence after the other: requests, versions, the past, restarts and readers."""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Closed, Flush, HoldfastError, InvalidArgument, MessageTooLarge, ReadOnly, Store
from holdfast.base.hlc import time_of
from holdfast.state import Transaction
from holdfast.table import (
    Add,
    AlreadyExists,
    Change,
    Delete,
    DictEdit,
    Done,
    ListEdit,
    Model,
    NoRecord,
    SetEdit,
    Table,
    Undelete,
    ValidationFailed,
    field,
)
from holdfast.table.storage.row_codec import EventKind, decode_event
from holdfast.testing import SimClock, SimFiles
from tests.table.agreement import described
from tests.table.internals import RANGE_DELETE, position_of
from tests.table.things import KEYS, Slot, Thing

A, B, C = KEYS[:3]
Reopen = Callable[..., Store]


@pytest.fixture
def things(store: Store) -> Table[Thing]:
    return store.table(Thing, keep_all_versions=True)


def rules(error: HoldfastError) -> list[tuple[str, str]]:
    assert isinstance(error, ValidationFailed)
    return [(one.path, one.rule) for one in error.violations]


def names(table: Table[Any], **options: Any) -> list[str]:
    return [record.name for record in table.scan(**options)]


# Adding


def test_a_record_that_was_added_is_there_with_the_version_that_added_it(things: Table[Thing]) -> None:
    done = things.add(Thing(name="Ada", tags={"a"}))
    found = things.get(done.key)
    assert found is not None
    assert (found.value, found.version, found.created) == (Thing(name="Ada", tags={"a"}), done.version, done.version)
    assert found.name == "Ada" and found.changed_at == time_of(done.version)


def test_a_record_may_be_given_as_a_dict(things: Table[Thing]) -> None:
    found = things.get(things.add({"name": "Ada"}).key)
    assert found is not None and found.value == Thing(name="Ada")


def test_what_the_caller_does_to_an_object_afterwards_does_not_change_the_record(things: Table[Thing]) -> None:
    mine = Thing(name="Ada", tags={"a"})
    key = things.add(mine).key
    mine.tags.add("b")
    found = things.get(key)
    assert found is not None and found.tags == {"a"}
    found.value.tags.add("c")
    assert things.get(key) != found


def test_a_key_is_given_once(things: Table[Thing]) -> None:
    things.add({"name": "Ada"}, key=A)
    with pytest.raises(AlreadyExists) as error:
        things.add({"name": "Bob"}, key=A)
    assert error.value.key == A
    assert names(things) == ["Ada"]


def test_a_softly_deleted_record_keeps_its_key(things: Table[Thing]) -> None:
    things.add({}, key=A)
    things.delete(A)
    with pytest.raises(AlreadyExists):
        things.add({}, key=A)


def test_all_that_is_wrong_with_a_record_is_told_at_once_and_nothing_is_written(things: Table[Thing]) -> None:
    with pytest.raises(ValidationFailed) as error:
        things.add({"rank": 9, "steps": [1, "2"]})
    assert sorted(rules(error.value)) == [("rank", "max"), ("steps[1]", "type")]
    assert things.log.end == 0


@pytest.mark.parametrize("key", ["text", 5, [1], b"short"])
def test_a_key_is_sixteen_bytes(things: Table[Thing], key: Any) -> None:
    with pytest.raises(InvalidArgument):
        things.add({}, key=key)


@pytest.mark.parametrize("key", ["text", None, 5, [1]])
def test_other_keys_than_bytes_are_refused_by_every_call(things: Table[Thing], key: Any) -> None:
    for call in (things.get, things.delete, things.undelete):
        with pytest.raises(InvalidArgument, match="bytes"):
            call(key)
    with pytest.raises(InvalidArgument, match="bytes"):
        things.get(key, as_of=1)
    with pytest.raises(InvalidArgument, match="bytes"):
        things.change(key, {"name": "Ada"})


# Changing


def test_a_change_has_a_new_version_and_leaves_the_other_fields(things: Table[Thing]) -> None:
    added = things.add({"name": "Ada", "rank": 1}, key=A)
    changed = things.change(A, {"rank": 2})
    found = things.get(A)
    assert found is not None
    assert (found.name, found.rank, found.version, found.created) == ("Ada", 2, changed.version, added.version)
    assert changed.version > added.version


def test_lists_sets_and_dicts_are_edited_in_place(things: Table[Thing]) -> None:
    things.add({"steps": [1, 2, 1], "tags": {"a", "b"}, "limits": {"x": 1, "y": 2}}, key=A)
    things.change(
        A,
        {
            "steps": ListEdit(remove=[1], insert={0: 0}, append=[2]),
            Thing.tags: SetEdit(add=[""], remove=["a"]),
            "limits": DictEdit(put={"z": 3}, remove=["x"]),
            Thing.limits["y"]: 5,
        },
    )
    found = things.get(A)
    assert found is not None
    assert (found.steps, found.tags, found.limits) == ([0, 2, 2], {"", "b"}, {"y": 5, "z": 3})


def test_a_change_leaves_what_the_caller_gave_as_it_was(things: Table[Thing]) -> None:
    things.add({}, key=A)
    steps, limits = [1, 2], {"x": 1}
    things.change(A, {"steps": steps, Thing.steps[0]: None, "limits": limits, Thing.limits["y"]: 2})
    found = things.get(A)
    assert found is not None and (found.steps, found.limits) == ([2], {"x": 1, "y": 2})
    assert (steps, limits) == ([1, 2], {"x": 1})


def test_what_is_there_already_changes_nothing_and_has_no_version(things: Table[Thing]) -> None:
    added = things.add({"name": "Ada", "tags": {"a"}}, key=A)
    done = things.change(A, {"name": "Ada", "tags": SetEdit(add=["a"])})
    assert (done.version, done.changed) == (added.version, False)
    assert (things.log.end, things.last_version) == (1, added.version)


def test_a_change_may_ask_for_the_version_and_for_values(things: Table[Thing]) -> None:
    added = things.add({"name": "Ada"}, key=A)
    things.change(A, {"rank": 1}, if_version=added.version, check={"name": "Ada"})
    with pytest.raises(ValidationFailed) as error:
        things.change(A, {"rank": 9}, if_version=added.version, check={"name": "Bob"})
    assert rules(error.value) == [("", "version"), ("name", "check"), ("rank", "max")]
    found = things.get(A)
    assert found is not None and found.rank == 1


def test_what_is_not_there_cannot_be_changed_deleted_or_brought_back(things: Table[Thing]) -> None:
    for call in (things.delete, things.undelete, lambda key: things.change(key, {"rank": 1})):
        with pytest.raises(NoRecord):
            call(A)


# Unique values


def test_a_unique_value_names_its_owner(things: Table[Thing]) -> None:
    things.add({"email": "a", "code": 1}, key=A)
    with pytest.raises(ValidationFailed) as error:
        things.add({"email": "a", "code": 1}, key=B)
    assert rules(error.value) == [("email", "unique"), ("code", "unique")]
    assert {one.owner for one in error.value.violations} == {A}


def test_a_record_may_keep_its_own_unique_value(things: Table[Thing]) -> None:
    things.add({"email": "a"}, key=A)
    things.change(A, {"email": "a", "rank": 1})
    things.change(A, {"email": "b"})
    things.add({"email": "a"}, key=B)


@pytest.mark.parametrize("hidden", [False, True])
def test_a_change_beside_unique_and_indexed_fields_leaves_their_entries(things: Table[Thing], hidden: bool) -> None:
    things.add({"email": "a", "name": "Ada", "tags": {"x"}}, key=A)
    if hidden:
        things.delete(A)
    before = described(things)
    things.change(A, {"plain": 1})
    after = described(things)
    assert after["table"] != before["table"]
    for family in ("index", "unique", "historic_index", "historic_unique"):
        assert after[family] == before[family]
    assert things.rebuild() == things.log.end
    assert described(things) == after
    refused = things.write([Add({"email": "a"}, B)])[0]
    assert isinstance(refused, ValidationFailed) is not hidden


def test_what_a_refused_change_did_inside_of_a_field_is_not_seen_by_the_next(things: Table[Thing]) -> None:
    things.add({"limits": {"x": 1}, "steps": [1]}, key=A)
    limits: Any = Thing.limits
    steps: Any = Thing.steps
    refused, done = things.write(
        [Change(A, {limits["x"]: 2, steps[0]: None, "rank": 4}), Change(A, {"plain": 1})],
    )
    assert isinstance(refused, ValidationFailed) and isinstance(done, Done)
    found = things.get(A)
    assert found is not None and (found.limits, found.steps, found.plain) == ({"x": 1}, [1], 1)


def test_a_deleted_record_gives_its_unique_values_free_and_may_not_get_them_back(things: Table[Thing]) -> None:
    things.add({"email": "a"}, key=A)
    things.delete(A)
    things.add({"email": "a"}, key=B)
    with pytest.raises(ValidationFailed) as error:
        things.undelete(A)
    assert rules(error.value) == [("email", "unique")]
    things.change(B, {"email": None})
    assert things.undelete(A).changed
    assert [record.key for record in things.scan(Thing.email == "a")] == [A]


def test_a_hidden_record_that_is_forgotten_does_not_free_what_another_owns(things: Table[Thing]) -> None:
    things.add({"email": "a"}, key=A)
    things.add({"email": "b"}, key=B)
    things.delete(B)
    outcomes = things.write([Change(B, {"email": "a"}), Delete(B, hard=True), Add({"email": "a"}, C)])
    assert isinstance(outcomes[2], ValidationFailed)
    assert [record.key for record in things.scan(Thing.email == "a")] == [A]


# Deleting


def test_a_deleted_record_is_hidden_from_all_who_do_not_ask_for_it(things: Table[Thing]) -> None:
    things.add({"name": "Ada", "email": "a"}, key=A)
    done = things.delete(A)
    assert things.get(A) is None and names(things) == [] and things.count(Thing.email == "a") == 0
    hidden = things.get(A, include_deleted=True)
    assert hidden is not None and hidden.deleted and hidden.version == done.version
    assert names(things, where=Thing.email == "a", include_deleted=True) == ["Ada"]
    with pytest.raises(NoRecord):
        things.delete(A)


def test_an_undeleted_record_is_as_it_was(things: Table[Thing]) -> None:
    things.add({"name": "Ada", "email": "a", "tags": {"a"}}, key=A)
    before = things.get(A)
    things.delete(A)
    things.undelete(A)
    found = things.get(A)
    assert found is not None and before is not None and found.value == before.value
    assert not things.undelete(A).changed


@pytest.mark.parametrize("updates", [False, True])
def test_a_hard_delete_leaves_nothing_but_that_it_was(store: Store, updates: bool) -> None:
    things = store.table(Thing, keep_all_versions=True, update_history=updates)
    things.add({"name": "Ada", "email": "a", "tags": {"a"}, "note": "ada"}, key=A)
    version = things.change(A, {"email": "b", "tags": {"b"}}).version
    things.delete(A)
    gone = things.delete(A, hard=True)
    assert things.get(A, as_of=version) is None and things.get(A, include_deleted=True) is None
    left = {family: content for family, content in described(things).items() if content}
    assert set(left) == ({"keys", "update_history"} if updates else {"keys"})
    assert list(left["keys"].values()) == [gone.version.to_bytes(8, "big")]
    assert all(value == b"\5" for value in left.get("update_history", {}).values())


def test_a_key_that_was_deleted_for_good_can_be_added_anew_without_its_past(things: Table[Thing]) -> None:
    old = things.add({"name": "Ada", "email": "a"}, key=A).version
    outcomes = things.write([Delete(A, hard=True), Add({"name": "Bob", "email": "a"}, A)])
    assert all(isinstance(one, Done) for one in outcomes)
    assert things.get(A, as_of=old) is None
    found = things.get(A)
    assert found is not None and (found.name, found.created) == ("Bob", things.last_version)


@pytest.mark.parametrize("updates", [False, True])
@pytest.mark.parametrize("many", [2, 1000], ids=["as ranges", "one by one"])
def test_a_long_past_is_deleted_as_ranges_and_a_short_one_version_by_version(
    store: Store, monkeypatch: pytest.MonkeyPatch, many: int, updates: bool
) -> None:
    monkeypatch.setattr(RANGE_DELETE, many)
    things = store.table(Thing, keep_all_versions=True, update_history=updates)
    for key in (A, B):
        things.add({"name": "Ada", "tags": {"a"}}, key=key)
        for number in range(8):
            things.change(key, {"rank": number % 2, "name": f"Ada {number % 3}"})
    kept = described(things)
    ranges = counted(monkeypatch, Transaction, "delete_range")
    things.write([Delete(B, hard=True), Add({"name": "Bob"}, B), Delete(B, hard=True)])
    assert bool(ranges) == (many == 2)
    left = described(things)
    for family in ("table", "index", "historic_table", "historic_index"):
        assert left[family] == {name: value for name, value in kept[family].items() if B not in name}
    things.rebuild()
    assert described(things) == left


def test_to_delete_many_in_one_request_compares_each_key_with_few_others(things: Table[Thing]) -> None:
    CountedKey.compared = 0
    keys = [CountedKey(things.add({"name": "Ada"}).key) for _ in range(300)]
    things.write([Change(key, {"rank": 1}) for key in keys] + [Delete(key, hard=True) for key in keys])
    assert things.count() == 0
    assert CountedKey.compared < 20 * len(keys)


class CountedKey(bytes):
    """A key that counts how often one is compared with another."""

    compared = 0
    __hash__ = bytes.__hash__

    def __eq__(self, other: object) -> bool:
        CountedKey.compared += 1
        return bytes.__eq__(self, other)


def counted(monkeypatch: pytest.MonkeyPatch, owner: type, name: str) -> list[tuple[Any, ...]]:
    """The arguments of each call of a method, from here on."""
    calls: list[tuple[Any, ...]] = []
    method = getattr(owner, name)

    def call(self: Any, *arguments: Any) -> Any:
        calls.append(arguments)
        return method(self, *arguments)

    monkeypatch.setattr(owner, name, call)
    return calls


# Requests


def test_a_request_does_what_may_be_done_and_tells_of_the_rest(things: Table[Thing]) -> None:
    things.add({"email": "a"}, key=A)
    outcomes = things.write([Add({"email": "a"}, B), Add({"email": "b"}, C), Change(B, {"rank": 1}), Delete(A)])
    assert [type(one) for one in outcomes] == [ValidationFailed, Done, NoRecord, Done]
    assert {one.version for one in outcomes if isinstance(one, Done)} == {things.last_version}
    assert [record.key for record in things.scan()] == [C]


def test_the_operations_of_a_request_see_each_other(things: Table[Thing]) -> None:
    outcomes = things.write(
        [
            Add({"email": "a"}, A),
            Change(A, {"email": "b"}),
            Add({"email": "a"}, B),
            Delete(A),
            Change(B, {"email": "b"}),
            Undelete(A),
        ]
    )
    assert [type(one) for one in outcomes] == [Done] * 5 + [ValidationFailed]
    assert [record.key for record in things.scan(Thing.email == "b")] == [B]
    assert [record.key for record in things.scan(Thing.email == "b", include_deleted=True)] == [A, B]


def test_a_record_has_one_event_of_a_request_whatever_that_does_to_it(things: Table[Thing], store: Store) -> None:
    things.add({"name": "Ada", "email": "a"}, key=A)
    with store.transaction() as transaction:
        things.change(A, {"name": "Bob"})
        things.change(A, {"email": "b", "rank": 1})
        things.delete(A)
        things.write([Add({"name": "New"}, B), Change(B, {"rank": 2}), Add({}, C), Delete(C)])
    events = {record.key: decode_event(record.payload) for record in things.log.read(1)}
    assert things.log.end == 4 and {event.version for event in events.values()} == {transaction.version}
    kinds = {key: (event.kind, event.deleted, event.fields) for key, event in events.items()}
    assert kinds == {
        A: (EventKind.CHANGE, True, (1, 3, 4)),
        B: (EventKind.ADD, False, ()),
        C: (EventKind.ADD, True, ()),
    }
    before = described(things)
    things.rebuild()
    assert described(things) == before


def test_a_request_may_take_back_what_it_did(things: Table[Thing]) -> None:
    things.add({"name": "Ada"}, key=A)
    outcomes = things.write([Delete(A), Undelete(A), Change(A, {"name": "Bob"}), Change(A, {"name": "Ada"})])
    found = things.get(A)
    assert found is not None and {found.version} == {one.version for one in outcomes if isinstance(one, Done)}
    assert [one.kind for one in things.changes([A], max_versions=9)[0].versions] == ["add"]


def test_what_a_caller_does_to_a_record_meanwhile_is_not_in_the_request(things: Table[Thing], store: Store) -> None:
    mine = Thing(name="Ada", email="a")
    with store.transaction():
        things.add(mine, key=A)
        things.add(Thing(name="Bob"), key=B)
        things.change(B, {"rank": 1})
        mine.name = mine.email = "mine"
    assert [record.key for record in things.scan(Thing.name == "Ada")] == [A]
    assert [record.key for record in things.scan(Thing.email == "a")] == [A]


def test_two_records_may_swap_a_unique_value_in_one_request(things: Table[Thing]) -> None:
    old = things.write([Add({"email": "a"}, A), Add({"email": "b"}, B)])[1].version  # type: ignore[union-attr]
    outcomes = things.write([Change(A, {"email": "c"}), Change(B, {"email": "a"}), Change(A, {"email": "b"})])
    assert all(isinstance(one, Done) for one in outcomes)

    def owners(**options: Any) -> list[bytes]:
        return [record.key for email in ("a", "b", "c") for record in things.scan(Thing.email == email, **options)]

    assert owners() == [B, A] and owners(as_of=old) == [A, B]
    before = described(things)
    things.rebuild()
    assert described(things) == before


def test_an_empty_request_does_nothing(things: Table[Thing]) -> None:
    assert things.write([]) == [] and things.add_many([]) == []
    assert things.log.end == 0


def test_what_is_no_operation_stops_the_whole_request(things: Table[Thing]) -> None:
    with pytest.raises(InvalidArgument):
        things.write([Add({}, A), "delete everything"])  # type: ignore[list-item]
    assert things.get(A) is None


class Node(Model, id=12):
    kids: "list[Node]" = field(1, default_factory=list)


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": ListEdit(append=5)},  # type: ignore[arg-type]
        {"steps": ListEdit(append="12")},
        {"steps": ListEdit(remove="12")},
        {"steps": ListEdit(insert={"x": 1})},  # type: ignore[dict-item]
        {"steps": ListEdit(insert=[1])},  # type: ignore[arg-type]
        {"tags": SetEdit(add="vip")},
        {"tags": SetEdit(add=[["x"]])},
        {"tags": SetEdit(remove=[["x"]])},
        {"tags": SetEdit(add={"x": 1})},  # type: ignore[arg-type]
        {"limits": DictEdit(put=[1])},  # type: ignore[arg-type]
        {"limits": DictEdit(remove="x")},
        {5: 5},
        "zzz",
    ],
    ids=str,
)
def test_a_change_that_cannot_be_understood_is_refused_alone(things: Table[Thing], wrong: Any) -> None:
    things.add({"steps": [1], "tags": {"a"}}, key=A)
    added, refused = things.write([Add({}, B), Change(A, wrong)])
    assert isinstance(added, Done) and isinstance(refused, InvalidArgument | ValidationFailed)
    found = things.get(A)
    assert found is not None and (found.steps, found.tags) == ([1], {"a"})


def test_a_record_that_is_too_large_is_refused_alone(store: Store) -> None:
    things = store.table(Thing, max_message=1000)
    things.add({"email": "a"}, key=A)
    large = {"note": "x" * 1000}
    outcomes = things.write([Add({}, B), Add(large, C), Change(A, {**large, "email": "b"}), Add({"email": "b"}, C)])
    assert [type(one) for one in outcomes] == [Done, MessageTooLarge, MessageTooLarge, Done]
    assert [record.email for record in things.scan()] == ["a", None, "b"]
    with pytest.raises(MessageTooLarge, match="Thing takes"):
        things.change(A, large)


def test_a_record_that_is_too_deep_is_refused_alone(store: Store) -> None:
    nodes = store.table(Node)
    node = Node()
    with pytest.raises(InvalidArgument, match="too deep"):
        for _ in range(2000):
            node = Node(kids=[node])
    deep: dict[str, Any] = {}
    for _ in range(2000):
        deep = {"kids": [deep]}
    refused, added = nodes.write([Add(deep), Add(Node(kids=[Node()]))])
    assert isinstance(refused, InvalidArgument) and isinstance(added, Done)


def test_what_is_no_key_is_no_start(things: Table[Thing]) -> None:
    for attempt in (things.scan, things.updates, things.watch, things.changes):
        with pytest.raises(InvalidArgument, match="bytes"):
            attempt(start="abc")  # type: ignore[arg-type]


def test_what_is_no_model_has_no_table(store: Store) -> None:
    for thing in (object, Thing(), 5):
        with pytest.raises(InvalidArgument, match="needs a Model class"):
            store.table(thing)  # type: ignore[arg-type,type-var]


class Sum(Model, id=11):
    amount: Decimal | None = field(1, default=None)
    either: int | bool | None = field(2, default=None)
    number: float | int | None = field(3, default=None)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [("amount", Decimal("1.0"), Decimal("1.00")), ("either", 1, True), ("number", 1, 1.0), ("number", 1.0, 1)],
)
def test_a_value_that_is_kept_in_another_form_is_a_change(store: Store, name: str, old: Any, new: Any) -> None:
    sums = store.table(Sum, keep_all_versions=True)
    key = sums.add({name: old}).key
    assert sums.change(key, {name: new}).changed and not sums.change(key, {name: new}).changed
    assert repr(getattr(sums.get(key), name)) == repr(new)
    assert repr(sums.changes([key], max_versions=2)[0].versions[-1].values) == repr({name: new})


# The past


def test_a_record_is_read_as_it_was_at_a_version_or_a_time(things: Table[Thing], clock: SimClock) -> None:
    added = things.add({"name": "Ada"}, key=A)
    moment = time_of(added.version)
    clock.advance(10)
    changed = things.change(A, {"name": "Bob"})
    clock.advance(10)
    things.delete(A)

    def name_at(point: int | datetime) -> str | None:
        found = things.get(A, as_of=point)
        return None if found is None else found.name

    assert name_at(added.version - 1) is None
    assert name_at(added.version) == name_at(changed.version - 1) == name_at(moment) == "Ada"
    assert name_at(changed.version) == name_at(moment + timedelta(seconds=12)) == "Bob"
    assert name_at(things.last_version) is None and name_at(datetime(2100, 1, 1, tzinfo=UTC)) is None


@pytest.mark.parametrize("point", ["now", True, -1, 1 << 64, 1.5, datetime(2026, 1, 1)])
def test_a_point_in_the_past_is_a_version_or_an_aware_datetime(things: Table[Thing], point: Any) -> None:
    with pytest.raises(InvalidArgument):
        things.get(A, as_of=point)


def test_the_past_must_be_kept_to_be_read(store: Store) -> None:
    things = store.table(Thing)
    things.add({}, key=A)
    with pytest.raises(InvalidArgument, match="keep_all_versions"):
        things.get(A, as_of=things.last_version)


def test_a_table_that_begins_to_keep_its_past_has_all_of_it(reopen: Reopen) -> None:
    with reopen() as store:
        first = store.table(Thing).add({"name": "Ada"}, key=A).version
        store.table(Thing).change(A, {"name": "Bob"})
    with reopen() as store:
        things = store.table(Thing, keep_all_versions=True)
        assert names(things, as_of=first) == ["Ada"] and names(things) == ["Bob"]
        second = things.change(A, {"name": "Cleo"}).version
    with reopen() as store:
        things = store.table(Thing, keep_all_versions=False)
        things.change(A, {"name": "Dora"})
    with reopen() as store:
        things = store.table(Thing, keep_all_versions=True)
        assert names(things, as_of=second) == ["Cleo"] and names(things, as_of=things.last_version) == ["Dora"]


def test_a_scan_begins_behind_a_record_in_the_past_too(things: Table[Thing]) -> None:
    for key in (A, B, C):
        things.add({"name": str(key[0])}, key=key)
    for options in ({}, {"as_of": things.last_version}):
        assert names(things, start=B, include_start=False, **options) == [str(C[0])]
        assert names(things, start=B, order=["-$key"], **options) == ["1", "0"]
        assert names(things, start=B, order=["-name"], include_start=False, **options) == ["0"]


def test_a_record_with_thousands_of_versions_is_found_between_others(things: Table[Thing]) -> None:
    for key in (A, B, C):
        things.add({"name": "n", "rank": 0}, key=key)
    versions = [things.change(B, {"rank": number % 7 - 3}).version for number in range(300)]
    for number in (0, 8, 9, 150, 299):
        for order in ("$key", "-$key", "rank", "-rank"):
            found = {record.key: record.rank for record in things.scan(order=[order], as_of=versions[number])}
            assert found == {A: 0, B: number % 7 - 3, C: 0}


# Versions


def test_versions_rise_though_the_clock_goes_back(reopen: Reopen, clock: SimClock) -> None:
    with reopen() as store:
        things = store.table(Thing)
        versions = [things.add({}).version]
        clock.set_back(3600)
        versions.append(things.add({}).version)
    clock.set_back(3600)
    with reopen() as store:
        versions.append(store.table(Thing).add({}).version)
        clock.advance(86_400)
        versions.append(store.table(Thing).add({}).version)
    assert versions == sorted(set(versions))
    assert time_of(versions[3]) > time_of(versions[2]) + timedelta(hours=20)


def test_all_tables_of_a_store_have_one_clock(store: Store, clock: SimClock) -> None:
    things, slots = store.table(Thing), store.table(Slot)
    versions = [things.add({}).version]
    clock.set_back(60)
    versions += [slots.add({"place": "a", "day": 1}).version, things.add({}).version]
    assert versions == sorted(set(versions))


# Restarts


def test_a_table_is_as_it_was_when_the_store_is_opened_again(reopen: Reopen) -> None:
    with reopen() as store:
        things = store.table(Thing, keep_all_versions=True)
        things.add({"name": "Ada", "email": "a", "tags": {"a"}}, key=A)
        things.change(A, {"rank": 2})
        before, last = described(things), things.last_version
    with reopen() as store:
        things = store.table(Thing)
        assert (described(things), things.last_version, position_of(things)) == (before, last, 2)
        assert things.settings.keep_all_versions


def test_what_the_state_lost_is_replayed_from_the_log(files: SimFiles, clock: SimClock) -> None:
    with holdfast.open("data", files=files, clock=clock, background=False) as store:
        store.table(Thing, keep_all_versions=True).add({"email": "a"}, key=A)
    store = holdfast.open("data", files=files, clock=clock, background=False)
    things = store.table(Thing)
    things.change(A, {"email": "b"})
    things.add({"email": "a", "tags": {"a"}}, key=B)
    things.delete(A, hard=True)
    before = described(things)
    after = files.after_crash("dropped")  # commits of the state that were not synced are gone
    again = holdfast.open("data", files=after, clock=clock, background=False).table(Thing)
    assert described(again) == before
    assert position_of(again) == 4


@pytest.mark.parametrize("lost", [1, 2])
def test_a_state_that_is_ahead_of_its_log_is_built_anew(files: SimFiles, clock: SimClock, lost: int) -> None:
    """A power cut took the end of the log, which was not synced, and not the state that came of it."""
    disks, states = [], []
    for name in ("Ada", "Bob", "Cleo"):
        with holdfast.open("data", files=files, clock=clock, background=False) as store:
            things = store.table(Thing, keep_all_versions=True, flush=Flush.async_())
            things.add({"name": name, "email": name})
            states.append(described(things))
        disks.append(files.snapshot())
    ahead = {path: content for path, content in disks[-1].items() if "table-state" in path}
    disk = SimFiles.holding({**disks[-1 - lost], **ahead}, seed=77)
    with holdfast.open("data", files=disk, clock=clock, background=False) as store:
        things = store.table(Thing)
        assert described(things) == states[-1 - lost]
        things.add({"email": "Cleo"})


def test_a_rebuild_changes_nothing(things: Table[Thing]) -> None:
    for number in range(40):
        things.write([Add({"email": str(number % 9)}, KEYS[number % 4]), Change(KEYS[number % 3], {"rank": 1})])
        things.write([Delete(KEYS[number % 4], hard=number % 3 == 0), Change(KEYS[2], {"email": str(number % 7)})])
    before = described(things)
    assert things.rebuild() == things.log.end
    assert described(things) == before


@pytest.mark.parametrize("flush", [Flush.batch(), Flush.async_()], ids=["batch", "async"])
def test_without_sync_all_is_there_after_a_kill(files: SimFiles, clock: SimClock, flush: Flush) -> None:
    things = holdfast.open("data", files=files, clock=clock, background=False).table(Thing, flush=flush)
    keys = [things.add({"rank": number % 3}).key for number in range(20)]
    killed = SimFiles.holding(files.snapshot(), seed=5)  # what the operating system was given
    again = holdfast.open("data", files=killed, clock=clock, background=False).table(Thing)
    assert [record.key for record in again.scan()] == keys


# Readers


def test_a_reader_beside_the_writer_follows_it(reopen: Reopen, files: SimFiles) -> None:
    things = reopen().table(Thing, keep_all_versions=True)
    first = things.add({"name": "Ada", "email": "a"}, key=A).version
    with reopen(read_only=True) as beside:
        reader = beside.table(Thing)
        assert names(reader) == ["Ada"]
        things.change(A, {"name": "Bob", "email": None})
        things.add({"name": "Cleo", "email": "a"}, key=B)
        disk = files.snapshot()
        assert names(reader, order=["name"]) == ["Bob", "Cleo"]
        assert names(reader, as_of=first) == ["Ada"]
        assert [record.key for record in reader.scan(Thing.email == "a")] == [B]
        things.delete(A, hard=True)
        assert reader.get(A, as_of=first) is None
        assert described(reader) == described(things)
        with pytest.raises(ReadOnly):
            reader.add({})
        with pytest.raises(ReadOnly):
            beside.transaction()
        assert set(files.snapshot()) == set(disk)


def test_a_reader_cannot_open_a_table_that_is_not_there(reopen: Reopen) -> None:
    reopen().table(Thing)
    with reopen(read_only=True) as beside, pytest.raises(holdfast.NotFound, match="Thing"):
        beside.table(Slot)


READER = """
import sys
import holdfast
from tests.table.things import Thing

with holdfast.open(sys.argv[1], read_only=True) as store:
    things = store.table(Thing)
    for line in sys.stdin:
        version = int(line)
        names = [record.name for record in things.scan(order=["name"], as_of=version or None)]
        print(",".join(names), flush=True)
"""


@pytest.fixture
def other_process(disk_store: Store) -> Iterator[Callable[[int], list[str]]]:
    """Asks a reader in a process of its own for the names in the table."""
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", READER, str(disk_store.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        stdin, stdout = process.stdin, process.stdout

        def ask(version: int = 0) -> list[str]:
            stdin.write(f"{version}\n")
            stdin.flush()
            return stdout.readline().strip().split(",")

        disk_store.table(Thing, keep_all_versions=True)
        yield ask
        stdin.close()
        process.wait(30)


def test_a_reader_in_another_process_follows_the_writer(
    disk_store: Store, other_process: Callable[..., list[str]]
) -> None:
    things = disk_store.table(Thing, keep_all_versions=True)
    first = things.add({"name": "Ada"}, key=A).version
    assert other_process() == ["Ada"]
    things.write([Change(A, {"name": "Bob"}), Add({"name": "Cleo", "email": "c"}, B)])
    assert other_process() == ["Bob", "Cleo"]
    assert other_process(first) == ["Ada"]
    things.delete(A, hard=True)
    assert other_process() == ["Cleo"]
    assert other_process(first) == [""]


# Transactions


def test_a_transaction_gives_all_its_changes_one_version(store: Store, things: Table[Thing]) -> None:
    slots, mails = store.table(Slot), store.queue("mails")
    with store.transaction() as transaction:
        things.add({"email": "a"}, key=A)
        things.change(A, {"rank": 1})
        slots.add({"place": "a", "day": 1})
        mails.put(b"hello")
        assert things.get(A) is None and slots.count() == 0 and mails.waiting() == 0
    assert things.last_version == slots.last_version == transaction.version
    found = things.get(A)
    assert found is not None and found.rank == 1
    assert [message.payload for message in mails.peek(9)] == [b"hello"]


def test_an_error_in_a_transaction_undoes_all_of_it(store: Store, things: Table[Thing]) -> None:
    mails = store.queue("mails")
    things.add({"email": "a"}, key=A)
    with pytest.raises(ValidationFailed), store.transaction():
        mails.put(b"hello")
        things.change(A, {"rank": 1})
        things.add({"email": "a"}, key=B)
    found = things.get(A)
    assert found is not None and found.rank == 0
    assert mails.waiting() == 0


def test_a_table_that_is_opened_in_a_transaction_takes_part_in_it(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), store.transaction():
        store.table(Thing).add({}, key=A)
        _ = 1 / 0
    assert store.table(Thing).count() == 0
    with store.transaction() as transaction:
        store.table(Slot).add({"place": "a", "day": 1})
        store.table(Thing).add({}, key=A)
    assert store.table(Thing).last_version == store.table(Slot).last_version == transaction.version


def test_a_transaction_that_a_crash_cut_off_is_finished_whatever_the_limits_of_the_log(clock: SimClock) -> None:
    files = SimFiles()
    store = holdfast.open("data", files=files, clock=clock, background=False)
    things, slots = store.table(Thing, max_message=64 << 20), store.table(Slot)
    files.fail("write", 5, pattern="data/tables/*", times=9)
    with pytest.raises(HoldfastError, match="finished when the disk works"), store.transaction():
        things.add({"name": "x" * (20 << 20)}, key=A)
        slots.add({"place": "a", "day": 1})
    after = files.after_crash("dropped")
    with holdfast.open("data", files=after, clock=clock, background=False) as again:
        assert again.table(Thing).count() == again.table(Slot).count() == 1


# Ends


def test_a_closed_table_refuses_every_call(store: Store, things: Table[Thing]) -> None:
    things.add({}, key=A)
    scan = things.scan()
    store.close()
    for call in (
        lambda: things.get(A),
        lambda: things.add({}),
        lambda: things.write([]),
        things.scan,
        lambda: list(scan),
    ):
        with pytest.raises(Closed):
            call()


def test_a_table_is_opened_once_with_one_model(store: Store, things: Table[Thing]) -> None:
    assert store.table(Thing) is things

    class Thing2(holdfast.Model, id=7):
        """Another one with the same id."""

        name: str = holdfast.field(1)

    with pytest.raises(InvalidArgument, match="id 7"):
        store.table(Thing2)


def test_a_disk_that_fails_stops_the_table_and_loses_nothing_that_was_confirmed(
    files: SimFiles, clock: SimClock
) -> None:
    store = holdfast.open("data", files=files, clock=clock, background=False)
    things = store.table(Thing, keep_all_versions=True)
    things.add({"email": "a"}, key=A)
    files.fail("sync", 5, pattern="data/tables/*")
    with pytest.raises(HoldfastError):
        things.add({"email": "b"}, key=B)
    assert [record.key for record in things.scan()] == [A]
    with pytest.raises(HoldfastError):
        things.add({"email": "c"}, key=C)
    again = holdfast.open("data", files=files.after_crash("dropped"), clock=clock, background=False).table(Thing)
    assert [record.key for record in again.scan()] == [A]


def test_the_log_of_a_table_can_be_read_and_not_written(things: Table[Thing]) -> None:
    table = things
    key = table.add(Thing(name="Ann")).key
    log = table.log
    assert [record.key for record in log.read()] == [key] and (log.start, log.end) == (0, 1)
    assert next(iter(log.tailer())).key == key
    calls: list[Callable[[], object]] = [
        lambda: log.append(b"junk"),
        lambda: log.append_many([b"junk"]),
        lambda: log.clear(force=True),
        lambda: log.compact(force=True),
        log.close,
        lambda: log.tailer().log.append(b"junk"),
        lambda: log.tailer("named").log.clear(force=True),
    ]
    for call in calls:
        with pytest.raises(ReadOnly, match="Change records with add, change and delete"):
            call()
    table.rebuild()
    assert names(table) == ["Ann"]


# Nothing


def nets_to_nothing(key: bytes) -> dict[str, list[Any]]:
    return {
        "there and back": [Change(key, {"name": "Bob"}), Change(key, {"name": "Ada"})],
        "hidden and back": [Delete(key), Undelete(key)],
        "a tag in and out": [Change(key, {"tags": SetEdit(add=["x"])}), Change(key, {"tags": SetEdit(remove=["x"])})],
        "changed, hidden and all back": [
            Change(key, {"name": "Bob"}, delete=True),
            Undelete(key),
            Change(key, {"name": "Ada"}),
        ],
        "added and forgotten": [Add(Thing(name="Eve"), B), Delete(B, hard=True)],
    }


@pytest.mark.parametrize("what", nets_to_nothing(A))
@pytest.mark.parametrize("in_transaction", [False, True], ids=["request", "transaction"])
def test_a_request_that_nets_to_nothing_leaves_no_event_and_no_version(
    store: Store, things: Table[Thing], what: str, in_transaction: bool
) -> None:
    things.write([Add(Thing(name="Ada", tags={"a"}), A)])
    before, version, end = described(things), things.last_version, things.log.end
    with store.transaction() if in_transaction else contextlib.nullcontext():
        outcomes = things.write(nets_to_nothing(A)[what])
    assert all(isinstance(outcome, Done) for outcome in outcomes)
    if not in_transaction:
        assert not any(outcome.changed for outcome in outcomes if isinstance(outcome, Done))
        assert {outcome.version for outcome in outcomes if isinstance(outcome, Done) and outcome.key == A} <= {version}
    assert (things.log.end, things.last_version) == (end, version)
    assert described(things) == before
    things.change(A, {"name": "Bob"})  # what is released is released
    assert names(things) == ["Bob"]


def test_beside_a_record_that_is_as_it_was_others_of_the_request_change(things: Table[Thing]) -> None:
    things.write([Add(Thing(name="Ada"), A), Add(Thing(name="Bea"), B)])
    version, end = things.last_version, things.log.end
    outcomes = things.write([Change(A, {"name": "x"}), Change(B, {"name": "y"}), Change(A, {"name": "Ada"})])
    assert [outcome.changed for outcome in outcomes if isinstance(outcome, Done)] == [False, True, False]
    assert things.log.end == end + 1 and names(things) == ["Ada", "y"]
    found = things.get(A)
    assert found is not None and found.version == version
