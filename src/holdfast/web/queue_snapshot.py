"""What both management APIs report of a queue, read once: its message counts, flow, consumers and memory."""

from typing import NamedTuple

from holdfast.base.errors import HoldfastError
from holdfast.broker.queue_dispatcher import BrokerQueue
from holdfast.queue import Counts, Queue

__all__ = ["Flow", "QueueSnapshot", "counts_of", "snapshot_of"]


class Flow(NamedTuple):
    """Counts of messages through a queue since it was created, and their present rates a second.

    `put` is the end of the queue's log.
    """

    put: int = 0
    delivered: int = 0
    acked: int = 0
    returned: int = 0
    put_rate: float = 0.0
    deliver_rate: float = 0.0
    ack_rate: float = 0.0

    def plus(self, other: "Flow") -> "Flow":
        """Return the sum of two flows."""
        return Flow(
            self.put + other.put,
            self.delivered + other.delivered,
            self.acked + other.acked,
            self.returned + other.returned,
            self.put_rate + other.put_rate,
            self.deliver_rate + other.deliver_rate,
            self.ack_rate + other.ack_rate,
        )


class QueueSnapshot(NamedTuple):
    """A queue as it was at one moment."""

    ready: int = 0
    delayed: int = 0
    leased: int = 0
    moving: int = 0
    flow: Flow = Flow()
    consumers: int = 0
    memory: int = 0
    """Bytes of message bodies."""
    paused: bool = False
    closed: bool = False
    """Whether it was deleted a moment ago or cannot be read: then all counts are 0."""


_NONE = Counts(0, 0, 0, 0)
"""The counts of a queue that cannot be read."""
_CLOSED = QueueSnapshot(closed=True)


def counts_of(queue: Queue) -> Counts:
    """Return the message counts alone: a list of ten thousand queues can be sorted by them."""
    try:
        return queue.counts()
    except HoldfastError:
        return _NONE


def snapshot_of(queue: Queue, broker_queue: BrokerQueue | None) -> QueueSnapshot:
    """Return what is reported of a queue, in some microseconds; `broker_queue` is None if the broker has none."""
    counts = counts_of(queue)
    if counts is _NONE:
        return _CLOSED
    totals, rates = queue.inspect.totals, queue.inspect.rates()
    flow = Flow(queue.log.end, totals.leased, totals.acked, totals.nacked + totals.expired, *rates)
    consumers = len(broker_queue.consumers) if broker_queue is not None else 0
    return QueueSnapshot(*counts, flow, consumers, queue.cached_bytes, queue.paused)
