"""Backup of a table to one file with all events of its log, and its restore into another store.

Sealed values stay sealed, and encryption keys are not in a backup. `export_file` describes the format.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.base.checked_json import read_checked, replace_checked
from holdfast.base.errors import Corrupt, InvalidArgument
from holdfast.base.files import Files, SystemFiles, translate_os_errors
from holdfast.base.names import escape_name
from holdfast.base.paths import local_path
from holdfast.log.batch import ColumnValue
from holdfast.log.log import Log
from holdfast.table.model.definition import describe, model_from
from holdfast.table.model.model import Model
from holdfast.table.storage.export_file import BACKUP_FORMAT, BackupEntry, BackupReader, BackupReport, BackupWriter
from holdfast.table.storage.schema_history import SchemaHistory

if TYPE_CHECKING:
    from holdfast.table.engine import TableEngine
    from holdfast.table.table import Table

__all__ = [
    "FRAME_RECORDS",
    "BackupReport",
    "Progress",
    "RestoreReport",
    "TableStore",
    "backup_table",
    "check_restored",
    "restore_table",
    "verify_backup",
]

_SUFFIX = ".hftable"
_RESTORING = "restoring.json"
_FRAME_BYTES = 1 << 20
"""Plain bytes of events after which a frame ends."""
FRAME_RECORDS = 10_000

BackupPath = str | os.PathLike[str]
"""The path of a backup."""
Progress = Callable[[int, int], None]
"""Called with the number of processed events, and the total."""


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """Result of a restore."""

    table: str
    events: int
    last_version: int
    resumed: int = 0
    """How many of the events an earlier, interrupted restore had written already."""


class TableStore(Protocol):
    """The store into which a table is restored: `holdfast.Store`."""

    @property
    def path(self) -> Path:
        """Its folder."""
        ...

    def tables(self) -> list[str]:
        """The names of its tables."""
        ...

    @property
    def table(self) -> Callable[..., Any]:
        """Opens the table of a model, with its settings."""
        ...


def backup_table(
    table: "Table[Any]",
    path: BackupPath,
    *,
    since: BackupReport | BackupPath | None = None,
    allow_damage: bool = False,
    progress: Progress | None = None,
    files: Files | None = None,
) -> BackupReport:
    """Write all events of a table up to now into a file, or into a new file in a folder; writers continue meanwhile.

    With `since`, an earlier backup or its report, only what came after it: to restore, give both, in this order. An
    event that is damaged in the log makes it fail, unless `allow_damage`. The file appears when it is complete and
    durable; an existing one is replaced.
    """
    files = files or SystemFiles()
    log = table.engine.log
    stop = _durable_end(table.engine)
    first = _first(log, stop, since, files)
    target = local_path(path, "a backup")
    if _is_folder(files, target):
        target /= f"{escape_name(table.name, 'table name')}-{first:012}-{stop:012}{_SUFFIX}"
    if since is not None and target == Path(since.path if isinstance(since, BackupReport) else since):
        raise InvalidArgument(f"{str(target)!r} is the backup that this one continues: choose another name")
    head = {
        "table": table.name,
        "id": table.model.__spec__.id,
        "log": log.id.hex(),
        "first": first,
        "full": since is None,
        "definition": describe(table.model),
        "settings": asdict(table.settings),
        **table.engine.schema.past.to_dict(),
    }
    temporary = target.with_name(f"{target.name}.{os.getpid()}.part")
    with translate_os_errors("writing the backup", target):
        try:
            if files.exists(temporary):  # left by a crash
                files.remove(temporary)
            with contextlib.closing(files.open(temporary, "x")) as file:
                writer = BackupWriter(file, head)
                for entries in _batches(log, first, stop, allow_damage):
                    writer.put(entries)
                    if progress is not None:
                        progress(writer.events, stop - first)
                report = writer.finish(target, stop)
            files.replace(temporary, target)
            files.sync_dir(target.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                files.remove(temporary)
            raise
    return report


def verify_backup(*paths: BackupPath, files: Files | None = None, progress: Progress | None = None) -> BackupReport:
    """Read a backup, or a full one and those that follow it, to the end and check it; return the last report.

    Raises `Corrupt` if a byte is not what was written or the end is missing, `InvalidArgument` if they do not follow
    each other.
    """
    reports = []
    for path in paths:
        reader = BackupReader(local_path(path, "a backup"), files or SystemFiles())
        done = 0
        for entries in reader.batches():
            done += len(entries)
            if progress is not None:
                progress(done, reader.report.events)
        reports.append(reader.report)
    _check_chain(reports, complete=len(reports) > 1)
    return reports[-1]


def restore_table(
    store: TableStore,
    path: BackupPath | Sequence[BackupPath],
    *,
    model: type[Model] | None = None,
    keyring: Any = None,
    progress: Progress | None = None,
    files: Files | None = None,
) -> RestoreReport:
    """Restore a table from a backup into a store that has no such table, with its keys, versions and history.

    `path` is a full backup, or a list of one and those that follow it. All of them are checked before anything is
    written. If the restore is interrupted, the table cannot be opened; the same call again continues where it
    stopped. Its records in the log get new times and positions; their versions, which contain the original times, stay.
    """
    files = files or SystemFiles()
    readers = [BackupReader(local_path(one, "a backup"), files) for one in _each(path)]
    for reader in readers:
        for _ in reader.batches():  # nothing is written before every byte is verified
            pass
    reports = [reader.report for reader in readers]
    _check_chain(reports, complete=True)
    head = readers[-1].head
    name = reports[-1].table
    model = _model(head, model)
    marker = store.path / "tables" / escape_name(name, "table name") / _RESTORING
    mark = {"format": BACKUP_FORMAT, "digests": [report.digest for report in reports]}
    known = _mark_in(files, marker)
    if known is not None and known != mark:
        raise InvalidArgument(
            f"the table {name!r} in {str(store.path)!r} is partly restored from another backup: finish that one first, "
            f"or remove the folder {str(marker.parent)!r} while the store is closed"
        )
    if known is None and name in store.tables():
        raise InvalidArgument(f"the table {name!r} already exists in {str(store.path)!r}: restore into another store")
    if known is None:
        with translate_os_errors("restoring into", marker.parent):
            files.make_dirs(marker.parent)
            replace_checked(files, marker, mark)
    settings = {**head["settings"], **({} if keyring is None else {"keyring": keyring})}
    with _allowed(marker, SchemaHistory.of(head)):
        table: Table[Any] = store.table(model, **settings)
    log = table.engine.log
    done = log.end
    if known is None and done:
        with translate_os_errors("restoring into", marker.parent):
            files.remove(marker)
        raise InvalidArgument(
            f"the table {name!r} in {str(store.path)!r} has records already: restore into another store"
        )
    total = sum(report.events for report in reports)
    try:
        count = _append(log, readers, done, total, progress)
        log.sync()
        if count != total or log.end != total:
            raise Corrupt(
                f"{total} events were to be restored, but the log of {name!r} has {log.end}: something else "
                f"wrote to it meanwhile. Close the store, remove the folder {str(marker.parent)!r} and begin again"
            )
        table.rebuild()
    except BaseException:
        table.engine.close()  # the table is incomplete: it must not be used in this process either
        raise
    with translate_os_errors("restoring into", marker.parent):
        files.remove(marker)
        files.sync_dir(marker.parent)
    return RestoreReport(name, total, max(report.last_version for report in reports), resumed=done)


_restoring: dict[Path, SchemaHistory] = {}
"""Markers of the restores that run in this process, which may open their table, with the schema history of each."""


@contextlib.contextmanager
def _allowed(marker: Path, past: SchemaHistory) -> Iterator[None]:
    _restoring[marker] = past
    try:
        yield
    finally:
        del _restoring[marker]


def check_restored(files: Files, folder: Path) -> SchemaHistory | None:
    """Raise `InvalidArgument` if a restore was interrupted; return the schema history of a restore that runs here.

    Called before its log is opened.
    """
    marker = folder / _RESTORING
    if marker in _restoring:
        return _restoring[marker]
    if files.exists(marker):
        raise InvalidArgument(
            f"the table in {str(folder)!r} is partly restored: call restore_table again with the same backup, or "
            "remove the folder while the store is closed"
        )
    return None


# Writing


def _durable_end(engine: "TableEngine[Any]") -> int:
    """Return the durable end of the log: the log then still has all of this backup when the next one continues it."""
    log = engine.log
    if engine.access.read_only:
        return log.readable()[1]
    log.sync()
    place = log.appender.durable_place()
    return log.readable()[1] if place is None else place[2]


def _first(log: Log, stop: int, since: BackupReport | BackupPath | None, files: Files) -> int:
    if since is None:
        return log.start
    before = since if isinstance(since, BackupReport) else BackupReader(local_path(since, "a backup"), files).report
    if before.log != log.id.hex():
        raise InvalidArgument(
            f"the backup {before.path!r} is not of the present log of {log.name!r}: make a full one, without since"
        )
    if not log.start <= before.stop <= stop:
        raise InvalidArgument(
            f"the backup {before.path!r} ends at {before.stop}, but the log of {log.name!r} has {log.start} to {stop}: "
            "make a full one, without since"
        )
    return before.stop


def _is_folder(files: Files, path: Path) -> bool:
    if not files.exists(path):
        return False
    try:
        with contextlib.closing(files.open(path, "w")):
            return False
    except (IsADirectoryError, FileNotFoundError):
        return True


def _batches(log: Log, first: int, stop: int, allow_damage: bool) -> Iterator[list[BackupEntry]]:
    batch: list[BackupEntry] = []
    size, expected = 0, first
    for record in log.read(first, stop):
        if record.sequence != expected and not allow_damage:
            raise _damaged(log, expected)
        expected = record.sequence + 1
        batch.append(BackupEntry(record.sequence, record.timestamp, bytes(record.key or b""), bytes(record.payload)))
        size += len(batch[-1].payload) + len(batch[-1].key)
        if size >= _FRAME_BYTES or len(batch) >= FRAME_RECORDS:
            yield batch
            batch, size = [], 0
    if expected != stop and not allow_damage:
        raise _damaged(log, expected)
    if batch:
        yield batch


def _damaged(log: Log, sequence: int) -> Corrupt:
    return Corrupt(
        f"the event {sequence} of the log of {log.name!r} cannot be read (see holdfast verify); the backup was not "
        "made. With allow_damage=True, damaged events are left out",
        str(log.folder),
    )


# Restoring


def _each(path: BackupPath | Sequence[BackupPath]) -> Sequence[BackupPath]:
    paths = [path] if isinstance(path, str | os.PathLike) else list(path)
    if not paths:
        raise InvalidArgument("there is no backup to restore: give a file, or a list of them")
    return paths


def _check_chain(reports: Sequence[BackupReport], *, complete: bool) -> None:
    """Reject backups that do not follow each other, or do not begin with a full one."""
    if not reports:
        raise InvalidArgument("there is no backup to check: give a file")
    if complete and not reports[0].full:
        raise InvalidArgument(f"the backup {reports[0].path!r} continues another one: give that one first, in a list")
    for before, after in pairwise(reports):
        if after.full or after.log != before.log or after.first != before.stop:
            raise InvalidArgument(f"the backup {after.path!r} does not continue {before.path!r}: give them in order")


def _model(head: dict[str, Any], model: type[Model] | None) -> type[Model]:
    if model is None:
        return model_from(head["definition"])
    if (model.__spec__.name, model.__spec__.id) != (head["table"], head["id"]):
        raise InvalidArgument(
            f"the backup is of the table {head['table']!r} with id {head['id']}, not of {model.__spec__.name!r} with "
            f"id {model.__spec__.id}: give the model of that table, or none"
        )
    return model


def _mark_in(files: Files, marker: Path) -> dict[str, Any] | None:
    with translate_os_errors("restoring into", marker.parent):
        try:
            return read_checked(files, marker)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (ValueError, TypeError) as error:
            raise Corrupt(f"{str(marker)!r} cannot be read: remove its folder while the store is closed") from error


def _append(log: Log, readers: Iterable[BackupReader], skip: int, total: int, progress: Progress | None) -> int:
    """Append all events except the first `skip`, which are there already; return how many there are in all."""
    count = 0
    for reader in readers:
        for entries in reader.batches():
            fresh = entries[max(0, skip - count) :]
            count += len(entries)
            if fresh:
                payloads = [entry.payload for entry in fresh]
                extras = [ColumnValue(n, "key", entry.key, len(entry.key)) for n, entry in enumerate(fresh)]
                # Without a size limit: it was accepted before, perhaps with other settings.
                log.commit(log.gather(payloads, extras, 0, limited=False)[0])
            if progress is not None:
                progress(count, total)
    return count
