"""Routes for virtual hosts in RabbitMQ's API: list, add and delete them, and list their permissions."""

from typing import cast

from holdfast.amqp.connection_report import ConnectionReport
from holdfast.broker.users import tags_of
from holdfast.broker.vhost import VirtualHostRuntime
from holdfast.queue import Queue
from holdfast.web.rabbitmq_api.access import body_of, host_of, hosts_of, text_of
from holdfast.web.rabbitmq_api.message_stats import message_stats, totals_of
from holdfast.web.rabbitmq_api.pagination import LISTING, answered, columns_of
from holdfast.web.rabbitmq_api.response_types import Listing, PermissionRow, VhostRow
from holdfast.web.rabbitmq_api.serializers import node_name, permission_row, rate
from holdfast.web.response_types import Empty
from holdfast.web.routes import Call, Needs, Reply, Routes

__all__ = ["routes"]

routes = Routes("RabbitMQ: virtual hosts")
_AT_ONCE = 20
"""Queues that are deleted at a time; the broker does other work in between."""


def _rows(call: Call, hosts: list[VirtualHostRuntime]) -> list[VhostRow]:
    def work() -> list[list[Queue]]:
        return [[broker_queue.queue for broker_queue in host.broker_queues.values()] for host in hosts]

    connections = call.site.on_broker(call.site.server.report.connections)
    return [
        _row(call, host, queues, connections) for host, queues in zip(hosts, call.site.on_broker(work), strict=True)
    ]


def _row(call: Call, host: VirtualHostRuntime, queues: list[Queue], connections: list[ConnectionReport]) -> VhostRow:
    said = call.site.broker.definitions.vhost(host.name)
    totals = totals_of(queues)
    here = [one for one in connections if one.vhost == host.name]
    form = {
        "cluster_state": {node_name(): "running"},
        "default_queue_type": "undefined",
        "description": said.description,
        "metadata": {"description": said.description, "tags": list(said.tags)},
        "name": host.name,
        "tags": list(said.tags),
        "tracing": False,
        **totals.row(),
        "recv_oct": sum(one.received for one in here),
        "recv_oct_details": rate(sum(one.received_rate for one in here)),
        "send_oct": sum(one.sent for one in here),
        "send_oct_details": rate(sum(one.sent_rate for one in here)),
    }
    row = cast("VhostRow", form)
    if stats := message_stats(totals.flow):
        row["message_stats"] = stats
    return row


@routes.get("/api/vhosts", needs=Needs.LOGIN, says="List all virtual hosts.", query=LISTING)
def every_vhost(call: Call) -> Listing[VhostRow]:
    """Return all virtual hosts that the caller sees."""
    return answered(_rows(call, hosts_of(call)), call.query, row=lambda one: one, name=lambda one: str(one["name"]))


@routes.get("/api/vhosts/{vhost}", needs=Needs.LOGIN, says="Show one virtual host.")
def one_vhost(call: Call) -> VhostRow:
    """Return one virtual host."""
    return columns_of(_rows(call, [host_of(call)])[0], call.query.get("columns", ""))


@routes.put(
    "/api/vhosts/{vhost}",
    needs=Needs.ADMINISTRATOR,
    says="Add a virtual host, in which the caller gets all permissions.",
    takes={"type": "object", "properties": {"description": {"type": "string"}, "tags": {"type": ["string", "array"]}}},
    status=201,
    also={204: None},
)
def put_vhost(call: Call) -> Reply[None]:
    """Add a virtual host, in which the caller gets all permissions, or update its metadata."""
    body = body_of(call)
    description = text_of(body, "description") if body.get("description") is not None else None
    tags = tags_of(body["tags"]) if body.get("tags") is not None else None
    is_new = call.site.on_broker(
        lambda: call.site.server.administration.put_vhost(
            call.path["vhost"], description=description, tags=tags, owner=call.who.name
        )
    )
    return Reply(status=201 if is_new else 204)


@routes.delete(
    "/api/vhosts/{vhost}",
    needs=Needs.ADMINISTRATOR,
    says="Delete a virtual host with its queues and their messages, and close the connections to it.",
)
def delete_vhost(call: Call) -> None:
    """Delete a virtual host with its queues and messages, and close the connections to it.

    Queues are deleted a few at a time, so that the broker's thread can do other work in between.
    """
    administration, name = call.site.server.administration, call.path["vhost"]
    while not call.site.on_broker(lambda: administration.empty_vhost(name, _AT_ONCE)):
        pass
    call.site.on_broker(lambda: administration.delete_vhost(name))


@routes.get(
    "/api/vhosts/{vhost}/permissions", needs=Needs.ADMINISTRATOR, says="List the permissions in a virtual host."
)
def permissions_in(call: Call) -> list[PermissionRow]:
    """Return the permissions in a virtual host."""
    host = call.site.host(call.path["vhost"])
    return [permission_row(one) for one in call.site.server.administration.permissions(vhost=host.name)]


@routes.get(
    "/api/vhosts/{vhost}/topic-permissions",
    needs=Needs.ADMINISTRATOR,
    says="Always empty: topic permissions are not supported.",
)
def topic_permissions_in(call: Call) -> Empty:
    """Return an empty list: there are no topic permissions."""
    call.site.host(call.path["vhost"])
    return []


@routes.post(
    "/api/vhosts/{vhost}/start/{node}", needs=Needs.ADMINISTRATOR, says="Does nothing: every virtual host is running."
)
def start_vhost(call: Call) -> None:
    """Do nothing: each virtual host is running."""
    call.site.host(call.path["vhost"])
