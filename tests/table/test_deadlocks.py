"""Two threads that need the same locks of a table, each paused where it holds the first of them."""

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast import Model, StorageError, Store, WriterStopped, field
from holdfast.table import Table
from tests.table.internals import before_applying, commits_of, on_finding_queue, registry_of

PATIENCE_S = 30


class Person(Model, id=1):
    name: str = field(1)


def thread(name: str, work: Callable[[], object]) -> threading.Thread:
    one = threading.Thread(target=work, name=name, daemon=True)
    one.start()
    return one


def ended(*threads: threading.Thread) -> bool:
    for one in threads:
        one.join(PATIENCE_S)
    return not any(one.is_alive() for one in threads)


def test_a_rebuild_and_a_read_that_recovers_do_not_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with holdfast.open(tmp_path / "data") as store:
        table: Table[Person] = store.table(Person)
        table.add(Person(name="a"))
        recovering, rebuilding = threading.Event(), threading.Event()
        commits = commits_of(table)
        before = commits.before_recovery

        def before_recovery() -> None:
            if threading.current_thread().name == "reader":
                recovering.set()
                rebuilding.wait(PATIENCE_S)
            before()

        def after_waiting() -> None:
            if threading.current_thread().name == "rebuilder":
                rebuilding.set()
                reader.join(1)  # long enough to take its locks, if it can

        monkeypatch.setattr(commits, "before_recovery", before_recovery)
        before_applying(monkeypatch, table, after_waiting)
        commits.doubt = "a request was interrupted"
        reader = thread("reader", table.counts)
        assert recovering.wait(PATIENCE_S)
        assert ended(thread("rebuilder", table.rebuild), reader)


@pytest.mark.parametrize("end", ["delete_table", "close"])
def test_a_transaction_is_finished_while_its_table_is_deleted_or_the_store_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    store = holdfast.open(tmp_path / "data")
    table = store.table(Person)
    interrupted(store, table, monkeypatch)
    looking, ending = threading.Event(), threading.Event()

    def look() -> None:
        if threading.current_thread().name == "writer":
            looking.set()
            ending.wait(1)  # long enough for the other to take its locks, if it can

    on_finding_queue(monkeypatch, store, look)
    writer = thread("writer", lambda: add_if_open(table))
    assert looking.wait(PATIENCE_S)
    assert ended(thread("ender", lambda: finish(store, end)), writer)
    store.close()


def test_a_transaction_is_finished_while_a_table_is_rebuilt_and_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who rebuilds has a claim on the table, and must not wait for the store's guard, which the other one has."""
    store = holdfast.open(tmp_path / "data")
    table = store.table(Person)
    interrupted(store, table, monkeypatch)
    recovering, finishing, before = threading.Event(), threading.Event(), commits_of(table).before_recovery

    def before_recovery() -> None:
        if threading.current_thread().name == "rebuilder":
            recovering.set()
            finishing.wait(PATIENCE_S)
        before()

    def look() -> None:
        finishing.set()
        rebuilder.join(0.5)  # long enough to wait for the store's guard, which this thread has

    monkeypatch.setattr(commits_of(table), "before_recovery", before_recovery)
    on_finding_queue(monkeypatch, store, look)
    rebuilder = thread("rebuilder", lambda: rebuild_if_open(table))
    assert recovering.wait(PATIENCE_S)
    assert ended(rebuilder, thread("deleter", lambda: store.delete_table("Person")))
    store.close()


def interrupted(store: Store, table: Table[Person], monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave a transaction that was decided and not carried out; its queue is deleted since."""
    queue = store.queue("orders")

    def fails(*_: object) -> None:
        raise StorageError("the disk fails")

    with monkeypatch.context() as patched:
        patched.setattr(registry_of(store), "carry_out", fails)
        with pytest.raises(WriterStopped), store.transaction():
            table.add(Person(name="b"))
            queue.put(b"x")
    store.delete_queue("orders")


def add_if_open(table: Table[Person]) -> None:
    with contextlib.suppress(holdfast.HoldfastError):  # it may be closed or deleted meanwhile
        table.add(Person(name="c"))


def rebuild_if_open(table: Table[Person]) -> None:
    with contextlib.suppress(holdfast.HoldfastError):
        table.rebuild()


def finish(store: Store, how: str) -> None:
    store.close() if how == "close" else store.delete_table("Person")
