"""Simulated disk: loses, tears and reorders unsynced writes, and fails, fills up or stops on request."""

import errno
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Literal

from holdfast.base.clock import Clock, Duration
from holdfast.base.errors import Locked
from holdfast.base.files import Buffer, File, Lock, Mode, write_all
from holdfast.base.open_files import OpenFileLimit
from holdfast.testing.outages import FileKind, Operation, Outage, outage

__all__ = ["Crash", "CrashMode", "SimFiles"]

CrashMode = Literal["dropped", "prefix", "torn", "reordered"]
_ROOTS = (".", "/")
_DATA = ("write", "truncate")
_PAGE = 4096
_SECTOR = 512


class Crash(BaseException):
    """The simulated machine stopped. Not an Exception, so that the code under test does not catch it."""


@dataclass(slots=True, eq=False)
class _Inode:
    content: bytearray = field(default_factory=bytearray)
    """The content in the page cache."""
    durable: bytearray = field(default_factory=bytearray)
    """The content on the disk."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A change that is not on the disk yet."""

    kind: str
    path: str
    inode: _Inode | None = None
    offset: int = 0
    data: bytes = b""
    source: str | None = None


@dataclass(slots=True)
class _Fault:
    kind: str
    pattern: str
    errno: int
    skip: int
    times: int


