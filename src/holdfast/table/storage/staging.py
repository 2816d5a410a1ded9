"""Staging of a request: its operations are evaluated against the state and each other before anything is written."""

from collections.abc import Container, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.base.errors import HoldfastError, InvalidArgument, MessageTooLarge
from holdfast.state import Transaction
from holdfast.table.errors import ValidationFailed
from holdfast.table.model.field_edits import edit
from holdfast.table.model.fields import FieldSpec
from holdfast.table.model.keys import KeyLayout
from holdfast.table.model.model import Model
from holdfast.table.model.object_access import same
from holdfast.table.model.types import HIDDEN
from holdfast.table.model.validation import Violation, validate
from holdfast.table.operations import Add, AlreadyExists, Change, Delete, Done, NoRecord, Operation, Outcome, Undelete
from holdfast.table.storage.row_codec import Event, EventKind, Row, row_after, size_of
from holdfast.table.storage.table_state import TableState

__all__ = ["Busy", "Staging", "Step"]


class Step(NamedTuple):
    """An event and what it does: the arguments of `TableState.apply`."""

    key: bytes
    event: Event
    old: Row | None
    before: Any
    record: Any


class _RecordState(NamedTuple):
    """The state of a record in the middle of a request."""

    row: Row | None
    record: Any
    """None until it is first needed, and then decoded from the row."""


Names = list[tuple[FieldSpec, bytes]]
"""Unique values, as keys of the state."""

_Place = tuple[bytes, int, bool]
"""What identifies a step: a record's key, the version, and whether it is a hard delete."""


class Busy(Exception):
    """A record or unique value that this request needs is part of another pending request: wait, and begin again."""


