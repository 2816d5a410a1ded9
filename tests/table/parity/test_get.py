"""The suite's cases of getting and selecting."""

from tests.table.parity.asking import Open, added, past_of
from tests.table.parity.models import Complete, Embedded, Simple


def test_records_come_in_the_order_of_the_keys_asked_for(open_table: Open) -> None:
    table = open_table(Simple)
    first, second = added(table, [Simple(value="haha1"), Simple(value="haha2")])
    assert [record.key for record in table.get_many([second, first])] == [second, first]


def test_values_are_counted(open_table: Open) -> None:
    table = open_table(Simple)
    added(table, [Simple(value="haha1"), Simple(value="haha2")])
    assert table.aggregate(count="value") == {"count": 2}


def test_before_the_first_version_there_are_no_records(open_table: Open) -> None:
    table = open_table(Simple)
    keys = added(table, [Simple(), Simple()])
    before = min(record.version for record in table.get_many(keys)) - 1
    with past_of(table):
        assert table.get_many(keys, as_of=before) == []


def test_only_selected_values_are_given(open_table: Open) -> None:
    table = open_table(Simple)
    key = table.add(Simple(value="haha1")).key
    found = table.get(key, select=["value"])
    assert (found.key, found.version, found.value) == (key, table.last_version, {"value": "haha1"})
    assert table.get_many([key], select=["value"]) == [found]


def test_a_selection_fills_in_no_defaults(open_table: Open) -> None:
    table = open_table(Complete)
    table.add(Complete(number=7))
    (record,) = table.scan(select=["number", "part"])
    assert record.value == {"number": 7, "part": Embedded(value="a value")}
