"""The `holdfast log append` command: records from an argument, a file, or the lines of standard input."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from holdfast.base.units import plural
from holdfast.cli.input import given_payloads, key_of, parse_headers, standard_input_lines
from holdfast.cli.open_store import seen_as, store_to_write
from holdfast.cli.options import (
    CompressionChoice,
    DataOption,
    FlushChoice,
    JsonOption,
    NameArgument,
    UsageError,
    size_option,
)
from holdfast.cli.output import short_name, show, write_json
from holdfast.cli.warnings import DamageNotices
from holdfast.log import Flush, Headers, Log, Message
from holdfast.log.settings import MESSAGE_MAX
from holdfast.remote.store import RemoteStore

__all__ = ["append"]

_FLUSH = {FlushChoice.SYNC: Flush.sync, FlushChoice.BATCH: Flush.batch, FlushChoice.ASYNC: Flush.async_}


def append(
    name: NameArgument,
    payload: Annotated[
        str | None, typer.Argument(metavar="PAYLOAD", help="The record; - reads one per line from standard input.")
    ] = None,
    data: DataOption = Path("data"),
    key: Annotated[str | None, typer.Option("--key", help="The key of each record.")] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="K=V", help="A header of each record; may be repeated.")
    ] = None,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="PATH", help="Append the content of this file as one record.")
    ] = None,
    flush: Annotated[
        FlushChoice,
        typer.Option("--flush", help="sync: each batch of lines is synced before the next. All are synced at the end."),
    ] = FlushChoice.SYNC,
    compression: Annotated[CompressionChoice | None, typer.Option("--compression", help="Compress payloads.")] = None,
    max_message: Annotated[
        int | None,
        typer.Option(
            "--max-message", parser=size_option, metavar="SIZE", show_default="10MiB", help="The largest record."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Append records to a log and print their sequences.

    The log is created if it does not exist. Lines of standard input are appended as they arrive, many in one write.
    """
    headers, key_bytes = parse_headers(header), key_of(key)
    given = given_payloads([] if payload is None else [payload], file, "append")
    first: int | None = None
    count = 0
    with store_to_write(data) as store:
        if seen_as(RemoteStore, store):
            if compression is not None or max_message is not None or flush is not FlushChoice.SYNC:
                raise UsageError(
                    "--flush, --compression and --max-message do not work with --url: the server has its own settings"
                )
            log = store.log(name)
        else:
            log = store.log(
                name,
                flush=_FLUSH[flush](),
                compression=None if compression is None else compression.value,
                max_message=MESSAGE_MAX if max_message is None else max_message,
            )
        try:
            if given is not None:
                first, count = log.append(given[0], key_bytes, headers), 1
            else:
                for sequences in _append_lines(log, key_bytes, headers, shown=not as_json):
                    first = sequences.start if first is None else first
                    count += len(sequences)
        finally:  # after an error among many lines, the user must still learn which records are stored
            log.sync()
            if first is not None or sys.exc_info()[0] is None:
                _show_result(name, first, count, as_json=as_json)
        DamageNotices(log).show()


def _show_result(name: str, first: int | None, count: int, *, as_json: bool) -> None:
    last = None if first is None else first + count - 1
    if as_json:
        write_json({"log": name, "count": count, "first": first, "last": last})
    elif first is None:
        show("0 records")
    else:
        show(str(first) if count == 1 else f"{first}-{last} ({plural(count, 'record')})")


def _append_lines(log: Log, key: bytes | None, headers: Headers, *, shown: bool) -> Iterator[range]:
    for lines in standard_input_lines(f"appending to {short_name(log.name)}", log.settings.max_message, shown=shown):
        yield log.append_many(lines if key is None and not headers else [Message(line, key, headers) for line in lines])
