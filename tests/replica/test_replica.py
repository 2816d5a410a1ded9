"""What ships and what does not: existing stores, moments, outages, damage, garbage, retention, figures."""

import gc
import itertools
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path, PurePath
from time import monotonic, sleep
from typing import Any

import pytest

import holdfast
from holdfast import (
    Corrupt,
    DiskFull,
    Flush,
    InvalidArgument,
    NotFound,
    ReplicaError,
    ReplicaUnavailable,
    Retention,
    Roll,
    Store,
)
from holdfast.base.clock import NS
from holdfast.replica import find_moments, overview, restore, verify_replica
from holdfast.replica.garbage import kept_moments
from holdfast.replica.manifest import Moment, Part, read_manifest
from holdfast.replica.parts import FULL, plan_parts
from holdfast.replica.replica import Replica
from holdfast.testing import SimBucket, SimClock, SimFiles
from tests.replica.work import PATH, Account, described, restored

REQUESTS = "holdfast_replica_requests_total"


class Machine:
    """A simulated machine with a store that is shipped."""

    def __init__(self, bucket: SimBucket | None = None) -> None:
        self.clock = SimClock()
        self.files = SimFiles()
        self.bucket = bucket or SimBucket(clock=self.clock)

    def open(self, *, shipped: bool = True) -> Store:
        bucket = self.bucket if shipped else None
        return holdfast.open(PATH, files=self.files, clock=self.clock, background=False, replica=bucket)


def replica_of(store: Store) -> Replica:
    return store.replica


@pytest.fixture
def machine() -> Machine:
    return Machine()


def test_a_store_without_a_replica_says_how_to_get_one(machine: Machine) -> None:
    with machine.open(shipped=False) as store:
        assert not store.is_replicated
        with pytest.raises(InvalidArgument, match="open it with replica=URL"):
            _ = store.replica
    with machine.open() as store:
        assert store.is_replicated and store.replica.status().ok


def test_a_store_that_exists_already_is_shipped_from_its_beginning(machine: Machine) -> None:
    with machine.open(shipped=False) as store:
        store.log("events", roll=Roll.count(2)).append_many([b"%d" % number for number in range(9)])
        store.queue("work").put_many([b"a", b"b"])
        accounts: Any = store.table(Account)
        accounts.add({"name": "ann"})
        before = described(store)
    with machine.open() as store:  # nothing of it is opened
        replica_of(store).ship()
    assert restored(machine.bucket)[1] == before


def test_a_log_that_is_opened_and_closed_again_is_read_again(machine: Machine) -> None:
    with machine.open(shipped=False) as store:
        accounts: Any = store.table(Account)
        accounts.add({"name": "ann"})
    with machine.open() as store:
        replica_of(store).ship()
        accounts = store.table(Account)
        accounts.add({"name": "bob"})
        replica_of(store).ship()
        now = described(store)
    assert restored(machine.bucket)[1] == now


def test_what_a_crash_left_torn_is_not_shipped(machine: Machine) -> None:
    with machine.open(shipped=False) as store:
        store.log("events").append(b"whole")
    [segment] = [path for path in machine.files.snapshot() if path.endswith(".data")]
    machine.files.content(segment).extend(b"HFB\x01 torn")
    with machine.open() as store:
        replica_of(store).ship()
    files, found = restored(machine.bucket)
    assert found["log events"] == [b"whole"]
    assert b"torn" not in files.snapshot()[segment]


def test_records_that_are_in_memory_under_a_weak_flush_mode_are_synced_and_shipped(machine: Machine) -> None:
    with machine.open() as store:
        log = store.log("events", flush=Flush.async_())
        log.append(b"in memory")
        replica_of(store).ship()
        after = machine.files.after_crash("dropped")
        assert restored(machine.bucket)[1]["log events"] == [b"in memory"]
    with holdfast.open(PATH, files=after, clock=machine.clock, background=False) as store:
        assert [record.payload for record in store.log("events").read()] == [b"in memory"]


