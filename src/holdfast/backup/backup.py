"""Backups of a store: the files of one moment in a folder, completed by a manifest; listing and verification."""

import contextlib
import logging
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from holdfast.backup.copier import Copier, Progress, checksum_of, counting, sync_all
from holdfast.backup.file_modes import OWNER_ONLY, mode_of, set_mode
from holdfast.backup.manifest import (
    MANIFEST,
    UNFINISHED,
    Manifest,
    find_backups,
    folder_name,
    note_backup,
    read_manifest,
    write_manifest,
)
from holdfast.backup.source import ConsistentCut
from holdfast.backup.staging import Staging
from holdfast.base.clock import Clock
from holdfast.base.errors import Locked
from holdfast.base.files import Files, Lock, SystemFiles, translate_os_errors, write_all
from holdfast.base.paths import local_path
from holdfast.queue_deletion import remove_folder

__all__ = ["BackupReport", "Fault", "FoundBackup", "list_backups", "take_backup", "verify_backup"]

logger = logging.getLogger("holdfast.store")

LOCK = "LOCK"


@dataclass(frozen=True, slots=True)
class BackupReport:
    """Content and cost of a backup."""

    path: Path
    created_at: int
    """The moment of its contents, in nanoseconds since 1970."""
    base: str | None
    """The earlier backup that it shares files with."""
    files: int
    bytes: int
    new_bytes: int
    """Bytes that are not shared with an earlier backup."""
    linked_bytes: int
    """The new bytes that are shared with the live store: damage there is damage here."""
    reused_files: int
    logs: int
    queues: int
    tables: int
    held: float
    """For how many seconds writers had to wait."""
    took: float
    """The duration of the backup in seconds."""
    left_out: tuple[str, ...]
    """States that are not in the backup, and are rebuilt when a restored store is opened."""

    def __getitem__(self, name: str) -> Any:
        """Return a field as JSON, as of the dict that `RemoteStore.backup` returned before; warns."""
        new = f"RemoteStore.backup(...)[{name!r}] is now RemoteStore.backup(...).{name}"
        warnings.warn(new, DeprecationWarning, stacklevel=2)
        return {**asdict(self), "path": str(self.path), "left_out": list(self.left_out)}[name]


@dataclass(frozen=True, slots=True)
class FoundBackup:
    """A backup in a folder of backups."""

    path: Path
    created_at: int | None
    base: str | None
    files: int
    bytes: int
    problem: str
    """Why it is not usable; empty if it is."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A damaged or missing file of a backup."""

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def take_backup(
    files: Files,
    clock: Clock,
    store: Path,
    dest: Path,
    gather: Callable[[Staging], ConsistentCut],
    *,
    base: Path | None = None,
    incremental: bool = True,
    copy: bool = False,
    progress: Progress | None = None,
) -> BackupReport:
    """Write a backup; `gather` cuts all logs at one moment, and fills the staging with the files.

    After an error an incomplete backup is removed; after an interrupt or a crash, the next backup to `dest` removes it.
    """
    started = clock.monotonic()
    with translate_os_errors("backing up to", dest), contextlib.ExitStack() as ends:
        files.make_dirs(dest)
        ends.callback(_locked(files, dest).release)
        _sweep(files, dest)
        earlier, earlier_folder = _base_of(files, dest, base, incremental)
        staging = Staging(files, store)
        ends.callback(_forget, staging)
        moment = gather(staging)
        ends.enter_context(moment.holds)
        folder = dest / folder_name(moment.time)
        files.make_dirs(folder)
        set_mode(files, folder, OWNER_ONLY)
        try:
            copier = Copier(files, folder, earlier, earlier_folder, copy=copy)
            _mark_unfinished(files, folder, store)
            _copy_all(copier, staging, progress)
            sync_all(files, copier.written, copier.folders)
            manifest = _manifest(files, store, moment, copier, earlier_folder)
            write_manifest(files, folder, manifest)
            files.sync_dir(dest)
        except BaseException as error:
            if isinstance(error, Exception):  # after an interrupt the next backup removes it
                with contextlib.suppress(OSError):
                    remove_folder(files, folder)
            raise
        with contextlib.suppress(OSError):  # it has no meaning next to a manifest
            files.remove(folder / UNFINISHED)
        with contextlib.suppress(OSError):  # it only records the age of the last backup
            note_backup(files, store, folder, moment.time)
    new = manifest.bytes - copier.reused
    logger.info(
        "backup written: path=%s bytes=%d new_bytes=%d", folder, manifest.bytes, new, extra={"path": str(folder)}
    )
    return BackupReport(
        path=folder,
        created_at=moment.time,
        base=manifest.base,
        files=len(manifest.files),
        bytes=manifest.bytes,
        new_bytes=new,
        linked_bytes=copier.linked,
        reused_files=copier.reused_files,
        logs=manifest.count("logs"),
        queues=manifest.count("journals"),
        tables=manifest.count("tables"),
        held=moment.held,
        took=clock.monotonic() - started,
        left_out=tuple(moment.left_out),
    )


