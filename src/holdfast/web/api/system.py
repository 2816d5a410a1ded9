"""API routes for the server: overview, doctor checks and backup."""

import platform
import shutil
import socket
from dataclasses import asdict
from typing import TYPE_CHECKING, cast

import holdfast
from holdfast.base.errors import InvalidArgument
from holdfast.base.units import iso_time
from holdfast.web.api.replica import replica_json
from holdfast.web.api.response_types import BackupResult, Doctor, Overview
from holdfast.web.health import checkpoint_warning
from holdfast.web.request_schema import FLAG, TEXT, body, said
from holdfast.web.routes import Call, Needs, Routes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.doctor import Check
    from holdfast.web.context import ServerContext

__all__ = ["system_routes"]

system_routes = Routes("system")
_PREFIX = "/api/holdfast"


@system_routes.get(
    f"{_PREFIX}/overview", needs=Needs.LOGIN, says="Show totals, rates, memory, disk and listeners of the server."
)
def overview(call: Call) -> Overview:
    """Return totals of all virtual hosts, rates, memory, disk, warnings and listeners."""
    site = call.site
    totals, rates = site.figures.look(), site.figures.rates()
    memory, now = site.broker.memory, site.clock.time_ns()
    disk = shutil.disk_usage(site.store.path)
    return {
        "version": holdfast.__version__,
        "python": platform.python_version(),
        "node": socket.gethostname(),
        "data": str(site.store.path.absolute()) if call.who.sees_all else None,
        "started_at": site.started_at,
        "started_time": iso_time(site.started_at),
        "uptime": (now - site.started_at) / 1e9,
        "totals": {
            "ready": totals.ready,
            "delayed": totals.delayed,
            "leased": totals.leased,
            "unacked": totals.unacked,
            "dead": totals.dead,
            "oldest_age": totals.oldest_age,
        },
        "rates": {"put": rates.put, "deliver": rates.deliver, "ack": rates.ack},
        "counts": {
            "queues": totals.queues,
            "exchanges": totals.exchanges,
            "bindings": totals.bindings,
            "connections": totals.connections,
            "channels": totals.channels,
            "consumers": totals.consumers,
            "logs": totals.logs,
            "tables": totals.tables,
            "vhosts": totals.vhosts,
        },
        "memory": {
            "resident": totals.resident,
            "limit": memory.resident_max,
            "bodies": totals.bodies,
            "bodies_limit": memory.limits.bodies,
            "alarm": memory.blocked,
        },
        "disk": {
            "free": disk.free,
            "total": disk.total,
            "limit": memory.limits.disk_free,
            "used": totals.logs_bytes,
        },
        "warnings": [warning] if (warning := checkpoint_warning(site)) else [],
        **replica_json(call),
        "listeners": site.listeners,
    }


@system_routes.get(
    f"{_PREFIX}/doctor",
    needs=Needs.ADMINISTRATOR,
    says="Check the server and its store; returns advice for each problem.",
)
def doctor(call: Call) -> Doctor:
    """Return the checks, each with its result and advice."""
    from holdfast.doctor import Port, examine  # noqa: PLC0415 - imports much that nothing else needs
    from holdfast.web import server_checks  # noqa: PLC0415

    site = call.site
    ports = [
        Port(str(one["protocol"]), str(one["host"]), int(str(one["port"])), bool(one["tls"])) for one in site.listeners
    ]
    more = {
        "default user": lambda: server_checks.check_users(site.broker.users),
        "encryption": lambda: server_checks.check_encryption(ports),
        "replica": lambda: _check_replica(site),
        "certificate": lambda: server_checks.check_certificate(site.settings.tls_certificate),
    }
    return {"checks": list(examine(site.store.path, running=True, ports=ports, more=more))}


def _check_replica(site: "ServerContext") -> "Iterator[Check]":
    from holdfast.replica.doctor_checks import check_replica  # noqa: PLC0415 - as above

    status = site.replica.status
    url = None if status is None else status.url
    return check_replica(url, site.store.path, status=status, is_served=True, lag_limit=site.replica.lag_limit)


@system_routes.post(
    f"{_PREFIX}/backup",
    needs=Needs.OPERATOR,
    says="Back up the store into a folder on the server's machine, while it runs.",
    takes=body(
        "to",
        to=said(TEXT, "A path below a folder of the setting allowed_paths."),
        copy=said(FLAG, "true: copy files instead of linking them."),
        base=said(TEXT, "The earlier backup to share files with, below such a folder; the newest one by default."),
        incremental=said(FLAG, "false: share no files with earlier backups."),
    ),
)
def backup(call: Call) -> BackupResult:
    """Back up the store while it runs; return the backup's folder and contents.

    Raises 403 unless the folder is below one of `allowed_paths`.
    """
    to = call.site.paths.check(call.field("to", str), "the folder of the backup")
    if to.is_relative_to(call.site.store.path.resolve()):
        raise InvalidArgument("a backup must not be inside of the store")
    base = call.field("base", str, None)
    report = call.site.store.backup(
        to,
        base=None if base is None else call.site.paths.check(base, "the base of the backup"),
        incremental=call.field("incremental", bool, True),
        copy=call.field("copy", bool, False),
    )
    return cast("BackupResult", {**asdict(report), "path": str(report.path)})
