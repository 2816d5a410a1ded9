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
from holdfast.cli.output import json_document, json_line, make_table, safe_text, show, standard_output, write_json
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
    help="Users of the broker, in a folder or by --url.",
)
vhost_commands = typer.Typer(
    invoke_without_command=True,
    callback=help_if_alone,
    help="Virtual hosts of the broker, in a folder or by --url.",
)
definitions_commands = typer.Typer(
    invoke_without_command=True,
    callback=help_if_alone,
    help="All that is defined in the broker, in the JSON of RabbitMQ's export_definitions.",
)


# Users.


@user_commands.command("add")
def add_user(
    name: UserArgument,
    data: DataOption = Path("data"),
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", metavar="TAG", help="administrator, monitoring, management...; may be repeated."),
    ] = None,
    password_file: PasswordFileOption = None,
    no_password: Annotated[
        bool, typer.Option("--no-password", help="The user comes in by a certificate with this name only.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Add a user, who may do nothing yet: `holdfast user permit` says what.

    The password is asked for on a terminal, twice; else it is the first line of standard input.
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
        show(f"added the user {safe_text(name)!r}: holdfast user permit says what the user may do")


@user_commands.command("delete")
def delete_user(name: UserArgument, data: DataOption = Path("data"), as_json: JsonOption = False) -> None:
    """Delete a user with all that the user was permitted."""
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
    """Give a user another password.

    It is asked for on a terminal, twice; else it is the first line of standard input.
    """
    with authority_to_change(data) as authority:
        authority.check_user(name)  # a mistyped name is said before anybody types a password
    password = read_password(password_file, _QUESTION.format(name=name), twice=True)
    with authority_to_change(data) as authority:
        authority.change_password(name, password)
    if as_json:
        write_json({"user": name, "changed": True})
    else:
        show(f"changed the password of {safe_text(name)!r}")


@user_commands.command("list")
def list_users(data: DataOption = Path("data"), as_json: JsonOption = False) -> None:
    """Show all users, how their passwords are hashed, and what they may do.

    This one works while the store is served, too.
    """
    defined = definitions_to_read(data)
    users = sorted(defined["users"], key=lambda one: one["name"])
    if as_json:
        for user in users:
            standard_output().write(json_line(_user_as_json(user, _permissions(defined, user["name"]))))
        return
    table = make_table("user", "tags", "password", "vhost", "configure", "write", "read")
    nothing = dict.fromkeys(("vhost", "configure", "write", "read"), "")
    for user in users:
        password = (_password(user) or "none").removeprefix("rabbit_password_hashing_")
        for place, one in enumerate(_permissions(defined, user["name"]) or [nothing]):
            who = (safe_text(user["name"]), safe_text(", ".join(_tags(user))), password) if not place else ("", "", "")
            table.add_row(*who, *(safe_text(one[name]) for name in nothing))
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
    """Say what a user may do in a virtual host, in place of what was said before.

    Each is a regular expression that is searched for in names: `.*` permits everything, an empty one nothing.
    """
    with authority_to_change(data) as authority:
        authority.permit(name, vhost, configure, write, read)
    if as_json:
        write_json({"user": name, "vhost": vhost, "configure": configure, "write": write, "read": read})
    else:
        show(f"the user {safe_text(name)!r} may now use the virtual host {safe_text(vhost)!r}")


@user_commands.command("forbid")
def forbid(
    name: UserArgument, vhost: HostOption = "/", data: DataOption = Path("data"), as_json: JsonOption = False
) -> None:
    """Take back all that a user may do in a virtual host."""
    with authority_to_change(data) as authority:
        had = authority.forbid(name, vhost)
    if as_json:
        write_json({"user": name, "vhost": vhost, "had": had})
    else:
        already = "" if had else ", and did not before"
        show(f"the user {safe_text(name)!r} may no longer use the virtual host {safe_text(vhost)!r}{already}")


def _permissions(defined: dict[str, Any], user: str) -> list[dict[str, str]]:
    return sorted((one for one in defined["permissions"] if one["user"] == user), key=lambda one: one["vhost"])


def _tags(user: dict[str, Any]) -> list[str]:
    tags = user.get("tags") or []
    return [one for one in tags.split(",") if one] if isinstance(tags, str) else list(tags)


def _password(user: dict[str, Any]) -> str | None:
    """How the user's password is hashed, None where there is none. Not every caller of a server sees the hash."""
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
    """Add a virtual host; nobody may use it yet."""
    with authority_to_change(data, make=True) as authority:
        authority.add_vhost(name)
    if as_json:
        write_json({"vhost": name})
    else:
        show(f"added the virtual host {safe_text(name)!r}: holdfast user permit lets users in")


@vhost_commands.command("delete")
def delete_vhost(
    name: HostArgument, data: DataOption = Path("data"), yes: YesOption = False, as_json: JsonOption = False
) -> None:
    """Delete a virtual host with its exchanges, its queues and their messages, and all that was permitted there."""
    with authority_to_change(data) as authority:
        if name not in (hosts := authority.vhosts()):
            raise NotFound(f"there is no virtual host {name!r}; there are: {', '.join(hosts) or 'none'}")
        queues, waiting = authority.waiting_in(name)
        if queues:
            ask(f"Delete {name!r} with {plural(queues, 'queue')} and {plural(waiting, 'message')}?", yes=yes)
        authority.delete_vhost(name)
    if as_json:
        write_json({"vhost": name, "queues": queues})
    else:
        show(f"deleted the virtual host {safe_text(name)!r} with {plural(queues, 'queue')}")


@vhost_commands.command("list")
def list_vhosts(data: DataOption = Path("data"), as_json: JsonOption = False) -> None:
    """Show all virtual hosts, with how much is defined in each and who may use it.

    This one works while the store is served, too.
    """
    defined = definitions_to_read(data)
    rows = []
    for host in sorted(one["name"] for one in defined["vhosts"]):
        exchanges, queues = (sum(one["vhost"] == host for one in defined[kind]) for kind in ("exchanges", "queues"))
        rows.append(
            (host, exchanges, queues, sorted(one["user"] for one in defined["permissions"] if one["vhost"] == host))
        )
    if as_json:
        for host, exchanges, queues, users in rows:
            line = {"vhost": host, "exchanges": exchanges, "queues": queues, "users": users}
            standard_output().write(json_line(line))
        return
    table = make_table("vhost", "exchanges", "queues", "users", numbers=("exchanges", "queues"))
    for host, exchanges, queues, users in rows:
        table.add_row(safe_text(host), str(exchanges), str(queues), safe_text(", ".join(users)))
    show(table)


# All of it.


@definitions_commands.command("export")
def export_definitions(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", show_default="standard output", help="Where to write it.")
    ] = None,
    data: DataOption = Path("data"),
) -> None:
    """Write virtual hosts, users with their hashes, permissions, exchanges, queues and bindings, but no messages.

    This one works while the store is served, too.
    """
    content = json_document(definitions_to_read(data), indent=2) + b"\n"
    if file is None or str(file) == STANDARD_INPUT:
        standard_output().write(content)
        return
    # The hashes in it are for nobody else; a file that is there already keeps its mode.
    file.touch(mode=0o600)
    file.write_bytes(content)


@definitions_commands.command("import")
def import_definitions(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="As export_definitions wrote it; - is standard input.")],
    data: DataOption = Path("data"),
    as_json: JsonOption = False,
) -> None:
    """Take over what is defined in a file, of RabbitMQ or of Holdfast.

    Exchanges, queues and bindings that are there already stay as they are; users and permissions are replaced.

    What has no place here, such as policies, is left out and told.
    """
    content = sys.stdin.buffer.read() if str(file) == STANDARD_INPUT else file.read_bytes()
    fit = fitting(parse_definitions(content, str(file)))
    with authority_to_change(data, make=True) as authority:
        added = authority.import_(fit.document)
    if as_json:
        write_json({"added": added, "left_out": fit.left_out})
        return
    show("took over what is defined there" if added is None else f"took over {plural(added, 'definition')}")
    for line in fit.left_out:
        notify(f"left out: {line}")
