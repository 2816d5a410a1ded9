"""kill -9 on a real process that writes to a real disk: all that was acknowledged is there."""

import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import holdfast
from tests.crash.writer import payload_of
from tests.tiers import a_seed, rounds

ROUNDS = rounds(100, 8)
ROOT = Path(__file__).parent.parent.parent


def confirmed_by_a_killed_writer(folder: Path, patience_s: float) -> dict[int, int]:
    """Start a writer, let it work, kill it in the middle; what it said was confirmed, sequence by sequence."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.writer", str(folder)], stdout=subprocess.PIPE, cwd=ROOT
    )
    assert child.stdout is not None
    with child.stdout as pipe:
        output = bytearray(os.read(pipe.fileno(), 1 << 16))
        assert output.startswith(b"open"), "the writer did not start"
        deadline = time.monotonic() + patience_s
        while (left := deadline - time.monotonic()) > 0:
            if select.select([pipe], [], [], left)[0]:
                output += os.read(pipe.fileno(), 1 << 16)
        child.send_signal(signal.SIGKILL)
        output += pipe.read()
    assert child.wait(timeout=30) == -signal.SIGKILL
    lines = output[: output.rfind(b"\n")].decode().splitlines()[1:]
    return {int(sequence): int(number) for sequence, number in (line.split("=") for line in lines)}


@pytest.mark.slow
def test_kills_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    seed = a_seed()
    print("seed", seed)
    moments = random.Random(seed)
    folder = tmp_path / "data"
    confirmed: dict[int, int] = {}
    for _ in range(ROUNDS):
        confirmed |= confirmed_by_a_killed_writer(folder, moments.uniform(0.0, 0.1))
        with holdfast.open(folder, read_only=True) as store:  # what a reader sees before anyone repairs anything
            end_seen = store.log("events").end
            assert all(sequence < end_seen for sequence in confirmed)
    with holdfast.open(folder) as store:
        log = store.log("events")
        records = {record.sequence: record for record in log.read()}
        assert list(records) == list(range(log.end))
        for sequence, number in confirmed.items():
            assert records[sequence].payload == payload_of(number)
        for record in records.values():
            assert record.payload == payload_of(int(record.payload.split(b":")[0]))
        assert log.verify().ok
        assert not log.damage
    assert len(confirmed) > ROUNDS // 10  # a busy disk may take half of the time for each
