"""Totals of a served store over all queues, cheap enough to compute every second.

The overview, the history and the metrics all use them, so that they cannot differ.
"""

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from heapq import nsmallest
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from holdfast.base.errors import HoldfastError
from holdfast.base.metrics import Distribution, Kind, Labels, Rate, Reading, Registry, Sample
from holdfast.broker.dead_letter_browser import dead_letter_targets
from holdfast.broker.memory_alarm import free_bytes, resident_bytes
from holdfast.queue import Queue
from holdfast.queue.dead_letter_forwarder import is_forwarded

if TYPE_CHECKING:
    from holdfast.amqp.server import Server
    from holdfast.broker.broker import Broker
    from holdfast.broker.queue_dispatcher import BrokerQueue
    from holdfast.broker.vhost import VirtualHostRuntime
    from holdfast.store import Store

__all__ = ["OBJECTS", "Figures", "Known", "Rates", "Totals", "Watched", "names_of"]

OBJECTS = frozenset({"log", "queue", "table"})
"""Labels that name objects of users: a total is a sum over these."""
PUT, LEASED, ACKED = (f"holdfast_queue_{name}_total" for name in ("put", "leased", "acked"))
_FRESH_S = 1.0
_RATE_S = 15.0
ASKED_MAX = 50
"""Queues whose oldest message is looked up at a time: it may have to be read from disk."""
_TRUSTED_S = 60.0
_GUARD_S = 0.2


class Watched(Protocol):
    """The parts of a served store that are measured."""

    @property
    def store(self) -> "Store":
        """The store."""
        ...

    @property
    def broker(self) -> "Broker":
        """The broker."""
        ...

    @property
    def server(self) -> "Server":
        """The AMQP server."""
        ...


@dataclass(frozen=True, slots=True)
class Totals:
    """All queues together, at one moment."""

    ready: int
    delayed: int
    leased: int
    moving: int
    """Being moved to another queue."""
    unacked: int
    """Delivered over AMQP and not settled: these are leased, too."""
    dead: int
    """Ready and delayed messages in dead-letter queues."""
    put: int
    """Since the server was started, as the next two; the counters also grow on when queues are deleted."""
    delivered: int
    acked: int
    oldest_age: float
    """Seconds since the oldest ready message was put; 0 if none is ready."""
    lag: int
    """Largest distance, over queues with ready messages, from the oldest unacknowledged message to the log's end."""
    bodies: int
    """Bytes of message bodies in memory."""
    resident: int
    """Bytes of memory of the process."""
    disk_free: int
    logs_bytes: int
    """Bytes of the segments of all logs that are open, on the local disk."""
    vhosts: int
    queues: int
    exchanges: int
    bindings: int
    connections: int
    channels: int
    consumers: int
    logs: int
    tables: int
    replica_lag: int
    """Whole seconds that the replica is behind; 0 without one."""


class Rates(NamedTuple):
    """Messages a second, over the last 15 seconds."""

    put: float
    deliver: float
    ack: float


class Known(NamedTuple):
    """An open queue, with the names that users know."""

    vhost: str
    name: str
    queue: Queue
    broker_queue: "BrokerQueue | None"
    """None for a queue that is not the broker's."""
    metrics: Registry
    """Where its instruments are, under the name that it has in its store."""


