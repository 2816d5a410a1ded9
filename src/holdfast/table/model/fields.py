"""Declaration of fields: `field(...)` in a class body and the annotation become a `FieldSpec`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field as attribute
from typing import Any, TypeVar, overload

import msgspec

from holdfast.table.errors import InvalidModel
from holdfast.table.model.types import NO_LIMITS, FieldType, Kind, Limits, read_annotation
from holdfast.table.model.validation import Check, check_of

__all__ = ["NUMBER_MAX", "Declared", "FieldRef", "FieldSpec", "field", "read_field"]

T = TypeVar("T")

NUMBER_MAX = 65_535
"""Field numbers are kept in two bytes."""


@dataclass(frozen=True, slots=True)
class Declared:
    """Arguments of `field(...)`, before the annotation is read."""

    number: int
    unique: bool
    final: bool
    sensitive: bool
    default: Any
    default_factory: Callable[[], Any] | None
    limits: Limits
    items: Limits
    keys: Limits
    values: Limits
    auto_key: bool
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """Complete description of one field."""

    number: int
    name: str
    type: FieldType
    required: bool = True
    """Whether a new value must not be None. Records from before the field existed may lack it."""
    final: bool = False
    """Whether it cannot be changed once it is set; only a migration can."""
    unique: bool = False
    sensitive: bool = False
    default: Any = msgspec.NODEFAULT
    default_factory: Callable[[], Any] | None = None
    auto_key: bool = False
    """A dict[int, V] whose new keys the table assigns."""
    alternatives: tuple[str, ...] = ()
    """Alternative names."""
    check: Check = attribute(init=False, compare=False, repr=False)
    """Returns the violations of a value that is not None."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "check", check_of(self.type))

    @property
    def has_default(self) -> bool:
        """Whether a new object may leave it out."""
        return not self.required or self.default is not msgspec.NODEFAULT or self.default_factory is not None

    @property
    def makes_default(self) -> bool:
        """Return whether a function makes its default, which may differ each time, such as the present time."""
        return self.default_factory not in (None, list, set, dict)


@dataclass(frozen=True, slots=True)
class FieldRef:
    """A part of a key: a final field, or one inside of embedded models."""

    path: str
    """Names separated by dots, as "address.city"."""
    fields: tuple[FieldSpec, ...]
    """The field of each name in the path."""
    type: FieldType
    """The type of the value at the end."""
    reversed: bool = False
    type_of: bool = False
    """Whether the part is not the value, but its variant of the union."""


@overload
def field(
    number: int,
    *,
    default: T,
    unique: bool = ...,
    final: bool = ...,
    sensitive: bool = ...,
    min: Any = ...,
    max: Any = ...,
    min_length: int | None = ...,
    max_length: int | None = ...,
    pattern: str | None = ...,
    items: Limits = ...,
    keys: Limits = ...,
    values: Limits = ...,
    auto_key: bool = ...,
    names: tuple[str, ...] = ...,
) -> T: ...


@overload
def field(
    number: int,
    *,
    default_factory: Callable[[], T],
    unique: bool = ...,
    final: bool = ...,
    sensitive: bool = ...,
    min: Any = ...,
    max: Any = ...,
    min_length: int | None = ...,
    max_length: int | None = ...,
    pattern: str | None = ...,
    items: Limits = ...,
    keys: Limits = ...,
    values: Limits = ...,
    auto_key: bool = ...,
    names: tuple[str, ...] = ...,
) -> T: ...


@overload
def field(
    number: int,
    *,
    unique: bool = ...,
    final: bool = ...,
    sensitive: bool = ...,
    min: Any = ...,
    max: Any = ...,
    min_length: int | None = ...,
    max_length: int | None = ...,
    pattern: str | None = ...,
    items: Limits = ...,
    keys: Limits = ...,
    values: Limits = ...,
    auto_key: bool = ...,
    names: tuple[str, ...] = ...,
) -> Any: ...


