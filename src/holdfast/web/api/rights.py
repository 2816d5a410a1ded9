"""API route for the caller's permissions, so that the page offers nothing that would be refused."""

from holdfast.base.errors import InvalidArgument
from holdfast.broker.permissions import OWN, RULES, Operation
from holdfast.web.auth import Caller
from holdfast.web.routes import Call, Needs, Routes

__all__ = ["right_routes"]

right_routes = Routes("rights")
_RESOURCES = sorted({rule.resource for rule in RULES.values()})


@right_routes.get(
    "/api/holdfast/may",
    needs=Needs.USER,
    says="Show which operations you may perform, in general and on one object; for the others, what is missing.",
    query={
        "resource": "queue, exchange, log or table; requires `name`.",
        "vhost": "The virtual host of the queue or exchange; / by default.",
        "name": "The name of the object.",
    },
)
def may(call: Call) -> dict[str, str | None]:
    """Return by operation null if the caller may perform it, else a text that says what is missing."""
    found = _in_general(call)
    resource = call.query.get("resource", "")
    if resource:
        if resource not in _RESOURCES:
            raise InvalidArgument(f"resource must be one of {', '.join(_RESOURCES)}, not {resource!r}")
        vhost, name = call.query.get("vhost") or "/", call.query.get("name", "")
        for operation, rule in RULES.items():
            if rule.resource == resource:
                found[operation.name.lower()] = _missing(call, operation, vhost, name)
    return found


def _in_general(call: Call) -> dict[str, str | None]:
    """Return the same for operations that concern the whole server, or objects that do not exist yet."""
    who = call.who
    patterns = [one.configure for one in call.site.broker.users.permissions(who.name)]
    return {
        "create": None
        if any(pattern not in ("", "^$") for pattern in patterns)
        else "Your user has no configure permission in any virtual host.",
        "monitor": None if who.sees_all else "Your user lacks the tag monitoring or administrator.",
        "administrate": None if who.is_administrator else "Your user lacks the tag administrator.",
        "operate": _not_operating(who),
    }


def _not_operating(who: Caller) -> str | None:
    if who.is_operator:
        return None
    if who.is_administrator:
        return f"The user {who.name} may not do this with its default password: log in as another administrator."
    return "Your user lacks the tag administrator."


def _missing(call: Call, operation: Operation, vhost: str, name: str) -> str | None:
    """Return the permission or tag that the caller lacks for an operation, as a text; None if nothing is."""
    who, rule = call.who, RULES[operation]
    if call.site.broker.permissions.allows(who.name, operation, name, vhost=vhost, tags=who.tags):
        return None
    if rule.resource in ("log", "table") and rule.changes and name.startswith(OWN):
        return f"Only the server changes this {rule.resource}."
    if rule.permission is None or (rule.resource in ("log", "table") and name.startswith(OWN)):
        return f"Your user lacks the tag {rule.tag}."
    return f"Your user has no {rule.permission} permission for this {rule.resource}."
