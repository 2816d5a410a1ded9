"""Plans: a scan finds what a look at every object would find, in the same order, and reads no more than it must."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from decimal import Decimal
from functools import reduce
from itertools import pairwise
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import Store
from holdfast.base.errors import InvalidArgument
from holdfast.table import Index, Model, field
from holdfast.table.model.indexes import Each, Keys, Normalized, Reversed, compile_index
from holdfast.table.model.keys import KeyLayout
from holdfast.table.model.types import FieldType, Kind
from holdfast.table.query.expressions import Expression
from holdfast.table.query.filters import compile_filter, none_of
from holdfast.table.query.planner import BY_KEY, Plan, TableScanRefused, order_key, plan
from holdfast.table.query.ranges import literal_prefix, merged
from holdfast.table.query.search import normalize, search
from holdfast.table.storage.order_preserving_encoding import encode, successor
from tests.table.persons import Address, Length, Level, Log, Person, Weight, instant, person
from tests.table.test_keys import Place
from tests.table.things import Thing
from tests.tiers import examples

P: Any = Person
L: Any = Log
SPEC = Person.__spec__
LOGS = KeyLayout(Log.__spec__)


class Shelf:
    """A table in memory: objects by key, and sorted entries for each index, as the state has them."""

    def __init__(self, model: Any, rows: dict[bytes, Any]) -> None:
        self.spec = model.__spec__
        self.rows = rows
        self.entries = {
            index: sorted(
                (entry + key, key) for key, row in rows.items() for entry in compile_index(self.spec, index)(row)
            )
            for index in self.spec.indexes
        }

    def scan(self, where: Expression | None, order: Sequence[Any] | None = None, allow: bool = True) -> list[bytes]:
        chosen = plan(self.spec, where, order, allow_table_scan=allow)
        test = compile_filter(where)
        found = [key for key in dict.fromkeys(self.read(chosen)) if test(self.rows[key])]
        if chosen.sort:
            key_of = order_key(self.spec, chosen.sort)
            found.sort(key=lambda key: key_of(self.rows[key], key))
        return found

    def read(self, chosen: Plan) -> list[bytes]:
        if chosen.kind == "key":
            return [key for key in chosen.keys if key in self.rows]
        if chosen.kind == "unique":
            return [key for key, row in self.rows.items() if getattr(row, chosen.field) == chosen.value]
        assert list(chosen.ranges) == merged(chosen.ranges)
        entries = sorted((key, key) for key in self.rows) if chosen.index is None else self.entries[chosen.index]
        keys = [
            key
            for start, stop in chosen.ranges
            for entry, key in entries
            if start <= entry and (stop is None or entry < stop)
        ]
        assert chosen.distinct or len(keys) == len(set(keys)), "an object came twice, and the plan did not say so"
        return keys[::-1] if chosen.reverse else keys


def shelf(*people: Person) -> Shelf:
    return Shelf(Person, {bytes((number,)): one for number, one in enumerate(people)})


def text(value: str) -> bytes:
    return encode(FieldType(Kind.STR), value)


def number(value: int) -> bytes:
    return encode(FieldType(Kind.INT), value)


NAMES = st.sampled_from(["Mous", "mous", "Möus", "Mo", "de Mous", "", "M", "Mous-Mo", "N"])
SMALL = st.integers(-2, 3)
PEOPLE = st.builds(
    person,
    NAMES,
    NAMES,
    age=st.none() | SMALL,
    balance=st.sampled_from([Decimal(text) for text in ("-1", "0.10", "0.1", "2", "2.5", "1E+2")]),
    level=st.sampled_from(Level),
    address=st.none() | st.builds(lambda city: Address(city=city), NAMES),
    tags=st.sets(NAMES, max_size=3),
    scores=st.lists(SMALL, max_size=3),
    limits=st.dictionaries(NAMES, SMALL, max_size=3),
    size=st.none() | SMALL | SMALL.map(lambda cm: Length(cm=cm)) | SMALL.map(lambda kg: Weight(kg=kg)),
    score=st.sampled_from([-1.5, -0.0, 0.0, 2.0, 1e300, float("inf")]),
)
NUMBERS = SMALL | st.sampled_from(
    [0.5, 2.0, -1.5, float("inf"), 1e300, Decimal("0.1"), Decimal("2.50"), 2**70, -(2**70)]
)


def compared(path: Any, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Expression]:
    return st.one_of(
        values.map(lambda value: path == value),
        values.map(lambda value: path < value),
        values.map(lambda value: path <= value),
        values.map(lambda value: path > value),
        values.map(lambda value: path >= value),
        st.tuples(values, values).map(lambda pair: path.between(*pair)),
        st.lists(values, max_size=3).map(path.isin),
        st.just(path.exists()),
    )


def textual(path: Any) -> st.SearchStrategy[Expression]:
    patterns = st.sampled_from(["M.*", "Mo?u?s", "^Mou+s$", "mous|Mous", "[M].*", "", "de Mous"])
    return compared(path, NAMES) | NAMES.map(path.prefix) | patterns.map(path.regex)


SEARCHES = st.tuples(st.sampled_from(["mous", "mo", "de mous", "m", "Möus mo"]), st.booleans())
LEAVES = st.one_of(
    textual(P.surname),
    textual(P.first_name),
    textual(P.surname.normalized),
    textual(P.address.city),
    textual(P.tags.any_item),
    textual(P.limits.any_key),
    NAMES.map(P.tags.contains),
    NAMES.map(P.limits.contains),
    SMALL.map(P.scores.contains),
    compared(P.age, NUMBERS),
    compared(P.balance, NUMBERS),
    compared(P.score, NUMBERS),
    compared(P.level, st.sampled_from(Level)),
    compared(P.limits.any_value, NUMBERS),
    compared(P.limits["Mous"], NUMBERS),
    compared(P.scores[1], NUMBERS),
    compared(P.size.as_(Length).cm, NUMBERS),
    compared(P.size.as_(int), NUMBERS),
    st.sampled_from([Weight, Length, int]).map(P.size.is_a),
    st.just(P.tags.exists()),
    NAMES.map(lambda name: P.email == f"{name}@{name}"),
    SEARCHES.map(lambda pair: search(pair[0], prefix=pair[1])),
    st.sampled_from(["mo.*", "m.?us"]).map(lambda pattern: search(pattern, index="name", regex=True)),
)


def joined(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(inner, min_size=2, max_size=3)
    return st.one_of(
        several.map(lambda parts: reduce(lambda one, other: one & other, parts)),
        several.map(lambda parts: reduce(lambda one, other: one | other, parts)),
        inner.map(lambda part: ~part),
        several.map(lambda parts: none_of(*parts)),
    )


EXPRESSIONS = st.recursive(LEAVES, joined, max_leaves=5)
SINGLE = ["surname", "first_name", "age", "level", "balance", "score", "address.city", "size:int", BY_KEY]
ORDERS = st.lists(
    st.sampled_from([*SINGLE, *(f"-{name}" for name in SINGLE), "normalized(surname)", "-type(size)"]), max_size=3
)


@settings(max_examples=examples(400))
@given(st.lists(PEOPLE, max_size=8), EXPRESSIONS)
def test_a_scan_finds_what_a_look_at_every_object_finds(people: list[Person], where: Expression) -> None:
    table, test = shelf(*people), compile_filter(where)
    assert sorted(table.scan(where)) == [key for key, row in table.rows.items() if test(row)]


@settings(max_examples=examples(300))
@given(st.lists(PEOPLE, max_size=8), st.none() | EXPRESSIONS, ORDERS)
def test_a_scan_keeps_to_the_order_that_was_asked_for(
    people: list[Person], where: Expression | None, order: list[str]
) -> None:
    table, test = shelf(*people), compile_filter(where)
    found = table.scan(where, order)
    assert sorted(found) == [key for key, row in table.rows.items() if test(row)]
    for one, other in pairwise(found):
        assert not_behind(table, one, other, order)


ACCESS: dict[str, Callable[[Person], Any]] = {
    "surname": lambda person: person.surname,
    "first_name": lambda person: person.first_name,
    "age": lambda person: person.age,
    "level": lambda person: person.level.value,
    "balance": lambda person: person.balance,
    "score": lambda person: person.score,
    "address.city": lambda person: person.address.city if person.address else None,
    "size:int": lambda person: person.size if isinstance(person.size, int) else None,
    "normalized(surname)": lambda person: normalize(person.surname),
    "type(size)": lambda person: None if person.size is None else type(person.size).__name__,
}


def not_behind(table: Shelf, one: bytes, other: bytes, order: list[str]) -> bool:
    """Whether one object may come before another: said without any of the code that is tested."""
    for part in order:
        name = part.removeprefix("-")
        if name == BY_KEY:
            return (one > other) == part.startswith("-")
        first, second = ACCESS[name](table.rows[one]), ACCESS[name](table.rows[other])
        if first is None or second is None:
            if first is not second:
                return second is None
        elif first != second:
            return bool((first > second) == part.startswith("-"))
    return True


LOG_ROWS = st.dictionaries(
    st.tuples(st.integers(0, 2), st.sampled_from(Level), st.sampled_from(["", "a", "ab"])),
    st.text(max_size=1),
    max_size=9,
)
LOG_LEAVES = st.one_of(
    compared(L.at, st.integers(0, 3).map(instant)),
    compared(L.level, st.sampled_from(Level)),
    textual(L.source),
)
LOG_ORDERS = st.sampled_from(
    [
        None,
        ["at"],
        ["-at"],
        ["-at", "level"],
        ["at", "-level", "-source"],
        ["level"],
        ["-level"],
        [BY_KEY],
        ["-" + BY_KEY],
    ]
)


@settings(max_examples=examples(300))
@given(LOG_ROWS, st.recursive(LOG_LEAVES, joined, max_leaves=4), LOG_ORDERS)
def test_a_table_whose_key_is_made_of_fields_finds_the_same(
    rows: dict[Any, str], where: Expression, order: list[str] | None
) -> None:
    logs = [Log(at=instant(at), level=level, source=source, message=text) for (at, level, source), text in rows.items()]
    table, test = Shelf(Log, {LOGS.key_of(log): log for log in logs}), compile_filter(where)
    found = table.scan(where, order)
    assert sorted(found) == sorted(key for key, row in table.rows.items() if test(row))
    if order is not None and BY_KEY in order[0]:
        assert found == sorted(found, reverse=order[0][0] == "-")
    elif order is not None:
        get = {"at": attrgetter("at"), "level": attrgetter("level.value"), "source": attrgetter("source")}
        rows_found = [table.rows[key] for key in found]
        for part in reversed(order):  # sorting is stable: nothing may move
            name = part.removeprefix("-")
            rows_found.sort(key=get[name], reverse=part.startswith("-"))
        wanted = [[get[part.removeprefix("-")](row) for part in order] for row in rows_found]
        assert wanted == [[get[part.removeprefix("-")](table.rows[key]) for part in order] for key in found]


def ranges(where: Expression, order: Sequence[Any] | None = None) -> tuple[str, list[tuple[bytes, bytes | None]]]:
    chosen = plan(SPEC, where, order)
    return str(chosen.index), list(chosen.ranges)


def exactly(*codes: bytes) -> list[tuple[bytes, bytes | None]]:
    return [(code, successor(code)) for code in codes]


@pytest.mark.parametrize(
    ("where", "index", "expected"),
    [
        (P.surname == "Mous", "surname,first_name", exactly(text("Mous"))),
        ((P.surname == "A") & (P.first_name == "B"), "surname,first_name", exactly(text("A") + text("B"))),
        ((P.surname == "A") & P.first_name.prefix("B"), "surname,first_name", [(text("A") + b"B", text("A") + b"C")]),
        (P.surname.prefix("Mo"), "surname,first_name", [(b"Mo", b"Mp")]),
        (P.surname.regex("Mo.*"), "surname,first_name", [(b"Mo", b"Mp")]),
        (P.surname.isin(["b", "a", "b"]), "surname,first_name", exactly(text("a"), text("b"))),
        ((P.surname == "b") | (P.surname == "a"), "surname,first_name", exactly(text("a"), text("b"))),
        (P.age >= 5, "age", [(number(5), None)]),
        (P.age > 5, "age", [(number(6), None)]),
        (P.age < 5, "age", [(b"", number(5))]),
        (P.age < 2.5, "age", [(b"", number(3))]),
        (P.age.between(2, 5), "age", [(number(2), number(6))]),
        ((P.age >= 2) & (P.age < 5), "age", [(number(2), number(5))]),
        (P.age.isin([1, 2, 9]), "age", [(number(1), number(3)), (number(9), number(10))]),
        ((P.age == 1) & (P.age == 2), "age", []),
        (P.age.exists(), "age", [(b"", None)]),
        (P.address.city == "Utrecht", "address.city", exactly(text("Utrecht"))),
        (P.tags.contains("vip"), "each(tags),surname", exactly(text("vip"))),
        (P.tags.any_item == "vip", "each(tags),surname", exactly(text("vip"))),
        (
            P.tags.contains("vip") & (P.surname >= "M"),
            "each(tags),surname",
            [(text("vip") + text("M"), text("vip")[:-1] + b"\1")],
        ),
        (P.limits.contains("EUR"), "keys(limits)", exactly(text("EUR"))),
        (P.limits.any_key == "EUR", "keys(limits)", exactly(text("EUR"))),
        (P.limits.any_value == 5, "values(limits)", exactly(number(5))),
        (P.limits["EUR"] > 5, "keys(limits)", exactly(text("EUR"))),
        (P.surname.normalized == "García López", "normalized(surname),first_name", exactly(text("garcialopez"))),
        (P.surname.normalized.prefix("van der"), "normalized(surname),first_name", [(b"vander", b"vandes")]),
        (search("mila verhoev", prefix=True), "name", [(b"verhoev", b"verhoew")]),
        (search("Garcia"), "name", exactly(text("garcia"))),
        (search("gar.*", regex=True), "name", [(b"gar", b"gas")]),
        (P.size.is_a(Weight), "type(size)", exactly(text("Weight"))),
        (P.size.as_(Length).cm.between(170, 180), "size:Length.cm", [(number(170), number(181))]),
        (P.size.as_(int) == 220, "size:int", exactly(number(220))),
    ],
    ids=str,
)
def test_an_index_is_read_where_what_is_wanted_can_be(where: Expression, index: str, expected: list[Any]) -> None:
    name, found = ranges(where)
    assert (name, found) == (index, expected) or (name == index and found == merged(expected))


@pytest.mark.parametrize(
    ("where", "order", "index", "reverse", "sort"),
    [
        (None, ["surname", "first_name"], "surname,first_name", False, False),
        (None, ["-surname", "-first_name"], "surname,first_name", True, False),
        (None, [Reversed(P.level)], "-level,first_name", False, False),
        (None, ["level"], "-level,first_name", True, False),
        (None, ["level", "-first_name"], "-level,first_name", True, False),
        (P.surname == "Kastens", ["surname", "first_name"], "surname,first_name", False, False),
        (P.surname == "Kastens", ["-first_name"], "surname,first_name", True, False),
        (P.surname == "Kastens", ["-surname", "first_name"], "surname,first_name", False, False),
        (P.surname == "Kastens", ["level"], "surname,first_name", False, True),
        (P.level == Level.INFO, ["first_name"], "-level,first_name", False, False),
        (P.level.isin([Level.INFO, Level.ERROR]), ["first_name"], "-level,first_name", False, True),
        (P.level.isin([Level.INFO, Level.ERROR]), ["-level", "first_name"], "-level,first_name", False, False),
        (P.tags.contains("vip"), ["surname"], "each(tags),surname", False, False),
        (P.age > 5, ["age"], "age", False, False),
        (P.age.exists(), ["-age"], "age", True, False),
        (None, [Keys("limits")], "keys(limits)", False, False),
        (None, [Reversed(Each("tags"))], "each(tags),surname", True, False),
        (None, [Normalized("surname")], "normalized(surname),first_name", False, False),
        (None, [BY_KEY], "None", False, False),
        (None, [Reversed(BY_KEY)], "None", True, False),
        (P.surname == "Kastens", ["first_name", BY_KEY], "surname,first_name", False, False),
        ((P.surname == "K") & (P.first_name == "K"), ["-" + BY_KEY], "surname,first_name", True, False),
    ],
)  # fmt: skip
def test_an_index_that_gives_the_order_is_preferred_and_may_be_read_backwards(
    where: Expression | None, order: list[Any], index: str, reverse: bool, sort: bool
) -> None:
    chosen = plan(SPEC, where, order)
    assert (str(chosen.index), chosen.reverse, bool(chosen.sort)) == (index, reverse, sort)


def test_a_unique_value_is_looked_up() -> None:
    chosen = plan(SPEC, (P.surname == "Mous") & (P.email == "a@b"))
    assert (chosen.kind, chosen.field, chosen.value) == ("unique", "email", "a@b")
    assert plan(SPEC, P.email.prefix("a"), allow_table_scan=True).kind == "table"


def test_an_object_whose_key_is_known_is_looked_up() -> None:
    log = Log(at=instant(1), level=Level.INFO, source="web", message="hello")
    where = (L.at == instant(1)) & (L.level == Level.INFO) & (L.source == "web") & (L.message == "other")
    chosen = plan(Log.__spec__, where)
    assert (chosen.kind, chosen.keys) == ("key", (LOGS.key_of(log),))


def test_several_keys_are_looked_up_in_the_order_wanted() -> None:
    where = (L.at == instant(1)) & L.level.isin(list(Level)) & (L.source == "web")
    keys = [LOGS.key_of(Log(at=instant(1), level=level, source="web", message="")) for level in Level]
    assert plan(Log.__spec__, where, ["level"]).keys == tuple(keys)
    assert plan(Log.__spec__, where, ["-level"]).keys == tuple(keys[::-1])


def test_keys_beside_each_other_stay_two() -> None:
    place: Any = Place
    times = [instant(1), instant(1) + timedelta(microseconds=1)]
    assert len(plan(Place.__spec__, (place.x == 1.0) & place.when.isin(times)).keys) == 2


def test_what_only_one_of_two_says_is_there_may_be_absent() -> None:
    chosen = plan(SPEC, P.age.exists() | (P.surname == "x"), ["age"], allow_table_scan=True)
    assert (chosen.kind, chosen.sort) == ("table", ("age",))


def test_the_first_parts_of_a_key_narrow_the_table() -> None:
    chosen = plan(Log.__spec__, (L.at == instant(1)) & (L.level >= Level.DEBUG))
    assert (chosen.kind, chosen.whole) == ("table", False)
    ((start, stop),) = chosen.ranges
    logs = [Log(at=instant(at), level=level, source="web", message="") for at in (0, 1, 2) for level in Level]
    found = [one for one in logs if start <= LOGS.key_of(one) and (stop is None or LOGS.key_of(one) < stop)]
    assert found == [one for one in logs if one.at == instant(1) and one.level is not Level.INFO]


def test_the_newest_come_first_in_a_table_with_a_reversed_key() -> None:
    assert plan(Log.__spec__, L.at > instant(5), ["-at"]).reverse is False
    assert plan(Log.__spec__, L.at > instant(5), ["at"]).reverse is True


@pytest.mark.parametrize(
    ("where", "order", "hint"),
    [
        (P.note == "x", None, r'add Index\("note"\)'),
        (P.note == "x", ["surname"], r'add Index\("note", "surname"\)'),
        (P.note.prefix("x"), ["surname"], r'add Index\("note"\)'),
        (P.scores.contains(5), None, r'add Index\(Each\("scores"\)\)'),
        (P.scores[0] == 5, ["-age"], r'add Index\(Each\("scores"\), Reversed\("age"\)\)'),
        (~(P.surname == "x"), None, "whole table, or give"),
        ((P.surname == "x") | (P.age == 5), None, "whole table, or give"),
        (None, ["note"], r'add Index\("note"\)'),
        (None, ["age"], "leaves out objects without age"),
        (None, ["surname", "-first_name"], r'add Index\("surname", Reversed\("first_name"\)\)'),
    ],
)
def test_a_scan_of_the_whole_table_for_some_objects_is_refused_and_an_index_proposed(
    where: Expression | None, order: list[str] | None, hint: str
) -> None:
    with pytest.raises(TableScanRefused, match=hint):
        plan(SPEC, where, order)
    assert plan(SPEC, where, order, allow_table_scan=True).whole


def test_all_objects_in_any_order_are_read_from_the_table() -> None:
    chosen = plan(SPEC)
    assert (chosen.kind, chosen.ranges, chosen.whole) == ("table", ((b"", None),), True)


def test_an_order_with_several_places_for_an_object_needs_an_index() -> None:
    with pytest.raises(InvalidArgument, match=r'add Index\(Each\("scores"\)\)'):
        plan(SPEC, None, [Each("scores")], allow_table_scan=True)
    chosen = plan(SPEC, P.surname == "Mous", [Each("tags")], allow_table_scan=True)
    assert (str(chosen.index), chosen.sort) == ("each(tags),surname", ())


def test_an_object_with_several_values_comes_once_at_its_first_place() -> None:
    table = shelf(
        person("a", tags={"s3"}), person("b", tags={"s1"}), person("c", tags={"s2"}),
        person("d", tags={"s0", "s4"}), person("e"),
    )  # fmt: skip
    names = [table.rows[key].surname for key in table.scan(None, [Each("tags")])]
    assert names == ["d", "b", "c", "a"]
    assert [table.rows[key].surname for key in table.scan(None, ["-each(tags)"])] == ["d", "a", "c", "b"]
    assert plan(SPEC, P.tags.contains("s0")).distinct is False
    assert plan(SPEC, P.tags.any_item.prefix("s")).distinct is True


def test_plain_equality_does_not_go_by_the_normalised_index() -> None:
    table = shelf(person("García-López", "José"), person("Garcia", "Ana"))
    assert str(plan(SPEC, P.surname == "garcia").index) == "surname,first_name"
    assert table.scan(P.surname == "garcia") == []
    assert len(table.scan(search("garcia"))) == 2


def test_eight_persons_are_found_as_they_are_searched_for() -> None:
    names = [
        ("Mous", "Jurriaan"),
        ("Kastens", "Karel"),
        ("kAstens", "Ariël"),
        ("Tockle", "Ti"),
        ("García-López", "José"),
        ("van   der  Waals", "Marie"),
        ("Verhoeven", "Mila"),
        ("Rijnders", "Mila"),
    ]
    table = shelf(*(person(*name) for name in names))

    def found(where: Expression | None, order: list[Any] | None = None) -> list[int]:
        return [key[0] for key in table.scan(where, order, allow=False)]

    by_name = [Normalized("surname"), "first_name"]
    assert found(None, by_name) == [4, 2, 1, 0, 7, 3, 5, 6]
    assert found(P.surname.normalized == "garcia lopez") == [4]
    assert found(P.surname.normalized.prefix("van der")) == [5]
    assert found(P.surname.normalized.regex("garcia.*")) == [4]
    assert found(P.surname.normalized > "garcia", by_name) == [4, 2, 1, 0, 7, 3, 5, 6]
    assert found((P.surname.normalized == "garcia lopez") & (P.first_name == "José")) == [4]
    assert found((P.surname.normalized == "garcia lopez") & (P.first_name == "Jose")) == []
    assert found(search("van der waals")) == [5]
    assert found(search("gar", prefix=True)) == [4]
    assert found(search("mila verh", prefix=True)) == [6]
    assert found(search("mila rij verh", prefix=True)) == []
    assert found(search("mi", prefix=True) & (P.first_name == "Mila") & (P.surname == "Verhoeven")) == [6]


def test_many_values_give_many_ranges_but_not_without_end() -> None:
    numbers = list(range(0, 4000, 2))
    assert len(plan(SPEC, P.age.isin(numbers)).ranges) == 2000
    names = [str(number) for number in numbers]
    chosen = plan(SPEC, P.surname.isin(names) & P.first_name.isin(names))
    assert len(chosen.ranges) == 2000


def test_a_plan_can_be_read_by_people_and_by_programs() -> None:
    chosen = plan(SPEC, (P.surname == "Mous") & (P.age > 5), ["-first_name"])
    assert chosen.explain() == (
        "read 1 range of the index surname,first_name backwards, keep where (surname == 'Mous') & (age > 5)"
    )
    assert chosen.describe() == {
        "kind": "index",
        "index": "surname,first_name",
        "ranges": [["4d6f757300", "4d6f757301"]],
        "reverse": True,
        "distinct": False,
        "whole": False,
        "sort": [],
        "filter": "(surname == 'Mous') & (age > 5)",
    }
    assert plan(SPEC).explain() == "read all of the table"
    assert plan(SPEC, P.email == "a").explain() == "get by the unique email = 'a', keep where email == 'a'"


def test_an_order_of_what_is_not_there_is_refused() -> None:
    for order in (["nothing"], ["address"], ["tags"], "nothing"):
        with pytest.raises(InvalidArgument):
            plan(SPEC, None, order)


def test_absent_values_come_last_in_both_directions() -> None:
    table = shelf(person("a"), person("b", age=1), person("c", age=2))
    assert table.scan(None, ["age"]) == [b"\1", b"\2", b"\0"]
    assert table.scan(None, ["-age"]) == [b"\2", b"\1", b"\0"]


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [("^gar.*$", "gar"), ("gar", "gar"), ("ga?r", "g"), ("gar*", "ga"), ("ga+r", "ga"), ("a|b", ""), ("(a)b", ""),
     (r"a\.b", "a"), ("a{0}b", ""), ("(?i)gar", ""), ("", ""), ("a.c", "a"), ("a[bc]", "a"), ("a$", "a")],
)  # fmt: skip
def test_what_a_regular_expression_begins_with_is_used_if_it_is_plain(pattern: str, prefix: str) -> None:
    import re

    assert literal_prefix(re.compile(pattern)) == prefix


def test_a_record_with_several_places_on_the_way_comes_once_in_any_order(store: Store) -> None:
    things = store.table(Thing)
    for name, tags in (("Bob", {"a", "b", "d"}), ("Ada Adams", {"b", "c"}), ("Cleo", {"a"})):
        things.add({"name": name, "tags": tags, "plain": len(tags)})
    for where in (Thing.tags.any_item >= "a", Thing.tags.any_item.isin(["a", "b", "c"])):  # type: ignore[attr-defined]
        scan = things.scan(where, order=["plain"])
        assert scan.plan.kind == "index" and scan.plan.sort
        assert [record.name for record in scan] == ["Cleo", "Ada Adams", "Bob"]
        assert things.count(where, order=["plain"]) == 3
        assert [record.name for record in things.scan(where, order=["plain"], limit=2)] == ["Cleo", "Ada Adams"]
        assert len(things.updates(where=where, order=["plain"])) == 1 + 3
        assert len(things.changes(where=where, order=["plain"])) == 3
        watcher = things.watch(where, order=["plain"], limit=2)
        assert [record.name for record in watcher.poll().records] == ["Cleo", "Ada Adams"]  # type: ignore[union-attr]
    assert [record.name for record in things.scan(search("ad", prefix=True), order=["plain"])] == ["Ada Adams"]


def test_a_cursor_is_of_one_order(store: Store) -> None:
    things = store.table(Thing)
    for number in range(4):
        things.add({"name": "dcba"[number], "rank": number})
    page = things.scan(order=["name"], limit=2)
    assert [record.name for record in page] == ["a", "b"]
    assert [record.name for record in things.scan(order=["name"], cursor=page.cursor)] == ["c", "d"]
    others: list[dict[str, Any]] = [
        {},
        {"order": ["-name"]},
        {"order": ["rank"]},
        {"order": ["plain"], "allow_table_scan": True},
    ]
    for options in others:
        with pytest.raises(InvalidArgument, match="another order"):
            things.scan(cursor=page.cursor, **options)


def test_an_order_knows_the_other_names_of_fields(store: Store) -> None:
    class Named(Model, id=93):
        name: str = field(1, names=("title",))
        tags: set[str] = field(2, names=("labels",), default_factory=set)
        __indexes__ = [Index("name"), Index(Each("tags"))]  # noqa: RUF012

    table = store.table(Named)
    for name in "ba":
        table.add({"name": name, "tags": {name}})
    for order in (["title"], [Each("labels")]):
        scan = table.scan(order=order)
        assert [record.name for record in scan] == ["a", "b"] and not scan.plan.sort
    assert [record.name for record in table.scan(order=["-title"])] == ["b", "a"]
