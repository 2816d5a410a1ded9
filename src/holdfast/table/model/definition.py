"""Descriptions of models as JSON, and working models made from them.

A description is complete: a program that has only the store, and not the class, reads and checks records as well.
"""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, ForwardRef, Optional, Union

import msgspec

from holdfast.table.errors import InvalidModel
from holdfast.table.model.fields import FieldRef, FieldSpec, field
from holdfast.table.model.indexes import Index
from holdfast.table.model.json_codec import json_value, python_value
from holdfast.table.model.model import Model, ModelMeta, ModelSpec
from holdfast.table.model.types import SCALARS, FieldType, Kind, Limits, Reference

__all__ = ["describe", "model_from"]

_PYTHON: dict[str, Any] = {
    Kind.BOOL: bool,
    Kind.INT: int,
    Kind.FLOAT: float,
    Kind.DECIMAL: Decimal,
    Kind.STR: str,
    Kind.BYTES: bytes,
    Kind.DATE: datetime.date,
    Kind.TIME: datetime.time,
    Kind.DATETIME: datetime.datetime,
    Kind.UUID: uuid.UUID,
    Kind.TIMEDELTA: datetime.timedelta,
}
_FACTORIES: dict[str, Any] = {"list": list, "set": set, "dict": dict}
_FLAGS = ("final", "unique", "sensitive", "auto_key")


def describe(model: type[Model]) -> dict[str, Any]:
    """Return everything about a model in JSON form; defaults are left out."""
    others: dict[str, type[Model]] = {}
    _gather(model, others)
    description = _model(model.__spec__)
    embedded = {name: _model(one.__spec__) for name, one in sorted(others.items()) if one is not model}
    return {**description, "embedded": embedded} if embedded else description


