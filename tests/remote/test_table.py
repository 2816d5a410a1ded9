"""Can records be read and changed from afar, with the values and errors that a table in a folder has?"""

import enum
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any

import pytest

import holdfast
from holdfast import (
    AlreadyExists,
    DictEdit,
    Index,
    InvalidArgument,
    ListEdit,
    Model,
    NoRecord,
    NotFound,
    RemoteStore,
    Reversed,
    SetEdit,
    TableScanRefused,
    ValidationFailed,
    field,
)
from holdfast.remote.table import RemoteTable
from holdfast.table import Done, Limits
from tests.web.serving import Served


class Color(enum.Enum):
    RED = "r"
    BLUE = "b"


class City(Model):
    name: str = field(1)
    zip: str | None = field(2, default=None)


class Person(Model, id=1):
    name: str = field(1, unique=True)
    age: Annotated[int, Limits(min=0)] = field(2)
    born: date | None = field(3, default=None)
    color: Color | None = field(4, default=None)
    money: Decimal | None = field(5, default=None)
    photo: bytes | None = field(6, default=None)
    tags: set[str] = field(7, default_factory=set)
    notes: list[str] = field(8, default_factory=list)
    limits: dict[str, int] = field(9, default_factory=dict)
    home: City | None = field(10, default=None)

    __indexes__ = (Index("age"),)


