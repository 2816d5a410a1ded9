"""The `holdfast user`, `vhost` and `definitions` commands, for a folder or a server."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.base.errors import NotFound
from holdfast.base.units import plural
from holdfast.broker.users import ARGON2
from holdfast.cli.admin import authority_to_change, definitions_to_read
from holdfast.cli.confirm import ask
from holdfast.cli.input import STANDARD_INPUT
from holdfast.cli.options import DataOption, JsonOption, UsageError, YesOption, help_if_alone
from holdfast.cli.output import (
    Name,
    json_document,
    make_table,
    safe_text,
    show,
    standard_output,
    write_json,
    write_json_lines,
)
from holdfast.cli.passwords import PasswordFileOption, read_password
from holdfast.cli.warnings import notify
from holdfast.importers.rabbitmq_definitions import fitting, parse_definitions

__all__ = ["definitions_commands", "user_commands", "vhost_commands"]

_QUESTION = "Password of {name!r}: "

UserArgument = Annotated[str, typer.Argument(metavar="NAME", help="The user.")]
HostArgument = Annotated[str, typer.Argument(metavar="NAME", help="The virtual host.")]
HostOption = Annotated[str, typer.Option("--vhost", metavar="NAME", help="The virtual host.")]

user_commands = typer.Typer(
    invoke_without_command=True,
    callback=help_if_alone,
    help="Manage users of the broker.",
)
vhost_commands = typer.Typer(
    invoke_without_command=True,
    callback=help_if_alone,
    help="Manage virtual hosts of the broker.",
)
definitions_commands = typer.Typer(
    invoke_without_command=True,
    callback=help_if_alone,
    help="Export and import definitions, as JSON that RabbitMQ understands.",
)


# Users.


@user_commands.command("add")
def add_user(
    name: UserArgument,
    data: DataOption = Path("data"),
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="TAG", help="administrator, monitoring, management, ...; may be repeated."),
    ] = None,
    password_file: PasswordFileOption = None,
    no_password: Annotated[
        bool, typer.Option("--no-password", help="The user can log in only with a client certificate of this name.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Add a user without permissions; grant them with `holdfast user permit`.

    At a terminal you are asked for the password, twice. Otherwise it is the first line of standard input.
    """
    if no_password and password_file is not None:
        raise UsageError("choose one: --password-file FILE or --no-password")
    tags = tuple(tag or ())
    password = None if no_password else read_password(password_file, _QUESTION.format(name=name), twice=True)
    with authority_to_change(data, make=True) as authority:
        authority.add_user(name, password, tags)
    if as_json:
        write_json({"user": name, "tags": list(tags)})
    else:
        show(f"added the user {safe_text(name)!r}; grant permissions with holdfast user permit")


@user_commands.command("delete")
def delete_user(name: UserArgument, data: DataOption = Path("data"), as_json: JsonOption = False) -> None:
    """Delete a user and all permissions of the user."""
    with authority_to_change(data) as authority:
        authority.delete_user(name)
    if as_json:
        write_json({"user": name, "deleted": True})
    else:
        show(f"deleted the user {safe_text(name)!r}")


