"""Holdfast: a durable message queue that you embed like SQLite, serve like RabbitMQ and query with Spark."""

from holdfast import errors
from holdfast.errors import (
    Closed,
    Corrupt,
    DiskFull,
    HoldfastError,
    InvalidArgument,
    InvalidName,
    Locked,
    MessageTooLarge,
    NewerFormat,
    NotFound,
    ReadOnly,
    StorageError,
    WriterStopped,
)
from holdfast.log import (
    Block,
    Damage,
    Flush,
    Inspection,
    Log,
    LogStats,
    Message,
    Record,
    Retention,
    Roll,
    Tailer,
    TailerStats,
    Verification,
)
from holdfast.store import Store, open

__version__ = "0.1.0"

__all__ = [
    "Block",
    "Closed",
    "Corrupt",
    "Damage",
    "DiskFull",
    "Flush",
    "HoldfastError",
    "Inspection",
    "InvalidArgument",
    "InvalidName",
    "Locked",
    "Log",
    "LogStats",
    "Message",
    "MessageTooLarge",
    "NewerFormat",
    "NotFound",
    "ReadOnly",
    "Record",
    "Retention",
    "Roll",
    "StorageError",
    "Store",
    "Tailer",
    "TailerStats",
    "Verification",
    "WriterStopped",
    "__version__",
    "errors",
    "open",
]
