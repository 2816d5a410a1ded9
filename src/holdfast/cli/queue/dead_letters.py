"""The `holdfast dlq` and `redrive` commands: show, delete or move back the dead letters of a queue."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.base.units import format_count, format_instant, format_time, plural
from holdfast.cli.confirm import ask, at_a_terminal
from holdfast.cli.open_store import queue_to_change, queue_to_read, seen_as
from holdfast.cli.options import DataOption, JsonOption, QueueArgument, Target, UsageError, YesOption
from holdfast.cli.output import (
    details,
    make_table,
    output_console,
    safe_text,
    show,
    write_json,
    write_json_lines,
)
from holdfast.cli.queue.printing import dead_letter_json
from holdfast.cli.warnings import DamageNotices, notify
from holdfast.queue import DeadLetter, Queue
from holdfast.remote.queue import RemoteQueue

__all__ = ["dead_letter_table", "dlq", "redrive"]

_PREVIEW = 200
_SHOWN = 20
_COLUMNS = ["id", "old id", "attempts", "first failure", "last failure", "cause", "reason", "payload"]
_LESS = ("first failure", "cause")
_WIDE, _WIDEST = 110, 140
"""Widths of a terminal from which on all columns are shown, and times to the second."""


def dlq(
    name: QueueArgument,
    letter: Annotated[int | None, typer.Argument(metavar="ID", help="Show this dead letter in full.", min=0)] = None,
    data: DataOption = Path("data"),
    count: Annotated[
        int, typer.Option("-n", "--count", min=1, metavar="N", help="Show at most N, the oldest first.")
    ] = _SHOWN,
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete the dead letter ID, or all of the queue; asks for confirmation.")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show the dead letters of a queue and why they failed, or delete them.

    Times are in UTC; `old id` is the id that the message had in the queue.

    Works while another process has the store open, except --delete.
    """
    if delete:
        _delete(name, letter, data, yes=yes, as_json=as_json)
        return
    with queue_to_read(data, name) as queue:
        _where(queue)  # raises InvalidArgument if the queue has no dead-letter queue
        found = queue.dead_letters(None if letter is not None else count + 1)  # one more, to know if there are more
        if letter is not None:
            _check_ids(queue, found, [letter])
            found = [each for each in found if each.id == letter]
        more = len(found) > count
        del found[count:]
        damage = DamageNotices(queue.log)
    if as_json:
        write_json_lines(map(dead_letter_json, found))
        if not found:
            notify(_none(name))
    elif letter is not None:
        show(details(_dead_letter_details(found[0])))
    elif not found:
        show(_none(name))
    else:
        show(dead_letter_table(found))
        if more:
            show("", f"These are the first {format_count(count)}; -n shows more.")
    damage.show()


def _delete(name: str, letter: int | None, data: Target, *, yes: bool, as_json: bool) -> None:
    with queue_to_change(data, name) as queue:
        where = _where(queue)
        found = queue.dead_letters()
        if letter is not None:
            _check_ids(queue, found, [letter])
        count = 1 if letter is not None else len(found)
        if count:
            what = f"{plural(count, 'dead letter')} of {name!r}"
            ask(f"Permanently delete {what}?", action=f"delete {what}", yes=yes)
        deleted = queue.delete_dead_letters(None if letter is None else [letter]) if count else 0
        damage = DamageNotices(queue.log)
    if as_json:
        write_json({"queue": name, "from": where, "deleted": deleted})
    else:
        show(f"deleted {plural(deleted, 'dead letter')} of {name!r}" if deleted else _none(name))
    damage.show()


