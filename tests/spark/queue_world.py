"""A queue under a random workload, and a model of what became of each of its messages."""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import holdfast
from holdfast import Backoff, Flush, Message, Queue, QueueFull, Store
from holdfast.base.clock import duration_ns
from holdfast.queue.queue_state import TARGET_QUEUE_HEADER
from holdfast.testing import SimClock
from tests.queue.internals import journal_of, state_of

__all__ = ["End", "Held", "Life", "World"]

End = tuple[str, str | None]
"""A final state, and the reason."""
_SHORT_HISTORY_S = 15
_SAFE_S = 1
"""A lease that ends within this time is not used any more."""


@dataclass(slots=True)
class Held:
    """How the queue holds a message, as its owner says."""

    state: str
    due: int | None = None
    lease: int | None = None
    expires: int | None = None


@dataclass(slots=True)
class Life:
    """What the model knows of a message."""

    put_at: int
    priority: int = 0
    expiry: int | None = None
    attempts: int = 0
    reason: str | None = None
    lease: int | None = None
    ends: list[End] = field(default_factory=list)
    """How it left the queue: one of these; empty while the queue has it."""
    events: list[str] = field(default_factory=list)
    """All that happened, except its arrival in another queue and changes of its lease."""


class World:
    """A store with a queue `q`, its dead letters, and often another queue on the same log; `step` does something."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.clock = SimClock()
        chosen = self.random.choice
        self.has_short_history = self.random.random() < 0.5
        self.settings: dict[str, Any] = {
            "log": chosen(["q", "events"]),
            "flush": chosen([Flush.async_(), Flush.batch(), Flush.async_(), Flush.sync()]),
            "max_attempts": chosen([None, 1, 2, 3]),
            "backoff": Backoff(3, 3),
            "ttl": chosen([None, None, 25]),
            "max_length": chosen([None, None, 12]),
            "overflow": chosen(["drop-head", "dead-letter", "reject"]),
            "expired": chosen(["drop", "dead-letter"]),
            "starvation": chosen([None, 30]),
            "history": _SHORT_HISTORY_S if self.has_short_history else 7 * 86_400,
        }
        self.has_letters = (
            "dead-letter" in (self.settings["overflow"], self.settings["expired"]) or self.random.random() < 0.5
        )
        self.settings["dead_letter"] = "letters" if self.has_letters else None
        self.lives: dict[int, Life] = {}
        self.leased: dict[int, int] = {}
        """The lease of each message that a consumer has."""
        self._seen = 0
        self._put: dict[int, Life] = {}
        self.store, self.queue, self.other = self._open()
        self.settle()

    def _open(self) -> tuple[Store, Queue, Queue | None]:
        store = holdfast.open(self.folder, clock=self.clock, background=False)
        # With an index of every block, tasks get as few messages as a test wants.
        store.log(self.settings["log"], flush=self.settings["flush"], index_interval=1)
        queue = store.queue("q", **self.settings)
        shared = self.settings["log"] == "events"
        other = store.queue("other", log="events", flush=self.settings["flush"], max_attempts=1) if shared else None
        return store, queue, other

    def close(self) -> None:
        self.store.close()

    # What the owner says.

    def held(self) -> dict[int, Held]:
        """All messages in the queue."""
        told: dict[str, Any] = state_of(self.queue).describe()
        found = {at: Held("ready") for spans in told["ready"].values() for span in spans for at in range(*span)}
        found |= {at: Held("delayed", due=due) for at, due, _ in told["delayed"]}
        for lease, (expires, spans) in told["leases"].items():
            found |= {
                at: Held("leased", lease=lease, expires=expires)
                for first, stop, _, _ in spans
                for at in range(first, stop)
            }
        return found

    def settle(self) -> dict[int, Held]:
        """Let the queues do what is due, and follow it in the model; return what the queue holds then."""
        for _ in range(2):
            self.store.tick()
        now, held = self.clock.time_ns(), self.held()
        for piece in self.queue.log.pieces(self._seen, state_of(self.queue).scanned):
            priorities, headers = piece.numbers("priority"), piece.headers()
            for index, at in enumerate(range(piece.first, piece.end)):
                if at >= self._seen and headers[index].get(TARGET_QUEUE_HEADER, "q") == "q":
                    ttl, priority = self.settings["ttl"], priorities[index] if priorities else 0
                    unsent = Life(now, priority, None if ttl is None else now + ttl * 10**9)
                    life = self._put.pop(at, unsent)
                    life.put_at = piece.times()[index]
                    life.events.append("put")
                    self.lives.setdefault(at, life)
        self._seen = max(self._seen, state_of(self.queue).scanned)
        for at, life in self.lives.items():
            if life.ends:
                assert at not in held
                continue
            if life.lease is not None and (at not in held or held[at].lease != life.lease):
                self._fail(at, life, "the lease ran out", "expired", is_held=at in held)
            if at not in held and not life.ends:
                self._drop(life, now)
        return held

    def _fail(self, at: int, life: Life, reason: str, event: str, *, is_held: bool) -> None:
        """A delivery failed: perhaps for the last time."""
        life.lease = None
        self.leased.pop(at, None)
        most = self.settings["max_attempts"]
        if most is not None and life.attempts >= most:
            assert not is_held
            life.ends = [("dead", (reason or None) if self.has_letters else None)]
            life.events.append("dead-lettered" if self.has_letters else "dropped")
        else:
            life.reason = reason or None
            life.events.append(event)

    def _drop(self, life: Life, now: int) -> None:
        """A waiting message left without its consumer: its time was over, or the queue was full."""
        if life.expiry is not None and now >= life.expiry - 10_000_000:
            is_dead = self.settings["expired"] == "dead-letter"
            life.ends.append(("dead", "its time to live was over") if is_dead else ("dropped", life.reason))
        if self.settings["max_length"] is not None and self.settings["overflow"] != "reject":
            is_dead = self.settings["overflow"] == "dead-letter"
            life.ends.append(("dead", "the queue was full") if is_dead else ("dropped", life.reason))
        assert life.ends, "the model does not know why it is gone"
        life.events.append("|".join(sorted({_event_of(end) for end, _ in life.ends})))

    # What a program does.

    def step(self) -> None:
        """Do something at random."""
        actions = [
            *[self.put] * 5,
            *[self.take] * 6,
            *[self.ack] * 5,
            *[self.nack] * 5,
            *[self.pass_time] * 4,
            *[self.release, self.reject, self.transact, self.put_again, self.seek] * 1,
            *[
                self.purge,
                self.discard,
                self.redrive,
                self.checkpoint,
                self.checkpoint,
                self.reopen,
                self.work_elsewhere,
            ]
            * 1,
        ]
        self.random.choice(actions)()

    def put(self) -> None:
        count = self.random.randint(1, 5)
        self._send([self._message() for _ in range(count)])

    def _message(self) -> Message:
        chosen = self.random.choice
        return Message(
            b"%d" % self.random.randrange(10**6),
            key=chosen([None, b"k"]),
            headers=chosen([{}, {"a": "b"}]),
            delay=chosen([None, None, None, 4, 30]),
            priority=chosen([0, 0, 1, 9, 10, 100, 255]),
            ttl=chosen([None, None, None, 6, 40]),
        )

    def _send(self, messages: list[Message], ids: list[int] | None = None) -> None:
        self.settle()
        now = self.clock.time_ns()
        if ids is None:
            try:
                ids = list(self.queue.put_many(messages))
            except QueueFull:
                return
        for at, message in zip(ids, messages, strict=True):
            begin = now + (duration_ns(message.delay, "delay") if message.delay else 0)
            ttl = message.ttl or self.settings["ttl"]
            self._put[at] = Life(now, message.priority, begin + duration_ns(ttl, "ttl") if ttl else None)
        self.settle()
        if self.random.random() < 0.5:
            self.queue.sync()  # so that the log has many blocks

    def put_again(self) -> None:
        """The second message with an id is not put."""
        self.settle()
        try:
            first = list(self.queue.put_many([Message(b"once", dedup="once")]))
        except QueueFull:
            return
        assert list(self.queue.put_many([Message(b"once", dedup="once")])) == first
        self.settle()

    def transact(self) -> None:
        """Messages of a transaction over two queues."""
        self.settle()
        elsewhere = self.store.queue("elsewhere")
        try:
            with self.store.transaction():
                self.queue.put(b"of a transaction", priority=7)
                elsewhere.put(b"x")
        except QueueFull:
            return
        self.settle()

    def take(self) -> None:
        self.settle()
        taken = self.queue.lease(self.random.randint(1, 6), lease=self.random.choice([5, 20, 60]))
        for one in taken:
            life = self.lives[one.id]
            assert one.attempt == life.attempts + 1
            life.attempts, life.lease = one.attempt, one.lease
            life.events.append("leased")
            self.leased[one.id] = one.lease
        held = self.held()
        for at, life in self.lives.items():  # a lease drops what is overdue
            if at not in held and not life.ends:
                self._drop(life, self.clock.time_ns())

    def _some(self, most: int = 4) -> dict[int, list[int]]:
        """Messages whose leases last a while, by lease."""
        held = self.settle()
        now = self.clock.time_ns() + _SAFE_S * 10**9
        good = [at for at in self.leased if (held[at].expires or 0) > now]
        chosen: dict[int, list[int]] = {}
        for at in self.random.sample(good, min(len(good), self.random.randint(1, most))):
            chosen.setdefault(self.leased[at], []).append(at)
        return chosen

    def _given_back(self, chosen: dict[int, list[int]]) -> list[tuple[int, Life]]:
        """Take the deliveries from the consumer."""
        messages = [at for ids in chosen.values() for at in ids]
        for at in messages:
            del self.leased[at]
            self.lives[at].lease = None
        return [(at, self.lives[at]) for at in messages]

    def ack(self) -> None:
        chosen = self._some()
        assert self.queue.ack_ids(chosen) == []
        for _, life in self._given_back(chosen):
            life.ends = [("acked", life.reason)]
            life.events.append("acked")

    def nack(self) -> None:
        chosen = self._some()
        reason = self.random.choice(["", "no", f"reason {self.random.randrange(10**6)}", "\ud800 ü"])
        assert self.queue.return_ids(chosen, reason, self.random.choice([None, 0, 8])) == []
        held = self.held()
        text = reason.encode("utf-8", "backslashreplace").decode()
        for at, life in self._given_back(chosen):
            self._fail(at, life, text, "nacked", is_held=at in held)
        self.settle()

    def reject(self) -> None:
        chosen = self._some(1)
        assert self.queue.reject_ids(chosen, "never") == []
        for _, life in self._given_back(chosen):
            life.ends = [("dead", "never" if self.has_letters else None)]
            life.events.append("dead-lettered" if self.has_letters else "dropped")

    def release(self) -> None:
        chosen = self._some()
        assert self.queue.release_ids(chosen) == []
        for _, life in self._given_back(chosen):
            life.attempts -= 1
            life.events.append("released")
        self.settle()

    def extend(self) -> None:
        if chosen := self._some():
            assert self.queue.extend_ids(chosen, self.random.choice([3, 100])) == []

    def pass_time(self) -> None:
        self.clock.advance(self.random.choice([1, 2, 5, 12, 30]))
        self.settle()

    def purge(self) -> None:
        waiting = [at for at, one in self.settle().items() if one.state != "leased"]
        self.queue.purge()
        self._end(waiting, "dropped")

    def discard(self) -> None:
        waiting = [at for at, one in self.settle().items() if one.state != "leased"]
        chosen = self.random.sample(waiting, min(len(waiting), 2))
        assert self.queue.discard(chosen) == len(chosen)
        self._end(chosen, "dropped")
        for at in chosen:
            self.lives[at].events.append("dropped")

    def seek(self) -> None:
        self.settle()
        position = self.random.randint(self.queue.log.start, self.queue.log.reader.visible_end)
        self.queue.seek(position)
        self.leased.clear()
        for at, life in self.lives.items():
            life.lease = None
            if at >= position:
                life.attempts, life.reason, life.ends = 0, None, []
        self._end([at for at, life in self.lives.items() if at < position and not life.ends], "dropped")
        self.settle()

    def _end(self, messages: list[int], state: str) -> None:
        for at in messages:
            self.lives[at].ends = [(state, self.lives[at].reason)]

    def redrive(self) -> None:
        self.settle()
        for queue in (self.queue, self.other):
            if queue is not None:
                queue.redrive()
        self.settle()

    def checkpoint(self) -> None:
        self.settle()
        self.queue.checkpoint()

    def work_elsewhere(self) -> None:
        """Another queue on the same log has its own states."""
        if self.other is not None:
            self.settle()
            self.other.nack(self.other.lease(2), "elsewhere")
            self.settle()

    def reopen(self) -> None:
        self.settle()
        self.store.close()
        self.store, self.queue, self.other = self._open()
        self.settle()

    def write_out(self) -> dict[int, Held]:
        """Let a reader see everything; return what the queue holds."""
        held = self.settle()
        for queue in self.store.open_queues():
            queue.sync()
        return held

    @property
    def journal_begins(self) -> int:
        """When the first event that is kept was recorded; 0 if all are kept."""
        log = journal_of(self.queue).log
        return 0 if log.start == 0 else (log.time_of(log.start) or 0)


def _event_of(state: str) -> str:
    return "dead-lettered" if state == "dead" else "dropped"
