"""Queues against a model on paper: random calls on two groups of one log and their dead letters, with restarts and
crashes between any two, and with the state deleted under way."""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from itertools import pairwise, repeat

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from holdfast import Backoff, Delivery, Flush, LeaseLost, Log, Message, Queue, QueueFull, Roll, Store
from holdfast.base.clock import NS
from holdfast.queue.queue_state import QueueState
from holdfast.testing import CRASH_MODES, SimClock, SimFiles
from holdfast.testing.files import CrashMode
from tests.queue.internals import described, open_sim, state_of, tiny_limits, without_state
from tests.queue.model import Entry, Held, Known, Leaving, ModelQueue, Rules, World
from tests.tiers import examples

NAMES = ("work.dead", "work", "audit")
HALVES = st.integers(0, 40).map(lambda halves: halves / 2)
"""Time passes in half seconds only: see the model."""
SHORT = st.sampled_from([0.5, 1.0, 2.5, 10.0])
LEASES = st.none() | SHORT
MESSAGES = st.builds(
    Message,
    st.binary(max_size=6),
    key=st.none() | st.binary(min_size=1, max_size=2),
    headers=st.none() | st.dictionaries(st.sampled_from(["a", "b"]), st.text(max_size=2), max_size=2),
    delay=st.sampled_from([None, None, None, 0, 0.5, 3, 20]),
    priority=st.sampled_from([0, 0, 0, 1, 9, 10, 255]),
    ttl=st.sampled_from([None, None, None, 0.5, 4]),
    dedup=st.sampled_from([None, None, None, "x", "y", b"z"]),
)
RULES = st.builds(
    Rules,
    lease=st.sampled_from([1, 10]),
    max_attempts=st.sampled_from([1, 2, 3, None]),
    backoff=st.sampled_from([Backoff(base=1, cap=4), Backoff(base=0, cap=0)]),
    dead_letter=st.sampled_from(["work.dead", "work.dead", None]),
    dedup_window=st.sampled_from([2, 20]),
    starvation=st.sampled_from([None, 0, 3, 30]),
    ttl=st.sampled_from([None, None, 6]),
    expired=st.sampled_from(["drop", "dead-letter"]),
    max_length=st.sampled_from([None, None, 1, 4]),
    max_bytes=st.sampled_from([None, None, 5, 20]),
    overflow=st.sampled_from(["drop-head", "reject", "dead-letter"]),
).map(lambda rules: Rules(**{**vars(rules), **_possible(rules)}))
CLOSE = 5_000_000
"""Moments that are nearer to each other than this come from the same half second."""
HISTORY = 60
"""Longer than any dedup window: what is older goes."""


def _possible(rules: Rules) -> dict[str, str]:
    """Without a queue for them nothing can be dead-lettered."""
    if rules.dead_letter is not None:
        return {}
    return {"expired": "drop", "overflow": "drop-head" if rules.overflow == "dead-letter" else rules.overflow}


