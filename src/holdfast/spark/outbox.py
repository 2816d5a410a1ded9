"""Where the sink puts its batches: the folder of a store, the bucket of its replica, or its server."""

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol

import holdfast
from holdfast.base.errors import Corrupt, HoldfastError, Locked, NotFound, StorageError
from holdfast.base.files import SystemFiles, translate_os_errors
from holdfast.log.batch_inbox import BatchInbox, Manifest, Part, PartWriter
from holdfast.log.compression import Codec
from holdfast.log.layout import EncodedBlock
from holdfast.log.part_buffer import PartBuffer
from holdfast.replica.batch_objects import BatchObjects, Commit
from holdfast.replica.bucket import open_bucket
from holdfast.replica.manifest_files import ROOT, ManifestFiles
from holdfast.spark.store_access import StoreAccess, is_server

__all__ = ["BucketOutbox", "FolderOutbox", "Outbox", "Parts", "PartsWriter", "ServedOutbox", "outbox_of"]

logger = logging.getLogger("holdfast.spark")

_PAUSES_S = (0.1, 0.2, 0.5, 1.0)


@dataclass
class Parts:
    """The parts of a batch, or of one task of it."""

    parts: list[Part]
    checksums: dict[str, int]
    """CRC-32C by name; empty in a folder."""

    @classmethod
    def of(cls, several: Sequence["Parts"]) -> "Parts":
        """Return the parts of several tasks, in this order."""
        return cls(
            [part for one in several for part in one.parts],
            {name: value for one in several for name, value in one.checksums.items()},
        )


class PartsWriter(Protocol):
    """Writes the parts of one task."""

    def put(self, sealed: EncodedBlock) -> None:
        """Add a block."""
        ...

    def finish(self) -> list[Part]:
        """Return all parts, which are durable."""
        ...

    def close_discarding(self) -> None:
        """Delete all parts, after the task failed."""
        ...


class Outbox(Protocol):
    """One place to which batches are written. Each task makes one, and the driver."""

    def check(self) -> None:
        """Raise an error before any task runs if nothing can be written there."""
        ...

    def log_of(self, queue: str) -> str:
        """Return the log of a queue; the name of the queue if there is none yet."""
        ...

    def writer(self, manifest: Manifest, codec: Codec | None) -> PartsWriter:
        """Return a writer for one task of a batch."""
        ...

    def hand_over(self, manifest: Manifest, written: Parts, wait: float) -> None:
        """Commit a batch, and wait so many seconds until it is adopted. Raises `Corrupt` if the owner refuses it.

        A batch that was committed before is not added again. If it is not adopted in time, that is logged.
        """
        ...

    def is_known(self, manifest: Manifest) -> bool:
        """Return whether this batch, or a later one of the query, was committed before."""
        ...

    def take_back(self, manifest: Manifest, written: Parts, wait: float) -> None:
        """Delete the parts of a failed batch, unless it was committed before it failed."""
        ...


