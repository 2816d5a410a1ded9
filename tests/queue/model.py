"""What is a queue, on paper? The same rules in a few plain structures, for tests to compare the real one with.

Times are nanoseconds of the simulated clock. Tests let time pass in half seconds, and each reading of that clock takes
a microsecond: so it does not matter at which moment of a call the model looks at it.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from holdfast import Backoff, Message
from holdfast.base.clock import duration_ns
from holdfast.log.record import HeaderValue

__all__ = ["BATCH", "Entry", "Held", "Known", "Leaving", "ModelQueue", "Rules", "World"]

BATCH = 3
"""How many dead letters are moved back at a time; the real queue is made to do the same."""


@dataclass(frozen=True)
class Entry:
    """A record of a log."""

    payload: bytes
    key: bytes | None = None
    headers: dict[str, HeaderValue] = field(default_factory=dict)
    priority: int = 0
    due: int = 0
    expiry: int = 0
    dedup: bytes | None = None
    time: int = 0
    owner: str | None = None
    """The only queue it is for."""
    death: "Death | None" = None


@dataclass(frozen=True)
class Known:
    """What is known of a message that failed."""

    attempts: int
    reason: str


@dataclass(frozen=True)
class Leaving:
    """A message on its way to another queue."""

    target: str
    cause: str
    reason: str
    failure: Known | None


@dataclass(frozen=True)
class Death:
    """What a dead letter says of its end."""

    queue: str
    id: int
    cause: str
    reason: str
    attempts: int
    enqueued_at: int


@dataclass
class Held:
    """A lease."""

    expires: int
    attempts: dict[int, int]


@dataclass(frozen=True)
class Rules:
    """The settings that matter here."""

    lease: float = 10
    max_attempts: int | None = 3
    backoff: Backoff = field(default_factory=lambda: Backoff(base=1, cap=4))
    dead_letter: str | None = None
    dedup_window: float = 20
    starvation: float | None = 30
    ttl: float | None = None
    expired: str = "drop"
    max_length: int | None = None
    max_bytes: int | None = None
    overflow: str = "drop-head"


class World:
    """All logs and queues of a store."""

    def __init__(self, now: Callable[[], int]) -> None:
        self.now = now
        self.logs: dict[str, list[Entry]] = {}
        self.durable: Counter[str] = Counter()
        """By log the end of what no crash may take, where the flush mode promises nothing."""
        self.queues: dict[str, ModelQueue] = {}

    def queue(self, name: str, rules: Rules | None = None, log: str | None = None) -> "ModelQueue":
        """A queue, made where there is none."""
        if name not in self.queues:
            self.queues[name] = ModelQueue(self, name, log or name, rules or Rules(max_attempts=None))
        return self.queues[name]

    def tick(self) -> None:
        """What a store does in the background."""
        for queue in list(self.queues.values()):
            queue.tick()


class ModelQueue:
    """One queue: where each message stands. What is nowhere is done."""

    def __init__(self, world: World, name: str, log: str, rules: Rules) -> None:
        self.world = world
        self.name = name
        self.log_name = log
        self.log = world.logs.setdefault(log, [])
        self.rules = rules
        self.scanned = 0
        self.ready: set[int] = set()
        self.delayed: dict[int, int] = {}
        self.leases: dict[int, Held] = {}
        self.failures: dict[int, Known] = {}
        self.moving: dict[int, Leaving] = {}
        self.totals: Counter[str] = Counter()

    # What happens by itself.

    def look(self) -> int:
        """Take in what came, let go what is due, take back what was held too long."""
        now = self.world.now()
        self.enter(now)
        self.fire(now)
        for lease_id, held in list(self.leases.items()):
            if held.expires <= now:
                self.give_back(now, "expired", "the lease ran out", lease_id, set(held.attempts), 0)
        return now

    def enter(self, now: int) -> None:
        for sequence in range(self.scanned, len(self.log)):
            entry = self.log[sequence]
            if entry.owner not in (None, self.name):
                continue
            if entry.due > now:
                self.delayed[sequence] = entry.due
            else:
                self.ready.add(sequence)
        self.scanned = len(self.log)

    def fire(self, now: int) -> None:
        for sequence, due in list(self.delayed.items()):
            if due <= now:
                del self.delayed[sequence]
                self.ready.add(sequence)

    def tick(self) -> None:
        self.shorten()
        now = self.look()
        self.dismiss({sequence for sequence in self.ready if self.is_overdue(sequence, now)}, "ttl", self.rules.expired)
        self.carry()

    # Putting.

    def put(self, messages: list[Message]) -> list[int] | None:
        """Their ids; None where the queue is full."""
        now = self.look() if self.looks_before(messages) else self.world.now()
        ids: list[int | None] = []
        fresh: dict[bytes, int] = {}
        new: list[Entry] = []
        end = len(self.log)
        for message in messages:
            dedup = message.dedup.encode() if isinstance(message.dedup, str) else message.dedup
            if dedup is not None and (known := self.duplicate(dedup, now)) is not None:
                ids.append(known)
            elif dedup is not None and dedup in fresh:
                ids.append(fresh[dedup])
            else:
                if dedup is not None:
                    fresh[dedup] = end + len(new)
                ids.append(end + len(new))
                new.append(self.entry(message, dedup, now))
        if self.rules.overflow == "reject" and max(self.excess([len(entry.payload) for entry in new])) > 0:
            return None
        self.log += new
        self.shorten()
        return [id for id in ids if id is not None]

    def looks_before(self, messages: list[Message]) -> bool:
        return self.is_bounded or any(message.dedup is not None for message in messages)

    def entry(self, message: Message, dedup: bytes | None, now: int) -> Entry:
        due = now + duration_ns(message.delay, "delay") if message.delay else 0
        return Entry(
            message.payload,
            message.key,
            dict(message.headers or {}),
            message.priority,
            due,
            (due or now) + duration_ns(message.ttl, "ttl") if message.ttl is not None else 0,
            dedup,
            now,
        )

    def duplicate(self, dedup: bytes, now: int) -> int | None:
        for sequence in range(len(self.log) - 1, -1, -1):
            entry = self.log[sequence]
            if entry.dedup == dedup:
                return sequence if entry.time + duration_ns(self.rules.dedup_window, "window") > now else None
        return None

    def shorten(self) -> None:
        """The oldest go, lowest priority first, and after all that are ready the delayed ones that are next."""
        if not self.is_bounded or self.rules.overflow == "reject":
            return
        self.look()
        order = sorted(self.ready, key=lambda sequence: (self.log[sequence].priority, sequence))
        order += sorted(self.delayed, key=lambda sequence: (self.delayed[sequence], sequence))
        for sequence in order:
            if max(self.excess([])) <= 0:
                break
            self.dismiss({sequence}, "overflow", self.rules.overflow)
        self.carry()

    @property
    def is_bounded(self) -> bool:
        return self.rules.max_length is not None or self.rules.max_bytes is not None

    def excess(self, more: list[int]) -> tuple[int, int]:
        """How many messages and bytes are too much, if messages of these sizes come to those that wait."""
        rules = self.rules
        size = sum(len(self.log[sequence].payload) for sequence in [*self.ready, *self.delayed])
        return (
            self.waiting + len(more) - rules.max_length if rules.max_length is not None else 0,
            size + sum(more) - rules.max_bytes if rules.max_bytes is not None else 0,
        )

    @property
    def waiting(self) -> int:
        return len(self.ready) + len(self.delayed)

    # Taking.

    def hand_out(self, count: int, lease: float | None, lease_id: int | None) -> list[tuple[int, int]]:
        """The next messages with the number of their delivery. The real queue says under which id they are held."""
        now = self.world.now()
        while True:
            picks = self.pick(count, now)
            overdue = {sequence for sequence in picks if self.is_overdue(sequence, now)}
            if not overdue:
                break
            self.dismiss(overdue, "ttl", self.rules.expired)
        if picks and lease_id is not None:
            expires = now + duration_ns(self.rules.lease if lease is None else lease, "lease")
            self.leases[lease_id] = Held(expires, {sequence: self.attempt(sequence) for sequence in picks})
            self.ready -= set(picks)
            self.totals["leased"] += len(picks)
        return [(sequence, self.attempt(sequence)) for sequence in picks]

    def attempt(self, sequence: int) -> int:
        return self.failures[sequence].attempts + 1 if sequence in self.failures else 1

    def pick(self, count: int, now: int) -> list[int]:
        levels: dict[int, list[int]] = {}
        for sequence in sorted(self.ready):
            levels.setdefault(self.log[sequence].priority, []).append(sequence)
        order: list[int] = []
        while levels and len(order) < count:
            priority = max(levels)
            if len(levels) > 1 and self.rules.starvation is not None:
                cutoff = now - duration_ns(self.rules.starvation, "starvation")
                starving = [
                    level
                    for level, waiting in levels.items()
                    if max(self.log[waiting[0]].time, self.log[waiting[0]].due) <= cutoff
                ]
                if starving:
                    priority = min(starving, key=lambda level: levels[level][0])
            order.append(levels[priority].pop(0))
            if not levels[priority]:
                del levels[priority]
        return order

    def peek(self, count: int) -> list[int]:
        now = self.look()
        return [sequence for sequence in self.pick(len(self.ready), now) if not self.is_overdue(sequence, now)][:count]

    def is_overdue(self, sequence: int, now: int) -> bool:
        entry = self.log[sequence]
        if entry.expiry:
            return entry.expiry <= now
        return self.rules.ttl is not None and max(entry.time, entry.due) + duration_ns(self.rules.ttl, "ttl") <= now

    def moments(self) -> list[int]:
        """Every moment at which something will change by itself."""
        rules = self.rules
        found = [*self.delayed.values(), *(held.expires for held in self.leases.values())]
        for sequence in self.placed():
            entry = self.log[sequence]
            found += [entry.expiry] if entry.expiry else []
            found += [max(entry.time, entry.due) + duration_ns(rules.ttl, "ttl")] if rules.ttl is not None else []
            if rules.starvation is not None:
                found.append(max(entry.time, entry.due) + duration_ns(rules.starvation, "starvation"))
        return found

    # Giving back.

    def held(self, lease_id: int, sequences: set[int]) -> set[int]:
        """Which of these are still held under this lease."""
        held = self.leases.get(lease_id)
        return sequences & held.attempts.keys() if held is not None else set()

    def ack(self, lease_id: int, sequences: set[int]) -> None:
        self.leave(lease_id, sequences)
        for sequence in sequences:
            self.failures.pop(sequence, None)
        self.totals["acked"] += len(sequences)

    def leave(self, lease_id: int, sequences: set[int]) -> None:
        held = self.leases[lease_id]
        for sequence in sequences:
            del held.attempts[sequence]
        if not held.attempts:
            del self.leases[lease_id]

    def give_back(
        self, now: int, cause: str, reason: str, lease_id: int, sequences: set[int], delay: float | None
    ) -> None:
        for sequence in sorted(sequences):
            attempt = self.leases[lease_id].attempts[sequence]
            self.leave(lease_id, {sequence})
            limit = self.rules.max_attempts
            if cause != "released" and limit is not None and attempt >= limit:
                self.failures[sequence] = Known(attempt, reason)
                self.let_go(sequence, "attempts", reason, "dead-letter")
                continue
            if cause != "released":
                self.failures[sequence] = Known(attempt, reason)
                self.totals[cause] += 1
            wait = self.rules.backoff.delay_ns(attempt) if delay is None else duration_ns(delay, "delay")
            if wait:
                self.delayed[sequence] = now + wait
            else:
                self.ready.add(sequence)

    def reject(self, reason: str, lease_id: int, sequences: set[int]) -> None:
        for sequence in sorted(sequences):
            self.failures[sequence] = Known(self.leases[lease_id].attempts[sequence], reason)
            self.leave(lease_id, {sequence})
            self.let_go(sequence, "rejected", reason, "dead-letter")

    def void_leases(self, reason: str) -> int:
        now = self.look()
        held = {lease_id: set(one.attempts) for lease_id, one in self.leases.items()}
        for lease_id, sequences in held.items():
            self.give_back(now, "expired", reason, lease_id, sequences, 0)
        return sum(map(len, held.values()))

    def extend(self, lease_id: int, duration: float | None) -> None:
        now = self.world.now()
        self.leases[lease_id].expires = now + duration_ns(self.rules.lease if duration is None else duration, "lease")

    # Leaving.

    def dismiss(self, sequences: set[int], cause: str, what: str) -> None:
        reasons = {"ttl": "its time to live was over", "overflow": "the queue was full"}
        for sequence in sequences:
            self.let_go(sequence, cause, reasons[cause], what)

    def let_go(self, sequence: int, cause: str, reason: str, what: str) -> None:
        self.ready.discard(sequence)
        self.delayed.pop(sequence, None)
        failure = self.failures.pop(sequence, None)
        if what == "dead-letter" and self.rules.dead_letter is not None:
            self.moving[sequence] = Leaving(self.rules.dead_letter, cause, reason, failure)
        else:
            self.totals["dropped"] += 1

    def carry(self) -> None:
        """Bring what is leaving to where it goes."""
        for sequence, leaving in sorted(self.moving.items()):
            entry = self.log[sequence]
            target = self.world.queue(leaving.target)
            headers = {name: value for name, value in entry.headers.items() if name != "holdfast-for"}
            copy = replace(entry, due=0, expiry=0, dedup=None, time=self.world.now(), owner=None, death=None)
            if leaving.cause == "redriven":
                times = int(headers.get("holdfast-redriven", "0")) + 1
                headers |= {"holdfast-redriven": str(times), "holdfast-for": leaving.target}
                copy = replace(copy, headers=headers, owner=leaving.target)
                self.totals["redriven"] += 1
            else:
                attempts = leaving.failure.attempts if leaving.failure is not None else 0
                death = Death(self.name, sequence, leaving.cause, leaving.reason, attempts, entry.time)
                copy = replace(copy, headers=headers, death=death)
                self.totals["dead"] += 1
            target.log.append(copy)
            self.world.durable[target.log_name] = len(target.log)  # what moves is never lost
        self.moving.clear()

    def dead_letters(self) -> list[tuple[int, Entry]]:
        if self.rules.dead_letter is None:
            return []
        target = self.world.queue(self.rules.dead_letter)
        target.look()
        return [
            (sequence, entry)
            for sequence in sorted(target.ready)
            for entry in [target.log[sequence]]
            if entry.death is None or entry.death.queue == self.name
        ]

    def redrive(self, ids: set[int] | None) -> int:
        letters = [sequence for sequence, _ in self.dead_letters() if ids is None or sequence in ids]
        count = len(letters)
        if self.rules.dead_letter is not None:
            target = self.world.queue(self.rules.dead_letter)
            letters.sort(key=lambda sequence: (-target.log[sequence].priority, sequence))
            while letters:
                for sequence in letters[:BATCH]:
                    target.ready.remove(sequence)
                    target.moving[sequence] = Leaving(self.name, "redriven", "", target.failures.pop(sequence, None))
                del letters[:BATCH]
                target.carry()
        return count

    # Moving the queue itself.

    def purge(self) -> int:
        self.look()
        count = self.waiting
        leased = {sequence for held in self.leases.values() for sequence in held.attempts}
        self.ready.clear()
        self.delayed.clear()
        self.failures = {sequence: known for sequence, known in self.failures.items() if sequence in leased}
        self.totals["dropped"] += count
        return count

    def seek(self, sequence: int) -> None:
        now = self.look()
        for place in (self.ready, self.delayed, self.leases, self.failures, self.moving):
            place.clear()
        self.scanned = sequence
        self.enter(now)

    def cut(self, end: int) -> None:
        """The log ends here now: nothing is known of what is behind."""
        self.scanned = min(self.scanned, end)
        for place in (self.delayed, self.failures, self.moving):
            for sequence in [sequence for sequence in place if sequence >= end]:
                del place[sequence]
        self.ready = {sequence for sequence in self.ready if sequence < end}
        for lease_id, held in list(self.leases.items()):
            self.leave(lease_id, {sequence for sequence in held.attempts if sequence >= end})

    # Comparing.

    def describe(self) -> dict[str, object]:
        """In the words of `QueueState.describe`, without the moments."""
        levels: dict[int, list[int]] = {}
        for sequence in sorted(self.ready):
            levels.setdefault(self.log[sequence].priority, []).append(sequence)
        return {
            "scanned": self.scanned,
            "ready": levels,
            "delayed": sorted((sequence, self.log[sequence].priority) for sequence in self.delayed),
            "leases": {lease_id: dict(sorted(held.attempts.items())) for lease_id, held in self.leases.items()},
            "failures": {sequence: (known.attempts, known.reason) for sequence, known in sorted(self.failures.items())},
            "moving": {
                sequence: (leaving.target, leaving.cause, leaving.reason)
                for sequence, leaving in sorted(self.moving.items())
            },
            "totals": {name: self.totals[name] for name in TOTALS},
        }

    def placed(self) -> set[int]:
        """Every message that is not done."""
        held = {sequence for one in self.leases.values() for sequence in one.attempts}
        return self.ready | self.delayed.keys() | held | self.moving.keys()


TOTALS = ("leased", "acked", "nacked", "expired", "dead", "redriven", "dropped")
