"""Translation of RocksDB's errors, which are lines of text, into Holdfast's exceptions."""

import errno
import os
from pathlib import Path

from holdfast.base.errors import Corrupt, HoldfastError, Locked, StorageError, storage_error

__all__ = ["refusal"]

# Failures of the machine or of its set-up. RocksDB may wrap them in "Corruption: ...", yet no byte is damaged.
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
    told = text.replace(str(path), "")  # a path may say anything
    if _LOCKED_HERE in told:
        return Locked(f"{str(path)!r} is open in this process already: close it there, or open with read_only=True")
    if _LOCKED_ELSEWHERE in told and any(reason in told for reason in _CONTENDED):
        return Locked(f"{str(path)!r} is open in another process: close it there, or open with read_only=True")
    for code in _NOT_DAMAGE:
        if os.strerror(code) in told:
            return storage_error(OSError(code, os.strerror(code)), doing, path)
    # A database that lacks one of its files is as damaged as one with wrong bytes in it.
    if "Corruption" in told or os.strerror(errno.ENOENT) in told:
        return Corrupt(f"{doing} {str(path)!r} failed, it is damaged: {text}", str(path))
    return StorageError(f"{doing} {str(path)!r} failed: {text}")