class FolderOutbox:
    """The folder `incoming/` of a store that this machine can reach. If no process owns the store, this adopts."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def check(self) -> None:
        """As `Outbox.check`."""
        path = self._path
        with translate_os_errors("looking for a store in", path):
            there = next(folder for folder in (path, *path.parents) if folder.exists())
        if not there.is_dir():
            raise NotFound(
                f"{str(there)!r} is a file, so {str(path)!r} cannot be the folder of a store: check the option 'path'"
            )
        if not os.access(there, os.W_OK | os.X_OK):
            raise StorageError(f"cannot write to {str(there)!r}: this process lacks the permission")

    def log_of(self, queue: str) -> str:
        """As `Outbox.log_of`."""
        if not self._path.is_dir():
            return queue
        with holdfast.open(self._path, read_only=True) as store:
            return store.log_of(queue)

    def writer(self, manifest: Manifest, codec: Codec | None) -> PartsWriter:
        """As `Outbox.writer`."""
        return PartWriter(self._inbox(), manifest, codec, time.time_ns())

    def hand_over(self, manifest: Manifest, written: Parts, wait: float) -> None:
        """As `Outbox.hand_over`."""
        incoming, deadline = self._inbox(), time.monotonic() + wait
        manifest = replace(manifest, parts=written.parts)
        with incoming.guarded(wait):
            if not incoming.hand_over(manifest):
                logger.info("batch repeated and not added: batch=%d query=%s", manifest.batch, manifest.query)
        while incoming.waits(manifest) and not incoming.refused(manifest):
            if not self._adopt() and time.monotonic() > deadline:
                _warn_late(manifest, str(self._path))
                return
        if incoming.refused(manifest):
            raise _refused(manifest, str(self._path))

    def is_known(self, manifest: Manifest) -> bool:
        """As `Outbox.is_known`."""
        return self._inbox().is_known(manifest)

    def take_back(self, manifest: Manifest, written: Parts, wait: float) -> None:
        """As `Outbox.take_back`."""
        incoming = self._inbox()
        with incoming.guarded(wait):
            if not incoming.is_known(manifest):
                incoming.drop(replace(manifest, parts=written.parts))
                if not manifest.once:
                    incoming.drop_all(manifest)

    def _inbox(self) -> BatchInbox:
        return BatchInbox(SystemFiles.of_store(self._path), self._path)

    def _adopt(self) -> bool:
        """Adopt all committed batches; return False, after a pause, if another process owns the store."""
        try:
            with holdfast.open(self._path, background=False) as store:
                store.adopt()
            return True
        except Locked:
            time.sleep(0.02)
            return False


class BucketOutbox:
    """The objects below `incoming/` in the bucket of a replica. Its owner fetches and adopts them."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._objects = BatchObjects(open_bucket(url))

    def check(self) -> None:
        """As `Outbox.check`."""
        self._files()

    def log_of(self, queue: str) -> str:
        """As `Outbox.log_of`."""
        with holdfast.open(ROOT, read_only=True, files=self._files()) as store:
            return store.log_of(queue)

    def writer(self, manifest: Manifest, codec: Codec | None) -> PartsWriter:
        """As `Outbox.writer`."""
        return PartBuffer(manifest, time.time_ns(), self._objects.send, self._objects.remove)

    def hand_over(self, manifest: Manifest, written: Parts, wait: float) -> None:
        """As `Outbox.hand_over`. The batch counts as adopted when a moment of the replica has it."""
        deadline = time.monotonic() + wait
        manifest = replace(manifest, parts=written.parts)
        names = [part.file for part in written.parts]
        if self._is_adopted(manifest) or not self._objects.commit(Commit(manifest, written.checksums)):
            logger.info("batch repeated and not added: batch=%d query=%s", manifest.batch, manifest.query)
            committed = self._objects.committed(manifest)
            kept = set() if committed is None else {part.file for part in committed.manifest.parts}
            self._objects.remove([name for name in names if name not in kept])
        tries = 0
        while (outcome := self._objects.outcome(manifest)) == "waiting":
            if time.monotonic() > deadline:
                _warn_late(manifest, self._url)
                return
            time.sleep(_PAUSES_S[min(tries, len(_PAUSES_S) - 1)])
            tries += 1
        if outcome == "refused":
            raise _refused(manifest, self._url)

    def is_known(self, manifest: Manifest) -> bool:
        """As `Outbox.is_known`."""
        return self._objects.committed(manifest) is not None or self._is_adopted(manifest)

    def take_back(self, manifest: Manifest, written: Parts, wait: float) -> None:
        """As `Outbox.take_back`."""
        if not self.is_known(manifest):
            self._objects.remove([part.file for part in written.parts])
            if not manifest.once:
                self._objects.remove_all(manifest)

    def _is_adopted(self, manifest: Manifest) -> bool:
        """Return whether the newest moment has this batch, or a later one of the query."""
        return BatchInbox(self._files(), ROOT).last_done(manifest) >= manifest.batch

    def _files(self) -> ManifestFiles:
        files = StoreAccess(ROOT, self._url).open_files()
        if not isinstance(files, ManifestFiles):
            raise NotFound(
                f"{self._url!r} has no replica, so nobody would adopt what is written there: give the folder of a "
                "store, the URL of its replica or that of its server"
            )
        return files


class ServedOutbox:
    """The server of a store. It adopts a batch before it answers, or within its patience."""

    def __init__(self, access: StoreAccess) -> None:
        self._url = access.url
        self._batches = access.batches

    def check(self) -> None:
        """As `Outbox.check`. Whether this user may write to the target is checked by `target`."""
        self._batches.check()

    def log_of(self, queue: str) -> str:
        """As `Outbox.log_of`."""
        return self._batches.target(None, queue, "")[0]

    def writer(self, manifest: Manifest, codec: Codec | None) -> PartsWriter:
        """As `Outbox.writer`."""
        send, remove = partial(self._batches.send, manifest), partial(self._batches.remove, manifest)
        return PartBuffer(manifest, time.time_ns(), send, remove)

    def hand_over(self, manifest: Manifest, written: Parts, wait: float) -> None:
        """As `Outbox.hand_over`."""
        outcome, repeated = self._batches.commit(replace(manifest, parts=written.parts), wait)
        if repeated:
            logger.info("batch repeated and not added: batch=%d query=%s", manifest.batch, manifest.query)
        if outcome == "waiting":
            _warn_late(manifest, self._url)
        if outcome == "refused":
            raise _refused(manifest, self._url)

    def is_known(self, manifest: Manifest) -> bool:
        """As `Outbox.is_known`."""
        return self._batches.target(manifest.log, manifest.queue, manifest.query)[1] >= manifest.batch

    def take_back(self, manifest: Manifest, written: Parts, wait: float) -> None:
        """As `Outbox.take_back`. The server keeps the parts of a committed batch."""
        self._batches.remove(manifest, [part.file for part in written.parts])


def outbox_of(access: StoreAccess) -> Outbox:
    """Return where the batches for a store are put."""
    if is_server(access.url):
        return ServedOutbox(access)
    return BucketOutbox(access.url) if access.url else FolderOutbox(access.path)


def _warn_late(manifest: Manifest, place: str) -> None:
    logger.warning("batch committed and not adopted yet: batch=%d path=%s", manifest.batch, place)


def _refused(manifest: Manifest, place: str) -> HoldfastError:
    return Corrupt(
        f"the store {place!r} could not adopt batch {manifest.batch}: its parts are damaged. See the log of the "
        f"process that owns the store; the batch is kept as {manifest.file}.bad"
    )
