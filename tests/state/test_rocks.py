"""What only a real disk can show: kills, other processes, forks, damage and locks."""

import contextlib
import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict, SstFileWriter

from holdfast.base.errors import Closed, Corrupt, DiskFull, HoldfastError, Locked, NotFound, StorageError, WriterStopped
from holdfast.state import TABLE_FAMILIES, RocksState
from holdfast.state.rocksdb_errors import refusal
from tests.interrupts import Interrupts, LimitExceeded
from tests.state.places import content, put
from tests.state.writer import number_in
from tests.tiers import a_seed

ROOT = Path(__file__).parent.parent.parent


class Child:
    """A writer in another process."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.state.writer", str(folder)], stdout=subprocess.PIPE, cwd=ROOT
        )
        assert self._process.stdout is not None
        self._pipe = self._process.stdout
        self._output = bytearray(os.read(self._pipe.fileno(), 1 << 16))
        assert self._output.startswith(b"open"), "the writer did not start"

    def committed(self) -> int:
        """The last number that it said was committed, so far."""
        while select.select([self._pipe], [], [], 0)[0] and (more := os.read(self._pipe.fileno(), 1 << 16)):
            self._output += more
        lines = self._output[: self._output.rfind(b"\n")].decode().splitlines()
        return int(lines[-1].removeprefix("open "))

    def kill(self) -> int:
        """Stop it with no warning, and say what it had committed."""
        self._process.send_signal(signal.SIGKILL)
        assert self._process.wait(timeout=30) == -signal.SIGKILL
        committed = self.committed()
        self._pipe.close()
        return committed


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[Child]:
    child = Child(folder)
    try:
        yield child
    finally:
        child.kill()


def test_kills_lose_nothing_that_was_committed_and_leave_nothing_by_halves(tmp_path: Path) -> None:
    seed = a_seed()
    print("seed", seed)
    moments = random.Random(seed)
    for _ in range(8):
        child = Child(tmp_path / "state")
        time.sleep(moments.uniform(0.0, 0.3))
        committed = child.kill()
        reader = RocksState(tmp_path / "state", read_only=True)
        assert number_in(reader) in (committed, committed + 1)
        reader.close()
    state = RocksState(tmp_path / "state")
    assert number_in(state) in (committed, committed + 1)
    state.close()


def test_a_reader_opens_beside_a_busy_writer_and_sees_whole_commits(tmp_path: Path) -> None:
    with writing(tmp_path / "state") as child:
        seen = 0
        for _ in range(40):
            before = child.committed()
            reader = RocksState(tmp_path / "state", read_only=True)
            after = number_in(reader)
            assert after >= max(before, seen)
            seen = after
            reader.close()
    assert seen > 0


def test_a_reader_changes_nothing_in_the_folder(tmp_path: Path) -> None:
    writer = RocksState(tmp_path / "state")
    put(writer, "leases", {b"key": b"value"})

    def everything() -> dict[str, tuple[int, int, bytes]]:
        files = {path: path.stat() for path in (tmp_path / "state").iterdir()}
        return {path.name: (stat.st_ino, stat.st_mtime_ns, path.read_bytes()) for path, stat in files.items()}

    before = everything()
    reader = RocksState(tmp_path / "state", read_only=True)
    assert content(reader, "leases") == {b"key": b"value"}
    reader.close()
    assert everything() == before
    writer.close()


def test_a_reader_of_nothing_says_so_and_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        RocksState(tmp_path / "state", read_only=True)
    assert not (tmp_path / "state").exists()


def test_a_second_writer_is_refused_in_this_process_and_in_another(tmp_path: Path) -> None:
    state = RocksState(tmp_path / "state")
    with pytest.raises(Locked, match="this process"):
        RocksState(tmp_path / "state")
    state.close()
    with writing(tmp_path / "state"), pytest.raises(Locked, match="another process"):
        RocksState(tmp_path / "state")


def test_a_state_of_fewer_families_gets_the_others_and_one_of_more_keeps_them(tmp_path: Path) -> None:
    from rocksdict import Options, Rdict

    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    Rdict(str(tmp_path / "state"), options, {"leases": options, "of_tomorrow": options}).close()
    reader = RocksState(tmp_path / "state", read_only=True)
    assert reader.get("dedup", b"key") is None
    assert content(reader, "dedup") == {}
    reader.close()
    state = RocksState(tmp_path / "state")
    put(state, "dedup", {b"key": b"value"})
    state.close()
    assert "of_tomorrow" in Rdict.list_cf(str(tmp_path / "state"))


def test_closing_waits_for_commits_and_each_is_kept_or_refused(tmp_path: Path) -> None:
    state = RocksState(tmp_path / "state")
    kept: list[bytes] = []

    def commit(name: int) -> None:
        for number in range(10_000):
            key = b"%d-%d" % (name, number)
            try:
                put(state, "leases", {key: b"x"})
            except Closed:
                return
            kept.append(key)

    threads = [threading.Thread(target=commit, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    while len(kept) < 50:
        time.sleep(0.001)
    state.close()
    again = RocksState(tmp_path / "state")  # at once, whatever the threads do
    for thread in threads:
        thread.join()
    assert set(content(again, "leases")) == set(kept)
    again.close()


class Unsyncable:
    """A database that cannot be synced once `broken` is set."""

    broken = False
    list_cf = Rdict.list_cf

    def __init__(self, *arguments: Any) -> None:
        self._database = Rdict(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def flush_wal(self, sync: bool) -> None:
        if self.broken:
            raise Exception("IO error: While fdatasync: 000004.log: Input/output error")
        self._database.flush_wal(sync)


def test_the_state_stops_after_a_failed_sync_and_has_the_earlier_commits_when_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.state.rocks.Rdict", Unsyncable)
    state = RocksState(tmp_path / "state")
    put(state, "leases", {b"key": b"value"})
    monkeypatch.setattr(Unsyncable, "broken", True)
    for _ in range(2):
        with pytest.raises(WriterStopped, match="accepts no more commits"):
            put(state, "leases", {b"key": b"not durable"})
    state.close()
    monkeypatch.undo()
    again = RocksState(tmp_path / "state")
    assert again.get("leases", b"key") in (b"value", b"not durable")
    put(again, "leases", {b"key": b"goes on"})
    again.close()


FORKING = """
import gc, os, sys
from holdfast.base.errors import Closed
from holdfast.state import TABLE_FAMILIES, RocksState

