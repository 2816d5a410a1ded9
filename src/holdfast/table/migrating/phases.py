"""Phases of a migration, each a user's function that is called with a `Step`, and the outcomes that it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from holdfast.base.clock import Duration, duration_ns
from holdfast.base.errors import InvalidArgument
from holdfast.table.migrating.step import Cursor, Found, Step
from holdfast.table.model import Model

__all__ = [
    "HOOKS",
    "Fatal",
    "Hook",
    "Migration",
    "Outcome",
    "Partial",
    "Phase",
    "Retry",
    "Success",
    "VersionChange",
    "each_row",
    "outcome_of",
]


class Phase(StrEnum):
    """Phases of a migration, in order."""

    EXPAND = "Expand"
    """Make room: write what the new model needs beside what the old one has."""
    BACKFILL = "Backfill"
    """Write the records anew; afterwards indexes are filled, without a word of the user's."""
    VERIFY = "Verify"
    CONTRACT = "Contract"
    """Take away what only the old model needed."""
    FINALISE = "Finalise"
    """Our own: the new definition is kept, what nobody asks for is deleted."""


HOOKS = (Phase.EXPAND, Phase.BACKFILL, Phase.VERIFY, Phase.CONTRACT)


@dataclass(frozen=True, slots=True)
class Success:
    """The phase is complete."""


@dataclass(frozen=True, slots=True)
class Partial:
    """A part is done: call again, with this cursor. The cursor is durable."""

    cursor: Cursor = None


@dataclass(frozen=True, slots=True)
class Retry:
    """It did not succeed: call again after a while, with this cursor."""

    cursor: Cursor = None
    after: Duration = 0


@dataclass(frozen=True, slots=True)
class Fatal:
    """It cannot succeed: the migration fails, and the table refuses requests."""

    reason: str


Outcome = Success | Partial | Retry | Fatal
Hook = Callable[[Step], Outcome | None]
"""A phase's function; None means success."""
VersionChange = Callable[[dict[str, Any] | None, dict[str, Any]], object]
"""Is told when a table begins to have a definition: the old description, None for a new table, and the new one."""


@dataclass(frozen=True, slots=True)
class Migration:
    """How the records of a table become records of a new model.

    A phase that is not given is a success. A phase may be called again for what it has done already, if a crash came
    before its cursor was kept: what it puts must be the same then.
    """

    expand: Hook | None = None
    backfill: Hook | None = None
    verify: Hook | None = None
    contract: Hook | None = None
    after: tuple[str | type[Model], ...] = ()
    """Models, or their names, whose tables must be open and migrated first."""
    max_attempts: int = 5
    """How often a phase may be called without progress."""
    name: str = ""
    audit_entries: int = 100
    """How many audit entries are kept."""
    external_indexes: bool = False
    """Indexes are built elsewhere, and handed over with `Migrations.ingest`: the migration waits for that."""

    def __post_init__(self) -> None:
        given: Any = self.after
        if isinstance(given, str | type):
            object.__setattr__(self, "after", (given,))
        _check_count("max_attempts", self.max_attempts)
        _check_count("audit_entries", self.audit_entries)

    @property
    def dependencies(self) -> tuple[str, ...]:
        """Return the names of the tables that must be migrated first."""
        return tuple(one if isinstance(one, str) else one.__name__ for one in self.after)

    def hook(self, phase: Phase) -> Hook | None:
        """The function of a phase."""
        hooks = {
            Phase.EXPAND: self.expand,
            Phase.BACKFILL: self.backfill,
            Phase.VERIFY: self.verify,
            Phase.CONTRACT: self.contract,
        }
        return hooks.get(phase)


def outcome_of(phase: Phase, given: Any) -> Outcome:
    """Return what a phase's function returned, checked."""
    if given is None:
        return Success()
    if not isinstance(given, Success | Partial | Retry | Fatal):
        raise InvalidArgument(f"{phase} returned {given!r}: return Success(), Partial(...), Retry(...) or Fatal(...)")
    if isinstance(given, Partial | Retry) and not isinstance(given.cursor, bytes | str | int | None):
        raise InvalidArgument(f"the cursor of {phase} is {given.cursor!r}: it must be bytes, text, an int or None")
    if isinstance(given, Retry):
        duration_ns(given.after, "after")
    return given


def each_row(write: Callable[[Found], Any], *, limit: int = 500) -> Hook:
    """Return a phase that visits all records, also deleted ones, and puts what `write` returns; None skips one."""

    def phase(step: Step) -> Outcome:
        rows = step.rows(limit=limit)
        step.put_all(_written(write, rows))
        return Partial(rows[-1].key) if rows else Success()

    return phase


def _written(write: Callable[[Found], Any], rows: Iterable[Found]) -> Iterable[tuple[bytes, Any]]:
    for row in rows:
        record = write(row)
        if record is not None:
            yield row.key, record


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InvalidArgument(f"{name} must be an int from 1 up, not {value!r}")