def model_from(description: Mapping[str, Any]) -> type[Model]:
    """Return a working model of a description; `describe(model_from(d)) == d`."""
    try:
        every = {**description.get("embedded", {}), description["name"]: description}
        enums: dict[str, type[Enum]] = {}
        names: dict[str, Any] = {}
        made = {name: _made(one, enums, names) for name, one in every.items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidModel(f"this is not the description of a model: {type(error).__name__}: {error}") from error
    for model in made.values():
        assert model.__spec__ is not None  # completes models that waited for others
    return made[description["name"]]


def _gather(model: type[Model], others: dict[str, type[Model]]) -> None:
    known = others.setdefault(model.__name__, model)
    if known is not model:
        raise InvalidModel(f"two different models are called {model.__name__} here: rename one to describe them")
    for one in model.__spec__.embedded():
        if others.get(one.__name__) is not one:
            _gather(one, others)


def _model(spec: ModelSpec) -> dict[str, Any]:
    written: dict[str, Any] = {"name": spec.name, "version": spec.version}
    if spec.id is not None:
        written["id"] = spec.id
    if spec.tag is not None:
        written["tag"] = spec.tag
    written["fields"] = [_field(one) for one in spec.fields.values()]
    if spec.key is not None:
        written["key"] = [_key_part(part) for part in spec.key]
    if spec.indexes:
        written["indexes"] = [_index(index) for index in spec.indexes]
    reserved = [*sorted(spec.reserved_numbers), *sorted(spec.reserved_names)]
    return {**written, "reserved": reserved} if reserved else written


def _field(spec: FieldSpec) -> dict[str, Any]:
    written: dict[str, Any] = {"number": spec.number, "name": spec.name, "type": _type(spec.type)}
    if not spec.required:
        written["optional"] = True
    written |= {flag: True for flag in _FLAGS if getattr(spec, flag)}
    if spec.default is not msgspec.NODEFAULT:
        written["default"] = json_value(spec.type, spec.default)
    if spec.default_factory is not None:
        written["default_factory"] = _factory_name(spec.default_factory)
    if spec.alternatives:
        written["names"] = list(spec.alternatives)
    return written


def _type(ftype: FieldType) -> dict[str, Any]:
    written: dict[str, Any] = {"kind": ftype.kind.value}
    if ftype.key is not None:
        written["key"] = _type(ftype.key)
    if ftype.item is not None:
        written["item"] = _type(ftype.item)
    if ftype.model is not None:
        written["model"] = ftype.model.__name__
    if ftype.target is not None:
        written["target"] = ftype.target
    if ftype.enum is not None:
        written["enum"] = ftype.enum.__name__
        written["members"] = {member.name: member.value for member in ftype.enum}
    if ftype.variants:
        written["variants"] = [_type(variant) for variant in ftype.variants]
    if ftype.limits:
        written["limits"] = _limits(ftype)
    return written


def _limits(ftype: FieldType) -> dict[str, Any]:
    limits = ftype.limits
    bounds = {"min": limits.min, "max": limits.max}
    written = {name: json_value(ftype, bound) for name, bound in bounds.items() if bound is not None}
    sizes = {"min_length": limits.min_length, "max_length": limits.max_length, "pattern": limits.pattern}
    return {**written, **{name: size for name, size in sizes.items() if size is not None}}


def _key_part(part: FieldRef) -> str:
    text = f"type({part.path})" if part.type_of else part.path
    return f"-{text}" if part.reversed else text


def _index(index: Index) -> dict[str, Any]:
    parts: dict[str, Any] = {"parts": index.canonical}
    return {**parts, "name": index.name} if index.name != index.canonical else parts


def _factory_name(factory: Any) -> str:
    if isinstance(factory, _Elsewhere):
        return factory.name
    name = getattr(factory, "__qualname__", type(factory).__qualname__)
    module = getattr(factory, "__module__", "")
    return name if factory in (list, set, dict) else f"{module}.{name}"


class _Elsewhere:
    """A default function that only the program with the class has: here the field must be given."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self) -> None:
        return None


def _made(description: Mapping[str, Any], enums: dict[str, type[Enum]], names: dict[str, Any]) -> type[Model]:
    annotations: dict[str, Any] = {}
    namespace: dict[str, Any] = {"__module__": __name__, "__qualname__": description["name"]}
    for one in description["fields"]:
        annotation = _annotation(one["type"], enums)
        annotations[one["name"]] = Optional[annotation] if one.get("optional") else annotation  # noqa: UP045 (names of models cannot be joined by |)
        namespace[one["name"]] = _declared(one, enums)
    namespace["__annotations__"] = annotations
    if "key" in description:
        namespace["__key__"] = tuple(description["key"])
    indexes = description.get("indexes", ())
    namespace["__indexes__"] = [Index.parse(one["parts"], one.get("name")) for one in indexes]
    namespace["__reserved__"] = tuple(description.get("reserved", ()))
    model: type[Model] = ModelMeta(
        description["name"],
        (Model,),
        namespace,
        id=description.get("id"),
        version=description["version"],
        tag=description.get("tag"),
        names=names,
    )
    names[_name_of(description["name"])] = model
    return model


def _declared(written: Mapping[str, Any], enums: dict[str, type[Enum]]) -> Any:
    options: dict[str, Any] = {flag: written[flag] for flag in _FLAGS if flag in written}
    if "default" in written:
        options["default"] = _read(written["type"], written["default"], enums)
    if "default_factory" in written:
        name = written["default_factory"]
        options["default_factory"] = _FACTORIES.get(name) or _Elsewhere(name)
    return field(written["number"], names=tuple(written.get("names", ())), **options)


def _annotation(written: Mapping[str, Any], enums: dict[str, type[Enum]]) -> Any:
    """Return the annotation of a described type; embedded models are referred to by name, as they may not exist yet."""
    annotation = _bare_annotation(written, enums)
    if "limits" not in written:
        return annotation
    bounds = ("min", "max")
    limits = {
        name: _read(written, value, enums) if name in bounds else value for name, value in written["limits"].items()
    }
    return Annotated[annotation, Limits(**limits)]


def _bare_annotation(written: Mapping[str, Any], enums: dict[str, type[Enum]]) -> Any:
    match Kind(written["kind"]):
        case Kind.REFERENCE:
            return Annotated[bytes, Reference(written["target"])]
        case Kind.EMBEDDED:
            return ForwardRef(_name_of(written["model"]))
        case Kind.ENUM:
            return _enum(written, enums)
        case Kind.LIST:
            return list[_annotation(written["item"], enums)]  # type: ignore[misc]
        case Kind.SET:
            return set[_annotation(written["item"], enums)]  # type: ignore[misc]
        case Kind.DICT:
            return dict[_annotation(written["key"], enums), _annotation(written["item"], enums)]  # type: ignore[misc]
        case Kind.UNION:
            variants = tuple(_annotation(variant, enums) for variant in written["variants"])
            return Union[variants]  # noqa: UP007 (names of models cannot be joined by |)
    return _PYTHON[written["kind"]]


def _name_of(model: str) -> str:
    """Return the name of an embedded model in annotations, which differs from names of a module."""
    return f"_embedded_{model}"


def _enum(written: Mapping[str, Any], enums: dict[str, type[Enum]]) -> type[Enum]:
    name, members = written["enum"], dict(written["members"])
    known = enums.get(name)
    if known is not None and {member.name: member.value for member in known} == members:
        return known
    make: Any = Enum
    enums[name] = make(name, members)
    return enums[name]


def _read(written: Mapping[str, Any], value: Any, enums: dict[str, type[Enum]]) -> Any:
    """Return a default or bound, which is always of one scalar type or a union of such."""
    variants = tuple(FieldType(Kind(one["kind"])) for one in written.get("variants", ()) if one["kind"] in SCALARS)
    enum = _enum(written, enums) if written["kind"] == Kind.ENUM else None
    return python_value(FieldType(Kind(written["kind"]), enum=enum, variants=variants), value)
