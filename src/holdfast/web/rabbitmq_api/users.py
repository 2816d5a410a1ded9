"""Routes for users and permissions in RabbitMQ's API."""

from collections.abc import Callable

from holdfast.base.errors import InvalidArgument
from holdfast.broker.users import ARGON2, Permission, User, tags_of
from holdfast.web.rabbitmq_api.access import body_of, nothing_at, text_of, user_check
from holdfast.web.rabbitmq_api.pagination import LISTING, answered
from holdfast.web.rabbitmq_api.response_types import Listing, PermissionRow, UserRow
from holdfast.web.rabbitmq_api.serializers import permission_row, user_row, without_hash
from holdfast.web.response_types import Empty
from holdfast.web.responses import Refused
from holdfast.web.routes import Call, Needs, Reply, Routes

__all__ = ["routes"]

routes = Routes("RabbitMQ: users")
_USER = {
    "type": "object",
    "required": ["tags"],
    "properties": {
        "password": {"type": "string"},
        "password_hash": {"type": "string"},
        "hashing_algorithm": {"type": "string"},
        "tags": {"type": ["string", "array"]},
    },
}
_PATTERNS = ("configure", "write", "read")
_PERMISSION = {
    "type": "object",
    "required": list(_PATTERNS),
    "properties": {name: {"type": "string"} for name in _PATTERNS},
}


def _row_for(call: Call) -> Callable[[User], UserRow]:
    """Return the function that makes a user's row for this caller.

    The default user with its default password gets no hashes, because anybody on this machine can log in as that user.
    """
    return user_row if call.who.is_operator else lambda user: without_hash(user_row(user))


@routes.get("/api/users", needs=Needs.ADMINISTRATOR, says="List all users.", query=LISTING)
def every_user(call: Call) -> Listing[UserRow]:
    """Return all users."""
    return answered(call.site.broker.users.all(), call.query, row=_row_for(call), name=lambda user: user.name)


@routes.get("/api/users/without-permissions", needs=Needs.ADMINISTRATOR, says="List the users without permissions.")
def without_permissions(call: Call) -> list[UserRow]:
    """Return the users without any permission."""
    users = call.site.broker.users
    permitted = {one.user for one in users.permissions()}
    return [_row_for(call)(user) for user in users.all() if user.name not in permitted]


@routes.post(
    "/api/users/bulk-delete",
    needs=Needs.ADMINISTRATOR,
    says="Delete many users.",
    takes={"type": "object", "required": ["users"], "properties": {"users": {"type": "array"}}},
)
def bulk_delete(call: Call) -> None:
    """Delete users and close their connections; none of them (400) if one does not exist."""
    names = body_of(call, "users")["users"]
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidArgument("'users' must be a list of names")
    administration = call.site.server.administration
    check = user_check(call)

    def work() -> None:
        known = {user.name for user in call.site.broker.users.all()}
        if missing := [name for name in names if name not in known]:
            raise Refused(
                400, "bad_request", f"there are no users {', '.join(map(repr, missing))}: no user was deleted"
            )
        administration.delete_users(names, check=check)

    call.site.on_broker(work)


@routes.get("/api/users/{user}", needs=Needs.ADMINISTRATOR, says="Show one user.")
def one_user(call: Call) -> UserRow:
    """Return one user; 404 if there is none."""
    return _row_for(call)(call.site.broker.users.get(call.path["user"]))


@routes.put(
    "/api/users/{user}",
    needs=Needs.ADMINISTRATOR,
    says="Add a user, or change password and tags; without a password, logins by password are disabled.",
    takes=_USER,
    status=201,
    also={204: None},
)
def put_user(call: Call) -> Reply[None]:
    """Add or change a user. Without a password and a hash, the user cannot log in by password.

    The password is hashed on this thread, as that is too slow for the broker's.
    """
    body = body_of(call, "tags")
    tags, check = tags_of(body["tags"]), user_check(call)
    hashed, algorithm = text_of(body, "password_hash"), text_of(body, "hashing_algorithm") or None
    if password := text_of(body, "password"):
        hashed, algorithm = call.site.broker.users.hashed(password), ARGON2
    administration = call.site.server.administration
    is_new = call.site.on_broker(
        lambda: administration.put_user(call.path["user"], hashed, algorithm, tags=tags, check=check)
    )
    return Reply(status=201 if is_new else 204)


@routes.delete("/api/users/{user}", needs=Needs.ADMINISTRATOR, says="Delete a user and close the user's connections.")
def delete_user(call: Call) -> None:
    """Delete a user with all permissions, and close the user's connections."""
    administration, check = call.site.server.administration, user_check(call)
    call.site.on_broker(lambda: administration.delete_users([call.path["user"]], check=check))


@routes.get("/api/users/{user}/permissions", needs=Needs.ADMINISTRATOR, says="List the permissions of a user.")
def permissions_of(call: Call) -> list[PermissionRow]:
    """Return the permissions of a user."""
    user = call.site.broker.users.get(call.path["user"])
    return [permission_row(one) for one in call.site.server.administration.permissions(user.name)]


@routes.get(
    "/api/users/{user}/topic-permissions",
    needs=Needs.ADMINISTRATOR,
    says="Always empty: topic permissions are not supported.",
)
def topic_permissions_of(call: Call) -> Empty:
    """Return an empty list: there are no topic permissions."""
    call.site.broker.users.get(call.path["user"])
    return []


@routes.get("/api/permissions", needs=Needs.ADMINISTRATOR, says="List all permissions.", query=LISTING)
def every_permission(call: Call) -> Listing[PermissionRow]:
    """Return all permissions of all users."""
    found = call.site.server.administration.permissions()
    return answered(found, call.query, row=permission_row, name=lambda one: one.user)


def _permission(call: Call) -> Permission:
    found = call.site.broker.users.permissions(call.path["user"], call.path["vhost"])
    if not found:
        raise nothing_at("permission of", f"{call.path['user']} in {call.path['vhost']}")
    return found[0]


@routes.get(
    "/api/permissions/{vhost}/{user}", needs=Needs.ADMINISTRATOR, says="Show a user's permissions in a virtual host."
)
def one_permission(call: Call) -> PermissionRow:
    """Return one user's permissions in one virtual host."""
    return permission_row(_permission(call))


@routes.put(
    "/api/permissions/{vhost}/{user}",
    needs=Needs.ADMINISTRATOR,
    says="Set a user's permissions in a virtual host; applies at once, also to open connections.",
    takes=_PERMISSION,
    status=201,
    also={204: None},
)
def permit(call: Call) -> Reply[None]:
    """Set a user's permissions in a virtual host, also for open connections; 400 if either does not exist."""
    body = body_of(call, *_PATTERNS)
    patterns = [text_of(body, name) for name in _PATTERNS]
    user, vhost = call.path["user"], call.path["vhost"]
    if vhost not in call.site.broker.hosts or user not in {one.name for one in call.site.broker.users.all()}:
        raise Refused(400, "bad_request", f"there is no virtual host {vhost!r}, or no user {user!r}")
    is_new = call.site.on_broker(lambda: call.site.server.administration.permit(user, vhost, *patterns))
    return Reply(status=201 if is_new else 204)


@routes.delete(
    "/api/permissions/{vhost}/{user}",
    needs=Needs.ADMINISTRATOR,
    says="Revoke a user's permissions in a virtual host; applies at once, also to open connections.",
)
def forbid(call: Call) -> None:
    """Revoke a user's permissions in a virtual host, also for open connections; 404 if there are none."""
    _permission(call)
    call.site.on_broker(lambda: call.site.server.administration.forbid(call.path["user"], call.path["vhost"]))
