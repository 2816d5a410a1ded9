"""Parsing of changes that a person types: `name=value`, `tags+=vip`, or a JSON object."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.base.errors import InvalidArgument
from holdfast.table import DictEdit, ListEdit, Model, SetEdit
from holdfast.table.model.field_edits import steps_of
from holdfast.table.model.field_path import type_at
from holdfast.table.model.json_codec import python_value
from holdfast.table.model.path_expressions import Path, model_and_steps
from holdfast.table.model.types import FieldType, Kind
from holdfast.table.query.filter_parser import parse_path, parse_value

__all__ = ["parse_changes", "parse_json"]

_TEXTS = (Kind.STR, Kind.BYTES, Kind.REFERENCE, Kind.UUID, Kind.DATE, Kind.TIME, Kind.DATETIME, Kind.TIMEDELTA)
"""Kinds whose values are the text as it was typed."""
_JSON = (Kind.BOOL, Kind.INT, Kind.FLOAT)


def parse_json(text: str | bytes) -> Any:
    """Return the value of a JSON text; raises `InvalidArgument` if it is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"this is not JSON: {error}") from error


def parse_changes(model: type[Model], given: Sequence[str], unset: Sequence[str] = ()) -> dict[Any, Any]:
    """Return the typed changes, by path; None removes a value."""
    changes: dict[Any, Any] = {}
    named: set[str] = set()
    for argument in given:
        for path, value in (
            _of_json(model, argument) if argument.lstrip().startswith("{") else [_typed(model, argument)]
        ):
            _note(named, path)
            changes[path] = value
    for text in unset:
        path = _path(model, text)
        _note(named, path)
        changes[path] = None
    return changes


def _note(named: set[str], path: Path) -> None:
    if str(path) in named:
        raise InvalidArgument(f"{path} is given twice")
    named.add(str(path))


def _of_json(model: type[Model], text: str) -> list[tuple[Path, Any]]:
    content: Mapping[str, Any] = parse_json(text)
    found = []
    for name, value in content.items():
        path = _path(model, name)
        found.append((path, None if value is None else python_value(_type(path), value)))
    return found


def _typed(model: type[Model], argument: str) -> tuple[Path, Any]:
    at = _sign(argument)
    if at is None:
        raise InvalidArgument(f"{argument!r} is not of the form name=value: write that, or one JSON object")
    sign = argument[at - 1] if argument[at - 1 : at] in ("+", "-") else ""
    path = _path(model, argument[: at - len(sign)])
    ftype, text = _type(path), argument[at + 1 :]
    if not sign:
        return path, _value(path, ftype, text)
    edit = _edit(path, ftype, text, adding=sign == "+")
    if edit is None:
        raise InvalidArgument(f"{argument!r}: {path} is {ftype}, and only lists and sets have {sign}=")
    return path, edit


def _edit(path: Path, ftype: FieldType, text: str, *, adding: bool) -> ListEdit | SetEdit | DictEdit | None:
    match ftype:
        case FieldType(kind=Kind.LIST, item=FieldType() as item):
            value = [_value(path, item, text)]
            return ListEdit(append=value) if adding else ListEdit(remove=value)
        case FieldType(kind=Kind.SET, item=FieldType() as item):
            value = [_value(path, item, text)]
            return SetEdit(add=value) if adding else SetEdit(remove=value)
        case FieldType(kind=Kind.DICT, key=FieldType() as key) if not adding:
            return DictEdit(remove=[_value(path, key, text)])
    return None


def _value(path: Path, ftype: FieldType, text: str) -> Any:
    """Return the value of a text; a text that has none is returned as it is, for validation to report it."""
    if ftype.kind is Kind.STR:
        return text
    if ftype.kind is Kind.DECIMAL:
        return python_value(ftype, text)
    given: Any = text
    if ftype.kind not in _TEXTS:
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):
            given = text
    if ftype.kind in _JSON or not ftype.scalar:
        return python_value(ftype, given)
    try:
        return parse_value(str(path), ftype, given)
    except InvalidArgument as error:
        raise InvalidArgument(str(error)) from error


def _sign(argument: str) -> int | None:
    """Return the index of the first = outside of [...]."""
    depth = 0
    for at, character in enumerate(argument):
        depth += (character == "[") - (character == "]")
        if character == "=" and depth <= 0 and at > 0:
            return at
    return None


def _path(model: type[Model], text: str) -> Path:
    try:
        path = parse_path(model, text)
        steps_of(model.__spec__, path)
        return path
    except InvalidArgument as error:
        raise InvalidArgument(f"{text!r}, {error}") from error


def _type(path: Path) -> FieldType:
    model, steps = model_and_steps(path)
    return type_at(model.__spec__, steps)
