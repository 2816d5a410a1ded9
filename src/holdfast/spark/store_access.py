"""Where a read finds its store: a folder, a plain copy at a URL, a replica in a bucket, or a server."""

import os
import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import holdfast
from holdfast.base.errors import InvalidArgument, NotFound, ReplicaError
from holdfast.base.files import Files, SystemFiles, translate_os_errors
from holdfast.log.part_cache import PartCache
from holdfast.remote.address import Address
from holdfast.remote.served_batches import ServedBatches
from holdfast.remote.served_manifests import LiveManifests, ServedManifests
from holdfast.remote_parts import temporary_parts
from holdfast.replica.bucket import is_replica_url, open_bucket
from holdfast.replica.manifest_files import ROOT, ManifestFiles
from holdfast.replica.part_reader import BucketManifests, ManifestSource, PartReader
from holdfast.spark.remote import RemoteFiles, is_url
from holdfast.store_layout import LOCK
from holdfast.table_registry import TABLES

__all__ = ["TOKEN", "StoreAccess", "is_replica_folder", "is_server", "may_grow"]

TOKEN = "HOLDFAST_TOKEN"
"""The environment variable with the token for servers."""
_OWNER, _MANIFESTS = "owner.json", "manifest"
_tokens: dict[str, str] = {}
"""By URL of a server: the token that the read of this task was given as an option."""


@dataclass(frozen=True)
class StoreAccess:
    """The options that say where the store is.

    Pickled for the tasks, but without its token: tasks get that from the options of the read, or like all other
    credentials from their environment.
    """

    path: Path
    url: str = ""
    """The URL of the store; empty for a local folder. `path` is then the root of its files."""
    live: str = ""
    """The URL of the server that ships to this replica."""
    token: str = field(default="", repr=False)

    @classmethod
    def of(cls, path: str, live: str = "", token: str = "") -> "StoreAccess":
        """Return where a store is from the options of a user. A folder that has a replica counts as its URL."""
        for url in (path, live):
            if is_server(url) and ("@" in url or "?" in url):
                raise InvalidArgument("the URL of a server must not contain credentials: give the option 'token'")
        folder = None if is_url(path) else Path(re.sub(r"^file:(?=/)(//(?=/))?", "", path)).absolute()
        url = path.rstrip("/") if folder is None else folder.as_uri() if is_replica_folder(folder) else ""
        found = cls(folder if folder is not None and not url else ROOT, url, live.rstrip("/"), token)
        if live and (not is_server(live) or not url or is_server(url)):
            raise InvalidArgument(
                "the option 'live' is the URL of the server (http://host:15672 or https://...) that ships to the "
                "replica in the option 'path'"
            )
        if token and not found.server:
            raise InvalidArgument("the option 'token' is for a server: give its URL in the option 'path' or 'live'")
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to make the same without the token."""
        return StoreAccess, (self.path, self.url, self.live)

    @property
    def server(self) -> str:
        """The URL of the server; empty if none is asked."""
        return self.url if is_server(self.url) else self.live

    def remember_token(self) -> None:
        """Let this task use the token of its read for the server; without one, that of the environment."""
        if self.token:
            _tokens[self.server] = self.token
        else:
            _tokens.pop(self.server, None)

    def open(self) -> holdfast.Store:
        """Open the store read-only, which is possible while its owner writes."""
        return holdfast.open(self.path, read_only=True, files=self.open_files())

    def open_files(self) -> Files:
        """Return the files of the store, for planning. Raises `NotFound` if there is no store, and `ReplicaError`."""
        if not self.url:
            self._check_folder(SystemFiles())
            return SystemFiles()
        if may_grow(self.url) and (self._secret or not is_server(self.url)):
            try:
                reader, parts = self.parts
                return ManifestFiles(self._source, reader, parts, self)
            except NotFound:
                if self.server:
                    raise
            except ReplicaError as error:
                if not _lacks_library(error):
                    raise
        return self._copy()

    def _copy(self) -> RemoteFiles:
        """Return the files of a plain copy of a store."""
        try:
            files = RemoteFiles(self.url)
            self._check_folder(files)
        except NotFound:
            raise
        except Exception as error:
            if is_server(self.url):
                raise _no_token(self.url) from error
            if may_grow(self.url):  # without its text, which may have a secret
                raise NotFound(
                    f"there is no store in {self.url!r}, and no replica: check the option 'path'. A plain copy of a "
                    f"store could not be looked for there ({type(error).__name__})"
                ) from None
            raise
        return files

    @property
    def parts(self) -> tuple[PartReader, PartCache]:
        """The reader of parts of a replica, and the cache in front of it. One pair for this process."""
        return _opened(self.url, self.live, self._secret)

    def keep_position(self, log: str, name: str, position: int) -> None:
        """Commit the position of a named reader of a log through the server."""
        self.batches.keep_position(log, name, position)

    @property
    def batches(self) -> ServedBatches:
        """The client that sends batches to the server. One for this process."""
        return _batches_of(self.server, self._secret)

    @property
    def _source(self) -> ManifestSource:
        return _source_of(self.url, self.live, self._secret)

    @property
    def _secret(self) -> str:
        if not self.server:
            return ""
        return self.token or _tokens.get(self.server) or os.environ.get(TOKEN, "")

    def _check_folder(self, files: Files) -> None:
        path, what = self.path, self.url or str(self.path)
        with translate_os_errors("looking for a store in", path):
            if not self.url and path.is_file():
                raise NotFound(f"{what!r} is a file, not the folder of a store: check the option 'path'")
            if not any(files.exists(path / part) for part in ("logs", "journals", TABLES, LOCK)):
                also = ", and no replica" if may_grow(self.url) else ""
                raise NotFound(f"there is no store in {what!r}{also}: check the option 'path'")


def is_server(url: str) -> bool:
    """Return whether this is the URL of a server."""
    return url.lower().startswith(("http://", "https://"))


def may_grow(url: str) -> bool:
    """Return whether there may be a replica or a server at this URL; otherwise it is a copy, which does not grow."""
    return is_replica_url(url) or is_server(url)


def is_replica_folder(path: Path) -> bool:
    """Return whether this folder has a replica, and not a store."""
    try:
        return (path / _OWNER).exists() and (path / _MANIFESTS).is_dir() and not (path / LOCK).exists()
    except PermissionError:  # said in one line when the store is looked for
        return False


@cache
def _source_of(url: str, live: str, token: str) -> ManifestSource:
    if is_server(url):
        return ServedManifests(_address(url, token))
    shipped = BucketManifests(open_bucket(url))
    return LiveManifests(shipped, ServedManifests(_address(live, token), patience=0)) if live else shipped


@cache
def _opened(url: str, live: str, token: str) -> tuple[PartReader, PartCache]:
    reader = PartReader(_source_of(url, live, token))
    return reader, temporary_parts(lambda url: reader)


os.register_at_fork(after_in_child=_opened.cache_clear)  # connections are the parent's
os.register_at_fork(after_in_child=_source_of.cache_clear)


@cache
def _batches_of(url: str, token: str) -> ServedBatches:
    return ServedBatches(_address(url, token))


os.register_at_fork(after_in_child=_batches_of.cache_clear)


def _address(url: str, token: str) -> Address:
    if not token:
        raise _no_token(url)
    return Address.parse(url, token=token)


def _no_token(url: str) -> InvalidArgument:
    return InvalidArgument(
        f"{url!r} needs a token: set {TOKEN} where the driver and the tasks run, or give the option 'token'. holdfast "
        "token create makes one"
    )


def _lacks_library(error: ReplicaError) -> bool:
    return "need the package obstore" in str(error)