def field(
    number: int,
    *,
    unique: bool = False,
    final: bool = False,
    sensitive: bool = False,
    default: Any = msgspec.NODEFAULT,
    default_factory: Callable[[], Any] | None = None,
    min: Any = None,
    max: Any = None,
    min_length: int | None = None,
    max_length: int | None = None,
    pattern: str | None = None,
    items: Limits = NO_LIMITS,
    keys: Limits = NO_LIMITS,
    values: Limits = NO_LIMITS,
    auto_key: bool = False,
    names: tuple[str, ...] = (),
) -> Any:
    """Declare a field of a model: `name: str = field(2, max_length=100)`.

    The number identifies the field in stored records: it stays when the field is renamed, and is never used again. A
    field of type `X | None` may be left out and is None then; write `default=None` to tell type checkers so.
    """
    if type(number) is not int or not 1 <= number <= NUMBER_MAX:
        raise InvalidModel(f"a field's number is {number!r}: it must be an int from 1 to {NUMBER_MAX}")
    if default is not msgspec.NODEFAULT and default_factory is not None:
        raise InvalidModel(f"field {number} has both default and default_factory: keep one")
    for name, limits in {"items": items, "keys": keys, "values": values}.items():
        if not isinstance(limits, Limits):
            raise InvalidModel(f"{name} of field {number} is {limits!r}: write {name}=Limits(max_length=100)")
    given: Any = names
    if isinstance(given, str):
        raise InvalidModel(f"names of field {number} is one string: write names=({names!r},)")
    return Declared(
        number,
        unique,
        final,
        sensitive,
        default,
        default_factory,
        Limits(min, max, min_length, max_length, pattern),
        items,
        keys,
        values,
        auto_key,
        tuple(names),
    )


def read_field(name: str, declared: Declared, annotation: object, where: str) -> FieldSpec:
    """Combine the declaration in the class body and the annotation of a field."""
    ftype, optional = read_annotation(annotation, where)
    ftype = _with_inner_limits(ftype.limited(declared.limits, where), declared, where)
    if declared.unique and not ftype.scalar:
        raise InvalidModel(f"{where} cannot be unique: it is {ftype}, and only a single plain value can be unique")
    if declared.auto_key and not (ftype.kind is Kind.DICT and ftype.key is not None and ftype.key.kind is Kind.INT):
        raise InvalidModel(f"{where} cannot have auto_key: it is {ftype}, and only dict[int, ...] can")
    if declared.default is None and not optional:
        raise InvalidModel(f"{where} has default None: write its type as `... | None`")
    if type(declared.default) in (list, set, dict) or isinstance(declared.default, msgspec.Struct):
        raise InvalidModel(f"the default of {where} would be shared by all objects: use default_factory")
    return FieldSpec(
        declared.number,
        name,
        ftype,
        not optional,
        declared.final,
        declared.unique,
        declared.sensitive,
        msgspec.NODEFAULT if declared.default is None else declared.default,
        declared.default_factory,
        declared.auto_key,
        declared.names,
    )


def _with_inner_limits(ftype: FieldType, declared: Declared, where: str) -> FieldType:
    """Apply `items`, `keys` and `values` to the inner types."""
    inner = {"items": declared.items, "keys": declared.keys, "values": declared.values}
    allowed = {Kind.LIST: ("items",), Kind.SET: ("items",), Kind.DICT: ("keys", "values")}.get(ftype.kind, ())
    for name, limits in inner.items():
        if limits and name not in allowed:
            raise InvalidModel(f"{where} is {ftype}, which has no {name}: leave {name} out")
    item, key = ftype.item, ftype.key
    if item is not None:
        word = "value" if ftype.kind is Kind.DICT else "item"
        item = item.limited(declared.values if ftype.kind is Kind.DICT else declared.items, f"each {word} of {where}")
    if key is not None:
        key = key.limited(declared.keys, f"each key of {where}")
    return FieldType(ftype.kind, item, key, ftype.model, ftype.target, ftype.enum, ftype.variants, ftype.limits)
