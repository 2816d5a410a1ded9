"""Is a filter that is written as text the one that Python would write, and is all else refused with its place?"""

import datetime
import warnings
from datetime import UTC
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import InvalidArgument
from holdfast.table import Model, describe, field, key_from_text, model_from, search
from holdfast.table.query.expressions import Expression
from holdfast.table.query.filter_parser import InvalidFilter, parse_filter, parse_path
from holdfast.table.query.filters import compile_filter
from tests.table.persons import Address, Length, Level, Person, Weight, instant, person
from tests.tiers import examples


class Colour(Enum):
    RED = "green"
    GREEN = "red"


class Thing(Model, id=103):
    """With a field of every kind that persons do not have."""

    day: datetime.date = field(1)
    at: datetime.time = field(2)
    uid: UUID = field(3)
    lasts: datetime.timedelta = field(4)
    raw: bytes = field(5)
    sold: bool = field(6)
    colour: Colour = field(7)
    either: str | int | None = field(8, default=None)
    price: Decimal = field(9, default=Decimal(1), names=("cost",))


# To type checkers fields are values, and not the paths that classes give.
P: Any = Person
T: Any = Thing


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("age > 30", P.age > 30),
        ("30 < age", P.age > 30),
        ("age != 30", P.age != 30),
        ("18 <= age < 65", (P.age >= 18) & (P.age < 65)),
        ("age == -1", P.age == -1),
        ("balance > 1.10", P.balance > Decimal("1.10")),
        ("score >= 2", P.score >= 2),
        (
            'surname == "Mous" and age > 3 or not (age == 1)',
            (P.surname == "Mous") & (P.age > 3) | ~(P.age == 1),
        ),
        (
            '(surname == "Mous") & ~(age == 1) | (age == 2)',
            (P.surname == "Mous") & ~(P.age == 1) | (P.age == 2),
        ),
        ("age in [1, 2]", P.age.isin([1, 2])),
        ("age not in (1, 2)", ~P.age.isin([1, 2])),
        ('"vip" in tags', P.tags.contains("vip")),
        ('"vip" not in tags', ~P.tags.contains("vip")),
        ('"EUR" in limits', P.limits.contains("EUR")),
        ("age is None", ~P.age.exists()),
        ("age is not None", P.age.exists()),
        ("age == null", ~P.age.exists()),
        ("age.exists()", P.age.exists()),
        ('surname.prefix("Mo")', P.surname.prefix("Mo")),
        (r'surname.regex("\w+")', P.surname.regex(r"\w+")),
        ("age.between(1, 5)", P.age.between(1, 5)),
        ("age.isin([1])", P.age.isin([1])),
        ("scores.contains(3)", P.scores.contains(3)),
        ('address.city == "Bonn"', P.address.city == "Bonn"),
        ('address.prefix == "x"', P.address.into("prefix") == "x"),
        ("limits[EUR] > 3", P.limits["EUR"] > 3),
        ('limits["EUR"] > 3', P.limits["EUR"] > 3),
        ("scores[0] == 3", P.scores[0] == 3),
        ("scores.any_item > 3", P.scores.any_item > 3),
        ('limits.any_key == "EUR"', P.limits.any_key == "EUR"),
        ("limits.any_value > 3", P.limits.any_value > 3),
        ('surname.normalized == "MÖUS"', P.surname.normalized == "MÖUS"),
        ('tags == ["a", "b"]', P.tags == {"a", "b"}),
        ('limits == {"EUR": 1}', P.limits == {"EUR": 1}),
        ("size == 5", P.size == 5),
        ('size.as_("Length").cm > 4', P.size.as_(Length).cm > 4),
        ("size.is_a(Weight)", P.size.is_a(Weight)),
        ("boss.follow().age > 3", P.boss.follow(Person).age > 3),
        ('boss == "AZrs"', P.boss == key_from_text("AZrs")),
        ("level == ERROR", P.level == Level.ERROR),
        ('level == "ERROR"', P.level == Level.ERROR),
        ("level in [1, DEBUG]", P.level.isin([Level.INFO, Level.DEBUG])),
        ('seen > "2026-07-01T14:00:00+02:00"', P.seen > instant(0)),
        ('search("mila v", index="name", prefix=True)', search("mila v", index="name", prefix=True)),
        ('\n  surname == "Mous"\n  and age > 3 ', (P.surname == "Mous") & (P.age > 3)),
    ],
)
def test_a_text_is_the_expression_that_python_would_write(text: str, same: Expression) -> None:
    assert str(parse_filter(Person, text)) == str(same)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ('day == "2026-11-15"', T.day == datetime.date(2026, 11, 15)),
        ('at < "12:30:00"', T.at < datetime.time(12, 30)),
        ('uid == "01890f5e-7d4a-7c3b-9a52-3f2f1c0d4e5b"', T.uid == UUID("01890f5e-7d4a-7c3b-9a52-3f2f1c0d4e5b")),
        ('lasts > "1h30m"', T.lasts > datetime.timedelta(minutes=90)),
        ('lasts > "PT90M"', T.lasts > datetime.timedelta(minutes=90)),
        ('raw.prefix("AZrs")', T.raw.prefix(key_from_text("AZrs"))),
        ('raw == b"ab"', T.raw == b"ab"),
        ("sold and not sold", (T.sold == True) & ~(T.sold == True)),  # noqa: E712
        ("sold == false", T.sold == False),  # noqa: E712
        ('colour == "red"', T.colour == Colour.GREEN),
        ("colour == RED", T.colour == Colour.RED),
        ('either == "5"', T.either == "5"),
        ("either == 5", T.either == 5),
        ("cost < 0.1", T.price < Decimal("0.1")),
    ],
)
def test_values_are_of_the_type_of_their_field(text: str, same: Expression) -> None:
    assert str(parse_filter(Thing, text)) == str(same)


