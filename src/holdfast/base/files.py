"""The `Files` protocol and its implementations: every file operation goes through it, so tests can inject failures."""

import contextlib
import errno
import fcntl
import mmap
import os
import stat
import sys
import time
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, Protocol, Self

from holdfast.base.errors import Locked, is_reported, storage_error
from holdfast.base.open_files import OPEN_FILES, OpenFileLimit

__all__ = [
    "Buffer",
    "File",
    "Files",
    "Lock",
    "SystemFiles",
    "UmaskFiles",
    "UnsyncedFiles",
    "forget",
    "is_open_to_group",
    "read_file",
    "replace_file",
    "translate_os_errors",
    "write_all",
    "write_all_parts",
]

Buffer = bytes | bytearray | memoryview
Mode = Literal["r", "w", "x"]


class File(Protocol):
    """An open file, read and written at offsets."""

    def read(self, size: int, offset: int) -> bytes:
        """Return up to `size` bytes; fewer only at the end of the file."""
        ...

    def write(self, data: Buffer, offset: int) -> int:
        """Write, and return how many bytes were written. Like pwrite it may write fewer than given: see `write_all`."""
        ...

    def write_parts(self, parts: Sequence[bytes | memoryview], offset: int) -> int:
        """As `write`, for several consecutive buffers, without joining them."""
        ...

    def sync(self) -> None:
        """Return when everything that was written is on stable storage."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""
        ...

    def size(self) -> int:
        """Return the file's length in bytes."""
        ...

    def map(self, size: int) -> memoryview:
        """Return the first `size` bytes as read-only memory, without a copy."""
        ...

    def close(self) -> None:
        """Close the file; idempotent."""
        ...


class Lock(Protocol):
    """A held lock on a store."""

    def release(self) -> None:
        """Release the lock, so that another process can write; idempotent."""
        ...


class Files(Protocol):
    """A file system. Implementations: `SystemFiles`, and `holdfast.testing.SimFiles` for tests."""

    open_limit: OpenFileLimit
    """Limits how many logs keep files of this file system open."""

    def open(self, path: Path, mode: Mode) -> File:
        """Open an existing file for reading (`r`) or for reading and writing (`w`), or create a new one (`x`)."""
        ...

    def list(self, path: Path) -> list[str]:
        """Return the sorted names in a folder; empty if there is no such folder."""
        ...

    def exists(self, path: Path) -> bool:
        """Return whether there is a file or folder at this path."""
        ...

    def make_dirs(self, path: Path) -> None:
        """Make a folder and its parents, each durably in its own parent."""
        ...

    def replace(self, source: Path, target: Path) -> None:
        """Rename the source to the target atomically, and replace an existing target."""
        ...

    def remove(self, path: Path) -> None:
        """Delete a file."""
        ...

    def remove_dir(self, path: Path) -> None:
        """Delete an empty folder."""
        ...

    def sync_dir(self, path: Path) -> None:
        """Return when the names in this folder are on the disk."""
        ...

    def lock(self, path: Path) -> Lock:
        """Take the lock of a store, or raise `Locked` with the holder's process id."""
        ...

    def is_locked(self, path: Path) -> bool:
        """Return whether some process holds the lock now."""
        ...

    def random_bytes(self, size: int) -> bytes:
        """Return random bytes for unique ids; injected so that a test can replay them."""
        ...

    def free(self, path: Path) -> int | None:
        """Return how many bytes are free on the disk of this folder; None if that is not known."""
        ...

    def allocate(self, path: Path, size: int) -> None:
        """Make a file at least so many bytes long, with its disk space allocated; create it if there is none.

        After an OSError an existing file has its old length, and a new one is removed.
        """
        ...


def write_all(file: File, data: Buffer, offset: int) -> None:
    """Write every byte, however many calls it takes."""
    taken = 0
    while taken < len(data):
        taken += file.write(memoryview(data)[taken:] if taken else data, offset + taken)


def write_all_parts(file: File, parts: Sequence[bytes | memoryview], offset: int) -> int:
    """Write every byte of several buffers, and return how many there were."""
    size = sum(map(len, parts))
    taken = file.write_parts(parts, offset)
    if taken < size:
        write_all(file, memoryview(b"".join(parts))[taken:], offset + taken)
    return size


