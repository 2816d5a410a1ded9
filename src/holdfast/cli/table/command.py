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
    str, typer.Argument(metavar="KEY", help="The record's key, in base64url; put -- before one that begins with -.")
]
KeysArgument = Annotated[
    list[str], typer.Argument(metavar="KEY...", help="Keys of records; put -- before one that begins with -.")
]
AsOfOption = Annotated[
    str | None,
    typer.Option(
        "--as-of", metavar="POINT", help="As it was then: a version, 2026-11-15T12:00:00Z, or 15m for that long ago."
    ),
]
WhereOption = Annotated[
    str | None,
    typer.Option(
        "--where", metavar="EXPR", help="Only records of which this is true: 'age >= 18 and \"vip\" in tags'."
    ),
]
SelectOption = Annotated[str | None, typer.Option("--select", metavar="NAMES", help="Only these: name,address.city.")]
LimitOption = Annotated[int | None, typer.Option("--limit", "-n", min=0, metavar="N", help="At most so many records.")]
DeletedOption = Annotated[bool, typer.Option("--include-deleted", help="Also records that are softly deleted.")]
TableScanOption = Annotated[
    bool, typer.Option("--allow-table-scan", help="Read the whole table, where no index leads to the records.")
]
IfVersionOption = Annotated[
    int | None, typer.Option("--if-version", min=0, metavar="VERSION", help="Only if the record has this version.")
]

KeyringOption = Annotated[
    Path | None,
    typer.Option(
        "--keyring", metavar="FILE", help="The keys of a table with sensitive fields, as Keyring.save wrote them."
    ),
]

table_commands = typer.Typer(
    invoke_without_command=True, callback=help_if_alone, help="Look at tables and change their records."
)


@table_commands.command("list")
def list_tables(data: DataOption = Path("data"), as_json: JsonOption = False) -> None:
    """Show all tables of a store.

    `log` is the size of the log of its changes. Where the past is `kept`, records can be read as of any version.

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
        str | None, typer.Option("--order", metavar="NAMES", help="By these, - for the greatest first: -opened,name.")
    ] = None,
    limit: LimitOption = None,
    cursor: Annotated[
        str | None, typer.Option("--cursor", metavar="TEXT", help="Go on where the page before this one ended.")
    ] = None,
    as_of: AsOfOption = None,
    select: SelectOption = None,
    include_deleted: DeletedOption = False,
    allow_table_scan: TableScanOption = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show which way would be taken to the records, and none of them.")
    ] = False,
    keyring: KeyringOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the records of a table, all or those that fit a filter.

    A filter compares fields with values (== != < <= > >=, in, not in, is None), joined by and, or, not and (...).
    Fields have also .exists(), .prefix("A"), .regex("..."), .between(1, 5), .isin([1, 2]) and .contains("x"); with
    address.city and limits["EUR"] one gets inside of them, with .any_item to each item of a list.

    Dates are text in ISO form, a datetime may be "15m" for that long ago; enums stand by name or value, keys as
    base64url.

    In JSON, a last line has the cursor if --limit cut something off.
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
        list[str] | None, typer.Argument(metavar="[KEY]...", help="Of these records; else of all that fit.")
    ] = None,
    data: DataOption = Path("data"),
    where: WhereOption = None,
    first: Annotated[
        str | None, typer.Option("--from", metavar="POINT", help="From this version or time on, included.")
    ] = None,
    last: Annotated[
        str | None, typer.Option("--to", metavar="POINT", help="Up to this version or time, included.")
    ] = None,
    max_versions: Annotated[
        int,
        typer.Option(
            "--max-versions", min=1, metavar="N", help="Of each value the newest so many; needs a table with its past."
        ),
    ] = 1,
    select: SelectOption = None,
    limit: LimitOption = None,
    include_deleted: DeletedOption = False,
    allow_table_scan: TableScanOption = False,
    keyring: KeyringOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what happened to records: each version, and which values it brought.

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
            metavar="JSON...", help="Records as JSON objects; @FILE with such, - for one a line of standard input."
        ),
    ] = None,
    data: DataOption = Path("data"),
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="The key of the record, if it is not to be a new one.")
    ] = None,
    keyring: KeyringOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add records and print their keys.

    A record that breaks a rule is told with all that is wrong with it, and the others are added: the exit code is 1
    then. Dates are text in ISO form, keys and bytes base64url.
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
            help="New values; += and -= add and remove an item of a list or set. Or one JSON object, null removes.",
        ),
    ] = None,
    data: DataOption = Path("data"),
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="NAME", help="Remove this value; may be repeated.")
    ] = None,
    check: Annotated[
        list[str] | None,
        typer.Option("--check", metavar="NAME=VALUE", help="Only if this value is there; may be repeated."),
    ] = None,
    if_version: IfVersionOption = None,
    keyring: KeyringOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change values of a record.

    Names may lead inside: address.city=Bonn, limits[EUR]=5. Text stands as it is, lists and dicts are JSON.
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
    hard: Annotated[bool, typer.Option("--hard", help="Forget them and their past, for good.")] = False,
    if_version: IfVersionOption = None,
    yes: YesOption = False,
    keyring: KeyringOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete records.

    They are hidden, and undelete brings them back; with --hard they are forgotten, and that is asked for first.
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
    """Bring records back that were deleted, but not with --hard."""
    from holdfast.cli.table import writing

    writing.undelete_records(table, keys, data, keyring=keyring, as_json=as_json)


@table_commands.command("migrations")
def migrations(data: DataOption = Path("data"), as_json: JsonOption = False) -> None:
    """Show where the migrations of tables stand.

    A migration is begun by the program that opens a table with another model; this shows how far it is. Works while
    that program has the store open.
    """
    from holdfast.cli.table import reading

    reading.show_migrations(data, as_json=as_json)
