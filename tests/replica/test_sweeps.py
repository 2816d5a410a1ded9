"""Stop the owner of a replica at every object and every I/O operation: the bucket always has a whole moment."""

import pytest

import holdfast
from holdfast.base.confirm_gate import ConfirmGate
from holdfast.base.errors import ReplicaUnavailable
from holdfast.testing import Crash, SimBucket, SimClock, SimFiles, bucket_points
from tests.replica.work import PATH, Confirming, Work, described, restored
from tests.tiers import SEED, a_seed, rounds, sample


def test_a_stop_at_any_object_operation_leaves_a_whole_moment() -> None:
    every = rounds(1, 4)
    assert bucket_points(Work, every=every, sample=SEED) * every > 55


class LateParts(SimBucket):
    """A bucket as an owner would fill it that puts the manifest before its parts."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._late: list[tuple[str, bytes]] = []

    def put(self, key: str, content: bytes) -> None:
        self._late.append((key, content))

    def put_if_absent(self, key: str, content: bytes) -> str | None:
        done = super().put_if_absent(key, content)
        late, self._late = self._late, []
        for one in late:
            super().put(*one)
        return done


def test_the_sweep_fails_if_the_manifest_is_put_before_its_parts() -> None:
    with pytest.raises(AssertionError, match="is missing"):
        bucket_points(Work, bucket=LateParts)


def operations() -> range:
    work = Work()
    work.run(SimBucket())
    return range(1, work.files.operations + 1)


def test_a_stop_at_any_io_operation_leaves_a_whole_moment_and_a_store_that_goes_on() -> None:
    for number, stop in enumerate(sample(operations(), every=7)):
        work, bucket = Work(), SimBucket(stop)
        work.files = SimFiles(stop)
        work.files.crash_at(stop)
        with pytest.raises(Crash):
            work.run(bucket)
        try:
            work.check(bucket.after_stop())
            # The machine starts again with what is left on its own disk: never less than the bucket has.
            mode = ("dropped", "prefix", "torn", "reordered")[number % 4]
            again = work.files.after_crash(mode, stop)  # type: ignore[arg-type]
            mine = bucket.after_stop()
            clock = SimClock(work.clock.time_ns())
            with holdfast.open(PATH, files=again, clock=clock, background=False, replica=mine) as store:
                store.queue("work").put(b"again")
                now = described(store)
            assert restored(mine)[1] == now
        except Exception as error:
            error.add_note(f"stopped at I/O operation {stop}: {work.files.trace[-1]}")
            raise


class Patient(Work):
    """Tries again until the bucket answers."""

    def ship(self) -> None:
        self.states.append(described(self.store))
        for _ in range(200):
            try:
                self.store.replica.ship()
                break
            except ReplicaUnavailable:
                self.clock.advance(1)
        else:
            pytest.fail("it never succeeds")
        self.shipped = len(self.states) - 1


@pytest.mark.parametrize("number", range(rounds(40, 6)))
def test_failures_lost_answers_and_listings_that_lag_lose_nothing_and_do_not_wedge_it(number: int) -> None:
    seed = a_seed() + number
    work = Patient()
    bucket = SimBucket(seed, clock=work.clock, delay=0.4, failures=0.25, listing_lag=3)
    try:
        work.run(bucket)
        work.check(bucket.after_stop())
    except Exception as error:
        error.add_note(f"seed {seed}")
        raise


def test_a_confirmed_step_is_in_the_bucket_after_a_stop_at_any_object_operation() -> None:
    every = rounds(1, 3)
    assert bucket_points(Confirming, every=every, sample=SEED) * every > 50


def failing(seed: int) -> SimBucket:
    """A bucket whose requests fail, before or after their effect, and whose listings lag."""
    return SimBucket(seed, failures=0.2, listing_lag=3)


def test_a_confirmed_step_is_in_a_bucket_that_fails_after_a_stop_at_any_object_operation() -> None:
    every = rounds(1, 7)
    assert bucket_points(Confirming, bucket=failing, every=every, sample=SEED) * every > 60


def test_a_confirmed_step_is_in_the_bucket_after_a_stop_at_any_io_operation() -> None:
    work = Confirming()
    work.run(SimBucket())
    for stop in sample(range(1, work.files.operations + 1), every=11):
        work, bucket = Confirming(), SimBucket(stop)
        work.files = SimFiles(stop)
        work.files.crash_at(stop)
        with pytest.raises(Crash):
            work.run(bucket)
        try:
            work.check(bucket.after_stop())
        except Exception as error:
            error.add_note(f"stopped at I/O operation {stop}: {work.files.trace[-1]}")
            raise


def test_the_sweep_fails_if_calls_do_not_wait_for_the_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    Confirming.undisturbed()
    monkeypatch.setattr(ConfirmGate, "confirm", lambda gate, *_, **__: None)
    with pytest.raises(AssertionError, match="a confirmed step is not in the bucket"):
        bucket_points(Confirming)


class LateManifests(SimBucket):
    """A bucket as an owner would see it that confirms while the manifest is still being put."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._late: list[tuple[str, bytes]] = []

    def put_if_absent(self, key: str, content: bytes) -> str | None:
        late, self._late = self._late, []
        for one in late:
            super().put_if_absent(*one)
        if key.startswith("manifest/"):
            self._late.append((key, content))
            return "etag"
        return super().put_if_absent(key, content)


def test_the_sweep_fails_if_a_call_is_confirmed_before_its_manifest_is_there() -> None:
    with pytest.raises(AssertionError, match="a confirmed step is not in the bucket"):
        bucket_points(Confirming, bucket=LateManifests)
