"""Do the changes of another store come in once, at their versions, and never over something newer?"""

import errno
import itertools
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import Store
from holdfast.base.errors import DiskFull, HoldfastError, InvalidArgument, ReadOnly
from holdfast.log.record import Record as LogRecord
from holdfast.table.errors import ValidationFailed
from holdfast.table.live.sync_updates import Addition, Alteration, InitialValues, OrderedKeys, Removal
from holdfast.table.operations import Add, Done, NoRecord
from holdfast.table.record import Record
from holdfast.table.storage.row_codec import Event, EventKind, decode_event, decode_row, encode_event
from holdfast.testing import SimClock, SimFiles
from tests.table.following import (
    MODES,
    OPERATIONS,
    Item,
    Items,
    Person,
    Persons,
    begun,
    carry_out,
    filled,
    table_of,
)
from tests.table.internals import REPLICATED_AT_ONCE, state_of, view_of
from tests.tiers import examples

KEY = bytes(15) + b"\1"
FAMILIES = ("table", "keys", "index", "unique", "historic_table", "historic_index", "historic_unique", "update_history")


@pytest.fixture(params=MODES, ids=["present", "history", "updates"])
def mode(request: pytest.FixtureRequest) -> dict[str, bool]:
    return dict(request.param)


@pytest.fixture
def table(mode: dict[str, bool], store: Store) -> Persons:
    return table_of(store, Person, **mode)


@pytest.fixture
def elsewhere(clock: SimClock) -> Store:
    """Another store."""
    return holdfast.open("elsewhere", files=SimFiles(), clock=clock, background=False)


def addition(version: int, surname: str = "Mous", *, created: int | None = None, **more: Any) -> Addition[Person]:
    deleted = more.pop("deleted", False)
    value = Person(surname=surname, **more)
    return Addition(Record(KEY, value, version, version if created is None else created, deleted))


def change(version: int, surname: str, **more: Any) -> Alteration[Person]:
    record = addition(version, surname, created=10, **more).record
    return Alteration(record, {"surname": surname, **more})


def removal(version: int, *, hard: bool = True) -> Removal:
    return Removal(KEY, "hard-delete" if hard else "soft-delete", version)


def done(outcomes: list[Any]) -> list[bool]:
    """Of outcomes that are all successes, whether they changed something."""
    assert all(isinstance(one, Done) for one in outcomes), outcomes
    return [one.changed for one in outcomes]


def test_an_addition_is_stored_at_its_version(table: Persons) -> None:
    assert table.apply([addition(1234)]) == [Done(KEY, 1234)]
    found = table.get(KEY)
    assert found is not None
    assert (found.version, found.created, found.surname) == (1234, 1234, "Mous")


def test_an_addition_of_a_hidden_record_stays_hidden(table: Persons) -> None:
    table.apply([addition(1234, deleted=True)])
    assert table.get(KEY) is None
    found = table.get(KEY, include_deleted=True)
    assert found is not None
    assert (found.deleted, found.version) == (True, 1234)


def test_a_change_sets_what_it_names_and_leaves_the_rest(table: Persons) -> None:
    table.apply([addition(10, email="a@b.c")])
    record = Record(KEY, Person(surname="Kastens", email="elsewhere@b.c"), 20, 10)
    assert table.apply([Alteration(record, {"surname": "Kastens"})]) == [Done(KEY, 20)]
    found = table.get(KEY)
    assert found is not None
    assert (found.surname, found.email, found.version, found.created) == ("Kastens", "a@b.c", 20, 10)


def test_a_change_of_a_record_that_is_not_here_adds_it(table: Persons) -> None:
    assert done(table.apply([change(20, "Kastens")])) == [True]
    found = table.get(KEY)
    assert found is not None
    assert (found.surname, found.version, found.created) == ("Kastens", 20, 10)


def test_stale_changes_are_a_success_and_change_nothing(table: Persons) -> None:
    table.apply([addition(1234), change(1236, "Newer")])
    assert table.apply([change(1235, "Older")]) == [Done(KEY, 1236, changed=False)]
    assert table.get(KEY).surname == "Newer"


def test_the_same_updates_can_come_again(table: Persons) -> None:
    updates = [addition(10), change(20, "Kastens"), removal(30, hard=False), addition(40, "Back")]
    assert done(table.apply(updates)) == [True] * 4
    state, end = whole_state(table), table.log.end
    assert done(table.apply(updates)) == [False] * 4
    assert (whole_state(table), table.log.end) == (state, end)


