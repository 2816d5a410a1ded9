"""Retention by age in the background, also for logs and journals that are no longer written."""

import logging
from collections.abc import Callable, Iterable

from holdfast.base.clock import Clock, duration_ns
from holdfast.base.errors import HoldfastError
from holdfast.log.log import Log
from holdfast.queue import Queue

__all__ = ["BackgroundRetention"]

logger = logging.getLogger("holdfast.store")

_SOONEST_S, _LATEST_S = 1.0, 60.0
_PART = 4
"""How often it checks within the shortest configured age."""
_AFTER_TRY_S = 300.0
"""Seconds after which a log is tried again that could not drop old records, because a tailer or queue needs them."""


class BackgroundRetention:
    """Applies `Retention(max_age=...)` to open logs, and `history` to the journals of open queues.

    It checks times that are in memory: logs and queues without old records are not touched.
    """

    name = "retention"

    def __init__(self, clock: Clock, logs: Callable[[], Iterable[Log]], queues: Callable[[], Iterable[Queue]]) -> None:
        self._clock = clock
        self._logs = logs
        self._queues = queues
        self._tried: dict[Log | Queue, float] = {}
        """When each log or queue with old records was tried last."""

    @property
    def fields(self) -> dict[str, str]:
        """The `extra` of log messages about it."""
        return {}

    def tick(self) -> float | None:
        """Drop records that are too old; return in how many seconds to check again, None without any limit by age."""
        shortest = float("inf")
        found: dict[Log | Queue, float] = {}
        for one, age_ns in self._aged():
            shortest = min(shortest, age_ns / 1e9)
            if self._is_past(one, self._clock.time_ns() - age_ns):
                self._try(one, age_ns / 1e9, found)
        self._tried = found
        return None if shortest == float("inf") else min(max(shortest / _PART, _SOONEST_S), _LATEST_S)

    def _aged(self) -> Iterable[tuple[Log | Queue, int]]:
        for queue in self._queues():
            if (history := queue.settings.nanoseconds("history")) is not None:
                yield queue, history
        for log in self._logs():
            retention = log.settings.retention
            if retention is not None and retention.max_age is not None:
                yield log, duration_ns(retention.max_age, "max_age")

    def _is_past(self, one: Log | Queue, moment: int) -> bool:
        return one.appender.is_past(moment) if isinstance(one, Log) else one.history.has_events_before(moment)

    def _try(self, one: Log | Queue, age_s: float, found: dict[Log | Queue, float]) -> None:
        now = self._clock.monotonic()
        last = self._tried.get(one)
        if last is not None and now - last < min(max(age_s, _SOONEST_S), _AFTER_TRY_S):
            found[one] = last
            return
        found[one] = now
        try:
            (one.retention if isinstance(one, Log) else one.history).retire()
        except HoldfastError as error:  # tried again later
            logger.warning("retention failed, will retry: name=%s error=%s", one.name, error, extra=one.fields)
