"""Backups and restores from the command line."""

import json
from pathlib import Path

import holdfast as library
from tests.cli.terminal import Terminal


def test_a_store_is_backed_up_listed_verified_and_restored(holdfast: Terminal, tmp_path: Path) -> None:
    dest, new = str(tmp_path / "dest"), str(tmp_path / "new")
    holdfast("put orders hello")
    taken = holdfast(f"backup {dest} --json")
    assert taken.code == 0 and taken.json["queues"] == 1 and taken.json["new_bytes"] == taken.json["bytes"]
    again = holdfast(f"backup {dest} --json").json
    assert again["base"] == Path(taken.json["path"]).name and again["new_bytes"] < again["bytes"]
    listed = [json.loads(line) for line in holdfast(f"backup --list {dest} --json").lines]
    assert [one["path"] for one in listed] == [taken.json["path"], again["path"]]
    assert holdfast(f"backup --verify {dest}").code == 0
    restored = holdfast(f"restore {dest} --data {new} --json")
    assert restored.code == 0 and restored.json["ok"] and restored.json["queues"] == {"orders": 1}
    with library.open(new) as store:
        delivery = store.queue("orders").get()
        assert delivery is not None and delivery.payload == b"hello"


def test_for_people_it_says_what_is_there(holdfast: Terminal, tmp_path: Path) -> None:
    holdfast("put orders hello")
    text = holdfast(f"backup {tmp_path / 'dest'}").out
    assert "1 queue" in text and "writers were blocked" in text
    assert "intact" in holdfast(f"backup --list {tmp_path / 'dest'}").out
    assert "1 with 1 message" in holdfast(f"restore {tmp_path / 'dest'} --data {tmp_path / 'new'}").out


def test_a_damaged_backup_is_refused_and_what_is_whole_can_be_saved(holdfast: Terminal, tmp_path: Path) -> None:
    dest, new = str(tmp_path / "dest"), str(tmp_path / "new")
    holdfast("put orders hello")
    backup = Path(holdfast(f"backup {dest} --json").json["path"])
    watermark = backup / "logs" / "orders" / "watermark"
    watermark.write_bytes(b"nothing")
    verified = holdfast(f"backup --verify {dest}")
    assert verified.code == 1 and "logs/orders/watermark" in verified.err
    refused = holdfast(f"restore {dest} --data {new}")
    assert refused.code == 1 and "logs/orders/watermark" in refused.err and "--salvage" in refused.err
    saved = holdfast(f"restore {dest} --data {new} --salvage --json")
    assert saved.code == 1 and saved.json["queues"] == {"orders": 1}


def test_a_store_that_another_has_open_is_not_backed_up_from_outside(holdfast: Terminal, tmp_path: Path) -> None:
    holdfast("put orders hello")
    with library.open(holdfast.data):
        refused = holdfast(f"backup {tmp_path / 'dest'}")
    assert refused.code == 1 and "--url" in refused.err


def test_what_is_not_there_is_said(holdfast: Terminal, tmp_path: Path) -> None:
    assert holdfast(f"backup {tmp_path / 'dest'}").code == 1
    assert holdfast(f"restore {tmp_path / 'dest'}").code == 1
    assert holdfast(f"backup --list {tmp_path / 'dest'}").code == 1
