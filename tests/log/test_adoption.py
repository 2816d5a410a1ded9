"""Batches that other processes hand in: who takes them, in which order, how often, and what the owner's readers see."""

import errno
import json
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

import holdfast
from holdfast import DiskFull, Flush, Locked, Log, ReadOnly, Retention, Roll, StorageError, Store, WriterStopped
from holdfast.base.files import SystemFiles
from holdfast.log import batch_inbox
from holdfast.log.batch_inbox import BatchInbox, Manifest, Part, PartWriter
from holdfast.log.pending_block import PendingBlock
from holdfast.testing import SimClock, SimFiles


def write_parts(place: BatchInbox, manifest: Manifest, bodies: list[bytes], **extras: dict[int, object]) -> list[Part]:
    writer = PartWriter(place, manifest, None, time.time_ns())
    pending_block = PendingBlock(0, 0, 0)
    pending_block.payloads, pending_block.times, pending_block.extras = list(bodies), [0] * len(bodies), dict(extras)
    writer.write(pending_block)
    return list(writer.finish())


def hand_in(
    path: Path,
    log: str,
    bodies: list[bytes],
    *,
    batch: int = 0,
    query: str = "query",
    queue: str | None = None,
    **extras: dict[int, object],
) -> bool:
    place = BatchInbox(SystemFiles(), path)
    manifest = Manifest(log, queue, query, batch, time.time_ns())
    manifest = replace(manifest, parts=write_parts(place, manifest, bodies, **extras))
    while True:
        try:
            guard = place.guard()
            break
        except Locked:  # the owner is taking something over
            time.sleep(0.001)
    try:
        return place.hand_over(manifest)
    finally:
        guard.release()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


def payloads(store: Store, log: str) -> list[bytes]:
    return [record.payload for record in store.log(log).read()]


def test_the_background_of_the_owner_takes_a_batch(path: Path) -> None:
    with holdfast.open(path) as store:
        log = store.log("events", flush=Flush.sync())
        log.append(b"own")
        hand_in(path, "events", [b"a", b"b"])
        assert log.wait_for(2, 20)
        assert payloads(store, "events") == [b"own", b"a", b"b"]
        assert log.append(b"more") == 3


def test_a_log_that_nobody_has_open_is_opened_for_the_batch_alone(path: Path) -> None:
    with holdfast.open(path, background=False) as store:
        hand_in(path, "others", [b"a"])
        assert store.adopt() == 1
        assert store.log("others", flush=Flush.sync(), roll=Roll.count(2)).end == 1


@pytest.mark.parametrize("skip", [0, 1, 2])
def test_a_folder_that_cannot_be_listed_is_an_error_of_ours(skip: int) -> None:
    files = SimFiles()
    store = holdfast.open("data", files=files, clock=SimClock(), background=False)
    files.make_dirs(Path("data/incoming"))
    file = files.open(Path("data/incoming/x.json"), "x")
    file.write(b"{}", 0)
    files.fail("list", errno.EIO, pattern="*incoming*", skip=skip)
    with pytest.raises(StorageError, match="incoming"):
        for _ in range(3):
            store.tick()


def test_a_batch_waits_until_there_is_an_owner(path: Path) -> None:
    hand_in(path, "events", [b"a"])
    with holdfast.open(path, background=False) as store:
        assert store.adopt() == 1
        assert payloads(store, "events") == [b"a"]


def test_batches_come_in_the_order_in_which_they_were_handed_in(path: Path) -> None:
    for batch in range(12):
        hand_in(path, "events", [b"%d" % batch], batch=batch)
    with holdfast.open(path, background=False) as store:
        store.adopt()
        assert payloads(store, "events") == [b"%d" % batch for batch in range(12)]


@pytest.mark.parametrize("again", [0, 1])
def test_a_batch_that_comes_again_adds_nothing(path: Path, again: int) -> None:
    with holdfast.open(path, background=False) as store:
        assert hand_in(path, "events", [b"a"], batch=0)
        assert not hand_in(path, "events", [b"a"], batch=0), "it waits already"
        store.adopt()
        assert hand_in(path, "events", [b"b"], batch=1)
        store.adopt()
        assert not hand_in(path, "events", [b"%d" % again], batch=again), "it came in already"
        assert store.adopt() == 0
        assert payloads(store, "events") == [b"a", b"b"]
        assert not list((path / "incoming" / "parts").iterdir())


def test_each_query_and_each_log_counts_its_own_batches(path: Path) -> None:
    with holdfast.open(path, background=False) as store:
        for query in ("one", "two"):
            for log in ("a", "b"):
                assert hand_in(path, log, [query.encode()], query=query)
        assert store.adopt() == 4
        assert sorted(payloads(store, "a")) == sorted(payloads(store, "b")) == [b"one", b"two"]


