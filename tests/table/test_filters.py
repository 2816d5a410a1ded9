"""Filters: what is true of an object, and what cannot be asked."""

import re
from copy import copy
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from holdfast.base.errors import InvalidArgument
from holdfast.table.model.path_expressions import Path
from holdfast.table.query.expressions import Expression
from holdfast.table.query.filters import compile_filter, none_of
from holdfast.table.query.search import search
from tests.table.persons import Address, Length, Level, Person, Weight, instant, person

P: Any = Person
"""Type checkers take fields of the class for values, and not for paths."""

BOSS = person("Kastens", "Karel", age=61)
ADA = person(
    "García-López",
    "José",
    age=40,
    balance=Decimal("12.50"),
    level=Level.DEBUG,
    address=Address(city="Utrecht", prefix="NL"),
    tags={"vip", "new"},
    scores=[3, 1, 2],
    limits={"EUR": 100, "USD": 7},
    size=Length(cm=170),
    boss=b"boss",
    score=1.5,
    seen=instant(5),
)
EMPTY = person()
NAN = float("nan")


def name_of(expression: Expression) -> str:
    """The same in every process, whatever order sets have there."""
    return re.sub(
        r"\{[^{}:]+\}", lambda found: "{" + ", ".join(sorted(found[0][1:-1].split(", "))) + "}", str(expression)
    )


def fetch(model: str, key: bytes) -> Any:
    return BOSS if (model, key) == ("Person", b"boss") else None


def holds(expression: Expression, record: Any = ADA) -> bool:
    return compile_filter(expression, fetch)(record)


@pytest.mark.parametrize("score", [1.5, NAN], ids=["a number", "not a number"])
@pytest.mark.parametrize(
    "expression",
    [
        P.score < Decimal(2),
        P.score <= Decimal("1.5"),
        P.score > Decimal(1),
        P.score.between(Decimal(1), Decimal(2)),
        P.score == Decimal("1.5"),
    ],
    ids=str,
)
def test_what_is_not_a_number_compares_with_no_decimal(expression: Expression, score: float) -> None:
    assert holds(expression, person(score=score)) == (score == 1.5)
    assert not holds(P.balance < NAN, person(balance=Decimal(1)))


TRUE: list[Expression] = [
    P.surname == "García-López",
    P.surname != "Mous",
    P.age == 40,
    P.age == 40.0,
    P.age < 41,
    P.age <= 40,
    P.age > 39.5,
    P.age >= 40,
    P.balance == Decimal("12.5"),
    P.balance < 13,
    P.level == Level.DEBUG,
    P.level == 2,
    P.level >= Level.DEBUG,
    P.level < Level.ERROR,
    P.level.between(Level.INFO, Level.DEBUG),
    P.seen > instant(4),
    P.age.exists(),
    P.age != None,  # noqa: E711
    P.note == None,  # noqa: E711
    ~P.note.exists(),
    P.surname.prefix("Gar"),
    P.age.between(40, 50),
    P.age.between(30, 40),
    P.surname.regex("Gar.*z"),
    P.age.isin([39, 40]),
    P.level.isin([Level.DEBUG]),
    P.tags.contains("vip"),
    P.scores.contains(3),
    P.limits.contains("EUR"),
    P.tags == {"new", "vip"},
    P.scores[0] == 3,
    P.scores[2].exists(),
    P.limits["EUR"] == 100,
    P.limits["EUR"].exists(),
    P.tags.any_item.prefix("v"),
    P.scores.any_item > 2,
    P.limits.any_key == "USD",
    P.limits.any_value < 10,
    P.address.city == "Utrecht",
    P.address.exists(),
    P.address.into("prefix") == "NL",
    P.boss.follow(Person).surname == "Kastens",
    P.boss.follow(Person).age > 60,
    P.size.is_a(Length),
    P.size.as_(Length).cm == 170,
    P.size == Length(cm=170),
    P.surname.normalized == "garcia lopez",
    P.surname.normalized.prefix("GARCIA L"),
    P.surname.normalized > "garcia",
    P.surname.normalized.isin(["Garcia Lopez"]),
    P.surname.normalized.regex("garcia.*"),
    (P.age == 40) & (P.level == Level.DEBUG) & P.tags.contains("new"),
    (P.age == 1) | (P.age == 2) | (P.age == 40),
    none_of(P.age == 1, P.age == 2),
    search("jose garcia"),
    search("LOPEZ"),
    search("gar jo", prefix=True),
    search("gar.*", regex=True),
    search("garcia lopez", index="normalized(surname),first_name"),
]
FALSE: list[Expression] = [
    P.surname == "garcia",
    P.age < 40,
    P.age.isin([]),
    P.level > Level.DEBUG,
    P.surname.prefix("gar"),
    P.surname.regex("Gar"),
    P.age.between(41, 50),
    P.tags.contains("v"),
    P.limits.contains("GBP"),
    P.scores[3].exists(),
    P.scores[1] == 3,
    P.limits["GBP"] == 100,
    P.limits["USD"] == 100,
    P.scores.any_item > 3,
    P.limits.any_key == "100",
    P.address.street == "Oudegracht",
    P.boss.follow(Person).surname == "Mous",
    P.size.is_a(Weight),
    P.size.as_(Weight).kg > 0,
    P.size.as_(int) > 0,
    P.size > 5,
    (P.age == 40) & (P.age == 41),
    none_of(P.age == 1, P.age == 40),
    search("garcia mila"),
    search("gar"),
    search("garcia", index="normalized(surname),first_name"),
]


