"""The warm copy of a standby: a folder that follows the moments of a replica, part by part, and becomes a store."""

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from holdfast.base.bucket import Bucket
from holdfast.base.checked_json import read_checked, replace_checked
from holdfast.base.checksum import crc32c
from holdfast.base.errors import Corrupt, ReplicaError, ReplicaFenced, raised_by_handler
from holdfast.base.files import Files, SystemFiles, read_file, replace_file, write_all
from holdfast.log.watermark import WATERMARK, Watermark, WatermarkFile
from holdfast.queue_deletion import remove_folder
from holdfast.replica.difference import described, find_unshipped, log_folders
from holdfast.replica.identity import StoreIds, read_ids, write_ids
from holdfast.replica.manifest import LogEntry, Manifest, Part, SegmentEntry
from holdfast.replica.restore import fetch_part
from holdfast.store_layout import DELETING, KNOWN, STANDBY_FILE, STATE
from holdfast.table_registry import TABLES

__all__ = ["Fetched", "StandbyCopy"]

_FORMAT = 1
_MANIFEST = "standby-manifest"
"""The last moment that the folder has, as in the bucket."""
_REBUILT = (STATE, "table-state")
_WORKERS = 8
_AHEAD = 16
"""How many parts are fetched or wait to be written at once: at most so many times 8 MiB of memory."""
_DATA = ".data"

