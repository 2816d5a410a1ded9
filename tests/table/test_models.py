"""Models: how classes become them, what their objects can do, and what is refused."""

import copy
import datetime as dt
import pickle
import uuid
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any

import msgspec
import pytest

from holdfast.base.errors import InvalidArgument
from holdfast.table import InvalidModel, Kind, Limits, Model, ModelMeta, Ref, ValidationFailed, copy_of, field, get_at
from holdfast.table.model.indexes import Each, Index, Reversed, TypeOf, Words
from holdfast.table.model.object_access import copied, same

NOON = dt.datetime(2024, 5, 1, 12, 30, 15, 123456, tzinfo=dt.UTC)


class Severity(IntEnum):
    INFO = 1
    ERROR = 3


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Address(Model):
    city: str = field(1, final=True)
    zip: str | None = field(2, default=None)


class Weight(Model, tag=1):
    kg: int = field(1)


class Length(Model, tag=2):
    cm: int = field(1)


class Account(Model, id=1, version="1.0"):
    email: str = field(1, max_length=200)
    name: str = field(2, names=("title",))
    opened: dt.datetime = field(3, final=True)
    tags: set[str] = field(4, default_factory=set)
    address: Address | None = field(5, default=None)
    friend: "Account | None" = field(6, default=None)
    owner: "Ref[Account] | None" = field(7, default=None)
    level: int = field(8, default=3)
    __key__ = None
    __indexes__ = (Index("name"), Index(Reversed("opened"), "name"), Index(Each("tags")), Index("address.city"))
    __reserved__ = (99, "reserved")


class Everything(Model, id=2):
    a: bool = field(1)
    b: int = field(2)
    c: float = field(3)
    d: Decimal = field(4)
    e: str = field(5)
    f: bytes = field(6)
    g: Severity = field(7)
    h: dt.date = field(8)
    i: dt.time = field(9)
    j: dt.datetime = field(10)
    k: uuid.UUID = field(11)
    l: dt.timedelta = field(12)  # noqa: E741
    m: Ref[Account] = field(13)
    n: Address = field(14)
    o: list[Address] = field(15)
    p: set[dt.date] = field(16)
    q: dict[Colour, list[int]] = field(17)
    r: Weight | Length | int = field(18)
    s: dict[int, Weight | Length | str] = field(19, auto_key=True)
    t: dict[bytes, float] = field(20)
    u: Colour | None = field(21, default=None)


def account(**more: Any) -> Account:
    return Account(**{"email": "a@b.c", "name": "Ada", "opened": NOON, **more})


def everything() -> Everything:
    return Everything(
        a=True, b=2**64 - 1, c=1.5, d=Decimal("1.50"), e="é", f=b"\0\xff", g=Severity.ERROR, h=dt.date(2020, 2, 29),
        i=dt.time(23, 59, 1, 5), j=NOON, k=uuid.UUID(int=7), l=dt.timedelta(days=-3, microseconds=1), m=b"key",
        n=Address(city="Ede"), o=[Address(city="Ede", zip="1"), Address(city="Epe")],
        p={dt.date(2020, 1, 1), dt.date(2021, 1, 1)}, q={Colour.RED: [1, 2]}, r=Length(cm=180),
        s={1: "x", 2: Weight(kg=70)}, t={b"\1": float("inf")},
    )  # fmt: skip


def test_an_image_is_msgpack_of_numbers_and_comes_back_as_it_was() -> None:
    assert msgspec.msgpack.decode(account(tags={"vip"}).encode()) == {
        "1": "a@b.c", "2": "Ada", "3": NOON, "4": ["vip"], "8": 3
    }  # fmt: skip
    for obj in (account(address=Address(city="Ede"), friend=account(owner=b"k")), everything()):
        assert type(obj).decode(obj.encode()) == obj
        assert msgspec.msgpack.decode(obj.encode(), type=type(obj)) == obj


def test_an_old_image_is_read_though_a_required_field_came_later_and_another_went() -> None:
    old = msgspec.msgpack.encode({"1": "a@b.c", "77": "gone"})
    read = Account.decode(old)
    assert [read.email, read.name, read.tags, read.level] == ["a@b.c", None, set(), 3]
    assert "name=None" in repr(read)
    assert read == Account.decode(read.encode())
    assert "2" not in msgspec.msgpack.decode(read.encode())


