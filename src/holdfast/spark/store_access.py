"""Where a read finds its store: a folder, a plain copy at a URL, a replica in a bucket, or a server."""

import os
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from holdfast.base.errors import NotFound, ReplicaError
from holdfast.base.files import Files, SystemFiles, translate_os_errors
from holdfast.log.part_cache import PartCache
from holdfast.remote_parts import temporary_parts
from holdfast.replica.bucket import is_replica_url, open_bucket
from holdfast.replica.manifest_files import ManifestFiles
from holdfast.replica.part_reader import BucketManifests, ManifestSource, PartReader
from holdfast.spark.remote import RemoteFiles
from holdfast.store_layout import LOCK
from holdfast.table_registry import TABLES

__all__ = ["StoreAccess", "is_replica_folder", "may_grow"]

_OWNER, _MANIFESTS = "owner.json", "manifest"


@dataclass(frozen=True)
class StoreAccess:
    """The options that say where the store is. Pickled for the tasks, which find credentials in their environment."""

    path: Path
    url: str = ""
    """The URL of the store; empty for a local folder. `path` is then the root of its files."""

    def open_files(self) -> Files:
        """Return the files of the store, for planning. Raises `NotFound` if there is no store, and `ReplicaError`."""
        if not self.url:
            self._check_folder(SystemFiles())
            return SystemFiles()
        if may_grow(self.url):
            try:
                reader, parts = self.parts
                return ManifestFiles(_source_of(self), reader, parts, self)
            except NotFound:
                pass
            except ReplicaError as error:
                if not _lacks_library(error):
                    raise
        files = RemoteFiles(self.url)
        self._check_folder(files)
        return files

    @property
    def parts(self) -> tuple[PartReader, PartCache]:
        """The reader of parts of a replica, and the cache in front of it. One pair for this process."""
        return _opened(self)

    def _check_folder(self, files: Files) -> None:
        path, what = self.path, self.url or str(self.path)
        with translate_os_errors("looking for a store in", path):
            if not self.url and path.is_file():
                raise NotFound(f"{what!r} is a file, not the folder of a store: check the option 'path'")
            if not any(files.exists(path / part) for part in ("logs", "journals", TABLES, LOCK)):
                also = ", and no replica" if may_grow(self.url) else ""
                raise NotFound(f"there is no store in {what!r}{also}: check the option 'path'")


def may_grow(url: str) -> bool:
    """Return whether there may be a replica at this URL; otherwise it is a copy of a store, which does not grow."""
    return is_replica_url(url)


def is_replica_folder(path: Path) -> bool:
    """Return whether this folder has a replica, and not a store."""
    return (path / _OWNER).exists() and (path / _MANIFESTS).is_dir() and not (path / LOCK).exists()


@cache
def _source_of(access: StoreAccess) -> ManifestSource:
    return BucketManifests(open_bucket(access.url))


@cache
def _opened(access: StoreAccess) -> tuple[PartReader, PartCache]:
    reader = PartReader(_source_of(access))
    return reader, temporary_parts(lambda url: reader)


os.register_at_fork(after_in_child=_opened.cache_clear)  # connections are the parent's

os.register_at_fork(after_in_child=_source_of.cache_clear)


def _lacks_library(error: ReplicaError) -> bool:
    return "need the package obstore" in str(error)
