"""The suite's cases of indexes over the keys of dicts and the items of sets."""

from typing import Any

import pytest

from holdfast import DictEdit, SetEdit
from tests.table.following import heard
from tests.table.parity.asking import Open
from tests.table.parity.models import ByCount, ByItem, ByKey

K: Any = ByKey
C: Any = ByCount
I: Any = ByItem  # noqa: E741


def names(records: Any) -> list[str]:
    return [record.name for record in records]


@pytest.fixture
def by_key(open_table: Open) -> Any:
    table = open_table(ByKey)
    for name, keys in {"b": ["k2"], "a": ["k1"], "c": ["k3"]}.items():
        table.add(ByKey(name=name, places=dict.fromkeys(keys, "v")))
    return table


@pytest.fixture
def by_count(open_table: Open) -> Any:
    table = open_table(ByCount)
    for name, count in {"a": 2, "b": 1, "c": 3}.items():
        table.add(ByCount(name=name, places={count: "v"}))
    return table


@pytest.fixture
def by_item(open_table: Open) -> Any:
    """One of them has two items: it stands first and last."""
    table = open_table(ByItem)
    for name, items in {"a": {"s3"}, "b": {"s1"}, "c": {"s2"}, "d": {"s0", "s4"}}.items():
        table.add(ByItem(name=name, places=items))
    return table


def test_keys_of_a_dict_give_an_order(by_key: Any) -> None:
    assert names(by_key.scan(order=["keys(places)"])) == ["a", "b", "c"]


def test_counted_keys_give_an_order(by_count: Any) -> None:
    assert names(by_count.scan(order=["-keys(places)"])) == ["c", "a", "b"]
    assert names(by_count.scan(order=["keys(places)"])) == ["b", "a", "c"]


def test_items_of_a_set_give_an_order_in_which_each_record_comes_once(by_item: Any) -> None:
    assert names(by_item.scan(order=["each(places)"])) == ["d", "b", "c", "a"]


def test_a_key_of_a_dict_is_found_by_its_index(by_key: Any) -> None:
    for where in (K.places.any_key == "k2", K.places.contains("k2")):
        scan = by_key.scan(where)
        assert (names(scan), scan.plan.kind) == (["b"], "index")


def test_a_counted_key_is_found_by_its_index(by_count: Any) -> None:
    scan = by_count.scan(C.places.any_key == 3)
    assert (names(scan), scan.plan.kind) == (["c"], "index")


def test_an_item_of_a_set_is_found_by_its_index(by_item: Any) -> None:
    for where in (I.places.any_item == "s2", I.places.contains("s2")):
        scan = by_item.scan(where)
        assert (names(scan), scan.plan.kind) == (["c"], "index")


def test_a_record_with_two_keys_is_found_by_each(by_key: Any) -> None:
    by_key.add(ByKey(name="two", places={"k8": "v", "k9": "v"}))
    assert names(by_key.scan(K.places.any_key == "k8")) == names(by_key.scan(K.places.any_key == "k9")) == ["two"]


def test_a_record_with_two_items_is_found_by_each(by_item: Any) -> None:
    assert names(by_item.scan(I.places.any_item == "s0")) == names(by_item.scan(I.places.any_item == "s4")) == ["d"]


@pytest.mark.parametrize(
    ("order", "expected"),
    [("each(places)", ["d", "b", "c", "a"]), ("-each(places)", ["d", "a", "c", "b"])],
    ids=["ascending", "descending"],
)
def test_pages_of_one_have_each_record_once(by_item: Any, order: str, expected: list[str]) -> None:
    seen, cursor = [], None
    while True:
        page = by_item.scan(order=[order], limit=1, cursor=cursor)
        seen += names(page)
        if (cursor := page.cursor) is None:
            break
    assert seen == expected


def test_behind_a_record_it_does_not_come_again_by_a_later_item(by_item: Any) -> None:
    first = by_item.scan(order=["each(places)"]).first().key
    assert names(by_item.scan(order=["each(places)"], start=first, include_start=False)) == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("where", "expected"), [(I.name == "c", ["c"]), (I.places.any_item.between("s2", "s3"), ["c", "a"])], ids=str
)
def test_a_start_that_the_filter_does_not_let_through_is_still_the_start(
    by_item: Any, where: Any, expected: list[str]
) -> None:
    start = by_item.scan(I.places.any_item == "s1").first().key
    asked = {"where": where, "order": ["each(places)"], "start": start, "allow_table_scan": True}
    assert names(by_item.scan(**asked)) == expected
    assert names(by_item.get_many(by_item.updates(**asked)[0].keys)) == expected


def test_updates_have_each_record_at_its_first_item(by_item: Any) -> None:
    order, *additions = by_item.updates(order=["each(places)"])
    assert names(by_item.get_many(order.keys)) == ["d", "b", "c", "a"]
    assert {one.record.name: one.index for one in additions} == {"d": 0, "b": 1, "c": 2, "a": 3}


def test_a_record_that_comes_before_the_start_is_not_heard_of_by_its_later_item(open_table: Open) -> None:
    table = open_table(ByItem)
    start = table.add(ByItem(name="b", places={"s1"})).key
    watcher = table.watch(order=["each(places)"], start=start, include_start=False)
    table.add(ByItem(name="d", places={"s0", "s4"}))
    later = table.add(ByItem(name="e", places={"s4"})).key
    assert heard(watcher) == [("initial", []), ("addition", later, 0)]


def test_a_window_follows_the_items_of_its_records(open_table: Open) -> None:
    table = open_table(ByKey)
    first = table.add(ByKey(name="a", places={"k1": "v"})).key
    other = table.add(ByKey(name="b", places={"k2": "v", "k3": "v"})).key
    watcher = table.watch(order=["keys(places)"], limit=2)
    assert heard(watcher) == [("initial", [first, other])]
    table.change(other, {K.places["k2x"]: "v"})
    table.change(other, {K.places["k2"]: None})
    assert heard(watcher) == [("change", other, 1, 1), ("change", other, 1, 1)]
    new = table.add(ByKey(name="c", places={"k2w": "v"})).key
    assert heard(watcher) == [("addition", new, 1), ("not-in-range", other)]


def test_a_new_key_of_a_dict_is_found(by_key: Any) -> None:
    key = by_key.scan(K.places.any_key == "k1").first().key
    by_key.change(key, {K.places["k7"]: "v"})
    assert names(by_key.scan(K.places.any_key == "k7")) == ["a"]


def test_a_new_counted_key_is_found(by_count: Any) -> None:
    key = by_count.scan(C.places.any_key == 3).first().key
    by_count.change(key, {"places": DictEdit(append=["v"])})
    assert names(by_count.scan(C.places.any_key == 4)) == ["c"]


def test_a_new_item_of_a_set_is_found(by_item: Any) -> None:
    key = by_item.scan(I.places.any_item == "s1").first().key
    by_item.change(key, {"places": SetEdit(add=["s9"])})
    assert names(by_item.scan(I.places.any_item == "s9")) == ["b"]
