"""Who may use the broker, and what is defined in it? Commands for a store that is not being served just now."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from holdfast import Store
from holdfast.amqp.rabbitmq import fitting, parse_definitions
from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.base.units import plural
from holdfast.broker.definitions import LOG_NAME, Definitions, HostDefinition, open_definitions
from holdfast.broker.names import name_in_store
from holdfast.broker.topology import QueueDefinition
from holdfast.broker.users import ARGON2, Permission, User
from holdfast.cli.asking import ask
from holdfast.cli.lines import STANDARD_INPUT
from holdfast.cli.notices import notify
from holdfast.cli.opening import store_to_read, store_to_write
from holdfast.cli.options import DataOption, JsonOption, UsageError, YesOption, help_if_alone
from holdfast.cli.output import json_line, make_table, safe_text, show, standard_output, write_json
from holdfast.cli.passwords import PasswordFileOption, read_password

__all__ = ["definitions_commands", "user_commands", "vhost_commands"]

_QUESTION = "Password of {name!r}: "

UserArgument = Annotated[str, typer.Argument(metavar="NAME", help="The user.")]
HostArgument = Annotated[str, typer.Argument(metavar="NAME", help="The virtual host.")]
HostOption = Annotated[str, typer.Option("--vhost", metavar="NAME", help="The virtual host.")]

user_commands = typer.Typer(
    invoke_without_command=True, callback=help_if_alone, help="Users of the broker, while it is not served."
)
vhost_commands = typer.Typer(
    invoke_without_command=True, callback=help_if_alone, help="Virtual hosts of the broker, while it is not served."
)
definitions_commands = typer.Typer(
    invoke_without_command=True,
    callback=help_if_alone,
    help="All that is defined in the broker, in the JSON of RabbitMQ's export_definitions.",
)


# Opening.


@contextlib.contextmanager
def _to_read(data: Path) -> Iterator[Definitions]:
    with store_to_read(data) as store:
        try:
            log = store.log(LOG_NAME)
        except NotFound as error:
            raise NotFound(
                f"nothing is defined in {str(data)!r} yet: holdfast serve begins with the user guest and the "
                "virtual host /"
            ) from error
        yield Definitions(log)


@contextlib.contextmanager
def _to_change(data: Path, *, make: bool = False) -> Iterator[tuple[Store, Definitions]]:
    """The definitions of a store. `make`: a store that is not there is made, and not an error."""
    if not make and not data.exists():
        raise NotFound(f"there is no store at {str(data)!r}: check --data")
    with store_to_write(data) as store:
        definitions = open_definitions(store)
        if definitions.is_new:
            definitions.begin()
            notify(
                "the broker begins with the user guest (password guest, from this machine only): "
                "holdfast user delete guest removes it"
            )
        yield store, definitions


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
    with _to_change(data, make=True) as (_, definitions):
        definitions.users().add(name, password, tags=tags)
    if as_json:
        write_json({"user": name, "tags": list(tags)})
    else:
        show(f"added the user {safe_text(name)!r}: holdfast user permit says what the user may do")


@user_commands.command("delete")
def delete_user(name: UserArgument, data: DataOption = Path("data"), as_json: JsonOption = False) -> None:
    """Delete a user with all that the user was permitted."""
    with _to_change(data) as (_, definitions):
        definitions.users().delete(name)
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
    if data.exists():
        with _to_change(data) as (_, definitions):
            definitions.users().get(name)  # a mistyped name is said before anybody types a password
    password = read_password(password_file, _QUESTION.format(name=name), twice=True)
    with _to_change(data) as (_, definitions):
        definitions.users().change_password(name, password)
    if as_json:
        write_json({"user": name, "changed": True})
    else:
        show(f"changed the password of {safe_text(name)!r}")


@user_commands.command("list")
def list_users(data: DataOption = Path("data"), as_json: JsonOption = False) -> None:
    """Show all users, how their passwords are hashed, and what they may do.

    This one works while the store is served, too.
    """
    with _to_read(data) as definitions:
        users = definitions.users()
    if as_json:
        for user in users.all():
            standard_output().write(json_line(_user_as_json(user, users.permissions(user.name))))
        return
    table = make_table("user", "tags", "password", "vhost", "configure", "write", "read")
    for user in users.all():
        password = user.algorithm.removeprefix("rabbit_password_hashing_") if user.password_hash else "none"
        for place, one in enumerate(users.permissions(user.name) or [Permission(user.name, "")]):
            who = (safe_text(user.name), safe_text(", ".join(user.tags)), password) if not place else ("", "", "")
            table.add_row(*who, *map(safe_text, (one.vhost, one.configure, one.write, one.read)))
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
    with _to_change(data) as (_, definitions):
        _check_host(definitions, vhost)
        definitions.users().permit(name, vhost, configure, write, read)
    if as_json:
        write_json({"user": name, "vhost": vhost, "configure": configure, "write": write, "read": read})
    else:
        show(f"the user {safe_text(name)!r} may now use the virtual host {safe_text(vhost)!r}")


@user_commands.command("forbid")
def forbid(
    name: UserArgument, vhost: HostOption = "/", data: DataOption = Path("data"), as_json: JsonOption = False
) -> None:
    """Take back all that a user may do in a virtual host."""
    with _to_change(data) as (_, definitions):
        users = definitions.users()
        users.get(name)
        had = bool(users.permissions(name, vhost))
        users.forbid(name, vhost)
    if as_json:
        write_json({"user": name, "vhost": vhost, "had": had})
    else:
        already = "" if had else ", and did not before"
        show(f"the user {safe_text(name)!r} may no longer use the virtual host {safe_text(vhost)!r}{already}")


def _user_as_json(user: User, permissions: list[Permission]) -> dict[str, object]:
    return {
        "user": user.name,
        "tags": list(user.tags),
        "password": (user.algorithm or ARGON2) if user.password_hash else None,
        "permissions": [
            {"vhost": one.vhost, "configure": one.configure, "write": one.write, "read": one.read}
            for one in permissions
        ],
    }


# Virtual hosts.


@vhost_commands.command("add")
def add_vhost(name: HostArgument, data: DataOption = Path("data"), as_json: JsonOption = False) -> None:
    """Add a virtual host; nobody may use it yet."""
    with _to_change(data, make=True) as (_, definitions):
        if name in _hosts(definitions):
            raise InvalidArgument(f"there is a virtual host {name!r} already")
        definitions.add_vhost(name)
    if as_json:
        write_json({"vhost": name})
    else:
        show(f"added the virtual host {safe_text(name)!r}: holdfast user permit lets users in")


@vhost_commands.command("delete")
def delete_vhost(
    name: HostArgument, data: DataOption = Path("data"), yes: YesOption = False, as_json: JsonOption = False
) -> None:
    """Delete a virtual host with its exchanges, its queues and their messages, and all that was permitted there."""
    with _to_change(data) as (store, definitions):
        _check_host(definitions, name)
        queues = [
            name_in_store(one.vhost, one.name)
            for one in definitions.all()
            if isinstance(one, QueueDefinition) and one.vhost == name
        ]
        there = sorted(set(queues) & set(store.queues()))
        if queues:
            waiting = sum(store.queue(one).waiting() for one in there)
            ask(f"Delete {name!r} with {plural(len(queues), 'queue')} and {plural(waiting, 'message')}?", yes=yes)
        definitions.delete_vhost(name)
        for one in there:  # after that: a crash leaves messages that nobody sees, and never a queue without them
            store.delete_queue(one)
    if as_json:
        write_json({"vhost": name, "queues": len(queues)})
    else:
        show(f"deleted the virtual host {safe_text(name)!r} with {plural(len(queues), 'queue')}")


@vhost_commands.command("list")
def list_vhosts(data: DataOption = Path("data"), as_json: JsonOption = False) -> None:
    """Show all virtual hosts, with how much is defined in each and who may use it.

    This one works while the store is served, too.
    """
    with _to_read(data) as definitions:
        things = definitions.all()
    rows = []
    for host in sorted(one.name for one in things if isinstance(one, HostDefinition)):
        inside = [one for one in things if getattr(one, "vhost", None) == host]
        kinds = [type(one).__name__ for one in inside]
        users = sorted(one.user for one in inside if isinstance(one, Permission))
        rows.append((host, kinds.count("ExchangeDefinition"), kinds.count("QueueDefinition"), users))
    if as_json:
        for host, exchanges, queues, users in rows:
            line = {"vhost": host, "exchanges": exchanges, "queues": queues, "users": users}
            standard_output().write(json_line(line))
        return
    table = make_table("vhost", "exchanges", "queues", "users", numbers=("exchanges", "queues"))
    for host, exchanges, queues, users in rows:
        table.add_row(safe_text(host), str(exchanges), str(queues), safe_text(", ".join(users)))
    show(table)


def _hosts(definitions: Definitions) -> list[str]:
    return sorted(one.name for one in definitions.all() if isinstance(one, HostDefinition))


def _check_host(definitions: Definitions, name: str) -> None:
    hosts = _hosts(definitions)
    if name not in hosts:
        raise NotFound(f"there is no virtual host {name!r}; there are: {', '.join(hosts) or 'none'}")


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
    with _to_read(data) as definitions:
        text = json.dumps(definitions.export(), indent=2, ensure_ascii=False) + "\n"
    if file is None or str(file) == STANDARD_INPUT:
        standard_output().write(text.encode())
        return
    # The hashes in it are for nobody else; a file that is there already keeps its mode.
    file.touch(mode=0o600)
    file.write_bytes(text.encode())


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
    with _to_change(data, make=True) as (_, definitions):
        added = len(definitions.import_(fit.document))
    if as_json:
        write_json({"added": added, "left_out": fit.left_out})
        return
    show(f"took over {plural(added, 'definition')}")
    for line in fit.left_out:
        notify(f"left out: {line}")
