"""The `changes` view of a table: a row for each event of its log; each task reads a share of the bytes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.base.errors import Corrupt
from holdfast.spark.arrow_schema import Fields, columns_of, model_of
from holdfast.spark.log_rows import RecordSpan, byte_strings, payloads, readable
from holdfast.spark.queue_events import portions, sequences, texts_of
from holdfast.spark.schemas import TIME, arrow_schema
from holdfast.table.model.model import Model
from holdfast.table.storage.row_codec import EventKind

__all__ = ["HARD_DELETE", "ChangeRows", "Events", "Layout", "events_of", "read_heads", "time_of_versions"]

HARD_DELETE = EventKind.HARD_DELETE.value

_HEAD = np.dtype([("kind", "u1"), ("flags", "u1"), ("count", "<u2"), ("version", "<i8"), ("created", "<i8")])
"""The head of every event, as `holdfast.table.storage.row_codec` writes it. Versions are below 2**63 until the year
2248."""
_KINDS = ["", *(kind.name.lower().replace("_", "-") for kind in EventKind)]
_LOGICAL_BITS = 20
_OWN: dict[str, dict[str, pa.DataType]] = {
    "now": {
        "key": pa.binary(),
        "version": pa.int64(),  # of its last change
        "changed_at": TIME,
        "created_at": TIME,
        "deleted": pa.bool_(),
    },
    "changes": {
        "key": pa.binary(),
        "version": pa.int64(),
        "changed_at": TIME,
        "kind": pa.string(),  # add, change, delete, undelete, hard-delete, snapshot
        "deleted": pa.bool_(),  # whether it is softly deleted after this
        "changed": pa.list_(pa.string()),  # names of fields
        "position": pa.int64(),  # in the log
    },
    "history": {
        "key": pa.binary(),
        "valid_from": TIME,
        "valid_to": TIME,  # null: until now
        "from_version": pa.int64(),
        "to_version": pa.int64(),
        "is_current": pa.bool_(),
        "deleted": pa.bool_(),
    },
}

Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Layout:
    """The columns of a view of a table: plain values, pickled for the tasks."""

    view: str
    definition: str
    """Of the model, as JSON."""
    keyring: str | None = None
    text_decimals: bool = False

    @property
    def model(self) -> type[Model]:
        """The model of the records."""
        return model_of(self.definition)

    @cached_property
    def own(self) -> dict[str, str]:
        """The view's own columns, by their names in the schema: prefixed with an underscore if a field has the name."""
        taken = {name.lower() for name in self.model.__spec__.fields}  # Spark ignores the case of names
        return {f"_{name}" if name in taken else name: name for name in _OWN[self.view]}

    @cached_property
    def schema(self) -> pa.Schema:
        """All columns: those of the view, then a column for each field."""
        own = [(name, _OWN[self.view][says]) for name, says in self.own.items()]
        columns = columns_of(self.model, opened=self.keyring is not None, text_decimals=self.text_decimals)
        return pa.schema([*own, *((column.name, column.type) for column in columns)])

    def fields(self, names: Iterable[str]) -> Fields:
        """Return a decoder of the model fields among these columns, in their order; it ignores the view's own."""
        model = self.model
        known = columns_of(model, opened=self.keyring is not None, text_decimals=self.text_decimals)
        by_name = {column.name: column for column in known}
        return Fields(model, [by_name[name] for name in names if name in by_name], self.keyring)


class Heads(NamedTuple):
    """The heads of events, as columns."""

    kind: Numbers
    deleted: Numbers
    version: Numbers
    created: Numbers
    counts: Numbers
    """How many fields each changed."""
    starts: Numbers
    """Where the numbers of those fields begin in `data`."""
    ends: Numbers
    """Where each event ends."""
    data: Numbers


@dataclass(slots=True)
class Events:
    """Events of a table, as columns."""

    keys: pa.Array
    positions: Numbers
    payloads: pa.Array
    heads: Heads

    def take(self, chosen: Numbers) -> "Events":
        """Return the events at these positions, or where a mask is true."""
        if chosen.dtype == bool:
            chosen = np.flatnonzero(chosen)
        places = pa.array(chosen)
        taken = self.payloads.take(places)
        return Events(self.keys.take(places), self.positions[chosen], taken, read_heads(taken))

    def images(self) -> list[bytes]:
        """Return the record after each event; empty after a hard delete."""
        heads = self.heads
        view = memoryview(heads.data.data)
        starts = (heads.starts + 2 * heads.counts).tolist()
        return [bytes(view[start:end]) for start, end in zip(starts, heads.ends.tolist(), strict=True)]

    def __len__(self) -> int:
        return len(self.keys)


