"""Replication to SeaweedFS: publishing with and without a replica in turns, waiting for it, lag, requests, restore.

`python -m benchmarks.replica` prints one line for each load; it needs the packages of the tests.
"""

import argparse
import os
import shutil
import statistics
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tests.replica.seaweed import running

import holdfast
from holdfast import Flush, Store
from holdfast.replica import open_bucket, restore

__all__ = ["main"]

_SIZE = 1000
_THREADS = 4
_WAITERS = 256


@dataclass(frozen=True, slots=True)
class Load:
    """How messages are published."""

    name: str
    flush: Flush
    each: int
    """Messages of one call."""
    most: float | None
    """The most bytes a second; None for no limit."""


LOADS = (
    Load("sync, one by one", Flush.sync(), 1, None),
    Load("async, 30 MB a second", Flush.async_(), 10, 30e6),
    Load("async, 100 at once, no limit", Flush.async_(), 100, None),
)


@dataclass(slots=True)
class Round:
    """What was measured while messages were published."""

    rate: float
    lags: list[float] = field(default_factory=list)
    puts: int = 0
    sent: int = 0


def publish(store: Store, load: Load, seconds: float) -> Round:
    """Publish for so many seconds; look at the lag ten times a second."""
    queue, body, counts = store.queue("work", flush=load.flush), os.urandom(_SIZE), [0] * _THREADS
    began = time.perf_counter()

    def work(number: int) -> None:
        while (passed := time.perf_counter() - began) < seconds:
            queue.put_many([body] * load.each)
            counts[number] += load.each
            if load.most is not None and sum(counts) * _SIZE > load.most * passed:
                time.sleep(0.005)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(_THREADS)]
    for thread in threads:
        thread.start()
    lags = []
    while time.perf_counter() - began < seconds:
        time.sleep(0.1)
        if store.is_replicated:
            lags.append(store.replica.status().lag_seconds)
    for thread in threads:
        thread.join()
    found = Round(sum(counts) / (time.perf_counter() - began), sorted(lags))
    if store.is_replicated:
        status = store.replica.status()
        found.puts, found.sent = status.puts, status.sent_bytes
    return found


def compare(load: Load, folder: Path, rounds: int, seconds: float) -> str:
    """Publish with and without a replica in turns; return the URL of the last replica."""
    without, shipped, url = [], [], ""
    for number in range(rounds):
        for replica in (None, f"s3://tests/{folder.name}-{number}"):
            with holdfast.open(folder / "data", replica=replica) as store:
                found = publish(store, load, seconds)
            shutil.rmtree(folder / "data")
            if replica is None:
                without.append(found.rate)
            else:
                shipped.append(found)
                url = replica
    ratio = statistics.median(one.rate / rate for one, rate in zip(shipped, without, strict=True))
    lags = sorted(lag for one in shipped for lag in one.lags)
    print(
        f"{load.name}: {statistics.median(without):,.0f} messages a second without, ratio with a replica {ratio:.2f}; "
        f"lag p50 {lags[len(lags) // 2]:.1f} s, p99 {lags[int(len(lags) * 0.99)]:.1f} s; "
        f"{statistics.median(one.puts for one in shipped) / seconds:.1f} puts a second",
        flush=True,
    )
    return url


def restore_and_copy(url: str, folder: Path) -> None:
    """Restore a replica, and copy its objects with obstore alone."""
    began = time.perf_counter()
    size = restore(url, folder / "restored", verify=False).bytes
    restored = time.perf_counter() - began
    bucket, began = open_bucket(url), time.perf_counter()

    def fetch(key: str) -> None:
        (folder / key.replace("/", "_")).write_bytes(bucket.get(key).content)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(fetch, [one.key for one in bucket.list("")]))
    copied = time.perf_counter() - began
    print(f"restore of {size / 1e6:,.0f} MB: {restored:.2f} s; copy by obstore alone: {copied:.2f} s", flush=True)


