"""The `holdfast token` commands: create, list and revoke API tokens of a server."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from holdfast.base.errors import InvalidArgument
from holdfast.base.units import format_time
from holdfast.cli.open_store import remote_at
from holdfast.cli.options import DataOption, JsonOption, Target, duration_option, help_if_alone
from holdfast.cli.output import make_table, safe_text, show, write_json
from holdfast.remote.store import RemoteStore

__all__ = ["token_commands"]

token_commands = typer.Typer(
    invoke_without_command=True,
    callback=help_if_alone,
    help="Tokens that let programs in, of a server: give --url.",
)


def _server(remote: RemoteStore | None, data: Target) -> RemoteStore:
    if remote is None:
        raise InvalidArgument(
            f"only a server has tokens, and {str(data)!r} is a folder: give --url http://user:password@host:15672"
        )
    return remote


@token_commands.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for, to know it by later.")],
    data: DataOption = Path("data"),
    lifetime: Annotated[
        timedelta | None,
        typer.Option("--lifetime", parser=duration_option, metavar="TIME", show_default="30d", help="How long."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make a token with the permissions of the user who asks, and print it: this once, and never again."""
    with remote_at(data) as remote:
        made = _server(remote, data).make_token(name, lifetime)
    if as_json:
        write_json(made)
    else:
        show(made["token"])


@token_commands.command("list")
def list_tokens(data: DataOption = Path("data"), as_json: JsonOption = False) -> None:
    """Show the tokens of the user who asks; an administrator sees all. Times are in UTC."""
    with remote_at(data) as remote:
        found = _server(remote, data).tokens()
    if as_json:
        write_json({"tokens": found})
    elif not found:
        show("no tokens")
    else:
        table = make_table("id", "name", "user", "created", "good until")
        for one in found:
            times = (format_time(one["created_at"]), format_time(one["expires_at"]))
            table.add_row(safe_text(one["id"]), safe_text(one["name"]), safe_text(one["user"]), *times)
        show(table)


@token_commands.command("delete")
def delete(
    id: Annotated[str, typer.Argument(metavar="ID", help="As `token list` shows it.")],
    data: DataOption = Path("data"),
    as_json: JsonOption = False,
) -> None:
    """Withdraw a token: it is good no more."""
    with remote_at(data) as remote:
        _server(remote, data).delete_token(id)
    if as_json:
        write_json({"token": id, "deleted": True})
    else:
        show(f"deleted the token {safe_text(id)!r}")
