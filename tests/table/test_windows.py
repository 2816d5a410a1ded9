"""Does a window show the first records, whatever happens to them?"""

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import holdfast
from holdfast import Store
from holdfast.table.live.watch_scope import NEWEST_FIRST
from holdfast.table.operations import Delete
from holdfast.table.query.scanner import Scanner
from holdfast.testing import SimClock, SimFiles
from tests.table.following import MODES, OPERATIONS, Client, Item, Items, begun, carry_out, filled, heard, table_of
from tests.table.internals import WATCH_AHEAD
from tests.tiers import examples

FIELDS: Any = Item


@pytest.fixture(params=MODES, ids=["present", "history", "updates"])
def table(request: pytest.FixtureRequest, store: Store) -> Items:
    return table_of(store, Item, **request.param)


@pytest.fixture
def listed(store: Store) -> Items:
    return table_of(store, Item, keep_all_versions=True, update_history=True)


def test_a_window_is_refilled_when_one_goes(table: Items) -> None:
    keys = filled(table)
    watcher = begun(table.watch(limit=1))
    table.delete(keys[0], hard=True)
    assert heard(watcher) == [("hard-delete", keys[0]), ("addition", keys[1], 0)]
    two = table.watch(limit=2)
    assert heard(two) == [("initial", keys[1:3])]
    table.delete(keys[1])
    assert heard(two) == [("soft-delete", keys[1]), ("addition", keys[3], 1)]
    table.delete(keys[3])
    assert heard(two) == [("soft-delete", keys[3]), ("addition", keys[4], 1)]
    table.delete(keys[2])
    assert heard(two) == [("soft-delete", keys[2])]
    assert [record.key for record in two.window] == [keys[4]]


def test_what_comes_behind_a_full_window_is_not_heard(table: Items) -> None:
    keys = filled(table, (1, 2))
    watcher = begun(table.watch(limit=2))
    new = table.add(Item(number=9, value=9))
    table.change(new.key, {"value": 10})
    assert watcher.poll() is None
    table.delete(keys[0])
    assert heard(watcher) == [("soft-delete", keys[0]), ("addition", new.key, 1)]


def test_a_window_with_room_takes_all_that_comes(table: Items) -> None:
    filled(table, (1,))
    watcher = begun(table.watch(limit=2))
    behind = table.add(Item(number=9, value=9))
    assert heard(watcher) == [("addition", behind.key, 1)]


def test_one_that_leaves_a_filter_makes_room_for_the_next(table: Items) -> None:
    keys = filled(table, (1, 2, 3))
    table.change(keys[0], {"text": "haha1"})
    watcher = table.watch(where=FIELDS.text == "haha1", limit=1, allow_table_scan=True)
    assert heard(watcher) == [("initial", [keys[0]])]
    table.change(keys[1], {"text": "haha1"})
    table.change(keys[0], {"text": "haha"})
    assert heard(watcher) == [("not-in-range", keys[0]), ("addition", keys[1], 0)]


def test_one_that_enters_a_filter_before_the_last_pushes_it_out(table: Items) -> None:
    keys = filled(table, (1, 2, 3))
    table.change(keys[1], {"text": "haha1"})
    watcher = begun(table.watch(where=FIELDS.text == "haha1", limit=1, allow_table_scan=True))
    table.change(keys[0], {"text": "haha1"})
    assert heard(watcher) == [("addition", keys[0], 0), ("not-in-range", keys[1])]


