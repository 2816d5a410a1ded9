"""Do delayed messages come on time when a million of them wait? Never early, and late by how much."""

import random
import time
from collections.abc import Iterable

import holdfast
from benchmarks.harness import Line, Workshop
from holdfast import Flush, Message, Queue

__all__ = ["measure_delays"]

_NS = 1_000_000_000
_BATCH = 100
_FAR_S = 3600.0
_HEAD_START_S = 2.0
_PATIENCE_S = 30.0
_FILLER = b"\0" * 92


def measure_delays(workshop: Workshop, pending: int, due: int, spread_s: float) -> list[Line]:
    """While `pending` messages wait for an hour or more, `due` others come up within `spread_s` seconds.

    A consumer waits for them in lease(). When a message is due stands in its payload, from a clock read before it was
    put: so it is due at that time or a little later, and lateness is never made to look smaller.
    """
    source = random.Random(3)
    with workshop.borrowed() as folder, holdfast.open(folder) as hf:
        queue = hf.queue("bench", flush=Flush.async_())
        _put(queue, (_FAR_S * (1 + source.random()) for _ in range(pending)))
        # What is put is spread by the delay, from a moment when all have been put.
        begin = time.time_ns() + round((_HEAD_START_S + due * 20e-6) * _NS)
        moments = [begin + round(source.random() * spread_s * _NS) for _ in range(due)]
        _put(queue, ((moment - time.time_ns()) / _NS for moment in moments))
        assert time.time_ns() < begin, "putting took longer than was thought: the first were due before the last"
        stats = queue.stats()
        assert stats.delayed == pending + due and stats.ready == 0
        lateness = _consume(queue, due, begin + round((spread_s + _PATIENCE_S) * _NS))
        assert queue.stats().delayed == pending
    lateness.sort()
    early = sum(late < 0 for late in lateness)
    waiting = f"{pending / 1e6:g} M" if pending >= 1e6 else f"{pending / 1e3:g} k"
    measured = {
        "delivered": float(len(lateness)),
        "missing": float(due - len(lateness)),
        "early": float(early),
        "spread_s": spread_s,
        "p50_ms": _quantile(lateness, 0.5),
        "p99_ms": _quantile(lateness, 0.99),
        "p999_ms": _quantile(lateness, 0.999),
        "max_ms": lateness[-1],
    }

    def line(id: str, title: str, target: float | None, unit: str, value: float) -> Line:
        return Line(id, title, "at most", target, unit, rounds=[measured], values=[value])

    return [
        line("delay_p99", f"lateness of a delayed message, {waiting} pending, p99", 50.0, "ms", measured["p99_ms"]),
        line("delay_p50", "  p50", None, "ms", measured["p50_ms"]),
        line("delay_max", "  the latest", None, "ms", measured["max_ms"]),
        line("delay_early", "  early ones", 0.0, "messages", measured["early"]),
        line("delay_missing", "  not delivered", 0.0, "messages", measured["missing"]),
    ]


def _put(queue: Queue, delays: Iterable[float]) -> None:
    batch: list[bytes | Message] = []
    for delay in delays:
        moment = time.time_ns() + round(delay * _NS)
        batch.append(Message(moment.to_bytes(8, "big") + _FILLER, delay=delay))
        if len(batch) == _BATCH:
            queue.put_many(batch)
            batch = []
    if batch:
        queue.put_many(batch)


def _consume(queue: Queue, expected: int, deadline: int) -> list[float]:
    """How late each message was, in milliseconds."""
    lateness: list[float] = []
    while len(lateness) < expected and time.time_ns() < deadline:
        deliveries = queue.lease(_BATCH, wait=1)
        now = time.time_ns()
        lateness += [(now - int.from_bytes(delivery.payload[:8], "big")) / 1e6 for delivery in deliveries]
        queue.ack(deliveries)
    return lateness


def _quantile(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]
