"""Users, permissions, virtual hosts and definitions of a server, through RabbitMQ's management paths."""

from typing import Any

from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.remote.http_client import HttpClient, path_of

__all__ = ["RemoteAuthority"]


def _api(*parts: str) -> str:
    return path_of(*parts, root="/api")


class RemoteAuthority:
    """Users, permissions, virtual hosts and definitions of a server. Most methods need an administrator."""

    def __init__(self, wire: HttpClient) -> None:
        self._wire = wire

    def export(self) -> dict[str, Any]:
        """Return all definitions, in the form of RabbitMQ's `export_definitions`."""
        return dict(self._wire.get(_api("definitions")))

    def import_(self, document: dict[str, Any]) -> int | None:
        """Import definitions; return how many were new, if the server reports it."""
        answer = self._wire.request("POST", _api("definitions"), document, again=True)
        return answer.get("added") if isinstance(answer, dict) else None

    # Users.

    def users(self) -> list[dict[str, Any]]:
        """Return all users: `name`, `tags`, `password_hash`, `hashing_algorithm`."""
        return list(self._wire.get(_api("users")))

    def check_user(self, name: str) -> None:
        """Raise `NotFound` unless there is a user of that name."""
        self._wire.get(_api("users", name))

    def add_user(self, name: str, password: str | None, tags: tuple[str, ...] = ()) -> None:
        """Add a user without permissions; without a password only a certificate authenticates the user."""
        if any(one["name"] == name for one in self.users()):
            raise InvalidArgument(f"the user {name!r} already exists")
        self._put_user(name, password, tags)

    def change_password(self, name: str, password: str) -> None:
        """Set another password for a user."""
        tags = self._wire.get(_api("users", name)).get("tags", ())
        self._put_user(name, password, tuple(tags.split(",")) if isinstance(tags, str) else tuple(tags))

    def delete_user(self, name: str) -> None:
        """Delete a user with all permissions."""
        self._wire.request("DELETE", _api("users", name))

    def _put_user(self, name: str, password: str | None, tags: tuple[str, ...]) -> None:
        secret = {"password_hash": ""} if password is None else {"password": password}
        self._wire.request("PUT", _api("users", name), {**secret, "tags": ",".join(tags)}, again=True)

    # Permissions.

    def permissions(self) -> list[dict[str, Any]]:
        """Return all permissions: `user`, `vhost`, `configure`, `write`, `read`."""
        return list(self._wire.get(_api("permissions")))

    def permit(self, user: str, vhost: str, configure: str, write: str, read: str) -> None:
        """Set a user's permissions in a virtual host, in place of the earlier ones."""
        body = {"configure": configure, "write": write, "read": read}
        self._wire.request("PUT", _api("permissions", vhost, user), body, again=True)

    def forbid(self, user: str, vhost: str) -> bool:
        """Revoke all permissions of a user in a virtual host; return whether there were any.

        Raises `NotFound` if there is no such user.
        """
        try:
            self._wire.request("DELETE", _api("permissions", vhost, user))
        except NotFound:
            self.check_user(user)
            return False
        return True

    # Virtual hosts.

    def vhosts(self) -> list[str]:
        """Return the names of all virtual hosts, sorted."""
        return sorted(one["name"] for one in self._wire.get(_api("vhosts")))

    def add_vhost(self, name: str) -> None:
        """Add a virtual host in which no user has permissions yet."""
        if name in self.vhosts():
            raise InvalidArgument(f"the virtual host {name!r} already exists")
        self._wire.request("PUT", _api("vhosts", name), again=True)

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host with all that is in it."""
        self._wire.request("DELETE", _api("vhosts", name))

    def waiting_in(self, vhost: str) -> tuple[int, int]:
        """Return how many queues a virtual host has, and how many messages are ready or leased in them."""
        rows = self._wire.get(_api("queues", vhost))
        return len(rows), sum(row.get("messages") or 0 for row in rows)
