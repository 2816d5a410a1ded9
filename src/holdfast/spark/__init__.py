"""Everything that went through Holdfast as a DataFrame: source, sink and shipped pipelines. Needs `holdfast[spark]`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


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
