"""What operators ask of a queue: counts, leases, delays, statistics and previews; and what they drop."""

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice
from sys import byteorder
from typing import NamedTuple

from holdfast.base.clock import NS, Instant
from holdfast.base.errors import InvalidArgument
from holdfast.log.record import NO_HEADERS, Headers
from holdfast.queue.arguments import check_count, check_position, checked_ids
from holdfast.queue.body_cache import RECENT_PART
from holdfast.queue.checkpoint_health import Failing
from holdfast.queue.events import Dropped, Purged, SeekTo
from holdfast.queue.expiry import Expiry
from holdfast.queue.lease import NEVER
from holdfast.queue.messages import Delayed, PeekedMessage
from holdfast.queue.queue_core import QueueCore
from holdfast.queue.queue_state import TARGET_QUEUE_HEADER, Totals
from holdfast.queue.ranges import spans_of
from holdfast.queue.stats import Counts, LeaseInfo, Preview, QueueStats, Rates
from holdfast.queue.transfers import is_dead_letter_of, reach

__all__ = ["Bucket", "QueueInspector"]

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


class QueueInspector:
    """What operators, servers and tests ask of a queue. Bodies are read without the queue's lock where possible.

    Owns the cached histogram. Methods that change something say so: `discard`, `discard_dead_letters`, `page_out`.
    """

    def __init__(self, core: QueueCore, expiry: Expiry) -> None:
        self._core = core
        self._expiry = expiry
        self._log = core.log
        self._histogram: tuple[float, int, list[Bucket]] = (float("-inf"), 0, [])
        """The cached histogram: the end of its validity, the number of buckets, and the buckets."""
        self._leased_before = core.state.totals.leased

    # Inspecting.

    def counts(self) -> Counts:
        """As `Queue.counts`."""
        core = self._core
        core.check_open()
        if core.read_only:
            self.waiting()
        else:
            held: list[bool] = []
            try:
                held.extend(map(core.lock.acquire, (False,)))  # taken and recorded by one call of C code
                if True in held:
                    with core.section:
                        core.apply_new()
            finally:
                if True in held:
                    core.lock.release()
        state = core.state
        return Counts(state.ready.count + self._unseen, state.delayed.count, state.leases.count, len(state.moving))

    def quick_counts(self) -> Counts:
        """As `counts`, but take no lock if no message can be due: for sums over many queues."""
        state = self._core.state
        if state.delayed.count:
            return self.counts()
        ready = state.ready.count if state.ready.has_priorities else state.ready.plain.count
        return Counts(ready + self._unseen, 0, state.leases.count, len(state.moving))

    @property
    def _unseen(self) -> int:
        """Messages put since the state was last brought up to date."""
        return max(0, self._log.reader.visible_end - self._core.state.scanned)

    @property
    def totals(self) -> Totals:
        """Counts of events since the queue was created. Read without the lock."""
        return self._core.state.totals

    @property
    def ready(self) -> int:
        """How many messages are ready, without those put since the state was last brought up to date. No lock."""
        return self._core.state.ready.count

    @property
    def delayed_count(self) -> int:
        """How many messages are delayed, as of the last call. Takes no lock."""
        return self._core.state.delayed.count

    @property
    def checkpoint_failure(self) -> Failing | None:
        """Since when checkpoints fail, and why; None while they succeed."""
        return self._core.checkpoints.health.failing

    def floor(self) -> int:
        """Return a sequence below which every message has left the queue.

        Takes no lock: raises `RuntimeError` or `ValueError` if the state changes meanwhile.
        """
        return self._core.state.floor()

    def outstanding(self) -> list[tuple[int, int]]:
        """Return the spans of all messages that have not left the queue, in order. For a queue that nobody uses."""
        return self._core.state.outstanding()

    def leased_ids(self, lease: int) -> list[int]:
        """Return the messages that a lease holds; none if it has ended. Takes no lock."""
        known = self._core.state.leases.by_id.get(lease)
        return [] if known is None else list(known.left)

    def rates(self) -> Rates:
        """Return messages per second over the last minute; as cheap as `counts`."""
        measures = self._core.measures
        return Rates(measures.put_rate.per_second(), measures.lease_rate.per_second(), measures.ack_rate.per_second())

    def waiting(self) -> int:
        """Return how many messages are ready or delayed."""
        with self._core.lock, self._core.turn():
            return self._core.state.waiting

    def message(self, id: int) -> PeekedMessage | None:
        """Return a message by its id, in any state, even if acknowledged; None if the log no longer has it."""
        if isinstance(id, bool) or not isinstance(id, int):
            raise InvalidArgument(f"message needs the id of a message, not {id!r}")
        with self._core.lock, self._core.turn():
            failure = self._core.state.failures.get(id) if id >= 0 else None
        for sequence, one in self._stored([id]):
            attempts = failure.attempts if failure is not None else 0
            return PeekedMessage(sequence, one.payload, one.key, one.headers, attempts, one.time, one.priority)
        return None

    def each_ready(self, start: int = 0) -> Iterator[PeekedMessage]:
        """As `Queue.each_ready`."""
        self._core.check_open()
        stop = 0
        while True:
            with self._core.lock, self._core.turn():
                stop = stop or self._log.reader.visible_end  # entering a read-only store moves the end
                ready = [sequence for sequence, _ in self._core.state.ready.following(start, stop, _AT_A_TIME)]
                failures = {sequence: self._core.state.failures.get(sequence) for sequence in ready}
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
        with self._core.lock, self._core.turn():
            return [
                LeaseInfo(lease_id, tuple(sorted(lease.left)), lease_id, lease.expires)
                for lease_id, lease in islice(self._core.state.leases.by_id.items(), count)
            ]

    def delayed(self, count: int = 200) -> list[Delayed]:
        """Return the delayed messages, the next due first."""
        check_count(count, "delayed")
        with self._core.lock, self._core.turn():
            entries = self._core.state.delayed.soonest(count)
            failures = {sequence: self._core.state.failures.get(sequence) for _, sequence, _ in entries}
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
        """As `Queue.delayed_histogram`."""
        check_count(buckets, "delayed_histogram")
        begin = self._core.clock.monotonic()
        until, of, found = self._histogram
        if begin < until and of == buckets:
            return list(found)
        with self._core.lock, self._core.turn():
            dues = array("Q")
            unread = self._core.state.delayed.dues()
        dues.frombytes(b"".join(unread))
        if byteorder == "little":
            dues.byteswap()
        found = _histogram(array("Q", sorted(dues)), buckets)
        end = self._core.clock.monotonic()
        if end - begin > _A_WHILE_S:
            self._histogram = (end + KEPT_PART * (end - begin), buckets, found)
        return list(found)

    def preview(self, position: int | None = None, *, when: Instant | None = None) -> Preview:
        """Return what `seek(position)`, or `seek_time(when)`, would do, without doing it."""
        self._core.check_open()
        if (position is None) == (when is None):
            raise InvalidArgument("preview needs either a position or when, not both")
        core = self._core
        with core.lock, core.turn():
            pass  # a read-only store follows its log
        if when is not None:
            position = self._log.sequence_at(when)
        with core.lock, core.section:
            start, end = self._log.start, self._log.reader.visible_end
            place = max(check_position(position, end, self._log.name), start)
            state = core.state
            waiting = state.waiting + state.leases.count + len(state.moving)
            dropped = state.count_before(place)
        return Preview(place, start, end, end - place, waiting, dropped, lambda count: self._sample(place, count))

    def _sample(self, position: int, count: int) -> list[PeekedMessage]:
        """Return the first messages from a position on that a seek would deliver."""
        check_count(count, "sample")
        self._core.check_open()
        now, ttl_ns = self._core.now(), self._expiry.ttl_ns
        found: list[PeekedMessage] = []
        for sequence, one in self._read(position, self._log.reader.visible_end):
            expiry = one.expiry or (max(one.time, one.due) + ttl_ns if ttl_ns is not None else NEVER)
            if one.owner in (None, self._core.name) and expiry > now:
                found.append(PeekedMessage(sequence, one.payload, one.key, one.headers, 0, one.time, one.priority))
                if len(found) >= count:
                    break
        return found

    def peek(self, count: int = 10) -> list[PeekedMessage]:
        """Return the next messages in order of delivery, without leasing them."""
        check_count(count, "peek")
        with self._core.lock, self._core.turn() as turn:
            return self._peeked(count, turn.now)

    def _peeked(self, count: int, now: int) -> list[PeekedMessage]:
        state, bodies = self._core.state, self._core.bodies
        found: list[PeekedMessage] = []
        wanted = count
        while True:  # some of the next ones may be expired, and not dropped yet
            picks = state.ready.pick(wanted, self._expiry.starved(now))
            alive = [
                (priority, sequence)
                for priority, start, stop in picks
                for sequence in range(start, stop)
                if (page := bodies.page(sequence)) and self._expiry.moment(page, sequence - page.first) > now
            ]
            if len(alive) >= count or wanted > state.ready.count:
                break
            wanted *= 4
        for priority, sequence in alive[:count]:
            if page := bodies.page(sequence):
                index = sequence - page.first
                failure = state.failures.get(sequence)
                found.append(
                    PeekedMessage(
                        sequence,
                        page.payloads[index],
                        page.keys[index] if page.keys else None,
                        page.headers[index] if page.headers else NO_HEADERS,
                        failure.attempts if failure else 0,
                        page.times[index],
                        priority,
                    )
                )
        return found

    def stats(self, dead: int, *, paused: bool) -> QueueStats:
        """Return counts, ages and rates, with how many dead letters there are and whether delivery is paused."""
        core = self._core
        measures, health = core.measures, core.checkpoints.health
        with core.lock, core.turn() as turn:
            now, state, failing = turn.now, core.state, health.failing
            totals = state.totals
            firsts = [level.first for level in state.ready.levels if level]
            put_at = core.bodies.time(min(firsts)) if firsts else None
            return QueueStats(
                name=core.name,
                log=self._log.name,
                ready=state.ready.count,
                delayed=state.delayed.count,
                leased=state.leases.count,
                moving=len(state.moving),
                dead=dead,
                leases=len(state.leases.by_id),
                oldest_age=None if put_at is None else max(0, now - put_at) / NS,
                next_due=state.delayed.next_due,
                put_rate=measures.put_rate.per_second(),
                lease_rate=measures.lease_rate.per_second(),
                ack_rate=measures.ack_rate.per_second(),
                total_leased=totals.leased,
                total_acked=totals.acked,
                total_nacked=totals.nacked,
                total_expired=totals.expired,
                total_dead=totals.dead,
                total_redriven=totals.redriven,
                total_dropped=totals.dropped,
                duplicates=measures.duplicates.value,
                dedup_window=state.dedup.window_at(now) / NS,
                dedup_ids=state.dedup.count,
                dedup_shortened=state.dedup.shortened_to is not None,
                wait_p50=measures.waits.quantile(0.5),
                wait_p99=measures.waits.quantile(0.99),
                hold_p50=measures.holds.quantile(0.5),
                hold_p99=measures.holds.quantile(0.99),
                orphans=core.checkpoints.orphans,
                lag=max(0, self._log.end - state.floor()),
                paused=paused,
                checkpoint_failures=health.failures,
                checkpoint_failing_since=failing.since if failing else None,
                checkpoint_error=failing.reason if failing else None,
            )

    # Memory.

    @property
    def cache_limit(self) -> int:
        """As `Queue.cache_limit`."""
        return self._core.bodies.limit

    @cache_limit.setter
    def cache_limit(self, limit: int) -> None:
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
            raise InvalidArgument(f"cache_limit must be a whole number of at least 0, not {limit!r}")
        with self._core.lock, self._core.section:
            self._log.appender.limit_recent(limit // RECENT_PART)
            self._core.bodies.set_limit(limit)

    @property
    def cached_bytes(self) -> int:
        """Roughly how many bytes of memory bodies use, with the overhead of Python."""
        return self._core.bodies.bytes + self._log.recent.bytes

    @property
    def cache_misses(self) -> int:
        """How many of the messages delivered since the opening had to be read from a segment."""
        return self._core.bodies.misses

    @property
    def cache_hits(self) -> int:
        """How many of the messages delivered since the opening were in memory."""
        return max(0, self._core.state.totals.leased - self._leased_before - self._core.bodies.misses)

    def page_out(self) -> int:
        """Release the memory of every body that is on disk; return how many bytes of them were cached."""
        with self._core.lock, self._core.section:
            freed = self._core.bodies.bytes
            self._core.bodies.forget()
            return freed + self._log.page_out()

    # Dropping.

    def purge(self) -> int:
        """Drop every message that is not leased, also delayed ones; return how many."""
        core = self._core
        with core.lock, core.change() as turn:
            count = core.state.waiting
            turn.apply([Purged(turn.now, core.state.scanned)])
        core.commit(turn.pending_block)
        core.confirm()
        return count

    def seek(self, sequence: int) -> None:
        """As `Queue.seek`."""
        core = self._core
        with core.lock, core.change() as turn:
            start, end = self._log.start, self._log.reader.visible_end
            position = max(check_position(sequence, end, self._log.name), start)
            if core.checkpoints.floor_kept > position:
                core.checkpoints.keep_floor(position)  # before retention could drop messages that are needed again
            turn.apply([SeekTo(turn.now, position)])
            core.catch_up(turn.now)
        core.commit(turn.pending_block)
        core.waiters.wake()
        core.confirm()

    def discard(self, ids: Iterable[int]) -> int:
        """Drop waiting messages, ready or delayed, permanently, and return how many; others are left unchanged."""
        wanted = checked_ids(ids, "discard", "peek() and delayed()")
        core = self._core
        core.check_writable()
        if core.state.delayed.count:  # its first due time is a hint where to find it, unless it has failed since
            delayed = sorted(filter(core.state.delayed.may_have, wanted))
            hints = [(one.due, sequence) for sequence, one in self._stored(delayed) if one.due]
        else:
            hints = []
        with core.lock, core.change() as turn:
            state = core.state
            levels = [level for level in state.ready.levels if level]
            ready = {id for id in wanted if any(id in level for level in levels)}
            rest = [id for id in sorted(wanted - ready) if state.delayed.may_have(id)]
            elsewhere = state.waits_elsewhere(rest)  # a search of all delays would not find these
            rest = [id for id in rest if id not in elsewhere]
            sought = set(rest)
            hints = [hint for hint in hints if hint[1] in sought]
            entries = state.delayed.find(spans_of(rest), len(rest), hints) if rest else []
            gone = sorted(ready | {sequence for _, sequence, _ in entries})
            if gone:
                spans = spans_of(gone)
                turn.record(Dropped(turn.now, "discarded", spans))
                state.drop_waiting(spans, entries)
        core.commit(turn.pending_block)
        core.confirm()
        return len(gone)

    def discard_dead_letters(self, ids: set[int] | None, home: str) -> int:
        """On a dead-letter queue: drop the present dead letters of `home`; return how many."""
        core = self._core
        count = 0
        start, stop = reach(self._log, ids)
        while True:
            with core.lock, core.turn():
                ready = core.state.ready.following(start, stop, _AT_A_TIME)
                own = [
                    one for one, _ in ready if (ids is None or one in ids) and is_dead_letter_of(core.bodies, one, home)
                ]
            if not ready:
                return count
            count += self.discard(own) if own else 0
            start = ready[-1][0] + 1

    # Reading.

    def _stored(self, ids: list[int]) -> Iterator[tuple[int, _Stored]]:
        """Yield messages from the log, by ascending ids; those that it no longer has are left out."""
        for start, stop in spans_of(ids):
            yield from self._read(max(start, self._log.start), min(stop, self._log.reader.visible_end))

    def _read(self, start: int, stop: int) -> Iterator[tuple[int, _Stored]]:
        for piece in self._log.pieces(start, stop):
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


def _histogram(dues: "array[int]", buckets: int) -> list[Bucket]:
    """Count ascending moments in equal intervals from the first to the last."""
    if not dues:
        return []
    first, end = dues[0], dues[-1] + 1
    buckets = min(buckets, end - first)
    edges = [first + (end - first) * number // buckets for number in range(buckets + 1)]
    places = [bisect_left(dues, edge) for edge in edges]
    return [(edges[at], edges[at + 1], places[at + 1] - places[at]) for at in range(buckets)]
