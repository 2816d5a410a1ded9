"""The `holdfast queues` and `stats` commands: all queues in one table, or one in detail."""

import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from holdfast.base.clock import NS
from holdfast.base.units import format_count, format_duration, format_rate, iso_time, plural
from holdfast.cli.completion import complete_queues
from holdfast.cli.open_store import seen_as, store_to_read
from holdfast.cli.options import DataOption, JsonOption
from holdfast.cli.output import Name, abbreviate, make_table, output_console, safe_text, show, write_json
from holdfast.cli.warnings import DamageNotices
from holdfast.queue import Queue, QueueSettings, QueueStats
from holdfast.remote.queue import RemoteQueue
from holdfast.remote.store import RemoteStore

__all__ = ["list_queues", "stats", "stats_panel"]

_LATELY_S = 60
_TICK_S = 1.0
_NARROW = 66
"""Width of a terminal that a name and all figures need."""
_FRAME = 8
"""Columns that the frame of a panel takes from its title."""


def list_queues(data: DataOption = Path("data"), as_json: JsonOption = False) -> None:
    """List all queues of a store.

    `oldest` is the age of the oldest ready message; `acked` counts since the queue was created. If a queue is paused,
    a column `state` shows it. Long names are abbreviated on a terminal; --json prints them in full.

    Works while another process has the store open.
    """
    with store_to_read(data) as store:
        queues = [store.queue(name) for name in store.queues()]
        found = [queue.stats() for queue in queues]
        if as_json:
            paced = seen_as(RemoteStore, store) is not None
            rows = [_json(queue, figures, watched=paced) for queue, figures in zip(queues, found, strict=True)]
            write_json({"queues": rows})
        elif found:
            show(_queue_table(found))
        else:
            show(f"no queues in {str(data)!r} yet")
        for queue in queues:
            DamageNotices(queue.log).show()


def stats(
    name: Annotated[
        str | None,
        typer.Argument(metavar="QUEUE", autocompletion=complete_queues, help="The queue; all of them if omitted."),
    ] = None,
    data: DataOption = Path("data"),
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Refresh every second until Ctrl-C; adds rates.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show counts, totals and settings of a queue, or of all queues.

    Works while another process has the store open; figures that only that process has are null in JSON.
    """
    with store_to_read(data) as store:
        queues = [store.queue(each) for each in ([name] if name is not None else store.queues())]
        paced = watch or seen_as(RemoteStore, store) is not None  # a server measures rates all the time
        if as_json:
            for _ in _moments(watch=watch):
                found = [_json(queue, queue.stats(), watched=paced) for queue in queues]
                write_json(found[0] if name is not None else {"queues": found})
        elif not queues:
            show(f"no queues in {str(data)!r} yet")
        elif watch and output_console().is_terminal:
            with Live(console=output_console(), auto_refresh=False) as live:
                for _ in _moments(watch=True):
                    live.update(_panels(queues, watched=True), refresh=True)
        else:
            for _ in _moments(watch=watch):
                show(_panels(queues, watched=paced))
        for queue in queues:
            DamageNotices(queue.log).show()


def stats_panel(queue: Queue, figures: QueueStats, *, watched: bool) -> RenderableType:
    """Return the counts, totals and settings of a queue. `watched`: it was open long enough to know its rates."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim", overflow="fold")

    def row(what: str, figure: int, note: str = "", style: str = "bold") -> None:
        table.add_row(what, Text(format_count(figure), style if figure else "dim"), Text(note))

    age, due = figures.oldest_age, figures.next_due
    row("ready", figures.ready, "" if age is None else f"oldest: {format_duration(age)}", "bold green")
    left = 0.0 if due is None else max(0, due - queue.log.clock.time_ns()) / NS
    row("delayed", figures.delayed, "" if due is None else f"next due in {format_duration(left)}")
    row("leased", figures.leased, f"in {plural(figures.leases, 'lease')}" if figures.leases else "", "bold yellow")
    row("dead", figures.dead, f"see holdfast dlq {safe_text(figures.name)}" if figures.dead else "", "bold red")
    if figures.moving:
        row("moving", figures.moving, "being moved to another queue")
    table.add_row()
    lately = "now" if watched else "in the last minute"
    row("put", _put_total(queue), f"{format_rate(_put_rate(queue, figures, watched=watched))} {lately}", "")
    row("delivered", figures.total_leased, f"{format_rate(figures.lease_rate)} now" if watched else "", "")
    row("acked", figures.total_acked, f"{format_rate(figures.ack_rate)} now" if watched else "", "")
    row("retried", figures.total_nacked + figures.total_expired, _failures(figures), "")
    if figures.total_dead:
        row("dead-lettered", figures.total_dead, "", "")
    if figures.total_dropped:
        row("dropped", figures.total_dropped, "expired, over the length limit, damaged or purged", "")
    rows: list[RenderableType] = [table, Text(), Text(_settings(queue.settings), "dim")]
    if figures.paused:
        rows.append(Text(f"paused: delivers nothing until holdfast resume {safe_text(figures.name)}", "yellow"))
    if figures.dedup_shortened:
        rows.append(Text(_shortened(figures, queue.settings), "yellow"))
    if figures.orphans:
        rows.append(Text(f"{plural(figures.orphans, 'dangling state row')} repaired", "yellow"))
    title = safe_text(figures.name) + ("" if figures.log == figures.name else f" on the log {safe_text(figures.log)}")
    console = output_console()
    if not console.is_terminal:
        return Group(Text(title), *rows)
    return Panel(
        Group(*rows),
        title=Text(f" {abbreviate(title, console.width - _FRAME, ellipsis='...')} ", "bold"),
        title_align="left",
        box=box.ROUNDED,
        padding=(0, 2),
        expand=False,
    )


