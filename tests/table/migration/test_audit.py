"""What happened is remembered and counted."""

from collections.abc import Callable

import pytest

from holdfast.table.migration import Fatal, Migration, MigrationFailed, Partial, Retry, Step, Success
from tests.table.migration.models import person_2
from tests.table.migration.opening import Opened
from tests.table.migration.test_phases import aged, filled

Open = Callable[..., Opened]


def counted(hf: Opened) -> dict[str, float]:
    return {
        sample.name.removeprefix("holdfast_migration_").removesuffix("_total"): sample.value  # type: ignore[misc]
        for sample in hf.metrics.collect()
        if sample.name.startswith("holdfast_migration_") and ("table", "Person") in sample.labels
    }


def test_each_call_of_a_phase_is_counted(opened: Open) -> None:
    filled(opened())

    def expand(step: Step) -> Success | Retry:
        return Retry() if step.attempt == 1 else Success()

    def verify(step: Step) -> Success | Partial:
        return Partial(1) if step.cursor is None else Success()

    hf = opened()
    hf.table(person_2(), migration=Migration(expand=expand, verify=verify))
    assert counted(hf) == {"started": 6, "retries": 1, "partials": 1, "completed": 1, "failed": 0}


def test_failures_are_counted(opened: Open) -> None:
    filled(opened())
    hf = opened()
    with pytest.raises(MigrationFailed):
        hf.table(person_2(), migration=Migration(expand=lambda step: Fatal("no")))
    assert counted(hf) == {"started": 1, "retries": 0, "partials": 0, "completed": 0, "failed": 1}
    assert [(one.event, one.phase) for one in hf.migrations().audit("Person")] == [
        ("Started", "Expand"),
        ("Begun", "Expand"),
        ("Failed", "Expand"),
    ]


def test_only_the_last_entries_are_kept(opened: Open) -> None:
    filled(opened())
    Person = person_2()
    hf = opened()
    hf.table(Person, migration=Migration(backfill=aged(Person), audit_entries=3))
    events = [one.event for one in hf.migrations().audit("Person")]
    assert len(events) == 3 and events[-1] == "Completed"
    hf = opened()
    assert [one.event for one in hf.migrations().audit("Person")] == events, "also when it is opened again"


def test_entries_are_in_order_and_tell_the_versions(opened: Open) -> None:
    filled(opened())
    hf = opened()
    hf.table(person_2(), migration=Migration())
    audit = hf.migrations().audit("Person")
    assert [one.at for one in audit] == sorted(one.at for one in audit)
    assert audit[0].text == "from version 1.0 to 2.0"
    assert hf.migrations().audit("Nobody") == []
