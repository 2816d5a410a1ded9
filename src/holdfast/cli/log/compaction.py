"""The `holdfast log compact` and `clear` commands: drop old segments, and report which tailer keeps others."""

from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from holdfast.base.units import format_count, format_size, format_time, plural
from holdfast.cli.open_store import log_to_change
from holdfast.cli.options import DataOption, JsonOption, NameArgument, UsageError, duration_option, size_option
from holdfast.cli.output import make_table, show, write_json
from holdfast.cli.warnings import DamageNotices
from holdfast.log import LogStats, Retention, SegmentStats

__all__ = ["clear", "compact"]


def compact(
    name: NameArgument,
    data: DataOption = Path("data"),
    max_age: Annotated[
        timedelta | None,
        typer.Option(
            "--max-age",
            parser=duration_option,
            metavar="AGE",
            help="Drop segments older than this: 7d, 12h; 60 is seconds.",
        ),
    ] = None,
    max_bytes: Annotated[
        int | None,
        typer.Option(
            "--max-bytes", parser=size_option, metavar="SIZE", help="Drop until the log is this small: 10GiB."
        ),
    ] = None,
    max_segments: Annotated[
        int | None, typer.Option("--max-segments", min=1, metavar="N", help="Drop until N segments are left.")
    ] = None,
    min_segments: Annotated[
        int, typer.Option("--min-segments", min=1, metavar="N", help="Keep at least N segments.")
    ] = 1,
    force: Annotated[
        bool, typer.Option("--force", help="Also drop segments that named tailers have not read yet.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Drop old segments, the oldest first, until the log is within all limits.

    Only complete segments are dropped: never the one being written nor, without --force, one that a named tailer has
    not read yet.
    """
    if max_age is None and max_bytes is None and max_segments is None:
        raise UsageError("pass a limit: --max-age, --max-bytes or --max-segments")
    policy = Retention(max_age=max_age, max_bytes=max_bytes, max_segments=max_segments, min_segments=min_segments)
    with log_to_change(data, name) as log:
        damage = DamageNotices(log)
        before = log.segments()
        log.compact(retention=policy, force=force)
        after = log.stats()
        held = log.compact(retention=policy, force=True, dry_run=True)
        kept = {row.name for row in log.segments()}
    gone = [row for row in before if row.name not in kept]
    if as_json:
        left = {"start": after.start, "end": after.end, "bytes": after.bytes, "segments": after.segments}
        totals = {
            "segments": len(gone),
            "records": sum(row.records for row in gone),
            "bytes": sum(row.bytes for row in gone),
            "segment_files": [asdict(row) for row in gone],
        }
        write_json({"log": name, "dropped": totals, "left": left, "held_back": held})
        damage.show()
        return
    _show_dropped(gone)
    show(f"left: {plural(after.records, 'record')}, {format_size(after.bytes)} in {plural(after.segments, 'segment')}")
    if held:
        show(_held_back(after, held))
    damage.show()


def _show_dropped(gone: list[SegmentStats]) -> None:
    if not gone:
        show("nothing to drop")
        return
    table = make_table("dropped", "first", "records", "size", "created", numbers=("first", "records", "size"))
    for row in gone:
        table.add_row(
            row.name, str(row.first), format_count(row.records), format_size(row.bytes), format_time(row.created)
        )
    show(table, "")
    records, size = sum(row.records for row in gone), sum(row.bytes for row in gone)
    show(f"dropped {plural(len(gone), 'segment')}: {plural(records, 'record')}, {format_size(size)}")


def _held_back(after: LogStats, held: int) -> str:
    slowest = min(after.tailers, key=lambda tailer: tailer.position)
    return (
        f"{plural(held, 'segment')} more would be dropped, but the tailer {slowest.name!r} has not read record "
        f"{slowest.position} yet (see --force, and holdfast log tailers --forget)"
    )


def clear(
    name: NameArgument,
    data: DataOption = Path("data"),
    force: Annotated[
        bool, typer.Option("--force", help="Also drop records that named tailers have not read yet.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Drop all records of a log; sequences continue.

    Without --force, records that a named tailer has not read yet are kept.
    """
    with log_to_change(data, name) as log:
        before = log.start
        log.clear(force=force)
        start, end = log.start, log.end
    if as_json:
        write_json({"log": name, "dropped": start - before, "start": start, "end": end})
    else:
        show(
            f"dropped {plural(start - before, 'record')}; {format_count(end - start)} left, the next sequence is {end}"
        )
