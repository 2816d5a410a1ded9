"""Options that commands share, each defined, parsed and explained once."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import typer

from holdfast.base.errors import InvalidArgument
from holdfast.base.units import parse_duration, parse_size, parse_time
from holdfast.cli.completion import complete_logs, complete_queues
from holdfast.cli.target import DataOption, Target, UsageError

__all__ = [
    "CompressionChoice",
    "DataOption",
    "FlushChoice",
    "FormatChoice",
    "JsonOption",
    "NameArgument",
    "QueueArgument",
    "Target",
    "UsageError",
    "YesOption",
    "duration_option",
    "help_if_alone",
    "join_help_lines",
    "patience_option",
    "pattern_option",
    "size_option",
    "time_option",
]

T = TypeVar("T")


class FlushChoice(StrEnum):
    """When records reach the disk."""

    SYNC = "sync"
    BATCH = "batch"
    ASYNC = "async"


class CompressionChoice(StrEnum):
    """What blocks of payloads are compressed with."""

    ZSTD = "zstd"
    LZ4 = "lz4"
    GZIP = "gzip"


class FormatChoice(StrEnum):
    """How a record is printed."""

    TEXT = "text"
    HEX = "hex"
    RAW = "raw"


JsonOption = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Print JSON: one object, or one line per record, and no line if there is none. Bytes that are not UTF-8 "
        'are {"base64": "..."}; times are in UTC.',
    ),
]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", autocompletion=complete_logs, help="The log.")]
QueueArgument = Annotated[str, typer.Argument(metavar="QUEUE", autocompletion=complete_queues, help="The queue.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def help_if_alone(context: typer.Context) -> None:
    """Print the help of a group that was called without a command."""
    if context.invoked_subcommand is None:
        print(context.get_help())


def join_help_lines(command: Any) -> None:
    """Join the lines of each paragraph in the help of a command and of its subcommands.

    typer keeps the line breaks of a docstring, except in its first paragraph.
    """
    if command.help:
        command.help = "\n\n".join(" ".join(paragraph.split()) for paragraph in command.help.split("\n\n"))
    for child in getattr(command, "commands", {}).values():
        join_help_lines(child)


def size_option(text: str) -> int:
    """Parse a size that was typed as an option."""
    return _as_usage(parse_size, text)


def duration_option(text: str) -> timedelta:
    """Parse a duration that was typed as an option; a bare number is seconds."""
    return _as_usage(parse_duration, text)


def patience_option(text: str) -> timedelta:
    """Parse how long to wait; `forever` is `timedelta.max`."""
    return timedelta.max if text.strip().lower() == "forever" else duration_option(text)


def time_option(text: str) -> datetime:
    """Parse a point in time that was typed as an option."""
    return _as_usage(parse_time, text)


def pattern_option(text: str) -> "re.Pattern[str]":
    """Compile a regular expression that was typed as an option."""
    try:
        return re.compile(text)
    except re.error as error:
        raise typer.BadParameter(f"{text!r} is not a regular expression: {error}") from error


def _as_usage(parse: Callable[[str], T], text: str) -> T:
    # typer shows a plain ValueError, which InvalidArgument is, without its text.
    try:
        return parse(text)
    except InvalidArgument as error:
        raise typer.BadParameter(str(error)) from error
