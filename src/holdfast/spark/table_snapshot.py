"""The `now` and `history` views of a table: each task folds the events of its share of the keys into rows.

All events of a record must be in one task, and a source has no shuffle: so each task reads the whole log. It skips
small blocks without a key of its share, keeps only the events of its share, and decodes only records that make a row.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.log.block import Block
from holdfast.spark.log_rows import BATCH_ROWS, RecordSpan
from holdfast.spark.queue_events import portions
from holdfast.spark.schemas import arrow_schema
from holdfast.spark.table_changes import HARD_DELETE, Events, Layout, events_of, read_heads, time_of_versions

__all__ = ["Part", "RecordRows", "Selection"]

_FOLD_ROWS = 4 * BATCH_ROWS
"""Events that are gathered before obsolete ones are dropped."""
_FEW = 4
"""Blocks with at most this many records for each task are first checked for keys of this part."""

Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Part:
    """One of `of` parts of all keys."""

    number: int
    of: int

    def mask(self, keys: pa.Array) -> Numbers:
        """Return which of these keys are in it."""
        if self.of == 1:
            return np.ones(len(keys), bool)
        hashes = np.fromiter(map(crc32, keys.to_pylist()), np.uint32, len(keys))
        ours: Numbers = hashes % self.of == self.number
        return ours

    def touches(self, block: Block) -> bool:
        """Whether a block, of which only the columns were read, has a key in this part."""
        if self.of == 1 or block.count > _FEW * self.of:
            return True
        return any(crc32(key or b"") % self.of == self.number for key in block.byte_strings("key"))


@dataclass(frozen=True, slots=True)
class Selection:
    """The version to show, and whether to include deleted records."""

    as_of: int | None = None
    """Up to this version, itself included; None: as they are now."""
    include_deleted: bool = False


class RecordRows:
    """Turns events into a row for each record, or for each version of a record."""

    def __init__(
        self, layout: Layout, columns: list[str], selection: Selection, part: Part, keys: frozenset[bytes] | None = None
    ) -> None:
        self.layout = layout
        self.columns = columns
        self.selection = selection
        self.part = part
        self.keys = keys
        """Only these records; None: all."""
        self.schema = arrow_schema(layout.schema, columns)

    def look_back(self, as_of: int | None) -> None:
        """Set the version up to which records are shown."""
        self.selection = replace(self.selection, as_of=as_of)

    def gather(self, pieces: Iterable[RecordSpan]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all records with events among these and keys in this part."""
        return self.fold(self._ours(pieces))

    def _ours(self, pieces: Iterable[RecordSpan]) -> Iterator[Events]:
        for portion in portions(pieces):
            events = events_of(portion, self.keys)
            yield events.take(self.part.mask(events.keys))

    def fold(self, portions: Iterable[Events]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that result from events: all events of their records, each record's in the log's order."""
        held: list[Events] = []
        count, enough = 0, _FOLD_ROWS
        present = self.layout.view == "now"
        for events in portions:
            if self.selection.as_of is not None:
                # A hard delete removes the history too, also for reads as of a time before it.
                heads = events.heads
                events = events.take((heads.version <= self.selection.as_of) | (heads.kind == HARD_DELETE))
            held.append(events)
            count += len(events)
            if present and count >= enough:
                held = [_last(_joined(held))]
                count = len(held[0])
                enough = 2 * count + _FOLD_ROWS
        if not count:
            return
        if present:
            events = _last(_joined(held))
            shown = events.heads.kind != HARD_DELETE
            if not self.selection.include_deleted:
                shown &= ~events.heads.deleted
            yield from self._rows(events, np.flatnonzero(shown), None)
        else:
            yield from self._rows(*_versions(_joined(held)))

    def _rows(self, events: Events, chosen: Numbers, until: Numbers | None) -> Iterator[pa.RecordBatch]:
        own = self.layout.own
        named = [name for name in self.columns if name not in own]
        fields = self.layout.fields(named) if named else None
        for at in range(0, len(chosen), BATCH_ROWS):
            some = events.take(chosen[at : at + BATCH_ROWS])
            ends = None if until is None else until[at : at + BATCH_ROWS]
            arrays: dict[str, pa.Array] = {}
            if fields is not None:
                found = fields.arrays(some.keys.to_pylist(), some.images())
                arrays = dict(zip(named, found, strict=True))
            yield pa.RecordBatch.from_arrays(
                [arrays[name] if name in arrays else _own(own[name], some, ends) for name in self.columns],
                schema=self.schema,
            )


def _own(says: str, events: Events, until: Numbers | None) -> pa.Array:
    heads = events.heads
    ends = np.full(len(events), -1) if until is None else until
    match says:
        case "key":
            return events.keys
        case "version" | "from_version":
            return pa.array(heads.version)
        case "changed_at" | "valid_from":
            return time_of_versions(heads.version)
        case "created_at":
            return time_of_versions(heads.created)
        case "to_version":
            return pa.array(ends, mask=ends < 0)
        case "valid_to":
            return time_of_versions(ends, ends < 0)
        case "is_current":
            return pa.array(ends < 0)
        case _:
            return pa.array(heads.deleted)


def _joined(held: list[Events]) -> Events:
    if len(held) == 1:
        return held[0]
    keys = pa.concat_arrays([events.keys for events in held])
    # The data of one task may exceed the range of four-byte offsets.
    payloads = pa.concat_arrays([events.payloads.cast(pa.large_binary()) for events in held])
    return Events(keys, np.concatenate([events.positions for events in held]), payloads, read_heads(payloads))


def _last(events: Events) -> Events:
    """Return the last event of each record."""
    table = pa.table({"key": events.keys, "position": events.positions})
    last = table.group_by("key").aggregate([("position", "max")]).column("position_max").to_numpy()
    if len(last) == len(events):
        return events
    order = np.argsort(events.positions, kind="stable")
    return events.take(order[np.searchsorted(events.positions, np.sort(last), sorter=order)])


def _versions(events: Events) -> tuple[Events, Numbers, Numbers]:
    """Return the events, the indices of those that made a retained version, and the version that ended each, or -1."""
    table = pa.table({"key": events.keys, "position": events.positions})
    order = pc.sort_indices(table, [("key", "ascending"), ("position", "ascending")]).to_numpy()
    codes = events.keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)[order]
    kind, version = events.heads.kind[order], events.heads.version[order]
    places = np.arange(len(order))
    begins = np.flatnonzero(np.concatenate([[True], codes[1:] != codes[:-1]]))
    sizes = np.diff(np.append(begins, len(order)))
    # A hard delete removes all versions before it.
    gone = np.repeat(np.maximum.reduceat(np.where(kind == HARD_DELETE, places, -1), begins), sizes)
    kept = np.flatnonzero(places > gone)
    codes, version = codes[kept], version[kept]
    same = np.append(codes[1:] == codes[:-1], False)
    following = np.append(version[1:], -1)
    until = np.where(same, following, -1)
    ended = until != version  # of several events of one request, only the last is kept
    return events, order[kept][ended], until[ended]
