"""A listener for streaming queries that keeps their lag, logs it, and exports it."""

import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from holdfast.base.errors import InvalidArgument, NotFound
from holdfast.spark.lag import LogLag, lags_of
from holdfast.spark.options import few
from holdfast.spark.position_export import PositionExport

if TYPE_CHECKING:  # a part of holdfast[server]
    from prometheus_client.metrics_core import Metric

__all__ = ["LagListener", "QueryLag"]

logger = logging.getLogger("holdfast.spark")

_ENDED_MAX = 100
"""How many ended queries are remembered."""


@dataclass(frozen=True, slots=True)
class QueryLag:
    """The last progress of a query, as far as it reads from Holdfast."""

    id: str
    name: str | None
    run_id: str
    batch: int | None = None
    """None until the first batch."""
    time: datetime | None = None
    """When its batch started, in UTC."""
    logs: tuple[LogLag, ...] = ()
    running: bool = True

    @property
    def title(self) -> str:
        """The name of the query, or else its id."""
        return self.name or self.id


class LagListener(StreamingQueryListener):
    """Keeps how many records each streaming query is behind in each log.

    Add it with `spark.streams.addListener(listener)`, in a classic session or over Spark Connect; there it runs in the
    client. It never fails a query: an error is logged, once until the next success.

    `_guard` protects `_queries`. Threads: any; Spark calls the `on...` methods in one thread.
    """

    def __init__(self, positions: str | os.PathLike[str] | None = None, *, token: str | None = None) -> None:
        """Export to nobody, or store positions as those of named tailers in a folder or at a server.

        `positions` is the folder of the store that the queries read, or the URL of its server, and `token` is a token
        of that server. The position of a query is then that of the tailer `spark:<name of the query>` of each log: it
        is listed with its lag, counted in the metrics of the server, and **retention waits for it**.
        """
        self._guard = threading.Lock()
        self._queries: dict[str, QueryLag] = {}
        """By the id of the query, which survives restarts; the newest last."""
        self._export = None if positions is None else PositionExport(os.fspath(positions), token=token)
        self._failed: set[str] = set()

    def lag(self, query: str | None = None) -> dict[str, int]:
        """Return the records that are behind the latest, by log; over all running queries without a name.

        `query` is the name of a query or its id. Empty until its first batch. Where several queries or sources read a
        log, the largest lag is returned.
        """
        found: dict[str, int] = {}
        for one in [self.query(query)] if query is not None else self.queries():
            for log in one.logs if query is not None or one.running else ():
                found[log.label] = max(log.behind, found.get(log.label, 0))
        return found

    def query(self, query: str) -> QueryLag:
        """Return the last progress of a query, by its name or its id; raises `NotFound` if it is not known."""
        known = self.queries()
        for one in reversed(known):
            if query in (one.name, one.id, one.run_id):
                return one
        there = few([one.title for one in known])
        raise NotFound(
            f"no streaming query {query!r} has reported to this listener; there are: {there}. "
            "Add the listener before the query starts, and give the query a name with queryName"
        )

    def queries(self) -> list[QueryLag]:
        """Return the last progress of each query, the ended ones too, the newest last."""
        with self._guard:
            return list(self._queries.values())

    def prometheus(self) -> str:
        """Return the lag of the running queries in the text format of Prometheus.

        A program that has a registry of its own calls `registry.register(listener)` instead. Both need the package
        prometheus-client.
        """
        try:
            from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - not a part of [spark]
        except ImportError:
            raise InvalidArgument("Prometheus' format needs a package: run pip install prometheus-client") from None
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry).decode()

    def collect(self) -> "Iterator[Metric]":
        """Yield the metrics of the running queries: what a registry of prometheus-client calls."""
        from prometheus_client.metrics_core import GaugeMetricFamily  # noqa: PLC0415 - as above

        lag = GaugeMetricFamily(
            "holdfast_spark_lag_records",
            "Records of a log that are behind the last batch of a streaming query.",
            labels=["query", "store", "log"],
        )
        last = GaugeMetricFamily(
            "holdfast_spark_batch_timestamp_seconds", "When the last batch of a query started.", labels=["query"]
        )
        for one in self.queries():
            if one.running and one.time is not None:
                last.add_metric([one.title], one.time.timestamp())
                for store, log, behind in _by_log(one):
                    lag.add_metric([one.title, store, log], behind)
        yield lag
        yield last

    def close(self) -> None:
        """Store the positions that are not stored yet, and stop exporting. Remove the listener from Spark first."""
        if self._export is not None:
            self._export.close()

    # What Spark calls.

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Remember the query, so that it can be asked for."""
        self._safely("a start", lambda: self._started(QueryLag(str(event.id), event.name, str(event.runId))))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Keep the lag of the query."""
        self._safely("a progress", lambda: self._progressed(event))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: a query is idle when no batch is due, so that its last lag holds."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Mark the query as ended: its lag can still be read, but is not exported."""
        self._safely("an end", lambda: self._ended(str(event.id), str(event.runId)))

    def _started(self, query: QueryLag) -> None:
        with self._guard:
            self._queries.pop(query.id, None)
            self._queries[query.id] = query
            ended = [id for id, one in self._queries.items() if not one.running]
            for id in ended[:-_ENDED_MAX]:
                del self._queries[id]

    def _progressed(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        logs = tuple(lag for source in progress.sources for lag in lags_of(source))
        found = QueryLag(
            str(progress.id),
            progress.name,
            str(progress.runId),
            progress.batchId,
            datetime.fromisoformat(progress.timestamp),
            logs,
        )
        with self._guard:
            known = self._queries.get(found.id)
            if known is not None and known.run_id == found.run_id:
                # The progress of a run may arrive after its end. A batch that is run again has no latest offset.
                found = replace(found, running=known.running, logs=logs or known.logs)
            self._queries[found.id] = found
        for log in logs:
            logger.info(
                "stream lag: query=%s batch=%d log=%s position=%d latest=%d behind=%d",
                found.title,
                found.batch,
                log.label,
                log.position,
                log.latest,
                log.behind,
            )
        if self._export is not None and logs:
            self._export.submit(found.title, logs)

    def _ended(self, id: str, run_id: str) -> None:
        with self._guard:
            known = self._queries.get(id)
            if known is not None and known.run_id == run_id:
                self._queries[id] = replace(known, running=False)

    def _safely(self, what: str, work: Any) -> None:
        """Do the work of an event. A listener that raises would be reported by Spark at each event."""
        try:
            work()
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            if text not in self._failed:
                self._failed.add(text)
                logger.warning("lag listener could not read %s of a query: %s", what, text, exc_info=True)
        else:
            self._failed.clear()


def _by_log(query: QueryLag) -> list[tuple[str, str, int]]:
    """Return the largest lag for each store and log: a query may read a log twice."""
    found: dict[tuple[str, str], int] = {}
    for one in query.logs:
        key = (one.store, one.label)
        found[key] = max(one.behind, found.get(key, 0))
    return [(*key, behind) for key, behind in found.items()]