def test_decoding_asks_for_no_limits() -> None:
    image = msgspec.msgpack.encode({"1": "x" * 1000})
    assert len(Account.decode(image).email) == 1000


def test_a_default_is_stored_so_that_changing_it_later_changes_no_record() -> None:
    class Before(Model):
        size: int = field(1, default=1)
        tags: list[int] = field(2, default_factory=list)
        note: str | None = field(3, default="none")

    class After(Model):
        size: int = field(1, default=2)
        tags: list[int] = field(2, default_factory=lambda: [1])
        note: str | None = field(3, default="other")

    assert After.decode(Before().encode()) == After(size=1, tags=[], note="none")
    assert After.decode(Before(note=None).encode()).note is None


def test_default_factories_make_a_new_value_for_each_object() -> None:
    first, second = account(), account()
    first.tags.add("x")
    assert second.tags == set()


def test_a_model_knows_its_fields() -> None:
    spec = Account.__spec__
    assert (spec.name, spec.id, spec.version, spec.plain) == ("Account", 1, "1.0", True)
    assert list(spec.fields) == ["email", "name", "opened", "tags", "address", "friend", "owner", "level"]
    assert spec.numbers[1] is spec.fields["email"] and not spec.fields["email"].unique
    assert spec.fields["opened"].final and spec.fields["opened"].required
    assert not spec.fields["owner"].required and spec.fields["owner"].type.target == "Account"
    assert spec.fields["tags"].type.kind is Kind.SET and spec.fields["friend"].type.model is Account
    assert spec.find("title") is spec.fields["name"]
    assert spec.reserved_numbers == {99} and spec.reserved_names == {"reserved"}
    assert [str(index) for index in spec.indexes] == ["name", "-opened,name", "each(tags)", "address.city"]


def test_class_attributes_are_paths_and_instance_attributes_are_values() -> None:
    from holdfast.table.model.path_expressions import Path

    model: Any = Account
    assert isinstance(model.name, Path) and str(model.name) == "name"
    assert isinstance(model.title, Path) and str(model.title) == "name"
    assert account().name == "Ada"


def test_methods_and_properties_can_be_added() -> None:
    class Circle(Model):
        radius: int = field(1)

        @property
        def width(self) -> int:
            return 2 * self.radius

    assert Circle(radius=2).width == 4


def test_a_composed_key_names_final_and_required_fields_also_nested_ones() -> None:
    class Log(Model, id=4):
        at: dt.datetime = field(1, final=True)
        place: Address = field(2, final=True)
        size: Weight | Length = field(3, final=True)
        __key__ = (Reversed("at"), "place.city", TypeOf("size"))

    assert Log.__spec__.key is not None
    assert [(part.path, part.reversed, part.type_of) for part in Log.__spec__.key] == [
        ("at", True, False), ("place.city", False, False), ("size", False, True)
    ]  # fmt: skip


def test_models_can_speak_of_each_other_before_they_are_there() -> None:
    class Tree(Model):
        leaves: "list[Leaf]" = field(1, default_factory=list)

    with pytest.raises(InvalidModel, match="Leaf"):
        Tree()

    class Leaf(Model):
        tree: "Tree | None" = field(1, default=None)

    tree = Tree(leaves=[Leaf(), Leaf(tree=Tree())])
    assert Tree.decode(tree.encode()) == tree
    assert Tree.__spec__.fields["leaves"].type.embedded() == [Leaf]


def test_sensitive_values_are_not_shown() -> None:
    class Secret(Model, id=9):
        word: str = field(1, sensitive=True, max_length=5)
        inner: list[str] = field(2, sensitive=True, default_factory=list)

    class Holder(Model, id=10):
        secret: Secret = field(1)

    assert not Secret.__spec__.plain and not Holder.__spec__.plain
    assert "sesam" not in repr(Holder(secret=Secret(word="sesam")))
    with pytest.raises(ValidationFailed) as caught:
        Secret(word="open sesam", inner=[b"open sesam"])  # type: ignore[list-item]
    assert "sesam" not in str(caught.value) + repr(caught.value.violations)
    assert [one.path for one in caught.value.violations] == ["word", "inner"]