@pytest.mark.parametrize("flush", [Flush.sync(), Flush.async_(), Flush.batch(bytes=100)], ids=lambda flush: flush.mode)
@pytest.mark.parametrize("size", [10, 20_000])
def test_sequences_have_no_gap_while_others_append(
    path: Path, flush: Flush, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_inbox, "PLACE_BYTES", 10_000)
    own: dict[int, bytes] = {}
    with holdfast.open(path, background=False) as store:
        log = store.log("events", flush=flush, roll=Roll.size(5000))
        stop = threading.Event()

        def append(name: int) -> None:
            number = 0
            while not stop.is_set():
                body = b"own %d %d" % (name, number)
                own[log.append(body)] = body
                number += 1

        threads = [threading.Thread(target=append, args=(name,)) for name in range(2)]
        for thread in threads:
            thread.start()
        for batch in range(8):
            hand_in(path, "events", [b"batch %d" % batch + b"x" * size] * 3, batch=batch)
            store.adopt() if batch % 2 else time.sleep(0.01)
        store.adopt()
        stop.set()
        for thread in threads:
            thread.join()
        log.sync()
        records = list(log.read())
        assert [record.sequence for record in records] == list(range(log.end))
        assert {record.sequence: record.payload for record in records if record.payload.startswith(b"own")} == own
        batches = [record.payload[:7] for record in records if record.payload.startswith(b"batch")]
        assert batches == [b"batch %d" % batch for batch in range(8) for _ in range(3)]
        assert [r.timestamp for r in records] == sorted(r.timestamp for r in records)
        assert log.verify().ok
    with holdfast.open(path, read_only=True) as reader:
        assert list(reader.log("events").read()) == records


def test_a_weaker_log_that_slept_still_flushes_what_comes_after_a_batch(path: Path) -> None:
    with holdfast.open(path) as store:
        log = store.log("events", flush=Flush.batch(bytes=1 << 20, interval=0.02))
        hand_in(path, "events", [b"a"])
        assert log.wait_for(0, 20)
        log.append(b"after")
        deadline = time.monotonic() + 180
        with holdfast.open(path, read_only=True) as reader:
            while reader.log("events").readable()[1] < 2 and time.monotonic() < deadline:
                time.sleep(0.01)
            assert payloads(reader, "events") == [b"a", b"after"]


def test_queues_on_the_log_see_the_batch_with_its_priorities_and_delays(path: Path) -> None:
    with holdfast.open(path) as store:
        queue = store.queue("work")
        queue.put(b"own")
        due = time.time_ns() + 3600 * 10**9
        hand_in(path, "work", [b"plain", b"first", b"later"], queue="work", priority={1: 9}, due={2: due})
        assert store.log("work").wait_for(3, 20)
        assert [message.payload for message in queue.lease(10)] == [b"first", b"own", b"plain"]
        assert queue.stats().delayed == 1
        assert queue.put(b"more") == 4


def test_a_queue_that_is_not_there_is_made_and_can_still_be_opened_with_settings(path: Path) -> None:
    with holdfast.open(path, background=False) as store:
        hand_in(path, "work", [b"a"], queue="work")
        store.adopt()
        assert store.queues() == ["work"]
        assert store.queue("work", lease=77).get().payload == b"a"  # type: ignore[union-attr]


def test_a_batch_whose_part_is_gone_is_set_aside_and_the_others_come_in(path: Path) -> None:
    hand_in(path, "events", [b"lost"], query="a")
    for part in (path / "incoming" / "parts").iterdir():
        part.unlink()
    hand_in(path, "events", [b"whole"], query="b")
    with holdfast.open(path, background=False) as store:
        assert store.adopt() == 1
        assert payloads(store, "events") == [b"whole"]
    assert [file.name for file in (path / "incoming").glob("*.bad")]


def test_a_manifest_that_is_not_legible_is_set_aside(path: Path) -> None:
    hand_in(path, "events", [b"a"])
    (path / "incoming" / "broken.json").write_text("{")
    (path / "incoming" / "newer.json").write_text(json.dumps({"format": 2}))
    with holdfast.open(path, background=False) as store:
        assert store.adopt() == 1
    assert {file.name for file in (path / "incoming").glob("*.bad")} == {"broken.json.bad", "newer.json.bad"}


def test_a_part_that_was_hit_is_set_aside_before_anything_of_it_is_in_the_log(path: Path) -> None:
    hand_in(path, "events", [b"abcdefgh" * 10])
    (part,) = (path / "incoming" / "parts").glob("*.part")
    raw = bytearray(part.read_bytes())
    raw[-12] ^= 1
    part.write_bytes(raw)
    with holdfast.open(path, background=False) as store:
        log = store.log("events", flush=Flush.sync())
        log.append(b"own")
        assert store.adopt() == 0
        assert log.append(b"more") == 1
        assert payloads(store, "events") == [b"own", b"more"]


def test_parts_of_tasks_that_failed_are_swept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = BatchInbox(SystemFiles(), path)
    write_parts(place, Manifest("events", None, "query", 3, 0), [b"failed"])
    write_parts(place, Manifest("events", None, "other", 0, 0), [b"being written"])
    with holdfast.open(path, background=False) as store:
        hand_in(path, "events", [b"a"], batch=3)
        store.adopt()
        left = {file.name for file in (path / "incoming" / "parts").glob("*.part")}
        assert len(left) == 1, "what another query is writing stays"
        monkeypatch.setattr(batch_inbox, "ORPHAN_NS", 0)
        hand_in(path, "events", [b"b"], batch=4)
        store.adopt()
        assert not list((path / "incoming" / "parts").iterdir())


