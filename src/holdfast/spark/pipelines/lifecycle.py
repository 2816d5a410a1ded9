"""Lifecycle of messages: one row for each message, one for each minute, and an HTML report.

    holdfast pipeline lifecycle --data data
    holdfast pipeline lifecycle --data data --queues 'orders*' --out /reports/orders

The functions take and return DataFrames, and can be used on their own:

    lives = messages(spark.read.format("holdfast").option("path", "data").option("queue", "orders")
                     .option("view", "lifecycle").load())
    lives.where("outcome = 'acked'").orderBy("ack_s", ascending=False).show()

Only aggregates are collected. A message's events are joined in one shuffle by queue and message, and the minutes need
one more; the groups of both are bounded by the events of one message, or the minutes of one queue.
"""

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import reduce
from typing import Annotated

from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F

from holdfast.spark.pipelines import Result
from holdfast.spark.pipelines.output_folder import Folder, chosen_queues, default_folder
from holdfast.spark.pipelines.report.formatting import moment
from holdfast.spark.schemas import LIFECYCLE, ddl
from holdfast.spark.shuffles import partitions_for, sized_shuffles

__all__ = [
    "ATTEMPTS",
    "OUTCOMES",
    "bucket_seconds",
    "messages",
    "minutes",
    "period",
    "read_events",
    "run",
    "summary",
    "with_period_and_count",
]

Span = tuple[datetime, datetime]
"""The times of the first and the last event."""

OPEN = ("waiting", "leased")
CLOSED = ("acked", "dead", "dropped", "redriven", "purged", "skipped")
OUTCOMES = (*CLOSED, *OPEN, "unknown")
"""Outcomes of a message. `skipped`: a seek passed it. `unknown`: the journal does not reach back to its end."""
ATTEMPTS = 6
"""Classes of attempts in a histogram; the last one is "this many, or more"."""

DAY = 86_400
TABLE = (60, 600, 3600, DAY)
"""Lengths of a "minute" of the table, in seconds: the first that makes at most `TABLE_MAX` rows is used."""
CHART = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21_600, 43_200, DAY, 7 * DAY, 30 * DAY)
"""The same for a chart, with at most `CHART_MAX` steps."""
TABLE_MAX, CHART_MAX = 2_880, 130

_FAILED = ("nacked", "expired")
_GONE = ("dead-lettered", "redriven", "dropped", "moved", "purged")
_LAST = (1 << 63) - 1
_QUANTILES = [0.5, 0.95, 0.99]
_ACCURACY = 10_000  # of percentile_approx: at most n / 10,000 places off, exact up to 10,000 values


def read_events(spark: SparkSession, data: str, queues: Sequence[str]) -> DataFrame:
    """Return the events of these queues, as one DataFrame."""

    def read(option: str, value: str) -> DataFrame:
        reader = spark.read.format("holdfast").option("path", data).option("view", "lifecycle")
        return reader.option(option, value).schema(ddl(LIFECYCLE)).load()

    # One read of many queues is planned once; queues whose names cannot be in a list are read one by one.
    listed = [queue for queue in queues if "," not in queue and queue == queue.strip()]
    reads = [read("queues", ",".join(listed))] if listed else []
    return reduce(DataFrame.unionByName, reads + [read("queue", queue) for queue in queues if queue not in listed])


