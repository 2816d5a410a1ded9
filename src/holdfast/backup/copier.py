"""Copying of files into a backup: hard links where possible, otherwise copies that are checksummed while read."""

import contextlib
import ctypes
import errno
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from holdfast.backup.file_modes import narrowed, set_mode
from holdfast.backup.manifest import FileEntry, Manifest
from holdfast.base.checksum import crc32c
from holdfast.base.errors import Corrupt
from holdfast.base.files import File, Files, SystemFiles, write_all
from holdfast.log.remote_segments import RemoteSource

__all__ = ["Copier", "Item", "Progress", "checksum_of", "copy_checked", "counting", "link", "sync_all"]

Progress = Callable[[int, int], None]
"""Called with the copied bytes and the total bytes."""
_CHUNK = 1 << 20
_SYNCING = 8
_MANY = 100
_KERNEL_THAT_TELLS = (5, 8)
"""Before this version of Linux, a sync of a whole file system did not report errors."""
_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


@dataclass(frozen=True, slots=True)
class Item:
    """A file to put into a backup under a path."""

    path: str
    content: bytes | None = None
    source: Path | None = None
    """The file to read, if there is no `content`."""
    size: int = 0
    """How many bytes of it belong to the backup."""
    segment: str = ""
    never_changes: bool = False
    """Whether it may share its blocks with the live store."""
    may_be_shorter: bool = False
    """Whether it may become shorter before it is copied: recovery may cut off its tail."""
    mode: str = ""
    """Its mode in octal digits, if that is known."""
    remote: RemoteSource | None = None
    """Where its bytes are if it is a segment that is only in the bucket of the replica; then there is no `source`."""


def link(files: Files, source: Path, target: Path) -> bool:
    """Hard-link a file; return False if the file systems do not allow it."""
    own: Callable[[Path, Path], None] | None = getattr(files, "link", None)
    if own is None and not isinstance(files, SystemFiles):
        return False  # a simulated disk
    try:
        (own or os.link)(source, target)
    except OSError as error:
        if error.errno in _NO_LINKS:
            return False
        raise
    return True


class Copier:
    """Copies or links items into a backup's folder. Files: those of the backup, except its manifest. For one thread."""

    def __init__(
        self, files: Files, folder: Path, base: Manifest | None, base_folder: Path | None, *, copy: bool
    ) -> None:
        """Copy into `folder`, with links to unchanged files of the backup `base`; with `copy`, none to the store."""
        self._files = files
        self._folder = folder
        self._base_folder = base_folder
        self._known = {} if base is None else {entry.path: entry for entry in base.files}
        self._copy = copy
        self._folders: set[Path] = {folder}
        self.written: list[Path] = []
        """The files that must be synced."""
        self.entries: list[FileEntry] = []
        self.reused = 0
        """Bytes that are shared with an earlier backup."""
        self.linked = 0
        """Bytes that are shared with the live store, and not with an earlier backup."""
        self.reused_files = 0

    @property
    def folders(self) -> list[Path]:
        """The folders that were made, the innermost first."""
        return sorted(self._folders, key=lambda folder: -len(folder.parts))

    def place(self, item: Item, step: Callable[[int], None]) -> None:
        """Add an item; `step` is called with the number of bytes of each step."""
        target = self._folder / PurePosixPath(item.path)
        self._make(target.parent)
        entry = self._reuse(item, target, step) or self._share(item, target, step) or self._write(item, target, step)
        self.entries.append(entry)

    def _reuse(self, item: Item, target: Path, step: Callable[[int], None]) -> FileEntry | None:
        known = self._known.get(item.path)
        if known is None or self._base_folder is None or known.size != item.size or (self._copy and known.linked):
            return None
        if item.content is not None:
            same = f"{crc32c(item.content):08x}" == known.checksum
        elif item.segment:
            same = item.segment == known.segment and self._ends_alike(item, self._base_folder / item.path)
        else:
            assert item.source is not None
            same = item.never_changes and checksum_of(self._files, item.source) == (known.size, known.checksum)
        before = self._base_folder / PurePosixPath(item.path)
        if not same or not self._files.exists(before) or _size(self._files, before) != known.size:
            return None
        if not link(self._files, before, target):
            return None
        step(item.size)
        self.reused += item.size
        self.reused_files += 1
        # The file keeps its old mode, in a folder that only the owner can open; a restore uses the recorded mode.
        return FileEntry(item.path, known.size, known.checksum, item.segment, known.linked, item.mode)

    def _ends_alike(self, item: Item, before: Path) -> bool:
        """Return whether two files of one segment, of equal length, have the same content.

        A store that was restored, or lost its tail in a power cut, continues to write a segment of which an earlier
        backup may have another continuation. From there on each block differs, at least in its time.
        """
        if not self._files.exists(before):
            return False
        if item.remote is not None:
            part = item.remote.entry.parts[-1]
            with contextlib.closing(self._files.open(before, "r")) as theirs:
                return crc32c(theirs.read(part.size, part.start)) == part.checksum
        assert item.source is not None
        start = max(0, item.size - _CHUNK)
        with (
            contextlib.closing(self._files.open(item.source, "r")) as ours,
            contextlib.closing(self._files.open(before, "r")) as theirs,
        ):
            return ours.read(item.size - start, start) == theirs.read(item.size - start, start)

    def _share(self, item: Item, target: Path, step: Callable[[int], None]) -> FileEntry | None:
        if self._copy or not item.never_changes or item.source is None or not link(self._files, item.source, target):
            return None
        size, checksum = checksum_of(self._files, target, step)
        self.linked += size
        return FileEntry(item.path, size, checksum, item.segment, linked=True, mode=item.mode)

    def _write(self, item: Item, target: Path, step: Callable[[int], None]) -> FileEntry:
        self.written.append(target)
        with contextlib.closing(self._files.open(target, "x")) as file:
            set_mode(self._files, target, narrowed(self._files, item.mode))  # before anything is written to it
            if item.content is not None:
                write_all(file, item.content, 0)
                step(len(item.content))
                checksum = crc32c(item.content)
                return FileEntry(item.path, len(item.content), f"{checksum:08x}", item.segment, mode=item.mode)
            if item.remote is not None:
                size, checksum = _fetch(item.remote, file, step)
            else:
                assert item.source is not None
                with contextlib.closing(self._files.open(item.source, "r")) as source:
                    size, checksum = _pour(source, file, item.size, step)
        if size < item.size and not item.may_be_shorter:
            raise Corrupt(
                f"{item.path!r} has {size} bytes, but had {item.size} when the backup began: verify the store",
                item.path,
                size,
            )
        return FileEntry(item.path, size, f"{checksum:08x}", item.segment, mode=item.mode)

    def _make(self, folder: Path) -> None:
        if folder not in self._folders:
            if isinstance(self._files, SystemFiles):
                self._files.make_dirs(folder, sync=False)  # all are synced together at the end
            else:
                self._files.make_dirs(folder)
            while folder not in self._folders:
                self._folders.add(folder)
                folder = folder.parent


