"""What tests use of files and locks behind their public interfaces."""

from typing import Any

from holdfast.base.fair_lock import FairLock
from holdfast.base.files import File, SystemFile

__all__ = ["descriptor_of", "lock_of"]


def descriptor_of(file: File) -> int:
    """Return the descriptor of a file of the operating system."""
    assert isinstance(file, SystemFile)
    return file._fd


def lock_of(turnstile: FairLock) -> Any:
    """Return the lock with which a `FairLock` protects itself."""
    return turnstile._changed.lock
