"""Routes for RabbitMQ features that Holdfast lacks: policies, parameters, limits and topic permissions."""

from collections.abc import Callable
from typing import NoReturn

from holdfast.web.rabbitmq_api.access import host_of, nothing_at
from holdfast.web.response_types import Empty
from holdfast.web.responses import Refused
from holdfast.web.routes import Call, Needs, Routes

__all__ = ["routes"]

routes = Routes("RabbitMQ: unsupported features")

_ARGUMENTS = "set arguments such as x-max-length or x-message-ttl when a queue is declared"
_WHY = {
    "policies": f"policies are not supported: {_ARGUMENTS}",
    "operator-policies": f"policies are not supported: {_ARGUMENTS}",
    "parameters": "parameters are not supported: they are for plug-ins of RabbitMQ, such as shovels and federation",
    "global-parameters": "parameters are not supported: they are for plug-ins of RabbitMQ",
    "topic-permissions": "topic permissions are not supported: use permissions on exchanges and queues",
    "vhost-limits": f"limits of virtual hosts are not supported: {_ARGUMENTS}",
    "user-limits": "limits of users are not supported: connection_max and channel_max apply to all users",
}
_ADMINISTRATORS = frozenset(("topic-permissions",))


def _nothing(call: Call) -> Empty:
    if "vhost" in call.path:
        host_of(call)
    return []


def _not_there(what: str) -> Callable[[Call], None]:
    def work(call: Call) -> NoReturn:
        raise nothing_at(what, " ".join(call.path.values()))

    return work


def _refused(what: str) -> Callable[[Call], None]:
    def work(call: Call) -> NoReturn:
        raise Refused(400, "bad_request", _WHY[what])

    return work


def _offer(what: str, lists: tuple[str, ...], one: str, *, looks: bool = True) -> None:
    """Add routes for lists that are always empty, and an object that never exists and cannot be created."""
    needs = Needs.ADMINISTRATOR if what in _ADMINISTRATORS else Needs.LOGIN
    for path in lists:
        routes.get(f"/api/{what}{path}", needs=needs, says=f"Always empty: {_WHY[what]}.")(_nothing)
    path = f"/api/{what}{one}"
    if looks:
        routes.get(path, needs=needs, says="Always 404: never exists.")(_not_there(what))
    routes.put(path, needs=needs, says=f"Rejected: {_WHY[what]}.")(_refused(what))
    routes.delete(path, needs=needs, says="Always 404: never exists.")(_not_there(what))


_offer("policies", ("", "/{vhost}"), "/{vhost}/{name}")
_offer("operator-policies", ("", "/{vhost}"), "/{vhost}/{name}")
_offer("parameters", ("", "/{component}", "/{component}/{vhost}"), "/{component}/{vhost}/{name}")
_offer("global-parameters", ("",), "/{name}")
_offer("topic-permissions", ("",), "/{vhost}/{user}")
_offer("vhost-limits", ("", "/{vhost}"), "/{vhost}/{name}", looks=False)
_offer("user-limits", ("", "/{user}"), "/{user}/{name}", looks=False)
