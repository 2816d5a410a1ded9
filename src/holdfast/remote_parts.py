"""Where a store finds the parts of its logs that are only in the bucket of its replica, and the cache of them."""

import atexit
import os
import shutil
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.base.errors import ReplicaError
from holdfast.base.files import Files, SystemFiles
from holdfast.base.metrics import Registry
from holdfast.base.pid import is_alive
from holdfast.log.part_cache import CACHE, CACHE_BYTES, PartCache

if TYPE_CHECKING:
    from holdfast.base.bucket import Bucket

__all__ = ["process_parts", "store_parts"]

_PREFIX = "holdfast-cache"


def store_parts(
    files: Files, store: Path, limit: int | None, bucket: "Callable[[], Bucket | None]", metrics: Registry
) -> PartCache:
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
    for name, help, read in (
        ("bytes", "Size of the cache of records that are only in the replica.", lambda: float(parts.bytes)),
        ("limit_bytes", "Largest size of this cache.", lambda: float(parts.limit)),
    ):
        metrics.gauge(f"holdfast_remote_cache_{name}", help, {}, read)
    for name, help, count in (
        ("hits", "Reads of parts that were in the cache.", lambda: parts.hits),
        ("misses", "Reads of parts that were fetched from the bucket.", lambda: parts.misses),
        ("fetched_bytes", "Bytes fetched from the bucket.", lambda: parts.fetched_bytes),
    ):
        metrics.reading(f"holdfast_remote_cache_{name}_total", help, {}, count)
    return parts


@cache
def process_parts() -> PartCache:
    """Return the cache of this process for stores that another process writes, or none.

    It is in the folder for temporary files, because the store may not be writable, and ends with the process. The
    bucket is that of `remote.json`; the credentials come from the environment.
    """
    parts = PartCache(SystemFiles(), _temporary_folder, cache(_open))
    os.register_at_fork(after_in_child=parts.detach_after_fork)
    return parts


def _open(url: str) -> "Bucket":
    from holdfast.replica.bucket import open_bucket  # noqa: PLC0415 - loaded only where it is needed

    return open_bucket(url)


def _temporary_folder() -> Path:
    """Return a new folder, and delete those of processes that were killed."""
    root = Path(tempfile.gettempdir())
    ours = f"{_PREFIX}-{os.getuid()}-"
    for name in os.listdir(root):
        process = name.removeprefix(ours).partition("-")[0]
        if name.startswith(ours) and process.isdigit() and not is_alive(int(process)):
            shutil.rmtree(root / name, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{ours}{os.getpid()}-"))
    atexit.register(partial(shutil.rmtree, folder, ignore_errors=True))
    return folder
