"""API routes for logs: statistics, reading, appending, compaction, verification, inspection and tailers."""

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from typing import cast

from starlette.concurrency import run_in_threadpool

import holdfast
from holdfast.base.clock import NS, duration_ns
from holdfast.base.errors import HoldfastError, InvalidArgument, NotFound
from holdfast.base.json_payload import body_json
from holdfast.base.units import iso_time, parse_duration, parse_size
from holdfast.broker.permissions import Operation
from holdfast.log import Log, Record, Retention
from holdfast.log.consumer_offsets import Position as TailerPosition
from holdfast.log.consumer_offsets import place_of
from holdfast.log.record_location import locate
from holdfast.log.settings import LogSettings
from holdfast.queue import Queue
from holdfast.schemas.payload_schema import PayloadSchema, SchemaVersion
from holdfast.web.api.pagination import PAGING, named, paged
from holdfast.web.api.queue_summary import place_now
from holdfast.web.api.response_types import (
    Appended,
    Cleared,
    Compacted,
    Inspected,
    LogDetail,
    LogRecordJson,
    LogSettingsJson,
    LogStatsJson,
    ObjectName,
    Position,
    RecordsRead,
    RetentionJson,
    SchemaVerdict,
    SchemaVersionJson,
    SchemaVersionsJson,
    SegmentJson,
    Verified,
)
from holdfast.web.api.schemas import RECORD, instant, record_in
from holdfast.web.context import ServerContext
from holdfast.web.request_schema import FLAG, TEXT, WHOLE, body, said
from holdfast.web.response_types import Page
from holdfast.web.routes import Call, Needs, Reply, Routes

__all__ = ["log_routes", "record_json"]

log_routes = Routes("logs")
_ALL = "/api/holdfast/logs"
_ONE = _ALL + "/{name}"
_COUNT_MAX = 10_000
_WAIT_MAX_S = 60.0
_LOOK_S = 0.1
_SCHEMA = body(
    "format",
    "text",
    format=said(TEXT, "json, avro, protobuf, msgpack or arrow."),
    text=said(TEXT, "DDL, JSON, or a descriptor set in base64."),
    message=said(TEXT, "For protobuf: the full name of the message."),
    compatibility=said(TEXT, "none, backward, forward or full."),
    validate=said(FLAG, "Refuse payloads that do not fit."),
)
_BYTES_MAX = 64 << 20
"""Limit of the records in one response; one record is always returned."""


def record_json(record: Record) -> LogRecordJson:
    """Return a record as JSON."""
    form = {
        "sequence": record.sequence,
        "timestamp": record.timestamp,
        "time": iso_time(record.timestamp),
        **body_json(record),
    }
    return cast("LogRecordJson", form)


@contextlib.contextmanager
def _to_read(call: Call) -> Iterator[Log]:
    with holdfast.open(call.site.store.path, read_only=True) as view:
        with call.looking_for("log", call.path["name"]):
            log = view.log(call.path["name"])
        yield log


def _to_change(call: Call) -> Log:
    name = call.path["name"]
    call.may(Operation.LOG_SHORTEN, name)
    if name not in call.site.store.logs():
        raise NotFound(f"there is no log {name!r}")
    return call.site.log_to_write(name)


def _open_queues(site: ServerContext) -> dict[str, list[Queue]]:
    """Return the open queues, by the name of their log."""
    found: dict[str, list[Queue]] = {}
    for queue in site.store.open_queues():
        found.setdefault(queue.log.name, []).append(queue)
    return found


def _stats_json(site: ServerContext, log: Log, queues: list[Queue]) -> LogStatsJson:
    figures = log.stats()
    vhost, label = site.names_of(log.name)
    form = asdict(figures)
    form["tailers"] = [{**one, "committed_time": iso_time(one["committed_at"])} for one in form["tailers"]]
    # The stored position is that of the last checkpoint, which may be minutes old: an open queue knows its own.
    places = {place_of(queue.name): queue for queue in queues if not queue.closed}
    for tailer in form["tailers"]:
        if (queue := places.get(tailer["name"])) is not None:
            with contextlib.suppress(HoldfastError):  # it was closed meanwhile
                tailer["position"], tailer["lag"] = place_now(queue)
    form |= {
        "vhost": vhost,
        "label": label,
        "first_time": iso_time(figures.first_timestamp),
        "last_time": iso_time(figures.last_timestamp),
    }
    return cast("LogStatsJson", form)


