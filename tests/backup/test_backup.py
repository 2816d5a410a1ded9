"""What is in a backup, what does the next one add, and what is found when something is wrong with it?"""

import errno
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

import holdfast
from holdfast import Corrupt, DiskFull, InvalidArgument, Locked, NotFound, ReadOnly, Roll, Store
from holdfast.backup.backup import list_backups, verify_backup
from holdfast.backup.restore import restore_backup
from holdfast.base.checksum import crc32c
from holdfast.base.files import File, Mode, SystemFiles
from holdfast.base.units import parse_time


class SlowDisk(SystemFiles):
    """Another file system: it has no links to ours, and it may be full."""

    def __init__(self, dest: Path, *, full_after: int = 1 << 60) -> None:
        self._dest = dest
        self._left = full_after

    def link(self, source: Path, target: Path) -> None:
        if self._dest in target.parents and self._dest not in source.parents:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), str(target))
        os.link(source, target)

    def open(self, path: Path, mode: Mode) -> File:
        if mode == "x" and self._dest in path.parents:
            self._left -= 1
            if self._left < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        return super().open(path, mode)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A store with a log of several segments, and a queue of which half is done."""
    with holdfast.open(tmp_path / "data", background=False) as opened:
        fill(opened)
        yield opened


def fill(store: Store) -> None:
    events = store.log("events", roll=Roll.count(10))
    events.append_many([b"event"] * 10)
    events.append_many([b"event"] * 10)
    events.append_many([b"event"] * 5)
    queue = store.queue("orders")
    queue.put_many([b"%d" % number for number in range(20)])
    queue.ack(queue.lease(10))


def contents(data: Path) -> tuple[int, list[bytes]]:
    with holdfast.open(data, background=False) as store:
        queue = store.queue("orders")
        return sum(1 for _ in store.log("events").read()), [one.payload for one in queue.lease(1000)]


def inodes(backup: Path) -> dict[str, int]:
    return {str(path.relative_to(backup)): path.stat().st_ino for path in backup.rglob("*.data")}


def test_a_restored_store_has_what_the_store_had(store: Store, tmp_path: Path) -> None:
    backup = store.backup(tmp_path / "dest")
    report = restore_backup(backup.path, tmp_path / "new")
    assert report.ok and report.queues == {"orders": 10} and report.logs == {"events": 25, "orders": 20}
    assert contents(tmp_path / "new") == (25, [b"%d" % number for number in range(10, 20)])


def test_a_backup_of_a_store_in_which_nothing_is_open_has_all_of_it(store: Store, tmp_path: Path) -> None:
    store.close()
    with holdfast.open(tmp_path / "data") as idle:
        backup = idle.backup(tmp_path / "dest")
    assert restore_backup(backup.path, tmp_path / "new").ok
    assert contents(tmp_path / "new") == (25, [b"%d" % number for number in range(10, 20)])


def test_the_next_backup_shares_what_has_not_changed_and_so_does_the_one_after(store: Store, tmp_path: Path) -> None:
    first = store.backup(tmp_path / "dest", copy=True)
    store.log("events").append_many([b"event"] * 10)
    second = store.backup(tmp_path / "dest", copy=True)
    third = store.backup(tmp_path / "dest", copy=True)
    old, new, newest = inodes(first.path), inodes(second.path), inodes(third.path)
    closed = [path for path in old if "events" in path and "-0003" not in path]
    assert len(closed) == 2 and all(old[path] == new[path] == newest[path] for path in closed)
    assert (second.base, third.base) == (first.path.name, second.path.name)
    assert third.new_bytes < second.bytes
    for path in first.path.rglob("*"):  # no backup needs another one
        if path.is_file():
            path.unlink()
    assert verify_backup(third.path) == []
    assert restore_backup(third.path, tmp_path / "new").logs["events"] == 35


def test_a_queue_that_was_made_anew_does_not_get_the_old_ones_files(store: Store, tmp_path: Path) -> None:
    store.backup(tmp_path / "dest")
    store.delete_queue("orders")
    queue = store.queue("orders")
    queue.put_many([b"%d" % number for number in range(20, 40)])
    queue.ack(queue.lease(10))
    report = store.backup(tmp_path / "dest")
    restore_backup(report.path, tmp_path / "new")
    assert contents(tmp_path / "new")[1] == [b"%d" % number for number in range(30, 40)]


def test_on_one_file_system_closed_segments_are_shared_with_the_store_unless_one_asks_for_copies(
    store: Store, tmp_path: Path
) -> None:
    live = {path.stat().st_ino for path in (tmp_path / "data").rglob("*.data")}
    shared = store.backup(tmp_path / "shared")
    apart = store.backup(tmp_path / "apart", copy=True)
    assert shared.linked_bytes > 0 and live & set(inodes(shared.path).values())
    assert apart.linked_bytes == 0 and not live & set(inodes(apart.path).values())
    later = store.backup(tmp_path / "shared", copy=True)  # nor through an earlier one that shares
    assert not live & set(inodes(later.path).values())


def test_where_links_cannot_be_made_files_are_copied(tmp_path: Path) -> None:
    files = SlowDisk(tmp_path / "dest")
    with holdfast.open(tmp_path / "data", files=files, background=False) as store:
        fill(store)
        backup = store.backup(tmp_path / "dest")
        assert backup.linked_bytes == 0
    assert restore_backup(backup.path, tmp_path / "new").ok
    assert contents(tmp_path / "new")[0] == 25


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    for room in (0, 1, 5, 15):
        dest = tmp_path / f"dest-{room}"
        with holdfast.open(tmp_path / f"data-{room}", files=SlowDisk(dest, full_after=room), background=False) as store:
            fill(store)
            with pytest.raises(DiskFull):
                store.backup(dest)
            store.queue("orders").put(b"more")  # and the store goes on
            assert list_backups(dest) == []
            assert not (store.path / "backing-up").exists()


def test_a_backup_that_was_killed_is_none_and_the_next_one_removes_it(tmp_path: Path) -> None:
    script = textwrap.dedent("""
        import sys, time, holdfast
        store = holdfast.open(sys.argv[1])
        store.queue("orders").put_many([b"x" * 1000] * 100)
        def wait(done, total):
            print("begun", flush=True)
            time.sleep(60)
        store.backup(sys.argv[2], progress=wait)
    """)
    data, dest = tmp_path / "data", tmp_path / "dest"
    with subprocess.Popen([sys.executable, "-c", script, data, dest], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        process.send_signal(signal.SIGKILL)
    (left,) = list_backups(dest)
    assert left.problem == "it was not finished"
    with pytest.raises(NotFound):
        restore_backup(dest, tmp_path / "new")
    with pytest.raises(NotFound):
        restore_backup(left.path, tmp_path / "new")
    with holdfast.open(data) as store:
        assert not (data / "backing-up").exists()
        backup = store.backup(dest)
    assert [one.path for one in list_backups(dest)] == [backup.path]


def test_damage_to_any_byte_is_found(store: Store, tmp_path: Path) -> None:
    backup = store.backup(tmp_path / "dest", copy=True).path
    random = Random(7)
    files = [path for path in sorted(backup.rglob("*")) if path.is_file() and path.stat().st_size]
    assert {path.suffix for path in files} >= {".data", ".index", ".json", ".sst", ""}
    for path in files:
        whole = path.read_bytes()
        for place in {0, len(whole) - 1, random.randrange(len(whole))}:
            hit = bytearray(whole)
            hit[place] ^= 1 << random.randrange(8)
            path.write_bytes(hit)
            with pytest.raises(Corrupt) as refused:
                restore_backup(backup, tmp_path / "new")
            assert str(path.relative_to(backup)) in str(refused.value)
            assert not (tmp_path / "new").exists()
        path.write_bytes(whole[:-1])
        with pytest.raises(Corrupt):
            restore_backup(backup, tmp_path / "new")
        path.write_bytes(whole)
    assert verify_backup(backup) == []


def test_a_missing_file_is_found(store: Store, tmp_path: Path) -> None:
    backup = store.backup(tmp_path / "dest").path
    next(backup.rglob("*.data")).unlink()
    (fault,) = verify_backup(backup)
    assert fault.path.endswith(".data") and "cannot be read" in fault.reason


def test_what_is_whole_of_a_damaged_backup_can_be_saved(store: Store, tmp_path: Path) -> None:
    backup = store.backup(tmp_path / "dest", copy=True).path
    segment = min((backup / "logs" / "events").rglob("*.data"))
    raw = bytearray(segment.read_bytes())
    raw[-20] ^= 255
    segment.write_bytes(raw)
    state = next((backup / "state").glob("*.sst"))
    state.unlink()
    report = restore_backup(backup, tmp_path / "new", salvage=True)
    assert not report.ok and len(report.faults) == 2
    assert report.problems  # the log says what is missing
    events, orders = contents(tmp_path / "new")
    assert 15 <= events < 25 and orders == [b"%d" % number for number in range(10, 20)]


def test_of_several_backups_the_newest_or_the_one_before_a_time_is_restored(store: Store, tmp_path: Path) -> None:
    first = store.backup(tmp_path / "dest")
    time.sleep(0.01)
    moment = parse_time(time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(first.created_at // 10**9 + 1)) + "Z")
    time.sleep(1.1)
    store.log("events").append(b"later")
    second = store.backup(tmp_path / "dest")
    assert restore_backup(tmp_path / "dest", tmp_path / "newest").backup == second.path
    assert restore_backup(tmp_path / "dest", tmp_path / "before", at=moment).backup == first.path
    with pytest.raises(NotFound):
        restore_backup(tmp_path / "dest", tmp_path / "none", at=parse_time("2001-01-01T00:00:00Z"))


def test_what_cannot_be_done_is_refused(store: Store, tmp_path: Path) -> None:
    backup = store.backup(tmp_path / "dest").path
    with pytest.raises(InvalidArgument):
        store.backup(tmp_path / "data" / "backups")
    with pytest.raises(InvalidArgument):
        restore_backup(backup, tmp_path / "data")
    with pytest.raises(NotFound):
        restore_backup(tmp_path / "nothing", tmp_path / "new")
    lock = SystemFiles().lock(tmp_path / "dest" / "LOCK")
    with pytest.raises(Locked):
        store.backup(tmp_path / "dest")
    lock.release()
    with holdfast.open(tmp_path / "data", read_only=True) as reader, pytest.raises(ReadOnly):
        reader.backup(tmp_path / "dest")


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("copy", [False, True])
def test_only_who_may_read_a_file_of_the_store_may_read_it_in_a_backup_and_restored(
    store: Store, tmp_path: Path, copy: bool
) -> None:
    data, dest = tmp_path / "data", tmp_path / "dest"
    data.chmod(0o750)
    for name, allowed in (("tokens.json", 0o600), ("notes.txt", 0o644), ("key", 0o400)):
        (data / name).write_text(name)
        (data / name).chmod(allowed)
    settings = next(data.glob("logs/events/*.json"))
    settings.chmod(0o600)
    for place in ("first", "second"):  # which shares files with the first
        backup = store.backup(dest, copy=copy).path
        assert mode(backup) == 0o700
        restore_backup(backup, tmp_path / place)
        assert mode(tmp_path / place) == 0o750
        for name in ("tokens.json", "notes.txt", "key", str(settings.relative_to(data))):
            assert mode(backup / name) == mode(data / name) & 0o600, name
            assert mode(tmp_path / place / name) == mode(data / name) & 0o640, name


def test_a_backup_that_noted_no_modes_is_restored(store: Store, tmp_path: Path) -> None:
    backup = store.backup(tmp_path / "dest").path
    body = (backup / "backup.json").read_bytes().partition(b'"backup":')[2].removesuffix(b"}\n")
    body = re.sub(rb',"mode":"\d+"', b"", body)
    (backup / "backup.json").write_bytes(b'{"format":1,"checksum":"%08x","backup":%s}\n' % (crc32c(body), body))
    assert b"mode" not in body
    assert restore_backup(backup, tmp_path / "new").ok
    assert contents(tmp_path / "new")[0] == 25


def test_named_readers_are_where_they_were(store: Store, tmp_path: Path) -> None:
    tailer = store.log("events").tailer("audit")
    assert len(tailer.read_many(7)) == 7
    tailer.commit()
    restore_backup(store.backup(tmp_path / "dest").path, tmp_path / "new")
    with holdfast.open(tmp_path / "new") as new:
        assert new.log("events").tailer("audit").position == 7