@pytest.mark.parametrize("down", [False, True], ids=["ascending", "descending"])
def test_an_ordered_window_lives_through_all_that_can_happen(table: Items, down: bool) -> None:
    sign = -1 if down else 1
    keys = filled(table, tuple(sign * value for value in (0, -10, 2, -5, 4)))
    watcher = table.watch(order=["-value" if down else "value"], limit=2)
    assert heard(watcher) == [("initial", [keys[1], keys[3]])]
    table.change(keys[1], {"text": "haha1"})
    assert heard(watcher) == [("change", keys[1], 0, 0)]
    table.change(keys[3], {"text": "haha3"})
    assert heard(watcher) == [("change", keys[3], 1, 1)]
    table.delete(keys[1])
    assert heard(watcher) == [("soft-delete", keys[1]), ("addition", keys[0], 1)]
    table.add(Item(number=10, value=sign * 50))
    assert heard(watcher) == []
    inside = table.add(Item(number=11, value=sign * -3)).key
    assert heard(watcher) == [("addition", inside, 1), ("not-in-range", keys[0])]
    table.change(inside, {"value": sign * -4})
    assert heard(watcher) == [("change", inside, 1, 1)]
    table.change(inside, {"value": sign * 40})
    assert heard(watcher) == [("not-in-range", inside), ("addition", keys[0], 1)]
    table.change(inside, {"value": sign * -4})
    assert heard(watcher) == [("not-in-range", keys[0]), ("addition", inside, 1)]
    top = table.add(Item(number=12, value=sign * -99)).key
    assert heard(watcher) == [("addition", top, 0), ("not-in-range", inside)]
    table.change(top, {"value": sign * -1})
    assert heard(watcher) == [("not-in-range", top), ("addition", inside, 1)]
    assert [record.key for record in watcher.window] == [keys[3], inside]


def test_one_that_moves_towards_the_end_stays_if_it_still_comes_first(table: Items) -> None:
    keys = filled(table, (1, 2, 30))
    watcher = begun(table.watch(order=["value"], limit=2))
    table.change(keys[0], {"value": 20})
    assert heard(watcher) == [("change", keys[0], 0, 1)]
    table.change(keys[0], {"value": 29})
    assert heard(watcher) == [("change", keys[0], 1, 1)]
    table.change(keys[0], {"value": 31})
    assert heard(watcher) == [("not-in-range", keys[0]), ("addition", keys[2], 1)]


def test_a_record_changes_into_an_empty_window(table: Items) -> None:
    keys = filled(table, (1, 2))
    watcher = table.watch(where=FIELDS.value > 10, order=["value"], limit=2)
    assert heard(watcher) == [("initial", [])]
    table.change(keys[1], {"value": 11})
    assert heard(watcher) == [("addition", keys[1], 0)]


def test_a_record_with_several_places_stands_at_its_first(table: Items) -> None:
    first = table.add(Item(number=1, value=0, tags={"k1"})).key
    watcher = begun(table.watch(order=["each(tags)"], limit=2))
    other = table.add(Item(number=2, value=0, tags={"k2", "k3"})).key
    assert heard(watcher) == [("addition", other, 1)]
    table.change(other, {"tags": {"k2", "k3", "k2x"}})
    table.change(other, {"tags": {"k2x", "k3"}})
    assert heard(watcher) == [("change", other, 1, 1), ("change", other, 1, 1)]
    third = table.add(Item(number=3, value=0, tags={"k2w", "k9"})).key
    assert heard(watcher) == [("addition", third, 1), ("not-in-range", other)]
    table.change(first, {"tags": None})
    assert heard(watcher) == [("not-in-range", first), ("addition", other, 1)]


def test_a_start_holds_when_the_window_runs_empty(table: Items) -> None:
    keys = filled(table, (1, 2, 3, 4))
    watcher = begun(table.watch(start=keys[1], order=["$key"], limit=1))
    table.delete(keys[1])
    assert heard(watcher) == [("soft-delete", keys[1]), ("addition", keys[2], 0)]
    table.delete(keys[2])
    assert heard(watcher) == [("soft-delete", keys[2]), ("addition", keys[3], 0)]
    table.undelete(keys[1])
    assert heard(watcher) == [("addition", keys[1], 0), ("not-in-range", keys[3])]


# The newest first


def test_what_is_changed_comes_to_the_front(listed: Items) -> None:
    keys = filled(listed)
    watcher = listed.watch(order=NEWEST_FIRST, limit=5)
    assert heard(watcher) == [("initial", list(reversed(keys)))]
    listed.change(keys[1], {"value": 9})
    assert heard(watcher) == [("change", keys[1], 3, 0)]


