"""Stop a store whose old segments leave its disk at every object and every I/O operation: no record is ever lost."""

from functools import partial
from pathlib import Path

import pytest

import holdfast
from holdfast import Flush, Retention, Roll, Store
from holdfast.log.remote_segments import REMOTE, read_remote
from holdfast.testing import Crash, SimBucket, SimClock, SimFiles, bucket_points
from tests.replica.tiered import payloads
from tests.replica.work import PATH, Work, described, restored
from tests.tiers import SEED, rounds, sample

_DROPPED = 4
"""Records that retention drops at the end."""


class Evicting(Work):
    """A log and a queue of which most is only in the bucket, also what is read meanwhile."""

    def __init__(self) -> None:
        super().__init__(steps)
        self.confirmed = 0
        """How many records are confirmed."""
        self.may_be_dropped = 0

    def check_store(self, store: Store) -> None:
        """Every confirmed record is there, on the disk or in the bucket, unless retention has dropped it."""
        if "events" not in store.logs():
            assert self.confirmed == 0
            return
        log = store.log("events")
        found = [record.payload for record in log.read()]
        assert found == payloads(log.end, log.start)
        assert log.end >= self.confirmed
        assert log.start <= self.may_be_dropped
        assert not log.damage
        assert log.verify().ok


def steps(work: Work) -> None:
    assert isinstance(work, Evicting)
    store, policy = work.store, Retention(max_segments=1)
    log = store.log("events", roll=Roll.count(2), flush=Flush.sync(), local_retention=policy)
    queue = store.queue("work", roll=Roll.count(2), local_retention=policy)
    for _ in range(3):
        for _ in range(3):
            work.clock.advance(1)
            work.confirmed = log.append(b"record %d" % work.confirmed) + 1
            queue.put(b"put %d" % work.confirmed)
        for message in queue.lease(2):
            message.ack()
        queue.checkpoint()
        work.ship()
        next(log.read())
    work.may_be_dropped = _DROPPED
    log.compact(retention=Retention(max_segments=3))
    work.ship()


def test_the_scenario_moves_segments_and_drops_some() -> None:
    work, bucket = Evicting(), SimBucket()
    work.run(bucket)
    remote = read_remote(work.files, Path(PATH) / "logs" / "events")
    assert [one.base for one in remote.entries] == [_DROPPED, _DROPPED + 2]


def test_a_stop_at_any_object_operation_leaves_a_whole_moment() -> None:
    every = rounds(1, 3)
    assert bucket_points(Evicting, every=every, sample=SEED) * every > 40


def operations() -> range:
    work = Evicting()
    work.run(SimBucket())
    return range(1, work.files.operations + 1)


def test_a_stop_at_any_io_operation_loses_no_record_of_a_tiered_log() -> None:
    for number, stop in enumerate(sample(operations(), every=5)):
        work, bucket = Evicting(), SimBucket(stop)
        work.files = SimFiles(stop)
        work.files.crash_at(stop)
        with pytest.raises(Crash):
            work.run(bucket)
        try:
            work.check(bucket.after_stop())
            mode = ("dropped", "prefix", "torn", "reordered")[number % 4]
            again, mine = work.files.after_crash(mode, stop), bucket.after_stop()  # type: ignore[arg-type]
            start = partial(
                holdfast.open, PATH, files=again, clock=SimClock(work.clock.time_ns()), background=False, replica=mine
            )
            with start() as store:
                work.check_store(store)
                store.queue("work").put(b"again")
                now = described(store)
            assert restored(mine)[1] == now
            with start(local_retention=Retention(max_segments=1)) as store:
                work.check_store(store)
                store.replica.ship()
                work.check_store(store)
        except Exception as error:
            error.add_note(f"stopped at I/O operation {stop}: {work.files.trace[-1]}")
            raise


class Careless(SimFiles):
    """A disk as a store would leave it that does not write down which segments are in the bucket."""

    def replace(self, source: Path, target: Path) -> None:
        if target.name == REMOTE:
            self.remove(source)
        else:
            super().replace(source, target)


def test_the_sweep_fails_if_segments_are_deleted_and_that_is_not_written_down() -> None:
    work, bucket = Evicting(), SimBucket()
    work.files = Careless()
    work.run(bucket)
    again = work.files.after_crash("dropped")
    with (
        pytest.raises(AssertionError, match="start"),
        holdfast.open(PATH, files=again, clock=SimClock(), background=False) as store,
    ):
        work.check_store(store)
