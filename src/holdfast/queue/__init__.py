"""Work queues: leases, delays, priorities, dedup, retries and dead letters, as views of logs."""

from holdfast.queue.delivery import DeadLetter, Delivery, Waiting
from holdfast.queue.queue import Queue
from holdfast.queue.settings import Backoff, QueueSettings
from holdfast.queue.stats import QueueStats

__all__ = ["Backoff", "DeadLetter", "Delivery", "Queue", "QueueSettings", "QueueStats", "Waiting"]
