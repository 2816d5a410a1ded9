"""Delayed messages against a sorted list: with next to nothing in memory, and checkpoints between any two calls."""

from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast.queue import delayed
from holdfast.queue.delayed import Delayed
from holdfast.queue.state_keys import after
from holdfast.state.simulated import MemoryState
from tests.queue.internals import rows_of_delayed
from tests.tiers import examples

PREFIX = b"delayed!"
FAMILY = "visibility_index"
Entry = tuple[int, int, int]


def fill(state: MemoryState, entries: list[Entry], prefix: bytes = PREFIX) -> None:
    """What a checkpoint leaves behind, made by hand."""
    batch = state.transaction()
    for due, sequence, priority in entries:
        batch.put(FAMILY, prefix + due.to_bytes(8, "big") + sequence.to_bytes(8, "big"), bytes((priority,)))
    batch.commit()


def rows(state: MemoryState) -> list[tuple[bytes, bytes]]:
    return list(state.scan(FAMILY, PREFIX, after(PREFIX)))


class DelayedMachine(RuleBasedStateMachine):
    """`model` has every entry; each sequence is added once, as the log gives it once."""

    def __init__(self) -> None:
        super().__init__()
        self.state = MemoryState()
        fill(self.state, [(1, 1, 1), (50, 2, 2)], b"delayed ")  # a neighbour's, which must stay
        fill(self.state, [(1, 1, 1), (50, 2, 2)], b'delayed"')
        self.delayed = Delayed(self.state, PREFIX)
        self.model: set[Entry] = set()
        self.now = 0
        self.next = 0
        self.patches = [
            patch.object(delayed, "NEAR_MAX", 4),
            patch.object(delayed, "NEAR_KEEP", 2),
            patch.object(delayed, "BUCKET_BITS", 2),
        ]
        for one in self.patches:
            one.start()

    def teardown(self) -> None:
        for one in self.patches:
            one.stop()

    @rule(delays=st.lists(st.tuples(st.integers(1, 60), st.integers(0, 9)), min_size=1, max_size=8))
    def add(self, delays: list[tuple[int, int]]) -> None:
        for delay, priority in delays:
            entry = (self.now + delay, self.next, priority)
            self.next += 1
            self.delayed.add(*entry)
            self.model.add(entry)

    @rule(seconds=st.integers(0, 30))
    def pass_time_and_fire(self, seconds: int) -> None:
        self.now += seconds
        due = sorted(entry for entry in self.model if entry[0] <= self.now)
        assert self.delayed.fire(self.now) == due
        self.model -= set(due)

    @rule(count=st.integers(0, 6))
    def take_the_first(self, count: int) -> None:
        first = sorted(self.model)[:count]
        assert self.delayed.take_first(count) == first
        self.model -= set(first)

    @rule(start=st.integers(0, 40), length=st.integers(1, 10))
    def drop(self, start: int, length: int) -> None:
        gone = {entry for entry in self.model if start <= entry[1] < start + length}
        assert self.delayed.drop(start, start + length) == len(gone)
        self.model -= gone

    @rule(delay=st.integers(1, 60))
    def drop_one_and_add_it_again(self, delay: int) -> None:
        if self.model:
            due, sequence, priority = min(self.model)
            self.delayed.drop(sequence, sequence + 1)
            self.delayed.add(due, sequence, priority)  # the very same entry
            self.delayed.drop(sequence, sequence + 1)
            self.delayed.add(self.now + delay, sequence, priority)
            self.model.remove((due, sequence, priority))
            self.model.add((self.now + delay, sequence, priority))

    @rule()
    def clear(self) -> None:
        self.delayed.clear()
        self.model.clear()

    @rule(commits=st.booleans())
    def save(self, commits: bool) -> None:
        batch = self.state.transaction()
        kept = self.delayed.save(batch)
        if commits:
            batch.commit()
            self.delayed.saved()
            self.kept = kept
            assert self.delayed.unsaved == 0
            assert len(rows(self.state)) == len(self.model)

    @rule()
    def save_and_restore(self) -> None:
        self.save(True)
        self.delayed = Delayed(self.state, PREFIX)
        self.delayed.restore(self.kept)

    @invariant()
    def it_is_the_list(self) -> None:
        assert self.delayed.count == len(self.model)
        floor = self.delayed.floor()
        if self.model:
            assert floor is not None
            assert floor <= min(sequence for _, sequence, _ in self.model)
            assert floor + 4 > min(sequence for _, sequence, _ in self.model)
        else:
            assert floor is None

    @rule()
    def ask_when_the_next_is_due(self) -> None:
        assert self.delayed.next_due == (min(self.model)[0] if self.model else None)

    @rule()
    def read_all(self) -> None:
        assert list(self.delayed) == sorted(self.model)

    @invariant()
    def the_neighbours_are_untouched(self) -> None:
        assert len(list(self.state.scan(FAMILY))) - len(rows(self.state)) == 4

    @invariant()
    def nothing_was_put_right(self) -> None:
        assert self.delayed.orphans == 0


