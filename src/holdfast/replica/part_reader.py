"""Manifests and parts of a replica for its readers, who hold no claim on it: the owner may delete parts meanwhile."""

import logging
import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from holdfast.base.bucket import Bucket, FoundObject, ObjectMissing
from holdfast.base.errors import Corrupt, NotFound, ReplicaUnavailable
from holdfast.replica.manifest import MANIFESTS, Manifest, Moment, Part, read_manifest

__all__ = ["BucketManifests", "ManifestSource", "PartReader", "PartsDropped"]

logger = logging.getLogger("holdfast.replica")

_KEY = re.compile(r"(?P<log>.+)/(?P<stem>[^/]+)-(?P<id>[0-9a-f]+)\.(?P<start>\d+)-(?P<stop>\d+)\.\d+\Z")
_INLINE_MAX = 256
"""How many contents of inline parts are kept. One that was forgotten is found again in the newest manifest."""


class PartsDropped(NotFound):
    """A segment is not in the replica any more: retention has dropped it, or its log was deleted."""


class ManifestSource(Protocol):
    """Where manifests and the parts that they name are read: a bucket or a server. Threads: any."""

    url: str
    """Where it is, without credentials, for messages."""
    is_behind: bool
    """Whether there may be more that could not be asked for when the last manifest was read."""

    def newest(self, known: Manifest | None) -> Manifest | None:
        """Return the newest manifest if it is newer than `known`; None if there is none. Raises `ReplicaError`."""
        ...

    def get(self, key: str) -> FoundObject:
        """As `Bucket.get`."""
        ...

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """As `Bucket.get_range`."""
        ...


class BucketManifests:
    """The manifests and parts in a bucket."""

    is_behind = False

    def __init__(self, bucket: Bucket) -> None:
        self.url = bucket.url
        self._bucket = bucket

    def newest(self, known: Manifest | None) -> Manifest | None:
        """As `ManifestSource.newest`. A manifest that cannot be read is passed over."""
        listed = self._bucket.list(MANIFESTS, "" if known is None else known.moment.key)
        moments = sorted(moment for one in listed if (moment := Moment.of_key(one.key)) is not None)
        for moment in reversed(moments):
            if known is not None and moment <= known.moment:
                break
            try:
                return read_manifest(self._bucket, moment)
            except (Corrupt, ObjectMissing) as error:  # the owner deletes moments that need not be kept
                logger.warning("moment cannot be read: url=%s error=%s", self.url, error)
        return None

    def get(self, key: str) -> FoundObject:
        """As `Bucket.get`."""
        return self._bucket.get(key)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """As `Bucket.get_range`."""
        return self._bucket.get_range(key, start, stop)


class _Address(NamedTuple):
    """The bytes of a segment that a key names."""

    log: str
    segment: str
    start: int
    stop: int


class PartReader:
    """Reads parts by their keys: from the manifest that has them inline, from objects, or from what replaced them.

    The owner replaces small parts by larger ones, and deletes those that no kept moment names. The bytes of a segment
    never change, so the newest manifest says where they are then. `_guard` protects the contents. Threads: any.
    """

    def __init__(self, source: ManifestSource) -> None:
        self.url = source.url
        self._source = source
        self._manifest: Manifest | None = None
        self._inline: OrderedDict[str, bytes] = OrderedDict()
        self._guard = threading.Lock()

    def add(self, inline: Mapping[str, bytes]) -> None:
        """Keep the contents of inline parts by their keys."""
        with self._guard:
            for key, content in inline.items():
                self._inline[key] = content
                self._inline.move_to_end(key)
            while len(self._inline) > max(_INLINE_MAX, len(inline)):
                self._inline.popitem(last=False)

    def get(self, key: str) -> FoundObject:
        """As `Bucket.get`. Raises `PartsDropped` if the replica has no such segment any more."""
        if (inline := self._inline.get(key)) is not None:
            return FoundObject(inline, "")
        try:
            return self._source.get(key)
        except ObjectMissing as error:
            return FoundObject(self._replaced(key, 0, None, error), "")

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """As `Bucket.get_range`. Raises `PartsDropped` if the replica has no such segment any more."""
        if (inline := self._inline.get(key)) is not None:
            return inline[start:stop]
        try:
            return self._source.get_range(key, start, stop)
        except ObjectMissing as error:
            return self._replaced(key, start, stop, error)

    def _replaced(self, key: str, start: int, stop: int | None, error: ObjectMissing) -> bytes:
        """Return bytes of a part that is gone from the parts that have them now. Raises `error` if none should."""
        found = _KEY.match(key)
        if found is None:
            raise error
        base, end = int(found["start"]), int(found["stop"])
        wanted = _Address(found["log"], found["id"], base + start, end if stop is None else min(base + stop, end))
        manifest = self._manifest = self._source.newest(self._manifest) or self._manifest
        log = next((one for one in manifest.logs if f"{one.folder}/{one.id}" == wanted.log), None) if manifest else None
        segment = None if log is None else next((one for one in log.segments if one.id == wanted.segment), None)
        if log is None or segment is None:
            raise PartsDropped(
                f"{self.url} has no segment {found['stem']} of {wanted.log.rpartition('/')[0]} any more: retention has "
                "dropped it, or its log was deleted"
            ) from error
        pieces = []
        for part in segment.parts:
            if part.start < wanted.stop and part.stop > wanted.start:
                new = log.key(segment, part)
                if new == key:  # it should be there: somebody has deleted it
                    raise error
                pieces.append(self._piece(new, part, wanted))
        found_bytes = b"".join(pieces)
        if len(found_bytes) < wanted.stop - wanted.start:
            raise ReplicaUnavailable(f"{key} is not in {self.url} yet, and nobody else has it now: {error}") from error
        return found_bytes

    def _piece(self, key: str, part: Part, wanted: _Address) -> bytes:
        first, last = max(part.start, wanted.start) - part.start, min(part.stop, wanted.stop) - part.start
        return part.inline[first:last] if part.inline is not None else self._source.get_range(key, first, last)
