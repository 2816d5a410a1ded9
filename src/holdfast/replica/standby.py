"""A standby: follows a replica with a warm copy, and takes over when the claim of the owner has run out."""

import contextlib
import logging
import os
import socket
import threading
from dataclasses import replace
from types import TracebackType
from typing import Self

from holdfast.base.bucket import Bucket, ObjectMissing
from holdfast.base.clock import Clock, SystemClock
from holdfast.base.errors import Corrupt, HoldfastError, InvalidArgument, NotFound, ReplicaError, ReplicaFenced
from holdfast.base.files import Files, Lock, SystemFiles, translate_os_errors
from holdfast.base.paths import local_path
from holdfast.replica.bucket import open_bucket
from holdfast.replica.identity import StoreIds, identity_of, place_of_folder, read_ids, write_ids
from holdfast.replica.manifest import Manifest, Moment, read_manifest, read_newest_manifest
from holdfast.replica.owner import OWNER, RENEW_S, TTL_S, OwnerRecord, Ownership, margin_of, poll_of, read_owner
from holdfast.replica.promotion_request import PromotionRequest, read_request
from holdfast.replica.standby_copy import Progress, StandbyCopy
from holdfast.replica.standby_status import StandbyRole, StandbyStatus
from holdfast.replica.standbys import Announcement, StandbyRecord
from holdfast.store import Store
from holdfast.store import open as open_store
from holdfast.store_layout import LOCK, STANDBY_FILE

__all__ = ["Standby", "is_owner"]

logger = logging.getLogger("holdfast.replica")

_AFTER_ERROR_S = 5.0


def is_owner(replica: str | Bucket, data: str | os.PathLike[str], *, files: Files | None = None) -> bool:
    """Return whether nobody has claimed the replica since the store in this folder was shipped to it.

    Then the store is opened as it is: a standby would have to wait until its own claim has run out. Raises
    `ReplicaUnavailable`.
    """
    files, folder = files or SystemFiles(), local_path(data)
    ids = read_ids(files, folder)
    if not ids.instance or files.exists(folder / STANDBY_FILE):
        return False
    record = read_owner(open_bucket(replica) if isinstance(replica, str) else replica)
    return record is not None and record.instance == ids.instance and record.place == place_of_folder(folder)


