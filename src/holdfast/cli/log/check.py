"""The `holdfast log verify` and `inspect` commands: check all checksums, or show one position of a segment."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from holdfast.base.units import format_count, format_duration, format_instant, format_size, plural
from holdfast.cli.completion import complete_logs
from holdfast.cli.log.printing import record_json
from holdfast.cli.open_store import log_to_read, seen_as, store_to_read
from holdfast.cli.options import DataOption, JsonOption, NameArgument, UsageError
from holdfast.cli.output import Name, byte_progress, details, make_table, safe_text, short_name, show, write_json
from holdfast.log import Inspection, Log, Verification
from holdfast.log.record_location import locate
from holdfast.remote.log import RemoteLog

__all__ = ["inspect", "verify"]

_PAYLOAD_SHOWN = 400
_PACE_MIN_S = 0.05  # below this, start-up dominates and a rate would mislead


def verify(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", autocompletion=complete_logs, help="The log; all of them if omitted."),
    ] = None,
    data: DataOption = Path("data"),
    as_json: JsonOption = False,
) -> int:
    """Verify every checksum of one log or of all logs.

    Changes nothing, and works while another process writes. The exit code is 1 if anything is damaged.
    """
    results: dict[str, Verification] = {}
    with store_to_read(data) as store:
        logs = [store.log(each) for each in ([name] if name is not None else store.logs())]
        began = time.perf_counter()
        with byte_progress(shown=not as_json) as progress:
            for log in logs:
                bar = progress.add_task(f"verifying {short_name(log.name)}", total=None)
                results[log.name] = log.verify(
                    lambda done, total, bar=bar: progress.update(bar, completed=done, total=total)  # type: ignore[misc]
                )
                progress.remove_task(bar)
        seconds = time.perf_counter() - began
    whole = all(result.ok for result in results.values())
    if as_json:
        logs_json = [{"log": each, "ok": result.ok} | asdict(result) for each, result in results.items()]
        write_json({"ok": whole, "seconds": round(seconds, 6), "logs": logs_json})
    elif not results:
        show(f"no logs in {str(data)!r} yet")
    else:
        _show_results(results, seconds)
    return 0 if whole else 1


def _show_results(results: dict[str, Verification], seconds: float) -> None:
    table = make_table(
        "log", "segments", "blocks", "records", "size", "result", numbers=("segments", "blocks", "records", "size")
    )
    for name, result in results.items():
        table.add_row(
            Name(name),
            format_count(result.segments),
            format_count(result.blocks),
            format_count(result.records),
            format_size(result.bytes),
            Text("intact", "green") if result.ok else Text(f"damaged: {len(result.damage)}", "bold red"),
        )
    show(table)
    damaged = [(name, damage) for name, result in results.items() for damage in result.damage]
    if damaged:
        positions = make_table("log", "file", "byte", "length", "lost", "reason", numbers=("byte", "length"))
        positions.columns[1].no_wrap = True
        for name, one in damaged:
            lost = "unknown" if one.lost is None else "none" if one.lost == 0 else plural(one.lost, "record")
            if one.lost and one.first_lost is not None:
                lost += f" from {one.first_lost}"
            file = Path(one.path).name
            positions.add_row(Name(name), file, str(one.offset), str(one.length), lost, one.reason)
        show("", positions)
    size = sum(result.bytes for result in results.values())
    pace = f" ({format_size(size / seconds)}/s)" if seconds >= _PACE_MIN_S else ""
    show("", f"{format_size(size)} checked in {format_duration(seconds)}{pace}")


def inspect(
    name: NameArgument,
    data: DataOption = Path("data"),
    offset: Annotated[int | None, typer.Option("--offset", min=0, metavar="BYTE", help="Show what is here.")] = None,
    segment: Annotated[
        str | None, typer.Option("--segment", metavar="S", help="The segment of --offset, as 20261115-0001 (the last).")
    ] = None,
    sequence: Annotated[int | None, typer.Option("--sequence", min=0, metavar="N", help="Find this record.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what is at a byte of a segment, or where a record is stored."""
    if (offset is None) == (sequence is None):
        raise UsageError("pass --offset BYTE or --sequence N")
    if sequence is not None and segment is not None:
        raise UsageError("--segment is for --offset: --sequence finds the segment itself")
    with log_to_read(data, name) as log:
        found = _locate(log, sequence) if sequence is not None else log.inspect(offset or 0, segment)
    if as_json:
        record = None if found.record is None else record_json(found.record)
        write_json(
            {
                "path": found.path,
                "offset": found.offset,
                "what": found.what,
                "details": found.details,
                "record": record,
            }
        )
    else:
        _show_inspection(found)


def _locate(log: Log, sequence: int) -> Inspection:
    remote = seen_as(RemoteLog, log)
    return locate(log, sequence) if remote is None else remote.locate(sequence)


def _show_inspection(found: Inspection) -> None:
    rows: dict[str, Any] = {"file": found.path, "byte": str(found.offset), "what": Text(found.what, "bold")}
    for name, value in found.details.items():
        shown = ", ".join(map(str, value)) if isinstance(value, list) else value
        rows[name.replace("_", " ")] = "none" if shown is None or shown == "" else str(shown)
    record = found.record
    if record is not None:
        rows["time"] = format_instant(record.timestamp)
        if record.key is not None:
            rows["key"] = Text(safe_text(record.key))
        for header, value in record.headers.items():
            rows[f"header {safe_text(header)}"] = Text(safe_text(value))
        text = safe_text(record.payload[:_PAYLOAD_SHOWN])
        rows["payload"] = Text(text + (" ..." if len(record.payload) > _PAYLOAD_SHOWN else ""))
        rows["payload size"] = plural(len(record.payload), "byte")
    show(details(rows))
