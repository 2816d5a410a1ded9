"""Translation of RocksDB's errors, which are lines of text, into Holdfast's exceptions."""

import errno
import os
from pathlib import Path

from holdfast.base.errors import Corrupt, HoldfastError, Locked, StorageError, storage_error

__all__ = ["refusal"]

# Failures of the machine or of its configuration. RocksDB may report them as "Corruption: ...", but nothing is damaged.
_NOT_DAMAGE = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EIO,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.EFBIG,
    errno.ESTALE,
)
_LOCKED_HERE = "lock hold by current process"
_LOCKED_ELSEWHERE = "While lock file"
_CONTENDED = (os.strerror(errno.EAGAIN), os.strerror(errno.EACCES))


def refusal(text: str, doing: str, path: Path) -> HoldfastError:
    """Return the exception for an error text of RocksDB, raised while `doing` something with the database in `path`."""
    report = text.replace(str(path), "")  # the path may contain any of the words below
    if _LOCKED_HERE in report:
        return Locked(f"{str(path)!r} is open in this process already: close it there, or open with read_only=True")
    if _LOCKED_ELSEWHERE in report and any(reason in report for reason in _CONTENDED):
        return Locked(
            f"{str(path)!r} is open in another process: close it there, or open with read_only=True. "
            "To share a store between processes, run `holdfast serve`."
        )
    for code in _NOT_DAMAGE:
        if os.strerror(code) in report:
            return storage_error(OSError(code, os.strerror(code)), doing, path)
    # A database with a missing file is as damaged as one with wrong bytes.
    if "Corruption" in report or os.strerror(errno.ENOENT) in report:
        return Corrupt(f"{doing} {str(path)!r} failed, it is damaged: {text}", str(path))
    return StorageError(f"{doing} {str(path)!r} failed: {text}")