def test_a_deletion_for_good_blocks_what_is_older(table: Persons) -> None:
    assert done(table.apply([addition(10)])) == [True]
    assert done(table.apply([removal(20)])) == [True]
    assert done(table.apply([addition(10)])) == [False]
    assert table.get(KEY, include_deleted=True) is None
    assert done(table.apply([addition(21, "Tockle")])) == [True]
    assert done(table.apply([addition(10), removal(20), change(19, "Late")])) == [False] * 3
    assert table.get(KEY).surname == "Tockle"


def test_it_blocks_within_the_same_updates_too(table: Persons) -> None:
    assert done(table.apply([addition(10), removal(20), addition(10), addition(21)])) == [True, True, False, True]
    assert table.get(KEY).version == 21


def test_it_blocks_a_key_that_was_never_seen(table: Persons) -> None:
    assert done(table.apply([removal(20)])) == [True]
    assert done(table.apply([addition(10), change(15, "Late")])) == [False, False]
    assert table.get(KEY) is None


def test_when_tombstones_are_forgotten_older_updates_come_in(table: Persons) -> None:
    table.apply([removal(20)])
    assert table.compact_tombstones(19) == 0
    assert done(table.apply([addition(10)])) == [False]
    assert table.compact_tombstones(20) == 1
    assert done(table.apply([addition(10)])) == [True]
    assert table.get(KEY).version == 10


def test_a_tombstone_outlives_the_store(mode: dict[str, bool], reopen: Callable[..., Store]) -> None:
    store = reopen()
    table_of(store, Person, **mode).apply([addition(10), removal(20)])
    store.close()
    again = table_of(reopen(), Person)
    assert done(again.apply([addition(10)])) == [False]
    assert again.get(KEY) is None
    again.rebuild()
    assert done(again.apply([addition(10)])) == [False]


def test_a_local_deletion_for_good_blocks_what_was_before_it(table: Persons) -> None:
    key = table.add(Person(surname="Mous")).key
    record = table.get(key)
    table.delete(key, hard=True)
    assert done(table.apply([Addition(record)])) == [False]


def test_removals_are_compared_with_the_last_version(table: Persons) -> None:
    table.apply([addition(10), change(30, "Kastens")])
    assert done(table.apply([removal(20), removal(20, hard=False), removal(30)])) == [False] * 3
    assert done(table.apply([removal(31, hard=False)])) == [True]
    assert table.get(KEY) is None
    assert table.get(KEY, include_deleted=True).version == 31
    assert done(table.apply([removal(32)])) == [True]
    assert table.get(KEY, include_deleted=True) is None


def test_a_soft_removal_of_what_is_not_here_is_an_error_of_its_own(table: Persons) -> None:
    missing, added = table.apply([removal(20, hard=False), addition(30)])
    assert isinstance(missing, NoRecord)
    assert added == Done(KEY, 30)


def test_changes_and_additions_can_be_mixed(table: Persons) -> None:
    table.apply([addition(10)])
    other = Addition(Record(bytes(15) + b"\2", Person(surname="Tockle"), 12, 12))
    assert table.apply([change(11, "Kastens"), other]) == [Done(KEY, 11), Done(other.key, 12)]


def test_what_is_no_news_of_a_record_is_refused(table: Persons) -> None:
    for update in (
        InitialValues([addition(10).record], 10),
        OrderedKeys((KEY,), 10),
        Removal(KEY, "not-in-range", 10),
        addition(10).record,
        addition(0),
        addition(-1),
    ):
        with pytest.raises(InvalidArgument):
            table.apply([update])
    assert table.log.end == 0


def test_a_unique_value_that_another_has_is_refused_alone(table: Persons) -> None:
    owner = table.add(Person(surname="Owner", email="a@b.c")).key
    refused, taken = table.apply([addition(10, email="a@b.c"), addition(11, email="other@b.c")])
    assert isinstance(refused, ValidationFailed)
    assert refused.violations[0].rule == "unique"
    assert taken == Done(KEY, 11)
    assert table.get(owner).email == "a@b.c"


