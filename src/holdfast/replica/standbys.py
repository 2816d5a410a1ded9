"""Announcements of standbys, in the object `standbys.json`: written by each standby, watched by the owner."""

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass

from holdfast.base.bucket import Bucket, ObjectMissing
from holdfast.base.checked_json import decode_checked, encode_checked
from holdfast.base.clock import Clock
from holdfast.base.errors import HoldfastError, NewerFormat, ReplicaError

__all__ = ["STANDBYS", "Announcement", "StandbyRecord", "StandbyWatch", "read_standbys"]

logger = logging.getLogger("holdfast.replica")

STANDBYS = "standbys.json"
_FORMAT = 1
GONE_S = 60.0
"""A standby that has not renewed its announcement for so long does not count."""
_FORGET_S = 600.0
"""Other standbys remove an announcement that was not renewed for so long."""
_TRIES = 3


@dataclass(frozen=True, slots=True)
class StandbyRecord:
    """What a standby says of itself."""

    id: str
    place: str
    """Host and path of its folder."""
    host: str
    pid: int
    count: int
    """Grows with each renewal."""
    time: int
    """Nanoseconds since 1970 by the clock of the standby: for people, never compared."""
    moment: str
    """The name of the moment that it has; a standby without one does not announce itself."""


def read_standbys(bucket: Bucket) -> dict[str, StandbyRecord]:
    """Return the announced standbys, by id; some may have ended."""
    return _read(bucket)[0]


class StandbyWatch:
    """Tells the owner whether a standby lives. For one thread; compares nothing with the clock of another machine."""

    def __init__(self, bucket: Bucket, clock: Clock) -> None:
        self._bucket = bucket
        self._clock = clock
        self._seen: dict[str, tuple[int, float]] | None = None
        """By id: the last count, and when it was first seen. None before the first look."""
        self._began = clock.monotonic()

    def look(self) -> bool | None:
        """Return whether a standby has renewed its announcement within a minute; None if that is not known yet."""
        try:
            found = read_standbys(self._bucket)
        except HoldfastError as error:
            logger.debug("standbys not read: url=%s error=%s", self._bucket.url, error)
            return None
        now = self._clock.monotonic()
        # What the first look finds may be long dead: it counts once it is renewed.
        unknown = (-1, now) if self._seen is not None else None
        before, seen = self._seen or {}, {}
        for name, one in found.items():
            count, when = before.get(name) or unknown or (one.count, float("-inf"))
            seen[name] = (one.count, when if count == one.count else now)
        if self._seen is None:
            self._began = now
        self._seen = seen
        if any(now - when < GONE_S for _, when in seen.values()):
            return True
        return False if not seen or now - self._began >= GONE_S else None


class Announcement:
    """The entry of one standby. For one thread."""

    def __init__(self, bucket: Bucket, clock: Clock, record: Callable[[int], StandbyRecord]) -> None:
        """Announce what `record` returns for a count."""
        self._bucket = bucket
        self._clock = clock
        self._record = record
        self._id = record(0).id
        self._count = 0
        self._renewed_at = float("-inf")
        self._seen: dict[str, tuple[int, float]] = {}

    def renew_if_due(self, every: float) -> None:
        """Renew the entry if that was not done for so many seconds. Raises `ReplicaError`."""
        if self._clock.monotonic() - self._renewed_at >= every:
            self._count += 1
            self._change(self._record(self._count))
            self._renewed_at = self._clock.monotonic()

    def withdraw(self) -> None:
        """Remove the entry. Raises `ReplicaError`."""
        if self._count:
            self._change(None)
            self._count, self._renewed_at = 0, float("-inf")

    def _change(self, record: StandbyRecord | None) -> None:
        for _ in range(_TRIES):
            found, etag = _read(self._bucket)
            self._drop_dead(found)
            found.pop(self._id, None)
            if record is not None:
                found[self._id] = record
            content = encode_checked({"format": _FORMAT, "standbys": [asdict(one) for one in found.values()]})
            done = (
                self._bucket.compare_and_swap(STANDBYS, content, etag)
                if etag
                else self._bucket.put_if_absent(STANDBYS, content)
            )
            if done is not None:
                return
        # Others write it, too, and now and then one is overtaken: the next renewal is soon.

    def _drop_dead(self, found: dict[str, StandbyRecord]) -> None:
        now = self._clock.monotonic()
        for name, one in list(found.items()):
            count, when = self._seen.get(name, (-1, now))
            self._seen[name] = (one.count, when if count == one.count else now)
            if now - self._seen[name][1] >= _FORGET_S:
                del found[name]


def _read(bucket: Bucket) -> tuple[dict[str, StandbyRecord], str]:
    try:
        found = bucket.get(STANDBYS)
    except ObjectMissing:
        return {}, ""
    where = f"{bucket.url}/{STANDBYS}"
    try:
        content = decode_checked(found.content)
        if content["format"] > _FORMAT:
            raise NewerFormat(f"{where} was written by a newer Holdfast: update this one")
        names = StandbyRecord.__dataclass_fields__
        records = [StandbyRecord(**{name: one[name] for name in names}) for one in content["standbys"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ReplicaError(f"{where} is damaged: delete the object, standbys write it again") from error
    return {one.id: one for one in records}, found.etag