def messages(events: DataFrame) -> DataFrame:
    """Return one row for each message of each queue: times, durations, attempts and outcome.

    `wait_s` is the time to the first lease, from when it could first be delivered; `ack_s` the time from put to the
    first ack; `busy_s` how long its last attempt took. `attempts` counts deliveries, but not those released untried,
    `retries` those that were nacked or expired and returned to the queue. `gaps` are the periods between an end of the
    message and a seek that made it open again.
    """
    orders = F.broadcast(_orders(events))
    is_void = F.exists(
        F.coalesce("orders", F.array()),
        lambda order: (
            (order["event"] == "cut") & (F.col("message") >= order["upto"]) & (F.col("time") <= order["time"])
        ),
    )
    own = (
        events.where(F.col("message").isNotNull())
        .join(orders, "queue", "left")
        # Events of a sequence that a crash removed are void; the sequence may belong to another message now.
        .where((F.col("event") == "put") | ~is_void)
    )
    grouped = own.groupBy("queue", "message").agg(
        F.min(_when("put")).alias("put_at"),
        F.min(F.when(F.col("event") == "put", F.greatest("time", "until"))).alias("due_at"),
        F.min(_when("leased")).alias("first_leased_at"),
        F.max(_when("leased")).alias("last_leased_at"),
        F.max(F.when(_ends_an_attempt(), F.col("time"))).alias("attempted_at"),
        F.min(_when("acked")).alias("acked_at"),
        (_count("leased") - _count("released")).alias("attempts"),
        _count(*_FAILED).alias("retries"),
        F.max("priority").alias("priority"),
        F.max_by("cause", F.when(F.col("event").isin("dead-lettered", "dropped"), F.col("time"))).alias("cause"),
        F.max_by("reason", F.when(F.length("reason") > 0, F.col("time"))).alias("reason"),
        F.sort_array(F.collect_list(_step())).alias("own"),
    )
    joined = grouped.join(orders, "queue", "left").withColumn("end", _end())
    # A journal begins at 0. If its first part is gone, a message of that time without events may be acknowledged.
    is_early = (F.col("oldest") > 0) & (F.col("put_at") < F.col("since"))
    is_forgotten = is_early & (F.size("own") == 1) & (F.col("end.state") == "waiting")
    outcome = F.when(is_forgotten, "unknown").otherwise(F.col("end.state"))
    return joined.select(
        "queue",
        "message",
        outcome.alias("outcome"),
        "put_at",
        "first_leased_at",
        "acked_at",
        F.when(outcome.isin(*CLOSED), F.col("end.since")).alias("ended_at"),
        _seconds_between("due_at", "first_leased_at").alias("wait_s"),
        _seconds_between("put_at", "acked_at").alias("ack_s"),
        F.when(
            (F.col("attempted_at") >= F.col("last_leased_at")) & (outcome != "leased"),
            _seconds_between("last_leased_at", "attempted_at"),
        ).alias("busy_s"),
        "attempts",
        "retries",
        "priority",
        "cause",
        "reason",
        F.col("end.gaps").alias("gaps"),
    )


def minutes(
    events: DataFrame, lives: DataFrame | None = None, seconds: int | None = None, span: Span | None = None
) -> DataFrame:
    """Return one row for each queue and minute, from the queue's first event to the last of all, without gaps.

    `seconds` is the length of such a minute. None chooses 60 or, if that made more than about 2880 rows for a queue, 10
    minutes, an hour or a day. `lives` is the result of `messages` and `span` that of `period`; if None, they are
    computed. `backlog` is how many messages were waiting or leased when the minute ended.
    """
    span = span or period(events)
    step = seconds or (bucket_seconds(*span) if span else 60)
    lives = messages(events) if lives is None else lives
    happened = events.select("queue", F.col("time").alias("at"), "event").withColumns(
        {"delta": F.lit(0), "wait_s": _nothing(), "ack_s": _nothing()}
    )
    changes = lives.select("queue", F.inline(_changes())).withColumn("event", F.lit(""))
    sparse = (
        happened.unionByName(changes)
        .where(F.col("at").isNotNull())
        .groupBy("queue", _bucket("at", step).alias("start"))
        .agg(
            *(_count(event).alias(event) for event in ("put", "leased", "acked")),
            _count(*_FAILED).alias("retries"),
            _count("dead-lettered").alias("dead"),
            _count("dropped").alias("dropped"),
            F.sum("delta").alias("delta"),
            _percentiles("wait_s").alias("wait"),
            _percentiles("ack_s").alias("ack"),
        )
    )
    by_queue = Window.partitionBy("queue").orderBy("start")
    interval = F.expr(f"INTERVAL {step} SECONDS")
    last = _bucket(F.timestamp_seconds(F.lit(span[1].timestamp() if span else 0.0)), step)
    # Each row fills the gap after it: no join with a calendar, and no more shuffles than the window needs.
    filled = (
        sparse.withColumn("next", F.coalesce(F.lead("start").over(by_queue) - interval, last))
        .withColumn("minute", F.explode(F.sequence("start", F.greatest("start", "next"), interval)))
        .withColumn("is_own", F.col("minute") == F.col("start"))
    )

    def own(name: str) -> Column:
        return F.when(F.col("is_own"), F.col(name)).otherwise(F.lit(0)).alias(name)

    def quantile(kind: str, place: int, name: str) -> Column:
        return F.when(F.col("is_own"), F.get(kind, F.lit(place))).alias(f"{kind}_{name}_s")

    return filled.select(
        "queue",
        "minute",
        F.lit(step).alias("seconds"),
        *map(own, ("put", "leased", "acked", "retries", "dead", "dropped")),
        (F.when(F.col("is_own"), F.col("acked")).otherwise(F.lit(0)) / F.lit(step)).alias("throughput"),
        *(quantile(kind, at, name) for kind in ("wait", "ack") for at, name in enumerate(("p50", "p95", "p99"))),
        F.sum(F.when(F.col("is_own"), F.col("delta")).otherwise(F.lit(0)))
        .over(Window.partitionBy("queue").orderBy("minute").rowsBetween(Window.unboundedPreceding, 0))
        .alias("backlog"),
    )


