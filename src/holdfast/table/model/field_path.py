"""Steps of a path inside an object, their text form, and the type at the end."""

import datetime
import decimal
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from holdfast.base.errors import InvalidArgument
from holdfast.table.model.types import FieldType, Kind

if TYPE_CHECKING:
    from holdfast.table.model.model import Model, ModelSpec

__all__ = [
    "CLASSES",
    "Any_",
    "At",
    "Follow",
    "Normal",
    "Step",
    "Variant",
    "always_there",
    "is_sensitive",
    "is_variant",
    "parse_path",
    "path_text",
    "type_at",
    "variant_name",
    "variant_of",
    "variant_types",
]

CLASSES: dict[Kind, tuple[type, ...]] = {
    Kind.BOOL: (bool,),
    Kind.INT: (int,),
    Kind.FLOAT: (float,),
    Kind.DECIMAL: (decimal.Decimal,),
    Kind.STR: (str,),
    Kind.BYTES: (bytes,),
    Kind.DATE: (datetime.date,),
    Kind.TIME: (datetime.time,),
    Kind.DATETIME: (datetime.datetime,),
    Kind.UUID: (uuid.UUID,),
    Kind.TIMEDELTA: (datetime.timedelta,),
    Kind.REFERENCE: (bytes,),
    Kind.LIST: (list,),
    Kind.SET: (set,),
    Kind.DICT: (dict,),
}
"""The Python types of the values of each kind."""


class Any_(Enum):
    """A step to every item, key or value of a collection: one match is enough."""

    ITEM = "[*]"
    KEY = "<*>"
    VALUE = "{*}"


class Normal(Enum):
    """A step to a text, normalised by `normalize`."""

    TEXT = "~"


@dataclass(frozen=True, slots=True)
class At:
    """A step to the item at an index of a list, or to the value under a key of a dict."""

    key: Any


@dataclass(frozen=True, slots=True)
class Follow:
    """A step to the object that a reference refers to."""

    model: "type[Model]"


@dataclass(frozen=True, slots=True)
class Variant:
    """A step to the value of a union, if it has this type."""

    name: str


Step = str | Any_ | Normal | At | Follow | Variant
"""A step of a path; a str goes to the field of that name."""


def parse_path(text: str) -> tuple[Step, ...]:
    """Return the steps of a path's text: names separated by dots, and `:Name` for one type of a union."""
    steps: list[Step] = []
    for name in text.split("."):
        field, *variants = name.split(":")
        if not field or len(variants) > 1:
            raise InvalidArgument(f'{text!r} is not a path: write names separated by dots, such as "address.city"')
        steps += [field, *map(Variant, variants)]
    return tuple(steps)


def path_text(steps: Iterable[Step]) -> str:
    """Return the steps as text: `address.city`, `size:Length.cm`, `limits['EUR']`, `tags[*]`."""
    text = ""
    for step in steps:
        match step:
            case str():
                text += f".{step}" if text else step
            case Any_() | Normal():
                text += step.value
            case At(key):
                text += f"[{key!r}]"
            case Follow(model):
                text += f"->{model.__name__}"
            case Variant(name):
                text += f":{name}"
    return text


def type_at(spec: "ModelSpec", steps: Iterable[Step]) -> FieldType:
    """Return the type at the end of a path; raises InvalidArgument, with the existing fields, if there is none."""
    here: FieldType | None = None
    inside: ModelSpec | None = spec
    done: list[Step] = []
    for step in steps:
        where = path_text(done) or spec.name
        done.append(step)
        if isinstance(step, str):
            if inside is None:
                raise InvalidArgument(f"{where} is {here}, which has no fields: {path_text(done)!r} does not exist")
            field = inside.fields.get(step)
            if field is None:
                raise InvalidArgument(f"{inside.name} has no field {step!r}: it has {', '.join(inside.fields)}")
            here = field.type
        elif isinstance(step, Follow):
            if here is None or here.kind is not Kind.REFERENCE or here.target not in (None, step.model.__name__):
                raise InvalidArgument(f"{where} is {here}, not a reference to {step.model.__name__}")
            here = FieldType(Kind.EMBEDDED, model=step.model)
        else:
            here = _inner(here, step)
            if here is None:
                raise InvalidArgument(f"{path_text(done)!r} does not exist: {where} has no such part")
        inside = here.model.__spec__ if here.model is not None else None
    if here is None:
        raise InvalidArgument("a path needs at least one field")
    return here


def _inner(here: FieldType | None, step: Step) -> FieldType | None:
    match here, step:
        case FieldType(kind=Kind.LIST | Kind.SET), Any_.ITEM:
            return here.item
        case FieldType(kind=Kind.DICT), Any_.KEY:
            return here.key
        case FieldType(kind=Kind.DICT), Any_.VALUE:
            return here.item
        case FieldType(kind=Kind.LIST | Kind.DICT), At():
            return here.item
        case FieldType(kind=Kind.STR), Normal():
            return here
        case FieldType(kind=Kind.UNION), Variant(name):
            return next((variant for variant in here.variants if variant_name(variant) == name), None)
    return None


def always_there(spec: "ModelSpec", steps: Iterable[Step]) -> bool:
    """Whether every object has a value at the end of a path of fields."""
    inside: ModelSpec | None = spec
    for step in steps:
        field = inside.fields.get(step) if inside is not None and isinstance(step, str) else None
        if field is None or not field.required:
            return False
        inside = field.type.model.__spec__ if field.type.model is not None else None
    return True


def is_sensitive(spec: "ModelSpec", steps: Iterable[Step]) -> bool:
    """Whether the value at a path must not be shown."""
    inside: ModelSpec | None = spec
    for step in steps:
        if isinstance(step, Follow):
            inside = step.model.__spec__
        elif inside is not None:
            # A sensitive field of an embedded model is sealed with the whole outer field, which is sensitive too.
            field = inside.fields.get(step) if isinstance(step, str) else None
            if field is not None and field.sensitive:
                return True
            inside = None
    return False


def variant_name(ftype: FieldType) -> str:
    """Return the name of one type of a union: that of its model or enum, or its kind."""
    named = ftype.model or ftype.enum
    return str(ftype.kind) if named is None else named.__name__


def variant_types(ftype: FieldType) -> tuple[type, ...]:
    """Return the Python types that values of this type have."""
    named = ftype.model or ftype.enum
    return CLASSES[ftype.kind] if named is None else (named,)


def is_variant(value: Any, name: str) -> bool:
    """Return whether a value has the type of a union with this name."""
    kind = type(value)
    if name == "float" and kind is int:
        return True
    return kind.__name__ == name or any(kind in kinds for one, kinds in CLASSES.items() if one == name)


def variant_of(union: FieldType) -> Callable[[Any], str | None]:
    """Return a function that gives the name of a value's type in a union."""
    names = {kind: variant_name(variant) for variant in union.variants for kind in variant_types(variant)}
    if float in names:
        names.setdefault(int, names[float])  # an int counts as a float if the union has no int

    def name_of(value: Any) -> str | None:
        return names.get(type(value))

    return name_of