def test_a_copy_can_be_edited_and_the_original_stays() -> None:
    first = everything()
    kept = first.encode()
    second = copy_of(first)
    assert second == first
    second.o[0].city = "Oss"
    second.o.append(Address(city="Urk"))
    second.p.clear()
    second.q[Colour.RED].append(9)
    second.n.city = "Oss"
    assert isinstance(second.r, Length) and isinstance(second.s[2], Weight)
    second.r.cm = 1
    second.s[2].kg = 1
    assert first.encode() == kept


def test_objects_can_be_pickled_andcopied() -> None:
    obj = everything()
    assert pickle.loads(pickle.dumps(obj)) == obj and copy.deepcopy(obj) == obj
    old = Account.decode(msgspec.msgpack.encode({"1": "only"}))
    assert pickle.loads(pickle.dumps(old)) == old


def test_values_are_read_at_paths() -> None:
    obj = account(address=Address(city="Ede"))
    assert get_at(obj, "address.city") == "Ede" and get_at(obj, "address.zip") is None
    assert get_at(account(), "address.city") is None
    assert get_at(everything(), "r:Length.cm") == 180 and get_at(everything(), "r:Weight.kg") is None
    with pytest.raises(InvalidArgument, match="street"):
        get_at(obj, "address.street")


def make(annotation: Any, declared: Any = None, **more: Any) -> Any:
    """A model with one field, as a class statement would make it."""
    options = {key: more.pop(key) for key in ("id", "tag", "version") if key in more}
    body = {"__annotations__": {"x": annotation}, "x": declared or field(1), "__module__": __name__, **more}
    return ModelMeta("Made", (Model,), {**body, "__qualname__": "Made"}, **options)


@pytest.mark.parametrize(
    ("annotation", "declared", "more", "says"),
    [
        (tuple[int, ...], None, {}, "use list"),
        (frozenset[int], None, {}, "use set"),
        (list, None, {}, "give the type of its items"),
        (Any, None, {}, "name the types"),
        (list[int | None], None, {}, "None is allowed only"),
        (set[list[int]], None, {}, "one plain value"),
        (dict[Address, int], None, {}, "one plain value"),
        (Weight | Address, None, {}, "tag"),
        (str | dt.date, None, {}, "str-like"),
        ("int", field(1, min_length=1), {}, "no length"),
        ("bool", field(1, min=1), {}, "no min"),
        ("int", field(1, max="9"), {}, "must be of kind int"),
        ("dt.datetime", field(1, max=dt.datetime(2020, 1, 1)), {}, "time zone"),
        ("bytes", field(1, pattern="a"), {}, "only str"),
        ("str", field(1, pattern="("), {}, "not a regular expression"),
        ("str", field(1, items=Limits(max=1)), {}, "no items"),
        ("str", field(1, auto_key=True), {}, "auto_key"),
        ("str", field(1, default=5), {}, "breaks its own rules"),
        ("str", field(1, default=None), {}, r"\| None"),
        ("list[str]", field(1, default=[]), {}, "default_factory"),
        ("list[str]", field(1, unique=True), {"id": 1}, "cannot be unique"),
        ("str", field(1, unique=True), {}, "no id"),
        ("str", None, {"__indexes__": [Index("x")]}, "no id"),
        ("str", None, {"id": 1, "__indexes__": [Index("y")]}, "no field 'y'"),
        ("list[str]", None, {"id": 1, "__indexes__": [Index("x")]}, "Each"),
        ("int", None, {"id": 1, "__indexes__": [Index(Words("x"))]}, "needs a str"),
        ("str", None, {"id": 1, "__indexes__": [Index("x"), Index("x")]}, "twice"),
        ("str", field(1, sensitive=True), {"id": 1, "__indexes__": [Index("x")]}, "sensitive"),
        ("int | str", field(1, sensitive=True), {"id": 1, "__indexes__": [Index("x:int")]}, "sensitive"),
        ("str", None, {"id": 1, "__key__": ("x",)}, "not final"),
        ("str", None, {"id": 1, "__key__": ("y",)}, "no field 'y'"),
        ("str | None", field(1, final=True), {"id": 1, "__key__": ("x",)}, "may be None"),
        ("set[str]", field(1, final=True), {"id": 1, "__key__": ("x",)}, "one plain value"),
        ("str", field(1, final=True, sensitive=True), {"id": 1, "__key__": ("x",)}, "sensitive"),
        ("str", None, {"__reserved__": (1,)}, "reserved"),
        ("str", None, {"__reserved__": ("x",)}, "reserved"),
        ("str", None, {"y": field(1)}, "number 1 of 'x'"),
        ("str", None, {"y": field(2)}, "no type"),
        ("str", field(1, names=("encode",)), {}, "every model has"),
        ("str", None, {"id": 0}, "from 1"),
        ("str", None, {"id": 1, "version": 2}, "must be a string"),
        (field(1), None, {}, "has the name of the field"),
    ],
)
def test_what_cannot_be_stored_is_refused_when_the_class_is_made(
    annotation: Any, declared: Any, more: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidModel, match=says):
        make(annotation, declared, **more)
    assert make("str")(x="fine").x == "fine"


