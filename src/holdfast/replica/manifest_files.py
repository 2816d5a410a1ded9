"""A store in a replica as read-only files: small files from the newest manifest, segments as parts."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from holdfast.base.errors import NotFound, ReadOnly
from holdfast.base.files import Buffer, File, Lock, Mode
from holdfast.base.open_files import OPEN_FILES
from holdfast.log.part_cache import PartCache
from holdfast.log.remote_segments import UNKNOWN, RemoteEntry, RemoteLog, RemotePart
from holdfast.log.segment_files import SegmentName
from holdfast.log.watermark import WATERMARK, Watermark, pack_watermark
from holdfast.replica.manifest import LogEntry, Manifest
from holdfast.replica.part_reader import ManifestSource, PartReader

__all__ = ["ROOT", "ManifestFiles"]

ROOT = Path("/")
"""The folder of the store in these files."""


class ManifestFiles:
    """The files of a store as of one moment of its replica, for `holdfast.open(ROOT, read_only=True, files=...)`.

    Segments are not among the files: `remote_log` returns them as remote segments, whose parts `parts` fetches when
    they are read. `refresh` moves to the newest moment, for all logs at once, and never back. Threads: any may read;
    one refreshes.
    """

    open_limit = OPEN_FILES

    def __init__(self, source: ManifestSource, reader: PartReader, parts: PartCache, origin: object = None) -> None:
        """Read the newest manifest; `parts` is a cache in front of `reader`.

        `origin` is what another process needs to open the same replica. Raises `NotFound` if there is no manifest, and
        `ReplicaError`.
        """
        self.url = source.url
        self.parts = parts
        self.origin = origin
        self._source = source
        self._reader = reader
        self.inline: dict[str, bytes] = {}
        """The contents of the parts that are in the manifest, by their keys."""
        self._remote: dict[str, tuple[LogEntry, RemoteLog]] = {}
        self._contents: dict[str, Callable[[], bytes]] = {}
        self._folders: dict[str, set[str]] = {}
        found = source.newest(None)
        if found is None:
            raise NotFound(f"there is no replica at {self.url}, or nothing was shipped to it yet: check the URL")
        self._show(found)

    def __repr__(self) -> str:
        return f"ManifestFiles({self.url!r}, moment={self.manifest.moment.name!r})"

    @property
    def is_behind(self) -> bool:
        """Whether a newer moment could not be asked for: see `ManifestSource`."""
        return self._source.is_behind

    def refresh(self) -> None:
        """Show the newest moment. Raises `ReplicaError`."""
        found = self._source.newest(self.manifest)
        if found is not None:
            self._show(found)

    def _show(self, manifest: Manifest) -> None:
        contents: dict[str, Callable[[], bytes]] = {}
        remote: dict[str, tuple[LogEntry, RemoteLog]] = {}
        for path, text in manifest.files.items():
            contents[path] = _Text(text)
        for log in manifest.logs:
            for path, text in log.files.items():
                contents[f"{log.folder}/{path}"] = _Text(text)
            if log.segments:
                contents[f"{log.folder}/{WATERMARK}"] = _Mark(log)
            known = self._remote.get(log.folder)
            remote[log.folder] = known if known is not None and known[0] == log else (log, self._remote_log(log))
        folders: dict[str, set[str]] = {"": set()}
        for path in [*contents, *(log.folder for log in manifest.logs)]:
            inner = path
            while inner:
                outer, _, name = inner.rpartition("/")
                names = folders.setdefault(outer, set())
                if name in names:
                    break
                names.add(name)
                inner = outer
        for log in manifest.logs:
            folders.setdefault(log.folder, set())
        self.inline = {
            key: part.inline for log in manifest.logs for key, part in log.parts() if part.inline is not None
        }
        self._reader.add(self.inline)
        self.manifest, self._contents, self._folders, self._remote = manifest, contents, folders, remote

    def _remote_log(self, log: LogEntry) -> RemoteLog:
        segments = [one for one in log.segments if one.parts]
        ends = [one.base for one in segments[1:]] + [log.end] * bool(segments)
        entries = tuple(
            RemoteEntry(
                SegmentName.of_stem(one.name.rpartition("/")[2]),
                int(one.id, 16),
                one.base,
                end,
                one.created,
                tuple(
                    RemotePart(part.start, part.stop, part.checksum, part.epoch, UNKNOWN, one.created)
                    for part in one.parts
                ),
            )
            for one, end in zip(segments, ends, strict=True)
        )
        return RemoteLog(self.url, log.id, entries)

    def remote_log(self, log: Path) -> RemoteLog:
        """As `ListsRemote.remote_log`."""
        found = self._remote.get(_key(log))
        return RemoteLog() if found is None else found[1]

    def open(self, path: Path, mode: Mode) -> File:
        """Open a small file for reading."""
        if mode != "r":
            self._refuse()
        content = self._contents.get(_key(path))
        if content is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return _MemoryFile(content())

    def list(self, path: Path) -> list[str]:
        """Return the sorted names in a folder."""
        return sorted(self._folders.get(_key(path), ()))

    def exists(self, path: Path) -> bool:
        """Return whether there is a file or folder at this path."""
        key = _key(path)
        return key in self._contents or key in self._folders

    def is_locked(self, path: Path) -> bool:
        """Return False: the owner of the store may write, but never into a manifest."""
        return False

    def make_dirs(self, path: Path) -> None:
        """Raise `ReadOnly`, as all methods that change something do."""
        self._refuse()

    def replace(self, source: Path, target: Path) -> None:
        """Raise `ReadOnly`."""
        self._refuse()

    def remove(self, path: Path) -> None:
        """Raise `ReadOnly`."""
        self._refuse()

    def remove_dir(self, path: Path) -> None:
        """Raise `ReadOnly`."""
        self._refuse()

    def sync_dir(self, path: Path) -> None:
        """Raise `ReadOnly`."""
        self._refuse()

    def lock(self, path: Path) -> Lock:
        """Raise `ReadOnly`."""
        self._refuse()

    def random_bytes(self, size: int) -> bytes:
        """Return random bytes."""
        return os.urandom(size)

    def free(self, path: Path) -> int | None:
        """Return None: the free space is not known."""
        return None

    def allocate(self, path: Path, size: int) -> None:
        """Raise `ReadOnly`."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ReadOnly(
            f"the replica at {self.url} can only be read: change the store where its owner runs, or through its server"
        )


