"""Stop a queue at every I/O operation of journal, checkpoint, snapshot, move and replay, with and without its state."""

import pytest

from holdfast.testing import Crash, SimFiles, crash_points
from tests.crash.queue_scenarios import SCENARIOS, QueueWork
from tests.tiers import crash_sample


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_crash_loses_doubles_or_brings_back_a_message(name: str) -> None:
    assert crash_sample(SCENARIOS[name], seeds=(0,), every=5) > 200


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_suite_fails_when_fsync_does_nothing(name: str) -> None:
    with pytest.raises(AssertionError):
        crash_points(SCENARIOS[name], files=lambda seed: SimFiles(seed, lose_syncs=True), modes=("dropped",))


class Opening(QueueWork):
    """Opening what a crash has left, and bringing to its end what was on its way, is the whole of the work."""

    def __init__(self, work: QueueWork) -> None:
        self.__dict__ = work.__dict__

    def run(self, files: SimFiles) -> None:
        store = self.open(files)
        store.queue("work")
        store.tick()


@pytest.mark.parametrize("name", ["checkpoints", "dead letters", "history", "seek"])
def test_opening_may_be_cut_off_anywhere_too(name: str) -> None:
    whole = SimFiles()
    SCENARIOS[name]().run(whole)
    for stop in range(whole.operations // 4, whole.operations, max(1, whole.operations // 7)):
        work = SCENARIOS[name]()
        crashed = SimFiles(stop)
        crashed.crash_at(stop)
        with pytest.raises(Crash):
            work.run(crashed)
        crash_sample(
            lambda work=work: Opening(work),  # type: ignore[misc]
            files=lambda _, crashed=crashed, stop=stop: crashed.after_crash("torn", stop),  # type: ignore[misc]
            modes=("dropped", "reordered"),
            seeds=(0,),
            confirms=False,
            every=5,
        )