def _mark_unfinished(files: Files, folder: Path, store: Path) -> None:
    with contextlib.closing(files.open(folder / UNFINISHED, "x")) as mark:
        write_all(mark, f"a backup of {store} that was not finished\n".encode(), 0)
        mark.sync()
    files.sync_dir(folder)


def _manifest(
    files: Files, store: Path, moment: ConsistentCut, copier: Copier, earlier_folder: Path | None
) -> Manifest:
    from holdfast import __version__  # noqa: PLC0415 - a circular import

    return Manifest(
        created=moment.time,
        store=str(store.absolute()),
        version=__version__,
        mode=mode_of(files, store),
        base=earlier_folder.name if earlier_folder is not None and copier.reused_files else None,
        cut=moment.cuts,
        left_out=moment.left_out,
        files=copier.entries,
    )


def list_backups(dest: Path, files: Files | None = None) -> list[FoundBackup]:
    """Return the backups in a folder, the oldest first, including incomplete ones."""
    found = []
    for one in find_backups(files or SystemFiles(), local_path(dest, "a backup")):
        manifest = one.manifest or Manifest(0, "", "")
        found.append(
            FoundBackup(
                one.path,
                manifest.created or None,
                manifest.base,
                len(manifest.files),
                manifest.bytes,
                one.problem,
            )
        )
    return found


def verify_backup(folder: Path, files: Files | None = None, progress: Progress | None = None) -> list[Fault]:
    """Read every byte of a backup; return its faults. Raises if it has no valid manifest."""
    files = files or SystemFiles()
    folder = local_path(folder, "a backup")
    manifest = read_manifest(files, folder)
    step = counting(progress, manifest.bytes)
    faults = []
    for entry in manifest.files:
        try:
            size, checksum = checksum_of(files, folder / entry.path, step)
        except OSError as error:
            faults.append(Fault(entry.path, f"it cannot be read: {error.strerror or error}"))
            continue
        if size != entry.size:
            faults.append(Fault(entry.path, f"it has {size} bytes instead of {entry.size}"))
        elif checksum != entry.checksum:
            faults.append(Fault(entry.path, "its checksum does not match"))
    return faults


def _copy_all(copier: Copier, staging: Staging, progress: Progress | None) -> None:
    step = counting(progress, sum(item.size for item in staging.items))
    for item in staging.items:
        copier.place(item, step)


def _base_of(files: Files, dest: Path, base: Path | None, incremental: bool) -> tuple[Manifest | None, Path | None]:
    if base is not None:
        return read_manifest(files, base), base
    whole = [one for one in find_backups(files, dest) if one.manifest is not None] if incremental else []
    return (whole[-1].manifest, whole[-1].path) if whole else (None, None)


def _forget(staging: Staging) -> None:
    try:
        staging.clear()
    except OSError as error:  # the next opening does it
        logger.warning(
            "links of a backup not removed, will retry: path=%s error=%s",
            staging.folder,
            error,
            extra={"path": str(staging.folder)},
        )


def _locked(files: Files, dest: Path) -> Lock:
    try:
        return files.lock(dest / LOCK)
    except Locked as error:
        raise Locked(
            f"process {error.pid} is writing a backup to {str(dest)!r}: wait until it is finished", error.pid
        ) from error


def _sweep(files: Files, dest: Path) -> None:
    """Remove backups that were never finished. Called with the lock of `dest` held."""
    for one in find_backups(files, dest):
        if files.exists(one.path / UNFINISHED) and not files.exists(one.path / MANIFEST):
            logger.warning("removing an unfinished backup: path=%s", one.path, extra={"path": str(one.path)})
            remove_folder(files, one.path)
