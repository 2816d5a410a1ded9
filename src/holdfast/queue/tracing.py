"""OpenTelemetry spans for queue operations, with the trace context carried in message headers.

Only if the application has set a tracer provider of OpenTelemetry; other queues are not slowed down. Messages that pass
through the broker are not traced here: AMQP clients trace them.
"""

import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from holdfast.base.clock import Duration
from holdfast.base.errors import HoldfastError
from holdfast.log.record import Headers, Message
from holdfast.queue.messages import Delivery, listed
from holdfast.queue.queue import Queue

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, Tracer, TracerProvider

__all__ = ["TracedCalls", "context_of", "follow"]

PARENT = "traceparent"
STATE = "tracestate"
"""Headers of a message, as defined by W3C's Trace Context."""
LINKS_MAX = 128
"""The most producers that a span is linked to; exporters drop further links anyway."""
_WRAPPED = ("put", "put_many", "put_counted", "lease", "get", "ack")
"""Methods of a queue that put, deliver and settle messages. Deliveries and the others settle by `Queue.settler`."""


class Carrier(Protocol):
    """An object with a message's headers: a delivery, a waiting message, a dead letter."""

    @property
    def headers(self) -> Headers:
        """The headers."""
        ...


def follow(queue: Queue, provider: "TracerProvider | None" = None) -> bool:
    """Enable tracing of a queue, with this or the application's provider; return whether it is enabled.

    A queue checks for the application's provider when it is opened and at each tick: call this to enable it at once.
    """
    if provider is None:
        if queue.is_traced:
            return True
        # An application that traces has imported it. For others it is not loaded, even if it is installed.
        trace = sys.modules.get("opentelemetry.trace")
        ask = getattr(trace, "get_tracer_provider", None)
        if trace is None or ask is None:
            return False
        provider = ask()
        if isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
            return False
        assert provider is not None
    _wrap(queue, TracedCalls(queue, provider.get_tracer("holdfast")))
    return True


def context_of(message: Carrier) -> "Context":
    """Return the context in which a message was put: `tracer.start_as_current_span("work", context=...)`."""
    return _context_in(message.headers)


