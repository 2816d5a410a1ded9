"""The `holdfast token` commands: create, list and revoke API tokens of a server."""

from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from holdfast.base.errors import InvalidArgument
from holdfast.base.units import format_time
from holdfast.cli.open_store import remote_at
from holdfast.cli.options import DataOption, JsonOption, Target, duration_option, help_if_alone
from holdfast.cli.output import Name, make_table, safe_text, show, write_json
from holdfast.remote.store import RemoteStore

__all__ = ["token_commands"]

token_commands = typer.Typer(
    invoke_without_command=True,
    callback=help_if_alone,
    help="Manage API tokens of a server; needs --url.",
)


def _server(remote: RemoteStore | None, data: Target) -> RemoteStore:
    if remote is None:
        raise InvalidArgument(
            f"tokens belong to a server, and {str(data)!r} is a folder: pass --url http://user:password@host:15672"
        )
    return remote


@token_commands.command("create")
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The purpose of the token, as `token list` shows it.")],
    data: DataOption = Path("data"),
    lifetime: Annotated[
        timedelta | None,
        typer.Option(
            "--lifetime",
            parser=duration_option,
            metavar="TIME",
            show_default="30d",
            help="How long the token is valid: 90d, 12h.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Create a token with the permissions of the authenticated user, and print it.

    It is shown only this once.
    """
    with remote_at(data) as remote:
        made = _server(remote, data).make_token(name, lifetime)
    if as_json:
        write_json(made)
    else:
        show(made["token"])


@token_commands.command("list")
def list_tokens(data: DataOption = Path("data"), as_json: JsonOption = False) -> None:
    """List the tokens of the authenticated user; an administrator sees all. Times are in UTC."""
    with remote_at(data) as remote:
        found = _server(remote, data).tokens()
    if as_json:
        write_json({"tokens": found})
    elif not found:
        show("no tokens")
    else:
        table = make_table("id", "name", "user", "created", "expires")
        for one in found:
            times = (format_time(one["created_at"]), format_time(one["expires_at"]))
            table.add_row(safe_text(one["id"]), Name(one["name"]), Name(one["user"]), *times)
        show(table)


@token_commands.command("delete")
def delete(
    id: Annotated[str, typer.Argument(metavar="ID", help="As `token list` shows it.")],
    data: DataOption = Path("data"),
    as_json: JsonOption = False,
) -> None:
    """Revoke a token."""
    with remote_at(data) as remote:
        _server(remote, data).delete_token(id)
    if as_json:
        write_json({"token": id, "deleted": True})
    else:
        show(f"revoked the token {safe_text(id)!r}")