def wait_alone(store: Store, url: str, seconds: float) -> tuple[list[float], list[float]]:
    """Return how long one caller waits for each put, and how long a bare put to the same bucket takes, in turns."""
    queue, bucket, body = store.queue("work"), open_bucket(url), os.urandom(_SIZE)
    waited, bare = list[float](), list[float]()
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        began = time.perf_counter()
        queue.put(body)
        between = time.perf_counter()
        bucket.put_if_absent(f"bare-{len(bare)}", body)
        waited.append(between - began)
        bare.append(time.perf_counter() - between)
    return sorted(waited), sorted(bare)


def wait_together(store: Store, seconds: float) -> tuple[float, list[float]]:
    """Put from 256 threads, one by one; return the messages a second, and how long each put took."""
    queue, body, waited = store.queue("work"), os.urandom(_SIZE), list[float]()
    until = time.perf_counter() + seconds

    def work() -> None:
        while (began := time.perf_counter()) < until:
            queue.put(body)
            waited.append(time.perf_counter() - began)

    threads = [threading.Thread(target=work) for _ in range(_WAITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(waited) / seconds, sorted(waited)


def confirm(folder: Path, rounds: int, seconds: float) -> None:
    """Put with `confirm="replica"`, alone and by 256 threads, in turns with a store without a replica."""
    alone, ratios, rates, together, puts, each = [], [], [], [], [], []
    for number in range(rounds):
        url = f"s3://tests/{folder.name}-{number}"
        with holdfast.open(folder / "plain") as store:
            without, _ = wait_together(store, seconds)
        with holdfast.open(folder / "data", replica=url, confirm="replica") as store:
            store.queue("work").put(b"first")
            waited, bare = wait_alone(store, f"{url}-bare", seconds)
            before, moment = store.replica.status().puts, int((store.replica.status().moment or "-0").split("-")[1])
            rate, times = wait_together(store, seconds)
            puts.append((store.replica.status().puts - before) / seconds)
            each.append((int((store.replica.status().moment or "-0").split("-")[1]) - moment) / seconds)
        alone.append((median(waited), median(bare)))
        ratios.append(rate / without)
        rates.append(without)
        together.append((median(times), times[int(len(times) * 0.99)]))
        for name in ("plain", "data"):
            shutil.rmtree(folder / name)
    waits, bares = median([wait for wait, _ in alone]), median([put for _, put in alone])
    print(
        f"confirm by the replica, alone: p50 {waits * 1000:.1f} ms, of a bare put {bares * 1000:.1f} ms, ratio "
        f"{median([wait / put for wait, put in alone]):.1f}",
        flush=True,
    )
    p50, p99 = median([one for one, _ in together]), median([one for _, one in together])
    print(
        f"confirm by the replica, {_WAITERS} at once: {median(rates):,.0f} messages a second without, ratio "
        f"{median(ratios):.2f}; wait p50 {p50 * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms; {median(puts):.0f} puts and "
        f"{median(each):.0f} moments a second",
        flush=True,
    )


def median(values: list[float]) -> float:
    """Return the value in the middle."""
    return statistics.median(values)


def main() -> None:
    """Measure each load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["confirm"], help="measure only waiting for the replica")
    chosen = parser.parse_args()
    base = Path(tempfile.mkdtemp(dir=Path.cwd()))
    try:
        (base / "seaweed").mkdir()
        with running(base / "seaweed") as server:
            os.environ.update(server.environment())
            folder = base / "confirm"
            folder.mkdir()
            confirm(folder, chosen.rounds, chosen.seconds)
            if chosen.only == "confirm":
                return
            for number, load in enumerate(LOADS):
                folder = base / f"load-{number}"
                folder.mkdir()
                url = compare(load, folder, chosen.rounds, chosen.seconds)
                restore_and_copy(url, folder)
                shutil.rmtree(folder)
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
