"""Holdfast as a Spark data source: reader, sink and shipped pipelines. Needs `holdfast[spark]`."""

import os
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["history", "read", "refresh_view", "register"]


def register(spark: "SparkSession", *, pushdown: bool | None = None) -> None:
    """Register the format "holdfast" with this session, for reading and writing, in batches and streams.

    `pushdown` is deprecated and has no effect: filters never decide what is read, whatever the session's settings are,
    because Spark 4.3 shares one plan among all queries on a DataFrame. `read` with `since`, `until` or `keys` reads
    only the blocks that can match.
    """
    from holdfast.spark.source import HoldfastSource  # noqa: PLC0415 - the command line imports this without Spark

    if pushdown is not None:
        warnings.warn(
            "register(pushdown=...) has no effect: to read only the blocks that can match, use "
            "holdfast.spark.read(..., since=..., until=..., keys=...)",
            DeprecationWarning,
            stacklevel=2,
        )
    spark.dataSource.register(HoldfastSource)


def read(
    spark: "SparkSession",
    path: str | os.PathLike[str],
    *,
    log: str | Sequence[str] | None = None,
    queue: str | Sequence[str] | None = None,
    table: str | None = None,
    view: str | None = None,
    since: "datetime | str | None" = None,
    until: "datetime | str | None" = None,
    keys: bytes | str | Iterable[bytes | str] | None = None,
    **options: object,
) -> "DataFrame":
    """Return a new DataFrame of a log, a view of a queue or a table in the store at `path`.

    Each call plans again, so that the DataFrame shows the present content of the store; a DataFrame that was used
    before shows the content at its first action. `log` and `queue` take a name or several; `queue` needs a `view`
    ("messages" or "lifecycle"), `table` may have one ("now", "history", "changes", "log"). `since` and `until` (not
    included) select records by the time at which they were written, and events by their own time; the views "now" and
    "history" of a table do not take them. `keys` selects records by their key; "lifecycle" does not take it. Blocks
    that cannot match are not read, except that a lifecycle is read to its end whatever `until` is. A time without a
    zone is in the session's time zone. `options` are all other options of the source, such as `minPartitions=8`.
    """
    from holdfast.spark import frames  # noqa: PLC0415 - as above

    return frames.read(
        spark,
        path,
        log=log,
        queue=queue,
        table=table,
        view=view,
        since=since,
        until=until,
        keys=keys,
        **options,
    )


def refresh_view(spark: "SparkSession", name: str, path: str | os.PathLike[str], **arguments: Any) -> "DataFrame":
    """Create or refresh the temporary view `name`, so that it shows the present content; returns its DataFrame.

    The arguments are those of `read`. A temporary view shows the content at its first query, until this is
    called again.
    """
    from holdfast.spark import frames  # noqa: PLC0415 - as above

    return frames.refresh_view(spark, name, path, **arguments)


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
    """Return all records of a log, or all events of a queue: from a lake as far as it reaches, then from the store.

    The store is at `path`; None reads only the lake. No record comes twice. None is missing, except in gaps that
    `allow_gaps` accepts; otherwise a gap raises `DataLoss`. See `holdfast.spark.pipelines.lake_history`.
    """
    from holdfast.spark.pipelines import lake_history  # noqa: PLC0415 - as above

    return lake_history.history(
        spark, path, lake, log=log, queue=queue, since=since, until=until, allow_gaps=allow_gaps
    )
