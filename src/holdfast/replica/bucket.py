"""Buckets by URL: object storage through obstore (S3, GCS, Azure), and folders of a mounted share."""

import importlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn, TypeVar
from urllib.parse import unquote, urlsplit

from holdfast.base.bucket import Bucket, FoundObject, ListedObject, ObjectMissing
from holdfast.base.errors import InvalidArgument, ReplicaError, ReplicaUnavailable
from holdfast.replica.folder_bucket import FolderBucket

__all__ = ["ObjectStorageBucket", "error_of", "is_replica_url", "open_bucket"]

T = TypeVar("T")

_SCHEMES = {"s3": "S3", "gs": "Google Cloud Storage", "az": "Azure"}
_SCHEME = re.compile(r"(s3|gs|az|file)://", re.IGNORECASE)
_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w+)</Code>")
_TRY_AGAIN = {408, 429, 500, 502, 503, 504}
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired"}
_REGION = {"AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException"}
_NO_BUCKET = {"NoSuchBucket", "InvalidBucketName", "ContainerNotFound"}
_REDIRECTED = "redirect without location"
"""What the library says of status 301: S3 answers it for buckets of other regions, without saying where they are."""
_CUT_OFF = re.compile(r"\bkind: (Connect|Request|Timeout|Interrupted|Decode)\b")
"""How the library describes requests without a whole answer."""
_NO_ANSWER = ("error sending request", "timed out", "timeout", "connection", "dns error", "operation was canceled")
ANSWER_S = 30
RETRY_S = 10
CONNECT_S = 5


def is_replica_url(text: str) -> bool:
    """Return whether this is the URL of a bucket or folder, and not a path."""
    return _SCHEME.match(text) is not None


def open_bucket(url: str, environment: Mapping[str, str] | None = None) -> Bucket:
    """Return the bucket at a URL: `s3://bucket/prefix`, `gs://...`, `az://container/prefix` or `file:///folder`.

    Credentials, region and endpoint come from the environment (`AWS_...`, `GOOGLE_...`, `AZURE_...`), never from the
    URL. Nothing is asked of the bucket yet.
    """
    if not is_replica_url(url):
        raise InvalidArgument(
            f"{_without_secrets(url)!r} is not the URL of a replica: use s3://bucket/prefix, gs://bucket/prefix, "
            "az://container/prefix or file:///folder"
        )
    parts = urlsplit(url)
    scheme, prefix = parts.scheme.lower(), unquote(parts.path).strip("/")
    # A secret may contain a slash: then what is behind it looks like a prefix. No bucket has a colon in its name.
    if "@" in parts.netloc or ":" in parts.netloc or parts.query or parts.fragment:
        raise InvalidArgument(
            f"the URL of the replica {_without_secrets(url)!r} must not contain credentials or options: set them in "
            "the environment, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if scheme == "file":
        if parts.netloc not in ("", "localhost") or not prefix:
            raise InvalidArgument(f"{url!r} must name a folder of this machine by its whole path: file:///folder")
        return FolderBucket(Path("/" + prefix))
    if not parts.netloc:
        raise InvalidArgument(f"{url!r} names no bucket: use {scheme}://bucket/prefix")
    return ObjectStorageBucket(scheme, parts.netloc, prefix, os.environ if environment is None else environment)


class ObjectStorageBucket:
    """A prefix of a bucket, through obstore. Threads: any; obstore's client may be shared."""

    def __init__(self, scheme: str, bucket: str, prefix: str, environment: Mapping[str, str]) -> None:
        self.url = f"{scheme}://{bucket}/{prefix}".rstrip("/")
        self._kind = _SCHEMES[scheme]
        self._tag = "version" if scheme == "gs" else "e_tag"  # Google compares generations, and no etags
        self._obstore = _obstore()
        self.is_plain = False
        """Whether requests are sent without TLS."""
        self.host = "the storage's own"
        """The host of the endpoint."""
        client: dict[str, Any] = {"timeout": f"{ANSWER_S}s", "connect_timeout": f"{CONNECT_S}s"}
        endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or ""
        if scheme == "s3" and endpoint.startswith("http://"):
            client["allow_http"] = True  # the endpoint's scheme is the user's choice
            self.is_plain = True
        if scheme == "s3" and endpoint:
            self.host = urlsplit(endpoint).hostname or ""  # without a user and a password
        self._store = self._translated(
            "",
            lambda: importlib.import_module("obstore.store").from_url(
                self.url,
                client_options=client,
                retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=RETRY_S)},
            ),
        )

    def __repr__(self) -> str:
        return f"ObjectStorageBucket({self.url!r})"

    def __reduce__(self) -> NoReturn:
        # The client inside has the credentials.
        raise TypeError(f"{self!r} cannot be pickled: open it again by its URL")

    def get(self, key: str) -> FoundObject:
        """As `Bucket.get`."""

        def get() -> FoundObject:
            found = self._obstore.get(self._store, key)
            etag = found.meta[self._tag] or ""
            return FoundObject(bytes(found.bytes()), etag)

        return self._translated(key, get)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """As `Bucket.get_range`."""
        return self._translated(key, lambda: bytes(self._obstore.get_range(self._store, key, start=start, end=stop)))

    def modified(self, key: str) -> int:
        """Return when an object was written, by the clock of the storage, in nanoseconds since 1970."""
        found = self._translated(key, lambda: self._obstore.head(self._store, key)["last_modified"])
        return int(found.timestamp() * 1e9)

    def put(self, key: str, content: bytes) -> None:
        """As `Bucket.put`."""
        # In one request: a multipart upload would be three.
        self._translated(key, lambda: self._obstore.put(self._store, key, content, use_multipart=False))

    def put_if_absent(self, key: str, content: bytes) -> str | None:
        """As `Bucket.put_if_absent`."""
        return self._put_if(key, content, "create")

    def compare_and_swap(self, key: str, content: bytes, etag: str) -> str | None:
        """As `Bucket.compare_and_swap`."""
        return self._put_if(key, content, {self._tag: etag})

    def _put_if(self, key: str, content: bytes, mode: Any) -> str | None:
        exceptions = self._obstore.exceptions

        def put() -> str | None:
            try:
                done = self._obstore.put(self._store, key, content, mode=mode, use_multipart=False)
                return done[self._tag] or ""
            except (exceptions.AlreadyExistsError, exceptions.PreconditionError, FileNotFoundError) as error:
                if _code_of(error) in _NO_BUCKET:
                    raise
                return None  # the object is there, was changed, or is gone

        return self._translated(key, put)

    def list(self, prefix: str, after: str = "") -> list[ListedObject]:
        """As `Bucket.list`."""

        def collect() -> list[ListedObject]:
            found = self._obstore.list(self._store, prefix=prefix or None, offset=after or None, chunk_size=1000)
            return sorted(ListedObject(one["path"], one["size"]) for page in found for one in page)

        return self._translated(prefix, collect)

    def delete(self, keys: Sequence[str]) -> None:
        """As `Bucket.delete`."""

        def delete() -> None:
            try:
                self._obstore.delete(self._store, list(keys))
            except FileNotFoundError as error:
                if _code_of(error) in _NO_BUCKET:
                    raise
                if len(keys) > 1:  # some stores report the first that is gone, and stop there
                    for key in keys:
                        self.delete([key])

        if keys:
            self._translated(keys[0], delete)

    def _translated(self, key: str, call: Callable[[], T]) -> T:
        """Run a call; raise our errors. The library's own texts are dropped: a URL in them may hold a signature."""
        try:
            return call()
        except ReplicaError:
            raise
        except Exception as error:
            failed = error_of(error, self.url, key, self._kind)
        raise failed


