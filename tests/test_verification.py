"""`holdfast verify` checks everything in a store, and so does the doctor."""

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import holdfast
from holdfast import Flush, NotFound, Retention, Roll
from holdfast.base.files import UnsyncedFiles
from holdfast.cli.app import main
from holdfast.doctor import examine
from holdfast.log.log_file import read_identity
from tests.crash.every_file import Account, make_store, open_quickly


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with everything in it."""
    folder = tmp_path_factory.mktemp("pristine") / "store"
    make_store(folder)
    return folder


@pytest.fixture
def store(pristine: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    shutil.copytree(pristine, tmp_path / "store")
    return tmp_path / "store"


def segments(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.data"))


def flip(path: Path, byte: int = -20) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 4
    path.write_bytes(content)


def unlink_segment(path: Path) -> None:
    path.unlink()
    path.with_suffix(".index").unlink()


DAMAGE: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "a record": (lambda data: flip(segments(data / "logs/clicks")[1]), "log 'clicks'", "checksum"),
    "a journal": (lambda data: flip(segments(data / "journals/orders")[0]), "queue 'orders'", ""),
    "a table's log": (lambda data: flip(segments(data / "tables/Account")[0]), "table 'Account'", ""),
    "a transaction": (lambda data: flip(segments(data / "transactions")[0]), "transactions", ""),
    "a definition": (
        lambda data: flip(segments(data / "logs/holdfast.definitions")[0]),
        "log 'holdfast.definitions'",
        "",
    ),
    "the first segment": (
        lambda data: unlink_segment(segments(data / "logs/clicks")[0]),
        "log 'clicks'",
        "the first segment is missing: records 40 to 59",
    ),
    "a segment between": (lambda data: unlink_segment(segments(data / "logs/clicks")[1]), "log 'clicks'", "too early"),
    "the last segment": (
        lambda data: unlink_segment(segments(data / "logs/orders")[-1]),
        "log 'orders'",
        "the last segment is missing: records 48 to 59",
    ),
    "the only segment": (lambda data: unlink_segment(segments(data / "logs/mail")[0]), "log 'mail'", "missing"),
    "the journal's segment": (
        lambda data: unlink_segment(segments(data / "journals/mail")[0]),
        "queue 'mail'",
        "the last segment is missing",
    ),
    "the journal": (lambda data: shutil.rmtree(data / "journals/mail"), "queue 'mail'", "the journal is missing"),
    "the log of a queue": (lambda data: shutil.rmtree(data / "logs/mail"), "queue 'mail'", "the log of the queue"),
    "log.json": (lambda data: flip(data / "logs/clicks/log.json"), "log 'clicks'", "the file is damaged"),
    "log.json, gone": (lambda data: (data / "logs/mail/log.json").unlink(), "log 'mail'", "log.json is missing"),
    "queue.json": (lambda data: flip(data / "journals/mail/queue.json"), "queue 'mail'", "the file is damaged"),
    "queue.json, gone": (lambda data: (data / "journals/mail/queue.json").unlink(), "queue 'mail'", "settings"),
    "table.json": (lambda data: flip(data / "tables/Account/table.json"), "table 'Account'", "the file is damaged"),
    "table.json, gone": (lambda data: (data / "tables/Account/table.json").unlink(), "table 'Account'", "definition"),
    "a position": (lambda data: flip(data / "logs/clicks/tailers/audit.json"), "log 'clicks'", "the file is damaged"),
    "a position, gone": (
        lambda data: (data / "logs/clicks/tailers/audit.json").unlink(),
        "log 'clicks'",
        "the position of a tailer is missing",
    ),
    "a queue's position": (
        lambda data: (data / "logs/mail/tailers/queue%3Amail.json").unlink(),
        "queue 'mail'",
        "the position of the queue in its log is missing",
    ),
    "the state": (lambda data: flip(max((data / "state").glob("*.sst")), 20), "state", "damaged"),
    "the state's list of files": (lambda data: (data / "table-state/CURRENT").unlink(), "state", "damaged"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_verify_and_doctor_find_damage_to(store: Path, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    hit, whose, text = DAMAGE[what]
    hit(store)
    found = holdfast.verify(store)
    assert any(whose == one.what and text in one.text and one.advice for one in found.problems), found.problems
    assert main(["verify", "--data", str(store), "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert not said["ok"]
    assert any(one["what"] == whose for one in said["problems"])
    checks = {check.name: check for check in examine(store)}
    assert checks["damage"].state == "bad"


def test_a_whole_store_is_whole_and_stays_as_it_is(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    told: list[tuple[int, int]] = []
    found = holdfast.verify(str(store), progress=lambda done, total: told.append((done, total)))
    assert found.ok
    assert (found.logs, found.queues, found.tables, found.unchecked_files) == (5, 3, 1, 0)
    assert told[-1][0] == told[-1][1] > 0
    assert main(["verify", "--data", str(store)]) == 0
    assert capsys.readouterr().out.startswith("intact: 5 logs, 3 queues, 1 table")
    assert {path: path.read_bytes() for path in store.rglob("*") if path.is_file()} == before


def test_a_state_that_disagrees_with_its_journal_is_found(store: Path, tmp_path: Path) -> None:
    older = tmp_path / "older"
    shutil.copytree(store, older)
    with open_quickly(store) as opened:
        mail = opened.queue("mail")
        mail.ack(mail.lease(5))
    # The rows of one moment with the position of another, as a disk may leave them that lost a file.
    for name in ("journals", "logs"):
        shutil.rmtree(store / name / "mail")
        shutil.copytree(older / name / "mail", store / name / "mail")
    found = holdfast.verify(store)
    assert any("contradicts the journal" in one.text for one in found.problems), found.problems


def test_verify_works_while_the_store_is_in_use(store: Path) -> None:
    with holdfast.open(store) as owner:
        queue, table = owner.queue("mail"), owner.table(Account)
        queue.put_many([b"mail"] * 100)
        queue.ack(queue.lease(10))
        table.add(Account(number=500, owner="owner 500", balance=0))
        assert holdfast.verify(store).problems == []
        flip(segments(store / "logs/clicks")[0])
        assert not holdfast.verify(store).ok


@pytest.mark.parametrize("folder", ["logs/orders", "table-state"])
def test_what_an_owner_makes_while_it_is_verified_is_not_missing(
    store: Path, tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = tmp_path / "away"
    (store / folder).rename(away)
    (store / folder).mkdir()
    (store / folder / "half").touch()

    def sleep(seconds: float) -> None:
        if away.exists():
            shutil.rmtree(store / folder)
            away.rename(store / folder)

    # In that module alone: other threads of this process sleep, too.
    monkeypatch.setattr("holdfast.verification.time", SimpleNamespace(sleep=sleep))
    assert not holdfast.verify(store).ok
    with open_quickly(tmp_path / "other") as owner:
        (store / "LOCK").unlink()
        (store / "LOCK").hardlink_to(owner.path / "LOCK")
        assert holdfast.verify(store).problems == []


GONE = {
    "tables/Account": "table with the id 5",
    "tables": "table with the id 5",
    "logs/clicks": "log 'clicks'",
    "logs/holdfast.definitions": "log 'holdfast.definitions'",
    "logs/orders journals/orders": "queue 'orders'",
    "journals/orders logs/orders/tailers": "queue 'orders'",
}


@pytest.mark.parametrize("folders", GONE)
def test_whole_folders_that_are_gone_are_missed(store: Path, folders: str) -> None:
    for folder in folders.split():
        shutil.rmtree(store / folder)
    found = holdfast.verify(store)
    assert GONE[folders] in {one.what for one in found.problems}
    assert main(["verify", "--data", str(store)]) == 1


def test_what_was_deleted_on_purpose_is_not_missed(store: Path) -> None:
    with open_quickly(store) as opened:
        opened.log("both").append(b"x")
        opened.queue("both").put(b"x")
        for name in ("both", "orders", "mail"):
            opened.delete_queue(name)
        opened.table(Account)
        opened.delete_table("Account")
    found = holdfast.verify(store)
    assert (found.problems, found.tables) == ([], 0)


def test_a_store_of_an_earlier_version_has_no_list_of_logs(store: Path) -> None:
    shutil.rmtree(store / "known")
    assert holdfast.verify(store).ok
    with open_quickly(store) as opened:
        opened.log("clicks").append(b"x")
    assert holdfast.verify(store).ok


def test_damage_is_found_beside_a_live_owner(store: Path, tmp_path: Path) -> None:
    flip(segments(store / "logs/clicks")[1])
    (store / "logs/clicks/tailers/billing.json").unlink()
    with open_quickly(tmp_path / "other") as owner:
        (store / "LOCK").unlink()
        (store / "LOCK").hardlink_to(owner.path / "LOCK")
        assert len(holdfast.verify(store).problems) == 2


def test_nothing_is_logged_of_a_whole_store(store: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "holdfast"):
        assert holdfast.verify(store).ok
    assert caplog.messages == []


def test_a_store_after_a_crash_is_whole(store: Path, tmp_path: Path) -> None:
    with holdfast.open(store, files=UnsyncedFiles()) as owner:
        queue = owner.queue("mail")
        queue.put_many([b"mail"] * 100)
        queue.ack(queue.lease(10))
        owner.log("clicks", flush=Flush.sync(), roll=Roll.count(20)).append(b"click 100 " + bytes(100))
        shutil.copytree(store, tmp_path / "crashed")
    found = holdfast.verify(tmp_path / "crashed")
    assert found.problems == []


def test_what_retention_dropped_is_not_missing(tmp_path: Path) -> None:
    with holdfast.open(tmp_path) as store:
        log = store.log("events", flush=Flush.sync(), roll=Roll.count(1), retention=Retention(max_segments=3))
        for n in range(10):
            log.append(b"%d" % n)
        assert log.start == 7
    known = read_identity(UnsyncedFiles(), tmp_path / "logs" / "events")
    assert known is not None
    assert known.start == 7
    assert holdfast.verify(tmp_path).ok
    unlink_segment(segments(tmp_path / "logs" / "events")[0])
    (problem,) = holdfast.verify(tmp_path).problems
    assert problem.text == "the first segment is missing: records 7 to 7"


def test_there_must_be_a_store_to_verify(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(NotFound, match="there is no store"):
        holdfast.verify(tmp_path / "nowhere")
    assert main(["verify", "--data", str(tmp_path / "nowhere")]) == 1
    assert main(["verify", "--url", "http://localhost:1"]) == 2
    assert "run it on the machine of the store" in capsys.readouterr().err


def test_a_large_store_is_looked_over_quickly(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.doctor.READ_WHOLE", 0)
    flip(segments(store / "logs/clicks")[0])
    assert holdfast.verify(store, quick=True).ok
    checks: dict[str, Any] = {check.name: check for check in examine(store)}
    assert checks["damage"].found == "none in 5 logs, 3 queues and 1 table (last segments only)"


def test_a_backup_leaves_no_file_without_a_checksum(store: Path, tmp_path: Path) -> None:
    with open_quickly(store) as one:
        one.backup(tmp_path / "backups")
    assert b"crc32c" in (store / "last-backup.json").read_bytes()
    found = holdfast.verify(store)
    assert found.ok and not found.unchecked_files


def test_a_damaged_message_is_not_also_reported_as_a_damaged_state(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "store") as one:
        one.queue("orders").put_many([bytes([number]) * 1000 for number in range(10)])
    flip(segments(tmp_path / "store/logs/orders")[0], -1500)
    found = holdfast.verify(tmp_path / "store")
    assert [problem.what for problem in found.problems] == ["log 'orders'"]
