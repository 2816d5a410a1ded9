"""Adoption of batches from the bucket of a replica: the owner fetches them into the inbox of its store."""

import contextlib
import logging
import re
from collections.abc import Iterable
from dataclasses import replace

from holdfast.base.bucket import Bucket, ObjectMissing
from holdfast.base.checked_json import encode_checked
from holdfast.base.checksum import crc32c
from holdfast.base.clock import Clock
from holdfast.base.errors import Corrupt
from holdfast.base.files import Files, translate_os_errors, write_all
from holdfast.log.batch_inbox import ORPHAN_NS, BatchInbox, Manifest, Part
from holdfast.log.part_buffer import block_list
from holdfast.replica.batch_objects import BATCHES, NEWEST, PARTS, REFUSED, Commit
from holdfast.replica.owner import Ownership

__all__ = ["BucketInbox"]

logger = logging.getLogger("holdfast.replica")

_IDLE_S, _BUSY_S = 5.0, 0.5
"""How often the bucket is asked for batches: 17,280 times a day, and more often for a minute after there was one."""
_BUSY_FOR_S = 60.0
_SWEEP_S = 3600.0
_GUARD_S = 10.0
_PART = re.compile(r"(?P<digest>[0-9a-f]{24})-(?P<batch>\d+)-(?P<time>\d+)-[0-9a-f]+\.part\Z")


class BucketInbox:
    """Fetches batches that were committed to the bucket, and deletes their objects once a manifest has the records.

    A batch is adopted once, whatever is interrupted: the note that it was adopted is shipped in the same moment as its
    records, and its objects are deleted after that. Only the owner of the replica does anything. For one thread at a
    time.
    """

    def __init__(self, bucket: Bucket, files: Files, clock: Clock, inbox: BatchInbox, ownership: Ownership) -> None:
        self._bucket = bucket
        self._files = files
        self._clock = clock
        self._inbox = inbox
        self._ownership = ownership
        self._held: dict[str, Commit] = {}
        """Batches that are in the inbox of the store, or were adopted, by the keys of their commits."""
        self._due_at = clock.monotonic()
        self._seen_at = float("-inf")
        self._known: bytes | None = None
        """The content of `incoming/newest` at the last listing."""
        self._sweep_at = clock.monotonic() + _SWEEP_S

    def poll(self) -> None:
        """Fetch batches if that is due, in the order in which they were committed. Raises `ReplicaError`."""
        now = self._clock.monotonic()
        if now < self._due_at:
            return
        newest = self._newest()
        if newest != self._known:
            self._seen_at = now
        self._due_at = now + (_BUSY_S if now - self._seen_at < _BUSY_FOR_S else _IDLE_S)
        if newest == self._known and now < self._sweep_at:
            return
        keys = [one.key for one in self._bucket.list(BATCHES)]
        found = [(commit, key) for key in keys if key not in self._held and (commit := self._read(key)) is not None]
        for commit, key in sorted(found, key=lambda one: (one[0].manifest.created, one[1])):
            # If one cannot be fetched now, later ones wait: a query's batches are adopted in their order.
            self._fetch(commit, key)
        self._known = newest
        if now >= self._sweep_at:
            self._sweep_at = now + _SWEEP_S
            self._sweep({part.file for commit in self._held.values() for part in commit.manifest.parts})

    def settled(self) -> list[str]:
        """Return the keys of batches that the store has adopted, or has refused. Call it before a cut."""
        return [key for key, one in self._held.items() if self._is_over(one.manifest)]

    def shipped(self, keys: Iterable[str]) -> None:
        """Delete the objects of batches that were settled before a cut that is in the bucket now."""
        for key in keys:
            manifest = self._held[key].manifest
            self._ownership.check()
            if self._inbox.refused(manifest):
                self._refuse(key, "see the log of the process that owns the store: it is kept there as *.bad")
            self._bucket.delete([key])
            self._bucket.delete([PARTS + part.file for part in manifest.parts])
            if not manifest.once:  # it will not be committed again
                self._inbox.forget(manifest)
            del self._held[key]

    def _newest(self) -> bytes | None:
        """Return what changes with each commit; None if there never was one."""
        try:
            return self._bucket.get(NEWEST).content
        except ObjectMissing:
            return None

    def _is_over(self, manifest: Manifest) -> bool:
        return self._inbox.last_done(manifest) >= manifest.batch or self._inbox.refused(manifest)

    def _read(self, key: str) -> Commit | None:
        """Return a commit; None if it is gone, or is damaged and was refused."""
        try:
            return Commit.decode(self._bucket.get(key).content, f"{self._bucket.url}/{key}")
        except ObjectMissing:
            return None
        except Corrupt as error:
            self._refuse(key, str(error))
            self._bucket.delete([key])
            return None

    def _fetch(self, commit: Commit, key: str) -> None:
        manifest = commit.manifest
        if not self._inbox.is_known(manifest):
            self._ownership.check()
            try:
                with translate_os_errors("fetching a batch into", self._inbox.folder):
                    self._files.make_dirs(self._inbox.parts)
                    for part in manifest.parts:
                        self._fetch_part(part, commit.checksums.get(part.file))
            except Corrupt as error:
                self._inbox.discard(part.file for part in manifest.parts)
                self._refuse(key, str(error))
                self._bucket.delete([key, *(PARTS + part.file for part in manifest.parts)])
                return
            with self._inbox.guarded(_GUARD_S):  # the store may be adopting another one
                # Its key is kept until its commit is deleted, so that it is never adopted twice.
                self._inbox.hand_over(replace(manifest, once=True))
        self._held[key] = commit

    def _fetch_part(self, part: Part, checksum: int | None) -> None:
        where = f"{self._bucket.url}/{PARTS}{part.file}"
        try:
            content = self._bucket.get(PARTS + part.file).content
        except ObjectMissing as error:
            raise Corrupt(f"{where} is missing", where) from error
        if checksum is None or crc32c(content) != checksum:
            raise Corrupt(f"{where} is damaged: its checksum does not match", where)
        for name, data in ((part.file, content), (part.file + ".blocks", block_list(content, part, where))):
            path = self._inbox.parts / name
            if self._files.exists(path):  # of a fetch that was interrupted
                self._files.remove(path)
            with contextlib.closing(self._files.open(path, "x")) as file:
                write_all(file, data, 0)
                file.sync()

    def _refuse(self, key: str, reason: str) -> None:
        logger.error("batch rejected: key=%s reason=%s", key, reason)
        self._ownership.check()
        self._bucket.put(REFUSED + key.removeprefix(BATCHES), encode_checked({"format": 1, "reason": reason}))

    def _sweep(self, wanted: set[str]) -> None:
        """Delete parts that no batch names and that are older than a day: of tasks that failed."""
        now = self._clock.time_ns()
        old = []
        for one in self._bucket.list(PARTS):
            found = _PART.match(one.key.removeprefix(PARTS))
            if found and one.key.removeprefix(PARTS) not in wanted and now - int(found["time"]) > ORPHAN_NS:
                old.append(one.key)
        if old:
            self._ownership.check()
            self._bucket.delete(old)
            logger.info("removed abandoned parts of batches: url=%s count=%d", self._bucket.url, len(old))
