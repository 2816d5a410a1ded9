"""Complete description of a model: fields, key and indexes, and the functions prepared for its objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from holdfast.base.errors import InvalidArgument
from holdfast.table.errors import InvalidModel
from holdfast.table.model.field_path import parse_path, type_at
from holdfast.table.model.fields import FieldRef, FieldSpec
from holdfast.table.model.indexes import Index, Reversed, TypeOf, Words, part_of, part_type
from holdfast.table.model.types import FieldType, Kind
from holdfast.table.model.validation import Check

if TYPE_CHECKING:
    from holdfast.table.model.model import Model

__all__ = ["ModelSpec", "read_indexes", "read_key", "reserved_by"]


@dataclass(slots=True, eq=False)
class ModelSpec:
    """Complete description of one model. Complete when all models that it embeds are defined; immutable afterwards."""

    model: type[Model] = field(repr=False)
    name: str
    id: int | None
    """None if it can only be embedded."""
    version: str
    tag: int | None
    """The number that distinguishes it from the other models of a union."""
    fields: dict[str, FieldSpec]
    numbers: dict[int, FieldSpec]
    reserved_numbers: frozenset[int]
    reserved_names: frozenset[str]
    check: Check = field(repr=False)
    """Finds the violations of a whole object; call it through `validate`."""
    make: Callable[..., Any] = field(repr=False)
    """Creates an object from its arguments, unchecked."""
    encode: Callable[[Any], bytes] = field(repr=False)
    decode: Callable[[bytes], Any] = field(repr=False)
    copiers: tuple[tuple[str, Callable[[Any], Any]], ...] = field(repr=False)
    """Names and copy functions of the fields whose values could be changed in place."""
    key: tuple[FieldRef, ...] | None = None
    """None: each record gets a UUIDv7."""
    indexes: tuple[Index, ...] = ()
    plain: bool = True
    """Whether no field is sensitive, neither here nor in embedded models."""

    def find(self, name: str) -> FieldSpec | None:
        """Return the field with this name or alternative name."""
        found = self.fields.get(name)
        if found is not None:
            return found
        return next((spec for spec in self.fields.values() if name in spec.alternatives), None)

    def embedded(self) -> Iterator[type[Model]]:
        """Yield the models that its fields hold directly."""
        for spec in self.fields.values():
            yield from spec.type.embedded()


def _fields_on(spec: ModelSpec, path: str) -> Iterator[FieldSpec]:
    """Return the fields that a path passes through."""
    steps = parse_path(path)
    for at, step in enumerate(steps):
        model = type_at(spec, steps[:at]).model if at else spec.model
        if isinstance(step, str) and model is not None:
            yield model.__spec__.fields[step]


def read_key(spec: ModelSpec, given: Any) -> tuple[FieldRef, ...] | None:
    """Read `__key__`: each part must be a final and required field of one plain value."""
    if given is None:
        return None
    if isinstance(given, str):
        given = (given,)
    if not isinstance(given, Sequence) or not given:
        raise InvalidModel(f'the key of {spec.name} must be None or a tuple of fields, as ("opened", "email")')
    return tuple(_key_part(spec, part_of(part)) for part in given)


def _key_part(spec: ModelSpec, part: Any) -> FieldRef:
    inner = part.part if isinstance(part, Reversed) else part
    path = inner.path if isinstance(inner, TypeOf) else inner
    if not isinstance(path, str):
        raise InvalidModel(f"{part} cannot be in the key of {spec.name}: use a field, Reversed(...) or TypeOf(...)")
    where = f"{path!r} cannot be in the key of {spec.name}"
    if ":" in path:
        raise InvalidModel(f"{where}: a variant may be absent; use TypeOf(...) or another field")
    ftype = _or_invalid(where, lambda: type_at(spec, parse_path(path)))
    steps = tuple(_fields_on(spec, path))
    for step in steps:
        if not step.final:
            raise InvalidModel(f"{where}: {step.name} is not final; add final=True")
        if not step.required:
            raise InvalidModel(f"{where}: {step.name} may be None; write its type without None")
        if step.sensitive:
            raise InvalidModel(f"{where}: {step.name} is sensitive, and keys are readable")
    if isinstance(inner, TypeOf):
        if ftype.kind is not Kind.UNION:
            raise InvalidModel(f"{where} by its type: it is always {ftype}")
    elif not ftype.scalar:
        raise InvalidModel(f"{where}: it is {ftype}, and must be one plain value")
    return FieldRef(path, steps, ftype, isinstance(part, Reversed), isinstance(inner, TypeOf))


def read_indexes(spec: ModelSpec, given: Any) -> tuple[Index, ...]:
    """Read `__indexes__`: every part must name a field of a suitable type."""
    indexes = tuple(one if isinstance(one, Index) else Index(one) for one in given)
    for index in indexes:
        for part in index.parts:
            _check_part(spec, index, part.part if isinstance(part, Reversed) else part)
    for what in ("name", "canonical"):
        texts = [getattr(index, what) for index in indexes]
        twice = next((text for text in texts if texts.count(text) > 1), None)
        if twice is not None:
            raise InvalidModel(f"{spec.name} has the index {twice!r} twice: keep one, or give one another name")
    return indexes


def _check_part(spec: ModelSpec, index: Index, part: Any) -> None:
    where = f"index {index} of {spec.name} cannot be"
    _or_invalid(where, lambda: part_type(spec, part))
    for path in part.paths if isinstance(part, Words) else [part if isinstance(part, str) else part.path]:
        if any(one.sensitive for one in _fields_on(spec, path)):
            raise InvalidModel(f"{where}: it would show {path!r}, which is sensitive; leave it out")


def _or_invalid(where: str, read: Callable[[], FieldType]) -> FieldType:
    """Return the type that `read` finds for a path; its error is raised as an error of the model."""
    try:
        return read()
    except InvalidArgument as error:
        raise InvalidModel(f"{where}: {error}") from error


def reserved_by(name: str, given: Any) -> tuple[frozenset[int], frozenset[str]]:
    """Read `__reserved__`: numbers and names of earlier fields, which must not be used again."""
    given = (given,) if isinstance(given, int | str) else tuple(given)
    for one in given:
        if type(one) not in (int, str):
            raise InvalidModel(f"__reserved__ of {name} has {one!r}: it takes numbers and names of fields")
    return frozenset(one for one in given if type(one) is int), frozenset(one for one in given if type(one) is str)
