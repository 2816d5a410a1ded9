"""Each fault of a bucket over HTTP: a clear error, appends that go on, and a replica that heals by itself."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import ReplicaError, Retention, Roll, Store
from holdfast.replica import open_bucket, restore, verify_replica
from holdfast.replica.alarms import ReplicaAlarms
from holdfast.testing import SimBucket
from tests.replica.s3_server import FAULTS, S3Server, running_s3
from tests.replica.test_replica import Machine, replica_of
from tests.replica.work import described, restored

URL = "s3://tests/prefix"
SAID = {
    "refused": ("refused", "refused access (HTTP 403 AccessDenied). Check the credentials"),
    "wrong-key": ("refused", "InvalidAccessKeyId"),
    "wrong-signature": ("refused", "SignatureDoesNotMatch"),
    "expired": ("expired", "the credentials have expired (HTTP 400 ExpiredToken). Renew them"),
    "wrong-region": ("region", "the bucket is in another region"),
    "region-in-signature": ("region", "the bucket is in another region"),
    "clock": ("clock", "the clock of this machine is wrong (HTTP 403 RequestTimeTooSkewed)"),
    "no-bucket": ("no-bucket", "there is no such bucket"),
    "slow-down": ("unavailable", "HTTP 503 SlowDown"),
    "internal": ("unavailable", "HTTP 500 InternalError"),
    "hang": ("unavailable", "no answer"),
    "reset": ("unavailable", "no answer"),
}


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    pytest.importorskip("obstore")
    monkeypatch.setattr("holdfast.replica.bucket.ANSWER_S", 1)
    monkeypatch.setattr("holdfast.replica.bucket.RETRY_S", 0.1)
    monkeypatch.setattr("holdfast.replica.replica.BACKOFF_S", 1.0)
    with running_s3() as server:
        for name, value in (("ACCESS_KEY_ID", "key"), ("SECRET_ACCESS_KEY", "secret"), ("REGION", "us-east-1")):
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.endpoint)
        yield server


def await_healed(store: Store) -> None:
    """Return when the store's own thread has shipped everything."""
    deadline = time.monotonic() + 120
    while not (store.replica.status().ok and store.replica.status().lag_records == 0):
        assert time.monotonic() < deadline, store.replica.status()
        time.sleep(0.05)


def payloads(folder: Path) -> list[bytes]:
    with holdfast.open(folder) as store:
        return [record.payload for record in store.log("events").read()]


def test_every_fault_has_an_expectation() -> None:
    assert SAID.keys() | {"truncate"} == FAULTS.keys()


@pytest.mark.parametrize("fault", SAID)
def test_a_fault_is_named_appends_go_on_and_it_heals_by_itself(s3: S3Server, tmp_path: Path, fault: str) -> None:
    reason, text = SAID[fault]
    with holdfast.open(tmp_path / "data", replica=URL) as store:
        log = store.log("events")
        log.append(b"before")
        store.replica.ship()
        s3.fail(fault)
        log.append(b"meanwhile")
        with pytest.raises(ReplicaError) as failed:
            store.replica.ship()
        assert text in str(failed.value)
        assert failed.value.reason == reason
        status = store.replica.status()
        assert (status.role, status.reason, status.ok) == ("owner", reason, False)
        assert text in (status.error or "")
        assert status.failing_since is not None and sum(status.failures.values()) > 0
        log.append(b"also")
        s3.heal()
        await_healed(store)
        assert store.replica.status().last_error is not None, "it is still known what failed last"
    assert verify_replica(URL, everything=True).ok
    assert restore(URL, tmp_path / "restored").ok
    assert payloads(tmp_path / "restored") == [b"before", b"meanwhile", b"also"]


@pytest.mark.parametrize("fault", ["refused", "expired", "wrong-region", "clock", "no-bucket", "slow-down", "truncate"])
def test_a_store_that_was_shipped_opens_in_spite_of_a_fault(s3: S3Server, tmp_path: Path, fault: str) -> None:
    with holdfast.open(tmp_path / "data", replica=URL) as store:
        store.log("events").append(b"before")
    s3.fail(fault)
    with holdfast.open(tmp_path / "data", replica=URL) as store:
        store.log("events").append(b"meanwhile")
        status = store.replica.status()
        assert (status.role, status.ok) == ("none", False)
        s3.heal()
        await_healed(store)
        assert store.replica.status().epoch == 2
    assert restore(URL, tmp_path / "restored").ok
    assert payloads(tmp_path / "restored") == [b"before", b"meanwhile"]


@pytest.mark.parametrize("fault", ["refused", "expired", "wrong-region", "clock", "no-bucket"])
def test_a_replica_that_never_worked_is_an_error_at_once(s3: S3Server, tmp_path: Path, fault: str) -> None:
    s3.fail(fault)
    with pytest.raises(ReplicaError) as failed:
        holdfast.open(tmp_path / "data", replica=URL)
    assert SAID[fault][1] in str(failed.value)
    s3.heal()
    holdfast.open(tmp_path / "data", replica=URL).close()


