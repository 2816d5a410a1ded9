"""Ingestion of index entries that were built elsewhere, as sorted files that RocksDB ingests as a whole.

Elsewhere means many tasks at once, as on Spark: each calls `entries_of` for its records, the entries are sorted by
family and key, and `write_sst` writes each sorted part to a file. `ingest` ingests the files, and then applies the log
beyond the plan's position, so that no change in the meantime is missed.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rocksdict import Options, SstFileWriter

from holdfast.base.errors import HoldfastError, InvalidArgument, ReadOnly
from holdfast.state import State, Transaction
from holdfast.state.rocks import RocksState
from holdfast.table.engine import TableEngine
from holdfast.table.migration.backfill import (
    FAMILIES,
    BackfillPlan,
    Entry,
    clear,
    duplicate,
    entries_of_rows,
    restricted,
    rows_of,
)
from holdfast.table.migration.errors import MigrationFailed
from holdfast.table.model.definition import describe
from holdfast.table.model.model import text_of_key
from holdfast.table.storage.row_codec import Event, Row, decode_event
from holdfast.table.storage.table_state import TableState, key_in

if TYPE_CHECKING:
    from holdfast.table.table import Table

__all__ = ["ingest", "write_sst"]

Paths = Sequence[str | os.PathLike[str]]


def write_sst(family: str, entries: Iterable[tuple[bytes, bytes]], path: str | os.PathLike[str]) -> int:
    """Write entries of one family, which are sorted by key, into a file for `ingest`; return how many.

    Without entries no file is made. One key with two values means two records with one unique value, and raises
    `MigrationFailed`; equal entries are written once.
    """
    if family not in FAMILIES:
        raise InvalidArgument(f"{family!r} is not a family of index entries: the families are {', '.join(FAMILIES)}")
    writer: SstFileWriter | None = None
    count = 0
    try:
        for key, same in groupby(entries, key=lambda entry: entry[0]):
            values = sorted({value for _, value in same})
            if len(values) > 1:
                owners = " and ".join(text_of_key(key_in(value)) for value in values)
                raise MigrationFailed(f"a value that is to be unique belongs to the records {owners}")
            if writer is None:
                writer = SstFileWriter(Options(raw_mode=True))
                writer.open(os.fspath(path))
            writer[key] = values[-1]
            count += 1
        if writer is not None:
            writer.finish()
    except HoldfastError:
        raise
    except Exception as error:
        raise InvalidArgument(f"writing {os.fspath(path)!r} failed: {error}") from error
    return count


def ingest(table: "Table[Any]", files: Mapping[str, Paths], plan: BackfillPlan) -> int:
    """Ingest files of entries into a table's state, and then the entries of records that changed after the plan.

    Returns how many records that are. Requests wait meanwhile. The table's view must not maintain the planned indexes
    yet; the caller enables them afterwards. Called again, as after a crash, it starts over. Raises `InvalidArgument` if
    the plan is not valid any more, and `MigrationFailed` if a record changed after the plan to a duplicate value.
    """
    engine = table.engine
    _check_plan(engine, plan)
    state = engine.state.store
    with engine.commits.writing():
        clear(state, plan.prefix, plan.indexes, plan.uniques)
        for family, paths in files.items():
            if family not in FAMILIES:
                raise InvalidArgument(
                    f"{family!r} is not a family of index entries: the families are {', '.join(FAMILIES)}"
                )
            if paths:
                _ingest_files(state, family, paths)
        return _follow(engine, plan)


def _check_plan(engine: TableEngine[Any], plan: BackfillPlan) -> None:
    engine.access.check_open()
    if engine.access.read_only:
        raise ReadOnly("the store was opened read-only: open it without read_only=True to ingest an index")
    if plan.table != engine.name or plan.definition != describe(engine.schema.model):
        raise InvalidArgument(
            f"this plan does not match the table {engine.name!r} as it is open now: create a new plan, and build again"
        )
    if plan.log != engine.log.id or plan.start != engine.log.start or plan.position > engine.state.position:
        raise InvalidArgument(
            f"the log of {engine.name!r} was replaced after this plan was made: build the index again"
        )
    if plan.history != engine.state.view.history:
        raise InvalidArgument(
            f"keep_all_versions of {engine.name!r} was changed after this plan was made: build the index again"
        )


def _follow(engine: TableEngine[Any], plan: BackfillPlan) -> int:
    """Replace the entries of all records that changed after the plan; return how many records."""
    touched = {record.key or b"" for record in engine.log.read(plan.position, engine.state.position)}
    if not touched:
        return 0
    events: dict[bytes, list[Event]] = {key: [] for key in touched}
    for record in engine.log.read(plan.start, plan.position):
        if record.key in events:
            events[record.key].append(decode_event(record.payload))
    state, images = engine.state.store, engine.state.view.images
    view = restricted(engine.schema.spec, images, plan.indexes, plan.uniques, history=plan.history)
    batch = state.transaction()
    for key, known in events.items():
        for family, name, value in entries_of_rows(view, key, rows_of(known)):
            if state.get(family, name) == value:
                batch.delete(family, name)
    for key in sorted(touched):
        rows = _rows(engine.state.view, key)
        _put(batch, view, key, rows, entries_of_rows(view, key, rows))
    batch.commit()
    return len(touched)


def _put(batch: Transaction, view: TableState, key: bytes, rows: list[Row], entries: list[Entry]) -> None:
    for family, name, value in entries:
        known = batch.get(family, name)
        if family == "unique" and known is not None and key_in(known) != key:
            raise MigrationFailed(duplicate(view, name, key_in(known), key, rows[-1]))
        batch.put(family, name, value)


def _rows(view: TableState, key: bytes) -> list[Row]:
    """Return the versions of a record in the state, the oldest first."""
    present = view.row(key)
    if present is None:
        return []
    rows = list(view.rows_of(key))[::-1] if view.history else []
    if not rows or rows[-1].version != present.version:
        rows.append(present)
    return rows


def _ingest_files(state: State, family: str, paths: Paths) -> None:
    """Ingest files into RocksDB: their entries are visible at once, and durable."""
    if not isinstance(state, RocksState):
        raise InvalidArgument(
            "index files can be ingested only into a state on disk: open the store with the operating system's files"
        )
    state.ingest(family, paths)