def test_a_new_front_pushes_the_oldest_out_first(listed: Items) -> None:
    keys = filled(listed)
    watcher = begun(listed.watch(order=NEWEST_FIRST, limit=2))
    listed.change(keys[1], {"value": 9})
    assert heard(watcher) == [("not-in-range", keys[3]), ("addition", keys[1], 0)]
    listed.change(keys[1], {"value": 10})
    assert heard(watcher) == [("change", keys[1], 0, 0)]


def test_the_next_newest_comes_when_the_newest_goes(listed: Items) -> None:
    keys = filled(listed)
    watcher = begun(listed.watch(order=NEWEST_FIRST, limit=1))
    listed.change(keys[4], {"value": 9})
    listed.delete(keys[4], hard=True)
    assert heard(watcher) == [("change", keys[4], 0, 0), ("hard-delete", keys[4]), ("addition", keys[3], 0)]


@pytest.mark.parametrize("at_once", [True, False], ids=["at once", "one by one"])
@pytest.mark.parametrize("order", ["value", "text"], ids=["along an index", "sorted"])
def test_many_that_go_are_followed_by_as_many_with_few_scans(
    store: Store, monkeypatch: pytest.MonkeyPatch, order: str, at_once: bool
) -> None:
    table = table_of(store, Item)
    keys = filled(table, tuple(range(150)))
    watcher = begun(table.watch(order=[order], limit=20, allow_table_scan=True))
    scans: list[Any] = []
    scan = Scanner.scan

    def counted(*given: Any, **options: Any) -> Any:
        scans.append(given)
        return scan(*given, **options)

    monkeypatch.setattr(Scanner, "scan", counted)
    if at_once:
        table.write([Delete(key) for key in keys[:100]])
    for key in [] if at_once else keys[:100]:
        table.delete(key)
        assert [one[0] for one in heard(watcher)] == ["soft-delete", "addition"]
    heard(watcher)
    assert [record.key for record in watcher.window] == keys[100:120]
    assert len(scans) <= 5


# Anything


WATCHED: list[dict[str, Any]] = [
    {},
    {"limit": 2},
    {"order": ["value"], "limit": 3},
    {"order": ["-value"], "limit": 1},
    {"order": ["-$key"], "limit": 2},
    {"where": FIELDS.value > 1, "order": ["value"], "limit": 2},
    {"where": FIELDS.text == "haha1", "limit": 2, "allow_table_scan": True},
    {"where": FIELDS.text == "haha1", "order": ["-text", "value"], "limit": 2, "allow_table_scan": True},
    {"order": ["each(tags)"], "limit": 2},
    {"order": ["-each(tags)"], "limit": 2},
    {"order": NEWEST_FIRST, "limit": 2},
]


@pytest.mark.parametrize("watched", WATCHED, ids=str)
@settings(max_examples=examples(50))
@given(before=OPERATIONS, after=OPERATIONS, ahead=st.sampled_from([1, 2, 64]))
@example(  # when the first change is read, the state has the record at another place already
    before=[],
    after=[
        *(("put", number, 0, "haha0", None) for number in range(4)),
        ("put", 2, 1, "haha0", None),
        ("put", 0, 1, "haha0", None),
        ("put", 2, 0, "haha0", None),
    ],
    ahead=64,
)
def test_a_listener_always_ends_with_what_a_scan_finds(
    watched: dict[str, Any], before: Any, after: Any, ahead: int
) -> None:
    """However far it was behind meanwhile; and each update fits what it had been told before."""
    store = holdfast.open("data", files=SimFiles(), clock=SimClock(), background=False)
    table = table_of(store, Item, keep_all_versions=True, update_history=True)
    for operation in before:
        carry_out(table, *operation)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WATCH_AHEAD, ahead)
        client = Client(table.watch(**watched))
    client.listen()
    assert client.keys == found(table, watched)
    for operation in after:
        carry_out(table, *operation)
        if operation[0] == "listen":
            client.listen()
            assert client.keys == found(table, watched)
    client.listen()
    assert client.keys == found(table, watched)
    assert [record.value for record in client.watcher.window] == [table.get(key).value for key in client.keys]


def found(table: Items, watched: dict[str, Any]) -> list[bytes]:
    if watched.get("order") is NEWEST_FIRST:
        return list(table.updates(**watched)[0].keys)
    return [record.key for record in table.scan(**watched)]
