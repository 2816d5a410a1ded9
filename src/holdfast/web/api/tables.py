"""API routes for tables: records, their history and changes, writes, and migrations."""

import threading
from dataclasses import asdict
from typing import Any, cast

from holdfast.base.errors import HoldfastError, InvalidArgument, NotFound
from holdfast.base.hlc import time_of
from holdfast.base.units import iso_time, parse_time
from holdfast.broker.permissions import Operation
from holdfast.table import Model, Record, Table, key_from_text, text_of_key
from holdfast.table.model.change_parser import parse_changes
from holdfast.table.model.definition import describe
from holdfast.table.model.json_output import changes_json, json_of, record_json, time_json
from holdfast.table.operations import Add, Delete, Done, Outcome, Undelete
from holdfast.table.query.filter_parser import parse_filter
from holdfast.table.query.record_reader import Point
from holdfast.web.api.response_types import (
    AddedRecords,
    Changes,
    Effect,
    MigrationJson,
    Migrations,
    RecordChangesJson,
    RecordHistory,
    RecordJson,
    RecordOutcome,
    Records,
    Span,
    TableDetail,
    TableJson,
    Tables,
    TableSummary,
    VersionJson,
    Written,
)
from holdfast.web.request_schema import TEXT, WHOLE, body, said
from holdfast.web.responses import encoded, error_word
from holdfast.web.routes import Call, Needs, Routes

__all__ = ["table_routes"]

table_routes = Routes("tables")
_ALL = "/api/holdfast/tables"
_ONE = _ALL + "/{name}"
_RECORD = _ONE + "/records/{key}"
_LIMIT_MAX = 10_000
_VERSIONS_MAX = 1000
_DIGITS_MAX = 30
_START = {
    "start": "The key of the record to begin with, in base64url.",
    "include_start": "false: begin behind that record.",
}
_opening = threading.Lock()


def _table(call: Call, operation: Operation) -> Table[Any]:
    """Return the table that a path names, if the caller may perform the operation on it."""
    name = call.path["name"]
    call.may(operation, name)
    with _opening, call.looking_for("table", name):
        return call.site.store.table(name)


def _key(text: str) -> bytes:
    try:
        return key_from_text(text)
    except InvalidArgument as error:
        raise InvalidArgument(f"{text!r} is not a key: keys are base64url, as in records") from error


def _point(text: str | None) -> Point | None:
    if not text:
        return None
    return int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS_MAX else parse_time(text)


def _shown(record: Record[Any]) -> RecordJson:
    form = record_json(record)
    form["values"] = form.pop("value")
    return cast("RecordJson", form)


def _names(text: str | None) -> list[str] | None:
    return [one.strip() for one in text.split(",") if one.strip()] if text else None


def _is_not_false(call: Call, name: str) -> bool:
    """Return a boolean of the query that is true by default."""
    return call.query.get(name, "true") != "false"


def _start(call: Call) -> bytes | None:
    return _key(text) if (text := call.query.get("start")) else None


def _where(call: Call, table: Table[Any]) -> Any:
    text = call.query.get("where")

    def find(other: str) -> type[Model]:
        call.may(Operation.TABLE_READ, other)  # the result reveals values of the other table
        with call.looking_for("table", other):
            return call.site.store.table(other).model

    return parse_filter(table.model, text, find) if text else None


def _figures(table: Table[Any]) -> TableJson:
    live, deleted = table.counts()
    last, spec = table.last_version, table.model.__spec__
    return {
        "name": table.name,
        "id": spec.id,
        "version": spec.version,
        "count": live,
        "deleted": deleted,
        "log_bytes": table.log.stats().bytes,
        "keep_all_versions": table.settings.keep_all_versions,
        "update_history": table.settings.update_history,
        "first_time": iso_time(table.log.stats().first_timestamp),
        "last_version": last or None,
        "last_version_time": time_json(last) if last else None,
        "fields": [
            {
                "name": name,
                "number": field.number,
                "type": str(field.type),
                "unique": field.unique,
                "final": field.final,
                "required": field.required,
            }
            for name, field in spec.fields.items()
        ],
        "indexes": [str(one) for one in spec.indexes],
        "key": [str(one) for one in spec.key] if spec.key else None,
    }


