"""Prometheus metrics: totals of the server without a login, and those of each queue, table and tailer with one.

The two sets share no metric name: a query that sums over both counts nothing twice.
"""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import version
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from holdfast.base.errors import InvalidArgument
from holdfast.base.metrics import Distribution, Kind, Registry, Sample
from holdfast.replica.alarms import ALARMS as REPLICA_ALARMS
from holdfast.web.overview_stats import OBJECTS, Known, Totals
from holdfast.web.routes import Call, Media, Needs, Reply, Routes
from holdfast.web.tailer_lag import each_tailer, worst_tailer

if TYPE_CHECKING:
    from holdfast.web.context import ServerContext

__all__ = ["EachObject", "WholeServer", "metric_routes"]

ALARMS = ("memory", "disk", "replica")
_SUMMED = {
    "holdfast_queue_checkpoint_": "holdfast_checkpoint_",
    "holdfast_queue_": "holdfast_messages_",
    "holdfast_migration_": "holdfast_migrations_",
}
"""Prefixes of the instruments of single queues and tables, and those of their sums."""
_REPLICA = "holdfast_replica_"
_RENAMED = {
    "holdfast_queue_ready": "holdfast_queue_ready_messages",
    "holdfast_queue_delayed": "holdfast_queue_delayed_messages",
    "holdfast_queue_leased": "holdfast_queue_leased_messages",
}
"""In OpenMetrics a gauge and a counter must not have the same name; `_total` is not a part of it."""


class _Level(NamedTuple):
    """A gauge of the whole server."""

    name: str
    help: str
    read: Callable[["ServerContext", Totals], float]


LEVELS = (
    _Level("holdfast_ready_messages", "Messages that can be delivered now.", lambda _, all: all.ready),
    _Level("holdfast_delayed_messages", "Messages whose delay has not elapsed.", lambda _, all: all.delayed),
    _Level("holdfast_leased_messages", "Messages that are leased to consumers.", lambda _, all: all.leased),
    _Level(
        "holdfast_unacked_messages",
        "Leased messages that were delivered over AMQP and are not settled.",
        lambda _, all: all.unacked,
    ),
    _Level("holdfast_moving_messages", "Messages that are being moved to another queue.", lambda _, all: all.moving),
    _Level("holdfast_dead_letters", "Messages in dead-letter queues.", lambda _, all: all.dead),
    _Level(
        "holdfast_oldest_message_age_seconds",
        "Age of the oldest message that can be delivered; 0 if there is none.",
        lambda _, all: all.oldest_age,
    ),
    _Level(
        "holdfast_lag_records",
        "Largest distance from the oldest unacknowledged message to the end of its log, of queues with ready ones.",
        lambda _, all: all.lag,
    ),
    _Level("holdfast_queues", "Open queues.", lambda _, all: all.queues),
    _Level(
        "holdfast_checkpoint_failing_queues",
        "Queues whose checkpoints fail at present; 0 when healthy.",
        lambda site, _: len(site.store.failing_checkpoints()),
    ),
    _Level("holdfast_exchanges", "Exchanges.", lambda _, all: all.exchanges),
    _Level("holdfast_bindings", "Bindings.", lambda _, all: all.bindings),
    _Level("holdfast_vhosts", "Virtual hosts.", lambda _, all: all.vhosts),
    _Level("holdfast_connections", "AMQP connections.", lambda _, all: all.connections),
    _Level("holdfast_channels", "AMQP channels.", lambda _, all: all.channels),
    _Level("holdfast_consumers", "AMQP consumers.", lambda _, all: all.consumers),
    _Level("holdfast_logs", "Logs in the store, including those of queues.", lambda _, all: all.logs),
    _Level("holdfast_logs_bytes", "Bytes of segments of open logs on the local disk.", lambda _, all: all.logs_bytes),
    _Level("holdfast_tables", "Tables.", lambda _, all: all.tables),
    _Level("holdfast_memory_resident_bytes", "Resident memory of the process.", lambda _, all: all.resident),
    _Level(
        "holdfast_memory_limit_bytes",
        "Resident memory above which publishers are blocked.",
        lambda site, _: site.broker.memory.resident_max,
    ),
    _Level("holdfast_memory_bodies_bytes", "Bytes of message bodies in memory.", lambda _, all: all.bodies),
    _Level(
        "holdfast_memory_bodies_limit_bytes",
        "Limit of the bytes of message bodies in memory.",
        lambda site, _: site.broker.memory.limits.bodies,
    ),
    _Level("holdfast_disk_free_bytes", "Free bytes on the disk.", lambda _, all: all.disk_free),
    _Level(
        "holdfast_disk_free_limit_bytes",
        "Free bytes on the disk below which publishers are blocked.",
        lambda site, _: site.broker.memory.limits.disk_free,
    ),
    _Level(
        "holdfast_store_disk_full",
        "1 while the disk is full and only acks, leases and checkpoints are written.",
        lambda site, _: int(site.store.disk_full),
    ),
    _Level(
        "holdfast_uptime_seconds",
        "Seconds since the server was started.",
        lambda site, _: (site.clock.time_ns() - site.started_at) / 1e9,
    ),
    _Level(
        "holdfast_event_loop_still_seconds",
        "Seconds since the event loop last responded.",
        lambda site, _: site.pulse.stalled_s,
    ),
)
COUNTS = (
    (
        "holdfast_connections_opened_total",
        "AMQP connections that were opened since the server was started.",
        "connections_opened",
    ),
    (
        "holdfast_connections_closed_total",
        "AMQP connections that were closed since the server was started.",
        "connections_closed",
    ),
)


