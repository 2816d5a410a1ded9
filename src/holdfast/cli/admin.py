"""Administration of users and virtual hosts, in a store's folder or through the server that serves it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast import Store
from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.broker.definitions import LOG_NAME, Definitions, HostDefinition, open_definitions
from holdfast.broker.store_names import name_in_store
from holdfast.broker.topology import QueueDefinition
from holdfast.cli.open_store import remote_at, store_to_read, store_to_write
from holdfast.cli.target import Target
from holdfast.cli.warnings import notify
from holdfast.remote.admin import RemoteAuthority

__all__ = ["FolderAuthority", "authority_to_change", "definitions_to_read"]


def definitions_to_read(data: Target) -> dict[str, Any]:
    """Return all definitions, in the form of RabbitMQ's `export_definitions`."""
    with remote_at(data) as remote:
        if remote is not None:
            return remote.authority.export()
    with store_to_read(data) as store:
        try:
            log = store.log(LOG_NAME)
        except NotFound as error:
            raise NotFound(
                f"no users, virtual hosts or queues are defined in {str(data)!r} yet: holdfast serve creates the user "
                "guest and the virtual host / when it first starts"
            ) from error
        return Definitions(log).export()


@contextlib.contextmanager
def authority_to_change(data: Target, *, make: bool = False) -> Iterator["FolderAuthority | RemoteAuthority"]:
    """Open the authority for changes. With `make`, a missing folder is created, and not an error.

    In a folder without definitions, the user guest and the virtual host / are created first.
    """
    with remote_at(data) as remote:
        if remote is not None:
            yield remote.authority
            return
    if isinstance(data, Path) and not make and not data.exists():
        raise NotFound(f"there is no store at {str(data)!r}: check --data")
    with store_to_write(data) as store:
        definitions = open_definitions(store)
        if definitions.is_new:
            definitions.begin()
            notify(
                "created the default user guest (password guest, local connections only); to remove it, run: "
                "holdfast user delete guest"
            )
        yield FolderAuthority(store, definitions)


class FolderAuthority:
    """Changes the definitions of a store that no server has open, with the methods of a `RemoteAuthority`."""

    def __init__(self, store: Store, definitions: Definitions) -> None:
        self._store = store
        self._definitions = definitions

    def check_user(self, name: str) -> None:
        """Raise `NotFound` unless there is a user of that name."""
        self._definitions.users().get(name)

    def add_user(self, name: str, password: str | None, tags: tuple[str, ...] = ()) -> None:
        """Add a user without permissions."""
        self._definitions.users().add(name, password, tags=tags)

    def change_password(self, name: str, password: str) -> None:
        """Set another password for a user."""
        self._definitions.users().change_password(name, password)

    def delete_user(self, name: str) -> None:
        """Delete a user with all permissions."""
        self._definitions.users().delete(name)

    def permit(self, user: str, vhost: str, configure: str, write: str, read: str) -> None:
        """Set a user's permissions in a virtual host."""
        self._check_host(vhost)
        self._definitions.users().permit(user, vhost, configure, write, read)

    def forbid(self, user: str, vhost: str) -> bool:
        """Revoke all permissions of a user in a virtual host; return whether there were any."""
        users = self._definitions.users()
        users.get(user)
        had = bool(users.permissions(user, vhost))
        users.forbid(user, vhost)
        return had

    def vhosts(self) -> list[str]:
        """Return the names of all virtual hosts, sorted."""
        return sorted(one.name for one in self._definitions.all() if isinstance(one, HostDefinition))

    def add_vhost(self, name: str) -> None:
        """Add a virtual host."""
        if name in self.vhosts():
            raise InvalidArgument(f"the virtual host {name!r} exists already")
        self._definitions.add_vhost(name)

    def delete_vhost(self, name: str) -> None:
        """Delete a virtual host with its exchanges, queues and permissions."""
        self._check_host(name)
        there = sorted(set(self._queues(name)) & set(self._store.queues()))
        self._definitions.delete_vhost(name)
        for one in there:  # last: a crash leaves messages without a definition, never a queue without its messages
            self._store.delete_queue(one)

    def waiting_in(self, vhost: str) -> tuple[int, int]:
        """Return how many queues a virtual host has, and how many messages are ready or delayed in them."""
        queues = self._queues(vhost)
        there = set(queues) & set(self._store.queues())
        return len(queues), sum(self._store.queue(one).waiting() for one in there)

    def import_(self, document: dict[str, Any]) -> int | None:
        """Import definitions; return how many were new."""
        return len(self._definitions.import_(document))

    def _queues(self, vhost: str) -> list[str]:
        return [
            name_in_store(one.vhost, one.name)
            for one in self._definitions.all()
            if isinstance(one, QueueDefinition) and one.vhost == vhost
        ]

    def _check_host(self, name: str) -> None:
        if name not in (hosts := self.vhosts()):
            raise NotFound(f"there is no virtual host {name!r}; there are: {', '.join(hosts) or 'none'}")
