"""Models as descriptions, and objects with names: what others than the class's own program see."""

import datetime as dt
import json
import uuid
from typing import Annotated, Any

import msgspec
import pytest

from holdfast.base.errors import InvalidArgument
from holdfast.table import InvalidModel, Limits, Model, ModelMeta, Ref, ValidationFailed, describe, field, model_from
from holdfast.table.model.indexes import Each, Index, Keys, Normalized, Reversed, TypeOf, Words
from tests.table.test_models import NOON, Account, Address, Colour, Everything, Length, Severity, account, everything


class Node(Model):
    value: int = field(1, max=9)
    next: "Node | None" = field(2, default=None)
    links: "list[Edge]" = field(3, default_factory=list)


class Edge(Model):
    to: "Node | None" = field(1, default=None)


class Rich(Model, id=7, version="2.1"):
    at: dt.datetime = field(1, final=True, min=dt.datetime(2000, 1, 1, tzinfo=dt.UTC))
    kind: Severity = field(2, final=True, default=Severity.INFO)
    shade: Colour | None = field(3, default=Colour.RED)
    name: str = field(4, unique=True, pattern="ha.*", names=("str", "text"), default="haha")
    word: str | None = field(5, sensitive=True, default=None)
    scores: dict[str, int] = field(6, default_factory=dict, keys=Limits(max_length=3), values=Limits(max=9))
    nested: list[Annotated[list[int], Limits(max_length=2)]] = field(
        7, default_factory=list, items=Limits(min_length=1)
    )
    node: Node | None = field(8, default=None)
    either: Node | int | Annotated[str, Limits(max_length=4)] = field(9, default=5)
    owner: Ref[Account] | None = field(10, default=None)
    made: uuid.UUID = field(11, default_factory=uuid.uuid4)
    counted: dict[int, str] = field(12, auto_key=True, default_factory=dict, max_length=5)
    raw: bytes = field(13, default=b"\xff\0")
    __key__ = (Reversed("at"), "kind")
    __indexes__ = (
        Index("name"),
        Index(Reversed(Normalized("name")), "node.value", name="values"),
        Index(Keys("scores")),
        Index(Words("name")),
        Index(TypeOf("either")),
        Index("either:int"),
    )
    __reserved__ = (99, "old")


@pytest.mark.parametrize("model", [Rich, Account, Everything, Node, Edge, Address])
def test_a_description_is_json_and_makes_the_same_model_again(model: type[Model]) -> None:
    written = describe(model)
    again = model_from(json.loads(json.dumps(written)))
    assert describe(again) == written
    assert again is not model and again.__name__ == model.__name__


def test_a_model_of_a_description_reads_writes_and_checks_records() -> None:
    made = model_from(describe(Everything))
    obj = made.decode(everything().encode())
    assert Everything.decode(obj.encode()) == everything()  # one set can be written in several orders
    assert made.from_json(everything().to_json()).to_json() == everything().to_json()

    rich: Any = model_from(describe(Rich))
    with pytest.raises(ValidationFailed) as caught:
        rich(at=dt.datetime(1999, 1, 1, tzinfo=dt.UTC), name="no", scores={"long": 10}, node=5, nested=[[], [1, 2, 3]])
    assert [(one.path, one.rule) for one in caught.value.violations] == [
        ("at", "min"), ("name", "pattern"), ("scores<long>", "max_length"), ("scores[long]", "max"),
        ("nested[0]", "min_length"), ("nested[1]", "max_length"), ("node", "type"), ("made", "required"),
    ]  # fmt: skip
    assert rich(at=NOON, made=uuid.UUID(int=1)).shade.name == "RED"


def test_a_described_model_has_key_indexes_and_flags() -> None:
    spec, again = Rich.__spec__, model_from(describe(Rich)).__spec__
    assert again.indexes == spec.indexes and not again.plain
    assert [(part.path, part.reversed) for part in again.key or ()] == [("at", True), ("kind", False)]
    assert again.fields["counted"].auto_key and again.fields["name"].alternatives == ("str", "text")
    assert again.fields["raw"].default == b"\xff\0" and again.fields["either"].default == 5
    assert (again.id, again.version) == (7, "2.1") and again.reserved_numbers == {99}


