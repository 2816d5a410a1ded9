"""Table-valued functions for SQL: `holdfast_log`, `holdfast_messages` and `holdfast_table`.

Spark 4.3 evaluates a Python table function with constant arguments in one task. A function of Arrow batches streams: it
holds one batch at a time. It must have fixed columns. The columns of a table are its own, so its function returns rows,
and Spark gathers all of them in the memory of that task.
"""

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as classic
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.udtf import AnalyzeArgument, AnalyzeResult

from holdfast.base.errors import InvalidArgument
from holdfast.spark.errors import in_one_line
from holdfast.spark.options import ReadOptions
from holdfast.spark.reader import Reader
from holdfast.spark.schemas import MESSAGES, ddl
from holdfast.spark.sources import view_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["TABLE_BYTES_MAX", "register_functions"]

TABLE_BYTES_MAX = 16 << 20
"""Size of the log of a table above which `holdfast_table` refuses it."""


class LogFunction:
    """`holdfast_log(path, log, since, until, key)`: the records of a log, with the columns of `option("log", ...)`."""

    def eval(
        self,
        path: pa.Array,
        log: pa.Array,
        since: pa.Array | None = None,
        until: pa.Array | None = None,
        key: pa.Array | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the batches of the log."""
        given = {"path": path, "log": log, "startingTimestamp": since, "endingTimestamp": until, "key": key}
        return _batches(given)


class MessagesFunction:
    """`holdfast_messages(path, queue, key)`: the messages of a queue in their present state."""

    def eval(self, path: pa.Array, queue: pa.Array, key: pa.Array | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the batches of the view `messages`."""
        return _batches({"path": path, "queue": queue, "key": key}, view="messages")


class TableFunction:
    """`holdfast_table(path, table, view, asOf)`: the records of a small table, with the columns of that table."""

    @staticmethod
    @in_one_line
    def analyze(
        path: AnalyzeArgument,
        table: AnalyzeArgument,
        view: AnalyzeArgument | None = None,
        asOf: AnalyzeArgument | None = None,
    ) -> AnalyzeResult:
        """Return the columns of the table; raises `InvalidArgument` if the table is large."""
        given = {"path": path, "table": table, "view": view, "asOf": asOf}
        for name, argument in given.items():
            if argument is not None and not argument.isConstantExpression:
                raise InvalidArgument(f"the argument {name!r} of holdfast_table must be a constant, not a column")
        options = {name: argument.value for name, argument in given.items() if argument is not None}
        reader = _reader(options)
        size = sum(stretch.bytes for part in reader.partitions() for _, run in part.work for stretch in run)
        if size > TABLE_BYTES_MAX:
            raise InvalidArgument(
                f"the table {options['table']!r} has a log of {size >> 20} MiB, and holdfast_table, which gathers all "
                f"rows in one task, reads at most {TABLE_BYTES_MAX >> 20} MiB: use CREATE TEMPORARY VIEW name USING "
                f"holdfast OPTIONS (path '...', table '...'), which reads in parallel"
            )
        return AnalyzeResult(from_arrow_schema(view_schema(reader.options)))

    def eval(self, path: str, table: str, view: str | None = None, asOf: str | None = None) -> Iterator[dict[str, Any]]:
        """Yield the rows of the table."""
        reader = _reader({"path": path, "table": table, "view": view, "asOf": asOf})
        for part in reader.partitions():
            for batch in reader.read(part):
                yield from batch.to_pylist(maps_as_pydicts="strict")


def register_functions(spark: "SparkSession") -> None:
    """Register the table functions with this session, classic or of Spark Connect."""
    made: Any = classic
    if type(spark).__module__.startswith("pyspark.sql.connect."):  # Spark's own choice follows the environment
        made = importlib.import_module("pyspark.sql.connect.functions")  # needs pyspark[connect]
    log_columns = ddl(view_schema(ReadOptions.of({"path": "/", "log": "any"})))
    spark.udtf.register("holdfast_log", made.arrow_udtf(LogFunction, returnType=log_columns))
    spark.udtf.register("holdfast_messages", made.arrow_udtf(MessagesFunction, returnType=ddl(MESSAGES)))
    spark.udtf.register("holdfast_table", made.udtf(TableFunction, useArrow=False))


def _batches(arguments: dict[str, pa.Array | None], **options: str) -> Iterator[pa.RecordBatch]:
    reader = _reader({**_texts(arguments), **options})
    for part in reader.partitions():
        yield from reader.read(part)


@in_one_line
def _reader(options: dict[str, str | None]) -> Reader:
    """Return a reader of all columns, which divides its work into one task if it may."""
    given = {name: value for name, value in options.items() if value is not None} | {"minPartitions": "1"}
    return Reader(given, from_arrow_schema(view_schema(ReadOptions.of(given))))


@in_one_line
def _texts(arguments: dict[str, pa.Array | None]) -> dict[str, str | None]:
    """Return the values of arguments, which Spark passes as arrays with one element for each row."""
    found: dict[str, str | None] = {}
    for name, given in arguments.items():
        if given is None:
            continue
        if len(given) != 1 or not (pa.types.is_string(given.type) or pa.types.is_null(given.type)):
            raise InvalidArgument(f"the argument for {name!r} must be a text, not {given.type}")
        found[name] = given[0].as_py()
    return found
