"""Real processes, with SeaweedFS and a folder: kill -9, pauses longer than the claim, and the end of the old owner."""

import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.base.files import SystemFiles
from holdfast.replica import open_bucket, verify_replica
from holdfast.replica.owner import read_owner
from tests.tiers import rounds

pytestmark = [pytest.mark.xdist_group("seaweed"), pytest.mark.slow]
_numbers = itertools.count()
_TTL_S = 3.0
_PATIENCE_S = 180.0
_ROUNDS = rounds(50, 4)
_WAYS = [("kill", "folder"), ("pause", "s3"), ("kill", "s3"), ("pause", "folder")]


class Player:
    """A process of `failover_process`, and what it has said."""

    def __init__(self, data: Path, url: str, role: str) -> None:
        command = [sys.executable, "-m", "tests.replica.failover_process", str(data), url, str(_TTL_S), role]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        self.said: list[dict[str, Any]] = []
        self._lines: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def await_said(self, wanted: Callable[[dict[str, Any]], bool], what: str) -> dict[str, Any]:
        """Return the first thing that it says from now on and that is wanted."""
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            line = self._lines.get(timeout=max(0.1, deadline - time.monotonic()))
            assert line is not None, f"it ended, and never was {what}: {self.said[-3:]}"
            if wanted(line):
                return line

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.said if line["kind"] == kind]

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for text in self.process.stdout:
            try:
                line = json.loads(text)
            except ValueError:  # killed while it wrote
                break
            self.said.append(line)
            self._lines.put(line)
        self._lines.put(None)


@pytest.fixture
def players() -> Iterator[list[Player]]:
    found: list[Player] = []
    yield found
    for one in found:
        one.end()


def url_of(storage: str, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    if storage == "folder":
        return (tmp_path / "replica").as_uri()
    for name, value in request.getfixturevalue("seaweed").environment().items():
        monkeypatch.setenv(name, value)
    return f"s3://tests/failover/{next(_numbers)}"


def await_yielding(url: str) -> None:
    """Return when the owner has promised to stop confirming at the end of its claim."""
    deadline = time.monotonic() + _PATIENCE_S
    bucket = open_bucket(url)
    while not ((record := read_owner(bucket)) is not None and record.yields):
        assert time.monotonic() < deadline, f"the owner does not yield: {record}"
        time.sleep(0.1)


@pytest.mark.parametrize(("round_", "end", "storage"), [(number, *_WAYS[number % 4]) for number in range(_ROUNDS)])
def test_a_standby_takes_over_from_an_owner_that_ends(
    round_: int,
    end: str,
    storage: str,
    tmp_path: Path,
    players: list[Player],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = url_of(storage, request, tmp_path, monkeypatch)
    owner = Player(tmp_path / "first", url, "owner")
    players.append(owner)
    owner.await_said(lambda line: line["kind"] == "confirmed" and line["shipped_at"] is not None, "shipping")
    standby = Player(tmp_path / "second", url, "standby")
    players.append(standby)
    await_yielding(url)
    time.sleep(0.05 * (round_ % 20))  # at another moment of its round
    if end == "kill":
        owner.process.kill()
    else:
        pause(owner, tmp_path / "replica" / ".lock")
    opened = standby.await_said(lambda line: line["kind"] == "opened", "the owner")
    for _ in range(20):
        standby.await_said(lambda line: line["kind"] == "confirmed", "confirming")
    if end == "pause":
        owner.process.send_signal(signal.SIGCONT)
        fenced = owner.await_said(lambda line: line["kind"] == "fenced", "fenced")
        assert "has lost the replica" in fenced["why"]
        assert owner.process.wait(_PATIENCE_S) == 0
    standby.await_said(lambda line: line["kind"] == "confirmed", "still confirming")
    check(owner, standby, set(opened["found"]))
    for one in players:
        one.end()
    assert verify_replica(url).ok


def pause(owner: Player, lock: Path) -> None:
    """Stop the process, but not while it holds the lock of a replica in a folder: nobody could take that over."""
    while True:
        owner.process.send_signal(signal.SIGSTOP)
        time.sleep(0.05)
        if not lock.exists() or not SystemFiles().is_locked(lock):
            return
        owner.process.send_signal(signal.SIGCONT)
        time.sleep(0.05)


def check(owner: Player, standby: Player, found: set[str]) -> None:
    """Never do both confirm at the same time, and only what was reported as lag is lost."""
    before, after = owner.of_kind("confirmed"), standby.of_kind("confirmed")
    assert before
    assert max(line["at"] for line in before) < min(line["at"] for line in after), "two owners confirm at a time"
    shipped_at = max(line["shipped_at"] or 0 for line in before)
    missing = [line["name"] for line in before if line["name"] not in found and line["put_at"] < shipped_at]
    assert not missing, f"shipped, and lost: {missing}"
