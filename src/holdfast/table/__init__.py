"""Typed, versioned records: a table is a view of a log of changes."""

from holdfast.table.backup import backup_table, restore_table, verify_backup
from holdfast.table.definition import describe, model_from
from holdfast.table.errors import InvalidModel, ValidationFailed
from holdfast.table.expressions import none_of
from holdfast.table.fields import field
from holdfast.table.indexes import Each, Index, Keys, Normalized, Reversed, TypeOf, Values, Words
from holdfast.table.keyring import KeyMissing, Keyring
from holdfast.table.migrating import (
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
from holdfast.table.model import Model, ModelMeta, Ref, copy_of, get_at, key_from_text, text_of_key
from holdfast.table.planner import TableScanRefused
from holdfast.table.record import Record
from holdfast.table.requests import (
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
from holdfast.table.scanning import Scan
from holdfast.table.scopes import NEWEST_FIRST
from holdfast.table.sealing import SealBroken, keys_used, reseal
from holdfast.table.search import search
from holdfast.table.settings import TableSettings
from holdfast.table.table import Table
from holdfast.table.types import Kind, Limits
from holdfast.table.updates import Addition, Alteration, InitialValues, OrderedKeys, Removal
from holdfast.table.validation import Violation, validate, validate_field
from holdfast.table.watching import ListenerBehind, Watcher

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
