"""Visibility and permission checks of RabbitMQ's API, by tags and permissions, and parsing of its request bodies."""

from typing import Any

from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.broker.definitions import check_arguments
from holdfast.broker.permissions import Operation
from holdfast.broker.users import User, UserCheck
from holdfast.broker.vhost import VirtualHostRuntime
from holdfast.web.auth import MAKE_ONE
from holdfast.web.responses import Refused
from holdfast.web.routes import Call

__all__ = [
    "arguments_of",
    "body_of",
    "exchange_name",
    "flag_of",
    "host_of",
    "hosts_of",
    "may",
    "nothing_at",
    "routing_key_in",
    "table_of",
    "text_of",
    "user_check",
]

_SHORT_MAX = 255


def hosts_of(call: Call) -> list[VirtualHostRuntime]:
    """Return the virtual hosts that the caller sees, by name: those in which the user has permissions.

    Callers with the tag monitoring or administrator see all.
    """
    hosts = sorted(list(call.site.broker.hosts.values()), key=lambda host: host.name)  # noqa: C414 - in one step
    if call.who.sees_all:
        return hosts
    permitted = {one.vhost for one in call.site.broker.users.permissions(call.who.name)}
    return [host for host in hosts if host.name in permitted]


def host_of(call: Call, *, use: bool = False) -> VirtualHostRuntime:
    """Return the virtual host in the path, if the caller sees it; else raise an error: 404, or 401 in this API.

    With `use` the caller must have permissions in it, whatever their tags.
    """
    host = call.site.host(call.path["vhost"])
    if use or not call.who.sees_all:
        call.site.broker.users.check_vhost(call.who.name, host.name)
    return host


def may(call: Call, operation: Operation, host: VirtualHostRuntime, name: str) -> None:
    """Raise an access error unless the caller may perform the operation on this queue or exchange.

    This API reports access errors as 401, as RabbitMQ does.
    """
    call.may(operation, name, vhost=host.name)


def user_check(call: Call) -> UserCheck:
    """Return a check that raises an access error if the default user would change an administrator.

    To add or delete one counts as a change. It applies while that user has its default password: anybody on this
    machine can log in as that user, and could become an administrator who may make the server read and write files. It
    checks users as they will be recorded, not the request that describes them.
    """

    def check(user: User) -> None:
        if call.who.is_default and "administrator" in user.tags:
            raise Refused(
                403,
                "access_refused",
                f"{call.who.name!r} cannot change administrators with its default password: {MAKE_ONE}",
            )

    return check


def exchange_name(text: str) -> str:
    """Return the name of an exchange in a path, where the default exchange is called `amq.default`."""
    return "" if text == "amq.default" else text


def nothing_at(what: str, name: str) -> NotFound:
    """Return the error for a missing object."""
    return NotFound(f"there is no {what} {name!r}")


def body_of(call: Call, *needed: str) -> dict[str, Any]:
    """Return the body, which must be an object with these fields (400 if not); without a body, an empty one."""
    body = {} if call.body is None else call.body
    if not isinstance(body, dict):
        raise InvalidArgument("the body must be a JSON object")
    missing = [name for name in needed if body.get(name) is None]
    if missing:
        raise Refused(400, "bad_request", f"the body lacks the field {', '.join(map(repr, missing))}")
    return body


def flag_of(body: dict[str, Any], name: str) -> bool:
    """Return a boolean in the body, False if it is missing; as in RabbitMQ also `"true"` or `"false"`."""
    value = body.get(name)
    if value in (None, False, "false"):
        return False
    if value in (True, "true"):
        return True
    raise InvalidArgument(f"{name!r} must be true or false, not {value!r}")


def text_of(body: dict[str, Any], name: str, default: str = "") -> str:
    """Return a string in the body, or the default if it is missing."""
    value = body.get(name)
    if value is None:
        return default
    if not isinstance(value, str):
        raise InvalidArgument(f"{name!r} must be a string, not {value!r}")
    return value


def routing_key_in(body: dict[str, Any]) -> str:
    """Return the routing key in the body; reject one that AMQP cannot encode."""
    key = text_of(body, "routing_key")
    if len(key.encode()) > _SHORT_MAX:
        raise InvalidArgument(f"'routing_key' may have up to {_SHORT_MAX} bytes in UTF-8")
    return key


def table_of(body: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an AMQP table in the body, empty if it is missing."""
    value = body.get(name)
    if value is None or value == []:  # an empty table, as some clients write it
        return {}
    if not isinstance(value, dict):
        raise InvalidArgument(f"{name!r} must be a JSON object, not {value!r}")
    return value


def arguments_of(body: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments in the body; reject those that AMQP cannot encode, as no client could redeclare them."""
    arguments = table_of(body, "arguments")
    check_arguments(arguments)
    return arguments
