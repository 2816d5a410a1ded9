"""Sixteen threads and kill -9, on a real disk with a real RocksDB: each message is acked once, and none is lost."""

import os
import random
import select
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import holdfast
from tests.queue.internals import state_of
from tests.tiers import a_seed, rounds

MESSAGES = rounds(200_000, 20_000)
KILLS = rounds(15, 4)
ROOT = Path(__file__).parent.parent.parent


@dataclass
class Ledger:
    """What a process that was killed has told."""

    confirmed: set[int] = field(default_factory=set)
    acked: set[int] = field(default_factory=set)
    acking: set[int] = field(default_factory=set)
    """An ack was begun and, so far, not confirmed: it may or may not have happened."""
    faults: list[str] = field(default_factory=list)
    deliveries: int = 0
    done: bool = False

    def note(self, output: bytes) -> None:
        for line in output[: output.rfind(b"\n") + 1].decode().splitlines():
            kind, *rest = line.split(" ")
            if kind in ("open", "put"):
                continue
            if kind == "done":
                self.done = True
                continue
            if kind == "!":
                self.faults.append(line)
                continue
            numbers = [int(number) for number in rest]
            if kind == "P":
                self.confirmed.update(numbers)
            elif kind == "g":
                self.deliveries += len(numbers)
                self.faults += [f"{number} was delivered after its ack" for number in numbers if number in self.acked]
            elif kind == "a":
                self.acking.update(numbers)
            elif kind == "A":
                self.faults += [f"{number} was acked twice" for number in numbers if number in self.acked]
                self.acked.update(numbers)
                self.acking.difference_update(numbers)


def run(folder: Path, missing: list[int], seed: int, patience_s: float | None, ledger: Ledger) -> None:
    """Let a worker go on until it is done or, after a while, killed."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.crash.queue_worker", str(folder), str(seed)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=ROOT,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(" ".join(map(str, missing)).encode())
    child.stdin.close()
    output = bytearray()
    with child.stdout as pipe:
        # The time counts from when it works, but for some that are killed while they open.
        deadline = time.monotonic() + (600 if patience_s is None else patience_s if seed % 5 == 0 else 60)
        while (left := deadline - time.monotonic()) > 0:
            if select.select([pipe], [], [], left)[0]:
                part = os.read(pipe.fileno(), 1 << 16)
                output += part
                if not part:
                    break
                if patience_s is not None and output.startswith(b"open"):
                    deadline, patience_s = time.monotonic() + patience_s, None
        child.send_signal(signal.SIGKILL)
        output += pipe.read()
    child.wait(timeout=30)
    ledger.note(bytes(output))


@pytest.mark.slow
def test_each_message_is_acked_once_though_the_process_is_killed_again_and_again(tmp_path: Path) -> None:
    seed = a_seed()
    print("seed", seed)
    rng = random.Random(seed)
    folder = tmp_path / "data"
    ledger = Ledger()
    for kill in range(KILLS):
        missing = [number for number in range(MESSAGES) if number not in ledger.confirmed]
        run(folder, missing, seed + kill, rng.uniform(0.05, 0.8), ledger)
        assert not ledger.faults
        print("kill", kill, "confirmed", len(ledger.confirmed), "acked", len(ledger.acked))
        if kill == KILLS // 2:
            shutil.rmtree(folder / "state")  # all of it can be rebuilt
    missing = [number for number in range(MESSAGES) if number not in ledger.confirmed]
    run(folder, missing, seed - 1, None, ledger)
    assert not ledger.faults
    assert ledger.done
    assert ledger.confirmed == set(range(MESSAGES)), "a put was not confirmed"
    # An ack that a kill cut off either happened, and the message is gone, or it did not, and the message came again.
    assert set(range(MESSAGES)) - ledger.acked <= ledger.acking, "a message is lost"
    assert ledger.acked <= set(range(MESSAGES)), "a message came from nowhere"
    assert ledger.deliveries > MESSAGES
    with holdfast.open(folder) as store:
        queue = store.queue("orders")
        state_of(queue).check()
        stats = queue.stats()
        assert (stats.ready, stats.delayed, stats.leased, stats.moving, stats.orphans) == (0, 0, 0, 0, 0)
