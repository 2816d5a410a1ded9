"""Does a listener hear of all that happens, and of nothing else?"""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Flush, Store
from holdfast.base.errors import InvalidArgument
from holdfast.table import Add, Delete
from holdfast.table.live.sync_updates import Addition, Alteration, InitialValues, Removal
from holdfast.table.live.watcher import ListenerBehind, Watcher
from holdfast.table.query.planner import TableScanRefused
from holdfast.table.query.search import search
from tests.table.following import MODES, Client, Item, Items, Person, begun, filled, heard, table_of
from tests.table.internals import changelog_of

FIELDS: Any = Item


@pytest.fixture(params=MODES, ids=["present", "history", "updates"])
def table(request: pytest.FixtureRequest, store: Store) -> Items:
    return table_of(store, Item, **request.param)


@pytest.fixture
def listed(store: Store) -> Items:
    return table_of(store, Item, keep_all_versions=True, update_history=True)


# Without a limit


def test_initial_values_come_first_then_what_happens(table: Items) -> None:
    keys = filled(table, (1, 2))
    watcher = table.watch()
    first = watcher.poll()
    assert first == InitialValues(table.get_many(keys), table.last_version)
    assert watcher.poll() is None
    table.change(keys[0], {"value": 5})
    assert watcher.poll() == Alteration(table.get(keys[0]), {"value": 5}, 0, 0)
    new = table.add(Item(number=9, value=9))
    assert watcher.poll() == Addition(table.get(new.key), 2)
    soft = table.delete(keys[0])
    assert watcher.poll() == Removal(keys[0], "soft-delete", soft.version, 0)
    hard = table.delete(keys[1], hard=True)
    assert watcher.poll() == Removal(keys[1], "hard-delete", hard.version, 0)
    table.undelete(keys[0])
    assert watcher.poll() == Addition(table.get(keys[0]), 0)
    assert watcher.poll() is None


def test_a_request_is_heard_of_once_for_each_record(table: Items, store: Store) -> None:
    keys = filled(table, (1, 2))
    watcher = begun(table.watch())
    with store.transaction():
        table.change(keys[0], {"value": 5})
        table.delete(keys[0])
        table.change(keys[1], {"value": 6})
        table.change(keys[1], {"text": "haha1"})
    new = table.layout.key_of(Item(number=9, value=0))
    table.write([Add(Item(number=9, value=0)), Delete(new)])
    table.write([Delete(keys[1], hard=True), Add(Item(number=1, value=7))])
    assert heard(watcher) == [
        ("soft-delete", keys[0]),
        ("change", keys[1], 0, 0),
        ("hard-delete", keys[1]),
        ("addition", keys[1], 0),
    ]
    assert list(watcher.window) == list(table.scan())


def test_initial_values_can_be_left_out(table: Items) -> None:
    keys = filled(table, (1, 2))
    watcher = table.watch(include_initial=False)
    table.change(keys[1], {"value": 5})
    assert heard(watcher) == [("change", keys[1], 1, 1)]


def test_an_empty_table_begins_with_no_values(table: Items) -> None:
    watcher = table.watch()
    assert watcher.poll() == InitialValues([], 0)
    (key,) = filled(table, (1,))
    assert heard(watcher) == [("addition", key, 0)]


def test_a_no_op_is_not_heard(table: Items) -> None:
    (key,) = filled(table, (1,))
    watcher = begun(table.watch())
    assert not table.change(key, {"value": 1}).changed
    assert watcher.poll() is None


def test_records_of_keys_stand_in_the_order_of_the_keys(table: Items) -> None:
    keys = filled(table, (1, 2, 3))
    missing = table.layout.key_of(Item(number=7, value=0))
    watcher = table.watch(keys=[missing, keys[2], keys[0]])
    assert heard(watcher) == [("initial", [keys[2], keys[0]])]
    table.change(keys[1], {"value": 9})  # nobody asked for this one
    table.add(Item(number=7, value=0))
    table.change(keys[0], {"value": 9})
    table.delete(missing)
    table.undelete(missing)
    assert heard(watcher) == [
        ("addition", missing, 0),
        ("change", keys[0], 2, 2),
        ("soft-delete", missing),
        ("addition", missing, 0),
    ]


