"""A bucket in a folder, for a replica on a mounted share: durable files, and conditional writes under an flock.

obstore's store for local files creates if absent, but has no compare-and-swap, and does not sync what it writes.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TypeVar

from holdfast.base.bucket import FoundObject, ListedObject, ObjectMissing
from holdfast.base.errors import InvalidArgument, Locked, ReplicaError, ReplicaUnavailable, is_reported
from holdfast.base.files import SystemFiles, write_all

__all__ = ["FolderBucket"]

T = TypeVar("T")

_LOCK = ".lock"
_TEMPORARY = ".tmp"


class FolderBucket:
    """The files below a folder. Files: one for each object, `.lock`, and temporary ones that begin with a dot.

    `_guard` admits one thread of this process to a conditional replacement; the flock of `.lock` one process of all
    that share the folder, where the file system supports flock between machines (NFS 4 does).
    """

    def __init__(self, folder: Path) -> None:
        self.url = folder.absolute().as_uri()
        self._folder = folder
        self._files = SystemFiles()
        self._guard = threading.Lock()
        self._made: set[Path] = set()

    def __repr__(self) -> str:
        return f"FolderBucket({self.url!r})"

    def get(self, key: str) -> FoundObject:
        """As `Bucket.get`."""
        return self._translated(key, lambda: self._get(key))

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """As `Bucket.get_range`."""

        def read() -> bytes:
            with contextlib.closing(self._files.open(self._path(key), "r")) as file:
                return file.read(stop - start, start)

        return self._translated(key, read)

    def modified(self, key: str) -> int:
        """Return when an object was written, by the clock of the file system, in nanoseconds since 1970."""
        return self._translated(key, lambda: self._path(key).stat().st_mtime_ns)

    def put(self, key: str, content: bytes) -> None:
        """As `Bucket.put`."""
        self._translated(key, lambda: self._replace(self._path(key), content))

    def put_if_absent(self, key: str, content: bytes) -> str | None:
        """As `Bucket.put_if_absent`."""

        def create() -> str | None:
            path = self._path(key)
            with self._written(path, content) as temporary:
                try:
                    os.link(temporary, path)  # fails if there is one: no flock needed
                except FileExistsError:
                    return None
                self._files.sync_dir(path.parent)
            return self._get(key).etag

        return self._translated(key, create)

    def compare_and_swap(self, key: str, content: bytes, etag: str) -> str | None:
        """As `Bucket.compare_and_swap`."""

        return self._translated(key, lambda: self._swap(key, content, etag))

    def list(self, prefix: str, after: str = "") -> list[ListedObject]:
        """As `Bucket.list`."""
        return self._translated(prefix, lambda: sorted(self._walk(self._folder / prefix, after)))

    def delete(self, keys: Sequence[str]) -> None:
        """As `Bucket.delete`. Folders that became empty are removed, too."""

        def delete() -> None:
            for key in keys:
                path = self._path(key)
                with contextlib.suppress(FileNotFoundError):
                    path.unlink()
                with contextlib.suppress(OSError):  # not empty
                    while path.parent != self._folder:
                        path = path.parent
                        self._made.discard(path)
                        path.rmdir()

        self._translated(keys[0] if keys else "", delete)

    def _swap(self, key: str, content: bytes, etag: str) -> str | None:
        self._make(self._folder)
        with self._guard, contextlib.ExitStack() as ends:
            ends.callback(self._files.lock(self._folder / _LOCK).release)
            try:
                if self._get(key).etag != etag:
                    return None
            except FileNotFoundError:
                return None
            self._replace(self._path(key), content)
            return self._get(key).etag

    def _get(self, key: str) -> FoundObject:
        path = self._path(key)
        with contextlib.closing(self._files.open(path, "r")) as file:
            content = file.read(file.size(), 0)
        found = path.stat()
        return FoundObject(content, f"{found.st_mtime_ns:x}-{found.st_ino:x}-{found.st_size:x}")

    def _replace(self, path: Path, content: bytes) -> None:
        with self._written(path, content) as temporary:
            temporary.replace(path)
            self._files.sync_dir(path.parent)

    @contextlib.contextmanager
    def _written(self, path: Path, content: bytes) -> Iterator[Path]:
        """Yield a synced file with this content in the same folder; it is removed if it is still there."""
        temporary = path.with_name(f".{os.urandom(8).hex()}{_TEMPORARY}")
        for attempt in (0, 1):
            self._make(path.parent)
            try:
                file = self._files.open(temporary, "x")
                break
            except FileNotFoundError:  # the folder was empty, and another thread has removed it
                self._made.discard(path.parent)
                if attempt:
                    raise
        try:
            with contextlib.closing(file):
                write_all(file, content, 0)
                file.sync()
            yield temporary
        finally:
            temporary.unlink(missing_ok=True)

    def _make(self, folder: Path) -> None:
        if folder not in self._made:
            self._files.make_dirs(folder)
            self._made.add(folder)

    def _walk(self, folder: Path, after: str) -> Iterator[ListedObject]:
        for place, folders, names in os.walk(folder):
            folders.sort()
            for name in names:
                if not name.startswith("."):
                    path = Path(place, name)
                    key = path.relative_to(self._folder).as_posix()
                    with contextlib.suppress(FileNotFoundError):  # deleted meanwhile
                        if key > after:
                            yield ListedObject(key, path.stat().st_size)

    def _path(self, key: str) -> Path:
        parts = PurePosixPath(key).parts
        if not parts or parts[0] == "/" or ".." in parts or parts[-1].startswith("."):
            raise InvalidArgument(f"{key!r} is not the key of an object")
        return self._folder.joinpath(*parts)

    def _translated(self, key: str, call: Callable[[], T]) -> T:
        where = f"{self.url}/{key}"
        try:
            return call()
        except FileNotFoundError as error:
            raise ObjectMissing(f"{where}: there is no such object") from error
        except PermissionError as error:
            raise ReplicaError(f"{where}: {error.strerror}. Give this user permission to write in the folder").of(
                "refused"
            ) from error
        except Locked as error:
            raise ReplicaUnavailable(f"{where}: another process is changing it. It is tried again") from error
        except OSError as error:
            if not is_reported(error):
                raise
            raise ReplicaUnavailable(
                f"{where}: {error.strerror}. It is tried again; check that it is mounted"
            ) from error