class Figures:
    """Totals of a served store.

    Threads: any. Nothing waits for the broker's thread, which has more urgent work and may hang: each value read here
    is a number, or is copied in one atomic step. The broker's `guard` is awaited for 0.2 s at most.
    """

    def __init__(self, site: Watched, *, fresh_s: float = _FRESH_S) -> None:
        self._site = site
        self._fresh_s = fresh_s
        self._guard = threading.Lock()
        self._at = float("-inf")
        self._totals: Totals | None = None
        self._oldest = _Oldest()
        self._topologies: weakref.WeakKeyDictionary[VirtualHostRuntime, _Topology] = weakref.WeakKeyDictionary()
        self._rates: tuple[Rate, Rate, Rate] | None = None

    def look(self, *, fresh: bool = False) -> Totals:
        """Return the totals; at most a second old, or current with `fresh`."""
        with self._guard:
            now = time.monotonic()
            if self._totals is None or fresh or now - self._at >= self._fresh_s:
                self._totals = self._look()
                self._at = now
                if self._rates is None:
                    self._rates = (self._rate("put"), self._rate("delivered"), self._rate("acked"))
                for rate in self._rates:  # so that the first reader does not get zero
                    rate.per_second()
            return self._totals

    def rates(self) -> Rates:
        """Return the rates of messages."""
        self.look()
        with self._guard:
            assert self._rates is not None
            return Rates(*(rate.per_second() for rate in self._rates))

    def _rate(self, name: str) -> Rate:
        return Rate(Reading(lambda: int(getattr(self._totals, name))), time.monotonic, _RATE_S, 15)

    def counted(self) -> list[Sample]:
        """Return the counters and histograms of all queues and tables, added up."""
        found = {**self._sums("counter"), **self._sums("histogram")}
        return [found[key] for key in sorted(found)]

    def _sums(self, kind: Kind, names: Collection[str] | None = None) -> dict[tuple[str, Labels], Sample]:
        """Return the sums over the durable and the transient store."""
        registries = (self._site.store.metrics, self._site.broker.transient.metrics)
        return _merged(chain.from_iterable(registry.sums(OBJECTS, kind, names) for registry in registries))

    def ages(self) -> dict[Queue, float]:
        """Return by queue the age in seconds of its oldest ready message. Of very many queues, a few may be missing.

        The missing ones follow soon: fifty queues are asked at each call of `look`.
        """
        self.look()
        return self._oldest.ages()

    def queues(self) -> list[Known]:
        """Return every open queue. A transient queue of the broker hides a queue of the same name in the store."""
        broker = self._site.broker
        found: dict[tuple[str, str], Known] = {}
        for store in (self._site.store, broker.transient):
            for queue in _open_queues(store):
                host, box = broker.by_store_name.get(queue.name, (None, None))
                if host is not None and box is not None and box.queue is queue:
                    found[host.name, box.name] = Known(host.name, box.name, queue, box, store.metrics)
                else:
                    vhost, name = names_of(queue.name)
                    found.setdefault((vhost, name), Known(vhost, name, queue, None, store.metrics))
        return list(found.values())

    def _look(self) -> Totals:
        site, broker = self._site, self._site.broker
        queues = _open_queues(site.store, broker.transient)
        sums = self._sums("counter", (PUT, LEASED, ACKED))
        hosts = list(broker.hosts.values())
        topologies = [self._topology(host) for host in hosts]
        dead = {
            target
            for queue in queues
            if (target := queue.settings.dead_letter) is not None and not is_forwarded(target)
        }
        for host, topology in zip(hosts, topologies, strict=True):
            dead |= {
                box.queue.name
                for name in topology.dead_letter_queues
                if (box := host.broker_queues.get(name)) is not None
            }
        ready = delayed = leased = moving = bodies = died = 0
        waiting: list[Queue] = []
        for queue in queues:
            try:
                counts = queue.inspect.quick_counts()
            except HoldfastError:  # it was closed meanwhile
                continue
            if counts.ready:
                waiting.append(queue)
                ready += counts.ready
            delayed += counts.delayed
            leased += counts.leased
            moving += counts.moving
            bodies += queue.cached_bytes
            if queue.name in dead:
                died += counts.ready + counts.delayed
        oldest_age, lag = self._oldest.ask(waiting)
        boxes = [box for _, box in list(broker.by_store_name.values())]
        connections = site.server.report.clients()
        logs = [*site.store.open_logs(), *broker.transient.open_logs()]
        return Totals(
            ready=ready,
            delayed=delayed,
            leased=leased,
            moving=moving,
            unacked=sum(box.unacked for box in boxes),
            dead=died,
            put=_number(sums, PUT),
            delivered=_number(sums, LEASED),
            acked=_number(sums, ACKED),
            oldest_age=oldest_age,
            lag=lag,
            bodies=bodies,
            resident=resident_bytes(),
            disk_free=free_bytes(site.store.path),
            logs_bytes=sum(one.limit for log in logs for one in log.reader.segments() if one.remote is None),
            vhosts=len(hosts),
            queues=len(queues),
            exchanges=sum(len(host.topology.exchanges) for host in hosts),
            bindings=sum(topology.bindings for topology in topologies),
            connections=len(connections),
            channels=sum(len(connection.channels) for connection in connections),
            consumers=sum(len(box.consumers) for box in boxes),
            logs=_folders_in(site.store.path / "logs"),
            tables=_folders_in(site.store.path / "tables"),
            replica_lag=round(site.store.replica.status().lag_seconds) if site.store.is_replicated else 0,
        )

    def _topology(self, host: "VirtualHostRuntime") -> "_Topology":
        """Return the counts of a host's topology, computed again only if its version has changed.

        If the broker's `guard` cannot be taken soon, the last known counts are returned.
        """
        known = self._topologies.get(host)
        if known is None or known.version != host.version:
            guard = self._site.broker.guard
            if not guard.acquire(timeout=_GUARD_S):  # its holder may hang: the last known counts are used
                return known or _Topology(-1, 0, frozenset())
            try:  # the topology does not change while the guard is held
                known = _Topology(host.version, len(list(host.topology.bindings())), dead_letter_targets(host))
            finally:
                guard.release()
            self._topologies[host] = known
        return known


