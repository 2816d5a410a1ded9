"""Faults and bad input: a clear error of the tree, and nothing that was confirmed is lost."""

import copy
import errno
import logging
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

import holdfast
from holdfast import (
    Closed,
    DiskFull,
    Flush,
    HoldfastError,
    InvalidArgument,
    InvalidName,
    Locked,
    NewerFormat,
    NotFound,
    ReadOnly,
    Roll,
    StorageError,
    Store,
    WriterStopped,
    errors,
)
from holdfast.base.checksum import crc32c
from holdfast.log.compression import DECOMPRESSED_MAX, decompress
from holdfast.testing import SimClock, SimFiles


def payloads(store: Store, name: str = "clicks") -> list[bytes]:
    return [record.payload for record in store.log(name).read()]


def test_every_error_is_one_of_the_tree() -> None:
    for name in (one for one in errors.__all__ if isinstance(getattr(errors, one), type)):
        assert issubclass(getattr(errors, name), HoldfastError)
        assert getattr(holdfast, name) is getattr(errors, name)


def test_a_second_writer_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    with holdfast.open(tmp_path), pytest.raises(Locked, match="this process") as caught:
        holdfast.open(tmp_path)
    assert caught.value.pid == os.getpid()
    holdfast.open(tmp_path).close()


def test_a_second_writing_process_is_named(tmp_path: Path) -> None:
    code = f"import holdfast, sys; holdfast.open({str(tmp_path)!r}); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"open\n"
        with pytest.raises(Locked, match=f"process {child.pid}") as caught:
            holdfast.open(tmp_path)
        assert caught.value.pid == child.pid
        child.kill()
        child.wait()
        holdfast.open(tmp_path).close()  # the kernel let go of the lock with the process


def test_a_forked_child_neither_holds_the_lock_nor_writes(tmp_path: Path) -> None:
    code = f"""
import os, holdfast
store = holdfast.open({str(tmp_path)!r})
log = store.log("clicks")
log.append(b"parent")
if os.fork() == 0:
    try:
        log.append(b"child")
    except holdfast.Closed as error:
        os.write(1, b"refused\\n")
    os.read(0, 1)
    os._exit(0)
store.close()
holdfast.open({str(tmp_path)!r}).close()
os.write(1, b"reopened\\n")
"""
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    output, _ = child.communicate(timeout=120)
    assert sorted(output.split()) == [b"refused", b"reopened"]
    with holdfast.open(tmp_path) as store:
        assert payloads(store) == [b"parent"]


def test_a_read_only_store_refuses_writes(store: Store, reopen: Callable[..., Store]) -> None:
    store.log("clicks").append(b"x")
    store.close()
    log = reopen(read_only=True).log("clicks")
    for write in (lambda: log.append(b"y"), lambda: log.append_many([b"y"]), log.sync, log.compact, log.clear):
        with pytest.raises(ReadOnly, match="read_only=True"):
            write()


def test_reading_what_is_not_there_says_what_is(store: Store, reopen: Callable[..., Store], files: SimFiles) -> None:
    store.log("clicks").append(b"x")
    store.close()
    with pytest.raises(NotFound, match=r"no log 'clocks'.*'clicks'"):
        reopen(read_only=True).log("clocks")
    with pytest.raises(NotFound, match="no store"):
        holdfast.open("elsewhere", read_only=True, files=files)


def test_a_closed_log_refuses_everything(store: Store) -> None:
    log = store.log("clicks")
    log.append(b"x")
    tail = log.tailer()
    store.close()
    store.close()
    for use in (lambda: log.append(b"y"), log.sync, log.tailer, log.stats, log.verify, lambda: next(log.read())):
        with pytest.raises(Closed, match="closed"):
            use()
    with pytest.raises(Closed):
        store.log("clicks")
    assert tail.log is log


STRANGE = ["../x", "a/b", "..", ".", "/etc/passwd", "a\\b", "nul\0", "ü€🦀", " ", "CON", "%2e", "x" * 255, "🦀" * 60]


