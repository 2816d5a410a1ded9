"""A migration is cut off, and goes on where it was."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.base.errors import InvalidArgument
from holdfast.table.migration import (
    Fatal,
    Migration,
    MigrationFailed,
    MigrationNeeded,
    MigrationPending,
    Partial,
    Retry,
    Step,
    Success,
    each_row,
)
from holdfast.testing import SimClock, SimFiles, crash_points
from tests.table.migration.models import counted_1, counted_2, counted_unique, person_1, person_2
from tests.table.migration.opening import Opened
from tests.table.migration.test_phases import PHASES, aged, filled
from tests.tiers import crash_sample

Open = Callable[..., Opened]
STATE = ("table", "index", "unique", "historic_table", "historic_index", "historic_unique")


class Cut(BaseException):
    """The process ends here."""


@pytest.mark.parametrize("phase", PHASES)
def test_a_process_that_ends_between_two_parts_goes_on_at_the_cursor(opened: Open, phase: str) -> None:
    filled(opened())
    calls: list[tuple[str, Any]] = []

    def hook(step: Step) -> Any:
        calls.append((step.phase, step.cursor))
        if step.cursor is None:
            return Partial("one")
        if len(calls) == calls_before_cut:
            raise Cut
        return Success()

    others: dict[str, Any] = {one: lambda step: calls.append((step.phase, step.cursor)) for one in PHASES}
    calls_before_cut = PHASES.index(phase) + 2
    with pytest.raises(Cut):
        opened().table(person_2(), migration=Migration(**{**others, phase: hook}))
    calls.clear()
    calls_before_cut = -1
    hf = opened()
    hf.table(person_2(), migration=Migration(**{**others, phase: hook}))
    rest = [(one.capitalize(), None) for one in PHASES[PHASES.index(phase) + 1 :]]
    assert calls == [(phase.capitalize(), "one"), *rest]
    assert hf.migrations().status("Person").state == "idle"


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("outcome", [Partial("here"), Retry("here", after=3600)])
def test_what_a_phase_asked_for_holds_across_openings(opened: Open, phase: str, outcome: Any) -> None:
    clock = SimClock()
    filled(opened(clock=clock))
    seen: list[tuple[Any, int]] = []

    def hook(step: Step) -> Any:
        seen.append((step.cursor, step.attempt))
        return outcome if len(seen) == 1 else Success()

    migration = Migration(**{phase: hook})  # type: ignore[arg-type]
    hf = opened(clock=clock)
    hf.table(person_2(), migration=migration, migration_budget=0)
    for _ in range(10):
        if seen:
            break
        hf.step()
    assert hf.migrations().status("Person").cursor == "here"
    opened(clock=clock).table(person_2(), migration=migration)
    assert seen == [(None, 1), ("here", 1 if isinstance(outcome, Partial) else 2)]


def test_a_finalisation_that_failed_is_done_again_without_the_phases(opened: Open) -> None:
    keys = filled(opened())
    Person = person_2()
    calls: list[Any] = []
    migration = Migration(expand=lambda step: calls.append(step.phase), backfill=aged(Person))

    def refuse(old: Any, new: Any) -> None:
        raise RuntimeError("not now")

    with pytest.raises(RuntimeError, match="not now"):
        opened().table(Person, migration=migration, on_version_change=refuse)
    assert opened().migrations().status("Person").phase == "Finalise"
    hf = opened()
    table = hf.table(Person, on_version_change=lambda old, new: calls.append((old["version"], new["version"])))
    assert calls == ["Expand", ("1.0", "2.0")], "no phase again, and no migration needed for it"
    assert table.get(keys[2]).age == 2 and hf.meta("Person")["definition"]["version"] == "2.0"


def test_a_migration_under_way_needs_its_functions_again(opened: Open) -> None:
    filled(opened())
    with pytest.raises(MigrationFailed):
        opened().table(person_2(), migration=Migration(verify=lambda step: Fatal("no")))
    with pytest.raises(MigrationNeeded, match="'age' was str"):
        opened().table(person_2())


def test_there_is_a_way_back_while_nothing_was_written(opened: Open) -> None:
    keys = filled(opened())
    with pytest.raises(MigrationFailed):
        opened().table(person_2(), migration=Migration(expand=lambda step: Fatal("no")))
    hf = opened()
    assert hf.table(person_1()).get(keys[1]).age == "1"
    assert hf.migrations().status("Person").state == "idle"
    assert hf.migrations().audit("Person")[-1].event == "Abandoned"


def test_there_is_no_way_back_once_records_were_written(opened: Open) -> None:
    filled(opened())
    Person = person_2()
    migration = Migration(backfill=aged(Person), verify=lambda step: Fatal("no"))
    with pytest.raises(MigrationFailed):
        opened().table(Person, migration=migration)
    with pytest.raises(MigrationNeeded, match=r"a migration to version 2\.0 is in progress \(Verify\)"):
        opened().table(person_1())


def test_there_is_no_way_back_when_the_process_ended_in_the_midst_of_it(opened: Open) -> None:
    keys = filled(opened())
    Person = person_2()

    def hook(step: Step) -> None:
        step.put(keys[0], Person(name="x", age=1))
        step.flush()
        raise Cut

    with pytest.raises(Cut):
        opened().table(Person, migration=Migration(expand=hook))
    with pytest.raises(MigrationNeeded, match=r"is in progress \(Expand\)"):
        opened().table(person_1())
    write = each_row(lambda row: Person(name=row.old.name, age=row.new.age or int(row.old.age)))
    table = opened().table(Person, migration=Migration(backfill=write))
    assert [table.get(key).age for key in keys] == [1, 1, 2, 3, 4], "what was written counts"


def test_the_way_back_from_an_index_leaves_nothing_of_it(opened: Open) -> None:
    Counted, Indexed = counted_1(), counted_2()
    with opened() as hf:
        table = hf.table(Counted)
        for number in range(5):
            table.add(Counted(name="x", count=number))
        before = hf.entries(*STATE)
    with pytest.raises(MigrationFailed):
        opened().table(Indexed, migration=Migration(verify=lambda step: Fatal("no")))
    hf = opened()
    assert len(hf.entries(*STATE)) > len(before), "it was filled already"
    hf.table(Counted)
    assert hf.entries(*STATE) == before


def test_readers_wait_until_the_owner_has_migrated(opened: Open) -> None:
    filled(opened(disk=True))
    Person = person_2()
    with pytest.raises(MigrationNeeded, match="was not opened for writing with this model yet"):
        opened(disk=True, read_only=True).table(Person)
    migration = Migration(backfill=aged(Person), verify=lambda step: Fatal("no"))
    with pytest.raises(MigrationFailed):
        opened(disk=True).table(Person, migration=migration)
    with pytest.raises(MigrationPending, match="is being migrated by its owner"):
        opened(disk=True, read_only=True).table(person_1())
    opened(disk=True).table(Person, migration=Migration())
    assert opened(disk=True, read_only=True).table(Person).engine.access.read_only


def test_an_id_of_another_table_is_refused(opened: Open) -> None:
    filled(opened())
    Other: Any = person_1()
    Other.__spec__.name = "Other"
    with pytest.raises(InvalidArgument, match="the id 1 belongs to the table 'Person'"):
        opened().table(Other)


class Migrating:
    """Records that were there are there after every crash, as the new model has them, and so are its indexes."""

    def __init__(self, old: Any, new: Any, migration: Callable[[Any], Migration | None]) -> None:
        self.old, self.new, self.migration = old, new, migration
        self.clock = SimClock()
        self.names: list[str] = []

    def run(self, files: SimFiles) -> None:
        hf = Opened(Path("/data"), files=files, clock=self.clock)
        table = hf.table(self.old, keep_all_versions=True)
        for number in range(3):
            fields = {"age": str(number)} if "age" in self.old.__spec__.fields else {"count": number, "tags": ["a"]}
            table.add(self.old(name=f"n{number}", **fields))
            self.names.append(f"n{number}")
        hf.close()
        hf = Opened(Path("/data"), files=files, clock=self.clock)
        hf.table(self.new, migration=self.migration(self.new))
        hf.close()

    def check(self, files: SimFiles) -> None:
        with Opened(Path("/data"), files=files, clock=self.clock) as hf:
            table = hf.table(self.new, migration=self.migration(self.new))
            self._check(hf, table)
        with Opened(Path("/data"), files=files, clock=self.clock) as hf:
            self._check(hf, hf.table(self.new))

    def _check(self, hf: Opened, table: Any) -> None:
        rows = [table.get(key[4:]) for _, key, _ in hf.entries("table")]
        assert {row.name for row in rows} >= set(self.names)
        assert all(row.age == int(row.name[1:]) for row in rows if "age" in self.new.__spec__.fields)
        before = hf.entries(*STATE)
        table.rebuild()
        assert hf.entries(*STATE) == before, "the log gives the same"
        assert hf.migrations().status(table.name).state == "idle"


def age_by_ones(Person: Any) -> Migration:
    return Migration(
        expand=lambda step: Partial(1) if step.cursor is None else None,
        backfill=each_row(lambda row: Person(name=row.old.name, age=int(row.old.age)), limit=2),
    )


@pytest.mark.parametrize(
    ("old", "new", "migration"),
    [
        (person_1, person_2, age_by_ones),
        (counted_1, counted_2, lambda model: None),
        (counted_1, counted_unique, lambda model: Migration()),
    ],
)
def test_no_crash_loses_a_record_or_an_entry(old: Any, new: Any, migration: Any) -> None:
    assert (
        crash_sample(lambda: Migrating(old(), new(), migration), seeds=(0,), modes=("dropped", "torn"), every=5) > 100
    )


def test_the_crashes_would_be_noticed_if_syncing_did_nothing() -> None:
    with pytest.raises(Exception, match=r"."):
        crash_points(
            lambda: Migrating(counted_1(), counted_2(), lambda model: None),
            files=lambda seed: SimFiles(seed, lose_syncs=True),
            seeds=(0,),
            modes=("dropped",),
        )
