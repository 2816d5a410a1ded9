"""Runtime changes of users, permissions, virtual hosts and definitions: durable, and effective at once.

Every change is on disk when its function returns, and applies to open connections: cached permissions are dropped, and
connections of a deleted user, or to a deleted virtual host, are closed.
"""

import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from holdfast.base.errors import HoldfastError, InvalidArgument, NotFound
from holdfast.broker.definitions import Definition, HostDefinition, as_fields
from holdfast.broker.store_names import name_in_store
from holdfast.broker.users import ARGON2, SHA256, Permission, User, UserCheck, Users, imported_hash

if TYPE_CHECKING:
    from holdfast.broker.broker import Broker
    from holdfast.broker.vhost import VirtualHostRuntime

__all__ = ["Administration", "with_hashes"]

logger = logging.getLogger("holdfast.broker")

_IN_HOST = ("queues", "exchanges", "bindings")
_NOT_TAKEN = ("policies", "parameters", "topic_permissions")
"""Kinds of RabbitMQ's definitions that are not supported: an import logs and ignores them."""


class Administration:
    """Runtime administration of a broker. Used by the broker's thread alone.

    Methods that change users take a `check`. It is called with each user before and after the change, before anything
    is changed, and raises if the caller is not allowed to make that change.
    """

    def __init__(self, broker: "Broker", disconnect: Callable[[Callable[[str, str], bool], str], int]) -> None:
        self._broker = broker
        self._disconnect = disconnect
        """Closes the connections whose user and virtual host the predicate selects; returns how many."""
        broker.users.changed = self._drop_cached_routes

    def _drop_cached_routes(self) -> None:
        """Increment the version of each virtual host, so that publishers check permissions and routes again."""
        for host in self._broker.hosts.values():
            host.version += 1

    # Users.

    def put_user(
        self,
        name: str,
        password_hash: str,
        algorithm: str | None = None,
        *,
        tags: Iterable[str] = (),
        check: UserCheck = lambda user: None,
    ) -> bool:
        """Add a user, or replace the hash and tags of an existing one; return whether the user is new.

        The hash comes from `Users.hashed`, which is slow and must run on another thread, or from RabbitMQ. With an
        empty hash no password is accepted. Open connections of the user stay open.
        """
        hashed = imported_hash(password_hash, algorithm or (SHA256 if password_hash else ARGON2))
        wanted = User(name, *hashed, tuple(tags))
        for user in (*(one for one in self._broker.users.all() if one.name == name), wanted):
            check(user)
        return self._broker.users.put(wanted)

    def delete_users(self, names: Iterable[str], *, check: UserCheck = lambda user: None) -> None:
        """Delete users with all their permissions, and close their connections.

        If one of them does not exist, or `check` raises, none is deleted.
        """
        doomed = [self._broker.users.get(name) for name in dict.fromkeys(names)]
        for user in doomed:
            check(user)
        for user in doomed:
            self._broker.users.delete(user.name)
            self._disconnect_user(user.name)

    def _disconnect_user(self, name: str) -> None:
        self._disconnect(lambda user, vhost: user == name, f"user '{name}' was deleted")

    def permit(self, user: str, vhost: str, configure: str, write: str, read: str) -> bool:
        """Set a user's permissions in a virtual host; return whether there were none before.

        Raises `NotFound` for an unknown user or virtual host, `InvalidArgument` for an invalid pattern.
        """
        self.host(vhost)
        is_new = not self._broker.users.permissions(user, vhost)
        self._broker.users.permit(user, vhost, configure, write, read)
        return is_new

    def forbid(self, user: str, vhost: str) -> None:
        """Revoke a user's permissions in a virtual host; raise `NotFound` if there are none."""
        if not self._broker.users.permissions(user, vhost):
            raise NotFound(f"the user {user!r} has no permissions in the virtual host {vhost!r}")
        self._broker.users.forbid(user, vhost)

    # Virtual hosts.

    def host(self, name: str) -> "VirtualHostRuntime":
        """Return a virtual host, or raise `NotFound`."""
        found = self._broker.hosts.get(name)
        if found is None:
            known = ", ".join(map(repr, sorted(self._broker.hosts)))
            raise NotFound(f"there is no virtual host {name!r}; there are: {known or 'none'}")
        return found

    def put_vhost(
        self, name: str, *, description: str | None = None, tags: Iterable[str] | None = None, owner: str | None = None
    ) -> bool:
        """Add a virtual host, or update its metadata; return whether it is new.

        The owner gets all permissions in a new virtual host. A description or tags of None are left unchanged.
        """
        is_new = name not in self._broker.hosts
        if is_new:
            self._broker.add_vhost(name)
            if owner is not None:
                self._broker.users.permit(owner, name, ".*", ".*", ".*")
        said = self._broker.definitions.vhost(name)
        wanted = HostDefinition(
            name,
            said.description if description is None else description,
            said.tags if tags is None else tuple(tags),
        )
        if wanted != said:
            self._broker.definitions.record([(wanted, True)])
        return is_new

    def empty_vhost(self, name: str, count: int | None = None) -> bool:
        """Close the connections to a virtual host and delete its queues, at most `count`; return whether none is left.

        Deleting a queue blocks the broker's thread for some milliseconds: of many queues, delete a few at a time.
        """
        host = self.host(name)
        self._disconnect(lambda user, vhost: vhost == name, f"vhost '{name}' was deleted")
        for broker_queue in list(host.broker_queues.values())[:count]:
            host.drop(broker_queue)
        return not host.broker_queues

    def delete_vhost(self, name: str) -> None:
        """Remove a virtual host with its queues and their messages, and close the connections to it."""
        host = self.host(name)
        broker = self._broker
        self.empty_vhost(name)
        for definition in list(host.topology.queues.values()):  # those that could not be opened
            with contextlib.suppress(HoldfastError):
                broker.store.delete_queue(name_in_store(name, definition.name))
        # After the messages: without a definition they would appear in the next queue of that name.
        with broker.guard:
            broker.definitions.delete_vhost(name)
            del broker.hosts[name]
            broker.users.forget_vhost(name)

    # Definitions.

    def export(self, vhost: str | None = None) -> dict[str, list[dict[str, Any]]]:
        """Return all definitions in RabbitMQ's form, or those of one virtual host, without its name.

        As with RabbitMQ, transient objects are included, but not those that are exclusive to a connection.
        """
        broker = self._broker
        chosen = [self.host(vhost)] if vhost is not None else list(broker.hosts.values())
        document: dict[str, list[dict[str, Any]]] = {}
        if vhost is None:
            document["users"] = [{**as_fields(user), "limits": {}} for user in broker.users.all()]
            document["vhosts"] = [as_fields(broker.definitions.vhost(name)) for name in broker.hosts]
            document["permissions"] = [as_fields(one) for one in broker.users.permissions()]
            document |= {"topic_permissions": [], "global_parameters": []}
        document |= {"parameters": [], "policies": [], **{name: [] for name in _IN_HOST}}
        for host in chosen:
            topology = host.topology
            queues = [one for one in topology.queues.values() if not one.exclusive]
            exchanges = [one for one in topology.exchanges.values() if not one.predeclared]
            passing = {one.name for one in topology.queues.values() if one.exclusive}
            bindings = [
                one for one in topology.bindings() if one.destination_kind != "queue" or one.destination not in passing
            ]
            for name, things in zip(_IN_HOST, (queues, exchanges, bindings), strict=True):
                document[name] += [as_fields(one) for one in cast("list[Definition]", things)]
        if vhost is not None:
            for name in _IN_HOST:
                for fields in document[name]:
                    del fields["vhost"]
        return document

    def import_(
        self, document: Mapping[str, Any], vhost: str | None = None, *, check: UserCheck = lambda user: None
    ) -> int:
        """Import definitions in RabbitMQ's form, all or none; return how many were added or changed.

        With a virtual host, only exchanges, queues and bindings are imported, into that virtual host, whatever the
        document says. Policies, parameters and topic permissions are ignored with a warning.
        """
        if not isinstance(document, Mapping):
            raise InvalidArgument("definitions must be a JSON object, as GET /api/definitions returns it")
        for name in _NOT_TAKEN:
            if document.get(name):
                logger.warning("definitions ignored: kind=%s reason=not-supported", name)
        wanted: dict[str, Any] = dict(document)
        if vhost is not None:
            self.host(vhost)
            wanted = {name: _moved(document.get(name), vhost) for name in _IN_HOST}
        return self._broker.import_definitions(wanted, check_user=check)

    def permissions(self, user: str | None = None, vhost: str | None = None) -> list[Permission]:
        """Return the permissions, by virtual host and user."""
        return sorted(self._broker.users.permissions(user, vhost), key=lambda one: (one.vhost, one.user))


def _moved(things: Any, vhost: str) -> Any:
    """Return the objects of a document, moved to this virtual host. The import rejects anything but a list."""
    if not isinstance(things, list):
        return things
    return [{**one, "vhost": vhost} if isinstance(one, Mapping) else one for one in things]


def with_hashes(document: Mapping[str, Any], users: Users) -> dict[str, Any]:
    """Return definitions with plain passwords replaced by their hashes.

    Hashing is slow: do not call it on the broker's thread.
    """
    hashed = []
    found = document.get("users")
    for fields in found if isinstance(found, list) else ():
        if isinstance(fields, Mapping) and fields.get("password"):
            password_hash = users.hashed(str(fields["password"]))
            rest = {name: value for name, value in fields.items() if name != "password"}
            fields = {**rest, "password_hash": password_hash, "hashing_algorithm": ARGON2}
        hashed.append(fields)
    return {**document, **({"users": hashed} if hashed else {})}