class SimFiles:
    """A file system in memory with a simulated disk.

    Every change and every sync counts as one operation (`operations`, `trace`). Unsynced changes may be lost:
    `after_crash` returns the file system that a machine would find after a power cut. Not thread-safe.
    """

    def __init__(self, seed: int = 0, *, short_writes: float = 0.0, lose_syncs: bool = False) -> None:
        self.operations = 0
        self.open_limit = OpenFileLimit()
        self.trace: list[str] = []
        self.capacity: int | None = None
        """Bytes that fit on the disk; None for no limit."""
        self.meanwhile: Callable[[str], None] | None = None
        """Called with the path before a sync of it returns, to simulate writes that the sync does not include."""
        self._random = Random(seed)
        self._short_writes = short_writes
        self._lose_syncs = lose_syncs
        # Paths are strings here: a crash test uses thousands of them, and a Path is slow to split.
        self._names: dict[str, _Inode] = {}
        self._dirs: set[str] = set(_ROOTS)
        self._listing: dict[str, list[str]] | None = None
        """The sorted names in each folder; None when they have changed."""
        self._durable_names: dict[str, _Inode] = {}
        self._durable_dirs: set[str] = set(self._dirs)
        self._pending: list[_Change] = []
        self._locks: set[str] = set()
        self._faults: list[_Fault] = []
        self._outages: list[Outage] = []
        self._luck = Random(f"outages-{seed}")
        self._crash_at: int | None = None
        self._crashed = False

    # ------------------------------------------------------------ called by the test

    def crash_at(self, operation: int) -> None:
        """Stop the machine in the middle of this operation (the first is 1); from then on `Crash` is raised."""
        self._crash_at = operation

    def fail(self, kind: str, error: int, *, pattern: str = "*", skip: int = 0, times: int = 1) -> None:
        """Make operations of a kind (`write`, `sync`, `open`, `read`, `truncate`, ... or `*`) fail with an errno.

        `pattern` is matched against the path; the first `skip` matches succeed.
        """
        self._faults.append(_Fault(kind, pattern, error, skip, times))

    def outage(
        self,
        operations: Collection[Operation] | None = None,
        kinds: Collection[FileKind] | None = None,
        *,
        error: int = errno.ENOSPC,
        times: int | None = None,
        seconds: Duration | None = None,
        clock: Clock | None = None,
        chance: float = 1.0,
    ) -> Outage:
        """Make operations on some kinds of files fail for a while; return the outage.

        `operations` are write, sync, create, rename and truncate if None, `kinds` all if None: see `OPERATIONS`,
        `FILE_KINDS` and `kind_of`. The outage is over after so many failed operations (`times`), after so many
        `seconds` of the store's simulated `clock`, or when its method `heal` is called. With a `chance` below 1, that
        share of them fails, chosen by the seed. A sync that fails loses the pages as Linux does: they are read back as
        they were written, and never reach the disk.
        """
        self._outages = [one for one in self._outages if not one.over]
        self._outages.append(
            outage(
                operations,
                kinds,
                error=error,
                times=times,
                seconds=seconds,
                clock=clock,
                chance=chance,
                random=self._luck,
            )
        )
        return self._outages[-1]

    def heal(self) -> None:
        """End all outages and all failures of `fail`. A full disk (`capacity`) stays full."""
        self._outages.clear()
        self._faults.clear()

    def evict(self) -> None:
        """Drop clean pages from the page cache: pages that a failed sync did not write are read from the disk again.

        Pages that were written and not synced are dirty, and stay.
        """
        for inode in {id(inode): inode for inode in self._names.values()}.values():
            inode.content = bytearray(inode.durable)
        for change in self._pending:
            if change.kind in _DATA and change.inode is not None:
                _apply(change.inode.content, change)

    def after_crash(self, mode: CrashMode, seed: int = 0) -> "SimFiles":
        """Return the disk after a power cut. The mode and the seed decide which unsynced changes survive.

        `dropped`: none. `prefix`: a random number of the first ones. `torn`: the same, but the last of them only up to
        a sector boundary. `reordered`: any pages and names, regardless of their order.
        """
        random = Random(f"{mode}-{seed}")
        copies: dict[_Inode, _Inode] = {}

        def copy(inode: _Inode) -> _Inode:
            if inode not in copies:
                copies[inode] = _Inode(bytearray(inode.durable))
            return copies[inode]

        after = SimFiles(seed, short_writes=self._short_writes, lose_syncs=self._lose_syncs)
        after._random.setstate(self._random.getstate())  # otherwise a new segment would get the id of an earlier one
        after._dirs = set(self._durable_dirs)
        after._names = {path: copy(inode) for path, inode in self._durable_names.items()}
        for change in _surviving(self._pending, mode, random):
            survivor = copy(change.inode) if change.inode is not None else None
            if change.kind in ("write", "truncate"):
                assert survivor is not None
                _apply(survivor.content, change)
            else:
                _rename(after._names, after._dirs, change, survivor)
        # A file whose folder did not survive cannot be reached.
        after._dirs = _within_reach(after._dirs)
        after._names = {path: inode for path, inode in after._names.items() if _folder(path) in after._dirs}
        for inode in copies.values():
            inode.durable = bytearray(inode.content)
        after._durable_dirs = set(after._dirs)
        after._durable_names = dict(after._names)
        return after

    @classmethod
    def holding(cls, contents: Mapping[str, bytes], seed: int = 0) -> "SimFiles":
        """Return a disk that holds these files: the inverse of `snapshot`."""
        files = cls(seed)
        for path, content in contents.items():
            name = str(Path(path))
            files._names[name] = _Inode(bytearray(content), bytearray(content))
            while (name := _folder(name)) not in files._dirs:
                files._dirs.add(name)
        files._durable_names, files._durable_dirs = dict(files._names), set(files._dirs)
        return files

    def snapshot(self) -> dict[str, bytes]:
        """Return every file with its content."""
        return {
            path: bytes(self._names[path].content) for path in sorted(self._names, key=lambda path: path.split("/"))
        }

    def folders(self) -> list[str]:
        """Return every folder, also empty ones."""
        return sorted(self._dirs)

    def content(self, path: str | Path) -> bytearray:
        """Return a file's bytes, on disk and in memory, for a test to damage."""
        inode = self._names[str(Path(path))]
        inode.durable = inode.content
        return inode.content

    # ------------------------------------------------------------ called by the code under test

    def open(self, path: Path, mode: Mode) -> File:
        """As `Files.open`."""
        return self._open(str(path), mode)

    def list(self, path: Path) -> list[str]:
        """As `Files.list`."""
        name = str(path)
        self._check("list", name)
        if self._listing is None:
            self._listing = {}
            for entry in sorted([*self._names, *self._dirs.difference(_ROOTS)]):
                self._listing.setdefault(_folder(entry), []).append(entry.rpartition("/")[2])
        return self._listing.get(name, [])[:]

    def exists(self, path: Path) -> bool:
        """As `Files.exists`."""
        name = str(path)
        return name in self._names or name in self._dirs

    def make_dirs(self, path: Path) -> None:
        """As `Files.make_dirs`."""
        self._make_dirs(str(path))

    def replace(self, source: Path, target: Path) -> None:
        """As `Files.replace`."""
        old, new = str(source), str(target)
        self._check("replace", new)
        self._change(_Change("replace", new, self._names[old], source=old))

    def remove(self, path: Path) -> None:
        """As `Files.remove`."""
        name = str(path)
        self._check("remove", name)
        if name not in self._names:
            raise _error(errno.ENOENT, name)
        self._change(_Change("remove", name))

    def remove_dir(self, path: Path) -> None:
        """As `Files.remove_dir`."""
        name = str(path)
        self._check("rmdir", name)
        if self.list(path):
            raise _error(errno.ENOTEMPTY, name)
        self._change(_Change("rmdir", name))

    def sync_dir(self, path: Path) -> None:
        """As `Files.sync_dir`."""
        self._sync_dir(str(path))

    def lock(self, path: Path) -> Lock:
        """As `Files.lock`."""
        name = str(path)
        if name in self._locks:
            raise Locked(
                f"{_folder(name)!r} is being written by this process: close it there, or open with read_only=True",
                os.getpid(),
            )
        if name not in self._names:
            self._open(name, "x")
        self._locks.add(name)
        return _SimLock(self, name)

    def is_locked(self, path: Path) -> bool:
        """As `Files.is_locked`."""
        return str(path) in self._locks

    def random_bytes(self, size: int) -> bytes:
        """As `Files.random_bytes`, from the seed."""
        return self._random.randbytes(size)

    def free(self, path: Path) -> int | None:
        """As `Files.free`."""
        if self.capacity is None:
            return None
        return max(0, self.capacity - sum(len(file.content) for file in self._names.values()))

    def allocate(self, path: Path, size: int) -> None:
        """As `Files.allocate`."""
        is_there = str(path) in self._names
        file = self._open(str(path), "w" if is_there else "x")
        before = file.size()
        try:
            free = self.free(path)
            if free is not None and free + before < size:
                raise _error(errno.ENOSPC, str(path))
            write_all(file, bytes(max(0, size - before)), before)
        except OSError:
            if is_there:
                file.truncate(before)
            else:
                self.remove(path)
            raise

    # ------------------------------------------------------------ private

    def _open(self, path: str, mode: Mode) -> "_SimFile":
        self._check("open", path)
        if mode == "x":
            for one in self._outages:
                if one.strikes("create", path):
                    raise _error(one.error, path)
            if path in self._names:
                raise _error(errno.EEXIST, path)
            if _folder(path) not in self._dirs:
                raise _error(errno.ENOENT, path)
            inode = _Inode()
            self._change(_Change("create", path, inode))
            return _SimFile(self, path, inode)
        if path not in self._names:
            raise _error(errno.ENOENT, path)
        return _SimFile(self, path, self._names[path])

    def _make_dirs(self, path: str) -> None:
        if path in self._dirs:
            return
        if path in self._names:
            raise _error(errno.ENOTDIR, path)
        folder = _folder(path)
        self._make_dirs(folder)
        self._check("mkdir", path)
        self._change(_Change("mkdir", path))
        self._sync_dir(folder)

    def _check(self, kind: str, path: str) -> None:
        """Raise the error that the test planned for this operation, if any."""
        if self._crashed:
            raise Crash
        for one in self._outages:
            if one.strikes(kind, path):
                raise _error(one.error, path)
        for fault in self._faults:
            if fault.kind in (kind, "*") and fault.times and fnmatch(path, fault.pattern):
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                raise _error(fault.errno, path)

    def _count(self, kind: str, path: str) -> None:
        self.operations += 1
        self.trace.append(f"{kind} {path}")
        if self.operations == self._crash_at:
            self._crashed = True
            raise Crash

    def _change(self, change: _Change) -> None:
        # The change is pending before the machine stops: `after_crash` decides whether it survives.
        self._pending.append(change)
        if change.kind in _DATA:
            assert change.inode is not None
            _apply(change.inode.content, change)
        else:
            _rename(self._names, self._dirs, change, change.inode)
            self._listing = None
        self._count(change.kind, change.path)

    def _write(self, path: str, inode: _Inode, data: Buffer, offset: int) -> int:
        self._check("write", path)
        raw = bytes(data)
        if self.capacity is not None:
            used = sum(len(file.content) for file in self._names.values())
            growth = max(0, offset + len(raw) - len(inode.content))
            missing = growth - max(0, self.capacity - used)
            if missing > 0:
                raw = raw[: max(0, len(raw) - missing)]
                if not raw:
                    raise _error(errno.ENOSPC, path)
        if len(raw) > 1 and self._random.random() < self._short_writes:
            raw = raw[: self._random.randrange(1, len(raw))]
        self._change(_Change("write", path, inode, offset, raw))
        return len(raw)

    def _sync(self, path: str, inode: _Inode) -> None:
        mine = [change for change in self._pending if change.inode is inode and change.kind in _DATA]
        others = [change for change in self._pending if change.inode is not inode or change.kind not in _DATA]
        try:
            self._check("sync", path)
        except OSError:
            # As on Linux: the pages are marked clean, are still read back, and never reach the disk. A truncation is in
            # the journal of the file system, and not lost with them.
            lost = {id(change) for change in mine if change.kind == "write"}
            self._pending = [change for change in self._pending if id(change) not in lost]
            raise
        self._count("sync", path)
        if not self._lose_syncs:
            self._pending = others
            for change in mine:
                _apply(inode.durable, change)
        if self.meanwhile is not None:
            self.meanwhile(path)

    def _sync_dir(self, path: str) -> None:
        self._check("sync_dir", path)
        self._count("sync_dir", path)
        if self._lose_syncs:
            return
        others = []
        for change in self._pending:
            if change.kind not in _DATA and _folder(change.path) == path:
                _rename(self._durable_names, self._durable_dirs, change, change.inode)
            else:
                others.append(change)
        self._pending = others


