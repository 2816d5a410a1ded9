"""The cases of its RocksDB store alone that concern tables here: what is kept, on a real disk too."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import HoldfastError, ListEdit, Store
from holdfast.table import backup_table, restore_table
from holdfast.testing import SimClock, SimFiles
from tests.table.parity.asking import MODES, Open, past_of
from tests.table.parity.models import Complex, Mail, Sample, Simple, sample

Reopen = Callable[..., Store]


def opened(store: Store, model: Any, mode: dict[str, bool]) -> Any:
    table: Any = store.table(model, **mode)  # type: ignore[arg-type]
    return table


def test_a_table_that_nobody_opens_keeps_its_records(reopen: Reopen, mode: dict[str, bool]) -> None:
    with reopen() as store:
        key = opened(store, Simple, mode).add(Simple()).key
    with reopen() as store:
        opened(store, Mail, mode).add(Mail(email="a@b.c"))
        assert store.tables() == ["Mail", "Simple"]
    with reopen() as store:
        assert store.table(Simple).get(key) is not None


def test_a_list_whose_items_move_is_read_as_it_was(open_table: Open) -> None:
    table = open_table(Sample)
    added = table.add(sample(names=["a", "b", "c"]))
    table.change(added.key, {"names": ListEdit(remove=["a"], insert={0: "zero"})})
    assert table.get(added.key).names == ["zero", "b", "c"]
    with past_of(table):
        assert table.get(added.key, as_of=added.version).names == ["a", "b", "c"]


def test_a_list_of_updates_that_is_kept_from_now_on_has_all_that_was(reopen: Reopen, mode: dict[str, bool]) -> None:
    with reopen() as store:
        table = opened(store, Simple, mode)
        key = table.add(Simple()).key
        version = table.change(key, {"value": "haha2"}).version
    with reopen() as store:
        table = opened(store, Simple, MODES["updates"])
        assert [one.version for one in table.update_history()] == [version, table.get(key).created]
    with reopen() as store:
        assert len(opened(store, Simple, {}).update_history()) == 2


def test_a_change_of_which_one_part_may_not_be_does_nothing(open_table: Open) -> None:
    table = open_table(Complex)
    fields: Any = Complex
    key = table.add(Complex(texts={"a": "b"})).key
    before, end = table.get(key), table.log.end
    with pytest.raises(HoldfastError):
        table.change(key, {fields.texts["a"]: "c", fields.multi.as_(str): None})
    assert (table.get(key), table.log.end) == (before, end)


def test_a_scan_is_not_disturbed_by_what_is_written_meanwhile(open_table: Open) -> None:
    table = open_table(Sample)
    table.add_many([sample(number) for number in range(3)])
    reading = iter(table.scan())
    first = next(reading)
    table.add(sample(9))
    assert [first.number, *(record.number for record in reading)] == [0, 1, 2]


def test_closing_twice_is_closing_once(store: Store, mode: dict[str, bool]) -> None:
    opened(store, Simple, mode).add(Simple())
    store.close()
    store.close()


def test_a_restored_backup_has_the_record_and_its_two_versions(
    store: Store, mode: dict[str, bool], files: SimFiles, clock: SimClock
) -> None:
    table = opened(store, Simple, mode)
    key = table.add(Simple(value="haha1")).key
    table.change(key, {"value": "haha2"})
    report = backup_table(table, "data/backup.hftable", files=files)
    other = holdfast.open("other", files=files, clock=clock, background=False)
    restore_table(other, report.path, model=Simple, files=files)
    restored: Any = other.table(Simple)
    assert [record.value for record in restored.scan()] == [Simple(value="haha2")]
    assert len(restored.changes([key])[0].versions) == 2


def test_on_a_real_disk_all_modes_keep_what_they_have(tmp_path: Path, mode: dict[str, bool]) -> None:
    with holdfast.open(tmp_path / "data") as store:
        table = opened(store, Sample, mode)
        added = table.add(sample(1, value=3))
        table.change(added.key, {"value": 4})
    with holdfast.open(tmp_path / "data") as store:
        table = store.table(Sample)
        fields: Any = Sample
        assert [record.value.value for record in table.scan(fields.value == 4)] == [4]
        with past_of(table):
            assert [one.value.value for one in table.scan(fields.value == 3, as_of=added.version)] == [3]
