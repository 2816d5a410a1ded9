"""Changes of a record by path: new values, removals, and edits of lists, sets and dicts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from holdfast.base.errors import InvalidArgument
from holdfast.table.model.field_path import At, Step, Variant, is_variant, parse_path, path_text, type_at, variant_types
from holdfast.table.model.fields import FieldSpec
from holdfast.table.model.model import ModelSpec
from holdfast.table.model.object_access import copied, same
from holdfast.table.model.path_expressions import Path, model_and_steps
from holdfast.table.model.types import FieldType, Kind, one_nan
from holdfast.table.model.validation import Violation, key_text, shown_of, validate_field
from holdfast.table.operations import DictEdit, ListEdit, SetEdit
from holdfast.table.query.filter_parser import parse_path as parse_any_path

__all__ = ["Edited", "edit", "steps_of", "value_at"]

_EDITS: dict[Kind, type] = {Kind.LIST: ListEdit, Kind.SET: SetEdit, Kind.DICT: DictEdit}
_ANY_EDIT = (ListEdit, SetEdit, DictEdit)


@dataclass(slots=True)
class Edited:
    """Result of the changes to one record."""

    violations: list[Violation] = field(default_factory=list)
    fields: tuple[int, ...] = ()
    """Numbers of the fields that have changed."""
    given: dict[str, list[int]] = field(default_factory=dict)


class _CannotBe(Exception):
    """A change that the record does not allow, with its violation."""

    def __init__(self, steps: Sequence[Step], rule: str, value: Any, message: str) -> None:
        self.violation = Violation(path_text(steps), rule, value, message)


def edit(spec: ModelSpec, record: Any, before: Any, changes: Mapping[Any, Any], check: Mapping[Any, Any]) -> Edited:
    """Apply the changes to `record`, a shallow copy of `before`, and collect all violations.

    Fields that are not changed remain the same objects.
    """
    if not isinstance(changes, Mapping) or not isinstance(check, Mapping):
        raise InvalidArgument("changes and check must be dicts of paths and values")
    edited = Edited()
    for path, expected in check.items():
        steps = steps_of(spec, path)
        found = value_at(before, steps)
        if found != expected and not (type(found) is type(expected) and same(type_at(spec, steps), found, expected)):
            message = f"is {found!r}, not {expected!r} as check requires: read the record again"
            violation = Violation(path_text(steps), "check", found, message)
            edited.violations.append(shown_of(_field(spec, steps), violation))
    touched: set[int] = set()
    for path, value in changes.items():
        steps = steps_of(spec, path)
        try:
            items = _items_on(spec, record, steps)
            _change(spec, record, before, steps, value, edited)
            if value is None:
                items.pop(steps, None)  # the item was removed, and the next one has its index
            found = _final_items(spec, record, items)
            edited.violations += [shown_of(_field(spec, steps), violation) for violation in found]
            touched.add(_field(spec, steps).number)
        except _CannotBe as error:
            edited.violations.append(shown_of(_field(spec, steps), error.violation))
    for number in sorted(touched):
        one = spec.numbers[number]
        old, new = getattr(before, one.name), getattr(record, one.name)
        edited.violations += [shown_of(one, violation) for violation in _final(one, old, new, one.name)]
        edited.violations += validate_field(one, new, one.name)
        if not same(one.type, old, new):
            edited.fields += (number,)
    return edited


def steps_of(spec: ModelSpec, path: "Path | str") -> tuple[Step, ...]:
    """Return the steps of a path as users give it: `Account.address.city`, `"address.city"`, `"fees['USD']"`."""
    if isinstance(path, str):
        return _steps_of_text(spec, path)
    if not isinstance(path, Path):
        raise InvalidArgument(f"a path must be one of {spec.name}, or its text, not {type(path).__name__}")
    model, steps = model_and_steps(path)
    if model.__spec__ is not spec:
        raise InvalidArgument(f"{path!r} is not a path of {spec.name}")
    return _checked(spec, steps)


@lru_cache(1024)
def _steps_of_text(spec: ModelSpec, path: str) -> tuple[Step, ...]:
    steps = model_and_steps(parse_any_path(spec.model, path))[1] if "[" in path else parse_path(path)
    return _checked(spec, steps)


def _checked(spec: ModelSpec, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the steps with the present names of fields; raises InvalidArgument for a step that does not exist."""
    if isinstance(steps[0], str) and steps[0] not in spec.fields:
        for one in spec.fields.values():
            if steps[0] in one.alternatives:
                steps = (one.name, *steps[1:])
    type_at(spec, steps)
    return steps


