"""Field types: kinds and limits, and their parsing from annotations."""

from __future__ import annotations

import datetime
import decimal
import math
import re
import types
import typing
import uuid
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Union

import msgspec

from holdfast.table.errors import InvalidModel

if TYPE_CHECKING:
    from holdfast.table.model.model import Model

__all__ = [
    "INT_MAX",
    "INT_MIN",
    "NO_LIMITS",
    "SCALARS",
    "FieldType",
    "Kind",
    "Limits",
    "Reference",
    "is_nan",
    "one_nan",
    "read_annotation",
]

INT_MIN = -(2**63)
INT_MAX = 2**64 - 1


class Kind(StrEnum):
    """Kind of a value."""

    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    DECIMAL = "decimal"
    STR = "str"
    BYTES = "bytes"
    ENUM = "enum"
    DATE = "date"
    TIME = "time"
    DATETIME = "datetime"
    UUID = "uuid"
    TIMEDELTA = "timedelta"
    REFERENCE = "reference"
    EMBEDDED = "embedded"
    LIST = "list"
    SET = "set"
    DICT = "dict"
    UNION = "union"


HIDDEN = "(hidden)"
"""Shown instead of a sensitive value in messages, plans and `repr`. `to_dict` and `to_json` return the value."""


class Hidden:
    """Placeholder for a sensitive value."""

    def __repr__(self) -> str:
        return HIDDEN


SCALARS = frozenset(Kind) - {Kind.EMBEDDED, Kind.LIST, Kind.SET, Kind.DICT, Kind.UNION}
"""Kinds of one value, that can be ordered, indexed, unique, a part of a key, an item of a set and a key of a dict."""

