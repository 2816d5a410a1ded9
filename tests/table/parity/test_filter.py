"""The suite's cases of filters, now and in the past."""

from datetime import UTC, date, datetime, time
from typing import Any

import pytest

from holdfast import none_of
from holdfast.table.query.expressions import Expression
from tests.table.parity.asking import Open, past_of
from tests.table.parity.models import Complex, Sample, sample

C: Any = Complex
S: Any = Sample
NOON = time(12)
A_DATE = date(2018, 9, 9)

TRUE: dict[str, Expression] = {
    "exists": S.string.exists(),
    "equals": S.string == "haha1",
    "prefix": S.string.prefix("ha"),
    "less": S.value < 6,
    "less or equal": S.value <= 5,
    "greater": S.value > 4,
    "greater or equal": S.value >= 5,
    "range, with its ends": S.value.between(5, 6) & S.value.between(4, 5),
    "regular expression": S.string.regex("ha.*1"),
    "one of": S.string.isin(["hi", "haha1"]),
    "not": ~(S.string == "haha"),
    "none of": none_of(S.string == "haha", S.value == 1),
    "and": (S.value == 5) & (S.string == "haha1"),
    "or": (S.value == 1) | (S.string == "haha1"),
    "entry of a dict": S.times[NOON] == "noon",
    "any value of a dict": S.times.any_value == "noon",
    "item of a list": S.names[1] == "v2",
    "any item of a list": S.names.any_item == "v2",
    "item of a set": S.dates.contains(A_DATE),
    "through a reference": S.reference.follow(Sample).string == "haha2",
}
FALSE: dict[str, Expression] = {
    "exists": S.embedded.exists(),
    "equals": S.string == "haha",
    "prefix": S.string.prefix("hi"),
    "less": S.value < 5,
    "less or equal": S.value <= 4,
    "greater": S.value > 5,
    "greater or equal": S.value >= 6,
    "range": S.value.between(1, 4),
    "regular expression, of the whole value": S.string.regex("ha"),
    "one of": S.string.isin(["hi", "ho"]),
    "not": ~(S.string == "haha1"),
    "none of": none_of(S.string == "haha", S.value == 5),
    "and": (S.value == 5) & (S.string == "haha"),
    "or": (S.value == 1) | (S.string == "haha"),
    "entry of a dict": S.times[NOON] == "midnight",
    "any value of a dict": S.times.any_value == "midnight",
    "item of a list": S.names[1] == "v1",
    "any item of a list": S.names.any_item == "v9",
    "item of a set": S.dates.contains(date(2000, 1, 1)),
    "through a reference": S.reference.follow(Sample).string == "haha1",
}


@pytest.fixture
def table(open_table: Open) -> Any:
    """One record, and another one that it refers to."""
    table = open_table(Sample)
    other = table.add(sample(2, string="haha2", value=0, at=datetime(2020, 1, 1, tzinfo=UTC))).key
    table.add(
        sample(1, string="haha1", dates={A_DATE}, times={NOON: "noon"}, names=["v1", "v2", "v3"], reference=other)
    )
    return table


def found(table: Any, where: Expression, **options: Any) -> bool:
    """Whether the first record is."""
    return 1 in [record.number for record in table.scan(where, allow_table_scan=True, **options)]


@pytest.mark.parametrize("where", TRUE.values(), ids=list(TRUE))
def test_a_record_is_found_by_what_is_true_of_it(table: Any, where: Expression) -> None:
    assert found(table, where)


@pytest.mark.parametrize("where", FALSE.values(), ids=list(FALSE))
def test_a_record_is_not_found_by_what_is_not_true_of_it(table: Any, where: Expression) -> None:
    assert not found(table, where)


@pytest.mark.parametrize("what", ["exists", "equals", "any value of a dict", "through a reference"])
def test_a_filter_is_true_from_the_version_on_that_made_it_so(table: Any, what: str) -> None:
    first = table.scan(S.number == 1).first().version
    with past_of(table):
        assert not found(table, TRUE[what], as_of=first - 1)
        assert found(table, TRUE[what], as_of=first + 1)


def test_a_filter_looks_into_dicts_of_texts(open_table: Open) -> None:
    table = open_table(Complex)
    key = table.add(Complex(texts={"k1": "v1", "k2": "v2"})).key
    table.add(Complex(texts={"k3": "v3"}))
    for where in (C.texts["k1"].exists(), C.texts["k1"] == "v1", C.texts.any_value == "v2"):
        assert [record.key for record in table.scan(where, allow_table_scan=True)] == [key]
