"""How does one move in from elsewhere? `holdfast import`, which only reads there and can be run again."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from holdfast.base.errors import InvalidArgument
from holdfast.base.units import format_count, plural
from holdfast.cli.notices import notify
from holdfast.cli.opening import store_to_read, store_to_write
from holdfast.cli.options import DataOption, JsonOption, QueueArgument, UsageError, help_if_alone
from holdfast.cli.output import byte_progress, details, show, write_json
from holdfast.log import Flush
from holdfast.queue import QueueSettings
from holdfast.queue.importing import MESSAGE_MAX, ImportResult, LedgerQImport, find_dlq
from holdfast.queue.ledgerq import read_ledgerq

__all__ = ["import_commands"]

_SHOWN = 20

import_commands = typer.Typer(
    invoke_without_command=True, callback=help_if_alone, help="Bring messages in from another queue."
)


@import_commands.command("ledgerq")
def import_ledgerq(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the LedgerQ queue; nothing is written.")],
    name: QueueArgument,
    data: DataOption = Path("data"),
    dlq: Annotated[
        Path | None,
        typer.Option("--dlq", metavar="DIR", show_default="dlq beside or in DIR", help="The folder of dead letters."),
    ] = None,
    no_dlq: Annotated[bool, typer.Option("--no-dlq", help="Leave the dead letters.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Also what LedgerQ has delivered before.")] = False,
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="NAME",
            show_default="the path of DIR",
            help="What this source is remembered as, so that a copy of it brings nothing twice.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Import the messages of a LedgerQ queue, and its dead letters.

    Taken is what waits, what failed and was never delivered again, and what is dead; not what has expired.

    Headers, the time left to live and priorities are kept: low is 0, medium 4, high 9. Stop LedgerQ first.

    Can be run again, also after it was stopped: what was brought is noted in the log QUEUE.imported, and comes once.

    Damage is passed and told, and the exit code is then 1.
    """
    if dlq is not None and no_dlq:
        raise UsageError("choose one: --dlq DIR or --no-dlq")
    letters = None if no_dlq else dlq or find_dlq(folder)
    for place in (folder, *([letters] if letters is not None else [])):
        read_ledgerq(place)  # what is no LedgerQ folder is said before a store is made
        if data.resolve().is_relative_to(place.resolve()):
            raise InvalidArgument(f"the store {str(data)!r} would lie in {str(place)!r}, where nothing may be written")
    target = None if letters is None else _dead_letter_queue(data, name)
    with store_to_write(data) as store:
        # First, because a queue that is opened opens that of its dead letters, with a smaller limit.
        dead_queue = None if target is None else store.queue(target, max_message=MESSAGE_MAX)
        queue = store.queue(name, max_message=MESSAGE_MAX)
        work = LedgerQImport(
            folder,
            queue,
            store.log(f"{name}.imported", flush=Flush.sync()),
            source=source,
            dead_folder=letters,
            dead_queue=dead_queue,
            everything=everything,
        )
        with byte_progress(shown=not as_json) as progress:
            bar = progress.add_task(f"importing into {name}", total=None)
            result = work.run(lambda done, total: progress.update(bar, completed=done, total=total))
    if as_json:
        places = {"queue": name, "source": str(folder), "dlq": None if letters is None else str(letters)}
        write_json(places | asdict(result))
    else:
        _show_result(result, folder, letters)
    return 1 if result.problems else 0


def _dead_letter_queue(data: Path, name: str) -> str | None:
    """Where the dead letters of a queue go, be it there already or not."""
    if data.exists():
        with store_to_read(data) as store:
            if name in store.queues():
                return store.queue(name).settings.dead_letter
    return QueueSettings.of(name, {}).dead_letter


def _show_result(result: ImportResult, folder: Path, letters: Path | None) -> None:
    rows = {
        "from": str(folder),
        "imported": plural(result.imported, "message"),
        "dead letters": format_count(result.dead) + ("" if letters is None else f" from {letters!s}"),
        "expired": format_count(result.expired) if result.expired else "",
        "brought before": format_count(result.already) if result.already else "",
        "delivered before": f"{format_count(result.read_before)} left out (--all takes them)"
        if result.read_before
        else "",
        "problems": format_count(len(result.problems)) if result.problems else "",
    }
    show(details({what: text for what, text in rows.items() if text}))
    for problem in result.problems[:_SHOWN]:
        notify(problem)
    if len(result.problems) > _SHOWN:
        notify(f"and {len(result.problems) - _SHOWN} more problems: --json shows all")
    for note in result.notes:
        notify(f"not taken along: {note}")
