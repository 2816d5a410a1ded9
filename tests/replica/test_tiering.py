"""Local retention: old segments are only in the bucket, and are read from there as if they were on the disk."""

import errno

import pytest

import holdfast
from holdfast import Retention, Roll
from holdfast.base.errors import Corrupt, InvalidArgument, ReplicaError, ReplicaUnavailable, StorageError
from holdfast.log.remote_segments import read_remote
from holdfast.replica import restore
from holdfast.replica.manifest import list_moments, read_manifest
from holdfast.testing import SimClock, SimFiles
from tests.replica.tiered import EACH, LOCAL, PATH, Tiered, payloads


@pytest.fixture
def tiered() -> Tiered:
    """A log of 40 records, of which the last two segments are on the disk."""
    one = Tiered()
    one.append(40)
    one.ship()
    return one


def test_shipped_segments_leave_the_disk_and_are_read_from_the_bucket(tiered: Tiered) -> None:
    log = tiered.log
    assert tiered.on_disk() == LOCAL
    assert [record.payload for record in log.read()] == payloads(40)
    assert [record.payload for record in log.read(reverse=True)] == payloads(40)[::-1]
    assert [record.payload for record in log.read(6, 9)] == payloads(9, 6)
    assert log.verify().ok
    assert log.verify().records == 40
    assert not log.damage


def test_figures_say_what_is_where(tiered: Tiered) -> None:
    stats = tiered.log.stats()
    assert (stats.segments, stats.remote_segments, stats.start, stats.records) == (10, 8, 0, 40)
    assert [one.remote for one in tiered.log.segments()] == [True] * 8 + [False] * 2
    assert stats.remote_bytes == sum(one.bytes for one in tiered.log.segments() if one.remote)
    assert stats.first_timestamp == next(tiered.log.read()).timestamp
    values = {sample.name: sample.value for sample in tiered.store.metrics.collect()}
    assert values["holdfast_replica_remote_bytes"] == stats.remote_bytes
    assert values["holdfast_replica_cache_fetched_bytes_total"] == values["holdfast_replica_cache_bytes"] != 0


def test_figures_need_no_request(tiered: Tiered) -> None:
    tiered.store.close()
    tiered.open()
    tiered.bucket.outage()
    assert tiered.log.stats().first_timestamp is not None
    assert len(tiered.log.segments()) == 10


def test_times_and_positions_are_found_in_the_bucket(tiered: Tiered) -> None:
    log = tiered.log
    for record in list(log.read()):
        assert log.time_of(record.sequence) == record.timestamp
        assert log.sequence_at(record.timestamp) == record.sequence
    tailer = log.tailer("reader")
    tailer.seek(13)
    assert tailer.read().payload == b"record 13"  # type: ignore[union-attr]
    tailer.commit()
    assert [record.sequence for record in log.tailer("reader")] == list(range(14, 40))


def test_a_byte_in_the_bucket_is_inspected(tiered: Tiered) -> None:
    stem = tiered.log.segments()[1].name
    found = tiered.log.inspect(64, stem)
    assert found.what == "block header"
    assert found.details["first_sequence"] == EACH


def test_a_reader_goes_on_while_its_segments_leave_the_disk() -> None:
    tiered = Tiered()
    tiered.append(40)
    reader, tailer = tiered.log.read(), tiered.log.tailer()
    read = [next(reader).payload, next(reader).payload]
    assert tailer.read() is not None
    assert tiered.on_disk() == 10
    tiered.ship()
    assert tiered.on_disk() == LOCAL
    assert read + [record.payload for record in reader] == payloads(40)
    assert [record.payload for record in tailer] == payloads(40, 1)


def test_nothing_leaves_the_disk_before_a_manifest_in_the_bucket_names_it() -> None:
    tiered = Tiered()
    tiered.append(40)
    for operation, key in (("put", "*"), ("put_if_absent", "manifest/*")):
        tiered.bucket.fail(operation, pattern=key)
        with pytest.raises(ReplicaUnavailable):
            tiered.ship()
        assert tiered.on_disk() == 10
        assert read_remote(tiered.files, tiered.log.folder).entries == ()
    tiered.ship()
    assert tiered.on_disk() == LOCAL


def test_local_retention_by_bytes_makes_segments_small() -> None:
    tiered = Tiered()
    log = tiered.store.log("bytes", local_retention=Retention(max_bytes=1 << 20))
    for _ in range(300):
        log.append(bytes(10_000))
        log.sync()
    tiered.ship()
    local = [one.bytes for one in log.segments() if not one.remote]
    assert sum(local) <= 1 << 20
    assert max(one.bytes for one in log.segments()) <= 1 << 17
    assert len(list(log.read())) == 300


