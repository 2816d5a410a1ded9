"""Batches that another machine commits to the bucket: each is adopted once, whatever stops the owner."""

import zlib

import pytest

import holdfast
from holdfast.log.batch_inbox import Manifest
from holdfast.log.compression import codec_by_name
from holdfast.log.part_buffer import PartBuffer
from holdfast.log.pending_block import PendingBlock, seal
from holdfast.replica import restore
from holdfast.replica.batch_objects import BATCHES, PARTS, BatchObjects, Commit
from holdfast.testing import SimBucket, SimClock, SimFiles, bucket_points

PATH = "data"


def send(bucket: SimBucket, number: int, *payloads: bytes, once: bool = True, query: str = "q") -> Manifest:
    """Write the parts of a batch; its manifest is not committed yet."""
    objects = BatchObjects(bucket)
    manifest = Manifest("events", None, query, number, number, once=once)
    buffer = PartBuffer(manifest, number, objects.send, objects.remove)
    for payload in payloads:
        block = PendingBlock(0, 0, 0)
        block.payloads += [payload]
        block.times += [0]
        buffer.put(seal(block, 0, codec_by_name(None)))
    whole = Manifest("events", None, query, number, number, buffer.finish(), once)
    checksums[whole.parts[0].file] = buffer.checksums[whole.parts[0].file]
    return whole


checksums: dict[str, int] = {}


def commit(bucket: SimBucket, manifest: Manifest) -> bool:
    return BatchObjects(bucket).commit(Commit(manifest, {one.file: checksums[one.file] for one in manifest.parts}))


def settle(store: holdfast.Store, clock: SimClock, rounds: int = 4) -> None:
    """Let the owner poll, adopt and ship."""
    for _ in range(rounds):
        clock.advance(6)
        store.tick()
        store.replica.ship()


def left(bucket: SimBucket) -> list[str]:
    return [key for key in bucket.snapshot() if key.startswith((BATCHES, PARTS))]


def payloads(files: SimFiles) -> list[bytes]:
    with holdfast.open(PATH, files=files, clock=SimClock(), background=False) as store:
        return [record.payload for record in store.log("events").read()]


def test_batches_are_adopted_in_order_and_their_objects_deleted() -> None:
    bucket, files, clock = SimBucket(), SimFiles(), SimClock()
    with holdfast.open(PATH, files=files, clock=clock, background=False, replica=bucket) as store:
        store.replica.ship()
        for number in range(3):
            assert commit(bucket, send(bucket, number, b"%d" % number, b"x"))
        settle(store, clock)
        assert left(bucket) == []
        assert [one.payload for one in store.log("events").read()] == [b"0", b"x", b"1", b"x", b"2", b"x"]
        # A batch that is committed again, with other parts, adds nothing.
        assert commit(bucket, send(bucket, 2, b"again"))
        settle(store, clock)
        assert store.log("events").end == 6
        assert left(bucket) == []


def test_the_first_of_two_commits_of_one_batch_counts() -> None:
    bucket = SimBucket()
    one, other = send(bucket, 1, b"one"), send(bucket, 1, b"other")
    assert commit(bucket, one)
    assert not commit(bucket, other)
    assert commit(bucket, one), "the same again: its answer was lost"


@pytest.mark.parametrize("harm", ["missing", "changed", "commit"])
def test_a_damaged_batch_is_refused_and_named(harm: str, caplog: pytest.LogCaptureFixture) -> None:
    bucket, files, clock = SimBucket(), SimFiles(), SimClock()
    with holdfast.open(PATH, files=files, clock=clock, background=False, replica=bucket) as store:
        store.replica.ship()
        manifest = send(bucket, 1, b"one", b"two")
        commit(bucket, manifest)
        key = PARTS + manifest.parts[0].file
        content = bucket.snapshot()[key]
        if harm == "commit":
            bucket.change(BATCHES + manifest.file, b"{}")
        else:
            bucket.change(key, None if harm == "missing" else content[:-1] + bytes([content[-1] ^ 1]))
        settle(store, clock)
        assert "events" not in store.logs() or store.log("events").end == 0
        assert BatchObjects(bucket).outcome(manifest) == "refused"
        assert "batch rejected" in caplog.text
        commit(bucket, send(bucket, 1, b"good"))
        settle(store, clock)
        assert [one.payload for one in store.log("events").read()] == [b"good"]