@log_routes.get(_ALL, needs=Needs.MONITORING, says="List logs by name, one page at a time.", query=PAGING)
def logs(call: Call) -> Page[LogStatsJson]:
    """Return a page of logs with their statistics."""
    site = call.site
    with holdfast.open(site.store.path, read_only=True) as view:
        every = [(*site.names_of(name), name) for name in view.logs()]
        found = sorted(named(call, every, lambda one: one[1]))
        queues = _open_queues(site)

        def show(one: tuple[str, str, str]) -> LogStatsJson | None:
            with contextlib.suppress(NotFound):  # it was deleted meanwhile
                return _stats_json(site, view.log(one[2]), queues.get(one[2], []))
            return None

        return paged(call, found, len(every), show)


@log_routes.get(_ONE, needs=Needs.USER, says="Show one log with its segments and tailers.")
def one_log(call: Call) -> LogDetail:
    """Return a log's statistics, segments, tailers, damage and queues; its settings if it is open."""
    name, store = call.path["name"], call.site.store
    call.may(Operation.LOG_LOOK, name)
    with _to_read(call) as log:
        stats = _stats_json(call.site, log, _open_queues(call.site).get(name, []))
        segments = log.segments()
        damage = list(log.damage)
        first, end = log.readable()
        log_id = log.id.hex()
    open_now = store.open_log(name)
    settings = None if open_now is None else open_now.settings
    views: dict[str, ObjectName] = {}
    for one in store.queues():
        if store.log_of(one) == name:
            vhost, label = call.site.names_of(one)
            views[place_of(one)] = {"vhost": vhost, "name": label}
    for tailer in stats["tailers"]:
        tailer["queue"] = views.get(tailer["name"])
    return {
        "id": log_id,
        "stats": stats,
        "readable": [first, end],
        "segments": [cast("SegmentJson", {**asdict(one), "created_time": iso_time(one.created)}) for one in segments],
        "tailers": stats["tailers"],
        "settings": None if settings is None else _settings_json(settings),
        "queues": list(views.values()),
        "damage": damage,
    }


def _settings_json(settings: LogSettings) -> LogSettingsJson:
    flush, roll = settings.flush, settings.roll
    return {
        "flush": flush.mode,
        "flush_bytes": flush.bytes,
        "flush_interval": flush.interval_ns / NS,
        "roll_bytes": roll.bytes,
        "roll_interval": None if roll.interval_ns is None else roll.interval_ns / NS,
        "roll_records": roll.records,
        "index_interval": settings.index_interval,
        "verify_on_open": settings.verify_on_open,
        "max_message": settings.max_message,
        "compression": settings.compression,
        "retention": _retention_json(settings.retention),
        "local_retention": _retention_json(settings.local_retention),
    }


def _retention_json(retention: Retention | None) -> RetentionJson | None:
    if retention is None:
        return None
    return {
        "max_age": None if retention.max_age is None else duration_ns(retention.max_age, "max_age") / NS,
        "max_bytes": retention.max_bytes,
        "max_segments": retention.max_segments,
        "min_segments": retention.min_segments,
    }


@log_routes.get(
    _ONE + "/records",
    needs=Needs.USER,
    says="Read records, oldest first; with `wait`, wait for the first one.",
    query={
        "start": "The first sequence.",
        "stop": "The end of the range, exclusive.",
        "count": "Maximum number of records, 100 by default.",
        "reverse": "Newest first.",
        "since": "Only records written at or after this time.",
        "until": "Only records written before this time.",
        "wait": "Seconds to wait for the first record.",
    },
)
async def records(call: Call) -> RecordsRead:
    """Return records of the log; with `wait`, wait up to so many seconds until there is one."""
    try:
        wait = float(call.query.get("wait") or 0)
    except ValueError:
        raise InvalidArgument(f"wait={call.query['wait'][:40]!r} is not a number of seconds") from None
    if not 0 <= wait <= _WAIT_MAX_S:
        raise InvalidArgument(f"wait must be from 0 to {_WAIT_MAX_S:g} seconds")
    call.may(Operation.LOG_READ, call.path["name"])
    deadline = asyncio.get_running_loop().time() + wait
    while True:
        found = await run_in_threadpool(_records, call)
        end = found["end"]
        while True:
            if found["records"] or call.site.stopping or asyncio.get_running_loop().time() >= deadline:
                return found
            await asyncio.sleep(_LOOK_S)
            written = call.site.store.open_log(call.path["name"])
            if written is None or written.end > end:  # else there is nothing new
                break


def _records(call: Call) -> RecordsRead:
    query = call.query
    most = call.number("count", 100, most=_COUNT_MAX, least=1)
    with _to_read(call) as log:
        first, end = log.readable()
        start = max(first, call.number("start", first))
        stop = min(end, call.number("stop", end))
        if query.get("since"):
            start = max(start, log.sequence_at(instant(query["since"])))
        if query.get("until"):
            stop = min(stop, log.sequence_at(instant(query["until"])))
        shown: list[LogRecordJson] = []
        size = 0
        for record in log.read(start, max(start, stop), reverse=call.flag("reverse")):
            size += len(record.payload)
            if len(shown) >= most or (shown and size > _BYTES_MAX):
                break
            shown.append(record_json(record))
        return {"records": shown, "start": first, "end": end, "damage": list(log.damage)}


