"""Modes of files in backups: each is noted as it was in the store; a copy never has a wider one than a new file."""

import errno
import os
import stat
from pathlib import Path

from holdfast.base.files import Files, SystemFiles

__all__ = ["OWNER_ONLY", "mode_of", "narrowed", "set_mode"]

OWNER_ONLY = "700"
"""Of a folder."""
_NO_MODES = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


def mode_of(files: Files, path: Path) -> str:
    """A file's or folder's mode, in octal digits; empty on a simulated disk, and where there is none yet."""
    if not isinstance(files, SystemFiles):
        return ""
    try:
        return f"{stat.S_IMODE(os.stat(path).st_mode) & 0o777:o}"  # noqa: PTH116 - of ten thousand files this is quicker
    except FileNotFoundError:
        return ""


def set_mode(files: Files, path: Path, mode: str) -> None:
    """Give a file or folder this mode, unless it is empty, or its file system knows none."""
    if mode and isinstance(files, SystemFiles):
        try:
            path.chmod(int(mode, 8) & 0o777)
        except OSError as error:
            if error.errno not in _NO_MODES:
                raise


def narrowed(files: Files, mode: str, *, folder: bool = False) -> str:
    """A noted mode without what a file or folder that is made today does not have; an old store's may be wider."""
    if not mode or not isinstance(files, SystemFiles):
        return mode
    return f"{int(mode, 8) & (files.folder_mode if folder else files.file_mode):o}"
