"""The `holdfast put` command: messages from arguments, a file, or the lines of standard input."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from holdfast.base.units import plural
from holdfast.cli.input import given_payloads, key_of, parse_headers, standard_input_lines
from holdfast.cli.open_store import store_to_write
from holdfast.cli.options import DataOption, JsonOption, QueueArgument, UsageError, duration_option
from holdfast.cli.output import short_name, show, write_json
from holdfast.cli.warnings import DamageNotices
from holdfast.log import Message
from holdfast.queue import Queue

__all__ = ["put"]

_PRIORITY_MAX = 255


def put(
    name: QueueArgument,
    payload: Annotated[
        list[str] | None,
        typer.Argument(metavar="PAYLOAD", help="The messages; - reads one per line from standard input."),
    ] = None,
    data: DataOption = Path("data"),
    delay: Annotated[
        timedelta | None,
        typer.Option(
            "--delay", parser=duration_option, metavar="TIME", help="Deliver after this time: 5 (seconds), 30s, 1h."
        ),
    ] = None,
    priority: Annotated[
        int,
        typer.Option(
            "--priority", min=0, max=_PRIORITY_MAX, metavar="N", help="0 to 255; the highest is delivered first."
        ),
    ] = 0,
    ttl: Annotated[
        timedelta | None,
        typer.Option("--ttl", parser=duration_option, metavar="TIME", help="Drop if not delivered within this time."),
    ] = None,
    dedup: Annotated[
        str | None,
        typer.Option(
            "--dedup", metavar="ID", help="Skip if the queue got a message with this id within its dedup_window."
        ),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="The key of each message.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="K=V", help="A header of each message; may be repeated.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="PATH", help="Put the content of this file as one message.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Put messages into a queue and print their ids.

    The queue is created if it does not exist. All messages are on disk when the ids are printed.

    Messages given as arguments are put all or none. Lines of standard input are put as they arrive, many in one write.
    """
    form = Message(
        b"", key=key_of(key), headers=parse_headers(header), delay=delay, priority=priority, ttl=ttl, dedup=dedup
    )
    is_plain = form == Message(b"", headers={})  # a million bare payloads are put in a fraction of the time
    given = given_payloads(payload or [], file, "put")
    if dedup is not None and (given is None or len(given) > 1):
        raise UsageError("--dedup is the id of one message: put several with one command for each")
    first: int | None = None
    last: int | None = None
    count = duplicates = 0
    with store_to_write(data) as store:
        queue = store.queue(name)
        try:
            batches = iter([given]) if given is not None else _lines(queue, shown=not as_json)
            for payloads in batches:
                ids, known = queue.put_counted(
                    payloads if is_plain else [replace(form, payload=each) for each in payloads]
                )
                first = ids[0] if first is None else first
                last = ids[-1]
                count += len(ids)
                duplicates += known
        finally:  # after an error among many lines, the user must still learn which messages are stored
            if first is not None or sys.exc_info()[0] is None:
                _show_result(queue.name, first, last, count, duplicate=duplicates > 0, as_json=as_json)
        DamageNotices(queue.log).show()


def _lines(queue: Queue, *, shown: bool) -> Iterator[list[bytes]]:
    return standard_input_lines(f"putting into {short_name(queue.name)}", queue.log.settings.max_message, shown=shown)


def _show_result(name: str, first: int | None, last: int | None, count: int, *, duplicate: bool, as_json: bool) -> None:
    if as_json:
        write_json({"queue": name, "count": count, "first": first, "last": last, "duplicate": duplicate})
    elif first is None:
        show("0 messages")
    elif duplicate:
        show(f"{first} (duplicate: not written again)")
    else:
        show(str(first) if count == 1 else f"{first}-{last} ({plural(count, 'message')})")
