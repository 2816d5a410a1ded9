"""Validation: every rule, every place, all at once."""

import datetime as dt
from decimal import Decimal
from enum import Flag, IntEnum
from typing import Annotated, Any

import pytest

from holdfast.base.errors import HoldfastError
from holdfast.table import Limits, Model, ValidationFailed, Violation, field, validate, validate_field
from holdfast.table.model.types import FieldType, Kind
from holdfast.table.model.validation import check_of


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Part(Model, tag=1):
    size: int = field(1, min=1)


class Other(Model, tag=2):
    size: int = field(1)


class Thing(Model, id=1):
    name: str = field(1, min_length=2, max_length=5, pattern="[a-z]+")
    count: int = field(2, default=0, min=0, max=6)
    ratio: float = field(3, default=0.5, max=1)
    price: Decimal = field(4, default=Decimal(1), min=Decimal("0.5"))
    at: dt.datetime = field(5, default=dt.datetime(2024, 1, 1, tzinfo=dt.UTC))
    day: dt.date = field(6, default=dt.date(2024, 1, 1), max=dt.date(2100, 12, 31))
    clock: dt.time = field(7, default=dt.time(1))
    level: Level = field(8, default=Level.LOW)
    names: list[str] = field(9, default_factory=list, max_length=2, items=Limits(max_length=3))
    marks: set[str] = field(10, default_factory=set, items=Limits(max_length=3))
    limits: dict[str, int] = field(11, default_factory=dict, keys=Limits(max_length=3), values=Limits(max=9))
    part: Part | None = field(12, default=None)
    parts: list[Part] = field(13, default_factory=list)
    either: Part | Other | int | None = field(14, default=None)
    deep: dict[int, list[Annotated[int, Limits(max=3)]]] = field(15, default_factory=dict)
    raw: bytes = field(16, default=b"", max_length=2)
    yes: bool = field(17, default=True)


def broken(**given: Any) -> list[tuple[str, str]]:
    """Place and rule of each violation."""
    with pytest.raises(ValidationFailed) as caught:
        Thing(**{"name": "abc", **given})
    return [(one.path, one.rule) for one in caught.value.violations]


@pytest.mark.parametrize(
    ("given", "violations"),
    [
        ({"name": None}, [("name", "required")]),
        ({"name": "a"}, [("name", "min_length")]),
        ({"name": "abcdef"}, [("name", "max_length")]),
        ({"name": "ab\n"}, [("name", "pattern")]),
        ({"name": "A"}, [("name", "min_length"), ("name", "pattern")]),
        ({"name": "\ud800x"}, [("name", "type")]),
        ({"count": "5"}, [("count", "type")]),
        ({"count": True}, [("count", "type")]),
        ({"count": 1.0}, [("count", "type")]),
        ({"count": 7}, [("count", "max")]),
        ({"count": -1}, [("count", "min")]),
        ({"count": 2**64}, [("count", "max")]),
        ({"count": -(2**63) - 1}, [("count", "min")]),
        ({"ratio": 2}, [("ratio", "max")]),
        ({"ratio": float("nan")}, [("ratio", "max")]),
        ({"ratio": True}, [("ratio", "type")]),
        ({"price": 1}, [("price", "type")]),
        ({"price": Decimal("nan")}, [("price", "type")]),
        ({"price": Decimal("0.4")}, [("price", "min")]),
        ({"at": dt.datetime(2024, 1, 1)}, [("at", "aware")]),
        ({"at": dt.date(2024, 1, 1)}, [("at", "type")]),
        ({"day": dt.datetime(2024, 1, 1)}, [("day", "type")]),
        ({"day": dt.date(2101, 12, 31)}, [("day", "max")]),
        ({"clock": dt.time(1, tzinfo=dt.UTC)}, [("clock", "aware")]),
        ({"level": 1}, [("level", "enum")]),
        ({"names": ("a",)}, [("names", "type")]),
        ({"names": ["abcd", 1]}, [("names[0]", "max_length"), ("names[1]", "type")]),
        ({"names": ["a", "abcd", "c"]}, [("names[1]", "max_length"), ("names", "max_length")]),
        ({"names": [None]}, [("names[0]", "type")]),
        ({"marks": {"long"}}, [("marks{long}", "max_length")]),
        ({"limits": {"long": 10}}, [("limits<long>", "max_length"), ("limits[long]", "max")]),
        ({"part": 5}, [("part", "type")]),
        ({"part": Other(size=1)}, [("part", "type")]),
        ({"either": "x"}, [("either", "type")]),
        ({"deep": {1: [3, 4]}}, [("deep[1][1]", "max")]),
        ({"raw": b"abc"}, [("raw", "max_length")]),
        ({"raw": "ab"}, [("raw", "type")]),
        ({"yes": 1}, [("yes", "type")]),
        ({"wrong": 1}, [("wrong", "unknown")]),
    ],
)
def test_a_value_that_breaks_a_rule_is_named_with_its_place(
    given: dict[str, Any], violations: list[tuple[str, str]]
) -> None:
    assert broken(**given) == violations