def summary(lives: DataFrame, letters: Collection[str] = ()) -> DataFrame:
    """Return one row for each queue, and totals with `queue` null: counts, times and attempts.

    There is one total of the working queues and one of the dead-letter queues, and none of both: a dead-lettered
    message would count twice. Dead-letter queues are those in `letters`, and those whose name ends with `.dead`.
    """
    took = F.unix_micros(F.max("acked_at")) - F.unix_micros(F.min("put_at"))
    is_letters = F.col("queue").endswith(".dead") | F.col("queue").isin(*letters)
    return (
        lives.withColumn("is_letters", is_letters)
        .rollup("is_letters", "queue")
        .agg(
            (F.grouping("queue") == 1).alias("is_total"),
            F.grouping("is_letters").alias("is_everything"),
            F.count("*").alias("messages"),
            *(F.count_if(F.col("outcome") == outcome).alias(outcome) for outcome in OUTCOMES),
            F.sum("retries").alias("retries"),
            F.sum("attempts").alias("attempts"),
            F.array(
                *(F.count_if(F.least("attempts", F.lit(ATTEMPTS)) == number) for number in range(1, ATTEMPTS + 1))
            ).alias("by_attempts"),
            _percentiles("wait_s").alias("wait"),
            _percentiles("ack_s").alias("ack"),
            _percentiles("busy_s").alias("busy"),
            (F.count("acked_at") * 1e6 / F.when(took > 0, took)).alias("throughput"),
        )
        .where("is_everything = 0")
        .drop("is_everything")
    )


def period(events: DataFrame) -> Span | None:
    """Return the times of the first and the last event; None if there are no events."""
    return _span(events.agg(*_ends()).collect()[0].asDict())


def with_period_and_count(events: DataFrame) -> tuple[DataFrame, Callable[[], tuple[Span | None, int]]]:
    """Return the events, and a function that returns their period and number.

    The function waits for the first action on the returned events, so call it after that.
    """
    seen = Observation()
    observed = events.observe(seen, *_ends(), F.count(F.lit(1)).alias("rows"))
    return observed, lambda: (_span(seen.get), int(seen.get["rows"]))


def bucket_seconds(first: datetime, last: datetime, *, chart: bool = False) -> int:
    """Return the shortest length of a bucket, of a fixed list, with which a table or a chart is not too long."""
    span = (last - first).total_seconds()
    lengths, most = (CHART, CHART_MAX) if chart else (TABLE, TABLE_MAX)
    return next((seconds for seconds in lengths if span <= seconds * most), lengths[-1])


