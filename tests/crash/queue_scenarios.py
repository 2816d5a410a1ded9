"""Work on queues that may be cut off anywhere, with what must hold of it afterwards."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import holdfast
from holdfast import Backoff, Delivery, Message, Queue, Store
from holdfast.testing import SimClock, SimFiles
from tests.queue.internals import journal_of, state_of

PATH = "data"
STATE = Path(PATH) / "state" / "state.flat"


class QueueWork:
    """A scenario: steps on the queue "work" and its dead letters, and the ledger of what was promised."""

    def __init__(self, steps: Callable[["QueueWork"], None], **settings: object) -> None:
        self.steps = steps
        self.settings = settings
        self.clock = SimClock()
        self.tried: set[bytes] = set()
        """Payloads that were handed in, confirmed or not."""
        self.confirmed: set[bytes] = set()
        self.leased: Counter[bytes] = Counter()
        """Deliveries that were handed out."""
        self.leasing: set[bytes] = set()
        """What may have been leased by a call that never returned: anything that waited then."""
        self.acked: set[bytes] = set()
        self.leaving: set[bytes] = set()
        """What an ack, a purge or a seek may have ended; it was cut off."""
        self.gone: set[bytes] = set()
        """What a purge or a seek has ended."""
        self.replayed: set[bytes] = set()
        """What a seek has brought back, or may have."""
        self.store: Store
        self.queue: Queue

    # steps ------------------------------------------------------------------

    def put(self, *messages: bytes | Message) -> None:
        """Put as one; the return confirms."""
        payloads = {message if isinstance(message, bytes) else message.payload for message in messages}
        self.tried |= payloads
        self.queue.put_many(messages)
        self.confirmed |= payloads

    def lease(self, count: int) -> list[Delivery]:
        self.leasing = set(self.tried)
        deliveries = self.queue.lease(count, lease=10)
        self.leasing = set()
        self.leased.update(delivery.payload for delivery in deliveries)
        return deliveries

    def ack(self, deliveries: list[Delivery]) -> None:
        payloads = {delivery.payload for delivery in deliveries}
        self.leaving |= payloads
        self.queue.ack(deliveries)
        self.acked |= payloads

    def purge(self) -> None:
        held = {payload for payload in self.tried if payload not in self.acked}
        self.leaving |= held
        self.queue.purge()
        self.gone |= held

    def seek(self, sequence: int, back: set[bytes]) -> None:
        """Everything from a sequence on comes (again): the payloads in `back`; the others are gone."""
        self.replayed |= back
        self.leaving |= self.tried - back
        self.queue.seek(sequence)
        self.acked -= back
        self.gone |= self.tried - back
        self.gone -= back
        self.leaving -= back
        self.leased.clear()

    # Scenario ---------------------------------------------------------------

    def open(self, files: SimFiles) -> Store:
        return holdfast.open(PATH, files=files, clock=self.clock, background=False)

    def run(self, files: SimFiles) -> None:
        self.store = self.open(files)
        self.queue = self.store.queue("work", **self.settings)  # type: ignore[arg-type]
        self.steps(self)
        self.store.close()

    def check(self, files: SimFiles) -> None:
        without_state = files.after_crash("prefix", 0)  # a copy
        crashed = self.clock
        self.check_disk(files)
        self.clock = crashed
        if without_state.exists(STATE):
            without_state.remove(STATE)
            self.check_disk(without_state)
            self.clock = crashed

    def check_disk(self, files: SimFiles) -> None:
        clock = self.clock = SimClock(self.clock.time_ns())  # each case goes on from when the crash came
        store = self.open(files)
        queue = store.queue("work")
        state_of(queue).check()
        for _ in range(3):  # what was on its way is brought where it goes
            store.tick()
        delivered: dict[bytes, int] = {}
        clock.advance(86_400 * 40)  # every lease and every delay is over
        while batch := queue.lease(3, lease=86_400):
            for message in batch:
                assert message.payload not in delivered, f"{message} is delivered twice"
                delivered[message.payload] = message.attempt
        state_of(queue).check()
        dead = Counter(letter.payload for letter in queue.dead_letters())
        there = set(delivered) | set(dead)
        assert not set(delivered) & set(dead), "a message is alive and dead"
        assert all(count == 1 for count in dead.values()), "a message died twice"
        assert there <= self.tried, "a message came from nowhere"
        must = self.confirmed - self.leaving - self.gone - self.acked
        assert must <= there, f"lost: {must - there}"
        ended = (self.acked | self.gone) - self.replayed
        assert not there & ended, f"came back after its end: {there & ended}"
        if not self.replayed:
            self.check_attempts(delivered)
        # The queue goes on, and stands where it stood when it is opened again.
        queue.put(b"after the crash")
        before = state_of(queue).describe()
        store.close()
        again = self.open(files).queue("work")
        state_of(again).check()
        assert [message.payload for message in again.peek(9)] == [b"after the crash"]
        expected = {**before, "scanned": state_of(again).scanned, "ready": state_of(again).describe()["ready"]}
        assert state_of(again).describe() == expected

    def check_attempts(self, delivered: dict[bytes, int]) -> None:
        for payload, attempt in delivered.items():
            least = self.leased[payload] + 1 if payload in self.confirmed else 1
            most = self.leased[payload] + 1 + (payload in self.leasing) + 3 * self.redriven
            assert (1 if self.redriven else least) <= attempt <= most, f"{payload!r} was tried {attempt} times"

    redriven = False


def plain(work: QueueWork) -> None:
    work.put(b"a")
    work.put(b"b", b"c", b"d")
    first = work.lease(2)
    work.ack(first[:1])
    work.put(b"e")
    first[1].nack("not now")
    work.ack(work.lease(2))
    work.clock.advance(20)
    work.store.tick()
    work.ack(work.lease(1))


def checkpoints(work: QueueWork) -> None:
    work.put(b"a", Message(b"b", priority=4), Message(b"c", delay=50), Message(b"d", dedup="d"))
    held = work.lease(2)
    work.queue.checkpoint()
    work.ack(held[:1])
    work.put(Message(b"e", delay=5, priority=2), b"f")
    held[1].nack("no", delay=30)
    work.queue.checkpoint()
    work.clock.advance(6)
    work.ack(work.lease(9)[1:])
    work.put(b"g")
    work.queue.checkpoint()


def dead_letters(work: QueueWork) -> None:
    work.redriven = True
    work.put(b"a", b"poison", b"c")
    for message in work.lease(3):
        if message.payload == b"poison":
            message.nack("cannot")
        else:
            work.ack([message])
    work.queue.redrive()
    work.put(b"d")
    for message in work.lease(2):
        if message.payload == b"poison":
            message.nack("still cannot")
    work.clock.advance(11)
    work.store.tick()
    work.queue.redrive()
    work.ack([message for message in work.lease(5) if message.payload == b"poison"])


def refused(work: QueueWork) -> None:
    """Some are rejected, the leases of the others are void."""
    work.put(b"a", b"bad", b"c")
    held = work.lease(3)
    dropped = {b"bad"} if work.queue.settings.dead_letter is None else set()
    work.leaving |= dropped
    work.queue.reject_ids({held[1].lease: [held[1].id]}, "never")
    work.gone |= dropped
    work.queue.checkpoint()
    work.put(b"d")
    work.queue.void_leases("anew")
    work.ack(work.lease(1))
    work.lease(2)
    work.queue.void_leases("again")


def history(work: QueueWork) -> None:
    """The journal is shortened, after a snapshot."""
    for day in range(5):
        work.put(b"%d-a" % day, Message(b"%d-b" % day, delay=86_400 * 30))
        work.ack(work.lease(1))
        work.clock.advance(86_400)
        work.queue.checkpoint()
    assert journal_of(work.queue).log.start > 0


def purge(work: QueueWork) -> None:
    work.put(b"a", b"b", Message(b"c", delay=5))
    work.purge()
    work.put(b"d", b"e")
    work.ack(work.lease(1))


def seek(work: QueueWork) -> None:
    work.put(b"a", b"b", b"c", b"d")
    work.ack(work.lease(2))
    work.lease(1)
    work.seek(1, {b"b", b"c", b"d"})
    work.ack(work.lease(1))
    work.queue.checkpoint()
    work.put(b"e")


def groups(work: QueueWork) -> None:
    other = work.store.queue("other", log="work")
    work.put(b"a", b"b")
    other.ack(other.lease(2))
    work.ack(work.lease(1))
    other.checkpoint()
    work.put(b"c")
    other.ack(other.lease(1))


SCENARIOS: dict[str, Callable[[], QueueWork]] = {
    "plain": lambda: QueueWork(plain, max_attempts=None, backoff=Backoff(base=1, cap=5)),
    "checkpoints": lambda: QueueWork(checkpoints, max_attempts=None),
    "dead letters": lambda: QueueWork(dead_letters, max_attempts=1),
    "refused": lambda: QueueWork(refused, max_attempts=None),
    "refused and dropped": lambda: QueueWork(refused, max_attempts=None, dead_letter=None),
    "history": lambda: QueueWork(history, max_attempts=None, history=86_400 * 2),
    "purge": lambda: QueueWork(purge, max_attempts=None),
    "seek": lambda: QueueWork(seek, max_attempts=None),
    "groups": lambda: QueueWork(groups, max_attempts=None),
}