def forget(memory: memoryview, start: int, stop: int) -> None:
    """Release the pages of a mapping that were read: they stay in the page cache, and no longer count as our memory."""
    mapped = memory.obj
    if isinstance(mapped, mmap.mmap):
        start = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        if stop > start:
            mapped.madvise(mmap.MADV_DONTNEED, start, stop - start)


def read_file(files: Files, path: Path) -> bytes:
    """Return the contents of a small file."""
    with contextlib.closing(files.open(path, "r")) as file:
        return file.read(file.size(), 0)


def replace_file(files: Files, path: Path, data: bytes) -> None:
    """Replace a small file durably and atomically: after a crash it has either the old contents or the new ones."""
    # Named after the process: two processes that replace the same file do not use each other's temporary file.
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    if files.exists(temporary):  # left by a crash between the two steps below
        files.remove(temporary)
    try:
        with contextlib.closing(files.open(temporary, "x")) as file:
            write_all(file, data, 0)
            file.sync()
    except OSError:
        with contextlib.suppress(OSError):  # on a full disk it must not take the last bytes
            files.remove(temporary)
        raise
    files.replace(temporary, path)
    files.sync_dir(path.parent)


@contextlib.contextmanager
def translate_os_errors(doing: str, path: Path) -> Iterator[None]:
    """Turn an OSError that the system reported into a `StorageError` that says what to do; let others pass."""
    try:
        yield
    except OSError as error:
        if not is_reported(error):
            raise
        raise storage_error(error, doing, path) from error


if sys.platform == "darwin":  # pragma: no cover - fsync on macOS leaves the data in the drive's cache

    def _sync(fd: int) -> None:
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)

else:
    _sync = os.fdatasync


class SystemFile:
    """A file of the operating system."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read(self, size: int, offset: int) -> bytes:
        data = os.pread(self._fd, size, offset)
        if len(data) == size or not data:
            return data
        parts = [data]  # a signal or a 2 GiB limit may cut a read short before the end of the file
        while data and (missing := size - sum(map(len, parts))):
            data = os.pread(self._fd, missing, offset + size - missing)
            parts.append(data)
        return b"".join(parts)

    def write(self, data: Buffer, offset: int) -> int:
        return os.pwrite(self._fd, data, offset)

    def write_parts(self, parts: Sequence[bytes | memoryview], offset: int) -> int:
        return os.pwritev(self._fd, parts, offset)

    def sync(self) -> None:
        _sync(self._fd)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def allocate(self, size: int) -> None:
        """Allocate disk space for so many bytes."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._fd, 0, size)
        else:  # macOS
            before = self.size()
            write_all(self, bytes(max(0, size - before)), before)

    def map(self, size: int) -> memoryview:
        # The mapping lives as long as a view of it does; nothing needs to be closed by hand.
        return memoryview(mmap.mmap(self._fd, size, mmap.MAP_SHARED, mmap.PROT_READ)) if size else memoryview(b"")

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # interrupted before there was anything to close
            self.close()


