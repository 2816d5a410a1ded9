"""The `holdfast serve` command: runs the server until a signal, then closes all connections and syncs the store."""

import asyncio
import contextlib
import gc
import importlib.util
import json
import logging
import os
import resource
import shlex
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from holdfast.amqp.listeners import shown
from holdfast.amqp.server import Server
from holdfast.amqp.settings import Settings, load
from holdfast.base.errors import InvalidArgument, ReplicaFenced
from holdfast.broker.memory_alarm import keep_allocator_small
from holdfast.broker.users import DEFAULT, Users
from holdfast.cli.open_store import store_to_write
from holdfast.cli.options import DataOption, JsonOption
from holdfast.cli.server_logging import LineFormatter
from holdfast.cli.standby import follow, owns_replica
from holdfast.cli.warnings import Notices, notify
from holdfast.doctor import check_modes
from holdfast.remote.address import Address
from holdfast.store import Store

__all__ = ["serve"]

T = TypeVar("T")

FENCED = 3
"""The exit code of a server whose replica was taken by another process."""
_FENCE_S = 0.1
_SWITCH_S = 0.0001
_SPOKEN = {
    "amqp": ("AMQP on ", "{place}"),
    "amqps": ("AMQP over TLS on ", "{place}"),
    "http": ("the page and the API on ", "http://{place}/"),
    "https": ("the page and the API on ", "https://{place}/"),
    "capnp": ("Cap'n Proto on ", "{place}"),
}
"""By protocol: the text that is printed for its listeners, and the form of each address."""


def _port(name: str, help: str) -> Any:
    return typer.Option(name, metavar="PORT", help=help)


