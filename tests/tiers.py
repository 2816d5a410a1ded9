"""Test tiers: `make test` runs a seeded sample of every exhaustive sweep, `make test-all` runs all of it.

A sample depends on its seed alone. pytest prints the seed in its header; `HOLDFAST_TEST_SEED` chooses another one.
"""

import os
import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from holdfast.testing import CRASH_MODES, Scenario, SimFiles, crash_points
from holdfast.testing.files import CrashMode

T = TypeVar("T")

_SPARSER = 3
"""By this factor, samples are smaller than each test says: that keeps `make test` at ten minutes on two cores."""

ALL = os.environ.get("HOLDFAST_TEST_ALL", "") not in ("", "0")
SEED = int(os.environ.get("HOLDFAST_TEST_SEED", "20261118"))

_HEAVY_PATHS = (
    "browser",
    "conformance",
    "interop",
    "amqp/test_rabbitmq_import.py",
    "cli/test_demo.py",
    "cli/test_pipeline.py",
    "replica/test_buckets.py",
    "replica/test_failover_clients.py",
    "replica/test_failover_real.py",
    "replica/test_real.py",
    "replica/test_served.py",
    "replica/test_spark_bucket.py",
    "spark/test_demo.py",
    "spark/test_exactly_once.py",
    "spark/test_live.py",
    "spark/test_session.py",
    "web/test_web_server.py",
    "web/test_pipelines.py",
    "web/test_prometheus.py",
    "test_docs.py",
    "test_docs_amqp.py",
)
_HEAVY_FIXTURES = {"spark", "cluster", "connect_server", "script"}


def is_heavy(path: Path, fixtures: Iterable[str]) -> bool:
    """Whether a test starts a JVM, a browser or a server, so that `make test-quick` leaves it out."""
    within = path.relative_to(Path(__file__).parent).as_posix()
    return any(within == one or within.startswith(f"{one}/") for one in _HEAVY_PATHS) or not _HEAVY_FIXTURES.isdisjoint(
        fixtures
    )


def described() -> str:
    """Return the tier and its seed in one line, for the header of pytest."""
    if ALL:
        return f"tier: all (exhaustive sweeps), seed {SEED}"
    return f"tier: sampled sweeps, seed {SEED} (HOLDFAST_TEST_SEED); HOLDFAST_TEST_ALL=1 runs all of them"


def sample(points: Iterable[T], every: int) -> Sequence[T]:
    """Return one of each `every` successive points, in their order; all of them in `make test-all`."""
    points = list(points)
    if ALL:
        return points
    choices = random.Random(SEED)
    every *= _SPARSER
    groups = range(0, len(points), every)
    return [choices.choice(points[start : start + every]) for start in groups]


def a_seed() -> int:
    """Return the seed of the sample, or a new one in `make test-all`; a test that uses it says it when it fails."""
    return random.randrange(2**31) if ALL else SEED


def examples(whole: int) -> int:
    """Return how many examples hypothesis tries: all, or a quarter of them."""
    return rounds(whole, min(whole, max(10, whole // 4)))


def rounds(whole: int, sampled: int) -> int:
    """Return how often to repeat something: kills, messages, cases of a fuzzer, examples of a state machine."""
    return whole if ALL else sampled


def crash_sample(
    scenario: Callable[[], Scenario],
    *,
    every: int,
    files: Callable[[int], SimFiles] = SimFiles,
    modes: Iterable[CrashMode] = CRASH_MODES,
    seeds: Iterable[int] = (0, 1),
    confirms: bool = True,
) -> int:
    """Run `crash_points` at one of each `every` operations, or at all; returns about how many cases there are in all.

    A test that expects the sweep to fail calls `crash_points` itself: it ends at the first failure anyhow.
    """
    every = rounds(1, every * _SPARSER)
    return every * crash_points(
        scenario, files=files, modes=modes, seeds=seeds, confirms=confirms, every=every, sample=SEED
    )
