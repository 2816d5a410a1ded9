"""Embedded and remote stores conform to the protocols of `holdfast.interfaces`, with the same signatures."""

import inspect
import subprocess
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

import holdfast
import holdfast.backup.backup
import holdfast.backup.copier
import holdfast.table
import holdfast.table.migration.progress
import holdfast.table.migration.status
import holdfast.table.operations
import holdfast.table.query.change_history
import holdfast.table.query.planner
import holdfast.table.query.record_reader
from holdfast import (
    AnyLog,
    AnyMigrations,
    AnyQueue,
    AnyScan,
    AnyStore,
    AnyTable,
    AnyTailer,
    InvalidArgument,
    Log,
    Model,
    Queue,
    RemoteStore,
    Store,
    Table,
    Tailer,
    field,
)
from holdfast.interfaces import AnyLogSchema
from holdfast.log.log_schema import LogSchema
from holdfast.remote import RemoteLog, RemoteQueue, RemoteTailer
from holdfast.remote.log_schema import RemoteLogSchema
from holdfast.remote.store import RemoteMigrations
from holdfast.remote.table import RemoteScan, RemoteTable
from holdfast.table.migration.scheduler import Migrations
from holdfast.table.query.scanner import Scan
from tests.web.serving import Served


class Person(Model, id=4711):
    """Someone."""

    name: str = field(1)


PAIRS: dict[type, tuple[type, type]] = {
    AnyStore: (Store, RemoteStore),
    AnyQueue: (Queue, RemoteQueue),
    AnyLog: (Log, RemoteLog),
    AnyLogSchema: (LogSchema, RemoteLogSchema),
    AnyTailer: (Tailer, RemoteTailer),
    AnyTable: (Table, RemoteTable),
    AnyScan: (Scan, RemoteScan),
    AnyMigrations: (Migrations, RemoteMigrations),
}


def _types_conform(
    store: Store, remote: RemoteStore, table: Table[Person], far_table: RemoteTable[Person]
) -> tuple[list[AnyStore], list[AnyTable[Person]], list[AnyScan[Person]], list[AnyMigrations]]:
    """Let mypy check that both classes of each pair conform; never called."""
    queues: list[AnyQueue] = [store.queue("q"), remote.queue("q")]
    logs: list[AnyLog] = [store.log("l"), remote.log("l"), *(queue.log for queue in queues)]
    tailers: list[AnyTailer] = [store.log("l").tailer(), remote.log("l").tailer()]
    assert queues and logs and tailers
    return (
        [store, remote],
        [table, far_table],
        [table.scan(), far_table.scan()],
        [store.migrations(), remote.migrations()],
    )


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[type, tuple[Any, Any]]]:
    """By protocol: an object of an embedded store, and one of a remote store.

    Objects, and not classes: a method may be an attribute of the object that is bound to one of its parts.
    """
    with Served(tmp_path_factory.mktemp("interfaces") / "data") as served:
        served.store.table(Person)
        with holdfast.connect(served.url) as remote, holdfast.open(tmp_path_factory.mktemp("near") / "data") as store:
            remote.log("names").append(b"x")
            both: list[AnyStore] = [store, remote]
            store.table(Person)
            found: dict[type, tuple[Any, Any]] = {AnyStore: (store, remote)}
            for protocol, make in {
                AnyQueue: lambda one: one.queue("names"),
                AnyLog: lambda one: one.log("names"),
                AnyLogSchema: lambda one: one.log("names").schema,
                AnyTailer: lambda one: one.log("names").tailer(),
                AnyTable: lambda one: one.table(Person),
                AnyScan: lambda one: one.table(Person).scan(allow_table_scan=True),
                AnyMigrations: lambda one: one.migrations(),
            }.items():
                near, far = map(make, both)
                found[protocol] = (near, far)
            yield found


def members(protocol: type) -> dict[str, Any]:
    own = {name: one for kind in protocol.__mro__ if kind is not Protocol for name, one in vars(kind).items()}
    return {
        name: one
        for name, one in own.items()
        if isinstance(one, types.FunctionType | property) and (not name.startswith("_") or name in _DUNDERS)
    }