def serve(
    data: DataOption = Path("data"),
    config: Annotated[Path | None, typer.Option("--config", help="A TOML file with settings.")] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="ADDRESS",
            help="Listen on this address (127.0.0.1 and ::1); may be repeated. `::` for all addresses.",
        ),
    ] = None,
    amqp_port: Annotated[
        str | None, _port("--amqp-port", "The port for AMQP (5672); 0: any free port, none: disabled.")
    ] = None,
    amqps_port: Annotated[str | None, _port("--amqps-port", "The port for AMQP over TLS.")] = None,
    http_port: Annotated[
        str | None, _port("--http-port", "The port for the page and the API (15672); 0: any free port, none: disabled.")
    ] = None,
    rpc_port: Annotated[
        str | None, _port("--rpc-port", "The port for Cap'n Proto (9090); 0: any free port, none: disabled.")
    ] = None,
    replica: Annotated[
        str | None,
        typer.Option("--replica", metavar="URL", help="Ship the store to object storage: s3://bucket/prefix, ..."),
    ] = None,
    standby: Annotated[
        bool, typer.Option("--standby", help="Follow the replica of another server, and take over when it ends.")
    ] = False,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any other setting of docs/operations.md; may be repeated."),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log connections and other events.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Serve the store over AMQP 0-9-1, HTTP (page and API) and Cap'n Proto.

    Ctrl-C or SIGTERM stops the server: connections are closed and the store is synced. Publisher confirms that are
    still pending then are not sent; their messages may have been stored.

    Settings come from the options, the environment (HOLDFAST_...) and --config, in this order.

    The exit code is 3 if another process has taken the replica: then do not start this server again before you have
    read docs/replication.md.
    """
    if any(importlib.util.find_spec(name) is None for name in ("argon2", "capnp", "starlette", "uvicorn")):
        raise InvalidArgument("holdfast serve needs more packages: pip install 'holdfast[server]'")
    settings = load(
        config,
        os.environ,
        {
            "host": host or None,
            "amqp_port": amqp_port,
            "amqps_port": amqps_port,
            "http_port": http_port,
            "rpc_port": rpc_port,
            "replica": replica,
            "standby": standby or None,
        },
        dict(_pair(one) for one in setting or ()),
    )
    _prepare_process(settings, verbose=verbose)
    if isinstance(data, Address):
        raise InvalidArgument("holdfast serve needs a folder of this machine: use --data")
    try:
        return _serve_or_follow(data, settings, as_json=as_json)
    except ReplicaFenced as error:
        notify(str(error))
        return FENCED


def _prepare_process(settings: Settings, *, verbose: bool) -> None:
    """Set what holds for the whole process: its log, limits, garbage collection and umask."""
    _log_to_stderr(logging.INFO if verbose else logging.WARNING)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # six files per durable queue, and one per client
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # Messages are freed by reference counts; cycles are rare, and need not be searched for often.
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    keep_allocator_small()
    # Threads that waited for the disk resume sooner while clients keep the loop busy: a tenth more messages of 64 KiB.
    sys.setswitchinterval(_SWITCH_S)
    # RocksDB creates its files with the umask, and so do pipelines that the server starts: they are processes that
    # inherit it, and `holdfast.spark.session` passes it to Hadoop.
    os.umask(os.umask(0o077) | (0o027 if settings.group_readable else 0o077))


def _serve_or_follow(data: Path, settings: Settings, *, as_json: bool) -> int:
    has_taken_over = False
    while True:
        if settings.standby and settings.replica is not None and not owns_replica(data, settings.replica):
            # What an open store that has lost the next epoch at once wrote into this folder was confirmed to nobody.
            discard, has_taken_over = has_taken_over, False
            if not _runner(lambda: follow(data, settings, as_json=as_json, discard=discard)):  # noqa: B023
                return 0
            has_taken_over = True
        try:
            with store_to_write(
                data,
                group_readable=settings.group_readable or None,
                replica=settings.replica,
                confirm="replica" if settings.confirm == "replica" else "local",
                confirm_timeout=settings.confirm_timeout or None,
                replica_ttl=settings.replica_ttl,
                local_retention=settings.local_retention,
                remote_cache=settings.remote_cache,
            ) as store:
                has_taken_over = False
                lost: str | None = _runner(lambda: _serve(store, settings, as_json))
        except ReplicaFenced:
            if not has_taken_over:
                raise
            continue
        if lost is None:
            return 0
        notify(lost)
        return FENCED


def _log_to_stderr(level: int) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=level, handlers=[handler])
    ours = logging.getLogger("holdfast")  # each warning is printed at once, not again at the end
    for one in [one for one in ours.handlers if isinstance(one, Notices)]:
        ours.removeHandler(one)


async def _await_fence(store: Store, stopped: asyncio.Event) -> str | None:
    """Return None when the server is to stop, or why, as soon as another process owns the replica."""
    while not stopped.is_set():
        if store.is_replicated and (lost := store.replica.lost) is not None:
            return lost
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), _FENCE_S)
    return None


async def _serve(store: Store, settings: Settings, as_json: bool) -> str | None:
    """Serve until a signal (None), or until another process has taken the replica: why."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stopped.set)
    from holdfast.web.web_server import WebServer  # noqa: PLC0415 - needs the packages of holdfast[server]

    server = Server(store, settings)
    web: WebServer | None = None
    try:
        await server.start()
        web = WebServer(server)
        await asyncio.to_thread(web.start)
        if as_json:
            for one in web.site.listeners:
                print(json.dumps({name: one[name] for name in ("protocol", "host", "port")}), flush=True)
        else:
            for protocol, (says, form) in _SPOKEN.items():
                listening = [one for one in web.site.listeners if one["protocol"] == protocol]
                places = [form.format(place=shown(str(one["host"]), int(str(one["port"])))) for one in listening]
                if places:
                    print(says + " and ".join(places), flush=True)
        _advise(server.broker.users, store.path)
        for check in check_modes(store.path):
            if check.advice:
                notify(f"{check.found}. {check.advice}")
        return await _await_fence(store, stopped)
    finally:
        if web is not None:
            await asyncio.to_thread(web.stop)
        await server.stop()


def _advise(users: Users, data: Path) -> None:
    """Print how to create an administrator, if there is none but the default user."""
    administrators = [user.name for user in users.all() if "administrator" in user.tags]
    if administrators == [DEFAULT] and users.is_default(DEFAULT):
        notify(
            f"the only administrator is {DEFAULT!r} with its default password: every user of this machine can log in "
            f"with it. {DEFAULT!r} may not start backups and pipelines over HTTP, nor create administrators. To create "
            f"an administrator, stop the server and run: holdfast user add NAME --tag administrator --data "
            f"{shlex.quote(str(data))}"
        )


def _runner(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    try:
        import uvloop  # noqa: PLC0415 - optional
    except ImportError:
        return asyncio.run(main())
    result: T = uvloop.run(main())
    return result


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or name not in Settings.__dataclass_fields__:
        raise InvalidArgument(f"--set {text!r} is not NAME=VALUE with a known setting: see docs/operations.md")
    return name, value
