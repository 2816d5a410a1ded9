"""An index gets the entries of records that were there before it."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.base.errors import InvalidArgument
from holdfast.table.errors import ValidationFailed
from holdfast.table.migration import Fatal, Migration, MigrationFailed, Step, each_row
from holdfast.table.migration.backfill import Filling
from holdfast.table.migration.compatibility import IndexWork
from holdfast.table.model.fields import field
from holdfast.table.model.indexes import Index, Reversed
from holdfast.table.model.model import Model, text_of_key
from holdfast.table.operations import Change, Delete, Undelete
from tests.table.migration.models import counted_1, counted_2, counted_unique
from tests.table.migration.opening import Opened

Open = Callable[..., Opened]
ENTRIES = ("index", "historic_index", "unique", "historic_unique")


def busy(hf: Opened, seed: int, *, history: bool, unique_names: bool = False) -> list[bytes]:
    """Records that were added, changed, deleted, brought back and forgotten; the keys of those that are there."""
    pick = random.Random(seed)
    Counted = counted_1()
    table = hf.table(Counted, keep_all_versions=history)
    keys: list[bytes] = []
    names = iter(range(10_000))
    for _ in range(60):
        key = pick.choice(keys) if keys else b""
        what = pick.choice(["add"] * 4 + ["change"] * 4 + ["delete", "undelete", "forget"]) if len(keys) > 4 else "add"
        if what == "add":
            name = f"n{next(names)}" if unique_names else f"n{pick.randrange(5)}"
            tags = [pick.choice("abc") for _ in range(pick.randrange(4))]
            keys.append(table.add(Counted(name=name, count=pick.randrange(-5, 5), tags=tags)).key)
            continue
        operation = {
            "change": Change(key, {"count": pick.randrange(-5, 5), "tags": [pick.choice("abc")]}),
            "delete": Delete(key),
            "undelete": Undelete(key),
            "forget": Delete(key, hard=True),
        }[what]
        table.write([operation])
        if what == "forget":
            keys.remove(key)
    return keys


def built_and_rebuilt(hf: Opened, table: Any) -> tuple[list[Any], list[Any]]:
    built = hf.entries(*ENTRIES)
    table.rebuild()
    return built, hf.entries(*ENTRIES)


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_new_index_is_what_it_would_be_had_it_always_been_there(opened: Open, history: bool, seed: int) -> None:
    busy(opened(), seed, history=history)
    hf = opened()
    table = hf.table(counted_2())
    built, rebuilt = built_and_rebuilt(hf, table)
    assert built == rebuilt and len(built) > 10


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_so_are_new_unique_values(opened: Open, history: bool, seed: int) -> None:
    busy(opened(), seed, history=history, unique_names=True)
    hf = opened()
    table = hf.table(counted_unique(), migration=Migration())
    built, rebuilt = built_and_rebuilt(hf, table)
    assert built == rebuilt and len(built) > 10


def test_records_are_found_by_a_new_index_now_and_then(opened: Open) -> None:
    class Box(Model, id=3, version="1.0"):
        weight: int = field(1)

    First: Any = Box
    with opened() as hf:
        table = hf.table(First, keep_all_versions=True)
        keys = [table.add(First(weight=weight)).key for weight in (500, 2000, 990, 41)]
        then = table.last_version
        table.change(keys[3], {"weight": 40})

    class Box(Model, id=3, version="1.1"):  # type: ignore[no-redef]
        weight: int = field(1)
        __indexes__ = (Index("weight"),)

    table = opened().table(Box)
    found = table.scan(order="weight")
    assert "index" in str(found.explain())
    assert [row.weight for row in found] == [40, 500, 990, 2000]
    assert [row.weight for row in table.scan(order=Reversed("weight"), as_of=2**64 - 1)] == [2000, 990, 500, 40]
    assert [row.weight for row in table.scan(order="weight", as_of=then)] == [41, 500, 990, 2000]


def test_an_index_that_nobody_asks_for_is_deleted(opened: Open) -> None:
    busy(opened(), 1, history=True)
    hf = opened()
    hf.table(counted_2())
    assert hf.entries("index", "historic_index")
    hf = opened()
    hf.table(counted_1())
    assert not hf.entries(*ENTRIES)
    assert hf.meta("Counted")["definition"]["version"] == "1.0"


def test_unique_values_that_nobody_asks_for_are_deleted(opened: Open) -> None:
    busy(opened(), 1, history=True, unique_names=True)
    opened().table(counted_unique(), migration=Migration())
    hf = opened()
    hf.table(counted_1())
    assert not hf.entries(*ENTRIES)


def test_batches_go_on_where_the_last_one_ended(opened: Open) -> None:
    keys = sorted(busy(opened(), 2, history=True))
    hf = opened()
    table = hf.table(counted_2())
    whole = hf.entries(*ENTRIES)
    filling = Filling(table.engine, IndexWork(build=tuple(index.canonical for index in table.model.__spec__.indexes)))
    assert filling.begin() == len(keys) and not hf.entries(*ENTRIES)
    seen, cursor, count = [], None, 0
    while True:
        cursor, done = filling.fill(cursor, limit=1)
        count += done
        if cursor is None:
            break
        seen.append(cursor)
    assert seen == keys and count == len(keys)
    assert hf.entries(*ENTRIES) == whole


def test_progress_is_told(opened: Open) -> None:
    Counted = counted_1()
    with opened() as hf:
        hf.table(Counted).add_many([Counted(name="x", count=number) for number in range(4500)])
    hf = opened()
    hf.table(counted_2(), migration_budget=0)
    seen = []
    while hf.step() is not None:
        status = hf.migrations().status("Counted")
        if status.total is not None:
            seen.append((status.phase, status.processed, status.total))
    assert seen == [("Backfill", 2000, 4500), ("Backfill", 4000, 4500)]


def test_values_that_are_not_unique_are_named_with_both_keys(opened: Open) -> None:
    Counted = counted_1()
    with opened() as hf:
        table = hf.table(Counted)
        one, two, three = (table.add(Counted(name=name, count=0)).key for name in ("a", "b", "a"))
        gone = table.add(Counted(name="b", count=0)).key
        table.delete(gone)
    hf = opened()
    with pytest.raises(MigrationFailed, match=r"'name' is to be unique, but .* both have 'a'") as failed:
        hf.table(counted_unique(), migration=Migration())
    assert text_of_key(one) in str(failed.value) and text_of_key(three) in str(failed.value)
    assert text_of_key(two) not in str(failed.value), "who is deleted has no claim"
    assert hf.migrations().status("Counted").state == "failed"


def test_equal_values_are_not_forgotten_when_the_process_ends(opened: Open) -> None:
    Counted = counted_1()
    names = ["same", "same", *(f"n{number}" for number in range(3000))]
    with opened() as hf:
        hf.table(Counted).add_many([Counted(name=name, count=0) for name in names])
    hf = opened()
    hf.table(counted_unique(), migration=Migration(), migration_budget=0)
    while hf.migrations().status("Counted").processed == 0:
        hf.step()
    with pytest.raises(MigrationFailed, match="'same'"):
        opened().table(counted_unique(), migration=Migration())


def test_a_backfill_can_tell_equal_values_apart(opened: Open) -> None:
    """It was the index that failed; the user's part comes again before it is tried again."""
    Counted, Unique = counted_1(), counted_unique()
    with opened() as hf:
        table = hf.table(Counted)
        keys = [table.add(Counted(name="a", count=number)).key for number in range(3)]
    with pytest.raises(MigrationFailed):
        opened().table(Unique, migration=Migration())
    renamed = each_row(lambda row: Unique(name=f"{row.old.name}{row.old.count}", count=row.old.count))
    table = opened().table(Unique, migration=Migration(backfill=renamed))
    assert [table.get(key).name for key in keys] == ["a0", "a1", "a2"]
    with pytest.raises(ValidationFailed) as refused:
        table.add(Unique(name="a1", count=9))
    assert refused.value.violations[0].owner == keys[1]


