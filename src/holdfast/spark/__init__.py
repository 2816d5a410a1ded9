"""Everything that went through Holdfast as a DataFrame: source, sink and shipped pipelines. Needs `holdfast[spark]`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["history", "register"]


def register(spark: "SparkSession", *, pushdown: bool = False) -> None:
    """Make `spark.read.format("holdfast")` and its siblings known to this session.

    With `pushdown`, filters on offset, timestamp and key decide which blocks are read. It is off because Spark 4.3
    keeps what it planned for the first filtered query on a DataFrame for every later query on the same DataFrame, also
    one without a filter: with it, load a fresh DataFrame for each query. The options `startingOffsets`,
    `endingOffsets`, `startingTimestamp`, `endingTimestamp` and `key` narrow what is read without that danger.
    """
    from holdfast.spark.source import HoldfastSource  # noqa: PLC0415 - the command line imports this without Spark

    spark.dataSource.register(HoldfastSource)
    if pushdown:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def history(
    spark: "SparkSession",
    path: str | None,
    lake: str,
    *,
    log: str | None = None,
    queue: str | None = None,
    since: "datetime | None" = None,
    until: "datetime | None" = None,
    allow_gaps: bool = False,
) -> "DataFrame":
    """All records of a log, or all events of a queue: from a lake as far as it reaches, then from the store at `path`.

    No record is missing and none comes twice. See `holdfast.spark.pipelines.lake_history`.
    """
    from holdfast.spark.pipelines import lake_history  # noqa: PLC0415 - as above

    return lake_history.history(
        spark, path, lake, log=log, queue=queue, since=since, until=until, allow_gaps=allow_gaps
    )