def test_local_retention_by_age() -> None:
    tiered = Tiered()
    log = tiered.store.log("aged", roll=Roll.count(1), local_retention=Retention(max_age=60))
    log.append(b"old")
    tiered.clock.advance(30)
    log.append(b"newer")
    tiered.ship()
    assert not log.stats().remote_segments
    tiered.clock.advance(61)
    log.append(b"newest")
    tiered.ship()
    assert [one.remote for one in log.segments()] == [True, False, False]


def test_the_default_of_the_store_holds_for_logs_without_their_own() -> None:
    tiered = Tiered()
    tiered.store.close()
    tiered.open(local_retention=Retention(max_segments=3))
    one, other = tiered.store.log("one", roll=Roll.count(1)), tiered.log
    for number in range(6 * EACH):
        one.append(b"%d" % number)
        other.append(b"%d" % number)
    tiered.ship()
    assert (tiered.on_disk("one"), tiered.on_disk()) == (3, LOCAL)


def test_without_a_replica_it_has_no_effect() -> None:
    tiered = Tiered()
    tiered.store.close()
    tiered.open(replica=None)
    tiered.append(40)
    tiered.store.tick()
    assert tiered.on_disk() == 10


def test_a_store_that_is_opened_without_the_replica_says_what_to_do_and_appends(tiered: Tiered) -> None:
    tiered.store.close()
    tiered.open(replica=None)
    tiered.append(1)
    with pytest.raises(ReplicaError, match=r"only in .*: open the store with replica="):
        next(tiered.log.read())
    with pytest.raises(ReplicaError, match="open the store with replica="):
        tiered.log.sequence_at(tiered.log.stats().first_timestamp or 0)
    assert [record.payload for record in tiered.log.read(36)] == payloads(41, 36)
    tiered.store.close()
    tiered.open()
    assert [record.payload for record in tiered.log.read()] == payloads(41)


def test_another_bucket_is_refused(tiered: Tiered) -> None:
    tiered.store.close()
    with pytest.raises(ReplicaError, match="lacks 8 objects with records of logs/events"):
        tiered.open(replica=Tiered().bucket)


def test_a_bucket_that_is_away_stops_a_reader_which_then_goes_on(tiered: Tiered) -> None:
    tailer = tiered.log.tailer()
    read = [record.payload for record in tailer.read_many(6)]
    tiered.bucket.outage()
    with pytest.raises(ReplicaUnavailable):
        read.extend(record.payload for record in tailer)
    assert len(read) < 40
    tiered.append(1)
    tiered.bucket.heal()
    read.extend(record.payload for record in tailer)
    assert read == payloads(41)
    assert not tiered.log.damage


@pytest.mark.parametrize("content", [None, b"", b"something else", "flip"])
def test_an_object_that_somebody_changed_is_damage_that_names_it(tiered: Tiered, content: bytes | str | None) -> None:
    key = tiered.objects()[2]
    whole = tiered.bucket.snapshot()[key]
    tiered.bucket.change(key, bytes([*whole[:-9], whole[-9] ^ 1, *whole[-8:]]) if content == "flip" else content)  # type: ignore[arg-type]
    lost = range(2 * EACH, 3 * EACH)
    assert [record.sequence for record in tiered.log.tailer()] == [n for n in range(40) if n not in lost]
    (damage,) = tiered.log.damage
    assert key in str(damage)
    assert tiered.bucket.url in damage.path
    assert (damage.first_lost, damage.lost) == (lost.start, EACH)
    assert len(tiered.log.verify().damage) == 1


def test_retention_drops_what_is_only_in_the_bucket(tiered: Tiered) -> None:
    assert tiered.log.compact(retention=Retention(max_segments=5)) == 5
    assert tiered.log.start == 20
    assert [one.base for one in read_remote(tiered.files, tiered.log.folder).entries] == [20, 24, 28]
    tiered.ship()
    (entry,) = read_manifest(tiered.bucket, list_moments(tiered.bucket)[-1]).logs
    assert [one.base for one in entry.segments] == [20, 24, 28, 32, 36]
    tiered.store.close()
    tiered.open()
    assert [record.payload for record in tiered.log.read()] == payloads(40, 20)


def test_objects_of_remote_segments_are_never_garbage(tiered: Tiered) -> None:
    before = tiered.objects()
    tiered.log.compact(retention=Retention(max_segments=5))
    for _ in range(3):
        tiered.clock.advance(8 * 86_400)
        tiered.append(1)
        tiered.ship()
    assert [record.payload for record in tiered.log.read()] == payloads(43, 20)
    assert not tiered.log.damage
    assert set(before) & set(tiered.objects()) == set(before[5:]), "the others were dropped, and are deleted"


