"""Delayed messages by due time: the next ones in memory, any number of others in the state."""

import heapq
import logging
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice
from struct import Struct
from typing import Any

from holdfast.queue.byte_accounting import PayloadSizes
from holdfast.queue.state_keys import after
from holdfast.state import State, Transaction

__all__ = ["Delayed", "Entry", "WeighedDelayed", "entry_of"]

logger = logging.getLogger("holdfast.queue")

NEAR_MAX = 32_768
"""Entries in memory; if there are more, a checkpoint keeps the later ones only in the state."""
NEAR_KEEP = 4_096
"""Entries fetched from the state at a time."""
BUCKET_BITS = 12
_FAMILY = "visibility_index"
_KEY = Struct(">QQ")
_DUE = Struct(">Q")
Entry = tuple[int, int, int]
"""Due time, sequence, priority; entries become due in this order."""


class Delayed:
    """Messages that are not delivered before their due time. Used with the queue's lock held.

    Invariant: `_near` holds every entry below `_horizon`; the others are in the state, or in `_far` until the next
    checkpoint. Everything up to `_fired` has become due, and later entries are never added before it.
    """

    def __init__(
        self, state: State, prefix: bytes, elsewhere: Callable[[list[int]], set[int]] = lambda sequences: set()
    ) -> None:
        """Make an empty set; `elsewhere` returns which messages cannot be delayed, even if the state has them."""
        self.count = 0
        self.orphans = 0
        """Entries of the state that were wrong, and are deleted by the next checkpoint."""
        self._state = state
        self._elsewhere = elsewhere
        self._prefix = prefix
        self._near: list[Entry] = []
        self._far: list[Entry] = []
        self._fresh: dict[tuple[int, int], int] = {}
        """Entries that were added since the last checkpoint."""
        self._horizon: tuple[int, int] | None = None
        """None: all entries are in memory."""
        self._fired = (0, 0)
        self._fired_saved = (0, 0)
        self._dropped: list[Entry] = []
        self._cleared = False
        """Whether all entries in the state are void: the next checkpoint deletes them."""
        self._buckets: Counter[int] = Counter()

    def add(self, due: int, sequence: int, priority: int) -> None:
        """Delay a message until `due`."""
        entry = (max(due, self._fired[0] + 1), sequence, priority)  # after `_fired`, if the clock was set back
        self.count += 1
        self._buckets[sequence >> BUCKET_BITS] += 1
        self._fresh[entry[:2]] = priority
        if self._horizon is None or entry[:2] < self._horizon:
            heapq.heappush(self._near, entry)
        else:
            self._far.append(entry)

    @property
    def next_due(self) -> int | None:
        """Return the earliest due time; None if there is none."""
        while not self._near and self.count:
            self._fetch()
        return self._near[0][0] if self._near else None

    def fire(self, now: int) -> list[Entry]:
        """Remove and return the messages that are due."""
        fired: list[Entry] = []
        while (due := self.next_due) is not None and due <= now:
            near = self._near
            if near[len(near) // 2][0] <= now:  # many are due: sorting is cheaper than popping each
                near.sort()
                cut = next((at for at, entry in enumerate(near) if entry[0] > now), len(near))
                batch, self._near = near[:cut], near[cut:]
            else:
                batch = [heapq.heappop(near)]
            fired += batch
            self._fired = batch[-1][:2]
            self.count -= len(batch)
            for entry in batch:
                self._leave(entry[1])
        return fired

    def take_first(self, count: int) -> list[Entry]:
        """Remove and return the next messages before they are due."""
        taken: list[Entry] = []
        while len(taken) < count and self.next_due is not None:
            entry = heapq.heappop(self._near)
            self._fresh.pop(entry[:2], None)
            self._leave(entry[1])
            self.count -= 1
            taken.append(entry)
        self._dropped += taken
        return taken

    def drop(self, start: int, stop: int) -> int:
        """Remove messages by sequence; return how many there were. Reads everything: for rare cases."""
        found = self.find([(start, stop)], self.count)
        self.leave_out(found)
        return len(found)

    def find(self, spans: list[tuple[int, int]], most: int, hints: Iterable[tuple[int, int]] = ()) -> list[Entry]:
        """Return messages by sequence, in ascending spans, at most so many.

        Those with the due time of a hint (due time, sequence) are found at once. For the others it reads by due time
        until it has them all, which takes a second for a million.
        """
        starts = [start for start, _ in spans]
        gone = set(self._dropped) if hints else set()
        found = {entry for hint in hints if (entry := self._at(*hint)) is not None and entry not in gone}
        for entry in self if len(found) < most else ():
            at = bisect_right(starts, entry[1]) - 1
            if at >= 0 and entry[1] < spans[at][1]:
                found.add(entry)
                if len(found) >= most:
                    break
        return sorted(found)

    def _at(self, due: int, sequence: int) -> Entry | None:
        """Return the message with this due time and sequence, which may have been dropped."""
        if (due, sequence) <= self._fired:
            return None
        priority = self._fresh.get((due, sequence))
        if priority is None and not self._cleared and (value := self._state.get(_FAMILY, self._key(due, sequence))):
            priority = value[0]
        return None if priority is None else (due, sequence, priority)

    def leave_out(self, entries: list[Entry]) -> None:
        """Remove entries that `find` returned."""
        if not entries:
            return
        gone = set(entries)
        self._near = [entry for entry in self._near if entry not in gone]
        heapq.heapify(self._near)
        self._far = [entry for entry in self._far if entry not in gone]
        for due, sequence, _ in entries:
            self._fresh.pop((due, sequence), None)
        self._dropped += entries
        self.count -= len(entries)
        for entry in entries:
            self._leave(entry[1])

    def may_have(self, sequence: int) -> bool:
        """Return False if a message is certainly not delayed, True if one of the 4096 around it is."""
        return sequence >> BUCKET_BITS in self._buckets

    def count_before(self, sequence: int) -> int:
        """Return how many messages are below this sequence; up to 4095 too many if not all are in memory."""
        if self.in_memory:
            return sum(entry[1] < sequence for entry in self._near) + sum(entry[1] < sequence for entry in self._far)
        return sum(count for bucket, count in self._buckets.items() if bucket << BUCKET_BITS < sequence)

    def soonest(self, count: int) -> list[Entry]:
        """Return the next messages to become due, without removing them."""
        if self.next_due is not None and len(self._near) >= count:
            return heapq.nsmallest(count, self._near)
        return list(islice(self, count))

    def dues(self) -> Iterator[bytes]:
        """Return the due times as 8 bytes each: first of those in memory, in any order, then of the others, ascending.

        A snapshot at the moment of the call, so that it may be read without the queue's lock.
        """
        memory = [_DUE.pack(entry[0]) for entry in (*self._near, *self._far)]
        if self._horizon is None:
            return iter(memory)
        first, last = len(self._prefix), len(self._prefix) + _DUE.size
        start = max(self._horizon, (self._fired[0], self._fired[1] + 1))
        stored = self._state.scan(_FAMILY, self._key(*start), after(self._prefix))
        gone = {self._key(due, sequence) for due, sequence, _ in self._dropped}
        return chain(memory, (key[first:last] for key, _ in stored if not gone or key not in gone))

    def clear(self) -> None:
        """Remove all."""
        self._near, self._far, self._fresh, self._dropped, self.count, self._horizon = [], [], {}, [], 0, None
        self._cleared = True
        self._buckets.clear()

    def __iter__(self) -> Iterator[Entry]:
        """Return all entries, by due time."""
        memory = sorted([*self._near, *self._far])
        if self._horizon is None:
            return iter(memory)
        gone = set(self._dropped)
        beyond = (entry for entry in self._saved(self._horizon) if entry not in gone)
        return heapq.merge(memory, beyond)

    @property
    def in_memory(self) -> bool:
        """Whether all entries are in memory."""
        return self._horizon is None

    def floor(self) -> int | None:
        """Return a sequence below which there is no message, rounded down to a bucket; None without messages."""
        return min(self._buckets) << BUCKET_BITS if self._buckets else None

    @property
    def unsaved(self) -> int:
        """How many changes a checkpoint would write."""
        return len(self._fresh) + len(self._dropped) + self._cleared

    def save(self, batch: Transaction) -> dict[str, object]:
        """Add the changes to a checkpoint, and return what `restore` needs. Then call `saved`."""
        if self._cleared:
            batch.delete_range(_FAMILY, self._prefix, after(self._prefix))
        for due, sequence, _ in self._dropped:
            batch.delete(_FAMILY, self._key(due, sequence))
        if self._fired > self._fired_saved:
            stop = (self._fired[0], self._fired[1] + 1)
            batch.delete_range(_FAMILY, self._key(*self._fired_saved), self._key(*stop))
        fired = self._fired
        put, prefix, pack = batch.put, self._prefix, _KEY.pack
        for (due, sequence), priority in self._fresh.items():
            if (due, sequence) > fired:
                put(_FAMILY, prefix + pack(due, sequence), bytes((priority,)))
        return {"fired": list(self._fired), "count": self.count, "buckets": list(self._buckets.items())}

    def saved(self) -> None:
        """Mark the changes as saved: the state has everything, and memory may be released."""
        self._fresh, self._far, self._dropped, self._cleared = {}, [], [], False
        self._fired_saved = self._fired
        if len(self._near) > NEAR_MAX:
            self._near.sort()
            self._horizon = self._near[NEAR_KEEP][:2]
            del self._near[NEAR_KEEP:]

    def restore(self, kept: dict[str, Any]) -> None:
        """Restore what `save` returned; the entries are fetched on demand."""
        due, sequence = kept["fired"]
        self._fired = self._fired_saved = (int(due), int(sequence))
        self.count = int(kept["count"])
        self._buckets = Counter(dict(kept["buckets"]))
        self._horizon = (0, 0)
        if not self.count:  # entries in the state, of which there are mostly none, are orphans
            self._disown(list(self._saved(self._horizon)))
            self._horizon = None

    def _leave(self, sequence: int) -> None:
        bucket = sequence >> BUCKET_BITS
        self._buckets[bucket] -= 1
        if self._buckets[bucket] <= 0:
            del self._buckets[bucket]

    def _fetch(self) -> None:
        """Read the next entries from the state into memory."""
        gone = set(self._dropped)
        waiting = (entry for entry in self._saved(self._horizon or (0, 0)) if entry not in gone)
        found = list(islice(waiting, NEAR_KEEP + 1))
        self._horizon = found.pop()[:2] if len(found) > NEAR_KEEP else None
        horizon = self._horizon
        if wrong := self._elsewhere([sequence for _, sequence, _ in found]):
            self._disown([entry for entry in found if entry[1] in wrong])
            found = [entry for entry in found if entry[1] not in wrong]
        near = [*found, *(entry for entry in self._far if horizon is None or entry[:2] < horizon)]
        self._far = [entry for entry in self._far if horizon is not None and entry[:2] >= horizon]
        last = {sequence: (due, sequence, priority) for due, sequence, priority in sorted(near)}
        if len(last) < len(near):  # one message twice: the later one is used, so that it is never early
            self._disown([entry for entry in near if last[entry[1]] != entry])
            near = list(last.values())
        heapq.heapify(near)
        self._near = near
        if horizon is None:  # all entries are in memory: the saved counts may have been wrong
            self.count = len(near)
            self._buckets = Counter(sequence >> BUCKET_BITS for _, sequence, _ in near)

    def _disown(self, entries: list[Entry]) -> None:
        if entries:
            self.orphans += len(entries)
            self._dropped += entries
            logger.warning(
                "dangling state entries repaired: family=%s count=%d entries=%s", _FAMILY, len(entries), entries[:10]
            )

    def _saved(self, start: tuple[int, int]) -> Iterator[Entry]:
        if self._cleared:
            return
        start = max(start, (self._fired[0], self._fired[1] + 1))
        size = len(self._prefix)
        for key, value in self._state.scan(_FAMILY, self._key(*start), after(self._prefix)):
            yield entry_of(key[size:], value)

    def _key(self, due: int, sequence: int) -> bytes:
        return self._prefix + _KEY.pack(due, sequence)


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


def entry_of(key: bytes, value: bytes) -> Entry:
    """Return the delayed message of a row of the state, whose key is given without the queue's prefix."""
    due, sequence = _KEY.unpack(key)
    return due, sequence, value[0]
