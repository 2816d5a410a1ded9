"""Failed deliveries of messages, with counts and reasons; beyond a memory limit they are kept in the state only."""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from holdfast.queue.ranges import Ranges
from holdfast.queue.state_keys import after, number, number_of
from holdfast.state import State, Transaction

__all__ = ["AttemptLog", "Failure", "failure_of"]

MEMORY_MAX = 16_384
_FAMILY = "attempts"
_VALUE = Struct("<Iqq")


class Failure(NamedTuple):
    """Number and cause of a message's failed deliveries."""

    attempts: int
    first: int
    last: int
    reason: str


class AttemptLog:
    """Failures by sequence. The sequences with failures are always in memory, as ranges."""

    def __init__(self, state: State, prefix: bytes) -> None:
        self._state = state
        self._prefix = prefix
        self._index = Ranges()
        self._known: dict[int, Failure] = {}
        self._changed: set[int] = set()

    def __len__(self) -> int:
        return self._index.count

    def __iter__(self) -> Iterator[tuple[int, Failure]]:
        """Yield all failures, by sequence."""
        for start, stop in self._index:
            for sequence in range(start, stop):
                if (failure := self.get(sequence)) is not None:
                    yield sequence, failure

    def spans(self) -> list[tuple[int, int]]:
        """Return the messages that have failed, as ranges."""
        return list(self._index)

    def get(self, sequence: int) -> Failure | None:
        """Return the failure of a message; None if it never failed."""
        known = self._known.get(sequence)
        if known is None and sequence in self._index:
            raw = self._state.get(_FAMILY, number(self._prefix, sequence))
            if raw is not None:
                known = failure_of(raw)
        return known

    def set(self, sequence: int, failure: Failure) -> None:
        """Record a failure."""
        self._index.add(sequence, sequence + 1)
        self._known[sequence] = failure
        self._changed.add(sequence)

    def forget(self, start: int, stop: int) -> None:
        """Remove the failures of messages that left the queue."""
        if not self._index.count:
            return
        for first, end in self._index.within(start, stop):
            for sequence in range(first, end):
                self._known.pop(sequence, None)
                self._changed.add(sequence)
        self._index.remove(start, stop)

    def forget_from(self, sequence: int) -> None:
        """Remove the failures of all messages from here on."""
        if self._index and self._index.last >= sequence:
            self.forget(sequence, self._index.last + 1)

    @property
    def unsaved(self) -> int:
        """How many changes a checkpoint would write."""
        return len(self._changed)

    def save(self, batch: Transaction) -> None:
        """Add the changes to a checkpoint. Then call `saved`."""
        for sequence in self._changed:
            failure = self._known.get(sequence)
            if failure is None:
                batch.delete(_FAMILY, number(self._prefix, sequence))
            else:
                raw = _VALUE.pack(*failure[:3]) + failure.reason.encode("utf-8", "surrogatepass")
                batch.put(_FAMILY, number(self._prefix, sequence), raw)

    def saved(self) -> None:
        """Mark the changes as saved: the checkpoint is durable, and memory may be released."""
        self._changed.clear()
        if len(self._known) > MEMORY_MAX:
            self._known.clear()

    def restore(self) -> None:
        """Restore the sequences from the state."""
        for key, _ in self._state.scan(_FAMILY, self._prefix, after(self._prefix)):
            sequence = number_of(key)
            self._index.add(sequence, sequence + 1)


def failure_of(raw: bytes) -> Failure:
    """Return the failure of a row of the state."""
    attempts, first, last = _VALUE.unpack_from(raw)
    return Failure(attempts, first, last, raw[_VALUE.size :].decode("utf-8", "surrogatepass"))
