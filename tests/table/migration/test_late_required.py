"""A field becomes required when there are records: a scan of the time before does not rely on it."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.table import Index, Model, TableScanRefused, field
from holdfast.table.migration import Migration, each_row
from tests.table.migration.opening import Opened

Open = Callable[..., Opened]


def plain() -> Any:
    class Parcel(Model, id=9, version="1"):
        name: str = field(1)

    return Parcel


def weighed() -> Any:
    class Parcel(Model, id=9, version="2"):
        name: str = field(1)
        weight: int = field(2)
        __indexes__ = (Index("weight"),)

    return Parcel


def test_the_order_of_a_field_that_was_not_there_leaves_nobody_out(opened: Open) -> None:
    hf = opened()
    before = hf.table(plain(), keep_all_versions=True)
    for name in "abc":
        before.add({"name": name})
    then, Parcel = before.last_version, weighed()
    weigh = Migration(
        backfill=each_row(lambda found: Parcel(name=found.old.name, weight=ord("z") - ord(found.old.name)))
    )
    table = opened().table(Parcel, migration=weigh)
    for _ in ("migrated", "opened again"):
        assert [row.name for row in table.scan(order=["weight"])] == ["c", "b", "a"]
        assert [row.name for row in table.scan(order=["weight"], as_of=table.last_version)] == ["c", "b", "a"]
        with pytest.raises(TableScanRefused):
            table.scan(order=["weight"], as_of=then)
        found = table.scan(order=["weight"], as_of=then, allow_table_scan=True)
        assert sorted(row.name for row in found) == ["a", "b", "c"]
        table = opened().table(weighed())
