"""The `holdfast dlq` and `redrive` commands: show, delete or move back the dead letters of a queue."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.text import Text

from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.base.units import format_count, format_instant, format_time, plural
from holdfast.cli.confirm import ask, somebody_is_there
from holdfast.cli.open_store import queue_to_change, queue_to_read, seen_as
from holdfast.cli.options import DataOption, JsonOption, QueueArgument, Target, UsageError, YesOption
from holdfast.cli.output import (
    details,
    json_line,
    make_table,
    output_console,
    safe_text,
    show,
    standard_output,
    write_json,
)
from holdfast.cli.queue.printing import letter_json
from holdfast.cli.warnings import DamageNotices
from holdfast.queue import DeadLetter, Queue
from holdfast.remote.queue import RemoteQueue

__all__ = ["dlq", "letter_table", "redrive"]

_PREVIEW = 200
_SHOWN = 20
_COLUMNS = ["id", "was", "attempts", "first failure", "last failure", "cause", "reason", "payload"]
_LESS = ("first failure", "cause")
_WIDE, _WIDEST = 110, 140
"""Columns of a terminal from which on all that is known of a dead letter is shown, and times to the second."""


def dlq(
    name: QueueArgument,
    letter: Annotated[int | None, typer.Argument(metavar="ID", help="Show this one in full.", min=0)] = None,
    data: DataOption = Path("data"),
    count: Annotated[
        int, typer.Option("-n", "--count", min=1, metavar="N", help="At most so many, the oldest first.")
    ] = _SHOWN,
    delete: Annotated[
        bool, typer.Option("--delete", help="Drop this one, or all of the queue, for good; that is asked for first.")
    ] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show what a queue could not deliver, and why; or drop it.

    Works while another process has the store open.

    Times are in UTC; `was` is the id that the message had in the queue.
    """
    if delete:
        _delete(name, letter, data, yes=yes, as_json=as_json)
        return
    with queue_to_read(data, name) as queue:
        _where(queue)  # which says so if it has none
        found = queue.dead_letters(None if letter is not None else count + 1)  # one more, to know if there are more
        if letter is not None:
            _check_ids(queue, found, [letter])
            found = [each for each in found if each.id == letter]
        more = len(found) > count
        del found[count:]
        damage = DamageNotices(queue.log)
    if as_json:
        stream = standard_output()
        stream.writelines(json_line(letter_json(each)) for each in found)
        stream.flush()
    elif letter is not None:
        show(details(_letter_details(found[0])))
    elif not found:
        show(_none(name))
    else:
        show(letter_table(found))
        if more:
            show("", f"the first {format_count(count)}: there are more, -n shows them")
    damage.show()


def _delete(name: str, letter: int | None, data: Target, *, yes: bool, as_json: bool) -> None:
    with queue_to_change(data, name) as queue:
        where = _where(queue)
        found = queue.dead_letters()
        if letter is not None:
            _check_ids(queue, found, [letter])
        count = 1 if letter is not None else len(found)
        if count:
            ask(f"Drop {plural(count, 'dead letter')} of {name!r} for good?", yes=yes)
        dropped = queue.delete_dead_letters(None if letter is None else [letter]) if count else 0
        damage = DamageNotices(queue.log)
    if as_json:
        write_json({"queue": name, "from": where, "deleted": dropped})
    else:
        show(f"dropped {plural(dropped, 'dead letter')} of {name!r}" if dropped else _none(name))
    damage.show()


