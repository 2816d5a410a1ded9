"""Routes for definitions in RabbitMQ's API: export and import, of the broker or of one virtual host."""

from typing import cast

from holdfast import __version__
from holdfast.amqp.login import LIKE_RABBITMQ
from holdfast.base.errors import InvalidArgument
from holdfast.broker.administration import with_hashes
from holdfast.web.rabbitmq_api.access import user_check
from holdfast.web.rabbitmq_api.response_types import Definitions
from holdfast.web.rabbitmq_api.serializers import without_hash
from holdfast.web.routes import Call, Needs, Reply, Routes

__all__ = ["routes"]

routes = Routes("RabbitMQ: definitions")
_DOWNLOAD = {"download": "The file name under which a browser saves the response."}


def _exported(call: Call, vhost: str | None) -> Reply[Definitions]:
    found = call.site.on_broker(lambda: call.site.server.administration.export(vhost))
    if vhost is None and not call.who.is_operator:  # the default user, as whom anybody on this machine can log in
        found["users"] = [dict(without_hash(user)) for user in found["users"]]
    about = {"rabbit_version": LIKE_RABBITMQ}
    if vhost is None:
        about |= {"rabbitmq_version": LIKE_RABBITMQ, "product_name": "Holdfast", "product_version": __version__}
    name = "".join(one for one in call.query.get("download", "") if one.isalnum() or one in "._-")
    headers = {"Content-Disposition": f"attachment; filename={name}"} if name.isascii() and name else {}
    return Reply(cast("Definitions", {**about, **found}), headers=headers)


def _imported(call: Call, vhost: str | None) -> None:
    if not isinstance(call.body, dict):
        raise InvalidArgument("the definitions must be a JSON object, as GET /api/definitions returns it")
    document = with_hashes(call.body, call.site.broker.users) if vhost is None else call.body
    check = user_check(call)
    call.site.on_broker(lambda: call.site.server.administration.import_(document, vhost, check=check))


@routes.get("/api/definitions", needs=Needs.ADMINISTRATOR, says="Export all definitions.", query=_DOWNLOAD)
def export(call: Call) -> Reply[Definitions]:
    """Return users, virtual hosts, permissions, exchanges, queues and bindings; no messages.

    The default user with its default password gets no password hashes.
    """
    return _exported(call, None)


@routes.post(
    "/api/definitions", needs=Needs.ADMINISTRATOR, says="Import definitions, all or none.", takes={"type": "object"}
)
def take_over(call: Call) -> None:
    """Import definitions, all or none: add what is missing; replace users and permissions."""
    _imported(call, None)


@routes.get(
    "/api/definitions/{vhost}",
    needs=Needs.ADMINISTRATOR,
    says="Export the definitions of a virtual host.",
    query=_DOWNLOAD,
)
def export_vhost(call: Call) -> Reply[Definitions]:
    """Return exchanges, queues and bindings of one virtual host."""
    return _exported(call, call.site.host(call.path["vhost"]).name)


@routes.post(
    "/api/definitions/{vhost}",
    needs=Needs.ADMINISTRATOR,
    says="Import definitions into a virtual host, all or none.",
    takes={"type": "object"},
)
def take_over_vhost(call: Call) -> None:
    """Import exchanges, queues and bindings into one virtual host, all or none: add what is missing."""
    _imported(call, call.site.host(call.path["vhost"]).name)
