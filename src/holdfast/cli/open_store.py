"""Opening a store for a command: read-only, for writing, or for writing with creation.

A store at a URL is opened here as well, so that commands need not distinguish the two. The library's errors for a
missing or locked store mention Python arguments; here they mention commands.
"""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeVar, cast

import holdfast
from holdfast import Store
from holdfast.base.errors import Locked, NotFound
from holdfast.cli.target import SparkTarget, Target, folder_of
from holdfast.log import Log, Retention
from holdfast.queue import Queue
from holdfast.remote.address import Address
from holdfast.remote.store import RemoteStore

if TYPE_CHECKING:
    from holdfast.replica.status import Confirm

__all__ = [
    "folder_of",
    "log_to_change",
    "log_to_read",
    "queue_to_change",
    "queue_to_read",
    "remote_at",
    "seen_as",
    "store_to_read",
    "store_to_write",
]

T = TypeVar("T")


@contextlib.contextmanager
def remote_at(data: SparkTarget) -> Iterator[RemoteStore | None]:
    """Connect to the chosen server; yield None if something else was chosen."""
    if not isinstance(data, Address):
        yield None
        return
    with RemoteStore(data) as store:
        yield store


def seen_as(kind: type[T], thing: object) -> T | None:
    """Return a store, log or table as its remote class; None if it is in a folder."""
    return thing if isinstance(thing, kind) else None


def _remote(data: Address, *, read_only: bool) -> contextlib.AbstractContextManager[Store]:
    # RemoteStore has the methods of Store that the commands use, by the same names; tests run each command on both.
    return cast("contextlib.AbstractContextManager[Store]", RemoteStore(data, read_only=read_only))


@contextlib.contextmanager
def store_to_read(data: Target) -> Iterator[Store]:
    """Open an existing store read-only, which is possible while another process writes."""
    if isinstance(data, Address):
        with _remote(data, read_only=True) as store:
            yield store
        return
    if not data.exists():
        raise NotFound(f"there is no store at {str(data)!r}: check --data, or create one with holdfast put")
    with holdfast.open(data, read_only=True) as store:
        yield store


@contextlib.contextmanager
def store_to_write(
    data: Target,
    *,
    group_readable: bool | None = None,
    replica: str | None = None,
    confirm: "Confirm" = "local",
    confirm_timeout: float | None = None,
    replica_ttl: float | None = None,
    local_retention: Retention | None = None,
    remote_cache: int | None = None,
) -> Iterator[Store]:
    """Open a store for writing; create it if there is none. The options are as in `holdfast.open`."""
    if isinstance(data, Address):
        with _remote(data, read_only=False) as store:
            yield store
        return
    try:
        store = holdfast.open(
            data,
            group_readable=group_readable,
            replica=replica,
            confirm=confirm,
            confirm_timeout=confirm_timeout,
            replica_ttl=replica_ttl,
            local_retention=local_retention,
            remote_cache=remote_cache,
        )
    except Locked as error:
        who = f"process {error.pid}" if error.pid is not None else "another process"
        raise Locked(
            f"{str(data)!r} is being written by {who}: stop it first or, if it is holdfast serve, use --url with the "
            "address that it printed. To share a store between processes, run holdfast serve. Commands that only read "
            "still work",
            error.pid,
        ) from error
    with store:
        yield store


@contextlib.contextmanager
def log_to_read(data: Target, name: str) -> Iterator[Log]:
    """Open a log read-only, which is possible while another process writes."""
    with store_to_read(data) as store:
        yield store.log(name)


@contextlib.contextmanager
def log_to_change(data: Target, name: str) -> Iterator[Log]:
    """Open an existing log for writing: a mistyped name or folder is an error and not a new, empty log."""
    with log_to_read(data, name):
        pass
    with store_to_write(data) as store:
        yield store.log(name)


@contextlib.contextmanager
def queue_to_read(data: Target, name: str) -> Iterator[Queue]:
    """Open a queue read-only, which is possible while another process writes."""
    with store_to_read(data) as store:
        yield store.queue(name)


@contextlib.contextmanager
def queue_to_change(data: Target, name: str) -> Iterator[Queue]:
    """Open an existing queue for writing: a mistyped name or folder is an error and not a new, empty queue."""
    if isinstance(data, Address):  # opened once: a user who may not list queues may still use this one
        with queue_to_read(data, name) as queue:
            yield queue
        return
    with store_to_read(data) as store:
        if name not in store.queues():
            store.queue(name)  # raises NotFound with the names of the existing queues
    with store_to_write(data) as store:
        yield store.queue(name)