@pytest.mark.parametrize("name", STRANGE)
def test_a_strange_name_works_and_is_never_a_path(tmp_path: Path, name: str) -> None:
    with holdfast.open(tmp_path / "data") as store:
        store.log(name).append(name.encode())
        assert store.logs() == [name]
        tail = store.log(name).tailer(name)
        tail.read()
        tail.commit()
    with holdfast.open(tmp_path / "data") as store:
        assert payloads(store, name) == [name.encode()]
        assert store.log(name).tailer(name).position == 1
    assert {path.name for path in tmp_path.iterdir()} == {"data"}
    assert {path.name for path in (tmp_path / "data").iterdir()} == {"LOCK", "known", "logs"}
    assert len(list((tmp_path / "data" / "logs").iterdir())) == 1


@pytest.mark.parametrize("name", ["", "🦀" * 300, "x" * 256, "\ud800", None, 5, b"bytes"])
def test_a_name_that_cannot_be_is_refused(store: Store, name: str) -> None:
    with pytest.raises(InvalidName):
        store.log(name)


def test_names_never_share_a_folder(store: Store) -> None:
    names = ["a", "A", "a/b", "a%2Fb", "x" * 200, "x" * 201, "🦀" * 60, "🦀" * 61]
    for name in names:
        store.log(name).append(name.encode())
    assert all(payloads(store, name) == [name.encode()] for name in names)
    assert store.logs() == sorted(names)