def test_a_queue_opens_from_its_log_and_journal_alone_after_the_journal_was_shortened(machine: Machine) -> None:
    with machine.open() as store:
        queue = store.queue("work", history=86_400, max_attempts=None)
        for day in range(4):
            queue.put_many([b"%d-a" % day, b"%d-b" % day])
            [message] = queue.lease(1, lease=10)
            message.ack()
            machine.clock.advance(86_400)
            queue.checkpoint()
            replica_of(store).ship()
        assert queue.history.hand_over().start > 0, "the journal has its beginning"
        now = described(store)
    assert restored(machine.bucket)[1] == now
    assert not any("state/" in key for key in machine.bucket.snapshot())


def test_any_kept_moment_is_restored(machine: Machine) -> None:
    times = []
    with machine.open() as store:
        for number in range(3):
            store.log("events").append(b"%d" % number)
            replica_of(store).ship()
            times.append(machine.clock.time_ns())
            machine.clock.advance(60)
    for number, time in enumerate(times):
        at = datetime.fromtimestamp(time / 1e9, UTC)
        assert restored(machine.bucket, at=at)[1]["log events"] == [b"%d" % one for one in range(number + 1)]
    names = [moment.name for moment in find_moments(machine.bucket)]
    assert restored(machine.bucket, moment=names[0])[1]["log events"] == [b"0"]
    with pytest.raises(NotFound, match="no moment of that time: the oldest is of 2026-01-01"):
        restore(machine.bucket, "other", at=datetime(2020, 1, 1, tzinfo=UTC), files=SimFiles())
    with pytest.raises(NotFound, match="has no moment 9-9"):
        restore(machine.bucket, "other", moment="9-9", files=SimFiles())
    with pytest.raises(InvalidArgument, match="EPOCH-NUMBER"):
        restore(machine.bucket, "other", moment="yesterday", files=SimFiles())


def test_an_earlier_moment_is_not_shipped_over_the_newer_ones(machine: Machine) -> None:
    with machine.open() as store:
        for number in range(2):
            store.log("events").append(b"%d" % number)
            replica_of(store).ship()
    files = SimFiles(1)
    first = find_moments(machine.bucket)[0].name
    assert not restore(machine.bucket, PATH, moment=first, files=files, verify=False).is_newest
    with pytest.raises(ReplicaError, match="another store"):
        holdfast.open(PATH, files=files, clock=SimClock(), background=False, replica=machine.bucket)
    holdfast.open(PATH, files=files, clock=SimClock(), background=False, replica=SimBucket()).close()


def test_an_older_copy_of_the_store_is_refused(machine: Machine) -> None:
    with machine.open() as store:
        store.log("events").append(b"one")
    older = machine.files.after_crash("prefix")
    with machine.open() as store:
        store.log("events").append(b"two")
    machine.files = older
    with pytest.raises(ReplicaError, match="It has nothing that the replica lacks"):
        machine.open()


def test_an_older_copy_that_has_other_records_in_other_segments_is_refused(machine: Machine) -> None:
    with machine.open() as store:
        log = store.log("events", roll=Roll.count(3))
        for number in range(3):
            log.append(b"%d" % number)
    older = machine.files.after_crash("prefix")
    with machine.open() as store:
        store.log("events", roll=Roll.count(3)).append(b"of the owner")
    machine.files = older
    with machine.open(shipped=False) as store:
        log = store.log("events", roll=Roll.count(3))
        for _ in range(2):
            log.append(b"of the copy")
    with pytest.raises(ReplicaError, match="2 records of logs/events from"):
        machine.open()


def test_appends_go_on_while_the_bucket_is_away_and_are_shipped_afterwards(machine: Machine) -> None:
    with machine.open() as store:
        log = store.log("events")
        log.append(b"before")
        replica_of(store).ship()
        machine.bucket.outage()
        for number in range(20):
            log.append(b"%d" % number)
            machine.clock.advance(180)
            store.tick()
        status = replica_of(store).status()
        assert not status.ok
        assert "no answer" in (status.error or "")
        assert status.lag_records == 20
        assert status.lag_bytes > 0
        assert status.lag_seconds > 3000
        machine.bucket.heal()
        machine.clock.advance(60)
        store.tick()
        status = replica_of(store).status()
        assert (status.ok, status.lag_records, status.lag_bytes, status.lag_seconds) == (True, 0, 0, 0)
        now = described(store)
        assert restored(machine.bucket)[1] == now


