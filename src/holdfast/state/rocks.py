"""State in RocksDB: a column family for each kind of row, and a write-ahead log that synced commits wait for."""

import contextlib
import ctypes
import errno
import logging
import os
import stat
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rocksdict import AccessType, Checkpoint, ColumnFamily, Options, Rdict, RdictIter, ReadOptions, WriteBatch

from holdfast.base.errors import (
    Closed,
    HoldfastError,
    InvalidArgument,
    ReadOnly,
    StorageError,
    WriterStopped,
    raised_by_handler,
)
from holdfast.base.files import SystemFiles, translate_os_errors
from holdfast.state.column_families import FAMILIES, check_family
from holdfast.state.read_only_copy import open_mirrored
from holdfast.state.rocksdb_errors import refusal
from holdfast.state.rocksdb_options import Tuning
from holdfast.state.state import Layer, Reads, Transaction, check_reads

__all__ = ["RocksState", "is_orphaned"]

logger = logging.getLogger("holdfast.state")

_FETCH_FIRST = 16
_FETCH_MOST = 1024
_KEPT_COMMITS = 4096
_SCANNED = "index"
"""The family whose entries are scanned and deleted often."""
_REMOVED_MOST = 5000
"""Deletions in it after which it is flushed: 40,000 in memory made each scan over them 6 ms slower."""
_PROBE = "recovery.probe"
_OPENING_BYTES = 1 << 20
"""The most that opening writes besides the contents of write-ahead logs: a manifest, options and an info log."""


