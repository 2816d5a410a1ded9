"""Replays messages selected from a log or its archived history into a queue or a log, once.

    holdfast pipeline replay --data data --log orders --since 2026-11-01 --where "key = 'ann'" --to-queue jobs
    holdfast pipeline replay --data data --log orders --since 2026-11-01 --where "key = 'ann'" --to-queue jobs --execute

Without `--execute` nothing is written: the number of matching messages and some of them are shown. With it, all of them
are added or none, in the order of their offsets. A replay whose name was used before for this target adds nothing. The
default name is derived from the options.

A message keeps its payload, key, headers and priority, but not when it was to expire. Where it came from is in three
more headers: `replayed-log`, `replayed-offset`, `replayed-time`. Any DataFrame can be replayed, with `replay`:

    fraud = history(spark, "data", "lake", log="orders").join(suspects, "key")
    replay(spark, fraud, "data", queue="review", name="fraud of November")
"""

import hashlib
from datetime import datetime
from typing import Annotated

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F

from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.queue.queue_state import TARGET_QUEUE_HEADER
from holdfast.spark.options import few
from holdfast.spark.pipelines import Result
from holdfast.spark.pipelines.deadletters import excerpt
from holdfast.spark.pipelines.lake_history import between, history, live
from holdfast.spark.sink import BatchWriter
from holdfast.spark.store_access import StoreAccess

__all__ = ["HEADERS", "replay", "replayable", "run", "select"]

HEADERS = ("replayed-log", "replayed-offset", "replayed-time")
"""The headers with the origin of a message."""
_KEPT = ("key", "value", "priority", "delay", "ttl")
_HEADERS_TYPE = "array<struct<key: string, value: binary>>"
_NAMES_TYPE = "array<string>"


def run(
    spark: SparkSession,
    data: str,
    *,
    log: Annotated[str | None, "The log to read."] = None,
    queue: Annotated[str | None, "The queue whose messages are read, in any state."] = None,
    to_queue: Annotated[str | None, "The queue to put into."] = None,
    to_log: Annotated[str | None, "The log to append to."] = None,
    lake: Annotated[str | None, "A lake with records that the store has dropped since."] = None,
    where: Annotated[str | None, "An SQL condition on the columns of the log, as \"key = 'ann'\"."] = None,
    since: Annotated[datetime | None, "Only from this time on."] = None,
    until: Annotated[datetime | None, "Only before this time."] = None,
    first: Annotated[int | None, "Only from this offset on."] = None,
    last: Annotated[int | None, "Only up to this offset."] = None,
    name: Annotated[
        str | None, "The name of the replay: a repeated name adds nothing. Default: derived from the options."
    ] = None,
    examples: Annotated[int, "How many messages are shown."] = 10,
    execute: Annotated[bool, "Write the messages; without it, only show what would be written."] = False,
) -> Result:
    """Replay messages of a log's history into a queue or a log; without `execute`, only show them."""
    if (to_queue is None) == (to_log is None):
        raise InvalidArgument("no target: give either the option 'to_queue' or the option 'to_log'")
    asked = [log, queue, to_queue, to_log, where, since, until, first, last]
    name = name or "replay " + hashlib.blake2b(repr(asked).encode(), digest_size=6).hexdigest()
    chosen = select(spark, data, log=log, queue=queue, lake=lake, where=where, since=since, until=until)
    if first is not None:
        chosen = chosen.where(F.col("offset") >= first)
    if last is not None:
        chosen = chosen.where(F.col("offset") <= last)
    facts: dict[str, object] = {"to": to_queue or to_log, "name": name}
    if not _is_there(data, to_queue, to_log):
        facts["new"] = (
            f"the {'queue' if to_queue else 'log'} {to_queue or to_log!r} does not exist yet and will be created"
        )
    if execute:
        added = replay(spark, chosen.orderBy("offset"), data, queue=to_queue, log=to_log, name=name)
        if added is None:
            return Result(
                f"nothing was added: the replay {name!r} was done before. Give another name to repeat it", facts=facts
            )
        return Result(f"{added:,} messages were put into {to_queue or to_log!r}", facts={**facts, "messages": added})
    found = chosen.agg(
        F.count(F.lit(1)).alias("messages"),
        F.coalesce(F.sum(F.octet_length("value")), F.lit(0)).alias("bytes"),
        F.min("offset").alias("first"),
        F.max("offset").alias("last"),
    ).first()
    assert found is not None
    shown = chosen.orderBy("offset").limit(max(0, examples))
    rows = shown.select(
        "offset",
        F.timestamp_millis(F.unix_millis("timestamp")).alias("time"),
        excerpt(F.col("key"), 40).alias("key"),
        F.octet_length("value").alias("size"),
        excerpt(F.col("value"), 80).alias("payload"),
    )
    facts = {**found.asDict(), **facts, "next": "nothing was written: give the option 'execute' to write"}
    title = f"{found['messages']:,} messages would be put into {to_queue or to_log!r}"
    return Result(title, rows.columns, [tuple(row) for row in rows.collect()], facts)