def value_at(record: Any, steps: Sequence[Step]) -> Any:
    """Return the value at the end of a path; None if there is none."""
    for step in steps:
        if record is None:
            return None
        match step:
            case str():
                record = getattr(record, step, None)
            case At(key):
                try:
                    record = record[key]
                except (LookupError, TypeError):
                    return None
            case Variant(name):
                record = record if is_variant(record, name) else None
            case _:
                raise InvalidArgument(f"{path_text(steps)} means many values: name one")
    return record


def _field(spec: ModelSpec, steps: Sequence[Step]) -> FieldSpec:
    assert isinstance(steps[0], str)
    return spec.fields[steps[0]]


def _change(spec: ModelSpec, record: Any, before: Any, steps: tuple[Step, ...], value: Any, edited: Edited) -> None:
    holder = record
    if len(steps) > 1:
        name = _field(spec, steps).name
        inside = getattr(before, name)
        if getattr(record, name) is inside:  # it is about to be changed in place
            setattr(record, name, copied(inside))
    for position, step in enumerate(steps[:-1]):
        inner = value_at(holder, (step,))
        if inner is None:
            here = steps[: position + 1]
            # An absent dict counts as empty when an entry is put into it.
            if value is not None and isinstance(step, str) and type_at(spec, here).kind is Kind.DICT:
                inner = {}
                setattr(holder, step, inner)
            else:
                raise _CannotBe(steps, "absent", None, f"{path_text(here)} is absent: set the whole value")
        holder = inner
    last = steps[-1]
    if isinstance(last, Variant):
        if value is None:
            raise _CannotBe(steps, "type", None, "one type of a union cannot be removed: remove the field itself")
        last = steps[-2]
        holder = record if len(steps) == 2 else value_at(record, steps[:-2])
    if isinstance(value, _ANY_EDIT):
        value = _edited(spec, value_at(holder, (last,)), value_at(before, steps), steps, value, edited)
    value = copied(value)  # another path may change it, and the caller may keep using the original
    match last:
        case str():
            setattr(holder, last, value)
        case At(key):
            _put_item(holder, key, value, steps)
        case _:
            raise InvalidArgument(f"{path_text(steps)} means many values: name one, or use an edit")


def _put_item(holder: Any, key: Any, value: Any, steps: Sequence[Step]) -> None:
    if isinstance(holder, dict):
        if value is None:
            holder.pop(key, None)
        else:
            holder[key] = value
        return
    if key >= len(holder):
        raise _CannotBe(steps, "absent", None, f"the list has {len(holder)} items: append to it with a ListEdit")
    if value is None:
        del holder[key]
    else:
        holder[key] = value


def _edited(
    spec: ModelSpec,
    value: Any,
    before: Any,
    steps: Sequence[Step],
    change: ListEdit | SetEdit | DictEdit,
    edited: Edited,
) -> Any:
    ftype = type_at(spec, steps)
    if _EDITS.get(ftype.kind) is not type(change):
        raise InvalidArgument(f"{path_text(steps)} is {ftype}: a {type(change).__name__} does not apply to it")
    gone = list(map(one_nan, _several(change.remove, "remove", steps)))
    match change:
        case ListEdit(_, insert, append):
            if not isinstance(insert, Mapping) or not all(type(place) is int for place in insert):
                raise InvalidArgument(f"{path_text(steps)}: insert of the edit must be a dict of indexes and values")
            items = [item for item in value or [] if one_nan(item) not in gone]
            for place in sorted(insert):
                items.insert(place, insert[place])
            return [*items, *_several(append, "append", steps)]
        case SetEdit(add):
            try:
                kept = set(map(one_nan, value or ())) - set(gone)
                return kept | set(map(one_nan, _several(add, "add", steps)))
            except TypeError:  # an unhashable value
                raise _CannotBe(steps, "type", add, "is a set, whose items are single values") from None
        case DictEdit(put, _, append):
            if not isinstance(put, Mapping):
                raise InvalidArgument(f"{path_text(steps)}: put of the edit must be a dict")
            entries = {one_nan(key): item for key, item in (value or {}).items() if one_nan(key) not in gone}
            entries |= {one_nan(key): item for key, item in put.items()}
            # Another path of the same change may have removed entries already: their keys are not used again.
            old = {**(before or {}), **(value or {})}
            return _with_given(spec, entries, old, steps, _several(append, "append", steps), edited)
    raise AssertionError("an edit of an unknown kind")