def test_a_key_enters_and_leaves_a_filter(table: Items) -> None:
    (key,) = filled(table, (1,))
    watcher = table.watch(keys=[key], where=FIELDS.text == "haha2")
    assert heard(watcher) == [("initial", [])]
    for text in ("haha2", "haha3", "haha2"):
        table.change(key, {"text": text})
    assert heard(watcher) == [("addition", key, 0), ("not-in-range", key), ("addition", key, 0)]


def test_a_filter_on_what_changes_is_tested_at_each_change(table: Items) -> None:
    keys = filled(table, (1, 2))
    watcher = begun(table.watch(where=~(FIELDS.text == "haha0"), allow_table_scan=True))
    table.change(keys[0], {"text": "haha1"})
    table.change(keys[0], {"text": "haha0"})
    table.change(keys[0], {"value": 9})  # it is out of range, and stays there
    table.delete(keys[0])
    assert heard(watcher) == [("change", keys[0], 0, 0), ("not-in-range", keys[0])]


def test_a_filter_that_no_index_serves_is_refused_unless_allowed(table: Items) -> None:
    with pytest.raises(TableScanRefused):
        table.watch(where=FIELDS.text == "haha")


def test_what_lies_before_the_start_is_ignored(table: Items) -> None:
    keys = filled(table)
    watcher = table.watch(start=keys[1], order=["$key"])
    assert heard(watcher) == [("initial", keys[1:])]
    table.change(keys[0], {"value": 9})
    table.delete(keys[0])
    table.change(keys[2], {"value": 9})
    assert heard(watcher) == [("change", keys[2], 1, 1)]
    late = table.watch(start=keys[1], include_start=False, order=["-$key"])
    assert heard(late) == [("initial", [])]


def test_only_selected_changes_are_heard(table: Items) -> None:
    (key,) = filled(table, (1,))
    watcher = begun(table.watch(select=["value"]))
    table.change(key, {"text": "haha2"})
    assert watcher.poll() is None
    table.change(key, {"text": "haha3", "value": 4})
    update = watcher.poll()
    assert isinstance(update, Alteration)
    assert update.changes == {"value": 4}


def test_a_move_tells_from_where_to_where(table: Items) -> None:
    keys = filled(table)
    watcher = table.watch(order=["value"])
    assert heard(watcher) == [("initial", [keys[1], keys[3], keys[0], keys[2], keys[4]])]
    table.change(keys[1], {"value": 3})
    assert heard(watcher) == [("change", keys[1], 0, 3)]
    backwards = table.watch(order=["-value"])
    assert heard(backwards) == [("initial", [keys[4], keys[1], keys[2], keys[0], keys[3]])]
    table.change(keys[3], {"value": 99})
    assert heard(backwards) == [("change", keys[3], 4, 0)]


def test_descending_keys_count_from_the_greatest(table: Items) -> None:
    keys = filled(table, (1, 2, 3))
    watcher = begun(table.watch(order=["-$key"]))
    table.change(keys[2], {"value": 9})
    table.change(keys[1], {"value": 9})
    new = table.add(Item(number=-5, value=0))
    assert heard(watcher) == [("change", keys[2], 0, 0), ("change", keys[1], 1, 1), ("addition", new.key, 3)]


def test_a_request_with_several_operations_is_heard_in_their_order(table: Items) -> None:
    watcher = begun(table.watch())
    done = table.add_many([Item(number=number, value=0) for number in (3, 1, 2)])
    keys = [one.key for one in done]
    assert heard(watcher) == [("addition", keys[0], 0), ("addition", keys[1], 0), ("addition", keys[2], 1)]


def test_a_search_is_entered_and_left(store: Store) -> None:
    table = table_of(store, Person)
    key = table.add(Person(surname="Jones")).key
    watcher = table.watch(keys=[key], where=search("smith", index="words"))
    assert heard(watcher) == [("initial", [])]
    for surname in ("Smith", "Jones", "Van der Smith"):
        table.change(key, {"surname": surname})
    assert heard(watcher) == [("addition", key, 0), ("not-in-range", key), ("addition", key, 0)]


# From a version on


