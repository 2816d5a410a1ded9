"""Report on failed and dead-lettered messages, grouped by normalised reason, with examples.

    holdfast pipeline deadletters --data data
    holdfast pipeline deadletters --data data --queues orders --no-payload

"order 4711: no customer 'Ann'" and "order 4712: no customer 'Bob'" are one failure, not two: `normalised` maps both to
one text. It is a chain of Spark's own regular expressions, because they run where the data is, in the JVM; a Python
UDF, even over Arrow, would send every reason to a Python process and back for the same result.
"""

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from holdfast.spark.pipelines import Result
from holdfast.spark.pipelines.lifecycle import bucket_seconds, read_events, with_period_and_count
from holdfast.spark.pipelines.output_folder import Folder, chosen_queues, default_folder
from holdfast.spark.pipelines.report.formatting import clean, count, micros, moment
from holdfast.spark.pipelines.report.page import write
from holdfast.spark.shuffles import partitions_for, sized_shuffles
from holdfast.spark.store_access import StoreAccess

__all__ = [
    "EXAMPLES",
    "SLOTS",
    "excerpt",
    "failures",
    "normalised",
    "over_time",
    "payloads",
    "reasons",
    "run",
    "top_reasons",
]

EXAMPLES = 3
"""Messages that are shown for each reason: those that failed last."""
SLOTS = 24
"""Intervals of the whole period in which failures are counted."""
REASON_MAX = 400
"""Characters of a reason that are used: the rest is usually a stack trace."""
EXCERPT = 160
"""Bytes of a payload that are shown."""
TOP = 50
"""Reasons in the report, with examples; the Parquet table has all of them."""

