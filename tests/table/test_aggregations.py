"""Aggregations: what many objects come to."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from holdfast import Store
from holdfast.base.errors import InvalidArgument
from holdfast.table.model.fields import field
from holdfast.table.model.model import Model
from holdfast.table.query.aggregations import Aggregation
from tests.table.persons import Address, Level, Person, instant, person
from tests.table.things import Thing

P: Any = Person
PEOPLE = [
    person("Mous", "Jurriaan", age=40, balance=Decimal("0.10"), level=Level.DEBUG, seen=instant(1)),
    person("Kastens", "Karel", age=61, balance=Decimal("0.20"), level=Level.INFO, address=Address(city="Utrecht")),
    person("Kastens", "Ariel", balance=Decimal(5), level=Level.ERROR, tags={"vip"}, seen=instant(2)),
]


class Day(Model, id=111):
    day: date = field(1)
    lasted: timedelta = field(2)


def result(*records: Any, **asked: Any) -> dict[Any, Any]:
    aggregation = Aggregation(**asked)
    for record in records or PEOPLE:
        aggregation.feed(record)
    return aggregation.result()


def test_objects_and_values_are_counted() -> None:
    assert result(count=True) == {"count": 3}
    assert result(count="age") == {"count": 2}
    assert result(count="address") == {"count": 1}
    assert result(count=["age", "address.city"]) == {"count": {"age": 2, "address.city": 1}}


def test_numbers_are_added_up_exactly() -> None:
    assert result(sum="balance", average="age") == {"sum": Decimal("5.30"), "average": 50.5}
    assert result(sum=P.age) == {"sum": 101}


def test_the_least_and_the_greatest_are_found() -> None:
    assert result(min="age", max="balance") == {"min": 40, "max": Decimal(5)}
    assert result(min="level", max="level") == {"min": Level.INFO, "max": Level.ERROR}
    assert result(min="seen", max="surname") == {"min": instant(1), "max": "Mous"}


def test_stats_give_all_of_a_field_at_once() -> None:
    assert result(stats="age") == {"stats": {"count": 2, "sum": 101, "average": 50.5, "min": 40, "max": 61}}


def test_results_come_by_value_in_the_order_of_the_values() -> None:
    found = result(count=True, sum="age", by="surname")
    assert list(found.items()) == [("Kastens", {"count": 2, "sum": 61}), ("Mous", {"count": 1, "sum": 40})]
    assert list(result(count=True, by=P.level)) == [Level.INFO, Level.DEBUG, Level.ERROR]


def test_objects_without_a_value_to_group_by_come_last_under_none() -> None:
    assert list(result(count=True, by="age")) == [40, 61, None]
    assert result(count=True, by="address.city") == {"Utrecht": {"count": 1}, None: {"count": 2}}


def test_results_come_by_several_values_as_tuples() -> None:
    found = result(count=True, by=("surname", "age"))
    assert found == {("Kastens", 61): {"count": 1}, ("Kastens", None): {"count": 1}, ("Mous", 40): {"count": 1}}
    assert list(result(count=True, by=["surname"])) == [("Kastens",), ("Mous",)]


@pytest.mark.parametrize(
    ("unit", "start"),
    [
        ("minute", datetime(2025, 12, 31, 23, 59, tzinfo=UTC)),
        ("hour", datetime(2025, 12, 31, 23, tzinfo=UTC)),
        ("day", datetime(2025, 12, 31, tzinfo=UTC)),
        ("month", datetime(2025, 12, 1, tzinfo=UTC)),
        ("year", datetime(2025, 1, 1, tzinfo=UTC)),
    ],
)
def test_a_histogram_counts_by_time_in_utc(unit: str, start: datetime) -> None:
    local = datetime(2026, 1, 1, 1, 59, 30, tzinfo=timezone(timedelta(hours=2)))
    seen = [person(seen=local), person(seen=local.astimezone(UTC)), person(seen=instant(0)), person()]
    found = result(*seen, histogram=("seen", unit))["histogram"]
    assert found[start] == 2
    assert sum(found.values()) == 3
    assert list(found) == sorted(found)


def test_a_histogram_of_days_can_be_by_month_and_durations_can_be_added() -> None:
    days = [Day(day=date(2026, month, 5), lasted=timedelta(hours=month)) for month in (1, 1, 2)]
    assert result(*days, histogram=("day", "month"), sum="lasted", average="lasted") == {
        "sum": timedelta(hours=4),
        "average": timedelta(hours=4) / 3,
        "histogram": {date(2026, 1, 1): 2, date(2026, 2, 1): 1},
    }


def test_a_histogram_can_be_by_value_too() -> None:
    found = result(histogram=("seen", "hour"), by="surname")
    assert found["Mous"] == {"histogram": {datetime(2026, 7, 1, 12, tzinfo=UTC): 1}}


def test_of_no_objects_there_are_none_and_nothing_is_least() -> None:
    asked = Aggregation(count=True, sum="age", average="age", min="age", stats="balance")
    nothing = {"count": 0, "sum": 0, "average": None, "min": None, "max": None}
    assert asked.result() == {"count": 0, "sum": 0, "average": None, "min": None, "stats": nothing}
    assert Aggregation(count=True, by="age").result() == {}


def test_results_can_be_asked_for_between() -> None:
    aggregation = Aggregation(count=True)
    aggregation.feed(PEOPLE[0])
    assert aggregation.result() == {"count": 1}
    aggregation.feed(PEOPLE[1])
    assert aggregation.result() == {"count": 2}


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"count": False},
        {"sum": True},
        {"sum": "surname"},
        {"average": "level"},
        {"stats": "tags"},
        {"min": "tags"},
        {"sum": "nothing"},
        {"count": True, "by": "tags"},
        {"count": True, "by": "nothing"},
        {"histogram": ("seen", "week")},
        {"histogram": ("age", "day")},
    ],
)
def test_what_cannot_be_is_refused_before_the_first_object(asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Aggregation(**asked, spec=Person.__spec__)


def test_a_day_has_no_hours_for_a_histogram() -> None:
    with pytest.raises(InvalidArgument, match="day, month, year"):
        Aggregation(histogram=("day", "hour"), spec=Day.__spec__)


def test_a_field_that_does_not_exist_is_refused_where_there_is_nothing_too(store: Store) -> None:
    table = store.table(Thing)
    for wanted in ({"sum": "nope"}, {"count": True, "by": "nope"}, {"histogram": ("nope", "day")}):
        with pytest.raises(InvalidArgument, match="nope"):
            table.aggregate(**wanted)
