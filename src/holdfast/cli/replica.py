"""The `holdfast replica` commands: what a bucket holds of a store, without the store."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

import typer

from holdfast.base.units import format_size, format_time, iso_time, plural
from holdfast.cli.confirm import ask
from holdfast.cli.options import JsonOption, UsageError, YesOption, help_if_alone, time_option
from holdfast.cli.output import (
    byte_progress,
    details,
    error_console,
    make_table,
    progress_on,
    safe_text,
    show,
    write_json,
    write_json_lines,
)
from holdfast.cli.warnings import notify
from holdfast.replica.forget import forget
from holdfast.replica.inspection import ReplicaOverview, find_moments, overview, verify_replica
from holdfast.replica.owner import OwnerRecord
from holdfast.replica.promotion import promote
from holdfast.replica.standbys import StandbyRecord

__all__ = ["replica_commands"]

_SHOWN = 20

replica_commands = typer.Typer(
    invoke_without_command=True,
    callback=help_if_alone,
    help="Inspect and verify the replica of a store in object storage.",
)
_UrlArgument = Annotated[
    str,
    typer.Argument(
        metavar="URL",
        help="s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///folder; credentials come from "
        "the environment.",
    ),
]


@replica_commands.command("status")
def status(where: _UrlArgument, as_json: JsonOption = False) -> None:
    """Show the owner, the standbys, the epochs, the newest moment and the size of a replica."""
    found = overview(where)
    if as_json:
        owner = found.owner
        facts: dict[str, Any] = {**asdict(found), "oldest": _moment(found.oldest), "newest": _moment(found.newest)}
        facts["standbys"] = [{**asdict(one), "time": iso_time(one.time)} for one in found.standbys]
        facts["owner"] = None if owner is None else {**asdict(owner), "time": iso_time(owner.time)}
        write_json(facts)
    else:
        _show_status(found)


@replica_commands.command("moments")
def moments(where: _UrlArgument, as_json: JsonOption = False) -> None:
    """List the moments that can be restored, the oldest first. Times are in UTC, by the clock of the owner."""
    found = find_moments(where)
    if as_json:
        write_json_lines(map(_moment, found))
        return
    table = make_table("moment", "time")
    for one in found:
        table.add_row(one.name, format_time(one.time))
    show(table)


@replica_commands.command("verify")
def verify(
    where: _UrlArgument,
    moment: Annotated[
        str | None,
        typer.Option("--moment", metavar="MOMENT", show_default="the newest", help="Verify this moment."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Verify every moment.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Read every object of a moment and check every checksum. The exit code is 1 if one is damaged or missing."""
    if everything and moment is not None:
        raise UsageError("choose one: --all or --moment")
    with byte_progress(shown=not as_json) as progress:
        bar = progress.add_task("verifying", total=None)
        found = verify_replica(
            where,
            moment=moment,
            everything=everything,
            progress=lambda done, total: progress.update(bar, completed=done, total=total),
        )
    if as_json:
        write_json({"ok": found.ok, **asdict(found)})
        return 0 if found.ok else 1
    for problem in found.problems[:_SHOWN]:
        notify(f"damage: {problem}")
    if len(found.problems) > _SHOWN:
        notify(f"and {len(found.problems) - _SHOWN} more damaged objects")
    verdict = "intact" if found.ok else f"{plural(len(found.damaged), 'moment')} cannot be restored"
    show(
        f"{verdict}: {plural(found.moments, 'moment')}, {plural(found.objects, 'object')}, "
        f"{format_size(found.bytes)} checked"
    )
    return 0 if found.ok else 1


@replica_commands.command("promote")
def promote_command(
    where: _UrlArgument,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also if the owner lives: it hands over, or its claim runs out."),
    ] = False,
    standby: Annotated[
        str, typer.Option("--standby", metavar="ID", show_default="any", help="Which standby takes over.")
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """Let a standby take over, and wait until it has. Refused while the owner lives, without --force."""
    with progress_on(error_console(), shown=not as_json, in_bytes=False) as progress:
        bar = progress.add_task("waiting for a standby, in seconds", total=None)
        done = promote(
            where,
            force=force,
            standby=standby,
            progress=lambda waited, most: progress.update(bar, completed=round(waited), total=round(most)),
        )
    if as_json:
        write_json({"url": done.url, "before": _owner(done.before), "owner": _owner(done.owner)})
        return
    show(
        f"{safe_text(done.owner.place)} has taken over as epoch {done.owner.epoch}, from {safe_text(done.before.place)}"
    )


@replica_commands.command("forget")
def forget_command(
    where: _UrlArgument,
    before: Annotated[
        datetime | None,
        typer.Option(
            "--before",
            parser=time_option,
            metavar="TIME",
            help="Delete the moments before this time, except the newest of all.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Delete the whole replica.")] = False,
    yes: YesOption = False,
    force: Annotated[bool, typer.Option("--force", help="Also while the owner lives.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete kept moments with what only they need, or the whole replica. Refused while the owner lives."""
    if (before is None) != everything:
        raise UsageError("choose one: --before TIME or --all")
    if before is None:
        question = f"Delete the whole replica at {where}, with all its moments?"
    else:
        question = f"Delete the moments of {where} before {iso_time(int(before.timestamp() * 1e9))}?"
    ask(question, action="delete moments", yes=yes)
    with progress_on(error_console(), shown=not as_json, in_bytes=False) as progress:
        bar = progress.add_task("deleting", total=None)
        done = forget(
            where,
            before=before,
            everything=everything,
            force=force,
            progress=lambda number, total: progress.update(bar, completed=number, total=total),
        )
    if as_json:
        write_json(asdict(done))
        return
    show(
        f"deleted {plural(done.moments, 'moment')} and {plural(done.objects, 'object')}; "
        f"{plural(done.kept, 'moment')} left"
    )


def _owner(one: OwnerRecord) -> dict[str, Any]:
    return {**asdict(one), "time": iso_time(one.time)}


def _show_status(found: ReplicaOverview) -> None:
    owner = found.owner
    if owner is None:
        held = "nobody"
    else:
        until = "closed" if owner.released else "not closed, last renewed"
        held = f"{owner.place}, epoch {owner.epoch}, {until} {format_time(owner.time)}"
    show(
        details(
            {
                "replica": safe_text(found.url),
                "owner": safe_text(held),
                "standbys": safe_text("; ".join(map(_standby, found.standbys)) or "none"),
                "newest": f"{found.newest.name} of {format_time(found.newest.time)}",
                "oldest": f"{found.oldest.name} of {format_time(found.oldest.time)}",
                "moments": f"{found.moments} of {plural(len(found.epochs), 'epoch')}",
                "contents": ", ".join(
                    (plural(found.queues, "queue"), plural(found.logs, "log"), plural(found.tables, "table"))
                ),
                "size": f"{format_size(found.bytes)} in the newest moment; "
                f"{format_size(found.total_bytes)} in {plural(found.objects, 'object')} in all",
            }
        )
    )


def _standby(one: StandbyRecord) -> str:
    return f"{one.id} at {one.place} with {one.moment}, announced {format_time(one.time)}"


def _moment(one: Any) -> dict[str, Any]:
    return {"moment": one.name, "epoch": one.epoch, "number": one.number, "time": iso_time(one.time)}
