"""A table on paper: every record as it was at every version, and what each operation of a request does to it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.table import Add, Change, Delete, DictEdit, Done, ListEdit, SetEdit, Undelete
from holdfast.table.operations import Operation

__all__ = ["Entry", "Expected", "Paper", "PaperModel"]

Values = dict[str, Any]


@dataclass(frozen=True)
class Entry:
    """A record at a version."""

    version: int
    created: int
    deleted: bool
    values: Values


@dataclass(frozen=True)
class Expected:
    """What an operation must come to: `error` is the name of an error, and `rules` those that it names."""

    error: str = ""
    rules: frozenset[str] = frozenset()
    key: bytes = b""
    version: int | None = 0
    """None: of a record that is there neither before nor afterwards."""
    changed: bool = True


@dataclass(frozen=True)
class PaperModel:
    """What the paper knows of a model: its unique fields, and what is wrong with values."""

    unique: tuple[str, ...]
    wrong: Callable[[str, Any], set[str]]
    """The rules that a field's value breaks."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    key_of: Callable[[Values], bytes] | None = None


class _CannotBe(Exception):
    """The rule that a change breaks."""


class Paper:
    """The records of one table, with their past."""

    def __init__(self, model: PaperModel) -> None:
        self.model = model
        self.past: dict[bytes, list[Entry]] = {}
        """By key, the oldest first; those that were deleted for good have none."""
        self.buried: set[bytes] = set()
        self.last_version = 0

    # Reading

    def at(self, version: int | None = None, *, include_deleted: bool = False) -> dict[bytes, Entry]:
        """The records as they were, by key, ascending."""
        found = {}
        for key in sorted(self.past):
            entries = [one for one in self.past[key] if version is None or one.version <= version]
            if entries and (include_deleted or not entries[-1].deleted):
                found[key] = entries[-1]
        return found

    def versions(self) -> list[int]:
        """All at which something was changed that is still there."""
        return sorted({one.version for entries in self.past.values() for one in entries})

    # Requests

    def copy(self) -> "Paper":
        """Another one that says the same."""
        other = Paper(self.model)
        other.past = {key: list(entries) for key, entries in self.past.items()}
        other.buried, other.last_version = set(self.buried), self.last_version
        return other

    def run(self, operations: Sequence[Operation], version: int, base: "Paper | None" = None) -> list[Expected]:
        """A request that got this version; `base` is what the transaction that it belongs to began with."""
        before, self._undone = base or self.copy(), set[bytes]()
        self._before = before
        expected = [self._run(operation, version) for operation in operations]
        unchanged = (self.past, self.buried) == (before.past, before.buried)
        self.last_version = before.last_version if unchanged else version
        if base is not None:  # what a transaction comes to is known at its end only
            return expected
        nothing = {key for key in self._undone if self.past.get(key) == before.past.get(key)}
        return [
            replace(one, changed=False, version=None if (row := self._row(one.key)) is None else row.version)
            if not one.error and one.key in nothing
            else one
            for one in expected
        ]

    def _run(self, operation: Operation, version: int) -> Expected:
        match operation:
            case Add(record, key):
                return self._add(record, key, version)
            case Change():
                return self._change(operation, version)
            case Delete():
                return self._delete(operation, version)
            case Undelete(key):
                return self._change(Change(key, delete=False), version)

    def _row(self, key: bytes) -> Entry | None:
        entries = self.past.get(key)
        return entries[-1] if entries else None

    def _put(self, key: bytes, entry: Entry) -> None:
        entries = self.past.setdefault(key, [])
        if entries and entries[-1].version == entry.version:
            entries.pop()
        entries.append(entry)
        self.buried.discard(key)
        first = self._before.past.get(key)
        if first and replace(entry, version=first[-1].version) == first[-1]:  # as it was before the request
            self.past[key] = list(first)
            self._undone.add(key)

    def _taken(self, key: bytes, values: Values) -> bool:
        return any(
            values.get(name) is not None and values[name] == other.values.get(name)
            for owner, other in self.at().items()
            if owner != key
            for name in self.model.unique
        )

    def _add(self, given: Values, key: bytes | None, version: int) -> Expected:
        values = {**deepcopy(dict(self.model.defaults)), **deepcopy(given)}
        rules = {rule for name, value in values.items() for rule in self.model.wrong(name, value)}
        if rules:
            return Expected("ValidationFailed", frozenset(rules))
        if self.model.key_of is not None:
            key = self.model.key_of(values)
        assert key is not None
        if self._row(key) is not None:
            return Expected("AlreadyExists")
        if self._taken(key, values):
            return Expected("ValidationFailed", frozenset({"unique"}))
        self._put(key, Entry(version, version, False, values))
        return Expected(key=key, version=version)

    def _change(self, operation: Change, version: int) -> Expected:
        row = self._row(operation.key)
        if row is None:
            return Expected("NoRecord")
        rules = set()
        if operation.if_version not in (None, row.version):
            rules.add("version")
        rules |= {"check" for path, value in operation.check.items() if row.values[str(path)] != value}
        values = deepcopy(row.values)
        touched = set()
        for path, value in operation.changes.items():
            name, *inside = path if isinstance(path, tuple) else (path,)
            try:
                values[name] = _changed(values[name], inside, value)
                touched.add(name)
            except _CannotBe as error:
                rules.add(str(error))
        rules |= {rule for name in touched for rule in self.model.wrong(name, values[name])}
        if rules:
            return Expected("ValidationFailed", frozenset(rules))
        deleted = row.deleted if operation.delete is None else operation.delete
        if values == row.values and deleted == row.deleted:
            return Expected(key=operation.key, version=row.version, changed=False)
        if not deleted and self._taken(operation.key, values):
            return Expected("ValidationFailed", frozenset({"unique"}))
        self._put(operation.key, replace(row, version=version, deleted=deleted, values=values))
        return Expected(key=operation.key, version=version)

    def _delete(self, operation: Delete, version: int) -> Expected:
        key = operation.key
        row = self._row(key)
        if row is None:
            return Expected("NoRecord")
        if operation.if_version not in (None, row.version):
            return Expected("ValidationFailed", frozenset({"version"}))
        if operation.hard:
            del self.past[key]
            if key in self._before.past or key in self._before.buried:
                self.buried.add(key)
            if key not in self._before.past:
                self._undone.add(key)
        elif row.deleted:
            return Expected("NoRecord")
        else:
            self._put(key, replace(row, version=version, deleted=True))
        return Expected(key=key, version=version)


