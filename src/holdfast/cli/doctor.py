"""The `holdfast doctor` command: runs all checks, and prints what to do about those that fail."""

import importlib.util
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

import holdfast
from holdfast.amqp.listeners import usable
from holdfast.amqp.settings import Settings, load
from holdfast.amqp.tls import check_tls
from holdfast.base.errors import HoldfastError
from holdfast.broker.definitions import LOG_NAME, Definitions
from holdfast.cli.open_store import folder_of, remote_at
from holdfast.cli.options import DataOption, JsonOption, UsageError
from holdfast.cli.output import is_narrow, make_table, safe_text, show, write_json_lines
from holdfast.doctor import Check, Port, examine
from holdfast.running_server import RunningServer, server_of

__all__ = ["doctor", "ports_of"]

_MARKS = {"ok": "ok", "warn": "WARN", "bad": "BAD"}
_PORTS = {
    "amqp_port": "AMQP",
    "amqps_port": "AMQP over TLS",
    "http_port": "HTTP",
    "https_port": "HTTPS",
    "rpc_port": "RPC",
}
_PROTOCOLS = {"amqp": "AMQP", "amqps": "AMQP over TLS", "http": "HTTP", "https": "HTTPS", "capnp": "RPC"}


def doctor(
    data: DataOption = Path("data"),
    config: Annotated[Path | None, typer.Option("--config", help="The settings file that holdfast serve uses.")] = None,
    probe: Annotated[
        bool,
        typer.Option("--probe-replica", help="Also write a small object to the replica, and delete it again."),
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Check configuration, limits, disk, clock, versions, ports, the store and its replica.

    Changes nothing, except with --probe-replica. The exit code is 1 if a check is BAD.
    """
    with remote_at(data) as remote:
        if remote is not None:
            if probe:
                raise UsageError("--probe-replica needs --data with a folder: a server is not asked to write")
            checks = [Check(**one) for one in remote.doctor()]
            return _report(checks, as_json)
    folder = folder_of(data)
    server = server_of(folder)
    try:
        settings = load(config, os.environ, {})
    except HoldfastError:  # reported by the first check
        settings = None
    ports, certificate = _served(server) if server is not None else _configured(settings)
    more: dict[str, Callable[[], Iterator[Check]]] = {}
    if importlib.util.find_spec("starlette") is not None:  # without holdfast[server] nothing is served
        from holdfast.web.server_checks import check_certificate, check_encryption  # noqa: PLC0415

        more["default user"] = lambda: _users(folder)
        if server is not None or settings is not None:
            more["encryption"] = lambda: check_encryption(ports)
            more["certificate"] = lambda: check_certificate(certificate)
    if server is not None or settings is not None:
        more["replica"] = lambda: _replica(folder, server, settings, probe=probe)
    return _report(examine(folder, settings=lambda: _usable(config), ports=ports, more=more), as_json)


def _replica(folder: Path, server: RunningServer | None, settings: Settings | None, *, probe: bool) -> Iterator[Check]:
    """Yield the checks of the replica that the running server ships to, or a server would."""
    from holdfast.replica.doctor_checks import check_replica  # noqa: PLC0415 - only the doctor needs it

    url = settings.replica if server is None and settings is not None else None if server is None else server.replica
    yield from check_replica(url, folder, is_served=server is not None, probe=probe)


def _served(server: RunningServer) -> tuple[list[Port], str | None]:
    """Return the listeners and the certificate of the running server, which may have another configuration."""
    ports = []
    for one in server.listeners:
        protocol = str(one["protocol"])
        ports.append(Port(_PROTOCOLS.get(protocol, protocol), str(one["host"]), int(one["port"]), bool(one["tls"])))
    return ports, server.certificate


def _configured(settings: Settings | None) -> tuple[list[Port], str | None]:
    """Return the listeners and the certificate that a server would have; none if the configuration is invalid."""
    return ([], None) if settings is None else (ports_of(settings), settings.tls_certificate)


def _users(folder: Path) -> Iterator[Check]:
    """Yield the check of the users that are defined in a store; none if it was never served."""
    from holdfast.web.server_checks import check_users  # noqa: PLC0415 - as above

    if not folder.is_dir():
        return
    with holdfast.open(folder, read_only=True) as store:
        if LOG_NAME in store.logs():
            yield from check_users(Definitions(store.log(LOG_NAME)).users())


def _usable(config: Path | None) -> Settings:
    """Return the settings; raise an error if they, or the TLS files in them, cannot be used."""
    settings = load(config, os.environ, {})
    check_tls(settings)
    return settings


def ports_of(settings: Settings) -> list[Port]:
    """Return the ports that a server with these settings listens on."""
    found = []
    for name, what in _PORTS.items():
        number = getattr(settings, name, None)
        if number is not None:
            secure = name in ("amqps_port", "https_port")
            found += [Port(what, host, number, secure, name) for host in usable(settings.hosts)]
    return found


def _report(checks: list[Check], as_json: bool) -> int:
    if as_json:
        write_json_lines(asdict(check) for check in checks)
    else:
        narrow = is_narrow()
        table = make_table("", "check", "found", *([] if narrow else ["what to do"]))
        for check in checks:
            found, advice = safe_text(check.found), safe_text(check.advice)
            cells = [f"{found}\n{advice}".rstrip()] if narrow else [found, advice]
            table.add_row(_MARKS[check.state], check.name, *cells)
        show(table)
    return 1 if any(check.state == "bad" for check in checks) else 0
