"""Holdfast as a Spark data source: reader, sink and shipped pipelines. Needs `holdfast[spark]`."""

import importlib
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.spark.frames import read, refresh_view
    from holdfast.spark.lag_listener import LagListener
    from holdfast.spark.pipelines.lake_history import history

__all__ = ["LagListener", "history", "read", "refresh_view", "register"]

_ON_DEMAND = {
    "LagListener": "holdfast.spark.lag_listener",
    "history": "holdfast.spark.pipelines.lake_history",
    "read": "holdfast.spark.frames",
    "refresh_view": "holdfast.spark.frames",
}
"""Modules that need Spark, which the command line imports this package without."""


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_ON_DEMAND[name]), name)


def __dir__() -> list[str]:
    return __all__  # notebooks complete these names


def register(spark: "SparkSession", *, pushdown: bool | None = None) -> None:
    """Register the format "holdfast" with this session, for reading and writing, in batches and streams.

    Also registers the table functions `holdfast_log`, `holdfast_messages` and `holdfast_table` for SQL.

    `pushdown` is deprecated and has no effect: filters never decide what is read, whatever the session's settings are,
    because Spark 4.3 shares one plan among all queries on a DataFrame. `read` with `since`, `until` or `keys` reads
    only the blocks that can match.
    """
    from holdfast.spark.source import HoldfastSource  # noqa: PLC0415 - needs Spark
    from holdfast.spark.table_functions import register_functions  # noqa: PLC0415 - as above

    if pushdown is not None:
        warnings.warn(
            "register(pushdown=...) has no effect: to read only the blocks that can match, use "
            "holdfast.spark.read(..., since=..., until=..., keys=...)",
            DeprecationWarning,
            stacklevel=2,
        )
    spark.dataSource.register(HoldfastSource)
    register_functions(spark)
