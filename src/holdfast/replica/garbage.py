"""Garbage collection of a bucket: thins old moments, and deletes the objects that no kept moment names."""

import contextlib
import logging
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial

from holdfast.base.bucket import Bucket, ObjectMissing
from holdfast.base.clock import NS, Clock
from holdfast.base.errors import Corrupt
from holdfast.replica.batch_objects import INCOMING
from holdfast.replica.manifest import MANIFESTS, LogEntry, Manifest, Moment, list_moments, read_manifest
from holdfast.replica.owner import OWNER, Ownership
from holdfast.replica.promotion_request import PROMOTE
from holdfast.replica.standbys import STANDBYS

__all__ = ["KEEP_S", "Collector", "is_control", "kept_moments"]

logger = logging.getLogger("holdfast.replica")

KEEP_S = 7 * 86_400.0
_EVERY_S = 600.0
_GRACE_S = 60.0
"""An object is deleted so much later than it became garbage, which is longer than the ttl of an owner: one that has
lost the replica without knowing it deletes nothing that its successor may use."""
_ALL_NS, _FINE_NS, _MINUTES_NS = 60 * NS, 3600 * NS, 86_400 * NS
_MINUTE_NS, _HOUR_NS = 60 * NS, 3600 * NS
_READ_AT_ONCE = 50
_DELETE_AT_ONCE = 1000
_MANY = 1000
"""After so many new moments those that need not be kept are deleted, without waiting for the next cleaning."""


def is_control(key: str) -> bool:
    """Return whether this is no part of a log: a manifest, an object of owner and standbys, or of a batch."""
    return key in (OWNER, STANDBYS, PROMOTE) or key.startswith((MANIFESTS, INCOMING))


