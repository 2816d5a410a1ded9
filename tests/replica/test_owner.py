"""One owner at a time: claims, renewals, takeovers, and what an owner does that has lost the replica."""

from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast import InvalidArgument, ReadOnly, ReplicaError, ReplicaFenced, ReplicaUnavailable, Retention, Roll
from holdfast.replica import open_bucket, restore
from holdfast.replica.owner import Identity, Ownership, read_owner
from holdfast.testing import BUCKET_STOPS, SimBucket, SimClock, SimFiles


def who(name: str, store: str = "store") -> Identity:
    return Identity(store, name, f"{name}:/data", name, 1, f"nonce of {name}")


class Meanwhile(SimClock):
    """A clock that lets others work while somebody sleeps."""

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__()
        self._work = work

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._work()


def test_an_owner_that_renews_is_not_replaced() -> None:
    bucket, clock = SimBucket(), SimClock()
    first = Ownership(bucket, clock, who("first"))
    first.claim()

    def renew() -> None:
        clock.advance(1)
        first.renew_if_due()

    second = Ownership(bucket, Meanwhile(renew), who("second"))
    with pytest.raises(ReplicaFenced, match="it has renewed its claim"):
        second.claim()
    first.check()


def test_an_owner_that_is_paused_is_replaced_and_stops() -> None:
    bucket, clock = SimBucket(), SimClock()
    first = Ownership(bucket, clock, who("first"))
    first.claim()
    second = Ownership(bucket, SimClock(), who("second"))
    second.claim()
    assert (first.epoch, second.epoch) == (1, 2)
    first.check()  # by its own clock no time has passed, and its claim is valid: a clock that stands still is no clock
    clock.advance(14.1)
    with pytest.raises(ReplicaFenced, match="could not be renewed"):
        first.check()
    with pytest.raises(ReplicaFenced, match="second:/data has epoch 2"):
        first.renew()
    assert first.role == "fenced"


def test_the_claim_ends_before_another_process_may_take_the_next_epoch() -> None:
    """Whatever the answer to a renewal was, and however late: each waits by its own clock."""
    for lost in (False, True):
        clock = SimClock()
        bucket = SimBucket(clock=clock)
        first = Ownership(bucket, clock, who("first"))
        first.claim()
        clock.advance(5)
        if lost:
            bucket.fail("compare_and_swap", stop="after")
            with pytest.raises(ReplicaUnavailable):
                first.renew()
        else:
            first.renew()
        renewed_at = clock.monotonic()
        second = Ownership(bucket, clock, who("second"))
        second.claim()
        assert clock.monotonic() >= renewed_at + 15
        assert first.valid_until < clock.monotonic()


def test_a_renewal_whose_answer_was_lost_is_found() -> None:
    clock = SimClock()
    bucket = SimBucket(clock=clock)
    owner = Ownership(bucket, clock, who("first"))
    owner.claim()
    for stop in BUCKET_STOPS:
        clock.advance(5)
        bucket.fail("compare_and_swap", stop=stop)
        with pytest.raises(ReplicaUnavailable):
            owner.renew_if_due()
        owner.renew()
        owner.check()
    record = read_owner(bucket)
    assert record is not None
    assert record.epoch == 1


def test_a_claim_whose_answer_was_lost_is_found() -> None:
    bucket = SimBucket()
    bucket.fail("put_if_absent", stop="after")
    owner = Ownership(bucket, SimClock(), who("first"))
    with pytest.raises(ReplicaUnavailable):
        owner.claim()
    owner.claim()
    assert owner.epoch == 1
    owner.renew()
    owner.check()


class Racing(SimBucket):
    """A bucket where another claim comes between reading and writing."""

    other: Ownership | None = None

    def compare_and_swap(self, key: str, content: bytes, etag: str) -> str | None:
        other, self.other = self.other, None
        if other is not None:
            other.claim()
        return super().compare_and_swap(key, content, etag)

    def put_if_absent(self, key: str, content: bytes) -> str | None:
        other, self.other = self.other, None
        if other is not None:
            other.claim()
        return super().put_if_absent(key, content)


@pytest.mark.parametrize("is_new", [True, False])
def test_of_two_claims_at_once_one_wins(is_new: bool) -> None:
    bucket = Racing()
    if not is_new:
        last = Ownership(bucket, SimClock(), who("last"))
        last.claim()
        last.release()
    bucket.other = winner = Ownership(bucket, SimClock(), who("winner"))
    loser = Ownership(bucket, Meanwhile(winner.renew), who("loser"))
    with pytest.raises(ReplicaFenced):
        loser.claim()
    winner.check()
    assert (winner.role, loser.role) == ("owner", "none")