class RocksState:
    """A `State` in the RocksDB of the folder `path`, created if there is none.

    With `read_only` it can be opened while another process writes it: it takes no lock, changes nothing, and sees the
    commits before the opening; raises `NotFound` if there is none.

    Files: RocksDB's own, in `path`. Threads: all methods may be called from any. A commit writes under `_guard` and
    syncs under `_syncing`, so that one sync serves all commits written while the last one ran. In a forked child this
    object is closed, and no RocksDB can be opened there: `is_orphaned`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        read_only: bool = False,
        families: Sequence[str] = FAMILIES,
        free_space: Callable[[], bool] = lambda: False,
    ) -> None:
        self._free_space = free_space
        self._families = frozenset(families)
        self.path = Path(path)
        self.read_only = read_only
        self._guard = threading.Lock()
        self._syncing = threading.Lock()
        self._written = 0
        """Number of commits that were written to RocksDB."""
        self._removed: Counter[str] = Counter()
        """By family: entries that were deleted since its last flush by `_tidy_up`."""
        self._synced = 0
        """Number of commits that are on disk."""
        self._stopped: WriterStopped | None = None
        """Why commits are rejected until `recover`: a write or a sync has failed."""
        self.generation = 0
        self._closed = False
        self._cursors: weakref.WeakSet[_Cursor] = weakref.WeakSet()
        self._kept: dict[str, _Cursor] = {}
        """For `first`: by family a cursor that is used again, until there were too many commits since."""
        # Only these attributes may refer to the database: any other reference would keep it open after `close`.
        self._tables: dict[str, Rdict] = {}
        self._handles: dict[str, ColumnFamily] = {}
        self._db: Rdict | None = None
        if read_only:
            open_mirrored(self.path, self._open_to_read)
        else:
            self._open_to_write()
        _open_states.add(self)

    def get(self, family: str, key: bytes) -> bytes | None:
        """As `State.get`."""
        table = self._tables.get(family)
        try:
            if table is not None:
                value: bytes | None = table.get(key)  # needs no guard: it holds the interpreter lock
                return value
        except Exception as error:
            raise self._refusal(error, "reading the state") from error
        finally:
            del table  # the traceback of an error must not keep the database open
        with self._guard:  # another thread may be reopening the state
            self._check_open()
            check_family(family)
            opened = family in self._tables
        return self.get(family, key) if opened else None

    @property
    def commits(self) -> int:
        """As `State.commits`."""
        return self._written

    def scan(
        self, family: str, start: bytes = b"", stop: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """As `State.scan`."""
        with self._guard:
            self._check_open()
            check_family(family)
            if family not in self._tables or (stop is not None and start >= stop):
                return iter(())
            cursor = _Cursor(self, self._tables[family], start, stop, reverse)
            self._cursors.add(cursor)
        return cursor.records()

    def first(self, family: str, start: bytes, stop: bytes, *, since: int = 0) -> tuple[bytes, bytes] | None:
        """As `State.first`: 3 us with a kept cursor, 15 with a new one."""
        with self._guard:
            cursor = self._kept.get(family)
            if cursor is None or cursor.commits < since:
                self._check_open()
                check_family(family)
                if family not in self._tables:
                    return None
                cursor = self._kept[family] = _Cursor(self, self._tables[family], start, None)
                self._cursors.add(cursor)
            return cursor.first(start, stop)

    def transaction(self) -> Transaction:
        """As `State.transaction`."""
        self._check_open()
        return Transaction(self)

    def ingest(self, family: str, paths: Sequence[str | os.PathLike[str]]) -> None:
        """Ingest sorted files that an `SstFileWriter` wrote: their rows are visible at once, and durable."""
        names = [os.fspath(Path(path).absolute()) for path in paths]
        with self._guard:
            self._check_open()
            check_family(family)
            if self.read_only:
                raise ReadOnly(
                    f"the state in {str(self.path)!r} is open read-only: open the store without read_only=True to write"
                )
            table = self._tables[family]
            try:
                table.ingest_external_file(names)
            except Exception as error:
                raise self._refusal(error, "ingesting files into the state") from error
            finally:
                del table  # from a traceback it would keep the database open
            self._written += 1
            kept = self._kept.pop(family, None)  # it does not see the new rows
            if kept is not None:
                kept.drop()

    def flush(self) -> None:
        """Write memory to sorted files, so that `copy_to` has little to do. Commits with `sync` wait meanwhile."""
        with self._syncing:  # `close` needs this lock, too
            self._check_open()
            try:
                for family in list(self._tables):
                    self._tables[family].flush(True)
            except Exception as error:
                raise self._refusal(error, "flushing the state") from error

    def copy_to(self, folder: Path) -> None:
        """Copy the present state to a new folder, with links to sorted files. Commits with `sync` wait meanwhile."""
        with self._syncing:
            self._check_open()
            assert self._db is not None
            copying = Checkpoint(self._db)
            try:
                copying.create_checkpoint(str(folder))
            except Exception as error:
                raise self._refusal(error, "copying the state") from error
            finally:
                del copying

    def recover(self) -> None:
        """As `State.recover`: RocksDB resumes only after the database was closed and opened again.

        First a file is written that uses as much space as opening may need: if the database could not be opened again,
        it could not be read either, while a state that rejects commits can still be read.
        """
        with self._guard, self._syncing:
            if self._closed:
                self._check_open()
            if self._db is not None and self._stopped is None:
                return
            with translate_os_errors("recovering the state", self.path):
                while True:
                    try:
                        _check_space(self.path)
                        break
                    except OSError as error:
                        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self._free_space():
                            raise
            self._release()
            self._open_to_write()
            self._stopped = None
            self._synced = self._written
            self.generation += 1
        logger.warning("state reopened after a failed write: path=%s", self.path, extra={"path": str(self.path)})

    @property
    def stopped(self) -> str:
        """As `State.stopped`."""
        return str(self._stopped or "")

    def close(self) -> None:
        """As `State.close`; the folder can be opened again at once."""
        with self._guard, self._syncing:
            self._closed = True
            if self._db is None:
                return
            if self._synced < self._written and self._stopped is None:  # for commits that wait for their sync
                with contextlib.suppress(WriterStopped):
                    self._sync_now(self._db)
            self._release()

    def _release(self) -> None:
        """Close the database and drop all references to it. Called with the locks held."""
        for cursor in list(self._cursors):
            cursor.drop()
        self._kept.clear()
        self._handles.clear()
        self._tables.clear()
        database, self._db = self._db, None
        try:
            if database is not None:
                database.close()
        except Exception as error:  # nothing is lost: the write-ahead log has everything, and opening replays it
            logger.warning(
                "state not flushed at closing: path=%s error=%s", self.path, error, extra={"path": str(self.path)}
            )
        if not self.read_only:
            _set_modes(self.path)

    def _open_to_write(self) -> None:
        with translate_os_errors("opening the state", self.path):
            SystemFiles().make_dirs(self.path)
        # RocksDB needs the names of all existing families, also those that only a later version knows. If it cannot
        # list them, opening fails with the reason, after it has checked the lock.
        families = set(self._families)
        with contextlib.suppress(Exception):
            families.update(Rdict.list_cf(str(self.path), Options(raw_mode=True)))
        self._open(self.path, families, AccessType.read_write())
        _set_modes(self.path)

    def _open_to_read(self, mirror: Path) -> None:
        try:
            families = set(Rdict.list_cf(str(mirror), Options(raw_mode=True)))
        except Exception as error:
            raise self._refusal(error, "opening the state", mirror) from error
        self._open(mirror, families, AccessType.read_only(error_if_log_file_exist=False))

    def _open(self, folder: Path, families: set[str], access: AccessType) -> None:
        if _orphaned:  # RocksDB would wait forever for threads that only the parent has
            raise StorageError(
                f"the state in {str(self.path)!r} cannot be opened in a process that was forked from one that had a "
                "state open, because RocksDB does not survive a fork: fork first, or start processes with 'spawn'"
            )
        global _used  # noqa: PLW0603
        _used = True
        tuning = Tuning(read_only=self.read_only, large="table" in self._families)
        try:
            options = {family: tuning.options() for family in families}
            self._db = Rdict(str(folder), tuning.options(), options, access)
            for family in families & self._families:
                self._tables[family] = self._db.get_column_family(family)
                self._handles[family] = self._db.get_column_family_handle(family)
        except UnicodeError as error:
            raise InvalidArgument(
                f"the path {str(self.path)!r} cannot be encoded as UTF-8, which RocksDB needs: choose another path"
            ) from error
        except Exception as error:
            why = self._refusal(error, "opening the state", folder)
            self._stopped = WriterStopped(str(why))
            raise why from error

    def apply(self, reads: Reads, layers: Sequence[Layer], sync: bool) -> None:
        """As `State.apply`."""
        with self._guard:
            self._check_open()
            if reads:
                check_reads(reads, self.get)
            if not layers:
                return
            if self.read_only:
                raise ReadOnly(
                    f"the state in {str(self.path)!r} is open read-only: open the store without read_only=True to write"
                )
            if self._stopped is not None:
                raise WriterStopped(str(self._stopped))
            self._written += 1  # before the write: a cursor with this count must not be older than the commit
            self._write(layers)
            mine = self._written
            if self._removed[_SCANNED] >= _REMOVED_MOST:
                self._tidy_up()
            if self._kept and mine % _KEPT_COMMITS == 0:  # a cursor keeps old files and memory in use
                for cursor in self._kept.values():
                    cursor.drop()
                self._kept.clear()
        if not sync:
            return
        # Outside the guard: others read and write meanwhile. A later commit with `sync` syncs this one too.
        with self._syncing:
            if self._synced >= mine:
                return
            if self._stopped is not None:
                raise WriterStopped(str(self._stopped))
            assert self._db is not None, "`close` syncs all commits"
            self._sync_now(self._db)

    def _write(self, layers: Sequence[Layer]) -> None:
        assert self._db is not None
        batch = WriteBatch(raw_mode=True)
        try:
            try:
                self._fill(batch, layers)
            except Exception as error:
                if raised_by_handler(error):
                    raise
                raise InvalidArgument("keys and values of a state must be bytes") from error
            # Without sync: `write` holds the interpreter lock, and a sync may take long. `flush_wal` releases it.
            self._db.write(batch)
        except HoldfastError:
            raise
        except Exception as error:
            why = self._refusal(error, "writing the state")
            if isinstance(why, StorageError):  # RocksDB accepts no more writes, and may or may not have this one
                self._stop(why)
            raise why from error
        finally:
            del batch  # it refers to the database, and a traceback would keep it alive

    def _fill(self, batch: WriteBatch, layers: Sequence[Layer]) -> None:
        try:
            for layer in layers:
                for family, ranges in layer.ranges.items():
                    for start, stop in ranges:
                        batch.delete_range(start, stop, self._handles[family])
                for family, points in layer.points.items():
                    # As the default, the handle is not copied for each key: 0.10 us a put against 0.19.
                    batch.set_default_column_family(self._handles[family])
                    for key, value in points.items():
                        if value is None:
                            del batch[key]
                            self._removed[family] += 1
                        else:
                            batch[key] = value
        finally:
            del batch

    def _tidy_up(self) -> None:
        """Flush a family with many deletions to a file, which RocksDB then compacts."""
        self._removed.clear()
        try:
            self._tables[_SCANNED].flush(False)
        except Exception as error:  # the commit is written; if RocksDB cannot continue, the next write fails
            if raised_by_handler(error):
                raise
            logger.warning("state not flushed: path=%s error=%s", self.path, error, extra={"path": str(self.path)})

    def _sync_now(self, database: Rdict) -> None:
        """Sync all commits. After a failure nothing more is written: pages may be lost and marked clean."""
        reached = self._written
        try:
            database.flush_wal(sync=True)
        except Exception as error:
            raise self._stop(self._refusal(error, "syncing the state")) from error
        finally:
            del database
        self._synced = reached

    def _stop(self, why: HoldfastError) -> WriterStopped:
        """Reject commits from here on."""
        logger.error("state stopped: path=%s reason=%s", self.path, why, extra={"path": str(self.path)})
        self._stopped = WriterStopped(f"{why}. The state accepts no more commits until it is opened again")
        return self._stopped

    def _refusal(self, error: Exception, doing: str, mirror: Path | None = None) -> HoldfastError:
        if raised_by_handler(error):  # a signal's handler raised after the call: RocksDB has not failed
            raise error
        text = str(error) if mirror is None else str(error).replace(str(mirror), str(self.path))
        return refusal(text, doing, self.path)

    def _check_open(self) -> None:
        if self._db is None and not self._closed and self._stopped is not None:
            raise StorageError(f"the state could not be opened again after a failed write: {self._stopped}")
        if self._db is None:
            raise Closed(f"the state in {str(self.path)!r} is closed: open the store again")

    def _disown(self) -> None:
        """Mark the state as closed without releasing the parent's database. Called in a forked child.

        RocksDB's threads do not exist in the child, so releasing it would wait forever for a flush; and it would write.
        """
        for thing in (self._db, *self._tables.values(), *self._handles.values()):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
        for cursor in list(self._cursors):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(cursor.drop()))
        self._guard, self._syncing = threading.Lock(), threading.Lock()  # a thread of the parent may hold the old ones
        self._db, self._tables, self._handles, self._kept = None, {}, {}, {}
        self._closed = True


def _set_modes(folder: Path) -> None:
    """Give RocksDB's files the mode that all files of the store have.

    RocksDB creates files with the modes of the umask, also in its own threads. A library must not change the umask of
    the process, so new files get the right mode with the next opening or closing; until then the mode of the folder
    protects them.
    """
    mode = SystemFiles.of_store(folder).file_mode
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):  # it may just be removed, or be another user's
                if entry.is_file(follow_symlinks=False) and stat.S_IMODE(entry.stat().st_mode) != mode:
                    os.chmod(entry.path, mode)  # noqa: PTH101 - the path is a str


class _Cursor:
    """A running scan. It reads ahead in growing steps, so that the guard is taken once for many records."""

    def __init__(
        self, state: RocksState, table: Rdict, start: bytes, stop: bytes | None, reverse: bool = False
    ) -> None:
        self._state = state
        self._start = start
        self._reverse = reverse
        self.commits = state._written
        """How many commits it sees."""
        options = ReadOptions()
        if stop is not None:
            # Without this the last step would skip every deleted key behind `stop`.
            options.set_iterate_upper_bound(stop)
        self._options = (
            options  # the iterator reads the bound from it without a reference: if it were freed, scans would be wrong
        )
        self._iterator: RdictIter | None = table.iter(options)
        if not reverse:
            self._iterator.seek(start)
        elif stop is None:
            self._iterator.seek_to_last()
        else:
            self._iterator.seek_for_prev(stop)  # the bound keeps it below

    def first(self, start: bytes, stop: bytes) -> tuple[bytes, bytes] | None:
        """Return the first record in a range. Called with the guard held."""
        iterator = self._iterator
        assert iterator is not None
        try:
            iterator.seek(start)
            key = iterator.key()
            if key is not None and key < stop:
                return key, iterator.value()
            if key is None:
                iterator.status()
            return None
        except Exception as error:
            raise self._state._refusal(error, "reading the state") from error
        finally:
            del iterator

    def records(self) -> Iterator[tuple[bytes, bytes]]:
        size = _FETCH_FIRST
        while True:
            records, more = self._fetch(size)
            for record in records:
                if self._state._db is None:
                    self._state._check_open()
                yield record
            if not more:
                return
            size = min(size * 4, _FETCH_MOST)

    def drop(self) -> RdictIter | None:
        """Drop the iterator, which would keep the database open."""
        iterator, self._iterator = self._iterator, None
        return iterator

    def _fetch(self, size: int) -> tuple[list[tuple[bytes, bytes]], bool]:
        with self._state._guard:
            self._state._check_open()
            iterator = self._iterator
            if iterator is None:
                raise StorageError("the state was opened again while it was scanned: begin the scan again")
            key_of, value_of = iterator.key, iterator.value
            step, start = (iterator.prev, self._start) if self._reverse else (iterator.next, b"")
            records: list[tuple[bytes, bytes]] = []
            try:
                for _ in range(size):
                    if (key := key_of()) is None or key < start:
                        # `Rdict.items()` would be faster and end here too, without reporting damage.
                        iterator.status()
                        self.drop()
                        return records, False
                    records.append((key, value_of()))
                    step()
                return records, True
            except Exception as error:
                raise self._state._refusal(error, "reading the state") from error
            finally:
                del iterator, key_of, value_of, step  # from a traceback they would keep the database open


def _check_space(folder: Path) -> None:
    """Raise OSError unless a file of the size that opening needs at most can be written and synced in the folder."""
    logs = sum(path.stat().st_size for path in folder.glob("*.log"))
    path = folder / _PROBE
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, logs + _OPENING_BYTES)
        os.pwrite(fd, bytes(4096), 0)
        os.fsync(fd)
    finally:
        os.close(fd)
        path.unlink()


_used = False
_orphaned = False
"""Whether this process was forked from one that had used RocksDB, whose threads do not exist in the child."""
_open_states: weakref.WeakSet[RocksState] = weakref.WeakSet()


def is_orphaned() -> bool:
    """Return whether this process was forked from one that had used RocksDB, and so cannot use RocksDB."""
    return _orphaned


def _disown_in_child() -> None:
    global _orphaned  # noqa: PLW0603
    _orphaned = _orphaned or _used
    for state in list(_open_states):
        state._disown()


os.register_at_fork(after_in_child=_disown_in_child)
