"""Zeros that the writer keeps ready behind the end: nobody sees them, and no stop leaves anything of them."""

import errno

import pytest

import holdfast
from holdfast import Flush, Log, Roll, Store
from holdfast.testing import CRASH_MODES, SimClock, SimFiles
from holdfast.testing.files import CrashMode


def data_files(files: SimFiles) -> list[bytes]:
    return [content for path, content in sorted(files.snapshot().items()) if path.endswith(".data")]


def append_one_by_one(log: Log, count: int = 20) -> list[bytes]:
    written = [b"%d" % n for n in range(count)]
    for payload in written:
        log.append(payload)
    return written


def payloads(log: Log) -> list[bytes]:
    return [record.payload for record in log.read()]


def test_small_syncs_make_the_file_longer_than_its_records_and_closing_takes_it_back(
    store: Store, files: SimFiles
) -> None:
    log = store.log("clicks", flush=Flush.sync())
    append_one_by_one(log)
    end = log.segments()[-1].bytes
    assert len(data_files(files)[0]) > end
    store.close()
    assert len(data_files(files)[0]) == end


def test_only_the_last_segment_has_them(store: Store, files: SimFiles) -> None:
    log = store.log("clicks", flush=Flush.sync(), roll=Roll.count(12))
    written = append_one_by_one(log, 40)
    sealed = [segment.bytes for segment in log.segments()][:-1]
    assert [len(content) for content in data_files(files)][:-1] == sealed
    assert payloads(log) == written
    assert not log.verify().damage


def test_a_reader_beside_the_writer_sees_records_only(store: Store, files: SimFiles, clock: SimClock) -> None:
    written = append_one_by_one(store.log("clicks", flush=Flush.sync()))
    with holdfast.open("data", files=files, clock=clock, read_only=True, background=False) as reader:
        log = reader.log("clicks")
        assert payloads(log) == written
        assert not log.verify().damage


@pytest.mark.parametrize("mode", CRASH_MODES)
def test_after_a_crash_they_are_gone_and_nothing_is_called_torn(
    store: Store, files: SimFiles, clock: SimClock, mode: CrashMode
) -> None:
    written = append_one_by_one(store.log("clicks", flush=Flush.sync()))
    left = files.after_crash(mode)
    log = holdfast.open("data", files=left, clock=clock, background=False).log("clicks")
    assert payloads(log) == written
    assert not log.damage
    assert len(data_files(left)[0]) == log.segments()[-1].bytes
    assert not [path for path in left.snapshot() if ".torn-" in path]


def test_a_disk_too_full_for_them_still_takes_records(store: Store, files: SimFiles) -> None:
    log = store.log("clicks", flush=Flush.sync())
    written = append_one_by_one(log, 7)
    files.fail("write", errno.ENOSPC, pattern="*.data", skip=1)  # the eighth small sync would write ahead
    log.append(b"the eighth")
    assert payloads(log) == [*written, b"the eighth"]
    assert len(data_files(files)[0]) == log.segments()[-1].bytes
