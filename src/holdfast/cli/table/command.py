"""The `holdfast table` commands.

Their modules are loaded when one of them runs, so that other commands start fast.
"""

# ruff: noqa: PLC0415

from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.completion import complete_tables
from holdfast.cli.options import DataOption, JsonOption, YesOption, help_if_alone

__all__ = ["table_commands"]

TableArgument = Annotated[str, typer.Argument(metavar="TABLE", autocompletion=complete_tables, help="The table.")]
KeyArgument = Annotated[
    str, typer.Argument(metavar="KEY", help="The key of the record, in base64url; write -- before a key with - first.")
]
KeysArgument = Annotated[
    list[str], typer.Argument(metavar="KEY...", help="Keys of records; write -- before a key with - first.")
]
AsOfOption = Annotated[
    str | None,
    typer.Option(
        "--as-of", metavar="POINT", help="Read as of a version, a time (2026-11-15T12:00:00Z), or 15m ago (15m)."
    ),
]
WhereOption = Annotated[
    str | None,
    typer.Option(
        "--where", metavar="EXPR", help="Only records that match this filter: 'age >= 18 and \"vip\" in tags'."
    ),
]
SelectOption = Annotated[
    str | None, typer.Option("--select", metavar="NAMES", help="Show only these fields: name,address.city.")
]
LimitOption = Annotated[int | None, typer.Option("--limit", "-n", min=0, metavar="N", help="At most N records.")]
DeletedOption = Annotated[bool, typer.Option("--include-deleted", help="Include soft-deleted records.")]
TableScanOption = Annotated[
    bool, typer.Option("--allow-table-scan", help="Read the whole table if no index fits the filter.")
]
IfVersionOption = Annotated[
    int | None, typer.Option("--if-version", min=0, metavar="VERSION", help="Only if the record has this version.")
]

KeyringOption = Annotated[
    Path | None,
    typer.Option(
        "--keyring", metavar="FILE", help="The keyring file of a table with sensitive fields (see Keyring.save)."
    ),
]

table_commands = typer.Typer(
    invoke_without_command=True, callback=help_if_alone, help="Query tables and change their records."
)


@table_commands.command("list")
def list_tables(data: DataOption = Path("data"), as_json: JsonOption = False) -> None:
    """List all tables of a store.

    `log` is the size of the table's change log. If the past is `kept`, records can be read as of any version.

    Times are in UTC. Works while another process has the store open.
    """
    from holdfast.cli.table import reading

    reading.list_tables(data, as_json=as_json)