def test_a_store_that_was_closed_or_killed_is_opened_again_at_once() -> None:
    bucket, files, clock = SimBucket(), SimFiles(), SimClock()
    began = clock.monotonic()
    for epoch in (1, 2):
        with holdfast.open("data", files=files, clock=clock, background=False, replica=bucket) as store:
            assert store.replica.status().epoch == epoch
    killed = files.after_crash("prefix")
    holdfast.open("data", files=killed, clock=clock, background=False, replica=bucket)  # it never closes
    again = killed.after_crash("dropped")
    with holdfast.open("data", files=again, clock=clock, background=False, replica=bucket) as store:
        assert store.replica.status().epoch == 4
    assert clock.monotonic() - began < 5


def test_two_stores_do_not_ship_to_one_prefix() -> None:
    bucket = SimBucket()
    holdfast.open("one", files=SimFiles(1), clock=SimClock(), background=False, replica=bucket).close()
    with pytest.raises(ReplicaError, match=r"another store.*choose another prefix"):
        holdfast.open("two", files=SimFiles(2), clock=SimClock(), background=False, replica=bucket)


def test_an_old_owner_that_comes_back_ships_nothing_and_says_why() -> None:
    bucket, old_files, clock = SimBucket(), SimFiles(1), SimClock()
    old = holdfast.open("data", files=old_files, clock=clock, background=False, replica=bucket)
    old.log("events").append(b"both")
    old.replica.ship()
    files = SimFiles(2)
    restore(bucket, "copy", files=files, verify=False)
    with holdfast.open("copy", files=files, clock=SimClock(), background=False, replica=bucket) as new:
        new.log("events").append(b"of the new owner")
    old.log("events").append(b"of the old owner")
    before = bucket.snapshot()
    clock.advance(20)
    with pytest.raises(ReplicaFenced, match="has lost the replica"):
        old.replica.ship()
    assert old.replica.status().role == "fenced"
    old.close()
    assert bucket.snapshot() == before
    with pytest.raises(ReplicaError, match="another process has taken the replica since"):
        holdfast.open("data", files=old_files, clock=clock, background=False, replica=bucket)
    with holdfast.open("data", files=old_files, clock=clock, background=False) as alone:
        assert [record.payload for record in alone.log("events").read()] == [b"both", b"of the old owner"]


def test_an_owner_that_has_lost_the_replica_keeps_nothing_for_it() -> None:
    bucket, clock = SimBucket(), SimClock()
    with holdfast.open("data", files=SimFiles(1), clock=clock, background=False, replica=bucket) as store:
        log = store.log("events", roll=Roll.count(5), retention=Retention(max_segments=2))
        log.append(b"x")
        store.replica.ship()
        restore(bucket, "copy", files=(files := SimFiles(2)), verify=False)
        holdfast.open("copy", files=files, clock=SimClock(), background=False, replica=bucket).close()
        for _ in range(50):
            clock.advance(1)
            store.tick()
            log.append(b"x")
        assert store.replica.status().role == "fenced"
        assert log.start > 30


def test_an_old_copy_takes_no_epoch_from_an_owner_that_is_only_slow() -> None:
    bucket, files, clock = SimBucket(), SimFiles(1), SimClock()
    with holdfast.open("data", files=files, clock=clock, background=False, replica=bucket) as store:
        store.log("events").append(b"one")
    older = files.after_crash("prefix")
    owner = holdfast.open("data", files=files, clock=clock, background=False, replica=bucket)
    owner.log("events").append(b"two")
    owner.replica.ship()
    with pytest.raises(ReplicaError, match="another process has taken the replica since"):
        holdfast.open("data", files=older, clock=SimClock(), background=False, replica=bucket)
    owner.log("events").append(b"three")
    owner.replica.ship()
    assert owner.replica.status().ok


def test_a_store_is_shipped_to_one_bucket_only(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data", replica=(tmp_path / "one").as_uri()) as store:
        with pytest.raises(InvalidArgument, match="already"):
            store.ship_to(open_bucket((tmp_path / "other").as_uri()))
        with holdfast.open(tmp_path / "data", read_only=True) as reader, pytest.raises(ReadOnly):
            reader.ship_to(open_bucket((tmp_path / "other").as_uri()))


def test_an_owner_that_returns_is_refused_if_another_one_has_only_made_new_queues() -> None:
    clock, bucket = SimClock(), SimBucket(seed=1)
    first, second = SimFiles(1), SimFiles(2)
    with holdfast.open("data", files=first, clock=clock, background=False, replica=bucket) as store:
        store.queue("old").put(b"1")
    restore(bucket, "copy", files=second)
    with holdfast.open("copy", files=second, clock=clock, background=False, replica=bucket) as store:
        store.queue("new").put(b"2")
    with pytest.raises(ReplicaError, match="epoch 2"):
        holdfast.open("data", files=first, clock=clock, background=False, replica=bucket)
    assert restore(bucket, "third", files=SimFiles(3)).queues == {"old": 1, "new": 1}
