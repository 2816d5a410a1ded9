"""Dedup ids against a dict: exact within the window, with two ids in memory and checkpoints between any two calls."""

from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.queue import dedup
from holdfast.queue.dedup import Dedup
from holdfast.state.simulated import MemoryState
from tests.queue.internals import recent_ids
from tests.tiers import examples

PREFIX = b"dedupped"
KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"i", b"t"])
WINDOW = 50


class DedupMachine(RuleBasedStateMachine):
    """`model` has every message with an id, in order; which of them count is worked out when asked."""

    limit = 1000

    def __init__(self) -> None:
        super().__init__()
        self.state = MemoryState()
        self.dedup = Dedup(self.state, PREFIX, WINDOW, self.limit)
        self.kept: dict[str, int | None] | None = None
        self.model: list[tuple[bytes, int, int]] = []
        self.now = 1000
        self.next = 0
        self.patches = [patch.object(dedup, "MEMORY_MAX", 2)]
        for one in self.patches:
            one.start()

    def teardown(self) -> None:
        for one in self.patches:
            one.stop()

    def known(self, key: bytes) -> tuple[int, int] | None:
        """The last message with this id, if it is within the window."""
        last = next(((sequence, time) for other, sequence, time in reversed(self.model) if other == key), None)
        return last if last is not None and last[1] + WINDOW > self.now else None

    @rule(key=KEYS, anyway=st.booleans())
    def put(self, key: bytes, anyway: bool) -> None:
        """As a queue does, or as another with a shorter window on the same log may do `anyway`."""
        self.now += 1
        if self.look_for(key) is None or anyway:
            self.dedup.note(key, self.next, self.now, self.now)
            self.model.append((key, self.next, self.now))
        self.next += 1
        self.dedup.scanned = self.next

    @rule(key=KEYS)
    def find(self, key: bytes) -> None:
        self.look_for(key)

    def look_for(self, key: bytes) -> int | None:
        found = self.dedup.find(key, self.now)
        known = self.known(key)
        if found is not None:
            assert known is not None
            assert found == known[0]
        elif known is not None:
            assert known[1] <= self.now - self.dedup.window_at(self.now), "a duplicate passed within the window"
        return found

    @rule(seconds=st.integers(0, 30))
    def pass_time(self, seconds: int) -> None:
        self.now += seconds

    @rule(commits=st.booleans())
    def save(self, commits: bool) -> None:
        batch = self.state.transaction()
        kept = self.dedup.save(batch, self.now)
        if commits:
            batch.commit()
            self.dedup.saved()
            self.kept = kept
            assert self.dedup.unsaved == 0

    @rule()
    def save_and_restore(self) -> None:
        self.save(True)
        assert self.kept is not None
        self.dedup = Dedup(self.state, PREFIX, WINDOW, self.limit)
        self.dedup.restore(self.kept)

    @rule()
    def go_back_to_the_last_checkpoint_and_read_on(self) -> None:
        self.dedup = Dedup(self.state, PREFIX, WINDOW, self.limit)
        if self.kept is not None:
            self.dedup.restore(self.kept)
        for key, sequence, time in self.model:
            if sequence >= self.dedup.scanned:
                self.dedup.note(key, sequence, time, self.now)
        self.dedup.scanned = self.next

    @rule(count=st.integers(1, 5))
    def lose_the_last_messages(self, count: int) -> None:
        end = max(0, self.next - count)
        kept = {key for key, sequence, _ in self.model if sequence < end}
        if any(sequence >= end and key in kept for key, sequence, _ in self.model):
            return  # what a lost one had superseded is not known any more
        self.next = end
        self.dedup.forget_from(self.next)
        self.model = [entry for entry in self.model if entry[1] < self.next]
        self.save(True)

    @rule()
    def let_the_window_pass(self) -> None:
        self.now += WINDOW
        self.save(True)
        assert self.dedup.count == 0
        assert list(self.state.scan("dedup")) == []
        assert not recent_ids(self.dedup)

    @invariant()
    def it_is_bounded(self) -> None:
        assert 0 <= self.dedup.count <= self.limit


class ShortDedupMachine(DedupMachine):
    """With so few ids allowed that the window must become shorter: then it says by how much, and is exact within."""

    limit = 4


TestDedup = DedupMachine.TestCase
TestDedup.settings = settings(max_examples=examples(150), stateful_step_count=40)
TestShortDedup = ShortDedupMachine.TestCase
TestShortDedup.settings = settings(max_examples=examples(150), stateful_step_count=40)


def test_a_count_that_was_kept_wrong_does_not_keep_ids_out() -> None:
    ids = Dedup(MemoryState(), PREFIX, WINDOW, 2)
    ids.restore({"scanned": 9, "count": 7, "low": 0, "shortened_to": None, "shortened_at": 0})
    for sequence, key in enumerate([b"a", b"b", b"c"], 9):
        ids.note(key, sequence, 100, 100)
        assert ids.find(key, 101) == sequence
    assert ids.count <= 2


def test_an_id_of_one_queue_is_not_an_id_of_its_neighbours() -> None:
    state = MemoryState()
    ours, theirs = (Dedup(state, prefix, WINDOW, 10) for prefix in (b"dedupped", b"deduppee"))
    ours.note(b"a", 1, 100, 100)
    ours.scanned = theirs.scanned = 2
    for ids in (ours, theirs):
        batch = state.transaction()
        ids.save(batch, 100)
        batch.commit()
        ids.saved()
    assert (ours.find(b"a", 101), theirs.find(b"a", 101)) == (1, None)


def test_a_limit_that_was_lowered_counts_from_the_next_id_on() -> None:
    state = MemoryState()
    ids = Dedup(state, PREFIX, WINDOW, 100)
    for sequence in range(60):
        ids.note(b"%d" % sequence, sequence, 100 + sequence, 100 + sequence)
    ids.scanned = 60
    batch = state.transaction()
    kept = ids.save(batch, 100)
    batch.commit()
    ids = Dedup(state, PREFIX, WINDOW * 10, 20)
    ids.restore(kept)
    ids.note(b"new", 60, 161, 161)
    assert ids.count <= 20
    assert ids.find(b"new", 162) == 60
    assert ids.find(b"0", 162) is None
    assert ids.find(b"59", 162) == 59
    assert ids.window_at(162) < 62