Progress = Callable[[int, int], None]
_SegmentKey = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Fetched:
    """What was needed to bring a copy to a moment."""

    bytes: int
    """Bytes from the bucket."""
    parts: int


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part that the folder lacks, or of which it has only the beginning."""

    path: Path
    key: str
    part: Part
    present: int
    """Up to where the file has the bytes of the segment."""


class StandbyCopy:
    """A folder with the logs of the last moment that was applied. For one thread; up to 8 more fetch parts.

    Files: those of a store, `standby.json`, which keeps others from opening it, and `standby-manifest`. Invariant: the
    folder has on disk everything that the manifest in `standby-manifest` names, unless `standby.json` says `unsure`;
    then each byte is compared with its checksum before the next moment is complete.
    """

    def __init__(self, files: Files, path: Path, bucket: Bucket) -> None:
        self.manifest: Manifest | None = None
        """The moment that the folder has; None if it has none yet."""
        self._files = files
        self._path = path
        self._bucket = bucket
        self._unsure = True
        self._is_first = True
        """Whether no moment was applied by this object: what else is in the folder is not known yet."""

    def begin(self, newest: Callable[[], Manifest | None], *, discard: bool = False) -> None:
        """Go on with what the folder has: a copy, a store that only has what the replica has, or nothing.

        `newest` returns the newest moment; it is only called for the folder of a store. Raises `ReplicaError` if that
        has records that the replica lacks, unless these are to be discarded.
        """
        files, path = self._files, self._path
        if files.exists(path / STANDBY_FILE):
            self._resume()
            return
        if any(True for _ in log_folders(files, path)) and not discard:
            self._check_store(newest())
        self._note(unsure=True)

    def apply(
        self, manifest: Manifest, *, beat: Callable[[], None] = lambda: None, progress: Progress | None = None
    ) -> Fetched:
        """Bring the folder to this moment. `beat` is called after each part. Raises `Corrupt` and `ReplicaError`.

        After an error, also after the end of the process, the next call goes on with what is there.
        """
        if self.manifest is not None and manifest.moment == self.manifest.moment:
            return Fetched(0, 0)
        if not self._unsure and self._rewrites(manifest):
            self._note(unsure=True)
        known = self._verified(manifest, beat) if self._unsure else _parts_of(self.manifest)
        pieces = list(self._missing(manifest, known))
        fetched = self._write_pieces(pieces, beat, progress)
        self._finish_segments(manifest, known)
        self._write_small_files(manifest)
        replace_file(self._files, self._path / _MANIFEST, manifest.encode())
        if self._unsure:
            self._note(unsure=False)
        before, self.manifest = self.manifest, manifest
        self._remove_rest(before, manifest)
        self._is_first = False
        return fetched

    def finish(self, epoch: int) -> None:
        """Make the folder a store that may be opened, and shipped to the replica of which this epoch was claimed."""
        manifest, files = self.manifest, self._files
        assert manifest is not None
        self._finish_segments(manifest, {})  # of a moment that was begun and not completed there may be more
        for log in manifest.logs:
            self._put_watermark(log)
        known = read_ids(files, self._path)
        instance = known.instance or files.random_bytes(16).hex()
        # Standbys claim with the promise to yield, and the store that is opened next takes it over.
        ids = StoreIds(manifest.store, instance, epoch, yields=True, base=manifest.moment.key, base_epoch=epoch)
        write_ids(files, self._path, ids)
        for name in (_MANIFEST, STANDBY_FILE):
            files.remove(self._path / name)
        files.sync_dir(self._path)

    def _resume(self) -> None:
        try:
            known = read_checked(self._files, self._path / STANDBY_FILE)
            self._unsure = known["unsure"] is not False
            self.manifest = Manifest.decode(read_file(self._files, self._path / _MANIFEST), str(self._path / _MANIFEST))
        except (FileNotFoundError, ValueError, KeyError, Corrupt) as error:
            if raised_by_handler(error):
                raise
            self.manifest, self._unsure = None, True
            self._note(unsure=True)

    def _check_store(self, newest: Manifest | None) -> None:
        """Raise unless the replica has everything of the store in the folder."""
        ids = read_ids(self._files, self._path)
        where = f"{str(self._path)!r} has a store"
        if newest is None or not ids.store:
            raise ReplicaError(f"{where} that was never shipped to {self._bucket.url}: use another folder with --data")
        if ids.store != newest.store:
            raise ReplicaError(
                f"{where} that is not the one of {self._bucket.url}: another store, or an earlier moment of it. Use "
                "another folder with --data"
            )
        if found := find_unshipped(self._files, self._path, self._bucket, newest):
            raise ReplicaFenced(
                f"{str(self._path)!r} cannot become a standby of {self._bucket.url}. {described(found)}. Use another "
                "folder with --data; to do without these records, move this folder away. To look at them, open it "
                "without a replica"
            )

    def _note(self, *, unsure: bool) -> None:
        self._files.make_dirs(self._path)
        replace_checked(self._files, self._path / STANDBY_FILE, {"format": _FORMAT, "unsure": unsure})
        self._unsure = unsure

    def _rewrites(self, manifest: Manifest) -> bool:
        """Return whether a file that the last moment names gets other bytes, or fewer."""
        ours = {} if self.manifest is None else _by_path(self.manifest)
        for path, (key, segment) in _by_path(manifest).items():
            if (old := ours.get(path)) is not None and (old[0] != key or old[1].size > segment.size):
                return True
        return False

    def _verified(self, manifest: Manifest, beat: Callable[[], None]) -> dict[_SegmentKey, tuple[Part, ...]]:
        """Return the parts of a moment that the folder has: reads them, and compares their checksums."""
        found = {}
        for path, (key, segment) in _by_path(manifest).items():
            parts = []
            with (
                contextlib.suppress(FileNotFoundError),
                contextlib.closing(self._files.open(self._path / path, "r")) as file,
            ):
                for part in segment.parts:
                    ours = file.read(part.size, part.start)
                    if len(ours) < part.size or crc32c(ours) != part.checksum:
                        break
                    parts.append(part)
                    beat()
            found[key] = tuple(parts)
        return found

    def _missing(self, manifest: Manifest, known: dict[_SegmentKey, tuple[Part, ...]]) -> Iterator[_Piece]:
        for log in manifest.logs:
            for segment in log.segments:
                parts = known.get((log.folder, log.id, segment.id), ())
                present, there = parts[-1].stop if parts else 0, set(parts)
                path = self._path / log.folder / f"{segment.name}{_DATA}"
                for part in segment.parts:
                    if part not in there:
                        yield _Piece(path, log.key(segment, part), part, min(max(present, part.start), part.stop))

    def _write_pieces(self, pieces: list[_Piece], beat: Callable[[], None], progress: Progress | None) -> Fetched:
        size, total = 0, sum(one.part.stop - one.present for one in pieces)
        with contextlib.ExitStack() as ends:
            contents: Iterator[tuple[int, bytes]] = map(self._fetch, pieces)
            if isinstance(self._files, SystemFiles) and len(pieces) > 1:
                pool = ends.enter_context(ThreadPoolExecutor(_WORKERS, thread_name_prefix="holdfast-standby-get"))
                ends.callback(pool.shutdown, cancel_futures=True)
                contents = _ahead(pool, self._fetch, pieces)
            for one, (start, content) in zip(pieces, contents, strict=True):
                if not self._unsure and start < one.present:  # bytes that were verified before differ now
                    self._note(unsure=True)
                self._files.make_dirs(one.path.parent)
                with contextlib.closing(
                    self._files.open(one.path, "w" if self._files.exists(one.path) else "x")
                ) as file:
                    write_all(file, content, start)
                size += len(content)
                if progress is not None:
                    progress(size, total)
                beat()
        return Fetched(size, len(pieces))

    def _fetch(self, one: _Piece) -> tuple[int, bytes]:
        """Return the missing bytes of a part, and where they begin. The checksum is that of the whole part."""
        part = one.part
        if part.start < one.present:  # several parts were put together: the folder has the first of them
            with contextlib.closing(self._files.open(one.path, "r")) as file:
                ours = file.read(one.present - part.start, part.start)
            size = part.stop - one.present
            rest = self._bucket.get_range(one.key, one.present - part.start, part.size) if size else b""
            if len(ours) + len(rest) == part.size and crc32c(ours + rest) == part.checksum:
                return one.present, rest
        return part.start, fetch_part(self._bucket, one.key, part)

    def _finish_segments(self, manifest: Manifest, known: dict[_SegmentKey, tuple[Part, ...]]) -> None:
        """Cut off what is behind the moment, and sync the segments that were changed, and their folders."""
        folders: set[Path] = set()
        for path, (key, segment) in _by_path(manifest).items():
            if known.get(key) == segment.parts and not self._unsure and not self._is_first:
                continue
            whole = self._path / path
            if not segment.parts:
                continue
            with contextlib.closing(self._files.open(whole, "w")) as file:
                if file.size() > segment.size:
                    file.truncate(segment.size)
                file.sync()
            while whole != self._path:
                whole = whole.parent
                folders.add(whole)
        for folder in sorted(folders, key=lambda one: -len(one.parts)):
            self._files.sync_dir(folder)

    def _write_small_files(self, manifest: Manifest) -> None:
        before = {} if self._is_first or self.manifest is None else _small_files(self.manifest)
        for path, content in _small_files(manifest).items():
            file = self._path / path
            if before.get(path) == content:
                continue
            if self._is_first and self._files.exists(file) and read_file(self._files, file) == content:
                continue
            self._files.make_dirs(file.parent)
            replace_file(self._files, file, content)

    def _remove_rest(self, before: Manifest | None, manifest: Manifest) -> None:
        """Remove what the moment does not name: all of it the first time, then what the last one named."""
        kept = _names(manifest)
        if self._is_first:
            for name in _REBUILT:
                if self._files.exists(self._path / name):
                    remove_folder(self._files, self._path / name)
            roots = [*log_folders(self._files, self._path), KNOWN, DELETING]
            stale = [path for root in roots for path in self._walk(root) if path not in kept]
            stale += [one for one in self._tombstones() if one not in kept]
        else:
            stale = sorted(_names(before) - kept) if before is not None else []
        for path in stale:
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(self._path / path)
        present = {log.folder for log in manifest.logs}
        for folder in list(log_folders(self._files, self._path)) if stale else ():
            if folder not in present:
                remove_folder(self._files, self._path / folder)

    def _tombstones(self) -> Iterator[str]:
        for name in self._files.list(self._path / TABLES):
            if name.startswith("~"):
                yield f"{TABLES}/{name}"

    def _walk(self, folder: str) -> Iterator[str]:
        """Yield the files below a folder of the store. Inside of logs, only folders have names without a dot."""
        for name in self._files.list(self._path / folder):
            path = f"{folder}/{name}"
            if "." in name or name == WATERMARK:
                yield path
            else:
                yield from self._walk(path)

    def _put_watermark(self, log: LogEntry) -> None:
        """Write where the log ends, so that opening it reads nothing that is before."""
        folder = self._path / log.folder
        if log.segments:
            last = log.segments[-1]
            file = WatermarkFile(self._files, folder)
            file.write(Watermark(int(last.id, 16), log.end, last.size, log.end, last.size, log.last_timestamp))
            file.rest()


def _parts_of(manifest: Manifest | None) -> dict[_SegmentKey, tuple[Part, ...]]:
    logs: Iterable[LogEntry] = manifest.logs if manifest is not None else ()
    return {(log.folder, log.id, one.id): one.parts for log in logs for one in log.segments}


def _by_path(manifest: Manifest) -> dict[str, tuple[_SegmentKey, SegmentEntry]]:
    """Return the segments by the path of their file in the store."""
    return {
        f"{log.folder}/{one.name}{_DATA}": ((log.folder, log.id, one.id), one)
        for log in manifest.logs
        for one in log.segments
    }


def _small_files(manifest: Manifest) -> dict[str, bytes]:
    found = dict(manifest.files)
    for log in manifest.logs:
        found.update({f"{log.folder}/{path}": text for path, text in log.files.items()})
    return {path: text.encode("utf-8", "surrogateescape") for path, text in found.items()}


def _names(manifest: Manifest) -> set[str]:
    return {*_by_path(manifest), *_small_files(manifest)}


def _ahead(
    pool: ThreadPoolExecutor, fetch: Callable[[_Piece], tuple[int, bytes]], pieces: list[_Piece]
) -> Iterator[tuple[int, bytes]]:
    """Yield the results in order, while some of the next are fetched."""
    running: deque[Future[tuple[int, bytes]]] = deque()
    for one in pieces:
        running.append(pool.submit(fetch, one))
        if len(running) >= _AHEAD:
            yield running.popleft().result()
    while running:
        yield running.popleft().result()
