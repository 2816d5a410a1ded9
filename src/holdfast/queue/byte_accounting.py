"""Payload-byte accounting for queues with max_bytes."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import accumulate

from holdfast.queue.delayed import Delayed, Entry
from holdfast.queue.ranges import Ranges
from holdfast.state import State

__all__ = ["PayloadSizes", "SizedRanges", "WeighedDelayed"]


class PayloadSizes:
    """The payload bytes of each message that may wait. Uses 8 bytes a message, and only if bytes are limited.

    Stored as sums from `base` on, so that the size of any range is found in one step. Unknown messages count 0.
    """

    def __init__(self) -> None:
        self.base = 0
        self._sums = array("Q", [0])
        """At `i` the bytes of all messages before `base + i`, counted from an arbitrary start."""

    def begin(self, sequence: int) -> None:
        """Remove all; the next message is this one."""
        self.base = sequence
        self._sums = array("Q", [0])

    def take(self, first: int, sizes: Sequence[int]) -> None:
        """Add the sizes of new messages. Sizes known from `first` on are replaced; missing ones before it count 0."""
        if first < self.base or len(self._sums) == 1:
            self.begin(first)
        self.cut(first)
        sums = self._sums
        if (missing := first - self.base - len(sums) + 1) > 0:
            sums.extend([sums[-1]] * missing)
        sums.extend(list(accumulate(sizes, initial=sums[-1]))[1:])

    def cut(self, end: int) -> None:
        """Remove the messages from here on."""
        del self._sums[max(1, end - self.base + 1) :]

    def forget_before(self, sequence: int) -> None:
        """Remove the messages below this one, which are no longer needed."""
        gone = min(sequence - self.base, len(self._sums) - 1)
        if gone > 0:
            del self._sums[:gone]  # only differences count
            self.base += gone

    def between(self, start: int, stop: int) -> int:
        """Return the bytes of these messages."""
        sums, base = self._sums, self.base
        last = len(sums) - 1
        return sums[min(max(stop - base, 0), last)] - sums[min(max(start - base, 0), last)]

    def reach(self, start: int, stop: int, wanted: int) -> int:
        """Return the first end at which the messages from `start` on have so many bytes; at most `stop`."""
        sums, base = self._sums, self.base
        low = min(max(start - base, 0), len(sums) - 1)
        return min(stop, base + bisect_left(sums, sums[low] + wanted, low))


class SizedRanges(Ranges):
    """An ordered set of sequences that counts their payload bytes."""

    __slots__ = ("bytes", "weights")

    def __init__(self, load: Callable[[int], bytes] | None, weights: PayloadSizes) -> None:
        super().__init__(load)
        self.weights = weights
        self.bytes = 0

    def add(self, start: int, stop: int) -> None:
        """As `Ranges.add`, which first calls `remove` for sequences that are in the set already."""
        if start < stop:
            self.bytes += self.weights.between(start, stop)
            super().add(start, stop)

    def extend(self, starts: list[int], stops: list[int]) -> None:
        """As `Ranges.extend`."""
        if not self.count or starts[0] > self.last + 1:  # otherwise `add` is called for each
            self.bytes += sum(map(self.weights.between, starts, stops))
        super().extend(starts, stops)

    def remove(self, start: int, stop: int) -> int:
        """As `Ranges.remove`."""
        self.bytes -= sum(self.weights.between(*span) for span in self.within(start, stop))
        return super().remove(start, stop)

    def take_front(self, start: int, stop: int) -> None:
        """As `Ranges.take_front`."""
        self.remove(start, stop)

    def clear(self) -> None:
        """As `Ranges.clear`."""
        self.bytes = 0
        super().clear()

    def weigh(self) -> None:
        """Count the bytes again: the set was restored before the sizes were known."""
        self.bytes = sum(self.weights.between(*span) for span in self)


class WeighedDelayed(Delayed):
    """Delayed messages that count their payload bytes."""

    def __init__(
        self, state: State, prefix: bytes, elsewhere: Callable[[list[int]], set[int]], weights: PayloadSizes
    ) -> None:
        super().__init__(state, prefix, elsewhere)
        self.weights = weights
        self.bytes = 0

    def add(self, due: int, sequence: int, priority: int) -> None:
        """As `Delayed.add`."""
        self.bytes += self.weights.between(sequence, sequence + 1)
        super().add(due, sequence, priority)

    def clear(self) -> None:
        """As `Delayed.clear`."""
        self.bytes = 0
        super().clear()

    def weigh(self) -> None:
        """Count the bytes again: the set was restored before the sizes were known. Reads everything."""
        self.bytes = self._weight(list(self))

    def _fetch(self) -> None:
        super()._fetch()
        if self.in_memory:  # the saved count may have been wrong, as in `Delayed`
            self.bytes = self._weight(self._near)

    def _leave(self, sequence: int) -> None:
        super()._leave(sequence)
        self.bytes -= self.weights.between(sequence, sequence + 1)

    def _weight(self, entries: list[Entry]) -> int:
        return sum(self.weights.between(sequence, sequence + 1) for _, sequence, _ in entries)
