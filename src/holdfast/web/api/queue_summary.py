"""Queues as rows of a list: cheap enough for ten thousand; costly fields are added only to rows that are shown."""

import threading
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import timedelta
from operator import attrgetter
from typing import Any, NamedTuple, cast

from holdfast.base.clock import SystemClock
from holdfast.base.errors import HoldfastError, InvalidArgument
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.queue import Counts, Queue
from holdfast.web.api.pagination import named, paged
from holdfast.web.api.response_types import QueueRow, QueueSettingsJson
from holdfast.web.api.schemas import plain
from holdfast.web.auth import Caller
from holdfast.web.context import ServerContext
from holdfast.web.queue_snapshot import counts_of, snapshot_of
from holdfast.web.response_types import Page
from holdfast.web.routes import Call

__all__ = ["Found", "all_queues", "light_row", "page_of", "place_now", "row", "settings_json", "shown_lag"]

_ASKED_MAX = 500
"""Up to so many queues, a sort by age reads each oldest message; with more, it uses the cached ages."""
_SORTED_BY = (
    *(
        "name",
        "vhost",
        "ready",
        "delayed",
        "leased",
        "moving",
        "oldest_age",
        "lag",
        "put_rate",
        "lease_rate",
        "ack_rate",
    ),
    *("consumers", "state", "memory", "log", "durable", "exclusive", "auto_delete", "in_broker"),
)
FRESH_S = 2.0


class Found(NamedTuple):
    """A queue with its virtual host and name, and its broker queue if the broker has one."""

    vhost: str
    name: str
    queue: Queue
    broker_queue: BrokerQueue | None


class _Others:
    """Queues in the store that the broker does not know, cached for two seconds: finding them reads a folder."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._clock = SystemClock()
        self._looked: dict[ServerContext, tuple[float, list[Found]]] = {}

    def of(self, site: ServerContext) -> list[Found]:
        with self._guard:
            now = self._clock.monotonic()
            looked, found = self._looked.get(site, (float("-inf"), []))
            if now - looked > FRESH_S:
                known = site.broker.by_store_name
                names = [name for name in site.store.queues() if name not in known and "\x1f" not in name]
                found = [
                    Found("/", name, queue, None)
                    for name in names
                    if (queue := site.store.find_queue(name)) is not None
                ]
                self._looked = {site: (now, found)}
            return [one for one in found if one.queue.name not in site.broker.by_store_name and not one.queue.closed]


_others = _Others()


def all_queues(site: ServerContext, who: Caller, vhost: str | None = None) -> Iterator[Found]:
    """Yield the queues of the virtual hosts that the caller sees; permissions on each are not checked."""
    for host in list(site.broker.hosts.values()):
        if vhost not in (None, host.name) or not _may_see(site, who, host.name):
            continue
        for broker_queue in list(host.broker_queues.values()):
            yield Found(host.name, broker_queue.name, broker_queue.queue, broker_queue)
        if host.name == "/":
            yield from _others.of(site)


def _may_see(site: ServerContext, who: Caller, vhost: str) -> bool:
    return who.sees_all or bool(site.broker.users.permissions(who.name, vhost))


def light_row(site: ServerContext, found: Found) -> dict[str, Any]:
    """Return a queue's row with the fields that are cheap: counts and rates."""
    vhost, name, queue, broker_queue = found
    now = snapshot_of(queue, broker_queue)
    if now.closed:
        return {"vhost": vhost, "name": name, "state": "closed", "ready": 0, "delayed": 0, "leased": 0, "moving": 0}
    state = "paused" if now.paused else site.broker.memory.state(queue).replace("normal", "running")
    definition = broker_queue.definition if broker_queue is not None else None
    return {
        "vhost": vhost,
        "name": name,
        "log": queue.log.name,
        "ready": now.ready,
        "delayed": now.delayed,
        "leased": now.leased,
        "moving": now.moving,
        "put_rate": now.flow.put_rate,
        "lease_rate": now.flow.deliver_rate,
        "ack_rate": now.flow.ack_rate,
        "consumers": now.consumers,
        "dead_letters_dropped": broker_queue.dead_letters_dropped if broker_queue is not None else 0,
        "state": state,
        "memory": now.memory,
        "durable": definition.durable if definition is not None else True,
        "exclusive": definition.exclusive if definition is not None else False,
        "auto_delete": definition.auto_delete if definition is not None else False,
        "in_broker": broker_queue is not None,
        "arguments": plain(dict(definition.arguments)) if definition is not None else {},
    }


