"""A new field gets its default from a function: once for each record, and not at each reading."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest

from holdfast.table import Index, Model, field
from holdfast.table.migration import Migration, MigrationNeeded, each_row
from tests.table.migration.opening import Opened

Open = Callable[..., Opened]
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def visit_1() -> Any:
    class Visit(Model, id=3, version="1"):
        name: str = field(1)

    return Visit


def visit_2() -> Any:
    """`seen` is another time whenever it is made."""
    ticks = count()

    class Visit(Model, id=3, version="2"):
        name: str = field(1)
        seen: datetime = field(2, default_factory=lambda: LONG_AGO + timedelta(seconds=next(ticks)))
        __indexes__ = (Index("seen"),)

    return Visit


def visited(hf: Opened) -> tuple[list[bytes], int]:
    table = hf.table(visit_1(), keep_all_versions=True)
    return [table.add({"name": name}).key for name in "abc"], table.last_version


def test_without_a_migration_the_table_is_not_opened(opened: Open) -> None:
    visited(opened())
    with pytest.raises(MigrationNeeded, match="has a default from a function"):
        opened().table(visit_2())


def test_each_record_keeps_what_was_made_for_it(opened: Open) -> None:
    keys, _ = visited(opened())
    Visit = visit_2()
    migration = Migration(backfill=each_row(lambda found: Visit(name=found.old.name)))
    table = opened().table(Visit, migration=migration)
    for _ in ("migrated", "opened again"):
        seen = [table.get(key).seen for key in keys]
        assert len({*seen}) == 3 and seen == [table.get(key).seen for key in keys]
        assert [table.scan(Visit.seen == one).first().key for one in seen] == keys
        Visit = visit_2()
        table = opened().table(Visit)


def test_what_was_never_stored_is_absent_in_the_past_and_in_its_index(opened: Open) -> None:
    keys, then = visited(opened())
    Visit = visit_2()
    hf = opened()
    table = hf.table(Visit, migration=Migration(backfill=each_row(lambda found: Visit(name=found.old.name))))
    assert [row.seen for row in table.scan(as_of=then)] == [None] * 3
    assert list(table.scan(Visit.seen >= LONG_AGO, as_of=then)) == []
    before = hf.entries("index", "historic_index")
    table.rebuild()
    assert hf.entries("index", "historic_index") == before
    assert [row.key for row in table.scan(order=["seen"])] == keys


def test_a_new_object_still_gets_its_default() -> None:
    Visit = visit_2()
    assert Visit.decode(Visit(name="a").encode()).seen is not None
    assert Visit.decode(visit_1()(name="a").encode()).seen is None
    assert Visit(name="a").seen is not None and Visit.from_dict({"name": "a"}).seen is not None
