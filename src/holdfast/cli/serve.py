"""How is the broker started? `holdfast serve` listens until it is told to stop, and then finishes what it promised."""

import asyncio
import contextlib
import gc
import importlib.util
import json
import logging
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.amqp.server import Server
from holdfast.amqp.settings import Settings, load
from holdfast.base.errors import InvalidArgument
from holdfast.broker.memory import keep_allocator_small
from holdfast.cli.opening import store_to_write
from holdfast.cli.options import DataOption, JsonOption

__all__ = ["serve"]

_SWITCH_S = 0.0001
_SPOKEN = {
    "amqp": "AMQP on {host}:{port}",
    "amqps": "AMQP over TLS on {host}:{port}",
    "http": "the page and the API on http://{host}:{port}/",
    "https": "the page and the API on https://{host}:{port}/",
    "capnp": "Cap'n Proto on {host}:{port}",
}


def _port(name: str, says: str) -> Any:
    return typer.Option(name, metavar="PORT", help=says)


def serve(
    data: DataOption = Path("data"),
    config: Annotated[Path | None, typer.Option("--config", help="A TOML file with settings.")] = None,
    host: Annotated[str | None, typer.Option("--host", help="The address to listen on (127.0.0.1).")] = None,
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
        {"host": host, "amqp_port": amqp_port, "amqps_port": amqps_port, "http_port": http_port, "rpc_port": rpc_port},
        dict(_pair(one) for one in setting or ()),
    )
    logging.basicConfig(
        level=logging.INFO if verbose else logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):  # six files a durable queue, and one a client
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # What a message leaves behind is freed by counting references; the rest need not be searched for all the time.
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    keep_allocator_small()
    # Whoever waits for the disk is let on sooner while clients keep the loop busy: a tenth more messages of 64 KiB.
    sys.setswitchinterval(_SWITCH_S)
    with store_to_write(data) as store:
        _runner(lambda: _serve(store, settings, as_json))


async def _serve(store: Any, settings: Settings, as_json: bool) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stopped.set)
    from holdfast.web.doors import Web  # noqa: PLC0415 - needs what only a server has

    server = Server(store, settings)
    web: Web | None = None
    try:
        await server.start()
        web = Web(server)
        await asyncio.to_thread(web.start)
        for one in web.site.listeners:
            if as_json:
                print(json.dumps({name: one[name] for name in ("protocol", "host", "port")}), flush=True)
            else:
                print(_SPOKEN[str(one["protocol"])].format(**one), flush=True)
        await stopped.wait()
    finally:
        if web is not None:
            await asyncio.to_thread(web.stop)
        await server.stop()


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
