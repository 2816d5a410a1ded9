"""What is known of messages that failed, against a dict: with nothing kept in memory beyond two, and checkpoints."""

from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.queue import attempts
from holdfast.queue.attempts import AttemptLog, Failure
from holdfast.state.simulated import MemoryState
from tests.tiers import examples

PREFIX = b"failures"
TOP = 40
FAILURES = st.builds(
    Failure, st.integers(1, 2**32 - 1), st.integers(0, 2**60), st.integers(0, 2**60), st.text(max_size=5)
)


class FailuresMachine(RuleBasedStateMachine):
    """`model` is what they are: a dict by sequence."""

    def __init__(self) -> None:
        super().__init__()
        self.state = MemoryState()
        self.failures = AttemptLog(self.state, PREFIX)
        self.model: dict[int, Failure] = {}
        self.patch = patch.object(attempts, "MEMORY_MAX", 2)
        self.patch.start()

    def teardown(self) -> None:
        self.patch.stop()

    @rule(sequence=st.integers(0, TOP), failure=FAILURES)
    def set(self, sequence: int, failure: Failure) -> None:
        self.failures.set(sequence, failure)
        self.model[sequence] = failure

    @rule(start=st.integers(0, TOP), length=st.integers(1, 10))
    def forget(self, start: int, length: int) -> None:
        self.failures.forget(start, start + length)
        self.model = {key: value for key, value in self.model.items() if not start <= key < start + length}

    @rule(start=st.integers(0, TOP))
    def forget_from(self, start: int) -> None:
        self.failures.forget_from(start)
        self.model = {key: value for key, value in self.model.items() if key < start}

    @rule(commits=st.booleans())
    def save(self, commits: bool) -> None:
        batch = self.state.transaction()
        self.failures.save(batch)
        if commits:
            batch.commit()
            self.failures.saved()
            assert self.failures.unsaved == 0
            assert len(list(self.state.scan("attempts"))) == len(self.model)

    @rule()
    def save_and_restore(self) -> None:
        self.save(True)
        self.failures = AttemptLog(self.state, PREFIX)
        self.failures.restore()

    @invariant()
    def they_are_the_dict(self) -> None:
        assert len(self.failures) == len(self.model)
        assert list(self.failures) == sorted(self.model.items())
        assert [self.failures.get(sequence) for sequence in range(TOP + 1)] == [
            self.model.get(sequence) for sequence in range(TOP + 1)
        ]
        assert [s for span in self.failures.spans() for s in range(*span)] == sorted(self.model)


TestFailures = FailuresMachine.TestCase
TestFailures.settings = settings(max_examples=examples(80), stateful_step_count=30)


def test_half_of_an_emoji_in_a_reason_comes_back_as_it_was() -> None:
    state = MemoryState()
    known = AttemptLog(state, PREFIX)
    known.set(7, Failure(1, 2, 3, "broken \ud83d pipe \udcff"))
    batch = state.transaction()
    known.save(batch)
    batch.commit()
    again = AttemptLog(state, PREFIX)
    again.restore()
    assert again.get(7) == Failure(1, 2, 3, "broken \ud83d pipe \udcff")
