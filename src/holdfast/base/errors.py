"""Which errors can Holdfast raise? One tree; each message says what happened, to which thing, and what to do."""

import errno
import os

__all__ = [
    "Closed",
    "Conflict",
    "Corrupt",
    "DiskFull",
    "HoldfastError",
    "InvalidArgument",
    "InvalidName",
    "LeaseLost",
    "Locked",
    "MessageTooLarge",
    "NewerFormat",
    "NotFound",
    "QueueFull",
    "ReadOnly",
    "StorageError",
    "WriterStopped",
]


class HoldfastError(Exception):
    """The root: `except HoldfastError` catches every error that Holdfast raises on purpose."""


class InvalidArgument(HoldfastError, ValueError):
    """An argument is out of its range or of the wrong kind."""


class InvalidName(InvalidArgument):
    """A name of a log or tailer is empty, too long or not text."""


class MessageTooLarge(InvalidArgument):
    """A message or batch is over its limit; nothing of it was written."""


class NotFound(HoldfastError, LookupError):
    """The named store, log or segment does not exist."""


class Locked(HoldfastError):
    """Another process (or another opening in this one) is writing to the store."""

    def __init__(self, message: str, pid: int | None = None) -> None:
        super().__init__(message)
        self.pid = pid


class LeaseLost(HoldfastError):
    """A delivery's lease ran out, or the queue was moved, before this call: another consumer may have the message."""

    def __init__(self, message: str, ids: list[int] | None = None) -> None:
        super().__init__(message)
        self.ids = ids or []


class QueueFull(HoldfastError):
    """The queue has as many messages as it may hold; nothing was written."""


class Closed(HoldfastError):
    """The store, log or tailer was closed before this call."""


class Conflict(HoldfastError):
    """Something that a transaction read was changed before its commit; nothing of it was applied."""


class ReadOnly(HoldfastError):
    """A write was asked of a store that was opened read-only."""


class Corrupt(HoldfastError):
    """Bytes on disk are not what was written; the position says where."""

    def __init__(self, message: str, path: str = "", offset: int = 0) -> None:
        super().__init__(message)
        self.path = path
        self.offset = offset


class NewerFormat(HoldfastError):
    """The file was written by a newer version of Holdfast than this one can read."""


class StorageError(HoldfastError):
    """The operating system refused a file operation."""


class DiskFull(StorageError):
    """There was no room for a write; nothing of it is kept, and the log goes on when there is room again."""


class WriterStopped(StorageError):
    """A sync to disk failed, so the log takes no more writes until it is opened again."""


def storage_error(error: OSError, doing: str, path: str | os.PathLike[str]) -> StorageError:
    """Turn an operating system's error into ours, with what to do about it."""
    what = f"{doing} {os.fspath(path)!r} failed: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"{what}. Free some space and try again: what was confirmed is safe")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageError(
            f"{what}. Give this user the right to read there, and the right to write if not read_only=True"
        )
    if error.errno == errno.ENOTDIR:
        return StorageError(f"{what}. A file stands where a folder should be: choose another path")
    return StorageError(what)
