"""Replication to SeaweedFS: publishing with and without a replica in turns, lag, requests, and restore.

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


def main() -> None:
    """Measure each load."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    base = Path(tempfile.mkdtemp(dir=Path.cwd()))
    try:
        (base / "seaweed").mkdir()
        with running(base / "seaweed") as server:
            os.environ.update(server.environment())
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
