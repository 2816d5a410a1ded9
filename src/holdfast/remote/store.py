"""A remote store over HTTP: its queues, logs, tables, users, tokens, backups and checks."""

import functools
import json
import os
import ssl
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, cast

from holdfast.base.clock import Duration
from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.queue import QueueSettings
from holdfast.queue.settings import to_json
from holdfast.remote.address import Address
from holdfast.remote.admin import RemoteAuthority
from holdfast.remote.codec import made, seconds
from holdfast.remote.http_client import HttpClient, path_of
from holdfast.remote.log import RemoteLog
from holdfast.remote.pipelines import RemotePipelines
from holdfast.remote.queue import RemoteQueue
from holdfast.schemas.payload_schema import PayloadSchema
from holdfast.typed_options import LogOptions, QueueOptions, TableOptions

if TYPE_CHECKING:  # only loaded for tables and backups
    from holdfast.backup.backup import BackupReport
    from holdfast.backup.copier import Progress
    from holdfast.remote.table import RemoteTable
    from holdfast.table import Model
    from holdfast.table.migration.progress import AuditEntry
    from holdfast.table.migration.status import MigrationStatus

    M = TypeVar("M", bound=Model)

__all__ = ["RemoteMigrations", "RemoteStore", "connect"]

_PAGE = 500
_PAUSE_S = 0.5
"""How long `RemoteMigrations.wait` pauses between two requests."""
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


F = TypeVar("F", bound=Callable[..., Any])


def _accepts_arguments(queue: F) -> F:
    """Let `RemoteStore.queue` take the arguments of AMQP as it did before `declare_queue`, with a warning."""

    @functools.wraps(queue)
    def with_arguments(self: "RemoteStore", name: str, *old: Mapping[str, Any] | None, **settings: Any) -> RemoteQueue:
        if "arguments" in settings and len(settings) == 1 and not old:
            old = (settings.pop("arguments"),)
        if len(old) == 1 and not settings:
            _warn("RemoteStore.queue(name, arguments) is now RemoteStore.declare_queue(name, arguments)")
            return self.declare_queue(name, old[0])
        found: RemoteQueue = queue(self, name, *old, **settings)
        return found

    return cast("F", with_arguments)


def _accepts_to(backup: F) -> F:
    """Let `RemoteStore.backup` take its folder as `to=`, the name of `dest` before, with a warning."""

    @functools.wraps(backup)
    def with_to(self: "RemoteStore", *given: Any, **options: Any) -> Any:
        if "to" in options and not given and "dest" not in options:
            _warn("RemoteStore.backup(to=...) is now RemoteStore.backup(dest=...)")
            options["dest"] = options.pop("to")
        return backup(self, *given, **options)

    return cast("F", with_to)