def test_what_breaks_a_rule_or_has_another_key_is_refused(store: Store) -> None:
    table = table_of(store, Item)
    wrong = Item(number=1, value=1)
    key = table.layout.key_of(wrong)
    wrong.value = "one"  # type: ignore[assignment]
    outcomes = table.apply(
        [Addition(Record(key, wrong, 10, 10)), Addition(Record(key, Item(number=2, value=1), 10, 10))]
    )
    assert all(isinstance(outcome, HoldfastError) for outcome in outcomes)
    assert list(table.scan()) == []


def test_versions_given_here_come_after_those_that_came_in(table: Persons) -> None:
    ahead = table.add(Person(surname="Now")).version + (1 << 40)
    table.apply([addition(ahead)])
    assert table.change(KEY, {"surname": "Later"}).version > ahead


def test_old_versions_do_not_set_the_table_back(table: Persons) -> None:
    version = table.add(Person(surname="Now")).version
    table.apply([addition(10)])
    assert table.last_version >= version
    assert table.add(Person(surname="Then")).version > version


def test_the_past_has_what_came_in_late(store: Store) -> None:
    table = table_of(store, Person, keep_all_versions=True)
    table.add(Person(surname="Now"))
    assert table.get(KEY, as_of=15) is None
    table.apply([addition(10), change(20, "Kastens")])
    assert table.get(KEY, as_of=15).surname == "Mous"
    assert table.get(KEY, as_of=20).surname == "Kastens"
    versions = table.changes([KEY], max_versions=9)[0].versions
    assert [(one.version, one.kind) for one in versions] == [(10, "add"), (20, "change")]


def test_the_log_has_the_updates_at_their_versions(table: Persons) -> None:
    table.apply([addition(10), change(20, "Kastens"), removal(30)])
    events = [decode_event(record.payload) for record in table.log.read()]
    assert [event.version for event in events] == [10, 20, 30]


def test_a_listener_hears_what_comes_in(table: Persons) -> None:
    watcher = table.watch()
    watcher.poll()
    table.apply([addition(10), change(20, "Kastens"), removal(30, hard=False)])
    heard = [watcher.poll(), watcher.poll(), watcher.poll(), watcher.poll()]
    assert [type(update) for update in heard] == [Addition, Alteration, Removal, type(None)]
    assert [update.version for update in heard[:3]] == [10, 20, 30]


def test_updates_are_no_part_of_a_transaction(table: Persons, store: Store) -> None:
    with store.transaction():
        table.add(Person(surname="Tockle"))
        with pytest.raises(InvalidArgument, match="outside of the transaction"):
            table.apply([addition(10)])
    assert [record.surname for record in table.scan()] == ["Tockle"]


