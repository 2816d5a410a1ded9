"""Forwarding of dead letters out of the store: the type of a forwarder, and the prefix of its targets."""

import re
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.base.errors import InvalidArgument
from holdfast.log.record import Headers

__all__ = ["ForwardedLetter", "Forwarder", "check_prefix", "is_forwarded"]

_PREFIX = re.compile(r"[a-z]+-dlx:")


@dataclass(frozen=True, slots=True)
class ForwardedLetter:
    """A dead letter that leaves the store, as a forwarder receives it."""

    id: int
    """Its id in the queue that it leaves."""
    payload: bytes
    key: bytes | None
    headers: Headers
    """The headers of the put."""
    priority: int
    cause: str
    """`attempts`, `rejected`, `ttl` or `overflow`."""
    reason: str
    attempts: int
    """Deliveries that failed."""
    enqueued_at: int
    moved_at: int
    """When it left the queue, in nanoseconds since 1970: like the id, the same in every attempt."""
    doubtful: bool
    """Whether an earlier attempt, interrupted by a crash or an error, may have delivered it to the forwarder."""


Forwarder = Callable[[str, str, list[ForwardedLetter]], None]
"""Called with the queue's name, its `dead_letter` and the dead letters; returns when they are durable elsewhere.

After a `HoldfastError` the call is repeated later. Called from any thread, one call at a time for each queue.
"""


def is_forwarded(target: str) -> bool:
    """Return whether a `dead_letter` names a target outside of the store: it begins with a word and `-dlx:`."""
    return _PREFIX.match(target) is not None


def check_prefix(prefix: str) -> str:
    """Return the prefix, or raise `InvalidArgument`: the name of a queue must never look like an outside target."""
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        raise InvalidArgument(f"the prefix of a forwarder must be a word of a-z and '-dlx:', not {prefix!r}")
    return prefix