def kept_moments(moments: Sequence[Moment], now: int, keep_ns: int) -> list[Moment]:
    """Return which of these moments, the oldest first, are kept.

    All of the last minute, the last one of each second of the last hour, of each minute of the last day, and of each
    hour up to `keep_ns`, and the one before that: so each time within `keep_ns` can be restored as it was at most so
    long before. Always the newest.
    """
    kept: list[Moment] = []
    slot: tuple[int, ...]
    slots: set[tuple[int, ...]] = set()
    for moment in reversed(moments):
        age = now - moment.time
        if age <= min(_ALL_NS, keep_ns):
            slot = (-1, len(kept))
        elif age <= min(_FINE_NS, keep_ns):
            slot = (0, moment.epoch, moment.time // NS)  # the clocks of two owners may be the same by chance
        elif age <= min(_MINUTES_NS, keep_ns):
            slot = (1, moment.time // _MINUTE_NS)
        elif age <= keep_ns:
            slot = (2, moment.time // _HOUR_NS)
        else:
            slot = (3, 0)
        if not kept or slot not in slots:
            slots.add(slot)
            kept.append(moment)
    return kept[::-1]


class Collector:
    """Knows from which moment to which each object is named. For the thread of the shipper.

    An object that a moment no longer names is never named again, so the moments that name it follow each other.
    Objects are deleted only while this process owns the bucket.
    """

    def __init__(
        self,
        bucket: Bucket,
        clock: Clock,
        ownership: Ownership,
        *,
        keep: float,
        pending: Callable[[], set[str]],
        start: Callable[[Callable[[], None]], Future[None]] | None = None,
    ) -> None:
        """Collect garbage; `pending` returns the keys of objects that a later moment will name.

        `start` runs a deletion of moments on another thread: with some dozens a second, calls that wait for the next
        one must not wait for it.
        """
        self._bucket = bucket
        self._clock = clock
        self._ownership = ownership
        self._keep_ns = int(keep * NS)
        self._pending = pending
        self._start = start
        self._doomed: list[str] = []
        """The keys of moments that are to be deleted, before any object that only they name."""
        self._deleting: Future[None] | None = None
        self._fresh = 0
        """How many moments were noted since they were last thinned."""
        self._moments: list[Moment] = []
        """Those that are in the bucket, the oldest first."""
        self._last: Moment | None = None
        self._first: dict[str, Moment] = {}
        """The objects of the last moment, each with the first moment that names it."""
        self._gone: dict[str, tuple[Moment, Moment, float]] = {}
        """Objects that the last moment does not name: the first and the last that does, and since when."""
        self._unread: deque[Moment] | None = None
        """Moments of earlier owners that are yet to be read; None: they are not listed yet."""
        self._listed = False
        """Whether all objects were listed."""
        self._due_at = clock.monotonic()
        self._began_ns, self._began_at = clock.time_ns(), clock.monotonic()
        self._noted: dict[Moment, int] = {}
        """The moments of this process, with their times as of `_now`."""

    def resume(self, last: Manifest) -> None:
        """Continue behind a moment, whose objects are the present ones."""
        self._last = last.moment
        self._first = dict.fromkeys(last.keys(), last.moment)
        if self._began_ns - last.moment.time > self._keep_ns:  # the store was closed for long, or the clock is wrong
            self._began_ns = last.moment.time

    def note_orphans(self, keys: Iterable[str]) -> None:
        """Note objects that may be there, and that no moment names: of uploads that failed or were replaced."""
        now, never = self._clock.monotonic(), Moment(0, 0, 0)
        for key in keys:
            if key not in self._first:
                self._gone.setdefault(key, (never, never, now))

    def note(self, moment: Moment, before: Mapping[str, LogEntry], logs: Iterable[LogEntry]) -> None:
        """Note a moment that is about to be put; `before` are the logs of the moment before it."""
        now, left = self._clock.monotonic(), dict(before)
        for log in logs:
            old = left.pop(log.folder, None)
            if old is log:
                continue
            ours, theirs = _different_keys(log, old)
            self._drop(theirs - ours, now)
            for key in ours - theirs:
                self._first.setdefault(key, moment)
                self._gone.pop(key, None)
        for old in left.values():
            self._drop(set(old.keys()), now)
        self._moments.append(moment)
        self._fresh += 1
        self._noted[moment] = self._now()
        self._last = moment

    def tick(self) -> None:
        """Collect garbage if it is due. Raises `ReplicaError`."""
        if self._start is not None:
            if self._fresh >= _MANY and self._listed:
                self._thin()
            self._delete_doomed(self._start)
            if self._doomed or self._deleting is not None:
                return  # objects that only these moments name are deleted after them
        if self._unread or self._clock.monotonic() >= self._due_at:
            self._due_at = self._clock.monotonic() + _EVERY_S
            self.collect()

    def _thin(self) -> None:
        """Choose the moments that need not be kept, without listing the bucket."""
        self._fresh = 0
        kept = self._kept(self._moments)
        self._doomed += [moment.key for moment in self._without(kept)]
        self._moments = kept
        self._noted = {moment: self._noted[moment] for moment in kept if moment in self._noted}

    def _delete_doomed(self, start: Callable[[Callable[[], None]], Future[None]]) -> None:
        """Begin to delete some of the chosen moments, if that of the last ones has ended. Raises its error."""
        if self._deleting is not None:
            if not self._deleting.done():
                return
            ended, self._deleting = self._deleting, None
            ended.result()
            del self._doomed[:_DELETE_AT_ONCE]
        if self._doomed:
            self._ownership.check()
            with contextlib.suppress(RuntimeError):  # the store is being closed: the next owner deletes them
                self._deleting = start(partial(self._bucket.delete, self._doomed[:_DELETE_AT_ONCE]))

    def collect(self) -> int:
        """Delete what is garbage now; return how many objects. Until all moments were read, only read some."""
        if not self._learn():
            return 0
        deleted = self._delete([moment.key for moment in self._compare_with_listing()])
        kept = self._kept(self._moments)
        deleted += self._delete([moment.key for moment in self._without(kept)])
        self._moments = kept
        self._noted = {moment: self._noted[moment] for moment in kept if moment in self._noted}
        now, pending = self._clock.monotonic(), self._pending()
        garbage = [
            key
            for key, (first, last, since) in self._gone.items()
            if now - since >= _GRACE_S and bisect_left(kept, first) == bisect_right(kept, last) and key not in pending
        ]
        deleted += self._delete(garbage)
        for key in garbage:
            del self._gone[key]
        if deleted:
            logger.info("replica cleaned: url=%s objects=%d", self._bucket.url, deleted)
        return deleted

    def _compare_with_listing(self) -> list[Moment]:
        """Forget moments that were never put; return those that an earlier owner put after it had lost the replica."""
        now, known = self._clock.time_ns(), set(self._moments)
        listed = set(list_moments(self._bucket))
        self._moments = [one for one in self._moments if one in listed or now - one.time < _GRACE_S * NS]
        return [one for one in listed - known if one.epoch < self._ownership.epoch]

    def _learn(self) -> bool:
        """Read the manifests of earlier owners, some at a time; then list all objects. Return whether all is known."""
        if self._unread is None:
            own = {moment.key for moment in self._moments}
            earlier = [one for one in list_moments(self._bucket) if one.key not in own]
            self._moments = sorted([*earlier, *self._moments])
            kept = self._kept(self._moments)
            self._unread = deque(one for one in kept if one.key not in own)
        for _ in range(min(_READ_AT_ONCE, len(self._unread))):
            moment, keys = self._unread[0], set[str]()
            try:
                keys.update(read_manifest(self._bucket, moment).keys())
            except (Corrupt, ObjectMissing) as error:
                logger.warning("moment cannot be read: url=%s error=%s", self._bucket.url, error)
            self._unread.popleft()  # not before it was read: what only it names would be taken for garbage
            for key in keys:
                if key in self._first:
                    self._first[key] = min(self._first[key], moment)
                else:
                    first, last, since = self._gone.get(key, (moment, moment, self._clock.monotonic()))
                    self._gone[key] = min(first, moment), max(last, moment), since
        if self._unread:
            return False
        if not self._listed:
            self._find_orphans()
            self._listed = True
        return True

    def _find_orphans(self) -> None:
        """Note the objects that no moment names: of rounds of earlier owners that were cut off."""
        keys = {one.key for one in self._bucket.list("") if not is_control(one.key)}
        self.note_orphans(keys - self._pending())

    def _drop(self, keys: set[str], now: float) -> None:
        for key in keys:
            first = self._first.pop(key, Moment(0, 0, 0))
            self._gone[key] = first, self._last or first, now

    def _now(self) -> int:
        """Return the time by which moments get old. It does not jump: a wrong clock must not delete what is kept."""
        return self._began_ns + int((self._clock.monotonic() - self._began_at) * NS)

    def _kept(self, moments: Sequence[Moment]) -> list[Moment]:
        dated = [Moment(moment.epoch, moment.number, self._noted.get(moment, moment.time)) for moment in moments]
        kept = {(one.epoch, one.number) for one in kept_moments(dated, self._now(), self._keep_ns)}
        return [moment for moment in moments if (moment.epoch, moment.number) in kept]

    def _without(self, kept: list[Moment]) -> list[Moment]:
        names = set(kept)
        return [moment for moment in self._moments if moment not in names]

    def _delete(self, keys: list[str]) -> int:
        for start in range(0, len(keys), _DELETE_AT_ONCE):
            self._ownership.check()
            self._bucket.delete(keys[start : start + _DELETE_AT_ONCE])
        return len(keys)


def _different_keys(log: LogEntry, old: LogEntry | None) -> tuple[set[str], set[str]]:
    """Return the keys that only one of two entries of a folder names; of parts that are in both, perhaps none.

    Of all parts it took a millisecond for each round that calls wait for.
    """
    ours, theirs = set[str](), set[str]()
    left = {(one.id, one.name): one for one in old.segments} if old is not None and old.id == log.id else {}
    for segment in log.segments:
        known = left.pop((segment.id, segment.name), None)
        if known is not None and known.parts == segment.parts:
            continue
        before = {part for part in known.parts if part.inline is None} if known is not None else set()
        now = {part for part in segment.parts if part.inline is None}
        ours.update(log.key(segment, part) for part in now - before)
        theirs.update(log.key(segment, part) for part in before - now)
    for one in left.values():
        theirs.update(log.key(one, part) for part in one.parts if part.inline is None)
    if old is not None and old.id != log.id:
        theirs.update(old.keys())
    return ours - theirs, theirs - ours