def test_all_violations_come_at_once_with_field_rule_and_value() -> None:
    with pytest.raises(ValidationFailed) as caught:
        Thing(count="x", colour=1, yes=None)  # type: ignore[call-arg, arg-type]
    found = caught.value.violations
    assert [(one.path, one.rule, one.value) for one in found] == [
        ("colour", "unknown", 1), ("name", "required", None), ("count", "type", "x"), ("yes", "required", None)
    ]  # fmt: skip
    assert "Thing has 4 violations" in str(caught.value)
    assert "count is 'x' of type str, and must be int (type)" in str(caught.value)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, HoldfastError)


def test_good_values_of_every_kind_are_taken() -> None:
    zone = dt.timezone(dt.timedelta(hours=2))
    good = Thing(
        name="abc", count=6, ratio=1, price=Decimal("0.5"), at=dt.datetime(2024, 1, 1, tzinfo=zone), level=Level.HIGH,
        names=["a", "b"], limits={"a": 9}, part=Part(size=1), parts=[Part(size=2)], either=Other(size=-1),
        deep={1: [3]},
    )  # fmt: skip
    assert validate(good) == []


def test_what_was_edited_afterwards_is_found_too_inside_of_embedded_models() -> None:
    thing = Thing(name="abc", part=Part(size=1), parts=[Part(size=1)], either=Part(size=1))
    assert thing.part is not None and isinstance(thing.either, Part)
    thing.part.size = thing.parts[0].size = thing.either.size = 0
    thing.count = 99
    assert [(one.path, one.rule) for one in validate(thing)] == [
        ("count", "max"), ("part.size", "min"), ("parts[0].size", "min"), ("either.size", "min")
    ]  # fmt: skip


def test_one_field_is_checked_at_any_place() -> None:
    spec = Thing.__spec__.fields["count"]
    assert validate_field(spec, 5, "x.count") == []
    assert [(one.path, one.rule) for one in validate_field(spec, 9, "x.count")] == [("x.count", "max")]
    assert [one.rule for one in validate_field(spec, None, "count")] == ["required"]
    assert validate_field(Thing.__spec__.fields["part"], None, "part") == []
    nested = validate_field(Thing.__spec__.fields["limits"], {"a": "x"}, "limits")
    assert nested[0].path == "limits[a]"


def test_fields_are_given_by_name() -> None:
    with pytest.raises(TypeError, match="by name"):
        Thing("abc")  # type: ignore[call-arg]


def test_a_type_without_int_takes_an_int_for_a_float_in_a_union() -> None:
    class Reading(Model):
        value: float | str = field(1)

    assert Reading.decode(Reading(value=3).encode()).value == 3.0
    with pytest.raises(ValidationFailed):
        Reading(value=b"x")  # type: ignore[arg-type]


def test_a_failure_survives_pickling() -> None:
    import pickle

    failure = ValidationFailed("Thing", [Violation("name", "required", None, "is required")])
    assert pickle.loads(pickle.dumps(failure)).violations == failure.violations


def test_a_moment_that_utc_has_no_year_for_is_refused() -> None:
    last = dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-5)))
    first = dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=5)))
    check = check_of(FieldType(Kind.DATETIME))
    assert [one.rule for one in check(last) or []] == ["max"] and [one.rule for one in check(first) or []] == ["min"]
    assert check(dt.datetime.max.replace(tzinfo=dt.UTC)) is None


def test_a_combination_of_flags_is_no_member() -> None:
    class Colour(Flag):
        RED = 1
        BLUE = 2

    check = check_of(FieldType(Kind.ENUM, enum=Colour))
    assert check(Colour.RED) is None
    assert [one.rule for one in check(Colour.RED | Colour.BLUE) or []] == ["enum"]
