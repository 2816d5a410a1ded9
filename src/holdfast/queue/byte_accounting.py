"""Payload-byte accounting for queues with max_bytes."""

from array import array
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

__all__ = ["PayloadSizes"]


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
