"""The simulated disk does what disks do."""

import errno
from pathlib import Path

import pytest

from holdfast.base.files import File, read_file, replace_file, write_all
from holdfast.testing import CRASH_MODES, Crash, SimFiles
from holdfast.testing.files import CrashMode

FILE = Path("data/file")


def prepared(seed: int = 0, **options: float) -> tuple[SimFiles, File]:
    files = SimFiles(seed, **options)  # type: ignore[arg-type]
    files.make_dirs(FILE.parent)
    file = files.open(FILE, "x")
    files.sync_dir(FILE.parent)
    return files, file


@pytest.mark.parametrize("mode", CRASH_MODES)
def test_what_was_synced_survives_every_crash(mode: CrashMode) -> None:
    for seed in range(20):
        files, file = prepared()
        file.write(b"synced", 0)
        file.sync()
        file.write(b"-pending", 6)
        assert bytes(files.after_crash(mode, seed).content(FILE)).startswith(b"synced")


def test_dropped_keeps_nothing_else() -> None:
    files, file = prepared()
    file.write(b"pending", 0)
    assert files.after_crash("dropped").content(FILE) == b""
    assert files.content(FILE) == b"pending"


def test_prefix_keeps_writes_in_their_order() -> None:
    files, file = prepared()
    for position in range(10):
        file.write(b"x", position)
    lengths = {len(files.after_crash("prefix", seed).content(FILE)) for seed in range(50)}
    assert len(lengths) > 5
    assert max(lengths) == 10


def test_torn_cuts_the_last_write_at_a_sector() -> None:
    files, file = prepared()
    file.write(b"x" * 3000, 100)
    lengths = {len(files.after_crash("torn", seed).content(FILE)) for seed in range(50)}
    assert lengths <= {512, 1024, 1536, 2048, 2560, 3072}
    assert len(lengths) > 3


def test_reordered_may_keep_a_later_page_without_an_earlier_one() -> None:
    files, file = prepared()
    file.write(b"x" * 4096 * 4, 0)
    contents = [bytes(files.after_crash("reordered", seed).content(FILE)) for seed in range(50)]
    assert any(content.startswith(bytes(4096)) and b"x" in content for content in contents)


def test_a_name_is_durable_only_when_its_folder_was_synced() -> None:
    files = SimFiles()
    files.make_dirs(FILE.parent)
    file = files.open(FILE, "x")
    file.write(b"content", 0)
    file.sync()
    assert not files.after_crash("dropped").exists(FILE)
    files.sync_dir(FILE.parent)
    assert files.after_crash("dropped").content(FILE) == b"content"


@pytest.mark.parametrize("mode", CRASH_MODES)
def test_replacing_a_file_leaves_the_old_or_the_new_one(mode: CrashMode) -> None:
    operation = 0
    while True:
        operation += 1
        files = SimFiles()
        files.make_dirs(FILE.parent)
        replace_file(files, FILE, b"old")
        files.crash_at(files.operations + operation)
        try:
            replace_file(files, FILE, b"new")
        except Crash:
            for seed in range(5):
                assert read_file(files.after_crash(mode, seed), FILE) in (b"old", b"new")
        else:
            assert read_file(files.after_crash(mode), FILE) == b"new"
            return


def test_after_a_crash_everything_raises_it() -> None:
    files, file = prepared()
    files.crash_at(files.operations + 1)
    for _ in range(2):
        with pytest.raises(Crash):
            file.write(b"x", 0)


def test_faults_hit_the_operations_they_were_planned_for() -> None:
    files, file = prepared()
    files.fail("write", errno.EIO, pattern="*/file", skip=1, times=2)
    file.write(b"a", 0)
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            file.write(b"b", 1)
    file.write(b"c", 1)
    assert files.content(FILE) == b"ac"


def test_a_failed_sync_loses_the_pages_but_shows_them_still() -> None:
    files, file = prepared()
    file.write(b"lost", 0)
    files.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.sync()
    assert file.read(10, 0) == b"lost"
    assert files.after_crash("dropped").content(FILE) == b""


def test_a_full_disk_takes_what_fits_and_then_refuses() -> None:
    files, file = prepared()
    files.capacity = 10
    assert file.write(b"x" * 15, 0) == 10
    with pytest.raises(OSError, match="No space"):
        file.write(b"x", 10)
    file.write(b"y", 0)  # what is there already can be overwritten


def test_short_writes_are_completed_by_write_all() -> None:
    files, file = prepared(seed=3, short_writes=0.9)
    write_all(file, bytes(range(256)), 0)
    assert files.content(FILE) == bytes(range(256))
    assert files.trace.count(f"write {FILE}") > 3


def test_the_same_seed_replays_the_same_run() -> None:
    def trace(seed: int) -> list[str]:
        files, file = prepared(seed=seed, short_writes=0.5)
        for _ in range(20):
            write_all(file, files.random_bytes(100), file.size())
        return [*files.trace, bytes(files.content(FILE)).hex()]

    assert trace(1) == trace(1) != trace(2)