def test_objects_survive_a_newest_manifest_that_is_lost(tiered: Tiered) -> None:
    early = list_moments(tiered.bucket)
    tiered.append(8)
    tiered.ship()
    tiered.store.close()
    for moment in list_moments(tiered.bucket):
        if moment not in early:
            tiered.bucket.change(moment.key, b"damaged")
    tiered.open()
    for _ in range(3):
        tiered.clock.advance(8 * 86_400)
        tiered.ship()
        tiered.append(1)
    assert [record.payload for record in tiered.log.read()] == payloads(51)
    assert not tiered.log.damage


@pytest.mark.parametrize("again", [False, True])
def test_a_segment_that_could_not_be_deleted_is_read_on_the_disk_and_deleted_later(tiered: Tiered, again: bool) -> None:
    tiered.append(4)
    tiered.files.fail("remove", errno.EIO, pattern="*.data")
    tiered.ship()  # the failure is logged
    assert tiered.on_disk() == LOCAL + 1
    if again:
        tiered.store.close()
        tiered.open()
    tiered.ship()
    assert tiered.on_disk() == LOCAL
    assert [record.payload for record in tiered.log.read()] == payloads(44)


def test_a_damaged_remote_json_is_named(tiered: Tiered) -> None:
    tiered.store.close()
    content = tiered.files.content(f"{PATH}/logs/events/remote.json")
    content[len(content) // 2] ^= 1
    tiered.open(replica=None)
    with pytest.raises(Corrupt, match=r"remote\.json.*restore this file from a backup"):
        _ = tiered.log


def test_a_restored_store_has_everything_on_its_disk(tiered: Tiered) -> None:
    files = SimFiles()
    restore(tiered.bucket, PATH, files=files, verify=False)
    assert not [path for path in files.snapshot() if path.endswith("remote.json")]
    with holdfast.open(PATH, files=files, clock=SimClock(), background=False) as store:
        assert [record.payload for record in store.log("events").read()] == payloads(40)
        assert not store.log("events").stats().remote_segments


def test_a_full_disk_stops_a_reader_and_nothing_else(tiered: Tiered) -> None:
    tiered.files.fail("write", errno.ENOSPC, pattern="*cache*")
    with pytest.raises(StorageError, match="cache"):
        next(tiered.log.read())
    assert [record.payload for record in tiered.log.read()] == payloads(40)


def test_what_an_earlier_process_left_in_the_cache_is_deleted(tiered: Tiered) -> None:
    list(tiered.log.read())
    assert len(cached(tiered.files)) == 8
    killed = tiered.files.after_crash("prefix")
    assert cached(killed)
    tiered.files = killed
    tiered.open(replica=tiered.bucket.after_stop())
    next(tiered.log.read())
    assert len(cached(tiered.files)) == 1
    tiered.store.close()
    assert not cached(tiered.files)


def cached(files: SimFiles) -> list[str]:
    return [path for path in files.snapshot() if "/cache/" in path]


def test_the_backlog_of_a_queue_stays_on_the_disk() -> None:
    tiered = Tiered()
    settings = {"roll": Roll.count(EACH), "local_retention": Retention(max_segments=LOCAL)}
    queue = tiered.store.queue("work", **settings)  # type: ignore[arg-type]
    queue.put_many(payloads(EACH))
    for number in range(EACH, 40):
        queue.put(b"record %d" % number)
    tiered.ship()
    assert tiered.on_disk("work") == 10
    for message in queue.lease(20):
        message.ack()
    queue.checkpoint()
    tiered.append(1)  # so that there is a new moment
    tiered.ship()
    assert tiered.on_disk("work") == 5
    tiered.bucket.outage()
    assert [message.payload for message in queue.lease(100)] == payloads(40, 20)


def test_a_queue_replays_messages_from_the_bucket() -> None:
    tiered = Tiered()
    settings = {"roll": Roll.count(EACH), "local_retention": Retention(max_segments=LOCAL)}
    queue = tiered.store.queue("work", **settings)  # type: ignore[arg-type]
    for number in range(40):
        queue.put(b"record %d" % number)
    for message in queue.lease(40):
        message.ack()
    queue.checkpoint()
    tiered.append(1)
    tiered.ship()
    assert tiered.on_disk("work") == LOCAL
    queue.seek(0)
    assert [message.payload for message in queue.lease(100)] == payloads(40)


def test_tables_stay_on_the_disk() -> None:
    from tests.replica.work import Account

    with pytest.raises(InvalidArgument, match="cannot have a local_retention"):
        Tiered().store.table(Account, local_retention=Retention(max_segments=1))


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="local_retention must be a Retention"):
        Tiered().store.log("events", local_retention=5)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="remote_cache"):
        Tiered().open(remote_cache=0)
