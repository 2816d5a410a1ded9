"""Codec for record values and changes: as JSON, and as the texts that `holdfast table change` takes."""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from holdfast.base.errors import InvalidArgument
from holdfast.table import DictEdit, ListEdit, Model, SetEdit
from holdfast.table.model.field_edits import steps_of
from holdfast.table.model.field_path import path_text, type_at
from holdfast.table.model.json_codec import json_value, python_value
from holdfast.table.model.model import ModelSpec
from holdfast.table.model.types import FieldType, Kind

__all__ = ["changes_texts", "value_of", "values_of"]

M = TypeVar("M", bound=Model)
_AS_TYPED = (
    Kind.STR,
    Kind.BYTES,
    Kind.REFERENCE,
    Kind.UUID,
    Kind.DATE,
    Kind.TIME,
    Kind.DATETIME,
    Kind.TIMEDELTA,
    Kind.DECIMAL,
)
"""Kinds whose values are plain text in `name=value`; values of other kinds are JSON."""


def value_of(model: type[M], values: Mapping[str, Any]) -> M:
    """Return a model object from the server's JSON of a record."""
    return model.from_json(json.dumps(values))


def values_of(spec: ModelSpec, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by the text of their path, as Python objects."""
    return {path: None if value is None else _read(spec, path, value) for path, value in values.items()}


def _read(spec: ModelSpec, path: str, value: Any) -> Any:
    try:
        ftype = type_at(spec, steps_of(spec, path))
    except InvalidArgument:  # a path that only a newer model has
        return value
    return python_value(ftype, value)


def changes_texts(spec: ModelSpec, changes: Mapping[Any, Any]) -> list[str]:
    """Return changes by path as texts: plain values in one JSON object, each edit as `name+=value` or `name-=value`."""
    plain: dict[str, Any] = {}
    texts: list[str] = []
    for given, value in changes.items():
        steps = steps_of(spec, given)
        path, ftype = path_text(steps), type_at(spec, steps)
        match value:
            case ListEdit(insert=insert) if insert:
                raise InvalidArgument(f"{path}: a remote table cannot insert into a list: append, or set all of it")
            case DictEdit(append=append, put=put) if append or put:
                raise InvalidArgument(f"{path}: a remote table has no put or append for dicts: set {path}['key']")
            case ListEdit(remove=remove, append=add) | SetEdit(remove=remove, add=add):
                _check_one(path, len(remove) + len(add))
                texts += [f"{path}-={_text(ftype.item, one)}" for one in remove]
                texts += [f"{path}+={_text(ftype.item, one)}" for one in add]
            case DictEdit(remove=remove):
                _check_one(path, len(remove))
                texts += [f"{path}-={_text(ftype.key, one)}" for one in remove]
            case None:
                plain[path] = None
            case _:
                plain[path] = json_value(ftype, value)
    return [*([json.dumps(plain, ensure_ascii=False)] if plain else []), *texts]


def _check_one(path: str, count: int) -> None:
    if count > 1:
        raise InvalidArgument(f"{path}: a change of a remote table can add or remove only one item")


def _known(ftype: FieldType | None) -> FieldType:
    if ftype is None:
        raise InvalidArgument("this is not a list, set or dict")
    return ftype


def _text(ftype: FieldType | None, value: Any) -> str:
    kind = _known(ftype)
    written = json_value(kind, value)
    return written if kind.kind in _AS_TYPED and isinstance(written, str) else json.dumps(written, ensure_ascii=False)