def run(
    spark: SparkSession,
    data: str,
    *,
    queues: Annotated[str | None, "Names or patterns, separated by commas, as 'orders*,mail'; default: all."] = None,
    out: Annotated[
        str | None, "A folder for the tables and the report; default: reports/lifecycle in the store."
    ] = None,
    report: Annotated[bool, "Write report.html next to the tables."] = True,
) -> Result:
    """Write `events`, `messages` and `minutes` as Parquet and a report, in place of those of the last run."""
    from holdfast.spark.pipelines.report.lifecycle import write_lifecycle  # noqa: PLC0415 - it imports this module

    chosen = chosen_queues(data, queues)
    with Folder(out or default_folder(data, "lifecycle"), ("events", "messages", "minutes", "report.html")) as folder:
        # The store may be written to while this runs: one read is a snapshot, and all else is computed from it.
        found, extent_of = with_period_and_count(read_events(spark, data, chosen))
        found.write.parquet(folder.new("events"))
        span, count = extent_of()
        with sized_shuffles(spark, partitions_for(count)):
            events = spark.read.parquet(folder.new("events"))
            messages(events).write.parquet(folder.new("messages"))
            lives = spark.read.parquet(folder.new("messages"))
            minutes(events, lives, span=span).write.parquet(folder.new("minutes"))
            died = events.where("event = 'dead-lettered' AND target IS NOT NULL").select("target").distinct().collect()
            table = [row.asDict() for row in summary(lives, [row["target"] for row in died]).collect()]
            if report:
                write_lifecycle(folder.new("report.html"), events, lives, table, span)
    rows = sorted((row for row in table if not row["is_total"]), key=lambda row: (-row["messages"], row["queue"]))
    facts: dict[str, object] = {name: folder.path(name) for name in ("messages", "minutes", "events")}
    return Result(
        title="Message lifecycle",
        columns=[
            "queue",
            "messages",
            "acked",
            "open",
            "dead",
            "retries",
            "ack p50",
            "ack p95",
            "ack p99",
            "acked a second",
        ],
        rows=[
            (
                row["queue"],
                row["messages"],
                row["acked"],
                row["waiting"] + row["leased"],
                row["dead"] + row["dropped"],
                row["retries"],
                *(None if seconds is None else timedelta(seconds=seconds) for seconds in row["ack"] or [None] * 3),
                None if row["throughput"] is None else round(row["throughput"], 3),
            )
            for row in rows
        ],
        facts=({"report": folder.path("report.html")} if report else {}) | facts,
    )


def _ends() -> tuple[Column, Column]:
    # As numbers: a datetime from Spark is in the machine's time zone, without saying so.
    return F.min(F.unix_micros("time")).alias("first"), F.max(F.unix_micros("time")).alias("last")


def _span(ends: dict[str, int | None]) -> Span | None:
    first, last = ends["first"], ends["last"]
    return None if first is None or last is None else (moment(first), moment(last))


def _orders(events: DataFrame) -> DataFrame:
    """Return a row for each queue: its purges, seeks and cuts by time, and the position and time of its first event."""
    order = F.struct("time", F.lit(_LAST).alias("turn"), F.lit(9).alias("rank"), "event", "upto")
    is_order = F.col("message").isNull() & F.col("event").isin("purged", "sought", "cut")
    return (
        events.where(F.col("event") != "put")
        .groupBy("queue")
        .agg(
            F.sort_array(F.collect_list(F.when(is_order, order))).alias("orders"),
            F.min("position").alias("oldest"),
            F.min("time").alias("since"),
        )
    )


def _step() -> Column:
    """Return an event with its order among others of the same microsecond: its lease, then its kind."""
    event = F.col("event")
    turn = (
        F.when(event == "put", F.lit(0)).when(event.isin(*_GONE), F.lit(_LAST)).otherwise(F.coalesce("lease", F.lit(0)))
    )
    rank = F.when(event == "put", 0).when(event == "leased", 1).when(event == "moved", 3).otherwise(2)
    return F.when(
        event != "extended",
        F.struct(
            "time",
            turn.cast("long").alias("turn"),
            rank.alias("rank"),
            "event",
            F.col("upto").cast("long").alias("upto"),
        ),
    )


