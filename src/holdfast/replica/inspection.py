"""What is in a bucket, without a store: its owner, its moments, and a check of every object."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from holdfast.base.bucket import Bucket
from holdfast.base.errors import Corrupt, NewerFormat, NotFound
from holdfast.replica.bucket import open_bucket
from holdfast.replica.manifest import Moment, Part, list_moments, read_manifest
from holdfast.replica.owner import OwnerRecord, read_owner
from holdfast.replica.restore import choose_moment, fetch_part
from holdfast.replica.standbys import StandbyRecord, read_standbys

__all__ = ["ReplicaOverview", "ReplicaVerification", "find_moments", "overview", "verify_replica"]

Progress = Callable[[int, int], None]
_WORKERS = 8


@dataclass(frozen=True, slots=True)
class ReplicaOverview:
    """A replica as somebody finds it who has only the bucket."""

    url: str
    owner: OwnerRecord | None
    standbys: list[StandbyRecord]
    """Those that announced themselves; some may have ended since."""
    moments: int
    oldest: Moment
    newest: Moment
    epochs: dict[int, int]
    """By epoch: how many of its moments are kept."""
    logs: int
    queues: int
    tables: int
    bytes: int
    """The size of the newest moment."""
    objects: int
    total_bytes: int
    """The number and size of all objects, of all moments."""


@dataclass(slots=True)
class ReplicaVerification:
    """What was found when the objects of a replica were read."""

    url: str
    moments: int = 0
    objects: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)
    damaged: dict[str, int] = field(default_factory=dict)
    """By the name of a moment that cannot be restored: how many of its objects are missing or damaged."""

    @property
    def ok(self) -> bool:
        """Whether every moment that was verified can be restored."""
        return not self.problems


def overview(replica: str | Bucket) -> ReplicaOverview:
    """Return what a bucket holds. Raises `NotFound` if there is no replica."""
    bucket = open_bucket(replica) if isinstance(replica, str) else replica
    moments = find_moments(bucket)
    newest = read_manifest(bucket, moments[-1])
    epochs: dict[int, int] = {}
    for moment in moments:
        epochs[moment.epoch] = epochs.get(moment.epoch, 0) + 1
    objects = bucket.list("")
    kinds = [log.folder.partition("/")[0] for log in newest.logs]
    return ReplicaOverview(
        url=bucket.url,
        owner=read_owner(bucket),
        standbys=list(read_standbys(bucket).values()),
        moments=len(moments),
        oldest=moments[0],
        newest=moments[-1],
        epochs=epochs,
        logs=kinds.count("logs"),
        queues=kinds.count("journals"),
        tables=kinds.count("tables"),
        bytes=newest.size,
        objects=len(objects),
        total_bytes=sum(one.size for one in objects),
    )


def find_moments(replica: str | Bucket) -> list[Moment]:
    """Return the moments that can be restored, the oldest first. Raises `NotFound` if there is none."""
    bucket = open_bucket(replica) if isinstance(replica, str) else replica
    moments = list_moments(bucket)
    if not moments:
        raise NotFound(f"there is no replica at {bucket.url}, or nothing was shipped to it yet: check the URL")
    return moments


def verify_replica(
    replica: str | Bucket, *, moment: str | None = None, everything: bool = False, progress: Progress | None = None
) -> ReplicaVerification:
    """Read every object of the newest moment, of `moment`, or of all moments, and check every checksum.

    Moments that the owner deletes meanwhile are left out.
    """
    bucket = open_bucket(replica) if isinstance(replica, str) else replica
    moments = find_moments(bucket)
    chosen = moments if everything else [choose_moment(bucket.url, moments, moment=moment)]
    found = ReplicaVerification(bucket.url)
    parts: dict[tuple[str, str], Part] = {}
    used: dict[tuple[str, str], list[str]] = {}
    for one in chosen:
        try:
            manifest = read_manifest(bucket, one)
        except (Corrupt, NewerFormat, NotFound) as error:
            found.problems.append(str(error))
            found.damaged[one.name] = found.damaged.get(one.name, 0) + 1
            continue
        found.moments += 1
        for log in manifest.logs:
            for key, part in log.parts():
                place = key, "" if part.inline is None else one.name  # one in a manifest is checked in each
                parts[place] = part
                used.setdefault(place, []).append(one.name)
    total = sum(part.size for part in parts.values())

    def check(place: tuple[str, str]) -> str:
        try:
            fetch_part(bucket, place[0], parts[place])
        except Corrupt as error:
            return str(error)
        return ""

    with ThreadPoolExecutor(_WORKERS, thread_name_prefix="holdfast-verify") as pool:
        for place, problem in zip(parts, pool.map(check, parts), strict=True):
            found.objects += parts[place].inline is None
            found.bytes += parts[place].size
            if problem:
                found.problems.append(problem)
                for name in used[place]:
                    found.damaged[name] = found.damaged.get(name, 0) + 1
            if progress is not None:
                progress(found.bytes, total)
    return found