def _warn(what: str) -> None:
    warnings.warn(what, DeprecationWarning, stacklevel=3)


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

    @_accepts_arguments
    def queue(self, name: str, **settings: Unpack[QueueOptions]) -> RemoteQueue:
        """Return the queue of that name; create it if there is none.

        Without settings it is declared as AMQP does it: see `declare_queue`. With settings it is created as an embedded
        store would; an existing queue must have these settings. Those of its log (`log`, `flush`, `roll`, ...) cannot
        be chosen here.
        """
        if not settings:
            return self.declare_queue(name)
        if refused := settings.keys() - QueueSettings.__dataclass_fields__.keys() | settings.keys() & {"log"}:
            known = sorted(QueueSettings.__dataclass_fields__.keys() - {"log"})
            raise InvalidArgument(
                f"a remote queue has no setting {min(refused)!r}; there are: {', '.join(known)}. The server chooses "
                "those of logs: to choose them, create the queue with holdfast.open where the store is"
            )
        if self.read_only:
            raise InvalidArgument(f"this store only reads: leave the settings of the queue {name!r} out")
        QueueSettings.of(name, dict(settings))  # raises InvalidArgument for an invalid value
        body = {"vhost": self.vhost, "name": name, "settings": json.loads(to_json(dict(settings)))}
        self._wire.request("POST", path_of("queues"), body, again=True)
        return RemoteQueue(self._wire, self.vhost, name)

    def declare_queue(self, name: str, arguments: Mapping[str, Any] | None = None) -> RemoteQueue:
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

    def log(self, name: str, *, schema: PayloadSchema | None = None, **settings: Unpack[LogOptions]) -> RemoteLog:
        """Return the log of that name. An append creates it if there is none, with the server's settings.

        `schema` is kept with the log, as by `log.schema.set`. Raises `InvalidArgument` if settings are given.
        """
        if settings:
            raise InvalidArgument("the settings of a remote log are chosen by the server: leave them out")
        log = RemoteLog(self._wire, name)
        if self.read_only:
            log.describe()  # raises NotFound, with the existing logs, if there is none
        if schema is not None:
            log.schema.set(schema)
        return log

    # Tables.

    def tables(self) -> list[str]:
        """Return the names of all tables, sorted."""
        return sorted(one["name"] for one in self.table_rows())

    def table_rows(self) -> list[dict[str, Any]]:
        """Return all tables with their statistics, as JSON."""
        return list(self._wire.get(path_of("tables"))["tables"])

    def table(self, model: "type[M] | str", **settings: Unpack[TableOptions]) -> "RemoteTable[M]":
        """Return the table of that name, or of a model's records; it must exist.

        Raises `InvalidArgument` if settings are given.
        """
        from holdfast.remote.table import RemoteTable  # noqa: PLC0415

        if settings:
            raise InvalidArgument(
                "the settings of a remote table are chosen with holdfast.open, where the store is: leave them out"
            )
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

    @_accepts_to
    def backup(
        self,
        dest: str | os.PathLike[str],
        *,
        base: str | os.PathLike[str] | None = None,
        incremental: bool = True,
        copy: bool = False,
        progress: "Progress | None" = None,
    ) -> "BackupReport":
        """Back the store up into a new folder in `dest`, while the server continues to write.

        `dest` and `base` are folders of the server's machine, below its `allowed_paths`. Files that the newest backup
        in `dest` (or `base`) has already are hard-linked, unless not `incremental`. With `copy` nothing is shared with
        the store. `progress(done, total)` is called once, at the end.
        """
        from holdfast.backup.backup import BackupReport  # noqa: PLC0415

        body = {"to": os.fspath(dest), "copy": copy, "incremental": incremental}
        if base is not None:
            body["base"] = os.fspath(base)
        answer = self._wire.request("POST", path_of("backup"), body, wait=_BACKUP_S)
        report = made(BackupReport, answer, path=Path(answer["path"]), left_out=tuple(answer["left_out"]))
        if progress is not None:
            progress(report.bytes, report.bytes)
        return report

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
        """Return the migration status of each table."""
        from holdfast.table.migration.status import MigrationStatus  # noqa: PLC0415

        return (made(MigrationStatus, one) for one in self._rows())

    def _rows(self) -> list[dict[str, Any]]:
        return list(self._wire.get(path_of("migrations"))["migrations"])

    def audit(self, table: str) -> "list[AuditEntry]":
        """Return the kept audit entries of a table's migrations, the oldest first."""
        from holdfast.table.migration.progress import AuditEntry  # noqa: PLC0415

        for one in self._rows():
            if one["table"] == table:
                return [made(AuditEntry, entry) for entry in one["audit"]]
        raise NotFound(f"the server has no table {table!r}")

    def status(self, table: str) -> "MigrationStatus":
        """Return the migration status of one table."""
        for one in self:
            if one.table == table:
                return one
        raise NotFound(f"the server has no table {table!r}")

    def wait(self, table: str | None = None, timeout: Duration | None = None) -> bool:
        """Wait until the migration of a table, or of all tables, is complete; return False after `timeout`.

        Asks the server twice a second. Raises `MigrationFailed` if one failed or was cancelled, `NotFound` if there is
        no such table.
        """
        from holdfast.table import MigrationFailed  # noqa: PLC0415

        deadline = None if timeout is None else time.monotonic() + seconds(timeout, "timeout")
        while True:
            left = [one for one in (self if table is None else [self.status(table)]) if one.state != "idle"]
            for one in left:
                if one.state in ("failed", "cancelled"):
                    why = f": {one.error}" if one.error else ""
                    raise MigrationFailed(f"the migration of {one.table!r} is {one.state}{why}")
            if not left:
                return True
            pause = _PAUSE_S if deadline is None else min(_PAUSE_S, deadline - time.monotonic())
            if pause <= 0:
                return False
            time.sleep(pause)

    def pause(self, table: str) -> bool:
        """Pause a migration until `resume`; return False if it is not running."""
        return self._steer(table, "pause")

    def resume(self, table: str) -> bool:
        """Resume a migration that was paused or has failed; return False if it was neither."""
        return self._steer(table, "resume")

    def cancel(self, table: str) -> bool:
        """Cancel a migration; return False if there is none."""
        return self._steer(table, "cancel")

    def _steer(self, table: str, action: str) -> bool:
        return bool(self._wire.request("POST", path_of("migrations", table, action))["done"])