def test_a_store_opens_while_the_bucket_is_away(machine: Machine) -> None:
    machine.bucket.outage()
    with machine.open() as store:
        store.log("events").append(b"one")
        with pytest.raises(ReplicaUnavailable):
            replica_of(store).ship()
        assert replica_of(store).status().role == "none"
        machine.bucket.heal()
        replica_of(store).ship()
        assert replica_of(store).status().ok
    assert restored(machine.bucket)[1]["log events"] == [b"one"]


def test_what_was_uploaded_before_a_failure_is_not_uploaded_again(machine: Machine) -> None:
    with machine.open() as store:
        for number in range(4):
            store.log(f"log {number}").append(b"x")
        machine.bucket.fail("put", skip=2)
        with pytest.raises(ReplicaUnavailable):
            replica_of(store).ship()
        replica_of(store).ship()
        puts = [one for one in machine.bucket.trace if one.startswith("put ")]
    assert len(puts) == 5
    assert len(set(puts)) == 4


def test_quiet_logs_cost_no_requests(machine: Machine) -> None:
    with machine.open() as store:
        logs = [store.log(f"log {number}") for number in range(50)]
        for log in logs:
            log.append(b"x")
        replica_of(store).ship()
        before = machine.bucket.operations
        for _ in range(10):
            replica_of(store).ship()
        assert machine.bucket.operations == before
        logs[7].append(b"y")
        replica_of(store).ship()
        assert machine.bucket.operations == before + 2, "one part and one manifest"


def test_verify_finds_objects_that_somebody_has_changed_or_deleted(machine: Machine) -> None:
    with machine.open() as store:
        store.log("events").append(b"one")
        replica_of(store).ship()
        store.log("events").append(b"two")
        replica_of(store).ship()
    assert verify_replica(machine.bucket, everything=True).ok
    first, second = [key for key in machine.bucket.snapshot() if key.startswith("logs/events/")]
    content = machine.bucket.snapshot()[second]
    machine.bucket.change(second, content[:-1] + b"?")
    found = verify_replica(machine.bucket, everything=True)
    assert [problem for problem in found.problems if "checksum does not match" in problem] == found.problems
    assert list(found.damaged) == [find_moments(machine.bucket)[-1].name]
    files = SimFiles()
    with pytest.raises(Corrupt, match="checksum does not match"):
        restore(machine.bucket, PATH, files=files)
    assert not files.exists(Path(PATH)), "a folder was made"
    machine.bucket.change(second, content[:-1])
    assert "bytes instead of" in verify_replica(machine.bucket).problems[0]
    machine.bucket.change(first, None)
    assert len(verify_replica(machine.bucket, everything=True).damaged) == 2
    [last] = [moment.key for moment in find_moments(machine.bucket)][-1:]
    machine.bucket.change(last, b"nonsense")
    assert any("manifest" in problem for problem in verify_replica(machine.bucket).problems)


def test_a_restore_that_fails_leaves_no_folder(machine: Machine) -> None:
    with machine.open() as store:
        store.log("events").append(bytes(10_000))
    files = SimFiles()
    files.capacity = 5_000
    with pytest.raises(DiskFull):
        restore(machine.bucket, PATH, files=files)
    assert not files.exists(Path(PATH))
    files.capacity = None
    machine.bucket.fail("get", pattern="logs/*")
    with pytest.raises(ReplicaUnavailable):
        restore(machine.bucket, PATH, files=files)
    assert not files.exists(Path(PATH))
    assert restore(machine.bucket, PATH, files=files).ok
    with pytest.raises(InvalidArgument, match="exists already"):
        restore(machine.bucket, PATH, files=files)


def test_a_store_whose_newest_manifest_is_damaged_is_shipped_on(machine: Machine) -> None:
    with machine.open() as store:
        store.log("events").append(b"one")
        replica_of(store).ship()
        store.log("events").append(b"two")
    last = find_moments(machine.bucket)[-1]
    machine.bucket.change(last.key, b"nonsense")
    with machine.open() as store:
        replica_of(store).ship()
    assert restored(machine.bucket)[1]["log events"] == [b"one", b"two"]


