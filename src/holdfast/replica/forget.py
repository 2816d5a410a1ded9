"""Deletion of kept moments of a replica and of what only they need, or of the whole replica."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from holdfast.base.bucket import Bucket, ObjectMissing
from holdfast.base.clock import Clock
from holdfast.base.errors import Corrupt, InvalidArgument, NotFound, ReplicaFenced
from holdfast.replica.bucket import open_bucket
from holdfast.replica.manifest import MANIFESTS, Moment, list_moments, read_manifest
from holdfast.replica.owner import OWNER, read_owner
from holdfast.replica.promotion import owner_lives

__all__ = ["ForgetReport", "forget"]

_AT_ONCE = 1000

Progress = Callable[[int, int], None]
"""Called with how many objects were deleted, and how many will be."""


@dataclass(frozen=True, slots=True)
class ForgetReport:
    """What was deleted."""

    url: str
    moments: int
    objects: int
    """Objects that only these moments needed; of a whole replica, all others."""
    kept: int
    """How many moments are left."""


def forget(
    replica: str | Bucket,
    *,
    before: datetime | None = None,
    everything: bool = False,
    force: bool = False,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> ForgetReport:
    """Delete the moments before a time, except the newest of all, and then what only they need; or everything.

    Refused while the owner lives (`ReplicaFenced`), unless with `force`: then an owner goes on from the moments that
    are left, or finds that its replica is gone, and ships nothing more. If this is interrupted, call it again.
    """
    if (before is None) != everything:
        raise InvalidArgument("choose one: the time before which moments are deleted, or everything")
    bucket = open_bucket(replica) if isinstance(replica, str) else replica
    if not force and owner_lives(bucket, clock=clock):
        owner = read_owner(bucket)
        who = f" ({owner.place}, process {owner.pid})" if owner is not None else ""
        raise ReplicaFenced(f"{bucket.url}: the owner lives{who}. Stop it first, or use --force")
    moments = list_moments(bucket)
    if before is None:
        return _forget_all(bucket, moments, progress)
    if not moments:
        raise NotFound(f"there is no replica at {bucket.url}: check the URL")
    limit = int(before.timestamp() * 1_000_000) * 1000
    doomed = [one for one in moments[:-1] if one.time < limit]
    kept = [one for one in moments if one not in set(doomed)]
    # What no manifest names may be an upload of the owner whose manifest is not written yet: only what the doomed ones
    # name is deleted. An object that a moment no longer names is never named again.
    garbage = _names(bucket, doomed) - _names(bucket, kept)
    keys = [*(one.key for one in doomed), *sorted(garbage)]
    _delete(bucket, keys, progress)
    return ForgetReport(bucket.url, len(doomed), len(garbage), len(kept))


def _forget_all(bucket: Bucket, moments: list[Moment], progress: Progress | None) -> ForgetReport:
    found = {one.key for one in bucket.list("")}
    if not found:
        raise NotFound(f"there is no replica at {bucket.url}: check the URL")
    # The moments first: what is left of an interrupted deletion is no replica. The claim last, for the same reason.
    named = sorted(one for one in found if one.startswith(MANIFESTS))
    rest = sorted(found.difference(named, [OWNER]))
    _delete(bucket, [*named, *rest, *({OWNER} & found)], progress)
    return ForgetReport(bucket.url, len(moments), len(found) - len(moments), 0)


def _names(bucket: Bucket, moments: list[Moment]) -> set[str]:
    found: set[str] = set()
    for moment in moments:
        try:
            found.update(read_manifest(bucket, moment).keys())
        except ObjectMissing:  # deleted by the owner meanwhile
            continue
        except Corrupt as error:
            raise Corrupt(f"{error}. Nothing was deleted: what it needs is not known", error.path) from error
    return found


def _delete(bucket: Bucket, keys: list[str], progress: Progress | None) -> None:
    for start in range(0, len(keys), _AT_ONCE):
        bucket.delete(keys[start : start + _AT_ONCE])
        if progress is not None:
            progress(min(start + _AT_ONCE, len(keys)), len(keys))