def test_a_phase_before_the_backfill_is_over_does_not_find_by_what_is_not_filled(opened: Open) -> None:
    Counted, Indexed = counted_1(), counted_2()
    with opened() as hf:
        hf.table(Counted).add(Counted(name="a", count=1, tags=["x"]))
    found: dict[str, int] = {}

    def look(step: Step) -> None:
        found[step.phase] = sum(1 for _ in step.table.scan(Indexed.tags.contains("x"), allow_table_scan=True))
        kind = step.table.scan(Indexed.tags.contains("x"), allow_table_scan=True).explain()
        assert ("index" in str(kind)) == (step.phase in ("Verify", "Contract")), kind

    opened().table(Indexed, migration=Migration(look, look, look, look))
    assert found == {"Expand": 1, "Backfill": 1, "Verify": 1, "Contract": 1}


def test_what_later_phases_write_is_in_the_new_indexes(opened: Open) -> None:
    busy(opened(), 3, history=True)
    Indexed = counted_2()

    def move(row: Any) -> Any:
        return Indexed(name=row.new.name, count=row.new.count + 100, tags=row.new.tags)

    hf = opened()
    table = hf.table(Indexed, migration=Migration(backfill=each_row(move), contract=each_row(move)))
    built, rebuilt = built_and_rebuilt(hf, table)
    assert built == rebuilt


def test_an_index_is_filled_where_an_earlier_attempt_left_something(opened: Open) -> None:
    busy(opened(), 4, history=True)
    with pytest.raises(MigrationFailed):
        opened().table(counted_2(), migration=Migration(verify=lambda step: Fatal("no")))
    hf = opened()
    opened_again = hf.table(counted_1())
    opened_again.write([Delete(key[4:], hard=True) for _, key, _ in hf.entries("table")[:3]])
    hf = opened()
    built, rebuilt = built_and_rebuilt(hf, hf.table(counted_2()))
    assert built == rebuilt


def test_there_is_nothing_to_plan_where_nothing_waits(opened: Open) -> None:
    hf = opened()
    hf.table(counted_2())
    with pytest.raises(InvalidArgument, match="does not wait for indexes"):
        hf.migrations().plan("Counted")


def test_equal_values_are_found_though_the_state_was_lost_meanwhile(opened: Open, tmp_path: Path) -> None:
    Counted = counted_1()
    with opened(disk=True) as hf:
        names = [str(number % 4499) for number in range(4500)]
        hf.table(Counted).add_many([Counted(name=name, count=0) for name in names])
    hf = opened(disk=True)
    hf.table(counted_unique(), migration=Migration(), migration_budget=0)
    while hf.migrations().status("Counted").processed != 2000:
        hf.step()
    hf.close()
    shutil.rmtree(tmp_path / "data" / "table-state")
    with pytest.raises(MigrationFailed, match=r"'name' is to be unique, but .* both have '0'"):
        opened(disk=True).table(counted_unique(), migration=Migration())
