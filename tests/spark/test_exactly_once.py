"""Twenty kills at random moments, of the JVM and all its Pythons: not a record is lost, and none comes twice."""

import contextlib
import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import holdfast
from tests.spark.stream_worker import TARGETS, run
from tests.tiers import a_seed, rounds, sample

RECORDS = 3000
ROOT = Path(__file__).parent.parent.parent
PATIENCE_S = 240


def signature(folder: Path, target: str) -> list[str]:
    """What a stream to this target leaves on disk as it works: when this changes, it is in the middle of it."""
    checkpoint = folder / "checkpoints" / target
    places = [
        checkpoint / "offsets",
        checkpoint / "commits",
        folder / "parquet",
        folder / "data" / "incoming" / "parts",
    ]
    return [name for place in places if place.exists() for name in sorted(os.listdir(place))]  # noqa: PTH208


def kill_session(leader: int) -> None:
    """Kill every process of the session at once, as a power switch would: Spark's Pythons are not in its group."""
    while members := [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if in_session(pid, leader)]:  # noqa: PTH208
        for how in (signal.SIGSTOP, signal.SIGKILL):  # so that none has time to complain of the end of another
            for pid in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, how)
        time.sleep(0.01)


def in_session(pid: int, leader: int) -> bool:
    try:
        state, _, _, session, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return False
    return int(session) == leader and state != "Z"


def run_and_kill(folder: Path, target: str, rng: random.Random) -> None:
    """Let a worker begin, and kill it after it has changed something on disk a random number of times.

    Counted in changes and not in seconds, so that kills are spread over whole batches however fast the machine is.
    """
    seen = signature(folder, target)
    changes = rng.randint(1, 16)
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.spark.stream_worker", str(folder), target, "20"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        start_new_session=True,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    try:
        deadline = time.monotonic() + PATIENCE_S
        while changes:
            assert time.monotonic() < deadline, "the worker does nothing"
            assert child.poll() is None, child.stderr.read().decode()[-3000:]
            time.sleep(0.002)
            now = signature(folder, target)
            changes -= now != seen
            seen = now
        time.sleep(rng.choice([0, rng.uniform(0, 0.2)]))
    finally:
        kill_session(child.pid)
        child.wait(30)
        if select.select([child.stderr], [], [], 0)[0]:
            said = child.stderr.read().decode()
            assert "Error" not in said, said[-3000:]
        child.stdout.close()
        child.stderr.close()


def last_batch(folder: Path, target: str, what: str) -> int:
    place = folder / "checkpoints" / target / what
    return max((int(path.name) for path in place.glob("[0-9]*")), default=-1) if place.exists() else -1


@pytest.mark.slow
@pytest.mark.parametrize(("target", "kills"), sample([("parquet", 6), ("log", 7), ("queue", 7)], every=1))
def test_each_record_arrives_once_though_spark_is_killed_again_and_again(
    spark: SparkSession, tmp_path: Path, target: str, kills: int
) -> None:
    kills = rounds(kills, 1)
    seed = a_seed()
    rng = random.Random(seed)
    payloads = [b"%d" % number for number in range(RECORDS)]
    with holdfast.open(tmp_path / "data") as store:
        log = store.log("x", index_interval=8)
        for start in range(0, RECORDS, 5):
            log.append_many(payloads[start : start + 5])
            log.refresh()
    cut_off = done = 0
    while done < kills or (not cut_off and done < 20):  # by chance, none may have come in the middle so far
        done += 1
        run_and_kill(tmp_path, target, rng)
        cut_off += last_batch(tmp_path, target, "offsets") > last_batch(tmp_path, target, "commits")
    assert cut_off, f"no kill came in the middle of a batch, seed {seed}"
    assert last_batch(tmp_path, target, "offsets") < RECORDS // 20, f"there was nothing left to do, seed {seed}"
    run(spark, tmp_path, target)
    last = last_batch(tmp_path, target, "commits")
    for name in (f"{last}", f".{last}.crc"):
        (tmp_path / "checkpoints" / target / "commits" / name).unlink()
    run(spark, tmp_path, target)
    assert last_batch(tmp_path, target, "commits") == last, f"the last batch was not done again, seed {seed}"
    if target == "parquet":
        rows = spark.read.parquet(str(tmp_path / "parquet")).collect()
        found = sorted((row["offset"], bytes(row["value"])) for row in rows)
        assert found == list(enumerate(payloads)), f"seed {seed}"
        return
    with holdfast.open(tmp_path / "data") as store:
        log = store.queue(TARGETS[target]).log if target == "queue" else store.log(TARGETS[target])
        assert [record.payload for record in log.read()] == payloads, f"seed {seed}"
        assert log.verify().ok, f"seed {seed}"
        assert store.adopt() == 0, f"seed {seed}"
        if target == "queue":
            assert store.queue(TARGETS[target]).stats().ready == RECORDS, f"seed {seed}"
    assert list((tmp_path / "data" / "incoming" / "parts").iterdir()) == [], f"parts were left over, seed {seed}"
