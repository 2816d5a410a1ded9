"""Two definitions of a table are compared."""

from datetime import datetime
from enum import Enum
from typing import Any

import pytest

from holdfast.table.migration import (
    IncompatibleModel,
    NeedsMigration,
    NewIndexes,
    NewModel,
    OnlySafeAdds,
    UpToDate,
    judge,
)
from holdfast.table.model.definition import describe
from holdfast.table.model.fields import field
from holdfast.table.model.indexes import Each, Index, Reversed
from holdfast.table.model.model import Model, ModelMeta, Ref
from holdfast.table.model.types import Limits


def model(
    _name: str = "Thing", _id: int = 7, _version: str = "1.0", _with: dict[str, Any] | None = None, **fields: Any
) -> Any:
    """A model of this module: each field is a type and its `field(...)`."""
    space: dict[str, Any] = {"__module__": __name__, "__qualname__": _name, "__annotations__": {}, **(_with or {})}
    for name, (annotation, declared) in fields.items():
        space["__annotations__"][name] = annotation
        space[name] = declared
    return ModelMeta(_name, (Model,), space, id=_id, version=_version)


def verdict(old: Any, new: Any) -> Any:
    return judge(describe(old), describe(new))


def reasons(old: Any, new: Any) -> tuple[str, ...]:
    found = verdict(old, new)
    assert isinstance(found, NeedsMigration), found
    return found.reasons


NAME = (str, field(1))


def test_a_table_that_is_not_there_is_new() -> None:
    assert judge(None, describe(model(name=NAME))) == NewModel()


def test_the_same_definition_is_up_to_date() -> None:
    assert verdict(model(name=NAME), model(name=NAME)) == UpToDate()


def test_another_version_alone_is_safe() -> None:
    assert verdict(model(name=NAME), model(_version="1.1", name=NAME)) == OnlySafeAdds()


@pytest.mark.parametrize(
    "added",
    [
        (str | None, field(2)),
        (str, field(2, default="x")),
        (list[str], field(2, default_factory=list)),
    ],
)
def test_a_new_field_that_may_be_absent_is_safe(added: Any) -> None:
    found = verdict(model(name=NAME), model(name=NAME, more=added))
    assert found == OnlySafeAdds(("field 'more' is new",))


def test_a_new_field_that_must_be_there_needs_a_migration() -> None:
    (reason,) = reasons(model(name=NAME), model(name=NAME, more=(str, field(2))))
    assert reason.startswith("field 'more' is new and required")


@pytest.mark.parametrize("type_", [str, str | None])
def test_a_new_field_whose_default_a_function_makes_needs_a_migration(type_: Any) -> None:
    (reason,) = reasons(model(name=NAME), model(name=NAME, more=(type_, field(2, default_factory=str))))
    assert reason.startswith("field 'more' is new, and has a default from a function")


def test_a_default_that_a_function_makes_from_now_on_needs_a_migration_where_records_may_lack_the_value() -> None:
    made = model(more=(str, field(1, default_factory=str)))
    for before in [(str | None, field(1)), (str, field(1, default="x")), (str | None, field(1, default_factory=str))]:
        (reason,) = reasons(model(more=before), made)
        assert reason.startswith("field 'more' has a default from a function")
    assert verdict(model(more=(str, field(1))), made) == OnlySafeAdds(), "every record has it"


def test_wider_limits_and_new_names_are_safe() -> None:
    old = model(name=(str, field(1, min_length=2, max_length=5)), age=(int, field(2, min=1, max=9)))
    new = model(name=(str, field(1, max_length=9, names=("title",))), age=(int, field(2, min=0, max=10)))
    found = verdict(old, new)
    assert isinstance(found, OnlySafeAdds)
    assert "field 'name' is also called 'title'" in found.adds


@pytest.mark.parametrize(
    ("before", "now", "rule"),
    [
        (field(1), field(1, max_length=3), "max_length"),
        (field(1, max_length=9), field(1, max_length=3), "max_length"),
        (field(1, min_length=1), field(1, min_length=3), "min_length"),
        (field(1), field(1, pattern="a+"), "pattern"),
        (field(1, min="a"), field(1, min="b"), "min"),
    ],
)
def test_tighter_limits_need_a_migration(before: Any, now: Any, rule: str) -> None:
    (reason,) = reasons(model(name=(str, before)), model(name=(str, now)))
    assert reason.startswith("field 'name'") and rule in reason


def test_limits_of_items_are_compared_too() -> None:
    old, new = model(tags=(list[str], field(1))), model(tags=(list[str], field(1, items=Limits(max_length=3))))
    (reason,) = reasons(old, new)
    assert reason.startswith("field 'tags[]': max_length")
    assert isinstance(verdict(new, old), OnlySafeAdds)


