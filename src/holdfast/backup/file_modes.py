"""Modes of files in backups: recorded as in the store; a copy never has more permissions than a new file."""

import errno
import os
import stat
from pathlib import Path

from holdfast.base.files import Files, SystemFiles

__all__ = ["OWNER_ONLY", "mode_of", "narrowed", "set_mode"]

OWNER_ONLY = "700"
"""The mode of a backup's folder."""
_NO_MODES = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


def mode_of(files: Files, path: Path) -> str:
    """Return the mode of a file or folder in octal digits; empty on a simulated disk, and if it does not exist."""
    if not isinstance(files, SystemFiles):
        return ""
    try:
        return f"{stat.S_IMODE(os.stat(path).st_mode) & 0o777:o}"  # noqa: PTH116 - faster, for ten thousand files
    except FileNotFoundError:
        return ""


def set_mode(files: Files, path: Path, mode: str) -> None:
    """Set the mode of a file or folder, unless `mode` is empty, or the file system does not support modes."""
    if mode and isinstance(files, SystemFiles):
        try:
            path.chmod(int(mode, 8) & 0o777)
        except OSError as error:
            if error.errno not in _NO_MODES:
                raise


def narrowed(files: Files, mode: str, *, folder: bool = False) -> str:
    """Return a recorded mode without permissions that new files do not have; old stores may have more."""
    if not mode or not isinstance(files, SystemFiles):
        return mode
    return f"{int(mode, 8) & (files.folder_mode if folder else files.file_mode):o}"
