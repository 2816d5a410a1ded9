"""The tree of exceptions that Holdfast raises; each message says what happened, to which object, and what to do."""

import errno
import os
from types import FrameType
from typing import Self

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
    "NotConfirmed",
    "NotFound",
    "QueueFull",
    "ReadOnly",
    "ReplicaError",
    "ReplicaFenced",
    "ReplicaUnavailable",
    "StorageError",
    "WriterStopped",
    "is_interrupt",
    "is_reported",
    "raised_by_handler",
    "storage_error",
]


_HAS_VARARGS = 0x04
"""The flag of a code object whose function has `*args`: `inspect.CO_VARARGS`."""


class HoldfastError(Exception):
    """The root: `except HoldfastError` catches every error that Holdfast raises on purpose."""


class InvalidArgument(HoldfastError, ValueError):
    """An argument is out of its range or of the wrong kind."""


class InvalidName(InvalidArgument):
    """A name (of a log, queue, table or tailer) is empty, too long, not text, or reserved."""


class MessageTooLarge(InvalidArgument):
    """A message or batch is over its limit; nothing of it was written."""


class NotFound(HoldfastError, LookupError):
    """The named object (a store, log, queue, table or segment) does not exist."""


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
    """The queue has as many messages, or bytes, as it may hold, and rejects more; nothing was written."""


class Closed(HoldfastError):
    """The store, log, queue or table was closed before this call, or while it waited."""


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
    """There was no space for a write; the log resumes when there is space again.

    Nothing of the refused append is kept. Under `batch` and `async`, records that were accepted before stay in memory,
    and are written when there is space.
    """


class WriterStopped(StorageError):
    """A sync failed, or a write that could not be undone, so no more writes are accepted until the disk works again.

    A log tries to recover at most once a second: when something is written and, under `batch` and `async`, also in the
    background. A table and transactions recover with it. After an adoption that failed, only opening the store again
    helps; the message says so.
    """


class ReplicaError(HoldfastError):
    """A replica in object storage cannot be used: no such bucket, no permission, another store's, or newer than ours.

    Trying again does not help before somebody has changed something; the message says what.
    """

    reason = "failed"
    """What is wrong in one word, without a name of anything: for metrics and for health checks without a login.

    `unavailable`, `refused`, `expired`, `credentials`, `no-bucket`, `region`, `clock`, `missing`, `damaged`,
    `other-store`, `fenced` or `failed`.
    """

    def of(self, reason: str) -> Self:
        """Set the reason; return the error."""
        self.reason = reason
        return self


class ReplicaUnavailable(ReplicaError):
    """Object storage did not answer, or asked to try again later. The request may have taken effect."""

    reason = "unavailable"


class ReplicaFenced(ReplicaError):
    """Another process owns the replica, or may own it: this one ships nothing, and confirms nothing by it."""

    reason = "fenced"


class NotConfirmed(ReplicaError):
    """With `confirm="replica"`: what was written is on the local disk, and was not seen in the bucket in time.

    It is shipped when the bucket answers again. Writing it again may duplicate it.
    """


def raised_by_handler(error: BaseException) -> bool:
    """Return whether a signal handler raised this, and not the code that it interrupted.

    A handler can raise anything, also an OSError: the system call that it interrupted has not failed. A handler is
    recognised in the traceback by its arguments, one of which is the frame that it interrupted.
    """
    trace = error.__traceback__
    while trace is not None and (inner := trace.tb_next) is not None:
        if _is_given(inner.tb_frame, trace.tb_frame):
            return True
        trace = inner
    return False


def is_interrupt(error: BaseException) -> bool:
    """Return whether this came from outside (Ctrl-C, a signal handler), and not from the interrupted code."""
    return not isinstance(error, Exception) or raised_by_handler(error)


def is_reported(error: OSError) -> bool:
    """Return whether the system reported this: it has an errno, and no signal handler raised it."""
    return error.errno is not None and not raised_by_handler(error)


def _is_given(frame: FrameType, wanted: FrameType) -> bool:
    code, values = frame.f_code, frame.f_locals
    count = code.co_argcount + code.co_kwonlyargcount
    given = [values.get(name) for name in code.co_varnames[:count]]
    if code.co_flags & _HAS_VARARGS:
        given += values.get(code.co_varnames[count]) or ()
    return any(one is wanted for one in given)


def storage_error(error: OSError, doing: str, path: str | os.PathLike[str]) -> StorageError:
    """Return the `StorageError` for an operating system's error, with advice in its message."""
    what = f"{doing} {os.fspath(path)!r} failed: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"{what}. Free some space and try again. Confirmed messages are safe")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return StorageError(
            f"{what}. Give this user permission to read it, and to write to it unless it is opened read_only=True"
        )
    if error.errno == errno.ENOTDIR:
        return StorageError(f"{what}. A part of the path is a file, not a folder: choose another path")
    return StorageError(what)
