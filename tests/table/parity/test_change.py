"""The suite's cases of changing a record."""

from datetime import date, time
from typing import Any

import pytest

from holdfast import DictEdit, ListEdit, SetEdit, ValidationFailed
from holdfast.table import Change, Done
from tests.table.following import begun
from tests.table.parity.asking import Open, broken
from tests.table.parity.models import Embedded, Sample, sample

S: Any = Sample
DATES = {date(2018, 9, 9), date(1981, 12, 5), date(1989, 5, 15)}
TIMES = {time(12, 33, 45): "another1", time(13, 44, 55): "another2"}


@pytest.fixture
def table(open_table: Open) -> Any:
    return open_table(Sample)


def full() -> Sample:
    """With a value in each of the fields that may be absent."""
    return sample(
        numbers=[3, 4, 5],
        dates=DATES,
        times=TIMES,
        embedded=Embedded(value="test"),
        multi="a text",
        names=["f", "g", "h"],
        words={"green", "red"},
    )


def test_each_operation_of_a_request_is_checked_and_answered_by_itself(table: Any) -> None:
    added = table.add(sample())
    outcomes = table.write(
        [
            Change(added.key, check={"string": "haha"}, if_version=added.version),
            Change(added.key, check={"string": "wrong"}),
            Change(added.key, if_version=123),
        ]
    )
    assert isinstance(outcomes[0], Done)
    assert [broken(one) for one in outcomes[1:]] == [[("string", "check")], [("", "version")]]


def test_one_change_sets_values_of_every_kind(table: Any) -> None:
    key = table.add(full()).key
    table.change(
        key,
        {
            "string": "haha3",
            S.names[0]: "z",
            S.times[time(12, 33, 45)]: "test",
            "numbers": [1, 2, 3, 4, 5],
            "dates": {date(2019, 1, 19)},
            "embedded": Embedded(value="other", model=Embedded(value="inner")),
        },
    )
    found = table.get(key)
    assert (found.string, found.names[0], found.times[time(12, 33, 45)]) == ("haha3", "z", "test")
    assert (found.numbers, found.dates) == ([1, 2, 3, 4, 5], {date(2019, 1, 19)})
    assert found.embedded == Embedded(value="other", model=Embedded(value="inner"))


def test_what_lies_in_an_absent_value_cannot_be_changed(table: Any) -> None:
    key = table.add(sample()).key
    for path in (S.names[0], S.embedded.value):
        with pytest.raises(ValidationFailed) as error:
            table.change(key, {path: "z"})
        assert broken(error.value) == [(str(path), "absent")]
    assert table.get(key).value == sample()


def test_an_entry_makes_the_dict_that_it_is_put_into(table: Any) -> None:
    key = table.add(sample()).key
    table.change(key, {S.times[time(12)]: "noon"})
    assert table.get(key).times == {time(12): "noon"}


def test_none_removes_a_value_that_may_be_absent(table: Any) -> None:
    key = table.add(full()).key
    table.change(key, {"reference": key})
    table.change(key, {"reference": None})
    assert table.get(key).reference is None


@pytest.mark.parametrize("name", ["times", "names", "numbers", "dates", "multi", "embedded"])
def test_none_removes_a_whole_collection_union_or_model(table: Any, name: str) -> None:
    key = table.add(full()).key
    table.change(key, {name: None})
    assert getattr(table.get(key).value, name) is None


def test_none_removes_an_entry_and_an_item(table: Any) -> None:
    key = table.add(full()).key
    table.change(key, {S.times[time(12, 33, 45)]: None, S.names[1]: None, "dates": SetEdit(remove=[date(2018, 9, 9)])})
    found = table.get(key)
    assert (len(found.times), found.names, len(found.dates), found.multi) == (1, ["f", "h"], 2, "a text")


def test_one_type_of_a_union_cannot_be_removed(table: Any) -> None:
    key = table.add(full()).key
    with pytest.raises(ValidationFailed) as error:
        table.change(key, {S.multi.as_(str): None})
    assert broken(error.value) == [("multi:str", "type")]
    assert table.get(key).multi == "a text"


def test_an_edit_of_a_list_deletes_then_inserts_then_appends(table: Any) -> None:
    key = table.add(sample(names=["a", "b", "c"])).key
    table.change(key, {S.names[1]: None})
    table.change(key, {"names": ListEdit(remove=["c"], insert={0: "zero"}, append=["x", "y", "z"])})
    assert table.get(key).names == ["zero", "a", "x", "y", "z"]


def test_an_edit_of_a_set_takes_and_adds(table: Any) -> None:
    key = table.add(full()).key
    table.change(key, {"dates": SetEdit(remove=[date(2018, 9, 9)], add=[date(2001, 9, 11)])})
    assert table.get(key).dates == DATES - {date(2018, 9, 9)} | {date(2001, 9, 11)}


def test_entries_are_added_to_a_dict_and_taken(table: Any) -> None:
    key = table.add(full()).key
    table.change(key, {S.times[time(1)]: "one", S.times[time(2)]: "two", S.times[time(12, 33, 45)]: None})
    assert table.get(key).times == {time(13, 44, 55): "another2", time(1): "one", time(2): "two"}


SAME: dict[str, dict[Any, Any]] = {
    "taken and put back": {"names": ListEdit(remove=["f"], insert={0: "f"})},
    "written again": {"names": ["f", "g", "h"], "times": dict(TIMES)},
}


@pytest.mark.parametrize("changes", SAME.values(), ids=list(SAME))
def test_what_comes_to_the_same_is_a_success_at_the_old_version(table: Any, changes: dict[Any, Any]) -> None:
    added = table.add(full())
    assert table.change(added.key, changes) == Done(added.key, added.version, changed=False)
    assert table.get(added.key).version == added.version


def test_what_changes_nothing_is_neither_heard_nor_listed(table: Any) -> None:
    added = table.add(full())
    watcher = begun(table.watch(keys=[added.key]))
    table.change(added.key, {"string": "haha"})
    assert watcher.poll() is None
    if table.settings.update_history:
        assert [one.version for one in table.update_history()] == [added.version]


def test_values_appended_to_a_counted_dict_get_the_next_keys(table: Any) -> None:
    key = table.add(sample(counted={1: "a", 2: "b"})).key
    done = table.change(key, {S.counted[1]: "newA", S.counted[2]: None, "counted": DictEdit(append=["c", "d"])})
    assert done.given == {"counted": [3, 4]}
    assert table.get(key).counted == {1: "newA", 3: "c", 4: "d"}


def test_values_appended_to_an_empty_counted_dict_get_keys_from_1_on(table: Any) -> None:
    key = table.add(sample(counted={})).key
    assert table.change(key, {"counted": DictEdit(append=["a", "b"])}).given == {"counted": [1, 2]}
    assert table.get(key).counted == {1: "a", 2: "b"}
