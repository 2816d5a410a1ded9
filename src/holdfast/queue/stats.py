"""Statistics of a queue: counts, rates, ages, leases, and the preview of a seek."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.queue.messages import PeekedMessage

__all__ = ["Counts", "LeaseInfo", "Preview", "QueueStats", "Rates"]


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Counts, ages, rates and latencies of a queue."""

    name: str
    log: str
    ready: int
    delayed: int
    leased: int
    moving: int
    """Messages that are being moved to another queue."""
    dead: int
    """Messages that wait in its dead letter queue, also those of other queues that share it."""
    leases: int
    oldest_age: float | None
    """Seconds since the oldest ready message was put."""
    next_due: int | None
    """When the next delayed message becomes due, in nanoseconds since 1970."""
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
    """Puts of duplicates, which returned the first message's id, since the queue was opened."""
    dedup_window: float
    """Seconds within which a duplicate is found; fewer than configured if `dedup_limit` was reached."""
    dedup_ids: int
    dedup_shortened: bool
    wait_p50: float | None
    """Seconds from put to delivery; half of the deliveries were faster."""
    wait_p99: float | None
    hold_p50: float | None
    """Seconds from delivery to ack."""
    hold_p99: float | None
    orphans: int
    """Dangling entries of the state that were repaired when it was read."""
    lag: int
    """Records from the oldest unacknowledged message to the end of the log; up to 4095 too many if it is delayed."""
    paused: bool
    """Whether delivery is paused."""
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
    """How many messages are ready, delayed, leased and moving."""

    ready: int
    delayed: int
    leased: int
    moving: int
    """Messages that are being moved to another queue."""


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """A lease, with the messages that it holds and its expiry."""

    id: int
    ids: tuple[int, ...]
    """The messages that it holds: neither acknowledged nor returned."""
    since: int
    """When it began, in nanoseconds since 1970."""
    expires_at: int
    """When it expires, in nanoseconds since 1970."""

    @property
    def count(self) -> int:
        """How many messages it holds."""
        return len(self.ids)


@dataclass(frozen=True, slots=True)
class Preview:
    """The effect that a seek to a position would have."""

    position: int
    """The position of the queue after the seek."""
    log_start: int
    log_end: int
    delivered: int
    """Records from there to the end of the log, which would be delivered, again or for the first time."""
    waiting_now: int
    """Messages that are in the queue now: ready, delayed, leased or moving."""
    dropped: int
    """Messages before the position, which would leave the queue; up to 4095 too many with very many delayed ones."""
    _sample: Callable[[int], list[PeekedMessage]] = field(repr=False, compare=False)

    def sample(self, count: int = 10) -> list[PeekedMessage]:
        """Return the first messages that would be delivered, in log order; their delays apply."""
        return self._sample(count)
