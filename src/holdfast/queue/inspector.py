"""Administration of a queue: pausing, counts, leases, delays, seek previews, and discarding messages."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice
from sys import byteorder
from typing import NamedTuple

from holdfast.base.clock import Instant
from holdfast.base.errors import InvalidArgument
from holdfast.log.record import Headers
from holdfast.queue.events import Dropped, encode
from holdfast.queue.lease import NEVER
from holdfast.queue.messages import Delayed, PeekedMessage
from holdfast.queue.queue_state import TARGET_QUEUE_HEADER
from holdfast.queue.ranges import spans_of
from holdfast.queue.settlement import Settlement
from holdfast.queue.stats import Counts, LeaseInfo, Preview, Rates

__all__ = ["QueueInspector", "check_count", "check_position", "checked_ids"]

KEPT_PART = 20
"""A histogram that took a while is cached for so many times as long."""
_A_WHILE_S = 0.05
_AT_A_TIME = 1000
"""How many messages are searched for at a time with the lock held."""
Bucket = tuple[int, int, int]
"""The first moment of the bucket, the one after its last, and how many messages become due between them."""


class _Stored(NamedTuple):
    payload: bytes
    key: bytes | None
    headers: Headers
    time: int
    priority: int
    due: int
    """The time before which it is not delivered; 0: none."""
    expiry: int
    """The time after which it is not delivered; 0: none."""
    owner: str | None
    """The only queue that it is for; None: all queues of the log."""


class QueueInspector(Settlement):
    """The administrative part of a queue. Inspection reads bodies without the queue's lock."""

    _histogram: tuple[float, int, list[Bucket]] = (float("-inf"), 0, [])
    """The cached histogram: the end of its validity, the number of buckets, and the buckets."""

    # Pausing.

    @property
    def paused(self) -> bool:
        """Whether delivery is paused."""
        return self._is_paused() if self.read_only else self._paused

    def pause(self) -> None:
        """Deliver no messages from now on, also after a restart, until `resume`.

        Everything else continues: messages are put; leased ones are acked, returned or expire; dead letters are moved.
        Waiting callers continue to wait.
        """
        self._check_writable()
        with self._pausing:
            if not self._paused:
                self._set_paused(True)
                try:
                    self._keep_paused(True)
                except BaseException:
                    self._set_paused(False)
                    self._waiters.wake()
                    raise

    def resume(self) -> None:
        """Deliver messages again, first to the waiting callers."""
        self._check_writable()
        with self._pausing:
            if self._paused:
                self._keep_paused(False)
                self._set_paused(False)
        self._waiters.wake()

    def _set_paused(self, paused: bool) -> None:
        with self._lock, self._whole:
            self._paused = paused
            self._fast_path_allowed = self._fast_path_possible and not paused and self._closed is None
            self._fast_path = self._fast_path_allowed and not self._journal.broken

    # Inspecting.

    def counts(self) -> Counts:
        """Return how many messages are ready, delayed, leased and moving, in a few microseconds.

        Waits for no lock (except in a store that was opened read-only), and reads no bodies. If the queue is busy,
        messages put since the state was last brought up to date count as ready. Expired leases count as leased until
        another call returns their messages.
        """
        self._check_open()
        if self.read_only:
            self.waiting()
        else:
            held: list[bool] = []
            try:
                held.extend(map(self._lock.acquire, (False,)))  # taken and recorded by one call of C code
                if True in held:
                    with self._whole:
                        self._apply_new()
            finally:
                if True in held:
                    self._lock.release()
        queue_state = self.queue_state
        unseen = max(0, self.log.visible_end - queue_state.scanned)
        return Counts(
            queue_state.ready.count + unseen,
            queue_state.delayed.count,
            queue_state.leases.count,
            len(queue_state.moving),
        )

    def _apply_new(self) -> None:
        """As `_look`, but only the changes that need no event in the journal."""
        queue_state = self.queue_state
        if self._closed is not None or self._journal.broken:
            return
        if queue_state.scanned != self.log.visible_end:
            self._catch_up(self._now())
        if queue_state.delayed.count:
            now = self._now()
            if (due := queue_state.delayed.next_due) is not None and due <= now:
                queue_state.fire(now)
                self._waiters.wake()

    def rates(self) -> Rates:
        """Return messages per second over the last minute; as cheap as `counts`."""
        measures = self._measures
        return Rates(measures.put_rate.per_second(), measures.lease_rate.per_second(), measures.ack_rate.per_second())

    def waiting(self) -> int:
        """Return how many messages are ready or delayed."""
        with self._lock, self._whole:
            self._commit_later(self._look(self._now()))
            return self.queue_state.ready.count + self.queue_state.delayed.count

    def message(self, id: int) -> PeekedMessage | None:
        """Return a message by its id, in any state, even if acknowledged; None if the log no longer has it."""
        if isinstance(id, bool) or not isinstance(id, int):
            raise InvalidArgument(f"message needs the id of a message, not {id!r}")
        with self._lock, self._whole:
            self._commit_later(self._look(self._now()))
            failure = self.queue_state.failures.get(id) if id >= 0 else None
        for sequence, one in self._stored([id]):
            attempts = failure.attempts if failure is not None else 0
            return PeekedMessage(sequence, one.payload, one.key, one.headers, attempts, one.time, one.priority)
        return None

    def each_ready(self, start: int = 0) -> Iterator[PeekedMessage]:
        """Yield the ready messages from this id on, in the order of their ids.

        The lock is held only briefly, and never while a body is read. Messages that become ready meanwhile are left
        out; those that are leased meanwhile may be included.
        """
        self._check_open()
        stop = 0
        while True:
            with self._lock, self._whole:
                self._commit_later(self._look(self._now()))
                stop = stop or self.log.visible_end  # after `_look`: in a read-only store that moves the end
                ready = [sequence for sequence, _ in self.queue_state.ready.following(start, stop, _AT_A_TIME)]
                failures = {sequence: self.queue_state.failures.get(sequence) for sequence in ready}
            if not ready:
                return
            for sequence, one in self._stored(ready):
                attempts = failure.attempts if (failure := failures[sequence]) is not None else 0
                yield PeekedMessage(sequence, one.payload, one.key, one.headers, attempts, one.time, one.priority)
            start = ready[-1] + 1

    def leases(self, count: int | None = None) -> list[LeaseInfo]:
        """Return the live leases, oldest first."""
        if count is not None:
            check_count(count, "leases")
        with self._lock, self._whole:
            self._commit_later(self._look(self._now()))
            return [
                LeaseInfo(lease_id, tuple(sorted(lease.left)), lease_id, lease.expires)
                for lease_id, lease in islice(self.queue_state.leases.by_id.items(), count)
            ]

    def delayed(self, count: int = 200) -> list[Delayed]:
        """Return the delayed messages, the next due first."""
        check_count(count, "delayed")
        with self._lock, self._whole:
            self._commit_later(self._look(self._now()))
            entries = self.queue_state.delayed.soonest(count)
            failures = {sequence: self.queue_state.failures.get(sequence) for _, sequence, _ in entries}
        stored = dict(self._stored(sorted(failures)))
        return [
            Delayed(
                sequence,
                due,
                one.payload,
                one.key,
                one.headers,
                priority,
                failure.attempts if (failure := failures[sequence]) is not None else 0,
                one.time,
            )
            for due, sequence, priority in entries
            if (one := stored.get(sequence)) is not None
        ]

    def delayed_histogram(self, buckets: int = 60) -> list[Bucket]:
        """Return how many messages become due when, in equal intervals from the first to the last due time.

        Each bucket is its first moment, the one after its last, and a count. Reads no bodies, and holds the lock only
        briefly. With a million delayed messages it takes a while, and is then cached for some time.
        """
        check_count(buckets, "delayed_histogram")
        begin = self._clock.monotonic()
        until, of, found = self._histogram
        if begin < until and of == buckets:
            return list(found)
        with self._lock, self._whole:
            self._commit_later(self._look(self._now()))
            dues = array("Q")
            unread = self.queue_state.delayed.dues()
        dues.frombytes(b"".join(unread))
        if byteorder == "little":
            dues.byteswap()
        found = _histogram(array("Q", sorted(dues)), buckets)
        end = self._clock.monotonic()
        if end - begin > _A_WHILE_S:
            self._histogram = (end + KEPT_PART * (end - begin), buckets, found)
        return list(found)

    def preview(self, position: int | None = None, *, when: Instant | None = None) -> Preview:
        """Return what `seek(position)`, or `seek_time(when)`, would do, without doing it."""
        self._check_open()
        if (position is None) == (when is None):
            raise InvalidArgument("preview needs either a position or when, not both")
        with self._lock, self._whole:
            self._commit_later(self._look(self._now()))
        if when is not None:
            position = self.log.sequence_at(when)
        with self._lock, self._whole:
            start, end = self.log.start, self.log.visible_end
            place = max(check_position(position, end, self.log.name), start)
            queue_state = self.queue_state
            held = [lease.left for lease in queue_state.leases.by_id.values()]
            waiting = (
                queue_state.ready.count + queue_state.delayed.count + queue_state.leases.count + len(queue_state.moving)
            )
            dropped = (
                sum(level.count_before(place) for level in queue_state.ready.levels)
                + queue_state.delayed.count_before(place)
                + sum(sequence < place for left in held for sequence in left)
                + sum(sequence < place for sequence in queue_state.moving)
            )
        return Preview(place, start, end, end - place, waiting, dropped, lambda count: self._sample(place, count))

    def _sample(self, position: int, count: int) -> list[PeekedMessage]:
        """Return the first messages from a position on that a seek would deliver."""
        check_count(count, "sample")
        self._check_open()
        now = self._now()
        found: list[PeekedMessage] = []
        for sequence, one in self._read(position, self.log.visible_end):
            expiry = one.expiry or (max(one.time, one.due) + self._ttl_ns if self._ttl_ns is not None else NEVER)
            if one.owner in (None, self.name) and expiry > now:
                found.append(PeekedMessage(sequence, one.payload, one.key, one.headers, 0, one.time, one.priority))
                if len(found) >= count:
                    break
        return found

    # Dropping.

    def discard(self, ids: Iterable[int]) -> int:
        """Drop waiting messages, ready or delayed, permanently, and return how many; others are left unchanged."""
        wanted = checked_ids(ids, "discard", "peek() and delayed()")
        self._check_writable()
        if self.queue_state.delayed.count:  # its first due time is a hint where to find it, unless it has failed since
            delayed = sorted(filter(self.queue_state.delayed.may_have, wanted))
            hints = [(one.due, sequence) for sequence, one in self._stored(delayed) if one.due]
        else:
            hints = []
        with self._lock, self._whole:
            self._check_writable()
            now = self._now()
            pending_block = self._look(now)
            queue_state = self.queue_state
            levels = [level for level in queue_state.ready.levels if level]
            ready = {id for id in wanted if any(id in level for level in levels)}
            rest = [id for id in sorted(wanted - ready) if queue_state.delayed.may_have(id)]
            elsewhere = queue_state.waits_elsewhere(rest)  # a search of all delays would not find these
            rest = [id for id in rest if id not in elsewhere]
            sought = set(rest)
            hints = [hint for hint in hints if hint[1] in sought]
            entries = queue_state.delayed.find(spans_of(rest), len(rest), hints) if rest else []
            gone = sorted(ready | {sequence for _, sequence, _ in entries})
            if gone:
                spans = spans_of(gone)
                pending_block = self._record(encode(Dropped(now, "discarded", spans)))
                # As in `QueueState.settle`, which has to search for them.
                queue_state.delayed.leave_out(entries)
                for start, stop in spans:
                    queue_state.ready.remove_anywhere(start, stop)
                    queue_state.failures.forget(start, stop)
                queue_state.totals.dropped += len(gone)
        self._commit(pending_block)
        return len(gone)

    def discard_dead_letters(self, ids: set[int] | None, home: str) -> int:
        """On a dead-letter queue: drop the present dead letters of `home`; return how many."""
        count = 0
        start, stop = self._reach(ids)
        while True:
            with self._lock, self._whole:
                self._commit_later(self._look(self._now()))
                ready = self.queue_state.ready.following(start, stop, _AT_A_TIME)
                own = [one for one, _ in ready if (ids is None or one in ids) and self._is_of(one, home)]
            if not ready:
                return count
            count += self.discard(own) if own else 0
            start = ready[-1][0] + 1

    # Reading.

    def _stored(self, ids: list[int]) -> Iterator[tuple[int, _Stored]]:
        """Yield messages from the log, by ascending ids; those that it no longer has are left out."""
        for start, stop in spans_of(ids):
            yield from self._read(max(start, self.log.start), min(stop, self.log.visible_end))

    def _read(self, start: int, stop: int) -> Iterator[tuple[int, _Stored]]:
        for piece in self.log.pieces(start, stop) if start < stop else ():
            lost = set(piece.lost())
            priorities, dues, expiries, moved = map(piece.numbers, ("priority", "due", "expiry", "producer"))
            columns = zip(piece.payloads(), piece.keys(), piece.headers(), piece.times(), strict=True)
            for index, (payload, key, headers, time) in enumerate(columns):
                if piece.first + index in lost:
                    continue
                owner = headers.get(TARGET_QUEUE_HEADER) if moved is not None and moved[index] else None
                yield (
                    piece.first + index,
                    _Stored(
                        payload,
                        key,
                        headers,
                        time,
                        priorities[index] if priorities is not None else 0,
                        dues[index] if dues is not None else 0,
                        expiries[index] if expiries is not None else 0,
                        owner if isinstance(owner, str) else None,
                    ),
                )