def _several(values: Any, what: str, steps: Sequence[Step]) -> list[Any]:
    """Return the values of an edit; a text is one value, not its characters."""
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidArgument(
            f"{path_text(steps)}: {what} of the edit is {type(values).__name__}: give a list of values"
        )
    return list(values)


def _with_given(
    spec: ModelSpec,
    entries: dict[Any, Any],
    old: dict[Any, Any],
    steps: Sequence[Step],
    append: Sequence[Any],
    edited: Edited,
) -> dict[Any, Any]:
    """Return the entries with more values, under keys above all that exist, or existed before this change."""
    if append:
        if not (len(steps) == 1 and _field(spec, steps).auto_key):
            raise InvalidArgument(f"{path_text(steps)} is not declared with auto_key=True: put entries with their keys")
        first = max((key for key in (*entries, *old) if type(key) is int), default=0) + 1
        keys = list(range(first, first + len(append)))
        entries |= zip(keys, append, strict=True)
        edited.given[path_text(steps)] = keys
    return entries


def _final(one: FieldSpec, old: Any, new: Any, path: str) -> list[Violation]:
    """Return violations of final fields, which stay as they were once set; also inside of other values."""
    if one.final and old is not None and not same(one.type, old, new):
        return [Violation(path, "final", new, f"is final, and was set to {old!r}: add another record")]
    return _final_inside(one.type, old, new, path)


def _final_inside(ftype: FieldType, old: Any, new: Any, path: str) -> list[Violation]:
    """Return violations of final fields in models inside: embedded, of a union while the type stays, and in dicts.

    Items of a list are only known to be the same ones where the path of a change names them: see `_final_items`.
    """
    if old is None or new is None or type(old) is not type(new):
        return []
    match ftype.kind:
        case Kind.EMBEDDED:
            return [
                violation
                for name, inner in type(old).__spec__.fields.items()
                for violation in _final(inner, getattr(old, name), getattr(new, name), f"{path}.{name}")
            ]
        case Kind.UNION:
            variant = next((one for one in ftype.variants if type(old) in variant_types(one)), None)
            return [] if variant is None else _final_inside(variant, old, new, path)
        case Kind.DICT if ftype.item is not None and ftype.item.embedded():
            return [
                violation
                for key in old
                if key in new
                for violation in _final_inside(ftype.item, old[key], new[key], f"{path}[{key_text(key)}]")
            ]
    return []


def _items_on(spec: ModelSpec, record: Any, steps: Sequence[Step]) -> dict[tuple[Step, ...], Any]:
    """Return the list items that a path passes through, by their own paths, before it changes them."""
    if not any(isinstance(step, At) for step in steps):
        return {}
    paths = [tuple(steps[:end]) for end in range(2, len(steps) + 1) if isinstance(steps[end - 1], At)]
    return {path: copied(value_at(record, path)) for path in paths if type_at(spec, path[:-1]).kind is Kind.LIST}


def _final_items(spec: ModelSpec, record: Any, items: Mapping[tuple[Step, ...], Any]) -> list[Violation]:
    """Return violations of final fields in items that a path has passed through."""
    return [
        violation
        for path, old in items.items()
        for violation in _final_inside(type_at(spec, path), old, value_at(record, path), path_text(path))
    ]
