"""Table-valued functions for SQL: `holdfast_log`, `holdfast_messages` and `holdfast_table`.

Spark 4.3 evaluates a Python table function with constant arguments in one task. A function of Arrow batches streams: it
holds one batch at a time. It must have fixed columns. The columns of a table are its own, so its function returns rows,
and Spark gathers all of them in the memory of that task.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.functions import arrow_udtf, udtf
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
        options = {
            "path": _text(path, "path"),
            "log": _text(log, "log"),
            "startingTimestamp": _text(since, "since"),
            "endingTimestamp": _text(until, "until"),
            "key": _text(key, "key"),
        }
        return _batches(options)


class MessagesFunction:
    """`holdfast_messages(path, queue, key)`: the messages of a queue in their present state."""

    def eval(self, path: pa.Array, queue: pa.Array, key: pa.Array | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the batches of the view `messages`."""
        options = {"path": _text(path, "path"), "queue": _text(queue, "queue"), "key": _text(key, "key")}
        return _batches({**options, "view": "messages"})


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
    """Register the table functions with this session."""
    log_columns = ddl(view_schema(ReadOptions.of({"path": "/", "log": "any"})))
    spark.udtf.register("holdfast_log", arrow_udtf(LogFunction, returnType=log_columns))  # type: ignore[arg-type]
    spark.udtf.register("holdfast_messages", arrow_udtf(MessagesFunction, returnType=ddl(MESSAGES)))  # type: ignore[arg-type]
    spark.udtf.register("holdfast_table", udtf(TableFunction, useArrow=False))  # type: ignore[arg-type]


def _batches(options: dict[str, str | None]) -> Iterator[pa.RecordBatch]:
    reader = _reader(options)
    for part in reader.partitions():
        yield from reader.read(part)


def _reader(options: dict[str, str | None]) -> Reader:
    """Return a reader of all columns, which divides its work into one task if it may."""
    given = {name: value for name, value in options.items() if value is not None} | {"minPartitions": "1"}
    return Reader(given, from_arrow_schema(view_schema(ReadOptions.of(given))))


def _text(argument: pa.Array | None, name: str) -> str | None:
    """Return the value of an argument, which Spark passes as an array with one element for each row."""
    if argument is None:
        return None
    if len(argument) != 1 or not pa.types.is_string(argument.type):
        raise InvalidArgument(f"the argument {name!r} must be one text, not {len(argument)} of {argument.type}")
    value: str | None = argument[0].as_py()
    return value
