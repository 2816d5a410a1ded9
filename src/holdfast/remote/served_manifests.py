"""A served store as manifests and parts, for readers of whole logs: alone, or behind those of a bucket."""

import logging
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile

from holdfast.base.bucket import FoundObject, ObjectMissing
from holdfast.base.errors import Closed, NotFound
from holdfast.log.remote_segments import NO_CHECKSUM
from holdfast.remote.address import Address
from holdfast.remote.errors import Unreachable
from holdfast.remote.http_client import HttpClient, path_of
from holdfast.replica.manifest import LogEntry, Manifest, Part, SegmentEntry
from holdfast.replica.part_reader import ManifestSource
from holdfast.replica.present import READ_MAX, SERVED

__all__ = ["LiveManifests", "ServedManifests"]

logger = logging.getLogger("holdfast.remote")

_KEY = re.compile(
    r"(?P<root>\w+)/(?P<folder>[^/]+)/(?P<log>[0-9a-f]+)/[^/]+-(?P<segment>[0-9a-f]+)\.(?P<start>\d+)-(?P<stop>\d+)\.\d+\Z"
)
_TIMEOUT_S = 30.0
_PATIENCE_S = 20.0
_PAUSE_S = 0.5
_TAILS_MAX = 64
"""How many small parts at the end of a segment are kept; then they count as one, which is fetched again."""
_AWAY_S = 5.0
"""After a server did not answer it is not asked for a manifest for so long."""


class ServedManifests:
    """What a server has on its disk now, of that which this user may read. Threads: any.

    A server that was reached once is waited for if it does not answer, as after a restart.
    """

    is_behind = False

    def __init__(self, address: Address, *, patience: float = _PATIENCE_S) -> None:
        self.url = str(address)
        self._wire = HttpClient(address, _TIMEOUT_S)
        self._patience = patience
        self._last: tuple[str, Manifest] | None = None
        """The digest of the last response, and what it was."""

    def newest(self, known: Manifest | None) -> Manifest | None:
        """As `ManifestSource.newest`. Raises `Unreachable`, and `Refused` if the token is not accepted."""
        last = self._last if self._last is not None and known is not None else None
        etag = last[0] if last is not None and known is not None and last[1].moment == known.moment else None
        content = self._content(path_of("blocks"), etag=etag, patience=0 if known is None else self._patience)
        if content is None:
            return None
        found = Manifest.decode(content, f"{self.url}{path_of('blocks')}")
        self._last = found.digest, found
        if known is None:
            return found
        before = {log.folder: log for log in known.logs}
        return replace(found, logs=tuple(_followed(log, before.get(log.folder)) for log in found.logs))

    def get(self, key: str) -> FoundObject:
        """As `Bucket.get`."""
        found = _KEY.match(key)
        if found is None:
            raise ObjectMissing(f"{self.url} has no {key}")
        return FoundObject(self.get_range(key, 0, int(found["stop"]) - int(found["start"])), "")

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """As `Bucket.get_range`."""
        found = _KEY.match(key)
        if found is None:
            raise ObjectMissing(f"{self.url} has no {key}")
        base = int(found["start"])
        stop = min(base + stop, int(found["stop"]))
        path = path_of("blocks", found["root"], found["folder"], found["log"], found["segment"])
        pieces = []
        try:
            for at in range(base + start, stop, READ_MAX):
                piece = self._content(path, patience=self._patience, start=at, stop=min(at + READ_MAX, stop))
                pieces.append(piece or b"")
        except NotFound as error:
            raise ObjectMissing(f"{self.url}: {error}") from error
        return b"".join(pieces)

    def _content(self, path: str, *, patience: float, etag: str | None = None, **query: int) -> bytes | None:
        deadline = time.monotonic() + patience
        while True:
            try:
                return self._wire.content(path, etag=etag, **query)
            except (Unreachable, Closed):
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_PAUSE_S)


