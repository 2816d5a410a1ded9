"""Migration of a table's records to another model: verdicts, phases, execution, backfill and status."""

from holdfast.table.migrating.backfill import BackfillPlan, entries_of, plan_of
from holdfast.table.migrating.errors import IncompatibleModel, MigrationFailed, MigrationNeeded, MigrationPending
from holdfast.table.migrating.gate import Gate
from holdfast.table.migrating.lenient import lenient_images
from holdfast.table.migrating.migrations import Migrations
from holdfast.table.migrating.opening import Opening
from holdfast.table.migrating.phases import Fatal, Migration, Partial, Phase, Retry, Success, each_row
from holdfast.table.migrating.progress import AuditEntry
from holdfast.table.migrating.sst import ingest, write_sst
from holdfast.table.migrating.status import MigrationStatus
from holdfast.table.migrating.step import Found, Step
from holdfast.table.migrating.verdicts import (
    IndexWork,
    NeedsMigration,
    NewIndexes,
    NewModel,
    OnlySafeAdds,
    UpToDate,
    Verdict,
    judge,
)

__all__ = [
    "AuditEntry",
    "BackfillPlan",
    "Fatal",
    "Found",
    "Gate",
    "IncompatibleModel",
    "IndexWork",
    "Migration",
    "MigrationFailed",
    "MigrationNeeded",
    "MigrationPending",
    "MigrationStatus",
    "Migrations",
    "NeedsMigration",
    "NewIndexes",
    "NewModel",
    "OnlySafeAdds",
    "Opening",
    "Partial",
    "Phase",
    "Retry",
    "Step",
    "Success",
    "UpToDate",
    "Verdict",
    "each_row",
    "entries_of",
    "ingest",
    "judge",
    "lenient_images",
    "plan_of",
    "write_sst",
]
