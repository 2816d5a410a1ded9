"""DataFrames that are planned again at each call and narrowed by explicit arguments.

Spark 4.3 plans the scan of a Python source once for a DataFrame: at its first action, and for all queries on it. So a
DataFrame shows the records of that moment, and a plan that the filter of one query narrowed would be the plan of
all others. `read` makes a new DataFrame, with a plan of its own, and passes what narrows it as options of that read.
"""

import base64
import json
import os
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from holdfast.base.errors import InvalidArgument
from holdfast.spark.time_zones import moment_of, session_zone

__all__ = ["read", "refresh_view", "time_column"]

Names = str | Sequence[str]
Keys = bytes | str | Iterable[bytes | str]


def read(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    log: Names | None = None,
    queue: Names | None = None,
    table: str | None = None,
    view: str | None = None,
    since: datetime | str | None = None,
    until: datetime | str | None = None,
    keys: Keys | None = None,
    **options: object,
) -> DataFrame:
    """Return a new DataFrame of a log, a view of a queue or a table in the store at `path`.

    Each call plans again, so that the DataFrame shows the present content of the store; a DataFrame that was used
    before shows the content at its first action. `log` and `queue` take a name or several; `queue` needs a `view`
    ("messages" or "lifecycle"), `table` may have one ("now", "history", "changes", "log"). `since` and `until` (not
    included) select records by the time at which they were written, and events by their own time; the views "now" and
    "history" of a table do not take them. `keys` selects records by their key; "lifecycle" does not take it. Blocks
    that cannot match are not read, except that a lifecycle is read to its end whatever `until` is. A time without a
    zone is in the session's time zone. `options` are all other options of the source, such as `minPartitions=8`.
    """
    chosen = _sources(path, log=log, queue=queue, table=table, view=view)
    chosen |= {name: _text(value) for name, value in options.items() if value is not None}
    first, end = _moment(spark, since, "since"), _moment(spark, until, "until")
    if first is not None:
        chosen["startingTimestamp"] = first.isoformat()
    if end is not None and view != "lifecycle":
        chosen["endingTimestamp"] = end.isoformat()
    if keys is not None:
        chosen["key"] = _keys(keys, of_table=table is not None)
    frame = spark.read.format("holdfast").options(**chosen).load()
    if view == "lifecycle":
        # A record of the journal can hold events older than itself: so rows are compared, not records.
        frame = frame if first is None else frame.where(F.col("time") >= time_column(first))
        frame = frame if end is None else frame.where(F.col("time") < time_column(end))
    return frame


def refresh_view(spark: SparkSession, name: str, path: str | os.PathLike[str], **arguments: Any) -> DataFrame:
    """Create or refresh the temporary view `name`, so that it shows the present content; returns its DataFrame.

    The arguments are those of `read`. A temporary view shows the content at its first query, until this is
    called again.
    """
    frame = read(spark, path, **arguments)
    frame.createOrReplaceTempView(name)
    return frame


def _sources(path: str | os.PathLike[str], **names: Names | None) -> dict[str, str]:
    chosen = {"path": os.fspath(path)}
    for name, given in names.items():
        if isinstance(given, str):
            chosen[name] = given
        elif given is not None:
            for one in given:
                if "," in one:
                    raise InvalidArgument(f"the name {one!r} has a comma: read it alone, as {name}={one!r}")
            chosen[f"{name}s"] = ",".join(given)
    return chosen


def _text(value: object) -> str:
    if isinstance(value, dict | list):
        return json.dumps(value)
    if isinstance(value, StructType):
        return value.json()
    return str(value).lower() if isinstance(value, bool) else str(value)


def _keys(keys: Keys, *, of_table: bool) -> str:
    """Return the option `key`: texts unchanged, bytes as base64, and keys of a table's records as their text."""
    try:
        every = [keys] if isinstance(keys, bytes | str) else list(keys)
    except TypeError:
        every = [None]  # type: ignore[list-item]  # refused below
    if not all(isinstance(key, bytes | str) for key in every):
        raise InvalidArgument(f"keys must be one or more keys, each bytes or str, not {keys!r}")
    if of_table:
        return json.dumps([_record_key(key) for key in every])
    return json.dumps([key if isinstance(key, str) else {"base64": base64.b64encode(key).decode()} for key in every])


def _record_key(key: bytes | str) -> str:
    return key if isinstance(key, str) else base64.urlsafe_b64encode(key).rstrip(b"=").decode()


def _moment(spark: SparkSession, when: datetime | str | None, what: str) -> datetime | None:
    """Return the time in UTC; one without a zone is in the session's time zone."""
    if when is None:
        return None
    if isinstance(when, str):
        try:
            when = datetime.fromisoformat(when)
        except ValueError:
            raise InvalidArgument(f"{what} takes a time like 2026-01-31T12:00:00Z, not {when!r}") from None
    if not isinstance(when, datetime):
        raise InvalidArgument(f"{what} takes a datetime or a text like 2026-01-31T12:00:00Z, not {when!r}")
    zone = None if when.tzinfo else session_zone(str(spark.conf.get("spark.sql.session.timeZone")))
    return moment_of(when, zone)


def time_column(when: datetime) -> Column:
    """Return a time that has a zone as a column, exactly."""
    delta = when - datetime(1970, 1, 1, tzinfo=UTC)
    return F.timestamp_micros(F.lit((delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds))
