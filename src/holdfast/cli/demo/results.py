"""Figures of one run of the demo, and the promises that were checked with them."""

from dataclasses import dataclass, field

__all__ = ["Figures", "Promise"]


@dataclass(frozen=True, slots=True)
class Promise:
    """A guarantee, and whether it held in this run."""

    text: str
    kept: bool


@dataclass(slots=True)
class Figures:
    """The figures of one run, filled in step by step; all were measured in it."""

    records: int = 0
    confirmed: int = 0
    """Records that the killed process had confirmed to be on disk."""
    confirmed_seconds: float = 0.0
    found: int = 0
    """Records in the log after the kill."""
    lost: int = 0
    """Confirmed records that could not be read or had another payload."""
    cut_bytes: int = 0
    recovery_seconds: float = 0.0
    resumed: int = 0
    """Records that were written after the kill."""
    resumed_seconds: float = 0.0
    followed: int = 0
    """Records that another process read as they were written."""
    follow_delay_ms: float | None = None
    committed: int = 0
    """The position of the named tailer before it was restarted."""
    went_on_at: int = 0
    read: int = 0
    read_seconds: float = 0.0
    time_sequence: int = 0
    """The record that was found by the time of the kill."""
    time_seconds: float = 0.0
    verified: int = 0
    bytes: int = 0
    verify_seconds: float = 0.0
    orders: int = 0
    """Orders that were put into the queue."""
    put_seconds: float = 0.0
    shipped_before: int = 0
    """Orders that the killed worker process had reported as shipped."""
    shipped_before_seconds: float = 0.0
    in_doubt: int = 0
    """Orders that it held, or had not yet reported, when it was killed."""
    came_again: int = 0
    came_again_seconds: float = 0.0
    """From the kill to the last redelivery."""
    shipped: int = 0
    """Orders that were shipped once."""
    shipped_seconds: float = 0.0
    missing: int = 0
    doubled: int = 0
    attempts: int = 0
    """How often the order that cannot be shipped was tried."""
    redriven: int = 0
    customers: int = 0
    """Records that were added to the table."""
    customers_seconds: float = 0.0
    published: int = 0
    """Messages that the broker confirmed to a client of AMQP."""
    published_seconds: float = 0.0
    restart_seconds: float = 0.0
    """From the start of the server after the kill until it listened."""
    backup_seconds: float = 0.0
    backup_bytes: int = 0
    spark_seconds: float | None = None
    """Duration of the pipeline, without the start of Spark; None if it did not run."""
    report: str | None = None
    promises: list[Promise] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        return all(promise.kept for promise in self.promises)

    def promise(self, text: str, kept: bool) -> None:
        """Record whether a promise was kept."""
        self.promises.append(Promise(text, kept))
