"""Who may use a server, and what is defined there? RabbitMQ's own paths, so that either's tools see the same."""

from typing import Any

from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.remote.wire import Wire, path_of

__all__ = ["RemoteAuthority"]


def _api(*parts: str) -> str:
    return path_of(*parts, root="/api")


class RemoteAuthority:
    """Users, permissions, virtual hosts and definitions of a server. Most of it is for administrators only."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def export(self) -> dict[str, Any]:
        """All that is defined, in the form of RabbitMQ's `export_definitions`."""
        return dict(self._wire.get(_api("definitions")))

    def import_(self, document: dict[str, Any]) -> int | None:
        """Take definitions over; how many were new, if the server says so."""
        answer = self._wire.request("POST", _api("definitions"), document, again=True)
        return answer.get("added") if isinstance(answer, dict) else None

    # Users.

    def users(self) -> list[dict[str, Any]]:
        """All users: `name`, `tags`, `password_hash`, `hashing_algorithm`."""
        return list(self._wire.get(_api("users")))

    def check_user(self, name: str) -> None:
        """`NotFound` unless there is a user of that name."""
        self._wire.get(_api("users", name))

    def add_user(self, name: str, password: str | None, tags: tuple[str, ...] = ()) -> None:
        """Add a user, who may do nothing yet; without a password only a certificate lets in."""
        if any(one["name"] == name for one in self.users()):
            raise InvalidArgument(f"there is a user {name!r} already")
        self._put_user(name, password, tags)

    def change_password(self, name: str, password: str) -> None:
        """Give a user another password."""
        tags = self._wire.get(_api("users", name)).get("tags", ())
        self._put_user(name, password, tuple(tags.split(",")) if isinstance(tags, str) else tuple(tags))

    def delete_user(self, name: str) -> None:
        """Delete a user with all that the user was permitted."""
        self._wire.request("DELETE", _api("users", name))

    def _put_user(self, name: str, password: str | None, tags: tuple[str, ...]) -> None:
        secret = {"password_hash": ""} if password is None else {"password": password}
        self._wire.request("PUT", _api("users", name), {**secret, "tags": ",".join(tags)}, again=True)

    # Permissions.

    def permissions(self) -> list[dict[str, Any]]:
        """All permissions: `user`, `vhost`, `configure`, `write`, `read`."""
        return list(self._wire.get(_api("permissions")))

    def permit(self, user: str, vhost: str, configure: str, write: str, read: str) -> None:
        """Say what a user may do in a virtual host, in place of what was said before."""
        body = {"configure": configure, "write": write, "read": read}
        self._wire.request("PUT", _api("permissions", vhost, user), body, again=True)

    def forbid(self, user: str, vhost: str) -> bool:
        """Take back all that a user may do in a virtual host; whether there was something to take."""
        try:
            self._wire.request("DELETE", _api("permissions", vhost, user))
        except NotFound:
            self.check_user(user)
            return False
        return True

    # Virtual hosts.

    def vhosts(self) -> list[str]:
        """The names of all virtual hosts, sorted."""
        return sorted(one["name"] for one in self._wire.get(_api("vhosts")))

    def add_vhost(self, name: str) -> None:
        """Add a virtual host; nobody may use it yet."""
        if name in self.vhosts():
            raise InvalidArgument(f"there is a virtual host {name!r} already")
        self._wire.request("PUT", _api("vhosts", name), again=True)

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host with all that is in it."""
        self._wire.request("DELETE", _api("vhosts", name))

    def waiting_in(self, vhost: str) -> tuple[int, int]:
        """How many queues a virtual host has, and how many messages wait in them."""
        rows = self._wire.get(_api("queues", vhost))
        return len(rows), sum(row.get("messages") or 0 for row in rows)
