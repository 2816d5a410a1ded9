"""The `holdfast backup` and `holdfast restore` commands."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.backup.backup import BackupReport, list_backups, verify_backup
from holdfast.backup.manifest import choose_backup
from holdfast.backup.restore import RestoreReport, restore_backup
from holdfast.base.errors import NotFound
from holdfast.base.files import SystemFiles
from holdfast.base.paths import local_path
from holdfast.base.units import format_duration, format_size, format_time, iso_time, plural
from holdfast.cli.open_store import folder_of, remote_at, store_to_write
from holdfast.cli.options import DataOption, JsonOption, UsageError, time_option
from holdfast.cli.output import (
    byte_progress,
    details,
    make_table,
    output_console,
    show,
    write_json,
    write_json_lines,
)
from holdfast.cli.warnings import notify, notify_some
from holdfast.replica.bucket import is_replica_url
from holdfast.replica.restore import ReplicaRestoreReport
from holdfast.replica.restore import restore as restore_replica

__all__ = ["backup", "restore"]

_NARROW, _WIDE = 76, 104
"""Widths of a terminal between which the list of backups has fewer columns. Below, each row is shown as lines."""


def backup(
    where: Annotated[Path, typer.Argument(metavar="DEST", help="The folder for backups, preferably on another disk.")],
    data: DataOption = Path("data"),
    full: Annotated[bool, typer.Option("--full", help="Share no files with earlier backups in DEST.")] = False,
    copy: Annotated[
        bool, typer.Option("--copy", help="Share no files with the live store, even on the same file system.")
    ] = False,
    base: Annotated[
        Path | None,
        typer.Option(
            "--base", metavar="BACKUP", show_default="the newest", help="Share files with this earlier backup."
        ),
    ] = None,
    listed: Annotated[bool, typer.Option("--list", help="List the backups in DEST instead.")] = False,
    verified: Annotated[
        bool, typer.Option("--verify", help="Check every byte of the backup DEST, or of the newest in DEST, instead.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Back up a store, as of one moment, into a new folder in DEST.

    Files that an earlier backup in DEST has already take no more space.

    If a server has the store open, use --url: the server writes the backup, on its own machine.
    """
    if listed:
        return _list(where, as_json)
    if verified:
        return _verify(where, as_json)
    with remote_at(data) as remote:
        if remote is not None:
            if full or base is not None:
                raise UsageError(
                    "--full and --base do not work with --url: the server chooses which files a backup shares"
                )
            made = remote.backup(where, copy=copy)
            if as_json:
                write_json(_facts(made))
            else:
                show(f"backed up to {made.path} on the server")
            return 0
    folder = folder_of(data)
    if not folder.exists():
        raise NotFound(f"there is no store at {str(folder)!r}: check --data")
    with store_to_write(folder) as store, _bar("Backing up", as_json) as step:
        report = store.backup(where, base=base, incremental=not full, copy=copy, progress=step)
    if as_json:
        write_json(_facts(report))
    else:
        _show_report(report)
    return 0


def restore(
    backup: Annotated[
        str,
        typer.Argument(
            metavar="BACKUP",
            help="A backup, a folder of backups (the newest), or the URL of a replica (s3://bucket/x).",
        ),
    ],
    data: DataOption = Path("data"),
    at: Annotated[
        datetime | None,
        typer.Option(
            "--at", metavar="TIME", parser=time_option, help="Restore the newest backup not later than this time."
        ),
    ] = None,
    moment: Annotated[
        str | None,
        typer.Option("--moment", metavar="MOMENT", help="Restore this moment of a replica: see `replica moments`."),
    ] = None,
    salvage: Annotated[
        bool, typer.Option("--salvage", help="Restore the undamaged part of a damaged backup instead of refusing it.")
    ] = False,
    as_json: JsonOption = False,
) -> int:
    """Restore a backup, or a moment of a replica, into a folder that does not exist yet.

    Every checksum is verified. Then the store is opened and read completely. The exit code is 1 if anything is damaged.
    """
    folder = folder_of(data)
    if is_replica_url(backup):
        if salvage:
            raise UsageError("--salvage works on backups only: choose another --moment of the replica")
        return _restore_replica(backup, folder, at, moment, as_json)
    if moment is not None:
        raise UsageError("--moment works on replicas only: choose a backup by its folder, or with --at")
    with _bar("Restoring", as_json) as step:
        report = restore_backup(Path(backup), folder, at=at, salvage=salvage, progress=step)
    if as_json:
        write_json(
            {
                **{name: value for name, value in asdict(report).items() if name != "faults"},
                "path": str(report.path),
                "backup": str(report.backup),
                "created_time": iso_time(report.created_at),
                "faults": [str(fault) for fault in report.faults],
                "ok": report.ok,
            }
        )
    else:
        _show_restored(report)
    return 0 if report.ok else 1


