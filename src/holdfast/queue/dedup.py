"""Deduplication ids: exact within the window. If the limit of ids shortens the window, that is reported."""

import logging
from collections import OrderedDict
from itertools import islice
from struct import Struct

from holdfast.base.clock import NS, Clock
from holdfast.queue.state_keys import after, number, number_of
from holdfast.state import State, Transaction

__all__ = ["Dedup", "Timeline"]

logger = logging.getLogger("holdfast.queue")

MEMORY_MAX = 65_536
"""Entries in memory; after a checkpoint older ones are only in the state."""
_SLIGHTLY_NS = 10 * NS
"""A wall clock that is set back by less than this was only corrected, and not ahead before."""
_FAMILY = "dedup"
_VALUE = Struct("<Qq")


class Timeline:
    """The clock for the dedup window of one queue, from its opening to its end in this process.

    It begins with the wall clock and advances with the monotonic clock; over restarts, with the wall clock.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall_ns = self._began_ns = clock.time_ns()
        self._began_at = clock.monotonic()
        self.has_begun = False
        """Whether the queue was loaded: from then on `resume` has no effect."""

    def present(self) -> int:
        """Return the present time of the timeline."""
        return self._began_ns + int((self._clock.monotonic() - self._began_at) * NS)

    def wall(self) -> int:
        """Return the present time of the wall clock."""
        return self._clock.time_ns()

    def resume(self, present: int, wall: int) -> None:
        """Continue from an earlier opening, which ended at `present` when the wall clock was at `wall`.

        If the wall clock was set back since then, it was ahead before, and its present time is used.
        """
        if not self.has_begun:
            passed = self._wall_ns - wall
            self._began_ns = max(present, self._wall_ns) if passed < -_SLIGHTLY_NS else present + max(0, passed)


class Dedup:
    """The dedup ids of recent messages: the message and the time of each id. Used with the queue's lock held.

    In the state: `prefix i id` -> sequence and time, and `prefix t sequence` -> id, to find old ones. Invariant: an id
    whose message is not below `_low` and whose time is within the window is known.

    Times are those of the queue's timeline: setting the wall clock moves neither end of a window. (The times of records
    cannot be used: they never go back, so a clock that was ahead once leaves them ahead.)
    """

    def __init__(
        self, state: State, prefix: bytes, window: int, limit: int, queue: str = "", timeline: Timeline | None = None
    ) -> None:
        """Make an empty set; without a timeline, callers pass times of one."""
        self._queue = queue
        self._timeline = timeline
        self._restored = self._restored_ns = 0
        """Ids of messages below this sequence were saved before this moment, by an earlier checkpoint."""
        self.put_at: dict[int, int] = {}
        """By sequence: the time, on the timeline, of puts of this process that `note` has not seen yet."""
        self.scanned = 0
        """Ids of messages below this sequence were added."""
        self.count = 0
        """How many ids are known: at most `limit`."""
        self.shortened_to: int | None = None
        """The length of the window in nanoseconds if the limit has made it shorter than configured."""
        self.shortened_at = 0
        self._state = state
        self._by_id = prefix + b"i"
        self._by_sequence = prefix + b"t"
        self._window = window
        self._limit = limit
        self._recent: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        self._void: dict[bytes, list[int]] = {}
        """Ids in the state whose messages were lost in a crash: deleted by the next checkpoint."""
        self._low = 0
        self._low_saved = 0
        self._saved = 0
        """Messages below this sequence have their ids in the state."""

    def find(self, key: bytes, now: int) -> int | None:
        """Return the sequence of the message that had this id within the window; `now` is of the timeline."""
        known = self._recent.get(key)
        if (
            known is None
            and key not in self._void
            and self._saved > self._low
            and (raw := self._state.get(_FAMILY, self._by_id + key))
        ):
            known = self._unpack(raw)
        if known is None or known[0] < self._low or known[1] + self._window <= now:
            return None
        return known[0]

    def note(self, key: bytes, sequence: int, time: int, now: int) -> None:
        """Add the id of a message in the log; `time` is the record's."""
        put_at = self.put_at.pop(sequence, None)
        if put_at is not None:
            time = put_at
            if not self._window:
                return
        else:
            now = self.present(now)
            if self._timeline is not None:  # its age by the wall clock; a time in the future counts as now
                time = now - max(0, self._timeline.wall() - time)
            if time + self._window <= now:
                return
        old = self._recent.pop(key, None)
        if old is None or old[0] < self._saved:  # otherwise it replaces one that no checkpoint has saved
            self.count += 1
        self._recent[key] = (sequence, time)
        if self.count > self._limit:
            self._shorten(self.present(now))

    def forget_from(self, sequence: int) -> None:
        """Remove the ids of messages from here on, which a crash lost."""
        self._restored = min(self._restored, sequence)
        self.scanned = min(self.scanned, sequence)
        dead: set[int] = set()
        if self._saved > sequence:
            for entry, key in self._state.scan(
                _FAMILY, number(self._by_sequence, max(sequence, self._low_saved)), after(self._by_sequence)
            ):
                self._void.setdefault(key, []).append(number_of(entry))
                dead.add(number_of(entry))
            self._saved = sequence
        for key in [key for key, known in self._recent.items() if known[0] >= sequence]:
            dead.add(self._recent.pop(key)[0])
        self.count -= sum(one >= self._low for one in dead)  # the others were dropped, and subtracted then
        self._low, self._low_saved = min(self._low, sequence), min(self._low_saved, sequence)

    @property
    def unsaved(self) -> int:
        """How many changes a checkpoint would write."""
        return sum(1 for _ in self._fresh())

    def save(self, batch: Transaction, now: int) -> dict[str, int | None]:
        """Add the changes to a checkpoint: put new ids, delete old ones. Return what `restore` needs."""
        for key, dead in self._void.items():
            batch.delete(_FAMILY, self._by_id + key)
            for sequence in dead:
                batch.delete(_FAMILY, number(self._by_sequence, sequence))
        for key, (sequence, time) in self._fresh():
            batch.put(_FAMILY, self._by_id + key, _VALUE.pack(sequence, time))
            batch.put(_FAMILY, number(self._by_sequence, sequence), key)
        self._expire(batch, self.present(now))
        # Without ids the time is not needed, and a queue that is only opened and closed writes nothing.
        timeline = self._timeline
        moment = {"present": timeline.present(), "wall": timeline.wall()} if self.count and timeline else {}
        return {
            **moment,
            "scanned": self.scanned,
            "window": self._window,
            "count": self.count,
            "low": self._low,
            "shortened_to": self.shortened_to,
            "shortened_at": self.shortened_at,
        }

    def saved(self) -> None:
        """Mark the changes as saved: the checkpoint is durable."""
        self._void.clear()
        self._saved = self.scanned
        self._low_saved = self._low
        while len(self._recent) > MEMORY_MAX or (self._recent and next(iter(self._recent.values()))[0] < self._low):
            self._recent.popitem(last=False)

    def restore(self, kept: dict[str, int | None]) -> None:
        """Restore what `save` returned."""
        self.scanned = self._saved = kept["scanned"] or 0
        self.count = kept["count"] or 0
        self._low = self._low_saved = kept["low"] or 0
        self.shortened_to = kept["shortened_to"]
        self.shortened_at = kept["shortened_at"] or 0
        present, wall = kept.get("present"), kept.get("wall")
        if self._timeline is not None and present is not None and wall is not None:  # else an older version saved it
            self._timeline.resume(present, wall)
        self._restored, self._restored_ns = self.scanned, self.present(0)

    def forget_times(self) -> None:
        """Drop the entries of `put_at` that are no longer needed, after the state was loaded."""
        self.put_at = {sequence: time for sequence, time in self.put_at.items() if sequence >= self.scanned}

    def times(self) -> dict[int, int]:
        """Return by sequence the time, on the timeline, of the puts whose ids are in memory."""
        return {**dict(self._recent.values()), **self.put_at}

    def clear(self) -> None:
        """Remove all ids from memory."""
        self._recent.clear()
        self.count = 0

    def window_at(self, now: int) -> int:
        """Return the time within which a duplicate is found, in nanoseconds."""
        now = self.present(now)
        if self.shortened_to is not None and now - self.shortened_at > self._window:
            self.shortened_to = None  # a whole window has passed without reaching the limit
        return self._window if self.shortened_to is None else min(self._window, self.shortened_to)

    def present(self, now: int) -> int:
        """Return the present time of the timeline; without one, the given time."""
        return now if self._timeline is None else self._timeline.present()

    def _unpack(self, raw: bytes) -> tuple[int, int]:
        """Decode a value of the state. An older version saved the time of the record, which may be in the future."""
        sequence, time = _VALUE.unpack(raw)
        is_old = sequence < self._restored and self._timeline is not None
        return sequence, min(time, self._restored_ns) if is_old else time

    def _fresh(self) -> "list[tuple[bytes, tuple[int, int]]]":
        found = []
        for key in reversed(self._recent):
            known = self._recent[key]
            if known[0] < self._saved:
                break
            found.append((key, known))
        return found

    def _expire(self, batch: Transaction, now: int) -> None:
        """Delete ids from the state whose window has ended, or that were dropped for the limit."""
        low = self._low
        gone = 0
        start, stop = number(self._by_sequence, self._low_saved), number(self._by_sequence, self._saved)
        for entry, key in self._state.scan(_FAMILY, start, stop):  # ids behind `stop` are void, and deleted by `save`
            sequence = number_of(entry)
            raw = self._state.get(_FAMILY, self._by_id + key)
            known = self._unpack(raw) if raw else None
            if sequence >= low and known and known[0] == sequence and known[1] + self._window > now:
                break
            batch.delete(_FAMILY, entry)
            if known and known[0] == sequence and self._recent.get(key, known)[0] == sequence:
                batch.delete(_FAMILY, self._by_id + key)
            gone += sequence >= self._low  # those below were subtracted when they were dropped
            self._low = max(self._low, sequence + 1)
        for key, (sequence, time) in self._recent.items():
            if time + self._window > now:
                break
            if sequence >= self._low:
                gone += 1
                self._low = sequence + 1
            batch.delete(_FAMILY, self._by_id + key)
            batch.delete(_FAMILY, number(self._by_sequence, sequence))
        self.count = max(0, self.count - gone)

    def _shorten(self, now: int) -> None:
        """Drop the oldest ids: the window becomes shorter, which is reported, and is still exact."""
        excess = max(self.count - self._limit, self._limit // 64)
        oldest: list[tuple[int, int]] = []
        if self._saved > self._low:
            start, stop = number(self._by_sequence, self._low), number(self._by_sequence, self._saved)
            for entry, key in islice(self._state.scan(_FAMILY, start, stop), excess):
                raw = self._state.get(_FAMILY, self._by_id + key)
                oldest.append((number_of(entry), self._unpack(raw)[1] if raw else 0))
        if len(oldest) < excess:
            known = {sequence for sequence, _ in oldest}
            memory = (value for value in self._recent.values() if value[0] >= self._low and value[0] not in known)
            oldest += islice(memory, excess - len(oldest))
        if len(oldest) < excess:  # there are no more: the saved count was wrong
            self.count = len(oldest)
            if self.count <= self._limit:
                return
        oldest.sort()
        oldest = oldest[:excess]
        self._low = oldest[-1][0] + 1
        self.count -= len(oldest)
        for key in [key for key, known in islice(self._recent.items(), 2 * excess) if known[0] < self._low]:
            del self._recent[key]
        window = max(0, now - max(time for _, time in oldest))
        if window >= self._window:
            return  # they were outside of the window, and only waited for a checkpoint to be deleted
        if self.shortened_to is None:
            logger.warning(
                "dedup window shortened, more ids than dedup_limit: queue=%s limit=%d window_s=%.1f",
                self._queue,
                self._limit,
                window / 1e9,
                extra={"queue": self._queue, "window_s": window / 1e9, "limit": self._limit},
            )
        self.shortened_to, self.shortened_at = window, now
