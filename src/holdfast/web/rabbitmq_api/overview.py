"""Routes about the broker as a whole in RabbitMQ's API: overview, nodes, current user and cluster name."""

import contextlib
import os
import platform
import resource
import shutil
import threading
from typing import Any, NoReturn, cast

from holdfast import __version__
from holdfast.amqp.login import LIKE_RABBITMQ
from holdfast.base.clock import SystemClock
from holdfast.broker.memory_alarm import resident_bytes
from holdfast.broker.routing import EXCHANGE_TYPES
from holdfast.queue import Queue
from holdfast.web.rabbitmq_api.access import hosts_of, nothing_at
from holdfast.web.rabbitmq_api.message_stats import message_stats, totals_of, unroutable
from holdfast.web.rabbitmq_api.pagination import columns_of
from holdfast.web.rabbitmq_api.response_types import (
    AuthSettings,
    ClusterName,
    CurrentUser,
    Description,
    ListenerRow,
    MemoryTotal,
    NodeMemory,
    NodeRow,
    OverviewRow,
    WebContext,
)
from holdfast.web.rabbitmq_api.serializers import node_name, rate
from holdfast.web.response_types import Empty
from holdfast.web.responses import Refused
from holdfast.web.routes import Call, Needs, Routes

__all__ = ["CLUSTER", "listeners_of", "routes"]

routes = Routes("RabbitMQ: overview")
CLUSTER = "holdfast"
_TYPES: list[Description] = [
    {"name": name, "description": f"AMQP {name} exchange, as per the AMQP specification", "enabled": True}
    for name in EXCHANGE_TYPES
]
_MECHANISMS: list[Description] = [
    {"name": "PLAIN", "description": "SASL PLAIN authentication mechanism", "enabled": True},
    {"name": "AMQPLAIN", "description": "QPid AMQPLAIN mechanism", "enabled": True},
    {"name": "EXTERNAL", "description": "TLS client certificate", "enabled": True},
]
_PROTOCOLS = {"amqps": "amqp/ssl"}


def listeners_of(call: Call) -> list[ListenerRow]:
    """Return the listeners in RabbitMQ's form."""
    return [
        {
            "node": node_name(),
            "protocol": _PROTOCOLS.get(str(one["protocol"]), one["protocol"]),
            "ip_address": one["host"],
            "port": one["port"],
            "socket_opts": {},
        }
        for one in call.site.listeners
    ]


def _contexts(call: Call) -> list[WebContext]:
    return [
        {"description": "Holdfast", "path": "/", "port": str(one["port"]), "node": node_name(), "ssl_opts": []}
        for one in call.site.listeners
        if str(one["protocol"]).startswith("http")
    ]


@routes.get(
    "/api/overview",
    needs=Needs.LOGIN,
    says="Show versions, totals and rates of the broker.",
    query={"columns": "Fields to return, separated by commas."},
)
def overview(call: Call) -> OverviewRow:
    """Return versions, totals and rates; with the tag monitoring or administrator also the listeners.

    Without such a tag, totals cover only the caller's virtual hosts and connections.
    """
    hosts, server = hosts_of(call), call.site.server

    def work() -> tuple[list[Queue], int, int, tuple[int, int, int]]:
        queues = [broker_queue.queue for host in hosts for broker_queue in host.broker_queues.values()]
        exchanges = sum(len(host.topology.exchanges) for host in hosts)
        defined = sum(len(host.topology.queues) for host in hosts)
        if call.who.sees_all:
            return queues, defined, exchanges, server.report.counts()
        names = {host.name for host in hosts}
        own = [one for one in server.report.connections() if one.user == call.who.name]
        consumers = [one for one in server.report.consumers() if one.vhost in names]
        return queues, defined, exchanges, (len(own), sum(one.channels for one in own), len(consumers))

    queues, defined, exchanges, (connections, channels, consumers) = call.site.on_broker(work)
    totals = totals_of(queues)
    row: OverviewRow = {
        "management_version": LIKE_RABBITMQ,
        "rates_mode": "basic",
        "sample_retention_policies": {"global": [600, 3600, 28800, 86400], "basic": [600, 3600], "detailed": [600]},
        "exchange_types": _TYPES,
        "product_version": __version__,
        "product_name": "Holdfast",
        "rabbitmq_version": LIKE_RABBITMQ,
        "cluster_name": CLUSTER,
        "erlang_version": platform.python_version(),
        "erlang_full_version": f"{platform.python_implementation()} {platform.python_version()}",
        "release_series_support_status": "supported",
        "disable_stats": False,
        "enable_queue_totals": False,
        "message_stats": {
            **message_stats(totals.flow),
            **unroutable(one for host in hosts for one in list(host.traffic.values())),
        },
        "churn_rates": {
            "connection_created": server.connections_opened,
            "connection_created_details": rate(0),
            "connection_closed": server.connections_closed,
            "connection_closed_details": rate(0),
        },
        "queue_totals": {**totals.row(), "messages_delayed": totals.delayed},
        "object_totals": {
            "channels": channels,
            "connections": connections,
            "consumers": consumers,
            "exchanges": exchanges,
            "queues": defined,
        },
        "statistics_db_event_queue": 0,
        "node": node_name(),
    }
    if call.who.sees_all:
        row.update({"listeners": listeners_of(call), "contexts": _contexts(call)})
    return columns_of(row, call.query.get("columns", ""))


