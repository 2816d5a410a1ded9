"""Replicas from the command line."""

import json
from pathlib import Path

import pytest

import holdfast as library
from holdfast.replica import Standby
from tests.cli.terminal import Terminal


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A replica in a folder, with two moments of one queue."""
    where = (tmp_path / "replica").as_uri()
    with library.open(tmp_path / "original", replica=where) as store:
        for number in range(2):
            store.queue("orders").put(b"order %d" % number)
            store.replica.ship()
    return where


@pytest.fixture
def holdfast(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path / "data")


def test_a_replica_is_listed_verified_and_restored(holdfast: Terminal, url: str) -> None:
    status = holdfast(f"replica status {url} --json").json
    assert (status["queues"], status["logs"], status["owner"]["released"]) == (1, 1, True)
    assert status["standbys"] == []
    moments = [json.loads(line) for line in holdfast(f"replica moments {url} --json").lines]
    assert [one["epoch"] for one in moments] == [1] * len(moments)
    assert status["newest"] == moments[-1]
    verified = holdfast(f"replica verify {url} --all --json")
    assert verified.code == 0
    assert (verified.json["ok"], verified.json["moments"]) == (True, len(moments))
    restored = holdfast(f"restore {url} --json")
    assert restored.code == 0
    assert (restored.json["ok"], restored.json["queues"], restored.json["is_newest"]) == (True, {"orders": 2}, True)
    assert holdfast("peek orders").out.count("order") >= 2


def test_an_earlier_moment_is_restored(holdfast: Terminal, url: str) -> None:
    moments = [json.loads(line) for line in holdfast(f"replica moments {url} --json").lines]
    restored = holdfast(f"restore {url} --moment {moments[0]['moment']} --json")
    assert restored.code == 0
    assert restored.json["moment"] == moments[0]["moment"]
    assert not restored.json["is_newest"]
    assert holdfast(f"restore {url} --at 2020-01-01T00:00:00Z --data x").code == 1


def test_standbys_are_listed_with_the_ids_that_promote_takes(holdfast: Terminal, url: str, tmp_path: Path) -> None:
    with Standby(url, tmp_path / "warm") as standby:
        standby.tick()
        [found] = holdfast(f"replica status {url} --json").json["standbys"]
        assert found["id"] in holdfast(f"replica status {url}").out
        assert found["moment"] == standby.status().moment
    assert holdfast(f"replica status {url} --json").json["standbys"] == []


def test_for_people_it_says_what_is_there(holdfast: Terminal, url: str) -> None:
    assert "1 queue, 1 log, 0 tables" in holdfast(f"replica status {url}").out
    assert "1-1" in holdfast(f"replica moments {url}").out
    assert "intact" in holdfast(f"replica verify {url}").out
    assert "1 with 2 messages" in holdfast(f"restore {url}").out


def test_damage_is_said_and_nothing_is_restored(holdfast: Terminal, url: str, tmp_path: Path) -> None:
    [*_, last] = sorted((tmp_path / "replica" / "logs" / "orders").rglob("*.1"))
    last.write_bytes(last.read_bytes()[:-1] + b"?")
    verified = holdfast(f"replica verify {url}")
    assert verified.code == 1
    assert "its checksum does not match" in verified.err
    refused = holdfast(f"restore {url}")
    assert refused.code == 1
    assert "Use another moment" in refused.err
    assert not holdfast.data.exists()


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("restore {url} --salvage", "--salvage works on backups only"),
        ("restore {folder} --moment 1-1", "--moment works on replicas only"),
        ("replica verify {url} --all --moment 1-1", "choose one"),
        ("replica status {folder}", "is not the URL of a replica"),
        ("replica status file:///nowhere/at/all", "there is no replica at file:///nowhere/at/all"),
        ("restore {url} --moment x", "use EPOCH-NUMBER"),
        ("replica forget {url} --yes", "choose one: --before TIME or --all"),
        ("replica promote {folder}", "is not the URL of a replica"),
    ],
)
def test_what_cannot_be_is_said(holdfast: Terminal, url: str, tmp_path: Path, command: str, text: str) -> None:
    done = holdfast(command.format(url=url, folder=tmp_path))
    assert done.code in (1, 2)
    assert text in done.err


def test_moments_are_forgotten_after_a_confirmation(holdfast: Terminal, url: str) -> None:
    moments = [json.loads(line) for line in holdfast(f"replica moments {url} --json").lines]
    refused = holdfast(f"replica forget {url} --before 2100-01-01T00:00:00Z")
    assert refused.code == 2
    assert "refusing to delete moments without confirmation" in refused.err
    done = holdfast(f"replica forget {url} --before 2100-01-01T00:00:00Z --yes --json").json
    assert (done["moments"], done["kept"]) == (len(moments) - 1, 1)
    assert holdfast(f"replica verify {url} --all").code == 0
    assert "1 moment left" in holdfast(f"replica forget {url} --before 2020-01-01T00:00:00Z --yes").out
    everything = holdfast(f"replica forget {url} --all --yes --json").json
    assert (everything["moments"], everything["kept"]) == (1, 0)
    assert "there is no replica" in holdfast(f"replica status {url}").err


def test_promotion_without_a_standby_says_how_to_start_one(holdfast: Terminal, url: str) -> None:
    done = holdfast(f"replica promote {url}")
    assert done.code == 1
    assert "holdfast serve --standby" in done.err


def test_a_standby_needs_a_replica(holdfast: Terminal) -> None:
    done = holdfast("serve --standby")
    assert done.code == 1
    assert "standby needs the URL of the replica" in done.err
