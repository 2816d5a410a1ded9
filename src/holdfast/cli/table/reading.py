"""Implementation of the table commands that read: list, get, scan, changes and migrations."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from holdfast.base.clock import from_ns
from holdfast.base.errors import HoldfastError, InvalidArgument, NotFound
from holdfast.base.units import format_count, format_size
from holdfast.cli.open_store import seen_as, store_to_read
from holdfast.cli.options import Target, UsageError
from holdfast.cli.output import (
    error_console,
    json_line,
    progress_on,
    safe_text,
    short_name,
    show,
    standard_output,
    write_json,
    write_json_lines,
)
from holdfast.cli.table.open_table import expression_of, key_of, names_of, point_of, table_to_read
from holdfast.cli.table.printing import RecordTables, changes_parts, record_details, table_or_blocks, time_text
from holdfast.cli.warnings import notify
from holdfast.remote.store import RemoteStore
from holdfast.table import Table, TableScanRefused
from holdfast.table.model.field_edits import steps_of
from holdfast.table.model.field_path import type_at
from holdfast.table.model.json_output import changes_json, json_of, record_json, time_json
from holdfast.table.storage.keyring import WITHOUT_KEYS

__all__ = ["list_tables", "show_changes", "show_migrations", "show_record", "show_scan"]


def list_tables(data: Target, *, as_json: bool) -> None:
    """Print all tables of a store."""
    with store_to_read(data) as store:
        if (remote := seen_as(RemoteStore, store)) is not None:
            found = [_remote_figures(row) for row in remote.table_rows()]
        else:
            found = [
                _figures(store.table(name, keyring=WITHOUT_KEYS), shown=not as_json)  # counting reads no values
                for name in store.tables()
            ]
    if as_json:
        write_json({"tables": found})
        return
    rows = [
        {
            "table": safe_text(one["name"]),
            "id": str(one["id"]),
            "version": safe_text(one["version"]),
            "records": format_count(one["records"]),
            "log": format_size(one["log_bytes"]),
            "past": "kept" if one["keep_all_versions"] else "-",
            "last change": time_text(one["last_version"])[:19] if one["last_version"] else "-",
        }
        for one in found
    ]
    _show_tables(rows, data, numbers=("id", "records", "log"))


def show_migrations(data: Target, *, as_json: bool) -> None:
    """Print the status of the tables' migrations."""
    with store_to_read(data) as store:
        found = list(store.migrations())
    if as_json:
        write_json({"migrations": [json_of(asdict(one)) for one in found]})
        return
    rows = [
        {
            "table": safe_text(one.table),
            "state": one.state,
            "phase": one.phase or "-",
            "records": format_count(one.processed) + ("" if one.total is None else f" of {format_count(one.total)}"),
            "attempts": str(one.attempts) if one.phase else "-",
            "started": "-" if one.started is None else f"{from_ns(one.started):%Y-%m-%d %H:%M:%S}",
            "error": safe_text(one.error) or "-",
        }
        for one in found
    ]
    _show_tables(rows, data, numbers=("records", "attempts"))


def _show_tables(rows: Sequence[Mapping[str, str]], data: Target, *, numbers: Sequence[str]) -> None:
    show(*(table_or_blocks(rows, numbers) if rows else [f"no tables in {str(data)!r} yet"]))


def _figures(table: Table[Any], *, shown: bool) -> dict[str, Any]:
    table.count(limit=0)  # applies what another process has written since
    live, deleted = _counts(table, shown=shown)
    last = table.last_version
    return {
        "name": table.name,
        "id": table.model.__spec__.id,
        "version": table.model.__spec__.version,
        "records": live,
        "deleted": deleted,
        "log_bytes": table.log.stats().bytes,
        "keep_all_versions": table.settings.keep_all_versions,
        "update_history": table.settings.update_history,
        "last_version": last or None,
        "last_version_time": time_json(last) if last else None,
    }


def _remote_figures(row: Mapping[str, Any]) -> dict[str, Any]:
    last = row.get("last_version") or None
    return {
        "name": row["name"],
        "id": row.get("id"),
        "version": row["version"],
        "records": row["count"],
        "deleted": row["deleted"],
        "log_bytes": row.get("log_bytes", 0),
        "keep_all_versions": row["keep_all_versions"],
        "update_history": row.get("update_history", False),
        "last_version": last,
        "last_version_time": None if last is None else time_json(last),
    }


def _counts(table: Table[Any], *, shown: bool) -> tuple[int, int]:
    """Return the numbers of records and of soft-deleted records, without reading their values."""
    with progress_on(error_console(), shown=shown, in_bytes=False) as progress:
        bar = progress.add_task(f"counting {short_name(table.name)}", total=None)
        return table.counts(lambda count: progress.update(bar, completed=count))