class TracedCalls:
    """Calls of a queue that create spans. `follow` wraps the queue's own, so that other queues need no checks.

    A put is a span of kind producer whose context is added to the messages, unless they have one. Receiving and
    settling are spans that are linked to those of the producers.
    """

    def __init__(self, queue: Queue, tracer: "Tracer") -> None:
        self._queue = queue
        self._tracer = tracer

    def put(
        self,
        payload: bytes,
        key: bytes | None = None,
        headers: Headers | None = None,
        delay: Duration | None = None,
        priority: int = 0,
        ttl: Duration | None = None,
        dedup: str | bytes | None = None,
    ) -> int:
        """As `Queue.put`."""
        if self._queue.carries_later:
            return self._queue.intake.put(payload, key, headers, delay, priority, ttl, dedup)
        return self.put_many([Message(payload, key, headers, delay, priority, ttl, dedup)])[0]

    def put_many(self, messages: Iterable[bytes | Message]) -> Sequence[int]:
        """As `Queue.put_many`."""
        return self.put_counted(messages)[0]

    def put_counted(self, messages: Iterable[bytes | Message]) -> tuple[Sequence[int], int]:
        """As `Queue.put_counted`."""
        from opentelemetry.trace import SpanKind  # noqa: PLC0415
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        messages = list(messages)
        if self._queue.carries_later or not messages:
            return self._queue.intake.put_counted(messages)
        traced = [one for one in messages if isinstance(one, Message) and one.headers and PARENT in one.headers]
        with self._span(
            "put", "send", SpanKind.PRODUCER, len(messages), _links(one.headers or {} for one in traced)
        ) as span:
            context: dict[str, str] = {}
            TraceContextTextMapPropagator().inject(context)
            ids, known = self._queue.intake.put_counted([_carrying(one, context) for one in messages])
            if len(ids) == 1 and ids[0] >= 0:  # in a transaction it has none yet
                span.set_attribute("messaging.message.id", str(ids[0]))
            return ids, known

    def lease(
        self,
        count: int = 1,
        *,
        lease: Duration | None = None,
        wait: Duration | None = 0,
        most_bytes: int | None = None,
    ) -> list[Delivery]:
        """As `Queue.lease`; without messages there is no span."""
        from opentelemetry.trace import SpanKind  # noqa: PLC0415

        begin = time.time_ns()
        deliveries = self._queue.dispatcher.lease(count, lease=lease, wait=wait, most_bytes=most_bytes)
        if deliveries and not self._queue.carries_later:
            links = _links(delivery.headers for delivery in deliveries)
            attributes = self._attributes("receive", "receive", len(deliveries))
            span = self._tracer.start_span(
                f"receive {self._queue.name}",
                kind=SpanKind.CONSUMER,
                attributes=attributes,
                links=links,
                start_time=begin,
            )
            if len(deliveries) == 1:
                span.set_attribute("messaging.message.id", str(deliveries[0].id))
            span.end()
        return deliveries

    def get(self, wait: Duration | None = 0, lease: Duration | None = None) -> Delivery | None:
        """As `Queue.get`."""
        deliveries = self.lease(1, lease=lease, wait=wait)
        return deliveries[0] if deliveries else None

    def ack(self, deliveries: Iterable[Delivery]) -> None:
        """As `Queue.ack`."""
        deliveries = listed(deliveries)
        with self._settling("ack", deliveries):
            self._queue.settlement.ack(deliveries)

    def ack_one(self, delivery: Delivery) -> bool:
        """As `Settlement.ack_one`."""
        with self._settling("ack", [delivery]):
            return self._queue.settlement.ack_one(delivery)

    def try_nack(self, deliveries: list[Delivery], reason: str, delay: Duration | None) -> list[int]:
        """As `Settlement.try_nack`."""
        with self._settling("nack", deliveries) as span:
            span.set_attribute("holdfast.reason", str(reason))
            return self._queue.settlement.try_nack(deliveries, reason, delay)

    def try_release(self, deliveries: list[Delivery]) -> list[int]:
        """As `Settlement.try_release`."""
        with self._settling("release", deliveries):
            return self._queue.settlement.try_release(deliveries)

    def try_extend(self, deliveries: list[Delivery], duration: Duration | None) -> list[int]:
        """As `Settlement.try_extend`, without a span: nothing is settled."""
        return self._queue.settlement.try_extend(deliveries, duration)

    def _settling(self, operation: str, deliveries: list[Delivery]) -> "AbstractContextManager[Span]":
        from opentelemetry.trace import SpanKind  # noqa: PLC0415

        links = _links(delivery.headers for delivery in deliveries)
        one = str(deliveries[0].id) if len(deliveries) == 1 else None
        return self._span(operation, "settle", SpanKind.CLIENT, len(deliveries), links, one)

    def _span(
        self, operation: str, type: str, kind: "SpanKind", count: int, links: "list[Link]", message: str | None = None
    ) -> "AbstractContextManager[Span]":
        attributes = self._attributes(operation, type, count)
        if message is not None:
            attributes["messaging.message.id"] = message
        name = f"{'put' if type == 'send' else type} {self._queue.name}"
        return self._tracer.start_as_current_span(name, kind=kind, attributes=attributes, links=links)

    def _attributes(self, operation: str, type: str, count: int) -> dict[str, str | int]:
        found: dict[str, str | int] = {
            "messaging.system": "holdfast",
            "messaging.destination.name": self._queue.name,
            "messaging.operation.name": operation,
            "messaging.operation.type": type,
        }
        if count != 1:
            found["messaging.batch.message_count"] = count
        return found


def _wrap(queue: Queue, calls: TracedCalls) -> None:
    """Let the calls of users go through these, which call the parts of the queue."""
    vars(queue).update({name: getattr(calls, name) for name in _WRAPPED})
    queue.settler = calls
    queue.is_traced = True


def _carrying(message: bytes | Message, context: dict[str, str]) -> bytes | Message:
    """Return a message with a context in its headers, unless it has one."""
    if not isinstance(message, Message):
        return Message(message, headers=context)
    headers = message.headers or {}
    return message if PARENT in headers else replace(message, headers={**headers, **context})


def _links(headers: Iterable[Headers]) -> "list[Link]":
    """Return links to the producers of messages with these headers, each once."""
    from opentelemetry.trace import Link, get_current_span  # noqa: PLC0415

    found: dict[tuple[str, str], Link] = {}
    for one in headers:
        if PARENT not in one:
            continue
        known = (_text(one[PARENT]), _text(one.get(STATE, "")))
        if known not in found and len(found) < LINKS_MAX:
            context = get_current_span(_context_in(one)).get_span_context()
            if context.is_valid:
                found[known] = Link(context)
    return list(found.values())


def _context_in(headers: Headers) -> "Context":
    try:
        from opentelemetry.context import Context  # noqa: PLC0415
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415
    except ImportError as error:
        raise HoldfastError("opentelemetry-api is not installed: install it to continue a trace") from error
    found = {name: _text(headers[name]) for name in (PARENT, STATE) if name in headers}
    return TraceContextTextMapPropagator().extract(found, Context())


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "replace")
