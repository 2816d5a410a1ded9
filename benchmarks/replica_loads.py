"""What does shipping cost those who do not wait for it, and how far behind is the bucket?"""

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from rich.status import Status

import holdfast
from benchmarks.harness import Line, Workshop
from benchmarks.replica_bucket import SIZE, KindsBucket
from holdfast import Flush, Store
from holdfast.replica import open_bucket

__all__ = ["measure_loads"]

_THREADS = 4
_LAG_EVERY_S = 0.1
_SHARE = 0.6
"""The share of what the bucket takes for the load at which the lag is judged."""


@dataclass(frozen=True, slots=True)
class Load:
    """How messages are published."""

    id: str
    name: str
    flush: Flush
    each: int
    """Messages of one call."""
    most: float | None = None
    """The most bytes a second; None for no limit."""


_SYNC = Load("sync", "Flush.sync(), one by one", Flush.sync(), 1)
_LIMITED = Load("limited", "Flush.async_(), 30 MB a second", Flush.async_(), 10, 30e6)
_FULL = Load("full", "Flush.async_(), 100 at once, without limit", Flush.async_(), 100)


@dataclass(slots=True)
class Published:
    """What was measured while messages were published."""

    rate: float
    """Messages a second."""
    lags: list[float] = field(default_factory=list)
    sent: float = 0.0
    """Bytes a second that were put into the bucket."""
    puts: dict[str, float] = field(default_factory=dict)
    """PUT requests a second, by kind."""


def measure_loads(
    workshop: Workshop, rounds: int, seconds: float, status: Status, server: Callable[[], AbstractContextManager[None]]
) -> tuple[list[Line], list[dict[str, Any]]]:
    """Publish with and without a replica in turns."""
    lines: list[Line] = []
    peers: list[dict[str, Any]] = []
    took = 0.0
    for load in (_SYNC, _LIMITED, _FULL):
        ratio = Line(f"local_{load.id}", f"{load.name}: with a replica against without", "at least", 0.9)
        beside = Line(f"local_{load.id}_floor", "  without one, while another process puts as many bytes", "at least")
        shipped: list[Published] = []
        for number in range(rounds):
            status.update(f"{load.name}, round {number + 1} of {rounds}")
            with server():
                without = _published(workshop, load, None, seconds)
                shipped.append(_published(workshop, load, f"s3://tests/{load.id}-{number}", seconds))
                ratio.add({"floor": 1 / without.rate, "subject": 1 / shipped[-1].rate})
                if load is _FULL:
                    with _uploading(f"s3://tests/beside-{number}", shipped[-1].sent):
                        other = _published(workshop, load, None, seconds)
                    beside.add({"floor": 1 / without.rate, "subject": 1 / other.rate})
        lines += [ratio, *([beside] if beside.rounds else []), *_lines_of(load, shipped, judged=load is not _FULL)]
        rates = [one.rate for one in shipped]
        peers.append({"name": load.name, "message_s": 1 / statistics.median(rates), "note": "confirm=local"})
        took = statistics.median(one.sent for one in shipped)
    carried = replace(_FULL, id="carried", name=f"the same, {_SHARE:.0%} of what the bucket took", most=took * _SHARE)
    shipped = []
    for number in range(rounds):
        status.update(f"{carried.name}, round {number + 1} of {rounds}")
        with server():
            shipped.append(_published(workshop, carried, f"s3://tests/{carried.id}-{number}", seconds))
    return [*lines, *_lines_of(carried, shipped, judged=True)], peers


def _lines_of(load: Load, shipped: list[Published], *, judged: bool) -> list[Line]:
    """Return how far the bucket was behind, and how many requests that took."""

    def line(id: str, title: str, unit: str, values: list[float], target: float | None = None) -> Line:
        rounds = [{"value": value} for value in values]
        return Line(f"{id}_{load.id}", title, "at most", target, unit, rounds, values)

    lags = [sorted(one.lags) for one in shipped]
    parts = [sum(count for kind, count in one.puts.items() if kind != "claim") for one in shipped]
    return [
        line("lag_p50", f"{load.name}: lag, p50", "s", [one[len(one) // 2] for one in lags]),
        line("lag_p99", "  p99", "s", [one[int(len(one) * 0.99)] for one in lags], 3.0 if judged else None),
        line("sent", "  shipped", "MB/s", [one.sent / 1e6 for one in shipped]),
        line("written", "  written", "MB/s", [one.rate * SIZE / 1e6 for one in shipped]),
        # A queue that is put to and not consumed has one log that moves.
        line("puts", "  PUT requests, without the claim", "a second", parts, 2.0 if load is _SYNC else None),
    ]


def _published(workshop: Workshop, load: Load, url: str | None, seconds: float) -> Published:
    """Publish for so many seconds into a new store."""
    bucket = None if url is None else KindsBucket(open_bucket(url))
    with workshop.borrowed() as folder, holdfast.open(folder, replica=bucket) as store:
        if bucket is not None:
            store.replica.ship()
            bucket.puts.clear()
        before = store.replica.status().sent_bytes if bucket is not None else 0
        found = _publish(store, load, seconds)
        if bucket is not None:
            found.sent = (store.replica.status().sent_bytes - before) / seconds
            found.puts = {kind: count / seconds for kind, count in bucket.puts.items()}
        return found


def _publish(store: Store, load: Load, seconds: float) -> Published:
    """Publish from four threads; look at the lag ten times a second."""
    queue, bodies = store.queue("work", flush=load.flush), [os.urandom(SIZE) for _ in range(load.each)]
    counts = [0] * _THREADS
    began = time.perf_counter()

    def work(number: int) -> None:
        while (passed := time.perf_counter() - began) < seconds:
            if load.each == 1:
                queue.put(bodies[0])
            else:
                queue.put_many(bodies)
            counts[number] += load.each
            if load.most is not None and sum(counts) * SIZE > load.most * passed:
                time.sleep(0.005)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    lags = []
    while time.perf_counter() - began < seconds:
        time.sleep(_LAG_EVERY_S)
        if store.is_replicated:
            lags.append(store.replica.status().lag_seconds)
    for thread in threads:
        thread.join()
    return Published(sum(counts) / (time.perf_counter() - began), lags)


@contextmanager
def _uploading(url: str, rate: float) -> Iterator[None]:
    """Let another process put so many bytes a second into the bucket."""
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.replica_uploader", url, str(rate)])
    try:
        yield
    finally:
        process.kill()
        process.wait()