def row(site: ServerContext, found: Found) -> QueueRow:
    """Return a queue's row with the age of its oldest message and its lag."""
    light = light_row(site, found)
    try:
        figures = found.queue.stats()
    except HoldfastError:
        return cast("QueueRow", {**light, "oldest_age": None, "lag": 0, "dead": 0, "died": 0})
    return cast(
        "QueueRow",
        {
            **light,
            "oldest_age": figures.oldest_age,
            "lag": shown_lag(figures.ready, figures.lag),
            "dead": figures.dead,
            "died": figures.total_dead,
        },
    )


def shown_lag(ready: int, lag: int) -> int:
    """Return a queue's lag, but 0 if nothing is ready: then it waits for consumers or due times only."""
    return lag if ready else 0


def page_of(call: Call) -> Page[QueueRow]:
    """Return one page of all queues, filtered and sorted as the query says."""
    query = call.query
    site = call.site
    if vhost := query.get("vhost"):
        site.host(vhost)  # one that does not exist is an error, not an empty list
    found = list(all_queues(site, call.who, vhost or None))
    total = len(found)
    found = named(call, found, lambda one: one.name)
    sort, reverse = query.get("sort") or "name", call.flag("sort_reverse")
    if sort not in _SORTED_BY:
        raise InvalidArgument(f"queues cannot be sorted by {sort!r}; they can by: {', '.join(_SORTED_BY)}")
    found.sort(key=lambda one: (one.vhost, one.name))
    if sort != "name" or reverse:
        # With very many queues the cached ages of the totals are used, which may be some seconds old.
        ages = site.figures.ages() if sort == "oldest_age" and len(found) > _ASKED_MAX else None
        found.sort(key=lambda one: _sortable(_value(site, one, sort, ages)), reverse=reverse)
    return paged(call, found, total, lambda one: row(site, one))


_IN_SNAPSHOT = {
    "consumers": attrgetter("consumers"),
    "memory": attrgetter("memory"),
    "put_rate": attrgetter("flow.put_rate"),
    "lease_rate": attrgetter("flow.deliver_rate"),
    "ack_rate": attrgetter("flow.ack_rate"),
}


def _value(site: ServerContext, found: Found, sort: str, ages: Mapping[Queue, float] | None) -> Any:
    """Return the sort key of a queue, and compute no more than that."""
    if sort in ("name", "vhost"):
        return getattr(found, sort)
    if sort in Counts.__annotations__:
        return getattr(counts_of(found.queue), sort)
    if sort in _IN_SNAPSHOT:
        return _IN_SNAPSHOT[sort](snapshot_of(found.queue, found.broker_queue))
    try:
        if sort == "lag":
            return shown_lag(counts_of(found.queue).ready, place_now(found.queue)[1])
        if sort == "oldest_age":
            return row(site, found)["oldest_age"] if ages is None else ages.get(found.queue)
    except HoldfastError:  # it was closed meanwhile
        return 0
    return light_row(site, found).get(sort)


def place_now(queue: Queue) -> tuple[int, int]:
    """Return the sequence of the oldest unacknowledged message, and its distance to the end of the log.

    Reads without the queue's lock first, and with it only if something changes meanwhile.
    """
    try:
        floor = queue.inspect.floor()
    except (RuntimeError, ValueError):  # the state changed during the iteration
        lag = queue.stats().lag
        return max(0, queue.log.end - lag), lag
    return floor, max(0, queue.log.end - floor)


def _sortable(value: Any) -> tuple[int, Any]:
    match value:
        case None:
            return (0, 0)
        case str():
            return (2, value)
        case bool() | int() | float():
            return (1, value)
    return (3, str(value))


def settings_json(queue: Queue) -> QueueSettingsJson:
    """Return a queue's settings as JSON."""
    settings = {
        name: value.total_seconds() if isinstance(value, timedelta) else value
        for name, value in asdict(queue.settings).items()
    }
    return cast("QueueSettingsJson", settings)
