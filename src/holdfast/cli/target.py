"""The store that a command works on: a folder or, with --url, a server.

`add_urls` adds `--url` and `--token-file` to every command with `--data`; commands that need a folder reject `--url`.
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.main import get_command

from holdfast.base.errors import InvalidArgument
from holdfast.base.paths import local_path
from holdfast.remote.address import Address

__all__ = [
    "FOLDER_ONLY",
    "DataOption",
    "SparkDataOption",
    "SparkTarget",
    "StoreUrl",
    "Target",
    "UsageError",
    "add_urls",
    "folder_of",
]

# The class of all usage errors. typer exports only its subclass, and its module has changed between versions.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]
"""The command line is invalid; the exit code is 2."""

Target = Path | Address
"""A folder, or a server."""


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """The URL of a replica or a server that Spark reads and writes itself."""

    url: str


SparkTarget = Target | StoreUrl

_URL, _TOKEN_FILE = "holdfast.url", "holdfast.token_file"
FOLDER_ONLY = {
    "serve": "serve does not accept --url: run it on the machine of the store, with --data DIR",
    "demo": "demo does not accept --url: it creates its own store",
    "bench": "bench does not accept --url: it creates its own store",
    "restore": "restore does not accept --url: run it on the machine of the new store, with --data DIR",
    "verify": "verify does not accept --url: run it on the machine of the store, with --data DIR, or see doctor --url",
    "import ledgerq": "import does not accept --url: stop the server and import into its folder with --data DIR",
    "import rabbitmq": "import does not accept --url: stop the server and import into its folder with --data DIR",
}
"""Commands that work on a folder only, and their error if they are given a URL."""


def folder_of(target: Target, instead: str = "") -> Path:
    """Return the folder of a store; a usage error if it is at a URL."""
    if isinstance(target, Address):
        raise UsageError(f"this works on a folder only: run it on the machine of the store, with --data DIR{instead}")
    return target


def _chosen(context: typer.Context, value: str) -> Target:
    """Return the chosen folder or server: options take precedence over the environment."""
    source = context.get_parameter_source("data")
    folder_typed = source is not None and source.name == "COMMANDLINE"
    url, url_typed = context.meta.get(_URL, (None, False))
    if url is None or (folder_typed and not url_typed):
        try:
            return local_path(value)
        except InvalidArgument as error:
            raise UsageError(str(error)) from error
    if folder_typed:
        raise UsageError("choose one: --data DIR for a folder, or --url URL for a server")
    try:
        return Address.parse(url, token=_token(context.meta.get(_TOKEN_FILE)))
    except InvalidArgument as error:
        raise UsageError(str(error)) from error


def _chosen_for_spark(context: typer.Context, value: str) -> SparkTarget:
    """As `_chosen`, and also the URL of a store that Spark reads without its folder."""
    if "://" not in value:
        return _chosen(context, value)
    if context.meta.get(_URL, (None, False))[1]:
        raise UsageError("choose one: --data for where Spark finds the store, or --url URL to run it on the server")
    return StoreUrl(value)


def _token(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get("HOLDFAST_TOKEN") or None
    with file.open(encoding="utf-8") as lines:
        token = lines.readline().strip()
    if not token:
        raise InvalidArgument(f"the token file {str(file)!r} has an empty first line: write the token there")
    return token


def _keep_url(context: typer.Context, value: str | None) -> None:
    if value:
        source = context.get_parameter_source("url")
        context.meta[_URL] = value, source is not None and source.name == "COMMANDLINE"


def _keep_token_file(context: typer.Context, value: Path | None) -> None:
    if value is not None:
        context.meta[_TOKEN_FILE] = value


def _refuse_url(context: typer.Context, value: str | None) -> None:
    if value:
        command = context.command_path.partition(" ")[2]
        raise UsageError(FOLDER_ONLY.get(command, "this command works on a folder only"))


if TYPE_CHECKING:
    DataOption = Target
    SparkDataOption = SparkTarget
else:  # typer does not support unions: the value is text until the callback has seen both options
    DataOption = Annotated[
        str,
        typer.Option(
            "--data", metavar="DIR", envvar="HOLDFAST_DATA", callback=_chosen, help="The folder of the store."
        ),
    ]
    SparkDataOption = Annotated[
        str,
        typer.Option(
            "--data",
            metavar="DIR|URL",
            envvar="HOLDFAST_DATA",
            callback=_chosen_for_spark,
            help="The folder of the store, or the URL of its replica or its server, which Spark then reads itself.",
        ),
    ]


def _template(
    url: Annotated[
        str | None,
        typer.Option(
            "--url",
            metavar="URL",
            envvar="HOLDFAST_URL",
            callback=_keep_url,
            is_eager=True,
            expose_value=False,
            help="Use a server instead of a folder: http://user:pass@host:15672.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            callback=_keep_token_file,
            is_eager=True,
            expose_value=False,
            show_default="HOLDFAST_TOKEN, or the user in the URL",
            help="Authenticate with the token in the first line of this file.",
        ),
    ] = None,
) -> None:
    raise NotImplementedError  # only its parameters are used


def _refusing(
    url: Annotated[
        str | None,
        typer.Option("--url", hidden=True, callback=_refuse_url, is_eager=True, expose_value=False),
    ] = None,
) -> None:
    raise NotImplementedError


def add_urls(root: Any) -> None:
    """Add --url to a command, or all commands of a group, that has --data; or an error that says what to do instead."""
    adding, refusing = _parameters(_template), _parameters(_refusing)
    for path, command in _commands(root) if hasattr(root, "commands") else [("", root)]:
        names = [parameter.name for parameter in command.params]
        if "url" in names:
            continue
        if path in FOLDER_ONLY:
            command.params += refusing
        elif "data" in names:
            at = names.index("data") + 1
            command.params[at:at] = adding


def _parameters(function: Any) -> list[Any]:
    made = typer.Typer(add_completion=False)
    made.command()(function)
    return [one for one in get_command(made).params if one.name != "help"]


def _commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    children: Mapping[str, Any] = getattr(group, "commands", {})
    for name, command in children.items():
        path = f"{before} {name}".strip()
        if getattr(command, "commands", None):
            yield from _commands(command, path)
        else:
            yield path, command
