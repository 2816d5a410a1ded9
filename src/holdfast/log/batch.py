"""Validation of messages before they are appended: copies of their payloads, optional columns and sizes."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, cast

from holdfast.base.errors import InvalidArgument
from holdfast.log.record import Message, as_bytes, check_headers, headers_size

__all__ = ["ALL", "ColumnValue", "check_batch"]

ALL = -1
"""The position of a value that all messages of a batch share."""


class ColumnValue(NamedTuple):
    """A value of an optional column, for one message of a batch or for all."""

    position: int
    column: str
    value: Any
    size: int
    """Bytes beyond the fixed width of the column."""

    def for_all(self) -> "ColumnValue":
        """Return the value as one that all messages of a batch share."""
        return self._replace(position=ALL)


def check_batch(
    messages: Iterable[bytes | Message], own: Callable[[Message], list[tuple[str, Any, int]]] | None = None
) -> tuple[list[bytes], list[ColumnValue], int]:
    """Return the payloads, the values of optional columns, and the size of the largest message that has any.

    `own` returns the columns (name, value, size) that only queues support; a log rejects them.
    """
    messages = list(messages)  # a copy: the caller may change the list while this waits for space
    if set(map(type, messages)) <= {bytes}:  # the common case, checked without a loop
        return cast("list[bytes]", messages), [], 0
    payloads: list[bytes] = []
    extras: list[ColumnValue] = []
    largest = 0
    for position, message in enumerate(messages):
        if not isinstance(message, Message):
            payloads.append(as_bytes(message, "a message"))
            continue
        payload = as_bytes(message.payload, "payload")
        size = len(payload)
        if message.key is not None:
            key = as_bytes(message.key, "key")
            extras.append(ColumnValue(position, "key", key, len(key)))
            size += len(key)
        if message.headers:
            headers = check_headers(message.headers)
            extras.append(ColumnValue(position, "headers", headers, headers_size(headers)))
            size += extras[-1].size
        if own is not None:
            for column, value, more in own(message):
                extras.append(ColumnValue(position, column, value, more))
                size += more
        elif message.is_for_queues:
            raise InvalidArgument("delay, priority, ttl and dedup are options of queues: put the message into a queue")
        payloads.append(payload)
        largest = max(largest, size)
    return payloads, extras, largest
