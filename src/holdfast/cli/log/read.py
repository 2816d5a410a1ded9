"""The `holdfast log cat` and `tail` commands: print a range of a log, or its end and new records."""

import re
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.log.printing import record_printer
from holdfast.cli.open_store import log_to_read
from holdfast.cli.options import DataOption, FormatChoice, JsonOption, NameArgument, pattern_option, time_option
from holdfast.cli.printing import Printer
from holdfast.cli.warnings import DamageNotices
from holdfast.log import Log, Record, Tailer

__all__ = ["cat", "tail"]

_BATCH = 500
_PATIENCE_S = 1.0


def cat(
    name: NameArgument,
    data: DataOption = Path("data"),
    start: Annotated[int | None, typer.Option("--start", min=0, metavar="N", help="The first sequence.")] = None,
    stop: Annotated[
        int | None, typer.Option("--stop", min=0, metavar="N", help="Up to, not including, this sequence.")
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            "--since",
            parser=time_option,
            metavar="TIME",
            help="From this time: 2026-11-15T12:00:00Z, or 15m for 15 minutes ago.",
        ),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option("--until", parser=time_option, metavar="TIME", help="Up to, not including, this time."),
    ] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="Print the newest record first.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=0, metavar="N", help="Print at most N records.")] = None,
    grep: Annotated[
        re.Pattern[str] | None,
        typer.Option("--grep", parser=pattern_option, metavar="REGEX", help="Only records whose payload matches."),
    ] = None,
    form: Annotated[
        FormatChoice,
        typer.Option(
            "--format", help="text: unprintable characters escaped; raw: the bytes, with a newline between records."
        ),
    ] = FormatChoice.TEXT,
    as_json: JsonOption = False,
) -> int:
    """Print records of a log.

    Times are in UTC. Damage is reported at the end, and the exit code is then 1. Works while another process writes.
    """
    with log_to_read(data, name) as log:
        printer = record_printer(form, json=as_json, newline_between=True)
        damage = DamageNotices(log)
        first, end = _stretch(log, start, stop, since, until)
        records = log.read(first, end, reverse=reverse)
        if grep is not None:
            records = _matching(records, grep)
        for record in islice(records, limit):
            printer.print(record)
        printer.flush()
        return 1 if damage.show() else 0


def tail(
    name: NameArgument,
    data: DataOption = Path("data"),
    count: Annotated[
        int | None,
        typer.Option(
            "-n",
            "--lines",
            min=0,
            metavar="N",
            show_default="10; with --name all",
            help="Print the last N records; with --name the next N.",
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Also print new records, until Ctrl-C.")] = False,
    tailer_name: Annotated[
        str | None,
        typer.Option("--name", metavar="TAILER", help="Continue at the stored position of this tailer, and update it."),
    ] = None,
    form: Annotated[
        FormatChoice,
        typer.Option(
            "--format", help="text: unprintable characters escaped; raw: the bytes, with a newline after each record."
        ),
    ] = FormatChoice.TEXT,
    as_json: JsonOption = False,
) -> int:
    """Print the last records of a log and, with -f, new ones as they arrive.

    With --name no record is skipped: a record counts as read when it was printed. A new tailer starts at the beginning.

    Works while another process writes.
    """
    with log_to_read(data, name) as log, log.tailer(tailer_name) as tailer:
        printer = record_printer(form, json=as_json)
        damage = DamageNotices(log)
        if tailer_name is None:
            first, end = log.readable()
            tailer.seek(max(first, end - (10 if count is None else count)))
            count = None
        _print_on(tailer, printer, damage, count)
        while follow and count is None:
            log.wait_for(tailer.position, _PATIENCE_S)
            _print_on(tailer, printer, damage, None)
        return 1 if damage.show() else 0


def _print_on(tailer: Tailer, printer: Printer[Record], damage: DamageNotices, count: int | None) -> None:
    """Print to the current end, or `count` records, and commit the position after the printed records."""
    left = count
    while left is None or left > 0:
        records = tailer.read_many(_BATCH if left is None else min(left, _BATCH))
        if not records:
            break
        for record in records:
            printer.print(record)
        printer.flush()
        if tailer.name is not None:
            tailer.commit()
        left = None if left is None else left - len(records)
    damage.show()


def _stretch(
    log: Log, start: int | None, stop: int | None, since: datetime | None, until: datetime | None
) -> tuple[int, int]:
    first, end = log.readable()
    if start is not None:
        first = max(first, start)
    if stop is not None:
        end = min(end, stop)
    if since is not None:
        first = max(first, log.sequence_at(since))
    if until is not None:
        end = min(end, log.sequence_at(until))
    return first, end


def _matching(records: Iterator[Record], pattern: "re.Pattern[str]") -> Iterator[Record]:
    # surrogateescape lets the pattern match text, and still search payloads that are not valid UTF-8.
    return (record for record in records if pattern.search(record.payload.decode("utf-8", "surrogateescape")))