class _Text:
    """The content of a small file."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __call__(self) -> bytes:
        return self._text.encode("utf-8", "surrogateescape")


class _Mark:
    """The watermark of a log: all that is in the replica is durable."""

    __slots__ = ("_log",)

    def __init__(self, log: LogEntry) -> None:
        self._log = log

    def __call__(self) -> bytes:
        log, last = self._log, self._log.segments[-1]
        return pack_watermark(Watermark(int(last.id, 16), log.end, last.size, log.end, last.size, log.last_timestamp))


class _MemoryFile:
    """A small file in memory."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def read(self, size: int, offset: int) -> bytes:
        return self._content[offset : offset + size]

    def map(self, size: int) -> memoryview:
        return memoryview(self._content)[:size]

    def size(self) -> int:
        return len(self._content)

    def close(self) -> None:
        pass

    def write(self, data: Buffer, offset: int) -> int:
        raise ReadOnly("a file of a replica can only be read")

    def write_parts(self, parts: Any, offset: int) -> int:
        raise ReadOnly("a file of a replica can only be read")

    def sync(self) -> None:
        raise ReadOnly("a file of a replica can only be read")

    def truncate(self, size: int) -> None:
        raise ReadOnly("a file of a replica can only be read")


def _key(path: Path) -> str:
    return path.as_posix().strip("/")
