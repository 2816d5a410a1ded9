"""How is a queue doing? Its numbers at a glance, its leases, and what a seek would make of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.queue.delivery import Waiting

__all__ = ["Counts", "LeaseInfo", "Preview", "QueueStats", "Rates"]


@dataclass(frozen=True, slots=True)
class QueueStats:
    """A queue at a glance."""

    name: str
    log: str
    ready: int
    delayed: int
    leased: int
    moving: int
    """On their way to another queue."""
    dead: int
    """What waits in its dead letter queue, be it of this queue or of another that shares it."""
    leases: int
    oldest_age: float | None
    """Seconds since the oldest ready message was put."""
    next_due: int | None
    """When the next delayed message comes up, in nanoseconds since 1970."""
    put_rate: float
    """Messages a second over the last minute."""
    lease_rate: float
    ack_rate: float
    total_leased: int
    total_acked: int
    total_nacked: int
    total_expired: int
    total_dead: int
    total_redriven: int
    total_dropped: int
    duplicates: int
    """Puts that were answered with the first message's id, since the queue was opened."""
    dedup_window: float
    """Seconds within which a duplicate is found: less than asked for where the limit of ids was met."""
    dedup_ids: int
    dedup_shortened: bool
    wait_p50: float | None
    """Seconds from put to delivery: half of the deliveries were sooner."""
    wait_p99: float | None
    hold_p50: float | None
    """Seconds from delivery to ack."""
    hold_p99: float | None
    orphans: int
    """Entries of the state that led nowhere and were put right when it was read."""
    lag: int
    """Records from the oldest message that is not done to the end of the log; up to 4095 too many if it is delayed."""
    paused: bool
    """Whether nothing is handed out."""
    checkpoint_failures: int = 0
    """Checkpoints that failed since the queue was opened."""
    checkpoint_failing_since: int | None = None
    """When checkpoints began to fail, in nanoseconds since 1970; None while they succeed."""
    checkpoint_error: str | None = None
    """Why the last checkpoint failed; None while they succeed."""


class Rates(NamedTuple):
    """Messages a second, over the last minute."""

    put: float
    lease: float
    ack: float


class Counts(NamedTuple):
    """How many messages a queue has, by where they stand."""

    ready: int
    delayed: int
    leased: int
    moving: int
    """On their way to another queue."""


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """A lease, and what is left of it."""

    id: int
    ids: tuple[int, ...]
    """The messages that it holds: neither done nor given back."""
    since: int
    """When it began, in nanoseconds since 1970."""
    expires_at: int
    """When it runs out, in nanoseconds since 1970."""


@dataclass(frozen=True, slots=True)
class Preview:
    """What a seek to a place would do. Nothing of it has happened."""

    position: int
    """Where the queue would stand."""
    log_start: int
    log_end: int
    delivered: int
    """Records from there to the end of the log: what would be delivered, again or for the first time."""
    waiting_now: int
    """Messages that are not done now: ready, delayed, leased or moving."""
    dropped: int
    """Those of them that are before the place and would be done; up to 4095 too many where very many are delayed."""
    _sample: Callable[[int], list[Waiting]] = field(repr=False, compare=False)

    def sample(self, count: int = 10) -> list[Waiting]:
        """The first messages that would be delivered, in the order of the log; their delays still count."""
        return self._sample(count)
