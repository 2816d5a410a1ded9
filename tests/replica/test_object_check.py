"""Objects that somebody deletes or cuts: the owner notices, and puts back what it still has."""

import logging
from typing import Any

import pytest

from holdfast import Retention, Roll
from holdfast.replica import find_moments, verify_replica
from holdfast.replica.manifest import list_moments
from holdfast.testing import SimBucket
from tests.replica.test_replica import Machine, replica_of
from tests.replica.work import described, restored

HOUR_S = 3601


@pytest.fixture
def machine() -> Machine:
    return Machine()


def parts(bucket: SimBucket) -> list[str]:
    return [key for key in bucket.snapshot() if key.startswith("logs/events/")]


@pytest.mark.parametrize("left", [None, b"half"])
def test_an_object_that_was_deleted_or_cut_is_uploaded_again(
    machine: Machine, left: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    with machine.open() as store:
        for number in range(3):
            store.log("events").append(b"record %d" % number)
            replica_of(store).ship()
        before = machine.bucket.snapshot()
        first = parts(machine.bucket)[0]
        machine.bucket.change(first, left)
        assert len(verify_replica(machine.bucket, everything=True).damaged) == 3
        machine.clock.advance(HOUR_S)
        with caplog.at_level(logging.WARNING, "holdfast.replica"):
            store.tick()
        assert machine.bucket.snapshot()[first] == before[first]
        status = replica_of(store).status()
        assert (status.ok, status.repaired) == (True, 1)
        assert verify_replica(machine.bucket, everything=True).ok
        assert restored(machine.bucket)[1] == described(store)
    assert f"object was gone, uploaded again: url=sim://bucket key={first}" in caplog.text


def test_a_manifest_that_was_deleted_is_followed_by_another(machine: Machine) -> None:
    with machine.open() as store:
        store.log("events").append(b"one")
        replica_of(store).ship()
        store.log("events").append(b"two")
        replica_of(store).ship()
        machine.bucket.change(find_moments(machine.bucket)[-1].key, None)
        assert restored(machine.bucket)[1]["log events"] == [b"one"]
        machine.clock.advance(HOUR_S)
        for _ in range(2):
            store.tick()
            machine.clock.advance(2)
        assert restored(machine.bucket)[1]["log events"] == [b"one", b"two"]


def test_what_the_store_has_no_more_is_an_error_until_no_moment_needs_it(machine: Machine) -> None:
    with machine.open() as store:
        log = store.log("events", roll=Roll.count(1), retention=Retention(max_segments=2))
        for number in range(2):
            log.append(b"%d" % number)
        replica_of(store).ship()
        last = parts(machine.bucket)[-1]
        machine.bucket.change(last, None)
        [path] = [one for one in machine.files.snapshot() if "/logs/events/" in one and one.endswith("-0002.data")]
        content = machine.files.content(path)
        content[-1] ^= 1  # the local disk has it no more, either
        machine.clock.advance(HOUR_S)
        store.tick()
        status = replica_of(store).status()
        assert (status.role, status.reason) == ("owner", "damaged")
        assert f"{last} was deleted or cut by somebody" in (status.error or "")
        machine.clock.advance(5)
        store.tick()
        assert replica_of(store).status().error == status.error, "it is shown until the next check"
        content[-1] ^= 1
        machine.clock.advance(61)
        store.tick()
        assert replica_of(store).status().ok
        assert verify_replica(machine.bucket).ok


def test_a_listing_that_lags_deletes_and_uploads_nothing() -> None:
    machine = Machine(SimBucket(listing_lag=3))
    with machine.open() as store:
        log: Any = store.log("events")
        log.append(b"one")
        replica_of(store).ship()
        machine.clock.advance(HOUR_S)
        log.append(b"two")
        puts = len([one for one in machine.bucket.trace if one.startswith("put ")])
        store.tick()
        assert len([one for one in machine.bucket.trace if one.startswith("put ")]) == puts + 1
        assert replica_of(store).status().repaired == 0
        assert len(list_moments(machine.bucket)) >= 1
