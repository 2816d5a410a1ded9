"""Phases of a migration, each a user's function that is called with a `Step`, and the outcomes that it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from holdfast.base.clock import Duration, duration_ns
from holdfast.base.errors import InvalidArgument
from holdfast.table.migration.step_context import Cursor, Found, Step
from holdfast.table.model.model import Model

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
    """Add data that the new model needs, next to that of the old one."""
    BACKFILL = "Backfill"
    """Rewrite the records; afterwards indexes and unique values are filled automatically."""
    VERIFY = "Verify"
    CONTRACT = "Contract"
    """Remove data that only the old model needed."""
    FINALISE = "Finalise"
    """Internal, without a user's function: the new definition is saved, and dropped indexes are deleted."""


HOOKS = (Phase.EXPAND, Phase.BACKFILL, Phase.VERIFY, Phase.CONTRACT)


@dataclass(frozen=True, slots=True)
class Success:
    """The phase is complete."""


@dataclass(frozen=True, slots=True)
class Partial:
    """A part is complete: call again, with this cursor. It is saved durably before the next call."""

    cursor: Cursor = None


@dataclass(frozen=True, slots=True)
class Retry:
    """The call did not succeed: call again after `after`, with this cursor; None keeps the present cursor.

    The migration fails after `max_attempts` calls without a `Partial`.
    """

    cursor: Cursor = None
    after: Duration = 0


@dataclass(frozen=True, slots=True)
class Fatal:
    """The phase cannot succeed: the migration fails, and the table refuses requests until it is resumed and done."""

    reason: str


Outcome = Success | Partial | Retry | Fatal
Hook = Callable[[Step], Outcome | None]
"""A phase's function; None means success."""
VersionChange = Callable[[dict[str, Any] | None, dict[str, Any]], object]
"""Called just before a table's new definition is saved, with the old description (None for a new table) and the new.

Not called if the definition is unchanged. May be called again after a crash or a failure."""


@dataclass(frozen=True, slots=True)
class Migration:
    """How the records of a table become records of a new model.

    A phase that is not given counts as success. After a crash a phase may be called again for what it has done since
    its last saved cursor: it must put the same records then.
    """

    expand: Hook | None = None
    backfill: Hook | None = None
    verify: Hook | None = None
    contract: Hook | None = None
    after: tuple[str | type[Model], ...] = ()
    """Models, or their names, whose tables must be open and migrated first."""
    max_attempts: int = 5
    """After this many calls in a row that return `Retry` the migration fails. An exception fails it at once."""
    name: str = ""
    audit_entries: int = 100
    """How many audit entries are kept."""
    external_indexes: bool = False
    """Whether indexes are built elsewhere: the migration waits until they are given to `Migrations.ingest`."""

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
        """Return the function of a phase; None if it has none."""
        hooks = {
            Phase.EXPAND: self.expand,
            Phase.BACKFILL: self.backfill,
            Phase.VERIFY: self.verify,
            Phase.CONTRACT: self.contract,
        }
        return hooks.get(phase)


def outcome_of(phase: Phase, given: Any) -> Outcome:
    """Return the outcome that a phase's function returned; raise `InvalidArgument` if it is not one."""
    if given is None:
        return Success()
    if not isinstance(given, Success | Partial | Retry | Fatal):
        raise InvalidArgument(f"{phase} returned {given!r}: return Success(), Partial(...), Retry(...) or Fatal(...)")
    if isinstance(given, Partial | Retry) and not isinstance(given.cursor, bytes | str | int | None):
        raise InvalidArgument(f"the cursor of {phase} is {given.cursor!r}: it must be bytes, str, int or None")
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