def test_from_a_version_on_a_client_first_gets_what_it_missed(table: Items) -> None:
    keys = filled(table)
    version = table.last_version
    table.change(keys[1], {"value": 7})
    watcher = table.watch(keys=keys[:2], from_version=version + 1)
    assert heard(watcher) == [("ordered", keys[:2]), ("change", keys[1], 1, 1)]
    table.change(keys[0], {"value": 7})
    table.change(keys[2], {"value": 7})
    table.delete(keys[0])
    assert heard(watcher) == [("change", keys[0], 0, 0), ("soft-delete", keys[0])]


def test_from_the_first_version_on_all_are_additions(table: Items) -> None:
    keys = filled(table, (1, 2))
    watcher = table.watch(from_version=0)
    assert heard(watcher) == [("ordered", keys), ("addition", keys[0], 0), ("addition", keys[1], 1)]


def test_a_client_that_says_what_it_has_is_put_right_and_then_follows(table: Items) -> None:
    keys = filled(table)
    known = [keys[0], keys[1], keys[2], keys[4]]
    watcher = table.watch(start=keys[1], order=["$key"], ordered_keys=known, from_version=table.last_version + 1)
    table.change(keys[1], {"value": 7})
    table.change(keys[0], {"value": 7})
    table.change(keys[2], {"value": 7})
    table.delete(keys[2], hard=True)
    new = table.add(Item(number=2, value=7)).key
    assert heard(watcher) == [
        ("ordered", keys[1:]),
        ("not-in-range", keys[0]),
        ("addition", keys[3], 2),
        ("change", keys[1], 0, 0),
        ("change", keys[2], 1, 1),
        ("hard-delete", keys[2]),
        ("addition", new, 1),
    ]


def test_what_a_client_has_is_of_no_use_without_a_version(table: Items) -> None:
    with pytest.raises(InvalidArgument, match="from_version"):
        table.watch(ordered_keys=[])