state = RocksState(sys.argv[1])
transaction = state.transaction()
transaction.put("leases", b"key", b"value")
transaction.commit()
scan = state.scan("leases")
child = os.fork()
if child == 0:
    try:
        state.get("leases", b"key")
    except Closed:
        del state, scan, transaction
        gc.collect()
        sys.exit(7)  # through the whole end of the interpreter
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert list(scan) == [(b"key", b"value")]
transaction = state.transaction()
transaction.put("leases", b"key", b"after the fork")
transaction.commit()
state.close()
"""


def test_a_forked_child_is_refused_and_ends_without_touching_the_state(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORKING, str(tmp_path / "state")], check=True, timeout=60)
    state = RocksState(tmp_path / "state")
    assert state.get("leases", b"key") == b"after the fork"
    state.close()


def test_a_state_that_was_never_closed_lets_the_interpreter_end(tmp_path: Path) -> None:
    code = (
        "import sys; from holdfast.state import RocksState; state = RocksState(sys.argv[1]);"
        "transaction = state.transaction(); transaction.put('leases', b'key', b'value'); transaction.commit();"
        "scan = state.scan('leases')"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "state")], check=True, timeout=60)
    state = RocksState(tmp_path / "state")
    assert state.get("leases", b"key") == b"value"
    state.close()


def test_damage_that_a_scan_meets_is_an_error_and_never_an_early_end(tmp_path: Path) -> None:
    state = RocksState(tmp_path / "state")
    records = {number.to_bytes(4, "big"): b"%d" % number * 20 for number in range(3000)}
    put(state, "leases", records)
    state.close()
    RocksState(tmp_path / "state").close()  # whatever was in its log is in tables now
    [table] = (tmp_path / "state").glob("*.sst")
    with table.open("r+b") as file:
        file.seek(table.stat().st_size // 2)
        file.write(bytes(64))
    state = RocksState(tmp_path / "state")
    found = []
    with pytest.raises(Corrupt) as scanned:
        for record in state.scan("leases"):
            found.append(record)  # noqa: PERF402 - what came before the error is kept
    assert 0 < len(found) < 3000
    assert found == list(records.items())[: len(found)]
    with pytest.raises(Corrupt) as read:
        for key in records:
            state.get("leases", key)
    state.close()
    RocksState(tmp_path / "state").close()  # not held open by the errors
    assert (scanned.value.path, read.value.path) == (str(tmp_path / "state"),) * 2


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "IO error: No space left on device: While appending to file: {}/000017.log: No space left on device",
            DiskFull,
        ),
        ("Corruption: IO error: Disk quota exceeded: While open a file: {}/000017.log", DiskFull),
        ("IO error: Permission denied: While open a file for lock: {}/LOCK: Permission denied", StorageError),
        ("Corruption: Corruption: IO error: Permission denied: While open: {}/000009.sst", StorageError),
        ("Corruption: IO error: While pread offset 0 len 4096: {}/000009.sst: Input/output error", StorageError),
        ("IO error: While open a file for random read: {}/000009.sst: Too many open files", StorageError),
        ("IO error: Read-only file system: While mkdir if missing: {}: Read-only file system", StorageError),
        ("IO error: While lock file: {}/LOCK: Resource temporarily unavailable", Locked),
        ("IO error: lock hold by current process, acquire time 1: {}/LOCK: No locks available", Locked),
        ("Corruption: block checksum mismatch: stored = 1, computed = 2 in {}/000009.sst offset 0 size 9", Corrupt),
        ("IO error: No such file or directory: While opening a file: {}/MANIFEST-000005", Corrupt),
        ("Invalid argument: something new about {}", StorageError),
    ],
)
@pytest.mark.parametrize("folder", ["/data/state", "/data/Corruption: Permission denied/state"])
def test_what_rocksdb_says_becomes_the_error_that_it_means(text: str, kind: type[HoldfastError], folder: str) -> None:
    error = refusal(text.format(folder), "opening the state", Path(folder))
    assert type(error) is kind
    assert folder in str(error)


def test_entries_of_an_index_that_went_do_not_pile_up_in_memory(tmp_path: Path) -> None:
    """Each scan would step over all of them."""
    state = RocksState(tmp_path, families=TABLE_FAMILIES)
    for number in range(300):
        batch = state.transaction()
        for record in range(100):
            batch.delete("index", b"%08d%08d" % (number, record))
            batch.put("index", b"%08d%08d" % (number + 1, record), b"")
        batch.commit(sync=False)
    assert list(tmp_path.glob("*.sst")), "nothing was flushed"
    assert [name for name, _ in state.scan("index")] == [b"%08d%08d" % (300, record) for record in range(100)]
    state.close()


@pytest.mark.parametrize("error", [LimitExceeded, TimeoutError])
def test_a_handler_that_raises_at_any_place_of_a_commit_does_not_stop_the_state(
    tmp_path: Path, error: type[Exception]
) -> None:
    state = RocksState(tmp_path / "state")
    at = 0

    def commit() -> None:
        try:
            put(state, "leases", {b"key": b"%d" % at})
        except (LimitExceeded, TimeoutError):
            return

    while True:
        interrupts = Interrupts(at, error=error)
        interrupts.run(commit)
        if not interrupts.raised:
            break
        at += 1
        put(state, "leases", {b"key": b"%d" % at})
        assert state.get("leases", b"key") == b"%d" % at
    assert at > 10
    state.close()
    with contextlib.closing(RocksState(tmp_path / "state")) as state:
        assert state.get("leases", b"key") == b"%d" % at


def test_the_first_record_of_a_damaged_file_is_an_error_and_not_missing(tmp_path: Path) -> None:
    state = RocksState(tmp_path / "state")
    put(state, "leases", {b"%06d" % number: b"x" * 50 for number in range(500)})
    state.flush()
    state.close()
    for path in (tmp_path / "state").glob("*.sst"):
        raw = bytearray(path.read_bytes())
        raw[100] ^= 0xFF
        path.write_bytes(raw)
    with contextlib.closing(RocksState(tmp_path / "state")) as state, pytest.raises(Corrupt, match="damaged"):
        state.first("leases", b"0", b"9")


def test_what_sorted_files_hold_is_there_at_once_and_counts_as_a_commit(tmp_path: Path) -> None:
    with contextlib.closing(RocksState(tmp_path / "state")) as state:
        put(state, "leases", {b"b": b"2"})
        assert state.first("leases", b"a", b"z", since=state.commits) == (b"b", b"2")
        writer = SstFileWriter(options=Options(raw_mode=True))
        writer.open(str(tmp_path / "one.sst"))
        writer[b"a"] = b"1"
        writer.finish()
        before = state.commits
        state.ingest("leases", [tmp_path / "one.sst"])
        assert state.commits > before
        assert state.first("leases", b"a", b"z", since=before) == (b"a", b"1")
        put(state, "leases", {b"c": b"3"})
        assert content(state, "leases") == {b"a": b"1", b"b": b"2", b"c": b"3"}
