"""A remote store over HTTP: its queues, logs, tables, users, tokens, backups and checks."""

import os
import ssl
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from holdfast.base.clock import Duration
from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.remote.address import Address
from holdfast.remote.admin import RemoteAuthority
from holdfast.remote.codec import made, seconds
from holdfast.remote.http_client import HttpClient, path_of
from holdfast.remote.log import RemoteLog
from holdfast.remote.pipelines import RemotePipelines
from holdfast.remote.queue import RemoteQueue

if TYPE_CHECKING:  # only loaded for tables
    from holdfast.remote.table import RemoteTable
    from holdfast.table import Model
    from holdfast.table.migration.status import MigrationStatus

    M = TypeVar("M", bound=Model)

__all__ = ["RemoteMigrations", "RemoteStore", "connect"]

_PAGE = 500
_BACKUP_S = 24 * 3600.0
"""How long a client waits for a backup: the server responds when it is complete."""


def connect(
    url: str,
    *,
    user: str | None = None,
    password: str | None = None,
    token: str | None = None,
    vhost: str | None = None,
    timeout: Duration = 30,
    context: ssl.SSLContext | None = None,
) -> "RemoteStore":
    """Return the store that `holdfast serve` serves at `http://host:15672`, with the names of `Store`.

    The credentials are in the URL (`http://user:password@host`) or in the arguments; the default is guest. `timeout` is
    how long a response may take, in addition to any `wait` of the call. `context` is the TLS context, for example to
    trust your own CA.
    """
    address = Address.parse(url, user=user, password=password, token=token, vhost=vhost)
    return RemoteStore(address, timeout=timeout, context=context)


