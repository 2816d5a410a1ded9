"""The suite's cases of changing nested values."""

from typing import Any

import pytest

from holdfast import DictEdit
from tests.table.parity.asking import Open
from tests.table.parity.models import Complex, Embedded

C: Any = Complex


def nested(*values: str) -> Embedded:
    """Models in each other, the outermost first."""
    first, *rest = values
    return Embedded(value=first, model=nested(*rest) if rest else None)


@pytest.fixture
def table(open_table: Open) -> Any:
    return open_table(Complex)


@pytest.fixture
def key(table: Any) -> bytes:
    made: bytes = table.add(
        Complex(
            multi=nested("u3", "ue3"),
            texts={"a": "b", "c": "d"},
            parts={1: nested("v1", "sub1"), 2: nested("v2", "sub2")},
            mixed={1: nested("m1", "m2", "m3"), 2: "string", 3: nested("n1", "n2", "n3")},
            counted={1: Embedded(value="o"), 2: Embedded(value="p")},
        )
    ).key
    return made


def test_a_union_is_removed(table: Any, key: bytes) -> None:
    table.change(key, {"multi": None})
    assert table.get(key).multi is None


def test_a_dict_of_models_is_removed(table: Any, key: bytes) -> None:
    table.change(key, {"parts": None})
    assert table.get(key).parts is None


def test_an_entry_of_a_dict_of_models_is_removed(table: Any, key: bytes) -> None:
    table.change(key, {C.parts[2]: None})
    assert table.get(key).parts == {1: nested("v1", "sub1")}


def test_a_field_of_an_entry_is_removed(table: Any, key: bytes) -> None:
    table.change(key, {C.parts[1].value: None})
    assert table.get(key).parts[1] == Embedded(value=None, model=Embedded(value="sub1"))


def test_models_inside_of_one_type_of_an_entry_are_removed(table: Any, key: bytes) -> None:
    table.change(key, {C.mixed[1].as_(Embedded).model.model: None, C.mixed[3].as_(Embedded).model: None})
    assert table.get(key).mixed == {1: nested("m1", "m2"), 2: "string", 3: nested("n1")}


def test_values_deep_inside_are_changed(table: Any, key: bytes) -> None:
    table.change(
        key,
        {
            C.mixed[1].as_(Embedded).model.value: "changed",
            C.mixed[2]: "other",
            C.parts[1].model.value: "deep",
            C.multi.as_(Embedded).model.value: "union",
        },
    )
    found = table.get(key)
    assert found.mixed == {1: nested("m1", "changed", "m3"), 2: "other", 3: nested("n1", "n2", "n3")}
    assert (found.parts[1], found.multi) == (nested("v1", "deep"), nested("u3", "union"))


def test_an_entry_is_put_into_an_absent_dict_of_models(table: Any) -> None:
    key = table.add(Complex()).key
    table.change(key, {C.parts[5]: nested("v5")})
    assert table.get(key).parts == {5: nested("v5")}


def test_a_union_and_three_dicts_are_replaced_as_a_whole(table: Any, key: bytes) -> None:
    new = {"multi": "text", "texts": {"e": "f"}, "parts": {4: nested("x")}, "mixed": {5: 7, 6: "six"}}
    table.change(key, new)
    assert {name: getattr(table.get(key).value, name) for name in new} == new


def test_models_appended_to_a_counted_dict_get_the_next_keys(table: Any, key: bytes) -> None:
    done = table.change(key, {"counted": DictEdit(append=[nested("q"), nested("r")])})
    assert done.given == {"counted": [3, 4]}
    assert table.get(key).counted == {1: nested("o"), 2: nested("p"), 3: nested("q"), 4: nested("r")}
