"""API routes to put, peek, lease and settle messages. Puts and settlements respond when they are on disk."""

import asyncio

from holdfast.base.errors import Closed, InvalidArgument, NotFound
from holdfast.broker.permissions import Operation
from holdfast.queue import PeekedMessage, Queue
from holdfast.queue.async_lease import AsyncLeases
from holdfast.web.api.queues import ONE, queue_of
from holdfast.web.api.response_types import LeasedMessages, PeekedJson, PeekedMessages, PutResult, Settled
from holdfast.web.api.schemas import BODY_MAX, HELD, MESSAGE, message_json, messages_in, parts_in
from holdfast.web.request_schema import NUMBER, TEXT, WHOLE, body, said
from holdfast.web.routes import Call, Needs, Reply, Routes

__all__ = ["message_routes"]

message_routes = Routes("messages")
_WAIT_MAX_S = 60.0
_COUNT_MAX = 10_000
SHOWN_BYTES_MAX = 64 << 20
"""Limit of the bodies in one response, beyond the first ones."""
_AT_FIRST = 16


@message_routes.get(
    ONE + "/messages",
    needs=Needs.USER,
    says="Show the next messages without leasing them.",
    query={"count": "Number of messages, 10 by default.", "truncate": "Maximum bytes of each body; 0: no limit."},
)
def peek(call: Call) -> PeekedMessages:
    """Return the next messages without leasing them."""
    queue, _ = queue_of(call)
    most = call.number("truncate", 65536) or BODY_MAX
    count = call.number("count", 10, most=_COUNT_MAX, least=1)
    return {"messages": [message_json(one, most) for one in _peeked(queue, count)]}


def _peeked(queue: Queue, count: int) -> list[PeekedMessage]:
    """Return the next messages; fewer if their bodies would take too much memory."""
    wanted = min(count, _AT_FIRST)
    while True:
        found = queue.peek(wanted)
        size = sum(len(one.payload) for one in found)
        if wanted >= count or len(found) < wanted or size * 4 > SHOWN_BYTES_MAX:
            return found
        wanted = min(count, wanted * 4)


@message_routes.get(ONE + "/messages/{id}", needs=Needs.USER, says="Show one message with its whole body.")
def one_message(call: Call) -> PeekedJson:
    """Return a message by its id, whatever its state, with its whole body; 404 if the log no longer has it."""
    queue, _ = queue_of(call)
    found = queue.message(call.numbered("id"))
    if found is None:
        raise NotFound(f"the log of {queue.name!r} has no message {call.path['id']}")
    return message_json(found, len(found.payload))


@message_routes.post(
    ONE + "/messages",
    needs=Needs.USER,
    says="Put messages, all or none; responds when they are on disk.",
    fills=True,
    takes=body("messages", messages={"type": "array", "items": MESSAGE}),
    status=201,
)
def put(call: Call) -> Reply[PutResult]:
    """Put messages, all or none; return their ids, and how many were duplicates. On disk when this responds."""
    queue, _ = queue_of(call, Operation.QUEUE_PUT)
    ids, known = queue.put_counted(messages_in(call))
    queue.log.sync()  # in every flush mode: the response means that they are on disk
    return Reply({"ids": list(ids), "duplicates": known}, 201)


@message_routes.post(
    ONE + "/leases",
    needs=Needs.USER,
    says="Lease messages; with `wait`, wait for them if there are none.",
    takes=body(
        count={"type": "integer", "minimum": 1},
        lease=said(NUMBER, "Seconds; the queue's lease by default."),
        wait=said(NUMBER, f"Seconds, up to {_WAIT_MAX_S:g}."),
        most_bytes=said(WHOLE, "Lease no more once their payloads have so many bytes; not for messages waited for."),
    ),
)
async def lease(call: Call) -> LeasedMessages:
    """Lease messages, waiting for them if there are none. A client that disconnects meanwhile leases none."""
    queue, _ = await asyncio.to_thread(queue_of, call, Operation.QUEUE_TAKE)
    count, wait = call.field("count", int, 1), call.field("wait", (int, float), 0)
    if not 1 <= count <= _COUNT_MAX:
        raise InvalidArgument(f"count is {count}: it must be from 1 to {_COUNT_MAX}")
    if not 0 <= wait <= _WAIT_MAX_S:
        raise InvalidArgument(f"wait is {wait}: it must be from 0 to {_WAIT_MAX_S:g} seconds")
    most_bytes = min(call.field("most_bytes", int, SHOWN_BYTES_MAX), SHOWN_BYTES_MAX)
    known = call.site.polls
    if call.site.stopping:
        raise Closed("the server is stopping: try again when it is back")
    polls = known.get(queue)
    if polls is None:
        for gone in [one for one in known if one.closed]:
            del known[gone]
        polls = known[queue] = AsyncLeases(queue)
    taken = await polls.lease(count, lease=call.field("lease", (int, float), None), wait=wait, most_bytes=most_bytes)
    return {"messages": [message_json(one) for one in taken]}


@message_routes.post(
    ONE + "/ack", needs=Needs.USER, says="Acknowledge messages.", takes=body("messages", messages=HELD)
)
def ack(call: Call) -> Settled:
    """Acknowledge messages; return how many, and which lost their lease."""
    queue, _ = queue_of(call, Operation.QUEUE_TAKE)
    parts = parts_in(call)
    return _settled(queue, parts, queue.ack_ids(parts))


@message_routes.post(
    ONE + "/nack",
    needs=Needs.USER,
    says="Return failed messages after a backoff, or dead-letter them.",
    takes=body(
        "messages",
        messages=HELD,
        reason=said(TEXT, "The reason, which is shown with dead letters."),
        delay=said(NUMBER, "Seconds until they are redelivered; the queue's backoff by default."),
    ),
)
def nack(call: Call) -> Settled:
    """Return failed messages after their backoff, or dead-letter them; return how many, and the lost ids."""
    queue, _ = queue_of(call, Operation.QUEUE_TAKE)
    parts = parts_in(call)
    lost = queue.return_ids(parts, call.field("reason", str, ""), call.field("delay", (int, float), None))
    return _settled(queue, parts, lost)


@message_routes.post(
    ONE + "/release",
    needs=Needs.USER,
    says="Release messages without counting an attempt.",
    takes=body("messages", messages=HELD),
)
def release(call: Call) -> Settled:
    """Release messages without counting an attempt; return how many, and which lost their lease."""
    queue, _ = queue_of(call, Operation.QUEUE_TAKE)
    parts = parts_in(call)
    return _settled(queue, parts, queue.release_ids(parts))


@message_routes.post(
    ONE + "/extend",
    needs=Needs.USER,
    says="Set the remaining time of leases, longer or shorter.",
    takes=body("messages", messages=HELD, lease=said(NUMBER, "Seconds from now; the queue's lease by default.")),
)
def extend(call: Call) -> Settled:
    """Set the expiry of leases, later or earlier; return how many, and which lost their lease."""
    queue, _ = queue_of(call, Operation.QUEUE_TAKE)
    parts = parts_in(call)
    return _settled(queue, parts, queue.extend_ids(parts, call.field("lease", (int, float), None)))


def _settled(queue: Queue, parts: dict[int, set[int]], lost: list[int]) -> Settled:
    queue.sync()
    return {"done": sum(map(len, parts.values())) - len(lost), "lost": lost}
