"""Leases against a dict: which have run out is known at every moment, however they were extended."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.queue.events import LeasedSpan
from holdfast.queue.lease import SWEEP_NS, Lease, Leases
from tests.queue.internals import ordered_leases
from tests.tiers import examples

S = SWEEP_NS


class LeasesMachine(RuleBasedStateMachine):
    """`model` has for each lease its end and its messages. A queue asks `expired` whenever `next_check` has come."""

    def __init__(self) -> None:
        super().__init__()
        self.leases = Leases()
        self.model: dict[int, tuple[int, set[int]]] = {}
        self.now = 10 * S
        self.last = 0
        self.next = 0

    @rule(length=st.sampled_from([1, S // 2, S, 3 * S, 100 * S]), count=st.integers(1, 3))
    def lease(self, length: int, count: int) -> None:
        self.last = max(self.last + 1, self.now)
        messages = set(range(self.next, self.next + count))
        self.next += count
        self.leases.add(self.last, Lease(self.now + length, set(messages)))
        self.model[self.last] = (self.now + length, messages)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), length=st.sampled_from([0, 1, S // 2, S, 3 * S, 100 * S]), again=st.booleans())
    def extend(self, data: st.DataObject, length: int, again: bool) -> None:
        lease_id = data.draw(st.sampled_from(sorted(self.model)))
        self.leases.extend(lease_id, self.now + length)
        if again:  # away and back: it must still run out once
            self.leases.extend(lease_id, self.now + 2 * length + 1)
            self.leases.extend(lease_id, self.now + length)
        self.model[lease_id] = (self.now + length, self.model[lease_id][1])

    @rule()
    def extend_one_that_is_not_there(self) -> None:
        self.leases.extend(self.last + 5, self.now)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), others=st.sets(st.integers(0, 60), max_size=3))
    def discard(self, data: st.DataObject, others: set[int]) -> None:
        lease_id = data.draw(st.sampled_from(sorted(self.model)))
        end, messages = self.model[lease_id]
        chosen = data.draw(st.sets(st.sampled_from(sorted(messages)))) | (others - messages)
        assert self.leases.discard(lease_id, chosen) == len(messages & chosen)
        self.model[lease_id] = (end, messages - chosen)
        if not messages - chosen:
            del self.model[lease_id]

    @rule(passed=st.sampled_from([1, S // 3, S, 2 * S, 50 * S]), ends=st.booleans())
    def pass_time(self, passed: int, ends: bool) -> None:
        """With `ends` the leases that have run out are ended, as a queue does; else they must be found again."""
        self.now += passed
        if self.now < self.leases.next_check:
            assert all(end > self.now for end, _ in self.model.values()), "a lease ran out and nobody would look"
            return
        found = self.leases.expired(self.now)
        assert len(found) == len(set(found))
        assert set(found) == {lease_id for lease_id, (end, _) in self.model.items() if end <= self.now}
        if not ends:
            self.leases.next_check = 0
            assert set(self.leases.expired(self.now)) == set(found)
        for lease_id in found:
            self.leases.discard(lease_id, self.model.pop(lease_id)[1])

    @rule()
    def clear(self) -> None:
        self.leases.clear()
        self.model.clear()

    @rule()
    def restart(self) -> None:
        self.leases = Leases()
        for lease_id, (end, messages) in sorted(self.model.items()):
            self.leases.add(lease_id, Lease(end, set(messages)))

    @invariant()
    def they_are_the_dict(self) -> None:
        assert self.leases.count == sum(len(messages) for _, messages in self.model.values())
        assert {i: (lease.expires, lease.left) for i, lease in self.leases.by_id.items()} == self.model
        assert (self.leases.due_in(self.now) is None) == (not self.model)

    @invariant()
    def nobody_is_told_to_come_too_late(self) -> None:
        for end, _ in self.model.values():
            assert self.leases.next_check <= end
            due = self.leases.due_in(self.now)
            assert due is not None
            assert self.now + due <= max(end, self.now)


TestLeases = LeasesMachine.TestCase
TestLeases.settings = settings(max_examples=examples(150), stateful_step_count=40)


def test_a_lease_gives_its_messages_as_spans_of_like_ones() -> None:
    lease = Lease(10, {1, 2, 3, 5, 6, 7})
    lease.attempts = {2: 4, 6: 1}
    lease.priorities = {7: 9}
    assert lease.spans({1, 2, 3, 5, 6, 7}) == [
        LeasedSpan(1, 2, 0, 1),
        LeasedSpan(2, 3, 0, 4),
        LeasedSpan(3, 4, 0, 1),
        LeasedSpan(5, 7, 0, 1),
        LeasedSpan(7, 8, 9, 1),
    ]
    assert lease.spans([]) == []


def test_what_was_extended_a_thousand_times_takes_no_thousand_places() -> None:
    leases = Leases()
    leases.add(1, Lease(100 * S, {1}))
    for second in range(1, 2000):
        leases.next_check = 0
        assert leases.expired(second * S) == []
        leases.extend(1, (second + 100) * S)
    assert ordered_leases(leases) < 200
