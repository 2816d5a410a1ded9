"""Durable progress of a migration, in `migration.json` of the table's folder, so that it resumes after a crash.

`migration.json` is replaced as a whole. In the state `idle` there is nothing to do, and the rest is history.
"""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holdfast.base.checked_json import decode_checked, replace_checked
from holdfast.base.errors import Corrupt, NewerFormat
from holdfast.base.files import Files, read_file, translate_os_errors
from holdfast.table.migration.compatibility import IndexWork
from holdfast.table.migration.phases import Phase
from holdfast.table.migration.step_context import Cursor
from holdfast.table.storage.schema_history import NEVER

__all__ = ["FILE", "STATES", "AuditEntry", "Progress", "ProgressFile"]

FILE = "migration.json"
_FORMAT = 1
STATES = ("idle", "running", "paused", "cancelled", "failed", "waiting")


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An event of a migration."""

    at: int
    """Nanoseconds since 1970."""
    event: str
    """Started, Begun, Partial, Retry, Done, Indexed, Ingested, Paused, Resumed, Cancelled, Failed, Abandoned or
    Completed."""
    phase: str = ""
    text: str = ""


@dataclass(slots=True)
class Progress:
    """Progress of a migration."""

    name: str = ""
    state: str = "running"
    phase: Phase = Phase.EXPAND
    indexing: bool = False
    """In the backfill: whether the user's function is done, and indexes are being filled."""
    cursor: Cursor = None
    attempts: int = 0
    processed: int = 0
    total: int | None = None
    started: int = 0
    since: int = 0
    """The table's version when the phase began."""
    wrote: bool = False
    """Whether records or indexes of the old definition may have been changed: then only the target can be opened."""
    unique_since: int = NEVER
    """The table's version when the fields that become unique were completely filled; `NEVER` before that."""
    ingested: bool = False
    """Whether indexes that are built elsewhere were ingested."""
    error: str = ""
    old: dict[str, Any] | None = None
    target: dict[str, Any] = field(default_factory=dict)
    work: IndexWork = field(default_factory=IndexWork)
    needed: bool = True
    """Whether records may not suit the new model, so that the user had to give a migration."""
    audit: list[AuditEntry] = field(default_factory=list)

    @property
    def unfinished(self) -> bool:
        """Return whether the migration is not complete; also if it is paused, cancelled or failed."""
        return self.state != "idle"


class ProgressFile:
    """The file of one table's progress."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._folder = folder
        self.path = folder / FILE

    def read(self) -> Progress | None:
        """Return the saved progress; None if there never was a migration. Raises `Corrupt` or `NewerFormat`."""
        with translate_os_errors("reading the migration in", self._folder):
            try:
                raw = read_file(self._files, self.path)
            except (FileNotFoundError, NotADirectoryError):
                return None
        try:
            return _decoded(decode_checked(raw))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise Corrupt(
                f"{str(self.path)!r} cannot be read ({type(error).__name__}: {error}): restore it from a backup",
                str(self.path),
            ) from error

    def keep(self, progress: Progress) -> None:
        """Save the progress; durable when this returns."""
        with translate_os_errors("keeping the migration in", self._folder):
            self._files.make_dirs(self._folder)
            replace_checked(self._files, self.path, _encoded(progress))


def _encoded(progress: Progress) -> dict[str, Any]:
    written = asdict(progress)
    cursor = progress.cursor
    written["cursor"] = {"bytes": b64encode(cursor).decode()} if isinstance(cursor, bytes) else cursor
    return {"format": _FORMAT, **written}


def _decoded(written: Mapping[str, Any]) -> Progress:
    values = dict(written)
    form = values.pop("format")
    if form != _FORMAT:
        raise NewerFormat(
            f"the format {form} of this migration is not known: open the store with a newer version of Holdfast"
        )
    if values["state"] not in STATES:
        raise ValueError(f"there is no state {values['state']!r}")
    cursor = values["cursor"]
    values["cursor"] = b64decode(cursor["bytes"], validate=True) if isinstance(cursor, dict) else cursor
    values["phase"] = Phase(values["phase"])
    work = values["work"]
    lists: Any = {name: tuple(one) if isinstance(one, list) else one for name, one in work.items()}
    values["work"] = IndexWork(**lists)
    values["audit"] = [AuditEntry(**entry) for entry in values["audit"]]
    for name, kind in (("attempts", int), ("processed", int), ("since", int), ("target", dict), ("error", str)):
        if not isinstance(values[name], kind):
            raise TypeError(f"{name} is {values[name]!r}")
    return Progress(**values)