@log_routes.post(
    _ONE + "/records",
    needs=Needs.USER,
    says="Append records; responds when they are on disk.",
    fills=True,
    takes=body(
        "records",
        records={"type": "array", "items": RECORD},
        sync=said(FLAG, "false: respond before they are on disk."),
    ),
    status=201,
)
def append(call: Call) -> Reply[Appended]:
    """Append records; return the first sequence and the count. A log that does not exist is created.

    They are on disk when this responds, unless `sync` is false.
    """
    name = call.path["name"]
    call.may(Operation.LOG_APPEND, name)
    messages = [record_in(one, f"records[{place}]") for place, one in enumerate(call.field("records", list))]
    log = call.site.log_to_write(name)
    sequences = log.append_many(messages)
    if call.field("sync", bool, True):
        log.sync()
    first = sequences[0] if sequences else None
    return Reply({"first": first, "count": len(sequences)}, 201)


@log_routes.get(
    _ONE + "/sequence_at",
    needs=Needs.USER,
    says="Find the first record at or after a time.",
    query={
        "time": "Such as 2026-11-15T12:00:00Z, or nanoseconds since 1970.",
        "past_damage": "false: if the block with that record is damaged, its first sequence, not the one behind it.",
    },
)
def sequence_at(call: Call) -> Position:
    """Return the first sequence at or after a time."""
    call.may(Operation.LOG_LOOK, call.path["name"])
    if not call.query.get("time"):
        raise InvalidArgument("the query lacks the parameter 'time', such as ?time=2026-11-15T12:00:00Z")
    with _to_read(call) as log:
        past_damage = call.query.get("past_damage", "true") != "false"
        return {"sequence": log.sequence_at(instant(call.query["time"]), past_damage=past_damage)}


@log_routes.post(
    _ONE + "/compact",
    needs=Needs.USER,
    says="Drop old segments, or preview which would be dropped.",
    takes=body(
        max_age={"description": "Seconds, or text such as 7d: older segments are dropped."},
        max_bytes={"description": "Bytes, or text such as 1GiB: the newest segments up to this size are kept."},
        max_segments=WHOLE,
        min_segments=WHOLE,
        force=said(FLAG, "Also drop records that queues and tailers still need."),
        dry_run=said(FLAG, "Only report what would be dropped."),
    ),
)
def compact(call: Call) -> Compacted:
    """Apply retention; return the segments that were dropped, or would be, and what is left."""
    log = _to_change(call)
    age, size = call.field("max_age", (int, float, str), None), call.field("max_bytes", (int, str), None)
    policy = Retention(
        max_age=parse_duration(age) if isinstance(age, str) else age,
        max_bytes=parse_size(size) if isinstance(size, str) else size,
        max_segments=call.field("max_segments", int, None),
        min_segments=call.field("min_segments", int, 1),
    )
    if policy.max_age is None and policy.max_bytes is None and policy.max_segments is None:
        raise InvalidArgument("no limit is given: set max_age, max_bytes or max_segments")
    dry, force = call.field("dry_run", bool, False), call.field("force", bool, False)
    before = log.segments()
    count = int(log.compact(retention=policy, force=force, dry_run=dry))
    held = int(log.compact(retention=policy, force=True, dry_run=True)) - (count if dry else 0)
    gone = before[:count]
    after = log.stats()
    return {
        "dry_run": dry,
        "removed": count,
        "segments": list(gone),
        "records": sum(one.records for one in gone),
        "bytes": sum(one.bytes for one in gone),
        "held_back": max(0, held),
        "left": {"start": after.start, "end": after.end, "bytes": after.bytes, "segments": after.segments},
    }


@log_routes.post(
    _ONE + "/clear",
    needs=Needs.USER,
    says="Drop all records of a log.",
    takes=body(force=said(FLAG, "Also drop records that queues and tailers still need.")),
)
def clear(call: Call) -> Cleared:
    """Drop the records that named tailers and queues have read, with `force` all; return how many."""
    log = _to_change(call)
    before = log.start
    log.clear(force=call.field("force", bool, False))
    return {"removed": log.start - before, "start": log.start, "end": log.end}


@log_routes.post(_ONE + "/verify", needs=Needs.MONITORING, says="Read the whole log and check its checksums.")
def verify(call: Call) -> Verified:
    """Read the whole log and check its checksums; return the result."""
    with _to_read(call) as log:
        found = log.verify()
        return {
            "segments": found.segments,
            "blocks": found.blocks,
            "records": found.records,
            "bytes": found.bytes,
            "damage": list(found.damage),
            "ok": found.ok,
        }


