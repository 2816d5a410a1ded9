"""Holdfast: a durable message queue that you embed like SQLite, serve like RabbitMQ and query with Spark."""

from typing import TYPE_CHECKING, Any

from holdfast import errors
from holdfast.errors import (
    Closed,
    Conflict,
    Corrupt,
    DiskFull,
    HoldfastError,
    InvalidArgument,
    InvalidName,
    LeaseLost,
    Locked,
    MessageTooLarge,
    NewerFormat,
    NotConfirmed,
    NotFound,
    QueueFull,
    ReadOnly,
    ReplicaError,
    ReplicaFenced,
    ReplicaUnavailable,
    StorageError,
    WriterStopped,
)
from holdfast.log import (
    Block,
    Damage,
    Flush,
    Freed,
    Inspection,
    Log,
    LogStats,
    Message,
    Record,
    Retention,
    Roll,
    SegmentStats,
    Tailer,
    TailerStats,
    Verification,
)
from holdfast.queue import (
    Backoff,
    Counts,
    DeadLetter,
    Delayed,
    Delivery,
    LeaseInfo,
    PeekedMessage,
    Preview,
    Queue,
    QueueStats,
)
from holdfast.schemas.payload_schema import PayloadSchema, SchemaVersion
from holdfast.store import Store, open

if TYPE_CHECKING:
    from holdfast.backup.restore import restore_backup
    from holdfast.interfaces import (
        AnyLog,
        AnyLogSchema,
        AnyMigrations,
        AnyQueue,
        AnyScan,
        AnyStore,
        AnyTable,
        AnyTailer,
    )
    from holdfast.remote import RemoteStore, connect
    from holdfast.table import (
        AlreadyExists,
        DictEdit,
        Each,
        Index,
        Keyring,
        Keys,
        Limits,
        ListEdit,
        ListenerBehind,
        Migration,
        MigrationFailed,
        MigrationNeeded,
        MigrationPending,
        Model,
        NoRecord,
        Normalized,
        Ref,
        Reversed,
        SetEdit,
        Table,
        TableScanRefused,
        TypeOf,
        ValidationFailed,
        Values,
        Violation,
        Words,
        field,
        key_from_text,
        none_of,
        search,
        text_of_key,
    )

__version__ = "0.1.0"

__all__ = [
    "AlreadyExists",
    "AnyLog",
    "AnyLogSchema",
    "AnyMigrations",
    "AnyQueue",
    "AnyScan",
    "AnyStore",
    "AnyTable",
    "AnyTailer",
    "Backoff",
    "Block",
    "Closed",
    "Conflict",
    "Corrupt",
    "Counts",
    "Damage",
    "DeadLetter",
    "Delayed",
    "Delivery",
    "DictEdit",
    "DiskFull",
    "Each",
    "Flush",
    "Freed",
    "HoldfastError",
    "Index",
    "Inspection",
    "InvalidArgument",
    "InvalidName",
    "Keyring",
    "Keys",
    "LeaseInfo",
    "LeaseLost",
    "Limits",
    "ListEdit",
    "ListenerBehind",
    "Locked",
    "Log",
    "LogStats",
    "Message",
    "MessageTooLarge",
    "Migration",
    "MigrationFailed",
    "MigrationNeeded",
    "MigrationPending",
    "Model",
    "NewerFormat",
    "NoRecord",
    "Normalized",
    "NotConfirmed",
    "NotFound",
    "PayloadSchema",
    "PeekedMessage",
    "Preview",
    "Queue",
    "QueueFull",
    "QueueStats",
    "ReadOnly",
    "Record",
    "Ref",
    "RemoteStore",
    "ReplicaError",
    "ReplicaFenced",
    "ReplicaUnavailable",
    "Retention",
    "Reversed",
    "Roll",
    "SchemaVersion",
    "SegmentStats",
    "SetEdit",
    "StorageError",
    "Store",
    "Table",
    "TableScanRefused",
    "Tailer",
    "TailerStats",
    "TypeOf",
    "ValidationFailed",
    "Values",
    "Verification",
    "Violation",
    "Words",
    "WriterStopped",
    "__version__",
    "connect",
    "errors",
    "field",
    "key_from_text",
    "none_of",
    "open",
    "restore_backup",
    "search",
    "text_of_key",
    "verify",
]

_OLD = ("Waiting",)
"""Old names that still work, with a warning."""


def __getattr__(name: str) -> Any:
    """Load tables, the remote client and the protocols on first use; warn of old names."""
    if name in _OLD:
        from holdfast import queue  # noqa: PLC0415

        return getattr(queue, name)  # which warns
    if name in ("RemoteStore", "connect"):
        from holdfast import remote  # noqa: PLC0415

        return getattr(remote, name)
    if name in ("AnyLog", "AnyLogSchema", "AnyMigrations", "AnyQueue", "AnyScan", "AnyStore", "AnyTable", "AnyTailer"):
        from holdfast import interfaces  # noqa: PLC0415

        return getattr(interfaces, name)
    if name == "restore_backup":
        from holdfast.backup.restore import restore_backup  # noqa: PLC0415

        return restore_backup
    if name == "verify":
        from holdfast.verification import verify_store  # noqa: PLC0415

        return verify_store
    if name in __all__:
        from holdfast import table  # noqa: PLC0415

        return getattr(table, name)
    raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
