"""How fast is a restore, against copying the same objects? And what do logs cost that are not written to?"""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.status import Status

import holdfast
from benchmarks.harness import Line, Workshop, quiet, timed
from benchmarks.replica_bucket import SIZE, KindsBucket
from holdfast import Flush
from holdfast.replica import open_bucket, restore

__all__ = ["measure_quiet_logs", "measure_restore"]

_WORKERS = 8


def measure_restore(workshop: Workshop, rounds: int, messages: int, status: Status) -> list[Line]:
    """Restore a replica, and copy its objects with obstore alone, in turns."""
    status.update("writing what is restored")
    url = "s3://tests/restore"
    with workshop.borrowed() as folder, holdfast.open(folder, replica=url) as store:
        queue = store.queue("work", flush=Flush.async_())
        for _ in range(messages // 100):
            queue.put_many([os.urandom(SIZE) for _ in range(100)])
        size = sum(segment.limit for segment in queue.log.reader.segments())
    line = Line("restore", f"restore of {size / 1e6:,.0f} MB, against copying the same objects", "at least", 0.5)

    def restored() -> float:
        with workshop.borrowed() as folder:
            return timed(lambda: restore(url, folder, verify=False))

    def copied() -> float:
        with workshop.borrowed() as folder:
            folder.mkdir()
            return timed(lambda: _copy(url, folder))

    for number in range(rounds):
        status.update(f"restore, round {number + 1} of {rounds}")
        line.add({"floor": quiet(copied), "subject": quiet(restored)})
    return [line]


def _copy(url: str, folder: Path) -> None:
    bucket = open_bucket(url)

    def fetch(key: str) -> None:
        (folder / key.replace("/", "_")).write_bytes(bucket.get(key).content)

    with ThreadPoolExecutor(_WORKERS) as pool:
        list(pool.map(fetch, [one.key for one in bucket.list("")]))


def measure_quiet_logs(workshop: Workshop, logs: int, seconds: float, status: Status) -> list[Line]:
    """Count the requests of a store with many logs, to which nothing is written."""
    status.update(f"{logs:,} quiet logs")
    bucket = KindsBucket(open_bucket("s3://tests/quiet"))
    with workshop.borrowed() as folder, holdfast.open(folder, replica=bucket) as store:
        for number in range(logs):
            store.log(f"log-{number}").append(b"once")
        store.replica.ship()
        time.sleep(1)
        store.replica.ship()
        bucket.puts.clear()
        time.sleep(seconds)
        puts = dict(bucket.puts)
    others = float(sum(count for kind, count in puts.items() if kind != "claim"))
    measured = {"seconds": seconds, "claim": float(puts.get("claim", 0)), "others": others}
    title = f"PUT requests for {logs:,} quiet logs in {seconds:g} s, without the claim"
    return [Line("quiet_puts", title, "at most", 0.0, "requests", rounds=[measured], values=[others])]