class QueueMachine(RuleBasedStateMachine):
    """Under `sync` the model says exactly what each call gives, and what a crash leaves: everything."""

    flushes: tuple[Flush, ...] = (Flush.sync(),)
    store: Store

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.stack.enter_context(tiny_limits())
        self.files = SimFiles()
        self.clock = SimClock()
        self.world = World(self.clock.time_ns)
        self.deliveries: dict[str, list[Delivery]] = {name: [] for name in NAMES}
        self.acked: dict[str, set[int]] = {name: set() for name in NAMES}
        """Acked and not sought back since: never to be seen again."""
        self.disks = 1000
        self.exact: Counter[str] = Counter()
        """By log the end of what `adopt_moments` has seen."""

    def teardown(self) -> None:
        self.stack.close()

    @initialize(data=st.data(), work=RULES, audit=RULES, seed=st.integers(0, 99), roll=st.sampled_from([3, 50]))
    def begin(self, data: st.DataObject, work: Rules, audit: Rules, seed: int, roll: int) -> None:
        self.files = SimFiles(seed)
        self.flush = data.draw(st.sampled_from(self.flushes))
        self.chosen = {"work": work, "audit": audit, "work.dead": Rules(max_attempts=None)}
        self.roll = Roll.count(roll)
        for name in NAMES:
            self.world.queue(name, self.chosen[name], "work" if name == "audit" else name)
        self.open()

    # Opening and closing.

    def open(self) -> None:
        self.store = open_sim(self.files, self.clock)
        self.queues = {name: self.open_queue(self.store, name) for name in NAMES}

    def open_queue(self, store: Store, name: str) -> Queue:
        log: dict[str, object] = {"log": "work"} if name == "audit" else {"flush": self.flush, "roll": self.roll}
        return store.queue(name, history=HISTORY, **vars(self.chosen[name]), **log)  # type: ignore[arg-type]

    @rule(gone=st.booleans())
    def restart(self, gone: bool) -> None:
        self.tick()
        for name, queue in self.queues.items():
            queue.waiting()  # looks at what the others have sent it
            self.look(name)
        before = {name: described(queue) for name, queue in self.queues.items()}
        self.store.close()
        self.synced(*NAMES)
        if gone:
            self.lose_state()
        self.open()
        for name, queue in self.queues.items():
            queue.waiting()
            for part, value in described(queue).items():
                assert value == before[name][part], f"{part} of {name}: {value}, and not {before[name][part]}"
        self.compare()

    @rule(mode=st.sampled_from(CRASH_MODES), seed=st.integers(0, 99), gone=st.booleans())
    def crash(self, mode: CrashMode, seed: int, gone: bool) -> None:
        self.files = self.files.after_crash(mode, seed)
        if gone:
            self.lose_state()
        self.open()
        # What nobody was promised (a lease that ran out while someone looked) may be forgotten, and happens again.
        self.tick()

    def synced(self, *names: str) -> None:
        """All that happened to these queues so far is on disk; which it is under `sync` anyway."""

    def lose_state(self) -> None:
        self.disks += 1
        self.files = without_state(self.files, self.disks)

    @rule()
    def replay(self) -> None:
        """The journal alone leads to where the queue stands."""
        for name, queue in self.queues.items():
            queue.waiting()  # looks
            queue.sync()
            self.look(name)
        self.synced(*NAMES)
        self.disks += 1
        with open_sim(without_state(self.files, self.disks), SimClock(self.clock.time_ns())) as store:
            for name, queue in self.queues.items():
                again = self.open_queue(store, name)
                again.waiting()
                for part, value in described(again).items():
                    assert value == described(queue)[part], f"{part} of {name}: {value}, not {described(queue)[part]}"
                state_of(again).check()
        self.compare()

    @rule()
    def read_beside(self) -> None:
        """A reader sees what is on disk, and changes nothing."""
        for queue in self.queues.values():
            queue.waiting()  # looks: a reader does not take back what was held too long
            queue.sync()
        self.synced(*NAMES)
        disk = self.files.snapshot()
        clock = SimClock(self.clock.time_ns())
        with open_sim(self.files, clock, read_only=True) as store:
            for name, queue in self.queues.items():
                reader, ours = store.queue(name), self.look(name)
                for _ in range(50):  # it waits a while for messages that a crash took, and the journal speaks of
                    found = reader.stats()
                    clock.advance(60)
                    if found.ready + found.delayed == ours.waiting:
                        break
                assert (found.ready + found.delayed, found.leased) == (ours.waiting, self.leased(name)), name
                assert queue.waiting() == ours.waiting
        assert self.files.snapshot() == disk
        self.compare()

    # Putting.

    @rule(name=st.sampled_from(NAMES), message=MESSAGES)
    def put(self, name: str, message: Message) -> None:
        queue, model = self.queues[name], self.world.queues[name]
        try:
            ids: list[int] | None = [
                queue.put(
                    message.payload,
                    key=message.key,
                    headers=message.headers,
                    delay=message.delay,
                    priority=message.priority,
                    ttl=message.ttl,
                    dedup=message.dedup,
                )
            ]
        except QueueFull:
            ids = None
        expected = model.put([message])
        assert ids == expected, f"{name} gave {ids}, and not {expected}"
        self.compare()

    @rule(name=st.sampled_from(NAMES), payload=st.binary(max_size=3))
    def put_plain(self, name: str, payload: bytes) -> None:
        self.put_all(name, [Message(payload)], lambda queue: [queue.put(payload)])

    @rule(name=st.sampled_from(NAMES), messages=st.lists(MESSAGES, max_size=6))
    def put_many(self, name: str, messages: list[Message]) -> None:
        self.put_all(name, messages, lambda queue: list(queue.put_many(messages)))

    def put_all(self, name: str, messages: list[Message], put: Callable[[Queue], list[int]]) -> None:
        try:
            ids: list[int] | None = put(self.queues[name])
        except QueueFull:
            ids = None
        expected = self.world.queues[name].put(messages)
        assert ids == expected, f"{name} gave {ids}, and not {expected}"
        self.compare()

    # Taking.

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 5), lease=LEASES)
    def lease(self, name: str, count: int, lease: float | None) -> None:
        self.take(name, count, lease, self.queues[name].lease(count, lease=lease))

    @rule(name=st.sampled_from(NAMES))
    def get(self, name: str) -> None:
        delivery = self.queues[name].get()
        self.queues[name].transfers.carry()  # which the short way leaves to the next tick
        self.take(name, 1, None, [] if delivery is None else [delivery])

    def take(self, name: str, count: int, lease: float | None, deliveries: list[Delivery]) -> None:
        model = self.world.queues[name]
        model.shorten()
        model.look()
        lease_id = deliveries[0].lease if deliveries else None
        expected = model.hand_out(count, lease, lease_id)
        self.check_deliveries(name, deliveries, expected)
        model.carry()
        self.compare()

    def check_deliveries(self, name: str, deliveries: list[Delivery], expected: list[tuple[int, int]]) -> None:
        assert [(delivery.id, delivery.attempt) for delivery in deliveries] == expected
        assert len({delivery.lease for delivery in deliveries}) <= 1
        for delivery in deliveries:
            entry = self.world.queues[name].log[delivery.id]
            assert delivery.id not in self.acked[name], "delivered after its ack"
            assert (delivery.payload, delivery.key, dict(delivery.headers)) == (
                entry.payload, entry.key, {**entry.headers, **death_headers(delivery)},
            )  # fmt: skip
            assert delivery.priority == entry.priority
            assert entry.due < self.clock.time_ns() + CLOSE, "delivered early"
            assert abs(delivery.enqueued_at - entry.time) < CLOSE
        self.deliveries[name] += deliveries

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 3), wait=SHORT)
    def wait_for_some(self, name: str, count: int, wait: float) -> None:
        self.queues[name].waiting()  # looks
        model = self.look(name)
        self.compare()
        begin = self.clock.time_ns()
        end = begin + round(wait * NS)
        moments = [moment for moment in model.moments() if moment > begin]
        if any(0 < later - earlier < CLOSE for earlier, later in pairwise(sorted([*moments, end]))):
            return  # which of them is seen first depends on how often the clock is read
        deliveries = self.queues[name].lease(count, wait=wait)
        lease_id = deliveries[0].lease if deliveries else None
        last = lease_id or end
        moment = begin
        real_now, self.world.now = self.world.now, lambda: moment
        expected: list[tuple[int, int]] = []
        model.shorten()
        for moment in [begin, *sorted(one for one in moments if one < last - CLOSE), last]:
            if moment == begin and lease_id is not None and last < begin + CLOSE:
                continue
            assert not expected, "it waited though there was something"
            model.look()
            expected = model.hand_out(count, None, lease_id)
            model.carry()
        self.world.now = real_now
        self.check_deliveries(name, deliveries, expected)
        self.clock.advance(CLOSE / NS)
        self.queues[name].waiting()
        self.look(name)
        self.compare()

    # Giving back.

    def some(self, name: str, data: st.DataObject) -> list[Delivery]:
        """Some deliveries, mostly live ones, of one lease or of several; perhaps one twice."""
        held = self.deliveries[name]
        if not held:
            return []
        recent = st.sampled_from(held[-12:])
        return data.draw(st.lists(recent, min_size=1, max_size=4))

    def still_held(self, name: str, deliveries: list[Delivery]) -> tuple[dict[int, set[int]], set[int]]:
        """By lease which are still held, and which are lost."""
        model = self.look(name)
        held: dict[int, set[int]] = {}
        for delivery in deliveries:
            held.setdefault(delivery.lease, set()).add(delivery.id)
        lost = {id for lease, ids in held.items() for id in ids - model.held(lease, ids)}
        return {lease: model.held(lease, ids) for lease, ids in held.items() if model.held(lease, ids)}, lost

    def give(self, lost: set[int], call: Callable[[], object]) -> None:
        """Make a call that raises where leases are lost."""
        if not lost:
            call()
            return
        with pytest.raises(LeaseLost):
            call()

    @rule(name=st.sampled_from(NAMES), data=st.data())
    def ack(self, name: str, data: st.DataObject) -> None:
        deliveries = self.some(name, data)
        held, lost = self.still_held(name, deliveries)
        self.give(lost, lambda: self.queues[name].ack(deliveries))
        for lease, ids in held.items():
            self.world.queues[name].ack(lease, ids)
            self.acked[name] |= ids
        self.compare()

    @rule(name=st.sampled_from(NAMES), data=st.data())
    def ack_one(self, name: str, data: st.DataObject) -> None:
        for delivery in self.some(name, data)[:1]:
            held, lost = self.still_held(name, [delivery])
            assert self.queues[name].settler.ack_one(delivery) is not bool(lost)
            for lease, ids in held.items():
                self.world.queues[name].ack(lease, ids)
                self.acked[name] |= ids
        self.compare()

    @rule(name=st.sampled_from(NAMES), data=st.data())
    def ack_all(self, name: str, data: st.DataObject) -> None:
        deliveries = [one for one in self.deliveries[name] if self.world.queues[name].held(one.lease, {one.id})]
        held, lost = self.still_held(name, deliveries)
        self.give(lost, lambda: self.queues[name].ack(deliveries))
        for lease, ids in held.items():
            self.world.queues[name].ack(lease, ids)
            self.acked[name] |= ids
        self.compare()

    @rule(
        name=st.sampled_from(NAMES),
        data=st.data(),
        reason=st.sampled_from(["", "no", "é\ud800"]),
        delay=st.none() | st.sampled_from([0, 0.5, 3.0, 50.0]),
    )
    def nack(self, name: str, data: st.DataObject, reason: str, delay: float | None) -> None:
        deliveries = self.some(name, data)
        held, lost = self.still_held(name, deliveries)
        self.give(lost, lambda: self.queues[name].nack(deliveries, reason, delay))
        model = self.world.queues[name]
        for lease, ids in held.items():
            model.give_back(self.clock.time_ns(), "nacked", kept_reason(reason), lease, ids, delay)
        model.carry()
        self.compare()

    @rule(name=st.sampled_from(NAMES), data=st.data())
    def release(self, name: str, data: st.DataObject) -> None:
        deliveries = self.some(name, data)
        held, lost = self.still_held(name, deliveries)
        self.give(lost, lambda: self.queues[name].release(deliveries))
        model = self.world.queues[name]
        for lease, ids in held.items():
            model.give_back(self.clock.time_ns(), "released", "", lease, ids, 0)
        model.carry()
        self.compare()

    @rule(name=st.sampled_from(NAMES), data=st.data(), reason=st.sampled_from(["", "é\ud800"]))
    def reject(self, name: str, data: st.DataObject, reason: str) -> None:
        deliveries = self.some(name, data)
        held, lost = self.still_held(name, deliveries)
        asked = {
            lease: {one.id for one in deliveries if one.lease == lease} for lease in {one.lease for one in deliveries}
        }
        assert set(self.queues[name].reject_ids(asked, reason)) == lost
        model = self.world.queues[name]
        for lease, ids in held.items():
            model.reject(kept_reason(reason), lease, ids)
        model.carry()
        self.compare()

    @rule(name=st.sampled_from(NAMES))
    def void_leases(self, name: str) -> None:
        assert self.queues[name].void_leases("anew") == self.world.queues[name].void_leases("anew")
        self.world.queues[name].carry()
        self.compare()

    @rule(name=st.sampled_from(NAMES))
    def page_out(self, name: str) -> None:
        self.queues[name].page_out()

    @rule(name=st.sampled_from(NAMES), data=st.data(), duration=st.none() | st.just(0.0) | SHORT)
    def extend(self, name: str, data: st.DataObject, duration: float | None) -> None:
        deliveries = self.some(name, data)
        held, lost = self.still_held(name, deliveries)
        self.give(lost, lambda: self.queues[name].extend(deliveries, duration))
        for lease in held:
            self.world.queues[name].extend(lease, duration)
        self.compare()

    # Time.

    @rule(seconds=HALVES)
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def tick(self) -> None:
        self.store.tick()
        self.world.tick()
        self.compare()

    @rule(name=st.sampled_from(NAMES))
    def checkpoint(self, name: str) -> None:
        self.queues[name].checkpoint()
        self.world.queues[name].enter(self.clock.time_ns())
        self.synced(name)
        self.compare()

    @rule(name=st.sampled_from(NAMES))
    def sync(self, name: str) -> None:
        self.queues[name].sync()
        self.synced(name)

    @rule(name=st.sampled_from(NAMES))
    def compact(self, name: str) -> None:
        self.queues[name].log.compact()

    # Looking, and moving the queue itself.

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 6))
    def peek(self, name: str, count: int) -> None:
        found = self.queues[name].peek(count)
        model = self.world.queues[name]
        assert [message.id for message in found] == model.peek(count)
        for message in found:
            entry = model.log[message.id]
            assert (message.payload, message.key, message.priority) == (entry.payload, entry.key, entry.priority)
            assert message.attempts == model.attempt(message.id) - 1
        self.compare()

    @rule(name=st.sampled_from(NAMES))
    def stats(self, name: str) -> None:
        stats = self.queues[name].stats()
        model = self.look(name)
        dead = model.rules.dead_letter
        assert (stats.ready, stats.delayed, stats.leased) == (len(model.ready), len(model.delayed), self.leased(name))
        assert (stats.moving, stats.leases) == (len(model.moving), len(model.leases))
        assert stats.dead == (self.look(dead).waiting if dead is not None else 0)
        assert stats.orphans == 0
        assert (stats.next_due is None) == (not model.delayed)
        assert stats.lag >= len(model.log) - min(model.placed(), default=len(model.log))
        self.compare()

    @rule(name=st.sampled_from(NAMES))
    def purge(self, name: str) -> None:
        assert self.queues[name].purge() == self.world.queues[name].purge()
        self.compare()

    @rule(name=st.sampled_from(NAMES), data=st.data())
    def seek(self, name: str, data: st.DataObject) -> None:
        queue, model = self.queues[name], self.look(name)
        self.seek_to(name, data.draw(st.integers(0, len(model.log))), queue.seek)

    @rule(name=st.sampled_from(NAMES), data=st.data())
    def seek_time(self, name: str, data: st.DataObject) -> None:
        queue, model = self.queues[name], self.look(name)
        kept = [(record.sequence, record.timestamp) for record in queue.log.read()]
        when = data.draw(st.sampled_from([self.clock.time_ns(), 0, *(time for _, time in kept)]))
        position = next((sequence for sequence, time in kept if time >= when), len(model.log))
        self.seek_to(name, position, lambda _: queue.seek_time(when))

    def seek_to(self, name: str, position: int, seek: Callable[[int], object]) -> None:
        seek(position)
        position = max(position, self.queues[name].log.start)
        self.world.queues[name].seek(position)
        self.acked[name] = {sequence for sequence in self.acked[name] if sequence < position}
        self.after_seek(name)
        self.compare()

    def after_seek(self, name: str) -> None:
        """Durable at once."""

    # Dead letters.

    @rule(name=st.sampled_from(["work", "audit"]))
    def dead_letters(self, name: str) -> None:
        letters = self.queues[name].dead_letters()
        expected = self.world.queues[name].dead_letters()
        assert [letter.id for letter in letters] == [sequence for sequence, _ in expected]
        for letter, (_, entry) in zip(letters, expected, strict=True):
            assert (letter.payload, letter.key, dict(letter.headers)) == (entry.payload, entry.key, entry.headers)
            assert letter.redriven == int(entry.headers.get("holdfast-redriven", "0"))
            if entry.death is None:
                assert letter.queue == ""
                continue
            death = entry.death
            assert (letter.queue, letter.original_id) == (death.queue, death.id)
            assert (letter.cause, letter.reason, letter.attempts) == (
                death.cause, told(death.reason), death.attempts,
            )  # fmt: skip
            assert (letter.first_failed_at is not None) == (letter.attempts > 0)
            assert (letter.last_failed_at or 0) >= (letter.first_failed_at or 0)
            assert abs(letter.enqueued_at - death.enqueued_at) < CLOSE
        self.compare()

    @rule(name=st.sampled_from(["work", "audit"]), data=st.data())
    def redrive(self, name: str, data: st.DataObject) -> None:
        letters = [sequence for sequence, _ in self.world.queues[name].dead_letters()]
        ids = data.draw(st.none() | st.sets(st.sampled_from([*letters, 10_000])))
        assert self.queues[name].redrive(ids) == self.world.queues[name].redrive(ids)
        self.compare()

    # Comparing.

    def look(self, name: str) -> ModelQueue:
        model = self.world.queues[name]
        model.look()
        return model

    def leased(self, name: str) -> int:
        return sum(len(held.attempts) for held in self.world.queues[name].leases.values())

    def compare(self) -> None:
        for name, queue in self.queues.items():
            queue_state = state_of(queue)
            queue_state.check()
            model = self.world.queues[name]
            ours, expected = without_moments(described(queue)), model.describe()
            if queue.log.start > 0:
                expected["totals"].pop("dropped")  # type: ignore[attr-defined]
            for part, value in ours.items():
                assert value == expected[part], f"{part} of {name}: {value}, and not {expected[part]}"
            assert queue.log.end == len(model.log)
            assert queue.log.start <= min(model.placed(), default=queue.log.start), "retention took what is not done"
            assert not self.acked[name] & model.placed()
            self.adopt_moments(name)

    def adopt_moments(self, name: str) -> None:
        """The model knows each moment to within a few readings of the clock; from here on it knows it exactly."""
        queue, model = self.queues[name], self.world.queues[name]
        for piece in queue.log.pieces(max(self.exact[queue.log.name], queue.log.start), queue.log.end):
            for sequence, time, due, expiry in zip(
                range(piece.first, piece.end),
                piece.times(),
                piece.numbers("due") or repeat(0),
                piece.numbers("expiry") or repeat(0),
                strict=False,
            ):
                entry = model.log[sequence]
                assert all(
                    abs(a - b) < CLOSE for a, b in ((time, entry.time), (due, entry.due), (expiry, entry.expiry))
                )
                model.log[sequence] = replace(entry, time=time, due=due, expiry=expiry)
        self.exact[queue.log.name] = queue.log.end
        for due, sequence, _ in state_of(queue).delayed:
            assert abs(due - model.delayed[sequence]) < CLOSE
            model.delayed[sequence] = due
        for lease_id, lease in state_of(queue).leases.by_id.items():
            assert abs(lease.expires - model.leases[lease_id].expires) < CLOSE
            model.leases[lease_id].expires = lease.expires


