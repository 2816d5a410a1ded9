"""The HTML report of the lifecycle pipeline: a summary in words, plots and tables."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from holdfast.spark.pipelines import deadletters
from holdfast.spark.pipelines.lifecycle import ATTEMPTS, OUTCOMES, Span, bucket_seconds, minutes
from holdfast.spark.pipelines.report.dead_letters import blame, shown_reasons
from holdfast.spark.pipelines.report.formatting import (
    clock,
    count,
    duration,
    length,
    micros,
    moment,
    plural,
    rate,
    share,
    short,
    span,
)
from holdfast.spark.pipelines.report.page import Card, Page, Plot, Section, Table, write
from holdfast.spark.pipelines.report.plots import Series, bars, columns, latency, level, rates

__all__ = ["lifecycle_page", "write_lifecycle"]

Row = dict[str, Any]

DETAILS = 5
"""Queues that are shown in detail: the busiest."""
LISTED = 40
"""Queues in the table."""
REASONS = 8

_ROLES = {"acked": "acked", "dead": "failed", "dropped": "failed", "waiting": "backlog", "leased": "put"}
_SUMMED = ("put", "leased", "acked", "retries", "dead", "dropped", "backlog")
_NOTES = (
    ("open", "waiting, or leased to a consumer"),
    ("waiting", "ready for delivery or delayed, for the first time or after a failure"),
    (
        "dead",
        "moved to the dead-letter queue; dropped: removed without that, by expiry, the queue's length limit or damage",
    ),
    ("retry", "a delivery that failed (nacked, or its lease expired) and was returned to the queue"),
    ("attempt", "a delivery; those that were released untried do not count"),
    ("time to first lease", "from the put, or from the end of a delay, to the first delivery"),
    ("time to ack", "from the put to the first ack, including waiting, failures and backoff"),
    ("p50, p95, p99", "half, 95 % and 99 % took at most this long"),
    ("backlog", "messages that were waiting or leased at the end of an interval"),
    ("throughput", "acked messages a second, from the first put to the last ack"),
)


def write_lifecycle(path: str, events: DataFrame, lives: DataFrame, table: Sequence[Row], extent: Span | None) -> None:
    """Collect the aggregates for the page, and write it."""
    if extent is None:
        write(path, lifecycle_page(None, [], {}, [], []))
        return
    working = _working(_busiest(table))
    names = [row["queue"] for row in working[:DETAILS]]
    slots = minutes(events, lives, bucket_seconds(*extent, chart=True), extent).withColumn(
        "at", F.unix_seconds("minute")
    )
    slots.persist()  # a few rows for each queue, used twice
    times: dict[str | None, list[Row]] = {name: [] for name in names}
    for row in slots.where(F.col("queue").isin(names)).orderBy("queue", "at").collect():
        times[row["queue"]].append(row.asDict())
    summed = slots.join(F.broadcast(_named(slots, working)), "queue").groupBy("at", "seconds")
    total = summed.agg(*(F.sum(name).alias(name) for name in _SUMMED)).orderBy("at")
    times[None] = [row.asDict() for row in total.collect()]
    slots.unpersist()
    failed = deadletters.failures(events)
    first, last = map(micros, extent)
    groups = deadletters.reasons(failed, max(1.0, (extent[1] - extent[0]).total_seconds()) / 3600)
    reasons = deadletters.top_reasons(groups, failed, first, last, REASONS)
    write(path, lifecycle_page(extent, table, times, reasons, names))


def lifecycle_page(
    extent: Span | None,
    table: Sequence[Row],
    times: dict[str | None, list[Row]],
    reasons: Sequence[Row],
    names: Sequence[str],
) -> Page:
    """Return the page: the rows of `summary`, the minutes of the chosen queues (None: of all), and the main reasons."""
    title = "Message lifecycle"
    if extent is None or not table:
        nothing = "There are no events yet: no message was put into these queues."
        return Page("lifecycle", title, "no events", nothing)
    queues = _busiest(table)
    total = _total(table)
    only = queues[0] if len(queues) == 1 else None
    row = only or total
    sections = []
    working = _working(queues)
    subject = only["queue"] if only else f"{count(len(working))} queues" if len(working) > 1 else working[0]["queue"]
    if only is None:
        sections.append(_overview(total, queues, times[None]))
    by_name = {queue["queue"]: queue for queue in queues}
    sections += [_queue(by_name[name], times[name], reasons, alone=only is not None) for name in names]
    if reasons:
        lead = "Failures that differ only in numbers, ids, names in quotes, paths or times are counted as one."
        whole = f"The small charts go from {clock(extent[0])} to {clock(extent[1])} UTC."
        sections.append(Section("Why deliveries failed", f"{lead} {whole}", reasons=shown_reasons(reasons, extent)))
    plural_verb = only is None and len(working) > 1
    return Page(
        kind="lifecycle",
        title=f"{title}: {subject}",
        period=span(*extent),
        headline=_headline(subject, row, reasons, many=plural_verb),
        detail=_detail(working, names),
        cards=_cards(row),
        sections=sections,
        notes=_NOTES,
    )


def _busiest(table: Sequence[Row]) -> list[Row]:
    """Return the queues, working queues first, then by how many messages were put."""
    queues = [row for row in table if not row["is_total"]]
    return sorted(queues, key=lambda row: (row["is_letters"], -row["messages"], row["queue"]))


def _working(queues: Sequence[Row]) -> list[Row]:
    """Return the queues that are not for dead letters; all if there are no others."""
    return [queue for queue in queues if not queue["is_letters"]] or list(queues)


def _named(frame: DataFrame, queues: Sequence[Row]) -> DataFrame:
    return frame.sparkSession.createDataFrame([(queue["queue"],) for queue in queues], "queue string")


def _total(table: Sequence[Row]) -> Row:
    totals = sorted((row for row in table if row["is_total"]), key=lambda row: bool(row["is_letters"]))
    return totals[0]


def _headline(subject: str, row: Row, reasons: Sequence[Row], *, many: bool) -> str:
    """Return a summary in words."""
    taken, acked = row["messages"], row["acked"]
    said = f"{subject} received {plural(taken, 'message')}"
    if acked == taken:
        said += ", and all were acknowledged" if taken > 1 else ", and it was acknowledged"
    elif acked:
        said += f", and {count(acked)} of them {'was' if acked == 1 else 'were'} acknowledged"
    else:
        said += ", and none is acknowledged so far"
    if row["ack"]:
        half, _, slow = row["ack"]
        said += f"; half within {duration(half)}"
        said += f", 99 of 100 within {duration(slow)}" if duration(slow) != duration(half) else ""
    said += "."
    lost = row["dead"] + row["dropped"]
    if lost:
        why = blame(reasons, None if many else row["queue"], lost)
        said += f" {count(lost)} {'was' if lost == 1 else 'were'} dead-lettered or dropped{why}."
    elif row["retries"]:
        failed = plural(row["retries"], "delivery").replace("deliverys", "deliveries")
        said += f" {failed} failed and returned to the queue, but no message was dead-lettered or dropped."
    else:
        said += " No delivery failed."
    left = row["waiting"] + row["leased"]
    if left:
        said += f" {count(left)} {'is' if left == 1 else 'are'} still open"
        said += f", {count(row['leased'])} of them leased." if row["leased"] else "."
    return said


def _detail(queues: Sequence[Row], names: Sequence[str]) -> str:
    """Return a note about the queues without details."""
    left = [queue for queue in queues if queue["queue"] not in names]
    if not left:
        return ""
    whole = sum(queue["messages"] for queue in queues)
    part = share(sum(queue["messages"] for queue in left), whole)
    others = "One more" if len(left) == 1 else f"The other {count(len(left))}"
    return (
        f"The {count(len(names))} busiest queues are shown in detail. {others} received {part} of all messages; "
        f"see the overview, and the tables next to this page."
    )


def _cards(row: Row) -> list[Card]:
    taken = row["messages"]
    half, most, slow = (duration(seconds) for seconds in row["ack"] or [None] * 3)
    lost = row["dead"] + row["dropped"]
    return [
        Card("messages", short(taken), f"{rate(row['throughput'])} acked"),
        Card("acked", short(row["acked"]), share(row["acked"], taken), "good" if row["acked"] else ""),
        Card("open", short(row["waiting"] + row["leased"]), f"{count(row['leased'])} leased"),
        Card("dead", short(lost), share(lost, taken), "bad" if lost else ""),
        Card("retries", short(row["retries"]), f"{row['attempts'] / taken:.2f} attempts each"),
        Card("time to ack", half, f"p95 {most}, p99 {slow}"),
    ]


def _overview(total: Row, queues: Sequence[Row], times: Sequence[Row]) -> Section:
    shown = queues[:LISTED]
    note = ""
    if len(queues) > len(shown):
        rest = queues[LISTED:]
        more = plural(sum(row["messages"] for row in rest), "message")
        note = f"{count(len(rest))} more queues with {more} are not listed."
    rows = [
        [
            row["queue"],
            *(short(row[name]) for name in ("messages", "acked")),
            short(row["waiting"] + row["leased"]),
            short(row["dead"] + row["dropped"]),
            short(row["retries"]),
            duration((row["wait"] or [None])[0]),
            *(duration(seconds) for seconds in row["ack"] or [None] * 3),
            rate(row["throughput"]),
        ]
        for row in shown
    ]
    letters = sum(queue["is_letters"] for queue in queues)
    lead = "All queues together, then queue by queue."
    if letters and letters < len(queues):
        lead += " Dead-letter queues are in the table, but not in plots and sums: their messages would count twice."
    names = ["queue", "messages", "acked", "open", "dead", "retries", "first lease p50"]
    names += ["ack p50", "ack p95", "ack p99", "throughput"]
    plots = [*_flow("all queues", times), *_shape("all queues", total)]
    return Section("All queues", lead, plots=plots, table=Table(names, rows, note=note))


def _queue(row: Row, times: Sequence[Row], reasons: Sequence[Row], *, alone: bool) -> Section:
    name = row["queue"]
    plots = [*_flow(name, times), *_waits(name, times), *_shape(name, row)]
    if alone:
        return Section(name, plots=plots, is_queue=True)
    return Section(name, _headline("It", row, reasons, many=False), _cards(row), plots, is_queue=True)


def _flow(name: str, times: Sequence[Row]) -> list[Plot]:
    starts, seconds = _axis(times)
    what = f"{name}: messages put, acked and failed over time"
    series = [
        Series("put", "put", [row["put"] for row in times]),
        Series("acked", "acked", [row["acked"] for row in times]),
        Series("failed", "failed", [row["retries"] + row["dead"] + row["dropped"] for row in times]),
    ]
    backlog = level(f"{name}: backlog over time", starts, seconds, [row["backlog"] for row in times], "messages open")
    each = f"each step is {length(seconds)}"
    return [
        Plot("Throughput", rates(what, starts, seconds, series), f"Put, acked and failed; {each}."),
        Plot("Backlog", backlog, "Waiting or leased at the end of each step."),
    ]


def _waits(name: str, times: Sequence[Row]) -> list[Plot]:
    starts, seconds = _axis(times)
    found = []
    for kind, title, note in (
        ("ack", "Time to ack", "From put to ack, by the time of the ack."),
        ("wait", "Time to first lease", "From when a message could be delivered, by the time of its delivery."),
    ):
        series = [Series(p, p, [row[f"{kind}_{p}_s"] for row in times]) for p in ("p50", "p95", "p99")]
        if any(value is not None for line in series for value in line.values):
            svg = latency(f"{name}: {title.lower()}, percentiles over time", starts, seconds, series, title.lower())
            found.append(Plot(title, svg, note))
    return found


def _shape(name: str, row: Row) -> list[Plot]:
    parts = [(outcome, row[outcome], _ROLES.get(outcome, "quiet")) for outcome in OUTCOMES]
    always = {"acked", "waiting", "dead"}
    parts = [part for part in parts if part[1] or part[0] in always]
    plots = [Plot("Outcomes", bars(f"{name}: outcomes", parts, "messages"), "The state of each message at the end.")]
    if any(row["by_attempts"]):
        classes = [*map(str, range(1, ATTEMPTS)), f"{ATTEMPTS}+"]
        most = max(3, *(place for place, number in enumerate(row["by_attempts"], 1) if number))
        svg = columns(f"{name}: attempts a message", classes[:most], row["by_attempts"][:most], "attempts", "messages")
        plots.append(Plot("Attempts", svg, "Deliveries of each message."))
    return plots


def _axis(times: Sequence[Row]) -> tuple[list[datetime], int]:
    return [moment(row["at"] * 1_000_000) for row in times], times[0]["seconds"]
