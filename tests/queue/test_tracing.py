"""Can a message be followed from who put it to who worked on it? Spans, and the context that messages carry."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from holdfast import Flush, LeaseLost, Message, Queue, Store
from holdfast.queue.tracing import context_of, follow
from holdfast.testing import SimClock
from tests.queue.calls import got


class Traces:
    """What was told to an application that traces."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def spans(self) -> list[ReadableSpan]:
        """Those that have ended since the last look."""
        found = list(self._exporter.get_finished_spans())
        self._exporter.clear()
        return found

    def one(self) -> ReadableSpan:
        (found,) = self.spans()
        return found


@pytest.fixture
def traces() -> Traces:
    return Traces()


@pytest.fixture
def queue(store: Store, traces: Traces, flush: Flush) -> Queue:
    queue = store.queue("orders", flush=flush, max_attempts=None)
    assert follow(queue, traces.provider)
    return queue


def facts(span: ReadableSpan) -> dict[str, object]:
    return {name.removeprefix("messaging."): value for name, value in (span.attributes or {}).items()}


def trace_of(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def links_of(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


def test_a_message_is_followed_from_put_to_ack(queue: Queue, traces: Traces) -> None:
    id = queue.put(b"a", headers={"mine": "1"})
    put = traces.one()
    assert (put.name, put.kind) == ("put orders", SpanKind.PRODUCER)
    assert facts(put) == {
        "system": "holdfast",
        "destination.name": "orders",
        "operation.name": "put",
        "operation.type": "send",
        "message.id": str(id),
    }
    message = got(queue)
    assert (message.payload, message.headers["mine"]) == (b"a", "1")
    received = traces.one()
    assert (received.name, received.kind) == ("receive orders", SpanKind.CONSUMER)
    assert facts(received)["operation.type"] == "receive"
    assert facts(received)["message.id"] == str(id)
    assert links_of(received) == [trace_of(put)]
    assert message.ack()
    settled = traces.one()
    assert (settled.name, facts(settled)["operation.name"]) == ("settle orders", "ack")
    assert facts(settled)["operation.type"] == "settle"
    assert facts(settled)["message.id"] == str(id)
    assert links_of(settled) == [trace_of(put)]


def test_a_consumer_can_go_on_with_the_trace_of_the_producer(queue: Queue, traces: Traces) -> None:
    tracer = traces.provider.get_tracer("application")
    with tracer.start_as_current_span("order") as order:
        queue.put(b"a")
    put, _ = traces.spans()
    assert put.parent is not None
    assert put.parent.span_id == order.get_span_context().span_id
    message = got(queue)
    with tracer.start_as_current_span("work", context=context_of(message)):
        message.ack()
    _, settled, work = traces.spans()
    assert work.parent is not None
    assert (work.parent.trace_id, work.parent.span_id) == trace_of(put)
    assert trace_of(settled)[0] == trace_of(put)[0]
    assert settled.parent is not None
    assert settled.parent.span_id == trace_of(work)[1]


def test_a_message_without_a_context_does_not_get_that_of_its_consumer(store: Store, traces: Traces) -> None:
    queue = store.queue("orders")
    queue.put(b"a")
    with traces.provider.get_tracer("application").start_as_current_span("elsewhere"):
        context = context_of(got(queue))
    assert not trace.get_current_span(context).get_span_context().is_valid


def test_a_batch_is_one_span_and_is_linked_to_each_producer_once(queue: Queue, traces: Traces) -> None:
    queue.put_many([b"a", Message(b"b", priority=1), b"c"])
    queue.put(b"d")
    many, one = traces.spans()
    assert facts(many)["batch.message_count"] == 3
    assert "message.id" not in facts(many)
    deliveries = queue.lease(10)
    received = traces.one()
    assert facts(received)["batch.message_count"] == 4
    assert sorted(links_of(received)) == sorted([trace_of(many), trace_of(one)])
    queue.ack(deliveries[:2])
    queue.nack(deliveries[2:3], "no")
    queue.release(deliveries[3:])
    names = [facts(span)["operation.name"] for span in traces.spans()]
    assert names == ["ack", "nack", "release"]


def test_a_context_that_a_message_has_is_left_to_it(queue: Queue, traces: Traces) -> None:
    theirs = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    queue.put(b"a", headers={"traceparent": theirs, "tracestate": "vendor=1"})
    message = got(queue)
    assert message.headers == {"traceparent": theirs, "tracestate": "vendor=1"}
    put, received = traces.spans()
    expected = [(0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331)]
    assert links_of(put) == links_of(received) == expected
    context = trace.get_current_span(context_of(message)).get_span_context()
    assert context.trace_state["vendor"] == "1"


@pytest.mark.parametrize("junk", ["", "junk", b"\xff\xfe", "00-0-0-00"])
def test_a_context_that_makes_no_sense_is_no_link(queue: Queue, traces: Traces, junk: str | bytes) -> None:
    queue.put(b"a", headers={"traceparent": junk})
    assert got(queue).ack()
    assert [span.links for span in traces.spans()] == [(), (), ()]


def test_where_nothing_comes_nothing_is_told(queue: Queue, traces: Traces) -> None:
    assert queue.get() is None
    assert queue.lease(5) == []
    assert len(queue.put_many([])) == 0
    assert traces.spans() == []


def test_what_goes_wrong_is_in_the_span(queue: Queue, traces: Traces, clock: SimClock) -> None:
    queue.put(b"a")
    held = queue.lease(1, lease=1)
    clock.advance(2)
    traces.spans()
    with pytest.raises(LeaseLost):
        queue.ack(held)
    assert not traces.one().status.is_ok


def test_what_was_put_before_anyone_traced_is_delivered(store: Store, traces: Traces) -> None:
    queue = store.queue("orders", flush=Flush.async_())
    queue.put(b"old")
    held = got(queue)
    queue.put(b"older")
    follow(queue, traces.provider)
    assert held.ack()
    assert got(queue).ack()
    assert [span.links for span in traces.spans()] == [(), (), ()]


def test_what_goes_through_the_broker_is_left_alone(queue: Queue, traces: Traces) -> None:
    queue.carries_later = True
    queue.put(b"a")
    queue.put_many([b"b"])
    assert [message.headers for message in (got(queue), got(queue))] == [{}, {}]
    assert traces.spans() == []


def test_a_message_that_is_put_in_a_transaction_has_no_id_yet(queue: Queue, store: Store, traces: Traces) -> None:
    with store.transaction():
        queue.put(b"a")
    assert "message.id" not in facts(traces.one())


def test_a_queue_does_not_trace_where_the_application_does_not(store: Store) -> None:
    """Though the package is installed and loaded: this very test has."""
    queue = store.queue("orders")
    assert not follow(queue)
    assert type(queue) is Queue
    queue.put(b"a")
    assert got(queue).headers == {}


def run(script: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_queues_trace_once_the_application_has_set_a_provider(tmp_path: Path) -> None:
    script = """
        import sys, holdfast
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        with holdfast.open(sys.argv[1], background=False) as store:
            early = store.queue("early")
            print(early.is_traced)
            trace.set_tracer_provider(TracerProvider())
            store.tick()
            print(early.is_traced, store.queue("late").is_traced)
    """
    assert run(script, tmp_path).split() == ["False", "True", "True"]


def test_holdfast_loads_nothing_to_trace_with(tmp_path: Path) -> None:
    script = """
        import sys, holdfast
        with holdfast.open(sys.argv[1]) as store:
            store.queue("orders").put(b"a")
            store.queue("orders").get().ack()
        print([name for name in sys.modules if name.startswith("opentelemetry")])
    """
    assert run(script, tmp_path) == "[]"
