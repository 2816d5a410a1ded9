"""Routes for queues in RabbitMQ's API: list, declare, delete and purge them."""

from typing import Any, cast

from holdfast.base.errors import InvalidArgument
from holdfast.broker.permissions import Operation
from holdfast.broker.vhost import VirtualHostRuntime
from holdfast.web.rabbitmq_api.access import arguments_of, body_of, flag_of, host_of, hosts_of, may, nothing_at, text_of
from holdfast.web.rabbitmq_api.pagination import LISTING, answered, columns_of
from holdfast.web.rabbitmq_api.queue_serializer import (
    Entry,
    Idleness,
    basic_row,
    entries_of,
    head_timestamp,
    queue_row,
    totals_row,
    waiting_and_held,
)
from holdfast.web.rabbitmq_api.response_types import BindingRow, Listing, QueueInfo
from holdfast.web.rabbitmq_api.serializers import binding_row, consumer_row, default_binding
from holdfast.web.routes import Call, Needs, Reply, Routes

__all__ = ["routes"]

routes = Routes("RabbitMQ: queues")
_IDLENESS = Idleness()
_QUICK: dict[str, Any] = {
    "name": lambda entry: entry.definition.name,
    "vhost": lambda entry: entry.definition.vhost,
    "consumers": lambda entry: len(entry.broker_queue.consumers) if entry.broker_queue is not None else 0,
    "durable": lambda entry: entry.definition.durable,
    "messages": lambda entry: sum(waiting_and_held(entry)),
    "messages_ready": lambda entry: waiting_and_held(entry)[0],
    "messages_unacknowledged": lambda entry: waiting_and_held(entry)[1],
}
"""Columns that can be computed without a whole row."""
_QUERY = {
    **LISTING,
    "disable_stats": "`true`: only the declaration.",
    "enable_queue_totals": "`true`, with `disable_stats`: also the message counts.",
}
_DECLARED = {
    "type": "object",
    "properties": {
        "durable": {"type": "boolean"},
        "auto_delete": {"type": "boolean"},
        "arguments": {"type": "object"},
        "node": {"type": "string"},
    },
}


def _list(call: Call, hosts: list[VirtualHostRuntime]) -> Listing[QueueInfo]:
    entries = call.site.on_broker(lambda: entries_of(hosts))
    entries.sort(key=lambda entry: (entry.definition.vhost, entry.definition.name))

    columns = [one.strip() for one in call.query.get("columns", "").split(",")]
    is_quick = _QUICK.keys() >= {*columns, call.query.get("sort") or "name"}

    def row(entry: Entry) -> QueueInfo:
        if call.query.get("disable_stats") == "true":
            return totals_row(entry) if call.query.get("enable_queue_totals") == "true" else basic_row(entry)
        if is_quick and entry.broker_queue is not None:  # whole rows of ten thousand queues take most of a second
            return cast("QueueInfo", {name: _QUICK[name](entry) for name in columns})
        return queue_row(entry, _IDLENESS)

    return answered(entries, call.query, row=row, name=lambda entry: entry.definition.name, quick=_QUICK)


def _entry(call: Call, host: VirtualHostRuntime) -> Entry:
    name = call.path["name"]
    definition = host.topology.queues.get(name)
    if definition is None:
        raise nothing_at(f"queue in the virtual host {host.name!r} called", name)
    return Entry(definition, host.broker_queues.get(name), call.site.broker.memory)


@routes.get("/api/queues", needs=Needs.LOGIN, says="List all queues.", query=_QUERY)
def every_queue(call: Call) -> Listing[QueueInfo]:
    """Return all queues of all virtual hosts that the caller sees."""
    return _list(call, hosts_of(call))


@routes.get("/api/queues/{vhost}", needs=Needs.LOGIN, says="List the queues of a virtual host.", query=_QUERY)
def queues_in(call: Call) -> Listing[QueueInfo]:
    """Return the queues of one virtual host."""
    return _list(call, [host_of(call)])