@user_commands.command("password")
def change_password(
    name: UserArgument,
    data: DataOption = Path("data"),
    password_file: PasswordFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the password of a user.

    At a terminal you are asked for the new password, twice. Otherwise it is the first line of standard input.
    """
    with authority_to_change(data) as authority:
        authority.check_user(name)  # so that a mistyped name is reported before the prompt
    password = read_password(password_file, _QUESTION.format(name=name), twice=True)
    with authority_to_change(data) as authority:
        authority.change_password(name, password)
    if as_json:
        write_json({"user": name, "changed": True})
    else:
        show(f"changed the password of {safe_text(name)!r}")


@user_commands.command("list")
def list_users(data: DataOption = Path("data"), as_json: JsonOption = False) -> None:
    """List all users with their tags, password hash algorithm and permissions.

    Works while another process has the store open.
    """
    defined = definitions_to_read(data)
    users = sorted(defined["users"], key=lambda one: one["name"])
    if as_json:
        write_json_lines(_user_as_json(user, _permissions(defined, user["name"])) for user in users)
        return
    table = make_table("user", "tags", "password", "vhost", "configure", "write", "read")
    nothing = dict.fromkeys(("vhost", "configure", "write", "read"), "")
    for user in users:
        password = (_password(user) or "none").removeprefix("rabbit_password_hashing_")
        for place, one in enumerate(_permissions(defined, user["name"]) or [nothing]):
            who = (Name(user["name"]), safe_text(", ".join(_tags(user))), password) if not place else ("", "", "")
            table.add_row(*who, Name(one["vhost"]), *(safe_text(one[name]) for name in ("configure", "write", "read")))
    show(table)


@user_commands.command("permit")
def permit(
    name: UserArgument,
    configure: Annotated[
        str, typer.Option("--configure", metavar="REGEX", help="Queues and exchanges to declare and delete.")
    ],
    write: Annotated[
        str, typer.Option("--write", metavar="REGEX", help="Queues and exchanges to publish and bind to.")
    ],
    read: Annotated[
        str, typer.Option("--read", metavar="REGEX", help="Queues and exchanges to consume and bind from.")
    ],
    vhost: HostOption = "/",
    data: DataOption = Path("data"),
    as_json: JsonOption = False,
) -> None:
    """Set the permissions of a user in a virtual host, replacing earlier ones.

    Each is a regular expression that is searched for in names: `.*` permits everything, an empty one nothing.
    """
    with authority_to_change(data) as authority:
        authority.permit(name, vhost, configure, write, read)
    if as_json:
        write_json({"user": name, "vhost": vhost, "configure": configure, "write": write, "read": read})
    else:
        show(f"set the permissions of {safe_text(name)!r} in the virtual host {safe_text(vhost)!r}")


@user_commands.command("forbid")
def forbid(
    name: UserArgument, vhost: HostOption = "/", data: DataOption = Path("data"), as_json: JsonOption = False
) -> None:
    """Revoke all permissions of a user in a virtual host."""
    with authority_to_change(data) as authority:
        had = authority.forbid(name, vhost)
    if as_json:
        write_json({"user": name, "vhost": vhost, "had": had})
    else:
        user, host = safe_text(name), safe_text(vhost)
        if had:
            show(f"revoked the permissions of {user!r} in the virtual host {host!r}")
        else:
            show(f"{user!r} has no permissions in the virtual host {host!r}: nothing to revoke")


def _permissions(defined: dict[str, Any], user: str) -> list[dict[str, str]]:
    return sorted((one for one in defined["permissions"] if one["user"] == user), key=lambda one: one["vhost"])


def _tags(user: dict[str, Any]) -> list[str]:
    tags = user.get("tags") or []
    return [one for one in tags.split(",") if one] if isinstance(tags, str) else list(tags)


def _password(user: dict[str, Any]) -> str | None:
    """Return the hash algorithm of a user's password, None without one. Not every caller of a server sees the hash."""
    if "password_hash" not in user:
        return user.get("hashing_algorithm")
    return str(user.get("hashing_algorithm") or ARGON2) if user["password_hash"] else None


def _user_as_json(user: dict[str, Any], permissions: list[dict[str, str]]) -> dict[str, object]:
    return {
        "user": user["name"],
        "tags": _tags(user),
        "password": _password(user),
        "permissions": [{name: one[name] for name in ("vhost", "configure", "write", "read")} for one in permissions],
    }


# Virtual hosts.


@vhost_commands.command("add")
def add_vhost(name: HostArgument, data: DataOption = Path("data"), as_json: JsonOption = False) -> None:
    """Add a virtual host; grant access to it with `holdfast user permit`."""
    with authority_to_change(data, make=True) as authority:
        authority.add_vhost(name)
    if as_json:
        write_json({"vhost": name})
    else:
        show(f"added the virtual host {safe_text(name)!r}; grant access with holdfast user permit")


@vhost_commands.command("delete")
def delete_vhost(
    name: HostArgument, data: DataOption = Path("data"), yes: YesOption = False, as_json: JsonOption = False
) -> None:
    """Delete a virtual host with its exchanges, queues, messages and permissions."""
    with authority_to_change(data) as authority:
        if name not in (hosts := authority.vhosts()):
            raise NotFound(f"there is no virtual host {name!r}; there are: {', '.join(hosts) or 'none'}")
        queues, waiting = authority.waiting_in(name)
        if queues:
            ask(
                f"Delete the virtual host {name!r} with {plural(queues, 'queue')} and {plural(waiting, 'message')}?",
                action=f"delete the virtual host {name!r}",
                yes=yes,
            )
        authority.delete_vhost(name)
    if as_json:
        write_json({"vhost": name, "queues": queues})
    else:
        show(f"deleted the virtual host {safe_text(name)!r} with {plural(queues, 'queue')}")


@vhost_commands.command("list")
def list_vhosts(data: DataOption = Path("data"), as_json: JsonOption = False) -> None:
    """List all virtual hosts with their exchanges, queues and users.

    Works while another process has the store open.
    """
    defined = definitions_to_read(data)
    rows = []
    for host in sorted(one["name"] for one in defined["vhosts"]):
        exchanges, queues = (sum(one["vhost"] == host for one in defined[kind]) for kind in ("exchanges", "queues"))
        rows.append(
            (host, exchanges, queues, sorted(one["user"] for one in defined["permissions"] if one["vhost"] == host))
        )
    if as_json:
        names = ("vhost", "exchanges", "queues", "users")
        write_json_lines(dict(zip(names, row, strict=True)) for row in rows)
        return
    table = make_table("vhost", "exchanges", "queues", "users", numbers=("exchanges", "queues"))
    for host, exchanges, queues, users in rows:
        table.add_row(Name(host), str(exchanges), str(queues), safe_text(", ".join(users)))
    show(table)


# Definitions.


@definitions_commands.command("export")
def export_definitions(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", show_default="standard output", help="The file to write.")
    ] = None,
    data: DataOption = Path("data"),
) -> None:
    """Export virtual hosts, users, permissions, exchanges, queues and bindings; no messages.

    The file contains password hashes: a new one is readable only by its owner. Works while another process has the
    store open.
    """
    content = json_document(definitions_to_read(data), indent=2) + b"\n"
    if file is None or str(file) == STANDARD_INPUT:
        standard_output().write(content)
        return
    # The hashes are for the owner only; an existing file keeps its mode.
    file.touch(mode=0o600)
    file.write_bytes(content)


@definitions_commands.command("import")
def import_definitions(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to import; - is standard input.")],
    data: DataOption = Path("data"),
    as_json: JsonOption = False,
) -> None:
    """Import definitions that RabbitMQ or Holdfast exported.

    Existing exchanges, queues and bindings stay as they are; users and permissions are replaced.

    Definitions that are not supported, such as policies, are skipped and listed.
    """
    content = sys.stdin.buffer.read() if str(file) == STANDARD_INPUT else file.read_bytes()
    fit = fitting(parse_definitions(content, str(file)))
    with authority_to_change(data, make=True) as authority:
        added = authority.import_(fit.document)
    if as_json:
        write_json({"added": added, "left_out": fit.left_out})
        return
    show("imported the definitions" if added is None else f"imported {plural(added, 'definition')}")
    for line in fit.left_out:
        notify(f"skipped: {line}")
