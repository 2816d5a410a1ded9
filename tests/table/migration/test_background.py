"""A migration takes its time: the opening is over, requests wait, and it can be watched and steered."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from holdfast.base.errors import Closed, NotFound
from holdfast.table.migration import (
    Fatal,
    Migration,
    MigrationFailed,
    MigrationPending,
    Partial,
    Retry,
    Step,
    Success,
)
from holdfast.table.model.fields import field
from holdfast.table.model.model import Model
from holdfast.testing import SimClock
from tests.queue.calls import until
from tests.table.migration.models import person_2
from tests.table.migration.opening import Opened
from tests.table.migration.test_phases import aged, filled

Open = Callable[..., Opened]
LONG = 120


class Held:
    """A phase that waits for a word, a part at a time."""

    def __init__(self, then: Any = None) -> None:
        self.began, self.go = threading.Event(), threading.Event()
        self.calls: list[Any] = []
        self._then = then

    def __call__(self, step: Step) -> Any:
        self.calls.append(step.cursor)
        self.began.set()
        assert self.go.wait(LONG)
        if step.cursor is None:
            return Partial("second")
        return Success() if self._then is None else self._then(step)


def background(opened: Open, hook: Any, keys: list[bytes] | None = None) -> tuple[Opened, Any]:
    found = filled(opened(disk=True))
    if keys is not None:
        keys += found
    hf = opened(disk=True, background=True)
    Person = person_2()
    return hf, hf.table(Person, migration=Migration(expand=hook, backfill=aged(Person)), migration_budget=0)


def test_requests_wait_until_the_background_is_done(opened: Open) -> None:
    held, keys = Held(), list[bytes]()
    hf, table = background(opened, held, keys)
    assert held.began.wait(LONG)
    requests: list[Callable[[], object]] = [lambda: table.get(keys[0]), lambda: table.delete(keys[0])]
    for request in requests:
        with pytest.raises(MigrationPending, match=r"hf\.migrations\(\)\.wait\('Person'\)"):
            request()
    (status,) = hf.migrations()
    assert (status.table, status.state, status.phase) == ("Person", "running", "Expand")
    assert hf.migrations().wait("Person", timeout=0.01) is False
    held.go.set()
    assert hf.migrations().wait("Person", timeout=LONG)
    assert table.get(keys[3]).age == 3
    assert [one.state for one in hf.migrations()] == ["idle"]


def test_a_budget_is_used_at_the_opening(opened: Open) -> None:
    clock = SimClock()
    keys = filled(opened(clock=clock))
    calls: list[Any] = []

    def slow(step: Step) -> Any:
        calls.append(step.cursor)
        clock.advance(10)
        return Partial(len(calls)) if len(calls) < 6 else Success()

    Person = person_2()
    hf = opened(clock=clock)
    table = hf.table(Person, migration=Migration(expand=slow, backfill=aged(Person)), migration_budget=25)
    assert len(calls) == 3
    with pytest.raises(MigrationPending):
        table.get(keys[0])
    while hf.step() is not None:
        pass
    assert len(calls) == 6 and table.get(keys[0]).age == 0


def test_without_a_background_waiting_does_the_work(opened: Open) -> None:
    clock = SimClock()
    keys = filled(opened(clock=clock))
    Person = person_2()
    tried: list[int] = []

    def hook(step: Step) -> Any:
        tried.append(step.attempt)
        return Retry(after=100) if step.attempt == 1 else Success()

    hf = opened(clock=clock)
    table = hf.table(Person, migration=Migration(expand=hook, backfill=aged(Person)), migration_budget=1)
    assert tried == [1] and hf.migrations().wait(timeout=5) is False
    assert hf.migrations().wait() is True
    assert tried == [1, 2] and table.get(keys[1]).age == 1


def test_pause_and_resume(opened: Open) -> None:
    held = Held()
    hf, table = background(opened, held)
    assert held.began.wait(LONG)
    assert hf.migrations().pause("Person")
    assert hf.migrations().status("Person").state == "paused"
    held.go.set()
    until(lambda: hf.migrations().status("Person").cursor == "second")
    assert hf.migrations().wait(timeout=0.2) is False
    assert held.calls == [None], "what was under way is finished, and no more"
    with pytest.raises(MigrationPending, match=r"is paused: hf\.migrations\(\)\.resume\('Person'\)"):
        table.get(b"")
    assert not hf.migrations().pause("Person"), "it rests already"
    assert hf.migrations().resume("Person")
    assert hf.migrations().wait(timeout=LONG)
    assert held.calls == [None, "second"]
    assert [one.event for one in hf.migrations().audit("Person")].count("Paused") == 1
    assert not hf.migrations().resume("Person")


def test_a_cancelled_migration_goes_on_at_the_next_opening(opened: Open) -> None:
    held = Held()
    hf, table = background(opened, held)
    assert held.began.wait(LONG)
    assert hf.migrations().cancel("Person")
    held.go.set()
    assert hf.migrations().status("Person").state == "cancelled"
    with pytest.raises(MigrationFailed, match="was cancelled"):
        hf.migrations().wait(timeout=LONG)
    with pytest.raises(MigrationPending, match="was cancelled; open the store again"):
        table.get(b"")
    assert not hf.migrations().resume("Person")
    hf.close()
    assert held.calls == [None]
    Person = person_2()
    hf = opened(disk=True)
    assert hf.migrations().status("Person").state == "cancelled"
    hf.table(Person, migration=Migration(expand=held, backfill=aged(Person)))
    assert held.calls == [None, "second"]
    assert hf.migrations().status("Person").state == "idle"


def test_a_failure_in_the_background_is_told_to_those_who_wait_and_can_be_mended(opened: Open) -> None:
    moon = ["full"]
    held = Held(lambda step: Fatal("the moon is full") if moon else Success())
    hf, table = background(opened, held)
    held.go.set()
    with pytest.raises(MigrationFailed, match="the moon is full"):
        hf.migrations().wait(timeout=LONG)
    with pytest.raises(MigrationPending, match="the moon is full"):
        table.get(b"")
    status = hf.migrations().status("Person")
    assert status.state == "failed" and "the moon is full" in status.error
    moon.clear()
    assert hf.migrations().resume("Person")
    assert hf.migrations().wait(timeout=LONG)
    assert not table.get(b"0" * 16)


def test_closing_ends_the_waiting(opened: Open) -> None:
    held = Held()
    hf, _ = background(opened, held)
    assert held.began.wait(LONG)
    told: list[BaseException] = []

    def wait() -> None:
        try:
            hf.migrations().wait()
        except Closed as error:
            told.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    closer = threading.Thread(target=hf.close)
    closer.start()
    waiter.join(LONG)
    held.go.set()
    closer.join(LONG)
    assert told and not closer.is_alive()
    hf.close()
    assert held.calls == [None]


def test_other_tables_are_served_meanwhile(opened: Open) -> None:
    class Other(Model, id=9, version="1.0"):
        name: str = field(1)

    held = Held()
    hf, _ = background(opened, held)
    assert held.began.wait(LONG)
    table = hf.table(Other)
    assert table.get(table.add(Other(name="x")).key).name == "x"
    held.go.set()
    assert hf.migrations().wait(timeout=LONG)


def test_only_the_thread_of_a_phase_may_use_the_table(opened: Open) -> None:
    refused: list[Exception] = []
    passed: list[Any] = []

    def hook(step: Step) -> None:
        table = step.table
        passed.append(table.get(b"k" * 16))

        def from_elsewhere() -> None:
            try:
                table.get(b"k" * 16)
            except MigrationPending as error:
                refused.append(error)

        thread = threading.Thread(target=from_elsewhere)
        thread.start()
        thread.join()

    filled(opened())
    opened().table(person_2(), migration=Migration(verify=hook))
    assert passed == [None] and len(refused) == 1


def test_a_table_that_is_not_open_cannot_be_steered(opened: Open) -> None:
    hf = opened()
    for call in (hf.migrations().pause, hf.migrations().resume, hf.migrations().cancel, hf.migrations().wait):
        with pytest.raises(NotFound, match="'Nobody' is not open here"):
            call("Nobody")
    assert hf.migrations().wait() is True


def test_a_phase_that_is_stuck_does_not_hold_up_the_others(opened: Open) -> None:
    """Retries of one table leave time for another."""
    clock = SimClock()

    class Other(Model, id=9, version="1.0"):
        name: str = field(1)

    with opened(clock=clock) as hf:
        filled(hf)
        hf.table(Other).add(Other(name="x"))

    class Other(Model, id=9, version="2.0"):  # type: ignore[no-redef]
        name: str = field(1, unique=True)

    hf = opened(clock=clock)
    stuck = Migration(expand=lambda step: Retry(after=3600), max_attempts=100)
    hf.table(person_2(), migration=stuck, migration_budget=0)
    hf.table(Other, migration=Migration(), migration_budget=0)
    while hf.migrations().status("Other").state != "idle":
        due = hf.step()
        assert due == 0.0
    assert hf.migrations().status("Person").state == "running"