def test_parts_of_tasks_that_failed_are_swept_after_a_day() -> None:
    bucket, files, clock = SimBucket(), SimFiles(), SimClock()
    with holdfast.open(PATH, files=files, clock=clock, background=False, replica=bucket) as store:
        store.replica.ship()
    send(bucket, clock.time_ns(), b"not committed yet")
    with holdfast.open(PATH, files=files, clock=clock, background=False, replica=bucket) as store:
        for _ in range(4):  # the owner collects garbage, and this is none: its task may be running
            settle(store, clock)
            clock.advance(700)
        assert len(left(bucket)) == 1
        clock.advance(2 * 86_400)
        settle(store, clock)
        assert left(bucket) == []


def test_a_batch_job_leaves_no_note_behind() -> None:
    bucket, files, clock = SimBucket(), SimFiles(), SimClock()
    with holdfast.open(PATH, files=files, clock=clock, background=False, replica=bucket) as store:
        store.replica.ship()
        commit(bucket, send(bucket, 0, b"job", once=False, query="abc"))
        settle(store, clock)
        assert store.log("events").end == 1
        assert left(bucket) == []
    assert not [path for path in files.snapshot() if "incoming/done" in str(path)]


class Adopting:
    """Three batches, the second of them committed twice, while the owner may stop at any request to the bucket."""

    def __init__(self) -> None:
        self.files, self.clock = SimFiles(), SimClock()

    def run(self, bucket: SimBucket) -> None:
        with holdfast.open(PATH, files=self.files, clock=self.clock, background=False, replica=bucket) as store:
            store.log("events")
            store.replica.ship()
            for number in (1, 2, 2, 3):
                manifest = send(bucket, number, b"%d" % number, b"end %d" % number)
                commit(bucket, manifest)
                settle(store, self.clock, 2)

    def check(self, bucket: SimBucket) -> None:
        expected = [b"1", b"end 1", b"2", b"end 2", b"3", b"end 3"]
        committed = [key for key in bucket.snapshot() if key.startswith(BATCHES)]
        with holdfast.open(
            PATH,
            files=self.files.after_crash("reordered", bucket.operations),
            clock=self.clock,
            background=False,
            replica=bucket,
        ) as store:
            settle(store, self.clock)
            found = [one.payload for one in store.log("events").read()]
            assert found == expected[: len(found)], found
            assert len(found) % 2 == 0
            assert len(found) // 2 >= len(committed)
            assert not [key for key in bucket.snapshot() if key.startswith(BATCHES)]
        # Also on another machine, which has only the bucket.
        after = SimFiles()
        restore(bucket, PATH, files=after, verify=False)
        assert payloads(after) == found
        with holdfast.open(PATH, files=after, clock=self.clock, background=False, replica=bucket) as store:
            for number in range(1, len(found) // 2 + 1):  # the driver repeats what it does not know to be over
                commit(bucket, send(bucket, number, b"repeated"))
                settle(store, self.clock, 2)
            assert [one.payload for one in store.log("events").read()] == found


def test_each_batch_is_adopted_once_wherever_the_owner_stops() -> None:
    cases = bucket_points(Adopting, every=3, sample=zlib.crc32(b"adopting"))
    assert cases > 20


def test_a_new_owner_adopts_what_the_old_one_had_not_shipped() -> None:
    """The old owner has adopted a batch, and is lost before a moment has it: its commit is still there."""
    bucket, files, clock = SimBucket(), SimFiles(), SimClock()
    with holdfast.open(PATH, files=files, clock=clock, background=False, replica=bucket) as store:
        store.log("events").append(b"first")
        store.replica.ship()
        commit(bucket, send(bucket, 1, b"batch"))
        clock.advance(6)
        store.replica.ship()  # fetches it
        store.adopt()
        assert store.log("events").end == 2
        lost = bucket.after_stop()
    after = SimFiles()
    restore(lost, PATH, files=after, verify=False)
    clock.advance(60)
    with holdfast.open(PATH, files=after, clock=clock, background=False, replica=lost) as store:
        assert store.log("events").end == 1
        settle(store, clock)
        assert [one.payload for one in store.log("events").read()] == [b"first", b"batch"]
        assert left(lost) == []
