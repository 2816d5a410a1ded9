"""Simulated bucket: fails, loses answers, lags in its listings, is away for a while, and stops the machine."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from random import Random
from typing import Literal, Protocol, TypeVar, get_args

from holdfast.base.bucket import FoundObject, ListedObject, ObjectMissing
from holdfast.base.clock import NS, Duration, duration_ns
from holdfast.base.errors import ReplicaUnavailable
from holdfast.testing.clock import SimClock
from holdfast.testing.files import Crash

__all__ = ["BUCKET_STOPS", "BucketScenario", "BucketStop", "SimBucket", "bucket_points"]

T = TypeVar("T")

BucketStop = Literal["before", "after"]
"""Whether an operation has had its effect when the machine stops, or the answer is lost."""
BUCKET_STOPS: tuple[BucketStop, ...] = get_args(BucketStop)


@dataclass(slots=True)
class _Failure:
    operation: str
    pattern: str
    stop: BucketStop
    skip: int
    times: int


class SimBucket:
    """A bucket in memory, as strict as S3: equal contents have equal etags, and nothing is renamed or appended to.

    Every call counts as one operation (`operations`, `trace`): `get`, `get_range`, `put`, `put_if_absent`,
    `compare_and_swap`, `list` and `delete`. Not thread-safe.
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        clock: SimClock | None = None,
        delay: Duration = 0,
        failures: float = 0.0,
        listing_lag: int = 0,
    ) -> None:
        """Make an empty bucket.

        With `delay`, each operation advances the `clock` by up to so many seconds. Of all operations the share
        `failures` fails, half of them after their effect. Listings do not show the last `listing_lag` changes.
        """
        self.url = "sim://bucket"
        self.operations = 0
        self.trace: list[str] = []
        self._objects: dict[str, bytes] = {}
        self._listed: list[dict[str, int]] = []
        """The sizes of all objects after each of the last changes, the oldest first."""
        self._random = Random(f"bucket-{seed}")
        self._clock = clock
        self._delay_ns = duration_ns(delay, "delay")
        self._chance = failures
        self._lag = listing_lag
        self._failures: list[_Failure] = []
        self._away: Callable[[], bool] = lambda: False
        self._stop_at: tuple[int, BucketStop] | None = None
        self._stopped = False

    # ------------------------------------------------------------ called by the test

    def stop_at(self, operation: int, stop: BucketStop = "before") -> None:
        """Stop the machine at this operation (the first is 1), before or after its effect; `Crash` is raised then."""
        self._stop_at = (operation, stop)

    def fail(
        self, operation: str = "*", *, pattern: str = "*", stop: BucketStop = "before", skip: int = 0, times: int = 1
    ) -> None:
        """Let operations of a kind fail on keys that match a pattern, before or after their effect."""
        self._failures.append(_Failure(operation, pattern, stop, skip, times))

    def outage(self, seconds: Duration | None = None) -> None:
        """Let every operation fail before its effect: for so many seconds of the clock, or until `heal` is called."""
        if seconds is None:
            self._away = lambda: True
            return
        assert self._clock is not None, "an outage of some seconds needs a clock"
        clock, until = self._clock, self._clock.monotonic() + duration_ns(seconds, "seconds") / NS
        self._away = lambda: clock.monotonic() < until

    def heal(self) -> None:
        """End the outage, and forget failures that were asked for."""
        self._away = lambda: False
        self._failures.clear()
        self._chance = 0.0

    def after_stop(self) -> "SimBucket":
        """Return the bucket as another machine finds it: the same objects, and nothing fails."""
        after = SimBucket(self._random.randrange(1 << 30), clock=self._clock)
        after._objects = dict(self._objects)
        return after

    def snapshot(self) -> dict[str, bytes]:
        """Return every object with its content."""
        return dict(sorted(self._objects.items()))

    def change(self, key: str, content: bytes | None) -> None:
        """Change an object behind the back of its owner; None deletes it."""
        if content is None:
            del self._objects[key]
        else:
            self._objects[key] = content

    # ------------------------------------------------------------ called by the code under test

    def get(self, key: str) -> FoundObject:
        """As `Bucket.get`."""
        return self._do("get", key, lambda: FoundObject(self._found(key), self._etag(key)))

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """As `Bucket.get_range`."""
        return self._do("get_range", key, lambda: self._found(key)[start:stop])

    def put(self, key: str, content: bytes) -> None:
        """As `Bucket.put`."""
        self._do("put", key, lambda: self._set(key, content))

    def put_if_absent(self, key: str, content: bytes) -> str | None:
        """As `Bucket.put_if_absent`."""
        return self._do("put_if_absent", key, lambda: None if key in self._objects else self._set(key, content))

    def compare_and_swap(self, key: str, content: bytes, etag: str) -> str | None:
        """As `Bucket.compare_and_swap`."""

        def swap() -> str | None:
            if key not in self._objects or self._etag(key) != etag:
                return None
            return self._set(key, content)

        return self._do("compare_and_swap", key, swap)

    def list(self, prefix: str, after: str = "") -> list[ListedObject]:
        """As `Bucket.list`."""

        def collect() -> list[ListedObject]:
            sizes = self._listed[0] if self._lag and self._listed else self._sizes()
            return sorted(
                ListedObject(key, size) for key, size in sizes.items() if key.startswith(prefix) and key > after
            )

        return self._do("list", prefix, collect)

    def delete(self, keys: Sequence[str]) -> None:
        """As `Bucket.delete`."""

        def delete() -> None:
            for key in keys:
                self._objects.pop(key, None)
            self._note_change()

        self._do("delete", ",".join(keys), delete)

    # ------------------------------------------------------------

    def _do(self, operation: str, key: str, effect: Callable[[], T]) -> T:
        if self._stopped:
            raise Crash
        self.operations += 1
        self.trace.append(f"{operation} {key}")
        if self._clock is not None and self._delay_ns:
            self._clock.advance(self._random.randrange(self._delay_ns) / NS)
        if self._stop_at is not None and self.operations >= self._stop_at[0]:
            self._stopped = True
            if self._stop_at[1] == "after":
                effect()
            raise Crash
        failing = "before" if self._away() else self._failing(operation, key)
        if failing == "before":
            raise ReplicaUnavailable(f"{self.url}/{key}: no answer, as the test wants it")
        answer = effect()
        if failing == "after":
            raise ReplicaUnavailable(f"{self.url}/{key}: the answer was lost, as the test wants it")
        return answer

    def _failing(self, operation: str, key: str) -> BucketStop | None:
        for one in self._failures:
            if one.times and one.operation in ("*", operation) and fnmatch(key, one.pattern):
                if one.skip:
                    one.skip -= 1
                    continue
                one.times -= 1
                return one.stop
        if self._chance and self._random.random() < self._chance:
            return self._random.choice(BUCKET_STOPS)
        return None

    def _found(self, key: str) -> bytes:
        try:
            return self._objects[key]
        except KeyError:
            raise ObjectMissing(f"{self.url}/{key}: there is no such object") from None

    def _etag(self, key: str) -> str:
        return hashlib.md5(self._objects[key], usedforsecurity=False).hexdigest()

    def _set(self, key: str, content: bytes) -> str:
        self._objects[key] = bytes(content)
        self._note_change()
        return self._etag(key)

    def _sizes(self) -> dict[str, int]:
        return {key: len(content) for key, content in self._objects.items()}

    def _note_change(self) -> None:
        if self._lag:
            self._listed = [*self._listed, self._sizes()][-self._lag - 1 :]