def _node(call: Call) -> NodeRow:
    site = call.site
    memory, limits = site.broker.memory, site.broker.memory.limits
    used, usage = resident_bytes(), shutil.disk_usage(site.store.path)
    files = 0
    with contextlib.suppress(OSError):  # not Linux
        files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - only the names are counted
    connections, _, _ = site.on_broker(site.server.report.counts)
    counted: dict[str, Any] = {}
    for name, value in (
        ("mem_used", used),
        ("fd_used", files),
        ("sockets_used", connections),
        ("proc_used", threading.active_count()),
        ("disk_free", usage.free),
        ("connection_created", site.server.connections_opened),
        ("connection_closed", site.server.connections_closed),
    ):
        counted |= {name: value, f"{name}_details": rate(0)}
    row = {
        "name": node_name(),
        "type": "disc",
        "running": True,
        "os_pid": str(os.getpid()),
        "partitions": [],
        "cluster_links": [],
        "fd_total": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "sockets_total": site.server.admission.most,
        "proc_total": resource.getrlimit(resource.RLIMIT_NPROC)[0],
        "mem_limit": memory.resident_max,
        "mem_alarm": memory.blocked == "memory",
        "mem_calculation_strategy": "rss",
        "disk_free_limit": limits.disk_free,
        "disk_free_alarm": memory.blocked == "disk",
        "rates_mode": "basic",
        "uptime": (SystemClock().time_ns() - site.started_at) // 1_000_000,
        "run_queue": 0,
        "processors": os.cpu_count(),
        "exchange_types": _TYPES,
        "auth_mechanisms": _MECHANISMS,
        "applications": [{"name": "holdfast", "description": "Holdfast", "version": __version__}],
        "contexts": _contexts(call),
        "log_files": [],
        "db_dir": str(site.store.path),
        "config_files": [],
        "enabled_plugins": [],
        "net_ticktime": 60,
        **counted,
    }
    return cast("NodeRow", row)


@routes.get("/api/nodes", needs=Needs.MONITORING, says="List the nodes: always one.")
def nodes(call: Call) -> list[NodeRow]:
    """Return this broker, as the only node."""
    return [columns_of(_node(call), call.query.get("columns", ""))]


@routes.get("/api/nodes/{name}", needs=Needs.MONITORING, says="Show one node.")
def one_node(call: Call) -> NodeRow:
    """Return this broker, by its name."""
    if call.path["name"] != node_name():
        raise nothing_at("node", call.path["name"])
    return columns_of(_node(call), call.query.get("columns", ""))


@routes.get("/api/nodes/{name}/memory", needs=Needs.MONITORING, says="Show the memory use of a node.")
def node_memory(call: Call) -> NodeMemory:
    """Return how much of the process's memory is message bodies."""
    if call.path["name"] != node_name():
        raise nothing_at("node", call.path["name"])
    used, bodies = resident_bytes(), call.site.on_broker(call.site.broker.memory.cached)
    total: MemoryTotal = {"rss": used, "allocated": used}
    return {"memory": {"queue_procs": bodies, "other_proc": max(0, used - bodies), "strategy": "rss", "total": total}}


@routes.get("/api/extensions", needs=Needs.LOGIN, says="Always empty: there are no plug-ins.")
def extensions(call: Call) -> Empty:
    """Return an empty list: there are no plug-ins of the page."""
    return []


@routes.get("/api/feature-flags", needs=Needs.LOGIN, says="Always empty: there are no feature flags.")
def feature_flags(call: Call) -> Empty:
    """Return an empty list: there are no feature flags."""
    return []


@routes.get("/api/whoami", needs=Needs.LOGIN, says="Show the current user.")
def whoami(call: Call) -> CurrentUser:
    """Return the caller."""
    return {"name": call.who.name, "tags": list(call.who.tags)}


@routes.get("/api/auth", needs=Needs.NOTHING, says="Show the OAuth settings: always disabled.")
def auth(call: Call) -> AuthSettings:
    """Return that OAuth is not enabled."""
    return {"enable_uaa": False, "uaa_client_id": "", "uaa_location": ""}


@routes.get("/api/cluster-name", needs=Needs.LOGIN, says="Show the cluster name.")
def cluster_name(call: Call) -> ClusterName:
    """Return the cluster name that the broker sends to its clients."""
    return {"name": CLUSTER}


@routes.put("/api/cluster-name", needs=Needs.ADMINISTRATOR, says="Rejected: the cluster name cannot be changed.")
def name_cluster(call: Call) -> NoReturn:
    """Reject a change of the cluster name."""
    raise Refused(400, "bad_request", "the cluster name cannot be changed: there is a single broker and no cluster")


@routes.post("/api/rebalance/queues", needs=Needs.ADMINISTRATOR, says="Does nothing: there is one node.")
def rebalance(call: Call) -> None:
    """Do nothing: there is no other node."""
