"""Keyword options of `Store.log`, `Store.queue` and `Store.table`, as typed dicts for type checkers."""

from typing import TYPE_CHECKING, TypedDict

from holdfast.base.clock import Duration
from holdfast.log.policy import Flush, Retention, Roll
from holdfast.queue import Backoff

if TYPE_CHECKING:
    from holdfast.table.migration import Migration
    from holdfast.table.migration.phases import VersionChange
    from holdfast.table.storage.keyring import Keyring

__all__ = ["LogOptions", "QueueOptions", "TableOptions"]


class LogOptions(TypedDict, total=False):
    """The settings that `Store.log` accepts."""

    flush: Flush
    roll: Roll
    index_interval: int
    compression: str | None
    retention: Retention | None
    local_retention: Retention | None
    verify_on_open: bool
    max_message: int


class TableOptions(LogOptions, total=False):
    """The settings that `Store.table` accepts, and those of its log."""

    keep_all_versions: bool
    update_history: bool
    keyring: "Keyring"
    """The keys of sensitive fields."""
    migration: "Migration | None"
    """How existing records are converted to this model, if necessary."""
    migration_budget: Duration | None
    """How long opening the table runs a migration before the background continues it; None: until it is finished."""
    on_version_change: "VersionChange | None"
    """Called with the old definition (None for a new table) and the new one, before the new one is saved."""


class QueueOptions(LogOptions, total=False):
    """The settings that `Store.queue` accepts: those of `QueueSettings`, and those of its log."""

    log: str
    lease: Duration
    max_attempts: int | None
    backoff: Backoff
    dead_letter: str | None
    dedup_window: Duration
    dedup_limit: int
    starvation: Duration | None
    ttl: Duration | None
    expired: str
    max_length: int | None
    max_bytes: int | None
    overflow: str
    history: Duration
    shorten_history: bool
