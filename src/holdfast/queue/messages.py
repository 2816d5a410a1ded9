"""Messages as consumers and operators receive them: deliveries, waiting and delayed messages, and dead letters."""

from collections.abc import Iterable
from functools import partial
from operator import itemgetter
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

from holdfast.base.clock import Duration
from holdfast.base.errors import LeaseLost
from holdfast.log.record import Headers

if TYPE_CHECKING:
    from holdfast.queue.queue import Queue

__all__ = ["DeadLetter", "Delayed", "Delivery", "PeekedMessage", "by_lease", "listed", "make_delivery"]


class _Delivered(NamedTuple):
    id: int
    """The message's sequence in the log."""
    payload: bytes
    key: bytes | None
    headers: Headers
    attempt: int
    """The number of this delivery of the message, from 1."""
    enqueued_at: int
    """When it was put, in nanoseconds since 1970."""
    priority: int
    lease: int
    """The id of its lease, shared with the messages that were leased in the same call."""
    queue: "Queue"


# A NamedTuple, as records are: built from whole columns by C code.
class Delivery(_Delivered):
    """A message under a lease.

    As a context manager it is acked at the end of the block, nacked after an exception, and released after an interrupt
    (Ctrl-C). If the lease was lost before the ack, leaving the block raises `LeaseLost`.
    """

    settled: bool | None = None
    """In a `with` block: whether it was settled there. None outside of one, where it is not recorded."""

    def ack(self) -> bool:
        """Acknowledge the message: it is never delivered again. Return False if the lease was lost."""
        done: bool = self[8].settler.ack_one(self)  # the queue: half of the time that its name takes
        return done if self.settled is None else self._note(done)

    def nack(self, reason: str = "", delay: Duration | None = None) -> bool:
        """Report a failure: redelivered after `delay` (the queue's backoff if None), or dead after too many attempts.

        Return False if the lease was lost.
        """
        return self._note(not self.queue.settler.try_nack([self], reason, delay))

    def extend(self, duration: Duration | None = None) -> bool:
        """Extend the lease, with all messages under it, to so long from now (None: the queue's lease); may shorten.

        Return False if the lease was lost.
        """
        return not self.queue.settler.try_extend([self], duration)

    def release(self) -> bool:
        """Return the message untried: it is ready at once, and the delivery does not count as an attempt.

        Return False if the lease was lost.
        """
        return self._note(not self.queue.settler.try_release([self]))

    def _note(self, done: bool) -> bool:
        """In a `with` block, record whether the message was settled, and return that; elsewhere return `done`."""
        if self.settled is None:
            return done
        self.settled = done or self.settled
        return self.settled

    def __repr__(self) -> str:
        return (
            f"Delivery(id={self.id}, payload={len(self.payload)} bytes, attempt={self.attempt}, "
            f"priority={self.priority}, queue={self.queue.name!r})"
        )

    def __enter__(self) -> Self:
        self.settled = self.settled or False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ack it, nack it with the error's text, or release it after an interrupt, unless it was settled inside."""
        if self.settled:
            return
        if error is None:
            if not self.ack():
                raise LeaseLost(
                    f"the lease of message {self.id} of the queue {self.queue.name!r} expired before the ack, and "
                    "another consumer may have it: use a longer lease, or extend it in time",
                    [self.id],
                )
        elif isinstance(error, Exception):
            self.nack(f"{type(error).__name__}: {error}")
        else:
            self.release()  # Ctrl-C is not a failure of the message


make_delivery = partial(cast("Any", tuple.__new__), Delivery)
"""Return a delivery from a tuple of its fields, without the cost of a call in Python."""


class PeekedMessage(NamedTuple):
    """A waiting message, as `peek` returns it."""

    id: int
    payload: bytes
    key: bytes | None
    headers: Headers
    attempts: int
    """How many deliveries have failed."""
    enqueued_at: int
    priority: int


class Delayed(NamedTuple):
    """A delayed message and its due time."""

    id: int
    due_at: int
    """When it becomes due, in nanoseconds since 1970."""
    payload: bytes
    key: bytes | None
    headers: Headers
    priority: int
    attempts: int
    """How many deliveries have failed."""
    enqueued_at: int


class DeadLetter(NamedTuple):
    """A message that could not be delivered, and the reason."""

    id: int
    """Its id in the dead letter queue, for `redrive`."""
    payload: bytes
    key: bytes | None
    headers: Headers
    """The headers of the put, without those that dead-lettering added."""
    reason: str
    cause: str
    """`attempts`, `rejected`, `ttl` or `overflow`."""
    attempts: int
    first_failed_at: int | None
    last_failed_at: int | None
    queue: str
    """The queue in which it failed."""
    original_id: int
    """Its id there."""
    enqueued_at: int
    """When it was first put there."""
    died_at: int
    redriven: int
    """How often it was redriven before."""


def listed(deliveries: Iterable[Delivery]) -> list[Delivery]:
    """Return a list of deliveries, also for a single one, which is a tuple and would be iterated by field."""
    return [deliveries] if isinstance(deliveries, Delivery) else list(deliveries)


def by_lease(deliveries: list[Delivery]) -> dict[int, set[int]]:
    """Group the message ids by lease."""
    if len(leases := set(map(itemgetter(7), deliveries))) == 1:  # mostly all have one lease
        return {leases.pop(): set(map(itemgetter(0), deliveries))}
    found: dict[int, set[int]] = {}
    for delivery in deliveries:
        found.setdefault(delivery.lease, set()).add(delivery.id)
    return found
