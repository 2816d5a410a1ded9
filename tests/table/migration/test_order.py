"""Migrations of several tables follow each other."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.base.errors import InvalidArgument
from holdfast.table.migration import Fatal, Migration, MigrationFailed, MigrationPending
from holdfast.table.model.fields import field
from holdfast.table.model.model import Model, ModelMeta
from tests.table.migration.opening import Opened

Open = Callable[..., Opened]


def models(version: int) -> tuple[Any, Any, Any]:
    """Three tables, whose second version needs a migration."""
    made = []
    for number, name in enumerate("ABC", 1):
        space: dict[str, Any] = {"__module__": __name__, "__qualname__": name, "__annotations__": {"text": str}}
        space["text"] = field(1) if version == 1 else field(1, min_length=1)
        made.append(ModelMeta(name, (Model,), space, id=number, version=f"{version}.0"))
    return made[0], made[1], made[2]


def of_version_1(opened: Open) -> None:
    hf = opened()
    for model in models(1):
        hf.table(model)


def test_a_table_waits_for_those_that_come_first(opened: Open) -> None:
    of_version_1(opened)
    A, B, C = models(2)
    order: list[str] = []

    def note(name: str, *after: Any) -> Migration:
        return Migration(backfill=lambda step: order.append(name), after=after)

    hf = opened()
    a = hf.table(A, migration=note("A", B, "C"))
    assert hf.migrations().status("A").state == "waiting"
    with pytest.raises(MigrationPending):
        a.get(b"")
    hf.table(B, migration=note("B", C))
    assert order == []
    hf.table(C, migration=note("C"))
    assert order == ["C", "B", "A"], "what waited goes on at once"
    assert [one.state for one in hf.migrations()] == ["idle"] * 3
    assert a.get(b"0" * 16) is None


def test_a_table_that_is_up_to_date_holds_up_nobody(opened: Open) -> None:
    of_version_1(opened)
    (A, _, _), (_, B, _) = models(2), models(1)
    hf = opened()
    hf.table(A, migration=Migration(after=("B",)))
    assert hf.migrations().status("A").state == "waiting"
    hf.table(B)
    assert hf.migrations().status("A").state == "idle"


def test_a_failure_of_the_first_leaves_the_others_waiting(opened: Open) -> None:
    of_version_1(opened)
    A, B, _ = models(2)
    hf = opened()
    hf.table(A, migration=Migration(after=(B,)))
    with pytest.raises(MigrationFailed):
        hf.table(B, migration=Migration(expand=lambda step: Fatal("no")))
    assert hf.migrations().status("A").state == "waiting"
    assert hf.migrations().wait(timeout=0) is False
    hf.table(B, migration=Migration())
    assert hf.migrations().status("A").state == "idle"


def test_migrations_that_wait_for_each_other_are_refused_and_named(opened: Open) -> None:
    of_version_1(opened)
    A, B, C = models(2)
    hf = opened()
    hf.table(A, migration=Migration(after=(B,)))
    hf.table(B, migration=Migration(after=(C,)))
    with pytest.raises(InvalidArgument, match="C -> A -> B -> C"):
        hf.table(C, migration=Migration(after=("A",)))
    with pytest.raises(InvalidArgument, match="C -> C"):
        hf.table(C, migration=Migration(after="C"))  # type: ignore[arg-type]
    hf.table(C, migration=Migration())
    assert [one.state for one in hf.migrations()] == ["idle"] * 3