class SystemLock:
    """An flock on an open file: the kernel releases it when the process ends, also after a crash."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        _held.add(self)

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


_held: weakref.WeakSet[SystemLock] = weakref.WeakSet()


def _drop_locks_in_child() -> None:
    # A forked child shares the parent's lock. If it kept its copy open, the lock would outlive the parent.
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_drop_locks_in_child)

_OPEN_FLAGS = {"r": os.O_RDONLY, "w": os.O_RDWR, "x": os.O_RDWR | os.O_CREAT | os.O_EXCL}
_LOCK_TRIES = 20
_LOCK_PAUSE_S = 0.005


def is_open_to_group(folder: Path) -> bool:
    """Return whether a folder has the mode of a store that its group may read: exactly 0750."""
    try:
        return stat.S_IMODE(folder.stat().st_mode) & 0o777 == 0o750
    except OSError:
        return False


class SystemFiles:
    """The operating system's files.

    Only the owner can use new files and folders (0600, 0700), whatever the umask says; with `group_readable` the group
    can read them (0640, 0750).
    """

    open_limit = OPEN_FILES
    group_readable = False
    folder_mode, file_mode = 0o700, 0o600

    def __init__(self, *, group_readable: bool = False) -> None:
        if group_readable:
            self.group_readable = True
            self.folder_mode, self.file_mode = 0o750, 0o640

    @classmethod
    def of_store(cls, folder: Path) -> Self:
        """Return the files of a store: readable by the group if its folder is."""
        return cls(group_readable=is_open_to_group(folder))

    def open(self, path: Path, mode: Mode) -> File:
        return SystemFile(self._opened(path, mode))

    def _opened(self, path: Path, mode: Mode) -> int:
        fd = os.open(path, _OPEN_FLAGS[mode] | os.O_CLOEXEC, self.file_mode)
        if self.group_readable and mode == "x":
            os.fchmod(fd, self.file_mode)  # the umask may have removed the group's permission
        return fd

    def list(self, path: Path) -> list[str]:
        try:
            return sorted(os.listdir(path))  # noqa: PTH208 - a log may have thousands of segments, and a Path for each costs
        except FileNotFoundError:
            return []

    def exists(self, path: Path) -> bool:
        return path.exists()

    def make_dirs(self, path: Path, *, sync: bool = True) -> None:
        """As `Files.make_dirs`; without `sync` the caller syncs what it needs."""
        if path.is_dir():
            return
        if path.parent != path:
            self.make_dirs(path.parent, sync=sync)
        with contextlib.suppress(FileExistsError):
            path.mkdir(self.folder_mode)
            if self.group_readable:
                path.chmod(self.folder_mode)
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        if sync:
            self.sync_dir(path.parent)

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)

    def remove(self, path: Path) -> None:
        path.unlink()

    def remove_dir(self, path: Path) -> None:
        path.rmdir()

    def sync_dir(self, path: Path) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: Path) -> Lock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, self.file_mode)
        try:
            # A reader that calls `is_locked` holds a shared lock for an instant; that is not a second writer.
            for attempt in range(_LOCK_TRIES):
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if attempt == _LOCK_TRIES - 1:
                        raise self._locked(fd, path) from None
                    time.sleep(_LOCK_PAUSE_S)
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
            return SystemLock(fd)
        except BaseException:
            os.close(fd)
            raise

    def _locked(self, fd: int, path: Path) -> Locked:
        text = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        pid = int(text) if text.isdigit() else None
        who = "this process" if pid == os.getpid() else f"process {pid}" if pid else "another process"
        return Locked(
            f"{str(path.parent)!r} is being written by {who}: close it there, or open with read_only=True. "
            "To share a store between processes, run `holdfast serve`.",
            pid,
        )

    def is_locked(self, path: Path) -> bool:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def random_bytes(self, size: int) -> bytes:
        return os.urandom(size)

    def free(self, path: Path) -> int | None:
        try:
            disk = os.statvfs(path)
        except OSError:
            return None
        return disk.f_bavail * disk.f_frsize

    def allocate(self, path: Path, size: int) -> None:
        is_there = path.exists()
        file = self.open(path, "w" if is_there else "x")
        assert isinstance(file, SystemFile)
        before = file.size()
        try:
            file.allocate(size)
        except OSError:
            if is_there:
                file.truncate(before)
            else:
                path.unlink()
            raise
        finally:
            file.close()


class UmaskFiles(SystemFiles):
    """Files whose modes the umask decides: for files that others read, such as those of a data lake."""

    folder_mode, file_mode = 0o777, 0o666


class UnsyncedFile(SystemFile):
    """A file whose `sync` does nothing."""

    __slots__ = ()

    def sync(self) -> None:
        return


class UnsyncedFiles(SystemFiles):
    """Files that are never synced: for data that need not outlive the process."""

    def open(self, path: Path, mode: Mode) -> File:
        """As `Files.open`."""
        return UnsyncedFile(self._opened(path, mode))

    def sync_dir(self, path: Path) -> None:
        """Do nothing: names are not synced either."""
