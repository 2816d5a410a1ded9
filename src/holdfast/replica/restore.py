"""Restore of a store from any kept moment of its replica: every part is verified, then the store is opened and read."""

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from holdfast.backup.copier import sync_all
from holdfast.backup.file_modes import narrowed, set_mode
from holdfast.backup.restore import check_restored
from holdfast.base.bucket import Bucket, ObjectMissing
from holdfast.base.checked_json import encode_checked
from holdfast.base.checksum import crc32c
from holdfast.base.errors import Corrupt, InvalidArgument, NotFound
from holdfast.base.files import Files, SystemFiles, translate_os_errors, write_all
from holdfast.base.paths import local_path
from holdfast.base.units import iso_time
from holdfast.log.watermark import Watermark, WatermarkFile
from holdfast.queue_deletion import remove_folder
from holdfast.replica.bucket import open_bucket
from holdfast.replica.identity import REPLICA_FILE
from holdfast.replica.manifest import LogEntry, Manifest, Moment, Part, SegmentEntry, list_moments, read_manifest

__all__ = ["ReplicaRestoreReport", "choose_moment", "fetch_part", "restore"]

_UNFINISHED = ".restoring"
_WORKERS = 8
_AHEAD = 16
"""How many parts are fetched or wait to be written at once: at most so many times 8 MiB of memory."""

Progress = Callable[[int, int], None]


@dataclass(slots=True)
class ReplicaRestoreReport:
    """Contents of a store that was restored from a replica."""

    path: Path
    url: str
    moment: str
    """The name of the moment, `EPOCH-NUMBER`."""
    created_at: int
    """Its time, in nanoseconds since 1970."""
    is_newest: bool
    """Whether it is the newest moment. Only then the restored store may be shipped to the same replica."""
    files: int = 0
    bytes: int = 0
    logs: dict[str, int] = field(default_factory=dict)
    """The number of records of each log."""
    queues: dict[str, int] = field(default_factory=dict)
    """The number of unacknowledged messages of each queue."""
    tables: dict[str, int] = field(default_factory=dict)
    """The number of records of each table."""
    problems: list[str] = field(default_factory=list)
    """Problems that were found when the restored store was opened and read."""

    @property
    def ok(self) -> bool:
        """Whether the restored store is undamaged."""
        return not self.problems


