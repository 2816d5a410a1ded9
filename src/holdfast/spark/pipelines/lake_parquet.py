"""Atomic batches in plain Parquet: written to staging, planned, moved into place, then committed.

Spark's own file sink writes straight into place and keeps a list of valid files, `_spark_metadata`. Only Spark reads
that list: any other reader sees the files of a batch that is being written, and forever those of one that was killed.
So a batch is

1. written to `_holdfast/.../staging`, which no reader uses, and synced;
2. *planned*: one small file lists its files and their targets. From here on the batch is never written again;
3. moved, file by file. A move is atomic: readers of the folder see whole files, and no row twice;
4. *committed*, by renaming the plan. The next run completes a batch that was planned and not committed.

A reader of the folder may see the first files of a batch that is at step 3, as in any folder of files. `history` uses
only committed batches.

The tasks write the columns of the log unchanged, with pyarrow: about 1 s of processor time for a million records of
100 B. Passing them to Java, which makes rows and then columns of them again, costs 8 s, and Spark's own copy from
Parquet to Parquet 3 to 4 s.
"""

import os
import re
import shutil
import uuid
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from holdfast.base.files import UmaskFiles, translate_os_errors
from holdfast.spark.pipelines.lake import Added, Batch, Contents, Shelf, read_json, write_json
from holdfast.spark.reader import Reader
from holdfast.spark.schemas import arrow_schema, ddl

__all__ = ["DayWriter", "ParquetTable"]

ROW_GROUP_BYTES = 64 << 20
DAYS = 16
"""Days that a task has open at once; a row of a closed day begins another file."""
_FEW = ("topic", "partition", "timestampType", "priority", "key", "event", "cause", "reason", "target", "attempt")
"""Columns with frequently repeated values."""
_DAY_US = 86_400 * 1_000_000
_COMMIT = re.compile(r"(\d{10})\.json")
_WRITTEN = "day STRING, file STRING, rows LONG, bytes LONG"