def test_numbers_must_be_from_1_to_65535() -> None:
    for number in (0, 65_536, "1", True):
        with pytest.raises(InvalidModel, match="number"):
            field(number)  # type: ignore[arg-type]


def test_a_field_without_a_number_is_refused() -> None:
    with pytest.raises(InvalidModel, match="no number"):

        class Plain(Model):
            x: str


def test_models_do_not_derive_from_models() -> None:
    with pytest.raises(InvalidModel, match="embed"):

        class Special(Address):
            more: str = field(3)


def test_values_that_are_equal_and_kept_differently_are_not_the_same() -> None:
    class Inner(Model):
        price: Decimal = field(1)

    class Mixed(Model):
        flag: int | bool = field(1)
        number: float | int = field(2)
        price: Decimal = field(3)
        ratio: float = field(4)
        many: list[Decimal] = field(5)
        named: dict[str, Decimal] = field(6)
        inner: Inner = field(7)
        ids: set[Decimal] = field(8)

    def differs(name: str, old: Any, new: Any) -> bool:
        ftype = Mixed.__spec__.fields[name].type
        assert same(ftype, old, old) and same(ftype, copied(old), old)
        return not same(ftype, old, new)

    one, other = Decimal("1.0"), Decimal("1.00")
    assert differs("flag", 1, True) and differs("number", 1, 1.0) and differs("price", one, other)
    assert differs("many", [one], [other]) and differs("named", {"a": one}, {"a": other})
    assert differs("inner", Inner(price=one), Inner(price=other)) and differs("ids", {one}, {other})
    assert differs("ratio", 0.0, -0.0) and not differs("ratio", 1.0, 1)
    assert differs("price", one, None) and differs("price", None, one)


def test_rules_of_what_is_inside_are_limits_and_other_names_a_tuple() -> None:
    with pytest.raises(InvalidModel, match="items=Limits"):
        field(1, items=5)  # type: ignore[call-overload]
    with pytest.raises(InvalidModel, match="names="):
        field(1, names="old")  # type: ignore[call-overload]


def test_what_cannot_be_hashed_is_no_key_of_a_dict() -> None:
    class Limited(Model):
        limits: dict[str, int] = field(1)

    paths: Any = Limited
    with pytest.raises(InvalidArgument, match="single values"):
        paths.limits[[1]]


def test_limits_that_no_value_keeps_to_are_refused() -> None:
    with pytest.raises(InvalidModel, match=r"min of Narrow\.a is 5, above max"):

        class Narrow(Model):
            a: int = field(1, min=5, max=3)

    with pytest.raises(InvalidModel, match=r"min_length of each item of Short\.a is 5, above max_length"):

        class Short(Model):
            a: list[str] = field(1, items=Limits(min_length=5, max_length=3))


def test_a_default_that_is_made_keeps_to_the_rules_too() -> None:
    with pytest.raises(InvalidModel, match=r"the default of Full\.a breaks its own rules"):

        class Full(Model):
            a: list[int] = field(1, default_factory=list, min_length=1)


def test_a_model_with_unique_fields_is_not_embedded() -> None:
    class Mail(Model, id=91):
        address: str = field(1, unique=True)

    with pytest.raises(InvalidModel, match="whose address is unique in its own table only"):

        class Person(Model, id=92):
            mails: list[Mail] = field(1)
