"""What a store has on its disk now, as a manifest and as bytes of segments: for readers at its server."""

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import holdfast
from holdfast.base.errors import Closed, Corrupt, InvalidArgument, NotFound, StorageError
from holdfast.base.files import SystemFiles, read_file, translate_os_errors
from holdfast.base.names import escape_name
from holdfast.log.log import Log
from holdfast.log.log_file import read_identity
from holdfast.log.remote_segments import NO_CHECKSUM, REMOTE
from holdfast.log.segment import Segment
from holdfast.log.watermark import read_watermark
from holdfast.replica.manifest import LogEntry, Manifest, Moment, Part, SegmentEntry
from holdfast.replica.parts import block_end, plan_parts
from holdfast.store_layout import JOURNALS, LOGS
from holdfast.table_registry import TABLES

__all__ = ["READ_MAX", "SERVED", "Kind", "PresentStore"]

Kind = Literal["log", "queue", "table"]
SERVED = 0
"""The epoch of parts that a server cuts out of its segments: they are no objects of a bucket."""
READ_MAX = 16 << 20
"""How many bytes one call of `read` returns at most."""
_FOLDER = re.compile(r"[\w%~-][\w%~.-]*\Z", re.ASCII)
_ROOTS: dict[str, Kind] = {LOGS: "log", JOURNALS: "queue", TABLES: "table"}
_PLANS_MAX = 10_000


class PresentStore:
    """Reads the durable records of a store that this process writes, without its locks. Threads: any.

    Each call opens the store read-only, as another process would.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._files = SystemFiles.of_store(path)
        self._plans: dict[tuple[int, int], tuple[Part, ...]] = {}
        """By segment and size: the parts of a segment."""

    def manifest(self, allows: Callable[[Kind, str], bool], time: int) -> Manifest:
        """Return what may be read: journals and tables first, so that logs have all that these refer to.

        `allows` says whether a log, queue or table may be read. A log is that of its name; a queue only its journal.
        """
        logs: list[LogEntry] = []
        with holdfast.open(self._path, read_only=True) as store:
            found: list[tuple[Kind, list[str], Callable[[str], Log]]] = [
                ("queue", store.queues(), store.journal),
                ("table", store.tables(), store.table_log),
                ("log", store.logs(), store.log),
            ]
            for kind, names, find in found:
                for name in names:
                    if allows(kind, name):
                        # Deleted meanwhile, or created and not opened yet.
                        with contextlib.suppress(NotFound, FileNotFoundError, StorageError, Closed):
                            log = find(name)
                            try:
                                logs.append(self._entry(log, kind))
                            finally:
                                if kind != "log":
                                    log.close()
        logs.sort(key=lambda one: one.folder)
        return Manifest("", Moment(SERVED, 0, time), holdfast.__version__, "", tuple(logs), {})

    def named(self, root: str, folder: str) -> tuple[Kind, str]:
        """Return what is in a folder of the store, such as `logs` and `orders`: its kind and its name.

        Raises `NotFound` if there is none.
        """
        kind = _ROOTS.get(root)
        known = None
        if kind is not None and _FOLDER.match(folder):
            with contextlib.suppress(Corrupt):
                known = read_identity(self._files, self._path / root / folder)
        if kind is None or known is None or escape_name(known.name) != folder:
            raise NotFound(f"there is no log in {root}/{folder}")
        return kind, known.name

    def read(self, root: str, name: str, log_id: str, segment_id: str, start: int, stop: int) -> bytes:
        """Return bytes of a segment of a log, of a queue's journal (`journals`) or of a table, as they are on disk.

        Raises `NotFound` if there is no such segment any more, or fewer durable bytes.
        """
        if not 0 <= start < stop or stop - start > READ_MAX:
            raise InvalidArgument(f"ask for 1 to {READ_MAX} bytes, not for {start} to {stop}")
        with holdfast.open(self._path, read_only=True) as store:
            find: dict[str, Callable[[str], Log]] = {
                LOGS: store.log,
                JOURNALS: store.journal,
                TABLES: store.table_log,
            }
            log = find[root](name)
            try:
                found = [one for one in log.reader.segments(durable=True) if f"{one.segment_id:016x}" == segment_id]
                if log.id.hex() != log_id or not found or found[-1].limit < stop:
                    raise NotFound(f"{root} {name!r} has no bytes {start} to {stop} of the segment {segment_id}")
                with translate_os_errors("reading", found[-1].path):
                    return b"".join(_bytes_of(self._files, found[-1], start, stop))
            finally:
                if root != LOGS:
                    log.close()

    def _entry(self, log: Log, kind: str) -> LogEntry:
        root = next(root for root, one in _ROOTS.items() if one == kind)
        folder = f"{root}/{log.folder.name}"
        segments = log.reader.segments(durable=True)
        last = segments[-1] if segments else None
        mark = read_watermark(self._files, log.folder)
        return LogEntry(
            folder,
            log.id.hex(),
            segments[0].base if segments else 0,
            0 if last is None else last.base if last.end is None else last.end,
            0 if last is None else last.created if mark is None else max(last.created, mark.last_timestamp),
            tuple(
                SegmentEntry(
                    str(one.path)[len(str(one.log)) + 1 :].rpartition(".")[0],
                    f"{one.segment_id:016x}",
                    one.base,
                    one.created,
                    self._parts(one),
                )
                for one in segments
            ),
            dict(self._small_files(log.folder)),
        )

    def _parts(self, segment: Segment) -> tuple[Part, ...]:
        if segment.remote is not None:
            return tuple(Part(one.start, one.stop, one.checksum, one.epoch) for one in segment.remote.entry.parts)
        key = segment.segment_id, segment.limit
        found = self._plans.get(key)
        if found is None:
            ranges = plan_parts((), segment.limit, lambda start, limit: block_end(segment, start, limit)).ranges
            found = tuple(Part(start, stop, NO_CHECKSUM, SERVED) for start, stop in ranges)
            if len(self._plans) >= _PLANS_MAX:
                self._plans.clear()
            self._plans[key] = found
        return found

    def _small_files(self, folder: Path) -> Iterator[tuple[str, str]]:
        for name in self._files.list(folder):
            if name.endswith(".json") and name != REMOTE:
                with contextlib.suppress(FileNotFoundError):
                    yield name, read_file(self._files, folder / name).decode("utf-8", "surrogateescape")


def _bytes_of(files: SystemFiles, segment: Segment, start: int, stop: int) -> Iterator[bytes]:
    if segment.remote is None:
        try:
            with contextlib.closing(files.open(segment.path, "r")) as file:
                yield file.read(stop - start, start)
            return
        except FileNotFoundError:
            if segment.find_remote() is None:
                raise NotFound(f"the segment {segment.name.stem} was dropped by retention") from None
    assert segment.remote is not None
    for part in segment.remote.entry.parts:
        if part.start < stop and part.stop > start:
            with segment.remote.pinned(part) as memory:
                yield bytes(memory[max(start, part.start) : min(stop, part.stop)])
