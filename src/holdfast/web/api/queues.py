"""API routes for queues: list, declare, delete, purge, pause, seek, and show leases and delayed messages."""

import contextlib
from dataclasses import asdict
from typing import Any, cast

from holdfast.base.errors import HoldfastError, InvalidArgument, NotFound
from holdfast.base.units import iso_time
from holdfast.broker.dead_letter_browser import dead_letter_targets
from holdfast.broker.definitions import check_arguments
from holdfast.broker.permissions import Operation
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.broker.store_names import check_new_name, check_reserved, name_in_store, stripped
from holdfast.broker.users import Kind
from holdfast.broker.vhost import log_options
from holdfast.queue import LeaseInfo, Queue, QueueSettings
from holdfast.queue.dead_letter_forwarder import is_forwarded
from holdfast.queue.settings import asdict_shallow, from_json
from holdfast.web.api.pagination import PAGING
from holdfast.web.api.queue_summary import Found, all_queues, page_of, row, settings_json, shown_lag
from holdfast.web.api.response_types import (
    AllDelayed,
    Axis,
    DelayedJson,
    DelayedMessages,
    DelayedQueue,
    Leases,
    Paused,
    Purged,
    QueueDetail,
    QueueRow,
    Returned,
    Seeked,
    ShownQueueStats,
)
from holdfast.web.api.schemas import BODY_MAX, QUEUE_SETTINGS, instant, message_json, moments, plain
from holdfast.web.context import ServerContext
from holdfast.web.request_schema import FLAG, TEXT, body, said
from holdfast.web.response_types import Page
from holdfast.web.responses import ResourceLocked
from holdfast.web.routes import Call, Needs, Reply, Routes

__all__ = ["ONE", "queue_of", "queue_routes"]

queue_routes = Routes("queues")
_ALL = "/api/holdfast/queues"
ONE = _ALL + "/{vhost}/{name}"
_IDS_SHOWN = 100
_LEASES_MAX = 100_000
_ENDLESS_NS = 365 * 86_400 * 10**9
"""A lease at least as long is one of the broker's, which last ten years."""
_KINDS: tuple[Kind, ...] = ("configure", "write", "read")
_QUEUES_MAX = 1000
_SAMPLE = 10


def queue_of(call: Call, operation: Operation = Operation.QUEUE_LOOK) -> tuple[Queue, BrokerQueue | None]:
    """Return the queue that the path names, with its broker queue, if the caller may perform the operation on it.

    Raises 403 if not, 404 if there is no such queue, and 409 for an exclusive queue unless the request is a GET.
    """
    vhost, name = call.path["vhost"], call.path["name"]
    call.site.host(vhost)
    call.may(operation, name, vhost=vhost)
    queue, broker_queue = call.site.queue(vhost, name)
    if broker_queue is not None and broker_queue.definition.exclusive and call.method != "GET":
        raise ResourceLocked(name)
    return queue, broker_queue


@queue_routes.get(
    _ALL,
    needs=Needs.LOGIN,
    says="List queues, one page at a time.",
    query={
        **PAGING,
        "sort": "The field to sort by: ready, oldest_age, put_rate...",
        "sort_reverse": "true: largest first.",
        "vhost": "Only those of this virtual host.",
    },
)
def queues(call: Call) -> Page[QueueRow]:
    """Return a page of queues."""
    return page_of(call)


@queue_routes.post(
    _ALL,
    needs=Needs.LOGIN,
    says="Declare a durable queue; does nothing if it exists with the same arguments.",
    takes=body(
        "name",
        vhost=TEXT,
        name=TEXT,
        arguments={"type": "object", "description": "Arguments of AMQP, such as x-message-ttl and x-max-length."},
        settings=said(QUEUE_SETTINGS, "Settings of Holdfast, instead of arguments; an existing queue must have them."),
    ),
    status=201,
)
def declare(call: Call) -> Reply[QueueRow]:
    """Declare a durable queue that AMQP clients see, too.

    A dead-letter exchange also needs read permission on the queue, and write permission on the exchange.
    """
    vhost, name = call.field("vhost", str, "/"), call.field("name", str)
    arguments = call.field("arguments", dict, {})
    check_arguments(arguments)
    host = call.site.host(vhost)
    call.may(Operation.QUEUE_DECLARE, name, vhost=vhost)
    if isinstance(
        dead := arguments.get("x-dead-letter-exchange"), str
    ):  # else messages would reach an exchange that the caller may not publish to
        call.may(Operation.QUEUE_TAKE, name, vhost=vhost)
        call.may(Operation.EXCHANGE_PUBLISH, dead, vhost=vhost)
    if not name:
        raise InvalidArgument("a queue needs a name")
    settings = _settings_in(call, vhost, name)

    def declare() -> BrokerQueue:
        if settings:
            _make_with_settings(call.site, vhost, name, settings)
        return host.declare_queue(
            name, durable=True, exclusive=False, auto_delete=False, arguments=arguments, passive=False, owner=call.site
        )

    broker_queue = call.site.on_broker(declare)
    return Reply(row(call.site, Found(vhost, name, broker_queue.queue, broker_queue)), 201)


