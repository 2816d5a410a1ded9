"""A store in simulation whose log reaches back further than its disk."""

from typing import Any

import holdfast
from holdfast import Log, Retention, Roll, Store
from holdfast.testing import SimBucket, SimClock, SimFiles

PATH = "data"
EACH = 4
"""How many records a segment has."""
LOCAL = 2
"""How many segments stay on the disk."""


class Tiered:
    """One store on one disk and in one bucket; `open` opens it again."""

    def __init__(self, **bucket: Any) -> None:
        self.clock = SimClock()
        self.files = SimFiles()
        self.bucket = SimBucket(**bucket)
        self.store = self.open()

    def open(self, **options: Any) -> Store:
        given = {"replica": self.bucket} | options
        self.store = holdfast.open(PATH, files=self.files, clock=self.clock, background=False, **given)
        return self.store

    @property
    def log(self) -> Log:
        settings: Any = {"roll": Roll.count(EACH), "local_retention": Retention(max_segments=LOCAL)}
        return self.store.open_log("events") or self.store.log("events", **settings)

    def append(self, count: int) -> None:
        for _ in range(count):
            self.clock.advance(1)
            self.log.append(b"record %d" % self.log.end)
        self.log.sync()

    def ship(self) -> None:
        self.store.replica.ship()

    def on_disk(self, name: str = "events") -> int:
        """Return how many segments are on the disk."""
        start = f"{PATH}/logs/{name}/"
        return sum(path.lstrip("/").startswith(start) and path.endswith(".data") for path in self.files.snapshot())

    def objects(self, name: str = "events") -> list[str]:
        """Return the keys of the log's parts in the bucket, the oldest first."""
        return sorted(key for key in self.bucket.snapshot() if key.startswith(f"logs/{name}/"))


def payloads(count: int, start: int = 0) -> list[bytes]:
    return [b"record %d" % number for number in range(start, count)]