_DUNDERS = ("__iter__", "__enter__", "__exit__")
_NAMES = {
    "TableRecord": holdfast.table.Record,
    "AuditEntry": holdfast.table.migration.progress.AuditEntry,
    "BackupReport": holdfast.backup.backup.BackupReport,
    "Done": holdfast.table.Done,
    "MigrationStatus": holdfast.table.migration.status.MigrationStatus,
    "Operation": holdfast.table.operations.Operation,
    "Order": holdfast.table.query.planner.Order,
    "Outcome": holdfast.table.operations.Outcome,
    "Point": holdfast.table.query.record_reader.Point,
    "Progress": holdfast.backup.copier.Progress,
    "RecordChanges": holdfast.table.query.change_history.RecordChanges,
    "TableSettings": holdfast.table.TableSettings,
    "Migrations": Migrations,
    "RemoteMigrations": RemoteMigrations,
    "RemoteScan": RemoteScan,
    "RemoteTable": RemoteTable,
    "RemoteTailer": RemoteTailer,
    "Scan": Scan,
    "Table": Table,
    "Model": Model,
    "M": typing.TypeVar("M"),
}
"""What type annotations name without importing it at run time."""


def shape(method: Any) -> list[tuple[str, Any, Any]]:
    """Return name, kind and default of each parameter except `self`."""
    found = inspect.signature(method).parameters.values()
    return [(one.name, one.kind, one.default) for one in found if one.name != "self"]


def hints(method: Any) -> dict[str, str]:
    """Return the annotations as text, with the protocol in the place of each class that conforms to it."""
    function = inspect.unwrap(getattr(method, "__func__", method))
    found = {}
    for name, hint in typing.get_type_hints(function, localns=_NAMES).items():
        text = str(hint) if typing.get_args(hint) or not isinstance(hint, type) else hint.__qualname__
        for protocol, pair in PAIRS.items():
            for kind in (protocol, *pair):
                text = text.replace(f"{kind.__module__}.{kind.__qualname__}", protocol.__name__)
                text = protocol.__name__ if text == kind.__qualname__ else text
        found[name] = text
    return found


MEMBERS = [(protocol, name) for protocol in PAIRS for name in members(protocol)]


@pytest.mark.parametrize(("protocol", "name"), MEMBERS, ids=lambda one: getattr(one, "__name__", one))
def test_a_member_is_the_same_in_both(protocol: type, name: str, objects: dict[type, tuple[Any, Any]]) -> None:
    wanted = members(protocol)[name]
    near, far = objects[protocol]
    if isinstance(wanted, property):
        assert type(getattr(near, name)) is type(getattr(far, name)) or name in ("log", "model", "schema")
        return
    for one in (near, far):
        assert shape(getattr(one, name)) == shape(wanted), type(one)
        assert hints(getattr(one, name)) == hints(wanted), type(one)


def test_the_protocols_list_what_both_have(objects: dict[type, tuple[Any, Any]]) -> None:
    # Both have these names too, but their types differ, or no page documents them.
    others: dict[type, set[str]] = {
        AnyStore: set(),
        AnyQueue: {"settler"},
        AnyLog: {"clock", "positions"},
        AnyLogSchema: set(),
        AnyTailer: {"log"},
        AnyTable: {"log", "spec"},
        AnyScan: {"plan"},
        AnyMigrations: set(),
    }
    for protocol, (near, far) in objects.items():
        both = {name for name in set(dir(near)) & set(dir(far)) if not name.startswith("_")}
        assert both - members(protocol).keys() <= others[protocol], protocol


def test_the_protocols_load_no_tables() -> None:
    code = "import sys, holdfast; holdfast.AnyQueue, holdfast.AnyTable; assert 'holdfast.table' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def work(hf: AnyStore) -> tuple[list[str], list[bytes], int]:
    """Use a store without knowing which of both it is."""
    jobs: AnyQueue = hf.queue("jobs", lease=60, max_attempts=5, dead_letter="jobs.failed")
    for letter in (b"a", b"b", b"c"):
        jobs.put(letter * 70_000)
    first = jobs.lease(3, most_bytes=100_000)
    jobs.ack(first)
    lease = jobs.lease(1)
    voided = jobs.void_lease(jobs.leases()[0].id, "by hand")
    assert lease and jobs.settings.lease == 60 and jobs.settings.dead_letter == "jobs.failed"
    return hf.queues(), [one.payload[:1] for one in first], voided


def test_code_for_the_protocols_runs_with_both(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "near") as store:
        near = work(store)
    with Served(tmp_path / "far") as served, holdfast.connect(served.url) as remote:
        far = work(remote)
        assert remote.queue("jobs", lease=60).settings.max_attempts == 5
        with pytest.raises(InvalidArgument, match="has lease=60, not 61: leave the setting out"):
            remote.queue("jobs", lease=61)
        listed = [(one.name, one.definition.durable) for one in served.site.host("/").broker_queues.values()]
        assert listed == [("jobs", True)]  # AMQP clients see it
    assert near == far == (["jobs"], [b"a", b"b"], 1)
