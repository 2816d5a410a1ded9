"""Two threads that need the same locks of a table, each paused where it holds the first of them."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast import Model, field
from holdfast.table import Table

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
        before, wait = table.before_recovery, table._wait_for_pending_commits

        def before_recovery() -> None:
            if threading.current_thread().name == "reader":
                recovering.set()
                rebuilding.wait(PATIENCE_S)
            before()

        def wait_for_pending_commits(check: Callable[[], None] | None = None) -> None:
            wait(check)
            if threading.current_thread().name == "rebuilder":
                rebuilding.set()
                reader.join(1)  # long enough to take its locks, if it can

        monkeypatch.setattr(table, "before_recovery", before_recovery)
        monkeypatch.setattr(table, "_wait_for_pending_commits", wait_for_pending_commits)
        table.doubt = "a request was interrupted"
        reader = thread("reader", table.counts)
        assert recovering.wait(PATIENCE_S)
        assert ended(thread("rebuilder", table.rebuild), reader)