@table_routes.get(_ALL, needs=Needs.MONITORING, says="List tables.")
def tables(call: Call) -> Tables:
    """Return the tables with their statistics."""
    found: list[TableSummary] = []
    for name in call.site.store.tables():
        try:
            with _opening:
                table: Table[Any] = call.site.store.table(name)
            found.append(cast("TableSummary", _figures(table)))
        except HoldfastError as error:  # the other tables are listed nevertheless
            found.append({"name": name, "error": str(error)})
    return {"tables": found}


@table_routes.get(_ONE, needs=Needs.USER, says="Show one table: fields, indexes and statistics.")
def one_table(call: Call) -> TableDetail:
    """Return a table's statistics and definition."""
    table = _table(call, Operation.TABLE_LOOK)
    return {**_figures(table), "definition": describe(table.model)}


@table_routes.get(
    _ONE + "/records",
    needs=Needs.USER,
    says="Find records by a filter, now or as of an earlier time.",
    query={
        "where": "A filter, such as name == 'Ada' and tags contains 'vip'.",
        "order": "Fields, separated by commas; - before a field: descending.",
        "limit": "Number of records, 100 by default.",
        **_START,
        "cursor": "Continue here: `next` of the previous response.",
        "as_of": "A version or a time.",
        "select": "Fields, separated by commas.",
        "include_deleted": "true: include softly deleted records.",
        "allow_table_scan": "false: reject a filter that no index supports.",
        "explain": "true: only return the query plan.",
    },
)
def records(call: Call) -> Records:
    """Return records, and the cursor of the next page."""
    table = _table(call, Operation.TABLE_READ)
    explain = call.flag("explain")
    scan = table.scan(
        _where(call, table),
        order=_names(call.query.get("order")),
        limit=call.number("limit", 100, most=_LIMIT_MAX, least=1),
        start=_start(call),
        include_start=_is_not_false(call, "include_start"),
        cursor=call.query.get("cursor") or None,
        as_of=_point(call.query.get("as_of")),
        include_deleted=call.flag("include_deleted"),
        select=_names(call.query.get("select")),
        allow_table_scan=_is_not_false(call, "allow_table_scan"),
    )
    if explain:
        return {"explain": scan.explain(), "plan": {what: json_of(one) for what, one in scan.plan.describe().items()}}
    found = [_shown(one) for one in scan]
    return {"records": found, "next": scan.cursor, "explain": scan.explain()}


@table_routes.get(
    _RECORD,
    needs=Needs.USER,
    says="Show one record, now or as of an earlier time.",
    query={"as_of": "A version or a time.", "include_deleted": "true: also if it was deleted softly."},
)
def one_record(call: Call) -> RecordJson:
    """Return one record."""
    table = _table(call, Operation.TABLE_READ)
    found = table.get(
        _key(call.path["key"]),
        as_of=_point(call.query.get("as_of")),
        include_deleted=call.flag("include_deleted"),
    )
    if found is None:
        raise NotFound(f"{table.name} has no record {call.path['key']}")
    return _shown(found)


@table_routes.get(
    _RECORD + "/history",
    needs=Needs.USER,
    says="List the versions of a record, newest last.",
    query={"max_versions": "Number of versions, 100 by default."},
)
def history(call: Call) -> RecordHistory:
    """Return the last versions of a record with what each changed; in full if the table keeps all versions."""
    table = _table(call, Operation.TABLE_READ)
    key = _key(call.path["key"])
    most = call.number("max_versions", 100, most=_VERSIONS_MAX, least=1)
    found = table.changes([key], max_versions=most, include_deleted=True)
    if not found:
        raise NotFound(f"{table.name} has no record {call.path['key']}")
    versions: list[VersionJson] = []
    before: dict[str, Any] = {}
    for one in changes_json(found[0])["versions"]:
        whole = table.get(key, as_of=one["version"], include_deleted=True) if table.settings.keep_all_versions else None
        shown = None if whole is None else _shown(whole)
        versions.append(
            {
                "version": one["version"],
                "version_time": one["version_time"],
                "kind": one["kind"],
                "deleted": None if shown is None else shown["deleted"],
                "values": None if shown is None else shown["values"],
                "changes": [
                    {"path": path, "old": before.get(path), "new": value} for path, value in one["values"].items()
                ],
            }
        )
        before = {} if shown is None else shown["values"]
    return {"key": call.path["key"], "created": found[0].created, "versions": versions}