def counting(progress: Progress | None, total: int) -> Callable[[int], None]:
    """Return a function that takes the bytes of each step, and reports those done so far."""
    done = 0

    def step(size: int) -> None:
        nonlocal done
        done += size
        if progress is not None:
            progress(done, total)

    return step


def checksum_of(files: Files, path: Path, step: Callable[[int], None] | None = None) -> tuple[int, str]:
    """Return the size of a file and its CRC-32C, in the form of a manifest."""
    with contextlib.closing(files.open(path, "r")) as file:
        size, checksum = _pour(file, None, file.size(), step)
    return size, f"{checksum:08x}"


def copy_checked(
    files: Files, source: Path, target: Path, step: Callable[[int], None], *, mode: str = ""
) -> tuple[int, str]:
    """Copy a whole file, with this mode if it is known; return the size and checksum of the copied bytes."""
    with contextlib.closing(files.open(source, "r")) as reading, contextlib.closing(files.open(target, "x")) as writing:
        set_mode(files, target, mode)
        size, checksum = _pour(reading, writing, reading.size(), step)
    return size, f"{checksum:08x}"


def sync_all(files: Files, paths: Sequence[Path], folders: Sequence[Path]) -> None:
    """Return when these files, and the names in these folders, the innermost first, are on disk."""

    def sync(path: Path) -> None:
        with contextlib.closing(files.open(path, "r")) as file:  # its mode may be read-only
            file.sync()

    if not isinstance(files, SystemFiles):
        for path in paths:
            sync(path)
        for folder in folders:
            files.sync_dir(folder)
    elif len(paths) < _MANY or not _sync_file_system(folders[-1]):
        # Several at a time: the file system then writes its journal once for all of them.
        with ThreadPoolExecutor(_SYNCING) as pool:
            for _ in pool.map(sync, paths):
                pass
            for _ in pool.map(files.sync_dir, folders):
                pass


def _sync_file_system(folder: Path) -> bool:
    """Sync the whole file system in one call; return False if that is not possible.

    Syncing ten thousand small files one by one took minutes.
    """
    if sys.platform != "linux" or _kernel() < _KERNEL_THAT_TELLS:
        return False
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        return False
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if syncfs(fd) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), str(folder))
    finally:
        os.close(fd)
    return True


def _kernel() -> tuple[int, ...]:
    return tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2] if part.isdigit())


def _pour(source: File, target: File | None, size: int, step: Callable[[int], None] | None) -> tuple[int, int]:
    offset, checksum = 0, 0
    while offset < size:
        data = source.read(min(_CHUNK, size - offset), offset)
        if not data:
            break
        checksum = crc32c(data, checksum)
        if target is not None:
            write_all(target, data, offset)
        offset += len(data)
        if step is not None:
            step(len(data))
    return offset, checksum


def _fetch(remote: RemoteSource, target: File, step: Callable[[int], None]) -> tuple[int, int]:
    """Copy a segment from the bucket; return its size and checksum."""
    checksum = 0
    for part in remote.entry.parts:
        with remote.pinned(part) as memory:
            data = bytes(memory[part.start : part.stop])
        checksum = crc32c(data, checksum)
        write_all(target, data, part.start)
        step(len(data))
    return remote.entry.size, checksum


def _size(files: Files, path: Path) -> int:
    with contextlib.closing(files.open(path, "r")) as file:
        return file.size()
