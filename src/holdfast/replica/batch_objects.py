"""Batches of other machines as objects of a bucket: finished parts, each batch committed by one object.

`incoming/parts/FILE` are parts as in the folder `incoming/` of a store; `incoming/batches/DIGEST-BATCH.json`, created
if absent, commits a batch; `incoming/refused/DIGEST-BATCH.json` says why the owner could not adopt it. The owner
deletes the commit when a manifest with the records is in the bucket. `incoming/newest` changes with each commit, so
that the owner need not list a bucket in which there is nothing new.
"""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from holdfast.base.bucket import Bucket, ObjectMissing
from holdfast.base.checked_json import decode_checked, encode_checked
from holdfast.base.errors import Corrupt, raised_by_handler
from holdfast.log.batch_inbox import Manifest

__all__ = ["BATCHES", "INCOMING", "NEWEST", "PARTS", "REFUSED", "BatchObjects", "Commit", "Outcome"]

INCOMING = "incoming/"
BATCHES, PARTS, REFUSED = f"{INCOMING}batches/", f"{INCOMING}parts/", f"{INCOMING}refused/"
NEWEST = f"{INCOMING}newest"
_FORMAT = 1

Outcome = Literal["waiting", "adopted", "refused"]


@dataclass(frozen=True, slots=True)
class Commit:
    """The content of a commit: the batch, and the checksums of its parts."""

    manifest: Manifest
    checksums: Mapping[str, int]
    """CRC-32C by the name of the part."""

    def encode(self) -> bytes:
        """Return the content of the object."""
        return encode_checked({"format": _FORMAT, **asdict(self.manifest), "checksums": dict(self.checksums)})

    @classmethod
    def decode(cls, raw: bytes, where: str) -> "Commit":
        """Return the content of an object. Raises `Corrupt`."""
        try:
            content = decode_checked(raw)
            if content.pop("format") != _FORMAT:
                raise ValueError("it was written by a newer version: upgrade this Holdfast")
            checksums = content.pop("checksums")
            return cls(Manifest.of(content), {str(name): int(value) for name, value in checksums.items()})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if raised_by_handler(error):
                raise
            raise Corrupt(f"the batch {where} is damaged: {error}", where) from error


class BatchObjects:
    """Writes batches into a bucket, and says what became of them. Threads: any."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self.url = bucket.url

    def send(self, name: str, content: bytes) -> None:
        """Write a part."""
        self._bucket.put(PARTS + name, content)

    def remove(self, names: list[str]) -> None:
        """Delete parts."""
        self._bucket.delete([PARTS + name for name in names])

    def remove_all(self, manifest: Manifest) -> None:
        """Delete all parts of a batch that will not be committed, also those of tasks that did not end."""
        start = f"{PARTS}{manifest.digest}-{manifest.batch}-"
        self._bucket.delete([one.key for one in self._bucket.list(PARTS) if one.key.startswith(start)])

    def commit(self, commit: Commit) -> bool:
        """Commit a batch; return False if another try has committed it, and its parts are the ones that count."""
        manifest, content = commit.manifest, commit.encode()
        with contextlib.suppress(ObjectMissing):
            self._bucket.get(REFUSED + manifest.file)
            self._bucket.delete([REFUSED + manifest.file])  # it is committed again, with other parts
        is_ours = self._bucket.put_if_absent(BATCHES + manifest.file, content) is not None
        if not is_ours:  # the answer of an earlier try was lost, or another driver was first
            with contextlib.suppress(ObjectMissing):
                is_ours = self._bucket.get(BATCHES + manifest.file).content == content
        # Also for the commit of another driver, which may have ended before it came to this.
        self._bucket.put(NEWEST, f"{manifest.file} {os.urandom(8).hex()}\n".encode())
        return is_ours

    def committed(self, manifest: Manifest) -> Commit | None:
        """Return the commit of a batch that is not adopted yet; None if there is none."""
        try:
            return Commit.decode(self._bucket.get(BATCHES + manifest.file).content, manifest.file)
        except ObjectMissing:
            return None

    def outcome(self, manifest: Manifest) -> Outcome:
        """Return what became of a committed batch."""
        if self._exists(BATCHES + manifest.file):
            return "waiting"
        return "refused" if self._exists(REFUSED + manifest.file) else "adopted"

    def _exists(self, key: str) -> bool:
        try:
            self._bucket.get_range(key, 0, 1)
            return True
        except ObjectMissing:
            return False