def test_garbage_is_collected_and_every_kept_moment_can_still_be_restored(machine: Machine) -> None:
    with machine.open() as store:
        log = store.log("events", roll=Roll.count(50), retention=Retention(max_segments=3))
        for number in range(400):
            log.append(b"%d" % number)
            machine.clock.advance(400)
            store.tick()
        moments = find_moments(machine.bucket)
        assert verify_replica(machine.bucket, everything=True).ok
    assert len(moments) < 300
    objects = {key for key in machine.bucket.snapshot() if key.startswith("logs/")}
    assert overview(machine.bucket).objects == len(objects) + len(moments) + 1
    named = set().union(*(read_manifest(machine.bucket, moment).keys() for moment in moments))
    assert named <= objects
    assert len(objects - named) < 20, "only what the last moments have dropped waits to be deleted"
    for moment in moments[::40]:
        restore(machine.bucket, PATH, moment=moment.name, files=SimFiles())


def test_a_moment_that_was_never_put_takes_the_place_of_no_other(machine: Machine) -> None:
    with machine.open() as store:
        log = store.log("events")
        log.append(b"one")
        replica_of(store).ship()
        first = find_moments(machine.bucket)[-1]
        for _ in range(3):
            log.append(b"more")
            machine.bucket.fail("put_if_absent", pattern="manifest/*")
            with pytest.raises(ReplicaUnavailable):
                replica_of(store).ship()
        for _ in range(4):
            machine.clock.advance(40_000)
            log.append(b"later")
            replica_of(store).ship()
        assert first in find_moments(machine.bucket), "it was the only one of its hour"
        assert verify_replica(machine.bucket, everything=True).ok


def test_a_moment_that_an_earlier_owner_put_too_late_is_removed(machine: Machine) -> None:
    with machine.open() as store:
        store.log("events").append(b"one")
        replica_of(store).ship()
    last = find_moments(machine.bucket)[-1]
    with machine.open() as store:
        replica_of(store).ship()
        late = last._replace(number=last.number + 1)
        machine.bucket.change(late.key, b"of the first owner")
        machine.clock.advance(700)
        store.log("events").append(b"two")
        replica_of(store).ship()
        assert late not in find_moments(machine.bucket)


def test_garbage_of_a_round_that_was_cut_off_is_collected_by_the_next_owner(machine: Machine) -> None:
    with machine.open() as store:
        store.log("events").append(b"one")
        replica_of(store).ship()
        machine.bucket.change("logs/events/of an earlier round.0-100.1", b"garbage")
    with machine.open() as store:
        for _ in range(3):
            store.log("events").append(b"two")
            replica_of(store).ship()
            machine.clock.advance(700)
    assert "logs/events/of an earlier round.0-100.1" not in machine.bucket.snapshot()
    assert verify_replica(machine.bucket, everything=True).ok


def test_a_moment_that_cannot_be_read_now_is_read_later_before_anything_is_deleted(machine: Machine) -> None:
    with machine.open() as store:
        log = store.log("events")
        for number in range(10):  # each has an object that no other moment names
            log.append(b"%d" % number)
            replica_of(store).ship()
            log.clear(force=True)
            replica_of(store).ship()
    with machine.open() as store:
        machine.bucket.fail("get", pattern="manifest/*", skip=6)
        replica_of(store).ship()
        assert "manifest/" in (replica_of(store).status().error or "")
        for _ in range(5):
            store.log("events").append(b"x")
            replica_of(store).ship()
            machine.clock.advance(300)
    assert verify_replica(machine.bucket, everything=True).ok


class Gate(SimBucket):
    """A bucket whose next `put` waits until it may go on."""

    def __init__(self) -> None:
        super().__init__()
        self.reached, self.opened = threading.Event(), threading.Event()
        self.closed = False

    def put(self, key: str, content: bytes) -> None:
        if self.closed:
            self.reached.set()
            assert self.opened.wait(60)
        super().put(key, content)


def test_closing_ships_what_was_written_during_a_round_that_was_running(tmp_path: Path) -> None:
    bucket = Gate()
    store = holdfast.open(tmp_path / "data", replica=bucket)
    log = store.log("events")
    replica_of(store).ship()
    bucket.closed = True
    log.append(b"of the round that runs")
    assert bucket.reached.wait(60)
    log.append(b"written meanwhile")
    closing = threading.Thread(target=store.close)
    closing.start()
    while not store.closing:
        sleep(0.001)
    threading.Timer(0.2, bucket.opened.set).start()
    closing.join()
    restore(bucket, tmp_path / "restored")
    with holdfast.open(tmp_path / "restored", background=False) as found:
        assert [record.payload for record in found.log("events").read()][-1] == b"written meanwhile"


