"""Typed, versioned records: a table is a view of a log of changes."""

from holdfast.table.errors import InvalidModel, ValidationFailed
from holdfast.table.live.sync_updates import Addition, Alteration, InitialValues, OrderedKeys, Removal
from holdfast.table.live.watch_scope import NEWEST_FIRST
from holdfast.table.live.watcher import ListenerBehind, Watcher
from holdfast.table.migration import (
    Fatal,
    Migration,
    MigrationFailed,
    MigrationNeeded,
    MigrationPending,
    Partial,
    Retry,
    Success,
    each_row,
)
from holdfast.table.model.definition import describe, model_from
from holdfast.table.model.fields import field
from holdfast.table.model.indexes import Each, Index, Keys, Normalized, Reversed, TypeOf, Values, Words
from holdfast.table.model.model import Model, ModelMeta, Ref, copy_of, get_at, key_from_text, text_of_key
from holdfast.table.model.types import Kind, Limits
from holdfast.table.model.validation import Violation, validate, validate_field
from holdfast.table.operations import (
    Add,
    AlreadyExists,
    Change,
    Delete,
    DictEdit,
    Done,
    ListEdit,
    NoRecord,
    SetEdit,
    Undelete,
)
from holdfast.table.query.expressions import none_of
from holdfast.table.query.planner import TableScanRefused
from holdfast.table.query.scanner import Scan
from holdfast.table.query.search import search
from holdfast.table.record import Record
from holdfast.table.settings import TableSettings
from holdfast.table.storage.export import backup_table, restore_table, verify_backup
from holdfast.table.storage.field_encryption import SealBroken, keys_used, reseal
from holdfast.table.storage.keyring import KeyMissing, Keyring
from holdfast.table.table import Table

__all__ = [
    "NEWEST_FIRST",
    "Add",
    "Addition",
    "AlreadyExists",
    "Alteration",
    "Change",
    "Delete",
    "DictEdit",
    "Done",
    "Each",
    "Fatal",
    "Index",
    "InitialValues",
    "InvalidModel",
    "KeyMissing",
    "Keyring",
    "Keys",
    "Kind",
    "Limits",
    "ListEdit",
    "ListenerBehind",
    "Migration",
    "MigrationFailed",
    "MigrationNeeded",
    "MigrationPending",
    "Model",
    "ModelMeta",
    "NoRecord",
    "Normalized",
    "OrderedKeys",
    "Partial",
    "Record",
    "Ref",
    "Removal",
    "Retry",
    "Reversed",
    "Scan",
    "SealBroken",
    "SetEdit",
    "Success",
    "Table",
    "TableScanRefused",
    "TableSettings",
    "TypeOf",
    "Undelete",
    "ValidationFailed",
    "Values",
    "Violation",
    "Watcher",
    "Words",
    "backup_table",
    "copy_of",
    "describe",
    "each_row",
    "field",
    "get_at",
    "key_from_text",
    "keys_used",
    "model_from",
    "none_of",
    "reseal",
    "restore_table",
    "search",
    "text_of_key",
    "validate",
    "validate_field",
    "verify_backup",
]
