"""How is a queue doing? Its numbers at a glance."""

from dataclasses import dataclass

__all__ = ["QueueStats"]


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