def without_moments(found: dict[str, object]) -> dict[str, object]:
    """What `QueueState.describe` says, as the model says it."""
    ready: dict[int, list[tuple[int, int]]] = found["ready"]  # type: ignore[assignment]
    leases: dict[int, tuple[int, list[tuple[int, int, int, int]]]] = found["leases"]  # type: ignore[assignment]
    return {
        "scanned": found["scanned"],
        "ready": {priority: [s for span in spans for s in range(*span)] for priority, spans in ready.items()},
        "delayed": [(sequence, priority) for sequence, _, priority in found["delayed"]],  # type: ignore[attr-defined]
        "leases": {
            lease_id: {s: attempt for start, stop, _, attempt in spans for s in range(start, stop)}
            for lease_id, (_, spans) in leases.items()
        },
        "failures": {sequence: (one.attempts, one.reason) for sequence, one in found["failures"]},  # type: ignore[attr-defined]
        "moving": {sequence: (one.target, one.cause, one.reason) for sequence, one in found["moving"]},  # type: ignore[attr-defined]
        "totals": found["totals"],
    }


def kept_reason(reason: str) -> str:
    """A reason as it is kept: what UTF-8 cannot hold is written out."""
    return reason.encode("utf-8", "backslashreplace").decode()


def told(reason: str) -> str:
    return reason


