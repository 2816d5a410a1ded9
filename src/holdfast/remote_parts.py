"""Where a store finds the parts of its logs that are only in the bucket of its replica, and the cache of them."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable
from weakref import WeakValueDictionary

from holdfast.base.errors import ReplicaError
from holdfast.base.files import Files, SystemFiles
from holdfast.base.metrics import Registry
from holdfast.base.pid import is_alive
from holdfast.log.part_cache import CACHE, CACHE_BYTES, PartCache

if TYPE_CHECKING:
    from holdfast.base.bucket import Bucket, ObjectReader

__all__ = [
    "HasParts",
    "close_parts",
    "process_parts",
    "reading_parts",
    "register_metrics",
    "store_parts",
    "temporary_parts",
]


@runtime_checkable
class HasParts(Protocol):
    """Files that come with a cache of the parts of segments."""

    @property
    def parts(self) -> PartCache:
        """The cache."""
        ...


_PREFIX = "holdfast-cache"
_written: "WeakValueDictionary[tuple[Path, int], PartCache]" = WeakValueDictionary()
"""The caches of the stores that this process writes."""


def store_parts(files: Files, store: Path, limit: int | None, bucket: "Callable[[], Bucket | None]") -> PartCache:
    """Return the cache of a store that this process writes; `bucket` returns that of its replica, if it has one.

    The URL that is noted with a segment does not matter then: the replica has all remote segments, or it does not
    start.
    """

    def bucket_at(url: str) -> "Bucket":
        found = bucket()
        if found is None:
            raise ReplicaError(
                f"records of the store {str(store)!r} are only in {url}: open the store with replica={url!r} (or the "
                "setting replica) to read them"
            )
        return found

    parts = PartCache(files, lambda: store / CACHE, bucket_at, CACHE_BYTES if limit is None else limit)
    _written[_identity(files, store)] = parts
    return parts


def close_parts(files: Files, store: Path, parts: PartCache) -> None:
    """Delete what is in the cache of a store that is closed."""
    _written.pop(_identity(files, store), None)
    parts.clear()


def reading_parts(files: Files, store: Path) -> PartCache:
    """Return the cache for a store that is opened read-only: the writer's, if that is this process.

    Files of a replica have a cache of their own.
    """
    if isinstance(files, HasParts):
        return files.parts
    return _written.get(_identity(files, store)) or process_parts()


def register_metrics(parts: PartCache, metrics: Registry, remote_bytes: Callable[[], int]) -> None:
    """Add the figures of a store's cache to its metrics; `remote_bytes` counts what is only in the bucket."""
    for name, help, read in (
        ("remote_bytes", "Bytes of open logs that are only in the bucket.", lambda: float(remote_bytes())),
        ("cache_bytes", "Size of the cache of records that are only in the bucket.", lambda: float(parts.bytes)),
        ("cache_limit_bytes", "Largest size of this cache.", lambda: float(parts.limit)),
    ):
        metrics.gauge(f"holdfast_replica_{name}", help, {}, read)
    for name, help, count in (
        ("cache_hits", "Reads that found a part in the cache.", lambda: parts.hits),
        ("cache_misses", "Reads for which a part was fetched from the bucket.", lambda: parts.misses),
        ("cache_fetched_bytes", "Bytes fetched from the bucket.", lambda: parts.fetched_bytes),
    ):
        metrics.reading(f"holdfast_replica_{name}_total", help, {}, count)


def _identity(files: Files, store: Path) -> tuple[Path, int]:
    return store.absolute(), 0 if isinstance(files, SystemFiles) else id(files)


@cache
def process_parts() -> PartCache:
    """Return the cache of this process for stores that another process writes, or none.

    It is in the folder for temporary files, because the store may not be writable, and ends with the process. The
    bucket is that of `remote.json`; the credentials come from the environment.
    """
    os.register_at_fork(after_in_child=_open.cache_clear)  # connections are the parent's
    return temporary_parts(_open)


def temporary_parts(open_bucket: "Callable[[str], ObjectReader]") -> PartCache:
    """Return a new cache in the folder for temporary files. It ends with the process: make few."""
    parts = PartCache(SystemFiles(), _temporary_folder, open_bucket)
    os.register_at_fork(after_in_child=parts.detach_after_fork)
    return parts


@cache
def _open(url: str) -> "Bucket":
    from holdfast.replica.bucket import open_bucket  # noqa: PLC0415 - loaded only where it is needed

    return open_bucket(url)


def _temporary_folder() -> Path:
    """Return a new folder, and delete those of processes that were killed."""
    root = Path(tempfile.gettempdir())
    ours = f"{_PREFIX}-{os.getuid()}-"
    for folder in root.glob(f"{ours}*"):
        process = folder.name.removeprefix(ours).partition("-")[0]
        if process.isdigit() and not is_alive(int(process)):
            shutil.rmtree(folder, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{ours}{os.getpid()}-"))
    atexit.register(_remove, folder, os.getpid())
    return folder


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:  # not in a forked child
        shutil.rmtree(folder, ignore_errors=True)
