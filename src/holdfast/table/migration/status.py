"""Status and metrics of migrations, for callers and exporters."""

from dataclasses import dataclass

from holdfast.base.metrics import Registry
from holdfast.table.migration.progress import Progress
from holdfast.table.migration.step_context import Cursor

__all__ = ["Counters", "MigrationStatus", "status_of"]


@dataclass(frozen=True, slots=True)
class MigrationStatus:
    """Status of one table's migration."""

    table: str
    state: str
    """idle, running, paused, cancelled, failed, or waiting: for another table, or indexes built elsewhere."""
    phase: str | None = None
    """Expand, Backfill, Verify, Contract or Finalise; None when idle."""
    cursor: Cursor = None
    attempts: int = 0
    """How often the phase was called since its last progress."""
    processed: int = 0
    """Records that were written or indexed in this phase."""
    total: int | None = None
    """The total number of records; None where it is not known."""
    started: int | None = None
    """Nanoseconds since 1970."""
    error: str = ""


def status_of(table: str, progress: Progress | None, state: str | None = None) -> MigrationStatus:
    """Return the status from the saved progress; `state` overrides the saved one unless it is idle."""
    if progress is None or not progress.unfinished:
        return MigrationStatus(table, "idle")
    return MigrationStatus(
        table,
        state or progress.state,
        progress.phase.value,
        progress.cursor,
        progress.attempts,
        progress.processed,
        progress.total,
        progress.started,
        progress.error,
    )


class Counters:
    """The instruments of one table's migrations."""

    def __init__(self, registry: Registry, table: str) -> None:
        labels = {"table": table}
        self.started = registry.counter(
            "holdfast_migration_started_total", "Migration phases that were started.", labels
        )
        self.retries = registry.counter(
            "holdfast_migration_retries_total", "Migration phases that asked to be retried.", labels
        )
        self.partials = registry.counter(
            "holdfast_migration_partials_total", "Migration phases that completed a part of their work.", labels
        )
        self.completed = registry.counter("holdfast_migration_completed_total", "Completed migrations.", labels)
        self.failed = registry.counter("holdfast_migration_failed_total", "Failed migrations.", labels)
