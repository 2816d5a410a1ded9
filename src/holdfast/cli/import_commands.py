"""The `holdfast import` commands: from LedgerQ and RabbitMQ, without loss, and safe to repeat."""

import ssl
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.amqp.client import Address, ChannelClosed, ConnectionEnded
from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.base.units import format_count, plural
from holdfast.cli.open_store import folder_of, store_to_read, store_to_write
from holdfast.cli.options import DataOption, JsonOption, QueueArgument, Target, UsageError, help_if_alone
from holdfast.cli.output import (
    Name,
    byte_progress,
    details,
    error_console,
    make_table,
    progress_on,
    short_name,
    show,
    write_json,
)
from holdfast.cli.passwords import PasswordFileOption, read_password
from holdfast.cli.warnings import notify, notify_some
from holdfast.importers.ledgerq import MESSAGE_MAX, ImportResult, LedgerQImport, find_dlq
from holdfast.importers.ledgerq_reader import read_ledgerq
from holdfast.importers.rabbitmq import (
    Copied,
    Found,
    RabbitImport,
    RabbitSource,
    broker_over,
    define,
    is_fresh,
    queues_in,
)
from holdfast.importers.rabbitmq_definitions import (
    UNKNOWN_TYPE,
    Fitting,
    Management,
    Unreachable,
    fitting,
    guessed_management,
    parse_definitions,
)
from holdfast.log import Flush
from holdfast.queue import QueueSettings

__all__ = ["import_commands"]

import_commands = typer.Typer(
    invoke_without_command=True, callback=help_if_alone, help="Import messages from LedgerQ or RabbitMQ."
)


