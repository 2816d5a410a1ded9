"""API routes for readers of whole logs: a manifest of what is on the disk now, and bytes of segments as they lie."""

from holdfast.broker.permissions import Operation
from holdfast.replica.present import Kind
from holdfast.web.routes import Call, Media, Needs, Reply, Routes

__all__ = ["block_routes"]

block_routes = Routes("logs")
_ALL = "/api/holdfast/blocks"
_BYTES = "application/octet-stream"


def _operation(kind: Kind) -> Operation:
    return {"log": Operation.LOG_READ, "queue": Operation.QUEUE_LOOK, "table": Operation.TABLE_READ}[kind]


def _check(call: Call, kind: Kind, name: str) -> None:
    if kind == "queue":
        vhost, label = call.site.names_of(name)
        call.may(_operation(kind), label, vhost=vhost)
    else:
        call.may(_operation(kind), name)


def _allows(call: Call, kind: Kind, name: str) -> bool:
    vhost, label = call.site.names_of(name) if kind == "queue" else ("/", name)
    permissions = call.site.broker.permissions
    return permissions.allows(call.who.name, _operation(kind), label, vhost=vhost, tags=call.who.tags)


@block_routes.get(
    _ALL,
    needs=Needs.USER,
    says="Get a manifest of the logs, queues and tables that the caller may read, as they are on the disk now.",
    answer=Media(_BYTES),
    also={304: None},
)
def manifest(call: Call) -> Reply[bytes]:
    """Return the manifest in the format of a replica; its parts have the epoch 0, and no checksums of their own."""
    found = call.site.present.manifest(lambda kind, name: _allows(call, kind, name), call.site.clock.time_ns())
    etag = f'"{found.digest}"'
    if call.headers.get("if-none-match") == etag:
        return Reply(status=304, headers={"ETag": etag}, media=_BYTES, raw=b"")
    return Reply(raw=found.encode(), media=_BYTES, headers={"ETag": etag})


@block_routes.get(
    _ALL + "/{root}/{folder}/{log}/{segment}",
    needs=Needs.USER,
    says="Get bytes of a segment, as they are on the disk.",
    query={"start": "The first byte.", "stop": "The end of the range, exclusive: at most 16 MiB behind `start`."},
    answer=Media(_BYTES),
)
def segment(call: Call) -> Reply[bytes]:
    """Return durable bytes of a segment; 404 if retention has dropped it."""
    kind, name = call.site.present.named(call.path["root"], call.path["folder"])
    _check(call, kind, name)
    start, stop = call.number("start", 0), call.number("stop", 0)
    content = call.site.present.read(call.path["root"], name, call.path["log"], call.path["segment"], start, stop)
    return Reply(raw=content, media=_BYTES)
