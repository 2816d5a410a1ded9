"""Real disks, threads and processes, with SeaweedFS and with folders: what is shipped while the store is used."""

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import holdfast
from holdfast import Flush, ReplicaError, ReplicaFenced
from holdfast.replica import find_moments, restore, verify_replica
from holdfast.replica.bucket import ObjectStorageBucket
from tests.replica.seaweed import Seaweed

pytestmark = pytest.mark.xdist_group("seaweed")  # one server for all
_numbers = itertools.count()


@pytest.fixture(params=["folder", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "folder":
        return (tmp_path / "replica").as_uri()
    for name, value in request.getfixturevalue("seaweed").environment().items():
        monkeypatch.setenv(name, value)
    return f"s3://tests/real/{next(_numbers)}"


def test_a_store_is_shipped_while_threads_use_it(url: str, tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data", replica=url) as store:
        store.queue("in", flush=Flush.async_()).put_many([b"%d" % number for number in range(3000)])
        store.queue("out")
        stop = threading.Event()

        def move() -> None:
            """Put each message into the other queue before it is acknowledged: it is always in one of them."""
            while not stop.is_set():
                for message in store.queue("in").lease(5):
                    store.queue("out").put(message.payload)
                    message.ack()

        threads = [threading.Thread(target=move) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(4):
                store.log("steps").append(b"so that there is something new")
                store.replica.ship()
                time.sleep(0.3)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        status = store.replica.status()
    assert status.ok, status
    moments = find_moments(url)
    assert len(moments) >= 4
    for number, moment in enumerate([*moments[:2], moments[-1]]):
        there = restored_payloads(url, tmp_path / f"restored {number}", moment.name)
        if number or there:  # the first moment may be older than the messages
            assert there == {b"%d" % one for one in range(3000)}


def restored_payloads(url: str, folder: Path, moment: str) -> set[bytes]:
    assert restore(url, folder, moment=moment).ok
    with holdfast.open(folder, background=False) as store:
        store.queue("in").void_leases("restored")
        return {message.payload for name in ("in", "out") for message in store.queue(name).peek(10_000)}


def test_after_kill_9_of_its_owner_a_store_is_restored_without_a_gap(url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.replica.owner_process", str(tmp_path / "data"), url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line.split())
        if said[-1][1] not in ("-", "1-1", "1-2", "1-3"):
            break
    process.kill()
    process.wait()
    process.stdout.close()
    found = restore(url, tmp_path / "restored")
    assert found.ok
    assert found.is_newest
    assert verify_replica(url, everything=True).ok
    with holdfast.open(tmp_path / "restored", background=False) as store:
        work, copy = ([one.payload for one in store.queue(name).peek(100_000)] for name in ("work", "copy"))
        events = [record.payload for record in store.log("events").read()]
    numbers = [b"%d" % number for number in range(len(work))]
    assert work == copy == numbers, "a transaction is half there, or there is a gap"
    assert events in (numbers, numbers[:-1])
    assert len(work) > 0
    # Another machine takes over when the claim of the first has run out, and ships on from where the bucket ends.
    began = time.monotonic()
    with holdfast.open(tmp_path / "restored", replica=url) as store:
        assert time.monotonic() - began < 60
        assert store.replica.status().epoch == 2
        store.queue("work").put(b"of the second owner")
        with pytest.raises((ReplicaFenced, ReplicaError)):  # the first machine comes back
            holdfast.open(tmp_path / "data", replica=url)
    assert restore(url, tmp_path / "again").queues["work"] == len(work) + 1


def test_an_owner_that_is_stopped_for_longer_than_its_claim_is_replaced_and_says_so(tmp_path: Path) -> None:
    url = (tmp_path / "replica").as_uri()
    command = [sys.executable, "-m", "tests.replica.owner_process", str(tmp_path / "data"), url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    assert process.stdout is not None
    try:
        said = next(words for line in process.stdout if (words := line.split())[1] not in ("-", "1-1"))
        assert said[2] == "owner"
        process.send_signal(signal.SIGSTOP)
        restore(url, tmp_path / "restored", verify=False)
        with holdfast.open(tmp_path / "restored", replica=url) as store:
            store.queue("work").put(b"of the second owner")
            store.replica.ship()
            before = [moment for moment in find_moments(url) if moment.epoch == 1]
            process.send_signal(signal.SIGCONT)
            last = next(words for line in process.stdout if (words := line.split())[2] != "owner")
            assert last[2] == "fenced"
            after = [moment for moment in find_moments(url) if moment.epoch == 1]
            assert len(after) <= len(before) + 1, "a request that it had begun may end, and no more"
            store.replica.ship()
            assert store.replica.status().ok
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    assert verify_replica(url, everything=True).ok


def test_a_server_that_is_gone_for_a_while_loses_nothing(
    seaweed: Seaweed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in seaweed.environment().items():
        monkeypatch.setenv(name, value)
    url = f"s3://tests/away/{next(_numbers)}"
    with holdfast.open(tmp_path / "data", replica=url) as store:
        store.queue("work").put(b"before")
        store.replica.ship()
        monkeypatch.setattr(ObjectStorageBucket, "put", unavailable)
        store.queue("work").put(b"meanwhile")
        with pytest.raises(ReplicaError, match="not available"):
            store.replica.ship()
        assert store.replica.status().lag_records > 0
        monkeypatch.undo()
        for name, value in seaweed.environment().items():
            monkeypatch.setenv(name, value)
        store.replica.ship()
        assert store.replica.status().ok
    assert restore(url, tmp_path / "restored").queues == {"work": 2}


def unavailable(*_: object) -> None:
    from holdfast import ReplicaUnavailable

    raise ReplicaUnavailable("s3://tests: S3 is not available (HTTP 503 SlowDown)")
