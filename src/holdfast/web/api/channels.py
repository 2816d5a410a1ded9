"""API route that closes a single AMQP channel; RabbitMQ's API can close whole connections only."""

from holdfast.broker.errors import AccessRefused
from holdfast.web.rabbitmq_api.access import nothing_at
from holdfast.web.routes import Call, Needs, Routes

__all__ = ["client_routes"]

client_routes = Routes("clients")
_REASON = "Closed via management API"


@client_routes.delete(
    "/api/holdfast/channels/{name}",
    needs=Needs.LOGIN,
    says="Close one channel of a connection; its unsettled messages are requeued.",
    query={"reason": "The reason that is sent to the client."},
)
def close_channel(call: Call) -> None:
    """Close a channel: its unsettled deliveries are requeued, and the connection stays open.

    Only administrators may close channels of other users.
    """
    name, report = call.path["name"], call.site.server.report
    found = next((one for one in call.site.on_broker(report.channels) if one.name == name), None)
    if found is None:
        raise nothing_at("channel", name)
    if not call.who.is_administrator and found.user != call.who.name:
        raise AccessRefused("only administrators may close channels of other users")
    reason = call.query.get("reason") or _REASON
    call.site.on_broker(lambda: report.close_channel(name, reason))
