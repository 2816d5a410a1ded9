"""Lag of the named tailers of open logs, such as Spark streams with a name, for Prometheus."""

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from holdfast.base.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.web.context import ServerContext

__all__ = ["TailerLag", "TailerLags", "each_tailer", "worst_tailer"]

_FRESH_S = 5.0
"""For how long the lags are kept: each tailer of each log is a file, and several Prometheus servers may scrape."""
_LAG = "holdfast_log_tailer_lag_records"
_AGE = "holdfast_log_tailer_committed_timestamp_seconds"


class TailerLag(NamedTuple):
    """A named tailer of a log, with the names that users know."""

    vhost: str
    log: str
    tailer: str
    lag: int
    committed_at: int
    """Nanoseconds."""


class TailerLags:
    """The named tailers of all open logs, except queues, which have metrics of their own.

    `_guard` protects the lags, and is held while they are read again, so that this is done once. Threads: any.
    """

    def __init__(self, site: "ServerContext", *, fresh_s: float = _FRESH_S) -> None:
        self._site = site
        self._fresh_s = fresh_s
        self._guard = threading.Lock()
        self._at = float("-inf")
        self._lags: list[TailerLag] = []

    def look(self) -> list[TailerLag]:
        """Return the lags, sorted; a few seconds old at most."""
        with self._guard:
            now = time.monotonic()
            if now - self._at >= self._fresh_s:
                self._lags = sorted(self._look())
                self._at = now
            return self._lags

    def _look(self) -> Iterator[TailerLag]:
        for log in self._site.store.open_logs():
            with contextlib.suppress(HoldfastError):  # it was closed or deleted meanwhile
                end = log.end
                vhost, name = self._site.names_of(log.name)
                for one in log.positions.all(queues=False):
                    yield TailerLag(vhost, name, one.name, max(0, end - one.position), one.committed_at)


def worst_tailer(lags: Iterable[TailerLag]) -> Iterator[Metric]:
    """Yield the largest lag, without any name."""
    worst = max((one.lag for one in lags), default=0)
    yield GaugeMetricFamily("holdfast_tailer_lag_records", "Largest lag of a named tailer of an open log.", worst)


def each_tailer(lags: Iterable[TailerLag], families: frozenset[str], vhost: str | None) -> Iterator[Metric]:
    """Yield the lag of each tailer, and when it committed its position; of a virtual host if one is given."""
    labels = ["vhost", "log", "tailer"]
    lag = GaugeMetricFamily(_LAG, "Records of the log that the named tailer has not read.", labels=labels)
    at = GaugeMetricFamily(_AGE, "When the named tailer committed its position.", labels=labels)
    for one in lags:
        if vhost in (None, one.vhost):
            names = [one.vhost, one.log, one.tailer]
            lag.add_metric(names, one.lag)
            at.add_metric(names, one.committed_at / 1e9)
    yield from (family for family in (lag, at) if not families or family.name in families)
