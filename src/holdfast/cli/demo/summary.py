"""The demo's summary: figures and promises of the run, as a table or as JSON."""

from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from holdfast.base.units import format_count, format_duration, format_size
from holdfast.cli.demo.results import Figures
from holdfast.cli.output import output_console

__all__ = ["scorecard", "scorecard_json"]


def scorecard(figures: Figures, seconds: float) -> RenderableType:
    """Return the summary as a table."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", no_wrap=True)

    def row(what: str, figure: str, note: str = "", style: str = "bold") -> None:
        table.add_row(what, Text(figure, style), note)

    lost_style = "bold green" if figures.lost == 0 else "bold red"
    row(
        "confirmed before kill -9", format_count(figures.confirmed), _pace(figures.confirmed, figures.confirmed_seconds)
    )
    row("found after kill -9", format_count(figures.found))
    row("confirmed and lost", format_count(figures.lost), style=lost_style)
    row("recovery time", format_duration(figures.recovery_seconds), f"{figures.cut_bytes} torn bytes removed")
    row("written after recovery", format_count(figures.resumed), _pace(figures.resumed, figures.resumed_seconds))
    delay = figures.follow_delay_ms
    note = "" if delay is None else f"median delay {format_duration(delay / 1000)}"
    row("read by another process", format_count(figures.followed), note)
    row("read by a named tailer", format_count(figures.read), _pace(figures.read, figures.read_seconds))
    row("found by time", format_duration(figures.time_seconds), f"record {format_count(figures.time_sequence)}")
    row(
        "checksums verified",
        format_count(figures.verified),
        f"{format_size(figures.bytes)} in {format_duration(figures.verify_seconds)}",
    )
    table.add_row()
    row("orders put into a queue", format_count(figures.orders), _pace(figures.orders, figures.put_seconds, "orders"))
    row(
        "shipped before kill -9",
        format_count(figures.shipped_before),
        _pace(figures.shipped_before, figures.shipped_before_seconds, "orders"),
    )
    row(
        "leased then, redelivered",
        format_count(figures.came_again),
        f"within {format_duration(figures.came_again_seconds)} of the kill",
    )
    wrong = figures.missing + figures.doubled
    row("shipped in total", format_count(figures.shipped))
    row("lost, or shipped twice", format_count(wrong), style="bold green" if wrong == 0 else "bold red")
    row("dead letters redriven", format_count(figures.redriven), f"after {figures.attempts} attempts")
    if figures.published:
        table.add_row()
        row("records in a table", format_count(figures.customers), _pace(figures.customers, figures.customers_seconds))
        row(
            "confirmed over AMQP",
            format_count(figures.published),
            _pace(figures.published, figures.published_seconds, "messages"),
        )
        row("served again after kill -9", format_duration(figures.restart_seconds))
        row(
            "backed up while served", format_size(figures.backup_bytes), f"in {format_duration(figures.backup_seconds)}"
        )
    console = output_console()
    unicode = console.encoding.startswith("utf")
    promises = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    for promise in figures.promises:
        mark = Text("\N{CHECK MARK}" if unicode else "ok", "green") if promise.kept else Text("BROKEN", "bold red")
        promises.add_row(mark, promise.text)
    verdict = "Nothing was lost, nothing was processed twice" if figures.ok else "A guarantee was broken"
    if not console.is_terminal:
        return Group(Text(verdict), Text(), table, Text(), promises)
    return Panel(
        Group(table, Text(), promises),
        title=Text(f" {verdict} ", "bold green" if figures.ok else "bold red"),
        subtitle=Text(f" all measured in this run of {format_duration(seconds)} ", "dim"),
        box=box.ROUNDED,
        border_style="green" if figures.ok else "red",
        padding=(1, 2),
        expand=False,
    )


def scorecard_json(figures: Figures, seconds: float) -> dict[str, Any]:
    """Return the summary as JSON."""
    content = {"ok": figures.ok, "seconds": seconds} | asdict(figures)
    return {name: round(value, 6) if isinstance(value, float) else value for name, value in content.items()}


def _pace(count: int, seconds: float, what: str = "records") -> str:
    return f"{format_count(count / max(seconds, 1e-9))} {what}/s"