def _settings_in(call: Call, vhost: str, name: str) -> dict[str, Any]:
    """Return the settings of the queue to declare, checked with the caller's permission for its dead letters."""
    settings = from_json(call.field("settings", dict, {}))
    if not settings:
        return {}
    if call.field("arguments", dict, {}):
        raise InvalidArgument("send either arguments or settings")
    check_reserved(name)
    check_new_name("queue", name)
    if isinstance(dead := settings.get("dead_letter"), str):
        check_reserved(dead)
        if is_forwarded(dead):
            raise InvalidArgument(f"dead_letter must be the name of a queue, not {dead!r}")
        settings["dead_letter"] = name_in_store(vhost, dead)
    target = QueueSettings.of(name_in_store(vhost, name), settings).dead_letter
    if target is not None:  # else messages would reach a queue that the caller may not write to
        call.may(Operation.QUEUE_TAKE, name, vhost=vhost)
        call.may(Operation.QUEUE_PUT, call.site.names_of(target)[1], vhost=vhost)
    return settings


def _make_with_settings(site: ServerContext, vhost: str, name: str, settings: dict[str, Any]) -> None:
    """Create a queue as a program would, with the library's defaults; raise if it exists with other settings."""
    stored = name_in_store(vhost, stripped(name))
    try:
        queue, _ = site.queue(vhost, stripped(name))
    except NotFound:
        site.store.queue(stored, **settings, **log_options(site.broker.memory.limits))
        return
    present = asdict_shallow(queue.settings)
    wanted = asdict_shallow(QueueSettings.of(stored, {**present, **settings}))
    for one in settings:
        if wanted[one] != present[one]:
            raise InvalidArgument(
                f"the queue {name!r} has {one}={present[one]!r}, not {wanted[one]!r}: leave the setting out, or delete "
                "the queue first"
            )


@queue_routes.get(ONE, needs=Needs.USER, says="Show one queue: statistics, settings, consumers and bindings.")
def one_queue(call: Call) -> QueueDetail:
    """Return statistics, settings, consumers, bindings and the caller's permissions.

    Needs read permission on the queue, or the tag monitoring or administrator.
    """
    vhost, name = call.path["vhost"], call.path["name"]
    call.site.host(vhost)
    if not call.who.sees_all:
        call.may(Operation.QUEUE_LOOK, name, vhost=vhost)
    queue, broker_queue = call.site.queue(vhost, name)
    allowed = call.site.broker.users.allowed
    stats = queue.stats()
    dead = queue.settings.dead_letter
    label = None if dead is None or is_forwarded(dead) else call.site.names_of(dead)[1]
    known = {} if broker_queue is None else call.site.on_broker(lambda: _of_broker(call, broker_queue))
    times = moments(next_due=stats.next_due, checkpoint_failing_since=stats.checkpoint_failing_since)
    detail: dict[str, Any] = {
        **row(call.site, Found(vhost, name, queue, broker_queue)),
        "paused": queue.paused,
        "may": {kind: allowed(call.who.name, vhost, kind, name) for kind in _KINDS},
        "stats": ShownQueueStats(**{**asdict(stats), "lag": shown_lag(stats.ready, stats.lag), **times}),
        "put_total": queue.log.end,
        "settings": {**settings_json(queue), "dead_letter": label or dead},
        "dead_letter": None if label is None else {"vhost": vhost, "name": label},
        "dead_letter_queues": [],
        "consumers_detail": [],
        "bindings": [],
        **known,
    }
    return cast("QueueDetail", detail)