TestDelayed = DelayedMachine.TestCase
TestDelayed.settings = settings(max_examples=examples(150), stateful_step_count=40)


def test_with_the_clock_set_back_nothing_comes_early_and_nothing_is_lost() -> None:
    state = MemoryState()
    waiting = Delayed(state, PREFIX)
    waiting.add(1000, 1, 0)
    assert waiting.fire(1000) == [(1000, 1, 0)]
    waiting.add(500, 2, 0)  # the clock says 400 now
    batch = state.transaction()
    kept = waiting.save(batch)
    batch.commit()
    waiting.saved()
    restored = Delayed(state, PREFIX)
    restored.restore(kept)
    assert restored.fire(400) == []
    assert [entry[1] for entry in restored.fire(2000)] == [2]


def restored_over(entries: list[Entry], count: int, elsewhere: set[int] = frozenset()) -> Delayed:  # type: ignore[assignment]
    state = MemoryState()
    fill(state, entries)
    found = Delayed(state, PREFIX, lambda sequences: elsewhere & set(sequences))
    found.restore({"fired": [0, 0], "count": count, "buckets": [[0, count]] if count else []})
    return found


def save(waiting: Delayed) -> list[tuple[bytes, bytes]]:
    state = rows_of_delayed(waiting)
    assert isinstance(state, MemoryState)
    batch = state.transaction()
    waiting.save(batch)
    batch.commit()
    waiting.saved()
    return rows(state)


@pytest.mark.parametrize("count", [1, 2, 7])
def test_a_count_that_was_kept_wrong_is_put_right(count: int) -> None:
    waiting = restored_over([(10, 1, 0), (20, 2, 0)], count)
    due = waiting.next_due
    assert (due, waiting.count) == (10, 2)
    assert [entry[1] for entry in waiting.fire(100)] == [1, 2]
    assert (waiting.count, waiting.next_due, waiting.floor()) == (0, None, None)


def test_a_count_of_entries_that_are_not_there_is_not_waited_for() -> None:
    waiting = restored_over([], 3)
    assert waiting.next_due is None
    assert (waiting.count, waiting.floor()) == (0, None)


def test_entries_that_nobody_counted_are_orphans_and_go_with_the_next_checkpoint() -> None:
    waiting = restored_over([(10, 1, 0)], 0)
    assert (waiting.next_due, waiting.orphans) == (None, 1)
    assert save(waiting) == []


def test_entries_of_messages_that_stand_elsewhere_are_orphans() -> None:
    waiting = restored_over([(10, 1, 0), (20, 2, 0), (30, 3, 0)], 3, {1, 3})
    assert waiting.next_due == 20
    assert (waiting.count, waiting.orphans) == (1, 2)
    assert len(save(waiting)) == 1


def test_of_two_entries_for_one_message_the_later_counts() -> None:
    waiting = restored_over([(10, 1, 0), (20, 2, 0), (30, 1, 0)], 2)
    assert [entry[:2] for entry in waiting.fire(100)] == [(20, 2), (30, 1)]
    assert waiting.orphans == 1
    assert save(waiting) == []


def test_orphans_by_the_thousand_do_not_hide_the_one_behind_them() -> None:
    with patch.object(delayed, "NEAR_KEEP", 4):
        waiting = restored_over([(due, due, 0) for due in range(1, 30)], 29, set(range(1, 29)))
        assert waiting.next_due == 29
        assert (waiting.count, waiting.orphans) == (1, 28)


@pytest.mark.parametrize("is_saved", [False, True])
def test_a_hint_finds_a_message_where_it_is_and_nothing_where_it_is_not(is_saved: bool) -> None:
    state = MemoryState()
    if is_saved:
        fill(state, [(10, 1, 7), (20, 2, 0)])
    delayed = Delayed(state, PREFIX)
    if not is_saved:
        delayed.add(10, 1, 7)
        delayed.add(20, 2, 0)
    assert delayed.find([], 2, [(10, 1), (20, 2)]) == [(10, 1, 7), (20, 2, 0)]
    assert delayed.find([], 2, [(11, 1), (10, 2), (30, 3)]) == []


def test_new_entries_and_dropped_ones_count_as_unsaved() -> None:
    waiting = restored_over([(10, 1, 0), (20, 2, 0)], 2)
    assert (waiting.take_first(1), waiting.unsaved) == ([(10, 1, 0)], 1)
    waiting.add(30, 3, 0)
    assert waiting.unsaved == 2
    save(waiting)
    assert waiting.unsaved == 0


def test_an_entry_that_came_up_before_the_checkpoint_does_not_come_again() -> None:
    state = MemoryState()
    fill(state, [(10, 1, 0), (10, 2, 0)])
    waiting = Delayed(state, PREFIX)
    waiting.restore({"fired": [10, 1], "count": 1, "buckets": [[0, 1]]})
    assert list(waiting) == waiting.fire(100) == [(10, 2, 0)]
