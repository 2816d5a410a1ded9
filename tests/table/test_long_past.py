"""Does a scan of the past cost what there was then, and not all that has happened since?"""

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast import Store
from holdfast.table.operations import Change
from tests.table.following import Item, Items, filled, table_of
from tests.table.internals import ENTRIES_A_RECORD, LONG_PAST, state_of

FIELDS: Any = Item


@pytest.fixture
def table(store: Store) -> Items:
    return table_of(store, Item, keep_all_versions=True)


def changed(table: Items, keys: list[bytes], times: int) -> None:
    """Let all records have another value so often, in turns."""
    for turn in range(times):
        tags = {"a", f"t{turn % 3}"}
        table.write(
            [Change(key, {"value": 1000 * turn + place, "tags": tags}) for place, key in enumerate(keys, start=1)]
        )


def pages(table: Items, **options: Any) -> list[tuple[bytes, Any]]:
    found: list[tuple[bytes, Any]] = []
    cursor = None
    while True:
        scan = table.scan(limit=2, cursor=cursor, **options)
        found += [(record.key, record.value) for record in scan]
        cursor = scan.cursor
        if cursor is None:
            return found


def entries_read(table: Items, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The entries of the past that are read from here on."""
    read: list[bytes] = []
    state = state_of(table)
    scan = state.scan

    def counted(family: str, *given: Any, **options: Any) -> Iterator[tuple[bytes, bytes]]:
        for name, value in scan(family, *given, **options):
            if family == "historic_index":
                read.append(name)
            yield name, value

    monkeypatch.setattr(state, "scan", counted)
    return read


def test_a_scan_of_the_past_does_not_read_all_that_ever_left_the_index(
    table: Items, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = filled(table)
    then = table.last_version
    read = entries_read(table, monkeypatch)
    lengths = []
    for _ in range(3):
        changed(table, keys, 400)
        read.clear()
        assert [record.value.value for record in table.scan(order=["value"], as_of=then)] == [-10, -5, 0, 2, 4]
        lengths.append(len(read))
    assert lengths[1] == lengths[2] <= 1000


@pytest.mark.parametrize(
    "asked",
    [
        {"order": ["value"]},
        {"order": ["-value"]},
        {"where": FIELDS.value > 12_003, "order": ["value"]},
        {"where": FIELDS.value < 12_004, "order": ["-value"]},
        {"order": ["each(tags)"]},
        {"order": ["-each(tags)"], "include_deleted": True},
    ],
    ids=str,
)
def test_by_the_records_it_finds_what_it_finds_by_the_index(
    table: Items, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]
) -> None:
    keys = filled(table, tuple(range(5)))
    changed(table, keys, 13)
    table.delete(keys[1])
    then = table.last_version
    table.undelete(keys[1])
    changed(table, keys, 20)
    table.delete(keys[3], hard=True)
    found = {}
    for long in (3, 1_000_000):
        monkeypatch.setattr(LONG_PAST, long)
        monkeypatch.setattr(ENTRIES_A_RECORD, 0.1)
        whole = [(record.key, record.value) for record in table.scan(as_of=then, **asked)]
        assert pages(table, as_of=then, **asked) == whole
        found[long] = whole
    assert found[3] == found[1_000_000] != []