def redrive(
    name: QueueArgument,
    letters: Annotated[
        list[int] | None, typer.Argument(metavar="ID", help="The dead letters, by the id that `dlq` shows.", min=0)
    ] = None,
    data: DataOption = Path("data"),
    everything: Annotated[bool, typer.Option("--all", help="Move all dead letters of the queue.")] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Move dead letters back into their queue.

    Each gets a new id, its attempts start again, and its header holdfast-redriven counts how often it was redriven.

    At a terminal, --all asks for confirmation.
    """
    if bool(letters) == everything:
        raise UsageError("pass the IDs of dead letters, or --all" + (", not both" if everything else ""))
    with queue_to_change(data, name) as queue:
        where = _where(queue)
        found = queue.dead_letters()
        if letters:
            _check_ids(queue, found, letters)
        elif found and at_a_terminal():
            what = f"{plural(len(found), 'dead letter')} from {where!r} back into {_home(name, where)}"
            ask(f"Move {what}?", action=f"move {what}", yes=yes)
        moved = queue.redrive(letters or None)
        damage = DamageNotices(queue.log)
    if as_json:
        write_json({"queue": name, "from": where, "redriven": moved})
    elif moved:
        show(f"moved {plural(moved, 'message')} from {where!r} back into {_home(name, where)}")
    else:
        show(_none(name))
    damage.show()


def dead_letter_table(found: list[DeadLetter], *, margin: int = 0) -> RenderableType:
    """Return a table of dead letters; a narrow terminal drops the least important columns."""
    width = output_console().width - margin
    columns = _COLUMNS if width >= _WIDE else [name for name in _COLUMNS if name not in _LESS]
    rows = [_dead_letter_cells(letter, seconds=width >= _WIDEST) for letter in found]
    table = make_table(*columns, numbers=("id", "old id", "attempts"))
    widest = {name: max(len(name), *(len(row[name]) for row in rows)) for name in columns}
    width_left = width - sum(widest[name] + 3 for name in columns if name not in ("reason", "payload")) - 3
    # The reason matters most: it may be folded, and gets the width that the payload leaves.
    payload = min(widest["payload"], max(10, width_left // 3))
    shares = {"payload": payload, "reason": max(10, min(widest["reason"], width_left - payload))}
    for column, name in zip(table.columns, columns, strict=True):
        if name in shares:
            column.min_width = column.max_width = shares[name]
        else:
            column.no_wrap, column.min_width = True, widest[name]
        if name == "payload":
            column.no_wrap, column.overflow = True, "ellipsis"
    for row in rows:
        table.add_row(*(Text(row[name], "red" if name == "reason" else "") for name in columns))
    return table


def _dead_letter_cells(letter: DeadLetter, *, seconds: bool) -> dict[str, str]:
    length = len("2026-11-15 12:00:00" if seconds else "2026-11-15 12:00")
    return {
        "id": str(letter.id),
        "old id": str(letter.original_id),
        "attempts": format_count(letter.attempts),
        "first failure": format_time(letter.first_failed_at)[:length],
        "last failure": format_time(letter.last_failed_at)[:length],
        "cause": safe_text(letter.cause),
        "reason": safe_text(letter.reason or letter.cause),
        "payload": safe_text(letter.payload[:_PREVIEW]),
    }


def _dead_letter_details(letter: DeadLetter) -> dict[str, RenderableType]:
    rows: dict[str, RenderableType] = {
        "id": str(letter.id),
        "old id": f"{letter.original_id} in {safe_text(letter.queue)}" if letter.queue else "-",
        "cause": safe_text(letter.cause) or "-",
        "reason": Text(safe_text(letter.reason), "bold red"),
        "attempts": format_count(letter.attempts),
        "put": format_instant(letter.enqueued_at),
        "died": format_instant(letter.died_at),
    }
    if letter.first_failed_at is not None:
        rows["first failure"] = format_instant(letter.first_failed_at)
    if letter.last_failed_at is not None:
        rows["last failure"] = format_instant(letter.last_failed_at)
    if letter.redriven:
        rows["redriven"] = f"{letter.redriven} times" if letter.redriven > 1 else "once"
    if letter.key is not None:
        rows["key"] = Text(safe_text(letter.key))
    for header, value in letter.headers.items():
        rows[f"header {safe_text(header)}"] = Text(safe_text(value))
    rows["payload size"] = plural(len(letter.payload), "byte")
    rows["payload"] = Text(safe_text(letter.payload))
    return rows


def _where(queue: Queue) -> str:
    """Return the name of the dead-letter queue; on a server that may be the queue itself, if AMQP routed them there."""
    name = queue.settings.dead_letter
    if name is None and seen_as(RemoteQueue, queue) is not None:
        return queue.name
    if name is None:
        raise InvalidArgument(
            f"the queue {queue.name!r} has no dead-letter queue; if it is one itself, see holdfast peek {queue.name}"
        )
    return name


def _none(name: str) -> str:
    return f"{name!r} has no dead letters"


def _home(name: str, where: str) -> str:
    return repr(name) if name != where else "their original queues"


def _check_ids(queue: Queue, found: list[DeadLetter], wanted: list[int]) -> None:
    """Check all ids before anything is moved: after one mistyped id of five, the other four must not move."""
    unknown = sorted(set(wanted) - {letter.id for letter in found})
    if unknown:
        raise NotFound(
            f"{queue.name!r} has no dead letter {', '.join(map(str, unknown))}: see holdfast dlq {queue.name}"
        )