def _panels(queues: list[Queue], *, watched: bool) -> RenderableType:
    panels = [stats_panel(queue, queue.stats(), watched=watched) for queue in queues]
    if output_console().is_terminal:
        return Group(*panels)
    return Group(*(part for panel in panels for part in (panel, Text())))


def _moments(*, watch: bool) -> Iterator[None]:
    """Yield once, or each second forever."""
    yield
    while watch:
        time.sleep(_TICK_S)
        yield


def _put_rate(queue: Queue, figures: QueueStats, *, watched: bool) -> float:
    """Return messages put per second: measured if the queue was watched, else of the last minute in the log."""
    if watched:
        return figures.put_rate
    log = queue.log
    return (log.end - log.sequence_at(log.clock.time_ns() - _LATELY_S * NS)) / _LATELY_S


def _put_total(queue: Queue) -> int:
    remote = seen_as(RemoteQueue, queue)
    return queue.log.end if remote is None else remote.put_total


def _failures(figures: QueueStats) -> str:
    parts = [(figures.total_nacked, "nacked"), (figures.total_expired, "lease expired")]
    return ", ".join(f"{format_count(count)} {what}" for count, what in parts if count)


def _settings(settings: QueueSettings) -> str:
    lease = format_duration((settings.nanoseconds("lease") or 0) / NS)
    attempts = "any number of attempts" if settings.max_attempts is None else plural(settings.max_attempts, "attempt")
    fate = f", then dead-lettered to {safe_text(settings.dead_letter)}" if settings.dead_letter is not None else ""
    parts = [f"lease {lease}", f"{attempts}{fate if settings.max_attempts is not None else ''}"]
    if (ttl := settings.nanoseconds("ttl")) is not None:
        parts.append(f"time to live {format_duration(ttl / NS)}")
    if settings.max_length is not None:
        parts.append(f"at most {plural(settings.max_length, 'message')} ({settings.overflow})")
    return "; ".join(parts)


def _shortened(figures: QueueStats, settings: QueueSettings) -> str:
    wanted = format_duration((settings.nanoseconds("dedup_window") or 0) / NS)
    return (
        f"deduplication covers {format_duration(figures.dedup_window)} instead of {wanted}: "
        f"at most {format_count(settings.dedup_limit)} ids are kept (dedup_limit)"
    )


def _queue_table(found: list[QueueStats]) -> Table:
    with_log = any(figures.log != figures.name for figures in found)
    with_state = any(figures.paused for figures in found)
    # On a terminal that is too narrow for all figures and a name, the least important figures are left out.
    narrow = output_console().width < _NARROW
    columns = ["ready", "leased", "dead"] if narrow else ["ready", "delayed", "leased", "dead", "oldest", "acked"]
    names, states = ["queue", *(["log"] if with_log else [])], ["state"] if with_state else []
    table = make_table(*names, *columns, *states, numbers=columns)
    for figures in found:
        cells: dict[str, RenderableType] = {
            "ready": format_count(figures.ready),
            "delayed": format_count(figures.delayed),
            "leased": format_count(figures.leased),
            "dead": Text(format_count(figures.dead), "red" if figures.dead else ""),
            "oldest": "-" if figures.oldest_age is None else format_duration(figures.oldest_age),
            "acked": format_count(figures.total_acked),
        }
        cells["queue"], cells["log"] = Name(figures.name), Name(figures.log)
        cells["state"] = Text("paused", "yellow") if figures.paused else "-"
        table.add_row(*(cells[column] for column in (*names, *columns, *states)))
    return table


def _json(queue: Queue, figures: QueueStats, *, watched: bool = False) -> dict[str, Any]:
    content = asdict(figures) | {"next_due_time": iso_time(figures.next_due), "duplicates": None}
    content["put_rate"] = round(_put_rate(queue, figures, watched=watched), 3)
    for name in ("lease_rate", "ack_rate"):
        content[name] = round(content[name], 3) if watched else None
    return content
