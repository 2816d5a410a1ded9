"""Tiered logs on a real disk, with a bucket in a folder: other processes, backups, Spark's reader, and bounds."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from holdfast import Flush, Log, Retention, Roll, Store
from holdfast.backup.restore import restore_backup
from holdfast.log.record import Damage
from holdfast.log.remote_segments import REMOTE
from holdfast.verification import verify_store
from tests.replica.tiered import payloads
from tests.replica.tiered_log import disk_of
from tests.tiers import ALL

_READ = """
import sys, tempfile, holdfast
with holdfast.open(sys.argv[1], read_only=True) as store:
    log = store.log("events")
    print(len(list(log.read())), log.stats().remote_segments, log.verify().ok)
"""


class Real:
    """A store with a log of 40 records, of which eight of ten segments are only in a folder that serves as bucket."""

    def __init__(self, folder: Path) -> None:
        self.path, self.bucket = folder / "data", folder / "bucket"
        self.store = self.open()
        self.fill(self.log)
        self.store.replica.ship()

    def open(self) -> Store:
        return holdfast.open(self.path, replica=self.bucket.as_uri())

    @property
    def log(self) -> Log:
        policy = Retention(max_segments=2)
        return self.store.log("events", roll=Roll.count(4), flush=Flush.sync(), local_retention=policy)

    def fill(self, log: Log) -> None:
        for payload in payloads(40):
            log.append(payload)


@pytest.fixture
def real(tmp_path: Path):  # type: ignore[no-untyped-def]
    one = Real(tmp_path)
    yield one
    one.store.close()


def run(*command: str, temporary: Path) -> str:
    temporary.mkdir(exist_ok=True)
    done = subprocess.run(
        [sys.executable, *command],
        check=False,
        env=os.environ | {"TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_another_process_reads_what_is_in_the_bucket_and_leaves_nothing_behind(real: Real, tmp_path: Path) -> None:
    assert run("-c", _READ, str(real.path), temporary=tmp_path / "temporary").split() == ["40", "8", "True"]
    assert list((tmp_path / "temporary").iterdir()) == []


def test_what_a_killed_process_left_in_its_cache_is_deleted(real: Real, tmp_path: Path) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    left = tmp_path / "temporary" / f"holdfast-cache-{os.getuid()}-{gone.pid}-x"
    left.mkdir(parents=True)
    (left / "1.part").write_bytes(b"left")
    run("-c", _READ, str(real.path), temporary=tmp_path / "temporary")
    assert not left.exists()


def test_commands_show_and_verify_what_is_where(real: Real, tmp_path: Path) -> None:
    shown = run("-m", "holdfast", "log", "stats", "events", "--data", str(real.path), temporary=tmp_path / "temporary")
    assert "in the replica" in shown
    assert shown.count("(replica)") == 8
    said = run(
        "-m", "holdfast", "log", "stats", "events", "--data", str(real.path), "--json", temporary=tmp_path / "temporary"
    )
    found = json.loads(said)
    assert found["remote_segments"] == 8
    assert [one["remote"] for one in found["segment_files"]] == [True] * 8 + [False] * 2
    run("-m", "holdfast", "verify", "--data", str(real.path), temporary=tmp_path / "temporary")


def test_a_reader_of_another_opening_goes_on_while_segments_leave_the_disk(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data", background=False, replica=(tmp_path / "bucket").as_uri()) as store:
        policy = Retention(max_segments=2)
        log = store.log("events", roll=Roll.count(4), flush=Flush.sync(), local_retention=policy)
        for payload in payloads(40):
            log.append(payload)
        with holdfast.open(tmp_path / "data", read_only=True) as view:
            early, late = view.log("events").tailer(), view.log("events")
            assert early.read() is not None
            store.replica.ship()
            assert log.stats().remote_segments == 8
            assert [record.payload for record in early] == payloads(40, 1)
            assert [record.payload for record in late.read()] == payloads(40)
            assert late.sequence_at(late.time_of(9) or 0) <= 9
            log.append(b"record 40")
            assert [record.payload for record in late.read()] == payloads(41)
            assert not view.log("events").damage


def test_the_store_is_verified_with_what_is_in_the_bucket(real: Real) -> None:
    found = verify_store(real.path)
    assert found.ok
    assert found.records >= 40
    objects = sorted((real.bucket / "logs" / "events").rglob("*.0-*"))
    objects[3].write_bytes(b"somebody was here")
    real.store.close()  # and with it what it has in its cache
    (problem,) = verify_store(real.path).problems
    assert objects[3].name in problem.text


def test_a_backup_contains_what_is_in_the_bucket_and_fetches_it_once(real: Real, tmp_path: Path) -> None:
    first = real.store.backup(tmp_path / "backups")
    fetched = fetched_bytes(real.store)
    assert fetched > 0
    real.log.append(b"record 40")
    again = real.store.backup(tmp_path / "backups")
    assert fetched_bytes(real.store) == fetched, "the first backup has these segments"
    assert again.reused_files >= 8
    for report, count in ((first, 40), (again, 41)):
        restored = tmp_path / f"restored-{count}"
        assert restore_backup(report.path, restored).ok
        assert not list(restored.rglob(REMOTE))
        with holdfast.open(restored, read_only=True) as store:
            assert [record.payload for record in store.log("events").read()] == payloads(count)


def fetched_bytes(store: Store) -> float:
    values = {one.name: one.value for one in store.metrics.collect()}
    return float(values["holdfast_replica_cache_fetched_bytes_total"])  # type: ignore[arg-type]


def test_a_backup_of_a_log_that_is_not_open_contains_it_too(real: Real, tmp_path: Path) -> None:
    real.store.close()
    real.store = real.open()
    report = real.store.backup(tmp_path / "backups")
    restore_backup(report.path, tmp_path / "restored")
    with holdfast.open(tmp_path / "restored", read_only=True) as store:
        assert [record.payload for record in store.log("events").read()] == payloads(40)


def test_spark_reads_in_place(real: Real) -> None:
    pytest.importorskip("pyarrow")
    from holdfast.spark.partitions import Wanted, look, plan, read_stretches, shares

    with holdfast.open(real.path, read_only=True) as view:
        picture = look(view.log("events"), durable=True)
        stretches = plan(picture, 0, 40)
    found: list[bytes] = []
    for share in shares(stretches, 3):
        for block, start, stop in read_stretches(share, Wanted()):
            found += block.payloads(start, stop)
    assert found == payloads(40)


def test_spark_reads_what_left_the_disk_after_it_was_planned(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    from holdfast.spark.partitions import Wanted, look, plan, read_stretches

    with holdfast.open(tmp_path / "data", background=False, replica=(tmp_path / "bucket").as_uri()) as store:
        policy = Retention(max_segments=2)
        log = store.log("events", roll=Roll.count(4), flush=Flush.sync(), local_retention=policy)
        for payload in payloads(40):
            log.append(payload)
        with holdfast.open(tmp_path / "data", read_only=True) as view:
            stretches = plan(look(view.log("events"), durable=True), 6, 34)
        store.replica.ship()
        wanted = Wanted()
        found = [one for b, start, stop in read_stretches(stretches, wanted) for one in b.payloads(start, stop)]
        assert found == payloads(34, 6)
        assert wanted.damage == list[Damage]()


def test_a_log_is_ten_times_as_long_as_its_disk(tmp_path: Path) -> None:
    """40 MB on a disk of 4 MB, with a cache of 2 MB; with HOLDFAST_TEST_ALL, 2 GB on 200 MB."""
    size, local, cache = (2_000_000_000, 100_000_000, 48_000_000) if ALL else (40_000_000, 4_000_000, 2_000_000)
    data, bucket = tmp_path / "data", tmp_path / "bucket"
    command = [sys.executable, "-m", "tests.replica.tiered_log", str(data), bucket.as_uri(), str(size), str(local)]
    done = subprocess.run([*command, str(cache)], check=False, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["bytes"] > size
    assert found["remote_bytes"] > size - local
    assert found["cache_bytes"] <= cache
    reserve = (data / "reserve").stat().st_size
    assert found["disk_max"] < reserve + local * 1.5 + cache, "what is not shipped yet is there, too"
    assert found["memory_max"] < found["memory_before"] + (200 << 20), "uploads, and the bodies of the queue"
    assert disk_of(data / "logs") < local * 1.1