@table_commands.command("get")
def get(
    table: TableArgument,
    key: KeyArgument,
    data: DataOption = Path("data"),
    as_of: AsOfOption = None,
    include_deleted: DeletedOption = False,
    keyring: KeyringOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one record.

    Works while another process has the store open.
    """
    from holdfast.cli.table import reading

    reading.show_record(
        table, key, data, as_of=as_of, include_deleted=include_deleted, keyring=keyring, as_json=as_json
    )


@table_commands.command("scan")
def scan(
    table: TableArgument,
    data: DataOption = Path("data"),
    where: WhereOption = None,
    order: Annotated[
        str | None, typer.Option("--order", metavar="NAMES", help="Sort by these fields, - for descending: -age,name.")
    ] = None,
    limit: LimitOption = None,
    cursor: Annotated[
        str | None, typer.Option("--cursor", metavar="TEXT", help="Continue where the previous page ended.")
    ] = None,
    as_of: AsOfOption = None,
    select: SelectOption = None,
    include_deleted: DeletedOption = False,
    allow_table_scan: TableScanOption = False,
    explain: Annotated[bool, typer.Option("--explain", help="Show the query plan instead of the records.")] = False,
    keyring: KeyringOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the records of a table that match a filter, or all.

    A filter compares fields with values (== != < <= > >=, in, not in, is None), joined by and, or, not and (...).
    Fields also have .exists(), .prefix("A"), .regex("..."), .between(1, 5), .isin([1, 2]) and .contains("x").
    Nested values are address.city and limits["EUR"]; .any_item is each item of a list.

    Dates are ISO text; a datetime may be "15m" for 15 minutes ago. Enums are written by name or value, keys in
    base64url.

    With --json, the last line has a cursor if --limit left out records.
    """
    from holdfast.cli.table import reading

    reading.show_scan(
        table,
        data,
        where=where,
        order=order,
        limit=limit,
        cursor=cursor,
        as_of=as_of,
        select=select,
        include_deleted=include_deleted,
        allow_table_scan=allow_table_scan,
        explain=explain,
        keyring=keyring,
        as_json=as_json,
    )


@table_commands.command("changes")
def changes(
    table: TableArgument,
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY]...", help="Keys of records; without keys, all that match.")
    ] = None,
    data: DataOption = Path("data"),
    where: WhereOption = None,
    first: Annotated[
        str | None, typer.Option("--from", metavar="POINT", help="From this version or time, inclusive.")
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="POINT", help="Up to this version or time, inclusive.")
    ] = None,
    max_versions: Annotated[
        int,
        typer.Option(
            "--max-versions",
            min=1,
            metavar="N",
            help="Show the newest N versions of each value; more than 1 needs a table that keeps its past.",
        ),
    ] = 1,
    select: SelectOption = None,
    limit: LimitOption = None,
    include_deleted: DeletedOption = False,
    allow_table_scan: TableScanOption = False,
    keyring: KeyringOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the changes of records: each version, and the values that it set.

    Times are in UTC. Works while another process has the store open.
    """
    from holdfast.cli.table import reading

    reading.show_changes(
        table,
        keys or [],
        data,
        where=where,
        first=first,
        last=last,
        max_versions=max_versions,
        select=select,
        limit=limit,
        include_deleted=include_deleted,
        allow_table_scan=allow_table_scan,
        keyring=keyring,
        as_json=as_json,
    )


@table_commands.command("add")
def add(
    table: TableArgument,
    records: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="JSON...", help="Records as JSON objects; @FILE reads a file, - one object per line of stdin."
        ),
    ] = None,
    data: DataOption = Path("data"),
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="Use this key instead of a new one.")] = None,
    keyring: KeyringOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add records to a table and print their keys.

    An invalid record is reported with all its violations; the other records are added, and the exit code is 1. Dates
    are ISO text, keys and bytes base64url.
    """
    from holdfast.cli.table import writing

    writing.add_records(table, records or [], data, key=key, keyring=keyring, as_json=as_json)


@table_commands.command("change")
def change(
    table: TableArgument,
    key: KeyArgument,
    values: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE...",
            help="New values; += and -= add and remove an item of a list or set. Or one JSON object; null removes.",
        ),
    ] = None,
    data: DataOption = Path("data"),
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="NAME", help="Remove this value; may be repeated.")
    ] = None,
    check: Annotated[
        list[str] | None,
        typer.Option("--check", metavar="NAME=VALUE", help="Only if the field has this value; may be repeated."),
    ] = None,
    if_version: IfVersionOption = None,
    keyring: KeyringOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change values of a record.

    Names may be paths: address.city=Bonn, limits[EUR]=5. Text is written without quotes, lists and dicts as JSON.
    """
    from holdfast.cli.table import writing

    writing.change_record(
        table,
        key,
        values or [],
        data,
        unset=unset or [],
        check=check or [],
        if_version=if_version,
        keyring=keyring,
        as_json=as_json,
    )


@table_commands.command("delete")
def delete(
    table: TableArgument,
    keys: KeysArgument,
    data: DataOption = Path("data"),
    hard: Annotated[bool, typer.Option("--hard", help="Delete permanently, with all versions.")] = False,
    if_version: IfVersionOption = None,
    yes: YesOption = False,
    keyring: KeyringOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete records.

    Deleted records are hidden; undelete restores them. With --hard they are deleted permanently, after a confirmation.
    """
    from holdfast.cli.table import writing

    writing.delete_records(
        table, keys, data, hard=hard, if_version=if_version, yes=yes, keyring=keyring, as_json=as_json
    )


@table_commands.command("undelete")
def undelete(
    table: TableArgument,
    keys: KeysArgument,
    data: DataOption = Path("data"),
    keyring: KeyringOption = None,
    as_json: JsonOption = False,
) -> None:
    """Restore deleted records, unless they were deleted with --hard."""
    from holdfast.cli.table import writing

    writing.undelete_records(table, keys, data, keyring=keyring, as_json=as_json)


@table_commands.command("migrations")
def migrations(data: DataOption = Path("data"), as_json: JsonOption = False) -> None:
    """Show the progress of table migrations.

    A migration starts when a program opens a table with another model. Works while that program has the store open.
    """
    from holdfast.cli.table import reading

    reading.show_migrations(data, as_json=as_json)
