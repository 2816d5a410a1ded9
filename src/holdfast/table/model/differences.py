"""Differences between two records by path: fields, also of embedded models, and entries of dicts."""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from holdfast.table.model.field_edits import steps_of
from holdfast.table.model.field_path import path_text
from holdfast.table.model.model import ModelSpec
from holdfast.table.model.object_access import same
from holdfast.table.model.types import FieldType, Hidden, Kind

__all__ = ["above", "changed_since", "differences", "field_in", "hidden_in", "selection", "shown"]

Values = dict[str, Any]
"""By the text of a path its value; None for a removed one."""


def differences(spec: ModelSpec, old: Any, new: Any) -> Values:
    """Return the new values of a record, with None for removed ones; without an old record, all values."""
    found: Values = {}
    for name, field in spec.fields.items():
        _differ(field.type, name, None if old is None else getattr(old, name), getattr(new, name), found)
    return found


def changed_since(spec: ModelSpec, record: Any, numbers: Iterable[int]) -> Values:
    """Return some fields of a record as a whole, for callers that do not know their earlier values."""
    found: Values = {}
    for number in numbers:
        field = spec.numbers.get(number)
        if field is not None:
            value = getattr(record, field.name)
            if value is None:
                found[field.name] = None
            else:
                _differ(field.type, field.name, None, value, found)
    return found


def selection(spec: ModelSpec, select: Sequence[Any] | None) -> Callable[[Values], Values]:
    """Return the function that keeps only values on or under these paths, and whole values that contain them."""
    if select is None:
        return lambda values: values
    chosen = [path_text(steps_of(spec, path)) for path in select]
    around = {text for path in chosen for text in above(path)}

    def selected(values: Values) -> Values:
        return {
            path: value
            for path, value in values.items()
            if path in around or any(part in chosen for part in above(path))
        }

    return selected


def above(path: str) -> list[str]:
    """Return a path and all that contain it, as texts."""
    return [path[:at] for at, sign in enumerate(path) if sign in ".["] + [path]


def field_in(path: str) -> str:
    """Return the record's own field that a path begins with."""
    return above(path)[0].partition(":")[0]


def hidden_in(spec: ModelSpec) -> frozenset[str]:
    """Return the names of fields whose values must not be shown."""
    return frozenset(name for name, field in spec.fields.items() if field.sensitive)


def shown(hidden: Collection[str], values: Values) -> Values:
    """Return the values for display: those of these fields are hidden, also the keys of dicts."""
    return {
        name if name in hidden else path: Hidden() if name in hidden and value is not None else value
        for path, value in values.items()
        for name in [field_in(path)]
    }


def _differ(ftype: FieldType, path: str, old: Any, new: Any, found: Values) -> None:
    if same(ftype, old, new):
        return
    count = len(found)
    if new is None:
        found[path] = None
    elif ftype.kind is Kind.EMBEDDED:
        for name, field in type(new).__spec__.fields.items():
            before = None if old is None else getattr(old, name)
            _differ(field.type, f"{path}.{name}", before, getattr(new, name), found)
        if len(found) == count:  # it is empty, but it exists
            found[path] = new
    elif ftype.kind is Kind.DICT and new:
        assert ftype.item is not None
        for key in {**(old or {}), **new}:
            _differ(ftype.item, f"{path}[{key!r}]", (old or {}).get(key), new.get(key), found)
        if len(found) == count:  # only the stored form of keys differs
            found[path] = new
    else:
        found[path] = new
