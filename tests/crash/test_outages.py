"""On a disk that fails and heals nothing confirmed is lost and nothing acked returns, and no store must be reopened."""

import logging
from collections.abc import Iterator

import pytest

from holdfast.testing import SimFiles
from tests.crash.outages import MODES, LogRun, QueueRun, Run, TableRun, TransactionRun, run_seeds
from tests.queue.internals import serve_unloaded_state

SEEDS = 25
RUNS: dict[str, type[Run]] = {"queue": QueueRun, "log": LogRun, "table": TableRun, "transaction": TransactionRun}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Each of thousands of failures is logged."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", RUNS)
def test_what_was_confirmed_holds_while_the_disk_fails_and_heals(name: str, mode: str, part: int) -> None:
    failures = run_seeds(RUNS[name], mode, range(part * SEEDS, (part + 1) * SEEDS))
    assert failures > SEEDS // 2, "the disk hardly failed"


def test_the_same_seed_makes_the_same_run() -> None:
    runs = [QueueRun(7, "sync") for _ in range(2)]
    for run in runs:
        run.run()
    assert runs[0].files.trace == runs[1].files.trace


def test_the_runs_fail_if_a_state_that_is_not_loaded_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    serve_unloaded_state(monkeypatch)
    with pytest.raises(AssertionError, match="are delivered again"):
        for mode in MODES:
            run_seeds(QueueRun, mode, range(100))


def test_the_runs_fail_if_a_sync_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.crash.outages.SimFiles", lambda seed: SimFiles(seed, lose_syncs=True))
    for run in RUNS.values():
        with pytest.raises(AssertionError):
            run_seeds(run, "sync", range(20))
