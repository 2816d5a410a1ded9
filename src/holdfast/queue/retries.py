"""Retry policy of a queue: redelivery of returned messages at once or after a backoff, or dead-lettering."""

import logging

from holdfast.queue.context import QueueContext
from holdfast.queue.events import Dropped, Event, LeasedSpan, Requeued, Transferring

__all__ = ["EVENTS_MAX", "RetryPolicy"]

logger = logging.getLogger("holdfast.queue")

EVENTS_MAX = 1000
"""The most events in one record of the journal."""


class RetryPolicy:
    """The settings of a queue for failed deliveries. Immutable."""

    def __init__(self, queue: QueueContext) -> None:
        self._queue = queue

    def events(
        self, now: int, cause: str, reason: str, lease_id: int, spans: list[LeasedSpan], delay_ns: int | None
    ) -> list[Event]:
        """Return the events for returned messages of a lease; `delay_ns` None means the backoff."""
        settings = self._queue.settings
        again: dict[int, list[LeasedSpan]] = {}
        dead: list[LeasedSpan] = []
        for span in spans:
            if cause != "released" and settings.max_attempts is not None and span.attempt >= settings.max_attempts:
                dead.append(span)
                continue
            delay = settings.backoff.delay_ns(span.attempt) if delay_ns is None else delay_ns
            again.setdefault(now + delay, []).append(span)
        events: list[Event] = [Requeued(now, cause, reason, lease_id, due, part) for due, part in again.items()]
        if dead and settings.dead_letter is not None:
            events.append(Transferring(now, "attempts", reason, settings.dead_letter, lease_id, dead))
        elif dead:
            logger.warning(
                "messages dropped after too many attempts, no dead letter queue: queue=%s",
                self._queue.name,
                extra=self._queue.fields,
            )
            events.append(Dropped(now, "attempts", [(span.start, span.stop) for span in dead]))
        return events
