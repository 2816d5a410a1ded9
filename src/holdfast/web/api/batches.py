"""API routes for batches of finished blocks, as Spark writes them: parts are uploaded, then one request commits."""

import asyncio
import contextlib
import time
from dataclasses import replace

from starlette.concurrency import run_in_threadpool

from holdfast.base.errors import Conflict, Corrupt, InvalidArgument
from holdfast.base.files import SystemFiles, translate_os_errors, write_all
from holdfast.broker.permissions import Operation
from holdfast.log.batch_inbox import BatchInbox, Manifest, Part, is_part_name
from holdfast.log.part_buffer import SENT_MAX, block_list
from holdfast.web.api.response_types import BatchCommitted, BatchTarget
from holdfast.web.request_schema import FLAG, NUMBER, TEXT, WHOLE, body, said
from holdfast.web.routes import Call, Media, Needs, Routes

__all__ = ["batch_routes"]

batch_routes = Routes("logs")
_ALL = "/api/holdfast/batches"
_PART = _ALL + "/{part}"
_BYTES = "application/octet-stream"
_WAIT_MAX_S = 60.0
_LOOK_S = 0.02
_GUARD_S = 30.0
_TARGET = {"log": "The log to write to.", "queue": "The queue to write to, instead of a log."}


def _target(call: Call, log: str | None, queue: str | None) -> str:
    """Return the log of a target; raise 403 unless the caller may write to it."""
    if (log is None) == (queue is None):
        raise InvalidArgument("give either a log or a queue")
    if queue is None:
        assert log is not None
        call.may(Operation.LOG_APPEND, log)
        return log
    vhost, label = call.site.names_of(queue)
    call.may(Operation.QUEUE_PUT, label, vhost=vhost)
    if queue not in call.site.store.queues():
        call.may(Operation.QUEUE_DECLARE, label, vhost=vhost)
    return call.site.store.log_of(queue)


def _asked(call: Call) -> str:
    return _target(call, call.query.get("log"), call.query.get("queue"))


def _inbox(call: Call) -> BatchInbox:
    path = call.site.store.path
    return BatchInbox(SystemFiles.of_store(path), path)


def _name(call: Call) -> str:
    name = call.path["part"]
    if not is_part_name(name):
        raise InvalidArgument("this is not the name of a part: it is DIGEST-BATCH-TIME-RANDOM.part")
    return name


@batch_routes.get(
    _ALL,
    needs=Needs.USER,
    says="Get the log of a target, and the last batch of a query that was added to it.",
    query={**_TARGET, "query": "The id of the query."},
)
def target(call: Call) -> BatchTarget:
    """Return the log of a target, and the number of the last batch; -1 if there is none."""
    log = _asked(call)
    manifest = Manifest(log, call.query.get("queue"), call.query.get("query", ""), 0, 0)
    return {"log": log, "last": _inbox(call).last_done(manifest)}


@batch_routes.put(
    _PART,
    needs=Needs.USER,
    says="Upload a part of a batch: a segment of finished blocks, at most 64 MiB.",
    query=_TARGET,
    takes=Media(_BYTES),
    fills=True,
)
def upload(call: Call) -> None:
    """Keep a part until its batch is committed; every block is verified. It is deleted after a day without a commit."""
    _asked(call)
    name, inbox, content = _name(call), _inbox(call), bytes(call.body or b"")
    if len(content) > SENT_MAX:
        raise InvalidArgument(f"a part has at most {SENT_MAX} bytes, not {len(content)}: send several")
    try:
        blocks = block_list(content, None, name)
    except Corrupt as error:
        raise InvalidArgument(f"the body is not a part: {error}") from error
    with translate_os_errors("writing a part into", inbox.parts):
        inbox.files.make_dirs(inbox.parts)
        for file, data in ((name + ".blocks", blocks), (name, content)):
            try:
                made = inbox.files.open(inbox.parts / file, "x")
            except FileExistsError:
                raise Conflict(f"there is a part {name!r} already: use another name") from None
            with contextlib.closing(made):
                write_all(made, data, 0)
                made.sync()


@batch_routes.delete(
    _PART, needs=Needs.USER, says="Delete a part of a batch that will not be committed.", query=_TARGET
)
def discard(call: Call) -> None:
    """Delete a part, unless its batch was committed; one that is not there is ignored."""
    _asked(call)
    name, inbox = _name(call), _inbox(call)
    with inbox.guarded(_GUARD_S):
        wanted = {part.file for one in inbox.pending() for part in one.parts}
        if name not in wanted:
            inbox.discard([name])


@batch_routes.post(
    _ALL,
    needs=Needs.USER,
    says="Commit a batch of uploaded parts, at most once, and wait until it is added.",
    takes=body(
        "query",
        "batch",
        "parts",
        log=said(TEXT, "The log to write to."),
        queue=said(TEXT, "The queue to write to, instead of a log."),
        query=said(TEXT, "The id of the query; with `batch`, the key of the batch."),
        batch=said(WHOLE, "The number of the batch: one that is not above the last one adds nothing."),
        once=said(FLAG, "false: the batch will not be committed again, and its key need not be kept."),
        created=said(WHOLE, "When it was written, in nanoseconds since 1970: batches are added in this order."),
        parts={
            "type": "array",
            "items": body("file", "records", "bytes", file=TEXT, records=WHOLE, bytes=WHOLE),
            "description": "The parts, in the order of their records.",
        },
        wait=said(NUMBER, "Seconds to wait until it is added, at most 60."),
    ),
    fills=True,
)
async def commit(call: Call) -> BatchCommitted:
    """Commit a batch; return what became of it within `wait` seconds."""
    manifest = await run_in_threadpool(_manifest, call)
    inbox = _inbox(call)
    wait = min(float(call.field("wait", (int, float), 30)), _WAIT_MAX_S)
    is_new = await run_in_threadpool(_hand_over, inbox, manifest)
    deadline = asyncio.get_running_loop().time() + wait
    while True:
        if inbox.refused(manifest):
            return {"outcome": "refused", "repeated": not is_new}
        if not inbox.waits(manifest):
            return {"outcome": "adopted", "repeated": not is_new}
        if call.site.stopping or asyncio.get_running_loop().time() >= deadline:
            return {"outcome": "waiting", "repeated": not is_new}
        await asyncio.sleep(_LOOK_S)


def _manifest(call: Call) -> Manifest:
    queue = call.field("queue", str, None)
    log = _target(call, call.field("log", str, None), queue)
    query, batch = call.field("query", str), call.field("batch", int)
    created, once = call.field("created", int, time.time_ns()), call.field("once", bool, True)
    manifest = Manifest(log, queue, query, batch, created, once=once)
    parts = []
    for one in call.field("parts", list):
        part = Part(str(one.get("file")), int(one.get("records", 0)), int(one.get("bytes", 0)))
        if not is_part_name(part.file) or not part.file.startswith(f"{manifest.digest}-{batch}-"):
            raise InvalidArgument(f"{part.file!r} is not the name of a part of this batch")
        parts.append(part)
    if not parts:
        raise InvalidArgument("a batch without parts has nothing to add: do not commit it")
    return replace(manifest, parts=parts)


def _hand_over(inbox: BatchInbox, manifest: Manifest) -> bool:
    with inbox.guarded(_GUARD_S):
        if not inbox.is_known(manifest):
            for part in manifest.parts:
                if not inbox.files.exists(inbox.parts / part.file):
                    raise InvalidArgument(f"the part {part.file!r} was not uploaded, or was deleted since")
        return inbox.hand_over(manifest)