def test_what_describes_no_model_is_refused() -> None:
    for wrong in ({}, {"name": "X", "version": "1", "fields": [{}]}, {"name": "X", "version": "1", "fields": 5}):
        with pytest.raises(InvalidModel, match="not the description of a model"):
            model_from(wrong)


def test_two_models_of_one_name_cannot_be_described_together() -> None:
    def other() -> type[Model]:
        class Address(Model):
            street: str = field(1)

        return Address

    namespace = {"__annotations__": {"a": Address, "b": other()}, "a": field(1), "b": field(2), "__module__": __name__}
    both = ModelMeta("Both", (Model,), namespace)
    with pytest.raises(InvalidModel, match="Address"):
        describe(both)


def test_objects_become_dicts_of_names_and_back() -> None:
    obj = account(tags={"vip"}, address=Address(city="Ede"))
    written = obj.to_dict()
    assert written["opened"] == NOON and written["tags"] == {"vip"}
    assert written["address"] == {"city": "Ede", "zip": None} and written["owner"] is None
    assert Account.from_dict(written) == obj
    assert Everything.from_dict(everything().to_dict()) == everything()
    assert Account.from_dict({**written, "address": Address(city="Ede")}) == obj


def test_objects_become_json_and_back() -> None:
    text = everything().to_json()
    written = json.loads(text)
    assert written["f"] == "AP8" and written["d"] == "1.50" and written["h"] == "2020-02-29"
    assert written["r"] == {"$type": "Length", "cm": 180} and written["q"] == {"red": [1, 2]}
    assert written["t"] == {"AQ": "inf"} and written["s"]["1"] == "x" and written["g"] == 3
    assert Everything.from_json(text) == everything()
    assert isinstance(Everything.from_json(text).r, Length)


def test_json_is_read_by_other_names_too() -> None:
    given = {"email": "a", "title": "Ada", "opened": "2024-05-01T12:30:15.123456Z"}
    assert Account.from_json(json.dumps(given)).name == "Ada"
    with pytest.raises(ValidationFailed, match="given under another name"):
        Account.from_json(json.dumps({**given, "name": "Bea"}))


def test_all_that_is_wrong_in_json_comes_at_once() -> None:
    given = {"email": 5, "opened": "soon", "owner": "?", "tags": [1], "address": {"city": 1, "street": "x"}, "x": 1}
    with pytest.raises(ValidationFailed) as caught:
        Account.from_json(json.dumps(given))
    assert [(one.path, one.rule) for one in caught.value.violations] == [
        ("address.street", "unknown"), ("x", "unknown"), ("email", "type"), ("name", "required"), ("opened", "type"),
        ("tags{1}", "type"), ("address.city", "type"), ("owner", "type"),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "{", "[]", "5", "null"])
def test_what_is_no_json_object_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        Account.from_json(text)


def test_a_record_of_a_described_model_and_of_the_class_are_the_same_bytes() -> None:
    made: Any = model_from(describe(Node))
    node = Node(value=1, next=Node(value=2), links=[Edge(to=Node(value=3))])
    assert made.from_dict(node.to_dict()).encode() == node.encode()
    assert msgspec.msgpack.decode(node.encode())["2"] == {"1": 2, "3": []}


def test_items_of_a_set_index_survive_description() -> None:
    assert Index(Each("tags")) in model_from(describe(Account)).__spec__.indexes


@pytest.mark.parametrize(("id", "is_one"), [(0, False), (1, True), (2**32 - 2, True), (2**32 - 1, False)])
def test_an_id_out_of_range_is_refused(id: int, is_one: bool) -> None:
    made = {**describe(Node), "id": id}
    if is_one:
        assert describe(model_from(made))["id"] == id
    else:
        with pytest.raises(InvalidModel, match="an int from 1 to 4294967294"):
            model_from(made)
