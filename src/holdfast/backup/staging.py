"""Selection of the files of a backup: each log up to its cut, with hard links that preserve files until the copy."""

import contextlib
from pathlib import Path

from holdfast.backup.copier import Item, link
from holdfast.backup.file_modes import mode_of
from holdfast.backup.manifest import LAST
from holdfast.base.checked_json import decode_checked
from holdfast.base.files import Files, SystemFiles, read_file
from holdfast.log.batch_inbox import BatchInbox
from holdfast.log.consumer_offsets import FOLDER as TAILERS
from holdfast.log.part_cache import CACHE
from holdfast.log.remote_segments import REMOTE, PartSource, read_remote
from holdfast.log.segment import Segment, open_remote, open_segment
from holdfast.log.segment_files import list_segments
from holdfast.log.snapshot import LogSnapshot
from holdfast.log.watermark import WATERMARK, WatermarkFile
from holdfast.queue_deletion import STAGING, remove_folder

__all__ = ["Staging"]

_JSON = ".json"
_SST = ".sst"
_APART = ("LOCK", "logs", "journals", "tables", "state", "table-state", "transactions", "incoming", "deleting",
          "transient", "reserve", CACHE, LAST, STAGING)  # fmt: skip
_LEFT_OUT = ("state.damaged-", "table-state.damaged-")


