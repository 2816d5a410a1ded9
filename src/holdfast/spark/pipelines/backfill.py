"""Builds a new index of a large table: Spark computes its entries from the log, as sorted files.

    holdfast pipeline backfill --data data --table Account --index "surname"

This opens the store for writing, so no other process may have it open for writing. A program that has, and whose model
has the index, calls `migrate(spark, store, "data", Account, "files")` instead of `store.table(Account)`.

Changes that are logged while Spark works are applied to the index at the end.
"""

import tempfile
import uuid
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby, islice
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

import holdfast
from holdfast.base.errors import InvalidArgument
from holdfast.base.paths import local_path
from holdfast.spark.arrow_schema import model_of
from holdfast.spark.pipelines import Result
from holdfast.spark.pipelines.output_folder import make_private
from holdfast.spark.schemas import ddl
from holdfast.spark.shuffles import partitions_for
from holdfast.spark.store_access import StoreAccess
from holdfast.table.migration.backfill import BackfillPlan, entries_of_rows, restricted, rows_of
from holdfast.table.migration.bulk_ingest import write_sst
from holdfast.table.migration.lenient_decoder import lenient_images
from holdfast.table.migration.phases import Migration
from holdfast.table.model.definition import model_from
from holdfast.table.model.indexes import Index
from holdfast.table.model.model import Model
from holdfast.table.storage.field_encryption import sealed_images
from holdfast.table.storage.keyring import Keyring
from holdfast.table.storage.row_codec import decode_event, plain_images
from holdfast.table.storage.table_state import TableState
from holdfast.typed_options import TableOptions

__all__ = ["build", "entries", "events", "migrate", "run"]

_ENTRIES = pa.schema([("family", pa.string()), ("key", pa.binary()), ("value", pa.binary())])
_FILES = pa.schema([("family", pa.string()), ("path", pa.string()), ("entries", pa.int64())])
_BATCH = 10_000
EVENTS_A_TASK = 50_000
"""Events that one task of Spark reads."""

Entry = tuple[str, bytes, bytes]


def run(
    spark: SparkSession,
    data: str,
    *,
    table: Annotated[str, "The table."],
    index: Annotated[str, "The parts of the new index, such as surname or -opened,name."],
    name: Annotated[str | None, "The name of the index; default: its parts."] = None,
    keyring: Annotated[str | None, "The keyring of a table with sensitive fields."] = None,
    files: Annotated[
        str | None, "A folder that all tasks can write to; default: a temporary one on this machine."
    ] = None,
) -> Result:
    """Build a new index of a table in parallel, and add it to the stored definition."""
    added = Index.parse(index, name)
    if StoreAccess.of(data).url:
        raise InvalidArgument(f"{data!r} is not the folder of a store: a new index is built where the store is")
    with holdfast.open(data) as store, tempfile.TemporaryDirectory(prefix="holdfast-backfill-") as temporary:
        kept = store.table_definition(table)
        if any(one["parts"] == added.canonical for one in kept.get("indexes", ())):
            raise InvalidArgument(f"the table {table!r} already has the index {added.canonical!r}")
        wanted = {"parts": added.canonical, **({"name": name} if name is not None else {})}
        model = model_from({**kept, "indexes": [*kept.get("indexes", ()), wanted]})
        plan, built = migrate(spark, store, data, model, files or temporary, keyring=keyring)
    return Result(
        title=f"{table} has the index {added.canonical}",
        columns=["family", "files"],
        rows=[(family, len(paths)) for family, paths in sorted(built.items())],
        facts={"table": table, "index": added.canonical, "events": plan.position - plan.start},
    )


def migrate(
    spark: SparkSession, store: holdfast.Store, data: str, model: type[Model], files: str, *, keyring: str | None = None
) -> tuple[BackfillPlan, dict[str, list[str]]]:
    """Open a table with a model that has more indexes or unique fields, and let Spark build them.

    Returns, when the migration is complete, its plan and the paths of the files by family.

    `store` is open for writing, and is in `data`. If this is interrupted, the next
    opening of the table starts the migration again.
    """
    name = model.__spec__.name
    options: TableOptions = {"migration": Migration(external_indexes=True)}
    if keyring is not None:
        options["keyring"] = Keyring.load(keyring)
    store.table(model, **options)
    migrations = store.migrations()
    plan = migrations.plan(name)
    built = build(spark, data, plan, files, keyring=keyring)
    migrations.ingest(name, built, plan)
    migrations.wait(name)
    return plan, built


