"""What a snapshot in a queue's journal says of a range of messages."""

import json
from typing import Any

import numpy as np

from holdfast.queue.attempts import failure_of
from holdfast.queue.checkpoint import SpanInLease, expiry_of, held_of
from holdfast.queue.delayed import entry_of
from holdfast.queue.journal import rows_of
from holdfast.queue.queue_state import Move
from holdfast.queue.ranges import unpack
from holdfast.queue.state_keys import number_of
from holdfast.spark.message_texts import MessageTexts
from holdfast.spark.queue_events import NONE

__all__ = ["DEAD", "GONE", "LEASED", "REDRIVEN", "WAITING", "SnapshotStates"]

WAITING, LEASED, DEAD, REDRIVEN, GONE = range(5)
"""Whether and how a queue holds a message: ready or delayed, leased, moving to the dead letters, moving back, not."""

Numbers = np.ndarray[Any, Any]


class SnapshotStates:
    """The messages from `start` up to `stop` as a snapshot has them: `add` each part of its content, then `finish`."""

    def __init__(self, start: int, stop: int) -> None:
        size = stop - start
        self.start = start
        self.stop = stop
        self.places = np.full(size, GONE, np.uint8)
        self.attempts = np.zeros(size, np.int32)
        """Failed deliveries and, of leased messages, the present one."""
        self.reasons = np.full(size, NONE, np.int32)
        self.dues = np.full(size, NONE, np.int64)
        """When a waiting message is due, 0: at once; `NONE` for messages that the snapshot does not know yet."""
        self.lease = np.full(size, NONE, np.int64)
        self.until = np.full(size, NONE, np.int64)
        self._texts: dict[int, str] = {}
        """The reasons of failures, by index of the message."""
        self._deliveries: list[tuple[int, int, int]] = []
        """First index, end and present delivery of leased messages."""
        self._expiries: dict[int, int] = {}

    def add(self, content: bytes) -> None:
        """Add the rows of the next part."""
        for family, key, value in rows_of(content):
            match family:
                case "available":
                    for first, end in zip(*unpack(value), strict=True):
                        self._wait(first, end, 0)
                case "visibility_index":
                    due, sequence, _ = entry_of(key, value)
                    self._wait(sequence, sequence + 1, due)
                case "in_progress":
                    self._hold(number_of(key), held_of(value))
                case "leases":
                    self._expiries[number_of(key)] = expiry_of(value)
                case "attempts":
                    sequence = number_of(key)
                    if self.start <= sequence < self.stop:
                        failure = failure_of(value)
                        self.attempts[sequence - self.start] = failure.attempts
                        self._texts[sequence - self.start] = failure.reason
                case "positions":
                    new = self._index(json.loads(value)["scanned"])
                    self.places[new:], self.dues[new:] = WAITING, NONE

    def finish(self, texts: MessageTexts) -> None:
        """Complete the arrays after the last part, with the reasons as numbers of texts."""
        for at, text in self._texts.items():
            self.reasons[at] = texts.code(text)
        for first, end, attempt in self._deliveries:
            self.attempts[first:end] = attempt
        leased = np.flatnonzero(self.places == LEASED)
        if len(leased):
            ids, expires = (np.array(column, np.int64) for column in zip(*sorted(self._expiries.items()), strict=True))
            self.until[leased] = expires[np.searchsorted(ids, self.lease[leased])]

    def _wait(self, first: int, end: int, due: int) -> None:
        own = slice(self._index(first), self._index(end))
        self.places[own], self.dues[own] = WAITING, due

    def _hold(self, first: int, held: SpanInLease | Move) -> None:
        if isinstance(held, SpanInLease):
            begin, end = self._index(first), self._index(held.stop)
            if begin < end:
                self.places[begin:end], self.lease[begin:end] = LEASED, held.lease
                self._deliveries.append((begin, end, held.attempt))
        elif self.start <= first < self.stop:
            at = first - self.start
            self.places[at] = REDRIVEN if held.cause == "redriven" else DEAD
            failure = held.failure
            self.attempts[at] = failure.attempts if failure else 0
            self._texts[at] = held.reason or (failure.reason if failure else "")

    def _index(self, sequence: int) -> int:
        return min(max(sequence - self.start, 0), self.stop - self.start)
