"""Backfill of index entries and unique values for records that existed before, history included.

Only `TableState.apply` defines what an entry is: here the history of a record is applied to a view that has only the
indexes and unique values to fill, and its changes of the state are collected.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.base.errors import InvalidArgument
from holdfast.state import State, Transaction
from holdfast.state.empty import EmptyState
from holdfast.state.state import Layer, Reads
from holdfast.table.engine import TableEngine
from holdfast.table.migration.compatibility import IndexWork
from holdfast.table.migration.lenient_decoder import lenient_images
from holdfast.table.model.definition import describe, model_from
from holdfast.table.model.indexes import Index
from holdfast.table.model.model import ModelSpec, text_of_key
from holdfast.table.model.types import HIDDEN
from holdfast.table.storage.deferred_unique import only_uniques, without_uniques
from holdfast.table.storage.row_codec import Event, EventKind, Images, Row, decode_row, plain_images
from holdfast.table.storage.table_state import TableState, after, key_in, number_of, past_in, prefix_of, released

if TYPE_CHECKING:
    from holdfast.table.table import Table

__all__ = [
    "FAMILIES",
    "BackfillPlan",
    "Entry",
    "Filling",
    "active",
    "clear",
    "duplicate",
    "entries_of",
    "entries_of_rows",
    "plan_of",
    "ranges_of",
    "restricted",
    "rows_of",
    "turn_on",
]

FAMILIES = ("index", "historic_index", "unique")
"""The families of backfilled entries: unique values have no history."""
Entry = tuple[str, bytes, bytes]
"""Family, key and value."""
_BATCH_ROWS = 2000
"""Versions of records that are processed in one batch."""
_REASONS = 20


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """The indexes and unique values to build, and from which part of the log: plain values to send to remote tasks.

    The tasks read the log from `start` up to `position`, bring all events of a record together, in order, and call
    `entries_of`.
    """

    table: str
    definition: dict[str, Any]
    """The new model, as `describe` gives it."""
    indexes: tuple[str, ...]
    """By the text of their parts."""
    uniques: tuple[int, ...]
    """Numbers of fields."""
    history: bool
    log: bytes
    """The log's id."""
    start: int
    position: int
    prefix: bytes
    """The prefix of all keys of the table."""
    families: tuple[str, ...] = field(default=FAMILIES)
    """The kinds of entries that will be built."""

    def to_dict(self) -> dict[str, Any]:
        """Return the plan in JSON form."""
        return {**asdict(self), "log": self.log.hex(), "prefix": self.prefix.hex()}

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> "BackfillPlan":
        """Return the plan that `to_dict` wrote."""
        values: Any = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        values |= {"log": bytes.fromhex(given["log"]), "prefix": bytes.fromhex(given["prefix"])}
        return cls(**values)


def plan_of(table: "Table[Any]", work: IndexWork) -> BackfillPlan:
    """Return the plan for a table, up to the log position that its state includes now."""
    engine = table.engine
    view, log = engine.state.view, engine.log
    families = [family for family in FAMILIES if view.history or not family.startswith("historic")]
    if not work.build_unique:
        families = [family for family in families if not family.endswith("unique")]
    return BackfillPlan(
        engine.name,
        describe(engine.schema.model),
        work.build,
        work.build_unique,
        view.history,
        log.id,
        log.start,
        engine.state.position,
        view.prefix,
        tuple(families),
    )


def entries_of(plan: BackfillPlan, key: bytes, events: Iterable[Event], images: Images | None = None) -> list[Entry]:
    """Return the sorted entries that result from the events of one record, which are in the order of the log.

    A pure function. `images` are needed where a model has sensitive fields.
    """
    definition = msgspec.json.encode(plan.definition)
    view = _view_of_plan(definition, plan.indexes, plan.uniques, plan.history, plan.prefix)
    if images is not None:
        view = restricted(view.spec, images, plan.indexes, plan.uniques, history=plan.history)
    return entries_of_rows(view, key, rows_of(events))