def test_only_the_owner_takes_batches_and_one_at_a_time(path: Path) -> None:
    hand_in(path, "events", [b"a"])
    with holdfast.open(path, read_only=True) as reader, pytest.raises(ReadOnly):
        reader.adopt()
    with holdfast.open(path, background=False) as store:
        guard = BatchInbox(SystemFiles(), path).guard()
        with pytest.raises(Locked):
            store.adopt()
        store.tick()  # takes it another time
        guard.release()
        store.tick()
        assert payloads(store, "events") == [b"a"]


def test_readers_of_other_processes_and_retention_take_placed_parts_for_segments(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_inbox, "PLACE_BYTES", 1000)
    with holdfast.open(path, background=False) as store, holdfast.open(path, read_only=True) as reader:
        log = store.log("events", flush=Flush.sync())
        log.append(b"own")
        tailer = reader.log("events").tailer()
        for batch in range(3):
            hand_in(path, "events", [b"x" * 1000, b"y"], batch=batch)
            store.adopt()
        log.append(b"end")
        assert [len(record.payload) for record in tailer.read_many(100)] == [3, 1000, 1, 1000, 1, 1000, 1, 3]
        assert len(log.segments()) == 5
        assert log.compact(retention=Retention(max_segments=2)) == 3
        assert log.start == 5
        assert [len(record.payload) for record in reader.log("events").read()] == [1000, 1, 3]


def with_a_batch_waiting(files: SimFiles, clock: SimClock) -> tuple[Store, Log]:
    """An owner on a simulated disk, with a record of its own and two that were handed in."""
    place = BatchInbox(files, Path("data"))
    store = holdfast.open("data", files=files, clock=clock, background=False)
    log = store.log("events", flush=Flush.sync())
    log.append(b"own")
    manifest = Manifest("events", None, "q", 0, 0)
    manifest = replace(manifest, parts=write_parts(place, manifest, [b"a", b"b"]))
    place.guard().release()
    place.hand_over(manifest)
    return store, log


def test_a_full_disk_before_the_plan_changes_nothing(files: SimFiles, clock: SimClock) -> None:
    store, log = with_a_batch_waiting(files, clock)
    files.fail("write", errno.ENOSPC, pattern="*adopting*")
    with pytest.raises(DiskFull):
        store.adopt()
    store.adopt()
    assert log.append(b"more") == 3
    assert payloads(store, "events") == [b"own", b"a", b"b", b"more"]


def test_a_full_disk_after_the_plan_stops_the_log_and_opening_it_again_goes_on(
    files: SimFiles, clock: SimClock
) -> None:
    store, log = with_a_batch_waiting(files, clock)
    files.fail("write", errno.ENOSPC, pattern="*.data")
    with pytest.raises(WriterStopped):
        store.adopt()
    with pytest.raises(WriterStopped):
        log.append(b"not before the batch is in")
    store.close()
    with holdfast.open("data", files=files, clock=clock, background=False) as store:
        assert payloads(store, "events") == [b"own", b"a", b"b"]
        assert store.log("events").append(b"more") == 3


def test_after_an_interrupted_adoption_nothing_is_written_until_the_log_is_opened_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sequences behind the batch are assigned: what recovers the log would give those of the batch to others."""

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with holdfast.open(path, background=False) as store:
        log = store.log("events", flush=Flush.sync())
        log.append(b"own")
        hand_in(path, "events", [b"a", b"b"])
        with monkeypatch.context() as patch:
            patch.setattr(BatchInbox, "finish", interrupted)
            with pytest.raises(KeyboardInterrupt):
                store.adopt()
        with pytest.raises(WriterStopped):
            log.appender.recover(at_once=True)
            log.append(b"more")
    with holdfast.open(path, background=False) as store:
        store.adopt()
        assert store.log("events").append(b"more") == 3
        assert payloads(store, "events") == [b"own", b"a", b"b", b"more"]


@pytest.mark.parametrize("skip", range(4))
def test_a_plan_that_may_survive_keeps_its_sequences(store: Store, files: SimFiles, skip: int) -> None:
    """Its folder could not be synced: another record in its place would be taken for the batch after a restart."""
    log = store.log("events", flush=Flush.sync())
    log.append(b"own")
    inbox = BatchInbox(files, Path("data"))
    manifest = Manifest("events", None, "query", 0, 1)
    manifest = replace(manifest, parts=write_parts(inbox, manifest, [b"a", b"b"]))
    guard = inbox.guard()
    assert inbox.hand_over(manifest)
    guard.release()
    files.fail("sync_dir", errno.EIO, pattern="data/incoming", skip=skip)
    with pytest.raises(StorageError):
        store.adopt()
    with pytest.raises(WriterStopped):
        log.append(b"more")
    store.close()
    again = holdfast.open("data", files=files, clock=SimClock(), background=False)
    again.adopt()
    assert again.log("events", flush=Flush.sync()).append(b"more") == 3
    assert payloads(again, "events") == [b"own", b"a", b"b", b"more"]
