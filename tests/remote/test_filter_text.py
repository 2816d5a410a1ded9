"""Expressions become text that the server's parser reads as the same filter."""

import enum
import re
import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pytest

from holdfast import InvalidArgument, Model, field, none_of, search
from holdfast.remote.filter_text import filter_text
from holdfast.table import Ref
from holdfast.table.query.expressions import Expression
from holdfast.table.query.filter_parser import parse_filter


class Level(enum.Enum):
    LOW = "l"
    HIGH = "h"


class Town(Model):
    name: str = field(1)


class Owner(Model, id=2):
    name: str = field(1)


class Thing(Model, id=1):
    name: str = field(1)
    size: int = field(2, default=0)
    weight: float | None = field(3, default=None)
    price: Decimal | None = field(4, default=None)
    made: datetime | None = field(5, default=None)
    day: date | None = field(6, default=None)
    hour: time | None = field(7, default=None)
    took: timedelta | None = field(8, default=None)
    level: Level | None = field(9, default=None)
    raw: bytes | None = field(10, default=None)
    code: uuid.UUID | None = field(11, default=None)
    tags: set[str] = field(12, default_factory=set)
    limits: dict[str, int] = field(13, default_factory=dict)
    parts: list[int] = field(14, default_factory=list)
    town: Town | None = field(15, default=None)
    either: int | str | Town | None = field(16, default=None)
    good: bool = field(17, default=False)
    owner: Ref[Owner] | None = field(18, default=None)


T: Any = Thing
NOW = datetime(2026, 11, 18, 15, 4, 5, 123456, tzinfo=UTC)
EXPRESSIONS = [
    T.name == "Ada 'the' \"first\" \\ \n ü",
    T.name != "x",
    T.name == None,  # noqa: E711
    (T.size >= -3) & (T.size < 10**12) | ~(T.size == 4),
    T.weight > 0.1,
    T.price <= Decimal("12.3400000000000000000001"),
    T.made.between(NOW, NOW + timedelta(days=1)),
    T.day == date(2026, 1, 2),
    T.hour == time(3, 4, 5, 678),
    T.took > timedelta(days=2, microseconds=3),
    T.level == Level.HIGH,
    T.level.isin([Level.HIGH, Level.LOW]),
    T.raw == b"\x00\xff'",
    T.raw.prefix(b"\xff"),
    T.code == uuid.UUID(int=7),
    T.tags.contains("a,b"),
    T.tags.any_item.prefix("v"),
    T.tags == {"one"},
    T.limits["EUR ']"] > 3,
    T.limits.contains("EUR"),
    T.limits.any_key == "x",
    T.limits.any_value < 5,
    T.limits == {"a": 1},
    T.parts[2] == 7,
    T.parts == [1, 2],
    T.town.name.normalized == "São Paulo",
    T.town.exists() & (T.good == True),  # noqa: E712
    T.name.regex(r"(?i)a\d+'"),
    T.either == 3,
    T.either == "three",
    T.either.is_a(Town),
    T.either.as_(Town).name == "Rome",
    T.owner == b"k" * 16,
    T.owner.follow(Owner).name == "Ada",
]


def tree(one: Any) -> Any:
    """Return an expression as something that can be compared: equality of paths makes expressions."""
    if isinstance(one, Expression):
        return (type(one).__name__, *(tree(getattr(one, name)) for name in one.__dataclass_fields__))  # type: ignore[attr-defined]
    if isinstance(one, tuple | list):
        return [tree(part) for part in one]
    return repr(one)


@pytest.mark.parametrize("given", EXPRESSIONS, ids=str)
def test_the_text_is_parsed_as_the_same_filter(given: Any) -> None:
    text = filter_text(given)
    assert text is not None
    assert tree(parse_filter(Thing, text, {"Owner": Owner}.__getitem__)) == tree(given), text


def test_none_of_becomes_not_or() -> None:
    text = filter_text(none_of(T.size == 1, T.size == 2))
    assert text is not None
    assert tree(parse_filter(Thing, text)) == tree(~((T.size == 1) | (T.size == 2)))


def test_a_search_keeps_its_options() -> None:
    assert filter_text(search("ada b", index="words", prefix=True)) == "search('ada b', index='words', prefix=True)"
    assert filter_text(search("ada")) == "search('ada')"


def test_a_text_and_nothing_are_left_as_they_are() -> None:
    assert filter_text("size > 3") == "size > 3" and filter_text(None) is None


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            T.name.regex(re.compile("a", re.IGNORECASE)),
            r"write the flags into the regular expression, as in \(\?i\)",
        ),
        (T.town == Town(name="Rome"), "compare fields of it"),
        (T.either == Town(name="Rome"), "use .as_"),
        (T.weight == float("inf"), "cannot compare with inf"),
        (3, "must be an expression such as Account.age >= 18, or a string"),
    ],
)
def test_what_no_text_can_say_is_refused(given: Any, text: str) -> None:
    with pytest.raises(InvalidArgument, match=text):
        filter_text(given)