def test_a_program_that_ends_without_closing_its_store_ships_what_it_wrote_last(tmp_path: Path) -> None:
    url = (tmp_path / "replica").as_uri()
    program = (
        "import sys, holdfast\n"
        "store = holdfast.open(sys.argv[1], replica=sys.argv[2])\n"
        "store.replica.ship()\n"
        "store.queue('work').put_many([b'first', b'last'])\n"
    )
    command = [sys.executable, "-W", "ignore", "-c", program, str(tmp_path / "data"), url]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert restore(url, tmp_path / "restored").queues == {"work": 2}


def test_a_bucket_that_hangs_keeps_no_record_from_the_disk_when_a_store_is_closed(tmp_path: Path) -> None:
    bucket = Gate()
    store = holdfast.open(tmp_path / "data", replica=bucket)
    log = store.log("events", flush=Flush.batch(interval=3600))
    replica_of(store).ship()
    bucket.closed = True
    log.append(b"of the round that hangs")
    assert bucket.reached.wait(60)
    log.append(b"in memory")
    closing = threading.Thread(target=store.close)
    closing.start()
    try:
        while not store.closing:
            sleep(0.001)
        deadline = monotonic() + 15
        while b"in memory" not in b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*.data")):
            assert monotonic() < deadline, "it is written only after the bucket has answered"
            sleep(0.01)
    finally:
        bucket.opened.set()
        closing.join()


class Wrong(SimClock):
    """A clock that tells another time than it measures."""

    ahead_ns = 0

    def time_ns(self) -> int:
        return super().time_ns() + self.ahead_ns


@pytest.mark.parametrize("reopened", [False, True])
def test_a_clock_that_jumps_ahead_deletes_no_moments(machine: Machine, reopened: bool) -> None:
    machine.clock = clock = Wrong()
    with machine.open() as store:
        for number in range(30):
            store.log("events").append(b"%d" % number)
            replica_of(store).ship()
            clock.advance(10)
        if not reopened:
            clock.ahead_ns = 30 * 86_400 * NS
            clock.advance(700)
            replica_of(store).ship()
            clock.ahead_ns = 0
    if reopened:
        clock.ahead_ns = 30 * 86_400 * NS
        with machine.open() as store:
            for _ in range(3):
                store.log("events").append(b"x")
                replica_of(store).ship()
                clock.advance(700)
    assert len([one for one in find_moments(machine.bucket) if one.epoch == 1]) >= 30


def test_moments_get_sparser_with_their_age() -> None:
    now = 10**18
    moments = [Moment(1, number, now - (100_000 - number) * 10 * NS) for number in range(100_000)]
    kept = kept_moments(moments, now, 7 * 86_400 * NS)
    assert kept[-1] == moments[-1]
    assert len([one for one in kept if now - one.time <= 3600 * NS]) == 360
    assert 1370 <= len([one for one in kept if 3600 * NS < now - one.time <= 86_400 * NS]) <= 1385
    assert 143 <= len([one for one in kept if now - one.time > 86_400 * NS]) <= 147
    assert kept_moments(kept, now, 7 * 86_400 * NS) == kept
    assert kept_moments([Moment(1, 1, 0)], now, NS) == [Moment(1, 1, 0)]


