"""Indexes: their names, and the entries that objects have in them."""

from typing import Any

import pytest

from holdfast.base.errors import InvalidArgument
from holdfast.table.model.field_path import parse_path
from holdfast.table.model.indexes import (
    Each,
    Index,
    Keys,
    Normalized,
    Reversed,
    TypeOf,
    Values,
    Words,
    compile_index,
    entries,
    getter,
    part_of,
    paths_of,
)
from holdfast.table.model.types import FieldType, Kind
from holdfast.table.query.search import normalize, words
from holdfast.table.storage.order_preserving_encoding import complement, encode
from tests.table.persons import Address, Length, Level, Person, Weight, person


def text(value: str) -> bytes:
    return encode(FieldType(Kind.STR), value)


def number(value: int) -> bytes:
    return encode(FieldType(Kind.INT), value)


def test_an_index_is_called_by_its_parts_unless_it_has_a_name() -> None:
    index = Index(Reversed("opened"), Each("tags"), Words("surname", "first_name"))
    assert index.name == index.canonical == "-opened,each(tags),words(surname,first_name)"
    assert Index("surname", name="by_name").name == "by_name"


def test_the_storage_id_depends_on_the_parts_and_not_on_the_name() -> None:
    assert Index("surname").id == Index("surname", name="other").id != Index(Reversed("surname")).id
    assert len(Index("surname").id) == 4
    assert Index("name").id.hex() == "f035f628"


@pytest.mark.parametrize("index", Person.__spec__.indexes, ids=str)
def test_an_index_comes_back_from_its_text(index: Index) -> None:
    assert Index.parse(index.canonical, index.name) == index


def test_paths_of_a_model_can_be_parts() -> None:
    model: Any = Person
    assert Index(model.surname, Reversed(model.address.city)) == Index("surname", Reversed("address.city"))


def test_a_part_names_the_paths_that_it_is_made_of() -> None:
    parts = ["address.city", Each("tags"), Values("scores"), TypeOf("size"), Reversed(Words("surname", "first_name"))]
    found = [paths_of(part_of(part)) for part in parts]
    assert found == [("address.city",), ("tags",), ("scores",), ("size",), ("surname", "first_name")]


def test_parts_that_make_no_sense_are_refused() -> None:
    for make in (Index, Words, lambda: Reversed(Reversed("a")), lambda: part_of("every(tags)")):
        with pytest.raises(InvalidArgument):
            make()


@pytest.mark.parametrize(
    ("parts", "given", "expected"),
    [
        (["surname"], {}, [text("Mous")]),
        (["surname", "first_name"], {}, [text("Mous") + text("Jurriaan")]),
        (["age"], {}, []),
        (["surname", "age"], {}, []),
        (["age"], {"age": 300}, [number(300)]),
        ([Reversed("age")], {"age": 300}, [complement(number(300))]),
        (["level"], {"level": Level.ERROR}, [number(3)]),
        (["address.city"], {"address": Address(city="Utrecht")}, [text("Utrecht")]),
        (["address.city"], {}, []),
        (["address.street"], {"address": Address(city="Utrecht")}, []),
        ([Each("tags")], {"tags": {"b", "a"}}, [text("a"), text("b")]),
        ([Each("tags")], {}, []),
        ([Each("scores")], {"scores": [3, 1, 3]}, [number(1), number(3)]),
        ([Keys("limits")], {"limits": {"b": 1, "a": 1}}, [text("a"), text("b")]),
        ([Values("limits")], {"limits": {"b": 1, "a": 1}}, [number(1)]),
        ([Reversed(Keys("limits"))], {"limits": {"b": 1, "a": 1}}, [complement(text("b")), complement(text("a"))]),
        ([Normalized("surname")], {"surname": "García-López"}, [text("garcialopez")]),
        ([Words("surname", "first_name")], {"surname": "de  Mous-de"}, [text("de"), text("jurriaan"), text("mous")]),
        ([Words("note")], {}, []),
        ([TypeOf("size")], {"size": Weight(kg=5)}, [text("Weight")]),
        ([TypeOf("size")], {"size": 7}, [text("int")]),
        ([TypeOf("size")], {}, []),
        (["size:Length.cm"], {"size": Length(cm=170)}, [number(170)]),
        (["size:Length.cm"], {"size": Weight(kg=5)}, []),
        (["size:int"], {"size": 7}, [number(7)]),
    ],
)
def test_an_object_has_an_entry_for_each_value_and_none_if_one_is_absent(
    parts: list[Any], given: dict[str, Any], expected: list[bytes]
) -> None:
    assert entries(Index(*parts), person(**given)) == expected


def test_two_parts_with_several_values_give_an_entry_for_each_pair() -> None:
    found = entries(Index(Each("tags"), "surname", Each("scores")), person(tags={"a", "b"}, scores=[1, 2]))
    assert found == [text(tag) + text("Mous") + number(score) for tag in "ab" for score in (1, 2)]


@pytest.mark.parametrize(
    ("part", "hint"),
    [
        ("tags", r'Each\("tags"\)'),
        ("limits", r'Keys\("limits"\)'),
        ("address", r"address\.name"),
        ("size", "TypeOf"),
        ("missing", "no field 'missing'"),
        ("surname.first", "no fields"),
        (Each("surname"), "needs a list or set"),
        (Keys("tags"), "needs a dict"),
        (Words("age"), "needs a str"),
        (TypeOf("age"), "needs a union"),
        ("size:Depth", "does not exist"),
    ],
)
def test_an_index_of_what_cannot_be_indexed_says_what_can(part: Any, hint: str) -> None:
    with pytest.raises(InvalidArgument, match=hint):
        compile_index(Person.__spec__, Index(part))


def test_a_getter_gets_what_is_there_and_none_otherwise() -> None:
    get = getter(Person.__spec__, parse_path("address.street"))
    assert get(person()) is None
    assert get(person(address=Address(city="Utrecht", street="Oudegracht"))) == "Oudegracht"


@pytest.mark.parametrize(
    ("raw", "normal"),
    [
        ("Kastens", "kastens"),
        ("García-López", "garcialopez"),
        ("van   der  Waals", "vanderwaals"),
        ("Straße", "strasse"),
        ("\uff21\uff22\uff23", "abc"),
        ("İstanbul", "istanbul"),
        ("O'Brien 2nd!", "obrien2nd"),
        ("Ελλάς", "ελλασ"),
        ("हिन्दी", "हिनदी"),
        ("❤️", ""),
        ("日本", "日本"),
    ],
)
def test_case_accents_and_signs_do_not_count(raw: str, normal: str) -> None:
    assert normalize(raw) == normal
    assert normalize(normal) == normal


def test_words_end_where_neither_letters_nor_digits_are() -> None:
    assert words("van   der  Waals") == ["van", "der", "waals"]
    assert words("García-López, José (1889)") == ["garcia", "lopez", "jose", "1889"]
    assert words("e\u0301te\u0301") == ["ete"]
    assert words("-- ❤️") == []
