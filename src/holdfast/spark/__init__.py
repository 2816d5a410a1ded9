"""Everything that went through Holdfast as a DataFrame: source, sink and shipped pipelines. Needs `holdfast[spark]`."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: "SparkSession") -> None:
    """Make `spark.read.format("holdfast")` and its siblings known to this session, with filter pushdown."""
    from holdfast.spark.source import HoldfastSource  # noqa: PLC0415 - the command line imports this without Spark

    spark.dataSource.register(HoldfastSource)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
