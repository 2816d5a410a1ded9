"""Detection of objects that somebody has deleted or cut from a bucket, and their upload from the local disk."""

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from holdfast.base.bucket import Bucket, ObjectMissing
from holdfast.base.checksum import crc32c
from holdfast.base.clock import Clock
from holdfast.base.errors import ReplicaError
from holdfast.base.files import Files
from holdfast.replica.manifest import LogEntry, Moment, Part
from holdfast.replica.owner import Ownership

__all__ = ["ObjectCheck"]

logger = logging.getLogger("holdfast.replica")

_EVERY_S = 3600.0
"""A listing is one request for 1,000 objects, and costs as much as a PUT."""
_AGAIN_S = 60.0
"""After an error: retention may drop what cannot be put back."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """An object that the last manifest names, and the bytes of the segment that it holds."""

    part: Part
    path: Path


class ObjectCheck:
    """Compares the bucket's listing with the last manifest, once an hour, and puts back what is missing.

    An object has the same key and the same bytes as before, so all moments that name it are whole again. Objects that
    only earlier moments name cannot be put back: the store has dropped their records. Changes that keep the size are
    found by `holdfast replica verify`. For the thread of the shipper.
    """

    def __init__(self, bucket: Bucket, files: Files, clock: Clock, path: Path, ownership: Ownership) -> None:
        self.repaired = 0
        """Objects that were uploaded again."""
        self._bucket = bucket
        self._files = files
        self._clock = clock
        self._path = path
        self._ownership = ownership
        self._due_at = clock.monotonic() + _EVERY_S
        self._error: ReplicaError | None = None
        """What the last check found, until the next one."""

    def tick(self, known: Mapping[str, LogEntry], moment: Moment | None) -> bool:
        """Check if it is due; return whether the manifest of this moment, the last one, is gone.

        Raises `ReplicaError` if an object can be neither found nor uploaded again.
        """
        if self._clock.monotonic() < self._due_at:
            if self._error is not None:
                raise self._error
            return False
        self._due_at = self._clock.monotonic() + _EVERY_S
        self._error = None
        try:
            return self.check(known, moment)
        except ReplicaError as error:
            self._due_at = self._clock.monotonic() + _AGAIN_S
            self._error = error
            raise

    def check(self, known: Mapping[str, LogEntry], moment: Moment | None) -> bool:
        """As `tick`, now."""
        sizes = {one.key: one.size for one in self._bucket.list("")}
        lost: list[str] = []
        for key, wanted in self._wanted(known):
            if sizes.get(key) != wanted.part.size and (key in sizes or not self._is_there(key)):
                self._ownership.check()
                if self._upload(key, wanted):
                    self.repaired += 1
                    logger.warning("object was gone, uploaded again: url=%s key=%s", self._bucket.url, key)
                else:
                    lost.append(key)
        if lost:
            raise ReplicaError(
                f"{self._bucket.url}/{lost[0]} was deleted or cut by somebody"
                + (f", and {len(lost) - 1} more" if len(lost) > 1 else "")
                + ": the store does not have these bytes any more, so its moments cannot be restored. Restore the "
                "object from a version of the bucket, or ship the store to another prefix"
            ).of("damaged")
        return moment is not None and moment.key not in sizes and not self._is_there(moment.key)

    def _wanted(self, known: Mapping[str, LogEntry]) -> Iterator[tuple[str, _Wanted]]:
        for log in known.values():
            for segment in log.segments:
                path = self._path / log.folder / f"{segment.name}.data"
                for part in segment.parts:
                    yield log.key(segment, part), _Wanted(part, path)

    def _is_there(self, key: str) -> bool:
        """Return whether an object is there although it was not listed: some listings lag behind."""
        try:
            self._bucket.get_range(key, 0, 1)
            return True
        except ObjectMissing:
            return False

    def _upload(self, key: str, wanted: _Wanted) -> bool:
        """Upload the bytes of a part from the local disk; return False if they are not there any more."""
        part = wanted.part
        try:
            with contextlib.closing(self._files.open(wanted.path, "r")) as file:
                content = file.read(part.size, part.start)
        except FileNotFoundError:
            return False
        if len(content) < part.size or crc32c(content) != part.checksum:
            return False
        self._bucket.put(key, content)
        return True
