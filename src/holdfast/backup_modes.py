"""Who may read a file of a backup? Whoever may in the store: its mode is noted, and given to each copy."""

import errno
import os
import stat
from pathlib import Path

from holdfast.base.files import Files, SystemFiles

__all__ = ["OWNER_ONLY", "mode_of", "set_mode"]

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