def show_record(
    name: str,
    key: str,
    data: Target,
    *,
    keyring: Path | None,
    as_of: str | None,
    include_deleted: bool,
    as_json: bool,
) -> None:
    """Print one record."""
    wanted, point = key_of(key), point_of(as_of, "--as-of")
    with table_to_read(data, name, keyring) as (table, _):
        record = table.get(wanted, as_of=point, include_deleted=True)
        if record is None:
            then = "" if as_of is None else f" as of {as_of}"
            raise NotFound(f"the table {name!r} has no record {key}{then}")
        if record.deleted and not include_deleted:
            raise NotFound(f"the record {key} of {name!r} is deleted: --include-deleted shows it")
        if as_json:
            write_json(record_json(record))
        else:
            show(record_details(record))


def show_scan(
    name: str,
    data: Target,
    *,
    where: str | None,
    order: str | None,
    limit: int | None,
    cursor: str | None,
    as_of: str | None,
    select: str | None,
    include_deleted: bool,
    allow_table_scan: bool,
    explain: bool,
    as_json: bool,
    keyring: Path | None,
) -> None:
    """Print the records that match a filter."""
    chosen = names_of(select)
    with _in_options(), table_to_read(data, name, keyring) as (table, find):
        fields = _checked_names(table, chosen)
        scan = table.scan(
            expression_of(table, where, find),
            order=names_of(order),
            limit=limit,
            cursor=cursor,
            as_of=point_of(as_of, "--as-of"),
            include_deleted=include_deleted,
            select=chosen,
            allow_table_scan=allow_table_scan,
        )
        if explain:
            if as_json:
                plan = scan.plan.describe()
                write_json({"explain": scan.explain(), **{what: json_of(value) for what, value in plan.items()}})
            else:
                show(safe_text(scan.explain()))
            return
        if as_json:
            stream, found = standard_output(), False
            for record in scan:
                stream.write(json_line(record_json(record)))
                found = True
            if scan.cursor is not None:
                stream.write(json_line({"cursor": scan.cursor}))
            stream.flush()
            if not found:
                notify(_nothing(name, filtered=where is not None or cursor is not None))
            return
        kinds = {name: type_at(table.model.__spec__, steps_of(table.model.__spec__, name)).kind for name in fields}
        printer = RecordTables(kinds)
        count = 0
        for record in scan:
            printer.add(record)
            count += 1
        printer.flush()
        if not count:
            notify(_nothing(name, filtered=where is not None or cursor is not None))
        if scan.cursor is not None:
            notify(f"there are more records: continue with --cursor {scan.cursor}")


def show_changes(
    name: str,
    keys: Sequence[str],
    data: Target,
    *,
    where: str | None,
    first: str | None,
    last: str | None,
    max_versions: int,
    select: str | None,
    limit: int | None,
    include_deleted: bool,
    allow_table_scan: bool,
    keyring: Path | None,
    as_json: bool,
) -> None:
    """Print the changes of records."""
    wanted = [key_of(key) for key in keys] or None
    with _in_options(), table_to_read(data, name, keyring) as (table, find):
        chosen = names_of(select)
        _checked_names(table, chosen)
        found = table.changes(
            wanted,
            where=expression_of(table, where, find),
            from_version=point_of(first, "--from"),
            to_version=point_of(last, "--to"),
            max_versions=max_versions,
            select=chosen,
            limit=limit,
            include_deleted=include_deleted or wanted is not None,
            allow_table_scan=allow_table_scan,
        )
    if as_json:
        write_json_lines(map(changes_json, found))
    else:
        for place, one in enumerate(found):
            if place:
                show("")
            show(*changes_parts(one))
    if not found:
        notify(f"no change in {name!r} matches")


def _nothing(name: str, *, filtered: bool) -> str:
    return f"no record in {name!r} matches" if filtered else f"the table {name!r} is empty"


def _checked_names(table: Table[Any], chosen: Sequence[str] | None) -> list[str]:
    """Return the columns to show; unknown names are an error."""
    if chosen is None:
        return list(table.model.__spec__.fields)
    try:
        for path in chosen:
            steps_of(table.model.__spec__, path)
    except InvalidArgument as error:
        raise UsageError(f"--select: {error}") from error
    return list(chosen)


@contextlib.contextmanager
def _in_options() -> Iterator[None]:
    """Translate the library's errors, which mention Python arguments, to options of the command line."""
    try:
        yield
    except HoldfastError as error:
        if (text := str(error).replace("allow_table_scan=True", "--allow-table-scan")) == str(error):
            raise
        raise TableScanRefused(text) from error