def _of_broker(call: Call, broker_queue: BrokerQueue) -> dict[str, Any]:
    host = call.site.host(call.path["vhost"])
    topology = host.topology
    wanted = broker_queue.definition.settings
    dead = None
    if wanted.dead_letter_exchange is not None:
        dead = {"exchange": wanted.dead_letter_exchange, "routing_key": wanted.dead_letter_routing_key}
    return {
        "dead_letter_exchange": dead,
        "dead_letter_queues": [
            {"vhost": call.path["vhost"], "name": one, "ready": host.broker_queues[one].queue.counts().ready}
            for one in sorted(dead_letter_targets(host, broker_queue.definition))
            if one in host.broker_queues
        ],
        "consumers_detail": [
            {
                "tag": one.tag,
                "connection": one.connection,
                "channel": one.number,
                "user": one.user,
                "prefetch": one.prefetch,
                "no_ack": one.no_ack,
                "unacked": one.unacked,
                "priority": one.priority,
                "active": one.active,
            }
            for one in call.site.server.report.consumers(call.path["vhost"], broker_queue.name)
        ],
        "bindings": [
            {"source": one.source, "routing_key": one.routing_key, "arguments": plain(dict(one.arguments))}
            for one in topology.bindings_to("queue", broker_queue.name)
        ],
    }


@queue_routes.delete(ONE, needs=Needs.USER, says="Delete a queue with its messages.")
def delete(call: Call) -> None:
    """Delete a queue with its messages."""
    queue, broker_queue = queue_of(call, Operation.QUEUE_DELETE)
    if broker_queue is None:
        call.site.store.delete_queue(queue.name)
    else:
        host = call.site.host(call.path["vhost"])
        call.site.on_broker(lambda: host.delete_queue(broker_queue.name, broker_queue.definition.owner))


@queue_routes.post(ONE + "/purge", needs=Needs.USER, says="Remove all messages that are not leased.")
def purge(call: Call) -> Purged:
    """Drop every message that is not leased, also delayed ones; return how many. On disk when this responds."""
    queue, _ = queue_of(call, Operation.QUEUE_PURGE)
    purged = queue.purge()
    queue.sync()
    return {"purged": purged}


@queue_routes.post(ONE + "/pause", needs=Needs.USER, says="Pause deliveries until the queue is resumed.")
def pause(call: Call) -> Paused:
    """Pause a queue, also beyond a restart: it accepts messages, but delivers none."""
    queue, _ = queue_of(call, Operation.QUEUE_STEER)
    queue.pause()
    return {"paused": True}


@queue_routes.post(ONE + "/resume", needs=Needs.USER, says="Resume deliveries.")
def resume(call: Call) -> Paused:
    """Resume deliveries."""
    queue, _ = queue_of(call, Operation.QUEUE_STEER)
    queue.resume()
    return {"paused": False}


@queue_routes.get(
    ONE + "/leases",
    needs=Needs.USER,
    says="List the leases of a queue, with their messages and expiry.",
    query={
        "count": "Number of leases, 1000 by default.",
        "ids": "Number of ids of each lease, 100 by default; 0: all.",
    },
)
def leases(call: Call) -> Leases:
    """Return the leases, oldest first."""
    queue, _ = queue_of(call)
    shown = call.number("ids", _IDS_SHOWN) or None
    return {
        "leases": [
            {
                "lease": one.id,
                "count": len(one.ids),
                "ids": list(one.ids[:shown]),
                "since_at": one.since,
                "since_time": iso_time(one.since),
                "expires_at": one.expires_at,
                "expires_time": iso_time(one.expires_at),
                "held_by": "consumer" if _is_endless(one) else None,
            }
            for one in queue.leases(call.number("count", 1000, most=_LEASES_MAX, least=1))
        ]
    }


def _is_endless(lease: LeaseInfo) -> bool:
    """Whether a lease is the broker's: it ends with the consumer or its acknowledgement, not with time."""
    return lease.expires_at - lease.since >= _ENDLESS_NS


@queue_routes.delete(
    ONE + "/leases/{lease}",
    needs=Needs.USER,
    says="Revoke a lease: its messages are ready again.",
    query={"reason": "The reason, which is shown with dead letters after the name of the user."},
)
def void_lease(call: Call) -> Returned:
    """Revoke a lease: its messages are ready again, and its holder has lost them; return how many.

    Responds 400 while the queue has AMQP consumers: their leases end with their channel.
    """
    queue, broker_queue = queue_of(call, Operation.QUEUE_STEER)
    lease = call.numbered("lease")
    if broker_queue is not None and broker_queue.consumers:
        raise InvalidArgument(
            "the queue has AMQP consumers, whose leases end with their channel: close the channel or the connection"
        )
    reason = f": {why}" if (why := call.query.get("reason")) else ""
    return {"returned": queue.void_lease(lease, f"lease revoked by {call.who.name}{reason}")}


