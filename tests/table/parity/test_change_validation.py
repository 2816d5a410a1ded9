"""The suite's cases of changes that may not be: each is told, and the record stays as it was."""

from collections.abc import Iterator
from datetime import date, time
from typing import Any

import pytest

from holdfast import DictEdit, ListEdit, SetEdit, ValidationFailed, Violation
from tests.table.parity.asking import Open
from tests.table.parity.models import Sample, sample

S: Any = Sample
LONG = "far too long a text"


def record() -> Sample:
    """With something in each collection."""
    return sample(
        dates={date(2018, 9, 9), date(1981, 12, 5)},
        times={time(12): "noon", time(13): "one"},
        names=["a", "b", "c"],
    )


@pytest.fixture
def refused(open_table: Open) -> Iterator[Any]:
    """Makes a change that may not be; what is wrong with it. The record must be as it was, at the end too."""
    table = open_table(Sample)
    key = table.add(record()).key
    before = table.get(key)

    def change(changes: dict[Any, Any]) -> list[Violation]:
        with pytest.raises(ValidationFailed) as error:
            table.change(key, changes)
        return list(error.value.violations)

    yield change
    assert table.get(key) == before


def rules(found: list[Violation]) -> list[tuple[str, str]]:
    return [(one.path, one.rule) for one in found]


def test_a_text_must_match(refused: Any) -> None:
    assert rules(refused({"string": "wrong"})) == [("string", "pattern")]


def test_a_final_field_cannot_be_removed(refused: Any) -> None:
    assert ("number", "final") in rules(refused({"number": None}))


def test_a_list_may_not_get_too_long(refused: Any) -> None:
    (found,) = refused({"names": ListEdit(append=list("defghi"))})
    assert (found.path, found.rule, len(found.value)) == ("names", "max_length", 9)


def test_an_item_of_a_list_may_not_be_too_long(refused: Any) -> None:
    assert rules(refused({S.names[0]: LONG})) == [("names[0]", "max_length")]


def test_a_set_may_not_get_too_large(refused: Any) -> None:
    (found,) = refused({"dates": SetEdit(add=[date(2000, 1, day) for day in range(1, 5)])})
    assert (found.path, found.rule, len(found.value)) == ("dates", "max_length", 6)


def test_an_item_of_a_set_may_not_be_out_of_range(refused: Any) -> None:
    (found,) = refused({"dates": SetEdit(add=[date(2101, 12, 31)])})
    assert (found.path, found.rule, found.value) == ("dates{2101-12-31}", "max", date(2101, 12, 31))


def test_a_dict_may_not_get_too_large(refused: Any) -> None:
    (found,) = refused({"times": DictEdit(put={time(hour): "a" for hour in range(4)})})
    assert (found.path, found.rule, len(found.value)) == ("times", "max_length", 6)


def test_a_wrong_key_and_its_wrong_value_are_both_told_in_this_order(refused: Any) -> None:
    found = refused({S.times[time(23, 52, 53)]: LONG})
    assert rules(found) == [("times<23:52:53>", "max"), ("times[23:52:53]", "max_length")]


def test_a_list_may_not_get_too_short(refused: Any) -> None:
    (found,) = refused({"names": ListEdit(remove=["a", "b", "c"])})
    assert (found.path, found.rule, found.value) == ("names", "min_length", [])
