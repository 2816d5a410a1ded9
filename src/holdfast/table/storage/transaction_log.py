"""Records of the transaction log: the changes of a transaction to tables and queues, and its completion."""

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.base.clock import Duration
from holdfast.log.record import Message

if TYPE_CHECKING:
    from holdfast.table.storage.staging import Staging

__all__ = [
    "Decision",
    "Put",
    "QueuePart",
    "TablePart",
    "encode",
    "finished",
    "kept",
    "message_of",
    "records_in",
    "unfinished",
]


class Put(msgspec.Struct, array_like=True, frozen=True):
    """A message of a transaction."""

    payload: bytes
    key: bytes | None
    headers: dict[str, Any] | None
    delay: float | None
    priority: int
    ttl: float | None
    dedup: bytes | None


class TablePart(msgspec.Struct, array_like=True, frozen=True):
    """Changes of a table by a transaction: keys and events, to be found from this position of its log on."""

    table: str
    log: bytes
    """The log's id."""
    end: int
    records: list[tuple[bytes, bytes]]


class QueuePart(msgspec.Struct, array_like=True, frozen=True):
    """Messages that a transaction puts into a queue, to be found from this position of its log on."""

    queue: str
    log: bytes
    """The log's id."""
    end: int
    messages: list[Put]


class Decision(msgspec.Struct, array_like=True, frozen=True):
    """A decided transaction: from here on it will be completed, after a crash by the next opening of the store."""

    version: int
    time: int
    tables: list[TablePart]
    queues: list[QueuePart]


_DECODE = msgspec.msgpack.Decoder(Decision).decode


def encode(decision: Decision) -> bytes:
    """Return the record of a decision."""
    return msgspec.msgpack.encode(decision)


def finished(version: int) -> bytes:
    """Return the record that a transaction is complete: just its version, which is shorter than any decision."""
    return version.to_bytes(8, "big")


def unfinished(payloads: Iterable[bytes]) -> list[Decision]:
    """Return the decisions among these records that may be incomplete, oldest first."""
    left: dict[int, Decision] = {}
    for payload in payloads:
        if len(payload) == 8:
            left.pop(int.from_bytes(payload, "big"), None)
        else:
            decision = _DECODE(payload)
            left[decision.version] = decision
    return list(left.values())


def records_in(staging: "Staging") -> list[tuple[bytes, bytes]]:
    """Return the keys and encoded events of a request that is settled."""
    return [(step.key, step.payload) for step in staging.steps.values()]


def kept(message: Message) -> Put:
    """Return the form of a message that is kept in a decision."""
    dedup = message.dedup.encode() if isinstance(message.dedup, str) else message.dedup
    headers = dict(message.headers) if message.headers else None
    delay, ttl = _seconds(message.delay), _seconds(message.ttl)
    return Put(bytes(message.payload), message.key, headers, delay, message.priority, ttl, dedup)


def message_of(put: Put) -> Message:
    """Return the message that was kept."""
    return Message(put.payload, put.key, put.headers, put.delay, put.priority, put.ttl, put.dedup)


def _seconds(duration: Duration | None) -> float | None:
    return duration.total_seconds() if isinstance(duration, timedelta) else duration