@log_routes.get(
    _ONE + "/inspect",
    needs=Needs.USER,
    says="Show what is stored at a byte, or where a record is stored.",
    query={
        "sequence": "Locate this record.",
        "offset": "Show what is at this byte of the segment.",
        "segment": "The segment's file; the last one by default.",
    },
)
def inspect(call: Call) -> Inspected:
    """Return what is at a byte of a segment, or where a record is stored."""
    call.may(Operation.LOG_READ, call.path["name"])
    with _to_read(call) as log:
        if call.query.get("sequence"):
            found = locate(log, call.number("sequence", 0))
        else:
            found = log.inspect(call.number("offset", 0), call.query.get("segment") or None)
        return {
            "path": found.path,
            "offset": found.offset,
            "what": found.what,
            "details": found.details,
            "record": None if found.record is None else record_json(found.record),
        }


@log_routes.put(
    _ONE + "/tailers/{tailer}",
    needs=Needs.USER,
    says="Set the position of a named tailer.",
    takes=body("position", position=said(WHOLE, "The next sequence to read.")),
)
def keep_tailer(call: Call) -> None:
    """Set the position of a named tailer. The caller becomes the owner of a new one."""
    call.may(Operation.LOG_TAILER, call.path["name"])
    name = call.path["tailer"]
    with _to_read(call) as log, log.tailer(name) as tailer:
        tailer.seek(call.field("position", int))
        maker = None if log.positions.get(name) else call.who.name
        log.positions.set(TailerPosition(name, tailer.position, log.clock.time_ns(), owner=maker))


@log_routes.delete(_ONE + "/tailers/{tailer}", needs=Needs.USER, says="Delete a named tailer.")
def forget_tailer(call: Call) -> None:
    """Delete the position of a named tailer; if it comes back, it starts from the beginning.

    Needs configure permission, unless the caller created it.
    """
    if not _owns_tailer(call):  # its owner may always stop holding records back
        call.may(Operation.LOG_TAILER, call.path["name"])
    with _to_read(call) as log:
        if not log.positions.remove(call.path["tailer"]):
            raise NotFound(f"the log {log.name!r} has no tailer {call.path['tailer']!r}")


def _owns_tailer(call: Call) -> bool:
    with contextlib.suppress(HoldfastError), _to_read(call) as log:
        kept = log.positions.get(call.path["tailer"])
        return kept is not None and kept.owner == call.who.name
    return False


@log_routes.get(_ONE + "/schema", needs=Needs.USER, says="Show the schema of a log, in all its versions.")
def schema(call: Call) -> SchemaVersionsJson:
    """Return all versions of the schema of a log."""
    call.may(Operation.LOG_LOOK, call.path["name"])
    with _to_read(call) as log:
        return {"versions": [_version_json(one) for one in log.schema.versions()]}


@log_routes.put(
    _ONE + "/schema", needs=Needs.USER, says="Add a version to the schema of a log, which may be new.", takes=_SCHEMA
)
def set_schema(call: Call) -> SchemaVersionJson:
    """Add a version to the schema of a log, and return it; the log is created if there is none."""
    site, name = call.site, call.path["name"]
    call.may(Operation.LOG_SCHEMA, name)
    made = site.log_to_write(name).schema.set(_schema_in(call))
    site.on_broker(lambda: _find_routes_again(site))
    return _version_json(made)


def _find_routes_again(site: ServerContext) -> None:
    """Let publishers find their routes again: those say whether a queue accepts every message."""
    for host in site.broker.hosts.values():
        host.version += 1


@log_routes.post(
    _ONE + "/schema/check", needs=Needs.USER, says="Check whether a schema of a log could be set.", takes=_SCHEMA
)
def check_schema(call: Call) -> SchemaVerdict:
    """Return whether a schema could be set, and why not."""
    call.may(Operation.LOG_LOOK, call.path["name"])
    with _to_read(call) as log:
        try:
            log.schema.check(_schema_in(call))
        except InvalidArgument as error:
            return {"ok": False, "problem": str(error)}
    return {"ok": True, "problem": None}


def _schema_in(call: Call) -> PayloadSchema:
    return PayloadSchema(
        call.field("format", str),
        call.field("text", str),
        call.field("message", str, None),
        call.field("compatibility", str, "backward"),
        call.field("validate", bool, False),
    )


def _version_json(version: SchemaVersion) -> SchemaVersionJson:
    schema = version.schema
    return {
        "version": version.number,
        "format": schema.format,
        "text": schema.text,
        "message": schema.message,
        "compatibility": schema.compatibility,
        "validate": schema.validate,
        "created": version.created,
        "created_time": iso_time(version.created),
        "since": version.since,
    }