class WholeServer(Collector):
    """Collects totals, without the name of anything that users have created."""

    def __init__(self, site: "ServerContext") -> None:
        self._site = site

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of the whole server."""
        site = self._site
        totals = site.figures.look()
        yield InfoMetricFamily(
            "holdfast_build",
            "Versions of Holdfast and Python.",
            {"version": version("holdfast"), "python": platform.python_version()},
        )
        for level in LEVELS:
            yield GaugeMetricFamily(level.name, level.help, level.read(site, totals))
        yield from worst_tailer(site.tailers.look())
        registry = site.store.metrics
        shipping = {
            name for name, (kind, _) in registry.families().items() if name.startswith(_REPLICA) and kind == "gauge"
        }
        if shipping:
            yield from _families((one, dict(one.labels)) for one in registry.collect(names=shipping))
        alarm = GaugeMetricFamily(
            "holdfast_alarm", "1 while an alarm of this kind blocks publishers.", labels=["reason"]
        )
        for reason in ALARMS:
            alarm.add_metric([reason], site.broker.memory.blocked == reason)
        yield alarm
        status, active = site.replica.look()
        if status is not None:
            alarm = GaugeMetricFamily(
                "holdfast_replica_alarm", "1 while this alarm of the replica is active.", labels=["alarm"]
            )
            for kind in REPLICA_ALARMS:
                alarm.add_metric([kind], kind in {one.kind for one in active})
            yield alarm
        for name, help, attribute in COUNTS:
            yield CounterMetricFamily(name, help, getattr(site.server, attribute))
        yield CounterMetricFamily(
            "holdfast_dead_letters_dropped_total",
            "Dead letters that were lost because their exchange is missing or has no matching binding.",
            site.broker.dead_letters.dropped,
        )
        yield from _families((_summed(sample), dict(sample.labels)) for sample in site.figures.counted())


class EachObject(Collector):
    """Collects the metrics of each queue, table and named tailer, labelled with their names."""

    def __init__(
        self, site: "ServerContext", *, vhost: str | None = None, queue: str | None = None, families: Iterable[str] = ()
    ) -> None:
        """Select by virtual host, queue and metric family; without families, all except histograms."""
        self._site = site
        self._vhost = vhost
        self._queue = queue
        self._wanted = frozenset(families)

    def collect(self) -> Iterator[Metric]:
        """Yield metrics by family, of open queues."""
        known = [
            one
            for one in self._site.figures.queues()
            if self._vhost in (None, one.vhost) and self._queue in (None, one.name)
        ]
        yield from self._of_queues(known)
        if self._queue is None:
            yield from each_tailer(self._site.tailers.look(), self._wanted, self._vhost)
        registries = (self._site.store.metrics, self._site.broker.transient.metrics)
        samples = chain.from_iterable(
            self._samples(registry, {one.queue.name: one for one in known if one.metrics is registry})
            for registry in registries
        )
        yield from _families(sorted(samples, key=lambda pair: pair[0].name))

    def _of_queues(self, known: list[Known]) -> Iterator[Metric]:
        """Yield the metrics that are read from the queues themselves."""
        ages = self._site.figures.ages()
        gauges: tuple[tuple[str, str, Callable[[Known], float | None]], ...] = (
            (
                "holdfast_queue_unacked_messages",
                "Messages that were delivered over AMQP and are not settled.",
                lambda one: None if one.broker_queue is None else one.broker_queue.unacked,
            ),
            (
                "holdfast_queue_consumers",
                "AMQP consumers.",
                lambda one: None if one.broker_queue is None else len(one.broker_queue.consumers),
            ),
            (
                "holdfast_queue_oldest_message_age_seconds",
                "Age of the oldest message that can be delivered; 0 if there is none.",
                lambda one: ages.get(one.queue, 0.0),
            ),
            ("holdfast_queue_bodies_bytes", "Bytes of message bodies in memory.", lambda one: one.queue.cached_bytes),
            (
                "holdfast_queue_log_bytes",
                "Bytes of the segments of the queue's log.",
                lambda one: sum(segment.limit for segment in one.queue.log.reader.segments()),
            ),
        )
        if self._wants("holdfast_queue_dead_letters_dropped_total", "counter"):
            dropped = CounterMetricFamily(
                "holdfast_queue_dead_letters_dropped_total",
                "Dead letters of the queue that were lost because no queue received them.",
                labels=["vhost", "queue"],
            )
            for one in known:
                if one.broker_queue is not None:
                    dropped.add_metric([one.vhost, one.name], one.broker_queue.dead_letters_dropped)
            yield dropped
        for name, help, read in gauges:
            if self._wants(name, "gauge"):
                family = GaugeMetricFamily(name, help, labels=["vhost", "queue"])
                for one in known:
                    if (value := read(one)) is not None:
                        family.add_metric([one.vhost, one.name], value)
                yield family

    def _wants(self, name: str, kind: Kind) -> bool:
        return name in self._wanted if self._wanted else kind != "histogram"

    def _samples(self, registry: Registry, known: Mapping[str, Known]) -> Iterator[tuple[Sample, dict[str, str]]]:
        names = {name for name, (kind, _) in registry.families().items() if self._wants(_RENAMED.get(name, name), kind)}
        if self._queue is None:
            samples = registry.collect(names=names)
        else:
            samples = chain.from_iterable(registry.collect(names=names, labels={"queue": name}) for name in known)
        for sample in samples:
            labels = dict(sample.labels)
            if "queue" in labels:
                one = known.get(labels["queue"])
                if one is None:
                    continue
                labels = {**labels, "vhost": one.vhost, "queue": one.name}
            elif self._vhost is not None or labels.keys().isdisjoint(OBJECTS):
                continue
            if (name := _RENAMED.get(sample.name)) is not None:
                sample = Sample(name, sample.kind, sample.help, (), sample.value)
            yield sample, labels


def _summed(sample: Sample) -> Sample:
    """Return a sum, under a name that no metric of a single queue has."""
    for single, all_of_them in _SUMMED.items():
        if sample.name.startswith(single):
            name = all_of_them + sample.name.removeprefix(single)
            return Sample(name, sample.kind, sample.help, sample.labels, sample.value)
    return sample


def _families(samples: Iterable[tuple[Sample, dict[str, str]]]) -> Iterator[Metric]:
    """Group samples, sorted by name, into Prometheus metric families."""
    family: Metric | None = None
    last = ""
    for sample, labels in samples:
        if sample.name != last:
            if family is not None:
                yield family
            last = sample.name
            kind = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily, "histogram": HistogramMetricFamily}
            family = kind[sample.kind](sample.name, sample.help, labels=sorted(labels))
        values = [labels[name] for name in sorted(labels)]
        if isinstance(sample.value, Distribution):
            assert isinstance(family, HistogramMetricFamily)
            buckets = [(_bound(bound), count) for bound, count in sample.value.buckets]
            family.add_metric(values, buckets, sample.value.total)
        else:
            assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
            family.add_metric(values, sample.value)
    if family is not None:
        yield family


@cache
def _bound(bound: float) -> str:
    return str(floatToGoString(bound))  # type: ignore[no-untyped-call]


@cache
def _process() -> ProcessCollector:
    return ProcessCollector(registry=None)


def _exposed(call: Call, *collectors: Collector) -> Reply[None]:
    registry = CollectorRegistry(auto_describe=False)
    for one in collectors:
        registry.register(one)
    encode, media = choose_encoder(call.headers.get("accept", ""))
    return Reply(raw=encode(registry), media=media)


metric_routes = routes = Routes("monitoring")
_FORMATS = Media("text/plain", "application/openmetrics-text")


@routes.get("/metrics", needs=Needs.NOTHING, says="Show totals of the server in Prometheus' format.", answer=_FORMATS)
def metrics(call: Call) -> Reply[None]:
    """Return the totals, in Prometheus' own format or OpenMetrics, as the client accepts."""
    return _exposed(call, WholeServer(call.site), _process())


@routes.get(
    "/metrics/per-object",
    needs=Needs.MONITORING,
    says="Show metrics of each queue, table and named tailer in Prometheus' format.",
    query={
        "vhost": "Only queues of this virtual host.",
        "queue": "Only queues of this name.",
        "family": "Only metrics of this name; may be repeated. Histograms are included only if they are named.",
    },
    answer=_FORMATS,
)
def metrics_of_each(call: Call) -> Reply[None]:
    """Return the metrics of each queue and table."""
    families = [value for name, value in call.queries if name == "family"]
    if unknown := [name for name in families if not name.startswith("holdfast_")]:
        raise InvalidArgument(f"there is no metric {unknown[0]!r}: see docs/monitoring.md for the names")
    each = EachObject(call.site, vhost=call.query.get("vhost"), queue=call.query.get("queue"), families=families)
    return _exposed(call, each)
