"""Ownership of a replica: `owner.json` with an epoch, claimed and renewed by compare-and-swap; fencing."""

import logging
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Literal

from holdfast.base.bucket import Bucket, ObjectMissing
from holdfast.base.checked_json import decode_checked, encode_checked
from holdfast.base.clock import Clock
from holdfast.base.errors import NewerFormat, ReplicaError, ReplicaFenced, StorageError

__all__ = [
    "OWNER",
    "RENEW_S",
    "TTL_S",
    "Identity",
    "OwnerRecord",
    "Ownership",
    "Role",
    "margin_of",
    "poll_of",
    "read_owner",
]

logger = logging.getLogger("holdfast.replica")

OWNER = "owner.json"
FORMAT = 1
TTL_S = 15.0
RENEW_S = 5.0
MARGIN_S = 1.0
"""The owner stops so much before its ttl is over, and others wait so much longer: clocks do not run equally fast. With
another ttl, in proportion."""
_POLL_S = 1.0

Role = Literal["none", "owner", "fenced"]
"""`none`: the epoch is not claimed yet. `fenced`: another process has taken a higher epoch."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Who claims a replica."""

    store: str
    """The id of the store; a restored store keeps it only if it is of the newest moment."""
    instance: str
    """The id of the store's folder. A restored store has another one."""
    place: str
    """Host and path of the folder: a copied folder has another one."""
    host: str
    pid: int
    nonce: str
    """Random: one opening of the store."""


@dataclass(frozen=True, slots=True)
class OwnerRecord:
    """The content of `owner.json`."""

    store: str
    epoch: int
    nonce: str
    instance: str
    place: str
    host: str
    pid: int
    ttl: float
    count: int
    """Grows with each renewal, so that equal etags mean that the owner did not renew."""
    time: int
    """Nanoseconds since 1970 by the clock of the owner: for people, never compared."""
    last: str
    """The key of the last manifest that the owner knew to be there; empty if there is none."""
    released: bool = False
    """Whether the owner has closed the store."""
    yields: bool = False
    """Whether the owner promises to stop confirming at the end of its claim. A standby takes over automatically only
    then: an owner without a standby goes on confirming while the bucket is away."""
    deposed: bool = False
    """Whether a standby wants the owner to hand over (`holdfast replica promote --force`)."""

    def encode(self) -> bytes:
        """Return the content of the object."""
        return encode_checked({"format": FORMAT, **asdict(self)})

    @classmethod
    def decode(cls, raw: bytes, where: str) -> "OwnerRecord":
        """Return the record in an object. Raises `ReplicaError` if it is damaged."""
        try:
            content = decode_checked(raw)
            if content.pop("format") > FORMAT:
                raise NewerFormat(f"{where} was written by a newer Holdfast: update this one")
            return cls(**{name: content[name] for name in cls.__dataclass_fields__ if name in content})
        except (ValueError, KeyError, TypeError) as error:
            raise ReplicaError(
                f"{where} is damaged. Make sure that no process ships to this replica, and delete the object"
            ).of("damaged") from error


def margin_of(ttl: float) -> float:
    """Return how much earlier an owner with this ttl stops, and how much longer others wait."""
    return MARGIN_S * min(1.0, ttl / TTL_S)


def poll_of(ttl: float) -> float:
    """Return the seconds between two looks at the object of an owner with this ttl."""
    return _POLL_S * min(1.0, ttl / TTL_S)


def read_owner(bucket: Bucket) -> OwnerRecord | None:
    """Return the last owner of a replica; None if it never had one."""
    try:
        return OwnerRecord.decode(bucket.get(OWNER).content, f"{bucket.url}/{OWNER}")
    except ObjectMissing:
        return None


