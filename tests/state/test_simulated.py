"""What only a simulated disk can show: a crash at every operation, a full disk, failed syncs, damage anywhere."""

import errno
from pathlib import Path

import pytest

from holdfast.base.errors import Corrupt, DiskFull, NewerFormat, StorageError, WriterStopped
from holdfast.state import SimulatedState
from holdfast.testing import SimFiles, crash_points
from tests.state.places import content, put

PATH = Path("data/state/flat")


class Commits:
    """Ten commits, each of which changes two families; some put more than a page."""

    def __init__(self) -> None:
        self.confirmed = 0

    def run(self, files: SimFiles) -> None:
        state = SimulatedState(files, PATH)
        for number in range(1, 11):
            transaction = state.transaction()
            transaction.put("leases", b"%d" % number, b"x" * (number * 1500))
            transaction.delete_range("leases", b"%d" % (number - 2), b"%d" % (number - 1))
            transaction.put("positions", b"number", b"%d" % number)
            transaction.commit()
            self.confirmed = number

    def check(self, files: SimFiles) -> None:
        state = SimulatedState(files, PATH)
        number = int(state.get("positions", b"number") or b"0")
        assert number in (self.confirmed, self.confirmed + 1)
        if number:
            assert content(state, "leases")[b"%d" % number] == b"x" * (number * 1500)
        put(state, "positions", {b"number": b"goes on"})
        assert SimulatedState(files, PATH).get("positions", b"number") == b"goes on"


def test_after_any_crash_the_old_state_or_the_new_one_is_there() -> None:
    assert crash_points(Commits, seeds=range(3)) > 200


def test_short_writes_change_nothing_about_it() -> None:
    assert crash_points(Commits, files=lambda seed: SimFiles(seed, short_writes=0.5), seeds=range(2)) > 200


def test_the_suite_fails_when_fsync_does_nothing() -> None:
    with pytest.raises((AssertionError, Corrupt)):
        crash_points(Commits, files=lambda seed: SimFiles(seed, lose_syncs=True), seeds=range(3))


@pytest.mark.parametrize("empty", [False, True])
def test_a_transaction_of_nothing_writes_nothing(files: SimFiles, empty: bool) -> None:
    state = SimulatedState(files, PATH)
    before = files.operations
    transaction = state.transaction()
    if not empty:
        transaction.get("leases", b"key")
        transaction.delete_range("leases", b"b", b"a")
    transaction.commit()
    assert files.operations == before


def test_a_reader_writes_nothing(files: SimFiles) -> None:
    assert content(SimulatedState(files, PATH, read_only=True), "leases") == {}
    assert files.operations == 0


def test_a_full_disk_refuses_the_commit_and_the_next_one_goes_on(files: SimFiles) -> None:
    state = SimulatedState(files, PATH)
    put(state, "leases", {b"key": b"value"})
    files.capacity = 200
    with pytest.raises(DiskFull):
        put(state, "leases", {b"key": b"x" * 1000})
    assert state.get("leases", b"key") == b"value"
    files.capacity = None
    put(state, "leases", {b"other": b"value"})
    assert content(SimulatedState(files, PATH), "leases") == {b"key": b"value", b"other": b"value"}


@pytest.mark.parametrize("kind", ["sync", "replace", "sync_dir"])
def test_the_state_stops_after_a_failure_until_it_is_opened_again(files: SimFiles, kind: str) -> None:
    state = SimulatedState(files, PATH)
    put(state, "leases", {b"key": b"value"})
    files.fail(kind, errno.EIO)
    for _ in range(2):
        with pytest.raises(WriterStopped, match="accepts no more commits"):
            put(state, "leases", {b"key": b"changed"})
    assert state.get("leases", b"key") == b"value"
    again = SimulatedState(files, PATH)
    put(again, "leases", {b"key": b"goes on"})
    assert again.get("leases", b"key") == b"goes on"


def test_an_error_of_the_disk_at_opening_is_no_damage(files: SimFiles) -> None:
    put(SimulatedState(files, PATH), "leases", {b"key": b"value"})
    files.fail("read", errno.EIO)
    with pytest.raises(StorageError, match="opening the state"):
        SimulatedState(files, PATH)


def test_a_changed_byte_anywhere_is_noticed(files: SimFiles) -> None:
    put(SimulatedState(files, PATH), "leases", {b"key": b"value"})
    raw = files.content(PATH)
    for position in range(len(raw)):
        raw[position] ^= 0x10
        with pytest.raises(Corrupt) as damage:
            SimulatedState(files, PATH)
        assert damage.value.path == str(PATH)
        raw[position] ^= 0x10
    assert SimulatedState(files, PATH).get("leases", b"key") == b"value"


def test_a_file_cut_off_anywhere_is_noticed(files: SimFiles) -> None:
    put(SimulatedState(files, PATH), "leases", {b"key": b"value"})
    whole = bytes(files.content(PATH))
    for size in range(len(whole)):
        files.content(PATH)[:] = whole[:size]
        with pytest.raises(Corrupt):
            SimulatedState(files, PATH)


def test_a_file_of_a_newer_format_is_told_from_a_damaged_one(files: SimFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.state.simulated.VERSION", 2)
    put(SimulatedState(files, PATH), "leases", {b"key": b"value"})
    monkeypatch.undo()
    with pytest.raises(NewerFormat):
        SimulatedState(files, PATH)
