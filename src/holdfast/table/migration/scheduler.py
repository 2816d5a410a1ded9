"""Scheduler of migrations: opening a table runs one within a time budget, then a background thread continues it."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.base.clock import NS, Clock, Duration, duration_ns
from holdfast.base.critical_section import Condition
from holdfast.base.errors import Closed, InvalidArgument, NotFound
from holdfast.base.files import Files
from holdfast.base.metrics import Registry
from holdfast.table.migration.admission import Opening, decide
from holdfast.table.migration.backfill import BackfillPlan, plan_of
from holdfast.table.migration.bulk_ingest import Paths, ingest
from holdfast.table.migration.compatibility import UpToDate
from holdfast.table.migration.errors import MigrationFailed
from holdfast.table.migration.phases import Migration, VersionChange
from holdfast.table.migration.progress import AuditEntry, Progress, ProgressFile
from holdfast.table.migration.runner import Run, clear_abandoned
from holdfast.table.migration.status import Counters, MigrationStatus, status_of
from holdfast.table.model.model import Model
from holdfast.table.storage.row_codec import Images, plain_images
from holdfast.table.storage.schema_history import NO_SCHEMA_HISTORY, SchemaHistory

if TYPE_CHECKING:
    from holdfast.table.table import Table

__all__ = ["Migrations"]

logger = logging.getLogger("holdfast.table")

_LOOK_S = 1.0
"""Longest sleep in seconds of a waiting caller before it checks again."""


class Migrations:
    """The migrations of a store's tables: iterate over it for the status of each.

    Files: `migration.json` in the folder of each table that had one. Threads: all methods may be called from any. The
    thread that opens a table runs its migration within the time budget. What is left is run by one background thread,
    or by `tick` if the store has no background. One thread at a time runs a migration.
    """

    name = "migrations"

    def __init__(
        self,
        files: Files,
        clock: Clock,
        registry: Registry,
        *,
        folder: Callable[[str], Path],
        names: Callable[[], list[str]],
        background: bool,
    ) -> None:
        """`folder` finds the folder of a table, `names` all tables of the store."""
        self._files = files
        self._clock = clock
        self._registry = registry
        self._folder = folder
        self._names = names
        self._background = background
        self._lock = threading.RLock()
        self._changed = Condition(self._lock)
        self._runs: dict[str, Run] = {}
        self._open: set[str] = set()
        self._thread: threading.Thread | None = None
        self._closing = False

    # For callers

    def __iter__(self) -> Iterator[MigrationStatus]:
        return iter([self.status(name) for name in sorted({*self._names(), *self._runs})])

    def status(self, table: str) -> MigrationStatus:
        """Return the status of one table's migration."""
        run = self._runs.get(table)
        if run is None:
            return status_of(table, self._file(table).read())
        waits = run.progress.state == "running" and not self._is_free(run)
        return run.status("waiting" if waits else None)

    def audit(self, table: str) -> list[AuditEntry]:
        """Return the kept audit entries of a table's migrations, the oldest first."""
        run = self._runs.get(table)
        progress = run.progress if run is not None else self._file(table).read()
        return [] if progress is None else list(progress.audit)

    def wait(self, table: str | None = None, timeout: Duration | None = None) -> bool:
        """Wait until the migration of a table, or of all open tables, is complete; return False after `timeout`.

        Raises `MigrationFailed` if one failed or was cancelled, `Closed` if the store is closed meanwhile, `NotFound`
        if the table is not open. If the store has no background, this runs the migrations, and returns False if none
        can continue, or if the next step is due after the timeout.
        """
        deadline = None if timeout is None else self._clock.monotonic() + duration_ns(timeout, "timeout") / NS
        while True:
            with self._lock:
                if not self._pending(table):
                    return True
                left = _LOOK_S if deadline is None else min(_LOOK_S, deadline - self._clock.monotonic())
                if left <= 0:
                    return False
                if self._background:
                    self._clock.wait(self._changed, left)
                    continue
            due = self.tick()
            if due is None:
                with self._lock:
                    return not self._pending(table)
            if deadline is not None and self._clock.monotonic() + due > deadline:
                return False
            if due > 0:
                self._clock.sleep(due)

    def pause(self, table: str) -> bool:
        """Pause a migration after its present step; return False if it is not running.

        Opening the store and the table again resumes it. Raises `NotFound` if the table is not open.
        """
        return self._set_state(table, ("running",), "paused", "Paused")

    def resume(self, table: str) -> bool:
        """Resume a migration that was paused or has failed; return False if it was neither.

        Raises `NotFound` if the table is not open.
        """
        done = self._set_state(table, ("paused", "failed"), "running", "Resumed")
        self._carry_on()
        return done

    def cancel(self, table: str) -> bool:
        """Cancel a migration after its present step; return False if there is none.

        What it did is kept. It resumes when the store and the table are opened again. Raises `NotFound` if the table is
        not open.
        """
        return self._set_state(table, ("running", "paused", "failed"), "cancelled", "Cancelled")

    def plan(self, table: str) -> BackfillPlan:
        """Return the plan of the indexes that a migration with `external_indexes` waits for.

        Raises `InvalidArgument` if it does not wait for any.
        """
        run = self._waiting_for_indexes(table)
        return plan_of(run.table, run.progress.work)

    def ingest(self, table: str, files: Mapping[str, Paths], plan: BackfillPlan) -> int:
        """Ingest index files, by family, and continue; return how many records changed after the plan was made.

        Raises `InvalidArgument` if the migration does not wait for indexes, or the plan is not valid any more.
        """
        run = self._waiting_for_indexes(table)
        with run.gate.passing():
            touched = ingest(run.table, files, plan)
        run.ingested()
        self._carry_on()
        return touched

    # For the store

    def decide(
        self,
        name: str,
        old: dict[str, Any] | None,
        new: dict[str, Any],
        migration: Migration | None = None,
        *,
        past: SchemaHistory = NO_SCHEMA_HISTORY,
        read_only: bool = False,
    ) -> Opening:
        """Decide what must happen before a table is opened; raises before anything is changed."""
        if migration is not None:
            self._check_order(name, migration.dependencies)
        progress = self._file(name).read()
        return decide(name, old, new, migration, progress, past=past, read_only=read_only)

    def begin(
        self,
        opening: Opening,
        table: "Table[Any]",
        keep_definition: Callable[[], None],
        *,
        budget: Duration | None = None,
        on_version_change: VersionChange | None = None,
        images_for: Callable[[type[Model]], Images] = plain_images,
    ) -> None:
        """Run the migration that was decided on, if any, for at most the `budget`; the rest runs in the background.

        Without a budget it runs here until it is complete, or must wait for another table or for indexes. The new
        definition is saved when the records suit it. If it fails here, raises the error of the user's function, or
        `MigrationFailed`; then the table must not be used.
        """
        limit = None if budget is None else self._clock.monotonic() + duration_ns(budget, "migration_budget") / NS
        if not opening.runs:
            self._abandon(opening, table)
            if on_version_change is not None and not isinstance(opening.verdict, UpToDate):
                on_version_change(opening.old, opening.new)
            keep_definition()
            with self._lock:
                self._open.add(opening.name)
        else:
            run = Run(
                opening,
                table,
                self._file(opening.name),
                keep_definition,
                clock=self._clock,
                counters=Counters(self._registry, opening.name),
                on_version_change=on_version_change,
                images_for=images_for,
            )
            run.claimed = True
            with self._lock:
                self._open.add(opening.name)
                self._runs[opening.name] = run
            self._drive(run, limit)
            if run.state == "failed":
                self.forget(opening.name)
                assert run.error is not None
                raise run.error
        while (waiter := self._claim(waited=True)) is not None:
            self._drive(waiter, limit)
        self._carry_on()

    def forget(self, name: str) -> None:
        """Remove a table that is closed."""
        with self._lock:
            self._runs.pop(name, None)
            self._open.discard(name)

    @property
    def fields(self) -> dict[str, str]:
        """As `BackgroundTask.fields`."""
        return {}

    def tick(self) -> float | None:
        """Run one step; return in how many seconds to call again, None if no migration can continue.

        Does nothing if the store has a background.
        """
        if self._background:
            return None
        run = self._claim()
        if run is not None:
            self._step(run, claimed=True)
            return 0.0
        return self._due()

    def close(self) -> None:
        """Stop after the running step, and wait for the background thread. Idempotent.

        Callers of `wait` whose migration is not complete get `Closed`.
        """
        with self._lock:
            self._closing = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def detach_after_fork(self) -> None:
        """Called in a forked child, where the thread does not exist."""
        self._lock = threading.RLock()
        self._changed = Condition(self._lock)
        self._closing = True
        self._runs.clear()

    # Execution

    def _drive(self, run: Run, limit: float | None) -> None:
        """Run a claimed migration until it stops, must wait for another table or for indexes, or reaches `limit`.

        Waits for the delays of `Retry`. Releases the claim.
        """
        try:
            while run.progress.state == "running" and not self._closing:
                if not self._is_free(run):
                    run.waited = not run.waits_for_indexes
                    return
                now = self._clock.monotonic()
                pause = max(0.0, run.not_before - now)
                if limit is not None and now + pause >= limit:
                    return
                if pause > 0:
                    with self._lock:
                        self._clock.wait(self._changed, pause)
                else:
                    self._step(run, claimed=False)
        finally:
            with self._lock:
                run.claimed = False
                self._changed.notify_all()

    def _claim(self, *, waited: bool = False) -> Run | None:
        """Claim a migration that can run now; with `waited`, only one that had to wait for another table."""
        with self._lock:
            if self._closing:
                return None
            now = self._clock.monotonic()
            able = [run for run in self._runs.values() if self._can_go_on(run) and run.not_before <= now]
            run = next((run for run in able if run.waited or not waited), None)
            if run is not None:
                run.claimed = True
            return run

    def _step(self, run: Run, *, claimed: bool) -> None:
        try:
            run.step()
        finally:
            with self._lock:
                if claimed:
                    run.claimed = False
                self._changed.notify_all()

    def _due(self) -> float | None:
        with self._lock:
            now = self._clock.monotonic()
            return min(
                (max(0.0, run.not_before - now) for run in self._runs.values() if self._can_go_on(run)), default=None
            )

    def _can_go_on(self, run: Run) -> bool:
        return run.progress.state == "running" and not run.claimed and self._is_free(run)

    def _is_free(self, run: Run) -> bool:
        """Return whether a migration waits neither for indexes nor for another table."""
        if run.waits_for_indexes:
            return False
        for name in run.migration.dependencies:
            other = self._runs.get(name)
            if name not in self._open or (other is not None and other.unfinished):
                return False
        return True

    def _carry_on(self) -> None:
        """Wake waiting threads, and start the background thread if it is needed and not running."""
        with self._lock:
            self._changed.notify_all()
            if not self._background or self._closing or self._thread is not None:
                return
            if any(self._can_go_on(run) for run in self._runs.values()):
                self._thread = threading.Thread(target=self._work, name="holdfast-migrations", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            run = self._claim()
            if run is not None:
                self._step(run, claimed=True)
                continue
            with self._lock:
                due = None if self._closing else self._due()
                if due is None:
                    self._thread = None
                    return
                if due > 0:
                    self._clock.wait(self._changed, due)

    # Helpers

    def _pending(self, table: str | None) -> bool:
        """Return whether a migration is not complete. Called with the lock held. Raises as `wait` does."""
        if table is not None and table not in self._open:
            raise NotFound(f"the table {table!r} is not open here: open it to continue its migration")
        left = [run for name, run in self._runs.items() if run.unfinished and table in (None, name)]
        for run in left:
            if run.state in ("failed", "cancelled"):
                raise MigrationFailed(str(run.refusal())) from run.error
        if left and self._closing:
            raise Closed("the store was closed before the migration was complete: open it again to continue")
        return bool(left)

    def _set_state(self, table: str, possible: tuple[str, ...], state: str, event: str) -> bool:
        with self._lock:
            run = self._runs.get(table)
            if run is None or run.progress.state not in possible:
                if table not in self._open:
                    raise NotFound(f"the table {table!r} is not open here: open it first")
                return False
            run.set_state(state, event)
            self._changed.notify_all()
            return True

    def _waiting_for_indexes(self, table: str) -> Run:
        run = self._runs.get(table)
        if run is None or not run.waits_for_indexes:
            raise InvalidArgument(
                f"the table {table!r} does not wait for indexes: open it with Migration(external_indexes=True)"
            )
        return run

    def _abandon(self, opening: Opening, table: "Table[Any]") -> None:
        """Delete the entries that an abandoned migration has built; it has changed no records."""
        work, progress = opening.abandoned, opening.progress
        if work is None or progress is None:
            return
        clear_abandoned(table.engine, work)
        note = AuditEntry(self._clock.time_ns(), "Abandoned", progress.phase.value, "the model has changed")
        self._file(opening.name).keep(Progress(state="idle", audit=[*progress.audit[-99:], note]))

    def _check_order(self, name: str, dependencies: tuple[str, ...]) -> None:
        """Raise `InvalidArgument` if migrations would wait for each other."""
        paths: list[tuple[str, ...]] = [(name, one) for one in dependencies]
        while paths:
            path = paths.pop()
            if path[-1] == name:
                raise InvalidArgument(
                    f"these migrations wait for each other: {' -> '.join(path)}. Leave one `after` out"
                )
            run = self._runs.get(path[-1])
            if run is not None and run.unfinished and path[-1] not in path[:-1]:
                paths += [(*path, one) for one in run.migration.dependencies]

    def _file(self, name: str) -> ProgressFile:
        return ProgressFile(self._files, self._folder(name))