class LiveManifests:
    """A bucket with the tail that it has not yet, from the server that ships to it.

    All that the bucket has is read from the bucket. While the server does not answer, this is as fresh as the bucket,
    and never goes back behind what was seen. `_guard` protects the last manifests. Threads: any.
    """

    def __init__(self, bucket: ManifestSource, server: ServedManifests) -> None:
        self.url = bucket.url
        self._bucket = bucket
        self._server = server
        self._shipped: Manifest | None = None
        self._present: Manifest | None = None
        self._away_until = float("-inf")
        self._guard = threading.Lock()
        self.is_behind = False
        """Whether the server did not answer when the last manifest was read."""

    def newest(self, known: Manifest | None) -> Manifest | None:
        """As `ManifestSource.newest`."""
        with self._guard:
            before = self._shipped, self._present
        shipped, present = self._bucket.newest(before[0]), self._look(before[1])
        with self._guard:
            # Another thread may have found a newer one meanwhile.
            if shipped is not None and (self._shipped is None or shipped.moment > self._shipped.moment):
                self._shipped = shipped
            self._present = present or self._present  # not compared: the clock of the server may be set back
            if self._shipped is None:
                return None
            merged = self._merged(self._shipped, self._present, known)
        return None if known is not None and merged.logs == known.logs else merged

    def get(self, key: str) -> FoundObject:
        """As `Bucket.get`."""
        if not _is_served(key):
            return self._bucket.get(key)
        try:
            return self._server.get(key)
        except (Unreachable, Closed) as error:
            raise ObjectMissing(f"{self._server.url} does not answer: {error}") from error

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """As `Bucket.get_range`."""
        if not _is_served(key):
            return self._bucket.get_range(key, start, stop)
        try:
            return self._server.get_range(key, start, stop)
        except (Unreachable, Closed) as error:
            raise ObjectMissing(f"{self._server.url} does not answer: {error}") from error

    def _look(self, known: Manifest | None) -> Manifest | None:
        """Return the manifest of the server if it is newer; None also if the server does not answer."""
        if time.monotonic() < self._away_until:
            return None
        try:
            found = self._server.newest(known)
            self.is_behind = False
            return found
        except (Unreachable, Closed) as error:
            if not self.is_behind:
                logger.warning("live server does not answer, reading the bucket alone: error=%s", error)
            self.is_behind = True
            self._away_until = time.monotonic() + _AWAY_S
            return None

    def _merged(self, shipped: Manifest, present: Manifest | None, known: Manifest | None) -> Manifest:
        live = {} if present is None else {log.folder: log for log in present.logs}
        before = {} if known is None else {log.folder: log for log in known.logs}
        logs = [_followed(_joined(log, live.pop(log.folder, None)), before.get(log.folder)) for log in shipped.logs]
        logs += [_followed(log, before.get(log.folder)) for log in live.values()]  # too new for the bucket
        return replace(shipped, logs=tuple(sorted(logs, key=lambda log: log.folder)))


def _is_served(key: str) -> bool:
    return key.endswith(f".{SERVED}")


def _joined(shipped: LogEntry, live: LogEntry | None) -> LogEntry:
    """Return a log with what the bucket has of it, and behind that what the server has."""
    if live is None or live.id != shipped.id or live.end <= shipped.end:
        return shipped
    there = {one.id: one for one in shipped.segments}
    segments = [one for one in shipped.segments if one.base < (live.segments[0].base if live.segments else 0)]
    for one in live.segments:
        ours = there.get(one.id)
        segments.append(one if ours is None else replace(one, parts=_behind(ours.parts, one)))
    return replace(shipped, end=live.end, last_timestamp=live.last_timestamp, segments=tuple(segments))


def _behind(parts: tuple[Part, ...], live: SegmentEntry) -> tuple[Part, ...]:
    """Return these parts and, if the server has more of the segment, what is behind them."""
    have = parts[-1].stop if parts else 0
    if live.size <= have:
        return parts
    more = (part for part in live.parts if part.stop > have)
    return (*parts, *(Part(max(have, part.start), part.stop, NO_CHECKSUM, SERVED) for part in more))


def _followed(log: LogEntry, before: LogEntry | None) -> LogEntry:
    """Return a log whose last parts are those that are known, and what is new since then.

    A reader has fetched the known ones already: without this it would fetch the whole tail with each new record.
    """
    if before is None or before.id != log.id:
        return log
    known = {one.id: one for one in before.segments}
    return replace(log, segments=tuple(replace(one, parts=_kept(one.parts, known.get(one.id))) for one in log.segments))


def _kept(parts: tuple[Part, ...], known: SegmentEntry | None) -> tuple[Part, ...]:
    tail = parts[-1] if parts else None
    if tail is None or known is None or tail.epoch != SERVED or tail.checksum != NO_CHECKSUM:
        return parts
    kept = tuple(_from(known.parts, tail.start, tail.stop))
    if not kept or len(kept) > _TAILS_MAX:
        return parts
    more = (Part(kept[-1].stop, tail.stop, NO_CHECKSUM, SERVED),) if kept[-1].stop < tail.stop else ()
    return (*parts[:-1], *kept, *more)


def _from(parts: tuple[Part, ...], start: int, stop: int) -> Iterator[Part]:
    """Yield the served parts between these offsets that follow each other from the first one on."""
    for part in takewhile(lambda one: one.stop <= stop, (one for one in parts if one.start >= start)):
        if part.start != start or part.epoch != SERVED:
            return
        yield part
        start = part.stop