def rows_of(events: Iterable[Event]) -> list[Row]:
    """Return the versions of a record that result from its events, the oldest first; none after a hard delete."""
    rows: list[Row] = []
    for event in events:
        if event.kind is EventKind.HARD_DELETE:
            rows = []
            continue
        row = Row(event.created, event.version, event.deleted, {}, event.image)
        if rows and rows[-1].version == row.version:  # of several events of one request, only the last is kept
            rows.pop()
        rows.append(row)
    return rows


def entries_of_rows(view: TableState, key: bytes, rows: Sequence[Row]) -> list[Entry]:
    """Return the sorted entries of a record with these versions, the oldest first.

    Of values that become unique, only the present ones: in the past several records may have had the same value.
    """
    if not view.uniques:
        return _entries(view, key, rows)
    return sorted([*_entries(without_uniques(view), key, rows), *_entries(only_uniques(view), key, rows[-1:])])


def _entries(view: TableState, key: bytes, rows: Sequence[Row]) -> list[Entry]:
    gathered = _Gathered()
    batch = Transaction(gathered)
    old, before = None, None
    for row in rows:
        record = view.images.decode(key, row.image)
        kind = EventKind.ADD if old is None else EventKind.CHANGE
        event = Event(kind, row.version, row.created, row.deleted, (), row.image)
        view.apply(batch, key, event, old, before, record)
        old, before = row, record
    batch.commit()
    found = [
        (family, name, value)
        for layer in gathered.layers
        for family, points in layer.points.items()
        if family in FAMILIES
        for name, value in points.items()
        if value is not None
    ]
    return sorted(found)


class _Gathered:
    """An empty state for a transaction, whose changes it keeps and does not apply."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []

    def get(self, family: str, key: bytes) -> bytes | None:
        return None

    def apply(self, reads: Reads, layers: Sequence[Layer], sync: bool) -> None:
        self.layers += layers


@lru_cache(16)
def _view_of_plan(
    definition: bytes, indexes: tuple[str, ...], uniques: tuple[int, ...], history: bool, prefix: bytes
) -> TableState:
    model = model_from(msgspec.json.decode(definition))
    if prefix != prefix_of(model.__spec__.id or 0):
        raise InvalidArgument(f"this plan's prefix is not that of {model.__name__}: create the plan with plan_of")
    return restricted(model.__spec__, lenient_images(plain_images(model), model), indexes, uniques, history=history)


def restricted(
    spec: ModelSpec, images: Images, indexes: Sequence[str], uniques: Sequence[int], *, history: bool
) -> TableState:
    """Return a view with only the indexes and unique values to fill."""
    view = TableState(EmptyState(Path("nowhere")), spec, images, history=history, updates=False)
    view.set_indexes([Index.parse(canonical) for canonical in indexes])
    view.uniques = [(one, prefix) for one, prefix in view.uniques if one.number in uniques]
    return view


def ranges_of(prefix: bytes, indexes: Iterable[str], uniques: Iterable[int]) -> list[tuple[str, bytes, bytes]]:
    """Return family, start and stop of all entries of indexes and unique fields."""
    ranges = []
    for canonical in indexes:
        name = prefix + Index.parse(canonical).id
        ranges += [(family, name, after(name)) for family in ("index", "historic_index")]
    for number in uniques:
        name = prefix + number.to_bytes(2, "big")
        ranges += [(family, name, after(name)) for family in ("unique", "historic_unique")]
        free = released(name)
        ranges += [(family, free, after(free)) for family in ("index", "historic_index")]
    return ranges


def clear(state: State, prefix: bytes, indexes: Iterable[str], uniques: Iterable[int]) -> None:
    """Delete all entries of indexes and unique fields."""
    batch = state.transaction()
    for family, start, stop in ranges_of(prefix, indexes, uniques):
        batch.delete_range(family, start, stop)
    batch.commit()


class Filling:
    """Fills indexes and unique values of one table, in batches. Nothing else may write to the table meanwhile."""

    def __init__(self, engine: TableEngine[Any], work: IndexWork) -> None:
        view = engine.state.view
        self._state = view.state
        self._view = restricted(engine.schema.spec, view.images, work.build, work.build_unique, history=view.history)
        self._prefix = view.prefix
        self._work = work
        self.duplicates: list[str] = []
        """Sentences about values that should be unique and are not."""

    def begin(self) -> int:
        """Clear the entries of an earlier attempt; return how many records there are."""
        clear(self._state, self._prefix, self._work.build, self._work.build_unique)
        return sum(1 for _ in self._state.scan("table", self._prefix, after(self._prefix)))

    def fill(self, cursor: bytes | None, limit: int = _BATCH_ROWS) -> tuple[bytes | None, int]:
        """Write the entries of the next records; return the last key, None at the end, and how many records.

        A value that another record has is not written, and is added to `duplicates`.
        """
        start = self._prefix + (b"" if cursor is None else cursor + b"\0")
        batch = self._state.transaction()
        owners: dict[bytes, bytes] = {}
        count = seen = 0
        last: bytes | None = None
        for key, rows in self._histories(start):
            for family, name, value in entries_of_rows(self._view, key, rows):
                if family == "unique" and not self._own(name, key, rows[-1], owners):
                    continue
                batch.put(family, name, value)
            count, seen, last = count + 1, seen + len(rows), key
            if seen >= limit:
                break
        else:
            last = None
        batch.commit()
        return last, count

    def _histories(self, start: bytes) -> Iterator[tuple[bytes, list[Row]]]:
        """Return each record's key and versions, the oldest first."""
        stop = after(self._prefix)
        size = len(self._prefix)
        past: Iterator[tuple[bytes, list[Row]]] = iter(())
        if self._view.history:
            found = groupby(self._state.scan("historic_table", start, stop), key=lambda entry: entry[0][:-8])
            past = ((name, [decode_row(past_in(raw)) for _, raw in entries]) for name, entries in found)
        name, rows = next(past, (None, []))
        for present, raw in self._state.scan("table", start, stop):
            row = decode_row(raw)
            while name is not None and name < present:  # left by a deleted record
                name, rows = next(past, (None, []))
            versions: list[Row] = []
            if name == present:
                versions = rows[::-1]
                name, rows = next(past, (None, []))
            if not versions or versions[-1].version != row.version:  # stored before the history was kept
                versions.append(row)
            yield present[size:], versions

    def _own(self, name: bytes, key: bytes, row: Row, owners: dict[bytes, bytes]) -> bool:
        """Return whether a record may have a unique value; if another record has it, note the duplicate."""
        raw = self._state.get("unique", name)
        owner = owners.setdefault(name, key if raw is None else key_in(raw))
        if owner == key:
            return True
        if len(self.duplicates) < _REASONS:
            self.duplicates.append(duplicate(self._view, name, owner, key, row))
        return False


