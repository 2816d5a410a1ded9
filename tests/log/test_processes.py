"""Other processes: reading a live log, following it, and what they never see."""

import itertools
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import holdfast
from holdfast import Flush, Log, Retention, Roll, Store
from holdfast.testing import SimFiles
from tests.log.internals import writer_of


def python(code: str, *arguments: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


FOLLOW = """
    import sys, holdfast
    log = holdfast.open(sys.argv[1], read_only=True).log("clicks")
    print("ready", flush=True)
    total = 0
    for record in log.tailer().follow(wait=30):
        assert record.sequence == total and record.payload == b"%d" % total, record
        total += 1
        if total == int(sys.argv[2]):
            break
    print(total, len(log.damage), flush=True)
"""


@pytest.mark.parametrize("flush", [Flush.sync(), Flush.async_(), Flush.batch()], ids=lambda flush: flush.mode)
def test_several_processes_follow_a_log_while_it_is_written_rolled_and_compacted(tmp_path: Path, flush: Flush) -> None:
    count = 300 if flush.mode == "sync" else 30_000
    with holdfast.open(tmp_path) as store:
        log = store.log("clicks", flush=flush, roll=Roll.count(count // 7), retention=Retention(max_segments=100))
        followers = [python(FOLLOW, tmp_path, count) for _ in range(2)]
        for follower in followers:
            assert follower.stdout is not None
            assert follower.stdout.readline() == "ready\n"
        for n in range(count):
            log.append(b"%d" % n)
        for follower in followers:
            output, _ = follower.communicate(timeout=120)
            assert output == f"{count} 0\n"


def test_a_reader_that_was_there_before_the_first_record_sees_it(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        log = store.log("clicks", flush=Flush.sync())
        reader = holdfast.open(tmp_path, read_only=True).log("clicks")
        tail = reader.tailer()
        assert tail.read() is None
        log.append(b"first")
        record = tail.read()
        assert record is not None
        assert record.payload == b"first"


def test_a_named_tailer_of_another_process_keeps_its_place_and_holds_retention_back(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        log = store.log("clicks", flush=Flush.sync(), roll=Roll.count(2))
        for n in range(10):
            log.append(b"%d" % n)
        child = python(
            """
            import sys, holdfast
            tail = holdfast.open(sys.argv[1], read_only=True).log("clicks").tailer("elsewhere")
            tail.read_many(5)
            tail.commit()
            print(tail.lag, flush=True)
            """,
            tmp_path,
        )
        output, _ = child.communicate(timeout=120)
        assert output == "5\n"
        log.compact(retention=Retention(max_segments=1))
        assert log.start == 4
        assert [(tailer.name, tailer.lag) for tailer in log.stats().tailers] == [("elsewhere", 5)]


def reader_of(files: SimFiles) -> Log:
    return holdfast.open("data", files=files, read_only=True, background=False).log("clicks")


def test_under_sync_nothing_unsynced_is_ever_shown_to_others(store: Store, files: SimFiles) -> None:
    """The writer stops between its write and its sync: the block is in the file, and no reader may see it."""
    log = store.log("clicks", flush=Flush.sync())
    log.append(b"synced")
    reader = reader_of(files)
    files.fail("sync", 5, pattern="*.data")
    with pytest.raises(holdfast.WriterStopped):
        log.append(b"unsynced")
    for view in (reader, reader_of(files)):
        assert [record.payload for record in view.read()] == [b"synced"]


def test_under_async_others_see_what_was_handed_to_the_system(store: Store, files: SimFiles) -> None:
    log = store.log("clicks", flush=Flush.async_())
    log.append(b"first")
    log.refresh()
    log.append(b"still in memory")
    assert [record.payload for record in reader_of(files).read()] == [b"first"]


def test_a_reader_opened_while_nobody_writes_sees_what_recovery_would_keep(store: Store, files: SimFiles) -> None:
    log = store.log("clicks", flush=Flush.sync())
    for n in range(5):
        log.append(b"%d" % n)
    for mode in ("dropped", "prefix", "torn", "reordered"):
        after = files.after_crash(mode)
        before = after.snapshot()
        seen = [record.payload for record in reader_of(after).read()]
        assert after.snapshot() == before, "reading changed something"
        with holdfast.open("data", files=after, background=False) as again:
            assert [record.payload for record in again.log("clicks").read()] == seen


def test_a_read_only_store_on_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "data") as store:
        store.log("clicks").append(b"x")
    (tmp_path / "data").chmod(0o555)
    with holdfast.open(tmp_path / "data", read_only=True) as store:
        assert [record.payload for record in store.log("clicks").read()] == [b"x"]
    (tmp_path / "data").chmod(0o755)


def test_a_batch_log_is_flushed_without_another_call(tmp_path: Path) -> None:
    """The ticker does it: the records are durable and visible to others although nobody calls again."""
    with holdfast.open(tmp_path) as store:
        log = store.log("clicks", flush=Flush.batch(bytes=1 << 20, interval=0.02))
        log.append(b"x")
        reader = holdfast.open(tmp_path, read_only=True).log("clicks")
        assert next(reader.tailer().follow(wait=20)).payload == b"x"
        deadline = time.monotonic() + 180
        while writer_of(log).durable_end < 1:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        # Asleep by now, or soon: the next append must wake it again.
        time.sleep(0.1)
        log.append(b"y")
        followed = itertools.islice(reader.tailer().follow(wait=20), 2)
        assert [record.payload for record in followed] == [b"x", b"y"]


def test_reopening_after_a_clean_close_reads_only_the_ends(
    store: Store, files: SimFiles, reopen: Callable[..., Store]
) -> None:
    log = store.log("clicks", flush=Flush.sync())
    for n in range(3000):
        log.append(b"%d" % n)
    store.close()
    before = files.operations
    with reopen() as again:
        assert again.log("clicks").end == 3000
        assert files.operations - before < 10
