"""Ranges against a plain set: any order of calls, with the chunks saved, evicted and restored between any two."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from holdfast.queue import ranges
from holdfast.queue.ranges import Ranges, spans_of
from tests.tiers import examples

TOP = 80
SPANS = st.tuples(st.integers(0, TOP), st.integers(1, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@contextmanager
def tiny_chunks(size: int = 3) -> Iterator[None]:
    with patch.object(ranges, "CHUNK_RANGES", size):
        yield


def joined(sequences: set[int]) -> list[tuple[int, int]]:
    return spans_of(sorted(sequences))


def flat(spans: list[tuple[int, int]]) -> list[int]:
    return [sequence for span in spans for sequence in range(*span)]


class RangesMachine(RuleBasedStateMachine):
    """`model` is what Ranges are: a set. `kept` is what the state has under each low."""

    def __init__(self) -> None:
        super().__init__()
        self.model: set[int] = set()
        self.kept: dict[int, bytes] = {}
        self.ranges = Ranges(self.kept.__getitem__)
        self.patches = tiny_chunks()
        self.patches.__enter__()

    def teardown(self) -> None:
        self.patches.__exit__(None, None, None)

    @initialize(first=st.integers(0, 40))
    def put_in_order(self, first: int) -> None:
        self.ranges.add(0, first)
        self.model = set(range(first))

    @rule(span=SPANS)
    def add(self, span: tuple[int, int]) -> None:
        self.ranges.add(*span)
        self.model |= set(range(*span))

    @rule(gap=st.integers(0, 3), length=st.integers(1, 4))
    def add_behind(self, gap: int, length: int) -> None:
        start = max(self.model, default=-1) + 1 + gap
        self.ranges.add(start, start + length)
        self.model |= set(range(start, start + length))

    @rule(span=SPANS)
    def remove(self, span: tuple[int, int]) -> None:
        gone = self.model & set(range(*span))
        assert self.ranges.remove(*span) == len(gone)
        self.model -= gone

    @rule(limit=st.integers(1, 20))
    def take_front(self, limit: int) -> None:
        for start, stop in self.ranges.front(limit):
            self.ranges.take_front(start, stop)
            self.model -= set(range(start, stop))

    @precondition(lambda self: self.model)
    @rule(limit=st.integers(1, 30))
    def take_a_front_that_was_joined_across_chunks(self, limit: int) -> None:
        start, stop = spans_of(flat(self.ranges.front(limit)))[0]
        self.ranges.take_front(start, stop)
        self.model -= set(range(start, stop))

    @rule()
    def clear(self) -> None:
        self.ranges.clear()
        self.model.clear()

    @rule(resident=st.integers(2, 4))
    def save(self, resident: int) -> None:
        gone, fresh = self.ranges.changes()
        for low in gone:
            self.kept.pop(low, None)
        self.kept.update(fresh)
        self.ranges.kept(resident)
        assert self.ranges.changed == 0

    @rule()
    def save_and_restore(self) -> None:
        self.save(2)
        self.ranges = Ranges(self.kept.__getitem__)
        for low, value in sorted(self.kept.items()):
            assert self.ranges.fits(low, value)
            self.ranges.restore(low, value)

    @rule(span=SPANS)
    def look_within(self, span: tuple[int, int]) -> None:
        found = self.ranges.within(*span)
        assert flat(found) == sorted(self.model & set(range(*span)))

    @rule(limit=st.integers(1, 40))
    def look_at_the_front(self, limit: int) -> None:
        assert flat(self.ranges.front(limit)) == sorted(self.model)[:limit]

    @rule(start=st.integers(0, TOP), limit=st.integers(1, 30))
    def look_at_what_follows(self, start: int, limit: int) -> None:
        assert flat(self.ranges.following(start, limit)) == [one for one in sorted(self.model) if one >= start][:limit]

    @rule(sequence=st.integers(0, TOP + 12))
    def ask(self, sequence: int) -> None:
        assert (sequence in self.ranges) == (sequence in self.model)

    @invariant()
    def it_is_the_set(self) -> None:
        assert self.ranges.count == len(self.model)
        assert bool(self.ranges) == bool(self.model)

    @invariant()
    def nothing_is_left_in_the_state_that_is_neither_kept_nor_to_go(self) -> None:
        gone, fresh = self.ranges.changes()
        kept = (self.kept.keys() - set(gone)) | {low for low, _ in fresh}
        assert len(kept) <= len(self.model)

    @precondition(lambda self: self.model)
    @rule()
    def look_at_both_ends(self) -> None:
        assert (self.ranges.first, self.ranges.last) == (min(self.model), max(self.model))

    @rule()
    def read_all(self) -> None:
        spans = list(self.ranges)
        assert flat(spans) == sorted(self.model)
        assert all(start < stop for start, stop in spans)


TestRanges = RangesMachine.TestCase
TestRanges.settings = settings(max_examples=examples(150), stateful_step_count=40)


@given(st.sets(st.integers(0, 60)))
def test_ranges_of_sequences_are_those_sequences(sequences: set[int]) -> None:
    spans = spans_of(sorted(sequences))
    assert flat(spans) == sorted(sequences)
    assert all(stop < start for (_, stop), (start, _) in pairwise(spans))


def test_a_million_in_a_row_are_one_range() -> None:
    many = Ranges()
    for start in range(0, 1_000_000, 10_000):
        many.add(start, start + 10_000)
    assert list(many) == [(0, 1_000_000)]


def test_what_comes_back_in_descending_order_does_not_make_a_chunk_each() -> None:
    with tiny_chunks(8):
        many = Ranges()
        for start in range(2000, 0, -2):
            many.add(start, start + 1)
        _, fresh = many.changes()
        assert len(fresh) < 2 * 1000 / 4


def test_a_value_that_overlaps_another_does_not_fit_and_can_still_be_added() -> None:
    one = Ranges()
    one.add(0, 10)
    ((_, value),) = one.changes()[1]
    other = Ranges()
    other.restore(0, value)
    assert not other.fits(5, value)
    assert not other.fits(20, value)
    assert not other.fits(20, b"")
    assert not other.fits(20, value[:-1])
    other.add_all(value)
    assert list(other) == [(0, 10)]
    assert other.count == 10