class Ownership:
    """The claim of one open store to ship to a bucket. Files: the object `owner.json`.

    `_guard` is held while the object is read or written, so also during requests. Times are those of the monotonic
    clock of this process: those of other machines are never compared with it.
    Invariant: `valid_until` is not later than the moment at which another process may take the next epoch; unless the
    process is `bound`, the object says that it does not yield. `may_confirm` takes no lock.
    """

    def __init__(
        self,
        bucket: Bucket,
        clock: Clock,
        who: Identity,
        *,
        ttl: float = TTL_S,
        bound: bool = False,
        has_standby: Callable[[], bool | None] = lambda: None,
        note_bound: Callable[[bool], None] = lambda bound: None,
    ) -> None:
        """Claim nothing yet.

        `bound` is what `note_bound` was last called with, which saves it: whether the object may say that this owner
        yields. `has_standby` returns whether it should, None if that is to stay as it is.
        """
        self.role: Role = "none"
        self.bound = bound
        """Whether this process may confirm only while its claim is valid."""
        self.deposed = False
        """Whether this process was asked to hand over: it confirms nothing more, ships what it has, and releases."""
        self.is_checked = True
        """Whether the store is known to have what the owner before has shipped; not set by a claim on another's."""
        self._has_standby = has_standby
        self._note_bound = note_bound
        self.epoch = 0
        self.last = ""
        """The key of the last manifest, for the next renewal."""
        self.valid_until = float("-inf")
        self._bucket = bucket
        self._clock = clock
        self._who = who
        self._ttl = ttl
        self._renew_s = RENEW_S * ttl / TTL_S
        self._record: OwnerRecord | None = None
        self._etag = ""
        self._certain = True
        """Whether `_record` is what the object holds; not after an answer was lost."""
        self._renewed_at = float("-inf")
        self._guard = threading.Lock()

    def claim(
        self, *, is_stopped: Callable[[], bool] = lambda: False, check: Callable[[], None] = lambda: None
    ) -> OwnerRecord | None:
        """Take the next epoch; return the record of the owner before, None if there was none.

        `check` is called before it is taken from an owner that has not released it. If that was another folder, nothing
        may be confirmed until `is_checked` is set: the caller must see that the store has what that owner has shipped.

        If another owner has not released the replica, this waits until it has not renewed for its ttl. It raises
        `ReplicaFenced` as soon as the owner does renew, or once `is_stopped`; `ReplicaError` if the replica is that of
        another store; and `ReplicaUnavailable`.
        """
        seen, seen_at = "", 0.0
        has_checked = False
        before: OwnerRecord | None = None
        while True:
            with self._guard:
                asked_at = self._clock.monotonic()
                found, etag = self._read()
                if found is not None and found.nonce == self._who.nonce:  # the answer to our claim was lost
                    self._take(found, etag, asked_at if self._record is None else self._renewed_at)
                    return before
                before = found
                if found is None or self._may_take(found):
                    if self._try(found, etag):
                        return found
                    continue
                now = self._clock.monotonic()
                if seen and etag != seen:
                    raise self._refused(found, "it has renewed its claim while this one waited")
                if not seen:
                    seen, seen_at = etag, now
                left = seen_at + found.ttl + margin_of(found.ttl) - now
                if left <= 0 and has_checked:
                    logger.warning("replica taken over: url=%s epoch=%d", self._bucket.url, found.epoch + 1)
                    if self._try(found, etag):
                        return found
                    raise self._refused(found, "another process has taken it first")
                if is_stopped():
                    raise self._refused(found, "it may still be running")
            if left <= 0:
                check()
                has_checked = True
            else:
                self._clock.sleep(min(poll_of(found.ttl), max(left, 0.01)))

    def take_over(self, found: OwnerRecord, etag: str) -> bool:
        """Take the next epoch from this owner, as a standby; return whether that succeeded.

        The caller has waited until it may do so. Raises `ReplicaUnavailable`: then the claim may have had its effect,
        and the next call with the record that is found then says so.
        """
        with self._guard:
            if found.nonce == self._who.nonce:  # the answer to our claim was lost
                self._take(found, etag, self._renewed_at)
                return True
            return self._try(found, etag)

    @property
    def may_confirm(self) -> bool:
        """Whether this process may confirm messages now. Takes no lock, and asks nobody."""
        if self.role == "fenced" or self.deposed or not self.is_checked:
            return False
        return not self.bound or (self.role == "owner" and self._clock.monotonic() < self.valid_until)

    def check_confirm(self) -> None:
        """Raise `ReplicaFenced` unless this process may confirm messages now."""
        if not self.may_confirm:
            if self.role == "fenced":
                raise self._lost()
            if self.deposed:
                raise ReplicaFenced(f"{self._bucket.url}: this process hands the replica over to a standby")
            if not self.is_checked:
                raise ReplicaFenced(
                    f"{self._bucket.url}: this process has taken the replica from another one, and has not seen yet "
                    "whether the store has all that was shipped: nothing is confirmed before. Check the network to the "
                    "bucket"
                )
            raise ReplicaFenced(
                f"{self._bucket.url}: the claim of this process is not renewed, so a standby may have taken over: "
                "nothing is confirmed until it is renewed. Check the network to the bucket"
            )

    def lose(self, found: OwnerRecord | None) -> None:
        """Note that another process owns the replica: what it has shipped, this process lacks."""
        with self._guard:
            if self.role != "fenced":
                self.role, self._record = "fenced", found
                logger.error("replica lost to another owner: url=%s epoch=%d", self._bucket.url, self.epoch)

    def renew_if_due(self) -> None:
        """Renew the claim if it was not renewed for a third of its ttl. Raises `ReplicaFenced` if it is lost."""
        if self.role == "owner" and self._clock.monotonic() - self._renewed_at >= self._renew_s:
            self.renew()

    def renew(self) -> None:
        """Renew the claim. Raises `ReplicaFenced` if another process has taken it, and `ReplicaUnavailable`."""
        with self._guard:
            if self.role != "owner":
                return
            if self.deposed:
                self._read_again()
                return
            has_standby = self._has_standby()
            yields = self.bound if has_standby is None else has_standby
            for _ in range(2):
                if not self._certain and self._read_again().deposed:
                    return
                assert self._record is not None
                now = self._clock.monotonic()
                record = replace(
                    self._record,
                    count=self._record.count + 1,
                    time=self._clock.time_ns(),
                    last=self.last,
                    yields=yields,
                )
                if yields and not self._bind():  # before the request: if its answer is lost, the promise counts
                    record, yields = replace(record, yields=False), False
                self._certain = False
                etag = self._bucket.compare_and_swap(OWNER, record.encode(), self._etag)
                if etag is not None:
                    self._take(record, etag, now)
                    if not yields:  # now that it is certain
                        self._unbind()
                    return
            self._read_again()

    def check(self) -> None:
        """Raise `ReplicaFenced` unless this process owns the replica now."""
        if self.role == "fenced":
            raise self._lost()
        if self.role != "owner" or self._clock.monotonic() >= self.valid_until:
            raise ReplicaFenced(
                f"{self._bucket.url}: the claim of this process could not be renewed for {self._ttl:g} s, so another "
                "one may own the replica by now. Nothing is shipped until it is renewed"
            )

    def release(self) -> None:
        """Let the next process take the replica at once. Raises `ReplicaError`."""
        with self._guard:
            if self.role != "owner" or self._record is None:
                return
            self.role, self.valid_until = "fenced" if self.deposed else "none", float("-inf")
            record = replace(
                self._record, count=self._record.count + 1, time=self._clock.time_ns(), last=self.last, released=True
            )
            self._bucket.compare_and_swap(OWNER, record.encode(), self._etag)

    def _read(self) -> tuple[OwnerRecord | None, str]:
        try:
            found = self._bucket.get(OWNER)
        except ObjectMissing:
            return None, ""
        record = OwnerRecord.decode(found.content, f"{self._bucket.url}/{OWNER}")
        if record.store != self._who.store:
            raise ReplicaError(
                f"{self._bucket.url} holds the replica of another store ({record.store}, last shipped by "
                f"{record.place}; this store is {self._who.store}): choose another prefix for this store"
            ).of("other-store")
        return record, found.etag

    def _may_take(self, found: OwnerRecord) -> bool:
        """Return whether the owner has ended: this process has the lock of the folder that it shipped."""
        return found.released or self._is_ours(found)

    def _is_ours(self, found: OwnerRecord) -> bool:
        return found.instance == self._who.instance and found.place == self._who.place

    def _try(self, found: OwnerRecord | None, etag: str) -> bool:
        who, now = self._who, self._clock.monotonic()
        record = OwnerRecord(
            store=who.store,
            epoch=1 if found is None else found.epoch + 1,
            nonce=who.nonce,
            instance=who.instance,
            place=who.place,
            host=who.host,
            pid=who.pid,
            ttl=self._ttl,
            count=0,
            time=self._clock.time_ns(),
            last="" if found is None else found.last,
            yields=self.bound or (found is not None and found.yields),
        )
        if record.yields and not self._bind():
            record = replace(record, yields=False)
        if (
            self._record is None
        ):  # if the answer is lost, this is when the claim began: at the first try, at the earliest
            self._renewed_at = now
        self._record = record
        if found is not None and not self._is_ours(found):
            self.is_checked = False
        content = record.encode()
        done = (
            self._bucket.put_if_absent(OWNER, content)
            if found is None
            else self._bucket.compare_and_swap(OWNER, content, etag)
        )
        if done is None:
            return False  # it was changed meanwhile, perhaps by an earlier try of ours: it is read again
        self._take(record, done, now)
        return True

    def _take(self, record: OwnerRecord, etag: str, since: float) -> None:
        self._record, self._etag, self._certain = record, etag, True
        self.role, self.epoch, self.last = "owner", record.epoch, self.last or record.last
        self._renewed_at, self.valid_until = since, since + self._ttl - margin_of(self._ttl)

    def _read_again(self) -> OwnerRecord:
        """Return what the object holds, after a renewal that may have had its effect. Raises `ReplicaFenced`."""
        found, etag = self._read()
        if found is None or found.nonce != self._who.nonce:
            self.role = "fenced"
            self._record = found
            logger.error("replica lost to another owner: url=%s epoch=%d", self._bucket.url, self.epoch)
            raise self._lost()
        self._record, self._etag, self._certain = found, etag, True
        if found.deposed and not self.deposed:
            self.deposed = True
            logger.warning("handing over to a standby: url=%s epoch=%d", self._bucket.url, self.epoch)
        return found

    def _bind(self) -> bool:
        """Save that this owner yields, so that it does after a restart; return whether that succeeded."""
        if not self.bound:
            try:
                self._note_bound(True)
            except (StorageError, OSError) as error:
                logger.warning("cannot yield to a standby: url=%s error=%s", self._bucket.url, error)
                return False
            self.bound = True
        return True

    def _unbind(self) -> None:
        if self.bound:
            self._note_bound(False)
            self.bound = False

    def _lost(self) -> ReplicaFenced:
        if self.deposed:
            return ReplicaFenced(f"{self._bucket.url}: this process has handed the replica over to a standby. Stop it")
        by = "it was deleted" if self._record is None else f"{self._record.place} has epoch {self._record.epoch}"
        return ReplicaFenced(
            f"{self._bucket.url}: this process has lost the replica ({OWNER}: {by}; ours was {self.epoch}). What it "
            "has written since is on its own disk only. Stop it, and compare both stores before you use either"
        )

    def _refused(self, found: OwnerRecord, why: str) -> ReplicaFenced:
        return ReplicaFenced(
            f"{self._bucket.url} is owned by process {found.pid} of {found.place} (epoch {found.epoch}): {why}. Stop "
            f"it first; if its machine is lost, try again {found.ttl:g} s after its end"
        )
