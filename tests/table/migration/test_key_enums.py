"""An enum that is part of a key gets another member."""

from collections.abc import Callable
from enum import Enum
from typing import Any

from holdfast.table import Model, field
from tests.table.migration.opening import Opened

Open = Callable[..., Opened]


def event(**severities: int) -> Any:
    Severity = Enum("Severity", severities)  # type: ignore[misc]

    class Event(Model, id=4, version=str(len(severities))):
        severity: Severity = field(1, final=True)
        at: int = field(2, final=True)
        __key__ = ("severity", "at")

    return Event, Severity


def test_an_enum_in_the_key_gets_a_member_between_two_others(opened: Open) -> None:
    Event, severity = event(INFO=1, ERROR=3)
    table = opened().table(Event)
    known = table.add(Event(severity=severity.ERROR, at=5)).key
    Event, severity = event(INFO=1, ERROR=3, WARNING=2)
    table = opened().table(Event)
    assert table.get(known).severity is severity.ERROR
    new = table.add(Event(severity=severity.WARNING, at=9)).key
    assert [row.key for row in table.scan()] == [new, known]
    assert table.scan(Event.severity == severity.ERROR).first().key == known