class Staging:
    """Collects the items of a backup. Files: `backing-up/`, from which they are copied after the locks are released."""

    def __init__(self, files: Files, store: Path) -> None:
        self._files = files
        self._store = store
        self.folder = store / STAGING
        self.items: list[Item] = []
        self.parts: PartSource | None = None
        """Where to read segments that are only in the bucket of the replica: a backup contains them, too."""
        self.all_kept = True
        """Whether every file has a hard link here, so that the original may be deleted."""
        self._next = 0
        self.clear()
        files.make_dirs(self.folder)

    def clear(self) -> None:
        """Remove the hard links, also those that an interrupted backup left."""
        if self._files.exists(self.folder):
            remove_folder(self._files, self.folder)

    def note(self, path: Path, content: bytes) -> None:
        """Add a small file with its present content."""
        self.items.append(Item(self._path(path), content, size=len(content), mode=mode_of(self._files, path)))

    def note_file(self, path: Path) -> bytes | None:
        """Add a small file, read now; return its content, None if it does not exist."""
        try:
            content = read_file(self._files, path)
        except (FileNotFoundError, IsADirectoryError):
            return None
        self.note(path, content)
        return content

    def note_all(self, folder: Path, ending: str = "") -> None:
        """Add the small files in a folder with this suffix, except temporary ones."""
        for name in self._files.list(folder):
            if name.endswith(ending) and not name.endswith(".tmp") and name != REMOTE:
                self.note_file(folder / name)

    def keep(
        self,
        path: Path,
        size: int | None = None,
        *,
        segment: str = "",
        never_changes: bool = False,
        may_be_shorter: bool = False,
        name: Path | None = None,
    ) -> None:
        """Add the first `size` bytes of a file, to be copied later. `name`: its path in the backup, if another."""
        if size is None:
            with contextlib.closing(self._files.open(path, "r")) as file:
                size = file.size()
        self._next += 1
        kept = self.folder / f"{self._next}"
        if not link(self._files, path, kept):
            kept, self.all_kept = path, False
        relative, mode = self._path(name or path), mode_of(self._files, kept)
        self.items.append(Item(relative, None, kept, size, segment, never_changes, may_be_shorter, mode))

    # Logs

    def readers_of(self, log: Path) -> list[Item]:
        """Return the positions of the named readers of a log.

        Called before the cut: a reader whose position is too old repeats work, one whose position is too new skips
        records.
        """
        kept = Staging.__new__(Staging)
        kept._files, kept._store, kept.items = self._files, self._store, []
        kept.note_all(log / TAILERS, _JSON)
        kept.note_all(log / TAILERS, ".known")
        return kept.items

    def add_cut(self, cut: LogSnapshot, *, with_settings: bool) -> None:
        """Add a log that is open, without its readers; with `with_settings`, also its JSON files."""
        log = cut.log.folder
        if with_settings:
            self.note_all(log, _JSON)
        for segment in cut.segments[:-1]:
            self._keep_closed(segment)
        if cut.segments:
            last = cut.segments[-1]
            self.keep(last.path, cut.size, segment=f"{last.segment_id:016x}")
            if (index := cut.index()) is not None:
                self.note(last.name.index_path(log), index)
            self._keep_torn({segment.path.parent for segment in cut.segments})
        if (mark := cut.mark) is not None:
            self.note(log / WATERMARK, self._watermark(mark))

    def add_log(self, log: Path, *, with_settings: bool = True) -> None:
        """Add a log that is not open, as it is on disk; with `with_settings`, also its JSON files."""
        if with_settings:
            self.note_all(log, _JSON)
        self.items += self.readers_of(log)
        self.note_file(log / WATERMARK)
        names = list_segments(self._files, log)
        remote = read_remote(self._files, log)
        for entry in remote.entries:
            if entry.name not in names:
                self._keep_remote(open_remote(self._files, log, remote.source_of(entry, log, self.parts)))
        for number, name in enumerate(names):
            segment = open_segment(self._files, log, name, lambda damage: None)
            is_last = number == len(names) - 1
            if segment is not None and not is_last:
                self._keep_closed(segment)
                continue
            # If the log is opened now, its writer continues in the last segment, and in its index.
            ident = "" if segment is None else f"{segment.segment_id:016x}"
            self.keep(name.data_path(log), segment=ident, may_be_shorter=is_last)
            self.note_file(name.index_path(log))
        self._keep_torn({name.folder(log) for name in names})

    def add_closed(self, roots: list[Path], is_open: set[Path], *, with_settings: bool = True) -> None:
        """Add all logs in these folders that are not open."""
        for root in roots:
            for name in self._files.list(root):
                if root / name not in is_open:
                    with contextlib.suppress(NotADirectoryError):
                        self.add_log(root / name, with_settings=with_settings)

    def add_tables(self, root: Path) -> bool:
        """Add the settings of tables and the marks of deleted ones; return whether one is being migrated.

        Called before their state is copied: a migration repeats what it has done since its saved progress.
        """
        is_migrating = False
        for name in self._files.list(root):
            if self.note_file(root / name) is None:
                is_migrating |= _migrates(self.note_file(root / name / "migration.json"))
                for other in self._files.list(root / name):
                    if other.endswith(_JSON) and other != "migration.json":
                        self.note_file(root / name / other)
        return is_migrating

    def _keep_remote(self, segment: Segment) -> None:
        """Add a segment that is only in the bucket: it is fetched when it is copied."""
        path, ident = self._path(segment.path), f"{segment.segment_id:016x}"
        self.items.append(Item(path, size=segment.limit, segment=ident, remote=segment.remote))

    def _keep_closed(self, segment: Segment) -> None:
        if segment.remote is not None:
            self._keep_remote(segment)
            return
        self.keep(segment.path, segment=f"{segment.segment_id:016x}", never_changes=True)
        index = segment.name.index_path(segment.log)
        if self._files.exists(index):
            self.keep(index, never_changes=True)

    def _keep_torn(self, folders: set[Path]) -> None:
        for folder in sorted(folders):
            for name in self._files.list(folder):
                if ".torn-" in name and not name.endswith(".tmp"):
                    self.keep(folder / name, never_changes=True)

    def _watermark(self, mark: object) -> bytes:
        folder = self.folder / "mark"
        self._files.make_dirs(folder)
        file = WatermarkFile(self._files, folder)
        file.write(mark)  # type: ignore[arg-type]
        return read_file(self._files, folder / WATERMARK)

    # The rest

    def add_state(self, copy: Path, name: str) -> None:
        """Add RocksDB's files, of which a copy was made in the folder `copy`."""
        for file in self._files.list(copy):
            self.keep(copy / file, never_changes=file.endswith(_SST), name=self._store / name / file)

    def add_incoming(self, incoming: BatchInbox) -> bool:
        """Add committed batches that are not adopted; return whether there are any.

        If so, the folder stays locked until it is copied: adopting changes these files in place.
        """
        self.note_all(incoming.folder, _JSON)
        self.note_all(incoming.folder / "done", _JSON)
        wanted = {part.file for manifest in incoming.pending() for part in manifest.parts}
        if plan := incoming.plan():
            wanted |= {part.file for part in plan.manifest.parts}
        for file in sorted(wanted):
            for name in (file, f"{file}.blocks"):
                if self._files.exists(incoming.parts / name):
                    self.keep(incoming.parts / name)
        return bool(wanted)

    def add_others(self) -> None:
        """Add all other files of the store, as they are on disk."""
        for name in self._files.list(self._store):
            if name in _APART or name.startswith(_LEFT_OUT) or not isinstance(self._files, SystemFiles):
                continue
            top = self._store / name
            for path in [top] if top.is_file() else sorted(top.rglob("*")):
                if path.is_file() and not path.is_symlink() and not path.name.endswith(".tmp"):
                    self.keep(path, may_be_shorter=True)

    def _path(self, path: Path) -> str:
        return path.relative_to(self._store).as_posix()


def _migrates(content: bytes | None) -> bool:
    """Return whether a `migration.json` is of an unfinished migration."""
    if content is None:
        return False
    try:
        return bool(decode_checked(content)["state"] != "idle")
    except (ValueError, KeyError, TypeError):
        return True