def test_bounds_are_compared_as_what_they_are_and_not_as_text() -> None:
    assert isinstance(verdict(model(n=(int, field(1, max=9))), model(n=(int, field(1, max=10)))), OnlySafeAdds)
    (reason,) = reasons(model(n=(int, field(1, max=10))), model(n=(int, field(1, max=9))))
    assert "max was 10, and is 9" in reason


def test_another_type_needs_a_migration() -> None:
    (reason,) = reasons(model(age=(str, field(1))), model(age=(int, field(1))))
    assert reason == "field 'age' was str and is int: its values must be written again"


def test_another_type_of_items_needs_a_migration() -> None:
    (reason,) = reasons(model(tags=(list[str], field(1))), model(tags=(list[int], field(1))))
    assert reason.startswith("field 'tags[]' was str and is int")


def test_a_field_that_is_gone_must_be_reserved() -> None:
    old = model(name=NAME, age=(int, field(2)))
    (reason,) = reasons(old, model(name=NAME))
    assert "'age' (number 2) is gone: add 2 to __reserved__" in reason
    assert isinstance(verdict(old, model(_with={"__reserved__": (2, "age")}, name=NAME)), OnlySafeAdds)


def test_new_reserved_numbers_are_safe_and_reserved_ones_stay_so() -> None:
    reserved = model(_with={"__reserved__": (9,)}, name=NAME)
    assert verdict(model(name=NAME), reserved) == OnlySafeAdds(("number 9 is reserved",))
    (reason,) = reasons(reserved, model(name=NAME))
    assert "number 9" in reason and "no longer reserved" in reason
    (reason,) = reasons(reserved, model(name=NAME, more=(str | None, field(9))))
    assert "field 'more' has the number 9, which was reserved" in reason


def test_a_number_that_another_field_had_needs_a_migration() -> None:
    (reason,) = reasons(model(name=NAME, age=(int, field(2))), model(name=NAME, city=(str, field(2))))
    assert "number 2 is that of 'age', which was int, and is given to 'city', which is str" in reason


def test_a_field_may_be_renamed() -> None:
    found = verdict(model(name=NAME), model(title=(str, field(1, names=("name",)))))
    assert isinstance(found, OnlySafeAdds)
    assert "field 'name' is called 'title'" in found.adds


def test_required_without_a_default_needs_a_migration_and_with_one_does_not() -> None:
    old = model(name=(str | None, field(1)))
    (reason,) = reasons(old, model(name=(str, field(1))))
    assert "field 'name' is required now" in reason
    assert isinstance(verdict(old, model(name=(str, field(1, default="x")))), OnlySafeAdds)
    assert isinstance(verdict(model(name=NAME), old), OnlySafeAdds)


def test_what_becomes_unique_needs_a_migration_and_is_to_be_filled() -> None:
    found = verdict(model(name=NAME), model(name=(str, field(1, unique=True))))
    assert isinstance(found, NeedsMigration)
    assert found.reasons[0].startswith("field 'name' is unique now")
    assert found.work.build_unique == (1,)


def test_what_is_no_longer_unique_is_dropped() -> None:
    found = verdict(model(name=(str, field(1, unique=True))), model(name=NAME))
    assert isinstance(found, NewIndexes)
    assert found.work.drop_unique == (1,)


def test_what_becomes_sensitive_needs_a_migration() -> None:
    (reason,) = reasons(model(name=NAME), model(name=(str, field(1, sensitive=True))))
    assert reason.startswith("field 'name' is sensitive now")


class Colour(Enum):
    RED = 1
    BLUE = 2


def test_members_of_an_enum_may_be_added_and_not_taken_away() -> None:
    less, more = model(c=(Enum("Colour", {"RED": 1}), field(1))), model(c=(Colour, field(1)))
    assert verdict(less, more) == OnlySafeAdds(("field 'c' can be BLUE",))
    (reason,) = reasons(more, less)
    assert "Colour has no BLUE (2) any more" in reason


def test_types_of_a_union_may_be_added_and_not_taken_away() -> None:
    less, more = model(c=(int | str, field(1))), model(c=(int | str | bool, field(1)))
    assert verdict(less, more) == OnlySafeAdds(("field 'c' can be bool",))
    (reason,) = reasons(more, less)
    assert reason == "field 'c' can no longer be bool"


def ref(name: str) -> Any:
    return Ref.__class_getitem__(name)  # type: ignore[attr-defined]


def test_references_lead_where_they_led() -> None:
    (reason,) = reasons(model(o=(ref("One"), field(1))), model(o=(ref("Two"), field(1))))
    assert reason == "field 'o' referred to One and refers to Two"


def embedded(**fields: Any) -> Any:
    space: dict[str, Any] = {"__module__": __name__, "__qualname__": "Address", "__annotations__": {}}
    for name, (annotation, declared) in fields.items():
        space["__annotations__"][name] = annotation
        space[name] = declared
    return ModelMeta("Address", (Model,), space)