def death_headers(delivery: Delivery) -> dict[str, object]:
    """What dead-lettering added, when a dead letter is delivered."""
    return {name: value for name, value in delivery.headers.items() if name.startswith("holdfast-dead-")}


class WeakQueueMachine(QueueMachine):
    """Under `async` and `batch` a crash may take what was not synced, and the end of a journal with it. What is left is
    adopted, after it was asked for what must be there; from then on the model is exact again, so that nothing that was
    known of lost messages may stick to those who get their sequences."""

    flushes: tuple[Flush, ...] = (
        Flush.async_(),
        Flush.batch(bytes=400, interval=1),
        Flush.batch(bytes=64 * 1024, interval=0.1),
    )

    def __init__(self) -> None:
        super().__init__()
        self.done: dict[str, set[int]] = {name: set() for name in NAMES}
        """Done when all was last on disk: never to be seen again."""

    def synced(self, *names: str) -> None:
        for name in names:
            model = self.world.queues[name]
            self.world.durable[model.log_name] = len(model.log)
            self.done[name] = set(range(len(model.log))) - model.placed()

    def after_seek(self, name: str) -> None:
        """A seek that is lost would leave messages done that the model has to deliver again."""
        self.queues[name].sync()
        self.synced(name)

    @rule(
        mode=st.sampled_from(CRASH_MODES),
        seed=st.integers(0, 99),
        gone=st.booleans(),
        first=st.sampled_from(["nobody", "log", "work"]),
    )
    def crash(self, mode: CrashMode, seed: int, gone: bool, first: str) -> None:
        """Someone may put into the log before all of its queues are open again."""
        self.files = self.files.after_crash(mode, seed)
        if gone:
            self.lose_state()
        self.store = open_sim(self.files, self.clock)
        self.queues = {}
        if first == "log":
            log = self.store.log("work", flush=self.flush, roll=self.roll)
            self.cut("work", log.end)
            self.append(log)
        for name in NAMES:
            self.queues[name] = self.open_queue(self.store, name)
            log = self.queues[name].log
            if name == "work.dead" or (name == "work" and first != "log"):
                self.cut(name, log.end)
            if name == first:
                self.append(log)
        for name in NAMES:
            self.adopt(name)
        self.tick()

    def append(self, log: Log) -> None:
        log.append_many([b"new"] * 3)
        self.world.logs["work"] += [Entry(b"new", time=self.clock.time_ns())] * 3

    def cut(self, name: str, end: int) -> None:
        """A log ends here now."""
        log = self.world.logs[name]
        assert self.world.durable[name] <= end <= len(log), "what was synced is lost"
        del log[end:]
        self.exact[name] = min(self.exact[name], end)
        for model in self.world.queues.values():
            if model.log is log:
                model.cut(end)
                self.done[model.name] = {sequence for sequence in self.done[model.name] if sequence < end}
                self.acked[model.name] = {sequence for sequence in self.acked[model.name] if sequence < end}

    def adopt(self, name: str) -> None:
        """Take over where the messages stand, if that is one of the ways in which they may."""
        queue, model, queue_state = self.queues[name], self.look(name), state_of(self.queues[name])
        queue_state.check()
        # Before anyone looks: a lease whose return was lost may have run out meanwhile, and its messages be given up.
        there = placed(queue_state) | set(range(queue_state.scanned, queue.log.end))
        before = model.placed()
        assert before <= there, f"messages of {name} are lost: {before - there}"
        assert not there & self.done[name], f"messages of {name} that were done come again: {there & self.done[name]}"
        queue.waiting()
        queue_state.check()
        found = queue_state.describe()
        ours = without_moments(found)
        ready: dict[int, list[int]] = ours["ready"]  # type: ignore[assignment]
        leases: dict[int, dict[int, int]] = ours["leases"]  # type: ignore[assignment]
        failures: dict[int, tuple[int, str]] = ours["failures"]  # type: ignore[assignment]
        model.ready = {sequence for level in ready.values() for sequence in level}
        model.delayed = {sequence: due for due, sequence, _ in queue_state.delayed}
        model.leases = {
            lease_id: Held(queue_state.leases.by_id[lease_id].expires, attempts)
            for lease_id, attempts in leases.items()
        }
        model.failures = {sequence: Known(*failure) for sequence, failure in failures.items()}
        model.moving = {
            sequence: Leaving(move.target, move.cause, move.reason, move.failure and Known(*move.failure[:1], ""))
            for sequence, move in queue_state.moving.items()
            if not has_arrived(self.store.queue(move.target).log, move.time, sequence)
        }
        model.totals = Counter(found["totals"])  # type: ignore[call-overload]
        for sequence, failure in model.failures.items():
            assert failure.attempts < (model.rules.max_attempts or 1 << 32)
            assert sequence in model.placed()
        self.acked[name] -= there
        for move in queue_state.moving:
            if move not in model.moving:
                # It has arrived, and only that it did was not written down yet.
                model.totals["redriven" if queue_state.moving[move].cause == "redriven" else "dead"] += 1

    def compare(self) -> None:
        for name, queue in self.queues.items():
            queue.waiting()  # looks, where a short way may have left some things for later
            self.look(name)
        super().compare()


def placed(queue_state: QueueState) -> set[int]:
    """Every message that is not done."""
    held = {sequence for lease in queue_state.leases.by_id.values() for sequence in lease.left}
    ready = {sequence for level in queue_state.ready.levels for span in level for sequence in range(*span)}
    return held | ready | {sequence for _, sequence, _ in queue_state.delayed} | queue_state.moving.keys()


def has_arrived(log: Log, time: int, sequence: int) -> bool:
    return any(
        (time, sequence) in zip(piece.numbers("producer") or (), piece.numbers("number") or (), strict=True)
        for piece in log.pieces(log.start, log.end)
    )


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=examples(100), stateful_step_count=40)
TestWeakQueueMachine = WeakQueueMachine.TestCase
TestWeakQueueMachine.settings = settings(max_examples=examples(100), stateful_step_count=40)