def test_updates_come_in_while_others_change_the_same_records(mode: dict[str, bool], disk_store: Store) -> None:
    table = table_of(disk_store, Item, **mode)
    keys = filled(table, (0, 0, 0))
    outcomes: list[Any] = []

    def take_in() -> None:
        for value in range(100, 130):
            record = table.get(keys[value % 3])
            news = Item(number=value % 3, value=value)
            outcomes.extend(
                table.apply([Alteration(Record(record.key, news, record.version + 1, 1), {"value": value})])
            )

    def change_here(text: str) -> None:
        for count in range(20):
            table.change(keys[count % 3], {"text": f"{text}{count}"})

    threads = [threading.Thread(target=take_in)]
    threads += [threading.Thread(target=change_here, args=(text,)) for text in ("haha", "hahaha")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done(outcomes)
    state = whole_state(table)
    table.rebuild()
    assert whole_state(table) == state
    versions = {key: [one.version for one in table.changes([key])[0].versions] for key in keys}
    assert all(found == sorted(set(found)) for found in versions.values())


def test_a_reader_takes_nothing_in(reopen: Callable[..., Store]) -> None:
    table_of(reopen(), Person)
    reader = table_of(reopen(read_only=True), Person)
    with pytest.raises(ReadOnly):
        reader.apply([addition(10)])
    with pytest.raises(ReadOnly):
        reader.compact_tombstones(10)


def test_a_log_that_is_applied_makes_the_same_table(mode: dict[str, bool], store: Store, elsewhere: Store) -> None:
    source = table_of(elsewhere, Item, **mode)
    target = table_of(store, Item, **mode)
    keys = filled(source)
    source.change(keys[1], {"value": 50, "tags": {"a", "b"}})
    source.delete(keys[2])
    source.delete(keys[3], hard=True)
    source.change(keys[1], {"tags": {"b"}})
    source.undelete(keys[2])
    records = list(source.log.read())
    assert done(target.apply(records)) == [True] * len(records)
    assert whole_state(target) == whole_state(source)
    assert done(target.apply(records)) == [False] * len(records)
    target.rebuild()
    assert whole_state(target) == whole_state(source)


def test_a_watcher_of_one_store_can_feed_another(mode: dict[str, bool], store: Store, elsewhere: Store) -> None:
    source = table_of(elsewhere, Item, **mode)
    target = table_of(store, Item, **mode)
    keys = filled(source, (1, 2, 3))
    watcher = source.watch(from_version=0)
    source.change(keys[1], {"limits": {"EUR": 5}})
    source.delete(keys[0])
    source.undelete(keys[0])
    source.delete(keys[2], hard=True)
    while (update := watcher.poll()) is not None:
        if not isinstance(update, OrderedKeys):
            assert done(target.apply([update])) == [True]
    assert list(target.scan(include_deleted=True)) == list(source.scan(include_deleted=True))


# Several operations on one record in one request


@settings(max_examples=examples(60))
@given(operations=OPERATIONS)
def test_a_log_and_a_watcher_make_the_same_table_whatever_happened(operations: Any) -> None:
    clock = SimClock()
    first, second, third = (
        holdfast.open(name, files=SimFiles(), clock=clock, background=False) for name in ("first", "second", "third")
    )
    source = table_of(first, Item, keep_all_versions=True, update_history=True)
    copy = table_of(second, Item, keep_all_versions=True, update_history=True)
    fed = table_of(third, Item)
    watcher = begun(source.watch())
    for operation in operations:
        carry_out(source, *operation)
    records = list(source.log.read())
    done(copy.apply(records))
    assert whole_state(copy) == whole_state(source)
    assert not any(done(copy.apply(records)))
    while (update := watcher.poll()) is not None:
        fed.apply([update])
    # Not their versions: of a request that changed a value and then changed it back, a listener does not hear.
    assert [(one.key, one.value) for one in fed.scan()] == [(one.key, one.value) for one in source.scan()]


@settings(max_examples=examples(60))
@given(operations=OPERATIONS, data=st.data())
def test_records_of_a_log_may_come_in_any_order(operations: Any, data: st.DataObject) -> None:
    clock = SimClock()
    source = table_of(holdfast.open("first", files=SimFiles(), clock=clock, background=False), Item)
    copy = table_of(holdfast.open("second", files=SimFiles(), clock=clock, background=False), Item)
    for operation in operations:
        carry_out(source, *operation)
    for record in data.draw(st.permutations(list(source.log.read()))):
        done(copy.apply([record]))
    assert [(one.key, one.value, one.version) for one in copy.scan()] == [
        (one.key, one.value, one.version) for one in source.scan()
    ]


def test_each_record_of_a_log_can_come_alone(mode: dict[str, bool], store: Store, elsewhere: Store) -> None:
    """Also where unique values went from one record to another in one request."""
    source, target = table_of(elsewhere, Person, **mode), table_of(store, Person, **mode)
    ada, bob = bytes(16), bytes(15) + b"\2"
    source.write([Add(Person(surname="Ada", email="a"), ada), Add(Person(surname="Bob", email="b"), bob)])
    with elsewhere.transaction():
        source.change(ada, {"email": "c"})
        source.change(bob, {"email": "a"})
        source.change(ada, {"surname": "Lovelace"})
    for record in source.log.read():
        assert done(target.apply([record])) == [True]
    assert whole_state(target) == whole_state(source)


def test_a_log_with_several_events_of_a_version_is_taken_in_whole(mode: dict[str, bool], store: Store) -> None:
    """As requests with several operations on one record were once written."""
    table = table_of(store, Item, **mode)
    key = table.layout.key_of(Item(number=1, value=0))
    images = [view_of(table).images.encode(key, Item(number=1, value=value)) for value in (1, 2, 3)]
    events = [
        Event(EventKind.ADD, 10, 10, False, (), images[0]),
        Event(EventKind.CHANGE, 10, 10, False, (2,), images[1]),
        Event(EventKind.CHANGE, 20, 10, False, (2,), images[2]),
        Event(EventKind.DELETE, 20, 10, True, (), images[2]),
    ]
    records = [LogRecord(place, 0, key, {}, encode_event(event)) for place, event in enumerate(events)]
    assert done(table.apply(records)) == [True] * 4
    assert table.get(key) is None and table.get(key, include_deleted=True).value.value == 3
    state, end = whole_state(table), table.log.end
    assert not any(done(table.apply(records + records)))
    assert (whole_state(table), table.log.end) == (state, end)
    table.rebuild()
    assert whole_state(table) == state


def whole_state(table: Items) -> dict[str, list[tuple[bytes, Any]]]:
    """All that there is of a table; rows with their records, since one set can be written in several orders."""
    prefix = view_of(table).prefix
    found: dict[str, list[tuple[bytes, Any]]] = {
        family: [entry for entry in state_of(table).scan(family) if entry[0].startswith(prefix)] for family in FAMILIES
    }
    found["table"] = [(name, _row(table, raw)) for name, raw in found["table"]]
    found["historic_table"] = [(name, (raw[:8], _row(table, raw[8:]))) for name, raw in found["historic_table"]]
    return found


def _row(table: Items, raw: bytes) -> tuple[Any, ...]:
    row = decode_row(raw)
    return (*row[:-1], table.model.__spec__.decode(row.image))


LIVES = ("add", "change", "hard-delete", "add again", "change again")


@pytest.mark.parametrize("at_once", [True, False], ids=["together", "one by one"])
@pytest.mark.parametrize("by_log", [True, False], ids=["log", "additions"])
def test_a_key_added_again_after_a_deletion_for_good_is_another_life_in_any_order(
    store: Store, clock: SimClock, at_once: bool, by_log: bool
) -> None:
    source = table_of(store, Person, keep_all_versions=True)
    source.write([Add(Person(surname="first", email="a"), KEY)])
    source.change(KEY, {"surname": "second"})
    source.delete(KEY, hard=True)
    source.write([Add(Person(surname="third", email="b"), KEY)])
    source.change(KEY, {"surname": "fourth"})
    records = list(source.log.read())
    versions = [decode_event(record.payload).version for record in records]
    updates: list[Any] = records
    if not by_log:
        updates = [
            removal(event.version)
            if event.kind is EventKind.HARD_DELETE
            else Addition(Record(KEY, view_of(source).images.decode(KEY, event.image), event.version, event.created))
            for event in (decode_event(record.payload) for record in records)
        ]
    for number, order in enumerate(itertools.permutations(range(len(updates)))):
        copy = table_of(
            holdfast.open(f"copy{number}", files=SimFiles(), clock=clock, background=False),
            Person,
            keep_all_versions=True,
        )
        coming = [updates[place] for place in order]
        for part in [coming] if at_once else [[one] for one in coming]:
            assert all(isinstance(outcome, Done) for outcome in copy.apply(part))
        for rebuilt in (False, True):
            if rebuilt:
                copy.rebuild()
            found = copy.get(KEY)
            assert found == source.get(KEY), [LIVES[place] for place in order]
            for version in versions[:3]:
                assert copy.get(KEY, as_of=version) is None, [LIVES[place] for place in order]
                assert not list(copy.scan(as_of=version, allow_table_scan=True))


def test_a_change_of_another_life_takes_nothing_over_from_the_one_that_was_deleted(table: Persons) -> None:
    assert done(table.apply([addition(10, "first", email="gone")])) == [True]
    later = Record(KEY, Person(surname="second"), 40, 30)
    assert done(table.apply([Alteration(later, {"surname": "second"})])) == [True]
    found = table.get(KEY)
    assert found is not None and (found.surname, found.email, found.created) == ("second", None, 30)
    assert done(table.apply([removal(20), addition(10, "first")])) == [False, False]


def test_a_version_is_taken_in_whole_or_not_at_all(
    mode: dict[str, bool], store: Store, files: SimFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(REPLICATED_AT_ONCE, 2)
    table = table_of(store, Item, **mode)
    items = [Item(number=number, value=0) for number in range(4)]
    updates = [
        Addition(Record(table.layout.key_of(item), item, version, version, False))
        for item, version in zip(items, (10, 10, 10, 20), strict=True)
    ]
    files.fail("write", errno.ENOSPC, pattern="*.data", skip=2, times=99)
    with pytest.raises(DiskFull):
        table.apply(updates)
    assert [record.value.number for record in table.scan()] == [0, 1, 2]
