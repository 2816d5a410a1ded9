"""Work queues: leases, delays, priorities, dedup, retries and dead letters, as views of logs."""

from holdfast.queue.messages import DeadLetter, Delayed, Delivery, PeekedMessage
from holdfast.queue.queue import Queue
from holdfast.queue.settings import Backoff, QueueSettings
from holdfast.queue.stats import Counts, LeaseInfo, Preview, QueueStats

__all__ = [
    "Backoff",
    "Counts",
    "DeadLetter",
    "Delayed",
    "Delivery",
    "LeaseInfo",
    "PeekedMessage",
    "Preview",
    "Queue",
    "QueueSettings",
    "QueueStats",
]
