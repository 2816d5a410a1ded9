"""A field becomes unique when there are records: since then it is, and before it was not."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.table import Model, TableScanRefused, ValidationFailed, backup_table, field, restore_table
from holdfast.table.migration import Migration, MigrationFailed, each_row
from holdfast.table.storage.deferred_unique import LateUnique
from tests.table.internals import REPLAY_BATCH
from tests.table.migration.opening import Opened
from tests.table.migration.test_indexes import ENTRIES

Open = Callable[..., Opened]


def badge(*, unique: bool) -> Any:
    class Badge(Model, id=9, version="2" if unique else "1"):
        code: str | None = field(1, unique=unique)

    return Badge


def issued(hf: Opened, *, history: bool = True) -> tuple[list[bytes], int]:
    """Three records with the same code: their keys, and the version at which it was so."""
    table = hf.table(badge(unique=False), keep_all_versions=history)
    return [table.add({"code": "y"}).key for _ in range(3)], table.last_version


def told_apart(Badge: Any, keys: list[bytes]) -> Migration:
    """The first keeps its code, the others get their own."""
    return Migration(backfill=each_row(lambda found: Badge(code="y" if found.key == keys[0] else found.key.hex())))


def migrated(opened: Open, *, history: bool = True) -> tuple[Opened, Any, list[bytes], int]:
    keys, then = issued(opened(), history=history)
    Badge = badge(unique=True)
    hf = opened()
    return hf, hf.table(Badge, migration=told_apart(Badge, keys)), keys, then


def test_a_scan_of_the_time_before_does_not_go_by_the_unique_value(opened: Open) -> None:
    hf, table, keys, then = migrated(opened)
    for _ in ("migrated", "opened again"):
        code = table.model.code
        with pytest.raises(TableScanRefused):
            table.scan(code == "y", as_of=then)
        assert {row.key for row in table.scan(code == "y", as_of=then, allow_table_scan=True)} == {*keys}
        assert table.count(code == "y", as_of=then, allow_table_scan=True) == 3
        hf = opened()
        table = hf.table(badge(unique=True))


def test_a_scan_of_the_time_since_goes_by_it(opened: Open) -> None:
    hf, table, keys, _ = migrated(opened)
    since = table.last_version
    table.change(keys[0], {"code": "z"})
    for _ in ("changed", "opened again"):
        found = table.scan(table.model.code == "y", as_of=since)
        assert "by the unique code" in found.explain()
        assert [row.key for row in found] == [keys[0]]
        assert list(table.scan(table.model.code == "y")) == []
        hf = opened()
        table = hf.table(badge(unique=True))
    assert hf.meta("Badge")["unique_since"] == {"1": since}


@pytest.mark.parametrize("history", [False, True])
def test_what_is_rebuilt_is_what_was_there(opened: Open, history: bool) -> None:
    hf, table, keys, _ = migrated(opened, history=history)
    before = hf.entries(*ENTRIES)
    table.rebuild()
    assert hf.entries(*ENTRIES) == before, "with nothing after the migration"
    table.change(keys[0], {"code": "z"}), table.change(keys[1], {"code": "y"}), table.delete(keys[1])
    table.add({"code": "y"}), table.delete(keys[2]), table.undelete(keys[2])
    before = hf.entries(*ENTRIES)
    table.rebuild()
    assert hf.entries(*ENTRIES) == before, "with changes after it"


def test_after_a_rebuild_a_value_that_others_had_once_is_still_its_owners(opened: Open) -> None:
    hf, table, keys, _ = migrated(opened)
    for _ in ("rebuilt", "built anew with another setting"):
        table.rebuild()
        with pytest.raises(ValidationFailed):
            table.add({"code": "y"})
        assert table.scan(table.model.code == "y").first().key == keys[0]
        hf = opened()
        table = hf.table(badge(unique=True), update_history=True)


class Interrupting:
    """A method that is interrupted when it was called some times."""

    def __init__(self, method: Any, after: int) -> None:
        self._method, self._left = method, after

    def __get__(self, late: LateUnique, _: Any) -> Any:
        def call(version: int) -> Any:
            if self._left == 0:
                raise KeyboardInterrupt
            self._left -= 1
            return self._method(late, version)

        return call


@pytest.mark.parametrize(("where", "after"), [("due", 1), ("due", 3), ("due", 5), ("start", 0), ("due", 7), ("due", 8)])
def test_a_rebuild_that_was_interrupted_goes_on(
    opened: Open, monkeypatch: pytest.MonkeyPatch, where: str, after: int
) -> None:
    hf, table, keys, _ = migrated(opened)
    table.change(keys[0], {"code": "z"}), table.change(keys[1], {"code": "y"})
    before = hf.entries(*ENTRIES)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(REPLAY_BATCH, 1)
        patch.setattr(
            f"holdfast.table.storage.deferred_unique.LateUnique.{where}",
            Interrupting(getattr(LateUnique, where), after),
        )
        table.rebuild()
    hf = opened()
    table = hf.table(badge(unique=True))
    assert hf.entries(*ENTRIES) == before
    assert table.scan(table.model.code == "y").first().key == keys[1]


def test_a_state_that_is_lost_between_two_phases_is_built_with_it(opened: Open) -> None:
    keys, _ = issued(opened())
    Badge = badge(unique=True)

    def failing(step: Any) -> Any:
        raise MigrationFailed("not now")

    migration = told_apart(Badge, keys)
    with pytest.raises(MigrationFailed):
        opened().table(Badge, migration=Migration(backfill=migration.backfill, verify=failing))
    hf = opened()
    table = hf.table(Badge, migration=migration, update_history=True)  # which builds the state anew
    before = hf.entries(*ENTRIES)
    table.rebuild()
    assert hf.entries(*ENTRIES) == before
    assert table.scan(Badge.code == "y").first().key == keys[0]


def test_a_field_that_is_no_longer_unique_and_then_is_again_is_unique_since_then(opened: Open) -> None:
    _, table, keys, _ = migrated(opened)
    first = table.last_version
    table = opened().table(badge(unique=False))
    table.change(keys[1], {"code": "y"})
    between = table.last_version
    Badge = badge(unique=True)
    hf = opened()
    table = hf.table(Badge, migration=told_apart(Badge, keys))
    assert hf.meta("Badge")["unique_since"]["1"] > between > first
    assert table.count(Badge.code == "y", as_of=between, allow_table_scan=True) == 2


def test_a_backup_of_it_is_restored_with_its_owners(opened: Open, tmp_path: Path) -> None:
    _, table, keys, then = migrated(opened)
    backup_table(table, tmp_path / "full.hftable")
    with Opened(tmp_path / "other") as other:
        restore_table(other, tmp_path / "full.hftable", model=badge(unique=True))
        copy = other.table("Badge")
        assert copy.scan(copy.model.code == "y").first().key == keys[0]
        assert copy.count(copy.model.code == "y", as_of=then, allow_table_scan=True) == 3
