"""The store as a shipper sees it: all logs cut at one moment, what has moved since the last one, and small files."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.backup.file_modes import mode_of
from holdfast.base.errors import Closed, Locked, StorageError
from holdfast.base.files import read_file, translate_os_errors
from holdfast.incoming_batches import BatchIngester
from holdfast.log.batch_inbox import BatchInbox
from holdfast.log.consumer_offsets import FOLDER as TAILERS
from holdfast.log.index import Checkpoint
from holdfast.log.log import Log
from holdfast.log.log_file import META
from holdfast.log.recovery import load_segments, survey
from holdfast.log.remote_segments import REMOTE
from holdfast.log.segment import Segment
from holdfast.log.snapshot import LogSnapshot, snapshot_logs
from holdfast.log.watermark import read_watermark
from holdfast.log_registry import LogRegistry
from holdfast.queue_registry import QueueRegistry
from holdfast.replica.manifest import LogEntry
from holdfast.store_context import StoreContext
from holdfast.store_layout import DELETING, JOURNALS, KNOWN, LOGS
from holdfast.table_registry import TABLES, TableRegistry
from holdfast.transactions import TRANSACTIONS, TransactionCoordinator

__all__ = ["Cut", "LogCut", "ReplicaSource", "SegmentCut"]

_ROOTS = (LOGS, JOURNALS, TABLES)
_REREAD_ROUNDS = 60
"""Settings of a log and positions of its readers that change without a record are noticed within so many cuts."""
_REREAD_LEAST = 64
_REREAD_S = 1.0
"""While calls wait, rounds are much shorter than this, and the files are read in one of them only: opening and reading
each releases the interpreter, and with 256 threads it took a while to get it back."""
_LOOSE = ("tokens.json",)
_JSON = ".json"
_DONE = "done"


@dataclass(frozen=True, slots=True)
class SegmentCut:
    """A segment up to a moment: this many of its bytes are on disk, and never change."""

    segment: Segment
    size: int

    @property
    def id(self) -> str:
        """The id of the segment, as in manifests."""
        return f"{self.segment.segment_id:016x}"

    @property
    def name(self) -> str:
        """Its path in the folder of the log, without a suffix."""
        # Of texts: `relative_to` took 0.2 ms for each round in which calls wait.
        return str(self.segment.path)[len(str(self.segment.log)) + 1 :].rpartition(".")[0]


@dataclass(slots=True)
class LogCut:
    """A log up to a moment."""

    folder: str
    id: str
    start: int
    end: int
    last_timestamp: int
    files: Mapping[str, str]
    segments: tuple[SegmentCut, ...] | None
    """None: as in the last manifest."""


@dataclass(slots=True)
class Cut:
    """All logs of a store at one moment."""

    time: int = 0
    monotonic: float = 0.0
    mode: str = ""
    logs: list[LogCut] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)


class ReplicaSource:
    """Cuts all logs of a store at one moment. For one thread; takes the locks that a backup takes.

    Logs that are not open in the process are read from disk once, and again after they were open.
    """

    def __init__(
        self,
        shared: StoreContext,
        queues: QueueRegistry,
        logs: LogRegistry,
        tables: TableRegistry,
        transactions: TransactionCoordinator,
        ingester: BatchIngester,
    ) -> None:
        self._shared = shared
        self._files, self._clock, self._path = shared.files, shared.clock, shared.path
        self._guard = shared.guard
        self._logs = logs
        self._openings = logs.note_openings()
        self._queues = queues
        self._tables = tables
        self._transactions = transactions
        self._ingester = ingester
        self._closed: dict[str, tuple[int, LogCut | None]] = {}
        """Logs that are not open, by folder: as they were when they had been opened so many times."""
        self._settings: dict[str, Mapping[str, str]] = {}
        """The small files of each log, when they were read last."""
        self._settings_of: dict[str, int] = {}
        """How many times each log had been opened then."""
        self._reread_at = float("-inf")
        """When they are read again while calls wait."""
        self._turn: list[str] = []
        """Folders whose small files are read next, although the logs may not have moved."""
        self._open: dict[str, Log] = {}
        """The logs that were open at the last cut or look, by folder."""
        self._names_from = len(str(self._path)) + 1
        self._listed: list[str] = []
        """The folders of all logs at the last cut."""
        self._seen: object = None
        """What `has_news` compares: folders, how often logs were opened, and files that are of no log."""
        self.looked_at = 0, 0.0
        """When `look` was called last, by both clocks."""

    @property
    def inbox(self) -> BatchInbox:
        """Where batches of other processes are committed."""
        return self._ingester.incoming

    def look(self) -> None:
        """Find the logs that are open now, for `unshipped`, `hold` and `has_news`: also while the bucket is away."""
        self.looked_at = self._clock.time_ns(), self._clock.monotonic()
        with self._guard.lock:
            if not self._guard.closed:
                journals = [queue.history.hand_over() for queue in self._queues.by_name.values() if not queue.closed]
                self._open = {self._name(log.folder): log for log in (*self._open_logs(), *journals)}

    def has_news(self, known: Mapping[str, LogEntry]) -> bool:
        """Return whether anything may have changed between the last cut and the last `look`.

        Much cheaper than a cut, which takes the locks of all logs: 15 ms for a store of 1,000 queues, where a round in
        which one log has moved takes 300.
        """
        with translate_os_errors("shipping", self._path):
            before = {folder: self._settings.get(folder) for folder in self._open}
            self._read_settings(known)
            seen = (self._folders(), self._logs.opened, dict(self._loose_files()))
        is_same = seen == self._seen and all(files is self._settings[folder] for folder, files in before.items())
        self._seen = seen
        return not is_same or any(_has_moved(log, known.get(folder)) for folder, log in self._open.items())

    def take(self, known: Mapping[str, LogEntry], *, is_urgent: bool = False) -> Cut:
        """Cut the store; `known` are the logs of the last manifest by folder. With `is_urgent` calls wait for it.

        Raises `Locked` while another process commits a batch, and `StorageError` if something cannot be made durable.
        """
        with translate_os_errors("shipping", self._path):
            return self._take(known, is_urgent=is_urgent)

    def _take(self, known: Mapping[str, LogEntry], *, is_urgent: bool) -> Cut:
        for folder in self._listed or self._folders():
            if folder not in self._open:
                with contextlib.suppress(OSError):  # without the guard, because that may read much: it may be deleted
                    self._read_closed(folder)
        early = {queue: queue.history.hand_over() for queue in list(self._queues.by_name.values()) if not queue.closed}
        cut = Cut(mode=mode_of(self._files, self._path))
        with contextlib.ExitStack() as incoming:
            self._exclude_batches(incoming)
            with self._guard.lock:
                if self._guard.closed:
                    raise Closed(f"the store {str(self._path)!r} is closed")
                queues = [queue for queue in self._queues.by_name.values() if not queue.closed]
                journals = [early.get(queue) or queue.history.hand_over() for queue in queues]
                self._open = {self._name(log.folder): log for log in (*self._open_logs(), *journals)}
                # Before the cut: positions of readers must not be newer than the logs.
                self._read_settings(known, is_urgent=is_urgent)
                cut.files = dict(self._loose_files())
                cut.time, cut.monotonic = self._clock.time_ns(), self._clock.monotonic()
                snapshots, _ = snapshot_logs(list(self._open.values()))
                with self._unpinned_after_error(snapshots):
                    is_open = {self._name(one.log.folder) for one in snapshots}
                    self._listed = self._folders()
                    closed = [self._read_closed(folder) for folder in self._listed if folder not in is_open]
        cut.logs = [one for one in closed if one is not None]
        cut.logs += self._settle(snapshots, known)
        cut.logs.sort(key=lambda one: one.folder)
        self._forget({one.folder for one in cut.logs})
        return cut

    def _forget(self, present: set[str]) -> None:
        """Forget logs that were deleted: some stores make and delete a queue for each request."""
        present = present | self._open.keys()
        for folder in [*self._closed.keys() - present, *self._settings.keys() - present]:
            self._closed.pop(folder, None)
            self._settings.pop(folder, None)
            self._settings_of.pop(folder, None)
        for path in list(self._openings):
            if self._name(path) not in present:
                self._openings.pop(path, None)

    def unshipped(self, known: Mapping[str, LogEntry]) -> tuple[int, int]:
        """Return how many records and bytes of the open logs are not in these entries. Approximate: takes no lock."""
        records = size = 0
        for folder, log in list(self._open.items()):
            entry = known.get(folder)
            if log.closed or not _has_moved(log, entry):
                continue
            records += max(0, log.end - max(log.start, entry.end if entry is not None else 0))
            shipped = {} if entry is None else {one.id: one.size for one in entry.segments}
            for segment in log.reader.segments():
                size += max(0, segment.limit - shipped.get(f"{segment.segment_id:016x}", 0))
        return records, size

    def hold(self, known: Mapping[str, LogEntry] | None) -> None:
        """Let retention keep the records that are not in these entries, as long as the disk has space; None: drop them.

        Not those of journals and of the transactions: the last moment has all that is needed of them.
        """
        for folder, log in list(self._open.items()):
            if folder.startswith((f"{LOGS}/", f"{TABLES}/")):
                entry = None if known is None else known.get(folder)
                log.retention.keep_from = None if known is None else entry.end if entry is not None else 0

    def has_remote(self) -> bool:
        """Return whether some log has segments that are not on the local disk."""
        return any(self._files.exists(self._path / folder / REMOTE) for folder in self._folders())

    def tiered(self) -> list[tuple[str, Log]]:
        """Return the open logs with a local retention, by folder."""
        return [(folder, log) for folder, log in self._open.items() if log.tiering.policy is not None]

    def dropped(self, known: Mapping[str, LogEntry], cut: Cut) -> int:
        """Return how many records of logs were dropped between these entries and the cut, and were never shipped."""
        count = 0
        for log in cut.logs:
            entry = known.get(log.folder)
            if entry is not None and log.folder.startswith(f"{LOGS}/") and entry.id == log.id:
                count += max(0, log.start - entry.end)
        return count

    def _exclude_batches(self, held: contextlib.ExitStack) -> None:
        """Let no batch be adopted: its records and the note that it was adopted belong to one moment."""
        incoming = self._ingester.incoming
        if self._files.exists(incoming.folder):
            held.callback(incoming.guard().release)
            if incoming.plan() is not None:
                raise Locked("a batch is adopted in part only: the next moment is shipped when it is complete")

    @contextlib.contextmanager
    def _unpinned_after_error(self, snapshots: list[LogSnapshot]) -> Iterator[None]:
        try:
            yield
        except BaseException:
            for one in snapshots:
                one.unpin()
            raise

    def _settle(self, snapshots: list[LogSnapshot], known: Mapping[str, LogEntry]) -> Iterator[LogCut]:
        """Make the logs that have moved durable up to the cut, and yield all. Releases the pins of the snapshots."""
        try:
            for one in snapshots:
                log, folder = one.log, self._name(one.log.folder)
                entry, files = known.get(folder), self._settings[folder]
                if entry is not None and _is_same(log, one.end, entry):
                    yield LogCut(folder, entry.id, entry.start, entry.end, entry.last_timestamp, files, None)
                    continue
                one.settle(_end_of(entry))
                if not _is_durable(one):
                    with contextlib.suppress(Closed):  # a closed log is on disk
                        log.appender.sync_without_notifying()
                        log.appender.tell(patient=True)  # otherwise a busy log would not know yet how far it is on disk
                    self._check_durable(one)
                segments = [SegmentCut(segment, segment.limit) for segment in one.segments[:-1]]
                segments += [SegmentCut(segment, one.size) for segment in one.segments[-1:]]
                start = one.segments[0].base if one.segments else 0
                yield LogCut(folder, log.id.hex(), start, one.end, one.last_timestamp, files, tuple(segments))
        finally:
            for one in snapshots:
                one.unpin()

    def _check_durable(self, one: LogSnapshot) -> None:
        """Raise if the cut is not on disk. What is shipped must not be lost here: its sequences would be used again."""
        place = one.log.appender.durable_place()
        if place is not None and one.segments and place[0] == one.segments[-1].path and place[1] < one.size:
            raise StorageError(
                f"the log {one.log.name!r} in {str(one.log.folder)!r} could not be synced: see its errors"
            )

    def _open_logs(self) -> list[Log]:
        several = [*self._logs.by_name.values(), *self._tables.logs(), *self._transactions.logs()]
        return [log for log in several if not log.closed]

    def _folders(self) -> list[str]:
        """Return the folders of all logs, open or not. Some may be half made or half deleted."""
        found = [
            f"{root}/{name}"
            for root in _ROOTS
            for name in self._files.list(self._path / root)
            if not name.startswith("~") and not name.endswith(".tmp")
        ]
        return [*found, TRANSACTIONS] if self._files.exists(self._path / TRANSACTIONS) else found

    def _read_closed(self, folder: str) -> LogCut | None:
        """Return a log that is not open, as it is on disk up to its last whole block; None if it is none or is open."""
        opened = self._openings.get(self._path / folder, 0)
        kept = self._closed.get(folder)
        if kept is None or kept[0] != opened:
            open_log = self._open.get(folder)
            if open_log is not None and not open_log.closed:
                return None
            kept = self._closed[folder] = opened, self._survey(folder)
        return kept[1]

    def _survey(self, folder: str) -> LogCut | None:
        path, files = self._path / folder, self._files
        settings = {**self._positions(folder), **self._json_of(folder)}
        segments = load_segments(files, path, lambda damage: None)
        if not segments and META not in settings:
            return None
        log_id = self._shared.layout.id_of(path)
        if not segments:
            return LogCut(folder, "" if log_id is None else log_id.hex(), 0, 0, 0, settings, ())
        last = segments[-1]
        if last.remote is not None:
            raise StorageError(f"{str(path)!r} has lost its last segment: open the log, and see its errors")
        found = survey(last, read_watermark(files, path), last.memory)
        with contextlib.closing(files.open(last.path, "r")) as file:  # a process that was killed may not have synced it
            file.sync()
        cuts = [SegmentCut(segment, segment.limit) for segment in segments[:-1]]
        cuts.append(SegmentCut(last, min(found.end.offset, found.size)))
        end, time = found.end.sequence, found.end.timestamp
        return LogCut(folder, (log_id or last.log_id).hex(), segments[0].base, end, time, settings, tuple(cuts))

    def _read_settings(self, known: Mapping[str, LogEntry], *, is_urgent: bool = False) -> None:
        """Read the small files of open logs that have moved, and in turn those of the others.

        With `is_urgent` only once a second, except those of logs that were opened since.
        """
        now, due = self._clock.monotonic(), set[str]()
        if is_due := not is_urgent or now >= self._reread_at:
            self._reread_at = now + _REREAD_S
            if not self._turn:
                self._turn = list(self._open)
            share = max(_REREAD_LEAST, len(self._open) // _REREAD_ROUNDS)
            self._turn, due = self._turn[share:], set(self._turn[:share])
        for folder, log in self._open.items():
            opened = self._openings.get(log.folder, 0)
            is_read = self._settings_of.get(folder) == opened
            if not is_read or folder in due or (is_due and _has_moved(log, known.get(folder))):
                found = {**self._positions(folder), **self._json_of(folder)}
                self._settings_of[folder] = opened
                if found != self._settings.get(folder):
                    self._settings[folder] = found

    def _positions(self, folder: str) -> dict[str, str]:
        return self._texts(folder, TAILERS, (_JSON, ".known"))

    def _json_of(self, folder: str) -> dict[str, str]:
        found = self._texts(folder, "", (_JSON,))
        found.pop(REMOTE, None)  # a restored store has all segments on its disk
        return found

    def _loose_files(self) -> Iterator[tuple[str, str]]:
        for name in self._files.list(self._path / KNOWN):
            yield f"{KNOWN}/{name}", ""
        yield from self._texts("", DELETING, (_JSON,)).items()
        yield from self._texts("", f"{self._ingester.incoming.folder.name}/{_DONE}", (_JSON,)).items()
        for name in self._files.list(self._path / TABLES):
            if name.startswith("~") and not name.endswith(".tmp"):
                yield f"{TABLES}/{name}", self._text(self._path / TABLES / name)
        for name in _LOOSE:
            if self._files.exists(self._path / name):
                yield name, self._text(self._path / name)

    def _texts(self, folder: str, within: str, endings: tuple[str, ...]) -> dict[str, str]:
        """Return the contents of files in a folder of the store, by their path in `folder`."""
        root = self._path / folder / within
        found = {}
        for name in self._files.list(root):
            if name.endswith(endings):
                with contextlib.suppress(FileNotFoundError):  # a reader was removed meanwhile
                    found[f"{within}/{name}" if within else name] = self._text(root / name)
        return found

    def _text(self, path: Path) -> str:
        return read_file(self._files, path).decode("utf-8", "surrogateescape")

    def _name(self, folder: Path) -> str:
        return str(folder)[self._names_from :]  # `relative_to` took a tenth of a second for 2,000 logs


def _is_same(log: Log, end: int, entry: LogEntry) -> bool:
    return entry.end == end and entry.start == log.start and entry.id == log.id.hex()


def _is_durable(one: LogSnapshot) -> bool:
    """Return whether the cut is on disk already, as that of a log with `Flush.sync()` is. Not sure if it has rolled."""
    place = one.log.appender.durable_place()
    return place is not None and bool(one.segments) and place[0] == one.segments[-1].path and place[1] >= one.size


def _end_of(entry: LogEntry | None) -> tuple[int, Checkpoint] | None:
    """Return where the log ended in the last manifest, with the id of the segment."""
    if entry is None or not entry.segments:
        return None
    last = entry.segments[-1]
    return int(last.id, 16), Checkpoint(entry.end, last.size, 0)


def _has_moved(log: Log, entry: LogEntry | None) -> bool:
    return entry is None or not _is_same(log, log.end, entry)