@pytest.mark.parametrize("expression", TRUE, ids=name_of)
def test_it_is_true(expression: Expression) -> None:
    assert holds(expression)
    assert not holds(~expression)
    assert not holds(none_of(expression))


@pytest.mark.parametrize("expression", FALSE, ids=name_of)
def test_it_is_not_true(expression: Expression) -> None:
    assert not holds(expression)
    assert holds(~expression)


@pytest.mark.parametrize(
    "expression",
    [
        P.age == 0,
        P.age < 100,
        P.age >= 0,
        P.age.between(0, 100),
        P.age.isin([0]),
        P.note.prefix(""),
        P.note.regex(".*"),
        P.address.city == "",
        P.tags.any_item >= "",
        P.scores[0] == 0,
        P.boss.follow(Person).surname.exists(),
        P.size.is_a(int),
        P.size < 5,
    ],
    ids=name_of,
)
def test_what_is_said_of_an_absent_value_is_not_true(expression: Expression) -> None:
    assert not holds(expression, EMPTY)
    assert holds(~expression, EMPTY)


def test_unequal_is_the_contrary_of_equal_also_of_absent_values() -> None:
    assert holds(P.age != 40, EMPTY)
    assert not holds(P.age != 40)


def test_a_reference_to_nothing_leads_to_nothing() -> None:
    assert not holds(P.boss.follow(Person).surname.exists(), person(boss=b"gone"))


def test_a_reference_can_be_followed_twice() -> None:
    path = P.boss.follow(Person).boss.follow(Person).surname
    assert not holds(path == "Kastens")


def test_no_expression_is_true_of_every_object() -> None:
    assert compile_filter(None)(EMPTY)


def test_an_expression_used_as_a_truth_value_says_what_to_write() -> None:
    with pytest.raises(TypeError, match=r"use & \| ~"):
        bool(P.age == 40)
    with pytest.raises(TypeError, match=r"use & \| ~"):
        assert P.age == 40 and P.age == 41
    with pytest.raises(TypeError, match="any_item"):
        list(P.tags)
    with pytest.raises(TypeError, match="contains"):
        "vip" in P.tags  # noqa: B015


def test_an_expression_is_shown_as_it_reads_and_equals_no_other() -> None:
    for expression in [*TRUE, *FALSE]:
        assert repr(expression) == f"<{expression}>"
        assert expression != copy(expression)


def test_a_search_in_an_index_that_is_not_there_names_those_with_words() -> None:
    with pytest.raises(InvalidArgument, match=r"those with words are name$"):
        holds(search("a", index="unknown"))


@pytest.mark.parametrize(
    "ask",
    [
        lambda: P.age == "40",
        lambda: P.surname < 5,
        lambda: P.level == 9,
        lambda: P.seen > datetime(2026, 1, 1),
        lambda: P.tags > {"a"},
        lambda: P.address > 5,
        lambda: P.age.prefix("4"),
        lambda: P.age.regex("4"),
        lambda: P.surname.regex("("),
        lambda: P.surname.isin("Mous"),
        lambda: P.surname.contains("M"),
        lambda: P.tags.contains(5),
        lambda: P.tags[0],
        lambda: P.scores["a"],
        lambda: P.scores[-1],
        lambda: P.tags.any_key,
        lambda: P.limits.any_item,
        lambda: P.age.normalized,
        lambda: P.size.is_a(str),
        lambda: P.surname.follow(Person),
        lambda: P.surname.into("length"),
        lambda: search("--"),
        lambda: search("(", regex=True),
        lambda: search("a", prefix=True, regex=True),
        lambda: (P.age == 40) & True,
        lambda: none_of(True),  # type: ignore[arg-type]
        lambda: holds(search("a", index="unknown")),
        lambda: compile_filter("age = 40"),  # type: ignore[arg-type]
        lambda: compile_filter(P.boss.follow(Person).age == 61),
    ],
)
def test_what_can_never_be_is_refused_when_it_is_written(ask: Any) -> None:
    with pytest.raises(InvalidArgument):
        ask()


def test_an_unknown_field_of_an_embedded_model_is_an_attribute_error_that_names_the_fields() -> None:
    with pytest.raises(AttributeError, match="city, street, prefix"):
        P.address.town  # noqa: B018


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (P.address.city, "address.city"),
        (P.limits["EUR"], "limits['EUR']"),
        (P.tags.any_item, "tags[*]"),
        (P.size.as_(Length).cm, "size:Length.cm"),
        (P.boss.follow(Person).age, "boss->Person.age"),
    ],
)
def test_paths_and_expressions_can_be_read(path: Path, text: str) -> None:
    assert str(path) == text
    assert repr(path) == f"Person.{text}"
    assert str(~path.exists() & (path.exists() | path.exists())) == (
        f"(~({text} exists)) & (({text} exists) | ({text} exists))"
    )


def test_times_in_any_zone_are_compared_as_instants() -> None:
    from zoneinfo import ZoneInfo

    same = instant(5).astimezone(ZoneInfo("Asia/Kolkata"))
    assert holds(P.seen == same)
    assert holds(P.seen == datetime(2026, 7, 1, 12, 5, tzinfo=UTC))
