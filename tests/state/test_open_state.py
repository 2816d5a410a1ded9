"""Which state a store gets, and what becomes of one that is damaged, locked or out of reach."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.base.errors import Closed, Locked, ReadOnly, StorageError
from holdfast.base.files import Files, SystemFiles
from holdfast.state import RocksState, SimulatedState, open_state
from holdfast.testing import SimFiles
from tests.state.places import content, put

Home = tuple[Files, Path]


@pytest.fixture(params=["real files", "simulated files"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Home:
    return (
        (SystemFiles(), tmp_path / "data" / "state") if request.param == "real files" else (SimFiles(), Path("d/state"))
    )


def damage(home: Home) -> None:
    """Spoil what says where everything is."""
    files, folder = home
    if isinstance(files, SimFiles):
        files.content(folder / "state.flat")[8] ^= 1
    else:
        [manifest] = folder.glob("MANIFEST-*")
        raw = manifest.read_bytes()
        manifest.write_bytes(bytes([raw[0] ^ 1]) + raw[1:])  # of a checksum, whose bytes may be any


def test_real_files_get_rocksdb_and_simulated_ones_the_flat_state(tmp_path: Path) -> None:
    rocks = open_state(SystemFiles(), tmp_path / "data" / "state")
    assert isinstance(rocks, RocksState)
    rocks.close()
    assert isinstance(open_state(SimFiles(), Path("data/state")), SimulatedState)


def test_a_state_is_made_where_there_is_none_and_found_again(home: Home) -> None:
    state = open_state(*home)
    put(state, "leases", {b"key": b"value"})
    state.close()
    again = open_state(*home)
    assert content(again, "leases") == {b"key": b"value"}
    again.close()


def test_a_damaged_state_is_set_aside_and_an_empty_one_takes_its_place(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    files, folder = home
    for number in (1, 2):
        state = open_state(*home)
        put(state, "leases", {b"key": b"value"})
        state.close()
        damage(home)
        before = files.list(folder)
        caplog.clear()
        again = open_state(*home)
        assert content(again, "leases") == {}
        put(again, "leases", {b"key": b"rebuilt"})
        again.close()
        aside = folder.with_name(f"state.damaged-{number}")
        assert set(files.list(aside)) >= {name for name in before if not name.startswith("LOG")}
        [record] = caplog.records
        assert (record.name, record.levelno) == ("holdfast.state", logging.ERROR)
        assert (vars(record)["path"], vars(record)["aside"]) == (str(folder), str(aside))
    kept = open_state(*home)
    assert content(kept, "leases") == {b"key": b"rebuilt"}
    kept.close()


def test_a_reader_of_a_damaged_state_gets_an_empty_one_and_moves_nothing(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    files, folder = home
    state = open_state(*home)
    put(state, "leases", {b"key": b"value"})
    state.close()
    damage(home)
    before = files.list(folder), files.list(folder.parent)
    reader = open_state(*home, read_only=True)
    assert content(reader, "leases") == {}
    assert reader.get("leases", b"key") is None
    assert (files.list(folder), files.list(folder.parent)) == before
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    refused = reader.transaction()
    refused.put("leases", b"key", b"value")
    with pytest.raises(ReadOnly):
        refused.commit()


def test_a_reader_of_nothing_gets_an_empty_state_and_makes_nothing(home: Home) -> None:
    files, folder = home
    reader = open_state(*home, read_only=True)
    assert content(reader, "leases") == {}
    assert reader.transaction().get("leases", b"key") is None
    reader.close()
    assert not files.exists(folder)


def spoil_manifest(folder: Path) -> None:
    [manifest] = folder.glob("MANIFEST-*")
    manifest.write_bytes(b"nonsense")


def remove_tables(folder: Path) -> None:
    for table in folder.glob("*.sst"):
        table.unlink()


def cut_tables(folder: Path) -> None:
    for table in folder.glob("*.sst"):
        os.truncate(table, table.stat().st_size // 2)


def remove_manifest(folder: Path) -> None:
    [manifest] = folder.glob("MANIFEST-*")
    manifest.unlink()


@pytest.mark.parametrize(
    "spoil",
    [
        spoil_manifest,
        remove_manifest,
        remove_tables,
        cut_tables,
        lambda folder: (folder / "CURRENT").unlink(),
        lambda folder: (folder / "CURRENT").write_bytes(b""),
        lambda folder: (folder / "CURRENT").write_bytes(b"MANIFEST-nonsense\n"),
    ],
    ids=["manifest", "no manifest", "no tables", "cut tables", "no current", "empty current", "wrong current"],
)
def test_every_kind_of_damage_that_keeps_rocksdb_from_opening_is_set_aside(
    tmp_path: Path, spoil: Callable[[Path], object]
) -> None:
    folder = tmp_path / "state"
    for _ in range(2):  # opened twice, so that there are tables
        state = open_state(SystemFiles(), folder)
        put(state, "leases", {b"key": b"value"})
        state.close()
    spoil(folder)
    again = open_state(SystemFiles(), folder)
    assert content(again, "leases") == {}
    again.close()
    assert (tmp_path / "state.damaged-1").is_dir()


@pytest.mark.parametrize("name", ["OPTIONS-*", "IDENTITY", "rocksdict-config.json", "LOG"])
def test_the_loss_of_a_file_that_holds_no_state_is_no_damage(tmp_path: Path, name: str) -> None:
    state = open_state(SystemFiles(), tmp_path / "state")
    put(state, "leases", {b"key": b"value"})
    state.close()
    for path in (tmp_path / "state").glob(name):
        path.write_bytes(b"nonsense" * 100)
    again = open_state(SystemFiles(), tmp_path / "state")
    assert content(again, "leases") == {b"key": b"value"}
    again.close()


def test_a_locked_state_is_an_error_and_stays_where_it_is_even_if_damaged(tmp_path: Path) -> None:
    state = open_state(SystemFiles(), tmp_path / "state")
    put(state, "leases", {b"key": b"value"})
    spoil_manifest(tmp_path / "state")
    with pytest.raises(Locked):
        open_state(SystemFiles(), tmp_path / "state")
    assert [path.name for path in tmp_path.iterdir()] == ["state"]
    state.close()


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is forbidden to root")
@pytest.mark.parametrize("name", [".", "CURRENT", "*.sst"])
def test_a_state_that_may_not_be_read_is_an_error_and_stays_where_it_is(tmp_path: Path, name: str) -> None:
    for _ in range(2):
        state = open_state(SystemFiles(), tmp_path / "state")
        put(state, "leases", {b"key": b"value"})
        state.close()
    forbidden = list((tmp_path / "state").glob(name)) if name != "." else [tmp_path / "state"]
    for path in forbidden:
        path.chmod(0)
    try:
        with pytest.raises(StorageError):
            open_state(SystemFiles(), tmp_path / "state")
        assert [path.name for path in tmp_path.iterdir()] == ["state"]
    finally:
        for path in forbidden:
            path.chmod(0o755)


def test_a_file_where_the_folder_should_be_is_an_error_and_stays(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"mine")
    for read_only in (False, True):
        with pytest.raises(StorageError, match="file, not a folder"):
            open_state(SystemFiles(), tmp_path / "state", read_only=read_only)
    assert (tmp_path / "state").read_bytes() == b"mine"


def test_a_reader_of_a_store_without_a_state_finds_nothing_until_it_closes(home: Home) -> None:
    state = open_state(*home, read_only=True)
    assert state.get("index", b"key") is None
    assert list(state.scan("index")) == []
    assert state.commits == 0
    state.close()
    with pytest.raises(Closed):
        state.get("index", b"key")
    with pytest.raises(Closed):
        state.scan("index")
    with pytest.raises(Closed):
        state.transaction()
