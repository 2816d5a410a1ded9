"""The HTML report of the deadletters pipeline, and reasons as all reports show them."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from holdfast.spark.pipelines.lifecycle import Span, bucket_seconds
from holdfast.spark.pipelines.report.formatting import (
    clock,
    count,
    few,
    length,
    moment,
    plural,
    rate,
    share,
    short,
    span,
)
from holdfast.spark.pipelines.report.page import Card, Example, Page, Plot, Reason, Section
from holdfast.spark.pipelines.report.plots import Series, bars, rates, strip

__all__ = ["blame", "deadletters_page", "shown_reasons"]

Row = dict[str, Any]

QUEUES = 8
"""Queues in the plot by queue."""
_SAID_MAX = 120
_NOTES = (
    ("failure", "a delivery that was nacked or whose lease expired, or a message that was dropped"),
    (
        "reason",
        "the reason that the consumer gave, with placeholders: <n>, <hex>, <uuid>, <text>, <path>, <time>, ...",
    ),
    ("share", "of all failures of the same queue"),
    ("per hour", "over the whole period of this page"),
    ("dead", "messages that were dead-lettered or dropped for this reason"),
)


def _headline(totals: dict[str, int], by_text: dict[str, int]) -> str:
    failed, dead = totals["failures"], totals["dead"]
    main, most = max(by_text.items(), key=lambda item: item[1])
    return (
        f"{_deliveries(failed)} failed, for {plural(totals['reasons'], 'reason')}; "
        f"{'all' if most == failed else count(most)} of them because “{_short(main)}”. "
        + (plural(dead, "message") if dead else "No message")
        + f" {'were' if dead > 1 else 'was'} dead-lettered or dropped."
    )


def deadletters_page(
    reasons: Sequence[Row],
    totals: dict[str, int],
    extent: Span | None,
    times: Sequence[tuple[int, int, int]],
) -> Page:
    """Return the page: the main reasons from `top_reasons`, the totals, and their times from `over_time`."""
    title = "Failed messages"
    if extent is None or not reasons:
        when = "no events" if extent is None else span(*extent)
        return Page(
            "dead letters",
            title,
            when,
            f"No delivery failed in {plural(totals['queues'], 'queue')}, and no message was dropped.",
        )
    failed, dead = totals["failures"], totals["dead"]
    by_text: dict[str, int] = {}
    by_queue: dict[str, int] = {}
    for row in reasons:
        by_text[row["reason"]] = by_text.get(row["reason"], 0) + row["failures"]
        by_queue[row["queue"]] = by_queue.get(row["queue"], 0) + row["failures"]
    shown = sum(row["failures"] for row in reasons)
    detail = ""
    if shown < failed:
        part = share(shown, failed)
        detail = f"The {count(len(reasons))} most frequent reasons are shown; they cover {part} of all failures."
        detail += " The others are in the Parquet tables next to this page."
    targets = sorted({target for row in reasons for target in row["targets"]})
    concerned = sorted(by_queue, key=lambda queue: (-by_queue[queue], queue))
    hours = max(1.0, (extent[1] - extent[0]).total_seconds()) / 3600
    cards = [
        Card("failures", short(failed), rate(failed / hours, "h"), "bad"),
        Card("reasons", short(totals["reasons"]), "kinds of failure"),
        Card("dead", short(dead), f"to {few(targets, 2)}" if targets else "no dead letters", "bad" if dead else ""),
        Card("queues", short(len(concerned)), f"of {count(totals['queues'])}: {few(concerned, 2)}"),
    ]
    seconds = bucket_seconds(*extent, chart=True)
    starts = [moment(at * 1_000_000) for at, _, _ in times]
    series = [Series("failures", "failed", [number for _, number, _ in times])]
    series += [Series("dead or dropped", "ink", [number for _, _, number in times])]
    over = rates("failures over time", starts, seconds, series, "failures")
    parts = [(queue, by_queue[queue], "failed") for queue in concerned[:QUEUES]]
    note = (
        f"The {QUEUES} with most failures, of {count(len(concerned))}."
        if len(concerned) > QUEUES
        else "Of the reasons shown below."
    )
    plots = [
        Plot("Failures over time", over, f"Failed deliveries and dropped messages; each step is {length(seconds)}."),
        Plot("Failures by queue", bars("failures by queue", parts, "failures"), note),
    ]
    lead = f"Most frequent first. The small charts go from {clock(extent[0])} to {clock(extent[1])} UTC."
    return Page(
        kind="dead letters",
        title=title,
        period=span(*extent),
        headline=_headline(totals, by_text),
        detail=detail,
        cards=cards,
        sections=[
            Section("When and where", plots=plots),
            Section("Reasons", lead, reasons=shown_reasons(reasons, extent)),
        ],
        notes=_NOTES,
    )


def shown_reasons(reasons: Sequence[Row], extent: Span) -> list[Reason]:
    """Return reasons for a page: counted, with a small histogram and examples."""
    most = max((row["failures"] for row in reasons), default=1)
    return [
        Reason(
            queue=row["queue"],
            text=row["reason"],
            failures=count(row["failures"]),
            share=f"({share(row['share'], 1)})",
            part=row["failures"] / most,
            strip=strip(f"failures from {clock(extent[0])} to {clock(extent[1])} UTC", row["strip"]),
            facts=_facts(row),
            examples=[
                Example(example["message"], example["said"], example["text"], _size(example["size"]))
                for example in row["examples"]
                if "text" in example
            ],
        )
        for row in reasons
    ]


def blame(reasons: Sequence[Row], queue: str | None, lost: int) -> str:
    """Return the main reason of the lost messages, as the end of a sentence; empty if it is unknown."""
    dead: Counter[str] = Counter()
    for row in reasons:
        if queue in (None, row["queue"]):
            dead[row["reason"]] += row["dead"]
    if not dead.total():
        return ""
    worst, number = dead.most_common(1)[0]
    part = "" if number >= lost else "most of them " if number * 2 > lost else f"{count(number)} of them "
    return f", {part}because “{_short(worst)}”"


def _facts(row: Row) -> list[tuple[str, str]]:
    facts = [
        ("messages", count(row["messages"])),
        ("dead", count(row["dead"])),
        ("rate", rate(row["per_hour"], "h")),
        ("first seen", clock(moment(row["first_seen"]))),
        ("last seen", clock(moment(row["last_seen"]))),
    ]
    if row["targets"]:
        facts.append(("dead letters go to", few(row["targets"])))
    if any("text" not in example for example in row["examples"]):
        facts.append(("for example message", few([str(example["message"]) for example in row["examples"]])))
    return facts


def _deliveries(number: int) -> str:
    return "1 delivery" if number == 1 else f"{count(number)} deliveries"


def _short(reason: str) -> str:
    return reason if len(reason) <= _SAID_MAX else reason[: _SAID_MAX - 1] + "…"


def _size(size: int | None) -> str:
    return "" if size is None else f"{count(size)} B" if size < 10_000 else f"{short(size)}B"
