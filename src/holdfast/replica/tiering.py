"""Tiering: what a store has only in the bucket is checked when it opens; shipped segments leave the local disk."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial

from holdfast.base.bucket import Bucket
from holdfast.base.errors import HoldfastError, ReplicaError
from holdfast.log.remote_segments import RemoteSource
from holdfast.log.segment import Segment
from holdfast.log.tiering import ShippedPart
from holdfast.replica.manifest import LogEntry, Part
from holdfast.replica.owner import Ownership
from holdfast.replica.source import LogCut, ReplicaSource

__all__ = ["Tiering", "check_remote", "parts_of"]

logger = logging.getLogger("holdfast.replica")


class Tiering:
    """Deletes segments of open logs from the local disk, by their local retention. For the thread of the replica.

    Only what the last manifest names, which is in the bucket, and only while this process owns the replica.
    """

    def __init__(self, url: str, source: ReplicaSource, ownership: Ownership) -> None:
        self._url = url
        self._source = source
        self._ownership = ownership
        self._errors: dict[str, str] = {}
        """By log: why nothing could be deleted last."""

    def apply(self, known: Mapping[str, LogEntry]) -> None:
        """Delete what is due; `known` are the logs of the last manifest that was put. Failures are logged, once each.

        Raises `ReplicaError` if this process does not own the replica.
        """
        for folder, log in self._source.tiered():
            entry = known.get(folder)
            if entry is None or entry.id != log.id.hex():
                continue
            self._ownership.check()
            try:
                log.tiering.evict(partial(_shipped, _by_id(entry)), self._url, entry.id)
                self._errors.pop(folder, None)
            except HoldfastError as error:  # the disk, or the log was closed: tried again in the next round
                if self._errors.get(folder) != str(error):
                    logger.warning("local retention failed, will retry: log=%s error=%s", log.name, error)
                self._errors[folder] = str(error)


def parts_of(remote: RemoteSource) -> tuple[Part, ...]:
    """Return the parts of a segment that is only in the bucket, as in manifests."""
    return tuple(Part(one.start, one.stop, one.checksum, one.epoch) for one in remote.entry.parts)


def check_remote(bucket: Bucket, logs: Sequence[LogCut], known: Mapping[str, LogEntry]) -> None:
    """Raise `ReplicaError` unless all that the logs have only in a bucket is in this one; `known` is its last manifest.

    What the manifest does not name is looked for: the newest one may be damaged, and an earlier one not name it yet.
    """
    for log in logs:
        remote = [cut.segment.remote for cut in log.segments or () if cut.segment.remote is not None]
        entry = known.get(log.folder)
        named = set() if entry is None else {key for key, _ in entry.parts()}
        wanted = {one.key(part): part.size for one in remote for part in one.entry.parts}
        if not wanted.keys() - named:
            continue
        sizes = {one.key: one.size for one in bucket.list(f"{log.folder}/{log.id}/")}
        missing = [key for key, size in wanted.items() if key not in named and sizes.get(key) != size]
        if missing:
            raise ReplicaError(
                f"{bucket.url} lacks {len(missing)} objects with records of {log.folder} that are not on the local "
                f"disk, such as {missing[0]}: they were shipped to {remote[0].url}. Open the store with that replica; "
                "or copy all objects of that prefix to this one first"
            )


def _by_id(entry: LogEntry) -> dict[str, Sequence[ShippedPart]]:
    """Return the parts of the segments that are objects as a whole: an inline part goes with its manifest."""
    return {
        one.id: [(part.stop, part.checksum, part.epoch) for part in one.parts]
        for one in entry.segments
        if all(part.inline is None for part in one.parts)
    }


def _shipped(parts: Mapping[str, Sequence[ShippedPart]], segment: Segment) -> Sequence[ShippedPart] | None:
    return parts.get(f"{segment.segment_id:016x}")
