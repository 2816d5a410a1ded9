"""Modes of what a store is made of: for its owner alone, whatever the umask, unless its group is let in."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast import Model, field
from holdfast.pipeline_runs import Runs
from holdfast.state.rocks import RocksState
from tests.amqp.serving import Served


class Account(Model, id=1, version="1.0"):
    name: str = field(1)


@pytest.fixture(params=[0o000, 0o022], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    before = os.umask(request.param)
    yield
    os.umask(before)


def fill(store: holdfast.Store) -> None:
    """Something of each kind, on disk."""
    store.log("clicks").append(b"x")
    with store.log("clicks").tailer("audit") as tailer:
        tailer.commit()
    queue = store.queue("orders", max_length=10)
    queue.put(b"secret", dedup="1")
    store.table(Account).add(Account(name="Ada"))
    with store.transaction():
        store.table(Account).add(Account(name="Grace"))
        queue.put(b"y")
    Runs(store.path).begin("verify", {})


def modes(folder: Path) -> dict[str, set[int]]:
    """The modes of all folders and of all files, also of those that RocksDB made."""
    found: dict[str, set[int]] = {"folders": {folder.stat().st_mode & 0o777}, "files": set()}
    for path in folder.rglob("*"):
        found["folders" if path.is_dir() else "files"].add(path.stat().st_mode & 0o777)
    return found


def test_a_store_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path, umask: None) -> None:
    with holdfast.open(tmp_path / "new" / "data") as store:
        fill(store)
        store.backup(tmp_path / "backups")
    assert modes(tmp_path / "new") == {"folders": {0o700}, "files": {0o600}}
    assert modes(tmp_path / "backups") == {"folders": {0o700}, "files": {0o600}}


def test_a_restored_store_is_for_its_owner_alone_also_if_the_old_one_was_not(tmp_path: Path, umask: None) -> None:
    with holdfast.open(tmp_path / "data") as store:
        fill(store)
        for path in [tmp_path / "data", *(tmp_path / "data").rglob("*")]:  # as versions before did it
            path.chmod(0o755 if path.is_dir() else 0o644)
        store.backup(tmp_path / "backups", copy=True)
    holdfast.restore_backup(tmp_path / "backups", tmp_path / "restored")
    assert modes(tmp_path / "restored") == {"folders": {0o700}, "files": {0o600}}


def test_the_group_is_let_in_where_that_is_said_once(tmp_path: Path, umask: None) -> None:
    with holdfast.open(tmp_path / "data", group_readable=True) as store:
        fill(store)
    with holdfast.open(tmp_path / "data") as store:  # whoever opens it later need not know
        store.log("more").append(b"x")
    assert modes(tmp_path / "data") == {"folders": {0o750}, "files": {0o640}}
    with holdfast.open(tmp_path / "data", group_readable=False) as store:
        store.log("even more").append(b"x")
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700


def test_a_folder_of_an_old_store_keeps_its_mode_and_new_files_are_private(tmp_path: Path, umask: None) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data").chmod(0o755)
    with holdfast.open(tmp_path / "data") as store:
        fill(store)
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o755
    found = modes(tmp_path / "data")
    assert (found["folders"], found["files"]) == ({0o755, 0o700}, {0o600})


def test_a_server_makes_nothing_that_others_can_read(tmp_path: Path, umask: None) -> None:
    with Served(tmp_path / "data", http_port=0, rpc_port="none") as served, served.client() as client:
        client.declare("orders")
        client.publish("orders", [b"secret"])
        assert client.count("orders") >= 0
    every = [tmp_path / "data", *(tmp_path / "data").rglob("*")]
    assert [str(path) for path in every if path.stat().st_mode & 0o077] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_of_the_machine_reads_no_message(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with holdfast.open(tmp_path / "data") as store:
            fill(store)
    finally:
        os.umask(before)
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent, tmp_path.parent.parent.parent):
        folder.chmod(folder.stat().st_mode | 0o055)
    script = "import os,sys; os.setgroups([]); os.setgid(65534); os.setuid(65534); print(os.listdir(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "data")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Permission denied" in done.stderr


def test_what_rocksdb_makes_while_it_is_open_is_in_a_closed_folder_and_private_after_closing(
    tmp_path: Path, umask: None
) -> None:
    state = RocksState(tmp_path / "state")
    try:
        assert modes(tmp_path / "state") == {"folders": {0o700}, "files": {0o600}}
        transaction = state.transaction()
        transaction.put("available", b"key", b"value")
        transaction.commit()
        state.flush()
        assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    finally:
        state.close()
    assert list((tmp_path / "state").glob("*.sst"))
    assert modes(tmp_path / "state") == {"folders": {0o700}, "files": {0o600}}
