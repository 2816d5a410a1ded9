"""Stores of every shape are backed up and restored, with all of it open and with none."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import Flush, Index, Migration, Model, Store, field
from holdfast.cli.app import main
from holdfast.table.migration import Partial, Step
from tests.web.serving import Served


class Person(Model, id=11):
    """A record of a table with an index, a unique field and its past."""

    name: str = field(1, unique=True)
    age: int = field(2)
    __indexes__ = (Index("age"),)


class Older(Model, id=12, version="1.0.0"):
    """A record before a migration."""

    name: str = field(1)


def newer() -> type[Model]:
    class Older(Model, id=12, version="2.0.0"):
        name: str = field(1)
        age: int = field(2)

    return Older


def empty(store: Store) -> None:
    """Nothing."""


def logs(store: Store) -> None:
    log = store.log("events", flush=Flush.sync())
    log.append_many([b"%d" % n for n in range(10)])
    tailer = log.tailer("audit")
    tailer.read_many(4)
    tailer.commit()


def queues(store: Store) -> None:
    queue = store.queue("orders")
    queue.put_many([b"%d" % n for n in range(10)])
    queue.ack(queue.lease(4))
    queue.put(b"later", delay=3600)


def dead_letters(store: Store) -> None:
    queue = store.queue("tasks", max_attempts=1)
    queue.put_many([b"%d" % n for n in range(5)])
    queue.nack(queue.lease(2), "no")
    store.tick()


def tables(store: Store) -> None:
    people = store.table(Person, keep_all_versions=True)
    made = [people.add(Person(name=f"name {n}", age=n)) for n in range(5)]
    people.change(made[0].key, {"age": 50})
    people.delete(made[1].key)


def migrating(store: Store) -> None:
    """A table whose migration has begun, and is paused."""
    path = store.path
    people = store.table(Older)
    for n in range(5):
        people.add(Older(name=f"name {n}"))
    store.close()

    def backfill(step: Step) -> Any:
        return Partial("more")

    again = holdfast.open(path, background=False)
    again.table(newer(), migration=Migration(backfill=backfill), migration_budget=0)
    again.migrations().pause("Older")
    again.close()


def transactions(store: Store) -> None:
    people, queue = store.table(Person), store.queue("orders")
    with store.transaction():
        people.add(Person(name="both", age=1))
        queue.put(b"both")


def deleted(store: Store) -> None:
    queues(store)
    tables(store)
    store.delete_queue("orders")
    store.delete_table("Person")
    store.log("events", flush=Flush.sync()).append(b"x")


def everything(store: Store) -> None:
    for shape in (logs, queues, dead_letters, tables, transactions):
        shape(store)


SHAPES = [empty, logs, queues, dead_letters, tables, migrating, transactions, deleted, everything]


def content(path: Path) -> dict[str, Any]:
    """All that a user sees of a store."""
    found: dict[str, Any] = {}
    with holdfast.open(path, read_only=True) as store:
        for name in store.logs():
            log = store.log(name)
            found[f"log {name}"] = [record.payload for record in log.read()]
            found[f"tailers {name}"] = {one.name: one.position for one in log.stats().tailers}
        for name in store.queues():
            queue = store.queue(name)
            found[f"queue {name}"] = [one.payload for one in queue.peek(100)], queue.stats().delayed
        for name in store.tables():
            if name != "Older":
                table: Any = store.table(name)
                found[f"table {name}"] = sorted(one.value.name for one in table.scan())
            else:
                found["migration"] = store.migrations().status("Older").state
    return found


@pytest.mark.parametrize("opened", [False, True], ids=["with nothing open", "with all open"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
def test_a_store_of_any_shape_is_backed_up_and_restored(
    tmp_path: Path, shape: Callable[[Store], None], opened: bool
) -> None:
    data = tmp_path / "data"
    store = holdfast.open(data, background=False)
    shape(store)
    store.close()
    before = content(data)
    with holdfast.open(data, background=False) as again:
        if opened:
            for name in again.queues():
                again.queue(name)
            for name in again.logs():
                again.log(name)
            for name in again.tables():
                if name != "Older":
                    again.table(name)
        again.backup(tmp_path / "backups")
        again.backup(tmp_path / "backups")  # which shares files with the first
    # Not read through there: a table that is opened as it was before a migration ends that.
    report = holdfast.restore_backup(tmp_path / "backups", tmp_path / "restored", verify=False)
    assert not report.faults
    assert content(tmp_path / "restored") == before
    assert holdfast.verify(tmp_path / "restored").ok


def test_the_command_backs_up_a_store_with_a_table(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data") as store:
        tables(store)
    assert main(["backup", str(tmp_path / "backups"), "--data", str(tmp_path / "data")]) == 0
    assert main(["restore", str(tmp_path / "backups"), "--data", str(tmp_path / "restored")]) == 0
    assert content(tmp_path / "restored") == content(tmp_path / "data")


def test_a_server_backs_up_a_store_with_a_table_and_transient_queues(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data") as store:
        everything(store)
    before = content(tmp_path / "data")
    with Served(tmp_path / "data", allowed_paths=(str(tmp_path),)) as served:
        served.add_user("ann", tags=("administrator",))
        made = served.ask("PUT", "/api/queues/%2F/passing", {"durable": False})
        assert made.status == 201
        answer = served.ask("POST", "/api/holdfast/backup", {"to": str(tmp_path / "backups")}, user="ann")
        assert answer.status == 200, answer.body
    restored = tmp_path / "restored"
    assert not holdfast.restore_backup(tmp_path / "backups", restored).faults
    after = content(restored)
    assert {what: after[what] for what in before} == before
