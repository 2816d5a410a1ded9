"""Where do dead letters go that no queue of this store takes? To a forwarder, who keeps them elsewhere."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.base.errors import InvalidArgument
from holdfast.log.record import Headers

__all__ = ["Forwarder", "Letter", "check_prefix", "is_forwarded"]

_PREFIX = re.compile(r"[a-z]+-dlx:")


@dataclass(frozen=True, slots=True)
class Letter:
    """A message that leaves its queue for good, as a forwarder gets it."""

    id: int
    """Its id in the queue that it leaves."""
    payload: bytes
    key: bytes | None
    headers: Headers
    """As they were put."""
    priority: int
    cause: str
    """`attempts`, `rejected`, `ttl` or `overflow`."""
    reason: str
    attempts: int
    """Deliveries that failed."""
    enqueued_at: int
    moved_at: int
    """When it left, in nanoseconds since 1970: with its id, the same however often it is tried."""
    doubtful: bool
    """Whether it may have been handed over before, and a crash or an error kept us from knowing."""


Forwarder = Callable[[str, str, list[Letter]], None]
"""Called with the queue's name, its `dead_letter` and the letters; returns when they are durable elsewhere.

A `HoldfastError` means: later, again. It is called from any thread, one call at a time for each queue.
"""


def is_forwarded(target: str) -> bool:
    """Whether a `dead_letter` names a place outside of the store: it begins with a word and `-dlx:`."""
    return _PREFIX.match(target) is not None


def check_prefix(prefix: str) -> str:
    """The prefix, or `InvalidArgument`: a name of a queue must never be taken for a place elsewhere."""
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        raise InvalidArgument(f"a prefix of forwarded dead letters is a word and '-dlx:', not {prefix!r}")
    return prefix