def test_a_datetime_may_be_so_long_ago() -> None:
    found: Any = parse_filter(Person, 'seen > "2h"')
    assert datetime.timedelta(hours=1) < datetime.datetime.now(UTC) - found.value < datetime.timedelta(hours=3)


def test_the_filter_works_on_records_of_the_class_and_of_its_description() -> None:
    text = 'age >= 18 and (surname == "Mous" or "vip" in tags) and address.city.prefix("B") and level != ERROR'
    for model in (Person, model_from(describe(Person))):
        fits = compile_filter(parse_filter(model, text))
        assert fits(model.from_json(person(age=20, address=Address(city="Bonn")).to_json()))
        assert not fits(model.from_json(person(age=17, address=Address(city="Bonn")).to_json()))
        assert not fits(model.from_json(person("Verh", age=20, address=Address(city="Bonn")).to_json()))


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("", 0, "it is empty"),
        ("age > 3 and agee > 4", 12, "Person has no field 'agee'"),
        ('surname == "é" and agee > 4', 19, "Person has no field 'agee'"),
        ("   agee > 4", 3, "at character 4, agee"),
        ('address.cty == "x"', 0, "Address has no field 'cty'"),
        ('surname = "x"', 8, "write == to compare"),
        ("surname == Ada", 11, "put text in quotes"),
        ("surname == first_name", 11, "not with another field"),
        ("surname == 5", 11, "cannot be compared with 5"),
        ("age == true", 7, "cannot be compared with True"),
        ('age == "5"', 7, "cannot be compared with '5'"),
        ("level == ERR", 9, "one of INFO, DEBUG, ERROR"),
        ("level == 9", 9, "one of INFO, DEBUG, ERROR"),
        ('seen > "2026-01-01T00:00:00"', 7, "no time zone"),
        ('seen > "soon"', 7, "is not a time"),
        ("seen > 5", 7, "write it as text like"),
        ('seen > "0001-01-01T00:00:00+05:00"', 7, "out of range"),
        ('boss == "?"', 8, "not base64url"),
        ('"x" in surname', 7, "use .prefix or .regex"),
        ('surname.regex("(")', 14, "not a regular expression"),
        ('surname.regex("a{99999999999999999999}")', 14, "too large"),
        ("surname.foo()", 0, "there is no .foo"),
        ("surname.prefix()", 0, "write .prefix(value)"),
        ("surname", 0, "compare it"),
        ("age > 3 and surname", 12, "compare it"),
        ("age < None", 6, "None"),
        ("scores[-1] == 3", 0, "numbered from 0"),
        ('size == "x"', 8, "it is never 'x'"),
        ('size.as_("Depth").cm == 1', 9, "is never Depth"),
        ('address == "x"', 11, "a whole Address"),
        ('surname == "x" # and age > 3', 15, "comments are not allowed"),
        ('(surname == "x"', 0, "never closed"),
        ("age > 3 & age < 5", 6, "not a value"),
        ("__import__('os').system('true')", 0, "this is not a field of Person"),
        ("(lambda: 1)()", 0, "not a comparison"),
        ("age > (3).real", 6, "not a value"),
        ('f"{age}" == 1', 0, "not a field of Person"),
        ("[age for age in scores]", 0, "not a comparison"),
        ('search("x", index="nowhere")', 0, "no single search index"),
        ("age.follow().x == 1", 0, "not a reference"),
    ],
)
def test_what_is_no_filter_is_refused_with_its_place(text: str, place: int, reason: str) -> None:
    with pytest.raises(InvalidFilter) as refused:
        parse_filter(Person, text)
    assert reason in str(refused.value)
    assert refused.value.position == place