class _Topology(NamedTuple):
    version: int
    bindings: int
    dead_letter_queues: frozenset[str]
    """Queues to which dead-letter exchanges may route."""


class _Seen(NamedTuple):
    """What a queue last reported of its oldest message."""

    put_at: int
    """When its oldest ready message was put, in nanoseconds since 1970."""
    floor: int
    """Every message below was settled."""
    left: int
    """How often a message had left the queue then."""
    asked_at: float


class _Oldest:
    """The age of the oldest message of ten thousand queues, without asking each of them each time.

    A queue's report is valid until a message leaves it, and bounds later reports even then: its oldest message gets
    younger and its floor rises. So the queues that may be the worst are asked again; and each once in a while, since
    messages may be requeued, too.
    """

    def __init__(self) -> None:
        self._seen: dict[Queue, _Seen] = {}

    def ask(self, waiting: list[Queue]) -> tuple[float, int]:
        """Return, over queues with ready messages, the age of the oldest in seconds and the largest lag."""
        now = time.monotonic()
        seen, old = {}, []
        for queue in waiting:
            known = self._seen.get(queue)
            if known is not None:
                seen[queue] = known
            if known is None or known.left != _left(queue) or now - known.asked_at >= _TRUSTED_S:
                old.append((0 if known is None else known.put_at, id(queue), queue))
        for _, _, queue in nsmallest(ASKED_MAX, old):
            with contextlib.suppress(HoldfastError):  # it was closed meanwhile
                left, stats = _left(queue), queue.stats()
                put_at = time.time_ns() - round((stats.oldest_age or 0.0) * 1e9)
                seen[queue] = _Seen(put_at, queue.log.end - stats.lag, left, now)
        self._seen = seen
        if not seen:
            return 0.0, 0
        oldest = min(known.put_at for known in seen.values())
        return max(0.0, (time.time_ns() - oldest) / 1e9), max(
            max(0, queue.log.end - known.floor) for queue, known in seen.items()
        )

    def ages(self) -> dict[Queue, float]:
        """Return by queue the age of its oldest message, in seconds."""
        now = time.time_ns()
        return {queue: max(0.0, (now - known.put_at) / 1e9) for queue, known in self._seen.items()}


def _left(queue: Queue) -> int:
    totals = queue.inspect.totals
    return totals.leased + totals.dropped + totals.dead


def names_of(stored: str) -> tuple[str, str]:
    """Return the virtual host and the queue name that a name in the store denotes."""
    vhost, _, name = stored.rpartition("\x1f")
    return vhost or "/", name


def _open_queues(*stores: "Store") -> list[Queue]:
    return [queue for store in stores for queue in store.open_queues()]


def _number(sums: dict[tuple[str, Labels], Sample], name: str) -> int:
    sample = sums.get((name, ()))
    return int(sample.value) if sample is not None and not isinstance(sample.value, Distribution) else 0


def _merged(samples: Iterable[Sample]) -> dict[tuple[str, Labels], Sample]:
    """Return the samples of two registries, merged."""
    found: dict[tuple[str, Labels], Sample] = {}
    for sample in samples:
        key = sample.name, sample.labels
        other = found.get(key)
        found[key] = sample if other is None else replace(sample, value=_added(sample.value, other.value))
    return found


def _added(one: float | Distribution, other: float | Distribution) -> float | Distribution:
    if isinstance(one, Distribution) and isinstance(other, Distribution):
        both = zip(one.buckets, other.buckets, strict=True)
        return Distribution(tuple((bound, a + b) for (bound, a), (_, b) in both), one.total + other.total)
    assert not isinstance(one, Distribution)
    assert not isinstance(other, Distribution)
    return one + other


def _folders_in(folder: Path) -> int:
    try:
        return len(os.listdir(folder))  # noqa: PTH208 - ten thousand names need not become paths
    except OSError:  # none was ever created
        return 0