@table_routes.get(
    _ONE + "/changes",
    needs=Needs.USER,
    says="List changes of records.",
    query={
        "keys": "Only these records: keys, separated by commas.",
        "where": "Only records that match this filter.",
        "from": "Only changes at or after this version or time.",
        "to": "Only changes up to this version or time.",
        "max_versions": "Versions per record, 1 by default.",
        "select": "Fields, separated by commas.",
        "order": "Fields, separated by commas; - before a field: descending. Not with keys.",
        "limit": "Number of records, 100 by default.",
        **_START,
        "include_deleted": "true: include softly deleted records. With keys, false: leave them out.",
        "allow_table_scan": "false: reject a filter that no index supports.",
    },
)
def changes(call: Call) -> Changes:
    """Return the last versions of each selected record, one unless `max_versions` says more."""
    table = _table(call, Operation.TABLE_READ)
    keys = [_key(one) for one in _names(call.query.get("keys")) or []] or None
    found = table.changes(
        keys,
        where=_where(call, table),
        from_version=_point(call.query.get("from")),
        to_version=_point(call.query.get("to")),
        max_versions=call.number("max_versions", 1, most=_VERSIONS_MAX, least=1),
        select=_names(call.query.get("select")),
        order=_names(call.query.get("order")),
        limit=call.number("limit", 100, most=_LIMIT_MAX, least=1),
        start=_start(call),
        include_start=_is_not_false(call, "include_start"),
        include_deleted=call.flag("include_deleted") if "include_deleted" in call.query else keys is not None,
        allow_table_scan=_is_not_false(call, "allow_table_scan"),
    )
    return {"records": cast("list[RecordChangesJson]", [changes_json(one) for one in found])}


@table_routes.get(_ONE + "/span", needs=Needs.USER, says="Show the times of a table's first and last version.")
def span(call: Call) -> Span:
    """Return the times of the first and the last version."""
    table = _table(call, Operation.TABLE_LOOK)
    last = table.last_version
    first = table.log.stats().first_timestamp
    return {
        "first_at": first,
        "first_time": iso_time(first),
        "last_version": last or None,
        "last_at": round(time_of(last).timestamp() * 1e9) if last else None,
        "last_time": time_json(last) if last else None,
        "keeps_versions": table.settings.keep_all_versions,
    }


# Changing.


def _outcome(outcome: Outcome) -> RecordOutcome:
    if isinstance(outcome, HoldfastError):
        return {"status": "failed", "error": error_word(outcome), "reason": str(outcome)}
    return cast("RecordOutcome", {"status": "done", **_done(outcome)})


def _done(done: Done) -> Written:
    return {
        "key": text_of_key(done.key),
        "version": done.version,
        "version_time": time_json(done.version),
        "changed": done.changed,
    }


@table_routes.post(
    _ONE + "/records",
    needs=Needs.USER,
    says="Add records, each independently of the others.",
    fills=True,
    takes=body(
        "records",
        records={"type": "array", "items": {"type": "object", "description": "Values by field name."}},
        key=said(TEXT, "The key of a single record, in base64url; generated by default."),
    ),
)
def add(call: Call) -> AddedRecords:
    """Add records, each independently of the others; return the outcome of each, in their order."""
    table = _table(call, Operation.TABLE_WRITE)
    given = call.field("records", list)
    key = call.field("key", str, None)
    if key is not None and len(given) != 1:
        raise InvalidArgument("with key, send exactly one record")
    outcomes: list[Any] = []
    for one in given:
        try:
            outcomes.append(Add(table.model.from_json(encoded(one)), None if key is None else _key(key)))
        except HoldfastError as error:
            outcomes.append(error)
    done = iter(table.write([one for one in outcomes if isinstance(one, Add)]))
    return {"outcomes": [_outcome(next(done) if isinstance(one, Add) else one) for one in outcomes]}