def test_answers_that_are_cut_off_are_no_answers(s3: S3Server, tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data", replica=URL) as store:
        store.log("events").append(bytes(10_000))
        store.replica.ship()
        s3.fail("truncate")
        with pytest.raises(ReplicaError) as failed:
            restore(URL, tmp_path / "half")
        assert failed.value.reason == "unavailable"
        assert not (tmp_path / "half").exists()
        s3.heal()
        await_healed(store)
    assert restore(URL, tmp_path / "restored").ok


def test_the_cause_is_shown_and_not_that_the_claim_ran_out(s3: S3Server, tmp_path: Path) -> None:
    """An owner that cannot renew stops after a while, and its error must still say why it cannot."""
    with holdfast.open(tmp_path / "data", replica=URL) as store:
        store.log("events").append(b"before")
        store.replica.ship()
        s3.fail("expired")
        store.log("events").append(b"meanwhile")
        deadline = time.monotonic() + 180
        while True:
            with contextlib.suppress(ReplicaError):
                store.replica.ship()
            with pytest.raises(ReplicaError) as failed:
                store.replica.ship()
            if "could not be renewed" in str(failed.value):
                break
            assert time.monotonic() < deadline
            time.sleep(0.2)
        status = store.replica.status()
        assert (status.reason, status.role) == ("expired", "owner")
        assert "the credentials have expired" in (status.error or "")
        s3.heal()
        await_healed(store)


def test_two_stores_cannot_ship_to_one_prefix(s3: S3Server, tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "one", replica=URL) as store:
        store.log("events").append(b"one")
        with pytest.raises(ReplicaError, match="holds the replica of another store") as failed:
            holdfast.open(tmp_path / "two", replica=URL)
        assert failed.value.reason == "other-store"
        assert store.replica.ship()
    assert restore(URL, tmp_path / "restored").ok


def test_two_that_open_one_prefix_at_once_have_one_winner(s3: S3Server, tmp_path: Path) -> None:
    won: list[Store] = []
    lost: list[ReplicaError] = []
    barrier = threading.Barrier(2)

    def open_one(name: str) -> None:
        barrier.wait()
        try:
            won.append(holdfast.open(tmp_path / name, replica=URL))
        except ReplicaError as error:
            lost.append(error)

    threads = [threading.Thread(target=open_one, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in won:
        store.close()
    assert (len(won), [error.reason for error in lost]) == (1, ["other-store"])


def test_an_hour_without_a_bucket_is_made_up_for_within_a_minute() -> None:
    machine = Machine()
    with machine.open() as store:
        log = store.log("events")
        log.append(b"before")
        replica_of(store).ship()
        machine.bucket.outage(3600)
        for number in range(360):
            log.append(b"%d" % number)
            machine.clock.advance(10)
            store.tick()
        made = sum(replica_of(store).status().requests.values())
        assert made < 360 * 3, "it does not hammer a bucket that is away"
        for _ in range(60):
            machine.clock.advance(1)
            store.tick()
        assert replica_of(store).status().ok
        assert restored(machine.bucket)[1] == described(store)


def test_a_disk_that_fills_while_the_bucket_is_away_is_an_alarm_and_appends_win() -> None:
    machine = Machine(SimBucket())
    machine.files.capacity = 2_000_000
    alarms = ReplicaAlarms(machine.clock, 60)
    with machine.open() as store:
        log = store.log("events", roll=Roll.count(20), retention=Retention(max_segments=3))
        replica_of(store).ship()
        machine.bucket.outage()
        for _ in range(500):  # 5 MB
            log.append(bytes(10_000))
        machine.clock.advance(61)
        store.tick()
        assert "replica-lag" in [one.kind for one in alarms.look(replica_of(store).status())]
        machine.bucket.heal()
        replica_of(store).ship()
        found = {one.kind: one.text for one in alarms.look(replica_of(store).status())}
        assert "replica-lag" not in found
        assert f"{replica_of(store).status().lost_records:,} records left the full disk" in found["replica-lost"]
        assert restored(machine.bucket)[1] == described(store)


def test_a_manifest_that_was_overwritten_is_passed_over(s3: S3Server, tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data", replica=URL) as store:
        store.log("events").append(b"one")
        store.replica.ship()
    bucket = open_bucket(URL)
    newest = bucket.list("manifest/")[-1].key
    bucket.put(newest, bucket.get(newest).content[:50])
    assert not verify_replica(URL).ok
    with holdfast.open(tmp_path / "data", replica=URL) as store:
        store.log("events").append(b"two")
        store.replica.ship()
    assert restore(URL, tmp_path / "restored").ok
    assert payloads(tmp_path / "restored") == [b"one", b"two"]
