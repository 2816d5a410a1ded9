"""Several processes in simulated time, each with a clock of its own, that share a slow bucket. One runs at a time."""

import heapq
import itertools
import threading
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from holdfast.base.bucket import FoundObject, ListedObject
from holdfast.base.errors import ReplicaUnavailable
from holdfast.testing import SimBucket

__all__ = ["SlowBucket", "World", "WorldClock"]

T = TypeVar("T")


class _Over(BaseException):
    """The simulated time is up."""


class World:
    """Runs jobs as threads, of which each runs until it sleeps; the one that wakes first is next."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, threading.Semaphore]] = []
        self._asleep = threading.Semaphore(0)
        self._is_over = False
        self._errors: list[BaseException] = []

    def run(self, jobs: Sequence[Callable[[], None]], seconds: float) -> None:
        """Run the jobs for so many simulated seconds; raise the first error."""
        threads = [threading.Thread(target=self._job, args=(job,), daemon=True) for job in jobs]
        for thread in threads:
            thread.start()
            self._asleep.acquire()
        while self._sleepers:
            when, _, bell = heapq.heappop(self._sleepers)
            self.now = max(self.now, when)
            self._is_over |= self.now >= seconds
            bell.release()
            self._asleep.acquire()
        for thread in threads:
            thread.join()
        if self._errors:
            raise self._errors[0]

    def sleep(self, seconds: float) -> None:
        """Let others run until so much time has passed."""
        bell = threading.Semaphore(0)
        heapq.heappush(self._sleepers, (self.now + seconds, next(self._order), bell))
        self._asleep.release()
        bell.acquire()
        if self._is_over:
            raise _Over

    def _job(self, job: Callable[[], None]) -> None:
        try:
            self.sleep(self.random.random())
            job()
        except _Over:
            pass
        except BaseException as error:
            self._errors.append(error)
        self._asleep.release()


class WorldClock:
    """The clock of one process: it began at another time, and runs a little faster or slower."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rate = world.random.uniform(0.99, 1.01)
        self._offset = world.random.uniform(0, 1e6)
        self._skew = world.random.uniform(-600, 600)

    def time_ns(self) -> int:
        return int((self._world.now + self._skew + 1e9) * 1e9)

    def monotonic(self) -> float:
        return self._world.now * self._rate + self._offset

    def sleep(self, seconds: float) -> None:
        self._world.sleep(seconds / self._rate)

    def wait(self, condition: object, seconds: float) -> None:
        raise NotImplementedError


class SlowBucket:
    """A bucket as one process reaches it: requests take time before and after their effect, and some answers are lost.

    While the process is cut off, no request has an effect.
    """

    def __init__(self, world: World, bucket: SimBucket, effect: Callable[[str, bytes], None]) -> None:
        self.url = bucket.url
        self.cut_off_until = 0.0
        self._world = world
        self._bucket = bucket
        self._effect = effect

    def get(self, key: str) -> FoundObject:
        return self._do(lambda: self._bucket.get(key))

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        return self._do(lambda: self._bucket.get_range(key, start, stop))

    def put(self, key: str, content: bytes) -> None:
        self._do(lambda: self._bucket.put(key, content))

    def put_if_absent(self, key: str, content: bytes) -> str | None:
        return self._do(lambda: self._noted(key, content, self._bucket.put_if_absent(key, content)))

    def compare_and_swap(self, key: str, content: bytes, etag: str) -> str | None:
        return self._do(lambda: self._noted(key, content, self._bucket.compare_and_swap(key, content, etag)))

    def list(self, prefix: str, after: str = "") -> list[ListedObject]:
        return self._do(lambda: self._bucket.list(prefix, after))

    def delete(self, keys: Sequence[str]) -> None:
        self._do(lambda: self._bucket.delete(keys))

    def _noted(self, key: str, content: bytes, etag: str | None) -> str | None:
        if etag is not None:
            self._effect(key, content)
        return etag

    def _do(self, request: Callable[[], T]) -> T:
        random = self._world.random
        self._world.sleep(self._delay())
        if self._world.now < self.cut_off_until:
            self._world.sleep(random.uniform(0, 10))
            raise ReplicaUnavailable("cut off")
        if random.random() < 0.05:
            raise ReplicaUnavailable("failed before the effect")
        answer = request()
        self._world.sleep(self._delay())
        if self._world.now < self.cut_off_until or random.random() < 0.05:
            raise ReplicaUnavailable("the answer was lost")
        return answer

    def _delay(self) -> float:
        random = self._world.random
        return random.uniform(0, 25) if random.random() < 0.05 else random.uniform(0.005, 0.2)
