"""The `holdfast serve` command: runs the server until a signal, then completes pending confirms and exits."""

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
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.amqp.listeners import shown
from holdfast.amqp.server import Server
from holdfast.amqp.settings import Settings, load
from holdfast.base.errors import InvalidArgument
from holdfast.broker.memory_alarm import keep_allocator_small
from holdfast.broker.users import DEFAULT, Users
from holdfast.cli.open_store import store_to_write
from holdfast.cli.options import DataOption, JsonOption
from holdfast.cli.server_logging import LineFormatter
from holdfast.cli.warnings import notify
from holdfast.doctor import check_modes

__all__ = ["serve"]

_SWITCH_S = 0.0001
_SPOKEN = {
    "amqp": ("AMQP on ", "{place}"),
    "amqps": ("AMQP over TLS on ", "{place}"),
    "http": ("the page and the API on ", "http://{place}/"),
    "https": ("the page and the API on ", "https://{place}/"),
    "capnp": ("Cap'n Proto on ", "{place}"),
}
"""What is said of a protocol, and of each address that it is spoken on."""


def _port(name: str, says: str) -> Any:
    return typer.Option(name, metavar="PORT", help=says)


def serve(
    data: DataOption = Path("data"),
    config: Annotated[Path | None, typer.Option("--config", help="A TOML file with settings.")] = None,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="An address to listen on (127.0.0.1 and ::1); may be repeated. `::` for all."),
    ] = None,
    amqp_port: Annotated[str | None, _port("--amqp-port", "The port for AMQP (5672); 0: any, none: shut.")] = None,
    amqps_port: Annotated[str | None, _port("--amqps-port", "The port for AMQP over TLS.")] = None,
    http_port: Annotated[
        str | None, _port("--http-port", "The port for the page and the API (15672); 0: any, none: shut.")
    ] = None,
    rpc_port: Annotated[str | None, _port("--rpc-port", "The port for Cap'n Proto (9090); 0: any, none: shut.")] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="Any other setting, as NAME=VALUE; may be repeated.")
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Say who comes and goes.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Serve the store until Ctrl-C or SIGTERM: AMQP 0-9-1, the management page with its API, and Cap'n Proto."""
    if any(importlib.util.find_spec(name) is None for name in ("argon2", "capnp", "starlette", "uvicorn")):
        raise InvalidArgument("to serve, Holdfast needs more than it came with: pip install 'holdfast[server]'")
    settings = load(
        config,
        os.environ,
        {
            "host": host or None,
            "amqp_port": amqp_port,
            "amqps_port": amqps_port,
            "http_port": http_port,
            "rpc_port": rpc_port,
        },
        dict(_pair(one) for one in setting or ()),
    )
    _log_to_stderr(logging.INFO if verbose else logging.WARNING)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # six files a durable queue, and one a client
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # What a message leaves behind is freed by counting references; the rest need not be searched for all the time.
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    keep_allocator_small()
    # Whoever waits for the disk is let on sooner while clients keep the loop busy: a tenth more messages of 64 KiB.
    sys.setswitchinterval(_SWITCH_S)
    # RocksDB makes its files as the umask says, and so do pipelines that are started from here: they are processes that
    # inherit it, and `holdfast.spark.session` hands it on to Hadoop.
    os.umask(os.umask(0o077) | (0o027 if settings.group_readable else 0o077))
    with store_to_write(data, group_readable=settings.group_readable or None) as store:
        _runner(lambda: _serve(store, settings, as_json))


def _log_to_stderr(level: int) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=level, handlers=[handler])


async def _serve(store: Any, settings: Settings, as_json: bool) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stopped.set)
    from holdfast.web.web_server import WebServer  # noqa: PLC0415 - needs what only a server has

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
        await stopped.wait()
    finally:
        if web is not None:
            await asyncio.to_thread(web.stop)
        await server.stop()


def _advise(users: Users, data: Path) -> None:
    """Print how to create an administrator, if there is none but the default user."""
    administrators = [user.name for user in users.all() if "administrator" in user.tags]
    if administrators == [DEFAULT] and users.is_default(DEFAULT):
        notify(
            f"the only administrator is {DEFAULT!r} with its default password, as which every user of this machine can "
            "log in. It may not start backups and pipelines over HTTP, nor make administrators. To make one, stop the "
            f"server and run: holdfast user add NAME --tag administrator --data {shlex.quote(str(data))}"
        )


def _runner(main: Any) -> None:
    try:
        import uvloop  # noqa: PLC0415 - only where it is installed
    except ImportError:
        asyncio.run(main())
    else:
        uvloop.run(main())


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or name not in Settings.__dataclass_fields__:
        raise InvalidArgument(f"--set takes NAME=VALUE with a setting of the table in docs/operations.md, not {text!r}")
    return name, value
