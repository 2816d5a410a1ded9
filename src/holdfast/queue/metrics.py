"""Metrics of a queue: counters, rates and latencies, in a registry that `stats` and exporters read."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.base.clock import Clock
from holdfast.base.metrics import Rate, Registry

if TYPE_CHECKING:
    from holdfast.queue.queue_core import QueueCore

__all__ = ["SAMPLE", "Measures"]

SAMPLE = 15
"""Mask that selects every sixteenth of the messages that are leased one by one, for the latency histogram."""

_TOTALS = {
    "leased": "Deliveries.",
    "acked": "Acknowledged messages.",
    "nacked": "Failed deliveries returned to the queue.",
    "expired": "Deliveries whose lease expired.",
    "dead": "Messages that became dead letters.",
    "redriven": "Dead letters that were returned from this queue.",
    "dropped": "Messages removed without an acknowledgement.",
}


class Measures:
    """The instruments of one queue. It owns the histograms; counts that the queue keeps anyway are only read."""

    def __init__(self, core: "QueueCore", registry: Registry, clock: Clock) -> None:
        self._labels = {"queue": core.name}
        self._registry = registry
        health = core.checkpoints.health
        self.waits = registry.histogram("holdfast_queue_wait_seconds", "Seconds from put to delivery.", self._labels)
        self.holds = registry.histogram(
            "holdfast_queue_hold_seconds", "Seconds from delivery to acknowledgement.", self._labels
        )
        self.duplicates = registry.counter(
            "holdfast_queue_duplicates_total", "Puts not stored because their deduplication id was known.", self._labels
        )
        self.orphans = registry.counter(
            "holdfast_queue_orphans_total", "Dangling state entries that were repaired.", self._labels
        )

        def total(name: str) -> Callable[[], int]:
            return lambda: int(getattr(core.state.totals, name))

        totals = {
            name: registry.reading(f"holdfast_queue_{name}_total", help, self._labels, total(name))
            for name, help in _TOTALS.items()
        }

        def gauge(name: str, help: str, read: Callable[[], float]) -> None:
            registry.gauge(f"holdfast_queue_{name}", help, self._labels, read)

        def ready() -> int:
            """Count messages as ready that are not applied yet: a scrape of ten thousand queues takes no lock."""
            return core.state.ready.count + max(0, core.log.reader.visible_end - core.state.scanned)

        registry.reading(
            "holdfast_queue_checkpoint_failures_total",
            "Checkpoints that failed since the queue was opened.",
            self._labels,
            lambda: health.failures,
        )
        gauge(
            "checkpoint_failing_seconds",
            "Seconds since checkpoints began to fail; 0 while they succeed.",
            lambda: (
                max(0, clock.time_ns() - failing.since) / 1e9 if (failing := core.checkpoints.health.failing) else 0.0
            ),
        )
        gauge("ready", "Messages that can be delivered now.", ready)
        gauge("delayed", "Messages whose delay has not elapsed.", lambda: core.state.delayed.count)
        gauge("leased", "Messages that are leased to consumers.", lambda: core.state.leases.count)
        gauge(
            "dedup_window_seconds",
            "Seconds within which a duplicate is detected; less than configured if the limit of ids is reached.",
            lambda: core.state.dedup.window_at(clock.time_ns()) / 1e9,
        )
        put = registry.reading("holdfast_queue_put_total", "Messages put.", self._labels, lambda: core.log.end)
        self.put_rate = Rate(put, clock.monotonic)
        self.lease_rate = Rate(totals["leased"], clock.monotonic)
        self.ack_rate = Rate(totals["acked"], clock.monotonic)

    def forget(self) -> None:
        """Remove the instruments, after the queue was closed."""
        self._registry.remove(self._labels)