def test_a_log_is_not_opened_twice_with_other_settings(store: Store) -> None:
    log = store.log("clicks", flush=Flush.sync())
    assert store.log("clicks") is log
    assert store.log("clicks", flush=Flush.sync()) is log
    with pytest.raises(InvalidArgument, match="other settings"):
        store.log("clicks", flush=Flush.async_())


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become a user without rights")
def test_a_folder_without_rights_is_a_clear_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    code = f"""
import os, sys
import holdfast
os.setuid(65534)
try:
    holdfast.open({str(tmp_path / "data")!r})
except holdfast.StorageError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert "Permission denied" in result.stdout
    assert "to write to it" in result.stdout
    assert result.stderr == ""


def test_a_file_where_a_folder_should_be_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a folder")
    with pytest.raises(StorageError, match="file, not a folder"):
        holdfast.open(tmp_path / "data")
    with pytest.raises(StorageError):
        holdfast.open(tmp_path / "data", read_only=True).logs()


@pytest.mark.parametrize("flush", [Flush.sync(), Flush.batch(bytes=500), Flush.async_()], ids=lambda flush: flush.mode)
def test_a_full_disk_fails_appends_and_the_log_goes_on_when_there_is_room(
    store: Store, files: SimFiles, reopen: Callable[..., Store], flush: Flush
) -> None:
    log = store.log("clicks", flush=flush, roll=Roll.size(300_000))
    accepted = {log.append(b"before"): b"before"}
    log.sync()
    files.capacity = sum(map(len, files.snapshot().values())) + 5000
    failures = 0
    for n in range(400):
        try:
            payload = b"%d" % n * 300
            accepted[log.append(payload)] = payload
        except DiskFull as error:
            assert "Free some space" in str(error)
            failures += 1
    assert failures > 100
    files.capacity = None
    accepted[log.append(b"after")] = b"after"
    log.sync()
    assert {record.sequence: record.payload for record in log.read()} == accepted
    store.close()
    with reopen() as again:
        assert {record.sequence: record.payload for record in again.log("clicks").read()} == accepted
        assert again.log("clicks").verify().ok


def test_closing_on_a_full_disk_can_be_tried_again(store: Store, files: SimFiles, reopen: Callable[..., Store]) -> None:
    log = store.log("clicks", flush=Flush.async_())
    log.append(b"first")
    log.sync()
    log.append(bytes(5000))
    files.capacity = 0
    with pytest.raises(DiskFull):
        store.close()
    files.capacity = None
    store.close()
    assert [len(payload) for payload in payloads(reopen())] == [5, 5000]


@pytest.mark.parametrize("skip", range(6))
def test_a_failed_write_anywhere_in_a_roll_loses_nothing(store: Store, files: SimFiles, skip: int) -> None:
    log = store.log("clicks", flush=Flush.sync(), roll=Roll.count(1))
    log.append(b"first")
    files.fail("*", errno.ENOSPC, pattern="*-0002.*", skip=skip)
    for attempt in (b"second", b"third"):
        try:
            log.append(attempt)
        except StorageError:
            log.append(attempt)
    assert payloads(store) == [b"first", b"second", b"third"]
    assert log.verify().ok


@pytest.mark.parametrize("flush", [Flush.sync(), Flush.batch(), Flush.async_()], ids=lambda flush: flush.mode)
def test_after_a_failed_fsync_the_writer_stops_and_says_so(
    store: Store, files: SimFiles, reopen: Callable[..., Store], flush: Flush
) -> None:
    log = store.log("clicks", flush=flush)
    log.append(b"safe")
    log.sync()
    files.fail("sync", errno.EIO, pattern="*.data", times=9)
    with pytest.raises(WriterStopped, match="accepts no more writes"):
        log.append(b"doubtful")
        log.sync()
    with pytest.raises(WriterStopped):
        log.append(b"more")
    if flush.mode == "sync":
        store.close()
    else:
        with pytest.raises(WriterStopped):
            store.close()
        store.close()
    files.heal()
    assert payloads(reopen())[0] == b"safe"


def test_pages_that_a_failed_fsync_lost_are_written_again_by_recovery(files: SimFiles) -> None:
    """The kernel shows pages that the disk has never seen: once recovery has kept them, they must be there."""
    store = holdfast.open("data", files=files, clock=SimClock(), background=False)
    log = store.log("clicks", flush=Flush.sync())
    log.append(b"safe")
    files.fail("sync", errno.EIO, pattern="*.data")
    with pytest.raises(WriterStopped):
        log.append(b"doubtful")
    store.close()
    kept = payloads(holdfast.open("data", files=files, clock=SimClock(), background=False))
    after = files.after_crash("dropped")
    assert payloads(holdfast.open("data", files=after, clock=SimClock(), background=False)) == kept


def test_a_write_that_cannot_be_undone_stops_the_writer(store: Store, files: SimFiles) -> None:
    log = store.log("clicks", flush=Flush.sync())
    log.append(b"safe")
    files.fail("write", errno.EIO, pattern="*.data")
    files.fail("truncate", errno.EIO, pattern="*.data")
    with pytest.raises(WriterStopped):
        log.append(b"doubtful")
    assert payloads(store) == [b"safe"]


def test_the_index_and_the_watermark_may_fail_without_harm(store: Store, files: SimFiles) -> None:
    log = store.log("clicks", flush=Flush.sync(), index_interval=1)
    log.append(b"first")
    for pattern in ("*.index", "*watermark"):
        files.fail("write", errno.EIO, pattern=pattern, times=3)
    for n in range(10):
        log.append(b"%d" % n)
    assert len(payloads(store)) == 11
    assert log.verify().ok


def test_an_index_that_lacks_an_entry_is_not_finished(
    store: Store, files: SimFiles, reopen: Callable[..., Store]
) -> None:
    log = store.log("clicks", flush=Flush.sync(), index_interval=1)
    log.append(b"first")
    files.fail("write", errno.EIO, pattern="*.index", times=2)
    log.append(b"second")
    store.close()
    index = next(path for path in files.snapshot() if path.endswith(".index"))
    assert len(files.snapshot()[index]) == 64 + 32
    with reopen(read_only=True) as again:
        assert payloads(again) == [b"first", b"second"]
        assert again.log("clicks").verify().ok


def test_a_segment_of_a_newer_format_is_refused_and_left_alone(store: Store, files: SimFiles) -> None:
    store.log("clicks").append(b"x")
    store.close()
    path = next(path for path in files.snapshot() if path.endswith(".data"))
    content = files.content(path)
    content[8:10] = (2).to_bytes(2, "little")
    content[60:64] = crc32c(bytes(content[:60])).to_bytes(4, "little")
    before = files.snapshot()
    for read_only in (False, True):
        again = holdfast.open("data", files=files, clock=SimClock(), background=False, read_only=read_only)
        with pytest.raises(NewerFormat, match="version 2"):
            again.log("clicks")
        again.close()
    assert {k: v for k, v in files.snapshot().items() if k.endswith(".data")} == {
        k: v for k, v in before.items() if k.endswith(".data")
    }


def test_a_lost_or_damaged_log_json_is_made_anew_with_the_same_id(
    store: Store, files: SimFiles, reopen: Callable[..., Store], caplog: pytest.LogCaptureFixture
) -> None:
    log = store.log("clicks")
    log.append(b"x")
    log_id = log.id
    store.close()
    files.content("data/logs/clicks/log.json")[:] = b"{"
    with caplog.at_level(logging.WARNING), reopen() as again:
        assert again.log("clicks").id == log_id
        assert payloads(again) == [b"x"]
    assert "log.json rebuilt" in caplog.text


@pytest.mark.parametrize("damaged", [64, None], ids=["header", "whole segment"])
def test_a_lost_log_json_is_made_anew_though_a_segment_does_not_say_its_log(
    store: Store, files: SimFiles, reopen: Callable[..., Store], damaged: int | None
) -> None:
    log = store.log("clicks", flush=Flush.sync(), roll=Roll.count(1))
    log.append_many([b"x"])
    log.append_many([b"y"])
    log_id = log.id
    store.close()
    files.remove(Path("data/logs/clicks/log.json"))
    first = min(path for path in files.snapshot() if path.endswith(".data"))
    content = files.content(first)
    content[:damaged] = bytes(len(content[:damaged]))
    files.remove(Path(first).with_suffix(".index"))
    with reopen() as again:
        assert again.log("clicks").id == log_id


def test_a_lost_index_is_made_anew(store: Store, files: SimFiles, reopen: Callable[..., Store]) -> None:
    log = store.log("clicks", flush=Flush.sync(), index_interval=2)
    for n in range(20):
        log.append(b"%d" % n)
    store.close()
    index = next(path for path in files.snapshot() if path.endswith(".index"))
    files.remove(Path(index))
    with reopen() as again:
        again.log("clicks", index_interval=2).append(b"20")
    assert len(files.snapshot()[index]) > 64 + 32 * 2
    with reopen() as again:
        assert len(payloads(again)) == 21


def test_a_record_without_headers_can_be_copied_and_not_changed(store: Store) -> None:
    log = store.log("clicks")
    log.append(b"x")
    (record,) = log.read()
    assert pickle.loads(pickle.dumps(record)) == copy.deepcopy(record) == record
    assert asdict(log.inspect(log.stats().bytes - 8))["record"].headers == {}
    with pytest.raises(TypeError, match="copy them with dict"):
        record.headers["new"] = "value"  # type: ignore[index]


def test_a_block_that_claims_to_grow_beyond_the_cap_is_refused_before_it_does() -> None:
    with pytest.raises(holdfast.Corrupt, match="the limit is"):
        decompress(1, b"", DECOMPRESSED_MAX + 1)


@pytest.mark.parametrize("codec", [1, 2, 3])
def test_a_stream_longer_or_shorter_than_promised_is_refused(codec: int) -> None:
    from holdfast.log.compression import codec_by_id

    packed = codec_by_id[codec].compress(b"a" * 5000)
    assert decompress(codec, packed, 5000) == b"a" * 5000
    for size in (4999, 5001, 0):
        with pytest.raises(holdfast.Corrupt):
            decompress(codec, packed, size)
    with pytest.raises(holdfast.Corrupt):
        decompress(codec, packed[:-3], 5000)