class _SimFile:
    def __init__(self, files: SimFiles, path: str, inode: _Inode) -> None:
        self._files = files
        self._path = path
        self._inode = inode

    def read(self, size: int, offset: int) -> bytes:
        self._files._check("read", self._path)
        return bytes(memoryview(self._inode.content)[offset : offset + size])

    def write(self, data: Buffer, offset: int) -> int:
        return self._files._write(self._path, self._inode, data, offset)

    def write_parts(self, parts: Sequence[bytes | memoryview], offset: int) -> int:
        return self._files._write(self._path, self._inode, b"".join(parts), offset)

    def sync(self) -> None:
        self._files._sync(self._path, self._inode)

    def truncate(self, size: int) -> None:
        self._files._check("truncate", self._path)
        self._files._change(_Change("truncate", self._path, self._inode, size))

    def size(self) -> int:
        return len(self._inode.content)

    def map(self, size: int) -> memoryview:
        self._files._check("read", self._path)
        return memoryview(bytes(memoryview(self._inode.content)[:size]))

    def close(self) -> None:
        pass


class _SimLock:
    def __init__(self, files: SimFiles, path: str) -> None:
        self._files = files
        self._path = path

    def release(self) -> None:
        self._files._locks.discard(self._path)


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)  # a FileNotFoundError for ENOENT, and so on


