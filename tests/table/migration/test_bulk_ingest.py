"""An index is built elsewhere, of the log alone, and handed over as sorted files."""

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.base.errors import InvalidArgument
from holdfast.log.log import Log
from holdfast.table.migration import (
    BackfillPlan,
    Migration,
    MigrationFailed,
    MigrationPending,
    entries_of,
    ingest,
    plan_of,
    write_sst,
)
from holdfast.table.migration.backfill import active, turn_on
from holdfast.table.migration.compatibility import IndexWork
from holdfast.table.operations import Add, Change
from holdfast.table.storage.row_codec import Event, decode_event
from tests.table.internals import state_of
from tests.table.migration.models import counted_1, counted_2, counted_unique
from tests.table.migration.opening import Opened
from tests.table.migration.test_indexes import ENTRIES, busy

Open = Callable[..., Opened]


def built(plan: BackfillPlan, log: Log, folder: Path, pieces: int = 2) -> dict[str, list[Path]]:
    """What a cluster would do: bring the events of each record together, sort their entries, write files."""
    plan = BackfillPlan.from_dict(json.loads(json.dumps(plan.to_dict())))
    events: dict[bytes, list[Event]] = {}
    for record in log.read(plan.start, plan.position):
        events.setdefault(record.key or b"", []).append(decode_event(record.payload))
    entries = sorted(entry for key, history in events.items() for entry in entries_of(plan, key, history))
    files: dict[str, list[Path]] = {family: [] for family in plan.families}
    for family in plan.families:
        mine = [(name, value) for one, name, value in entries if one == family]
        for piece in range(pieces):
            part = [entry for entry in mine if entry[0][-1] % pieces == piece]
            path = folder / f"{family}-{piece}.sst"
            if write_sst(family, part, path):
                files[family].append(path)
    return files


def waiting(opened: Open, model: Any) -> tuple[Opened, Any]:
    hf = opened(disk=True)
    return hf, hf.table(model, migration=Migration(external_indexes=True))


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("model", [counted_2, counted_unique])
def test_an_index_built_elsewhere_is_the_same_entry_by_entry(
    opened: Open, tmp_path: Path, history: bool, model: Any
) -> None:
    busy(opened(disk=True), 5, history=history, unique_names=True)
    hf, table = waiting(opened, model())
    assert hf.migrations().status("Counted").state == "waiting" and not hf.entries(*ENTRIES)
    with pytest.raises(MigrationPending):
        table.get(b"")
    plan = hf.migrations().plan("Counted")
    assert plan.history == history and plan.position == table.log.end
    assert hf.migrations().ingest("Counted", built(plan, table.log, tmp_path), plan) == 0
    assert hf.migrations().wait()
    ingested = hf.entries(*ENTRIES)
    opened(disk=True).table(counted_1())
    hf = opened(disk=True)
    table = hf.table(model(), migration=Migration())
    assert hf.entries(*ENTRIES) == ingested and len(ingested) > 10
    table.rebuild()
    assert hf.entries(*ENTRIES) == ingested


@pytest.mark.parametrize("history", [False, True])
def test_what_happens_while_it_is_built_is_not_missed(opened: Open, tmp_path: Path, history: bool) -> None:
    """The table is in use: its new indexes are turned on when they are there."""
    hf = opened(disk=True)
    keys = busy(hf, 6, history=history, unique_names=True)
    model = counted_unique()
    hf = opened(disk=True)
    table = hf.table(model, migration=Migration())
    work = IndexWork(build=("count",), build_unique=(1,))
    active(table.engine, work)
    plan = plan_of(table, work)
    files = built(plan, table.log, tmp_path)
    table.change(keys[0], {"count": 77}), table.change(keys[1], {"name": "new"}), table.delete(keys[2], hard=True)
    table.delete(keys[3]) if not table.get(keys[3], include_deleted=True).deleted else table.undelete(keys[3])
    table.add(model(name="late", count=5))
    assert ingest(table, files, plan) == 5
    turn_on(table.engine, work)
    ingested = hf.entries(*ENTRIES)
    table.rebuild()
    assert hf.entries(*ENTRIES) == ingested


