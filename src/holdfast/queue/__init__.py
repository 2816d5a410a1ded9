"""Work queues: leases, delays, priorities, dedup, retries and dead letters, as views of logs."""

import warnings
from typing import Any

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

_OLD = {"Waiting": "PeekedMessage"}


def __getattr__(name: str) -> Any:
    """Return the object of an old name, with a warning."""
    if name in _OLD:
        new = _OLD[name]
        warnings.warn(f"holdfast.{name} is now holdfast.{new}", DeprecationWarning, stacklevel=3)
        return globals()[new]
    raise AttributeError(f"module 'holdfast.queue' has no attribute {name!r}")
