"""Stop at every I/O operation, in every way a disk can lose what was not synced."""

import pytest

from holdfast.testing import CRASH_MODES, Crash, SimFiles, crash_points
from holdfast.testing.files import CrashMode
from tests.crash.scenarios import SCENARIOS, LogWork, disk_without_lock, open_store
from tests.tiers import crash_sample


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_crash_loses_what_was_confirmed(name: str) -> None:
    cases = crash_sample(SCENARIOS[name], seeds=range(3), every=5)
    assert cases > 200


@pytest.mark.parametrize("name", ["sync", "roll", "batch"])
def test_short_writes_change_nothing_about_it(name: str) -> None:
    assert (
        crash_sample(SCENARIOS[name], files=lambda seed: SimFiles(seed, short_writes=0.5), seeds=range(2), every=5)
        > 200
    )


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_suite_fails_when_fsync_does_nothing(name: str) -> None:
    with pytest.raises(AssertionError):
        crash_points(SCENARIOS[name], files=lambda seed: SimFiles(seed, lose_syncs=True), modes=("dropped",))


@pytest.mark.parametrize("mode", CRASH_MODES)
@pytest.mark.parametrize("name", ["sync", "async", "roll", "batch"])
def test_recovery_itself_may_be_cut_off_anywhere(name: str, mode: CrashMode) -> None:
    """A first crash leaves a disk; recovering it is then stopped at each of its own operations."""
    for first_stop in stops_of(name):
        ledger = SCENARIOS[name]()
        crashed = SimFiles(first_stop)
        crashed.crash_at(first_stop)
        with pytest.raises(Crash):
            ledger.run(crashed)

        def recovering(ledger: LogWork = ledger) -> LogWork:
            work = LogWork(lambda work: None, **ledger.settings)
            work.attempted, work.confirmed = dict(ledger.attempted), set(ledger.confirmed)
            work.may_drop_below, work.committing = ledger.may_drop_below, ledger.committing
            return Recovering(work)

        def disk(_: int, crashed: SimFiles = crashed, stop: int = first_stop) -> SimFiles:
            return crashed.after_crash(mode, stop)

        crash_sample(recovering, files=disk, seeds=range(2), confirms=False, every=5)


class Recovering(LogWork):
    """Opening the log is the whole of the work; nothing it does confirms anything new."""

    def __init__(self, work: LogWork) -> None:
        self.__dict__ = work.__dict__

    def run(self, files: SimFiles) -> None:
        store = open_store(files, self.clock)
        store.log("events", **self.settings)  # type: ignore[arg-type]
        # No close: the machine stops here at the latest.


def stops_of(name: str) -> range:
    """A sample of the operations of a scenario to begin from."""
    disk = SimFiles()
    SCENARIOS[name]().run(disk)
    return range(disk.operations // 3, disk.operations, max(1, disk.operations // 6))


def test_one_seed_replays_one_run_byte_for_byte() -> None:
    def disk(seed: int) -> dict[str, bytes]:
        files = SimFiles(seed, short_writes=0.3)
        SCENARIOS["roll"]().run(files)
        return disk_without_lock(files)

    assert disk(5) == disk(5)
    assert disk(5) != disk(6)
