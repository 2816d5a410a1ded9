"""How long does a put wait for the bucket, alone and with 256 threads that wait? Beside puts without a replica."""

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

from rich.status import Status

import holdfast
from benchmarks.harness import Line, Workshop
from benchmarks.replica_bucket import SIZE
from holdfast import Store
from holdfast.replica import open_bucket

__all__ = ["measure_waiting"]

_WAITERS = 256


@dataclass(frozen=True, slots=True)
class Waits:
    """What was measured while several threads did the same."""

    rate: float
    """How often a second."""
    times: list[float]
    """For how many seconds each waited, sorted."""

    @property
    def p50(self) -> float:
        """The median."""
        return self.times[len(self.times) // 2]

    @property
    def p99(self) -> float:
        """99 % were faster."""
        return self.times[int(len(self.times) * 0.99)]


@dataclass(frozen=True, slots=True)
class Turn:
    """One round: everything measured one after the other, each in a new store."""

    plain: Waits
    """256 threads without a replica."""
    gate: Waits
    """256 threads whose waits another thread answers after a sync: no bucket, no cut."""
    shipped: Waits
    """256 threads with `confirm="replica"`."""
    alone: Waits
    """One thread with `confirm="replica"`."""
    bare: Waits
    """Puts to the bucket in turns with those of `alone`."""
    beside_shipped: Waits
    """Puts to the bucket of one thread, while 256 others wait for the replica."""
    beside_plain: Waits
    """The same, while 256 others put without a replica."""
    moments: float
    """Moments a second of `shipped`."""
    puts: float
    """PUT requests a second of `shipped`."""


def measure_waiting(
    workshop: Workshop, rounds: int, seconds: float, status: Status
) -> tuple[list[Line], list[dict[str, Any]]]:
    """Put one after the other from each of 256 threads, with and without a replica in turns."""
    turns = []
    for number in range(rounds):
        status.update(f"waiting for the bucket, round {number + 1} of {rounds}")
        turns.append(_turn(workshop, f"s3://tests/confirm-{number}", seconds))
    return list(_lines(turns)), list(_peers(turns))


def _turn(workshop: Workshop, url: str, seconds: float) -> Turn:
    with workshop.borrowed() as folder, holdfast.open(folder) as store:
        plain = _together(_putter(store), seconds)
        beside_plain = _beside(_putter(store), f"{url}-beside-plain", seconds / 2)
    with workshop.borrowed() as folder, holdfast.open(folder) as store, _answered_at_once(store):
        gate = _together(_putter(store), seconds)
    with workshop.borrowed() as folder, holdfast.open(folder, replica=url, confirm="replica") as store:
        put = _putter(store)
        put()
        alone, bare = _alone(put, f"{url}-bare", seconds / 2)
        before = store.replica.status()
        shipped = _together(put, seconds)
        after = store.replica.status()
        beside_shipped = _beside(put, f"{url}-beside", seconds / 2)
    return Turn(
        plain,
        gate,
        shipped,
        alone,
        bare,
        beside_shipped,
        beside_plain,
        (_number(after.moment) - _number(before.moment)) / seconds,
        (after.puts - before.puts) / seconds,
    )


def _putter(store: Store) -> Callable[[], object]:
    queue, body = store.queue("work"), os.urandom(SIZE)
    return lambda: queue.put(body)


def _together(work: Callable[[], object], seconds: float) -> Waits:
    """Run something again and again from 256 threads."""
    waited = list[float]()
    until = time.perf_counter() + seconds

    def repeat() -> None:
        while (began := time.perf_counter()) < until:
            work()
            waited.append(time.perf_counter() - began)

    threads = [threading.Thread(target=repeat) for _ in range(_WAITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Waits(len(waited) / seconds, sorted(waited))


def _alone(put: Callable[[], object], url: str, seconds: float) -> tuple[Waits, Waits]:
    """Wait for a put alone, and for a bare put to the same bucket, in turns."""
    bucket, body = open_bucket(url), os.urandom(SIZE)
    waited, bare = list[float](), list[float]()
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        put()
        between = time.perf_counter()
        bucket.put_if_absent(f"bare-{len(bare)}", body)
        waited.append(between - began)
        bare.append(time.perf_counter() - between)
    return Waits(len(waited) / seconds, sorted(waited)), Waits(len(bare) / seconds, sorted(bare))


def _beside(put: Callable[[], object], url: str, seconds: float) -> Waits:
    """Put to a bucket from one thread while 256 others put to a queue."""
    bucket, body, bare = open_bucket(url), os.urandom(SIZE), list[float]()
    until = time.perf_counter() + seconds

    def repeat() -> None:
        while (began := time.perf_counter()) < until:
            bucket.put_if_absent(f"bare-{len(bare)}", body)
            bare.append(time.perf_counter() - began)

    thread = threading.Thread(target=repeat)
    thread.start()
    _together(put, seconds)
    thread.join()
    return Waits(len(bare) / seconds, sorted(bare))


@contextmanager
def _answered_at_once(store: Store) -> Iterator[None]:
    """Let calls wait for a thread that syncs the log and answers them, and does nothing else."""
    bell: SimpleQueue[bool] = SimpleQueue()
    appender = store.queue("work").log.appender

    def answer() -> None:
        while bell.get():
            while waiting := store.gate.waiting():
                appender.sync()
                store.gate.release(waiting)

    thread = threading.Thread(target=answer)
    thread.start()
    store.gate.begin(check=lambda: None, waits=True, wake=lambda: bell.put(True) if bell.empty() else None)
    try:
        yield
    finally:
        bell.put(False)
        thread.join()
        store.gate.end("the benchmark is over")


def _number(moment: str | None) -> int:
    return 0 if moment is None else int(moment.partition("-")[2])


def _lines(turns: list[Turn]) -> Iterator[Line]:
    rate = Line("confirm_rate", f"{_WAITERS} threads that wait for the bucket, against the disk only", "at least", 0.25)
    gate = Line("confirm_gate", "  the limit: a thread syncs the log and answers them, without a bucket", "at least")
    alone = Line("confirm_alone", "wait of one thread, p50, against a bare put", "at most", 3.0)
    beside = Line("confirm_wait", f"wait of {_WAITERS} threads, p50, against a bare put beside them", "at most", 3.0)
    plain = Line("confirm_wait_plain", "  against a bare put beside as many that wait for the disk only", "at most")
    quiet = Line("confirm_wait_alone", "  against a bare put of one thread", "at most")
    local = Line("confirm_wait_local", "  against a put of as many that wait for the disk only", "at most")
    for one in turns:
        rate.add({"floor": 1 / one.plain.rate, "subject": 1 / one.shipped.rate})
        gate.add({"floor": 1 / one.plain.rate, "subject": 1 / one.gate.rate})
        alone.add({"floor": one.bare.p50, "subject": one.alone.p50})
        for line, floor in (
            (beside, one.beside_shipped),
            (plain, one.beside_plain),
            (quiet, one.bare),
            (local, one.plain),
        ):
            line.add({"floor": floor.p50, "subject": one.shipped.p50})
    yield from (rate, gate, alone, beside, plain, quiet, local)
    for name, title, unit, values in (
        ("confirm_p50", "  p50", "ms", [one.shipped.p50 * 1000 for one in turns]),
        ("confirm_p99", "  p99", "ms", [one.shipped.p99 * 1000 for one in turns]),
        ("confirm_moments", "  moments", "a second", [one.moments for one in turns]),
        ("confirm_puts", "  PUT requests", "a second", [one.puts for one in turns]),
    ):
        yield Line(name, title, "at most", unit=unit, rounds=[{"value": one} for one in values], values=values)


def _peers(turns: list[Turn]) -> Iterator[dict[str, Any]]:
    for name, note, rates in (
        (f"{_WAITERS} threads, without a replica", "each put waits for fdatasync", [one.plain.rate for one in turns]),
        (f"{_WAITERS} threads, a sync and an answer", "no bucket and no cut", [one.gate.rate for one in turns]),
        (f"{_WAITERS} threads, confirm=replica", "each put waits for the bucket", [one.shipped.rate for one in turns]),
    ):
        yield {"name": name, "message_s": 1 / statistics.median(rates), "note": note}
