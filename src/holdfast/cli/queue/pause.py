"""The `holdfast pause`, `resume`, `leases` and `delayed` commands."""

from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.base.clock import NS
from holdfast.base.units import format_count, format_duration, format_time, iso_time, plural
from holdfast.cli.open_store import queue_to_change, queue_to_read
from holdfast.cli.options import DataOption, JsonOption, QueueArgument
from holdfast.cli.output import make_table, safe_text, show, write_json, write_json_lines
from holdfast.cli.printing import body_json
from holdfast.cli.warnings import notify
from holdfast.queue import Delayed, LeaseInfo

__all__ = ["delayed", "leases", "pause", "resume"]

_PREVIEW = 200
_IDS_SHOWN = 8


def pause(name: QueueArgument, data: DataOption = Path("data"), as_json: JsonOption = False) -> None:
    """Stop deliveries from a queue until it is resumed.

    The queue still accepts messages, and leased messages can be acknowledged. It stays paused after a restart.
    """
    with queue_to_change(data, name) as queue:
        was = queue.paused
        queue.pause()
    _show_paused(name, paused=True, was=was, as_json=as_json)


def resume(name: QueueArgument, data: DataOption = Path("data"), as_json: JsonOption = False) -> None:
    """Resume deliveries from a paused queue."""
    with queue_to_change(data, name) as queue:
        was = queue.paused
        queue.resume()
    _show_paused(name, paused=False, was=was, as_json=as_json)


def _show_paused(name: str, *, paused: bool, was: bool, as_json: bool) -> None:
    if as_json:
        write_json({"queue": name, "paused": paused, "was_paused": was})
    else:
        texts = {
            (True, False): "is paused: it delivers nothing until it is resumed",
            (True, True): "was paused already",
            (False, True): "is resumed",
            (False, False): "was not paused",
        }
        show(f"{name!r} {texts[paused, was]}")


def leases(
    name: QueueArgument,
    data: DataOption = Path("data"),
    count: Annotated[
        int, typer.Option("-n", "--count", min=1, metavar="N", help="Show at most N leases, the oldest first.")
    ] = 100,
    as_json: JsonOption = False,
) -> None:
    """List the leases of a queue: leased messages, since when, and when the lease expires.

    Times are in UTC. Works while another process has the store open.
    """
    with queue_to_read(data, name) as queue:
        found = queue.leases(count)
        now = queue.log.clock.time_ns()
    if as_json:
        write_json_lines(map(_lease_json, found))
        if not found:
            notify(f"{name!r} has no leases")
    elif not found:
        show(f"{name!r} has no leases")
    else:
        table = make_table("lease", "messages", "since", "expires in", "ids", numbers=("lease", "messages"))
        for one in found:
            left = one.expires_at - now
            ids = ", ".join(map(str, one.ids[:_IDS_SHOWN])) + (" ..." if one.count > _IDS_SHOWN else "")
            table.add_row(
                str(one.id),
                format_count(one.count),
                format_time(one.since),
                format_duration(left / NS) if left > 0 else "expired",
                ids,
            )
        show(table)


def _lease_json(lease: LeaseInfo) -> dict[str, Any]:
    return {
        "lease": lease.id,
        "count": lease.count,
        "ids": list(lease.ids[:100]),
        "since_at": lease.since,
        "since_time": iso_time(lease.since),
        "expires_at": lease.expires_at,
        "expires_time": iso_time(lease.expires_at),
    }


def delayed(
    name: QueueArgument,
    data: DataOption = Path("data"),
    count: Annotated[
        int, typer.Option("-n", "--count", min=1, metavar="N", help="Show at most N messages, the next due first.")
    ] = 20,
    as_json: JsonOption = False,
) -> None:
    """List the delayed messages of a queue, and when they are due.

    Times are in UTC. Works while another process has the store open.
    """
    with queue_to_read(data, name) as queue:
        found = queue.delayed(count)
        total = queue.counts().delayed
        now = queue.log.clock.time_ns()
    if as_json:
        write_json_lines(map(_delayed_json, found))
        if not found:
            notify(f"{name!r} has no delayed messages")
        return
    if not found:
        show(f"{name!r} has no delayed messages")
        return
    table = make_table("id", "due", "due in", "attempts", "payload", numbers=("id", "attempts"))
    for one in found:
        left = max(0, one.due_at - now) / NS
        payload = safe_text(one.payload[:_PREVIEW])
        table.add_row(str(one.id), format_time(one.due_at), format_duration(left), format_count(one.attempts), payload)
    show(table)
    if total > len(found):
        notify(f"these are the first {format_count(len(found))} of {plural(total, 'message')}: -n shows more")


def _delayed_json(one: Delayed) -> dict[str, Any]:
    return {
        "id": one.id,
        "due_at": one.due_at,
        "due_time": iso_time(one.due_at),
        "attempts": one.attempts,
        "priority": one.priority,
        "enqueued_at": one.enqueued_at,
        "enqueued_time": iso_time(one.enqueued_at),
        **body_json(one),
    }