def check_count(count: int, what: str) -> None:
    """Reject a value that is not a positive integer."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise InvalidArgument(f"{what} needs a count of at least 1, not {count!r}")


def check_position(position: object, end: int, log: str) -> int:
    """Return a valid position in a log to seek to."""
    if isinstance(position, bool) or not isinstance(position, int) or not 0 <= position <= end:
        raise InvalidArgument(f"cannot seek to {position!r}: the log {log!r} ends at {end}")
    return position


def checked_ids(ids: Iterable[int], what: str, source: str) -> set[int]:
    """Return message ids, which must be whole numbers."""
    listed: list[object] = [ids] if isinstance(ids, int | str | bytes) else list(ids)
    if isinstance(ids, int) or not all(type(id) is int for id in listed):
        raise InvalidArgument(f"{what} needs ids as {source} returns them, not {ids!r}")
    return {id for id in listed if isinstance(id, int)}


def _histogram(dues: "array[int]", buckets: int) -> list[Bucket]:
    """Count ascending moments in equal intervals from the first to the last."""
    if not dues:
        return []
    first, end = dues[0], dues[-1] + 1
    buckets = min(buckets, end - first)
    edges = [first + (end - first) * number // buckets for number in range(buckets + 1)]
    places = [bisect_left(dues, edge) for edge in edges]
    return [(edges[at], edges[at + 1], places[at + 1] - places[at]) for at in range(buckets)]