P: Any = Person
ADA = Person(
    name="Ada ü",
    age=36,
    born=date(1815, 12, 10),
    color=Color.BLUE,
    money=Decimal("12.50"),
    photo=b"\xff\x00",
    tags={"x", "y"},
    notes=["a b", "c"],
    limits={"EUR": 5},
    home=City(name="London", zip=None),
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A served store with a table that keeps its past."""
    folder = tmp_path_factory.mktemp("tables") / "data"
    with holdfast.open(folder) as store:
        store.table(Person, keep_all_versions=True)
    with Served(folder) as one:
        yield one


def test_a_record_comes_back_as_it_was_given(remote: RemoteStore) -> None:
    table = remote.table(Person)
    done = table.add(ADA)
    record = table.get(done.key)
    assert record is not None and record.value == ADA
    assert (record.version, record.created, record.deleted) == (done.version, done.version, False)
    assert remote.tables() == ["Person"]


def test_without_the_class_the_model_is_that_of_the_table(remote: RemoteStore) -> None:
    table: RemoteTable[Any] = remote.table("Person")
    colors = table.spec.fields["color"].type.enum
    assert colors is not None
    key = table.add({"name": "No class", "age": 1, "born": date(2000, 1, 2), "color": colors("b")}).key
    record = table.get(key)
    assert record is not None and record.tags == set()
    assert (record.born, record.color.name) == (date(2000, 1, 2), "BLUE")
    assert list(table.spec.fields)[:2] == ["name", "age"] and table.settings.keep_all_versions


def test_values_are_changed_by_their_paths(remote: RemoteStore) -> None:
    table = remote.table(Person)
    key = table.add(Person(name="Changed", age=1, notes=["a"], tags={"t"}, limits={"EUR": 1, "USD": 2})).key
    first = table.get(key)
    done = table.change(
        key,
        {
            "age": 2,
            Person.color: Color.RED,
            "born": date(2001, 2, 3),
            "money": Decimal("0.10"),
            "notes": ListEdit(append=['two "words"']),
            "tags": SetEdit(add=["ü"]),
            "limits": DictEdit(remove=["USD"]),
            "limits['CHF']": 7,
            "home": City(name="Bonn", zip="53111"),
        },
        check={"age": 1},
        if_version=first.version,  # type: ignore[union-attr]
    )
    value = table.get(key).value  # type: ignore[union-attr]
    assert done.changed
    assert (value.age, value.color, value.born, value.money) == (2, Color.RED, date(2001, 2, 3), Decimal("0.10"))
    assert (value.notes, value.tags, value.limits) == (["a", 'two "words"'], {"t", "ü"}, {"EUR": 1, "CHF": 7})
    assert value.home == City(name="Bonn", zip="53111")
    assert not table.change(key, {"age": 2}).changed
    table.change(key, {"home": None, "color": None})
    assert table.get(key).value.home is None  # type: ignore[union-attr]
    for edit in (ListEdit(insert={0: "x"}), ListEdit(append=["1", "2"])):
        with pytest.raises(InvalidArgument, match="a remote table"):
            table.change(key, {"notes": edit})


def test_a_filter_is_a_text_and_finds_page_after_page(remote: RemoteStore, served: Served) -> None:
    table = remote.table(Person)
    outcomes = table.add_many([Person(name=f"Many {number:04}", age=1000 + number) for number in range(1100)])
    assert all(isinstance(one, Done) for one in outcomes)
    found = [record.age for record in table.scan("age >= 1000", order="age")]
    assert found == list(range(1000, 2100))
    page = table.scan("age >= 1000", order=["-age"], limit=3)
    assert [record.age for record in page] == [2099, 2098, 2097]
    following = table.scan("age >= 1000", order=["-age"], limit=2, cursor=page.cursor)
    assert [record.age for record in following] == [2096, 2095]
    chosen = table.scan("age == 1005", select=["name", "born"]).first()
    assert chosen == served.store.table(Person).scan(Person.age == 1005, select=["name", "born"]).first()
    assert table.count("age >= 1000") == 1100 and list(table.scan(limit=0)) == []
    assert "age" in table.scan("age == 3").explain()


def test_a_scan_of_the_whole_table_must_be_asked_for(remote: RemoteStore) -> None:
    table = remote.table(Person)
    with pytest.raises(TableScanRefused, match="allow_table_scan"):
        list(table.scan("'x' in notes"))
    assert list(table.scan("'no such' in notes", allow_table_scan=True)) == []
    with pytest.raises(InvalidArgument):
        list(table.scan("ages == 3"))
    with pytest.raises(InvalidArgument, match="a string such as"):
        table.scan(3)


def test_the_past_can_be_read(remote: RemoteStore) -> None:
    table = remote.table(Person)
    added = table.add(Person(name="Then", age=1))
    changed = table.change(added.key, {"age": 2, "born": date(1999, 1, 1)})
    table.delete(added.key)
    assert table.get(added.key, as_of=added.version).age == 1  # type: ignore[union-attr]
    assert table.get(added.key, as_of=datetime.now(UTC), include_deleted=True).deleted  # type: ignore[union-attr]
    assert table.changes([added.key], max_versions=10) == []
    (story,) = table.changes([added.key], max_versions=10, include_deleted=True)
    assert [one.kind for one in story.versions] == ["add", "change", "delete"]
    assert story.versions[1].values == {"age": 2, "born": date(1999, 1, 1)}
    assert story.versions[1].version == changed.version
    assert table.changes([added.key], limit=0) == []


@pytest.mark.parametrize("order", [["name"], ["-age", "name"], [Reversed("age"), Person.name], None])
@pytest.mark.parametrize("include_start", [True, False])
def test_a_scan_and_changes_begin_at_a_record(
    served: Served, remote: RemoteStore, order: Any, include_start: bool
) -> None:
    near, far = served.store.table(Person), remote.table(Person)
    if not near.count(P.age.between(500, 520)):
        far.add_many([Person(name=f"Start {age % 7}", age=500 + age) for age in range(7)])
    where, some = P.age.between(500, 520), near.scan(Person.age == 503).first()
    assert some is not None
    options: dict[str, Any] = {
        "order": order, "start": some.key, "include_start": include_start, "allow_table_scan": True
    }  # fmt: skip
    found = list(far.scan(where, **options))
    assert found == list(near.scan(where, **options)) and (some in found) == include_start
    assert far.changes(where=where, **options) == near.changes(where=where, **options)
    assert far.changes(where=where, limit=2, **options) == near.changes(where=where, limit=2, **options)
    assert far.count(where, **options) == len(found)


def test_more_changes_than_fit_into_a_response_are_fetched_in_pages(
    remote: RemoteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.remote.table.CHANGES_MAX", 3)
    monkeypatch.setattr("holdfast.remote.table.KEYS_MAX", 2)
    table = remote.table(Person)
    keys = [
        done.key
        for done in table.add_many([Person(name=f"Page {n}", age=700 + n) for n in range(7)])
        if isinstance(done, Done)
    ]
    where = P.age.between(700, 706)
    assert [one.key for one in table.changes(where=where, order=["-age"])] == keys[::-1]
    assert [one.key for one in table.changes(where=where, order=["age"], limit=4)] == keys[:4]
    assert [one.key for one in table.changes(keys)] == keys
    assert [one.key for one in table.changes(keys, limit=3)] == keys[:3]


def test_records_are_got_by_their_keys(remote: RemoteStore) -> None:
    table = remote.table(Person)
    key = table.add(Person(name="Got", age=1)).key
    assert [record.name for record in table.get_many([key, b"n" * 16, key])] == ["Got", "Got"]


def test_an_argument_that_a_remote_table_cannot_take_is_refused(remote: RemoteStore) -> None:
    with pytest.raises(InvalidArgument, match=r"chosen with holdfast.open, where the store is: leave them out"):
        remote.table(Person, keep_all_versions=True)
    table = remote.table(Person)
    with pytest.raises(InvalidArgument, match="must not contain a comma"):
        table.scan(order=["words(name,notes)"])
    with pytest.raises(InvalidArgument, match="a start or a cursor, not both"):
        table.scan(start=b"x" * 16, cursor="x")
    with pytest.raises(InvalidArgument, match="key of a record, as bytes"):
        table.changes(start="x")  # type: ignore[arg-type]


def test_records_are_deleted_and_brought_back(remote: RemoteStore) -> None:
    table = remote.table(Person)
    key = table.add(Person(name="Gone", age=1)).key
    table.delete(key)
    assert table.get(key) is None and table.get(key, include_deleted=True).deleted  # type: ignore[union-attr]
    table.undelete(key)
    assert table.get(key) is not None
    table.delete(key, hard=True)
    assert table.get(key, include_deleted=True) is None
    with pytest.raises(NoRecord):
        table.undelete(key)


def test_errors_are_those_of_a_table_in_a_folder(remote: RemoteStore) -> None:
    table = remote.table(Person)
    done = table.add(Person(name="Once", age=1), key=b"k" * 16)
    assert done.key == b"k" * 16
    with pytest.raises(AlreadyExists):
        table.add(Person(name="Twice", age=1), key=b"k" * 16)
    with pytest.raises(ValidationFailed, match="name"):
        table.add(Person(name="Once", age=1))
    with pytest.raises(ValidationFailed, match="age"):
        table.change(done.key, {"age": -1})
    with pytest.raises(ValidationFailed):
        table.change(done.key, {"age": 5}, check={"age": 77})
    with pytest.raises(NoRecord):
        table.change(b"n" * 16, {"age": 3})
    outcomes = table.add_many([Person(name="Good", age=1), Person(name="Once", age=2)])
    assert isinstance(outcomes[0], Done) and isinstance(outcomes[1], ValidationFailed)
    with pytest.raises(NotFound, match="no table 'Nobody'"):
        remote.table("Nobody")
    assert table.get(b"n" * 16) is None


def test_migrations_are_listed(remote: RemoteStore) -> None:
    assert [(one.table, one.state) for one in remote.migrations()] == [("Person", "idle")]
    found = remote.migrations()
    assert found.status("Person").processed == 0 and found.audit("Person") == []
    assert found.wait() and found.wait("Person", timeout=1)
    assert not found.pause("Person") and not found.resume("Person") and not found.cancel("Person")
    for ask in (found.wait, found.audit, found.status):
        with pytest.raises(NotFound, match="no table 'Nobody'"):
            ask("Nobody")