def test_of_many_moments_in_a_second_the_last_is_kept_once_they_are_a_minute_old() -> None:
    now = 10**18
    moments = [Moment(1, number, now - (120 * 30 - 1 - number) * NS // 30) for number in range(120 * 30)]
    kept = kept_moments(moments, now, 7 * 86_400 * NS)
    assert len([one for one in kept if now - one.time <= 60 * NS]) == 60 * 30 + 1
    assert 59 <= len([one for one in kept if now - one.time > 60 * NS]) <= 61
    assert kept_moments(kept, now, 7 * 86_400 * NS) == kept


@pytest.mark.parametrize(("each", "most_parts", "most_uploads"), [(200, 60, 6), (50_000, 130, 4), (1 << 20, 300, 2)])
def test_a_segment_has_few_parts_and_few_bytes_are_uploaded_again(
    each: int, most_parts: int, most_uploads: float
) -> None:
    parts: tuple[Part, ...] = ()
    uploaded = size = 0
    for _ in range(min(20_000, (256 << 20) // each)):
        size += each
        plan = plan_parts(parts, size, lambda start, limit: limit)
        added = [Part(start, stop, 0, 1) for start, stop in plan.ranges]
        uploaded += sum(part.size for part in added)
        parts = (*parts[: plan.kept], *added)
        assert len(added) == 1
        assert len(parts) <= most_parts
    assert [part.start for part in parts] == [0, *(part.stop for part in parts[:-1])]
    assert uploaded / size <= most_uploads


def test_a_large_range_is_divided_at_the_ends_of_blocks() -> None:
    ends = list(itertools.accumulate(itertools.repeat(3 << 20, 20)))
    plan = plan_parts((), ends[-1], lambda start, limit: max(end for end in ends if end <= limit))
    assert all(stop in ends and stop - start <= FULL for start, stop in plan.ranges)
    assert plan.ranges[0][0] == 0
    assert plan.ranges[-1][1] == ends[-1]


def test_retention_keeps_what_is_not_shipped_yet(machine: Machine) -> None:
    with machine.open() as store:
        log = store.log("events", roll=Roll.count(2), retention=Retention(max_segments=2))
        replica_of(store).ship()
        machine.bucket.outage()
        log.append_many([b"x"])
        for number in range(10):
            log.append(b"%d" % number)
        assert log.start == 0, "dropped before it was shipped"
        machine.bucket.heal()
        replica_of(store).ship()
        log.compact()
        assert log.start > 0
        assert replica_of(store).status().lost_records == 0
        replica_of(store).ship()
        assert restored(machine.bucket)[1]["log events"] == [record.payload for record in log.read()]


def test_on_a_full_disk_appends_win_and_the_gap_is_reported(machine: Machine) -> None:
    with machine.open() as store:
        log = store.log("events", roll=Roll.count(2))
        tailer = log.tailer("reader")
        log.append(b"first")
        tailer.commit()
        replica_of(store).ship()
        machine.bucket.outage()
        for number in range(9):
            log.append(b"%d" % number)
        tailer.to_end()
        tailer.commit()
        log.retention.shed(None, lambda: False)  # as a full disk does
        assert log.start > 1
        machine.bucket.heal()
        replica_of(store).ship()
        assert replica_of(store).status().lost_records == log.start - 1
        assert restored(machine.bucket)[1]["log events"] == [record.payload for record in log.read()]


def test_a_bucket_that_is_away_fills_no_disk_that_retention_keeps_free(machine: Machine) -> None:
    machine.files.capacity = 2_000_000
    with machine.open() as store:
        log = store.log("events", roll=Roll.count(20), retention=Retention(max_segments=3))
        replica_of(store).ship()
        machine.bucket.outage()
        for _ in range(500):  # 5 MB; without a replica 600 kB would be kept
            log.append(bytes(10_000))
        assert log.start > 0
        machine.bucket.heal()
        replica_of(store).ship()
        assert replica_of(store).status().lost_records > 0
        assert restored(machine.bucket)[1]["log events"] == [record.payload for record in log.read()]


def test_a_deleted_queue_is_gone_from_the_next_moment_and_a_new_one_of_its_name_is_another(machine: Machine) -> None:
    with machine.open() as store:
        store.queue("work").put(b"old")
        replica_of(store).ship()
        store.delete_queue("work")
        store.queue("work").put(b"new")
        replica_of(store).ship()
    names = [moment.name for moment in find_moments(machine.bucket)]
    assert [restored(machine.bucket, moment=name)[1]["queue work"][0] for name in names[:2]] == [[b"old"], [b"new"]]


@pytest.mark.parametrize("shipped", [False, True])
def test_nothing_is_kept_in_memory_of_queues_that_were_deleted(machine: Machine, shipped: bool) -> None:
    with machine.open(shipped=shipped) as store:
        store.queue("first")

        def used(numbers: range) -> int:
            for number in numbers:
                store.queue(f"short {number}").put(b"x")
                if shipped and number % 20 == 0:
                    replica_of(store).ship()
                store.delete_queue(f"short {number}")
            gc.collect()
            return sum(isinstance(one, PurePath) for one in gc.get_objects())

        before = used(range(100))
        assert used(range(100, 200)) - before < 50


def test_settings_and_positions_are_shipped(machine: Machine) -> None:
    with machine.open() as store:
        store.queue("work", max_attempts=7).put(b"x")
        tailer = store.log("events").tailer("reader")
        store.log("events").append_many([b"1", b"2"])
        tailer.read()
        tailer.commit()
        replica_of(store).ship()
        tailer.read()
        tailer.commit()  # without a record
        replica_of(store).ship()
    files, _ = restored(machine.bucket)
    with holdfast.open(PATH, files=files, clock=SimClock(), background=False) as store:
        assert store.queue("work").settings.max_attempts == 7
        assert store.log("events").tailer("reader").position == 2


def test_metrics_say_how_far_the_bucket_is_behind(machine: Machine) -> None:
    with machine.open() as store:
        store.log("events").append(b"x")
        replica_of(store).ship()
        store.log("events").append(b"y")
        status = replica_of(store).status()
        values = {sample.name: sample.value for sample in store.metrics.collect() if "replica" in sample.name}
        requests = {dict(one.labels)["kind"]: one.value for one in store.metrics.collect(names={REQUESTS})}
        roles = {dict(one.labels)["role"]: one.value for one in store.metrics.collect(names={"holdfast_replica_role"})}
    assert values["holdfast_replica_lag_records"] == 1
    assert values["holdfast_replica_up"] == 1
    assert values["holdfast_replica_epoch"] == 1
    assert requests == dict(status.requests)
    assert status.requests["put"] > 2
    assert roles == {role: float(role == "owner") for role in roles}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"confirm": "replica"}, "needs a replica"),
        ({"confirm": "nobody"}, "must be 'local' or 'replica'"),
        ({"replica": "file:///replica", "read_only": True}, "ships nothing"),
        ({"replica": "/a/folder"}, "is not the URL of a replica"),
        ({"replica": "s3://key:secret@bucket/prefix"}, "must not contain credentials"),
        ({"replica": "s3://key:a/secret@bucket/prefix"}, "must not contain credentials"),
        ({"replica": "s3://key:secret/prefix"}, "must not contain credentials"),
        ({"replica": "s3://bucket/prefix?key=secret"}, "must not contain credentials"),
        ({"replica": "s3://bucket/prefix#secret"}, "must not contain credentials"),
        ({"replica": "https://key:a/secret@bucket/prefix"}, "is not the URL of a replica"),
        ({"replica": "file://host/folder"}, "a folder of this machine"),
        ({"replica": "s3:///prefix"}, "names no bucket"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_is_opened(
    tmp_path: Path, settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidArgument, match=text) as refused:
        holdfast.open(tmp_path / "data", **settings)
    assert "secret" not in str(refused.value)
    assert not (tmp_path / "data").exists()


class Crossed(SimBucket):
    """A bucket in which a queue is deleted before its journal is read, `times` times."""

    def __init__(self, times: int) -> None:
        super().__init__(seed=1)
        self.times = times
        self.store: Store | None = None

    def put(self, key: str, content: bytes) -> None:
        super().put(key, content)
        if self.store is not None and self.times > 0:
            self.times -= 1
            self.store.delete_queue(f"z{self.times + 1}")
            self.store.queue(f"z{self.times}").put(b"short-lived")


def test_queues_that_are_deleted_under_an_upload_do_not_stop_shipping() -> None:
    clock, bucket = SimClock(), Crossed(times=4)
    with holdfast.open("data", files=SimFiles(), clock=clock, background=False, replica=bucket) as store:
        store.replica.ship()
        store.queue("a").put(b"stays")
        store.queue("z4").put(b"short-lived")
        bucket.store = store
        store.replica.ship()
        assert (bucket.times, store.replica.status().error) == (0, None)
    assert restore(bucket, "restored", files=SimFiles()).queues == {"a": 1, "z0": 1}


def test_a_missing_right_to_delete_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, bucket = SimClock(), SimBucket(seed=1)
    with holdfast.open("data", files=SimFiles(), clock=clock, background=False, replica=bucket) as store:

        def refuse(*_: object) -> None:
            raise ReplicaError("no right to delete")

        monkeypatch.setattr("holdfast.replica.garbage.Collector.tick", refuse)
        store.queue("a").put(b"1")
        store.replica.ship()
        status = store.replica.status()
        assert (status.error, status.lag_records) == ("no right to delete", 0)
        monkeypatch.undo()
        store.replica.ship()
        assert store.replica.status().error is None