def duplicate(view: TableState, name: bytes, owner: bytes, key: bytes, row: Row) -> str:
    """Return a sentence about a value that should be unique and is not."""
    record = view.images.decode(key, row.image)
    field = next(one for one, unique in view.unique_keys(record) if unique == name)
    value = HIDDEN if field.sensitive else repr(getattr(record, field.name))
    both = f"{text_of_key(owner)} and {text_of_key(key)}"
    return f"field {field.name!r} is to be unique, but the records {both} both have {value}"


def turn_on(engine: TableEngine[Any], work: IndexWork) -> None:
    """Enable the filled indexes and unique fields. Nothing may have written to the table since they were filled."""
    active(engine, None)
    since = dict.fromkeys(work.build_unique, engine.state.last_version)
    schema = engine.schema
    schema.past = replace(schema.past, unique_since={**schema.past.unique_since, **since})


def active(engine: TableEngine[Any], work: IndexWork | None) -> None:
    """Let a table maintain and use all its indexes and unique fields, except those that `work` is to build."""
    build = set() if work is None else set(work.build)
    unique = set() if work is None else set(work.build_unique)
    spec, view = engine.schema.spec, engine.state.view
    if build or unique:
        spec = replace(
            spec,
            indexes=tuple(index for index in spec.indexes if index.canonical not in build),
            fields={
                name: replace(one, unique=False) if one.number in unique else one for name, one in spec.fields.items()
            },
        )
    view.set_indexes(spec.indexes)
    view.uniques = [(one, view.prefix + number_of(one)) for one in spec.fields.values() if one.unique]
    engine.schema.plannable = spec