def _end() -> Column:
    """Return a message's state after all events of it and its queue, since when, and the gaps in between."""
    nowhere = F.struct(
        F.lit(None).cast("string").alias("state"),
        F.lit(None).cast("timestamp").alias("since"),
        F.array().cast("array<struct<left: timestamp, back: timestamp>>").alias("gaps"),
    )
    begin = F.get("own", F.lit(0))["time"]
    later = F.filter(F.coalesce("orders", F.array()), lambda order: order["time"] >= begin)

    def after(known: Column, step: Column) -> Column:
        state = _state(known["state"], step)
        is_back = known["state"].isin(*CLOSED) & state.isin(*OPEN)
        gap = F.struct(known["since"].alias("left"), step["time"].alias("back"))
        return F.struct(
            state.alias("state"),
            F.when(state.eqNullSafe(known["state"]), known["since"]).otherwise(step["time"]).alias("since"),
            F.when(is_back, F.concat(known["gaps"], F.array(gap))).otherwise(known["gaps"]).alias("gaps"),
        )

    return F.aggregate(F.sort_array(F.concat("own", later)), nowhere, after)


def _state(state: Column, step: Column) -> Column:
    """Return a message's state after the next event."""
    event, upto, message = step["event"], step["upto"], F.col("message")
    is_below = F.coalesce(message < upto, F.lit(True))
    return (
        F.when(event.isin("put", "released", *_FAILED), "waiting")
        .when(event.isin("leased", "acked", "redriven", "dropped"), event)
        .when(event == "dead-lettered", "dead")
        .when((event == "moved") & ~state.isin("dead", "redriven"), "dead")  # the event of its leaving was lost
        .when((event == "purged") & is_below & (state == "waiting"), "purged")
        .when((event == "sought") & ~is_below, "waiting")
        .when((event == "sought") & state.isin(*OPEN), "skipped")
        .otherwise(state)
    )


def _changes() -> Column:
    """Return the contributions of a message to the minutes: arrival, end, first lease, first ack."""

    def change(at: Column, delta: int, wait: Column, ack: Column) -> Column:
        return F.struct(at.alias("at"), F.lit(delta).alias("delta"), wait.alias("wait_s"), ack.alias("ack_s"))

    # Without its put, or without its end, the time in the queue is unknown: it does not count in the backlog.
    is_known = F.col("put_at").isNotNull() & (F.col("outcome") != "unknown")
    return F.concat(
        F.array(
            change(F.when(is_known, F.col("put_at")), 1, _nothing(), _nothing()),
            change(F.when(is_known, F.col("ended_at")), -1, _nothing(), _nothing()),
            change(F.col("first_leased_at"), 0, F.col("wait_s"), _nothing()),
            change(F.col("acked_at"), 0, _nothing(), F.col("ack_s")),
        ),
        F.transform("gaps", lambda gap: change(F.when(is_known, gap["left"]), -1, _nothing(), _nothing())),
        F.transform("gaps", lambda gap: change(F.when(is_known, gap["back"]), 1, _nothing(), _nothing())),
    )


def _ends_an_attempt() -> Column:
    by_lease = (F.col("event") == "dead-lettered") & (F.coalesce("lease", F.lit(0)) != 0)
    by_attempts = (F.col("event") == "dropped") & F.col("cause").isin("attempts", "rejected")
    return F.col("event").isin("acked", "released", *_FAILED) | by_lease | by_attempts


def _when(event: str) -> Column:
    return F.when(F.col("event") == event, F.col("time"))


def _count(*events: str) -> Column:
    return F.count_if(F.col("event").isin(*events))


def _nothing() -> Column:
    return F.lit(None).cast("double")


def _percentiles(name: str) -> Column:
    return F.percentile_approx(name, _QUANTILES, _ACCURACY)


def _seconds_between(start: str, end: str) -> Column:
    micros = F.unix_micros(end) - F.unix_micros(start)
    return F.when(micros < 0, 0.0).otherwise(micros / 1e6)  # log and journal each have a monotonic clock of their own


def _bucket(at: str | Column, seconds: int) -> Column:
    return F.timestamp_seconds(F.floor(F.unix_seconds(at) / seconds) * seconds)