def _texts(call: Call, name: str, default: Any = ()) -> list[str]:
    """Return changes in the command line's form; an object becomes a single one."""
    given = call.field(name, (list, dict), default)
    if isinstance(given, dict):
        return [encoded(given).decode()]
    if not all(isinstance(one, str) for one in given):
        raise InvalidArgument(f"{name!r} in the body must be an object, or a list of texts such as name=Ada")
    return list(given)


@table_routes.patch(
    _RECORD,
    needs=Needs.USER,
    says="Change fields of a record.",
    fills=True,
    takes=body(
        "changes",
        changes={"description": "Values by field name, or a list of texts such as name=Ada and tags+=vip."},
        unset={"type": "array", "items": TEXT, "description": "Names of fields to remove."},
        check={"description": "Only if the record has these values; in the same form as changes."},
        if_version=said(WHOLE, "Only if the record has this version."),
    ),
)
def change(call: Call) -> Written:
    """Change a record; return its new version. Raises if a check fails."""
    table = _table(call, Operation.TABLE_WRITE)
    wanted = parse_changes(table.model, _texts(call, "changes", ...), _texts(call, "unset"))
    if not wanted:
        raise InvalidArgument("no changes given: send values by field name, null to remove one")
    checked = parse_changes(table.model, _texts(call, "check"))
    done = table.change(_key(call.path["key"]), wanted, check=checked, if_version=call.field("if_version", int, None))
    return _done(done)


@table_routes.delete(
    _RECORD,
    needs=Needs.USER,
    says="Delete a record, softly or permanently.",
    query={"hard": "true: permanently, with its history.", "if_version": "Only if the record has this version."},
)
def delete(call: Call) -> Written:
    """Delete a record, softly or with its history; the latter needs the tag administrator."""
    hard = call.flag("hard")
    version = call.number("if_version", 0) or None
    return _carried_out(call, Delete(_key(call.path["key"]), hard, version))


@table_routes.post(_RECORD + "/undelete", needs=Needs.USER, says="Restore a softly deleted record.")
def undelete(call: Call) -> Written:
    """Restore a softly deleted record; return its new version."""
    return _carried_out(call, Undelete(_key(call.path["key"])))


def _carried_out(call: Call, operation: Delete | Undelete) -> Written:
    erases = isinstance(operation, Delete) and operation.hard
    outcome = _table(call, Operation.TABLE_ERASE if erases else Operation.TABLE_WRITE).write([operation])[0]
    if isinstance(outcome, HoldfastError):
        raise outcome
    return _done(outcome)


# Migrations.


@table_routes.get("/api/holdfast/migrations", needs=Needs.MONITORING, says="Show the state and progress of migrations.")
def migrations(call: Call) -> Migrations:
    """Return the migrations of all tables, with their events."""
    found = call.site.store.migrations()
    return {
        "migrations": [
            cast(
                "MigrationJson",
                {**json_of(asdict(one)), "started_time": iso_time(one.started), "audit": found.audit(one.table)},
            )
            for one in found
        ]
    }


@table_routes.post(
    "/api/holdfast/migrations/{table}/{action}", needs=Needs.ADMINISTRATOR, says="Pause, resume or cancel a migration."
)
def steer(call: Call) -> Effect:
    """Pause, resume or cancel a migration; return whether anything changed."""
    known = call.site.store.migrations()
    actions = {"pause": known.pause, "resume": known.resume, "cancel": known.cancel}
    action = actions.get(call.path["action"])
    if action is None:
        raise NotFound(f"there is no action {call.path['action']!r}; there are: {', '.join(actions)}")
    return {"done": action(call.path["table"])}
