"""The `holdfast purge` and `seek` commands, which show their consequences and ask before they act."""

from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from holdfast.base.errors import InvalidArgument
from holdfast.base.units import format_count, plural
from holdfast.cli.confirm import ask
from holdfast.cli.open_store import queue_to_change
from holdfast.cli.options import DataOption, JsonOption, QueueArgument, UsageError, YesOption, time_option
from holdfast.cli.output import show, write_json
from holdfast.cli.warnings import DamageNotices
from holdfast.queue import Queue, QueueStats

__all__ = ["purge", "seek"]


def purge(
    name: QueueArgument, data: DataOption = Path("data"), yes: YesOption = False, as_json: JsonOption = False
) -> None:
    """Drop all waiting messages of a queue.

    Ready and delayed messages are dropped, leased ones are not. The log keeps them for a while: `seek` brings them
    back.
    """
    with queue_to_change(data, name) as queue:
        figures = queue.stats()
        waiting = figures.ready + figures.delayed
        if waiting:
            held = f"; {format_count(figures.leased)} leased stay" if figures.leased else ""
            ask(
                f"Drop {plural(waiting, 'message')} of {name!r} ({format_count(figures.ready)} ready, "
                f"{format_count(figures.delayed)} delayed{held})?",
                action=f"purge {name!r}",
                yes=yes,
            )
        purged = queue.purge()
        damage = DamageNotices(queue.log)
    if as_json:
        write_json({"queue": name, "purged": purged})
    else:
        show(f"dropped {plural(purged, 'message')} of {name!r}")
    damage.show()


def seek(
    name: QueueArgument,
    data: DataOption = Path("data"),
    to: Annotated[int | None, typer.Option("--to", min=0, metavar="ID", help="Move to this message.")] = None,
    when: Annotated[
        datetime | None,
        typer.Option(
            "--time",
            parser=time_option,
            metavar="TIME",
            help="Move to the first message put at this time or later: 2026-11-15T12:00:00Z, or 2h for two hours ago.",
        ),
    ] = None,
    start: Annotated[bool, typer.Option("--start", help="Move to the first message that the log still has.")] = False,
    end: Annotated[bool, typer.Option("--end", help="Move past the last message.")] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Move the position of a queue in its log.

    Messages from there on are delivered, again if necessary. Earlier messages count as acknowledged.

    Leases become void and attempts start again. The command shows the consequences and asks for confirmation.
    """
    if (to is not None) + (when is not None) + start + end != 1:
        raise UsageError("pass one of --to ID, --time TIME, --start or --end")
    with queue_to_change(data, name) as queue:
        position = _position(queue, to, when, start=start)
        figures = queue.stats()
        delivered = queue.log.end - position
        again, dropped = _consequences(queue, figures, position)
        question = _question(name, position, delivered, again, dropped, figures)
        ask(question, action=f"move {name!r} to {position}", yes=yes)
        queue.seek(position)
        damage = DamageNotices(queue.log)
    if as_json:
        write_json({"queue": name, "position": position, "to_deliver": delivered, "again": again, "given_up": dropped})
    else:
        show(f"moved {name!r} to {position}: {plural(delivered, 'message')} to deliver")
    damage.show()


def _position(queue: Queue, to: int | None, when: datetime | None, *, start: bool) -> int:
    log = queue.log
    if to is not None:
        if not log.start <= to <= log.end:
            kept = f"holds {log.start} to {log.end - 1}" if log.end > log.start else "is empty"
            raise InvalidArgument(f"cannot seek to {to}: the log {log.name!r} {kept}")
        return to
    if when is not None:
        return log.sequence_at(when)
    return log.start if start else log.end


def _consequences(queue: Queue, figures: QueueStats, position: int) -> tuple[int | None, int | None]:
    """Return how many acknowledged messages are delivered again, and how many others are dropped.

    None if only a search through the whole queue could show it.
    """
    waiting = _waiting(figures)
    oldest = queue.log.end - figures.lag
    if position <= oldest:
        return queue.log.end - position - waiting, 0
    return (0, waiting) if position == queue.log.end else (None, None)


def _question(
    name: str, position: int, delivered: int, again: int | None, dropped: int | None, figures: QueueStats
) -> str:
    parts = [f"{plural(delivered, 'message')} to deliver" + (f", {format_count(again)} of them again" if again else "")]
    if dropped is None:
        parts.append(f"of {format_count(_waiting(figures))} unacknowledged messages, those before it are dropped")
    elif dropped:
        parts.append(f"{plural(dropped, 'message')} dropped")
    if figures.leased:
        parts.append(f"{plural(figures.leases, 'lease')} void")
    return f"Move {name!r} to {position}: {'; '.join(parts)}. Continue?"


def _waiting(figures: QueueStats) -> int:
    return figures.ready + figures.delayed + figures.leased + figures.moving