def test_a_reference_is_followed_to_a_model_that_is_found() -> None:
    class Pet(Model, id=104):
        owner: bytes = field(1)

    described = describe(Pet)
    described["fields"][0]["type"] = {"kind": "reference", "target": "Person"}
    pet = model_from(described)
    text = "owner.follow().age > 3"
    assert str(parse_filter(pet, text, lambda name: {"Person": Person}[name])) == "owner->Person.age > 3"
    with pytest.raises(InvalidFilter, match="Person is not known here"):
        parse_filter(pet, text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000,
        "not " * 2500 + "age > 3",
        "age" + ".x" * 4000,
        "-" * 9000 + "1",
        "age > 3" + " and age > 3" * 800,
        "x" * 10_001,
        "9" * 9000,
        "age > " + "9" * 5000,
        'surname.regex("' + "(" * 4000 + ")" * 4000 + '")',
        "\0",
        "\ud800",
        "age == 1e999",
        "age > 3\\",
        "\f",
        "a\x0bb",
        "surname.regex('[[a]')",
        r"surname == '\N{nonsense}'",
        "age is 3",
        "'' in ''",
        "age in age",
        "{**age}",
        "limits == {**limits}",
        "tags == [*tags]",
        "search(*x)",
        "search('a', **x)",
        "age := 3",
        "yield",
        "await age",
        "age[1:2]",
        "scores[1:2] == 3",
        "limits[[]] == 3",
        "limits[None] == 1",
        "balance == 1e400",
        "balance == nan",
        "age.between(*scores)",
        "...",
        "age == ...",
        "size == b''",
    ],
)
def test_text_that_is_out_to_break_it_is_read_or_refused(text: str) -> None:
    _read_or_refused(text)


def test_escapes_of_regular_expressions_give_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parse_filter(Person, r'surname.regex("\d[[a]")')


def test_a_path_is_read_alone() -> None:
    assert str(parse_path(Person, "limits[EUR]")) == "limits['EUR']"
    assert str(parse_path(Person, "address.city")) == "address.city"
    with pytest.raises(InvalidFilter, match="not a field"):
        parse_path(Person, "age > 3")


WORDS = [
    "age",
    "surname",
    "tags",
    "limits",
    "scores",
    "size",
    "boss",
    "level",
    "seen",
    "balance",
    "address",
    ".city",
    ".prefix(",
    ".regex(",
    ".any_item",
    ".exists()",
    ".between(",
    ".follow()",
    ".as_(",
    ".is_a(",
    "search(",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    " and ",
    " or ",
    " not ",
    " in ",
    " is ",
    "None",
    "==",
    "!=",
    "<",
    ">=",
    "'a'",
    '"2026-01-01T00:00:00Z"',
    "'1h'",
    "'INFO'",
    "INFO",
    "'Length'",
    "Length",
    "5",
    "-1",
    "1.5",
    "1e999",
    "b'x'",
    "true",
    ",",
    ":",
    ":=",
    "lambda ",
    "*",
    "**",
    "~",
    "&",
    "|",
    "#",
    "\\",
    "\n",
    " if ",
    " else ",
    " for ",
    "f'{age}'",
    "...",
    "1j",
    "index=",
    "=",
]


@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(WORDS), max_size=14).map("".join)))
@settings(max_examples=examples(600), deadline=None)
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    _read_or_refused(text)


LEAVES = [
    "age > 3",
    "age in [1, 2]",
    "'vip' in tags",
    "surname.prefix('M')",
    "address.city == 'x'",
    "level == ERROR",
    "age is None",
    "limits[EUR] < 5",
]


@given(
    st.recursive(
        st.sampled_from(LEAVES),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda parts: f"({' '.join(parts)})"),
            inner.map(lambda part: f"not ({part})"),
        ),
        max_leaves=8,
    ),
    st.builds(
        person,
        st.sampled_from(["Mous", "Verh"]),
        age=st.sampled_from([None, 1, 5]),
        tags=st.sampled_from([set(), {"vip"}]),
        level=st.sampled_from(Level),
        limits=st.sampled_from([{}, {"EUR": 3}, {"EUR": 9}]),
    ),
)
@settings(max_examples=examples(150), deadline=None)
def test_and_or_and_not_join_as_in_python(text: str, record: Person) -> None:
    fits = {leaf: compile_filter(parse_filter(Person, leaf))(record) for leaf in LEAVES}
    spoken = text
    for leaf, truth in fits.items():
        spoken = spoken.replace(leaf, str(truth))
    assert compile_filter(parse_filter(Person, text))(record) == eval(spoken)


def _read_or_refused(text: str) -> None:
    for read in (parse_filter, parse_path):
        try:
            found = read(Person, text)
        except InvalidArgument:
            continue
        assert isinstance(found, Expression) or read is parse_path
