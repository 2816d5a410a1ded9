"""Complete history as one DataFrame: the archive as far as it reaches, then the live log.

    everything = history(spark, "data", "lake", log="orders")
    lives = history(spark, "data", "lake", queue="orders", since=datetime(2026, 1, 1, tzinfo=UTC))

No record is missing or duplicated, also while `archive` runs: the archived part ends with the last batch that it has
committed when this is called, and the live part begins at the next offset. So retention may drop archived records.
`history` raises `DataLoss` if the store has dropped records that were not archived, and if the log was deleted and
recreated. A DataFrame whose live part is dropped before it is used fails then; it never skips records.

Columns and types are those of the source. Times do not depend on the session's time zone; days of the lake are in UTC.
"""

import json
import re
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.spark.frames import time_column
from holdfast.spark.options import few
from holdfast.spark.partitions import DataLoss
from holdfast.spark.pipelines.lake import Card, Lake, Shelf, opened
from holdfast.spark.schemas import arrow_schema, ddl

__all__ = ["between", "history", "live"]


def history(
    spark: SparkSession,
    path: str | None,
    lake: str,
    *,
    log: str | None = None,
    queue: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    allow_gaps: bool = False,
) -> DataFrame:
    """Return all records of a log, or all events of a queue: from a lake and, after its end, from the store at `path`.

    Without a `path`, only what is archived. `since` and `until` (not included) leave out what is earlier or later, and
    days of the lake that are not needed are not opened; times without a zone are UTC. A gap is an error unless
    `allow_gaps`.
    """
    if (log is None) == (queue is None):
        raise InvalidArgument("nothing to read: give either log=... or queue=...")
    place = Lake(lake)
    shelf = place.shelf("logs", log) if log is not None else place.shelf("lifecycle", queue or "")
    card = shelf.card()
    if card is None:
        raise NotFound(f"{shelf.name!r} is not archived in {lake!r}; there are: {few(place.names(shelf.kind))}")
    if card.gaps and not allow_gaps:
        gap = card.gaps[0]
        raise DataLoss(
            f"the records {gap.start} to {gap.stop - 1} of {shelf.name!r} were dropped before they were archived: "
            "read the rest with allow_gaps=True"
        )
    since, until = _in_utc(since), _in_utc(until)
    contents = shelf.open_table().contents(since.date() if since else None, until.date() if until else None)
    frame = _archived(spark, shelf, contents.files)
    if path is not None:
        frame = frame.unionByName(_behind(spark, path, shelf, card, card.reach(contents.ends)))
    return between(frame, since, until)


def live(spark: SparkSession, path: str, *, log: str | None = None, queue: str | None = None) -> DataFrame:
    """Return the records that the store itself retains, with the columns of `history`."""
    options = {"log": log, "includeHeaders": "true"} if log is not None else {"queue": queue, "view": "lifecycle"}
    return spark.read.format("holdfast").option("path", path).options(**options).load()


def between(frame: DataFrame, since: datetime | None, until: datetime | None) -> DataFrame:
    """Return the rows from one time up to another, not included; times without a zone are UTC."""
    column = F.col("timestamp" if "timestamp" in frame.columns else "time")
    if (first := _in_utc(since)) is not None:
        frame = frame.where(column >= time_column(first))
    if (last := _in_utc(until)) is not None:
        frame = frame.where(column < time_column(last))
    return frame


def _archived(spark: SparkSession, shelf: Shelf, files: list[str]) -> DataFrame:
    # The name of the queue is in the path, which a reader of single files ignores.
    columns = [name for name in shelf.schema.names if name != "queue"]
    schema = ddl(arrow_schema(shelf.schema, columns))
    rows: list[tuple[object, ...]] = []
    if not files:
        frame = spark.createDataFrame(rows, schema)
    else:
        frame = spark.read.schema(schema).parquet(*(_literal(file) for file in files))
    if shelf.kind == "lifecycle":
        frame = frame.withColumn("queue", F.lit(shelf.name))
    elif shelf.lake.table == "iceberg":  # pyiceberg writes null lists as empty ones
        has_headers = F.size("headers") > 0
        for name in ("textHeaders", "headers"):
            frame = frame.withColumn(name, F.when(has_headers, F.col(name)))
    return frame.select(*shelf.schema.names)


def _literal(path: str) -> str:
    """Escape brackets in a path, which are not patterns here: without glob patterns, Spark reads such files twice."""
    return "file://" + re.sub(r"([{}\[\]*?\\])", r"\\\1", path)


def _behind(spark: SparkSession, path: str, shelf: Shelf, card: Card, ends: dict[str, int]) -> DataFrame:
    """Return the live part, from where the archive ends."""
    with opened(path, shelf) as view:
        starts = {}
        for track in view.tracks():
            end, picture = ends[track.kind], track.look(durable=False)
            if card.ids[track.kind] != track.log.id.hex():
                raise DataLoss(
                    f"{shelf.name!r} was deleted and recreated since it was archived: read the archive alone with "
                    "path=None, and the present log from the store"
                )
            if end < picture.start:
                raise DataLoss(
                    f"the records {end} to {picture.start - 1} of {shelf.name!r} were dropped before they were "
                    "archived: read the archive alone with path=None; `archive --allow-gaps` continues after them"
                )
            if end > picture.end:
                raise DataLoss(
                    f"{shelf.name!r} is archived up to {end}, but ends at {picture.end} in {path!r}: was the store "
                    "restored from an older backup? Read the archive alone with path=None"
                )
            starts[track.label] = {"0": end}
    reader = spark.read.format("holdfast").option("path", path).options(**shelf.options)
    return reader.option("startingOffsets", json.dumps(starts)).load().select(*shelf.schema.names)


def _in_utc(when: datetime | None) -> datetime | None:
    if when is None:
        return None
    return when.astimezone(UTC) if when.tzinfo else when.replace(tzinfo=UTC)
