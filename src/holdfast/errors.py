"""Which errors can Holdfast raise? The public address of the tree that lives in `holdfast.base.errors`."""

from holdfast.base.errors import (
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

__all__ = [
    "Closed",
    "Corrupt",
    "DiskFull",
    "HoldfastError",
    "InvalidArgument",
    "InvalidName",
    "Locked",
    "MessageTooLarge",
    "NewerFormat",
    "NotFound",
    "ReadOnly",
    "StorageError",
    "WriterStopped",
]
