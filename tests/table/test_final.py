"""Does what is final stay as it was, however deep inside of a record?"""

from typing import Any

import pytest

from holdfast import ListEdit, Model, Store, ValidationFailed, field
from holdfast.table import Table


class Line(Model):
    sku: str = field(1, final=True)
    count: int = field(2, default=1)


class Card(Model, tag=1):
    number: str = field(1, final=True)


class Cash(Model, tag=2):
    coins: int = field(1)


class Parcel(Model):
    lines: list[Line] = field(1)


class Order(Model, id=161):
    lines: list[Line] = field(1)
    extras: dict[str, Line] = field(2)
    paid: Card | Cash | None = field(3, default=None)
    parcels: dict[str, Parcel] = field(4, default_factory=dict)


FIELDS: Any = Order


@pytest.fixture
def orders(store: Store) -> Table[Order]:
    return store.table(Order)


@pytest.fixture
def key(orders: Table[Order]) -> bytes:
    order = Order(
        lines=[Line(sku="a"), Line(sku="b")],
        extras={"gift": Line(sku="g")},
        paid=Card(number="1"),
        parcels={"x": Parcel(lines=[Line(sku="p")])},
    )
    return orders.add(order).key


@pytest.mark.parametrize(
    ("path", "value", "violation"),
    [
        (FIELDS.lines[1].sku, "c", "lines[1].sku"),
        (FIELDS.lines[1], Line(sku="c"), "lines[1].sku"),
        (FIELDS.extras["gift"].sku, "c", "extras[gift].sku"),
        (FIELDS.extras["gift"], Line(sku="c"), "extras[gift].sku"),
        ("extras", {"gift": Line(sku="c")}, "extras[gift].sku"),
        ("paid:Card.number", "2", "paid.number"),
        ("paid", Card(number="2"), "paid.number"),
        (FIELDS.parcels["x"].lines[0].sku, "c", "parcels['x'].lines[0].sku"),
    ],
    ids=str,
)
def test_what_is_final_inside_cannot_be_changed(
    orders: Table[Order], key: bytes, path: Any, value: Any, violation: str
) -> None:
    with pytest.raises(ValidationFailed) as error:
        orders.change(key, {path: value})
    assert [(one.path, one.rule) for one in error.value.violations] == [(violation, "final")]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (FIELDS.lines[1].count, 2),
        (FIELDS.lines[1], Line(sku="b", count=2)),
        (FIELDS.lines[0], None),
        ("lines", [Line(sku="c")]),
        ("lines", ListEdit(insert={0: Line(sku="c")})),
        (FIELDS.extras["gift"].count, 2),
        (FIELDS.extras["gift"], None),
        (FIELDS.extras["other"], Line(sku="c")),
        ("paid", Cash(coins=3)),
        ("paid", None),
    ],
    ids=str,
)
def test_what_is_not_the_same_any_more_may_have_something_else(
    orders: Table[Order], key: bytes, path: Any, value: Any
) -> None:
    assert orders.change(key, {path: value}).changed


def test_an_item_that_moves_up_is_not_taken_for_the_one_that_was_removed(orders: Table[Order], key: bytes) -> None:
    orders.change(key, {FIELDS.lines[0]: None, FIELDS.lines[0].count: 5})
    found = orders.get(key)
    assert found is not None and found.lines == [Line(sku="b", count=5)]
