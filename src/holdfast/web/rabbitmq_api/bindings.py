"""Routes for bindings in RabbitMQ's API: list, add and remove them."""

from urllib.parse import quote_plus, unquote_plus

from holdfast.broker.permissions import Operation
from holdfast.broker.routing import Binding, DestinationKind
from holdfast.broker.vhost import VirtualHostRuntime
from holdfast.web.rabbitmq_api.access import (
    arguments_of,
    body_of,
    exchange_name,
    host_of,
    hosts_of,
    may,
    nothing_at,
    routing_key_in,
)
from holdfast.web.rabbitmq_api.pagination import LISTING, answered
from holdfast.web.rabbitmq_api.response_types import BindingRow, Listing
from holdfast.web.rabbitmq_api.serializers import binding_row, default_binding, properties_key
from holdfast.web.routes import Call, Needs, Reply, Routes

__all__ = ["chosen", "routes"]

routes = Routes("RabbitMQ: bindings")
_BOUND = {"type": "object", "properties": {"routing_key": {"type": "string"}, "arguments": {"type": "object"}}}


def chosen(bindings: list[Binding], key: str) -> Binding | None:
    """Return the binding of this `properties_key`; None if there is none.

    The key is compared as lists show it, then with one percent-encoding less, as some clients send it.
    """
    for binding in bindings:
        if properties_key(binding) == key:
            return binding
    return next((one for one in bindings if unquote_plus(properties_key(one), errors="surrogateescape") == key), None)


def _all(host: str, queues: list[str], bindings: list[Binding]) -> list[Binding]:
    """Return all bindings in order, after the implicit ones of the default exchange."""
    found = sorted(bindings, key=lambda one: (one.source, one.destination_kind, one.destination, one.routing_key))
    return [*(default_binding(host, queue) for queue in sorted(queues)), *found]


def _list(call: Call, hosts: list[VirtualHostRuntime]) -> Listing[BindingRow]:
    # Thousands of bindings are sorted here: the broker's thread has more urgent work.
    seen = call.site.on_broker(
        lambda: [(host.name, list(host.topology.queues), list(host.topology.bindings())) for host in hosts]
    )
    found = [binding for one in seen for binding in _all(*one)]
    return answered(found, call.query, row=binding_row, name=lambda one: one.source)


def _between(call: Call, host: VirtualHostRuntime, kind: DestinationKind) -> list[Binding]:
    source = exchange_name(call.path["source"])
    destination = call.path["destination"] if kind == "queue" else exchange_name(call.path["destination"])

    def work() -> list[Binding]:
        if not source:
            there = kind == "queue" and destination in host.topology.queues
            return [default_binding(host.name, destination)] if there else []
        return [one for one in host.topology.bindings_to(kind, destination) if one.source == source]

    return call.site.on_broker(work)


@routes.get("/api/bindings", needs=Needs.LOGIN, says="List all bindings.", query=LISTING)
def every_binding(call: Call) -> Listing[BindingRow]:
    """Return all bindings of all virtual hosts that the caller sees."""
    return _list(call, hosts_of(call))


@routes.get("/api/bindings/{vhost}", needs=Needs.LOGIN, says="List the bindings of a virtual host.", query=LISTING)
def bindings_in(call: Call) -> Listing[BindingRow]:
    """Return the bindings of one virtual host."""
    return _list(call, [host_of(call)])


def _shown(call: Call, kind: DestinationKind) -> Listing[BindingRow]:
    return answered(_between(call, host_of(call), kind), call.query, row=binding_row, name=lambda one: one.routing_key)


def _one(call: Call, kind: DestinationKind) -> BindingRow:
    return binding_row(_found(call, host_of(call), kind))


def _found(call: Call, host: VirtualHostRuntime, kind: DestinationKind) -> Binding:
    binding = chosen(_between(call, host, kind), call.path["properties"])
    if binding is None:
        raise nothing_at("binding", call.path["properties"])
    return binding


def _check(call: Call, host: VirtualHostRuntime, kind: DestinationKind) -> None:
    may(call, Operation.QUEUE_BIND if kind == "queue" else Operation.EXCHANGE_BIND_TO, host, call.path["destination"])
    may(call, Operation.EXCHANGE_BIND_FROM, host, exchange_name(call.path["source"]))


def _bind(call: Call, kind: DestinationKind) -> Reply[None]:
    host = host_of(call, use=True)
    body = body_of(call)
    _check(call, host, kind)
    source, destination = exchange_name(call.path["source"]), call.path["destination"]
    key, arguments = routing_key_in(body), arguments_of(body)
    call.site.on_broker(lambda: host.bind(source, kind, destination, key, arguments, None))
    named = properties_key(Binding(host.name, source, kind, destination, key, arguments))
    where = f"{quote_plus(destination, errors='surrogateescape')}/{quote_plus(named, safe='~')}"
    return Reply(status=201, headers={"Location": where})


def _unbind(call: Call, kind: DestinationKind) -> None:
    host = host_of(call, use=True)
    _check(call, host, kind)
    one = _found(call, host, kind)
    call.site.on_broker(lambda: host.unbind(one.source, kind, one.destination, one.routing_key, one.arguments, None))


def _offer(code: str, kind: DestinationKind) -> None:
    """Add the routes for bindings to queues, or to exchanges."""
    between = f"/api/bindings/{{vhost}}/e/{{source}}/{code}/{{destination}}"
    what = f"from an exchange to {'a queue' if kind == 'queue' else 'an exchange'}"
    one = between + "/{properties}"

    @routes.get(between, needs=Needs.LOGIN, says=f"List the bindings {what}.", query=LISTING)
    def every(call: Call) -> Listing[BindingRow]:
        return _shown(call, kind)

    @routes.post(between, needs=Needs.LOGIN, says=f"Add a binding {what}.", takes=_BOUND, status=201)
    def bind(call: Call) -> Reply[None]:
        return _bind(call, kind)

    @routes.get(one, needs=Needs.LOGIN, says=f"Show one binding {what}, by its properties_key.")
    def show(call: Call) -> BindingRow:
        return _one(call, kind)

    @routes.delete(one, needs=Needs.LOGIN, says=f"Remove a binding {what}.")
    def unbind(call: Call) -> None:
        _unbind(call, kind)


_offer("q", "queue")
_offer("e", "exchange")
