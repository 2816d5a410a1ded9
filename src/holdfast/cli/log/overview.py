"""Commands that list logs, show one log with its segments, and list or delete named tailers."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.table import Table

from holdfast.base.errors import NotFound
from holdfast.base.units import format_count, format_size, format_time, iso_time
from holdfast.cli.open_store import log_to_read, store_to_read
from holdfast.cli.options import DataOption, JsonOption, NameArgument
from holdfast.cli.output import Name, details, make_table, output_console, safe_text, show, write_json
from holdfast.cli.warnings import DamageNotices
from holdfast.log import LogStats, TailerStats

__all__ = ["list_logs", "list_tailers", "stats"]

_SEGMENTS_SHOWN = 20
_NARROW, _WIDE = 70, 106
"""Widths of a terminal between which the list of logs has fewer columns. Below, each row is shown as several lines."""


def list_logs(data: DataOption = Path("data"), as_json: JsonOption = False) -> None:
    """List all logs of a store.

    Times are in UTC. A narrow terminal shows fewer columns, and long names abbreviated; --json prints everything.
    """
    with store_to_read(data) as store:
        logs = [store.log(name) for name in store.logs()]
        found = [log.stats() for log in logs]
    if as_json:
        write_json({"logs": [_json(stats) for stats in found]})
    elif found:
        show(_log_table(found))
    else:
        show(f"no logs in {str(data)!r} yet")
    for log in logs:
        DamageNotices(log).show()


def stats(name: NameArgument, data: DataOption = Path("data"), as_json: JsonOption = False) -> None:
    """Show one log with its segments and named tailers.

    Times are in UTC; the lag of a tailer is the number of records that it has not read yet.
    """
    with log_to_read(data, name) as log:
        figures = log.stats()
        rows = log.segments()
        damage = DamageNotices(log)
    if as_json:
        segments = [asdict(row) | {"created_time": iso_time(row.created)} for row in rows]
        write_json(_json(figures) | {"segment_files": segments})
        damage.show()
        return
    last = figures.end - 1
    show(
        details(
            {
                "log": safe_text(figures.name),
                "records": format_count(figures.records) + (f" ({figures.start} to {last})" if figures.records else ""),
                "size": _size(figures),
                "first record": format_time(figures.first_timestamp),
                "last record": format_time(figures.last_timestamp),
            }
        )
    )
    if rows:
        table = make_table("segment", "first", "records", "size", "created", numbers=("first", "records", "size"))
        hidden = max(0, len(rows) - _SEGMENTS_SHOWN)
        if hidden:
            table.add_row(f"({hidden} earlier)", "", "", "", "")
        for row in rows[hidden:]:
            size = format_size(row.bytes) + (" (replica)" if row.remote else "")
            table.add_row(row.name, str(row.first), format_count(row.records), size, format_time(row.created))
        show("", table)
    if figures.tailers:
        show("", _tailer_table(figures.tailers))
    damage.show()


def list_tailers(
    name: NameArgument,
    data: DataOption = Path("data"),
    forget: Annotated[
        str | None,
        typer.Option("--forget", metavar="TAILER", help="Delete its position, so that it keeps no segments any more."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the named tailers of a log, or delete one.

    Works while another process writes.
    """
    with log_to_read(data, name) as log:
        if forget is not None:
            if not log.positions.remove(forget):
                known = ", ".join(repr(position.name) for position in log.positions.all()) or "none"
                raise NotFound(f"the log {name!r} has no tailer {forget!r}; there are: {known}")
            if as_json:
                write_json({"log": name, "forgotten": forget})
            else:
                show(f"deleted the tailer {forget!r} of {name!r}")
            return
        tailers = log.stats().tailers
    if as_json:
        write_json({"log": name, "tailers": [_tailer_json(tailer) for tailer in tailers]})
    elif tailers:
        show(_tailer_table(tailers))
    else:
        show(f"the log {name!r} has no named tailers")


def _size(figures: LogStats) -> str:
    """Return the size of a log, and how much of it is on the local disk if that is not all."""
    if not figures.remote_bytes:
        return format_size(figures.bytes)
    local = figures.bytes - figures.remote_bytes
    return (
        f"{format_size(figures.bytes)}: {format_size(local)} here, {format_size(figures.remote_bytes)} in the replica"
    )


def _log_table(found: list[LogStats]) -> Table:
    numbers = ("records", "size", "segments", "tailers")
    columns = ["log", "records", "size", "segments", "first record", "last record", "tailers"]
    if _NARROW <= output_console().width < _WIDE:
        columns = [name for name in columns if name not in ("segments", "first record")]
    table = make_table(*columns, numbers=numbers)
    for stats in found:
        cells: dict[str, RenderableType] = {
            "log": Name(stats.name),
            "records": format_count(stats.records),
            "size": format_size(stats.bytes),
            "segments": format_count(stats.segments),
            "first record": format_time(stats.first_timestamp),
            "last record": format_time(stats.last_timestamp),
            "tailers": format_count(len(stats.tailers)),
        }
        table.add_row(*(cells[name] for name in columns))
    return table


def _tailer_table(tailers: list[TailerStats]) -> Table:
    table = make_table("tailer", "position", "lag", "committed", "owner", numbers=("position", "lag"))
    for tailer in tailers:
        table.add_row(
            Name(tailer.name),
            str(tailer.position),
            format_count(tailer.lag),
            format_time(tailer.committed_at),
            Name(tailer.owner or ""),
        )
    return table


def _tailer_json(tailer: TailerStats) -> dict[str, Any]:
    return asdict(tailer) | {"committed_time": iso_time(tailer.committed_at)}


def _json(figures: LogStats) -> dict[str, Any]:
    return asdict(figures) | {
        "first_time": iso_time(figures.first_timestamp),
        "last_time": iso_time(figures.last_timestamp),
        "tailers": [_tailer_json(tailer) for tailer in figures.tailers],
    }