def test_a_value_that_changes_hands_in_one_request_has_the_later_owner(opened: Open, tmp_path: Path) -> None:
    First, Unique = counted_1(), counted_unique()
    with opened(disk=True) as hf:
        table = hf.table(First, keep_all_versions=True)
        high = table.add(First(name="x", count=1), key=b"\xff" * 16).key
        table.write([Change(high, {"name": "y"}), Add(First(name="x", count=2), key=bytes(16))])
    hf, table = waiting(opened, Unique)
    plan = hf.migrations().plan("Counted")
    hf.migrations().ingest("Counted", built(plan, table.log, tmp_path, pieces=1), plan)
    assert hf.migrations().wait()
    ingested = hf.entries(*ENTRIES)
    opened(disk=True).table(First)
    hf = opened(disk=True)
    table = hf.table(Unique, migration=Migration())
    assert hf.entries(*ENTRIES) == ingested
    table.rebuild()
    assert hf.entries(*ENTRIES) == ingested


def test_taking_in_may_be_done_again(opened: Open, tmp_path: Path) -> None:
    busy(opened(disk=True), 7, history=True)
    hf, table = waiting(opened, counted_2())
    plan = hf.migrations().plan("Counted")
    files = built(plan, table.log, tmp_path)
    with table.engine.access.gate.passing():
        ingest(table, files, plan)
        once = hf.entries(*ENTRIES)
        ingest(table, files, plan)
    assert hf.entries(*ENTRIES) == once


def test_who_looked_before_sees_what_was_taken_in(opened: Open, tmp_path: Path) -> None:
    busy(opened(disk=True), 7, history=True)
    hf, table = waiting(opened, counted_2())
    plan = hf.migrations().plan("Counted")
    look = state_of(table).first
    assert look("historic_index", b"", b"\xff") is None
    hf.migrations().ingest("Counted", built(plan, table.log, tmp_path), plan)
    assert look("historic_index", b"", b"\xff") is not None


def test_it_waits_across_openings_and_is_safe_once_taken_in(opened: Open, tmp_path: Path) -> None:
    busy(opened(disk=True), 8, history=True)
    hf, table = waiting(opened, counted_2())
    plan = hf.migrations().plan("Counted")
    files = built(plan, table.log, tmp_path)
    hf, table = waiting(opened, counted_2())
    assert hf.migrations().plan("Counted") == plan
    hf.migrations().ingest("Counted", files, plan)
    ingested = hf.entries(*ENTRIES)
    hf, table = waiting(opened, counted_2())
    assert hf.migrations().status("Counted").state == "idle", "nothing to wait for any more"
    assert hf.entries(*ENTRIES) == ingested and ingested


def test_two_records_with_one_unique_value_are_found_when_files_are_written(opened: Open, tmp_path: Path) -> None:
    First = counted_1()
    with opened(disk=True) as hf:
        hf.table(First).add_many([First(name="same", count=1), First(name="same", count=2)])
    hf, table = waiting(opened, counted_unique())
    with pytest.raises(MigrationFailed, match="a value that is to be unique belongs to the records"):
        built(hf.migrations().plan("Counted"), table.log, tmp_path, pieces=1)


def test_two_records_with_one_unique_value_are_found_in_the_tail(opened: Open, tmp_path: Path) -> None:
    hf = opened(disk=True)
    model = counted_unique()
    table = hf.table(model)
    table.add(model(name="a", count=1))
    work = IndexWork(build_unique=(1,))
    active(table.engine, work)
    plan = plan_of(table, work)
    files = built(plan, table.log, tmp_path)
    table.add(model(name="a", count=2))
    with pytest.raises(MigrationFailed, match=r"'name' is to be unique, but .* both have 'a'"):
        ingest(table, files, plan)


def test_a_plan_of_something_else_is_refused(opened: Open, tmp_path: Path) -> None:
    busy(opened(disk=True), 9, history=False)
    hf, _ = waiting(opened, counted_2())
    plan = hf.migrations().plan("Counted")
    for wrong in (
        replace(plan, log=bytes(16)),
        replace(plan, history=True),
        replace(plan, position=plan.position + 1),
        replace(plan, definition={}),
    ):
        with pytest.raises(InvalidArgument):
            hf.migrations().ingest("Counted", {}, wrong)
    with pytest.raises(InvalidArgument, match="'table' is not a family of index entries"):
        hf.migrations().ingest("Counted", {"table": ["x.sst"]}, plan)
    assert hf.migrations().status("Counted").state == "waiting"


def test_files_need_their_entries_sorted(tmp_path: Path) -> None:
    entries: Iterable[tuple[bytes, bytes]] = [(b"b", b""), (b"a", b"")]
    with pytest.raises(InvalidArgument, match="ascending"):
        write_sst("index", entries, tmp_path / "x.sst")
    with pytest.raises(InvalidArgument, match="'model' is not a family of index entries"):
        write_sst("model", [], tmp_path / "y.sst")
    assert write_sst("index", [], tmp_path / "z.sst") == 0 and not (tmp_path / "z.sst").exists()
