"""Replication from another store: its changes are applied at their own versions, each once, never over newer ones."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from holdfast.base.clock import Clock
from holdfast.base.errors import HoldfastError, InvalidArgument
from holdfast.base.hlc import VERSION_MAX, HybridLogicalClock, check_not_ahead, version_before
from holdfast.log.record import Record as LogRecord
from holdfast.table.errors import ValidationFailed
from holdfast.table.live.sync_updates import Addition, Alteration, Removal
from holdfast.table.model.differences import field_in
from holdfast.table.model.model import Model, copy_of
from holdfast.table.model.object_access import same
from holdfast.table.model.validation import validate
from holdfast.table.operations import Done, NoRecord, Outcome
from holdfast.table.query.record_reader import Point
from holdfast.table.record import Record
from holdfast.table.storage.applied_state import AppliedState
from holdfast.table.storage.commit_pipeline import CommitPipeline
from holdfast.table.storage.row_codec import EventKind, Row, decode_event
from holdfast.table.storage.staging import Staging
from holdfast.table.storage.table_schema import TableSchema
from holdfast.table.storage.table_state import after

__all__ = ["REPLICATED_AT_ONCE", "Replicator"]

M = TypeVar("M", bound=Model)

REPLICATED_AT_ONCE = 1000
"""Updates that are applied as one request; more where the last ones have the same version."""


class _Arrival(NamedTuple):
    """An update from another store, resolved against this one."""

    key: bytes
    version: int
    created: int
    """The version that added the record; 0 if it is not known. It differs when a deleted key is added again."""
    deleted: bool
    hard: bool = False
    record: Any = None
    """The whole record afterwards; None for a delete."""
    names: frozenset[str] | None = None
    """The fields that were changed; None for all."""
    fields: frozenset[int] = frozenset()
    """Numbers of the fields that the event wrote; others differ too if an earlier event is missing here."""
    sequence: int = -1
    """Its position in the log that it comes from; records of a log are not validated again. -1 if from no log."""


class Replicator(Generic[M]):
    """Applies changes of another store to one table. Threads: any."""

    def __init__(
        self,
        schema: TableSchema[M],
        state: AppliedState,
        commits: CommitPipeline,
        versions: HybridLogicalClock,
        clock: Clock,
    ) -> None:
        self._schema = schema
        self._state = state
        self._commits = commits
        self._versions = versions
        self._clock = clock

    def apply(self, updates: "Iterable[Addition[M] | Alteration[M] | Removal | LogRecord]") -> list[Outcome]:
        """Apply updates of the same table of another store, or records of its log, at the versions they have there.

        An update is ignored (`Done` with `changed=False`) if the record here has its version or a newer one, or was
        hard-deleted at one. So updates can be repeated. Records of the log and additions hold the whole record, and can
        come in any order. An `Alteration` of an existing record changes only the fields that it names: alterations
        must come in the order of their versions. The outcome of an update that breaks a rule, as a unique value that
        another record has, is its error; the others are applied.

        Updates are written about 1000 at a time. Raises `InvalidArgument` in a transaction, for what is not an update,
        and for a version more than an hour ahead: earlier groups are applied then.
        """
        self._commits.check_writable()
        if self._commits.join([]) is not None:
            raise InvalidArgument("updates keep their own versions: apply them outside of the transaction")
        arrivals = [self._arrival(update) for update in updates]
        outcomes: list[Outcome] = []
        for together in _together(arrivals):
            outcomes += self._apply_group(together)
        return outcomes

    def compact_tombstones(self, up_to: Point) -> int:
        """Delete the tombstones of keys that were hard-deleted up to and including a version; return how many.

        Updates from before that version must not be applied afterwards: they would add the records again.
        """
        self._commits.check_writable()
        version = version_before(up_to, "up_to") or 0
        store, prefix = self._state.store, self._state.view.prefix
        with self._commits.apply_lock:
            batch = store.transaction()
            old = [
                name for name, raw in store.scan("keys", prefix, after(prefix)) if int.from_bytes(raw, "big") <= version
            ]
            for name in old:
                batch.delete("keys", name)
            batch.commit()
        return len(old)

    def _apply_group(self, arrivals: Sequence[_Arrival]) -> list[Outcome]:
        latest = max(arrival.version for arrival in arrivals)
        check_not_ahead(latest, self._clock)

        def attempt() -> tuple[Staging, list[Outcome]]:
            self._versions.admit(latest)
            staging = self._commits.staging(0, drops_undone=False)  # an event has the version of the other store
            incoming = _Incoming(staging, self._schema, self._state)
            outcomes = [incoming.take(arrival) for arrival in arrivals]
            # Not the version of a change, but one above all versions in the state, as those of pending commits are.
            staging.version = self._versions.last
            return staging, outcomes

        return self._commits.commit(attempt)

    def _arrival(self, update: Any) -> _Arrival:
        match update:
            case Addition(record):
                return self._of_record(record, None)
            case Alteration(record, changes):
                return self._of_record(record, frozenset(map(field_in, changes)))
            case Removal(key, "hard-delete", version):
                return _Arrival(_key(key), _version(version), version, True, True)
            case Removal(key, "soft-delete", version):
                return _Arrival(_key(key), _version(version), 0, True)
            case Removal():
                raise InvalidArgument("a Removal with the reason not-in-range is not a deletion: leave it out")
            case LogRecord():
                return self._of_log(update)
        raise InvalidArgument(
            "an update must be an Addition, Alteration or Removal, or a record of a table's log, not "
            + type(update).__name__
        )

    def _of_record(self, record: Record[M], names: frozenset[str] | None) -> _Arrival:
        if not isinstance(record.value, self._schema.model):
            raise InvalidArgument(
                f"a record of this table must be a {self._schema.model.__name__}, not {type(record.value).__name__}"
            )
        created = _version(record.created)
        return _Arrival(_key(record.key), _version(record.version), created, record.deleted, False, record.value, names)

    def _of_log(self, record: LogRecord) -> _Arrival:
        event = decode_event(record.payload)
        key = _key(record.key)
        if event.kind is EventKind.HARD_DELETE:
            return _Arrival(key, event.version, event.created, True, True, sequence=record.sequence)
        # The whole record, and not only the fields that this event changed: earlier events may arrive late.
        value = self._state.view.images.decode(key, event.image)
        return _Arrival(
            key,
            event.version,
            event.created,
            event.deleted,
            record=value,
            fields=frozenset(event.fields),
            sequence=record.sequence,
        )


class _Incoming:
    """Stages updates from another store."""

    def __init__(self, staging: Staging, schema: TableSchema[Any], state: AppliedState) -> None:
        self._staging = staging
        self._schema = schema
        self._view = state.view
        self._graves: dict[bytes, int] = {}
        """Keys that these updates hard-deleted, and at which version."""
        self._begun: dict[bytes, int] = {}
        """Keys of which these updates changed something, and the log position of the last one."""

    def take(self, arrival: _Arrival) -> Outcome:
        """Stage one update; return its outcome, or the error if it is invalid. Raises `Busy`."""
        try:
            return self._take(arrival)
        except HoldfastError as error:
            return error

    def _take(self, arrival: _Arrival) -> Done:
        key = arrival.key
        row, before = self._staging.record_state(key)
        last = self._buried(key) if row is None else row.version
        if arrival.version < last or (arrival.version == last and not self._goes_on(arrival, row)):
            return Done(key, last, changed=False)
        self._staging.version, self._begun[key] = arrival.version, arrival.sequence
        if arrival.hard:
            self._bury(key, arrival.created if row is None else row.created)
        elif row is not None and arrival.created > row.created:
            # The key was hard-deleted and added again there: the hard delete of our record may arrive later or never.
            self._staging.version = max(arrival.created, row.version)
            self._bury(key, row.created)
            self._staging.version = arrival.version
            self._new(arrival)
        elif row is None:
            self._new(arrival)
        else:
            record = self._merged(arrival, before)
            fields = tuple(
                field.number
                for name, field in self._schema.spec.fields.items()
                if field.number in arrival.fields or not same(field.type, getattr(record, name), getattr(before, name))
            )
            if not arrival.deleted:
                self._staging.check_uniques(key, record)
            kind = EventKind.CHANGE
            if not fields and arrival.deleted != row.deleted:
                kind = EventKind.DELETE if arrival.deleted else EventKind.UNDELETE
            self._staging.stage(key, kind, row.created, arrival.deleted, fields, record)
        return Done(key, arrival.version)

    def _bury(self, key: bytes, created: int) -> None:
        """Stage the hard delete of a record at the staging's version."""
        self._graves[key] = self._staging.version
        self._staging.forget(key)
        self._staging.stage(key, EventKind.HARD_DELETE, created, True, (), None)

    def _goes_on(self, arrival: _Arrival, row: Row | None) -> bool:
        """Return whether an update with the version that the record has here is a further event of that version.

        Such as when one request hard-deleted a record and added it again, or in a log from the time when each operation
        of a request was an event of its own.
        """
        if row is None and arrival.created == arrival.version and not arrival.hard:
            return True
        return arrival.sequence > self._begun.get(arrival.key, arrival.sequence)

    def _new(self, arrival: _Arrival) -> None:
        key, record = arrival.key, arrival.record
        if record is None:
            raise NoRecord(f"there is no {self._schema.model.__name__} with this key to soft-delete: add it first", key)
        self._check(arrival, record)
        if not arrival.deleted:
            self._staging.check_uniques(key, record)
        self._staging.stage(key, EventKind.ADD, arrival.created, arrival.deleted, (), copy_of(record))

    def _merged(self, arrival: _Arrival, before: Any) -> Any:
        """Return the new value of a record that exists here, validated unless it comes from a log."""
        if arrival.record is None:
            return before
        given = copy_of(arrival.record)
        if arrival.names is None:
            record = given
        else:
            record = copy_of(before)
            for name in arrival.names:
                if name in self._schema.spec.fields:
                    setattr(record, name, getattr(given, name))
        self._check(arrival, record)
        return record

    def _check(self, arrival: _Arrival, record: Any) -> None:
        self._schema.layout.check(arrival.key, record)
        if arrival.sequence < 0 and (violations := validate(record)):
            raise ValidationFailed(self._schema.model.__name__, violations)

    def _buried(self, key: bytes) -> int:
        """Return the version of a key's tombstone; 0 if it has none."""
        version = self._graves.get(key)
        return version if version is not None else self._view.tombstone(key) or 0


def _together(arrivals: Iterable[_Arrival]) -> Iterator[list[_Arrival]]:
    """Group updates into requests.

    A hard delete begins a new group if the current one touches its key: earlier changes must be in the state. So does
    a record that was added again under the same key, which implies a hard delete.
    """
    together: list[_Arrival] = []
    lives: dict[bytes, int] = {}
    for arrival in arrivals:
        whole = not together or together[-1].version != arrival.version
        ends = arrival.key in lives and (arrival.hard or arrival.created > lives[arrival.key])
        if (whole and len(together) >= REPLICATED_AT_ONCE) or ends:
            yield together
            together, lives = [], {}
        together.append(arrival)
        lives[arrival.key] = VERSION_MAX if arrival.hard else max(arrival.created, lives.get(arrival.key, 0))
    if together:
        yield together


def _key(key: Any) -> bytes:
    if not isinstance(key, bytes):
        raise InvalidArgument(f"the key of a record must be bytes, not {type(key).__name__}")
    return key


def _version(version: Any) -> int:
    if type(version) is not int or not 0 < version < VERSION_MAX:
        raise InvalidArgument(f"the version of an update must be an int above 0, not {version!r}")
    return int(version)
