"""Execution of one migration: a step at a time, with the progress saved after each."""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from holdfast.base.clock import NS, Clock, duration_ns
from holdfast.base.errors import HoldfastError
from holdfast.table.engine import TableEngine
from holdfast.table.migration.access_gate import Gate
from holdfast.table.migration.admission import Opening
from holdfast.table.migration.backfill import Filling, active, clear, turn_on
from holdfast.table.migration.compatibility import IndexWork, NeedsMigration, NewIndexes
from holdfast.table.migration.errors import MigrationFailed, MigrationPending
from holdfast.table.migration.lenient_decoder import lenient_images
from holdfast.table.migration.phases import (
    HOOKS,
    Fatal,
    Migration,
    Partial,
    Phase,
    Retry,
    Success,
    VersionChange,
    outcome_of,
)
from holdfast.table.migration.progress import AuditEntry, Progress, ProgressFile
from holdfast.table.migration.status import Counters, MigrationStatus, status_of
from holdfast.table.migration.step_context import Step
from holdfast.table.model.definition import model_from
from holdfast.table.model.model import Model
from holdfast.table.storage.row_codec import Images, plain_images

if TYPE_CHECKING:
    from holdfast.table.table import Table

__all__ = ["Run", "clear_abandoned"]

logger = logging.getLogger("holdfast.table")

_ORDER = (*HOOKS, Phase.FINALISE)