@routes.get(
    "/api/queues/{vhost}/{name}", needs=Needs.LOGIN, says="Show one queue.", query={"columns": LISTING["columns"]}
)
def one_queue(call: Call) -> QueueInfo:
    """Return a queue with its consumers."""
    host = host_of(call)
    entry = _entry(call, host)
    name = entry.definition.name
    consumers = call.site.on_broker(lambda: call.site.server.report.consumers(host.name, name))
    row = queue_row(entry, _IDLENESS)
    row.update({"consumer_details": [consumer_row(one) for one in consumers], "deliveries": [], "incoming": []})
    if entry.broker_queue is not None:
        row["head_message_timestamp"] = head_timestamp(entry.broker_queue)
    return columns_of(row, call.query.get("columns", ""))


@routes.put(
    "/api/queues/{vhost}/{name}",
    needs=Needs.LOGIN,
    says="Declare a queue.",
    takes=_DECLARED,
    status=201,
    also={204: None},
)
def declare(call: Call) -> Reply[None]:
    """Declare a queue (201), or check that it exists as the body says (204).

    A dead-letter exchange also needs read permission on the queue, and write permission on the exchange.
    """
    host = host_of(call, use=True)
    name, body = call.path["name"], body_of(call)
    if not name:
        raise InvalidArgument("a queue needs a name")
    arguments = arguments_of(body)
    may(call, Operation.QUEUE_DECLARE, host, name)
    if isinstance(dead := arguments.get("x-dead-letter-exchange"), str):
        may(call, Operation.QUEUE_TAKE, host, name)
        may(call, Operation.EXCHANGE_PUBLISH, host, dead)

    def work() -> bool:
        is_new = name not in host.topology.queues
        host.declare_queue(
            name,
            durable=flag_of(body, "durable"),
            exclusive=False,
            auto_delete=flag_of(body, "auto_delete"),
            arguments=arguments,
            passive=False,
            owner=None,
        )
        return is_new

    return Reply(status=201 if call.site.on_broker(work) else 204)


@routes.delete(
    "/api/queues/{vhost}/{name}",
    needs=Needs.LOGIN,
    says="Delete a queue.",
    query={"if-empty": "`true`: only if it is empty.", "if-unused": "`true`: only if it has no consumers."},
)
def delete(call: Call) -> None:
    """Delete a queue with its messages; 404 if there is none."""
    host = host_of(call, use=True)
    name = call.path["name"]
    may(call, Operation.QUEUE_DELETE, host, name)

    def work() -> None:
        _entry(call, host)
        host.delete_queue(
            name, None, if_unused=call.query.get("if-unused") == "true", if_empty=call.query.get("if-empty") == "true"
        )

    call.site.on_broker(work)


@routes.delete("/api/queues/{vhost}/{name}/contents", needs=Needs.LOGIN, says="Purge a queue.")
def purge(call: Call) -> None:
    """Drop all messages of a queue that are not leased, also delayed ones; on disk when this responds."""
    host = host_of(call, use=True)
    name = call.path["name"]
    may(call, Operation.QUEUE_PURGE, host, name)
    broker_queue = call.site.on_broker(lambda: host.broker_queue(name, None))
    broker_queue.queue.purge()
    broker_queue.queue.sync()


@routes.get(
    "/api/queues/{vhost}/{name}/bindings", needs=Needs.LOGIN, says="List the bindings of a queue.", query=LISTING
)
def bindings_to(call: Call) -> Listing[BindingRow]:
    """Return the bindings of a queue, with its implicit one to the default exchange."""
    host = host_of(call)
    name = _entry(call, host).definition.name
    found = call.site.on_broker(lambda: list(host.topology.bindings_to("queue", name)))
    every = [default_binding(host.name, name), *found]
    return answered(every, call.query, row=binding_row, name=lambda one: one.source)


@routes.post(
    "/api/queues/{vhost}/{name}/actions",
    needs=Needs.LOGIN,
    says="Does nothing: there are no mirrors to synchronise.",
    takes={"type": "object", "properties": {"action": {"type": "string"}}},
)
def act(call: Call) -> None:
    """Do nothing: `sync` and `cancel_sync` are for mirrors, and there are none. Other actions are a 400."""
    _entry(call, host_of(call, use=True))
    action = text_of(body_of(call, "action"), "action")
    if action not in ("sync", "cancel_sync"):
        raise InvalidArgument(f"unknown action {action!r}: use sync or cancel_sync")
