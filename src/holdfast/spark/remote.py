"""Read-only access to copied segments behind any URL that fsspec supports."""

import errno
import io
import os
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from holdfast.base.errors import InvalidArgument
from holdfast.base.files import Buffer, File, Files, Lock, Mode, SystemFiles
from holdfast.base.open_files import OPEN_FILES

__all__ = ["RemoteFiles", "files_at", "is_url"]


def is_url(path: str) -> bool:
    """Whether this is a URL and not a local folder."""
    return "://" in path and not path.startswith("file://")


def files_at(url: str) -> Files:
    """Return the files behind this URL; without one, those of the operating system."""
    return RemoteFiles(url) if url else SystemFiles()


class RemoteFiles:
    """A read-only file system. It holds a copy that is never written to, so no lock is checked."""

    open_limit = OPEN_FILES

    def __init__(self, url: str) -> None:
        try:
            import fsspec  # noqa: PLC0415 - only needed here
        except ImportError:
            raise InvalidArgument(f"reading {url!r} needs fsspec: run pip install fsspec") from None
        self.url = url
        try:
            self._system, self._root = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise InvalidArgument(f"{url!r} cannot be read: {error}") from error

    def open(self, path: Path, mode: Mode) -> File:
        """Open a file for reading."""
        if mode != "r":
            _refuse()
        place = self._place(path)
        try:
            return _RemoteFile(self._system, place, int(self._system.size(place)))
        except FileNotFoundError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), place) from None

    def list(self, path: Path) -> list[str]:
        """Return the sorted names in a folder."""
        try:
            found = self._system.ls(self._place(path), detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted({PurePosixPath(name).name for name in found if name.rstrip("/") != self._place(path)})

    def exists(self, path: Path) -> bool:
        """Whether there is a file or folder of that name."""
        return bool(self._system.exists(self._place(path)))

    def is_locked(self, path: Path) -> bool:
        """Return False: a copy is never written to."""
        return False

    def make_dirs(self, path: Path) -> None:
        """Raise an error, as all methods that change something do."""
        _refuse()

    def replace(self, source: Path, target: Path) -> None:
        """Raise an error."""
        _refuse()

    def remove(self, path: Path) -> None:
        """Raise an error."""
        _refuse()

    def remove_dir(self, path: Path) -> None:
        """Raise an error."""
        _refuse()

    def sync_dir(self, path: Path) -> None:
        """Raise an error."""
        _refuse()

    def lock(self, path: Path) -> Lock:
        """Raise an error."""
        _refuse()

    def random_bytes(self, size: int) -> bytes:
        """Return random bytes."""
        return os.urandom(size)

    def free(self, path: Path) -> int | None:
        """Return None: the free space is unknown, and not needed."""
        return None

    def allocate(self, path: Path, size: int) -> None:
        """Raise an error."""
        _refuse()

    def _place(self, path: Path) -> str:
        return f"{self._root.rstrip('/')}{path.as_posix()}".rstrip("/")


class _RemoteFile:
    """A file behind a URL. A mapped file is fetched whole: a task reads whole segments anyway."""

    def __init__(self, system: Any, place: str, size: int) -> None:
        self._system = system
        self._place = place
        self._size = size

    def read(self, size: int, offset: int) -> bytes:
        return bytes(self._system.cat_file(self._place, start=offset, end=min(self._size, offset + size)))

    def map(self, size: int) -> memoryview:
        return memoryview(self.read(size, 0))

    def size(self) -> int:
        return self._size

    def close(self) -> None:
        pass

    def write(self, data: Buffer, offset: int) -> int:
        _refuse()

    def write_parts(self, parts: Any, offset: int) -> int:
        _refuse()

    def sync(self) -> None:
        _refuse()

    def truncate(self, size: int) -> None:
        _refuse()


def _refuse() -> NoReturn:
    raise io.UnsupportedOperation("a store at a URL is read-only")