class Standby:
    """Follows a replica in a folder; also a context manager. Files: see `StandbyCopy`, and the lock of the store.

    One thread calls `tick`, `follow` or `open`; `status`, `promote` and `stop` may be called from any. Times are those
    of the monotonic clock of this process. Invariants: it takes over only with a whole moment, only after the claim
    that it watched has not been renewed for its ttl, and automatically only from an owner that yields.
    """

    def __init__(
        self,
        replica: str | Bucket,
        data: str | os.PathLike[str],
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        group_readable: bool = False,
        ttl: float | None = None,
        discard: bool = False,
        progress: Progress | None = None,
    ) -> None:
        """Take the lock of the folder. Nothing is read before the first `tick`.

        `ttl` is how long the claims of this process last. With `discard`, records in the folder that the replica lacks
        are removed; otherwise they are refused. Raises `Locked`.
        """
        self.path = local_path(data)
        self._bucket = open_bucket(replica) if isinstance(replica, str) else replica
        self.url = self._bucket.url
        self._files: Files = files or SystemFiles(group_readable=group_readable)
        self._clock: Clock = clock or SystemClock()
        self._group_readable = group_readable
        self._ttl = TTL_S if ttl is None else ttl
        self._discard = discard
        self._progress = progress
        with translate_os_errors("opening the standby", self.path):
            self._files.make_dirs(self.path)
            self._lock: Lock = self._files.lock(self.path / LOCK)
        self._copy = StandbyCopy(self._files, self.path, self._bucket)
        self._has_begun = self._has_followed = False
        self._id = self._files.random_bytes(16).hex()
        self._announcement = Announcement(self._bucket, self._clock, self._announce)
        self._role: StandbyRole = "standby"
        self._ownership: Ownership | None = None
        self._record: OwnerRecord | None = None
        self._etag = ""
        self._seen_at = self._clock.monotonic()
        """When `_etag` was first seen."""
        self._request: PromotionRequest | None = None
        self._asked_at = float("-inf")
        self._promoting_by_hand = threading.Event()
        self._current_at = self._clock.monotonic()
        """When the copy was last known to be of the newest moment."""
        self._is_behind = True
        self._fetched = 0
        self._error: str | None = None
        self._stopping = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def follow(self) -> bool:
        """Follow until this standby has taken over (True) or was stopped (False). Problems of the bucket are retried.

        Raises `ReplicaError` at once if the folder cannot follow this replica.
        """
        while not self._stopping.is_set():
            try:
                if self.tick():
                    return True
                pause = poll_of(self._ttl)
            except HoldfastError as error:
                if not self._has_followed and type(error) in (ReplicaError, ReplicaFenced):
                    raise
                pause = min(_AFTER_ERROR_S, self._ttl / 3)
            self._stopping.wait(pause)
        return False

    def tick(self) -> bool:
        """Do what is due; return whether this standby has taken over: then call `open`. Call about once a second."""
        try:
            with translate_os_errors("following a replica in", self.path):
                done = self._advance()
        except HoldfastError as error:
            if self._error != str(error):
                logger.warning("standby failed, will retry: url=%s error=%s", self.url, error)
            self._error = str(error)
            raise
        self._error, self._has_followed = None, True
        return done

    def promote(self) -> None:
        """Let this standby take over as soon as the owner does not live, whether that yields or not."""
        self._promoting_by_hand.set()

    def open(self, *, background: bool = True) -> Store:
        """Open the store that this standby has taken over, and ship it from here on.

        Raises `ReplicaFenced` if another standby has taken over meanwhile: then make another `Standby` with `discard`.
        """
        if self._role != "promoted":
            raise InvalidArgument(f"the standby in {str(self.path)!r} has not taken over: call tick until it has")
        self.close()
        simulated = None if isinstance(self._files, SystemFiles) else self._files
        return open_store(
            self.path,
            files=simulated,
            clock=None if simulated is None else self._clock,
            background=background,
            group_readable=self._group_readable or None if simulated is None else None,
            replica=self._bucket,
            replica_ttl=self._ttl,
        )

    def status(self) -> StandbyStatus:
        """Return what this standby has, how far it is behind, and what is wrong."""
        record, manifest, now = self._record, self._copy.manifest, self._clock.monotonic()
        ownership = self._ownership
        return StandbyStatus(
            url=self.url,
            role=self._role,
            owner="" if record is None else record.place,
            epoch=ownership.epoch if ownership is not None and ownership.epoch else record.epoch if record else 0,
            yields=record is not None and record.yields,
            moment=None if manifest is None else manifest.moment.name,
            moment_time=None if manifest is None else manifest.moment.time,
            is_warm=manifest is not None,
            lag_seconds=max(0.0, now - self._current_at) if self._is_behind else 0.0,
            bytes=0 if manifest is None else manifest.size,
            fetched_bytes=self._fetched,
            owner_quiet_seconds=max(0.0, now - self._seen_at),
            error=self._error,
        )

    def stop(self) -> None:
        """Let `follow` return soon."""
        self._stopping.set()

    def close(self) -> None:
        """Withdraw the announcement, and release the lock of the folder. The copy stays as it is."""
        self._stopping.set()
        with contextlib.suppress(HoldfastError):  # otherwise the owner notices within a minute
            self._announcement.withdraw()
        self._lock.release()

    def abandon(self) -> None:
        """Release the lock of the folder, and nothing else: for tests of a process that is killed."""
        self._stopping.set()
        self._lock.release()

    def _advance(self) -> bool:
        if self._role == "standby":
            self._look()
            record = self._record
            if record is None:
                raise NotFound(f"there is no replica at {self.url} yet: start its owner, or check the URL")
            if not self._has_begun:
                self._copy.begin(lambda: read_newest_manifest(self._bucket, record.last), discard=self._discard)
                self._has_begun = True
            self._keep_up(record)
            self._beat()
            if self._is_due(record):
                self._claim(record)
        if self._role == "promoting":
            self._finish()
        return self._role == "promoted"

    def _look(self) -> None:
        """Read the record of the owner, and note when it changed."""
        try:
            found = self._bucket.get(OWNER)
        except ObjectMissing:
            self._record = None
            return
        if found.etag != self._etag:
            self._record = OwnerRecord.decode(found.content, f"{self.url}/{OWNER}")
            self._etag, self._seen_at = found.etag, self._clock.monotonic()

    def _keep_up(self, record: OwnerRecord) -> None:
        """Bring the copy to the last moment that the owner has noted."""
        have, last = self._copy.manifest, Moment.of_key(record.last)
        self._is_behind = last is not None and (have is None or have.moment < last)
        if last is not None and self._is_behind:
            self._apply(self._read(last))
            self._is_behind = False
        self._current_at = self._clock.monotonic()

    def _read(self, moment: Moment) -> Manifest:
        manifest = read_manifest(self._bucket, moment)
        have = self._copy.manifest
        if have is not None and have.store != manifest.store:
            raise ReplicaError(
                f"{self.url} holds the replica of another store than {str(self.path)!r}: use another folder"
            )
        return manifest

    def _apply(self, manifest: Manifest) -> None:
        fetched = self._copy.apply(manifest, beat=self._beat, progress=self._progress)
        self._fetched += fetched.bytes

    def _beat(self) -> None:
        """Renew the announcement of a warm standby, or the claim, and look for a request to promote."""
        if self._ownership is not None and self._role == "promoting":
            self._ownership.renew_if_due()
            return
        every = RENEW_S * self._ttl / TTL_S
        now = self._clock.monotonic()
        if self._copy.manifest is not None and now - self._asked_at >= every:
            self._asked_at = now
            self._announcement.renew_if_due(every)
            self._request = read_request(self._bucket)

    def _announce(self, count: int) -> StandbyRecord:
        manifest = self._copy.manifest
        return StandbyRecord(
            self._id,
            place_of_folder(self.path),
            socket.gethostname(),
            os.getpid(),
            count,
            self._clock.time_ns(),
            "" if manifest is None else manifest.moment.name,
        )

    def _is_due(self, record: OwnerRecord) -> bool:
        """Return whether to take over now. With a request that is forced, the owner is asked to hand over first."""
        if self._copy.manifest is None:
            return False
        request = self._request
        is_asked = self._promoting_by_hand.is_set() or (
            request is not None and request.epoch == record.epoch and request.standby in ("", self._id)
        )
        if is_asked and record.released:
            return True
        if is_asked and request is not None and request.force and not record.deposed and not record.released:
            self._depose(record)
            return False
        # Also a released claim runs out first: an owner that is only restarted takes it again at once.
        if self._clock.monotonic() - self._seen_at < record.ttl + margin_of(record.ttl):
            return False
        return record.yields or is_asked

    def _depose(self, record: OwnerRecord) -> None:
        """Ask a living owner to hand over; if it does not, its claim runs out."""
        asked = replace(record, deposed=True, count=record.count + 1)
        logger.warning("owner asked to hand over: url=%s epoch=%d owner=%s", self.url, record.epoch, record.place)
        self._bucket.compare_and_swap(OWNER, asked.encode(), self._etag)

    def _claim(self, record: OwnerRecord) -> None:
        if self._ownership is None:
            known = read_ids(self._files, self.path)
            ids = StoreIds(record.store, known.instance or self._files.random_bytes(16).hex(), known.epoch, yields=True)
            write_ids(self._files, self.path, ids)
            who = identity_of(self._files, self.path, ids)
            self._ownership = Ownership(self._bucket, self._clock, who, ttl=self._ttl, bound=True)
        if self._ownership.take_over(record, self._etag):
            self._role = "promoting"
            level = logging.INFO if record.released else logging.WARNING
            epoch, before = self._ownership.epoch, record.place
            logger.log(level, "standby takes over: url=%s epoch=%d before=%s", self.url, epoch, before)

    def _finish(self) -> None:
        """Fetch the last moment of the owner before, and make the folder a store."""
        ownership = self._ownership
        assert ownership is not None
        try:
            ownership.renew_if_due()
            manifest = read_newest_manifest(self._bucket, ownership.last)
            if manifest is not None:
                self._apply(manifest)
            ownership.renew()  # so that the store has a whole ttl to open
            ownership.check()
        except ReplicaFenced:
            logger.warning("another standby has taken over: url=%s", self.url)
            self._role, self._ownership = "standby", None
            raise
        except Corrupt as error:
            logger.error("last moment cannot be used: url=%s error=%s", self.url, error)
            raise
        self._copy.finish(ownership.epoch)
        self._role, self._is_behind = "promoted", False
