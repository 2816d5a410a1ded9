"""A migration goes through its phases, and what they say is done."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.base.errors import Corrupt, InvalidArgument
from holdfast.table.errors import ValidationFailed
from holdfast.table.migration import (
    Fatal,
    Migration,
    MigrationFailed,
    MigrationNeeded,
    Partial,
    Retry,
    Step,
    Success,
    each_row,
)
from holdfast.table.model.fields import field
from holdfast.table.model.model import Model
from holdfast.table.storage.row_codec import EventKind, decode_event
from holdfast.testing import SimClock
from tests.table.internals import registry_of
from tests.table.migration.models import person_1, person_2
from tests.table.migration.opening import Opened

Open = Callable[..., Opened]
PHASES = ("expand", "backfill", "verify", "contract")


def filled(hf: Opened, count: int = 5, **settings: Any) -> list[bytes]:
    """The keys of some persons of the first version."""
    Person = person_1()
    table = hf.table(Person, **settings)
    return [table.add(Person(name=f"n{number}", age=str(number))).key for number in range(count)]


def aged(Person: Any) -> Any:
    """Writes the age of each as a number."""
    return each_row(lambda row: Person(name=row.old.name, age=int(row.old.age), tags=row.old.tags), limit=2)


def test_a_table_with_the_same_model_opens_as_it_is(opened: Open) -> None:
    keys, calls = filled(opened()), []
    hf = opened()
    table = hf.table(person_1(), on_version_change=lambda *change: calls.append(change))
    assert table.get(keys[0]).age == "0"
    assert not calls and [one.state for one in hf.migrations()] == ["idle"]


def test_a_new_table_and_a_safe_change_are_told(opened: Open) -> None:
    told: list[tuple[Any, Any]] = []

    class More(Model, id=1, version="1.1"):
        name: str = field(1)
        age: str = field(2)
        tags: set[str] = field(3, default_factory=set)
        city: str = field(4, default="Utrecht")
        __indexes__ = person_1().__indexes__

    More.__spec__.name = "Person"
    key = None
    with opened() as hf:
        Person = person_1()
        table = hf.table(Person, on_version_change=lambda old, new: told.append((old, new)))
        key = table.add(Person(name="a", age="1")).key
    hf = opened()
    table = hf.table(More, on_version_change=lambda old, new: told.append((old, new)))
    assert table.get(key).city == "Utrecht"
    (nothing, first), (before, second) = told
    assert nothing is None and first["version"] == "1.0"
    assert before == first and second["version"] == "1.1"
    assert hf.meta("Person")["definition"]["version"] == "1.1"


def test_what_is_told_may_fail_and_is_told_again(opened: Open) -> None:
    def refuse(old: Any, new: Any) -> None:
        raise RuntimeError("not today")

    with pytest.raises(RuntimeError, match="not today"):
        opened().table(person_1(), on_version_change=refuse)
    told: list[Any] = []
    opened().table(person_1(), on_version_change=lambda old, new: told.append(old))
    assert told == [None]


def test_without_a_migration_nothing_is_changed(opened: Open) -> None:
    keys = filled(opened())
    hf = opened()
    before = hf.entries("table", "index")
    with pytest.raises(MigrationNeeded) as refused:
        hf.table(person_2())
    assert refused.value.reasons == ("field 'age' was str and is int: its values must be written again",)
    assert hf.entries("table", "index") == before and hf.meta("Person")["definition"]["version"] == "1.0"
    assert hf.table(person_1()).get(keys[1]).age == "1"


def test_phases_come_in_order_and_see_what_they_need(opened: Open) -> None:
    filled(opened())
    calls: list[tuple[str, Any, int]] = []

    def note(step: Step) -> Success:
        calls.append((step.phase, step.cursor, step.attempt))
        assert step.old.__spec__.version == "1.0" and step.table.model.__spec__.version == "2.0"
        return Success()

    opened().table(person_2(), migration=Migration(note, note, note, note))
    assert calls == [("Expand", None, 1), ("Backfill", None, 1), ("Verify", None, 1), ("Contract", None, 1)]


def test_records_are_written_anew_and_the_past_stays(opened: Open) -> None:
    hf = opened()
    keys = filled(hf, keep_all_versions=True)
    registry_of(hf).open_tables["Person"].delete(keys[3])
    before = registry_of(hf).open_tables["Person"].last_version
    Person = person_2()
    hf = opened()
    table = hf.table(Person, migration=Migration(backfill=aged(Person)))
    assert [table.get(key, include_deleted=True).age for key in keys] == [0, 1, 2, 3, 4]
    assert table.get(keys[3]) is None, "what was deleted stays so"
    assert table.get(keys[0], as_of=before).age is None, "it was a text then"
    assert table.get(keys[0], as_of=before).name == "n0"
    assert hf.meta("Person")["definition"]["version"] == "2.0"


def test_what_a_migration_writes_are_changes_in_the_log(opened: Open) -> None:
    filled(opened(), count=3)
    Person = person_2()
    table = opened().table(Person, migration=Migration(backfill=aged(Person)))
    events = [decode_event(record.payload) for record in table.log.read()]
    assert [event.kind for event in events] == [EventKind.ADD] * 3 + [EventKind.CHANGE] * 3
    assert {event.fields for event in events[3:]} == {(2,)}


@pytest.mark.parametrize("history", [False, True])
def test_a_rebuild_from_the_log_gives_what_the_migration_gave(opened: Open, history: bool) -> None:
    filled(opened(), keep_all_versions=history)
    Person = person_2()
    hf = opened()
    table = hf.table(Person, migration=Migration(backfill=aged(Person)))
    families = ("table", "index", "historic_table", "historic_index")
    before = hf.entries(*families)
    table.rebuild()
    assert hf.entries(*families) == before
    assert opened().table(Person).get(before[0][1][4:]).age == 0


@pytest.mark.parametrize("given", PHASES)
def test_a_phase_that_is_not_given_is_a_success(opened: Open, given: str) -> None:
    filled(opened())
    called: list[str] = []
    hooks: dict[str, Any] = {given: lambda step: called.append(step.phase)}
    hf = opened()
    hf.table(person_2(), migration=Migration(**hooks))
    assert called == [given.capitalize()]
    assert hf.migrations().status("Person").state == "idle"


@pytest.mark.parametrize("phase", PHASES)
def test_a_partial_phase_is_called_again_with_its_cursor(opened: Open, phase: str) -> None:
    filled(opened())
    cursors: list[Any] = []
    outcomes = [Partial(b"\0\xff"), Partial("text"), Partial(7), Success()]

    def hook(step: Step) -> Any:
        cursors.append((step.cursor, step.attempt))
        return outcomes.pop(0)

    hooks: dict[str, Any] = {phase: hook}
    opened().table(person_2(), migration=Migration(**hooks))
    assert cursors == [(None, 1), (b"\0\xff", 1), ("text", 1), (7, 1)]


@pytest.mark.parametrize("phase", PHASES)
def test_a_phase_may_be_tried_again_after_a_while(opened: Open, phase: str) -> None:
    clock = SimClock()
    filled(opened(clock=clock))
    seen: list[tuple[Any, int, float]] = []

    def hook(step: Step) -> Any:
        seen.append((step.cursor, step.attempt, clock.monotonic()))
        return Retry("here", after=60) if len(seen) < 3 else Success()

    hooks: dict[str, Any] = {phase: hook}
    opened(clock=clock).table(person_2(), migration=Migration(**hooks))
    assert [one[:2] for one in seen] == [(None, 1), ("here", 2), ("here", 3)]
    assert seen[1][2] - seen[0][2] >= 60 and seen[2][2] - seen[1][2] >= 60


def test_a_phase_is_tried_so_often_and_no_more(opened: Open) -> None:
    filled(opened())
    hf = opened()
    with pytest.raises(MigrationFailed, match="Expand of 'Person' did not succeed in 1 attempts"):
        hf.table(person_2(), migration=Migration(expand=lambda step: Retry(), max_attempts=1))
    assert hf.migrations().status("Person").state == "failed"


@pytest.mark.parametrize("phase", PHASES)
def test_a_fatal_phase_fails_the_opening_and_is_called_again_by_the_next(opened: Open, phase: str) -> None:
    keys = filled(opened())
    Person = person_2()
    called: list[str] = []
    hooks: dict[str, Any] = {one: lambda step: called.append(step.phase) for one in PHASES}
    hooks[phase] = lambda step: Fatal("the moon is full")
    hf = opened()
    with pytest.raises(MigrationFailed, match="the moon is full"):
        hf.table(Person, migration=Migration(**hooks))
    assert called == [one.capitalize() for one in PHASES[: PHASES.index(phase)]]
    hooks[phase] = aged(Person)
    called.clear()
    table = opened().table(Person, migration=Migration(**hooks))
    assert called == [one.capitalize() for one in PHASES[PHASES.index(phase) + 1 :]]
    assert table.get(keys[4]).age == 4


def test_after_a_failure_the_same_store_can_try_again(opened: Open) -> None:
    filled(opened())
    Person = person_2()
    hf = opened()
    with pytest.raises(MigrationFailed):
        hf.table(Person, migration=Migration(backfill=lambda step: Fatal("no")))
    table = hf.table(Person, migration=Migration(backfill=aged(Person)))
    assert sorted(table.get(key[4:]).age for _, key, _ in hf.entries("table")) == [0, 1, 2, 3, 4]


def test_what_a_phase_raises_comes_out_as_it_is(opened: Open) -> None:
    filled(opened())
    with pytest.raises(ZeroDivisionError):
        opened().table(person_2(), migration=Migration(verify=lambda step: Partial(1 // 0)))


def test_what_a_phase_returns_is_checked(opened: Open) -> None:
    filled(opened())
    with pytest.raises(InvalidArgument, match="Verify returned 'fine'"):
        opened().table(person_2(), migration=Migration(verify=lambda step: "fine"))  # type: ignore[arg-type,return-value]
    with pytest.raises(InvalidArgument, match="cursor of Verify"):
        opened().table(person_2(), migration=Migration(verify=lambda step: Partial(1.5)))  # type: ignore[arg-type]


def test_what_is_put_must_suit_the_new_model(opened: Open) -> None:
    filled(opened())
    Person = person_2()
    with pytest.raises(ValidationFailed, match="age"):
        opened().table(Person, migration=Migration(backfill=each_row(lambda row: {"name": "x", "age": "old"})))


def test_final_fields_may_be_written_anew_and_records_added(opened: Open) -> None:
    class Note(Model, id=5, version="1.0"):
        text: str = field(1, final=True)

    First = Note
    with opened() as hf:
        key = hf.table(First).add(First(text="hello")).key

    class Note(Model, id=5, version="2.0"):  # type: ignore[no-redef]
        text: str = field(1, final=True, min_length=7)

    Second: Any = Note

    def lengthen(step: Step) -> None:
        step.put(key, Second(text="hello world"))
        step.put(bytes(16), {"text": "another"})

    table = opened().table(Second, migration=Migration(expand=lengthen))
    assert table.get(key).text == "hello world" and table.get(bytes(16)).text == "another"


def test_a_record_that_is_as_it_is_to_be_is_not_written(opened: Open) -> None:
    filled(opened())
    Person = person_2()
    seen: list[int] = []

    def twice(step: Step) -> None:
        for _ in range(2):
            step.put(b"k" * 16, Person(name="x", age=1))
            step.flush()
            seen.append(step.processed)

    opened().table(Person, migration=Migration(backfill=aged(Person), contract=twice))
    assert seen == [1, 1]


def test_rows_leave_out_what_the_phase_has_written(opened: Open) -> None:
    filled(opened())
    Person = person_2()
    seen: list[list[int]] = []

    def backfill(step: Step) -> Any:
        rows = step.rows(None, limit=2)
        seen.append([int(row.old.age) for row in rows])
        step.put_all((row.key, Person(name=row.old.name, age=int(row.old.age))) for row in rows)
        return Partial() if rows else Success()

    opened().table(Person, migration=Migration(backfill=backfill))
    assert seen == [[0, 1], [2, 3], [4], []]


def test_a_field_that_is_gone_is_named_by_the_change(opened: Open) -> None:
    class Note(Model, id=5, version="1.0"):
        text: str = field(1)
        extra: str = field(2)

    First = Note
    opened().table(First).add(First(text="a", extra="b"))

    class Note(Model, id=5, version="2.0"):  # type: ignore[no-redef]
        text: str = field(1)

    Second: Any = Note
    table = opened().table(Second, migration=Migration(contract=each_row(lambda row: row.new)))
    (_, change) = [decode_event(record.payload) for record in table.log.read()]
    assert change.fields == (2,) and change.image == Second(text="a").encode()


def test_progress_that_cannot_be_understood_fails_promptly(opened: Open) -> None:
    filled(opened(disk=True))
    hf = opened(disk=True)
    with pytest.raises(MigrationFailed):
        hf.table(person_2(), migration=Migration(verify=lambda step: Fatal("no")))
    file = hf.path / "tables" / "Person" / "migration.json"
    for damage in (b"{", b"[]", b"{}", file.read_bytes().replace(b'"Verify"', b'"Vrfy"', 1)):
        file.write_bytes(damage)
        hf = opened(disk=True)
        with pytest.raises(Corrupt, match=r"migration\.json"):
            hf.table(person_2(), migration=Migration())


def test_counts_of_a_migration_are_from_1_up() -> None:
    for wrong in ({"audit_entries": 0}, {"max_attempts": 0}):
        with pytest.raises(InvalidArgument, match=f"{next(iter(wrong))} must be an int from 1 up"):
            Migration(**wrong)  # type: ignore[arg-type]