def test_fields_of_embedded_models_are_named_with_their_path() -> None:
    old = model(home=(embedded(city=(str, field(1))), field(1)))
    (reason,) = reasons(old, model(home=(embedded(city=(int, field(1))), field(1))))
    assert reason.startswith("field 'home.city' was str and is int")
    (reason,) = reasons(old, model(home=(embedded(city=(str, field(1)), zip=(str, field(2))), field(1))))
    assert reason.startswith("field 'home.zip' is new and required")
    found = verdict(old, model(home=(embedded(city=(str, field(1)), zip=(str | None, field(2))), field(1))))
    assert found == OnlySafeAdds(("field 'home.zip' is new",))


def test_all_reasons_are_told_at_once() -> None:
    old = model(name=NAME, age=(str, field(2)), gone=(str, field(3)))
    assert len(reasons(old, model(name=(str, field(1, max_length=2)), age=(int, field(2)), more=(str, field(4))))) == 4


def test_new_indexes_are_to_be_built_and_old_ones_dropped() -> None:
    old = model(_with={"__indexes__": [Index("name")]}, name=NAME, tags=(list[str], field(2)))
    new = model(_with={"__indexes__": [Index(Each("tags"))]}, name=NAME, tags=(list[str], field(2)))
    found = verdict(old, new)
    assert isinstance(found, NewIndexes)
    assert (found.work.build, found.work.drop, found.work.rebuilds) == (("each(tags)",), ("name",), False)


def test_an_index_of_the_same_text_and_other_values_is_built_again() -> None:
    """The names of two fields are exchanged: both are where they were, and the index is of the other one now."""
    old = model(_with={"__indexes__": [Index("a")]}, a=(str, field(1)), b=(str, field(2)))
    new = model(_with={"__indexes__": [Index("a")]}, b=(str, field(1)), a=(str, field(2)))
    found = verdict(old, new)
    assert isinstance(found, NewIndexes)
    assert found.work.build == ("a",) and found.work.rebuilds


def test_an_index_of_a_field_with_another_type_is_built_again() -> None:
    old = model(_with={"__indexes__": [Index("a"), Index("b")]}, a=(str, field(1)), b=(str, field(2)))
    new = model(_with={"__indexes__": [Index("a"), Index("b")]}, a=(int, field(1)), b=(str, field(2)))
    found = verdict(old, new)
    assert isinstance(found, NeedsMigration)
    assert found.work.build == ("a",) and found.work.rebuilds


def test_an_index_may_have_another_name() -> None:
    old = model(_with={"__indexes__": [Index("name")]}, name=NAME)
    assert verdict(old, model(_with={"__indexes__": [Index("name", name="by_name")]}, name=NAME)) == OnlySafeAdds()


def test_another_layout_of_keys_can_never_be() -> None:
    opened = (datetime, field(2, final=True))
    name = (str, field(1, final=True))
    old = model(_with={"__key__": ("opened", "name")}, name=name, opened=opened)
    for key in (None, ("name", "opened"), (Reversed("opened"), "name"), ("opened",)):
        with pytest.raises(IncompatibleModel, match="the keys of 'Thing' are made of opened, name"):
            verdict(old, model(_with={"__key__": key}, name=name, opened=opened))
    renamed = model(_with={"__key__": ("since", "name")}, name=name, since=opened)
    assert isinstance(verdict(old, renamed), OnlySafeAdds)


def test_a_field_of_the_key_keeps_its_type() -> None:
    old = model(_with={"__key__": ("n",)}, n=(int, field(1, final=True)))
    with pytest.raises(IncompatibleModel):
        verdict(old, model(_with={"__key__": ("n",)}, n=(str, field(1, final=True))))


def keyed(**members: Any) -> Any:
    return model(_with={"__key__": ("c",)}, c=(Enum("Colour", members), field(1, final=True)))


def test_an_enum_of_the_key_may_get_members_and_keeps_the_type_of_its_values() -> None:
    assert verdict(keyed(RED=1), keyed(RED=1, BLUE=2)) == OnlySafeAdds(("field 'c' can be BLUE",))
    (reason,) = reasons(keyed(RED=1, BLUE=2), keyed(RED=1))
    assert "Colour has no BLUE (2) any more" in reason
    with pytest.raises(IncompatibleModel):
        verdict(keyed(RED=1), keyed(RED="1"))


def test_an_id_belongs_to_one_name() -> None:
    with pytest.raises(IncompatibleModel, match="the id 7 belongs to the table 'Thing'"):
        verdict(model(name=NAME), model("Other", name=NAME))
    with pytest.raises(IncompatibleModel, match="write id=7"):
        verdict(model(name=NAME), model(_id=8, name=NAME))
