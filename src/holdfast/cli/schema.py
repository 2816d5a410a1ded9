"""The `holdfast schema` commands: the schemas that are kept with logs, their versions and compatibility."""

import contextlib
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.base.units import format_count, format_time, iso_time
from holdfast.cli.open_store import log_to_change, log_to_read, store_to_read, store_to_write
from holdfast.cli.options import DataOption, JsonOption, NameArgument, help_if_alone
from holdfast.cli.output import Name, details, make_table, safe_text, show, write_json
from holdfast.schemas.column_types import ddl_of
from holdfast.schemas.formats import payload_columns
from holdfast.schemas.payload_schema import PayloadSchema, SchemaVersion

__all__ = ["schema_commands"]

schema_commands = typer.Typer(
    invoke_without_command=True,
    callback=help_if_alone,
    help="Keep a schema with a log: its versions, their compatibility, and the check of producers.",
)


class SchemaFormat(StrEnum):
    """Formats of payloads."""

    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    MSGPACK = "msgpack"
    ARROW = "arrow"


class CompatibilityChoice(StrEnum):
    """What a new version must be with all earlier ones."""

    NONE = "none"
    BACKWARD = "backward"
    FORWARD = "forward"
    FULL = "full"


FileArgument = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="DDL or the JSON of a Spark StructType; for avro also an Avro schema; for protobuf a descriptor set of "
        "protoc --include_imports --descriptor_set_out.",
    ),
]
FormatOption = Annotated[
    SchemaFormat | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        show_default="that of the log",
        help="The format of the payloads: json, avro, protobuf, msgpack or arrow.",
    ),
]
MessageOption = Annotated[
    str | None, typer.Option("--message", metavar="NAME", help="protobuf: the full name of the message.")
]
CompatibilityOption = Annotated[
    CompatibilityChoice | None,
    typer.Option(
        "--compatibility",
        metavar="RULE",
        show_default="as before, or backward",
        help="backward: the new version reads what the earlier ones wrote; forward: they read what it writes; full: "
        "both; none: unchecked.",
    ),
]


@schema_commands.command("set")
def set_schema(
    name: NameArgument,
    file: FileArgument,
    format: FormatOption = None,
    message: MessageOption = None,
    compatibility: CompatibilityOption = None,
    validate: Annotated[
        bool | None,
        typer.Option(
            "--validate/--no-validate", show_default="as before, or no", help="Refuse payloads that do not fit."
        ),
    ] = None,
    create: Annotated[bool, typer.Option("--create", help="Create the log if it does not exist.")] = False,
    data: DataOption = Path("data"),
    as_json: JsonOption = False,
) -> None:
    """Add a version to the schema of a log.

    A schema that the log has already adds no version. Versions never change, and are never removed.
    """
    if create:
        with store_to_write(data) as store:
            log = store.log(name)
            newest = None
            with contextlib.suppress(NotFound):  # a server has not created it yet
                newest = log.schema.newest()
            schema = _given(name, newest, file, format, message, compatibility, validate)
            _show(name, log.schema.set(schema), as_json=as_json)
        return
    with log_to_change(data, name) as log:
        schema = _given(name, log.schema.newest(), file, format, message, compatibility, validate)
        _show(name, log.schema.set(schema), as_json=as_json)


@schema_commands.command("show")
def show_schema(
    name: NameArgument,
    version: Annotated[
        int | None, typer.Option("--version", min=1, metavar="N", show_default="the newest", help="Which version.")
    ] = None,
    data: DataOption = Path("data"),
    as_json: JsonOption = False,
) -> None:
    """Show a version of the schema of a log. Works while another process writes."""
    with log_to_read(data, name) as log:
        versions = log.schema.versions()
    if not versions:
        raise NotFound(f"the log {name!r} has no schema: keep one with holdfast schema set")
    if version is not None and version > len(versions):
        raise NotFound(f"the schema of the log {name!r} has {len(versions)} versions, and no version {version}")
    _show(name, versions[-1 if version is None else version - 1], as_json=as_json)


@schema_commands.command("check")
def check_schema(
    name: NameArgument,
    file: FileArgument,
    format: FormatOption = None,
    message: MessageOption = None,
    compatibility: CompatibilityOption = None,
    data: DataOption = Path("data"),
    as_json: JsonOption = False,
) -> int:
    """Check whether a schema could be set, and change nothing. The exit code is 1 if it is refused.

    Works while another process writes.
    """
    with log_to_read(data, name) as log:
        schema = _given(name, log.schema.newest(), file, format, message, compatibility, None)
        problem = None
        try:
            log.schema.check(schema)
        except InvalidArgument as error:
            problem = str(error)
    if as_json:
        write_json({"log": name, "ok": problem is None, "problem": problem})
    else:
        show("the schema can be set" if problem is None else safe_text(problem))
    return 0 if problem is None else 1


@schema_commands.command("list")
def list_schemas(data: DataOption = Path("data"), as_json: JsonOption = False) -> None:
    """List the logs that have a schema. Works while another process writes."""
    with store_to_read(data) as store:
        found = {name: store.log(name).schema.versions() for name in store.logs()}
    newest = {name: versions[-1] for name, versions in found.items() if versions}
    if as_json:
        write_json({"schemas": [_json(name, version) for name, version in newest.items()]})
    elif not newest:
        show("no log has a schema")
    else:
        table = make_table("log", "versions", "format", "compatibility", "validate", "set", numbers=("versions",))
        for name, version in newest.items():
            schema = version.schema
            rules = (schema.format, schema.compatibility, "yes" if schema.validate else "no")
            table.add_row(Name(name), format_count(version.number), *rules, format_time(version.created))
        show(table)


def _given(
    name: str,
    newest: SchemaVersion | None,
    file: Path,
    format: SchemaFormat | None,
    message: str | None,
    compatibility: CompatibilityChoice | None,
    validate: bool | None,
) -> PayloadSchema:
    """Return the schema in a file, with the rules of the last version for those that are not given."""
    if format is None and newest is None:
        raise InvalidArgument(f"the log {name!r} has no schema yet: pass --format")
    chosen = format.value if format is not None else newest.schema.format if newest is not None else ""
    if message is None and newest is not None and chosen == "protobuf":
        message = newest.schema.message
    schema = PayloadSchema.from_file(chosen, file, message=message)
    if newest is not None:
        schema = replace(schema, compatibility=newest.schema.compatibility, validate=newest.schema.validate)
    if compatibility is not None:
        schema = replace(schema, compatibility=compatibility.value)
    return schema if validate is None else replace(schema, validate=validate)


def _json(name: str, version: SchemaVersion) -> dict[str, Any]:
    schema = version.schema
    return {
        "log": name,
        "version": version.number,
        "format": schema.format,
        "message": schema.message,
        "compatibility": schema.compatibility,
        "validate": schema.validate,
        "created": version.created,
        "created_time": iso_time(version.created),
        "since": version.since,
        "columns": ddl_of(payload_columns(schema)),
        "text": schema.text,
    }


def _show(name: str, version: SchemaVersion, *, as_json: bool) -> None:
    facts = _json(name, version)
    if as_json:
        write_json(facts)
        return
    schema = version.schema
    rows = {
        "log": safe_text(name),
        "version": f"{version.number}, set {format_time(version.created)}, for records from {version.since} on",
        "format": schema.format + (f", message {safe_text(schema.message)}" if schema.message else ""),
        "compatibility": schema.compatibility,
        "producers": "checked" if schema.validate else "not checked",
        "columns": safe_text(facts["columns"]),
    }
    if schema.format == "avro":
        rows["schema"] = safe_text(schema.text)
    show(details(rows))