class Staging:
    """The staged changes of one request or transaction. Not thread-safe.

    A record or unique value that another pending request touches (`pending`) raises `Busy`.
    """

    drops_undone = True
    """Whether a record that is changed, and changed back in the same request, gets no event."""

    def __init__(
        self,
        model: type[Model],
        view: TableState,
        layout: KeyLayout,
        version: int,
        pending: Container[bytes],
        size_max: int,
    ) -> None:
        self._model = model
        self._view = view
        self._layout = layout
        self._pending = pending
        self._size_max = size_max
        """The largest size of an event and its key."""
        self.version = version
        self._batch = view.state.transaction()
        self._steps: dict[_Place, Step] = {}
        self._redo = False
        """Whether the batch contains a change that is no longer a step."""
        self.names: set[bytes] = set()
        """Keys of records and of unique values that other requests must not touch until this one is in the state."""
        self.undone: set[bytes] = set()
        """Keys of records that operations changed and changed back."""
        self._records: dict[bytes, _RecordState] = {}
        self._owners: dict[bytes, bytes | None] = {}

    @property
    def steps(self) -> list[Step]:
        """Return the changes: one for each record, or two if it is hard-deleted and added again."""
        if self._redo:
            self._restage()
        return list(self._steps.values())

    @property
    def batch(self) -> Transaction:
        """Return the changes of the state, not committed."""
        if self._redo:
            self._restage()
        return self._batch

    def _restage(self) -> None:
        steps = [self._as_written(step) for step in self._steps.values()]
        if self._view.uniques:
            steps = _givers_first(self._view, steps)
        self._steps = {_place(step): step for step in steps}
        self._batch = self._view.state.transaction()
        for step in steps:
            self._view.apply(self._batch, *step)
        self._redo = False

    def run(self, operation: Operation) -> Outcome:
        """Evaluate one operation; for an invalid one, return its error and change nothing.

        Raises `Busy`, and `InvalidArgument` if the argument is not an operation.
        """
        try:
            match operation:
                case Add():
                    return self._add(operation)
                case Change():
                    return self._change(operation)
                case Delete():
                    return self._delete(operation)
                case Undelete():
                    return self._change(Change(operation.key, delete=False))
        except HoldfastError as error:
            return error
        except RecursionError:
            return InvalidArgument(f"this {self._model.__name__} has models nested too deeply")
        raise InvalidArgument(
            f"an operation must be an Add, Change, Delete or Undelete, not {type(operation).__name__}"
        )

    def _add(self, operation: Add) -> Outcome:
        record = operation.record
        if not isinstance(record, self._model):
            if not isinstance(record, dict):
                raise InvalidArgument(
                    f"a record of this table must be a {self._model.__name__} or a dict, not {type(record).__name__}"
                )
            record = self._model.from_dict(record)
        elif self._view.spec.check(record) is not None:
            raise ValidationFailed(self._model.__name__, validate(record))
        key = operation.key
        if key is None:
            key = self._layout.key_of(record)
        else:
            self._layout.check(key, record)
        if self._look_up(key).row is not None:
            raise AlreadyExists(
                f"a {self._model.__name__} with this key already exists: change it, or delete it first", key
            )
        holds = self._check_uniques(key, record)
        self._write(
            Step(key, self._event(key, EventKind.ADD, self.version, False, (), record), None, None, record), holds
        )
        return Done(key, self.version)

    def _change(self, operation: Change) -> Outcome:
        key = operation.key
        row, before = self._existing(key)
        violations = _expected(operation.if_version, row)
        record = before.__copy__()
        edited = edit(self._view.spec, record, before, operation.changes, operation.check)
        violations += edited.violations
        if violations:
            raise ValidationFailed(self._model.__name__, violations)
        fields = edited.fields
        deleted = row.deleted if operation.delete is None else operation.delete
        if not fields and deleted == row.deleted:
            return Done(key, row.version, changed=False)
        kind = EventKind.CHANGE if fields else EventKind.DELETE if deleted else EventKind.UNDELETE
        if deleted == row.deleted and self._view.keeps_entries(
            before, record
        ):  # its unique values cannot be taken by other records
            self._write(
                Step(key, self._event(key, kind, row.created, deleted, fields, record), row, before, record), []
            )
        else:
            if not deleted:
                self._check_uniques(key, record)
            self._step(key, kind, row.created, deleted, fields, record)
        return Done(key, self.version, given=edited.given)

    def _delete(self, operation: Delete) -> Outcome:
        key = operation.key
        row, before = self._existing(key)
        if violations := _expected(operation.if_version, row):
            raise ValidationFailed(self._model.__name__, violations)
        if operation.hard:
            self._forget(key)
            if self._records[key].row is None:  # this request added it
                self._undo(key, None)
            else:
                self._step(key, EventKind.HARD_DELETE, row.created, True, (), None)
        elif row.deleted:
            raise self._no_record(key)
        else:
            self._step(key, EventKind.DELETE, row.created, True, (), before)
        return Done(key, self.version)

    def _forget(self, key: bytes) -> None:
        """Discard the earlier steps of a record in this request; the caller then stages the hard delete, if any."""
        places: list[_Place] = [
            (key, self.version, gone) for gone in (True, False)
        ]  # in order: it may have been added again
        steps = [self._steps.pop(place) for place in places if place in self._steps]
        for step in steps:
            if not step.event.deleted:
                self._release(key, self._view.images.decode(key, step.event.image))
        if steps:
            self._records[key] = _RecordState(steps[0].old, steps[0].before)
            self._redo = True

    def _as_written(self, step: Step) -> Step:
        """Return a step with the record decoded from its event: the caller may have changed its own object since."""
        image = step.event.image
        return step._replace(record=self._view.images.decode(step.key, image)) if image else step

    def _existing(self, key: bytes) -> tuple[Row, Any]:
        row, record = self._record_state(key)
        if row is None:
            raise self._no_record(key)
        return row, record

    def _no_record(self, key: bytes) -> NoRecord:
        return NoRecord(f"there is no {self._model.__name__} with this key", key)

    def _record_state(self, key: bytes) -> _RecordState:
        found = self._look_up(key)
        if found.record is None and found.row is not None:
            found = self._records[key] = _RecordState(found.row, self._view.images.decode(key, found.row.image))
        return found

    def _look_up(self, key: bytes) -> _RecordState:
        """As `_record_state`, but the record may not be decoded yet."""
        if not isinstance(key, bytes):
            raise InvalidArgument(f"the key of a record must be bytes, not {type(key).__name__}")
        found = self._records.get(key)
        if found is None:
            if key in self._pending:
                raise Busy
            found = self._records[key] = _RecordState(self._view.row(key), None)
        return found

    def _check_uniques(self, key: bytes, record: Any) -> Names:
        """Return the unique values of a record; raise `ValidationFailed` if another record has one of them."""
        violations = []
        names = self._view.unique_keys(record)
        for field, name in names:
            owner = self._owner(name)
            if owner is not None and owner != key:
                message = f"another record has this {field.name} already"
                value = HIDDEN if field.sensitive else getattr(record, field.name)
                violations.append(Violation(field.name, "unique", value, message, owner=owner))
        if violations:
            raise ValidationFailed(self._model.__name__, violations)
        return names

    def _owner(self, name: bytes) -> bytes | None:
        if name not in self._owners:
            if name in self._pending:
                raise Busy
            self._owners[name] = self._view.owner_of(name)
        return self._owners[name]

    def _release(self, key: bytes, record: Any) -> None:
        """Free the unique values that a record owned."""
        for _, name in [] if record is None else self._view.unique_keys(record):
            self.names.add(name)
            if self._owners.get(name, key) == key:
                self._owners[name] = None

    def _step(
        self, key: bytes, kind: EventKind, created: int, deleted: bool, fields: tuple[int, ...], record: Any
    ) -> None:
        old, before = self._record_state(key)
        event = self._event(key, kind, created, deleted, fields, record)
        if self._view.uniques:
            if kind is EventKind.HARD_DELETE and before is not None:
                for _, name in self._view.unique_keys(before):  # also those that it owned before it was soft-deleted
                    self._owner(name)
                    self.names.add(name)
            self._release(key, before if old is not None and not old.deleted else None)
        holds = [] if record is None else self._view.unique_keys(record)
        self._write(Step(key, event, old, before, record), holds)

    def _event(
        self, key: bytes, kind: EventKind, created: int, deleted: bool, fields: tuple[int, ...], record: Any
    ) -> Event:
        image = b"" if record is None else self._view.images.encode(key, record)
        event = Event(kind, self.version, created, deleted, fields, image)
        size = size_of(event) + len(key)
        if size > self._size_max:
            raise MessageTooLarge(
                f"this {self._model.__name__} takes {size} bytes, over the limit of {self._size_max} of its log: make "
                "it smaller, or open the table with a larger max_message"
            )
        return event

    def _write(self, step: Step, holds: Names) -> None:
        key = step.key
        self.names.add(key)
        for _, name in holds:
            self.names.add(name)
            if not step.event.deleted:
                self._owners[name] = key
        place = _place(step)
        earlier = self._steps.pop(place, None)
        if earlier is not None:
            step, self._redo = _folded(earlier, step), True
            if self.drops_undone and self._is_undone(step):
                self._undo(key, step.old)
                return
        self._steps[place] = step
        # The record itself is not kept: it may be the caller's own.
        row = row_after(step.old, step.event) if self._redo else self._view.apply(self._batch, *step, holds)
        self._records[key] = _RecordState(row, None)

    def _is_undone(self, step: Step) -> bool:
        """Return whether a record is as it was before this request."""
        if step.old is None or step.before is None or step.event.deleted != step.old.deleted:
            return False
        record = self._as_written(step).record
        return all(
            same(field.type, getattr(step.before, name), getattr(record, name))
            for name, field in self._view.spec.fields.items()
        )

    def _undo(self, key: bytes, old: Row | None) -> None:
        """Note that the operations on a record cancel each other. The caller has removed its step."""
        self._records[key] = _RecordState(old, None)
        self.undone.add(key)

    def outcomes(self, found: list[Outcome]) -> list[Outcome]:
        """Return the outcomes, with `changed=False` for operations on records that were changed back."""
        nothing = self.undone.difference(step.key for step in self.steps) if self.undone else ()
        if not nothing:
            return found
        return [
            msgspec.structs.replace(one, version=self._version_of(one), changed=False)
            if isinstance(one, Done) and one.key in nothing
            else one
            for one in found
        ]

    def _version_of(self, done: Done) -> int:
        row = self._records[done.key].row
        return done.version if row is None else row.version


