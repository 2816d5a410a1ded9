"""The `holdfast log cat` and `tail` commands: print a range of a log, or its end and new records."""

import re
from collections.abc import Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.log.printing import RecordPrinter
from holdfast.cli.open_store import log_to_read
from holdfast.cli.options import DataOption, FormatChoice, JsonOption, NameArgument, pattern_option, time_option
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
        typer.Option("--since", parser=time_option, metavar="TIME", help="From 2026-11-15T12:00:00Z, or from 15m ago."),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option("--until", parser=time_option, metavar="TIME", help="Up to, not including, this time."),
    ] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="The newest first.")] = False,
    limit: Annotated[int | None, typer.Option("--limit", min=0, metavar="N", help="At most so many records.")] = None,
    grep: Annotated[
        re.Pattern[str] | None,
        typer.Option("--grep", parser=pattern_option, metavar="REGEX", help="Only where the payload matches."),
    ] = None,
    form: Annotated[
        FormatChoice,
        typer.Option(
            "--format", help="text escapes what is not printable; raw is the bytes, a newline between records."
        ),
    ] = FormatChoice.TEXT,
    as_json: JsonOption = False,
) -> int:
    """Print records, also while another process writes them.

    Times are in UTC. Damage that is met is told at the end, and the exit code is then 1.
    """
    with log_to_read(data, name) as log:
        printer = RecordPrinter(form, json=as_json, newline_between=True)
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
            help="The last so many; with --name the next so many.",
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on as records arrive, until Ctrl-C.")] = False,
    tailer_name: Annotated[
        str | None,
        typer.Option("--name", metavar="TAILER", help="Start where this tailer stopped, and keep where it stops."),
    ] = None,
    form: Annotated[
        FormatChoice,
        typer.Option("--format", help="text escapes what is not printable; raw is the bytes, a newline after each."),
    ] = FormatChoice.TEXT,
    as_json: JsonOption = False,
) -> int:
    """Print the last records, and with -f those that arrive.

    Works while another process writes.

    With --name nothing is skipped: a record counts as read when it was printed. A new tailer starts at the beginning.
    """
    with log_to_read(data, name) as log, log.tailer(tailer_name) as tailer:
        printer = RecordPrinter(form, json=as_json)
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


def _print_on(tailer: Tailer, printer: RecordPrinter, damage: DamageNotices, count: int | None) -> None:
    """Print to the present end, or `count` records, and commit the position of what was certainly printed."""
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
    # surrogateescape lets the pattern see text as text and still reach payloads that are not.
    return (record for record in records if pattern.search(record.payload.decode("utf-8", "surrogateescape")))