RULES = (
    (r"\s+", " "),
    (r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?(?:Z|UTC|[+-]\d{2}:?\d{2})\b)?", "<time>"),
    (r"\b\d{4}-\d{2}-\d{2}\b", "<date>"),
    (r"\b\d{1,2}:\d{2}:\d{2}(?:[.,]\d+)?\b", "<time>"),
    (r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b", "<uuid>"),
    (r"\b[a-z][a-z0-9+.-]{1,15}://[^\s'\"`<>()]+", "<url>"),
    (r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", "<email>"),
    (r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?\b", "<ip>"),
    (r"(?<![\w:])(?=[a-fA-F:]*\d)(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{0,4}(?![\w:])", "<ip>"),
    (r"(?<!\w)[bru]?(?:\"[^\"]*\"|'[^']*'|`[^`]*`)(?!\w)", "<text>"),
    (r"(?<![\w<])(?:[A-Za-z]:|~|\.{1,2})?(?:[/\\][\w.@~+-]+)+[/\\]?", "<path>"),
    (r"\b0[xX][0-9a-fA-F]+\b", "<hex>"),
    (r"\b(?=[0-9a-fA-F]*\d)(?=[0-9]*[a-fA-F])[0-9a-fA-F]{8,}\b", "<hex>"),
    (r"(?<![A-Za-z_\d])\d+(?:[.,]\d+)*(?:[eE][+-]?\d+)?", "<n>"),
    (r"(?<=[A-Za-z_])\d{4,}", "<n>"),  # order10023, but not utf8 or sha256
)
"""Patterns of varying parts of a reason, and their placeholders; applied in this order."""

_SAID = {"expired": "the lease ran out", "ttl": "its time to live was over", "overflow": "the queue was full"}
_SAID |= {"damaged": "its record is damaged"}
_SILENT = "no reason given"


def normalised(reason: Column) -> Column:
    """Return a reason with placeholders for numbers, ids, names in quotes, paths, times and addresses."""
    for pattern, placeholder in RULES:
        reason = F.regexp_replace(reason, F.lit(pattern), F.lit(placeholder))
    return F.trim(reason)


def failures(events: DataFrame) -> DataFrame:
    """Return a row for each event `nacked`, `expired`, `dead-lettered` or `dropped`.

    It has the reason as given (`said`) and normalised (`reason`). `is_dead` is true for the last two.
    """
    text = F.substring(F.trim("reason"), 1, REASON_MAX)
    by_cause = F.lit(_SILENT)
    for word, said in _SAID.items():
        by_cause = F.when((F.col("event") == word) | F.coalesce(F.col("cause") == word, F.lit(False)), said).otherwise(
            by_cause
        )
    given = F.when(F.length(text) > 0, text).otherwise(by_cause)
    return (
        events.where(F.col("event").isin("nacked", "expired", "dead-lettered", "dropped"))
        .select(
            "queue",
            "message",
            "time",
            F.col("event").isin("dead-lettered", "dropped").alias("is_dead"),
            F.when(F.col("event") == "dead-lettered", F.col("target")).alias("target"),
            given.alias("said"),
        )
        .withColumn("reason", normalised(F.col("said")))
    )


def reasons(failed: DataFrame, hours: float) -> DataFrame:
    """Return a row for each queue and reason: numbers of failures and messages, times, share, rate and examples.

    The examples are the messages that failed last. `hours` is the period of the rate. Messages are counted exactly:
    first by message, then by reason, so that no set of them is ever held in memory.
    """
    by_message = failed.groupBy("queue", "reason", "message").agg(
        F.count("*").alias("times"),
        F.max("is_dead").alias("is_dead"),
        F.min("time").alias("first"),
        F.max("time").alias("last"),
        F.max_by("said", "time").alias("said"),
        F.max("target").alias("target"),
    )
    example = F.struct("message", "said", "times", "last")
    latest = F.expr(f"max_by(example, struct(last, message), {EXAMPLES})")
    return (
        by_message.withColumn("example", example)
        .groupBy("queue", "reason")
        .agg(
            F.sum("times").alias("failures"),
            F.count("*").alias("messages"),
            F.count_if("is_dead").alias("dead"),
            F.min("first").alias("first_seen"),
            F.max("last").alias("last_seen"),
            F.sort_array(F.collect_set("target")).alias("targets"),
            latest.alias("examples"),
        )
        .withColumn("per_hour", F.col("failures") / F.lit(hours))
        .withColumn("share", F.col("failures") / F.sum("failures").over(Window.partitionBy("queue")))
    )


def top_reasons(groups: DataFrame, failed: DataFrame, first: int, last: int, most: int = TOP) -> list[dict[str, Any]]:
    """Collect the most frequent reasons as plain values for a report: times in microseconds, and a histogram."""
    rows = (
        groups.orderBy(F.desc("failures"), "queue", "reason")
        .limit(most)
        .withColumns({name: F.unix_micros(name) for name in ("first_seen", "last_seen")})
        .withColumn("examples", F.transform("examples", lambda e: F.struct(e["message"], e["said"], e["times"])))
        .collect()
    )
    if not rows:
        return []
    chosen = failed.sparkSession.createDataFrame(
        [(row["queue"], row["reason"]) for row in rows], "queue string, reason string"
    )
    width = max(1, last - first)
    slot = F.least(F.lit(SLOTS - 1), F.floor((F.unix_micros("time") - F.lit(first)) * SLOTS / F.lit(width)))
    counted = (
        failed.join(F.broadcast(chosen), ["queue", "reason"])
        .groupBy("queue", "reason", slot.cast("int").alias("slot"))
        .count()
        .collect()
    )
    found = {(row["queue"], row["reason"]): row.asDict(recursive=True) | {"strip": [0] * SLOTS} for row in rows}
    for queue, reason, place, number in counted:
        found[queue, reason]["strip"][max(0, place)] = number
    return list(found.values())


def over_time(failed: DataFrame, first: datetime, last: datetime) -> list[tuple[int, int, int]]:
    """Count failures for a chart: for each step from `first` to `last` its start, its failures and its dead among them.

    The start is in seconds since 1970. Steps without failures are included, with zeros.
    """
    step = bucket_seconds(first, last, chart=True)
    start = (F.floor(F.unix_seconds("time") / step) * step).alias("at")
    rows = failed.groupBy(start).agg(F.count("*").alias("failures"), F.count_if("is_dead").alias("dead")).collect()
    known = {row["at"]: (row["failures"], row["dead"]) for row in rows}
    begin, end = (int(at.timestamp()) // step * step for at in (first, last))
    return [(at, *known.get(at, (0, 0))) for at in range(begin, end + 1, step)]


def payloads(spark: SparkSession, data: str, wanted: dict[str, set[int]]) -> dict[tuple[str, int], tuple[str, int]]:
    """Collect excerpts and sizes of messages, by log and sequence. Those that a log has dropped are missing."""
    found: dict[tuple[str, int], tuple[str, int]] = {}
    for log, sequences in sorted(wanted.items()):
        records = spark.read.format("holdfast").option("path", data).option("log", log).load()
        rows = records.where(F.col("offset").isin(sorted(sequences))).select(
            "offset", excerpt(F.col("value")).alias("text"), F.octet_length("value").alias("size")
        )
        found |= {(log, offset): (text, size) for offset, text, size in rows.collect()}
    return found


def excerpt(value: Column, length: int = EXCERPT) -> Column:
    """Return the first bytes of a payload: as text if they are printable UTF-8, else in hex."""
    # The cut may divide a character, which has four bytes at most.
    tries = [F.try_validate_utf8(F.substring(value, 1, length - back)) for back in range(4)]
    whole = F.when(F.octet_length(value) <= length, tries[0]).otherwise(F.coalesce(*tries))
    is_text = ~F.rlike(whole, F.lit(r"[\x00-\x08\x0e-\x1f\x7f]"))
    plain = F.hex(F.substring(value, 1, length // 4))
    return F.when(is_text, whole).otherwise(F.concat(F.lit("0x"), F.lower(plain)))


def run(
    spark: SparkSession,
    data: str,
    *,
    queues: Annotated[str | None, "Names or patterns, separated by commas, as 'orders*,mail'; default: all."] = None,
    out: Annotated[
        str | None, "A folder for the tables and the report; default: reports/deadletters in the store."
    ] = None,
    report: Annotated[bool, "Write report.html next to the tables."] = True,
    payload: Annotated[bool, "Show the first bytes of some messages."] = True,
) -> Result:
    """Write `failures` and `reasons` as Parquet and a report, in place of those of the last run."""
    from holdfast.spark.pipelines.report.dead_letters import deadletters_page  # noqa: PLC0415 - it imports lifecycle

    chosen = chosen_queues(data, queues)
    with Folder(out or default_folder(data, "deadletters"), ("failures", "reasons", "report.html")) as folder:
        events, extent_of = with_period_and_count(read_events(spark, data, chosen))
        failures(events).write.parquet(folder.new("failures"))  # a snapshot of a store that is being written to
        span, events_read = extent_of()
        with sized_shuffles(spark, partitions_for(events_read)):
            failed = spark.read.parquet(folder.new("failures"))
            first, last = span or (moment(0), moment(0))
            hours = max(1.0, (last - first).total_seconds()) / 3600
            reasons(failed, hours).write.parquet(folder.new("reasons"))
            groups = spark.read.parquet(folder.new("reasons"))
            found = top_reasons(groups, failed, micros(first), micros(last))
            sums = groups.agg(F.sum("failures"), F.sum("dead"), F.count_distinct("reason"), F.count("*"))
            total, deaths, kinds, rows = sums.collect()[0]
            if payload:
                _add_payloads(spark, data, found)
            if report:
                totals = {"failures": total or 0, "dead": deaths or 0, "reasons": kinds, "queues": len(chosen)}
                times = over_time(failed, first, last) if found else []
                write(folder.new("report.html"), deadletters_page(found, totals, span, times))
    facts: dict[str, object] = {"failures": total or 0, "reasons": folder.path("reasons")}
    if rows > len(found):
        facts["left out"] = f"{count(rows - len(found))} rows of rarer reasons; the table has them"
    dead = sorted({row["queue"] for row in found if row["targets"]})
    if dead:
        facts["when it is mended"] = "; ".join(
            f"holdfast redrive {shlex.quote(queue)} --all" for queue in dead[:EXAMPLES]
        )
    return Result(
        title="Failed messages",
        columns=["queue", "reason", "failures", "share", "messages", "dead", "per hour", "last seen", "goes to"],
        rows=[
            (
                row["queue"],
                clean(row["reason"]),
                row["failures"],
                round(row["share"], 3),
                row["messages"],
                row["dead"],
                round(row["per_hour"], 2),
                moment(row["last_seen"]),
                row["targets"],
            )
            for row in found
        ],
        facts=({"report": folder.path("report.html")} if report else {}) | facts,
    )


def _add_payloads(spark: SparkSession, data: str, found: Sequence[dict[str, Any]]) -> None:
    with StoreAccess.of(data).open() as store:
        logs = {row["queue"]: store.log_of(row["queue"]) for row in found}
    wanted: dict[str, set[int]] = {}
    for row in found:
        wanted.setdefault(logs[row["queue"]], set()).update(example["message"] for example in row["examples"])
    known = payloads(spark, data, wanted)
    for row in found:
        for example in row["examples"]:
            example["text"], example["size"] = known.get((logs[row["queue"]], example["message"]), (None, None))