def _place(step: Step) -> _Place:
    return step.key, step.event.version, step.event.kind is EventKind.HARD_DELETE


def _folded(first: Step, then: Step) -> Step:
    """Merge two steps of one record into one.

    A version of a record is one event: replicas recognise by its version an event that they have already.
    """
    event = then.event
    fields = tuple(sorted({*first.event.fields, *event.fields}))
    kind = EventKind.CHANGE
    if first.event.kind is EventKind.ADD:
        kind, fields = EventKind.ADD, ()
    elif not fields and first.old is not None and first.old.deleted != event.deleted:
        kind = event.kind
    return Step(then.key, event._replace(kind=kind, fields=fields), first.old, first.before, then.record)


def _givers_first(view: TableState, steps: Sequence[Step]) -> list[Step]:
    """Order the steps so that a record that frees a unique value comes before one that takes it.

    Another store can then apply each of them. If two records swap values there is no such order: the order is kept.
    """
    givers: dict[bytes, Step] = {}
    takes: dict[_Place, set[bytes]] = {}
    for step in steps:
        had, has = _owned(view, step.old, step.before), _owned(view, step.event, step.record)
        givers |= dict.fromkeys(had - has, step)
        takes[_place(step)] = has - had
    ordered: dict[_Place, Step] = {}
    for step in steps:
        waiting = {_place(step): step}
        while waiting:
            place = next(reversed(waiting))
            for giver in filter(None, map(givers.get, takes[place])):
                if _place(giver) not in ordered and _place(giver) not in waiting:
                    waiting[_place(giver)] = giver
                    break
            else:
                ordered.setdefault(place, waiting.pop(place))
    return list(ordered.values())


def _owned(view: TableState, row: Row | Event | None, record: Any) -> set[bytes]:
    return set() if row is None or row.deleted else {name for _, name in view.unique_keys(record)}


def _expected(version: int | None, row: Row) -> list[Violation]:
    """Return the violation if the record does not have the required version."""
    if version is None or version == row.version:
        return []
    return [
        Violation("", "version", row.version, f"the record has version {row.version}, not {version}: read it again")
    ]