def read_heads(payloads: pa.Array) -> Heads:
    """Decode the heads of all events at once."""
    wide = pa.types.is_large_binary(payloads.type)
    _, offsets, content = payloads.buffers()
    every: Numbers = np.frombuffer(offsets, np.int64 if wide else np.int32)
    bounds: Numbers = every[payloads.offset : payloads.offset + len(payloads) + 1].astype(np.int64)
    data = np.frombuffer(content, np.uint8) if content is not None else np.zeros(0, np.uint8)
    starts, ends = bounds[:-1], bounds[1:]
    size = _HEAD.itemsize
    if len(starts) and int((ends - starts).min()) < size:
        raise Corrupt("a record of this log is too short for a change of a table")
    if not len(starts):
        found = np.zeros(0, _HEAD)
    else:
        windows = np.lib.stride_tricks.sliding_window_view(data, size)
        found = windows[starts].view(_HEAD).reshape(len(starts))
    counts = found["count"].astype(np.int64)
    if (starts + size + 2 * counts > ends).any() or (found["kind"] < 1).any() or (found["kind"] >= len(_KINDS)).any():
        raise Corrupt("a record of this log is not a change of a table")
    return Heads(
        found["kind"],
        (found["flags"] & 1).astype(bool),
        found["version"].astype(np.int64),
        found["created"].astype(np.int64),
        counts,
        starts + size,
        ends,
        data,
    )


def events_of(pieces: list[RecordSpan], keys: frozenset[bytes] | None) -> Events:
    """Return the events in these records of a table's log, without those of damaged records."""
    names = pa.concat_arrays([byte_strings("key", *piece) for piece in pieces])
    values = pa.concat_arrays([payloads(*piece) for piece in pieces])
    names = pc.fill_null(names, b"") if names.null_count else names
    wanted: Numbers | None = None
    if any(block.bad for block, _, _ in pieces):
        wanted = np.concatenate([readable(*piece) for piece in pieces])
    if keys is not None:
        fits = pc.is_in(names, value_set=pa.array(sorted(keys), pa.binary())).to_numpy(zero_copy_only=False)
        wanted = fits if wanted is None else wanted & fits
    positions = sequences(pieces)
    if wanted is not None and not wanted.all():
        chosen = pa.array(np.flatnonzero(wanted))
        names, values, positions = names.take(chosen), values.take(chosen), positions[wanted]
    return Events(names, positions, values, read_heads(values))


def time_of_versions(versions: Numbers, absent: Numbers | None = None) -> pa.Array:
    """Return the times of versions, to the millisecond."""
    micros = (versions >> _LOGICAL_BITS) * 1000
    return pa.array(micros, mask=absent).view(TIME)


class ChangeRows:
    """Turns a table's log into a row for each event."""

    def __init__(self, layout: Layout, columns: list[str], keys: frozenset[bytes] | None = None) -> None:
        self.layout = layout
        self.columns = columns
        self.keys = keys
        """Only events of these records; None: all."""
        self.schema = arrow_schema(layout.schema, columns)

    def gather(self, pieces: Iterable[RecordSpan]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all these records; many small blocks become few batches."""
        own = self.layout.own
        named = [name for name in self.columns if name not in own]
        fields = self.layout.fields(named) if named else None
        for portion in portions(pieces):
            events = events_of(portion, self.keys)
            arrays = (
                dict(zip(named, fields.arrays(events.keys.to_pylist(), events.images()), strict=True)) if fields else {}
            )
            yield pa.RecordBatch.from_arrays(
                [arrays[name] if name in arrays else self._own(own[name], events) for name in self.columns],
                schema=self.schema,
            )

    def _own(self, says: str, events: Events) -> pa.Array:
        heads = events.heads
        match says:
            case "key":
                return events.keys
            case "version":
                return pa.array(heads.version)
            case "changed_at":
                return time_of_versions(heads.version)
            case "kind":
                return texts_of(_KINDS, heads.kind.astype(np.int64))
            case "deleted":
                return pa.array(heads.deleted)
            case "position":
                return pa.array(events.positions)
            case _:
                return self._changed(heads)

    def _changed(self, heads: Heads) -> pa.Array:
        """Return the names of the fields that each event changed; a removed field has only its number."""
        ends = np.concatenate([[0], np.cumsum(heads.counts)])
        within = np.arange(ends[-1]) - np.repeat(ends[:-1], heads.counts)
        places = np.repeat(heads.starts, heads.counts) + 2 * within
        numbers = heads.data[places].astype(np.int64) | heads.data[places + 1].astype(np.int64) << 8
        known, which = np.unique(numbers, return_inverse=True)
        specs = self.layout.model.__spec__.numbers
        names = [specs[number].name if number in specs else str(number) for number in known.tolist()]
        words = pa.array(names, pa.string()).take(pa.array(which))
        return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), words)
