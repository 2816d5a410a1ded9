"""Restore of a store from a backup: every file is checked and copied, then the store is opened and verified."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from holdfast.backup.backup import Fault
from holdfast.backup.copier import Progress, copy_checked, counting, sync_all
from holdfast.backup.file_modes import narrowed, set_mode
from holdfast.backup.manifest import FileEntry, Manifest, choose_backup, read_manifest
from holdfast.base.errors import Corrupt, HoldfastError, InvalidArgument
from holdfast.base.files import Files, SystemFiles, translate_os_errors
from holdfast.base.paths import local_path
from holdfast.queue_deletion import remove_folder
from holdfast.store import open as open_store
from holdfast.store_layout import JOURNALS

__all__ = ["RestoreReport", "RestoredContents", "check_restored", "restore_backup"]

logger = logging.getLogger("holdfast.store")

_UNFINISHED = ".restoring"
_STATES = ("state/", "table-state/")
_SEGMENT = ".data"
_FEW = 5


@dataclass(slots=True)
class RestoredContents:
    """What a restored store holds."""

    logs: dict[str, int] = field(default_factory=dict)
    """The number of records of each log."""
    queues: dict[str, int] = field(default_factory=dict)
    """The number of unacknowledged messages of each queue."""
    tables: dict[str, int] = field(default_factory=dict)
    """The number of records of each table."""
    problems: list[str] = field(default_factory=list)
    """Problems that were found when the store was opened and read."""


@dataclass(slots=True)
class RestoreReport:
    """Contents of a restored store, and problems of the backup and of the store."""

    path: Path
    backup: Path
    created_at: int
    """The moment of the backup's contents, in nanoseconds since 1970."""
    files: int = 0
    bytes: int = 0
    faults: list[Fault] = field(default_factory=list)
    """Damaged or missing files of the backup; not empty only with `salvage`."""
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
        """Whether everything was restored without damage."""
        return not self.faults and not self.problems


def restore_backup(
    backup: Path,
    data: Path,
    *,
    at: datetime | None = None,
    salvage: bool = False,
    verify: bool = True,
    files: Files | None = None,
    progress: Progress | None = None,
) -> RestoreReport:
    """Restore a store from a backup, or from the newest in a folder of them that is not later than `at`.

    A damaged backup raises `Corrupt` with its faults. With `salvage`, undamaged files are restored: of a damaged
    segment, all records except those in damaged blocks. Then the store is opened and read, unless not `verify`.
    """
    files = files or SystemFiles()
    backup, data = local_path(backup, "a backup"), local_path(data)
    if files.exists(data):
        raise InvalidArgument(f"{str(data)!r} exists already: restore to a new folder, and move it afterwards")
    folder = choose_backup(files, backup, at)
    manifest = read_manifest(files, folder)
    if isinstance(files, SystemFiles) and manifest.mode == "750":  # the store was readable by its group
        files = SystemFiles(group_readable=True)
    report = RestoreReport(data, folder, manifest.created)
    unfinished = data.with_name(data.name + _UNFINISHED)
    with translate_os_errors("restoring to", data):
        if files.exists(unfinished):  # of an interrupted restore
            remove_folder(files, unfinished)
        try:
            _copy(files, folder, manifest, unfinished, report, progress)
            if report.faults and not salvage:
                shown = "; ".join(map(str, report.faults[:_FEW]))
                more = f"; and {len(report.faults) - _FEW} more" if len(report.faults) > _FEW else ""
                raise Corrupt(
                    f"the backup {str(folder)!r} is damaged: {shown}{more}. Choose another one, or restore the "
                    "undamaged files with --salvage",
                    str(folder),
                )
            files.replace(unfinished, data)
            files.sync_dir(data.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                if files.exists(unfinished):
                    remove_folder(files, unfinished)
            raise
    if verify:
        found = check_restored(files, data)
        report.logs, report.queues, report.tables = found.logs, found.queues, found.tables
        report.problems = found.problems
    return report


def _copy(
    files: Files, folder: Path, manifest: Manifest, target: Path, report: RestoreReport, progress: Progress | None
) -> None:
    step = counting(progress, manifest.bytes)
    files.make_dirs(target)
    set_mode(files, target, narrowed(files, manifest.mode, folder=True))
    folders, written = {target}, []
    for entry in manifest.files:
        path = target / entry.path
        above = path.parent
        if above not in folders:
            files.make_dirs(above, sync=False) if isinstance(files, SystemFiles) else files.make_dirs(above)
        while above not in folders:
            folders.add(above)
            above = above.parent
        fault = _copy_one(files, folder / entry.path, path, entry, step)
        if fault:
            report.faults.append(Fault(entry.path, fault))
            # Blocks of a segment have their own checksums; any other damaged file is left out.
            if not entry.path.endswith(_SEGMENT) or not files.exists(path):
                if files.exists(path):
                    files.remove(path)
                continue
        written.append(path)
        report.files += 1
        report.bytes += entry.size
    for state in _STATES:  # an incomplete state is useless, and all of it can be rebuilt
        if any(fault.path.startswith(state) for fault in report.faults):
            written = [path for path in written if not path.is_relative_to(target / state)]
            folders.discard(target / state)
            remove_folder(files, target / state)
    sync_all(files, written, sorted(folders, key=lambda one: -len(one.parts)))


def _copy_one(files: Files, source: Path, target: Path, entry: FileEntry, step: Callable[[int], None]) -> str:
    try:
        files.open(source, "r").close()
    except OSError as error:
        return f"it cannot be read: {error.strerror or error}"
    size, checksum = copy_checked(files, source, target, step, mode=narrowed(files, entry.mode))
    if size != entry.size:
        return f"it has {size} bytes instead of {entry.size}"
    return "" if checksum == entry.checksum else "its checksum does not match"


def check_restored(files: Files, data: Path) -> RestoredContents:
    """Open all queues, logs and tables of a restored store as a program would, and read all of them."""
    found = RestoredContents()
    with open_store(data, files=files, background=False) as store:
        for name in store.queues():
            with _noting(found, f"the queue {name!r}"):
                queue = store.queue(name)
                stats = queue.stats()
                found.queues[name] = stats.ready + stats.delayed + stats.leased + stats.moving
                damage = queue.history.hand_over().verify().damage
                found.problems += [f"the journal of the queue {name!r} in {JOURNALS}: {one}" for one in damage]
        for name in store.logs():
            with _noting(found, f"the log {name!r}"):
                log = store.log(name)
                start, end = log.readable()
                found.logs[name] = end - start
                found.problems += [f"the log {name!r}: {one}" for one in log.verify().damage]
        for name in store.tables():
            with _noting(found, f"the table {name!r}"):
                table: Any = store.table(name)
                found.tables[name] = table.count()
                found.problems += [f"the table {name!r}: {one}" for one in table.log.verify().damage]
    return found


@contextlib.contextmanager
def _noting(found: RestoredContents, what: str) -> Iterator[None]:
    try:
        yield
    except HoldfastError as error:
        found.problems.append(f"{what}: {error}")
