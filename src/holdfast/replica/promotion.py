"""Promotion of a standby by hand, and whether the owner of a replica lives."""

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.base.bucket import Bucket, ObjectMissing
from holdfast.base.clock import Clock, SystemClock
from holdfast.base.errors import NotFound, ReplicaFenced, ReplicaUnavailable
from holdfast.replica.bucket import open_bucket
from holdfast.replica.owner import OWNER, OwnerRecord, margin_of, poll_of
from holdfast.replica.promotion_request import PromotionRequest, put_request
from holdfast.replica.standbys import StandbyRecord, read_standbys

__all__ = ["Promotion", "live_standbys", "owner_lives", "promote"]

Progress = Callable[[float, float], None]
"""Called with the seconds that were waited, and the most that are."""

_PATIENCE = 4
"""A standby that lives takes over within so many times the ttl of the owner, if the last moment is small."""


@dataclass(frozen=True, slots=True)
class Promotion:
    """A takeover that was asked for by hand."""

    url: str
    before: OwnerRecord
    owner: OwnerRecord
    """Who owns the replica now."""


def promote(
    replica: str | Bucket,
    *,
    force: bool = False,
    standby: str = "",
    patience: float | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> Promotion:
    """Let a standby take over, any or the one of this id, and return when it has.

    Without `force` that is refused while the owner lives: `ReplicaFenced`. With it, a living owner confirms nothing
    more, ships what it has and hands over; if it does not answer, its claim runs out. Raises `NotFound` if no standby
    follows the replica, and `ReplicaUnavailable` if none has taken over after `patience` seconds.
    """
    bucket = open_bucket(replica) if isinstance(replica, str) else replica
    clock = clock or SystemClock()
    before, _ = _owner(bucket)
    wait = patience if patience is not None else _PATIENCE * before.ttl + 60
    began = clock.monotonic()

    def tell(most: float) -> None:
        if progress is not None:
            progress(min(clock.monotonic() - began, most), most)

    if not force and owner_lives(bucket, clock=clock, beat=lambda: tell(wait)):
        now, _ = _owner(bucket)
        if now.epoch > before.epoch:  # a standby has taken over automatically meanwhile
            return Promotion(bucket.url, before, now)
        raise ReplicaFenced(
            f"{bucket.url}: the owner lives ({before.place}, process {before.pid}, epoch {before.epoch}). Stop it, or "
            "let it hand over with --force"
        )
    known = live_standbys(bucket, before.ttl, clock=clock)
    if standby:
        known = [one for one in known if one.id == standby]
    if not known:
        raise NotFound(
            f"{bucket.url}: no standby follows this replica. Start one with: holdfast serve --standby --replica "
            f"{bucket.url} --data FOLDER, or restore the newest moment with: holdfast restore {bucket.url} --data "
            "FOLDER, and serve it with --replica"
        )
    by = f"{socket.gethostname()}:{os.getpid()}"
    put_request(bucket, PromotionRequest(before.epoch, force, standby, by, clock.time_ns()))
    while True:
        now, _ = _owner(bucket)
        if now.epoch > before.epoch:
            return Promotion(bucket.url, before, now)
        if clock.monotonic() - began > wait:
            raise ReplicaUnavailable(
                f"{bucket.url}: no standby has taken over within {wait:g} s. The request stays: see the logs of "
                f"{', '.join(one.place for one in known)}"
            )
        tell(wait)
        clock.sleep(poll_of(before.ttl))


def owner_lives(bucket: Bucket, *, clock: Clock | None = None, beat: Callable[[], None] = lambda: None) -> bool:
    """Return whether the owner renews its claim. Watches for as long as the claim lasts, unless it was released."""
    clock = clock or SystemClock()
    try:
        record, etag = _owner(bucket)
    except NotFound:
        return False
    began = clock.monotonic()
    while not record.released:
        if clock.monotonic() - began >= record.ttl + margin_of(record.ttl):
            return False
        clock.sleep(poll_of(record.ttl))
        beat()
        record, now = _owner(bucket)
        if now != etag:
            return not record.released
    return False


def live_standbys(bucket: Bucket, ttl: float, *, clock: Clock | None = None) -> list[StandbyRecord]:
    """Return the standbys that renew their announcements. Watches for as long as a claim lasts, if there are any."""
    clock = clock or SystemClock()
    before, began = read_standbys(bucket), clock.monotonic()
    found: dict[str, StandbyRecord] = {}
    while len(found) < len(before) and clock.monotonic() - began < ttl:
        clock.sleep(poll_of(ttl))
        now = read_standbys(bucket)
        found = {name: one for name, one in now.items() if name not in before or one.count != before[name].count}
    return list(found.values())


def _owner(bucket: Bucket) -> tuple[OwnerRecord, str]:
    try:
        found = bucket.get(OWNER)
    except ObjectMissing as error:
        raise NotFound(f"there is no replica at {bucket.url}: check the URL") from error
    return OwnerRecord.decode(found.content, f"{bucket.url}/{OWNER}"), found.etag
