"""Loads Parquet, ORC, CSV or JSON lines into a log or a queue, in parallel.

    holdfast pipeline load --data data --source 'orders/*.parquet' --log orders --key customer
    holdfast pipeline load --data data --source jobs.csv --queue jobs --value url --headers tenant --headers region

All rows are added or none. The same files are loaded once, however often this is run, unless `--again` is given: a load
is known by the names, sizes and times of the files (of remote files only the names) and by its options. Records of one
file keep their order; files do not.
"""

import hashlib
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import unquote, urlparse

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType

from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.spark.pipelines import Result
from holdfast.spark.store_access import StoreAccess

__all__ = ["messages", "read_files", "run"]

FORMATS = ("parquet", "orc", "csv", "json")


def run(
    spark: SparkSession,
    data: str,
    *,
    source: Annotated[str, "A file, a folder or a pattern."],
    log: Annotated[str | None, "The log to append to."] = None,
    queue: Annotated[str | None, "The queue to put into."] = None,
    format: Annotated[
        Literal["parquet", "orc", "csv", "json"] | None, "The format of the files; default: by their extension."
    ] = None,
    value: Annotated[str | None, "The column with the payload; default: the whole row as JSON."] = None,
    key: Annotated[str | None, "The column with the key."] = None,
    headers: Annotated[list[str] | None, "A column that becomes a header."] = None,
    again: Annotated[bool, "Load files again that were loaded before."] = False,
) -> Result:
    """Load files into a log or a queue, in parallel; the same files only once."""
    if (log is None) == (queue is None):
        raise InvalidArgument("no target: give either the option 'log' or the option 'queue'")
    frame = read_files(spark, source, format)
    counted = Observation("load")
    writer = (
        messages(frame, value, key, headers or [])
        .observe(counted, F.count(F.lit(1)).alias("rows"))
        .write.format("holdfast")
        .option("path", data)
        .option("queue" if log is None else "log", log or queue)
    )
    if not again:
        what = _fingerprint(frame.inputFiles(), [log, queue, value, key, *(headers or [])])
        writer = writer.option("txnAppId", f"load {what}").option("txnVersion", 0)
    before = _end(data, log, queue)
    writer.mode("append").save()
    added = _end(data, log, queue) - before
    return Result(
        title=f"loaded {source!r} into {log or queue!r}" if added else "nothing new: these files were loaded before",
        facts={"files": len(frame.inputFiles()), "rows": counted.get["rows"], "added": added},
    )


def read_files(spark: SparkSession, source: str, format: str | None = None) -> DataFrame:
    """Return the rows of the files."""
    reader = spark.read.format(format or _format_of(source))
    # A CSV file has no types, and inferring them would read it twice and drop leading zeros.
    return reader.option("header", "true").load(source)


def messages(frame: DataFrame, value: str | None, key: str | None, headers: list[str]) -> DataFrame:
    """Return the columns that the sink takes: `value`, and `key` and `headers` if they are wanted."""
    for name in (*([value] if value else []), *([key] if key else []), *headers):
        if name not in frame.columns:
            raise InvalidArgument(f"the files have no column {name!r}; there are: {', '.join(frame.columns)}")
    payload = F.to_json(F.struct("*")) if value is None else _text(frame, value)
    columns = [payload.alias("value")]
    if key is not None:
        columns.append(_text(frame, key).alias("key"))
    if headers:
        each = [
            F.struct(F.lit(name).alias("key"), _text(frame, name).cast("binary").alias("value")) for name in headers
        ]
        columns.append(F.filter(F.array(*each), lambda header: header["value"].isNotNull()).alias("headers"))
    return frame.select(columns)


def _text(frame: DataFrame, name: str) -> Column:
    """Return a column as text, or as the bytes that it is; a nested one becomes JSON."""
    kind = frame.schema[name].dataType
    column = F.col(f"`{name}`")
    if isinstance(kind, BinaryType | StringType):
        return column
    return F.to_json(column) if kind.typeName() in ("array", "map", "struct", "variant") else column.cast("string")


def _format_of(source: str) -> str:
    path = Path(source)
    names = sorted(entry.name for entry in path.rglob("*")) if path.is_dir() else [path.name]
    for name in names:
        for ending in Path(name).suffixes:  # as in orders.csv.gz
            if ending.removeprefix(".").lower() in FORMATS:
                return ending.removeprefix(".").lower()
    if not path.exists() and not any(sign in source for sign in "*?[{:"):
        raise NotFound(f"there is no file or folder {source!r}")
    raise InvalidArgument(f"the format of {source!r} is unknown: give the option 'format', one of {', '.join(FORMATS)}")


def _fingerprint(files: list[str], how: list[str | None]) -> str:
    said = [repr(how)]
    for file in sorted(files):
        path = Path(unquote(urlparse(file).path))
        found = path.stat() if path.exists() else None  # for a remote file only the name is known
        said.append(f"{file} {found.st_size} {found.st_mtime_ns}" if found else file)
    return hashlib.blake2b("\n".join(said).encode(), digest_size=16).hexdigest()


def _end(data: str, log: str | None, queue: str | None) -> int:
    """Return how many records the log has ever had."""
    try:
        with StoreAccess.of(data).open() as store:
            return store.log(log or store.log_of(queue or "")).readable()[1]
    except NotFound:
        return 0
