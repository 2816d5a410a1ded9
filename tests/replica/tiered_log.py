"""A process that writes a log larger than its disk may be, and reads it in every way; it prints what that took.

`python -m tests.replica.tiered_log FOLDER BUCKET_URL BYTES LOCAL_BYTES CACHE_BYTES`
"""

import json
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Flush, Log, Retention, Store

RECORD = 2000
_BATCH = 200
_PAUSE_S = 0.02
_LOOKUPS = 30
_READERS = 6


class Sampler:
    """Samples the disk and the memory of this process, on a thread of its own."""

    def __init__(self, folder: Path) -> None:
        self.disk = self.memory = 0
        self._folder = folder
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(_PAUSE_S):
            self.disk = max(self.disk, disk_of(self._folder))
            self.memory = max(self.memory, memory())


def disk_of(folder: Path) -> int:
    """Return how many bytes of the disk the files of a folder take; holes take none."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:  # deleted meanwhile
            continue
    return total


def memory() -> int:
    """Return the anonymous memory of this process: mapped files are the page cache's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


def payload(number: int) -> bytes:
    return (b"%012d" % number) + blake2b(b"%d" % number, digest_size=16).hexdigest().encode() * 62 + bytes(4)


class Run:
    """The phases, each with its time."""

    def __init__(self, folder: Path, url: str, size: int, local: int, cache: int) -> None:
        self.folder, self.url, self.cache = folder, url, cache
        self.count = size // RECORD
        self.local = local
        self.policy = Retention(max_bytes=local)
        self.figures: dict[str, Any] = {"records": self.count, "seconds": {}, "memory": {}}
        self.sampler: Sampler | None = None

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        if self.sampler is not None:
            self.sampler.memory = 0
        yield
        self.figures["seconds"][name] = round(time.monotonic() - began, 2)
        if self.sampler is not None:
            self.figures["memory"][name] = self.sampler.memory

    def run(self) -> dict[str, Any]:
        with self._open() as store:
            self.figures["memory_before"] = memory()
            sampler = self.sampler = Sampler(self.folder)
            try:
                with self.timed("write"):
                    self._write(store)
                self._read(store)
            finally:
                sampler.stop()
            self.figures |= {"disk_max": sampler.disk, "memory_max": max(self.figures["memory"].values())}
        return self.figures

    def _open(self) -> Store:
        return holdfast.open(self.folder, replica=self.url, remote_cache=self.cache)

    def _write(self, store: Store) -> None:
        log = store.log("events", flush=Flush.batch(), local_retention=self.policy)
        queue = store.queue("work", log="events", history=7 * 86_400)
        shipped = 0
        for first in range(0, self.count, _BATCH):
            log.append_many([payload(number) for number in range(first, min(first + _BATCH, self.count))])
            if (first + _BATCH) * RECORD - shipped >= self.local // 4:  # no faster than the bucket takes it
                shipped = (first + _BATCH) * RECORD
                queue.seek(log.end)
                queue.checkpoint()
                store.replica.ship()
        queue.seek(log.end)
        queue.checkpoint()
        store.replica.ship()
        stats = log.stats()
        self.figures |= {"bytes": stats.bytes, "remote_bytes": stats.remote_bytes, "segments": stats.segments}

    def _read(self, store: Store) -> None:
        log = store.log("events")
        with self.timed("read"):
            self._read_through(log)
        with self.timed("lookups"):
            self._look_up(log)
        with self.timed("tailers"):
            self._read_together(log)
        with self.timed("replay"):
            self._replay(store)
        with self.timed("verify"):
            found = log.verify()
            assert found.ok, found.damage[:3]
            assert found.records == self.count
        assert not log.damage, log.damage[:3]
        values = {one.name.removeprefix("holdfast_replica_"): one.value for one in store.metrics.collect()}
        names = ("cache_bytes", "cache_hits_total", "cache_misses_total", "cache_fetched_bytes_total")
        self.figures |= {name: values[name] for name in names}

    def _read_through(self, log: Log) -> None:
        number = 0
        for record in log.read():
            assert record.payload == payload(number)
            number += 1
        assert number == self.count

    def _look_up(self, log: Log) -> None:
        chosen = random.Random(7)
        for _ in range(_LOOKUPS):
            number = chosen.randrange(self.count)
            when = log.time_of(number)
            assert when is not None
            found = log.sequence_at(when)
            assert found <= number
            assert log.time_of(found) == when
            assert next(log.read(number, number + 1)).payload == payload(number)

    def _read_together(self, log: Log) -> None:
        errors: list[BaseException] = []

        def read(start: int) -> None:
            try:
                tailer = log.tailer()
                tailer.seek(start)
                for number in range(start, min(start + 2000, self.count)):
                    assert tailer.read().payload == payload(number)  # type: ignore[union-attr]
            except BaseException as error:
                errors.append(error)

        threads = [
            threading.Thread(target=read, args=(self.count * each // _READERS // 2,)) for each in range(_READERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors, errors[0]

    def _replay(self, store: Store) -> None:
        queue = store.queue("work")
        queue.seek(0)
        number = 0
        while messages := queue.lease(_BATCH):
            for message in messages:
                assert message.payload == payload(number)
                number += 1
            queue.ack(messages)
        assert number == self.count


if __name__ == "__main__":
    print(json.dumps(Run(Path(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:6])).run()))