class ParquetTable:
    """The days of a shelf as folders of Parquet files, and `commits/`, which lists the valid files."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf
        self._files = UmaskFiles()
        self._commits = shelf.folder / "commits"
        self._staging = shelf.folder / "staging"

    def ends(self) -> dict[str, int]:
        """Return how far each track is archived, by the last commit."""
        numbers = self._numbers()
        return dict(self._commit(numbers[-1])["ends"]) if numbers else {}

    def add(self, batch: Batch) -> Added:
        """Add a batch. Durable when this returns."""
        numbers = self._numbers()
        number = numbers[-1] + 1 if numbers else 0
        with translate_os_errors("archiving into", self._shelf.folder):
            staging = self._staging / uuid.uuid4().hex
            self._files.make_dirs(staging)
            files = self._write(batch, staging, number)
            self._files.sync_dir(staging)
            self._files.make_dirs(self._commits)
            plan = {"staging": staging.name, "ends": batch.ends, "files": files}
            write_json(self._commits / f"{number:010d}.plan", plan)
            self._carry_out(number, plan)
        return Added(sum(file["rows"] for file in files), sum(file["bytes"] for file in files))

    def contents(self, since: date | None, until: date | None) -> Contents:
        """Return the committed files with rows of these days, and the offsets of the last commit."""
        commits = [self._commit(number) for number in self._numbers()]
        found = []
        for commit in commits:
            for one in commit["files"]:
                day = date.fromisoformat(one["day"])
                if (since is None or day >= since) and (until is None or day <= until):
                    found.append(str(self._target(one)))
        return Contents(dict(commits[-1]["ends"]) if commits else {}, found)

    def settle(self) -> None:
        """Finish the batch that a killed run had planned, and delete files of batches that it had not."""
        with translate_os_errors("archiving into", self._shelf.folder):
            for name in self._files.list(self._commits):
                path = self._commits / name
                if path.suffix == ".plan" and (plan := read_json(path)) is not None:
                    self._carry_out(int(path.stem), plan)
            shutil.rmtree(self._staging, ignore_errors=True)

    def _write(self, batch: Batch, staging: Path, number: int) -> list[dict[str, Any]]:
        """Let tasks read the batch again by its options, and write it into staging; return its files."""
        # The folder names the queue, and some readers reject the same column in the file.
        columns = [name for name in self._shelf.schema.names if name != "queue"]
        schema = StructType.fromDDL(ddl(arrow_schema(self._shelf.schema, columns)))
        assert isinstance(schema, StructType)
        reader = Reader(batch.options, schema)
        parts = list(reader.partitions())
        if not parts:
            return []
        folder, compression = str(staging), batch.compression

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for given in batches:
                for place in given.column(0).to_pylist():
                    writer = DayWriter(Path(folder), compression)
                    for rows in reader.read(parts[place]):
                        writer.write(rows)
                    yield from writer.close()

        spark: SparkSession = batch.frame.sparkSession
        tasks = spark.range(0, len(parts), 1, len(parts))  # one number for each task
        rows = tasks.mapInArrow(write, _WRITTEN).collect()
        return [{**row.asDict(), "name": f"{number:010d}-{place:04d}.parquet"} for place, row in enumerate(rows)]

    def _carry_out(self, number: int, plan: dict[str, Any]) -> None:
        staging = self._staging / plan["staging"]
        folders = set()
        for one in plan["files"]:
            source, target = staging / one["file"], self._target(one)
            if source.exists():  # otherwise it was moved before the process was killed
                self._files.make_dirs(target.parent)
                self._files.replace(source, target)
            folders.add(target.parent)
        for folder in folders:
            self._files.sync_dir(folder)
        name = self._commits / f"{number:010d}.plan"
        self._files.replace(name, name.with_suffix(".json"))
        self._files.sync_dir(self._commits)
        shutil.rmtree(staging, ignore_errors=True)

    def _target(self, one: dict[str, Any]) -> Path:
        return self._shelf.path / f"date={one['day']}" / str(one["name"])

    def _numbers(self) -> list[int]:
        names = (_COMMIT.fullmatch(name) for name in self._files.list(self._commits))
        return sorted(int(name[1]) for name in names if name)

    def _commit(self, number: int) -> dict[str, Any]:
        return read_json(self._commits / f"{number:010d}.json") or {}


class DayWriter:
    """Writes the rows of one task, in the task: at least one file for each day, synced before it is reported."""

    def __init__(self, folder: Path, compression: str) -> None:
        self._folder = folder
        self._compression = compression
        self._open: dict[int, _DayFile] = {}
        self._done: list[dict[str, Any]] = []

    def write(self, rows: pa.RecordBatch) -> None:
        """Add rows; those of a log are in the order of their days, events nearly so."""
        when = rows.column("timestamp" if "timestamp" in rows.schema.names else "time")
        days = pc.divide(pc.cast(when, pa.int64()), _DAY_US)
        bounds = pc.min_max(days)
        if bounds["min"] == bounds["max"]:
            self._write(bounds["min"].as_py(), rows)
            return
        for day in sorted(pc.unique(days).to_pylist()):
            self._write(day, rows.filter(pc.equal(days, day)))

    def close(self) -> Iterator[pa.RecordBatch]:
        """Finish all files, and yield their descriptions."""
        for day in list(self._open):
            self._close(day)
        if self._done:
            yield pa.RecordBatch.from_pylist(self._done)

    def _write(self, day: int, rows: pa.RecordBatch) -> None:
        if day not in self._open:
            if len(self._open) == DAYS:
                self._close(min(self._open))
            self._open[day] = _DayFile(self._folder / f"{uuid.uuid4().hex}.parquet", rows.schema, self._compression)
        self._open[day].write(rows)

    def _close(self, day: int) -> None:
        file = self._open.pop(day)
        file.close()
        name = (date(1970, 1, 1) + timedelta(day)).isoformat()
        self._done.append({"day": name, "file": file.path.name, "rows": file.rows, "bytes": file.path.stat().st_size})


class _DayFile:
    def __init__(self, path: Path, schema: pa.Schema, compression: str) -> None:
        self.path = path
        self.rows = 0
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        self._writer = pq.ParquetWriter(
            path,
            schema,
            compression=compression,
            use_dictionary=[name for name in schema.names if name in _FEW],
            # Only of searched columns: statistics of payloads are useless.
            write_statistics=[name for name in schema.names if name not in ("value", "headers", "textHeaders")],
        )

    def write(self, rows: pa.RecordBatch) -> None:
        self.rows += rows.num_rows
        self._held.append(rows)
        self._bytes += rows.nbytes
        if self._bytes >= ROW_GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()
        handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def _flush(self) -> None:
        if self._held:
            table = pa.Table.from_batches(self._held)
            self._writer.write_table(table, row_group_size=max(1, table.num_rows))
            self._held, self._bytes = [], 0
