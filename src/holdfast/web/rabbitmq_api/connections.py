"""Routes for connections, channels and consumers in RabbitMQ's API: list and close them."""

from holdfast.amqp.connection_report import ChannelReport, ConnectionReport
from holdfast.broker.errors import AccessRefused
from holdfast.web.rabbitmq_api.access import host_of, hosts_of, nothing_at
from holdfast.web.rabbitmq_api.pagination import LISTING, answered, columns_of
from holdfast.web.rabbitmq_api.response_types import ChannelRow, ConnectionRow, ConsumerRow, Listing
from holdfast.web.rabbitmq_api.serializers import channel_row, connection_row, consumer_row
from holdfast.web.routes import Call, Needs, Routes

__all__ = ["routes"]

routes = Routes("RabbitMQ: connections")
_REASON = "Closed via management API"


def _connections(call: Call, found: list[ConnectionReport]) -> Listing[ConnectionRow]:
    """List connections; a caller without the tag monitoring or administrator sees only their own."""
    if not call.who.sees_all:
        found = [one for one in found if one.user == call.who.name]
    found.sort(key=lambda one: one.name)
    return answered(found, call.query, row=connection_row, name=lambda one: one.name)


def _channels(call: Call, found: list[ChannelReport]) -> Listing[ChannelRow]:
    if not call.who.sees_all:
        found = [one for one in found if one.user == call.who.name]
    found.sort(key=lambda one: (one.connection, one.number))
    return answered(found, call.query, row=channel_row, name=lambda one: one.name)


def _connection(call: Call) -> ConnectionReport:
    found = call.site.on_broker(lambda: call.site.server.report.connection(call.path["name"]))
    if not call.who.sees_all and found.user != call.who.name:
        raise AccessRefused(f"the connection {found.name!r} belongs to another user")
    return found


@routes.get("/api/connections", needs=Needs.LOGIN, says="List all connections.", query=LISTING)
def every_connection(call: Call) -> Listing[ConnectionRow]:
    """Return all connections that the caller sees."""
    return _connections(call, call.site.on_broker(call.site.server.report.connections))


@routes.get(
    "/api/vhosts/{vhost}/connections", needs=Needs.LOGIN, says="List the connections to a virtual host.", query=LISTING
)
def connections_in(call: Call) -> Listing[ConnectionRow]:
    """Return the connections to one virtual host that the caller sees."""
    name = host_of(call).name
    return _connections(call, call.site.on_broker(lambda: call.site.server.report.connections(name)))


@routes.get(
    "/api/connections/username/{user}", needs=Needs.LOGIN, says="List the connections of a user.", query=LISTING
)
def connections_of(call: Call) -> Listing[ConnectionRow]:
    """Return the connections of one user that the caller sees."""
    found = call.site.on_broker(call.site.server.report.connections)
    return _connections(call, [one for one in found if one.user == call.path["user"]])


@routes.delete("/api/connections/username/{user}", needs=Needs.LOGIN, says="Close all connections of a user.")
def close_all(call: Call) -> None:
    """Close all connections of a user, with the X-Reason header as the reason.

    Only administrators may close connections of other users.
    """
    user = call.path["user"]
    _check_close(call, user)
    call.site.on_broker(lambda: call.site.server.report.close_user(user, _reason(call)))


@routes.get("/api/connections/{name}", needs=Needs.LOGIN, says="Show one connection.")
def one_connection(call: Call) -> ConnectionRow:
    """Return one connection."""
    return columns_of(connection_row(_connection(call)), call.query.get("columns", ""))


@routes.delete("/api/connections/{name}", needs=Needs.LOGIN, says="Close a connection; the client gets X-Reason.")
def close(call: Call) -> None:
    """Close a connection, with the X-Reason header as the reason.

    Only administrators may close connections of other users.
    """
    found = _connection(call)
    _check_close(call, found.user)
    call.site.on_broker(lambda: call.site.server.report.close(found.name, _reason(call)))


@routes.get(
    "/api/connections/{name}/channels", needs=Needs.LOGIN, says="List the channels of a connection.", query=LISTING
)
def channels_of(call: Call) -> Listing[ChannelRow]:
    """Return the channels of one connection, if the caller sees it."""
    name = _connection(call).name
    return _channels(call, call.site.on_broker(lambda: call.site.server.report.channels(connection=name)))


@routes.get("/api/channels", needs=Needs.LOGIN, says="List all channels.", query=LISTING)
def every_channel(call: Call) -> Listing[ChannelRow]:
    """Return all channels that the caller sees."""
    return _channels(call, call.site.on_broker(call.site.server.report.channels))


@routes.get(
    "/api/vhosts/{vhost}/channels", needs=Needs.LOGIN, says="List the channels in a virtual host.", query=LISTING
)
def channels_in(call: Call) -> Listing[ChannelRow]:
    """Return the channels in one virtual host that the caller sees."""
    name = host_of(call).name
    return _channels(call, call.site.on_broker(lambda: call.site.server.report.channels(name)))


@routes.get("/api/channels/{name}", needs=Needs.LOGIN, says="Show one channel with its consumers.")
def one_channel(call: Call) -> ChannelRow:
    """Return a channel with its consumers; its name is the connection's with its number in parentheses."""
    name = call.path["name"]
    report = call.site.server.report
    found = next((one for one in call.site.on_broker(report.channels) if one.name == name), None)
    if found is None:
        raise nothing_at("channel", name)
    if not call.who.sees_all and found.user != call.who.name:
        raise AccessRefused(f"the channel {name!r} belongs to another user")
    consumers = call.site.on_broker(lambda: report.consumers(found.vhost))
    row = channel_row(found)
    details = [consumer_row(one) for one in consumers if one.channel == name]
    row.update({"consumer_details": details, "deliveries": [], "publishes": []})
    return columns_of(row, call.query.get("columns", ""))


@routes.get("/api/consumers", needs=Needs.LOGIN, says="List all consumers.", query=LISTING)
def every_consumer(call: Call) -> Listing[ConsumerRow]:
    """Return all consumers in the virtual hosts that the caller sees."""
    seen = {host.name for host in hosts_of(call)}
    found = [one for one in call.site.on_broker(call.site.server.report.consumers) if one.vhost in seen]
    return answered(found, call.query, row=consumer_row, name=lambda one: one.tag)


@routes.get("/api/consumers/{vhost}", needs=Needs.LOGIN, says="List the consumers in a virtual host.", query=LISTING)
def consumers_in(call: Call) -> Listing[ConsumerRow]:
    """Return the consumers in one virtual host."""
    name = host_of(call).name
    found = call.site.on_broker(lambda: call.site.server.report.consumers(name))
    return answered(found, call.query, row=consumer_row, name=lambda one: one.tag)


def _check_close(call: Call, user: str) -> None:
    if not call.who.is_administrator and user != call.who.name:
        raise AccessRefused("only administrators may close connections of other users")


def _reason(call: Call) -> str:
    return call.headers.get("x-reason") or _REASON