@pytest.mark.parametrize("asked", [{"limit": 0}, {"limit": True}, {"max_lag": 0}, {"keys": [], "order": ["value"]}])
def test_what_cannot_be_is_refused(table: Items, asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        table.watch(**asked)


# Listeners


def test_one_who_does_not_listen_holds_nobody_up(table: Items) -> None:
    filled(table, (0,))
    slow = table.watch()
    for number in range(1, 141):
        table.add(Item(number=number, value=number))
    other = table.watch()
    assert len(other.poll().records) == 141
    assert slow.lag == 140
    assert len(slow.poll().records) == 1
    assert [what for what, *_ in heard(slow)] == ["addition"] * 140
    assert slow.lag == 0


def test_listeners_are_independent_and_one_that_is_closed_leaves_the_others(table: Items) -> None:
    (key,) = filled(table, (1,))
    first, second = begun(table.watch()), begun(table.watch(limit=1))
    table.change(key, {"value": 2})
    with first:
        assert heard(first) == [("change", key, 0, 0)]
    table.change(key, {"value": 3})
    assert first.poll() is None
    assert list(first) == []
    assert heard(second) == [("change", key, 0, 0), ("change", key, 0, 0)]


def test_a_listener_that_comes_late_to_a_window_ends_with_the_right_one(table: Items) -> None:
    keys = filled(table, tuple(range(10)))
    watcher = begun(table.watch(order=["value"], limit=3))
    for key in keys[:5]:
        table.delete(key)
    table.change(keys[5], {"value": 100})
    table.change(keys[9], {"value": -1})
    table.undelete(keys[2])
    heard(watcher)
    assert list(watcher.window) == list(table.scan(order=["value"], limit=3))


def test_one_that_asked_for_it_fails_alone_when_it_falls_behind(table: Items) -> None:
    keys = filled(table, (1,))
    slow, other = begun(table.watch(max_lag=3)), begun(table.watch(max_lag=10))
    for value in range(2, 5):
        table.change(keys[0], {"value": value})
    assert slow.poll() is not None
    for value in range(5, 9):
        table.change(keys[0], {"value": value})
    heard(other)
    with pytest.raises(ListenerBehind, match="start a new watch"):
        heard(slow)
    assert slow.closed
    table.change(keys[0], {"value": 99})
    assert heard(other) == [("change", keys[0], 0, 0)]


def test_one_whose_changes_are_no_longer_kept_is_told_so(table: Items) -> None:
    keys = filled(table, (1, 2))
    watcher = begun(table.watch())
    table.change(keys[0], {"value": 5})
    changelog_of(table).clear(force=True)
    table.change(keys[0], {"value": 6})
    with pytest.raises(ListenerBehind, match="no longer keeps"):
        watcher.poll()


def test_after_so_long_without_an_update_the_iteration_ends(disk_store: Store) -> None:
    table = table_of(disk_store, Item)
    filled(table, (1,))
    assert [type(update) for update in table.watch(wait=0.2)] == [InitialValues]


def test_closing_from_another_thread_ends_the_iteration(disk_store: Store) -> None:
    table = table_of(disk_store, Item)
    filled(table, (1,))
    watcher = table.watch()
    seen: list[Any] = []
    started = threading.Event()

    def listen() -> None:
        for update in watcher:
            seen.append(update)
            started.set()

    thread = threading.Thread(target=listen)
    thread.start()
    assert started.wait(30)
    watcher.close()
    thread.join(30)
    assert not thread.is_alive()
    assert [type(update) for update in seen] == [InitialValues]


def test_closing_the_store_ends_the_iteration(tmp_path: Path) -> None:
    store = holdfast.open(tmp_path / "data")
    watcher = begun(table_of(store, Item).watch())
    store.close()
    assert list(watcher) == []


def test_a_listener_waits_for_what_another_thread_does(disk_store: Store) -> None:
    table = table_of(disk_store, Item, keep_all_versions=True)
    watcher = begun(table.watch(order=["value"], limit=5, wait=30))

    def write() -> None:
        for number in range(40):
            key = table.add(Item(number=number, value=-number)).key
            if number % 3 == 0:
                table.delete(key, hard=number % 2 == 0)
        table.add(Item(number=99, value=-99))

    threads = [threading.Thread(target=write)]
    for thread in threads:
        thread.start()
    for update in watcher:
        if isinstance(update, Addition):
            found = table.get(update.key, include_deleted=True)  # who hears of a record can read it
            assert found is not None or update.record.value.number % 6 == 0
            if update.record.value.number == 99:
                break
    for thread in threads:
        thread.join()
    heard(watcher)
    assert list(watcher.window) == list(table.scan(order=["value"], limit=5))


def test_listeners_that_begin_while_others_write_miss_nothing(disk_store: Store) -> None:
    table = table_of(disk_store, Item)
    done = threading.Event()

    def write() -> None:
        for number in range(150):
            key = table.add(Item(number=number, value=number % 7)).key
            table.change(key, {"value": number % 5})
            if number % 4 == 0:
                table.delete(key)
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    watchers: list[Watcher[Any]] = []
    while not done.is_set():
        if len(watchers) < 20:
            watchers += [table.watch(), table.watch(order=["value"], limit=4)]
        done.wait(0.01)
    thread.join()
    for watcher in watchers:
        seen = Client(watcher)
        seen.listen()
        limit = watcher.window.limit
        expected = table.scan() if limit is None else table.scan(order=["value"], limit=limit)
        assert seen.keys == [record.key for record in expected]


def test_a_reader_in_another_store_listens_too(reopen: Callable[..., Store]) -> None:
    table = table_of(reopen(), Item, keep_all_versions=True)
    keys = filled(table)
    reader = table_of(reopen(read_only=True), Item)
    watcher = reader.watch(order=["value"], limit=2)
    assert heard(watcher) == [("initial", [keys[1], keys[3]])]
    table.change(keys[1], {"text": "haha1"})
    table.delete(keys[3])
    assert heard(watcher) == [("change", keys[1], 0, 0), ("soft-delete", keys[3]), ("addition", keys[0], 1)]


@pytest.mark.parametrize("flush", [Flush.sync(), Flush.batch(), Flush.async_()], ids=["sync", "batch", "async"])
def test_a_listener_hears_in_every_flush_mode(store: Store, flush: Flush) -> None:
    table = table_of(store, Item, flush=flush)
    watcher = begun(table.watch(limit=1))
    keys = filled(table, (1, 2))
    table.delete(keys[0])
    assert heard(watcher) == [("addition", keys[0], 0), ("soft-delete", keys[0]), ("addition", keys[1], 0)]