def _restore_replica(url: str, folder: Path, at: datetime | None, moment: str | None, as_json: bool) -> int:
    with _bar("Restoring", as_json) as step:
        report = restore_replica(url, folder, at=at, moment=moment, progress=step)
    if as_json:
        write_json(
            {
                **asdict(report),
                "path": str(report.path),
                "created_time": iso_time(report.created_at),
                "ok": report.ok,
            }
        )
        return 0 if report.ok else 1
    notify_some(report.problems, "problems")
    rows = {
        "store": str(report.path),
        "replica": report.url,
        "moment": f"{report.moment} of {format_time(report.created_at)}" + (", the newest" if report.is_newest else ""),
        "size": f"{format_size(report.bytes)} in {plural(report.files, 'file')}",
        **_contents(report),
        "state": "intact" if report.ok else "damaged",
    }
    show(details(rows))
    return 0 if report.ok else 1


def _contents(report: RestoreReport | ReplicaRestoreReport) -> dict[str, str]:
    return {
        "queues": f"{len(report.queues)} with {plural(sum(report.queues.values()), 'message')}",
        "logs": f"{len(report.logs)} with {plural(sum(report.logs.values()), 'record')}",
        "tables": f"{len(report.tables)} with {plural(sum(report.tables.values()), 'record')}",
    }


def _list(where: Path, as_json: bool) -> int:
    where = local_path(where, "a backup")
    if not where.is_dir():
        raise NotFound(f"there is no folder {str(where)!r}: check the path")
    found = list_backups(where)
    if as_json:
        write_json_lines(
            {**asdict(one), "path": str(one.path), "created_time": iso_time(one.created_at)} for one in found
        )
        if not found:
            notify(f"no backups in {str(where)!r}")
        return 0
    columns = ["backup", "taken", "files", "size", "shares with", "state"]
    if _NARROW <= output_console().width < _WIDE:
        columns.remove("shares with")
    table = make_table(*columns, numbers=("files", "size"))
    for column in table.columns[:2]:
        column.no_wrap = True
    for one in found:
        cells = {
            "backup": one.path.name,
            "taken": format_time(one.created_at),
            "files": str(one.files) if not one.problem else "",
            "size": format_size(one.bytes) if not one.problem else "",
            "shares with": one.base or "",
            "state": one.problem or "intact",
        }
        table.add_row(*(cells[name] for name in columns))
    show(table if found else f"no backups in {str(where)!r}")
    return 0


def _verify(where: Path, as_json: bool) -> int:
    folder = choose_backup(SystemFiles(), local_path(where, "a backup"))
    with _bar("Verifying", as_json) as step:
        faults = verify_backup(folder, progress=step)
    if as_json:
        write_json({"path": str(folder), "ok": not faults, "faults": [str(fault) for fault in faults]})
        return 1 if faults else 0
    notify_some([f"damage: {fault}" for fault in faults], "damaged files")
    show(f"{folder}: " + (f"{plural(len(faults), 'file')} damaged" if faults else "intact"))
    return 1 if faults else 0


def _facts(report: BackupReport) -> dict[str, Any]:
    return {
        **asdict(report),
        "path": str(report.path),
        "created_time": iso_time(report.created_at),
        "left_out": list(report.left_out),
    }


def _show_report(report: BackupReport) -> None:
    rows = {
        "backup": str(report.path),
        "time": format_time(report.created_at),
        "contents": ", ".join(
            (plural(report.queues, "queue"), plural(report.logs, "log"), plural(report.tables, "table"))
        ),
        "size": f"{format_size(report.bytes)} in {plural(report.files, 'file')}",
        "new": format_size(report.new_bytes) + (f", the rest is shared with {report.base}" if report.base else ""),
        "duration": f"{format_duration(report.took)}; writers were blocked for {report.held * 1000:.1f} ms",
    }
    if report.linked_bytes:
        rows["shared"] = (
            f"{format_size(report.linked_bytes)} with the live store, on the same disk: use another disk or --copy"
        )
    if report.left_out:
        rows["left out"] = f"{', '.join(report.left_out)}: rebuilt when a restored store is opened"
    show(details(rows))


def _show_restored(report: RestoreReport) -> None:
    notify_some([f"damage in the backup: {fault}" for fault in report.faults], "damaged files")
    notify_some(report.problems, "problems")
    show(
        details(
            {
                "store": str(report.path),
                "backup": str(report.backup),
                "time": format_time(report.created_at),
                "size": f"{format_size(report.bytes)} in {plural(report.files, 'file')}",
                **_contents(report),
                "state": "intact" if report.ok else "damaged: the undamaged part was restored",
            }
        )
    )


@contextmanager
def _bar(title: str, as_json: bool) -> Iterator[Callable[[int, int], None]]:
    with byte_progress(shown=not as_json) as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