def restore(
    replica: str | Bucket,
    data: str | Path,
    *,
    at: datetime | None = None,
    moment: str | None = None,
    verify: bool = True,
    files: Files | None = None,
    progress: Progress | None = None,
) -> ReplicaRestoreReport:
    """Restore a store into a new folder: its newest moment, the newest that is not later than `at`, or `moment`.

    A damaged or missing object raises `Corrupt`, and no folder is made. Then the store is opened and read, unless not
    `verify`. A store of an earlier moment gets another id, so that it is not shipped over the newer ones by mistake.
    """
    files = files or SystemFiles()
    bucket = open_bucket(replica) if isinstance(replica, str) else replica
    target = local_path(data)
    if files.exists(target):
        raise InvalidArgument(f"{str(target)!r} exists already: restore to a new folder, and move it afterwards")
    moments = list_moments(bucket)
    chosen = choose_moment(bucket.url, moments, at=at, moment=moment)
    manifest = read_manifest(bucket, chosen)
    report = ReplicaRestoreReport(target, bucket.url, chosen.name, chosen.time, chosen == moments[-1])
    if isinstance(files, SystemFiles) and manifest.mode == "750":  # the store was readable by its group
        files = SystemFiles(group_readable=True)
    is_simulated = not isinstance(files, SystemFiles)  # such a disk renames no folders
    unfinished = target if is_simulated else target.with_name(target.name + _UNFINISHED)
    with translate_os_errors("restoring to", target):
        if files.exists(unfinished):  # of an interrupted restore
            remove_folder(files, unfinished)
        try:
            _Writer(files, bucket, unfinished, manifest, report, progress).write()
            if not is_simulated:
                files.replace(unfinished, target)
            files.sync_dir(target.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                if files.exists(unfinished):
                    remove_folder(files, unfinished)
            raise
    if verify:
        checked = check_restored(files, target)
        report.logs, report.queues, report.tables = checked.logs, checked.queues, checked.tables
        report.problems = checked.problems
    return report


def choose_moment(url: str, moments: list[Moment], *, at: datetime | None = None, moment: str | None = None) -> Moment:
    """Return the newest of these moments, the newest that is not later than `at`, or the one of that name."""
    if at is not None and moment is not None:
        raise InvalidArgument("choose one: a time or a moment")
    if not moments:
        raise NotFound(f"there is no replica at {url}, or nothing was shipped to it yet: check the URL")
    if moment is not None:
        wanted = Moment.parse(moment)
        found = [one for one in moments if (one.epoch, one.number) == wanted]
        if not found:
            raise NotFound(f"{url} has no moment {moment}: see holdfast replica moments")
        return found[0]
    if at is None:
        return moments[-1]
    limit = int(at.timestamp() * 1_000_000) * 1000 + 999
    # By time, not by epoch: the clock of another machine may be ahead.
    early = [one for one in moments if one.time <= limit]
    if not early:
        raise NotFound(
            f"{url} has no moment of that time: the oldest is of {iso_time(moments[0].time)}; see holdfast replica "
            "moments"
        )
    return early[-1]


def fetch_part(bucket: Bucket, key: str, part: Part) -> bytes:
    """Return a part, from its object or from its manifest. Raises `Corrupt` if it is missing or damaged."""
    where = f"{bucket.url}/{key}"
    try:
        content = part.inline if part.inline is not None else bucket.get(key).content
    except ObjectMissing as error:
        raise Corrupt(f"{where} is missing: somebody has deleted it. Use another moment", where) from error
    if len(content) != part.size:
        raise Corrupt(f"{where} has {len(content)} bytes instead of {part.size}: use another moment", where)
    if crc32c(content) != part.checksum:
        raise Corrupt(f"{where} is damaged: its checksum does not match. Use another moment", where)
    return content


class _Piece(NamedTuple):
    path: Path
    key: str
    part: Part


class _Writer:
    """Writes the files of a moment into a folder. The same moment always gives the same bytes."""

    def __init__(
        self,
        files: Files,
        bucket: Bucket,
        folder: Path,
        manifest: Manifest,
        report: ReplicaRestoreReport,
        progress: Progress | None,
    ) -> None:
        self._files = files
        self._bucket = bucket
        self._folder = folder
        self._manifest = manifest
        self._report = report
        self._progress = progress
        self._written: list[Path] = []
        self._folders: set[Path] = set()

    def write(self) -> None:
        """Write everything, and sync it."""
        mode = self._manifest.mode
        self._make(self._folder)
        set_mode(self._files, self._folder, narrowed(self._files, mode, folder=True))
        for path, text in self._manifest.files.items():
            self._put(self._folder / path, _bytes(text))
        for log in self._manifest.logs:
            for path, text in log.files.items():
                self._put(self._folder / log.folder / path, _bytes(text))
            self._put_watermark(log)
        ids = {"format": 1, "store": self._store_id(), "epoch": self._manifest.moment.epoch}
        self._put(self._folder / REPLICA_FILE, encode_checked(ids))
        self._fetch_all()
        sync_all(self._files, self._written, sorted(self._folders, key=lambda one: -len(one.parts)))

    def _fetch_all(self) -> None:
        """Fetch all parts, several at a time, and write them in order."""
        done, total = 0, self._manifest.size
        pieces = list(self._pieces())
        fetched: Iterator[bytes]
        with contextlib.ExitStack() as ends:
            if isinstance(self._files, SystemFiles):
                pool = ends.enter_context(ThreadPoolExecutor(_WORKERS, thread_name_prefix="holdfast-restore"))
                ends.callback(pool.shutdown, cancel_futures=True)
                fetched = _ahead(pool, lambda one: fetch_part(self._bucket, one.key, one.part), pieces)
            else:
                fetched = (fetch_part(self._bucket, one.key, one.part) for one in pieces)
            for one, content in zip(pieces, fetched, strict=True):
                is_new = one.part.start == 0
                if is_new:
                    self._note(one.path)
                with contextlib.closing(self._files.open(one.path, "x" if is_new else "w")) as file:
                    write_all(file, content, one.part.start)
                done += len(content)
                self._report.bytes += len(content)
                if self._progress is not None:
                    self._progress(done, total)

    def _pieces(self) -> Iterator[_Piece]:
        for log in self._manifest.logs:
            for segment in log.segments:
                for part in segment.parts:
                    path = self._folder / log.folder / f"{segment.name}.data"
                    yield _Piece(path, log.key(segment, part), part)

    def _put_watermark(self, log: LogEntry) -> None:
        """Write where the log ends, so that recovery knows that no part of it is torn."""
        if log.segments:
            last: SegmentEntry = log.segments[-1]
            folder = self._folder / log.folder
            self._make(folder)
            file = WatermarkFile(self._files, folder)
            file.write(Watermark(int(last.id, 16), log.end, last.size, log.end, last.size, log.last_timestamp))
            file.rest()
            self._written.append(folder / "watermark")

    def _put(self, path: Path, content: bytes) -> None:
        self._note(path)
        with contextlib.closing(self._files.open(path, "x")) as file:
            write_all(file, content, 0)
        self._report.bytes += len(content)

    def _note(self, path: Path) -> None:
        self._make(path.parent)
        self._written.append(path)
        self._report.files += 1

    def _make(self, folder: Path) -> None:
        if folder not in self._folders:
            self._files.make_dirs(folder)
            while folder not in self._folders and folder != self._folder.parent:
                self._folders.add(folder)
                folder = folder.parent

    def _store_id(self) -> str:
        """Return the id of the restored store: the same if it may be shipped to the same replica."""
        store = self._manifest.store
        if self._report.is_newest:
            return store
        return blake2b(f"{store} {self._manifest.moment.key}".encode(), digest_size=16).hexdigest()


def _ahead(pool: ThreadPoolExecutor, fetch: Callable[[_Piece], bytes], pieces: list[_Piece]) -> Iterator[bytes]:
    """Yield the results in order, while some of the next are fetched."""
    running = [pool.submit(fetch, one) for one in pieces[:_AHEAD]]
    for number in range(len(pieces)):
        if number + _AHEAD < len(pieces):
            running.append(pool.submit(fetch, pieces[number + _AHEAD]))
        future = running[number]
        running[number] = None  # type: ignore[call-overload]  # its content is not kept
        yield future.result()


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
