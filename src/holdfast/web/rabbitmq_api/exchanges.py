"""Routes for exchanges in RabbitMQ's API: list, declare and delete them, and list their bindings."""

from holdfast.base.errors import InvalidArgument
from holdfast.broker.definitions import check_name
from holdfast.broker.permissions import Operation
from holdfast.broker.topology import ExchangeDefinition
from holdfast.broker.vhost import VirtualHostRuntime
from holdfast.web.rabbitmq_api.access import (
    arguments_of,
    body_of,
    exchange_name,
    flag_of,
    host_of,
    hosts_of,
    may,
    nothing_at,
    text_of,
)
from holdfast.web.rabbitmq_api.message_stats import exchange_stats
from holdfast.web.rabbitmq_api.pagination import LISTING, answered, columns_of
from holdfast.web.rabbitmq_api.response_types import BindingRow, ExchangeRow, Listing
from holdfast.web.rabbitmq_api.serializers import binding_row, default_binding, exchange_row
from holdfast.web.routes import Call, Needs, Reply, Routes

__all__ = ["routes"]

routes = Routes("RabbitMQ: exchanges")


def _list(call: Call, hosts: list[VirtualHostRuntime]) -> Listing[ExchangeRow]:
    def work() -> list[ExchangeDefinition]:
        return [one for host in hosts for _, one in sorted(host.topology.exchanges.items())]

    return answered(call.site.on_broker(work), call.query, row=lambda one: _row(call, one), name=lambda one: one.name)


def _row(call: Call, one: ExchangeDefinition) -> ExchangeRow:
    """Return an exchange with its message rates, unless nothing was published to it since the server's start."""
    row = exchange_row(one)
    host = call.site.broker.hosts.get(one.vhost)
    traffic = host.traffic.get(one.name) if host is not None else None
    if traffic is not None:
        row["message_stats"] = exchange_stats(traffic)
    return row


def _exchange(call: Call, host: VirtualHostRuntime) -> ExchangeDefinition:
    name = exchange_name(call.path["name"])
    found = host.topology.exchanges.get(name)
    if found is None:
        raise nothing_at(f"exchange in the virtual host {host.name!r} called", name)
    return found


@routes.get("/api/exchanges", needs=Needs.LOGIN, says="List all exchanges.", query=LISTING)
def every_exchange(call: Call) -> Listing[ExchangeRow]:
    """Return all exchanges of all virtual hosts that the caller sees."""
    return _list(call, hosts_of(call))


@routes.get("/api/exchanges/{vhost}", needs=Needs.LOGIN, says="List the exchanges of a virtual host.", query=LISTING)
def exchanges_in(call: Call) -> Listing[ExchangeRow]:
    """Return the exchanges of one virtual host."""
    return _list(call, [host_of(call)])


@routes.get(
    "/api/exchanges/{vhost}/{name}", needs=Needs.LOGIN, says="Show one exchange; amq.default is the default exchange."
)
def one_exchange(call: Call) -> ExchangeRow:
    """Return one exchange."""
    row: ExchangeRow = {**_row(call, _exchange(call, host_of(call))), "incoming": [], "outgoing": []}
    return columns_of(row, call.query.get("columns", ""))


@routes.put(
    "/api/exchanges/{vhost}/{name}",
    needs=Needs.LOGIN,
    says="Declare an exchange.",
    takes={
        "type": "object",
        "properties": {
            "type": {"type": "string"},
            "durable": {"type": "boolean"},
            "auto_delete": {"type": "boolean"},
            "internal": {"type": "boolean"},
            "arguments": {"type": "object"},
        },
    },
    status=201,
    also={204: None},
)
def declare(call: Call) -> Reply[None]:
    """Declare an exchange (201), or check that it exists as the body says (204).

    An alternate exchange also needs read permission on this exchange, and write permission on the alternate.
    """
    host = host_of(call, use=True)
    name, body = exchange_name(call.path["name"]), body_of(call)
    if not call.path["name"]:
        raise InvalidArgument("an exchange needs a name")
    check_name("an exchange", call.path["name"])
    arguments = arguments_of(body)
    may(call, Operation.EXCHANGE_DECLARE, host, name)
    if isinstance(alternate := arguments.get("alternate-exchange"), str):
        may(call, Operation.EXCHANGE_BIND_FROM, host, name)
        may(call, Operation.EXCHANGE_PUBLISH, host, alternate)

    def work() -> bool:
        is_new = name not in host.topology.exchanges
        host.declare_exchange(
            name,
            text_of(body, "type", "direct"),
            durable=flag_of(body, "durable"),
            auto_delete=flag_of(body, "auto_delete"),
            internal=flag_of(body, "internal"),
            arguments=arguments,
            passive=False,
        )
        return is_new

    return Reply(status=201 if call.site.on_broker(work) else 204)


@routes.delete(
    "/api/exchanges/{vhost}/{name}",
    needs=Needs.LOGIN,
    says="Delete an exchange.",
    query={"if-unused": "`true`: only if it has no bindings."},
)
def delete(call: Call) -> None:
    """Delete an exchange with its bindings; 404 if there is none."""
    host = host_of(call, use=True)
    name = exchange_name(call.path["name"])
    may(call, Operation.EXCHANGE_DELETE, host, name)

    def work() -> None:
        _exchange(call, host)
        host.delete_exchange(name, if_unused=call.query.get("if-unused") == "true")

    call.site.on_broker(work)


@routes.get(
    "/api/exchanges/{vhost}/{name}/bindings/source",
    needs=Needs.LOGIN,
    says="List the bindings from an exchange.",
    query=LISTING,
)
def bindings_from(call: Call) -> Listing[BindingRow]:
    """Return the bindings whose source is this exchange."""
    host = host_of(call)
    exchange = _exchange(call, host)
    found = call.site.on_broker(lambda: list(host.topology.bindings_from(exchange.name)))
    if not exchange.name:
        found = [default_binding(host.name, queue) for queue in sorted(list(host.topology.queues))]  # noqa: C414
    return answered(found, call.query, row=binding_row, name=lambda one: one.destination)


@routes.get(
    "/api/exchanges/{vhost}/{name}/bindings/destination",
    needs=Needs.LOGIN,
    says="List the bindings to an exchange.",
    query=LISTING,
)
def bindings_to(call: Call) -> Listing[BindingRow]:
    """Return the bindings whose destination is this exchange."""
    host = host_of(call)
    exchange = _exchange(call, host)
    found = call.site.on_broker(lambda: list(host.topology.bindings_to("exchange", exchange.name)))
    return answered(found, call.query, row=binding_row, name=lambda one: one.source)
