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
    """Drop every message that waits in a queue.

    Delayed ones too, but not those that are leased. The log still has them for a while: `seek` brings them back.
    """
    with queue_to_change(data, name) as queue:
        figures = queue.stats()
        waiting = figures.ready + figures.delayed
        if waiting:
            held = f"; {format_count(figures.leased)} leased stay" if figures.leased else ""
            ask(
                f"Drop {plural(waiting, 'message')} of {name!r} ({format_count(figures.ready)} ready, "
                f"{format_count(figures.delayed)} delayed{held})?",
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
    to: Annotated[int | None, typer.Option("--to", min=0, metavar="ID", help="The message to stand at.")] = None,
    when: Annotated[
        datetime | None,
        typer.Option(
            "--time",
            parser=time_option,
            metavar="TIME",
            help="The first message not put before 2026-11-15T12:00:00Z, or 2h ago.",
        ),
    ] = None,
    start: Annotated[bool, typer.Option("--start", help="The first message that the log has kept.")] = False,
    end: Annotated[bool, typer.Option("--end", help="Behind the last message.")] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Let a queue deliver from another place of its log on.

    What is from there on is delivered, be it again; what is before it counts as done.

    Leases are void and attempts start again. It says what that means, and asks, before it is done.
    """
    if (to is not None) + (when is not None) + start + end != 1:
        raise UsageError("say where to, once: --to ID, --time TIME, --start or --end")
    with queue_to_change(data, name) as queue:
        position = _position(queue, to, when, start=start)
        figures = queue.stats()
        delivered = queue.log.end - position
        again, given_up = _consequences(queue, figures, position)
        ask(_question(name, position, delivered, again, given_up, figures), yes=yes)
        queue.seek(position)
        damage = DamageNotices(queue.log)
    if as_json:
        write_json({"queue": name, "position": position, "to_deliver": delivered, "again": again, "given_up": given_up})
    else:
        show(f"{name!r} stands at {position}: {plural(delivered, 'message')} to deliver")
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

    None if only a search through the whole queue could tell.
    """
    waiting = _waiting(figures)
    oldest = queue.log.end - figures.lag
    if position <= oldest:
        return queue.log.end - position - waiting, 0
    return (0, waiting) if position == queue.log.end else (None, None)


def _question(
    name: str, position: int, delivered: int, again: int | None, given_up: int | None, figures: QueueStats
) -> str:
    parts = [f"{plural(delivered, 'message')} to deliver" + (f", {format_count(again)} of them again" if again else "")]
    if given_up is None:
        parts.append(f"of {format_count(_waiting(figures))} that are not done, those before it are given up")
    elif given_up:
        parts.append(f"{plural(given_up, 'message')} given up")
    if figures.leased:
        parts.append(f"{plural(figures.leases, 'lease')} void")
    return f"Let {name!r} stand at {position}? It means: {'; '.join(parts)}."


def _waiting(figures: QueueStats) -> int:
    return figures.ready + figures.delayed + figures.leased + figures.moving
