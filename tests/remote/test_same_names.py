"""Is a thing of a server used as one in a folder is? The same names, with the same arguments."""

import inspect

import pytest

from holdfast import Log, Queue, Store, Table, Tailer
from holdfast.remote import RemoteLog, RemoteQueue, RemoteStore, RemoteTailer
from holdfast.remote.table import RemoteTable

PAIRS = [(Queue, RemoteQueue), (Log, RemoteLog), (Tailer, RemoteTailer), (Table, RemoteTable)]
LESS = {
    "Queue.lease": {"most_bytes"},
    "Log.sequence_at": {"past_damage"},
    "Table.scan": {"start", "include_start"},
    "Table.changes": {"order", "start", "include_start"},
}
"""Arguments that only the thing in a folder has."""
NOT_AFAR = {
    "Queue": {"listen", "sync", "close", "page_out", "reject_ids", "void_leases"},
    "Log": {"refresh", "close", "page_out", "blocks"},
}


def methods(kind: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(one)
        for name, one in inspect.getmembers(kind, inspect.isfunction)
        if not name.startswith("_")
    }


@pytest.mark.parametrize(("here", "afar"), PAIRS, ids=lambda one: one.__name__)
def test_a_method_that_both_have_takes_the_same(here: type, afar: type) -> None:
    ours, theirs = methods(here), methods(afar)
    both = ours.keys() & theirs.keys()
    assert len(both) >= 8
    for name in both:
        lacking = LESS.get(f"{here.__name__}.{name}", set())
        wanted = [(one.name, one.default) for one in ours[name].parameters.values() if one.name not in lacking]
        found = [(one.name, one.default) for one in theirs[name].parameters.values()]
        if name != "void_lease":  # its reason has other words there
            assert found == wanted, f"{here.__name__}.{name}"


def test_a_queue_can_be_used_from_afar_as_from_near() -> None:
    everyday = {
        "put", "put_many", "lease", "get", "consume", "ack", "nack", "extend", "release", "peek", "message", "stats",
        "counts", "leases", "delayed", "delayed_histogram", "dead_letters", "redrive", "delete_dead_letters", "purge",
        "pause", "resume", "paused", "preview", "seek", "seek_time", "waiting", "settings", "log", "name",
    }  # fmt: skip
    assert all(hasattr(Queue, name) or name in ("settings", "log", "name") for name in everyday)
    assert everyday - {"name"} <= set(dir(RemoteQueue))


def test_a_store_has_its_names_afar() -> None:
    for name in ("queues", "queue", "logs", "log", "tables", "table", "migrations", "delete_queue", "close"):
        assert hasattr(Store, name) and hasattr(RemoteStore, name)
