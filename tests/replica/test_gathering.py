"""How long a round waits for the calls that the last one has answered."""

from holdfast.replica.gathering import Gathering
from holdfast.testing import SimClock


class Callers:
    """Calls that wait, some of which come back after a while."""

    def __init__(self, *times: float) -> None:
        self.clock = SimClock()
        self.times = times

    def count(self) -> int:
        return sum(self.clock.monotonic() >= one for one in self.times)

    def waited(self, gathering: Gathering) -> float:
        began = self.clock.monotonic()
        gathering.wait()
        return self.clock.monotonic() - began


def test_a_round_waits_until_those_are_back_that_the_last_one_answered() -> None:
    callers = Callers(0, 0, 0, 0)
    gathering = Gathering(callers.clock, callers.count)
    gathering.note(0.01)
    callers.times = (0, callers.clock.monotonic() + 0.001, callers.clock.monotonic() + 0.002, 0)
    assert 0.002 <= callers.waited(gathering) < 0.003


def test_a_round_does_not_wait_for_a_caller_that_is_alone_or_if_nobody_waits() -> None:
    for times in ((0.0,), (9e9, 9e9)):
        callers = Callers(*times)
        gathering = Gathering(callers.clock, lambda: 1)
        gathering.note(0.01)
        gathering = Gathering(callers.clock, callers.count)
        assert callers.waited(gathering) == 0


def test_a_round_waits_no_longer_than_the_last_one_took() -> None:
    callers = Callers(0, 0, 0)
    gathering = Gathering(callers.clock, callers.count)
    gathering.note(0.001)
    callers.times = (0, 9e9, 9e9)
    assert 0.001 <= callers.waited(gathering) < 0.002


def test_callers_that_do_not_come_back_are_waited_for_less_and_less_often() -> None:
    waits = []
    callers = Callers(0, 0, 0, 0)
    gathering = Gathering(callers.clock, callers.count)
    for _ in range(64):
        callers.times = (0, 0, 0, 0)
        gathering.note(1)
        callers.times = (0, 9e9, 9e9, 9e9)
        waits.append(callers.waited(gathering) > 0)
    assert waits[0]
    assert sum(waits) < 8
