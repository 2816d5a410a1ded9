"""The tree of exceptions that Holdfast raises; each message says what happened, to which object, and what to do."""

import errno
import os
from types import FrameType

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
    "is_interrupt",
    "is_reported",
    "raised_by_handler",
    "storage_error",
]


_HAS_VARARGS = 0x04
"""In the flags of a function that it has `*args`: `inspect.CO_VARARGS`."""


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
    """There was no space for a write; nothing of it is kept, and the log resumes when there is space again."""


class WriterStopped(StorageError):
    """A sync to disk failed, so no more writes are taken until the disk works again.

    A log tries to recover once a second, when something is appended; a table and transactions do so with it.
    """


def raised_by_handler(error: BaseException) -> bool:
    """Whether the handler of a signal raised this, in the middle of what it is caught from.

    A handler can raise anything, also an OSError: what a call to the system was doing then has not failed. It is known
    by its arguments, one of which is the frame that it interrupted.
    """
    trace = error.__traceback__
    while trace is not None and (inner := trace.tb_next) is not None:
        if _is_given(inner.tb_frame, trace.tb_frame):
            return True
        trace = inner
    return False


def is_interrupt(error: BaseException) -> bool:
    """Whether this cut something off from outside (Ctrl-C, a signal's handler), and did not come of what was done."""
    return not isinstance(error, Exception) or raised_by_handler(error)


def is_reported(error: OSError) -> bool:
    """Whether the system reported this: not a signal's handler, nor another thread, which can only raise a class."""
    return error.errno is not None and not raised_by_handler(error)


def _is_given(frame: FrameType, wanted: FrameType) -> bool:
    code, values = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount
    given = [values.get(name) for name in code.co_varnames[:count]]
    if code.co_flags & _HAS_VARARGS:
        given += values.get(code.co_varnames[count]) or ()
    return any(one is wanted for one in given)


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