def _folder(path: str) -> str:
    """As `Path.parent`."""
    above, slash, _ = path.rpartition("/")
    return above or slash or "."


def _within_reach(dirs: set[str]) -> set[str]:
    """Return the folders whose parents all exist."""
    reached = dirs.intersection(_ROOTS)
    for path in sorted(dirs.difference(_ROOTS), key=len):
        if _folder(path) in reached:
            reached.add(path)
    return reached


def _apply(content: bytearray, change: _Change) -> None:
    if change.kind == "truncate":
        del content[change.offset :]
        content.extend(bytes(change.offset - len(content)))
        return
    if len(content) < change.offset:
        content.extend(bytes(change.offset - len(content)))
    content[change.offset : change.offset + len(change.data)] = change.data


def _rename(names: dict[str, _Inode], dirs: set[str], change: _Change, inode: _Inode | None) -> None:
    if change.kind == "mkdir":
        dirs.add(change.path)
    elif change.kind == "rmdir":
        dirs.discard(change.path)
    elif change.kind == "remove":
        names.pop(change.path, None)
    else:
        assert inode is not None
        if change.source is not None:
            names.pop(change.source, None)
        names[change.path] = inode


def _surviving(pending: list[_Change], mode: CrashMode, random: Random) -> list[_Change]:
    if mode == "dropped" or not pending:
        return []
    if mode == "reordered":
        pieces = [piece for change in pending for piece in _pages(change)]
        return [piece for piece in pieces if random.random() < 0.5]
    kept = pending[: random.randint(1, len(pending))]
    if mode == "torn" and kept[-1].kind == "write":
        last = kept[-1]
        edges = [edge for edge in range(-last.offset % _SECTOR, len(last.data), _SECTOR) if edge]
        cut = random.choice(edges) if edges else 0
        kept[-1] = _Change("write", last.path, last.inode, last.offset, last.data[:cut])
    return kept


def _pages(change: _Change) -> list[_Change]:
    if change.kind != "write":
        return [change]
    cuts = [0, *range(_PAGE - change.offset % _PAGE, len(change.data), _PAGE), len(change.data)]
    return [
        _Change("write", change.path, change.inode, change.offset + start, change.data[start:stop])
        for start, stop in pairwise(cuts)
        if stop > start
    ]