class Run:
    """The migration of one open table.

    Threads: callers ensure that one at a time calls `step`; the other methods may be called from any. `_lock` protects
    the progress. Requests to the table are refused from the start until the migration is complete.
    """

    def __init__(
        self,
        opening: Opening,
        table: "Table[Any]",
        file: ProgressFile,
        keep_definition: Callable[[], None],
        *,
        clock: Clock,
        counters: Counters,
        on_version_change: VersionChange | None = None,
        images_for: Callable[[type[Model]], Images] = plain_images,
    ) -> None:
        """`keep_definition` saves that the table has its new definition."""
        self.name = opening.name
        self.table = table
        self.engine = table.engine
        self.migration = opening.migration or Migration()
        self.claimed = False
        """Whether a thread is running it. Protected by the lock of `Migrations`."""
        self.waited = False
        """Whether it had to wait for another migration."""
        self.not_before = 0.0
        """Monotonic time before which it must not be called."""
        self.error: Exception | None = None
        self._file = file
        self._keep_definition = keep_definition
        self._clock = clock
        self._counters = counters
        self._on_version_change = on_version_change
        self._images_for = images_for
        self._lock = threading.RLock()
        self._filling: Filling | None = None
        self.gate = Gate(self.refusal)
        if opening.resumes:
            assert opening.progress is not None
            self.progress = opening.progress
            if self.engine.state.rebuilt:  # the entries that were filled so far are gone with the state
                self.progress.ingested = False
                self.progress.cursor = None if self.progress.indexing else self.progress.cursor
            self._resume("Resumed")
        else:
            self.progress = self._started(opening)
        assert self.progress.old is not None
        self.old: type[Model] = model_from(self.progress.old)
        indexed = _ORDER.index(self.progress.phase) > _ORDER.index(Phase.BACKFILL)
        active(self.engine, None if indexed else self.progress.work)
        self.engine.access.gate = self.gate

    def _started(self, opening: Opening) -> Progress:
        verdict = opening.verdict
        assert isinstance(verdict, NewIndexes | NeedsMigration)
        self.progress = Progress(
            name=self.migration.name,
            started=self._clock.time_ns(),
            since=self.engine.state.last_version,
            old=opening.old,
            target=opening.new,
            work=verdict.work,
            needed=isinstance(verdict, NeedsMigration),
            audit=[] if opening.progress is None else opening.progress.audit,
        )
        if opening.abandoned is not None:
            self._note("Abandoned", "the model has changed")
            clear_abandoned(self.engine, opening.abandoned)
        versions = f"{(opening.old or {}).get('version')} to {opening.new.get('version')}"
        self._note("Started", f"from version {versions}")
        self._keep()
        return self.progress

    @property
    def unfinished(self) -> bool:
        """Return whether the migration is not complete: until then requests are refused."""
        return self.progress.unfinished

    @property
    def state(self) -> str:
        """Return the state as in `MigrationStatus`; whether it waits for another table is not known here."""
        state = self.progress.state
        return "waiting" if state == "running" and self.waits_for_indexes else state

    @property
    def waits_for_indexes(self) -> bool:
        """Return whether indexes are built elsewhere, and not ingested yet."""
        progress = self.progress
        builds = bool(progress.work.build or progress.work.build_unique)
        return progress.indexing and builds and self.migration.external_indexes and not progress.ingested

    def status(self, state: str | None = None) -> MigrationStatus:
        """Return the status."""
        with self._lock:
            return status_of(self.name, self.progress, state or self.state)

    def refusal(self) -> HoldfastError:
        """Return the error that requests get while the migration is not complete."""
        where, state = f"hf.migrations().wait({self.name!r})", self.progress.state
        if state == "failed":
            return MigrationPending(
                f"the table {self.name!r} is not available: its migration failed in {self.progress.phase}: "
                f"{self.progress.error}. Fix the cause, then call hf.migrations().resume({self.name!r}) or open the "
                "store again"
            )
        if state == "cancelled":
            return MigrationPending(
                f"the table {self.name!r} is not available: its migration was cancelled; open the store again to resume"
            )
        how = f"is paused: hf.migrations().resume({self.name!r})" if state == "paused" else f"is in progress: {where}"
        return MigrationPending(f"the migration of the table {self.name!r} ({self.progress.phase}) {how}")

    def step(self) -> None:
        """Run the next step, if the state is "running". A failure is not raised: `error` and the progress keep it."""
        if self.progress.state != "running":
            return
        try:
            with self.gate.passing():
                if self.progress.phase is Phase.FINALISE:
                    self._finalise()
                elif self.progress.indexing:
                    self._index()
                else:
                    self._call(self.progress.phase)
        except Exception as error:  # any error of a user's function
            self._fail(error)

    def set_state(self, state: str, event: str) -> None:
        """Pause, cancel or resume."""
        with self._lock:
            if event == "Resumed":
                self._resume(event)
                return
            self.progress.state = state
            self._note(event)
            self._keep()

    def ingested(self) -> None:
        """Note that the indexes that were built elsewhere are ingested."""
        with self._lock:
            self.progress.ingested = True
            self._note("Ingested")
            self._keep()

    def _resume(self, event: str) -> None:
        if self.progress.state == "failed":
            self.progress.attempts = 0
        self.progress.state, self.progress.error, self.error = "running", "", None
        self.not_before = 0.0
        self._note(event)
        self._keep()

    def _call(self, phase: Phase) -> None:
        """Call a phase's function, and process its outcome."""
        progress, hook = self.progress, self.migration.hook(phase)
        with self._lock:
            progress.attempts += 1
        self._counters.started.add()
        outcome = Success()
        if hook is not None:
            self._note("Begun", f"attempt {progress.attempts}")
            step = Step(
                self.table,
                self.old,
                lenient_images(self._images_for(self.old), self.old),
                phase=phase.value,
                cursor=progress.cursor,
                attempt=progress.attempts,
                since=progress.since,
                writes=self._writes,
            )
            outcome = outcome_of(phase, hook(step))  # type: ignore[assignment]
            step.flush()
            self.engine.log.sync()  # before the cursor is saved, which says that it was done
            with self._lock:
                progress.processed += step.processed
        with self._lock:
            self._take(phase, outcome)

    def _take(self, phase: Phase, outcome: Any) -> None:
        progress = self.progress
        match outcome:
            case Success():
                if phase is Phase.BACKFILL and (progress.work.build or progress.work.build_unique):
                    progress.indexing, progress.cursor, progress.attempts = True, None, 0
                    progress.processed, self._filling = 0, None
                else:
                    self._enter(_ORDER[_ORDER.index(phase) + 1])
            case Partial(cursor):
                self._counters.partials.add()
                progress.cursor, progress.attempts = cursor, 0
                self._note("Partial")
            case Retry(cursor, wait):
                self._counters.retries.add()
                progress.cursor = progress.cursor if cursor is None else cursor
                self._note("Retry", f"after {wait}")
                if progress.attempts >= self.migration.max_attempts:
                    raise MigrationFailed(f"{phase} of {self.name!r} did not succeed in {progress.attempts} attempts")
                self.not_before = self._clock.monotonic() + duration_ns(wait, "after") / NS
            case Fatal(reason):
                raise MigrationFailed(f"{phase} of {self.name!r} failed: {reason}")
        self._keep()

    def _enter(self, phase: Phase) -> None:
        progress = self.progress
        self._note("Done")
        progress.phase, progress.cursor, progress.attempts, progress.indexing = phase, None, 0, False
        progress.since, progress.processed, progress.total = self.engine.state.last_version, 0, None

    def _index(self) -> None:
        """Fill one batch of index entries. Before the first, clear old ones; after the last, enable the indexes."""
        if self.waits_for_indexes:
            return
        progress, work = self.progress, self.progress.work
        if not progress.ingested:
            if work.rebuilds:
                self._writes()
            if self._filling is None:
                self._filling = Filling(self.engine, work)
                if progress.cursor is None:
                    progress.total, progress.processed = self._filling.begin(), 0
            assert isinstance(progress.cursor, bytes | None)
            last, count = self._filling.fill(progress.cursor)
            duplicates = self._filling.duplicates
            with self._lock:
                progress.cursor = last
                progress.processed += count
                if last is not None:
                    if not duplicates:  # otherwise they would be lost if the migration resumed here
                        self._keep()
                    return
                if duplicates:
                    # The user's function is called again after a resume: only it can resolve the duplicates.
                    progress.indexing, self._filling = False, None
                    raise MigrationFailed("; ".join(duplicates))
        turn_on(self.engine, work)
        with self._lock:
            progress.unique_since, self._filling = self.engine.state.last_version, None
            self._note("Indexed")
            self._enter(Phase.VERIFY)
            self._keep()

    def _finalise(self) -> None:
        progress, schema, state = self.progress, self.engine.schema, self.engine.state
        if self._on_version_change is not None:
            self._on_version_change(progress.old, progress.target)
        if progress.needed:
            schema.past = replace(schema.past, suits_since=state.last_version)
        self._keep_definition()
        clear(state.store, state.view.prefix, progress.work.drop, progress.work.drop_unique)
        with self._lock:
            progress.state, progress.cursor, progress.error = "idle", None, ""
            self._note("Completed")
            self._keep()
        self._counters.completed.add()
        self.engine.access.gate = None

    def _fail(self, error: Exception) -> None:
        self._counters.failed.add()
        with self._lock:
            self.error = error
            self.progress.state, self.progress.error = "failed", f"{type(error).__name__}: {error}"
            self._note("Failed", self.progress.error)
            try:
                self._keep()
            except HoldfastError as problem:
                logger.error("saving migration progress failed: table=%s error=%s", self.name, problem)
        logger.error(
            "migration failed: table=%s phase=%s error=%s",
            self.name,
            self.progress.phase,
            self.progress.error,
            extra={"table": self.name},
        )

    def _writes(self) -> None:
        """Save, before the first write, that records or indexes of the old model may be changed."""
        with self._lock:
            if not self.progress.wrote:
                self.progress.wrote = True
                self._keep()

    def _note(self, event: str, text: str = "") -> None:
        entry = AuditEntry(self._clock.time_ns(), event, self.progress.phase.value, text)
        self.progress.audit = [*self.progress.audit, entry][-self.migration.audit_entries :]

    def _keep(self) -> None:
        self._file.keep(self.progress)


def clear_abandoned(engine: TableEngine[Any], work: IndexWork) -> None:
    """Delete the entries that an abandoned migration built, except of indexes that the present model has."""
    wanted = {index.canonical for index in engine.schema.spec.indexes}
    unique = {field.number for field in engine.schema.spec.fields.values() if field.unique}
    clear(
        engine.state.store,
        engine.state.view.prefix,
        [index for index in work.build if index not in wanted],
        [number for number in work.build_unique if number not in unique],
    )
