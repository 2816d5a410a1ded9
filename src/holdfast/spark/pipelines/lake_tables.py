"""Batches in Delta and Iceberg tables, written by the driver; each commit also stores the end offset.

Spark's own writers of both are Java libraries that pip does not install; `deltalake` and `pyiceberg` need none. They
run in the driver, so that each batch passes through its memory as Arrow: it is bounded by `batch_mb`.

The end offset of a shelf is in the same commit as its rows: with Delta as the version of an application transaction,
with Iceberg as a property of the table. It is the end offset rather than the number of Spark's batch: so it shows
whether a batch was added, whichever run wrote it, and `history` needs no other source.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from holdfast.base.names import escape_name
from holdfast.spark.pipelines.lake import Added, Batch, Contents, Shelf, day_of, needs

__all__ = ["DeltaTable", "IcebergTable"]


class DeltaTable:
    """A shelf as the partition `log=<name>` (or `queue=<name>`) of the Delta table `logs` (or `lifecycle`)."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._delta = needs("deltalake", "deltalake")
        self._path = str(shelf.lake.root / shelf.kind)

    def ends(self) -> dict[str, int]:
        """Return how far each track is archived, by the last transaction."""
        return {} if (table := self._open()) is None else self._ends(table)

    def add(self, batch: Batch) -> Added:
        """Add the rows and the offsets of a batch in one commit; synced when this returns."""
        rows = _arrow(self._shelf, batch.frame)
        delta = self._delta
        transactions = [delta.Transaction(self._app(track), end) for track, end in batch.ends.items()]
        delta.write_deltalake(
            self._path,
            rows,
            mode="append",
            schema_mode="merge",  # an older version wrote fewer columns
            partition_by=[self._shelf.partition, "date"],
            writer_properties=delta.WriterProperties(compression=batch.compression.upper()),
            commit_properties=delta.CommitProperties(app_transactions=transactions),
        )
        os.sync()  # the library does not sync, and the store may drop archived records
        return Added(rows.num_rows, rows.nbytes)

    def contents(self, since: date | None, until: date | None) -> Contents:
        """Return the shelf's files of these days and its offsets, both of the present version of the table."""
        table = self._open()
        if table is None:
            return Contents({}, [])
        files = pa.table(table.get_add_actions(flatten=True))
        rows = zip(
            files.column("path").to_pylist(),
            files.column(f"partition.{self._shelf.partition}").to_pylist(),
            files.column("partition.date").to_pylist(),
            strict=True,
        )
        found = [
            f"{self._path}/{unquote(path)}"
            for path, name, day in rows
            if name == self._shelf.name and (since is None or day >= since) and (until is None or day <= until)
        ]
        return Contents(self._ends(table), found)

    def settle(self) -> None:
        """Do nothing: a commit is atomic. A `vacuum` removes uncommitted files."""

    def _open(self) -> Any:
        delta = self._delta
        return delta.DeltaTable(self._path) if delta.DeltaTable.is_deltatable(self._path) else None

    def _ends(self, table: Any) -> dict[str, int]:
        found = {track: table.transaction_version(self._app(track)) for track in _tracks(self._shelf)}
        return {track: end for track, end in found.items() if end is not None}

    def _app(self, track: str) -> str:
        return _key(self._shelf, track)


class IcebergTable:
    """A shelf as the partition `log=<name>` (or `queue=<name>`) of the table `holdfast.logs` (or `.lifecycle`)."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        needs("sqlalchemy", "pyiceberg[sql-sqlite]")
        self._sql = needs("pyiceberg.catalog.sql", "pyiceberg[sql-sqlite]")
        self._name = f"holdfast.{shelf.kind}"

    def ends(self) -> dict[str, int]:
        """Return how far each track is archived, by the table's properties."""
        with self._catalog() as catalog:
            return self._ends(catalog.load_table(self._name)) if catalog.table_exists(self._name) else {}

    def add(self, batch: Batch) -> Added:
        """Add the rows and the offsets of a batch in one commit; synced when this returns."""
        rows = _arrow(self._shelf, batch.frame)
        places = {_key(self._shelf, track): str(end) for track, end in batch.ends.items()}
        with self._catalog() as catalog:
            if not catalog.table_exists(self._name):
                self._create(catalog, rows.schema)
            table = catalog.load_table(self._name)
            if set(rows.schema.names) - {field.name for field in table.schema().fields}:
                with table.update_schema() as update:  # an older version wrote fewer columns
                    update.union_by_name(rows.schema)
            with table.transaction() as commit:
                if rows.num_rows:
                    commit.append(rows, snapshot_properties=places)
                # Snapshots expire; properties of the table do not.
                commit.set_properties({**places, "write.parquet.compression-codec": batch.compression})
        os.sync()  # as above
        return Added(rows.num_rows, rows.nbytes)

    def contents(self, since: date | None, until: date | None) -> Contents:
        """Return the shelf's files of these days and its offsets, both of the present version of the table."""
        expressions = needs("pyiceberg.expressions", "pyiceberg[sql-sqlite]")
        with self._catalog() as catalog:
            if not catalog.table_exists(self._name):
                return Contents({}, [])
            table = catalog.load_table(self._name)
            wanted = expressions.EqualTo(self._shelf.partition, self._shelf.name)
            if since is not None:
                wanted &= expressions.GreaterThanOrEqual("date", since.isoformat())
            if until is not None:
                wanted &= expressions.LessThanOrEqual("date", until.isoformat())
            files = [task.file.file_path.removeprefix("file://") for task in table.scan(row_filter=wanted).plan_files()]
            return Contents(self._ends(table), files)

    def settle(self) -> None:
        """Do nothing: a commit is atomic."""

    def _create(self, catalog: Any, schema: pa.Schema) -> None:
        catalog.create_namespace_if_not_exists("holdfast")
        table = catalog.create_table(self._name, schema, location=f"file://{self._shelf.lake.root / self._shelf.kind}")
        with table.update_spec() as spec:
            spec.add_identity(self._shelf.partition)
            spec.add_identity("date")

    def _ends(self, table: Any) -> dict[str, int]:
        keys = {track: _key(self._shelf, track) for track in _tracks(self._shelf)}
        return {track: int(table.properties[key]) for track, key in keys.items() if key in table.properties}

    @contextmanager
    def _catalog(self) -> Iterator[Any]:
        root = self._shelf.lake.root
        catalog = self._sql.SqlCatalog("lake", uri=f"sqlite:///{root}/catalog.db", warehouse=f"file://{root}")
        try:
            yield catalog
        finally:
            catalog.engine.dispose()


def _arrow(shelf: Shelf, frame: DataFrame) -> pa.Table:
    """Return the rows, with the columns by which the table is partitioned."""
    frame = frame.withColumn("date", day_of(shelf.kind))
    schema = shelf.schema
    if shelf.partition not in schema.names:
        frame = frame.withColumn(shelf.partition, F.lit(shelf.name))
        schema = schema.append(pa.field(shelf.partition, pa.string()))
    schema = schema.append(pa.field("date", pa.date32()))
    return frame.select(*schema.names).toArrow().cast(schema)


def _tracks(shelf: Shelf) -> tuple[str, ...]:
    return ("log",) if shelf.kind == "logs" else ("put", "journal")


def _key(shelf: Shelf, track: str) -> str:
    return f"holdfast/{shelf.kind}/{escape_name(shelf.name)}/{track}"