class RemoteStore:
    """A store at a URL; also a context manager. All methods may be called from any thread.

    Nothing is sent before the first call.
    """

    def __init__(
        self,
        address: Address,
        *,
        timeout: Duration = 30,
        context: ssl.SSLContext | None = None,
        read_only: bool = False,
    ) -> None:
        self.address = address
        self.read_only = read_only
        """Whether a missing queue or log is an error, and is not created."""
        self.vhost = address.vhost
        self._wire = HttpClient(address, seconds(timeout, "timeout"), context)
        self.authority = RemoteAuthority(self._wire)
        """Users, permissions, virtual hosts and definitions."""
        self.pipelines = RemotePipelines(self._wire)
        """Spark pipelines, which run on the server's machine."""

    # Queues.

    def queues(self) -> list[str]:
        """Return the names of all queues in the virtual host, sorted."""
        return sorted(row["name"] for row in self.queue_rows())

    def queue_rows(self) -> Iterator[dict[str, Any]]:
        """Yield all queues of the virtual host with their statistics, as JSON."""
        yield from self._pages("queues", vhost=self.vhost)

    def _pages(self, what: str, **query: Any) -> Iterator[dict[str, Any]]:
        page = 1
        while True:
            answer = self._wire.get(path_of(what), page=page, page_size=_PAGE, **query)
            yield from answer["items"]
            if page >= answer["page_count"]:
                return
            page += 1

    def queue(self, name: str, arguments: Mapping[str, Any] | None = None) -> RemoteQueue:
        """Return the queue of that name; declare it, as AMQP does, if there is none.

        `arguments` are AMQP's: `{"x-max-length": 1000}`. They apply only to a queue that this call creates.
        """
        queue = RemoteQueue(self._wire, self.vhost, name)
        try:
            queue.describe()
        except NotFound:
            if self.read_only:
                raise
            body = {"vhost": self.vhost, "name": name, "arguments": dict(arguments or {})}
            self._wire.request("POST", path_of("queues"), body, again=True)
        return queue

    def delete_queue(self, name: str) -> None:
        """Delete a queue with its messages."""
        self.queue(name).delete()

    def dead_letters(self) -> list[dict[str, Any]]:
        """Return the queues of all virtual hosts that have dead letters, as far as this user may see them, as JSON.

        Each has `count`, `more` (whether the count is incomplete) and `groups` by reason.
        """
        answer = self._wire.get(path_of("dead"))
        return list(answer["queues"] if isinstance(answer, dict) else answer)

    # Logs.

    def logs(self) -> list[str]:
        """Return the names of all logs, sorted."""
        return sorted(row["name"] for row in self._pages("logs"))

    def log(self, name: str, **settings: Any) -> RemoteLog:
        """Return the log of that name. An append creates it if there is none, with the server's settings."""
        if settings:
            raise InvalidArgument("the settings of a remote log are chosen by the server: leave them out")
        log = RemoteLog(self._wire, name)
        if self.read_only:
            log.describe()  # raises NotFound, with the existing logs, if there is none
        return log

    # Tables.

    def tables(self) -> list[str]:
        """Return the names of all tables, sorted."""
        return sorted(one["name"] for one in self.table_rows())

    def table_rows(self) -> list[dict[str, Any]]:
        """Return all tables with their statistics, as JSON."""
        return list(self._wire.get(path_of("tables"))["tables"])

    def table(self, model: "type[M] | str") -> "RemoteTable[M]":
        """Return the table of that name, or of a model's records; it must exist."""
        from holdfast.remote.table import RemoteTable  # noqa: PLC0415

        if isinstance(model, str):
            return RemoteTable(self._wire, model)
        return RemoteTable(self._wire, model.__spec__.name, model)

    def migrations(self) -> "RemoteMigrations":
        """Return the migrations of the tables: iterate for the status of each; `pause`, `resume`, `cancel`."""
        return RemoteMigrations(self._wire)

    # The server itself.

    def whoami(self) -> dict[str, Any]:
        """Return the authenticated user: `name`, `tags`, `expires_at`."""
        return dict(self._wire.get(path_of("whoami")))

    def overview(self) -> dict[str, Any]:
        """Return the server's overview, as JSON."""
        return dict(self._wire.get(path_of("overview")))

    def history(self, range: str = "1h") -> dict[str, Any]:
        """Return the metrics of the last `1h`, `24h` or `7d`, as JSON."""
        return dict(self._wire.get(path_of("history"), range=range))

    def backup(self, to: str | os.PathLike[str], *, copy: bool = False) -> dict[str, Any]:
        """Back the store up into a folder of the server's machine, by links if possible; return a report as JSON."""
        body = {"to": os.fspath(to), "copy": copy}
        return dict(self._wire.request("POST", path_of("backup"), body, wait=_BACKUP_S))

    def doctor(self) -> list[dict[str, Any]]:
        """Return the server's own checks: `name`, `state`, `found`, `advice` of each."""
        return list(self._wire.get(path_of("doctor"))["checks"])

    def tokens(self) -> list[dict[str, Any]]:
        """Return this user's tokens, without their secrets, as JSON.

        An administrator, except the default user, gets those of all users.
        """
        answer = self._wire.get(path_of("tokens"))
        return list(answer["tokens"] if isinstance(answer, dict) else answer)

    def make_token(self, name: str, lifetime: Duration | None = None) -> dict[str, Any]:
        """Create a token with this user's permissions; its `token` is returned only this once."""
        body = {"name": name} | ({} if lifetime is None else {"lifetime": seconds(lifetime, "lifetime")})
        return dict(self._wire.request("POST", path_of("tokens"), body))

    def delete_token(self, id: str) -> None:
        """Revoke a token."""
        self._wire.request("DELETE", path_of("tokens", id))

    def close(self) -> None:
        """Close the connections; idempotent."""
        self._wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the connections."""
        self.close()

    def __repr__(self) -> str:
        return f"RemoteStore({str(self.address)!r})"


class RemoteMigrations:
    """The migrations of a server's tables."""

    def __init__(self, wire: HttpClient) -> None:
        self._wire = wire

    def __iter__(self) -> "Iterator[MigrationStatus]":
        """Yield the migration status of each table."""
        from holdfast.table.migration.status import MigrationStatus  # noqa: PLC0415

        for one in self._wire.get(path_of("migrations"))["migrations"]:
            yield made(MigrationStatus, one)

    def status(self, table: str) -> "MigrationStatus":
        """Return the migration status of one table."""
        for one in self:
            if one.table == table:
                return one
        raise NotFound(f"the server has no table {table!r}")

    def pause(self, table: str) -> None:
        """Pause a migration until `resume`."""
        self._wire.request("POST", path_of("migrations", table, "pause"))

    def resume(self, table: str) -> None:
        """Resume a migration."""
        self._wire.request("POST", path_of("migrations", table, "resume"))

    def cancel(self, table: str) -> None:
        """Cancel a migration."""
        self._wire.request("POST", path_of("migrations", table, "cancel"))
