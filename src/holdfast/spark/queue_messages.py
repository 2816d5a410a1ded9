"""The `messages` view of a queue: the records of its log, each with the state that the message had at one moment."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.spark.log_rows import RecordSpan, byte_strings, content, numbers, times
from holdfast.spark.message_states import STATES, Journal, MessageStates
from holdfast.spark.partitions import DataLoss
from holdfast.spark.queue_events import moments, nullable, own_records, portions, sequences, texts_of
from holdfast.spark.queue_moment import QueueMoment
from holdfast.spark.schemas import MESSAGES, arrow_schema

__all__ = ["MESSAGES_MAX", "MessageRange", "MessageRows"]

MESSAGES_MAX = 1 << 22
"""The most messages of one task: it has up to 50 bytes for each in memory, and the texts of their reasons."""
_OF_STATE = frozenset(("state", "attempts", "reason", "due", "lease", "expires"))

Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class MessageRange:
    """The messages of one task, and what it needs to find their states: a few bytes for each segment of the journal."""

    queue: str
    start: int
    stop: int
    moment: QueueMoment
    is_first: bool
    """Whether this task reports damage of the journal, which every task of the queue reads."""


class MessageRows:
    """Turns a queue's log into a row for each message, with its state from the queue's journal."""

    def __init__(self, columns: list[str], messages: MessageRange, keys: frozenset[bytes] | None = None) -> None:
        self.columns = columns
        self.messages = messages
        self.keys = keys
        """Only messages with one of these keys are wanted; None: all."""
        self.schema = arrow_schema(MESSAGES, columns)
        self._journal: Journal | None = None
        self._fail_on_data_loss = True

    def use(self, journal: Journal, *, fail_on_data_loss: bool) -> None:
        """Read the states from this journal. Called in the task, before `gather`."""
        self._journal = journal
        self._fail_on_data_loss = fail_on_data_loss

    def gather(self, pieces: Iterable[RecordSpan]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all these records; many small blocks become few batches."""
        states = self._states()
        for portion in portions(self._within(pieces)):
            own = own_records(portion, self.messages.queue)
            if self.keys is not None:
                own &= _having(portion, self.keys)
            if own.any():
                yield self._batch(portion, states, None if own.all() else own)

    def _states(self) -> MessageStates | None:
        """Read the whole journal, which takes most of the time; not if no column needs it."""
        if _OF_STATE.isdisjoint(self.columns):
            return None
        assert self._journal is not None, "use() was not called"
        moment = self.messages.moment
        states = MessageStates(self.messages.start, self.messages.stop, moment.known_from)
        states.follow(self._journal, moment.journal_start, moment.journal_end)
        if moment.journal_start > 0 and not states.has_snapshot and self._fail_on_data_loss:
            raise DataLoss(
                f"the beginning of the journal of the queue {self.messages.queue!r} is missing: restore its files from "
                "a backup; to read messages without later events as ready, use the option failOnDataLoss=false"
            )
        return states

    def _within(self, pieces: Iterable[RecordSpan]) -> Iterator[RecordSpan]:
        for block, start, stop in pieces:
            first, end = self.messages.start - block.sequence, self.messages.stop - block.sequence
            yield block, max(start, first), min(stop, end)

    def _batch(self, pieces: list[RecordSpan], states: MessageStates | None, own: Numbers | None) -> pa.RecordBatch:
        messages = sequences(pieces)
        dues = numbers("due", pieces) if any(block.has("due") for block, _, _ in pieces) else None
        mask = None
        if own is not None:
            messages, mask = messages[own], pa.array(own)
            dues = None if dues is None else dues[own]
        known = {} if states is None else states.at(messages, dues, self.messages.moment.now)
        arrays = []
        for name in self.columns:
            match name:
                case "queue":
                    array = pa.repeat(pa.scalar(self.messages.queue, pa.string()), len(messages))
                case "message":
                    array = pa.array(messages)
                case "state":
                    array = texts_of(STATES, known[name])
                case "attempts" | "lease":
                    array = nullable(known[name])
                case "reason":
                    assert states is not None
                    array = states.reasons(known[name])
                case "due" | "expires":
                    array = moments(known[name])
                case _:
                    array = _of_records(name, pieces)
                    array = array if mask is None else array.filter(mask)
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _having(pieces: list[RecordSpan], keys: frozenset[bytes]) -> Numbers:
    """Return which of these records have one of the keys."""
    wanted = pa.array(sorted(keys), pa.binary())
    fits = [pc.is_in(byte_strings("key", *piece), value_set=wanted) for piece in pieces]
    return np.concatenate([each.to_numpy(zero_copy_only=False) for each in fits])


def _of_records(name: str, pieces: list[RecordSpan]) -> pa.Array:
    """Return a column of the log itself."""
    match name:
        case "priority":
            return pa.array(numbers("priority", pieces).astype(np.int32))
        case "time":
            return moments(np.concatenate([times(*piece) for piece in pieces]))
        case _:
            return content(name, pieces)