def build(
    spark: SparkSession, data: str, plan: BackfillPlan, files: str, *, keyring: str | None = None
) -> dict[str, list[str]]:
    """Let tasks write the entries of a plan into sorted files in a new folder in `files`; return the paths by family.

    The tasks and this process must see the same folder.
    """
    folder = local_path(files, "the folder for files").absolute() / uuid.uuid4().hex
    make_private(folder)
    found = entries(events(spark, data, plan), plan, keyring).persist()  # computing the ranges reads it a second time
    try:
        written = (
            found.repartitionByRange(_tasks(plan), "family", "key")
            .sortWithinPartitions("family", "key")
            .mapInArrow(partial(_write, str(folder)), ddl(_FILES))
            .collect()  # one row for each file
        )
    finally:
        found.unpersist()
    paths: dict[str, list[str]] = {}
    for row in written:
        paths.setdefault(row["family"], []).append(row["path"])
    for left in folder.iterdir():  # of tasks that Spark ran twice
        if str(left) not in {path for family in paths.values() for path in family}:
            left.unlink()
    return paths


def events(spark: SparkSession, data: str, plan: BackfillPlan) -> DataFrame:
    """Return the part of the table's log that a plan covers: key, offset and value."""
    places = {"startingOffsets": plan.start, "endingOffsets": plan.position}
    reader = spark.read.format("holdfast").option("path", data).option("table", plan.table).option("view", "log")
    for option, place in places.items():
        reader = reader.option(option, msgspec.json.encode({plan.table: {"0": place}}).decode())
    return reader.schema("key BINARY, offset LONG, value BINARY").load()


def entries(events: DataFrame, plan: BackfillPlan, keyring: str | None = None) -> DataFrame:
    """Return the index entries that result from events: family, key and value. One task gets all events of a record."""
    model = model_of(msgspec.json.encode(plan.definition).decode())
    hidden = [spec.name for spec in model.__spec__.fields.values() if spec.number in plan.uniques and spec.sensitive]
    if hidden and keyring is None:
        raise InvalidArgument(f"{hidden[0]!r} is sensitive: to make it unique, give the option keyring")
    return (
        events.repartition(_tasks(plan), "key")
        .sortWithinPartitions("key", "offset")
        .mapInArrow(partial(_entries, plan.to_dict(), keyring), ddl(_ENTRIES))
    )


def _tasks(plan: BackfillPlan) -> int:
    return partitions_for(plan.position - plan.start, EVENTS_A_TASK)


def _entries(given: dict[str, Any], keyring: str | None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Compute entries, in a task; the events of a record come one after the other."""
    view = _view(BackfillPlan.from_dict(given), keyring)
    records = (
        record
        for batch in batches
        for record in zip(batch.column(0).to_pylist(), batch.column(2).to_pylist(), strict=True)
    )
    found = (
        entry
        for key, same in groupby(records, key=lambda record: record[0])
        for entry in entries_of_rows(view, key, rows_of(decode_event(payload) for _, payload in same))
    )
    while some := list(islice(found, _BATCH)):
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(zip(*some, strict=True), _ENTRIES, strict=True)],
            schema=_ENTRIES,
        )


def _view(plan: BackfillPlan, keyring: str | None) -> TableState:
    model = model_of(msgspec.json.encode(plan.definition).decode())
    images = plain_images(model)
    if keyring is not None:
        images = sealed_images(model, Keyring.load(keyring), accept_unsealed=True)
    return restricted(model.__spec__, lenient_images(images, model), plan.indexes, plan.uniques, history=plan.history)


def _write(folder: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write, in a task, a file for each family among the entries, which arrive sorted; yield a row for each file."""
    for family, same in groupby(_rows(batches), key=lambda entry: entry[0]):
        path = f"{folder}/{uuid.uuid4().hex}.sst"
        count = write_sst(family, ((key, value) for _, key, value in same), path)
        yield pa.RecordBatch.from_pylist([{"family": family, "path": path, "entries": count}], _FILES)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Entry]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
