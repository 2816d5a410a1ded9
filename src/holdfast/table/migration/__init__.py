"""Migration of a table's records to another model: verdicts, phases, execution, backfill and status."""

from holdfast.table.migration.access_gate import Gate
from holdfast.table.migration.admission import Opening
from holdfast.table.migration.backfill import BackfillPlan, entries_of, plan_of
from holdfast.table.migration.bulk_ingest import ingest, write_sst
from holdfast.table.migration.compatibility import (
    IndexWork,
    NeedsMigration,
    NewIndexes,
    NewModel,
    OnlySafeAdds,
    UpToDate,
    Verdict,
    judge,
)
from holdfast.table.migration.errors import IncompatibleModel, MigrationFailed, MigrationNeeded, MigrationPending
from holdfast.table.migration.lenient_decoder import lenient_images
from holdfast.table.migration.phases import Fatal, Migration, Partial, Phase, Retry, Success, each_row
from holdfast.table.migration.progress import AuditEntry
from holdfast.table.migration.scheduler import Migrations
from holdfast.table.migration.status import MigrationStatus
from holdfast.table.migration.step_context import Found, Step

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
