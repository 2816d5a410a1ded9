"""Verdict on whether a table's records suit another model, from a comparison of the two definitions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.table.migration.errors import IncompatibleModel
from holdfast.table.migration.schema_diff import TypeChanges, same_type
from holdfast.table.model.definition import model_from
from holdfast.table.model.field_path import Variant, parse_path, type_at
from holdfast.table.model.fields import FieldRef, FieldSpec
from holdfast.table.model.indexes import Index, Reversed, Words
from holdfast.table.model.model_spec import ModelSpec

__all__ = [
    "IndexWork",
    "NeedsMigration",
    "NewIndexes",
    "NewModel",
    "OnlySafeAdds",
    "UpToDate",
    "Verdict",
    "judge",
]


@dataclass(frozen=True, slots=True)
class IndexWork:
    """Indexes and unique values of a table that must be built or deleted."""

    build: tuple[str, ...] = ()
    """Indexes, by the text of their parts, that must be filled."""
    drop: tuple[str, ...] = ()
    """Indexes that are no longer in the model."""
    build_unique: tuple[int, ...] = ()
    """Numbers of fields whose values become unique."""
    drop_unique: tuple[int, ...] = ()
    rebuilds: bool = False
    """Whether some of them exist already and must be filled again, because their fields or types changed."""

    def __bool__(self) -> bool:
        return bool(self.build or self.drop or self.build_unique or self.drop_unique)


@dataclass(frozen=True, slots=True)
class NewModel:
    """No table of that name exists yet."""


@dataclass(frozen=True, slots=True)
class UpToDate:
    """The table has this definition."""


@dataclass(frozen=True, slots=True)
class OnlySafeAdds:
    """Every record suits the new definition as it is."""

    adds: tuple[str, ...] = ()
    """Sentences that describe what is new."""


@dataclass(frozen=True, slots=True)
class NewIndexes:
    """Every record suits, but indexes are to be filled, or deleted."""

    work: IndexWork
    adds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NeedsMigration:
    """Records may not suit, or some of their content would be lost: a migration must be given."""

    reasons: tuple[str, ...]
    """Sentences that name the field."""
    work: IndexWork = IndexWork()
    adds: tuple[str, ...] = ()


Verdict = NewModel | UpToDate | OnlySafeAdds | NewIndexes | NeedsMigration


def judge(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> Verdict:
    """Compare the definition that a table has with the one that it is opened with (as `describe` gives them).

    Raises `IncompatibleModel` if no migration can help: another name or id, or another layout of the keys.
    """
    if old is None:
        return NewModel()
    if old == new:
        return UpToDate()
    before, now = model_from(old).__spec__, model_from(new).__spec__
    _check_same_table(before, now)
    changes = TypeChanges()
    changes.compare(before, now)
    work = _index_work(before, now)
    changes.adds += [f"index {index} is new" for index in _named(now, set(work.build) - _canonicals(before))]
    if changes.reasons:
        return NeedsMigration(tuple(changes.reasons), work, tuple(changes.adds))
    if work:
        return NewIndexes(work, tuple(changes.adds))
    return OnlySafeAdds(tuple(changes.adds))


def _check_same_table(before: ModelSpec, now: ModelSpec) -> None:
    if before.name != now.name:
        raise IncompatibleModel(f"the id {now.id} belongs to the table {before.name!r}: give {now.name} another one")
    if before.id != now.id:
        raise IncompatibleModel(
            f"the table {now.name!r} has the id {before.id}, which cannot change: write id={before.id}"
        )
    if _key_shape(before.key) != _key_shape(now.key):
        raise IncompatibleModel(
            f"the keys of {now.name!r} are made of {_key_text(before)}, and would be of {_key_text(now)}: the key of a "
            "record never changes. Give the new model another name and id, and copy the records"
        )


def _key_shape(key: tuple[FieldRef, ...] | None) -> object:
    """Return the properties that determine the bytes of a key; names do not."""
    if key is None:
        return None
    return [
        ([field.number for field in part.fields], part.reversed, part.type_of, _type_text(part.fields[-1]))
        for part in key
    ]


def _type_text(field: FieldSpec) -> str:
    """Return the kind; of an enum that of its values: which members there are does not change the bytes of one."""
    enum = field.type.enum
    if enum is None:
        return str(field.type.kind)
    return "enum of str" if all(isinstance(member.value, str) for member in enum) else "enum of int"


def _key_text(spec: ModelSpec) -> str:
    if spec.key is None:
        return "a UUIDv7"
    return ", ".join(f"-{part.path}" if part.reversed else part.path for part in spec.key)


def _canonicals(spec: ModelSpec) -> set[str]:
    return {index.canonical for index in spec.indexes}


def _named(spec: ModelSpec, canonicals: set[str]) -> list[str]:
    return [index.name for index in spec.indexes if index.canonical in canonicals]


def _index_work(before: ModelSpec, now: ModelSpec) -> IndexWork:
    was = {index.canonical: index for index in before.indexes}
    known = {name: _meaning(before, index) for name, index in was.items()}
    wanted = {index.canonical: _meaning(now, index) for index in now.indexes}
    held = {field.number: field for field in before.fields.values() if field.unique}
    holds = {field.number: field for field in now.fields.values() if field.unique}
    changed = [name for name, meaning in wanted.items() if name in known and known[name] != meaning]
    changed_unique = [
        number
        for number, field in holds.items()
        if number in held
        and not (same_type(held[number].type, field.type) and held[number].sensitive == field.sensitive)
    ]
    return IndexWork(
        build=tuple(name for name, meaning in wanted.items() if known.get(name) != meaning),
        drop=tuple(name for name in known if name not in wanted),
        build_unique=(*(number for number in holds if number not in held), *changed_unique),
        drop_unique=tuple(number for number in held if number not in holds),
        rebuilds=bool(changed or changed_unique),
    )


def _meaning(spec: ModelSpec, index: Index) -> object:
    """Return which values an index holds: the same text means others when fields change their names or types."""
    return [_part_meaning(spec, part) for part in index.parts]


def _part_meaning(spec: ModelSpec, part: Any) -> object:
    inner = part.part if isinstance(part, Reversed) else part
    paths = inner.paths if isinstance(inner, Words) else [inner if isinstance(inner, str) else inner.path]
    return str(part).count("-"), type(inner).__name__, [_path_meaning(spec, path) for path in paths]


def _path_meaning(spec: ModelSpec, path: str) -> object:
    steps = parse_path(path)
    found: list[object] = []
    inside: ModelSpec | None = spec
    for at, step in enumerate(steps):
        ftype = type_at(spec, steps[: at + 1])
        if isinstance(step, str) and inside is not None:
            field = inside.fields[step]
            found.append(field.number)
            # An absent value is read as the default, and is indexed as the default.
            found.append(repr(field.default))
        elif isinstance(step, Variant):
            found.append(step.name)
        inside = ftype.model.__spec__ if ftype.model is not None else None
    end = type_at(spec, steps)
    values = [str(member.value) for member in end.enum] if end.enum is not None else []
    return found, str(end), values if end.enum is not None else end.kind
