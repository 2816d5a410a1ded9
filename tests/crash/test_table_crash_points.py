"""Stop tables and transactions at every I/O operation, and look at what is left: with the state, and without."""

import pytest

from holdfast.testing import Crash, SimFiles, crash_points
from holdfast.testing.files import CrashMode
from tests.crash.table_scenarios import SCENARIOS, WEAK, TableWork
from tests.tiers import crash_sample


def modes_of(name: str) -> tuple[CrashMode, ...]:
    """Nothing of what was not synced arrived, or any of it in no order; the longest work has time for one."""
    return ("reordered",) if name == "outbox" else ("dropped", "reordered")


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_crash_loses_a_change_or_leaves_half_of_one(name: str) -> None:
    assert crash_sample(SCENARIOS[name], modes=modes_of(name), seeds=(0,), every=5) > 100


@pytest.mark.parametrize("name", WEAK)
def test_without_sync_a_crash_takes_the_last_changes_and_never_half_a_transaction(name: str) -> None:
    assert crash_sample(WEAK[name], modes=modes_of(name), seeds=(0,), every=5) > 100


def test_no_crash_loses_a_change_or_leaves_half_of_one_while_the_log_of_transactions_is_emptied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.transactions.DECISIONS_FULL", 1)
    assert crash_sample(SCENARIOS["outbox"], modes=("dropped", "reordered"), seeds=(0,), every=5) > 100


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_suite_fails_when_fsync_does_nothing(name: str) -> None:
    with pytest.raises(AssertionError):
        crash_points(SCENARIOS[name], files=lambda seed: SimFiles(seed, lose_syncs=True), modes=("dropped",))


class Opening(TableWork):
    """Opening what a crash has left, with what that takes to replay and to finish, is the whole of the work."""

    def __init__(self, work: TableWork) -> None:
        self.__dict__ = work.__dict__

    def run(self, files: SimFiles) -> None:
        self.open_all(files)


def test_opening_may_be_cut_off_anywhere_too() -> None:
    whole = SimFiles()
    SCENARIOS["outbox"]().run(whole)
    for stop in range(whole.operations // 4, whole.operations, max(1, whole.operations // 5)):
        work = SCENARIOS["outbox"]()
        crashed = SimFiles(stop)
        crashed.crash_at(stop)
        with pytest.raises(Crash):
            work.run(crashed)
        crash_sample(
            lambda work=work: Opening(work),  # type: ignore[misc]
            files=lambda _, crashed=crashed, stop=stop: crashed.after_crash("torn", stop),  # type: ignore[misc]
            modes=("reordered",),
            seeds=(0,),
            confirms=False,
            every=5,
        )
