"""Decision whether a table can be opened with a model, and what must be done first. Changes nothing."""

from dataclasses import dataclass
from typing import Any

from holdfast.table.migration.compatibility import IndexWork, NeedsMigration, NewIndexes, Verdict, judge
from holdfast.table.migration.errors import MigrationNeeded, MigrationPending
from holdfast.table.migration.lenient_decoder import lenient_images
from holdfast.table.migration.phases import Migration, Phase
from holdfast.table.migration.progress import Progress
from holdfast.table.model.model import Model
from holdfast.table.storage.row_codec import Images
from holdfast.table.storage.schema_history import NEVER, NO_SCHEMA_HISTORY, SchemaHistory

__all__ = ["Opening", "decide"]


@dataclass(frozen=True, slots=True)
class Opening:
    """The decision about opening a table."""

    name: str
    verdict: Verdict
    old: dict[str, Any] | None
    new: dict[str, Any]
    migration: Migration | None
    progress: Progress | None
    """The saved progress of the unfinished migration, or of the last one; None if there never was one."""
    past: SchemaHistory
    """The schema history that the new definition does not show."""
    abandoned: IndexWork | None = None
    """What an unfinished migration to another model has begun to build; None if there is no such migration."""

    @property
    def resumes(self) -> bool:
        """Return whether an unfinished migration is resumed."""
        return self.progress is not None and self.progress.unfinished and self.abandoned is None

    @property
    def runs(self) -> bool:
        """Return whether a migration must run before requests are accepted."""
        return self.resumes or isinstance(self.verdict, NewIndexes | NeedsMigration)

    def images(self, images: Images, model: type[Model]) -> Images:
        """Return the codec of this table's records: a lenient one if old records may have values of other types."""
        return lenient_images(images, model) if self.past.retyped else images


def decide(
    name: str,
    old: dict[str, Any] | None,
    new: dict[str, Any],
    migration: Migration | None,
    progress: Progress | None,
    *,
    past: SchemaHistory = NO_SCHEMA_HISTORY,
    read_only: bool = False,
) -> Opening:
    """Decide what must be done to open a table with a model.

    Raises `IncompatibleModel` if the model cannot be used, `MigrationNeeded` if a migration must be given or another
    one has changed records, and `MigrationPending` if the owner is migrating a table that is opened read-only.
    """
    verdict = judge(old, new)
    running = progress if progress is not None and progress.unfinished else None
    if read_only:
        _check_readable(name, verdict, running)
        return Opening(name, verdict, old, new, None, progress, past)
    abandoned: IndexWork | None = None
    if running is not None and running.target != new:
        if running.wrote or running.phase is Phase.FINALISE:
            reason = (
                f"a migration to version {running.target.get('version')} is in progress ({running.phase}), "
                "and has changed records"
            )
            raise MigrationNeeded(f"the table {name!r}: {reason}: open it with that model", name, (reason,))
        abandoned = running.work
    needed = isinstance(verdict, NeedsMigration)
    finishes = running is not None and abandoned is None and running.phase is Phase.FINALISE
    if isinstance(verdict, NeedsMigration) and migration is None and not finishes:
        reasons = "".join(f"\n- {reason}" for reason in verdict.reasons)
        raise MigrationNeeded(
            f"the records of the table {name!r} may not suit this model (version {(old or {}).get('version')} to "
            f"{new.get('version')}):{reasons}\nGive hf.table({name}, migration=Migration(backfill=...)), or change the "
            "model",
            name,
            verdict.reasons,
        )
    if running is not None and abandoned is None:
        needed = needed or running.needed
    going_on = running if abandoned is None else None
    since = _unique_since(past, new, verdict, going_on)
    past = SchemaHistory(past.retyped or needed, _unsealed(past, old, new), since, past.suits_since)
    return Opening(name, verdict, old, new, migration, progress, past, abandoned)


def _unique_since(
    past: SchemaHistory, new: dict[str, Any], verdict: Verdict, running: Progress | None
) -> dict[int, int]:
    """Return by number the versions since which fields are unique, of fields that became unique later."""
    unique = {field["number"] for field in new["fields"] if field.get("unique")}
    since = {number: version for number, version in past.unique_since.items() if number in unique}
    if running is not None:
        return since | dict.fromkeys(running.work.build_unique, running.unique_since)
    if isinstance(verdict, NewIndexes | NeedsMigration):
        return since | dict.fromkeys(verdict.work.build_unique, NEVER)
    return since


def _unsealed(past: SchemaHistory, old: dict[str, Any] | None, new: dict[str, Any]) -> frozenset[int]:
    """Return the numbers of sensitive fields of which the log has plaintext values."""
    if old is None:
        return past.unsealed
    sealed = {field["number"] for field in old["fields"] if field.get("sensitive")}
    used = {field["number"] for field in old["fields"]}.union(old.get("reserved", ()))
    legible = past.unsealed | (used - sealed)
    return legible.intersection(field["number"] for field in new["fields"] if field.get("sensitive"))


def _check_readable(name: str, verdict: Verdict, running: Progress | None) -> None:
    if running is not None and running.wrote:
        raise MigrationPending(
            f"the table {name!r} is being migrated by its owner: read it when the migration is complete"
        )
    if isinstance(verdict, NeedsMigration):
        reasons = verdict.reasons
    elif isinstance(verdict, NewIndexes):
        reasons = tuple(f"index {index} is not filled" for index in verdict.work.build)
    else:
        return
    if reasons:
        text = "".join(f"\n- {reason}" for reason in reasons)
        raise MigrationNeeded(
            f"the table {name!r} was not opened for writing with this model yet:{text}\nDo that first, or read it with "
            "its present model",
            name,
            reasons,
        )