def select(
    spark: SparkSession,
    data: str,
    *,
    log: str | None = None,
    queue: str | None = None,
    lake: str | None = None,
    where: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> DataFrame:
    """Return the records of a log, or the messages of a queue, between two times that satisfy an SQL condition."""
    if (log is None) == (queue is None):
        raise InvalidArgument("nothing to read: give either the option 'log' or the option 'queue'")
    source = log if log is not None else _log_of(data, queue or "")
    if lake is not None:
        frame = history(spark, data, lake, log=source, since=since, until=until)
    else:
        frame = between(live(spark, data, log=source), since, until)
    if queue is not None:  # if several queues share a log, a message may belong to another one
        meant = F.exists(
            "headers", lambda header: (header["key"] == TARGET_QUEUE_HEADER) & (header["value"].cast("string") != queue)
        )
        frame = frame.where(F.col("producer").isNull() | ~F.coalesce(meant, F.lit(False)))
    if where is not None:
        try:
            frame = frame.where(where)
        except (AnalysisException, ParseException) as error:
            raise InvalidArgument(f"the condition {where!r} is invalid: {str(error).splitlines()[0]}") from None
    return frame


def replay(
    spark: SparkSession,
    frame: DataFrame,
    data: str,
    *,
    name: str,
    queue: str | None = None,
    log: str | None = None,
) -> int | None:
    """Put the rows of a DataFrame into a queue or a log, all or none; return how many.

    If a replay of this name was done before, nothing is added, and None is returned.

    It needs a column `value`, and may have `key`, `headers`, `textHeaders`, `priority`, `delay` and `ttl`. `topic`,
    `offset` and `timestamp` become headers that record a message's origin; other columns are left out.
    """
    options = {"path": data, "txnAppId": f"replay {name}", "txnVersion": "0"}
    options |= {"queue": queue} if queue is not None else {}
    options |= {"log": log} if log is not None else {}
    messages = replayable(frame)
    sink = BatchWriter(options, messages.schema, overwrite=False)
    if sink.is_known(sink.manifest):
        return None
    counted = Observation("replay")
    observed = messages.observe(counted, F.count(F.lit(1)).alias("rows"))
    observed.write.format("holdfast").options(**options).mode("append").save()
    return int(counted.get["rows"])


def replayable(frame: DataFrame) -> DataFrame:
    """Return the columns that the sink takes, with headers that record each message's origin."""
    if "value" not in frame.columns:
        raise InvalidArgument(f"the column 'value' is missing; there are: {', '.join(frame.columns)}")
    said: list[Column] = []
    names: list[str] = []
    for header, column, text in (
        (HEADERS[0], "topic", F.col("topic")),
        (HEADERS[1], "offset", F.col("offset").cast("string")),
        # In UTC whatever the session's time zone is.
        (HEADERS[2], "timestamp", _iso("timestamp")),
    ):
        if column in frame.columns:
            said.append(F.struct(F.lit(header).alias("key"), text.cast("binary").alias("value")))
            names.append(header)
    columns = [F.col(name) for name in _KEPT if name in frame.columns]
    own = F.array(*said).cast(_HEADERS_TYPE) if said else F.array().cast(_HEADERS_TYPE)
    given = F.col("headers").cast(_HEADERS_TYPE) if "headers" in frame.columns else F.array().cast(_HEADERS_TYPE)
    # Without headers of an earlier replay or of routing: it has another target now.
    kept = F.filter(
        F.coalesce(given, F.array().cast(_HEADERS_TYPE)), lambda each: ~each["key"].isin(TARGET_QUEUE_HEADER, *HEADERS)
    )
    both = F.filter(F.concat(kept, own), lambda each: each["value"].isNotNull())
    texts = F.filter(_text_names(frame), lambda name: ~name.isin(TARGET_QUEUE_HEADER, *HEADERS))
    texts = F.concat(texts, F.array(*map(F.lit, names)).cast(_NAMES_TYPE))
    return frame.select(*columns, both.alias("headers"), texts.alias("textHeaders"))


def _text_names(frame: DataFrame) -> Column:
    """Return the names of the text headers: from the frame or, if it has none, those whose value is UTF-8."""
    nothing = F.array().cast(_NAMES_TYPE)
    if "headers" not in frame.columns:
        return nothing
    values = F.col("headers").cast(_HEADERS_TYPE)
    texts = F.filter(values, lambda each: F.try_validate_utf8(each["value"]).isNotNull())
    guessed = F.transform(texts, lambda each: each["key"])
    # Archives of older versions have no such column, or null in it.
    said = F.col("textHeaders") if "textHeaders" in frame.columns else F.lit(None).cast(_NAMES_TYPE)
    return F.coalesce(said, guessed, nothing)


def _iso(column: str) -> Column:
    """Return a time as text in UTC, whatever the session's time zone is."""
    seconds = f"CAST(unix_micros({column}) / CAST(1000000 AS DECIMAL(7, 0)) AS DECIMAL(18, 6))"
    text = F.expr(f"CAST(TIMESTAMP_NTZ'1970-01-01' + make_dt_interval(0, 0, 0, {seconds}) AS STRING)")
    return F.concat(F.translate(text, " ", "T"), F.lit("Z"))


def _log_of(data: str, queue: str) -> str:
    with StoreAccess.of(data).open() as store:
        if queue not in store.queues():
            raise NotFound(f"there is no queue {queue!r} in {data!r}; there are: {few(store.queues())}")
        return store.log_of(queue)


def _is_there(data: str, queue: str | None, log: str | None) -> bool:
    with StoreAccess.of(data).open() as store:
        return queue in store.queues() if queue is not None else log in store.logs()
