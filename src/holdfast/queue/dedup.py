"""Deduplication ids: exact within the window; where the limit of ids shortens the window, that is reported."""

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
"""Entries at hand in memory; a checkpoint leaves older ones to the state."""
_SLIGHTLY_NS = 10 * NS
"""A wall clock that is set back by less than this is corrected, and was not ahead before."""
_FAMILY = "dedup"
_VALUE = Struct("<Qq")


class Timeline:
    """The time by which one queue measures its window, from its opening to its end in this process.

    It begins with the wall clock and goes on with what elapses, also over restarts as far as the wall clock tells.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall_ns = self._began_ns = clock.time_ns()
        self._began_at = clock.monotonic()
        self.has_begun = False
        """Whether the queue was loaded: from then on only what elapses counts."""

    def present(self) -> int:
        """Now."""
        return self._began_ns + int((self._clock.monotonic() - self._began_at) * NS)

    def wall(self) -> int:
        """Now, by the wall clock."""
        return self._clock.time_ns()

    def resume(self, present: int, wall: int) -> None:
        """Go on from an earlier opening, which ended at `present` when the wall clock said `wall`.

        Where the wall clock was set back since, it was ahead then, and the present one counts.
        """
        if not self.has_begun:
            passed = self._wall_ns - wall
            self._began_ns = max(present, self._wall_ns) if passed < -_SLIGHTLY_NS else present + max(0, passed)


class Dedup:
    """The dedup ids of recent messages: which message had each of them, and when.

    In the state: `prefix i id` -> sequence and time, and `prefix t sequence` -> id, by which old ones are found.
    Invariant: an id whose message is not below `_low` and whose time is within the window is known.

    Times are those of the queue's timeline: a wall clock that is set ahead or back moves neither end of a window. (The
    times of records cannot serve for that: they never go back, so a clock that was ahead once leaves them ahead.)
    """

    def __init__(
        self, state: State, prefix: bytes, window: int, limit: int, queue: str = "", timeline: Timeline | None = None
    ) -> None:
        """Without a timeline, the times that are given are of one."""
        self._queue = queue
        self._timeline = timeline
        self._restored = self._restored_ns = 0
        """Ids of messages below this sequence were kept before this moment, by an earlier checkpoint."""
        self.put_at: dict[int, int] = {}
        """By sequence: when, on the timeline, messages with an id were put here that `note` has not met yet."""
        self.scanned = 0
        """Ids of messages below this sequence were taken in."""
        self.count = 0
        """How many ids are known: at most `limit`."""
        self.shortened_to: int | None = None
        """The length of the window in nanoseconds where the limit has made it shorter than asked for."""
        self.shortened_at = 0
        self._state = state
        self._by_id = prefix + b"i"
        self._by_sequence = prefix + b"t"
        self._window = window
        self._limit = limit
        self._recent: OrderedDict[bytes, tuple[int, int]] = OrderedDict()
        self._void: dict[bytes, list[int]] = {}
        """Ids in the state whose messages died with a crash: gone with the next checkpoint."""
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
        """Note that the log has a message with this id, and its time there."""
        put_at = self.put_at.pop(sequence, None)
        if put_at is not None:
            time = put_at
            if not self._window:
                return
        else:
            now = self.present(now)
            if self._timeline is not None:  # its age by the present clock; what is in the future is new to us
                time = now - max(0, self._timeline.wall() - time)
            if time + self._window <= now:
                return
        old = self._recent.pop(key, None)
        if old is None or old[0] < self._saved:  # else it takes the place of one that no checkpoint has seen
            self.count += 1
        self._recent[key] = (sequence, time)
        if self.count > self._limit:
            self._shorten(self.present(now))

    def forget_from(self, sequence: int) -> None:
        """Forget the ids of messages from here on, which a crash lost."""
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
        self.count -= sum(one >= self._low for one in dead)  # the others were given up, and counted then
        self._low, self._low_saved = min(self._low, sequence), min(self._low_saved, sequence)

    @property
    def unsaved(self) -> int:
        """Return how many changes a checkpoint would write."""
        return sum(1 for _ in self._fresh())

    def save(self, batch: Transaction, now: int) -> dict[str, int | None]:
        """Add the changes to a checkpoint: new ids in, old ids out."""
        for key, dead in self._void.items():
            batch.delete(_FAMILY, self._by_id + key)
            for sequence in dead:
                batch.delete(_FAMILY, number(self._by_sequence, sequence))
        for key, (sequence, time) in self._fresh():
            batch.put(_FAMILY, self._by_id + key, _VALUE.pack(sequence, time))
            batch.put(_FAMILY, number(self._by_sequence, sequence), key)
        self._expire(batch, self.present(now))
        # Where there is no id there is nothing to measure, and a queue that is only opened and closed writes nothing.
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
        """Note that the checkpoint is durable."""
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
        if self._timeline is not None and present is not None and wall is not None:  # else an older version kept it
            self._timeline.resume(present, wall)
        self._restored, self._restored_ns = self.scanned, self.present(0)

    def forget_times(self) -> None:
        """The state was loaded: of messages that were met, `put_at` is no longer needed."""
        self.put_at = {sequence: time for sequence, time in self.put_at.items() if sequence >= self.scanned}

    def times(self) -> dict[int, int]:
        """By sequence: when, on the timeline, the messages were put whose ids are in memory."""
        return {**dict(self._recent.values()), **self.put_at}

    def clear(self) -> None:
        """Forget all ids in memory."""
        self._recent.clear()
        self.count = 0

    def window_at(self, now: int) -> int:
        """Return how far back a duplicate is found, in nanoseconds."""
        now = self.present(now)
        if self.shortened_to is not None and now - self.shortened_at > self._window:
            self.shortened_to = None  # a whole window has passed without the limit being met
        return self._window if self.shortened_to is None else min(self._window, self.shortened_to)

    def present(self, now: int) -> int:
        """Now, on the timeline; without one, what is given."""
        return now if self._timeline is None else self._timeline.present()

    def _unpack(self, raw: bytes) -> tuple[int, int]:
        """A value of the state. What an older version kept is the time of the record, which may be in the future."""
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
        for entry, key in self._state.scan(_FAMILY, start, stop):  # what is behind is void, and gone already
            sequence = number_of(entry)
            raw = self._state.get(_FAMILY, self._by_id + key)
            known = self._unpack(raw) if raw else None
            if sequence >= low and known and known[0] == sequence and known[1] + self._window > now:
                break
            batch.delete(_FAMILY, entry)
            if known and known[0] == sequence and self._recent.get(key, known)[0] == sequence:
                batch.delete(_FAMILY, self._by_id + key)
            gone += sequence >= self._low  # those given up were counted then
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
        """Drop the oldest ids: the window becomes shorter, which is reported, and stays exact within what is left."""
        give_up = max(self.count - self._limit, self._limit // 64)
        oldest: list[tuple[int, int]] = []
        if self._saved > self._low:
            start, stop = number(self._by_sequence, self._low), number(self._by_sequence, self._saved)
            for entry, key in islice(self._state.scan(_FAMILY, start, stop), give_up):
                raw = self._state.get(_FAMILY, self._by_id + key)
                oldest.append((number_of(entry), self._unpack(raw)[1] if raw else 0))
        if len(oldest) < give_up:
            known = {sequence for sequence, _ in oldest}
            memory = (value for value in self._recent.values() if value[0] >= self._low and value[0] not in known)
            oldest += islice(memory, give_up - len(oldest))
        if len(oldest) < give_up:  # that was all there is: the count that was kept was wrong
            self.count = len(oldest)
            if self.count <= self._limit:
                return
        oldest.sort()
        oldest = oldest[:give_up]
        self._low = oldest[-1][0] + 1
        self.count -= len(oldest)
        for key in [key for key, known in islice(self._recent.items(), 2 * give_up) if known[0] < self._low]:
            del self._recent[key]
        window = max(0, now - max(time for _, time in oldest))
        if window >= self._window:
            return  # they were over anyway, and only waited for a checkpoint to go
        if self.shortened_to is None:
            logger.warning(
                "%s has more ids than the dedup limit of %d: the window is now %.1f s",
                self._queue,
                self._limit,
                window / 1e9,
                extra={"queue": self._queue, "window_s": window / 1e9, "limit": self._limit},
            )
        self.shortened_to, self.shortened_at = window, now