_PLAIN: dict[object, Kind] = {
    bool: Kind.BOOL,
    int: Kind.INT,
    float: Kind.FLOAT,
    decimal.Decimal: Kind.DECIMAL,
    str: Kind.STR,
    bytes: Kind.BYTES,
    datetime.date: Kind.DATE,
    datetime.time: Kind.TIME,
    datetime.datetime: Kind.DATETIME,
    uuid.UUID: Kind.UUID,
    datetime.timedelta: Kind.TIMEDELTA,
}
_RANGED = {
    Kind.INT: (int,),
    Kind.FLOAT: (int, float),
    Kind.DECIMAL: (int, decimal.Decimal),
    Kind.STR: (str,),
    Kind.BYTES: (bytes,),
    Kind.DATE: (datetime.date,),
    Kind.TIME: (datetime.time,),
    Kind.DATETIME: (datetime.datetime,),
    Kind.TIMEDELTA: (datetime.timedelta,),
}
_SIZED = (Kind.STR, Kind.BYTES, Kind.LIST, Kind.SET, Kind.DICT)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a value: inclusive bounds, lengths in characters, bytes or items, a pattern for the whole text."""

    min: Any = None
    max: Any = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None

    def __bool__(self) -> bool:
        return self != NO_LIMITS

    def merged(self, other: Limits) -> Limits:
        """Return these limits, overridden by those that the other has."""
        names = ("min", "max", "min_length", "max_length", "pattern")
        return replace(self, **{name: getattr(other, name) for name in names if getattr(other, name) is not None})


NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class Reference:
    """Marks `bytes` as the key of a record of another model."""

    target: str


@dataclass(frozen=True, slots=True)
class FieldType:
    """A complete type, including inner types: of a field, an item, a key or a variant."""

    kind: Kind
    item: FieldType | None = None
    """Of the items of a list or set, and of the values of a dict."""
    key: FieldType | None = None
    """Of the keys of a dict."""
    model: type[Model] | None = None
    """The embedded model."""
    target: str | None = None
    """The name of the model that a reference refers to."""
    enum: type[Enum] | None = None
    variants: tuple[FieldType, ...] = ()
    """The types that a value of a union can have."""
    limits: Limits = field(default=NO_LIMITS)

    @property
    def scalar(self) -> bool:
        """Whether it is one value, with an order."""
        return self.kind in SCALARS

    def limited(self, limits: Limits, where: str) -> FieldType:
        """Return the type with more limits; raises `InvalidModel` if they do not suit it."""
        if not limits:
            return self
        _check_limits(self.kind, limits, where)
        merged = self.limits.merged(limits)
        for low, high in (("min", "max"), ("min_length", "max_length")):
            least, most = getattr(merged, low), getattr(merged, high)
            if least is not None and most is not None and least > most:
                raise InvalidModel(
                    f"{low} of {where} is {least!r}, above {high}, which is {most!r}: no value can satisfy both"
                )
        return replace(self, limits=merged)

    def embedded(self) -> list[type[Model]]:
        """Return the models that a value can hold directly, in an item or as a variant."""
        inner = [part for part in (self.item, self.key, *self.variants) if part is not None]
        return [
            *([self.model] if self.model is not None else []),
            *(model for part in inner for model in part.embedded()),
        ]

    def __str__(self) -> str:
        match self.kind:
            case Kind.LIST | Kind.SET:
                return f"{self.kind}[{self.item}]"
            case Kind.DICT:
                return f"dict[{self.key}, {self.item}]"
            case Kind.UNION:
                return " | ".join(map(str, self.variants))
            case Kind.EMBEDDED:
                return self.model.__name__ if self.model is not None else "embedded"
            case Kind.REFERENCE:
                return f"Ref[{self.target}]"
            case Kind.ENUM:
                return self.enum.__name__ if self.enum is not None else "enum"
        return str(self.kind)


def read_annotation(annotation: object, where: str) -> tuple[FieldType, bool]:
    """Read a resolved annotation: its type, and whether the value may be absent (`X | None`)."""
    annotation, limits = _bare(annotation)
    args = typing.get_args(annotation) if typing.get_origin(annotation) in (Union, types.UnionType) else ()
    rest = [arg for arg in args if arg is not type(None)]
    if len(rest) == len(args):
        return _read(annotation, where).limited(limits, where), False
    if len(rest) == 1:
        return _read(rest[0], where).limited(limits, where), True
    return _union(rest, where).limited(limits, where), True


def _bare(annotation: object) -> tuple[object, Limits]:
    """Return an annotation without `Annotated[..., Limits(...)]`, and these limits; a reference keeps its marker."""
    limits = NO_LIMITS
    if typing.get_origin(annotation) is Annotated:
        inner, *marks = typing.get_args(annotation)
        for mark in marks:
            if isinstance(mark, Limits):
                limits = limits.merged(mark)
        if not any(isinstance(mark, Reference) for mark in marks):
            annotation = inner
    return annotation, limits


def _read(annotation: object, where: str) -> FieldType:
    annotation, limits = _bare(annotation)
    return _read_bare(annotation, where).limited(limits, where)


def _read_bare(annotation: object, where: str) -> FieldType:
    kind = _PLAIN.get(annotation) if isinstance(annotation, type) else None
    if kind is not None:
        return FieldType(kind)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        target = next(mark.target for mark in args if isinstance(mark, Reference))
        return FieldType(Kind.REFERENCE, target=target)
    if origin in (list, set):
        item = _read(args[0], f"an item of {where}")
        if origin is set:
            _check_hashable(item, f"an item of {where}")
        return FieldType(Kind.LIST if origin is list else Kind.SET, item=item)
    if origin is dict:
        key = _read(args[0], f"a key of {where}")
        _check_hashable(key, f"a key of {where}")
        return FieldType(Kind.DICT, key=key, item=_read(args[1], f"a value of {where}"))
    if origin in (Union, types.UnionType):
        return _union(list(args), where)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _enum(annotation, where)
    if isinstance(annotation, msgspec.StructMeta) and getattr(annotation, "__holdfast_model__", False):
        return FieldType(Kind.EMBEDDED, model=typing.cast("type[Model]", annotation))
    raise InvalidModel(f"{where} cannot be {_shown(annotation)}{_advice(annotation)}")


def _union(args: list[object], where: str) -> FieldType:
    return FieldType(Kind.UNION, variants=tuple(_read(arg, f"a variant of {where}") for arg in args))


def _enum(annotation: type[Enum], where: str) -> FieldType:
    kinds = {type(member.value) for member in annotation}
    if kinds not in ({int}, {str}):
        raise InvalidModel(f"{where} cannot be the enum {annotation.__name__}: its values must be all int or all str")
    return FieldType(Kind.ENUM, enum=annotation)


def _check_hashable(ftype: FieldType, where: str) -> None:
    if not ftype.scalar:
        raise InvalidModel(f"{where} cannot be {ftype}: it must be one plain value, as str, int or UUID")


def _check_limits(kind: Kind, limits: Limits, where: str) -> None:
    """Reject a limit that does not apply to this kind of value."""
    for name in ("min", "max"):
        bound = getattr(limits, name)
        if bound is None:
            continue
        if kind not in _RANGED:
            raise InvalidModel(f"{where} is of kind {kind}, which has no {name}: leave it out")
        if type(bound) not in _RANGED[kind]:
            raise InvalidModel(f"{name} of {where} is {bound!r}: it must be of kind {kind} itself")
        if kind is Kind.DATETIME and bound.tzinfo is None:
            raise InvalidModel(f"{name} of {where} is {bound!r}: give it a time zone, as all datetimes here have one")
    for name in ("min_length", "max_length"):
        length = getattr(limits, name)
        if length is None:
            continue
        if kind not in _SIZED:
            raise InvalidModel(f"{where} is of kind {kind}, which has no length: leave {name} out")
        if type(length) is not int or length < 0:
            raise InvalidModel(f"{name} of {where} is {length!r}: it must be an int of 0 or more")
    if limits.pattern is not None:
        if kind is not Kind.STR:
            raise InvalidModel(f"{where} is of kind {kind}: only str can have a pattern")
        try:
            re.compile(limits.pattern)
        except re.error as error:
            raise InvalidModel(f"the pattern of {where} is not a regular expression: {error}") from error


def _shown(annotation: object) -> str:
    return annotation.__name__ if isinstance(annotation, type) else repr(annotation)


def _advice(annotation: object) -> str:
    origin = typing.get_origin(annotation) or annotation
    if annotation is None or annotation is type(None):
        return ": None is allowed only in the type of a whole field, as in `name: str | None`"
    if origin in (list, set, dict):
        return ": give the type of its items, as in list[str] or dict[str, int]"
    if origin is tuple:
        return ": use list[...], or an embedded model"
    if origin is frozenset:
        return ": use set[...]"
    if origin is Any or annotation is object:
        return ": name the types it can have, as in `str | int`"
    if isinstance(origin, type) and issubclass(origin, msgspec.Struct):
        return ": make it a Model to embed it"
    return ": it can be bool, int, float, Decimal, str, bytes, Enum, date, time, datetime, UUID, timedelta, Ref[...], \
a Model, list, set, dict or a union of these"


def is_nan(value: Any) -> bool:
    """Whether a value is a float or Decimal that is not a number. In tables NaN is equal to NaN."""
    if isinstance(value, float):
        return value != value  # noqa: PLR0124 - what math.isnan does, without a call
    return isinstance(value, decimal.Decimal) and value.is_nan()


def one_nan(value: Any) -> Any:
    """Return the value, or one and the same object for every float NaN, so that sets and dicts find it by identity."""
    return math.nan if isinstance(value, float) and math.isnan(value) else value
