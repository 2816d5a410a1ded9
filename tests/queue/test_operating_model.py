"""What operators do against the model on paper: discards, void leases and pauses between all other calls."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from holdfast import Delivery
from holdfast.queue import Counts
from tests.queue.test_model import NAMES, SHORT, QueueMachine
from tests.tiers import examples


class OperatedMachine(QueueMachine):
    """As `QueueMachine`, with someone who looks after the queues."""

    def __init__(self) -> None:
        super().__init__()
        self.paused: set[str] = set()

    @rule(name=st.sampled_from(NAMES), ids=st.sets(st.integers(0, 30), max_size=8))
    def discard(self, name: str, ids: set[int]) -> None:
        model = self.world.queues[name]
        model.look()
        gone = ids & (model.ready | model.delayed.keys())
        assert self.queues[name].discard(ids) == len(gone)
        for sequence in gone:
            model.let_go(sequence, "discarded", "", "drop")
        self.compare()

    @rule(name=st.sampled_from(NAMES), ids=st.none() | st.sets(st.integers(0, 30), max_size=8))
    def delete_dead_letters(self, name: str, ids: set[int] | None) -> None:
        model = self.world.queues[name]
        letters = {sequence for sequence, _ in model.dead_letters() if ids is None or sequence in ids}
        assert self.queues[name].delete_dead_letters(ids) == len(letters)
        if model.rules.dead_letter is not None:
            for sequence in letters:
                self.world.queues[model.rules.dead_letter].let_go(sequence, "discarded", "", "drop")
        self.compare()

    @rule(name=st.sampled_from(NAMES), data=st.data())
    def void_lease(self, name: str, data: st.DataObject) -> None:
        for delivery in self.some(name, data)[:1]:
            model = self.look(name)
            held = set(model.leases[delivery.lease].attempts) if delivery.lease in model.leases else set()
            assert self.queues[name].void_lease(delivery.lease, "anew") == len(held)
            model.give_back(self.clock.time_ns(), "expired", "anew", delivery.lease, held, 0)
            model.carry()
        self.compare()

    @rule(name=st.sampled_from(NAMES), paused=st.booleans())
    def pause(self, name: str, paused: bool) -> None:
        queue = self.queues[name]
        (queue.pause if paused else queue.resume)()
        (self.paused.add if paused else self.paused.discard)(name)

    @rule(name=st.sampled_from(NAMES))
    def look_closer(self, name: str) -> None:
        queue = self.queues[name]
        queue.waiting()  # looks
        model = self.look(name)
        held = {lease.id: set(lease.ids) for lease in queue.leases()}
        assert held == {lease_id: set(one.attempts) for lease_id, one in model.leases.items()}
        assert queue.paused is (name in self.paused)
        assert {message.id for message in queue.delayed(100)} == model.delayed.keys()
        assert sum(count for _, _, count in queue.delayed_histogram(4)) == len(model.delayed)
        assert queue.counts() == Counts(
            len(model.ready), len(model.delayed), sum(map(len, held.values())), len(model.moving)
        )
        placed = model.placed()
        for position in range(queue.log.start, len(model.log) + 1):
            preview = queue.preview(position)
            assert (preview.delivered, preview.waiting_now) == (len(model.log) - position, len(placed))
            before = sum(sequence < position for sequence in placed)
            assert before <= preview.dropped <= before + 1  # buckets are of two here
        for sequence in range(queue.log.start, len(model.log)):
            message = queue.message(sequence)
            assert message is not None
            assert (message.payload, message.key) == (model.log[sequence].payload, model.log[sequence].key)
        self.compare()

    # A paused queue gives nothing.

    def take(self, name: str, count: int, lease: float | None, deliveries: list[Delivery]) -> None:
        if name not in self.paused:
            super().take(name, count, lease, deliveries)
            return
        assert deliveries == []
        model = self.world.queues[name]
        model.shorten()
        model.look()
        model.carry()
        self.compare()

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 3), wait=SHORT)
    def wait_for_some(self, name: str, count: int, wait: float) -> None:
        if name not in self.paused:
            QueueMachine.wait_for_some(self, name, count, wait)


TestOperatedMachine = OperatedMachine.TestCase
TestOperatedMachine.settings = settings(max_examples=examples(60), stateful_step_count=40)