class BucketScenario(Protocol):
    """Work that ships to a bucket and may be interrupted at any object operation, and what must hold of the bucket."""

    def run(self, bucket: SimBucket) -> None:
        """Do the work, and record what must survive, for `check`."""
        ...

    def check(self, bucket: SimBucket) -> None:
        """Assert that the bucket holds what it must after the stop."""
        ...


def bucket_points(
    scenario: Callable[[], BucketScenario],
    *,
    bucket: Callable[[int], SimBucket] = SimBucket,
    stops: Iterable[BucketStop] = BUCKET_STOPS,
    every: int = 1,
    sample: int = 0,
) -> int:
    """Stop a new scenario at each object operation, before and after its effect, and check what is in the bucket.

    Returns how many cases there were. With `every=n` it is stopped at one of each n successive operations, chosen by
    the seed `sample`. An exception of `check` gets a note with the operation, to replay the case.
    """
    cases = 0
    choices = Random(sample)
    for stop in stops:
        before = 0
        while True:
            operation = before + 1 + choices.randrange(every)
            before += every
            objects = bucket(operation)
            objects.stop_at(operation, stop)
            work = scenario()
            try:
                work.run(objects)
            except Crash:
                pass
            else:
                break
            cases += 1
            try:
                work.check(objects.after_stop())
            except Exception as error:
                error.add_note(f"stopped {stop} the effect of object operation {operation} ({objects.trace[-1]})")
                raise
    return cases
