"""What does one Spark session measure? Called by `benchmarks.spark` with a master, and jobs to time in turns."""

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

import holdfast
from holdfast.spark.log_rows import BATCH_ROWS
from holdfast.spark.session import session

__all__ = ["NARROW", "EmptySource", "TupleSource", "main"]

NARROW = "offset LONG, timestamp TIMESTAMP, key BINARY, value BINARY"


class TupleSource(DataSource):
    """The plain way to write a source: a loop over records that yields tuples."""

    @classmethod
    def name(cls) -> str:
        """Its format."""
        return "tuples"

    def schema(self) -> str:
        """The columns that people need most."""
        return NARROW

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads half of the log in each of two tasks."""
        return TupleReader(self.options["path"])


class TupleReader(DataSourceReader):
    """Its reader."""

    def __init__(self, path: str) -> None:
        self.path = path

    def partitions(self) -> list[InputPartition]:
        """Two halves."""
        with holdfast.open(self.path, read_only=True) as store:
            end = store.log("bench").end
        return [InputPartition((0, end // 2)), InputPartition((end // 2, end))]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """One tuple a record."""
        start, stop = partition.value
        with holdfast.open(self.path, read_only=True) as store:
            for record in store.log("bench").read(start, stop):
                yield record.sequence, record.time, record.key, record.payload


class EmptySource(DataSource):
    """The least that a Python source can do: it sends one batch from memory again and again and keeps none it gets."""

    @classmethod
    def name(cls) -> str:
        """Its format."""
        return "nothing"

    def schema(self) -> str:
        """The columns that people need most."""
        return NARROW

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads nothing."""
        return EmptyReader(int(self.options["records"]), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Writes nothing."""
        return EmptyWriter()


class EmptyReader(DataSourceReader):
    """Its reader."""

    def __init__(self, records: int, schema: StructType) -> None:
        self.records = records
        self.schema = schema

    def partitions(self) -> list[InputPartition]:
        """Two halves."""
        return [InputPartition(self.records // 2), InputPartition(self.records - self.records // 2)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The same batch, as often as it takes."""
        left, rows = partition.value, BATCH_ROWS
        fields = to_arrow_schema(self.schema, timezone="UTC")
        values = [os.urandom(100) for _ in range(rows)]
        columns = [pa.array(range(rows)), pa.array(range(rows)).cast(fields.field(1).type), pa.nulls(rows, pa.binary())]
        batch = pa.RecordBatch.from_arrays([*columns, pa.array(values, pa.binary())], schema=fields)
        while left > 0:
            yield batch[: min(left, rows)]
            left -= rows


class EmptyWriter(DataSourceArrowWriter):
    """Its writer."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Take all and keep none."""
        for _ in iterator:
            pass
        return WriterCommitMessage()


def main() -> None:
    """Read the orders, measure, and print the seconds of each job and round as JSON."""
    orders = json.loads(sys.argv[1])
    spark = session(orders["master"], app="benchmark")
    spark.dataSource.register(TupleSource)
    spark.dataSource.register(EmptySource)
    store, parquet, out = Path(orders["store"]), orders["parquet"], Path(orders["out"])

    def ours(schema: str | None = None) -> DataFrame:
        reader = spark.read.format("holdfast").option("path", str(store)).option("log", "bench")
        return (reader.schema(schema) if schema else reader).load()

    def theirs(schema: str | None = None) -> DataFrame:
        return (spark.read.schema(schema) if schema else spark.read).parquet(parquet)

    if not Path(parquet).exists():
        ours().write.parquet(parquet)
    jobs: dict[str, Callable[[], None]] = {
        "read": lambda: _drain(ours(NARROW)),
        "parquet read": lambda: _drain(theirs(NARROW)),
        "read all columns": lambda: _drain(ours()),
        "parquet read all columns": lambda: _drain(theirs()),
        "tuples": lambda: _drain(spark.read.format("tuples").option("path", str(store)).load()),
        "read nothing": lambda: _drain(spark.read.format("nothing").option("records", orders["records"]).load()),
        "write nothing": lambda: _drain(theirs("key BINARY, value BINARY"), "nothing", "append"),
        "write": lambda: _write(theirs("key BINARY, value BINARY"), out),
        "parquet write": lambda: theirs("key BINARY, value BINARY").write.mode("overwrite").parquet(str(out / "copy")),
        "archive": lambda: _archive(spark, store, out),
        "parquet copy": lambda: theirs().write.mode("overwrite").parquet(str(out / "copy")),
    }
    found: dict[str, list[float]] = {name: [] for name in orders["jobs"]}
    for number in range(orders["rounds"] + 1):
        names = orders["jobs"] if number % 2 else orders["jobs"][::-1]
        for name in names:
            shutil.rmtree(out, ignore_errors=True)
            out.mkdir(parents=True)
            begin = time.perf_counter()
            jobs[name]()
            if number:  # the first time pays for compilation, in both worlds
                found[name].append(time.perf_counter() - begin)
    shutil.rmtree(out, ignore_errors=True)
    spark.stop()
    print(json.dumps(found))


def _drain(frame: DataFrame, sink: str = "noop", mode: str = "overwrite") -> None:
    frame.write.format(sink).mode(mode).save()


def _write(frame: DataFrame, out: Path) -> None:
    frame.write.format("holdfast").option("path", str(out / "data")).option("log", "copy").mode("append").save()


def _archive(spark: SparkSession, store: Path, out: Path) -> None:
    from holdfast.spark.pipelines.archive import run  # noqa: PLC0415 - the others are measured without it

    run(spark, str(store), lake=str(out / "lake"))


if __name__ == "__main__":
    main()
