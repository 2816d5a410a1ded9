"""Opening of a RocksDB database that another process writes, through a temporary folder of links to its files.

If the database were opened in its own folder, even for reading, rocksdict would write its configuration and RocksDB its
info log into it; on a read-only disk it could not be opened at all. Opening as a secondary does the same. So the files
of the database are linked into a temporary folder, which is opened, and removed when all files are open.
"""

import errno
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from holdfast.base.errors import Corrupt, NotFound
from holdfast.base.files import translate_os_errors

__all__ = ["open_mirrored"]

CURRENT = "CURRENT"
_LEFT_OUT = ("LOCK", "LOG", "rocksdict-config.json")
_TRIES = 50


def open_mirrored(path: Path, open_there: Callable[[Path], None]) -> None:
    """Call `open_there` with a mirror of the database in `path`. Raises `NotFound` if there is none.

    If the writer replaces files meanwhile, so that links are broken, this tries again.
    """
    for attempt in range(_TRIES):
        names = _names(path)
        if CURRENT not in names:
            raise NotFound(f"there is no state in {str(path)!r}: open the store without read_only=True to create it")
        try:
            _open_links(path, names, open_there)
        except Corrupt:
            # A file that was added or removed changes the names; if they are the same, it is real damage.
            if _names(path) == names or attempt == _TRIES - 1:
                raise
        else:
            return


def _open_links(path: Path, names: list[str], open_there: Callable[[Path], None]) -> None:
    target = path.absolute()
    with translate_os_errors("reading the state", path), tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        mirror = Path(folder)
        for name in names:
            (mirror / name).symlink_to(target / name)
        open_there(mirror)


def _names(path: Path) -> list[str]:
    with translate_os_errors("reading the state", path):
        try:
            names = os.listdir(path)  # noqa: PTH208 - only the names are needed
        except OSError as error:
            if error.errno == errno.ENOENT:
                return []
            raise
    return sorted(name for name in names if not name.startswith(_LEFT_OUT))