@queue_routes.get(
    "/api/holdfast/delayed",
    needs=Needs.LOGIN,
    says="List the queues with delayed messages, those with the most first.",
    query={
        "count": "Number of queues, 24 by default.",
        "buckets": "Number of buckets of the histogram, 60 by default.",
    },
)
def all_delayed(call: Call) -> AllDelayed:
    """Return the queues with the most delayed messages, each with a histogram, and the totals of all queues.

    Only queues that the caller may read are included.
    """
    buckets = call.number("buckets", 60, most=1000, least=1)
    waiting: list[tuple[int, Found]] = []
    for found in all_queues(call.site, call.who):
        if call.site.broker.permissions.allows(call.who.name, Operation.QUEUE_LOOK, found.name, vhost=found.vhost):
            with contextlib.suppress(HoldfastError):  # it was closed meanwhile
                waiting.append((found.queue.counts().delayed, found))
    waiting = sorted((one for one in waiting if one[0]), key=lambda one: (-one[0], one[1].vhost, one[1].name))
    shown: list[DelayedQueue] = []
    for count, found in waiting[: call.number("count", 24, most=_QUEUES_MAX, least=1)]:
        with contextlib.suppress(HoldfastError):
            axis = _axis(found.queue, buckets)
            shown.append({"vhost": found.vhost, "name": found.name, "total": count, **axis})
    return {"total": sum(count for count, _ in waiting), "total_queues": len(waiting), "queues": shown}


def _axis(queue: Queue, buckets: int) -> Axis:
    """Return when delayed messages become ready: the first, the last, and a histogram."""
    found = queue.delayed_histogram(buckets)
    return {
        "first_due": found[0][0] if found else None,
        "last_due": found[-1][1] if found else None,
        "buckets": [{"start_at": start, "end_at": end, "count": count} for start, end, count in found],
    }


@queue_routes.get(
    ONE + "/delayed",
    needs=Needs.USER,
    says="List delayed messages, with a histogram of their due times.",
    query={
        "count": "Number of messages, 200 by default.",
        "truncate": "Maximum bytes of each body; 0: no limit.",
        "buckets": "Number of buckets of the histogram, 60 by default.",
    },
)
def delayed(call: Call) -> DelayedMessages:
    """Return the next delayed messages, and a histogram of all."""
    queue, _ = queue_of(call)
    most = call.number("truncate", 4096) or BODY_MAX
    return {
        "total": queue.counts().delayed,
        **_axis(queue, call.number("buckets", 60, most=1000, least=1)),
        "messages": [
            cast("DelayedJson", {**message_json(one, most), **moments(due=one.due_at)})  # type: ignore[call-overload]
            for one in queue.delayed(call.number("count", 200, most=10_000, least=1))
        ],
    }


@queue_routes.post(
    ONE + "/seek",
    needs=Needs.USER,
    says="Move the queue's position in its log, to replay or skip messages, or preview that.",
    takes=body(
        to={"description": "A sequence, `start` or `end`."},
        time={"description": "Such as 2026-11-15T12:00:00Z, or nanoseconds since 1970."},
        dry_run=said(FLAG, "Only report the effect."),
    ),
)
def seek(call: Call) -> Seeked:
    """Move the queue's position, unless `dry_run`; return the effect. On disk when this responds."""
    queue, _ = queue_of(call, Operation.QUEUE_STEER)
    to, when = call.field("to", (int, str), None), call.field("time", (int, str), None)
    if (to is None) == (when is None):
        raise InvalidArgument("give either `to` (a sequence, start or end) or `time`")
    words = {"start": queue.log.start, "end": queue.log.end}
    if isinstance(to, str) and to not in words:
        raise InvalidArgument(f"cannot seek to {to!r}: use a sequence, start or end")
    if when is not None:
        to = queue.log.sequence_at(instant(when))
    found = queue.preview(words[to] if isinstance(to, str) else to)
    only = call.field("dry_run", bool, False)
    sample = [message_json(one, 4096) for one in found.sample(_SAMPLE)]
    if not only:
        queue.seek(found.position)
        queue.sync()
    return {
        "position": found.position,
        "log_start": found.log_start,
        "log_end": found.log_end,
        "delivered": found.delivered,
        "waiting_now": found.waiting_now,
        "dropped": found.dropped,
        "sample": sample,
        "dry_run": only,
    }
