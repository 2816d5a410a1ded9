"""Promotion by hand, and deletion of moments: what is refused, what is done, and what is left."""

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

import holdfast
from holdfast import InvalidArgument, NotFound, ReplicaError, ReplicaFenced, ReplicaUnavailable, Store
from holdfast.replica import Standby, find_moments, forget, promote, verify_replica
from holdfast.replica.promotion import owner_lives
from holdfast.testing import SimBucket, SimClock, SimFiles
from tests.replica.work import described

PATH = "data"


class Others(SimClock):
    """A clock that lets the owner and the standby work while somebody waits."""

    def __init__(self) -> None:
        super().__init__()
        self.bucket = SimBucket(clock=self)
        self.owner: Store = holdfast.open(PATH, files=SimFiles(1), clock=self, background=False, replica=self.bucket)
        self.owner_lives = True
        self.standby: Standby | None = None
        self.has_taken_over = False

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.owner_lives:
            with contextlib.suppress(ReplicaError):
                self.owner.replica.tick()
        if self.standby is not None and not self.has_taken_over:
            self.has_taken_over = self.standby.tick()

    def follow(self) -> None:
        self.standby = Standby(self.bucket, "other", files=SimFiles(2), clock=self)
        for _ in range(12):
            self.sleep(1)


@pytest.fixture
def others() -> Iterator[Others]:
    others = Others()
    others.owner.queue("work").put(b"one")
    others.owner.replica.ship()
    others.advance(5)
    others.owner.replica.tick()
    yield others
    others.owner.close()
    if others.standby is not None:
        others.standby.close()


def test_promotion_is_refused_while_the_owner_lives(others: Others) -> None:
    others.follow()
    with pytest.raises(ReplicaFenced, match="the owner lives"):
        promote(others.bucket, clock=others)
    assert not others.has_taken_over


def test_promotion_without_a_standby_says_what_to_do(others: Others) -> None:
    others.owner_lives = False
    with pytest.raises(NotFound, match="holdfast serve --standby"):
        promote(others.bucket, clock=others)


def test_a_standby_is_promoted_once_the_owner_is_gone_also_from_one_that_does_not_yield(others: Others) -> None:
    others.owner_lives = False
    others.follow()
    assert not others.has_taken_over
    done = promote(others.bucket, clock=others)
    assert (done.before.epoch, done.owner.epoch) == (1, 2)
    others.sleep(1)
    assert others.has_taken_over


def test_a_living_owner_hands_over_all_that_it_has_confirmed(others: Others) -> None:
    others.follow()
    others.owner.queue("work").put(b"not shipped yet")
    expected = described(others.owner)
    done = promote(others.bucket, force=True, clock=others)
    assert done.owner.epoch == 2
    assert not others.owner.replica.may_confirm
    assert others.owner.replica.lost is not None
    assert "handed the replica over" in others.owner.replica.lost
    while not others.has_taken_over:
        others.sleep(1)
    assert others.standby is not None
    with others.standby.open(background=False) as store:
        assert described(store) == expected


def test_an_owner_that_does_not_answer_is_replaced_when_its_claim_has_run_out(others: Others) -> None:
    others.follow()
    others.owner_lives = False
    began = others.monotonic()
    promote(others.bucket, force=True, clock=others)
    assert others.monotonic() - began >= 15


def test_a_standby_that_has_ended_is_not_asked(others: Others) -> None:
    others.follow()
    standby, others.standby = others.standby, None
    others.owner_lives = False
    assert standby is not None

    with pytest.raises(NotFound, match="no standby follows"):
        promote(others.bucket, clock=others, patience=30)
    standby.close()


def test_a_request_for_another_epoch_is_void(others: Others) -> None:
    others.follow()
    others.owner_lives = False
    promote(others.bucket, clock=others)
    others.sleep(1)
    assert others.standby is not None
    with others.standby.open(background=False) as store:
        store.replica.ship()
        second = Standby(others.bucket, "third", files=SimFiles(3), clock=others)
        others.standby = None
        for _ in range(10):
            others.advance(1)
            store.replica.tick()
            assert not second.tick()
        second.close()


def moments_of_days(others: Others, days: int) -> None:
    for day in range(days):
        others.owner.queue("work").put(b"day %d" % day)
        others.owner.log("events").append(b"x" * 100)
        others.owner.replica.ship()
        others.advance(86_400)


def test_moments_before_a_time_are_forgotten_with_what_only_they_need(others: Others) -> None:
    moments_of_days(others, 3)
    others.owner.delete_queue("work")
    others.owner.replica.ship()
    others.owner.close()
    before = find_moments(others.bucket)
    limit = datetime.fromtimestamp(before[-1].time / 1e9, UTC)
    size = len(others.bucket.snapshot())
    done = forget(others.bucket, before=limit, clock=others)
    assert done.moments == len(before) - 1
    assert done.kept == 1
    assert done.objects > 0
    assert len(others.bucket.snapshot()) == size - done.moments - done.objects
    assert verify_replica(others.bucket, everything=True).ok
    assert not [key for key in others.bucket.snapshot() if key.startswith("logs/work")]


def test_the_newest_moment_is_kept_whatever_the_time(others: Others) -> None:
    others.owner.close()
    done = forget(others.bucket, before=datetime(2100, 1, 1, tzinfo=UTC), clock=others)
    assert done.kept == 1
    assert verify_replica(others.bucket).ok


def test_a_whole_replica_is_forgotten(others: Others) -> None:
    others.owner.close()
    done = forget(others.bucket, everything=True, clock=others)
    assert done.moments >= 1
    assert others.bucket.snapshot() == {}
    with pytest.raises(NotFound):
        forget(others.bucket, everything=True, clock=others)


def test_nothing_is_forgotten_while_the_owner_lives_without_force(others: Others) -> None:
    assert owner_lives(others.bucket, clock=others)
    before = others.bucket.snapshot().keys()
    with pytest.raises(ReplicaFenced, match="the owner lives"):
        forget(others.bucket, everything=True, clock=others)
    assert others.bucket.snapshot().keys() == before


def test_an_owner_goes_on_where_moments_were_forgotten_by_force(others: Others) -> None:
    moments_of_days(others, 2)
    newest = find_moments(others.bucket)[-1]
    forget(others.bucket, before=datetime.fromtimestamp(newest.time / 1e9, UTC), force=True, clock=others)
    others.owner.queue("work").put(b"after")
    others.owner.replica.ship()
    assert others.owner.replica.status().ok
    assert verify_replica(others.bucket, everything=True).ok


def test_an_owner_whose_replica_was_forgotten_ships_nothing_more(others: Others) -> None:
    forget(others.bucket, everything=True, force=True, clock=others)
    others.advance(5)
    others.owner.replica.tick()
    assert others.owner.replica.lost is not None
    assert "it was deleted" in others.owner.replica.lost
    assert others.bucket.snapshot() == {}


def test_an_interrupted_deletion_is_finished_by_the_next(others: Others) -> None:
    moments_of_days(others, 2)
    others.owner.close()
    others.bucket.fail("delete", stop="after")
    with pytest.raises(ReplicaUnavailable):
        forget(others.bucket, everything=True, clock=others)
    forget(others.bucket, everything=True, clock=others) if others.bucket.snapshot() else None
    assert others.bucket.snapshot() == {}


def test_what_to_forget_must_be_said(others: Others) -> None:
    for which in ({}, {"before": datetime.now(UTC), "everything": True}):
        with pytest.raises(InvalidArgument, match="choose one"):
            forget(others.bucket, clock=others, **which)  # type: ignore[arg-type]
