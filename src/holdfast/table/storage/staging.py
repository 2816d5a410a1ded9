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
from holdfast.table.storage.row_codec import Event, EventKind, Row, encode_event, row_after
from holdfast.table.storage.table_state import TableState

__all__ = ["Busy", "Place", "RecordState", "Staging", "Step"]


class Step(NamedTuple):
    """An event, its bytes in the log, and what it changes: the arguments of `TableState.apply`."""

    key: bytes
    event: Event
    payload: bytes
    old: Row | None
    before: Any
    record: Any


class RecordState(NamedTuple):
    """The state of a record in the middle of a request."""

    row: Row | None
    record: Any
    """None until it is first needed, and then decoded from the row."""


Names = list[tuple[FieldSpec, bytes]]
"""Unique values, as keys of the state."""

Place = tuple[bytes, int, bool]
"""What identifies a step: a record's key, the version, and whether it is a hard delete."""


class Busy(Exception):
    """A record or unique value that this request needs is part of another pending request: wait, and begin again."""


class Staging:
    """The staged changes of one request or transaction. Not thread-safe.

    A record or unique value that another pending request touches (`pending`) raises `Busy`.
    """

    def __init__(
        self,
        model: type[Model],
        view: TableState,
        layout: KeyLayout,
        batch: Transaction,
        version: int,
        pending: Container[bytes],
        size_max: int,
        drops_undone: bool = True,
    ) -> None:
        """Gather the changes of the state in `batch`, which is empty.

        With `drops_undone`, a record that is changed, and changed back in the same request, gets no event.
        """
        self._model = model
        self._view = view
        self._layout = layout
        self._drops_undone = drops_undone
        self._pending = pending
        self._size_max = size_max
        """The largest size of an event and its key."""
        self.version = version
        self.steps: dict[Place, Step] = {}
        """The changes: one for each record, or two if it is hard-deleted and added again. In order if settled."""
        self.batch = batch
        """The changes of the state, not committed; valid if settled."""
        self.unsettled = False
        """Whether the batch contains a change that is no longer a step, and lacks later ones: see `settle`."""
        self.names: set[bytes] = set()
        """Keys of records and of unique values that other requests must not touch until this one is in the state."""
        self._undone: set[bytes] = set()
        """Keys of records that operations changed and changed back."""
        self._records: dict[bytes, RecordState] = {}
        self._owners: dict[bytes, bytes | None] = {}

    def settle(self) -> None:
        """Make steps and batch agree again, after operations that were merged with earlier ones on their record.

        Done once for all of them: each time it takes as long as staging all the steps.
        """
        if not self.unsettled:
            return
        steps = [self._as_written(step) for step in self.steps.values()]
        if self._view.uniques:
            steps = _givers_first(self._view, steps)
        self.steps = {_place(step): step for step in steps}
        self.batch = Transaction(self._view.state)
        for step in steps:
            self._view.apply(self.batch, step.key, step.event, step.old, step.before, step.record)
        self.unsettled = False

    def run_all(self, operations: Sequence[Operation]) -> list[Outcome]:
        """Evaluate all operations of a request, as `run`."""
        outcomes = [self.run(operation) for operation in operations]
        return self._corrected(outcomes) if self._undone else outcomes

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
        holds = self.check_uniques(key, record)
        event, payload = self._event(key, EventKind.ADD, self.version, False, (), record)
        self._write(Step(key, event, payload, None, None, record), holds)
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
            event, payload = self._event(key, kind, row.created, deleted, fields, record)
            self._write(Step(key, event, payload, row, before, record), [])
        else:
            if not deleted:
                self.check_uniques(key, record)
            self.stage(key, kind, row.created, deleted, fields, record)
        return Done(key, self.version, given=edited.given)

    def _delete(self, operation: Delete) -> Outcome:
        key = operation.key
        row, before = self._existing(key)
        if violations := _expected(operation.if_version, row):
            raise ValidationFailed(self._model.__name__, violations)
        if operation.hard:
            self.forget(key)
            if self._records[key].row is None:  # this request added it
                self._undo(key, None)
            else:
                self.stage(key, EventKind.HARD_DELETE, row.created, True, (), None)
        elif row.deleted:
            raise self._no_record(key)
        else:
            self.stage(key, EventKind.DELETE, row.created, True, (), before)
        return Done(key, self.version)

    def forget(self, key: bytes) -> None:
        """Discard the earlier steps of a record in this request; the caller then stages the hard delete, if any."""
        places: list[Place] = [
            (key, self.version, gone) for gone in (True, False)
        ]  # in order: it may have been added again
        steps = [self.steps.pop(place) for place in places if place in self.steps]
        for step in steps:
            if not step.event.deleted:
                self._release(key, self._view.images.decode(key, step.event.image))
        if steps:
            self._records[key] = RecordState(steps[0].old, steps[0].before)
            self.unsettled = True

    def _as_written(self, step: Step) -> Step:
        """Return a step with the record decoded from its event: the caller may have changed its own object since."""
        image = step.event.image
        return Step(*step[:-1], self._view.images.decode(step.key, image)) if image else step

    def _existing(self, key: bytes) -> tuple[Row, Any]:
        row, record = self.record_state(key)
        if row is None:
            raise self._no_record(key)
        return row, record

    def _no_record(self, key: bytes) -> NoRecord:
        return NoRecord(f"there is no {self._model.__name__} with this key", key)

    def record_state(self, key: bytes) -> RecordState:
        """Return a record as the request has left it so far."""
        found = self._look_up(key)
        if found.record is None and found.row is not None:
            found = self._records[key] = RecordState(found.row, self._view.images.decode(key, found.row.image))
        return found

    def _look_up(self, key: bytes) -> RecordState:
        """As `record_state`, but the record may not be decoded yet."""
        if not isinstance(key, bytes):
            raise InvalidArgument(f"the key of a record must be bytes, not {type(key).__name__}")
        found = self._records.get(key)
        if found is None:
            if key in self._pending:
                raise Busy
            found = self._records[key] = RecordState(self._view.row(key), None)
        return found

    def check_uniques(self, key: bytes, record: Any) -> Names:
        """Return the unique values of a record; raise `ValidationFailed` if another record has one of them."""
        if not self._view.uniques:
            return []
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

    def stage(
        self, key: bytes, kind: EventKind, created: int, deleted: bool, fields: tuple[int, ...], record: Any
    ) -> None:
        """Stage an event at `version`; `record` is None after a hard delete. Unique values are not checked here."""
        old, before = self.record_state(key)
        event, payload = self._event(key, kind, created, deleted, fields, record)
        if self._view.uniques:
            if kind is EventKind.HARD_DELETE and before is not None:
                for _, name in self._view.unique_keys(before):  # also those that it owned before it was soft-deleted
                    self._owner(name)
                    self.names.add(name)
            self._release(key, before if old is not None and not old.deleted else None)
        holds = [] if record is None else self._view.unique_keys(record)
        self._write(Step(key, event, payload, old, before, record), holds)

    def _event(
        self, key: bytes, kind: EventKind, created: int, deleted: bool, fields: tuple[int, ...], record: Any
    ) -> tuple[Event, bytes]:
        """Return an event at `version`, and its bytes in the log."""
        image = b"" if record is None else self._view.images.encode(key, record)
        event = Event(kind, self.version, created, deleted, fields, image)
        payload = encode_event(event)
        size = len(payload) + len(key)
        if size > self._size_max:
            raise MessageTooLarge(
                f"this {self._model.__name__} takes {size} bytes, over the limit of {self._size_max} of its log: make "
                "it smaller, or open the table with a larger max_message"
            )
        return event, payload

    def _write(self, step: Step, holds: Names) -> None:
        key = step.key
        self.names.add(key)
        for _, name in holds:
            self.names.add(name)
            if not step.event.deleted:
                self._owners[name] = key
        place = _place(step)
        earlier = self.steps.pop(place, None)
        if earlier is not None:
            step, self.unsettled = _folded(earlier, step), True
            if self._drops_undone and self._is_undone(step):
                self._undo(key, step.old)
                return
        self.steps[place] = step
        if self.unsettled:
            row = row_after(step.old, step.event)
        else:
            row = self._view.apply(self.batch, key, step.event, step.old, step.before, step.record, holds)
        # The record itself is not kept: it may be the caller's own.
        self._records[key] = RecordState(row, None)

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
        self._records[key] = RecordState(old, None)
        self._undone.add(key)

    def _corrected(self, found: list[Outcome]) -> list[Outcome]:
        """Return the outcomes, with `changed=False` for operations on records that were changed back."""
        nothing = self._undone.difference(step.key for step in self.steps.values())
        return [
            msgspec.structs.replace(one, version=self._version_of(one), changed=False)
            if isinstance(one, Done) and one.key in nothing
            else one
            for one in found
        ]

    def _version_of(self, done: Done) -> int:
        row = self._records[done.key].row
        return done.version if row is None else row.version


def _place(step: Step) -> Place:
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
    event = Event(kind, event.version, event.created, event.deleted, fields, event.image)
    return Step(then.key, event, encode_event(event), first.old, first.before, then.record)


def _givers_first(view: TableState, steps: Sequence[Step]) -> list[Step]:
    """Order the steps so that a record that frees a unique value comes before one that takes it.

    Another store can then apply each of them. If two records swap values there is no such order: the order is kept.
    """
    givers: dict[bytes, Step] = {}
    takes: dict[Place, set[bytes]] = {}
    for step in steps:
        had, has = _owned(view, step.old, step.before), _owned(view, step.event, step.record)
        givers |= dict.fromkeys(had - has, step)
        takes[_place(step)] = has - had
    ordered: dict[Place, Step] = {}
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