def _obstore() -> Any:
    try:
        module = importlib.import_module("obstore")
        importlib.import_module("obstore.exceptions")
    except ImportError as error:
        raise ReplicaError(
            'replicas in object storage need the package obstore: pip install "holdfast[replica]". A replica in a '
            "folder (file:///folder) needs nothing"
        ) from error
    return module


def _code_of(error: Exception) -> str:
    """Return the code of an error in S3's answer; empty if there is none."""
    found = _CODE.search(str(error))
    return found[1] if found else ""


def error_of(error: Exception, url: str, key: str, kind: str) -> ReplicaError:
    """Return what a failed call of obstore means: what happened, to which URL, and what to do."""
    text, name = str(error), type(error).__name__
    short = text.partition("Debug source")[0].lower()
    status = int(found[1]) if (found := _STATUS.search(text)) else 0
    code = _code_of(error)
    where = f"{url}/{key}" if key else url
    said = " ".join(filter(None, (f"HTTP {status}" if status else "", code)))
    if code in _NO_BUCKET:
        return ReplicaError(f"{url}: there is no such bucket ({said}). Create it, or correct the URL").of("no-bucket")
    if code in _EXPIRED:
        return ReplicaError(
            f"{url}: the credentials have expired ({said}). Renew them; those in the environment are read when the "
            "process is started again"
        ).of("expired")
    if code in _REGION or status in (301, 307) or _REDIRECTED in short:
        return ReplicaError(
            f"{url}: the bucket is in another region, or behind another endpoint ({said or 'HTTP 301'}). Set "
            "AWS_REGION or AWS_ENDPOINT_URL to those of the bucket"
        ).of("region")
    if code == "RequestTimeTooSkewed":
        return ReplicaError(f"{url}: the clock of this machine is wrong ({said}). Set it by a time server").of("clock")
    if isinstance(error, FileNotFoundError):
        return ObjectMissing(f"{where}: there is no such object")
    if status in (401, 403) or name in ("PermissionDeniedError", "UnauthenticatedError"):
        return ReplicaError(
            f"{where}: {kind} refused access ({said or 'no permission'}). Check the credentials in the environment, "
            "and that they may list the bucket and read, write and delete objects below the prefix"
        ).of("refused")
    if status in _TRY_AGAIN or (not status and (_CUT_OFF.search(text) or any(word in short for word in _NO_ANSWER))):
        why = said or "no answer"
        return ReplicaUnavailable(f"{where}: {kind} is not available ({why}). It is tried again; check the network")
    if "credential" in short or "metadata" in short:
        return ReplicaError(
            f"{url}: no credentials were found. Set them in the environment, such as AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY"
        ).of("credentials")
    return ReplicaError(f"{where}: a request failed ({said or name}). Check the URL and the settings of the endpoint")


def _without_secrets(url: str) -> str:
    """Return a URL that a user gave, without what may be a secret in it."""
    shown = url.partition("?")[0].partition("#")[0]
    return re.sub(r"//[^/]*:[^/]*", "//", re.sub(r"^(\w+://)?.*@", r"\1", shown))