def redrive(
    name: QueueArgument,
    letters: Annotated[list[int] | None, typer.Argument(metavar="ID", help="As `dlq` shows them.", min=0)] = None,
    data: DataOption = Path("data"),
    everything: Annotated[bool, typer.Option("--all", help="All dead letters of the queue.")] = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Move dead letters back into their queue.

    Each gets a new id, its attempts start again, and its header holdfast-redriven counts how often this was done.

    With --all you are asked first, if it is typed at a terminal.
    """
    if bool(letters) == everything:
        raise UsageError("say which: the IDs of dead letters, or --all" + (", not both" if everything else ""))
    with queue_to_change(data, name) as queue:
        where = _where(queue)
        found = queue.dead_letters()
        if letters:
            _check_ids(queue, found, letters)
        elif found and somebody_is_there():
            ask(f"Move {plural(len(found), 'dead letter')} from {where!r} back into {_home(name, where)}?", yes=yes)
        moved = queue.redrive(letters or None)
        damage = DamageNotices(queue.log)
    if as_json:
        write_json({"queue": name, "from": where, "redriven": moved})
    elif moved:
        show(f"moved {plural(moved, 'message')} from {where!r} back into {_home(name, where)}")
    else:
        show(_none(name))
    damage.show()


def letter_table(found: list[DeadLetter], *, margin: int = 0) -> RenderableType:
    """Return dead letters, one a row; a narrow terminal drops the least important columns."""
    width = output_console().width - margin
    columns = _COLUMNS if width >= _WIDE else [name for name in _COLUMNS if name not in _LESS]
    rows = [_letter_cells(letter, seconds=width >= _WIDEST) for letter in found]
    table = make_table(*columns, numbers=("id", "was", "attempts"))
    widest = {name: max(len(name), *(len(row[name]) for row in rows)) for name in columns}
    width_left = width - sum(widest[name] + 3 for name in columns if name not in ("reason", "payload")) - 3
    for column, name in zip(table.columns, columns, strict=True):
        if name == "payload":
            column.no_wrap, column.overflow = True, "ellipsis"
        elif name != "reason":
            column.no_wrap, column.min_width = True, widest[name]
            continue
        # The reason is what one looks for: it may be folded, and takes what the payload leaves.
        share = width_left // 3 if name == "payload" else width_left - min(width_left // 3, widest["payload"])
        column.min_width = column.max_width = max(10, min(widest[name], share))
    for row in rows:
        table.add_row(*(Text(row[name], "red" if name == "reason" else "") for name in columns))
    return table


def _letter_cells(letter: DeadLetter, *, seconds: bool) -> dict[str, str]:
    length = len("2026-11-15 12:00:00" if seconds else "2026-11-15 12:00")
    return {
        "id": str(letter.id),
        "was": str(letter.original_id),
        "attempts": format_count(letter.attempts),
        "first failure": format_time(letter.first_failed_at)[:length],
        "last failure": format_time(letter.last_failed_at)[:length],
        "cause": safe_text(letter.cause),
        "reason": safe_text(letter.reason or letter.cause),
        "payload": safe_text(letter.payload[:_PREVIEW]),
    }


def _letter_details(letter: DeadLetter) -> dict[str, RenderableType]:
    rows: dict[str, RenderableType] = {
        "id": str(letter.id),
        "was": f"{letter.original_id} in {safe_text(letter.queue)}" if letter.queue else "-",
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
    """Return the queue of its dead letters; with a server that may be the queue itself, if AMQP routed them there."""
    name = queue.settings.dead_letter
    if name is None and seen_as(RemoteQueue, queue) is not None:
        return queue.name
    if name is None:
        raise InvalidArgument(
            f"the queue {queue.name!r} has no queue for dead letters: if it is one itself, see holdfast peek"
        )
    return name


def _none(name: str) -> str:
    """Return the text for no dead letters, in a queue of their own or wherever AMQP routes them."""
    return f"no dead letters of {name!r}"


def _home(name: str, where: str) -> str:
    return repr(name) if name != where else "the queues where they died"


def _check_ids(queue: Queue, found: list[DeadLetter], wanted: list[int]) -> None:
    """Check all ids before anything is moved: after one mistyped id of five, the other four must not move."""
    unknown = sorted(set(wanted) - {letter.id for letter in found})
    if unknown:
        raise NotFound(
            f"{queue.name!r} has no dead letter {', '.join(map(str, unknown))}: see holdfast dlq {queue.name}"
        )