def _changed(old: Any, inside: Sequence[Any], value: Any) -> Any:
    """What becomes of a field's value."""
    if inside:
        (place,) = inside
        if isinstance(old, list) and place >= len(old):
            raise _CannotBe("absent")
        if value is not None:
            old[place] = value
        elif isinstance(old, list) or place in old:
            del old[place]
        return old
    match value:
        case ListEdit(remove, insert, append):
            items = [item for item in old if item not in remove]
            for place in sorted(insert):
                items[place:place] = [insert[place]]
            return items + list(append)
        case SetEdit(add, remove):
            return {item for item in old if item not in remove} | set(add)
        case DictEdit(put, remove):
            return {key: item for key, item in old.items() if key not in remove} | dict(put)
    return deepcopy(value)


def is_as_expected(outcome: Any, expected: Expected) -> bool:
    """Whether an operation came to what it had to."""
    if isinstance(outcome, Done):
        version = outcome.version if expected.version is None else expected.version
        wanted = (expected.key, version, expected.changed)
        return not expected.error and (outcome.key, outcome.version, outcome.changed) == wanted
    rules = frozenset(one.rule for one in getattr(outcome, "violations", ()))
    return type(outcome).__name__ == expected.error and rules == expected.rules


def each_once(keys: Iterable[bytes]) -> list[bytes]:
    """The keys as a list, in which none comes twice."""
    listed = list(keys)
    assert len(listed) == len(set(listed)), "a record came twice"
    return listed
