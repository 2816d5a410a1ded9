"""NaN in a table: it is equal to NaN."""

import math
from typing import Any

import pytest

from holdfast import Store
from holdfast.table import Change, DictEdit, Done, Index, ListEdit, Model, SetEdit, Table, ValidationFailed, field

NAN, OTHER_NAN = math.nan, -math.nan


class Sample(Model, id=1):
    """A measurement."""

    serial: float | None = field(1, unique=True, default=None)
    value: float | None = field(2, default=None)
    series: list[float] = field(4, default_factory=list)
    by_name: dict[str, float] = field(5, default_factory=dict)
    plain: float | None = field(6, default=None)
    several: set[float] = field(7, default_factory=set)
    by_number: dict[float, str] = field(8, default_factory=dict)
    __indexes__ = (Index("value"),)


def sample(**values: Any) -> Sample:
    return Sample(**values)


@pytest.fixture
def samples(store: Store) -> Table[Sample]:
    return store.table(Sample, keep_all_versions=True)


def test_nan_over_nan_is_no_change(samples: Table[Sample]) -> None:
    full: dict[str, Any] = {"serial": NAN, "value": NAN, "series": [1.0, NAN], "by_name": {"a": NAN}}
    key = samples.add(Sample(**full)).key
    end = samples.log.end
    again: dict[str, Any] = {
        "serial": OTHER_NAN,
        "value": float("nan"),
        "series": [1.0, float("nan")],
        "by_name": {"a": float("nan")},
    }
    outcomes = samples.write([Change(key, again, check={"value": float("nan")})])
    assert [outcome.changed for outcome in outcomes if isinstance(outcome, Done)] == [False]
    assert samples.log.end == end
    for name, value in {"series": [1.0, 2.0], "by_name": {"a": 1.0}, "value": 1.0}.items():
        assert samples.change(key, {name: value}).changed


def test_nan_in_a_unique_field_conflicts_with_nan_and_is_found_again(samples: Table[Sample]) -> None:
    key = samples.add(Sample(serial=NAN)).key
    samples.add(Sample(serial=1.0))
    with pytest.raises(ValidationFailed, match="another record has this serial"):
        samples.add(Sample(serial=float("nan")))
    assert [record.key for record in samples.scan(Sample.serial == OTHER_NAN)] == [key]
    samples.change(key, {"serial": 2.0})
    samples.add(Sample(serial=float("nan")))


@pytest.mark.parametrize("name", ["value", "plain"])
def test_nan_is_found_by_equality_with_an_index_and_without(samples: Table[Sample], name: str) -> None:
    key = samples.add({name: float("nan")}).key
    samples.add({name: 1.0})
    samples.add(Sample())
    path = getattr(Sample, name)
    found = [record.key for record in samples.scan(path == OTHER_NAN, allow_table_scan=True)]
    assert found == [key]
    assert [record.key for record in samples.scan(path.isin([float("nan"), float(7)]), allow_table_scan=True)] == [key]
    assert samples.count((path != OTHER_NAN) & path.exists(), allow_table_scan=True) == 1
    assert samples.count(path > float(0), allow_table_scan=True) == 1


def new_nan() -> float:
    return float("nan")


def test_nan_in_lists_sets_and_dicts_is_edited_as_one_value(samples: Table[Sample]) -> None:
    key = samples.add(Sample(series=[1.0, new_nan()], several={2.0, new_nan()}, by_number={new_nan(): "a"})).key
    end = samples.log.end
    assert not samples.change(key, {"by_number": {new_nan(): "a"}, "several": SetEdit(add=[new_nan()])}).changed
    assert samples.log.end == end
    samples.change(key, {"by_number": DictEdit(put={new_nan(): "b"})})
    record = samples.get(key)
    assert record is not None and list(record.by_number.values()) == ["b"]
    edits = {
        "series": ListEdit(remove=[new_nan()]),
        "several": SetEdit(remove=[new_nan()]),
        "by_number": DictEdit(remove=[new_nan()]),
    }
    assert samples.change(key, edits).changed
    record = samples.get(key)
    assert record is not None and (record.series, record.several, record.by_number) == ([1.0], {2.0}, {})


def test_values_that_hold_nan_can_be_checked_and_found(samples: Table[Sample]) -> None:
    key = samples.add(Sample(series=[1.0, new_nan()], several={new_nan()}, by_name={"a": new_nan()})).key
    samples.add(Sample(series=[1.0, 2.0]))
    check = {"series": [1.0, new_nan()], "several": {new_nan()}, "by_name": {"a": new_nan()}}
    assert samples.change(key, {"plain": 1.0}, check=check).changed
    with pytest.raises(ValidationFailed, match="as check requires"):
        samples.change(key, {"plain": 2.0}, check={"series": [new_nan(), 1.0]})
    found = samples.scan(Sample.series == [1.0, new_nan()], allow_table_scan=True)
    assert [record.key for record in found] == [key]
    assert samples.count(Sample.several == {new_nan()}, allow_table_scan=True) == 1


@pytest.mark.parametrize("order", [(new_nan(), 1.0, 2.0), (1.0, new_nan(), 2.0), (2.0, 1.0, new_nan())])
def test_nan_is_one_group_and_the_greatest_value(samples: Table[Sample], order: tuple[float, ...]) -> None:
    for value in order:
        samples.add(Sample(value=value, plain=new_nan()))
    found = samples.aggregate(min="value", max="value")
    assert found["min"] == 1.0 and math.isnan(found["max"])
    assert [group["count"] for group in samples.aggregate(count=True, by="plain").values()] == [3]