@import_commands.command("ledgerq")
def import_ledgerq(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of the LedgerQ queue; it is only read.")],
    name: QueueArgument,
    data: DataOption = Path("data"),
    dlq: Annotated[
        Path | None,
        typer.Option(
            "--dlq", metavar="DIR", show_default="dlq in DIR or next to it", help="The folder of the dead letters."
        ),
    ] = None,
    no_dlq: Annotated[bool, typer.Option("--no-dlq", help="Do not import dead letters.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Also import messages that LedgerQ has delivered already.")
    ] = False,
    source: Annotated[
        str | None,
        typer.Option(
            "--source",
            metavar="NAME",
            show_default="the path of DIR",
            help="The name of this source; a copy imported under the same name brings nothing twice.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Import the messages and dead letters of a LedgerQ queue.

    Stop LedgerQ first. Imported are waiting messages, failed messages that were not delivered again, and dead letters.
    Expired messages are not imported. Headers, remaining time to live and priorities are kept (low is 0, medium 4,
    high 9).

    The command can be repeated, also after it was interrupted: the log QUEUE.imported records what was imported, so
    that each message is imported once.

    Damaged messages are skipped and reported; the exit code is then 1.
    """
    data = folder_of(data)
    if dlq is not None and no_dlq:
        raise UsageError("choose one: --dlq DIR or --no-dlq")
    dlq_folder = None if no_dlq else dlq or find_dlq(folder)
    for place in (folder, *([dlq_folder] if dlq_folder is not None else [])):
        read_ledgerq(place)  # raises for a folder that is not LedgerQ's, before a store is created
        if data.resolve().is_relative_to(place.resolve()):
            raise InvalidArgument(
                f"the store {str(data)!r} is inside the LedgerQ folder {str(place)!r}, which is only read: choose "
                "another --data"
            )
    target = None if dlq_folder is None else _dead_letter_queue(data, name)
    with store_to_write(data) as store:
        # First: opening the queue opens its dead-letter queue, too, with a smaller message limit.
        dead_queue = None if target is None else store.queue(target, max_message=MESSAGE_MAX)
        queue = store.queue(name, max_message=MESSAGE_MAX)
        work = LedgerQImport(
            folder,
            queue,
            store.log(f"{name}.imported", flush=Flush.sync()),
            source=source,
            dead_folder=dlq_folder,
            dead_queue=dead_queue,
            everything=everything,
        )
        with byte_progress(shown=not as_json) as progress:
            bar = progress.add_task(f"importing into {short_name(name)}", total=None)
            result = work.run(lambda done, total: progress.update(bar, completed=done, total=total))
    if as_json:
        places = {"queue": name, "source": str(folder), "dlq": None if dlq_folder is None else str(dlq_folder)}
        write_json(places | asdict(result))
    else:
        _show_result(result, folder, dlq_folder)
    return 1 if result.problems else 0


def _dead_letter_queue(data: Path, name: str) -> str | None:
    """Return the name of a queue's dead-letter queue, whether it exists yet or not."""
    if data.exists():
        with store_to_read(data) as store:
            if name in store.queues():
                return store.queue(name).settings.dead_letter
    return QueueSettings.of(name, {}).dead_letter


def _show_result(result: ImportResult, folder: Path, dlq_folder: Path | None) -> None:
    rows = {
        "from": str(folder),
        "imported": plural(result.imported, "message"),
        "dead letters": format_count(result.dead) + ("" if dlq_folder is None else f" from {dlq_folder!s}"),
        "expired": format_count(result.expired) if result.expired else "",
        "imported before": format_count(result.already) if result.already else "",
        "delivered before": f"{format_count(result.read_before)} skipped (--all imports them)"
        if result.read_before
        else "",
        "problems": format_count(len(result.problems)) if result.problems else "",
    }
    show(details({what: text for what, text in rows.items() if text}))
    notify_some(result.problems, "problems: --json shows all")
    for note in result.notes:
        notify(f"not imported: {note}")


@import_commands.command("rabbitmq")
def import_rabbitmq(
    origin: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="amqp://user@host:port/vhost, or amqps://; without a vhost, all of them. Other users of this machine "
            "can see a password in it: leave it out, and you are asked for it.",
        ),
    ],
    data: DataOption = Path("data"),
    management: Annotated[
        str | None,
        typer.Option(
            "--management",
            metavar="URL",
            show_default="port 15672 of the same host",
            help="The management API, which lists the definitions.",
        ),
    ] = None,
    definitions: Annotated[
        Path | None,
        typer.Option(
            "--definitions", metavar="FILE", help="Read definitions from a file of rabbitmqctl export_definitions."
        ),
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(
            "--queue",
            metavar="NAME",
            help="Import only this queue; may be repeated. Without --definitions and --management it becomes a durable "
            "classic queue.",
        ),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Copy: return every message to RabbitMQ at the end, marked as redelivered. Quorum queues count that "
            "as a failed delivery.",
        ),
    ] = False,
    password_file: PasswordFileOption = None,
    ca: Annotated[
        Path | None, typer.Option("--ca", metavar="FILE", help="The CA of the server's certificate, a PEM file.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option("--cert", metavar="FILE", help="A client certificate with its key, a PEM file.")
    ] = None,
    as_json: JsonOption = False,
) -> int:
    """Import the definitions of RabbitMQ, and move the messages of its queues over AMQP.

    Stop publishers and consumers first, and Holdfast if it serves this store.

    A message is removed from RabbitMQ when it is on disk here: nothing is lost if the import is interrupted. Repeat it
    then. Up to a thousand messages may be imported twice, with --keep all, because AMQP messages have no identity.

    Order, properties, exchange, routing key and the users' passwords are kept. The time to live of messages starts
    again.
    """
    address = _address(origin, password_file, has_certificate=certificate is not None)
    tls = _tls(address, management, ca, certificate)
    fit = _defined(address, tls, management, definitions, queue or [])
    with RabbitSource(address, tls) as source:
        found, problems = _look(source, fit, queue or [])
        added, copied = _move(source, data, fit, found, keep=keep, with_bar=not as_json)
    problems += [f"{_place(one)}: {one.problem}" for one in copied if one.problem]
    _show_move(_Moved(address, added, copied, fit.left_out, problems), as_json=as_json)
    return 1 if problems else 0


def _move(
    source: RabbitSource, data: Target, fit: Fitting, found: list[Found], *, keep: bool, with_bar: bool
) -> tuple[int, list[Copied]]:
    """Import definitions and messages; return how many definitions were added, and what was copied of each queue."""
    for one in found:
        if one.consumers:
            consumers = plural(one.consumers, "consumer")
            notify(f"the queue {one.name!r} has {consumers}: messages that they get are not imported")
    with store_to_write(data) as store:
        fresh = is_fresh(store)
        with (
            broker_over(store) as broker,
            progress_on(error_console(), shown=with_bar, in_bytes=False) as progress,
        ):
            added = define(broker, fit.document, fresh=fresh)
            bar = progress.add_task("importing messages", total=sum(one.ready for one in found))
            work = RabbitImport(source, broker, keep=keep, progress=lambda count: progress.update(bar, advance=count))
            return added, work.run(found)


def _place(one: Copied) -> str:
    return f"queue {one.queue!r} in {one.vhost!r}"


@dataclass(frozen=True, slots=True)
class _Moved:
    source: Address
    added: int
    queues: list[Copied]
    left_out: list[str]
    problems: list[str]


def _address(url: str, password_file: Path | None, *, has_certificate: bool) -> Address:
    address = Address.parse(url)
    if password_file is None and (address.password is not None or has_certificate):
        return address
    return replace(address, password=read_password(password_file, f"Password of {address.user!r}: ", twice=False))


def _tls(address: Address, management: str | None, ca: Path | None, certificate: Path | None) -> ssl.SSLContext | None:
    if not address.secure and not (management or "").startswith("https:"):
        if ca is not None or certificate is not None:
            raise UsageError("--ca and --cert are for amqps:// and https://")
        return None
    try:
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
        if certificate is not None:
            context.load_cert_chain(certificate)
    except ssl.SSLError as error:
        raise InvalidArgument(f"--ca or --cert is not a usable PEM file: {error.reason or error}") from error
    return context


def _defined(
    address: Address, tls: ssl.SSLContext | None, management: str | None, file: Path | None, queues: Sequence[str]
) -> Fitting:
    """Return the definitions to import."""
    if management is not None and file is not None:
        raise UsageError("choose one: --management URL or --definitions FILE")
    vhost = address.vhost
    if file is not None:
        return fitting(parse_definitions(file.read_bytes(), str(file)), vhost)
    if management is None and queues:
        named: dict[str, Any] = {"vhost": vhost or "/", "durable": True, "type": UNKNOWN_TYPE}
        return fitting({"queues": [named | {"name": one} for one in queues]}, vhost)
    server = Management(management or guessed_management(address), address.user, address.password or "", tls)
    try:
        fit = fitting(server.definitions(), vhost)
        transient = [one for one in server.queues() if one.get("exclusive") and vhost in (None, one.get("vhost"))]
    except Unreachable as error:
        raise Unreachable(
            f"{error}. AMQP itself cannot list queues: give --management URL, or --definitions FILE as written by "
            "rabbitmqctl export_definitions, or name the queues with --queue"
        ) from error
    exclusive = [f"queue {one.get('name')!r}: exclusive, it belongs to one connection" for one in transient]
    return replace(fit, left_out=fit.left_out + exclusive)


def _look(source: RabbitSource, fit: Fitting, names: Sequence[str]) -> tuple[list[Found], list[str]]:
    """Return the queues to import messages from, and notes on the others. A queue asked for by name must exist."""
    found: list[Found] = []
    problems: list[str] = []
    own = source.address.vhost or "/"
    defined = queues_in(fit.document)
    for name in names:
        if (own, name) not in [(vhost, queue) for vhost, queue, _ in defined]:
            left = next((line for line in fit.left_out if line.startswith(f"queue {name!r}: ")), None)
            raise NotFound(left or f"the definitions of the virtual host {own!r} have no queue {name!r}")
    if not defined:
        source.client(own)  # so that a wrong address is an error in any case
    refused: set[str] = set()
    for vhost, name, type in defined:
        if vhost in refused or (names and (vhost != own or name not in names)):
            continue
        try:
            found.append(source.look(vhost, name, type))
        except NotFound as error:
            if names:
                raise
            problems.append(str(error))
        except ChannelClosed as error:
            problems.append(f"queue {name!r} in {vhost!r}: {error}")
        except ConnectionEnded as error:
            if not found and vhost == own:
                raise
            refused.add(vhost)
            problems.append(f"virtual host {vhost!r}: {error}")
    return found, problems


def _show_move(moved: _Moved, *, as_json: bool) -> None:
    total = sum(one.messages for one in moved.queues)
    notes = [f"{_place(one)}: {note}" for one in moved.queues for note in one.notes]
    if as_json:
        write_json(
            {
                "source": str(moved.source),
                "definitions": moved.added,
                "messages": total,
                "queues": [{"vhost": one.vhost, "queue": one.queue, "messages": one.messages} for one in moved.queues],
                "left_out": moved.left_out,
                "problems": moved.problems,
                "notes": notes,
            }
        )
        return
    if moved.queues:
        table = make_table("vhost", "queue", "messages", numbers=("messages",))
        for one in moved.queues:
            table.add_row(Name(one.vhost), Name(one.queue), format_count(one.messages))
        show(table)
    show(f"imported {plural(total, 'message')} and {plural(moved.added, 'definition')} from {moved.source}")
    for problem in moved.problems:
        notify(problem)
    for line in moved.left_out:
        notify(f"skipped: {line}")
    for note in notes:
        notify(note)
